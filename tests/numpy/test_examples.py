"""Every public function has an example."""

import doctest
import inspect

import phalanx.numpy as jnp
from phalanx.scipy import special

_rooms = {"": jnp, "linalg.": jnp.linalg, "fft.": jnp.fft, "special.": special}
_functions = {
    prefix + name: getattr(room, name)
    for prefix, room in _rooms.items()
    for name in dir(room)
    if not name.startswith("_") and inspect.isfunction(getattr(room, name))
    and getattr(room, name).__module__.startswith(room.__name__)
}  # fmt: skip


def test_every_function_has_an_example():
    """The doctests of the sources run them."""
    find = doctest.DocTestFinder(recurse=False).find
    assert "linalg.svd" in _functions
    assert [name for name, f in _functions.items() if not any(found.examples for found in find(f, name))] == []
