"""Transformations that gather several gradients into one step, or skip steps that would do harm.

Builds on `protocol`, `arithmetic` and `lax.cond`; users wrap an optimiser with them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from phalanx import lax
from phalanx import numpy as jnp
from phalanx.core.errors import ArgumentError
from phalanx.optim.arithmetic import counter, global_norm, safe_increment, zeros_like_tree
from phalanx.optim.protocol import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    at_once,
    transformation,
    with_extra_args_support,
)
from phalanx.tree import tree_leaves, tree_map


class ApplyEvery(NamedTuple):
    """Where in a round we are, and the sum of the round's updates.

    Args:
      count: int32[], the updates of this round.
      grad_acc: a tree like the parameters.

    Examples:
      >>> from phalanx import optim
      >>> int(optim.apply_every(4).init({"w": 0.0}).count)
      0
    """

    count: Any
    grad_acc: Any


class MultiStepsState(NamedTuple):
    """The small steps of this round, the real steps, the optimiser's state, the gathered gradients, a report.

    Args:
      mini_step, gradient_step: int32[], how many there have been.
      inner_opt_state: that of the optimiser.
      acc_grads: a tree like the parameters.
      skip_state: what the function that says which steps are skipped reports.

    Examples:
      >>> from phalanx import optim
      >>> int(optim.MultiSteps(optim.sgd(0.1), 4).init({"w": 0.0}).mini_step)
      0
    """

    mini_step: Any
    gradient_step: Any
    inner_opt_state: Any
    acc_grads: Any
    skip_state: Any = ()


class ApplyIfFiniteState(NamedTuple):
    """Bad updates in a row, whether the last was good, bad updates in all, and the state of what they go to.

    Args:
      notfinite_count, total_notfinite: int32[], bad updates in a row and in all.
      last_finite: bool[].
      inner_state: that of the transformation.

    Examples:
      >>> from phalanx import optim
      >>> int(optim.apply_if_finite(optim.sgd(0.1), 5).init({"w": 0.0}).notfinite_count)
      0
    """

    notfinite_count: Any
    last_finite: Any
    total_notfinite: Any
    inner_state: Any


def _check_round(where: str, k: Any) -> None:
    if isinstance(k, int) and k < 1:
        raise ArgumentError(where, expected="at least 1 step", got=k, mend="use 1 to step every time")


def apply_every(k: int = 1) -> GradientTransformationExtraArgs:
    """Sum k updates, then let the sum pass; in between, updates are zero.

    Unlike `MultiSteps`, what comes before in a chain sees every gradient, and what comes after sees zeros.

    Args:
      k: the length of a round.

    Returns:
      The transformation.

    Raises:
      ArgumentError: `k` is below 1.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.apply_every(2)
      >>> first, state = tx.update(1.0, tx.init(0.0))
      >>> float(first), float(tx.update(2.0, state)[0])
      (0.0, 3.0)
    """
    _check_round("optim.apply_every, argument k", k)

    def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> tuple:
        first, last = state.count % k == 0, state.count % k == k - 1
        total = tree_map(lambda g, a: jnp.where(first, g, g + a), updates, state.grad_acc)
        out = tree_map(lambda a: jnp.where(last, a, jnp.zeros_like(a)), total)
        return out, ApplyEvery((state.count + 1) % k, total)

    return transformation(lambda params: ApplyEvery(counter(), zeros_like_tree(params)), update)


def _all_finite(tree: Any) -> Any:
    finite = [jnp.all(jnp.isfinite(x)) for x in tree_leaves(tree)]
    return jnp.all(jnp.stack(finite)) if finite else jnp.asarray(True)


def skip_not_finite(updates: Any, gradient_step: Any, params: Any) -> tuple:
    """Say, for `MultiSteps`, that gradients with a NaN or an infinity are to be skipped.

    Args:
      updates: the gradients.
      gradient_step, params: not read.

    Returns:
      Whether to skip, and what `skip_state` will hold.

    Examples:
      >>> skip, report = skip_not_finite({"w": jnp.array([1.0, jnp.nan])}, 0, None)
      >>> bool(skip), int(report["num_not_finite"])
      (True, 1)
    """
    bad = [jnp.sum(~jnp.isfinite(x)) for x in tree_leaves(updates)]
    number = sum(bad, start=jnp.int32(0))
    return number > 0, {"should_skip": number > 0, "num_not_finite": number}


def skip_large_updates(updates: Any, gradient_step: Any, params: Any, max_squared_norm: float) -> tuple:
    """Say, for `MultiSteps`, that gradients with a large or undefined norm are to be skipped.

    Args:
      updates: the gradients.
      gradient_step, params: not read.
      max_squared_norm: the bound of the squared norm; give it with `functools.partial`.

    Returns:
      Whether to skip, and what `skip_state` will hold.

    Examples:
      >>> bool(skip_large_updates({"w": jnp.array([3.0, 4.0])}, 0, None, max_squared_norm=9.0)[0])
      True
    """
    squared = jnp.square(global_norm(updates))
    skip = ~(squared < max_squared_norm)  # True for NaN.
    return skip, {"should_skip": skip, "norm_squared": squared}


class MultiSteps:
    """Gather the gradients of k small steps, then let an optimiser make one real step with their mean.

    In between the updates are zero, and the optimiser's state stands still.

    Args:
      opt: anything with `init` and `update`.
      every_k_schedule: k, or a function of the number of real steps that gives it.
      use_grad_mean: the mean of the gradients; False for their sum.
      should_skip_update_fn: `(updates, gradient_step, params)` gives whether to leave a gradient out, and a tree to
        report in the state; such as `skip_not_finite`.
      accumulator_dtype: the dtype that gradients are gathered in; None for their own.

    Raises:
      ArgumentError: k is below 1.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.MultiSteps(optim.sgd(1.0), every_k_schedule=2)
      >>> first, state = tx.update(1.0, tx.init(0.0))
      >>> float(first), float(tx.update(3.0, state)[0])
      (0.0, -2.0)
    """

    def __init__(
        self,
        opt: Any,
        every_k_schedule: int | Callable,
        use_grad_mean: bool = True,
        should_skip_update_fn: Callable | None = None,
        accumulator_dtype: Any = np.float32,
    ):
        _check_round("optim.MultiSteps, argument every_k_schedule", every_k_schedule)
        self._opt = with_extra_args_support(opt)
        self._every = every_k_schedule if callable(every_k_schedule) else lambda gradient_step: every_k_schedule
        self._use_mean = use_grad_mean
        self._should_skip = should_skip_update_fn
        self._dtype = accumulator_dtype
        self.update = at_once(self._update)

    @property
    def inner_opt(self) -> GradientTransformation:
        """The optimiser that makes the real steps."""
        return self._opt

    def init(self, params: Any) -> MultiStepsState:
        """The state before the first step.

        Args:
          params: the parameters.

        Returns:
          The state.
        """
        gathered = zeros_like_tree(params, self._dtype)
        skipped = () if self._should_skip is None else self._should_skip(params, counter(), params)[1]
        return MultiStepsState(
            counter(), counter(), self._opt.init(params), gathered, tree_map(jnp.zeros_like, skipped)
        )

    def has_updated(self, state: MultiStepsState) -> Any:
        """Whether the last update was a real step.

        Args:
          state: the state after it.

        Returns:
          bool[].
        """
        return jnp.logical_and(state.mini_step == 0, state.gradient_step > 0)

    def gradient_transformation(self) -> GradientTransformationExtraArgs:
        """The same as a pair of functions, to be chained.

        Returns:
          The transformation.
        """
        return GradientTransformationExtraArgs(self.init, self.update)

    def _update(self, updates: Any, state: Any, params: Any = None, **extra_args: Any) -> tuple:
        """Take one gradient, and make a real step if it is the last of its round; see `GradientTransformation`."""
        if self._should_skip is None:
            return self._gathered(updates, state, params, extra_args)
        skip, skip_state = self._should_skip(updates, state.gradient_step, params)
        out, new = lax.cond(
            skip,
            lambda: (tree_map(jnp.zeros_like, updates), state._replace(skip_state=skip_state)),
            lambda: self._gathered(updates, state._replace(skip_state=skip_state), params, extra_args),
        )
        return out, new

    def _gathered(self, updates: Any, state: Any, params: Any, extra_args: dict) -> tuple:
        divisor = state.mini_step + 1
        add = (lambda a, g: a + (g - a) / divisor.astype(a.dtype)) if self._use_mean else (lambda a, g: a + g)
        gathered = tree_map(lambda g, a: add(a, jnp.asarray(g, a.dtype)), updates, state.acc_grads)

        def real_step() -> tuple:
            mean = tree_map(lambda a, g: jnp.asarray(a, jnp.asarray(g).dtype), gathered, updates)
            out, inner = self._opt.update(mean, state.inner_opt_state, params, **extra_args)
            out = tree_map(lambda u, g: jnp.asarray(u, jnp.asarray(g).dtype), out, updates)
            zeros = tree_map(jnp.zeros_like, gathered)
            step = safe_increment(state.gradient_step)
            return out, state._replace(mini_step=counter(), gradient_step=step, inner_opt_state=inner, acc_grads=zeros)

        def small_step() -> tuple:
            new = state._replace(mini_step=safe_increment(state.mini_step), acc_grads=gathered)
            return tree_map(jnp.zeros_like, updates), new

        return lax.cond(divisor >= self._every(state.gradient_step), real_step, small_step)


def apply_if_finite(inner: Any, max_consecutive_errors: int) -> GradientTransformationExtraArgs:
    """Skip updates with a NaN or an infinity, unless too many come in a row.

    Args:
      inner: anything with `init` and `update`.
      max_consecutive_errors: how many may be skipped one after the other; the next is let through.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.apply_if_finite(optim.sgd(1.0), 3)
      >>> updates, state = tx.update(float("nan"), tx.init(0.0))
      >>> float(updates), int(state.notfinite_count)
      (0.0, 1)
    """
    inner = with_extra_args_support(inner)

    def init(params: Any) -> ApplyIfFiniteState:
        return ApplyIfFiniteState(counter(), jnp.asarray(True), counter(), inner.init(params))

    def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> tuple:
        finite = _all_finite(updates)
        bad = jnp.where(finite, 0, safe_increment(state.notfinite_count)).astype(np.int32)
        total = jnp.where(finite, state.total_notfinite, safe_increment(state.total_notfinite))

        def passed() -> tuple:
            out, new = inner.update(updates, state.inner_state, params, **extra_args)
            return tree_map(lambda u, g: jnp.asarray(u, jnp.asarray(g).dtype), out, updates), new

        out, new = lax.cond(
            finite | (bad > max_consecutive_errors),
            passed,
            lambda: (tree_map(jnp.zeros_like, updates), state.inner_state),
        )
        return out, ApplyIfFiniteState(bad, finite, total, new)

    return transformation(init, update)
