"""Matrix-free linear algebra with the names of `scipy.sparse`."""

from phalanx.engine.public_namespace import publish as _publish

__getattr__, __dir__ = _publish(globals(), modules="linalg")
