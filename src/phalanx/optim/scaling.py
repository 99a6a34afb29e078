"""Scaling updates and adding to them: step sizes, schedules, weight decay, momentum, noise and trust ratios.

Builds on `gradient_transformation` and `tree_arithmetic`; `optimizers` chains them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from phalanx import numpy as jnp, random
from phalanx.core import ArgumentError
from phalanx.optim.composition import masked
from phalanx.optim.gradient_transformation import (
    GradientTransformationExtraArgs,
    Scalar,
    ScalarOrSchedule,
    Schedule,
    make_transformation,
    require_params,
    stateless,
)
from phalanx.optim.tree_arithmetic import (
    bias_correction,
    cast_tree,
    init_count,
    match_dtype,
    safe_increment,
    squared_norm,
    update_moment,
    zeros_like_tree,
)
from phalanx.tree import tree_flatten, tree_map, tree_unflatten
from phalanx.typing import Array, DTypeLike, PRNGKey, PyTree


class ScaleByScheduleState(NamedTuple):
    """The state of a transformation with a schedule.

    Args:
      count: int32[], the number of updates.

    Examples:
      >>> from phalanx import optim
      >>> int(optim.scale_by_schedule(lambda count: 1.0).init({"w": 0.0}).count)
      0
    """

    count: Any


class AddDecayedWeightsState(NamedTuple):
    """The state of a transformation with a schedule.

    Args:
      count: int32[], the number of updates.

    Examples:
      >>> from phalanx import optim
      >>> int(optim.add_decayed_weights(lambda count: 0.1).init({"w": 0.0}).count)
      0
    """

    count: Any


class AddNoiseState(NamedTuple):
    """The state of `add_noise`.

    Args:
      count: int32[], the number of updates.
      rng_key: the random key of the next update.

    Examples:
      >>> from phalanx import optim
      >>> int(optim.add_noise(0.1, 0.5, seed=0).init({"w": 0.0}).count)
      0
    """

    count: Any
    rng_key: Any


class TraceState(NamedTuple):
    """The state of `trace`.

    Args:
      trace: the accumulated momentum, a tree like the parameters.

    Examples:
      >>> from phalanx import optim
      >>> float(optim.trace(0.9).init({"w": 0.0}).trace["w"])
      0.0
    """

    trace: PyTree


class EmaState(NamedTuple):
    """The state of `ema`.

    Args:
      count: int32[], the number of updates.
      ema: the moving average of the updates, a tree like the parameters.

    Examples:
      >>> from phalanx import optim
      >>> int(optim.ema(0.9).init({"w": 0.0}).count)
      0
    """

    count: Any
    ema: PyTree


def _scale_tree(factor: Scalar, updates: PyTree) -> PyTree:
    """Multiply each leaf by a factor without changing its dtype."""
    return tree_map(lambda g: match_dtype(factor, g) * g, updates)


def set_to_zero() -> GradientTransformationExtraArgs:
    """Replace every update by zero, which freezes the parameters.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> float(optim.set_to_zero().update(2.0, optim.EmptyState())[0])
      0.0
    """
    return stateless(lambda updates, params: tree_map(jnp.zeros_like, updates))


def scale(step_size: Scalar) -> GradientTransformationExtraArgs:
    """Multiply updates by a number.

    Args:
      step_size: the factor, a number or real[].

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> float(optim.scale(-0.5).update(2.0, optim.EmptyState())[0])
      -1.0
    """
    return stateless(lambda updates, params: _scale_tree(step_size, updates))


def scale_by_schedule(step_size_fn: Schedule) -> GradientTransformationExtraArgs:
    """Multiply updates by a factor that depends on the number of previous updates.

    Args:
      step_size_fn: maps the number of previous updates, int[], to the factor.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.scale_by_schedule(optim.linear_schedule(1.0, 0.0, 4))
      >>> _, state = tx.update(2.0, tx.init(0.0))
      >>> float(tx.update(2.0, state)[0])
      1.5
    """

    def update(updates: PyTree, state: Any, params: PyTree = None, **extra_args: Any) -> tuple:
        factor = jnp.asarray(step_size_fn(state.count))
        return _scale_tree(factor, updates), ScaleByScheduleState(safe_increment(state.count))

    return make_transformation(lambda params: ScaleByScheduleState(init_count()), update)


def scale_by_learning_rate(
    learning_rate: ScalarOrSchedule, *, flip_sign: bool = True
) -> GradientTransformationExtraArgs:
    """Multiply updates by the negative learning rate, usually the last transformation of a chain.

    Args:
      learning_rate: a number, real[], or a schedule.
      flip_sign: whether to negate the learning rate, for minimization.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> float(optim.scale_by_learning_rate(0.5).update(2.0, optim.EmptyState())[0])
      -1.0
    """
    sign = -1 if flip_sign else 1
    # A constant learning rate needs no step counter, so its state is empty.
    if callable(learning_rate):
        return scale_by_schedule(lambda count: sign * learning_rate(count))
    return scale(sign * learning_rate)


def scale_by_sign() -> GradientTransformationExtraArgs:
    """Replace each element of the updates by its sign.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> float(optim.scale_by_sign().update(-2.0, optim.EmptyState())[0])
      -1.0
    """
    return stateless(lambda updates, params: tree_map(jnp.sign, updates))


def add_decayed_weights(
    weight_decay: ScalarOrSchedule = 0.0, mask: PyTree | Callable[[PyTree], PyTree] | None = None
) -> GradientTransformationExtraArgs:
    """Add the parameters times a factor to the updates.

    Args:
      weight_decay: the factor: a number, real[], or a schedule.
      mask: the parameters that decay, as in `masked`; None for all.

    Returns:
      The transformation; its `update` needs the parameters.

    Examples:
      >>> from phalanx import optim
      >>> float(optim.add_decayed_weights(0.5).update(1.0, optim.EmptyState(), 2.0)[0])
      2.0

    Source: I. Loshchilov and F. Hutter (2017), arXiv:1711.05101.
    """

    def add_decay(factor: Scalar, updates: PyTree, params: PyTree) -> PyTree:
        params = require_params(params, "optim.add_decayed_weights")
        return tree_map(lambda g, p: g + match_dtype(factor, p) * p, updates, params)

    def update(updates: PyTree, state: Any, params: PyTree = None, **extra_args: Any) -> tuple:
        updates = add_decay(jnp.asarray(schedule(state.count)), updates, params)
        return updates, AddDecayedWeightsState(safe_increment(state.count))

    if callable(weight_decay):
        schedule = weight_decay
        tx = make_transformation(lambda params: AddDecayedWeightsState(init_count()), update)
    else:
        tx = stateless(lambda updates, params: add_decay(weight_decay, updates, params))
    return tx if mask is None else masked(tx, mask)


def add_noise(
    eta: float, gamma: float, key: PRNGKey | None = None, *, seed: int | None = None
) -> GradientTransformationExtraArgs:
    """Add normal noise to updates, with variance eta / (1 + t)^gamma at step t, counted from 1.

    Args:
      eta: the scale of the variance.
      gamma: the exponent of the decay of the variance.
      key: a random key.
      seed: an integer seed, instead of a key.

    Returns:
      The transformation.

    Raises:
      ArgumentError: neither or both of `key` and `seed` are given.

    Examples:
      >>> from phalanx import optim
      >>> tx, params = optim.add_noise(0.0, 0.5, seed=0), {"w": jnp.ones(2)}
      >>> tx.update({"w": jnp.ones(2)}, tx.init(params))[0]["w"].tolist()
      [1.0, 1.0]

    Source: A. Neelakantan et al. (2015), arXiv:1511.06807.
    """
    if (key is None) == (seed is None):
        raise ArgumentError(
            "optim.add_noise",
            expected="one of key and seed",
            got="none" if key is None else "both",
            fix="pass only key=phalanx.random.key(0), or only seed=0",
        )

    def update(updates: PyTree, state: Any, params: PyTree = None, **extra_args: Any) -> tuple:
        leaves, tree = tree_flatten(updates)
        # Incremented first, since the paper counts steps from 1.
        count = safe_increment(state.count)
        deviation = jnp.sqrt(eta / (1 + count) ** gamma)
        # One key for each leaf and one for the next update, so that noise is independent across both.
        key, *keys = random.split(state.rng_key, len(leaves) + 1)
        noisy = [g + deviation.astype(g.dtype) * random.normal(k, g.shape, g.dtype) for g, k in zip(leaves, keys)]
        return tree_unflatten(tree, noisy), AddNoiseState(count, key)

    return make_transformation(
        lambda params: AddNoiseState(init_count(), key if seed is None else random.key(seed)), update
    )


def trace(
    decay: Scalar, nesterov: bool = False, accumulator_dtype: DTypeLike | None = None
) -> GradientTransformationExtraArgs:
    """Momentum: accumulate t = g + decay t and return t, or g + decay t with Nesterov's correction.

    Args:
      decay: the weight of the previous accumulator.
      nesterov: whether to use Nesterov momentum.
      accumulator_dtype: the dtype of the accumulator; by default the dtype of each parameter.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.trace(0.5)
      >>> _, state = tx.update(2.0, tx.init(0.0))
      >>> float(tx.update(2.0, state)[0])
      3.0

    Source: B. T. Polyak (1964), doi:10.1016/0041-5553(64)90137-5; I. Sutskever et al., ICML (2013).
    """

    def accumulate(updates: PyTree, past: PyTree) -> PyTree:
        return tree_map(lambda g, t: g + match_dtype(decay, t) * t, updates, past)

    def update(updates: PyTree, state: Any, params: PyTree = None, **extra_args: Any) -> tuple:
        # The learning rate is applied after the accumulation, as in Optax; a changed rate affects past gradients too.
        traced = accumulate(updates, state.trace)
        out = accumulate(updates, traced) if nesterov else traced
        return out, TraceState(cast_tree(traced, accumulator_dtype))

    return make_transformation(lambda params: TraceState(zeros_like_tree(params, accumulator_dtype)), update)


def ema(
    decay: Scalar, debias: bool = True, accumulator_dtype: DTypeLike | None = None
) -> GradientTransformationExtraArgs:
    """Replace updates by their exponential moving average.

    Args:
      decay: the weight of the previous average.
      debias: whether to correct for the initialization of the average with zeros.
      accumulator_dtype: the dtype of the average; by default the dtype of each parameter.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.ema(0.5, debias=False)
      >>> float(tx.update(2.0, tx.init(0.0))[0])
      1.0
    """

    def update(updates: PyTree, state: Any, params: PyTree = None, **extra_args: Any) -> tuple:
        average = update_moment(updates, state.ema, decay, 1)
        count = safe_increment(state.count)
        out = bias_correction(average, decay, count) if debias else average
        return out, EmaState(count, cast_tree(average, accumulator_dtype))

    return make_transformation(
        lambda params: EmaState(init_count(), zeros_like_tree(params, accumulator_dtype)), update
    )


def _norm(x: Array, smallest: Scalar) -> Any:
    """The norm of an array, at least `smallest`; its derivative at 0 is 0 and not NaN."""
    squares = squared_norm(x)
    # The derivative of sqrt at 0 is infinite, and `where` alone would turn it into NaN times 0.
    return jnp.maximum(jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1)), 0), smallest)


def scale_by_trust_ratio(
    min_norm: Scalar = 0.0, trust_coefficient: Scalar = 1.0, eps: Scalar = 0.0
) -> GradientTransformationExtraArgs:
    """Scale each array of updates to the norm of its parameters, unless one of the norms is 0.

    Args:
      min_norm: a lower bound of the norms.
      trust_coefficient: a factor of the ratio of the norms.
      eps: added to the norm of the updates.

    Returns:
      The transformation; its `update` needs the parameters.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.scale_by_trust_ratio()
      >>> round(float(tx.update(jnp.array(5.0), tx.init(2.0), jnp.array(2.0))[0]), 4)
      2.0

    Source: Y. You, I. Gitman and B. Ginsburg (2017), arXiv:1708.03888.
    """

    def scale_leaf(g: Array, p: Array) -> Array:
        # The norm of the parameters, and the norm of the updates.
        size, length = _norm(p, min_norm), _norm(g, min_norm)
        ratio = trust_coefficient * size / (length + eps)
        return g * jnp.where(jnp.logical_or(size == 0, length == 0), 1, ratio).astype(g.dtype)

    return stateless(
        lambda updates, params: tree_map(scale_leaf, updates, require_params(params, "optim.scale_by_trust_ratio"))
    )


def scale_by_param_block_rms(min_scale: float = 1e-3) -> GradientTransformationExtraArgs:
    """Multiply each array of updates by the root mean square of its parameters.

    Args:
      min_scale: a lower bound of the root mean square.

    Returns:
      The transformation; its `update` needs the parameters.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.scale_by_param_block_rms()
      >>> float(tx.update(jnp.array(5.0), tx.init(2.0), jnp.array(2.0))[0])
      10.0

    Source: N. Shazeer and M. Stern (2018), arXiv:1804.04235.
    """

    def scale_leaf(g: Array, p: Array) -> Array:
        return g * jnp.maximum(jnp.sqrt(jnp.mean(jnp.square(jnp.abs(p)))), min_scale).astype(g.dtype)

    return stateless(
        lambda updates, params: tree_map(scale_leaf, updates, require_params(params, "optim.scale_by_param_block_rms"))
    )
