"""Placement inside programs: the primitives `device_put` and `sharding_constraint`, and `with_sharding_constraint`.

Builds on the sharding room for what a spec means and on `core` for primitives. Run at once, both place the array; in
a program over a mesh they tell the partitioner. `spmd` binds them for `device_put` and for resharding.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from typing import Any

from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.config import state
from phalanx.core.errors import ShardingError
from phalanx.core.primitive import LINEAR, Primitive, Roles
from phalanx.engine.mlir import ir
from phalanx.engine.seat import Seat
from phalanx.runtime import placement
from phalanx.runtime.array import Array
from phalanx.runtime.layout import Format
from phalanx.runtime.lowering import physical_aval
from phalanx.runtime.memories import far_kind, place_in_memory
from phalanx.runtime.moves import bring, completed
from phalanx.sharding import UNCONSTRAINED, UNSPECIFIED, NamedSharding, PartitionSpec, Sharding, to_sharding
from phalanx.sharding.spec import check_rank
from phalanx.tree import broadcast_prefix, keystr, tree_flatten, tree_flatten_with_path, tree_unflatten
from phalanx.tree.paths import leaf_path

# put(values, shardings): places many values at once.
eager = Seat(taken_by="phalanx.spmd.placement")


class ShardingConstraint(Primitive, name="sharding_constraint"):
    """`x` itself, lying as `sharding` says: num[*dims] -> num[*dims]."""

    says_shardings = True

    def placing(self, *, sharding: Sharding) -> tuple:
        return (sharding,)

    def result(self, x: ShapedArray, *, sharding: Sharding) -> ShapedArray:
        _check_rank(sharding, x, "with_sharding_constraint")
        _check_explicit(sharding, x)
        return x

    def roles(self, x: ShapedArray, *, sharding: Sharding) -> Roles:
        return Roles([range(x.ndim)], [range(x.ndim)])

    def run(self, x: Any, *, sharding: Sharding) -> Array:
        _check_explicit(sharding, aval_of(x))
        held = x.sharding if type(x) is Array else None
        return eager.put([x], [completed(sharding, held, aval_of(x).ndim)])[0]

    def lower(self, ctx: Any, x: Any, *, sharding: Sharding) -> Any:
        _check_partitions(ctx, sharding, "with_sharding_constraint")
        return constrain(ctx, x, ctx.avals_in[0], sharding)

    jvp = LINEAR

    def transpose(self, y_bar: Any, x: Any, *, sharding: Sharding) -> tuple:
        return (self(y_bar, sharding=sharding),)

    def batch_axis(self, axis: Any, operands: Any, dims: Any, *, sharding: Sharding) -> tuple:
        (x,), (b,) = operands, dims
        entry = UNCONSTRAINED if axis.spmd_name is None else axis.spmd_name
        return self(x, sharding=sharding.with_dim(b, entry)), b

    batch = None


class DevicePut(Primitive, name="device_put"):
    """`x` itself on the devices of `sharding`, coming from those of `source` if known: num[*dims] -> num[*dims]."""

    says_shardings = True

    def placing(self, *, sharding: Sharding | None, source: Sharding | None) -> tuple:
        return (sharding,)

    def result(self, x: ShapedArray, *, sharding: Sharding | None, source: Sharding | None) -> ShapedArray:
        if sharding is None:
            return x
        _check_rank(sharding, x, "device_put")
        return x.update(sharding=sharding.as_type(x.ndim))

    def roles(self, x: ShapedArray, *, sharding: Sharding | None, source: Sharding | None) -> Roles:
        return Roles([range(x.ndim)], [range(x.ndim)])

    def run(self, x: Any, *, sharding: Sharding | None, source: Sharding | None) -> Array:
        return eager.put([x], [sharding])[0]

    def lower(self, ctx: Any, x: Any, *, sharding: Sharding | None, source: Sharding | None) -> Any:
        if sharding is None:
            return x
        _check_partitions(ctx, sharding, "device_put")
        x = constrain(ctx, x, ctx.avals_in[0], sharding)
        kind = sharding.memory_kind
        return x if kind is None or ctx.platform == "cpu" else place_in_memory(x, kind)

    def memories(self, held: Sequence[str | None], *, sharding: Sharding | None, source: Sharding | None) -> list:
        return list(held) if sharding is None else [far_kind(sharding)]

    jvp = LINEAR

    def transpose(self, y_bar: Any, x: Any, *, sharding: Sharding | None, source: Sharding | None) -> tuple:
        return (y_bar if source is None else self(y_bar, sharding=source, source=sharding),)

    def batch_axis(
        self, axis: Any, operands: Any, dims: Any, *, sharding: Sharding | None, source: Sharding | None
    ) -> tuple:
        (x,), (b,) = operands, dims

        def widened(sharding: Sharding | None) -> Sharding | None:
            return None if sharding is None else sharding.with_dim(b, axis.spmd_name)

        return self(x, sharding=widened(sharding), source=widened(source)), b

    batch = None


sharding_constraint_p = ShardingConstraint()
device_put_p = DevicePut()


def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """Say how arrays are to lie; inside `jit` the partitioner keeps to it, outside they are placed so.

    Args:
      x: a tree of arrays.
      shardings: a sharding for all of them or a tree that is a prefix of `x`; a `PartitionSpec` is over the mesh in
        force, None leaves an array as it is. A spec may leave dimensions to the compiler with
        `PartitionSpec.UNCONSTRAINED`.

    Returns:
      The same tree of arrays.

    Raises:
      ShardingError: a bare spec without a mesh, or a spec that does not fit its array.
      TreeError: `shardings` is no prefix of `x`.

    Examples:
      >>> import phalanx
      >>> from phalanx.sharding import AxisType, P, make_mesh
      >>> with make_mesh((1,), ("data",), AxisType.Auto):
      ...     with_sharding_constraint(phalanx.lax.iota("float32", 4), P("data")).sharding.spec
      PartitionSpec('data')
    """
    leaves, tree = tree_flatten(x)
    flat = sharding_prefix(shardings, x, "with_sharding_constraint, shardings", may_be_open=True)
    for i, (leaf, s) in enumerate(zip(leaves, flat, strict=True)):
        check_kept(s)
        if isinstance(s, NamedSharding) and len(s.spec) > aval_of(leaf).ndim:
            _check_rank(s, aval_of(leaf), f"with_sharding_constraint, argument x{leaf_path(x, i)}")
    out = [leaf if s is None else sharding_constraint_p(leaf, sharding=s) for leaf, s in zip(leaves, flat, strict=True)]
    return tree_unflatten(tree, out)


def sharding_prefix(shardings: Any, tree: Any, what: str, *, may_be_open: bool = False) -> list[Sharding | None]:
    """For each leaf of `tree` the sharding that a prefix tree gives it.

    Args:
      shardings: a prefix of `tree` whose leaves are shardings, formats, devices, specs over the mesh in force, None or
        UNSPECIFIED. A list in it may stand for a tuple.
      tree: the values.
      what: what the prefix is called, for messages.
      may_be_open: whether specs may leave dimensions to the compiler.

    Returns:
      A sharding or None for each leaf.

    Raises:
      ShardingError: a bare spec without a mesh, or a spec that does not fit.
      ArgumentTypeError: a leaf is nothing of this.
      TreeError: `shardings` is no prefix of `tree`.
    """
    flat = broadcast_prefix(shardings, tree, what=what, is_leaf=lambda s: s is None, lists_as_tuples=True)
    paths = functools.cache(lambda: tree_flatten_with_path(tree)[0])  # walked once, and only where specs are asked
    where = lambda i: f"{what}{keystr(paths()[i][0])}"
    out: list[Sharding | None] = []
    for i, s in enumerate(flat):
        if isinstance(s, Format):
            s = s.placed(where(i))
        if s is UNSPECIFIED:
            s = None
        elif hasattr(s, "device_kind"):
            s = placement.on_device(s)
        elif s is not None and not isinstance(s, Sharding):
            s = to_sharding(s, where=where(i))
        if isinstance(s, NamedSharding) and s.spec.has_unconstrained and not may_be_open:
            raise ShardingError(
                where(i),
                expected="a spec that says where each part of an array is",
                got=s.spec,
                mend="leave dimensions to the compiler in with_sharding_constraint only",
            )
        out.append(s)
    return out


def check_kept(sharding: Any, manual: Collection | None = None) -> None:
    """Refuse a sharding over axes along which each device runs by itself.

    Args:
      sharding: a sharding, or None.
      manual: these axes; those of the `shard_map` at hand if left out.

    Raises:
      ShardingError: its spec names one of them.
    """
    if not isinstance(sharding, NamedSharding):
        return
    if manual is None:
        mesh = state.context.mesh
        manual = () if mesh is None else mesh.manual_axes
    taken = ", ".join(repr(name) for name in sharding.spec.axes if name in manual)
    if taken:
        raise ShardingError(
            "a sharding inside a shard_map",
            expected="one over the axes that the partitioner keeps",
            got=f"{sharding.spec}, where each device runs by itself along {taken}",
            mend=f"take {taken} out of the spec: inside, an array is one device's piece already",
        )


def _check_rank(sharding: Sharding | None, x: ShapedArray, where: str) -> None:
    if isinstance(sharding, NamedSharding):
        check_rank(sharding.spec, x.ndim, x.str_short(), where=where)


def _check_explicit(sharding: Sharding, x: ShapedArray) -> None:
    """Over Explicit axes a constraint moves nothing: it must say what the type says."""
    if not isinstance(sharding, NamedSharding) or not sharding.mesh.explicit_axes:
        return
    whole = ((),) * x.ndim
    held = whole if x.sharding is None else x.sharding.spec.dims
    asked = sharding.spec.padded(x.ndim)
    explicit = set(sharding.mesh.explicit_axes)
    for axes, have in zip(asked, held, strict=True):
        if axes is UNCONSTRAINED or tuple([a for a in axes if a in explicit]) != have:
            raise ShardingError(
                "with_sharding_constraint",
                expected=f"what the type says over the Explicit axes of the mesh, {PartitionSpec.of_dims(held)}",
                got=f"{sharding.spec} for {x.str_short()}",
                mend="use phalanx.reshard to split the array another way",
            )


def _check_partitions(ctx: Any, sharding: Sharding, where: str) -> None:
    """Refuse a sharding over another number of devices than the program runs on."""
    count = ctx.module.num_partitions
    if sharding.num_devices != count and not (count == 1 and sharding.is_fully_replicated):
        raise ShardingError(
            f"{where} inside a compiled function",
            expected=f"a sharding over the {count} device{'s' if count > 1 else ''} that the program runs on",
            got=sharding,
            mend="use one mesh for the arguments and for what is inside, or move the array before the call",
        )


def constrain(ctx: Any, x: Any, aval: ShapedArray, sharding: Any) -> Any:
    """Emit the constraint that a value has a sharding; nothing where it is open or there is one device."""
    if sharding is None or ctx.module.num_partitions == 1:
        return x
    manual = ctx.module.manual
    if manual is not None:
        check_kept(sharding, manual.axes)
    if not isinstance(x, ir.Value):
        return x
    return bring(ctx, x, physical_aval(aval), sharding)
