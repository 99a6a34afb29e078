"""Programs that run under Flax NNX and under Phalanx after changing one import, with equal results."""

import functools
import warnings

import numpy as np
import pytest

import phalanx
from phalanx import nnx

jax = pytest.importorskip("jax")
peer = pytest.importorskip("flax.nnx")


def make_layer(nnx, jnp):
    class Layer(nnx.Module):
        def __init__(self, size, rngs):
            self.w = nnx.Param(rngs.params.normal((size, size)) * 0.3)
            self.b = nnx.Param(jnp.zeros(size))
            self.calls = nnx.BatchStat(jnp.array(0))

        def __call__(self, x):
            self.calls[...] = self.calls[...] + 1
            return jnp.tanh(x @ self.w[...] + self.b[...])

    class Model(nnx.Module):
        def __init__(self, depth, rngs):
            self.layers = nnx.List([Layer(3, rngs) for _ in range(depth)])
            self.top = self.layers[0]

        def __call__(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    return Layer, Model


def numbers(nnx, tree):
    """Paths and values of a module's or a state's leaves."""
    state = tree if isinstance(tree, nnx.State) else nnx.state(tree)
    return {path: np.asarray(x[...]).tolist() for path, x in dict(state.flat_state()).items()}


def structure(nnx, xp):
    _, model = make_layer(nnx, xp.numpy)
    m = model(2, nnx.Rngs(0))
    graphdef, params, rest = nnx.split(m, nnx.Param, ...)
    again = nnx.merge(graphdef, params, rest)
    paths = [p for p, x in nnx.iter_graph(m) if isinstance(x, nnx.Variable)]
    modules = [p for p, _ in nnx.iter_modules(m) if p != ("layers",)]
    popped = nnx.pop(nnx.clone(m), nnx.BatchStat)
    return numbers(nnx, m), paths, modules, again.top is again.layers[0], numbers(nnx, popped), numbers(nnx, params)


def training(nnx, xp):
    _, model = make_layer(nnx, xp.numpy)
    m, x = model(2, nnx.Rngs(0, params=3)), xp.numpy.arange(6.0).reshape(2, 3)

    @nnx.jit
    def step(m, x):
        loss, bars = nnx.value_and_grad(lambda m, x: (m(x) ** 2).mean())(m, x)
        params = nnx.state(m, nnx.Param)
        nnx.update(m, xp.tree.map(lambda p, g: p - 0.1 * g, params, bars))
        return loss

    return [float(step(m, x)) for _ in range(3)], numbers(nnx, m)


def derivatives(nnx, xp):
    _, model = make_layer(nnx, xp.numpy)
    m, x = model(1, nnx.Rngs(0)), xp.numpy.ones(3)

    def loss(m, x):
        y = m(x)
        return y.sum(), y

    (value, aux), (bars, x_bar) = nnx.value_and_grad(
        loss, argnums=(nnx.DiffState(0, nnx.PathContains("b")), 1), has_aux=True
    )(m, x)
    only, y = nnx.grad(loss, has_aux=True)(m, x)
    return float(value), aux.tolist(), numbers(nnx, bars), x_bar.tolist(), numbers(nnx, only), numbers(nnx, m)


def mapping(nnx, xp):
    layer, _ = make_layer(nnx, xp.numpy)

    @nnx.split_rngs(splits=3)
    @nnx.vmap
    def make(rngs):
        return layer(3, rngs)

    stack = make(nnx.Rngs(0))
    axes = nnx.StateAxes({nnx.Param: 0, nnx.BatchStat: 0, ...: None})

    @functools.partial(nnx.vmap, in_axes=(axes, None), out_axes=1)
    def run(m, x):
        return m(x)

    y = run(stack, xp.numpy.ones(3))
    return numbers(nnx, stack), y.tolist()


def looping(nnx, xp):
    layer, _ = make_layer(nnx, xp.numpy)

    @nnx.split_rngs(splits=4)
    @nnx.vmap
    def make(rngs):
        return layer(3, rngs)

    stack = make(nnx.Rngs(0))

    @functools.partial(nnx.scan, in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
    def forward(m, x):
        return m(x)

    y = forward(stack, xp.numpy.ones(3))
    one = layer(3, nnx.Rngs(1))
    carried = nnx.StateAxes({nnx.BatchStat: nnx.Carry, ...: None})

    @functools.partial(nnx.scan, in_axes=(carried, nnx.Carry, 0), out_axes=(nnx.Carry, 0))
    def cell(m, c, x):
        c = m(c + x)
        return c, c * 2

    c, ys = cell(one, xp.numpy.zeros(3), xp.numpy.ones((5, 3)))

    def body(carry):
        m, n = carry
        m.calls[...] = m.calls[...] + 2
        return m, n + 1

    _, n = nnx.while_loop(lambda carry: carry[1] < 3, body, (one, 0))
    nnx.fori_loop(0, 2, lambda i, m: body((m, i))[0], one)
    return y.tolist(), numbers(nnx, stack), c.tolist(), ys.tolist(), int(n), numbers(nnx, one)


def branching(nnx, xp):
    layer, _ = make_layer(nnx, xp.numpy)
    m, x = layer(3, nnx.Rngs(0)), xp.numpy.ones(3)
    a = nnx.cond(True, lambda m, x: m(x), lambda m, x: x, m, x)
    b = nnx.switch(1, [lambda m, x: x, lambda m, x: m(x) * 2], m, x)
    bars = nnx.grad(nnx.remat(lambda m, x: m(x).sum()))(m, x)
    shapes = nnx.eval_shape(lambda: layer(7, nnx.Rngs(0)))
    return a.tolist(), b.tolist(), numbers(nnx, m), numbers(nnx, bars), tuple(shapes.w.shape)


def own_rules(nnx, xp):
    jnp = xp.numpy

    class Foo(nnx.Module):
        def __init__(self):
            self.x, self.y = nnx.Param(jnp.array(1.0)), nnx.Param(jnp.array(2.0))

    @nnx.custom_vjp
    def f(m):
        return jnp.sin(m.x[...]) * m.y[...]

    def fwd(m):
        return f(m), (jnp.cos(m.x[...]), m)

    def bwd(res, g):
        (m_g,), out_g = g
        cos, m = res
        m_g["x"][...] = cos * out_g * m.y[...]
        m_g["y"][...] = 5 * jnp.sin(m.x[...]) * out_g
        return (m_g,)

    f.defvjp(fwd, bwd)
    return numbers(nnx, nnx.grad(f)(Foo()))


def changing_structure(nnx, xp):
    layer, _ = make_layer(nnx, xp.numpy)
    m = layer(3, nnx.Rngs(0))

    @nnx.jit
    def grow(m, x):
        m.extra = nnx.Cache(m.b[...] + x)
        m.sow(nnx.Intermediate, "seen", x)
        return m, nnx.Param(x)

    out, p = grow(m, xp.numpy.ones(3))
    grow(m, xp.numpy.ones(3))
    seen = [np.asarray(x).tolist() for x in m.seen.get_raw_value()]
    return out is m, type(p).__name__, m.extra[...].tolist(), seen, sorted(k for k in vars(m) if not k.startswith("_"))


def variables(nnx, xp):
    v = nnx.Param(xp.numpy.ones(2), unit="m", on_get_value=lambda v, x: x * 2, on_set_value=lambda v, x: x + 1)
    before = v[...].tolist(), v.get_raw_value().tolist(), v.unit
    v[...] = xp.numpy.zeros(2)
    w = v.replace(xp.numpy.ones(1))
    return before, v.get_raw_value().tolist(), w.get_raw_value().tolist(), type(w).__name__, w.unit


def random_streams(nnx, xp):
    rngs = nnx.Rngs(0, dropout=1)
    rngs.params()
    forked = rngs.fork()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        backups = nnx.split_rngs(rngs, splits=2, only="dropout")
    shapes = tuple(rngs.dropout.key.shape), tuple(rngs.default.key.shape)
    nnx.restore_rngs(backups)
    nnx.reseed(rngs, default=9)
    keys = [rngs(), forked.dropout(), forked.default()]
    return shapes, [np.asarray(xp.random.key_data(k)).tolist() for k in keys], rngs.normal((2,)).tolist()


SCENARIOS = [
    structure,
    training,
    derivatives,
    mapping,
    looping,
    branching,
    own_rules,
    changing_structure,
    variables,
    random_streams,
]


def same(a, b):
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return np.allclose(a, b, rtol=1e-5, atol=1e-6) if isinstance(a, float) else a == b


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda f: f.__name__)
def test_the_same_program_gives_the_same(scenario):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = scenario(peer, jax)
    ours = scenario(nnx, phalanx)
    assert same(ours, theirs), (ours, theirs)
