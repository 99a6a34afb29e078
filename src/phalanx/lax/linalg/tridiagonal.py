"""Reduction of Hermitian matrices to real tridiagonal form: `tridiagonal`."""

from __future__ import annotations

from phalanx.core import ShapedArray, Undefined
from phalanx.lax.linalg.library_kernels import call_checked_kernel
from phalanx.lax.linalg.matrix_stacks import MatrixPrimitive, check_matrices, real_of
from phalanx.typing import ArrayLike


class Tridiagonal(MatrixPrimitive, name="tridiagonal", multiple=True):
    """Reduce Hermitian matrices to tridiagonal form: packed reflectors, diagonals, off-diagonals, factors."""

    def abstract_eval(self, a, *, lower):
        check_matrices("lax.linalg.tridiagonal", a, square=True)
        *batch, n, _ = a.shape
        k = max(n - 1, 0)
        out = [a.update(weak_type=False), ShapedArray((*batch, n), real_of(a.dtype))]
        return [*out, ShapedArray((*batch, k), real_of(a.dtype)), ShapedArray((*batch, k), a.dtype)]

    def lower(self, ctx, a, *, lower):
        attributes = {"cpu": {"uplo": "L" if lower else "U"}, "cuda": {"lower": lower}}
        return call_checked_kernel(ctx, "sytrd", [a], ctx.avals_in, ctx.avals_out, **attributes)

    jvp = Undefined("reflectors have no unique derivative; differentiate lax.linalg.eigh")


tridiagonal_p = Tridiagonal()


def tridiagonal(a: ArrayLike, *, lower: bool = True) -> tuple:
    """Reduce Hermitian matrices to real tridiagonal form by a unitary similarity.

    Args:
      a: num[*b, n, n].
      lower: whether the lower triangle is read, and replaced by the reflectors; else the upper one.

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
