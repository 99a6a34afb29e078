"""Distributions over the integers: Poisson, geometric, binomial, multinomial, and categories by their logits.

Builds on `uniform` and `continuous`. The rejection loops draw for all elements at once, round i from a key folded
with i, as in `gamma`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes, promotion
from phalanx.core.aval import aval_of
from phalanx.core.errors import ArgumentError, AxisError, ShapeError
from phalanx.random.continuous import standard_exponential, standard_gumbel
from phalanx.random.keys import static_shape
from phalanx.random.parameters import (
    as_dtype,
    broadcast_to,
    distribution,
    float_dtype,
    int_dtype,
    key_of,
    new_keys,
    parameters,
    placed,
)
from phalanx.random.primitives import random_fold_in_p
from phalanx.random.rounds import Rounds
from phalanx.random.uniform import between, check_mode, unit

_F32 = np.dtype(np.float32)


def _until_accepted(key: Any, propose: Callable, start: Any, is_done: Any) -> Any:
    """Repeat `propose(key)`, which gives acceptances and values, until each element that is not done accepted one."""
    dims = tuple(range(start.ndim))

    def step(state: tuple) -> tuple:
        i, done, value = state
        accepted, proposal = propose(random_fold_in_p(key, i))
        return (
            lax.add(i, np.uint32(1)),
            lax.bitwise_or(done, accepted),
            lax.select(lax.bitwise_and(accepted, lax.bitwise_not(done)), proposal, value),
        )

    def is_open(state: tuple) -> Any:
        return lax.reduce_or(lax.bitwise_not(state[1]), dims)

    return lax.while_loop(is_open, step, (np.uint32(0), is_done, start))[2]


def _where(condition: Any, x: Any, y: Any) -> Any:
    """`lax.select` with numbers in place of arrays."""
    like = x if hasattr(x, "aval") else y
    return lax.select(condition, *(lax.full_like(like, z) if isinstance(z, int | float) else z for z in (x, y)))


# Poisson.


class PoissonByWaiting(Rounds, name="random_poisson_by_waiting"):
    """Arrivals within time `lam`, for small ones: Knuth's counting of exponential waiting times."""

    def draw(self, key: Any, at: Any, lam: Any, is_done: Any) -> Any:
        dims = tuple(range(lam.ndim))

        def step(state: tuple) -> tuple:
            i, time, count = state
            time = lax.add(time, standard_exponential(random_fold_in_p(key, i), at, lam.dtype))
            return lax.add(i, np.uint32(1)), time, lax.add(count, _where(lax.lt(time, lam), lax.full_like(lam, 1), 0))

        def is_open(state: tuple) -> Any:
            return lax.reduce_or(lax.lt(state[1], lam), dims)

        start = _where(is_done, lax.full_like(lam, np.inf), 0.0)
        return lax.while_loop(is_open, step, (np.uint32(0), start, lax.full_like(lam, 0)))[2]


class PoissonByRejection(Rounds, name="random_poisson_by_rejection"):
    """Hormann's PTRS, for lam >= 10: doi:10.1016/0167-6687(93)90997-4."""

    def draw(self, key: Any, at: Any, lam: Any, is_done: Any) -> Any:
        dtype = lam.dtype
        log_lam = lax.log(lam)
        b = lax.add(lax.mul(lax.sqrt(lam), dtype.type(2.53)), dtype.type(0.931))
        a = lax.add(lax.mul(b, dtype.type(0.02483)), dtype.type(-0.059))
        inverse_alpha = lax.add(lax.div(dtype.type(1.1328), lax.sub(b, dtype.type(3.4))), dtype.type(1.1239))
        v_r = lax.sub(dtype.type(0.9277), lax.div(dtype.type(3.6224), lax.sub(b, dtype.type(2))))

        def propose(round_key: Any) -> tuple:
            key_u, key_v = new_keys(round_key, 2)
            u = lax.sub(unit(key_u, at, dtype), dtype.type(0.5))
            v = between(key_v, at, dtype, dtype.type(dtypes.finfo(dtype).tiny), dtype.type(1))
            u_shifted = lax.sub(dtype.type(0.5), lax.abs(u))
            slope = lax.add(lax.div(lax.mul(a, dtype.type(2)), u_shifted), b)
            k = lax.floor(lax.add(lax.add(lax.mul(slope, u), lam), dtype.type(0.43)))
            is_inside = lax.bitwise_and(lax.ge(u_shifted, dtype.type(0.07)), lax.le(v, v_r))
            is_outside = lax.bitwise_or(
                lax.lt(k, dtype.type(0)), lax.bitwise_and(lax.lt(u_shifted, dtype.type(0.013)), lax.gt(v, u_shifted))
            )
            hat = lax.add(lax.div(a, lax.square(u_shifted)), b)
            left = lax.log(lax.div(lax.mul(v, inverse_alpha), hat))
            right = lax.sub(lax.sub(lax.mul(k, log_lam), lam), lax.lgamma(lax.add(k, dtype.type(1))))
            is_below = lax.bitwise_and(lax.bitwise_not(is_outside), lax.le(left, right))
            return lax.bitwise_or(is_inside, is_below), k

        return _until_accepted(key, propose, lax.full_like(lam, -1), is_done)


poisson_by_waiting_p = PoissonByWaiting()
poisson_by_rejection_p = PoissonByRejection()


@distribution()
def poisson(key: Any, lam: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Poisson-distributed counts: probability lam^k exp(-lam) / k!.

    Args:
      key: a key.
      lam: the expected count, which broadcasts to the shape.
      shape: the shape of the result; that of `lam` if None.
      dtype: an integer dtype; the default one if None.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      An array of `dtype`; -1 where `lam` is negative, infinite or NaN.

    Raises:
      ArgumentError: `dtype` is no integer dtype.
      ShapeError: `lam` does not broadcast to the shape.

    Examples:
      >>> from phalanx import random
      >>> bool((random.poisson(random.key(0), 4.0, (9,)) >= 0).all())
      True
    """
    key = key_of("poisson", key)
    dtype = int_dtype("poisson", dtype)
    _, (lam,) = parameters(
        "poisson", shape, _F32 if dtypes.itemsize_bits(dtype) <= 32 else np.dtype("float64"), lam=lam
    )
    is_valid = lax.bitwise_and(lax.ge(lam, lam.dtype.type(0)), lax.lt(lam, lam.dtype.type(np.inf)))
    is_small = lax.lt(lam, lam.dtype.type(10))
    key_small, key_large = new_keys(key, 2)
    few = poisson_by_waiting_p.of(
        key_small, _where(is_small, lam, 0.0), lax.bitwise_not(lax.bitwise_and(is_small, is_valid))
    )
    rate = _where(lax.bitwise_or(is_small, lax.bitwise_not(is_valid)), lax.full_like(lam, 10), lam)
    many = poisson_by_rejection_p.of(key_large, rate, lax.bitwise_or(is_small, lax.bitwise_not(is_valid)))
    count = _where(is_valid, lax.select(is_small, few, many), -1.0)
    return placed(lax.convert_element_type(count, dtype), out_sharding)


@distribution()
def geometric(key: Any, p: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Numbers of trials up to the first success: probability (1 - p)^(k - 1) p for k >= 1.

    Args:
      key: a key.
      p: the probability of success, which broadcasts to the shape.
      shape: the shape of the result; that of `p` if None.
      dtype: an integer dtype; the default one if None.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      An array of `dtype`.

    Raises:
      ArgumentError: `dtype` is no integer dtype.
      ShapeError: `p` does not broadcast to the shape.

    Examples:
      >>> from phalanx import random
      >>> random.geometric(random.key(0), 1.0, (3,)).tolist()
      [1, 1, 1]
    """
    key = key_of("geometric", key)
    dtype = int_dtype("geometric", dtype)
    real = dtypes.canonicalize_dtype(float)
    shape, (p,) = parameters("geometric", shape, real, p=p)
    drawn = between(key, shape, real, real.type(dtypes.finfo(real).tiny), real.type(1))
    waited = lax.div(lax.log(drawn), lax.log1p(lax.neg(p)))
    return placed(lax.convert_element_type(lax.add(lax.floor(waited), real.type(1)), dtype), out_sharding)


# Binomial and multinomial.


class BinomialByWaiting(Rounds, name="random_binomial_by_waiting"):
    """Successes among n trials, for few of them: geometric waiting times are counted until they exceed n."""

    def draw(self, key: Any, at: Any, n: Any, p: Any, is_done: Any) -> Any:
        log_failure = lax.log1p(lax.neg(p))
        dims = tuple(range(n.ndim))

        def step(state: tuple) -> tuple:
            i, trials, count = state
            waited = lax.div(lax.neg(standard_exponential(random_fold_in_p(key, i), at, n.dtype)), log_failure)
            trials = lax.add(trials, lax.add(lax.floor(waited), n.dtype.type(1)))
            return lax.add(i, np.uint32(1)), trials, lax.add(count, _where(lax.le(trials, n), lax.full_like(n, 1), 0))

        def is_open(state: tuple) -> Any:
            return lax.reduce_or(lax.le(state[1], n), dims)

        start = _where(is_done, lax.full_like(n, np.inf), 0.0)
        return lax.while_loop(is_open, step, (np.uint32(0), start, lax.full_like(n, 0)))[2]


def _stirling_rest(k: Any) -> Any:
    """What Stirling's formula leaves of log k!, for whole k >= 0."""
    dtype = k.dtype
    x = lax.add(k, dtype.type(1))
    square = lax.square(x)
    series = lax.sub(dtype.type(1 / 360), lax.div(dtype.type(1 / 1260), square))
    rest = lax.div(lax.sub(dtype.type(1 / 12), lax.div(series, square)), x)
    # The series is exact to a float's last digits from 10 on; below, the rest is a table.
    exact = (0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.0207906721037650, 0.0166446911898211)
    exact += (0.0138761288230707, 0.0118967099458917, 0.0104112652619720, 0.00925546218271273, 0.00833056343336287)
    for value, log_rest in enumerate(exact):
        rest = _where(lax.eq(k, dtype.type(value)), float(log_rest), rest)
    return rest


class BinomialByRejection(Rounds, name="random_binomial_by_rejection"):
    """Hormann's BTRS, for n p >= 10 and p <= 1/2: doi:10.1080/00949659308811496."""

    def draw(self, key: Any, at: Any, n: Any, p: Any, is_done: Any) -> Any:
        dtype = n.dtype
        q = lax.sub(dtype.type(1), p)
        deviation = lax.sqrt(lax.mul(lax.mul(n, p), q))
        b = lax.add(lax.mul(deviation, dtype.type(2.53)), dtype.type(1.15))
        a = lax.add(lax.add(lax.mul(b, dtype.type(0.0248)), dtype.type(-0.0873)), lax.mul(p, dtype.type(0.01)))
        c = lax.add(lax.mul(n, p), dtype.type(0.5))
        v_r = lax.sub(dtype.type(0.92), lax.div(dtype.type(4.2), b))
        alpha = lax.mul(lax.add(lax.div(dtype.type(5.1), b), dtype.type(2.83)), deviation)
        m = lax.floor(lax.mul(lax.add(n, dtype.type(1)), p))
        odds = lax.div(p, q)

        def propose(round_key: Any) -> tuple:
            key_u, key_v = new_keys(round_key, 2)
            u = lax.sub(unit(key_u, at, dtype), dtype.type(0.5))
            v = between(key_v, at, dtype, dtype.type(dtypes.finfo(dtype).tiny), dtype.type(1))
            us = lax.sub(dtype.type(0.5), lax.abs(u))
            k = lax.floor(lax.add(lax.mul(lax.add(lax.div(lax.mul(a, dtype.type(2)), us), b), u), c))
            is_possible = lax.bitwise_and(lax.ge(k, dtype.type(0)), lax.le(k, n))
            is_inside = lax.bitwise_and(lax.ge(us, dtype.type(0.07)), lax.le(v, v_r))
            k_safe = lax.clamp(lax.full_like(k, 0), k, n)
            left = lax.log(lax.div(lax.mul(v, alpha), lax.add(lax.div(a, lax.square(us)), b)))
            below = lax.le(left, _log_binomial_ratio(n, m, k_safe, odds))
            return lax.bitwise_and(is_possible, lax.bitwise_or(is_inside, below)), k

        return _until_accepted(key, propose, lax.full_like(n, 0), is_done)


binomial_by_waiting_p = BinomialByWaiting()
binomial_by_rejection_p = BinomialByRejection()


def _log_binomial_ratio(n: Any, m: Any, k: Any, odds: Any) -> Any:
    """log of P(k) / P(m), by Stirling's formula so that the large terms cancel before they are rounded."""
    dtype = n.dtype
    one, half = dtype.type(1), dtype.type(0.5)
    n_m, n_k = lax.add(lax.sub(n, m), one), lax.add(lax.sub(n, k), one)
    terms = [
        lax.mul(lax.add(m, half), lax.log(lax.div(lax.add(m, one), lax.mul(odds, n_m)))),
        lax.mul(lax.add(n, one), lax.log(lax.div(n_m, n_k))),
        lax.mul(lax.add(k, half), lax.log(lax.div(lax.mul(n_k, odds), lax.add(k, one)))),
        _stirling_rest(m),
        _stirling_rest(lax.sub(n, m)),
        lax.neg(_stirling_rest(k)),
        lax.neg(_stirling_rest(lax.sub(n, k))),
    ]
    total = terms[0]
    for term in terms[1:]:
        total = lax.add(total, term)
    return total


def binomial_samples(key: Any, n: Any, p: Any) -> Any:
    """Numbers of successes for floating n and p of one shape, from a typed key; NaN where they mean nothing."""
    dtype = n.dtype
    is_valid = lax.bitwise_and(
        lax.bitwise_and(lax.ge(n, dtype.type(0)), lax.lt(n, dtype.type(np.inf))),
        lax.bitwise_and(lax.ge(p, dtype.type(0)), lax.le(p, dtype.type(1))),
    )
    n, p = _where(is_valid, n, 0.0), _where(is_valid, p, 0.0)
    is_flipped = lax.gt(p, dtype.type(0.5))
    rare = lax.select(is_flipped, lax.sub(dtype.type(1), p), p)
    is_few = lax.lt(lax.mul(n, rare), dtype.type(10))
    is_trivial = lax.bitwise_or(lax.eq(n, dtype.type(0)), lax.eq(rare, dtype.type(0)))
    key_few, key_many = new_keys(key, 2)
    done = lax.bitwise_or(is_trivial, lax.bitwise_not(is_few))
    few = binomial_by_waiting_p.of(key_few, _where(done, 0.0, n), _where(done, 0.5, rare), done)
    many = binomial_by_rejection_p.of(key_many, _where(is_few, 100.0, n), _where(is_few, 0.5, rare), is_few)
    count = lax.select(is_few, few, many)
    count = lax.select(is_flipped, lax.sub(n, count), count)
    return _where(is_valid, count, float("nan"))


@distribution()
def binomial(key: Any, n: Any, p: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Numbers of successes among n trials that succeed with probability p.

    Args:
      key: a key.
      n: the number of trials, which broadcasts to the shape.
      p: the probability, which broadcasts to the shape.
      shape: the shape of the result; that of the parameters if None.
      dtype: a floating dtype; the default one if None.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      An array of `dtype` that holds whole numbers; NaN where n is negative or p no probability.

    Raises:
      ArgumentError: `dtype` is not floating.
      ShapeError: a parameter does not broadcast to the shape.

    Examples:
      >>> from phalanx import random
      >>> random.binomial(random.key(0), 5, 1.0, (3,)).tolist()
      [5.0, 5.0, 5.0]
    """
    key = key_of("binomial", key)
    dtype = float_dtype("binomial", dtype)
    _, (n, p) = parameters("binomial", shape, dtype, n=n, p=p)
    return placed(binomial_samples(key, n, p), out_sharding)


@distribution("unroll")
def multinomial(
    key: Any, n: Any, p: Any, *, shape: Any = None, dtype: Any = None, unroll: int | bool = 1, out_sharding: Any = None
) -> Any:
    """How often each category comes in n draws with probabilities p.

    Args:
      key: a key.
      n: the number of draws, which broadcasts to the batch.
      p: the probabilities, float[*batch, k]; they are scaled to a sum of 1.
      shape: the shape of the result, `(*batch, k)`; that of the parameters if None.
      dtype: a floating dtype; the default one if None.
      unroll: how many categories are drawn in one step of the loop.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      Whole numbers whose sum over the last dimension is n.

    Raises:
      ArgumentError: `dtype` is not floating.
      ShapeError: a parameter does not broadcast to the shape.

    Examples:
      >>> import numpy as np
      >>> from phalanx import random
      >>> random.multinomial(random.key(0), 10, np.array([0.2, 0.3, 0.5])).sum().item()
      10.0
    """
    key = key_of("multinomial", key)
    dtype = float_dtype("multinomial", dtype)
    n, p = as_dtype(n, dtype), as_dtype(p, dtype)
    if not aval_of(p).shape:
        raise ShapeError(
            "random.multinomial, p", expected="an array of rank 1 or more", got="a scalar", mend="pass a vector"
        )
    batch = lax.broadcast_shapes(aval_of(n).shape, aval_of(p).shape[:-1]) if shape is None else None
    shape = (*batch, aval_of(p).shape[-1]) if batch is not None else static_shape("multinomial", shape)
    _, (p,) = parameters("multinomial", shape, dtype, p=p)
    _, (n,) = parameters("multinomial", shape[:-1], dtype, n=n)
    last = len(shape) - 1
    rest = lax.rev(lax.cumsum(lax.rev(p, (last,)), last), (last,))
    share = lax.clamp(
        lax.full_like(p, 0), lax.div(p, _where(lax.gt(rest, dtype.type(0)), rest, 1.0)), lax.full_like(p, 1)
    )
    shares = lax.transpose(share, (last, *range(last)))

    def draw(left: Any, step: tuple) -> tuple:
        i, ratio = step
        count = binomial_samples(random_fold_in_p(key, i), left, ratio)
        return lax.sub(left, count), count

    steps = (lax.iota(np.dtype(np.uint32), shape[-1]), shares)
    counts = lax.scan(draw, n, steps, unroll=unroll)[1]
    return placed(lax.transpose(counts, (*range(1, last + 1), 0)), out_sharding)


# Categories.


@distribution("axis", "replace")
def categorical(
    key: Any,
    logits: Any,
    axis: int = -1,
    shape: Any = None,
    replace: bool = True,
    mode: str | None = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """Categories, drawn with probabilities proportional to exp(logits).

    Args:
      key: a key.
      logits: unnormalised logarithms of probabilities.
      axis: the dimension of `logits` along which the categories lie.
      shape: the shape of the result, which ends in that of `logits` without `axis`; that one if None.
      replace: whether a category may be drawn several times along the leading dimensions of `shape`.
      mode: "low" (the default) or "high", the resolution of the random numbers.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      Positions along `axis`, an integer array.

    Raises:
      ShapeError: `shape` does not end in the shape of the batch.
      AxisError: `logits` has no dimension `axis`.
      ArgumentError: more categories are asked for without replacement than there are.

    Examples:
      >>> import numpy as np
      >>> from phalanx import random
      >>> random.categorical(random.key(0), np.array([-np.inf, 0.0, -np.inf]), shape=(3,)).tolist()
      [1, 1, 1]

    Source: Kool, van Hoof and Welling (2019), arXiv:1903.06059, for draws without replacement.
    """
    key = key_of("categorical", key)
    check_mode("categorical", mode or "low")
    logits = as_dtype(logits, dtypes.to_inexact_dtype(promotion.result_type(logits)))
    ndim = logits.ndim
    if not -ndim <= axis < ndim:
        raise AxisError(
            "random.categorical, axis", expected=f"a dimension of {logits.aval.str_short()}", got=axis,
            mend="pass the dimension of the categories",
        )  # fmt: skip
    axis %= ndim
    batch = (*logits.shape[:axis], *logits.shape[axis + 1 :])
    shape = batch if shape is None else static_shape("categorical", shape)
    lead = shape[: len(shape) - len(batch)]
    if shape[len(lead) :] != batch and _broadcast(batch, shape) is None:
        raise ShapeError(
            "random.categorical, shape", expected=f"a shape that ends in {batch}, that of logits without axis",
            got=shape, mend="prepend dimensions for more draws",
        )  # fmt: skip
    index = dtypes.canonicalize_dtype(int)
    target = (*shape[len(lead) :][:axis], logits.shape[axis], *shape[len(lead) :][axis:])
    logits = broadcast_to(logits, target)
    if replace:
        noise = standard_gumbel(key, (*lead, *target), logits.dtype, mode)
        scores = lax.add(noise, broadcast_to(logits, noise.shape))
        return placed(lax.argmax(scores, len(lead) + axis, index), out_sharding)
    count = int(np.prod(lead))
    if count > target[axis]:
        raise ArgumentError(
            "random.categorical without replacement", expected=f"at most {target[axis]} draws", got=count,
            mend="draw fewer, or pass replace=True",
        )  # fmt: skip
    scores = lax.add(standard_gumbel(key, target, logits.dtype, mode), logits)
    order = (*range(axis), *range(axis + 1, ndim), axis)
    drawn = lax.top_k(lax.transpose(scores, order), count)[1]
    drawn = lax.transpose(drawn, (ndim - 1, *range(ndim - 1)))
    return placed(lax.convert_element_type(lax.reshape(drawn, shape), index), out_sharding)


def _broadcast(have: tuple, shape: tuple) -> tuple | None:
    try:
        return shape if lax.broadcast_shapes(have, shape) == shape else None
    except (TypeError, ValueError):
        return None
