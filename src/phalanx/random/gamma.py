"""The gamma distribution and the distributions derived from it: beta, Dirichlet, chi-square, F, Student's t, ball.

Gamma samples are drawn by rejection (Marsaglia and Tsang 2000), see `rejection_sampling`. Samples are kept as
logarithms, since for a small shape parameter they underflow. The derivative with respect to the shape parameter is
implicit: the value of the cumulative distribution function is held fixed while the parameter changes. Builds on
`uniform` and `continuous`.
"""

from __future__ import annotations

import numpy as np

from phalanx import lax
from phalanx.core import ShapeError, Undefined, dtypes, get_aval
from phalanx.custom_rules import custom_jvp
from phalanx.lax.shape import broadcast_to_shape
from phalanx.random.continuous import standard_exponential, standard_normal
from phalanx.random.distribution_parameters import (
    as_dtype,
    broadcast_parameters,
    distribution,
    float_dtype,
    real_distribution,
    split_key,
)
from phalanx.random.rejection_sampling import RejectionLoop, SampleShape, sample_until_accepted
from phalanx.random.uniform import uniform_unit
from phalanx.typing import Array, ArrayLike, DTypeLike, PRNGKey, Shape, ShardingLike


class GammaRounds(RejectionLoop, name="random_gamma_rounds"):
    """The logarithm of v = (1 + c x)^3, where d v is a gamma sample of the shape parameter d + 1/3.

    The parameters are d, c = 1 / (3 sqrt(d)), the values of the elements that never draw, and a mask of them.
    """

    jvp = Undefined("samples are differentiated with their distribution function held fixed, by `_log_gamma`")

    def draw(self, key: Array, at: SampleShape, d: Array, c: Array, start: Array, is_done: Array) -> Array:
        return sample_until_accepted(key, lambda key: _propose(key, at, d, c), start, is_done)


gamma_rounds_p = GammaRounds()


def _propose(key: Array, at: SampleShape, d: Array, c: Array) -> tuple[Array, Array]:
    """One round of Marsaglia and Tsang: whether each proposal is accepted, and log v."""
    key_x, key_u = split_key(key, 2)
    dtype = d.dtype
    x = standard_normal(key_x, at, dtype)
    base = lax.add(lax.mul(c, x), dtype.type(1))
    is_positive = lax.gt(base, dtype.type(0))
    log_v = lax.mul(lax.log(lax.select(is_positive, base, lax.full_like(base, 1))), dtype.type(3))
    v = lax.exp(log_v)
    # Accept if log u < x^2 / 2 + d - d v + d log v; -log u is exponential.
    bound = lax.add(lax.mul(lax.square(x), dtype.type(0.5)), lax.mul(d, lax.add(lax.sub(dtype.type(1), v), log_v)))
    # An exponential number in place of -log(u) avoids the logarithm of a u of 0.
    is_below = lax.lt(lax.neg(standard_exponential(key_u, at, dtype)), bound)
    return lax.bitwise_and(is_positive, is_below), log_v


@custom_jvp
def _log_gamma(key: Array, a: Array) -> Array:
    """Draw logarithms of gamma samples: Marsaglia and Tsang (2000), doi:10.1145/358407.358414."""
    dtype, shape = a.dtype, a.shape
    key_rounds, key_boost = split_key(key, 2)
    one = dtype.type(1)
    is_small = lax.lt(a, one)
    # The method needs a >= 1. Below, a sample for a + 1 times u^(1 / a) is a sample for a.
    d = lax.sub(lax.select(is_small, lax.add(a, one), a), dtype.type(1 / 3))
    c = lax.div(dtype.type(1 / 3), lax.sqrt(d))
    # A parameter that is not positive gives NaN and an infinite one infinity, both without a draw.
    is_positive = lax.gt(a, dtype.type(0))
    is_finite = lax.lt(a, dtype.type(np.inf))
    start = lax.select(is_positive, lax.full_like(a, 0), lax.full_like(a, np.nan))
    is_done = lax.bitwise_not(lax.bitwise_and(is_positive, is_finite))
    log_v = gamma_rounds_p.sample(key_rounds, d, c, start, is_done)
    log_boost = lax.div(lax.neg(standard_exponential(key_boost, shape, dtype)), a)
    log_boost = lax.select(is_small, log_boost, lax.full_like(a, 0))
    return lax.add(lax.add(lax.log(d), log_v), log_boost)


@_log_gamma.defjvp
def _log_gamma_jvp(primals: tuple, tangents: tuple) -> tuple:
    key, a = primals
    y = _log_gamma(key, a)
    x = lax.exp(y)
    tiny = a.dtype.type(dtypes.finfo(a.dtype).tiny)
    is_tiny = lax.lt(x, tiny)
    slope = lax.div(lax.random_gamma_grad(a, lax.select(is_tiny, lax.full_like(x, 1), x)), lax.max(x, tiny))
    # Near 0 the distribution function is x^a / gamma(a + 1), so that dy/da = (digamma(a + 1) - y) / a.
    limit = lax.div(lax.sub(lax.digamma(lax.add(a, a.dtype.type(1))), y), a)
    return y, lax.mul(lax.select(is_tiny, limit, slope), tangents[1])


def log_gamma_samples(key: Array, a: Array) -> Array:
    """Draw the logarithm of a gamma sample for each element of `a`, in float32 at least."""
    if dtypes.itemsize_bits(a.dtype) < 32:
        return lax.convert_element_type(_log_gamma(key, lax.convert_element_type(a, np.dtype(np.float32))), a.dtype)
    return _log_gamma(key, a)


@real_distribution(2.0, a="the shape parameter, with respect to which the result is differentiable")
def gamma(
    key: PRNGKey,
    a: ArrayLike,
    shape: Shape | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Samples of the gamma distribution: density x^(a - 1) exp(-x) / gamma(a) for x > 0."""
    return lax.exp(log_gamma_samples(key, a))


@real_distribution(1e-6, a="the shape parameter, with respect to which the result is differentiable")
def loggamma(
    key: PRNGKey,
    a: ArrayLike,
    shape: Shape | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Logarithms of gamma samples, accurate also where the samples underflow."""
    return log_gamma_samples(key, a)


@real_distribution(2.0, 3.0, a="the first shape parameter", b="the second shape parameter")
def beta(
    key: PRNGKey,
    a: ArrayLike,
    b: ArrayLike,
    shape: Shape | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Samples of the beta distribution: density proportional to x^(a - 1) (1 - x)^(b - 1) on [0, 1]."""
    # A / (A + B) for gamma samples A and B, as the logistic function of log A - log B, which cannot underflow to 0 / 0.
    key_a, key_b = split_key(key, 2)
    return lax.logistic(lax.sub(log_gamma_samples(key_a, a), log_gamma_samples(key_b, b)))


@distribution(dtype=float_dtype)
def dirichlet(
    key: PRNGKey,
    alpha: ArrayLike,
    shape: Shape | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Samples of the Dirichlet distribution: vectors of positive numbers that sum to 1.

    Args:
      key: the random key.
      alpha: the concentrations, float[*batch, n].
      shape: the shape of the batch of vectors, to which the batch of `alpha` broadcasts; that batch if None.
      dtype: a floating dtype; the default floating dtype if None.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; chosen by the compiler if None.

    Returns:
      An array of shape `(*shape, n)`.

    Raises:
      ArgumentError: `dtype` is not floating.
      ShapeError: `alpha` has rank 0, or its batch does not broadcast to the shape.

    Examples:
      >>> import numpy as np
      >>> from phalanx import random
      >>> random.dirichlet(random.key(0), np.ones(3), (2,)).shape
      (2, 3)
    """
    alpha = as_dtype(alpha, dtype)
    old = get_aval(alpha).shape
    if not old:
        raise ShapeError(
            "random.dirichlet, alpha",
            expected="an array of rank 1 or more",
            got="a scalar",
            fix="pass a vector with a concentration for each component",
        )
    _, (alpha,) = broadcast_parameters("dirichlet", old if shape is None else (*shape, old[-1]), dtype, alpha=alpha)
    return _softmax(log_gamma_samples(key, alpha))


def _softmax(x: Array) -> Array:
    last = x.ndim - 1
    outer = tuple(range(last))
    peak = lax.broadcast_in_dim(lax.stop_gradient(lax.reduce_max(x, (last,))), x.shape, outer)
    powers = lax.exp(lax.sub(x, peak))
    return lax.div(powers, lax.broadcast_in_dim(lax.reduce_sum(powers, (last,)), x.shape, outer))


@real_distribution(3.0, df="the degrees of freedom")
def chisquare(
    key: PRNGKey,
    df: ArrayLike,
    shape: Shape | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Samples of the chi-square distribution: sums of squares of `df` normal numbers, for any positive `df`."""
    return lax.exp(_log_chisquare(key, df))


def _log_chisquare(key: Array, df: Array) -> Array:
    half = lax.mul(df, df.dtype.type(0.5))
    return lax.add(log_gamma_samples(key, half), df.dtype.type(np.log(2)))


@real_distribution(
    3.0, 4.0, dfnum="the degrees of freedom of the numerator", dfden="the degrees of freedom of the denominator"
)
def f(
    key: PRNGKey,
    dfnum: ArrayLike,
    dfden: ArrayLike,
    shape: Shape | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Samples of Fisher's F distribution: the ratio of two chi-square samples, each over its degrees of freedom."""
    key_num, key_den = split_key(key, 2)
    log_ratio = lax.sub(_log_chisquare(key_num, dfnum), _log_chisquare(key_den, dfden))
    return lax.mul(lax.exp(log_ratio), lax.div(dfden, dfnum))


@real_distribution(3.0, df="the degrees of freedom")
def t(
    key: PRNGKey,
    df: ArrayLike,
    shape: Shape | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Samples of Student's t distribution: a normal number over the root of a chi-square sample divided by `df`."""
    key_normal, key_gamma = split_key(key, 2)
    # sqrt(chi-square / df) in logarithms.
    scale = lax.exp(lax.mul(lax.sub(_log_chisquare(key_gamma, df), lax.log(df)), dtype.type(-0.5)))
    return lax.mul(standard_normal(key_normal, shape, dtype), scale)


@distribution(dtype=float_dtype)
def generalized_normal(
    key: PRNGKey,
    p: ArrayLike,
    shape: Shape = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Samples of the generalized normal distribution: density proportional to exp(-abs(x)^p).

    Args:
      key: the random key.
      p: the power, a number.
      shape: the shape of the result.
      dtype: a floating dtype; the default floating dtype if None.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; chosen by the compiler if None.

    Returns:
      An array of `dtype` and shape `shape`.

    Raises:
      ArgumentError: `dtype` is not floating.

    Examples:
      >>> from phalanx import random
      >>> random.generalized_normal(random.key(0), 4.0, (9,)).shape
      (9,)
    """
    return _generalized_normal(key, p, shape, dtype)


def _generalized_normal(key: Array, p: ArrayLike, shape: tuple, dtype: np.dtype) -> Array:
    key_size, key_sign = split_key(key, 2)
    power = broadcast_to_shape(lax.reciprocal(as_dtype(p, dtype)), shape)
    size = lax.exp(lax.mul(log_gamma_samples(key_size, power), power))
    return lax.select(lax.lt(uniform_unit(key_sign, shape, dtype), dtype.type(0.5)), lax.neg(size), size)


@distribution("d", dtype=float_dtype)
def ball(
    key: PRNGKey,
    d: int,
    p: ArrayLike = 2.0,
    shape: Shape = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Points distributed uniformly over the unit ball of the p-norm.

    Args:
      key: the random key.
      d: the dimension of the space.
      p: the power of the norm, a number.
      shape: the shape of the batch of points.
      dtype: a floating dtype; the default floating dtype if None.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; chosen by the compiler if None.

    Returns:
      An array of shape `(*shape, d)`.

    Raises:
      ArgumentError: `dtype` is not floating.

    Examples:
      >>> from phalanx import random
      >>> bool(((random.ball(random.key(0), 3, shape=(9,)) ** 2).sum(-1) <= 1).all())
      True

    Source: Barthe, Guedon, Mendelson and Naor (2005), doi:10.1214/009117904000000874.
    """
    key_direction, key_radius = split_key(key, 2)
    point = _generalized_normal(key_direction, p, (*shape, d), dtype)
    p = as_dtype(p, dtype)
    # A generalized normal vector, divided by the p-norm of itself extended by an exponential coordinate, is uniform.
    powers = lax.pow(lax.abs(point), broadcast_to_shape(p, point.shape))
    total = lax.add(lax.reduce_sum(powers, (len(shape),)), standard_exponential(key_radius, shape, dtype))
    norm = lax.pow(total, broadcast_to_shape(lax.reciprocal(p), shape))
    return lax.div(point, lax.broadcast_in_dim(norm, point.shape, tuple(range(len(shape)))))
