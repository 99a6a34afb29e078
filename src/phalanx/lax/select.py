"""Choosing: `select_n` and its two-armed face `select`.

Derivative rules everywhere choose with these, so this file builds only on `broadcast` and `family`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.errors import ArgumentError, DTypeError, ShapeError
from phalanx.core.jaxpr import Literal
from phalanx.core.primitive import Primitive, Roles
from phalanx.core.tangent import Zero, is_linear
from phalanx.engine.mlir import hlo
from phalanx.lax.broadcast import add_dim, broadcast_in_dim_p, dim_names, insert, keep, move_dim, unbroadcast, zeros
from phalanx.lax.family import check_same_dtypes, common_shape, emit_compare, match


class SelectN(Primitive, name="select_n"):
    """Elements of `cases[which]`: bool or i32[*s], any[*s]... -> any[*s].

    `which` may have rank 0, and so may cases beside full-shape ones.
    """

    def result(self, which: Any, *cases: Any) -> Any:
        where = "lax.select_n"
        if not cases:
            raise ArgumentError(where, expected="at least one case", got="none", mend="pass the arrays to choose from")
        if which.dtype != np.bool_ and which.dtype != np.int32:
            raise DTypeError(
                f"{where} which",
                expected="bool or int32",
                got=which.str_short(),
                mend="convert it with lax.convert_element_type(which, 'int32')",
            )
        if which.dtype == np.bool_ and len(cases) > 2:
            raise ArgumentError(
                where, expected="at most two cases for a boolean `which`", got=len(cases), mend="use an int32 `which`"
            )
        check_same_dtypes(where, cases)
        shape = common_shape(where, cases)
        if which.shape and which.shape != shape:
            if shape:
                raise ShapeError(
                    f"{where} which",
                    expected=f"rank 0, or the shape {shape} of the cases",
                    got=which.str_short(),
                    mend="broadcast one with lax.broadcast_in_dim",
                )
            shape = which.shape
        return ShapedArray(shape, cases[0].dtype, all(c.weak_type for c in cases))

    def roles(self, which: Any, *cases: Any) -> Roles:
        names = dim_names(max(which.ndim, *(c.ndim for c in cases)))
        return Roles([names if a.ndim else [] for a in (which, *cases)], [names])

    def lower(self, ctx: Any, which: Any, *cases: Any) -> Any:
        out, avals = ctx.aval_out, ctx.avals_in
        atoms = ctx.eqn.invars[1:]
        cases = [
            _full(ctx, c, atom, out) if out.shape and not a.shape else c
            for c, a, atom in zip(cases, avals[1:], atoms, strict=True)
        ]
        return _choose(ctx, which, avals[0], cases, 0)

    def jvp(self, primals: Any, tangents: Any) -> tuple:
        which, *cases = primals
        y = self(which, *cases)
        aval = aval_of(y).to_tangent()
        dots = tangents[1:]
        if all(type(t) is Zero for t in dots):
            return y, Zero(aval)
        # A zero of rank 0 stands for the zero tangents, as long as one operand gives the shape.
        has_shape = any(t.shape == aval.shape for t in (which, *(t for t in dots if type(t) is not Zero)))
        none = aval.dtype.type(0) if has_shape else zeros(aval)
        return y, self(which, *(none if type(t) is Zero else t for t in dots))

    def transpose(self, y_bar: Any, which: Any, *cases: Any) -> tuple:
        bars = []
        zero = y_bar.dtype.type(0)
        for i, c in enumerate(cases):
            if not is_linear(c):
                bars.append(None)
                continue
            arms = [y_bar if j == i else zero for j in range(len(cases))]
            bars.append(unbroadcast(self(which, *arms) if len(arms) > 1 else y_bar, c))
        return (None, *bars)

    def batch(self, which: Any, *args: Any) -> tuple:
        n = len(args) // 2
        cases, b_which, b_cases = args[:n], args[n], args[n + 1 :]
        operands, mapped = (which, *cases), (b_which, *b_cases)
        shapes = [aval_of(x).shape for x in operands]
        ranks = [len(s) - (d is not None) for s, d in zip(shapes, mapped, strict=True)]
        rank, size = max(ranks), next(s[d] for s, d in zip(shapes, mapped, strict=True) if d is not None)
        b = next((d for d, r in zip(mapped, ranks, strict=True) if d is not None and r == rank), 0)
        inner = next(
            (s if d is None else keep(s, (d,))) for s, d, r in zip(shapes, mapped, ranks, strict=True) if r == rank
        )
        shape = insert(inner, b, size)
        aligned = []
        for x, r, d in zip(operands, ranks, mapped, strict=True):
            if d is None:
                aligned.append(add_dim(x, b, size) if r else x)
            elif r == rank:
                aligned.append(move_dim(x, d, b))
            else:
                aligned.append(broadcast_in_dim_p(x, shape=shape, dims=(b,)))
        return self(*aligned), b


select_n_p = SelectN()


def _full(ctx: Any, case: Any, atom: Any, out: ShapedArray) -> Any:
    """A case of rank 0 in the shape of the result; a literal becomes a constant of that shape."""
    return ctx.constant(atom.value, out) if type(atom) is Literal else ctx.broadcast(case, out)


def _choose(ctx: Any, which: Any, aval: Any, cases: list, first: int) -> Any:
    """A tree of two-armed selects over `cases`, which are numbered from `first`."""
    if len(cases) == 1:
        return cases[0]
    if aval.dtype == np.bool_:
        return ctx.op(hlo.SelectOp, which, cases[1], cases[0])
    middle = len(cases) // 2
    bound = ctx.constant(np.int32(first + middle), aval.update(weak_type=False))
    low = emit_compare(which, bound, "LT", aval.dtype)
    return hlo.select(
        low, _choose(ctx, which, aval, cases[:middle], first), _choose(ctx, which, aval, cases[middle:], first + middle)
    )


def select_n(which: Any, *cases: Any) -> Any:
    """Choose element by element among arrays: bool or i32[*s], any[*s]... -> any[*s].

    Args:
      which: the number of the case for each element (False is 0); or of rank 0, one number for all.
      *cases: arrays of one dtype and of one shape, or of rank 0 beside arrays of that shape.

    Returns:
      An array with the elements of the chosen cases. What a number outside `[0, len(cases))` chooses is unspecified.

    Raises:
      DTypeError: `which` is neither bool nor int32, or the cases differ in dtype.
      ShapeError: shapes differ.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.select_n(jnp.array([True, False]), jnp.array([1, 2]), jnp.array([3, 4])).tolist()
      [3, 2]
    """
    return select_n_p(which, *match(*cases))


def select(pred: Any, on_true: Any, on_false: Any) -> Any:
    """Choose element by element between two arrays: bool[*s], any[*s], any[*s] -> any[*s].

    Args:
      pred: booleans, or one of rank 0 for all elements.
      on_true: elements taken where `pred` is true.
      on_false: elements taken where it is false.

    Returns:
      An array of the shape and dtype of both.

    Raises:
      DTypeError: `pred` is not boolean, or the others differ in dtype.
      ShapeError: shapes differ.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.select(jnp.array([True, False]), jnp.array([1, 2]), jnp.array([3, 4])).tolist()
      [1, 4]
    """
    return select_n(pred, on_false, on_true)
