"""Tridiagonal linear systems: `tridiagonal_solve`.

For programs of users; the library itself does not call it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.core import ShapeError, ShardingRule, Zero, add_tangents, is_linear
from phalanx.lax.elementwise import neg
from phalanx.lax.indexing.static_slice import pad
from phalanx.lax.linalg.library_kernels import call_checked_kernel, call_kernel
from phalanx.lax.linalg.matrix_stacks import MatrixPrimitive, check_matrices, scale_rows
from phalanx.lax.shape import dim_names
from phalanx.typing import Array, ArrayLike


class TridiagonalSolve(MatrixPrimitive, name="tridiagonal_solve"):
    """Solve T x = b for T of three diagonals of equal length: num[*b, n] three times, num[*b, n, m]."""

    def abstract_eval(self, dl, d, du, b, *, perturb):
        check_matrices("lax.linalg.tridiagonal_solve operand b", b)
        if any(v.shape != b.shape[:-1] or v.dtype != b.dtype for v in (dl, d, du)):
            raise ShapeError(
                "lax.linalg.tridiagonal_solve diagonals",
                expected=f"shape {b.shape[:-1]} and the dtype of b, {b.str_short()}",
                got=", ".join(v.str_short() for v in (dl, d, du)),
                fix="pass three diagonals of n entries each; dl[0] and du[-1] are not read",
            )
        return b.update(weak_type=False)

    def sharding_rule(self, dl, d, du, b, *, perturb):
        names = [*dim_names(b.ndim - 2), "n"]
        return ShardingRule([names, names, names, [*names, "side"]], [[*names, "side"]], whole={"n"})

    def lower(self, ctx, dl, d, du, b, *, perturb):
        avals = ctx.avals_in
        num_batch = avals[0].ndim - 1
        if perturb or ctx.platform == "cuda":
            routine = "gtsv perturbed" if perturb else "gtsv"
            return call_kernel(ctx, routine, [dl, d, du, b], avals, ctx.avals_out, num_batch=num_batch)[0]
        # LAPACK's routine also returns the diagonals of the factorization.
        kept = slice(3, None)
        return call_checked_kernel(ctx, "gtsv", [dl, d, du, b], avals, avals, kept=kept, num_batch=num_batch)[0]

    def jvp(self, primals, tangents, *, perturb):
        dl, d, du, b = primals
        *diagonals_dot, b_dot = tangents
        x = self(dl, d, du, b, perturb=perturb)
        # From T x = b: T x_dot = b_dot - T_dot x, where each diagonal of T_dot contributes one product: the lower one
        # multiplies the rows before, the upper one the rows after.
        for offset, diagonal_dot in zip((1, 0, -1), diagonals_dot, strict=True):
            if type(diagonal_dot) is not Zero:
                rows = _shift(x, -2, offset) if offset else x
                b_dot = add_tangents(b_dot, neg(scale_rows(rows, diagonal_dot)))
        return x, self(dl, d, du, b_dot, perturb=perturb)

    def transpose(self, y_bar, dl, d, du, b, *, perturb):
        if not is_linear(b):
            return None, None, None, None
        # In the transpose, the diagonals above and below exchange places, and their entries move to the other end.
        return None, None, None, self(_shift(du, -1, 1), d, _shift(dl, -1, -1), y_bar, perturb=perturb)


tridiagonal_solve_p = TridiagonalSolve()


def _shift(v: Array, dim: int, low: int) -> Any:
    """Shift entries by `low` positions towards the end of a dimension, with zeros at the start."""
    config = [(0, 0, 0)] * np.ndim(v)
    config[dim] = (low, -low, 0)
    return pad(v, v.dtype.type(0), config)


def tridiagonal_solve(
    dl: ArrayLike, d: ArrayLike, du: ArrayLike, b: ArrayLike, *, perturb_singular: bool = False
) -> Any:
    """Solve tridiagonal systems.

    Args:
      dl: num[*b, n], the diagonal below the main one; dl[0] is not read.
      d: num[*b, n], the main diagonal.
      du: num[*b, n], the diagonal above it; du[-1] is not read.
      b: num[*b, n, m], the right-hand sides.
      perturb_singular: whether to replace zero pivots by a tiny number, for a finite solution.

    Returns:
      The solutions num[*b, n, m]; NaN where a matrix is singular.

    Raises:
      ShapeError: the shapes or dtypes do not match.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> zeros, twos = np.zeros(3, np.float32), np.full(3, 2, np.float32)
      >>> lax.linalg.tridiagonal_solve(zeros, twos, zeros, np.ones((3, 1), np.float32)).tolist()
      [[0.5], [0.5], [0.5]]
    """
    return tridiagonal_solve_p(dl, d, du, b, perturb=bool(perturb_singular))
