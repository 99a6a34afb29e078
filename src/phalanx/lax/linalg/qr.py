"""QR decomposition: `qr`, and its reflectors in LAPACK's packed form: `householder_product`, `ormqr`.

Builds on `triangular_solve` for the derivative; called by `phalanx.numpy.linalg`, `phalanx.scipy.linalg` and the
orthogonal initializers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.core import RuleError, ShapedArray, ShapeError, Undefined, Zero, get_aval, is_linear
from phalanx.engine.mlir import hlo, ir
from phalanx.lax.elementwise import add, conj, mul, sub
from phalanx.lax.indexing.static_slice import slice_in_dim
from phalanx.lax.linalg.library_kernels import call_kernel, emit_triangle
from phalanx.lax.linalg.matrix_stacks import (
    INT32,
    MatrixPrimitive,
    adjoint,
    check_matrices,
    eye_mask,
    is_complex,
    mask_matrices,
    matmul,
    swap_last_dims,
    take_rows,
    tril,
    unit_vectors,
)
from phalanx.lax.linalg.triangular_solve import triangular_solve
from phalanx.lax.shape import zeros
from phalanx.lax.shape.concatenate import concatenate
from phalanx.runtime.lowering import LoweringContext
from phalanx.symbolic import min_dim
from phalanx.typing import ArrayLike


class Qr(MatrixPrimitive, name="qr", multiple=True):
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

    def lower(self, ctx, x, *, pivoting, full_matrices, magma):
        (aval,) = ctx.avals_in
        *batch, m, n = aval.shape
        inner, small = m if full_matrices else min_dim(m, n), min_dim(m, n)
        if small == 0:
            out = [ctx.inline(unit_vectors, avals=[], aval=a)[0] for a in ctx.avals_out[:2]]
            return [*out, *(ctx.iota(a, a.ndim - 1) for a in ctx.avals_out[2:])]
        taus_aval = ShapedArray((*batch, small), aval.dtype)
        pivots_aval = ShapedArray((*batch, n), INT32)
        if pivoting:
            # Pivots of 0 mean that all columns may be permuted.
            operands, avals = [x, ctx.constant(0, pivots_aval)], [aval, pivots_aval]
            packed, pivots, taus = call_kernel(
                ctx, "geqp3", operands, avals, [*avals, taus_aval], cuda={"magma": magma}
            )
        else:
            packed, taus = call_kernel(ctx, "geqrf", [x], [aval], [aval, taus_aval])
        q_aval, r_aval = ctx.avals_out[:2]
        # R is the upper triangle of the packed result; Q is computed from the reflectors below.
        r = emit_triangle(ctx, emit_leading(ctx, packed, aval, -2, inner), r_aval, lower=False)
        num_vectors = min_dim(n, inner)
        reflectors = emit_leading(ctx, packed, aval, -1, num_vectors)
        if inner != num_vectors:  # the remaining columns complete the basis
            zero = ctx.constant(0, ShapedArray((), aval.dtype))
            none = [0] * aval.ndim
            reflectors = ctx.pad(reflectors, zero, none, [*none[:-1], inner - num_vectors], none, q_aval)
        (q,) = call_kernel(ctx, "orgqr", [reflectors, taus], [q_aval, taus_aval], [q_aval])
        return [q, r, hlo.subtract(pivots, ctx.constant(1, pivots_aval))] if pivoting else [q, r]

    def jvp(self, primals, tangents, *, pivoting, full_matrices, magma):
        (x,), (x_dot,) = primals, tangents
        m, n = np.shape(x)[-2:]
        out = self(x, pivoting=pivoting, full_matrices=full_matrices, magma=magma)
        q, r = out[:2]
        if pivoting:
            x_dot = swap_last_dims(take_rows(swap_last_dims(x_dot), out[2]))
        k, last = min_dim(m, n), np.ndim(x) - 1
        completes = full_matrices and m > n
        lead, lead_dot = (v if n == k else slice_in_dim(v, 0, k, axis=last) for v in (r, x_dot))
        if completes:
            lead = slice_in_dim(lead, 0, k, axis=last - 1)
        # From X = Q R: X_dot R^-1 = Q_dot + Q R_dot R^-1. R_dot R^-1 is upper triangular and Q^H Q_dot is skew-
        # Hermitian, so that the strict lower triangle of Q^H X_dot R^-1 determines Q^H Q_dot, and R_dot follows.
        right = triangular_solve(lead, lead_dot)
        inner = matmul(adjoint(q), right)
        if completes:
            # The columns that complete the basis are not determined by x: they turn no more than the others make them.
            inner = concatenate([inner, zeros(get_aval(q).with_shape((*np.shape(x)[:-2], m, m - n)))], last)
        low = tril(inner, -1)
        turn = sub(low, adjoint(low))  # the skew-Hermitian q^H q_dot
        if is_complex(q.dtype):
            diag = mask_matrices(inner, eye_mask(np.shape(inner)))
            turn = add(turn, mul(sub(diag, conj(diag)), q.dtype.type(0.5)))
        if completes:
            q_dot, r_dot = matmul(q, turn), matmul(slice_in_dim(sub(inner, turn), 0, n, axis=last), lead)
        else:
            q_dot, r_dot = add(matmul(q, sub(turn, inner)), right), matmul(sub(inner, turn), lead)
        if n != k:
            rest_dot = slice_in_dim(x_dot, k, n, axis=last)
            rest = slice_in_dim(r, k, n, axis=last)
            rest = sub(matmul(adjoint(q), rest_dot), matmul(turn, rest))
            r_dot = concatenate([r_dot, rest], last)
        return out, [q_dot, r_dot, *map(Zero.like, out[2:])]


def emit_leading(ctx: LoweringContext, x: ir.Value, aval: ShapedArray, dim: int, size: int) -> Any:
    """Emit the first `size` entries along `dim`."""
    if aval.shape[dim] == size:
        return x
    return ctx.inline(lambda x: slice_in_dim(x, 0, size, axis=dim), x, avals=[aval])[0]


qr_p = Qr()


class Geqrf(MatrixPrimitive, name="geqrf", multiple=True):
    """The packed QR decomposition of LAPACK: R with the vectors of the reflectors below it, and their factors."""

    def abstract_eval(self, x):
        check_matrices("lax.linalg.geqrf", x)
        *batch, m, n = x.shape
        return [x.update(weak_type=False), ShapedArray((*batch, min_dim(m, n)), x.dtype)]

    def lower(self, ctx, x):
        return call_kernel(ctx, "geqrf", [x], ctx.avals_in, ctx.avals_out)

    jvp = Undefined("reflectors have no unique derivative; differentiate lax.linalg.qr")


geqrf_p = Geqrf()


class HouseholderProduct(MatrixPrimitive, name="householder_product"):
    """The leading columns of a product of reflectors I - tau v v^H: num[*b, m, n], num[*b, k] -> num[*b, m, n]."""

    def abstract_eval(self, a, taus):
        check_matrices("lax.linalg.householder_product", a)
        *batch, m, n = a.shape
        if taus.dtype != a.dtype or taus.shape[:-1] != tuple(batch) or m < n or taus.shape[-1] > n:
            raise ShapeError(
                "lax.linalg.householder_product operands",
                expected="num[*b, m, n] with m >= n and num[*b, k] with n >= k, of one dtype",
                got=f"{a.str_short()} and {taus.str_short()}",
                fix="pass the reflectors as columns, in the packed form of LAPACK's geqrf",
            )
        return a.update(weak_type=False)

    def lower(self, ctx, a, taus):
        return call_kernel(ctx, "orgqr", [a, taus], ctx.avals_in, ctx.avals_out)[0]

    jvp = Undefined("reflectors have no unique derivative; differentiate lax.linalg.qr")


householder_product_p = HouseholderProduct()


class Ormqr(MatrixPrimitive, name="ormqr"):
    """Multiply `c` by the Q of reflectors, or its adjoint, from the left or the right."""

    def abstract_eval(self, a, taus, c, *, left, transpose):
        check_matrices("lax.linalg.ormqr", a)
        side = c.shape[-2 if left else -1] if c.ndim == a.ndim else None
        if not (
            a.dtype == taus.dtype == c.dtype and side == a.shape[-2] and taus.shape[:-1] == a.shape[:-2] == c.shape[:-2]
        ):
            raise ShapeError(
                "lax.linalg.ormqr operands",
                expected="num[*b, m, n], num[*b, k] and c with m rows (columns if not left), of one dtype",
                got=", ".join(v.str_short() for v in (a, taus, c)),
                fix="pass equal leading dimensions, and left=False if Q multiplies from the right",
            )
        return c.update(weak_type=False)

    def lower(self, ctx, a, taus, c, *, left, transpose):
        a_aval, taus_aval, c_aval = ctx.avals_in
        count = taus_aval.shape[-1]
        # LAPACK reads one column for each factor.
        a = emit_leading(ctx, a, a_aval, -1, count)
        avals = [a_aval.with_shape((*a_aval.shape[:-1], count)), taus_aval, c_aval]
        attributes = {"left": left, "transpose": transpose}
        return call_kernel(ctx, "ormqr", [a, taus, c], avals, [c_aval], cpu=attributes, cuda=attributes)[0]

    def jvp(self, primals, tangents, **params):
        a, taus, c = primals
        if any(type(t) is not Zero for t in tangents[:2]):
            raise RuleError(
                "derivative of lax.linalg.ormqr",
                expected="reflectors without a tangent",
                got="a tangent of a or taus",
                fix="differentiate lax.linalg.qr and multiply by its Q",
            )
        return self(a, taus, c, **params), self(a, taus, tangents[2], **params)

    def transpose(self, y_bar, a, taus, c, *, left, transpose):
        # Only the multiplication of `c` is linear; the reflectors are not differentiable.
        if not is_linear(c):
            return None, None, None
        # The transpose of multiplication by Q is Q^T = conj(Q^H), where `transpose` selects Q^H.
        c_bar = (
            conj(self(a, taus, conj(y_bar), left=left, transpose=not transpose))
            if is_complex(c.dtype)
            else self(a, taus, y_bar, left=left, transpose=not transpose)
        )
        return None, None, c_bar


ormqr_p = Ormqr()


def qr(x: ArrayLike, *, pivoting: bool = False, full_matrices: bool = True, use_magma: bool | None = None) -> tuple:
    """QR decomposition: Q with orthonormal columns and upper triangular R with x = Q R.

    Args:
      x: num[*b, m, n].
      pivoting: whether to permute the columns so that the diagonal of R decreases: x[:, p] = Q R.
      full_matrices: whether Q is square. Otherwise it has min(m, n) columns.
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


def householder_product(a: ArrayLike, taus: ArrayLike) -> Any:
    """Compute the product of elementary reflectors.

    Args:
      a: num[*b, m, n], the vector of each reflector below the diagonal of its column, as in LAPACK's geqrf.
      taus: num[*b, k], the factor of each reflector.

    Returns:
      The first n columns of the product (I - taus[0] v0 v0^H) (I - taus[1] v1 v1^H) ...

    Raises:
      ShapeError: the shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.linalg.householder_product(np.zeros((2, 2), np.float32), np.zeros(2, np.float32)).tolist()
      [[1.0, 0.0], [-0.0, 1.0]]
    """
    return householder_product_p(a, taus)


def ormqr(a: ArrayLike, taus: ArrayLike, c: ArrayLike, *, left: bool = True, transpose: bool = False) -> Any:
    """Multiply matrices by the Q of reflectors without computing Q.

    Args:
      a, taus: the reflectors, as in `householder_product`.
      c: the matrices to multiply.
      left: whether Q multiplies from the left.
      transpose: whether to multiply by the adjoint of Q.

    Returns:
      The product, of the shape of `c`.

    Raises:
      ShapeError: the shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.linalg.ormqr(
      ...     np.zeros((2, 2), np.float32), np.zeros(2, np.float32), np.ones((2, 1), np.float32)
      ... ).tolist()
      [[1.0], [1.0]]
    """
    return ormqr_p(a, taus, c, left=bool(left), transpose=bool(transpose))
