"""Taylor-mode differentiation: `jet`, which users import from `phalanx.experimental.jet`."""

from phalanx.engine.public_namespace import publish as _publish
from phalanx.jet.taylor_mode import ZeroSeries as ZeroSeries, jet as jet, zero_series as zero_series

__getattr__, __dir__ = _publish(globals())
