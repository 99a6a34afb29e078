"""The shardings of a program's results: declared, in their types, or chosen by the compiler.

The compiler reports a sharding as tiles of devices. It is named by the axes of a mesh here, in the form that an input
placed in the same way has, so that the types of arrays that are placed alike are equal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from phalanx.core import Jaxpr, ShapedArray, Var, physical_aval, state
from phalanx.engine import Device
from phalanx.runtime import transfer
from phalanx.sharding import (
    AbstractMesh,
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec,
    Sharding,
    from_hlo_sharding,
    get_placement_mesh,
    reorder_devices,
)


@dataclasses.dataclass(frozen=True, eq=False)
class ResultShardings:
    """Finds the shardings of the results of a program.

    Args:
      program: the jaxpr.
      devices: in partition order.
      in_shardings: one for each input.
      declared: one for each result; None where the compiler chooses.
    """

    program: Jaxpr
    devices: tuple[Device, ...]
    in_shardings: Sequence[Any]
    declared: Sequence[Any]

    def complete(self, found: Sequence[Any]) -> list:
        """The declared shardings, and the ones that the compiler chose, `found`; None where it chose none."""
        out = []
        for v, s, chosen in zip(self.program.outvars, self.declared, found, strict=True):
            ndim = physical_aval(v.aval).ndim
            if s is None and chosen is not None:
                over = self.mesh if v.aval.type_sharding is None else v.aval.type_sharding.mesh.on(self.devices)
                s = from_hlo_sharding(chosen, self.devices, over, ndim)
                if isinstance(s, NamedSharding):
                    s = _complete_spec(v.aval, s.mesh, s.axes(ndim))
                s = as_input(self._named_inputs, s, ndim)
            out.append(s and reorder_devices(s, self.devices, ndim))
        return out

    def on_one_device(self) -> list:
        """The declared shardings, and one for results on the only device, for which the compiler reports none.

        A program over a mesh of one device keeps its results on that mesh.
        """
        only = transfer.single_device_sharding(self.devices[0])
        out = []
        for v, s in zip(self.program.outvars, self.declared, strict=True):
            ndim = v.aval.ndim
            alone = only if self.mesh is None else _complete_spec(v.aval, self.mesh, [()] * ndim)
            out.append(as_input(self._named_inputs, alone, ndim) if s is None else s)
        return out

    @cached_property
    def mesh(self) -> Mesh | None:
        """The mesh whose axes name the shardings that the compiler chose.

        It is the first mesh of its inputs, outputs and equations that is in the program's device order, or the mesh in
        context.
        """
        in_equations = [
            s
            for e in self.program.eqns
            if e.primitive.target_shardings is not None
            for s in e.primitive.target_shardings(**e.params)
        ]
        named = [*self.in_shardings, *self.declared, *in_equations]
        meshes = [*(s.mesh for s in named if isinstance(s, NamedSharding)), state.context.mesh]
        return next((m for m in meshes if isinstance(m, Mesh) and m.flat_devices == self.devices), None)

    @cached_property
    def _named_inputs(self) -> dict[tuple[NamedSharding, int], None]:
        """The named shardings of the inputs, each with a rank."""
        # Without repetitions, since each result is compared with all of them: the leaves of a model share a few.
        pairs = zip(self.program.invars, self.in_shardings, strict=False)
        return dict.fromkeys((s, v.aval.ndim) for v, s in pairs if isinstance(s, NamedSharding))


def apply_typed_shardings(
    program: Jaxpr, in_shardings: Sequence[Sharding], declared: Sequence[Any], devices: tuple
) -> Sequence[Any]:
    """The declared shardings of outputs, completed by the ones in their types.

    Where every axis of the mesh is Explicit, the type decides: an output without a sharding in its type is replicated,
    unless it is an input that is sharded otherwise, such as one over Auto axes.
    """
    typed = (v.aval.type_sharding for v in (*program.outvars, *program.invars) if v.aval.type_sharding is not None)
    mesh = next((s.mesh for s in typed), None)
    # Results of operands that are sharded without a sharding in their types are left to the compiler.
    if mesh is None and all(s.is_fully_replicated for s in in_shardings):
        mesh = get_placement_mesh()
    if mesh is None or mesh.auto_axes or mesh.size != len(devices):
        return declared
    mesh = mesh.abstract_mesh.on(devices)
    held = {v: s for v, s in zip(program.invars, in_shardings, strict=False) if v.aval.type_sharding is None}
    out = []
    for v, s in zip(program.outvars, declared, strict=True):
        given = held.get(v) if s is None and type(v) is Var else None
        kept = given if isinstance(given, NamedSharding) and not given.mesh.explicit_axes else None
        out.append(s or kept or NamedSharding(mesh, _full_spec(v.aval)))
    return out


def as_input(inputs: Iterable[tuple[NamedSharding, int]], sharding: Sharding, ndim: int) -> Sharding:
    """The sharding of an input of that rank that places results alike over the same mesh, so that types are equal."""
    if not isinstance(sharding, NamedSharding) or sharding.mesh.explicit_axes:
        return sharding
    for s, rank in inputs:
        if s.mesh is sharding.mesh and rank == ndim and s.is_equivalent_to(sharding, ndim):
            return s
    return sharding


def _full_spec(aval: ShapedArray) -> PartitionSpec:
    """The spec in a type; that of a replicated array where the type has none."""
    held: NamedSharding | None = aval.type_sharding
    return PartitionSpec.of_dims([()] * aval.ndim) if held is None else held.spec


def _complete_spec(aval: ShapedArray, mesh: Mesh | AbstractMesh, dims: Sequence[tuple]) -> NamedSharding:
    """The sharding of a result from the mesh axes that the compiler chose for each dimension.

    Over Explicit axes the type decides, also over axes of size 1, which the compiler does not report.
    """
    held: NamedSharding | None = aval.type_sharding
    dims = dims[: aval.ndim]  # The words of random keys are no dimensions of theirs.
    if held is None:
        # The compiler may use Explicit axes, too; they are no part of the type then.
        used = mesh.explicit_axes if any(axis in mesh.explicit_axes for axes in dims for axis in axes) else ()
        found = NamedSharding(mesh.with_axis_types(dict.fromkeys(used, AxisType.Auto)), PartitionSpec.of_dims(dims))
        return found.complete(len(dims)) if found.mesh.explicit_axes else found.canonical
    merged = [(*t, *(a for a in axes if a not in t)) for t, axes in zip(held.axes(len(dims)), dims, strict=True)]
    full = NamedSharding(mesh, PartitionSpec.of_dims(merged, **held.spec.reductions))
    # As in JAX, a spec with axes that the compiler chose has no trailing None.
    return full if tuple(merged) == tuple(held.axes(len(dims))) else full.canonical
