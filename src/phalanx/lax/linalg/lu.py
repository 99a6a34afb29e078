"""LU decomposition with row exchanges, and the general linear system solved with it.

Builds on `matrices` and `triangular`; called by `phalanx.numpy.linalg`, `phalanx.scipy.linalg` and by the derivative of
`eig`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.errors import DTypeError, ShapeError
from phalanx.core.primitive import ZERO, Primitive
from phalanx.core.tangent import Zero
from phalanx.engine.mlir import hlo
from phalanx.lax.arithmetic import add
from phalanx.lax.broadcast import broadcast_in_dim, dim_names, reduce_sum_p
from phalanx.lax.comparison import eq
from phalanx.lax.creation import broadcasted_iota
from phalanx.lax.dynamic_slice import dynamic_slice_p, dynamic_update_slice_p
from phalanx.lax.linalg.kernels import info_aval, kernel, nan_where_failed
from phalanx.lax.linalg.matrices import (
    INT32,
    batch_in_front,
    check_matrices,
    eye_like,
    eye_mask,
    masked,
    matmul,
    stack_roles,
    take_rows,
    tril,
    triu,
)
from phalanx.lax.linalg.triangular import triangular_solve
from phalanx.lax.select import select
from phalanx.lax.slicing import pad, slice_in_dim
from phalanx.symbolic import min_dim


class LuPivotsToPermutation(Primitive, name="lu_pivots_to_permutation"):
    """The permutation that a sequence of row exchanges makes: int32[*b, k] -> int32[*b, n]."""

    def result(self, pivots, *, permutation_size):
        if pivots.dtype != INT32 or not pivots.ndim or pivots.shape[-1] > permutation_size:
            raise DTypeError(
                "lax.linalg.lu_pivots_to_permutation",
                expected=f"int32[*b, k] with k <= {permutation_size}",
                got=pivots.str_short(),
                mend="give the pivots that lax.linalg.lu returns",
            )
        return pivots.with_shape((*pivots.shape[:-1], permutation_size))

    def roles(self, pivots, *, permutation_size):
        batch = dim_names(pivots.ndim - 1)
        return type(stack_roles([pivots], 0, [1]))([[*batch, "k"]], [[*batch, "n"]], whole={"k", "n"})

    def lower(self, ctx, pivots, *, permutation_size):
        (pivots_aval,) = ctx.avals_in
        out = ctx.aval_out
        last = out.ndim - 1
        if ctx.platform == "cuda":
            return kernel(ctx, "permutation of pivots", [pivots], [pivots_aval], [out], last)[0]
        scalar, count = ShapedArray((), INT32), pivots_aval.shape[-1]
        avals = [scalar, out, pivots_aval]

        def exchange(i: Any, order: Any, pivots: Any) -> list:
            starts = [np.int32(0)] * last
            one = (*out.shape[:-1], 1)
            here = dynamic_slice_p(order, *starts, i, sizes=one, wrap=(False,) * out.ndim)
            other = dynamic_slice_p(pivots, *starts, i, sizes=one, wrap=(False,) * out.ndim)
            columns = broadcasted_iota(np.int32, out.shape, last)
            found = eq(columns, broadcast_in_dim(other, out.shape, tuple(range(out.ndim))))
            there = reduce_sum_p(select(found, order, broadcast_in_dim(np.int32(0), out.shape, ())), dims=(last,))
            order = select(found, broadcast_in_dim(here, out.shape, tuple(range(out.ndim))), order)
            there = broadcast_in_dim(there, one, tuple(range(last)))
            order = dynamic_update_slice_p(order, there, *starts, i, wrap=(False,) * out.ndim)
            return [add(i, np.int32(1)), order, pivots]

        start = ctx.iota(out, last)
        if count == 0:
            return start
        limit = ctx.size(count, scalar)
        op = hlo.WhileOp([ctx.type(a) for a in avals], [ctx.constant(0, scalar), start, pivots])
        kind = hlo.ComparisonTypeAttr.get("SIGNED")
        below = hlo.ComparisonDirectionAttr.get("LT")
        ctx.region(avals, op, lambda i, *_: hlo.compare(i, limit, below, compare_type=kind), index=0)
        ctx.region(avals, op, lambda *values: ctx.inline(exchange, *values, avals=avals), index=1)
        return op.results[1]

    jvp = ZERO
    batch = batch_in_front


lu_pivots_to_permutation_p = LuPivotsToPermutation()


class Lu(Primitive, name="lu", multiple=True):
    """The factors of x[permutation] = L U packed in one matrix, the row exchanges, and the permutation they make.

    Derivative: S. F. Walter and L. Lehmann (2010), arXiv:1001.1654, for square matrices; rectangular ones are completed
    by identities.
    """

    def result(self, x):
        check_matrices("lax.linalg.lu", x)
        *batch, m, n = x.shape
        return [x.update(weak_type=False), ShapedArray((*batch, min_dim(m, n)), INT32), ShapedArray((*batch, m), INT32)]

    def roles(self, x):
        return stack_roles([x], x.ndim - 2, [x.ndim, x.ndim - 1, x.ndim - 1])

    def lower(self, ctx, x):
        (aval,) = ctx.avals_in
        num_batch = aval.ndim - 2
        _, pivots_aval, _ = ctx.avals_out
        info = info_aval(aval, num_batch)
        factors, pivots, report = kernel(ctx, "getrf", [x], [aval], [aval, pivots_aval, info], num_batch)
        # A positive report says that U is singular, which is no failure.
        none = ctx.constant(0, info)
        failed = hlo.minimum(report, none)
        (factors,) = nan_where_failed(ctx, failed, [factors], [aval], num_batch)
        pivots = hlo.subtract(pivots, ctx.constant(1, pivots_aval))
        m = aval.shape[-2]
        (order,) = ctx.inline(lambda p: lu_pivots_to_permutation_p(p, permutation_size=m), pivots, avals=[pivots_aval])
        return [factors, pivots, order]

    def jvp(self, primals, tangents):
        (x,), (x_dot,) = primals, tangents
        factors, pivots, order = self(x)
        *_, m, n = np.shape(x)
        k = min(m, n)
        low, up = factors, factors
        if m > n:
            low = _completed(factors, m)
        elif n > m:
            low = slice_in_dim(factors, 0, k, axis=np.ndim(x) - 1)
            up = _completed(factors, n)
        else:
            up = factors
        if m > n:
            up = slice_in_dim(factors, 0, k, axis=np.ndim(x) - 2)
        inner = triangular_solve(low, take_rows(x_dot, order), left_side=True, lower=True, unit_diagonal=True)
        inner = triangular_solve(up, inner)
        lower_dot = matmul(add(tril(low, -1), eye_like(low, m)), tril(inner, -1))
        upper_dot = matmul(triu(inner), triu(up))
        return [factors, pivots, order], [add(lower_dot, upper_dot), Zero.like(pivots), Zero.like(order)]

    batch = batch_in_front


lu_p = Lu()


def _completed(x: Any, size: int) -> Any:
    """A rectangular factor made square of `size` by zeros, and ones where it has no diagonal."""
    *batch, m, n = np.shape(x)
    config = [(0, 0, 0)] * len(batch) + [(0, size - m, 0), (0, size - n, 0)]
    grown = pad(x, x.dtype.type(0), config)
    ones = pad(
        masked(
            broadcast_in_dim(x.dtype.type(1), (*batch, size - min(m, n), size - min(m, n)), ()),
            eye_mask((size - min(m, n), size - min(m, n))),
        ),
        x.dtype.type(0),
        [(0, 0, 0)] * len(batch) + [(min(m, n), 0, 0), (min(m, n), 0, 0)],
    )
    return add(grown, ones)


def lu(x: Any) -> tuple:
    """LU decomposition with partial pivoting: x[permutation] = L U.

    Args:
      x: num[*b, m, n].

    Returns:
      L (below the diagonal; its own diagonal is ones) and U in one matrix num[*b, m, n]; the row exchanged with each
      row, int32[*b, min(m, n)]; and the permutation of the rows, int32[*b, m].

    Raises:
      ShapeError: `x` is no matrix.
      DTypeError: its dtype is not one that LAPACK has.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> factors, pivots, order = lax.linalg.lu(np.array([[1.0, 2.0], [2.0, 2.0]], np.float32))
      >>> factors.tolist(), order.tolist()
      ([[2.0, 2.0], [0.5, 1.0]], [1, 0])
    """
    return tuple(lu_p(x))


def lu_pivots_to_permutation(pivots: Any, permutation_size: int) -> Any:
    """The permutation that row exchanges make.

    Args:
      pivots: int32[*b, k]; row i was exchanged with row pivots[i], one after the other.
      permutation_size: the number n of rows, at least k.

    Returns:
      The order of the rows afterwards, int32[*b, n].

    Raises:
      DTypeError: the pivots are not such an array.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.linalg.lu_pivots_to_permutation(np.array([2, 2], np.int32), 3).tolist()
      [2, 0, 1]
    """
    return lu_pivots_to_permutation_p(pivots, permutation_size=int(permutation_size))


def solve(a: Any, b: Any) -> Any:
    """Solve a x = b for stacks of general matrices: num[*b, n, n], num[*b, n, m] -> num[*b, n, m]."""
    if aval_of(a).shape[:-1] != aval_of(b).shape[:-1]:
        raise ShapeError(
            "solve operands",
            expected="equal leading dimensions and rows",
            got=f"{aval_of(a).str_short()} and {aval_of(b).str_short()}",
            mend="broadcast them",
        )
    factors, _, order = lu(a)
    x = triangular_solve(factors, take_rows(b, order), left_side=True, lower=True, unit_diagonal=True)
    return triangular_solve(factors, x, left_side=True)
