"""Sorting of one or several arrays by one or more keys: `sort` and `sort_key_val`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core import ArgumentError, Primitive, ShapedArray, ShapeError, ShardingRule, Undefined, Zero, get_aval
from phalanx.engine.mlir import hlo, ir
from phalanx.lax.elementwise import ANY, check_dtype_kind, dtype_kind, emit_compare
from phalanx.lax.indexing.gather import GatherDimensionNumbers, GatherScatterMode, gather
from phalanx.lax.indexing.static_slice import canonicalize_dim
from phalanx.lax.shape import check_dims, dim_names, reshape_p
from phalanx.lax.shape.concatenate import join_operands
from phalanx.lax.shape.iota_and_full import iota_p
from phalanx.lax.subbyte import narrow_from_bytes, widen_to_bytes
from phalanx.runtime.lowering import LoweringContext
from phalanx.typing import Array, ArrayLike

MADE_OF_OTHERS = Undefined("its derivative is a gather, which has a transpose")


def take_along(x: ArrayLike, indices: ArrayLike, dim: int) -> Any:
    """Gather the elements of `x` at `indices` along `dim`, elementwise in all other dimensions."""
    if 0 in x.shape:  # There are no indices either, and a slice of one element would be out of bounds.
        return reshape_p(x, shape=get_aval(indices).shape)
    others = tuple(d for d in range(x.ndim) if d != dim)
    numbers = GatherDimensionNumbers(
        offset_dims=(),
        collapsed_slice_dims=(dim,),
        start_index_map=(dim,),
        operand_batching_dims=others,
        start_indices_batching_dims=others,
    )
    # A gather with all other dimensions as batching dimensions; the indices are in bounds by construction.
    starts = reshape_p(indices, shape=(*get_aval(indices).shape, 1))
    return gather(x, starts, numbers, (1,) * x.ndim, mode=GatherScatterMode.PROMISE_IN_BOUNDS)


class Sort(Primitive, name="sort", multiple=True):
    """Sort arrays of one shape along `dim` by the first `num_keys` of them; NaNs come last."""

    def abstract_eval(self, *xs: Any, dim: int, is_stable: bool, num_keys: int) -> list:
        where = "lax.sort"
        if not 1 <= num_keys <= len(xs):
            raise ArgumentError(
                f"{where} num_keys",
                expected=f"a number from 1 to {len(xs)}, the number of operands",
                got=num_keys,
                fix=f"pass a number of keys from 1 to {len(xs)}",
            )
        check_dims(f"{where} dimension", (dim,), xs[0].ndim)
        if any(x.shape != xs[0].shape for x in xs):
            raise ShapeError(
                where,
                expected="operands of equal shapes",
                got=", ".join(x.str_short() for x in xs),
                fix=f"broadcast the operands to one shape, such as {xs[0].shape}, with lax.broadcast_in_dim",
            )
        for x in xs[:num_keys]:
            check_dtype_kind(where, x, ANY)
        return list(xs)

    def sharding_rule(self, *xs: Any, dim: int, is_stable: bool, num_keys: int) -> ShardingRule:
        names = dim_names(xs[0].ndim)
        return ShardingRule([names] * len(xs), [names] * len(xs), whole=[names[dim]])

    def lower(self, ctx: LoweringContext, *xs: Any, dim: int, is_stable: bool, num_keys: int) -> list:
        values, avals = widen_to_bytes(ctx, xs, ctx.avals_in)
        # All operands are permuted by one sort, whose comparator reads the keys only.
        op = hlo.SortOp([ctx.type(a) for a in avals], values, dimension=dim, is_stable=is_stable)
        scalars = [ShapedArray((), a.dtype) for a in avals for _ in range(2)]
        ctx.region(scalars, op, lambda *pairs: _emit_is_before(ctx, scalars, pairs[: 2 * num_keys]))
        return narrow_from_bytes(ctx, op.results, ctx.avals_out)

    def jvp(
        self, primals: Sequence[Array], tangents: Sequence[Array], *, dim: int, is_stable: bool, num_keys: int
    ) -> tuple:
        # The permutation is an additional operand of the sort; the tangents are gathered by it.
        count = iota_p(dtype=np.dtype("int32"), shape=get_aval(primals[0]).shape, dim=dim)
        *ys, order = self(*primals, count, dim=dim, is_stable=is_stable, num_keys=num_keys)
        dots = [
            Zero.like(y) if type(t) is Zero else take_along(t, order, dim) for y, t in zip(ys, tangents, strict=True)
        ]
        return ys, dots

    transpose = MADE_OF_OTHERS

    def batch(self, *args: Any, dim: int, is_stable: bool, num_keys: int) -> tuple:
        n = len(args) // 2
        xs, b, dim = join_operands(args[:n], args[n:], dim)
        return self(*xs, dim=dim, is_stable=is_stable, num_keys=num_keys), [b] * n


def _emit_is_before(ctx: LoweringContext, scalars: Sequence, pairs: Sequence) -> Any:
    """Emit the comparison of two rows of keys: the first key decides, later keys break its ties."""
    verdict = None
    # From the last key to the first: each earlier key decides before the verdict of the later ones.
    for i in range(len(pairs) - 2, -1, -2):
        dtype = scalars[i].dtype
        x, y = (_sort_keys(ctx, v, dtype) for v in pairs[i : i + 2])
        for left, right, kind in reversed(list(zip(x, y, _part_dtypes(dtype), strict=True))):
            before = emit_compare(left, right, "LT", kind, total=True)
            if verdict is not None:
                tie = emit_compare(left, right, "EQ", kind, total=True)
                before = hlo.or_(before, hlo.and_(tie, verdict))
            verdict = before
    return verdict


def _part_dtypes(dtype: np.dtype) -> list:
    if dtype_kind(dtype) != "complex":
        return [dtype]
    return [np.dtype("float64" if dtype == np.complex128 else "float32")] * 2


def _sort_keys(ctx: LoweringContext, x: ir.Value, dtype: np.dtype) -> list:
    """Emit the numbers by which an element is ordered: complex numbers by the real, then by the imaginary part.

    The total order of floating-point numbers distinguishes signed zeros and the payloads of NaNs, which must compare
    equal here: both are replaced by one representative.
    """
    kind = dtype_kind(dtype)
    if kind == "complex":
        (part, _) = _part_dtypes(dtype)
        return [*_sort_keys(ctx, hlo.real(x), part), *_sort_keys(ctx, hlo.imag(x), part)]
    if kind != "float":
        return [x]
    aval = ShapedArray((), dtype)
    # x == 0 holds for both zeros, and x != x for every NaN.
    zero = ctx.constant(np.zeros((), dtype), aval)
    nan = ctx.constant(np.full((), np.nan, dtype), aval)
    x = hlo.select(emit_compare(x, zero, "EQ", dtype), zero, x)
    return [hlo.select(emit_compare(x, x, "NE", dtype), nan, x)]


sort_p = Sort()


def sort(
    operand: ArrayLike | Sequence[ArrayLike], dimension: int = -1, is_stable: bool = True, num_keys: int = 1
) -> Any:
    """Sort along a dimension in ascending order.

    Args:
      operand: an array, or a sequence of arrays of one shape, which are reordered together.
      dimension: the dimension; a negative one counts from the end.
      is_stable: whether elements with equal keys keep their order.
      num_keys: the number of arrays that are keys, from the first on; later keys break the ties of earlier ones.

    Returns:
      The sorted array, or a tuple of the reordered arrays. NaNs come last; complex numbers are ordered by their real,
      then their imaginary part.

    Raises:
      ShapeError: the shapes differ.
      AxisError: the dimension is out of bounds.
      ArgumentError: `num_keys` is not between 1 and the number of arrays.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.sort(jnp.array([3, 1, 2])).tolist()
      [1, 2, 3]
    """
    several = isinstance(operand, list | tuple)
    operands = tuple(operand) if several else (operand,)
    if not operands:
        raise ArgumentError(
            "lax.sort operand",
            expected="at least one array",
            got="none",
            fix="pass an array, or a sequence of at least one array",
        )
    dim = canonicalize_dim("lax.sort dimension", dimension, get_aval(operands[0]).ndim)
    out = sort_p(*operands, dim=dim, is_stable=bool(is_stable), num_keys=int(num_keys))
    return tuple(out) if several else out[0]


def sort_key_val(keys: ArrayLike, values: ArrayLike, dimension: int = -1, is_stable: bool = True) -> tuple:
    """Sort keys along a dimension, and reorder values with them.

    Args:
      keys: the array to sort.
      values: an array of the same shape.
      dimension: the dimension; a negative one counts from the end.
      is_stable: whether elements with equal keys keep their order.

    Returns:
      The sorted keys and the reordered values.

    Raises:
      ShapeError: the shapes differ.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> keys, values = lax.sort_key_val(jnp.array([3, 1]), jnp.array([7, 8]))
      >>> values.tolist()
      [8, 7]
    """
    return sort((keys, values), dimension, is_stable, 1)
