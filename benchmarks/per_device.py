"""The per-device view: tracing and lowering of `shard_map` programs, over 8 devices.

Each repetition traces a function object that nobody has seen, so no cache can answer for it.
"""

from __future__ import annotations

import numpy as np

from benchmarks.harness import Row, Timed, bench

PROGRAM = Row("trace and lower of a shard_map program", at_most=0.5)
LAYERS = 12


def mesh_of(xp):
    """Eight devices, by data and by model."""
    return xp.sharding.Mesh(np.array(xp.devices()[:8]).reshape(4, 2), ("data", "model"))


def mlp(xp):
    """The loss of a deep network whose batch is split over "data" and whose hidden units over "model"."""

    def loss(params, x):
        for w_in, w_out in params:
            x = x + xp.lax.psum(xp.numpy.tanh(x @ w_in) @ w_out, "model")
        return xp.lax.pmean(xp.numpy.mean(x * x), "data")

    return loss


def arguments(xp):
    """Types of the parameters and of the batch."""
    struct = lambda *shape: xp.ShapeDtypeStruct(shape, np.float32)
    return [(struct(32, 64), struct(64, 32)) for _ in range(LAYERS)], struct(16, 32)


def mapped(xp, fun, out_specs):
    """A function of parameters and a batch, run by each device."""
    P = xp.sharding.PartitionSpec
    weights = [(P(None, "model"), P("model", None))] * LAYERS
    return xp.shard_map(fun, mesh=mesh_of(xp), in_specs=(weights, P("data")), out_specs=out_specs(P, weights))


def lowered(xp, make):
    """Trace and lower a new function, again and again."""
    args = arguments(xp)
    return Timed(lambda: xp.jit(make()).lower(*args) and None)


@bench(unit="ms", row=PROGRAM)
def loss_of_each_device(xp):
    """The loss alone."""
    return lowered(xp, lambda: mapped(xp, mlp(xp), lambda P, weights: P()))


@bench(unit="ms", row=PROGRAM)
def gradient_outside(xp):
    """The gradient of a function that each device runs."""
    return lowered(xp, lambda: xp.grad(mapped(xp, mlp(xp), lambda P, weights: P())))


@bench(unit="ms", row=PROGRAM)
def gradient_inside(xp):
    """A gradient that each device takes, with the sums that follow from what devices share."""
    return lowered(xp, lambda: mapped(xp, xp.value_and_grad(mlp(xp)), lambda P, weights: (P(), weights)))
