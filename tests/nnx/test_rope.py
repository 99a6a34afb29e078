"""Rotary position embeddings, with given and default positions, and in attention layers."""

from functools import partial

import numpy as np
import pytest

import phalanx.numpy as jnp
from phalanx import nnx
from phalanx.core.error_classes import ArgumentError, ShapeError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3, 5, 6)).astype("f")
ROWS = RNG.normal(size=(2, 5, 8)).astype("f")


def turned(x, positions, theta=10_000.0):
    """The formula, with complex numbers."""
    half = x.shape[-1] // 2
    z = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * positions[..., None] * theta ** (-np.arange(half) / half))
    return np.concatenate([z.real, z.imag], -1)


@pytest.mark.parametrize("table", [(), (6, 7)])
@pytest.mark.parametrize("shape", [None, (5,), (2, 1, 5), (2, 3, 5)])
def test_rope_rotates_pairs_of_features_by_their_positions(table, shape):
    positions = None if shape is None else RNG.integers(-3, 50, shape)
    expected = turned(X, np.arange(5) if positions is None else positions, 100.0)
    np.testing.assert_allclose(nnx.RoPE(100.0, *table)(X, positions), expected, rtol=1e-5, atol=1e-5)


def test_products_depend_on_distances_only():
    rope, (query, key) = nnx.RoPE(), X[:2]
    near, far = (np.einsum("hqd,hkd->hqk", rope(query, p), rope(key, p)) for p in (np.arange(5), np.arange(5) + 100))
    np.testing.assert_allclose(near, far, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:'.value' access")  # of Flax itself
@pytest.mark.parametrize("table", [(), (6, 7)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_rotation_is_that_of_flax(table, dtype):
    flax, jax_numpy = pytest.importorskip("flax.nnx"), pytest.importorskip("jax.numpy")
    if not hasattr(flax, "RoPE"):
        pytest.skip("this Flax has no RoPE")
    theirs, ours = flax.RoPE(50.0, *table), nnx.RoPE(50.0, *table)
    for positions in ((), (np.arange(5) + 3,)):
        expected, got = theirs(jax_numpy.asarray(X, dtype), *positions), ours(jnp.asarray(X, dtype), *positions)
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, np.asarray(expected), rtol=1e-5, atol=1e-5)
    heads = X.swapaxes(1, 2)
    expected = flax.dot_product_attention_with_rope(heads, heads, heads, rope=theirs, is_causal=True)
    got = nnx.dot_product_attention_with_rope(heads, heads, heads, rope=ours, is_causal=True)
    np.testing.assert_allclose(got, np.asarray(expected), rtol=1e-5, atol=1e-5)
    assert [p for p, _ in nnx.to_flat_state(nnx.state(ours))] == [p for p, _ in flax.to_flat_state(flax.state(theirs))]


def test_attention_with_rope_rotates_queries_and_keys():
    query, key = X.swapaxes(1, 2), X[:, :, :4].swapaxes(1, 2)
    turn = lambda x, at: turned(x.swapaxes(1, 2), at).swapaxes(1, 2).astype("f")
    at = np.array([[4, 2, 0, 1, 3], [0, 1, 2, 3, 9]])
    attend = partial(nnx.dot_product_attention_with_rope, rope=nnx.RoPE())
    both = nnx.dot_product_attention(turn(query, at[:, None]), turn(query, at[:, None]), query)
    np.testing.assert_allclose(attend(query, query, query, input_positions=at), both, rtol=1e-4, atol=1e-5)
    fewer = nnx.dot_product_attention(turn(query, at[:, None]), turn(key, np.arange(4)), key)
    np.testing.assert_allclose(attend(query, key, key, input_positions=at), fewer, rtol=1e-4, atol=1e-5)


def test_a_layer_decodes_with_rotary_positions_as_it_attends():
    rope = nnx.RoPE(embedding_size=4, max_seq_len=16)
    layer = nnx.MultiHeadAttention(
        2, 8, decode=False, attention_fn=partial(nnx.dot_product_attention_with_rope, rope=rope), rngs=nnx.Rngs(0)
    )
    expected = layer(ROWS, is_causal=True)
    later = layer(ROWS, is_causal=True, input_positions=np.arange(5) + 7)  # only distances count
    np.testing.assert_allclose(later, expected, rtol=1e-4, atol=1e-5)
    assert not np.allclose(layer(ROWS, is_causal=True, input_positions=np.arange(5) * 3), expected, atol=1e-3)
    step = nnx.jit(lambda layer, x, at: layer(x, decode=True, input_positions=at))
    for given in (False, True):
        layer.init_cache((2, 5, 8))
        rows = [step(layer, ROWS[:, i : i + 1], jnp.full((2, 1), i) if given else None) for i in range(5)]
        np.testing.assert_allclose(np.concatenate(rows, 1), expected, rtol=1e-4, atol=1e-5)


TABLE = nnx.RoPE(embedding_size=6, max_seq_len=4)


@pytest.mark.parametrize(
    "call, error, text",
    [
        (
            lambda: nnx.RoPE(embedding_size=6),
            ArgumentError,
            "nnx.RoPE, arguments embedding_size and max_seq_len: expected both, for a table, or neither, got 6 "
            "and None.\n  Fix: give the other, too",
        ),
        (
            lambda: nnx.RoPE()(X[..., :5]),
            ArgumentError,
            "nnx.RoPE, number of features: expected an even number of them, to turn in pairs, got 5.\n"
            "  Fix: add one, or turn a part of the features",
        ),
        (
            lambda: nnx.RoPE()(X[0, 0, 0]),
            ShapeError,
            "nnx.RoPE, argument x: expected at least 2 dimensions, length and features, got shape (6,).\n"
            "  Fix: add a dimension for the position",
        ),
        (
            lambda: TABLE(X),
            ShapeError,
            "nnx.RoPE, argument x: expected at most 4 positions of 6 features, as in the table, got shape "
            "(2, 3, 5, 6).\n  Fix: make a larger table, or none: nnx.RoPE(theta)",
        ),
        (
            lambda: nnx.RoPE()(X, np.arange(4)),
            ShapeError,
            "nnx.RoPE, argument input_positions: expected a shape that broadcasts to (2, 3, 5), got (4,).\n"
            "  Fix: give one position for each row of x",
        ),
        (
            lambda: nnx.MultiHeadAttention(2, 8, rngs=nnx.Rngs(0))(ROWS, input_positions=np.arange(5)),
            ArgumentError,
            "nnx.MultiHeadAttention, argument input_positions: expected None, since attention_fn takes none, got shape "
            "(5,).\n  Fix: make it with attention_fn=partial(nnx.dot_product_attention_with_rope, rope=nnx.RoPE())",
        ),
    ],
)
def test_rope_raises_errors_for_unsuitable_shapes(call, error, text):
    with pytest.raises(error) as raised:
        call()
    assert str(raised.value) == text + "."
