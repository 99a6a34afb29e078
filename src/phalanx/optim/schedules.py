"""Learning-rate schedules: functions of the number of previous updates.

A schedule accepts a Python number, an array of steps (for plots), and traced values. Builds on `numpy`; optimizers take
a schedule in place of a learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from phalanx import numpy as jnp
from phalanx.core import ArgumentError
from phalanx.optim.gradient_transformation import Scalar, Schedule
from phalanx.typing import Array


def _check_at_least(where: str, value: float, least: float) -> None:
    if value < least:
        raise ArgumentError(where, expected=f"at least {least}", got=value, fix=f"pass {least} or a larger number")


def _check_positive(where: str, steps: int) -> None:
    if steps <= 0:
        raise ArgumentError(
            where, expected="more than 0 steps", got=steps, fix="pass a positive number, or use constant_schedule"
        )


def constant_schedule(value: Scalar) -> Schedule:
    """The same value at every step.

    Args:
      value: the value.

    Returns:
      The schedule.

    Examples:
      >>> from phalanx import optim
      >>> optim.constant_schedule(0.5)(7)
      0.5
    """
    return lambda count: value


def polynomial_schedule(
    init_value: Scalar, end_value: Scalar, power: Scalar, transition_steps: int, transition_begin: int = 0
) -> Schedule:
    """Polynomial interpolation between two values: (init - end) (1 - t / steps)^power + end.

    Args:
      init_value: the value up to `transition_begin`.
      end_value: the value at the end of the transition and after it.
      power: the exponent; 1 for linear interpolation.
      transition_steps: the length of the transition, in steps.
      transition_begin: the first step of the transition.

    Returns:
      The schedule.

    Raises:
      ArgumentError: `transition_steps` is not positive, or `transition_begin` is negative.

    Examples:
      >>> from phalanx import optim
      >>> float(optim.polynomial_schedule(1.0, 0.0, 2, transition_steps=4)(2))
      0.25
    """
    _check_positive("optim.polynomial_schedule, argument transition_steps", transition_steps)
    _check_at_least("optim.polynomial_schedule, argument transition_begin", transition_begin, 0)

    def schedule(count: int | Array) -> Array:
        # Clipped to the transition, so the value is constant before and after it.
        left = 1 - jnp.clip(jnp.asarray(count) - transition_begin, 0, transition_steps) / transition_steps
        return (init_value - end_value) * (left if power == 1 else left**power) + end_value

    return schedule


def linear_schedule(
    init_value: Scalar, end_value: Scalar, transition_steps: int, transition_begin: int = 0
) -> Schedule:
    """Linear interpolation between two values.

    Args:
      init_value, end_value, transition_steps, transition_begin: as in `polynomial_schedule`.

    Returns:
      The schedule.

    Examples:
      >>> from phalanx import optim
      >>> float(optim.linear_schedule(1.0, 0.0, transition_steps=4)(1))
      0.75
    """
    return polynomial_schedule(init_value, end_value, 1, transition_steps, transition_begin)


def cosine_decay_schedule(
    init_value: Scalar, decay_steps: int, alpha: Scalar = 0.0, exponent: Scalar = 1.0
) -> Schedule:
    """Cosine decay from a value to a fraction of it.

    Args:
      init_value: the initial value.
      decay_steps: the length of the decay, in steps.
      alpha: the final value as a fraction of `init_value`.
      exponent: the exponent of the cosine factor.

    Returns:
      The schedule.

    Raises:
      ArgumentError: `decay_steps` is not positive.

    Examples:
      >>> from phalanx import optim
      >>> round(float(optim.cosine_decay_schedule(1.0, decay_steps=4)(2)), 4)
      0.5

    Source: I. Loshchilov and F. Hutter (2016), arXiv:1608.03983.
    """
    _check_positive("optim.cosine_decay_schedule, argument decay_steps", decay_steps)

    def schedule(count: int | Array) -> Array:
        cosine = 0.5 * (1 + jnp.cos(math.pi * jnp.minimum(jnp.asarray(count), decay_steps) / decay_steps))
        return init_value * ((1 - alpha) * (cosine if exponent == 1 else cosine**exponent) + alpha)

    return schedule


def exponential_decay(
    init_value: Scalar,
    transition_steps: int,
    decay_rate: Scalar,
    transition_begin: int = 0,
    staircase: bool = False,
    end_value: Scalar | None = None,
) -> Schedule:
    """Exponential decay: init decay_rate^(t / steps).

    Args:
      init_value: the value up to `transition_begin`.
      transition_steps: the number of steps in which the value changes by the factor `decay_rate`.
      decay_rate: the factor, not 0.
      transition_begin: the first step of the decay.
      staircase: change the value only at multiples of `transition_steps`.
      end_value: the bound at which the decay stops; None for no bound.

    Returns:
      The schedule.

    Raises:
      ArgumentError: `transition_steps` is not positive, `transition_begin` is negative, or `decay_rate` is 0.

    Examples:
      >>> from phalanx import optim
      >>> float(optim.exponential_decay(1.0, transition_steps=2, decay_rate=0.5)(4))
      0.25
    """
    _check_positive("optim.exponential_decay, argument transition_steps", transition_steps)
    _check_at_least("optim.exponential_decay, argument transition_begin", transition_begin, 0)
    if decay_rate == 0:
        raise ArgumentError(
            "optim.exponential_decay, argument decay_rate",
            expected="a rate other than 0",
            got=0,
            fix="pass a small positive rate such as 1e-6",
        )

    def schedule(count: int | Array) -> Array:
        rounds = jnp.maximum(jnp.asarray(count) - transition_begin, 0) / transition_steps
        value = init_value * decay_rate ** (jnp.floor(rounds) if staircase else rounds)
        if end_value is None:
            return value
        # `end_value` bounds a decaying value from below, and a growing one from above.
        return (jnp.maximum if decay_rate < 1 else jnp.minimum)(value, end_value)

    return schedule


def piecewise_constant_schedule(
    init_value: Scalar, boundaries_and_scales: Mapping[int, float] | None = None
) -> Schedule:
    """A piecewise constant value, multiplied by a factor at each boundary.

    Args:
      init_value: the initial value.
      boundaries_and_scales: the factor at each boundary, a number of steps.

    Returns:
      The schedule.

    Raises:
      ArgumentError: a factor is negative.

    Examples:
      >>> from phalanx import optim
      >>> schedule = optim.piecewise_constant_schedule(1.0, {2: 0.5, 4: 0.5})
      >>> [float(schedule(t)) for t in (1, 2, 5)]
      [1.0, 0.5, 0.25]
    """
    steps = sorted((boundaries_and_scales or {}).items())
    for _, factor in steps:
        _check_at_least("optim.piecewise_constant_schedule, a scale", factor, 0)

    def schedule(count: int | Array) -> Array:
        scales = [jnp.where(jnp.asarray(count) >= step, factor, 1.0) for step, factor in steps]
        return math.prod(scales, start=jnp.asarray(init_value))

    return schedule


def piecewise_interpolate_schedule(
    interpolate_type: str, init_value: Scalar, boundaries_and_scales: Mapping[int, float] | None = None
) -> Schedule:
    """Linear or cosine interpolation between values at given steps.

    Args:
      interpolate_type: `"linear"` or `"cosine"`.
      init_value: the value at step 0.
      boundaries_and_scales: for each boundary, the ratio of its value to the value at the previous boundary.

    Returns:
      The schedule.

    Raises:
      ArgumentError: the interpolation type is unknown, or a ratio is negative.

    Examples:
      >>> from phalanx import optim
      >>> schedule = optim.piecewise_interpolate_schedule("linear", 1.0, {2: 0.5, 4: 0.5})
      >>> [float(schedule(t)) for t in (1, 2, 4)]
      [0.75, 0.5, 0.25]
    """
    where = "optim.piecewise_interpolate_schedule"
    if interpolate_type not in ("linear", "cosine"):
        raise ArgumentError(
            f"{where}, argument interpolate_type",
            expected="'linear' or 'cosine'",
            got=repr(interpolate_type),
            fix="pass 'linear', or use piecewise_constant_schedule for a staircase",
        )
    pairs = sorted((boundaries_and_scales or {}).items())
    for _, factor in pairs:
        _check_at_least(f"{where}, a scale", factor, 0)
    # Each ratio is relative to the previous boundary.
    values = np.cumprod([float(init_value), *(factor for _, factor in pairs)])
    steps = [0, *(step for step, _ in pairs)]

    def schedule(count: int | Array) -> Array:
        count, out = jnp.asarray(count), jnp.asarray(values[-1], np.float32)
        # Intervals from the last to the first: each `where` keeps the values after its interval and replaces others.
        for begin, end, low, high in reversed(list(zip(steps, steps[1:], values, values[1:]))):
            part = (count - begin) / (end - begin)
            if interpolate_type == "cosine":
                part = 0.5 * (1 - jnp.cos(math.pi * part))
            out = jnp.where(count < end, low + (high - low) * part, out)
        return out

    return schedule


def join_schedules(schedules: Sequence[Schedule], boundaries: Sequence[int]) -> Schedule:
    """Concatenate schedules; each counts its steps from the boundary where it begins.

    Args:
      schedules: the schedules.
      boundaries: the steps at which the second and later schedules begin.

    Returns:
      The schedule.

    Raises:
      ArgumentError: the number of boundaries is not one less than the number of schedules.

    Examples:
      >>> from phalanx import optim
      >>> up, down = optim.linear_schedule(0.0, 1.0, 2), optim.linear_schedule(1.0, 0.0, 2)
      >>> [float(optim.join_schedules([up, down], [2])(t)) for t in range(5)]
      [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    if len(boundaries) != len(schedules) - 1:
        raise ArgumentError(
            "optim.join_schedules, argument boundaries",
            expected=f"{len(schedules) - 1} steps",
            got=f"{len(boundaries)}",
            fix="pass the first step of each schedule except the first one",
        )

    def schedule(count: int | Array) -> Array:
        count = jnp.asarray(count)
        value = schedules[0](count)
        # All schedules are evaluated and one is selected, since the count may be traced.
        for begin, later in zip(boundaries, schedules[1:]):
            value = jnp.where(count < begin, value, later(count - begin))
        return value

    return schedule


def _after_warmup(init_value: Scalar, peak_value: Scalar, warmup_steps: int, then: Schedule) -> Schedule:
    """A linear warmup from `init_value` to `peak_value`, followed by `then`."""
    # A linear schedule of 0 steps is an error, and would divide by 0.
    if warmup_steps == 0:
        return then
    return join_schedules([linear_schedule(init_value, peak_value, warmup_steps), then], [warmup_steps])


def warmup_constant_schedule(init_value: Scalar, peak_value: Scalar, warmup_steps: int) -> Schedule:
    """A linear warmup, then a constant value.

    Args:
      init_value: the initial value.
      peak_value: the value after the warmup.
      warmup_steps: the length of the warmup, in steps.

    Returns:
      The schedule.

    Examples:
      >>> from phalanx import optim
      >>> [float(optim.warmup_constant_schedule(0.0, 1.0, 2)(t)) for t in (0, 1, 9)]
      [0.0, 0.5, 1.0]
    """
    return _after_warmup(init_value, peak_value, warmup_steps, constant_schedule(peak_value))


def warmup_cosine_decay_schedule(
    init_value: Scalar,
    peak_value: Scalar,
    warmup_steps: int,
    decay_steps: int,
    end_value: Scalar = 0.0,
    exponent: Scalar = 1.0,
) -> Schedule:
    """A linear warmup, then cosine decay.

    Args:
      init_value: the initial value.
      peak_value: the value after the warmup.
      warmup_steps: the length of the warmup, in steps.
      decay_steps: the length of warmup and decay together.
      end_value: the value at the end of the decay and after it.
      exponent: the exponent of the cosine factor.

    Returns:
      The schedule.

    Raises:
      ArgumentError: `decay_steps` is not above `warmup_steps`.

    Examples:
      >>> from phalanx import optim
      >>> schedule = optim.warmup_cosine_decay_schedule(0.0, 1.0, warmup_steps=2, decay_steps=6)
      >>> [round(float(schedule(t)), 4) for t in (0, 1, 2, 4, 6)]
      [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    # Cosine decay takes the final value as a fraction of the peak, which is undefined for a peak of 0.
    alpha = 0.0 if peak_value == 0 else end_value / peak_value
    decay = cosine_decay_schedule(peak_value, decay_steps - warmup_steps, alpha, exponent)
    return _after_warmup(init_value, peak_value, warmup_steps, decay)


def warmup_exponential_decay_schedule(
    init_value: Scalar,
    peak_value: Scalar,
    warmup_steps: int,
    transition_steps: int,
    decay_rate: Scalar,
    transition_begin: int = 0,
    staircase: bool = False,
    end_value: Scalar | None = None,
) -> Schedule:
    """A linear warmup, then exponential decay.

    Args:
      init_value: the initial value.
      peak_value: the value after the warmup.
      warmup_steps: the length of the warmup, in steps.
      transition_steps, decay_rate, transition_begin, staircase, end_value: as in `exponential_decay`.

    Returns:
      The schedule.

    Examples:
      >>> from phalanx import optim
      >>> schedule = optim.warmup_exponential_decay_schedule(0.0, 1.0, 2, 2, 0.5)
      >>> [float(schedule(t)) for t in (0, 1, 2, 4)]
      [0.0, 0.5, 1.0, 0.5]
    """
    decay = exponential_decay(peak_value, transition_steps, decay_rate, transition_begin, staircase, end_value)
    return _after_warmup(init_value, peak_value, warmup_steps, decay)


def sgdr_schedule(cosine_kwargs: Sequence[Mapping[str, Any]]) -> Schedule:
    """Cosine decay with warm restarts.

    Args:
      cosine_kwargs: the arguments of `warmup_cosine_decay_schedule` for each cycle.

    Returns:
      The schedule.

    Examples:
      >>> from phalanx import optim
      >>> rounds = dict(init_value=0.0, peak_value=1.0, warmup_steps=1, decay_steps=3)
      >>> round(float(optim.sgdr_schedule([rounds, rounds])(4)), 4)
      1.0

    Source: I. Loshchilov and F. Hutter (2016), arXiv:1608.03983.
    """
    ends = np.cumsum([kwargs["decay_steps"] for kwargs in cosine_kwargs])
    return join_schedules([warmup_cosine_decay_schedule(**kwargs) for kwargs in cosine_kwargs], ends[:-1].tolist())


def linear_onecycle_schedule(
    transition_steps: int,
    peak_value: Scalar,
    pct_start: float = 0.3,
    pct_final: float = 0.85,
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
) -> Schedule:
    """The one-cycle policy with linear interpolation: up, back to the initial value, then down to almost 0.

    Args:
      transition_steps: the length of the cycle, in steps.
      peak_value: the largest value.
      pct_start: the fraction of the cycle in which the value increases.
      pct_final: the fraction of the cycle after which the final decay begins.
      div_factor: the ratio of the largest value to the initial one.
      final_div_factor: the ratio of the initial value to the final one.

    Returns:
      The schedule.

    Examples:
      >>> from phalanx import optim
      >>> schedule = optim.linear_onecycle_schedule(100, 1.0)
      >>> [round(float(schedule(step)), 3) for step in (0, 30, 85)]
      [0.04, 1.0, 0.04]

    Source: L. N. Smith and N. Topin (2017), arXiv:1708.07120.
    """
    _check_positive("optim.linear_onecycle_schedule, argument transition_steps", transition_steps)
    ratios = {
        int(pct_start * transition_steps): div_factor,
        int(pct_final * transition_steps): 1.0 / div_factor,
        transition_steps: 1.0 / final_div_factor,
    }
    return piecewise_interpolate_schedule("linear", peak_value / div_factor, ratios)


def cosine_onecycle_schedule(
    transition_steps: int,
    peak_value: Scalar,
    pct_start: float = 0.3,
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
) -> Schedule:
    """The one-cycle policy with cosine interpolation: up, then down to almost 0.

    Args:
      transition_steps, peak_value, pct_start, div_factor, final_div_factor: as in `linear_onecycle_schedule`.

    Returns:
      The schedule.

    Examples:
      >>> from phalanx import optim
      >>> schedule = optim.cosine_onecycle_schedule(100, 1.0)
      >>> [round(float(schedule(step)), 3) for step in (0, 30, 100)]
      [0.04, 1.0, 0.0]

    Source: L. N. Smith and N. Topin (2017), arXiv:1708.07120.
    """
    _check_positive("optim.cosine_onecycle_schedule, argument transition_steps", transition_steps)
    ratios = {int(pct_start * transition_steps): div_factor, transition_steps: 1.0 / (div_factor * final_div_factor)}
    return piecewise_interpolate_schedule("cosine", peak_value / div_factor, ratios)
