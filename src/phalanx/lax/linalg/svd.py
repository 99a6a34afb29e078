"""Singular value decomposition: `svd`.

Builds on `matrices`; called by `phalanx.numpy.linalg` and `phalanx.scipy.linalg`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.errors import ArgumentError, RuleError
from phalanx.core.primitive import Primitive
from phalanx.lax.arithmetic import add, div, mul, sub
from phalanx.lax.convert import convert_element_type
from phalanx.lax.linalg.eigh import inverse_gaps
from phalanx.lax.linalg.kernels import info_aval, kernel, nan_where_failed, unavailable
from phalanx.lax.linalg.matrices import (
    adjoint,
    batch_in_front,
    check_matrices,
    diagonal,
    eye_mask,
    is_complex,
    masked,
    matmul,
    real_of,
    scale_columns,
    scale_rows,
    stack_roles,
    unit_vectors,
)
from phalanx.lax.parts import conj, real
from phalanx.lax.slicing import slice_in_dim
from phalanx.symbolic import is_symbolic, min_dim


class SvdAlgorithm(enum.Enum):
    """How `svd` computes: the CPU has divide and conquer (by default) and `QR`, CUDA devices all but the former.

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
# Up to how many rows and columns Jacobi's method is the faster one on CUDA devices, and from how many on its kernel can
# make thin factors.
_JACOBI_UP_TO, _THIN_ABOVE = 1024, 32


class Svd(Primitive, name="svd", multiple=True):
    """Descending singular values, then U and V^H as asked for: x = U diag(s) V^H.

    Derivative: M. B. Giles (2008), section 3.2; J. Townsend, Differentiating the singular value decomposition (2016)
    for rectangular matrices; complex phases as Z.-Q. Wan and S.-X. Zhang (2019), arXiv:1909.02659.
    """

    def result(self, x, *, full_matrices, compute_uv, algorithm):
        check_matrices("lax.linalg.svd", x)
        *batch, m, n = x.shape
        k = min_dim(m, n)
        s = ShapedArray((*batch, k), real_of(x.dtype))
        if not compute_uv:
            return [s]
        inner = (m, n) if full_matrices else (k, k)
        return [s, ShapedArray((*batch, m, inner[0]), x.dtype), ShapedArray((*batch, inner[1], n), x.dtype)]

    def roles(self, x, *, full_matrices, compute_uv, algorithm):
        return stack_roles([x], x.ndim - 2, [x.ndim - 1, *[x.ndim] * (2 * compute_uv)])

    def lower(self, ctx, x, *, full_matrices, compute_uv, algorithm):
        (aval,) = ctx.avals_in
        *batch, m, n = aval.shape
        k = min_dim(m, n)
        if k == 0:
            return [ctx.inline(unit_vectors, avals=[], aval=a)[0] for a in ctx.avals_out]
        num_batch = len(batch)
        if ctx.platform == "cuda":
            return _lower_for_cuda(ctx, x, full_matrices, compute_uv, algorithm)
        s = ctx.avals_out[0]
        if compute_uv:
            u, vh = ctx.avals_out[1:]
        else:
            u, vh = ShapedArray((*batch, m, k), aval.dtype), ShapedArray((*batch, k, n), aval.dtype)
        mode = ("A" if full_matrices else "S") if compute_uv else "N"
        if algorithm not in _ROUTINES:
            raise unavailable("lax.linalg.svd", algorithm, ctx.platform)
        info = info_aval(aval, num_batch)
        _, *out, report = kernel(
            ctx, _ROUTINES[algorithm], [x], [aval], [aval, s, u, vh, info], num_batch, cpu={"mode": mode}
        )
        return nan_where_failed(ctx, report, out[: 1 + 2 * compute_uv], ctx.avals_out, num_batch)

    def jvp(self, primals, tangents, *, full_matrices, compute_uv, algorithm):
        (x,), (x_dot,) = primals, tangents
        m, n = np.shape(x)[-2:]
        if compute_uv and full_matrices and m != n:
            raise RuleError(
                "derivative of lax.linalg.svd",
                expected="full_matrices=False, compute_uv=False, or square matrices",
                got=f"full_matrices=True for {aval_of(x).str_short()}",
                mend="the vectors that complete the basis are not determined by x; use full_matrices=False",
            )
        s, u, vh = self(x, full_matrices=False, compute_uv=True, algorithm=algorithm)
        inner = matmul(adjoint(u), matmul(x_dot, adjoint(vh)))
        s_dot = diagonal(real(inner) if is_complex(x.dtype) else inner)
        if not compute_uv:
            return [s], [s_dot]
        gaps = convert_element_type(inverse_gaps(mul(s, s)), x.dtype)
        mixed, mixed_adjoint = scale_columns(inner, s), scale_columns(adjoint(inner), s)
        u_turn = mul(gaps, add(mixed, scale_rows(adjoint(inner), s)))
        v_turn = mul(gaps, add(scale_rows(inner, s), mixed_adjoint))
        if is_complex(x.dtype):
            diag = masked(inner, eye_mask(np.shape(inner)))
            phase = scale_columns(sub(diag, conj(diag)), div(s.dtype.type(0.5), s))
            u_turn = add(u_turn, phase)
        v = adjoint(vh)
        u_dot, v_dot = matmul(u, u_turn), matmul(v, v_turn)
        inverse = div(s.dtype.type(1), s)
        if is_symbolic(m - n) or m > n:  # u spans only part of its space: add what x_dot has outside
            moved = matmul(x_dot, v)
            u_dot = add(u_dot, scale_columns(sub(moved, matmul(u, inner)), inverse))
        if is_symbolic(m - n) or n > m:
            moved = matmul(adjoint(x_dot), u)
            v_dot = add(v_dot, scale_columns(sub(moved, matmul(v, adjoint(inner))), inverse))
        return [s, u, vh], [s_dot, u_dot, adjoint(v_dot)]

    batch = batch_in_front


svd_p = Svd()


def _lower_for_cuda(ctx: Any, x: Any, full_matrices: bool, compute_uv: bool, algorithm: SvdAlgorithm) -> list:
    """The decomposition by one of cuSOLVER's methods, of which two give V, not its adjoint."""
    (aval,) = ctx.avals_in
    *batch, m, n = aval.shape
    if is_symbolic(m) or is_symbolic(n):
        raise RuleError(
            "lowering of lax.linalg.svd for cuda",
            expected="matrices of a known size, by which cuSOLVER's method is chosen",
            got=aval.str_short(),
            mend="export it for each size, or keep only the batch symbolic",
        )
    if algorithm is SvdAlgorithm.DEFAULT:
        algorithm = SvdAlgorithm.JACOBI if max(m, n) <= _JACOBI_UP_TO else SvdAlgorithm.QR
    if algorithm is SvdAlgorithm.DIVIDE_AND_CONQUER:
        raise unavailable("lax.linalg.svd", algorithm, "cuda")
    num_batch, k, info = len(batch), min(m, n), info_aval(aval, len(batch))
    s = ctx.avals_out[0]
    asked = {"compute_uv": compute_uv, "full_matrices": full_matrices}
    if algorithm is SvdAlgorithm.QR:
        asked["transposed"] = m < n  # the kernel wants no fewer rows than columns
        sizes = ((), ()) if not compute_uv else ((m, m), (n, n)) if full_matrices else ((m, k), (k, n))
        factors = [aval.with_shape((*batch, *size) if size else ()) for size in sizes]
        results = [aval, s, *(factors[::-1] if m < n else factors), info]
        _, *out, report = kernel(ctx, "gesvd", [x], [aval], results, num_batch, cuda=asked, row_major=m < n)
        out = [out[0], *(out[:0:-1] if m < n else out[1:])]
        return nan_where_failed(ctx, report, out[: 1 + 2 * compute_uv], ctx.avals_out, num_batch)
    if algorithm is SvdAlgorithm.JACOBI:
        asked["full_matrices"] = full_matrices = full_matrices or k <= _THIN_ABOVE
    u, v = (aval.with_shape((*batch, d, d if full_matrices else k)) for d in (m, n))
    routine = "gesvdj" if algorithm is SvdAlgorithm.JACOBI else "gesvdp"
    _, *out, report = kernel(ctx, routine, [x], [aval], [aval, s, u, v, info], num_batch, cuda=asked)
    if compute_uv:
        out[1:] = ctx.inline(lambda *factors: _trimmed(factors, ctx.avals_out[1:]), *out[1:], avals=[u, v])
    return nan_where_failed(ctx, report, out[: 1 + 2 * compute_uv], ctx.avals_out, num_batch)


def _trimmed(factors: Sequence, wanted: Sequence[ShapedArray]) -> list:
    """U and V^H in the sizes that were asked for, of U and V."""
    u, vh = factors[0], adjoint(factors[1])
    if np.shape(u) != wanted[0].shape:
        u = slice_in_dim(u, 0, wanted[0].shape[-1], axis=np.ndim(u) - 1)
    if np.shape(vh) != wanted[1].shape:
        vh = slice_in_dim(vh, 0, wanted[1].shape[-2], axis=np.ndim(vh) - 2)
    return [u, vh]


def svd(
    x: Any,
    *,
    full_matrices: bool = True,
    compute_uv: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    algorithm: SvdAlgorithm | None = None,
) -> Any:
    """Singular value decomposition x = U diag(s) V^H, singular values descending.

    Args:
      x: num[*b, m, n].
      full_matrices: make U and V square; otherwise they have min(m, n) columns, and only that form has a derivative if
        m != n.
      compute_uv: whether to return U and V^H.
      subset_by_index: a range of singular values, in descending order, to return alone.
      algorithm: the algorithm, where there are several.

    Returns:
      U, s and V^H; or s alone without `compute_uv`. The derivative is that of simple singular values.

    Raises:
      ShapeError: `x` is no matrix.
      DTypeError: its dtype is not one that LAPACK has.
      ArgumentError: the range is out of bounds.
      RuleError: the platform lacks the algorithm.

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
        k = min(aval_of(x).shape[-2:])
        if not 0 <= start < stop <= k or (full_matrices and compute_uv and (start, stop) != (0, k)):
            raise ArgumentError(
                "lax.linalg.svd subset_by_index",
                expected=f"0 <= start < stop <= {k}, and full_matrices=False",
                got=subset_by_index,
                mend="count singular values from 0",
            )
        subset = None if (start, stop) == (0, k) else (int(start), int(stop))
    out = svd_p(x, full_matrices=bool(full_matrices), compute_uv=bool(compute_uv), algorithm=algorithm)
    if subset is not None:
        ndim = aval_of(x).ndim
        dims = (ndim - 2, ndim - 1, ndim - 2)
        out = [slice_in_dim(y, *subset, axis=d) for y, d in zip(out, dims, strict=False)]
    if not compute_uv:
        return out[0]
    s, u, vh = out
    return u, s, vh
