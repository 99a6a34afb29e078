"""The records of roofline figures: the cost of a program, and what a cost rule receives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from phalanx.core import Primitive, ShapedArray
from phalanx.typing import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineResult:
    """The cost of a program on one device.

    Args:
      flops: the floating-point operations of contractions, which dominate a program whose other operations are fused.
      unfused_flops: the operations on elements of all equations.
      ici_bytes: for each mesh axis, the bytes that a device sends along it over the busiest link.
      ici_latency: for each mesh axis, the number of hops between neighbors.
      hbm_bytes: the bytes that contractions read from and write to memory.
      peak_hbm_bytes: the largest number of bytes of all values that are alive at one time.
      unfused_hbm_bytes: the bytes that all equations would move if none were fused.

    Examples:
      >>> (RooflineResult(flops=2, peak_hbm_bytes=3) + 2 * RooflineResult(flops=4, peak_hbm_bytes=1)).flops
      10
    """

    flops: int = 0
    unfused_flops: int = 0
    ici_bytes: dict[str, int] = field(default_factory=dict)
    ici_latency: dict[str, int] = field(default_factory=dict)
    hbm_bytes: int = 0
    peak_hbm_bytes: int = 0
    unfused_hbm_bytes: int = 0

    @classmethod
    def zeros(cls) -> RooflineResult:
        """No cost."""
        return cls()

    def __add__(self, other: RooflineResult) -> RooflineResult:
        """The cost of one program after the other."""
        return RooflineResult(
            flops=self.flops + other.flops,
            unfused_flops=self.unfused_flops + other.unfused_flops,
            ici_bytes=_add_axes(self.ici_bytes, other.ici_bytes),
            ici_latency=_add_axes(self.ici_latency, other.ici_latency),
            hbm_bytes=self.hbm_bytes + other.hbm_bytes,
            peak_hbm_bytes=max(self.peak_hbm_bytes, other.peak_hbm_bytes),
            unfused_hbm_bytes=self.unfused_hbm_bytes + other.unfused_hbm_bytes,
        )

    def __mul__(self, factor: float) -> RooflineResult:
        """Each figure multiplied by `factor`."""
        return RooflineResult(
            flops=int(self.flops * factor),
            unfused_flops=int(self.unfused_flops * factor),
            ici_bytes={axis: int(n * factor) for axis, n in self.ici_bytes.items()},
            ici_latency={axis: int(n * factor) for axis, n in self.ici_latency.items()},
            hbm_bytes=int(self.hbm_bytes * factor),
            peak_hbm_bytes=int(self.peak_hbm_bytes * factor),
            unfused_hbm_bytes=int(self.unfused_hbm_bytes * factor),
        )

    __rmul__ = __mul__


def _add_axes(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
    return {axis: a.get(axis, 0) + b.get(axis, 0) for axis in {**a, **b}}


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineShape:
    """The shape and dtype of an operand, as cost rules receive it.

    Args:
      shape: the shape.
      dtype: the dtype.

    Examples:
      >>> import numpy as np
      >>> RooflineShape(shape=(2, 3), dtype=np.dtype("float32")).bytes
      24
    """

    shape: Shape
    dtype: Any

    @classmethod
    def from_aval(cls, aval: ShapedArray) -> RooflineShape:
        """The shape and dtype of an abstract value."""
        return cls(shape=aval.shape, dtype=aval.dtype)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(map(int, self.shape))

    @property
    def bytes(self) -> int:
        """The size in bytes."""
        return int(self.size * self.dtype.itemsize)

    @classmethod
    def total_bytes(cls, avals: Sequence[ShapedArray]) -> int:
        """The size in bytes of values of these types."""
        return sum(cls.from_aval(aval).bytes for aval in avals)


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineRuleContext:
    """What a cost rule knows about an equation besides its parameters.

    Args:
      primitive: the operation.
      avals_in, avals_out: the types of its operands and results.
      mesh: the mesh that the program is partitioned over, or None.
      pin_lhs_in_vmem, pin_rhs_in_vmem: whether that operand of a contraction stays in fast memory.

    Examples:
      >>> from phalanx import lax
      >>> RooflineRuleContext(primitive=lax.sin_p, avals_in=(), avals_out=()).mesh
    """

    primitive: Primitive
    avals_in: Sequence[ShapedArray]
    avals_out: Sequence[ShapedArray]
    mesh: Any = None
    pin_lhs_in_vmem: bool = False
    pin_rhs_in_vmem: bool = False
