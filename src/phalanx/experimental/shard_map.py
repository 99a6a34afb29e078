"""`shard_map` where programs of JAX before 0.8 import it from."""

from phalanx.spmd.shard_map import shard_map as shard_map
