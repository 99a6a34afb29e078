"""The Threefry-2x32 hash, from which `phalanx.random` derives keys and random bits.

The rounds are unrolled for random bits: on the CPU this compiles twice as fast as a loop over the rounds and runs three
to six times faster, since XLA fuses the rounds into their consumers. For keys they are a loop, which XLA does not fuse:
otherwise each consumer of a key would recompute its hash, and the code of the program would double with every split.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core import ZERO, Primitive, ShapedArray, ShapeError, ShardingRule
from phalanx.engine.mlir import hlo, ir
from phalanx.lax.control_flow.while_loop import emit_while
from phalanx.lax.elementwise import emit_compare
from phalanx.lax.shape import ELEMENTWISE, dim_names
from phalanx.runtime.lowering import LoweringContext

# The rotations of the eight rounds in a cycle, and the parity word of the key schedule, from the paper's appendix.
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA

_UINT32 = np.dtype(np.uint32)

# Up to this many words a loop is as fast as unrolled rounds. XLA's cost model counts the body of a loop once, so that
# the CPU client runs such small programs inline rather than on another thread.
_FEW = 64


class Threefry2x32(Primitive, name="threefry2x32", multiple=True):
    """The Threefry-2x32 hash with 20 rounds: two words of key and two of counter to two random words, elementwise.

    Source: Salmon, Moraes, Dror and Shaw (2011), doi:10.1145/2063384.2063405.
    """

    broadcasts_scalars = True

    def abstract_eval(self, *avals: Any, is_key: bool) -> Any:
        shape = max((a.shape for a in avals), key=len)
        for a in avals:
            if a.dtype != _UINT32 or a.shape not in ((), shape):
                raise ShapeError(
                    "threefry2x32",
                    expected="four operands of uint32, of one shape or of rank 0",
                    got=", ".join(x.str_short() for x in avals),
                    fix="broadcast the operands to one shape with lax.broadcast_in_dim",
                )
        return [ShapedArray(shape, _UINT32)] * 2

    def sharding_rule(self, *avals: Any, is_key: bool) -> ShardingRule:
        names = dim_names(max(a.ndim for a in avals))
        return ShardingRule([names if a.ndim else [] for a in avals], [names, names])

    def lower(
        self, ctx: LoweringContext, key0: ir.Value, key1: ir.Value, x0: ir.Value, x1: ir.Value, *, is_key: bool
    ) -> Any:
        aval = ctx.avals_out[0]
        # The key schedule: the two words of the key, and their parity with a constant.
        keys = [key0, key1, hlo.xor(hlo.xor(key0, key1), ctx.constant(np.uint32(_PARITY), aval))]
        x0, x1 = hlo.add(x0, key0), hlo.add(x1, key1)
        if is_key or (isinstance(aval.size, int) and aval.size <= _FEW):
            return _emit_loop(ctx, aval, x0, x1, keys)
        for cycle in range(5):
            distances = [ctx.constant(np.uint32(r), aval) for r in _ROTATIONS[cycle % 2]]
            rests = [ctx.constant(np.uint32(32 - r), aval) for r in _ROTATIONS[cycle % 2]]
            # The words of the key schedule rotate from cycle to cycle.
            keys = [*keys[1:], keys[0]]
            x0, x1 = _emit_rounds(x0, x1, distances, rests, keys, ctx.constant(np.uint32(cycle + 1), aval))
        return [x0, x1]

    jvp = ZERO

    def batch(self, *args: Any, is_key: bool) -> Any:
        out, b = ELEMENTWISE(self, *args, is_key=is_key)
        return out, [b, b]


def _emit_rounds(
    x0: ir.Value, x1: ir.Value, distances: Sequence, rests: Sequence, keys: Sequence, number: ir.Value
) -> tuple[Any, Any]:
    """Emit four rounds and the key injection after them."""
    for distance, rest in zip(distances, rests, strict=True):
        x0 = hlo.add(x0, x1)
        # StableHLO has no rotation: the bits that leave the word on the left are shifted in on the right.
        x1 = hlo.xor(hlo.or_(hlo.shift_left(x1, distance), hlo.shift_right_logical(x1, rest)), x0)
    return hlo.add(x0, keys[0]), hlo.add(hlo.add(x1, keys[1]), number)


def _emit_loop(ctx: LoweringContext, aval: ShapedArray, x0: ir.Value, x1: ir.Value, keys: Sequence) -> list:
    """Emit the five cycles of four rounds as a loop."""
    scalar = ShapedArray((), _UINT32)
    limit, one, width = (ctx.constant(np.uint32(n), scalar) for n in (5, 1, 32))
    tables = [[ctx.constant(np.uint32(r), scalar) for r in table] for table in _ROTATIONS]

    def body(cycle: ir.Value, carry: Sequence) -> tuple[Any, list]:
        y0, y1, *rest = carry
        is_odd = emit_compare(hlo.and_(cycle, one), one, "EQ", _UINT32)
        scalars = [hlo.select(is_odd, b, a) for a, b in zip(*tables, strict=True)]
        distances = [ctx.broadcast(r, aval) for r in scalars]
        rests = [ctx.broadcast(hlo.subtract(width, r), aval) for r in scalars]
        turned = [*rest[1:], rest[0]]
        following = hlo.add(cycle, one)
        y0, y1 = _emit_rounds(y0, y1, distances, rests, turned, ctx.broadcast(following, aval))
        return following, [y0, y1, *turned]

    start = [ctx.constant(np.uint32(0), scalar), x0, x1, *keys]
    is_left = lambda cycle, _: emit_compare(cycle, limit, "LT", _UINT32)
    return emit_while(ctx, [scalar, *[aval] * 5], start, (), is_left, body)[1:3]


threefry2x32_p = Threefry2x32()
