"""Samples from given values: `permutation` and `choice`.

Builds on `uniform` and `continuous_distributions`.
"""

from __future__ import annotations

import math

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, AxisError, ConversionError, ShapeError, dtypes, get_aval, promotion
from phalanx.random.continuous_distributions import standard_gumbel
from phalanx.random.distribution_parameters import as_dtype, distribution
from phalanx.random.prng_keys import check_shape, random_bits_p, split_key
from phalanx.random.uniform import check_mode, randint, uniform_unit
from phalanx.symbolic import bounds, is_symbolic, max_dim, same_dim, static_size
from phalanx.typing import Array, ArrayLike, DimSize, PRNGKey, Shape, ShardingLike

_MAX_SORTS = 6  # enough for 2**64 elements


def _resolve_axis(name: str, x: Array, axis: int) -> int:
    if not -x.ndim <= axis < x.ndim:
        raise AxisError(
            f"random.{name}, axis",
            expected=f"a dimension of {get_aval(x).str_short()}",
            got=axis,
            fix=f"pass an axis from {-x.ndim} to {x.ndim - 1}, the dimension to draw along",
        )
    return axis % x.ndim


def shuffle(key: Array, x: Array, dim: int) -> Array:
    """Shuffle the elements of `x` along `dim`, independently for each position of the other dimensions.

    The elements are sorted by random 32-bit words. Elements with equal words keep their order, so the sort is repeated
    with new words until the probability that two of n elements had equal words in every sort is below n^-3: k sorts
    are enough for (2^32 - 1)^(k / 3) elements.
    """

    def sort_by_words(key: Array, x: Array) -> tuple:
        key, sort_key = split_key(key, 2)
        words = random_bits_p(sort_key, width=32, shape=x.shape)
        return key, lax.sort((words, x), dimension=dim, num_keys=1)[1]

    least, most = bounds(x.size)
    # For a symbolic size the number of sorts is decided when the program runs.
    for num_sorts in range(_MAX_SORTS):
        enough = int((2**32 - 1) ** (num_sorts / 3))
        if most <= enough:
            break
        if least > enough:
            key, x = sort_by_words(key, x)
        else:  # a symbolic size
            is_larger = lax.gt(lax.convert_element_type(x.size, np.float32), np.float32(enough))
            key, x = lax.cond(is_larger, sort_by_words, lambda key, x: (key, x), key, x)
    return x


def _range(n: DimSize) -> Array:
    return lax.iota(dtypes.canonicalize_dtype(int), n)


def _take(x: Array, positions: Array, dim: int) -> Array:
    """Slices of `x` at `positions` along `dim`, all of them in bounds."""
    n = positions.ndim
    shape = (*x.shape[:dim], *positions.shape, *x.shape[dim + 1 :])
    # A gather of slices of size 1 is not defined for an empty dimension.
    if same_dim(x.shape[dim], 0):
        return lax.full(shape, 0, x.dtype)
    offsets = (*range(dim), *range(dim + n, len(shape)))
    numbers = lax.GatherDimensionNumbers(offset_dims=offsets, collapsed_slice_dims=(dim,), start_index_map=(dim,))
    sizes = tuple(1 if d == dim else size for d, size in enumerate(x.shape))
    return lax.gather(x, lax.expand_dims(positions, (n,)), numbers, sizes, mode="clip")


@distribution("x_size", "axis", "independent")
def _permutation(
    key: PRNGKey, x: Array, x_size: int | None, axis: int, independent: bool, out_sharding: ShardingLike | None = None
) -> Array:
    if x_size is not None:
        return shuffle(key, _range(x_size), 0)
    x = lax.convert_element_type(x, get_aval(x).dtype)
    axis = _resolve_axis("permutation", x, axis)
    if independent or x.ndim == 1:
        return shuffle(key, x, axis)
    return _take(x, shuffle(key, _range(x.shape[axis]), 0), axis)


def permutation(
    key: PRNGKey, x: ArrayLike, axis: int = 0, independent: bool = False, *, out_sharding: ShardingLike | None = None
) -> Array:
    """Shuffle the elements of an array.

    Args:
      key: the random key.
      x: an array, or an int n for the numbers from 0 to n - 1.
      axis: the dimension along which elements are shuffled.
      independent: whether to shuffle independently for each position of the other dimensions.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; chosen by the compiler if None.

    Returns:
      An array of the shape and dtype of `x`.

    Raises:
      AxisError: `x` has no dimension `axis`.

    Examples:
      >>> from phalanx import random
      >>> sorted(random.permutation(random.key(0), 4).tolist())
      [0, 1, 2, 3]
    """
    if isinstance(x, list | tuple):
        x = np.asarray(x)
    x, size = (x, None) if np.ndim(x) else (None, _static_count("permutation", "x", x, axis))
    return _permutation(key, x, size, axis, independent, out_sharding=out_sharding)


def _static_count(name: str, argument: str, x: object, axis: int) -> DimSize:
    """Return n of an argument that denotes the numbers from 0 to n - 1."""
    try:
        _resolve_axis(name, np.empty(1, bool), axis)
        size = static_size(x)
    except (AttributeError, TypeError):
        raise ConversionError(
            f"random.{name}, {argument}",
            expected="an array or an int",
            got=repr(x),
            fix="pass an array of rank 1 or more",
        ) from None
    largest = int(dtypes.iinfo(dtypes.canonicalize_dtype(int)).max) + 1
    if isinstance(size, int) and size > largest:
        raise ArgumentError(
            f"random.{name}, {argument}",
            expected=f"at most {largest} numbers, which the default integer dtype holds",
            got=size,
            fix="call it under enable_x64",
        )
    return max_dim(size, 0)


@distribution("a_size", "replace", "axis", "mode")
def _choice(
    key: PRNGKey, a: Array, p: Array, a_size: int | None, shape: tuple, replace: bool, axis: int, mode: str | None
) -> Array:
    size = a_size
    if size is None:
        a = lax.convert_element_type(a, get_aval(a).dtype)
        axis = _resolve_axis("choice", a, axis)
        size = a.shape[axis]
    count = math.prod(shape)
    _check_choice(size, count, replace)
    if p is None:
        positions = randint(key, shape, 0, size) if replace else shuffle(key, _range(size), 0)
    else:
        positions = _choose_weighted(key, _check_weights(p, size), shape, count, replace, mode)
    if not replace:
        positions = lax.reshape(lax.slice_in_dim(positions, 0, count), shape)
    return positions if a_size is not None else _take(a, positions, axis)


def _check_choice(size: DimSize, count: int, replace: bool) -> None:
    if same_dim(size, 0) and count:
        raise ArgumentError(
            "random.choice, a",
            expected="at least one element to choose from",
            got="size 0",
            fix="pass a non-empty array, or shape=(0,)",
        )
    if not replace and count > size:
        raise ArgumentError(
            "random.choice without replacement",
            expected=f"at most {size} draws",
            got=count,
            fix="draw fewer, or pass replace=True",
        )


def _check_weights(p: ArrayLike, size: DimSize) -> Array:
    p = as_dtype(p, dtypes.to_inexact_dtype(promotion.result_type(np.asarray(p) if isinstance(p, list | tuple) else p)))
    if p.shape != (size,):
        raise ShapeError(
            "random.choice, p",
            expected=f"one probability for each of the {size} elements",
            got=p.aval.str_short(),
            fix="pass a vector as long as a along axis",
        )
    return p


def _choose_weighted(key: Array, p: Array, shape: tuple, count: int, replace: bool, mode: str | None) -> Array:
    """Draw positions with probabilities `p`."""
    index = dtypes.canonicalize_dtype(int)
    if not replace:
        # Gumbel top-k: the k largest of log p plus Gumbel noise are a sample without replacement.
        check_mode("choice", mode or "low")
        noise = standard_gumbel(key, p.shape, p.dtype, mode)
        return lax.convert_element_type(lax.top_k(lax.add(noise, lax.log(p)), count)[1], index)
    total = lax.cumsum(p)
    # Inversion: the first position whose cumulative probability reaches a uniform level in (0, total].
    share = lax.sub(p.dtype.type(1), uniform_unit(key, shape, p.dtype))
    level = lax.mul(share, lax.index_in_dim(total, p.shape[0] - 1, 0, keepdims=False))
    return lax.convert_element_type(_first_at_least(total, level), index)


def _first_at_least(ascending: Array, level: Array) -> Array:
    """The first position of an ascending vector with an element not below `level`, by binary search: int32[*s]."""
    n, shape = ascending.shape[0], level.shape
    one = lax.full(shape, 1, np.int32)
    num_steps = 31 if is_symbolic(n) else max(1, int(n).bit_length())

    def halve(_: int, interval: tuple) -> tuple:
        low, high = interval
        middle = lax.shift_right_logical(lax.add(low, high), one)
        is_open = lax.lt(low, high)
        is_below = lax.lt(_take(ascending, middle, 0), level)
        low = lax.select(lax.bitwise_and(is_open, is_below), lax.add(middle, one), low)
        return low, lax.select(lax.bitwise_and(is_open, lax.bitwise_not(is_below)), middle, high)

    return lax.fori_loop(0, num_steps, halve, (lax.full(shape, 0, np.int32), lax.full(shape, n, np.int32)))[1]


def choice(
    key: PRNGKey,
    a: ArrayLike,
    shape: Shape = (),
    replace: bool = True,
    p: ArrayLike | None = None,
    axis: int = 0,
    mode: str | None = None,
) -> Array:
    """Draw elements from an array.

    Args:
      key: the random key.
      a: an array, or an int n for the numbers from 0 to n - 1.
      shape: the shape of the draws.
      replace: whether an element may be drawn several times.
      p: the probabilities of the elements along `axis`; uniform if None.
      axis: the dimension of `a` along which elements are drawn.
      mode: "low" (the default) or "high", the resolution of the random numbers for draws without replacement.

    Returns:
      An array of the shape of `a` with `shape` in place of `axis`.

    Raises:
      ArgumentError: `a` is empty or more than the default integer dtype holds, or there are more draws without
        replacement than elements.
      ShapeError: `p` has not one probability for each element.
      AxisError: `a` has no dimension `axis`.

    Examples:
      >>> import numpy as np
      >>> from phalanx import random
      >>> random.choice(random.key(0), 5, (3,), p=np.array([0, 0, 1, 0, 0])).tolist()
      [2, 2, 2]
    """
    shape = check_shape("choice", shape)
    a, p = (np.asarray(x) if isinstance(x, list | tuple) else x for x in (a, p))
    a, size = (a, None) if np.ndim(a) else (None, _static_count("choice", "a", a, axis))
    return _choice(key, a, p, size, shape, replace, axis, mode)
