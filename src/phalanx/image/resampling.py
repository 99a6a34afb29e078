"""Image resampling: `resize` and `scale_and_translate`, as a product with a weight matrix along each dimension.

Builds on `numpy` and `lax`; `phalanx.image` re-exports it.

Source: Keys (1981), doi:10.1109/TASSP.1981.1163711 (cubic); Duchon (1979) (Lanczos).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, ShapeError, dtypes
from phalanx.lax.contraction.precision import PrecisionLike
from phalanx.numpy.creation.ranges import arange
from phalanx.numpy.indexing.take import take
from phalanx.numpy.indexing.where import where
from phalanx.numpy.operands import as_array, canonical_axes, canonical_shape, cast, promote_inexact, to_operand
from phalanx.numpy.reductions.array_reductions import sum
from phalanx.numpy.shapes.reshaping import moveaxis
from phalanx.numpy.ufuncs import ufunc_table as ufuncs
from phalanx.random.rejection_sampling import Positions, SelectedPositions
from phalanx.runtime.eager_jit import eager_jit
from phalanx.symbolic import is_symbolic
from phalanx.typing import Array, ArrayLike, Shape


class ResizeMethod(enum.Enum):
    """Interpolation methods of `resize`.

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
        """Return the method of a name.

        Args:
          s: a name such as `"linear"`, `"bilinear"`, `"cubic"`, `"lanczos3"`.

        Returns:
          The method.

        Raises:
          ArgumentError: the method is unknown.
        """
        if s not in _NAMES:
            raise ArgumentError(
                "image, argument method",
                expected=", ".join(map(repr, _NAMES)),
                got=repr(s),
                fix="pass for example method='linear'",
            )
        return _NAMES[s]


_NAMES = {
    "nearest": ResizeMethod.NEAREST,
    "linear": ResizeMethod.LINEAR,
    "bilinear": ResizeMethod.LINEAR,
    "trilinear": ResizeMethod.LINEAR,
    "triangle": ResizeMethod.LINEAR,
    "cubic": ResizeMethod.CUBIC,
    "bicubic": ResizeMethod.CUBIC,
    "tricubic": ResizeMethod.CUBIC,
    "lanczos3": ResizeMethod.LANCZOS3,
    "lanczos5": ResizeMethod.LANCZOS5,
    "cubic-pytorch": ResizeMethod.CUBIC_PYTORCH,
    "bicubic-pytorch": ResizeMethod.CUBIC_PYTORCH,
    "area": ResizeMethod.AREA,
}


def _triangle(x: Array) -> Any:
    return lax.max(1 - lax.abs(x), cast(0.0, x.dtype))


def _cubic(a: float) -> Callable:
    def kernel(x: Any) -> Any:
        x = lax.abs(x)
        # The cubic convolution kernel of Keys, in Horner form: one polynomial for |x| < 1, another for 1 <= |x| < 2.
        near, far = ((a + 2) * x - (a + 3)) * x * x + 1, ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return where(x >= 2, 0, where(x >= 1, far, near))

    return kernel


def _lanczos(radius: float) -> Callable:
    def kernel(x: Any) -> Any:
        # sin(pi x) sin(pi x / r) / x^2 tends to a limit at 0, near which the quotient would lose all digits.
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


def _weights(
    size: int, new: int, scale: Any, shift: Array, method: ResizeMethod, antialias: bool, dtype: np.dtype
) -> Any:
    """The matrix dtype[size, new] that resamples a dimension: column j has the weights of output position j."""
    # Columns are output positions, rows input positions: broadcasting their difference gives the matrix.
    inverse = 1 / scale
    inputs, outputs = (lax.expand_dims(lax.iota(dtype, n), (d,)) for n, d in ((size, 1), (new, 0)))
    start = (outputs - shift) * inverse
    if method is ResizeMethod.AREA:
        # The weight of an input pixel is its overlap with the output pixel, mapped back to the input.
        overlap = ufuncs.minimum(start + inverse, inputs + 1) - ufuncs.maximum(start, inputs)
        return _normalize(lax.max(overlap, cast(0.0, dtype)), dtype)
    # Pixel centres are at half-integers: output j samples the input at (j - shift + 1/2) / scale - 1/2.
    at = start + 0.5 * inverse - 0.5
    if method is ResizeMethod.CUBIC_PYTORCH and not antialias:
        weights = _border_weights(_cubic(-0.75), at, size, inputs, dtype)
    else:
        # When the image is scaled down, a wider kernel averages over all input pixels of an output pixel.
        width = lax.max(inverse, cast(1.0, dtype)) if antialias else cast(1.0, dtype)
        weights = _normalize(_KERNELS[method]((at - inputs) / width), dtype)
    return where((at >= -0.5) & (at <= size - 0.5), weights, 0)


def _normalize(weights: Array, dtype: np.dtype) -> Any:
    total = sum(weights, axis=0, keepdims=True)
    # Columns whose kernel is entirely outside the image have no weight to normalize.
    small = lax.abs(total) <= 1000 * float(dtypes.finfo(np.float32).eps)
    return cast(where(small, 0, weights / where(small, 1, total)), dtype)


def _border_weights(
    kernel: Callable, at: Shape | Positions | SelectedPositions, size: int, inputs: Array, dtype: np.dtype
) -> Any:
    """Weights of a kernel with four taps, where taps outside the image read its border."""
    first = lax.floor(at)
    zero, last = cast(0.0, dtype), cast(size - 1, dtype)
    parts = [where(inputs == lax.clamp(zero, first + k, last), kernel(at - first - k), 0) for k in range(-1, 3)]
    return cast(parts[0] + parts[1] + parts[2] + parts[3], dtype)


def _method(method: str | ResizeMethod) -> ResizeMethod:
    return ResizeMethod.from_string(method) if isinstance(method, str) else ResizeMethod(method)


def resize(
    image: ArrayLike,
    shape: Sequence[int],
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: PrecisionLike = "highest",
) -> Any:
    """Resize an image.

    Args:
      image: an array of any rank.
      shape: the size of each dimension of the result; only dimensions that change are resampled.
      method: `"nearest"`, `"linear"`, `"cubic"`, `"lanczos3"`, `"lanczos5"`, `"area"` or a `ResizeMethod`.
      antialias: whether to widen the kernel where the image is scaled down.
      precision: the precision of the matrix products, as in `lax.dot`.

    Returns:
      An array of that shape, of a floating dtype, or for `"nearest"` of the dtype of `image`.

    Raises:
      ArgumentError: the method is unknown.
      ShapeError: `shape` has another rank than `image`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import image
      >>> image.resize(jnp.array([0.0, 1.0]), (4,), "linear").tolist()
      [0.0, 0.25, 0.75, 1.0]
    """
    shape = canonical_shape(shape, "image.resize")
    if len(shape) != np.ndim(image):
        raise ShapeError(
            "image.resize, argument shape",
            expected=f"{np.ndim(image)} sizes",
            got=shape,
            fix="give the sizes of all dimensions, including batch and channels",
        )
    return _resize(image, shape, _method(method), antialias, precision)


@eager_jit(static_argnames=("shape", "method", "antialias", "precision"))
def _resize(image: ArrayLike, shape: tuple, method: ResizeMethod, antialias: bool, precision: PrecisionLike) -> Any:
    x = as_array(to_operand(image, "image.resize"))
    changed = [i for i, (m, n) in enumerate(zip(x.shape, shape)) if m != n]
    if method is ResizeMethod.NEAREST:
        for i in changed:
            m, n = x.shape[i], shape[i]
            # The pixel below (j + 0.5) m / n, in integers: sizes that are symbolic have no double precision.
            j = arange(n) if is_symbolic(m) or is_symbolic(n) else np.arange(n)
            x = take(x, (2 * j + 1) * m // (2 * n), i, mode="clip")
        return x
    (x,) = promote_inexact("image.resize", x)
    kind = _weight_dtype(x)
    scales = [cast(1.0 if n == 0 or m == 0 else n / m, kind) for m, n in zip(x.shape, shape)]
    return _resample(x, shape, changed, scales, [cast(0.0, kind)] * len(shape), method, antialias, precision)


def _weight_dtype(x: Array) -> Any:
    return np.dtype(np.float64 if x.dtype.itemsize > 4 and x.dtype != np.complex64 else np.float32)


def _resample(
    x: Array,
    shape: tuple,
    dims: Sequence[int],
    scales: Sequence[Array] | Mapping[int, Array],
    shifts: Sequence[Array] | Mapping[int, Array],
    method: ResizeMethod,
    antialias: bool,
    precision: PrecisionLike,
) -> Any:
    for d in dims:
        weights = _weights(x.shape[d], shape[d], scales[d], shifts[d], method, antialias, _weight_dtype(x))
        # The contracted dimension is replaced by the new one at the end of the result.
        y = lax.dot_general(x, cast(weights, x.dtype), (((d,), (0,)), ((), ())), precision=precision)
        x = moveaxis(y, -1, d)
    return x


def scale_and_translate(
    image: ArrayLike,
    shape: Sequence[int],
    spatial_dims: Sequence[int],
    scale: ArrayLike,
    translation: ArrayLike,
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: PrecisionLike = "highest",
) -> Any:
    """Scale and translate an image; output positions outside the image are 0.

    Args:
      image: an array of any rank.
      shape: the size of each dimension of the result.
      spatial_dims: the dimensions to scale.
      scale: the factor of each of these dimensions.
      translation: the shift of each of these dimensions, in positions of the result.
      method, antialias, precision: as in `resize`; not `"nearest"`.

    Returns:
      An array of that shape, of a floating dtype.

    Raises:
      ArgumentError: the method is unknown.
      ShapeError: `shape` has another rank than `image` or changes another dimension than `spatial_dims`, or `scale` or
        `translation` has not one entry for each of them.

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
        raise ArgumentError(
            "image.scale_and_translate, argument method",
            expected="a method that interpolates",
            got="'nearest'",
            fix="pass method='linear', or use image.resize for 'nearest'",
        )
    dims = canonical_axes(tuple(spatial_dims), rank, "image.scale_and_translate")
    kept = len(shape) == rank and all(shape[i] == np.shape(image)[i] for i in range(rank) if i not in dims)
    if not kept:
        raise ShapeError(
            "image.scale_and_translate, argument shape",
            expected="sizes that differ in spatial_dims only",
            got=shape,
            fix="add the dimensions that change to spatial_dims",
        )
    for name, v in (("scale", scale), ("translation", translation)):
        if np.shape(v) != (len(dims),):
            raise ShapeError(
                f"image.scale_and_translate, argument {name}",
                expected=f"{len(dims)} numbers",
                got=np.shape(v),
                fix="give one for each of spatial_dims",
            )
    return _scale_and_translate(image, scale, translation, shape, dims, method, antialias, precision)


@eager_jit(static_argnames=("shape", "dims", "method", "antialias", "precision"))
def _scale_and_translate(
    image: ArrayLike,
    scale: ArrayLike,
    translation: ArrayLike,
    shape: tuple,
    dims: tuple,
    method: ResizeMethod,
    antialias: bool,
    precision: PrecisionLike,
) -> Any:
    (x,) = promote_inexact("image.scale_and_translate", as_array(to_operand(image, "image.scale_and_translate")))
    kind = _weight_dtype(x)
    given = [cast(as_array(to_operand(v, "image.scale_and_translate")), kind) for v in (scale, translation)]
    scales, shifts = ({d: v[i] for i, d in enumerate(dims)} for v in given)
    return _resample(x, shape, dims, scales, shifts, method, antialias, precision)
