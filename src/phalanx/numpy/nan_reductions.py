"""Reductions that leave NaN out: nansum, nanmax, nanmean and their like.

Built on `reductions`: NaN is replaced by the neutral element, or masked.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.numpy import reductions
from phalanx.numpy.bodies import choose, isnan
from phalanx.numpy.operands import canonical_axes, cast, operand, refuse_out, scalar_of
from phalanx.runtime.dispatch import eager_program

_static = eager_program(static_argnames=("axis", "dtype", "out", "keepdims", "ddof"))


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
def nanmax(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Any:
    """The largest element that is not NaN.

    Args:
      a, axis, out, keepdims, initial, where: as in `max`; `where` needs no `initial`.

    Returns:
      The largest elements, without the axes; NaN where all are and neither `initial` nor `where` is given.

    Raises:
      ArgumentError: `out` is given.
      AxisError: there is no such axis.
      ShapeError: there are no elements and neither `initial` nor `where`.

    Examples:
      >>> jnp.nanmax(jnp.array([1.0, jnp.nan, 3.0])).item()
      3.0
    """
    return _extreme("nanmax", a, axis, out, keepdims, initial, where)


@_static
def nanmin(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Any:
    """The smallest element that is not NaN.

    Args:
      a, axis, out, keepdims, initial, where: as in `min`; `where` needs no `initial`.

    Returns:
      The smallest elements, without the axes; NaN where all are and neither `initial` nor `where` is given.

    Raises:
      ArgumentError: `out` is given.
      AxisError: there is no such axis.
      ShapeError: there are no elements and neither `initial` nor `where`.

    Examples:
      >>> jnp.nanmin(jnp.array([1.0, jnp.nan, 3.0])).item()
      1.0
    """
    return _extreme("nanmin", a, axis, out, keepdims, initial, where)


@_static
def nansum(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
    where: Any = None,
) -> Any:  # fmt: skip
    """The sum, with NaN as 0.

    Args:
      a, axis, dtype, out, keepdims, initial, where: as in `sum`.

    Returns:
      The sums, without the axes.

    Raises:
      ArgumentError: `out` is given.
      AxisError: there is no such axis.

    Examples:
      >>> jnp.nansum(jnp.array([1.0, jnp.nan, 3.0])).item()
      4.0
    """
    x, nan = _prepared(a, "nansum")
    return reductions.sum(_filled(x, nan, 0), axis, dtype, out, keepdims, initial, where)


@_static
def nanprod(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
    where: Any = None,
) -> Any:  # fmt: skip
    """The product, with NaN as 1.

    Args:
      a, axis, dtype, out, keepdims, initial, where: as in `prod`.

    Returns:
      The products, without the axes.

    Raises:
      ArgumentError: `out` is given.
      AxisError: there is no such axis.

    Examples:
      >>> jnp.nanprod(jnp.array([2.0, jnp.nan, 3.0])).item()
      6.0
    """
    x, nan = _prepared(a, "nanprod")
    return reductions.prod(_filled(x, nan, 1), axis, dtype, out, keepdims, initial, where)


def _present(nan: Any, where: Any) -> Any:
    present = lax.not_p(nan)
    return present if where is None else present & where


@_static
def nanmean(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, where: Any = None
) -> Any:
    """The mean of the elements that are not NaN.

    Args:
      a, axis, dtype, out, keepdims, where: as in `mean`.

    Returns:
      The means, without the axes; NaN where all are.

    Raises:
      ArgumentError: `out` is given.
      AxisError: there is no such axis.

    Examples:
      >>> jnp.nanmean(jnp.array([1.0, jnp.nan, 3.0])).item()
      2.0
    """
    x, nan = _prepared(a, "nanmean")
    if nan is None:
        return reductions.mean(x, axis, dtype, out, keepdims, where=where)
    return reductions.mean(x, axis, dtype, out, keepdims, where=_present(nan, where))


@_static
def nanvar(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: Any = 0, keepdims: bool = False,
    where: Any = None, mean: Any = None,
) -> Any:  # fmt: skip
    """The variance of the elements that are not NaN.

    Args:
      a, axis, dtype, out, ddof, keepdims, where, mean: as in `var`.

    Returns:
      The variances, without the axes; NaN where there are no more numbers than `ddof`.

    Raises:
      ArgumentError: `out` is given.
      AxisError: there is no such axis.

    Examples:
      >>> jnp.nanvar(jnp.array([1.0, jnp.nan, 3.0])).item()
      1.0
    """
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
def nanstd(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: Any = 0, keepdims: bool = False,
    where: Any = None, mean: Any = None,
) -> Any:  # fmt: skip
    """The standard deviation of the elements that are not NaN.

    Args:
      a, axis, dtype, out, ddof, keepdims, where, mean: as in `var`.

    Returns:
      The standard deviations, without the axes; NaN where there are no more numbers than `ddof`.

    Raises:
      ArgumentError: `out` is given.
      AxisError: there is no such axis.

    Examples:
      >>> jnp.nanstd(jnp.array([1.0, jnp.nan, 3.0])).item()
      1.0
    """
    return lax.sqrt(nanvar(a, axis, dtype, out, ddof, keepdims, where, mean))


@_static
def nancumsum(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
    """The cumulative sum, with NaN as 0.

    Args:
      a, axis, dtype, out: as in `cumsum`.

    Returns:
      An array of the shape of `a`, or a vector where no axis is given.

    Raises:
      ArgumentError: `out` is given.
      AxisError: there is no such axis.

    Examples:
      >>> jnp.nancumsum(jnp.array([1.0, jnp.nan, 3.0])).tolist()
      [1.0, 1.0, 4.0]
    """
    x, nan = _prepared(a, "nancumsum")
    return reductions.cumsum(_filled(x, nan, 0), axis, dtype, out)


@_static
def nancumprod(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
    """The cumulative product, with NaN as 1.

    Args:
      a, axis, dtype, out: as in `cumprod`.

    Returns:
      An array of the shape of `a`, or a vector where no axis is given.

    Raises:
      ArgumentError: `out` is given.
      AxisError: there is no such axis.

    Examples:
      >>> jnp.nancumprod(jnp.array([2.0, jnp.nan, 3.0])).tolist()
      [2.0, 2.0, 6.0]
    """
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
def nanargmax(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Any:
    """The position of the largest element that is not NaN, -1 where all are.

    Args:
      a, axis, out, keepdims: as in `argmax`.

    Returns:
      Positions in the default integer dtype, without the axis.

    Raises:
      ArgumentError: `out` is given.
      AxisError: there is no such axis.
      ShapeError: there are no elements.

    Examples:
      >>> jnp.nanargmax(jnp.array([1.0, jnp.nan, 3.0])).item()
      2
    """
    return _arg("nanargmax", a, axis, out, keepdims)


@_static
def nanargmin(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Any:
    """The position of the smallest element that is not NaN, -1 where all are.

    Args:
      a, axis, out, keepdims: as in `argmin`.

    Returns:
      Positions in the default integer dtype, without the axis.

    Raises:
      ArgumentError: `out` is given.
      AxisError: there is no such axis.
      ShapeError: there are no elements.

    Examples:
      >>> jnp.nanargmin(jnp.array([jnp.nan, 1.0, 3.0])).item()
      1
    """
    return _arg("nanargmin", a, axis, out, keepdims)
