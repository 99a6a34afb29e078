"""The example of every public function runs and gives what it says."""

import doctest
import inspect

import pytest

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


@pytest.mark.parametrize("name", sorted(_functions))
def test_the_example_runs(name):
    function = _functions[name]
    examples = doctest.DocTestFinder(recurse=False).find(function, name, globs={"jnp": jnp})
    assert examples and examples[0].examples, f"{name} has no example"
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert runner.run(examples[0], out=lambda text: print(text, end="")).failed == 0
