"""The interface of optimizers: a pair of pure functions on pytrees, `init` and `update`.

Any object with these two functions works wherever this package takes a transformation. Builds on `spmd.jit`; every file
of `optim` and `nnx.Optimizer` use it.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, Union

from phalanx.core import ArgumentError, ArgumentTypeError, state as trace_state
from phalanx.engine.traceback_filtering import api_boundary
from phalanx.spmd import jit
from phalanx.tree import tree_map
from phalanx.typing import Array, PyTree

Scalar: TypeAlias = Union[float, "Array"]
"""A hyperparameter: a Python number, or a scalar array."""

Schedule: TypeAlias = Callable[[Any], Any]
"""A function of the number of previous updates that returns a hyperparameter."""

ScalarOrSchedule: TypeAlias = Scalar | Schedule
"""A hyperparameter that may change during training."""


# A NamedTuple, as in Optax, so that `init, update = tx` works and other libraries' transformations are accepted.
class GradientTransformation(NamedTuple):
    """A rule that turns gradients into updates of parameters.

    Args:
      init: `init(params)` returns the initial state, a tree of arrays.
      update: `update(updates, state, params=None)` returns the new updates and the new state.

    Examples:
      >>> from phalanx import optim
      >>> halve = optim.GradientTransformation(lambda params: (), lambda g, s, p=None: (0.5 * g, s))
      >>> float(optim.chain(halve, optim.scale(-1.0)).update(2.0, ((), optim.EmptyState()))[0])
      -1.0
    """

    init: Callable
    update: Callable


class GradientTransformationExtraArgs(GradientTransformation):
    """A `GradientTransformation` whose `update` accepts further keyword arguments.

    Args:
      init, update: as in `GradientTransformation`.

    Examples:
      >>> from phalanx import optim
      >>> isinstance(optim.sgd(0.1), optim.GradientTransformationExtraArgs)
      True
    """

    # The name of the function of `phalanx.optim` that made it, and its arguments: what is pickled instead of closures.
    _recipe: tuple[str, tuple, dict[str, Any]] | None = None

    def __reduce__(self) -> tuple:
        return (type(self), tuple(self)) if self._recipe is None else (_remake, self._recipe)


def _remake(name: str, args: tuple, kwargs: dict[str, Any]) -> Any:
    return getattr(importlib.import_module("phalanx.optim"), name)(*args, **kwargs)


def make_picklable(make: Any) -> Any:
    """Let the transformations that a public function returns be pickled.

    Args:
      make: a function, or any other public object.

    Returns:
      A function that remembers the arguments, if `make` is annotated to return a transformation; else `make`.
    """
    if getattr(make, "__annotations__", {}).get("return") != GradientTransformationExtraArgs.__name__:
        return make

    @functools.wraps(make)
    def create(*args: Any, **kwargs: Any) -> Any:
        tx = make(*args, **kwargs)
        if tx._recipe is None:  # a function may return a transformation that it was given
            tx._recipe = make.__name__, args, kwargs
        return tx

    return create


class EmptyState(NamedTuple):
    """The state of a stateless transformation.

    Examples:
      >>> from phalanx import optim
      >>> optim.scale(0.5).init({"w": 0.0})
      EmptyState()
    """


def compile_eager_calls(fun: Callable) -> Callable:
    """Compile eager calls of a function of pytrees to one program each.

    Inside a trace the function runs as it is, and also if a keyword argument is a function, such as the `value_fn` of a
    line search.

    Args:
      fun: a function of trees of arrays and numbers.

    Returns:
      The wrapped function, which is compiled at its first eager call.
    """
    compiled: Callable | None = None

    @api_boundary
    @functools.wraps(fun)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal compiled
        # A trace inlines the update into the program being traced. A function argument has no array type to compile
        # for.
        if trace_state.trace is not None or any(map(callable, kwargs.values())):
            return fun(*args, **kwargs)
        if compiled is None:
            # At the first eager call and not at definition, so that creating an optimizer compiles nothing.
            compiled = jit(fun)
        return compiled(*args, **kwargs)

    return call


def make_transformation(init: Callable, update: Callable) -> GradientTransformationExtraArgs:
    """A transformation whose eager updates are one compiled program each.

    Args:
      init: as in `GradientTransformation`.
      update: `update(updates, state, params=None, **extra_args)`; it must be pure, since it runs only while tracing.

    Returns:
      The transformation.
    """
    return GradientTransformationExtraArgs(init, compile_eager_calls(update))


def with_extra_args_support(tx: GradientTransformation) -> GradientTransformationExtraArgs:
    """Make a transformation accept extra keyword arguments, which it ignores if its `update` does not take them.

    Args:
      tx: an object with the functions `init` and `update`.

    Returns:
      A transformation whose `update` accepts any keyword arguments.

    Raises:
      ArgumentTypeError: `tx` lacks one of the functions.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.with_extra_args_support(
      ...     optim.GradientTransformation(lambda p: (), lambda g, s, p=None: (g, s))
      ... )
      >>> tx.update(1.0, (), None, loss=3.0)
      (1.0, ())
    """
    # The subclass is a marker: its `update` accepts any keyword arguments, so no wrapper is needed.
    if isinstance(tx, GradientTransformationExtraArgs):
        return tx
    if not (callable(getattr(tx, "init", None)) and callable(getattr(tx, "update", None))):
        raise ArgumentTypeError(
            "gradient transformation",
            expected="an object with the functions init and update",
            got=f"{tx!r} of type {type(tx).__name__}",
            fix="pass a transformation such as optim.adam(1e-3), with its arguments applied",
        )
    if any(p.kind is p.VAR_KEYWORD for p in inspect.signature(tx.update).parameters.values()):
        return GradientTransformationExtraArgs(tx.init, tx.update)

    return GradientTransformationExtraArgs(
        tx.init, lambda updates, state, params=None, **extra_args: tx.update(updates, state, params)
    )


def require_params(params: PyTree, where: str) -> Any:
    """Check that `update` was called with parameters, and return them.

    Raises:
      ArgumentError: `params` is None.
    """
    if params is None:
        raise ArgumentError(
            f"{where}, argument params of update",
            expected="the parameters, which this transformation reads",
            got=None,
            fix="call update(updates, state, params)",
        )
    return params


def init_empty(params: PyTree) -> EmptyState:
    """The initial state of a stateless transformation."""
    return EmptyState()


def identity() -> GradientTransformationExtraArgs:
    """Return updates unchanged.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> float(optim.identity().update(2.0, optim.EmptyState())[0])
      2.0
    """
    return GradientTransformationExtraArgs(init_empty, lambda updates, state, params=None, **extra: (updates, state))


def stateless(f: Callable) -> GradientTransformationExtraArgs:
    """A transformation without state, made from a function of the updates and parameters.

    Args:
      f: `f(updates, params)` returns the new updates.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.stateless(lambda updates, params: updates - 0.5 * params)
      >>> float(tx.update(2.0, tx.init(1.0), 1.0)[0])
      1.5
    """
    return make_transformation(init_empty, lambda updates, state, params=None, **extra: (f(updates, params), state))


def stateless_with_tree_map(f: Callable) -> GradientTransformationExtraArgs:
    """A transformation without state that applies a function to each leaf of the updates and parameters.

    Args:
      f: `f(update, param)` returns the new update; `param` is None if no parameters are passed.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.stateless_with_tree_map(lambda g, p: 2 * g)
      >>> float(tx.update({"w": 2.0}, tx.init({"w": 1.0}))[0]["w"])
      4.0
    """

    return stateless(
        lambda updates, params: (
            tree_map(lambda g: f(g, None), updates) if params is None else tree_map(f, updates, params)
        )
    )
