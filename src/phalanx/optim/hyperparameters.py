"""`inject_hyperparams`: hyperparameters of an optimizer as arrays in its state.

Builds on `gradient_transformation`; users call it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from phalanx import numpy as jnp
from phalanx.core import ArgumentTypeError
from phalanx.optim.gradient_transformation import (
    GradientTransformationExtraArgs,
    make_transformation,
    with_extra_args_support,
)
from phalanx.optim.tree_arithmetic import init_count, safe_increment
from phalanx.typing import Array, DTypeLike, PyTree


class InjectHyperparamsState(NamedTuple):
    """The state of a transformation with injected hyperparameters.

    Args:
      count: int32[], the number of updates.
      hyperparams: the values of the hyperparameters by name.
      inner_state: the state of the inner transformation.

    Examples:
      >>> from phalanx import optim
      >>> state = optim.inject_hyperparams(optim.sgd)(learning_rate=0.5).init({"w": 0.0})
      >>> float(state.hyperparams["learning_rate"])
      0.5
    """

    count: Any
    hyperparams: dict[str, Any]
    inner_state: PyTree


def inject_hyperparams(
    inner_factory: Callable[..., Any], static_args: str | Iterable[str] = (), hyperparam_dtype: DTypeLike | None = None
) -> Callable[..., GradientTransformationExtraArgs]:
    """Keep the numeric hyperparameters of an optimizer in its state, where they can be read and changed.

    Args:
      inner_factory: a function that returns a transformation, such as `optim.adam`. Its numeric arguments become arrays
        in the state, its schedules are evaluated at each update, and other arguments are unchanged.
      static_args: the names of arguments to leave unchanged.
      hyperparam_dtype: the dtype of the arrays; float32 by default.

    Returns:
      A function of the same arguments, which returns a transformation whose state has a dictionary `hyperparams`.

    Raises:
      ArgumentTypeError: `static_args` contains a name that is not an argument of `inner_factory`.

    Examples:
      >>> import numpy as np
      >>> from phalanx import optim
      >>> tx = optim.inject_hyperparams(optim.sgd)(learning_rate=0.5)
      >>> state = tx.init(1.0)
      >>> state.hyperparams["learning_rate"] = np.float32(0.25)
      >>> float(tx.update(1.0, state)[0])
      -0.25
    """
    static = {static_args} if isinstance(static_args, str) else set(static_args)
    signature = inspect.signature(inner_factory)
    if unknown := static - set(signature.parameters):
        raise ArgumentTypeError(
            "optim.inject_hyperparams, argument static_args",
            expected=f"names among {list(signature.parameters)}",
            got=sorted(unknown),
            fix="pass the names of parameters of `inner_factory`",
        )
    dtype = np.dtype(hyperparam_dtype or np.float32)

    @functools.wraps(inner_factory)
    def factory(*args: Any, **kwargs: Any) -> GradientTransformationExtraArgs:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        fixed, numeric, schedules = _classify_arguments(bound.arguments, static)

        def evaluate_schedules(count: Array) -> dict[str, Array]:
            return {name: jnp.asarray(schedule(count), dtype) for name, schedule in schedules.items()}

        def init(params: PyTree) -> InjectHyperparamsState:
            # The inner transformation is created anew in `init` and `update`, with the current values as its arguments.
            count = init_count()
            values = {name: jnp.asarray(value, dtype) for name, value in numeric.items()} | evaluate_schedules(count)
            return InjectHyperparamsState(count, values, inner_factory(**fixed, **values).init(params))

        def update(updates: PyTree, state: Any, params: PyTree = None, **extra_args: Any) -> tuple:
            # Values from the state come first, so that a user may change them between updates; schedules overwrite
            # theirs.
            values = {**state.hyperparams, **evaluate_schedules(state.count)}
            inner = with_extra_args_support(inner_factory(**fixed, **values))
            updates, inner_state = inner.update(updates, state.inner_state, params, **extra_args)
            return updates, InjectHyperparamsState(safe_increment(state.count), values, inner_state)

        return make_transformation(init, update)

    return factory


def _classify_arguments(arguments: Mapping[str, Any], static: set[str]) -> tuple[dict, dict, dict]:
    """Split the arguments of a factory into unchanged ones, numbers, and schedules."""
    fixed: dict = {}
    numeric: dict = {}
    schedules: dict = {}
    for name, value in arguments.items():
        # A bool is an int in Python, but a flag such as `nesterov` must stay a Python value; so must a dtype class.
        if name in static or isinstance(value, bool | str | type):
            kind = fixed
        elif callable(value):
            kind = schedules
        else:
            kind = numeric if isinstance(value, int | float) or hasattr(value, "dtype") else fixed
        kind[name] = value
    return fixed, numeric, schedules


inject_stateful_hyperparams = inject_hyperparams
