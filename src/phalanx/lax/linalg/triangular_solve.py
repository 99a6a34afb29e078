"""Triangular linear systems: `triangular_solve`.

Called by `phalanx.scipy.linalg`, `phalanx.numpy.linalg`, and the decompositions and their derivatives.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.core import Primitive, ShapeError, Zero, add_tangents, get_aval, is_linear
from phalanx.engine.mlir import hlo
from phalanx.lax.elementwise import conj, neg
from phalanx.lax.linalg.library_kernels import call_kernel
from phalanx.lax.linalg.matrix_stacks import (
    adjoint,
    check_matrices,
    is_complex,
    matmul,
    move_batch_to_front,
    swap_last_dims,
    tril,
    triu,
)
from phalanx.lax.shape import batched_sharding_rule, move_dim, reshape
from phalanx.typing import Array, ArrayLike


class TriangularSolve(Primitive, name="triangular_solve"):
    """Solve op(a) x = b, or x op(a) = b: num[*batch, n, n], num[*batch, n, m] -> num[*batch, n, m]."""

    def abstract_eval(self, a, b, *, left_side, lower, transpose_a, conjugate_a, unit_diagonal):
        check_matrices("lax.linalg.triangular_solve operand a", a, square=True)
        check_matrices("lax.linalg.triangular_solve operand b", b)
        solved = b.shape[-2 if left_side else -1]
        if a.shape[:-2] != b.shape[:-2] or a.dtype != b.dtype or solved != a.shape[-1]:
            raise ShapeError(
                "lax.linalg.triangular_solve operands",
                expected="equal dtypes and leading dimensions, and "
                f"{'rows' if left_side else 'columns'} of b as many as those of a",
                got=f"{a.str_short()} and {b.str_short()}",
                fix="broadcast the leading dimensions, or transpose one operand",
            )
        return b.update(weak_type=False)

    def sharding_rule(self, a, b, *, left_side, **_):
        roles = batched_sharding_rule([a, b], [b.ndim], a.ndim - 2)
        # The right-hand sides are independent of each other, so that their dimension may be sharded.
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
            attributes = {"side": "L" if left_side else "R", "uplo": "L" if lower else "U"}
            attributes |= {"trans_x": flag, "diag": "U" if unit_diagonal else "N"}
            return call_kernel(ctx, "trsm", [a, b], [a_aval, b_aval], [b_aval], cpu=attributes)[0]
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
        # The transpose of solving with op(a) is solving with its transpose, without conjugation: the conjugate of an
        # adjoint is applied to `a` itself.
        if flags["conjugate_a"] and flags["transpose_a"]:
            a, flags = conj(a), flags | {"conjugate_a": False}
        return None, self(a, y_bar, **flags | {"transpose_a": not flags["transpose_a"]})

    def batch(self, a, b, ba, bb, *, left_side, **flags):
        if ba is None:
            # With one matrix for all examples, the mapped dimension becomes additional right-hand sides.
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
        a, b = move_batch_to_front((a, b), (ba, bb))
        return self(a, b, left_side=left_side, **flags), 0


triangular_solve_p = TriangularSolve()


def _product(a: Array, x: Array, *, left_side, lower, transpose_a, conjugate_a, unit_diagonal) -> Any:
    """Compute op(a) x or x op(a), of the triangle of `a` that is read."""
    strict = 1 if unit_diagonal else 0
    a = tril(a, -strict) if lower else triu(a, strict)
    if transpose_a:
        a = adjoint(a) if conjugate_a else swap_last_dims(a)
    return matmul(a, x) if left_side else matmul(x, a)


def triangular_solve(
    a: ArrayLike,
    b: ArrayLike,
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
      left_side: whether op(a) multiplies x from the left.
      lower: whether `a` is lower triangular.
      transpose_a: whether op(a) is the transpose of `a`.
      conjugate_a: whether op(a) is conjugated.
      unit_diagonal: whether the diagonal is assumed to be ones, and not read.

    Returns:
      The solution, of the shape of `b`.

    Raises:
      ShapeError: the shapes do not match.
      DTypeError: the dtype is not float32, float64, complex64 or complex128.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> a, b = np.array([[2.0, 0.0], [1.0, 1.0]], np.float32), np.array([4.0, 3.0], np.float32)
      >>> lax.linalg.triangular_solve(a, b, left_side=True, lower=True).tolist()
      [2.0, 1.0]
    """
    a_aval, b_aval = get_aval(a), get_aval(b)
    # A right-hand side of one dimension less is a vector for each matrix.
    vector = b_aval.ndim == a_aval.ndim - 1
    if vector:
        b = reshape(b, (*b_aval.shape, 1) if left_side else (*b_aval.shape[:-1], 1, b_aval.shape[-1]))
    conjugate_a = conjugate_a and is_complex(a_aval.dtype)
    # The kernels conjugate only together with a transposition.
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
