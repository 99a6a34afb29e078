"""LU decomposition with partial pivoting: `lu`, and the solution of linear systems with it.

Builds on `triangular_solve`; called by `phalanx.numpy.linalg`, `phalanx.scipy.linalg` and by the derivative of `eig`.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from phalanx.core import ZERO, DTypeError, ShapedArray, ShapeError, ShardingRule, Zero, get_aval
from phalanx.engine.mlir import hlo
from phalanx.lax.elementwise import add, eq, select
from phalanx.lax.indexing.dynamic_slice import dynamic_slice_p, dynamic_update_slice_p
from phalanx.lax.indexing.static_slice import pad, slice_in_dim
from phalanx.lax.linalg.library_kernels import call_kernel, nan_where_failed
from phalanx.lax.linalg.matrix_stacks import (
    INT32,
    MatrixPrimitive,
    check_matrices,
    eye_like,
    matmul,
    take_rows,
    tril,
    triu,
)
from phalanx.lax.linalg.triangular_solve import triangular_solve
from phalanx.lax.reductions.reduce_sum import reduce_sum_p
from phalanx.lax.shape import broadcast_in_dim, dim_names
from phalanx.lax.shape.iota_and_full import broadcasted_iota
from phalanx.symbolic import min_dim
from phalanx.typing import Array, ArrayLike


class LuPivotsToPermutation(MatrixPrimitive, name="lu_pivots_to_permutation"):
    """Compose a sequence of row exchanges to a permutation: int32[*b, k] -> int32[*b, n]."""

    def abstract_eval(self, pivots, *, permutation_size):
        if pivots.dtype != INT32 or not pivots.ndim:
            raise DTypeError(
                "lax.linalg.lu_pivots_to_permutation",
                expected="int32[*b, k]",
                got=pivots.str_short(),
                fix="pass the pivots that lax.linalg.lu returns",
            )
        if pivots.shape[-1] > permutation_size:
            raise ShapeError(
                "Output permutation size of lax.linalg.lu_pivots_to_permutation",
                expected=f"at least {pivots.shape[-1]}, the number of pivots",
                got=permutation_size,
                fix="pass the number of rows of the matrix as permutation_size",
            )
        return pivots.with_shape((*pivots.shape[:-1], permutation_size))

    def sharding_rule(self, pivots, *, permutation_size):
        batch = dim_names(pivots.ndim - 1)
        return ShardingRule([[*batch, "k"]], [[*batch, "n"]], whole={"k", "n"})

    def lower(self, ctx, pivots, *, permutation_size):
        (pivots_aval,) = ctx.avals_in
        out = ctx.aval_out
        last = out.ndim - 1
        if ctx.platform == "cuda":
            return call_kernel(ctx, "permutation of pivots", [pivots], [pivots_aval], [out], num_batch=last)[0]
        scalar, count = ShapedArray((), INT32), pivots_aval.shape[-1]
        avals = [scalar, out, pivots_aval]

        def exchange(i: Array, order: Array, pivots: Array) -> list:
            # Exchange the entries i and pivots[i] of the permutation. The pivot differs from example to example, so
            # that its entry is selected by a mask rather than a slice.
            starts = (*[np.int32(0)] * last, i)
            one = (*out.shape[:-1], 1)
            read = functools.partial(dynamic_slice_p, sizes=one, wrap=(False,) * out.ndim)
            here, other = read(order, *starts), read(pivots, *starts)
            columns = broadcasted_iota(np.int32, out.shape, last)
            found = eq(columns, broadcast_in_dim(other, out.shape, tuple(range(out.ndim))))
            there = reduce_sum_p(select(found, order, broadcast_in_dim(np.int32(0), out.shape, ())), dims=(last,))
            order = select(found, broadcast_in_dim(here, out.shape, tuple(range(out.ndim))), order)
            there = broadcast_in_dim(there, one, tuple(range(last)))
            order = dynamic_update_slice_p(order, there, *starts, wrap=(False,) * out.ndim)
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


lu_pivots_to_permutation_p = LuPivotsToPermutation()


class Lu(MatrixPrimitive, name="lu", multiple=True):
    """The factors of x[permutation] = L U packed in one matrix, the row exchanges, and the permutation.

    Derivative: S. F. Walter and L. Lehmann (2010), arXiv:1001.1654, for square matrices; rectangular factors are padded
    with identities.
    """

    def abstract_eval(self, x):
        check_matrices("lax.linalg.lu", x)
        *batch, m, n = x.shape
        return [x.update(weak_type=False), ShapedArray((*batch, min_dim(m, n)), INT32), ShapedArray((*batch, m), INT32)]

    def lower(self, ctx, x):
        (aval,) = ctx.avals_in
        _, pivots_aval, _ = ctx.avals_out
        info = ShapedArray(aval.shape[:-2], INT32)
        factors, pivots, report = call_kernel(ctx, "getrf", [x], [aval], [aval, pivots_aval, info])
        # A positive status means that U is singular, which is not an error.
        failed = hlo.minimum(report, ctx.constant(0, info))
        (factors,) = nan_where_failed(ctx, failed, [factors], [aval], info.ndim)
        pivots = hlo.subtract(pivots, ctx.constant(1, pivots_aval))
        permute = functools.partial(lu_pivots_to_permutation_p, permutation_size=aval.shape[-2])
        (order,) = ctx.inline(permute, pivots, avals=[pivots_aval])
        return [factors, pivots, order]

    def jvp(self, primals, tangents):
        (x,), (x_dot,) = primals, tangents
        factors, pivots, order = self(x)
        *_, m, n = np.shape(x)
        # A rectangular factor is padded to a square, so that it can be inverted by `triangular_solve`.
        low, up = factors, factors
        if m > n:
            low, up = _pad_with_identity(factors, m), slice_in_dim(factors, 0, n, axis=np.ndim(x) - 2)
        elif n > m:
            low, up = slice_in_dim(factors, 0, m, axis=np.ndim(x) - 1), _pad_with_identity(factors, n)
        # From P X = L U: L^-1 P X_dot U^-1 = L^-1 L_dot + U_dot U^-1, the sum of a strictly lower and an upper
        # triangular matrix, which the triangles of `inner` separate.
        inner = triangular_solve(low, take_rows(x_dot, order), left_side=True, lower=True, unit_diagonal=True)
        inner = triangular_solve(up, inner)
        lower_dot = matmul(add(tril(low, -1), eye_like(low, m)), tril(inner, -1))
        upper_dot = matmul(triu(inner), triu(up))
        return [factors, pivots, order], [add(lower_dot, upper_dot), Zero.like(pivots), Zero.like(order)]


lu_p = Lu()


def _pad_with_identity(x: Array, size: int) -> Any:
    """Pad a rectangular factor to a square of `size`, with an identity in the new rows and columns."""
    *batch, m, n = np.shape(x)
    whole, k, zero = [(0, 0, 0)] * len(batch), min(m, n), x.dtype.type(0)
    grown = pad(x, zero, [*whole, (0, size - m, 0), (0, size - n, 0)])
    return add(grown, pad(eye_like(x, size - k), zero, [*whole, (k, 0, 0), (k, 0, 0)]))


def lu(x: ArrayLike) -> tuple:
    """LU decomposition with partial pivoting: x[permutation] = L U.

    Args:
      x: num[*b, m, n].

    Returns:
      L below the diagonal, without its diagonal of ones, and U in one matrix num[*b, m, n]; the row exchanged with each
      row, int32[*b, min(m, n)]; and the permutation of the rows, int32[*b, m].

    Raises:
      ShapeError: `x` is not a matrix.
      DTypeError: its dtype is not float32, float64, complex64 or complex128.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> factors, pivots, order = lax.linalg.lu(np.array([[1.0, 2.0], [2.0, 2.0]], np.float32))
      >>> factors.tolist(), order.tolist()
      ([[2.0, 2.0], [0.5, 1.0]], [1, 0])
    """
    return tuple(lu_p(x))


def lu_pivots_to_permutation(pivots: ArrayLike, permutation_size: int) -> Any:
    """Compose row exchanges to a permutation.

    Args:
      pivots: int32[*b, k]; row i was exchanged with row pivots[i], one after the other.
      permutation_size: the number n of rows, at least k.

    Returns:
      The order of the rows afterwards, int32[*b, n].

    Raises:
      DTypeError: `pivots` has another type.
      ShapeError: there are more pivots than rows.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.linalg.lu_pivots_to_permutation(np.array([2, 2], np.int32), 3).tolist()
      [2, 0, 1]
    """
    return lu_pivots_to_permutation_p(pivots, permutation_size=int(permutation_size))


def solve(a: ArrayLike, b: ArrayLike) -> Any:
    """Solve a x = b for stacks of general matrices: num[*b, n, n], num[*b, n, m] -> num[*b, n, m]."""
    if get_aval(a).shape[:-1] != get_aval(b).shape[:-1]:
        raise ShapeError(
            "solve operands",
            expected="equal leading dimensions and rows",
            got=f"{get_aval(a).str_short()} and {get_aval(b).str_short()}",
            fix="broadcast the leading dimensions of one operand to the other's",
        )
    # P A = L U: permute the right-hand sides, then solve with L and with U.
    factors, _, order = lu(a)
    x = triangular_solve(factors, take_rows(b, order), left_side=True, lower=True, unit_diagonal=True)
    return triangular_solve(factors, x, left_side=True)
