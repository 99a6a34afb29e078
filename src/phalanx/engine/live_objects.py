"""The live objects of a kind, such as all compiled functions, to which any thread may add others at any time."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class LiveObjects(Generic[T]):
    """A set of objects that it does not keep alive; objects that are equal are different members.

    Iteration is over the objects at its begin; that over a `WeakSet` fails if another thread adds one meanwhile.
    """

    def __init__(self) -> None:
        self._by_id: weakref.WeakValueDictionary[int, T] = weakref.WeakValueDictionary()

    def add(self, member: T) -> None:
        """Add an object."""
        self._by_id[id(member)] = member

    def __iter__(self) -> Iterator[T]:
        return iter([found for reference in self._by_id.valuerefs() if (found := reference()) is not None])
