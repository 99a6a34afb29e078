"""Shapes of sliding windows: named padding, and the number of positions of a window.

Arithmetic on shapes alone, which may be symbolic. Called by convolutions, window reductions and `lax.pad`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from phalanx.core import ArgumentError
from phalanx.symbolic import dilate, max_dim, static_size, windows
from phalanx.typing import DimSize, Shape

Padding: TypeAlias = str | Sequence[tuple[int, int]]


def crop_negative_padding(
    shape: Sequence[int], padding: Sequence[tuple[int, int]], dilation: Sequence[int]
) -> tuple[tuple, tuple, tuple]:
    """Replace negative padding by a slice: the starts and stops of the slice, and the padding that remains.

    Args:
      shape: sizes of the padded dimensions.
      padding: a pair (low, high) for each dimension; a negative number removes elements.
      dilation: the dilation of each dimension, which is applied before the padding.

    Returns:
      Starts and stops along each dimension, and for each a pair of padding amounts. Removing an
      element also removes the dilation holes after it. If these are more than the padding removes, the remaining
      padding is positive and restores them.
    """
    found: list[tuple] = []
    for n, (low, high), step in zip(shape, padding, dilation, strict=True):
        first, last = (-(p // step) if p < 0 else 0 for p in (low, high))
        if first + last < n or not first + last:
            found.append((first, n - last, (low + first * step, high + last * step)))
        else:  # no element remains
            found.append((0, 0, (0, dilate(n, step) + low + high)))
    starts, stops, rest = zip(*found, strict=True) if found else ((), (), ())
    return starts, stops, rest


def padtype_to_pads(
    in_shape: Shape, window_shape: Shape, window_strides: Sequence[int], padding: Padding
) -> list[tuple[int, int]]:
    """The amounts of padding for a name such as `"SAME"`.

    Args:
      in_shape: sizes of the padded dimensions.
      window_shape: sizes of the window.
      window_strides: steps of the window.
      padding: `"SAME"` (result size `ceil(in / stride)`, an odd element at the end), `"SAME_LOWER"` (an odd element
        at the start), `"VALID"` (no padding), or the amounts themselves.

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
            fix="pass 'SAME' or 'VALID', or a pair (low, high) for each spatial dimension",
        )
    pads = []
    for sizes in zip(in_shape, window_shape, window_strides, strict=True):
        size, window, stride = map(static_size, sizes)
        # With stride 1 the padding does not depend on the size.
        if stride == 1:
            total = window - 1  # valid for symbolic sizes too
        else:
            total = max_dim((-(-size // stride) - 1) * stride + window - size, 0)
        low = total // 2 if name == "SAME" else total - total // 2
        pads.append((low, total - low))
    return pads


def num_windows(
    size: DimSize, window: DimSize, stride: int, pads: tuple, base_dilation: int = 1, window_dilation: int = 1
) -> DimSize:
    """The number of positions of a window along one dimension."""
    return windows(dilate(size, base_dilation) + pads[0] + pads[1], dilate(window, window_dilation), stride)


def cotangent_padding(
    size: DimSize, window: DimSize, count: DimSize, stride: int, pads: tuple, base_dilation: int, window_dilation: int
) -> tuple:
    """The padding under which the cotangents of `count` windows have a window for each of `size` elements."""
    reach = dilate(window, window_dilation) - 1
    # The first window of the cotangents must end at the first element of the operand.
    low = reach - pads[0]
    return low, dilate(size, base_dilation) + reach - dilate(count, stride) - low


def conv_transpose_padding(window: int, stride: int, padding: str) -> tuple[int, int]:
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
            fix="pass 'SAME' or 'VALID', or a pair (low, high) for each spatial dimension",
        )
    return low, total - low
