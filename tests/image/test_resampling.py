"""Images resampled: against JAX, and what must hold of any image."""

import numpy as np
import pytest

import phalanx
from phalanx import image
from phalanx.errors import ArgumentError, ShapeError

rng = np.random.default_rng(0)
X = rng.normal(size=(2, 5, 8, 1)).astype(np.float32)
METHODS = list(image.ResizeMethod)


@pytest.mark.one_is_quick(group=lambda method, antialias: method)
@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_resize_equals_jax(method, antialias):
    peer = pytest.importorskip("jax.image")
    for shape in ((2, 3, 12, 1), (2, 5, 8, 1), (2, 9, 3, 1), (1, 5, 16, 2)):
        wanted = peer.resize(X, shape, peer.ResizeMethod[method.name], antialias)
        got = image.resize(X, shape, method, antialias)
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), atol=2e-5)


@pytest.mark.one_is_quick(group=lambda method, antialias: antialias)
@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("method", METHODS[1:])
def test_scale_and_translate_equals_jax(method, antialias):
    peer = pytest.importorskip("jax.image")
    for scale, shift in (((1.5, 0.5), (0.3, -1.0)), ((0.7, 2.0), (-2.0, 1.25))):
        args = (2, 7, 6, 1), (1, 2), np.float32(scale), np.float32(shift)
        wanted = peer.scale_and_translate(X, *args, peer.ResizeMethod[method.name], antialias)
        got = image.scale_and_translate(X, *args, method, antialias)
        if method is image.ResizeMethod.CUBIC_PYTORCH and not antialias:
            wanted = np.where(np.asarray(got) == 0, 0, wanted)  # where the peer repeats the border beyond the image
        np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), atol=3e-5)


@pytest.mark.parametrize("method", METHODS)
def test_a_constant_image_stays_constant_in_every_dtype(method):
    for dtype in ("float16", "bfloat16", "float32", "complex64", "uint8"):
        x = phalanx.numpy.full((4, 6), 3, dtype)
        y = image.resize(x, (7, 3), method)
        assert y.dtype == (x.dtype if method.name == "NEAREST" or dtype != "uint8" else np.float32)
        np.testing.assert_allclose(np.asarray(y).astype(np.complex64), 3, rtol=2e-2)


def test_derivatives_with_respect_to_image_and_scale():
    x = np.float32([0, 1, 4, 9])
    moved = lambda x, s, t: image.scale_and_translate(x, (6,), (0,), s, t, "cubic")
    phalanx.test_util.check_grads(moved, (x, np.float32([1.37]), np.float32([0.21])), 1, rtol=2e-2, atol=2e-2)
    weights = phalanx.jacrev(lambda x: image.resize(x, (2,), "area"))(x)
    assert weights.tolist() == [[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]]


def test_method_names_and_invalid_arguments():
    assert image.ResizeMethod.from_string("bicubic") is image.ResizeMethod.CUBIC
    assert image.resize(np.zeros((0, 2), np.float32), (3, 2), "linear").tolist() == [[0, 0]] * 3
    with pytest.raises(ArgumentError, match="image, argument method: expected 'nearest', 'linear'.* got 'best'"):
        image.resize(X, X.shape, "best")
    with pytest.raises(ShapeError, match=r"image.resize, argument shape: expected 4 sizes, got \(3,\)"):
        image.resize(X, (3,), "linear")
    with pytest.raises(ArgumentError, match="image.scale_and_translate, argument method: expected a method that"):
        image.scale_and_translate(X, X.shape, (1,), np.ones(1), np.ones(1), "nearest")
    with pytest.raises(ShapeError, match="expected sizes that differ in spatial_dims only"):
        image.scale_and_translate(X, (2, 5, 9, 1), (1,), np.ones(1), np.ones(1), "linear")
    with pytest.raises(ShapeError, match=r"argument scale: expected 1 numbers, got \(2,\)"):
        image.scale_and_translate(X, X.shape, (1,), np.ones(2), np.ones(1), "linear")
