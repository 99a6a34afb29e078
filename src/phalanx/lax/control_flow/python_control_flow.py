"""Control flow in Python, for `disable_jit`: loops and branches run their operations eagerly, one after the other.

Loop bodies and branches then see concrete values, so that they can be printed and stepped through in a debugger.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from phalanx.core import Ref, Tracer, get_aval, state
from phalanx.lax.indexing.static_slice import index_in_dim
from phalanx.lax.shape import reshape
from phalanx.lax.shape.concatenate import concatenate
from phalanx.runtime import Array, transfer
from phalanx.tree import tree_flatten, tree_map, tree_unflatten


def runs_in_python(value: Any) -> bool:
    """Whether control flow that depends on a value runs in Python: `disable_jit` is set, and the value is concrete."""
    return state.context.disable_jit and (not isinstance(value, Tracer) or value.concrete is not None)


def scan_in_python(f: Callable, carry: Any, xs: Any, size: int, reverse: bool) -> tuple:
    """`scan` over at least one element."""
    leaves, tree = tree_flatten(xs)
    # Outputs keep the order of the inputs also if the loop runs in reverse.
    ys: list = [None] * size
    for i in reversed(range(size)) if reverse else range(size):
        x = tree_unflatten(tree, [index_in_dim(leaf, i, 0, keepdims=False) for leaf in leaves])
        carry, ys[i] = f(carry, x)
    return carry, tree_map(lambda *parts: concatenate([reshape(y, (1, *get_aval(y).shape)) for y in parts], 0), *ys)


def while_in_python(cond_fun: Callable, body_fun: Callable, carry: Any, goes_on: Any) -> Any:
    """`while_loop`; `goes_on` is the condition for the initial carry.

    The functions see arrays, as in a compiled loop: never Python scalars, nor NumPy arrays, which a body could change
    in place and which may also be in another place of the carry, or the caller's.
    """
    carry = _as_arrays(carry)
    while goes_on:
        carry = _as_arrays(body_fun(carry))
        goes_on = cond_fun(carry)
    return carry


def _as_arrays(carry: Any) -> Any:
    return tree_map(lambda x: x if isinstance(x, Array | Tracer | Ref) else transfer.put(x), carry)
