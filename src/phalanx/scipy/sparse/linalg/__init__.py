"""Iterative solvers of linear systems with the names of `scipy.sparse.linalg`."""

from phalanx.engine.public_namespace import publish as _publish
from phalanx.scipy.sparse.linalg.krylov_solvers import bicgstab as bicgstab, cg as cg, gmres as gmres

__getattr__, __dir__ = _publish(globals())
