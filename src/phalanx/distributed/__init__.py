"""Distributed programs: one program run by several processes, which share a mesh of all their devices.

`initialize` connects the processes; the transfers and programs of the other packages then span all of them.
"""

from phalanx.distributed.session import initialize as initialize, is_initialized as is_initialized, shutdown as shutdown
from phalanx.engine.public_namespace import publish as _publish

__getattr__, __dir__ = _publish(globals())
