"""Kernels that users bring, as operations: registered with XLA by a name, called from programs by `ffi_call`.

A kernel is a shared library's handler in the form of XLA's FFI, whose headers lie in `include_dir()`. The call itself
is `lax/ffi.py`; registering is the engine's business.
"""

from __future__ import annotations

import ctypes
from typing import Any

from phalanx.core.errors import ArgumentTypeError
from phalanx.engine import targets
from phalanx.engine.client import platform_name
from phalanx.engine.frames import guard as _guard
from phalanx.engine.targets import TargetError as TargetError
from phalanx.lax.ffi import ffi_call as ffi_call


def register_ffi_target(name: str, fn: Any, platform: str = "cpu", api_version: int = 1) -> None:
    """Make a kernel known under a name.

    Args:
      name: the name that `ffi_call` is given.
      fn: a capsule with the handler's address (see `pycapsule`), or a dict of such by the stage of the call:
        "instantiate", "prepare", "initialize", "execute".
      platform: "cpu" or "cuda" (or "gpu").
      api_version: 1 for handlers of XLA's typed FFI, 0 for functions of the older form.

    Raises:
      ArgumentTypeError: `fn` is neither.

    Examples:
      >>> try:
      ...     register_ffi_target("my_kernel", 3)
      ... except ArgumentTypeError as error:
      ...     print(error.expected)
      a capsule with the address of a handler, or a dict of them by stage
    """
    parts = list(fn.values()) if isinstance(fn, dict) else [fn]
    if not parts or any(type(part).__name__ != "PyCapsule" for part in parts):
        raise ArgumentTypeError(
            "register_ffi_target, argument fn",
            expected="a capsule with the address of a handler, or a dict of them by stage",
            got=repr(fn),
            mend="wrap a function of a ctypes library with phalanx.ffi.pycapsule",
        )
    targets.register(name, fn, platform_name(platform), api_version)


def register_ffi_type(name: str, type_registration: Any, platform: str = "cpu") -> None:
    """Make a type known whose values handlers keep from one stage of a call to the next.

    Args:
      name: the type's name, unique in the process.
      type_registration: a capsule with its id, or a dict of capsules under "type_id" and "type_info".
      platform: where the handlers run.
    """
    targets.register_type(name, type_registration)


def pycapsule(funcptr: Any) -> Any:
    """The address of a function of a ctypes library as a capsule.

    Args:
      funcptr: such as `ctypes.cdll.LoadLibrary("kernels.so").MyHandler`.

    Returns:
      What `register_ffi_target` takes.

    Examples:
      >>> type(pycapsule(ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0))).__name__
      'PyCapsule'
    """
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return make(ctypes.cast(funcptr, ctypes.c_void_p), None, None)


def include_dir() -> str:
    """The folder of the headers that handlers are compiled with (`xla/ffi/api/ffi.h`).

    Returns:
      The path of the folder.

    Examples:
      >>> import os, phalanx
      >>> os.path.exists(os.path.join(phalanx.ffi.include_dir(), "xla", "ffi", "api", "ffi.h"))
      True
    """
    return targets.HEADERS


_guard(globals())
