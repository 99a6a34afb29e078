"""Every ufunc has the properties and methods of NumPy's."""

import unittest.mock

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx.core import ArgumentError

UFUNCS = [name for name in dir(jnp) if isinstance(getattr(jnp, name), jnp.ufunc)]
BINARY = [name for name in UFUNCS if getattr(jnp, name).nin == 2]


def test_identities_and_numbers_of_operands_are_those_of_numpy():
    for name in UFUNCS:
        ours, wanted = getattr(jnp, name), getattr(np, name, None)
        if wanted is None:
            continue
        assert (ours.identity, ours.nin, ours.nout) == (wanted.identity, wanted.nin, wanted.nout), name
        assert ours.nargs == ours.nin


@pytest.mark.parametrize("name", ["maximum", "bitwise_xor", "copysign", "hypot", "fmax"])
def test_reduceat_works_without_rank_promotion(name):
    x = np.array([[1, 2, 3, 4], [4, 3, 2, 1]], np.int32 if name == "bitwise_xor" else np.float32)
    indices = np.array([0, 2, 1])
    with phalanx.numpy_rank_promotion("raise"):
        got = getattr(jnp, name).reduceat(x, indices, axis=1)
        outer = getattr(jnp, name).outer(x, x[0])
    np.testing.assert_allclose(got, getattr(np, name).reduceat(x, indices, axis=1), rtol=1e-6)
    np.testing.assert_allclose(outer, getattr(np, name).outer(x, x[0]), rtol=1e-6)


def test_reduce_takes_its_arguments_by_position_as_numpy_does():
    x = np.arange(6, dtype=np.int32).reshape(2, 3)
    for args in ((1,), (0, np.int32), (None, np.int32, None, True)):
        got, wanted = jnp.add.reduce(x, *args), np.add.reduce(x, *args)
        np.testing.assert_array_equal(got, wanted)
        assert got.shape == wanted.shape


def test_unary_ufuncs_have_at_and_refuse_reductions():
    np.testing.assert_array_equal(jnp.negative.at(jnp.arange(3), jnp.array([0, 2]), inplace=False), [0, 1, -2])
    with pytest.raises(
        ArgumentError, match="negative.reduce: expected a ufunc of two operands and one result, got 1 and"
    ):
        jnp.negative.reduce(jnp.arange(3))


def test_only_functions_are_ufuncs():
    assert isinstance(jnp.add, jnp.ufunc) and isinstance(jnp.frompyfunc(lambda x: x, 1, 1), jnp.ufunc)
    for other in (jnp.sum, jnp.fft, np.add, unittest.mock.MagicMock()):
        assert not isinstance(other, jnp.ufunc)


def test_ufuncs_of_one_function_are_equal_and_read_only():
    first, second = (jnp.frompyfunc(max, 2, 1, identity=0) for _ in range(2))
    assert first == second and hash(first) == hash(second) and first != jnp.frompyfunc(max, 2, 1)
    assert repr(first) == "<ufunc 'max'>"
    for name in ("nin", "nout", "nargs", "identity", "reduce"):
        with pytest.raises(AttributeError, match=f"ufunc.{name} is read-only; make another ufunc with frompyfunc"):
            setattr(first, name, None)
