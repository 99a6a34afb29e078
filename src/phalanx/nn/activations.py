"""Activation functions: elementwise functions of one array.

An eager call is one compiled program. The formulas are written in `lax`, so that a traced activation has no operations
besides the formula; functions with an array-like parameter use `numpy` to broadcast it. Called by models and `nnx`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.core import ShapeError, get_aval
from phalanx.custom_rules import custom_jvp
from phalanx.nn.axis_reductions import as_inexact, resolve_dim
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import Array, ArrayLike


def activation(fun: Callable[..., Array] | None = None, *, static_argnames: Sequence[str] = ()) -> Any:
    """Make a formula of a floating array `x` an activation function.

    Integers and booleans are converted to a floating dtype first, and an eager call is one compiled program.
    """
    if fun is None:
        return functools.partial(activation, static_argnames=static_argnames)

    @functools.wraps(fun)
    def apply(x: ArrayLike, *args: Any, **kwargs: Any) -> Array:
        return fun(as_inexact(x), *args, **kwargs)

    return eager_jit(apply, static_argnames=static_argnames)


def _where(condition: Array, x: Array, y: Array) -> Any:
    """Elementwise choice in which the branches may be Python numbers."""
    like = x if hasattr(x, "dtype") else y
    shape = get_aval(condition).shape
    x, y = (v if hasattr(v, "dtype") else lax.full_like(like, v, shape=shape) for v in (x, y))
    return lax.select(condition, x, y)


def _compare(compare: Callable[..., Array], x: Array, bound: float) -> Any:
    """Compare `x` with a bound; complex numbers are ordered as by `lax.max`."""
    if get_aval(x).dtype.kind != "c":
        return compare(x, bound)
    # StableHLO has no comparison of complex numbers; x > b if max(x, b) is not b.
    extreme = (lax.max if compare in (lax.gt, lax.ge) else lax.min)(x, bound)
    return lax.ne(extreme, bound) if compare in (lax.gt, lax.lt) else lax.eq(extreme, x)


def _clip(x: Array, low: float, high: float | None) -> Any:
    """Clip `x` to bounds. The derivative is 1 strictly between the bounds, and 0 at the bounds and at NaN."""
    # The bounds are selected as constants with a zero derivative, by stop_gradient, also where x equals a bound.
    inside, still = _compare(lax.gt, x, low), lax.max(lax.stop_gradient(x), low)
    if high is not None:
        inside, still = lax.bitwise_and(inside, _compare(lax.lt, x, high)), lax.min(still, high)
    return _where(inside, x, still)


def _as_number(x: Array) -> Any:
    """Convert `x` to an array, and booleans to integers."""
    x = identity(x)
    return lax.convert_element_type(x, np.int32) if x.dtype == np.bool_ else x


@eager_jit
def identity(x: ArrayLike) -> Any:
    """Return the argument as an array.

    Args:
      x: an array or a number.

    Returns:
      `x`.

    Examples:
      >>> from phalanx import nn
      >>> float(nn.identity(2.0))
      2.0
    """
    return x if hasattr(x, "aval") else lax.convert_element_type(x, get_aval(x).dtype)


@eager_jit
def relu(x: ArrayLike) -> Any:
    """Rectified linear unit: max(x, 0), with derivative 0 at 0.

    Args:
      x: real[*s].

    Returns:
      The larger of `x` and 0.

    Examples:
      >>> import numpy as np
      >>> from phalanx import nn
      >>> nn.relu(np.array([-1.0, 2.0])).tolist()
      [0.0, 2.0]
    """
    return _clip(_as_number(x), 0, None)


@activation
def relu6(x: ArrayLike) -> Any:
    """Rectified linear unit that saturates: min(max(x, 0), 6).

    Args:
      x: real[*s].

    Returns:
      `x` clipped to [0, 6], with derivative 0 at both ends.

    Examples:
      >>> import numpy as np
      >>> from phalanx import nn
      >>> nn.relu6(np.array([-1.0, 2.0, 7.0])).tolist()
      [0.0, 2.0, 6.0]
    """
    return _clip(x, 0, 6)


@activation
def sigmoid(x: ArrayLike) -> Any:
    """Logistic function: 1 / (1 + exp(-x)).

    Args:
      x: num[*s].

    Returns:
      Values between 0 and 1.

    Examples:
      >>> from phalanx import nn
      >>> float(nn.sigmoid(0.0))
      0.5
    """
    return lax.logistic(x)


@custom_jvp
def _softplus(x: Array) -> Any:
    # log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)), whose exponential does not overflow.
    larger = lax.max(x, 0)
    apart = lax.neg(lax.abs(x)) if x.dtype.kind != "c" else lax.sub(lax.min(x, 0), larger)
    return lax.add(larger, lax.log1p(lax.exp(apart)))


@_softplus.defjvp
def _softplus_jvp(primals: tuple, tangents: tuple) -> tuple:
    (x,), (x_dot,) = primals, tangents
    x = as_inexact(x)  # The rule gets Python numbers as they are.
    return _softplus(x), lax.mul(x_dot, lax.logistic(x))


@activation
def softplus(x: ArrayLike) -> Any:
    """Smooth rectifier: log(1 + exp(x)).

    Args:
      x: real[*s].

    Returns:
      Positive values.

    Examples:
      >>> from phalanx import nn
      >>> round(float(nn.softplus(0.0)), 4)
      0.6931
    """
    return _softplus(x)


@activation
def sparse_plus(x: ArrayLike) -> Any:
    """Smooth rectifier that is exactly 0 below -1 and `x` above 1: (x + 1)^2 / 4 between.

    Args:
      x: real[*s].

    Returns:
      Non-negative values.

    Examples:
      >>> import numpy as np
      >>> from phalanx import nn
      >>> nn.sparse_plus(np.array([-2.0, 0.0, 2.0])).tolist()
      [0.0, 0.25, 2.0]
    """
    # A parabola that joins 0 at -1 and x at 1 with continuous slope.
    middle = lax.mul(lax.square(lax.add(x, 1)), 0.25)
    return _where(_compare(lax.le, x, -1), 0, _where(_compare(lax.ge, x, 1), x, middle))


@activation
def sparse_sigmoid(x: ArrayLike) -> Any:
    """The derivative of `sparse_plus`: 0 below -1, 1 above 1, linear between.

    Args:
      x: real[*s].

    Returns:
      Values in [0, 1].

    Examples:
      >>> import numpy as np
      >>> from phalanx import nn
      >>> nn.sparse_sigmoid(np.array([-2.0, 0.0, 2.0])).tolist()
      [0.0, 0.5, 1.0]
    """
    return lax.mul(lax.min(lax.max(lax.add(x, 1), 0), 2), 0.5)


@activation
def soft_sign(x: ArrayLike) -> Any:
    """Smooth sign: x / (1 + |x|).

    Args:
      x: real[*s].

    Returns:
      Values between -1 and 1.

    Examples:
      >>> from phalanx import nn
      >>> float(nn.soft_sign(1.0))
      0.5
    """
    larger = lax.add(lax.abs(x), 1)
    return lax.div(x, larger if larger.dtype == x.dtype else lax.convert_element_type(larger, x.dtype))


@activation
def silu(x: ArrayLike) -> Any:
    """Sigmoid-weighted linear unit: x sigmoid(x); also known as swish.

    Args:
      x: num[*s].

    Returns:
      An array of the shape of `x`.

    Examples:
      >>> from phalanx import nn
      >>> float(nn.silu(0.0))
      0.0
    """
    return lax.mul(x, lax.logistic(x))


swish = silu


@activation
def mish(x: ArrayLike) -> Any:
    """Self-gated smooth unit: x tanh(softplus(x)).

    Args:
      x: real[*s].

    Returns:
      An array of the shape of `x`.

    Examples:
      >>> from phalanx import nn
      >>> float(nn.mish(0.0))
      0.0

    Source: D. Misra (2019), arXiv:1908.08681.
    """
    return lax.mul(x, lax.tanh(_softplus(x)))


@activation
def log_sigmoid(x: ArrayLike) -> Any:
    """Logarithm of the logistic function: -softplus(-x).

    Args:
      x: real[*s].

    Returns:
      Negative values.

    Examples:
      >>> from phalanx import nn
      >>> round(float(nn.log_sigmoid(0.0)), 4)
      -0.6931
    """
    return lax.neg(_softplus(lax.neg(x)))


@activation
def elu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Any:
    """Exponential linear unit: x above 0, alpha (exp(x) - 1) below.

    Args:
      x: real[*s].
      alpha: the size of the negative branch, an array or a number.

    Returns:
      Values above -alpha.

    Examples:
      >>> from phalanx import nn
      >>> float(nn.elu(2.0))
      2.0

    Source: D.-A. Clevert, T. Unterthiner and S. Hochreiter (2015), arXiv:1511.07289.
    """
    above = _compare(lax.gt, x, 0)
    # The operand of the branch that is not selected is replaced: an overflow there would make the derivative NaN.
    return jnp.where(above, x, alpha * lax.expm1(_where(above, 0, x)))


@activation
def celu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Any:
    """Continuously differentiable exponential linear unit: max(x, 0) + alpha (exp(min(x, 0) / alpha) - 1).

    Args:
      x: real[*s].
      alpha: the scale of the negative branch, an array or a number.

    Returns:
      Values above -alpha.

    Examples:
      >>> from phalanx import nn
      >>> float(nn.celu(2.0))
      2.0

    Source: J. T. Barron (2017), arXiv:1704.07483.
    """
    return lax.max(x, 0) + alpha * lax.expm1(lax.min(x, 0) / alpha)


# The fixed point: activations of mean 0 and variance 1 keep both (Klambauer et al., equation 14).
_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


@eager_jit
def selu(x: ArrayLike) -> Any:
    """Self-normalising exponential linear unit: a scaled `elu`.

    Args:
      x: real[*s].

    Returns:
      Values above -1.7581.

    Examples:
      >>> from phalanx import nn
      >>> round(float(nn.selu(1.0)), 4)
      1.0507

    Source: G. Klambauer et al. (2017), arXiv:1706.02515.
    """
    return _SELU_SCALE * elu(x, _SELU_ALPHA)


@activation(static_argnames=("approximate",))
def gelu(x: ArrayLike, approximate: bool = True) -> Any:
    """Gaussian error linear unit: x times the cumulative distribution function of the normal distribution at x.

    Args:
      x: real[*s].
      approximate: use the formula with tanh instead of the error function.

    Returns:
      An array of the shape of `x`.

    Examples:
      >>> from phalanx import nn
      >>> round(float(nn.gelu(1.0, approximate=False)), 4)
      0.8413

    Source: D. Hendrycks and K. Gimpel (2016), arXiv:1606.08415.
    """
    if approximate:
        inner = lax.mul(math.sqrt(2 / math.pi), lax.add(x, lax.mul(0.044715, lax.integer_pow(x, 3))))
        return lax.mul(x, lax.mul(0.5, lax.add(1, lax.tanh(inner))))
    # x / 2 erfc(-x / sqrt(2)) rather than x / 2 (1 + erf(x / sqrt(2))), which cancels for negative x.
    return lax.mul(lax.mul(0.5, x), lax.erfc(lax.mul(-math.sqrt(0.5), x)))


@activation(static_argnames=("axis",))
def glu(x: ArrayLike, axis: int = -1) -> Any:
    """Gated linear unit: the first half times the sigmoid of the second.

    Args:
      x: real[*s].
      axis: the axis to halve.

    Returns:
      An array half as long along `axis`.

    Raises:
      ShapeError: the size along `axis` is odd.

    Examples:
      >>> import numpy as np
      >>> from phalanx import nn
      >>> nn.glu(np.array([4.0, 0.0])).tolist()
      [2.0]

    Source: Y. N. Dauphin et al. (2016), arXiv:1612.08083.
    """
    shape = get_aval(x).shape
    dim = resolve_dim("nn.glu", axis, len(shape))
    half = shape[dim] // 2
    if 2 * half != shape[dim]:
        raise ShapeError(
            "nn.glu operand",
            expected=f"an even size along axis {axis}",
            got=get_aval(x).str_short(),
            fix=f"pad or slice the operand along axis {axis}, or pass another axis",
        )
    first, second = (lax.slice_in_dim(x, s, s + half, axis=dim) for s in (0, half))
    return lax.mul(first, lax.logistic(second))


@activation
def leaky_relu(x: ArrayLike, negative_slope: ArrayLike = 1e-2) -> Any:
    """Leaky rectified linear unit: x above 0, negative_slope x below.

    Args:
      x: real[*s].
      negative_slope: the slope below 0, an array or a number.

    Returns:
      `x` where it is positive, `negative_slope * x` elsewhere.

    Examples:
      >>> import numpy as np
      >>> from phalanx import nn
      >>> nn.leaky_relu(np.array([-2.0, 2.0]), 0.5).tolist()
      [-1.0, 2.0]
    """
    return jnp.where(_compare(lax.ge, x, 0), x, negative_slope * x)


@eager_jit
def hard_tanh(x: ArrayLike) -> Any:
    """Piecewise linear tanh: x clipped to [-1, 1].

    Args:
      x: real[*s].

    Returns:
      Values in [-1, 1].

    Examples:
      >>> import numpy as np
      >>> from phalanx import nn
      >>> nn.hard_tanh(np.array([-2.0, 0.5])).tolist()
      [-1.0, 0.5]
    """
    x = _as_number(x)
    above = x if x.dtype.kind == "u" else _where(_compare(lax.lt, x, -1), -1, x)
    return _where(_compare(lax.gt, x, 1), 1, above)


@activation
def hard_sigmoid(x: ArrayLike) -> Any:
    """Piecewise linear sigmoid: relu6(x + 3) / 6.

    Args:
      x: real[*s].

    Returns:
      Values in [0, 1].

    Examples:
      >>> from phalanx import nn
      >>> float(nn.hard_sigmoid(0.0))
      0.5
    """
    return lax.div(_clip(lax.add(x, 3), 0, 6), 6)


@activation
def hard_silu(x: ArrayLike) -> Any:
    """Piecewise quadratic silu: x hard_sigmoid(x); also known as hard swish.

    Args:
      x: real[*s].

    Returns:
      An array of the shape of `x`.

    Examples:
      >>> from phalanx import nn
      >>> float(nn.hard_silu(3.0))
      3.0
    """
    return lax.mul(x, hard_sigmoid(x))


hard_swish = hard_silu


@activation
def squareplus(x: ArrayLike, b: ArrayLike = 4) -> Any:
    """Algebraic smooth rectifier: (x + sqrt(x^2 + b)) / 2.

    Args:
      x: real[*s].
      b: the smoothness, an array or a number.

    Returns:
      Positive values.

    Examples:
      >>> from phalanx import nn
      >>> float(nn.squareplus(0.0))
      1.0

    Source: J. T. Barron (2021), arXiv:2112.11687.
    """
    return (x + lax.sqrt(lax.square(x) + b)) / 2


@activation
def tanh(x: ArrayLike, /) -> Any:
    """Hyperbolic tangent.

    Args:
      x: num[*s].

    Returns:
      Values between -1 and 1.

    Examples:
      >>> from phalanx import nn
      >>> float(nn.tanh(0.0))
      0.0
    """
    return lax.tanh(x)


@activation
def log1mexp(x: ArrayLike) -> Any:
    """The logarithm of 1 - exp(-x), for positive x, without cancellation.

    Args:
      x: real[*s].

    Returns:
      Negative values.

    Examples:
      >>> from phalanx import nn
      >>> round(float(nn.log1mexp(1.0)), 4)
      -0.4587

    Source: M. Mächler, Accurately computing log(1 - exp(-|a|)) (2012).
    """
    small = _compare(lax.lt, x, math.log(2))
    # Operands outside the range of a branch are replaced, or their derivatives would be NaN.
    near, far = _where(small, x, 1.0), _where(small, 1.0, x)
    return lax.select(small, lax.log(lax.neg(lax.expm1(lax.neg(near)))), lax.log1p(lax.neg(lax.exp(lax.neg(far)))))
