"""The primitive `conv_general_dilated`: its type, sharding rule, derivatives, batching and StableHLO.

Over several devices, `phalanx.partitioner.convolution_rules` takes the place of the `lower` rule. Builds on the
precision settings of `dot_general` and on the shape operations; the public functions are in `conv_general_dilated`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from phalanx.core import ArgumentError, Primitive, ShapedArray, ShapeError, ShardingRule, is_linear
from phalanx.engine.mlir import cached_per_context, hlo, ir
from phalanx.lax.contraction.dot_general import BILINEAR, product_aval
from phalanx.lax.contraction.precision import precision_attribute
from phalanx.lax.control_flow.scan import map as map_one_by_one
from phalanx.lax.convolution.conv_dimension_numbers import ConvDimensionNumbers
from phalanx.lax.shape import move_dim, reshape, rev
from phalanx.lax.shape.iota_and_full import full
from phalanx.lax.subbyte import byte_aval, narrow_from_bytes, widen_to_bytes
from phalanx.lax.windows.window_shape import cotangent_padding, crop_negative_padding, num_windows
from phalanx.runtime import Array, LoweringContext, dynamic_shapes
from phalanx.symbolic import dilate, is_constant_shape, is_symbolic
from phalanx.typing import DimSize


class ConvParams(NamedTuple):
    """The parameters of `conv_general_dilated_p`.

    Args:
      window_strides, lhs_dilation, rhs_dilation: an integer of at least 1 for each spatial dimension.
      padding: a pair (low, high) for each spatial dimension.
      dimension_numbers: a `ConvDimensionNumbers`, which leaves out mapped dimensions.
      feature_group_count, batch_group_count: numbers of groups, of which at least one is 1.
      mapped: for each dimension that `vmap` has added, its positions in the input, the kernel and the result; None
        where an operand does not have it. A dimension that only the operands have is summed over.
      precision, preferred_element_type: as in `dot_general`.
    """

    window_strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    lhs_dilation: tuple[int, ...]
    rhs_dilation: tuple[int, ...]
    dimension_numbers: ConvDimensionNumbers
    feature_group_count: int
    batch_group_count: int
    mapped: tuple[tuple[int | None, int | None, int | None], ...]
    precision: Any
    preferred_element_type: Any

    @property
    def is_grouped(self) -> bool:
        """Whether there is more than one group."""
        return self.feature_group_count > 1 or self.batch_group_count > 1

    def __call__(self, x: Array | ShapedArray, w: Array | ShapedArray, **changes: Any) -> Any:
        """Convolve `x` and `w` with these parameters, some of them replaced."""
        return conv_general_dilated_p(x, w, **self._replace(**changes)._asdict())


class ConvGeneralDilated(Primitive, name="conv_general_dilated"):
    """Sum over a sliding window of input times kernel: num[n, i, *p], num[o, i, *k] -> num[n, o, *s].

    `vmap` adds dimensions, listed in the parameter `mapped`. They are merged into the batch, the features or the groups
    only in the `lower` rule. Merged earlier, a sharded dimension would become part of a product of two dimensions, and
    its sharding could no longer be expressed.
    """

    def abstract_eval(self, x, w, **params):
        c = ConvParams(**params)
        lhs, rhs, out = c.dimension_numbers
        _check_conv(x, w, c)
        _check_groups(x, w, c)
        # Shapes may be symbolic, so sizes are computed by `num_windows` and not by integer arithmetic.
        spatial = [
            num_windows(x.shape[p], w.shape[k], stride, pads, base, window)
            for p, k, stride, pads, base, window in zip(lhs[2:], rhs[2:], *c[:4], strict=True)
        ]
        batch = x.shape[lhs[0]] if c.batch_group_count == 1 else x.shape[lhs[0]] // c.batch_group_count
        sizes = dict(zip(out, (batch, w.shape[rhs[0]], *spatial), strict=True))
        sizes |= {m[2]: mapped_size(x, w, m) for m in c.mapped if m[2] is not None}
        return product_aval("convolution", x, w, tuple([sizes[d] for d in sorted(sizes)]), c.preferred_element_type)

    def sharding_rule(self, x, w, **params):
        c = ConvParams(**params)
        lhs, rhs, out = c.dimension_numbers
        space = range(len(lhs) - 2)
        # In a grouped convolution the result has only a part of the batch, and the kernel only a part of the input
        # features. They are different dimensions and get names of their own.
        n_out = "n" if c.batch_group_count == 1 else "n of a group"
        i_rhs = "i" if c.feature_group_count == 1 else "i of a group"
        names: list[dict] = [{}, {}, {}]
        # The spatial dimensions of the input (p), the kernel (k) and the result (s) are different factors.
        for found, spec, parts, of in zip(names, (lhs, rhs, out), (("n", "i"), ("o", i_rhs), (n_out, "o")), "pks"):
            found.update(zip(spec, (*parts, *[(of, s) for s in space]), strict=True))
        for j, places in enumerate(c.mapped):
            for found, d in zip(names, places, strict=True):
                if d is not None:
                    found[d] = ("mapped", j)
        # Spatial dimensions of input (p), kernel (k) and result (s) need each other's neighbours.
        whole = {(of, s) for of in "pks" for s in space}
        if c.is_grouped:
            whole |= {"o", i_rhs} | ({"i"} if c.feature_group_count > 1 else {"n", n_out})
        reduced: dict = {"i": "sum"} if c.feature_group_count == 1 else {}
        reduced |= {("mapped", j): "sum" for j, places in enumerate(c.mapped) if places[2] is None}
        # Groups are the major part of both feature dimensions, so a shard of the features is a set of whole groups.
        resized = {"i": ("o",), "o": ("o",)} if c.feature_group_count > 1 else {}
        x_names, w_names, y_names = ([found[d] for d in sorted(found)] for found in names)
        return ShardingRule([x_names, w_names], [y_names], reduced=reduced, whole=whole, resized=resized)

    def lower(self, ctx: LoweringContext, x: Array | ShapedArray, w: Array | ShapedArray, **params: Any) -> Any:
        c, (x_aval, w_aval) = ConvParams(**params), ctx.avals_in
        if any(mapped_size(x_aval, w_aval, places) == 0 for places in c.mapped):
            return ctx.constant(np.zeros((), ctx.aval_out.dtype), ctx.aval_out)
        if c.mapped:
            return ctx.inline(merge_mapped_dim, x, w, c=c)
        # XLA's CPU convolution may read memory before an operand from which low padding removes elements.
        if min([low for low, _ in c.padding if type(low) is int], default=0) < 0:
            x, x_aval, c = crop_input(x, x_aval, c)
        return emit_convolution(ctx, x, w, c, (x_aval, w_aval), ctx.aval_out)

    jvp = BILINEAR

    def transpose(self, y_bar, x, w, **params):
        c = ConvParams(**params)
        return (_input_cotangent(y_bar, x, w, c), None) if is_linear(x) else (None, _kernel_cotangent(y_bar, x, w, c))

    def batch(self, x, w, bx, bw, **params):
        c = ConvParams(**params)
        if bx is not None and bw is not None and is_symbolic(np.shape(x)[bx]):
            # With both operands mapped each example becomes a group, which is faster than a loop. But the number of
            # groups is an attribute, so a symbolic number of examples needs the loop.
            return map_one_by_one(lambda pair: c(*pair), (move_dim(x, bx, 0), move_dim(w, bw, 0))), 0
        out = c.dimension_numbers[2]
        # The position next to the batch or the features, with which `merge_mapped_dim` will merge it.
        by = out[0] + (c.batch_group_count > 1) if bw is None else out[1] + (bx is None and c.is_grouped)
        return c(x, w, **add_mapped_dim(c, (bx, bw, by))), by


conv_general_dilated_p = ConvGeneralDilated()


def add_mapped_dim(c: ConvParams, places: tuple) -> dict:
    """The parameters that change when a mapped dimension is added at these positions of operands and result."""
    numbers = [tuple([shift_past(d, new) for d in spec]) for spec, new in zip(c.dimension_numbers, places, strict=True)]
    mapped = (*(tuple(map(shift_past, m, places)) for m in c.mapped), places)
    return dict(dimension_numbers=ConvDimensionNumbers(*numbers), mapped=mapped)


def crop_input(x: ir.Value, aval: ShapedArray, c: ConvParams) -> tuple[ir.Value, ShapedArray, ConvParams]:
    """Slice off what negative padding removes; returns the input, its type, and parameters without negative padding."""
    space = c.dimension_numbers[0][2:]
    if not is_constant_shape((*aval.shape, *[n for pair in c.padding for n in pair])):
        return x, aval, c
    starts, stops, padding = crop_negative_padding([aval.shape[d] for d in space], c.padding, c.lhs_dilation)
    if not all(stops):
        return x, aval, c
    ranges = dict(zip(space, zip(starts, stops, strict=True), strict=True))
    starts, stops = zip(*[ranges.get(d, (0, n)) for d, n in enumerate(aval.shape)], strict=True)
    cropped = aval.with_shape(tuple([stop - start for start, stop in zip(starts, stops, strict=True)]))
    return hlo.slice(x, starts, stops, [1] * aval.ndim), cropped, c._replace(padding=padding)


def emit_convolution(
    ctx: LoweringContext, x: ir.Value, w: ir.Value, c: ConvParams, avals: tuple, aval_out: ShapedArray
) -> ir.Value:
    """Emit a convolution without mapped dimensions, for operands of the types `avals`."""
    x_aval, w_aval = avals
    # StableHLO requires operands of one dtype; the common dtype is that of the result.
    dtype = x_aval.dtype
    if dtype != w_aval.dtype:
        dtype = aval_out.dtype
        x, w = (hlo.convert(ctx.type(a.with_dtype(dtype)), v) for a, v in ((x_aval, x), (w_aval, w)))
    (x, w), _ = widen_to_bytes(ctx, (x, w), (x_aval.with_dtype(dtype), w_aval.with_dtype(dtype)))
    precision_config, out_type = precision_attribute(c.precision), byte_aval(aval_out)
    pads = [n for pair in c.padding for n in pair]
    if is_constant_shape(pads):
        product = hlo.convolution(ctx.type(out_type), x, w, **_attributes(c), precision_config=precision_config)
    else:
        table_type = ShapedArray((len(c.padding), 2), dynamic_shapes.SCALAR.dtype)
        table = ctx.reshape(dynamic_shapes.sizes(ctx, pads), table_type)
        attributes = {k: v for k, v in _attributes(c._replace(padding=())).items() if k != "padding" and v is not None}
        if precision_config is not None:
            attributes["precision_config"] = precision_config
        product = ctx.op(hlo.DynamicConvOp, x, w, table, aval=out_type, **attributes)
    return narrow_from_bytes(ctx, [product], [aval_out])[0]


def mapped_size(x: Array | ShapedArray, w: Array | ShapedArray, places: tuple) -> Any:
    """The size of the mapped dimension at these positions in the input, the kernel and the result."""
    return np.shape(x)[places[0]] if places[0] is not None else np.shape(w)[places[1]]


def shift_past(d: int | None, new: int | None) -> int | None:
    """The position of dimension `d` once a dimension is inserted at `new`."""
    return d if d is None or new is None or d < new else d + 1


def _shift_after_removal(d: int | None, removed: int | None) -> int | None:
    """The position of dimension `d` once dimension `removed` is removed."""
    return d if d is None or removed is None or d < removed else d - 1


def merge_mapped_dim(x: Array | ShapedArray, w: Array | ShapedArray, c: ConvParams) -> Any:
    """Convolve with the first mapped dimension merged into the batch, the features or the groups, as the major part."""
    # One dimension is merged at a time; the convolution below is an equation with the remaining ones.
    places, *others = c.mapped
    lhs, rhs, out = numbers = ConvDimensionNumbers(
        *[
            tuple([_shift_after_removal(d, removed) for d in spec])
            for spec, removed in zip(c.dimension_numbers, places, strict=True)
        ]
    )
    of_x, of_w, of_y = places
    size = mapped_size(x, w, places)
    in_batch, in_features = c.batch_group_count > 1, c.feature_group_count > 1
    # Only the input is mapped: a larger batch. With batch groups the groups must stay the major part of the batch.
    if of_w is None:
        # Mapped in the input only: more examples of the batch.
        x = _merge(x, of_x, lhs[0], minor=in_batch)
        merged, minor = out[0], in_batch
    # Only the kernel is mapped: more output features, again inside the groups if there are any.
    elif of_x is None:
        # Mapped in the kernel only: more output features.
        minor = c.is_grouped
        w = _merge(w, of_w, rhs[0], minor=minor)
        merged = out[1]
    # Both operands are mapped and the result is not: the dimension is summed over, as input features are.
    elif of_y is None:
        # Summed over: more input features, which a convolution sums over.
        x, w = _merge(x, of_x, lhs[1], minor=in_features), _merge(w, of_w, rhs[1], minor=in_features)
    else:
        # Both operands and the result are mapped: each example has a kernel of its own, which is one group per example.
        # Mapped in both operands and the result: one group for each example.
        x, w = _merge(x, of_x, lhs[0] if in_batch else lhs[1], minor=False), _merge(w, of_w, rhs[0], minor=False)
        merged, minor = out[1], False
        kind = "batch_group_count" if in_batch else "feature_group_count"
        c = c._replace(**{kind: getattr(c, kind) * size})
    y = c(x, w, dimension_numbers=numbers, mapped=tuple([tuple(map(_shift_after_removal, m, places)) for m in others]))
    return y if of_y is None else move_dim(_split(y, merged, size, minor), merged + minor, of_y)


def split_groups(x: Array | ShapedArray, w: Array | ShapedArray, c: ConvParams) -> Any:
    """Convolve with the groups as a mapped dimension, which may be sharded."""
    # One of the two counts is 1.
    count = c.feature_group_count * c.batch_group_count
    lhs, rhs, out = c.dimension_numbers
    places = lhs[0] if c.batch_group_count > 1 else lhs[1], rhs[0], out[1]
    x, w = _split(x, places[0], count, minor=False), _split(w, places[1], count, minor=False)
    y = c(x, w, feature_group_count=1, batch_group_count=1, **add_mapped_dim(c, places))
    return _merge(y, out[1], out[1], minor=False)


@cached_per_context
def _attributes(c: ConvParams) -> dict:
    """The attributes of the StableHLO operation."""
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


def _check_conv(x: ShapedArray, w: ShapedArray, c: ConvParams) -> None:
    numbers = c.dimension_numbers
    space = len(numbers[0]) - 2
    for i, spec in enumerate(numbers):
        dims = [*spec, *(d for m in c.mapped if (d := m[i]) is not None)]
        if sorted(dims) != list(range((x.ndim, w.ndim, len(dims))[i])) or len(spec) != space + 2:
            raise ShapeError(
                "convolution dimension_numbers",
                expected=f"each a permutation of the {x.ndim} dimensions of both operands",
                got=f"{tuple(numbers)} for {x.str_short()} and {w.str_short()}",
                fix="pass the result of lax.conv_dimension_numbers(lhs.shape, rhs.shape, specs)",
            )
    for name in ("window_strides", "padding", "lhs_dilation", "rhs_dilation"):
        values = getattr(c, name)
        if len(values) != space:
            raise ShapeError(
                f"convolution {name}",
                expected=f"one entry for each of the {space} spatial dimensions",
                got=values,
                fix=f"pass {space} entries",
            )
        if name != "padding" and any(v < 1 for v in values):
            raise ArgumentError(
                f"convolution {name}",
                expected="positive integers",
                got=values,
                fix=f"pass {name}=(1,) * {space} for none",
            )


def _check_groups(x: ShapedArray, w: ShapedArray, c: ConvParams) -> None:
    lhs, rhs, _ = c.dimension_numbers
    feature_groups, batch_groups = c.feature_group_count, c.batch_group_count
    features, kernel_features, out_features = x.shape[lhs[1]], w.shape[rhs[1]], w.shape[rhs[0]]
    if feature_groups < 1 or batch_groups < 1 or (feature_groups > 1 and batch_groups > 1):
        raise ArgumentError(
            "convolution group counts",
            expected="positive counts, one of which is 1",
            got=f"feature_group_count={feature_groups}, batch_group_count={batch_groups}",
            fix="pass either feature_group_count or batch_group_count, and leave the other at 1",
        )
    wanted = features if feature_groups == 1 else kernel_features * feature_groups
    if features != wanted or (feature_groups == 1 and features != kernel_features):
        raise ShapeError(
            "convolution features",
            expected=f"an input with {kernel_features} features in each of {feature_groups} groups, as the kernel has",
            got=f"{features} features of {x.str_short()}, kernel {w.str_short()}",
            fix="check dimension_numbers and feature_group_count",
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
                fix=f"choose a group count that divides {size}",
            )


def _input_cotangent(y_bar: Array, x: Array | ShapedArray, w: Array | ShapedArray, c: ConvParams) -> Any:
    """Convolve y_bar, dilated by the strides, with the reversed kernel, input and output features exchanged."""
    lhs, rhs, out = c.dimension_numbers
    if 0 in np.shape(y_bar) or 0 in np.shape(w):
        return full(x.shape, 0, x.dtype)
    # The gradient of a correlation is a convolution in the sense of mathematics, which reverses the kernel.
    w = rev(w, rhs[2:]) if len(rhs) > 2 else w
    groups = c.feature_group_count * c.batch_group_count
    if groups > 1:
        # Kernel [(group, o), i] becomes [o, (group, i)].
        # The groups are the major part of the output features; in the transposed convolution they belong to the input
        # features.
        w = _merge(_split(w, rhs[0], groups, minor=False), rhs[0], rhs[1], minor=False)
    pads = [
        cotangent_padding(x.shape[p], np.shape(w)[k], np.shape(y_bar)[q], *column)
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
    # The groups were features of x_bar; in x they are part of the batch.
    if c.batch_group_count > 1:
        x_bar = _merge(_split(x_bar, lhs[1], c.batch_group_count, minor=False), lhs[1], lhs[0], minor=False)
    return x_bar


def _kernel_cotangent(y_bar: Array, x: Array | ShapedArray, w: Array | ShapedArray, c: ConvParams) -> Any:
    """Convolve x with y_bar as the kernel: batch and features change places, and so do strides and kernel dilation."""
    lhs, rhs, out = c.dimension_numbers
    if 0 in np.shape(y_bar) or 0 in np.shape(x):
        return full(w.shape, 0, w.dtype)
    # The window (y_bar, dilated by the strides) must have exactly one position for each element of the kernel. The low
    # padding is that of the forward pass; the high padding completes the extent that these positions reach.
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


def _merge(x: Array | ShapedArray, src: int, dst: int, minor: bool) -> Any:
    """Merge dimension `src` into the one at `dst` once `src` is removed, as its minor or its major part."""
    x = move_dim(x, src, dst + minor)
    shape = np.shape(x)
    return reshape(x, (*shape[:dst], shape[dst] * shape[dst + 1], *shape[dst + 2 :]))


def _split(x: Array | ShapedArray, dim: int, size: DimSize, minor: bool) -> Any:
    """Split `dim` into a major and a minor part, of which the one named by `minor` has `size` elements."""
    shape = np.shape(x)
    rest = shape[dim] // size
    return reshape(x, (*shape[:dim], *((rest, size) if minor else (size, rest)), *shape[dim + 1 :]))
