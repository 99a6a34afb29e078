"""Whole training programs: how fast they are traced and lowered, how large they are, how fast they compile and run."""

from __future__ import annotations

import re

import numpy as np

from benchmarks import models
from benchmarks.harness import Row, Timed, Value, bench

UNROLLED = Row("trace + lower, value_and_grad of a 12-layer transformer, unrolled", at_most=0.35)
SCANNED = Row("trace + lower, value_and_grad of a 12-layer transformer, with scan", at_most=0.4)
MLP = Row("trace + lower, value_and_grad of a 24-layer MLP", at_most=0.35)
PROGRAM = Row("program handed to XLA for the training steps (StableHLO operations)", none_above=1.0)
COMPILE = Row("XLA's compile time of the training steps", none_above=1.02)
STEP = Row("compiled step time", none_above=1.05)

#   name         its row                 the model, of the module
MODELS = {
    "unrolled": (UNROLLED, lambda xp: models.transformer(xp, layers=12, scan=False)),
    "scanned": (SCANNED, lambda xp: models.transformer(xp, layers=12, scan=True)),
    "mlp": (MLP, lambda xp: models.mlp(xp, layers=24)),
}


def fresh(function):
    """The same function as an object that no cache has seen."""
    return lambda *args: function(*args)


def lower_step(xp, model):
    """Trace and lower a whole training step."""
    return xp.jit(fresh(model.step), donate_argnums=0).trace(model.state(xp), model.batch()).lower()


def count_operations(text: str) -> int:
    """Count the operations of a module in text form, those inside regions and calls included."""
    return len(re.findall(r'^\s*(?:[%\w:, ]+ = )?"?(?:stablehlo|chlo|mhlo|sdy|func\.call|call)\b', text, re.MULTILINE))


for _name, (_row, _make) in MODELS.items():

    @bench(unit="ms", row=_row, name=f"trace_and_lower_{_name}")
    def trace_and_lower(xp, make=_make):
        """Trace and lower the loss with its gradients."""
        model = make(xp)
        batch = model.batch()
        return lambda: xp.jit(xp.value_and_grad(fresh(model.loss))).trace(model.params, batch).lower() and None

    @bench(unit="ops", row=PROGRAM, name=f"operations_{_name}")
    def operations(xp, make=_make):
        """Count what is handed to XLA."""
        return Value(count_operations(lower_step(xp, make(xp)).as_text()))

    @bench(unit="s", row=COMPILE, name=f"compile_{_name}")
    def compile_time(xp, make=_make):
        """Compile the training step, lowered off the clock."""
        model = make(xp)
        return Timed(lambda lowered: lowered.compile() and None, lambda: lower_step(xp, model))

    @bench(unit="ms", row=STEP, processes=5, name=f"step_{_name}")
    def step_time(xp, make=_make):
        """Run the compiled training step on one device, its state donated."""
        return training_loop(xp, make(xp))


@bench(unit="ms", row=STEP)
def step_on_eight_devices(xp):
    """The same step of the scanned transformer with its batch split over 8 devices."""
    mesh = xp.sharding.Mesh(np.array(xp.devices()[:8]), ("data",))

    def place(tree, *spec):
        return xp.device_put(tree, xp.sharding.NamedSharding(mesh, xp.sharding.PartitionSpec(*spec)))

    return training_loop(xp, MODELS["scanned"][1](xp), place)


def training_loop(xp, model, place=lambda tree, *spec: tree):
    """A call that takes one training step after the last one."""
    step = xp.jit(fresh(model.step), donate_argnums=0)
    state, batch = [place(xp.tree.map(xp.numpy.asarray, model.state(xp)))], place(model.batch(), "data")

    def call():
        state[0], value = step(state[0], batch)
        return value

    return call
