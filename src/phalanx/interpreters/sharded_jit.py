"""`phalanx.interpreters.sharded_jit`: the names by which older programs import `sharded_jit`."""

from phalanx.engine.frames import guard as _guard
from phalanx.sharding import PartitionSpec as PartitionSpec
from phalanx.spmd.sharded_jit import sharded_jit as sharded_jit
from phalanx.spmd.sharded_jit import with_sharding_constraint as with_sharding_constraint

_guard(globals())
