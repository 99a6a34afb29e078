"""Collective reductions: sums, means and extremes over the members of named axes.

Builds on `named_axes`; the collectives that move data instead of combining it are in `exchanges`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import dtypes
from phalanx.core.aval import UNVARYING, aval_of
from phalanx.core.config import state
from phalanx.core.errors import ArgumentError
from phalanx.core.primitive import LINEAR, Roles
from phalanx.core.trace import Tracer
from phalanx.engine.mlir import hlo
from phalanx.lax.broadcast import broadcast_in_dim, dim_names, reduce_sum_p, zeros
from phalanx.lax.convert import convert_element_type_p
from phalanx.lax.dot import dot_general
from phalanx.lax.elementwise import div_p, eq_p, mul_p, times
from phalanx.lax.family import ANY, NUMBER, ORDERED, Kinds, check_kind
from phalanx.lax.named_axes import Collective, Scope, axis_index, scope_of, without
from phalanx.lax.ordered_bits import by_bits, loses_nans
from phalanx.lax.reductions import reduce_max_p, reduce_min_p
from phalanx.lax.replicas import Replicas
from phalanx.lax.select import select
from phalanx.lax.shape import counted_from_front
from phalanx.lax.varying import pvary_p
from phalanx.transforms.batching import Axis
from phalanx.tree import tree_map


class CollectiveReduction(Collective):
    """What reductions over named axes share: any[*dims] -> any[*dims], the same for all members."""

    kinds: Kinds = NUMBER
    way = ""  # as roles call it
    dense: Any = None  # the reduction over a dimension
    combine: Any = None  # the operation in StableHLO that combines two elements

    def result(self, x: Any, **_: Any) -> Any:
        check_kind(f"lax.{self.name}", x, self.kinds)
        return x

    def varying(self, held: frozenset, *, tracked: frozenset, groups: tuple | None, **_: Any) -> frozenset:
        return held - tracked if groups is None else held | tracked

    def roles(self, x: Any, *, axes: tuple, groups: tuple | None, **_: Any) -> Roles:
        combined = dict.fromkeys(axes, self.way if groups is None else None)
        return Roles([dim_names(x.ndim)], [dim_names(x.ndim)], axes=combined)

    def lower(self, ctx: Any, x: Any, *, axes: tuple, sizes: tuple, groups: tuple | None, tracked: frozenset) -> Any:
        # Along an axis that the operand does not vary over, all have the same: nobody has to ask.
        same = tracked - ctx.avals_in[0].varying if groups is None else UNVARYING
        apart = tuple(a for a in axes if a not in same)
        if apart and self.way in ("max", "min") and loses_nans(ctx, ctx.aval_out.dtype):
            extreme = functools.partial(self, axes=axes, sizes=sizes, groups=groups, tracked=tracked)
            return ctx.inline(lambda v: by_bits(extreme, self.way == "max", v), x)[0]
        x = Replicas.of(ctx, self.name, apart, groups).all_reduce(ctx, x, self.combine) if apart else x
        count = math.prod(n for a, n in zip(axes, sizes) if a in same)
        return x if count == 1 else ctx.inline(lambda v: self.repeated(v, count), x, avals=[ctx.aval_out])[0]

    def within(self, x: Any, b: int, at: int, *, axes: tuple, sizes: tuple, groups: None, tracked: frozenset) -> tuple:
        return self._rest(self.dense(x, dims=(b,)), at, axes, sizes, tracked), None

    def same(
        self, x: Any, axis: Axis, at: int, *, axes: tuple, sizes: tuple, groups: None, tracked: frozenset
    ) -> tuple:
        return self._rest(self.repeated(x, axis.size), at, axes, sizes, tracked), None

    def repeated(self, x: Any, count: Any) -> Any:
        """The reduction of `count` times the same."""
        return x

    def _rest(self, x: Any, at: int, axes: tuple, sizes: tuple, tracked: frozenset) -> Any:
        return x if len(axes) == 1 else self(x, **without(at, axes, sizes, tracked))


class PSum(CollectiveReduction, name="psum"):
    """The sum over the members of named axes.

    Along a tracked axis the sum is one value that all devices share, and so is its cotangent; along any other one each
    member has a sum of its own, and their cotangents are summed.
    """

    way = "sum"
    dense = reduce_sum_p
    combine = hlo.AddOp
    jvp = LINEAR

    def transpose(self, y_bar: Any, x: Any, *, axes: tuple, sizes: tuple, groups: tuple | None, tracked: Any) -> tuple:
        if groups is not None:
            return (self(y_bar, axes=axes, sizes=sizes, groups=groups, tracked=tracked),)
        apart = [(a, n) for a, n in zip(axes, sizes) if a not in tracked]
        if apart:
            names, counts = zip(*apart)
            y_bar = self(y_bar, axes=names, sizes=counts, groups=None, tracked=UNVARYING)
        return (pvary_p(y_bar, axes=tuple(a for a in axes if a in tracked)) if tracked else y_bar,)

    def repeated(self, x: Any, count: Any) -> Any:
        return times(x, count)


psum_p = PSum()


def extreme_jvp(self: CollectiveReduction, primals: Sequence, tangents: Sequence, **params: Any) -> tuple:
    """The mean of the tangents of all members that attain the extreme."""
    (x,), (t,) = primals, tangents
    y = self(x, **params)
    hit = convert_element_type_p(eq_p(x, y), dtype=t.dtype, weak_type=False)
    return y, div_p(psum_p(mul_p(t, hit), **params), psum_p(hit, **params))


class PMax(CollectiveReduction, name="pmax"):
    """The largest over the members of named axes."""

    kinds = ORDERED
    way = "max"
    dense = reduce_max_p
    combine = hlo.MaxOp
    jvp = extreme_jvp


class PMin(CollectiveReduction, name="pmin"):
    """The smallest over the members of named axes."""

    kinds = ORDERED
    way = "min"
    dense = reduce_min_p
    combine = hlo.MinOp
    jvp = extreme_jvp


pmax_p = PMax()
pmin_p = PMin()


def _over_dims(where: str, primitive: Any, x: Any, axis_name: Any, *, is_mean: bool = False) -> tuple[Any, Any]:
    """A tree reduced over the dimensions that are numbered among the names of axes, and the names that are left."""
    given = tuple(axis_name) if isinstance(axis_name, tuple | list) else (axis_name,)
    names = {name for name, *_ in state.context.axes or ()}
    dims = [n for n in given if type(n) is int and n not in names]
    if not dims:
        return x, axis_name

    def one(leaf: Any) -> Any:
        aval = aval_of(leaf)
        over = tuple(sorted(counted_from_front(f"{where} axis_name", dims, aval.ndim)))
        if is_mean:
            dtype = dtypes.to_inexact_dtype(aval.dtype)
            total = primitive(convert_element_type_p(leaf, dtype=dtype, weak_type=False), dims=over)
            return div_p(total, dtype.type(math.prod(aval.shape[d] for d in over)))
        if primitive is reduce_sum_p and aval.dtype == np.bool_:
            leaf = convert_element_type_p(leaf, dtype=dtypes.canonicalize_dtype(np.int32), weak_type=False)
        return primitive(leaf, dims=over)

    return tree_map(one, x), tuple(n for n in given if n not in dims)


def _reduce(x: Any, scope: Scope, one: Callable[[Any], Any]) -> Any:
    return tree_map(one, x) if scope.axes else x


def _sum_leaf(x: Any, scope: Scope) -> Any:
    if isinstance(x, bool | int | float | complex | np.generic) and scope.is_even:
        return x * scope.count
    if aval_of(x).dtype == np.bool_:
        x = convert_element_type_p(x, dtype=dtypes.canonicalize_dtype(np.int32), weak_type=False)
    if not isinstance(x, Tracer) and scope.is_even:
        return times(x, scope.count)
    return psum_p(x, **scope.params)


def psum(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """Sum over the members of named axes.

    Args:
      x: a tree of arrays. A constant becomes its multiple while tracing: `psum(1, axis)` is the size of the axis.
      axis_name: the name of an axis in scope, or several; numbers are dimensions of the arrays, reduced too.
      axis_index_groups: lists of positions along the axis; each position is in one, and each list sums by itself.

    Returns:
      The same tree, of sums; booleans are counted.

    Raises:
      UnboundAxisError: no such axis is in scope.
      ArgumentError: the groups are no partition of the axis.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> share = phalanx.vmap(lambda x: x / lax.psum(x, "i"), axis_name="i")
      >>> share(phalanx.numpy.array([1.0, 3.0])).tolist()
      [0.25, 0.75]
    """
    x, axis_name = _over_dims("lax.psum", reduce_sum_p, x, axis_name)
    scope = scope_of("lax.psum", axis_name, axis_index_groups)
    return _reduce(x, scope, lambda leaf: _sum_leaf(leaf, scope))


def pmean(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """Mean over the members of named axes.

    Args:
      x: a tree of arrays.
      axis_name: the name of an axis in scope, or several; numbers are dimensions of the arrays, reduced too.
      axis_index_groups: lists of positions along the axis; each list has its own mean.

    Returns:
      The same tree, of means; those of integers are floating-point numbers.

    Raises:
      UnboundAxisError: no such axis is in scope.
      ArgumentError: the groups are no partition of the axis.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> phalanx.vmap(lambda x: lax.pmean(x, "i"), axis_name="i")(phalanx.numpy.array([1.0, 3.0])).tolist()
      [2.0, 2.0]
    """
    x, axis_name = _over_dims("lax.pmean", reduce_sum_p, x, axis_name, is_mean=True)
    scope = scope_of("lax.pmean", axis_name, axis_index_groups)

    def one(leaf: Any) -> Any:
        if isinstance(leaf, bool | int | float | complex):
            return leaf / 1
        aval = aval_of(leaf)
        dtype = dtypes.to_inexact_dtype(aval.dtype)
        if dtype != aval.dtype:
            leaf = convert_element_type_p(leaf, dtype=dtype, weak_type=False)
        if scope.is_even:
            return div_p(_sum_leaf(leaf, scope), dtype.type(scope.count)) if isinstance(leaf, Tracer) else leaf
        return div_p(_sum_leaf(leaf, scope), psum_p(dtype.type(1), **scope.params))

    return _reduce(x, scope, one)


def _extreme_leaf(primitive: CollectiveReduction, x: Any, scope: Scope) -> Any:
    return primitive(x, **scope.params) if isinstance(x, Tracer) else x


def pmax(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """Largest over the members of named axes.

    Args:
      x: a tree of arrays.
      axis_name: the name of an axis in scope, or several; numbers are dimensions of the arrays, reduced too.
      axis_index_groups: lists of positions along the axis; each list has its own largest.

    Returns:
      The same tree; derivatives are shared among members that attain the maximum.

    Raises:
      UnboundAxisError: no such axis is in scope.
      ArgumentError: the groups are no partition of the axis.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> phalanx.vmap(lambda x: lax.pmax(x, "i"), axis_name="i")(phalanx.numpy.array([1.0, 3.0])).tolist()
      [3.0, 3.0]
    """
    x, axis_name = _over_dims("lax.pmax", reduce_max_p, x, axis_name)
    scope = scope_of("lax.pmax", axis_name, axis_index_groups)
    return _reduce(x, scope, lambda leaf: _extreme_leaf(pmax_p, leaf, scope))


def pmin(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """Smallest over the members of named axes.

    Args:
      x: a tree of arrays.
      axis_name: the name of an axis in scope, or several; numbers are dimensions of the arrays, reduced too.
      axis_index_groups: lists of positions along the axis; each list has its own smallest.

    Returns:
      The same tree; derivatives are shared among members that attain the minimum.

    Raises:
      UnboundAxisError: no such axis is in scope.
      ArgumentError: the groups are no partition of the axis.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> phalanx.vmap(lambda x: lax.pmin(x, "i"), axis_name="i")(phalanx.numpy.array([1.0, 3.0])).tolist()
      [1.0, 1.0]
    """
    x, axis_name = _over_dims("lax.pmin", reduce_min_p, x, axis_name)
    scope = scope_of("lax.pmin", axis_name, axis_index_groups)
    return _reduce(x, scope, lambda leaf: _extreme_leaf(pmin_p, leaf, scope))


def pdot(
    x: Any, y: Any, axis_name: Any, pos_contract: Any = ((), ()), pos_batch: Any = ((), ()), precision: Any = None
) -> Any:
    """Sum of products over named axes, and over dimensions of the operands.

    Args:
      x, y: arrays.
      axis_name: the name of an axis in scope, or several, over which products are summed.
      pos_contract: the dimensions of `x` and of `y` that are summed over, as in `dot_general`.
      pos_batch: those that run in step.
      precision: as in `dot_general`.

    Returns:
      The sums, the same for all members.

    Raises:
      UnboundAxisError: no such axis is in scope.
      ShapeError: the dimensions do not fit.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> dot = phalanx.vmap(lambda x, y: lax.pdot(x, y, "i"), axis_name="i")
      >>> dot(phalanx.numpy.arange(3.0), phalanx.numpy.arange(3.0)).tolist()
      [5.0, 5.0, 5.0]
    """
    scope_of("lax.pdot", axis_name)
    return psum(dot_general(x, y, (pos_contract, pos_batch), precision), axis_name)


def pbroadcast(x: Any, axis_name: Any, source: int) -> Any:
    """What one member of named axes has, for all of them.

    Args:
      x: a tree of arrays.
      axis_name: the name of an axis in scope, or several, the last of which runs fastest.
      source: the position of that member.

    Returns:
      The same tree, as the source has it.

    Raises:
      UnboundAxisError: no such axis is in scope.
      ArgumentError: there is no such position.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> phalanx.vmap(lambda x: lax.pbroadcast(x, "i", 1), axis_name="i")(phalanx.numpy.arange(3)).tolist()
      [1, 1, 1]
    """
    scope = scope_of("lax.pbroadcast", axis_name)
    if not 0 <= source < scope.count:
        raise ArgumentError(
            "lax.pbroadcast source",
            expected=f"a position in [0, {scope.count}) along {axis_name!r}",
            got=source,
            mend="name a member of the axis",
        )
    here = eq_p(axis_index(axis_name), np.int32(source))

    def one(leaf: Any) -> Any:
        aval = aval_of(leaf)
        check_kind("lax.pbroadcast", aval, ANY)
        own = select(broadcast_in_dim(here, aval.shape, ()), leaf, zeros(aval))
        total = psum(own, axis_name)
        return convert_element_type_p(total, dtype=aval.dtype, weak_type=False) if total.dtype != aval.dtype else total

    return tree_map(one, x)
