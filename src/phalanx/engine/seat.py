"""An empty seat: how a low room names something that a higher room will bring.

Imports only point down, so where `core` must call what `numpy` or `lax` know, it keeps a `Seat` that the higher room
takes when it is imported; `taken_by` names the module whose import fills it, so that whoever sits down first finds it.
"""

from __future__ import annotations

import importlib
from typing import Any


class Seat:
    """A place for functions that a higher room provides, by which they become attributes of the seat.

    Args:
      taken_by: the module that takes the seat when it is imported.
    """

    def __init__(self, taken_by: str):
        self._taken_by = taken_by

    def take(self, **held: Any) -> None:
        """Sit down: called once, by the module named in `taken_by`, with what it brings by name."""
        self.__dict__.update(held)

    def __getattr__(self, name: str) -> Any:
        # Reached only for names that nobody has brought: the seat is empty, or there is no such name.
        importlib.import_module(self._taken_by)
        if name not in self.__dict__:
            raise AttributeError(f"{self._taken_by} brings no {name!r}")
        return self.__dict__[name]
