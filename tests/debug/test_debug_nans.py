"""`debug_nans` and `debug_infs` name the operation that made a bad value, eagerly, compiled and differentiated."""

import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import nnx, random


@pytest.mark.parametrize("wrap", [lambda f: f, phalanx.jit, lambda f: phalanx.jit(f, donate_argnums=0)])
def test_nans_name_their_operation(wrap):
    with phalanx.debug_nans(True), pytest.raises(FloatingPointError, match="invalid value"):
        wrap(lambda x: jnp.sin(jnp.log(x)))(jnp.float32(-1.0))
    with phalanx.debug_nans(True), pytest.raises(FloatingPointError, match=r"invalid value \(nan\) encountered in log"):
        phalanx.jit(lambda x: jnp.sin(jnp.log(x)))(-1.0)


def test_infinities_of_python_numbers_name_their_operation():
    with phalanx.debug_infs(True), pytest.raises(FloatingPointError, match="encountered in div"):
        phalanx.jit(lambda x: 1 / x)(0.0)
    assert float(phalanx.jit(lambda x: 1 / x)(0.0)) == float("inf")


@pytest.mark.parametrize("option", [phalanx.debug_nans, phalanx.debug_infs])
def test_random_keys_hold_no_nans(option):
    with option(True):
        keys = phalanx.jit(random.split)(random.fold_in(random.key(0), 1))
        assert keys[0].shape == () and nnx.Linear(2, 3, rngs=nnx.Rngs(0)).kernel.shape == (2, 3)


def test_nans_of_derivatives_are_found():
    with phalanx.debug_nans(True), pytest.raises(FloatingPointError, match="encountered in"):
        phalanx.jit(phalanx.grad(lambda x: jnp.sqrt(x) * 0))(0.0)
