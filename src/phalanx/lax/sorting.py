"""Order: `sort` of several arrays by one or more keys, `top_k`, and their approximate relatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.errors import ArgumentError, DTypeError, ShapeError
from phalanx.core.primitive import Primitive, Roles, Undefined
from phalanx.core.tangent import Zero
from phalanx.engine.mlir import chlo, hlo
from phalanx.lax.broadcast import add_dim, check_dims, dim_names, insert, move_dim, skip_batch
from phalanx.lax.creation import iota_p
from phalanx.lax.elementwise import neg_p
from phalanx.lax.family import ANY, ORDERED, check_kind, emit_compare, kind_of
from phalanx.lax.gather import GatherDimensionNumbers, GatherScatterMode, gather
from phalanx.lax.shape import reshape_p, rev_p
from phalanx.lax.slicing import one_dim, slice_in_dim
from phalanx.lax.tiny import narrowed, widened
from phalanx.symbolic import is_symbolic, static_size

MADE_OF_OTHERS = Undefined("its derivative is a gather, which has a transpose")


def take_along(x: Any, indices: Any, dim: int) -> Any:
    """The elements of `x` at `indices` along `dim`, which are positions in all other dimensions alike."""
    others = tuple(d for d in range(x.ndim) if d != dim)
    numbers = GatherDimensionNumbers(
        offset_dims=(), collapsed_slice_dims=(dim,), start_index_map=(dim,), operand_batching_dims=others,
        start_indices_batching_dims=others,
    )  # fmt: skip
    starts = reshape_p(indices, shape=(*aval_of(indices).shape, 1))
    return gather(x, starts, numbers, (1,) * x.ndim, mode=GatherScatterMode.PROMISE_IN_BOUNDS)


class Sort(Primitive, name="sort", multiple=True):
    """Arrays of one shape ordered along `dim` by the first `num_keys` of them; NaNs come last."""

    def result(self, *xs: Any, dim: int, is_stable: bool, num_keys: int) -> list:
        where = "lax.sort"
        if not 1 <= num_keys <= len(xs):
            raise ArgumentError(
                f"{where} num_keys",
                expected=f"a number from 1 to {len(xs)}, the number of operands",
                got=num_keys,
                mend="sort by some of the operands",
            )
        check_dims(f"{where} dimension", (dim,), xs[0].ndim)
        if any(x.shape != xs[0].shape for x in xs):
            raise ShapeError(
                where,
                expected="operands of equal shapes",
                got=", ".join(x.str_short() for x in xs),
                mend="broadcast them with lax.broadcast_in_dim",
            )
        for x in xs[:num_keys]:
            check_kind(where, x, ANY)
        return list(xs)

    def roles(self, *xs: Any, dim: int, is_stable: bool, num_keys: int) -> Roles:
        names = dim_names(xs[0].ndim)
        return Roles([names] * len(xs), [names] * len(xs), whole=[names[dim]])

    def lower(self, ctx: Any, *xs: Any, dim: int, is_stable: bool, num_keys: int) -> list:
        values, avals = widened(ctx, xs, ctx.avals_in)
        op = hlo.SortOp([ctx.type(a) for a in avals], values, dimension=dim, is_stable=is_stable)
        scalars = [ShapedArray((), a.dtype) for a in avals for _ in range(2)]
        ctx.region(scalars, op, lambda *pairs: _comes_before(ctx, scalars, pairs[: 2 * num_keys]))
        return narrowed(ctx, op.results, ctx.avals_out)

    def jvp(self, primals: Any, tangents: Any, *, dim: int, is_stable: bool, num_keys: int) -> tuple:
        aval = aval_of(primals[0])
        count = iota_p(dtype=np.dtype("int32"), shape=aval.shape, dim=dim)
        *ys, order = self(*primals, count, dim=dim, is_stable=is_stable, num_keys=num_keys)
        dots = [
            Zero.like(y) if type(t) is Zero else take_along(t, order, dim) for y, t in zip(ys, tangents, strict=True)
        ]
        return ys, dots

    transpose = MADE_OF_OTHERS

    def batch(self, *args: Any, dim: int, is_stable: bool, num_keys: int) -> tuple:
        n = len(args) // 2
        xs, mapped = args[:n], args[n:]
        b, size = next((d, x.shape[d]) for x, d in zip(xs, mapped, strict=True) if d is not None)
        xs = [add_dim(x, b, size) if d is None else move_dim(x, d, b) for x, d in zip(xs, mapped, strict=True)]
        (dim,) = skip_batch((dim,), b)
        return self(*xs, dim=dim, is_stable=is_stable, num_keys=num_keys), [b] * n


def _comes_before(ctx: Any, scalars: Sequence, pairs: Sequence) -> Any:
    """Whether the left elements come before the right ones, the first key deciding, the later ones where it ties."""
    verdict = None
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


def _part_dtypes(dtype: Any) -> list:
    if kind_of(dtype) != "complex":
        return [dtype]
    return [np.dtype("float64" if dtype == np.complex128 else "float32")] * 2


def _sort_keys(ctx: Any, x: Any, dtype: Any) -> list:
    """The numbers by which an element is ordered: complex ones by real, then imaginary part.

    The total order of floating numbers tells signed zeros and NaNs apart; here they are made one each.
    """
    kind = kind_of(dtype)
    if kind == "complex":
        (part, _) = _part_dtypes(dtype)
        return [*_sort_keys(ctx, hlo.real(x), part), *_sort_keys(ctx, hlo.imag(x), part)]
    if kind != "float":
        return [x]
    aval = ShapedArray((), dtype)
    zero = ctx.constant(np.zeros((), dtype), aval)
    nan = ctx.constant(np.full((), np.nan, dtype), aval)
    x = hlo.select(emit_compare(x, zero, "EQ", dtype), zero, x)
    return [hlo.select(emit_compare(x, x, "NE", dtype), nan, x)]


sort_p = Sort()


class TopK(Primitive, name="top_k", multiple=True):
    """The `k` largest elements along `dim`, largest first, and their positions."""

    by_pieces = True

    def result(self, x: Any, *, k: int, dim: int) -> list:
        where = "lax.top_k"
        check_kind(where, x, ORDERED)
        check_dims(f"{where} axis", (dim,), x.ndim)
        if k < 0 or (isinstance(x.shape[dim], int) and k > x.shape[dim]):
            raise ArgumentError(
                f"{where} k",
                expected=f"a number from 0 to {x.shape[dim]}, dimension {dim} of {x.str_short()}",
                got=k,
                mend="ask for fewer elements",
            )
        shape = (*x.shape[:dim], k, *x.shape[dim + 1 :])
        return [x.with_shape(shape), ShapedArray(shape, np.dtype("int32"))]

    def roles(self, x: Any, *, k: int, dim: int) -> Roles:
        names = dim_names(x.ndim)
        results = insert([n for d, n in enumerate(names) if d != dim], dim, "k")
        return Roles([names], [results, results], whole=[names[dim], "k"])

    def lower(self, ctx: Any, x: Any, *, k: int, dim: int) -> list:
        aval, last = ctx.avals_in[0], ctx.avals_in[0].ndim - 1
        if is_symbolic(k):
            return ctx.inline(_leading_of_sorted, x, avals=[aval], k=k, dim=dim)
        ((x,), _) = widened(ctx, [x], [aval])
        if dim == last:
            return narrowed(ctx, chlo.TopKOp(x, k).results, ctx.avals_out)
        order = [d for d in range(aval.ndim) if d != dim] + [dim]
        back = sorted(range(aval.ndim), key=order.__getitem__)
        found = [hlo.transpose(y, back) for y in chlo.TopKOp(hlo.transpose(x, order), k).results]
        return narrowed(ctx, found, ctx.avals_out)

    def jvp(self, primals: Any, tangents: Any, *, k: int, dim: int) -> tuple:
        y, indices = self(*primals, k=k, dim=dim)
        return [y, indices], [take_along(tangents[0], indices, dim), Zero.like(indices)]

    transpose = MADE_OF_OTHERS

    def batch(self, x: Any, b: int, *, k: int, dim: int) -> tuple:
        return self(x, k=k, dim=skip_batch((dim,), b)[0]), [b, b]


def _leading_of_sorted(x: Any, k: Any, dim: int) -> list:
    """`top_k` for a symbolic number of elements: sorted from the end, where of equal ones the first comes last."""
    places = rev_p(iota_p(dtype=np.dtype("int32"), shape=x.shape, dim=dim), dims=(dim,))
    found = sort_p(rev_p(x, dims=(dim,)), places, dim=dim, num_keys=1, is_stable=True)
    return [slice_in_dim(rev_p(y, dims=(dim,)), 0, k, axis=dim) for y in found]


top_k_p = TopK()


def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """Sort along a dimension, smallest first.

    Args:
      operand: an array, or a sequence of arrays of one shape, which are reordered together.
      dimension: along which; a negative one counts from the end.
      is_stable: whether elements that compare equal keep their order.
      num_keys: how many of the arrays decide, the first one first.

    Returns:
      The sorted array, or a tuple of the reordered arrays. NaNs come last; complex numbers are ordered by their real,
      then their imaginary part.

    Raises:
      ShapeError: the shapes differ.
      AxisError: there is no such dimension.
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
            "lax.sort operand", expected="at least one array", got="none", mend="pass the arrays to sort"
        )
    dim = one_dim("lax.sort dimension", dimension, aval_of(operands[0]).ndim)
    out = sort_p(*operands, dim=dim, is_stable=bool(is_stable), num_keys=int(num_keys))
    return tuple(out) if several else out[0]


def sort_key_val(keys: Any, values: Any, dimension: int = -1, is_stable: bool = True) -> tuple:
    """Sort keys along a dimension, and values with them.

    Args:
      keys: the array that decides.
      values: an array of the same shape.
      dimension: along which; a negative one counts from the end.
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
    keys, values = sort((keys, values), dimension, is_stable, 1)
    return keys, values


def top_k(operand: Any, k: int, *, axis: int = -1, is_stable: bool = True) -> tuple:
    """The largest elements along a dimension.

    Args:
      operand: boolean, integer or floating array.
      k: how many.
      axis: the dimension; a negative one counts from the end.
      is_stable: whether of equal elements the first must come first, which it does in any case.

    Returns:
      The `k` largest elements, largest first, and their positions as int32; of equal ones the first comes first.

    Raises:
      ArgumentError: `k` is larger than the dimension.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> values, positions = lax.top_k(jnp.array([1, 5, 3]), 2)
      >>> values.tolist(), positions.tolist()
      ([5, 3], [1, 2])
    """
    dim = one_dim("lax.top_k axis", axis, aval_of(operand).ndim)
    values, positions = top_k_p(operand, k=static_size(k), dim=dim)
    return values, positions


def approx_max_k(
    operand: Any, k: int, reduction_dimension: int = -1, recall_target: float = 0.95,
    reduction_input_size_override: int = -1, aggregate_to_topk: bool = True,
) -> tuple:  # fmt: skip
    """The largest elements along a dimension, where an approximation is enough.

    On CPU and GPU the answer is exact, which meets every `recall_target`.

    Args:
      operand: floating array.
      k: how many.
      reduction_dimension: the dimension; a negative one counts from the end.
      recall_target: the share of the true ones that must be among them, in (0, 1].
      reduction_input_size_override: the size that the recall is meant for; it does not matter to an exact answer.
      aggregate_to_topk: whether to give `k` elements rather than all candidates; an exact answer has `k`.

    Returns:
      The elements, largest first, and their positions as int32.

    Raises:
      DTypeError: `operand` is not floating.
      ArgumentError: `k` or `recall_target` is out of range.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.approx_max_k(jnp.array([1.0, 5.0, 3.0]), 1)[1].tolist()
      [1]
    """
    return _approximate("lax.approx_max_k", operand, k, reduction_dimension, recall_target)


def approx_min_k(
    operand: Any, k: int, reduction_dimension: int = -1, recall_target: float = 0.95,
    reduction_input_size_override: int = -1, aggregate_to_topk: bool = True,
) -> tuple:  # fmt: skip
    """The smallest elements along a dimension, where an approximation is enough.

    Args:
      operand: floating array.
      k: how many.
      reduction_dimension: the dimension; a negative one counts from the end.
      recall_target: as for `approx_max_k`.
      reduction_input_size_override: as for `approx_max_k`.
      aggregate_to_topk: as for `approx_max_k`.

    Returns:
      The elements, smallest first, and their positions as int32.

    Raises:
      DTypeError: `operand` is not floating.
      ArgumentError: `k` or `recall_target` is out of range.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.approx_min_k(jnp.array([1.0, 5.0, 3.0]), 1)[1].tolist()
      [0]
    """
    values, positions = _approximate("lax.approx_min_k", neg_p(operand), k, reduction_dimension, recall_target)
    return neg_p(values), positions


def _approximate(where: str, x: Any, k: int, dim: int, recall_target: float) -> tuple:
    aval = aval_of(x)
    if kind_of(aval.dtype) != "float":
        raise DTypeError(
            where, expected="a floating dtype", got=aval.str_short(), mend="call lax.top_k, which takes integers too"
        )
    if not 0 < recall_target <= 1:
        raise ArgumentError(
            f"{where} recall_target", expected="a share in (0, 1]", got=recall_target, mend="0.95 is usual"
        )
    return top_k(x, k, axis=dim)
