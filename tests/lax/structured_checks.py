"""Checks that each structured operation (contractions, indexing, windows, transforms, linear algebra) must pass.

A `Case` is a function of a `lax` module and arrays, so that the peer runs the same one. Values are compared with the
peer, derivatives with differences to second order, cotangents with tangents, mapped runs with loops.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

import phalanx
from phalanx import lax


class Case:
    """One way to call an operation.

    Args:
      name: unique, starts with the operation's name.
      fun: takes a `lax` module and the arguments.
      args: NumPy arrays; the inexact ones are differentiated.
      derivative: whether it has one.
      second: whether it has a second one.
      reverse: whether it has one in reverse mode.
      peer: whether the peer has the same operation with the same result.
      batched: whether it can be mapped.
      tol: tolerance of differences.
      fixed: numbers of inexact arguments that are not differentiated.
    """

    def __init__(
        self,
        name: str,
        fun: Callable,
        args: tuple,
        *,
        derivative: bool = True,
        second: bool = True,
        reverse: bool = True,
        peer: bool = True,
        batched: bool = True,
        tol: float = 1e-6,
        fixed: tuple = (),
    ):
        self.name, self.fun, self.args = name, fun, args
        self.derivative, self.second, self.reverse = derivative, second and derivative, reverse and derivative
        self.peer, self.batched, self.tol, self.fixed = peer, batched, tol, fixed

    def __repr__(self) -> str:
        return self.name

    @property
    def operation(self) -> str:
        """The name of the operation."""
        return self.name.split(" ")[0]

    @property
    def varied(self) -> list[int]:
        """The arguments that are differentiated."""
        return [i for i, a in enumerate(self.args) if np.issubdtype(a.dtype, np.inexact) and i not in self.fixed]

    def flat(self, module: Any = lax) -> Callable:
        """The function with a list as its result."""

        def call(*args: Any) -> list:
            out = self.fun(module, *args)
            return list(out) if isinstance(out, list | tuple) else [out]

        return call

    def of_varied(self) -> tuple[Callable, list]:
        """The function of its differentiated arguments alone, with inexact results alone."""
        call = self.flat()

        def of(*values: Any) -> list:
            args = list(self.args)
            for i, v in zip(self.varied, values, strict=True):
                args[i] = v
            return [y for y in call(*args) if np.issubdtype(y.dtype, np.inexact)]

        return of, [self.args[i] for i in self.varied]


def random_like(rng: np.random.Generator, x: Any) -> np.ndarray:
    """Random numbers of the shape and dtype of `x`."""
    dtype = np.dtype(x.dtype)
    out = rng.standard_normal(x.shape)
    return (out + 1j * rng.standard_normal(x.shape)).astype(dtype) if dtype.kind == "c" else out.astype(dtype)


def assert_close(got: Any, want: Any, tol: float, what: str) -> None:
    """Equal shapes and dtypes, and values within a tolerance relative to the largest."""
    assert len(got) == len(want), what
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        g, w = np.asarray(g), np.asarray(w)
        assert g.shape == w.shape, f"{what} {i}: shape {g.shape}, want {w.shape}"
        if g.dtype.kind in "biu":
            np.testing.assert_array_equal(g, w, err_msg=f"{what} {i}")
            continue
        scale = max(1.0, np.abs(w[np.isfinite(w)]).max(initial=0.0)) if w.size else 1.0
        np.testing.assert_allclose(g, w, atol=tol * scale, rtol=tol, err_msg=f"{what} {i}")


def check_staged(case: Case) -> None:
    """Compiled and eager values agree."""
    call = case.flat()
    assert_close(phalanx.jit(call)(*case.args), call(*case.args), 1e-10, "staged")


def check_peer(case: Case, peer: Any) -> None:
    """Values agree with the peer's."""
    got, want = case.flat()(*case.args), case.flat(peer.lax)(*case.args)
    for g, w in zip(got, want, strict=True):
        assert np.dtype(g.dtype) == np.dtype(w.dtype), (g.dtype, w.dtype)
    assert_close(got, want, 1e-9, "peer")


def differences(fun: Callable, x: list, x_dot: list, eps: float = 1e-4) -> list[np.ndarray]:
    """The derivative of `fun` along `x_dot` by central differences of fourth order."""

    def at(step: float) -> list:
        return [np.asarray(y) for y in fun(*[v + step * t for v, t in zip(x, x_dot, strict=True)])]

    near, far = (list(zip(at(s), at(-s), strict=True)) for s in (eps, 2 * eps))
    return [
        (8 * (a - b) - (c - d)) / (12 * eps) for (a, b), (c, d) in zip(near, far, strict=True)
    ]  # fmt: skip


def inner(xs: list, ys: list) -> float:
    """The pairing of tangents and cotangents: the real part of the sum of products."""
    return float(sum(np.sum(np.asarray(x) * np.asarray(y)).real for x, y in zip(xs, ys, strict=True)))


def check_derivative(case: Case) -> None:
    """Tangents agree with differences."""
    rng = np.random.default_rng(1)
    fun, x = case.of_varied()
    x_dot = [random_like(rng, v) for v in x]
    y, y_dot = phalanx.jit(lambda *t: phalanx.jvp(fun, t[: len(x)], t[len(x) :]))(*x, *x_dot)
    assert_close(y, fun(*x), 1e-9, "primal")
    assert_close(y_dot, differences(fun, x, x_dot), case.tol, "tangent")


def check_adjoint(case: Case, at_once: bool = False) -> None:
    """Cotangents pair with tangents as results do, in one compiled program or operation by operation."""
    rng = np.random.default_rng(2)
    fun, x = case.of_varied()
    x_dot = [random_like(rng, v) for v in x]
    y_bar = [random_like(rng, v) for v in fun(*x)]

    def forth_and_back(x: list, x_dot: list, y_bar: list) -> tuple:
        return phalanx.jvp(fun, tuple(x), tuple(x_dot))[1], phalanx.vjp(fun, *x)[1](y_bar)

    y_dot, x_bar = (forth_and_back if at_once else phalanx.jit(forth_and_back))(x, x_dot, y_bar)
    for v, b in zip(x, x_bar, strict=True):
        assert b.shape == v.shape and np.dtype(b.dtype) == v.dtype, (b, v.dtype)
    want = inner(y_bar, y_dot)
    np.testing.assert_allclose(inner(x_bar, x_dot), want, atol=1e-8 * max(1, abs(want)), rtol=1e-8)


def check_second_order(case: Case) -> None:
    """Tangents of cotangents agree with differences."""
    rng = np.random.default_rng(3)
    fun, x = case.of_varied()
    y_bar = [random_like(rng, v) for v in fun(*x)]
    x_dot = [random_like(rng, v) for v in x]

    @phalanx.jit
    def gradient(*values: Any) -> list:
        return list(phalanx.vjp(fun, *values)[1](y_bar))

    got = phalanx.jit(lambda *t: phalanx.jvp(gradient, t[: len(x)], t[len(x) :])[1])(*x, *x_dot)
    assert_close(got, differences(gradient, x, x_dot), 10 * case.tol, "second tangent")


def check_batched(case: Case) -> None:
    """A mapped call equals a loop, for every choice of mapped arguments and some places of the mapped dimension."""
    rng = np.random.default_rng(4)
    call = case.flat()
    size = 3
    stacks = [_stack(rng, a, size) for a in case.args]
    choices = [c for c in itertools.product((False, True), repeat=len(case.args)) if any(c)]
    for place, choice in itertools.product((0, -1), choices[-7:]):
        in_axes = tuple(place if c else None for c in choice)
        args = [np.moveaxis(s, 0, place) if c else a for a, s, c in zip(case.args, stacks, choice, strict=True)]
        got = phalanx.vmap(call, in_axes=in_axes)(*args)
        runs = [
            call(*[s[i] if c else a for a, s, c in zip(case.args, stacks, choice, strict=True)]) for i in range(size)
        ]
        want = [np.stack([np.asarray(r[k]) for r in runs]) for k in range(len(runs[0]))]
        assert_close(got, want, 1e-8, f"mapped {in_axes}")


def _stack(rng: np.random.Generator, a: np.ndarray, size: int) -> np.ndarray:
    if a.dtype.kind in "biu":
        return np.stack([a, np.roll(a, 1), np.roll(a, 2)][:size])
    return np.stack([a + 0.1 * random_like(rng, a) for _ in range(size)])


@functools.cache
def numbers(seed: int, *shape: int, dtype: str = "float64") -> np.ndarray:
    """Reproducible random numbers."""
    return random_like(np.random.default_rng(seed), np.empty(shape, dtype))
