"""Convolutions: `conv_general_dilated` and the functions written with it.

Builds on the primitive in `conv_primitive`; called by `phalanx.numpy`, `phalanx.scipy.signal` and the layers of
`phalanx.nnx`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from phalanx.core import dtypes, get_aval
from phalanx.lax.contraction.dot_general import dot_general
from phalanx.lax.contraction.precision import PrecisionLike, canonicalize_precision
from phalanx.lax.convolution.conv_dimension_numbers import (
    ConvDimensionNumbers,
    ConvGeneralDilatedDimensionNumbers,
    conv_dimension_numbers,
)
from phalanx.lax.convolution.conv_primitive import conv_general_dilated_p
from phalanx.lax.elementwise import convert_element_type
from phalanx.lax.shape import rev, transpose
from phalanx.lax.sharding.out_sharding import call_with_out_sharding
from phalanx.lax.windows.window_shape import Padding, conv_transpose_padding, padtype_to_pads
from phalanx.symbolic import dilate, static_size
from phalanx.typing import Array, ArrayLike, DTypeLike, Shape, ShardingLike


def conv_general_dilated(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Convolution of any number of dimensions, with strides, padding, dilation and groups.

    Unlike in mathematics the kernel is not reversed: `y[s] = sum over k of x[s * stride + k * dilation - low] w[k]`.

    Args:
      lhs: the input.
      rhs: the kernel, of the same rank.
      window_strides: the step of the window along each spatial dimension.
      padding: `"SAME"`, `"SAME_LOWER"`, `"VALID"`, or a pair (low, high) for each spatial dimension, negative to crop.
      lhs_dilation: the distance of neighbouring input elements, with zeros in between; 1 by default.
      rhs_dilation: the distance of neighbouring kernel elements; 1 by default.
      dimension_numbers: as in `conv_dimension_numbers`.
      feature_group_count: number of groups of input features, each with output features of its own.
      batch_group_count: number of groups of the batch, each with output features of its own.
      precision, preferred_element_type, out_sharding: as in `dot_general`.

    Returns:
      The convolution.

    Raises:
      ShapeError: the ranks, features or groups of the operands do not match.
      DTypeError: the dtypes have no common dtype.
      ArgumentError: the padding or the dimension numbers are not of a documented form.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> x, w = np.ones((1, 8, 8, 3), np.float32), np.ones((3, 3, 3, 16), np.float32)
      >>> lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")).shape
      (1, 4, 4, 16)
    """
    if out_sharding is not None:
        options = (
            *(window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers),
            *(feature_group_count, batch_group_count, precision, preferred_element_type),
        )
        convolve = lambda x, w: conv_general_dilated(x, w, *options)
        return call_with_out_sharding(convolve, (lhs, rhs), out_sharding, "lax.conv_general_dilated, out_sharding")
    x, w = get_aval(lhs), get_aval(rhs)
    specs = tuple(map(tuple, conv_dimension_numbers(x.shape, w.shape, dimension_numbers)))
    numbers = ConvDimensionNumbers(*specs)
    space = x.ndim - 2
    window_strides, lhs_dilation, rhs_dilation = (
        (1,) * space if v is None else tuple(map(int, v)) for v in (window_strides, lhs_dilation, rhs_dilation)
    )
    if isinstance(padding, str):
        window = [dilate(w.shape[k], r) for k, r in zip(numbers.rhs_spec[2:], rhs_dilation, strict=True)]
        extent = [dilate(x.shape[p], r) for p, r in zip(numbers.lhs_spec[2:], lhs_dilation, strict=True)]
        padding = padtype_to_pads(extent, window, window_strides, padding)
    if preferred_element_type is not None:
        preferred_element_type = dtypes.canonicalize_dtype(preferred_element_type)
    return conv_general_dilated_p(
        lhs,
        rhs,
        window_strides=window_strides,
        padding=tuple((static_size(lo), static_size(hi)) for lo, hi in padding),
        lhs_dilation=lhs_dilation,
        rhs_dilation=rhs_dilation,
        dimension_numbers=numbers,
        feature_group_count=int(feature_group_count),
        batch_group_count=int(batch_group_count),
        mapped=(),
        precision=canonicalize_precision(precision),
        preferred_element_type=preferred_element_type,
    )


def conv(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: str,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Convolution in the standard layout: num[n, i, *p], num[o, i, *k] -> num[n, o, *s].

    Args:
      lhs, rhs, window_strides, padding, precision, preferred_element_type: as in `conv_general_dilated`.

    Returns:
      The convolution.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.conv(np.ones((1, 3, 8)), np.ones((4, 3, 3)), (1,), "VALID").shape
      (1, 4, 6)
    """
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, precision=precision, preferred_element_type=preferred_element_type
    )


def conv_with_general_padding(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Convolution in the standard layout with dilation.

    Args:
      lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, precision, preferred_element_type: as in
        `conv_general_dilated`.

    Returns:
      The convolution.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.conv_with_general_padding(
      ...     np.ones((1, 3, 8)), np.ones((4, 3, 3)), (1,), [(1, 1)], (1,), (2,)
      ... ).shape
      (1, 4, 6)
    """
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def conv_transpose(
    lhs: ArrayLike,
    rhs: ArrayLike,
    strides: Sequence[int],
    padding: Padding,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    transpose_kernel: bool = False,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    use_consistent_padding: bool = False,
) -> Array:
    """Transposed convolution: the input is dilated by `strides` and convolved with stride 1.

    Args:
      lhs: the input.
      rhs: the kernel.
      strides: the dilation of the input; the strides of the convolution whose shape change this one reverses.
      padding: `"SAME"`, `"VALID"`, or a pair (low, high) for each spatial dimension of the dilated input.
      rhs_dilation: the distance of neighbouring kernel elements.
      dimension_numbers: as in `conv_dimension_numbers`; by default channels come last (`"NHC"`, `"HIO"`).
      transpose_kernel: reverse the kernel and exchange its feature dimensions, which gives the gradient of the
        convolution in its input.
      precision, preferred_element_type: as in `dot_general`.
      use_consistent_padding: interpret pairs as the padding of the convolution whose shape change is reversed.

    Returns:
      The transposed convolution.

    Raises:
      ArgumentError: the padding is neither a known name nor pairs.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.conv_transpose(np.ones((1, 4, 3)), np.ones((3, 3, 8)), (2,), "SAME").shape
      (1, 8, 8)
    """
    x, w = get_aval(lhs), get_aval(rhs)
    if dimension_numbers is None:
        space = tuple(range(1, x.ndim - 1))
        last = x.ndim - 1
        dimension_numbers = ConvDimensionNumbers(
            (0, last, *space), (last, last - 1, *range(x.ndim - 2)), (0, last, *space)
        )
    numbers = conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    rhs_spec = tuple(numbers.rhs_spec)
    dilation = (1,) * (x.ndim - 2) if rhs_dilation is None else tuple(rhs_dilation)
    window = [dilate(w.shape[k], r) for k, r in zip(rhs_spec[2:], dilation, strict=True)]
    if isinstance(padding, str):
        pads = [conv_transpose_padding(k, s, padding) for k, s in zip(window, strides, strict=True)]
    elif use_consistent_padding:
        # The transpose of an unpadded convolution needs the padding k - 1 for its kernel of size k, and each element of
        # padding (lo, hi) adds an output that the transpose must drop.
        pads = [(k - 1 - lo, k - 1 - hi) for k, (lo, hi) in zip(window, padding, strict=True)]
    else:
        pads = list(padding)
    if transpose_kernel:
        rhs = rev(rhs, rhs_spec[2:])
        numbers = numbers._replace(rhs_spec=(rhs_spec[1], rhs_spec[0], *rhs_spec[2:]))
    return conv_general_dilated(
        lhs,
        rhs,
        (1,) * (x.ndim - 2),
        pads,
        strides,
        dilation,
        numbers,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def conv_general_dilated_patches(
    lhs: ArrayLike,
    filter_shape: Shape,
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """The patches under a convolution's window, as features of the result.

    Args:
      lhs: the input.
      filter_shape: the spatial sizes of the window.
      window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, precision, preferred_element_type: as in
        `conv_general_dilated`.

    Returns:
      An array shaped like the convolution's result. Its feature dimension contains, for each input feature, the
      elements of the patch in row-major order.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.conv_general_dilated_patches(np.ones((1, 3, 8, 8)), (2, 2), (1, 1), "VALID").shape
      (1, 12, 7, 7)
    """
    x = get_aval(lhs)
    filter_shape = tuple(map(int, filter_shape))
    numbers = conv_dimension_numbers(x.shape, (1, 1, *filter_shape), dimension_numbers)
    features, patch = x.shape[numbers.lhs_spec[1]], int(np.prod(filter_shape))
    # A kernel of one-hot windows, the same for each feature: each output feature copies one element of the patch. As a
    # convolution, the extraction of patches has all derivatives and is partitioned like other convolutions.
    kernel = np.tile(np.eye(patch).reshape(patch, 1, *filter_shape), (features, 1, *[1] * len(filter_shape)))
    kernel = convert_element_type(np.moveaxis(kernel, range(x.ndim), numbers.rhs_spec), x.dtype)
    return conv_general_dilated(
        lhs,
        kernel,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        numbers,
        feature_group_count=features,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def conv_general_dilated_local(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: Padding,
    filter_shape: Shape,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    precision: PrecisionLike = None,
) -> Array:
    """A convolution with a different kernel at each position.

    Args:
      lhs: the input.
      rhs: the kernels. The spatial dimensions have the sizes of the result's, and the input feature dimension runs over
        features and window positions in row-major order.
      window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, precision: as in `conv_general_dilated`.
      filter_shape: the spatial sizes of the window.

    Returns:
      The result, with the dimensions of a convolution's result.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.conv_general_dilated_local(np.ones((2, 3, 8)), np.ones((4, 6, 7)), (1,), "VALID", (2,)).shape
      (2, 4, 7)
    """
    numbers = conv_dimension_numbers(get_aval(lhs).shape, get_aval(rhs).shape, dimension_numbers)
    lhs_spec, rhs_spec, out_spec = map(tuple, numbers)
    patches = conv_general_dilated_patches(
        lhs,
        filter_shape,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        ConvDimensionNumbers(lhs_spec, rhs_spec, lhs_spec),
        precision,
    )
    # The spatial dimensions are batch dimensions, since every position has its own kernel.
    # Their products have the shape [*space, batch, output feature].
    products = dot_general(patches, rhs, (((lhs_spec[1],), (rhs_spec[1],)), (lhs_spec[2:], rhs_spec[2:])), precision)
    space = len(out_spec) - 2
    order = [0] * len(out_spec)
    for d, source in zip(out_spec, (space, space + 1, *range(space)), strict=True):
        order[d] = source
    return transpose(products, order)
