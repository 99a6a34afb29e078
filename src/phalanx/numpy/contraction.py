"""Products of arrays: dot, matmul, tensordot and their like, each one dot_general with at most a transposition.

Built on `lax.dot_general`; sums of products by subscripts are in `einsums.py`.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.errors import ArgumentError, ShapeError
from phalanx.lax.explicit import laid_out
from phalanx.numpy.operands import (
    broadcast_shapes,
    broadcast_to_shape,
    canonical_axes,
    canonical_axis,
    cast,
    operand,
    promote,
    refuse_out,
)
from phalanx.runtime.dispatch import eager_program

_static = eager_program(static_argnames=("precision", "preferred_element_type", "axes", "axis", "out_sharding"))


def _prepared(name: str, a: Any, b: Any, preferred: Any) -> tuple[Any, Any, dict]:
    """Operands of one dtype, and the keywords of the dot_general."""
    x, y = promote(name, operand(a, name), operand(b, name))
    options: dict = {}
    if preferred is not None:
        options["preferred_element_type"] = dtypes.canonicalize_dtype(preferred)
    return x, y, options


def _contract(x: Any, y: Any, contracting: tuple, batch: tuple, precision: Any, options: dict, name: str) -> Any:
    for i, j in zip(*contracting, strict=True):
        if x.shape[i] != y.shape[j]:
            raise ShapeError(
                name, expected="equal sizes of the dimensions to be summed over",
                got=f"{x.shape[i]} in {x.shape} and {y.shape[j]} in {y.shape}", mend="transpose or reshape an operand",
            )  # fmt: skip
    return lax.dot_general(x, y, (contracting, batch), precision=precision, **options)


@_static
def dot(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None, out_sharding: Any = None) -> Any:
    """The product over the last dimension of `a` and the last but one of `b`.

    Args:
      a, b: arrays; a scalar multiplies.
      precision: of the computation, as in `lax.dot`.
      preferred_element_type: the dtype to accumulate in and give.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      An array with the dimensions of `a` but its last, then those of `b` but the one summed over.

    Raises:
      ShapeError: the sizes of these dimensions differ.

    Examples:
      >>> jnp.dot(jnp.array([1, 2]), jnp.array([3, 4])).item()
      11
    """
    if out_sharding is not None:
        multiply = functools.partial(dot, precision=precision, preferred_element_type=preferred_element_type)
        return laid_out(multiply, (a, b), out_sharding, "dot, out_sharding")
    x, y, options = _prepared("dot", a, b, preferred_element_type)
    if not x.ndim or not y.ndim:
        out = x * y
        return cast(out, options["preferred_element_type"]) if options else out
    return _contract(x, y, ((x.ndim - 1,), (max(0, y.ndim - 2),)), ((), ()), precision, options, "dot")


@_static
def matmul(
    a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None, out_sharding: Any = None
) -> Any:
    """The product of matrices along the last two dimensions, the others broadcasting.

    Args:
      a, b: arrays of rank 1 or more; a vector counts as a row on the left and as a column on the right.
      precision: of the computation, as in `lax.dot`.
      preferred_element_type: the dtype to accumulate in and give.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      An array with the broadcast leading dimensions and those of a matrix product, without the one of a vector.

    Raises:
      ShapeError: an operand is a scalar, or shapes disagree.

    Examples:
      >>> jnp.matmul(jnp.array([[1, 2], [3, 4]]), jnp.array([1, 1])).tolist()
      [3, 7]
    """
    if out_sharding is not None:
        multiply = functools.partial(matmul, precision=precision, preferred_element_type=preferred_element_type)
        return laid_out(multiply, (a, b), out_sharding, "matmul, out_sharding")
    x, y, options = _prepared("matmul", a, b, preferred_element_type)
    m, n = x.ndim, y.ndim
    if not m or not n:
        raise ShapeError("matmul", expected="arrays of rank 1 or more", got=f"shapes {x.shape} and {y.shape}",
                         mend="multiply by a scalar with *")  # fmt: skip
    if n <= 2:
        return _contract(x, y, ((m - 1,), (max(0, n - 2),)), ((), ()), precision, options, "matmul")
    return _batched_matmul(x, y, precision, options)


def _batched_matmul(x: Any, y: Any, precision: Any, options: dict) -> Any:
    m, n = x.ndim, y.ndim
    x_lead, y_lead = x.shape[: max(0, m - 2)], y.shape[: n - 2]
    lead = broadcast_shapes(x_lead, y_lead, where="matmul")
    rank = len(lead)
    # A batch dimension of size 1, or absent, is free in that operand rather than repeated.
    shared = [
        i for i in range(rank)
        if _at(x_lead, i - rank) not in (None, 1) and _at(y_lead, i - rank) not in (None, 1)
    ] if lead else []  # fmt: skip
    x, x_names = _named(x, x_lead, rank, shared, "r" if m > 1 else "")
    y, y_names = _named(y, y_lead, rank, shared, "c")
    x_batch = tuple(x_names.index(i) for i in shared)
    y_batch = tuple(y_names.index(i) for i in shared)
    x_sum = x_names.index("k")
    y_sum = y_names.index("k")
    out = _contract(x, y, ((x_sum,), (y_sum,)), (x_batch, y_batch), precision, options, "matmul")
    names = [*shared, *(k for k in x_names if k not in shared and k != "k"),
             *(k for k in y_names if k not in shared and k != "k")]  # fmt: skip
    wanted = [i for i in range(rank) if i in names] + [k for k in ("r", "c") if k in names]
    order = tuple(names.index(k) for k in wanted)
    out = lax.transpose(out, order) if order != tuple(range(len(order))) else out
    missing = tuple(i for i in range(rank) if i not in names)
    return lax.expand_dims(out, missing) if missing else out


def _at(shape: tuple, i: int) -> Any:
    return shape[i] if -i <= len(shape) else None


def _named(x: Any, lead: tuple, rank: int, shared: list, kept: str) -> tuple[Any, list]:
    """The operand without batch dimensions of size 1, and a name for each of its dimensions."""
    ones = tuple(i for i, d in enumerate(lead) if type(d) is int and d == 1)
    names: list = [i + rank - len(lead) for i in range(len(lead)) if i not in ones]
    x = lax.squeeze(x, ones) if ones else x
    names += [kept, "k"] if kept == "r" else ["k", "c"] if kept == "c" else ["k"]
    return x, names


def matvec(x1: Any, x2: Any, /) -> Any:
    """The product of matrices and vectors, the leading dimensions broadcasting.

    Args:
      x1: matrices, num[*batch, m, n].
      x2: vectors, num[*batch, n].

    Returns:
      num[*batch, m], of broadcast leading dimensions.

    Raises:
      ShapeError: sizes disagree.

    Examples:
      >>> jnp.matvec(jnp.array([[1, 2], [3, 4]]), jnp.array([1, 1])).tolist()
      [3, 7]
    """
    from phalanx.numpy.einsums import einsum

    return einsum("...mn,...n->...m", x1, x2)


def vecmat(x1: Any, x2: Any, /) -> Any:
    """The product of conjugated vectors and matrices, the leading dimensions broadcasting.

    Args:
      x1: vectors, num[*batch, n].
      x2: matrices, num[*batch, n, m].

    Returns:
      num[*batch, m], of broadcast leading dimensions.

    Raises:
      ShapeError: sizes disagree.

    Examples:
      >>> jnp.vecmat(jnp.array([1, 1]), jnp.array([[1, 2], [3, 4]])).tolist()
      [4, 6]
    """
    from phalanx.numpy.einsums import einsum
    from phalanx.numpy.ufuncs import conjugate

    return einsum("...n,...nm->...m", conjugate(x1), x2)


def vdot(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """The sum of products of all elements, those of `a` conjugated.

    Args:
      a, b: with as many elements; both are raveled.
      precision: of the computation, as in `lax.dot`.
      preferred_element_type: the dtype to accumulate in and give.

    Returns:
      num[], an array.

    Raises:
      ShapeError: the numbers of elements differ.

    Examples:
      >>> jnp.vdot(jnp.array([1, 2]), jnp.array([3, 4])).item()
      11
    """
    return _vdot(a, b, precision=precision, preferred_element_type=preferred_element_type)


@_static
def _vdot(a: Any, b: Any, *, precision: Any, preferred_element_type: Any) -> Any:
    x, y = operand(a, "vdot"), operand(b, "vdot")
    x = lax.conj(x) if x.dtype.kind == "c" else x
    flat = [lax.reshape(v, (math.prod(v.shape),)) if v.ndim != 1 else v for v in (x, y)]
    return dot(*flat, precision=precision, preferred_element_type=preferred_element_type)


@_static
def vecdot(x1: Any, x2: Any, /, *, axis: int = -1, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """The sums of products along an axis, those of `x1` conjugated, the other dimensions broadcasting.

    Args:
      x1, x2: with n elements each along the axis.
      axis: along which to sum, in both.
      precision: of the computation, as in `lax.dot`.
      preferred_element_type: the dtype to accumulate in and give.

    Returns:
      An array of the broadcast shape of the other dimensions.

    Raises:
      ShapeError: the sizes along the axis differ.

    Examples:
      >>> jnp.vecdot(jnp.array([[1, 2], [3, 4]]), jnp.array([1, 1])).tolist()
      [3, 7]
    """
    from phalanx.numpy.einsums import einsum
    from phalanx.numpy.shapes import moveaxis

    x, y = operand(x1, "vecdot"), operand(x2, "vecdot")
    if x.ndim < 1 or y.ndim < 1 or x.shape[axis] != y.shape[axis]:
        raise ShapeError("vecdot", expected=f"equal sizes along axis {axis}", got=f"shapes {x.shape} and {y.shape}",
                         mend="give another axis")  # fmt: skip
    x = lax.conj(x) if x.dtype.kind == "c" else x
    return einsum("...n,...n->...", moveaxis(x, axis, -1), moveaxis(y, axis, -1), precision=precision,
                  preferred_element_type=preferred_element_type)  # fmt: skip


def tensordot(
    a: Any, b: Any, axes: Any = 2, *, precision: Any = None, preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Any:  # fmt: skip
    """The product over given dimensions of two arrays.

    Args:
      a, b: of the ranks that `axes` asks for.
      axes: how many of the last of `a` and first of `b`; or a pair of axes, or of sequences of them.
      precision: of the computation, as in `lax.dot`.
      preferred_element_type: the dtype to accumulate in and give.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      An array with the dimensions of `a` not summed over, then those of `b`.

    Raises:
      ArgumentError: `axes` is none of these, or names more of one array than of the other.
      ShapeError: sizes differ, or an array has fewer dimensions than `axes` asks for.

    Examples:
      >>> jnp.tensordot(jnp.ones((2, 3)), jnp.ones((3, 4)), 1).shape
      (2, 4)
    """
    if isinstance(axes, tuple | list):
        axes = tuple(tuple(x) if isinstance(x, tuple | list | np.ndarray) else x for x in axes)
    return _tensordot(a, b, axes, precision, preferred_element_type, out_sharding)


@_static
def _tensordot(a: Any, b: Any, axes: Any, precision: Any, preferred_element_type: Any, out_sharding: Any) -> Any:
    if out_sharding is not None:
        multiply = lambda x, y: _tensordot(x, y, axes, precision, preferred_element_type, None)
        return laid_out(multiply, (a, b), out_sharding, "tensordot, out_sharding")
    x, y, options = _prepared("tensordot", a, b, preferred_element_type)
    if isinstance(axes, int):
        if axes > min(x.ndim, y.ndim):
            raise ShapeError("tensordot, argument axes", expected=f"at most {min(x.ndim, y.ndim)}", got=axes,
                             mend="give the axes themselves")  # fmt: skip
        contracting = (tuple(range(x.ndim - axes, x.ndim)), tuple(range(axes)))
    elif isinstance(axes, tuple) and len(axes) == 2:
        left, right = ((v,) if not isinstance(v, tuple) else v for v in axes)
        contracting = (canonical_axes(left, x.ndim, "tensordot"), canonical_axes(right, y.ndim, "tensordot"))
        if len(contracting[0]) != len(contracting[1]):
            raise ArgumentError(
                "tensordot, argument axes", expected="as many axes of a as of b", got=axes, mend="match them"
            )
    else:
        raise ArgumentError(
            "tensordot, argument axes", expected="an int or a pair", got=axes, mend="give a pair of axes"
        )
    return _contract(x, y, contracting, ((), ()), precision, options, "tensordot")


@_static
def inner(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """The product over the last dimension of both.

    Args:
      a, b: with last dimensions of one size; a scalar multiplies.
      precision: of the computation, as in `lax.dot`.
      preferred_element_type: the dtype to accumulate in and give.

    Returns:
      An array with the dimensions of `a` but its last, then those of `b` but its last.

    Raises:
      ShapeError: the sizes of the last dimensions differ.

    Examples:
      >>> jnp.inner(jnp.array([1, 2]), jnp.array([3, 4])).item()
      11
    """
    x, y, options = _prepared("inner", a, b, preferred_element_type)
    if not x.ndim or not y.ndim:
        return x * y
    return _contract(x, y, ((x.ndim - 1,), (y.ndim - 1,)), ((), ()), precision, options, "inner")


@eager_program
def outer(a: Any, b: Any, out: None = None) -> Any:
    """All products of an element of `a` and one of `b`, both raveled.

    Args:
      a, b: of m and n elements.
      out: must be None.

    Returns:
      num[m, n].

    Raises:
      ArgumentError: `out` is given.

    Examples:
      >>> jnp.outer(jnp.array([1, 2]), jnp.array([3, 4])).tolist()
      [[3, 4], [6, 8]]
    """
    refuse_out(out, "outer")
    x, y = promote("outer", operand(a, "outer"), operand(b, "outer"))
    m, n = math.prod(x.shape), math.prod(y.shape)
    x = lax.reshape(x, (m,)) if x.ndim != 1 else x
    y = lax.reshape(y, (n,)) if y.ndim != 1 else y
    return lax.broadcast_in_dim(x, (m, n), (0,)) * lax.broadcast_in_dim(y, (m, n), (1,))


@eager_program
def kron(a: Any, b: Any) -> Any:
    """The Kronecker product.

    Args:
      a, b: of any ranks; the lower one is given leading dimensions of size 1.

    Returns:
      An array whose every dimension has the product of the sizes of both: blocks of `b`, each times an element of `a`.

    Examples:
      >>> jnp.kron(jnp.array([1, 2]), jnp.array([1, 1])).tolist()
      [1, 1, 2, 2]
    """
    x, y = promote("kron", operand(a, "kron"), operand(b, "kron"))
    rank = max(x.ndim, y.ndim)
    xs, ys = (1,) * (rank - x.ndim) + tuple(x.shape), (1,) * (rank - y.ndim) + tuple(y.shape)
    wide = tuple(d for pair in zip(xs, ys, strict=True) for d in pair)
    x = lax.broadcast_in_dim(x, wide, tuple(range(2 * (rank - x.ndim), 2 * rank, 2)))
    y = lax.broadcast_in_dim(y, wide, tuple(range(2 * (rank - y.ndim) + 1, 2 * rank, 2)))
    return lax.reshape(x * y, tuple(m * n for m, n in zip(xs, ys, strict=True)))


@eager_program(static_argnames=("axisa", "axisb", "axisc", "axis"))
def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Any:
    """The cross product of vectors of 3 (or 2) elements.

    Args:
      a, b: vectors along `axisa` and `axisb`, the other dimensions broadcasting; two elements stand for a third of 0.
      axisa, axisb: along which the vectors of `a` and `b` lie.
      axisc: where those of the result go.
      axis: stands for all three.

    Returns:
      Vectors of 3 elements; of operands with 2 elements each, the third component alone.

    Raises:
      ShapeError: the vectors have another size, or the other dimensions do not broadcast.

    Examples:
      >>> jnp.cross(jnp.array([1, 0, 0]), jnp.array([0, 1, 0])).tolist()
      [0, 0, 1]
    """
    from phalanx.numpy.joining import concatenate, stack
    from phalanx.numpy.shapes import moveaxis

    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = promote("cross", operand(a, "cross"), operand(b, "cross"))
    x, y = moveaxis(x, axisa, -1), moveaxis(y, axisb, -1)
    if x.shape[-1] not in (2, 3) or y.shape[-1] not in (2, 3):
        raise ShapeError("cross", expected="vectors of 2 or 3 elements", got=f"{x.shape[-1]} and {y.shape[-1]}",
                         mend="give another axis")  # fmt: skip
    if x.shape[-1] == 2 and y.shape[-1] == 2:
        return x[..., 0] * y[..., 1] - x[..., 1] * y[..., 0]
    lead = broadcast_shapes(x.shape[:-1], y.shape[:-1], where="cross")
    parts = []
    for v in (x, y):
        v = broadcast_to_shape(v, (*lead, v.shape[-1]))
        parts.append(v if v.shape[-1] == 3 else concatenate([v, lax.full((*lead, 1), 0, v.dtype)], -1))
    (x0, x1, x2), (y0, y1, y2) = ([v[..., i] for i in range(3)] for v in parts)
    out = stack([x1 * y2 - x2 * y1, x2 * y0 - x0 * y2, x0 * y1 - x1 * y0], axis=-1)
    return moveaxis(out, -1, canonical_axis(axisc, out.ndim, "cross"))


def convolve(a: Any, v: Any, mode: str = "full", *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """The convolution of two vectors.

    Args:
      a, v: vectors.
      mode: `"full"`, `"same"` or `"valid"`.
      precision: of the computation, as in `lax.conv`.
      preferred_element_type: the dtype to accumulate in and give.

    Returns:
      A vector: of m + n - 1 elements (`"full"`), as many as the longer one (`"same"`), or those for which the shorter
      one lies within the longer (`"valid"`). Of integers it is in floating point.

    Raises:
      ArgumentError: there is no such mode.
      ShapeError: an operand is no vector, or empty.

    Examples:
      >>> jnp.convolve(jnp.array([1.0, 2.0]), jnp.array([1.0, 1.0])).tolist()
      [1.0, 3.0, 2.0]
    """
    return _convolve("convolve", a, v, mode, precision, preferred_element_type)


def correlate(a: Any, v: Any, mode: str = "valid", *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """The correlation of two vectors, the second conjugated.

    Args:
      a, v, mode, precision, preferred_element_type: as in `convolve`.

    Returns:
      A vector, of the length and dtype that `convolve` gives.

    Raises:
      ArgumentError: there is no such mode.
      ShapeError: an operand is no vector, or empty.

    Examples:
      >>> jnp.correlate(jnp.array([1.0, 2.0, 3.0]), jnp.array([0.0, 1.0])).tolist()
      [2.0, 3.0]
    """
    return _convolve("correlate", a, v, mode, precision, preferred_element_type)


@eager_program(static_argnames=("name", "mode", "precision", "preferred"))
def _convolve(name: str, a: Any, v: Any, mode: str, precision: Any, preferred: Any) -> Any:
    if mode not in ("full", "same", "valid"):
        raise ArgumentError(
            f"{name}, argument mode", expected="'full', 'same' or 'valid'", got=repr(mode), mend="use one"
        )
    x, y = promote(name, operand(a, name), operand(v, name))
    if x.ndim != 1 or y.ndim != 1 or 0 in (x.shape[0], y.shape[0]):
        raise ShapeError(
            name, expected="vectors that are not empty", got=f"shapes {x.shape} and {y.shape}", mend="ravel"
        )
    own = x.dtype
    if own.kind in "biu":
        x, y = (cast(z, dtypes.to_inexact_dtype(own)) for z in (x, y))
    swap = x.shape[0] < y.shape[0]
    if name == "correlate":
        y = lax.conj(y) if own.kind == "c" else y
    if swap:
        x, y = y, x
    # A convolution operation correlates: for a convolution the kernel is turned round; a correlation whose operands
    # were exchanged gives its result turned round.
    kernel = lax.rev(y, (0,)) if name == "convolve" else y
    n = y.shape[0]
    pads = {"full": (n - 1, n - 1), "valid": (0, 0), "same": (n // 2, n - n // 2 - 1)}[mode]
    out = lax.conv_general_dilated(
        x[None, None, :], kernel[None, None, :], (1,), [pads], precision=precision, preferred_element_type=preferred
    )[0, 0]
    return lax.rev(out, (0,)) if name == "correlate" and swap else out
