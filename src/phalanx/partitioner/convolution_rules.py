"""Partitioned lowering of convolutions.

A convolution is partitioned in one of three ways, chosen by `lower_convolution`:

* Per shard: convolutions in groups or under `vmap`, whose operands XLA would gather.
* In space: each device holds a range of a spatial dimension. XLA's halo exchange fetches what windows read beyond its
  ends; the kernel is replicated and the result constrained to be sharded as the input.
* Along batch and features, by XLA; the spatial dimensions are constrained to be replicated, so that propagation does
  not choose a spatial sharding that XLA gets wrong.

The docstrings name entries of `phalanx.partitioner.workarounds`, which describes the defects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core import ShapedArray
from phalanx.engine.mlir import hlo, ir, sdy
from phalanx.lax.convolution.conv_general_dilated import (
    ConvGeneralDilated,
    ConvParams,
    crop_input,
    emit_convolution,
    mapped_size,
    merge_mapped_dim,
    split_groups,
)
from phalanx.partitioner.dim_sharding import (
    DimSharding,
    find_dim_sharding,
    has_empty_shards,
    replicate_dims,
    separate_fill,
)
from phalanx.partitioner.per_shard import lower_per_shard
from phalanx.partitioner.window_plans import cut_to
from phalanx.partitioner.window_rules import EvenWindows, fill_shards, find_even_windows
from phalanx.partitioner.workarounds import is_active
from phalanx.runtime import Array, LoweringContext, sdy_sharding
from phalanx.sharding import UNCONSTRAINED, PartitionSpec
from phalanx.symbolic import is_constant_shape


def lower_convolution(
    ctx: LoweringContext, primitive: ConvGeneralDilated, x: ir.Value, w: ir.Value, **params: object
) -> ir.Value | list[ir.Value]:
    """Lower `conv_general_dilated` for several devices."""
    c, module = ConvParams(**params), ctx.module  # type: ignore[arg-type]
    x_aval, w_aval = ctx.avals_in
    is_empty = any(mapped_size(x_aval, w_aval, places) == 0 for places in c.mapped)
    # Nothing can be decided here about an exported program, whose partitioner runs in another process, nor about shards
    # of a symbolic shape.
    if is_empty or module.is_portable or not is_constant_shape(x_aval.shape):
        return primitive.lower(ctx, x, w, **params) if is_empty or c.mapped else _emit(ctx, x, w, c)
    x = separate_fill(ctx, x, 0)
    is_kernel_gradient = _is_kernel_gradient(ctx, c)
    if not c.mapped and not is_kernel_gradient and (even := _find_even_windows(ctx, x, c)):
        return _convolve_even_windows(ctx, primitive, x, w, c, even)
    # Per-shard lowering gathers the spatial dimensions, so no halo is exchanged that could be too small.
    is_dilated_twice = any(a > 1 and b > 1 for a, b in zip(c.lhs_dilation, c.rhs_dilation, strict=True))
    if is_dilated_twice and is_active("conv_dilated_lhs_and_rhs"):
        return lower_per_shard(ctx, ctx.eqn, (x, w))
    in_groups = c.batch_group_count > 1 or (c.feature_group_count > 1 and not _is_depthwise(w_aval, c))
    # Partial sums are added up by an all-reduce, whose replica groups list partitions by number. Inside a shard_map
    # over some axes only, partitions have no such numbers.
    lacks_replica_groups = module.manual is not None and any(places[2] is None for places in c.mapped)
    in_space = _is_partitioned_in_space(ctx, x, w, c, is_kernel_gradient)
    if not in_space and (in_groups or c.mapped) and not lacks_replica_groups:
        # The groups become a mapped dimension; the convolution without groups is a new equation, to which this rule is
        # applied again.
        if in_groups and is_active("conv_groups") and is_active("conv_mapped"):
            return ctx.inline(split_groups, x, w, c=c)
        if c.mapped and is_active("conv_mapped"):
            return lower_per_shard(ctx, ctx.eqn, (x, w))
    if c.mapped:
        # The convolution without the mapped dimension is an equation of its own, to which this rule applies again.
        return ctx.inline(merge_mapped_dim, x, w, c=c)
    if not is_active("conv_spatial_sharding"):
        return _emit(ctx, x, w, c)
    return _emit_constrained(
        ctx, x, w, c, in_space=in_space, is_kernel_gradient=is_kernel_gradient, in_groups=in_groups
    )


def _find_even_windows(ctx: LoweringContext, x: ir.Value, c: ConvParams) -> dict[int, EvenWindows]:
    """For each spatial dimension that is split unevenly, by number, the windows over shards of equal size."""
    (x_aval, w_aval), (lhs, rhs, out) = ctx.avals_in, c.dimension_numbers
    if not ctx.module.has_uneven or not is_constant_shape((*w_aval.shape, *ctx.aval_out.shape)):
        return {}
    found = {}
    for i, (p, q, r) in enumerate(zip(lhs[2:], out[2:], rhs[2:], strict=True)):
        if c.lhs_dilation[i] == 1:
            sizes, window = (
                (x_aval.shape[p], ctx.aval_out.shape[q]),
                (w_aval.shape[r], c.window_strides[i], c.rhs_dilation[i]),
            )
            even = find_even_windows(ctx, x, p, sizes, window, c.padding[i])
            found |= {} if even is None else {i: even}
    return found


def _convolve_even_windows(
    ctx: LoweringContext,
    primitive: ConvGeneralDilated,
    x: ir.Value,
    w: ir.Value,
    c: ConvParams,
    even: dict[int, EvenWindows],
) -> list[ir.Value]:
    padding = tuple([(low, even[i].high if i in even else high) for i, (low, high) in enumerate(c.padding)])
    more = {c.dimension_numbers[0][2:][i]: e.more for i, e in even.items()}
    shape = ctx.aval_out.shape

    def convolve(x: Array, w: Array) -> Any:
        y = primitive(fill_shards(x, np.zeros((), x.dtype), more), w, **c._replace(padding=padding)._asdict())
        return cut_to(y, shape)

    return ctx.inline(convolve, x, w)  # the rule is applied to the even windows, too, and finds them even


def _emit(ctx: LoweringContext, x: ir.Value, w: ir.Value, c: ConvParams) -> ir.Value:
    """Emit a convolution that avoids "negative_padding" and "conv_output_dims"."""
    x_aval, w_aval = ctx.avals_in
    pads = [n for pair in c.padding for n in pair if type(n) is int]
    if min(pads, default=0) < 0 and is_active("negative_padding"):
        x, x_aval, c = crop_input(x, x_aval, c)
    aval, (lhs, _, out) = ctx.aval_out, c.dimension_numbers
    # Where the result has the dimension order of the input, the positions that XLA confuses are the same.
    order = [lhs[out.index(d)] for d in range(aval.ndim)]
    if order == sorted(order) or not is_constant_shape(pads) or not is_active("conv_output_dims"):
        return emit_convolution(ctx, x, w, c, (x_aval, w_aval), aval)
    aval = aval.with_shape(tuple([aval.shape[order.index(d)] for d in range(aval.ndim)]))
    c = c._replace(dimension_numbers=c.dimension_numbers._replace(out_spec=lhs))
    return hlo.transpose(emit_convolution(ctx, x, w, c, (x_aval, w_aval), aval), order)


def _is_depthwise(w: ShapedArray, c: ConvParams) -> bool:
    """Whether XLA partitions this convolution in feature groups correctly along the groups.

    It does if each group has one input and one output feature. With several output features in a group it returns the
    results of other groups, with windows of one element it ends the process, and in kernel gradients it adds up
    replicas of the batch.
    """
    _, (out, features, *space), _ = c.dimension_numbers
    is_one_to_one = w.shape[features] == 1 and w.shape[out] == c.feature_group_count
    return is_one_to_one and not c.mapped and any(w.shape[d] > 1 for d in space)


def _is_kernel_gradient(ctx: LoweringContext, c: ConvParams) -> bool:
    """Whether the kernel is larger in space than the result, which is typical of the gradient of a kernel."""
    _, (_, _, *space), out = c.dimension_numbers
    return bool(space) and ctx.avals_in[1].shape[space[0]] > ctx.aval_out.shape[out[2]]


def _is_partitioned_in_space(
    ctx: LoweringContext, x: ir.Value, w: ir.Value, c: ConvParams, is_kernel_gradient: bool
) -> bool:
    """Whether devices hold ranges of the spatial dimensions, in a way that XLA's halo exchange handles correctly.

    The halo exchange reads out of bounds if the input is dilated and the shards of result and input end at different
    positions. In a kernel gradient XLA adds up the results of all devices, so that replicas are counted twice.
    """
    (lhs, rhs, out), (_, w_aval), y = c.dimension_numbers, ctx.avals_in, ctx.aval_out
    places = [(v, d) for v, spec in ((x, lhs), (w, rhs))[: 1 + is_kernel_gradient] for d in spec[2:]]
    found = next((s for v, d in places if (s := find_dim_sharding(ctx.module, v, d)) is not None), None)
    if found is None:
        return False
    if is_kernel_gradient:
        return not (found.has_replicas or has_empty_shards(w_aval.shape[rhs[2]], found.sharding.mesh.size))
    return not any(
        dilation > 1 and (s := find_dim_sharding(ctx.module, x, p)) and y.shape[q] % s.parts
        for p, q, dilation in zip(lhs[2:], out[2:], c.lhs_dilation, strict=True)
    )


def _emit_constrained(
    ctx: LoweringContext,
    x: ir.Value,
    w: ir.Value,
    c: ConvParams,
    *,
    in_space: bool,
    is_kernel_gradient: bool,
    in_groups: bool,
) -> ir.Value:
    """Emit a convolution with constraints on operands and result that avoid "conv_spatial_sharding".

    Args:
      ctx, x, w, c: as in `_emit`, for a convolution without mapped dimensions.
      in_space: whether devices hold ranges of the spatial dimensions.
      is_kernel_gradient: whether the convolution sums over large spatial dimensions, as kernel gradients do.
      in_groups: whether there are groups that XLA would gather.
    """
    lhs, rhs, out = c.dimension_numbers
    if not in_space:
        x, w = replicate_dims(ctx, x, lhs[2:]), replicate_dims(ctx, w, rhs[2:])
    elif not is_kernel_gradient:
        w = replicate_dims(ctx, w, rhs)
    # A grouped convolution reaches this point only if it is partitioned in space, or if partial sums would be needed.
    # XLA would give a shard of the features the wrong groups, so the grouped dimensions are replicated.
    grouped: Sequence[int] = ()
    if in_groups:
        first = int(c.batch_group_count == 1)
        x, grouped = replicate_dims(ctx, x, lhs[first:2]), out[first:2]
    y = _emit(ctx, x, w, c)
    if not in_space or is_kernel_gradient:
        return replicate_dims(ctx, y, (*grouped, *out[2:]))
    return _shard_like_input(ctx, y, [find_dim_sharding(ctx.module, x, d) for d in lhs[2:]], out, grouped)


def _shard_like_input(
    ctx: LoweringContext,
    y: ir.Value,
    shardings: Sequence[DimSharding | None],
    out: Sequence[int],
    grouped: Sequence[int],
) -> ir.Value:
    """Constrain the spatial dimensions of a result to the input's shardings, and replicate the dimensions `grouped`."""
    first = next(s for s in shardings if s is not None).sharding
    entries: list = [None if d in grouped else UNCONSTRAINED for d in range(len(out))]
    used: set = set()
    for d, s in zip(out[2:], shardings, strict=True):
        size, parts = ctx.aval_out.shape[d], s.parts if s else 1
        # The last device of an uneven sharding may have elements of the input, but none of a smaller result.
        if s is None or has_empty_shards(size, parts):
            entries[d] = None
        elif size % parts == 0 and s.sharding.mesh is first.mesh and used.isdisjoint(s.axes):
            entries[d] = s.axes
            used.update(s.axes)
    return sdy.ShardingConstraintOp(
        y, sdy_sharding(ctx.module, first.with_spec(PartitionSpec(*entries)), len(out))
    ).result
