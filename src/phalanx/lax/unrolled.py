"""Loops and choices that Python itself runs, one operation after the other, as `disable_jit` asks for.

Called by `loops` and `branches` in place of staging, so that bodies may branch on values, print and be stepped through.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from phalanx.core.aval import aval_of
from phalanx.core.config import state
from phalanx.core.trace import Tracer
from phalanx.lax.shape import concatenate, index_in_dim, reshape
from phalanx.tree import tree_flatten, tree_map, tree_unflatten


def runs_in_python(value: Any) -> bool:
    """Whether Python is to run what depends on a value: `disable_jit` is on, and the value is known."""
    return state.context.disable_jit and (not isinstance(value, Tracer) or value.concrete is not None)


def scan_in_python(f: Callable, carry: Any, xs: Any, size: int, reverse: bool) -> tuple:
    """`scan` over at least one element."""
    leaves, tree = tree_flatten(xs)
    ys: list = [None] * size
    for i in reversed(range(size)) if reverse else range(size):
        x = tree_unflatten(tree, [index_in_dim(leaf, i, 0, keepdims=False) for leaf in leaves])
        carry, ys[i] = f(carry, x)
    return carry, tree_map(lambda *parts: concatenate([reshape(y, (1, *aval_of(y).shape)) for y in parts], 0), *ys)


def while_in_python(cond_fun: Callable, body_fun: Callable, carry: Any, goes_on: Any) -> Any:
    """`while_loop`, given whether the condition holds of the first carry."""
    while goes_on:
        carry = body_fun(carry)
        goes_on = cond_fun(carry)
    return carry
