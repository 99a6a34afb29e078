"""Sharding specs and the sharded arrays of older programs, under the module name that they import.

Builds on `sharding_spec`; every array class of old is the one `Array`.
"""

from __future__ import annotations

from phalanx.engine.frames import guard as _guard
from phalanx.interpreters.sharding_spec import Chunked as Chunked
from phalanx.interpreters.sharding_spec import NoSharding as NoSharding
from phalanx.interpreters.sharding_spec import Replicated as Replicated
from phalanx.interpreters.sharding_spec import ShardedAxis as ShardedAxis
from phalanx.interpreters.sharding_spec import ShardingSpec as ShardingSpec
from phalanx.interpreters.sharding_spec import Unstacked as Unstacked
from phalanx.interpreters.sharding_spec import spec_to_indices as spec_to_indices
from phalanx.runtime.array import Array as Array
from phalanx.sharding import Mesh as Mesh
from phalanx.sharding import NamedSharding as MeshPspecSharding  # noqa: F401
from phalanx.sharding import PartitionSpec as PartitionSpec
from phalanx.sharding import get_mesh

ShardedDeviceArray = Array


class ResourceEnv:
    """What `with mesh:` has put in force.

    Examples:
      >>> import phalanx
      >>> with phalanx.make_mesh((1,), ("x",)):
      ...     ResourceEnv().physical_mesh.axis_names
      ('x',)
    """

    @property
    def physical_mesh(self) -> Mesh:
        """The mesh in force; an empty one where there is none."""
        return get_mesh()


class _ThreadResources:
    env = ResourceEnv()


thread_resources = _ThreadResources()
"""Where older programs look for the mesh in force, as `thread_resources.env.physical_mesh`."""


_guard(globals())
