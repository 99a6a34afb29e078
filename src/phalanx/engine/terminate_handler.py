"""The handler that C++ calls before it ends the process because of an exception that nothing catches.

jaxlib's wheels for Linux load libstdc++ as a shared library, so the handler can be set here. The thread that raised
the exception calls it and cannot go on. But the process can: the handler may keep that thread, and let the others know.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

_Handler = ctypes.CFUNCTYPE(None)
_installed: list[ctypes._FuncPointer] = []  # C++ keeps their addresses only


def add_terminate_handler(handle: Callable[[str], None]) -> None:
    """Call a function before C++ ends the process, from now on; elsewhere than on Linux, do nothing.

    Args:
      handle: the function; it gets the name of the exception's type as the compiler encodes it, such as `St9exception`.
        If it returns, the handler that was there before is called.
    """
    if sys.platform != "linux":
        return
    exception_type = _library()["__cxa_current_exception_type"]
    exception_type.restype = ctypes.c_void_p

    @_Handler
    def report() -> None:
        handle(_type_name(exception_type()))
        previous()

    previous = _set_terminate(report)
    _installed.append(report)


def _library() -> ctypes.CDLL:
    return ctypes.CDLL("libstdc++.so.6")


def _set_terminate(handler: Any) -> Any:
    """Set the handler, and return the one that was there before."""
    set_terminate = _library()["_ZSt13set_terminatePFvvE"]
    set_terminate.restype, set_terminate.argtypes = _Handler, [_Handler]
    return set_terminate(handler)


def _type_name(type_info: int | None) -> str:
    """The name in a `std::type_info`, which follows the pointer to its table of virtual functions."""
    if type_info is None:
        return ""
    name = ctypes.c_char_p.from_address(type_info + ctypes.sizeof(ctypes.c_void_p)).value or b""
    return name.lstrip(b"*").decode()
