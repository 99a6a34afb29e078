"""Meshes, partition specs and shardings: descriptions of how arrays are placed on devices, without any data."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from phalanx.core import no_collectives as no_collectives
from phalanx.engine.public_namespace import publish as _publish
from phalanx.sharding.base_sharding import ShardIndex as ShardIndex, Sharding as Sharding
from phalanx.sharding.device_mesh import make_mesh as make_mesh
from phalanx.sharding.gspmd_sharding import GSPMDSharding as GSPMDSharding, from_hlo_sharding as from_hlo_sharding
from phalanx.sharding.mesh import (
    AbstractDevice as AbstractDevice,
    AbstractMesh as AbstractMesh,
    AxisType as AxisType,
    Mesh as Mesh,
)
from phalanx.sharding.mesh_context import (
    get_abstract_mesh as get_abstract_mesh,
    get_mesh as get_mesh,
    set_mesh as set_mesh,
    to_sharding as to_sharding,
    use_abstract_mesh as use_abstract_mesh,
    use_mesh as use_mesh,
)
from phalanx.sharding.named_sharding import NamedSharding as NamedSharding
from phalanx.sharding.single_device_sharding import (
    SingleDeviceSharding as SingleDeviceSharding,
    SingleDeviceSharding as make_single_device_sharding,  # noqa: F401
)
from phalanx.sharding.spec import (
    UNCONSTRAINED as UNCONSTRAINED,
    UNSPECIFIED as UNSPECIFIED,
    P as P,
    PartitionSpec as PartitionSpec,
)

if TYPE_CHECKING:
    auto_axes: Callable[..., Any]
    explicit_axes: Callable[..., Any]
    reshard: Callable[..., Any]

# Users know the operations over Explicit axes as `sharding.reshard` and so on. They are primitives, which belong to a
# higher layer: only this namespace refers to them, when a user does, and nothing in this package calls them.
__getattr__, __dir__ = _publish(
    globals(),
    lazy={"phalanx.lax.sharding.explicit_axes": "auto_axes explicit_axes reshard"},
    guarded="auto_axes explicit_axes get_abstract_mesh get_mesh make_mesh reshard use_abstract_mesh use_mesh".split(),
)
