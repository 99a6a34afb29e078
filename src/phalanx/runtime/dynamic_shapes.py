"""Symbolic shapes in StableHLO: sizes as values of the program, and operations that take them.

A function of a program with symbolic shapes takes the dimension variables as leading parameters
(`LoweringContext.leading`). Sizes are computed from these where they are needed, once in each block. Operations whose
result shape does not follow from their operands have a dynamic form in StableHLO, which takes the shape as an operand.
When shapes are refined for a call, the program becomes static again.
"""

from __future__ import annotations

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
        total: Any = None
        for monomial, coefficient in dim.terms:
            product = None if coefficient == 1 and monomial.factors else ctx.constant(coefficient, SCALAR)
            for factor, power in monomial.factors:
                for _ in range(power):
                    value = _factor(ctx, factor)
                    product = value if product is None else _apply(ctx, hlo.MulOp, product, value)
            total = product if total is None else _apply(ctx, hlo.AddOp, total, product)
        found = ctx.constants[key] = total
    return found


def _apply(ctx: Any, operation: Any, *operands: Any) -> Any:
    return ctx.op(operation, *operands, aval=SCALAR)


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
        operation = hlo.MaxOp if factor.name == "max" else hlo.MinOp
        found = operands[0]
        for operand in operands[1:]:
            found = _apply(ctx, operation, found, operand)
        return found
    (x, y), (low, _) = operands, bounds(factor.operands[0])
    # StableHLO's division truncates; for a negative x the floor is one less wherever there is a remainder.
    if low < 0:
        return _floor_of_negative(ctx, x, y)
    return _apply(ctx, hlo.DivOp, x, y)


def _floor_of_negative(ctx: Any, x: Any, y: Any) -> Any:
    rest = _apply(ctx, hlo.RemOp, x, y)
    zero = ctx.constant(0, SCALAR)
    # The remainder has the sign of x: where it is negative, truncation rounded the quotient up.
    below = _apply(ctx, hlo.MaxOp, _apply(ctx, hlo.MinOp, rest, zero), ctx.constant(-1, SCALAR))
    return _apply(ctx, hlo.AddOp, _apply(ctx, hlo.DivOp, x, y), below)


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


def emit_dynamic_form(ctx: Any, form: str, operands: Sequence[Any], aval: ShapedArray, attributes: dict) -> Any:
    """Emit an operation in its dynamic form, for a result whose shape is symbolic."""
    return _create(ctx, form, [*operands, sizes(ctx, aval.shape)], aval, attributes)


def _create(ctx: Any, name: str, operands: Sequence[Any], aval: ShapedArray, attributes: dict | None = None) -> Any:
    return ir.Operation.create(
        f"stablehlo.{name}", results=[ctx.type(aval)], operands=list(operands), attributes=attributes or {}
    ).results[0]


def emit_slice(
    ctx: Any, x: Any, starts: Sequence[Any], limits: Sequence[Any], strides: Sequence[Any], aval: ShapedArray
) -> Any:
    """The slice of `x` between bounds that depend on dimension variables."""
    return _create(ctx, "real_dynamic_slice", [x, *(sizes(ctx, dims) for dims in (starts, limits, strides))], aval)


def emit_pad(ctx: Any, x: Any, value: Any, config: Sequence[Sequence[Any]], aval: ShapedArray) -> Any:
    """Pad `x` by widths (low, high, interior of all dimensions) that depend on dimension variables."""
    return _create(ctx, "dynamic_pad", [x, value, *(sizes(ctx, dims) for dims in config)], aval)


def emit_dynamic_slice(ctx: Any, x: Any, shape: Sequence[Any], starts: Sequence[Any], aval: ShapedArray) -> Any:
    """The slice of `x`, of the given shape, that starts at scalars of the program, clamped to the bounds of `x`."""
    wide = [hlo.convert(ctx.type(SCALAR), v) if v.type != ctx.type(SCALAR) else v for v in starts]
    index = ShapedArray((len(shape),), SCALAR.dtype)
    room = sizes(ctx, [n - m for n, m in zip(shape, aval.shape, strict=True)])
    begin = ctx.op(
        hlo.MinOp, ctx.op(hlo.MaxOp, vector(ctx, wide), ctx.constant(0, index), aval=index), room, aval=index
    )
    # The limit must be start + size: the refinement of shapes recognizes a dynamic slice by this form.
    end = ctx.op(hlo.AddOp, begin, sizes(ctx, aval.shape), aval=index)
    return _create(ctx, "real_dynamic_slice", [x, begin, end, ctx.constant(1, index)], aval)


def custom_call(
    ctx: Any, target: str, operands: Sequence[Any], avals: Sequence[ShapedArray], attributes: dict[str, Any]
) -> list:
    """Emit a call of one of StableHLO's own targets, which the refinement of shapes replaces."""
    attributes = {"call_target_name": ir.StringAttr.get(target), **attributes}
    results = [ctx.type(a) for a in avals]
    operation = ir.Operation.create("stablehlo.custom_call", results, list(operands), attributes)
    return list(operation.results)
