"""The protocol of optimisers: a pair of functions on trees, `init` and `update`, that hold no state of their own.

Whatever has such a pair fits everywhere in this room. Builds on `spmd.jit`; every file of `optim` and `nnx` call it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from phalanx.core.config import state as trace_state
from phalanx.core.errors import ArgumentError, ArgumentTypeError
from phalanx.engine.frames import boundary
from phalanx.spmd import jit
from phalanx.tree import tree_map

Schedule = Callable[[Any], Any]
ScalarOrSchedule = float | Any | Schedule


class GradientTransformation(NamedTuple):
    """A rule that turns gradients into updates of parameters.

    Args:
      init: `init(params)` gives the first state, a tree of arrays.
      update: `update(updates, state, params=None)` gives the new updates and the new state.

    Examples:
      >>> from phalanx import optim
      >>> halve = optim.GradientTransformation(lambda params: (), lambda g, s, p=None: (0.5 * g, s))
      >>> float(optim.chain(halve, optim.scale(-1.0)).update(2.0, ((), optim.EmptyState()))[0])
      -1.0
    """

    init: Callable
    update: Callable


class GradientTransformationExtraArgs(GradientTransformation):
    """A `GradientTransformation` whose `update` takes any keyword arguments beyond those of the protocol.

    Args:
      init, update: as in `GradientTransformation`.

    Examples:
      >>> from phalanx import optim
      >>> isinstance(optim.sgd(0.1), optim.GradientTransformationExtraArgs)
      True
    """

    __slots__ = ()


class EmptyState(NamedTuple):
    """The state of a transformation that remembers nothing.

    Examples:
      >>> from phalanx import optim
      >>> optim.scale(0.5).init({"w": 0.0})
      EmptyState()
    """


def at_once(fun: Callable) -> Callable:
    """Make an eager call of a function of trees one compiled program; while something is traced, it simply runs.

    It also simply runs where a keyword argument is a function, such as the `value_fn` of a line search.

    Args:
      fun: a function of trees of arrays and numbers.

    Returns:
      The function, compiled at its first eager call.
    """
    compiled: Callable | None = None

    @boundary
    @functools.wraps(fun)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal compiled
        if trace_state.trace is not None or any(map(callable, kwargs.values())):
            return fun(*args, **kwargs)
        if compiled is None:
            compiled = jit(fun)
        return compiled(*args, **kwargs)

    return call


def transformation(init: Callable, update: Callable) -> GradientTransformationExtraArgs:
    """Make a transformation whose eager updates are one compiled program each.

    Args:
      init: as in `GradientTransformation`.
      update: `update(updates, state, params=None, **extra_args)`; pure, since it is called once for each program.

    Returns:
      The transformation.
    """
    return GradientTransformationExtraArgs(init, at_once(update))


def _takes_extra_args(update: Callable) -> bool:
    return any(p.kind is p.VAR_KEYWORD for p in inspect.signature(update).parameters.values())


def with_extra_args_support(tx: Any) -> GradientTransformationExtraArgs:
    """Let a transformation stand where extra arguments are passed; one that takes none is not given them.

    Args:
      tx: anything with the methods or fields `init` and `update`.

    Returns:
      A transformation whose `update` accepts any keyword arguments.

    Raises:
      ArgumentTypeError: `tx` has no such functions.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.with_extra_args_support(
      ...     optim.GradientTransformation(lambda p: (), lambda g, s, p=None: (g, s))
      ... )
      >>> tx.update(1.0, (), None, loss=3.0)
      (1.0, ())
    """
    if isinstance(tx, GradientTransformationExtraArgs):
        return tx
    if not (callable(getattr(tx, "init", None)) and callable(getattr(tx, "update", None))):
        raise ArgumentTypeError(
            "gradient transformation", expected="an object with the functions init and update",
            got=f"{tx!r} of type {type(tx).__name__}", mend="call the factory first, as in optim.adam(1e-3)",
        )  # fmt: skip
    if _takes_extra_args(tx.update):
        return GradientTransformationExtraArgs(tx.init, tx.update)

    def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> tuple:
        return tx.update(updates, state, params)

    return GradientTransformationExtraArgs(tx.init, update)


def needed(params: Any, where: str) -> Any:
    """The parameters given to `update`.

    Raises:
      ArgumentError: there are none.
    """
    if params is None:
        raise ArgumentError(
            f"{where}, argument params of update", expected="the parameters, which this transformation reads",
            got=None, mend="call update(updates, state, params)",
        )  # fmt: skip
    return params


def init_empty(params: Any) -> EmptyState:
    """The first state of a transformation that remembers nothing."""
    return EmptyState()


def identity() -> GradientTransformationExtraArgs:
    """Leave updates as they are.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> float(optim.identity().update(2.0, optim.EmptyState())[0])
      2.0
    """
    return GradientTransformationExtraArgs(init_empty, lambda updates, state, params=None, **extra: (updates, state))


def stateless(f: Callable) -> GradientTransformationExtraArgs:
    """Make a transformation of a function that remembers nothing.

    Args:
      f: `f(updates, params)` gives the new updates.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.stateless(lambda updates, params: updates - 0.5 * params)
      >>> float(tx.update(2.0, tx.init(1.0), 1.0)[0])
      1.5
    """
    return transformation(init_empty, lambda updates, state, params=None, **extra: (f(updates, params), state))


def stateless_with_tree_map(f: Callable) -> GradientTransformationExtraArgs:
    """Make a transformation of a function of one update and one parameter.

    Args:
      f: `f(update, param)` gives the new update; `param` is None where no parameters are passed.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.stateless_with_tree_map(lambda g, p: 2 * g)
      >>> float(tx.update({"w": 2.0}, tx.init({"w": 1.0}))[0]["w"])
      4.0
    """

    def mapped(updates: Any, params: Any) -> Any:
        return tree_map(lambda g: f(g, None), updates) if params is None else tree_map(f, updates, params)

    return stateless(mapped)
