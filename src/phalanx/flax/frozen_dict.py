"""`FrozenDict`: an immutable, hashable nested dictionary that is a pytree, and functions for it and for `dict`.

Users find them in `phalanx.flax.core`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, TypeVar

from phalanx.flax.state_dicts import register_serialization_state, restore_dict, to_state_dict
from phalanx.tree import DictKey, register_pytree_with_keys

K = TypeVar("K")
V = TypeVar("V")


class FrozenDict(Mapping[K, V]):
    """An immutable nested dictionary.

    Args:
      *args, **kwargs: as of `dict`; nested dictionaries are frozen as well.

    Examples:
      >>> from phalanx.flax.core import FrozenDict
      >>> params = FrozenDict({"dense": {"bias": 1.0}})
      >>> params["dense"], params.copy({"scale": 2.0})
      (FrozenDict({'bias': 1.0}), FrozenDict({'dense': FrozenDict({'bias': 1.0}), 'scale': 2.0}))
    """

    __slots__ = ("_dict", "_hash")

    def __init__(self, *args: Any, **kwargs: Any):
        self._dict: dict[Any, Any] = _copy_nested(dict(*args, **kwargs))
        self._hash: int | None = None

    def __getitem__(self, key: K) -> Any:
        value = self._dict[key]
        return FrozenDict(value) if isinstance(value, dict) else value

    def __setitem__(self, key: K, value: V) -> None:
        raise ValueError("a FrozenDict is immutable; use .copy({key: value}) to get one with another value")

    def __contains__(self, key: object) -> bool:
        return key in self._dict

    def __iter__(self) -> Iterator[K]:
        return iter(self._dict)

    def __len__(self) -> int:
        return len(self._dict)

    def __reduce__(self) -> tuple:
        return FrozenDict, (self.unfreeze(),)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.items()))
        return self._hash

    def copy(self, add_or_replace: Mapping[K, V] | None = None) -> FrozenDict[K, V]:
        """Return a copy with further or other entries.

        Args:
          add_or_replace: the entries.

        Returns:
          The copy.
        """
        return FrozenDict({**self._dict, **unfreeze(add_or_replace or {})})

    def pop(self, key: K) -> tuple[FrozenDict[K, V], V]:
        """Return a copy without an entry, and the value of the entry.

        Args:
          key: the key.

        Returns:
          `(copy, value)`.
        """
        return FrozenDict({k: v for k, v in self._dict.items() if k != key}), self[key]

    def unfreeze(self) -> dict[K, V]:
        """Return a mutable copy.

        Returns:
          Nested dictionaries.
        """
        return _copy_nested(self._dict)

    def pretty_repr(self, num_spaces: int = 4) -> str:
        """Return the entries as indented lines.

        Args:
          num_spaces: the indentation of each level.

        Returns:
          The text.
        """
        return f"FrozenDict({_format(self._dict, num_spaces)})"

    def __repr__(self) -> str:
        return f"FrozenDict({{{', '.join(f'{k!r}: {v!r}' for k, v in self.items())}}})"


def _copy_nested(x: Any) -> Any:
    if isinstance(x, FrozenDict):
        x = x._dict
    return {k: _copy_nested(v) for k, v in x.items()} if isinstance(x, dict) else x


def _format(x: Any, num_spaces: int) -> str:
    if not isinstance(x, dict):
        return repr(x)
    lines = (f"{key!r}: {_format(value, num_spaces)},\n" for key, value in x.items())
    indented = "".join(" " * num_spaces + line.replace("\n", "\n" + " " * num_spaces).rstrip(" ") for line in lines)
    return f"{{\n{indented}}}" if x else "{}"


register_pytree_with_keys(
    FrozenDict,
    lambda x: ([(DictKey(k), x._dict[k]) for k in sorted(x._dict)], tuple(sorted(x._dict))),
    lambda keys, children: FrozenDict(zip(keys, children)),
)
register_serialization_state(
    FrozenDict,
    lambda x: {str(key): to_state_dict(value) for key, value in x.items()},
    lambda x, state: FrozenDict(restore_dict(dict(x.items()), state)),
)


def freeze(xs: Mapping[K, V]) -> FrozenDict[K, V]:
    """Return an immutable copy of nested dictionaries.

    Args:
      xs: the dictionaries.

    Returns:
      The `FrozenDict`.

    Examples:
      >>> from phalanx.flax.core import freeze
      >>> freeze({"a": {"b": 1}})
      FrozenDict({'a': FrozenDict({'b': 1})})
    """
    return FrozenDict(xs)


def unfreeze(x: Mapping[K, V]) -> dict[K, V]:
    """Return a mutable copy of a `FrozenDict` or of nested dictionaries that contain some.

    Args:
      x: the mapping.

    Returns:
      Nested dictionaries.

    Examples:
      >>> from phalanx.flax.core import FrozenDict, unfreeze
      >>> unfreeze(FrozenDict({"a": {"b": 1}}))
      {'a': {'b': 1}}
    """
    return _copy_nested(x)


def copy(x: Mapping[K, V], add_or_replace: Mapping[K, V] | None = None) -> Any:
    """Return a copy of a `FrozenDict` or a dictionary with further or other entries.

    Args:
      x: the mapping.
      add_or_replace: the entries.

    Returns:
      A mapping of the same class.

    Examples:
      >>> from phalanx.flax.core import copy
      >>> copy({"a": 1}, {"b": 2})
      {'a': 1, 'b': 2}
    """
    return x.copy(add_or_replace) if isinstance(x, FrozenDict) else {**_copy_nested(x), **(add_or_replace or {})}


def pop(x: Mapping[K, V], key: Hashable) -> tuple[Any, Any]:
    """Return a copy of a `FrozenDict` or a dictionary without an entry, and the value of the entry.

    Args:
      x: the mapping.
      key: the key.

    Returns:
      `(copy, value)`.

    Examples:
      >>> from phalanx.flax.core import pop
      >>> pop({"a": 1, "b": 2}, "a")
      ({'b': 2}, 1)
    """
    if isinstance(x, FrozenDict):
        return x.pop(key)
    rest = _copy_nested(x)
    value = rest.pop(key)
    return rest, value


def pretty_repr(x: Any, num_spaces: int = 4) -> str:
    """Return nested dictionaries as indented lines.

    Args:
      x: a `FrozenDict`, a dictionary, or any other value, whose `repr` is returned.
      num_spaces: the indentation of each level.

    Returns:
      The text.

    Examples:
      >>> from phalanx.flax.core import pretty_repr
      >>> print(pretty_repr({"a": {"b": 1}}, 2))
      {
        'a': {
          'b': 1,
        },
      }
    """
    return x.pretty_repr(num_spaces) if isinstance(x, FrozenDict) else _format(x, num_spaces)
