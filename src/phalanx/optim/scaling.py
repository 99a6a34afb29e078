"""Transformations that scale updates or add to them: step sizes, schedules, weight decay, momentum, trust ratios.

Builds on `protocol` and `arithmetic`; `optimizers` chains them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from phalanx import numpy as jnp
from phalanx import random
from phalanx.core.errors import ArgumentError
from phalanx.optim.arithmetic import (
    bias_correction,
    cast_tree,
    counter,
    like,
    safe_increment,
    square_norm,
    update_moment,
    zeros_like_tree,
)
from phalanx.optim.combining import masked
from phalanx.optim.protocol import GradientTransformationExtraArgs, Schedule, needed, stateless, transformation
from phalanx.tree import tree_leaves, tree_map, tree_structure, tree_unflatten


class ScaleByScheduleState(NamedTuple):
    """How many updates there have been.

    Args:
      count: int32[].

    Examples:
      >>> from phalanx import optim
      >>> int(optim.scale_by_schedule(lambda count: 1.0).init({"w": 0.0}).count)
      0
    """

    count: Any


class AddDecayedWeightsState(NamedTuple):
    """How many updates there have been.

    Args:
      count: int32[].

    Examples:
      >>> from phalanx import optim
      >>> int(optim.add_decayed_weights(lambda count: 0.1).init({"w": 0.0}).count)
      0
    """

    count: Any


class AddNoiseState(NamedTuple):
    """How many updates there have been, and the random key of the next.

    Args:
      count: int32[].
      rng_key: a random key.

    Examples:
      >>> from phalanx import optim
      >>> int(optim.add_noise(0.1, 0.5, seed=0).init({"w": 0.0}).count)
      0
    """

    count: Any
    rng_key: Any


class TraceState(NamedTuple):
    """The accumulated momentum.

    Args:
      trace: a tree like the parameters.

    Examples:
      >>> from phalanx import optim
      >>> float(optim.trace(0.9).init({"w": 0.0}).trace["w"])
      0.0
    """

    trace: Any


class EmaState(NamedTuple):
    """How many updates there have been, and their moving average.

    Args:
      count: int32[].
      ema: a tree like the parameters.

    Examples:
      >>> from phalanx import optim
      >>> int(optim.ema(0.9).init({"w": 0.0}).count)
      0
    """

    count: Any
    ema: Any


def _times(factor: Any, updates: Any) -> Any:
    """Each leaf times a number, in the leaf's own dtype."""
    return tree_map(lambda g: like(factor, g) * g, updates)


def set_to_zero() -> GradientTransformationExtraArgs:
    """Replace every update by zero, as for parameters that are frozen.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> float(optim.set_to_zero().update(2.0, optim.EmptyState())[0])
      0.0
    """
    return stateless(lambda updates, params: tree_map(jnp.zeros_like, updates))


def scale(step_size: Any) -> GradientTransformationExtraArgs:
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
    return stateless(lambda updates, params: _times(step_size, updates))


def scale_by_schedule(step_size_fn: Schedule) -> GradientTransformationExtraArgs:
    """Multiply updates by a factor that depends on how many there have been.

    Args:
      step_size_fn: takes the count, int[], and gives the factor.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.scale_by_schedule(optim.linear_schedule(1.0, 0.0, 4))
      >>> _, state = tx.update(2.0, tx.init(0.0))
      >>> float(tx.update(2.0, state)[0])
      1.5
    """

    def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> tuple:
        factor = jnp.asarray(step_size_fn(state.count))
        return _times(factor, updates), ScaleByScheduleState(safe_increment(state.count))

    return transformation(lambda params: ScaleByScheduleState(counter()), update)


def scale_by_learning_rate(learning_rate: Any, *, flip_sign: bool = True) -> GradientTransformationExtraArgs:
    """Multiply updates by minus the learning rate: the last link of most chains.

    Args:
      learning_rate: a number, real[], or a schedule.
      flip_sign: go downhill; False leaves the sign.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> float(optim.scale_by_learning_rate(0.5).update(2.0, optim.EmptyState())[0])
      -1.0
    """
    sign = -1 if flip_sign else 1
    if callable(learning_rate):
        return scale_by_schedule(lambda count: sign * learning_rate(count))
    return scale(sign * learning_rate)


def scale_by_sign() -> GradientTransformationExtraArgs:
    """Replace every update by its sign.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> float(optim.scale_by_sign().update(-2.0, optim.EmptyState())[0])
      -1.0
    """
    return stateless(lambda updates, params: tree_map(jnp.sign, updates))


def add_decayed_weights(weight_decay: Any = 0.0, mask: Any = None) -> GradientTransformationExtraArgs:
    """Add the parameters, times a factor, to the updates.

    Args:
      weight_decay: the factor: a number, real[], or a schedule.
      mask: which parameters decay, as in `masked`; None for all.

    Returns:
      The transformation; its `update` needs the parameters.

    Examples:
      >>> from phalanx import optim
      >>> float(optim.add_decayed_weights(0.5).update(1.0, optim.EmptyState(), 2.0)[0])
      2.0

    Source: I. Loshchilov and F. Hutter (2017), arXiv:1711.05101.
    """

    def added(factor: Any, updates: Any, params: Any) -> Any:
        decay = _times(factor, needed(params, "optim.add_decayed_weights"))
        return tree_map(lambda g, p: g + p, updates, decay)

    def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> tuple:
        updates = added(jnp.asarray(weight_decay(state.count)), updates, params)
        return updates, AddDecayedWeightsState(safe_increment(state.count))

    if callable(weight_decay):
        tx = transformation(lambda params: AddDecayedWeightsState(counter()), update)
    else:
        tx = stateless(lambda updates, params: added(weight_decay, updates, params))
    return tx if mask is None else masked(tx, mask)


def add_noise(eta: float, gamma: float, key: Any = None, *, seed: int | None = None) -> GradientTransformationExtraArgs:
    """Add normal noise to updates, of variance eta / (1 + t)^gamma at step t, counted from 1.

    Args:
      eta: the variance at the beginning.
      gamma: how fast it falls.
      key: a random key.
      seed: a number to make the key of, in its place.

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
        raise ArgumentError("optim.add_noise", expected="one of key and seed",
                            got="none" if key is None else "both", mend="pass key=random.key(0)")  # fmt: skip

    def init(params: Any) -> AddNoiseState:
        return AddNoiseState(counter(), random.key(seed) if key is None else key)

    def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> tuple:
        leaves, tree = tree_leaves(updates), tree_structure(updates)
        count = safe_increment(state.count)
        deviation = jnp.sqrt(eta / (1 + count) ** gamma)
        key, *keys = random.split(state.rng_key, len(leaves) + 1)
        noisy = [g + deviation.astype(g.dtype) * random.normal(k, g.shape, g.dtype) for g, k in zip(leaves, keys)]
        return tree_unflatten(tree, noisy), AddNoiseState(count, key)

    return transformation(init, update)


def trace(decay: Any, nesterov: bool = False, accumulator_dtype: Any = None) -> GradientTransformationExtraArgs:
    """Momentum: accumulate t = g + decay t, and put t in the place of g; with Nesterov's correction g + decay t.

    Args:
      decay: the part of the past that stays.
      nesterov: look one step ahead.
      accumulator_dtype: the dtype of the accumulator, by default that of the parameters.

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

    def accumulated(updates: Any, past: Any) -> Any:
        return tree_map(lambda g, t: g + like(decay, t) * t, updates, past)

    def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> tuple:
        traced = accumulated(updates, state.trace)
        out = accumulated(updates, traced) if nesterov else traced
        return out, TraceState(cast_tree(traced, accumulator_dtype))

    return transformation(lambda params: TraceState(zeros_like_tree(params, accumulator_dtype)), update)


def ema(decay: Any, debias: bool = True, accumulator_dtype: Any = None) -> GradientTransformationExtraArgs:
    """Replace updates by their exponential moving average.

    Args:
      decay: the part of the past that stays.
      debias: undo the pull to the zeros that the average begins with.
      accumulator_dtype: the dtype of the average, by default that of the parameters.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.ema(0.5, debias=False)
      >>> float(tx.update(2.0, tx.init(0.0))[0])
      1.0
    """

    def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> tuple:
        average = update_moment(updates, state.ema, decay, 1)
        count = safe_increment(state.count)
        out = bias_correction(average, decay, count) if debias else average
        return out, EmaState(count, cast_tree(average, accumulator_dtype))

    return transformation(lambda params: EmaState(counter(), zeros_like_tree(params, accumulator_dtype)), update)


def _norm(x: Any, smallest: Any) -> Any:
    """The norm of an array, at least `smallest`, with a finite derivative at 0."""
    squares = square_norm(x)
    return jnp.maximum(jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1)), 0), smallest)


def scale_by_trust_ratio(
    min_norm: Any = 0.0, trust_coefficient: Any = 1.0, eps: Any = 0.0
) -> GradientTransformationExtraArgs:
    """Scale each array of updates to the norm of its parameters; where either norm is 0, leave it.

    Args:
      min_norm: norms below it count as this.
      trust_coefficient: factor of the ratio.
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

    def scaled(g: Any, p: Any) -> Any:
        size, length = _norm(p, min_norm), _norm(g, min_norm)
        ratio = trust_coefficient * size / (length + eps)
        idle = jnp.logical_or(size == 0, length == 0)
        return g * jnp.where(idle, 1, ratio).astype(g.dtype)

    return stateless(lambda updates, params: tree_map(scaled, updates, needed(params, "optim.scale_by_trust_ratio")))


def scale_by_param_block_rms(min_scale: float = 1e-3) -> GradientTransformationExtraArgs:
    """Multiply each array of updates by the root mean square of its parameters.

    Args:
      min_scale: root mean squares below it count as this.

    Returns:
      The transformation; its `update` needs the parameters.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.scale_by_param_block_rms()
      >>> float(tx.update(jnp.array(5.0), tx.init(2.0), jnp.array(2.0))[0])
      10.0

    Source: N. Shazeer and M. Stern (2018), arXiv:1804.04235.
    """

    def scaled(g: Any, p: Any) -> Any:
        return g * jnp.maximum(jnp.sqrt(jnp.mean(jnp.square(jnp.abs(p)))), min_scale).astype(g.dtype)

    return stateless(
        lambda updates, params: tree_map(scaled, updates, needed(params, "optim.scale_by_param_block_rms"))
    )
