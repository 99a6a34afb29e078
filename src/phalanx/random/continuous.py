"""Distributions over the reals that are a function of a few uniform numbers.

Builds on `uniform`. Each is the inverse of its distribution function, or the textbook transformation named in it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.random.keys import static_shape
from phalanx.random.parameters import distribution, float_dtype, key_of, new_keys, parameters, placed, reals
from phalanx.random.uniform import between, check_mode, unit


def _scalar(x: float, dtype: Any) -> Any:
    return np.asarray(x, dtype)[()]


def standard_normal(key: Any, at: Any, dtype: Any) -> Any:
    """Numbers with mean 0 and variance 1 from a typed key, of a shape or at `Positions`."""
    if dtypes.issubdtype(dtype, np.complexfloating):
        part = dtypes.to_real_dtype(dtype)
        real, imag = (standard_normal(k, at, part) for k in new_keys(key, 2))
        return lax.div(lax.complex(real, imag), _scalar(math.sqrt(2), dtype))
    low = np.nextafter(_scalar(-1, dtype), _scalar(0, dtype))
    drawn = between(key, at, dtype, low, _scalar(1, dtype))
    return lax.mul(_scalar(math.sqrt(2), dtype), lax.erf_inv(drawn))


def standard_exponential(key: Any, at: Any, dtype: Any) -> Any:
    """Numbers of mean 1 and constant hazard from a typed key, of a shape or at `Positions`."""
    return lax.neg(lax.log1p(lax.neg(unit(key, at, dtype))))


def standard_gumbel(key: Any, shape: tuple, dtype: Any, mode: str | None = None) -> Any:
    """Numbers distributed as the greatest of many, from a typed key."""
    if mode in (None, "low"):
        tiny = _scalar(dtypes.finfo(dtype).tiny, dtype)
        return lax.neg(lax.log(lax.neg(lax.log(between(key, shape, dtype, tiny, _scalar(1, dtype))))))
    # A second number fills the digits below those of the first, so that the tail has them too.
    key_high, key_low = new_keys(key, 2)
    eps = _scalar(dtypes.finfo(dtype).eps, dtype)
    digit = lax.add(lax.mul(unit(key_low, shape, dtype), eps), _scalar(dtypes.finfo(dtype).tiny, dtype))
    survival = lax.add(unit(key_high, shape, dtype), digit)
    return lax.neg(
        lax.log(lax.neg(lax.log1p(lax.neg(lax.min(survival, _scalar(1 - dtypes.finfo(dtype).epsneg, dtype))))))
    )


@distribution()
def normal(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Normally distributed numbers with mean 0 and variance 1.

    Args:
      key: a key.
      shape: the shape of the result.
      dtype: a floating or complex dtype; the default floating one if None.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      An array of `dtype` and shape `shape`.

    Raises:
      ArgumentError: `dtype` is neither floating nor complex.

    Examples:
      >>> from phalanx import random
      >>> random.normal(random.key(0), (2, 3)).shape
      (2, 3)
    """
    key = key_of("normal", key)
    dtype = float_dtype("normal", dtype, allow_complex=True)
    return placed(standard_normal(key, static_shape("normal", shape), dtype), out_sharding)


@distribution()
def truncated_normal(
    key: Any, lower: Any, upper: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Normally distributed numbers, on condition that they lie between two bounds.

    Args:
      key: a key.
      lower: the lower bound, which broadcasts to the shape.
      upper: the upper bound, which broadcasts to the shape.
      shape: the shape of the result; that of the bounds if None.
      dtype: a floating dtype; the default one if None.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      Numbers strictly between the bounds.

    Raises:
      ArgumentError: `dtype` is not floating.
      ShapeError: a bound does not broadcast to the shape.

    Examples:
      >>> from phalanx import random
      >>> x = random.truncated_normal(random.key(0), -1.0, 2.0, (100,))
      >>> bool((x > -1).all() and (x < 2).all())
      True
    """
    key = key_of("truncated_normal", key)
    dtype = float_dtype("truncated_normal", dtype)
    shape, (lower, upper) = parameters("truncated_normal", shape, dtype, lower=lower, upper=upper)
    root2 = _scalar(math.sqrt(2), dtype)
    low, high = lax.erf(lax.div(lower, root2)), lax.erf(lax.div(upper, root2))
    drawn = lax.mul(root2, lax.erf_inv(between(key, shape, dtype, low, high)))
    infinity = _scalar(np.inf, dtype)
    inner_low = lax.nextafter(lax.stop_gradient(lower), lax.full_like(lower, infinity))
    inner_high = lax.nextafter(lax.stop_gradient(upper), lax.full_like(upper, -infinity))
    return placed(lax.clamp(inner_low, drawn, inner_high), out_sharding)


@distribution()
@reals()
def exponential(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Exponentially distributed numbers of rate 1: density exp(-x) for x >= 0."""
    key = key_of("exponential", key)
    dtype = float_dtype("exponential", dtype)
    return placed(standard_exponential(key, static_shape("exponential", shape), dtype), out_sharding)


@distribution()
def gumbel(key: Any, shape: Any = (), dtype: Any = None, mode: str | None = None, *, out_sharding: Any = None) -> Any:
    """Numbers with Gumbel's distribution: density exp(-(x + exp(-x))).

    Args:
      key: a key.
      shape: the shape of the result.
      dtype: a floating dtype; the default one if None.
      mode: "low" (the default) or "high", which gives the upper tail all its digits from twice the random bits.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      An array of `dtype` and shape `shape`.

    Raises:
      ArgumentError: `dtype` is not floating, or `mode` is neither.

    Examples:
      >>> from phalanx import random
      >>> random.gumbel(random.key(0), (3,)).shape
      (3,)
    """
    key = key_of("gumbel", key)
    dtype = float_dtype("gumbel", dtype)
    check_mode("gumbel", mode or "low")
    return placed(standard_gumbel(key, static_shape("gumbel", shape), dtype, mode), out_sharding)


@distribution()
@reals()
def laplace(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Numbers with Laplace's distribution: density exp(-abs(x)) / 2."""
    key = key_of("laplace", key)
    dtype = float_dtype("laplace", dtype)
    low = _scalar(-1 + dtypes.finfo(dtype).epsneg, dtype)
    drawn = between(key, static_shape("laplace", shape), dtype, low, _scalar(1, dtype))
    return placed(lax.mul(lax.sign(drawn), lax.log1p(lax.neg(lax.abs(drawn)))), out_sharding)


@distribution()
@reals()
def logistic(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Numbers with the logistic distribution: density exp(-x) / (1 + exp(-x))^2."""
    key = key_of("logistic", key)
    dtype = float_dtype("logistic", dtype)
    low = _scalar(dtypes.finfo(dtype).tiny, dtype)
    drawn = between(key, static_shape("logistic", shape), dtype, low, _scalar(1, dtype))
    return placed(lax.log(lax.div(drawn, lax.sub(_scalar(1, dtype), drawn))), out_sharding)


@distribution()
@reals()
def cauchy(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Numbers with Cauchy's distribution: density 1 / (pi (1 + x^2))."""
    key = key_of("cauchy", key)
    dtype = float_dtype("cauchy", dtype)
    low = _scalar(dtypes.finfo(dtype).eps, dtype)
    drawn = between(key, static_shape("cauchy", shape), dtype, low, _scalar(1, dtype))
    return placed(lax.tan(lax.mul(_scalar(math.pi, dtype), lax.sub(drawn, _scalar(0.5, dtype)))), out_sharding)


@distribution()
@reals()
def maxwell(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Lengths of normal vectors of 3 components: density sqrt(2 / pi) x^2 exp(-x^2 / 2) for x >= 0."""
    key = key_of("maxwell", key)
    dtype = float_dtype("maxwell", dtype)
    return placed(_maxwell(key, static_shape("maxwell", shape), dtype), out_sharding)


def _maxwell(key: Any, shape: tuple, dtype: Any) -> Any:
    components = standard_normal(key, (*shape, 3), dtype)
    return lax.sqrt(lax.reduce_sum(lax.square(components), (len(shape),)))


@distribution()
@reals(1.0, 2.0, loc="the centre", scale="the scale")
def double_sided_maxwell(
    key: Any, loc: Any, scale: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Maxwell-distributed numbers with a random sign, scaled and shifted."""
    key = key_of("double_sided_maxwell", key)
    dtype = float_dtype("double_sided_maxwell", dtype)
    shape, (loc, scale) = parameters("double_sided_maxwell", shape, dtype, loc=loc, scale=scale)
    key_size, key_sign = new_keys(key, 2)
    size = _maxwell(key_size, shape, dtype)
    is_positive = lax.lt(unit(key_sign, shape, dtype), _scalar(0.5, dtype))
    signed = lax.select(is_positive, size, lax.neg(size))
    return placed(lax.add(lax.mul(signed, scale), loc), out_sharding)


@distribution()
@reals(1.0, 2.0, scale="s", concentration="c")
def weibull_min(
    key: Any, scale: Any, concentration: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Numbers with Weibull's distribution: density c / s (x / s)^(c - 1) exp(-(x / s)^c) for x >= 0."""
    key = key_of("weibull_min", key)
    dtype = float_dtype("weibull_min", dtype)
    shape, (scale, power) = parameters("weibull_min", shape, dtype, scale=scale, concentration=concentration)
    drawn = standard_exponential(key, shape, dtype)
    return placed(lax.mul(lax.pow(drawn, lax.reciprocal(power)), scale), out_sharding)


@distribution()
@reals(2.0, b="the shape parameter")
def pareto(key: Any, b: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Numbers with Pareto's distribution: density b / x^(b + 1) for x >= 1."""
    key = key_of("pareto", key)
    dtype = float_dtype("pareto", dtype)
    shape, (b,) = parameters("pareto", shape, dtype, b=b)
    return placed(lax.exp(lax.div(standard_exponential(key, shape, dtype), b)), out_sharding)


@distribution()
@reals(2.0, scale="s")
def rayleigh(key: Any, scale: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Lengths of normal vectors of 2 components: density x / s^2 exp(-x^2 / (2 s^2)) for x >= 0."""
    key = key_of("rayleigh", key)
    dtype = float_dtype("rayleigh", dtype)
    shape, (scale,) = parameters("rayleigh", shape, dtype, scale=scale)
    tiny = _scalar(dtypes.finfo(dtype).tiny, dtype)
    drawn = lax.log(between(key, shape, dtype, tiny, _scalar(1, dtype)))
    return placed(lax.mul(scale, lax.sqrt(lax.mul(drawn, _scalar(-2, dtype)))), out_sharding)


@distribution()
def wald(key: Any, mean: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Numbers with Wald's (the inverse Gaussian) distribution of scale 1.

    Args:
      key: a key.
      mean: the mean, which broadcasts to the shape.
      shape: the shape of the result; that of `mean` if None.
      dtype: a floating dtype; the default one if None.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      An array of `dtype`.

    Raises:
      ArgumentError: `dtype` is not floating.
      ShapeError: `mean` does not broadcast to the shape.

    Examples:
      >>> from phalanx import random
      >>> bool((random.wald(random.key(0), 2.0, (9,)) > 0).all())
      True

    Source: Michael, Schucany and Haas (1976), doi:10.1080/00031305.1976.10479147.
    """
    key = key_of("wald", key)
    dtype = float_dtype("wald", dtype)
    shape, (mean,) = parameters("wald", shape, dtype, mean=mean)
    key_normal, key_choice = new_keys(key, 2)
    y = lax.square(standard_normal(key_normal, shape, dtype))
    # The smaller root of the quadratic, written so that nothing cancels.
    my = lax.mul(mean, y)
    root = lax.sqrt(lax.mul(my, lax.add(my, _scalar(4, dtype))))
    small = lax.div(lax.mul(mean, _scalar(2, dtype)), lax.add(lax.add(my, _scalar(2, dtype)), root))
    is_small = lax.le(unit(key_choice, shape, dtype), lax.div(mean, lax.add(mean, small)))
    return placed(lax.select(is_small, small, lax.div(lax.square(mean), small)), out_sharding)


@distribution()
def triangular(
    key: Any, left: Any, mode: Any, right: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Numbers whose density is a triangle over [left, right] with its peak at `mode`.

    Args:
      key: a key.
      left: the least value, which broadcasts to the shape.
      mode: the likeliest value, which broadcasts to the shape.
      right: the greatest value, which broadcasts to the shape.
      shape: the shape of the result; that of the parameters if None.
      dtype: a floating dtype; the default one if None.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      An array of `dtype`.

    Raises:
      ArgumentError: `dtype` is not floating.
      ShapeError: a parameter does not broadcast to the shape.

    Examples:
      >>> from phalanx import random
      >>> x = random.triangular(random.key(0), 0.0, 1.0, 4.0, (9,))
      >>> bool((x >= 0).all() and (x <= 4).all())
      True
    """
    key = key_of("triangular", key)
    dtype = float_dtype("triangular", dtype)
    shape, (left, mode, right) = parameters("triangular", shape, dtype, left=left, mode=mode, right=right)
    drawn = unit(key, shape, dtype)
    rise, fall, width = lax.sub(mode, left), lax.sub(right, mode), lax.sub(right, left)
    up = lax.add(left, lax.sqrt(lax.mul(drawn, lax.mul(width, rise))))
    down = lax.sub(right, lax.sqrt(lax.mul(lax.sub(_scalar(1, dtype), drawn), lax.mul(width, fall))))
    return placed(lax.select(lax.lt(drawn, lax.div(rise, width)), up, down), out_sharding)


@distribution()
@reals(2.0, sigma="the standard deviation of the logarithm")
def lognormal(key: Any, sigma: Any = 1.0, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Numbers whose logarithm is normally distributed with mean 0."""
    key = key_of("lognormal", key)
    dtype = float_dtype("lognormal", dtype)
    shape, (sigma,) = parameters("lognormal", shape, dtype, sigma=sigma)
    return placed(lax.exp(lax.mul(standard_normal(key, shape, dtype), sigma)), out_sharding)
