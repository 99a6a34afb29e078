"""Activation functions: elementwise functions of one array.

Each is one compiled program when called on concrete arrays. Builds on `lax`, so that a traced activation is no more
operations than its formula has; those with an array-like parameter build on `numpy`. Called by models and `nnx`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core.aval import aval_of
from phalanx.core.errors import ShapeError
from phalanx.custom_derivatives import custom_jvp
from phalanx.nn.operands import dim_of, inexact
from phalanx.runtime.dispatch import eager_program


def _where(condition: Any, x: Any, y: Any) -> Any:
    """Elementwise choice in which the branches may be Python numbers."""
    like = x if hasattr(x, "dtype") else y
    shape, dtype = aval_of(condition).shape, aval_of(like).dtype
    x, y = (v if hasattr(v, "dtype") else lax.full(shape, v, dtype) for v in (x, y))
    return lax.select(condition, x, y)


def _is(compare: Any, x: Any, bound: float) -> Any:
    """Whether `x` compares so with a bound; complex numbers are ordered as `lax.max` does it."""
    if aval_of(x).dtype.kind != "c":
        return compare(x, bound)
    extreme = (lax.max if compare in (lax.gt, lax.ge) else lax.min)(x, bound)
    return lax.ne(extreme, bound) if compare in (lax.gt, lax.lt) else lax.eq(extreme, x)


def _clipped(x: Any, low: float, high: float | None) -> Any:
    """`x` kept within bounds; only what lies between them has a derivative: neither they nor NaN have one."""
    inside, still = _is(lax.gt, x, low), lax.max(lax.stop_gradient(x), low)
    if high is not None:
        inside, still = lax.bitwise_and(inside, _is(lax.lt, x, high)), lax.min(still, high)
    return _where(inside, x, still)


def _number(x: Any) -> Any:
    """`x` as an array; booleans are counted."""
    x = identity(x)
    return lax.convert_element_type(x, np.int32) if x.dtype == np.bool_ else x


@eager_program
def identity(x: Any) -> Any:
    """The argument itself, as an array.

    Args:
      x: an array or a number.

    Returns:
      `x`.

    Examples:
      >>> from phalanx import nn
      >>> float(nn.identity(2.0))
      2.0
    """
    return x if hasattr(x, "aval") else lax.convert_element_type(x, aval_of(x).dtype)


@eager_program
def relu(x: Any) -> Any:
    """Rectified linear unit: max(x, 0), with derivative 0 at 0.

    Args:
      x: real[*s].

    Returns:
      The larger one of `x` and 0.

    Examples:
      >>> import numpy as np
      >>> from phalanx import nn
      >>> nn.relu(np.array([-1.0, 2.0])).tolist()
      [0.0, 2.0]
    """
    return _clipped(_number(x), 0, None)


@eager_program
def relu6(x: Any) -> Any:
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
    return _clipped(inexact(x), 0, 6)


@eager_program
def sigmoid(x: Any) -> Any:
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
    return lax.logistic(inexact(x))


@custom_jvp
def _softplus(x: Any) -> Any:
    # The larger one of x and 0 is split off, so that the exponential does not overflow.
    larger = lax.max(x, 0)
    apart = lax.neg(lax.abs(x)) if x.dtype.kind != "c" else lax.sub(lax.min(x, 0), larger)
    return lax.add(larger, lax.log1p(lax.exp(apart)))


@_softplus.defjvp
def _softplus_jvp(primals: tuple, tangents: tuple) -> tuple:
    (x,), (x_dot,) = primals, tangents
    return _softplus(x), lax.mul(x_dot, lax.logistic(x))


@eager_program
def softplus(x: Any) -> Any:
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
    return _softplus(inexact(x))


@eager_program
def sparse_plus(x: Any) -> Any:
    """Smooth rectifier that is exactly 0 below -1 and `x` above 1: (x + 1)^2 / 4 between.

    Args:
      x: real[*s].

    Returns:
      Values that are not negative.

    Examples:
      >>> import numpy as np
      >>> from phalanx import nn
      >>> nn.sparse_plus(np.array([-2.0, 0.0, 2.0])).tolist()
      [0.0, 0.25, 2.0]
    """
    x = inexact(x)
    middle = lax.mul(lax.square(lax.add(x, 1)), 0.25)
    return _where(_is(lax.le, x, -1), 0, _where(_is(lax.ge, x, 1), x, middle))


@eager_program
def sparse_sigmoid(x: Any) -> Any:
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
    return lax.mul(lax.min(lax.max(lax.add(inexact(x), 1), 0), 2), 0.5)


@eager_program
def soft_sign(x: Any) -> Any:
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
    x = inexact(x)
    return lax.div(x, lax.convert_element_type(lax.add(lax.abs(x), 1), x.dtype))


@eager_program
def silu(x: Any) -> Any:
    """Sigmoid-weighted linear unit: x sigmoid(x); also known as swish.

    Args:
      x: num[*s].

    Returns:
      The products.

    Examples:
      >>> from phalanx import nn
      >>> float(nn.silu(0.0))
      0.0
    """
    x = inexact(x)
    return lax.mul(x, lax.logistic(x))


swish = silu


@eager_program
def mish(x: Any) -> Any:
    """Self-gated smooth unit: x tanh(softplus(x)).

    Args:
      x: real[*s].

    Returns:
      The products.

    Examples:
      >>> from phalanx import nn
      >>> float(nn.mish(0.0))
      0.0

    Source: D. Misra (2019), arXiv:1908.08681.
    """
    x = inexact(x)
    return lax.mul(x, lax.tanh(_softplus(x)))


@eager_program
def log_sigmoid(x: Any) -> Any:
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
    return lax.neg(_softplus(lax.neg(inexact(x))))


@eager_program
def elu(x: Any, alpha: Any = 1.0) -> Any:
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
    from phalanx import numpy as jnp

    x = inexact(x)
    above = _is(lax.gt, x, 0)
    # The branch that is not taken stays finite, or its derivative would be NaN.
    return jnp.where(above, x, alpha * lax.expm1(_where(above, 0, x)))


@eager_program
def celu(x: Any, alpha: Any = 1.0) -> Any:
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
    x = inexact(x)
    return lax.max(x, 0) + alpha * lax.expm1(lax.min(x, 0) / alpha)


_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


@eager_program
def selu(x: Any) -> Any:
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


@eager_program(static_argnames=("approximate",))
def gelu(x: Any, approximate: bool = True) -> Any:
    """Gaussian error linear unit: x times the chance that a normal number is below x.

    Args:
      x: real[*s].
      approximate: use the formula with tanh instead of the error function.

    Returns:
      The products.

    Examples:
      >>> from phalanx import nn
      >>> round(float(nn.gelu(1.0, approximate=False)), 4)
      0.8413

    Source: D. Hendrycks and K. Gimpel (2016), arXiv:1606.08415.
    """
    x = inexact(x)
    if approximate:
        inner = lax.mul(math.sqrt(2 / math.pi), lax.add(x, lax.mul(0.044715, lax.integer_pow(x, 3))))
        return lax.mul(x, lax.mul(0.5, lax.add(1, lax.tanh(inner))))
    return lax.mul(lax.mul(0.5, x), lax.erfc(lax.mul(-math.sqrt(0.5), x)))


@eager_program(static_argnames=("axis",))
def glu(x: Any, axis: int = -1) -> Any:
    """Gated linear unit: the first half times the sigmoid of the second.

    Args:
      x: real[*s].
      axis: the axis that is halved.

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
    x = inexact(x)
    shape = aval_of(x).shape
    dim = dim_of("nn.glu", axis, len(shape))
    half = shape[dim] // 2
    if 2 * half != shape[dim]:
        raise ShapeError("nn.glu operand", expected=f"an even size along axis {axis}", got=aval_of(x).str_short(),
                         mend="pad or slice it, or choose another axis")  # fmt: skip
    first, second = (lax.slice_in_dim(x, s, s + half, axis=dim) for s in (0, half))
    return lax.mul(first, lax.logistic(second))


@eager_program
def leaky_relu(x: Any, negative_slope: Any = 1e-2) -> Any:
    """Rectifier that leaks: x above 0, negative_slope x below.

    Args:
      x: real[*s].
      negative_slope: the slope below 0, an array or a number.

    Returns:
      The values.

    Examples:
      >>> import numpy as np
      >>> from phalanx import nn
      >>> nn.leaky_relu(np.array([-2.0, 2.0]), 0.5).tolist()
      [-1.0, 2.0]
    """
    from phalanx import numpy as jnp

    x = inexact(x)
    return jnp.where(_is(lax.ge, x, 0), x, negative_slope * x)


@eager_program
def hard_tanh(x: Any) -> Any:
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
    x = _number(x)
    above = x if x.dtype.kind == "u" else _where(_is(lax.lt, x, -1), -1, x)
    return _where(_is(lax.gt, x, 1), 1, above)


@eager_program
def hard_sigmoid(x: Any) -> Any:
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
    return lax.div(_clipped(lax.add(inexact(x), 3), 0, 6), 6)


@eager_program
def hard_silu(x: Any) -> Any:
    """Piecewise quadratic silu: x hard_sigmoid(x); also known as hard swish.

    Args:
      x: real[*s].

    Returns:
      The products.

    Examples:
      >>> from phalanx import nn
      >>> float(nn.hard_silu(3.0))
      3.0
    """
    x = inexact(x)
    return lax.mul(x, hard_sigmoid(x))


hard_swish = hard_silu


@eager_program
def squareplus(x: Any, b: Any = 4) -> Any:
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
    x = inexact(x)
    return (x + lax.sqrt(lax.square(x) + b)) / 2


@eager_program
def tanh(x: Any, /) -> Any:
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
    return lax.tanh(inexact(x))


@eager_program
def log1mexp(x: Any) -> Any:
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
    x = inexact(x)
    small = _is(lax.lt, x, math.log(2))
    # Each branch sees numbers of its own range only, or its derivative would be NaN.
    near, far = _where(small, x, 1.0), _where(small, 1.0, x)
    return lax.select(small, lax.log(lax.neg(lax.expm1(lax.neg(near)))), lax.log1p(lax.neg(lax.exp(lax.neg(far)))))
