"""Bits packed into bytes and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.errors import ArgumentError, DTypeError
from phalanx.numpy.bodies import to_bool
from phalanx.numpy.operands import canonical_axis, cast, operand
from phalanx.numpy.shapes import moveaxis, ravel
from phalanx.runtime.dispatch import eager_program

_UINT8 = np.dtype(np.uint8)


def _order(bitorder: str, name: str) -> np.ndarray:
    if bitorder not in ("big", "little"):
        raise ArgumentError(
            f"{name}, argument bitorder", expected="'big' or 'little'", got=repr(bitorder), mend="use one"
        )
    return np.arange(8, dtype=np.uint8)[:: -1 if bitorder == "big" else 1].copy()


@eager_program(static_argnames=("axis", "bitorder"))
def packbits(a: Any, axis: int | None = None, bitorder: str = "big") -> Any:
    """Booleans along an axis packed into bytes.

    Args:
      a: integers or booleans; what is not 0 is a set bit.
      axis: the axis to pack, in groups of eight filled up with zeros; None to ravel first.
      bitorder: `"big"` makes the first of eight the highest bit, `"little"` the lowest.

    Returns:
      uint8 of the shape of `a`, with ceil(n / 8) bytes for n elements along the axis.

    Raises:
      ArgumentError: there is no such `bitorder`.
      AxisError: there is no such axis.
      DTypeError: `a` is of floating-point or complex numbers.

    Examples:
      >>> jnp.packbits(jnp.array([0, 0, 0, 0, 0, 1, 0, 1], dtype=bool)).tolist()
      [5]
    """
    x = operand(a, "packbits")
    if not dtypes.issubdtype(x.dtype, np.integer) and x.dtype != np.bool_:
        raise DTypeError("packbits", expected="integers or booleans", got=str(x.dtype), mend="compare with 0")
    x = to_bool(x)
    shifts = _order(bitorder, "packbits")
    if axis is None:
        x, axis = ravel(x), 0
    axis = canonical_axis(axis, x.ndim, "packbits")
    x = moveaxis(x, axis, -1)
    n = x.shape[-1]
    x = cast(x, _UINT8)
    if (missing := -n % 8) != 0:
        x = lax.pad(x, np.uint8(0), [(0, 0, 0)] * (x.ndim - 1) + [(0, missing, 0)])
    x = lax.reshape(x, (*x.shape[:-1], x.shape[-1] // 8, 8))
    return moveaxis(lax.reduce_sum(x << shifts, (x.ndim - 1,)), -1, axis)


@eager_program(static_argnames=("axis", "count", "bitorder"))
def unpackbits(a: Any, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Any:
    """Bytes along an axis unpacked into bits.

    Args:
      a: uint8.
      axis: the axis to unpack; None to ravel first.
      count: how many bits to keep along the axis, zeros filling up; a negative one drops as many at the end.
      bitorder: `"big"` for the highest bit first, `"little"` for the lowest.

    Returns:
      Zeros and ones as uint8, along the axis eight for each byte, or `count`.

    Raises:
      ArgumentError: there is no such `bitorder`.
      AxisError: there is no such axis.
      DTypeError: `a` is not of uint8.

    Examples:
      >>> jnp.unpackbits(jnp.array([5], dtype="uint8")).tolist()
      [0, 0, 0, 0, 0, 1, 0, 1]
    """
    x = operand(a, "unpackbits")
    if x.dtype != _UINT8:
        raise DTypeError("unpackbits", expected="an array of uint8", got=str(x.dtype), mend="convert it")
    shifts = _order(bitorder, "unpackbits")
    if axis is None:
        x, axis = ravel(x), 0
    axis = canonical_axis(axis, x.ndim, "unpackbits")
    x = moveaxis(x, axis, -1)
    bits = (x[..., None] >> shifts) & np.uint8(1)
    bits = lax.reshape(bits, (*x.shape[:-1], 8 * x.shape[-1]))
    if count is not None:
        size = bits.shape[-1]
        count = count + size if count < 0 else count
        if count > size:
            bits = lax.pad(bits, np.uint8(0), [(0, 0, 0)] * (bits.ndim - 1) + [(0, count - size, 0)])
        bits = bits[..., :count]
    return moveaxis(bits, -1, axis)
