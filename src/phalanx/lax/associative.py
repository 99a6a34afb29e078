"""`associative_scan`: all prefix combinations of a sequence in logarithmic depth.

Neighbours are combined, the half as long sequence is scanned, and its results are put between the others (Blelloch,
"Prefix sums and their applications", 1990).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from phalanx.core.aval import aval_of
from phalanx.core.errors import ArgumentError, ArgumentTypeError
from phalanx.core.tangent import vector_space
from phalanx.lax.broadcast import move_dim
from phalanx.lax.cumulative import sequences
from phalanx.lax.loops import scan
from phalanx.lax.shape import concatenate, counted_from_front, expand_dims, index_in_dim, rev
from phalanx.lax.slicing import pad, slice_in_dim
from phalanx.symbolic import bounds, is_symbolic, non_negative
from phalanx.tree import tree_flatten, tree_unflatten


def associative_scan(fn: Callable, elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """Combine each element with all before it, in parallel.

    Args:
      fn: an associative function of two pytrees of slices, which must work on many at once.
      elems: a pytree of arrays with one length along `axis`.
      reverse: combine each element with all after it instead.
      axis: the dimension of the sequence.

    Returns:
      A pytree like `elems`: at place i the combination of elements 0 to i.

    Raises:
      ArgumentError: lengths differ.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> phalanx.lax.associative_scan(jnp.add, jnp.arange(4)).tolist()
      [0, 1, 3, 6]
    """
    if not callable(fn):
        raise ArgumentTypeError("associative_scan, argument fn", expected="a function", got=repr(fn), mend="pass one")
    leaves, tree = tree_flatten(elems)
    for x in leaves:
        counted_from_front("associative_scan, argument axis", (axis,), aval_of(x).ndim)
    sizes = {aval_of(x).shape[axis] for x in leaves}
    if len(sizes) != 1:
        raise ArgumentError(
            "associative_scan, argument elems",
            expected="arrays of one length along axis",
            got=f"lengths {sorted(sizes)}",
            mend="make the lengths agree",
        )
    axis = axis % aval_of(leaves[0]).ndim

    def combine(a: list, b: list) -> list:
        return tree_flatten(fn(tree_unflatten(tree, a), tree_unflatten(tree, b)))[0]

    if reverse:
        leaves = [rev(x, (axis,)) for x in leaves]
    (size,) = sizes
    out = one_by_one(combine, leaves, axis) if is_symbolic(size) else _scan(combine, leaves, axis)
    return tree_unflatten(tree, [rev(x, (axis,)) for x in out] if reverse else out)


def one_by_one(combine: Callable, elems: list, axis: int) -> list:
    """The same in as many steps as there are elements, where their number is symbolic and halving it has no end."""
    moved = [move_dim(x, axis, 0) for x in elems]
    size = aval_of(moved[0]).shape[0]
    if bounds(size)[0] < 1:  # there is a first one in any case
        config = [(0, non_negative(1 - size), 0)]
        moved = [pad(x, aval_of(x).dtype.type(0), config + [(0, 0, 0)] * (aval_of(x).ndim - 1)) for x in moved]
    first = [index_in_dim(x, 0, 0, keepdims=False) for x in moved]

    def step(carry: list, x: list) -> tuple:
        reached = combine(carry, x)
        return reached, reached

    rest = scan(step, first, [slice_in_dim(x, 1, None, 1, 0) for x in moved])[1]
    joined = [concatenate([expand_dims(a, (0,)), b], 0) for a, b in zip(first, rest, strict=True)]
    return [move_dim(x if aval_of(x).shape[0] == size else slice_in_dim(x, 0, size), 0, axis) for x in joined]


def _scan(combine: Callable, elems: list, axis: int) -> list:
    size = aval_of(elems[0]).shape[axis]
    if size < 2:
        return elems

    def take(start: int, stop: int | None, stride: int = 1, xs: list = elems) -> list:
        return [slice_in_dim(x, start, stop, stride, axis) for x in xs]

    odd = _scan(combine, combine(take(0, size - 1, 2), take(1, None, 2)), axis)
    heads = aval_of(odd[0]).shape[axis]
    before = odd if size % 2 else [slice_in_dim(x, 0, heads - 1, 1, axis) for x in odd]
    rest = combine(before, take(2, None, 2)) if size > 2 else []
    first = take(0, 1)
    even = [concatenate([f, r], axis) for f, r in zip(first, rest)] if rest else first
    return [_interleaved(a, b, axis) for a, b in zip(even, odd)]


def _interleaved(a: Any, b: Any, axis: int) -> Any:
    """The elements of `a` at the even places and those of `b` at the odd ones."""
    aval = aval_of(a)
    na, nb = aval.shape[axis], aval_of(b).shape[axis]
    zero = aval.dtype.type(0)
    config_a = [(0, 0, 0)] * aval.ndim
    config_b = [(0, 0, 0)] * aval.ndim
    config_a[axis] = (0, 0 if na > nb else 1, 1)
    config_b[axis] = (1, 1 if na > nb else 0, 1)
    return vector_space.add(pad(a, zero, config_a), pad(b, zero, config_b))


sequences.take(one_by_one=one_by_one)
