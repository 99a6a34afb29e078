"""Reshaping and broadcasting: `reshape`, `ravel`, `broadcast_to`, `broadcast_arrays`, `atleast_1d`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from phalanx import lax
from phalanx.core import ArgumentError, ShapeError
from phalanx.lax.sharding.out_sharding import call_with_out_sharding
from phalanx.numpy.creation.array_creation import array
from phalanx.numpy.operands import as_array, broadcast_operands, broadcast_to_shape, canonical_shape, to_operand
from phalanx.numpy.shapes.transposition import transpose
from phalanx.typing import Array, ArrayLike, Shape, ShardingLike


def reshape(
    a: ArrayLike, shape: Shape, order: str = "C", *, copy: bool | None = None, out_sharding: ShardingLike | None = None
) -> Array:
    """Give an array another shape with the same elements.

    Args:
      a: array or scalar.
      shape: an int or a tuple of ints; one entry may be -1 and is then inferred.
      order: `"C"` (last index varies fastest) or `"F"` (first index varies fastest).
      copy: accepted for compatibility; arrays are immutable.
      out_sharding: sharding of the result, as a `Sharding` or a `PartitionSpec`; inferred from the operands by default.

    Returns:
      The reshaped array.

    Raises:
      ArgumentError: `order` is not supported.
      ArgumentTypeError: an entry of `shape` is not an integer.
      ShapeError: the number of elements would change.

    Examples:
      >>> jnp.reshape(jnp.arange(6), (2, -1)).tolist()
      [[0, 1, 2], [3, 4, 5]]
    """
    if out_sharding is not None:
        change = functools.partial(reshape, shape=shape, order=order)
        return call_with_out_sharding(change, (to_operand(a, "reshape"),), out_sharding, "reshape, out_sharding")
    a = to_operand(a, "reshape")
    new = shape if type(shape) is tuple else canonical_shape(shape, "reshape")
    own = a.shape
    if -1 in new or not all(type(d) is int for d in new):
        new = _infer_size(own, new)
    if order != "C":
        return _reshape_fortran(a, new, order)
    if new == own:
        return a if hasattr(a, "aval") else array(a)  # type: ignore[return-value]
    if math.prod(new) != math.prod(own):
        raise _size_error(own, new)
    return lax.reshape(a, new)


def _size_error(own: tuple, new: tuple) -> ShapeError:
    return ShapeError(
        "reshape, argument shape",
        expected=f"a shape of {math.prod(own)} elements, as {own} has",
        got=new,
        fix="use -1 for one dimension to have it found",
    )


def _infer_size(own: tuple, new: tuple) -> tuple:
    """The new shape with -1 replaced by the inferred size."""
    new = canonical_shape(new, "reshape")
    unknown = [i for i, d in enumerate(new) if type(d) is int and d == -1]
    if not unknown:
        return new
    rest = math.prod(d for i, d in enumerate(new) if i not in unknown)
    total = math.prod(own)
    if len(unknown) > 1 or (type(rest) is int and type(total) is int and (total % rest if rest else total)):
        raise ShapeError(
            "reshape, argument shape",
            expected=f"one -1, and a divisor of {total} elements in the other dimensions",
            got=new,
            fix="give each dimension but one",
        )
    found = total // rest if not (type(rest) is int and rest == 0) else 0
    return (*new[: unknown[0]], found, *new[unknown[0] + 1 :])


# Fortran order: reverse the dimensions, reshape to the reversed shape, and reverse again.
def _reshape_fortran(a: Array, new: tuple, order: str) -> Any:
    if order != "F":
        raise ArgumentError(
            "reshape, argument order",
            expected="'C' or 'F'",
            got=repr(order),
            fix="pass order='C' or order='F'; order='A' does not exist here",
        )
    return transpose(reshape(transpose(a), new[::-1]))


def ravel(a: ArrayLike, order: str = "C", *, out_sharding: ShardingLike | None = None) -> Array:
    """Flatten an array to one dimension.

    Args:
      a: array or scalar.
      order: `"C"`, or `"F"` to let the first index vary fastest; `"K"` is `"C"`.
      out_sharding: sharding of the result, as in `reshape`.

    Returns:
      A vector.

    Raises:
      ArgumentError: `order` is not supported.

    Examples:
      >>> jnp.ravel(jnp.zeros((2, 2))).tolist()
      [0.0, 0.0, 0.0, 0.0]
    """
    a = to_operand(a, "ravel")
    return reshape(a, (math.prod(a.shape),), "C" if order == "K" else order, out_sharding=out_sharding)


def broadcast_to(array: ArrayLike, shape: Shape, *, out_sharding: ShardingLike | None = None) -> Array:
    """Broadcast an array to a shape.

    Args:
      array: an array or a scalar.
      shape: an int or a tuple of ints.
      out_sharding: sharding of the result, as in `reshape`.

    Returns:
      An array of the same shape.

    Raises:
      ShapeError: the array does not broadcast to the shape.

    Examples:
      >>> jnp.broadcast_to(jnp.arange(2), (2, 2)).tolist()
      [[0, 1], [0, 1]]
    """
    x = to_operand(array, "broadcast_to")
    if out_sharding is not None:
        return call_with_out_sharding(
            lambda x: broadcast_to(x, shape), (x,), out_sharding, "broadcast_to, out_sharding"
        )
    shape = canonical_shape(shape, "broadcast_to")
    if x.shape == shape:
        return as_array(x)
    lead = len(shape) - x.ndim
    if lead < 0 or any(d not in (1, s) for d, s in zip(x.shape, shape[lead:], strict=True)):
        raise ShapeError(
            "broadcast_to, argument shape",
            expected=f"a shape that {x.shape} broadcasts to",
            got=shape,
            fix="reshape the array first, or add dimensions with x[:, None]",
        )
    return broadcast_to_shape(x, shape)


def broadcast_arrays(*args: Any) -> list:
    """Broadcast arrays against each other.

    Args:
      args: arrays or scalars.

    Returns:
      A list of arrays.

    Raises:
      ShapeError: the shapes do not broadcast.

    Examples:
      >>> [a.shape for a in jnp.broadcast_arrays(jnp.zeros((3, 1)), jnp.zeros(2))]
      [(3, 2), (3, 2)]
    """
    xs = [to_operand(x, "broadcast_arrays") for x in args]
    return [as_array(x) for x in broadcast_operands("broadcast_arrays", *xs)]


def atleast_1d(*arys: Any) -> Any:
    """View inputs as arrays of rank 1 or more.

    Args:
      arys: arrays or scalars; a single list is converted to an array.

    Returns:
      An array; a list of arrays for several inputs.

    Examples:
      >>> jnp.atleast_1d(3.0).shape
      (1,)
    """
    return _atleast("atleast_1d", arys, lambda x: lax.reshape(x, (1,)) if x.ndim == 0 else x)


def atleast_2d(*arys: Any) -> Any:
    """View inputs as arrays of rank 2 or more.

    Args:
      arys: as in `atleast_1d`; a vector becomes a row.

    Returns:
      An array; a list of arrays for several inputs.

    Examples:
      >>> jnp.atleast_2d(jnp.zeros(3)).shape
      (1, 3)
    """
    return _atleast("atleast_2d", arys, lambda x: lax.reshape(x, (1, *(x.shape or (1,)))) if x.ndim < 2 else x)


def atleast_3d(*arys: Any) -> Any:
    """View inputs as arrays of rank 3 or more.

    Args:
      arys: as in `atleast_1d`; a vector of length n becomes [1, n, 1], a matrix [m, n, 1].

    Returns:
      An array; a list of arrays for several inputs.

    Examples:
      >>> jnp.atleast_3d(jnp.zeros(3)).shape
      (1, 3, 1)
    """

    def grow(x: Array) -> Any:
        shapes = {0: (1, 1, 1), 1: (1, *x.shape, 1), 2: (*x.shape, 1)}
        return lax.reshape(x, shapes[x.ndim]) if x.ndim < 3 else x

    return _atleast("atleast_3d", arys, grow)


def _atleast(name: str, arys: tuple, grow: Callable[..., Array]) -> Any:
    if len(arys) == 1 and isinstance(arys[0], tuple | list):
        arys = (array(arys[0]),)
    out = [as_array(grow(to_operand(x, name))) for x in arys]
    return out[0] if len(out) == 1 else out
