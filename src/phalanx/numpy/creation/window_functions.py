"""Window functions, computed by NumPy on the host, or by their formula if the length is symbolic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx.core import dtypes
from phalanx.numpy.creation.array_creation import array
from phalanx.numpy.creation.ranges import arange
from phalanx.numpy.operands import cast, to_static_int
from phalanx.numpy.ufuncs.ufunc_table import cos, i0, sqrt
from phalanx.runtime.eager_jit import eager_jit
from phalanx.symbolic import is_symbolic, max_dim
from phalanx.typing import Array, ArrayLike


def _window(M: Any, on_host: Callable, formula: Callable) -> Any:
    """The window that NumPy computes; for a symbolic length, the formula at positions from -1 to 1."""
    dtype = dtypes.canonicalize_dtype(np.float64)
    if not is_symbolic(M):
        return array(on_host(M).astype(dtype))
    # Odd numbers from 1 - M to M - 1, divided by M - 1, are the positions from -1 to 1.
    return formula(arange(1 - M, M, 2, dtype=dtype) / max_dim(M - 1, 1))


def bartlett(M: int) -> Array:
    """Bartlett (triangular) window.

    Args:
      M: number of points.

    Returns:
      float[M], from 0 at the ends towards 1 in the middle.

    Examples:
      >>> jnp.bartlett(3).tolist()
      [0.0, 1.0, 0.0]
    """
    return _window(M, np.bartlett, lambda x: 1 - abs(x))


def blackman(M: int) -> Array:
    """Blackman window.

    Args:
      M: number of points.

    Returns:
      float[M], from 0 at the ends towards 1 in the middle.

    Examples:
      >>> jnp.blackman(3)[1].item()
      1.0
    """
    return _window(M, np.blackman, lambda x: 0.42 + 0.5 * cos(np.pi * x) + 0.08 * cos(2 * np.pi * x))


def hamming(M: int) -> Array:
    """Hamming window.

    Args:
      M: number of points.

    Returns:
      float[M], from 0.08 at the ends towards 1 in the middle.

    Examples:
      >>> jnp.hamming(3)[1].item()
      1.0
    """
    return _window(M, np.hamming, lambda x: 0.54 + 0.46 * cos(np.pi * x))


def hanning(M: int) -> Array:
    """Hann window.

    Args:
      M: number of points.

    Returns:
      float[M], from 0 at the ends towards 1 in the middle.

    Examples:
      >>> jnp.hanning(3).tolist()
      [0.0, 1.0, 0.0]
    """
    return _window(M, np.hanning, lambda x: 0.5 + 0.5 * cos(np.pi * x))


@eager_jit(static_argnames=("M",))
def kaiser(M: int, beta: ArrayLike) -> Array:
    """Kaiser window.

    Args:
      M: number of points.
      beta: shape parameter; 0 gives a rectangular window.

    Returns:
      float[M], rising towards 1 in the middle.

    Examples:
      >>> jnp.kaiser(3, 0.0).tolist()
      [1.0, 1.0, 1.0]
    """
    dtype, M = dtypes.canonicalize_dtype(np.float64), to_static_int(M, "kaiser, argument M")
    if not is_symbolic(M) and M <= 1:
        return array(np.ones(M, dtype))
    x = arange(1 - M, M, 2, dtype=dtype) / max_dim(M - 1, 1)  # the places from -1 to 1
    return i0(beta * sqrt(1 - x**2)) / i0(cast(beta, dtype))
