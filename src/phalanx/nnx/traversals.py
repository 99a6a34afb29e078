"""Nested mappings as flat ones and back: what programs do to parameters outside of any module."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from phalanx.core.errors import ArgumentTypeError

Path = tuple[Any, ...]


class _EmptyNode:
    """Stands in a flat mapping for an empty one in the nested mapping."""

    def __repr__(self) -> str:
        return "empty_node"


empty_node = _EmptyNode()


def flatten_mapping(
    xs: Mapping[Any, Any], /, *, keep_empty_nodes: bool = False,
    is_leaf: Callable[[Path, Any], bool] | None = None, sep: str | None = None,
) -> dict[Any, Any]:  # fmt: skip
    """A nested mapping as a flat one from paths to leaves.

    Args:
      xs: the nested mapping.
      keep_empty_nodes: keep an `empty_node` where there is an empty mapping.
      is_leaf: whether a mapping counts as a leaf, `(path, mapping) -> bool`.
      sep: what joins the keys of a path to one string; without it paths are tuples.

    Raises:
      ArgumentTypeError: `xs` is no mapping.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.traversals.flatten_mapping({"a": {"b": 1}, "c": 2}, sep="/")
      {'a/b': 1, 'c': 2}
    """
    if not isinstance(xs, Mapping):
        raise ArgumentTypeError("flatten_mapping", expected="a mapping", got=f"a {type(xs).__name__}",
                                mend="pass a dictionary or a State")  # fmt: skip

    def leaves(held: Any, path: Path) -> Iterator[tuple[Path, Any]]:
        if not isinstance(held, Mapping) or (is_leaf is not None and is_leaf(path, held)):
            yield path, held
        elif held:
            for key, value in held.items():
                yield from leaves(value, (*path, key))
        elif keep_empty_nodes and path:
            yield path, empty_node

    return {path if sep is None else sep.join(map(str, path)): leaf for path, leaf in leaves(xs, ())}


def unflatten_mapping(xs: Any, /, *, sep: str | None = None) -> dict[Any, Any]:
    """A flat mapping from paths to leaves as nested dictionaries: the inverse of `flatten_mapping`.

    Args:
      xs: the flat mapping, or pairs (path, leaf).
      sep: what joins the keys of a path, where paths are strings.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.traversals.unflatten_mapping({("a", "b"): 1, ("c",): 2})
      {'a': {'b': 1}, 'c': 2}
    """
    pairs: Iterable = xs.items() if isinstance(xs, Mapping) else xs
    root: dict[Any, Any] = {}
    for path, leaf in pairs:
        *above, last = path if sep is None else path.split(sep)
        node = root
        for key in above:
            node = node.setdefault(key, {})
        node[last] = {} if leaf is empty_node else leaf
    return root


def flatten_to_sequence(
    xs: Mapping[Any, Any], /, *, is_leaf: Callable[[Path, Any], bool] | None = None
) -> list[tuple[Path, Any]]:
    """A nested mapping as pairs (path, leaf).

    Args:
      xs: the nested mapping.
      is_leaf: as in `flatten_mapping`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.traversals.flatten_to_sequence({"a": {"b": 1}, "c": 2})
      [(('a', 'b'), 1), (('c',), 2)]
    """
    return list(flatten_mapping(xs, is_leaf=is_leaf).items())
