"""All-reduce collectives: `psum`, `pmean`, `pmax`, `pmin`, and `pdot` and `pbroadcast`, which are built from `psum`.

Collectives that move data are in `all_gather`, `all_to_all` and `permute`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import (
    LINEAR,
    UNVARYING,
    ArgumentError,
    Primitive,
    ShapedArray,
    ShardingRule,
    Tracer,
    dtypes,
    get_aval,
    state,
)
from phalanx.engine.mlir import hlo, ir
from phalanx.lax.collectives.named_axes import (
    AxisGroups,
    AxisScope,
    Collective,
    axis_index,
    drop_axis,
    resolve_axis_names,
)
from phalanx.lax.collectives.pvary import pvary_p
from phalanx.lax.collectives.replica_groups import ReplicaGroups
from phalanx.lax.contraction.dot_general import dot_general
from phalanx.lax.elementwise import (
    ANY,
    NUMBER,
    ORDERED,
    DtypeKinds,
    check_dtype_kind,
    convert_element_type_p,
    div_p,
    eq_p,
    mul_p,
    scale_tangent,
    select,
    set_name_and_doc,
)
from phalanx.lax.reductions.float_total_order import drops_nans, reduce_as_integers
from phalanx.lax.reductions.reduce_sum import reduce_sum_p
from phalanx.lax.reductions.reduction_family import reduce_max_p, reduce_min_p
from phalanx.lax.shape import broadcast_in_dim, dim_names, resolve_dims, zeros
from phalanx.runtime.lowering import LoweringContext
from phalanx.transforms.batching import AxisData
from phalanx.tree import tree_map
from phalanx.typing import ArrayLike, AxisName, PyTree


class CollectiveReduction(Collective):
    """Base class of reductions over named axes: any[*dims] -> any[*dims], the same result for all members."""

    kinds: DtypeKinds = NUMBER
    way = ""  # the name of the reduction in sharding rules
    dense: Any = None  # the primitive that reduces over a dimension
    combine: Any = None  # the StableHLO operation that combines two elements

    def abstract_eval(self, x: ShapedArray, **_: Any) -> Any:
        check_dtype_kind(f"lax.{self.name}", x, self.kinds)
        return x

    def varying(self, held: frozenset, *, tracked: frozenset, groups: tuple | None, **_: Any) -> frozenset:
        # A reduction over a whole axis has one result for all devices; with groups, each group has its own.
        return held - tracked if groups is None else held | tracked

    def sharding_rule(self, x: ShapedArray, *, axes: tuple, groups: tuple | None, **_: Any) -> ShardingRule:
        combined = dict.fromkeys(axes, self.way if groups is None else None)
        return ShardingRule([dim_names(x.ndim)], [dim_names(x.ndim)], axes=combined)

    def lower(
        self, ctx: LoweringContext, x: ir.Value, *, axes: tuple, sizes: tuple, groups: tuple | None, tracked: frozenset
    ) -> Any:
        # Along an axis that the operand does not vary over, all devices have the same value: nothing is sent.
        held = ctx.avals_in[0]
        same = tracked - held.varying - held.mat.unreduced if groups is None else UNVARYING
        apart = tuple(a for a in axes if a not in same)
        # Some platforms return a number for the maximum of a number and NaN; they reduce the bits as ordered integers.
        if apart and self.way in ("max", "min") and drops_nans(ctx, ctx.aval_out.dtype):
            extreme = functools.partial(self, axes=axes, sizes=sizes, groups=groups, tracked=tracked)
            return ctx.inline(lambda v: reduce_as_integers(extreme, self.way == "max", v), x)[0]
        x = ReplicaGroups.of(ctx, self.name, apart, groups).all_reduce(ctx, x, self.combine) if apart else x
        # Along the other axes `count` members contribute equal values.
        count = math.prod(n for a, n in zip(axes, sizes) if a in same)
        return x if count == 1 else ctx.inline(lambda v: self.repeated(v, count), x, avals=[ctx.aval_out])[0]

    def batch_collective_axis(
        self, x: ArrayLike, b: int, at: int, *, axes: tuple, sizes: tuple, groups: None, tracked: frozenset
    ) -> tuple:
        # The members of the mapped axis are a dimension of the operand, so that part of the reduction needs no
        # communication.
        return self._rest(self.dense(x, dims=(b,)), at, axes, sizes, tracked), None

    def batch_unmapped(
        self, x: ArrayLike, axis: AxisData, at: int, *, axes: tuple, sizes: tuple, groups: None, tracked: frozenset
    ) -> tuple:
        return self._rest(self.repeated(x, axis.size), at, axes, sizes, tracked), None

    def repeated(self, x: ArrayLike, count: Any) -> Any:
        """The reduction of `count` copies of one value."""
        return x

    def _rest(self, x: ArrayLike, at: int, axes: tuple, sizes: tuple, tracked: frozenset) -> Any:
        return x if len(axes) == 1 else self(x, **drop_axis(at, axes, sizes, tracked))


class PSum(CollectiveReduction, name="psum"):
    """The sum over the members of named axes.

    Along a tracked mesh axis the sum is a single value shared by all devices, and so is its cotangent: the transpose
    marks it as varying. Along any other axis each member has its own copy of the sum, so the transpose sums the
    cotangents of all copies.
    """

    way = combines = "sum"
    dense = reduce_sum_p
    combine = hlo.AddOp
    jvp = LINEAR

    def transpose(
        self, y_bar: Any, x: ArrayLike, *, axes: tuple, sizes: tuple, groups: tuple | None, tracked: frozenset
    ) -> tuple:
        # The sum of a group varies between groups, so it is never one value shared by all devices: each member has a
        # copy.
        if groups is not None:
            return (self(y_bar, axes=axes, sizes=sizes, groups=groups, tracked=tracked),)
        # Along untracked axes the sum was computed by every member, so its cotangents are summed likewise.
        apart = [(a, n) for a, n in zip(axes, sizes) if a not in tracked]
        if apart:
            names, counts = zip(*apart)
            y_bar = self(y_bar, axes=names, sizes=counts, groups=None, tracked=UNVARYING)
        # The cotangent of an unreduced operand is reduced, which the backward pass casts it to.
        over = tuple(a for a in axes if a in tracked and a not in x.aval.mat.reduced)
        return (pvary_p(y_bar, axes=over) if over else y_bar,)

    def repeated(self, x: ArrayLike, count: Any) -> Any:
        return scale_tangent(x, count)


psum_p = PSum()


class _CollectiveExtreme(CollectiveReduction):
    kinds = ORDERED

    def jvp(self, primals: Sequence, tangents: Sequence, **params: Any) -> tuple:
        (x,), (t,) = primals, tangents
        y = self(x, **params)
        # The mean of the tangents of all members that attain the extreme, each of which counts as 1.
        hit = convert_element_type_p(eq_p(x, y), dtype=t.dtype, weak_type=False)
        return y, div_p(psum_p(mul_p(t, hit), **params), psum_p(hit, **params))


class PMax(_CollectiveExtreme, name="pmax"):
    """The maximum over the members of named axes."""

    way = combines = "max"
    dense = reduce_max_p
    combine = hlo.MaxOp


class PMin(_CollectiveExtreme, name="pmin"):
    """The minimum over the members of named axes."""

    way = combines = "min"
    dense = reduce_min_p
    combine = hlo.MinOp


pmax_p = PMax()
pmin_p = PMin()


def _over_dims(where: str, primitive: Any, x: PyTree, axis_name: AxisName, *, is_mean: bool = False) -> tuple[Any, Any]:
    """Reduce over the positional dimensions in `axis_name`; returns the pytree and the remaining names."""
    given = tuple(axis_name) if isinstance(axis_name, tuple | list) else (axis_name,)
    names = {name for name, *_ in state.context.axes or ()}
    # An integer is a dimension, unless an axis in scope has it as its name.
    dims = [n for n in given if type(n) is int and n not in names]
    if not dims:
        return x, axis_name

    def one(leaf: ArrayLike) -> Any:
        aval = get_aval(leaf)
        over = tuple(sorted(resolve_dims(f"{where} axis_name", dims, aval.ndim)))
        if is_mean:
            dtype = dtypes.to_inexact_dtype(aval.dtype)
            # Converted before the sum, since a sum of small integers may overflow their dtype.
            total = primitive(convert_element_type_p(leaf, dtype=dtype, weak_type=False), dims=over)
            return div_p(total, dtype.type(math.prod(aval.shape[d] for d in over)))
        if primitive is reduce_sum_p and aval.dtype == np.bool_:
            leaf = convert_element_type_p(leaf, dtype=dtypes.canonicalize_dtype(np.int32), weak_type=False)
        return primitive(leaf, dims=over)

    return tree_map(one, x), tuple(n for n in given if n not in dims)


def _reduce(
    where: str,
    dense: Primitive,
    x: PyTree,
    axis_name: AxisName,
    groups: AxisGroups,
    one: Callable[[ArrayLike, AxisScope], Any],
    *,
    is_mean: bool = False,
) -> PyTree:
    """Reduce over positional dimensions by `dense`, then over named axes by `one`, which takes a leaf and the axes."""
    x, names = _over_dims(where, dense, x, axis_name, is_mean=is_mean)
    scope = resolve_axis_names(where, names, groups)
    return tree_map(lambda leaf: one(leaf, scope), x) if scope.axes else x


def _sum_leaf(x: ArrayLike, scope: AxisScope) -> Any:
    # A constant is the same for all members, so its sum is a multiple; `psum(1, axis)` stays a Python integer.
    if isinstance(x, int | float | complex | np.generic) and not isinstance(x, bool | np.bool_) and scope.is_even:
        return x * scope.count
    if get_aval(x).dtype == np.bool_:
        x = convert_element_type_p(x, dtype=dtypes.canonicalize_dtype(np.int32), weak_type=False)
    if not isinstance(x, Tracer) and scope.is_even:
        return scale_tangent(x, scope.count)
    return psum_p(x, **scope.params)


def psum(x: PyTree, axis_name: AxisName, *, axis_index_groups: AxisGroups = None) -> PyTree:
    """Sum over the members of named axes.

    Args:
      x: a pytree of arrays. Constants are multiplied while tracing: `psum(1, axis)` is the size of the axis.
      axis_name: the name of an axis in scope, or several; integers are dimensions of the arrays, also summed over.
      axis_index_groups: a partition of the positions along the axis; each group is summed separately.

    Returns:
      A pytree of the sums; booleans are counted.

    Raises:
      UnboundAxisError: no axis of this name is in scope.
      ArgumentError: the groups are not a partition of the axis.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> share = phalanx.vmap(lambda x: x / lax.psum(x, "i"), axis_name="i")
      >>> share(phalanx.numpy.array([1.0, 3.0])).tolist()
      [0.25, 0.75]
    """
    return _reduce("lax.psum", reduce_sum_p, x, axis_name, axis_index_groups, _sum_leaf)


def pmean(x: PyTree, axis_name: AxisName, *, axis_index_groups: AxisGroups = None) -> PyTree:
    """Mean over the members of named axes.

    Args:
      x: a pytree of arrays.
      axis_name: the name of an axis in scope, or several; integers are dimensions of the arrays, also reduced over.
      axis_index_groups: a partition of the positions along the axis; each group has its own mean.

    Returns:
      A pytree of the means; means of integers are floating-point numbers.

    Raises:
      UnboundAxisError: no axis of this name is in scope.
      ArgumentError: the groups are not a partition of the axis.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> phalanx.vmap(lambda x: lax.pmean(x, "i"), axis_name="i")(phalanx.numpy.array([1.0, 3.0])).tolist()
      [2.0, 2.0]
    """
    return _reduce("lax.pmean", reduce_sum_p, x, axis_name, axis_index_groups, _mean_leaf, is_mean=True)


def _mean_leaf(x: ArrayLike, scope: AxisScope) -> Any:
    if isinstance(x, bool | int | float | complex):
        return x / 1
    aval = get_aval(x)
    dtype = dtypes.to_inexact_dtype(aval.dtype)
    if dtype != aval.dtype:
        x = convert_element_type_p(x, dtype=dtype, weak_type=False)
    if scope.is_even:
        return div_p(_sum_leaf(x, scope), dtype.type(scope.count)) if isinstance(x, Tracer) else x
    # Groups of different sizes: each member divides by the size of its group.
    return div_p(_sum_leaf(x, scope), psum_p(dtype.type(1), **scope.params))


_EXTREME = """{words} over the members of named axes.

Args:
  x: a pytree of arrays.
  axis_name: the name of an axis in scope, or several; integers are dimensions of the arrays, also reduced over.
  axis_index_groups: a partition of the positions along the axis; each group is reduced separately.

Returns:
  A pytree of the results. The derivative is divided equally among the members that attain the extreme.

Raises:
  UnboundAxisError: no axis of this name is in scope.
  ArgumentError: the groups are not a partition of the axis.

Examples:
  >>> import phalanx
  >>> from phalanx import lax
  >>> phalanx.vmap(lambda x: lax.{name}(x, "i"), axis_name="i")(phalanx.numpy.array([1.0, 3.0])).tolist()
  {value}
"""


def _extreme(primitive: CollectiveReduction, words: str, value: str) -> Any:
    """Make the public function of `pmax_p` or `pmin_p`; `value` is its result for the members [1, 3]."""

    def one(leaf: ArrayLike, scope: AxisScope) -> Any:
        return primitive(leaf, **scope.params) if isinstance(leaf, Tracer) else leaf

    def function(x: PyTree, axis_name: AxisName, *, axis_index_groups: AxisGroups = None) -> PyTree:
        return _reduce(f"lax.{primitive.name}", primitive.dense, x, axis_name, axis_index_groups, one)

    name = primitive.name
    return set_name_and_doc(function, name, _EXTREME.format(words=words, name=name, value=value))


pmax = _extreme(pmax_p, "Maximum", "[3.0, 3.0]")
pmin = _extreme(pmin_p, "Minimum", "[1.0, 1.0]")


def pdot(
    x: ArrayLike,
    y: Any,
    axis_name: AxisName,
    pos_contract: Any = ((), ()),
    pos_batch: Any = ((), ()),
    precision: Any = None,
) -> Any:
    """Contract two arrays over named axes and over dimensions of the operands.

    Args:
      x, y: arrays.
      axis_name: the name of an axis in scope, or several, to contract over.
      pos_contract: the contracting dimensions of `x` and of `y`, as in `dot_general`.
      pos_batch: the batch dimensions of `x` and of `y`.
      precision: as in `dot_general`.

    Returns:
      The contraction, the same for all members.

    Raises:
      UnboundAxisError: no axis of this name is in scope.
      ShapeError: the dimensions of the operands do not match.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> dot = phalanx.vmap(lambda x, y: lax.pdot(x, y, "i"), axis_name="i")
      >>> dot(phalanx.numpy.arange(3.0), phalanx.numpy.arange(3.0)).tolist()
      [5.0, 5.0, 5.0]
    """
    resolve_axis_names("lax.pdot", axis_name)
    return psum(dot_general(x, y, (pos_contract, pos_batch), precision), axis_name)


def pbroadcast(x: PyTree, axis_name: AxisName, source: int) -> PyTree:
    """Broadcast the value of one member to all members of named axes.

    Args:
      x: a pytree of arrays.
      axis_name: the name of an axis in scope, or several, in row-major order.
      source: the index of the member whose value is sent.

    Returns:
      The pytree of that member.

    Raises:
      UnboundAxisError: no axis of this name is in scope.
      ArgumentError: `source` is out of range.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> phalanx.vmap(lambda x: lax.pbroadcast(x, "i", 1), axis_name="i")(phalanx.numpy.arange(3)).tolist()
      [1, 1, 1]
    """
    scope = resolve_axis_names("lax.pbroadcast", axis_name)
    if not 0 <= source < scope.count:
        raise ArgumentError(
            "lax.pbroadcast source",
            expected=f"a position in [0, {scope.count}) along {axis_name!r}",
            got=source,
            fix=f"pass a position from 0 to {scope.count - 1}",
        )
    is_source = eq_p(axis_index(axis_name), np.int32(source))

    def one(leaf: ArrayLike) -> Any:
        aval = get_aval(leaf)
        check_dtype_kind("lax.pbroadcast", aval, ANY)
        # All other members contribute zeros, so the sum is the value of the source.
        masked = select(broadcast_in_dim(is_source, aval.shape, ()), leaf, zeros(aval))
        total = psum(masked, axis_name)
        return convert_element_type_p(total, dtype=aval.dtype, weak_type=False) if total.dtype != aval.dtype else total

    return tree_map(one, x)
