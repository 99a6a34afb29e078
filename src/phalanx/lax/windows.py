"""Reductions over sliding windows, and what their derivatives need: selecting and scattering the winner of each window.

Builds on the primitive core, on the arithmetic of `window_shape`, and on `scatter`. Called by pooling layers, by
`phalanx.numpy` and by the cumulative operations on backends where a window is the fastest way.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import dtypes
from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.errors import ArgumentError, RuleError, ShapeError
from phalanx.core.jaxpr import Jaxpr, derivation, run_program
from phalanx.core.primitive import LINEAR, Primitive, Roles, Undefined
from phalanx.core.tangent import Zero, instantiate
from phalanx.core.trace import stage
from phalanx.engine.mlir import hlo, ir
from phalanx.lax.arithmetic import add, sub
from phalanx.lax.broadcast import add_dim, dim_names, move_dim, zeros
from phalanx.lax.creation import full, iota
from phalanx.lax.cuts import cut_of, leaves_some_empty, whole
from phalanx.lax.elementwise import max_p, min_p
from phalanx.lax.family import kind_of
from phalanx.lax.scatter import ScatterDimensionNumbers, scatter_add
from phalanx.lax.shape import reshape
from phalanx.lax.window_shape import Padding, cotangent_pads, padtype_to_pads, windowed, without_negative
from phalanx.runtime import dynamic
from phalanx.runtime.lowering import LoweringContext, emit_function
from phalanx.symbolic import dilate, is_constant_shape, static_size

BOOL = np.dtype(bool)
WINDOW = ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")


def emit_symbolic_windows(
    ctx: LoweringContext,
    xs: Sequence[Any],
    initial: Sequence[Any],
    window: dict[str, Sequence[Any]],
    program: Jaxpr,
    avals: Sequence[ShapedArray],
) -> list:
    """Windows whose sizes or padding depend on dimension variables, reduced by a program of scalars."""
    module, ndim = ctx.module, avals[0].ndim
    held = module.variables, module.platforms
    module.variables, module.platforms = (), module.platforms[:1]  # the function takes the scalars alone
    try:
        body = module.add_function(("scalars", program), "window", lambda name: emit_function(module, program, name))
    finally:
        module.variables, module.platforms = held
    padding = dynamic.sizes(ctx, [n for pair in window["padding"] for n in pair])
    names = ("window_dimensions", "window_strides", "base_dilation", "window_dilation")
    numbers = [dynamic.sizes(ctx, window.get(name) or (1,) * ndim) for name in names]
    padded = ctx.reshape(padding, ShapedArray((ndim, 2), dynamic.SCALAR.dtype))
    called = ir.ArrayAttr.get([ir.FlatSymbolRefAttr.get(body.name.value)])
    operands = [*xs, *initial, *numbers, padded]
    return dynamic.custom_call(ctx, "stablehlo.dynamic_reduce_window", operands, avals, {"called_computations": called})


def _window_shape(where: str, x: ShapedArray, window: dict) -> tuple:
    """The shape of a windowed reduction of `x`."""
    for name in WINDOW:
        values = window.get(name)
        if values is None:
            continue
        if len(values) != x.ndim:
            raise ShapeError(
                f"{where} {name}",
                expected=f"one entry for each of the {x.ndim} dimensions of {x.str_short()}",
                got=values,
                mend="use 1 (no padding: (0, 0)) for dimensions without a window",
            )
        if name != "padding" and any(v < 1 for v in values):
            raise ArgumentError(f"{where} {name}", expected="positive integers", got=values, mend="use 1 for none")
    ones = (1,) * x.ndim
    columns = [x.shape, *[window.get(name) or ones for name in WINDOW]]
    return tuple([windowed(*dim) for dim in zip(*columns, strict=True)])


def _window_attributes(window: dict) -> dict:
    """The window as attributes of a StableHLO operation."""
    integers = ir.DenseI64ArrayAttr.get
    out = {name: integers(window[name]) for name in ("window_dimensions", "window_strides")}
    if "base_dilation" in window:
        out["base_dilations"] = integers(window["base_dilation"])
        out["window_dilations"] = integers(window["window_dilation"])
    pads = np.asarray(window["padding"], np.int64).reshape(-1, 2)
    out["padding"] = ir.DenseIntElementsAttr.get(pads)
    return out


def _without_negative_padding(ctx: LoweringContext, x: Any, aval: ShapedArray, window: dict) -> tuple[Any, dict]:
    """An operand and the window, without negative padding.

    XLA takes it off at the wrong end over several devices, and ends the process where a window has one place.
    """
    pads = [n for pair in window["padding"] for n in pair]
    if not is_constant_shape(aval.shape) or min(pads, default=0) >= 0:
        return x, window
    starts, stops, padding = without_negative(aval.shape, window["padding"], window["base_dilation"])
    return hlo.slice(x, starts, stops, [1] * aval.ndim), {**window, "padding": padding}


def _skips_dilated(window: dict) -> bool:
    """Whether windows skip places of a dilated dimension, of which XLA may give devices fewer than they need."""
    pairs = zip(window["window_strides"], window["base_dilation"], strict=True)
    return any(stride > 1 and base > 1 for stride, base in pairs)


def _whole_dims(ctx: Any, x: Any, window: dict) -> list:
    """The dimensions that operand and result of windows are to have whole.

    Where nobody says that they are split, or a device would be left without a result, XLA may take more than there is.
    """
    aval, y = ctx.avals_in[0], ctx.avals_out[0]
    if not (ctx.module.is_split and is_constant_shape((*aval.shape, *y.shape))):
        return []
    roles = _window_roles(1, aval, window)
    dims = {d: cut_of(ctx.module, x, d) for d, name in enumerate(roles.operands[0]) if name in roles.whole}
    return [
        d for d, cut in dims.items()
        if cut is None or (leaves_some_empty(y.shape[d], cut.parts) and not _is_side_by_side(window, d))
    ]  # fmt: skip


def _is_side_by_side(window: dict, d: int) -> bool:
    """Whether windows follow one another along a dimension without a gap, and nothing stands beside them."""
    size, stride, pads, *dilations = (window[name][d] for name in WINDOW if name in window)
    return size == stride and not any(pads) and set(dilations) <= {1}


def _is_static(window: dict) -> bool:
    """Whether sizes and padding of windows are plain numbers."""
    return is_constant_shape((*window["window_dimensions"], *(n for pair in window["padding"] for n in pair)))


def _window_roles(num_operands: int, x: ShapedArray, window: dict, num_results: int = 1) -> Roles:
    """Dimensions without a window are one index; the others are whole in operand and result."""
    inner = dim_names(x.ndim)
    outer, whole = [], set()
    plain = {"window_dimensions": 1, "window_strides": 1, "padding": (0, 0), "base_dilation": 1, "window_dilation": 1}
    for d, name in enumerate(inner):
        moves = any(tuple_or_int != plain[key] for key in window for tuple_or_int in [window[key][d]])
        outer.append(f"window {name}" if moves else name)
        if moves:
            whole |= {name, outer[-1]}
    return Roles([inner] * num_operands, [outer] * num_results, whole=whole)


def _mapped_window(window: dict, b: int) -> dict:
    """The window with a dimension of size 1 at the mapped dimension."""
    plain: dict = {"padding": (0, 0)}
    return {name: (*v[:b], plain.get(name, 1), *v[b:]) for name, v in window.items()}


class _ReduceWindowMonoid(Primitive):
    operation: Any = None
    pair: Callable  # the same on arrays
    identity: Callable

    def result(self, x, **window):
        return x.with_shape(_window_shape(f"lax.{self.name}", x, window))

    def roles(self, x, **window):
        return _window_roles(1, x, window)

    def by_pieces(self, x, **window):
        return _skips_dilated(window)

    def lower(self, ctx, x, **window):
        aval = ctx.aval_out
        scalar = ShapedArray((), aval.dtype)
        init = ctx.constant(np.asarray(type(self).identity(aval.dtype)).astype(aval.dtype), scalar)
        if not _is_static(window):
            program = stage(lambda a, b: [type(self).pair(a, b)], [scalar, scalar], self.name)
            return emit_symbolic_windows(ctx, [x], [init], window, program, [aval])[0]
        dims = _whole_dims(ctx, x, window)
        x, window = _without_negative_padding(ctx, whole(ctx, x, dims) if dims else x, ctx.avals_in[0], window)
        op = hlo.ReduceWindowOp([ctx.type(aval)], [x], [init], **_window_attributes(window))
        ctx.region([scalar, scalar], op, lambda a, b: self.operation(a, b).result)
        return whole(ctx, op.result, dims) if dims else op.result

    def batch(self, x, b, **window):
        return self(x, **_mapped_window(window, b)), b


def _no_sum(dtype: Any) -> Any:
    return 0


class ReduceWindowSum(_ReduceWindowMonoid, name="reduce_window_sum"):
    """The sum of each window of `x`: num[*x] -> num[*windows]."""

    operation = hlo.AddOp
    pair = staticmethod(add)
    identity = _no_sum
    jvp = LINEAR

    def transpose(self, y_bar, x, **window):
        if 0 in np.shape(y_bar):
            return (zeros(x.aval),)
        sizes, *others = (window[name] for name in WINDOW)
        columns = zip(x.shape, sizes, np.shape(y_bar), *others, strict=True)
        strides, base = window["window_strides"], window["base_dilation"]
        pads = tuple([cotangent_pads(*column) for column in columns])
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


def _emit_wins(ctx: Any, a: Any, b: Any, comparison: str, dtype: Any) -> Any:
    """Whether `a` is kept against `b`."""
    kind = "FLOAT" if dtypes.issubdtype(dtype, np.inexact) else "SIGNED"
    if dtype == BOOL or dtypes.issubdtype(dtype, np.unsignedinteger):
        kind = "UNSIGNED"
    direction = hlo.ComparisonDirectionAttr.get(comparison)
    return hlo.compare(a, b, direction, compare_type=hlo.ComparisonTypeAttr.get(kind))


def _aligned(x: Any, y: Any, bx: Any, by: Any) -> tuple[Any, Any, int]:
    """Two operands with the mapped dimension at the same place."""
    if bx is None:
        return add_dim(x, by, np.shape(y)[by]), y, by
    return x, (add_dim(y, bx, np.shape(x)[bx]) if by is None else move_dim(y, by, bx)), bx


class SelectAndGatherAdd(Primitive, name="select_and_gather_add"):
    """From each window, the element of `t` at the place where `x` is greatest (GE) or least (LE)."""

    by_pieces = True  # XLA splits windows over several operands as if these lay alike

    def result(self, t, x, *, comparison, **window):
        if t.shape != x.shape:
            raise ShapeError(
                "lax.select_and_gather_add operands",
                expected="equal shapes",
                got=f"{t.str_short()} and {x.str_short()}",
                mend="broadcast one of them",
            )
        return t.with_shape(_window_shape("lax.select_and_gather_add", x, window))

    def roles(self, t, x, *, comparison, **window):
        return _window_roles(2, x, window)

    def lower(self, ctx, t, x, *, comparison, **window):
        t_aval, x_aval = ctx.avals_in
        out = ctx.aval_out
        worst = dtypes.lowest(x_aval.dtype) if comparison == "GE" else dtypes.highest(x_aval.dtype)
        scalars = [ShapedArray((), x_aval.dtype), ShapedArray((), t_aval.dtype)]
        inits = [ctx.constant(np.asarray(v).astype(a.dtype), a) for v, a in zip((worst, 0), scalars, strict=True)]
        types = [ctx.type(out.update(dtype=x_aval.dtype)), ctx.type(out)]
        op = hlo.ReduceWindowOp(types, [x, t], inits, **_window_attributes(window))

        def body(a: Any, t_a: Any, b: Any, t_b: Any) -> list:
            wins = _emit_wins(ctx, a, b, comparison, x_aval.dtype)
            return [hlo.select(wins, a, b), hlo.select(wins, t_a, t_b)]

        ctx.region([*scalars, *scalars], op, body)
        return op.results[1]

    def jvp(self, primals, tangents, **params):
        y = self(*primals, **params)
        if type(tangents[0]) is Zero:
            return y, Zero.like(y)  # which place wins is locally constant
        return y, self(tangents[0], primals[1], **params)

    def transpose(self, y_bar, t, x, *, comparison, base_dilation, window_dilation, **window):
        if set(base_dilation) | set(window_dilation) <= {1}:
            return select_and_scatter_add_p(y_bar, x, comparison=comparison, **window), None
        # With dilation: number the places, find the number of each winner, and add there.
        size = int(np.prod(t.shape))
        places = add(reshape(iota(np.int32, size), t.shape), np.int32(1))
        winners = self(
            places, x, comparison=comparison, base_dilation=base_dilation, window_dilation=window_dilation, **window
        )
        count = int(np.prod(np.shape(y_bar)))
        flat = scatter_add(
            full((size,), 0, y_bar.dtype),
            sub(reshape(winners, (count, 1)), np.int32(1)),
            reshape(y_bar, (count,)),
            ScatterDimensionNumbers((), (0,), (0,)),
            mode="drop",
        )
        return reshape(flat, t.shape), None

    def batch(self, t, x, bt, bx, *, comparison, **window):
        t, x, b = _aligned(t, x, bt, bx)
        return self(t, x, comparison=comparison, **_mapped_window(window, b)), b


select_and_gather_add_p = SelectAndGatherAdd()


class SelectAndScatterAdd(Primitive, name="select_and_scatter_add"):
    """Elements of `source` added at the place in their window of `x` where `x` is greatest (GE) or least (LE)."""

    def by_pieces(self, source, x, *, window_dimensions, window_strides, **_):
        # XLA drops what windows add in stretches of other devices, where source and operand do not lie alike.
        return any(n > stride for n, stride in zip(window_dimensions, window_strides, strict=True))

    def result(self, source, x, *, comparison, **window):
        shape = _window_shape("lax.select_and_scatter_add", x, window)
        if source.shape != shape:
            raise ShapeError(
                "lax.select_and_scatter_add source",
                expected=f"shape {shape}, one element for each window",
                got=source.str_short(),
                mend="check the window",
            )
        return source.with_shape(x.shape)

    def roles(self, source, x, *, comparison, **window):
        roles = _window_roles(1, x, window)
        return Roles([roles.results[0], roles.operands[0]], [roles.operands[0]], whole=roles.whole)

    def lower(self, ctx, source, x, *, comparison, **window):
        s_aval, x_aval = ctx.avals_in
        scalar, x_scalar = ShapedArray((), s_aval.dtype), ShapedArray((), x_aval.dtype)
        attributes = _window_attributes(window)
        pads = window["padding"]
        shape = x_aval.shape
        if any(pad != (0, 0) for pad in pads):
            # XLA would pad with the initial value of the sum, which may win against elements: pad with what never does.
            worst = dtypes.lowest(x_aval.dtype) if comparison == "GE" else dtypes.highest(x_aval.dtype)
            low, high = zip(*pads, strict=True)
            x = hlo.pad(x, ctx.constant(np.asarray(worst).astype(x_aval.dtype), x_scalar), low, high, [0] * len(low))
            shape = tuple([n + lo + hi for n, (lo, hi) in zip(shape, pads, strict=True)])
            attributes["padding"] = ir.DenseIntElementsAttr.get(np.zeros((len(pads), 2), np.int64))
        op = hlo.SelectAndScatterOp(
            ctx.type(ShapedArray(shape, s_aval.dtype)), x, source, ctx.constant(0, scalar), **attributes
        )
        ctx.region([x_scalar, x_scalar], op, lambda a, b: _emit_wins(ctx, a, b, comparison, x_aval.dtype))
        ctx.region([scalar, scalar], op, lambda a, b: hlo.add(a, b), index=1)
        if shape == x_aval.shape:
            return op.result
        starts = [lo for lo, _ in pads]
        limits = [lo + n for lo, n in zip(starts, x_aval.shape, strict=True)]
        return hlo.slice(op.result, starts, limits, [1] * len(pads))

    def jvp(self, primals, tangents, **params):
        y = self(*primals, **params)
        if type(tangents[0]) is Zero:
            return y, Zero.like(y)
        return y, self(tangents[0], primals[1], **params)

    def transpose(self, y_bar, source, x, *, comparison, **window):
        ones = (1,) * np.ndim(x)
        y = select_and_gather_add_p(y_bar, x, comparison=comparison, **window, base_dilation=ones, window_dilation=ones)
        return y, None

    def batch(self, source, x, bs, bx, *, comparison, **window):
        source, x, b = _aligned(source, x, bs, bx)
        return self(source, x, comparison=comparison, **_mapped_window(window, b)), b


select_and_scatter_add_p = SelectAndScatterAdd()


class ReduceWindow(Primitive, name="reduce_window", multiple=True):
    """Each window of the operands reduced by a program of scalars: (accumulated..., next...) to accumulated."""

    def by_pieces(self, *args, program, **window):
        return len(args) > 2 or _skips_dilated(window)

    def result(self, *args, program, **window):
        xs = args[: len(args) // 2]
        return [x.with_shape(_window_shape("lax.reduce_window", x, window)) for x in xs]

    def roles(self, *args, program, **window):
        num = len(args) // 2
        roles = _window_roles(num, args[0], window, num)
        return Roles([*roles.operands, *[()] * num], roles.results, whole=roles.whole)

    def lower(self, ctx, *args, program, **window):
        num = len(args) // 2
        if not _is_static(window):
            return emit_symbolic_windows(ctx, args[:num], args[num:], window, program, ctx.avals_out)
        dims = _whole_dims(ctx, args[0], window)
        xs = [whole(ctx, x, dims) if dims else x for x in args[:num]]
        op = hlo.ReduceWindowOp([ctx.type(a) for a in ctx.avals_out], xs, args[num:], **_window_attributes(window))
        scalars = [ShapedArray((), a.dtype) for a in ctx.avals_out]
        ctx.region([*scalars, *scalars], op, lambda *operands: ctx.emit(program, operands))
        return [whole(ctx, y, dims) if dims else y for y in op.results]

    def jvp(self, primals, tangents, *, program, **window):
        num = len(primals) // 2
        dots = [instantiate(t) for t in tangents]
        args = [*primals[:num], *dots[:num], *primals[num:], *dots[num:]]
        out = self(*args, program=_tangent_program(program), **window)
        return out[:num], out[num:]

    transpose = Undefined(
        "the derivative of a general window reduction runs forward only; use sum, max or min, or phalanx.jvp or jacfwd"
    )

    def batch(self, *args, program, **window):
        half = len(args) // 2
        operands, mapped = args[:half], args[half:]
        num = half // 2
        if any(b is not None for b in mapped[num:]):
            raise RuleError(
                "vmap of lax.reduce_window",
                expected="an init_value that is not mapped",
                got="a mapped one",
                mend="reduce from the identity and combine the mapped value afterwards",
            )
        b = next(b for b in mapped[:num] if b is not None)
        size = next(np.shape(x)[d] for x, d in zip(operands, mapped, strict=True) if d is not None)
        xs = [
            add_dim(x, b, size) if d is None else move_dim(x, d, b)
            for x, d in zip(operands[:num], mapped[:num], strict=True)
        ]
        return self(*xs, *operands[num:], program=program, **_mapped_window(window, b)), [b] * num


reduce_window_p = ReduceWindow()


@derivation
def _tangent_program(program: Any) -> Any:
    """The program that reduces values and tangents together: the pair inherits associativity."""
    from phalanx.transforms import jvp

    num = len(program.invars) // 2
    avals = [v.aval for v in program.invars]

    def step(*args: Any) -> list:
        a, a_dot, b, b_dot = (args[i * num : (i + 1) * num] for i in range(4))
        y, y_dot = jvp(lambda *xs: run_program(program, *xs), (*a, *b), (*a_dot, *b_dot))
        return [*y, *y_dot]

    left, right = avals[:num], avals[num:]
    return stage(step, [*left, *left, *right, *right], "reduce_window_jvp")


_MONOIDS = {
    "add": (reduce_window_sum_p, _no_sum),
    "max": (reduce_window_max_p, dtypes.lowest),
    "min": (reduce_window_min_p, dtypes.highest),
}


def _start(init: Any, dtype: Any) -> Any:
    """A Python scalar in the dtype of the operand; infinities are the extremes of integers, which have none."""
    if type(init) is float and math.isinf(init) and kind_of(dtype) in ("signed", "unsigned", "bool"):
        init = dtypes.highest(dtype) if init > 0 else dtypes.lowest(dtype)
    return dtype.type(init) if type(init) in (int, float, complex, bool) else init


def _monoid(program: Any, init: Any, dtype: Any) -> Primitive | None:
    """The primitive for a program of one operation that starts from its identity."""
    if len(program.eqns) != 1 or len(program.invars) != 2 or len(program.outvars) != 1:
        return None
    eqn = program.eqns[0]
    found = _MONOIDS.get(eqn.primitive.name)
    if found is None or set(eqn.invars) != set(program.invars) or list(program.outvars) != list(eqn.outvars):
        return None
    primitive, identity = found
    if type(init) not in (int, float, complex, bool) and not isinstance(init, np.ndarray | np.generic):
        init = getattr(init, "concrete", init)  # a tracer's value, if Python may look at it
        if init is None or not hasattr(init, "block_until_ready"):
            return None
    return primitive if np.asarray(init) == np.asarray(identity(dtype)) else None


@functools.lru_cache(1024)
def _program_of(computation: Callable, avals: tuple, tree: Any) -> Any:
    from phalanx.tree import tree_flatten, tree_unflatten

    def flat(*args: Any) -> list:
        num = len(avals)
        out = computation(tree_unflatten(tree, args[:num]), tree_unflatten(tree, args[num:]))
        return tree_flatten(out)[0]

    return stage(flat, [*avals, *avals], "reduce_window")


def _window_params(
    shape: tuple, window_dimensions: Any, window_strides: Any, padding: Any, base_dilation: Any, window_dilation: Any
) -> dict:
    ones = (1,) * len(shape)
    window = tuple(map(static_size, window_dimensions))
    strides, base, spread = (
        ones if v is None else tuple(map(int, v)) for v in (window_strides, base_dilation, window_dilation)
    )
    if isinstance(padding, str):
        extents = [dilate(n, d) for n, d in zip(shape, base, strict=True)]
        spans = [dilate(n, d) for n, d in zip(window, spread, strict=True)]
        padding = padtype_to_pads(extents, spans, strides, padding)
    padding = tuple((static_size(lo), static_size(hi)) for lo, hi in padding)
    return dict(zip(WINDOW, (window, strides, padding, base, spread), strict=True))


def reduce_window(
    operand: Any,
    init_value: Any,
    computation: Callable,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None,
    padding: Padding = "VALID",
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Any:
    """Reduce each position of a sliding window: any[*x] -> any[*windows].

    Args:
      operand: an array, or a tree of arrays of one shape.
      init_value: the number to start from, which padding also consists of; a tree like `operand`.
      computation: an associative function of two scalars (or two trees of them), traced once.
      window_dimensions: the size of the window along each dimension.
      window_strides: its steps; 1 when left out.
      padding: `"SAME"`, `"SAME_LOWER"`, `"VALID"`, or a pair (low, high) for each dimension.
      base_dilation: the step at which elements are laid out; 1 when left out.
      window_dilation: the step between the elements of a window; 1 when left out.

    Returns:
      An array, or tree of arrays, with one element for each position of the window. Sums, maxima and minima from their
      identity (0, -inf, inf) have derivatives in both modes, other computations in forward mode.

    Raises:
      ShapeError: an argument has not one entry for each dimension.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.reduce_window(np.arange(6.0), -np.inf, lax.max, (2,), (2,)).tolist()
      [1.0, 3.0, 5.0]
    """
    from phalanx.tree import tree_flatten, tree_unflatten

    xs, tree = tree_flatten(operand)
    inits, init_tree = tree_flatten(init_value)
    inits = [_start(v, aval_of(x).dtype) for v, x in zip(inits, xs, strict=False)]
    avals = [aval_of(x) for x in xs]
    if tree != init_tree or any(a.shape != avals[0].shape for a in avals):
        raise ShapeError(
            "lax.reduce_window operands",
            expected="one init_value for each operand, and operands of one shape",
            got=f"{', '.join(a.str_short() for a in avals)} with {len(inits)} init values",
            mend="give a tree of init values like the operand",
        )
    if len(window_dimensions) != avals[0].ndim:
        _window_shape("lax.reduce_window", avals[0], {"window_dimensions": tuple(window_dimensions)})
    window = _window_params(avals[0].shape, window_dimensions, window_strides, padding, base_dilation, window_dilation)
    scalars = tuple([ShapedArray((), a.dtype) for a in avals])
    program = _program_of(computation, scalars, tree)
    got = [v.aval.dtype for v in program.outvars]
    if got != [s.dtype for s in scalars]:
        raise ShapeError(
            "lax.reduce_window computation",
            expected=f"results of types {[s.str_short() for s in scalars]}",
            got=[v.aval.str_short() for v in program.outvars],
            mend="convert its results",
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
      The result's shape.

    Examples:
      >>> from phalanx import lax
      >>> lax.reduce_window_shape_tuple((8, 8), (2, 2), (2, 2), "VALID")
      (4, 4)
    """
    shape = tuple(operand_shape)
    window = _window_params(shape, window_dimensions, window_strides, padding, base_dilation, window_dilation)
    return tuple([windowed(n, *dim) for n, *dim in zip(shape, *window.values(), strict=True)])
