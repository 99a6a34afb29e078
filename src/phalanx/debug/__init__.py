"""Debugging of running programs, drawings of shardings, and checks of sharded programs."""

from phalanx.debug.check_sharded import ShardedMismatchError as ShardedMismatchError, check_sharded as check_sharded
from phalanx.debug.debug_breakpoint import breakpoint as breakpoint
from phalanx.debug.debug_print import callback as callback, print as print
from phalanx.debug.sharding_drawing import draw_sharding as draw_sharding
from phalanx.debug.visualize_sharding import (
    inspect_array_sharding as inspect_array_sharding,
    visualize_array_sharding as visualize_array_sharding,
    visualize_sharding as visualize_sharding,
)
from phalanx.engine.public_namespace import publish as _publish

__getattr__, __dir__ = _publish(globals())
