"""Segment reductions, and the indexed updates of the API that preceded `x.at[...]`."""

from phalanx.engine.public_namespace import publish as _publish
from phalanx.ops.index_updates import (
    index as index,
    index_add as index_add,
    index_max as index_max,
    index_min as index_min,
    index_mul as index_mul,
    index_update as index_update,
)
from phalanx.ops.segments import (
    segment_max as segment_max,
    segment_min as segment_min,
    segment_prod as segment_prod,
    segment_sum as segment_sum,
)

__getattr__, __dir__ = _publish(globals())
