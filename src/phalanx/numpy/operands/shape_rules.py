"""Broadcasting rules, and validation of `axis` and `shape` arguments."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import AxisError, ShapeError, config, user_stacklevel
from phalanx.numpy.operands.operand_conversion import to_static_int
from phalanx.typing import Array, ArrayLike, Axis, Shape


def broadcast_shapes(*shapes: Sequence[Any], where: str = "broadcast_shapes") -> tuple:
    """The shape to which shapes broadcast by NumPy's rules.

    Args:
      shapes: tuples of dimensions, or single dimensions.
      where: name of the function for error messages.

    Returns:
      The common shape.

    Raises:
      ShapeError: two dimensions differ and neither is 1.

    Examples:
      >>> jnp.broadcast_shapes((3, 1), (4,))
      (3, 4)
    """
    tuples = [s if type(s) is tuple else tuple(s) if hasattr(s, "__iter__") else (s,) for s in shapes]
    # The most frequent call, for two operands of one shape.
    if len(tuples) == 2 and tuples[0] == tuples[1]:
        return tuples[0]
    ndim = max((len(s) for s in tuples), default=0)
    out = [1] * ndim
    for shape in tuples:
        for i, d in enumerate(shape, ndim - len(shape)):
            if type(out[i]) is int and out[i] == 1:
                out[i] = d
            # Comparing a symbolic dimension with another one may raise if the answer depends on sizes: test for 1
            # first.
            elif not (type(d) is int and d == 1) and d != out[i]:
                raise ShapeError(
                    where,
                    expected="shapes that broadcast: equal dimensions, or 1",
                    got=" and ".join(str(tuple(s)) for s in tuples),
                    fix="reshape one operand, or insert dimensions with x[:, None]",
                )
    return tuple(out)


def check_rank_promotion(where: str, shapes: Sequence[tuple]) -> None:
    """Raise or warn if operands have different ranks, as the option `numpy_rank_promotion` requests."""
    if config.numpy_rank_promotion == "allow" or len({len(s) for s in shapes if s}) <= 1:
        return
    if config.numpy_rank_promotion == "raise":
        raise ShapeError(
            where,
            expected="operands of one rank, since numpy_rank_promotion is 'raise'",
            got=", ".join(map(str, shapes)),
            fix="reshape the smaller operand, or set numpy_rank_promotion to 'allow'",
        )
    warnings.warn(f"{where}: ranks are promoted for shapes {', '.join(map(str, shapes))}", stacklevel=user_stacklevel())


def broadcast_to_shape(x: ArrayLike, shape: tuple) -> Any:
    """Broadcast `x` to `shape`, or return it if it has that shape."""
    own = np.shape(x) if not hasattr(x, "shape") else x.shape
    if own == shape:
        return x
    # NumPy aligns shapes at their last dimension.
    lead = len(shape) - len(own)
    return lax.broadcast_in_dim(x, shape, tuple(range(lead, len(shape))))


def broadcast_operands(where: str, *xs: Any) -> list:
    """Broadcast operands to one shape."""
    shapes = [x.shape if hasattr(x, "shape") else () for x in xs]
    shape = broadcast_shapes(*shapes, where=where)
    check_rank_promotion(where, shapes)
    return [broadcast_to_shape(x, shape) for x in xs]


def canonical_axis(axis: int, ndim: int, where: str) -> int:
    """An axis as a non-negative position.

    Raises:
      AxisError: the axis is out of range.
    """
    axis = to_static_int(axis, f"{where}, argument axis", fix="give the axis as a Python int")
    if not -ndim <= axis < ndim:
        raise AxisError(
            f"{where}, argument axis",
            expected=f"an axis of an array of rank {ndim}",
            got=axis,
            fix=f"give an integer from {-ndim} to {ndim - 1}" if ndim else "give the array at least one dimension",
        )
    return axis + ndim if axis < 0 else axis


def canonical_axes(axis: Axis, ndim: int, where: str) -> tuple[int, ...]:
    """Axes as non-negative positions; None means all.

    Raises:
      AxisError: an axis is out of range, or is given twice.
    """
    if axis is None:
        return tuple(range(ndim))
    if isinstance(axis, tuple | list):
        axes = tuple(canonical_axis(a, ndim, where) for a in axis)
        if len(set(axes)) != len(axes):
            raise AxisError(
                f"{where}, argument axis", expected="different axes", got=tuple(axis), fix="name each axis once"
            )
        return axes
    return (canonical_axis(axis, ndim, where),)


def flatten_without_axis(x: Array, axis: int | None, where: str) -> tuple[Array, int]:
    """Flatten `x` if `axis` is None; return it and the axis as a non-negative position.

    Raises:
      AxisError: the axis is out of range.
    """
    if axis is None:
        return (lax.reshape(x, (math.prod(x.shape),)) if x.ndim != 1 else x), 0
    return x, canonical_axis(axis, x.ndim, where)


def canonical_shape(shape: Shape, where: str) -> tuple:
    """A shape as a tuple. A single int or symbolic dimension is a shape of rank 1.

    Raises:
      ArgumentTypeError: an entry is not an integer.
    """
    if type(shape) is tuple and all(type(d) is int for d in shape):
        return shape
    if not isinstance(shape, tuple | list | np.ndarray) or (isinstance(shape, np.ndarray) and not shape.ndim):
        shape = (shape,)
    told = f"{where}, argument shape"
    return tuple(to_static_int(d, told, "integers", "give the shape as a tuple of Python ints") for d in shape)
