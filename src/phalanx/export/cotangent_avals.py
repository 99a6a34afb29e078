"""Types of cotangents in an artifact, which has no `float0`: a boolean array of the same shape takes its place.

Builds on abstract values; `call_exported` and `exporting` call it.
"""

from __future__ import annotations

import numpy as np

from phalanx.core import ShapedArray, dtypes


def is_differentiable(aval: ShapedArray) -> bool:
    """Whether values of this type vary continuously, so that they have a derivative."""
    return bool(aval.to_tangent().dtype != dtypes.float0)


def cotangent_aval(aval: ShapedArray) -> ShapedArray:
    """The type that an exported derivative takes and returns for cotangents of `aval`."""
    if is_differentiable(aval):
        return aval.to_tangent().strip_weak_type()
    return ShapedArray(aval.shape, np.dtype(np.bool_))
