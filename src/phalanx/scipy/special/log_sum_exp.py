"""`logsumexp` and `softmax`, computed without overflow.

Builds on the reductions of `numpy`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.lax.collectives.named_axes import split_axis_names
from phalanx.numpy.operands import broadcast_operands, canonical_axes, cast
from phalanx.numpy.ufuncs.ufunc_implementations import select_where
from phalanx.runtime.eager_jit import eager_jit
from phalanx.scipy.argument_checks import to_inexact_array, to_inexact_operands
from phalanx.typing import Array, ArrayLike, Axis


@eager_jit(static_argnames=("axis", "keepdims", "return_sign"))
def logsumexp(
    a: ArrayLike,
    axis: Axis = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: ArrayLike | None = None,
) -> Any:
    """log(sum(exp(a))) along axes, without overflow.

    Args:
      a: the exponents.
      axis: an axis, a tuple of axes, or None for all; names of mapped axes are allowed.
      b: factors of the exponentials.
      keepdims: whether to keep the reduced dimensions with size 1.
      return_sign: whether to return the logarithm of the magnitude of the sum and its sign.
      where: the elements to include.

    Returns:
      The logarithm of the sum; with `return_sign` also its sign.

    Raises:
      AxisError: the axis is out of bounds.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import special
      >>> round(special.logsumexp(jnp.array([1000.0, 1000.0])).item(), 3)
      1000.693
    """
    x, *factors = to_inexact_operands("logsumexp", *(v for v in (a, b) if v is not None))
    if factors:
        x, factor = broadcast_operands("logsumexp", x, factors[0])
        x = select_where(factor == 0, -np.inf, x)  # the product of the factor 0 and exp(inf) would be NaN
    if where is not None:  # so that excluded elements, which may overflow, do not reach the derivative
        x = jnp.where(where, x, -np.inf)
    axis, names = split_axis_names(axis)
    axes = canonical_axes(axis, x.ndim, "logsumexp")
    over = (*axes, *names)
    initial = -np.inf if where is not None or not x.size else None
    # The shift cancels in the result, so it needs no derivative.
    real = lax.stop_gradient(lax.real(x) if x.dtype.kind == "c" else x)
    largest = jnp.max(real, axis=over, keepdims=True, where=where, initial=initial)
    # A shift of -inf or inf would make inf - inf = NaN of the largest elements.
    shift = select_where(lax.is_finite(largest), largest, 0)
    exponentials = lax.exp(jnp.subtract(x, cast(shift, x.dtype)))
    total = jnp.sum(exponentials * factor if factors else exponentials, axis=over, keepdims=True, where=where)
    sign = None
    if return_sign:
        sign, total = jnp.sign(total), cast(lax.abs(total), total.dtype)
    # A negative sum has no real logarithm; `return_sign` returns the logarithm of its magnitude.
    elif factors and x.dtype.kind != "c":
        total = select_where(total < 0, np.nan, total)
    out = lax.log(total) + cast(shift, x.dtype)
    out = lax.real(out) if return_sign and out.dtype.kind == "c" else out
    results = [v if keepdims or not axes else lax.squeeze(v, axes) for v in (out, sign) if v is not None]
    return tuple(results) if return_sign else results[0]


@eager_jit(static_argnames=("axis",))
def softmax(x: ArrayLike, axis: Axis = None) -> Array:
    """The exponentials along axes, divided by their sum.

    Args:
      x: the exponents.
      axis: an axis, a tuple of axes, or None for all.

    Returns:
      An array of the shape of `x` whose sum along the axes is 1.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import special
      >>> special.softmax(jnp.zeros(2)).tolist()
      [0.5, 0.5]
    """
    e = lax.exp(_shift_by_max(x, axis, "softmax"))
    return e / jnp.sum(e, axis=axis, keepdims=True)


@eager_jit(static_argnames=("axis",))
def log_softmax(x: ArrayLike, axis: Axis = None) -> Array:
    """The logarithm of `softmax`.

    Args:
      x: the exponents.
      axis: an axis, a tuple of axes, or None for all.

    Returns:
      An array of the shape of `x`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.scipy import special
      >>> round(special.log_softmax(jnp.zeros(2))[0].item(), 4)
      -0.6931
    """
    shifted = _shift_by_max(x, axis, "log_softmax")
    return shifted - lax.log(jnp.sum(lax.exp(shifted), axis=axis, keepdims=True))


def _shift_by_max(x: Array, axis: Axis, name: str) -> Array:
    """Subtract the largest element along axes, so that exponentials do not overflow."""
    x = to_inexact_array(name, x)
    real = lax.real(x) if x.dtype.kind == "c" else x
    largest = jnp.max(real, axis=canonical_axes(axis, x.ndim, name), keepdims=True, initial=-np.inf)
    return x - lax.stop_gradient(cast(select_where(lax.is_finite(largest), largest, 0), x.dtype))
