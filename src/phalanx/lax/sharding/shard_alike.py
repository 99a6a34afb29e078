"""`shard_alike`, which asks the partitioner to give two arrays the same sharding.

Lowered to a sharding group of Shardy: during propagation, all values of a group receive the sharding that one of them
has. Public as `phalanx.experimental.shard_alike.shard_alike`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.core import LINEAR, Primitive, ShapeError, ShardingRule, TreeError, Zero, get_aval
from phalanx.engine import i64, ir, sdy
from phalanx.lax.shape import dim_names
from phalanx.runtime import LoweringContext
from phalanx.transforms.batching import AxisData, move_mapped_dim
from phalanx.tree import tree_flatten, tree_unflatten
from phalanx.tree.key_paths import leaf_path
from phalanx.typing import PyTree


class ShardAlike(Primitive, name="shard_alike", multiple=True):
    """`x` and `y`, with one sharding: num[*dims], num[*dims] -> num[*dims], num[*dims]."""

    def abstract_eval(self, x: Any, y: Any) -> list:
        return [x, y]

    def sharding_rule(self, x: Any, y: Any) -> ShardingRule:
        names = [dim_names(x.ndim, "")] * 2
        return ShardingRule(names, names)

    def lower(self, ctx: LoweringContext, *operands: Any) -> list:
        if ctx.module.is_partitioned:
            group = next(ctx.module.sharding_groups)
            for x in operands:
                ir.Operation.create(
                    sdy.ShardingGroupOp.OPERATION_NAME, operands=[x], attributes={"group_id": i64(group)}
                )
        return list(operands)

    jvp = LINEAR

    def transpose(self, y_bars: Sequence[Any], *operands: Any) -> tuple:
        return tuple(y_bars if any(type(y) is Zero for y in y_bars) else self(*y_bars))

    def batch_axis(self, axis: AxisData, operands: Sequence[Any], dims: Sequence[int | None]) -> tuple:
        return self(*[move_mapped_dim(x, d, axis.size, 0) for x, d in zip(operands, dims)]), [0, 0]


shard_alike_p = ShardAlike()


def shard_alike(x: PyTree, y: PyTree) -> tuple[PyTree, PyTree]:
    """Ask the compiler to shard `y` as it shards `x`, and the other way round.

    Args:
      x: a tree of arrays.
      y: a tree of the same structure; its arrays have the shapes of the arrays of `x`.

    Returns:
      `x` and `y`. Inside a compiled function over several devices, each array of one and its counterpart in the other
      receive the same sharding, whichever the compiler finds out first. Otherwise they are as they were.

    Raises:
      TreeError: the trees have different structures.
      ShapeError: two arrays have different shapes.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.experimental.shard_alike import shard_alike
      >>> phalanx.jit(lambda x: shard_alike(x, jnp.ones(4))[1])(jnp.arange(4.0))
      Array([1., 1., 1., 1.], dtype=float32)
    """
    xs, x_tree = tree_flatten(x)
    ys, y_tree = tree_flatten(y)
    if x_tree != y_tree:
        raise TreeError(
            "shard_alike, y",
            expected=f"the structure of x, {x_tree}",
            got=y_tree,
            fix="pass two trees of the same structure, such as parameters and their gradients",
        )
    for i, (a, b) in enumerate(zip(map(get_aval, xs), map(get_aval, ys))):
        if a.shape != b.shape:
            raise ShapeError(
                f"shard_alike, y{leaf_path(y, i)}",
                expected=f"the shape of its counterpart in x, {a.str_short()}",
                got=b.str_short(),
                fix=f"reshape or slice y{leaf_path(y, i)} to {a.shape}",
            )
    pairs = [shard_alike_p(a, b) for a, b in zip(xs, ys)]
    return tuple(tree_unflatten(x_tree, [pair[side] for pair in pairs]) for side in (0, 1))  # type: ignore[return-value]
