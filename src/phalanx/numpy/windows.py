"""Window functions, made on the host: they are constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.core import dtypes
from phalanx.core.dispatch import eager_program
from phalanx.numpy.creation import arange, array
from phalanx.numpy.operands import cast
from phalanx.numpy.ufuncs import i0, sqrt


def _window(values: np.ndarray) -> Any:
    return array(values.astype(dtypes.canonicalize_dtype(np.float64)))


def bartlett(M: int) -> Any:
    """The triangular window.

    Examples:
      >>> jnp.bartlett(3).tolist()
      [0.0, 1.0, 0.0]
    """
    return _window(np.bartlett(M))


def blackman(M: int) -> Any:
    """The Blackman window.

    Examples:
      >>> jnp.blackman(3)[1].item()
      1.0
    """
    return _window(np.blackman(M))


def hamming(M: int) -> Any:
    """The Hamming window.

    Examples:
      >>> jnp.hamming(3)[1].item()
      1.0
    """
    return _window(np.hamming(M))


def hanning(M: int) -> Any:
    """The Hann window.

    Examples:
      >>> jnp.hanning(3).tolist()
      [0.0, 1.0, 0.0]
    """
    return _window(np.hanning(M))


@eager_program(static_argnames=("M",))
def kaiser(M: int, beta: Any) -> Any:
    """The Kaiser window.

    Examples:
      >>> jnp.kaiser(3, 0.0).tolist()
      [1.0, 1.0, 1.0]
    """
    dtype = dtypes.canonicalize_dtype(np.float64)
    if M <= 1:
        return array(np.ones(M, dtype))
    alpha = 0.5 * (M - 1)
    n = cast(arange(0, M), dtype)
    return i0(beta * sqrt(1 - ((n - alpha) / alpha) ** 2)) / i0(cast(beta, dtype))
