"""Slices and padding with bounds that are known while tracing: `slice`, `slice_in_dim` and `pad`.

Each primitive is the transpose of the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core import (
    LINEAR,
    AxisError,
    Primitive,
    ShapedArray,
    ShapeError,
    ShardingRule,
    Zero,
    get_aval,
    instantiate,
    is_linear,
)
from phalanx.lax.elementwise import check_same_dtypes, match_scalars, select_n_p, sub_p
from phalanx.lax.reductions.reduce_sum import reduce_sum_p
from phalanx.lax.shape import add_dim, broadcast_in_dim_p, dim_names, insert_dim, move_dim, squeeze_p, zeros
from phalanx.runtime import Array, LoweringContext
from phalanx.sharding import PartitionSpec
from phalanx.symbolic import static_size
from phalanx.typing import ArrayLike, DimSize


class Slice(Primitive, name="slice"):
    """The slice `x[starts:stops:strides]`."""

    def abstract_eval(self, x: Any, *, starts: tuple, stops: tuple, strides: tuple | None) -> Any:
        where = "lax.slice"
        strides = strides or (1,) * x.ndim
        if not len(starts) == len(stops) == len(strides) == x.ndim:
            raise ShapeError(
                where,
                expected=f"{x.ndim} starts, limits and strides for {x.str_short()}",
                got=f"{len(starts)}, {len(stops)} and {len(strides)}",
                fix=f"pass {x.ndim} of each",
            )
        sizes = []
        for start, stop, stride, n in zip(starts, stops, strides, x.shape, strict=True):
            # Bounds with symbolic sizes are not compared, since the answer may depend on their values.
            if stride < 1 or (all(isinstance(v, int) for v in (start, stop, n)) and not 0 <= start <= stop <= n):
                raise ShapeError(
                    where,
                    expected=f"0 <= start <= limit <= {n} and a stride of at least 1",
                    got=f"{start}:{stop}:{stride} of {x.str_short()}",
                    fix=f"choose a limit between the start and {n}, and a stride of 1 or more",
                )
            sizes.append(stop - start if stride == 1 else (stop - start + stride - 1) // stride)
        return x.with_shape(tuple(sizes))

    def sharding_rule(self, x: Any, *, starts: tuple, stops: tuple, strides: tuple | None) -> ShardingRule:
        cuts = zip(starts, stops, strides or (1,) * x.ndim, strict=True)
        return _resizing_rule(x, "cut", [cut != (0, n, 1) for cut, n in zip(cuts, x.shape, strict=True)], [])

    def lower(self, ctx: LoweringContext, x: Any, *, starts: tuple, stops: tuple, strides: tuple | None) -> Any:
        return ctx.slice(x, starts, stops, strides or (1,) * len(starts), ctx.aval_out)

    jvp = LINEAR

    def transpose(self, y_bar: Array, x: Any, *, starts: tuple, stops: tuple, strides: tuple | None) -> tuple:
        config = []
        for start, stride, n, m in zip(starts, strides or (1,) * len(starts), x.shape, y_bar.shape, strict=True):
            # A strided slice may end before its limit: 0:6:4 reads elements 0 and 4, and the transpose pads the fifth.
            used = (m - 1) * stride + 1 if stride != 1 and m != 0 else m
            config.append((start, n - start - used, stride - 1))
        return (pad_p(y_bar, _zero_like(y_bar), config=tuple(config)),)

    def batch(self, x: Any, b: int, *, starts: tuple, stops: tuple, strides: tuple | None) -> tuple:
        strides = strides if strides is None else insert_dim(strides, b, 1)
        return self(x, starts=insert_dim(starts, b, 0), stops=insert_dim(stops, b, x.shape[b]), strides=strides), b


slice_p = Slice()


def _zero_like(x: Any) -> Any:
    """A zero to pad `x` with, unreduced over the axes over which `x` is, as `pad` requires."""
    sharding = get_aval(x).type_sharding
    if sharding is None or sharding.spec.is_partitions_only:
        return x.dtype.type(0)
    return zeros(ShapedArray((), x.dtype, sharding=sharding.with_spec(PartitionSpec(**sharding.spec.reductions))))


def _resizing_rule(x: Any, prefix: str, is_resized: Sequence[bool], others: list) -> ShardingRule:
    """The sharding rule of an operation that changes the size or the bounds of some dimensions of its first operand.

    Such a dimension may be sharded in operand and result, but the shards have other bounds, so elements move between
    devices. Hence it has two names, related by `resized`.
    """
    names = dim_names(x.ndim)
    results = [f"{prefix}{d}" if moves else name for d, (name, moves) in enumerate(zip(names, is_resized, strict=True))]
    resized = {name: (result,) for name, result in zip(names, results, strict=True) if name != result}
    return ShardingRule(
        [names, *others], [results], whole={*resized, *itertools.chain(*resized.values())}, resized=resized
    )


def padded_size(n: DimSize, low: DimSize, high: DimSize, interior: int) -> Any:
    """The size of a dimension of size `n` after padding."""
    if not interior:
        return low + n + high
    return low + n + high + (max(n - 1, 0) if isinstance(n, int) else n - 1) * interior


class Pad(Primitive, name="pad"):
    """`x` with `value` around and between its elements: `config` is (low, high, interior) for each dimension."""

    linear_in = ((0, 1),)

    def abstract_eval(self, x: Any, value: Any, *, config: tuple) -> Any:
        where = "lax.pad"
        check_same_dtypes(where, (x, value))
        if value.shape:
            raise ShapeError(
                f"{where} padding_value",
                expected="rank 0",
                got=value.str_short(),
                fix="pass a scalar, and pad with several values in several calls",
            )
        if len(config) != x.ndim or any(len(c) != 3 for c in config):
            raise ShapeError(
                f"{where} padding_config",
                expected=f"(low, high, interior) for each dimension of {x.str_short()}",
                got=config,
                fix=f"pass {x.ndim} tuples of three numbers, (0, 0, 0) for a dimension without padding",
            )
        shape = tuple([padded_size(n, *c) for n, c in zip(x.shape, config, strict=True)])
        if any(c[2] < 0 for c in config) or any(isinstance(n, int) and n < 0 for n in shape):
            raise ShapeError(
                f"{where} padding_config",
                expected="interior padding of at least 0, and no negative size left",
                got=f"{config} for {x.str_short()}",
                fix="use interior padding of 0 or more, and remove no more elements than there are",
            )
        return x.with_shape(shape).update(weak_type=x.weak_type and value.weak_type)

    def sharding_rule(self, x: Any, value: Any, *, config: tuple) -> ShardingRule:
        return _resizing_rule(x, "padded", [c != (0, 0, 0) for c in config], [[]])

    def lower(self, ctx: LoweringContext, x: Any, value: Any, *, config: tuple) -> Any:
        low, high, interior = zip(*config, strict=True) if config else ((), (), ())
        return ctx.pad(x, value, low, high, interior, ctx.aval_out)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], *, config: tuple) -> tuple:
        y = self(*primals, config=config)
        t, value_dot = tangents
        t = instantiate(t)
        # A constant padding value has the tangent zero, which is padded like any other value.
        value_dot = _zero_like(t) if type(value_dot) is Zero else value_dot
        return y, self(t, value_dot, config=config)

    def transpose(self, y_bar: Array, x: Any, value: Any, *, config: tuple) -> tuple:
        x_bar = None
        shape = x.shape if is_linear(x) else get_aval(x).shape
        if all(n != 0 for n in shape):
            # Undo the padding by padding with the negative amounts, which crops; then undo interior padding by a
            # strided slice.
            x_bar = self(y_bar, _zero_like(y_bar), config=tuple((-low, -high, 0) for low, high, _ in config))
            if any(c[2] for c in config):
                strides = tuple(c[2] + 1 for c in config)
                x_bar = slice_p(x_bar, starts=(0,) * x_bar.ndim, stops=x_bar.shape, strides=strides)
        elif is_linear(x):
            x_bar = broadcast_in_dim_p(y_bar.dtype.type(0), shape=shape, dims=())
        value_bar = None
        if is_linear(value):
            # The padding value is in every element that is not from `x`: the total of all cotangents without those of
            # `x`. That is cheaper than a mask, but cancels where `x` dominates.
            value_bar = total = reduce_sum_p(y_bar, dims=tuple(range(y_bar.ndim)))
            if x_bar is not None:
                value_bar = sub_p(total, reduce_sum_p(x_bar, dims=tuple(range(x_bar.ndim))))
        return x_bar if is_linear(x) else None, value_bar

    def batch(self, x: Any, value: Any, b: int | None, b_value: int | None, *, config: tuple) -> tuple:
        if b_value is None:
            return self(x, value, config=insert_dim(config, b, (0, 0, 0))), b
        # The padding value differs between examples: pad with zeros, and select the value outside of `x`.
        x = add_dim(x, 0, value.shape[b_value]) if b is None else move_dim(x, b, 0)
        config = ((0, 0, 0), *config)
        padded = self(x, x.dtype.type(0), config=config)
        inside = broadcast_in_dim_p(np.bool_(True), shape=x.shape, dims=())
        inside = self(inside, np.bool_(False), config=config)
        return select_n_p(inside, broadcast_in_dim_p(value, shape=padded.shape, dims=(0,)), padded), 0


pad_p = Pad()


def slice(
    operand: ArrayLike,
    start_indices: Sequence[DimSize],
    limit_indices: Sequence[DimSize],
    strides: Sequence[int] | None = None,
) -> Any:
    """A slice of an array with bounds that are known while tracing.

    Args:
      operand: the array.
      start_indices: for each dimension the first index.
      limit_indices: for each dimension the index after the last.
      strides: for each dimension the step; 1 by default.

    Returns:
      The slice `operand[start:limit:stride]`.

    Raises:
      ShapeError: the slice is out of bounds.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.slice(jnp.arange(5), (1,), (4,)).tolist()
      [1, 2, 3]
    """
    strides = None if strides is None or all(s == 1 for s in strides) else canonicalize_indices(strides)
    return slice_p(
        operand, starts=canonicalize_indices(start_indices), stops=canonicalize_indices(limit_indices), strides=strides
    )


def canonicalize_indices(indices: Sequence) -> tuple:
    """Convert indices to a tuple of Python integers and symbolic dimensions."""
    return tuple(map(static_size, indices))


def slice_in_dim(
    operand: ArrayLike, start_index: DimSize | None, limit_index: DimSize | None, stride: int = 1, axis: int = 0
) -> Any:
    """Slice an array along one dimension.

    Args:
      operand: the array.
      start_index: the first index; None is 0, and a negative one counts from the end.
      limit_index: the index after the last; None is the size, and a negative one counts from the end.
      stride: the step.
      axis: the dimension; a negative one counts from the end.

    Returns:
      The slice, with the other dimensions in full.

    Raises:
      AxisError: there is no such dimension.
      ShapeError: the slice is out of bounds.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.slice_in_dim(jnp.arange(5), 1, -1).tolist()
      [1, 2, 3]
    """
    shape = get_aval(operand).shape
    dim = canonicalize_dim("lax.slice_in_dim axis", axis, len(shape))
    n = shape[dim]
    start = 0 if start_index is None else start_index
    stop = n if limit_index is None else limit_index
    start, stop = (v + n if isinstance(v, int) and v < 0 else v for v in (start, stop))
    starts, stops, strides = [0] * len(shape), list(shape), [1] * len(shape)
    starts[dim], stops[dim], strides[dim] = start, stop, stride
    return slice(operand, starts, stops, strides)


def canonicalize_dim(where: str, axis: int, ndim: int) -> int:
    """Convert a dimension that may count from the end to a non-negative one.

    Raises:
      AxisError: there is no such dimension.
    """
    if not -ndim <= axis < ndim:
        raise AxisError(
            where,
            expected=f"a dimension in [{-ndim}, {ndim})",
            got=axis,
            fix=f"choose one of {-ndim} ... {ndim - 1}" if ndim else "pass an array of rank 1 or more",
        )
    return int(axis) % ndim


def pad(operand: ArrayLike, padding_value: ArrayLike, padding_config: Sequence[tuple[DimSize, DimSize, int]]) -> Any:
    """Pad an array with a value around and between its elements.

    Args:
      operand: the array.
      padding_value: a scalar with the dtype of `operand`.
      padding_config: for each dimension (low, high, interior): the numbers of values before, after, and between
        neighbouring elements. Negative `low` and `high` remove elements.

    Returns:
      The padded array.

    Raises:
      ShapeError: the configuration does not have one entry for each dimension, or results in a negative size.
      DTypeError: the dtypes differ.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.pad(jnp.arange(3), 9, [(1, 0, 1)]).tolist()
      [9, 0, 9, 1, 9, 2]
    """
    operand, value = match_scalars(operand, padding_value)
    return pad_p(operand, value, config=tuple([tuple(canonicalize_indices(c)) for c in padding_config]))


def index_in_dim(operand: ArrayLike, index: int, axis: int = 0, keepdims: bool = True) -> Any:
    """One position of an array along a dimension, known while tracing.

    Args:
      operand: the array.
      index: the position; a negative one counts from the end.
      axis: the dimension; a negative one counts from the end.
      keepdims: whether the dimension stays, with size 1.

    Returns:
      The slice at that position.

    Raises:
      ShapeError: the position is outside the array.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> int(lax.index_in_dim(jnp.arange(5), -1, keepdims=False))
      4
    """
    shape = get_aval(operand).shape
    dim = canonicalize_dim("lax.index_in_dim axis", axis, len(shape))
    n, index = shape[dim], static_size(index)
    if isinstance(n, int) and isinstance(index, int) and not -n <= index < n:
        raise ShapeError(
            "lax.index_in_dim index", expected=f"an index in [{-n}, {n})", got=index, fix="stay inside the array"
        )
    index = index + n if isinstance(index, int) and index < 0 else index
    piece = slice_in_dim(operand, index, index + 1, axis=dim)
    return piece if keepdims else squeeze_p(piece, dims=(dim,))
