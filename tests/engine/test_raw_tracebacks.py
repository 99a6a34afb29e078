"""Raw tracebacks: operations that are traced have one, allocations only where an option asks for it."""

import gzip
import os
import subprocess
import sys
import threading

import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import profiler
from phalanx.engine import current_traceback, raw_tracebacks, take_traceback, while_tracing


@pytest.fixture(autouse=True)
def without_jax(monkeypatch):
    """As in a process without jax, in which other tests may have loaded it."""
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    raw_tracebacks.record_allocations(False)
    yield
    monkeypatch.undo()
    raw_tracebacks.record_allocations(False)


def make_an_array():
    return phalanx.jit(lambda x: x + 1)(jnp.ones(1000))


def profile():
    return gzip.decompress(profiler.device_memory_profile())


def test_calls_and_eager_operations_take_no_traceback():
    make_an_array()
    assert take_traceback() is None


def test_an_option_records_where_arrays_are_made():
    unrecorded = make_an_array()
    assert b"make_an_array" not in profile()
    phalanx.config.update("allocation_tracebacks", True)
    try:
        recorded = make_an_array()
        assert b"make_an_array" in profile()
    finally:
        phalanx.config.update("allocation_tracebacks", False)
    assert take_traceback() is None and unrecorded.shape == recorded.shape


def test_operations_have_their_lines_in_nested_traces():
    def inner(x):
        assert take_traceback() is not None
        return jnp.sin(x)

    def outer(x):
        made = phalanx.make_jaxpr(inner)(1.0)  # whose end leaves them on for this trace
        assert take_traceback() is not None
        return jnp.cos(x) + len(made.eqns)

    text = phalanx.make_jaxpr(outer)(1.0).pretty_print(source_info=True)
    assert text.count("test_raw_tracebacks.py") == 2
    assert take_traceback() is None


def test_a_traceback_is_found_while_another_thread_turns_them_off():
    is_over = threading.Event()

    def turn_off():
        while not is_over.is_set():
            with while_tracing():
                pass

    thread = threading.Thread(target=turn_off)
    thread.start()
    try:
        assert all(current_traceback() is not None for _ in range(20_000))
    finally:
        is_over.set()
        thread.join()


def test_they_stay_on_where_jax_is_loaded(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", sys)
    make_an_array()
    with while_tracing():
        pass
    assert take_traceback() is not None


def test_the_environment_records_allocations_from_the_start():
    source = "import phalanx; phalanx.jit(abs)(1); from phalanx.engine import take_traceback; print(take_traceback() is not None)"
    run = lambda **variables: subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True, env=os.environ | variables
    ).stdout.strip()
    assert (run(), run(PHALANX_ALLOCATION_TRACEBACKS="true")) == ("False", "True")
