"""The largest elements along a dimension: `top_k`, `approx_max_k`, `approx_min_k`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from phalanx.core import ArgumentError, DTypeError, Primitive, ShapedArray, ShardingRule, Zero, get_aval
from phalanx.engine.mlir import chlo, hlo, ir
from phalanx.lax.elementwise import ORDERED, check_dtype_kind, dtype_kind, neg_p
from phalanx.lax.indexing.static_slice import canonicalize_dim, slice_in_dim
from phalanx.lax.reductions.sort import MADE_OF_OTHERS, sort_p, take_along
from phalanx.lax.shape import check_dims, dim_names, insert_dim, rev_p, shift_past_batch
from phalanx.lax.shape.iota_and_full import iota_p
from phalanx.lax.subbyte import narrow_from_bytes, widen_to_bytes
from phalanx.runtime.lowering import LoweringContext
from phalanx.symbolic import is_symbolic, static_size
from phalanx.typing import Array, ArrayLike


class TopK(Primitive, name="top_k", multiple=True):
    """The `k` largest elements along `dim` in descending order, and their indices."""

    def abstract_eval(self, x: ShapedArray, *, k: int, dim: int) -> list:
        where = "lax.top_k"
        check_dtype_kind(where, x, ORDERED)
        check_dims(f"{where} axis", (dim,), x.ndim)
        if k < 0 or (isinstance(x.shape[dim], int) and k > x.shape[dim]):
            raise ArgumentError(
                f"{where} k",
                expected=f"a number from 0 to {x.shape[dim]}, dimension {dim} of {x.str_short()}",
                got=k,
                fix=f"pass a k of at most {x.shape[dim]}",
            )
        shape = (*x.shape[:dim], k, *x.shape[dim + 1 :])
        return [x.with_shape(shape), ShapedArray(shape, np.dtype("int32"))]

    def sharding_rule(self, x: ShapedArray, *, k: int, dim: int) -> ShardingRule:
        names = dim_names(x.ndim)
        results = insert_dim([n for d, n in enumerate(names) if d != dim], dim, "k")
        return ShardingRule([names], [results, results], whole=[names[dim], "k"])

    def lower(self, ctx: LoweringContext, x: ir.Value, *, k: int, dim: int) -> list:
        aval, last = ctx.avals_in[0], ctx.avals_in[0].ndim - 1
        if is_symbolic(k):
            # A symbolic k is not an attribute of CHLO's operation.
            return ctx.inline(_leading_of_sorted, x, avals=[aval], k=k, dim=dim)
        ((x,), _) = widen_to_bytes(ctx, [x], [aval])
        if dim == last:
            return narrow_from_bytes(ctx, chlo.TopKOp(x, k).results, ctx.avals_out)
        # CHLO's operation takes the last dimension.
        order = [d for d in range(aval.ndim) if d != dim] + [dim]
        back = sorted(range(aval.ndim), key=order.__getitem__)
        found = [hlo.transpose(y, back) for y in chlo.TopKOp(hlo.transpose(x, order), k).results]
        return narrow_from_bytes(ctx, found, ctx.avals_out)

    def jvp(self, primals: Sequence[Array], tangents: Sequence[Array], *, k: int, dim: int) -> tuple:
        y, indices = self(*primals, k=k, dim=dim)
        return [y, indices], [take_along(tangents[0], indices, dim), Zero.like(indices)]

    transpose = MADE_OF_OTHERS

    def batch(self, x: Array, b: int, *, k: int, dim: int) -> tuple:
        return self(x, k=k, dim=shift_past_batch((dim,), b)[0]), [b, b]


def _leading_of_sorted(x: Array, k: Array, dim: int) -> list:
    """`top_k` for a symbolic `k`, which CHLO does not support: the end of the sorted array.

    The operand is reversed before the stable sort and after it, so that the first of equal elements comes first.
    """
    places = rev_p(iota_p(dtype=np.dtype("int32"), shape=x.shape, dim=dim), dims=(dim,))
    found = sort_p(rev_p(x, dims=(dim,)), places, dim=dim, num_keys=1, is_stable=True)
    return [slice_in_dim(rev_p(y, dims=(dim,)), 0, k, axis=dim) for y in found]


top_k_p = TopK()


def top_k(operand: ArrayLike, k: int, *, axis: int = -1, is_stable: bool = True) -> list:
    """The largest elements along a dimension.

    Args:
      operand: boolean, integer or floating array.
      k: the number of elements.
      axis: the dimension; a negative one counts from the end.
      is_stable: ignored; the first of equal elements always comes first.

    Returns:
      A list of the `k` largest elements in descending order, and of their indices as int32; the first of equal elements
      comes first.

    Raises:
      ArgumentError: `k` is larger than the size of the dimension.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> values, positions = lax.top_k(jnp.array([1, 5, 3]), 2)
      >>> values.tolist(), positions.tolist()
      ([5, 3], [1, 2])
    """
    dim = canonicalize_dim("lax.top_k axis", axis, get_aval(operand).ndim)
    return list(top_k_p(operand, k=static_size(k), dim=dim))


def approx_max_k(
    operand: ArrayLike,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> list:
    """Return approximately the largest elements along a dimension.

    On CPU and GPU the result is exact, which meets every `recall_target`.

    Args:
      operand: floating array.
      k: the number of elements.
      reduction_dimension: the dimension; a negative one counts from the end.
      recall_target: the fraction of the true largest elements to find, in (0, 1].
      reduction_input_size_override: the size to which `recall_target` refers; ignored, since the result is exact.
      aggregate_to_topk: whether to return `k` elements rather than all candidates; ignored, since the result is exact.

    Returns:
      The elements in descending order, and their indices as int32.

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
    operand: ArrayLike,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> list:
    """Return approximately the smallest elements along a dimension.

    Args:
      operand: floating array.
      k: the number of elements.
      reduction_dimension: the dimension; a negative one counts from the end.
      recall_target: as for `approx_max_k`.
      reduction_input_size_override: as for `approx_max_k`.
      aggregate_to_topk: as for `approx_max_k`.

    Returns:
      The elements in ascending order, and their indices as int32.

    Raises:
      DTypeError: `operand` is not floating.
      ArgumentError: `k` or `recall_target` is out of range.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> lax.approx_min_k(jnp.array([1.0, 5.0, 3.0]), 1)[1].tolist()
      [0]
    """
    values, positions = _approximate("lax.approx_min_k", neg_p(operand), k, reduction_dimension, recall_target)
    return [neg_p(values), positions]


def _approximate(where: str, x: Array, k: int, dim: int, recall_target: float) -> list:
    aval = get_aval(x)
    if dtype_kind(aval.dtype) != "float":
        raise DTypeError(
            where, expected="a floating dtype", got=aval.str_short(), fix="call lax.top_k, which takes integers too"
        )
    # The result is exact, but an argument that is invalid on TPU is rejected here too.
    if not 0 < recall_target <= 1:
        raise ArgumentError(
            f"{where} recall_target",
            expected="a fraction in (0, 1]",
            got=recall_target,
            fix="pass for example recall_target=0.95",
        )
    return top_k(x, k, axis=dim)
