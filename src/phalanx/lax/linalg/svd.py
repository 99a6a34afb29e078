"""Singular value decomposition: `svd`.

Called by `phalanx.numpy.linalg` and `phalanx.scipy.linalg`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core import ArgumentError, RuleError, ShapedArray, get_aval
from phalanx.engine.mlir import ir
from phalanx.lax.elementwise import add, conj, convert_element_type, div, mul, real, sub
from phalanx.lax.indexing.static_slice import slice_in_dim
from phalanx.lax.linalg.eigh import inverse_gaps
from phalanx.lax.linalg.library_kernels import call_checked_kernel, unavailable_error
from phalanx.lax.linalg.matrix_stacks import (
    MatrixPrimitive,
    adjoint,
    check_matrices,
    diagonal,
    eye_mask,
    is_complex,
    mask_matrices,
    matmul,
    real_of,
    scale_columns,
    scale_rows,
    unit_vectors,
)
from phalanx.runtime.lowering import LoweringContext
from phalanx.symbolic import is_symbolic, min_dim
from phalanx.typing import ArrayLike


class SvdAlgorithm(enum.Enum):
    """The algorithm of `svd`: divide and conquer (the default) or `QR` on the CPU; all others on CUDA devices.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.linalg.svd(jnp.eye(2), compute_uv=False, algorithm=SvdAlgorithm.QR).tolist()
      [1.0, 1.0]
    """

    DEFAULT = "default"
    QR = "QR"
    JACOBI = "Jacobi"
    POLAR = "polar"
    DIVIDE_AND_CONQUER = "divide_and_conquer"


_ROUTINES = {SvdAlgorithm.DEFAULT: "gesdd", SvdAlgorithm.DIVIDE_AND_CONQUER: "gesdd", SvdAlgorithm.QR: "gesvd"}
# On CUDA devices, Jacobi's method is faster up to this number of rows and columns, and its kernel computes thin factors
# only above this number.
_JACOBI_UP_TO, _THIN_ABOVE = 1024, 32


class Svd(MatrixPrimitive, name="svd", multiple=True):
    """Descending singular values, then U and V^H if requested: x = U diag(s) V^H.

    Derivative: M. B. Giles (2008), section 3.2; J. Townsend, Differentiating the singular value decomposition (2016)
    for rectangular matrices; complex phases as Z.-Q. Wan and S.-X. Zhang (2019), arXiv:1909.02659.
    """

    def abstract_eval(self, x, *, full_matrices, compute_uv, algorithm):
        check_matrices("lax.linalg.svd", x)
        *batch, m, n = x.shape
        k = min_dim(m, n)
        s = ShapedArray((*batch, k), real_of(x.dtype))
        if not compute_uv:
            return [s]
        inner = (m, n) if full_matrices else (k, k)
        return [s, ShapedArray((*batch, m, inner[0]), x.dtype), ShapedArray((*batch, inner[1], n), x.dtype)]

    def lower(self, ctx, x, *, full_matrices, compute_uv, algorithm):
        (aval,) = ctx.avals_in
        *batch, m, n = aval.shape
        k = min_dim(m, n)
        if k == 0:
            return [ctx.inline(unit_vectors, avals=[], aval=a)[0] for a in ctx.avals_out]
        if ctx.platform == "cuda":
            return _lower_for_cuda(ctx, x, full_matrices, compute_uv, algorithm)
        if algorithm not in _ROUTINES:
            raise unavailable_error("lax.linalg.svd", algorithm, ctx.platform)
        factors = [ShapedArray((*batch, m, k), aval.dtype), ShapedArray((*batch, k, n), aval.dtype)]
        return call_checked_kernel(
            ctx,
            _ROUTINES[algorithm],
            [x],
            [aval],
            [aval, *(ctx.avals_out if compute_uv else [*ctx.avals_out, *factors])],
            kept=slice(1, 2 + 2 * compute_uv),
            cpu={"mode": ("A" if full_matrices else "S") if compute_uv else "N"},
        )

    def jvp(self, primals, tangents, *, full_matrices, compute_uv, algorithm):
        (x,), (x_dot,) = primals, tangents
        m, n = np.shape(x)[-2:]
        if compute_uv and full_matrices and m != n:
            raise RuleError(
                "derivative of lax.linalg.svd",
                expected="full_matrices=False, compute_uv=False, or square matrices",
                got=f"full_matrices=True for {get_aval(x).str_short()}",
                fix="pass full_matrices=False; the vectors that complete the basis are not determined by x",
            )
        s, u, vh = self(x, full_matrices=False, compute_uv=True, algorithm=algorithm)
        # With P = U^H X_dot V, S_dot is the real diagonal of P. The rotations U^H U_dot and V^H V_dot are anti-
        # Hermitian, and solve the off-diagonal equations of P with the differences of the squared singular values as
        # denominators.
        inner = matmul(adjoint(u), matmul(x_dot, adjoint(vh)))
        s_dot = diagonal(real(inner) if is_complex(x.dtype) else inner)
        if not compute_uv:
            return [s], [s_dot]
        gaps = convert_element_type(inverse_gaps(mul(s, s)), x.dtype)
        u_turn = mul(gaps, add(scale_columns(inner, s), scale_rows(adjoint(inner), s)))
        v_turn = mul(gaps, add(scale_rows(inner, s), scale_columns(adjoint(inner), s)))
        if is_complex(x.dtype):
            diag = mask_matrices(inner, eye_mask(np.shape(inner)))
            # The imaginary diagonal of P rotates the phases of U and V together; the gauge assigns all of it to U.
            u_turn = add(u_turn, scale_columns(sub(diag, conj(diag)), div(s.dtype.type(0.5), s)))
        v = adjoint(vh)
        u_dot, v_dot = matmul(u, u_turn), matmul(v, v_turn)
        inverse = div(s.dtype.type(1), s)
        # For m > n, the component of U_dot outside the span of U is (I - U U^H) X_dot V S^-1.
        if is_symbolic(m - n) or m > n:  # u spans only part of its space: add the component of x_dot outside
            u_dot = add(u_dot, scale_columns(sub(matmul(x_dot, v), matmul(u, inner)), inverse))
        if is_symbolic(m - n) or n > m:
            outside = sub(matmul(adjoint(x_dot), u), matmul(v, adjoint(inner)))
            v_dot = add(v_dot, scale_columns(outside, inverse))
        return [s, u, vh], [s_dot, u_dot, adjoint(v_dot)]


svd_p = Svd()


def _lower_for_cuda(
    ctx: LoweringContext, x: ir.Value, full_matrices: bool, compute_uv: bool, algorithm: SvdAlgorithm
) -> list:
    """Lower `svd` to one of cuSOLVER's methods; `gesvdj` and `gesvdp` return V rather than its adjoint."""
    (aval,) = ctx.avals_in
    *batch, m, n = aval.shape
    if is_symbolic(m) or is_symbolic(n):
        raise RuleError(
            "lowering of lax.linalg.svd for cuda",
            expected="matrices of a static size, by which the cuSOLVER routine is chosen",
            got=aval.str_short(),
            fix="export the program for each size, or make only the batch dimensions symbolic",
        )
    if algorithm is SvdAlgorithm.DEFAULT:
        algorithm = SvdAlgorithm.JACOBI if max(m, n) <= _JACOBI_UP_TO else SvdAlgorithm.QR
    if algorithm is SvdAlgorithm.DIVIDE_AND_CONQUER:
        raise unavailable_error("lax.linalg.svd", algorithm, "cuda")
    k, kept = min(m, n), slice(1, 2 + 2 * compute_uv)
    attributes = {"compute_uv": compute_uv, "full_matrices": full_matrices}
    if algorithm is SvdAlgorithm.QR:
        attributes["transposed"] = m < n  # the kernel requires at least as many rows as columns
        # A wide matrix is passed as its transpose, by its layout; the roles of U and V are exchanged.
        sizes = ((), ()) if not compute_uv else ((m, m), (n, n)) if full_matrices else ((m, k), (k, n))
        factors = [aval.with_shape((*batch, *size) if size else ()) for size in sizes]
        results = [aval, ctx.avals_out[0], *(factors[::-1] if m < n else factors)]
        s, *vectors = call_checked_kernel(
            ctx, "gesvd", [x], [aval], results, kept=kept, cuda=attributes, row_major=m < n
        )
        return [s, *(vectors[::-1] if m < n else vectors)]
    if algorithm is SvdAlgorithm.JACOBI:
        attributes["full_matrices"] = full_matrices = full_matrices or k <= _THIN_ABOVE
    u, v = (aval.with_shape((*batch, d, d if full_matrices else k)) for d in (m, n))
    routine = "gesvdj" if algorithm is SvdAlgorithm.JACOBI else "gesvdp"
    results = [aval, ctx.avals_out[0], u, v]
    out = call_checked_kernel(ctx, routine, [x], [aval], results, kept=kept, cuda=attributes)
    if compute_uv:
        out[1:] = ctx.inline(lambda *factors: _trim(factors, ctx.avals_out[1:]), *out[1:], avals=[u, v])
    return out


def _trim(factors: Sequence, wanted: Sequence[ShapedArray]) -> list:
    """Trim U and V to the requested sizes, and return U and V^H."""
    u, vh = factors[0], adjoint(factors[1])
    u = slice_in_dim(u, 0, wanted[0].shape[-1], axis=np.ndim(u) - 1) if np.shape(u) != wanted[0].shape else u
    if np.shape(vh) != wanted[1].shape:
        vh = slice_in_dim(vh, 0, wanted[1].shape[-2], axis=np.ndim(vh) - 2)
    return [u, vh]


def svd(
    x: ArrayLike,
    *,
    full_matrices: bool = True,
    compute_uv: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    algorithm: SvdAlgorithm | None = None,
) -> Any:
    """Singular value decomposition x = U diag(s) V^H, singular values descending.

    Args:
      x: num[*b, m, n].
      full_matrices: whether U and V are square. Otherwise they have min(m, n) columns; only this form is differentiable
        for m != n.
      compute_uv: whether to return U and V^H.
      subset_by_index: the range of singular values to return, by index in descending order.
      algorithm: the algorithm; the default of the platform if None.

    Returns:
      U, s and V^H; or s alone without `compute_uv`. The derivative assumes distinct singular values.

    Raises:
      ShapeError: `x` is not a matrix.
      DTypeError: its dtype is not float32, float64, complex64 or complex128.
      ArgumentError: the range is out of bounds.
      RuleError: the platform does not have the algorithm.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.linalg.svd(np.diag(np.array([1.0, 3.0], np.float32)), compute_uv=False).tolist()
      [3.0, 1.0]
    """
    algorithm = SvdAlgorithm.DEFAULT if algorithm is None else algorithm
    subset = None
    if subset_by_index is not None:
        start, stop = subset_by_index
        k = min(get_aval(x).shape[-2:])
        if not 0 <= start < stop <= k or (full_matrices and compute_uv and (start, stop) != (0, k)):
            raise ArgumentError(
                "lax.linalg.svd subset_by_index",
                expected=f"0 <= start < stop <= {k}, and full_matrices=False",
                got=subset_by_index,
                fix=f"pass a range of indices from 0 to {k}, and full_matrices=False",
            )
        subset = None if (start, stop) == (0, k) else (int(start), int(stop))
    out = svd_p(x, full_matrices=bool(full_matrices), compute_uv=bool(compute_uv), algorithm=algorithm)
    # The routines compute all singular values; the range is sliced from the result.
    if subset is not None:
        ndim = get_aval(x).ndim
        dims = (ndim - 2, ndim - 1, ndim - 2)
        out = [slice_in_dim(y, *subset, axis=d) for y, d in zip(out, dims, strict=False)]
    if not compute_uv:
        return out[0]
    s, u, vh = out
    return u, s, vh
