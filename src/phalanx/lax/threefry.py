"""The Threefry hash, from which `phalanx.random` makes keys and random bits.

It is emitted unrolled: on the CPU that compiles twice as fast as a loop over its rounds and runs three to six times
faster, since XLA fuses it into whatever reads the bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.core.aval import ShapedArray
from phalanx.core.errors import ShapeError
from phalanx.core.primitive import ZERO, Primitive, Roles
from phalanx.engine.mlir import hlo
from phalanx.lax.broadcast import ELEMENTWISE, dim_names

# The rotations of the eight rounds in a cycle, and the parity word of the key schedule, from the paper's appendix.
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA

_UINT32 = np.dtype(np.uint32)


class Threefry2x32(Primitive, name="threefry2x32", multiple=True):
    """The Threefry-2x32 hash with 20 rounds: two words of key and two of counter to two random words, elementwise.

    Source: Salmon, Moraes, Dror and Shaw (2011), doi:10.1145/2063384.2063405.
    """

    scalars_broadcast = True

    def result(self, *avals: Any) -> Any:
        shape = max((a.shape for a in avals), key=len)
        for a in avals:
            if a.dtype != _UINT32 or a.shape not in ((), shape):
                raise ShapeError(
                    "threefry2x32", expected="four operands of uint32, of one shape or of rank 0",
                    got=", ".join(x.str_short() for x in avals), mend="broadcast them first",
                )  # fmt: skip
        return [ShapedArray(shape, _UINT32)] * 2

    def roles(self, *avals: Any) -> Roles:
        names = dim_names(max(a.ndim for a in avals))
        return Roles([names if a.ndim else [] for a in avals], [names, names])

    def lower(self, ctx: Any, key0: Any, key1: Any, x0: Any, x1: Any) -> Any:
        def word(value: int) -> Any:
            return ctx.constant(np.uint32(value), ctx.avals_out[0])

        keys = (key0, key1, hlo.xor(hlo.xor(key0, key1), word(_PARITY)))
        x0, x1 = hlo.add(x0, key0), hlo.add(x1, key1)
        for cycle in range(5):
            for distance in _ROTATIONS[cycle % 2]:
                x0 = hlo.add(x0, x1)
                left = hlo.shift_left(x1, word(distance))
                right = hlo.shift_right_logical(x1, word(32 - distance))
                x1 = hlo.xor(hlo.or_(left, right), x0)
            x0 = hlo.add(x0, keys[(cycle + 1) % 3])
            x1 = hlo.add(hlo.add(x1, keys[(cycle + 2) % 3]), word(cycle + 1))
        return [x0, x1]

    jvp = ZERO

    def batch(self, *args: Any) -> Any:
        out, b = ELEMENTWISE(self, *args)
        return out, [b, b]


threefry2x32_p = Threefry2x32()
