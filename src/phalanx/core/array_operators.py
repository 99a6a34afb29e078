"""The operators and methods of arrays and tracers, which `phalanx.numpy` provides.

The first use of an operator imports `phalanx.numpy.array_methods`, which installs functions of `phalanx.numpy` as
methods of `Operators`, the common base of arrays and tracers. From then on `x + y` is a direct call. This is why the
operators are not an `engine.hook.Hook`: a hook would add a look-up to each operator, and Python looks for operators on
the class only.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from phalanx.engine.traceback_filtering import api_boundary, guard_methods, hide_frames, mark_api_boundary

if TYPE_CHECKING:
    from phalanx.core.array_method_types import ArrayMethods
else:
    ArrayMethods = object

_binary = "add sub mul truediv floordiv mod divmod pow matmul and or xor lshift rshift".split()
DUNDERS = [
    *(f"__{name}__" for name in _binary),
    *(f"__r{name}__" for name in _binary),
    *(f"__{name}__" for name in "neg pos abs invert round eq ne lt le gt ge getitem iter".split()),
]

_PROVIDER = "phalanx.numpy.array_methods"


class Operators(ArrayMethods):
    """Base of `Array` and `Tracer`: the operators and methods of an array."""

    __slots__ = ()
    __array_priority__ = 100

    if not TYPE_CHECKING:  # Type checkers would accept any name.

        def __getattr__(self, name: str) -> Any:
            # Reached only if no class has the name: the methods are not installed yet, or there is no such method.
            if name.startswith("_"):  # `hasattr` asks for these often, and no user sees the frame of the error.
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            try:
                if not _is_installed():
                    importlib.import_module(_PROVIDER)
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
        return importlib.import_module("phalanx.numpy")

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError("arrays do not change in place: write x = x.at[index].set(value) instead of x[index] = value")


mark_api_boundary(vars(Operators)["__getattr__"])
guard_methods(Operators, "__len__ __setitem__")


def install(methods: Mapping[str, Callable[..., Any] | property]) -> None:
    """Make these functions the methods of arrays and tracers; there are no others."""
    _define(methods)
    # NumPy looks for attributes that arrays lack, at each conversion; a failed look-up in C costs next to nothing.
    if "__getattr__" in vars(Operators):
        delattr(Operators, "__getattr__")


def _define(methods: Mapping[str, Callable[..., Any] | property]) -> None:
    for name, method in methods.items():
        if isinstance(method, property):
            guarded: Any = property(api_boundary(method.fget)) if method.fget else method
        else:
            guarded = api_boundary(method)
        setattr(Operators, name, guarded)


def _is_installed() -> bool:
    return getattr(Operators, "__add__") is not _importing["__add__"]  # noqa: B009


def _import_first(name: str) -> Callable[..., Any]:
    def operator(self: Any, *args: Any) -> Any:
        importlib.import_module(_PROVIDER)
        return getattr(type(self), name)(self, *args)

    operator.__name__ = name
    return operator


_importing = {name: api_boundary(_import_first(name)) for name in DUNDERS}
_define(_importing)
