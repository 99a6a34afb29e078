"""Placement inside programs: the primitives `device_put` and `sharding_constraint`, and `with_sharding_constraint`.

Outside of a trace both primitives place an array. In a program over a mesh they are lowered to sharding constraints for
XLA's partitioner. `phalanx.spmd` binds them for `device_put` and for resharding.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from typing import Any

from phalanx.core import (
    ArgumentError,
    Identity,
    ShapedArray,
    ShardingError,
    format_source,
    get_aval,
    physical_aval,
    state,
)
from phalanx.engine.mlir import ir
from phalanx.lax.sharding.layout_constraint import layout_constraint_p
from phalanx.runtime import (
    Array,
    Format,
    Layout,
    LoweringContext,
    ModuleContext,
    device_names,
    fill_unconstrained,
    general_transfers,
    is_abstract,
    non_default_memory_kind,
    place_in_memory,
    reshard_to,
    transfer,
)
from phalanx.sharding import (
    UNCONSTRAINED,
    UNSPECIFIED,
    AbstractMesh,
    AutoSharding,
    Mesh,
    NamedSharding,
    PartitionSpec,
    Sharding,
    check_rank,
    to_sharding,
)
from phalanx.transforms.batching import AxisData
from phalanx.tree import broadcast_prefix, keystr, tree_flatten, tree_flatten_with_path, tree_leaves, tree_unflatten
from phalanx.tree.key_paths import leaf_path
from phalanx.typing import PyTree


class ShardingConstraint(Identity, name="sharding_constraint"):
    """`x` with the given sharding: num[*dims] -> num[*dims]."""

    typed_sharding_rule = True

    def target_shardings(self, *, sharding: Sharding) -> tuple:
        return (sharding,)

    def abstract_eval(self, x: ShapedArray, *, sharding: Sharding) -> ShapedArray:
        _check_rank(sharding, x, "with_sharding_constraint")
        _check_explicit(sharding, x)
        return x

    def run(self, x: Any, *, sharding: Sharding) -> Array:
        _check_explicit(sharding, get_aval(x))
        # Outside of a trace no partitioner chooses a sharding, so an UNCONSTRAINED dimension keeps its present one.
        held = x.sharding if type(x) is Array else None
        if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, AbstractMesh):
            sharding = _on_devices(sharding, held)
        return general_transfers.put([x], [fill_unconstrained(sharding, held, get_aval(x).ndim)])[0]

    def lower(self, ctx: LoweringContext, x: Any, *, sharding: Sharding) -> Any:
        check_devices(ctx, sharding, "with_sharding_constraint")
        return constrain(ctx, x, ctx.avals_in[0], sharding)

    def transpose(self, y_bar: Array, x: Any, *, sharding: Sharding) -> tuple:
        return (self(y_bar, sharding=sharding),)

    def batch_axis(
        self, axis: AxisData, operands: Sequence[Any], dims: Sequence[int | None], *, sharding: Sharding
    ) -> tuple:
        (x,), (b,) = operands, dims
        # The constraint does not mention the mapped dimension, so the partitioner may choose its sharding.
        entry = UNCONSTRAINED if axis.spmd_name is None else axis.spmd_name
        return self(x, sharding=sharding.with_dim(b, entry)), b


class ResultSharding(ShardingConstraint, name="result_sharding"):
    """`x`, which the operation before is to compute with the given sharding: num[*dims] -> num[*dims].

    A `sharding_constraint` reshards what the partitioner makes of that operation; this one decides on how it is
    partitioned.
    """

    def lower(self, ctx: LoweringContext, x: Any, *, sharding: Sharding) -> Any:
        ctx.module.inferred_shardings[x] = sharding
        return super().lower(ctx, x, sharding=sharding)


class DevicePut(Identity, name="device_put"):
    """`x` on the devices of `sharding`, coming from the devices of `source` if known: num[*dims] -> num[*dims]."""

    typed_sharding_rule = True

    def target_shardings(self, *, sharding: Sharding | None, source: Sharding | None) -> tuple:
        return (sharding,)

    def abstract_eval(self, x: ShapedArray, *, sharding: Sharding | None, source: Sharding | None) -> ShapedArray:
        if sharding is None:
            return x
        _check_rank(sharding, x, "device_put")
        return x.update(sharding=sharding.type_sharding(x.ndim))

    def run(self, x: Any, *, sharding: Sharding | None, source: Sharding | None) -> Array:
        return general_transfers.put([x], [sharding])[0]

    def lower(self, ctx: LoweringContext, x: Any, *, sharding: Sharding | None, source: Sharding | None) -> Any:
        if sharding is None:
            return x
        check_devices(ctx, sharding, "device_put")
        x = constrain(ctx, x, ctx.avals_in[0], sharding)
        kind = sharding.memory_kind
        return x if kind is None or ctx.platform == "cpu" else place_in_memory(x, kind)

    def memories(self, held: Sequence[str | None], *, sharding: Sharding | None, source: Sharding | None) -> list:
        return list(held) if sharding is None else [non_default_memory_kind(sharding)]

    def transpose(self, y_bar: Array, x: Any, *, sharding: Sharding | None, source: Sharding | None) -> tuple:
        return (y_bar if source is None else self(y_bar, sharding=source, source=sharding),)

    def batch_axis(
        self,
        axis: AxisData,
        operands: Sequence[Any],
        dims: Sequence[int | None],
        *,
        sharding: Sharding | None,
        source: Sharding | None,
    ) -> tuple:
        (x,), (b,) = operands, dims

        def widened(sharding: Sharding | None) -> Sharding | None:
            return None if sharding is None else sharding.with_dim(b, axis.spmd_name)

        return self(x, sharding=widened(sharding), source=widened(source)), b


sharding_constraint_p = ShardingConstraint()
result_sharding_p = ResultSharding()
device_put_p = DevicePut()


def with_sharding_constraint(x: Any, shardings: PyTree) -> Any:
    """Constrain the shardings of arrays inside `jit`; outside, place the arrays.

    Args:
      x: a tree of arrays.
      shardings: a sharding for all arrays, or a tree of shardings that is a prefix of `x`. A `PartitionSpec` is over
        the mesh in context; None leaves an array unconstrained. `PartitionSpec.UNCONSTRAINED` leaves a dimension to the
        compiler.

    Returns:
      The same tree of arrays.

    Raises:
      ShardingError: a spec has no mesh, or does not match its array.
      TreeError: `shardings` is not a prefix of `x`.

    Examples:
      >>> import phalanx
      >>> from phalanx.sharding import AxisType, P, make_mesh
      >>> with make_mesh((1,), ("data",), AxisType.Auto):
      ...     with_sharding_constraint(phalanx.lax.iota("float32", 4), P("data")).sharding.spec
      P('data',)
    """
    leaves, tree = tree_flatten(x)
    flat = broadcast_shardings(shardings, x, "with_sharding_constraint, shardings", may_be_open=True)
    layouts = broadcast_layouts(shardings, x, "with_sharding_constraint, shardings")
    for i, (leaf, s) in enumerate(zip(leaves, flat, strict=True)):
        check_not_manual(s)
        if isinstance(s, NamedSharding):
            if len(s.spec) > get_aval(leaf).ndim:
                _check_rank(s, get_aval(leaf), f"with_sharding_constraint, argument x{leaf_path(x, i)}")
            flat[i] = _add_typed_axes(s, get_aval(leaf))
    out = [leaf if s is None else sharding_constraint_p(leaf, sharding=s) for leaf, s in zip(leaves, flat, strict=True)]
    return tree_unflatten(tree, apply_layouts(out, layouts))


def broadcast_layouts(shardings: PyTree, tree: PyTree, what: str) -> list[Layout | None] | None:
    """The memory layouts of the leaves of a tree, by the formats among `shardings`, a prefix of it; None for no format.

    Raises:
      ArgumentError: a layout is left to the compiler.
      ArgumentTypeError, AxisError: a layout does not fit its array.
    """
    if not any(isinstance(s, Format) for s in tree_leaves(shardings)):
        return None
    flat = broadcast_prefix(shardings, tree, what=what, is_leaf=lambda s: s is None, lists_as_tuples=True)
    found = []
    for s, (path, leaf) in zip(flat, tree_flatten_with_path(tree)[0], strict=True):
        layout = s.resolve_layout(get_aval(leaf), f"{what}{keystr(path)}") if isinstance(s, Format) else None
        if layout is Layout.AUTO:
            raise ArgumentError(
                f"{what}{keystr(path)}",
                expected="a layout that is concrete, since the array is made now",
                got="Layout.AUTO",
                fix="leave the layout out, or declare it in in_shardings or out_shardings of jit",
            )
        found.append(layout)
    return found


def apply_layouts(leaves: Sequence[Any], layouts: Sequence[Layout | None] | None) -> Sequence[Any]:
    """Copy arrays into these memory layouts, and constrain traced values to them."""
    if layouts is None:
        return leaves
    pairs = zip(leaves, layouts, strict=True)
    return [x if layout is None else layout_constraint_p(x, layout=layout) for x, layout in pairs]


def broadcast_shardings(
    shardings: PyTree, tree: PyTree, what: str, *, may_be_open: bool = False, may_be_auto: bool = False
) -> list[Any]:
    """Broadcast a prefix tree of shardings to the leaves of a tree.

    Args:
      shardings: a prefix of `tree` whose leaves are shardings, formats, devices, specs over the mesh in context, None
        or UNSPECIFIED. Lists match tuples.
      tree: the values.
      what: the name of the prefix in error messages.
      may_be_open: whether specs may leave dimensions to the compiler.
      may_be_auto: whether `AUTO` may leave arrays to the system.

    Returns:
      A sharding, None or AUTO for each leaf.

    Raises:
      ShardingError: a spec has no mesh, or does not match its array.
      ArgumentTypeError: a leaf is none of these.
      TreeError: `shardings` is not a prefix of `tree`.
    """
    # None is a leaf here: it leaves an array unconstrained. In other pytrees None is an empty subtree.
    flat = broadcast_prefix(shardings, tree, what=what, is_leaf=lambda s: s is None, lists_as_tuples=True)
    # Paths are for error messages only, so they are computed at the first one.
    paths = functools.cache(lambda: tree_flatten_with_path(tree)[0])
    where = lambda i: f"{what}{keystr(paths()[i][0])}"
    out: list[Any] = []
    for i, s in enumerate(flat):
        s = s.sharding if isinstance(s, Format) else s
        # Older programs write UNSPECIFIED where newer ones write None.
        if s is UNSPECIFIED:
            s = None
        elif hasattr(s, "device_kind"):
            s = transfer.single_device_sharding(s)
        elif isinstance(s, AutoSharding):
            if not may_be_auto:
                raise ShardingError(
                    where(i),
                    expected="a sharding or a spec",
                    got=s,
                    fix="write AUTO in in_shardings or out_shardings of jit, for the shardings of a whole program",
                )
        elif s is not None and not isinstance(s, Sharding):
            s = to_sharding(s, where=where(i))
        if isinstance(s, NamedSharding) and s.spec.has_unconstrained and not may_be_open:
            raise ShardingError(
                where(i),
                expected="a spec without UNCONSTRAINED dimensions",
                got=s.spec,
                fix="replace UNCONSTRAINED by axis names or None; only with_sharding_constraint leaves dimensions open",
            )
        out.append(s)
    return out


def check_not_manual(sharding: Any, manual: Collection | None = None) -> None:
    """Check that a sharding does not use manual axes of a `shard_map`.

    Args:
      sharding: a sharding, or None.
      manual: the manual axes; by default the enclosing `shard_map`'s.

    Raises:
      ShardingError: the spec names one of them.
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
            expected="a sharding over the axes that are not manual",
            got=f"{sharding.spec}, with the manual axes {taken}",
            fix=f"remove {taken} from the spec; inside the shard_map each array is a shard along these axes",
        )


def _check_rank(sharding: Sharding | None, x: ShapedArray, where: str) -> None:
    if isinstance(sharding, NamedSharding):
        check_rank(sharding.spec, x.ndim, x.str_short(), where=where)


def _add_typed_axes(sharding: NamedSharding, x: ShapedArray) -> NamedSharding:
    """A constraint that names no Explicit axis, completed by those in the array's type."""
    held: NamedSharding | None = x.type_sharding
    if held is None or not sharding.mesh.auto_axes or not sharding.mesh.explicit_axes:
        return sharding
    if not set(sharding.mesh.auto_axes).issuperset(sharding.spec.axes) or not sharding.spec.axes:
        return sharding
    dims = zip(held.spec.dims, sharding.spec.axes_per_dim(x.ndim), strict=True)
    return sharding.with_spec(
        PartitionSpec.of_dims([axes if axes is UNCONSTRAINED else (*typed, *axes) for typed, axes in dims])
    )


def _check_explicit(sharding: Sharding, x: ShapedArray) -> None:
    """Check a constraint over Explicit axes, which must agree with the sharding in the array's type."""
    if not isinstance(sharding, NamedSharding) or not sharding.mesh.explicit_axes:
        return
    # A value without a sharding in its type is replicated over the Explicit axes.
    whole = ((),) * x.ndim
    held = whole if x.type_sharding is None else x.type_sharding.spec.dims
    asked = sharding.spec.axes_per_dim(x.ndim)
    explicit = sharding.mesh.axes_in_types(sharding.mesh.explicit_axes)
    for axes, have in zip(asked, held, strict=True):
        if axes is UNCONSTRAINED or tuple([a for a in axes if a in explicit]) != have:
            raise ShardingError(
                "with_sharding_constraint",
                expected=f"the sharding in the array's type over Explicit axes, {PartitionSpec.of_dims(held)}",
                got=f"{sharding.spec} for {x.str_short()}",
                fix=f"change the sharding with phalanx.reshard(x, {sharding.spec})",
            )


def _on_devices(sharding: NamedSharding, held: Sharding | None) -> NamedSharding:
    """A sharding over an abstract mesh, over the mesh of devices that an array is on, or else the one in context."""
    for mesh in (getattr(held, "mesh", None), state.context.mesh):
        if isinstance(mesh, Mesh) and mesh.shape == sharding.mesh.shape:
            return sharding.update(mesh=mesh)
    raise ShardingError(
        "with_sharding_constraint",
        expected="a sharding over a mesh of devices, or over the abstract mesh of the array",
        got=sharding,
        fix="use the Mesh instead of the AbstractMesh, or call the function after set_mesh(mesh)",
    )


def is_over_program(module: ModuleContext, sharding: Sharding) -> bool:
    """Whether a sharding is over the devices of a program; one over an abstract mesh, over as many."""
    devices = module.device_assignment
    if sharding.num_devices != module.num_partitions:
        return False
    if devices is None or is_abstract(sharding):
        return True
    held: tuple[Any, ...] = sharding._device_assignment
    return held == devices or set(held) == set(devices)


def check_devices(ctx: LoweringContext, sharding: Sharding | None, where: str) -> None:
    """Check that a sharding inside a program is over the devices of the program.

    Raises:
      ShardingError: it has more or fewer devices, or others.
    """
    # A program runs on one set of devices, so every sharding in it is over all of them.
    count, devices = ctx.module.num_partitions, ctx.module.device_assignment
    if sharding is None or is_over_program(ctx.module, sharding) or (count == 1 and sharding.is_fully_replicated):
        return
    is_elsewhere = sharding.num_devices == count
    raise ShardingError(
        f"{where} inside a compiled function, at {format_source(ctx.eqn.source)}",
        expected=f"a sharding over the {count} device{'s' if count > 1 else ''} that the program runs on"
        + (f", {device_names(devices)}" if is_elsewhere else ""),
        got=f"{sharding} on {device_names(sharding._device_assignment)}" if is_elsewhere else sharding,
        fix="use the mesh of the arguments, or call device_put on the array before the call",
    )


def constrain(ctx: LoweringContext, x: Any, aval: ShapedArray, sharding: Any) -> Any:
    """Emit a sharding constraint, unless the sharding is None or the program runs on one device."""
    if sharding is None or ctx.module.num_partitions == 1:
        return x
    # Inside a `shard_map` a value is a shard along the manual axes, so only the other axes can shard it further.
    manual = ctx.module.manual
    if manual is not None:
        check_not_manual(sharding, manual.axes)
    return reshard_to(ctx, x, physical_aval(aval), sharding) if isinstance(x, ir.Value) else x
