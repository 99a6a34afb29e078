"""Meshes, specs and shardings: descriptions of where the parts of an array are, without any data."""

from phalanx.sharding.context import get_abstract_mesh as get_abstract_mesh
from phalanx.sharding.context import get_mesh as get_mesh
from phalanx.sharding.context import set_mesh as set_mesh
from phalanx.sharding.context import to_sharding as to_sharding
from phalanx.sharding.context import use_mesh as use_mesh
from phalanx.sharding.mesh import AbstractMesh as AbstractMesh
from phalanx.sharding.mesh import AxisType as AxisType
from phalanx.sharding.mesh import Mesh as Mesh
from phalanx.sharding.mesh_utils import make_mesh as make_mesh
from phalanx.sharding.shardings import GSPMDSharding as GSPMDSharding
from phalanx.sharding.shardings import NamedSharding as NamedSharding
from phalanx.sharding.shardings import ShardIndex as ShardIndex
from phalanx.sharding.shardings import Sharding as Sharding
from phalanx.sharding.shardings import SingleDeviceSharding as SingleDeviceSharding
from phalanx.sharding.shardings import from_hlo_sharding as from_hlo_sharding
from phalanx.sharding.shardy import sdy_sharding as sdy_sharding
from phalanx.sharding.shardy import to_sdy as to_sdy
from phalanx.sharding.shardy import to_sdy_mesh as to_sdy_mesh
from phalanx.sharding.spec import UNCONSTRAINED as UNCONSTRAINED
from phalanx.sharding.spec import P as P
from phalanx.sharding.spec import PartitionSpec as PartitionSpec
