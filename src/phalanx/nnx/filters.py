"""Filters: which variables are meant, by kind, tag, path or predicate.

A filter is written as a type, a string (the tag in the metadata), a predicate `(path, value) -> bool`, `...` or True
for all, None or False for none, or a list or tuple of filters for any of them. Everything that takes filters turns
them into predicates with `to_predicate`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from phalanx.core.errors import ArgumentError, ArgumentTypeError

Filter = Any
Predicate = Callable[[tuple, Any], bool]


def to_predicate(filter: Filter) -> Predicate:
    """The predicate `(path, value) -> bool` of a filter.

    Args:
      filter: the filter.

    Raises:
      ArgumentTypeError: it is none.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.filterlib.to_predicate((nnx.Param, "dropout"))
      Any(OfType(Param), WithTag('dropout'))
    """
    if isinstance(filter, str):
        return WithTag(filter)
    if isinstance(filter, type):
        return OfType(filter)
    if filter is Ellipsis or filter is True:
        return Everything()
    if filter is None or filter is False:
        return Nothing()
    if callable(filter):
        return filter
    if isinstance(filter, list | tuple):
        return AnyOf(*filter)
    raise ArgumentTypeError(
        "filter",
        expected="a type, a tag, a predicate of path and value, `...`, a bool, None, or a list of filters",
        got=f"{filter!r} of type {type(filter).__name__}",
        mend="write one of these",
    )


@dataclasses.dataclass(frozen=True)
class WithTag:
    """Variables whose metadata `tag` is this one.

    Args:
      tag: the tag.

    Examples:
      >>> from phalanx import nnx
      >>> params = nnx.state(nnx.Rngs(params=0, dropout=1), nnx.WithTag("dropout"))
      >>> list(params)
      ['dropout']
    """

    tag: str

    def __call__(self, path: tuple, x: Any) -> bool:
        metadata = getattr(x, "_metadata", None)
        return metadata is not None and metadata.get("tag") == self.tag

    def __repr__(self) -> str:
        return f"WithTag({self.tag!r})"


@dataclasses.dataclass(frozen=True)
class PathContains:
    """What has this key somewhere in its path.

    Args:
      key: an attribute's name, or an index.
      exact: whether the key must be equal to one of the path, or may be a part of the text of one.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.state({"head": nnx.Param(1.0), "body": nnx.Param(2.0)}, nnx.PathContains("head"))
      State({'head': Param(value=1.0)})
    """

    key: Any
    exact: bool = True

    def __call__(self, path: tuple, x: Any) -> bool:
        return self.key in path if self.exact else any(str(self.key) in str(k) for k in path)

    def __repr__(self) -> str:
        return f"PathContains({self.key!r})"


class PathIn:
    """What is at one of these paths.

    Args:
      *paths: tuples of keys.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.state({"a": nnx.Param(1.0), "b": nnx.Param(2.0)}, nnx.PathIn(("b",)))
      State({'b': Param(value=2.0)})
    """

    def __init__(self, *paths: tuple):
        self.paths = frozenset(paths)

    def __call__(self, path: tuple, x: Any) -> bool:
        return path in self.paths

    def __eq__(self, other: object) -> bool:
        return type(other) is PathIn and self.paths == other.paths

    def __hash__(self) -> int:
        return hash(self.paths)

    def __repr__(self) -> str:
        return f"PathIn{tuple(sorted(self.paths, key=str))!r}"


@dataclasses.dataclass(frozen=True)
class OfType:
    """Values of a type: variables of a kind, or whatever says of itself that it stands for one (`x.type`).

    Args:
      type: the type.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.state({"a": nnx.Param(1.0), "b": nnx.Cache(2.0)}, nnx.OfType(nnx.Cache))
      State({'b': Cache(value=2.0)})
    """

    type: type

    def __call__(self, path: tuple, x: Any) -> bool:
        if isinstance(x, self.type):
            return True
        kind = getattr(x, "_variable_type", None)
        return kind is not None and issubclass(kind, self.type)

    def __repr__(self) -> str:
        return f"OfType({self.type.__name__})"


class _Combined:
    def __init__(self, *filters: Filter):
        self.predicates = tuple(to_predicate(f) for f in filters)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.predicates == other.predicates

    def __hash__(self) -> int:
        return hash((type(self), self.predicates))

    def __repr__(self) -> str:
        return f"{type(self).__name__.removesuffix('Of')}({', '.join(map(repr, self.predicates))})"


class AnyOf(_Combined):
    """What at least one of these filters means.

    Args:
      *filters: the filters.

    Examples:
      >>> from phalanx import nnx
      >>> list(
      ...     nnx.state({"a": nnx.Param(1.0), "b": nnx.Cache(2.0)}, nnx.Any(nnx.Param, nnx.PathContains("b")))
      ... )
      ['a', 'b']
    """

    def __call__(self, path: tuple, x: Any) -> bool:
        return any(p(path, x) for p in self.predicates)


class All(_Combined):
    """What every one of these filters means.

    Args:
      *filters: the filters.

    Examples:
      >>> from phalanx import nnx
      >>> list(
      ...     nnx.state({"a": nnx.Param(1.0), "b": nnx.Param(2.0)}, nnx.All(nnx.Param, nnx.PathContains("b")))
      ... )
      ['b']
    """

    def __call__(self, path: tuple, x: Any) -> bool:
        return all(p(path, x) for p in self.predicates)


class Not(_Combined):
    """What a filter does not mean.

    Args:
      filter: the filter.

    Examples:
      >>> from phalanx import nnx
      >>> list(nnx.state({"a": nnx.Param(1.0), "b": nnx.Cache(2.0)}, nnx.Not(nnx.Param)))
      ['b']
    """

    def __init__(self, filter: Filter, /):
        super().__init__(filter)

    def __call__(self, path: tuple, x: Any) -> bool:
        return not self.predicates[0](path, x)


@dataclasses.dataclass(frozen=True)
class Everything:
    """All there is.

    Examples:
      >>> from phalanx import nnx
      >>> list(nnx.state({"a": nnx.Param(1.0), "b": nnx.Cache(2.0)}, nnx.Everything()))
      ['a', 'b']
    """

    def __call__(self, path: tuple, x: Any) -> bool:
        return True

    def __repr__(self) -> str:
        return "Everything()"


@dataclasses.dataclass(frozen=True)
class Nothing:
    """Nothing at all.

    Examples:
      >>> from phalanx import nnx
      >>> list(nnx.state({"a": nnx.Param(1.0)}, nnx.Nothing()))
      []
    """

    def __call__(self, path: tuple, x: Any) -> bool:
        return False

    def __repr__(self) -> str:
        return "Nothing()"


def predicates_of(filters: Sequence[Filter], where: str) -> list[Predicate]:
    """The predicates of several filters, of which only the last may be `...`.

    Raises:
      ArgumentError: `...` or True comes before another filter.
    """
    for i, f in enumerate(filters):
        if (f is Ellipsis or f is True) and any(g is not Ellipsis and g is not True for g in filters[i + 1 :]):
            raise ArgumentError(
                f"{where}, filter {i}",
                expected="`...` as the last filter only, since it takes all that is left",
                got=f"{filters[i + 1]!r} after it",
                mend="put the `...` last",
            )
    return [to_predicate(f) for f in filters]


def first_match(predicates: Iterable[Predicate], path: tuple, value: Any) -> int | None:
    """The number of the first predicate that holds; None if none does."""
    return next((i for i, p in enumerate(predicates) if p(path, value)), None)
