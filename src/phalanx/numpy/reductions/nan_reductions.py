"""Reductions that ignore NaN: `nansum`, `nanmax`, `nanmean` and others, as rows of a table.

NaN is replaced by the neutral element of the reduction, or masked out by its `where` argument. There is one constructor
for each signature; a row gives the name, the reduction, its documentation, and the result for [2, nan, 3].
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.docstrings import family
from phalanx.numpy.operands import canonical_axes, cast, refuse_out, to_numpy_scalar, to_operand
from phalanx.numpy.reductions.array_reductions import all, argmax, argmin, cumprod, cumsum, max, min, prod, sum
from phalanx.numpy.reductions.moments import mean, var
from phalanx.numpy.ufuncs.ufunc_implementations import isnan, select_where
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import Array, ArrayLike, Axis, DTypeLike

_eager = eager_jit(static_argnames=("axis", "dtype", "out", "keepdims", "ddof"))
_documented = family(
    """
    Args:
      {parameters}: as in `{like}`{note}.

    Returns:
      {returns}.

    Raises:
      UnsupportedArgumentError: `out` is given.
      AxisError: an axis is out of range.{raises}

    Examples:
      >>> jnp.{name}(jnp.array([2.0, jnp.nan, 3.0])).tolist()
      {value}
    """,
    note="",
    raises="",
)


def _declare(function: Callable[..., Array], name: str, doc: str, **texts: str) -> Callable[..., Array]:
    """Give a reduction its name and its documentation, and compile its eager calls."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return _eager(_documented(like=name.removeprefix("nan"), **texts)(function))


def _find_nan(a: ArrayLike, out: None, name: str) -> tuple[Array, Array | None]:
    """The operand, and a mask of its NaNs; None for dtypes without NaN."""
    refuse_out(out, name)
    x = to_operand(a, name)
    return x, isnan(x) if dtypes.issubdtype(x.dtype, np.inexact) else None


def _replace_nan(x: Array, nan: Array | None, value: object) -> Array:
    return x if nan is None else select_where(nan, to_numpy_scalar(value, x.dtype), x)


def _extremum(name: str, reduce: Callable, neutral: Callable, doc: str, value: str) -> Callable[..., Array]:
    def reduction(
        a: ArrayLike,
        axis: Axis = None,
        out: None = None,
        keepdims: bool = False,
        initial: ArrayLike | None = None,
        where: ArrayLike | None = None,
    ) -> Array:
        x, nan = _find_nan(a, out, name)
        if where is not None and initial is None:
            initial = neutral(x.dtype)
        y = reduce(_replace_nan(x, nan, neutral(x.dtype)), axis, keepdims=keepdims, initial=initial, where=where)
        # If all elements are NaN, the reduction returns the neutral element, which is replaced by NaN. With `initial`
        # the result is that value instead.
        return y if nan is None or initial is not None else select_where(all(nan, axis, keepdims=keepdims), np.nan, y)

    return _declare(
        reduction,
        name,
        doc,
        value=value,
        returns="The extrema, with the reduced axes removed; NaN where all elements are, unless `initial` or `where` "
        "is given",
        note="; `where` does not require `initial`",
        raises="\n  ShapeError: the array is empty and neither `initial` nor `where` is given.",
    )


def _total(name: str, reduce: Callable, neutral: int, doc: str, value: str) -> Callable[..., Array]:
    def reduction(
        a: ArrayLike,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: None = None,
        keepdims: bool = False,
        initial: ArrayLike | None = None,
        where: ArrayLike | None = None,
    ) -> Array:
        return reduce(_replace_nan(*_find_nan(a, out, name), neutral), axis, dtype, None, keepdims, initial, where)

    return _declare(reduction, name, doc, value=value, returns="The results, with the reduced axes removed")


def _cumulative(name: str, accumulate: Callable, neutral: int, doc: str, value: str) -> Callable[..., Array]:
    def cumulative(a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None) -> Array:
        return accumulate(_replace_nan(*_find_nan(a, out, name), neutral), axis, dtype)

    return _declare(
        cumulative, name, doc, value=value, returns="An array of the shape of `a`; a vector if `axis` is None"
    )


def _arg_extremum(name: str, find: Callable, worst: Callable, doc: str, value: str) -> Callable[..., Array]:
    def arg_reduction(a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Array:
        x, nan = _find_nan(a, out, name)
        y = find(_replace_nan(x, nan, worst(x.dtype)), axis, keepdims=keepdims)
        if nan is None:
            return y
        all_nan = all(nan, canonical_axes(axis, x.ndim, name), keepdims=bool(keepdims))
        return select_where(all_nan, to_numpy_scalar(-1, y.dtype), y)

    return _declare(
        arg_reduction,
        name,
        doc,
        value=value,
        returns="Indices in the default integer dtype, with the axis removed",
        raises="\n  ShapeError: the array is empty.",
    )


def _include(nan: Array | None, where: ArrayLike | None) -> ArrayLike | None:
    """The `where` mask that also excludes NaN."""
    if nan is None:
        return where
    return lax.not_p(nan) if where is None else lax.not_p(nan) & where


def _nanmean(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Array:
    x, nan = _find_nan(a, out, "nanmean")
    return mean(x, axis, dtype, None, keepdims, where=_include(nan, where))


def _spread(name: str, finish: Callable[[Array], Array], doc: str, value: str) -> Callable[..., Array]:
    def reduction(
        a: ArrayLike,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: None = None,
        ddof: ArrayLike = 0,
        keepdims: bool = False,
        where: ArrayLike | None = None,
        mean: ArrayLike | None = None,
    ) -> Array:
        x, nan = _find_nan(a, out, name)
        included = _include(nan, where)
        y = var(x, axis, dtype, None, ddof, keepdims, where=included, mean=mean)
        if nan is None or not ddof:
            return finish(y)
        n = sum(cast(included, np.dtype(np.int32)), axis, keepdims=keepdims)
        return finish(select_where(n > ddof, y, np.nan))

    return _declare(
        reduction,
        name,
        doc,
        value=value,
        returns="Real numbers, with the reduced axes removed; NaN where there are at most `ddof` numbers",
    )


nanmax = _extremum("nanmax", max, dtypes.lowest, "Maximum over axes, ignoring NaN.", "3.0")
nanmin = _extremum("nanmin", min, dtypes.highest, "Minimum over axes, ignoring NaN.", "2.0")
nansum = _total("nansum", sum, 0, "Sum over axes, with NaN counted as 0.", "5.0")
nanprod = _total("nanprod", prod, 1, "Product over axes, with NaN counted as 1.", "6.0")
nancumsum = _cumulative("nancumsum", cumsum, 0, "Cumulative sum, with NaN counted as 0.", "[2.0, 2.0, 5.0]")
nancumprod = _cumulative("nancumprod", cumprod, 1, "Cumulative product, with NaN counted as 1.", "[2.0, 2.0, 6.0]")
nanargmax = _arg_extremum(
    "nanargmax", argmax, dtypes.lowest, "Index of the maximum, ignoring NaN; -1 if all are NaN.", "2"
)
nanargmin = _arg_extremum(
    "nanargmin", argmin, dtypes.highest, "Index of the minimum, ignoring NaN; -1 if all are NaN.", "0"
)
nanmean = _declare(
    _nanmean,
    "nanmean",
    "Arithmetic mean over axes, ignoring NaN.",
    value="2.5",
    returns="The means, with the reduced axes removed; NaN where all elements are",
)
nanvar = _spread("nanvar", lambda y: y, "Variance over axes, ignoring NaN.", "0.25")
nanstd = _spread("nanstd", lax.sqrt, "Standard deviation over axes, ignoring NaN.", "0.5")
