"""Rotations in three dimensions, with the names of `scipy.spatial`."""

from phalanx.engine.public_namespace import publish as _publish

__getattr__, __dir__ = _publish(globals(), modules="transform")
