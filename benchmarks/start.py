"""Processes from their start: import, first result, first training step. Each run is a fresh interpreter."""

from __future__ import annotations

from pathlib import Path

from benchmarks.harness import Row, Script, bench

IMPORT = Row("import time", at_most=0.35)
FIRST_RESULT = Row("from start to the first result", at_most=0.6)
FIRST_STEP = Row("start of a script to the end of its first training step", at_most=0.88)
REPOSITORY = Path(__file__).parents[1]


@bench(unit="ms", row=IMPORT)
def import_time(xp):
    """The whole process, interpreter included."""
    return Script(f"import {xp.__name__}")


@bench(unit="ms")
def import_numpy_face(xp):
    """What most programs import next."""
    return Script(f"import {xp.__name__}.numpy")


@bench(unit="MB")
def import_memory(xp):
    """Peak memory of a process that only imports."""
    return Script(f"import {xp.__name__}", memory=True)


@bench(unit="ms", row=FIRST_RESULT)
def first_result(xp):
    """Import, make an array, compute and read it."""
    return Script(f"import {xp.__name__}.numpy as jnp\nprint(jnp.arange(8.0) + 1)")


@bench(unit="MB")
def first_result_memory(xp):
    """Peak memory of the same process."""
    return Script(f"import {xp.__name__}.numpy as jnp\nprint(jnp.arange(8.0) + 1)", memory=True)


@bench(unit="s", row=FIRST_STEP)
def first_training_step(xp):
    """Import, initialise a 12-layer transformer, trace, lower, compile and run one training step (scan)."""
    return Script(
        f"import sys; sys.path.insert(0, {str(REPOSITORY)!r})\n"
        f"import {xp.__name__} as xp\n"
        "from benchmarks import models\n"
        "model = models.transformer(xp, layers=12, scan=True)\n"
        "state, batch = model.state(xp), model.batch()\n"
        "print(xp.jit(model.step, donate_argnums=0)(state, batch)[1])\n"
    )
