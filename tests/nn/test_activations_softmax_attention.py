"""Activations, the softmax family and attention: values and derivatives beside the peer's, limits, and errors."""

import numpy as np
import pytest

import phalanx
from phalanx import nn
from phalanx.core.error_classes import ArgumentError, AxisError, ShapeError

peer = pytest.importorskip("jax")

EDGES = np.array([-200.0, -7.0, -3.0, -1.0, -0.3, 0.0, 0.2, 1.0, 2.5, 3.0, 6.0, 9.0, 200.0], np.float32)
SMOOTH = np.array([-50.0, -6.5, -2.7, -0.6, -0.3, 0.2, 0.7, 1.4, 2.5, 4.0, 8.5, 50.0], np.float32)

ELEMENTWISE = [
    "relu", "relu6", "sigmoid", "softplus", "sparse_plus", "sparse_sigmoid", "soft_sign", "silu", "mish",
    "log_sigmoid", "elu", "celu", "selu", "gelu", "leaky_relu", "hard_tanh", "hard_sigmoid", "hard_silu",
    "squareplus", "tanh", "identity",
]  # fmt: skip


def close(got, want, tol=2e-6):
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=tol, atol=tol)


def both(name):
    return getattr(nn, name), getattr(peer.nn, name)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_values_and_derivatives_equal_jax(name):
    ours, theirs = both(name)
    close(ours(EDGES), theirs(EDGES))
    close(phalanx.jit(ours)(EDGES), theirs(EDGES))
    slope, wanted = (m.jit(m.vmap(m.grad(f)))(EDGES) for m, f in ((phalanx, ours), (peer, theirs)))
    close(slope, wanted)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_second_derivatives_equal_jax(name):
    ours, theirs = both(name)
    bend, wanted = (m.jit(m.vmap(m.grad(m.grad(f))))(SMOOTH) for m, f in ((phalanx, ours), (peer, theirs)))
    close(bend, wanted, 5e-5)  # in its left tail gelu is a difference of near equals


@pytest.mark.parametrize("name", ELEMENTWISE)
@pytest.mark.parametrize("x", [2, 0.5, np.int32(3), np.float16(0.5)])
def test_dtypes_of_scalars_equal_jax(name, x):
    ours, theirs = both(name)
    if name in ("sigmoid", "silu") and np.issubdtype(type(x), np.integer):
        x = float(x)  # the peer refuses integers here
    close(ours(x), theirs(x), 2e-3)


def test_some_functions_have_two_names():
    assert nn.swish is nn.silu
    assert nn.hard_swish is nn.hard_silu


@pytest.mark.parametrize("name", ["relu", "relu6", "softplus", "silu", "gelu", "elu", "sigmoid"])
def test_nan_stays_nan(name):
    assert np.isnan(getattr(nn, name)(np.float32(np.nan)))


@pytest.mark.parametrize("name, kw", [
    ("gelu", {"approximate": False}), ("elu", {"alpha": 0.5}), ("celu", {"alpha": 0.5}), ("squareplus", {"b": 2.0}),
    ("leaky_relu", {"negative_slope": 0.3}), ("leaky_relu", {"negative_slope": np.linspace(0, 1, 13, dtype=np.float32)}),
    ("elu", {"alpha": np.linspace(0, 1, 13, dtype=np.float32)}),
])  # fmt: skip
def test_parameters_act_as_in_jax(name, kw):
    ours, theirs = both(name)
    close(ours(EDGES, **kw), theirs(EDGES, **kw))
    slopes = (
        m.jit(m.grad(lambda x, m=m, f=f: m.numpy.sum(f(x, **kw))))(EDGES) for m, f in ((phalanx, ours), (peer, theirs))
    )
    close(*slopes)


def test_log1mexp_near_and_far():
    x = np.array([1e-6, 0.1, 0.6931, 0.7, 5.0, 50.0], np.float32)
    close(nn.log1mexp(x), peer.nn.log1mexp(x))
    close(phalanx.vmap(phalanx.grad(nn.log1mexp))(x), peer.vmap(peer.grad(peer.nn.log1mexp))(x), 1e-5)


X = np.random.default_rng(0).standard_normal((3, 4, 6)).astype(np.float32) * 3
MASK = np.random.default_rng(1).random((3, 4, 6)) < 0.7
MASK[:2, :, :] = True
MASK[2, 0] = False


def test_glu_halves_an_axis():
    for axis in (-1, 1):
        close(nn.glu(X, axis), peer.nn.glu(X, axis))
    with pytest.raises(ShapeError) as caught:
        nn.glu(X, 0)
    assert str(caught.value) == (
        "nn.glu operand: expected an even size along axis 0, got f32[3,4,6].\n"
        "  Fix: pad or slice the operand along axis 0, or pass another axis."
    )


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "logmeanexp", "standardize"])
@pytest.mark.parametrize("axis", [-1, 0, (0, 2), None])
@pytest.mark.parametrize("where", [None, MASK, MASK[2]])
def test_reductions_equal_jax(name, axis, where):
    ours, theirs = both(name)
    close(ours(X, axis=axis, where=where), theirs(X, axis=axis, where=where), 1e-5)
    w = np.arange(6, dtype=np.float32)

    def loss(m, f):
        def call(x):
            y = f(x, axis=axis, where=where)
            y = m.numpy.where(m.numpy.isfinite(y), y, 0)
            return m.numpy.sum(y * y) + m.numpy.sum(y * (w if y.shape[-1:] == (6,) else 1))

        return call

    close(*(m.jit(m.grad(loss(m, f)))(X) for m, f in ((phalanx, ours), (peer, theirs))), 5e-4)


def test_second_derivative_of_softmax():
    ours, theirs = (m.hessian(lambda x, m=m: m.nn.softmax(x)[0])(X[0, 0]) for m in (phalanx, peer))
    close(ours, theirs)


@pytest.mark.parametrize("kw", [
    {"keepdims": True}, {"b": X[:, :1] + 5}, {"b": -X, "return_sign": True}, {"axis": 1, "b": 2.0},
    {"axis": 1, "return_sign": True, "keepdims": True}, {"b": -X},
])  # fmt: skip
def test_logsumexp_with_factors(kw):
    ours, theirs = nn.logsumexp(X, **kw), peer.nn.logsumexp(X, **kw)
    for a, b in zip(*((v if isinstance(v, tuple) else (v,)) for v in (ours, theirs)), strict=True):
        close(a, b, 1e-5)


def test_logsumexp_of_infinities():
    for x in ([-np.inf, -np.inf], [np.inf, 1.0], [-np.inf, 1.0]):
        x = np.array(x, np.float32)
        close(nn.logsumexp(x), peer.nn.logsumexp(x))
    g = phalanx.grad(nn.logsumexp)(np.array([-np.inf, 1.0], np.float32))
    assert g.tolist() == [0.0, 1.0]


def test_logsumexp_of_complex_numbers():
    z = (X + 1j * X[::-1]).astype(np.complex64)
    close(nn.logsumexp(z, axis=1), peer.nn.logsumexp(z, axis=1), 1e-5)


@pytest.mark.parametrize("kw", [
    {"algorithm": "stable"}, {"mean": np.float32(0.5)}, {"mean": 0.0, "variance": 2.0}, {"epsilon": 0.1}, {"axis": (1, 2)},
])  # fmt: skip
def test_standardize_with_known_moments(kw):
    close(nn.standardize(X, **kw), peer.nn.standardize(X, **kw), 1e-5)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot(axis):
    i = np.array([[0, 2, 5], [-1, 1, 3]])
    close(nn.one_hot(i, 4, axis=axis), peer.nn.one_hot(i, 4, axis=axis))
    close(nn.one_hot(i, 4, axis=axis, dtype="int8"), peer.nn.one_hot(i, 4, axis=axis, dtype="int8"))


def test_errors_have_a_fix():
    with pytest.raises(AxisError) as caught:
        nn.softmax(X, 3)
    assert str(caught.value) == (
        "nn.softmax axis: expected an axis in [-3, 3), got 3.\n  Fix: pass an axis from -3 to 2."
    )
    with pytest.raises(ArgumentError) as wrong:
        nn.standardize(X, algorithm="slow")
    assert str(wrong.value) == (
        "nn.standardize algorithm: expected 'fast' or 'stable', got 'slow'.\n"
        "  Fix: pass algorithm='fast', or 'stable' for data far from 0."
    )


def random(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


Q, K, V = random(0, 2, 5, 4, 8), random(1, 2, 7, 2, 8), random(2, 2, 7, 2, 8)
LENGTHS = np.array([5, 3], np.int32), np.array([4, 7], np.int32)
ATTENTION = [
    {}, {"is_causal": True}, {"scale": 0.3}, {"bias": random(3, 2, 4, 5, 7)}, {"bias": random(3, 1, 4, 1, 7)},
    {"mask": random(4, 2, 1, 5, 7) > 0}, {"local_window_size": 2}, {"local_window_size": (1, 0)},
    {"query_seq_lengths": LENGTHS[0], "key_value_seq_lengths": LENGTHS[1]}, {"is_causal": True, "local_window_size": (2, 2)},
]  # fmt: skip


@pytest.mark.parametrize("kw", ATTENTION, ids=lambda kw: ",".join(kw))
def test_attention_equals_jax(kw):
    close(nn.dot_product_attention(Q, K, V, **kw), peer.nn.dot_product_attention(Q, K, V, **kw), 1e-5)

    def gradients(m):
        def loss(q, k, v):
            return m.numpy.sum(m.numpy.sin(m.nn.dot_product_attention(q, k, v, **kw)))

        return m.jit(m.grad(loss, (0, 1, 2)))

    for ours, theirs in zip(gradients(phalanx)(Q, K, V), gradients(peer)(Q, K, V), strict=True):
        close(ours, theirs, 1e-4)


def test_attention_without_batch_and_with_residual():
    q, k, v = Q[0], K[0], V[0]
    ours, theirs = (m.nn.dot_product_attention(q, k, v, return_residual=True) for m in (phalanx, peer))
    for a, b in zip(ours, theirs, strict=True):
        close(a, b, 1e-5)


def test_mismatched_attention_operands_raise():
    with pytest.raises(ShapeError) as caught:
        nn.dot_product_attention(Q, K[:, :, :, :4], V)
    assert str(caught.value) == (
        "nn.dot_product_attention operands: expected query [batch, queries, heads, depth], key and value [batch, keys, key "
        "heads, depth], all without or all with batch, of one dtype, the heads a multiple of the key heads, got "
        "f32[2,5,4,8], f32[2,7,2,4], f32[2,7,2,8].\n  Fix: transpose the operands to [batch, positions, heads, depth]."
    )


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "logmeanexp", "standardize"])
def test_half_precision_sums_lose_no_elements(name):
    x = np.tile(X[0, 0], 2000).astype(np.float16)
    got, want = (np.asarray(v, np.float32) for v in (getattr(nn, name)(x), getattr(nn, name)(x.astype(np.float32))))
    np.testing.assert_allclose(got, want, rtol=5e-3, atol=5e-3 * np.abs(want).max())


def test_logmeanexp_of_no_elements_and_of_numeric_masks():
    assert np.isnan(np.asarray(nn.logmeanexp(np.zeros((0, 3), np.float32), axis=0))).all()
    assert nn.logsumexp(np.zeros(2, "bfloat16"), b=2.5).dtype == "bfloat16"
    assert nn.one_hot([1, 3], 3).tolist() == [[0, 1, 0], [0, 0, 0]]
    with pytest.raises(ArgumentError, match=r"nn\.one_hot, argument num_classes: expected a number >= 0, got -1\."):
        nn.one_hot(np.array([1]), -1)


@pytest.mark.parametrize("shape", [(7,), (5, 7), (4, 5, 1)])
def test_masks_and_biases_broadcast_from_their_last_dimensions(shape):
    q, k, mask = random(0, 3, 5, 4, 6), random(1, 3, 7, 4, 6), random(2, *shape) > 0
    wanted = nn.dot_product_attention(q, k, k, mask=np.broadcast_to(mask, (3, 4, 5, 7)))
    np.testing.assert_allclose(nn.dot_product_attention(q, k, k, mask=mask), wanted, rtol=1e-5)
    one = nn.dot_product_attention(q[0], k[0], k[0], mask=mask)
    np.testing.assert_allclose(one, wanted[0], rtol=1e-5)


def test_a_numeric_attention_mask_raises():
    x = np.ones((1, 2, 1, 4), np.float32)
    with pytest.raises(TypeError, match="argument mask: expected booleans, got f32"):
        nn.dot_product_attention(x, x, x, mask=np.zeros((1, 1, 2, 2), np.float32))


@pytest.mark.parametrize("name, slopes", [("relu", [0, 0, 1, 1]), ("relu6", [0, 0, 1, 0]), ("hard_tanh", [1, 1, 0, 0])])
def test_a_clipped_nan_has_the_derivative_of_a_bound(name, slopes):
    x = np.array([np.nan, 0.0, 5.0, np.inf], np.float32)
    assert np.isnan(getattr(nn, name)(x)[0])
    assert slope_of(getattr(nn, name), x).tolist() == slopes


def slope_of(f, x):
    return phalanx.grad(lambda x: f(x).sum())(x)


@pytest.mark.parametrize("name", "relu relu6 softplus soft_sign log_sigmoid elu leaky_relu hard_tanh mish".split())
def test_activations_of_complex_numbers_agree_with_those_of_real_ones(name):
    f, x = getattr(nn, name), np.array([-2.0, -0.5, 0.25, 3.0], np.float32)
    np.testing.assert_allclose(f(x.astype(np.complex64)), f(x).astype(np.complex64), rtol=1e-5, atol=1e-6)


def test_activations_convert_booleans():
    assert nn.relu(np.array([True, False])).tolist() == nn.hard_tanh(np.array([True, False])).tolist() == [1, 0]
    assert nn.hard_tanh(np.array([0, 1, 7], np.uint8)).tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    "name", ["relu", "relu6", "selu", "elu", "celu", "soft_sign", "sparse_plus", "hard_tanh", "silu"]
)
def test_activations_of_python_numbers_are_weakly_typed(name):
    assert getattr(nn, name)(1.5).weak_type
    assert not getattr(nn, name)(np.float32(1.5)).weak_type
