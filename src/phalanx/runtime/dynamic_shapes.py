"""Symbolic shapes in StableHLO: sizes as values of the program, and operations that take them.

A function of a program with symbolic shapes takes the dimension variables as leading parameters
(`LoweringContext.leading`). Sizes are computed from these where they are needed, once in each block. Operations whose
result shape does not follow from their operands have a dynamic form in StableHLO, which takes the shape as an operand.
When shapes are refined for a call, the program becomes static again.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from phalanx.core import ShapedArray, TraceError
from phalanx.engine.mlir import hlo, ir
from phalanx.symbolic import Dim, Factor, bounds

SCALAR: Final = ShapedArray((), np.dtype(np.int64))


def size(ctx: Any, dim: Any) -> Any:
    """A dimension as an i64 scalar."""
    if type(dim) is not Dim:
        return ctx.constant(dim, SCALAR)
    key = ("size", dim)
    found = ctx.constants.get(key)
    if found is None:
        found = ctx.constants[key] = _fold(ctx, hlo.AddOp, [_term(ctx, *term) for term in dim.terms])
    return found


def _term(ctx: Any, monomial: Any, coefficient: int) -> Any:
    values = [_factor(ctx, factor) for factor, power in monomial.factors for _ in range(power)]
    scale = [] if coefficient == 1 and values else [ctx.constant(coefficient, SCALAR)]
    return _fold(ctx, hlo.MulOp, [*scale, *values])


def _fold(ctx: Any, operation: Any, operands: Sequence[Any]) -> Any:
    """Combine i64 scalars by a binary operation, from the left."""
    return functools.reduce(lambda x, y: ctx.op(operation, x, y, aval=SCALAR), operands)


def _factor(ctx: Any, factor: Factor) -> Any:
    if not factor.operands:
        found = ctx.leading.get(factor.name)
        if found is None:
            raise TraceError(
                "lowering of a program with symbolic shapes",
                expected=f"a value for the dimension variable {factor.name}",
                got="none: only exported programs have variables",
                fix="use phalanx.export.export(jit(f))(*specs), with arguments whose shapes have the variable, and "
                "call the result, or give sizes as ints",
            )
        return found
    operands = [size(ctx, x) for x in factor.operands]
    if factor.name != "floordiv":
        return _fold(ctx, hlo.MaxOp if factor.name == "max" else hlo.MinOp, operands)
    quotient = _fold(ctx, hlo.DivOp, operands)
    if bounds(factor.operands[0])[0] >= 0:
        return quotient
    # StableHLO's division truncates; for a negative x the floor is one less wherever there is a remainder. It has the
    # sign of x: where it is negative, truncation rounded the quotient up.
    negative_rest = _fold(ctx, hlo.MinOp, [_fold(ctx, hlo.RemOp, operands), ctx.constant(0, SCALAR)])
    return _fold(ctx, hlo.AddOp, [quotient, _fold(ctx, hlo.MaxOp, [negative_rest, ctx.constant(-1, SCALAR)])])


def sizes(ctx: Any, dims: Sequence[Any]) -> Any:
    """Several dimensions as an i64 vector."""
    if all(type(dim) is not Dim for dim in dims):
        return ctx.constant(np.array(dims, np.int64), ShapedArray((len(dims),), SCALAR.dtype))
    key = ("sizes", tuple(dims))
    found = ctx.constants.get(key)
    if found is None:
        found = ctx.constants[key] = vector(ctx, [size(ctx, dim) for dim in dims])
    return found


def vector(ctx: Any, scalars: Sequence[Any]) -> Any:
    """Several i64 scalars as a vector."""
    if not scalars:
        return ctx.constant(np.zeros(0, np.int64), ShapedArray((0,), SCALAR.dtype))
    parts = [ctx.op(hlo.ReshapeOp, x, aval=ShapedArray((1,), SCALAR.dtype)) for x in scalars]
    return hlo.concatenate(parts, 0) if len(parts) > 1 else parts[0]


FORMS: Final[dict[str, str]] = {
    "stablehlo.broadcast_in_dim": "dynamic_broadcast_in_dim",
    "stablehlo.reshape": "dynamic_reshape",
    "stablehlo.iota": "dynamic_iota",
}
"""The operations that have another form under symbolic shapes, which takes the shape of the result last."""


def create(ctx: Any, name: str, operands: Sequence[Any], aval: ShapedArray, attributes: dict | None = None) -> Any:
    """Emit an operation of StableHLO whose operands are sizes too."""
    return ir.Operation.create(
        f"stablehlo.{name}", results=[ctx.type(aval)], operands=list(operands), attributes=attributes or {}
    ).results[0]


def emit_dynamic_slice(ctx: Any, x: Any, shape: Sequence[Any], starts: Sequence[Any], aval: ShapedArray) -> Any:
    """The slice of `x`, of the given shape, that starts at scalars of the program, clamped to the bounds of `x`."""
    index = ShapedArray((len(shape),), SCALAR.dtype)
    wide = vector(ctx, [hlo.convert(ctx.type(SCALAR), v) if v.type != ctx.type(SCALAR) else v for v in starts])
    room = sizes(ctx, [n - m for n, m in zip(shape, aval.shape, strict=True)])
    begin = ctx.op(hlo.MinOp, ctx.op(hlo.MaxOp, wide, ctx.constant(0, index), aval=index), room, aval=index)
    # The limit must be start + size: the refinement of shapes recognizes a dynamic slice by this form.
    end = ctx.op(hlo.AddOp, begin, sizes(ctx, aval.shape), aval=index)
    return create(ctx, "real_dynamic_slice", [x, begin, end, ctx.constant(1, index)], aval)


def custom_call(
    ctx: Any, target: str, operands: Sequence[Any], avals: Sequence[ShapedArray], attributes: dict[str, Any]
) -> list:
    """Emit a call of one of StableHLO's own targets, which the refinement of shapes replaces."""
    attributes = {"call_target_name": ir.StringAttr.get(target), **attributes}
    return list(
        ir.Operation.create("stablehlo.custom_call", [ctx.type(a) for a in avals], list(operands), attributes).results
    )
