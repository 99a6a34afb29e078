"""Convolutions: `conv_general_dilated`, the functions written with it, and the primitive with all its rules.

Over several devices, `phalanx.partitioner.convolution_rules` takes the place of the `lower` rule. Builds on the
precision settings of `dot_general`; called by `phalanx.numpy`, `phalanx.scipy.signal` and the layers of `phalanx.nnx`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx.core import ArgumentError, Primitive, ShapedArray, ShapeError, ShardingRule, dtypes, get_aval, is_linear
from phalanx.engine.mlir import cached_per_context, hlo, ir
from phalanx.lax.contraction.dot_general import BILINEAR, dot_general, product_aval
from phalanx.lax.contraction.precision import PrecisionLike, canonicalize_precision, precision_attribute
from phalanx.lax.control_flow.scan import map as map_one_by_one
from phalanx.lax.convolution.conv_dimension_numbers import (
    ConvDimensionNumbers,
    ConvGeneralDilatedDimensionNumbers,
    conv_dimension_numbers,
)
from phalanx.lax.elementwise import convert_element_type
from phalanx.lax.shape import move_dim, reshape, rev, transpose
from phalanx.lax.shape.iota_and_full import full
from phalanx.lax.sharding.out_sharding import call_with_out_sharding
from phalanx.lax.subbyte import byte_aval, narrow_from_bytes, widen_to_bytes
from phalanx.lax.windows.window_shape import (
    Padding,
    conv_transpose_padding,
    cotangent_padding,
    crop_negative_padding,
    num_windows,
    padtype_to_pads,
)
from phalanx.runtime import LoweringContext, dynamic_shapes
from phalanx.symbolic import dilate, is_constant_shape, is_symbolic, static_size
from phalanx.typing import Array, ArrayLike, DimSize, DTypeLike, Shape, ShardingLike


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
        resized: dict = {"i": ("o",), "o": ("o",)} if c.feature_group_count > 1 else {}
        resized |= {("p", s): (("s", s),) for s in space}
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
    linear_in = ((0,), (1,))

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
    return {"dimension_numbers": ConvDimensionNumbers(*numbers), "mapped": mapped}


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
    # Mapped in the input only: a larger batch. With batch groups the groups must stay the major part of the batch.
    if of_w is None:
        x = _merge(x, of_x, lhs[0], minor=in_batch)
        merged, minor = out[0], in_batch
    # Mapped in the kernel only: more output features, again inside the groups if there are any.
    elif of_x is None:
        minor = c.is_grouped
        w = _merge(w, of_w, rhs[0], minor=minor)
        merged = out[1]
    # Mapped in both operands but not in the result: the dimension is summed over, as input features are.
    elif of_y is None:
        x, w = _merge(x, of_x, lhs[1], minor=in_features), _merge(w, of_w, rhs[1], minor=in_features)
    else:
        # Mapped in both operands and the result: each example has a kernel of its own, which is one group per example.
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
        # The result has the rank that its dimension numbers say; the ranks of the operands are given.
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
    if features != kernel_features * feature_groups:
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
        # The groups are the major part of the output features; in the transposed convolution they belong to the input
        # features: the kernel [(group, o), i] becomes [o, (group, i)].
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
        reach = (w.shape[k] - 1) * c.rhs_dilation[s] + dilate(np.shape(y_bar)[q], c.window_strides[s])
        pads.append((low, reach - dilate(np.shape(x)[p], c.lhs_dilation[s]) - low))
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


def conv_general_dilated(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Convolution of any number of dimensions, with strides, padding, dilation and groups.

    Unlike in mathematics the kernel is not reversed: `y[s] = sum over k of x[s * stride + k * dilation - low] w[k]`.

    Args:
      lhs: the input.
      rhs: the kernel, of the same rank.
      window_strides: the step of the window along each spatial dimension.
      padding: `"SAME"`, `"SAME_LOWER"`, `"VALID"`, or a pair (low, high) for each spatial dimension, negative to crop.
      lhs_dilation: the distance of neighbouring input elements, with zeros in between; 1 by default.
      rhs_dilation: the distance of neighbouring kernel elements; 1 by default.
      dimension_numbers: as in `conv_dimension_numbers`.
      feature_group_count: number of groups of input features, each with output features of its own.
      batch_group_count: number of groups of the batch, each with output features of its own.
      precision, preferred_element_type, out_sharding: as in `dot_general`.

    Returns:
      The convolution.

    Raises:
      ShapeError: the ranks, features or groups of the operands do not match.
      DTypeError: the dtypes have no common dtype.
      ArgumentError: the padding or the dimension numbers are not of a documented form.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> x, w = np.ones((1, 8, 8, 3), np.float32), np.ones((3, 3, 3, 16), np.float32)
      >>> lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")).shape
      (1, 4, 4, 16)
    """
    if out_sharding is not None:
        options = (
            *(window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers),
            *(feature_group_count, batch_group_count, precision, preferred_element_type),
        )
        return call_with_out_sharding(
            lambda x, w: conv_general_dilated(x, w, *options),
            (lhs, rhs),
            out_sharding,
            "lax.conv_general_dilated, out_sharding",
        )
    x, w = get_aval(lhs), get_aval(rhs)
    numbers = ConvDimensionNumbers(*map(tuple, conv_dimension_numbers(x.shape, w.shape, dimension_numbers)))
    window_strides, lhs_dilation, rhs_dilation = (
        (1,) * (x.ndim - 2) if v is None else tuple(map(int, v)) for v in (window_strides, lhs_dilation, rhs_dilation)
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
        precision=canonicalize_precision(precision),
        preferred_element_type=preferred_element_type,
    )


def conv(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: str,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
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
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
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
    lhs: ArrayLike,
    rhs: ArrayLike,
    strides: Sequence[int],
    padding: Padding,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    transpose_kernel: bool = False,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    use_consistent_padding: bool = False,
) -> Array:
    """Transposed convolution: the input is dilated by `strides` and convolved with stride 1.

    Args:
      lhs: the input.
      rhs: the kernel.
      strides: the dilation of the input; the strides of the convolution whose shape change this one reverses.
      padding: `"SAME"`, `"VALID"`, or a pair (low, high) for each spatial dimension of the dilated input.
      rhs_dilation: the distance of neighbouring kernel elements.
      dimension_numbers: as in `conv_dimension_numbers`; by default channels come last (`"NHC"`, `"HIO"`).
      transpose_kernel: reverse the kernel and exchange its feature dimensions, which gives the gradient of the
        convolution in its input.
      precision, preferred_element_type: as in `dot_general`.
      use_consistent_padding: interpret pairs as the padding of the convolution whose shape change is reversed.

    Returns:
      The transposed convolution.

    Raises:
      ArgumentError: the padding is neither a known name nor pairs.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.conv_transpose(np.ones((1, 4, 3)), np.ones((3, 3, 8)), (2,), "SAME").shape
      (1, 8, 8)
    """
    x, w = get_aval(lhs), get_aval(rhs)
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
        pads = [conv_transpose_padding(k, s, padding) for k, s in zip(window, strides, strict=True)]
    elif use_consistent_padding:
        # The transpose of an unpadded convolution needs the padding k - 1 for its kernel of size k, and each element of
        # padding (lo, hi) adds an output that the transpose must drop.
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
    lhs: ArrayLike,
    filter_shape: Shape,
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """The patches under a convolution's window, as features of the result.

    Args:
      lhs: the input.
      filter_shape: the spatial sizes of the window.
      window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, precision, preferred_element_type: as in
        `conv_general_dilated`.

    Returns:
      An array shaped like the convolution's result. Its feature dimension contains, for each input feature, the
      elements of the patch in row-major order.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.conv_general_dilated_patches(np.ones((1, 3, 8, 8)), (2, 2), (1, 1), "VALID").shape
      (1, 12, 7, 7)
    """
    x = get_aval(lhs)
    filter_shape = tuple(map(int, filter_shape))
    numbers = conv_dimension_numbers(x.shape, (1, 1, *filter_shape), dimension_numbers)
    features, patch = x.shape[numbers.lhs_spec[1]], int(np.prod(filter_shape))
    # A kernel of one-hot windows, the same for each feature: each output feature copies one element of the patch. As a
    # convolution, the extraction of patches has all derivatives and is partitioned like other convolutions.
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
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: Padding,
    filter_shape: Shape,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    precision: PrecisionLike = None,
) -> Array:
    """A convolution with a different kernel at each position.

    Args:
      lhs: the input.
      rhs: the kernels. The spatial dimensions have the sizes of the result's, and the input feature dimension runs over
        features and window positions in row-major order.
      window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, precision: as in `conv_general_dilated`.
      filter_shape: the spatial sizes of the window.

    Returns:
      The result, with the dimensions of a convolution's result.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.conv_general_dilated_local(np.ones((2, 3, 8)), np.ones((4, 6, 7)), (1,), "VALID", (2,)).shape
      (2, 4, 7)
    """
    numbers = conv_dimension_numbers(get_aval(lhs).shape, get_aval(rhs).shape, dimension_numbers)
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
    # The spatial dimensions are batch dimensions, since every position has its own kernel.
    # Their products have the shape [*space, batch, output feature].
    products = dot_general(patches, rhs, (((lhs_spec[1],), (rhs_spec[1],)), (lhs_spec[2:], rhs_spec[2:])), precision)
    space = len(out_spec) - 2
    sources = dict(zip(out_spec, (space, space + 1, *range(space)), strict=True))
    return transpose(products, [sources[d] for d in range(len(out_spec))])
