"""Periodic windows for spectral estimation, computed on the host. Called by `spectra`."""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.core import ArgumentError, ShapeError
from phalanx.numpy.operands import as_array, to_operand
from phalanx.typing import Array, ArrayLike

_NAMED = {
    "hann": np.hanning,
    "hamming": np.hamming,
    "blackman": np.blackman,
    "bartlett": np.bartlett,
    "boxcar": np.ones,
    "kaiser": np.kaiser,
}


def make_window(window: str | tuple[Any, ...] | ArrayLike, nperseg: int, name: str) -> Array | np.ndarray:
    """The window of a name, of a name and parameters, or an array.

    Raises:
      ArgumentError: the name is unknown.
      ShapeError: the length of an array differs from the length of the segments.
    """
    if isinstance(window, str | tuple):
        kind, *parameters = (window,) if isinstance(window, str) else window
        if kind not in _NAMED or (kind == "kaiser") != (len(parameters) == 1):
            names = [repr(k) for k in _NAMED if k != "kaiser"]
            raise ArgumentError(
                f"signal.{name}, argument window",
                expected=" or ".join([*names, "('kaiser', beta)", "an array"]),
                got=repr(window),
                fix="pass window='hann', ('kaiser', 8.6), or an array of the length of a segment",
            )
        return np.asarray(_NAMED[kind](nperseg + 1, *parameters), np.float64)[:-1]
    values = as_array(to_operand(window, f"signal.{name}"))
    if values.ndim != 1 or values.shape[0] != nperseg:
        raise ShapeError(
            f"signal.{name}, argument window",
            expected=f"a vector of {nperseg}",
            got=values.shape,
            fix=f"pass nperseg={values.shape[0] if values.ndim else 1}, or omit it",
        )
    return values
