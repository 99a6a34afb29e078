"""An empty seat: how a low room names something that a higher room will bring.

Imports only point down, so where `core` must call what `numpy` or `lax` know, it keeps a `Seat` that the higher room
takes when it is imported; `fill` names the module whose import fills it, so that whoever sits down first finds it.
"""

from __future__ import annotations

import importlib
from typing import Any


class Seat:
    """A place for one object that a higher room provides.

    Args:
      taken_by: the module that takes the seat when it is imported.
    """

    __slots__ = ("_held", "taken_by")

    def __init__(self, taken_by: str):
        self.taken_by = taken_by

    def take(self, held: Any) -> None:
        """Sit down: called once, by the module named in `taken_by`."""
        self._held = held

    def __getattr__(self, name: str) -> Any:
        # Reached only for names that are not slots with a value: the seat is empty, or it is an attribute of the guest.
        if name == "_held":
            importlib.import_module(self.taken_by)
            return object.__getattribute__(self, "_held")
        return getattr(self._held, name)
