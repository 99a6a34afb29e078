"""`NamedSharding`: an array split over the named axes of a mesh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core import ArgumentTypeError, ShapedArray, ShardingError
from phalanx.engine import Cache, Device, DeviceList, HloSharding, api_boundary_class
from phalanx.sharding.base_sharding import Sharding, intern_sharding, memoize_method
from phalanx.sharding.explicit_types import infer_result_types
from phalanx.sharding.hlo_conversion import axes_to_hlo
from phalanx.sharding.mesh import AbstractMesh, Mesh
from phalanx.sharding.partition_spec import (
    NO_AXES,
    UNCONSTRAINED,
    UNSPECIFIED,
    AxisName,
    PartitionSpec,
    Sentinel,
    check_rank,
    check_spec,
)
from phalanx.sharding.tiling import Tiling, mixed_radix

_REPLICATED_SPEC = PartitionSpec()


@api_boundary_class
class NamedSharding(Sharding):
    """A sharding that splits the dimensions of an array over the named axes of a mesh.

    Args:
      mesh: the mesh. With an `AbstractMesh` the sharding can be traced and inspected, but not used to place data.
      spec: the mesh axes that split each dimension.
      memory_kind: memory kind of the devices; the default memory if not given.

    Raises:
      ShardingError: the spec does not fit the mesh, or the devices do not have this memory kind.
      ArgumentTypeError: `mesh` is not a mesh or `spec` is not a `PartitionSpec`.

    Examples:
      >>> from phalanx.sharding import AbstractMesh, P
      >>> sharding = NamedSharding(AbstractMesh((4, 2), ("data", "model")), P("data", None))
      >>> sharding.shard_shape((512, 64))
      (128, 64)
    """

    __slots__ = _fields = ("mesh", "spec")
    mesh: Mesh | AbstractMesh
    spec: PartitionSpec

    def __new__(
        cls, mesh: Mesh | AbstractMesh, spec: PartitionSpec, memory_kind: str | None = None, *, where: str | None = None
    ) -> NamedSharding:
        if isinstance(spec, PartitionSpec):
            key = (cls, mesh, spec, memory_kind)
            found: NamedSharding | None = _shardings.get(key)
            if found is not None:
                return found
        _check_arguments(mesh, spec, where or "NamedSharding")
        devices = mesh.flat_devices if isinstance(mesh, Mesh) else ()
        split = (*spec.dims, tuple(spec.unreduced))
        is_whole = all(axes is not UNCONSTRAINED and all(mesh.shape[a] == 1 for a in axes) for axes in split)
        return intern_sharding(
            _shardings, key, devices, where or "NamedSharding", mesh=mesh, spec=spec, is_fully_replicated=is_whole
        )

    # How `core.primitive`, a lower layer, reaches the type rule of Explicit axes.
    _infer_result_types = staticmethod(infer_result_types)

    @property
    @memoize_method
    def canonical(self) -> NamedSharding:
        """See `Sharding.canonical`."""
        return self.with_spec(self.spec.canonical)

    @property
    def _concrete_mesh(self) -> Mesh:
        if isinstance(self.mesh, Mesh):
            return self.mesh
        raise ShardingError(
            "devices of a sharding",
            expected="a sharding over a Mesh of devices",
            got=self,
            fix="use a Mesh, for example phalanx.make_mesh(...), in place of the AbstractMesh to place data",
        )

    @property
    def unreduced_over(self) -> tuple[Any, ...]:
        """See `Sharding.unreduced_over`."""
        spec = self.spec
        return (self.mesh.shape, spec.unreduced, spec.unreduced_kind) if spec.unreduced else ()

    @property
    def summed(self) -> NamedSharding:
        """See `Sharding.summed`."""
        return self.with_spec(self.spec.update(unreduced=NO_AXES)) if self.spec.unreduced else self

    @property
    def _internal_device_list(self) -> DeviceList:
        mesh = self.mesh  # jaxlib reads this three times for each transfer.
        return mesh.device_list if type(mesh) is Mesh else self._concrete_mesh.device_list

    @property
    def _device_assignment(self) -> tuple[Device, ...]:
        return self._concrete_mesh.flat_devices

    @property
    def device_set(self) -> frozenset[Device]:
        """The set of all devices."""
        return self._concrete_mesh.device_set

    @property
    def num_devices(self) -> int:
        """Number of devices of the mesh."""
        return self.mesh.size

    def axes(self, ndim: int) -> tuple[tuple[Any, ...], ...]:
        """The mesh axes that split each dimension of an array, from major to minor.

        Args:
          ndim: number of dimensions of the array.

        Returns:
          A tuple of axis names for each dimension.

        Raises:
          ShardingError: the spec has more than `ndim` entries, or an entry is UNCONSTRAINED.
        """
        check_rank(self.spec, ndim, f"an array of {ndim} dimensions", where="NamedSharding")
        if self.spec.has_unconstrained:
            raise ShardingError(
                "NamedSharding",
                expected="a spec that determines the sharding of each dimension",
                got=self.spec,
                fix="replace UNCONSTRAINED by axis names or None; it is valid in with_sharding_constraint only",
            )
        return self.spec.axes_per_dim(ndim)

    @memoize_method
    def tiling(self, ndim: int) -> Tiling:
        """See `Sharding.tiling`."""
        shape, dims = self.mesh.shape, self.axes(ndim)
        sizes = tuple(shape.values())
        position = dict(zip(shape, np.indices(sizes).reshape(len(sizes), -1), strict=True))
        coordinates = np.zeros((self.mesh.size, ndim), np.int64)
        for dim, axes in enumerate(dims):
            coordinates[:, dim] = mixed_radix([position[axis] for axis in axes], [shape[axis] for axis in axes])
        return Tiling(tuple(map(self.mesh.num_parts, dims)), coordinates)

    def _num_parts(self, ndim: int) -> tuple[int, ...]:
        entries = self.spec.axes_per_dim(ndim)
        return tuple([1 if axes is UNCONSTRAINED else self.mesh.num_parts(axes) for axes in entries])

    @memoize_method
    def _to_xla_hlo_sharding(self, num_dimensions: int) -> HloSharding:
        return axes_to_hlo(self.mesh, self.axes(num_dimensions), self.spec.unreduced)

    def update(
        self,
        *,
        mesh: Mesh | AbstractMesh | None = None,
        spec: PartitionSpec | None = None,
        memory_kind: str | Sentinel | None = UNSPECIFIED,
    ) -> NamedSharding:
        """A copy of the sharding with some of the class's arguments replaced.

        Args:
          mesh, spec, memory_kind: as for the class; unchanged if not given.

        Returns:
          The new sharding.
        """
        kind = self.non_default_memory_kind if isinstance(memory_kind, Sentinel) else memory_kind
        return NamedSharding(self.mesh if mesh is None else mesh, self.spec if spec is None else spec, kind)

    def with_spec(self, spec: PartitionSpec) -> NamedSharding:
        """The sharding with another spec over the same mesh, in the same memory.

        Args:
          spec: the new spec.

        Returns:
          The new sharding.
        """
        return NamedSharding(self.mesh, spec, self.non_default_memory_kind)

    def complete(self, ndim: int) -> NamedSharding:
        """The sharding with an entry of the spec for each dimension, as shardings in types have them."""
        return self.with_spec(self.spec.select_axes(self.mesh.axis_names, ndim))

    @property
    def replicated(self) -> NamedSharding:
        """The sharding over the same mesh that replicates the array on every device."""
        return self.with_spec(_REPLICATED_SPEC)

    def with_dim(self, position: int, axes: AxisName | tuple[AxisName, ...] = None) -> NamedSharding:
        """See `Sharding.with_dim`."""
        where = "spmd_axis_name of a vmap, or axis_resources of an xmap"
        for axis in axes if isinstance(axes, tuple) else (axes,):
            if axis is not None and axis in self.spec.axes:
                raise ShardingError(
                    where,
                    expected="mesh axes that no sharding inside the mapped function uses",
                    got=f"{axis!r} for the mapped dimension and in {self.spec}",
                    fix=f"split the mapped dimension over another mesh axis, or remove {axis!r} from the spec",
                )
        # P("x") instead of P(("x",)), which users would see in error messages.
        axes = axes[0] if isinstance(axes, tuple) and len(axes) == 1 else axes
        entries = [*self.spec.partitions, *[None] * (position - len(self.spec))]
        spec = self.spec.update(partitions=[*entries[:position], axes, *entries[position:]])
        return NamedSharding(self.mesh, spec, self.non_default_memory_kind, where=where)

    def without_dim(self, position: int) -> NamedSharding:
        """The sharding of an array without the dimension at `position`."""
        entries = self.spec.partitions
        return self.with_spec(self.spec.update(partitions=[*entries[:position], *entries[position + 1 :]]))

    def type_sharding(self, ndim: int) -> NamedSharding | None:
        """See `Sharding.type_sharding`."""
        explicit = self.mesh.explicit_axes
        return self._select_axes(self.mesh.axes_in_types(explicit), ndim) if explicit else None

    @memoize_method
    def _select_axes(self, axes: tuple[AxisName, ...], ndim: int) -> NamedSharding:
        self.axes(ndim)
        return NamedSharding(self.mesh.abstract_mesh, self.spec.select_axes(axes, ndim))

    @memoize_method
    def to_cotangent(self) -> NamedSharding:
        """The sharding of the cotangents of arrays with this sharding."""
        return self.with_spec(self.spec.to_ct_spec())

    def _describe_split(self, dim: int) -> str:
        names = " and ".join([f"{axis!r} ({self.mesh.shape[axis]})" for axis in self.spec.dims[dim]])
        return f"{self.spec} splits it over {names}"

    def _check_rank(self, ndim: int, what: str, where: str) -> None:
        check_rank(self.spec, ndim, what, where=where)

    def __reduce__(self) -> tuple[Any, ...]:
        return NamedSharding, (self.mesh, self.spec, self.non_default_memory_kind)

    def __repr__(self) -> str:
        return self._format(f"mesh={self.mesh}, spec={self.spec}")


def _check_arguments(mesh: object, spec: object, where: str) -> None:
    if not isinstance(mesh, (Mesh, AbstractMesh)) or not isinstance(spec, PartitionSpec):
        raise ArgumentTypeError(
            where,
            expected="a Mesh or AbstractMesh and a PartitionSpec",
            got=f"{type(mesh).__name__} and {type(spec).__name__}",
            fix="call NamedSharding(mesh, PartitionSpec(...))",
        )
    check_spec(spec, mesh.shape, where=where)


_shardings: Cache[Any, NamedSharding] = Cache("sharding.named_shardings", weak="values")


def shard_dims(aval: ShapedArray, mesh: Mesh | AbstractMesh, dims: Sequence[tuple[AxisName, ...]]) -> ShapedArray:
    """The type with dimensions sharded over these axes of a mesh."""
    return aval.update(sharding=NamedSharding(mesh, PartitionSpec.of_dims(dims)))
