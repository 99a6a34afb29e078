"""Interpolation of images, with the names of `scipy.ndimage`.

Builds on `numpy` and `lax`.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.core import ShapeError, dtypes
from phalanx.engine.public_namespace import publish as _publish
from phalanx.numpy.operands import as_array, broadcast_operands, cast, to_operand
from phalanx.runtime.eager_jit import eager_jit
from phalanx.scipy.argument_checks import check_choice, to_inexact_operands
from phalanx.typing import Array, ArrayLike

_MODES = ("constant", "nearest", "wrap", "mirror", "reflect")


@eager_jit(static_argnames=("order", "mode"))
def map_coordinates(
    input: ArrayLike, coordinates: Sequence[Any], order: int, mode: str = "constant", cval: ArrayLike = 0.0
) -> Array:
    """Interpolate an array at given coordinates.

    Args:
      input: an array of any rank.
      coordinates: the coordinates along each dimension, arrays that broadcast.
      order: 0 for nearest-neighbor interpolation, 1 for linear interpolation.
      mode: the values outside of the array: `"constant"` (`cval`), `"nearest"` (the border), `"wrap"` (periodic),
        `"mirror"`, or `"reflect"`, which repeats the border.
      cval: the value outside of the array for `"constant"`.

    Returns:
      The values, in the shape of the coordinates and the dtype of `input`; integers are rounded.

    Raises:
      ArgumentError: `mode` or `order` is unknown.
      ShapeError: the number of coordinate arrays differs from the number of dimensions.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import ndimage
      >>> ndimage.map_coordinates(jnp.array([0.0, 10.0]), [jnp.array([0.25, 1.0])], order=1).tolist()
      [2.5, 10.0]
    """
    name = "ndimage.map_coordinates"
    check_choice(name, "mode", mode, _MODES)
    check_choice(name, "order", order, (0, 1))
    places = list(coordinates)
    if len(places) != np.ndim(input):
        raise ShapeError(
            f"{name}, argument coordinates",
            expected=f"{np.ndim(input)} arrays",
            got=len(places),
            fix="pass one array of coordinates for each dimension of input",
        )
    x = as_array(to_operand(input, name))
    fill = cast(to_operand(cval, name), x.dtype)
    if not places:
        return x
    places = broadcast_operands(name, *(to_inexact_operands(name, c)[0] for c in places))
    neighbors = [[*_neighbors(c, n, order, mode)] for c, n in zip(places, x.shape)]
    total: Any = None
    # The corners of the cell around each point: one neighbor per dimension, with the product of their weights.
    for corner in itertools.product(*neighbors):
        indices, inside, weights = zip(*corner)
        value = x[tuple(indices)]
        if mode == "constant":
            value = jnp.where(functools.reduce(operator.and_, inside), value, fill)
        product = value if order == 0 else value * functools.reduce(operator.mul, weights)
        total = product if total is None else total + product
    # SciPy rounds half away from zero, and not to even.
    if dtypes.issubdtype(x.dtype, np.integer) and order:
        total = lax.round(total, lax.RoundingMethod.AWAY_FROM_ZERO)
    return cast(total, x.dtype)


def _neighbors(c: Array, n: int, order: int, mode: str) -> Any:
    """The neighbors of a coordinate: for each its index, whether it is inside of the array, and its weight."""
    start = lax.floor(c) if order else lax.round(c, lax.RoundingMethod.AWAY_FROM_ZERO)
    i = cast(start, np.dtype(np.int32))
    for neighbor, weight in ((i, 1 - (c - start)), (i + 1, c - start)) if order else ((i, 1),):
        yield _wrap_index(neighbor, n, mode), (neighbor >= 0) & (neighbor < n), weight


def _wrap_index(i: Array, n: int, mode: str) -> Any:
    """Map an index into the range of the dimension, as `mode` prescribes."""
    if mode == "wrap":
        return i % max(n, 1)
    if mode in ("mirror", "reflect"):
        repeated = mode == "reflect"  # the border
        # Reflection is periodic: an index is reduced to one period and then mirrored if it is in its second half.
        period = max(2 * (n - 1 + repeated), 1)
        i = i % period
        return jnp.where(i >= n, period - i - repeated, i)
    return lax.clamp(np.int32(0), i, np.int32(max(n - 1, 0)))


__getattr__, __dir__ = _publish(globals())
