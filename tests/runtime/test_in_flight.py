"""Runs in flight: threads and callbacks do not exhaust the threads of the engine, and a callback may start runs."""

import pytest
from tests.meshes import auto_mesh
from tests.processes import run_python

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.engine import unfinished_runs
from phalanx.runtime import in_flight

_SUM = """
    import gc, threading
    import phalanx, phalanx.numpy as jnp
    from phalanx import lax
    P, mesh = phalanx.P, phalanx.make_mesh((8,), ("a",))
    x = phalanx.device_put(jnp.arange(8.0), phalanx.NamedSharding(mesh, P("a")))
    seen = []

    def compile(f, out=P(), **options):
        return phalanx.jit(phalanx.shard_map(f, mesh=mesh, in_specs=P("a"), out_specs=out), **options)
"""


def test_threads_that_run_collectives_share_one_limit():
    text = run_python(
        _SUM
        + """
    f = compile(lambda x: lax.psum(x, "a"))

    def work():
        for _ in range(60):
            y = f(x)
        seen.append(float(y[0]))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(seen)
    """
    )
    assert text == f"{[28.0] * 6}\n"


def test_callbacks_between_collectives_do_not_exhaust_the_engine():
    text = run_python(
        _SUM
        + """
    def f(x):
        phalanx.debug.callback(seen.append, x)
        return lax.psum(x, "a")

    f = compile(f)
    for _ in range(80):
        y = f(x)
    phalanx.effects_barrier()
    print(len(seen), y)
    """
    )
    assert text == "640 [28.]\n"


@pytest.mark.slow
def test_a_long_loop_beside_threads_that_compile_and_run_keeps_its_memory():
    text = run_python(
        _SUM
        + """
    def step(x):
        phalanx.debug.callback(lambda v: None, x[:1])
        return x + 0 * lax.psum(x, "a")

    step, stop = compile(step, P("a"), donate_argnums=0), threading.Event()

    def work(devices):
        mesh, i = phalanx.make_mesh((4,), ("b",), devices=devices), 0
        while not stop.is_set():
            i += 1
            f = phalanx.jit(phalanx.shard_map(lambda x: lax.psum(x * i, "b"), mesh=mesh, in_specs=P("b"), out_specs=P()))
            for _ in range(40):
                y = f(jnp.arange(4.0))
            seen.append(float(y[0]) == 6 * i)

    def memory():
        gc.collect()
        return int(open("/proc/self/statm").read().split()[1])

    threads = [threading.Thread(target=work, args=(phalanx.devices()[i : i + 4],)) for i in (0, 4)]
    for thread in threads: thread.start()
    for i in range(20_000):
        x = step(x)
        if i == 10_000: before = memory()
    after = memory()
    stop.set()
    for thread in threads: thread.join()
    print(x, all(seen), after / before < 1.02 or (before, after))
    """,
        seconds=600,
    )
    assert text == "[0. 1. 2. 3. 4. 5. 6. 7.] True True\n"


def test_a_callback_may_start_more_runs_than_the_limit():
    mesh = auto_mesh((8,), ("a",))
    inner = phalanx.jit(
        phalanx.shard_map(lambda x: lax.psum(x, "a"), mesh=mesh, in_specs=phalanx.P("a"), out_specs=phalanx.P())
    )
    x, results = phalanx.device_put(jnp.arange(8.0), phalanx.NamedSharding(mesh, phalanx.P("a"))), []
    inner(x)
    f = phalanx.jit(lambda y: phalanx.debug.callback(lambda v: results.extend(inner(x) for _ in range(20)), y[0]))
    f(x)
    phalanx.effects_barrier()
    assert [float(y[0]) for y in results] == [28.0] * 20


def test_a_launch_is_handed_over_only_while_an_earlier_run_may_go_on(monkeypatch):
    class Results:
        def __init__(self):
            self.ready = False

        def consume_token(self):
            return None

        def consume_with_handlers(self, handlers):
            return [self]

        def is_deleted(self):
            return False

        def is_ready(self):
            return self.ready

    def watch(run, may_block=False):
        return lambda *arguments: handed_over.append(may_block) or run(*arguments)

    monkeypatch.setattr(unfinished_runs._Runs, "unfinished", type(unfinished_runs._Runs.unfinished)())
    handed_over = []
    run = in_flight.limit_in_flight(lambda arguments, with_tokens: Results(), [], False, False, 0, watch)
    results = [run([])[0] for _ in range(2)]
    for result in results:
        result.ready = True
    run([])
    assert handed_over == [False, True, False]


def test_a_run_that_is_finished_when_its_launch_returns_is_not_counted(monkeypatch):
    class Result:
        def __init__(self, ready):
            self.is_ready, self.is_deleted = lambda: ready, lambda: False

    class Results:
        def __init__(self, ready):
            self.consume_with_handlers = lambda handlers: [Result(ready)]
            self.consume_token = lambda: None

    monkeypatch.setattr(unfinished_runs._Runs, "unfinished", type(unfinished_runs._Runs.unfinished)())
    starts = lambda ready, number=0: in_flight.limit_in_flight(
        lambda arguments, with_tokens: Results(ready), [], False, False, number, lambda run, may_block=False: run
    )
    starts(True)([])  # Its result is dropped, and would tell nothing later.
    assert not unfinished_runs._Runs.unfinished
    kept = starts(False)([]), starts(True, None)([])
    assert len(unfinished_runs._Runs.unfinished) == len(kept)


_AT_EXIT = """
    import atexit, os, sys, time
    calls = []
    atexit.register(lambda: print(len(calls)))  # runs last
    sys.excepthook = lambda kind, error, traceback: print(error, end=" ")
    import numpy as np
""" + _SUM.replace(
    "x = phalanx.device_put",
    """
    def slow(x):
        time.sleep(0.002)
        calls.append(x)
        return np.asarray(x)

    x = phalanx.device_put""",
)


@pytest.mark.parametrize("result", ["x * 2", 'x + 0 * lax.psum(x, "a")'])
@pytest.mark.parametrize("call", ["debug.callback(slow, x)", "pure_callback(slow, phalanx.typeof(x), x)"])
def test_python_ends_after_the_runs_of_programs_that_call_it(call, result):
    text = run_python(
        _AT_EXIT
        + f"""
    def f(x):
        y = phalanx.{call}
        x = x if y is None else y
        return {result}

    f = phalanx.jit(phalanx.shard_map(f, mesh=mesh, in_specs=P("a"), out_specs=P("a"), check_vma=False))
    atexit.register(f, x)  # It may also start runs at exit.
    for _ in range(10):
        f(x)
    """
    )
    assert text == "88\n"


def test_an_exception_of_a_callback_that_runs_at_exit_is_shown():
    text = run_python(
        _AT_EXIT
        + """
    def fail(x):
        slow(x)
        raise ValueError("bad batch")

    compile(lambda x: x * (phalanx.debug.callback(fail, x) is None), P("a"))(x)
    """
    )
    assert text == "bad batch 8\n"


@pytest.mark.parametrize(
    "call",
    [
        "f(x)  # of a program that calls Python",
        "phalanx.jit(lambda x: x @ x)(jnp.ones((200, 200))).block_until_ready()",
        "phalanx.jit(lambda x: x + i)(x)  # is compiled each time",
    ],
)
def test_python_ends_with_its_status_while_a_daemon_thread_runs_programs(call):
    text = run_python(
        _AT_EXIT
        + f"""
    f = compile(lambda x: x * (phalanx.debug.callback(slow, x) is None), P("a"))
    f(x)

    def work():
        for i in range(1_000_000):
            {call}

    for _ in range(2): threading.Thread(target=work, daemon=True).start()
    time.sleep(0.3)
    sys.exit(0)
    """
    )
    assert int(text) % 8 == 0


@pytest.mark.parametrize("use", ["phalanx.tree.leaves(Node())", "phalanx.jit(lambda node: 1)(Node())"])
def test_python_ends_with_its_status_while_a_daemon_thread_is_in_python_that_jaxlib_calls(use):
    text = run_python(
        _SUM
        + f"""
    import time
    begun = threading.Event()

    class Node:
        pass

    def flatten(node):
        begun.set()
        time.sleep(0.001)  # gives up the lock of the interpreter, again and again until Python ends
        return (), None

    phalanx.tree_util.register_pytree_node(Node, flatten, lambda _, children: Node())

    def work():
        while True:
            {use}

    for _ in range(4): threading.Thread(target=work, daemon=True).start()
    begun.wait()
    time.sleep(0.1)
    """
    )
    assert text == ""


def test_threads_that_donate_or_delete_the_same_array_do_not_end_the_process():
    text = run_python(
        _SUM
        + """
    f, failed, rounds = phalanx.jit(lambda x: x + 1, donate_argnums=0), [], 100

    keep = phalanx.jit(lambda x: x + 2)

    def call(f, x):
        try:
            f(x)
        except RuntimeError:
            failed.append(x)

    for _ in range(rounds):
        x = phalanx.device_put(jnp.ones(1000), phalanx.NamedSharding(mesh, P("a")))
        threads = [threading.Thread(target=call, args=(f, x)) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
    print(len(failed) == 3 * rounds)

    for _ in range(rounds):
        x = phalanx.device_put(jnp.ones(1000), phalanx.NamedSharding(mesh, P("a")))
        threads = [threading.Thread(target=call, args=(keep, x)) for _ in range(3)]
        threads.insert(2, threading.Thread(target=x.delete))
        for thread in threads: thread.start()
        for thread in threads: thread.join()
    """
    )
    assert text == "True\n"


def test_a_program_that_calls_python_is_refused_once_python_ends():
    text = run_python(
        _AT_EXIT
        + """
    f = compile(lambda x: x * (phalanx.debug.callback(slow, x) is None), P("a"))
    f(x)

    class Late:
        def __del__(self, f=f, x=x, write=os.write):
            try:
                f(x)
            except RuntimeError as error:
                write(1, str(error).encode())

    late = Late()
    late.itself = late
    del late  # The garbage collector finds it at the end.
    """
    )
    assert text.startswith("8\ncall of a compiled function: expected Python to go on, since"), text
    assert "  Fix: call it before, or in a function that atexit.register registers." in text
