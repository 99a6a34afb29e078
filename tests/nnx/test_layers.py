"""Layers: values compared with NumPy, modes, caches, sharding, gradients, and error messages."""

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import nnx
from phalanx.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError
from phalanx.sharding import Mesh, set_mesh

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 5, 3)).astype("f")


def values(module):
    return {".".join(map(str, p)): np.asarray(v.value) for p, v in nnx.to_flat_state(nnx.state(module))}


def close(got, expected, tolerance=2e-5):
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


# --- values ---


def test_linear():
    layer = nnx.Linear(3, 4, bias_init=nnx.initializers.normal(), rngs=nnx.Rngs(0))
    close(layer(X), X @ values(layer)["kernel"] + values(layer)["bias"])


def test_linear_general_over_batch_dimensions():
    layer = nnx.LinearGeneral(3, (2, 4), batch_axis={0: 2}, bias_init=nnx.initializers.normal(), rngs=nnx.Rngs(0))
    v = values(layer)
    close(layer(X), np.einsum("bti,bihd->bthd", X, v["kernel"]) + v["bias"][:, None])


def test_embed_looks_up_and_attends():
    layer = nnx.Embed(7, 3, rngs=nnx.Rngs(0))
    table = values(layer)["embedding"]
    close(layer(np.array([[6, 0]])), table[[[6, 0]]])
    close(layer.attend(X), X @ table.T)


def test_a_convolution_is_a_sum_over_windows():
    layer = nnx.Conv(3, 4, (2,), strides=2, padding="VALID", rngs=nnx.Rngs(0))
    v = values(layer)
    windows = np.stack([X[:, 0:2], X[:, 2:4]], axis=1)
    close(layer(X), np.einsum("bnwi,wio->bno", windows, v["kernel"]) + v["bias"])


def test_batch_norm_in_both_modes():
    layer = nnx.BatchNorm(3, momentum=0.9, rngs=nnx.Rngs(0))
    y = layer(X)
    mean, var = X.mean((0, 1)), X.var((0, 1))
    close(y, (X - mean) / np.sqrt(var + 1e-5))
    close(layer.mean.value, 0.1 * mean)
    close(layer.var.value, 0.9 + 0.1 * var)
    layer.eval()
    before = values(layer)
    close(layer(X), (X - before["mean"]) / np.sqrt(before["var"] + 1e-5))
    assert all(np.array_equal(v, before[k]) for k, v in values(layer).items())


def test_masked_statistics():
    mask = RNG.random(X.shape) > 0.3
    layer = nnx.BatchNorm(3, momentum=0.0, rngs=nnx.Rngs(0))
    layer(X, mask=mask)
    close(layer.mean.value, (X * mask).sum((0, 1)) / mask.sum((0, 1)))


@pytest.mark.parametrize(
    ("make", "dims"),
    [
        (lambda: nnx.LayerNorm(3, rngs=nnx.Rngs(0)), (2,)),
        (lambda: nnx.InstanceNorm(3, rngs=nnx.Rngs(0)), (1,)),
        (lambda: nnx.GroupNorm(3, num_groups=1, rngs=nnx.Rngs(0)), (1, 2)),
    ],
    ids=["layer", "instance", "group"],
)
def test_normalized_features_have_mean_0_and_variance_1(make, dims):
    y = np.asarray(make()(10 + 5 * X))
    close(y.mean(dims), 0, 1e-4)
    close(y.var(dims), 1, 1e-3)


def test_batch_statistics_are_shared_by_the_members_of_a_mapped_axis():
    layer = nnx.BatchNorm(3, axis_name="devices", rngs=nnx.Rngs(0))
    graphdef, state = nnx.split(layer)

    def apply(state, x):
        layer = nnx.merge(graphdef, state)
        return layer(x), layer.mean.value

    y, mean = phalanx.vmap(apply, in_axes=(None, 0), axis_name="devices")(state, X)
    whole = nnx.BatchNorm(3, rngs=nnx.Rngs(0))
    close(y, whole(X))
    close(mean[0], whole.mean.value)


def test_dropout_preserves_the_mean_and_draws_new_masks():
    layer = nnx.Dropout(0.25, rngs=nnx.Rngs(0))
    ones = jnp.ones((100, 100))
    first, second = layer(ones), layer(ones)
    assert set(np.unique(first)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs(float(first.mean()) - 1) < 0.05 and not np.array_equal(first, second)
    np.testing.assert_array_equal(layer(ones, rngs=nnx.Rngs(3)), layer(ones, rngs=nnx.Rngs(3)))
    layer.eval()
    assert layer(ones) is ones


def test_attention_is_its_formula():
    layer = nnx.MultiHeadAttention(2, 3, qkv_features=8, rngs=nnx.Rngs(0))
    v = values(layer)
    q, k, u = (np.einsum("bti,ihd->bhtd", X, v[f"{n}.kernel"]) for n in ("query", "key", "value"))
    scores = np.where(np.tri(5, dtype=bool), q @ k.swapaxes(2, 3) / 2.0, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    expected = np.einsum("bhtd,hdo->bto", weights @ u, v["out.kernel"]) + v["out.bias"]
    close(layer(X, mask=nnx.make_causal_mask(X[..., 0])), expected)
    close(layer(X, is_causal=True), expected)
    close(layer(X, is_causal=True, sow_weights=True), expected)
    close(layer.attention_weights.value[0], weights)


@pytest.mark.parametrize("num_kv_heads", [None, 1])
def test_decoding_step_by_step_is_causal_attention(num_kv_heads):
    layer = nnx.MultiHeadAttention(2, 3, qkv_features=8, num_kv_heads=num_kv_heads, rngs=nnx.Rngs(0))
    whole = layer(X, is_causal=True)
    layer.init_cache(X.shape)
    layer.set_attributes(decode=True)
    for t in range(X.shape[1]):
        close(layer(X[:, t : t + 1])[:, 0], whole[:, t])
    assert int(layer.cache_index.value) == X.shape[1]


def lstm(v, xs, hidden):
    c = h = np.zeros((xs.shape[0], hidden))
    out = []
    for x in xs.swapaxes(0, 1):
        z = x @ v["dense_i.kernel"] + h @ v["dense_h.kernel"] + v["dense_h.bias"]
        i, f, g, o = np.split(z, 4, axis=-1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        out.append(h)
    return (c, h), np.stack(out, axis=1)


def gru(v, xs, hidden):
    h, out = np.zeros((xs.shape[0], hidden)), []
    for x in xs.swapaxes(0, 1):
        a, b = x @ v["dense_i.kernel"] + v["dense_i.bias"], h @ v["dense_h.kernel"]
        (ar, az, an), (br, bz, bn) = np.split(a, 3, -1), np.split(b, 3, -1)
        z = sigmoid(az + bz)
        h = (1 - z) * np.tanh(an + sigmoid(ar + br) * bn) + z * h
        out.append(h)
    return h, np.stack(out, axis=1)


@pytest.mark.parametrize(("kind", "formula"), [(nnx.OptimizedLSTMCell, lstm), (nnx.GRUCell, gru)])
def test_recurrent_cells_over_a_sequence(kind, formula):
    cell = kind(3, 4, bias_init=nnx.initializers.normal(), rngs=nnx.Rngs(0))
    carry, y = nnx.RNN(cell, return_carry=True)(X)
    expected_carry, expected = formula(values(cell), X, 4)
    close(y, expected)
    phalanx.tree.map(close, carry, expected_carry)


def test_the_carry_of_sequences_with_lengths_is_that_of_their_ends():
    rnn = nnx.RNN(nnx.LSTMCell(3, 4, rngs=nnx.Rngs(0)), return_carry=True)
    carry, _ = rnn(X, seq_lengths=np.array([2, 5]))
    for b, n in enumerate((2, 5)):
        alone, _ = rnn(X[b : b + 1, :n])
        phalanx.tree.map(lambda x, y, b=b: close(x[b], y[0]), carry, alone)


def test_a_cell_may_set_variables_other_than_parameters():
    class Counting(nnx.GRUCell):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.steps = nnx.BatchStat(jnp.zeros((), np.int32))

        def __call__(self, carry, x):
            self.steps.value += 1
            return super().__call__(carry, x)

    cell = Counting(3, 4, rngs=nnx.Rngs(0))
    nnx.RNN(cell)(X)
    assert int(cell.steps.value) == 5


def test_weight_norm_has_unit_columns_times_learned_scales():
    layer = nnx.WeightNorm(nnx.Linear(3, 4, rngs=nnx.Rngs(0)), rngs=nnx.Rngs(0))
    kernel = values(layer)["layer_instance.kernel"]
    layer.scales["kernel"].value = jnp.array([1.0, 2.0, 3.0, 4.0])
    scaled = kernel / np.linalg.norm(kernel, axis=0) * [1, 2, 3, 4]
    for _ in range(2):
        close(layer(X), X @ scaled)
        close(values(layer)["layer_instance.kernel"], scaled)


def test_spectral_norm_finds_the_largest_singular_value():
    layer = nnx.SpectralNorm(nnx.Linear(3, 4, rngs=nnx.Rngs(0)), n_steps=30, rngs=nnx.Rngs(0))
    kernel = values(layer)["layer_instance.kernel"]
    sigma = np.linalg.svd(kernel)[1][0]
    kept = values(layer)
    close(layer(X, update_stats=False), X @ (kernel / sigma), 1e-4)
    assert {k for k, v in values(layer).items() if not np.array_equal(v, kept[k])} == {"layer_instance.kernel"}
    close(values(layer)["layer_instance.kernel"], kernel / sigma, 1e-4)
    close(layer(X), X @ (kernel / sigma), 1e-4)
    assert abs(values(layer)["batch_stats.kernel/sigma"] - 1) < 1e-4
    idle = nnx.SpectralNorm(nnx.Linear(3, 4, rngs=nnx.Rngs(0)), n_steps=0, rngs=nnx.Rngs(0))
    close(idle(X), X @ kernel)


def test_lora_starts_as_nothing_and_adds_a_product():
    layer = nnx.LoRALinear(3, 4, lora_rank=2, rngs=nnx.Rngs(0))
    v = values(layer)
    close(layer(X), X @ v["kernel"] + v["bias"])
    layer.lora.lora_b.value = jnp.ones((2, 4))
    close(layer(X), X @ v["kernel"] + v["bias"] + X @ v["lora.lora_a"] @ np.ones((2, 4)))
    assert set(values_of_kind(layer, nnx.LoRAParam)) == {"lora.lora_a", "lora.lora_b"}


def values_of_kind(module, kind):
    return [".".join(path) for path, _ in nnx.to_flat_state(nnx.state(module, kind))]


def test_sequential_passes_tuples_dictionaries_and_rngs():
    model = nnx.Sequential(lambda x: (x, 2.0), lambda x, by: {"x": x * by}, lambda x: x + 1)
    assert float(model(3.0)) == 7.0
    dropped = nnx.Sequential(nnx.Dropout(0.5), nnx.relu)(jnp.ones(100), rngs=nnx.Rngs(0))
    assert 0 < float((dropped == 0).mean()) < 1


def test_pooling():
    x = X[..., None, :]
    close(nnx.max_pool(x, (2, 1), strides=(2, 1)), x[:, :4].reshape(2, 2, 2, 1, 3).max(2))
    close(nnx.avg_pool(x, (2, 1), strides=(2, 1)), x[:, :4].reshape(2, 2, 2, 1, 3).mean(2))
    assert nnx.max_pool(jnp.arange(6).reshape(1, 6, 1), (3,), padding="SAME").ravel().tolist() == [1, 2, 3, 4, 5, 5]


# --- how they are used ---


class Model(nnx.Module):
    def __init__(self, rngs):
        self.blocks = [nnx.Linear(3, 3, rngs=rngs) for _ in range(2)]
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        for block in self.blocks:
            x = nnx.relu(block(x))
        return self.dropout(self.norm(x))


def test_train_and_eval_reach_every_layer():
    model = Model(nnx.Rngs(0))
    model.eval()
    assert model.norm.use_running_average and model.dropout.deterministic
    np.testing.assert_array_equal(model(X), model(X))
    model.train()
    assert not model.norm.use_running_average and not model.dropout.deterministic
    view = nnx.view(model, deterministic=True, use_running_average=True)
    assert view.dropout.deterministic and not model.dropout.deterministic
    assert view.norm.mean is model.norm.mean


def test_a_computation_in_bfloat16_keeps_parameters_in_float32():
    layer = nnx.Linear(3, 4, dtype=jnp.bfloat16, rngs=nnx.Rngs(0))
    assert layer(X).dtype == jnp.bfloat16 and layer.kernel.dtype == jnp.float32


def test_layers_compute_in_floating_dtypes():
    canonicalize_dtype, promote_dtype = nnx.nn.dtypes.canonicalize_dtype, nnx.nn.dtypes.promote_dtype
    assert canonicalize_dtype(jnp.int32(1), None) == np.float32
    assert canonicalize_dtype(np.int8(1), jnp.bfloat16(1)) == jnp.bfloat16
    assert canonicalize_dtype(jnp.int32(1), dtype="int8", inexact=False) == np.int8
    with pytest.raises(DTypeError) as error:
        promote_dtype((jnp.ones(2), None), dtype=np.int32)
    assert str(error.value) == (
        "the dtype of a layer: expected a floating or complex dtype, got int32.\n"
        "  Fix: pass dtype='float32', and convert the result."
    )


def test_gradients_flow_through_every_kind_of_layer():
    rngs = nnx.Rngs(0)
    model = nnx.Sequential(
        nnx.Conv(3, 4, (3,), rngs=rngs),
        nnx.GroupNorm(4, num_groups=2, rngs=rngs),
        nnx.MultiHeadAttention(2, 4, rngs=rngs),
        nnx.WeightNorm(nnx.Linear(4, 4, rngs=rngs), rngs=rngs),
        nnx.RNN(nnx.LSTMCell(4, 4, rngs=rngs)),
        nnx.LayerNorm(4, rngs=rngs),
        nnx.SpectralNorm(nnx.Linear(4, 3, rngs=rngs), update_stats=False, rngs=rngs),
    )
    graphdef, params, rest = nnx.split(model, nnx.Param, ...)

    def loss(params):
        return (nnx.merge(graphdef, params, rest, copy=True)(X) ** 2).sum()

    grads = phalanx.jit(phalanx.grad(loss))(params)
    for path, g in nnx.to_flat_state(grads):
        # The bias of the keys has no gradient, since softmax is invariant to a constant added to all products.
        is_idle = path[-2:] == ("key", "bias")
        assert is_idle or float(jnp.abs(g.value).max()) > 0, path


def test_each_device_initializes_its_shard_of_a_parameter():
    mesh = Mesh(np.array(phalanx.devices()).reshape(4, 2), ("data", "model"))
    alone = nnx.Linear(16, 32, rngs=nnx.Rngs(0))
    with set_mesh(mesh):
        layer = nnx.Linear(
            16,
            32,
            kernel_metadata={"out_sharding": (None, "model")},
            bias_metadata={"out_sharding": ("model",)},
            rngs=nnx.Rngs(0),
        )
    assert layer.kernel.value.addressable_shards[0].data.shape == (16, 16)
    assert layer.bias.value.addressable_shards[0].data.shape == (16,)
    np.testing.assert_array_equal(layer.kernel.value, alone.kernel.value)


def test_an_eager_recurrent_layer_is_compiled_once():
    def compiled():
        cells = [nnx.RNN(nnx.GRUCell(3, 5, rngs=nnx.Rngs(seed))) for seed in (0, 1)]
        outputs = [cell(X) for cell in cells]
        assert not np.array_equal(*outputs)
        return _scan_jit._cache_size()

    from phalanx.nnx.layers.rnn import _scan_jit

    assert compiled() == compiled()


def test_an_eager_layer_is_one_program():
    layer, x = nnx.LayerNorm(3, rngs=nnx.Rngs(0)), jnp.asarray(X)
    assert "jit" not in str(phalanx.make_jaxpr(lambda x: layer(x))(x))


# --- errors ---

rngs = nnx.Rngs(0)
REFUSED = {
    "features": (
        ShapeError,
        lambda: nnx.Linear(4, 2, rngs=rngs)(X),
        "nnx.Linear, inputs: expected (4,) features along axis (-1,), got shape (2, 5, 3).\n"
        "  Fix: create the layer for this size, or move the features to axis (-1,) with jnp.moveaxis.",
    ),
    "axes": (
        ArgumentError,
        lambda: nnx.LinearGeneral((2, 3), 4, rngs=rngs),
        "nnx.LinearGeneral, argument axis: expected 2 dimensions, one for each of in_features=(2, 3), got (-1,).\n"
        "  Fix: name each dimension that is mapped.",
    ),
    "batch axes": (
        ArgumentError,
        lambda: nnx.LinearGeneral(3, 4, batch_axis={1: 5}, rngs=rngs),
        "nnx.LinearGeneral, argument batch_axis: expected the leading dimensions 0, 1, ..., got (1,).\n"
        "  Fix: move batch dimensions to the front.",
    ),
    "subscripts": (
        ArgumentError,
        lambda: nnx.Einsum("ab,bc", (3, 4), rngs=rngs),
        "nnx.Einsum, argument einsum_str: expected subscripts of the form 'input,kernel->result', got 'ab,bc'.\n"
        "  Fix: pass subscripts such as '...a,ab->...b'.",
    ),
    "bias": (
        ShapeError,
        lambda: nnx.Einsum("nta,ab->ntb", (3, 4), (5,), rngs=rngs)(X),
        "nnx.Einsum, bias: expected shape (4,), the sizes of the dimensions that come from the kernel, got shape (5,).\n"
        "  Fix: pass bias_shape=(4,).",
    ),
    "embedding": (
        DTypeError,
        lambda: nnx.Embed(5, 3, rngs=rngs)(X),
        "nnx.Embed, inputs: expected integers, got float32.\n  Fix: pass inputs.astype('int32'), or use nnx.Linear for vectors.",
    ),
    "groups": (
        ArgumentError,
        lambda: nnx.Conv(3, 4, 3, feature_group_count=2, rngs=rngs),
        "nnx.Conv, argument feature_group_count: expected a divisor of in_features and out_features, 3 and 4, got 2.\n"
        "  Fix: change feature_group_count, or the numbers of channels to multiples of it.",
    ),
    "strides": (
        ArgumentError,
        lambda: nnx.Conv(3, 4, (3, 3), strides=(2,), rngs=rngs),
        "nnx.Conv, argument strides: expected a number, or 2, one for each spatial dimension, got (2,).\n"
        "  Fix: kernel_size counts the spatial dimensions.",
    ),
    "padding": (
        ArgumentError,
        lambda: nnx.Conv(3, 4, (3,), padding="sam", rngs=rngs),
        "nnx.Conv, argument padding: expected one of ['SAME', 'VALID', 'SAME_LOWER', 'CIRCULAR', 'REFLECT', 'CAUSAL'], "
        "or numbers, got 'sam'.\n  Fix: pass 'SAME' to keep the spatial sizes.",
    ),
    "causal": (
        ArgumentError,
        lambda: nnx.Conv(3, 4, (3, 3), padding="CAUSAL", rngs=rngs),
        "nnx.Conv, argument padding: expected one spatial dimension for 'CAUSAL', got 2 dimensions in kernel_size.\n"
        "  Fix: pass padding as pairs (before, after) for each spatial dimension.",
    ),
    "mode": (
        ArgumentError,
        lambda: nnx.BatchNorm(3, use_running_average=None, rngs=rngs)(X),
        "nnx.BatchNorm, argument use_running_average: expected True or False, got None.\n"
        "  Fix: call model.train() or model.eval(), or pass use_running_average=True or False.",
    ),
    "number of groups": (
        ArgumentError,
        lambda: nnx.GroupNorm(4, num_groups=3, rngs=rngs),
        "nnx.GroupNorm, argument num_groups: expected a divisor of num_features=4, got 3.\n"
        "  Fix: choose a divisor of 4, such as 1.",
    ),
    "streams": (
        ArgumentError,
        lambda: nnx.Dropout(0.5)(X),
        "nnx.Dropout, argument rngs: expected random streams with 'dropout', since deterministic is False, got None.\n"
        "  Fix: pass rngs to the layer or to the call, or call model.eval().",
    ),
    "rngs": (
        ArgumentTypeError,
        lambda: nnx.Dropout(0.5, rngs=3),
        "nnx.Dropout, argument rngs: expected nnx.Rngs, a stream, or None, got 3 of type int.\n"
        "  Fix: pass random streams such as rngs=nnx.Rngs(0).",
    ),
    "rate": (
        ArgumentError,
        lambda: nnx.Dropout(10),
        "nnx.Dropout, argument rate: expected a number between 0 and 1, got 10.\n  Fix: pass a fraction, such as 0.1 to drop one element in ten.",
    ),
    "heads": (
        ArgumentError,
        lambda: nnx.MultiHeadAttention(3, 4, rngs=rngs),
        "nnx.MultiHeadAttention, argument qkv_features: expected a multiple of num_heads=3, got 4.\n"
        "  Fix: change qkv_features, such as qkv_features=3.",
    ),
    "cache": (
        ArgumentError,
        lambda: nnx.MultiHeadAttention(1, 3, decode=True, rngs=rngs)(X),
        "nnx.MultiHeadAttention, decoding: expected a cache, got none.\n  Fix: call layer.init_cache((batch, max_length, in_features)) first.",
    ),
    "dropout of attention": (
        ArgumentError,
        lambda: nnx.MultiHeadAttention(1, 3, dropout_rate=0.5, rngs=rngs)(X),
        "nnx.MultiHeadAttention, argument deterministic: expected True or False, since dropout_rate is not 0, got "
        "None.\n  Fix: call model.train() or model.eval(), or pass it to the layer or to the call.",
    ),
    "masks": (
        ShapeError,
        lambda: nnx.combine_masks(jnp.ones((2, 2)), jnp.ones((1, 2, 2))),
        "nnx.combine_masks: expected masks of as many dimensions each, got [2, 3] dimensions.\n"
        "  Fix: give them a batch dimension.",
    ),
    "operands": (
        ShapeError,
        lambda: nnx.dot_product_attention(X, X, X[:1]),
        "nnx.dot_product_attention, operands: expected query [*batch, queries, heads, depth], key and value [*batch, "
        "keys, key heads, depth], the heads a multiple of the key heads, got (2, 5, 3), (2, 5, 3), (1, 5, 3).\n"
        "  Fix: check the order of the dimensions.",
    ),
    "carry": (
        ArgumentError,
        lambda: nnx.GRUCell(3, 4, rngs=rngs).initialize_carry((2, 3), carry_init=nnx.initializers.normal()),
        "nnx.GRUCell.initialize_carry, argument rngs: expected random streams with 'carry', got None.\n"
        "  Fix: pass rngs=nnx.Rngs(0) to the call, or keep_rngs=True to the cell.",
    ),
    "matrix": (
        ArgumentError,
        lambda: nnx.SpectralNorm(nnx.Conv(3, 4, (3, 3), rngs=rngs), error_on_non_matrix=True, rngs=rngs),
        "nnx.SpectralNorm, parameter kernel: expected a matrix, as error_on_non_matrix asks, got shape (3, 3, 3, 4).\n"
        "  Fix: leave error_on_non_matrix out to normalize it as one.",
    ),
    "windows": (
        ArgumentError,
        lambda: nnx.max_pool(X, (2,), strides=(1, 1)),
        "nnx.pool, argument strides: expected 1 numbers, as many as the window has, got (1, 1).\n"
        "  Fix: give one for each spatial dimension.",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_raises_an_error(name):
    error, fun, message = REFUSED[name]
    with pytest.raises(error) as caught:
        fun()
    assert str(caught.value) == message


def test_decoding_processes_one_position_per_call():
    layer = nnx.MultiHeadAttention(1, 3, decode=True, rngs=nnx.Rngs(0))
    layer.init_cache(X.shape)
    with pytest.raises(ShapeError) as caught:
        layer(X)
    assert str(caught.value) == (
        "nnx.MultiHeadAttention, inputs when decoding: expected one position of shape (2, 1, 3), as the cache was made "
        "for, got shape (2, 5, 3).\n  Fix: feed one position at a time, or call init_cache with the new shape."
    )


class Restless(nnx.RNNCellBase):
    """A cell that changes variables of all kinds: the output is the carry plus the parameter."""

    def __init__(self):
        self.w, self.log = nnx.Param(jnp.zeros(())), nnx.Intermediate(jnp.zeros((4, 2, 3)))
        self.drop = nnx.Dropout(0.5, rngs=nnx.Rngs(0))

    def initialize_carry(self, shape, rngs=None):
        return jnp.zeros(shape)

    def __call__(self, carry, x):
        self.w.value += 1
        self.log.value += x
        return carry + 1, carry + self.w.value + 0 * self.drop(x)


def test_a_cell_may_change_its_parameters():
    layer = nnx.RNN(Restless())
    steps = X[:, :4, :]
    out = nnx.RNN(Restless(), state_axes=nnx.StateAxes({nnx.Intermediate: 0, ...: nnx.Carry}))
    assert out(steps)[0, :, 0].tolist() == [1.0, 3.0, 5.0, 7.0] and int(out.cell.w.value) == 4
    close(out.cell.log.value, np.moveaxis(steps, 1, 0))
    layer.cell.log.value = layer.cell.log.value[0]
    assert layer(steps)[0, :, 0].tolist() == [1.0, 3.0, 5.0, 7.0] and int(layer.cell.w.value) == 4
    carry, _ = layer(steps, seq_lengths=jnp.array([2, 4]), return_carry=True)
    assert carry[:, 0].tolist() == [2.0, 4.0]


def test_the_initial_carry_of_an_rnn_is_drawn_from_its_own_stream():
    cell = nnx.SimpleCell(3, 4, carry_init=nnx.initializers.normal(), rngs=nnx.Rngs(0))
    layer = nnx.RNN(cell)
    key = phalanx.random.fold_in(phalanx.random.key(0), 0)
    carry = nnx.initializers.normal()(key, (2, 4))
    close(layer(X)[:, 0], cell(carry, X[:, 0])[1])
    assert int(layer.rngs.count.value) == 1
    with pytest.raises(ArgumentError, match="^nnx.SimpleCell.initialize_carry, argument rngs: expected random streams"):
        nnx.RNN(cell, rngs=False)(X)


def test_an_empty_sequential_returns_its_arguments():
    empty = nnx.Sequential()
    assert empty(1) == 1 and empty(1, 2) == (1, 2) and empty(a=3) == {"a": 3} and empty() is None


def test_a_sequential_names_the_element_that_is_not_callable():
    with pytest.raises(TypeError) as error:
        nnx.Sequential(nnx.relu, 3)(jnp.ones(2))
    assert str(error.value) == (
        "nnx.Sequential, element 1: expected a module or a function, got 3.\n"
        "  Fix: pass functions such as nnx.relu, not their results."
    )


def test_options_of_a_convolution_are_attributes_as_given():
    layer = nnx.Conv(3, 4, 3, padding="same", rngs=nnx.Rngs(0))
    assert (layer.kernel_size, layer.strides, layer.padding, layer.kernel_dilation) == ((3,), 1, "same", 1)
    assert layer(X).shape == (2, 5, 4)
    layer.strides = 2
    close(layer(X), nnx.Conv(3, 4, (3,), strides=(2,), rngs=nnx.Rngs(0))(X))
    layer.strides = (1, 1)
    with pytest.raises(ArgumentError, match="^nnx.Conv, attribute strides: expected a number, or 1, one for each"):
        layer(X)


def test_initial_values_in_16_bits_are_scaled_by_a_factor_that_is_rounded_in_each_step():
    kernel = nnx.Linear(8, 3, param_dtype=np.float16, rngs=nnx.Rngs(0)).kernel.value
    drawn = phalanx.random.truncated_normal(nnx.Rngs(0).params(), -2.0, 2.0, (8, 3), np.float16)
    factor = np.sqrt(np.float16(1 / 8)) / np.float16(0.87962566103423978)
    assert kernel.dtype == np.float16 and (kernel == drawn * factor).all()
