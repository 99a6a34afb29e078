"""Explicit sharding in programs: the primitive `reshard`, and the argument `out_sharding` of operations.

An operation with `out_sharding` runs on operands without a sharding in their types, so that the compiler chooses how to
partition it, and its result is resharded. `call_with_out_sharding` implements this for every operation and its
derivatives. The public functions are in `explicit_axes`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import (
    ArgumentTypeError,
    Identity,
    ShapedArray,
    ShapeDtypeStruct,
    ShardingError,
    get_aval,
    physical_aval,
    state,
)
from phalanx.engine.mlir import hlo, ir
from phalanx.lax.sharding_constraint import with_sharding_constraint
from phalanx.runtime import Array, LoweringContext, general_transfers, reshard_to
from phalanx.sharding import (
    UNCONSTRAINED,
    AbstractMesh,
    AxisName,
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec,
    Sharding,
    SingleDeviceSharding,
    UnreducedKind,
    spec_to_sharding,
)
from phalanx.transforms.batching import AxisData
from phalanx.typing import ArrayLike, Shape, ShardingLike


class Reshard(Identity, name="reshard"):
    """Change the sharding of `x` over the Explicit axes of a mesh: any[*dims] -> any[*dims]."""

    typed_sharding_rule = True

    def target_shardings(self, *, sharding: NamedSharding) -> tuple:
        return (sharding,)

    def abstract_eval(self, x: ShapedArray, *, sharding: NamedSharding) -> ShapedArray:
        return x.update(sharding=sharding.type_sharding(x.ndim))

    def run(self, x: Array, *, sharding: NamedSharding) -> Array:
        return general_transfers.put([x], [_concrete_target(x, sharding)])[0]

    def lower(self, ctx: LoweringContext, x: ir.Value, *, sharding: NamedSharding) -> Any:
        # The lowering of every equation emits the sharding in the type of its result, open over Auto axes, which is all
        # that is known if there are such axes. Otherwise the shardings are complete, and collectives are planned.
        wanted = ctx.aval_out.type_sharding
        held = ctx.avals_in[0].type_sharding
        if ctx.module.num_partitions == 1:
            return x
        if wanted is None and held is not None:
            return _lower_to_untyped(ctx, x, held)
        if wanted is None or wanted.mesh.auto_axes or (wanted.spec.unreduced and _sums_over(ctx, x, wanted.spec)):
            return x
        if wanted.spec.unreduced and held is not None and x not in ctx.module.typed_shardings:
            # A parameter of a function inside the program: with its sharding stated, each device keeps its own shard.
            x = ctx.module.apply_sharding(x, ctx.avals_in[0], ctx.eqn.source)
        return reshard_to(ctx, x, physical_aval(ctx.avals_in[0]), wanted)

    def batch_axis(
        self, axis: AxisData, operands: Sequence[Array], dims: Sequence[int], *, sharding: NamedSharding
    ) -> tuple:
        (x,), (b,) = operands, dims
        # `sharding` does not mention the mapped dimension, which keeps its axes if they are Explicit in the new mesh.
        held = get_aval(x).type_sharding
        axes = held.spec.dims[b] if held is not None else axis.split or axis.spmd_name or ()
        if not set(axes) <= set(sharding.mesh.explicit_axes):
            axes = ()
        return self(x, sharding=sharding.with_dim(b, axes or None)), b


reshard_p = Reshard()


def _lower_to_untyped(ctx: LoweringContext, x: ir.Value, held: NamedSharding) -> ir.Value:
    """Emit the change to a type without a sharding; the compiler may shard `x` as it likes from here on."""
    if held.spec.unreduced:
        # The operations that follow do not know that their operand is unreduced, so the terms are summed here.
        return reshard_to(ctx, x, physical_aval(ctx.avals_in[0]), held.summed)
    # A parameter may be sharded otherwise. The shards of other values are known, see `_sums_over`.
    is_known = x in ctx.module.typed_shardings or held.mesh.auto_axes
    return x if is_known else ctx.module.apply_sharding(x, ctx.avals_in[0], ctx.eqn.source)


def _sums_over(ctx: LoweringContext, x: ir.Value, spec: PartitionSpec) -> bool:
    """Whether `x` is a sum over dimensions that are sharded, in all operands, over the unreduced axes of `spec`."""
    if isinstance(x.owner, ir.Block):
        return False
    operation = x.owner.operation
    attributes, operands = operation.attributes, list(operation.operands)
    if operation.name == "stablehlo.dot_general":
        numbers = hlo.DotDimensionNumbers(attributes["dot_dimension_numbers"])
        summed = [numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions]
    elif operation.name == "stablehlo.reduce" and len(operands) == 2:
        summed, operands = [list(attributes["dimensions"])], operands[:1]
    elif operation.name == "stablehlo.scatter" and len(operands) == 3 and _adds_to_zeros(operation):
        window = hlo.ScatterDimensionNumbers(attributes["scatter_dimension_numbers"]).update_window_dims
        updates = operands[2]
        ndim = ir.RankedTensorType(updates.type).rank
        summed, operands = [[d for d in range(ndim) if d not in window]], [updates]
    else:
        return False
    held = [ctx.module.typed_shardings.get(operand) for operand in operands]
    axes = {tuple(s.spec.dims[d] for d in dims) if s is not None else None for s, dims in zip(held, summed)}
    first = axes.pop()
    return not axes and first is not None and {a for dim in first for a in dim} == spec.unreduced


def _adds_to_zeros(scatter: ir.Operation) -> bool:
    """Whether a scatter adds its updates to zeros, so that each device can add its own."""
    made = scatter.operands[0].owner
    copies = ("stablehlo.broadcast_in_dim", "stablehlo.optimization_barrier")
    while not isinstance(made, ir.Block) and made.name in copies:
        made = made.operands[0].owner
    if isinstance(made, ir.Block) or made.name != "stablehlo.constant" or made.results[0].type.shape:
        return False
    is_zero = not np.any(np.array(ir.DenseElementsAttr(made.attributes["value"])))
    return is_zero and scatter.regions[0].blocks[0].operations[0].name == "stablehlo.add"


def _concrete_target(x: Array, sharding: NamedSharding) -> NamedSharding | None:
    """Compute the target of an eager reshard: `sharding` over Explicit axes, the present sharding over all others.

    Returns None, for no change, if the value is on no mesh and the abstract mesh of `sharding` is ambiguous.
    """
    # A present sharding over a mesh of another shape has no counterpart on the target's mesh.
    held = x.sharding if type(x) is Array else None
    held = held if isinstance(held, NamedSharding) and held.mesh.shape == sharding.mesh.shape else None
    mesh = sharding.mesh
    if not isinstance(mesh, Mesh):
        near = held.mesh if held is not None else state.context.mesh
        if not isinstance(near, Mesh) or near.shape != mesh.shape:
            near = mesh.concrete
        if near is None:
            return None
        mesh = near.with_axis_types(dict(zip(mesh.axis_names, mesh.axis_types, strict=True)))
    ndim = get_aval(x).ndim
    dims = list(sharding.spec.axes_per_dim(ndim))
    if held is not None and mesh.auto_axes:
        free = set(mesh.auto_axes)
        dims = [(*axes, *[a for a in now if a in free]) for axes, now in zip(dims, held.axes(ndim), strict=True)]
    return NamedSharding(mesh, PartitionSpec.of_dims(dims, **sharding.spec.reductions))


def resolve_explicit_sharding(
    spec: ShardingLike,
    aval: ShapedArray,
    where: str,
    mesh: Mesh | AbstractMesh | None = None,
    kind: UnreducedKind = UnreducedKind.sum,
) -> NamedSharding | None:
    """Resolve a sharding argument to a sharding over Explicit axes; None if the mesh has no Explicit axis.

    Args:
      spec: a sharding, or a `PartitionSpec` over `mesh` or the mesh in context.
      aval: the type of the array.
      where: the path of the argument, for error messages.
      mesh: the mesh of a bare spec, if the array has one.
      kind: the kind of the terms if the result is unreduced over further axes.

    Raises:
      ShardingError: the spec has no mesh, does not match the array, has another `kind`, or names an axis that is not
        Explicit.
      ArgumentTypeError: `spec` is neither a sharding nor a spec.
    """
    if not isinstance(spec, PartitionSpec | NamedSharding):
        raise ArgumentTypeError(
            where,
            expected="a PartitionSpec or a NamedSharding",
            got=f"{spec!r} of type {type(spec).__name__}",
            fix="pass PartitionSpec(...), or NamedSharding(mesh, PartitionSpec(...))",
        )
    if isinstance(spec, PartitionSpec):
        spec = spec_to_sharding(spec, mesh or state.context.mesh, where)
    kinds = dict(zip(spec.mesh.axis_names, spec.mesh.axis_types, strict=True))
    if not spec.mesh.explicit_axes:
        return None
    named = (*spec.spec.axes, *spec.spec.unreduced, *spec.spec.reduced)
    wrong = next((a for a in named if kinds[a] is not AxisType.Explicit), None)
    if wrong is not None or UNCONSTRAINED in spec.spec.dims:
        entry = "UNCONSTRAINED" if wrong is None else f"axis {wrong!r} of type {kinds[wrong]!r}"
        raise ShardingError(
            where,
            expected=f"a spec over the Explicit axes of the mesh, {', '.join(map(repr, spec.mesh.explicit_axes))}",
            got=f"{spec.spec} with {entry}",
            fix="leave it out of the spec; the compiler chooses the sharding over axes that are not Explicit",
        )
    held = PartitionSpec() if aval.type_sharding is None else aval.type_sharding.spec
    kinds_held = {kind} if spec.spec.unreduced - held.unreduced else set()
    if spec.spec.unreduced and {spec.spec.unreduced_kind} != kinds_held | ({held.unreduced_kind} - {None}):
        raise ShardingError(
            where,
            expected=f"an unreduced_kind of {(held.unreduced_kind or kind).name}, that of the terms",
            got=f"{spec.spec} for {aval.str_short()}",
            fix="pass that kind, or leave the unreduced axes out; lax.reduce_max and reduce_min make the others",
        )
    spec.shard_shape(aval.shape, where=where)
    return spec


def auto_sharding(sharding: NamedSharding) -> NamedSharding:
    """Return the unconstrained sharding over the same mesh with all axes Auto."""
    return NamedSharding(set_axis_types(sharding.mesh, sharding.mesh.axis_names, AxisType.Auto), PartitionSpec())


def set_axis_types(mesh: Mesh | AbstractMesh, axes: Sequence[AxisName], kind: AxisType) -> Any:
    """Return the mesh with the type of some axes changed."""
    unknown = next((a for a in axes if a not in mesh.shape), None)
    if unknown is not None:
        raise ShardingError(
            "axes", expected=f"axes of {mesh}", got=repr(unknown), fix=f"pass axes from {mesh.axis_names}"
        )
    return mesh.with_axis_types(dict.fromkeys(axes, kind))


def drop_type_sharding(x: ArrayLike) -> Any:
    """Remove the sharding from the type of `x`; the compiler chooses it from here on."""
    sharding = get_aval(x).type_sharding
    return x if sharding is None else reshard_p(x, sharding=auto_sharding(sharding))


def match_sharding(x: ArrayLike, aval: ShapedArray) -> Any:
    """Reshard `x` to the sharding of `aval`."""
    old = get_aval(x).type_sharding
    if old is aval.type_sharding:
        return x
    return reshard_p(x, sharding=auto_sharding(old) if aval.type_sharding is None else aval.type_sharding)


def shard_dim(x: ArrayLike, dim: int, axes: tuple) -> Any:
    """Shard one dimension of `x` over Explicit mesh axes, if its type has their mesh."""
    old = get_aval(x).type_sharding
    if old is None or old.spec.dims[dim] == axes or not set(axes) <= set(old.mesh.explicit_axes):
        return x
    return reshard_p(x, sharding=old.without_dim(dim).with_dim(dim, axes))


def call_with_out_sharding(
    fun: Callable,
    operands: Sequence[Any],
    out_sharding: ShardingLike | None,
    where: str,
    kind: UnreducedKind = UnreducedKind.sum,
) -> Any:
    """Call an operation such that its result has the sharding `out_sharding`.

    Args:
      fun: the operation, a function of the operands.
      operands: the arrays.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; inferred from the operands if None.
      where: the name of the argument, for error messages.
      kind: how the operation combines the elements of dimensions that the result lacks.

    Returns:
      The result.

    Raises:
      ShardingError: `out_sharding` does not match the result, or is a bare spec without a mesh in context.
    """
    if out_sharding is None:
        return fun(*operands)
    if kind is not UnreducedKind.sum and state.trace is None and getattr(out_sharding, "spec", out_sharding).unreduced:
        raise ShardingError(
            where,
            expected="a compiled function around an operation whose result is unreduced",
            got=out_sharding,
            fix="call the operation inside phalanx.jit",
        )
    if any(s is not None and s.spec.unreduced for s in (get_aval(x).type_sharding for x in operands)):
        out = fun(*operands)  # on the terms
    else:
        out = fun(*map(drop_type_sharding, operands))
    return apply_out_sharding(out, out_sharding, where, find_typed_mesh(operands), kind)


def find_typed_mesh(operands: Sequence[Any]) -> Any:
    """Return the mesh of the first operand whose type has a sharding; None if there is none."""
    typed = next((x for x in operands if get_aval(x).type_sharding is not None), None)
    if typed is None:
        return None
    return typed.sharding.mesh if type(typed) is Array else get_aval(typed).type_sharding.mesh


def apply_out_sharding(
    x: ArrayLike,
    out_sharding: ShardingLike | None,
    where: str = "out_sharding",
    mesh: Mesh | AbstractMesh | None = None,
    kind: UnreducedKind = UnreducedKind.sum,
) -> Any:
    """Apply `out_sharding` to a result: reshard it over Explicit axes, constrain it on a mesh without them."""
    if out_sharding is None or is_over_no_mesh(out_sharding):
        return x
    if isinstance(out_sharding, Sharding) and not isinstance(out_sharding, NamedSharding):
        return with_sharding_constraint(x, out_sharding)
    target = resolve_explicit_sharding(out_sharding, get_aval(x), where, mesh, kind)
    # Without Explicit axes the type has no sharding, so out_sharding becomes a constraint for the compiler.
    return with_sharding_constraint(x, out_sharding) if target is None else reshard_p(x, sharding=target)


def is_over_no_mesh(sharding: object) -> bool:
    """Whether a sharding is that in the type of an array that no mesh places: it asks for nothing."""
    return isinstance(sharding, NamedSharding) and sharding.mesh.empty


def sharding_for_array_like(x: ArrayLike, shape: Shape) -> Sharding | None:
    """The sharding of an array of a shape that is made like another one, such as zeros.

    A `ShapeDtypeStruct` declares its sharding, and over Explicit axes the sharding is part of the type, which the
    result inherits. A committed array has been placed on purpose: one like it is placed alike, if the sharding fits
    both shapes.

    Returns:
      The sharding; None if the compiler or the default device decides.
    """
    is_typed = getattr(getattr(x, "aval", None), "type_sharding", None) is not None
    is_described = isinstance(x, ShapeDtypeStruct) and x.sharding is not None
    if not (is_typed or is_described) and (state.trace is not None or not getattr(x, "committed", False)):
        return None
    sharding: Sharding = x.sharding  # type: ignore[union-attr]
    # An AbstractMesh names no devices to place an array on.
    if state.trace is None and isinstance(getattr(sharding, "mesh", None), AbstractMesh):
        return None
    return sharding if shape == x.shape or isinstance(sharding, SingleDeviceSharding) else None  # type: ignore[union-attr]
