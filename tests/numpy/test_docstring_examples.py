"""Every public function has an example."""

import doctest
import inspect

import phalanx.numpy as jnp
from phalanx import image, scipy

_rooms = {"": jnp, "linalg.": jnp.linalg, "fft.": jnp.fft, "image.": image} | {
    f"scipy.{name}.": getattr(scipy, name)
    for name in ("fft", "interpolate", "linalg", "ndimage", "optimize", "signal", "special")
}
_functions = {
    prefix + name: getattr(room, name)
    for prefix, room in _rooms.items()
    for name in dir(room)
    if not name.startswith("_") and inspect.isfunction(getattr(room, name))
    and getattr(room, name).__module__.startswith("phalanx.scipy." if room is scipy.special else room.__name__)
}  # fmt: skip


def test_every_function_has_an_example():
    """The doctests of the sources run them."""
    find = doctest.DocTestFinder(recurse=False).find
    assert {"linalg.svd", "scipy.special.wofz"} <= set(_functions)
    assert [name for name, f in _functions.items() if not any(found.examples for found in find(f, name))] == []
