"""Explicit sharding inside programs: the primitive `reshard`, and what `out_sharding=` means.

Builds on the sharding room; `explicit_axes` has what users write. An
operation with `out_sharding=` is one that the compiler splits as it likes, from operands without a sharding in their
types, and whose result is then resharded: `laid_out` is all there is to it, for every operation and derivative.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.config import state
from phalanx.core.errors import ArgumentTypeError, ShardingError
from phalanx.core.primitive import Identity
from phalanx.lax.constraint import eager, with_sharding_constraint
from phalanx.runtime.array import Array
from phalanx.runtime.lowering import physical_aval
from phalanx.runtime.moves import bring
from phalanx.sharding import UNCONSTRAINED, AxisType, Mesh, NamedSharding, PartitionSpec
from phalanx.sharding.context import over_mesh
from phalanx.sharding.spec import AxisName


class Reshard(Identity, name="reshard"):
    """`x` itself, split as `sharding` says over the Explicit axes of its mesh: any[*dims] -> any[*dims]."""

    says_shardings = True

    def placing(self, *, sharding: NamedSharding) -> tuple:
        return (sharding,)

    def result(self, x: ShapedArray, *, sharding: NamedSharding) -> ShapedArray:
        return x.update(sharding=sharding.as_type(x.ndim))

    def run(self, x: Any, *, sharding: NamedSharding) -> Array:
        return eager.put([x], [_on_devices(x, sharding)])[0]

    def lower(self, ctx: Any, x: Any, *, sharding: NamedSharding) -> Any:
        # What the type of the result says is emitted for all results alike; over Auto axes the compiler splits further.
        wanted = ctx.aval_out.sharding
        if ctx.module.num_partitions == 1 or wanted is None or wanted.mesh.auto_axes:
            return x
        return bring(ctx, x, physical_aval(ctx.avals_in[0]), wanted)

    def batch_axis(self, axis: Any, operands: Any, dims: Any, *, sharding: NamedSharding) -> tuple:
        (x,), (b,) = operands, dims
        held = aval_of(x).sharding
        axes = held.spec.dims[b] if held is not None else axis.spmd_name or ()
        if not set(axes) <= set(sharding.mesh.explicit_axes):
            axes = ()
        return self(x, sharding=sharding.with_dim(b, axes or None)), b

    batch = None


reshard_p = Reshard()


def _on_devices(x: Any, sharding: NamedSharding) -> NamedSharding | None:
    """Where a concrete array goes: split over Explicit axes as asked, over the others as it is.

    None, for as it is, where a value of no mesh is asked to lie over axes that several meshes of devices have.
    """
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
    ndim = aval_of(x).ndim
    dims = list(sharding.spec.padded(ndim))
    if held is not None and mesh.auto_axes:
        free = set(mesh.auto_axes)
        dims = [(*axes, *[a for a in now if a in free]) for axes, now in zip(dims, held.axes(ndim), strict=True)]
    return NamedSharding(mesh, PartitionSpec.of_dims(dims).canonical)


def explicit_target(spec: Any, aval: ShapedArray, where: str, mesh: Any = None) -> NamedSharding | None:
    """Read what a user says of how an array is to be split; None where the mesh has no Explicit axis.

    Args:
      spec: a sharding, or a spec, which is over `mesh` or the mesh in force.
      aval: the type of the array.
      where: the argument by its path, for messages.
      mesh: the mesh of a bare spec, where the array itself tells it.

    Raises:
      ShardingError: the spec has no mesh, does not fit the array, or names an axis that is not Explicit.
      ArgumentTypeError: `spec` is neither.
    """
    if not isinstance(spec, PartitionSpec | NamedSharding):
        raise ArgumentTypeError(
            where,
            expected="a PartitionSpec or a NamedSharding",
            got=f"{spec!r} of type {type(spec).__name__}",
            mend="give PartitionSpec(...), or NamedSharding(mesh, PartitionSpec(...))",
        )
    if isinstance(spec, PartitionSpec):
        spec = over_mesh(spec, mesh or state.context.mesh, where)
    kinds = dict(zip(spec.mesh.axis_names, spec.mesh.axis_types, strict=True))
    if not spec.mesh.explicit_axes:
        return None
    wrong = next((a for a in spec.spec.axes if kinds[a] is not AxisType.Explicit), None)
    if wrong is not None or UNCONSTRAINED in spec.spec.dims:
        what = "UNCONSTRAINED" if wrong is None else f"axis {wrong!r} of type {kinds[wrong]!r}"
        raise ShardingError(
            where,
            expected=f"a spec over the Explicit axes of the mesh, {', '.join(map(repr, spec.mesh.explicit_axes))}",
            got=f"{spec.spec} with {what}",
            mend="leave it out; how the others split an array is up to the compiler",
        )
    spec.shard_shape(aval.shape, where=where)
    return spec


def opened(sharding: NamedSharding) -> NamedSharding:
    """The sharding over the same mesh, all of its axes Auto, that says nothing."""
    return NamedSharding(retyped(sharding.mesh, sharding.mesh.axis_names, AxisType.Auto), PartitionSpec())


def retyped(mesh: Any, axes: Sequence[AxisName], kind: AxisType) -> Any:
    """The mesh with these of its axes of another type."""
    unknown = next((a for a in axes if a not in mesh.shape), None)
    if unknown is not None:
        raise ShardingError("axes", expected=f"axes of {mesh}", got=repr(unknown), mend="name axes that the mesh has")
    return mesh.with_axis_types(dict.fromkeys(axes, kind))


def open_type(x: Any) -> Any:
    """`x` with no sharding in its type: where its parts are is up to the compiler from here on."""
    sharding = aval_of(x).sharding
    return x if sharding is None else reshard_p(x, sharding=opened(sharding))


def conform(x: Any, aval: ShapedArray) -> Any:
    """`x` with the sharding that `aval` has."""
    have = aval_of(x).sharding
    if have is aval.sharding:
        return x
    return reshard_p(x, sharding=opened(have) if aval.sharding is None else aval.sharding)


def split_dim(x: Any, dim: int, axes: tuple) -> Any:
    """`x` with one dimension split over Explicit mesh axes, if it lies over their mesh."""
    have = aval_of(x).sharding
    if have is None or have.spec.dims[dim] == axes or not set(axes) <= set(have.mesh.explicit_axes):
        return x
    return reshard_p(x, sharding=have.without_dim(dim).with_dim(dim, axes))


def laid_out(fun: Callable, operands: Sequence[Any], out_sharding: Any, where: str) -> Any:
    """The result of an operation, lying as the user says whatever its operands do.

    Args:
      fun: the operation, a function of the operands.
      operands: arrays.
      out_sharding: a sharding or a spec for the result; None leaves it to the types of the operands.
      where: what the argument is called, for messages.

    Returns:
      The result.

    Raises:
      ShardingError: `out_sharding` does not fit the result, or is a bare spec without a mesh.
    """
    if out_sharding is None:
        return fun(*operands)
    return placed(fun(*map(open_type, operands)), out_sharding, where, mesh_of(operands))


def mesh_of(operands: Sequence[Any]) -> Any:
    """The mesh of the first operand that lies over Explicit axes by its type; None where there is none."""
    typed = next((x for x in operands if aval_of(x).sharding is not None), None)
    if typed is None:
        return None
    return typed.sharding.mesh if type(typed) is Array else aval_of(typed).sharding.mesh


def placed(x: Any, out_sharding: Any, where: str = "out_sharding", mesh: Any = None) -> Any:
    """`x`, lying as `out_sharding` says: resharded over Explicit axes, constrained over others; as it is for None."""
    if out_sharding is None:
        return x
    target = explicit_target(out_sharding, aval_of(x), where, mesh)
    return with_sharding_constraint(x, out_sharding) if target is None else reshard_p(x, sharding=target)
