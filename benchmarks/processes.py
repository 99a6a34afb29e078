"""Programs over several processes: what the watch for failures costs beside the peer's own runtime."""

from __future__ import annotations

from benchmarks.harness import Row, Script, bench

CALLS = Row("compiled call with 8 arrays over two processes of 2 CPU devices")

_TWO_PROCESSES = """
import os, socket
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    address = "127.0.0.1:%d" % probe.getsockname()[1]
os.environ["{system}_NUM_CPU_DEVICES"] = "2"
number = int(os.fork() == 0)
import time
import numpy as np
import {module} as xp
import {module}.numpy as jnp
xp.distributed.initialize(address, 2, number)
mesh = xp.sharding.Mesh(np.array(xp.devices()), ("rows",))
rows = xp.sharding.NamedSharding(mesh, xp.sharding.PartitionSpec("rows"))
put = lambda x: xp.make_array_from_callback(x.shape, rows, lambda index: x[index])
tree = [put(np.ones((4, 4), np.float32)) for _ in range(8)]
{function}
best = 1e9
for _ in range(20):
    start = time.perf_counter()
    for _ in range({calls}):
        tree = f(tree)
    xp.block_until_ready(tree)
    best = min(best, (time.perf_counter() - start) / {calls})
if number == 1:
    xp.distributed.shutdown()
    os._exit(0)
print(best)
xp.distributed.shutdown()
os.wait()
"""

for name, at_most, function, calls in (
    ("without communication", 1.05, "f = xp.jit(lambda tree: [x + 1 for x in tree])", 1000),
    ("with an all-reduce", 1.05, "f = xp.jit(lambda tree: [x - jnp.mean(x) for x in tree])", 20),
):

    @bench(unit="us", row=CALLS, at_most=at_most, name=f"call over processes {name}")
    def call_over_processes(xp, function=function, calls=calls):
        """The seconds that the first of the processes prints."""
        system = xp.__name__.upper()
        source = _TWO_PROCESSES.format(system=system, module=xp.__name__, function=function, calls=calls)
        return Script(source, prints=True)
