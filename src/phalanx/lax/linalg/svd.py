"""Singular value decomposition: `svd`.

Builds on `matrices`; called by `phalanx.numpy.linalg` and `phalanx.scipy.linalg`.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.errors import ArgumentError, RuleError
from phalanx.core.primitive import Primitive
from phalanx.lax.arithmetic import add, div, mul, sub
from phalanx.lax.broadcast import broadcast_in_dim, zeros
from phalanx.lax.convert import convert_element_type
from phalanx.lax.linalg.eigh import inverse_gaps
from phalanx.lax.linalg.matrices import (
    adjoint,
    batch_in_front,
    check_matrices,
    diagonal,
    eye_mask,
    info_aval,
    is_complex,
    lapack,
    masked,
    matmul,
    nan_where_failed,
    real_of,
    scale_columns,
    scale_rows,
    stack_roles,
)
from phalanx.lax.parts import conj, real
from phalanx.symbolic import is_symbolic, min_dim


class SvdAlgorithm(enum.Enum):
    """How `svd` computes: LAPACK's divide and conquer by default, its QR iteration, or what other backends have."""

    DEFAULT = "default"
    QR = "qr"
    JACOBI = "jacobi"
    POLAR = "polar"


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
            return [ctx.inline(_basis, avals=[], shape=a.shape, dtype=a.dtype)[0] for a in ctx.avals_out]
        num_batch = len(batch)
        s = ctx.avals_out[0]
        if compute_uv:
            u, vh = ctx.avals_out[1:]
        else:
            u, vh = ShapedArray((*batch, m, k), aval.dtype), ShapedArray((*batch, k, n), aval.dtype)
        mode = ("A" if full_matrices else "S") if compute_uv else "N"
        routine = "gesvd" if algorithm is SvdAlgorithm.QR else "gesdd"
        _, *out, report = lapack(
            ctx, routine, [x], [aval], [aval, s, u, vh, info_aval(aval, num_batch)], num_batch, mode=mode
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


def _basis(shape: tuple, dtype: Any) -> Any:
    """What LAPACK will not make for matrices without rows or columns: unit vectors, and no singular values."""
    if len(shape) < 2 or 0 in shape:
        return zeros(ShapedArray(shape, dtype))
    return masked(broadcast_in_dim(dtype.type(1), shape, ()), eye_mask(shape))


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
      ArgumentError: the range is out of bounds, or the CPU lacks the algorithm.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.linalg.svd(np.diag(np.array([1.0, 3.0], np.float32)), compute_uv=False).tolist()
      [3.0, 1.0]
    """
    algorithm = SvdAlgorithm.DEFAULT if algorithm is None else algorithm
    if algorithm not in (SvdAlgorithm.DEFAULT, SvdAlgorithm.QR):
        raise ArgumentError(
            "lax.linalg.svd algorithm",
            expected="SvdAlgorithm.DEFAULT or SvdAlgorithm.QR",
            got=algorithm,
            mend="leave it out",
        )
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
        from phalanx.lax.slicing import slice_in_dim

        ndim = aval_of(x).ndim
        dims = (ndim - 2, ndim - 1, ndim - 2)
        out = [slice_in_dim(y, *subset, axis=d) for y, d in zip(out, dims, strict=False)]
    if not compute_uv:
        return out[0]
    s, u, vh = out
    return u, s, vh
