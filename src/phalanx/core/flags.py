"""Lists told apart by flags: the wanted items of a list, and a list put together from both kinds.

Programs are split, batched and differentiated by questions that have one answer for each input or output (is it known,
is it mapped, has it a tangent?); whoever derives programs takes its lists apart and puts them together with these.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any


def each(flag: Any, items: Sequence[Any]) -> tuple[Any, ...]:
    """A flag for each item, from one for all or from as many."""
    return (flag,) * len(items) if isinstance(flag, bool) else tuple(flag)


def chosen(items: Iterable[Any], flags: Iterable[bool]) -> list:
    """The items whose flags are set."""
    return [x for x, f in zip(items, flags, strict=True) if f]


def others(items: Iterable[Any], flags: Iterable[bool]) -> list:
    """The items whose flags are not set."""
    return [x for x, f in zip(items, flags, strict=True) if not f]


def merged(flags: Sequence[bool], where_set: Iterable[Any], elsewhere: Iterable[Any]) -> list:
    """One item for each flag, in order from the first list where it is set, from the second where it is not."""
    yes, no = iter(where_set), iter(elsewhere)
    return [next(yes) if f else next(no) for f in flags]


def filled(flags: Sequence[bool], items: Iterable[Any], default: Any = None) -> list:
    """The items in order where the flags are set, and the default elsewhere."""
    return merged(flags, items, itertools.repeat(default))
