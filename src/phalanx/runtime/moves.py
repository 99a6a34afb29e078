"""Moves inside programs: values brought from one sharding to another, by stops on the way and in slices.

Builds on routes and on Shardy's attributes; called by the lowering of programs, inside an MLIR context.

XLA holds what an all-to-all sends and what it receives in memory of their own, a part each. Inside a program that is no
more than it may: the source goes before the result comes. But arguments and results stay as long as the program runs.
So a large move between these is emitted as a loop over slices of the array, each of which goes all the way. Every
device's part of a slice is contiguous where the sizes allow it, and that of a large array small enough for a cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx.core.aval import ShapedArray
from phalanx.core.primitive import Roles
from phalanx.engine.mlir import dense_constant, hlo, ir, sdy
from phalanx.runtime.shardy import sdy_sharding
from phalanx.runtime.stand_ins import on_devices
from phalanx.sharding.mesh import Mesh
from phalanx.sharding.route import Route, route
from phalanx.sharding.shardings import NamedSharding, Sharding
from phalanx.sharding.spec import UNCONSTRAINED, PartitionSpec

# Bytes of a device's part of the larger end from which a move goes in slices: a part more of less is nothing, and
# every slice costs a meeting of all devices.
SLICED_FROM = 128 * 1024
# Bytes of a device's part of a slice at most, as long as there are no more slices than that.
_SLICE_BYTES, _MOST = 1024 * 1024, 8


def bring(module: Any, x: Any, aval: ShapedArray, sharding: Sharding, *, between_ends: bool = False) -> Any:
    """Emit that a value lies as a sharding says, by way of stops where it is known how it lies before."""
    x = bring_near(module, x, aval, sharding, between_ends=between_ends)
    x = _lying(x, sdy_sharding(module, sharding, aval.ndim))
    if _is_plain(sharding):
        module.lies[x] = sharding
    return x


def bring_near(
    module: Any,
    x: Any,
    aval: ShapedArray,
    sharding: Sharding,
    held: Sharding | None = None,
    *,
    between_ends: bool = False,
) -> Any:
    """Emit the way to a sharding, if `held` or the module tells how a value lies.

    The partitioner moves a value in one step, and by way of a whole replica on each device where it finds none.

    Args:
      module: what the functions of the module share, as `sdy_sharding` takes it: besides `lies` (how values lie, as far
        as it is known) and `sliced_from` (bytes of a part from which a move goes in slices).
      x, aval: the value, and its physical type.
      sharding: where it goes; that it lies so is for the caller to emit.
      held: how it lies.
      between_ends: whether source and result stay in memory as long as the program runs.
    """
    # The shardings in types are over no devices: over those of the program.
    held = module.lies.get(x) if held is None else on_devices(held, module.device_assignment)
    sharding = completed(on_devices(sharding, module.device_assignment), held, aval.ndim)
    if held is None or not _is_plain(sharding) or held.device_set != sharding.device_set:
        return x
    road = route(held, sharding, aval.shape)
    if road is None:
        return x
    stops = road.shardings
    if between_ends and road.slices > 1 and not aval.is_symbolic:
        nbytes = aval.dtype.itemsize * max(math.prod(s.shard_shape(aval.shape)) for s in (held, sharding))
        if nbytes >= module.sliced_from and (slices := _slices(aval.shape, road, nbytes)) is not None:
            return _in_slices(module, x, aval, [held, *stops, sharding], slices)
    for stop in stops:
        x = _lying(x, sdy_sharding(module, stop, aval.ndim))
    return x


def passed_on(held: Sharding, roles: Roles, result: ShapedArray) -> Sharding | None:
    """How the result of an operation on one value lies, if every dimension that is split is one of the result too."""
    (names,), (kept, *_) = roles.operands, roles.results
    if not isinstance(held, NamedSharding) or len(set(names)) < len(names) or len(kept) != result.ndim:
        return None
    if len(held.spec) > len(names):  # the words of random keys, as which they were given, may be split as well
        return None
    axes = dict(zip(names, held.axes(len(names)), strict=True))
    if any(cut and (n in roles.whole or kept.count(n) != 1) for n, cut in axes.items()):
        return None
    return held.with_spec(PartitionSpec.of_dims([axes.get(n, ()) for n in kept]))


def completed(sharding: Sharding, held: Sharding | None, ndim: int) -> Sharding:
    """The sharding with dimensions that were left open as they are, as far as their axes are free."""
    if not isinstance(sharding, NamedSharding) or not sharding.spec.has_unconstrained:
        return sharding
    used = set(sharding.spec.axes)
    entries = list(sharding.spec)
    for dim, entry in enumerate(entries):
        if entry is not UNCONSTRAINED:
            continue
        entries[dim] = None
        if isinstance(held, NamedSharding) and held.mesh is sharding.mesh:
            axes = held.axes(ndim)[dim]
            if not used.intersection(axes):
                entries[dim] = axes
    return sharding.with_spec(PartitionSpec(*entries))


def _is_plain(sharding: Sharding) -> bool:
    """Whether a sharding says of every device which part it holds."""
    return not isinstance(sharding, NamedSharding) or (
        isinstance(sharding.mesh, Mesh) and not sharding.spec.has_unconstrained
    )


class _Slices(NamedTuple):
    """The dimension to slice, into how many parts it is cut on the way, and how much of each part goes at a time."""

    dim: int
    cuts: int
    size: int


def _slices(shape: tuple[int, ...], road: Route, nbytes: int) -> _Slices | None:
    """Slice the first dimension that has as many elements within its finest cut; None where none has two."""
    inner = [size // cut for size, cut in zip(shape, road.cuts, strict=True)]
    count = min(max(road.slices, -(-nbytes // _SLICE_BYTES)), _MOST)
    dim = next((d for d, size in enumerate(inner) if size >= count), inner.index(max(inner)))
    return _Slices(dim, road.cuts[dim], max(inner[dim] // count, 1)) if inner[dim] > 1 else None


def _in_slices(module: Any, x: Any, aval: ShapedArray, stops: Sequence[Sharding], slices: _Slices) -> Any:
    """Emit a loop that carries one slice after the other by way of `stops`, the ends among them, to the result."""
    (at, cuts, size), divided = slices, list(aval.shape)
    source, target = [sdy_sharding(module, stops[i], aval.ndim) for i in (0, -1)]
    inner = divided[at] // cuts
    if cuts > 1:
        # It stands as its cuts and what is within each, slices of which are the same part of every piece.
        divided[at : at + 1] = [cuts, inner]
        at += 1
        stops = [s.with_dim(at) for s in stops]
    part = [size if d == at else n for d, n in enumerate(divided)]
    lying = [sdy_sharding(module, s, len(divided)) for s in stops]
    index = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    whole = ir.RankedTensorType.get(divided, x.type.element_type)
    zeros = hlo.constant(dense_constant(np.broadcast_to(np.zeros((), aval.dtype), aval.shape)))
    carry = [index, x.type, x.type]
    loop = hlo.WhileOp(carry, [_number(0), _lying(x, source), _lying(zeros, target)])
    test, body = (region.blocks.append(*carry) for region in loop.regions)
    with ir.InsertionPoint(test):
        below, kind = hlo.ComparisonDirectionAttr.get("LT"), hlo.ComparisonTypeAttr.get("SIGNED")
        hlo.return_([hlo.compare(test.arguments[0], _number(-(-inner // size)), below, compare_type=kind)])
    with ir.InsertionPoint(body):
        i, before, after = body.arguments
        # Where they do not divide, the last slice starts as late as it can and brings some elements again.
        starts = [_number(0)] * len(divided)
        starts[at] = hlo.multiply(i, _number(size))
        piece = hlo.dynamic_slice(_lying(hlo.reshape(whole, before), lying[0]), starts, part)
        for stop in lying:
            piece = _lying(piece, stop)
        filled = hlo.dynamic_update_slice(_lying(hlo.reshape(whole, after), lying[-1]), piece, starts)
        hlo.return_([hlo.add(i, _number(1)), before, _lying(hlo.reshape(x.type, filled), target)])
    return loop.results[2]


def _lying(x: Any, sharding: ir.Attribute) -> Any:
    return sdy.ShardingConstraintOp(x, sharding).result


def _number(n: int) -> Any:
    return hlo.constant(dense_constant(np.array(n, np.int32)))
