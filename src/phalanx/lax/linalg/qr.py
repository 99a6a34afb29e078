"""QR decomposition: `qr`.

Builds on `triangular_solve` for the derivative; called by `phalanx.numpy.linalg`, `phalanx.scipy.linalg` and the
orthogonal initializers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.core import Primitive, RuleError, ShapedArray, Zero, get_aval
from phalanx.engine.mlir import hlo, ir
from phalanx.lax.elementwise import add, conj, mul, sub
from phalanx.lax.indexing.static_slice import slice_in_dim
from phalanx.lax.linalg.library_kernels import call_kernel, emit_triangle
from phalanx.lax.linalg.matrix_stacks import (
    INT32,
    adjoint,
    batch_in_front,
    check_matrices,
    eye_mask,
    is_complex,
    mask_matrices,
    matmul,
    stack_sharding_rule,
    swap_last_dims,
    take_rows,
    tril,
    unit_vectors,
)
from phalanx.lax.linalg.triangular_solve import triangular_solve
from phalanx.lax.shape.concatenate import concatenate
from phalanx.runtime.lowering import LoweringContext
from phalanx.symbolic import min_dim
from phalanx.typing import ArrayLike


class Qr(Primitive, name="qr", multiple=True):
    """Q and R with x = Q R, or x P = Q R with a vector of pivots.

    Derivative: S. F. Walter and L. Lehmann, Algorithmic differentiation of linear algebra functions with application in
    optimum experimental design (2010), arXiv:1001.1654; wide matrices by the leading square part.
    """

    def abstract_eval(self, x, *, pivoting, full_matrices, magma):
        check_matrices("lax.linalg.qr", x)
        *batch, m, n = x.shape
        inner = m if full_matrices else min_dim(m, n)
        out = [ShapedArray((*batch, m, inner), x.dtype), ShapedArray((*batch, inner, n), x.dtype)]
        return [*out, ShapedArray((*batch, n), INT32)] if pivoting else out

    def sharding_rule(self, x, *, pivoting, full_matrices, magma):
        return stack_sharding_rule([x], x.ndim - 2, [x.ndim, x.ndim, x.ndim - 1][: 2 + pivoting])

    def lower(self, ctx, x, *, pivoting, full_matrices, magma):
        (aval,) = ctx.avals_in
        *batch, m, n = aval.shape
        num_batch, inner, small = len(batch), m if full_matrices else min_dim(m, n), min_dim(m, n)
        if small == 0:
            out = [ctx.inline(unit_vectors, avals=[], aval=a)[0] for a in ctx.avals_out[:2]]
            return [*out, *(ctx.iota(a, a.ndim - 1) for a in ctx.avals_out[2:])]
        taus_aval = ShapedArray((*batch, small), aval.dtype)
        pivots_aval = ShapedArray((*batch, n), INT32)
        if pivoting:
            # Pivots of 0 mean that all columns may be permuted.
            free = ctx.constant(0, pivots_aval)
            results = [aval, pivots_aval, taus_aval]
            packed, pivots, taus = call_kernel(
                ctx, "geqp3", [x, free], [aval, pivots_aval], results, num_batch, cuda={"magma": magma}
            )
        else:
            packed, taus = call_kernel(ctx, "geqrf", [x], [aval], [aval, taus_aval], num_batch)
        r_aval = ctx.avals_out[1]
        # R is the upper triangle of the packed result; Q is computed from the reflectors below.
        r = packed if inner == m else emit_leading(ctx, packed, aval, -2, inner)
        r = emit_triangle(ctx, r, r_aval, lower=False)
        q_aval = ctx.avals_out[0]
        num_vectors = min_dim(n, inner)
        reflectors = emit_leading(ctx, packed, aval, -1, num_vectors)
        if inner != num_vectors:  # the remaining columns complete the basis
            zero = ctx.constant(0, ShapedArray((), aval.dtype))
            none = [0] * aval.ndim
            reflectors = ctx.pad(reflectors, zero, none, [*none[:-1], inner - num_vectors], none, q_aval)
        (q,) = call_kernel(ctx, "orgqr", [reflectors, taus], [q_aval, taus_aval], [q_aval], num_batch)
        return [q, r, hlo.subtract(pivots, ctx.constant(1, pivots_aval))] if pivoting else [q, r]

    def jvp(self, primals, tangents, *, pivoting, full_matrices, magma):
        (x,), (x_dot,) = primals, tangents
        m, n = np.shape(x)[-2:]
        if full_matrices and m > n:
            raise RuleError(
                "derivative of lax.linalg.qr",
                expected="full_matrices=False, or no more rows than columns",
                got=f"full_matrices=True for {get_aval(x).str_short()}",
                fix="pass full_matrices=False; the columns that complete the basis are not determined by x",
            )
        out = self(x, pivoting=pivoting, full_matrices=full_matrices, magma=magma)
        q, r = out[:2]
        if pivoting:
            x_dot = swap_last_dims(take_rows(swap_last_dims(x_dot), out[2]))
        k = min_dim(m, n)
        lead, lead_dot = (v if n == k else slice_in_dim(v, 0, k, axis=np.ndim(v) - 1) for v in (r, x_dot))
        # From X = Q R: X_dot R^-1 = Q_dot + Q R_dot R^-1. R_dot R^-1 is upper triangular and Q^H Q_dot is skew-
        # Hermitian, so that the strict lower triangle of Q^H X_dot R^-1 determines Q^H Q_dot, and R_dot follows.
        right = triangular_solve(lead, lead_dot)
        inner = matmul(adjoint(q), right)
        low = tril(inner, -1)
        turn = sub(low, adjoint(low))  # the skew-Hermitian q^H q_dot
        if is_complex(q.dtype):
            diag = mask_matrices(inner, eye_mask(np.shape(inner)))
            turn = add(turn, mul(sub(diag, conj(diag)), q.dtype.type(0.5)))
        q_dot = add(matmul(q, sub(turn, inner)), right)
        r_dot = matmul(sub(inner, turn), lead)
        if n != k:
            rest_dot = slice_in_dim(x_dot, k, n, axis=np.ndim(x_dot) - 1)
            rest = slice_in_dim(r, k, n, axis=np.ndim(r) - 1)
            rest = sub(matmul(adjoint(q), rest_dot), matmul(turn, rest))
            r_dot = concatenate([r_dot, rest], np.ndim(r) - 1)
        return out, [q_dot, r_dot, *map(Zero.like, out[2:])]

    batch = batch_in_front


def emit_leading(ctx: LoweringContext, x: ir.Value, aval: ShapedArray, dim: int, size: int) -> Any:
    """Emit the first `size` entries along `dim`."""
    limits = list(aval.shape)
    if limits[dim] == size:
        return x
    limits[dim] = size
    return ctx.slice(x, [0] * len(limits), limits, [1] * len(limits), aval.with_shape(tuple(limits)))


qr_p = Qr()


def qr(x: ArrayLike, *, pivoting: bool = False, full_matrices: bool = True, use_magma: bool | None = None) -> tuple:
    """QR decomposition: Q with orthonormal columns and upper triangular R with x = Q R.

    Args:
      x: num[*b, m, n].
      pivoting: whether to permute the columns so that the diagonal of R decreases: x[:, p] = Q R.
      full_matrices: whether Q is square. Otherwise it has min(m, n) columns; only this is differentiable if m > n.
      use_magma: whether pivoting on CUDA devices uses MAGMA or LAPACK on the host; None for MAGMA if available.

    Returns:
      Q, R, and with `pivoting` the permutation p of the columns.

    Raises:
      ShapeError: `x` is not a matrix.
      DTypeError: its dtype is not float32, float64, complex64 or complex128.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> q, r = lax.linalg.qr(np.ones((3, 2), np.float32), full_matrices=False)
      >>> q.shape, r.shape
      ((3, 2), (2, 2))
    """
    magma = "auto" if use_magma is None else "on" if use_magma else "off"
    return tuple(qr_p(x, pivoting=bool(pivoting), full_matrices=bool(full_matrices), magma=magma))
