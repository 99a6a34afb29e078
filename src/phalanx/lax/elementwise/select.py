"""Elementwise selection: `select_n`, and `select` for two cases.

The derivative rules of other primitives select with these, so this file builds only on `broadcast` and
`elementwise_builders`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core import (
    ArgumentError,
    DTypeError,
    Literal,
    Primitive,
    ShapedArray,
    ShapeError,
    Var,
    Zero,
    get_aval,
    is_linear,
)
from phalanx.engine.mlir import hlo, ir
from phalanx.lax.elementwise.elementwise_builders import (
    Elementwise,
    check_same_dtypes,
    common_shape,
    emit_compare,
    match_scalars,
)
from phalanx.lax.reductions.reduce_sum import unbroadcast
from phalanx.lax.shape import ELEMENTWISE, zeros
from phalanx.runtime.lowering import LoweringContext
from phalanx.typing import Array, ArrayLike


class SelectN(Primitive, name="select_n"):
    """Elements of `cases[which]`: bool or i32[*s], any[*s]... -> any[*s].

    `which` may have rank 0, and so may cases beside full-shape ones.
    """

    def abstract_eval(self, which: ShapedArray, *cases: Any) -> Any:
        where = "lax.select_n"
        if not cases:
            raise ArgumentError(
                where, expected="at least one case", got="none", fix="pass the arrays to select from after which"
            )
        if which.dtype != np.bool_ and which.dtype != np.int32:
            raise DTypeError(
                f"{where} which",
                expected="bool or int32",
                got=which.str_short(),
                fix="convert it with lax.convert_element_type(which, 'int32')",
            )
        if which.dtype == np.bool_ and len(cases) > 2:
            raise ArgumentError(
                where,
                expected="at most two cases for a boolean `which`",
                got=len(cases),
                fix="convert which with lax.convert_element_type(which, 'int32')",
            )
        check_same_dtypes(where, cases)
        shape = common_shape(where, cases)
        if which.shape and which.shape != shape:
            if shape:
                raise ShapeError(
                    f"{where} which",
                    expected=f"rank 0, or the shape {shape} of the cases",
                    got=which.str_short(),
                    fix="broadcast one with lax.broadcast_in_dim",
                )
            shape = which.shape
        return ShapedArray(shape, cases[0].dtype, all(c.weak_type for c in cases))

    sharding_rule = Elementwise.sharding_rule
    linear_in = ((1,), (1, 2))

    def lower(self, ctx: LoweringContext, which: ir.Value, *cases: Any) -> Any:
        out, avals = ctx.aval_out, ctx.avals_in
        cases = [
            _broadcast_case(ctx, c, atom, out) if out.shape and not a.shape else c
            for c, a, atom in zip(cases, avals[1:], ctx.eqn.invars[1:], strict=True)
        ]
        return _emit_selects(ctx, which, avals[0], cases, 0)

    def jvp(self, primals: Sequence[Array], tangents: Sequence[Array]) -> tuple:
        which, *cases = primals
        y = self(which, *cases)
        aval = get_aval(y).to_tangent()
        dots = tangents[1:]
        if all(type(t) is Zero for t in dots):
            return y, Zero(aval)
        # A scalar zero replaces the symbolic zeros, if another operand has the shape of the result.
        has_shape = any(get_aval(t).shape == aval.shape for t in (which, *(t for t in dots if type(t) is not Zero)))
        none = aval.dtype.type(0) if has_shape else zeros(aval)
        return y, self(which, *(none if type(t) is Zero else t for t in dots))

    def transpose(self, y_bar: Array, which: Array, *cases: Any) -> tuple:
        # Each case receives the cotangent where it is selected, and zero elsewhere.
        zero = y_bar.dtype.type(0)

        def cotangent(i: int, case: Any) -> Any:
            arms = [y_bar if j == i else zero for j in range(len(cases))]
            return unbroadcast(self(which, *arms) if len(arms) > 1 else y_bar, case)

        return (None, *[cotangent(i, c) if is_linear(c) else None for i, c in enumerate(cases)])

    batch = ELEMENTWISE


select_n_p = SelectN()


def _broadcast_case(ctx: LoweringContext, case: ir.Value, atom: Var | Literal, out: ShapedArray) -> Any:
    """Broadcast a case of rank 0 to the shape of the result; a literal becomes a constant of that shape."""
    return ctx.constant(atom.value, out) if type(atom) is Literal else ctx.broadcast(case, out)


def _emit_selects(ctx: LoweringContext, which: ir.Value, aval: ShapedArray, cases: list, first: int) -> Any:
    """Emit a binary tree of selects over `cases`, the first of which has the index `first`."""
    if len(cases) == 1:
        return cases[0]
    if aval.dtype == np.bool_:
        return ctx.op(hlo.SelectOp, which, cases[1], cases[0])
    middle = len(cases) // 2
    bound = ctx.constant(np.int32(first + middle), aval.update(weak_type=False))
    low = emit_compare(which, bound, "LT", aval.dtype)
    return hlo.select(
        low,
        _emit_selects(ctx, which, aval, cases[:middle], first),
        _emit_selects(ctx, which, aval, cases[middle:], first + middle),
    )


def select_n(which: ArrayLike, *cases: Any) -> Any:
    """Select each element from one of several arrays: bool or i32[*s], any[*s]... -> any[*s].

    Args:
      which: the index of the case for each element (False is 0), or an index of rank 0 for all elements.
      *cases: arrays of one dtype, each of the common shape or of rank 0.

    Returns:
      An array with the elements of the selected cases, unspecified for an index outside `[0, len(cases))`.

    Raises:
      DTypeError: `which` is neither bool nor int32, or the cases differ in dtype.
      ShapeError: the shapes differ.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.select_n(jnp.array([True, False]), jnp.array([1, 2]), jnp.array([3, 4])).tolist()
      [3, 2]
    """
    return select_n_p(which, *match_scalars(*cases))


def select(pred: ArrayLike, on_true: ArrayLike, on_false: ArrayLike) -> Any:
    """Select each element from one of two arrays: bool[*s], any[*s], any[*s] -> any[*s].

    Args:
      pred: a boolean array, of the shape of the others or of rank 0.
      on_true: the elements where `pred` is True.
      on_false: the elements where `pred` is False.

    Returns:
      An array of the shape and dtype of both.

    Raises:
      DTypeError: `pred` is not boolean, or the others differ in dtype.
      ShapeError: the shapes differ.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.select(jnp.array([True, False]), jnp.array([1, 2]), jnp.array([3, 4])).tolist()
      [1, 4]
    """
    return select_n(pred, on_false, on_true)
