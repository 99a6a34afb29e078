"""A `shard_map` that is called at once: Python looks at what all devices share."""

import numpy as np
import pytest
from phalanx.experimental import io_callback

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.core.error_classes import TracerBoolConversionError
from phalanx.sharding import AxisType, P, make_mesh

X = np.arange(8, dtype=np.float32)


def over(f, **options):
    mesh = make_mesh((4, 2), ("x", "y"), AxisType.Auto)
    return phalanx.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"), **options)


def double_if_positive(x):
    total = lax.psum(x.sum(), "x")
    return 2 * x if total > 0 else x - float(total)


def test_an_eager_shard_map_branches_on_values_at_each_call():
    f = over(double_if_positive)
    for x, want in ((X, 2 * X), (-X, 28 - X), (X, 2 * X)):
        np.testing.assert_allclose(f(x), want)
    np.testing.assert_allclose(phalanx.jvp(f, (X,), (X,))[1], 2 * X)
    np.testing.assert_allclose(phalanx.grad(lambda x: (f(x) ** 2).sum())(X), 8 * X)
    partly = over(double_if_positive, axis_names={"x"})
    np.testing.assert_allclose(partly(X), 2 * X)


def test_an_eager_shard_map_branches_on_values_under_grad():
    def loss(x):
        total = lax.psum((x**2).sum(), "x")
        return 2 * total if total > 1 else total

    np.testing.assert_allclose(over(phalanx.grad(loss))(X), 4 * X)


def test_an_eager_shard_map_concretizes_values_for_python_loops():
    def f(x):
        while lax.pmax(x.max(), "x") < 100:
            x = 2 * x
        for _ in range(lax.pmax(np.int32(3), "x")):
            x = x + 1
        return x + len(lax.psum(x, "x").tolist())

    np.testing.assert_allclose(over(f)(X), 16 * X + 5)


def test_an_eager_shard_map_runs_effects_once():
    seen = []

    def f(x):
        phalanx.debug.callback(lambda v: seen.append(v.shape), x)
        return double_if_positive(x)

    np.testing.assert_allclose(over(f)(X), 2 * X)
    phalanx.effects_barrier()
    assert seen == [(2,)] * 8


def test_concretizing_varying_staged_or_effectful_values_is_an_error():
    def asked(x):
        told = io_callback(lambda v: v, phalanx.ShapeDtypeStruct((2,), "float32"), x)
        return double_if_positive(told)

    def stepwise(x):
        return lax.scan(lambda c, _: (double_if_positive(c), None), x, None, length=2)[0]

    own = over(lambda x: 2 * x if x.sum() > 0 else x)
    unchecked = over(double_if_positive, check_vma=False)
    mapped = lambda x: phalanx.vmap(over(double_if_positive))(x[None])
    for f in (own, unchecked, over(asked), over(stepwise), phalanx.jit(over(double_if_positive)), mapped):
        with pytest.raises(TracerBoolConversionError):
            f(X)


def test_an_eager_call_sees_values_that_changed_since_the_last_one():
    class Scale:
        factor = 2.0

    factors, scale = [3.0], Scale()
    mesh = phalanx.make_mesh((8,), ("i",), axis_types=(AxisType.Auto,))
    f = phalanx.shard_map(lambda x: x * factors[0] * scale.factor, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    x = jnp.arange(8.0)
    np.testing.assert_array_equal(f(x), 6 * x)
    factors[0] = 5.0
    np.testing.assert_array_equal(f(x), 10 * x)
    scale.factor = 1.0
    np.testing.assert_array_equal(f(x), 5 * x)
