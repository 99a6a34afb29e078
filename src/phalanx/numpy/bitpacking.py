"""Packing of bits into bytes, and unpacking.

Eight elements along the axis form the last dimension of a reshaped array; a byte is the sum of its shifted bits.
"""

from __future__ import annotations

import numpy as np

from phalanx import lax
from phalanx.core import DTypeError, dtypes
from phalanx.numpy.operands import cast, check_choice, flatten_without_axis, to_operand, to_static_int
from phalanx.numpy.shapes.padding import pad_or_truncate
from phalanx.numpy.shapes.reshaping import moveaxis
from phalanx.numpy.ufuncs.ufunc_implementations import to_bool
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import Array, ArrayLike

_UINT8 = np.dtype(np.uint8)


def _order(bitorder: str, name: str) -> np.ndarray:
    check_choice(f"{name}, argument bitorder", bitorder, ("big", "little"))
    # Shift amounts of the eight bits. `copy`, since a reversed view has negative strides, which cannot be
    # transferred.
    return np.arange(8, dtype=np.uint8)[:: -1 if bitorder == "big" else 1].copy()


@eager_jit(static_argnames=("axis", "bitorder"))
def packbits(a: ArrayLike, axis: int | None = None, bitorder: str = "big") -> Array:
    """Pack bits along an axis into bytes.

    Args:
      a: integers or booleans; nonzero elements are set bits.
      axis: the axis to pack, padded with zeros to a multiple of eight; None flattens the array first.
      bitorder: `"big"` if the first of eight elements is the most significant bit, `"little"` if the least.

    Returns:
      uint8 with the shape of `a` but ceil(n / 8) bytes for n elements along the axis.

    Raises:
      ArgumentError: `bitorder` is unknown.
      AxisError: an axis is out of range.
      DTypeError: `a` is neither integer nor boolean.

    Examples:
      >>> jnp.packbits(jnp.array([0, 0, 0, 0, 0, 1, 0, 1], dtype=bool)).tolist()
      [5]
    """
    x = to_operand(a, "packbits")
    if not dtypes.issubdtype(x.dtype, np.integer) and x.dtype != np.bool_:
        raise DTypeError(
            "packbits",
            expected="integers or booleans",
            got=str(x.dtype),
            fix="turn the numbers into bits, for example with a != 0",
        )
    shifts = _order(bitorder, "packbits")
    x, axis = flatten_without_axis(cast(to_bool(x), _UINT8), axis, "packbits")
    x = moveaxis(x, axis, -1)
    # The size may be symbolic, so that the comparison is explicit.
    if (missing := -x.shape[-1] % 8) != 0:
        x = lax.pad(x, np.uint8(0), [(0, 0, 0)] * (x.ndim - 1) + [(0, missing, 0)])
    x = lax.reshape(x, (*x.shape[:-1], x.shape[-1] // 8, 8))
    # The shifted bits do not overlap: their sum is their bitwise or.
    return moveaxis(lax.reduce_sum(x << np.reshape(shifts, (*[1] * (x.ndim - 1), 8)), (x.ndim - 1,)), -1, axis)


@eager_jit(static_argnames=("axis", "count", "bitorder"))
def unpackbits(a: ArrayLike, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Array:
    """Unpack bytes along an axis into bits.

    Args:
      a: uint8.
      axis: the axis to unpack; None flattens the array first.
      count: number of bits to keep along the axis, padded with zeros; a negative number drops bits at the end.
      bitorder: `"big"` for the most significant bit first, `"little"` for the least.

    Returns:
      Zeros and ones as uint8, with eight elements per byte along the axis, or `count` elements.

    Raises:
      ArgumentError: `bitorder` is unknown.
      AxisError: an axis is out of range.
      DTypeError: the dtype of `a` is not uint8.

    Examples:
      >>> jnp.unpackbits(jnp.array([5], dtype="uint8")).tolist()
      [0, 0, 0, 0, 0, 1, 0, 1]
    """
    x = to_operand(a, "unpackbits")
    if x.dtype != _UINT8:
        raise DTypeError(
            "unpackbits",
            expected="an array of uint8",
            got=str(x.dtype),
            fix="convert the operand with .astype('uint8')",
        )
    shifts = _order(bitorder, "unpackbits")
    x, axis = flatten_without_axis(x, axis, "unpackbits")
    x = moveaxis(x, axis, -1)
    bits = (x[..., None] >> np.reshape(shifts, (*[1] * x.ndim, 8))) & np.uint8(1)
    bits = lax.reshape(bits, (*x.shape[:-1], 8 * x.shape[-1]))
    if count is not None:
        # A negative count drops bits from the end.
        count = to_static_int(count, "unpackbits, argument count")
        bits = pad_or_truncate(bits, [count + bits.shape[-1] if count < 0 else count])
    return moveaxis(bits, -1, axis)
