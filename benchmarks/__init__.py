"""Benchmarks of Phalanx beside JAX, alternating in one run; the results are ratios.

`python -m benchmarks` prints every workload and the table of rows that it defends; `--check` fails if a row misses its
target. `harness` has the `@bench` decorator and the clock, `report` the table and the JSON. The other modules define
workloads: `start` (processes), `eager`, `calls`, `tracing`, `training` (on the programs of `models`), `nnx`, ...

A workload takes `xp`, the module under test (phalanx, then jax), and uses only names that both have.
"""
