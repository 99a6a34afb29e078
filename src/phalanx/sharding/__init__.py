"""Meshes, specs and shardings: descriptions of where the parts of an array are, without any data."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from phalanx.core.config import no_collectives as no_collectives
from phalanx.engine.frames import guard as _guard
from phalanx.engine.seat import Seat
from phalanx.sharding.context import get_abstract_mesh as get_abstract_mesh
from phalanx.sharding.context import get_mesh as get_mesh
from phalanx.sharding.context import set_mesh as set_mesh
from phalanx.sharding.context import to_sharding as to_sharding
from phalanx.sharding.context import use_abstract_mesh as use_abstract_mesh
from phalanx.sharding.context import use_mesh as use_mesh
from phalanx.sharding.device_mesh import make_mesh as make_mesh
from phalanx.sharding.mesh import AbstractDevice as AbstractDevice
from phalanx.sharding.mesh import AbstractMesh as AbstractMesh
from phalanx.sharding.mesh import AxisType as AxisType
from phalanx.sharding.mesh import Mesh as Mesh
from phalanx.sharding.shardings import GSPMDSharding as GSPMDSharding
from phalanx.sharding.shardings import NamedSharding as NamedSharding
from phalanx.sharding.shardings import ShardIndex as ShardIndex
from phalanx.sharding.shardings import Sharding as Sharding
from phalanx.sharding.shardings import SingleDeviceSharding as SingleDeviceSharding
from phalanx.sharding.shardings import SingleDeviceSharding as make_single_device_sharding  # noqa: F401
from phalanx.sharding.shardings import from_hlo_sharding as from_hlo_sharding
from phalanx.sharding.spec import UNCONSTRAINED as UNCONSTRAINED
from phalanx.sharding.spec import UNSPECIFIED as UNSPECIFIED
from phalanx.sharding.spec import P as P
from phalanx.sharding.spec import PartitionSpec as PartitionSpec

# What moves data over Explicit axes is shown here too, as the field has it.
explicit = Seat(taken_by="phalanx.lax.explicit_axes")

if TYPE_CHECKING:
    auto_axes: Callable[..., Any]
    explicit_axes: Callable[..., Any]
    reshard: Callable[..., Any]


def __getattr__(name: str) -> Any:
    if name in ("auto_axes", "explicit_axes", "reshard"):
        return getattr(explicit, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_guard(globals(), "get_abstract_mesh get_mesh make_mesh use_abstract_mesh use_mesh".split())
