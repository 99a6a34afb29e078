"""Devices for which XLA compiles, but on which nothing runs.

XLA's CPU client has any number of virtual devices. The plugins for GPUs and TPUs describe devices that are not attached
by a topology; they need neither a driver nor the libraries that programs run with. Called by `offline_compiler`, in a
process that compiles one program.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import jaxlib.version
from jaxlib import _jax

from phalanx.engine import client, cuda

MAX_CPU_DEVICES: Final = 2048
"""The number of virtual devices up to which XLA's CPU client compiles for one process."""


class Topology(NamedTuple):
    """Devices that need not be attached.

    Args:
      platform: "cpu", "cuda" or "tpu".
      name: how they are connected, as the platform's plugin names it, such as "1x8x8" or "v5p:4x4x4".
      description: for GPUs, XLA's description of one of them, a `GpuTargetConfigProto` as text.
      stands_in: for CPUs, whether they stand in for accelerators, which compute bfloat16 as it is.
    """

    platform: str
    name: str = ""
    description: str = ""
    stands_in: bool = False


def is_installed(platform: str) -> bool:
    """Whether the compiler of a platform is installed."""
    return {"cpu": True, "cuda": cuda.plugin_path() is not None, "tpu": _tpu_path() is not None}[platform]


def make_devices(topology: Topology, count: int) -> tuple[list[Any], str]:
    """Make devices in this process.

    Args:
      topology: their platform and connection.
      count: their number.

    Returns:
      The devices, and the name of the compiler and its version.
    """
    return _MAKERS[topology.platform](topology, count)


def _make_cpus(topology: Topology, count: int) -> tuple[list[Any], str]:
    client.configure(num_cpu_devices=count, platforms=("cpu",))
    return client.devices("cpu")[:count], f"XLA for CPUs, jaxlib {jaxlib.version.__version__}"


def _make_gpus(topology: Topology, count: int) -> tuple[list[Any], str]:
    options = {"target_config": topology.description, "topology": topology.name}
    found = _jax.get_c_api_topology(cuda.plugin().c_api, "", options)
    return found._make_compile_only_devices()[:count], f"XLA for CUDA, {found.platform_version.splitlines()[0]}"


def _make_tpus(topology: Topology, count: int) -> tuple[list[Any], str]:
    # It would look for the machine's metadata in a cloud, and lock the TPUs of this machine against other processes.
    os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
    _jax.load_pjrt_plugin("tpu", library_path=_tpu_path(), c_api=None)
    _jax.initialize_pjrt_plugin("tpu")
    found = _jax.get_default_c_api_topology("tpu", topology.name, {})
    return found._make_compile_only_devices()[:count], f"XLA for TPUs, {found.platform_version.splitlines()[0]}"


def _tpu_path() -> str | None:
    spec = importlib.util.find_spec("libtpu")
    paths = (os.path.join(root, "libtpu.so") for root in (spec and spec.submodule_search_locations) or ())
    return next(filter(os.path.exists, paths), None)


_MAKERS: dict[str, Callable[[Topology, int], tuple[list[Any], str]]] = {
    "cpu": _make_cpus,
    "cuda": _make_gpus,
    "tpu": _make_tpus,
}
