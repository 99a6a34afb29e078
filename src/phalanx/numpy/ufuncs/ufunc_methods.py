"""The methods of ufuncs: `at`, and for two operands `reduce`, `accumulate`, `outer`, `reduceat`.

A reduction of `lax` is used where there is one; otherwise the ufunc is applied in a loop over the axis.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, ShapeError, dtypes
from phalanx.engine.traceback_filtering import api_boundary
from phalanx.numpy.indexing.where import where
from phalanx.numpy.operands import (
    broadcast_to_shape,
    canonical_axes,
    canonical_axis,
    cast,
    refuse_inplace,
    refuse_out,
    to_numpy_scalar,
    to_operand,
)
from phalanx.numpy.reductions import array_reductions
from phalanx.numpy.shapes.reshaping import moveaxis, ravel
from phalanx.numpy.ufuncs import ufunc_table
from phalanx.numpy.ufuncs.ufunc_implementations import select_where
from phalanx.typing import Array, ArrayLike, Axis


def equip(ufunc: Any, identity: ArrayLike | None, reduction: Callable | None, cumulative: Callable | None) -> None:
    """Attach the ufunc methods to a function.

    Args:
      ufunc: the function, which has `nin` and `nout`.
      identity: its neutral element, or None.
      reduction: the equivalent reduction, or None.
      cumulative: the equivalent cumulative operation, or None.
    """
    methods = {
        "reduce": functools.partial(_reduce, ufunc, reduction),
        "accumulate": functools.partial(_accumulate, ufunc, cumulative),
        "outer": functools.partial(_outer, ufunc),
        "reduceat": functools.partial(_reduceat, ufunc),
    }
    if (ufunc.nin, ufunc.nout) != (2, 1):
        methods = {name: functools.partial(_refuse, ufunc, name) for name in methods}
    vars(ufunc).update(methods, identity=identity, nargs=ufunc.nin, at=functools.partial(_at, ufunc))


def _refuse(ufunc: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    raise ArgumentError(
        f"{ufunc.__name__}.{name}",
        expected="a ufunc of two operands and one result",
        got=f"{ufunc.nin} and {ufunc.nout}",
        fix="call the function itself",
    )


def _cast_operand(ufunc: Callable[..., Array], a: Array, dtype: np.dtype, where: str) -> Any:
    """Cast the operand to the requested dtype, or to the dtype in which the ufunc computes."""
    x = to_operand(a, where)
    if dtype is not None:
        return cast(x, dtypes.requested_dtype(dtype, where))
    if not hasattr(ufunc, "rule"):  # a ufunc made by `frompyfunc` accepts every dtype
        return x
    return cast(x, np.dtype(bool) if ufunc.__name__.startswith("logical_") else ufunc.rule.choose(x.dtype)[1])


@api_boundary
def _reduce(
    ufunc: Any,
    reduction: Callable | None,
    a: Array,
    /,
    axis: Axis = 0,
    dtype: np.dtype | None = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Any:
    refuse_out(out, f"{ufunc.__name__}.reduce")
    x = _cast_operand(ufunc, a, dtype, f"{ufunc.__name__}.reduce")
    if reduction is not None:
        options = {} if initial is None else {"initial": initial}
        return reduction(x, axis=axis, keepdims=keepdims, where=where, **options)
    if where is not None and initial is None and ufunc.identity is None:
        raise ArgumentError(
            f"{ufunc.__name__}.reduce",
            expected="initial, since where is given",
            got="None",
            fix="pass initial=, the result where the mask excludes all elements",
        )
    dims = x.shape
    axes = canonical_axes(axis, x.ndim, f"{ufunc.__name__}.reduce")
    n = math.prod(dims[i] for i in axes)

    def rows(v: Array) -> Any:
        v = moveaxis(v, axes, tuple(range(len(axes))))
        return lax.reshape(v, (n, *v.shape[len(axes) :]))

    # All reduced dimensions become one leading dimension, over which the loop runs.
    x, mask = rows(x), None if where is None else rows(broadcast_to_shape(to_operand(where, ufunc.__name__), dims))
    # Without an initial value the loop begins with the first element; a mask may exclude that one, so that it needs a
    # neutral element.
    first = initial if initial is not None else ufunc.identity if n == 0 or mask is not None else None
    if n == 0 and first is None:
        raise ArgumentError(
            f"{ufunc.__name__}.reduce",
            expected="at least one element",
            got="none",
            fix="pass initial=, the result for no elements",
        )

    def step(i: Array | int, y: Array) -> Any:
        z = cast(ufunc(y, x[i]), y.dtype)
        return z if mask is None else select_where(mask[i], z, y)

    y = x[0] if first is None else lax.full(x.shape[1:], first, x.dtype)
    y = lax.fori_loop(int(first is None), n, step, y) if n else y
    return array_reductions.restore_reduced_dims(y, dims, axes) if keepdims else y


@api_boundary
def _accumulate(
    ufunc: Callable[..., Array],
    cumulative: Callable | None,
    a: Array,
    /,
    axis: int = 0,
    dtype: np.dtype | None = None,
    out: None = None,
) -> Any:
    refuse_out(out, f"{ufunc.__name__}.accumulate")
    x = _cast_operand(ufunc, a, dtype, f"{ufunc.__name__}.accumulate")
    axis = canonical_axis(axis, x.ndim, f"{ufunc.__name__}.accumulate")
    if cumulative is not None:
        return cumulative(x, axis=axis)
    x = moveaxis(x, axis, 0)
    # The scan below begins with the first element.
    if x.shape[0] == 0:
        return moveaxis(x, 0, axis)

    def step(y: Array, v: Array) -> tuple:
        y = cast(ufunc(y, v), y.dtype)
        return y, y

    _, ys = lax.scan(step, x[0], x[1:])
    return moveaxis(lax.concatenate([x[:1], ys], 0), 0, axis)


@api_boundary
def _outer(ufunc: Callable[..., Array], a: Array, b: Array, /) -> Any:
    a, b = to_operand(a, ufunc.__name__), to_operand(b, ufunc.__name__)
    return ufunc(lax.reshape(a, a.shape + (1,) * b.ndim), lax.reshape(b, (1,) * a.ndim + b.shape))


@api_boundary
def _at(
    ufunc: Callable[..., Array], a: Array, indices: Array, b: Array | None = None, /, *, inplace: bool = True
) -> Any:
    refuse_inplace(inplace, f"{ufunc.__name__}.at")
    x = to_operand(a, ufunc.__name__)
    # These have a scatter, which handles repeated indices in parallel.
    method = {"add": "add", "subtract": "subtract", "multiply": "multiply", "maximum": "max", "minimum": "min"}.get(
        ufunc.__name__
    )
    if method is not None:
        return getattr(x.at[indices], method)(b)
    shape = x[indices].shape
    others = [] if b is None else [ravel(broadcast_to_shape(to_operand(b, ufunc.__name__), shape))]
    # Flat indices of the selected elements, by indexing an iota of the shape of the array.
    places = ravel(lax.reshape(lax.iota(np.dtype(np.int32), math.prod(x.shape)), x.shape)[indices])
    flat = ravel(x)

    def step(i: Array | int, y: Array) -> Any:
        return y.at[places[i]].set(cast(ufunc(y[places[i]], *[values[i] for values in others]), y.dtype))

    return lax.reshape(lax.fori_loop(0, places.shape[0], step, flat), x.shape)


@api_boundary
def _reduceat(
    ufunc: Callable[..., Array],
    a: Array,
    indices: Array,
    axis: int = 0,
    dtype: np.dtype | None = None,
    out: None = None,
) -> Any:
    refuse_out(out, f"{ufunc.__name__}.reduceat")
    x, starts = _cast_operand(ufunc, a, dtype, f"{ufunc.__name__}.reduceat"), to_operand(indices, ufunc.__name__)
    axis = canonical_axis(axis, x.ndim, f"{ufunc.__name__}.reduceat")
    if starts.ndim != 1:
        raise ShapeError(
            f"{ufunc.__name__}.reduceat, argument indices",
            expected="a vector",
            got=starts.shape,
            fix="pass the first index of each segment",
        )
    x = moveaxis(x, axis, 0)
    n = x.shape[0]
    nexts = lax.concatenate([starts[1:], lax.full((1,), n, starts.dtype)], 0)
    # As in NumPy, an empty or decreasing range selects the element at its start.
    ends = lax.max(nexts, starts + to_numpy_scalar(1, starts.dtype))

    def step(i: Array | int, y: Array) -> Any:
        # Element i belongs to all segments that began before it and have not ended.
        inside = lax.reshape((starts < i) & (i < ends), starts.shape + (1,) * (x.ndim - 1))
        return where(inside, cast(ufunc(y, lax.expand_dims(x[i], range(starts.ndim))), y.dtype), y)

    return moveaxis(lax.fori_loop(0, n, step, x[starts]), 0, axis)


def _logical(ufunc: Callable, reduction: Callable) -> Callable:
    def reduce(
        x: Array,
        axis: Axis = None,
        keepdims: bool = False,
        where: ArrayLike | None = None,
        initial: ArrayLike | None = None,
    ) -> Any:
        out = reduction(x, axis, keepdims=keepdims, where=where)
        return out if initial is None else ufunc(initial, out)

    return reduce


def _parity(x: Array, axis: Axis, keepdims: bool, where: ArrayLike | None) -> Any:
    """Whether an odd number of elements is nonzero."""
    return ufunc_table.equal(
        array_reductions.sum(ufunc_table.not_equal(x, 0), axis, keepdims=keepdims, where=where) & 1, 1
    )


def _cumulative(op: Callable) -> Callable:
    return lambda x, axis: op(x, axis=axis)


# The reductions and cumulative operations that do the same as a loop of the ufunc.
_PARALLEL: dict[str, tuple[Callable | None, Callable | None]] = {
    "add": (array_reductions.sum, array_reductions.cumsum),
    "multiply": (array_reductions.prod, array_reductions.cumprod),
    "maximum": (array_reductions.max, _cumulative(lax.cummax)),
    "minimum": (array_reductions.min, _cumulative(lax.cummin)),
    "logaddexp": (None, _cumulative(lax.cumlogsumexp)),
    "logical_and": (_logical(ufunc_table.logical_and, array_reductions.all), None),
    "logical_or": (_logical(ufunc_table.logical_or, array_reductions.any), None),
    "logical_xor": (_logical(ufunc_table.logical_xor, _parity), None),
}

for _function in {id(f): f for f in vars(ufunc_table).values() if hasattr(f, "rule")}.values():
    # Elementwise functions that are no ufuncs in NumPy, such as `sinc`, are none here.
    if isinstance(_ufunc := getattr(np, _function.__name__, None), np.ufunc):
        equip(_function, _ufunc.identity, *_PARALLEL.get(_function.__name__, (None, None)))
