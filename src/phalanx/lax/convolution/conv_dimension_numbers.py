"""Dimension numbers of convolutions, and the shapes of their results.

Arithmetic on shapes alone, which may be symbolic. Called by the primitive and the public functions of convolutions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from phalanx.core import ArgumentError, ShapeError
from phalanx.lax.windows.window_shape import Padding, conv_transpose_padding, num_windows, padtype_to_pads
from phalanx.symbolic import dilate


class ConvDimensionNumbers(NamedTuple):
    """The roles of the dimensions of a convolution's operands and result.

    Args:
      lhs_spec: the dimensions of the input: batch, feature, then the spatial ones.
      rhs_spec: the dimensions of the kernel: output feature, input feature, then the spatial ones.
      out_spec: the dimensions of the result: batch, feature, then the spatial ones.

    Examples:
      >>> from phalanx import lax
      >>> lax.conv_dimension_numbers((1, 8, 8, 3), (3, 3, 3, 4), ("NHWC", "HWIO", "NHWC")).rhs_spec
      (3, 2, 0, 1)
    """

    lhs_spec: Sequence[int]
    rhs_spec: Sequence[int]
    out_spec: Sequence[int]


ConvGeneralDilatedDimensionNumbers: TypeAlias = ConvDimensionNumbers | Sequence[str] | None


def conv_dimension_numbers(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], dimension_numbers: ConvGeneralDilatedDimensionNumbers
) -> ConvDimensionNumbers:
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
            fix="reshape the operand of lower rank, adding batch or feature dimensions of size 1",
        )
    if dimension_numbers is None:
        plain = tuple(range(ndim))
        return ConvDimensionNumbers(plain, plain, plain)
    specs = tuple(dimension_numbers)
    if len(specs) == 3 and all(isinstance(s, str) for s in specs):
        return ConvDimensionNumbers(*conv_general_permutations(specs, ndim))
    raise _specs_error(dimension_numbers, ndim)


def conv_general_permutations(dimension_numbers: Sequence[str], ndim: int | None = None) -> tuple:
    """The permutations from a convolution's operands and result to the standard layout.

    Args:
      dimension_numbers: three strings, such as `("NHWC", "HWIO", "NHWC")`.
      ndim: the expected rank; None to accept any.

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


def _specs_error(specs: object, ndim: int | None) -> ArgumentError:
    letters = "" if ndim is None else f" of {ndim} letters"
    return ArgumentError(
        "convolution dimension_numbers",
        expected=f"three strings{letters}: N, C and spatial letters; O, I and these letters; N, C and these letters",
        got=repr(specs),
        fix="pass three strings such as ('NHWC', 'HWIO', 'NHWC')",
    )


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
    pads = padtype_to_pads(lhs_shape[2:], rhs_shape[2:], strides, pads)
    spatial = [num_windows(*dim) for dim in zip(lhs_shape[2:], rhs_shape[2:], strides, pads, strict=True)]
    return (lhs_shape[0] // batch_group_count, rhs_shape[0], *spatial)


def conv_general_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: Padding,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers,
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
    dimension_numbers: ConvGeneralDilatedDimensionNumbers,
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
        padding = [conv_transpose_padding(k, s, padding) for k, s in zip(window, window_strides, strict=True)]
    extent = [dilate(lhs_shape[d], s) for d, s in zip(lhs[2:], window_strides, strict=True)]
    spatial = [num_windows(e, k, 1, pads) for e, k, pads in zip(extent, window, padding, strict=True)]
    sizes = dict(zip(out, (lhs_shape[lhs[0]], rhs_shape[rhs[0]], *spatial), strict=True))
    return tuple(sizes[d] for d in range(len(out)))
