"""An interrupt at any moment of a call leaves caches and the state of traces as they were.

A trace function raises `KeyboardInterrupt` when Python calls its n-th function, as Ctrl-C would there.
"""

import contextlib
import random
import sys

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.core import state

X = np.linspace(0, 1, 8, dtype=np.float32)


def loss(x):
    y, _ = lax.scan(lambda c, row: (jnp.tanh(c * row), None), x, jnp.stack([x, x]))
    return jnp.sum(jnp.where(y > 0.5, y, y @ y))


def training_step():
    return phalanx.jit(lambda x: x - 0.1 * phalanx.grad(loss)(x))


def sharded_step():
    rows = phalanx.NamedSharding(phalanx.make_mesh((4,), ("rows",)), phalanx.P("rows"))
    return phalanx.jit(lambda x: phalanx.vmap(jnp.sin)(x) - x.mean(), in_shardings=rows, out_shardings=rows)


def call(make):
    return np.asarray(make()(X))


def interrupt(make, number):
    """Interrupt a call when Python calls its function number `number`; the count of the functions that it called."""
    count = 0

    def trace(frame, event, arg):
        nonlocal count
        if "phalanx" in frame.f_code.co_filename:
            count += 1
            if count == number:
                sys.settrace(None)
                raise KeyboardInterrupt

    sys.settrace(trace)
    try:
        call(make)
    finally:
        sys.settrace(None)
    return count


# Python prints what is raised in finalizers and in the callbacks of weak references, and goes on.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("make", [training_step, sharded_step])
def test_an_interrupt_leaves_the_next_call_as_it_was(make):
    phalanx.clear_caches()
    expected = call(make)
    phalanx.clear_caches()
    total = interrupt(make, 0)
    for number in random.Random(17).sample(range(1, total), 25):
        phalanx.clear_caches()
        with contextlib.suppress(KeyboardInterrupt):
            interrupt(make, number)
        assert state.trace is None
        np.testing.assert_array_equal(call(make), expected, err_msg=f"interrupted at function {number} of {total}")
