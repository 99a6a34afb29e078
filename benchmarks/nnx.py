"""Modules: calls of lifted functions beside plain `jit` of the same pytree, and everything around them beside Flax NNX.

In the rows "beside plain phalanx.jit" the second column is that plain call in place of the peer, since what is defended
there is that modules cost next to nothing. All other rows have `flax.nnx` as the peer.
"""

from __future__ import annotations

import importlib

import numpy as np

from benchmarks.harness import Row, Script, Timed, bench

SIZES = (1, 20, 100)
FORWARD = Row("nnx.jit of a forward pass of 1 / 20 / 100 Linear layers, beside plain phalanx.jit")
STEP = Row("nnx.jit of a training step of 1 / 20 / 100 Linear layers, beside plain phalanx.jit")
PEER_FORWARD = Row("nnx.jit of a forward pass of 1 / 20 / 100 Linear layers", at_most=0.1)
PEER_STEP = Row("nnx.jit of a training step of 1 / 20 / 100 Linear layers", at_most=0.15)
GRAPH = Row("split, merge, update, clone of 20 layers", none_above=0.3)
EAGER_FORWARD = Row("eager forward pass of 20 layers", at_most=0.5)
EAGER_GRAD = Row("eager nnx.grad of 20 layers", at_most=0.2)
TREE = Row("split, clone, forward pass and training step of 20 layers in tree mode", none_above=0.5)
MAKE = Row("construction and eval_shape of 20 layers", none_above=0.3)
LOWER = Row("trace + lower of the training step of 20 layers", at_most=0.4)
MANY = Row("trace + lower of a training step of 100 to 1,000 variables")
UPDATE = Row("optimiser update of 20 layers (adam), compiled", at_most=0.1)
EAGER_UPDATE = Row("optimiser update of 20 layers (adam), eager", at_most=0.3)
IMPORT = Row("import of nnx", at_most=0.3)
READY = Row("import of nnx and of all that a first training step names", at_most=0.4)


def nnx_of(xp):
    """The module library of a system."""
    return importlib.import_module("phalanx.nnx" if xp.__name__ == "phalanx" else "flax.nnx")


def model_of(xp, depth, size=16):
    """A chain of linear layers, made by the same code in both systems."""
    nnx = nnx_of(xp)

    class Linear(nnx.Module):
        def __init__(self, rngs):
            self.kernel = nnx.Param(rngs.params.normal((size, size)) * 0.1)
            self.bias = nnx.Param(xp.numpy.zeros(size))

        def __call__(self, x):
            return x @ self.kernel[...] + self.bias[...]

    class Chain(nnx.Module):
        def __init__(self, rngs):
            self.layers = nnx.List([Linear(rngs) for _ in range(depth)])

        def __call__(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    return Chain


def batch(xp, size=16):
    """An input on the device."""
    return xp.device_put(np.ones((4, size), np.float32))


def forward(model, x):
    """The forward pass."""
    return model(x)


def step_of(xp):
    """A training step of gradient descent."""
    nnx = nnx_of(xp)

    def step(model, x):
        loss, grads = nnx.value_and_grad(lambda m: (m(x) ** 2).mean())(model)
        params, grads = nnx.state(model, nnx.Param), nnx.state(grads)  # which are a module in tree mode
        nnx.update(model, xp.tree.map(lambda p, g: p - 0.01 * g, params, grads))
        return loss

    return step


def plain(xp, depth):
    """The parameters of a chain as a bare pytree, its forward pass and its training step."""
    chain = model_of(xp, depth)(nnx_of(xp).Rngs(0))
    params = [(layer.kernel[...], layer.bias[...]) for layer in chain.layers]

    def apply(params, x):
        for kernel, bias in params:
            x = x @ kernel + bias
        return x

    def step(params, x):
        loss, grads = xp.value_and_grad(lambda p: (apply(p, x) ** 2).mean())(params)
        return xp.tree.map(lambda p, g: p - 0.01 * g, params, grads), loss

    return params, apply, step


def lifted_forward(xp, depth):
    """Calls of the compiled forward pass of a module."""
    model, x, run = model_of(xp, depth)(nnx_of(xp).Rngs(0)), batch(xp), nnx_of(xp).jit(forward)
    return lambda: run(model, x)


def lifted_step(xp, depth):
    """Calls of the compiled training step of a module."""
    model, x, run = model_of(xp, depth)(nnx_of(xp).Rngs(0)), batch(xp), nnx_of(xp).jit(step_of(xp))
    return lambda: run(model, x)


@bench(unit="us", row=FORWARD, at_most=(3.0, 1.5, 1.3), sizes=SIZES)
def forward_beside_plain(xp, depth):
    """The first column is `nnx.jit`, the second `phalanx.jit` of the bare pytree."""
    import phalanx

    if xp is phalanx:
        return lifted_forward(xp, depth)
    params, apply, _ = plain(phalanx, depth)
    x, run = batch(phalanx), phalanx.jit(apply)
    return lambda: run(params, x)


@bench(unit="us", row=STEP, at_most=(3.0, 1.5, 1.3), sizes=SIZES)
def step_beside_plain(xp, depth):
    """The first column is `nnx.jit`, the second `phalanx.jit` of the bare pytree."""
    import phalanx

    if xp is phalanx:
        return lifted_step(xp, depth)
    params, _, step = plain(phalanx, depth)
    held, x, run = [params], batch(phalanx), phalanx.jit(step)

    def call():
        held[0], loss = run(held[0], x)
        return loss

    return call


bench(unit="us", row=PEER_FORWARD, sizes=SIZES)(lifted_forward)
bench(unit="us", row=PEER_STEP, sizes=SIZES)(lifted_step)


@bench(unit="us", row=GRAPH)
def split(xp):
    """Structure and state of a module."""
    model, nnx = model_of(xp, 20)(nnx_of(xp).Rngs(0)), nnx_of(xp)
    return lambda: nnx.split(model) and None


@bench(unit="us", row=GRAPH)
def merge(xp):
    """A module of its structure and state."""
    nnx = nnx_of(xp)
    parts = nnx.split(model_of(xp, 20)(nnx.Rngs(0)))
    return lambda: nnx.merge(*parts) and None


@bench(unit="us", row=GRAPH)
def update(xp):
    """The state of one module set in another."""
    nnx = nnx_of(xp)
    model, state = model_of(xp, 20)(nnx.Rngs(0)), nnx.state(model_of(xp, 20)(nnx.Rngs(1)))
    return lambda: nnx.update(model, state)


@bench(unit="us", row=GRAPH)
def clone(xp):
    """A copy of a module."""
    nnx = nnx_of(xp)
    model = model_of(xp, 20)(nnx.Rngs(0))
    return lambda: nnx.clone(model) and None


def tree_mode(build, *size):
    """A workload with modules as pytrees; transformations read the mode when they are applied."""

    def build_in_tree_mode(xp):
        nnx = nnx_of(xp)
        with nnx.set_graph_mode(False):
            run = build(xp, *size)

        def call():
            with nnx.set_graph_mode(False):
                return run()

        return call

    return build_in_tree_mode


for workload, *size in ((split,), (clone,), (lifted_forward, 20), (lifted_step, 20)):
    bench(unit="us", row=TREE, name=f"tree_{workload.__name__}")(tree_mode(workload, *size))


@bench(unit="us", row=EAGER_FORWARD)
def eager_forward(xp):
    """Operation by operation."""
    model, x = model_of(xp, 20)(nnx_of(xp).Rngs(0)), batch(xp)
    return lambda: model(x)


@bench(unit="ms", row=EAGER_GRAD)
def eager_grad(xp):
    """The gradient without `jit` around it."""
    model, x = model_of(xp, 20)(nnx_of(xp).Rngs(0)), batch(xp)
    grad = nnx_of(xp).grad(lambda m, x: (m(x) ** 2).mean())
    return lambda: xp.tree.leaves(grad(model, x))


@bench(unit="ms", row=MAKE)
def construction(xp):
    """A module with its initial values."""
    make, nnx = model_of(xp, 20), nnx_of(xp)
    return lambda: make(nnx.Rngs(0)) and None


@bench(unit="ms", row=MAKE)
def eval_shape(xp):
    """A module of shapes."""
    make, nnx = model_of(xp, 20), nnx_of(xp)
    return lambda: nnx.eval_shape(lambda: make(nnx.Rngs(0))) and None


@bench(unit="ms", row=LOWER)
def trace_and_lower(xp):
    """The training step up to StableHLO, each time anew."""
    nnx, x = nnx_of(xp), batch(xp)
    model = model_of(xp, 20)(nnx.Rngs(0))
    return lambda: nnx.jit(step_of(xp)).lower(model, x) and None


@bench(unit="ms/op", row=MANY, sizes=(50, 500), linear=True)
def many_variables(xp, depth):
    """Time per layer."""
    nnx, x = nnx_of(xp), batch(xp)
    model = model_of(xp, depth)(nnx.Rngs(0))
    return Timed(lambda: nnx.jit(step_of(xp)).lower(model, x) and None, ops=depth)


def optimized(xp):
    """A model, its optimiser and gradients for it."""
    nnx = nnx_of(xp)
    model, x = model_of(xp, 20)(nnx.Rngs(0)), batch(xp)
    library = importlib.import_module("phalanx.optim" if xp.__name__ == "phalanx" else "optax")
    optimizer = nnx.Optimizer(model, library.adam(1e-3), wrt=nnx.Param)
    return model, optimizer, nnx.grad(lambda m, x: (m(x) ** 2).mean())(model, x)


@bench(unit="us", row=UPDATE)
def compiled_update(xp):
    """Inside `nnx.jit`."""
    model, optimizer, grads = optimized(xp)
    run = nnx_of(xp).jit(lambda model, optimizer, grads: optimizer.update(model, grads))
    return lambda: run(model, optimizer, grads)


@bench(unit="ms", row=EAGER_UPDATE)
def eager_update(xp):
    """Without `jit` around it."""
    model, optimizer, grads = optimized(xp)
    return lambda: optimizer.update(model, grads)


@bench(unit="s", row=IMPORT)
def importing(xp):
    """A fresh interpreter that imports the library."""
    return Script(f"import {nnx_of(xp).__name__}")


@bench(unit="s", row=READY)
def importing_what_training_names(xp):
    """The same, and the names that are loaded when they are first used."""
    names = "Module Linear relu Rngs Optimizer MultiMetric jit value_and_grad".split()
    return Script(f"from {nnx_of(xp).__name__} import {', '.join(names)}")
