"""`check_grads`, `check_jvp` and `check_vjp`: compare derivatives with numerical differences.

Forward mode is compared with the central difference along a random direction v. Reverse mode is compared with forward
mode through the identity <y_bar, J v> = <J^T y_bar, v> for a random cotangent y_bar. Derivatives of higher order are
checked by applying the same comparison to the derivative as a function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import ArgumentError, dtypes, get_aval
from phalanx.engine.traceback_filtering import api_boundary
from phalanx.transforms.jvp_and_vjp import jvp, vjp
from phalanx.tree import tree_flatten, tree_map, tree_unflatten
from phalanx.typing import ArrayLike, PyTree

# Step and tolerance for each dtype; the step balances truncation errors of the difference against rounding errors.
_STEPS = {"float64": 1e-5, "float32": 1e-2, "float16": 1e-1, "bfloat16": 1e-1}
_TOLERANCES = {"float64": 1e-6, "float32": 2e-2, "float16": 1e-1, "bfloat16": 2e-1}


@api_boundary
def check_grads(
    fun: Callable,
    args: Sequence[Any],
    order: int,
    modes: Sequence[str] = ("fwd", "rev"),
    atol: float | None = None,
    rtol: float | None = None,
    eps: float | None = None,
) -> None:
    """Compare the derivatives of a function with numerical differences.

    Args:
      fun: a function of pytrees of arrays. Results that are not floating-point or complex are ignored.
      args: the arguments, at a point where the function is smooth. Only floating-point and complex leaves are varied.
      order: the highest order of derivatives to check, at least 1.
      modes: "fwd" to check forward mode, "rev" to check reverse mode.
      atol: absolute tolerance; by default chosen according to the dtype.
      rtol: relative tolerance; by default chosen according to the dtype.
      eps: the step of the numerical differences; by default chosen according to the dtype.

    Raises:
      AssertionError: a derivative differs from the numerical difference; the message names the derivative.
      ArgumentError: `order` or a mode is invalid, or no argument is floating-point or complex.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> from phalanx.test_util import check_grads
      >>> check_grads(lax.sin, (np.float32(0.5),), order=2)
    """
    if order < 1 or not set(modes) <= {"fwd", "rev"}:
        raise ArgumentError(
            "check_grads",
            expected="an order of at least 1 and modes among 'fwd' and 'rev'",
            got=f"{order} and {modes}",
            fix="pass order=1, for example, and modes=('fwd', 'rev')",
        )
    leaves, tree = tree_flatten(tuple(args))
    varied = [i for i, x in enumerate(leaves) if _is_inexact(x)]
    if not varied:
        raise ArgumentError(
            "check_grads args",
            expected="a floating or complex leaf",
            got=args,
            fix="pass at least one floating-point or complex argument",
        )

    def flat(*xs: Any) -> list:
        full = list(leaves)
        for i, x in zip(varied, xs, strict=True):
            full[i] = x
        out, _ = tree_flatten(fun(*tree_unflatten(tree, full)))
        return [y for y in out if _is_inexact(y)]

    checker = _Checker(modes, atol, rtol, eps)
    checker.check(flat, [leaves[i] for i in varied], order, "")


@api_boundary
def check_jvp(
    f: Callable,
    f_jvp: Callable,
    args: Sequence[Any],
    atol: float | None = None,
    rtol: float | None = None,
    eps: float | None = None,
) -> None:
    """Compare a Jacobian-vector product with numerical differences.

    Args:
      f: a function of pytrees of floating-point or complex arrays.
      f_jvp: `f_jvp(primals, tangents)` returns the result and its tangent.
      args: the arguments, at a point where `f` is smooth.
      atol, rtol, eps: as for `check_grads`.

    Raises:
      AssertionError: the result or its tangent differs.

    Examples:
      >>> import functools, phalanx
      >>> check_jvp(phalanx.lax.sin, functools.partial(phalanx.jvp, phalanx.lax.sin), (0.5,))
    """
    _compare_jvp(f, f_jvp, tuple(args), _Checker((), atol, rtol, eps))


@api_boundary
def check_vjp(
    f: Callable,
    f_vjp: Callable,
    args: Sequence[Any],
    atol: float | None = None,
    rtol: float | None = None,
    eps: float | None = None,
) -> None:
    """Compare a vector-Jacobian product with numerical differences.

    Args:
      f: a function of pytrees of floating-point or complex arrays.
      f_vjp: `f_vjp(*args)` returns the result and a function from its cotangent to the cotangents of the arguments.
      args: the arguments, at a point where `f` is smooth.
      atol, rtol, eps: as for `check_grads`.

    Raises:
      AssertionError: the result differs, or the cotangents contradict the numerical differences.

    Examples:
      >>> import functools, phalanx
      >>> check_vjp(phalanx.lax.sin, functools.partial(phalanx.vjp, phalanx.lax.sin), (0.5,))
    """
    args = tuple(args)
    checker = _Checker((), atol, rtol, eps)
    out, pullback = f_vjp(*args)
    y_bar = tree_map(checker.direction, out)
    x_bars = pullback(y_bar)

    def forward(primals: PyTree, tangents: PyTree) -> tuple:
        """The value and tangent of <y_bar, f(x)>, the tangent computed from the cotangents of the arguments."""
        return _product(y_bar, f(*primals)), _product(x_bars, tangents)

    _compare_trees("the result of f_vjp", out, f(*args), checker.tolerances(args))
    _compare_jvp(lambda *xs: _product(y_bar, f(*xs)), forward, args, checker)


def _product(a: PyTree, b: PyTree) -> np.ndarray:
    """The real part of the inner product of two pytrees (without conjugation)."""
    pairs = zip(tree_flatten(a)[0], tree_flatten(b)[0], strict=True)
    return np.asarray(sum(np.sum(_wide(x) * _wide(y)).real for x, y in pairs))


def _compare_jvp(f: Callable, f_jvp: Callable, args: tuple, checker: _Checker) -> None:
    eps = checker.eps or _STEPS[_part_name(get_aval(tree_flatten(args)[0][0]).dtype)]
    tangents = tree_map(checker.direction, args)
    out, out_dot = f_jvp(args, tangents)
    up, down = (f(*tree_map(lambda x, t, s=step: _step(x, t, s), args, tangents)) for step in (eps, -eps))
    # Central differences, in float64: their truncation error is O(eps^2), that of one-sided differences O(eps).
    slopes = tree_map(lambda a, b: (_wide(a) - _wide(b)) / (2 * eps), up, down)
    tolerances = checker.tolerances(args)
    _compare_trees("the result beside the derivative", out, f(*args), tolerances)
    _compare_trees("the derivative, beside differences", out_dot, slopes, tolerances)


def _compare_trees(what: str, got: PyTree, want: PyTree, tolerances: tuple[float, float]) -> None:
    (found, tree), (wanted, other) = tree_flatten(got), tree_flatten(want)
    if tree != other:
        raise AssertionError(f"{what}: the structure {tree} is not {other}")
    for x, y in zip(found, wanted, strict=True):
        _compare(what, _wide(x), _wide(y), *tolerances)


def _is_inexact(x: ArrayLike) -> bool:
    return dtypes.issubdtype(get_aval(x).dtype, np.inexact)


class _Checker:
    def __init__(self, modes: Sequence[str], atol: float | None, rtol: float | None, eps: float | None):
        self.modes, self.atol, self.rtol, self.eps = modes, atol, rtol, eps
        # A fixed seed: a failing check must fail again when it is repeated.
        self.random = np.random.default_rng(0)

    def tolerances(self, args: PyTree) -> tuple[float, float]:
        """Relative and absolute tolerance, by default according to the dtype of the first argument."""
        fitting = _TOLERANCES[_part_name(get_aval(tree_flatten(args)[0][0]).dtype)]
        return fitting if self.rtol is None else self.rtol, fitting if self.atol is None else self.atol

    def direction(self, x: ArrayLike) -> np.ndarray:
        aval = get_aval(x)
        v = self.random.standard_normal(aval.shape)
        if dtypes.issubdtype(aval.dtype, np.complexfloating):
            v = v + 1j * self.random.standard_normal(aval.shape)
        return np.asarray(v).astype(aval.dtype)

    def check(self, fun: Callable, xs: list, order: int, path: str) -> None:
        name = _part_name(get_aval(xs[0]).dtype)
        eps = self.eps or _STEPS[name]
        rtol, atol = self.tolerances(xs)
        v = [self.direction(x) for x in xs]
        ys, y_dots = jvp(fun, xs, v)
        up = fun(*[_step(x, t, eps) for x, t in zip(xs, v, strict=True)])
        down = fun(*[_step(x, t, -eps) for x, t in zip(xs, v, strict=True)])
        slopes = [(_wide(a) - _wide(b)) / (2 * eps) for a, b in zip(up, down, strict=True)]
        for i, (y_dot, slope) in enumerate(zip(y_dots, slopes, strict=True)):
            _compare(f"{path}forward derivative of result {i}, beside differences", _wide(y_dot), slope, rtol, atol)
        # One random cotangent checks the whole adjoint, up to a null set of directions.
        y_bars = [self.direction(y) for y in ys]
        if "rev" in self.modes:
            x_bars = vjp(fun, *xs)[1](y_bars)
            forward = sum(np.sum(_wide(b) * _wide(t)).real for b, t in zip(y_bars, y_dots, strict=True))
            reverse = sum(np.sum(_wide(b) * _wide(t)).real for b, t in zip(x_bars, v, strict=True))
            # Rounding errors of an inner product grow with the sum of the absolute values of its terms.
            scale = sum(np.sum(np.abs(_wide(b) * _wide(t))) for b, t in zip(y_bars, y_dots, strict=True))
            _compare(
                f"{path}reverse derivative, beside the forward one", reverse, forward, rtol, atol * max(1.0, scale)
            )
        if order > 1:
            if "fwd" in self.modes:
                self.check(lambda *p: jvp(fun, p, v)[1], xs, order - 1, f"{path}derivative of the ")
            if "rev" in self.modes:
                self.check(lambda *p: list(vjp(fun, *p)[1](y_bars)), xs, order - 1, f"{path}derivative of the reverse ")


def _part_name(dtype: np.dtype) -> str:
    return {"complex64": "float32", "complex128": "float64"}.get(dtype.name, dtype.name)


def _wide(x: ArrayLike) -> np.ndarray:
    x = np.asarray(x)
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def _step(x: ArrayLike, v: np.ndarray, eps: float) -> np.ndarray:
    return (_wide(x) + eps * _wide(v)).astype(get_aval(x).dtype)


def _compare(what: str, got: PyTree, want: PyTree, rtol: float, atol: float) -> None:
    if not np.allclose(got, want, rtol=rtol, atol=atol):
        raise AssertionError(f"{what}: {got} is not {want} (rtol={rtol}, atol={atol})")
