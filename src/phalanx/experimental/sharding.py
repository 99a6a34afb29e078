"""`phalanx.experimental.sharding`: the names by which programs of 2022 import shardings."""

from phalanx.sharding import NamedSharding as MeshPspecSharding  # noqa: F401
from phalanx.sharding import NamedSharding as NamedSharding
from phalanx.sharding import PartitionSpec as PartitionSpec
from phalanx.sharding import Sharding as Sharding
from phalanx.sharding import SingleDeviceSharding as SingleDeviceSharding
