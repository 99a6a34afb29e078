"""Selection by conditions (`where`, `select`, `piecewise`), and the indices of nonzero elements (`nonzero`).

The number of nonzero elements depends on the values. Concrete arrays are searched on the host; traced arrays need
`size`, a static bound, and are searched on the device by cumulative sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, ShapeError, dtypes, state
from phalanx.numpy.creation.array_creation import array
from phalanx.numpy.operands import (
    broadcast_shapes,
    broadcast_to_shape,
    cast,
    from_list,
    promote,
    require_concrete,
    to_host_operand,
    to_operand,
)
from phalanx.numpy.shapes.joining import stack
from phalanx.numpy.ufuncs.ufunc_implementations import select_where as _choose, to_bool
from phalanx.runtime import eager_jit, scalar_array
from phalanx.symbolic import is_symbolic, max_dim, static_size
from phalanx.typing import Array, ArrayLike


def where(
    condition: ArrayLike,
    x: ArrayLike | None = None,
    y: ArrayLike | None = None,
    /,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Any:
    """Select elements from `x` or `y` by a condition; with the condition alone, the indices of its true elements.

    Args:
      condition: booleans, or numbers that are compared with 0.
      x: values where the condition holds.
      y: values elsewhere.
      size: with the condition alone, the static number of indices to return, as in `nonzero`.
      fill_value: with the condition alone, the value of the padding entries, as in `nonzero`.

    Returns:
      An array of the broadcast shape, or the tuple of index arrays that `nonzero` returns.

    Raises:
      ArgumentError: one of `x` and `y` is given without the other.
      ShapeError: the shapes do not broadcast.

    Examples:
      >>> jnp.where(jnp.array([True, False]), 1, 2).tolist()
      [1, 2]
    """
    if x is None or y is None:
        if x is not None or y is not None:
            raise ArgumentError(
                "where",
                expected="both x and y, or neither",
                got="one of them",
                fix="pass both x and y, or only the condition",
            )
        return nonzero(condition, size=size, fill_value=fill_value)
    if size is not None or fill_value is not None:
        raise ArgumentError(
            "where, argument size",
            expected="None where x and y are given",
            got=size,
            fix="leave size and fill_value out; they apply to where(condition) only",
        )
    a, b = getattr(x, "aval", None), getattr(condition, "aval", None)
    # The common case needs no promotion and no broadcast: types are interned, so that `is` compares them.
    if a is not None and b is not None and a is getattr(y, "aval", None) and b.shape == a.shape and b.dtype == np.bool_:
        return lax.select_n_p(condition, y, x)
    if state.trace is None:  # Numbers are placed on the device (cached) first, so that the call below is one execution.
        x, y = (scalar_array(v) if type(v) is float else v for v in (x, y))
    return _where(condition, x, y)


@eager_jit
def _where(condition: Array, x: Array, y: Array) -> Any:
    condition = to_bool(to_operand(condition, "where, argument condition"))
    x, y = promote("where", x, y)
    shape = broadcast_shapes(condition.shape, np.shape(x), np.shape(y), where="where")
    if condition.shape:
        condition = broadcast_to_shape(condition, shape)
    # A scalar condition selects whole operands: one of them must have the full shape.
    elif shape and not (np.shape(x) == shape or np.shape(y) == shape):
        x = broadcast_to_shape(x, shape)
    x, y = (v if np.shape(v) == shape or not np.shape(v) else broadcast_to_shape(v, shape) for v in (x, y))
    return lax.select_n_p(condition, y, x)


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: ArrayLike = 0) -> Array:
    """Select for each element from the choice whose condition is the first to hold.

    Args:
      condlist: list of boolean arrays.
      choicelist: list of equal length of arrays or scalars, which broadcast with the conditions.
      default: value where no condition holds.

    Returns:
      An array of the broadcast shape, in the promoted dtype of the choices and `default`.

    Raises:
      ArgumentError: the lists are empty or have different lengths.

    Examples:
      >>> jnp.select([jnp.array([True, False])], [jnp.array([1, 2])], 9).tolist()
      [1, 9]
    """
    if len(condlist) != len(choicelist) or not len(condlist):
        raise ArgumentError(
            "select, argument choicelist",
            expected=f"{len(condlist)} choices, at least one",
            got=len(choicelist),
            fix="give one choice for each condition",
        )
    return _select(list(condlist), list(choicelist), default)


@eager_jit
def _select(conditions: list, choices: list, default: Any) -> Any:
    *choices, out = promote("select", *choices, default)
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        # From the last condition to the first, so that the first one that holds decides.
        out = where(condition, choice, out)
    return out


def piecewise(
    x: ArrayLike, condlist: Sequence[ArrayLike] | ArrayLike, funclist: Sequence[Any], *args: Any, **kw: Any
) -> Any:
    """Evaluate a piecewise-defined function.

    Args:
      x: array or scalar.
      condlist: list of boolean arrays of the shape of `x`, or one array.
      funclist: one function or scalar per condition, and optionally one more for elements without a condition.
      args, kw: passed to the functions, each of which is evaluated on all of `x`.

    Returns:
      An array of the shape and dtype of `x`; where several conditions hold, the last one counts.

    Raises:
      ArgumentError: the number of functions does not fit the number of conditions.

    Examples:
      >>> x = jnp.array([-1.0, 2.0])
      >>> jnp.piecewise(x, [x < 0, x >= 0], [lambda x: -x, lambda x: x * 10]).tolist()
      [1.0, 20.0]
    """
    x = to_operand(x, "piecewise")
    if hasattr(condlist, "aval") or isinstance(condlist, np.ndarray):
        conditions = [condlist] if condlist.ndim <= x.ndim and condlist.shape == x.shape else list(condlist)
    else:
        conditions = list(condlist) if condlist and not isinstance(condlist[0], bool) else [array(condlist)]
    functions = list(funclist)
    if len(functions) not in (len(conditions), len(conditions) + 1):
        raise ArgumentError(
            "piecewise, argument funclist",
            expected=f"{len(conditions)} or {len(conditions) + 1} functions",
            got=len(functions),
            fix="give one for each condition",
        )
    # NumPy evaluates the last function where no condition holds; without it, the value is 0.
    out = _evaluate(functions.pop() if len(functions) > len(conditions) else 0, x, args, kw)
    for condition, function in zip(conditions, functions, strict=True):
        out = where(condition, _evaluate(function, x, args, kw), out)
    return out


def _evaluate(function: Callable[..., object], x: Array, args: tuple, kw: dict) -> Any:
    value = to_operand(function(x, *args, **kw) if callable(function) else function, "piecewise")
    return broadcast_to_shape(value.astype(x.dtype) if value.dtype != x.dtype else value, x.shape)


def concrete_mask(mask: ArrayLike, name: str) -> np.ndarray:
    """The concrete values of a mask whose number of true elements is the size of a result.

    Raises:
      ConcretizationTypeError: the mask is traced.
    """
    return require_concrete(
        mask,
        f"{name}, the number of results",
        expected="a mask that is known while tracing, as it decides the shape",
        fix="give size=, a bound on the number",
    )


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
    x = to_host_operand(from_list(a), "nonzero")
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
    # A symbolic size may be 0, where nothing could be scattered, so that its array has one element more.
    counts = lax.full((size + is_symbolic(size),), 0, dtype).at[ranks].add(dtype.type(1), mode="drop")
    rest = lax.cumsum(counts, axis=0)[:size]
    found = lax.slice_in_dim(ranks, total - 1, total)
    # Entries beyond the number of nonzero elements are padding.
    valid = lax.broadcast_in_dim(found, (size,), (0,)) > lax.iota(dtype, size)
    out = []
    # Convert flat indices to one index per dimension, fastest dimension first.
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
    x = to_host_operand(from_list(a), "flatnonzero")
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
