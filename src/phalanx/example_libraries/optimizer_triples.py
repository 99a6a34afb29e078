"""Optimizers as triples `(init, update, get_params)` of pure functions: `phalanx.example_libraries.optimizers`.

Each is written for one array; the decorator `optimizer` extends it to pytrees of parameters. `phalanx.optim` has the
optimizers for new programs.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import phalanx.numpy as jnp
from phalanx.core import ArgumentError, ArgumentTypeError, TreeError
from phalanx.tree import register_pytree_node_class, tree_flatten, tree_leaves, tree_map, tree_unflatten
from phalanx.typing import ArrayLike, PyTree

Schedule = Callable[[Any], Any]


class Optimizer(NamedTuple):
    """An optimizer for pytrees of parameters.

    Args:
      init_fn: from the parameters to the state, which contains them.
      update_fn: `(step, gradients, state)` to the next state.
      params_fn: from the state to the parameters.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> init, update, get_params = sgd(0.5)
      >>> get_params(update(0, {"w": jnp.ones(2)}, init({"w": jnp.zeros(2)})))["w"].tolist()
      [-0.5, -0.5]
    """

    init_fn: Callable[[PyTree], OptimizerState]
    update_fn: Callable[[Any, PyTree, OptimizerState], OptimizerState]
    params_fn: Callable[[OptimizerState], PyTree]


@register_pytree_node_class
class OptimizerState:
    """The state of an optimizer: a pytree of parameters, each leaf of which is a pytree of arrays.

    Args:
      packed_state: for each parameter the arrays of its state.
      tree_def: the structure of the parameters.
      subtree_defs: for each parameter the structure of its state.

    Examples:
      >>> sgd(0.1).init_fn({"w": 1.0}).tree_def
      PyTreeDef({'w': *})
    """

    def __init__(self, packed_state: Sequence, tree_def: Any, subtree_defs: Sequence):
        self.packed_state, self.tree_def, self.subtree_defs = list(packed_state), tree_def, tuple(subtree_defs)

    def __iter__(self) -> Iterator:
        return iter((self.packed_state, self.tree_def, self.subtree_defs))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OptimizerState) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def subtrees(self) -> list:
        """The state of each parameter."""
        return list(map(tree_unflatten, self.subtree_defs, self.packed_state))

    @classmethod
    def pack(cls, tree_def: Any, subtrees: Sequence) -> OptimizerState:
        """The state with the given state of each parameter."""
        pairs = [tree_flatten(s) for s in subtrees]
        return cls([leaves for leaves, _ in pairs], tree_def, [tree for _, tree in pairs])

    def tree_flatten(self) -> tuple:
        """The children and the static part of the pytree."""
        return (self.packed_state,), (self.tree_def, self.subtree_defs)

    @classmethod
    def tree_unflatten(cls, static: tuple, children: tuple) -> OptimizerState:
        """Build the state from the results of `tree_flatten`."""
        return cls(*children, *static)


def optimizer(opt_maker: Callable[..., Any]) -> Callable[..., Optimizer]:
    """Decorator: extend an optimizer of one array to pytrees of arrays.

    Args:
      opt_maker: a function that returns a triple for one array: `init(x) -> state`, `update(step, g, state) -> state`
        and `get_params(state) -> x`, where the state is a pytree.

    Returns:
      A function of the same arguments that returns an `Optimizer`.

    Examples:
      >>> @optimizer
      ... def sign_descent(size):
      ...     return (lambda x: x), (lambda step, g, x: x - size * jnp.sign(g)), (lambda x: x)
      >>> init, update, get_params = sign_descent(0.5)
      >>> [float(x) for x in get_params(update(0, (3.0, -2.0), init((1.0, 1.0))))]
      [0.5, 1.5]
    """

    @functools.wraps(opt_maker)
    def make(*args: Any, **kwargs: Any) -> Optimizer:
        init, update, get_params = opt_maker(*args, **kwargs)

        def init_tree(params: PyTree) -> OptimizerState:
            leaves, tree = tree_flatten(params)
            return OptimizerState.pack(tree, list(map(init, leaves)))

        def update_tree(step: Any, grads: PyTree, state: OptimizerState) -> OptimizerState:
            leaves, tree = tree_flatten(grads)
            _check_structure("gradients", state.tree_def, tree)
            new = OptimizerState.pack(tree, [update(step, g, s) for g, s in zip(leaves, state.subtrees(), strict=True)])
            # A state that changes its structure could not be the carry of a loop.
            for before, after in zip(state.subtree_defs, new.subtree_defs, strict=True):
                _check_structure("new state of a parameter", before, after)
            return new

        def get_tree(state: OptimizerState) -> PyTree:
            return tree_unflatten(state.tree_def, list(map(get_params, state.subtrees())))

        return Optimizer(init_tree, update_tree, get_tree)

    return make


def _check_structure(what: str, expected: Any, got: Any) -> None:
    if expected != got:
        raise TreeError(
            f"optimizer update, {what}",
            expected=f"the structure that the state was made with, {expected}",
            got=got,
            fix="pass gradients of the parameters, and return a state of the same structure",
        )


def _with_slots(num_slots: int, update: Callable) -> tuple:
    """The triple of an optimizer of one array whose state is the array and `num_slots` arrays, first zeros."""

    def init(x: ArrayLike) -> tuple:
        return x, *[jnp.zeros_like(x) for _ in range(num_slots)]

    return init, lambda step, g, state: update(step, g, *state), operator.itemgetter(0)


@optimizer
def sgd(step_size: float | Schedule) -> Any:
    """Gradient descent.

    Args:
      step_size: a number, or a function of the step.

    Returns:
      An `Optimizer`.

    Examples:
      >>> init, update, get_params = sgd(0.5)
      >>> float(get_params(update(0, 2.0, init(3.0))))
      2.0
    """
    size = make_schedule(step_size)
    return _with_slots(0, lambda i, g, x: (x - size(i) * g,))


@optimizer
def momentum(step_size: float | Schedule, mass: float) -> Any:
    """Gradient descent with momentum.

    Args:
      step_size: a number, or a function of the step.
      mass: the part of the velocity that stays in each step.

    Returns:
      An `Optimizer`.

    Examples:
      >>> init, update, get_params = momentum(0.5, 0.9)
      >>> float(get_params(update(0, 2.0, init(3.0))))
      2.0
    """
    size = make_schedule(step_size)

    def update(i: Any, g: Any, x: Any, velocity: Any) -> tuple:
        velocity = mass * velocity + g
        return x - size(i) * velocity, velocity

    return _with_slots(1, update)


@optimizer
def nesterov(step_size: float | Schedule, mass: float) -> Any:
    """Gradient descent with Nesterov's momentum.

    Args:
      step_size: a number, or a function of the step.
      mass: the part of the velocity that stays in each step.

    Returns:
      An `Optimizer`.

    Examples:
      >>> init, update, get_params = nesterov(0.5, 0.5)
      >>> float(get_params(update(0, 2.0, init(3.0))))
      1.5
    """
    size = make_schedule(step_size)

    def update(i: Any, g: Any, x: Any, velocity: Any) -> tuple:
        velocity = mass * velocity + g
        return x - size(i) * (mass * velocity + g), velocity

    return _with_slots(1, update)


@optimizer
def adagrad(step_size: float | Schedule, momentum: float = 0.9) -> Any:
    """Adagrad with momentum.

    Args:
      step_size: a number, or a function of the step.
      momentum: the part of the mean step that stays in each step.

    Returns:
      An `Optimizer`.

    Examples:
      >>> init, update, get_params = adagrad(0.5, momentum=0.0)
      >>> float(get_params(update(0, 2.0, init(3.0))))
      2.5

    Source: Duchi, Hazan & Singer (2011), JMLR 12.
    """
    size = make_schedule(step_size)

    def update(i: Any, g: Any, x: Any, total: Any, mean: Any) -> tuple:
        total = total + jnp.square(g)
        # Where all gradients so far were 0, the total is 0 and the step must be, too.
        mean = (1 - momentum) * g * _inverse_sqrt(total) + momentum * mean
        return x - size(i) * mean, total, mean

    return _with_slots(2, update)


def _inverse_sqrt(x: Any) -> Any:
    """1 / sqrt(x), and 0 where x is 0."""
    return jnp.where(x > 0, 1.0 / jnp.sqrt(x), 0.0)


@optimizer
def rmsprop(step_size: float | Schedule, gamma: float = 0.9, eps: float = 1e-8) -> Any:
    """RMSProp.

    Args:
      step_size: a number, or a function of the step.
      gamma: the part of the mean squared gradient that stays in each step.
      eps: added to the mean squared gradient.

    Returns:
      An `Optimizer`.

    Examples:
      >>> init, update, get_params = rmsprop(0.5, gamma=0.0)
      >>> float(get_params(update(0, 2.0, init(3.0))))
      2.5
    """
    size = make_schedule(step_size)

    def update(i: Any, g: Any, x: Any, mean: Any) -> tuple:
        mean = mean * gamma + jnp.square(g) * (1.0 - gamma)
        return x - size(i) * g / jnp.sqrt(mean + eps), mean

    return _with_slots(1, update)


@optimizer
def rmsprop_momentum(step_size: float | Schedule, gamma: float = 0.9, eps: float = 1e-8, momentum: float = 0.9) -> Any:
    """RMSProp with momentum.

    Args:
      step_size: a number, or a function of the step.
      gamma: the part of the mean squared gradient that stays in each step.
      eps: added to the mean squared gradient.
      momentum: the part of the velocity that stays in each step.

    Returns:
      An `Optimizer`.

    Examples:
      >>> init, update, get_params = rmsprop_momentum(0.5, gamma=0.0)
      >>> float(get_params(update(0, 2.0, init(3.0))))
      2.5
    """
    size = make_schedule(step_size)

    def update(i: Any, g: Any, x: Any, mean: Any, velocity: Any) -> tuple:
        mean = mean * gamma + jnp.square(g) * (1.0 - gamma)
        # The velocity holds steps, not gradients: a new step size does not rescale earlier ones.
        velocity = momentum * velocity + size(i) * g / jnp.sqrt(mean + eps)
        return x - velocity, mean, velocity

    return _with_slots(2, update)


@optimizer
def adam(step_size: float | Schedule, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Any:
    """Adam.

    Args:
      step_size: a number, or a function of the step.
      b1, b2: the parts of the means of the gradient and of its square that stay in each step.
      eps: added to the root of the mean square.

    Returns:
      An `Optimizer`.

    Examples:
      >>> init, update, get_params = adam(0.5)
      >>> round(float(get_params(update(0, 2.0, init(3.0)))), 4)
      2.5

    Source: Kingma & Ba (2015), arXiv:1412.6980.
    """
    size = make_schedule(step_size)

    def update(i: Any, g: Any, x: Any, mean: Any, square: Any) -> tuple:
        mean = (1 - b1) * g + b1 * mean
        square = (1 - b2) * jnp.square(g) + b2 * square
        # Both means began at zero, which the divisors undo.
        step = (mean / _one_minus_power(b1, mean, i)) / (jnp.sqrt(square / _one_minus_power(b2, square, i)) + eps)
        return x - size(i) * step, mean, square

    return _with_slots(2, update)


def _one_minus_power(decay: float, like: Any, step: Any) -> Any:
    """The sum of the weights of a mean that started at zero: 1 - decay**(step + 1), in the dtype of `like`."""
    return 1 - jnp.asarray(decay, like.dtype) ** (step + 1)


@optimizer
def adamax(step_size: float | Schedule, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Any:
    """AdaMax, the variant of Adam with the maximum norm.

    Args:
      step_size: a number, or a function of the step.
      b1, b2: the parts of the mean gradient and of the norm that stay in each step.
      eps: added to the norm.

    Returns:
      An `Optimizer`.

    Examples:
      >>> init, update, get_params = adamax(0.5)
      >>> round(float(get_params(update(0, 2.0, init(3.0)))), 4)
      2.5

    Source: Kingma & Ba (2015), arXiv:1412.6980, section 7.1.
    """
    size = make_schedule(step_size)

    def update(i: Any, g: Any, x: Any, mean: Any, norm: Any) -> tuple:
        mean = (1 - b1) * g + b1 * mean
        norm = jnp.maximum(b2 * norm, jnp.abs(g))
        return x - (size(i) / _one_minus_power(b1, mean, i)) * mean / (norm + eps), mean, norm

    return _with_slots(2, update)


@optimizer
def sm3(step_size: float | Schedule, momentum: float = 0.9) -> Any:
    """SM3, whose second moments take the memory of the sides of an array only.

    Args:
      step_size: a number, or a function of the step.
      momentum: the part of the mean step that stays in each step.

    Returns:
      An `Optimizer`.

    Examples:
      >>> init, update, get_params = sm3(0.5, momentum=0.0)
      >>> float(get_params(update(0, 2.0, init(3.0))))
      2.5

    Source: Anil et al. (2019), arXiv:1901.11150.
    """
    size = make_schedule(step_size)

    def init(x: Any) -> tuple:
        x = jnp.asarray(x)
        return x, jnp.zeros_like(x), [jnp.zeros(n, x.dtype) for n in jnp.atleast_1d(x).shape]

    def update(i: Any, g: Any, state: tuple) -> tuple:
        x, mean, sides = state
        ndim = len(sides)
        # Each side bounds the total of an element from above; the least bound is taken.
        bounds = [v.reshape([-1 if d == k else 1 for k in range(ndim)]) for d, v in enumerate(sides)]
        total = functools.reduce(jnp.minimum, bounds) + jnp.square(jnp.atleast_1d(g))
        step = g * _inverse_sqrt(total).reshape(jnp.shape(g))
        mean = (1 - momentum) * step + momentum * mean
        # The largest total of each slice bounds all of them, at the memory of a vector per dimension.
        sides = [total.max([k for k in range(ndim) if k != d]) for d in range(ndim)]
        return x - size(i) * mean, mean, sides

    return init, update, operator.itemgetter(0)


def constant(step_size: float) -> Schedule:
    """The schedule with one step size.

    Args:
      step_size: the step size.

    Returns:
      A function of the step.

    Examples:
      >>> constant(0.1)(3)
      0.1
    """
    return lambda i: step_size


def exponential_decay(step_size: float, decay_steps: int, decay_rate: float) -> Schedule:
    """Decay by a factor in every `decay_steps` steps.

    Args:
      step_size: the first step size.
      decay_steps: the number of steps.
      decay_rate: the factor.

    Returns:
      A function of the step.

    Examples:
      >>> exponential_decay(0.5, 2, 0.5)(4)
      0.125
    """
    return lambda i: step_size * decay_rate ** (i / decay_steps)


def inverse_time_decay(step_size: float, decay_steps: int, decay_rate: float, staircase: bool = False) -> Schedule:
    """Decay as step_size / (1 + decay_rate * step / decay_steps).

    Args:
      step_size: the first step size.
      decay_steps: the number of steps.
      decay_rate: the rate.
      staircase: whether to round step / decay_steps down.

    Returns:
      A function of the step.

    Examples:
      >>> inverse_time_decay(0.5, 2, 0.5)(4)
      0.25
    """
    # With a staircase the step size is constant for `decay_steps` steps.
    round_down = jnp.floor if staircase else lambda x: x
    return lambda i: step_size / (1 + decay_rate * round_down(i / decay_steps))


def polynomial_decay(step_size: float, decay_steps: int, final_step_size: float, power: float = 1.0) -> Schedule:
    """Decay along a polynomial from one step size to another.

    Args:
      step_size: the first step size.
      decay_steps: the step from which on the final step size is used.
      final_step_size: the last step size.
      power: the degree of the polynomial.

    Returns:
      A function of the step.

    Examples:
      >>> float(polynomial_decay(0.5, 4, 0.0)(2))
      0.25
    """

    def schedule(step: Any) -> Any:
        left = (1 - jnp.minimum(step, decay_steps) / decay_steps) ** power
        return left * (step_size - final_step_size) + final_step_size

    return schedule


def piecewise_constant(boundaries: ArrayLike, values: ArrayLike) -> Schedule:
    """One step size up to each boundary, and one after the last.

    Args:
      boundaries: increasing steps: int[n].
      values: step sizes: float[n + 1].

    Returns:
      A function of the step.

    Raises:
      ArgumentError: there is not one value more than boundaries.

    Examples:
      >>> schedule = piecewise_constant([10, 20], [0.5, 0.25, 0.125])
      >>> [float(schedule(i)) for i in (10, 11, 21)]
      [0.5, 0.25, 0.125]
    """
    limits, sizes = jnp.array(boundaries), jnp.array(values)
    if limits.ndim != 1 or sizes.shape != (limits.shape[0] + 1,):
        raise ArgumentError(
            "piecewise_constant, argument values",
            expected="a sequence with one value more than boundaries",
            got=f"shape {sizes.shape} for boundaries of shape {limits.shape}",
            fix="give a value for each interval between boundaries, before the first and after the last",
        )
    return lambda i: sizes[jnp.sum(i > limits)]


def make_schedule(scalar_or_schedule: float | Schedule) -> Schedule:
    """The schedule for a step size.

    Args:
      scalar_or_schedule: a number, or a function of the step, which is returned.

    Returns:
      A function of the step.

    Raises:
      ArgumentTypeError: it is neither.

    Examples:
      >>> make_schedule(0.5)(7)
      0.5
    """
    if callable(scalar_or_schedule):
        return scalar_or_schedule
    if jnp.ndim(scalar_or_schedule) == 0:
        return constant(scalar_or_schedule)
    raise ArgumentTypeError(
        "make_schedule, argument scalar_or_schedule",
        expected="a number or a function of the step",
        got=repr(scalar_or_schedule),
        fix="pass a scalar, or piecewise_constant(boundaries, values)",
    )


def l2_norm(tree: PyTree) -> Any:
    """The Euclidean norm of all elements of a pytree.

    Args:
      tree: arrays.

    Returns:
      The norm: float[].

    Examples:
      >>> float(l2_norm({"a": 3.0, "b": 4.0}))
      5.0
    """
    return jnp.sqrt(sum(jnp.vdot(x, x) for x in tree_leaves(tree)))


def clip_grads(grad_tree: PyTree, max_norm: float) -> PyTree:
    """Scale gradients down to a norm.

    Args:
      grad_tree: the gradients.
      max_norm: the largest Euclidean norm of all elements together.

    Returns:
      The gradients, scaled if their norm was larger.

    Examples:
      >>> [float(g) for g in clip_grads([3.0, 4.0], 2.5)]
      [1.5, 2.0]
    """
    norm = l2_norm(grad_tree)
    return tree_map(lambda g: jnp.where(norm < max_norm, g, g * (max_norm / norm)), grad_tree)


class JoinPoint:
    """A leaf of an unpacked state: the state of one parameter.

    Args:
      subtree: the state.

    Examples:
      >>> list(JoinPoint((1.0, 0.0)))
      [(1.0, 0.0)]
    """

    def __init__(self, subtree: PyTree):
        self.subtree = subtree

    def __iter__(self) -> Iterator:
        yield self.subtree


def unpack_optimizer_state(opt_state: OptimizerState) -> PyTree:
    """The state as a pytree of the structure of the parameters, to be serialized.

    Args:
      opt_state: the state.

    Returns:
      The pytree, with a `JoinPoint` for each parameter.

    Examples:
      >>> unpack_optimizer_state(sgd(0.1).init_fn({"w": 1.0}))["w"].subtree
      (1.0,)
    """
    return tree_unflatten(opt_state.tree_def, list(map(JoinPoint, opt_state.subtrees())))


def pack_optimizer_state(marked_pytree: PyTree) -> OptimizerState:
    """The inverse of `unpack_optimizer_state`.

    Args:
      marked_pytree: a pytree of `JoinPoint`s.

    Returns:
      The state.

    Raises:
      TreeError: a leaf is no `JoinPoint`.

    Examples:
      >>> state = sgd(0.1).init_fn({"w": 1.0})
      >>> pack_optimizer_state(unpack_optimizer_state(state)) == state
      True
    """
    leaves, tree = tree_flatten(marked_pytree)
    if not all(isinstance(leaf, JoinPoint) for leaf in leaves):
        raise TreeError(
            "pack_optimizer_state, argument marked_pytree",
            expected="a pytree of JoinPoints",
            got=marked_pytree,
            fix="pass a result of unpack_optimizer_state",
        )
    return OptimizerState.pack(tree, [leaf.subtree for leaf in leaves])
