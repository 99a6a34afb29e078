"""Checks for users' own tests, under their module name."""

from phalanx.engine.frames import guard as _guard
from phalanx.transforms.numerical import check_grads as check_grads

_guard(globals())
