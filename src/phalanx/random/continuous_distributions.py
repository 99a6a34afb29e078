"""Continuous distributions: functions of a few uniform numbers, and the gamma family (`gamma`, `beta`, `t`, ...).

Most samplers invert the cumulative distribution function, or use the transformation named in their docstrings. Gamma
samples are drawn by rejection (Marsaglia and Tsang 2000), see `rejection_sampling`, and kept as logarithms, since they
underflow where the shape parameter is small. Their derivative with respect to the shape parameter is implicit: the
value of the cumulative distribution function is held fixed while the parameter changes. Builds on `uniform`.
"""

from __future__ import annotations

import math

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, ShapeError, Undefined, dtypes, get_aval, state
from phalanx.custom_rules import custom_jvp
from phalanx.lax.shape import broadcast_to_shape
from phalanx.random.distribution_parameters import (
    as_dtype,
    broadcast_parameters,
    distribution,
    float_dtype,
    inexact_dtype,
    real_distribution,
)
from phalanx.random.prng_keys import split_key, use_key
from phalanx.random.rejection_sampling import (
    RejectionLoop,
    SampleShape,
    any_element,
    keys_of_elements,
    sample_until_accepted,
)
from phalanx.random.uniform import check_mode, uniform_between, uniform_pair, uniform_unit
from phalanx.typing import Array, ArrayLike, DTypeLike, PRNGKey, Shape, ShardingLike


def _between(key: Array, at: SampleShape, dtype: np.dtype, low: float) -> Array:
    """Uniform numbers in [low, 1)."""
    return uniform_between(key, at, dtype, dtype.type(low), dtype.type(1))


def standard_normal(key: Array, at: SampleShape, dtype: np.dtype) -> Array:
    """Normal samples of mean 0 and variance 1, by the inverse of the error function."""
    if dtypes.issubdtype(dtype, np.complexfloating):
        part = dtypes.to_real_dtype(dtype)
        real, imag = (standard_normal(k, at, part) for k in split_key(key, 2))
        return lax.div(lax.complex(real, imag), dtype.type(math.sqrt(2)))
    # The interval is open at -1, where erf_inv is infinite.
    low = np.nextafter(dtype.type(-1), dtype.type(0))
    return lax.mul(dtype.type(math.sqrt(2)), lax.erf_inv(_between(key, at, dtype, low)))


def standard_exponential(key: Array, at: SampleShape, dtype: np.dtype) -> Array:
    """Exponential samples of mean 1."""
    return lax.neg(lax.log1p(lax.neg(uniform_unit(key, at, dtype))))


def standard_gumbel(key: Array, shape: tuple, dtype: np.dtype, mode: str | None = None) -> Array:
    """Samples of the Gumbel distribution; see `gumbel` for `mode`."""
    info = dtypes.finfo(dtype)
    if (mode or ("high" if state.context.high_dynamic_range_gumbel else "low")) == "low":
        return lax.neg(lax.log(lax.neg(lax.log(_between(key, shape, dtype, info.tiny)))))
    # A second uniform number fills the bits below a first one in [0, 1/2), so that both tails are resolved.
    high, low = uniform_pair(key, shape, dtype)
    rest = lax.mul(low, dtype.type(2.0**-info.nmant))
    least = dtype.type(max(2.0 ** -(2 * info.nmant + 1), float(info.tiny)))
    is_upper = lax.ge(high, dtype.type(0.5))
    survival = lax.select(is_upper, high, lax.add(lax.add(high, rest), least))
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
    root2 = dtype.type(math.sqrt(2))
    low, high = lax.erf(lax.div(lower, root2)), lax.erf(lax.div(upper, root2))
    # Rounding in erf and erf_inv may reach the bounds, which are excluded.
    least = lax.nextafter(lax.stop_gradient(lower), lax.full_like(lower, np.inf))
    greatest = lax.nextafter(lax.stop_gradient(upper), lax.full_like(upper, -np.inf))
    return lax.clamp(least, lax.mul(root2, lax.erf_inv(uniform_between(key, shape, dtype, low, high))), greatest)


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
      mode: "low" (the default) or "high", which resolves the upper tail fully at the cost of twice the random bits; the
        option `high_dynamic_range_gumbel` makes it the default.
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
    return lax.log(lax.div(u, lax.sub(dtype.type(1), u)))


@real_distribution()
def cauchy(
    key: PRNGKey, shape: Shape = (), dtype: DTypeLike | None = None, *, out_sharding: ShardingLike | None = None
) -> Array:
    """Samples of the Cauchy distribution: density 1 / (pi (1 + x^2))."""
    # The tangent of a uniform angle; the pole at -pi/2 is excluded.
    u = _between(key, shape, dtype, dtypes.finfo(dtype).eps)
    return lax.tan(lax.mul(dtype.type(math.pi), lax.sub(u, dtype.type(0.5))))


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
    is_positive = lax.lt(uniform_unit(key_sign, shape, dtype), dtype.type(0.5))
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
    return lax.mul(scale, lax.sqrt(lax.mul(log_u, dtype.type(-2))))


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
    root = lax.sqrt(lax.mul(my, lax.add(my, dtype.type(4))))
    small = lax.div(lax.mul(mean, dtype.type(2)), lax.add(lax.add(my, dtype.type(2)), root))
    is_small = lax.le(uniform_unit(key_choice, shape, dtype), lax.div(mean, lax.add(mean, small)))
    # The product of both roots is mean^2.
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
    down = lax.sub(right, lax.sqrt(lax.mul(lax.sub(dtype.type(1), u), lax.mul(width, fall))))
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


class GammaRounds(RejectionLoop, name="random_gamma_rounds"):
    """log v + b, where v = (1 + c x)^3 is accepted, so that d v is a gamma sample of the shape parameter d + 1/3.

    The parameters are d, c = 1 / (3 sqrt(d)), the factor 1 / a of the logarithm b of a uniform number (0 for none), the
    values of the elements that never draw, and a mask of them. Each element draws with a separate key.
    """

    jvp = Undefined("samples are differentiated with their distribution function held fixed, by `_log_gamma`")

    def draw(self, key: Array, at: SampleShape, d: Array, c: Array, boost: Array, *known: Array) -> Array:
        key, key_boost = split_key(keys_of_elements(key, at), 2)
        log_v = sample_until_accepted(key, lambda *drawn: _propose(at, d, c, *drawn), 2, *known)
        log_u = lax.neg(standard_exponential(key_boost, at, d.dtype))
        # A logarithm of 0 stays 0 times an infinite factor.
        is_zero = lax.bitwise_or(lax.eq(log_u, d.dtype.type(0)), lax.eq(boost, d.dtype.type(0)))
        return lax.add(log_v, lax.select(is_zero, lax.full_like(d, 0), lax.mul(log_u, boost)))


gamma_rounds_p = GammaRounds()


def _propose(at: SampleShape, d: Array, c: Array, key_x: Array, key_u: Array, draws: Array) -> tuple[Array, Array]:
    """One round of Marsaglia and Tsang: whether each proposal is accepted, and log v."""
    dtype = d.dtype
    one = dtype.type(1)

    def redraw(state: tuple) -> tuple:
        key, x, base = state
        key, own = split_key(key, 2)
        is_open = lax.le(base, dtype.type(0))
        drawn = standard_normal(own, at, dtype)
        x = lax.select(is_open, drawn, x)
        return key, x, lax.add(lax.mul(x, c), one)

    # Normal numbers are drawn again where 1 + c x is not positive.
    start = lax.select(draws, lax.full_like(d, -1), lax.full_like(d, 1))
    is_open = lambda state: any_element(lax.bitwise_and(draws, lax.le(state[2], dtype.type(0))))
    _, x, base = lax.while_loop(is_open, redraw, (key_x, lax.full_like(d, 0), start))
    base = lax.select(draws, base, lax.full_like(d, 1))
    square, v = lax.square(x), lax.mul(lax.square(base), base)
    u = uniform_unit(key_u, at, dtype)
    # Accept if u < 1 - 0.0331 x^4, which the exact condition implies, or log u < x^2 / 2 + d - d v + d log v.
    is_inside = lax.lt(u, lax.sub(one, lax.mul(lax.square(square), dtype.type(0.0331))))
    bound = lax.add(lax.mul(square, dtype.type(0.5)), lax.mul(d, lax.add(lax.sub(one, v), lax.log(v))))
    return lax.bitwise_or(is_inside, lax.lt(lax.log(u), bound)), lax.log(v)


@custom_jvp
def _log_gamma(key: Array, a: Array) -> Array:
    """Draw logarithms of gamma samples: Marsaglia and Tsang (2000), doi:10.1145/358407.358414."""
    dtype = a.dtype
    is_small = lax.lt(a, dtype.type(1))
    # The method needs a >= 1. Below, a sample for a + 1 times u^(1 / a) is a sample for a.
    d = lax.sub(lax.select(is_small, lax.add(a, dtype.type(1)), a), dtype.type(1 / 3))
    c = lax.div(dtype.type(1 / 3), lax.sqrt(d))
    boost = lax.select(is_small, lax.reciprocal(a), lax.full_like(a, 0))
    # A negative parameter gives NaN and an infinite one infinity, both without a draw.
    is_valid = lax.ge(a, dtype.type(0))
    start = lax.select(is_valid, lax.full_like(a, 0), lax.full_like(a, np.nan))
    is_done = lax.bitwise_not(lax.bitwise_and(is_valid, lax.lt(a, dtype.type(np.inf))))
    return lax.add(lax.log(d), gamma_rounds_p.sample(use_key(key), d, c, boost, start, is_done))


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


# The approximation adds this number to the shape parameter: it is accurate for large ones.
_BOOST = 8


def _log_gamma_approximately(key: Array, a: Array) -> Array:
    """Draw logarithms of approximate gamma samples, as a formula of a normal and a few exponential numbers.

    The cube root of a gamma sample is nearly normal (Wilson and Hilferty 1931, doi:10.1073/pnas.17.12.684). If G is a
    sample for a + n, and E_k are exponential numbers, then log G - sum E_k / (a + k) over k = 0, ..., n - 1 is the
    logarithm of a sample for a (Stuart 1962, doi:10.1093/biomet/49.3-4.564), exactly.
    """
    dtype = a.dtype
    key_base, key_boost = split_key(key, 2)
    large = lax.add(a, dtype.type(_BOOST))
    mean = lax.sub(dtype.type(1), lax.reciprocal(lax.mul(large, dtype.type(9))))
    deviation = lax.mul(lax.rsqrt(large), dtype.type(1 / 3))
    root = lax.add(mean, lax.mul(standard_normal(key_base, a.shape, dtype), deviation))
    y = lax.add(lax.log(large), lax.mul(lax.log(lax.max(root, dtype.type(dtypes.finfo(dtype).tiny))), dtype.type(3)))
    drawn = standard_exponential(key_boost, (_BOOST, *a.shape), dtype)
    for k in range(_BOOST):
        y = lax.sub(y, lax.div(lax.index_in_dim(drawn, k, keepdims=False), lax.add(a, dtype.type(k))))
    return lax.select(lax.ge(a, dtype.type(0)), y, lax.full_like(a, np.nan))


def log_gamma_samples(key: Array, a: Array, method: str = "exact") -> Array:
    """Draw the logarithm of a gamma sample for each element of `a`, in float32 at least."""
    sample = _log_gamma if method == "exact" else _log_gamma_approximately
    if dtypes.itemsize_bits(a.dtype) < 32:
        return lax.convert_element_type(sample(key, lax.convert_element_type(a, np.dtype(np.float32))), a.dtype)
    return sample(key, a)


def check_method(where: str, method: str) -> None:
    """Check the `method` argument of a distribution, the way in which it samples."""
    if method not in ("exact", "approximate"):
        raise ArgumentError(
            f"random.{where}, method",
            expected="'exact' or 'approximate'",
            got=repr(method),
            fix="pass method='exact', or 'approximate' for samples without a loop",
        )


@real_distribution(2.0, a="the shape parameter, with respect to which the result is differentiable")
def gamma(
    key: PRNGKey,
    a: ArrayLike,
    shape: Shape | None = None,
    dtype: DTypeLike | None = None,
    *,
    method: str = "exact",
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Samples of the gamma distribution: density x^(a - 1) exp(-x) / gamma(a) for x > 0."""
    check_method("gamma", method)
    return lax.exp(log_gamma_samples(key, a, method))


@real_distribution(1e-6, a="the shape parameter, with respect to which the result is differentiable")
def loggamma(
    key: PRNGKey,
    a: ArrayLike,
    shape: Shape | None = None,
    dtype: DTypeLike | None = None,
    *,
    method: str = "exact",
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Logarithms of gamma samples, accurate also where the samples underflow."""
    check_method("loggamma", method)
    return log_gamma_samples(key, a, method)


@real_distribution(2.0, 3.0, a="the first shape parameter", b="the second shape parameter")
def beta(
    key: PRNGKey,
    a: ArrayLike,
    b: ArrayLike,
    shape: Shape | None = None,
    dtype: DTypeLike | None = None,
    *,
    method: str = "exact",
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Samples of the beta distribution: density proportional to x^(a - 1) (1 - x)^(b - 1) on [0, 1]."""
    check_method("beta", method)
    # A / (A + B) for gamma samples A and B, as the logistic function of log A - log B, which cannot underflow to 0 / 0.
    key_a, key_b = split_key(key, 2)
    return lax.logistic(lax.sub(log_gamma_samples(key_a, a, method), log_gamma_samples(key_b, b, method)))


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
    # The logarithms of small gamma samples are far below 0; the shift keeps one exponential from underflowing.
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
    method: str = "exact",
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Samples of the chi-square distribution: sums of squares of `df` normal numbers, for any positive `df`."""
    check_method("chisquare", method)
    return lax.exp(_log_chisquare(key, df, method))


def _log_chisquare(key: Array, df: Array, method: str = "exact") -> Array:
    return lax.add(log_gamma_samples(key, lax.mul(df, df.dtype.type(0.5)), method), df.dtype.type(np.log(2)))


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
    key_den, key_num = split_key(key, 2)
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
    return lax.select(lax.lt(uniform_unit(key_sign, shape, dtype), dtype.type(0.5)), size, lax.neg(size))


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
