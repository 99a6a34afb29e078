"""Clustering with the names of `scipy.cluster`."""

from phalanx.engine.public_namespace import publish as _publish

__getattr__, __dir__ = _publish(globals(), modules="vq")
