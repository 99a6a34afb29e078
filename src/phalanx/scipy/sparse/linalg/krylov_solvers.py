"""Iterative solvers of linear systems: conjugate gradients, BiCGSTAB and GMRES.

The system is a matrix or a function that multiplies by it, and the unknowns may be a pytree. Derivatives are computed
by implicit differentiation (`lax.custom_linear_solve`), not through the iterations. Builds on `ravel_pytree`.

Source: Hestenes & Stiefel (1952), doi:10.6028/jres.049.044; van der Vorst (1992), doi:10.1137/0913035; Saad & Schultz
(1986), doi:10.1137/0907058.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.core import ShapeError, get_aval
from phalanx.numpy.operands import as_array, cast, to_operand
from phalanx.numpy.ravel_pytree import ravel_pytree
from phalanx.scipy.argument_checks import check_choice, int32_zero
from phalanx.transforms import linear_transpose
from phalanx.tree import tree_map
from phalanx.typing import Array, ArrayLike, PyTree

Matrix: TypeAlias = Any
"""A square matrix, a function that multiplies by it, or an object with the operator `@`."""


def _matvec(a: Matrix, unravel: Callable[[Array], PyTree], name: str) -> Callable[[Array], Array]:
    """The product of the matrix and a flat vector, as a function of the vector."""
    if callable(a):
        return lambda v: ravel_pytree(a(unravel(v)))[0]
    if hasattr(a, "__matmul__") and not hasattr(a, "__array__") and not hasattr(a, "aval"):
        return lambda v: ravel_pytree(a @ unravel(v))[0]
    x = as_array(to_operand(a, f"sparse.linalg.{name}"))
    if x.ndim != 2 or x.shape[0] != x.shape[1]:
        raise ShapeError(
            f"sparse.linalg.{name}, argument A",
            expected="a square matrix, or a function",
            got=x.shape,
            fix="pass a matrix of shape [n, n], or a function that multiplies by it",
        )
    return lambda v: ravel_pytree(jnp.matmul(x, unravel(v)))[0]


def _solve(
    name: str,
    iterate: Callable,
    a: Matrix,
    b: PyTree,
    x0: PyTree | None,
    tol: float,
    atol: float,
    m: Matrix | None,
    symmetric: bool,
) -> tuple:
    flat, unravel = ravel_pytree(b)
    if np.dtype(flat.dtype).kind not in "fc":
        flat, unravel = ravel_pytree(cast(as_array(b), np.dtype(np.float32)))
    start = flat * 0 if x0 is None else cast(ravel_pytree(x0)[0], flat.dtype)
    if start.shape != flat.shape:
        raise ShapeError(
            f"sparse.linalg.{name}, argument x0",
            expected=f"{flat.shape[0]} numbers, as b has",
            got=start.shape,
            fix="pass x0 with the structure and shapes of b, or omit it",
        )
    multiply = _matvec(a, unravel, name)
    precondition = (lambda v: v) if m is None else _matvec(m, unravel, name)

    x = lax.custom_linear_solve(
        multiply,
        flat,
        lambda multiply, rhs: iterate(multiply, rhs, start, precondition, _bound(rhs, tol, atol)),
        lambda multiply, rhs: iterate(
            multiply, rhs, rhs * 0, lambda v: linear_transpose(precondition, v)(v)[0], _bound(rhs, tol, atol)
        ),
        symmetric=symmetric,
    )
    # Raveling drops weak types.
    return tree_map(lambda x, b: cast(x, x.dtype, get_aval(b).weak_type), unravel(x), b), None


def _bound(b: Array, tol: float, atol: float) -> Any:
    """The largest squared norm of the residual at which the iteration stops."""
    return lax.max(tol**2 * _square(b), cast(atol**2, _square(b).dtype))


def _square(x: Array) -> Any:
    return lax.real(jnp.vdot(x, x)) if x.dtype.kind == "c" else jnp.dot(x, x)


def cg(
    A: Matrix,
    b: PyTree,
    x0: PyTree | None = None,
    *,
    tol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Matrix | None = None,
) -> tuple:
    """The solution of A x = b by conjugate gradients.

    Args:
      A: a Hermitian positive definite matrix, or a function that multiplies by it.
      b: the right-hand side, an array or a pytree.
      x0: the initial guess, zeros by default.
      tol, atol: the tolerance of the residual, relative to the norm of `b` and absolute.
      maxiter: the maximum number of iterations, by default ten for each unknown.
      M: a preconditioner, an approximate inverse of `A` as a matrix or a function.

    Returns:
      (x, None).

    Raises:
      ShapeError: `A` is not square, or the shape of `x0` does not match `b`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy.sparse import linalg
      >>> linalg.cg(lambda x: 2 * x, jnp.ones(2))[0].tolist()
      [0.5, 0.5]
    """

    def iterate(multiply: Callable, rhs: Array, x: Array, precondition: Callable, bound: Array) -> Any:
        limit = 10 * rhs.shape[0] if maxiter is None else maxiter

        def step_once(state: tuple) -> tuple:
            x, r, p, gamma, k = state
            ap = multiply(p)
            alpha = gamma / jnp.vdot(p, ap)
            x, r = x + alpha * p, r - alpha * ap
            z = precondition(r)
            new = jnp.vdot(r, z)
            return x, r, z + new / gamma * p, new, k + 1

        r = rhs - multiply(x)
        z = precondition(r)
        start = (x, r, z, jnp.vdot(r, z), int32_zero())
        return lax.while_loop(lambda s: (_square(s[1]) > bound) & (s[-1] < limit), step_once, start)[0]

    return _solve("cg", iterate, A, b, x0, tol, atol, M, symmetric=np.dtype(ravel_pytree(b)[0].dtype).kind != "c")


def bicgstab(
    A: Matrix,
    b: PyTree,
    x0: PyTree | None = None,
    *,
    tol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Matrix | None = None,
) -> tuple:
    """The solution of A x = b by the stabilised method of biconjugate gradients.

    Args:
      A: a matrix, or a function that multiplies by it.
      b, x0, tol, atol, maxiter, M: as in `cg`.

    Returns:
      (x, None).

    Raises:
      ShapeError: `A` is not square, or the shape of `x0` does not match `b`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy.sparse import linalg
      >>> linalg.bicgstab(lambda x: 2 * x, jnp.ones(2))[0].tolist()
      [0.5, 0.5]
    """

    def iterate(multiply: Callable, rhs: Array, x: Array, precondition: Callable, bound: Array) -> Any:
        limit = 10 * rhs.shape[0] if maxiter is None else maxiter

        def step_once(state: tuple) -> tuple:
            x, r, shadow, p, v, rho, alpha, omega, k = state
            new = jnp.vdot(shadow, r)
            beta = new / rho * alpha / omega
            p = r + beta * (p - omega * v)
            p_hat = precondition(p)
            v = multiply(p_hat)
            alpha = new / jnp.vdot(shadow, v)
            s = r - alpha * v
            early = _square(s) < bound
            s_hat = precondition(s)
            t = multiply(s_hat)
            size = _square(t)
            omega = jnp.where(early, 0, jnp.vdot(t, s) / cast(jnp.where(size == 0, 1, size), t.dtype))
            x = x + alpha * p_hat + omega * s_hat
            r = jnp.where(early, s, s - omega * t)
            # A factor of 0 is a breakdown of the method; the iteration stops with the current solution.
            broken = (new == 0) | (alpha == 0) | ((omega == 0) & lax.bitwise_not(early))
            k = jnp.where(broken, -1, k + 1)
            return x, r, shadow, p, v, new, alpha, jnp.where(omega == 0, 1, omega), k

        r = rhs - multiply(x)
        start = (x, r, r, r * 0, r * 0, *[lax.full((), 1, rhs.dtype)] * 3, int32_zero())
        return lax.while_loop(lambda s: (_square(s[1]) > bound) & (s[-1] < limit) & (s[-1] >= 0), step_once, start)[0]

    return _solve("bicgstab", iterate, A, b, x0, tol, atol, M, symmetric=False)


def gmres(
    A: Matrix,
    b: PyTree,
    x0: PyTree | None = None,
    *,
    tol: float = 1e-5,
    atol: float = 0.0,
    restart: int = 20,
    maxiter: int | None = None,
    M: Matrix | None = None,
    solve_method: str = "batched",
) -> tuple:
    """The solution of A x = b by the generalized minimal residual method with restarts.

    Args:
      A: a matrix, or a function that multiplies by it.
      b, x0, tol, atol, M: as in `cg`.
      restart: the size of the Krylov subspace between restarts.
      maxiter: the maximum number of restarts, by default ten for each unknown.
      solve_method: `"batched"` or `"incremental"`, which are equivalent here.

    Returns:
      (x, None).

    Raises:
      ArgumentError: the method is unknown.
      ShapeError: `A` is not square, or the shape of `x0` does not match `b`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy.sparse import linalg
      >>> linalg.gmres(lambda x: 2 * x, jnp.ones(2))[0].round(4).tolist()
      [0.5, 0.5]
    """
    check_choice("sparse.linalg.gmres", "solve_method", solve_method, ("batched", "incremental"))

    def iterate(multiply: Callable, rhs: Array, x: Array, precondition: Callable, bound: Array) -> Any:
        n = rhs.shape[0]
        limit, m = 10 * n if maxiter is None else maxiter, min(restart, n)

        def cycle(state: tuple) -> tuple:
            x, r, k = state
            basis, images = _krylov(multiply, precondition, r, m)
            # `y` holds the coefficients of the basis vectors whose combined image is closest to the residual.
            y = jnp.linalg.lstsq(images.T, r)[0]
            x = x + precondition(jnp.matmul(basis.T, y))
            return x, rhs - multiply(x), k + 1

        start = (x, rhs - multiply(x), int32_zero())
        return lax.while_loop(lambda s: (_square(s[1]) > bound) & (s[-1] < limit), cycle, start)[0]

    return _solve("gmres", iterate, A, b, x0, tol, atol, M, symmetric=False)


def _krylov(multiply: Callable, precondition: Callable, r: ArrayLike | None, m: int) -> tuple:
    """An orthonormal basis of the Krylov subspace of `r` in rows, and the images of its vectors.

    Gram-Schmidt is applied twice, since one pass loses orthogonality to rounding. Rows are zeros once the subspace is
    exhausted.
    """
    size = lax.sqrt(_square(r))
    first = r / cast(jnp.where(size == 0, 1, size), r.dtype)
    eps = 1e-6 if np.dtype(r.dtype).itemsize // (2 if np.dtype(r.dtype).kind == "c" else 1) < 8 else 1e-14

    def step(k: Array, state: tuple) -> tuple:
        basis, images, q = state
        image = multiply(precondition(q))
        basis = lax.dynamic_update_slice_in_dim(basis, q[None], k, 0)
        images = lax.dynamic_update_slice_in_dim(images, image[None], k, 0)
        w = image
        # One pass of Gram-Schmidt loses orthogonality by rounding; two are enough (Giraud et al., 2005,
        # doi:10.1007/s00211-005-0615-4).
        for _ in range(2):
            w = w - jnp.matmul(jnp.matmul(jnp.conjugate(basis), w), basis)
        length = lax.sqrt(_square(w))
        spent = length <= eps * lax.sqrt(_square(image))
        q = jnp.where(spent, 0, w / cast(jnp.where(spent, 1, length), w.dtype))
        return basis, images, q

    empty = lax.full((m, *r.shape), 0, r.dtype)
    return lax.fori_loop(0, m, step, (empty, empty, first))[:2]
