"""Custom-call targets: the LAPACK kernels on the CPU and the solver libraries on GPUs.

Builds on the kernels that jaxlib and its GPU plugin ship; the lowerings in `lax.linalg` call `require` with the name
they are about to put into a program. Nothing is loaded or registered before that: LAPACK comes by way of SciPy, whose
import takes longer than a small program.
"""

from __future__ import annotations

import importlib
import os
import threading
from typing import Any

import jaxlib
from jaxlib import _jax

from phalanx.engine import client
from phalanx.engine.errors import PhalanxError

HEADERS: str = os.path.join(os.path.dirname(jaxlib.__file__), "include")
"""The folder of the headers that users' kernels are compiled with."""

_MODULES = {
    "cpu": ("jaxlib.lapack",),
    "cuda": ("jaxlib.gpu_solver", "jaxlib.gpu_linalg", "jaxlib.gpu_prng", "jaxlib.gpu_sparse"),
}
_XLA_NAMES = {"cpu": "cpu", "cuda": "CUDA"}


class TargetError(PhalanxError, NotImplementedError):
    """A program calls a kernel that this installation does not have on the platform.

    Args:
      where, expected, got, mend: as in `PhalanxError`.

    Examples:
      >>> issubclass(TargetError, NotImplementedError)
      True
    """


class _Table:
    """The kernels known per platform, and those that XLA has been told of."""

    def __init__(self) -> None:
        self.known: dict[str, dict[str, tuple[Any, int]]] = {}
        self.registered: set[tuple[str, str]] = set()
        self.lock = threading.Lock()


_table = _Table()


def require(target: str, platform: str) -> None:
    """Make sure that a program for `platform` may call `target`.

    Args:
      target: the kernel's name, as in "lapack_spotrf_ffi".
      platform: "cpu" or "cuda".

    Raises:
      TargetError: there is no such kernel here.

    Examples:
      >>> require("lapack_spotrf_ffi", "cpu")
    """
    if (platform, target) in _table.registered:
        return
    with _table.lock:
        if (platform, target) not in _table.registered:
            _register(target, platform)


def known_targets(platform: str) -> list[str]:
    """List the kernels that `require` can offer on a platform."""
    with _table.lock:
        return sorted(_kernels(platform))


def register(target: str, function: Any, platform: str, api_version: int = 1) -> None:
    """Tell XLA of a user's kernel.

    Args:
      target: the name by which programs call it.
      function: a capsule with the address of an XLA FFI handler, or a dict of them by the stage of the call.
      platform: "cpu" or "cuda".
      api_version: 1 for typed FFI handlers, 0 for older functions.
    """
    with _table.lock:
        if platform == "cpu":
            _jax.register_custom_call_target(target, function, platform="cpu", api_version=api_version)
        else:
            client.cuda_plugin().register(target, function, api_version)
        _table.registered.add((platform, target))


def register_type(name: str, type_id: Any) -> None:
    """Tell XLA of a type whose values a user's kernels keep between the stages of a call."""
    _jax.register_custom_type(name, type_id)


def _register(target: str, platform: str) -> None:
    kernels = _kernels(platform)
    if target not in kernels:
        raise TargetError(
            f"the kernel {target}",
            expected=f"one of the {len(kernels)} kernels for {platform} that are installed",
            got="no kernel of that name",
            mend="install phalanx[cuda13]" if platform != "cpu" else "use another algorithm, or a newer jaxlib",
        )
    function, api_version = kernels[target]
    if platform == "cpu" or target.startswith("cuhybrid_"):
        _initialize_lapack()
    if platform == "cpu":
        _jax.register_custom_call_target(target, function, platform="cpu", api_version=api_version)
    else:
        if target.startswith("cuhybrid_"):  # they run LAPACK on the host
            importlib.import_module("jaxlib.gpu_solver").initialize_hybrid_kernels()
        client.cuda_plugin().register(target, function, api_version)
    _table.registered.add((platform, target))


def _kernels(platform: str) -> dict[str, tuple[Any, int]]:
    """Collect the kernels of a platform by name, and tell XLA which of them work batch by batch."""
    if platform not in _table.known:
        kernels: dict[str, tuple[Any, int]] = {}
        for module_name in _MODULES.get(platform, ()):
            module = importlib.import_module(module_name)
            found = module.registrations().get(_XLA_NAMES[platform], [])
            kernels |= {name: (function, api_version) for name, function, api_version in found}
            # The partitioner then keeps a call local along its batch dimensions, without gathering anything.
            for name in getattr(module, "batch_partitionable_targets", list)():
                _jax.register_custom_call_as_batch_partitionable(name)
        _table.known[platform] = kernels
    return _table.known[platform]


def _initialize_lapack() -> None:
    """Fetch the LAPACK routines' addresses from SciPy; again costs nothing."""
    importlib.import_module("jaxlib.cpu._lapack").initialize()
