"""XLA's CUDA plugin: finding and starting it, and registering kernels with it.

Builds on the packages `jax_plugins.xla_cuda13` (the plugin, a shared object) and `jax_cuda13_plugin` (kernels). Neither
is imported in a way that imports jax.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.util
import os
from typing import Any

from jaxlib import _jax

_NAME, _XLA_NAME = "cuda", "CUDA"
_MAJOR_VERSIONS = ("13", "12")


def plugin_path() -> str | None:
    """Find the plugin's shared object among the installed packages, without importing them."""
    spec = importlib.util.find_spec("jax_plugins")
    roots = (spec and spec.submodule_search_locations) or ()
    names = [os.path.join(f"xla_cuda{major}", "xla_cuda_plugin.so") for major in _MAJOR_VERSIONS]
    return next(filter(os.path.exists, (os.path.join(root, name) for root in roots for name in names)), None)


def runs_programs() -> bool:
    """Whether GPUs are meant to run programs: the plugin alone is installed for `phalanx.plan`, which compiles only."""
    return plugin_path() is not None and _kernels_package() is not None


class Plugin:
    """The plugin, loaded and initialized.

    Args:
      path: its shared object.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.c_api = (
            _find_api(path)
            if _jax.pjrt_plugin_loaded(_NAME)  # jax was imported in this process first.
            else _jax.load_pjrt_plugin(_NAME, library_path=path, c_api=None)
        )
        if not _jax.pjrt_plugin_initialized(_NAME):
            _jax.initialize_pjrt_plugin(_NAME)
        self._extension = _extension()
        if self._extension is None:
            return
        # The package's handlers for Python callbacks, and the types of state that its kernels keep.
        for name, type_id in self._extension.ffi_types().items():
            self._extension.register_custom_type(self.c_api, name, type_id)
        for name, handler in self._extension.ffi_handlers().items():
            self.register(name, handler, api_version=1)

    def register(self, target: str, function: Any, api_version: int) -> None:
        """Register a kernel with XLA."""
        assert self._extension is not None, "kernels come from the package that has the extension"
        self._extension.register_custom_call_target(self.c_api, target, function, _XLA_NAME, api_version, 0)


def _extension() -> Any | None:
    """Load the extension of the kernels' package; None where only the plugin is installed."""
    name = _kernels_package()
    return None if name is None else importlib.import_module(f"{name}.cuda_plugin_extension")


def _kernels_package() -> str | None:
    return next(filter(importlib.util.find_spec, (f"jax_cuda{major}_plugin" for major in _MAJOR_VERSIONS)), None)


def _find_api(path: str) -> Any:
    """The plugin's table of functions; jaxlib loads the plugin only once in a process."""
    if hasattr(_jax, "get_pjrt_plugin"):
        return _jax.get_pjrt_plugin(_NAME)
    library = ctypes.CDLL(path)  # already loaded, so this returns the same library
    library.GetPjrtApi.restype = ctypes.c_void_p
    new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        ("PyCapsule_New", ctypes.pythonapi)
    )
    return new_capsule(library.GetPjrtApi(), _CAPSULE_NAME, None)


_CAPSULE_NAME = b"pjrt_c_api"  # The capsule keeps a pointer to the name, which must not be freed.


@functools.cache
def plugin() -> Plugin:
    """Load the installed plugin, which needs no GPU.

    Raises:
      FileNotFoundError: the plugin is not installed.
    """
    path = plugin_path()
    if path is None:
        raise FileNotFoundError("no package with XLA's CUDA plugin")
    return Plugin(path)


def start(node: Any = None) -> Any:
    """Start the client for this process's GPUs.

    Args:
      node: the position of this process in a distributed program (`client.Cluster`), if any.

    Returns:
      jaxlib's client.

    Raises:
      FileNotFoundError: the plugin is not installed.
      XlaRuntimeError: there is no GPU, or the driver does not fit.
    """
    plugin()
    # Imported late, since it reads the memory settings in the environment when it is imported.
    from jaxlib import xla_client  # noqa: PLC0415

    options = xla_client.generate_pjrt_gpu_plugin_options()
    if node is None:
        return _jax.get_c_api_client(_NAME, options)
    coordinator = node.coordinator
    options |= {"node_id": coordinator.process_id, "num_nodes": coordinator.num_processes}
    if node.local_device_ids is not None:
        options["visible_devices"] = list(node.local_device_ids)
    return _jax.get_c_api_client(_NAME, options, coordinator.client)
