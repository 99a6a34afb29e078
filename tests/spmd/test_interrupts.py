"""An interrupt at any moment of a call leaves caches and the state of traces as they were.

A trace function raises `KeyboardInterrupt` when Python calls its n-th function, as Ctrl-C would there.
"""

import contextlib
import itertools
import os
import random
import signal
import sys
import threading
import time

import numpy as np
import pytest
from phalanx.experimental.custom_partitioning import custom_partitioning

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


@contextlib.contextmanager
def interrupted_when_asked():
    """A function whose first call sends Ctrl-C to this process, and waits for the end of the context."""
    left, calls = threading.Event(), itertools.count()

    def ask():
        if next(calls) == 0:
            os.kill(os.getpid(), signal.SIGINT)
            left.wait(20)

    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield ask
    finally:
        left.set()
        signal.signal(signal.SIGINT, earlier)


def test_an_interrupt_while_the_partitioner_calls_python_is_raised_at_once():
    mesh = phalanx.sharding.Mesh(phalanx.devices()[:4], ("rows",))
    x = phalanx.device_put(X, phalanx.NamedSharding(mesh, phalanx.P("rows")))

    @custom_partitioning
    def double(x):
        return x * 2

    with interrupted_when_asked() as ask:

        def partition(mesh, arg_shapes, result_shape):
            ask()
            return mesh, lambda x: x * 2, result_shape.sharding, (arg_shapes[0].sharding,)

        double.def_partition(partition, sharding_rule="i -> i")
        with pytest.raises(KeyboardInterrupt):
            phalanx.jit(double)(x)
    np.testing.assert_array_equal(phalanx.jit(double)(x), X * 2)


@pytest.mark.parametrize("read", [np.asarray, np.array, phalanx.device_get])
def test_an_interrupt_ends_the_wait_of_a_read(read):
    is_reading = threading.Event()
    with interrupted_when_asked() as ask:

        def wait(x):
            is_reading.wait(20)
            time.sleep(0.2)  # until the read has begun to wait, which is what the test is about
            ask()
            return x

        x = phalanx.device_put(0.0, phalanx.NamedSharding(phalanx.make_mesh((2,), ("rows",)), phalanx.P()))
        y = phalanx.jit(lambda x: x + phalanx.pure_callback(wait, x, x))(x)
        with pytest.raises(KeyboardInterrupt):
            is_reading.set()
            read(y)
    assert read(y) == 0
