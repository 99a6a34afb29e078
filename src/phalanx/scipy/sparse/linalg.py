"""Iterative solvers of linear systems: conjugate gradients, BiCGSTAB and GMRES.

A system is a matrix or a function that multiplies with it; unknowns may be pytrees. Derivatives go through the system,
not through the iterations (`lax.custom_linear_solve`). Builds on `flatten_util`.

Source: Hestenes & Stiefel (1952), doi:10.6028/jres.049.044; van der Vorst (1992), doi:10.1137/0913035; Saad & Schultz
(1986), doi:10.1137/0907058.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core.errors import ArgumentError, ShapeError
from phalanx.engine.frames import guard as _guard
from phalanx.flatten_util import ravel_pytree
from phalanx.numpy.contraction import dot, matmul, vdot
from phalanx.numpy.linalg import lstsq
from phalanx.numpy.mapping import where
from phalanx.numpy.operands import as_array, cast, operand
from phalanx.transforms import linear_transpose


def _operator(a: Any, unravel: Callable, name: str) -> Callable:
    """What multiplies a flat vector."""
    if callable(a):
        return lambda v: ravel_pytree(a(unravel(v)))[0]
    x = as_array(operand(a, f"sparse.linalg.{name}"))
    if x.ndim != 2 or x.shape[0] != x.shape[1]:
        raise ShapeError(f"sparse.linalg.{name}, argument A", expected="a square matrix, or a function", got=x.shape,
                         mend="reshape it")  # fmt: skip
    return lambda v: matmul(x, v)


def _solved(
    name: str, iterate: Callable, a: Any, b: Any, x0: Any, tol: float, atol: float, m: Any, symmetric: bool
) -> tuple:
    flat, unravel = ravel_pytree(b)
    if np.dtype(flat.dtype).kind not in "fc":
        flat, unravel = ravel_pytree(_inexact(b))
    start = flat * 0 if x0 is None else cast(ravel_pytree(x0)[0], flat.dtype)
    if start.shape != flat.shape:
        raise ShapeError(f"sparse.linalg.{name}, argument x0", expected=f"{flat.shape[0]} numbers, as b has",
                         got=start.shape, mend="leave it out")  # fmt: skip
    multiply = _operator(a, unravel, name)
    before = (lambda v: v) if m is None else _operator(m, unravel, name)

    def transposed(v: Any) -> Any:
        return linear_transpose(before, v)(v)[0]

    def solve(multiply: Callable, rhs: Any) -> Any:
        return iterate(multiply, rhs, start, before, _bound(rhs, tol, atol))

    def transpose_solve(multiply: Callable, rhs: Any) -> Any:
        return iterate(multiply, rhs, rhs * 0, transposed, _bound(rhs, tol, atol))

    x = lax.custom_linear_solve(multiply, flat, solve, transpose_solve, symmetric=symmetric)
    return unravel(x), None


def _inexact(b: Any) -> Any:
    return cast(as_array(b), np.dtype(np.float32))


def _bound(b: Any, tol: float, atol: float) -> Any:
    """How large the square of the residual may be."""
    return lax.max(tol**2 * _square(b), cast(atol**2, _square(b).dtype))


def _square(x: Any) -> Any:
    return lax.real(vdot(x, x)) if x.dtype.kind == "c" else dot(x, x)


def cg(A: Any, b: Any, x0: Any = None, *, tol: float = 1e-5, atol: float = 0.0, maxiter: int | None = None,
       M: Any = None) -> tuple:  # fmt: skip
    """The solution of A x = b by conjugate gradients.

    Args:
      A: a Hermitian positive definite matrix, or a function that multiplies with it.
      b: the right-hand side, an array or a pytree.
      x0: where to begin, zeros by default.
      tol, atol: how small the residual must become, relative to `b` and absolutely.
      maxiter: how many steps there may be, ten for each unknown by default.
      M: an approximate inverse of `A`, likewise.

    Returns:
      (x, None).

    Raises:
      ShapeError: `A` is no square matrix, or `x0` does not fit.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy.sparse import linalg
      >>> linalg.cg(lambda x: 2 * x, jnp.ones(2))[0].tolist()
      [0.5, 0.5]
    """

    def iterate(multiply: Callable, rhs: Any, x: Any, before: Callable, bound: Any) -> Any:
        limit = 10 * rhs.shape[0] if maxiter is None else maxiter

        def goes_on(state: tuple) -> Any:
            _, r, _, _, k = state
            return (_square(r) > bound) & (k < limit)

        def advance(state: tuple) -> tuple:
            x, r, p, gamma, k = state
            ap = multiply(p)
            alpha = gamma / vdot(p, ap)
            x, r = x + alpha * p, r - alpha * ap
            z = before(r)
            new = vdot(r, z)
            return x, r, z + new / gamma * p, new, k + 1

        r = rhs - multiply(x)
        z = before(r)
        start = (x, r, z, vdot(r, z), as_array(cast(0, np.dtype(np.int32))))
        return lax.while_loop(goes_on, advance, start)[0]

    return _solved("cg", iterate, A, b, x0, tol, atol, M, symmetric=_is_real(b))


def _is_real(b: Any) -> bool:
    return np.dtype(ravel_pytree(b)[0].dtype).kind != "c"


def bicgstab(A: Any, b: Any, x0: Any = None, *, tol: float = 1e-5, atol: float = 0.0, maxiter: int | None = None,
             M: Any = None) -> tuple:  # fmt: skip
    """The solution of A x = b by the stabilised method of biconjugate gradients.

    Args:
      A: a matrix, or a function that multiplies with it.
      b, x0, tol, atol, maxiter, M: as in `cg`.

    Returns:
      (x, None).

    Raises:
      ShapeError: `A` is no square matrix, or `x0` does not fit.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy.sparse import linalg
      >>> linalg.bicgstab(lambda x: 2 * x, jnp.ones(2))[0].tolist()
      [0.5, 0.5]
    """

    def iterate(multiply: Callable, rhs: Any, x: Any, before: Callable, bound: Any) -> Any:
        limit = 10 * rhs.shape[0] if maxiter is None else maxiter

        def goes_on(state: tuple) -> Any:
            r, k = state[1], state[-1]
            return (_square(r) > bound) & (k < limit) & (k >= 0)

        def advance(state: tuple) -> tuple:
            x, r, shadow, p, v, rho, alpha, omega, k = state
            new = vdot(shadow, r)
            beta = new / rho * alpha / omega
            p = r + beta * (p - omega * v)
            p_hat = before(p)
            v = multiply(p_hat)
            alpha = new / vdot(shadow, v)
            s = r - alpha * v
            early = _square(s) < bound
            s_hat = before(s)
            t = multiply(s_hat)
            size = _square(t)
            omega = where(early, 0, vdot(t, s) / cast(where(size == 0, 1, size), t.dtype))
            x = x + alpha * p_hat + omega * s_hat
            r = where(early, s, s - omega * t)
            # It has broken down where a factor became 0: what was found is the result.
            broken = (new == 0) | (alpha == 0) | ((omega == 0) & lax.bitwise_not(early))
            k = where(broken, -1, k + 1)
            return x, r, shadow, p, v, new, alpha, where(omega == 0, 1, omega), k

        r = rhs - multiply(x)
        one = lax.full((), 1, rhs.dtype)
        start = (x, r, r, r * 0, r * 0, one, one, one, as_array(cast(0, np.dtype(np.int32))))
        return lax.while_loop(goes_on, advance, start)[0]

    return _solved("bicgstab", iterate, A, b, x0, tol, atol, M, symmetric=False)


def gmres(A: Any, b: Any, x0: Any = None, *, tol: float = 1e-5, atol: float = 0.0, restart: int = 20,
          maxiter: int | None = None, M: Any = None, solve_method: str = "batched") -> tuple:  # fmt: skip
    """The solution of A x = b by generalised minimal residuals, begun anew every few steps.

    Args:
      A: a matrix, or a function that multiplies with it.
      b, x0, tol, atol, M: as in `cg`.
      restart: how many directions are held at a time.
      maxiter: how often to begin anew, ten times for each unknown by default.
      solve_method: `"batched"` or `"incremental"`, which give the same here.

    Returns:
      (x, None).

    Raises:
      ArgumentError: there is no such method.
      ShapeError: `A` is no square matrix, or `x0` does not fit.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy.sparse import linalg
      >>> linalg.gmres(lambda x: 2 * x, jnp.ones(2))[0].round(4).tolist()
      [0.5, 0.5]
    """
    if solve_method not in ("batched", "incremental"):
        raise ArgumentError("sparse.linalg.gmres, argument solve_method", expected="'batched' or 'incremental'",
                            got=repr(solve_method), mend="use one")  # fmt: skip

    def iterate(multiply: Callable, rhs: Any, x: Any, before: Callable, bound: Any) -> Any:
        n = rhs.shape[0]
        limit, m = 10 * n if maxiter is None else maxiter, min(restart, n)

        def goes_on(state: tuple) -> Any:
            _, r, k = state
            return (_square(r) > bound) & (k < limit)

        def cycle(state: tuple) -> tuple:
            x, r, k = state
            basis, images = _krylov(multiply, before, r, m)
            # The combination of directions whose image comes nearest to the residual.
            y = lstsq(images.T, r)[0]
            x = x + before(matmul(basis.T, y))
            return x, rhs - multiply(x), k + 1

        start = (x, rhs - multiply(x), as_array(cast(0, np.dtype(np.int32))))
        return lax.while_loop(goes_on, cycle, start)[0]

    return _solved("gmres", iterate, A, b, x0, tol, atol, M, symmetric=False)


def _krylov(multiply: Callable, before: Callable, r: Any, m: int) -> tuple:
    """Orthonormal directions of the Krylov space of r, in rows, and their images; zeros once it is exhausted."""
    n = r.shape[0]
    size = lax.sqrt(_square(r))
    first = r / cast(where(size == 0, 1, size), r.dtype)
    eps = 1e-6 if np.dtype(r.dtype).itemsize // (2 if np.dtype(r.dtype).kind == "c" else 1) < 8 else 1e-14

    def step(k: Any, state: tuple) -> tuple:
        basis, images, q = state
        image = multiply(before(q))
        basis = lax.dynamic_update_slice_in_dim(basis, q[None], k, 0)
        images = lax.dynamic_update_slice_in_dim(images, image[None], k, 0)
        w = image
        for _ in range(2):  # twice, so that rounding leaves them orthogonal
            w = w - matmul(matmul(lax.conj(basis) if basis.dtype.kind == "c" else basis, w), basis)
        length = lax.sqrt(_square(w))
        whole = lax.sqrt(_square(image))
        spent = length <= eps * whole
        q = where(spent, 0, w / cast(where(spent, 1, length), w.dtype))
        return basis, images, q

    empty = lax.full((m, n), 0, r.dtype)
    basis, images, _ = lax.fori_loop(0, m, step, (empty, empty, first))
    return basis, images


_guard(globals())
