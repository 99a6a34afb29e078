"""Products of arrays: `dot`, `matmul`, `tensordot` and others, each one `dot_general` and at most one transpose."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, ArgumentTypeError, ShapeError, dtypes
from phalanx.lax.contraction.precision import PrecisionLike
from phalanx.lax.sharding.out_sharding import call_with_out_sharding
from phalanx.numpy.operands import (
    broadcast_shapes,
    broadcast_to_shape,
    canonical_axes,
    canonical_axis,
    cast,
    promote,
    refuse_out,
    to_operand,
)
from phalanx.numpy.products.einsum import einsum
from phalanx.numpy.shapes.joining import concatenate, stack
from phalanx.numpy.shapes.reshaping import moveaxis, ravel
from phalanx.numpy.ufuncs.ufunc_table import conjugate
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import Array, ArrayLike, Axis, DTypeLike, ShardingLike

_static = eager_jit(static_argnames=("precision", "preferred_element_type", "axes", "axis", "out_sharding"))


def _prepare(name: str, a: Array, b: Array, preferred: DTypeLike | None) -> tuple[Any, Any, dict]:
    """Promote the operands, and collect the keywords of the `dot_general`."""
    x, y = promote(name, to_operand(a, name), to_operand(b, name))
    return x, y, {} if preferred is None else {"preferred_element_type": dtypes.canonicalize_dtype(preferred)}


def _contract(
    x: Array, y: Array, contracting: tuple, batch: tuple, precision: PrecisionLike, options: dict, name: str
) -> Any:
    for i, j in zip(*contracting, strict=True):
        if x.shape[i] != y.shape[j]:
            raise ShapeError(
                name,
                expected="equal sizes of the dimensions to be summed over",
                got=f"{x.shape[i]} in {x.shape} and {y.shape[j]} in {y.shape}",
                fix="transpose or reshape an operand",
            )
    return lax.dot_general(x, y, (contracting, batch), precision=precision, **options)


@_static
def dot(
    a: ArrayLike,
    b: ArrayLike,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Dot product: the sum over the last axis of `a` and the second-to-last axis of `b`.

    Args:
      a, b: arrays; a scalar operand multiplies elementwise.
      precision: precision of the products, as in `lax.dot`.
      preferred_element_type: dtype of the accumulator and of the result.
      out_sharding: sharding of the result, as a `Sharding` or a `PartitionSpec`; inferred from the operands by default.

    Returns:
      The remaining dimensions of `a`, followed by the remaining dimensions of `b`.

    Raises:
      ShapeError: the sizes of these dimensions differ.

    Examples:
      >>> jnp.dot(jnp.array([1, 2]), jnp.array([3, 4])).item()
      11
    """
    if out_sharding is not None:
        multiply = functools.partial(dot, precision=precision, preferred_element_type=preferred_element_type)
        return call_with_out_sharding(multiply, (a, b), out_sharding, "dot, out_sharding")
    x, y, options = _prepare("dot", a, b, preferred_element_type)
    if not x.ndim or not y.ndim:
        out = x * y
        return cast(out, options["preferred_element_type"]) if options else out
    return _contract(x, y, ((x.ndim - 1,), (max(0, y.ndim - 2),)), ((), ()), precision, options, "dot")


@_static
def matmul(
    a: ArrayLike,
    b: ArrayLike,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Matrix product over the last two dimensions; leading dimensions broadcast.

    Args:
      a, b: arrays of rank 1 or more; a vector is a row on the left and a column on the right.
      precision: precision of the products, as in `lax.dot`.
      preferred_element_type: dtype of the accumulator and of the result.
      out_sharding: sharding of the result, as a `Sharding` or a `PartitionSpec`; inferred from the operands by default.

    Returns:
      num[*batch, m, n]; the dimension added to a vector operand is removed again.

    Raises:
      ShapeError: an operand is a scalar, or shapes disagree.

    Examples:
      >>> jnp.matmul(jnp.array([[1, 2], [3, 4]]), jnp.array([1, 1])).tolist()
      [3, 7]
    """
    if out_sharding is not None:
        multiply = functools.partial(matmul, precision=precision, preferred_element_type=preferred_element_type)
        return call_with_out_sharding(multiply, (a, b), out_sharding, "matmul, out_sharding")
    x, y, options = _prepare("matmul", a, b, preferred_element_type)
    m, n = x.ndim, y.ndim
    if not m or not n:
        raise ShapeError(
            "matmul",
            expected="arrays of rank 1 or more",
            got=f"shapes {x.shape} and {y.shape}",
            fix="multiply by a scalar with *",
        )
    if n <= 2:
        return _contract(x, y, ((m - 1,), (max(0, n - 2),)), ((), ()), precision, options, "matmul")
    return _matmul_batches(x, y, precision, options)


def _matmul_batches(x: Array, y: Array, precision: PrecisionLike, options: dict) -> Any:
    m, n = x.ndim, y.ndim
    x_lead, y_lead = x.shape[: max(0, m - 2)], y.shape[: n - 2]
    rank = len(broadcast_shapes(x_lead, y_lead, where="matmul"))
    # A leading dimension is a batch dimension of the dot_general only if both operands have it with a size other than
    # 1. Otherwise it stays a free dimension of one operand, so that nothing is repeated in memory.
    shared = [
        i for i in range(rank) if _at(x_lead, i - rank) not in (None, 1) and _at(y_lead, i - rank) not in (None, 1)
    ]
    x, x_names = _label_dims(x, x_lead, rank, shared, "r" if m > 1 else "")
    y, y_names = _label_dims(y, y_lead, rank, shared, "c")
    contracting = (x_names.index("k"),), (y_names.index("k"),)
    batch = tuple(tuple(names.index(i) for i in shared) for names in (x_names, y_names))
    out = _contract(x, y, contracting, batch, precision, options, "matmul")
    names = [
        *shared,
        *(k for k in x_names if k not in shared and k != "k"),
        *(k for k in y_names if k not in shared and k != "k"),
    ]
    # Restore the order of NumPy: leading dimensions, then the row of `x`, then the column of `y`.
    wanted = [i for i in range(rank) if i in names] + [k for k in ("r", "c") if k in names]
    order = tuple(names.index(k) for k in wanted)
    out = lax.transpose(out, order) if order != tuple(range(len(order))) else out
    # Leading dimensions of size 1 in both operands.
    missing = tuple(i for i in range(rank) if i not in names)
    return lax.expand_dims(out, missing) if missing else out


def _at(shape: tuple, i: int) -> Any:
    return shape[i] if -i <= len(shape) else None


def _label_dims(x: Array, lead: tuple, rank: int, shared: list, kept: str) -> tuple[Any, list]:
    """Squeeze batch dimensions of size 1, and label the others: a batch position, "r", "k" (summed) or "c"."""
    ones = tuple(i for i, d in enumerate(lead) if type(d) is int and d == 1)
    names: list = [i + rank - len(lead) for i in range(len(lead)) if i not in ones]
    x = lax.squeeze(x, ones) if ones else x
    names += [kept, "k"] if kept == "r" else ["k", "c"] if kept == "c" else ["k"]
    return x, names


def matvec(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Matrix-vector product; leading dimensions broadcast.

    Args:
      x1: matrices, num[*batch, m, n].
      x2: vectors, num[*batch, n].

    Returns:
      num[*batch, m], with the leading dimensions broadcast.

    Raises:
      ShapeError: sizes disagree.

    Examples:
      >>> jnp.matvec(jnp.array([[1, 2], [3, 4]]), jnp.array([1, 1])).tolist()
      [3, 7]
    """
    return einsum("...mn,...n->...m", x1, x2)


def vecmat(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Vector-matrix product with the vector conjugated; leading dimensions broadcast.

    Args:
      x1: vectors, num[*batch, n].
      x2: matrices, num[*batch, n, m].

    Returns:
      num[*batch, m], with the leading dimensions broadcast.

    Raises:
      ShapeError: sizes disagree.

    Examples:
      >>> jnp.vecmat(jnp.array([1, 1]), jnp.array([[1, 2], [3, 4]])).tolist()
      [4, 6]
    """
    return einsum("...n,...nm->...m", conjugate(x1), x2)


@_static
def vdot(
    a: ArrayLike, b: ArrayLike, *, precision: PrecisionLike = None, preferred_element_type: DTypeLike | None = None
) -> Array:
    """Dot product of the flattened arrays, with `a` conjugated.

    Args:
      a, b: arrays with equal numbers of elements; both are flattened.
      precision: precision of the products, as in `lax.dot`.
      preferred_element_type: dtype of the accumulator and of the result.

    Returns:
      num[].

    Raises:
      ShapeError: the numbers of elements differ.

    Examples:
      >>> jnp.vdot(jnp.array([1, 2]), jnp.array([3, 4])).item()
      11
    """
    x, y = ravel(to_operand(a, "vdot")), ravel(to_operand(b, "vdot"))
    x = lax.conj(x) if x.dtype.kind == "c" else x
    return dot(x, y, precision=precision, preferred_element_type=preferred_element_type)


@_static
def vecdot(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    axis: int = -1,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Dot product of vectors along an axis, with `x1` conjugated; other dimensions broadcast.

    Args:
      x1, x2: arrays of equal length along the axis.
      axis: the axis of both operands that holds the vectors.
      precision: precision of the products, as in `lax.dot`.
      preferred_element_type: dtype of the accumulator and of the result.

    Returns:
      The broadcast shape of the other dimensions.

    Raises:
      ShapeError: the sizes along the axis differ.

    Examples:
      >>> jnp.vecdot(jnp.array([[1, 2], [3, 4]]), jnp.array([1, 1])).tolist()
      [3, 7]
    """
    x, y = to_operand(x1, "vecdot"), to_operand(x2, "vecdot")
    if x.ndim < 1 or y.ndim < 1 or x.shape[axis] != y.shape[axis]:
        raise ShapeError(
            "vecdot",
            expected=f"equal sizes along axis {axis}",
            got=f"shapes {x.shape} and {y.shape}",
            fix="name the axis of the vectors with axis=",
        )
    return einsum(
        "...n,...n->...",
        moveaxis(lax.conj(x) if x.dtype.kind == "c" else x, axis, -1),
        moveaxis(y, axis, -1),
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def tensordot(
    a: ArrayLike,
    b: ArrayLike,
    axes: Axis = 2,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Tensor contraction: the sum of products over the given axes of two arrays.

    Args:
      a, b: arrays with the axes that `axes` names.
      axes: a number n, for the last n axes of `a` and the first n of `b`; or a pair of axes or of axis sequences.
      precision: precision of the products, as in `lax.dot`.
      preferred_element_type: dtype of the accumulator and of the result.
      out_sharding: sharding of the result, as a `Sharding` or a `PartitionSpec`; inferred from the operands by default.

    Returns:
      The remaining dimensions of `a`, followed by the remaining dimensions of `b`.

    Raises:
      ArgumentError: `axes` is malformed, or names different numbers of axes of `a` and `b`.
      ShapeError: sizes differ, or an array has fewer dimensions than `axes` asks for.

    Examples:
      >>> jnp.tensordot(jnp.ones((2, 3)), jnp.ones((3, 4)), 1).shape
      (2, 4)
    """
    if isinstance(axes, tuple | list):
        axes = tuple(tuple(x) if isinstance(x, tuple | list | np.ndarray) else x for x in axes)
    return _tensordot(a, b, axes, precision, preferred_element_type, out_sharding)


@_static
def _tensordot(
    a: Array,
    b: Array,
    axes: tuple[int, ...],
    precision: PrecisionLike,
    preferred_element_type: DTypeLike | None,
    out_sharding: ShardingLike | None,
) -> Any:
    if out_sharding is not None:
        multiply = lambda x, y: _tensordot(x, y, axes, precision, preferred_element_type, None)
        return call_with_out_sharding(multiply, (a, b), out_sharding, "tensordot, out_sharding")
    x, y, options = _prepare("tensordot", a, b, preferred_element_type)
    if isinstance(axes, int):
        if axes > min(x.ndim, y.ndim):
            raise ShapeError(
                "tensordot, argument axes",
                expected=f"at most {min(x.ndim, y.ndim)}",
                got=axes,
                fix="name the axes explicitly, as in axes=([0], [1])",
            )
        contracting = (tuple(range(x.ndim - axes, x.ndim)), tuple(range(axes)))
    elif isinstance(axes, tuple) and len(axes) == 2:
        left, right = ((v,) if not isinstance(v, tuple) else v for v in axes)
        contracting = (canonical_axes(left, x.ndim, "tensordot"), canonical_axes(right, y.ndim, "tensordot"))
        if len(contracting[0]) != len(contracting[1]):
            raise ArgumentError(
                "tensordot, argument axes",
                expected="as many axes of a as of b",
                got=axes,
                fix="name equal numbers of axes of a and of b",
            )
    else:
        raise ArgumentTypeError(
            "tensordot, argument axes",
            expected="an int or a pair",
            got=axes,
            fix="pass a number of axes, or a pair such as ([1], [0])",
        )
    return _contract(x, y, contracting, ((), ()), precision, options, "tensordot")


@_static
def inner(
    a: ArrayLike, b: ArrayLike, *, precision: PrecisionLike = None, preferred_element_type: DTypeLike | None = None
) -> Array:
    """Inner product: the sum over the last axes of both operands.

    Args:
      a, b: arrays with equal last dimensions; a scalar operand multiplies elementwise.
      precision: precision of the products, as in `lax.dot`.
      preferred_element_type: dtype of the accumulator and of the result.

    Returns:
      The leading dimensions of `a`, followed by the leading dimensions of `b`.

    Raises:
      ShapeError: the sizes of the last dimensions differ.

    Examples:
      >>> jnp.inner(jnp.array([1, 2]), jnp.array([3, 4])).item()
      11
    """
    x, y, options = _prepare("inner", a, b, preferred_element_type)
    if not x.ndim or not y.ndim:
        return x * y
    return _contract(x, y, ((x.ndim - 1,), (y.ndim - 1,)), ((), ()), precision, options, "inner")


@eager_jit
def outer(a: ArrayLike, b: ArrayLike, out: None = None) -> Array:
    """Outer product of the flattened operands: `out[i, j] = a[i] * b[j]`.

    Args:
      a, b: arrays with m and n elements.
      out: must be None; arrays are immutable.

    Returns:
      num[m, n].

    Raises:
      UnsupportedArgumentError: `out` is given.

    Examples:
      >>> jnp.outer(jnp.array([1, 2]), jnp.array([3, 4])).tolist()
      [[3, 4], [6, 8]]
    """
    refuse_out(out, "outer")
    x, y = map(ravel, promote("outer", to_operand(a, "outer"), to_operand(b, "outer")))
    shape = x.shape + y.shape
    return lax.broadcast_in_dim(x, shape, (0,)) * lax.broadcast_in_dim(y, shape, (1,))


@eager_jit
def kron(a: ArrayLike, b: ArrayLike) -> Array:
    """The Kronecker product.

    Args:
      a, b: arrays of any rank; leading dimensions of size 1 are added to the one of lower rank.

    Returns:
      An array of blocks `a[i, j, ...] * b`; each dimension is the product of the operands' dimensions.

    Examples:
      >>> jnp.kron(jnp.array([1, 2]), jnp.array([1, 1])).tolist()
      [1, 1, 2, 2]
    """
    x, y = promote("kron", to_operand(a, "kron"), to_operand(b, "kron"))
    rank = max(x.ndim, y.ndim)
    xs, ys = (1,) * (rank - x.ndim) + tuple(x.shape), (1,) * (rank - y.ndim) + tuple(y.shape)
    wide = tuple(d for pair in zip(xs, ys, strict=True) for d in pair)
    # Interleave the dimensions of both operands, multiply, and merge each pair.
    x = lax.broadcast_in_dim(x, wide, tuple(range(2 * (rank - x.ndim), 2 * rank, 2)))
    y = lax.broadcast_in_dim(y, wide, tuple(range(2 * (rank - y.ndim) + 1, 2 * rank, 2)))
    return lax.reshape(x * y, tuple(m * n for m, n in zip(xs, ys, strict=True)))


@eager_jit(static_argnames=("axisa", "axisb", "axisc", "axis"))
def cross(
    a: ArrayLike, b: ArrayLike, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Array:
    """Cross product of vectors with 3 (or 2) components.

    Args:
      a, b: vectors along `axisa` and `axisb`; other dimensions broadcast. A missing third component is 0.
      axisa, axisb: axes of `a` and `b` that hold the components.
      axisc: axis of the result that holds the components.
      axis: overrides `axisa`, `axisb` and `axisc`.

    Returns:
      Vectors with 3 components; the third component alone when both operands have 2.

    Raises:
      ShapeError: the vectors have another size, or the other dimensions do not broadcast.

    Examples:
      >>> jnp.cross(jnp.array([1, 0, 0]), jnp.array([0, 1, 0])).tolist()
      [0, 0, 1]
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = promote("cross", to_operand(a, "cross"), to_operand(b, "cross"))
    x, y = moveaxis(x, axisa, -1), moveaxis(y, axisb, -1)
    if x.shape[-1] not in (2, 3) or y.shape[-1] not in (2, 3):
        raise ShapeError(
            "cross",
            expected="vectors of 2 or 3 elements",
            got=f"{x.shape[-1]} and {y.shape[-1]}",
            fix="choose the axis of the vectors with axis=, axisa= or axisb=",
        )
    if x.shape[-1] == 2 and y.shape[-1] == 2:
        return x[..., 0] * y[..., 1] - x[..., 1] * y[..., 0]
    lead = broadcast_shapes(x.shape[:-1], y.shape[:-1], where="cross")
    parts = [broadcast_to_shape(v, (*lead, v.shape[-1])) for v in (x, y)]
    # A vector of 2 elements lies in the plane z = 0.
    zero = lax.full((*lead, 1), 0, x.dtype)
    parts = [v if v.shape[-1] == 3 else concatenate([v, zero], -1) for v in parts]
    (x0, x1, x2), (y0, y1, y2) = ([v[..., i] for i in range(3)] for v in parts)
    out = stack([x1 * y2 - x2 * y1, x2 * y0 - x0 * y2, x0 * y1 - x1 * y0], axis=-1)
    return moveaxis(out, -1, canonical_axis(axisc, out.ndim, "cross"))
