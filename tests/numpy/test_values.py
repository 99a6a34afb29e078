"""Values against NumPy; dtypes and weak types against jax.numpy where it is installed."""

import numpy as np
import pytest
from tests.numpy import cases

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


@pytest.mark.parametrize("expression", [c for c in cases.CASES if not c.startswith("~")])
def test_the_value_is_that_of_numpy(expression):
    with np.errstate(all="ignore"):
        wanted = evaluate(expression, np, lambda x: x)
    assert_same_values(evaluate(expression, jnp, jnp.asarray), wanted, expression)


@pytest.mark.skipif(jax is None, reason="needs the peer")
@pytest.mark.parametrize("expression", cases.CASES)
def test_dtype_and_weakness_are_those_of_the_peer(expression):
    wanted = evaluate(expression, jax.numpy, jax.numpy.asarray)
    got = evaluate(expression, jnp, jnp.asarray)
    if expression.startswith("~"):
        assert_same_values(got, wanted, expression)
    for a, b in zip(leaves(got), leaves(wanted), strict=True):
        assert (str(a.dtype), a.shape, getattr(a, "weak_type", False)) == (
            str(b.dtype),
            b.shape,
            getattr(b, "weak_type", False),
        )
