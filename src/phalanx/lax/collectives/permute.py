"""`ppermute` and `pshuffle`: members of named axes send their operand to one other member."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core import LINEAR, ArgumentError, RuleError, ShapedArray, ShardingRule
from phalanx.lax.collectives.all_gather import all_gather_p
from phalanx.lax.collectives.named_axes import (
    Collective,
    divide_dim,
    drop_axis,
    linear_axis_index,
    merge_dims,
    num_members_around,
    resolve_even_axes,
    take_rows,
)
from phalanx.lax.collectives.replica_groups import ReplicaGroups
from phalanx.lax.indexing.dynamic_slice import dynamic_index_in_dim
from phalanx.lax.shape import dim_names, move_dim
from phalanx.runtime.lowering import LoweringContext
from phalanx.symbolic import is_constant_shape
from phalanx.transforms.batching import AxisData
from phalanx.tree import tree_map
from phalanx.typing import ArrayLike, AxisName, PyTree


class PPermute(Collective, name="ppermute"):
    """The operand of the member that `perm` sends to this one, or zeros if there is none: any[*dims] -> any[*dims]."""

    def abstract_eval(self, x: ShapedArray, **_: Any) -> ShapedArray:
        return x

    def sharding_rule(self, x: ShapedArray, *, axes: tuple, **_: Any) -> ShardingRule:
        return ShardingRule([dim_names(x.ndim)], [dim_names(x.ndim)], axes=dict.fromkeys(axes))

    def lower_collective(self, ctx: LoweringContext, x: ArrayLike, replicas: ReplicaGroups, *, perm: tuple) -> Any:
        return replicas.permute(ctx, x, perm)

    jvp = LINEAR

    def transpose(self, y_bar: Any, x: ArrayLike, *, perm: tuple, **params: Any) -> tuple:
        # Cotangents go back along the same pairs. A member that sends nothing receives a zero cotangent.
        return (self(y_bar, perm=tuple((target, source) for source, target in perm), **params),)

    def batch_unmapped(
        self, x: ArrayLike, axis: AxisData, at: int, *, axes: tuple, perm: tuple, **params: Any
    ) -> tuple:
        # A full permutation of equal values changes nothing.
        if len(axes) == 1 and len(perm) == axis.size:
            return x, None
        return super().batch_unmapped(x, axis, at, axes=axes, perm=perm, **params)

    def batch_collective_axis(
        self, x: ArrayLike, b: int, at: int, *, axes: tuple, sizes: tuple, groups: None, tracked: frozenset, perm: tuple
    ) -> tuple:
        if not is_constant_shape(sizes):
            raise RuleError(
                "lax.ppermute under vmap",
                expected="an axis of static size, as the permutation lists its members",
                got=f"size {math.prod(sizes)}",
                fix="index the array with a rolled jnp.arange",
            )
        # table[target] is the source of the target, or -1 for zeros.
        table = np.full(math.prod(sizes), -1, np.int32)
        for source, target in perm:
            table[target] = source
        x = move_dim(x, b, 0)
        if len(axes) == 1:
            return take_rows(x, table), 0
        # A pair may change the index along every axis, so all members are gathered and each selects its operand.
        before, size, after = num_members_around(at, sizes)
        others = drop_axis(at, axes, sizes, tracked)
        everyone = divide_dim(all_gather_p(x, dim=1, **others), 1, (before, after))
        sent = take_rows(merge_dims(merge_dims(move_dim(everyone, 0, 1), 0), 0), table)
        mine = merge_dims(move_dim(divide_dim(sent, 0, (before, size, after)), 1, 0), 1)
        return dynamic_index_in_dim(
            mine, linear_axis_index(others["axes"], others["sizes"], tracked), 1, keepdims=False
        ), 0


ppermute_p = PPermute()


def ppermute(x: PyTree, axis_name: AxisName, perm: Sequence[tuple[int, int]]) -> PyTree:
    """Send the operand of each member of named axes to another member.

    Args:
      x: a pytree of arrays.
      axis_name: the name of an axis in scope, or several, in row-major order.
      perm: pairs (source, destination) of positions; each position is a source, and a destination, at most once.

    Returns:
      The pytree of the source of this member; zeros if it is not a destination.

    Raises:
      UnboundAxisError: no axis of this name is in scope.
      ArgumentError: a pair contains an invalid position, or a position repeats.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> shift = phalanx.vmap(lambda x: lax.ppermute(x, "i", [(0, 1), (1, 2)]), axis_name="i")
      >>> shift(phalanx.numpy.array([5, 6, 7])).tolist()
      [0, 5, 6]
    """
    scope = resolve_even_axes("lax.ppermute", axis_name)
    given = list(perm)
    # A flat list of positions is a frequent mistake, which the error explains.
    is_paired = all(np.shape(pair) == (2,) for pair in given)
    pairs = tuple((int(source), int(target)) for source, target in given) if is_paired else ()
    sides = list(zip(*pairs, strict=True))
    if not is_paired or any(len(set(s)) != len(s) or not all(0 <= i < scope.count for i in s) for s in sides):
        raise ArgumentError(
            "lax.ppermute perm",
            expected=f"pairs of different sources and different destinations in [0, {scope.count})",
            got=repr(perm),
            fix="send from each position at most once, and to each position at most once"
            + ("" if is_paired else "; to pass a list of positions, call pshuffle"),
        )
    return tree_map(lambda leaf: ppermute_p(leaf, **scope.params, perm=pairs), x)


def pshuffle(x: PyTree, axis_name: AxisName, perm: Sequence[int]) -> PyTree:
    """Permute the operands of the members of named axes.

    Args:
      x: a pytree of arrays.
      axis_name: the name of an axis in scope, or several, in row-major order.
      perm: for each member the position whose operand it receives; a permutation of the positions.

    Returns:
      The pytree of the member at position `perm[i]`.

    Raises:
      UnboundAxisError: no axis of this name is in scope.
      ArgumentError: `perm` is not a permutation of the positions.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> shuffle = phalanx.vmap(lambda x: lax.pshuffle(x, "i", [2, 0, 1]), axis_name="i")
      >>> shuffle(phalanx.numpy.array([5, 6, 7])).tolist()
      [7, 5, 6]
    """
    scope = resolve_even_axes("lax.pshuffle", axis_name)
    if sorted(perm) != list(range(scope.count)):
        raise ArgumentError(
            "lax.pshuffle perm",
            expected=f"a permutation of the {scope.count} positions",
            got=repr(perm),
            fix="list each position once, or call ppermute with pairs",
        )
    return ppermute(x, axis_name, [(source, target) for target, source in enumerate(perm)])
