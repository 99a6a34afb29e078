"""`check_grads`, `check_jvp` and `check_vjp`: compare derivatives with numerical differences.

Forward mode is compared with the central difference along a random direction v. Reverse mode is compared with forward
mode, or with the difference if only reverse mode is checked, through the identity <y_bar, J v> = <J^T y_bar, v> for a
random cotangent y_bar. Derivatives of higher order are checked by applying the same comparison to the derivative as a
function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import ArgumentError, dtypes, get_aval
from phalanx.engine.traceback_filtering import api_boundary
from phalanx.transforms import jvp, select_argnums, vjp
from phalanx.tree import tree_flatten, tree_leaves, tree_map, tree_unflatten
from phalanx.typing import ArrayLike, PyTree

# Step and tolerance for each dtype; the step balances truncation errors of the difference against rounding errors.
_STEPS = {"float64": 1e-5, "float32": 1e-2, "float16": 1e-1, "bfloat16": 1e-1}
_TOLERANCES = {"float64": 1e-6, "float32": 2e-2, "float16": 1e-1, "bfloat16": 2e-1}


@api_boundary
def check_grads(
    f: Callable,
    args: Sequence[Any],
    order: int,
    modes: Sequence[str] = ("fwd", "rev"),
    atol: float | None = None,
    rtol: float | None = None,
    eps: float | None = None,
) -> None:
    """Compare the derivatives of a function with numerical differences.

    Args:
      f: a function of pytrees of arrays. Results that are not floating-point or complex are ignored.
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

    xs, fill = select_argnums(tuple(leaves), varied)

    def flat(*xs: Any) -> list:
        return list(filter(_is_inexact, tree_leaves(f(*tree_unflatten(tree, fill(xs))))))

    _Checker(xs, atol, rtol, eps).check(flat, xs, order, modes)


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
    _compare_jvp(f, f_jvp, tuple(args), _Checker(args, atol, rtol, eps))


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
    checker = _Checker(args, atol, rtol, eps)
    out, pullback = f_vjp(*args)
    y_bar = tree_map(checker.direction, out)
    x_bars = pullback(y_bar)

    def forward(primals: PyTree, tangents: PyTree) -> tuple:
        """The value and tangent of <y_bar, f(x)>, the tangent computed from the cotangents of the arguments."""
        return _product(y_bar, f(*primals)), _product(x_bars, tangents)

    _compare_trees("the result of f_vjp", out, f(*args), checker)
    _compare_jvp(lambda *xs: _product(y_bar, f(*xs)), forward, args, checker)


def _product(a: PyTree, b: PyTree) -> np.ndarray:
    """The real part of the inner product of two pytrees (without conjugation)."""
    pairs = zip(tree_leaves(a), tree_leaves(b), strict=True)
    return np.asarray(sum(np.sum(_wide(x) * _wide(y)).real for x, y in pairs))


def _compare_jvp(f: Callable, f_jvp: Callable, args: tuple, checker: _Checker) -> None:
    tangents = tree_map(checker.direction, args)
    out, out_dot = f_jvp(args, tangents)
    slopes = checker.slopes(f, args, tangents)
    _compare_trees("the result beside the derivative", out, f(*args), checker)
    _compare_trees("the derivative, beside differences", out_dot, slopes, checker)


def _compare_trees(what: str, got: PyTree, want: PyTree, checker: _Checker) -> None:
    (found, tree), (wanted, other) = tree_flatten(got), tree_flatten(want)
    if tree != other:
        raise AssertionError(f"{what}: the structure {tree} is not {other}")
    for x, y in zip(found, wanted, strict=True):
        checker.compare(what, _wide(x), _wide(y))


def _is_inexact(x: ArrayLike) -> bool:
    return dtypes.issubdtype(get_aval(x).dtype, np.inexact)


class _Checker:
    """The step, the tolerances and the random directions of one check.

    Args:
      args: the arguments. The dtype of the first one determines the step and the tolerances that are not given.
      atol, rtol, eps: as for `check_grads`.
    """

    def __init__(self, args: PyTree, atol: float | None, rtol: float | None, eps: float | None):
        dtype = get_aval(tree_leaves(args)[0]).dtype
        name = {"complex64": "float32", "complex128": "float64"}.get(dtype.name, dtype.name)
        self.eps = eps or _STEPS[name]
        self.atol = _TOLERANCES[name] if atol is None else atol
        self.rtol = _TOLERANCES[name] if rtol is None else rtol
        # A fixed seed: a failing check must fail again when it is repeated.
        self.random = np.random.default_rng(0)

    def direction(self, x: ArrayLike) -> np.ndarray:
        """A random tangent or cotangent of a value."""
        aval = get_aval(x)
        v = self.random.standard_normal(aval.shape)
        if dtypes.issubdtype(aval.dtype, np.complexfloating):
            v = v + 1j * self.random.standard_normal(aval.shape)
        return np.asarray(v).astype(aval.dtype)

    def slopes(self, f: Callable, args: Sequence[Any], tangents: Sequence[Any]) -> PyTree:
        """Central differences along `tangents`, in float64: their truncation error is O(eps^2), not O(eps)."""
        up, down = (f(*tree_map(lambda x, t, s=s: _step(x, t, s), args, tangents)) for s in (self.eps, -self.eps))
        return tree_map(lambda a, b: (_wide(a) - _wide(b)) / (2 * self.eps), up, down)

    def compare(self, what: str, got: ArrayLike, want: ArrayLike, scale: float = 1.0) -> None:
        """Raise an error if two values differ by more than the tolerances, the absolute one multiplied by `scale`."""
        atol = self.atol * scale
        if not np.allclose(got, want, rtol=self.rtol, atol=atol):
            raise AssertionError(f"{what}: {got} is not {want} (rtol={self.rtol}, atol={atol})")

    def check(self, fun: Callable, xs: tuple, order: int, modes: Sequence[str], path: str = "") -> None:
        """Check the derivatives of a function of flat arguments with a list of results, up to `order`."""
        v = tree_map(self.direction, xs)
        slopes = self.slopes(fun, xs, v)
        if "fwd" in modes:
            (ys, y_dots), beside = jvp(fun, xs, v), "forward one"
            for i, (y_dot, slope) in enumerate(zip(y_dots, slopes, strict=True)):
                self.compare(f"{path}forward derivative of result {i}, beside differences", _wide(y_dot), slope)
        else:  # a custom_vjp function has no forward mode
            ys, y_dots, beside = fun(*xs), slopes, "differences"
        # One random cotangent checks the whole adjoint, up to a null set of directions.
        y_bars = tree_map(self.direction, ys)
        if "rev" in modes:
            reverse, forward = _product(vjp(fun, *xs)[1](y_bars), v), _product(y_bars, y_dots)
            # Rounding errors of an inner product grow with the sum of the absolute values of its terms.
            scale = sum(np.sum(np.abs(_wide(b) * _wide(t))) for b, t in zip(y_bars, y_dots, strict=True))
            self.compare(f"{path}reverse derivative, beside the {beside}", reverse, forward, max(1.0, scale))
        if order > 1 and "fwd" in modes:
            self.check(lambda *p: jvp(fun, p, v)[1], xs, order - 1, modes, f"{path}derivative of the ")
        if order > 1 and "rev" in modes:
            self.check(
                lambda *p: list(vjp(fun, *p)[1](y_bars)), xs, order - 1, modes, f"{path}derivative of the reverse "
            )


def _wide(x: ArrayLike) -> np.ndarray:
    x = np.asarray(x)
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def _step(x: ArrayLike, v: np.ndarray, eps: float) -> np.ndarray:
    # The sum is rounded once, to the dtype of the argument.
    return (_wide(x) + eps * _wide(v)).astype(get_aval(x).dtype)
