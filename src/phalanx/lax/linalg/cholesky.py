"""Cholesky factorization: `cholesky` and `cholesky_update`."""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.core import ShapeError, Undefined, add_tangents, get_aval
from phalanx.engine.mlir import hlo
from phalanx.lax.elementwise import conj, mul, real, sign
from phalanx.lax.linalg.library_kernels import call_checked_kernel, emit_triangle
from phalanx.lax.linalg.matrix_stacks import (
    MatrixPrimitive,
    check_matrices,
    diagonal,
    eye_mask,
    hermitian_from_lower,
    is_complex,
    mask_matrices,
    matmul,
    scale_rows,
    symmetrize,
    tril,
)
from phalanx.lax.linalg.qr import qr
from phalanx.lax.linalg.triangular_solve import triangular_solve
from phalanx.lax.shape import reshape
from phalanx.lax.shape.concatenate import concatenate
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import ArrayLike


class Cholesky(MatrixPrimitive, name="cholesky"):
    """The lower triangular L with L L^H = x, of which the lower triangle is read.

    Derivative: I. Murray, Differentiation of the Cholesky decomposition (2016), arXiv:1602.07527, section 3.1.
    """

    def abstract_eval(self, x):
        check_matrices("lax.linalg.cholesky", x, square=True)
        return x.update(weak_type=False)

    def lower(self, ctx, x):
        (aval,) = ctx.avals_in
        if ctx.platform in ("cpu", "cuda"):
            attributes = {"cpu": {"uplo": "L"}, "cuda": {"lower": True}}
            (factor,) = call_checked_kernel(ctx, "potrf", [x], [aval], [aval], **attributes)
        else:
            factor = hlo.cholesky(x, lower=True)
        # The kernel works in place, so the other triangle still contains elements of `x`.
        return emit_triangle(ctx, factor, aval, lower=True)

    def jvp(self, primals, tangents):
        factor = self(*primals)
        x_dot = hermitian_from_lower(tangents[0])
        # L_dot = L Phi(L^-1 X_dot L^-H), where Phi takes the lower triangle and halves the diagonal.
        inner = triangular_solve(factor, x_dot, left_side=False, lower=True, transpose_a=True, conjugate_a=True)
        inner = triangular_solve(factor, inner, left_side=True, lower=True)
        half = mul(mask_matrices(inner, eye_mask(np.shape(inner))), inner.dtype.type(0.5))
        return factor, matmul(factor, add_tangents(tril(inner, -1), half))

    transpose = Undefined("the factorization is not linear, so that only its linearization has a transpose")


cholesky_p = Cholesky()


@eager_jit(static_argnames=("symmetrize_input",))
def cholesky(x: ArrayLike, *, symmetrize_input: bool = True) -> Any:
    """Cholesky factorization x = L L^H of Hermitian positive-definite matrices: num[*b, n, n] -> num[*b, n, n].

    Args:
      x: a matrix or batched matrices.
      symmetrize_input: whether to use the Hermitian part of `x`, rather than its lower triangle.

    Returns:
      The lower triangular factor; NaN where a matrix is not positive definite.

    Raises:
      ShapeError: the matrices are not square.
      DTypeError: their dtype is not float32, float64, complex64 or complex128.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.linalg.cholesky(np.array([[4.0, 2.0], [2.0, 2.0]], np.float32)).tolist()
      [[2.0, 0.0], [1.0, 1.0]]
    """
    check_matrices("lax.linalg.cholesky", get_aval(x), square=True)
    return cholesky_p(symmetrize(x) if symmetrize_input else x)


@eager_jit(static_argnames=())
def cholesky_update(r_matrix: ArrayLike, w_vector: ArrayLike) -> Any:
    """Update a Cholesky factor by a rank-one matrix: upper triangular R' with R'^H R' = R^H R + w w^H.

    Args:
      r_matrix: num[*b, n, n], upper triangular with a positive diagonal.
      w_vector: num[*b, n].

    Returns:
      The new upper triangular factor, with a positive diagonal.

    Raises:
      ShapeError: the shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.linalg.cholesky_update(np.eye(1, dtype=np.float32) * 3, np.array([4.0], np.float32)).tolist()
      [[5.0]]
    """

    r, w = get_aval(r_matrix), get_aval(w_vector)
    check_matrices("lax.linalg.cholesky_update", r, square=True)
    if w.shape != r.shape[:-1] or w.dtype != r.dtype:
        raise ShapeError(
            "lax.linalg.cholesky_update operands",
            expected="num[*b, n, n] and num[*b, n] of one dtype",
            got=f"{r.str_short()} and {w.str_short()}",
            fix="pass a vector of length n for each n by n matrix",
        )
    # The R factor of [R; w^H] is the updated factor, up to the signs of its rows.
    # The n rotations of the classical algorithm would take fewer operations, but one after the other; QR is one kernel
    # call.
    row = reshape(conj(w_vector) if is_complex(w.dtype) else w_vector, (*w.shape[:-1], 1, w.shape[-1]))
    _, updated = qr(concatenate([r_matrix, row], r.ndim - 2), full_matrices=False)
    return scale_rows(updated, sign(real(diagonal(updated)) if is_complex(r.dtype) else diagonal(updated)))
