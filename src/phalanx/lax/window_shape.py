"""Shapes of windows: dimension numbers and padding of convolutions, and how many places a window has.

Arithmetic on shapes alone, which may be symbolic; called by `conv` and `windows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from phalanx.core.errors import ArgumentError, ShapeError
from phalanx.symbolic import dilate, max_dim, windows


class ConvDimensionNumbers(NamedTuple):
    """Which dimension of a convolution's operands and result plays which part.

    Args:
      lhs_spec: the dimensions of the input: batch, feature, then the spatial ones.
      rhs_spec: those of the kernel: output feature, input feature, then the spatial ones.
      out_spec: those of the result: batch, feature, then the spatial ones.

    Examples:
      >>> from phalanx import lax
      >>> lax.conv_dimension_numbers((1, 8, 8, 3), (3, 3, 3, 4), ("NHWC", "HWIO", "NHWC")).rhs_spec
      (3, 2, 0, 1)
    """

    lhs_spec: Sequence[int]
    rhs_spec: Sequence[int]
    out_spec: Sequence[int]


ConvGeneralDilatedDimensionNumbers = None | ConvDimensionNumbers | tuple[str, str, str]
Padding = str | Sequence[tuple[int, int]]


def conv_dimension_numbers(lhs_shape: Sequence[int], rhs_shape: Sequence[int], dimension_numbers: Any) -> Any:
    """Write a convolution's dimension numbers in full.

    Args:
      lhs_shape: the shape of the input.
      rhs_shape: the shape of the kernel.
      dimension_numbers: None for batch, feature, spatial dimensions and output, input feature, spatial dimensions; or
        three strings such as `("NHWC", "HWIO", "NHWC")`, of `N`, `C` and spatial letters, `O`, `I` and the
        same letters; or a `ConvDimensionNumbers`.

    Returns:
      A `ConvDimensionNumbers`.

    Raises:
      ShapeError: the ranks differ or are below 2.
      ArgumentError: the strings are not of that form.

    Examples:
      >>> from phalanx import lax
      >>> lax.conv_dimension_numbers((1, 8, 8, 3), (3, 3, 3, 16), ("NHWC", "HWIO", "NHWC"))
      ConvDimensionNumbers(lhs_spec=(0, 3, 1, 2), rhs_spec=(3, 2, 0, 1), out_spec=(0, 3, 1, 2))
    """
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    ndim = len(lhs_shape)
    if ndim != len(rhs_shape) or ndim < 2:
        raise ShapeError(
            "convolution operands",
            expected="input and kernel of equal rank, at least 2",
            got=f"shapes {tuple(lhs_shape)} and {tuple(rhs_shape)}",
            mend="add the missing batch or feature dimensions",
        )
    if dimension_numbers is None:
        plain = tuple(range(ndim))
        return ConvDimensionNumbers(plain, plain, plain)
    specs = tuple(dimension_numbers)
    if len(specs) == 3 and all(isinstance(s, str) for s in specs):
        return ConvDimensionNumbers(*conv_general_permutations(specs, ndim))
    raise _specs_error(dimension_numbers, ndim)


def without_negative(
    shape: Sequence[int], padding: Sequence[tuple[int, int]], dilation: Sequence[int]
) -> tuple[tuple, tuple, tuple]:
    """Where to start and stop along each dimension so that no padding is negative, and the padding that is left.

    Over several devices XLA takes what is whole off at the wrong end, and fails where the dimension is dilated.
    """
    found = []
    for n, (low, high), step in zip(shape, padding, dilation, strict=True):
        first, last = (-(p // step) if p < 0 else 0 for p in (low, high))
        if first + last < n or not first + last:
            found.append((first, n - last, (low + first * step, high + last * step)))
        else:  # nothing is left
            found.append((0, 0, (0, dilate(n, step) + low + high)))
    starts, stops, rest = zip(*found, strict=True) if found else ((), (), ())
    return starts, stops, rest


def conv_general_permutations(dimension_numbers: Sequence[str], ndim: int | None = None) -> tuple:
    """The orders that bring a convolution's operands and result into the standard layout.

    Args:
      dimension_numbers: three strings, such as `("NHWC", "HWIO", "NHWC")`.
      ndim: the rank they must have, if it is known.

    Returns:
      Three tuples of dimensions: of the input (batch, feature, spatial), of the kernel (output feature, input feature,
      spatial) and of the result, with the spatial dimensions in the order in which the kernel's string names them.

    Raises:
      ArgumentError: a letter is missing, repeated, or not shared.

    Examples:
      >>> from phalanx.lax import conv_general_permutations
      >>> conv_general_permutations(("NWC", "WIO", "NWC"))
      ((0, 2, 1), (2, 1, 0), (0, 2, 1))
    """
    lhs, rhs, out = dimension_numbers
    spatial = [c for c in rhs if c not in "OI"]
    pairs = ((lhs, "NC"), (rhs, "OI"), (out, "NC"))
    for spec, pair in pairs:
        if sorted(spec) != sorted([*pair, *spatial]) or len(set(spec)) != len(spec) or len(spec) != (ndim or len(spec)):
            raise _specs_error(tuple(dimension_numbers), ndim)
    lhs_spec, rhs_spec, out_spec = (tuple(spec.index(c) for c in (*pair, *spatial)) for spec, pair in pairs)
    return lhs_spec, rhs_spec, out_spec


def _specs_error(specs: Any, ndim: int | None) -> ArgumentError:
    letters = "" if ndim is None else f" of {ndim} letters"
    return ArgumentError(
        "convolution dimension_numbers",
        expected=f"three strings{letters}: N, C and spatial letters; O, I and the same; N, C and the same",
        got=repr(specs),
        mend="write for example ('NHWC', 'HWIO', 'NHWC')",
    )


def padtype_to_pads(in_shape: Any, window_shape: Any, window_strides: Any, padding: Padding) -> list[tuple[int, int]]:
    """The amounts that a named padding stands for.

    Args:
      in_shape: sizes of the padded dimensions.
      window_shape: sizes of the window.
      window_strides: steps of the window.
      padding: `"SAME"` (result size `ceil(in / stride)`, the surplus at the end), `"SAME_LOWER"` (the surplus at the
        start), `"VALID"` (no padding), or the amounts themselves.

    Returns:
      One pair (low, high) for each dimension.

    Raises:
      ArgumentError: the name is unknown.

    Examples:
      >>> from phalanx import lax
      >>> lax.padtype_to_pads((8, 8), (3, 4), (1, 1), "SAME")
      [(1, 1), (1, 2)]
    """
    if not isinstance(padding, str):
        return [(int(lo), int(hi)) for lo, hi in padding]
    name = padding.upper()
    if name == "VALID":
        return [(0, 0)] * len(in_shape)
    if name not in ("SAME", "SAME_LOWER"):
        raise ArgumentError(
            "padding",
            expected="'SAME', 'SAME_LOWER', 'VALID' or a sequence of pairs",
            got=repr(padding),
            mend="use one of these names, or give (low, high) for each spatial dimension",
        )
    pads = []
    for size, window, stride in zip(in_shape, window_shape, window_strides, strict=True):
        if stride == 1:
            total = window - 1  # also where the size is symbolic
        else:
            total = max_dim((-(-size // stride) - 1) * stride + window - size, 0)
        low = total // 2 if name == "SAME" else total - total // 2
        pads.append((low, total - low))
    return pads


def windowed(size: Any, window: int, stride: int, pads: tuple, base_dilation: int = 1, window_dilation: int = 1) -> Any:
    """How many positions a window has along one dimension, which may be symbolic."""
    return windows(dilate(size, base_dilation) + pads[0] + pads[1], dilate(window, window_dilation), stride)


def cotangent_pads(
    size: Any, window: Any, count: Any, stride: int, pads: tuple, base_dilation: int, window_dilation: int
) -> tuple:
    """The padding under which the cotangents of `count` windows have a window for each of `size` elements."""
    reach = dilate(window, window_dilation) - 1
    low = reach - pads[0]
    return low, dilate(size, base_dilation) + reach - dilate(count, stride) - low


def transposed_pads(window: int, stride: int, padding: str) -> tuple[int, int]:
    """The padding that makes a dilated convolution undo the shape change of one with `padding`."""
    if padding.upper() == "VALID":
        total, low = window + stride - 2 + max(window - stride, 0), window - 1
    elif padding.upper() == "SAME":
        total = window + stride - 2
        low = window - 1 if stride > window - 1 else -(-total // 2)
    else:
        raise ArgumentError(
            "conv_transpose padding",
            expected="'SAME', 'VALID' or a sequence of pairs",
            got=repr(padding),
            mend="use one of these names, or give (low, high) for each spatial dimension",
        )
    return low, total - low


def conv_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    strides: Sequence[int],
    pads: Padding,
    batch_group_count: int = 1,
) -> tuple:
    """The shape of `conv` in the standard layout.

    Args:
      lhs_shape, rhs_shape: the operands' shapes.
      strides, pads: the window's steps, and its padding by name or amount.
      batch_group_count: number of groups of the batch.

    Returns:
      The result's shape.

    Examples:
      >>> from phalanx import lax
      >>> lax.conv_shape_tuple((1, 3, 8, 8), (4, 3, 3, 3), (2, 2), "VALID")
      (1, 4, 3, 3)
    """
    amounts = padtype_to_pads(lhs_shape[2:], rhs_shape[2:], strides, pads)
    spatial = [windowed(*dim) for dim in zip(lhs_shape[2:], rhs_shape[2:], strides, amounts, strict=True)]
    return (lhs_shape[0] // batch_group_count, rhs_shape[0], *spatial)


def conv_general_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: Padding,
    dimension_numbers: Any,
) -> tuple:
    """The shape of `conv_general_dilated` without dilation or groups.

    Args:
      lhs_shape, rhs_shape, window_strides, padding, dimension_numbers: as in `conv_general_dilated`.

    Returns:
      The result's shape.

    Examples:
      >>> from phalanx import lax
      >>> lax.conv_general_shape_tuple((1, 8, 3), (3, 3, 4), (1,), "SAME", ("NWC", "WIO", "NWC"))
      (1, 8, 4)
    """
    lhs, rhs, out = conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers)
    standard = conv_shape_tuple([lhs_shape[d] for d in lhs], [rhs_shape[d] for d in rhs], window_strides, padding)
    return tuple(standard[list(out).index(d)] for d in range(len(out)))


def conv_transpose_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: Padding,
    dimension_numbers: Any,
) -> tuple:
    """The shape of `conv_transpose` without dilation of the kernel.

    Args:
      lhs_shape, rhs_shape, window_strides, padding, dimension_numbers: as in `conv_transpose`.

    Returns:
      The result's shape.

    Examples:
      >>> from phalanx import lax
      >>> lax.conv_transpose_shape_tuple((1, 4, 3), (3, 3, 8), (2,), "SAME", ("NWC", "WIO", "NWC"))
      (1, 8, 8)
    """
    lhs, rhs, out = conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers)
    window = [rhs_shape[d] for d in rhs[2:]]
    if isinstance(padding, str):
        padding = [transposed_pads(k, s, padding) for k, s in zip(window, window_strides, strict=True)]
    extent = [dilate(lhs_shape[d], s) for d, s in zip(lhs[2:], window_strides, strict=True)]
    spatial = [windowed(e, k, 1, pads) for e, k, pads in zip(extent, window, padding, strict=True)]
    standard = (lhs_shape[lhs[0]], rhs_shape[rhs[0]], *spatial)
    return tuple(standard[list(out).index(d)] for d in range(len(out)))
