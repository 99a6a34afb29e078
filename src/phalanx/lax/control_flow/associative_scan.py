"""`associative_scan`: all prefix combinations of a sequence in logarithmic depth.

Algorithm: combine neighbours, scan the sequence of these pairs, which is half as long, and interleave. The result of
the inner scan gives every odd position; combining it with the next element gives the even ones. The depth is
2 log2(n), the work 2n combinations.

Source: Blelloch (1990), Prefix sums and their applications.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx.core import ArgumentError, check_function, get_aval, vector_space
from phalanx.lax.control_flow.scan import scan
from phalanx.lax.elementwise import or_p
from phalanx.lax.indexing.static_slice import index_in_dim, pad, slice_in_dim
from phalanx.lax.shape import expand_dims, insert_dim, move_dim, resolve_dims, rev
from phalanx.lax.shape.concatenate import concatenate
from phalanx.symbolic import bounds, is_symbolic, non_negative
from phalanx.tree import tree_flatten, tree_unflatten


def associative_scan(fn: Callable, elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """Combine each element of a sequence with all elements before it, in parallel.

    Args:
      fn: an associative function of two pytrees of elements, which must be vectorized along `axis`.
      elems: a pytree of arrays of the same length along `axis`.
      reverse: combine each element with all elements after it instead.
      axis: the dimension of the sequence.

    Returns:
      A pytree like `elems`; its element i is the combination of elements 0 to i.

    Raises:
      ArgumentTypeError: `fn` is not callable.
      ArgumentError: the arrays have different lengths along `axis`.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> phalanx.lax.associative_scan(jnp.add, jnp.arange(4)).tolist()
      [0, 1, 3, 6]
    """
    check_function("associative_scan, argument fn", fn)
    leaves, tree = tree_flatten(elems)
    for x in leaves:
        resolve_dims("associative_scan, argument axis", (axis,), get_aval(x).ndim)
    sizes = {get_aval(x).shape[axis] for x in leaves}
    if len(sizes) != 1:
        raise ArgumentError(
            "associative_scan, argument elems",
            expected="arrays of one length along axis",
            got=f"lengths {sorted(sizes)}",
            fix=f"pass arrays whose dimension {axis} has one size",
        )
    axis = axis % get_aval(leaves[0]).ndim

    def combine(a: list, b: list) -> list:
        return tree_flatten(fn(tree_unflatten(tree, a), tree_unflatten(tree, b)))[0]

    if reverse:
        leaves = [rev(x, (axis,)) for x in leaves]
    (size,) = sizes
    out = sequential_scan(combine, leaves, axis) if is_symbolic(size) else _scan(combine, leaves, axis)
    return tree_unflatten(tree, [rev(x, (axis,)) for x in out] if reverse else out)


def sequential_scan(combine: Callable, elems: list, axis: int) -> list:
    """Prefix combinations in n sequential steps, for a symbolic n, whose recursion by halving would not terminate."""
    moved = [move_dim(x, axis, 0) for x in elems]
    size = get_aval(moved[0]).shape[0]
    if bounds(size)[0] < 1:  # pad to at least one element, since the scan starts from the first
        config = [(0, non_negative(1 - size), 0)]
        moved = [pad(x, get_aval(x).dtype.type(0), config + [(0, 0, 0)] * (get_aval(x).ndim - 1)) for x in moved]
    first = [index_in_dim(x, 0, 0, keepdims=False) for x in moved]

    def step(carry: list, x: list) -> tuple:
        combined = combine(carry, x)
        return combined, combined

    rest = scan(step, first, [slice_in_dim(x, 1, None, 1, 0) for x in moved])[1]
    joined = [concatenate([expand_dims(a, (0,)), b], 0) for a, b in zip(first, rest, strict=True)]
    return [move_dim(x if get_aval(x).shape[0] == size else slice_in_dim(x, 0, size), 0, axis) for x in joined]


def _scan(combine: Callable, elems: list, axis: int) -> list:
    size = get_aval(elems[0]).shape[axis]
    if size < 2:
        return elems

    def take(start: int, stop: int | None, stride: int = 1, xs: list = elems) -> list:
        return [slice_in_dim(x, start, stop, stride, axis) for x in xs]

    # All pairs are combined in one vectorized call, and the recursion runs on half as many elements.
    odd = _scan(combine, combine(take(0, size - 1, 2), take(1, None, 2)), axis)
    # odd[i] combines elements 0 to 2 i + 1, so combining it with element 2 i + 2 gives the next even position.
    before = odd if size % 2 else take(0, -1, xs=odd)
    rest = combine(before, take(2, None, 2)) if size > 2 else []
    first = take(0, 1)
    even = [concatenate([f, r], axis) for f, r in zip(first, rest)] if rest else first
    return [_interleave(a, b, axis) for a, b in zip(even, odd)]


def _interleave(a: Any, b: Any, axis: int) -> Any:
    """Interleave two sequences, `a` at the even positions and `b` at the odd ones."""
    aval = get_aval(a)
    zero = aval.dtype.type(0)
    others = [(0, 0, 0)] * (aval.ndim - 1)
    ends_with_a = int(aval.shape[axis] > get_aval(b).shape[axis])
    # Interior padding spreads each sequence over every second position; the zeros of one meet the values of the other.
    return (or_p if aval.dtype == np.bool_ else vector_space.add)(
        pad(a, zero, insert_dim(others, axis, (0, 1 - ends_with_a, 1))),
        pad(b, zero, insert_dim(others, axis, (1, ends_with_a, 1))),
    )
