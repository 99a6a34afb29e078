"""Reductions that leave NaN out: nansum, nanmax, nanmean and their like.

Built on `reductions`: NaN is replaced by the neutral element, or masked.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.docstrings import family
from phalanx.numpy import reductions
from phalanx.numpy.bodies import choose, isnan
from phalanx.numpy.operands import canonical_axes, cast, operand, refuse_out, scalar_of
from phalanx.runtime.dispatch import eager_program

_static = eager_program(static_argnames=("axis", "dtype", "out", "keepdims", "ddof"))

_EMPTY = "\n  ShapeError: there are no elements"
_UNLESS_GIVEN = "elements, without the axes; NaN where all are and neither `initial` nor `where` is given"
_TOO_FEW = "without the axes; NaN where there are no more numbers than `ddof`"
_SHAPED = "An array of the shape of `a`, or a vector where no axis is given"
_POSITIONS = "Positions in the default integer dtype, without the axis"
_documented = family(
    """
    Args:
      {parameters}: as in `{like}`{own}.

    Returns:
      {gives}.

    Raises:
      ArgumentError: `out` is given.
      AxisError: there is no such axis.{raises}

    Examples:
      >>> jnp.{name}(jnp.array([2.0, jnp.nan, 3.0])).tolist()
      {value}
    """,
    own="",
    raises="",
)
_of_extremes = functools.partial(
    _documented, own="; `where` needs no `initial`", raises=_EMPTY + " and neither `initial` nor `where`."
)


def _prepared(a: Any, name: str) -> tuple[Any, Any]:
    """The operand, and where it is NaN (None for dtypes that have none)."""
    x = operand(a, name)
    return x, isnan(x) if dtypes.issubdtype(x.dtype, np.inexact) else None


def _filled(x: Any, nan: Any, value: Any) -> Any:
    return x if nan is None else choose(nan, scalar_of(value, x.dtype), x)


def _extreme(name: str, a: Any, axis: Any, out: Any, keepdims: bool, initial: Any, where: Any) -> Any:
    refuse_out(out, name)
    x, nan = _prepared(a, name)
    largest = name == "nanmax"
    reduce, neutral = (reductions.max, dtypes.lowest) if largest else (reductions.min, dtypes.highest)
    if where is not None and initial is None:
        initial = neutral(x.dtype)
    y = reduce(_filled(x, nan, neutral(x.dtype)), axis, keepdims=keepdims, initial=initial, where=where)
    if nan is None or initial is not None:
        return y
    return choose(reductions.all(nan, axis, keepdims=keepdims), np.nan, y)


@_static
@_of_extremes(like="max", gives=f"The largest {_UNLESS_GIVEN}", value="3.0")
def nanmax(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Any:
    """The largest element that is not NaN."""
    return _extreme("nanmax", a, axis, out, keepdims, initial, where)


@_static
@_of_extremes(like="min", gives=f"The smallest {_UNLESS_GIVEN}", value="2.0")
def nanmin(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Any:
    """The smallest element that is not NaN."""
    return _extreme("nanmin", a, axis, out, keepdims, initial, where)


@_static
@_documented(like="sum", gives="The sums, without the axes", value="5.0")
def nansum(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
    where: Any = None,
) -> Any:  # fmt: skip
    """The sum, with NaN as 0."""
    x, nan = _prepared(a, "nansum")
    return reductions.sum(_filled(x, nan, 0), axis, dtype, out, keepdims, initial, where)


@_static
@_documented(like="prod", gives="The products, without the axes", value="6.0")
def nanprod(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
    where: Any = None,
) -> Any:  # fmt: skip
    """The product, with NaN as 1."""
    x, nan = _prepared(a, "nanprod")
    return reductions.prod(_filled(x, nan, 1), axis, dtype, out, keepdims, initial, where)


def _present(nan: Any, where: Any) -> Any:
    present = lax.not_p(nan)
    return present if where is None else present & where


@_static
@_documented(like="mean", gives="The means, without the axes; NaN where all are", value="2.5")
def nanmean(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, where: Any = None
) -> Any:
    """The mean of the elements that are not NaN."""
    x, nan = _prepared(a, "nanmean")
    if nan is None:
        return reductions.mean(x, axis, dtype, out, keepdims, where=where)
    return reductions.mean(x, axis, dtype, out, keepdims, where=_present(nan, where))


@_static
@_documented(like="var", gives=f"The variances, {_TOO_FEW}", value="0.25")
def nanvar(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: Any = 0, keepdims: bool = False,
    where: Any = None, mean: Any = None,
) -> Any:  # fmt: skip
    """The variance of the elements that are not NaN."""
    x, nan = _prepared(a, "nanvar")
    if nan is None:
        return reductions.var(x, axis, dtype, out, ddof, keepdims, where=where, mean=mean)
    present = _present(nan, where)
    y = reductions.var(x, axis, dtype, out, ddof, keepdims, where=present, mean=mean)
    if not ddof:
        return y
    n = reductions.sum(cast(present, np.dtype(np.int32)), axis, keepdims=keepdims)
    return choose(n > ddof, y, np.nan)


@_static
@_documented(like="std", gives=f"The standard deviations, {_TOO_FEW}", value="0.5")
def nanstd(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: Any = 0, keepdims: bool = False,
    where: Any = None, mean: Any = None,
) -> Any:  # fmt: skip
    """The standard deviation of the elements that are not NaN."""
    return lax.sqrt(nanvar(a, axis, dtype, out, ddof, keepdims, where, mean))


@_static
@_documented(like="cumsum", gives=_SHAPED, value="[2.0, 2.0, 5.0]")
def nancumsum(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
    """The cumulative sum, with NaN as 0."""
    x, nan = _prepared(a, "nancumsum")
    return reductions.cumsum(_filled(x, nan, 0), axis, dtype, out)


@_static
@_documented(like="cumprod", gives=_SHAPED, value="[2.0, 2.0, 6.0]")
def nancumprod(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
    """The cumulative product, with NaN as 1."""
    x, nan = _prepared(a, "nancumprod")
    return reductions.cumprod(_filled(x, nan, 1), axis, dtype, out)


def _arg(name: str, a: Any, axis: int | None, out: Any, keepdims: bool | None) -> Any:
    refuse_out(out, name)
    x, nan = _prepared(a, name)
    find, fill = (reductions.argmax, dtypes.lowest) if name == "nanargmax" else (reductions.argmin, dtypes.highest)
    y = find(_filled(x, nan, fill(x.dtype)), axis, keepdims=keepdims)
    if nan is None:
        return y
    axes = canonical_axes(axis, x.ndim, name)
    return choose(reductions.all(nan, axes, keepdims=bool(keepdims)), scalar_of(-1, y.dtype), y)


@_static
@_documented(like="argmax", gives=_POSITIONS, value="2", raises=_EMPTY + ".")
def nanargmax(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Any:
    """The position of the largest element that is not NaN, -1 where all are."""
    return _arg("nanargmax", a, axis, out, keepdims)


@_static
@_documented(like="argmin", gives=_POSITIONS, value="0", raises=_EMPTY + ".")
def nanargmin(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Any:
    """The position of the smallest element that is not NaN, -1 where all are."""
    return _arg("nanargmin", a, axis, out, keepdims)
