"""Accumulating gradients over several steps, and skipping updates that are not finite or too large.

Builds on `gradient_transformation`, `tree_arithmetic` and `lax.cond`; users wrap an optimizer with these functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from phalanx import lax, numpy as jnp
from phalanx.core import ArgumentError
from phalanx.optim.gradient_transformation import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    compile_eager_calls,
    make_transformation,
    with_extra_args_support,
)
from phalanx.optim.tree_arithmetic import global_norm, init_count, safe_increment, zeros_like_tree
from phalanx.tree import tree_leaves, tree_map
from phalanx.typing import Array, DTypeLike, PyTree


class ApplyEvery(NamedTuple):
    """The state of `apply_every`.

    Args:
      count: int32[], the number of updates in the current cycle.
      grad_acc: the sum of these updates, a tree like the parameters.

    Examples:
      >>> from phalanx import optim
      >>> int(optim.apply_every(4).init({"w": 0.0}).count)
      0
    """

    count: Any
    grad_acc: PyTree


class MultiStepsState(NamedTuple):
    """The state of `MultiSteps`.

    Args:
      mini_step: int32[], the number of gradients accumulated since the last step of the optimizer.
      gradient_step: int32[], the number of steps of the optimizer.
      inner_opt_state: the state of the optimizer.
      acc_grads: the accumulated gradients, a tree like the parameters.
      skip_state: the report of `should_skip_update_fn`.

    Examples:
      >>> from phalanx import optim
      >>> int(optim.MultiSteps(optim.sgd(0.1), 4).init({"w": 0.0}).mini_step)
      0
    """

    mini_step: Array
    gradient_step: Array
    inner_opt_state: PyTree
    acc_grads: PyTree
    skip_state: PyTree = ()


class ApplyIfFiniteState(NamedTuple):
    """The state of `apply_if_finite`.

    Args:
      notfinite_count: int32[], the number of consecutive updates that were not finite.
      last_finite: bool[], whether the last update was finite.
      total_notfinite: int32[], the number of all updates that were not finite.
      inner_state: the state of the inner transformation.

    Examples:
      >>> from phalanx import optim
      >>> int(optim.apply_if_finite(optim.sgd(0.1), 5).init({"w": 0.0}).notfinite_count)
      0
    """

    notfinite_count: Array
    last_finite: Array
    total_notfinite: Array
    inner_state: PyTree


def _check_num_steps(where: str, k: object) -> None:
    if isinstance(k, int) and k < 1:
        raise ArgumentError(where, expected="at least 1 step", got=k, fix="pass 1 to step after every gradient")


def apply_every(k: int = 1) -> GradientTransformationExtraArgs:
    """Return the sum of k updates at every k-th step, and zeros at the steps between.

    Unlike in `MultiSteps`, the other transformations of a chain are updated at every step: those before this one with
    every gradient, and those after it with zeros.

    Args:
      k: the length of a cycle, in steps.

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
    _check_num_steps("optim.apply_every, argument k", k)

    def update(updates: PyTree, state: Any, params: PyTree = None, **extra_args: Any) -> tuple:
        # The count is kept below k, but a state from a longer cycle may exceed it, so it is reduced here too.
        first, last = state.count % k == 0, state.count % k == k - 1
        total = tree_map(lambda g, a: jnp.where(first, g, g + a), updates, state.grad_acc)
        out = tree_map(lambda a: jnp.where(last, a, jnp.zeros_like(a)), total)
        return out, ApplyEvery((state.count + 1) % k, total)

    return make_transformation(lambda params: ApplyEvery(init_count(), zeros_like_tree(params)), update)


def _is_all_finite(tree: PyTree) -> Array:
    finite = [jnp.all(jnp.isfinite(x)) for x in tree_leaves(tree)]
    return jnp.all(jnp.stack(finite)) if finite else jnp.asarray(True)


def skip_not_finite(updates: PyTree, gradient_step: Array, params: PyTree) -> tuple:
    """Skip gradients with a NaN or an infinity, as the `should_skip_update_fn` of `MultiSteps`.

    Args:
      updates: the gradients.
      gradient_step, params: unused.

    Returns:
      Whether to skip, bool[], and the new `skip_state`.

    Examples:
      >>> skip, report = skip_not_finite({"w": jnp.array([1.0, jnp.nan])}, 0, None)
      >>> bool(skip), int(report["num_not_finite"])
      (True, 1)
    """
    number = sum((jnp.sum(~jnp.isfinite(x)) for x in tree_leaves(updates)), start=jnp.int32(0))
    return number > 0, {"should_skip": number > 0, "num_not_finite": number}


def skip_large_updates(updates: PyTree, gradient_step: Array, params: PyTree, max_squared_norm: float) -> tuple:
    """Skip gradients with a large or undefined norm, as the `should_skip_update_fn` of `MultiSteps`.

    Args:
      updates: the gradients.
      gradient_step, params: unused.
      max_squared_norm: the largest squared norm that is not skipped; bind it with `functools.partial`.

    Returns:
      Whether to skip, bool[], and the new `skip_state`.

    Examples:
      >>> bool(skip_large_updates({"w": jnp.array([3.0, 4.0])}, 0, None, max_squared_norm=9.0)[0])
      True
    """
    squared = jnp.square(global_norm(updates))
    skip = ~(squared < max_squared_norm)  # also True for NaN
    return skip, {"should_skip": skip, "norm_squared": squared}


def _cast_like(tree: PyTree, other: PyTree) -> PyTree:
    """Convert each leaf to the dtype of the corresponding leaf of `other`."""
    return tree_map(lambda x, y: jnp.asarray(x, jnp.asarray(y).dtype), tree, other)


class MultiSteps:
    """Accumulate the gradients of k steps, and update with an optimizer on their mean.

    At the steps between, the updates are zeros and the state of the optimizer does not change.

    Args:
      opt: an object with the functions `init` and `update`.
      every_k_schedule: k, or a function that maps the number of optimizer steps to k.
      use_grad_mean: whether to use the mean of the gradients; False for their sum.
      should_skip_update_fn: a function of `(updates, gradient_step, params)` that returns whether to skip a gradient,
        and a tree for `skip_state`; such as `skip_not_finite`.
      accumulator_dtype: the dtype of the accumulated gradients; None for the dtype of each gradient.

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
        opt: GradientTransformation,
        every_k_schedule: int | Callable,
        use_grad_mean: bool = True,
        should_skip_update_fn: Callable | None = None,
        accumulator_dtype: DTypeLike | None = np.float32,
    ):
        _check_num_steps("optim.MultiSteps, argument every_k_schedule", every_k_schedule)
        self._opt = with_extra_args_support(opt)
        self._every = every_k_schedule if callable(every_k_schedule) else lambda gradient_step: every_k_schedule
        self._use_mean = use_grad_mean
        self._should_skip = should_skip_update_fn
        self._dtype = accumulator_dtype
        self.update = compile_eager_calls(self._update)

    @property
    def inner_opt(self) -> GradientTransformation:
        """The wrapped optimizer."""
        return self._opt

    def init(self, params: PyTree) -> MultiStepsState:
        """The initial state.

        Args:
          params: the parameters.

        Returns:
          The state.
        """
        accumulated = zeros_like_tree(params, self._dtype)
        # The report of a call on the parameters has the structure of later reports, which `cond` requires.
        skipped = () if self._should_skip is None else self._should_skip(params, init_count(), params)[1]
        return MultiStepsState(
            init_count(), init_count(), self._opt.init(params), accumulated, tree_map(jnp.zeros_like, skipped)
        )

    def has_updated(self, state: MultiStepsState) -> Any:
        """Whether the last update was a step of the optimizer.

        Args:
          state: the state after the update.

        Returns:
          bool[].
        """
        return jnp.logical_and(state.mini_step == 0, state.gradient_step > 0)

    def gradient_transformation(self) -> GradientTransformationExtraArgs:
        """A `GradientTransformation` with the same `init` and `update`, for `chain`.

        Returns:
          The transformation.
        """
        return GradientTransformationExtraArgs(self.init, self.update)

    def _update(self, updates: PyTree, state: Any, params: PyTree = None, **extra_args: Any) -> tuple:
        """Accumulate one gradient, and step if it is the last of its cycle; see `GradientTransformation`."""
        # Without a skip function no conditional is emitted.
        if self._should_skip is None:
            return self._accumulate(updates, state, params, extra_args)
        skip, skip_state = self._should_skip(updates, state.gradient_step, params)
        state = state._replace(skip_state=skip_state)
        return lax.cond(
            skip,
            lambda: (tree_map(jnp.zeros_like, updates), state),
            lambda: self._accumulate(updates, state, params, extra_args),
        )

    def _accumulate(self, updates: PyTree, state: Any, params: PyTree, extra_args: dict) -> tuple:
        divisor = state.mini_step + 1
        # A running mean, which does not overflow in the accumulator's dtype as a sum divided at the end could.
        add = (lambda a, g: a + (g - a) / divisor.astype(a.dtype)) if self._use_mean else (lambda a, g: a + g)
        total = tree_map(lambda g, a: add(a, jnp.asarray(g, a.dtype)), updates, state.acc_grads)

        def step_optimizer() -> tuple:
            # The optimizer sees gradients in their original dtype, as it would without accumulation.
            mean = _cast_like(total, updates)
            out, inner = self._opt.update(mean, state.inner_opt_state, params, **extra_args)
            return _cast_like(out, updates), state._replace(
                mini_step=init_count(),
                gradient_step=safe_increment(state.gradient_step),
                inner_opt_state=inner,
                acc_grads=tree_map(jnp.zeros_like, total),
            )

        def skip_step() -> tuple:
            new = state._replace(mini_step=safe_increment(state.mini_step), acc_grads=total)
            return tree_map(jnp.zeros_like, updates), new

        # Both branches return trees of the same structure and dtypes, as `cond` requires.
        return lax.cond(divisor >= self._every(state.gradient_step), step_optimizer, skip_step)


def apply_if_finite(inner: GradientTransformation, max_consecutive_errors: int) -> GradientTransformationExtraArgs:
    """Skip updates with a NaN or an infinity, up to a number of consecutive ones.

    Args:
      inner: an object with the functions `init` and `update`.
      max_consecutive_errors: the number of consecutive updates that may be skipped; the next one is applied.

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

    def update(updates: PyTree, state: Any, params: PyTree = None, **extra_args: Any) -> tuple:
        finite = _is_all_finite(updates)
        # The limit is on consecutive errors, so a finite update resets this count; `total_notfinite` keeps all.
        bad = jnp.where(finite, 0, safe_increment(state.notfinite_count)).astype(np.int32)
        total = jnp.where(finite, state.total_notfinite, safe_increment(state.total_notfinite))

        def apply() -> tuple:
            out, new = inner.update(updates, state.inner_state, params, **extra_args)
            return _cast_like(out, updates), new

        # With `cond` and not `where`, the inner transformation never sees an update that is skipped.
        out, new = lax.cond(
            finite | (bad > max_consecutive_errors),
            apply,
            lambda: (tree_map(jnp.zeros_like, updates), state.inner_state),
        )
        return out, ApplyIfFiniteState(bad, finite, total, new)

    return make_transformation(
        lambda params: ApplyIfFiniteState(init_count(), jnp.asarray(True), init_count(), inner.init(params)), update
    )
