"""Hooks: functions that a low layer calls and a higher layer provides.

Imports only point down. Where `core` must call a function that is defined in `numpy` or `lax`, it declares an empty
`Hook`, typed by a protocol of these functions, and the higher package provides them when it is imported. The hook knows
which module that is, and imports it if it is used before.
"""

from __future__ import annotations

import importlib
from typing import Any, Generic, TypeVar, get_args

P = TypeVar("P")


class Hook(Generic[P]):
    """An empty place for functions that a higher layer provides, which become attributes of the hook.

    It is declared as `Hook[Protocol]("package.module")`; the methods of the protocol are the functions to provide.

    Args:
      *provided_by: the modules that provide the functions when they are imported.
    """

    def __init__(self, *provided_by: str):
        self._provided_by = provided_by

    def provide(self, **functions: Any) -> None:
        """Fill the hook: called by the modules named in `provided_by`, or by modules that these import."""
        (protocol,) = get_args(self.__dict__["__orig_class__"])
        unknown = [] if protocol is Any else [name for name in functions if not hasattr(protocol, name)]
        assert not unknown, f"{protocol.__name__} declares no {unknown}"
        self.__dict__.update(functions)

    def __getattr__(self, name: str) -> Any:
        # Reached only for names that have not been provided: the hook is empty, or there is no such function.
        if name.startswith("__"):
            raise AttributeError(name)
        for module in self._provided_by:  # in turn, so that no module is loaded for functions of an earlier one
            importlib.import_module(module)
            if name in self.__dict__:
                return self.__dict__[name]
        raise AttributeError(f"{' and '.join(self._provided_by)} provide no {name!r}")
