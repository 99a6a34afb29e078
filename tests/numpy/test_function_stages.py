"""Array functions have the stages of compiled functions."""

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import export, nn

X = phalanx.ShapeDtypeStruct((4, 2), "float32")
NAMES = {"cos": (X,), "add": (X, 1.0), "nanmax": (X,), "where": (X, X, X), "power": (X, 2), "concatenate": ([X, X],)}


@pytest.mark.parametrize("name", NAMES)
def test_public_functions_are_traced_lowered_and_compiled(name):
    function, args = getattr(jnp, name), NAMES[name]
    assert function.eval_shape(*args) == phalanx.eval_shape(function, *args)
    assert f"@jit_{name}" in function.lower(*args).as_text()
    assert function.trace(*args).jaxpr.eqns


def test_options_are_static():
    assert jnp.sum.eval_shape(X, axis=0).shape == (2,)
    assert jnp.reshape.eval_shape(X, (8,)).shape == (8,)
    assert jnp.linalg.svd.eval_shape(X, full_matrices=False)[0].shape == (4, 2)
    assert jnp.fft.fft.eval_shape(X, axis=0).shape == nn.softmax.eval_shape(X, axis=0).shape == (4, 2)


def test_array_functions_are_exported_and_compiled_as_they_are():
    assert export.export(jnp.cos)(X).call(np.zeros((4, 2), "float32")).tolist() == [[1, 1]] * 4
    np.testing.assert_allclose(jnp.cos.lower(X).compile()(np.zeros((4, 2), "float32")), 1)


def test_transformed_functions_do_not_have_the_stages_of_the_original():
    for function in (phalanx.jit(jnp.cos), jnp.cos):
        assert not hasattr(phalanx.vmap(function), "lower") and not hasattr(phalanx.grad(function), "_jit")
    assert phalanx.jit(jnp.cos).lower is not jnp.cos.lower
