"""Indices of nonzero elements: `nonzero`, `flatnonzero`, `argwhere`.

The number of results depends on the values. Concrete arrays are searched on the host; traced arrays need `size`, a
static bound, and are searched on the device by cumulative sums.
"""

from __future__ import annotations

import math

import numpy as np

from phalanx import lax
from phalanx.core import ConcretizationTypeError, ShapeError, dtypes
from phalanx.numpy.creation.array_creation import array
from phalanx.numpy.operands import broadcast_to_shape, cast, concrete_or_none, to_host_operand, to_operand
from phalanx.numpy.shapes.joining import stack
from phalanx.numpy.ufuncs.ufunc_implementations import select_where as _choose, to_bool
from phalanx.runtime.eager_jit import eager_jit
from phalanx.symbolic import max_dim, static_size
from phalanx.typing import Array, ArrayLike


def concrete_mask(mask: ArrayLike, name: str) -> np.ndarray:
    """The concrete values of a mask whose number of true elements is the size of a result.

    Raises:
      ConcretizationTypeError: the mask is traced.
    """
    known = concrete_or_none(mask)
    if known is None:
        raise ConcretizationTypeError(
            f"{name}, the number of results",
            expected="a mask that is known while tracing, as it decides the shape",
            got=mask.describe() if hasattr(mask, "describe") else str(mask),
            fix="give size=, a bound on the number",
        )
    return known


def nonzero(a: ArrayLike, *, size: int | None = None, fill_value: ArrayLike | None = None) -> tuple:
    """Indices of the nonzero elements, one array per dimension.

    Args:
      a: array of rank 1 or more.
      size: static length of the result, which is truncated or padded; required when `a` is traced.
      fill_value: value of the padding entries: a scalar (0 by default), or a tuple with one value per dimension.

    Returns:
      A tuple of integer vectors; the elements are in row-major order.

    Raises:
      ConcretizationTypeError: `a` is traced and `size` is not given.
      ShapeError: `a` is a scalar.

    Examples:
      >>> jnp.nonzero(jnp.array([0, 5, 0, 7]))[0].tolist()
      [1, 3]
    """
    x = to_host_operand(np.asarray(a) if isinstance(a, list | tuple) else a, "nonzero")
    if not x.ndim:
        raise ShapeError(
            "nonzero",
            expected="an array of rank 1 or more",
            got="a scalar",
            fix="give it one dimension with phalanx.numpy.atleast_1d(a)",
        )
    if size is None:
        index_dtype = dtypes.canonicalize_dtype(np.int64)
        return tuple(array(i.astype(index_dtype)) for i in np.nonzero(concrete_mask(x, "nonzero")))
    return tuple(_nonzero(x, static_size(size), fill_value))


@eager_jit(static_argnames=("size",))
def _nonzero(x: Array, size: int, fill_value: ArrayLike | None) -> list:
    dtype = dtypes.canonicalize_dtype(np.int64)
    # The search runs over the flattened mask; `counts` histograms the ranks, and its cumulative sum inverts them.
    mask = lax.reshape(to_bool(x), (math.prod(x.shape),)) if x.ndim != 1 else to_bool(x)
    fills = fill_value if isinstance(fill_value, tuple) else (0 if fill_value is None else fill_value,) * x.ndim
    total = mask.shape[0]
    # Returned early: the code below reads the last rank, which an empty array does not have.
    if size == 0 or (type(total) is int and total == 0):
        return [broadcast_to_shape(cast(to_operand(f, "nonzero"), dtype), (size,)) for f in fills]
    ranks = lax.cumsum(cast(mask, dtype), axis=0)
    # counts[r] is the number of positions with rank r. The (k + 1)-th nonzero element is at the first position whose
    # rank exceeds k, and before it are all positions with ranks 0 to k: a cumulative sum of `counts`.
    counts = lax.full((size,), 0, dtype).at[ranks].add(dtype.type(1), mode="drop")
    flat = lax.cumsum(counts, axis=0)
    found = lax.slice_in_dim(ranks, total - 1, total)
    # Entries beyond the number of nonzero elements are padding.
    valid = lax.broadcast_in_dim(found, (size,), (0,)) > lax.iota(dtype, size)
    out = []
    # Convert flat indices to one index per dimension, fastest dimension first.
    rest = flat
    for d in reversed(x.shape):
        places = cast(max_dim(d, 1), dtype)
        out.append(lax.rem(rest, places))
        rest = lax.div(rest, places)
    out.reverse()
    return [
        _choose(valid, i, broadcast_to_shape(cast(to_operand(f, "nonzero"), dtype), (size,)))
        for i, f in zip(out, fills, strict=True)
    ]


def flatnonzero(a: ArrayLike, *, size: int | None = None, fill_value: ArrayLike | None = None) -> Array:
    """Indices of the nonzero elements of the flattened array.

    Args:
      a, size, fill_value: as in `nonzero`; a scalar counts as one element.

    Returns:
      A vector of integers.

    Raises:
      ConcretizationTypeError: `a` is traced and `size` is not given.

    Examples:
      >>> jnp.flatnonzero(jnp.array([[0, 5], [0, 7]])).tolist()
      [1, 3]
    """
    x = to_host_operand(np.asarray(a) if isinstance(a, list | tuple) else a, "flatnonzero")
    return nonzero(x.reshape(-1), size=size, fill_value=fill_value)[0]


def argwhere(a: ArrayLike, *, size: int | None = None, fill_value: ArrayLike | None = None) -> Array:
    """Indices of the nonzero elements, one row per element.

    Args:
      a, size, fill_value: as in `nonzero`.

    Returns:
      int[found, rank].

    Raises:
      ConcretizationTypeError: `a` is traced and `size` is not given.

    Examples:
      >>> jnp.argwhere(jnp.array([[0, 5], [0, 7]])).tolist()
      [[0, 1], [1, 1]]
    """
    x = to_host_operand(a, "argwhere")
    found = nonzero(x if x.ndim else x.reshape(1), size=size, fill_value=fill_value)
    if x.ndim == 0:
        return lax.full((found[0].shape[0], 0), 0, found[0].dtype)
    return stack(list(found), axis=1)
