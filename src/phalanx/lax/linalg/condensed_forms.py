"""Forms that matrices have after a unitary similarity: `hessenberg`, `schur` and, of Hermitian ones, `tridiagonal`.

The forms of general matrices are computed on the CPU only.
"""

from __future__ import annotations

import numpy as np

from phalanx.core import ArgumentError, RuleError, ShapedArray, Undefined, get_aval
from phalanx.lax.linalg.library_kernels import call_checked_kernel
from phalanx.lax.linalg.matrix_stacks import INT32, MatrixPrimitive, check_matrices, is_complex, real_of
from phalanx.symbolic import is_symbolic
from phalanx.typing import ArrayLike


class Hessenberg(MatrixPrimitive, name="hessenberg", multiple=True):
    """Reduce general matrices to Hessenberg form by Householder reflectors, in the packed form of LAPACK."""

    def abstract_eval(self, a):
        check_matrices("lax.linalg.hessenberg", a, square=True)
        return [a.update(weak_type=False), ShapedArray((*a.shape[:-2], max(a.shape[-1] - 1, 0)), a.dtype)]

    def lower(self, ctx, a):
        (aval,) = ctx.avals_in
        n = aval.shape[-1]
        # The routine works on rows and columns low to high, which are attributes of the call.
        if is_symbolic(n):
            raise RuleError(
                "lowering of lax.linalg.hessenberg",
                expected="matrices of a static size, which is an attribute of the LAPACK call",
                got=aval.str_short(),
                fix="export the program for each size, or make only the batch dimensions symbolic",
            )
        attributes = {"low": np.int32(1), "high": np.int32(n)}
        return call_checked_kernel(ctx, "gehrd", [a], [aval], ctx.avals_out, cpu=attributes)

    jvp = Undefined("reflectors have no unique derivative; differentiate lax.linalg.eig")


hessenberg_p = Hessenberg()


class Schur(MatrixPrimitive, name="schur", multiple=True):
    """The Schur form T, and if requested the unitary Q with x = Q T Q^H."""

    def abstract_eval(self, x, *, vectors):
        check_matrices("lax.linalg.schur", x, square=True)
        return [x.update(weak_type=False)] * (1 + vectors)

    def lower(self, ctx, x, *, vectors):
        (aval,) = ctx.avals_in
        # Real routines return real and imaginary parts of the eigenvalues separately. The number of sorted eigenvalues
        # follows, which is 0 without sorting.
        numbers = [ShapedArray(aval.shape[:-1], aval.dtype)] * (1 if is_complex(aval.dtype) else 2)
        results = [aval, aval, *numbers, ShapedArray(aval.shape[:-2], INT32)]
        attributes = {"mode": "V" if vectors else "N", "sort": "N"}
        return call_checked_kernel(ctx, "gees", [x], [aval], results, kept=slice(1 + vectors), cpu=attributes)

    jvp = Undefined("the Schur form is not differentiable where eigenvalues coincide; differentiate lax.linalg.eig")


schur_p = Schur()


def hessenberg(a: ArrayLike) -> tuple:
    """Reduce matrices to upper Hessenberg form by a unitary similarity.

    Args:
      a: num[*b, n, n].

    Returns:
      The Hessenberg form with the reflectors below its subdiagonal, num[*b, n, n], and their factors num[*b, n - 1].

    Raises:
      ShapeError: the matrices are not square.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.linalg.hessenberg(np.eye(2, dtype=np.float32))[0].tolist()
      [[1.0, 0.0], [0.0, 1.0]]
    """
    return tuple(hessenberg_p(a))


def schur(
    x: ArrayLike, *, compute_schur_vectors: bool = True, sort_eig_vals: bool = False, select_callable: None = None
) -> tuple:
    """Schur decomposition x = Q T Q^H.

    Args:
      x: num[*b, n, n].
      compute_schur_vectors: whether to return Q.
      sort_eig_vals, select_callable: must be False and None; sorting the eigenvalues is not supported.

    Returns:
      T, which is upper triangular (for real `x` with 2 by 2 blocks for pairs of complex eigenvalues), then Q.

    Raises:
      ShapeError: the matrices are not square.
      ArgumentError: sorting is requested.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.linalg.schur(np.eye(2, dtype=np.float32))[0].tolist()
      [[1.0, 0.0], [0.0, 1.0]]
    """
    if sort_eig_vals or select_callable is not None:
        raise ArgumentError(
            "lax.linalg.schur sort_eig_vals",
            expected="False, and select_callable=None",
            got=f"{sort_eig_vals}, {select_callable}",
            fix=f"sort the eigenvalues of {get_aval(x).str_short()} with lax.linalg.eig",
        )
    return tuple(schur_p(x, vectors=bool(compute_schur_vectors)))


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
