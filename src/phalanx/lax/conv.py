"""Convolutions: `conv_general_dilated` and the functions written with it.

Builds on the primitive core, on the precision settings of `dot`, and on the shape operations; called by
`phalanx.numpy`, `phalanx.scipy.signal` and the layers of `phalanx.nnx`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx.core import dtypes
from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.errors import ArgumentError, ShapeError
from phalanx.core.primitive import Primitive, Roles
from phalanx.core.tangent import is_linear
from phalanx.engine.mlir import hlo, ir, per_context, sdy
from phalanx.lax.broadcast import move_dim, transpose
from phalanx.lax.convert import convert_element_type
from phalanx.lax.creation import full
from phalanx.lax.cuts import Cut, cut_of, leaves_some_empty, whole
from phalanx.lax.dot import BILINEAR, PrecisionLike, canonical_precision, dot_general, precision_attribute, product_aval
from phalanx.lax.explicit import laid_out
from phalanx.lax.loops import map as map_one_by_one
from phalanx.lax.shape import reshape, rev
from phalanx.lax.tiny import narrowed, wide, widened
from phalanx.lax.window_shape import (
    ConvDimensionNumbers,
    Padding,
    conv_dimension_numbers,
    cotangent_pads,
    padtype_to_pads,
    transposed_pads,
    windowed,
    without_negative,
)
from phalanx.runtime import dynamic, pieces
from phalanx.runtime.shardy import sdy_sharding
from phalanx.sharding import UNCONSTRAINED, PartitionSpec
from phalanx.symbolic import dilate, is_constant_shape, is_symbolic, static_size


class _Convolution(NamedTuple):
    """What a convolution is told besides its operands: the parameters of the primitive.

    window_strides, lhs_dilation, rhs_dilation: for each spatial dimension an integer, at least 1.
    padding: for each a pair (low, high).
    dimension_numbers: a `ConvDimensionNumbers`, which does not speak of mapped dimensions.
    feature_group_count, batch_group_count: numbers of groups, one of which is 1.
    mapped: for each dimension more its place in the input, the kernel and the result, None where it is not.
    precision, preferred_element_type: as in `dot_general`.
    """

    window_strides: tuple
    padding: tuple
    lhs_dilation: tuple
    rhs_dilation: tuple
    dimension_numbers: ConvDimensionNumbers
    feature_group_count: int
    batch_group_count: int
    mapped: tuple
    precision: Any
    preferred_element_type: Any

    @property
    def is_grouped(self) -> bool:
        return self.feature_group_count > 1 or self.batch_group_count > 1

    def __call__(self, x: Any, w: Any, **changes: Any) -> Any:
        """Convolve, with these parameters changed."""
        return conv_general_dilated_p(x, w, **self._replace(**changes)._asdict())


class ConvGeneralDilated(Primitive, name="conv_general_dilated"):
    """Sum over a sliding window of input times kernel: num[n, i, *p], num[o, i, *k] -> num[n, o, *s].

    There may be dimensions more, which are `mapped`; what only the operands have is summed over. They become part of
    batch, features or groups when the operation is lowered for one device, and not before: where one of two dimensions
    is split, their product cannot be.
    """

    def result(self, x, w, **params):
        c = _Convolution(**params)
        lhs, rhs, out = c.dimension_numbers
        _check_conv(x, w, c)
        _check_groups(x, w, c)
        spatial = [
            windowed(x.shape[p], w.shape[k], stride, pads, base, window)
            for p, k, stride, pads, base, window in zip(lhs[2:], rhs[2:], *c[:4], strict=True)
        ]
        batch = x.shape[lhs[0]] if c.batch_group_count == 1 else x.shape[lhs[0]] // c.batch_group_count
        sizes = dict(zip(out, (batch, w.shape[rhs[0]], *spatial), strict=True))
        sizes |= {m[2]: _mapped_size(x, w, m) for m in c.mapped if m[2] is not None}
        return product_aval("convolution", x, w, tuple([sizes[d] for d in sorted(sizes)]), c.preferred_element_type)

    def roles(self, x, w, **params):
        c = _Convolution(**params)
        lhs, rhs, out = c.dimension_numbers
        space = range(len(lhs) - 2)
        n_out = "n" if c.batch_group_count == 1 else "n of a group"
        i_rhs = "i" if c.feature_group_count == 1 else "i of a group"
        names: list[dict] = [{}, {}, {}]
        for found, spec, parts, of in zip(names, (lhs, rhs, out), (("n", "i"), ("o", i_rhs), (n_out, "o")), "pks"):
            found.update(zip(spec, (*parts, *[(of, s) for s in space]), strict=True))
        for j, places in enumerate(c.mapped):
            for found, d in zip(names, places, strict=True):
                if d is not None:
                    found[d] = ("mapped", j)
        whole = {(of, s) for of in "pks" for s in space}
        if c.is_grouped:
            whole |= {"o", i_rhs} | ({"i"} if c.feature_group_count > 1 else {"n", n_out})
        reduced: dict = {"i": "sum"} if c.feature_group_count == 1 else {}
        reduced |= {("mapped", j): "sum" for j, places in enumerate(c.mapped) if places[2] is None}
        # Groups are the slow part of both features, so that those of a device may be its own groups.
        resized = {"i": ("o",), "o": ("o",)} if c.feature_group_count > 1 else {}
        x_names, w_names, y_names = ([found[d] for d in sorted(found)] for found in names)
        return Roles([x_names, w_names], [y_names], reduced=reduced, whole=whole, resized=resized)

    def lower(self, ctx, x, w, **params):
        x_aval, w_aval = ctx.avals_in
        c, module = _Convolution(**params), ctx.module
        if any(_mapped_size(x_aval, w_aval, places) == 0 for places in c.mapped):
            return ctx.constant(np.zeros((), ctx.aval_out.dtype), ctx.aval_out)
        if module.is_split and not module.is_portable and is_constant_shape(x_aval.shape):
            if any(base > 1 and window > 1 for base, window in zip(c.lhs_dilation, c.rhs_dilation, strict=True)):
                # XLA does not always bring devices what they need of a space in which both operands are dilated.
                return pieces.emit(ctx, ctx.eqn, (x, w))[0]
            # XLA splits plain and depthwise convolutions itself, and would gather all other groups, and what is mapped.
            in_groups = c.batch_group_count > 1 or (c.feature_group_count > 1 and not _is_depthwise(w_aval, c))
            # Pieces of sums are added up only where every partition can be named.
            is_sum = module.manual is not None and any(places[2] is None for places in c.mapped)
            is_of_kernel = _is_of_kernel(ctx, c)
            is_whole = not _is_left_in_space(ctx, x, w, c, is_of_kernel)
            if is_whole and (in_groups or c.mapped) and not is_sum:
                return ctx.inline(_by_groups, x, w, c=c) if in_groups else pieces.emit(ctx, ctx.eqn, (x, w))[0]
            if not c.mapped:
                return _settled(ctx, x, w, c, is_whole, is_of_kernel, in_groups)
        return ctx.inline(_merged, x, w, c=c) if c.mapped else _lower(ctx, x, w, c)

    jvp = BILINEAR

    def transpose(self, y_bar, x, w, **params):
        c = _Convolution(**params)
        return (_input_cotangent(y_bar, x, w, c), None) if is_linear(x) else (None, _kernel_cotangent(y_bar, x, w, c))

    def batch(self, x, w, bx, bw, **params):
        c = _Convolution(**params)
        if bx is not None and bw is not None and is_symbolic(np.shape(x)[bx]):
            # Groups as many as examples would do, but their number is part of the program.
            return map_one_by_one(lambda pair: c(*pair), (move_dim(x, bx, 0), move_dim(w, bw, 0))), 0
        out = c.dimension_numbers[2]
        # Where it comes to stand when it is merged into the batch or the features.
        by = out[0] + (c.batch_group_count > 1) if bw is None else out[1] + (bx is None and c.is_grouped)
        return c(x, w, **_mapping(c, (bx, bw, by))), by


conv_general_dilated_p = ConvGeneralDilated()


def _mapping(c: _Convolution, places: tuple) -> dict:
    """The parameters that change where operands and result have a mapped dimension more, at these places."""
    numbers = [tuple([_beside(d, new) for d in spec]) for spec, new in zip(c.dimension_numbers, places, strict=True)]
    mapped = (*(tuple(map(_beside, m, places)) for m in c.mapped), places)
    return dict(dimension_numbers=ConvDimensionNumbers(*numbers), mapped=mapped)


def _lower(ctx: Any, x: Any, w: Any, c: _Convolution) -> Any:
    """A convolution without mapped dimensions in StableHLO."""
    x_aval, w_aval = ctx.avals_in
    dtype = x_aval.dtype
    if dtype != w_aval.dtype:
        dtype = ctx.aval_out.dtype
        x, w = (hlo.convert(ctx.type(a.with_dtype(dtype)), v) for a, v in ((x_aval, x), (w_aval, w)))
    (x, w), _ = widened(ctx, (x, w), (x_aval.with_dtype(dtype), w_aval.with_dtype(dtype)))
    precision_config = precision_attribute(c.precision)
    pads = [n for pair in c.padding for n in pair]
    # Split or not: on CPUs XLA may read what stands before an operand whose padding takes off its start.
    is_negative = (
        is_constant_shape((*x_aval.shape, *pads)) and min(pads if ctx.module.is_split else pads[::2], default=0) < 0
    )
    if is_negative:
        space = c.dimension_numbers[0][2:]
        starts, stops, padding = without_negative([x_aval.shape[d] for d in space], c.padding, c.lhs_dilation)
        if all(stops):
            cut = dict(zip(space, zip(starts, stops, strict=True), strict=True))
            starts, stops = zip(*[cut.get(d, (0, n)) for d, n in enumerate(x_aval.shape)], strict=True)
            x, c = hlo.slice(x, starts, stops, [1] * x_aval.ndim), c._replace(padding=padding)
    if is_constant_shape(pads):
        aval, (lhs, _, out) = wide(ctx.aval_out), c.dimension_numbers
        order = [lhs[out.index(d)] for d in range(aval.ndim)]
        is_turned = ctx.module.is_split and order != sorted(order)
        if is_turned:  # XLA looks up how a result is split where the operand has its dimensions.
            aval = aval.with_shape(tuple([aval.shape[order.index(d)] for d in range(aval.ndim)]))
            c = c._replace(dimension_numbers=c.dimension_numbers._replace(out_spec=lhs))
        product = hlo.convolution(ctx.type(aval), x, w, **_attributes(c), precision_config=precision_config)
        if is_turned:
            product = hlo.transpose(product, order)
    else:
        table = ctx.reshape(dynamic.sizes(ctx, pads), ShapedArray((len(c.padding), 2), dynamic.SCALAR.dtype))
        attributes = {k: v for k, v in _attributes(c._replace(padding=())).items() if k != "padding" and v is not None}
        if precision_config is not None:
            attributes["precision_config"] = precision_config
        product = ctx.op(hlo.DynamicConvOp, x, w, table, aval=wide(ctx.aval_out), **attributes)
    return narrowed(ctx, [product], ctx.avals_out)[0]


def _is_depthwise(w: ShapedArray, c: _Convolution) -> bool:
    """Whether XLA splits this convolution in groups along the groups.

    It does where each group is a feature that has one result, but gives several results of one others' features, ends
    the process over windows of one place, and adds up cotangents of kernels over devices that have the same batch.
    """
    _, (out, features, *space), _ = c.dimension_numbers
    is_one_to_one = w.shape[features] == 1 and w.shape[out] == c.feature_group_count
    return is_one_to_one and not c.mapped and any(w.shape[d] > 1 for d in space)


def _is_of_kernel(ctx: Any, c: _Convolution) -> bool:
    """Whether this looks like the cotangent of a kernel: the result is small, what is summed over is not."""
    _, (_, _, *space), out = c.dimension_numbers
    return bool(space) and ctx.avals_in[1].shape[space[0]] > ctx.aval_out.shape[out[2]]


def _is_left_in_space(ctx: Any, x: Any, w: Any, c: _Convolution, is_of_kernel: bool) -> bool:
    """Whether devices have stretches of the space, and XLA is to fetch just what windows reach into those of others.

    Where both operands are split it sums over all devices, and those that have the same stretch count again.
    """
    (lhs, rhs, out), (_, w_aval), y = c.dimension_numbers, ctx.avals_in, ctx.aval_out
    places = [(v, d) for v, spec in ((x, lhs), (w, rhs))[: 1 + is_of_kernel] for d in spec[2:]]
    held = next((cut for v, d in places if (cut := cut_of(ctx.module, v, d)) is not None), None)
    if held is None or not is_of_kernel:
        # Where dilated stretches do not end where those of the result do, XLA may take more than there is.
        dims = zip(lhs[2:], out[2:], c.lhs_dilation, strict=True)
        uneven = [p for p, q, base in dims if base > 1 and (cut := cut_of(ctx.module, x, p)) and y.shape[q] % cut.parts]
        return held is not None and not uneven
    return not (held.has_replicas or leaves_some_empty(w_aval.shape[rhs[2]], held.sharding.mesh.size))


def _settled(ctx: Any, x: Any, w: Any, c: _Convolution, is_whole: bool, is_of_kernel: bool, in_groups: bool) -> Any:
    """A convolution of which XLA is told what is whole, in space above all, and that the result lies as the input.

    Where it settles that by itself it may count stretches that several have again, or cut some that nobody has.
    """
    lhs, rhs, out = c.dimension_numbers
    if is_whole:
        x, w = whole(ctx, x, lhs[2:]), whole(ctx, w, rhs[2:])
    elif not is_of_kernel:
        w = whole(ctx, w, rhs)
    grouped: Sequence[int] = ()
    if in_groups:
        first = int(c.batch_group_count == 1)
        x, grouped = whole(ctx, x, lhs[first:2]), out[first:2]
    y = _lower(ctx, x, w, c)
    if is_whole or is_of_kernel:
        return whole(ctx, y, (*grouped, *out[2:]))
    return _as_input(ctx, y, [cut_of(ctx.module, x, d) for d in lhs[2:]], out, grouped)


def _as_input(ctx: Any, y: Any, cuts: Sequence[Cut | None], out: Sequence[int], grouped: Sequence[int]) -> Any:
    """A result that is split in space as the input, and not along the dimensions `grouped`."""
    held = next(cut for cut in cuts if cut is not None).sharding
    entries: list = [None if d in grouped else UNCONSTRAINED for d in range(len(out))]
    used: set = set()
    for d, cut in zip(out[2:], cuts, strict=True):
        size, parts = ctx.aval_out.shape[d], cut.parts if cut else 1
        if cut is None or leaves_some_empty(size, parts):
            entries[d] = None
        elif size % parts == 0 and cut.sharding.mesh is held.mesh and used.isdisjoint(cut.axes):
            entries[d] = cut.axes
            used.update(cut.axes)
    lying = sdy_sharding(ctx.module, held.with_spec(PartitionSpec(*entries)), len(out))
    return sdy.ShardingConstraintOp(y, lying).result


def _mapped_size(x: Any, w: Any, places: tuple) -> Any:
    """The size of a mapped dimension that has these places in input, kernel and result."""
    return np.shape(x)[places[0]] if places[0] is not None else np.shape(w)[places[1]]


def _beside(d: int | None, new: int | None) -> int | None:
    """Where dimension `d` stands beside a new one."""
    return d if d is None or new is None or d < new else d + 1


def _without(d: int | None, gone: int | None) -> int | None:
    """Where dimension `d` stands when another one is gone."""
    return d if d is None or gone is None or d < gone else d - 1


def _merged(x: Any, w: Any, c: _Convolution) -> Any:
    """One whose mapped dimensions are merged into others, as their slow part where groups do not forbid it."""
    places, *others = c.mapped
    lhs, rhs, out = numbers = ConvDimensionNumbers(
        *[tuple([_without(d, gone) for d in spec]) for spec, gone in zip(c.dimension_numbers, places, strict=True)]
    )
    of_x, of_w, of_y = places
    size = _mapped_size(x, w, places)
    in_batch, in_features = c.batch_group_count > 1, c.feature_group_count > 1
    if of_w is None:
        x = _merge(x, of_x, lhs[0], minor=in_batch)
        merged, minor = out[0], in_batch
    elif of_x is None:
        minor = c.is_grouped
        w = _merge(w, of_w, rhs[0], minor=minor)
        merged = out[1]
    elif of_y is None:
        x, w = _merge(x, of_x, lhs[1], minor=in_features), _merge(w, of_w, rhs[1], minor=in_features)
    else:
        x, w = _merge(x, of_x, lhs[0] if in_batch else lhs[1], minor=False), _merge(w, of_w, rhs[0], minor=False)
        merged, minor = out[1], False
        kind = "batch_group_count" if in_batch else "feature_group_count"
        c = c._replace(**{kind: getattr(c, kind) * size})
    y = c(x, w, dimension_numbers=numbers, mapped=tuple([tuple(map(_without, m, places)) for m in others]))
    return y if of_y is None else move_dim(_split(y, merged, size, minor), merged + minor, of_y)


def _by_groups(x: Any, w: Any, c: _Convolution) -> Any:
    """A convolution in groups, which are a mapped dimension, so that each may be on devices of its own."""
    count = c.feature_group_count * c.batch_group_count
    lhs, rhs, out = c.dimension_numbers
    places = lhs[0] if c.batch_group_count > 1 else lhs[1], rhs[0], out[1]
    x, w = _split(x, places[0], count, minor=False), _split(w, places[1], count, minor=False)
    y = c(x, w, feature_group_count=1, batch_group_count=1, **_mapping(c, places))
    return _merge(y, out[1], out[1], minor=False)


@per_context
def _attributes(c: _Convolution) -> dict:
    """A convolution's parameters as attributes of the StableHLO operation."""
    lhs, rhs, out = c.dimension_numbers
    integer = ir.IntegerType.get_signless(64)
    integers = ir.DenseI64ArrayAttr.get
    return {
        "dimension_numbers": hlo.ConvDimensionNumbers.get(
            input_batch_dimension=lhs[0],
            input_feature_dimension=lhs[1],
            input_spatial_dimensions=list(lhs[2:]),
            kernel_input_feature_dimension=rhs[1],
            kernel_output_feature_dimension=rhs[0],
            kernel_spatial_dimensions=list(rhs[2:]),
            output_batch_dimension=out[0],
            output_feature_dimension=out[1],
            output_spatial_dimensions=list(out[2:]),
        ),
        "feature_group_count": ir.IntegerAttr.get(integer, c.feature_group_count),
        "batch_group_count": ir.IntegerAttr.get(integer, c.batch_group_count),
        "window_strides": integers(c.window_strides),
        "padding": ir.DenseElementsAttr.get(np.asarray(c.padding, np.int64).reshape(-1, 2)),
        "lhs_dilation": integers(c.lhs_dilation),
        "rhs_dilation": integers(c.rhs_dilation),
    }


def _check_conv(x: ShapedArray, w: ShapedArray, c: _Convolution) -> None:
    numbers = c.dimension_numbers
    space = len(numbers[0]) - 2
    for i, spec in enumerate(numbers):
        dims = [*spec, *(m[i] for m in c.mapped if m[i] is not None)]
        if sorted(dims) != list(range((x.ndim, w.ndim, len(dims))[i])) or len(spec) != space + 2:
            raise ShapeError(
                "convolution dimension_numbers",
                expected=f"each a permutation of the {x.ndim} dimensions of both operands",
                got=f"{tuple(numbers)} for {x.str_short()} and {w.str_short()}",
                mend="see lax.conv_dimension_numbers",
            )
    for name in ("window_strides", "padding", "lhs_dilation", "rhs_dilation"):
        values = getattr(c, name)
        if len(values) != space:
            raise ShapeError(
                f"convolution {name}",
                expected=f"one entry for each of the {space} spatial dimensions",
                got=values,
                mend="give as many entries as there are spatial dimensions",
            )
        if name != "padding" and any(v < 1 for v in values):
            raise ArgumentError(f"convolution {name}", expected="positive integers", got=values, mend="use 1 for none")


def _check_groups(x: ShapedArray, w: ShapedArray, c: _Convolution) -> None:
    lhs, rhs, _ = c.dimension_numbers
    feature_groups, batch_groups = c.feature_group_count, c.batch_group_count
    features, kernel_features, out_features = x.shape[lhs[1]], w.shape[rhs[1]], w.shape[rhs[0]]
    if feature_groups < 1 or batch_groups < 1 or (feature_groups > 1 and batch_groups > 1):
        raise ArgumentError(
            "convolution group counts",
            expected="positive counts, one of which is 1",
            got=f"feature_group_count={feature_groups}, batch_group_count={batch_groups}",
            mend="use only one kind of groups",
        )
    wanted = features if feature_groups == 1 else kernel_features * feature_groups
    if features != wanted or (feature_groups == 1 and features != kernel_features):
        raise ShapeError(
            "convolution features",
            expected=f"an input with {kernel_features} features in each of {feature_groups} groups, as the kernel has",
            got=f"{features} features of {x.str_short()}, kernel {w.str_short()}",
            mend="check dimension_numbers and feature_group_count",
        )
    for name, size, groups in (
        ("output features", out_features, feature_groups * batch_groups),
        ("input batch", x.shape[lhs[0]], batch_groups),
    ):
        if groups > 1 and size % groups != 0:
            raise ShapeError(
                f"convolution {name}",
                expected=f"a multiple of {groups} groups",
                got=size,
                mend="change the group count",
            )


def _input_cotangent(y_bar: Any, x: Any, w: Any, c: _Convolution) -> Any:
    """y_bar, dilated by the strides, convolved with the reversed kernel whose features are exchanged."""
    lhs, rhs, out = c.dimension_numbers
    if 0 in np.shape(y_bar) or 0 in np.shape(w):
        return full(x.shape, 0, x.dtype)
    w = rev(w, rhs[2:]) if len(rhs) > 2 else w
    groups = c.feature_group_count * c.batch_group_count
    if groups > 1:
        # Kernel [(group, o), i] becomes [o, (group, i)].
        w = _merge(_split(w, rhs[0], groups, minor=False), rhs[0], rhs[1], minor=False)
    pads = [
        cotangent_pads(x.shape[p], np.shape(w)[k], np.shape(y_bar)[q], *column)
        for p, k, q, *column in zip(lhs[2:], rhs[2:], out[2:], *c[:4], strict=True)
    ]
    x_bar = c(
        y_bar,
        w,
        window_strides=c.lhs_dilation,
        padding=tuple(pads),
        lhs_dilation=c.window_strides,
        dimension_numbers=ConvDimensionNumbers(out, (rhs[1], rhs[0], *rhs[2:]), lhs),
        feature_group_count=groups,
        batch_group_count=1,
        mapped=tuple([m[::-1] for m in c.mapped]),
        preferred_element_type=x.dtype,
    )
    if c.batch_group_count > 1:
        x_bar = _merge(_split(x_bar, lhs[1], c.batch_group_count, minor=False), lhs[1], lhs[0], minor=False)
    return x_bar


def _kernel_cotangent(y_bar: Any, x: Any, w: Any, c: _Convolution) -> Any:
    """The input convolved with y_bar as kernel, the batch as features, strides and kernel dilation exchanged."""
    lhs, rhs, out = c.dimension_numbers
    if 0 in np.shape(y_bar) or 0 in np.shape(x):
        return full(w.shape, 0, w.dtype)
    pads = []
    for s, (p, k, q) in enumerate(zip(lhs[2:], rhs[2:], out[2:], strict=True)):
        low = c.padding[s][0]
        extent = dilate(np.shape(x)[p], c.lhs_dilation[s])
        reach = (w.shape[k] - 1) * c.rhs_dilation[s] + dilate(np.shape(y_bar)[q], c.window_strides[s])
        pads.append((low, reach - extent - low))
    exchanged = ConvDimensionNumbers((lhs[1], lhs[0], *lhs[2:]), (out[1], out[0], *out[2:]), (rhs[1], rhs[0], *rhs[2:]))
    return c(
        x,
        y_bar,
        window_strides=c.rhs_dilation,
        padding=tuple(pads),
        rhs_dilation=c.window_strides,
        dimension_numbers=exchanged,
        feature_group_count=c.batch_group_count,
        batch_group_count=c.feature_group_count,
        mapped=tuple([(of_x, of_y, of_w) for of_x, of_w, of_y in c.mapped]),
        preferred_element_type=w.dtype,
    )


def _merge(x: Any, src: int, dst: int, minor: bool) -> Any:
    """Merge dimension `src` into the one that is `dst` without it, as its fast part (`minor`) or slow part."""
    x = move_dim(x, src, dst + minor)
    shape = np.shape(x)
    return reshape(x, (*shape[:dst], shape[dst] * shape[dst + 1], *shape[dst + 2 :]))


def _split(x: Any, dim: int, size: Any, minor: bool) -> Any:
    """Split `dim` in two: its fast part (`minor`) or its slow part has `size`, and the slow part comes first."""
    shape = np.shape(x)
    rest = shape[dim] // size
    return reshape(x, (*shape[:dim], *((rest, size) if minor else (size, rest)), *shape[dim + 1 :]))


def conv_general_dilated(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Any:
    """Convolution of any number of dimensions, with strides, padding, dilation and groups.

    As the field has it the kernel is not reversed: `y[s] = sum over k of x[s * stride + k * dilation - low] w[k]`.

    Args:
      lhs: the input.
      rhs: the kernel, of the same rank.
      window_strides: the step of the window along each spatial dimension.
      padding: `"SAME"`, `"SAME_LOWER"`, `"VALID"`, or a pair (low, high) for each spatial dimension, negative to crop.
      lhs_dilation: the step at which input elements are laid out (holes are zeros); 1 when left out.
      rhs_dilation: the same for the kernel.
      dimension_numbers: as in `conv_dimension_numbers`.
      feature_group_count: number of groups that the input features and output features fall into.
      batch_group_count: number of groups that the batch and the output features fall into.
      precision, preferred_element_type, out_sharding: as in `dot_general`.

    Returns:
      The convolution.

    Raises:
      ShapeError: ranks, features or groups do not fit.
      DTypeError: the dtypes do not mix.
      ArgumentError: the padding or the dimension numbers cannot be read.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> x, w = np.ones((1, 8, 8, 3), np.float32), np.ones((3, 3, 3, 16), np.float32)
      >>> lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")).shape
      (1, 4, 4, 16)
    """
    if out_sharding is not None:
        options = (window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, feature_group_count,
                   batch_group_count, precision, preferred_element_type)  # fmt: skip
        convolve = lambda x, w: conv_general_dilated(x, w, *options)
        return laid_out(convolve, (lhs, rhs), out_sharding, "lax.conv_general_dilated, out_sharding")
    x, w = aval_of(lhs), aval_of(rhs)
    specs = tuple(map(tuple, conv_dimension_numbers(x.shape, w.shape, dimension_numbers)))
    numbers = ConvDimensionNumbers(*specs)
    space = x.ndim - 2
    window_strides, lhs_dilation, rhs_dilation = (
        (1,) * space if v is None else tuple(map(int, v)) for v in (window_strides, lhs_dilation, rhs_dilation)
    )
    if isinstance(padding, str):
        window = [dilate(w.shape[k], r) for k, r in zip(numbers.rhs_spec[2:], rhs_dilation, strict=True)]
        extent = [dilate(x.shape[p], r) for p, r in zip(numbers.lhs_spec[2:], lhs_dilation, strict=True)]
        padding = padtype_to_pads(extent, window, window_strides, padding)
    if preferred_element_type is not None:
        preferred_element_type = dtypes.canonicalize_dtype(preferred_element_type)
    return conv_general_dilated_p(
        lhs,
        rhs,
        window_strides=window_strides,
        padding=tuple((static_size(lo), static_size(hi)) for lo, hi in padding),
        lhs_dilation=lhs_dilation,
        rhs_dilation=rhs_dilation,
        dimension_numbers=numbers,
        feature_group_count=int(feature_group_count),
        batch_group_count=int(batch_group_count),
        mapped=(),
        precision=canonical_precision(precision),
        preferred_element_type=preferred_element_type,
    )


def conv(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: str,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
) -> Any:
    """Convolution in the standard layout: num[n, i, *p], num[o, i, *k] -> num[n, o, *s].

    Args:
      lhs, rhs, window_strides, padding, precision, preferred_element_type: as in `conv_general_dilated`.

    Returns:
      The convolution.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.conv(np.ones((1, 3, 8)), np.ones((4, 3, 3)), (1,), "VALID").shape
      (1, 4, 6)
    """
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, precision=precision, preferred_element_type=preferred_element_type
    )


def conv_with_general_padding(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
) -> Any:
    """Convolution in the standard layout with dilation.

    Args:
      lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, precision, preferred_element_type: as in
        `conv_general_dilated`.

    Returns:
      The convolution.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.conv_with_general_padding(
      ...     np.ones((1, 3, 8)), np.ones((4, 3, 3)), (1,), [(1, 1)], (1,), (2,)
      ... ).shape
      (1, 4, 6)
    """
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def conv_transpose(
    lhs: Any,
    rhs: Any,
    strides: Sequence[int],
    padding: Padding,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    transpose_kernel: bool = False,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
    use_consistent_padding: bool = False,
) -> Any:
    """Transposed convolution: the input is laid out `strides` apart and convolved with steps of 1.

    Args:
      lhs: the input.
      rhs: the kernel.
      strides: the distance of input elements; those of the convolution that this one undoes.
      padding: `"SAME"`, `"VALID"`, or a pair (low, high) for each spatial dimension of the dilated input.
      rhs_dilation: the step at which kernel elements are laid out.
      dimension_numbers: as in `conv_dimension_numbers`; channels last when left out (`"NHC"`, `"HIO"` and so on).
      transpose_kernel: reverse the kernel and exchange its features, so that this is the gradient of the convolution.
      precision, preferred_element_type: as in `dot_general`.
      use_consistent_padding: read given pairs as the padding of the convolution that this one undoes.

    Returns:
      The transposed convolution.

    Raises:
      ArgumentError: the padding cannot be read.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.conv_transpose(np.ones((1, 4, 3)), np.ones((3, 3, 8)), (2,), "SAME").shape
      (1, 8, 8)
    """
    x, w = aval_of(lhs), aval_of(rhs)
    if dimension_numbers is None:
        space = tuple(range(1, x.ndim - 1))
        last = x.ndim - 1
        dimension_numbers = ConvDimensionNumbers(
            (0, last, *space), (last, last - 1, *range(x.ndim - 2)), (0, last, *space)
        )
    numbers = conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    rhs_spec = tuple(numbers.rhs_spec)
    dilation = (1,) * (x.ndim - 2) if rhs_dilation is None else tuple(rhs_dilation)
    window = [dilate(w.shape[k], r) for k, r in zip(rhs_spec[2:], dilation, strict=True)]
    if isinstance(padding, str):
        pads = [transposed_pads(k, s, padding) for k, s in zip(window, strides, strict=True)]
    elif use_consistent_padding:
        pads = [(k - 1 - lo, k - 1 - hi) for k, (lo, hi) in zip(window, padding, strict=True)]
    else:
        pads = list(padding)
    if transpose_kernel:
        rhs = rev(rhs, rhs_spec[2:])
        numbers = numbers._replace(rhs_spec=(rhs_spec[1], rhs_spec[0], *rhs_spec[2:]))
    return conv_general_dilated(
        lhs,
        rhs,
        (1,) * (x.ndim - 2),
        pads,
        strides,
        dilation,
        numbers,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def conv_general_dilated_patches(
    lhs: Any,
    filter_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
) -> Any:
    """The patches that a convolution's window sees, as features of the result.

    Args:
      lhs: the input.
      filter_shape: the spatial sizes of the window.
      window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, precision, preferred_element_type: as in
        `conv_general_dilated`.

    Returns:
      An array like the convolution's result whose feature dimension holds, for each input feature, the elements of its
      patch in row-major order.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.conv_general_dilated_patches(np.ones((1, 3, 8, 8)), (2, 2), (1, 1), "VALID").shape
      (1, 12, 7, 7)
    """
    x = aval_of(lhs)
    filter_shape = tuple(map(int, filter_shape))
    numbers = conv_dimension_numbers(x.shape, (1, 1, *filter_shape), dimension_numbers)
    features, patch = x.shape[numbers.lhs_spec[1]], int(np.prod(filter_shape))
    # A kernel of one-hot windows, the same for each feature.
    kernel = np.tile(np.eye(patch).reshape(patch, 1, *filter_shape), (features, 1, *[1] * len(filter_shape)))
    kernel = convert_element_type(np.moveaxis(kernel, range(x.ndim), numbers.rhs_spec), x.dtype)
    return conv_general_dilated(
        lhs,
        kernel,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        numbers,
        feature_group_count=features,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def conv_general_dilated_local(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: Padding,
    filter_shape: Sequence[int],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    precision: PrecisionLike = None,
) -> Any:
    """A convolution whose kernel is another one at each position.

    Args:
      lhs: the input.
      rhs: the kernels; where a kernel has its spatial dimensions, this has those of the result, and its input feature
        dimension runs over feature and window positions, row-major.
      window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, precision: as in `conv_general_dilated`.
      filter_shape: the spatial sizes of the window.

    Returns:
      The result, laid out as that of a convolution.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.conv_general_dilated_local(np.ones((2, 3, 8)), np.ones((4, 6, 7)), (1,), "VALID", (2,)).shape
      (2, 4, 7)
    """
    numbers = conv_dimension_numbers(aval_of(lhs).shape, aval_of(rhs).shape, dimension_numbers)
    lhs_spec, rhs_spec, out_spec = map(tuple, numbers)
    patches = conv_general_dilated_patches(
        lhs,
        filter_shape,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        ConvDimensionNumbers(lhs_spec, rhs_spec, lhs_spec),
        precision,
    )
    products = dot_general(
        patches, rhs, (((lhs_spec[1],), (rhs_spec[1],)), (lhs_spec[2:], rhs_spec[2:])), precision
    )  # [*space, n, o]
    space = len(out_spec) - 2
    order = [0] * len(out_spec)
    for d, source in zip(out_spec, (space, space + 1, *range(space)), strict=True):
        order[d] = source
    return transpose(products, order)
