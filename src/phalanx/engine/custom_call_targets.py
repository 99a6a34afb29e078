"""Custom-call targets: the LAPACK kernels on the CPU and the solver libraries on GPUs.

jaxlib and its GPU plugin ship the kernels. The lowerings in `lax.linalg` call `require` with the name of a kernel
before they emit a call of it. Nothing is loaded or registered earlier, because LAPACK comes with SciPy, whose import
takes longer than compiling a small program.
"""

from __future__ import annotations

import importlib
import os
import threading
from typing import Any

import jaxlib
from jaxlib import _jax

from phalanx.engine import cuda
from phalanx.engine.defining_module import public_in
from phalanx.engine.error_record import PhalanxError
from phalanx.engine.thread_call import call_in_thread

HEADERS: str = os.path.join(os.path.dirname(jaxlib.__file__), "include")
"""The folder of the headers that users' kernels are compiled with."""

_MODULES = {
    "cpu": ("jaxlib.lapack",),
    "cuda": ("jaxlib.gpu_solver", "jaxlib.gpu_linalg", "jaxlib.gpu_prng", "jaxlib.gpu_sparse"),
}
_XLA_NAMES = {"cpu": "cpu", "cuda": "CUDA"}


@public_in("phalanx.ffi")
class TargetError(PhalanxError, NotImplementedError):
    """A program calls a kernel that is not installed for the platform.

    Args:
      where, expected, got, fix: as in `PhalanxError`.

    Examples:
      >>> issubclass(TargetError, NotImplementedError)
      True
    """


# Calls that XLA's passes replace by operations, so that no kernel is needed.
_EXPANDED_BY_XLA = frozenset({"LayoutConstraint"})

_known: dict[str, dict[str, tuple[Any, int]]] = {}  # the installed kernels of each platform
_registered: set[tuple[str, str]] = set()  # with XLA
_lock = threading.RLock()


def require(target: str, platform: str) -> None:
    """Register a kernel with XLA, so that programs for a platform may call it.

    Args:
      target: the kernel's name, such as "lapack_spotrf_ffi".
      platform: "cpu" or "cuda".

    Raises:
      TargetError: the kernel is not installed.

    Examples:
      >>> require("lapack_spotrf_ffi", "cpu")
    """
    if (platform, target) in _registered or target in _EXPANDED_BY_XLA:
        return
    call_in_thread(lambda: _register(target, platform))


def known_targets(platform: str) -> list[str]:
    """List the installed kernels of a platform."""
    return sorted(_known[platform] if platform in _known else call_in_thread(lambda: _kernels(platform)))


def register(target: str, function: Any, platform: str, api_version: int = 1) -> None:
    """Register a user's kernel with XLA.

    Args:
      target: the name by which programs call it.
      function: a capsule with the address of an XLA FFI handler, or a dict of capsules by the stage of the call.
      platform: "cpu" or "cuda".
      api_version: 1 for typed FFI handlers, 0 for the older interface.
    """
    with _lock:
        _pass_to_xla(target, function, platform, api_version)


def register_type(name: str, type_id: Any) -> None:
    """Register the type of a state that a user's kernels keep between the stages of a call."""
    _jax.register_custom_type(name, type_id)


def _register(target: str, platform: str) -> None:
    with _lock:
        if (platform, target) in _registered:
            return
        kernels = _kernels(platform)
        if target not in kernels:
            raise TargetError(
                f"the kernel {target}",
                expected=f"one of the {len(kernels)} kernels for {platform} that are installed",
                got="no kernel of that name",
                fix="install phalanx[cuda13]" if platform != "cpu" else "use another algorithm, or a newer jaxlib",
            )
        function, api_version = kernels[target]
        is_hybrid = target.startswith("cuhybrid_")  # these kernels run LAPACK on the host
        if platform == "cpu" or is_hybrid:
            # Loads the addresses of the LAPACK routines from SciPy; later calls return at once.
            importlib.import_module("jaxlib.cpu._lapack").initialize()
        if is_hybrid:
            importlib.import_module("jaxlib.gpu_solver").initialize_hybrid_kernels()
        _pass_to_xla(target, function, platform, api_version)


def _pass_to_xla(target: str, function: Any, platform: str, api_version: int) -> None:
    if platform == "cpu":
        _jax.register_custom_call_target(target, function, platform="cpu", api_version=api_version)
    else:
        cuda.plugin().register(target, function, api_version)
    _registered.add((platform, target))


def _kernels(platform: str) -> dict[str, tuple[Any, int]]:
    """Collect the kernels of a platform by name, and register the batch-partitionable ones as such with XLA."""
    with _lock:
        if platform not in _known:
            kernels: dict[str, tuple[Any, int]] = {}
            for module_name in _MODULES.get(platform, ()):
                module = importlib.import_module(module_name)
                kernels |= {
                    name: (function, api_version)
                    for name, function, api_version in module.registrations().get(_XLA_NAMES[platform], [])
                }
                # Otherwise the partitioner would gather the operands of a call along its batch dimensions.
                for name in getattr(module, "batch_partitionable_targets", list)():
                    _jax.register_custom_call_as_batch_partitionable(name)
            _known[platform] = kernels
        return _known[platform]
