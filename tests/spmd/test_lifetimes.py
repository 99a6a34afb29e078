"""A transformed function and the values that it closes over are freed with the last reference, without the collector."""

import gc
import weakref

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import lax


class Weights:
    def __init__(self):
        self.values = np.ones(3, np.float32)


def grad_of_jit(fun):
    inner = phalanx.jit(lambda x: fun(x).sum())
    return lambda x: phalanx.grad(inner)(x)


def with_vjp_rule(fun):
    f = phalanx.custom_vjp(lambda x: fun(x).sum())
    f.defvjp(lambda x: (fun(x).sum(), x), lambda x, y_bar: (y_bar * x,))
    return phalanx.jit(phalanx.grad(f))


def with_jvp_rule(fun):
    f = phalanx.custom_jvp(lambda x: fun(x).sum())
    f.defjvp(lambda primals, tangents: (fun(*primals).sum(), tangents[0].sum()))
    return phalanx.jit(phalanx.grad(f))


def scale_by(weights):
    return lambda x: x * weights.values


TRANSFORMED = {
    "jit": phalanx.jit,
    "jit with a static argument": lambda fun: phalanx.jit(lambda x, by=2: fun(x) * by, static_argnames="by"),
    "a stage of jit": lambda fun: phalanx.jit(fun).lower(jnp.ones(3)).compile(),
    "grad": lambda fun: phalanx.grad(lambda x: fun(x).sum()),
    "jit of grad": lambda fun: phalanx.jit(phalanx.grad(lambda x: fun(x).sum())),
    "grad of jit": grad_of_jit,
    "vmap": lambda fun: lambda x: phalanx.vmap(fun)(x[None]),
    "jit of vmap": lambda fun: phalanx.jit(lambda x: phalanx.vmap(fun)(x[None])),
    "jacfwd": lambda fun: phalanx.jit(phalanx.jacfwd(fun)),
    "scan": lambda fun: lambda x: lax.scan(lambda c, _: (fun(c), None), x, None, length=3)[0],
    "jit of scan": lambda fun: phalanx.jit(lambda x: lax.scan(lambda c, _: (fun(c), None), x, None, length=3)[0]),
    "cond": lambda fun: phalanx.jit(lambda x: lax.cond(x.sum() > 0, fun, lambda x: x, x)),
    "while_loop": lambda fun: phalanx.jit(lambda x: lax.while_loop(lambda x: x.sum() < 9, lambda x: fun(x) + 1, x)),
    "checkpoint": lambda fun: phalanx.jit(phalanx.grad(phalanx.checkpoint(lambda x: fun(x).sum()))),
    "custom_vjp": with_vjp_rule,
    "custom_jvp": with_jvp_rule,
    "make_jaxpr": phalanx.make_jaxpr,
    "eval_shape": lambda fun: lambda x: phalanx.eval_shape(fun, x),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_a_transformed_function_is_freed_with_its_last_reference(name):
    gc.collect()
    gc.disable()
    try:
        weights = Weights()
        held = weakref.ref(weights)
        transformed = TRANSFORMED[name](scale_by(weights))
        transformed(jnp.ones(3))
        assert held() is weights
        del weights, transformed
        assert held() is None
    finally:
        gc.enable()


def test_the_programs_of_a_function_under_ever_new_options_are_bounded():
    def f(x):
        return x + 1

    for i in range(100):
        mesh = phalanx.sharding.Mesh(phalanx.devices()[:1], (f"axis{i}",))
        phalanx.jit(f, in_shardings=phalanx.NamedSharding(mesh, phalanx.P()))
    assert len(f._phalanx_programs.known) <= 64


def test_live_arrays_leave_out_cached_scalars():
    x = jnp.ones(3) * 0.8125
    assert np.asarray(jnp.maximum(x, 0.40625)).tolist() == [0.8125] * 3
    held = jnp.asarray(np.float32(0.203125))
    scalars = [float(y) for y in phalanx.live_arrays() if y.shape == () and y.dtype == np.float32]
    assert 0.203125 in scalars and 0.8125 not in scalars and 0.40625 not in scalars
    assert held.shape == ()
