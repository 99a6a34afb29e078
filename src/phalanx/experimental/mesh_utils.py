"""`create_device_mesh` and `create_hybrid_device_mesh` under their old module name."""

from phalanx.engine.frames import guard as _guard
from phalanx.sharding.mesh_utils import create_device_mesh as create_device_mesh
from phalanx.sharding.mesh_utils import create_hybrid_device_mesh as create_hybrid_device_mesh

_guard(globals())
