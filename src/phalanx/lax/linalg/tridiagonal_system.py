"""Tridiagonal systems: `tridiagonal_solve`.

Builds on `matrices`; called by `phalanx.scipy.linalg` and by splines.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.core.errors import ShapeError
from phalanx.core.primitive import Primitive
from phalanx.core.tangent import Zero, add_tangents, is_linear
from phalanx.lax.arithmetic import neg
from phalanx.lax.broadcast import dim_names
from phalanx.lax.linalg.kernels import info_aval, kernel, nan_where_failed
from phalanx.lax.linalg.matrices import batch_in_front, check_matrices, scale_rows, stack_roles
from phalanx.lax.slicing import pad


class TridiagonalSolve(Primitive, name="tridiagonal_solve"):
    """`x` with T x = b for T of three diagonals of equal length: num[*b, n] three times, num[*b, n, m]."""

    by_pieces = True

    def result(self, dl, d, du, b, *, perturb):
        check_matrices("lax.linalg.tridiagonal_solve operand b", b)
        if any(v.shape != b.shape[:-1] or v.dtype != b.dtype for v in (dl, d, du)):
            raise ShapeError(
                "lax.linalg.tridiagonal_solve diagonals",
                expected=f"shape {b.shape[:-1]} and the dtype of b, {b.str_short()}",
                got=", ".join(v.str_short() for v in (dl, d, du)),
                mend="all three diagonals have n entries; dl[0] and du[-1] are not read",
            )
        return b.update(weak_type=False)

    def roles(self, dl, d, du, b, *, perturb):
        names = [*dim_names(b.ndim - 2), "n"]
        roles = stack_roles([dl, d, du], d.ndim, [b.ndim])
        return type(roles)([names, names, names, [*names, "side"]], [[*names, "side"]], whole={"n"})

    def lower(self, ctx, dl, d, du, b, *, perturb):
        avals = ctx.avals_in
        b_aval = avals[3]
        num_batch = b_aval.ndim - 2
        results = [*avals, info_aval(b_aval, num_batch)]
        if perturb or ctx.platform == "cuda":
            routine = "gtsv perturbed" if perturb else "gtsv"
            return kernel(ctx, routine, [dl, d, du, b], avals, [b_aval], num_batch)[0]
        *_, x, report = kernel(ctx, "gtsv", [dl, d, du, b], avals, results, num_batch)
        return nan_where_failed(ctx, report, [x], [b_aval], num_batch)[0]

    def jvp(self, primals, tangents, *, perturb):
        dl, d, du, b = primals
        *diagonals_dot, b_dot = tangents
        x = self(dl, d, du, b, perturb=perturb)
        for product, diagonal_dot in zip((_times_lower, scale_rows, _times_upper), diagonals_dot, strict=True):
            if type(diagonal_dot) is not Zero:
                b_dot = add_tangents(b_dot, neg(product(x, diagonal_dot)))
        return x, self(dl, d, du, b_dot, perturb=perturb)

    def transpose(self, y_bar, dl, d, du, b, *, perturb):
        if not is_linear(b):
            return None, None, None, None
        return None, None, None, self(_down(du), d, _up(dl), y_bar, perturb=perturb)

    batch = batch_in_front


tridiagonal_solve_p = TridiagonalSolve()


def _shift(v: Any, dim: int, low: int) -> Any:
    config = [(0, 0, 0)] * np.ndim(v)
    config[dim] = (low, -low, 0)
    return pad(v, v.dtype.type(0), config)


def _down(v: Any) -> Any:
    """Entries moved one place to the end: the lower diagonal of the transpose, from the upper one."""
    return _shift(v, np.ndim(v) - 1, 1)


def _up(v: Any) -> Any:
    return _shift(v, np.ndim(v) - 1, -1)


def _times_lower(x: Any, dl: Any) -> Any:
    return scale_rows(_shift(x, np.ndim(x) - 2, 1), dl)


def _times_upper(x: Any, du: Any) -> Any:
    return scale_rows(_shift(x, np.ndim(x) - 2, -1), du)


def tridiagonal_solve(dl: Any, d: Any, du: Any, b: Any, *, perturb_singular: bool = False) -> Any:
    """Solve tridiagonal systems.

    Args:
      dl: num[*b, n], the diagonal below the main one; dl[0] is not read.
      d: num[*b, n], the main diagonal.
      du: num[*b, n], the diagonal above it; du[-1] is not read.
      b: num[*b, n, m], the right-hand sides.
      perturb_singular: take a tiny number in place of a pivot that is zero, and so give a finite solution.

    Returns:
      The solutions num[*b, n, m]; NaN where a matrix is singular.

    Raises:
      ShapeError: the shapes or dtypes do not fit.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> zeros, twos = np.zeros(3, np.float32), np.full(3, 2, np.float32)
      >>> lax.linalg.tridiagonal_solve(zeros, twos, zeros, np.ones((3, 1), np.float32)).tolist()
      [[0.5], [0.5], [0.5]]
    """
    return tridiagonal_solve_p(dl, d, du, b, perturb=bool(perturb_singular))
