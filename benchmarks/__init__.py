"""Phalanx measured beside jax, in one run and in alternation; ratios are what counts.

`python -m benchmarks` prints every workload and every row of the table it defends; `--check` fails where a row misses
its target. `harness` holds the `@bench` decorator and the clock, `report` the table and the JSON; each other module is
a room of workloads: `start` (processes), `eager`, `calls`, `tracing`, `training` (on the programs of `models`), `nnx`.

A workload takes `xp`, the module under test (phalanx, then jax), and uses only names that both have.
"""
