"""The Threefry hash, from which `phalanx.random` makes keys and random bits.

Bits are emitted unrolled: on the CPU that compiles twice as fast as a loop over the rounds and runs three to six times
faster, since XLA fuses them into whatever reads them. Keys are emitted as a loop, which XLA does not fuse: a hash that
is the key of other hashes would be computed anew inside each of them, and the code of the program would double with
each split.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core.aval import ShapedArray
from phalanx.core.errors import ShapeError
from phalanx.core.primitive import ZERO, Primitive, Roles
from phalanx.engine.mlir import hlo
from phalanx.lax.broadcast import ELEMENTWISE, dim_names
from phalanx.lax.family import emit_compare
from phalanx.lax.while_primitive import emit_while

# The rotations of the eight rounds in a cycle, and the parity word of the key schedule, from the paper's appendix.
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA

_UINT32 = np.dtype(np.uint32)

# Up to this many words a loop is as fast; and the CPU client counts its rounds once, so that it runs small programs at
# once instead of handing them to another thread.
_FEW = 64


class Threefry2x32(Primitive, name="threefry2x32", multiple=True):
    """The Threefry-2x32 hash with 20 rounds: two words of key and two of counter to two random words, elementwise.

    Source: Salmon, Moraes, Dror and Shaw (2011), doi:10.1145/2063384.2063405.
    """

    scalars_broadcast = True

    def result(self, *avals: Any, is_key: bool) -> Any:
        shape = max((a.shape for a in avals), key=len)
        for a in avals:
            if a.dtype != _UINT32 or a.shape not in ((), shape):
                raise ShapeError(
                    "threefry2x32", expected="four operands of uint32, of one shape or of rank 0",
                    got=", ".join(x.str_short() for x in avals), mend="broadcast them first",
                )  # fmt: skip
        return [ShapedArray(shape, _UINT32)] * 2

    def roles(self, *avals: Any, is_key: bool) -> Roles:
        names = dim_names(max(a.ndim for a in avals))
        return Roles([names if a.ndim else [] for a in avals], [names, names])

    def lower(self, ctx: Any, key0: Any, key1: Any, x0: Any, x1: Any, *, is_key: bool) -> Any:
        aval = ctx.avals_out[0]
        keys = [key0, key1, hlo.xor(hlo.xor(key0, key1), ctx.constant(np.uint32(_PARITY), aval))]
        x0, x1 = hlo.add(x0, key0), hlo.add(x1, key1)
        if is_key or (isinstance(aval.size, int) and aval.size <= _FEW):
            return _looping(ctx, aval, x0, x1, keys)
        for cycle in range(5):
            distances = [ctx.constant(np.uint32(r), aval) for r in _ROTATIONS[cycle % 2]]
            rests = [ctx.constant(np.uint32(32 - r), aval) for r in _ROTATIONS[cycle % 2]]
            keys = [*keys[1:], keys[0]]
            x0, x1 = _rounds(x0, x1, distances, rests, keys, ctx.constant(np.uint32(cycle + 1), aval))
        return [x0, x1]

    jvp = ZERO

    def batch(self, *args: Any, is_key: bool) -> Any:
        out, b = ELEMENTWISE(self, *args, is_key=is_key)
        return out, [b, b]


def _rounds(x0: Any, x1: Any, distances: Sequence, rests: Sequence, keys: Sequence, number: Any) -> tuple[Any, Any]:
    """Four rounds and the addition of keys after them."""
    for distance, rest in zip(distances, rests, strict=True):
        x0 = hlo.add(x0, x1)
        x1 = hlo.xor(hlo.or_(hlo.shift_left(x1, distance), hlo.shift_right_logical(x1, rest)), x0)
    return hlo.add(x0, keys[0]), hlo.add(hlo.add(x1, keys[1]), number)


def _looping(ctx: Any, aval: ShapedArray, x0: Any, x1: Any, keys: Sequence) -> list:
    """The five cycles of rounds as a loop."""
    scalar = ShapedArray((), _UINT32)
    limit, one, width = (ctx.constant(np.uint32(n), scalar) for n in (5, 1, 32))
    tables = [[ctx.constant(np.uint32(r), scalar) for r in table] for table in _ROTATIONS]

    def body(cycle: Any, carry: Sequence) -> tuple[Any, list]:
        y0, y1, *rest = carry
        is_odd = emit_compare(hlo.and_(cycle, one), one, "EQ", _UINT32)
        scalars = [hlo.select(is_odd, b, a) for a, b in zip(*tables, strict=True)]
        distances = [ctx.broadcast(r, aval) for r in scalars]
        rests = [ctx.broadcast(hlo.subtract(width, r), aval) for r in scalars]
        turned = [*rest[1:], rest[0]]
        following = hlo.add(cycle, one)
        y0, y1 = _rounds(y0, y1, distances, rests, turned, ctx.broadcast(following, aval))
        return following, [y0, y1, *turned]

    zero = ctx.constant(np.uint32(0), scalar)
    avals = [scalar, *[aval] * 5]
    return emit_while(ctx, avals, [zero, x0, x1, *keys], (), lambda i, _: emit_compare(i, limit, "LT", _UINT32), body)[
        1:3
    ]


threefry2x32_p = Threefry2x32()
