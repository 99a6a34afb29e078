"""Values match NumPy; dtypes and weak types match jax.numpy if it is installed."""

import re

import numpy as np
import pytest
from tests.numpy import cases

import phalanx
import phalanx.numpy as jnp

try:
    import jax
except ImportError:
    jax = None

pytestmark = pytest.mark.filterwarnings("ignore")


def evaluate(expression, xp, convert):
    env = {name: convert(value) for name, value in cases.ARRAYS.items()}
    return eval(expression.removeprefix("~"), {"xp": xp, "np": np, **env})


def leaves(x):
    return [y for v in x for y in leaves(v)] if isinstance(x, tuple | list) else [x]


_f16 = {np.dtype("float16"): 5e-3}


def assert_same_values(got, wanted, expression):
    got, wanted = leaves(got), leaves(wanted)
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted):
        a, b = np.asarray(a), np.asarray(b)
        assert a.shape == b.shape
        tolerance = max(2e-4, _f16.get(a.dtype, 0), _f16.get(b.dtype, 0))
        if b.dtype.kind in "fc" or a.dtype.kind in "fc":
            np.testing.assert_allclose(a.astype(np.complex128), b.astype(np.complex128), rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(a, b)


def called(expression):
    """The names of the functions that an expression calls; the expression itself if it is of operators only."""
    return tuple(re.findall(r"xp\.([\w.]+)", expression)) or expression


@pytest.mark.one_is_quick(group=called)
@pytest.mark.parametrize("expression", [c for c in cases.CASES if not c.startswith("~")])
def test_values_match_numpy(expression):
    with np.errstate(all="ignore"):
        wanted = evaluate(expression, np, lambda x: x)
    assert_same_values(evaluate(expression, jnp, jnp.asarray), wanted, expression)


def types(expression, system, xp):
    """The types of the results: by tracing, which is quick, unless the expression needs values."""
    names = [name for name in cases.ARRAYS if name in expression]

    def function(*arrays):
        known = dict(zip(names, arrays))
        out = evaluate(expression, xp, lambda x: next((known[n] for n in names if x is cases.ARRAYS[n]), None))
        return [xp.asarray(x) for x in leaves(out)]

    try:
        return system.eval_shape(function, *(cases.ARRAYS[name] for name in names))
    except Exception:
        return evaluate(expression, xp, xp.asarray)


@pytest.mark.skipif(jax is None, reason="needs the peer")
@pytest.mark.parametrize("expression", cases.CASES)
def test_dtypes_and_weak_types_match_jax(expression):
    if expression.startswith("~"):
        wanted, got = evaluate(expression, jax.numpy, jax.numpy.asarray), evaluate(expression, jnp, jnp.asarray)
        assert_same_values(got, wanted, expression)
    else:
        wanted, got = types(expression, jax, jax.numpy), types(expression, phalanx, jnp)
    for a, b in zip(leaves(got), leaves(wanted), strict=True):
        assert (str(a.dtype), a.shape, getattr(a, "weak_type", False)) == (
            str(b.dtype),
            b.shape,
            getattr(b, "weak_type", False),
        )


METHODS = (
    "hazen weibull median_unbiased normal_unbiased interpolated_inverted_cdf inverted_cdf averaged_inverted_cdf "
    "closest_observation"
).split()


@pytest.mark.parametrize("method", METHODS)
def test_quantile_methods_match_numpy(method):
    x = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    q = np.array([0, 0.0625, 0.25, 0.3125, 0.5, 0.625, 1], np.float32)  # exact, and so are their products with 8
    np.testing.assert_allclose(jnp.quantile(x, q, 0, method=method), np.quantile(x, q, 0, method=method), rtol=1e-5)
    holes = np.where(x > 0.8, np.nan, x)
    want = np.nanpercentile(holes, 100 * q, 0, method=method)
    np.testing.assert_allclose(jnp.nanpercentile(holes, 100 * q, 0, method=method), want, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="this NumPy's quantiles take no weights")
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_weighted_quantiles_match_numpy(axis):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(4, 5)).astype(np.float32), rng.integers(1, 4, (4, 5))
    options = dict(axis=axis, weights=w, method="inverted_cdf")
    for q in (0.0, [0.15, 0.55, 1.0]):
        np.testing.assert_array_equal(jnp.quantile(x, np.float32(q), **options), np.quantile(x, q, **options))
    if axis is not None:
        places = dict(options, weights=np.arange(1, x.shape[axis] + 1))
        np.testing.assert_array_equal(jnp.percentile(x, 45.0, **places), np.percentile(x, 45, **places))


def test_sums_and_products_of_booleans_and_jumps_of_unsigned_angles():
    x = jnp.array([[0, 2], [0, 0]])
    assert jnp.sum(x, axis=0, dtype=bool).tolist() == [False, True] and not jnp.prod(x, dtype=bool)
    assert jnp.unwrap(jnp.array([0, 200, 10], "uint8"), period=256.0).tolist() == [0.0, -56.0, 10.0]
    assert jnp.searchsorted(jnp.array([1j, 1 + 0j, 2]), jnp.array([1 - 1j, 3])).tolist() == [1, 3]
