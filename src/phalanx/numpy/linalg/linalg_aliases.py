"""Array-API functions of `numpy.linalg` that wrap functions of `numpy`, and `multi_dot`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.core import ArgumentError, ShapeError
from phalanx.lax.contraction.precision import PrecisionLike
from phalanx.numpy.operands import to_operand
from phalanx.numpy.products import matrix_products
from phalanx.numpy.products.einsum import einsum
from phalanx.numpy.products.matrix_products import (
    cross as _cross,
    matmul as _matmul,
    tensordot as _tensordot,
    vecdot as _vecdot,
)
from phalanx.numpy.shapes.diagonals import diagonal as _diagonal, trace as _trace
from phalanx.numpy.shapes.reshaping import matrix_transpose as _matrix_transpose
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import Array, ArrayLike, Axis, DTypeLike, ShardingLike


@eager_jit
def multi_dot(arrays: Sequence[Any], *, precision: PrecisionLike = None) -> Array:
    """Product of several matrices, contracted in the cheapest order.

    Args:
      arrays: matrices; the first may be a row vector and the last a column vector.
      precision: precision of the products, as in `lax.dot`.

    Returns:
      The product: a matrix, or a vector or scalar if operands at the ends are vectors.

    Raises:
      ArgumentError: there are fewer than two arrays.

    Examples:
      >>> jnp.linalg.multi_dot([jnp.eye(2), jnp.eye(2), jnp.ones(2)]).tolist()
      [1.0, 1.0]
    """
    xs = [to_operand(x, "linalg.multi_dot") for x in arrays]
    if len(xs) < 2:
        raise ArgumentError(
            "linalg.multi_dot",
            expected="two arrays or more",
            got=len(xs),
            fix="pass two or more arrays in one sequence",
        )
    # A chain "ab,bc,cd->ad": opt_einsum finds the cheapest order of the products.
    letters = "abcdefghijklmnopqrstuvwxyz"
    terms = [letters[i : i + 2] for i in range(len(xs))]
    terms[0] = terms[0] if xs[0].ndim == 2 else terms[0][1]
    terms[-1] = terms[-1] if xs[-1].ndim == 2 else terms[-1][0]
    result = (terms[0][0] if xs[0].ndim == 2 else "") + (terms[-1][-1] if xs[-1].ndim == 2 else "")
    return einsum(",".join(terms) + "->" + result, *xs, precision=precision, optimize="auto")


def cross(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Array:
    """Cross product of vectors with 3 components.

    Args:
      x1, x2: vectors with 3 components along the axis; other dimensions broadcast.
      axis: axis of the operands and of the result that holds the components.

    Returns:
      The cross products, in the broadcast shape.

    Raises:
      ShapeError: the vectors have another size, or shapes do not broadcast.

    Examples:
      >>> jnp.linalg.cross(jnp.array([1, 0, 0]), jnp.array([0, 1, 0])).tolist()
      [0, 0, 1]
    """
    x, y = to_operand(x1, "linalg.cross"), to_operand(x2, "linalg.cross")
    if x.shape[axis] != 3 or y.shape[axis] != 3:
        raise ShapeError(
            "linalg.cross",
            expected="vectors of 3 elements",
            got=f"{x.shape} and {y.shape}",
            fix="name the axis of the vectors with axis=",
        )
    return _cross(x, y, axis=axis)


def outer(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Outer product of two vectors.

    Args:
      x1, x2: num[m] and num[n].

    Returns:
      num[m, n].

    Raises:
      ShapeError: an operand is not a vector.

    Examples:
      >>> jnp.linalg.outer(jnp.array([1, 2]), jnp.array([3, 4])).tolist()
      [[3, 4], [6, 8]]
    """
    x, y = to_operand(x1, "linalg.outer"), to_operand(x2, "linalg.outer")
    if x.ndim != 1 or y.ndim != 1:
        raise ShapeError(
            "linalg.outer",
            expected="two vectors",
            got=f"{x.shape} and {y.shape}",
            fix="use phalanx.numpy.outer, which flattens its operands",
        )
    return matrix_products.outer(x, y)


def matmul(
    x1: ArrayLike, x2: ArrayLike, /, *, precision: PrecisionLike = None, preferred_element_type: DTypeLike | None = None
) -> Array:
    """Matrix product.

    Args:
      x1, x2, precision, preferred_element_type: as in `phalanx.numpy.matmul`.

    Returns:
      The product, as from `phalanx.numpy.matmul`.

    Examples:
      >>> jnp.linalg.matmul(jnp.eye(2), jnp.ones(2)).tolist()
      [1.0, 1.0]
    """
    return _matmul(x1, x2, precision=precision, preferred_element_type=preferred_element_type)


def tensordot(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    axes: Axis = 2,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Tensor contraction over given axes.

    Args:
      x1, x2, axes, precision, preferred_element_type, out_sharding: as in `phalanx.numpy.tensordot`.

    Returns:
      The product, as from `phalanx.numpy.tensordot`.

    Examples:
      >>> jnp.linalg.tensordot(jnp.eye(2), jnp.ones(2), axes=1).tolist()
      [1.0, 1.0]
    """
    return _tensordot(
        x1, x2, axes, precision=precision, preferred_element_type=preferred_element_type, out_sharding=out_sharding
    )


def vecdot(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    axis: int = -1,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Dot product of vectors along an axis.

    Args:
      x1, x2, axis, precision, preferred_element_type: as in `phalanx.numpy.vecdot`.

    Returns:
      The products, as from `phalanx.numpy.vecdot`.

    Examples:
      >>> jnp.linalg.vecdot(jnp.ones(2), jnp.ones(2)).item()
      2.0
    """
    return _vecdot(x1, x2, axis=axis, precision=precision, preferred_element_type=preferred_element_type)


def matrix_transpose(x: ArrayLike, /) -> Array:
    """Transpose the last two dimensions.

    Args:
      x: num[*batch, m, n].

    Returns:
      num[*batch, n, m].

    Examples:
      >>> jnp.linalg.matrix_transpose(jnp.ones((2, 3))).shape
      (3, 2)
    """
    return _matrix_transpose(x)


def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Array:
    """Diagonals of the matrices along the last two axes.

    Args:
      x: num[*batch, m, n].
      offset: index of the diagonal: 0 for the main one, positive above it.

    Returns:
      num[*batch, k], where k is the length of the diagonal.

    Examples:
      >>> jnp.linalg.diagonal(jnp.eye(2)).tolist()
      [1.0, 1.0]
    """
    return _diagonal(x, offset, -2, -1)


def trace(x: ArrayLike, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Array:
    """Sums along the diagonals of the matrices along the last two axes.

    Args:
      x, offset: as in `diagonal`.
      dtype: dtype of the sums, as in `phalanx.numpy.sum`.

    Returns:
      num[*batch].

    Examples:
      >>> jnp.linalg.trace(jnp.eye(2)).item()
      2.0
    """
    return _trace(x, offset, -2, -1, dtype)
