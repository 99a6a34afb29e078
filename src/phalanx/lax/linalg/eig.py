"""Eigenvalues and eigenvectors of general matrices: `eig`.

Builds on `lu` for the derivative; called by `phalanx.numpy.linalg` and `phalanx.scipy.linalg`.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from phalanx.core import RuleError, ShapedArray
from phalanx.engine.mlir import hlo
from phalanx.lax.elementwise import (
    abs as absolute,
    add,
    complex as complex_number,
    conj,
    convert_element_type,
    div,
    eq,
    imag,
    mul,
    real,
    sub,
)
from phalanx.lax.linalg.eigh import inverse_gaps
from phalanx.lax.linalg.library_kernels import call_checked_kernel, unavailable_error
from phalanx.lax.linalg.lu import solve
from phalanx.lax.linalg.matrix_stacks import (
    MatrixPrimitive,
    adjoint,
    check_matrices,
    complex_of,
    diagonal,
    is_complex,
    matmul,
    real_of,
    scale_columns,
)
from phalanx.lax.reductions.reduce_sum import reduce_sum_p
from phalanx.lax.reductions.reduction_family import reduce_max
from phalanx.lax.shape import broadcast_in_dim
from phalanx.typing import Array, ArrayLike


class EigImplementation(enum.Enum):
    """The library of `eig`: LAPACK, which runs on the host; MAGMA on CUDA devices; or cuSOLVER.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> w = lax.linalg.eig(jnp.eye(2), implementation=EigImplementation.LAPACK)[0]
      >>> w.real.tolist()
      [1.0, 1.0]
    """

    LAPACK = "lapack"
    CUSOLVER = "cusolver"
    MAGMA = "magma"


# The attribute `magma` of the kernel for CUDA devices. cuSOLVER has another kernel, which is not called.
_MAGMA = {None: "auto", EigImplementation.MAGMA: "on", EigImplementation.LAPACK: "off"}


class Eig(MatrixPrimitive, name="eig", multiple=True):
    """Eigenvalues, then left and right eigenvectors if requested, all complex.

    Derivative: M. B. Giles (2008), section 3.1, with the normalization of LAPACK: eigenvectors have norm 1 and a real
    largest component.
    """

    def abstract_eval(self, x, *, left, right, vector_derivatives, implementation):
        check_matrices("lax.linalg.eig", x, square=True)
        dtype = complex_of(x.dtype)
        return [ShapedArray(x.shape[:-1], dtype), *[ShapedArray(x.shape, dtype)] * (left + right)]

    def lower(self, ctx, x, *, left, right, vector_derivatives, implementation):
        (aval,) = ctx.avals_in
        vectors = ShapedArray(aval.shape, complex_of(aval.dtype))
        numbers = [ShapedArray(aval.shape[:-1], aval.dtype)] * (1 if is_complex(aval.dtype) else 2)
        if implementation not in ((None, EigImplementation.LAPACK) if ctx.platform == "cpu" else _MAGMA):
            raise unavailable_error("lax.linalg.eig", implementation, ctx.platform)
        routine = "geev" if ctx.platform == "cpu" else f"geev {'complex' if is_complex(aval.dtype) else 'real'}"
        *w, v_left, v_right = call_checked_kernel(
            ctx,
            routine,
            [x],
            [aval],
            [*numbers, vectors, vectors],
            cpu={"compute_left": "V" if left else "N", "compute_right": "V" if right else "N"},
            cuda={"left": left, "right": right, "magma": _MAGMA.get(implementation)},
        )
        return [w[0] if len(w) == 1 else hlo.complex(*w), *[v_left] * left, *[v_right] * right]

    def jvp(self, primals, tangents, *, left, right, vector_derivatives, implementation):
        if (left or right) and not vector_derivatives:
            raise RuleError(
                "derivative of lax.linalg.eig",
                expected="eigenvalues only, or enable_eigvec_derivs=True",
                got="left eigenvectors" if left else "right eigenvectors",
                fix="eigenvectors have a derivative only once a norm and phase are chosen: pass "
                "enable_eigvec_derivs=True for those of LAPACK, or ask for no eigenvectors",
            )
        w, *u, v = self(*primals, left=left, right=True, vector_derivatives=True, implementation=implementation)
        x_dot = convert_element_type(tangents[0], v.dtype)
        w_dot, v_dot = _tangents(w, v, x_dot, vectors=right)
        # Left eigenvectors are the right ones of X^H, whose eigenvalues are the conjugates.
        u_dot = [_tangents(conj(w), u, adjoint(x_dot))[1] for u in u]
        return [w, *u, *[v] * right], [w_dot, *u_dot, *[v_dot] * right]


eig_p = Eig()


def _tangents(w: Array, v: Array, x_dot: Array, vectors: bool = True) -> tuple:
    """The tangents of eigenvalues and, if `vectors`, of right eigenvectors: (w_dot, v_dot)."""
    # With X V = V W, the tangents obey V^-1 X_dot V = W_dot + (V^-1 V_dot) W - W (V^-1 V_dot): the diagonal is
    # W_dot, and the off-diagonal entries divided by the gaps of the eigenvalues are V^-1 V_dot.
    inner = solve(v, matmul(x_dot, v))
    v_dot = _normalize_tangent(v, matmul(v, mul(inverse_gaps(w), inner))) if vectors else None
    return diagonal(inner), v_dot


def _normalize_tangent(v: Array, v_dot: Array) -> Any:
    """Project tangents of eigenvectors so that norms stay 1 and the largest components stay real."""
    # Norm: subtract from each column the component of its tangent along the column.
    v_dot = sub(v_dot, scale_columns(v, real(diagonal(matmul(adjoint(v), v_dot)))))
    # Phase: subtract i times the phase velocity of the largest component, averaged over components of equal size.
    rows = np.ndim(v) - 2
    sizes = absolute(v)
    top = broadcast_in_dim(reduce_max(sizes, (rows,)), np.shape(v), (*range(rows), rows + 1))
    largest = convert_element_type(eq(sizes, top), real_of(v.dtype))
    turn = mul(largest, div(imag(v_dot), add(real(v), sub(np.ones((), real_of(v.dtype)), largest))))
    phase = div(reduce_sum_p(turn, dims=(rows,)), reduce_sum_p(largest, dims=(rows,)))
    return sub(v_dot, scale_columns(v, complex_number(mul(phase, real_of(v.dtype).type(0)), phase)))


def eig(
    x: ArrayLike,
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
      enable_eigvec_derivs: whether to allow derivatives of the eigenvectors, which depend on their normalization:
        norm 1 and a real largest component.
      implementation: the library, on backends with several.
      use_magma: the older form of `implementation`: whether CUDA devices use MAGMA, or LAPACK on the host.

    Returns:
      The eigenvalues complex[*b, n] in no particular order, then the left and the right eigenvectors complex[*b, n, n],
      as columns.

    Raises:
      ShapeError: the matrices are not square.
      DTypeError: their dtype is not float32, float64, complex64 or complex128.
      RuleError: the platform does not have the library.

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
