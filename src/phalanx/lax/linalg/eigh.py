"""Eigenvalues of Hermitian matrices: `eigh`, and the reduction to tridiagonal form.

Builds on `matrices`; called by `phalanx.numpy.linalg` and `phalanx.scipy.linalg`.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.errors import ArgumentError, RuleError
from phalanx.core.primitive import Primitive, Undefined
from phalanx.lax.arithmetic import add, div, mul, sub
from phalanx.lax.broadcast import broadcast_in_dim
from phalanx.lax.convert import convert_element_type
from phalanx.lax.linalg.kernels import info_aval, kernel, nan_where_failed, unavailable
from phalanx.lax.linalg.matrices import (
    adjoint,
    batch_in_front,
    check_matrices,
    diagonal,
    eye_mask,
    hermitian_from_lower,
    is_complex,
    masked,
    matmul,
    real_of,
    stack_roles,
    symmetrized,
)
from phalanx.lax.parts import real
from phalanx.runtime.dispatch import eager_program


class EighImplementation(enum.Enum):
    """How `eigh` computes: `QR` is divide and conquer everywhere, `JACOBI` on CUDA devices only; nobody has `QDWH`.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.linalg.eigh(jnp.eye(2), implementation=EighImplementation.QR)[1].tolist()
      [1.0, 1.0]
    """

    QR = "qr"
    JACOBI = "jacobi"
    QDWH = "qdwh"


# The numbers that the kernel for CUDA devices knows algorithms by; left to itself, it goes by the matrices' size.
_ON_CUDA = {None: 0, EighImplementation.QR: 1, EighImplementation.JACOBI: 2}


class Eigh(Primitive, name="eigh", multiple=True):
    """Eigenvectors and ascending eigenvalues of Hermitian matrices of which one triangle is read.

    Derivative: M. B. Giles, An extended collection of matrix derivative results (2008), section 3.1.
    """

    def result(self, x, *, lower, subset_by_index, implementation):
        check_matrices("lax.linalg.eigh", x, square=True)
        *batch, n, _ = x.shape
        start, stop = subset_by_index or (0, n)
        return [ShapedArray((*batch, n, stop - start), x.dtype), ShapedArray((*batch, stop - start), real_of(x.dtype))]

    def roles(self, x, *, lower, subset_by_index, implementation):
        return stack_roles([x], x.ndim - 2, [x.ndim, x.ndim - 1])

    def lower(self, ctx, x, *, lower, subset_by_index, implementation):
        (aval,) = ctx.avals_in
        num_batch = aval.ndim - 2
        values = ShapedArray(aval.shape[:-1], real_of(aval.dtype))
        info = info_aval(aval, num_batch)
        if implementation not in (_ON_CUDA if ctx.platform == "cuda" else (None, EighImplementation.QR)):
            raise unavailable("lax.linalg.eigh", implementation, ctx.platform)
        v, w, report = kernel(
            ctx, "syevd", [x], [aval], [aval, values, info], num_batch,
            cpu={"uplo": "L" if lower else "U", "mode": "V"},
            cuda={"lower": lower, "algorithm": np.uint8(_ON_CUDA.get(implementation, 0))},
        )  # fmt: skip
        v, w = nan_where_failed(ctx, report, [v, w], [aval, values], num_batch)
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
                mend="compute all eigenvalues and slice the result",
            )
        v, w = self(*primals, lower=lower, subset_by_index=None, implementation=implementation)
        x_dot = tangents[0] if lower else adjoint(tangents[0])
        x_dot = hermitian_from_lower(x_dot)
        inner = matmul(adjoint(v), matmul(x_dot, v))
        w_dot = diagonal(real(inner) if is_complex(v.dtype) else inner)
        v_dot = matmul(v, mul(convert_element_type(inverse_gaps(w), v.dtype), inner))
        return [v, w], [v_dot, w_dot]

    batch = batch_in_front


eigh_p = Eigh()


def inverse_gaps(w: Any) -> Any:
    """1 / (w[j] - w[i]) off the diagonal, 0 on it: num[*b, n] -> num[*b, n, n]."""
    shape = (*np.shape(w), np.shape(w)[-1])
    ndim = len(shape)
    batch = tuple(range(ndim - 2))
    gaps = sub(broadcast_in_dim(w, shape, (*batch, ndim - 1)), broadcast_in_dim(w, shape, (*batch, ndim - 2)))
    one = masked(broadcast_in_dim(w.dtype.type(1), shape, ()), eye_mask(shape))
    return sub(div(w.dtype.type(1), add(gaps, one)), one)


class Tridiagonal(Primitive, name="tridiagonal", multiple=True):
    """Hermitian matrices reduced to tridiagonal ones by reflectors: packed form, diagonals, off-diagonals, factors."""

    def result(self, a, *, lower):
        check_matrices("lax.linalg.tridiagonal", a, square=True)
        *batch, n, _ = a.shape
        k = max(n - 1, 0)
        out = [a.update(weak_type=False), ShapedArray((*batch, n), real_of(a.dtype))]
        return [*out, ShapedArray((*batch, k), real_of(a.dtype)), ShapedArray((*batch, k), a.dtype)]

    def roles(self, a, *, lower):
        return stack_roles([a], a.ndim - 2, [a.ndim, *[a.ndim - 1] * 3])

    def lower(self, ctx, a, *, lower):
        (aval,) = ctx.avals_in
        num_batch = aval.ndim - 2
        results = [*ctx.avals_out, info_aval(aval, num_batch)]
        asked = {"cpu": {"uplo": "L" if lower else "U"}, "cuda": {"lower": lower}}
        *out, report = kernel(ctx, "sytrd", [a], [aval], results, num_batch, **asked)
        return nan_where_failed(ctx, report, out, ctx.avals_out, num_batch)

    jvp = Undefined("reflectors are an intermediate form; differentiate lax.linalg.eigh")
    batch = batch_in_front


tridiagonal_p = Tridiagonal()


@eager_program(static_argnames=("lower", "symmetrize_input", "sort_eigenvalues", "subset_by_index", "implementation"))
def eigh(
    x: Any,
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
      symmetrize_input: take the Hermitian part of `x`; otherwise one triangle stands for the whole.
      sort_eigenvalues: eigenvalues are ascending in any case.
      subset_by_index: a range of eigenvalues, counted in ascending order; no derivative.
      implementation: the algorithm, where a backend has several.

    Returns:
      The eigenvectors num[*b, n, n], as columns, then the eigenvalues real[*b, n]. The derivative is that of simple
      eigenvalues: infinite or NaN for eigenvectors of equal ones.

    Raises:
      ShapeError: the matrices are not square.
      DTypeError: their dtype is not one that LAPACK has.
      ArgumentError: the range is empty or out of bounds.
      RuleError: the platform lacks the algorithm.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> v, w = lax.linalg.eigh(np.diag(np.array([3.0, 1.0], np.float32)))
      >>> w.tolist()
      [1.0, 3.0]
    """
    aval = aval_of(x)
    check_matrices("lax.linalg.eigh", aval, square=True)
    n = aval.shape[-1]
    if subset_by_index is not None:
        start, stop = subset_by_index
        if not 0 <= start < stop <= n:
            raise ArgumentError(
                "lax.linalg.eigh subset_by_index",
                expected=f"0 <= start < stop <= {n}",
                got=subset_by_index,
                mend="count the eigenvalues from 0",
            )
        subset_by_index = None if (start, stop) == (0, n) else (int(start), int(stop))
    x = symmetrized(x) if symmetrize_input else x
    v, w = eigh_p(x, lower=bool(lower), subset_by_index=subset_by_index, implementation=implementation)
    return v, w


def tridiagonal(a: Any, *, lower: bool = True) -> tuple:
    """Reduce Hermitian matrices to real tridiagonal form by a unitary similarity.

    Args:
      a: num[*b, n, n].
      lower: which triangle is read, and holds the reflectors in the result.

    Returns:
      The packed reflectors num[*b, n, n], the diagonal real[*b, n], the off-diagonal real[*b, n - 1], and the factors
      of the reflectors num[*b, n - 1].

    Raises:
      ShapeError: the matrices are not square.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.linalg.tridiagonal(np.diag(np.array([3.0, 1.0], np.float32)))[1].tolist()
      [3.0, 1.0]
    """
    return tuple(tridiagonal_p(a, lower=bool(lower)))
