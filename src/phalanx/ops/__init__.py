"""Reductions over segments, and the updates at indices of programs of 2020."""

from phalanx.engine.frames import guard as _guard
from phalanx.ops.segments import segment_max as segment_max
from phalanx.ops.segments import segment_min as segment_min
from phalanx.ops.segments import segment_prod as segment_prod
from phalanx.ops.segments import segment_sum as segment_sum
from phalanx.ops.updates import index as index
from phalanx.ops.updates import index_add as index_add
from phalanx.ops.updates import index_max as index_max
from phalanx.ops.updates import index_min as index_min
from phalanx.ops.updates import index_mul as index_mul
from phalanx.ops.updates import index_update as index_update

_guard(globals())
