"""Minimization with the names of `scipy.optimize`."""

from phalanx.engine.public_namespace import publish as _publish
from phalanx.scipy.optimize.bfgs import OptimizeResults as OptimizeResults, minimize as minimize

__getattr__, __dir__ = _publish(globals())
