"""The sharding rule of a `shard_map`, in terms of the dimensions of the unsharded arrays.

`core.sharding_rules` computes the rule of the per-device jaxpr, whose arrays are shards. This file decides which of its
factors remain valid for the unsharded arrays. Called by the `sharding_rule` of the `shard_map` primitive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from phalanx.core import Jaxpr, JaxprDims, ShardingRule


def per_device_sharding_rule(
    jaxpr: Jaxpr, ins: Sequence[Sequence[tuple]], outs: Sequence[Sequence[tuple]], *, is_tracked: bool
) -> ShardingRule:
    """The sharding rule of a per-device jaxpr, for the unsharded arrays outside.

    A factor is a class of dimensions that correspond to each other. A factor that is split over manual axes can still
    be split further from outside if every dimension of the class is split over the same axes, and if the devices along
    these axes exchange none of its shards, except for summing values that lack the factor.

    Args:
      jaxpr: the jaxpr that each device runs on its shards.
      ins, outs: for each dimension of each input and output, the manual mesh axes that split it.
      is_tracked: whether types track the axes over which values vary. Then a result that does not vary is known to be
        reduced.

    Returns:
      The rule; factors that cannot be split are marked as replicated.
    """
    walk = JaxprDims(jaxpr)
    splits: dict[tuple, set] = {}  # for each factor the sets of axes that split its dimensions
    for value, dims in zip((*walk.reads, *walk.gives), (*ins, *outs), strict=True):
        for factor, axes in zip(walk.classes.of(value), dims, strict=True):
            splits.setdefault(factor, set()).add(axes)
    uses = Counter(axis for found in splits.values() for axis in {a for axes in found for a in axes})
    replicated = set()
    for factor, found in splits.items():
        axes = next(iter(found))
        # If an axis splits two factors, device i holds shard i of both: the shards of one cannot move independently.
        is_uniform = len(found) == 1 and all(uses[axis] == 1 for axis in axes)
        if not is_uniform or (
            axes and (_has_exchange(walk, factor, axes) or (factor in walk.reduced and not is_tracked))
        ):
            replicated.add(factor)
    return walk.sharding_rule(replicated)


def _has_exchange(walk: JaxprDims, factor: tuple, axes: tuple) -> bool:
    """Whether devices along any of `axes` exchange shards of a factor that these axes split.

    A sum over all these axes of values that lack the factor is the one collective that exchanges none.
    """
    return any(
        any(rule.axes.get(axis) != "sum" for axis in axes)
        or any(factor in walk.classes.of((v, v.aval.ndim)) for v in (*eqn.invars, *eqn.outvars))
        for eqn, rule, _ in walk.steps
        if not rule.axes.keys().isdisjoint(axes)
    )
