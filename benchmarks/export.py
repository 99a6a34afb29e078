"""Exporting: symbolic dimensions, programs with symbolic shapes, artifacts and what comes after them."""

from __future__ import annotations

import importlib

import numpy as np

from benchmarks import models
from benchmarks.harness import Row, Timed, Value, bench

DIMENSIONS = Row("symbolic dimensions", at_most=0.3)
TRACED = Row("200 shape-computing operations, traced", at_most=0.35)
LOWERED = Row("200 shape-computing operations, exported", at_most=0.5)
EXPORTED = Row("export of a transformer with symbolic batch and length", at_most=0.4)
WITH_GRADIENT = Row("the same with its gradient, serialized", at_most=0.4)
BYTES = Row("serialize and deserialize", at_most=0.6)
FIRST = Row("first call after load", at_most=1.0)
STEADY = Row("a steady call of jit(exported.call)", at_most=1.05)
SIZE = Row("size of the artifact", at_most=1.0)
LAYERS = 4
REPEATS = 100


def _export(xp):
    return importlib.import_module(f"{xp.__name__}.export")


def _dims(xp, constraints=()):
    return _export(xp).symbolic_shape("a, b", constraints=constraints)


def _repeated(run):
    def loop():
        for _ in range(REPEATS):
            run()

    return Timed(loop, ops=REPEATS)


@bench(unit="us/op", row=DIMENSIONS)
def parse_a_shape(xp):
    """Two variables, a sum and a product, in one scope."""
    export = _export(xp)
    scope = export.SymbolicScope()
    return _repeated(lambda: export.symbolic_shape("a, 2*b + 1, a*b", scope=scope))


@bench(unit="us/op", row=DIMENSIONS)
def parse_a_constraint(xp):
    """A new scope with one constraint."""
    return _repeated(lambda: _export(xp).SymbolicScope(["a >= b + 8"]))


@bench(unit="us/op", row=DIMENSIONS)
def add_and_multiply(xp):
    """Arithmetic as shapes repeat it."""
    a, b = _dims(xp)
    return _repeated(lambda: (a + b, a + 1, 2 * a, a * b, a - b))


@bench(unit="us/op", row=DIMENSIONS)
def divide(xp):
    """Quotients and remainders by numbers."""
    a, b = _dims(xp)
    return _repeated(lambda: (a // 2, a % 3, (4 * a + 2 * b) // 2))


@bench(unit="us/op", row=DIMENSIONS)
def compare_plainly(xp):
    """Comparisons that bounds decide."""
    a, b = _dims(xp)
    return _repeated(lambda: (a >= 1, a + b >= 2, 2 * a * b >= 2))


@bench(unit="us/op", row=DIMENSIONS)
def compare_with_constraints(xp):
    """Comparisons that need a constraint."""
    a, b = _dims(xp, ["a >= b + 8"])
    return _repeated(lambda: (a >= b, a >= 9, a - b >= 4))


@bench(unit="us/op", row=DIMENSIONS)
def compare_once(xp):
    """The same, each in a fresh scope, so that nothing is cached."""

    def run(dims):
        for a, b in dims:
            assert a >= b + 1

    return Timed(run, make=lambda: [_dims(xp, ["a >= b + 8"]) for _ in range(10)], ops=10)


@bench(unit="us/op", row=DIMENSIONS)
def hash_and_print(xp):
    """A dimension as a key, and its text."""
    a, b = _dims(xp)
    dim = 2 * a * b + 1
    return _repeated(lambda: (hash(dim), str(dim), {dim: 1}[dim]))


def _shapes(xp):
    def computed(x):
        for _ in range(20):
            n, m = x.shape
            y = x.reshape(-1)[: n * m // 2 * 2].reshape(-1, 2)
            x = x + y.sum() / y.shape[0] + xp.numpy.arange(n, dtype="float32")[:, None] + xp.numpy.zeros((n, m)).T.T
        return x

    return computed


def _shape_spec(xp):
    export = _export(xp)
    scope = export.SymbolicScope(["mod(a, 2) == 0"])
    return xp.ShapeDtypeStruct(export.symbolic_shape("a, 4", scope=scope), "float32")


@bench(unit="ms", row=TRACED)
def trace_shape_computations(xp):
    """Reshapes, slices, ranges and divisions by sizes."""
    spec, fun = _shape_spec(xp), _shapes(xp)
    return Timed(lambda jitted: jitted.trace(spec), make=lambda: xp.jit(lambda x: fun(x)))


@bench(unit="ms", row=LOWERED)
def export_shape_computations(xp):
    """The same, traced and lowered."""
    spec, fun, export = _shape_spec(xp), _shapes(xp), _export(xp).export
    return Timed(lambda jitted: export(jitted)(spec), make=lambda: xp.jit(lambda x: fun(x)))


def _model(xp):
    """The loss of a transformer with arguments of symbolic batch and length."""
    jnp, nn, width = xp.numpy, xp.nn, models.WIDTH

    def layer(x, p):
        q, k, v = jnp.moveaxis(jnp.einsum("btd,dchk->btchk", x * p["norm1"], p["qkv"]), 2, 0)
        scores = jnp.einsum("bqhk,bthk->bhqt", q, k) / np.sqrt(width // models.HEADS)
        scores = jnp.where(jnp.tri(x.shape[1], dtype=bool), scores, -1e9)
        x = x + jnp.einsum("bhqt,bthk,hkd->bqd", nn.softmax(scores, axis=-1), v, p["out"])
        return x + nn.gelu(x @ p["up"] + p["up_bias"]) @ p["down"] + p["down_bias"]

    def loss(params, tokens):
        x = params["embed"][tokens[:, :-1]]
        for p in params["layers"]:
            x = layer(x, p)
        scores = nn.log_softmax(x @ params["embed"].T)
        return -jnp.mean(jnp.take_along_axis(scores, tokens[:, 1:, None], axis=-1))

    model = models.transformer(xp, layers=LAYERS, scan=False)
    params = {name: model.params[name] for name in ("embed", "layers")}
    specs = _export(xp).symbolic_args_specs((params, model.batch()), (None, "b, t"), ["t >= 2"])
    return loss, params, model.batch(), specs


def _exported(xp):
    loss, params, batch, specs = _model(xp)
    return params, batch, _export(xp).export(xp.jit(loss))(*specs)


@bench(unit="ms", row=EXPORTED)
def export_a_transformer(xp):
    """Four layers, written out."""
    loss, _, _, specs = _model(xp)
    export = _export(xp).export
    return Timed(lambda jitted: export(jitted)(*specs), make=lambda: xp.jit(lambda p, b: loss(p, b)))


@bench(unit="ms", row=WITH_GRADIENT)
def export_and_serialize_with_the_gradient(xp):
    """One order of the reverse derivative."""
    loss, _, _, specs = _model(xp)
    export = _export(xp).export
    return Timed(
        lambda jitted: export(jitted)(*specs).serialize(vjp_order=1), make=lambda: xp.jit(lambda p, b: loss(p, b))
    )


@bench(unit="ms", row=BYTES)
def serialize_and_deserialize(xp):
    """The bytes of an exported program, made and read."""
    _, _, exported = _exported(xp)
    export = _export(xp)
    return lambda: export.deserialize(exported.serialize())


@bench(unit="ms", row=FIRST)
def first_call_after_load(xp):
    """Reading, refining, compiling and running."""
    params, batch, exported = _exported(xp)
    blob, export = exported.serialize(), _export(xp)

    def run():
        return float(export.deserialize(blob).call(params, batch))

    return Timed(run)


@bench(unit="us", row=STEADY)
def steady_call(xp):
    """Compiled before."""
    params, batch, exported = _exported(xp)
    call = xp.jit(exported.call)
    params, batch = xp.device_put(params), xp.device_put(batch)
    call(params, batch)
    return lambda: call(params, batch).block_until_ready()


@bench(unit="bytes", row=SIZE)
def artifact_size(xp):
    """The transformer with its gradient."""
    _, _, exported = _exported(xp)
    return Value(len(exported.serialize(vjp_order=1)))
