"""The option `threefry_partitionable`: whether a random value depends on the shape, beside the key and the position."""

import numpy as np
import pytest

import phalanx
from phalanx import export, random
from phalanx.core.config import threefry_partitionable

KEY = random.key(3)
DRAWS = {
    **{
        f"bits{shape} {dtype}": lambda random, key, shape=shape, dtype=dtype: random.bits(key, shape, dtype)
        for dtype in ("uint8", "uint16", "uint32")
        for shape in ((), (5,), (4, 3), (0,))
    },
    "split": lambda random, key: random.key_data(random.split(key, 3)),
    "split to two dimensions": lambda random, key: random.key_data(random.split(key, (2, 3))),
    "split of an rbg key": lambda random, key: random.key_data(random.split(random.key(3, impl="rbg"), 3)),
    "fold_in": lambda random, key: random.key_data(random.fold_in(key, 7)),
    "normal": lambda random, key: random.normal(key, (7,)),
    "permutation": lambda random, key: random.permutation(key, 10),
}


@pytest.mark.parametrize("draw", DRAWS)
def test_the_paired_numbering_equals_jax(draw):
    jax = pytest.importorskip("jax")
    with threefry_partitionable(False), jax.threefry_partitionable(False):
        ours, theirs = DRAWS[draw](random, KEY), DRAWS[draw](jax.random, jax.random.key(3))
    np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


def test_bits_of_64_equal_jax():
    jax = pytest.importorskip("jax")
    with (
        threefry_partitionable(False),
        jax.threefry_partitionable(False),
        phalanx.enable_x64(True),
        jax.enable_x64(True),
    ):
        ours, theirs = random.bits(KEY, (5,), "uint64"), jax.random.bits(jax.random.key(3), (5,), "uint64")
    np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


def test_values_depend_on_the_option_eagerly_and_compiled():
    draw = lambda: random.uniform(KEY, (6,))
    compiled = phalanx.jit(draw)
    before = draw()
    np.testing.assert_array_equal(before, compiled())
    with threefry_partitionable(False):
        paired = draw()
        np.testing.assert_array_equal(paired, compiled())
    assert not np.array_equal(before, paired)
    np.testing.assert_array_equal(before, compiled())


def test_a_block_inside_a_compiled_function_sets_the_option():
    def draw(option):
        with threefry_partitionable(option):
            return random.split(KEY, 3), random.uniform(KEY, (6,)), random.poisson(KEY, 3.0, (6,))

    for option in (True, False):
        outside = phalanx.tree.leaves(draw(option))
        with threefry_partitionable(not option):
            for x, y in zip(outside, phalanx.tree.leaves(phalanx.jit(draw, static_argnums=0)(option)), strict=True):
                assert (x == y).all()


def test_rejection_samplers_draw_the_same_compiled_and_mapped():
    with threefry_partitionable(False):
        keys = random.split(KEY, 2)
        alone = [random.gamma(key, 2.0, (5,)) for key in keys]
        np.testing.assert_allclose(
            phalanx.jit(phalanx.vmap(lambda key: random.gamma(key, 2.0, (5,))))(keys), alone, rtol=1e-6
        )


def test_the_paired_numbering_is_the_same_for_symbolic_sizes():
    draws = (
        lambda x: random.bits(KEY, x.shape, "uint8"),
        lambda x: random.normal(KEY, (2, *x.shape)),
        lambda x: random.key_data(random.split(KEY, x.shape[0])),
    )
    with threefry_partitionable(False):
        for draw in draws:
            struct = phalanx.ShapeDtypeStruct(export.symbolic_shape("n"), "float32")
            exported = export.export(phalanx.jit(draw))(struct)
            for n in (3, 4):
                x = np.zeros(n, np.float32)
                np.testing.assert_array_equal(exported.call(x), draw(x))


def test_the_paired_numbering_has_a_largest_size():
    with threefry_partitionable(False), pytest.raises(phalanx.errors.ArgumentError) as error:
        phalanx.jit(lambda: random.bits(KEY, (2**32,), "uint32")).lower()
    assert str(error.value) == (
        "random bits without threefry_partitionable: expected fewer than 2**32 words, got "
        "4294967296 words.\n"
        "  Fix: leave the option threefry_partitionable on, which numbers each element by its position."
    )
