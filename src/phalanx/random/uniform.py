"""Uniform numbers: reals, integers, coins. All other distributions are made of these.

Builds on `keys` and `parameters`. A real in [0, 1) takes its mantissa from random bits: the bits are put under the
exponent of 1, which gives a number in [1, 2), and 1 is taken off.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.aval import aval_of
from phalanx.core.errors import ArgumentError, ArgumentTypeError
from phalanx.random.keys import static_shape
from phalanx.random.parameters import (
    broadcast_to,
    distribution,
    float_dtype,
    int_dtype,
    key_of,
    new_keys,
    parameters,
    placed,
)
from phalanx.random.primitives import random_bits_p
from phalanx.random.rounds import bits_at


def unit(key: Any, at: Any, dtype: Any) -> Any:
    """Numbers in [0, 1) from a typed key, of a shape or at `Positions`."""
    info = dtypes.finfo(dtype)
    # A mantissa of at most 8 bits is filled from 8 random ones.
    width = info.bits if info.nmant > 8 else 8
    drawn = bits_at(key, width, at)
    holder = np.dtype(f"uint{info.bits}")
    mantissa = lax.shift_right_logical(drawn, drawn.dtype.type(width - info.nmant))
    mantissa = lax.convert_element_type(mantissa, holder)
    one = np.asarray(1, dtype).view(holder)[()]
    return lax.sub(lax.bitcast_convert_type(lax.bitwise_or(mantissa, one), dtype), np.asarray(1, dtype)[()])


def between(key: Any, at: Any, dtype: Any, low: Any, high: Any) -> Any:
    """Numbers in [low, high), parameters of `dtype` that have the shape or rank 0."""
    drawn = lax.add(lax.mul(unit(key, at, dtype), lax.sub(high, low)), low)
    return lax.max(low, drawn)  # rounding may have gone below


@distribution()
def uniform(
    key: Any, shape: Any = (), dtype: Any = None, minval: Any = 0.0, maxval: Any = 1.0, *, out_sharding: Any = None
) -> Any:
    """Real numbers, each as likely as any other in [minval, maxval).

    Args:
      key: a key.
      shape: the shape of the result.
      dtype: a floating dtype; the default one if None.
      minval: the least value, which broadcasts to the shape.
      maxval: the bound above, which broadcasts to the shape.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      An array of `dtype` and shape `shape`.

    Raises:
      ArgumentError: `dtype` is not floating.
      ShapeError: a bound does not broadcast to the shape.

    Examples:
      >>> from phalanx import random
      >>> x = random.uniform(random.key(0), (3,), minval=2.0, maxval=3.0)
      >>> bool((x >= 2).all() and (x < 3).all())
      True
    """
    key = key_of("uniform", key)
    dtype = float_dtype("uniform", dtype)
    shape = static_shape("uniform", shape)
    if type(minval) is float and type(maxval) is float and (minval, maxval) == (0.0, 1.0):
        return placed(unit(key, shape, dtype), out_sharding)
    _, (low, high) = parameters("uniform", shape, dtype, minval=minval, maxval=maxval)
    return placed(between(key, shape, dtype, low, high), out_sharding)


def randint(key: Any, shape: Any, minval: Any, maxval: Any, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Integers, each as likely as any other in [minval, maxval).

    Args:
      key: a key.
      shape: the shape of the result.
      minval: the least value, which broadcasts to the shape.
      maxval: the bound above, which broadcasts to the shape; one more than the greatest of `dtype` means all values.
      dtype: an integer dtype; the default one if None.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      An array of `dtype` and shape `shape`; `minval` where `maxval` is not above it.

    Raises:
      ArgumentError: `dtype` is no integer dtype.
      ShapeError: a bound does not broadcast to the shape.

    Examples:
      >>> from phalanx import random
      >>> x = random.randint(random.key(0), (100,), 2, 5)
      >>> sorted(set(x.tolist()))
      [2, 3, 4]
    """
    dtype = int_dtype("randint", dtype)
    shape = static_shape("randint", shape)
    # Bounds that Python wrote are clipped here, where they still have all their digits.
    low, _ = _clipped(minval, dtype)
    high, is_beyond = _clipped(maxval, dtype)
    return _randint(key, shape, low, high, is_beyond, dtype, out_sharding=out_sharding)


@distribution("is_beyond")
def _randint(
    key: Any, shape: tuple, low: Any, high: Any, is_beyond: bool, dtype: Any, *, out_sharding: Any = None
) -> Any:
    key = key_of("randint", key)
    (low, _), (high, beyond) = _within(low, dtype), _within(high, dtype)
    # Narrow integers are drawn as wide ones and cut, so that they are as evenly spread.
    narrow, dtype = dtype, dtype if dtypes.itemsize_bits(dtype) >= 32 else np.dtype(np.int32)
    low, high = parameters("randint", shape, dtype, minval=low, maxval=high)[1]
    if is_beyond or beyond is not None:
        beyond = np.asarray(is_beyond) if beyond is None else beyond
        beyond = lax.bitwise_and(broadcast_to(beyond, shape), lax.gt(high, low))
    bits = dtypes.itemsize_bits(dtype)
    word = np.dtype(f"uint{bits}")
    key_high, key_low = new_keys(key, 2)
    upper = random_bits_p(key_high, width=bits, shape=shape)
    lower = random_bits_p(key_low, width=bits, shape=shape)
    span = lax.convert_element_type(lax.sub(high, low), word)
    span = lax.select(lax.le(high, low), lax.full_like(span, 1), span)
    if beyond is not None:
        span = lax.select(beyond, lax.add(span, word.type(1)), span)
    # Two words modulo the span: 2**bits is taken modulo it as the square of 2**(bits / 2).
    factor = lax.rem(lax.full_like(span, 2 ** (bits // 2)), span)
    factor = lax.rem(lax.mul(factor, factor), span)
    offset = lax.rem(lax.add(lax.mul(lax.rem(upper, span), factor), lax.rem(lower, span)), span)
    if beyond is not None:  # all values of the dtype: the span overflowed to 0
        offset = lax.select(lax.eq(span, word.type(0)), lower, offset)
    drawn = lax.add(low, lax.convert_element_type(offset, dtype))
    return placed(lax.convert_element_type(drawn, narrow), out_sharding)


def _clipped(bound: Any, dtype: Any) -> tuple[Any, bool]:
    """A bound that Python wrote within the dtype, and whether it was above all its values; others as they are."""
    if not isinstance(bound, int | np.integer):
        return np.asarray(bound) if isinstance(bound, list | tuple) else bound, False
    info = dtypes.iinfo(dtype)
    return np.asarray(min(max(int(bound), int(info.min)), int(info.max)), dtype)[()], int(bound) > int(info.max)


def _within(bound: Any, dtype: Any) -> tuple[Any, Any]:
    """An array bound within the dtype, and where it was above all its values (None if its own dtype cannot be)."""
    info, have = dtypes.iinfo(dtype), aval_of(bound).dtype
    if not dtypes.issubdtype(have, np.integer):
        raise ArgumentTypeError(
            "random.randint", expected="integer bounds", got=aval_of(bound).str_short(), mend="convert them with astype"
        )
    beyond = None
    if dtypes.iinfo(have).max > info.max:
        beyond = lax.gt(bound, have.type(info.max))
        bound = lax.min(bound, have.type(info.max))
    if dtypes.iinfo(have).min < info.min:
        bound = lax.max(bound, have.type(info.min))
    return bound, beyond


@distribution()
def bernoulli(key: Any, p: Any = 0.5, shape: Any = None, mode: str = "low", *, out_sharding: Any = None) -> Any:
    """True with probability p.

    Args:
      key: a key.
      p: probabilities, which broadcast to the shape.
      shape: the shape of the result; that of `p` if None.
      mode: "low" compares p with one random number of its dtype, "high" with one of twice the digits, which tells
        apart probabilities close to 0.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      A boolean array.

    Raises:
      ArgumentError: `mode` is neither.
      ShapeError: `p` does not broadcast to the shape.

    Examples:
      >>> from phalanx import random
      >>> random.bernoulli(random.key(0), 0.0, (3,)).tolist()
      [False, False, False]
    """
    key = key_of("bernoulli", key)
    check_mode("bernoulli", mode)
    dtype = dtypes.to_inexact_dtype(aval_of(p).dtype if not isinstance(p, list | tuple) else np.dtype("float32"))
    shape, (p,) = parameters("bernoulli", shape, dtype, p=p)
    if mode == "low":
        return placed(lax.lt(unit(key, shape, dtype), p), out_sharding)
    key_high, key_low = new_keys(key, 2)
    digit = lax.mul(unit(key_low, shape, dtype), dtypes.finfo(dtype).eps)
    return placed(lax.lt(lax.sub(unit(key_high, shape, dtype), p), lax.neg(digit)), out_sharding)


def check_mode(where: str, mode: Any) -> None:
    """Refuse a resolution that is neither low nor high."""
    if mode not in ("low", "high"):
        raise ArgumentError(
            f"random.{where}, mode", expected="'low' or 'high'", got=repr(mode), mend="pass one of these"
        )


@distribution()
def rademacher(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """-1 or 1 with equal probability.

    Args:
      key: a key.
      shape: the shape of the result.
      dtype: a numeric dtype; the default integer if None.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      An array of `dtype` and shape `shape`.

    Examples:
      >>> from phalanx import random
      >>> sorted(set(random.rademacher(random.key(0), (50,)).tolist()))
      [-1, 1]
    """
    key = key_of("rademacher", key)
    dtype = dtypes.requested_dtype(int if dtype is None else dtype, "random.rademacher")
    width = dtypes.canonicalize_dtype(np.float64)  # that of the coins that `bernoulli` tosses
    coin = lax.lt(unit(key, static_shape("rademacher", shape), width), width.type(0.5))
    signs = lax.convert_element_type(coin, dtype)
    return placed(lax.sub(lax.mul(signs, dtype.type(2)), dtype.type(1)), out_sharding)
