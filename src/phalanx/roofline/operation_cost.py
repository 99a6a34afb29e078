"""The cost of each operation: how much it computes, moves and sends.

Operations without a rule, such as changes of shape, cost nothing, since the compiler fuses them into others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from phalanx import lax
from phalanx.core import Primitive, registry
from phalanx.lax.elementwise.elementwise_builders import Elementwise
from phalanx.roofline.roofline_result import RooflineResult, RooflineRuleContext, RooflineShape

Rule: TypeAlias = Callable[..., RooflineResult]

_rules: dict[Primitive, Rule] = {}


def register_roofline(prim: Primitive) -> Callable[[Rule], Rule]:
    """Define the cost of an operation.

    Args:
      prim: the primitive.

    Returns:
      A decorator for the rule, `rule(ctx, *operands, **params) -> RooflineResult`, where `ctx` is a
      `RooflineRuleContext`, the operands are `RooflineShape`s, and the parameters come from the equation.

    Examples:
      >>> from phalanx import lax
      >>> from phalanx.experimental import roofline
      >>> @roofline.register_roofline(lax.rev_p)
      ... def cost(ctx, x, *, dims):
      ...     return roofline.RooflineResult(unfused_hbm_bytes=2 * x.bytes)
    """

    def register(rule: Rule) -> Rule:
        _rules[prim] = rule
        return rule

    return register


def register_standard_roofline(prim: Primitive) -> None:
    """Define that an operation costs nothing.

    Args:
      prim: the primitive.

    Examples:
      >>> from phalanx import lax
      >>> register_standard_roofline(lax.transpose_p)
    """
    _rules[prim] = lambda ctx, *operands, **params: RooflineResult.zeros()


def find_rule(primitive: Primitive) -> Rule | None:
    """The rule for the cost of an operation; None for one that costs nothing."""
    if primitive in _rules:
        return _rules[primitive]
    if isinstance(primitive, Elementwise):
        return _elementwise
    return _by_name.get(primitive.name)


def _moved_bytes(ctx: RooflineRuleContext) -> int:
    return RooflineShape.total_bytes([*ctx.avals_in, *ctx.avals_out])


def _elementwise(ctx: RooflineRuleContext, *operands: RooflineShape, **params: Any) -> RooflineResult:
    size = max((x.size for x in operands), default=0)
    return RooflineResult(unfused_flops=size, unfused_hbm_bytes=_moved_bytes(ctx))


def _cumulative(ctx: RooflineRuleContext, x: RooflineShape, *, dim: int, **params: Any) -> RooflineResult:
    per_element = 2 if ctx.primitive.name == "cumlogsumexp" else 1  # an exponential and an addition
    return RooflineResult(unfused_flops=per_element * x.shape[dim], unfused_hbm_bytes=_moved_bytes(ctx))


def _reduction(ctx: RooflineRuleContext, x: RooflineShape, *, dims: Sequence[int], **params: Any) -> RooflineResult:
    reduced = math.prod(x.shape[d] for d in dims)
    results = math.prod(n for d, n in enumerate(x.shape) if d not in dims)
    return RooflineResult(
        unfused_flops=(reduced - 1) * results, unfused_hbm_bytes=x.dtype.itemsize * (x.size + results)
    )


def _dot_general(
    ctx: RooflineRuleContext, lhs: RooflineShape, rhs: RooflineShape, *, dimension_numbers: tuple, **params: Any
) -> RooflineResult:
    (contracted, _), _ = dimension_numbers
    out = RooflineShape.from_aval(ctx.avals_out[0])
    flops = 2 * out.size * math.prod(lhs.shape[d] for d in contracted)
    moved = (0 if ctx.pin_lhs_in_vmem else lhs.bytes + out.bytes) + (0 if ctx.pin_rhs_in_vmem else rhs.bytes)
    return RooflineResult(flops=flops, unfused_flops=flops, hbm_bytes=moved, unfused_hbm_bytes=moved)


def _convolution(
    ctx: RooflineRuleContext,
    lhs: RooflineShape,
    rhs: RooflineShape,
    *,
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    dimension_numbers: Any,
    batch_group_count: int,
    **params: Any,
) -> RooflineResult:
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    out = RooflineShape.from_aval(ctx.avals_out[0])
    products = rhs.shape[rhs_spec[1]] * out.shape[out_spec[1]] * (lhs.shape[lhs_spec[0]] // batch_group_count)
    for i in range(len(window_strides)):
        products *= _count_products(
            lhs.shape[lhs_spec[i + 2]],
            rhs.shape[rhs_spec[i + 2]],
            out.shape[out_spec[i + 2]],
            window_strides[i],
            padding[i][0],
            lhs_dilation[i],
            rhs_dilation[i],
        )
    return RooflineResult(unfused_flops=2 * products, unfused_hbm_bytes=_moved_bytes(ctx))


def _count_products(n: int, kernel: int, out: int, stride: int, low: int, dilation: int, kernel_dilation: int) -> int:
    """The number of pairs of an output and a kernel position, along one dimension, that read an element of the input.

    Output o and kernel position k read position o * stride + k * kernel_dilation - low of the dilated input. It has an
    element there if the position is a multiple of `dilation`, and one inside. So the outputs of each k are those of
    one residue class in an interval.
    """
    start = np.arange(kernel, dtype=np.int64) * kernel_dilation - low
    common = math.gcd(stride, dilation)
    step = dilation // common
    start = start[start % common == 0]
    first = (-start // common) * pow(stride // common, -1, step) % step if step > 1 else np.zeros_like(start)
    lower = np.maximum(-(start // stride), 0)
    upper = np.minimum(((n - 1) * dilation - start) // stride, out - 1)
    first = first + -(-(lower - first) // step) * step  # the first of the class in the interval
    return int(np.maximum((upper - first) // step + 1, 0).sum())


def _gather(
    ctx: RooflineRuleContext, x: RooflineShape, indices: RooflineShape, *, mode: Any, **params: Any
) -> RooflineResult:
    out = RooflineShape.from_aval(ctx.avals_out[0])
    # Indices are compared with two bounds, the comparisons are combined and reduced; then each result is selected.
    fills = lax.GatherScatterMode.from_any(mode) == lax.GatherScatterMode.FILL_OR_DROP
    return RooflineResult(
        unfused_flops=4 * indices.size + out.size if fills else 0, unfused_hbm_bytes=2 * out.bytes + indices.bytes
    )


def _scatter(
    ctx: RooflineRuleContext, x: RooflineShape, indices: RooflineShape, updates: RooflineShape, **params: Any
) -> RooflineResult:
    combine = params.get("program")
    if combine is not None:
        per_element = sum(find_rule(eqn.primitive) is not None for eqn in combine.eqns)
    else:
        per_element = 0 if ctx.primitive.name == "scatter" else 1
    return RooflineResult(unfused_flops=per_element * updates.size, unfused_hbm_bytes=3 * updates.bytes + indices.bytes)


def _select(ctx: RooflineRuleContext, which: RooflineShape, *cases: RooflineShape, **params: Any) -> RooflineResult:
    # One of the cases is read for each element.
    return RooflineResult(unfused_flops=cases[0].size, unfused_hbm_bytes=which.bytes + cases[0].bytes)


def _callback(ctx: RooflineRuleContext, *operands: RooflineShape, **params: Any) -> RooflineResult:
    return RooflineResult(unfused_hbm_bytes=_moved_bytes(ctx))


def _traffic(axes: Sequence[str], nbytes: float, hops: float) -> RooflineResult:
    return RooflineResult(ici_bytes=dict.fromkeys(axes, int(nbytes)), ici_latency=dict.fromkeys(axes, int(hops)))


def _ring(axes: Sequence[str], sizes: Sequence[int], shard_bytes: float) -> RooflineResult:
    """Rings along one axis after the other, the longest first; every axis starts with its part of the shard."""
    if math.prod(sizes) == 1:
        return _traffic(axes, 0, 0)
    sent, shard = 0.0, shard_bytes // len(axes)
    for size in sorted(sizes, reverse=True):
        sent += shard * (size - 1)
        shard *= size
    return _traffic(axes, sent, max(sizes) * len(axes))


def _gather_shards(
    ctx: RooflineRuleContext, *operands: RooflineShape, axes: Any, sizes: Any, **params: Any
) -> RooflineResult:
    return _ring(axes, sizes, sum(x.bytes for x in operands))


def _reduce_extreme(
    ctx: RooflineRuleContext, *operands: RooflineShape, axes: Any, sizes: Any, **params: Any
) -> RooflineResult:
    return _ring(axes, sizes, sum(x.dtype.itemsize for x in operands))


def _scatter_sums(
    ctx: RooflineRuleContext, *operands: RooflineShape, axes: Any, sizes: Any, **params: Any
) -> RooflineResult:
    return _ring(axes, sizes, sum(x.bytes for x in operands) / math.prod(sizes))


def _sum_shards(
    ctx: RooflineRuleContext, *operands: RooflineShape, axes: Any, sizes: Any, **params: Any
) -> RooflineResult:
    # Sums are scattered, and then gathered.
    return 2 * _scatter_sums(ctx, *operands, axes=axes, sizes=sizes)


def _all_to_all(
    ctx: RooflineRuleContext, *operands: RooflineShape, axes: Any, sizes: Any, **params: Any
) -> RooflineResult:
    if math.prod(sizes) == 1:
        return _traffic(axes, 0, 0)
    # Half of the data crosses the middle of the mesh; an axis of more than two devices is a ring and crosses twice.
    links = min(sizes) ** (len(sizes) - 1) * (2 if min(sizes) > 2 else 1)
    total = sum(x.bytes for x in operands) * math.prod(sizes)
    return _traffic(axes, total / 2 / links, sum(n / 2 for n in sizes))


def _permute(
    ctx: RooflineRuleContext, *operands: RooflineShape, axes: Any, sizes: Any, perm: Any, **params: Any
) -> RooflineResult:
    """Every shard takes the shorter way around the ring of each axis in turn; the busiest link is the bottleneck."""
    if math.prod(sizes) == 1:
        return _traffic(axes, 0, 0)
    uses: Counter = Counter()
    longest = 0
    for source, target in perm:
        start, end = np.unravel_index(source, sizes), np.unravel_index(target, sizes)
        hops = 0
        for d, size in enumerate(sizes):
            forward, backward = (end[d] - start[d]) % size, (start[d] - end[d]) % size
            step = 1 if forward <= backward else -1
            at = tuple(map(int, start))
            for _ in range(min(forward, backward)):
                after = (*at[:d], (at[d] + step) % size, *at[d + 1 :])
                uses[frozenset((at, after))] += 1
                at = after
                hops += 1
        longest = max(longest, hops)
    return _traffic(axes, sum(x.bytes for x in operands) * max(uses.values(), default=0), longest)


# The rules of families of operations, by the names of their primitives.
_by_name: dict[str, Rule] = {
    **{name: _cumulative for name in registry if name.startswith("cum")},
    **{name: _reduction for name in registry if name in ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min")},
    **{name: _reduction for name in registry if name in ("reduce_and", "reduce_or", "reduce_xor")},
    **{name: _scatter for name in registry if name.startswith("scatter")},
    "dot_general": _dot_general,
    "conv_general_dilated": _convolution,
    "gather": _gather,
    "select_n": _select,
    "host_callback": _callback,
    "all_gather": _gather_shards,
    "psum": _sum_shards,
    "psum_scatter": _scatter_sums,
    "pmax": _reduce_extreme,
    "pmin": _reduce_extreme,
    "all_to_all": _all_to_all,
    "ppermute": _permute,
}
