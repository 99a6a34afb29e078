"""`sequential_vmap`: a function that `vmap` maps one example after the other, by `lax.map`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core import merge_lists, select_flagged, select_unflagged
from phalanx.custom_rules.custom_vmap import custom_vmap
from phalanx.lax.control_flow.scan import map
from phalanx.tree import tree_flatten, tree_unflatten
from phalanx.typing import DimSize, PyTree


def sequential_vmap(fun: Callable) -> custom_vmap:
    """A function whose `vmap` is a sequential loop over the examples.

    Args:
      fun: the function.

    Returns:
      A `custom_vmap` of the function.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> phalanx.vmap(phalanx.custom_batching.sequential_vmap(lambda x: x * 2))(jnp.arange(3)).tolist()
      [0, 2, 4]
    """
    function = custom_vmap(fun)

    @function.def_vmap
    def rule(axis_size: DimSize, in_batched: list, *args: PyTree) -> tuple:
        # The loop runs over the mapped leaves; the others are shared by all iterations.
        leaves, tree = tree_flatten(args)
        is_mapped = tree_flatten(tuple(in_batched))[0]

        def one(xs: Sequence[Any]) -> PyTree:
            return fun(*tree_unflatten(tree, merge_lists(is_mapped, xs, select_unflagged(leaves, is_mapped))))

        out = map(one, select_flagged(leaves, is_mapped))
        return out, tree_unflatten(tree_flatten(out)[1], [True] * len(tree_flatten(out)[0]))

    return function
