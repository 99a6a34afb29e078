"""Checks for tests: `check_grads` compares derivatives with numerical differences, of users' functions and our rules.

Forward mode is compared with central differences along a random direction, reverse mode with forward mode by the
equality of their inner products, and both again for the derivative itself up to the order asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import dtypes
from phalanx.core.aval import aval_of
from phalanx.core.errors import ArgumentError
from phalanx.engine.frames import boundary
from phalanx.transforms.autodiff import jvp, vjp
from phalanx.tree import tree_flatten, tree_map, tree_unflatten

# Relative step and tolerance by the number of mantissa digits: the best trade between cutting and rounding errors.
_STEPS = {"float64": 1e-5, "float32": 1e-2, "float16": 1e-1, "bfloat16": 1e-1}
_TOLERANCES = {"float64": 1e-6, "float32": 2e-2, "float16": 1e-1, "bfloat16": 2e-1}


@boundary
def check_grads(
    fun: Callable, args: Sequence[Any], order: int, modes: Sequence[str] = ("fwd", "rev"), atol: float | None = None,
    rtol: float | None = None, eps: float | None = None,
) -> None:  # fmt: skip
    """Compare the derivatives of a function with numerical differences.

    Args:
      fun: a function of arrays or pytrees of them, which may have results of any dtype.
      args: its arguments, at a point where it is smooth; only floating and complex leaves are varied.
      order: up to which derivative, at least 1.
      modes: "fwd" to check forward mode, "rev" to check reverse mode too.
      atol: absolute tolerance; by default fitting the dtype.
      rtol: relative tolerance; by default fitting the dtype.
      eps: the step of the differences; by default fitting the dtype.

    Raises:
      AssertionError: a derivative differs from its differences; the message says which.
      ArgumentError: `order` or a mode is not one of those above, or no argument can be varied.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> from phalanx.test_util import check_grads
      >>> check_grads(lax.sin, (np.float32(0.5),), order=2)
    """
    if order < 1 or not set(modes) <= {"fwd", "rev"}:
        raise ArgumentError(
            "check_grads",
            expected="an order of at least 1 and modes out of 'fwd' and 'rev'",
            got=f"{order} and {modes}",
            mend="ask for one derivative at least",
        )
    leaves, tree = tree_flatten(tuple(args))
    varied = [i for i, x in enumerate(leaves) if _is_inexact(x)]
    if not varied:
        raise ArgumentError(
            "check_grads args",
            expected="a floating or complex leaf",
            got=args,
            mend="pass what the function varies with",
        )

    def flat(*xs: Any) -> list:
        full = list(leaves)
        for i, x in zip(varied, xs, strict=True):
            full[i] = x
        out, _ = tree_flatten(fun(*tree_unflatten(tree, full)))
        return [y for y in out if _is_inexact(y)]

    checker = _Checker(modes, atol, rtol, eps)
    checker.check(flat, [leaves[i] for i in varied], order, "")


@boundary
def check_jvp(
    f: Callable, f_jvp: Callable, args: Sequence[Any], atol: float | None = None, rtol: float | None = None,
    eps: float | None = None,
) -> None:  # fmt: skip
    """Compare a forward derivative with numerical differences.

    Args:
      f: a function of floating or complex arrays or pytrees of them.
      f_jvp: `f_jvp(primals, tangents)` gives the result and its tangent.
      args: the arguments, at a point where `f` is smooth.
      atol, rtol, eps: as for `check_grads`.

    Raises:
      AssertionError: the result or its tangent differs.

    Examples:
      >>> import functools, phalanx
      >>> check_jvp(phalanx.lax.sin, functools.partial(phalanx.jvp, phalanx.lax.sin), (0.5,))
    """
    _compare_jvp(f, f_jvp, tuple(args), _Checker((), atol, rtol, eps))


@boundary
def check_vjp(
    f: Callable, f_vjp: Callable, args: Sequence[Any], atol: float | None = None, rtol: float | None = None,
    eps: float | None = None,
) -> None:  # fmt: skip
    """Compare a reverse derivative with numerical differences.

    Args:
      f: a function of floating or complex arrays or pytrees of them.
      f_vjp: `f_vjp(*args)` gives the result and a function from its cotangent to those of the arguments.
      args: the arguments, at a point where `f` is smooth.
      atol, rtol, eps: as for `check_grads`.

    Raises:
      AssertionError: the result differs, or the cotangents are not those of the differences.

    Examples:
      >>> import functools, phalanx
      >>> check_vjp(phalanx.lax.sin, functools.partial(phalanx.vjp, phalanx.lax.sin), (0.5,))
    """
    args = tuple(args)
    checker = _Checker((), atol, rtol, eps)
    out, pullback = f_vjp(*args)
    y_bar = tree_map(checker.direction, out)
    x_bars = pullback(y_bar)

    def forward(primals: Any, tangents: Any) -> tuple:
        """The tangent's product with the cotangent, as the reverse derivative has it."""
        return _product(y_bar, f(*primals)), _product(x_bars, tangents)

    _compare_trees("the result of f_vjp", out, f(*args), checker.tolerances(args))
    _compare_jvp(lambda *xs: _product(y_bar, f(*xs)), forward, args, checker)


def _product(a: Any, b: Any) -> np.ndarray:
    """The real inner product of a tree of values and one of cotangents."""
    pairs = zip(tree_flatten(a)[0], tree_flatten(b)[0], strict=True)
    return np.asarray(sum(np.sum(_wide(x) * _wide(y)).real for x, y in pairs))


def _compare_jvp(f: Callable, f_jvp: Callable, args: tuple, checker: _Checker) -> None:
    eps = checker.eps or _STEPS[_part_name(aval_of(tree_flatten(args)[0][0]).dtype)]
    tangents = tree_map(checker.direction, args)
    out, out_dot = f_jvp(args, tangents)
    up, down = (f(*tree_map(lambda x, t, s=step: _moved(x, t, s), args, tangents)) for step in (eps, -eps))
    slopes = tree_map(lambda a, b: (_wide(a) - _wide(b)) / (2 * eps), up, down)
    tolerances = checker.tolerances(args)
    _compare_trees("the result beside the derivative", out, f(*args), tolerances)
    _compare_trees("the derivative, beside differences", out_dot, slopes, tolerances)


def _compare_trees(what: str, got: Any, want: Any, tolerances: tuple[float, float]) -> None:
    (found, tree), (wanted, other) = tree_flatten(got), tree_flatten(want)
    if tree != other:
        raise AssertionError(f"{what}: the structure {tree} is not {other}")
    for x, y in zip(found, wanted, strict=True):
        _compare(what, _wide(x), _wide(y), *tolerances)


def _is_inexact(x: Any) -> bool:
    return dtypes.issubdtype(aval_of(x).dtype, np.inexact)


class _Checker:
    def __init__(self, modes: Sequence[str], atol: float | None, rtol: float | None, eps: float | None):
        self.modes, self.atol, self.rtol, self.eps = modes, atol, rtol, eps
        self.random = np.random.default_rng(0)

    def tolerances(self, args: Any) -> tuple[float, float]:
        """The relative and the absolute one, by default fitting the dtype of the first argument."""
        fitting = _TOLERANCES[_part_name(aval_of(tree_flatten(args)[0][0]).dtype)]
        return fitting if self.rtol is None else self.rtol, fitting if self.atol is None else self.atol

    def direction(self, x: Any) -> np.ndarray:
        aval = aval_of(x)
        v = self.random.standard_normal(aval.shape)
        if dtypes.issubdtype(aval.dtype, np.complexfloating):
            v = v + 1j * self.random.standard_normal(aval.shape)
        return np.asarray(v).astype(aval.dtype)

    def check(self, fun: Callable, xs: list, order: int, path: str) -> None:
        name = _part_name(aval_of(xs[0]).dtype)
        eps = self.eps or _STEPS[name]
        rtol, atol = self.tolerances(xs)
        v = [self.direction(x) for x in xs]
        ys, y_dots = jvp(fun, xs, v)
        up = fun(*[_moved(x, t, eps) for x, t in zip(xs, v, strict=True)])
        down = fun(*[_moved(x, t, -eps) for x, t in zip(xs, v, strict=True)])
        slopes = [(_wide(a) - _wide(b)) / (2 * eps) for a, b in zip(up, down, strict=True)]
        for i, (y_dot, slope) in enumerate(zip(y_dots, slopes, strict=True)):
            _compare(f"{path}forward derivative of result {i}, beside differences", _wide(y_dot), slope, rtol, atol)
        y_bars = [self.direction(y) for y in ys]
        if "rev" in self.modes:
            x_bars = vjp(fun, *xs)[1](y_bars)
            forward = sum(np.sum(_wide(b) * _wide(t)).real for b, t in zip(y_bars, y_dots, strict=True))
            reverse = sum(np.sum(_wide(b) * _wide(t)).real for b, t in zip(x_bars, v, strict=True))
            scale = sum(np.sum(np.abs(_wide(b) * _wide(t))) for b, t in zip(y_bars, y_dots, strict=True))
            _compare(
                f"{path}reverse derivative, beside the forward one", reverse, forward, rtol, atol * max(1.0, scale)
            )
        if order > 1:
            if "fwd" in self.modes:
                self.check(lambda *p: jvp(fun, p, v)[1], xs, order - 1, f"{path}derivative of the ")
            if "rev" in self.modes:
                self.check(lambda *p: list(vjp(fun, *p)[1](y_bars)), xs, order - 1, f"{path}derivative of the reverse ")


def _part_name(dtype: Any) -> str:
    return {"complex64": "float32", "complex128": "float64"}.get(dtype.name, dtype.name)


def _wide(x: Any) -> np.ndarray:
    x = np.asarray(x)
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def _moved(x: Any, v: np.ndarray, eps: float) -> np.ndarray:
    return (_wide(x) + eps * _wide(v)).astype(aval_of(x).dtype)


def _compare(what: str, got: Any, want: Any, rtol: float, atol: float) -> None:
    if not np.allclose(got, want, rtol=rtol, atol=atol):
        raise AssertionError(f"{what}: {got} is not {want} (rtol={rtol}, atol={atol})")
