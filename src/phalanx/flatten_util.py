"""`ravel_pytree`: a tree of arrays as one vector, for solvers and optimisers that know vectors only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from phalanx.core.aval import aval_of
from phalanx.core.errors import ArgumentTypeError
from phalanx.core.promotion import result_type
from phalanx.engine.frames import boundary
from phalanx.engine.frames import guard as _guard
from phalanx.lax import convert_element_type, reshape, slice_in_dim
from phalanx.numpy import concatenate, zeros
from phalanx.tree import tree_flatten, tree_unflatten


def ravel_pytree(pytree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Put all elements of a tree of arrays into one vector.

    Args:
      pytree: arrays and scalars in a tree.

    Returns:
      The vector, in the dtype that all leaves promote to; and the function that makes such a vector a tree again, with
      the shapes and dtypes of this one.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> flat, unravel = ravel_pytree({"w": jnp.ones((2, 2)), "b": 3.0})
      >>> flat.tolist()
      [3.0, 1.0, 1.0, 1.0, 1.0]
      >>> unravel(2 * flat)["w"].tolist()
      [[2.0, 2.0], [2.0, 2.0]]
    """
    leaves, tree = tree_flatten(pytree)
    avals = [aval_of(x) for x in leaves]
    dtype = result_type(*leaves) if leaves else None
    if leaves:
        flat = concatenate([reshape(convert_element_type(x, dtype), (a.size,)) for x, a in zip(leaves, avals)])
    else:
        flat = zeros(0)
    size = sum(a.size for a in avals)

    @boundary
    def unravel(vector: Any) -> Any:
        given = aval_of(vector)
        if given.shape != (size,) or (leaves and given.dtype != dtype):
            raise ArgumentTypeError(
                "unravel, argument vector",
                expected=f"{dtype}[{size}]",
                got=given.str_short(),
                mend="give a vector like the one that ravel_pytree returned",
            )
        parts, start = [], 0
        for a in avals:
            part = reshape(slice_in_dim(vector, start, start + a.size), a.shape)
            parts.append(convert_element_type(part, a.dtype))
            start += a.size
        return tree_unflatten(tree, parts)

    return flat, unravel


_guard(globals(), ["ravel_pytree"])
