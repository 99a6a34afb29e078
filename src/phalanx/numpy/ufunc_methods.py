"""The methods of binary ufuncs: reduce, accumulate, outer, at, reduceat.

`equip` adds them to a function. Where `lax` has the reduction as an operation it is used, else a loop.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.errors import ArgumentError
from phalanx.engine.frames import boundary
from phalanx.numpy import reductions, ufuncs
from phalanx.numpy.bodies import choose
from phalanx.numpy.operands import broadcast_to_shape, canonical_axis, cast, operand, refuse_out, scalar_of
from phalanx.numpy.shapes import moveaxis, ravel


def equip(ufunc: Callable, identity: Any, reduction: Callable | None, cumulative: Callable | None) -> None:
    """Add the methods to a binary ufunc.

    Args:
      ufunc: the function.
      identity: its neutral element, or None.
      reduction: the same as a reduction of this module, if there is one.
      cumulative: the same as a cumulative operation, if there is one.
    """
    ufunc.identity, ufunc.nargs = identity, 3  # type: ignore[attr-defined]
    ufunc.reduce = functools.partial(boundary(_reduce), ufunc, reduction)  # type: ignore[attr-defined]
    ufunc.accumulate = functools.partial(boundary(_accumulate), ufunc, cumulative)  # type: ignore[attr-defined]
    ufunc.outer = functools.partial(boundary(_outer), ufunc)  # type: ignore[attr-defined]
    ufunc.at = functools.partial(boundary(_at), ufunc)  # type: ignore[attr-defined]
    ufunc.reduceat = functools.partial(boundary(_reduceat), ufunc)  # type: ignore[attr-defined]


def _typed(ufunc: Any, a: Any, dtype: Any, where: str) -> Any:
    """The array in the dtype that was asked for, or in that in which the ufunc computes."""
    x = operand(a, where)
    if dtype is not None:
        return cast(x, dtypes.requested_dtype(dtype, where))
    if not hasattr(ufunc, "rule"):  # one that `frompyfunc` made takes any
        return x
    to = ufunc.rule.choose(x.dtype)[1]
    return cast(x, np.dtype(bool) if ufunc.__name__.startswith("logical_") else to)


def _reduce(
    ufunc: Any, reduction: Callable | None, a: Any, /, *, axis: Any = 0, dtype: Any = None, out: None = None,
    keepdims: bool = False, initial: Any = None, where: Any = None,
) -> Any:  # fmt: skip
    refuse_out(out, f"{ufunc.__name__}.reduce")
    x = _typed(ufunc, a, dtype, f"{ufunc.__name__}.reduce")
    if reduction is not None:
        options = {} if initial is None else {"initial": initial}
        return reduction(x, axis=axis, keepdims=keepdims, where=where, **options)
    if where is not None and initial is None and ufunc.identity is None:
        raise ArgumentError(
            f"{ufunc.__name__}.reduce", expected="initial, since where is given", got="None", mend="give it"
        )
    dims = x.shape
    axes = reductions.canonical_axes(axis, x.ndim, f"{ufunc.__name__}.reduce")
    n = math.prod(dims[i] for i in axes)

    def rows(v: Any) -> Any:
        v = moveaxis(v, axes, tuple(range(len(axes))))
        return lax.reshape(v, (n, *v.shape[len(axes) :]))

    x, mask = rows(x), None if where is None else rows(broadcast_to_shape(operand(where, ufunc.__name__), dims))
    first = initial if initial is not None else ufunc.identity if n == 0 or mask is not None else None
    if n == 0 and first is None:
        raise ArgumentError(
            f"{ufunc.__name__}.reduce", expected="at least one element", got="none", mend="give initial"
        )

    def step(i: Any, y: Any) -> Any:
        z = cast(ufunc(y, x[i]), y.dtype)
        return z if mask is None else choose(mask[i], z, y)

    y = x[0] if first is None else lax.full(x.shape[1:], first, x.dtype)
    y = lax.fori_loop(int(first is None), n, step, y) if n else y
    return reductions.with_dims(y, dims, axes) if keepdims else y


def _accumulate(
    ufunc: Any, cumulative: Callable | None, a: Any, /, axis: int = 0, dtype: Any = None, out: None = None
) -> Any:
    refuse_out(out, f"{ufunc.__name__}.accumulate")
    x = _typed(ufunc, a, dtype, f"{ufunc.__name__}.accumulate")
    axis = canonical_axis(axis, x.ndim, f"{ufunc.__name__}.accumulate")
    if cumulative is not None:
        return cumulative(x, axis=axis)
    x = moveaxis(x, axis, 0)
    if x.shape[0] == 0:
        return moveaxis(x, 0, axis)

    def step(y: Any, v: Any) -> tuple:
        y = cast(ufunc(y, v), y.dtype)
        return y, y

    _, ys = lax.scan(step, x[0], x[1:])
    return moveaxis(lax.concatenate([x[:1], ys], 0), 0, axis)


def _outer(ufunc: Any, a: Any, b: Any, /) -> Any:
    a, b = operand(a, ufunc.__name__), operand(b, ufunc.__name__)
    return ufunc(lax.reshape(a, a.shape + (1,) * b.ndim), b)


def _at(ufunc: Any, a: Any, indices: Any, b: Any = None, /, *, inplace: bool = True) -> Any:
    if inplace:
        raise ArgumentError(
            f"{ufunc.__name__}.at, argument inplace", expected="False, since arrays do not change", got=True,
            mend="give inplace=False and use the returned array",
        )  # fmt: skip
    x = operand(a, ufunc.__name__)
    method = {"add": "add", "subtract": "subtract", "multiply": "multiply", "maximum": "max", "minimum": "min"}.get(
        ufunc.__name__
    )
    if method is not None:
        return getattr(x.at[indices], method)(b)
    chosen = x[indices]
    shape = chosen.shape
    values = ravel(
        lax.broadcast_in_dim(operand(b, ufunc.__name__), shape, tuple(range(len(shape) - np.ndim(b), len(shape))))
    )
    places = ravel(lax.reshape(lax.iota(np.dtype(np.int32), math.prod(x.shape)), x.shape)[indices])
    flat = ravel(x)

    def step(i: Any, y: Any) -> Any:
        return y.at[places[i]].set(cast(ufunc(y[places[i]], values[i]), y.dtype))

    return lax.reshape(lax.fori_loop(0, places.shape[0], step, flat), x.shape)


def _reduceat(ufunc: Any, a: Any, indices: Any, axis: int = 0, dtype: Any = None, out: None = None) -> Any:
    refuse_out(out, f"{ufunc.__name__}.reduceat")
    x, starts = _typed(ufunc, a, dtype, f"{ufunc.__name__}.reduceat"), operand(indices, ufunc.__name__)
    axis = canonical_axis(axis, x.ndim, f"{ufunc.__name__}.reduceat")
    x = moveaxis(x, axis, 0)
    n = x.shape[0]
    ends = lax.concatenate([starts[1:], lax.full((1,), n, starts.dtype)], 0)
    ends = lax.max(ends, starts + scalar_of(1, starts.dtype))

    def step(i: Any, y: Any) -> Any:
        inside = (starts < i) & (i < ends)
        inside = lax.reshape(inside, inside.shape + (1,) * (x.ndim - 1))
        from phalanx.numpy.mapping import where

        return where(inside, cast(ufunc(y, x[i]), y.dtype), y)

    return moveaxis(lax.fori_loop(0, n, step, x[starts]), 0, axis)


def _logical(ufunc: Callable, reduction: Callable) -> Callable:
    def reduce(x: Any, axis: Any = None, keepdims: bool = False, where: Any = None, initial: Any = None) -> Any:
        out = reduction(x, axis, keepdims=keepdims, where=where)
        return out if initial is None else ufunc(initial, out)

    return reduce


def _parity(x: Any, axis: Any, keepdims: bool, where: Any) -> Any:
    """Whether an odd number of elements is not 0."""
    return ufuncs.equal(reductions.sum(ufuncs.not_equal(x, 0), axis, keepdims=keepdims, where=where) & 1, 1)


def _cumulative(op: Callable) -> Callable:
    return lambda x, axis: op(x, axis=axis)


equip(ufuncs.add, 0, reductions.sum, reductions.cumsum)
equip(ufuncs.multiply, 1, reductions.prod, reductions.cumprod)
equip(ufuncs.maximum, None, reductions.max, _cumulative(lax.cummax))
equip(ufuncs.minimum, None, reductions.min, _cumulative(lax.cummin))
equip(ufuncs.logical_and, True, _logical(ufuncs.logical_and, reductions.all), None)
equip(ufuncs.logical_or, False, _logical(ufuncs.logical_or, reductions.any), None)
equip(ufuncs.logical_xor, False, _logical(ufuncs.logical_xor, _parity), None)
equip(ufuncs.logaddexp, -np.inf, None, _cumulative(lax.cumlogsumexp))
equip(ufuncs.logaddexp2, -np.inf, None, None)
for _f, _identity in [
    (ufuncs.subtract, None), (ufuncs.divide, None), (ufuncs.floor_divide, None), (ufuncs.power, None),
    (ufuncs.bitwise_and, -1), (ufuncs.bitwise_or, 0), (ufuncs.bitwise_xor, 0), (ufuncs.fmax, None), (ufuncs.fmin, None),
    (ufuncs.remainder, None), (ufuncs.hypot, 0), (ufuncs.gcd, 0), (ufuncs.lcm, None), (ufuncs.arctan2, None),
    (ufuncs.less, None), (ufuncs.greater, None), (ufuncs.equal, None),
]:  # fmt: skip
    equip(_f, _identity, None, None)
