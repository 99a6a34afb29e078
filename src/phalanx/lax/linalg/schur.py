"""Hessenberg and Schur forms of general matrices: `hessenberg` and `schur`, on the CPU only."""

from __future__ import annotations

import numpy as np

from phalanx.core import ArgumentError, Primitive, RuleError, ShapedArray, Undefined, get_aval
from phalanx.lax.linalg.library_kernels import call_kernel, info_aval, nan_where_failed
from phalanx.lax.linalg.matrix_stacks import batch_in_front, check_matrices, is_complex, stack_sharding_rule
from phalanx.symbolic import is_symbolic
from phalanx.typing import ArrayLike


class Hessenberg(Primitive, name="hessenberg", multiple=True):
    """Reduce general matrices to Hessenberg form by Householder reflectors, in the packed form of LAPACK."""

    def abstract_eval(self, a):
        check_matrices("lax.linalg.hessenberg", a, square=True)
        return [a.update(weak_type=False), ShapedArray((*a.shape[:-2], max(a.shape[-1] - 1, 0)), a.dtype)]

    def sharding_rule(self, a):
        return stack_sharding_rule([a], a.ndim - 2, [a.ndim, a.ndim - 1])

    def lower(self, ctx, a):
        (aval,) = ctx.avals_in
        num_batch, n = aval.ndim - 2, aval.shape[-1]
        # The routine works on rows and columns low to high, which are attributes of the call.
        if is_symbolic(n):
            raise RuleError(
                "lowering of lax.linalg.hessenberg",
                expected="matrices of a static size, which is an attribute of the LAPACK call",
                got=aval.str_short(),
                fix="export the program for each size, or make only the batch dimensions symbolic",
            )
        results = [*ctx.avals_out, info_aval(aval, num_batch)]
        attributes = {"low": np.int32(1), "high": np.int32(n)}
        *out, report = call_kernel(ctx, "gehrd", [a], [aval], results, num_batch, cpu=attributes)
        return nan_where_failed(ctx, report, out, ctx.avals_out, num_batch)

    jvp = Undefined("reflectors have no unique derivative; differentiate lax.linalg.eig")
    batch = batch_in_front


hessenberg_p = Hessenberg()


class Schur(Primitive, name="schur", multiple=True):
    """The Schur form T, and if requested the unitary Q with x = Q T Q^H."""

    def abstract_eval(self, x, *, vectors):
        check_matrices("lax.linalg.schur", x, square=True)
        return [x.update(weak_type=False)] * (1 + vectors)

    def sharding_rule(self, x, *, vectors):
        return stack_sharding_rule([x], x.ndim - 2, [x.ndim] * (1 + vectors))

    def lower(self, ctx, x, *, vectors):
        (aval,) = ctx.avals_in
        num_batch = aval.ndim - 2
        # Real routines return real and imaginary parts of the eigenvalues separately.
        numbers = [ShapedArray(aval.shape[:-1], aval.dtype)] * (1 if is_complex(aval.dtype) else 2)
        info = info_aval(aval, num_batch)
        attributes = {"mode": "V" if vectors else "N", "sort": "N"}
        # The last two results are the number of sorted eigenvalues, which is 0 without sorting, and LAPACK's report.
        form, q, *_, report = call_kernel(
            ctx, "gees", [x], [aval], [aval, aval, *numbers, info, info], num_batch, cpu=attributes
        )
        return nan_where_failed(ctx, report, [form, q] if vectors else [form], ctx.avals_out, num_batch)

    jvp = Undefined("the Schur form is not differentiable where eigenvalues coincide; differentiate lax.linalg.eig")
    batch = batch_in_front


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
