"""Initializers: the numbers of the peer, their moments, and errors."""

import numpy as np
import pytest

import phalanx
from phalanx import nn
from phalanx.core.error_classes import ArgumentError, AxisError, DTypeError, ShapeError

peer = pytest.importorskip("jax")

MAKERS = [
    ("uniform", (0.3,), {}), ("normal", (0.3,), {}), ("truncated_normal", (0.3,), {"lower": -1.0}),
    ("constant", (3,), {}), ("glorot_uniform", (), {}), ("glorot_normal", (), {}), ("lecun_uniform", (), {}),
    ("lecun_normal", (), {}), ("he_uniform", (), {}), ("he_normal", (), {}), ("xavier_uniform", (), {}),
    ("xavier_normal", (), {}), ("kaiming_uniform", (), {}), ("kaiming_normal", (), {}), ("orthogonal", (2.0,), {}),
    ("orthogonal", (), {"column_axis": 1}), ("variance_scaling", (2.0, "fan_out", "normal"), {}),
    ("variance_scaling", (2.0, "fan_geo_avg", "uniform"), {}),
    ("variance_scaling", (2.0, "fan_in", "uniform"), {"in_axis": (0, 1), "out_axis": 2}),
    ("variance_scaling", (2.0, "fan_in", "uniform"), {"batch_axis": 0}),
]  # fmt: skip


@pytest.mark.parametrize("name, args, kw", MAKERS, ids=lambda v: str(v))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_values_equal_jax(name, args, kw, dtype):
    if name == "orthogonal":
        dtype = "float32"  # there is no decomposition in bfloat16
    shape = (3, 4, 5)
    ours = getattr(nn.initializers, name)(*args, **kw)(phalanx.random.key(7), shape, dtype)
    theirs = getattr(peer.nn.initializers, name)(*args, **kw)(peer.random.key(7), shape, dtype)
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(
        np.asarray(ours, np.float32),
        np.asarray(theirs, np.float32),
        rtol=1e-5 if dtype == "float32" else 2e-2,
        atol=1e-6,
    )


@pytest.mark.parametrize("shape", [(3, 2, 4), (3, 4, 2, 4), (3, 3, 3, 4, 4)])
def test_delta_orthogonal_equals_jax(shape):
    ours = nn.initializers.delta_orthogonal()(phalanx.random.key(7), shape)
    theirs = peer.nn.initializers.delta_orthogonal()(peer.random.key(7), shape)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_zeros_and_ones_take_every_dtype():
    assert nn.initializers.zeros(None, (2,), "int32").dtype == "int32"
    assert nn.initializers.ones(None, (2,), "bfloat16").tolist() == [1.0, 1.0]


@pytest.mark.parametrize("distribution", ["truncated_normal", "normal", "uniform"])
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_the_variance_is_the_requested_one(distribution, dtype):
    init = nn.initializers.variance_scaling(3.0, "fan_in", distribution, dtype=dtype)
    x = np.asarray(init(phalanx.random.key(0), (200, 300)))
    assert x.dtype == dtype
    np.testing.assert_allclose(np.mean(np.abs(x) ** 2), 3.0 / 200, rtol=0.02)
    np.testing.assert_allclose(np.mean(x), 0, atol=0.002)


def test_orthogonal_matrices_are_orthogonal():
    q = np.asarray(nn.initializers.orthogonal(column_axis=0)(phalanx.random.key(0), (3, 2, 4)))
    np.testing.assert_allclose(q.reshape(3, 8) @ q.reshape(3, 8).T, np.eye(3), atol=1e-6)


def test_an_initializer_is_traced_like_any_function():
    init = nn.initializers.he_normal()
    eager = init(phalanx.random.key(3), (4, 5))
    np.testing.assert_array_equal(phalanx.jit(lambda k: init(k, (4, 5)))(phalanx.random.key(3)), eager)
    assert phalanx.eval_shape(lambda k: init(k, (4, 5)), phalanx.random.key(3)).shape == (4, 5)


ERRORS = [
    (lambda k: nn.initializers.he_normal()(k, (3,)), ShapeError,
     "nn.initializers.variance_scaling shape: expected at least 2 dimensions, inputs and outputs, got (3,).\n"
     "  Fix: use initializers.normal or initializers.uniform for vectors."),
    (lambda k: nn.initializers.variance_scaling(1.0, "fan", "normal"), ArgumentError,
     "nn.initializers.variance_scaling mode: expected 'fan_in' or 'fan_out' or 'fan_avg' or 'fan_geo_avg', got 'fan'.\n"
     "  Fix: pass mode='fan_in'."),
    (lambda k: nn.initializers.normal()(k, (3,), "int32"), DTypeError,
     "nn.initializers.normal dtype: expected a floating or complex dtype, got i32.\n"
     "  Fix: initialize in float32 and convert the result."),
    (lambda k: nn.initializers.delta_orthogonal()(k, (3, 4, 2)), ShapeError,
     "nn.initializers.delta_orthogonal shape: expected 3 to 5 dimensions, the last at least as large as the one before, "
     "got (3, 4, 2).\n  Fix: use initializers.orthogonal for kernels of other shapes."),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(ERRORS)))
def test_errors_have_a_fix(case):
    call, kind, message = ERRORS[case]
    with pytest.raises(kind) as caught:
        call(phalanx.random.key(0))
    assert str(caught.value) == message


@pytest.mark.parametrize("name", ["in_axis", "out_axis", "batch_axis"])
def test_an_axis_out_of_bounds_raises(name):
    message = f"nn.initializers.variance_scaling {name.removesuffix('_axis')} axis: expected an axis in [-2, 2), got 5."
    with pytest.raises(AxisError) as caught:
        nn.initializers.he_normal(**{name: 5})(phalanx.random.key(0), (3, 4))
    assert str(caught.value).startswith(message)


def test_a_negative_variance_raises():
    with pytest.raises(ArgumentError, match=r"scale: expected a variance of at least 0, got -1.0"):
        nn.initializers.variance_scaling(-1.0, "fan_in", "normal")


def test_an_int_is_a_shape():
    assert nn.initializers.zeros(None, 3).shape == nn.initializers.normal()(phalanx.random.key(0), 3).shape == (3,)


def test_the_scale_of_shapes_with_fewer_dimensions_follows_the_given_axes():
    key = phalanx.random.key(0)
    scaled = lambda **axes: nn.initializers.variance_scaling(1.0, "fan_in", "normal", **axes)
    draws = phalanx.random.normal(key, (3,))
    np.testing.assert_allclose(scaled(in_axis=[0], out_axis=[])(key, (3,)), draws / np.sqrt(3), rtol=1e-6)
    np.testing.assert_allclose(scaled(in_axis=[], out_axis=[0])(key, (3,)), draws, rtol=1e-6)
    assert scaled(in_axis=[], out_axis=[])(key, ()).shape == ()
    assert nn.initializers.he_normal()(key, (0, 3)).shape == (0, 3)
