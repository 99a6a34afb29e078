"""Filters, which select variables by type, tag, path or predicate.

A filter is a type, a string (matched against the `tag` in the metadata), a predicate `(path, value) -> bool`, `...` or
True (matches everything), None or False (matches nothing), or a list or tuple of filters (matches if any of them does).
Functions that take filters convert them to predicates with `to_predicate`.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeAlias

from phalanx.core import ArgumentError, ArgumentTypeError

Predicate: TypeAlias = Callable[[tuple, typing.Any], bool]
Filter: TypeAlias = typing.Any
"""A type, a tag, a predicate, `...`, a bool, None, or a sequence of filters."""


def to_predicate(filter: Filter) -> Predicate:
    """Convert a filter to a predicate `(path, value) -> bool`.

    Args:
      filter: the filter.

    Returns:
      The predicate.

    Raises:
      ArgumentTypeError: the value is not a filter.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.filterlib.to_predicate((nnx.Param, "dropout"))
      Any(OfType(Param), WithTag('dropout'))
    """
    match filter:
        case str():
            return WithTag(filter)
        case type():
            return OfType(filter)
        case _ if filter is Ellipsis or filter is True:
            return Everything()
        case None | False:
            return Nothing()
        # After the types, which are callable as well.
        case _ if callable(filter):
            return filter
        case list() | tuple():
            return Any(*filter)
    raise ArgumentTypeError(
        "filter",
        expected="a type, a tag, a predicate of path and value, `...`, a bool, None, or a list of filters",
        got=f"{filter!r} of type {type(filter).__name__}",
        fix="pass a class of variables such as nnx.Param, or a function of (path, value)",
    )


@dataclasses.dataclass(frozen=True)
class WithTag:
    """Matches variables whose metadata has this `tag`.

    Args:
      tag: the tag.

    Examples:
      >>> from phalanx import nnx
      >>> params = nnx.state(nnx.Rngs(params=0, dropout=1), nnx.WithTag("dropout"))
      >>> list(params)
      ['dropout']
    """

    tag: str

    def __call__(self, path: tuple, x: object) -> bool:
        metadata = getattr(x, "_metadata", None)
        return metadata is not None and metadata.get("tag") == self.tag

    def __repr__(self) -> str:
        return f"WithTag({self.tag!r})"


@dataclasses.dataclass(frozen=True)
class PathContains:
    """Matches values whose path contains a key.

    Args:
      key: the name of an attribute, or an index.
      exact: whether a key of the path must equal `key`; if False, it may contain the text of `key`.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.state({"head": nnx.Param(1.0), "body": nnx.Param(2.0)}, nnx.PathContains("head"))
      State({
        'head': Param(
          value=1.0
        )
      })
    """

    key: Hashable
    exact: bool = True

    def __call__(self, path: tuple, x: object) -> bool:
        return self.key in path if self.exact else any(str(self.key) in str(k) for k in path)

    def __repr__(self) -> str:
        return f"PathContains({self.key!r}{'' if self.exact else ', exact=False'})"


class _ComparedByValue:
    """A filter that equals others of its class with the same arguments, so that caches find both."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))


class PathIn(_ComparedByValue):
    """Matches values at one of several paths.

    Args:
      *paths: tuples of keys.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.state({"a": nnx.Param(1.0), "b": nnx.Param(2.0)}, nnx.PathIn(("b",)))
      State({
        'b': Param(
          value=2.0
        )
      })
    """

    def __init__(self, *paths: tuple):
        self.paths = frozenset(paths)

    def __call__(self, path: tuple, x: object) -> bool:
        return path in self.paths

    def __repr__(self) -> str:
        return f"PathIn{tuple(sorted(self.paths, key=str))!r}"


@dataclasses.dataclass(frozen=True)
class OfType:
    """Matches instances of a type, such as `nnx.Param`.

    Args:
      type: the type.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.state({"a": nnx.Param(1.0), "b": nnx.Cache(2.0)}, nnx.OfType(nnx.Cache))
      State({
        'b': Cache(
          value=2.0
        )
      })
    """

    type: type

    def __call__(self, path: tuple, x: object) -> bool:
        return isinstance(x, self.type)

    def __repr__(self) -> str:
        return f"OfType({self.type.__name__})"


class _Combined(_ComparedByValue):
    """A filter made of other filters."""

    def __init__(self, *filters: Filter):
        self.predicates = tuple(to_predicate(f) for f in filters)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.predicates))})"


class Any(_Combined):
    """Matches values that at least one of several filters matches.

    Args:
      *filters: the filters.

    Examples:
      >>> from phalanx import nnx
      >>> list(
      ...     nnx.state({"a": nnx.Param(1.0), "b": nnx.Cache(2.0)}, nnx.Any(nnx.Param, nnx.PathContains("b")))
      ... )
      ['a', 'b']
    """

    def __call__(self, path: tuple, x: object) -> bool:
        return any(p(path, x) for p in self.predicates)


class All(_Combined):
    """Matches values that all of several filters match.

    Args:
      *filters: the filters.

    Examples:
      >>> from phalanx import nnx
      >>> list(
      ...     nnx.state({"a": nnx.Param(1.0), "b": nnx.Param(2.0)}, nnx.All(nnx.Param, nnx.PathContains("b")))
      ... )
      ['b']
    """

    def __call__(self, path: tuple, x: object) -> bool:
        return all(p(path, x) for p in self.predicates)


class Not(_Combined):
    """Matches values that a filter does not match.

    Args:
      filter: the filter.

    Examples:
      >>> from phalanx import nnx
      >>> list(nnx.state({"a": nnx.Param(1.0), "b": nnx.Cache(2.0)}, nnx.Not(nnx.Param)))
      ['b']
    """

    def __init__(self, filter: Filter, /):
        super().__init__(filter)

    def __call__(self, path: tuple, x: object) -> bool:
        return not self.predicates[0](path, x)


class Everything(_Combined):
    """A filter that matches every value.

    Examples:
      >>> from phalanx import nnx
      >>> list(nnx.state({"a": nnx.Param(1.0), "b": nnx.Cache(2.0)}, nnx.Everything()))
      ['a', 'b']
    """

    def __call__(self, path: tuple, x: object) -> bool:
        return True


class Nothing(_Combined):
    """A filter that matches no value.

    Examples:
      >>> from phalanx import nnx
      >>> list(nnx.state({"a": nnx.Param(1.0)}, nnx.Nothing()))
      []
    """

    def __call__(self, path: tuple, x: object) -> bool:
        return False


def to_predicates(filters: Sequence[Filter], where: str) -> list[Predicate]:
    """Convert several filters to predicates; only the last one may be `...`.

    Args:
      filters: the filters.
      where: the caller, for error messages.

    Returns:
      One predicate for each filter.

    Raises:
      ArgumentError: `...` or True comes before another filter, which would then never match.
    """
    for i, f in enumerate(filters):
        if (f is Ellipsis or f is True) and any(g is not Ellipsis and g is not True for g in filters[i + 1 :]):
            raise ArgumentError(
                f"{where}, filter {i}",
                expected="`...` as the last filter only, since it matches everything that remains",
                got=f"{filters[i + 1]!r} after it",
                fix=f"move the `...` behind {filters[-1]!r}",
            )
    return [to_predicate(f) for f in filters]


def first_match(predicates: Iterable[Predicate], path: tuple, value: object) -> int | None:
    """The index of the first predicate that matches a value; None if none does."""
    return next((i for i, p in enumerate(predicates) if p(path, value)), None)
