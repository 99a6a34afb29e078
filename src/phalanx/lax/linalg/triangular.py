"""Triangular systems and the Cholesky factorisation, whose derivatives need each other.

Builds on `matrices`; called by `phalanx.scipy.linalg`, `phalanx.numpy.linalg` and the other decompositions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.core.aval import aval_of
from phalanx.core.errors import ShapeError
from phalanx.core.primitive import Primitive, Undefined
from phalanx.core.tangent import Zero, add_tangents, is_linear
from phalanx.engine.mlir import hlo
from phalanx.lax.arithmetic import mul, neg
from phalanx.lax.broadcast import move_dim
from phalanx.lax.convert import convert_element_type
from phalanx.lax.linalg.kernels import emit_triangle, info_aval, kernel, nan_where_failed
from phalanx.lax.linalg.matrices import (
    adjoint,
    batch_in_front,
    check_matrices,
    eye_mask,
    hermitian_from_lower,
    is_complex,
    masked,
    matmul,
    stack_roles,
    symmetrized,
    to_front,
    transposed,
    tril,
    triu,
)
from phalanx.lax.parts import conj
from phalanx.lax.shape import reshape
from phalanx.runtime.dispatch import eager_program


class TriangularSolve(Primitive, name="triangular_solve"):
    """`x` with op(a) x = b, or x op(a) = b: num[*batch, n, n], num[*batch, n, m] -> num[*batch, n, m]."""

    by_pieces = True

    def result(self, a, b, *, left_side, lower, transpose_a, conjugate_a, unit_diagonal):
        check_matrices("lax.linalg.triangular_solve operand a", a, square=True)
        check_matrices("lax.linalg.triangular_solve operand b", b)
        solved = b.shape[-2 if left_side else -1]
        if a.shape[:-2] != b.shape[:-2] or a.dtype != b.dtype or solved != a.shape[-1]:
            raise ShapeError(
                "lax.linalg.triangular_solve operands",
                expected="equal dtypes and leading dimensions, and "
                f"{'rows' if left_side else 'columns'} of b as many as those of a",
                got=f"{a.str_short()} and {b.str_short()}",
                mend="broadcast or transpose one operand",
            )
        return b.update(weak_type=False)

    def roles(self, a, b, *, left_side, **_):
        roles = stack_roles([a, b], a.ndim - 2, [b.ndim])
        # The right-hand sides are independent of each other.
        free = -1 if left_side else -2
        names = [list(roles.operands[1]), list(roles.results[0])]
        old = names[0][free], names[1][free]
        names[0][free] = names[1][free] = "side"
        solved = -2 if left_side else -1
        return type(roles)(
            [roles.operands[0], names[0]], [names[1]], whole=(roles.whole - set(old)) | {names[0][solved]}
        )

    def lower(self, ctx, a, b, *, left_side, lower, transpose_a, conjugate_a, unit_diagonal):
        a_aval, b_aval = ctx.avals_in
        if ctx.platform == "cpu":
            flag = ("C" if conjugate_a else "T") if transpose_a else "N"
            asked = {"side": "L" if left_side else "R", "uplo": "L" if lower else "U"}
            asked |= {"trans_x": flag, "diag": "U" if unit_diagonal else "N"}
            return kernel(ctx, "trsm", [a, b], [a_aval, b_aval], [b_aval], a_aval.ndim - 2, cpu=asked)[0]
        flag = ("ADJOINT" if conjugate_a else "TRANSPOSE") if transpose_a else "NO_TRANSPOSE"
        return hlo.triangular_solve(a, b, left_side, lower, unit_diagonal, hlo.TransposeAttr.get(flag))

    def jvp(self, primals, tangents, **flags):
        (a, b), (a_dot, b_dot) = primals, tangents
        x = self(a, b, **flags)
        if type(a_dot) is not Zero:
            # From op(a) x = b: op(a) x_dot = b_dot - op(a_dot) x.
            b_dot = add_tangents(b_dot, neg(_product(a_dot, x, **flags)))
        return x, self(a, b_dot, **flags)

    def transpose(self, y_bar, a, b, **flags):
        if not is_linear(b):
            return None, None
        if flags["conjugate_a"] and flags["transpose_a"]:
            a, flags = conj(a), flags | {"conjugate_a": False}
        return None, self(a, y_bar, **flags | {"transpose_a": not flags["transpose_a"]})

    def batch(self, a, b, ba, bb, *, left_side, **flags):
        if ba is None:
            # One matrix for all: the mapped dimension becomes more right-hand sides.
            free = np.ndim(b) - 2 if left_side else np.ndim(b) - 3
            b = move_dim(b, bb, free + 1)
            shape = np.shape(b)
            x = self(
                a,
                reshape(b, (*shape[:free], shape[free] * shape[free + 1], *shape[free + 2 :])),
                left_side=left_side,
                **flags,
            )
            return reshape(x, shape), free + 1
        a, b = to_front((a, b), (ba, bb))
        return self(a, b, left_side=left_side, **flags), 0


triangular_solve_p = TriangularSolve()


def _product(a: Any, x: Any, *, left_side, lower, transpose_a, conjugate_a, unit_diagonal) -> Any:
    """op(a) x or x op(a), of the triangle of `a` that counts."""
    strict = 1 if unit_diagonal else 0
    a = tril(a, -strict) if lower else triu(a, strict)
    if transpose_a:
        a = adjoint(a) if conjugate_a else transposed(a)
    return matmul(a, x) if left_side else matmul(x, a)


class Cholesky(Primitive, name="cholesky"):
    """The lower triangular L with L L^H = x; only the lower triangle of `x` is read.

    Derivative: I. Murray, Differentiation of the Cholesky decomposition (2016), arXiv:1602.07527, section 3.1.
    """

    def result(self, x):
        check_matrices("lax.linalg.cholesky", x, square=True)
        return x.update(weak_type=False)

    def roles(self, x):
        return stack_roles([x], x.ndim - 2, [x.ndim])

    def lower(self, ctx, x):
        (aval,) = ctx.avals_in
        if ctx.platform in ("cpu", "cuda"):
            num_batch = aval.ndim - 2
            results = [aval, info_aval(aval, num_batch)]
            asked = {"cpu": {"uplo": "L"}, "cuda": {"lower": True}}
            factor, info = kernel(ctx, "potrf", [x], [aval], results, num_batch, **asked)
            (factor,) = nan_where_failed(ctx, info, [factor], [aval], num_batch)
        else:
            factor = hlo.cholesky(x, lower=True)
        return emit_triangle(ctx, factor, aval, lower=True)

    def jvp(self, primals, tangents):
        factor = self(*primals)
        x_dot = hermitian_from_lower(tangents[0])
        inner = triangular_solve(factor, x_dot, left_side=False, lower=True, transpose_a=True, conjugate_a=True)
        inner = triangular_solve(factor, inner, left_side=True, lower=True)
        half = mul(masked(inner, eye_mask(np.shape(inner))), inner.dtype.type(0.5))
        return factor, matmul(factor, add_tangents(tril(inner, -1), half))

    transpose = Undefined("the factorisation is not linear, so only its linearisation has a transpose")
    batch = batch_in_front


cholesky_p = Cholesky()


@eager_program(static_argnames=("symmetrize_input",))
def cholesky(x: Any, *, symmetrize_input: bool = True) -> Any:
    """Cholesky factorisation x = L L^H of Hermitian positive-definite matrices: num[*b, n, n] -> num[*b, n, n].

    Args:
      x: a matrix or a stack of them.
      symmetrize_input: take the Hermitian part of `x`; otherwise the lower triangle stands for the whole.

    Returns:
      The lower triangular factor; NaN where a matrix is not positive definite.

    Raises:
      ShapeError: the matrices are not square.
      DTypeError: their dtype is not one that LAPACK has.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.linalg.cholesky(np.array([[4.0, 2.0], [2.0, 2.0]], np.float32)).tolist()
      [[2.0, 0.0], [1.0, 1.0]]
    """
    check_matrices("lax.linalg.cholesky", aval_of(x), square=True)
    return cholesky_p(symmetrized(x) if symmetrize_input else x)


def triangular_solve(
    a: Any,
    b: Any,
    *,
    left_side: bool = False,
    lower: bool = False,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> Any:
    """Solve op(a) x = b or x op(a) = b with triangular matrices `a`.

    Args:
      a: num[*batch, n, n]; only the triangle named by `lower` is read.
      b: num[*batch, n, m] with `left_side`, else num[*batch, m, n]; or num[*batch, n].
      left_side: whether op(a) stands left of x.
      lower: whether `a` is lower triangular.
      transpose_a: whether op(a) is the transpose of `a`.
      conjugate_a: whether op(a) is conjugated.
      unit_diagonal: whether the diagonal is taken to be ones.

    Returns:
      The solution, shaped like `b`.

    Raises:
      ShapeError: the shapes do not fit.
      DTypeError: the dtype is not one that LAPACK has.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> a, b = np.array([[2.0, 0.0], [1.0, 1.0]], np.float32), np.array([4.0, 3.0], np.float32)
      >>> lax.linalg.triangular_solve(a, b, left_side=True, lower=True).tolist()
      [2.0, 1.0]
    """
    a_aval, b_aval = aval_of(a), aval_of(b)
    vector = b_aval.ndim == a_aval.ndim - 1
    if vector:
        b = reshape(b, (*b_aval.shape, 1) if left_side else (*b_aval.shape[:-1], 1, b_aval.shape[-1]))
    conjugate_a = conjugate_a and is_complex(a_aval.dtype)
    if conjugate_a and not transpose_a:
        a, conjugate_a = conj(a), False
    x = triangular_solve_p(
        a,
        b,
        left_side=left_side,
        lower=lower,
        transpose_a=transpose_a,
        conjugate_a=conjugate_a,
        unit_diagonal=unit_diagonal,
    )
    return reshape(x, b_aval.shape) if vector else x


@eager_program(static_argnames=("alpha", "beta", "symmetrize_output"))
def symmetric_product(
    a_matrix: Any, c_matrix: Any, *, alpha: float = 1.0, beta: float = 0.0, symmetrize_output: bool = False
) -> Any:
    """The product alpha a a^T + beta c: num[*b, n, k], num[*b, n, n] -> num[*b, n, n].

    Args:
      a_matrix: the matrices that are multiplied with their transposes.
      c_matrix: symmetric matrices.
      alpha, beta: the factors.
      symmetrize_output: make the result symmetric to the last bit, from its lower triangle.

    Returns:
      The sum.

    Raises:
      ShapeError: the shapes do not fit.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.linalg.symmetric_product(np.ones((2, 3)), np.eye(2), beta=1.0).tolist()
      [[4.0, 3.0], [3.0, 4.0]]
    """
    a, c = aval_of(a_matrix), aval_of(c_matrix)
    check_matrices("lax.linalg.symmetric_product", a)
    if c.shape != (*a.shape[:-1], a.shape[-2]) or c.dtype != a.dtype:
        raise ShapeError(
            "lax.linalg.symmetric_product operands",
            expected="num[*b, n, k] and num[*b, n, n] of one dtype",
            got=f"{a.str_short()} and {c.str_short()}",
            mend="check the last dimensions",
        )
    product = mul(matmul(convert_element_type(a_matrix, a.dtype), transposed(a_matrix)), a.dtype.type(alpha))
    if beta:
        product = add_tangents(product, mul(c_matrix, a.dtype.type(beta)))
    if symmetrize_output:
        product = add_tangents(tril(product), transposed(tril(product, -1)))
    return product
