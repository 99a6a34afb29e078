"""Windows for spectra: made on the host, periodic, as transforms want them. Called by `spectra`."""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.core.errors import ShapeError
from phalanx.numpy.operands import as_array, operand
from phalanx.scipy.signal.convolution import refused

_NAMED = {
    "hann": np.hanning, "hamming": np.hamming, "blackman": np.blackman, "bartlett": np.bartlett,
    "boxcar": np.ones, "kaiser": np.kaiser,
}  # fmt: skip


def window_of(window: Any, nperseg: int, name: str) -> Any:
    """A window by its name, by its name and parameters, or as it is.

    Raises:
      ArgumentError: there is no such name.
      ShapeError: an array has another length than the segments.
    """
    if isinstance(window, str | tuple):
        kind, *parameters = (window,) if isinstance(window, str) else window
        if kind not in _NAMED or (kind == "kaiser") != (len(parameters) == 1):
            raise refused(name, "window", (*(k for k in _NAMED if k != "kaiser"), ("kaiser", 8.6), "an array"), window)
        return np.asarray(_NAMED[kind](nperseg + 1, *parameters), np.float64)[:-1]
    values = as_array(operand(window, f"signal.{name}"))
    if values.ndim != 1 or values.shape[0] != nperseg:
        raise ShapeError(f"signal.{name}, argument window", expected=f"a vector of {nperseg}", got=values.shape,
                         mend="leave nperseg out")  # fmt: skip
    return values
