"""Operations on batched matrices num[*batch, m, n], in which decompositions and their derivatives are written.

This includes the checks, the sharding rule and the batching rule that all decompositions share. Called by the other
files of this folder only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core import DTypeError, Primitive, ShapedArray, ShapeError, ShardingRule, dtypes, get_aval
from phalanx.lax.contraction.dot_general import dot_general_p
from phalanx.lax.contraction.precision import Precision
from phalanx.lax.elementwise import add, conj, convert_element_type, eq, ge, mul, select
from phalanx.lax.indexing.gather import PROMISE_IN_BOUNDS, GatherDimensionNumbers, gather_p
from phalanx.lax.reductions.reduce_sum import reduce_sum_p
from phalanx.lax.shape import add_dim, batched_sharding_rule, broadcast_in_dim, move_dim, reshape, transpose_p, zeros
from phalanx.lax.shape.iota_and_full import broadcasted_iota
from phalanx.typing import ArrayLike, DimSize, DTypeLike

_HIGHEST = (Precision.HIGHEST, Precision.HIGHEST)
INT32 = np.dtype("int32")
LETTERS = {np.dtype("float32"): "s", np.dtype("float64"): "d", np.dtype("complex64"): "c", np.dtype("complex128"): "z"}
REALS = {np.dtype("complex64"): np.dtype("float32"), np.dtype("complex128"): np.dtype("float64")}


def is_complex(dtype: DTypeLike) -> bool:
    """Whether a dtype is complex."""
    return dtype in REALS


def real_of(dtype: DTypeLike) -> Any:
    """Return the dtype of the real part."""
    return REALS.get(dtype, dtype)


def complex_of(dtype: DTypeLike) -> Any:
    """Return the complex dtype of the same precision."""
    return np.dtype("complex64") if dtype in (np.dtype("float32"), np.dtype("complex64")) else np.dtype("complex128")


def check_matrices(where: str, x: ShapedArray, square: bool = False) -> None:
    """Check that `x` is a matrix, or batched matrices, of a dtype of LAPACK."""
    if x.dtype not in LETTERS:
        raise DTypeError(
            where,
            expected="a matrix of float32, float64, complex64 or complex128",
            got=x.str_short(),
            fix="convert it with lax.convert_element_type",
        )
    if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
        raise ShapeError(
            where,
            expected=f"a {'square ' if square else ''}matrix, or a stack of them",
            got=x.str_short(),
            fix="transpose or reshape so that the last two dimensions are the matrix",
        )


def matmul(x: ArrayLike, y: ArrayLike) -> Any:
    """Batched matrix product, in the highest precision of the backend."""
    batch = tuple(range(x.ndim - 2))
    numbers = (((x.ndim - 1,), (x.ndim - 2,)), (batch, batch))
    # The lower default precision of accelerators would lose the accuracy of the decompositions.
    return dot_general_p(x, y, dimension_numbers=numbers, precision=_HIGHEST, preferred_element_type=None)


def swap_last_dims(x: ArrayLike) -> Any:
    """Exchange the last two dimensions."""
    *batch, rows, columns = range(np.ndim(x))
    return transpose_p(x, permutation=(*batch, columns, rows))


def adjoint(x: ArrayLike) -> Any:
    """The conjugate transpose."""
    x = swap_last_dims(x)
    return conj(x) if is_complex(x.dtype) else x


def _rows_and_columns(x: ArrayLike) -> list:
    """Return the position of each element of a matrix in its column and its row: two arrays int32[m, n]."""
    return [broadcasted_iota(np.int32, np.shape(x)[-2:], d) for d in (0, 1)]


def mask_matrices(x: ArrayLike, mask: ArrayLike) -> Any:
    """Replace elements of `x` by zero where a mask of the last two dimensions is False."""
    shape = np.shape(x)
    # The mask is computed once for all matrices of the batch.
    if len(shape) > 2:
        mask = broadcast_in_dim(mask, shape, (len(shape) - 2, len(shape) - 1))
    return select(mask, x, zeros(ShapedArray(shape, x.dtype)))


def tril(x: ArrayLike, k: int = 0) -> Any:
    """The lower triangle, up to diagonal `k`."""
    rows, columns = _rows_and_columns(x)
    return mask_matrices(x, ge(add(rows, np.int32(k)), columns))


def triu(x: ArrayLike, k: int = 0) -> Any:
    """The upper triangle, from diagonal `k`."""
    rows, columns = _rows_and_columns(x)
    return mask_matrices(x, ge(columns, add(rows, np.int32(k))))


def eye_mask(shape: tuple) -> Any:
    """Return the mask of the diagonal."""
    return eq(*[broadcasted_iota(np.int32, shape[-2:], d) for d in (0, 1)])


def eye_like(x: ArrayLike, n: DimSize) -> Any:
    """Return identity matrices of size `n` in the dtype and batch dimensions of `x`."""
    return unit_vectors(ShapedArray((*np.shape(x)[:-2], n, n), x.dtype))


def unit_vectors(aval: ShapedArray) -> Any:
    """Return matrices with ones on the diagonal: identities, if they are square; zeros of rank 0 or 1."""
    if aval.ndim < 2:
        return zeros(aval)
    return mask_matrices(broadcast_in_dim(aval.dtype.type(1), aval.shape, ()), eye_mask(aval.shape))


def diagonal(x: ArrayLike) -> Any:
    """The diagonals of square matrices."""
    return reduce_sum_p(mask_matrices(x, eye_mask(np.shape(x))), dims=(np.ndim(x) - 1,))


def scale_columns(x: ArrayLike, factors: ArrayLike) -> Any:
    """Multiply each column by its factor: num[*b, m, n], num[*b, n] -> num[*b, m, n]."""
    *batch, _, columns = range(np.ndim(x))
    return mul(x, broadcast_in_dim(convert_element_type(factors, x.dtype), np.shape(x), (*batch, columns)))


def scale_rows(x: ArrayLike, factors: ArrayLike) -> Any:
    """Multiply each row by its factor: num[*b, m, n], num[*b, m] -> num[*b, m, n]."""
    factors = convert_element_type(factors, x.dtype)
    return mul(x, broadcast_in_dim(factors, np.shape(x), tuple(range(np.ndim(x) - 1))))


def hermitian_from_lower(x: ArrayLike) -> Any:
    """Return the Hermitian matrix whose lower triangle is in `x`; the imaginary part of the diagonal is ignored."""
    # The strict triangle is mirrored; the diagonal is counted once.
    strict = tril(x, -1)
    diag = mask_matrices(x, eye_mask(np.shape(x)))
    diag = mul(add(diag, conj(diag)), x.dtype.type(0.5)) if is_complex(x.dtype) else diag
    return add(add(strict, adjoint(strict)), diag)


def symmetrize(x: ArrayLike) -> Any:
    """Return the Hermitian part."""
    return mul(add(x, adjoint(x)), x.dtype.type(0.5))


def take_rows(x: ArrayLike, order: ArrayLike) -> Any:
    """Select rows: num[*b, m, n], int[*b, k] -> num[*b, k, n]."""
    b = np.ndim(x) - 2
    batch = tuple(range(b))
    # A gather with batching dimensions: each matrix of the batch has its own order of rows.
    return gather_p(
        x,
        reshape(order, (*np.shape(order), 1)),
        dimension_numbers=GatherDimensionNumbers((b + 1,), (b,), (b,), batch, batch),
        slice_sizes=(*[1] * b, 1, np.shape(x)[-1]),
        indices_are_sorted=False,
        unique_indices=True,
        mode=PROMISE_IN_BOUNDS,
        fill_value=None,
    )


def move_batch_to_front(operands: Sequence, mapped: Sequence) -> list:
    """Move the mapped dimension of operands to the front; operands that are not mapped are broadcast."""
    size = next(np.shape(x)[b] for x, b in zip(operands, mapped, strict=True) if b is not None)
    return [add_dim(x, 0, size) if b is None else move_dim(x, b, 0) for x, b in zip(operands, mapped, strict=True)]


class MatrixPrimitive(Primitive):
    """Base of the operations on batched matrices, of which the first operand is one.

    Batch dimensions are parallel, matrix dimensions are whole, and `vmap` adds a leading batch dimension.
    """

    def sharding_rule(self, *avals: ShapedArray, **params: Any) -> ShardingRule:
        results = self.abstract_eval(*avals, **params)
        ranks = [y.ndim for y in (results if self.multiple else [results])]
        return batched_sharding_rule(avals, ranks, avals[0].ndim - 2)

    def batch(self, *args: Any, **params: Any) -> tuple:
        half = len(args) // 2
        y = self(*move_batch_to_front(args[:half], args[half:]), **params)
        return (y, [0] * len(y)) if self.multiple else (y, 0)


def require_inexact(x: ArrayLike) -> Any:
    """Convert integers to a floating dtype; other dtypes are not changed."""
    dtype = get_aval(x).dtype
    # LAPACK has no integer routines.
    return x if dtypes.issubdtype(dtype, np.inexact) else convert_element_type(x, dtypes.to_inexact_dtype(dtype))
