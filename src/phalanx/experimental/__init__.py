"""Names under which programs of the field import things that have since moved."""

from phalanx.core.config import enable_x64 as enable_x64
from phalanx.engine.frames import guard as _guard
from phalanx.lax.callback import io_callback as io_callback
from phalanx.sharding import PartitionSpec as PartitionSpec

_guard(globals())
