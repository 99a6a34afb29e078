"""Distributed programs: one program run by several processes, which share a mesh of all their devices.

`initialize` connects the processes. Builds on `engine.coordination`.
"""

from phalanx.distributed.session import initialize as initialize, is_initialized as is_initialized, shutdown as shutdown
from phalanx.engine import guard_namespace as _guard

_guard(globals())
