"""Looking at programs and arrays."""

from phalanx.debug.callback import breakpoint as breakpoint
from phalanx.debug.callback import callback as callback
from phalanx.debug.callback import print as print
from phalanx.debug.drawing import draw_sharding as draw_sharding
from phalanx.debug.one_answer import ShardedMismatchError as ShardedMismatchError
from phalanx.debug.one_answer import check_sharded as check_sharded
from phalanx.debug.visualize import inspect_array_sharding as inspect_array_sharding
from phalanx.debug.visualize import visualize_array_sharding as visualize_array_sharding
from phalanx.debug.visualize import visualize_sharding as visualize_sharding
from phalanx.engine.frames import guard as _guard

_guard(globals())
