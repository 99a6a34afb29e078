"""Contractions: `dot_general`, and the products `dot` and `batch_matmul` written with it.

Called by `phalanx.numpy` for `matmul` and `einsum`, and by the derivative rules of linear algebra.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx.core import (
    DTypeError,
    Primitive,
    ShapedArray,
    ShapeError,
    ShardingRule,
    Zero,
    add_tangents,
    dtypes,
    get_aval,
    is_linear,
    promotion,
)
from phalanx.engine import Cache, cached_per_context, hlo, memoize
from phalanx.lax.contraction.precision import (
    PrecisionLike,
    algorithm_attribute,
    canonicalize_precision,
    check_algorithm,
    precision_attribute,
    swap_precision,
)
from phalanx.lax.elementwise import convert_element_type
from phalanx.lax.shape import shift_past_batch, transpose
from phalanx.lax.sharding.out_sharding import call_with_out_sharding
from phalanx.lax.subbyte import byte_aval, narrow_from_bytes, widen_to_bytes
from phalanx.typing import Array, ArrayLike, DTypeLike, ShardingLike

DotDimensionNumbers = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]


def BILINEAR(self: Primitive, primals: Sequence, tangents: Sequence, **params: Any) -> tuple:
    """The derivative of a bilinear operation: the sum of the products with each tangent."""
    x, y = primals
    x_dot, y_dot = tangents
    out = self(x, y, **params)
    from_x = x_dot if type(x_dot) is Zero else self(x_dot, y, **params)
    from_y = y_dot if type(y_dot) is Zero else self(x, y_dot, **params)
    return out, add_tangents(from_x, from_y)


class _Layout(NamedTuple):
    """The dimensions of both operands by their role: contracted, batch, or free."""

    lhs_contract: tuple
    rhs_contract: tuple
    lhs_batch: tuple
    rhs_batch: tuple
    lhs_free: tuple
    rhs_free: tuple

    @classmethod
    def of(cls, lhs_ndim: int, rhs_ndim: int, dimension_numbers: DotDimensionNumbers) -> _Layout:
        (lc, rc), (lb, rb) = dimension_numbers
        return cls(lc, rc, lb, rb, _free(lhs_ndim, lc, lb), _free(rhs_ndim, rc, rb))


class DotGeneral(Primitive, name="dot_general"):
    """Sum of products over contracting dimensions: result[*batch, *lhs_free, *rhs_free]."""

    def printed_params(self, params):
        """The parameters that are not None; the dimensions as lists, which are shorter than tuples of one element."""
        dims = tuple(tuple(map(list, pair)) for pair in params["dimension_numbers"])
        given = {name: value for name, value in params.items() if value is not None}
        return super().printed_params(given | {"dimension_numbers": dims})

    def abstract_eval(self, x, y, *, dimension_numbers, precision, preferred_element_type):
        (lc, rc), (lb, rb) = dimension_numbers
        _check_dims("lhs", x, lc, lb)
        _check_dims("rhs", y, rc, rb)
        for kind, dims in (("contracting", (lc, rc)), ("batch", (lb, rb))):
            if len(dims[0]) != len(dims[1]):
                raise ShapeError(
                    f"dot_general {kind} dimensions",
                    expected="equally many dimensions of lhs and rhs",
                    got=dimension_numbers,
                    fix="pass dimension_numbers as ((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))",
                )
            for i, j in zip(*dims, strict=True):
                if x.shape[i] != y.shape[j]:
                    raise ShapeError(
                        f"dot_general {kind} dimensions {i} of lhs and {j} of rhs",
                        expected="equal sizes",
                        got=f"{x.shape[i]} of {x.str_short()} and {y.shape[j]} of {y.str_short()}",
                        fix="transpose or reshape one operand, or pass other dimension_numbers",
                    )
        # The order of dimensions in the result is that of StableHLO: batch, free of lhs, free of rhs.
        layout = _Layout.of(x.ndim, y.ndim, dimension_numbers)
        shape = (
            *[x.shape[d] for d in lb],
            *[x.shape[d] for d in layout.lhs_free],
            *[y.shape[d] for d in layout.rhs_free],
        )
        return product_aval("dot_general", x, y, shape, preferred_element_type)

    def sharding_rule(self, x, y, *, dimension_numbers, precision, preferred_element_type):
        lc, rc, lb, rb, lhs_free, rhs_free = _Layout.of(x.ndim, y.ndim, dimension_numbers)
        # Factors: ('b', i) batch, ('m', d) free in lhs, ('n', d) free in rhs, and ('k', i) contracted. A sharded
        # contracting factor leaves partial sums, which an all-reduce adds up.
        lhs = {d: ("m", d) for d in lhs_free} | {d: ("b", i) for i, d in enumerate(lb)}
        rhs = {d: ("n", d) for d in rhs_free} | {d: ("b", i) for i, d in enumerate(rb)}
        contracted = [("k", i) for i in range(len(lc))]
        lhs |= dict(zip(lc, contracted, strict=True))
        rhs |= dict(zip(rc, contracted, strict=True))
        return ShardingRule(
            [[lhs[d] for d in range(x.ndim)], [rhs[d] for d in range(y.ndim)]],
            [[lhs[d] for d in (*lb, *lhs_free)] + [rhs[d] for d in rhs_free]],
            reduced=dict.fromkeys(contracted, "sum"),
        )

    def lower(self, ctx, x, y, *, dimension_numbers, precision, preferred_element_type):
        check_algorithm(precision, ctx.platform)
        algorithm = None if precision is None else algorithm_attribute(precision, *ctx.avals_in)
        (x, y), _ = widen_to_bytes(ctx, (x, y), ctx.avals_in)
        product = hlo.dot_general(
            ctx.type(byte_aval(ctx.aval_out)),
            x,
            y,
            _dimension_numbers(dimension_numbers),
            precision_config=precision_attribute(precision),
            algorithm=algorithm,
        )
        return narrow_from_bytes(ctx, [product], ctx.avals_out)[0]

    jvp = BILINEAR
    linear_in = ((0,), (1,))

    def transpose(self, z_bar, x, y, *, dimension_numbers, precision, preferred_element_type):
        if is_linear(x):
            return _cotangent(z_bar, x, y, dimension_numbers, precision, swap=False), None
        (lc, rc), (lb, rb) = dimension_numbers
        return None, _cotangent(z_bar, y, x, ((rc, lc), (rb, lb)), swap_precision(precision), swap=True)

    def batch(self, x, y, bx, by, *, dimension_numbers, precision, preferred_element_type):
        (lc, rc), (lb, rb) = dimension_numbers
        if bx is not None:
            lc, lb = shift_past_batch(lc, bx), shift_past_batch(lb, bx)
        if by is not None:
            rc, rb = shift_past_batch(rc, by), shift_past_batch(rb, by)
        # A dimension mapped in both operands becomes a batch dimension. Mapped in one operand it becomes a free
        # dimension, whose place in the result depends on the free dimensions before it.
        if bx is not None and by is not None:
            lb, rb, out = (bx, *lb), (by, *rb), 0
        elif bx is not None:
            out = len(lb) + sum(d < bx for d in _free(np.ndim(x), lc, lb))
        else:
            # The batch dimensions and the free dimensions of x come before the free dimensions of y.
            out = np.ndim(x) - len(lc) + sum(d < by for d in _free(np.ndim(y), rc, rb))
        return self(
            x,
            y,
            dimension_numbers=((lc, rc), (lb, rb)),
            precision=precision,
            preferred_element_type=preferred_element_type,
        ), out


dot_general_p = DotGeneral()


@cached_per_context
def _dimension_numbers(numbers: DotDimensionNumbers) -> Any:
    (lc, rc), (lb, rb) = numbers
    return hlo.DotDimensionNumbers.get(lb, rb, lc, rc)


def product_aval(where: str, x: ShapedArray, y: ShapedArray, shape: tuple, preferred: np.dtype | None) -> ShapedArray:
    """Return the type of a sum of products of elements of `x` and `y`.

    Raises:
      DTypeError: the dtypes differ and are not both floating, or the preferred dtype is of another kind.
    """
    if x.dtype != y.dtype and not (_is_float(x.dtype) and _is_float(y.dtype)):
        raise DTypeError(
            f"{where} operands",
            expected="equal dtypes, or two floating ones",
            got=f"{x.str_short()} and {y.str_short()}",
            fix="convert one operand with lax.convert_element_type",
        )
    # For example float8_e4m3fn by float8_e5m2, accumulated in float32.
    if x.dtype != y.dtype and preferred is not None:
        return ShapedArray(shape, preferred, False)  # the operands need no common dtype then
    dtype = x.dtype if x.dtype == y.dtype else promotion.result_type(x.dtype, y.dtype)
    if preferred is None or preferred == dtype:
        return ShapedArray(shape, dtype, x.weak_type and y.weak_type and preferred is None)
    # Accumulating floats in integers, or complex numbers in real ones, would lose information.
    integral = [dtypes.issubdtype(d, np.integer) or np.dtype(d).kind == "b" for d in (dtype, preferred)]
    if (integral[1] and not integral[0]) or (_is_complex(dtype) and not _is_complex(preferred)):
        raise DTypeError(
            f"{where} preferred_element_type",
            expected=f"a dtype that can hold sums of {dtypes.short_name(dtype)}",
            got=dtypes.short_name(preferred),
            fix="leave preferred_element_type out, and convert the result",
        )
    return ShapedArray(shape, preferred, False)


def _is_float(dtype: np.dtype) -> bool:
    return dtypes.issubdtype(dtype, np.floating)


def _is_complex(dtype: np.dtype) -> bool:
    return dtypes.issubdtype(dtype, np.complexfloating)


def _check_dims(operand: str, x: ShapedArray, contracting: tuple, batch: tuple) -> None:
    dims = (*contracting, *batch)
    if len(set(dims)) != len(dims) or not all(0 <= d < x.ndim for d in dims):
        raise ShapeError(
            f"dot_general {operand} dimension numbers",
            expected=f"distinct dimensions in [0, {x.ndim}) of {x.str_short()}",
            got=f"contracting {contracting} and batch {batch}",
            fix="list each dimension once, counted from 0",
        )


def _free(ndim: int, *used: tuple) -> tuple[int, ...]:
    return tuple(d for d in range(ndim) if not any(d in dims for dims in used))


@memoize("lax.dot_cotangent_plans", 4096)
def _cotangent_plan(
    x_ndim: int, y_ndim: int, dimension_numbers: DotDimensionNumbers, swap: bool
) -> tuple[Any, bool, tuple | None]:
    """Plan the cotangent of `x` as a product of `z_bar` and `y`.

    Returns the dimension numbers, whether `y` is the left operand, and the permutation of the result or None. The order
    of the operands is chosen such that the result needs no transposition, if possible.
    """
    xc, yc, xb, yb, x_free, y_free = _Layout.of(x_ndim, y_ndim, dimension_numbers)
    num_batch = len(xb)
    first = num_batch if swap else num_batch + len(x_free)
    z_free_y = tuple(range(first, first + len(y_free)))
    z_batch = tuple(range(num_batch))
    # The free dimensions of `y` in this product are the dimensions contracted with `x`, in the order of `y`.
    contracted = [xc[i] for i in sorted(range(len(yc)), key=yc.__getitem__)]
    if (*xb, *contracted, *x_free) == tuple(range(x_ndim)) and x_free and contracted:
        return ((y_free, z_free_y), (yb, z_batch)), True, None
    order = (*xb, *x_free, *contracted)
    permutation = tuple(order.index(d) for d in range(x_ndim))
    return ((z_free_y, y_free), (z_batch, yb)), False, None if permutation == tuple(range(x_ndim)) else permutation


def _cotangent(
    z_bar: Array, x: Array, y: Array, dimension_numbers: DotDimensionNumbers, precision: Array, swap: bool
) -> Any:
    """Compute the cotangent of the linear operand `x`, which is the right operand if `swap`."""
    # The plan depends on ranks and dimension numbers only, and is memoized.
    aval = x.aval
    numbers, y_first, permutation = _cotangent_plan(aval.ndim, get_aval(y).ndim, dimension_numbers, swap)
    x_bar = dot_general_p(
        *((y, z_bar) if y_first else (z_bar, y)),
        dimension_numbers=numbers,
        precision=swap_precision(precision) if y_first else precision,
        preferred_element_type=aval.dtype,
    )
    return x_bar if permutation is None else transpose(x_bar, permutation)


_canonical_numbers: Cache[Any, Any] = Cache("lax.dot_dimension_numbers", 1024)


def _canonical_dimension_numbers(numbers: DotDimensionNumbers) -> Any:
    try:
        found = _canonical_numbers.get(numbers)
    except TypeError:  # lists
        found = None
    if found is None:
        (lc, rc), (lb, rb) = numbers
        found = ((tuple(map(int, lc)), tuple(map(int, rc))), (tuple(map(int, lb)), tuple(map(int, rb))))
        _canonical_numbers[found] = found
    return found


def dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    dimension_numbers: DotDimensionNumbers,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Any:
    """Sum of products over chosen dimensions: the general form of matrix multiplication.

    Args:
      lhs: an array.
      rhs: an array; if its dtype differs, and not both are floating, both are converted to a common one.
      dimension_numbers: `((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))`, each a sequence of dimensions;
        the first pair is summed over, the second is shared with the result.
      precision: None, a `Precision`, a pair of them, a `DotAlgorithm`, a `DotAlgorithmPreset`, or a name of one.
      preferred_element_type: the dtype of accumulation and result; the dtype of the operands if None.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; inferred from the operands if None.

    Returns:
      An array with the batch dimensions, then the free dimensions of `lhs`, then the free dimensions of `rhs`.

    Raises:
      ShapeError: paired dimensions differ in size, or a dimension number is out of bounds.
      TypePromotionError: the dtypes have no common one.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.dot_general(np.ones((4, 2, 3)), np.ones((4, 3, 5)), (((2,), (1,)), ((0,), (0,)))).shape
      (4, 2, 5)
    """
    if out_sharding is not None:
        return call_with_out_sharding(
            lambda x, y: dot_general(x, y, dimension_numbers, precision, preferred_element_type),
            (lhs, rhs),
            out_sharding,
            "lax.dot_general, out_sharding",
        )
    if preferred_element_type is not None:
        preferred_element_type = dtypes.canonicalize_dtype(preferred_element_type)
    x, y = get_aval(lhs).dtype, get_aval(rhs).dtype
    if x != y and not (_is_float(x) and _is_float(y)):
        lhs, rhs = (convert_element_type(v, promotion.join_dtypes(x, y)) for v in (lhs, rhs))
    return dot_general_p(
        lhs,
        rhs,
        dimension_numbers=_canonical_dimension_numbers(dimension_numbers),
        precision=canonicalize_precision(precision),
        preferred_element_type=preferred_element_type,
    )


def dot(
    lhs: ArrayLike,
    rhs: ArrayLike,
    *,
    dimension_numbers: DotDimensionNumbers | None = None,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Any:
    """Product of vectors and matrices; with `dimension_numbers`, `dot_general`.

    Args:
      lhs: an array `num[n]` or `num[m, n]`.
      rhs: an array `num[n]` or `num[n, k]`.
      dimension_numbers, precision, preferred_element_type, out_sharding: as in `dot_general`.

    Returns:
      The sum over the last dimension of `lhs` and the first of `rhs`.

    Raises:
      ShapeError: an operand is neither a vector nor a matrix, or the sizes differ.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> float(lax.dot(np.arange(3.0), np.ones(3)))
      3.0
    """
    if dimension_numbers is None:
        ndims = get_aval(lhs).ndim, get_aval(rhs).ndim
        for operand, ndim in zip(("lhs", "rhs"), ndims, strict=True):
            if ndim not in (1, 2):
                raise ShapeError(
                    f"lax.dot operand {operand}",
                    expected="a vector or a matrix",
                    got=f"an array of rank {ndim}",
                    fix="use lax.dot_general or phalanx.numpy.matmul, which accept batch dimensions",
                )
        dimension_numbers = (((ndims[0] - 1,), (0,)), ((), ()))
    return dot_general(lhs, rhs, dimension_numbers, precision, preferred_element_type, out_sharding=out_sharding)


def batch_matmul(lhs: ArrayLike, rhs: ArrayLike, precision: PrecisionLike = None) -> Any:
    """Matrix products over shared leading dimensions: num[*b, m, k], num[*b, k, n] -> num[*b, m, n].

    Args:
      lhs: an array of rank 2 or more.
      rhs: an array of the same rank and leading dimensions.
      precision: as in `dot_general`.

    Returns:
      The products.

    Raises:
      ShapeError: the ranks differ or are below 2, or paired sizes differ.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.batch_matmul(np.ones((4, 2, 3)), np.ones((4, 3, 5))).shape
      (4, 2, 5)
    """
    x, y = get_aval(lhs), get_aval(rhs)
    if x.ndim < 2 or x.ndim != y.ndim:
        raise ShapeError(
            "lax.batch_matmul operands",
            expected="two arrays of equal rank, at least 2",
            got=f"{x.str_short()} and {y.str_short()}",
            fix="broadcast the leading dimensions, or use phalanx.numpy.matmul, which does",
        )
    batch = tuple(range(x.ndim - 2))
    return dot_general(lhs, rhs, (((x.ndim - 1,), (x.ndim - 2,)), (batch, batch)), precision)
