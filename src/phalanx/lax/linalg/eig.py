"""Eigenvalues of general matrices, and the Hessenberg and Schur forms on the way to them.

Builds on `matrices` and `lu`; called by `phalanx.numpy.linalg` and `phalanx.scipy.linalg`. CUDA devices
have eigenvalues only, as in the field.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.errors import ArgumentError, RuleError
from phalanx.core.primitive import Primitive, Undefined
from phalanx.engine.mlir import hlo
from phalanx.lax.arithmetic import abs as absolute
from phalanx.lax.arithmetic import add, div, mul, sub
from phalanx.lax.broadcast import broadcast_in_dim, reduce_sum_p
from phalanx.lax.convert import convert_element_type
from phalanx.lax.linalg.eigh import inverse_gaps
from phalanx.lax.linalg.kernels import info_aval, kernel, nan_where_failed, unavailable
from phalanx.lax.linalg.lu import solve
from phalanx.lax.linalg.matrices import (
    adjoint,
    batch_in_front,
    check_matrices,
    complex_of,
    diagonal,
    is_complex,
    matmul,
    real_of,
    scale_columns,
    stack_roles,
)
from phalanx.lax.parts import complex as complex_number
from phalanx.lax.parts import imag, real
from phalanx.symbolic import is_symbolic


class EigImplementation(enum.Enum):
    """How `eig` computes: by LAPACK, which runs on the CPU in any case, by MAGMA on CUDA devices, or by cuSOLVER.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> w = lax.linalg.eig(jnp.eye(2), implementation=EigImplementation.LAPACK)[0]
      >>> w.real.tolist()
      [1.0, 1.0]
    """

    LAPACK = "lapack"
    CUSOLVER = "cusolver"
    MAGMA = "magma"


# What the kernel for CUDA devices is told; cuSOLVER's own has another one, which Phalanx does not call.
_MAGMA = {None: "auto", EigImplementation.MAGMA: "on", EigImplementation.LAPACK: "off"}


class Eig(Primitive, name="eig", multiple=True):
    """Eigenvalues, then left and right eigenvectors as asked for, all complex.

    Derivative: M. B. Giles (2008), section 3.1; normalised eigenvectors as LAPACK makes them: of norm 1, their largest
    component real.
    """

    def result(self, x, *, left, right, vector_derivatives, implementation):
        check_matrices("lax.linalg.eig", x, square=True)
        dtype = complex_of(x.dtype)
        return [ShapedArray(x.shape[:-1], dtype), *[ShapedArray(x.shape, dtype)] * (left + right)]

    def roles(self, x, *, left, right, vector_derivatives, implementation):
        return stack_roles([x], x.ndim - 2, [x.ndim - 1, *[x.ndim] * (left + right)])

    def lower(self, ctx, x, *, left, right, vector_derivatives, implementation):
        (aval,) = ctx.avals_in
        num_batch = aval.ndim - 2
        vectors = ShapedArray(aval.shape, complex_of(aval.dtype))
        numbers = [ShapedArray(aval.shape[:-1], aval.dtype)] * (1 if is_complex(aval.dtype) else 2)
        results = [*numbers, vectors, vectors, info_aval(aval, num_batch)]
        if ctx.platform == "cpu":
            if implementation not in (None, EigImplementation.LAPACK):
                raise unavailable("lax.linalg.eig", implementation, ctx.platform)
            asked = {"compute_left": "V" if left else "N", "compute_right": "V" if right else "N"}
            *w, v_left, v_right, report = kernel(ctx, "geev", [x], [aval], results, num_batch, cpu=asked)
        else:
            if implementation not in _MAGMA:
                raise unavailable("lax.linalg.eig", implementation, ctx.platform)
            routine = "geev complex" if is_complex(aval.dtype) else "geev real"
            asked = {"left": left, "right": right, "magma": _MAGMA[implementation]}
            *w, v_left, v_right, report = kernel(ctx, routine, [x], [aval], results, num_batch, cuda=asked)
        w = w[0] if len(w) == 1 else hlo.complex(*w)
        out = [w, *([v_left] if left else []), *([v_right] if right else [])]
        return nan_where_failed(ctx, report, out, ctx.avals_out, num_batch)

    def jvp(self, primals, tangents, *, left, right, vector_derivatives, implementation):
        if left or (right and not vector_derivatives):
            raise RuleError(
                "derivative of lax.linalg.eig",
                expected="eigenvalues only, or right eigenvectors with enable_eigvec_derivs=True",
                got="left eigenvectors" if left else "right eigenvectors",
                mend="eigenvectors have a derivative only once a norm and phase are chosen: ask for "
                "compute_left_eigenvectors=False and enable_eigvec_derivs=True, or no vectors",
            )
        w, v = self(*primals, left=False, right=True, vector_derivatives=True, implementation=implementation)
        inner = solve(v, matmul(convert_element_type(tangents[0], v.dtype), v))
        w_dot = diagonal(inner)
        if not right:
            return [w], [w_dot]
        return [w, v], [w_dot, _normalised_tangent(v, matmul(v, mul(inverse_gaps(w), inner)))]

    batch = batch_in_front


eig_p = Eig()


def _normalised_tangent(v: Any, v_dot: Any) -> Any:
    """Turn and scale tangents of eigenvectors so that norms stay 1 and the largest components stay real."""
    growth = real(diagonal(matmul(adjoint(v), v_dot)))
    v_dot = sub(v_dot, scale_columns(v, growth))
    rows = np.ndim(v) - 2
    sizes = absolute(v)
    from phalanx.lax.comparison import eq
    from phalanx.lax.linalg.matrices import ndim_of
    from phalanx.lax.reductions import reduce_max

    top = broadcast_in_dim(reduce_max(sizes, (rows,)), np.shape(v), (*range(rows), ndim_of(v) - 1))
    largest = convert_element_type(eq(sizes, top), real_of(v.dtype))
    count = reduce_sum_p(largest, dims=(rows,))
    phase = div(
        reduce_sum_p(
            mul(largest, div(imag(v_dot), add(real(v), sub(np.ones((), real_of(v.dtype)), largest)))), dims=(rows,)
        ),
        count,
    )
    return sub(v_dot, scale_columns(v, complex_number(mul(phase, real_of(v.dtype).type(0)), phase)))


class Hessenberg(Primitive, name="hessenberg", multiple=True):
    """General matrices reduced to Hessenberg form by reflectors, packed as LAPACK does."""

    def result(self, a):
        check_matrices("lax.linalg.hessenberg", a, square=True)
        return [a.update(weak_type=False), ShapedArray((*a.shape[:-2], max(a.shape[-1] - 1, 0)), a.dtype)]

    def roles(self, a):
        return stack_roles([a], a.ndim - 2, [a.ndim, a.ndim - 1])

    def lower(self, ctx, a):
        (aval,) = ctx.avals_in
        num_batch, n = aval.ndim - 2, aval.shape[-1]
        if is_symbolic(n):
            raise RuleError(
                "lowering of lax.linalg.hessenberg",
                expected="matrices of a known size, which the call of LAPACK holds",
                got=aval.str_short(), mend="export it for each size, or keep only the batch symbolic",
            )  # fmt: skip
        results = [*ctx.avals_out, info_aval(aval, num_batch)]
        asked = {"low": np.int32(1), "high": np.int32(n)}
        *out, report = kernel(ctx, "gehrd", [a], [aval], results, num_batch, cpu=asked)
        return nan_where_failed(ctx, report, out, ctx.avals_out, num_batch)

    jvp = Undefined("reflectors are an intermediate form; differentiate lax.linalg.eig")
    batch = batch_in_front


hessenberg_p = Hessenberg()


class Schur(Primitive, name="schur", multiple=True):
    """The Schur form T, and the unitary Q with x = Q T Q^H as asked for."""

    def result(self, x, *, vectors):
        check_matrices("lax.linalg.schur", x, square=True)
        return [x.update(weak_type=False)] * (1 + vectors)

    def roles(self, x, *, vectors):
        return stack_roles([x], x.ndim - 2, [x.ndim] * (1 + vectors))

    def lower(self, ctx, x, *, vectors):
        (aval,) = ctx.avals_in
        num_batch = aval.ndim - 2
        numbers = [ShapedArray(aval.shape[:-1], aval.dtype)] * (1 if is_complex(aval.dtype) else 2)
        info = info_aval(aval, num_batch)
        asked = {"mode": "V" if vectors else "N", "sort": "N"}
        form, q, *_, report = kernel(ctx, "gees", [x], [aval], [aval, aval, *numbers, info, info], num_batch, cpu=asked)
        return nan_where_failed(ctx, report, [form, q] if vectors else [form], ctx.avals_out, num_batch)

    jvp = Undefined("the Schur form has no derivative that is the same everywhere; differentiate lax.linalg.eig")
    batch = batch_in_front


schur_p = Schur()


def eig(
    x: Any,
    *,
    compute_left_eigenvectors: bool = True,
    compute_right_eigenvectors: bool = True,
    enable_eigvec_derivs: bool = False,
    implementation: EigImplementation | None = None,
    use_magma: bool | None = None,
) -> list:
    """Eigenvalues and eigenvectors of general matrices: x v = v diag(w), u^H x = diag(w) u^H.

    Args:
      x: num[*b, n, n].
      compute_left_eigenvectors, compute_right_eigenvectors: which eigenvectors to return.
      enable_eigvec_derivs: allow derivatives of the right eigenvectors, which hold for the choice of norm (1) and phase
        (largest component real) does.
      implementation: the library, where a backend has several.
      use_magma: an older spelling of `implementation`: whether CUDA devices use MAGMA or LAPACK on the host.

    Returns:
      The eigenvalues complex[*b, n] in no particular order, then the left and the right eigenvectors complex[*b, n, n],
      as columns.

    Raises:
      ShapeError: the matrices are not square.
      DTypeError: their dtype is not one that LAPACK has.
      RuleError: the platform lacks the library.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> w, v = lax.linalg.eig(np.diag(np.array([3.0, 1.0], np.float32)), compute_left_eigenvectors=False)
      >>> w.tolist()
      [(3+0j), (1+0j)]
    """
    if use_magma is not None:
        implementation = EigImplementation.MAGMA if use_magma else EigImplementation.LAPACK
    return eig_p(
        x,
        left=bool(compute_left_eigenvectors),
        right=bool(compute_right_eigenvectors),
        vector_derivatives=bool(enable_eigvec_derivs),
        implementation=implementation,
    )


def hessenberg(a: Any) -> tuple:
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
    x: Any, *, compute_schur_vectors: bool = True, sort_eig_vals: bool = False, select_callable: Any = None
) -> tuple:
    """Schur decomposition x = Q T Q^H.

    Args:
      x: num[*b, n, n].
      compute_schur_vectors: whether to return Q.
      sort_eig_vals, select_callable: must be False and None; eigenvalues come as LAPACK finds them.

    Returns:
      T (upper triangular; for real `x` with 2 by 2 blocks for complex pairs), then Q.

    Raises:
      ShapeError: the matrices are not square.
      ArgumentError: sorting is asked for.

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
            mend=f"sort the eigenvalues of {aval_of(x).str_short()} with lax.linalg.eig",
        )
    return tuple(schur_p(x, vectors=bool(compute_schur_vectors)))
