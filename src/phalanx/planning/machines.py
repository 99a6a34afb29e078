"""The machines that programs are planned for: memory, arithmetic and links of their devices, from public data sheets.

Peak figures for dense operations: NVIDIA's data sheets of the A100, H100, H200 and B200 (SXM), Google's system
architecture pages of TPU v4, v5e, v5p, v6e and 7x (cloud.google.com/tpu/docs), and Austin et al., "How to Scale Your
Model" (2025), for what one ring of a torus carries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from phalanx.core import ArgumentError, ArgumentTypeError
from phalanx.engine.compile_only_devices import Topology


@dataclass(frozen=True)
class Link:
    """What one device sends to the others of its group.

    Args:
      bandwidth: in bytes/s, in one direction.
      latency: of one message, in seconds.

    Examples:
      >>> Link(bandwidth=450e9, latency=3e-6).latency
      3e-06
    """

    bandwidth: float
    latency: float


@dataclass(frozen=True)
class Gpu:
    """The figures of a GPU from which XLA chooses kernels and fusions.

    Args:
      name: the name under which XLA knows it.
      capability: the CUDA compute capability, major and minor.
      cores: the number of multiprocessors.
      lanes: single-precision units of each.
      shared_memory: of each, in bytes.
      cache: the second-level cache, in bytes.
      clock: in GHz.

    Examples:
      >>> Gpu("NVIDIA H100 80GB HBM3", (9, 0), 132, 128, 233472, 50 << 20, 1.98).cores
      132
    """

    name: str
    capability: tuple[int, int]
    cores: int
    lanes: int
    shared_memory: int
    cache: int
    clock: float

    def describe(self, memory: float, bandwidth: float) -> str:
        """XLA's `GpuTargetConfigProto` as text, for a GPU with that memory in bytes and bandwidth in bytes/s."""
        major, minor = self.capability
        return f"""
            gpu_device_info {{
              threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
              block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
              registers_per_core_limit: 65536 registers_per_block_limit: 65536
              shared_memory_per_block: 49152 shared_memory_per_core: {self.shared_memory}
              shared_memory_per_block_optin: {self.shared_memory - 1024}
              core_count: {self.cores} fpus_per_core: {self.lanes} clock_rate_ghz: {self.clock}
              l2_cache_size: {self.cache} memory_bandwidth: {int(bandwidth)} device_memory_size: {int(memory)}
              cuda_compute_capability {{ major: {major} minor: {minor} }}
            }}
            platform_name: "CUDA"
            dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
            runtime_version {{ major: 13 minor: 0 patch: 0 }}
            device_description_str: "{self.name}"
        """


@dataclass(frozen=True)
class Machine:
    """Devices of one kind and the links between them.

    Args:
      name: the name, such as "h100".
      memory: of one device, in bytes.
      flops: peak operations/s of matrix products by the bits of their operands.
      bandwidth: of the memory of one device, in bytes/s.
      link: between devices of one domain.
      domain: the number of devices that such links connect; None if it is all of them, as in a torus.
      network: between devices of different domains.
      gpu: for GPUs, what XLA's compiler for CUDA needs to know of one.
      torus: for TPUs, the number of dimensions of the torus that XLA's compiler for TPUs knows under `name`.

    Examples:
      >>> Machine("mine", 32e9, {16: 275e12}, 1.2e12, Link(90e9, 1e-6)).domain is None
      True
    """

    name: str
    memory: float
    flops: Mapping[int, float]
    bandwidth: float
    link: Link
    domain: int | None = None
    network: Link | None = None
    gpu: Gpu | None = None
    torus: int | None = None

    @property
    def platform(self) -> str:
        """The platform of its compiler: "cuda", "tpu", or "cpu" if there is none."""
        return "cuda" if self.gpu is not None else "tpu" if self.torus is not None else "cpu"

    def topology(self, num_devices: int) -> Topology:
        """The devices for which a compiler made for this machine compiles; CPU devices if there is none."""
        if self.gpu is not None:
            hosts, per_host = divmod(num_devices, 8)
            shape = f"1x1x{num_devices}" if per_host or not hosts else f"1x{hosts}x8"
            return Topology("cuda", shape, self.gpu.describe(self.memory, self.bandwidth))
        if self.torus is not None:
            sizes = _split_evenly(num_devices, self.torus)
            return Topology("tpu", f"{self.name}:{'x'.join(map(str, sizes))}")
        return Topology("cpu")

    def contraction_seconds(self, flops: float, bits: int) -> float:
        """Time of a matrix product at the peak rate for operands of at least that width."""
        if flops == 0:
            return 0.0
        widths = [width for width in sorted(self.flops) if width >= bits]
        return flops / self.flops[widths[0] if widths else max(self.flops)]

    def collective_seconds(self, kind: str, nbytes: int, groups: Sequence[Sequence[int]]) -> float:
        """Time of one collective on the slowest link that one of its groups needs.

        A ring of k devices sends (k - 1) / k of the bytes, an all-reduce twice; latencies add up along a tree.

        Args:
          kind: its name in XLA.
          nbytes: the larger of its operand and its result on one device.
          groups: the numbers of the devices in each group; the devices of a domain are consecutive.

        Returns:
          The time in seconds.
        """
        crosses = self.domain is not None and any(len({i // self.domain for i in g}) > 1 for g in groups)
        link = self.network if crosses and self.network is not None else self.link
        if kind == "collective-permute":
            return link.latency + nbytes / link.bandwidth
        k = max(map(len, groups))
        rounds = 2 if kind == "all-reduce" else 1
        return rounds * (link.latency * math.ceil(math.log2(k)) + nbytes * (k - 1) / k / link.bandwidth)


def _split_evenly(number: int, parts: int) -> list[int]:
    """Factors of a number that differ as little as possible, the largest first."""
    if parts == 1:
        return [number]
    least = int(round(number ** (1 / parts), 9))
    smallest = next(n for n in range(least, 0, -1) if number % n == 0)
    return [*_split_evenly(number // smallest, parts - 1), smallest]


_NVLINK_3, _NVLINK_4, _NVLINK_5 = (Link(bandwidth, 3e-6) for bandwidth in (300e9, 450e9, 900e9))
# 32-bit operands at the rate of TF32, the default precision of XLA on GPUs.
_HOPPER = {8: 1979e12, 16: 989e12, 32: 494e12, 64: 67e12}

_A100 = Gpu("NVIDIA A100-SXM4-80GB", (8, 0), 108, 64, 167936, 40 << 20, 1.41)
_H100 = Gpu("NVIDIA H100 80GB HBM3", (9, 0), 132, 128, 233472, 50 << 20, 1.98)
_H200 = Gpu("NVIDIA H200", (9, 0), 132, 128, 233472, 50 << 20, 1.98)
_B200 = Gpu("NVIDIA B200", (10, 0), 148, 128, 233472, 126 << 20, 1.965)
_BLACKWELL = {8: 4500e12, 16: 2250e12, 32: 1125e12, 64: 37e12}
_NETWORK, _FAST_NETWORK = Link(25e9, 1e-5), Link(50e9, 1e-5)

MACHINES = {
    machine.name: machine
    for machine in (
        Machine("a100", 80e9, {16: 312e12, 32: 156e12, 64: 19.5e12}, 2.04e12, _NVLINK_3, 8, _NETWORK, _A100),
        Machine("h100", 80e9, _HOPPER, 3.35e12, _NVLINK_4, 8, _FAST_NETWORK, _H100),
        Machine("h200", 141e9, _HOPPER, 4.8e12, _NVLINK_4, 8, _FAST_NETWORK, _H200),
        Machine("b200", 180e9, _BLACKWELL, 7.7e12, _NVLINK_5, 8, _FAST_NETWORK, _B200),
        # One ring of the torus, in both directions. Products of 32-bit operands take several passes of 16 bits. The
        # compiler counts the two cores of a chip of v4 and 7x as two devices, so it does not answer for these.
        Machine("v4", 32e9, {16: 275e12, 32: 46e12}, 1.23e12, Link(90e9, 1e-6)),
        Machine("v5e", 16e9, {8: 394e12, 16: 197e12, 32: 33e12}, 0.82e12, Link(90e9, 1e-6), torus=2),
        Machine("v5p", 95e9, {8: 918e12, 16: 459e12, 32: 77e12}, 2.77e12, Link(180e9, 1e-6), torus=3),
        Machine("v6e", 32e9, {8: 1836e12, 16: 918e12, 32: 153e12}, 1.64e12, Link(180e9, 1e-6), torus=2),
        Machine("tpu7x", 192e9, {8: 4614e12, 16: 2307e12, 32: 385e12}, 7.38e12, Link(180e9, 1e-6)),
    )
}

HOST = Machine("cpu", math.inf, {64: 5e10, 32: 1e11}, 1e10, Link(5e9, 5e-6))
"""CPU devices of one host, each a few cores. The figures are nominal: they weigh work against communication."""


def find_machine_of(device_kind: str) -> Machine:
    """The machine of attached devices; that of CPU devices for kinds that are not known."""
    kind = device_kind.lower().replace("tpu v5 lite", "v5e").replace("tpu v6 lite", "v6e")
    return next((m for name, m in MACHINES.items() if name in kind), HOST)


def find_machine(target: Any, where: str = "plan, argument target") -> Machine | None:
    """The machine of a `target`; None for "cpu" and None."""
    if target is None or target == "cpu" or isinstance(target, Machine):
        return None if isinstance(target, str) else target
    if not isinstance(target, str):
        raise ArgumentTypeError(where, expected="a name or a Machine", got=target, fix="pass a name such as 'h100'")
    if target.lower() not in MACHINES:
        raise ArgumentError(
            where,
            expected=f"cpu, or one of {', '.join(MACHINES)}",
            got=repr(target),
            fix="pass one of these names, or a phalanx.planning.Machine",
        )
    return MACHINES[target.lower()]
