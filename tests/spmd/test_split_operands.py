"""Operations over split operands give what they give on one device, where XLA's partitioner alone does not."""

import numpy as np
import pytest
from tests.meshes import auto_mesh

import phalanx
import phalanx.numpy as jnp
from phalanx import lax, random
from phalanx.sharding import NamedSharding, P


def check(fun, sizes, specs, *args):
    """Compare a function over a mesh, its arguments placed by specs, with the function on one device."""
    mesh = auto_mesh(sizes, "xyz"[: len(sizes)])
    want = fun(*args)
    ins = tuple([NamedSharding(mesh, P(*spec)) for spec in specs])
    got = phalanx.jit(fun, in_shardings=ins)(*args)
    assert len(got.devices()) == mesh.size
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("start", [-6, -1, 3, 9])
def test_updates_of_split_dimensions_are_moved_into_bounds(start):
    def update(x, u, i):
        return lax.dynamic_update_slice(x, u, (i, np.int32(0)), allow_negative_indices=False)

    check(update, (2,), [("x",), (), ()], numbers(4, 3), numbers(1, 3), np.int32(start))
    x = numbers(4, 3)
    check(lambda x, w, i: phalanx.vjp(lambda x: x[i], x)[1](w)[0], (2,), [("x",), (), ()], x, x[0], np.int32(start))


@pytest.mark.parametrize("name", ["add", "subtract", "max", "min", "multiply"])
def test_batched_updates_keep_the_operand_on_every_device(name):
    places = np.random.default_rng(1).integers(0, 4, (4, 8)).astype(np.int32)

    def update(x, i, u):
        return getattr(jnp.asarray(x).at[jnp.arange(4)[:, None], i], name)(u)

    check(update, (4, 2), [("x", "y"), ("y", "x"), ("y", "x")], numbers(4, 4), places, numbers(4, 8))


def test_features_with_several_results_each_are_split_finer_than_there_are_features():
    def convolve(x, w):
        return lax.conv_general_dilated(
            x, w, (1,), "VALID", dimension_numbers=("NHC", "HIO", "NHC"), feature_group_count=4
        )

    check(convolve, (4, 2), [(None, None, "x"), (None, None, ("x", "y"))], numbers(2, 4, 4), numbers(2, 1, 8))


def test_words_of_keys_may_be_split():
    def draw(words):
        return random.uniform(random.wrap_key_data(words), (8, 4))

    check(draw, (2, 2), [("x",)], np.asarray(random.key_data(random.key(3))))
