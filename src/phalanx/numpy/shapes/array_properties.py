"""Properties of arrays and array-like data: `shape`, `ndim`, `size`, `isscalar`, `iscomplexobj`."""

from __future__ import annotations

import math

import numpy as np

from phalanx.core import dtypes
from phalanx.numpy.operands import canonical_axes, to_operand, unwrap_array_like
from phalanx.typing import ArrayLike, Axis


def shape(a: ArrayLike) -> tuple:
    """The dimensions of an array.

    Args:
      a: an array, a scalar or nested lists of numbers.

    Returns:
      A tuple of ints or symbolic dimensions.

    Examples:
      >>> jnp.shape(jnp.zeros((2, 3)))
      (2, 3)
    """
    if a is None:  # the value of parameters that were left out, which libraries ask for their shape
        return ()
    return np.shape(a) if isinstance(a, list | tuple) else to_operand(a, "shape").shape


def ndim(a: ArrayLike) -> int:
    """The rank of an array.

    Args:
      a: an array, a scalar or nested lists of numbers.

    Returns:
      An int.

    Examples:
      >>> jnp.ndim(jnp.zeros((2, 3)))
      2
    """
    return len(shape(a))


def size(a: ArrayLike, axis: Axis = None) -> int:
    """Number of elements, in total or along axes.

    Args:
      a: an array, a scalar or nested lists of numbers.
      axis: axis or tuple of axes; None for all.

    Returns:
      An int, or a symbolic size.

    Raises:
      AxisError: an axis is out of range.

    Examples:
      >>> jnp.size(jnp.zeros((2, 3)))
      6
    """
    dims = shape(a)
    return math.prod(dims[i] for i in canonical_axes(axis, len(dims), "size"))


def isscalar(element: ArrayLike) -> bool:
    """Whether something is a scalar: a Python number, or an array of rank 0.

    Args:
      element: any object.

    Returns:
      True or False.

    Examples:
      >>> jnp.isscalar(3.0), jnp.isscalar(jnp.zeros(1))
      (True, False)
    """
    element = unwrap_array_like(element)
    is_array = hasattr(element, "aval") or isinstance(element, np.ndarray)
    return element.ndim == 0 if is_array else np.isscalar(element)


def iterable(y: ArrayLike) -> bool:
    """Whether something can be iterated over.

    Args:
      y: any object.

    Returns:
      True or False.

    Examples:
      >>> jnp.iterable(jnp.zeros(2)), jnp.iterable(jnp.zeros(()))
      (True, False)
    """
    return y.ndim > 0 if hasattr(y, "aval") else np.iterable(y)


def iscomplexobj(x: ArrayLike) -> bool:
    """Whether the dtype is complex.

    Args:
      x: an array, or array-like data; None is real.

    Returns:
      True or False.

    Examples:
      >>> jnp.iscomplexobj(jnp.zeros(2))
      False
    """
    if x is None:
        return False
    if isinstance(x, list | tuple):
        return any(map(iscomplexobj, x))
    x = unwrap_array_like(x)
    return dtypes.issubdtype(getattr(x, "dtype", None) or np.asarray(x).dtype, np.complexfloating)


def isrealobj(x: ArrayLike) -> bool:
    """Whether the dtype is not complex.

    Args:
      x: an array, or array-like data; None is real.

    Returns:
      True or False.

    Examples:
      >>> jnp.isrealobj(jnp.zeros(2))
      True
    """
    return not iscomplexobj(x)
