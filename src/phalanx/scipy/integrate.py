"""Integration with the names of `scipy.integrate`."""

from phalanx.engine.public_namespace import publish as _publish
from phalanx.numpy.calculus import trapezoid as trapezoid

__getattr__, __dir__ = _publish(globals(), also="trapezoid")
