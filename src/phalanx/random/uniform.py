"""Uniform distributions: floating-point numbers, integers, coins. All other distributions are built on these.

A floating-point number in [0, 1) is made from random bits without rounding: the bits fill the mantissa of a number in
[1, 2), from which 1 is subtracted. Builds on `distribution_parameters`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, ArgumentTypeError, dtypes, get_aval
from phalanx.lax.shape import broadcast_to_shape
from phalanx.random.distribution_parameters import broadcast_parameters, distribution, float_dtype, int_dtype
from phalanx.random.prng_keys import check_shape, random_bits_p, split_key
from phalanx.random.rejection_sampling import SampleShape, bits_at
from phalanx.typing import Array, ArrayLike, DTypeLike, PRNGKey, Shape, ShardingLike


def uniform_unit(key: Array, at: SampleShape, dtype: DTypeLike) -> Array:
    """Uniform numbers in [0, 1) from a typed key."""
    info = dtypes.finfo(dtype)
    # 8 random bits are enough for a mantissa of at most 8 bits.
    width = info.bits if info.nmant > 8 else 8
    drawn = bits_at(key, width, at)
    # The unsigned dtype of the width of the float, whose bits are assembled in it.
    holder = np.dtype(f"uint{info.bits}")
    shifted = lax.shift_right_logical(drawn, drawn.dtype.type(width - info.nmant))
    # The bits of 1.0: sign 0, the exponent of [1, 2), and a zero mantissa.
    one = np.asarray(1, dtype).view(holder)[()]
    bits = lax.bitwise_or(lax.convert_element_type(shifted, holder), one)
    return lax.sub(lax.bitcast_convert_type(bits, dtype), np.asarray(1, dtype)[()])


def uniform_pair(key: Array, shape: tuple, dtype: DTypeLike) -> tuple[Array, Array]:
    """Two uniform numbers in [0, 1) for each element."""
    pair = uniform_unit(key, (2, *shape), dtype)
    return lax.index_in_dim(pair, 0, keepdims=False), lax.index_in_dim(pair, 1, keepdims=False)


def uniform_between(key: Array, at: SampleShape, dtype: DTypeLike, low: ArrayLike, high: ArrayLike) -> Array:
    """Uniform numbers in [low, high); the bounds have `dtype`, and the shape of the result or rank 0."""
    drawn = lax.add(lax.mul(uniform_unit(key, at, dtype), lax.sub(high, low)), low)
    return lax.max(low, drawn)  # the sum may be rounded below `low`


@distribution(dtype=float_dtype)
def uniform(
    key: PRNGKey,
    shape: Shape = (),
    dtype: DTypeLike | None = None,
    minval: ArrayLike = 0.0,
    maxval: ArrayLike = 1.0,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Samples of the uniform distribution over [minval, maxval).

    Args:
      key: the random key.
      shape: the shape of the result.
      dtype: a floating dtype; the default floating dtype if None.
      minval: the least value, which broadcasts to the shape.
      maxval: the exclusive upper bound, which broadcasts to the shape.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; chosen by the compiler if None.

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
    if type(minval) is float and type(maxval) is float and (minval, maxval) == (0.0, 1.0):
        return uniform_unit(key, shape, dtype)
    _, (low, high) = broadcast_parameters("uniform", shape, dtype, minval=minval, maxval=maxval)
    return uniform_between(key, shape, dtype, low, high)


def randint(
    key: PRNGKey,
    shape: Shape,
    minval: ArrayLike,
    maxval: ArrayLike,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Uniformly distributed integers in [minval, maxval).

    Args:
      key: the random key.
      shape: the shape of the result.
      minval: the least value, which broadcasts to the shape.
      maxval: the exclusive upper bound, which broadcasts to the shape; one more than the largest value of `dtype` makes
        that value possible.
      dtype: an integer dtype; the default integer dtype if None.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; chosen by the compiler if None.

    Returns:
      An array of `dtype` and shape `shape`; `minval` where `maxval` is not above it.

    Raises:
      ArgumentError: `dtype` is not an integer dtype, or an int as a bound fits neither it nor the default dtype.
      ShapeError: a bound does not broadcast to the shape.

    Examples:
      >>> from phalanx import random
      >>> x = random.randint(random.key(0), (100,), 2, 5)
      >>> sorted(set(x.tolist()))
      [2, 3, 4]
    """
    dtype = int_dtype("randint", dtype)
    shape = check_shape("randint", shape)
    # Python integers are clipped before they are converted to `dtype`, which may not hold them.
    low, _ = _clip_python_bound("minval", minval, dtype)
    high, is_beyond = _clip_python_bound("maxval", maxval, dtype)
    return _randint(key, shape, low, high, is_beyond, dtype, out_sharding=out_sharding)


@distribution("is_beyond")
def _randint(
    key: PRNGKey,
    shape: tuple,
    low: Array,
    high: Array,
    is_beyond: bool,
    dtype: np.dtype,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    (low, _), (high, beyond) = _clip_array_bound(low, dtype), _clip_array_bound(high, dtype)
    # Narrow integers are drawn in 32 bits, so that the modulus leaves no bias.
    narrow, dtype = dtype, dtype if dtypes.itemsize_bits(dtype) >= 32 else np.dtype(np.int32)
    low, high = broadcast_parameters("randint", shape, dtype, minval=low, maxval=high)[1]
    if is_beyond or beyond is not None:
        beyond = np.asarray(is_beyond) if beyond is None else beyond
        beyond = lax.bitwise_and(broadcast_to_shape(beyond, shape), lax.gt(high, low))
    bits = dtypes.itemsize_bits(dtype)
    word = np.dtype(f"uint{bits}")
    key_high, key_low = split_key(key, 2)
    upper = random_bits_p(key_high, width=bits, shape=shape)
    lower = random_bits_p(key_low, width=bits, shape=shape)
    # The difference is exact modulo 2**bits, also where it overflows the signed dtype.
    span = lax.convert_element_type(lax.sub(high, low), word)
    # An empty interval yields its lower bound: any number modulo 1 is 0.
    span = lax.select(lax.le(high, low), lax.full_like(span, 1), span)
    if beyond is not None:
        span = lax.select(beyond, lax.add(span, word.type(1)), span)
    # (upper 2**bits + lower) mod span, where 2**bits mod span is the square of 2**(bits / 2) mod span. Two words make
    # the bias of the modulus negligible: it is of relative size span / 2**(2 bits).
    factor = lax.rem(lax.full_like(span, 2 ** (bits // 2)), span)
    factor = lax.rem(lax.mul(factor, factor), span)
    offset = lax.rem(lax.add(lax.mul(lax.rem(upper, span), factor), lax.rem(lower, span)), span)
    if beyond is not None:  # the range of the whole dtype, whose span overflows to 0: every word is a sample
        offset = lax.select(lax.eq(span, word.type(0)), lower, offset)
    return lax.convert_element_type(lax.add(low, lax.convert_element_type(offset, dtype)), narrow)


def _clip_python_bound(name: str, bound: Array, dtype: np.dtype) -> tuple[Any, bool]:
    """Clip a Python number to the range of `dtype`; return it and whether it was too large. Arrays are not changed."""
    if not isinstance(bound, int | float | np.integer):
        return np.asarray(bound) if isinstance(bound, list | tuple) else bound, False
    info, usual = dtypes.iinfo(dtype), dtypes.iinfo(dtypes.canonicalize_dtype(int))
    least, largest = int(min(info.min, usual.min)), int(max(info.max, usual.max)) + 1
    if not isinstance(bound, float) and not least <= int(bound) <= largest:
        raise ArgumentError(
            f"random.randint, {name}",
            expected=f"a bound from {least} to {largest}",
            got=bound,
            fix="pass dtype='int64' under enable_x64, or bounds that the dtype of the result holds",
        )
    return np.asarray(min(max(int(bound), int(info.min)), int(info.max)), dtype)[()], int(bound) > int(info.max)


def _clip_array_bound(bound: Array, dtype: np.dtype) -> tuple[Any, Any]:
    """Clip an array to the range of `dtype`; return it and where it was above the range, None if nowhere."""
    info, old = dtypes.iinfo(dtype), get_aval(bound).dtype
    if not dtypes.issubdtype(old, np.integer):
        if not dtypes.issubdtype(old, np.floating):
            raise ArgumentTypeError(
                "random.randint",
                expected="bounds that are real numbers",
                got=get_aval(bound).str_short(),
                fix="convert the bounds with .astype('int32')",
            )
        # As in JAX, the fraction of a bound is dropped.
        old = dtypes.canonicalize_dtype(int)
        bound = lax.convert_element_type(bound, old)
    beyond = None
    if dtypes.iinfo(old).max > info.max:
        beyond = lax.gt(bound, old.type(info.max))
        bound = lax.min(bound, old.type(info.max))
    if dtypes.iinfo(old).min < info.min:
        bound = lax.max(bound, old.type(info.min))
    return bound, beyond


@distribution()
def bernoulli(
    key: PRNGKey,
    p: ArrayLike = 0.5,
    shape: Shape | None = None,
    mode: str = "low",
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Samples of the Bernoulli distribution: True with probability p.

    Args:
      key: the random key.
      p: probabilities, which broadcast to the shape.
      shape: the shape of the result; the shape of `p` if None.
      mode: "low" compares p with a random number of its dtype, "high" with one of twice the bits, which resolves
        probabilities close to 0.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; chosen by the compiler if None.

    Returns:
      A boolean array.

    Raises:
      ArgumentError: `mode` is neither "low" nor "high".
      ShapeError: `p` does not broadcast to the shape.

    Examples:
      >>> from phalanx import random
      >>> random.bernoulli(random.key(0), 0.0, (3,)).tolist()
      [False, False, False]
    """
    check_mode("bernoulli", mode)
    dtype = dtypes.to_inexact_dtype(get_aval(p).dtype if not isinstance(p, list | tuple) else np.dtype("float32"))
    shape, (p,) = broadcast_parameters("bernoulli", shape, dtype, p=p)
    if mode == "low":
        return lax.lt(uniform_unit(key, shape, dtype), p)
    high, low = uniform_pair(key, shape, dtype)
    # A number high + eps low with twice the bits is below p if eps low < p - high; the difference is exact near p.
    return lax.lt(lax.mul(low, dtypes.finfo(dtype).eps), lax.sub(p, high))


def check_mode(where: str, mode: str) -> None:
    """Check the `mode` argument of a distribution, the resolution of its random numbers."""
    if mode not in ("low", "high"):
        raise ArgumentError(
            f"random.{where}, mode",
            expected="'low' or 'high'",
            got=repr(mode),
            fix="pass mode='low', or mode='high' for full resolution of the tail",
        )


@distribution()
def rademacher(
    key: PRNGKey, shape: Shape = (), dtype: DTypeLike | None = None, *, out_sharding: ShardingLike | None = None
) -> Array:
    """Samples of the Rademacher distribution: -1 or 1 with equal probability.

    Args:
      key: the random key.
      shape: the shape of the result.
      dtype: a numeric dtype; the default integer if None.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; chosen by the compiler if None.

    Returns:
      An array of `dtype` and shape `shape`.

    Examples:
      >>> from phalanx import random
      >>> sorted(set(random.rademacher(random.key(0), (50,)).tolist()))
      [-1, 1]
    """
    dtype = dtypes.requested_dtype(int if dtype is None else dtype, "random.rademacher")
    # The same coin for every dtype of the result.
    width = dtypes.canonicalize_dtype(np.float64)  # the dtype in which `bernoulli` compares
    coin = lax.lt(uniform_unit(key, shape, width), width.type(0.5))
    return lax.sub(lax.mul(lax.convert_element_type(coin, dtype), dtype.type(2)), dtype.type(1))
