"""`shard_map` where programs of JAX before 0.8 import it from."""

from phalanx.engine.frames import guard as _guard
from phalanx.spmd.shard_map import shard_map as shard_map

_guard(globals())
