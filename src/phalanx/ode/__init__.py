"""Ordinary differential equations: `odeint`, which users import from `phalanx.experimental.ode`."""

from phalanx.engine.public_namespace import publish as _publish
from phalanx.ode.odeint import odeint as odeint

__getattr__, __dir__ = _publish(globals())
