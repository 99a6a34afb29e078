"""Meshes, partition specs and shardings: descriptions of how arrays are placed on devices, without any data.

Other packages import what they need from here; only the names that `publish` lists are for users.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from phalanx.core import (
    ManualAxisType as ManualAxisType,
    communication as communication,
    no_collectives as no_collectives,
)
from phalanx.engine.public_namespace import publish as _publish
from phalanx.sharding.auto_sharding import AUTO as AUTO, AutoSharding as AutoSharding
from phalanx.sharding.base_sharding import ShardIndex as ShardIndex, Sharding as Sharding
from phalanx.sharding.device_mesh import make_mesh as make_mesh
from phalanx.sharding.gspmd_sharding import (
    GSPMDSharding as GSPMDSharding,
    from_hlo_sharding as from_hlo_sharding,
    reorder_devices as reorder_devices,
)
from phalanx.sharding.hlo_conversion import (
    hlo_to_tiling as hlo_to_tiling,
    manual_coordinates as manual_coordinates,
    tiling_to_hlo as tiling_to_hlo,
)
from phalanx.sharding.mesh import (
    AbstractDevice as AbstractDevice,
    AbstractMesh as AbstractMesh,
    AxisType as AxisType,
    Mesh as Mesh,
)
from phalanx.sharding.mesh_context import (
    get_abstract_mesh as get_abstract_mesh,
    get_mesh as get_mesh,
    get_placement_mesh as get_placement_mesh,
    set_mesh as set_mesh,
    spec_to_sharding as spec_to_sharding,
    to_sharding as to_sharding,
    use_abstract_mesh as use_abstract_mesh,
    use_mesh as use_mesh,
)
from phalanx.sharding.named_sharding import NamedSharding as NamedSharding, shard_dims as shard_dims
from phalanx.sharding.partition_spec import (
    UNCONSTRAINED as UNCONSTRAINED,
    UNSPECIFIED as UNSPECIFIED,
    AxisName as AxisName,
    P as P,
    PartitionSpec as PartitionSpec,
    UnreducedKind as UnreducedKind,
    check_rank as check_rank,
    check_spec as check_spec,
)
from phalanx.sharding.single_device_sharding import (
    SingleDeviceSharding as SingleDeviceSharding,
    SingleDeviceSharding as make_single_device_sharding,  # noqa: F401
)
from phalanx.sharding.tiling import (
    Index as Index,
    Tiling as Tiling,
    prime_factors as prime_factors,
    replica_ids as replica_ids,
)

if TYPE_CHECKING:
    auto_axes: Callable[..., Any]
    explicit_axes: Callable[..., Any]
    reshard: Callable[..., Any]

# Users know the operations over Explicit axes as `sharding.reshard` and so on. They are primitives, which belong to a
# higher layer: only this namespace refers to them, when a user does, and nothing in this package calls them.
__getattr__, __dir__ = _publish(
    globals(),
    only="AUTO AbstractDevice AbstractMesh AutoSharding AxisType GSPMDSharding ManualAxisType Mesh NamedSharding P "
    "PartitionSpec ShardIndex Sharding SingleDeviceSharding UNCONSTRAINED UNSPECIFIED UnreducedKind "
    "from_hlo_sharding get_abstract_mesh get_mesh make_mesh make_single_device_sharding no_collectives communication "
    "set_mesh to_sharding use_abstract_mesh use_mesh",
    lazy={"phalanx.lax.sharding.explicit_axes": "auto_axes explicit_axes reshard"},
    guarded="auto_axes explicit_axes get_abstract_mesh get_mesh make_mesh reshard use_abstract_mesh use_mesh".split(),
)
