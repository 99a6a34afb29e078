"""Taylor-mode differentiation: `jet`, which users import from `phalanx.experimental.jet`."""

from phalanx.engine.public_namespace import publish as _publish
from phalanx.jet.taylor_mode import jet as jet

__getattr__, __dir__ = _publish(globals())
