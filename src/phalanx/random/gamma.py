"""The gamma distribution and those made of it: beta, Dirichlet, chi-square, F and Student's t.

Builds on `uniform` and `continuous`. Samples are drawn by rejection for all elements at once: in round i each element
that is still open draws anew from a key folded with i, so that its value depends on its position only. Everything is
computed in logarithms, since samples of a small shape parameter lie below the least positive number. Derivatives with
respect to the parameter follow from the distribution function, held fixed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes
from phalanx.core.aval import aval_of
from phalanx.core.errors import ShapeError
from phalanx.core.primitive import Undefined
from phalanx.custom_derivatives import custom_jvp
from phalanx.random.continuous import standard_exponential, standard_normal
from phalanx.random.keys import static_shape
from phalanx.random.parameters import (
    as_dtype,
    broadcast_to,
    distribution,
    float_dtype,
    key_of,
    new_keys,
    parameters,
    placed,
    reals,
)
from phalanx.random.primitives import random_fold_in_p
from phalanx.random.rounds import Rounds
from phalanx.random.uniform import unit


class GammaRounds(Rounds, name="random_gamma_rounds"):
    """The logarithm of v = (1 + c x)^3 with which d v is a sample: Marsaglia and Tsang (2000).

    Its parameters are d, c, the result where nothing is drawn, and where that is.
    """

    jvp = Undefined("samples are differentiated with their distribution function held fixed, by `_log_gamma`")

    def draw(self, key: Any, at: Any, d: Any, c: Any, nothing: Any, is_done: Any) -> Any:
        def is_open(state: tuple) -> Any:
            return lax.reduce_or(lax.bitwise_not(state[1]), tuple(range(d.ndim)))

        def step(state: tuple) -> tuple:
            i, done, log_v = state
            accepted, proposal = _accepted(random_fold_in_p(key, i), at, d, c)
            log_v = lax.select(done, log_v, proposal)
            return lax.add(i, np.uint32(1)), lax.bitwise_or(done, accepted), log_v

        return lax.while_loop(is_open, step, (np.uint32(0), is_done, nothing))[2]


gamma_rounds_p = GammaRounds()


def _accepted(key: Any, at: Any, d: Any, c: Any) -> tuple[Any, Any]:
    """One round: whether each proposal is accepted, and the logarithm of v."""
    key_x, key_u = new_keys(key, 2)
    dtype = d.dtype
    x = standard_normal(key_x, at, dtype)
    base = lax.add(lax.mul(c, x), dtype.type(1))
    is_positive = lax.gt(base, dtype.type(0))
    log_v = lax.mul(lax.log(lax.select(is_positive, base, lax.full_like(base, 1))), dtype.type(3))
    v = lax.exp(log_v)
    # log u < x^2 / 2 + d - d v + d log v, where -log u is exponential.
    bound = lax.add(lax.mul(lax.square(x), dtype.type(0.5)), lax.mul(d, lax.add(lax.sub(dtype.type(1), v), log_v)))
    is_below = lax.lt(lax.neg(standard_exponential(key_u, at, dtype)), bound)
    return lax.bitwise_and(is_positive, is_below), log_v


@custom_jvp
def _log_gamma(key: Any, a: Any) -> Any:
    """Logarithms of gamma samples: Marsaglia and Tsang (2000), doi:10.1145/358407.358414."""
    dtype, shape = a.dtype, a.shape
    key_rounds, key_boost = new_keys(key, 2)
    one = dtype.type(1)
    is_small = lax.lt(a, one)
    # A shape below 1 takes a sample of one more, times u^(1 / a).
    d = lax.sub(lax.select(is_small, lax.add(a, one), a), dtype.type(1 / 3))
    c = lax.div(dtype.type(1 / 3), lax.sqrt(d))
    # A parameter that is not positive gives a NaN, an infinite one infinity, both without a draw.
    is_positive = lax.gt(a, dtype.type(0))
    is_finite = lax.lt(a, dtype.type(np.inf))
    nothing = lax.select(is_positive, lax.full_like(a, 0), lax.full_like(a, np.nan))
    is_done = lax.bitwise_not(lax.bitwise_and(is_positive, is_finite))
    log_v = gamma_rounds_p.of(key_rounds, d, c, nothing, is_done)
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
    # Near 0 the distribution function is x^a / gamma(a + 1), whose level lines are known.
    limit = lax.div(lax.sub(lax.digamma(lax.add(a, a.dtype.type(1))), y), a)
    return y, lax.mul(lax.select(is_tiny, limit, slope), tangents[1])


def log_gamma_samples(key: Any, a: Any) -> Any:
    """Logarithms of gamma samples, one for each element of `a`, from a typed key."""
    if dtypes.itemsize_bits(a.dtype) < 32:
        drawn = _log_gamma(key, lax.convert_element_type(a, np.dtype(np.float32)))
        return lax.convert_element_type(drawn, a.dtype)
    return _log_gamma(key, a)


@distribution()
@reals(2.0, a="the shape parameter, with respect to which the result is differentiable")
def gamma(key: Any, a: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Gamma-distributed numbers: density x^(a - 1) exp(-x) / gamma(a) for x > 0."""
    key = key_of("gamma", key)
    dtype = float_dtype("gamma", dtype)
    _, (a,) = parameters("gamma", shape, dtype, a=a)
    return placed(lax.exp(log_gamma_samples(key, a)), out_sharding)


@distribution()
@reals(1e-6, a="the shape parameter, with respect to which the result is differentiable")
def loggamma(key: Any, a: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Logarithms of gamma-distributed numbers, exact also where those numbers underflow."""
    key = key_of("loggamma", key)
    dtype = float_dtype("loggamma", dtype)
    _, (a,) = parameters("loggamma", shape, dtype, a=a)
    return placed(log_gamma_samples(key, a), out_sharding)


@distribution()
def beta(key: Any, a: Any, b: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Beta-distributed numbers: density proportional to x^(a - 1) (1 - x)^(b - 1) on [0, 1].

    Args:
      key: a key.
      a: the first parameter, which broadcasts to the shape.
      b: the second parameter, which broadcasts to the shape.
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
      >>> x = random.beta(random.key(0), 2.0, 3.0, (9,))
      >>> bool((x > 0).all() and (x < 1).all())
      True
    """
    key = key_of("beta", key)
    dtype = float_dtype("beta", dtype)
    _, (a, b) = parameters("beta", shape, dtype, a=a, b=b)
    key_a, key_b = new_keys(key, 2)
    return placed(lax.logistic(lax.sub(log_gamma_samples(key_a, a), log_gamma_samples(key_b, b))), out_sharding)


@distribution()
def dirichlet(key: Any, alpha: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Vectors of Dirichlet's distribution, each of positive numbers whose sum is 1.

    Args:
      key: a key.
      alpha: the concentrations, float[*batch, n].
      shape: the shape of the batch of vectors, to which that of `alpha` broadcasts; that one if None.
      dtype: a floating dtype; the default one if None.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

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
    key = key_of("dirichlet", key)
    dtype = float_dtype("dirichlet", dtype)
    alpha = as_dtype(alpha, dtype)
    have = aval_of(alpha).shape
    if not have:
        raise ShapeError(
            "random.dirichlet, alpha", expected="an array of rank 1 or more", got="a scalar", mend="pass a vector"
        )
    shape = have if shape is None else (*static_shape("dirichlet", shape), have[-1])
    _, (alpha,) = parameters("dirichlet", shape, dtype, alpha=alpha)
    return placed(_softmax(log_gamma_samples(key, alpha)), out_sharding)


def _softmax(x: Any) -> Any:
    last = x.ndim - 1
    outer = tuple(range(last))
    peak = lax.broadcast_in_dim(lax.stop_gradient(lax.reduce_max(x, (last,))), x.shape, outer)
    powers = lax.exp(lax.sub(x, peak))
    return lax.div(powers, lax.broadcast_in_dim(lax.reduce_sum(powers, (last,)), x.shape, outer))


@distribution()
@reals(3.0, df="the degrees of freedom")
def chisquare(key: Any, df: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Sums of squares of `df` normal numbers, for any positive `df`."""
    key = key_of("chisquare", key)
    dtype = float_dtype("chisquare", dtype)
    _, (df,) = parameters("chisquare", shape, dtype, df=df)
    return placed(lax.exp(_log_chisquare(key, df)), out_sharding)


def _log_chisquare(key: Any, df: Any) -> Any:
    half = lax.mul(df, df.dtype.type(0.5))
    return lax.add(log_gamma_samples(key, half), df.dtype.type(np.log(2)))


@distribution()
@reals(3.0, 4.0, dfnum="the degrees of freedom of the numerator", dfden="those of the denominator")
def f(key: Any, dfnum: Any, dfden: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Ratios of two mean squares: Fisher's F distribution."""
    key = key_of("f", key)
    dtype = float_dtype("f", dtype)
    _, (dfnum, dfden) = parameters("f", shape, dtype, dfnum=dfnum, dfden=dfden)
    key_num, key_den = new_keys(key, 2)
    log_ratio = lax.sub(_log_chisquare(key_num, dfnum), _log_chisquare(key_den, dfden))
    return placed(lax.mul(lax.exp(log_ratio), lax.div(dfden, dfnum)), out_sharding)


@distribution()
@reals(3.0, df="the degrees of freedom")
def t(key: Any, df: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Numbers with Student's t distribution."""
    key = key_of("t", key)
    dtype = float_dtype("t", dtype)
    shape, (df,) = parameters("t", shape, dtype, df=df)
    key_normal, key_gamma = new_keys(key, 2)
    log_mean_square = lax.sub(_log_chisquare(key_gamma, df), lax.log(df))
    scale = lax.exp(lax.mul(log_mean_square, dtype.type(-0.5)))
    return placed(lax.mul(standard_normal(key_normal, shape, dtype), scale), out_sharding)


@distribution()
def generalized_normal(key: Any, p: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Numbers with density proportional to exp(-abs(x)^p).

    Args:
      key: a key.
      p: the power, a number.
      shape: the shape of the result.
      dtype: a floating dtype; the default one if None.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      An array of `dtype` and shape `shape`.

    Raises:
      ArgumentError: `dtype` is not floating.

    Examples:
      >>> from phalanx import random
      >>> random.generalized_normal(random.key(0), 4.0, (9,)).shape
      (9,)
    """
    key = key_of("generalized_normal", key)
    dtype = float_dtype("generalized_normal", dtype)
    return placed(_generalized(key, p, static_shape("generalized_normal", shape), dtype), out_sharding)


def _generalized(key: Any, p: Any, shape: tuple, dtype: Any) -> Any:
    key_size, key_sign = new_keys(key, 2)
    power = broadcast_to(lax.reciprocal(as_dtype(p, dtype)), shape)
    size = lax.exp(lax.mul(log_gamma_samples(key_size, power), power))
    return lax.select(lax.lt(unit(key_sign, shape, dtype), dtype.type(0.5)), lax.neg(size), size)


@distribution("d")
def ball(key: Any, d: int, p: Any = 2.0, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Points of the unit ball of the p-norm, each as likely as any other.

    Args:
      key: a key.
      d: the dimension of the space.
      p: the power of the norm, a number.
      shape: the shape of the batch of points.
      dtype: a floating dtype; the default one if None.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

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
    key = key_of("ball", key)
    dtype = float_dtype("ball", dtype)
    shape = static_shape("ball", shape)
    key_direction, key_radius = new_keys(key, 2)
    drawn = _generalized(key_direction, p, (*shape, d), dtype)
    p = as_dtype(p, dtype)
    powers = lax.pow(lax.abs(drawn), broadcast_to(p, drawn.shape))
    total = lax.add(lax.reduce_sum(powers, (len(shape),)), standard_exponential(key_radius, shape, dtype))
    norm = lax.pow(total, broadcast_to(lax.reciprocal(p), shape))
    return placed(lax.div(drawn, lax.broadcast_in_dim(norm, drawn.shape, tuple(range(len(shape))))), out_sharding)
