"""Static windows: `slice` takes a strided box out of an array, `pad` puts one into a larger array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core.aval import aval_of
from phalanx.core.errors import AxisError, ShapeError
from phalanx.core.primitive import LINEAR, Primitive, Roles
from phalanx.core.tangent import Zero, instantiate, is_linear
from phalanx.engine.mlir import hlo
from phalanx.lax.broadcast import broadcast_in_dim_p, dim_names, insert, move_dim, reduce_sum_p
from phalanx.lax.elementwise import sub_p
from phalanx.lax.family import check_same_dtypes, match
from phalanx.lax.select import select_n_p
from phalanx.lax.window_shape import without_negative
from phalanx.symbolic import is_constant_shape, static_size


class Slice(Primitive, name="slice"):
    """The box `x[starts:stops:strides]`."""

    def result(self, x: Any, *, starts: tuple, stops: tuple, strides: tuple | None) -> Any:
        where = "lax.slice"
        strides = strides or (1,) * x.ndim
        if not len(starts) == len(stops) == len(strides) == x.ndim:
            raise ShapeError(
                where,
                expected=f"{x.ndim} starts, limits and strides for {x.str_short()}",
                got=f"{len(starts)}, {len(stops)} and {len(strides)}",
                mend="give one for each dimension",
            )
        sizes = []
        for start, stop, stride, n in zip(starts, stops, strides, x.shape, strict=True):
            known = all(isinstance(v, int) for v in (start, stop, n))
            if (known and not 0 <= start <= stop <= n) or stride < 1:
                raise ShapeError(
                    where,
                    expected=f"0 <= start <= limit <= {n} and a stride of at least 1",
                    got=f"{start}:{stop}:{stride} of {x.str_short()}",
                    mend="stay inside the array",
                )
            sizes.append(stop - start if stride == 1 else (stop - start + stride - 1) // stride)
        return x.with_shape(tuple(sizes))

    def roles(self, x: Any, *, starts: tuple, stops: tuple, strides: tuple | None) -> Roles:
        names = dim_names(x.ndim)
        whole = [
            d for d in range(x.ndim)
            if not (starts[d] == 0 and stops[d] == x.shape[d] and (strides is None or strides[d] == 1))
        ]  # fmt: skip
        results = [f"cut{d}" if d in whole else name for d, name in enumerate(names)]
        cut = {names[d]: (results[d],) for d in whole}
        return Roles([names], [results], whole=[*cut, *(results[d] for d in whole)], resized=cut)

    def lower(self, ctx: Any, x: Any, *, starts: tuple, stops: tuple, strides: tuple | None) -> Any:
        return ctx.slice(x, starts, stops, strides or (1,) * len(starts), ctx.aval_out)

    jvp = LINEAR

    def transpose(self, y_bar: Any, x: Any, *, starts: tuple, stops: tuple, strides: tuple | None) -> tuple:
        config = []
        for d, (start, n, m) in enumerate(zip(starts, x.shape, y_bar.shape, strict=True)):
            stride = strides[d] if strides else 1
            used = (m - 1) * stride + 1 if stride != 1 and m != 0 else m
            config.append((start, n - start - used, stride - 1))
        return (pad_p(y_bar, y_bar.dtype.type(0), config=tuple(config)),)

    def batch(self, x: Any, b: int, *, starts: tuple, stops: tuple, strides: tuple | None) -> tuple:
        strides = strides if strides is None else insert(strides, b, 1)
        return self(x, starts=insert(starts, b, 0), stops=insert(stops, b, x.shape[b]), strides=strides), b


slice_p = Slice()


def padded_size(n: Any, low: Any, high: Any, interior: int) -> Any:
    """The size of a dimension of size `n` once padded."""
    if not interior:
        return low + n + high
    return low + n + high + (max(n - 1, 0) if isinstance(n, int) else n - 1) * interior


def _laid_out(ctx: Any, x: Any, value: Any, interior: Sequence[int]) -> Any:
    """`x` with this many values after each of its elements, which are added as dimensions of their own."""
    aval = ctx.avals_in[0]
    apart = [n for size in aval.shape for n in (size, 1)]
    added = [n for count in interior for n in (0, count)]
    x = ctx.reshape(x, aval.with_shape(tuple(apart)))
    after = aval.with_shape(tuple([n + more for n, more in zip(apart, added, strict=True)]))
    x = ctx.pad(x, value, [0] * len(added), added, [0] * len(added), after)
    return ctx.reshape(x, aval.with_shape(tuple([n * (m + 1) for n, m in zip(aval.shape, interior, strict=True)])))


class Pad(Primitive, name="pad"):
    """`x` with `value` around its elements, and between them: config is (low, high, interior) for each dimension."""

    def result(self, x: Any, value: Any, *, config: tuple) -> Any:
        where = "lax.pad"
        check_same_dtypes(where, (x, value))
        if value.shape:
            raise ShapeError(
                f"{where} padding_value", expected="rank 0", got=value.str_short(), mend="pad with one value"
            )
        if len(config) != x.ndim:
            raise ShapeError(
                f"{where} padding_config",
                expected=f"(low, high, interior) for each dimension of {x.str_short()}",
                got=config,
                mend="give three numbers for each dimension",
            )
        shape = tuple([padded_size(n, *c) for n, c in zip(x.shape, config, strict=True)])
        if any(c[2] < 0 for c in config) or any(isinstance(n, int) and n < 0 for n in shape):
            raise ShapeError(
                f"{where} padding_config",
                expected="interior padding of at least 0, and no negative size left",
                got=f"{config} for {x.str_short()}",
                mend="take off less at the edges",
            )
        return x.with_shape(shape).update(weak_type=x.weak_type and value.weak_type)

    def roles(self, x: Any, value: Any, *, config: tuple) -> Roles:
        names = dim_names(x.ndim)
        touched = [d for d, c in enumerate(config) if any(v != 0 for v in c)]
        results = [f"padded{d}" if d in touched else name for d, name in enumerate(names)]
        padded = {names[d]: (results[d],) for d in touched}
        return Roles([names, []], [results], whole=[*padded, *(results[d] for d in touched)], resized=padded)

    def lower(self, ctx: Any, x: Any, value: Any, *, config: tuple) -> Any:
        low, high, interior = zip(*config, strict=True) if config else ((), (), ())
        shape = ctx.avals_in[0].shape
        is_constant = is_constant_shape((*shape, *low, *high, *interior))
        if ctx.module.is_split and is_constant and 0 not in shape:
            if any(interior):
                # XLA may leave out, or take twice, elements that are laid out over split dimensions.
                x = _laid_out(ctx, x, value, interior)
                shape, high = x.type.shape, [h - n for h, n in zip(high, interior, strict=True)]
                interior = [0] * len(shape)
            if min((*low, *high), default=0) < 0:
                starts, stops, padding = without_negative(shape, tuple(zip(low, high)), [1] * len(shape))
                x = hlo.slice(x, starts, stops, [1] * len(shape))
                low, high = zip(*padding, strict=True)
        return ctx.pad(x, value, low, high, interior, ctx.aval_out)

    def jvp(self, primals: Any, tangents: Any, *, config: tuple) -> tuple:
        y = self(*primals, config=config)
        t, value_dot = tangents
        t = instantiate(t)
        value_dot = t.dtype.type(0) if type(value_dot) is Zero else value_dot
        return y, self(t, value_dot, config=config)

    def transpose(self, y_bar: Any, x: Any, value: Any, *, config: tuple) -> tuple:
        x_bar = None
        shape = x.shape if is_linear(x) else aval_of(x).shape
        if all(n != 0 for n in shape):
            x_bar = self(y_bar, y_bar.dtype.type(0), config=tuple((-low, -high, 0) for low, high, _ in config))
            if any(c[2] for c in config):
                strides = tuple(c[2] + 1 for c in config)
                x_bar = slice_p(x_bar, starts=(0,) * x_bar.ndim, stops=x_bar.shape, strides=strides)
        elif is_linear(x):
            x_bar = broadcast_in_dim_p(y_bar.dtype.type(0), shape=shape, dims=())
        value_bar = None
        if is_linear(value):
            value_bar = total = reduce_sum_p(y_bar, dims=tuple(range(y_bar.ndim)))
            if x_bar is not None:
                value_bar = sub_p(total, reduce_sum_p(x_bar, dims=tuple(range(x_bar.ndim))))
        return x_bar if is_linear(x) else None, value_bar

    def batch(self, x: Any, value: Any, b: Any, b_value: Any, *, config: tuple) -> tuple:
        if b_value is None:
            return self(x, value, config=insert(config, b, (0, 0, 0))), b
        # Each example has its own value: pad with anything, and choose.
        size = value.shape[b_value]
        if b is None:
            shape = aval_of(x).shape
            x, b = broadcast_in_dim_p(x, shape=(size, *shape), dims=tuple(range(1, 1 + len(shape)))), 0
        x, config = move_dim(x, b, 0), ((0, 0, 0), *config)
        padded = self(x, x.dtype.type(0), config=config)
        inside = broadcast_in_dim_p(np.bool_(True), shape=x.shape, dims=())
        inside = self(inside, np.bool_(False), config=config)
        return select_n_p(inside, broadcast_in_dim_p(value, shape=padded.shape, dims=(0,)), padded), 0


pad_p = Pad()


def slice(operand: Any, start_indices: Any, limit_indices: Any, strides: Any = None) -> Any:
    """A box of an array at a position known while tracing.

    Args:
      operand: the array.
      start_indices: for each dimension the first index.
      limit_indices: for each dimension the index after the last.
      strides: for each dimension the step; 1 when left out.

    Returns:
      The box `operand[start:limit:stride]`.

    Raises:
      ShapeError: the box leaves the array.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.slice(jnp.arange(5), (1,), (4,)).tolist()
      [1, 2, 3]
    """
    strides = None if strides is None or all(s == 1 for s in strides) else positions(strides)
    return slice_p(operand, starts=positions(start_indices), stops=positions(limit_indices), strides=strides)


def positions(indices: Sequence) -> tuple:
    """Indices as a tuple of Python ints or symbolic dimensions."""
    return tuple(map(static_size, indices))


def slice_in_dim(operand: Any, start_index: Any, limit_index: Any, stride: int = 1, axis: int = 0) -> Any:
    """A range of an array along one dimension.

    Args:
      operand: the array.
      start_index: the first index; None is 0, and a negative one counts from the end.
      limit_index: the index after the last; None is the size, and a negative one counts from the end.
      stride: the step.
      axis: the dimension; a negative one counts from the end.

    Returns:
      The array with that dimension cut.

    Raises:
      AxisError: there is no such dimension.
      ShapeError: the range leaves the array.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.slice_in_dim(jnp.arange(5), 1, -1).tolist()
      [1, 2, 3]
    """
    shape = aval_of(operand).shape
    dim = one_dim("lax.slice_in_dim axis", axis, len(shape))
    n = shape[dim]
    start = 0 if start_index is None else start_index
    stop = n if limit_index is None else limit_index
    start, stop = (v + n if isinstance(v, int) and v < 0 else v for v in (start, stop))
    starts, stops, strides = [0] * len(shape), list(shape), [1] * len(shape)
    starts[dim], stops[dim], strides[dim] = start, stop, stride
    return slice(operand, starts, stops, strides)


def one_dim(where: str, axis: int, ndim: int) -> int:
    """A dimension with a negative one counted from the end.

    Raises:
      AxisError: it does not exist.
    """
    if not -ndim <= axis < ndim:
        raise AxisError(
            where, expected=f"a dimension in [{-ndim}, {ndim})", got=axis, mend="name a dimension that exists"
        )
    return int(axis) % ndim


def pad(operand: Any, padding_value: Any, padding_config: Any) -> Any:
    """Put a value around the elements of an array and between them.

    Args:
      operand: the array.
      padding_value: of rank 0 and the dtype of `operand`.
      padding_config: for each dimension (low, high, interior): how many before, after, and between each two elements;
        negative numbers of the first two take elements away.

    Returns:
      The larger (or smaller) array.

    Raises:
      ShapeError: the configuration does not fit the rank, or leaves a negative size.
      DTypeError: the dtypes differ.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.pad(jnp.arange(3), 9, [(1, 0, 1)]).tolist()
      [9, 0, 9, 1, 9, 2]
    """
    operand, value = match(operand, padding_value)
    return pad_p(operand, value, config=tuple([tuple(positions(c)) for c in padding_config]))
