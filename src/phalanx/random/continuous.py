"""Continuous distributions that are a closed-form function of a few uniform numbers.

Each sampler inverts the cumulative distribution function, or uses the transformation named in its docstring. Builds on
`uniform`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.random.distribution_parameters import (
    distribution,
    float_dtype,
    inexact_dtype,
    real_distribution,
    split_key,
)
from phalanx.random.rejection_sampling import SampleShape
from phalanx.random.uniform import check_mode, uniform_between, uniform_unit
from phalanx.typing import Array, ArrayLike, DTypeLike, PRNGKey, Shape, ShardingLike


def _scalar(x: float, dtype: np.dtype) -> Any:
    return np.asarray(x, dtype)[()]


def _between(key: Array, at: SampleShape, dtype: np.dtype, low: float) -> Array:
    """Uniform numbers in [low, 1)."""
    return uniform_between(key, at, dtype, _scalar(low, dtype), _scalar(1, dtype))


def standard_normal(key: Array, at: SampleShape, dtype: np.dtype) -> Array:
    """Normal samples of mean 0 and variance 1, by the inverse of the error function."""
    if dtypes.issubdtype(dtype, np.complexfloating):
        part = dtypes.to_real_dtype(dtype)
        real, imag = (standard_normal(k, at, part) for k in split_key(key, 2))
        return lax.div(lax.complex(real, imag), _scalar(math.sqrt(2), dtype))
    # The interval is open at -1, where erf_inv is infinite.
    low = np.nextafter(_scalar(-1, dtype), _scalar(0, dtype))
    return lax.mul(_scalar(math.sqrt(2), dtype), lax.erf_inv(_between(key, at, dtype, low)))


def standard_exponential(key: Array, at: SampleShape, dtype: np.dtype) -> Array:
    """Exponential samples of mean 1."""
    return lax.neg(lax.log1p(lax.neg(uniform_unit(key, at, dtype))))


def standard_gumbel(key: Array, shape: tuple, dtype: np.dtype, mode: str | None = None) -> Array:
    """Samples of the Gumbel distribution; see `gumbel` for `mode`."""
    info = dtypes.finfo(dtype)
    if mode in (None, "low"):
        return lax.neg(lax.log(lax.neg(lax.log(_between(key, shape, dtype, info.tiny)))))
    # A second uniform number fills the bits below those of the first, so that the upper tail is resolved too.
    key_high, key_low = split_key(key, 2)
    fraction = lax.add(
        lax.mul(uniform_unit(key_low, shape, dtype), _scalar(info.eps, dtype)), _scalar(info.tiny, dtype)
    )
    survival = lax.min(lax.add(uniform_unit(key_high, shape, dtype), fraction), _scalar(1 - info.epsneg, dtype))
    return lax.neg(lax.log(lax.neg(lax.log1p(lax.neg(survival)))))


@distribution(dtype=inexact_dtype)
def normal(
    key: PRNGKey, shape: Shape = (), dtype: DTypeLike | None = None, *, out_sharding: ShardingLike | None = None
) -> Array:
    """Normal samples of mean 0 and variance 1.

    Args:
      key: the random key.
      shape: the shape of the result.
      dtype: a floating or complex dtype; the default floating dtype if None.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; chosen by the compiler if None.

    Returns:
      An array of `dtype` and shape `shape`.

    Raises:
      ArgumentError: `dtype` is neither floating nor complex.

    Examples:
      >>> from phalanx import random
      >>> random.normal(random.key(0), (2, 3)).shape
      (2, 3)
    """
    return standard_normal(key, shape, dtype)


@distribution(dtype=float_dtype, parameters=("lower", "upper"))
def truncated_normal(
    key: PRNGKey,
    lower: ArrayLike,
    upper: ArrayLike,
    shape: Shape | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Normal samples conditioned on the open interval (lower, upper).

    Args:
      key: the random key.
      lower: the lower bound, which broadcasts to the shape.
      upper: the upper bound, which broadcasts to the shape.
      shape: the shape of the result; the common shape of the bounds if None.
      dtype: a floating dtype; the default floating dtype if None.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; chosen by the compiler if None.

    Returns:
      Samples strictly between the bounds.

    Raises:
      ArgumentError: `dtype` is not floating.
      ShapeError: a bound does not broadcast to the shape.

    Examples:
      >>> from phalanx import random
      >>> x = random.truncated_normal(random.key(0), -1.0, 2.0, (100,))
      >>> bool((x > -1).all() and (x < 2).all())
      True
    """
    root2, infinity = _scalar(math.sqrt(2), dtype), _scalar(np.inf, dtype)
    low, high = lax.erf(lax.div(lower, root2)), lax.erf(lax.div(upper, root2))
    samples = lax.mul(root2, lax.erf_inv(uniform_between(key, shape, dtype, low, high)))
    # Rounding in erf and erf_inv may reach the bounds, which are excluded.
    least = lax.nextafter(lax.stop_gradient(lower), lax.full_like(lower, infinity))
    greatest = lax.nextafter(lax.stop_gradient(upper), lax.full_like(upper, -infinity))
    return lax.clamp(least, samples, greatest)


@real_distribution()
def exponential(
    key: PRNGKey, shape: Shape = (), dtype: DTypeLike | None = None, *, out_sharding: ShardingLike | None = None
) -> Array:
    """Samples of the exponential distribution of rate 1: density exp(-x) for x >= 0."""
    return standard_exponential(key, shape, dtype)


@distribution(dtype=float_dtype)
def gumbel(
    key: PRNGKey,
    shape: Shape = (),
    dtype: DTypeLike | None = None,
    mode: str | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Samples of the Gumbel distribution: density exp(-(x + exp(-x))).

    Args:
      key: the random key.
      shape: the shape of the result.
      dtype: a floating dtype; the default floating dtype if None.
      mode: "low" (the default) or "high", which resolves the upper tail fully at the cost of twice the random bits.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; chosen by the compiler if None.

    Returns:
      An array of `dtype` and shape `shape`.

    Raises:
      ArgumentError: `dtype` is not floating, or `mode` is neither "low" nor "high".

    Examples:
      >>> from phalanx import random
      >>> random.gumbel(random.key(0), (3,)).shape
      (3,)
    """
    check_mode("gumbel", mode or "low")
    return standard_gumbel(key, shape, dtype, mode)


@real_distribution()
def laplace(
    key: PRNGKey, shape: Shape = (), dtype: DTypeLike | None = None, *, out_sharding: ShardingLike | None = None
) -> Array:
    """Samples of the Laplace distribution: density exp(-abs(x)) / 2."""
    # u is uniform in (-1, 1): its sign is the sign of the sample, and -log(1 - |u|) its exponential size.
    u = _between(key, shape, dtype, -1 + dtypes.finfo(dtype).epsneg)
    return lax.mul(lax.sign(u), lax.log1p(lax.neg(lax.abs(u))))


@real_distribution()
def logistic(
    key: PRNGKey, shape: Shape = (), dtype: DTypeLike | None = None, *, out_sharding: ShardingLike | None = None
) -> Array:
    """Samples of the logistic distribution: density exp(-x) / (1 + exp(-x))^2."""
    # The logit of a uniform number; 0 is excluded.
    u = _between(key, shape, dtype, dtypes.finfo(dtype).tiny)
    return lax.log(lax.div(u, lax.sub(_scalar(1, dtype), u)))


@real_distribution()
def cauchy(
    key: PRNGKey, shape: Shape = (), dtype: DTypeLike | None = None, *, out_sharding: ShardingLike | None = None
) -> Array:
    """Samples of the Cauchy distribution: density 1 / (pi (1 + x^2))."""
    # The tangent of a uniform angle; the pole at -pi/2 is excluded.
    u = _between(key, shape, dtype, dtypes.finfo(dtype).eps)
    return lax.tan(lax.mul(_scalar(math.pi, dtype), lax.sub(u, _scalar(0.5, dtype))))


@real_distribution()
def maxwell(
    key: PRNGKey, shape: Shape = (), dtype: DTypeLike | None = None, *, out_sharding: ShardingLike | None = None
) -> Array:
    """Lengths of normal vectors of 3 components: density sqrt(2 / pi) x^2 exp(-x^2 / 2) for x >= 0."""
    return _maxwell(key, shape, dtype)


def _maxwell(key: Array, shape: tuple, dtype: np.dtype) -> Array:
    components = standard_normal(key, (*shape, 3), dtype)
    return lax.sqrt(lax.reduce_sum(lax.square(components), (len(shape),)))


@real_distribution(1.0, 2.0, loc="the centre", scale="the scale")
def double_sided_maxwell(
    key: PRNGKey,
    loc: ArrayLike,
    scale: ArrayLike,
    shape: Shape = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Maxwell samples with a random sign, scaled and shifted."""
    key_size, key_sign = split_key(key, 2)
    size = _maxwell(key_size, shape, dtype)
    is_positive = lax.lt(uniform_unit(key_sign, shape, dtype), _scalar(0.5, dtype))
    return lax.add(lax.mul(lax.select(is_positive, size, lax.neg(size)), scale), loc)


@real_distribution(1.0, 2.0, scale="s", concentration="c")
def weibull_min(
    key: PRNGKey,
    scale: ArrayLike,
    concentration: ArrayLike,
    shape: Shape = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Samples of the Weibull distribution: density c / s (x / s)^(c - 1) exp(-(x / s)^c) for x >= 0."""
    # If e is exponential, s e^(1 / c) has the distribution function 1 - exp(-(x / s)^c).
    return lax.mul(lax.pow(standard_exponential(key, shape, dtype), lax.reciprocal(concentration)), scale)


@real_distribution(2.0, b="the shape parameter")
def pareto(
    key: PRNGKey,
    b: ArrayLike,
    shape: Shape | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Samples of the Pareto distribution: density b / x^(b + 1) for x >= 1."""
    # The logarithm of a Pareto sample is exponential of rate b.
    return lax.exp(lax.div(standard_exponential(key, shape, dtype), b))


@real_distribution(2.0, scale="s")
def rayleigh(
    key: PRNGKey,
    scale: ArrayLike,
    shape: Shape | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Lengths of normal vectors of 2 components: density x / s^2 exp(-x^2 / (2 s^2)) for x >= 0."""
    # s sqrt(-2 log u): the inverse of the distribution function 1 - exp(-x^2 / (2 s^2)).
    log_u = lax.log(_between(key, shape, dtype, dtypes.finfo(dtype).tiny))
    return lax.mul(scale, lax.sqrt(lax.mul(log_u, _scalar(-2, dtype))))


@real_distribution(2.0, mean="the mean", source="Michael, Schucany and Haas (1976), doi:10.1080/00031305.1976.10479147")
def wald(
    key: PRNGKey,
    mean: ArrayLike,
    shape: Shape | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Samples of the Wald (inverse Gaussian) distribution of scale 1."""
    key_normal, key_choice = split_key(key, 2)
    my = lax.mul(mean, lax.square(standard_normal(key_normal, shape, dtype)))
    # The smaller root of the quadratic, written so that no terms cancel.
    root = lax.sqrt(lax.mul(my, lax.add(my, _scalar(4, dtype))))
    small = lax.div(lax.mul(mean, _scalar(2, dtype)), lax.add(lax.add(my, _scalar(2, dtype)), root))
    is_small = lax.le(uniform_unit(key_choice, shape, dtype), lax.div(mean, lax.add(mean, small)))
    return lax.select(is_small, small, lax.div(lax.square(mean), small))


@real_distribution(0.0, 1.0, 4.0, left="the least value", mode="the most likely value", right="the greatest value")
def triangular(
    key: PRNGKey,
    left: ArrayLike,
    mode: ArrayLike,
    right: ArrayLike,
    shape: Shape | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Samples whose density is a triangle over [left, right] with its peak at `mode`."""
    u = uniform_unit(key, shape, dtype)
    # The distribution function is quadratic on both sides of the mode, where it is rise / width.
    rise, fall, width = lax.sub(mode, left), lax.sub(right, mode), lax.sub(right, left)
    up = lax.add(left, lax.sqrt(lax.mul(u, lax.mul(width, rise))))
    down = lax.sub(right, lax.sqrt(lax.mul(lax.sub(_scalar(1, dtype), u), lax.mul(width, fall))))
    return lax.select(lax.lt(u, lax.div(rise, width)), up, down)


@real_distribution(2.0, sigma="the standard deviation of the logarithm")
def lognormal(
    key: PRNGKey,
    sigma: ArrayLike = 1.0,
    shape: Shape | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Samples whose logarithm is normal with mean 0."""
    return lax.exp(lax.mul(standard_normal(key, shape, dtype), sigma))
