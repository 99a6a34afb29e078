"""Linear algebra of sparse matrices: a direct solver, and eigenvalues by LOBPCG."""

from phalanx.engine.public_namespace import publish as _publish
from phalanx.sparse.linalg.lobpcg import lobpcg_standard as lobpcg_standard
from phalanx.sparse.linalg.spsolve import spsolve as spsolve

__getattr__, __dir__ = _publish(globals())
