"""Types of loop carries: a carry must have the same type at the start and at the end of every iteration.

`promote_carry` traces a loop body until the types agree, and `check_carry` reports the ones that never do. Shared by
`scan`, `while_loop` and `fori_loop`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import ShapedArray, conform_all, dtypes, promotion, vector_space, widen_varying
from phalanx.lax.control_flow.control_flow_tracing import leaf_avals
from phalanx.transforms.structure_checks import PathLabel, check_same_types
from phalanx.tree import PyTreeDef, tree_flatten, tree_unflatten


def promote_carry(init: Sequence[Any], make: Callable[[Sequence[ShapedArray]], tuple]) -> tuple[list, list, tuple]:
    """Trace a loop body for carry types that it preserves.

    The body is traced for the types of the initial values. If it returns other types, the initial values are adapted
    and the body is traced again, in three steps:

    1. Weakly typed initial values are converted to the stronger dtype that the body returns.
    2. Initial values without a mesh are resharded to the Explicit sharding that the body returns.
    3. Inside a `shard_map`, the carry is made to vary over all mesh axes that it varies over at the end of the body.
       This is a fixpoint iteration, since the axes only grow. Tracing again is required: derivatives taken inside the
       body depend on which values are shared between devices.

    Args:
      init: the initial values.
      make: from the types of the carry to `(body, types of the carry that the body returns, ...)`.

    Returns:
      The adapted initial values, the types of the carry, and the last result of `make`.
    """
    avals = leaf_avals(init)
    made = make(avals)
    after = made[1]
    if len(after) != len(avals):  # another structure, which the caller reports
        return list(init), avals, made
    # For example `scan(lambda c, x: (c + x, None), 0, xs)` with floating-point `xs`: the weak 0 becomes a float.
    promoted = [b if _is_promoted_by(a, b) else a for a, b in zip(avals, after)]
    if promoted != avals:
        init = [vector_space.convert(x, w.dtype) if w is not a else x for x, a, w in zip(init, avals, promoted)]
        made = make(leaf_avals(init))
    avals = leaf_avals(init)
    sharded = [_with_sharding_of(a, b) for a, b in zip(avals, made[1])]
    if sharded != avals:
        init, avals = conform_all(init, sharded), sharded
        made = make(avals)
    while (varying := widen_varying(avals, made[1])) != avals:
        avals, made = varying, make(varying)
    return list(init), avals, made


def _is_promoted_by(aval: ShapedArray, after: ShapedArray) -> bool:
    """Whether a weakly typed initial value takes the dtype of the returned carry, by the promotion rules."""
    if not aval.weak_type or aval.matches(after) or aval.shape != after.shape:
        return False
    is_number = dtypes.issubdtype(after.dtype, np.number)
    return is_number and promotion.promote_pair(aval.dtype, True, after.dtype, after.weak_type)[0] == after.dtype


def _with_sharding_of(aval: ShapedArray, after: ShapedArray) -> ShapedArray:
    """The type of an initial value without a mesh, with the sharding of the returned carry."""
    if aval.sharding is not None or after.sharding is None or aval.shape != after.shape:
        return aval
    return aval.update(sharding=after.sharding)


def check_carry(
    where: PathLabel,
    source: PathLabel,
    before: tuple[PyTreeDef, Sequence[ShapedArray]],
    after: tuple[PyTreeDef, Sequence[ShapedArray]],
    num_counters: int = 0,
) -> None:
    """Refuse a loop body that changes the structure or the types of its carry.

    Args:
      where: names a place in the returned carry, for errors.
      source: names the same place in the initial value.
      before, after: the structure and the leaf types of the carry at the start and at the end of the body.
      num_counters: how many scalars the loop carries in front of the user's value.
    """
    (tree, avals), (after_tree, after_avals) = before, after
    if num_counters:
        tree, after_tree = (
            tree_flatten(tree_unflatten(t, list(a))[num_counters])[1]
            for t, a in ((tree, avals), (after_tree, after_avals))
        )
    check_same_types(where, tree, avals[num_counters:], after_tree, after_avals[num_counters:], source)
