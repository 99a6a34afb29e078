"""Drawing from given values: permutations and choices.

Builds on `uniform` and `continuous`; uses `phalanx.numpy` to take elements.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes, promotion
from phalanx.core.aval import aval_of
from phalanx.core.errors import ArgumentError, AxisError, ShapeError
from phalanx.random.continuous import standard_gumbel
from phalanx.random.keys import static_shape
from phalanx.random.parameters import as_dtype, distribution, key_of, new_keys, placed
from phalanx.random.primitives import random_bits_p
from phalanx.random.uniform import check_mode, randint, unit
from phalanx.symbolic import bounds, max_dim, same_dim, static_size

_MOST_ROUNDS = 6  # for up to 2**64 elements


def _dim(where: str, x: Any, axis: int) -> int:
    if not -x.ndim <= axis < x.ndim:
        raise AxisError(
            f"random.{where}, axis", expected=f"a dimension of {aval_of(x).str_short()}", got=axis,
            mend="pass the dimension to draw along",
        )  # fmt: skip
    return axis % x.ndim


def shuffled(key: Any, x: Any, dim: int) -> Any:
    """`x` with its elements along `dim` in random order, each line of them in its own.

    Sorting by random words leaves the order to chance where two words are equal; enough rounds make that rarer than
    one in the number of elements, cubed.
    """

    def once(key: Any, x: Any) -> tuple:
        key, round_key = new_keys(key, 2)
        words = random_bits_p(round_key, width=32, shape=x.shape)
        return key, lax.sort((words, x), dimension=dim, num_keys=1)[1]

    least, most = bounds(x.size)
    for done in range(_MOST_ROUNDS):
        enough = int((2**32 - 1) ** (done / 3))  # elements for which this many rounds will do
        if most <= enough:
            break
        if least > enough:
            key, x = once(key, x)
        else:
            key, x = lax.cond(lax.gt(lax.convert_element_type(x.size, np.float32), np.float32(enough)), once,
                              lambda key, x: (key, x), key, x)  # fmt: skip
    return x


def _range(n: Any) -> Any:
    return lax.iota(dtypes.canonicalize_dtype(int), n)


@distribution("x_size", "axis", "independent")
def _permutation(key: Any, x: Any, x_size: int | None, axis: int, independent: bool, out_sharding: Any = None) -> Any:
    key = key_of("permutation", key)
    if x_size is not None:
        return placed(shuffled(key, _range(x_size), 0), out_sharding)
    x = lax.convert_element_type(x, aval_of(x).dtype)
    axis = _dim("permutation", x, axis)
    if independent or x.ndim == 1:
        return placed(shuffled(key, x, axis), out_sharding)
    from phalanx.numpy import take

    return placed(take(x, shuffled(key, _range(x.shape[axis]), 0), axis=axis), out_sharding)


def permutation(key: Any, x: Any, axis: int = 0, independent: bool = False, *, out_sharding: Any = None) -> Any:
    """The elements of an array in random order.

    Args:
      key: a key.
      x: an array, or an int n for the numbers from 0 to n - 1.
      axis: the dimension along which elements change places.
      independent: whether each line along `axis` gets an order of its own.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      An array like `x`.

    Raises:
      AxisError: `x` has no dimension `axis`.

    Examples:
      >>> from phalanx import random
      >>> sorted(random.permutation(random.key(0), 4).tolist())
      [0, 1, 2, 3]
    """
    if isinstance(x, list | tuple):
        x = np.asarray(x)
    if np.ndim(x) == 0:
        size = _static_count("permutation", "x", x, axis)
        return _permutation(key, None, size, axis, independent, out_sharding=out_sharding)
    return _permutation(key, x, None, axis, independent, out_sharding=out_sharding)


def _static_count(where: str, name: str, x: Any, axis: int) -> Any:
    try:
        _dim(where, np.empty(1, bool), axis)
        return max_dim(static_size(x), 0)
    except (AttributeError, TypeError):
        raise ArgumentError(
            f"random.{where}, {name}",
            expected="an array or an int",
            got=repr(x),
            mend="pass an array of rank 1 or more",
        ) from None


@distribution("a_size", "replace", "axis", "mode")
def _choice(
    key: Any, a: Any, p: Any, a_size: int | None, shape: tuple, replace: bool, axis: int, mode: str | None
) -> Any:
    key = key_of("choice", key)
    if a_size is None:
        a = lax.convert_element_type(a, aval_of(a).dtype)
        axis = _dim("choice", a, axis)
        size = a.shape[axis]
    else:
        size = a_size
    count = math.prod(shape)
    _check_choice(size, count, replace)
    if p is None:
        where = randint(key, shape, 0, size) if replace else shuffled(key, _range(size), 0)
    else:
        where = _weighted(key, _weights(p, size), shape, count, replace, mode)
    if not replace:
        where = lax.reshape(lax.slice_in_dim(where, 0, count), shape)
    if a_size is not None:
        return where
    from phalanx.numpy import take

    return take(a, where, axis=axis)


def _check_choice(size: int, count: int, replace: bool) -> None:
    if same_dim(size, 0) and count:
        raise ArgumentError("random.choice, a", expected="something to choose from", got="size 0", mend="pass elements")
    if not replace and count > size:
        raise ArgumentError(
            "random.choice without replacement", expected=f"at most {size} draws", got=count,
            mend="draw fewer, or pass replace=True",
        )  # fmt: skip


def _weights(p: Any, size: int) -> Any:
    p = as_dtype(p, dtypes.to_inexact_dtype(promotion.result_type(np.asarray(p) if isinstance(p, list | tuple) else p)))
    if p.shape != (size,):
        raise ShapeError(
            "random.choice, p", expected=f"one probability for each of the {size} elements", got=p.aval.str_short(),
            mend="pass a vector as long as a along axis",
        )  # fmt: skip
    return p


def _weighted(key: Any, p: Any, shape: tuple, count: int, replace: bool, mode: str | None) -> Any:
    """Positions drawn with probabilities `p`."""
    index = dtypes.canonicalize_dtype(int)
    if not replace:
        check_mode("choice", mode or "low")
        scores = lax.add(standard_gumbel(key, p.shape, p.dtype, mode), lax.log(p))
        return lax.convert_element_type(lax.top_k(scores, count)[1], index)
    from phalanx.numpy import searchsorted

    total = lax.cumsum(p)
    last = lax.index_in_dim(total, p.shape[0] - 1, 0, keepdims=False)
    level = lax.mul(lax.sub(p.dtype.type(1), unit(key, shape, p.dtype)), last)
    return lax.convert_element_type(searchsorted(total, level), index)


def choice(
    key: Any, a: Any, shape: Any = (), replace: bool = True, p: Any = None, axis: int = 0, mode: str | None = None
) -> Any:
    """Elements drawn from an array.

    Args:
      key: a key.
      a: an array, or an int n for the numbers from 0 to n - 1.
      shape: the shape of the draws.
      replace: whether an element may be drawn several times.
      p: the probabilities of the elements along `axis`; all equal if None.
      axis: the dimension of `a` along which elements are drawn.
      mode: "low" (the default) or "high", the resolution of the random numbers for draws without replacement.

    Returns:
      An array of the shape of `a` with `shape` in place of `axis`.

    Raises:
      ArgumentError: `a` is empty, or more is drawn without replacement than there is.
      ShapeError: `p` has not one probability for each element.
      AxisError: `a` has no dimension `axis`.

    Examples:
      >>> import numpy as np
      >>> from phalanx import random
      >>> random.choice(random.key(0), 5, (3,), p=np.array([0, 0, 1, 0, 0])).tolist()
      [2, 2, 2]
    """
    shape = static_shape("choice", shape)
    if isinstance(a, list | tuple):
        a = np.asarray(a)
    if isinstance(p, list | tuple):
        p = np.asarray(p)
    if np.ndim(a) == 0:
        return _choice(key, None, p, _static_count("choice", "a", a, axis), shape, replace, axis, mode)
    return _choice(key, a, p, None, shape, replace, axis, mode)
