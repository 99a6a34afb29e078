"""Functions with batching rules of their own: `custom_vmap`, `sequential_vmap`."""

from phalanx.engine.frames import guard as _guard
from phalanx.transforms.custom_batching import custom_vmap as custom_vmap
from phalanx.transforms.custom_batching import sequential_vmap as sequential_vmap

_guard(globals())
