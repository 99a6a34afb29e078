"""Compilation in the background: `jit(f).warm`."""

import threading

import numpy as np
import pytest
from tests.meshes import auto_mesh

import phalanx
import phalanx.numpy as jnp
from phalanx.engine.compiler import CompilerOptionError
from phalanx.sharding import NamedSharding, P
from phalanx.spmd.stages import Lowered

ROW = phalanx.ShapeDtypeStruct((4,), "float32")
ONES = np.ones(4, np.float32)


@pytest.fixture
def compilations(monkeypatch):
    """The names of the threads that compiled a program, and an event for which they wait."""
    threads, may_finish, compile = [], threading.Event(), Lowered.compile

    def wait_and_compile(self, *args):
        threads.append(threading.current_thread())
        assert may_finish.wait(60)
        return compile(self, *args)

    monkeypatch.setattr(Lowered, "compile", wait_and_compile)
    yield threads, may_finish
    may_finish.set()


def test_a_call_that_comes_earlier_waits_for_the_program(compilations):
    threads, may_finish = compilations
    f = phalanx.jit(lambda x: x * 2)
    f.warm(ROW)
    f.warm(ROW)  # is being compiled already
    found = []
    caller = threading.Thread(target=lambda: found.append(f(ONES)))
    caller.start()
    caller.join(0.05)
    assert caller.is_alive() and not found
    may_finish.set()
    caller.join(60)
    assert found[0].tolist() == [2.0] * 4
    # Host data, and arrays that nobody placed, share one program.
    assert f(jnp.ones(4)).tolist() == [2.0] * 4
    (thread,) = threads
    assert thread not in (caller, threading.main_thread())


def test_several_programs_compile_at_once(compilations):
    threads, may_finish = compilations
    fs = [phalanx.jit(lambda x, n=n: x + n) for n in range(3)]
    mesh = auto_mesh((8,), ("x",))
    split = NamedSharding(mesh, P("x"))
    for f in fs:
        f.warm(phalanx.ShapeDtypeStruct((8,), "float32", sharding=split))
    may_finish.set()
    x = phalanx.device_put(np.zeros(8, np.float32), split)
    assert [f(x).tolist() for f in fs] == [[n] * 8 for n in range(3)]
    assert f(x).sharding is split
    assert len(set(threads)) == 3 and threading.main_thread() not in threads


def test_errors_of_compiling_are_raised_by_the_call():
    f = phalanx.jit(lambda x: x + 1, compiler_options={"no_such_option": 1})
    f.warm(ROW)
    for _ in range(2):  # the second call compiles again
        with pytest.raises(CompilerOptionError, match="No such compile option"):
            f(ONES)


def test_a_program_is_compiled_under_the_options_of_the_caller():
    mesh = auto_mesh((8,), ("x",))
    f = phalanx.jit(phalanx.shard_map(lambda x: phalanx.lax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P()))
    with phalanx.sharding.no_collectives({"x"}):
        f.warm(phalanx.ShapeDtypeStruct((8,), "float32"))
        with pytest.raises(phalanx.errors.ShardingError, match="without collectives along 'x'"):
            f(np.ones(8, np.float32))
    assert f(np.ones(8, np.float32)).tolist() == [8.0]


def test_errors_of_tracing_are_raised_at_once():
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        phalanx.jit(lambda x, y: x + y).warm(ROW)
