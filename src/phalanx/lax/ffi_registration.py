"""Registration of user-supplied kernels with XLA; `ffi_call` calls them from programs.

A kernel is a handler of XLA's FFI in a shared library, compiled with the headers in `include_dir()`.
"""

from __future__ import annotations

import ctypes
from typing import Any

from phalanx.core import ArgumentTypeError
from phalanx.engine import TargetError as TargetError, custom_call_targets, guard_namespace as _guard, platform_name
from phalanx.lax.ffi_call import ffi_call as ffi_call


def register_ffi_target(name: str, fn: object, platform: str = "cpu", api_version: int = 1) -> None:
    """Register a kernel under a name.

    Args:
      name: the name by which `ffi_call` calls it.
      fn: a capsule with the address of the handler (see `pycapsule`), or a dict of capsules by the stage of the call:
        "instantiate", "prepare", "initialize", "execute".
      platform: "cpu" or "cuda" (or "gpu").
      api_version: 1 for handlers of XLA's typed FFI, 0 for functions of the older interface.

    Raises:
      ArgumentTypeError: `fn` is neither a capsule nor a dict of capsules.

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
            fix="wrap a function of a ctypes library with phalanx.lax.ffi_registration.pycapsule",
        )
    custom_call_targets.register(name, fn, platform_name(platform), api_version)


def register_ffi_type(name: str, type_registration: object, platform: str = "cpu") -> None:
    """Register the type of the state that handlers keep from one stage of a call to the next.

    Args:
      name: the name of the type, unique in the process.
      type_registration: a capsule with its id, or a dict of capsules under "type_id" and "type_info".
      platform: the platform of the handlers.
    """
    custom_call_targets.register_type(name, type_registration)


def pycapsule(funcptr: object) -> Any:
    """Wrap the address of a function of a ctypes library in a capsule.

    Args:
      funcptr: the function, such as `ctypes.cdll.LoadLibrary("kernels.so").MyHandler`.

    Returns:
      A capsule for `register_ffi_target`.

    Examples:
      >>> type(pycapsule(ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0))).__name__
      'PyCapsule'
    """
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return make(ctypes.cast(funcptr, ctypes.c_void_p), None, None)


def include_dir() -> str:
    """Return the folder of the C++ headers of XLA's FFI (`xla/ffi/api/ffi.h`).

    Returns:
      The path of the folder.

    Examples:
      >>> import os, phalanx
      >>> os.path.exists(os.path.join(phalanx.ffi.include_dir(), "xla", "ffi", "api", "ffi.h"))
      True
    """
    return custom_call_targets.HEADERS


_guard(globals())
