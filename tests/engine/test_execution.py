"""Execution: programs run by a generator, whose frame ends the tracebacks that jaxlib takes."""

import asyncio
import contextvars
import gc
import gzip
import threading
import weakref

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import profiler
from phalanx.engine import execution
from phalanx.runtime.array import Array


@pytest.fixture
def make():
    """A function that runs a program that another one has compiled, on an argument that another one has made."""
    f, x = phalanx.jit(lambda x: x + 1), jnp.ones(1000)
    f(x)

    def make_a_named_array():
        return f(x)

    return make_a_named_array


def is_named_in_the_profile():
    return b"make_a_named_array" in gzip.decompress(profiler.device_memory_profile())


def is_run_by_generator():
    return type(getattr(execution.get_execution(), "__self__", None)).__name__ == "generator"


def test_runs_take_no_tracebacks_unless_an_option_asks_for_them(make):
    unnamed = make()
    assert not is_named_in_the_profile()
    phalanx.config.update("allocation_tracebacks", True)
    try:
        named = make()
        assert is_named_in_the_profile()
    finally:
        phalanx.config.update("allocation_tracebacks", False)
    del named
    unnamed = make()
    assert not is_named_in_the_profile() and unnamed.shape == (1000,)
    assert is_run_by_generator()


def test_operations_that_are_traced_in_a_callback_have_their_lines():
    texts = []

    def trace(x):
        texts.append(phalanx.make_jaxpr(jnp.sin)(1.0).pretty_print(source_info=True))
        return x

    np.asarray(phalanx.jit(lambda x: phalanx.pure_callback(trace, x, x))(jnp.ones(2)))
    assert "test_execution.py" in texts[0]


def test_a_program_that_fails_leaves_the_next_ones_alone():
    f = phalanx.jit(lambda x: x + 1)
    x = jnp.ones(3)
    for _ in range(3):
        deleted = f(x)
        deleted._buffer.delete()
        for call in (f, jnp.sin, lambda y: y + y):
            with pytest.raises(phalanx.errors.DeletedArrayError):
                call(deleted)
            assert f(x).tolist() == [2, 2, 2]
            assert is_run_by_generator()


def test_a_program_runs_inside_the_run_of_another():
    f = phalanx.jit(lambda x: x * 2)

    def inside(x):
        return np.asarray(jnp.sin(f(x)))

    run = phalanx.jit(lambda x: phalanx.pure_callback(inside, x, x))
    np.testing.assert_allclose(run(jnp.ones(3)), np.sin(2 * np.ones(3)), rtol=1e-6)
    # As a finalizer, a signal handler or a callback on this thread that starts while the generator is running.
    x, found = jnp.ones(3), []

    def nested(buffers):
        found.append((f(x).tolist(), jnp.cos(x - x).tolist(), (x + x).tolist()))
        return Results()

    class Results:
        def consume_with_handlers(self, handlers):
            return handlers

    execute = execution.make_execution(nested, ["result"])
    assert execute([]) == ["result"] and found == [([2, 2, 2], [1, 1, 1], [2, 2, 2])]


def test_threads_that_share_a_context_run_programs_at_once():
    f, x, found = phalanx.jit(lambda x: x + 1), jnp.zeros(3), []
    f(x)
    contexts = [contextvars.copy_context() for _ in range(4)]
    walk = lambda: found.extend([float(f(x)[0]) for _ in range(500)])
    threads = [threading.Thread(target=context.run, args=(walk,)) for context in contexts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [1.0] * 2000


def test_few_threads_have_a_generator_and_all_run_programs(monkeypatch):
    f, x, found = phalanx.jit(lambda x: x + 1), jnp.zeros(3), []

    def run():
        found.append((f(x).tolist(), is_run_by_generator()))

    def in_a_thread():
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        return found.pop()

    monkeypatch.setattr(execution, "_MAX_THREADS", 10**9)
    assert in_a_thread() == ([1, 1, 1], True)
    monkeypatch.setattr(execution, "_MAX_THREADS", 0)
    assert in_a_thread() == ([1, 1, 1], False)


def test_asyncio_tasks_run_programs():
    f, x = phalanx.jit(lambda x: x + 1), jnp.zeros(3)

    async def main():
        async def task():
            y = f(x)
            await asyncio.sleep(0)
            return f(y).tolist()

        return await asyncio.gather(*[task() for _ in range(5)])

    assert asyncio.run(main()) == [[2, 2, 2]] * 5


def test_contexts_that_were_copied_before_an_error_share_the_next_generator():
    f, x = phalanx.jit(lambda x: x + 1), jnp.zeros(3)
    f(x)
    contexts = [contextvars.copy_context() for _ in range(5)]

    def fail():
        deleted = f(x)
        deleted._buffer.delete()
        with pytest.raises(phalanx.errors.DeletedArrayError):
            f(deleted)

    contexts[0].run(fail)
    found = set()
    for context in contexts[1:3]:
        assert context.run(f, x).tolist() == [1, 1, 1]
        found.add(context.run(execution.get_execution))
    assert len(found) == 1
    contexts[1].run(fail)  # ends the generator of the thread, which the other contexts do not know
    for context in contexts[2:]:
        assert context.run(f, x).tolist() == [1, 1, 1]
        found.add(context.run(execution.get_execution))
    assert len(found) == 2


def test_the_generator_keeps_nothing_of_a_run_alive():
    class Program:
        def __call__(self, buffers):
            return self

        def consume_with_handlers(self, handlers):
            return [object()]

    class Buffer:
        pass

    program, buffer = Program(), Buffer()
    left = weakref.ref(program), weakref.ref(buffer)
    execution.make_execution(program, [])([buffer])
    del program, buffer
    gc.collect()
    assert [reference() for reference in left] == [None, None]


def test_results_of_eager_operations_are_arrays():
    x = jnp.ones(3)
    assert all(type(y) is Array for y in (jnp.sin(x), x + x, jnp.where(x > 0, x, 0), phalanx.lax.sort(x)))
