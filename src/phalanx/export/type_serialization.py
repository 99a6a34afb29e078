"""Abstract values, shardings and meshes as JSON data in the header of an artifact.

An abstract value is text such as `float32[b,3]`. A sharding is the index of a mesh and the mesh axes of each dimension;
a mesh is the names and sizes of its axes, so no device is recorded. A sharding without a spec (an `HloSharding`) is the
number of shards along each dimension and the coordinates of the shard on each partition. Builds on `core` and
`sharding`; `artifact_writer`, `artifact_reader` and `exporting` call it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from phalanx.core import PhalanxError, ShapedArray, dtypes, physical_aval
from phalanx.engine.custom_call_partitioner import HloSharding
from phalanx.export.artifact_format import malformed_error, require_list
from phalanx.random.prng_implementations import find_generator
from phalanx.random.prng_keys import key_dtype
from phalanx.sharding import (
    UNCONSTRAINED,
    AbstractMesh,
    GSPMDSharding,
    Mesh,
    NamedSharding,
    PartitionSpec,
    Sharding,
    Tiling,
    hlo_to_tiling,
    tiling_to_hlo,
)
from phalanx.typing import DimSize

StoredSharding: TypeAlias = NamedSharding | HloSharding | None
"""A sharding without devices: a `NamedSharding` over an `AbstractMesh`, an `HloSharding`, or None if unspecified."""

_MAX_SIZE = 2**63 - 1
_AVAL = re.compile(r"(~?)([\w<>]+)\[([^\[\]]*)\]")
_DTYPES: dict[str, Any] = {d.name: d for d in dtypes.supported} | {"float0": dtypes.float0}


def write_aval(aval: ShapedArray) -> str:
    """An abstract value as text; `~` marks a weak type and `key<...>` a dtype of random keys."""
    dtype = aval.dtype
    if dtypes.is_extended(dtype):
        name = f"key<{dtype.impl.name}>"
    else:
        name = "float0" if dtype == dtypes.float0 else dtype.name
    return f"{'~' if aval.weak_type else ''}{name}[{','.join(map(str, aval.shape))}]"


def read_aval(text: object, read_shape: Callable[[str], tuple[DimSize, ...]]) -> ShapedArray:
    """The inverse of `write_aval`.

    Args:
      text: an abstract value as text.
      read_shape: parses a shape with symbolic dimensions.

    Raises:
      ArtifactError: `text` is not the text of an abstract value.
    """
    match = _AVAL.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise malformed_error("an abstract value such as float32[2,3]", text)
    weak, name, dims = match.groups()
    shape: tuple[DimSize, ...] = ()
    if dims:
        sizes = dims.split(",")
        shape = tuple(map(int, sizes)) if all(s.isascii() and s.isdecimal() for s in sizes) else read_shape(dims)
    # MLIR types have 64-bit dimensions, and cannot represent larger ones.
    if any(type(d) is int and not 0 <= d <= _MAX_SIZE for d in shape):
        raise malformed_error("dimensions that an array can have", text)
    return ShapedArray(shape, _read_dtype(name), bool(weak))


def _read_dtype(name: str) -> Any:
    if name in _DTYPES:
        return _DTYPES[name]
    try:
        if name.startswith("key<"):
            return key_dtype(find_generator(name[4:-1]))
    except PhalanxError as error:
        raise malformed_error("a dtype of this version of phalanx", name) from error
    raise malformed_error("a dtype of this version of phalanx", name)


def without_devices(sharding: Sharding | None, num_devices: int, aval: ShapedArray) -> StoredSharding:
    """A sharding as an artifact stores it; None on a single device."""
    if sharding is None or num_devices == 1:
        return None
    if isinstance(sharding, NamedSharding):
        mesh = sharding.mesh
        return NamedSharding(AbstractMesh(mesh.axis_sizes, mesh.axis_names), sharding.spec)
    return sharding._to_xla_hlo_sharding(physical_aval(aval).ndim)


def to_hlo_sharding(sharding: StoredSharding, aval: ShapedArray) -> HloSharding | None:
    """A stored sharding in XLA's form."""
    if isinstance(sharding, NamedSharding):
        return sharding._to_xla_hlo_sharding(physical_aval(aval).ndim)
    return sharding


def with_devices(sharding: StoredSharding, mesh: Mesh, sizes: Mapping[str, int] | None = None) -> Sharding | None:
    """A stored sharding over the devices of a mesh.

    Args:
      sharding: the stored sharding.
      mesh: the mesh.
      sizes: the sizes of the axes of the program's mesh; None for the stored ones. Unless `mesh` has them, its devices
        are reshaped.
    """
    if sharding is None:
        return None
    if not isinstance(sharding, NamedSharding):
        return GSPMDSharding(mesh.flat_devices, sharding)
    wanted: dict[Any, int] = dict(sharding.mesh.shape if sizes is None else sizes)
    # The partitions of the program are numbered in the order of the devices, so reshaping does not reorder them.
    if wanted != dict(mesh.shape):
        mesh = type(mesh)(mesh.devices.reshape(tuple(wanted.values())), tuple(wanted))
    return NamedSharding(mesh, sharding.spec)


def write_shardings(
    shardings: Sequence[StoredSharding], avals: Sequence[ShapedArray], num_devices: int, meshes: list[list[Any]]
) -> list[Any] | None:
    """Shardings as JSON data; None if the compiler chooses all of them. New meshes are appended to `meshes`."""
    data = [_write_sharding(s, a, num_devices, meshes) for s, a in zip(shardings, avals, strict=True)]
    return data if any(s is not None for s in data) else None


def _write_sharding(sharding: StoredSharding, aval: ShapedArray, num_devices: int, meshes: list[list[Any]]) -> Any:
    if sharding is None:
        return None
    ndim = physical_aval(aval).ndim
    if isinstance(sharding, NamedSharding):
        # Axis names may be any hashable value; JSON holds their text.
        mesh = [[str(name), size] for name, size in sharding.mesh.shape.items()]
        if mesh not in meshes:
            meshes.append(mesh)
        dims = sharding.spec.axes_per_dim(ndim)
        return [meshes.index(mesh), *[[] if axes is UNCONSTRAINED else [str(a) for a in axes] for axes in dims]]
    tiling = hlo_to_tiling(sharding, num_devices, ndim)
    return {"parts": list(tiling.parts), "held": tiling.coordinates.tolist()}


def read_meshes(data: object, num_devices: int) -> list[AbstractMesh]:
    """The meshes of an artifact.

    Raises:
      ArtifactError: a mesh does not have `num_devices` devices.
    """
    meshes = []
    for mesh in require_list(data, "meshes"):
        axes = [tuple(axis) for axis in require_list(mesh, "a mesh") if isinstance(axis, list) and len(axis) == 2]
        is_valid = all(isinstance(name, str) and type(size) is int and 0 < size <= num_devices for name, size in axes)
        names = [name for name, _ in axes]
        # A mesh of devices is a NumPy array, which has at most 64 dimensions.
        if not is_valid or len(axes) != len(mesh) or len(set(names)) != len(names) or len(names) > 64:
            raise malformed_error("a mesh of named axes", mesh)
        meshes.append(AbstractMesh([size for _, size in axes], names))
        if meshes[-1].size != num_devices:
            raise malformed_error(f"a mesh of {num_devices} devices", mesh)
    return meshes


def read_shardings(
    data: object, avals: Sequence[ShapedArray], num_devices: int, meshes: Sequence[AbstractMesh]
) -> tuple[StoredSharding, ...]:
    """The inverse of `write_shardings`.

    Raises:
      ArtifactError: there is not one sharding for each abstract value, or one does not fit its abstract value.
    """
    shardings = require_list(data, "shardings")
    if len(shardings) != len(avals):
        raise malformed_error(f"{len(avals)} shardings", data)
    return tuple(_read_sharding(s, a, num_devices, meshes) for s, a in zip(shardings, avals, strict=True))


def _read_sharding(data: Any, aval: ShapedArray, num_devices: int, meshes: Sequence[AbstractMesh]) -> StoredSharding:
    if data is None:
        return None
    ndim = physical_aval(aval).ndim
    try:
        # `type(...) is int` and not `isinstance`, since JSON's true is an int in Python.
        if isinstance(data, list) and type(data[0]) is int and 0 <= data[0] < len(meshes) and len(data) == ndim + 1:
            entries = [None if not axes else axes[0] if len(axes) == 1 else tuple(axes) for axes in data[1:]]
            return NamedSharding(meshes[data[0]], PartitionSpec(*entries))
        if isinstance(data, dict) and data.keys() == {"parts", "held"}:
            counts, coordinates = tuple(data["parts"]), np.array(data["held"], np.int64)
            if _is_tiling(counts, coordinates, num_devices, ndim):
                return tiling_to_hlo(Tiling(counts, coordinates))
    except (PhalanxError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise malformed_error(f"a sharding for {aval.str_short()}", data) from error
    raise malformed_error(f"a sharding for {aval.str_short()}", data)


def _is_tiling(counts: tuple[Any, ...], coordinates: np.ndarray[Any, Any], num_devices: int, ndim: int) -> bool:
    """Whether there is a positive number of shards along each dimension, and each partition holds one of them."""
    if len(counts) != ndim or not all(type(n) is int and n > 0 for n in counts):
        return False
    # NumPy accepts ragged or scalar data from JSON in other shapes, which `Tiling` would not reject.
    if coordinates.shape != (num_devices, ndim):
        return False
    return bool((coordinates >= 0).all() and (coordinates < np.array(counts, np.int64)).all())
