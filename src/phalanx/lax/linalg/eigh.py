"""Eigenvalues and eigenvectors of Hermitian matrices: `eigh`.

Called by `phalanx.numpy.linalg` and `phalanx.scipy.linalg`.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from phalanx.core import ArgumentError, RuleError, ShapedArray, get_aval
from phalanx.lax.elementwise import add, convert_element_type, div, mul, real, sub
from phalanx.lax.linalg.library_kernels import call_checked_kernel, unavailable_error
from phalanx.lax.linalg.matrix_stacks import (
    MatrixPrimitive,
    adjoint,
    check_matrices,
    diagonal,
    hermitian_from_lower,
    is_complex,
    matmul,
    real_of,
    symmetrize,
    unit_vectors,
)
from phalanx.lax.shape import broadcast_in_dim
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import ArrayLike


class EighImplementation(enum.Enum):
    """The algorithm of `eigh`: `QR` is divide and conquer, `JACOBI` is for CUDA devices only, `QDWH` is not available.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.linalg.eigh(jnp.eye(2), implementation=EighImplementation.QR)[1].tolist()
      [1.0, 1.0]
    """

    QR = "qr"
    JACOBI = "jacobi"
    QDWH = "qdwh"


# The codes of the algorithms in the kernel for CUDA devices; 0 selects one by the size of the matrices.
_ON_CUDA = {None: 0, EighImplementation.QR: 1, EighImplementation.JACOBI: 2}


class Eigh(MatrixPrimitive, name="eigh", multiple=True):
    """Eigenvectors and ascending eigenvalues of Hermitian matrices, of which one triangle is read.

    Derivative: M. B. Giles, An extended collection of matrix derivative results (2008), section 3.1.
    """

    def abstract_eval(self, x, *, lower, subset_by_index, implementation):
        check_matrices("lax.linalg.eigh", x, square=True)
        *batch, n, _ = x.shape
        start, stop = subset_by_index or (0, n)
        return [ShapedArray((*batch, n, stop - start), x.dtype), ShapedArray((*batch, stop - start), real_of(x.dtype))]

    def lower(self, ctx, x, *, lower, subset_by_index, implementation):
        (aval,) = ctx.avals_in
        values = ShapedArray(aval.shape[:-1], real_of(aval.dtype))
        if implementation not in (_ON_CUDA if ctx.platform == "cuda" else (None, EighImplementation.QR)):
            raise unavailable_error("lax.linalg.eigh", implementation, ctx.platform)
        v, w = call_checked_kernel(
            ctx,
            "syevd",
            [x],
            [aval],
            [aval, values],
            cpu={"uplo": "L" if lower else "U", "mode": "V"},
            cuda={"lower": lower, "algorithm": np.uint8(_ON_CUDA.get(implementation, 0))},
        )
        # The kernels compute all eigenvalues; the range is sliced from the result.
        if subset_by_index is not None:
            v, w = (
                ctx.slice(
                    y, [*[0] * (a.ndim - 1), subset_by_index[0]], [*a.shape[:-1], subset_by_index[1]], [1] * a.ndim, out
                )
                for y, a, out in zip((v, w), (aval, values), ctx.avals_out, strict=True)
            )
        return [v, w]

    def jvp(self, primals, tangents, *, lower, subset_by_index, implementation):
        if subset_by_index is not None:
            raise RuleError(
                "derivative of lax.linalg.eigh",
                expected="subset_by_index=None",
                got=subset_by_index,
                fix="compute all eigenvalues with subset_by_index=None, and slice the result",
            )
        v, w = self(*primals, lower=lower, subset_by_index=None, implementation=implementation)
        x_dot = hermitian_from_lower(tangents[0] if lower else adjoint(tangents[0]))
        # In the eigenbasis the derivative is first-order perturbation theory: W_dot is the diagonal of V^H X_dot V, and
        # V^H V_dot its off-diagonal entries divided by the gaps w[j] - w[i].
        inner = matmul(adjoint(v), matmul(x_dot, v))
        w_dot = diagonal(real(inner) if is_complex(v.dtype) else inner)
        v_dot = matmul(v, mul(convert_element_type(inverse_gaps(w), v.dtype), inner))
        return [v, w], [v_dot, w_dot]


eigh_p = Eigh()


def inverse_gaps(w: ArrayLike) -> Any:
    """1 / (w[j] - w[i]) off the diagonal, 0 on it: num[*b, n] -> num[*b, n, n]."""
    shape = (*np.shape(w), np.shape(w)[-1])
    *batch, rows, columns = range(len(shape))
    gaps = sub(broadcast_in_dim(w, shape, (*batch, columns)), broadcast_in_dim(w, shape, (*batch, rows)))
    # 1 is added to the diagonal before the division and subtracted afterwards, so that no gap of 0 is inverted there.
    one = unit_vectors(ShapedArray(shape, w.dtype))
    return sub(div(w.dtype.type(1), add(gaps, one)), one)


@eager_jit(static_argnames=("lower", "symmetrize_input", "sort_eigenvalues", "subset_by_index", "implementation"))
def eigh(
    x: ArrayLike,
    *,
    lower: bool = True,
    symmetrize_input: bool = True,
    sort_eigenvalues: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    implementation: EighImplementation | None = None,
) -> tuple:
    """Eigenvectors and eigenvalues of Hermitian matrices: x v = v diag(w).

    Args:
      x: num[*b, n, n].
      lower: which triangle is read.
      symmetrize_input: whether to use the Hermitian part of `x`, rather than one triangle.
      sort_eigenvalues: ignored; eigenvalues are always ascending.
      subset_by_index: the range of eigenvalues to return, by index in ascending order; it has no derivative.
      implementation: the algorithm, on backends with several.

    Returns:
      The eigenvectors num[*b, n, n], as columns, then the eigenvalues real[*b, n]. The derivative assumes distinct
      eigenvalues: it is infinite or NaN for the eigenvectors of equal ones.

    Raises:
      ShapeError: the matrices are not square.
      DTypeError: their dtype is not float32, float64, complex64 or complex128.
      ArgumentError: the range is empty or out of bounds.
      RuleError: the platform does not have the algorithm.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> v, w = lax.linalg.eigh(np.diag(np.array([3.0, 1.0], np.float32)))
      >>> w.tolist()
      [1.0, 3.0]
    """
    aval = get_aval(x)
    check_matrices("lax.linalg.eigh", aval, square=True)
    n = aval.shape[-1]
    if subset_by_index is not None:
        start, stop = subset_by_index
        if not 0 <= start < stop <= n:
            raise ArgumentError(
                "lax.linalg.eigh subset_by_index",
                expected=f"0 <= start < stop <= {n}",
                got=subset_by_index,
                fix=f"pass a range of indices from 0 to {n}",
            )
        subset_by_index = None if (start, stop) == (0, n) else (int(start), int(stop))
    x = symmetrize(x) if symmetrize_input else x
    return tuple(eigh_p(x, lower=bool(lower), subset_by_index=subset_by_index, implementation=implementation))
