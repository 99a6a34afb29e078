"""Partitioning of lists by flags, and merging of the parts.

Transformations split a jaxpr's inputs and outputs by a property of each: whether it is known, mapped, or has a tangent.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any


def broadcast_flag(flag: Any, items: Sequence[Any]) -> tuple[Any, ...]:
    """Repeat one flag for each item, or check nothing and return a tuple of as many flags as there are items."""
    return (flag,) * len(items) if isinstance(flag, bool) else tuple(flag)


def select_flagged(items: Iterable[Any], flags: Iterable[bool]) -> list[Any]:
    """The items whose flags are True."""
    return [x for x, f in zip(items, flags, strict=True) if f]


def select_unflagged(items: Iterable[Any], flags: Iterable[bool]) -> list[Any]:
    """The items whose flags are False."""
    return [x for x, f in zip(items, flags, strict=True) if not f]


def merge_lists(flags: Sequence[bool], where_set: Iterable[Any], elsewhere: Iterable[Any]) -> list[Any]:
    """Merge two lists: for each flag, the next item of `where_set` if it is True, else of `elsewhere`."""
    yes, no = iter(where_set), iter(elsewhere)
    return [next(yes) if f else next(no) for f in flags]


def fill_flagged(flags: Sequence[bool], items: Iterable[Any], default: Any = None) -> list[Any]:
    """The items in order where the flags are True, and the default elsewhere."""
    return merge_lists(flags, items, itertools.repeat(default))
