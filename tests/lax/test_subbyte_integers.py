"""Integers of two and four bits: what XLA's kernels cannot do with them, or do wrongly, is done with bytes."""

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import lax

RANGES = {"int2": (-2, 2), "uint2": (0, 4), "int4": (-8, 8), "uint4": (0, 16)}


def ints(x):
    return np.asarray(x).astype(int)


@pytest.fixture(params=RANGES)
def pair(request):
    low, high = RANGES[request.param]
    x = np.random.default_rng(0).integers(low, high, (5, 7))
    wrapped = lambda values: (values - low) % (high - low) + low
    return x, jnp.array(x, request.param), wrapped


@pytest.mark.one_is_quick(group=lambda wrap, pair: pair)
@pytest.mark.parametrize("wrap", [lambda f: f, phalanx.jit], ids=["eager", "jit"])
def test_subbyte_integers_are_concatenated_sorted_and_multiplied(pair, wrap):
    x, y, wrapped = pair
    for dim in (0, 1):
        z = lax.concatenate([y, lax.slice_in_dim(y, 0, 1, axis=dim)], dim)
        assert z.dtype == y.dtype
        np.testing.assert_array_equal(ints(z), np.concatenate([x, x.take([0], dim)], dim))
        np.testing.assert_array_equal(ints(wrap(lambda y, d=dim: jnp.sort(y, axis=d))(y)), np.sort(x, dim))
        order = wrap(lambda y, d=dim: jnp.argsort(y, axis=d))(y)
        np.testing.assert_array_equal(order, np.argsort(x, dim, kind="stable"))
        np.testing.assert_array_equal(wrap(lambda y, d=dim: jnp.argmax(y, axis=d))(y), np.argmax(x, dim))
        np.testing.assert_array_equal(wrap(lambda y, d=dim: jnp.argmin(y, axis=d))(y), np.argmin(x, dim))
    np.testing.assert_array_equal(ints(wrap(lambda y: jnp.stack([y, y], 1))(y)), np.stack([x, x], 1))
    top, places = wrap(lambda y: lax.top_k(y, 3))(y)
    assert top.dtype == y.dtype
    np.testing.assert_array_equal(ints(top), -np.sort(-x, 1)[:, :3])
    np.testing.assert_array_equal(x[np.arange(5)[:, None], places], ints(top))
    np.testing.assert_array_equal(wrap(lambda y: lax.dot(y, y.T, preferred_element_type=np.int32))(y), x @ x.T)
    product = wrap(lambda y: lax.dot(y, y.T))(y)
    assert product.dtype == y.dtype
    np.testing.assert_array_equal(ints(product), wrapped(x @ x.T))
    sums = sum(x[i : i + 4, j : j + 6] for i in (0, 1) for j in (0, 1))
    ones = jnp.ones((1, 1, 2, 2), y.dtype)
    for preferred, want in ((None, wrapped(sums)), (np.int32, sums)):
        conv = lambda y, p=preferred: lax.conv(y[None, None], ones, (1, 1), "VALID", preferred_element_type=p)
        np.testing.assert_array_equal(ints(wrap(conv)(y))[0, 0], want)


@pytest.mark.parametrize("wrap", [lambda f: f, phalanx.jit], ids=["eager", "jit"])
def test_callbacks_receive_subbyte_integers(pair, wrap):
    x, y, _ = pair
    same = phalanx.ShapeDtypeStruct(y.shape, y.dtype)
    seen = []

    def function(z):
        seen.append(np.asarray(z).dtype)
        return z

    np.testing.assert_array_equal(ints(wrap(lambda y: phalanx.pure_callback(function, same, y))(y)), x)
    assert seen == [y.dtype]
