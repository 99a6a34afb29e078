"""Minimisation with the names of `scipy.optimize`."""

from phalanx.engine.frames import guard as _guard
from phalanx.scipy.optimize.minimization import OptimizeResults as OptimizeResults
from phalanx.scipy.optimize.minimization import minimize as minimize

_guard(globals())
