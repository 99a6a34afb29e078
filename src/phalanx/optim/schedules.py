"""Schedules: functions of the number of steps so far that give a step size.

Each works on a Python number, on an array of steps (to be drawn), and while traced. Builds on `numpy`; optimisers take
them in the place of a learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from phalanx import numpy as jnp
from phalanx.core.errors import ArgumentError

Schedule = Callable[[Any], Any]


def _at_least(where: str, value: Any, least: Any) -> None:
    if value < least:
        raise ArgumentError(where, expected=f"at least {least}", got=value, mend="count it in steps")


def _positive(where: str, steps: Any) -> None:
    if steps <= 0:
        raise ArgumentError(where, expected="more than 0 steps", got=steps, mend="leave the schedule out of the chain")


def constant_schedule(value: Any) -> Schedule:
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
    init_value: Any, end_value: Any, power: Any, transition_steps: int, transition_begin: int = 0
) -> Schedule:
    """From one value to another: (init - end) (1 - t / steps)^power + end.

    Args:
      init_value: the value at the beginning, and before.
      end_value: the value at the end, and after.
      power: 1 for a line.
      transition_steps: how long it takes.
      transition_begin: the step at which it begins.

    Returns:
      The schedule.

    Raises:
      ArgumentError: there are no steps, or the beginning is negative.

    Examples:
      >>> from phalanx import optim
      >>> float(optim.polynomial_schedule(1.0, 0.0, 2, transition_steps=4)(2))
      0.25
    """
    _positive("optim.polynomial_schedule, argument transition_steps", transition_steps)
    _at_least("optim.polynomial_schedule, argument transition_begin", transition_begin, 0)

    def schedule(count: Any) -> Any:
        left = 1 - jnp.clip(jnp.asarray(count) - transition_begin, 0, transition_steps) / transition_steps
        return (init_value - end_value) * (left if power == 1 else left**power) + end_value

    return schedule


def linear_schedule(init_value: Any, end_value: Any, transition_steps: int, transition_begin: int = 0) -> Schedule:
    """From one value to another along a line.

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


def cosine_decay_schedule(init_value: Any, decay_steps: int, alpha: Any = 0.0, exponent: Any = 1.0) -> Schedule:
    """From a value to a part of it along half a cosine.

    Args:
      init_value: the value at the beginning.
      decay_steps: how long it takes.
      alpha: the part that is left.
      exponent: a power of the cosine.

    Returns:
      The schedule.

    Raises:
      ArgumentError: there are no steps.

    Examples:
      >>> from phalanx import optim
      >>> round(float(optim.cosine_decay_schedule(1.0, decay_steps=4)(2)), 4)
      0.5

    Source: I. Loshchilov and F. Hutter (2016), arXiv:1608.03983.
    """
    _positive("optim.cosine_decay_schedule, argument decay_steps", decay_steps)

    def schedule(count: Any) -> Any:
        cosine = 0.5 * (1 + jnp.cos(math.pi * jnp.minimum(jnp.asarray(count), decay_steps) / decay_steps))
        return init_value * ((1 - alpha) * (cosine if exponent == 1 else cosine**exponent) + alpha)

    return schedule


def exponential_decay(
    init_value: Any,
    transition_steps: int,
    decay_rate: Any,
    transition_begin: int = 0,
    staircase: bool = False,
    end_value: Any = None,
) -> Schedule:
    """Geometric decay: init decay_rate^(t / steps).

    Args:
      init_value: the value at the beginning, and before.
      transition_steps: the steps in which the value changes by `decay_rate`.
      decay_rate: the ratio.
      transition_begin: the step at which it begins.
      staircase: change at multiples of `transition_steps` only.
      end_value: where it stops.

    Returns:
      The schedule.

    Raises:
      ArgumentError: there are no steps, the beginning is negative, or the rate is 0.

    Examples:
      >>> from phalanx import optim
      >>> float(optim.exponential_decay(1.0, transition_steps=2, decay_rate=0.5)(4))
      0.25
    """
    _positive("optim.exponential_decay, argument transition_steps", transition_steps)
    _at_least("optim.exponential_decay, argument transition_begin", transition_begin, 0)
    if decay_rate == 0:
        raise ArgumentError("optim.exponential_decay, argument decay_rate", expected="a rate other than 0", got=0,
                            mend="use a small one")  # fmt: skip

    def schedule(count: Any) -> Any:
        rounds = jnp.maximum(jnp.asarray(count) - transition_begin, 0) / transition_steps
        value = init_value * decay_rate ** (jnp.floor(rounds) if staircase else rounds)
        if end_value is None:
            return value
        return (jnp.maximum if decay_rate < 1 else jnp.minimum)(value, end_value)

    return schedule


def piecewise_constant_schedule(init_value: Any, boundaries_and_scales: Mapping[int, float] | None = None) -> Schedule:
    """A value that is multiplied by a factor at each of some steps.

    Args:
      init_value: the value at the beginning.
      boundaries_and_scales: factors by step.

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
        _at_least("optim.piecewise_constant_schedule, a scale", factor, 0)

    def schedule(count: Any) -> Any:
        value = jnp.asarray(init_value)
        for step, factor in steps:
            value = value * jnp.where(jnp.asarray(count) >= step, factor, 1.0)
        return value

    return schedule


def piecewise_interpolate_schedule(
    interpolate_type: str, init_value: Any, boundaries_and_scales: Mapping[int, float] | None = None
) -> Schedule:
    """From each of some values to the next along lines or half cosines.

    Args:
      interpolate_type: `"linear"` or `"cosine"`.
      init_value: the value at step 0.
      boundaries_and_scales: at each of these steps, the ratio to the value at the step before it.

    Returns:
      The schedule.

    Raises:
      ArgumentError: the type is another, or a ratio is negative.

    Examples:
      >>> from phalanx import optim
      >>> schedule = optim.piecewise_interpolate_schedule("linear", 1.0, {2: 0.5, 4: 0.5})
      >>> [float(schedule(t)) for t in (1, 2, 4)]
      [0.75, 0.5, 0.25]
    """
    where = "optim.piecewise_interpolate_schedule"
    if interpolate_type not in ("linear", "cosine"):
        raise ArgumentError(f"{where}, argument interpolate_type", expected="'linear' or 'cosine'",
                            got=repr(interpolate_type), mend="use piecewise_constant_schedule for steps")  # fmt: skip
    steps, factors = [0], [float(init_value)]
    for step, factor in sorted((boundaries_and_scales or {}).items()):
        _at_least(f"{where}, a scale", factor, 0)
        steps.append(step)
        factors.append(factor)
    values = np.cumprod(factors)

    def schedule(count: Any) -> Any:
        count, out = jnp.asarray(count), jnp.asarray(values[-1], np.float32)
        for begin, end, low, high in reversed(list(zip(steps, steps[1:], values, values[1:]))):
            part = (count - begin) / (end - begin)
            if interpolate_type == "cosine":
                part = 0.5 * (1 - jnp.cos(math.pi * part))
            out = jnp.where(count < end, low + (high - low) * part, out)
        return out

    return schedule


def join_schedules(schedules: Sequence[Schedule], boundaries: Sequence[int]) -> Schedule:
    """One schedule after the other; each counts its steps from its own beginning.

    Args:
      schedules: the schedules.
      boundaries: the steps at which the second and all later ones begin.

    Returns:
      The schedule.

    Raises:
      ArgumentError: there is not one boundary less than there are schedules.

    Examples:
      >>> from phalanx import optim
      >>> up, down = optim.linear_schedule(0.0, 1.0, 2), optim.linear_schedule(1.0, 0.0, 2)
      >>> [float(optim.join_schedules([up, down], [2])(t)) for t in range(5)]
      [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    if len(boundaries) != len(schedules) - 1:
        raise ArgumentError("optim.join_schedules, argument boundaries", expected=f"{len(schedules) - 1} steps",
                            got=f"{len(boundaries)}", mend="name where each but the first begins")  # fmt: skip

    def schedule(count: Any) -> Any:
        count = jnp.asarray(count)
        value = schedules[0](count)
        for begin, later in zip(boundaries, schedules[1:]):
            value = jnp.where(count < begin, value, later(count - begin))
        return value

    return schedule


def _after_warmup(init_value: Any, peak_value: Any, warmup_steps: int, then: Schedule) -> Schedule:
    """A schedule after a line from `init_value` to `peak_value`; without the line where it would have no steps."""
    if warmup_steps == 0:
        return then
    return join_schedules([linear_schedule(init_value, peak_value, warmup_steps), then], [warmup_steps])


def warmup_constant_schedule(init_value: Any, peak_value: Any, warmup_steps: int) -> Schedule:
    """A line from one value to another, which then stays.

    Args:
      init_value: the value at the beginning.
      peak_value: the value that stays.
      warmup_steps: how long the line is.

    Returns:
      The schedule.

    Examples:
      >>> from phalanx import optim
      >>> [float(optim.warmup_constant_schedule(0.0, 1.0, 2)(t)) for t in (0, 1, 9)]
      [0.0, 0.5, 1.0]
    """
    return _after_warmup(init_value, peak_value, warmup_steps, constant_schedule(peak_value))


def warmup_cosine_decay_schedule(
    init_value: Any, peak_value: Any, warmup_steps: int, decay_steps: int, end_value: Any = 0.0, exponent: Any = 1.0
) -> Schedule:
    """A line up to a value, then half a cosine down.

    Args:
      init_value: the value at the beginning.
      peak_value: the largest.
      warmup_steps: how long the line is.
      decay_steps: how long both are together.
      end_value: the value at the end, and after.
      exponent: a power of the cosine.

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
    alpha = 0.0 if peak_value == 0 else end_value / peak_value
    decay = cosine_decay_schedule(peak_value, decay_steps - warmup_steps, alpha, exponent)
    return _after_warmup(init_value, peak_value, warmup_steps, decay)


def warmup_exponential_decay_schedule(
    init_value: Any,
    peak_value: Any,
    warmup_steps: int,
    transition_steps: int,
    decay_rate: Any,
    transition_begin: int = 0,
    staircase: bool = False,
    end_value: Any = None,
) -> Schedule:
    """A line up to a value, then geometric decay.

    Args:
      init_value: the value at the beginning.
      peak_value: the largest.
      warmup_steps: how long the line is.
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
      cosine_kwargs: for each round the arguments of `warmup_cosine_decay_schedule`.

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
    schedules = [warmup_cosine_decay_schedule(**kwargs) for kwargs in cosine_kwargs]
    return join_schedules(schedules, [int(end) for end in ends[:-1]])


def linear_onecycle_schedule(
    transition_steps: int,
    peak_value: Any,
    pct_start: float = 0.3,
    pct_final: float = 0.85,
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
) -> Schedule:
    """One cycle of lines: up, down to where it began, and down to almost nothing.

    Args:
      transition_steps: the length of the cycle.
      peak_value: the largest value.
      pct_start: the part of the cycle that goes up.
      pct_final: the part after which the last line begins.
      div_factor: the largest value divided by the first.
      final_div_factor: the first value divided by the last.

    Returns:
      The schedule.

    Examples:
      >>> from phalanx import optim
      >>> schedule = optim.linear_onecycle_schedule(100, 1.0)
      >>> [round(float(schedule(step)), 3) for step in (0, 30, 85)]
      [0.04, 1.0, 0.04]

    Source: L. N. Smith and N. Topin (2017), arXiv:1708.07120.
    """
    _positive("optim.linear_onecycle_schedule, argument transition_steps", transition_steps)
    ratios = {
        int(pct_start * transition_steps): div_factor,
        int(pct_final * transition_steps): 1.0 / div_factor,
        transition_steps: 1.0 / final_div_factor,
    }
    return piecewise_interpolate_schedule("linear", peak_value / div_factor, ratios)


def cosine_onecycle_schedule(
    transition_steps: int,
    peak_value: Any,
    pct_start: float = 0.3,
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
) -> Schedule:
    """One cycle of half cosines: up, and down to almost nothing.

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
    _positive("optim.cosine_onecycle_schedule, argument transition_steps", transition_steps)
    ratios = {int(pct_start * transition_steps): div_factor, transition_steps: 1.0 / (div_factor * final_div_factor)}
    return piecewise_interpolate_schedule("cosine", peak_value / div_factor, ratios)
