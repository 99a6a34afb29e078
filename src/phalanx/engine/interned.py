"""Interning: one object for each key, so that equality is identity and a cache key made of them hashes by address.

Contexts, meshes and shardings are held weakly, for as long as somebody has them, and made under a lock, so that two
threads that ask for one get the same. It stands on the lowest floor because every room above interns.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Interned(weakref.WeakValueDictionary[Any, T]):
    """The objects of some kind by what tells them apart; hot paths ask with `get` first."""

    def __init__(self) -> None:
        super().__init__()
        self._making = threading.RLock()

    def intern(self, key: Any, make: Callable[[], T]) -> T:
        """The one object for a key, made where there is none yet."""
        with self._making:
            if (found := self.get(key)) is None:
                found = self[key] = make()
            return found
