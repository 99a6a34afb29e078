"""Resampling: an image of another size, as a product with a matrix of weights along each dimension.

Builds on `numpy` and `lax`; `image` shows it.

Source: Keys (1981), doi:10.1109/TASSP.1981.1163711 (cubic); Duchon (1979) (Lanczos).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.errors import ArgumentError, ShapeError
from phalanx.numpy import ufuncs
from phalanx.numpy.mapping import where
from phalanx.numpy.operands import as_array, canonical_axes, canonical_shape, cast, operand, promote_inexact
from phalanx.numpy.reductions import sum
from phalanx.numpy.shapes import moveaxis
from phalanx.numpy.taking import take
from phalanx.runtime.dispatch import eager_program


class ResizeMethod(enum.Enum):
    """How an image is continued between its points.

    Examples:
      >>> from phalanx.image import ResizeMethod
      >>> ResizeMethod.from_string("bilinear")
      <ResizeMethod.LINEAR: 1>
    """

    NEAREST = 0
    LINEAR = 1
    LANCZOS3 = 2
    LANCZOS5 = 3
    CUBIC = 4
    CUBIC_PYTORCH = 5
    AREA = 6

    @staticmethod
    def from_string(s: str) -> ResizeMethod:
        """The method of a name.

        Args:
          s: such as `"linear"`, `"bilinear"`, `"cubic"`, `"lanczos3"`.

        Returns:
          The method.

        Raises:
          ArgumentError: there is no such method.
        """
        if s not in _NAMES:
            raise ArgumentError("image, argument method", expected=", ".join(map(repr, _NAMES)), got=repr(s),
                                mend="use one of these")  # fmt: skip
        return _NAMES[s]


_NAMES = {
    "nearest": ResizeMethod.NEAREST, "linear": ResizeMethod.LINEAR, "bilinear": ResizeMethod.LINEAR,
    "trilinear": ResizeMethod.LINEAR, "triangle": ResizeMethod.LINEAR, "cubic": ResizeMethod.CUBIC,
    "bicubic": ResizeMethod.CUBIC, "tricubic": ResizeMethod.CUBIC, "lanczos3": ResizeMethod.LANCZOS3,
    "lanczos5": ResizeMethod.LANCZOS5, "cubic-pytorch": ResizeMethod.CUBIC_PYTORCH, "area": ResizeMethod.AREA,
}  # fmt: skip


def _triangle(x: Any) -> Any:
    return lax.max(1 - lax.abs(x), cast(0.0, x.dtype))


def _cubic(a: float) -> Callable:
    def kernel(x: Any) -> Any:
        x = lax.abs(x)
        near, far = ((a + 2) * x - (a + 3)) * x * x + 1, ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return where(x >= 2, 0, where(x >= 1, far, near))

    return kernel


def _lanczos(radius: float) -> Callable:
    def kernel(x: Any) -> Any:
        middle = lax.abs(x) < 1e-3
        safe = where(middle, 1, x)
        value = radius * lax.sin(np.pi * safe) * lax.sin(np.pi * safe / radius) / (np.pi**2 * safe * safe)
        return where(lax.abs(x) > radius, 0, where(middle, 1, value))

    return kernel


_KERNELS = {
    ResizeMethod.LINEAR: _triangle,
    ResizeMethod.LANCZOS3: _lanczos(3.0),
    ResizeMethod.LANCZOS5: _lanczos(5.0),
    ResizeMethod.CUBIC: _cubic(-0.5),
    ResizeMethod.CUBIC_PYTORCH: _cubic(-0.5),
}


def _weights(size: int, new: int, scale: Any, shift: Any, method: ResizeMethod, antialias: bool, dtype: Any) -> Any:
    """The matrix dtype[size, new] by which a line of an image becomes one of another size."""
    inverse = 1 / scale
    own, places = (lax.expand_dims(lax.iota(dtype, n), (d,)) for n, d in ((size, 1), (new, 0)))
    start = (places - shift) * inverse
    if method is ResizeMethod.AREA:
        overlap = ufuncs.minimum(start + inverse, own + 1) - ufuncs.maximum(start, own)
        return _normalised(lax.max(overlap, cast(0.0, dtype)), dtype)
    at = start + 0.5 * inverse - 0.5
    if method is ResizeMethod.CUBIC_PYTORCH and not antialias:
        weights = _clamped(_cubic(-0.75), at, size, own, dtype)
    else:
        width = lax.max(inverse, cast(1.0, dtype)) if antialias else cast(1.0, dtype)
        weights = _normalised(_KERNELS[method]((at - own) / width), dtype)
    return where((at >= -0.5) & (at <= size - 0.5), weights, 0)


def _normalised(weights: Any, dtype: Any) -> Any:
    total = sum(weights, axis=0, keepdims=True)
    small = lax.abs(total) <= 1000 * float(dtypes.finfo(np.float32).eps)
    return cast(where(small, 0, weights / where(small, 1, total)), dtype)


def _clamped(kernel: Callable, at: Any, size: int, own: Any, dtype: Any) -> Any:
    """Four taps for each place; those outside read the border."""
    first = lax.floor(at)
    taps = [
        (lax.clamp(cast(0.0, dtype), first + k, cast(size - 1, dtype)), kernel(at - first - k)) for k in range(-1, 3)
    ]
    parts = [where(own == place, weight, 0) for place, weight in taps]
    return cast(parts[0] + parts[1] + parts[2] + parts[3], dtype)


def _method(method: str | ResizeMethod) -> ResizeMethod:
    return ResizeMethod.from_string(method) if isinstance(method, str) else ResizeMethod(method)


def resize(
    image: Any, shape: Sequence[int], method: str | ResizeMethod, antialias: bool = True, precision: Any = "highest"
) -> Any:
    """An image in another size.

    Args:
      image: an array of any rank.
      shape: the size of each dimension of the result; what does not change costs nothing.
      method: `"nearest"`, `"linear"`, `"cubic"`, `"lanczos3"`, `"lanczos5"`, `"area"` or a `ResizeMethod`.
      antialias: widen the kernel where the image becomes smaller.
      precision: of the products, as in `lax.dot`.

    Returns:
      An array of that shape, in floating point, or for `"nearest"` in the dtype of `image`.

    Raises:
      ArgumentError: there is no such method.
      ShapeError: `shape` has another rank than `image`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import image
      >>> image.resize(jnp.array([0.0, 1.0]), (4,), "linear").tolist()
      [0.0, 0.25, 0.75, 1.0]
    """
    shape = canonical_shape(shape, "image.resize")
    if len(shape) != np.ndim(image):
        raise ShapeError("image.resize, argument shape", expected=f"{np.ndim(image)} sizes", got=shape,
                         mend="give the sizes of all dimensions, batch and channels too")  # fmt: skip
    return _resize(image, shape, _method(method), antialias, precision)


@eager_program(static_argnames=("shape", "method", "antialias", "precision"))
def _resize(image: Any, shape: tuple, method: ResizeMethod, antialias: bool, precision: Any) -> Any:
    x = as_array(operand(image, "image.resize"))
    changed = [i for i, (m, n) in enumerate(zip(x.shape, shape)) if m != n]
    if method is ResizeMethod.NEAREST:
        for i in changed:
            m, n = x.shape[i], shape[i]
            x = take(x, np.floor((np.arange(n) + 0.5) * m / n).astype(np.int32), i, mode="clip")
        return x
    (x,) = promote_inexact("image.resize", x)
    kind = _weight_dtype(x)
    scales = [cast(1.0 if n == 0 or m == 0 else n / m, kind) for m, n in zip(x.shape, shape)]
    return _resampled(x, shape, changed, scales, [cast(0.0, kind)] * len(shape), method, antialias, precision)


def _weight_dtype(x: Any) -> Any:
    return np.dtype(np.float64 if x.dtype.itemsize > 4 and x.dtype != np.complex64 else np.float32)


def _resampled(
    x: Any, shape: tuple, dims: Sequence[int], scales: Any, shifts: Any, method: ResizeMethod, antialias: bool,
    precision: Any,
) -> Any:  # fmt: skip
    for d in dims:
        weights = _weights(x.shape[d], shape[d], scales[d], shifts[d], method, antialias, _weight_dtype(x))
        y = lax.dot_general(x, cast(weights, x.dtype), (((d,), (0,)), ((), ())), precision=precision)
        x = moveaxis(y, -1, d)
    return x


def scale_and_translate(
    image: Any, shape: Sequence[int], spatial_dims: Sequence[int], scale: Any, translation: Any,
    method: str | ResizeMethod, antialias: bool = True, precision: Any = "highest",
) -> Any:  # fmt: skip
    """An image scaled, then moved; what comes from outside of it is 0.

    Args:
      image: an array of any rank.
      shape: the size of each dimension of the result.
      spatial_dims: the dimensions that change.
      scale: by how much each is scaled.
      translation: by how many places of the result each is moved.
      method, antialias, precision: as in `resize`; not `"nearest"`.

    Returns:
      An array of that shape, in floating point.

    Raises:
      ArgumentError: there is no such method.
      ShapeError: `shape` has another rank than `image`, or a dimension changes that is not named; or there is not one
        scale and one translation for each dimension named.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import image
      >>> moved = image.scale_and_translate(
      ...     jnp.array([1.0, 2.0]), (3,), (0,), jnp.ones(1), jnp.ones(1), "linear"
      ... )
      >>> moved.tolist()
      [0.0, 1.0, 2.0]
    """
    shape, rank = canonical_shape(shape, "image.scale_and_translate"), np.ndim(image)
    method = _method(method)
    if method is ResizeMethod.NEAREST:
        raise ArgumentError("image.scale_and_translate, argument method", expected="a method that interpolates",
                            got="'nearest'", mend="use 'linear'")  # fmt: skip
    dims = canonical_axes(tuple(spatial_dims), rank, "image.scale_and_translate")
    kept = len(shape) == rank and all(shape[i] == np.shape(image)[i] for i in range(rank) if i not in dims)
    if not kept:
        raise ShapeError("image.scale_and_translate, argument shape", expected="sizes that differ in spatial_dims only",
                         got=shape, mend="name the dimensions that change")  # fmt: skip
    for name, v in (("scale", scale), ("translation", translation)):
        if np.shape(v) != (len(dims),):
            raise ShapeError(f"image.scale_and_translate, argument {name}", expected=f"{len(dims)} numbers",
                             got=np.shape(v), mend="give one for each of spatial_dims")  # fmt: skip
    return _scale_and_translate(image, scale, translation, shape, dims, method, antialias, precision)


@eager_program(static_argnames=("shape", "dims", "method", "antialias", "precision"))
def _scale_and_translate(
    image: Any, scale: Any, translation: Any, shape: tuple, dims: tuple, method: Any, antialias: bool, precision: Any
) -> Any:
    (x,) = promote_inexact("image.scale_and_translate", as_array(operand(image, "image.scale_and_translate")))
    kind = _weight_dtype(x)
    given = [cast(as_array(operand(v, "image.scale_and_translate")), kind) for v in (scale, translation)]
    scales, shifts = ({d: v[i] for i, d in enumerate(dims)} for v in given)
    return _resampled(x, shape, dims, scales, shifts, method, antialias, precision)
