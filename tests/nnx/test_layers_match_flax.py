"""Layers compared with Flax: equal initial values from equal seeds, equal results and equal states."""

from functools import partial

import numpy as np
import pytest

import phalanx.numpy as jnp
from phalanx import nnx

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 5, 3)).astype("f")
X4 = RNG.normal(size=(2, 8, 4)).astype("f")
IMAGES = RNG.normal(size=(2, 7, 6, 3)).astype("f")
HEADS = RNG.normal(size=(2, 3, 5, 2, 4)).astype("f")
seed = lambda o: o.Rngs(0, dropout=1)
normal = lambda o: o.initializers.normal()

LAYERS = {
    "Linear": (lambda o: o.Linear(3, 4, bias_init=normal(o), rngs=seed(o)), X),
    "Linear in bfloat16": (lambda o: o.Linear(3, 4, dtype="bfloat16", use_bias=False, rngs=seed(o)), X),
    "LinearGeneral": (lambda o: o.LinearGeneral((5, 3), (4, 2), axis=(1, 2), batch_axis={0: 2}, rngs=seed(o)), X),
    "Einsum": (lambda o: o.Einsum("nta,hab->nthb", (2, 3, 4), (2, 4), bias_init=normal(o), rngs=seed(o)), X),
    "Embed": (lambda o: o.Embed(5, 4, rngs=seed(o)), np.array([[0, 3, 4]])),
    "Conv": (lambda o: o.Conv(3, 4, (3, 2), strides=2, bias_init=normal(o), rngs=seed(o)), IMAGES),
    "Conv, groups": (
        lambda o: o.Conv(3, 6, (3, 2), padding="VALID", kernel_dilation=2, feature_group_count=3, rngs=seed(o)),
        IMAGES,
    ),
    "Conv, circular": (lambda o: o.Conv(3, 4, (4, 3), padding="CIRCULAR", strides=2, rngs=seed(o)), IMAGES),
    "Conv, reflected": (lambda o: o.Conv(3, 4, (3, 2), padding="REFLECT", rngs=seed(o)), IMAGES),
    "Conv, causal": (lambda o: o.Conv(3, 4, (3,), padding="CAUSAL", rngs=seed(o)), X),
    "Conv, input dilation": (lambda o: o.Conv(3, 4, (3, 3), padding=1, input_dilation=2, rngs=seed(o)), IMAGES),
    "Conv, many batch dimensions": (lambda o: o.Conv(3, 4, 3, rngs=seed(o)), IMAGES),
    "ConvTranspose": (lambda o: o.ConvTranspose(3, 4, (3, 3), strides=2, rngs=seed(o)), IMAGES),
    "ConvTranspose, flipped": (
        lambda o: o.ConvTranspose(3, 4, (3, 2), strides=(2, 1), padding="VALID", transpose_kernel=True, rngs=seed(o)),
        IMAGES,
    ),
    **{
        f"ConvTranspose, circular {k} {s} {t}": (
            lambda o, k=k, s=s, t=t: o.ConvTranspose(
                3, 4, (k,), padding="CIRCULAR", strides=s, transpose_kernel=t, rngs=seed(o)
            ),
            X,
        )
        for k, s, t in ((4, 1, False), (7, 2, True))
    },
    "BatchNorm": (lambda o: o.BatchNorm(5, axis=1, use_fast_variance=False, rngs=seed(o)), X),
    "BatchNorm, evaluated": (lambda o: o.BatchNorm(3, use_running_average=True, scale_init=normal(o), rngs=seed(o)), X),
    "LayerNorm": (lambda o: o.LayerNorm(3, scale_init=normal(o), bias_init=normal(o), rngs=seed(o)), X),
    "RMSNorm": (lambda o: o.RMSNorm(3, scale_init=normal(o), dtype="bfloat16", rngs=seed(o)), X),
    "GroupNorm": (lambda o: o.GroupNorm(4, num_groups=2, scale_init=normal(o), rngs=seed(o)), X4),
    "InstanceNorm": (lambda o: o.InstanceNorm(4, scale_init=normal(o), rngs=seed(o)), X4),
    "WeightNorm": (lambda o: o.WeightNorm(o.Linear(3, 4, rngs=seed(o)), rngs=seed(o)), X),
    "SpectralNorm": (lambda o: o.SpectralNorm(o.Conv(3, 4, (3, 3), rngs=seed(o)), n_steps=2, rngs=seed(o)), IMAGES),
    "Dropout": (lambda o: o.Dropout(0.3, broadcast_dims=(1,), rngs=seed(o)), X),
    "attention": (lambda o: o.MultiHeadAttention(2, 4, decode=False, rngs=seed(o)), X4),
    "attention, shared keys": (
        lambda o: o.MultiHeadAttention(
            4, 4, qkv_features=16, num_kv_heads=2, normalize_qk=True, decode=False, rngs=seed(o)
        ),
        X4,
    ),
    "attention, dropout": (
        lambda o: o.MultiHeadAttention(2, 4, dropout_rate=0.3, deterministic=False, decode=False, rngs=seed(o)),
        X4,
    ),
    "attention, causal": (lambda o: lambda x: o.dot_product_attention(x, x, x, is_causal=True), HEADS),
    **{
        f"RNN of {cell}": (
            lambda o, cell=cell: o.RNN(
                getattr(o, cell)(3, 4, bias_init=normal(o), carry_init=normal(o), rngs=seed(o)), rngs=seed(o)
            ),
            X,
        )
        for cell in ("LSTMCell", "OptimizedLSTMCell", "GRUCell", "SimpleCell")
    },
    "RNN, backwards": (
        lambda o: o.RNN(
            o.SimpleCell(3, 4, residual=True, rngs=seed(o)),
            reverse=True,
            keep_order=True,
            time_major=True,
            rngs=seed(o),
        ),
        X,
    ),
    "Bidirectional": (
        lambda o: partial(
            o.Bidirectional(o.RNN(o.GRUCell(3, 4, rngs=seed(o))), o.RNN(o.LSTMCell(3, 4, rngs=seed(o))), rngs=seed(o)),
            seq_lengths=np.array([3, 5]),
        ),
        X,
    ),
    "LoRALinear": (lambda o: o.LoRALinear(3, 4, lora_rank=2, b_initializer=normal(o), rngs=seed(o)), X),
    "avg_pool": (lambda o: lambda x: o.avg_pool(x, (3, 2), padding="SAME", count_include_pad=False), IMAGES),
    "max_pool": (lambda o: lambda x: o.max_pool(x, (2, 2), strides=(2, 1), padding=((1, 0), (0, 1))), IMAGES),
    "causal mask": (lambda o: lambda x: o.make_causal_mask(x, extra_batch_dims=1), X[..., 0]),
}


def state_of(lib, layer):
    """The values of a layer's variables by path, without random keys."""
    if not hasattr(layer, "set_attributes"):
        return {}
    flat = lib.to_flat_state(lib.state(layer))
    value = lambda v: v.get_value() if hasattr(v, "get_value") else v
    values = {".".join(map(str, path)): value(v) for path, v in flat if path[-1] != "key"}
    clean = str.maketrans(dict.fromkeys("(),' "))
    return {k.replace("', '", "/").translate(clean): np.asarray(v).astype("f") for k, v in values.items()}


@pytest.mark.filterwarnings("ignore:carry_init is provided")  # as Flax advises against it
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_that_of_flax(name):
    flax = pytest.importorskip("flax.nnx")
    jax_numpy = pytest.importorskip("jax.numpy")
    make, x = LAYERS[name]
    theirs, ours = make(flax), make(nnx)
    expected, got = np.asarray(theirs(jax_numpy.asarray(x))), np.asarray(ours(jnp.asarray(x)))
    assert got.dtype == expected.dtype
    tolerance = 1e-2 if got.dtype.name == "bfloat16" else 3e-6
    np.testing.assert_allclose(got.astype("f"), expected.astype("f"), rtol=tolerance, atol=tolerance)
    before, after = state_of(flax, theirs), state_of(nnx, ours)
    assert after.keys() == before.keys()
    for path in after:
        np.testing.assert_allclose(after[path], before[path], rtol=1e-5, atol=1e-6, err_msg=path)
