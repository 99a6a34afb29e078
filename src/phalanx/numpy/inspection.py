"""What an array is: shape, rank, size, and whether it is a scalar or complex.

Builds on `operands`; `shapes.py` and users call it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from phalanx.core import dtypes
from phalanx.numpy.operands import canonical_axes, operand


def shape(a: Any) -> tuple:
    """The dimensions of an array.

    Args:
      a: an array, a scalar or nested lists of numbers.

    Returns:
      A tuple of ints or symbolic dimensions.

    Examples:
      >>> jnp.shape(jnp.zeros((2, 3)))
      (2, 3)
    """
    return np.shape(a) if isinstance(a, list | tuple) else operand(a, "shape").shape


def ndim(a: Any) -> int:
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


def size(a: Any, axis: Any = None) -> int:
    """The number of elements, or of those along axes.

    Args:
      a: an array, a scalar or nested lists of numbers.
      axis: an axis, a tuple of them, or None for all.

    Returns:
      An int, or a symbolic size.

    Raises:
      AxisError: there is no such axis.

    Examples:
      >>> jnp.size(jnp.zeros((2, 3)))
      6
    """
    dims = shape(a)
    return math.prod(dims[i] for i in canonical_axes(axis, len(dims), "size"))


def isscalar(element: Any) -> bool:
    """Whether something is a scalar: a Python number, or an array of rank 0.

    Args:
      element: anything.

    Returns:
      True or False.

    Examples:
      >>> jnp.isscalar(3.0), jnp.isscalar(jnp.zeros(1))
      (True, False)
    """
    if isinstance(element, np.ndarray):
        return element.ndim == 0
    return (hasattr(element, "aval") and element.ndim == 0) or np.isscalar(element)


def iterable(y: Any) -> bool:
    """Whether something can be iterated over.

    Args:
      y: anything.

    Returns:
      True or False.

    Examples:
      >>> jnp.iterable(jnp.zeros(2)), jnp.iterable(jnp.zeros(()))
      (True, False)
    """
    if hasattr(y, "aval"):
        return y.ndim > 0
    return np.iterable(y)


def iscomplexobj(x: Any) -> bool:
    """Whether the dtype is complex.

    Args:
      x: an array, or what NumPy makes one of; None counts as real.

    Returns:
      True or False.

    Examples:
      >>> jnp.iscomplexobj(jnp.zeros(2))
      False
    """
    if x is None:
        return False
    return dtypes.issubdtype(getattr(x, "dtype", None) or np.asarray(x).dtype, np.complexfloating)


def isrealobj(x: Any) -> bool:
    """Whether the dtype is not complex.

    Args:
      x: an array, or what NumPy makes one of; None counts as real.

    Returns:
      True or False.

    Examples:
      >>> jnp.isrealobj(jnp.zeros(2))
      True
    """
    return not iscomplexobj(x)
