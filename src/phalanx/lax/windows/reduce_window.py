"""Reductions over sliding windows, and the primitives of their derivatives.

`reduce_window` by a sum, maximum or minimum has a primitive of its own; any other function is a parameter of
`reduce_window_p`. The derivative of an extremum selects an element of each window (`select_and_gather_add`), and its
transpose scatters into these elements (`select_and_scatter_add`). The derivative of another function is that of a
reduction of the elements of each window. Called by pooling layers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import (
    LINEAR,
    ArgumentError,
    Jaxpr,
    Primitive,
    RuleError,
    ShapedArray,
    ShapeError,
    ShardingRule,
    Undefined,
    Zero,
    cached_on_jaxpr,
    dtypes,
    get_aval,
    run_jaxpr,
    trace_to_jaxpr,
)
from phalanx.engine import hlo, ir, memoize
from phalanx.lax.elementwise import add, dtype_kind, emit_compare, max_p, min_p, or_p, select, sub
from phalanx.lax.indexing.scatter import ScatterDimensionNumbers, scatter_add
from phalanx.lax.indexing.static_slice import pad_p, slice_p
from phalanx.lax.reductions.reduce import reduce_by_halves
from phalanx.lax.shape import add_dim, dim_names, insert_dim, move_dim, reshape, zeros
from phalanx.lax.shape.concatenate import concatenate_p
from phalanx.lax.shape.iota_and_full import full, iota
from phalanx.lax.windows.symbolic_windows import emit_symbolic_windows
from phalanx.lax.windows.window_shape import (
    Padding,
    cotangent_padding,
    crop_negative_padding,
    num_windows,
    padtype_to_pads,
)
from phalanx.runtime import LoweringContext
from phalanx.symbolic import dilate, is_constant_shape, static_size
from phalanx.transforms import jvp_flat
from phalanx.tree import tree_flatten, tree_leaves, tree_unflatten
from phalanx.typing import DimSize, PyTree

# The parameters of a window, and their entries for a dimension without one.
_NO_WINDOW: dict[str, Any] = {
    "window_dimensions": 1,
    "window_strides": 1,
    "padding": (0, 0),
    "base_dilation": 1,
    "window_dilation": 1,
}
WINDOW = tuple(_NO_WINDOW)


def _window_shape(where: str, x: ShapedArray, window: dict) -> tuple:
    """Check the parameters of a window, of which some may be left out; return the shape of a windowed reduction."""
    for name in WINDOW:
        values = window.get(name, (1,) * x.ndim)
        if len(values) != x.ndim:
            raise ShapeError(
                f"{where} {name}",
                expected=f"one entry for each of the {x.ndim} dimensions of {x.str_short()}",
                got=values,
                fix="use 1 (no padding: (0, 0)) for dimensions without a window",
            )
        if name != "padding" and any(v < 1 for v in values):
            raise ArgumentError(
                f"{where} {name}", expected="positive integers", got=values, fix=f"pass {name}={(1,) * x.ndim} for none"
            )
    columns = [window.get(name, (1,) * x.ndim) for name in WINDOW]
    return tuple([num_windows(*dim) for dim in zip(x.shape, *columns, strict=True)])


def _window_attributes(
    *,
    window_dimensions: Sequence,
    window_strides: Sequence,
    padding: Sequence,
    base_dilation: Sequence | None = None,
    window_dilation: Sequence | None = None,
) -> dict:
    """The attributes of a StableHLO operation for a window."""
    integers = ir.DenseI64ArrayAttr.get
    out = {"window_dimensions": integers(window_dimensions), "window_strides": integers(window_strides)}
    if base_dilation is not None:
        out |= {"base_dilations": integers(base_dilation), "window_dilations": integers(window_dilation)}
    return out | {"padding": ir.DenseIntElementsAttr.get(np.asarray(padding, np.int64).reshape(-1, 2))}


def _without_negative_padding(ctx: LoweringContext, x: Any, aval: ShapedArray, window: dict) -> tuple[Any, dict]:
    """Replace negative padding by a slice of the operand; returns the operand and the window without it.

    XLA ends the process for windows of size 1 with negative padding, and over several devices it may remove elements at
    the wrong end (see "negative_padding" in `phalanx.partitioner.workarounds`).
    """
    if not is_constant_shape(aval.shape) or min(itertools.chain(*window["padding"]), default=0) >= 0:
        return x, window
    starts, stops, padding = crop_negative_padding(aval.shape, window["padding"], window["base_dilation"])
    return hlo.slice(x, starts, stops, [1] * aval.ndim), {**window, "padding": padding}


def _is_static(window: dict) -> bool:
    """Whether the sizes and the padding of a window are ints."""
    return is_constant_shape((*window["window_dimensions"], *(n for pair in window["padding"] for n in pair)))


def window_sharding_rule(num_operands: int, x: ShapedArray, window: dict, num_results: int = 1) -> ShardingRule:
    """The sharding rule: dimensions without a window are parallel, the others need their neighbours."""
    inner = dim_names(x.ndim)
    has_window = [any(v[d] != _NO_WINDOW[key] for key, v in window.items()) for d in range(x.ndim)]
    outer = [f"window {name}" if has else name for name, has in zip(inner, has_window, strict=True)]
    resized = {i: (o,) for i, o in zip(inner, outer, strict=True) if i != o}
    return ShardingRule([inner] * num_operands, [outer] * num_results, whole={*inner} ^ {*outer}, resized=resized)


def _mapped_window(window: dict, b: int) -> dict:
    """The window with a dimension of size 1 inserted at the mapped dimension."""
    return {name: insert_dim(v, b, _NO_WINDOW[name]) for name, v in window.items()}


class _ReduceWindowMonoid(Primitive):
    operation: Any = None
    pair: Callable  # the operation as a function of two arrays
    identity: Callable

    def abstract_eval(self, x, **window):
        return x.with_shape(_window_shape(f"lax.{self.name}", x, window))

    def sharding_rule(self, x, **window):
        return window_sharding_rule(1, x, window)

    def lower(self, ctx, x, **window):
        aval = ctx.aval_out
        scalar = ShapedArray((), aval.dtype)
        init = ctx.constant(np.asarray(type(self).identity(aval.dtype)).astype(aval.dtype), scalar)
        if not _is_static(window):
            program = trace_to_jaxpr(lambda a, b: [type(self).pair(a, b)], [scalar, scalar], self.name)
            return emit_symbolic_windows(ctx, [x], [init], window, program, [aval])[0]
        x, window = _without_negative_padding(ctx, x, ctx.avals_in[0], window)
        op = hlo.ReduceWindowOp([ctx.type(aval)], [x], [init], **_window_attributes(**window))
        ctx.region([scalar, scalar], op, lambda a, b: self.operation(a, b).result)
        return op.result

    def batch(self, x, b, **window):
        return self(x, **_mapped_window(window, b)), b


def _no_sum(dtype: np.dtype) -> Any:
    return 0


class ReduceWindowSum(_ReduceWindowMonoid, name="reduce_window_sum"):
    """The sum of each window of `x`: num[*x] -> num[*windows]."""

    operation = hlo.AddOp
    pair = staticmethod(add)
    identity = _no_sum
    jvp = LINEAR

    def transpose(self, y_bar, x, **window):
        # Without any window no element was read, and the formula below would give a negative size.
        if 0 in np.shape(y_bar):
            return (zeros(x.aval),)
        # The transpose of a sum over windows is a sum over windows of the cotangents: strides and base dilation change
        # places, and the padding is chosen so that there is one window for each element of the operand.
        sizes, *others = (window[name] for name in WINDOW)
        columns = zip(x.shape, sizes, np.shape(y_bar), *others, strict=True)
        strides, base = window["window_strides"], window["base_dilation"]
        pads = tuple([cotangent_padding(*column) for column in columns])
        return (self(y_bar, **window | dict(window_strides=base, padding=pads, base_dilation=strides)),)


class _ReduceWindowExtremum(_ReduceWindowMonoid):
    comparison = ""

    def jvp(self, primals, tangents, **window):
        (x,), (x_dot,) = primals, tangents
        return self(x, **window), select_and_gather_add_p(x_dot, x, comparison=self.comparison, **window)


class ReduceWindowMax(_ReduceWindowExtremum, name="reduce_window_max"):
    """The maximum of each window of `x`."""

    operation, identity, comparison = hlo.MaxOp, dtypes.lowest, "GE"
    pair = max_p


class ReduceWindowMin(_ReduceWindowExtremum, name="reduce_window_min"):
    """The minimum of each window of `x`."""

    operation, identity, comparison = hlo.MinOp, dtypes.highest, "LE"
    pair = min_p


reduce_window_sum_p = ReduceWindowSum()
reduce_window_max_p = ReduceWindowMax()
reduce_window_min_p = ReduceWindowMin()


def _LINEAR_IN_FIRST(self: Primitive, primals: Sequence, tangents: Sequence, **params: Any) -> tuple:
    """The derivative of an operation that is linear in its first operand; the second only selects positions."""
    y = self(*primals, **params)
    # The selected positions are locally constant.
    return y, Zero.like(y) if type(tangents[0]) is Zero else self(tangents[0], primals[1], **params)


def worst(comparison: str, dtype: np.dtype) -> np.ndarray:
    """The value that loses every comparison: the smallest for a maximum (GE), the largest for a minimum (LE)."""
    return np.asarray(dtypes.lowest(dtype) if comparison == "GE" else dtypes.highest(dtype)).astype(dtype)


def _align_mapped_dims(x: Any, y: Any, bx: int | None, by: int | None) -> tuple[Any, Any, int | None]:
    """Move or broadcast the mapped dimension of two operands to one position; returns also that position."""
    if bx is None:
        return add_dim(x, by, np.shape(y)[by]), y, by
    return x, (add_dim(y, bx, np.shape(x)[bx]) if by is None else move_dim(y, by, bx)), bx


class SelectAndGatherAdd(Primitive, name="select_and_gather_add"):
    """From each window, the element of `t` at the position of the maximum (GE) or minimum (LE) of `x`."""

    def abstract_eval(self, t, x, *, comparison, **window):
        if t.shape != x.shape:
            raise ShapeError(
                "lax.select_and_gather_add operands",
                expected="equal shapes",
                got=f"{t.str_short()} and {x.str_short()}",
                fix=f"broadcast the tangents to shape {x.shape}",
            )
        return t.with_shape(_window_shape("lax.select_and_gather_add", x, window))

    def sharding_rule(self, t, x, *, comparison, **window):
        return window_sharding_rule(2, x, window)

    def lower(self, ctx, t, x, *, comparison, **window):
        t_aval, x_aval = ctx.avals_in
        out = ctx.aval_out
        # The initial value must lose against every element. Elements equal to it are selected with the tangent 0.
        scalars = [ShapedArray((), x_aval.dtype), ShapedArray((), t_aval.dtype)]
        inits = [ctx.constant(worst(comparison, x_aval.dtype), scalars[0]), ctx.constant(0, scalars[1])]
        types = [ctx.type(out.update(dtype=x_aval.dtype)), ctx.type(out)]
        op = hlo.ReduceWindowOp(types, [x, t], inits, **_window_attributes(**window))

        def body(a: ir.Value, t_a: ir.Value, b: ir.Value, t_b: ir.Value) -> list:
            wins = emit_compare(a, b, comparison, x_aval.dtype)
            return [hlo.select(wins, a, b), hlo.select(wins, t_a, t_b)]

        ctx.region([*scalars, *scalars], op, body)
        return op.results[1]

    jvp = _LINEAR_IN_FIRST

    def transpose(self, y_bar, t, x, *, comparison, base_dilation, window_dilation, **window):
        # StableHLO has an operation for this transpose, but without dilation.
        if set(base_dilation) | set(window_dilation) <= {1}:
            return select_and_scatter_add_p(y_bar, x, comparison=comparison, **window), None
        if 0 in t.shape:
            return full(t.shape, 0, y_bar.dtype), None
        # StableHLO's select_and_scatter has no dilation: select the flat index of each maximum, and scatter-add there.
        # Indices count from 1, so that a window that contains only padding selects 0, and its update at -1 is dropped.
        size, count = math.prod(t.shape), math.prod(np.shape(y_bar))
        places = add(reshape(iota(np.int32, size), t.shape), np.int32(1))
        winners = self(
            places, x, comparison=comparison, base_dilation=base_dilation, window_dilation=window_dilation, **window
        )
        flat = scatter_add(
            full((size,), 0, y_bar.dtype),
            sub(reshape(winners, (count, 1)), np.int32(1)),
            reshape(y_bar, (count,)),
            ScatterDimensionNumbers((), (0,), (0,)),
            mode="drop",
        )
        return reshape(flat, t.shape), None

    def batch(self, t, x, bt, bx, *, comparison, **window):
        t, x, b = _align_mapped_dims(t, x, bt, bx)
        return self(t, x, comparison=comparison, **_mapped_window(window, b)), b


select_and_gather_add_p = SelectAndGatherAdd()


class SelectAndScatterAdd(Primitive, name="select_and_scatter_add"):
    """Add each element of `source` at the position of the maximum (GE) or minimum (LE) of its window of `x`."""

    def abstract_eval(self, source, x, *, comparison, **window):
        shape = _window_shape("lax.select_and_scatter_add", x, window)
        if source.shape != shape:
            raise ShapeError(
                "lax.select_and_scatter_add source",
                expected=f"shape {shape}, one element for each window",
                got=source.str_short(),
                fix=f"pass a source of shape {shape}",
            )
        return source.with_shape(x.shape)

    def sharding_rule(self, source, x, *, comparison, **window):
        rule = window_sharding_rule(1, x, window)
        inner = rule.operands[0]
        resized = {name: (i,) for i, (o,) in rule.resized.items() for name in (i, o)}
        return ShardingRule([rule.results[0], inner], [inner], whole=rule.whole, resized=resized)

    def lower(self, ctx, source, x, *, comparison, **window):
        s_aval, x_aval = ctx.avals_in
        scalar, x_scalar = ShapedArray((), s_aval.dtype), ShapedArray((), x_aval.dtype)
        attributes = _window_attributes(**window)
        pads = window["padding"]
        shape = x_aval.shape
        # The result then has the shape of the padded operand, and is sliced at the end.
        if any(pad != (0, 0) for pad in pads):
            # XLA pads with the initial value of the sum, which may be larger than elements. Pad with the worst value.
            low, high = zip(*pads, strict=True)
            x = hlo.pad(x, ctx.constant(worst(comparison, x_aval.dtype), x_scalar), low, high, [0] * len(low))
            shape = tuple([n + lo + hi for n, (lo, hi) in zip(shape, pads, strict=True)])
            attributes["padding"] = ir.DenseIntElementsAttr.get(np.zeros((len(pads), 2), np.int64))
        op = hlo.SelectAndScatterOp(
            ctx.type(ShapedArray(shape, s_aval.dtype)), x, source, ctx.constant(0, scalar), **attributes
        )
        ctx.region([x_scalar, x_scalar], op, lambda a, b: emit_compare(a, b, comparison, x_aval.dtype))
        ctx.region([scalar, scalar], op, lambda a, b: hlo.add(a, b), index=1)
        if shape == x_aval.shape:
            return op.result
        starts = [lo for lo, _ in pads]
        limits = [lo + n for lo, n in zip(starts, x_aval.shape, strict=True)]
        return hlo.slice(op.result, starts, limits, [1] * len(pads))

    jvp = _LINEAR_IN_FIRST

    def transpose(self, y_bar, source, x, *, comparison, **window):
        ones = (1,) * np.ndim(x)
        y = select_and_gather_add_p(y_bar, x, comparison=comparison, **window, base_dilation=ones, window_dilation=ones)
        return y, None

    def batch(self, source, x, bs, bx, *, comparison, **window):
        source, x, b = _align_mapped_dims(source, x, bs, bx)
        return self(source, x, comparison=comparison, **_mapped_window(window, b)), b


select_and_scatter_add_p = SelectAndScatterAdd()


class ReduceWindow(Primitive, name="reduce_window", multiple=True):
    """Reduce each window of the operands by a jaxpr of scalars: (*accumulators, *elements) -> accumulators."""

    def abstract_eval(self, *args, program, **window):
        xs = args[: len(args) // 2]
        return [x.with_shape(_window_shape("lax.reduce_window", x, window)) for x in xs]

    def sharding_rule(self, *args, program, **window):
        num = len(args) // 2
        rule = window_sharding_rule(num, args[0], window, num)
        return ShardingRule([*rule.operands, *[()] * num], rule.results, whole=rule.whole)

    def lower(self, ctx, *args, program, **window):
        num = len(args) // 2
        if not _is_static(window):
            return emit_symbolic_windows(ctx, args[:num], args[num:], window, program, ctx.avals_out)
        op = hlo.ReduceWindowOp(
            [ctx.type(a) for a in ctx.avals_out], args[:num], args[num:], **_window_attributes(**window)
        )
        scalars = [ShapedArray((), a.dtype) for a in ctx.avals_out]
        ctx.region([*scalars, *scalars], op, lambda *operands: ctx.emit(program, operands))
        return list(op.results)

    def jvp(self, primals, tangents, *, program, **window):
        avals = self.abstract_eval(*map(get_aval, primals), program=program, **window)
        if 0 in avals[0].shape:
            return self(*primals, program=program, **window), [Zero(a.to_tangent()) for a in avals]

        def reduce_elements(*args: Any) -> list:
            xs, inits = args[: len(avals)], args[len(avals) :]
            # XLA skips padding and the holes of a base dilation, whatever the initial value is.
            xs, starts = [*xs, full(np.shape(xs[0]), True)], [*inits, False]
            elements = [_window_elements(x, v, avals[0].shape, **window) for x, v in zip(xs, starts, strict=True)]
            return reduce_by_halves(_skipping(program), tuple(range(avals[0].ndim)), elements, [*inits, True])[:-1]

        return jvp_flat(reduce_elements, primals, tangents)

    transpose = Undefined("its derivative consists of other primitives, which have transposes")

    def batch(self, *args, program, **window):
        half = len(args) // 2
        operands, mapped = args[:half], args[half:]
        num = half // 2
        if any(b is not None for b in mapped[num:]):
            raise RuleError(
                "vmap of lax.reduce_window",
                expected="an init_value that is not mapped",
                got="a mapped one",
                fix="reduce from the identity and combine the mapped value afterwards",
            )
        b = next(b for b in mapped[:num] if b is not None)
        size = next(np.shape(x)[d] for x, d in zip(operands, mapped, strict=True) if d is not None)
        xs = [
            add_dim(x, b, size) if d is None else move_dim(x, d, b)
            for x, d in zip(operands[:num], mapped[:num], strict=True)
        ]
        return self(*xs, *operands[num:], program=program, **_mapped_window(window, b)), [b] * num


reduce_window_p = ReduceWindow()


@cached_on_jaxpr
def _skipping(program: Jaxpr) -> Any:
    """The reduction of values and of a flag whether they count, by a jaxpr that reduces values that all count."""
    num = len(program.outvars)
    avals = [*program.in_avals[:num], ShapedArray((), np.dtype(bool))]

    def step(*args: Any) -> list:
        (*a, a_counts), (*b, b_counts) = args[: num + 1], args[num + 1 :]
        both = run_jaxpr(program, *a, *b)
        found = [select(a_counts, select(b_counts, z, x), y) for x, y, z in zip(a, b, both, strict=True)]
        return [*found, or_p(a_counts, b_counts)]

    return trace_to_jaxpr(step, [*avals, *avals], "reduce_window_elements")


def _window_elements(
    x: Any,
    init: Any,
    windows: Sequence[DimSize],
    window_dimensions: Sequence[DimSize],
    window_strides: Sequence[int],
    padding: Sequence[tuple],
    base_dilation: Sequence[int],
    window_dilation: Sequence[int],
) -> Any:
    """The elements of all windows: any[*x] -> any[*window_dimensions, *windows]."""
    x = pad_p(x, init, config=tuple([(lo, hi, n - 1) for (lo, hi), n in zip(padding, base_dilation, strict=True)]))
    ndim, columns = x.ndim, zip(windows, window_dimensions, window_strides, window_dilation, strict=True)
    # One dimension after another, from the last to the first, so that a window of many elements takes few slices.
    for d, (count, size, stride, dilation) in reversed(list(enumerate(columns))):
        at = x.ndim - ndim + d
        ends = [0] * x.ndim, list(x.shape), [1] * x.ndim
        parts = []
        for start in range(0, size * dilation, dilation):
            for values, value in zip(ends, (start, start + (count - 1) * stride + 1, stride), strict=True):
                values[at] = value
            parts.append(add_dim(slice_p(x, **dict(zip(("starts", "stops", "strides"), map(tuple, ends)))), 0, 1))
        x = concatenate_p(*parts, dim=0)
    return x


_MONOIDS = {
    "add": (reduce_window_sum_p, _no_sum),
    "max": (reduce_window_max_p, dtypes.lowest),
    "min": (reduce_window_min_p, dtypes.highest),
}


def _start(init: Any, dtype: np.dtype) -> Any:
    """Convert a Python scalar to the dtype of the operand; an infinity becomes the extreme of an integer dtype."""
    # Users write -inf as the identity of a maximum for any dtype.
    if type(init) is float and math.isinf(init) and dtype_kind(dtype) in ("signed", "unsigned", "bool"):
        init = dtypes.highest(dtype) if init > 0 else dtypes.lowest(dtype)
    return dtype.type(init) if type(init) in (int, float, complex, bool) else init


def _monoid(program: Jaxpr, init: Any, dtype: np.dtype) -> Primitive | None:
    """The primitive for a jaxpr of a single sum, maximum or minimum that starts from the identity; else None."""
    if len(program.eqns) != 1 or len(program.invars) != 2 or len(program.outvars) != 1:
        return None
    eqn = program.eqns[0]
    # The primitives of sums, maxima and minima have derivatives in both modes and are faster on most platforms.
    found = _MONOIDS.get(eqn.primitive.name)
    # An operation on one argument and a captured constant, such as x + 1, is not a reduction of two elements.
    if found is None or set(eqn.invars) != set(program.invars) or list(program.outvars) != list(eqn.outvars):
        return None
    primitive, identity = found
    if type(init) not in (int, float, complex, bool) and not isinstance(init, np.ndarray | np.generic):
        # An initial value that is unknown while tracing may differ from the identity.
        init = getattr(init, "concrete", init)  # the value of a tracer, if it is known
        if init is None or not hasattr(init, "block_until_ready"):
            return None
    return primitive if np.asarray(init) == np.asarray(identity(dtype)) else None


@memoize("lax.window_reducers", 1024)
def _program_of(computation: Callable, avals: tuple, tree: Any) -> Any:
    def flat(*args: Any) -> list:
        num = len(avals)
        return tree_leaves(computation(tree_unflatten(tree, args[:num]), tree_unflatten(tree, args[num:])))

    return trace_to_jaxpr(flat, [*avals, *avals], "reduce_window")


def _window_params(
    shape: tuple,
    window_dimensions: Sequence[DimSize],
    window_strides: Sequence[int] | None,
    padding: Padding,
    base_dilation: Sequence[int] | None,
    window_dilation: Sequence[int] | None,
) -> dict:
    window = tuple(map(static_size, window_dimensions))
    strides, base, spread = (
        (1,) * len(shape) if v is None else tuple(map(int, v)) for v in (window_strides, base_dilation, window_dilation)
    )
    if isinstance(padding, str):
        padding = padtype_to_pads(
            [dilate(n, d) for n, d in zip(shape, base, strict=True)],
            [dilate(n, d) for n, d in zip(window, spread, strict=True)],
            strides,
            padding,
        )
    padding = tuple((static_size(lo), static_size(hi)) for lo, hi in padding)
    return dict(zip(WINDOW, (window, strides, padding, base, spread), strict=True))


def reduce_window(
    operand: PyTree,
    init_value: PyTree,
    computation: Callable,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None,
    padding: Padding = "VALID",
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Any:
    """Reduce the elements under each position of a sliding window: any[*x] -> any[*windows].

    Args:
      operand: an array, or a tree of arrays of one shape.
      init_value: the initial value of each reduction, which skips padding; a tree like `operand`.
      computation: an associative function of two scalars (or two trees of scalars), traced once.
      window_dimensions: the size of the window along each dimension.
      window_strides: the step of the window along each dimension; 1 by default.
      padding: `"SAME"`, `"SAME_LOWER"`, `"VALID"`, or a pair (low, high) for each dimension.
      base_dilation: the distance of neighbouring elements of the operand, with padding in between; 1 by default.
      window_dilation: the distance of neighbouring elements of the window; 1 by default.

    Returns:
      An array, or a tree of arrays, with one element for each position of the window. The derivatives
      of sums, maxima and minima that start from their identity (0, -inf, inf) take no more memory; derivatives of
      other functions store each window.

    Raises:
      ShapeError: an argument does not have one entry for each dimension.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.reduce_window(np.arange(6.0), -np.inf, lax.max, (2,), (2,)).tolist()
      [1.0, 3.0, 5.0]
    """
    xs, tree = tree_flatten(operand)
    inits, init_tree = tree_flatten(init_value)
    inits = [_start(v, get_aval(x).dtype) for v, x in zip(inits, xs, strict=False)]
    avals = [get_aval(x) for x in xs]
    if tree != init_tree or any(a.shape != avals[0].shape for a in avals):
        raise ShapeError(
            "lax.reduce_window operands",
            expected="one init_value for each operand, and operands of one shape",
            got=f"{', '.join(a.str_short() for a in avals)} with {len(inits)} init values",
            fix=f"pass {len(xs)} init values in the structure of the operand, and operands of shape {avals[0].shape}",
        )
    # Reported before the padding is computed, which would fail with a less specific error.
    if len(window_dimensions) != avals[0].ndim:
        _window_shape("lax.reduce_window", avals[0], {"window_dimensions": tuple(window_dimensions)})
    window = _window_params(avals[0].shape, window_dimensions, window_strides, padding, base_dilation, window_dilation)
    scalars = tuple([ShapedArray((), a.dtype) for a in avals])
    program = _program_of(computation, scalars, tree)
    if [a.dtype for a in program.out_avals] != [s.dtype for s in scalars]:
        raise ShapeError(
            "lax.reduce_window computation",
            expected=f"results of types {[s.str_short() for s in scalars]}",
            got=[a.str_short() for a in program.out_avals],
            fix="convert the results of the function with lax.convert_element_type",
        )
    if len(xs) == 1 and (monoid := _monoid(program, inits[0], avals[0].dtype)) is not None:
        return tree_unflatten(tree, [monoid(xs[0], **window)])
    return tree_unflatten(tree, reduce_window_p(*xs, *inits, program=program, **window))


def reduce_window_shape_tuple(
    operand_shape: Sequence[int],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Padding,
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> tuple:
    """The shape of a windowed reduction.

    Args:
      operand_shape: the shape of the operand.
      window_dimensions, window_strides, padding, base_dilation, window_dilation: as in `reduce_window`.

    Returns:
      The shape of the result.

    Examples:
      >>> from phalanx import lax
      >>> lax.reduce_window_shape_tuple((8, 8), (2, 2), (2, 2), "VALID")
      (4, 4)
    """
    shape = tuple(operand_shape)
    window = _window_params(shape, window_dimensions, window_strides, padding, base_dilation, window_dilation)
    return tuple([num_windows(n, *dim) for n, *dim in zip(shape, *window.values(), strict=True)])
