"""Operators: the methods that arrays and tracers share, brought by `phalanx.numpy`.

`Operators` is the empty seat for them: the first use of an operator imports the room that takes it, which installs its
functions as methods in one go, so that afterwards `x + y` is a direct call.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from phalanx.engine.frames import as_boundary, boundary, guard_methods, hide_frames

_binary = "add sub mul truediv floordiv mod divmod pow matmul and or xor lshift rshift".split()
DUNDERS = [
    *(f"__{name}__" for name in _binary),
    *(f"__r{name}__" for name in _binary),
    *(f"__{name}__" for name in "neg pos abs invert round eq ne lt le gt ge getitem iter".split()),
]

_taken_by = "phalanx.numpy"


class Operators:
    """Base of `Array` and `Tracer`: the operators and methods of an array."""

    __slots__ = ()
    __array_priority__ = 100

    def __getattr__(self, name: str) -> Any:
        # Reached only when no class has the name: either the methods are not installed yet, or there is no such one.
        if name.startswith("_"):  # Asked by ourselves and by `hasattr`, many times: nobody sees the frame.
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        try:
            if not _is_taken():
                importlib.import_module(_taken_by)
                return getattr(self, name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        except Exception as error:
            hide_frames(error)
            raise

    def __len__(self) -> int:
        shape = self.aval.shape
        if not shape:
            raise TypeError("len() of an array of rank 0")
        return shape[0]

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return importlib.import_module(_taken_by)

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError("arrays do not change in place: write x = x.at[index].set(value) instead of x[index] = value")


as_boundary(Operators.__getattr__)
guard_methods(Operators, "__len__ __setitem__")


def install(methods: Mapping[str, Callable | property]) -> None:
    """Take the seat: make these functions the methods of arrays and tracers."""
    for name, method in methods.items():
        if isinstance(method, property):
            guarded: Any = property(boundary(method.fget)) if method.fget else method
        else:
            guarded = boundary(method)
        setattr(Operators, name, guarded)


def _is_taken() -> bool:
    return getattr(Operators, "__add__") is not _waiting["__add__"]  # noqa: B009


def _wait_for(name: str) -> Callable:
    def operator(self: Any, *args: Any) -> Any:
        importlib.import_module(_taken_by)
        return getattr(type(self), name)(self, *args)

    operator.__name__ = name
    return operator


_waiting = {name: boundary(_wait_for(name)) for name in DUNDERS}
install(_waiting)
