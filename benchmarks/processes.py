"""Programs over several processes: what the watch for failures costs beside the peer's own runtime.

Both systems run in the same two processes, in alternation, so that load and the placement of threads affect both alike.
Each process has one device and is bound to a core: with more devices, the threads of XLA take turns, and calls of
either system take 0.4 to 4 ms.
The floor is jaxlib's run of the program and jaxlib's wait for it, in Phalanx's part of these processes: no launch is
counted, and nothing could interrupt it.
"""

from __future__ import annotations

import functools
import os
import socket
import subprocess
import sys
import threading
from typing import Any

from benchmarks.harness import ENGINE, Clocked, Row, bench

_SYSTEMS = ("phalanx", "jax")

CALLS = Row("compiled call with 8 arrays over two processes of one CPU device, each on a core of its own")

# Reads "system number_of_calls collectives" and prints the seconds of a call: of the fastest of several batches, or the
# median of single calls. Calls with collectives are awaited one by one: JAX does not bound the programs under way, and
# some batches of it never end. Up to one in ten takes 2 to 5 ms in either system and in jaxlib alone, while other
# threads have the cores; by means of 150 calls, the same program was 0.5 to 1.5 of itself.
_PROCESS = """
import functools, importlib, os, statistics, sys, time
import numpy as np
number, addresses = int(sys.argv[1]), dict(zip(sys.argv[2::2], sys.argv[3::2]))
if hasattr(os, "sched_setaffinity"):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[number % len(cores)]})
start = {}
for system, address in addresses.items():
    xp = importlib.import_module(system)
    importlib.import_module(system + ".numpy")
    xp.distributed.initialize(address, 2, number)
    mesh = xp.sharding.Mesh(np.array(xp.devices()), ("rows",))
    rows = xp.sharding.NamedSharding(mesh, xp.sharding.PartitionSpec("rows"))
    ones = np.ones((4, 4), np.float32)
    start[system] = [xp.make_array_from_callback((4, 4), rows, lambda index: ones[index]) for _ in range(8)]

@functools.cache
def prepare(system, collectives):
    xp = sys.modules["phalanx" if system == "jaxlib" else system]
    f = xp.jit(lambda tree: [x - xp.numpy.mean(x) if i < collectives else x + 1 for i, x in enumerate(tree)])
    tree = start[xp.__name__]
    xp.block_until_ready(f(tree))
    if system != "jaxlib":
        return f, xp.block_until_ready, tree
    program, wait = f._jit.entry((tree,), {}).compiled, sys.modules["jaxlib._jax"].batched_block_until_ready
    run, handlers = program.executable.execute_sharded, program._handlers
    return lambda buffers: run(buffers).consume_with_handlers(handlers), wait, [x._buffer for x in tree]

def time_batch(f, wait, tree, calls):
    begin = time.perf_counter()
    for _ in range(calls):
        tree = f(tree)
    wait(tree)
    return (time.perf_counter() - begin) / calls

def time_single_calls(f, wait, tree, calls):
    times = []
    for _ in range(calls):
        begin = time.perf_counter()
        tree = f(tree)
        wait(tree)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)

for line in sys.stdin:
    system, calls, collectives = line.split()
    f, wait, first = prepare(system, int(collectives))
    wait(f(first))
    if collectives == "0":
        seconds = min(time_batch(f, wait, first, int(calls)) for _ in range(5))
    else:
        seconds = time_single_calls(f, wait, first, int(calls))
    print("seconds", seconds, flush=True)
os._exit(0)
"""


class _Pair:
    """Two processes that make the same calls, and end with this one."""

    def __init__(self) -> None:
        addresses = [word for system in _SYSTEMS for word in (system, _unused_address())]
        environment = os.environ | {f"{system.upper()}_NUM_CPU_DEVICES": "1" for system in _SYSTEMS}
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-c", _PROCESS, str(number), *addresses],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                text=True,
            )
            for number in range(2)
        ]

    def time_calls(self, system: str, calls: int, collectives: int) -> float:
        """The seconds of a call in the first process."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{system} {calls} {collectives}\n")
            process.stdin.flush()
        limit = threading.Timer(60, lambda: [process.kill() for process in self._processes])
        limit.start()
        try:
            first, _ = map(_read_seconds, self._processes)
        finally:
            limit.cancel()
        return first


def _read_seconds(process: subprocess.Popen[str]) -> float:
    """The next number that a process prints; Gloo prints lines of its own."""
    assert process.stdout is not None
    for line in process.stdout:
        label, _, seconds = line.partition(" ")
        if label == "seconds":
            return float(seconds)
    raise RuntimeError(f"a process of the pair ended with {process.wait()}, or its calls took more than a minute")


def _unused_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


_pair = functools.cache(_Pair)  # one for both systems


def _time_calls(system: str, collectives: int) -> Clocked:
    pair = _pair()
    return Clocked(lambda: pair.time_calls(system, 200 if collectives else 300, collectives))


@bench(
    unit="us",
    row=CALLS,
    at_most=(1.05, 1.05, 1.05),
    sizes=(0, 1, 8),
    processes=2,
    name="call with collectives over processes",
    floor=lambda xp, collectives: _time_calls(ENGINE, collectives),
)
def call_over_processes(xp: Any, collectives: int) -> Clocked:
    """Calls of which `collectives` of the 8 results need an all-reduce."""
    return _time_calls(xp.__name__, collectives)
