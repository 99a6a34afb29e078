"""Discrete distributions: Poisson, geometric, binomial, multinomial, and categories by their logits.

Poisson and binomial samples are drawn by one of two methods, chosen element by element: counting waiting times where
few events are expected, and transformed rejection (Hormann 1993) elsewhere. Both are loops over all elements, see
`rejection_sampling`. Builds on `uniform` and `continuous_distributions`.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, AxisError, ShapeError, dtypes, get_aval, promotion
from phalanx.lax.shape import broadcast_to_shape
from phalanx.random.continuous_distributions import check_method, standard_gumbel, standard_normal
from phalanx.random.distribution_parameters import (
    as_dtype,
    broadcast_parameters,
    distribution,
    float_dtype,
    int_dtype,
    is_broadcastable,
)
from phalanx.random.prng_keys import random_split_p, use_key
from phalanx.random.rejection_sampling import RejectionLoop, SampleShape, count_arrivals, sample_until_accepted
from phalanx.random.uniform import check_mode, uniform_between, uniform_unit
from phalanx.typing import Array, ArrayLike, DTypeLike, PRNGKey, Shape, ShardingLike


def _where(condition: Array, x: Array, y: Array) -> Array:
    """Elementwise choice in which a branch may be a Python number."""
    like = x if hasattr(x, "aval") else y
    return lax.select(condition, *(lax.full_like(like, z) if isinstance(z, int | float) else z for z in (x, y)))


def _hat_uniforms(key_u: Array, key_v: Array, at: SampleShape, dtype: np.dtype) -> tuple[Array, Array, Array]:
    """The random numbers of one round of transformed rejection: u in [-1/2, 1/2), 1/2 - |u|, and v in (0, 1)."""
    u = lax.sub(uniform_unit(key_u, at, dtype), dtype.type(0.5))
    v = uniform_between(key_v, at, dtype, dtype.type(dtypes.finfo(dtype).tiny), dtype.type(1))
    return u, lax.sub(dtype.type(0.5), lax.abs(u)), v


def _waiting_time(key: Array, at: SampleShape, dtype: np.dtype) -> Array:
    """Exponential waiting times; infinite for a uniform number of 0."""
    return lax.neg(lax.log(uniform_unit(key, at, dtype)))


class PoissonByWaiting(RejectionLoop, name="random_poisson_by_waiting"):
    """The number of arrivals within time `lam`, for lam < 10: exponential waiting times are counted (Knuth)."""

    def draw(self, key: Array, at: SampleShape, lam: Array, is_done: Array) -> Array:
        # Elements that are drawn by the other method start at infinity, where no arrival is in time.
        start = _where(is_done, lax.full_like(lam, np.inf), 0.0)
        return count_arrivals(key, lambda key: _waiting_time(key, at, lam.dtype), lambda time: lax.lt(time, lam), start)


class PoissonByRejection(RejectionLoop, name="random_poisson_by_rejection"):
    """Transformed rejection for lam >= 10: algorithm PTRS of Hormann (1993), doi:10.1016/0167-6687(93)90997-4.

    The names follow the paper: `a` and `b` shape the hat function, `v_r` bounds the region accepted at once.
    """

    def draw(self, key: Array, at: SampleShape, lam: Array, is_done: Array) -> Array:
        dtype = lam.dtype
        # The constants of the hat function are from the paper, fitted for lam >= 10.
        log_lam = lax.log(lam)
        b = lax.add(lax.mul(lax.sqrt(lam), dtype.type(2.53)), dtype.type(0.931))
        a = lax.add(lax.mul(b, dtype.type(0.02483)), dtype.type(-0.059))
        inverse_alpha = lax.add(lax.div(dtype.type(1.1328), lax.sub(b, dtype.type(3.4))), dtype.type(1.1239))
        v_r = lax.sub(dtype.type(0.9277), lax.div(dtype.type(3.6224), lax.sub(b, dtype.type(2))))

        def propose(key_u: Array, key_v: Array, _: Array) -> tuple:
            u, u_shifted, v = _hat_uniforms(key_u, key_v, at, dtype)
            slope = lax.add(lax.div(lax.mul(a, dtype.type(2)), u_shifted), b)
            k = lax.floor(lax.add(lax.add(lax.mul(slope, u), lam), dtype.type(0.43)))
            # Accept at once where the density exceeds the hat function, reject at once in its tails, and compare
            # logarithms elsewhere.
            is_inside = lax.bitwise_and(lax.ge(u_shifted, dtype.type(0.07)), lax.le(v, v_r))
            is_outside = lax.bitwise_or(
                lax.lt(k, dtype.type(0)), lax.bitwise_and(lax.lt(u_shifted, dtype.type(0.013)), lax.gt(v, u_shifted))
            )
            hat = lax.add(lax.div(a, lax.square(u_shifted)), b)
            left = lax.log(lax.div(lax.mul(v, inverse_alpha), hat))
            right = lax.sub(lax.sub(lax.mul(k, log_lam), lam), lax.lgamma(lax.add(k, dtype.type(1))))
            return lax.bitwise_or(is_inside, lax.bitwise_and(lax.bitwise_not(is_outside), lax.le(left, right))), k

        return sample_until_accepted(key, propose, 2, lax.full_like(lam, -1), is_done)


poisson_by_waiting_p = PoissonByWaiting()
poisson_by_rejection_p = PoissonByRejection()


@distribution(dtype=int_dtype)
def poisson(
    key: PRNGKey,
    lam: ArrayLike,
    shape: Shape | None = None,
    dtype: DTypeLike | None = None,
    *,
    method: str = "exact",
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Samples of the Poisson distribution: probability lam^k exp(-lam) / k!.

    Args:
      key: the random key.
      lam: the expected count, which broadcasts to the shape.
      shape: the shape of the result; the shape of `lam` if None.
      dtype: an integer dtype; the default integer dtype if None.
      method: `"exact"` for rejection sampling, or `"approximate"` for a formula without a loop, which is faster; its
        probabilities differ by 0.0002 in total at most.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; chosen by the compiler if None.

    Returns:
      An array of `dtype`; -1 where `lam` is negative, infinite or NaN.

    Raises:
      ArgumentError: `dtype` is not an integer dtype, or `method` is unknown.
      ShapeError: `lam` does not broadcast to the shape.

    Examples:
      >>> from phalanx import random
      >>> bool((random.poisson(random.key(0), 4.0, (9,)) >= 0).all())
      True
    """
    check_method("poisson", method)
    # Counts beyond 2**24 need a mean in float64; the loops of the exact method draw in float32.
    wide = np.dtype("float64" if method == "approximate" and dtype.itemsize > 4 else "float32")
    _, (lam,) = broadcast_parameters("poisson", shape, wide, lam=lam)
    is_valid = lax.bitwise_and(lax.ge(lam, wide.type(0)), lax.lt(lam, wide.type(np.inf)))
    is_small = lax.lt(lam, wide.type(10))
    if method == "approximate":
        count = _poisson_of_normal(standard_normal(key, lam.shape, wide), lam, is_small)
        return lax.convert_element_type(_where(is_valid, count, -1.0), dtype)
    # Both methods run for all elements; each skips the elements of the other one, with a rate that keeps it finite.
    not_counted = lax.bitwise_not(lax.bitwise_and(is_small, is_valid))
    not_rejected = lax.bitwise_or(is_small, lax.bitwise_not(is_valid))
    key = use_key(key)
    few = poisson_by_waiting_p.sample(key, _where(is_small, lam, 0.0), not_counted)
    many = poisson_by_rejection_p.sample(key, _where(not_rejected, lax.full_like(lam, 10), lam), not_rejected)
    return lax.convert_element_type(_where(is_valid, lax.select(is_small, few, many), -1.0), dtype)


def _poisson_of_normal(w: Array, lam: Array, is_small: Array) -> Array:
    """Map standard normal numbers to Poisson samples, monotonically and without a loop."""
    dtype = lam.dtype
    constant = dtype.type
    # Small means: add up probabilities to the distribution function, and count the values at which it is below that of
    # the normal number. More than 32 arrivals are rarer than the resolution of the normal numbers.
    p = lax.mul(lax.erfc(lax.mul(w, constant(-math.sqrt(0.5)))), constant(0.5))
    term = total = lax.exp(lax.neg(lam))
    few = lax.convert_element_type(lax.lt(total, p), dtype)
    for k in range(1, 32):
        term = lax.mul(term, lax.div(lam, constant(k)))
        total = lax.add(total, term)
        few = lax.add(few, lax.convert_element_type(lax.lt(total, p), dtype))
    # Large means: the expansion of the quantile in powers of 1 / sqrt(lam), rounded down (Giles 2016,
    # doi:10.1145/2699466).
    mean = _where(is_small, lax.full_like(lam, 10), lam)
    square, scale = lax.square(w), lax.rsqrt(mean)
    first = lax.add(constant(1 / 3), lax.div(square, constant(6)))
    second = lax.mul(lax.neg(w), lax.add(constant(1 / 36), lax.div(square, constant(72))))
    third = lax.mul(square, lax.add(constant(7 / 810), lax.div(square, constant(270))))
    third = lax.sub(third, constant(8 / 405))
    tail = lax.mul(scale, lax.add(second, lax.mul(scale, third)))
    shift = lax.add(lax.mul(lax.sqrt(mean), w), lax.add(first, tail))
    # The mean is added to the rounded shift: their sum may have no fractional digits.
    whole = lax.floor(mean)
    many = lax.add(whole, lax.floor(lax.add(shift, lax.sub(mean, whole))))
    return lax.select(is_small, few, lax.max(many, constant(0)))


@distribution(dtype=int_dtype)
def geometric(
    key: PRNGKey,
    p: ArrayLike,
    shape: Shape | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Samples of the geometric distribution: probability (1 - p)^(k - 1) p of k >= 1 trials up to the first success.

    Args:
      key: the random key.
      p: the probability of success, which broadcasts to the shape.
      shape: the shape of the result; the shape of `p` if None.
      dtype: an integer dtype; the default integer dtype if None.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; chosen by the compiler if None.

    Returns:
      An array of `dtype`.

    Raises:
      ArgumentError: `dtype` is not an integer dtype.
      ShapeError: `p` does not broadcast to the shape.

    Examples:
      >>> from phalanx import random
      >>> random.geometric(random.key(0), 1.0, (3,)).tolist()
      [1, 1, 1]
    """
    real = dtypes.canonicalize_dtype(float)
    shape, (p,) = broadcast_parameters("geometric", shape, real, p=p)
    u = uniform_between(key, shape, real, real.type(dtypes.finfo(real).tiny), real.type(1))
    failures = lax.floor(lax.div(lax.log(u), lax.log1p(lax.neg(p))))
    return lax.convert_element_type(lax.add(failures, real.type(1)), dtype)


class BinomialByWaiting(RejectionLoop, name="random_binomial_by_waiting"):
    """The number of successes among n trials for n p < 10: geometric waiting times are counted up to n."""

    def draw(self, key: Array, at: SampleShape, n: Array, p: Array, is_done: Array) -> Array:
        # A geometric waiting time is an exponential one, divided by -log(1 - p) and rounded up.
        log_failure = lax.log1p(lax.neg(p))

        def count_trials(key: Array) -> Array:
            return lax.ceil(lax.div(lax.neg(_waiting_time(key, at, n.dtype)), log_failure))

        start = _where(is_done, lax.full_like(n, np.inf), 0.0)
        return count_arrivals(key, count_trials, lambda trials: lax.le(trials, n), start, draws_first=True)


# fmt: off
_STIRLING_REMAINDERS = (
    0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.0207906721037650, 0.0166446911898211,
    0.0138761288230707, 0.0118967099458917, 0.0104112652619720, 0.00925546218271273, 0.00833056343336287,
)
# fmt: on


def _stirling_remainder(k: Array) -> Array:
    """log k! minus Stirling's approximation (k + 1/2) log(k + 1) - (k + 1) + log(2 pi) / 2, for whole k >= 0."""
    dtype = k.dtype
    x = lax.add(k, dtype.type(1))
    square = lax.square(x)
    series = lax.sub(dtype.type(1 / 360), lax.div(dtype.type(1 / 1260), square))
    rest = lax.div(lax.sub(dtype.type(1 / 12), lax.div(series, square)), x)
    # From k = 10 on the series has all digits of a float64; below, the remainder is tabulated.
    for value, exact in enumerate(_STIRLING_REMAINDERS):
        rest = _where(lax.eq(k, dtype.type(value)), exact, rest)
    return rest


class BinomialByRejection(RejectionLoop, name="random_binomial_by_rejection"):
    """Transformed rejection for n p >= 10 and p <= 1/2: algorithm BTRS of Hormann (1993).

    The names follow the paper, doi:10.1080/00949659308811496; `m` is the mode of the distribution, at which the
    acceptance ratio is normalized.
    """

    def draw(self, key: Array, at: SampleShape, n: Array, p: Array, is_done: Array) -> Array:
        dtype = n.dtype
        q = lax.sub(dtype.type(1), p)
        deviation = lax.sqrt(lax.mul(lax.mul(n, p), q))
        # The constants of the hat function are from the paper, fitted for n p >= 10.
        b = lax.add(lax.mul(deviation, dtype.type(2.53)), dtype.type(1.15))
        a = lax.add(lax.add(lax.mul(b, dtype.type(0.0248)), dtype.type(-0.0873)), lax.mul(p, dtype.type(0.01)))
        c = lax.add(lax.mul(n, p), dtype.type(0.5))
        v_r = lax.sub(dtype.type(0.92), lax.div(dtype.type(4.2), b))
        alpha = lax.mul(lax.add(lax.div(dtype.type(5.1), b), dtype.type(2.83)), deviation)
        m = lax.floor(lax.mul(lax.add(n, dtype.type(1)), p))

        def propose(key_u: Array, key_v: Array, _: Array) -> tuple:
            u, us, v = _hat_uniforms(key_u, key_v, at, dtype)
            k = lax.floor(lax.add(lax.mul(lax.add(lax.div(lax.mul(a, dtype.type(2)), us), b), u), c))
            is_possible = lax.bitwise_and(lax.ge(k, dtype.type(0)), lax.le(k, n))
            is_inside = lax.bitwise_and(lax.ge(us, dtype.type(0.07)), lax.le(v, v_r))
            left = lax.log(lax.div(lax.mul(v, alpha), lax.add(lax.div(a, lax.square(us)), b)))
            below = lax.le(left, _log_binomial_ratio(n, m, lax.clamp(lax.full_like(k, 0), k, n), lax.div(p, q)))
            return lax.bitwise_and(is_possible, lax.bitwise_or(is_inside, below)), k

        return sample_until_accepted(key, propose, 2, lax.full_like(n, 0), is_done)


binomial_by_waiting_p = BinomialByWaiting()
binomial_by_rejection_p = BinomialByRejection()


def _log_binomial_ratio(n: Array, m: Array, k: Array, odds: Array) -> Array:
    """log(P(k) / P(m)) by Stirling's formula, in which the large terms cancel before they are rounded."""
    dtype = n.dtype
    one, half = dtype.type(1), dtype.type(0.5)
    n_m, n_k = lax.add(lax.sub(n, m), one), lax.add(lax.sub(n, k), one)
    terms = [
        lax.mul(lax.add(m, half), lax.log(lax.div(lax.add(m, one), lax.mul(odds, n_m)))),
        lax.mul(lax.add(n, one), lax.log(lax.div(n_m, n_k))),
        lax.mul(lax.add(k, half), lax.log(lax.div(lax.mul(n_k, odds), lax.add(k, one)))),
        _stirling_remainder(m),
        _stirling_remainder(lax.sub(n, m)),
        lax.neg(_stirling_remainder(k)),
        lax.neg(_stirling_remainder(lax.sub(n, k))),
    ]
    return functools.reduce(lax.add, terms)


def binomial_samples(key: PRNGKey, n: ArrayLike, p: ArrayLike) -> Array:
    """Binomial samples for floating-point n and p of one shape; NaN where n is negative or p is not a probability."""
    dtype = n.dtype
    is_valid = lax.bitwise_and(
        lax.bitwise_and(lax.ge(n, dtype.type(0)), lax.lt(n, dtype.type(np.inf))),
        lax.bitwise_and(lax.ge(p, dtype.type(0)), lax.le(p, dtype.type(1))),
    )
    n, p = _where(is_valid, n, 0.0), _where(is_valid, p, 0.0)
    # Both methods need p <= 1/2: failures are counted instead of successes above.
    is_flipped = lax.ge(p, dtype.type(0.5))
    rare = lax.select(is_flipped, lax.sub(dtype.type(1), p), p)
    is_few = lax.le(lax.mul(n, rare), dtype.type(10))
    # Without trials, or with probability 0, nothing is drawn.
    is_trivial = lax.bitwise_or(lax.eq(n, dtype.type(0)), lax.eq(rare, dtype.type(0)))
    done = lax.bitwise_or(is_trivial, lax.bitwise_not(is_few))
    key = use_key(key)
    few = binomial_by_waiting_p.sample(key, _where(done, 0.0, n), _where(done, 0.5, rare), done)
    many = binomial_by_rejection_p.sample(key, _where(is_few, 100.0, n), _where(is_few, 0.5, rare), is_few)
    count = lax.select(is_few, few, many)
    return _where(is_valid, lax.select(is_flipped, lax.sub(n, count), count), float("nan"))


@distribution(dtype=float_dtype, parameters=("n", "p"))
def binomial(
    key: PRNGKey,
    n: ArrayLike,
    p: ArrayLike,
    shape: Shape | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Samples of the binomial distribution: the number of successes among n trials of probability p.

    Args:
      key: the random key.
      n: the number of trials, which broadcasts to the shape.
      p: the probability, which broadcasts to the shape.
      shape: the shape of the result; the common shape of the parameters if None.
      dtype: a floating dtype; the default floating dtype if None.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; chosen by the compiler if None.

    Returns:
      An array of `dtype` that holds whole numbers; NaN where n is negative or p is not a probability.

    Raises:
      ArgumentError: `dtype` is not floating.
      ShapeError: a parameter does not broadcast to the shape.

    Examples:
      >>> from phalanx import random
      >>> random.binomial(random.key(0), 5, 1.0, (3,)).tolist()
      [5.0, 5.0, 5.0]
    """
    return binomial_samples(key, n, p)


@distribution("unroll", dtype=float_dtype)
def multinomial(
    key: PRNGKey,
    n: ArrayLike,
    p: ArrayLike,
    *,
    shape: Shape | None = None,
    dtype: DTypeLike | None = None,
    unroll: int | bool = 1,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Samples of the multinomial distribution: how often each category occurs in n draws.

    Args:
      key: the random key.
      n: the number of draws, which broadcasts to the batch.
      p: the probabilities, float[*batch, k]; they are scaled to a sum of 1.
      shape: the shape of the result, `(*batch, k)`; the common shape of the parameters if None.
      dtype: a floating dtype; the default floating dtype if None.
      unroll: the number of categories drawn in one iteration of the loop.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; chosen by the compiler if None.

    Returns:
      Whole numbers that sum to n over the last dimension.

    Raises:
      ArgumentError: `dtype` is not floating.
      ShapeError: a parameter does not broadcast to the shape.

    Examples:
      >>> import numpy as np
      >>> from phalanx import random
      >>> random.multinomial(random.key(0), 10, np.array([0.2, 0.3, 0.5])).sum().item()
      10.0
    """
    n, p = as_dtype(n, dtype), as_dtype(p, dtype)
    if not get_aval(p).shape:
        raise ShapeError(
            "random.multinomial, p",
            expected="an array of rank 1 or more",
            got="a scalar",
            fix="pass a vector with a probability for each category",
        )
    if shape is None:
        shape = (*lax.broadcast_shapes(get_aval(n).shape, get_aval(p).shape[:-1]), get_aval(p).shape[-1])
    _, (p,) = broadcast_parameters("multinomial", shape, dtype, p=p)
    _, (n,) = broadcast_parameters("multinomial", shape[:-1], dtype, n=n)
    last = len(shape) - 1
    # Category i is binomial with the remaining draws, and its probability among the remaining categories.
    rest = lax.rev(lax.cumsum(lax.rev(p, (last,)), last), (last,))
    share = lax.clamp(
        lax.full_like(p, 0), lax.div(p, _where(lax.gt(rest, dtype.type(0)), rest, 1.0)), lax.full_like(p, 1)
    )

    def draw(left: Array, step: tuple) -> tuple:
        own, ratio = step
        count = binomial_samples(own, left, ratio)
        return lax.sub(left, count), count

    steps = (random_split_p(key, shape=shape[-1:]), lax.transpose(share, (last, *range(last))))
    return lax.transpose(lax.scan(draw, n, steps, unroll=unroll)[1], (*range(1, last + 1), 0))


@distribution("axis", "replace")
def categorical(
    key: PRNGKey,
    logits: ArrayLike,
    axis: int = -1,
    shape: Shape | None = None,
    replace: bool = True,
    mode: str | None = None,
    *,
    out_sharding: ShardingLike | None = None,
) -> Array:
    """Samples of categories with probabilities proportional to exp(logits).

    Args:
      key: the random key.
      logits: unnormalised logarithms of probabilities.
      axis: the dimension of `logits` that runs over the categories.
      shape: the shape of the result, which ends in the batch, the shape of `logits` without `axis`; the batch if None.
      replace: whether a category may be drawn several times along the leading dimensions of `shape`.
      mode: "low" (the default) or "high", the resolution of the random numbers.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; chosen by the compiler if None.

    Returns:
      Positions along `axis`, an integer array.

    Raises:
      ShapeError: `shape` does not end in the shape of the batch.
      AxisError: `logits` has no dimension `axis`.
      ArgumentError: there are more draws without replacement than categories.

    Examples:
      >>> import numpy as np
      >>> from phalanx import random
      >>> random.categorical(random.key(0), np.array([-np.inf, 0.0, -np.inf]), shape=(3,)).tolist()
      [1, 1, 1]

    Source: Kool, van Hoof and Welling (2019), arXiv:1903.06059, for draws without replacement.
    """
    check_mode("categorical", mode or "low")
    logits = as_dtype(logits, dtypes.to_inexact_dtype(promotion.result_type(logits)))
    ndim = logits.ndim
    if not -ndim <= axis < ndim:
        raise AxisError(
            "random.categorical, axis",
            expected=f"a dimension of {logits.aval.str_short()}",
            got=axis,
            fix="pass the dimension of the categories",
        )
    axis %= ndim
    batch = (*logits.shape[:axis], *logits.shape[axis + 1 :])
    shape = batch if shape is None else shape
    lead = shape[: len(shape) - len(batch)]
    if shape[len(lead) :] != batch and not is_broadcastable(batch, shape):
        raise ShapeError(
            "random.categorical, shape",
            expected=f"a shape that ends in {batch}, that of logits without axis",
            got=shape,
            fix="prepend dimensions for more draws",
        )
    index = dtypes.canonicalize_dtype(int)
    target = (*shape[len(lead) :][:axis], logits.shape[axis], *shape[len(lead) :][axis:])
    logits = broadcast_to_shape(logits, target)
    # The Gumbel-max trick: the argmax of logits plus Gumbel noise is a sample of the softmax.
    if replace:
        noise = standard_gumbel(key, (*lead, *target), logits.dtype, mode)
        return lax.argmax(lax.add(noise, broadcast_to_shape(logits, noise.shape)), len(lead) + axis, index)
    count = math.prod(lead)
    if count > target[axis]:
        raise ArgumentError(
            "random.categorical without replacement",
            expected=f"at most {target[axis]} draws",
            got=count,
            fix="draw fewer, or pass replace=True",
        )
    scores = lax.add(standard_gumbel(key, target, logits.dtype, mode), logits)
    # The k largest perturbed logits are a sample of k different categories; top_k needs them in the last dimension.
    order = (*range(axis), *range(axis + 1, ndim), axis)
    drawn = lax.transpose(lax.top_k(lax.transpose(scores, order), count)[1], (ndim - 1, *range(ndim - 1)))
    return lax.convert_element_type(lax.reshape(drawn, shape), index)
