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

    def contraction_seconds(self, flops: float, bits: int) -> float:
        """Time of a matrix product at the peak rate for operands of at least that width."""
        if flops == 0:
            return 0.0
        widths = [width for width in sorted(self.flops) if width >= bits]
        return flops / self.flops[widths[0] if widths else max(self.flops)]

    def collective_seconds(self, kind: str, nbytes: int, groups: Sequence[Sequence[int]]) -> float:
        """Time of one collective on the slowest link that one of its groups needs.

        A ring of k devices sends (k - 1) / k of the bytes, an all-reduce twice; latencies are those of a tree.

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


_NVLINK_3, _NVLINK_4, _NVLINK_5 = (Link(bandwidth, 3e-6) for bandwidth in (300e9, 450e9, 900e9))
# 32-bit operands at the rate of TF32, the default precision of XLA on GPUs.
_HOPPER = {8: 1979e12, 16: 989e12, 32: 494e12, 64: 67e12}

MACHINES = {
    machine.name: machine
    for machine in (
        Machine("a100", 80e9, {16: 312e12, 32: 156e12, 64: 19.5e12}, 2.04e12, _NVLINK_3, 8, Link(25e9, 1e-5)),
        Machine("h100", 80e9, _HOPPER, 3.35e12, _NVLINK_4, 8, Link(50e9, 1e-5)),
        Machine("h200", 141e9, _HOPPER, 4.8e12, _NVLINK_4, 8, Link(50e9, 1e-5)),
        Machine(
            "b200", 180e9, {8: 4500e12, 16: 2250e12, 32: 1125e12, 64: 37e12}, 7.7e12, _NVLINK_5, 8, Link(50e9, 1e-5)
        ),
        # One ring of the torus, in both directions. Products of 32-bit operands take several passes of 16 bits.
        Machine("v4", 32e9, {16: 275e12, 32: 46e12}, 1.23e12, Link(90e9, 1e-6)),
        Machine("v5e", 16e9, {8: 394e12, 16: 197e12, 32: 33e12}, 0.82e12, Link(90e9, 1e-6)),
        Machine("v5p", 95e9, {8: 918e12, 16: 459e12, 32: 77e12}, 2.77e12, Link(180e9, 1e-6)),
        Machine("v6e", 32e9, {8: 1836e12, 16: 918e12, 32: 153e12}, 1.64e12, Link(180e9, 1e-6)),
        Machine("tpu7x", 192e9, {8: 4614e12, 16: 2307e12, 32: 385e12}, 7.38e12, Link(180e9, 1e-6)),
    )
}


def find_machine(target: Any) -> Machine | None:
    """The machine of a plan's `target`; None for "cpu" and None."""
    if target is None or target == "cpu" or isinstance(target, Machine):
        return None if isinstance(target, str) else target
    if not isinstance(target, str):
        raise ArgumentTypeError(
            "plan, argument target", expected="a name or a Machine", got=target, fix="pass a name such as 'h100'"
        )
    if target.lower() not in MACHINES:
        raise ArgumentError(
            "plan, argument target",
            expected=f"cpu, or one of {', '.join(MACHINES)}",
            got=repr(target),
            fix="pass one of these names, or a phalanx.planning.Machine",
        )
    return MACHINES[target.lower()]
