"""Stacks of matrices: the small vocabulary that decompositions and their derivatives are written in.

A stack is an array num[*batch, m, n]; everything here works on its last two dimensions. Here too are the checks, the
dimension roles and the batching that all decompositions share. Builds on `dot` and the elementwise and shape
operations; called by the other files of this folder only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core import dtypes
from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.errors import DTypeError, ShapeError
from phalanx.core.primitive import Roles
from phalanx.lax.arithmetic import add, mul
from phalanx.lax.broadcast import add_dim, broadcast_in_dim, dim_names, move_dim, reduce_sum_p, transpose_p, zeros
from phalanx.lax.comparison import eq, ge
from phalanx.lax.creation import broadcasted_iota
from phalanx.lax.dot import Precision, dot_general_p
from phalanx.lax.gather import PROMISE_IN_BOUNDS, GatherDimensionNumbers, gather_p
from phalanx.lax.parts import conj
from phalanx.lax.select import select

_HIGHEST = (Precision.HIGHEST, Precision.HIGHEST)
INT32 = np.dtype("int32")
LETTERS = {np.dtype("float32"): "s", np.dtype("float64"): "d", np.dtype("complex64"): "c", np.dtype("complex128"): "z"}
REALS = {np.dtype("complex64"): np.dtype("float32"), np.dtype("complex128"): np.dtype("float64")}


def is_complex(dtype: Any) -> bool:
    """Whether a dtype is complex."""
    return dtype in REALS


def real_of(dtype: Any) -> Any:
    """The dtype of the real part."""
    return REALS.get(dtype, dtype)


def complex_of(dtype: Any) -> Any:
    """The complex dtype of that precision."""
    return np.dtype("complex64") if dtype in (np.dtype("float32"), np.dtype("complex64")) else np.dtype("complex128")


def check_matrices(where: str, x: ShapedArray, square: bool = False) -> None:
    """Refuse what is no stack of matrices of a dtype that LAPACK has."""
    if x.dtype not in LETTERS:
        raise DTypeError(
            where,
            expected="a matrix of float32, float64, complex64 or complex128",
            got=x.str_short(),
            mend="convert it with lax.convert_element_type",
        )
    if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
        raise ShapeError(
            where,
            expected=f"a {'square ' if square else ''}matrix, or a stack of them",
            got=x.str_short(),
            mend="check the last two dimensions",
        )


def matmul(x: Any, y: Any) -> Any:
    """Matrix products over equal leading dimensions, as exact as the backend can."""
    ndim = x.ndim
    batch = tuple(range(ndim - 2))
    numbers = (((ndim - 1,), (ndim - 2,)), (batch, batch))
    return dot_general_p(x, y, dimension_numbers=numbers, precision=_HIGHEST, preferred_element_type=None)


def transposed(x: Any) -> Any:
    """The last two dimensions exchanged."""
    ndim = np.ndim(x)
    return transpose_p(x, permutation=(*range(ndim - 2), ndim - 1, ndim - 2))


def adjoint(x: Any) -> Any:
    """The conjugate transpose."""
    x = transposed(x)
    return conj(x) if is_complex(x.dtype) else x


def _lower_mask(shape: tuple, k: int) -> Any:
    """Where the column is at most `k` right of the row, for matrices of a shape."""
    rows, columns = (broadcasted_iota(np.int32, shape[-2:], d) for d in (0, 1))
    return ge(add(rows, np.int32(k)), columns)


def masked(x: Any, mask: Any) -> Any:
    """`x` where a matrix of truth values holds, zero elsewhere."""
    shape = np.shape(x)
    if len(shape) > 2:
        mask = broadcast_in_dim(mask, shape, (len(shape) - 2, len(shape) - 1))
    return select(mask, x, zeros(ShapedArray(shape, x.dtype)))


def tril(x: Any, k: int = 0) -> Any:
    """The lower triangle, up to diagonal `k`."""
    return masked(x, _lower_mask(np.shape(x), k))


def triu(x: Any, k: int = 0) -> Any:
    """The upper triangle, from diagonal `k`."""
    return transposed(tril(transposed(x), -k)) if np.shape(x)[-1] == 0 else masked(x, _upper_mask(np.shape(x), k))


def _upper_mask(shape: tuple, k: int) -> Any:
    rows, columns = (broadcasted_iota(np.int32, shape[-2:], d) for d in (0, 1))
    return ge(columns, add(rows, np.int32(k)))


def eye_mask(shape: tuple) -> Any:
    """Where the diagonal is, for matrices of a shape."""
    return eq(broadcasted_iota(np.int32, shape[-2:], 0), broadcasted_iota(np.int32, shape[-2:], 1))


def eye_like(x: Any, n: Any) -> Any:
    """Identity matrices of size `n` in the dtype and leading dimensions of `x`."""
    shape = (*np.shape(x)[:-2], n, n)
    ones = broadcast_in_dim(x.dtype.type(1), shape, ())
    return masked(ones, eye_mask(shape))


def unit_vectors(aval: ShapedArray) -> Any:
    """What no library makes for matrices without rows or columns: a basis of unit vectors, or nothing."""
    if aval.ndim < 2 or 0 in aval.shape:
        return zeros(aval)
    return masked(broadcast_in_dim(aval.dtype.type(1), aval.shape, ()), eye_mask(aval.shape))


def diagonal(x: Any) -> Any:
    """The diagonals of square matrices."""
    return reduce_sum_p(masked(x, eye_mask(np.shape(x))), dims=(np.ndim(x) - 1,))


def scale_columns(x: Any, factors: Any) -> Any:
    """Each column times its factor: num[*b, m, n], num[*b, n] -> num[*b, m, n]."""
    ndim = np.ndim(x)
    return mul(x, broadcast_in_dim(_like(factors, x), np.shape(x), (*range(ndim - 2), ndim - 1)))


def scale_rows(x: Any, factors: Any) -> Any:
    """Each row times its factor: num[*b, m, n], num[*b, m] -> num[*b, m, n]."""
    return mul(x, broadcast_in_dim(_like(factors, x), np.shape(x), tuple(range(np.ndim(x) - 1))))


def _like(factors: Any, x: Any) -> Any:
    from phalanx.lax.convert import convert_element_type

    return factors if factors.dtype == x.dtype else convert_element_type(factors, x.dtype)


def hermitian_from_lower(x: Any) -> Any:
    """The Hermitian matrix of which `x` holds the lower triangle; the diagonal's imaginary part is dropped."""
    strict = tril(x, -1)
    diag = masked(x, eye_mask(np.shape(x)))
    if is_complex(x.dtype):
        diag = mul(add(diag, conj(diag)), x.dtype.type(0.5))
    return add(add(strict, adjoint(strict)), diag)


def symmetrized(x: Any) -> Any:
    """The Hermitian part."""
    return mul(add(x, adjoint(x)), x.dtype.type(0.5))


def take_rows(x: Any, order: Any) -> Any:
    """Rows in another order: num[*b, m, n], int[*b, k] -> num[*b, k, n]."""
    from phalanx.lax.shape import reshape

    b = np.ndim(x) - 2
    shape = np.shape(x)
    batch = tuple(range(b))
    indices = reshape(order, (*np.shape(order), 1))
    return gather_p(
        x,
        indices,
        dimension_numbers=GatherDimensionNumbers((b + 1,), (b,), (b,), batch, batch),
        slice_sizes=(*[1] * b, 1, shape[-1]),
        indices_are_sorted=False,
        unique_indices=True,
        mode=PROMISE_IN_BOUNDS,
        fill_value=None,
    )


def stack_roles(operands: Sequence[ShapedArray], num_batch: int, results: Sequence[int]) -> Roles:
    """Batch dimensions are one index everywhere, all others are whole.

    Args:
      operands: the operands' types.
      num_batch: how many leading dimensions are batch.
      results: the ranks of the results.
    """
    batch = dim_names(num_batch, "batch ")
    whole: set = set()
    sides: tuple[list, list] = ([], [])
    for side, ranks in zip(sides, ([a.ndim for a in operands], results), strict=True):
        for i, rank in enumerate(ranks):
            own = [f"{'operand' if side is sides[0] else 'result'} {i} dim {d}" for d in range(rank - num_batch)]
            whole |= set(own)
            side.append([*batch, *own])
    return Roles(sides[0], sides[1], whole=whole)


def to_front(operands: Sequence, mapped: Sequence) -> list:
    """The operands with the mapped dimension in front, repeated where one is not mapped."""
    size = next(np.shape(x)[b] for x, b in zip(operands, mapped, strict=True) if b is not None)
    return [add_dim(x, 0, size) if b is None else move_dim(x, b, 0) for x, b in zip(operands, mapped, strict=True)]


def batch_in_front(self: Any, *args: Any, **params: Any) -> tuple:
    """The batching rule of a decomposition: one more leading dimension."""
    half = len(args) // 2
    y = self(*to_front(args[:half], args[half:]), **params)
    return (y, [0] * len(y)) if self.multiple else (y, 0)


def ndim_of(x: Any) -> int:
    """The rank of anything that may be an operand."""
    return aval_of(x).ndim


def require_inexact(x: Any) -> Any:
    """Integers as floating numbers; anything else as it is."""
    from phalanx.lax.convert import convert_element_type

    dtype = aval_of(x).dtype
    return x if dtypes.issubdtype(dtype, np.inexact) else convert_element_type(x, dtypes.to_inexact_dtype(dtype))
