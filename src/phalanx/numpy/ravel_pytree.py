"""`ravel_pytree`: a pytree of arrays as one vector, for solvers and optimisers that work on vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from phalanx.core import ArgumentTypeError, ShapedArray, get_aval, result_type
from phalanx.engine.traceback_filtering import api_boundary, guard_namespace as _guard
from phalanx.lax import convert_element_type, reshape, slice_in_dim
from phalanx.numpy import concatenate, zeros
from phalanx.tree import PyTreeDef, tree_flatten, tree_unflatten
from phalanx.typing import ArrayLike, PyTree


def ravel_pytree(pytree: PyTree) -> tuple[Any, Callable[[Any], Any]]:
    """Concatenate all elements of a pytree of arrays to one vector.

    Args:
      pytree: a pytree of arrays and scalars.

    Returns:
      A pair of the vector, whose dtype is the promotion of the dtypes of all leaves, and a function that converts such
      a vector back to a pytree with the shapes and dtypes of the leaves.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> flat, unravel = ravel_pytree({"w": jnp.ones((2, 2)), "b": 3.0})
      >>> flat.tolist()
      [3.0, 1.0, 1.0, 1.0, 1.0]
      >>> unravel(2 * flat)["w"].tolist()
      [[2.0, 2.0], [2.0, 2.0]]
    """
    leaves, tree = tree_flatten(pytree)
    avals = [get_aval(x) for x in leaves]
    dtype = result_type(*leaves) if leaves else None
    if leaves:
        flat = concatenate([reshape(convert_element_type(x, dtype), (a.size,)) for x, a in zip(leaves, avals)])
    else:
        flat = zeros(0)
    return flat, _Unravel(tree, tuple(avals), dtype)


@dataclass(frozen=True)
class _Unravel:
    """The inverse of `ravel_pytree` for one structure; equal ones are one static argument of a compiled function.

    It holds only types, which keep none of the arrays of the original pytree alive.

    Args:
      tree: the structure of the pytree.
      avals: the types of its leaves.
      dtype: the dtype of the vector; None without leaves.
    """

    tree: PyTreeDef
    avals: tuple[ShapedArray, ...]
    dtype: Any

    @api_boundary
    def __call__(self, vector: ArrayLike) -> Any:
        given, size = get_aval(vector), sum(a.size for a in self.avals)
        if given.shape != (size,) or (self.avals and given.dtype != self.dtype):
            raise ArgumentTypeError(
                "unravel, argument vector",
                expected=f"{self.dtype}[{size}]",
                got=given.str_short(),
                fix="pass a vector with the shape and dtype of the one that ravel_pytree returned",
            )
        parts, start = [], 0
        for a in self.avals:
            part = reshape(slice_in_dim(vector, start, start + a.size), a.shape)
            parts.append(convert_element_type(part, a.dtype))
            start += a.size
        return tree_unflatten(self.tree, parts)


_guard(globals(), ["ravel_pytree"])
