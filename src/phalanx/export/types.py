"""Types and placements as text and data: how artifacts write abstract values, shardings and effects.

`float32[b,3]` is an abstract value. A sharding is the names of mesh axes along each dimension, beside the names and
sizes of the mesh's axes, so that no device is named; or, where no spec says it, which part each partition holds.
Builds on `core` and `sharding`; `format` and `exported` call it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import dtypes
from phalanx.core.aval import ShapedArray
from phalanx.core.errors import PhalanxError
from phalanx.engine.partitioner import HloSharding
from phalanx.engine.stablehlo import ArtifactError
from phalanx.random.generators import generator_of
from phalanx.random.keys import key_dtype
from phalanx.runtime.lowering import physical_aval
from phalanx.sharding import UNCONSTRAINED, AbstractMesh, GSPMDSharding, NamedSharding, PartitionSpec, Sharding
from phalanx.sharding.hlo import hlo_of_tiling, tiling_of_hlo
from phalanx.sharding.tiling import Tiling

StoredSharding = Any  # a NamedSharding over an AbstractMesh, an HloSharding, or None where it is open

_MAX_SIZE = 2**63 - 1
_AVAL = re.compile(r"(~?)([\w<>]+)\[([^\[\]]*)\]")
_names: dict[str, Any] = {d.name: d for d in dtypes.supported} | {"float0": dtypes.float0}


def wrong(what: str, got: Any) -> ArtifactError:
    """The error for a part of an artifact that is not what it should be."""
    text = got if isinstance(got, str) else repr(got)
    return ArtifactError(
        "deserialize",
        expected=what,
        got=text if len(text) <= 80 else f"{text[:77]}...",
        mend="export it again: the file was not written by phalanx",
    )


def write_aval(aval: ShapedArray) -> str:
    """An abstract value as text."""
    dtype = aval.dtype
    if dtypes.is_extended(dtype):
        name = f"key<{dtype.impl.name}>"
    else:
        name = "float0" if dtype == dtypes.float0 else dtype.name
    return f"{'~' if aval.weak_type else ''}{name}[{','.join(map(str, aval.shape))}]"


def read_aval(text: Any, read_shape: Callable[[str], tuple]) -> ShapedArray:
    """The abstract value that `write_aval` wrote.

    Args:
      text: what was written.
      read_shape: reads a shape with symbolic dimensions.

    Raises:
      ArtifactError: it is no such text.
    """
    match = _AVAL.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise wrong("an abstract value such as float32[2,3]", text)
    weak, name, dims = match.groups()
    shape: tuple = ()
    if dims:
        parts = dims.split(",")
        shape = tuple(map(int, parts)) if all(p.isascii() and p.isdecimal() for p in parts) else read_shape(dims)
    if any(type(d) is int and not 0 <= d <= _MAX_SIZE for d in shape):
        raise wrong("dimensions that an array can have", text)
    return ShapedArray(shape, _read_dtype(name), bool(weak))


def _read_dtype(name: str) -> Any:
    if name in _names:
        return _names[name]
    if name.startswith("key<"):
        try:
            return key_dtype(generator_of(name[4:-1]))
        except PhalanxError as error:
            raise wrong("a dtype of this version of phalanx", name) from error
    raise wrong("a dtype of this version of phalanx", name)


def stored(sharding: Sharding | None, num_devices: int, aval: ShapedArray) -> StoredSharding:
    """A sharding without its devices."""
    if sharding is None or num_devices == 1:
        return None
    if isinstance(sharding, NamedSharding):
        mesh = sharding.mesh
        return NamedSharding(AbstractMesh(mesh.axis_sizes, mesh.axis_names), sharding.spec)
    return sharding._to_xla_hlo_sharding(physical_aval(aval).ndim)


def hlo_of(sharding: StoredSharding, aval: ShapedArray) -> HloSharding | None:
    """A stored sharding in XLA's form."""
    if isinstance(sharding, NamedSharding):
        return sharding._to_xla_hlo_sharding(physical_aval(aval).ndim)
    return sharding


def placed(sharding: StoredSharding, mesh: Any) -> Sharding | None:
    """A stored sharding over the devices of a mesh.

    Args:
      sharding: what was stored.
      mesh: a mesh of as many devices; a spec is over its own axes where they have the stored names and sizes.
    """
    if isinstance(sharding, NamedSharding):
        if dict(sharding.mesh.shape) == dict(mesh.shape):
            return NamedSharding(mesh, sharding.spec)
        stored_mesh = sharding.mesh
        devices = mesh.devices.reshape(stored_mesh.axis_sizes)
        return NamedSharding(type(mesh)(devices, stored_mesh.axis_names), sharding.spec)
    return None if sharding is None else GSPMDSharding(mesh.flat_devices, sharding)


def write_shardings(shardings: Sequence[StoredSharding], avals: Sequence[ShapedArray], n: int, meshes: list) -> list:
    """Shardings as data; the meshes they name are appended to `meshes`."""
    return [_write_sharding(s, a, n, meshes) for s, a in zip(shardings, avals, strict=True)]


def _write_sharding(sharding: StoredSharding, aval: ShapedArray, num_devices: int, meshes: list) -> Any:
    if sharding is None:
        return None
    if isinstance(sharding, NamedSharding):
        mesh = [[str(name), size] for name, size in sharding.mesh.shape.items()]
        if mesh not in meshes:
            meshes.append(mesh)
        dims = sharding.spec.padded(physical_aval(aval).ndim)
        return [meshes.index(mesh), *[[] if axes is UNCONSTRAINED else [str(a) for a in axes] for axes in dims]]
    tiling = tiling_of_hlo(sharding, num_devices, physical_aval(aval).ndim)
    return {"parts": list(tiling.parts), "held": tiling.coordinates.tolist()}


def read_meshes(data: Any, num_devices: int) -> list[AbstractMesh]:
    """The meshes of an artifact.

    Raises:
      ArtifactError: one of them is not of `num_devices` devices.
    """
    meshes = []
    for mesh in _list(data, "meshes"):
        axes = [tuple(axis) for axis in _list(mesh, "a mesh") if isinstance(axis, list) and len(axis) == 2]
        good = all(isinstance(name, str) and type(size) is int and 0 < size <= num_devices for name, size in axes)
        names = [name for name, _ in axes]
        if not good or len(axes) != len(mesh) or len(set(names)) != len(names) or len(names) > 64:
            raise wrong("a mesh of named axes", mesh)
        found = AbstractMesh([size for _, size in axes], names)
        if found.size != num_devices:
            raise wrong(f"a mesh of {num_devices} devices", mesh)
        meshes.append(found)
    return meshes


def read_shardings(data: Any, avals: Sequence[ShapedArray], n: int, meshes: Sequence[AbstractMesh]) -> tuple:
    """The shardings that `write_shardings` wrote.

    Raises:
      ArtifactError: they are not one for each abstract value, or do not fit it.
    """
    if len(_list(data, "shardings")) != len(avals):
        raise wrong(f"{len(avals)} shardings", data)
    return tuple(_read_sharding(s, a, n, meshes) for s, a in zip(data, avals, strict=True))


def _read_sharding(data: Any, aval: ShapedArray, num_devices: int, meshes: Sequence[AbstractMesh]) -> StoredSharding:
    ndim = physical_aval(aval).ndim
    if data is None:
        return None
    try:
        if isinstance(data, list) and type(data[0]) is int and 0 <= data[0] < len(meshes) and len(data) == ndim + 1:
            spec = PartitionSpec(
                *[None if not axes else axes[0] if len(axes) == 1 else tuple(axes) for axes in data[1:]]
            )
            return NamedSharding(meshes[data[0]], spec)
        if isinstance(data, dict) and data.keys() == {"parts", "held"}:
            parts, held = tuple(data["parts"]), np.array(data["held"], np.int64)
            if (
                len(parts) == ndim
                and held.shape == (num_devices, ndim)
                and all(type(p) is int and p > 0 for p in parts)
            ):
                if (held >= 0).all() and (held < np.array(parts, np.int64)).all():
                    return hlo_of_tiling(Tiling(parts, held))
    except (PhalanxError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise wrong(f"a sharding for {aval}", data) from error
    raise wrong(f"a sharding for {aval}", data)


def _list(data: Any, what: str) -> list:
    if not isinstance(data, list):
        raise wrong(what, data)
    return data
