"""Images at places between their points, with the names of `scipy.ndimage`.

Builds on `numpy` and `lax`.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.errors import ArgumentError, ShapeError
from phalanx.engine.frames import guard as _guard
from phalanx.numpy.mapping import where
from phalanx.numpy.operands import as_array, broadcast_operands, cast, operand, promote_inexact
from phalanx.runtime.dispatch import eager_program

_MODES = ("constant", "nearest", "wrap", "mirror", "reflect")


def map_coordinates(input: Any, coordinates: Sequence[Any], order: int, mode: str = "constant", cval: Any = 0.0) -> Any:
    """The values of an image at given places, by interpolation.

    Args:
      input: an array of any rank.
      coordinates: for each dimension the places along it, arrays that broadcast.
      order: 0 for the nearest point, 1 for linear interpolation.
      mode: what lies outside: `"constant"` (`cval`), `"nearest"` (the border), `"wrap"` (the other side), `"mirror"` or
        `"reflect"`, which repeats the border.
      cval: the constant.

    Returns:
      Values in the shape of the coordinates and the dtype of `input`, rounded for integers.

    Raises:
      ArgumentError: there is no such mode or order.
      ShapeError: there are not as many coordinates as dimensions.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import ndimage
      >>> ndimage.map_coordinates(jnp.array([0.0, 10.0]), [jnp.array([0.25, 1.0])], order=1).tolist()
      [2.5, 10.0]
    """
    if mode not in _MODES:
        raise ArgumentError("ndimage.map_coordinates, argument mode", expected=", ".join(map(repr, _MODES)),
                            got=repr(mode), mend="use one of these")  # fmt: skip
    if order not in (0, 1):
        raise ArgumentError("ndimage.map_coordinates, argument order", expected="0 or 1", got=order,
                            mend="interpolate linearly")  # fmt: skip
    places = list(coordinates)
    if len(places) != np.ndim(input):
        raise ShapeError("ndimage.map_coordinates, argument coordinates", expected=f"{np.ndim(input)} arrays",
                         got=len(places), mend="give one for each dimension")  # fmt: skip
    return _mapped(input, places, cval, order, mode)


@eager_program(static_argnames=("order", "mode"))
def _mapped(input: Any, places: list, cval: Any, order: int, mode: str) -> Any:
    name = "ndimage.map_coordinates"
    x = as_array(operand(input, name))
    fill = cast(operand(cval, name), x.dtype)
    if not places:
        return x
    places = broadcast_operands(name, *(promote_inexact(name, operand(c, name))[0] for c in places))
    choices = [[*_taps(c, n, order, mode)] for c, n in zip(places, x.shape)]
    total: Any = None
    for corner in itertools.product(*choices):
        indices, inside, weights = zip(*corner)
        value = x[tuple(indices)]
        if mode == "constant":
            value = where(functools.reduce(operator.and_, inside), value, fill)
        product = value if order == 0 else value * functools.reduce(operator.mul, weights)
        total = product if total is None else total + product
    if dtypes.issubdtype(x.dtype, np.integer) and order:
        total = lax.round(total, lax.RoundingMethod.AWAY_FROM_ZERO)
    return cast(total, x.dtype)


def _taps(c: Any, n: int, order: int, mode: str) -> Any:
    """The points that a place is between: indices, whether they exist, and their weights."""
    if order == 0:
        i = cast(lax.round(c, lax.RoundingMethod.AWAY_FROM_ZERO), np.dtype(np.int32))
        yield _index(i, n, mode), (i >= 0) & (i < n), 1
        return
    below = lax.floor(c)
    share = c - below
    i = cast(below, np.dtype(np.int32))
    for k, weight in ((i, 1 - share), (i + 1, share)):
        yield _index(k, n, mode), (k >= 0) & (k < n), weight


def _index(i: Any, n: int, mode: str) -> Any:
    """An index that exists."""
    if mode == "wrap":
        return i % max(n, 1)
    if mode in ("mirror", "reflect"):
        repeated = mode == "reflect"  # the border
        period = max(2 * (n - 1 + repeated), 1)
        i = i % period
        return where(i >= n, period - i - repeated, i)
    return lax.clamp(np.int32(0), i, np.int32(max(n - 1, 0)))


_guard(globals())
