"""A tree of arrays as one vector, and back."""

import numpy as np
import pytest
from phalanx.flatten_util import ravel_pytree

import phalanx
import phalanx.numpy as jnp
from phalanx.core.error_classes import ArgumentTypeError

TREE = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.int32(7), "rest": [2.0, jnp.ones((), jnp.bfloat16)]}


@pytest.mark.parametrize("wrap", [lambda f: f, phalanx.jit])
def test_the_tree_comes_back_with_its_shapes_and_dtypes(wrap):
    def round_trip(tree):
        flat, unravel = ravel_pytree(tree)
        return flat, unravel(flat)

    flat, again = wrap(round_trip)(TREE)
    assert flat.dtype == np.float32
    assert flat.tolist() == [7.0, 2.0, 1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    for got, want in zip(phalanx.tree.leaves(again), phalanx.tree.leaves(TREE), strict=True):
        want = jnp.asarray(want)
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_array_equal(got, want)


def test_the_vector_has_a_gradient():
    flat, unravel = ravel_pytree({"a": 2.0, "b": np.ones(2, np.float32)})
    grad = phalanx.grad(lambda v: unravel(v)["a"] ** 2 + unravel(v)["b"].sum())(flat)
    assert grad.tolist() == [4.0, 1.0, 1.0]


def test_nothing_is_an_empty_vector():
    flat, unravel = ravel_pytree({"none": None})
    assert flat.shape == (0,) and unravel(flat) == {"none": None}


def test_another_vector_is_refused():
    _, unravel = ravel_pytree((1.0, 2.0))
    with pytest.raises(ArgumentTypeError) as e:
        unravel(jnp.ones(3))
    assert str(e.value) == (
        "unravel, argument vector: expected float32[2], got f32[3].\n"
        "  Fix: pass a vector with the shape and dtype of the one that ravel_pytree returned."
    )


def test_unravel_functions_of_the_same_structure_are_one_static_argument():
    traces = []

    @phalanx.jit(static_argnums=1)
    def double(flat, unravel):
        traces.append(flat)
        return unravel(2 * flat)

    for _ in range(2):
        out = double(*ravel_pytree((jnp.ones(2), jnp.zeros(3))))
    assert len(traces) == 1 and out[0].tolist() == [2.0, 2.0]
