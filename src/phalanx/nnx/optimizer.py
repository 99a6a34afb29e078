"""Optimisers of modules: `Optimizer` holds the state of an optimiser for some variables of a model.

Any pair of functions `(init, update)` drops in, such as those of `phalanx.optim`. An eager update is one compiled
program. Builds on `functional` and `optim.apply_updates`; training programs call it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx import numpy as jnp
from phalanx.core.errors import ArgumentError, ArgumentTypeError, TreeError
from phalanx.nnx import functional
from phalanx.nnx.filters import Filter, to_predicate
from phalanx.nnx.objects import Object, is_array
from phalanx.nnx.states import State, path_text, to_flat_state
from phalanx.nnx.variable import OptArray, OptState, OptVariable, Param, Variable
from phalanx.optim import apply_updates, with_extra_args_support
from phalanx.optim.protocol import at_once
from phalanx.tree import tree_flatten, tree_leaves, tree_map, tree_unflatten

_MISSING: Any = object()


@functools.lru_cache(maxsize=128)
def _step_of(tx: Any) -> Callable:
    """One step of an optimiser, as one compiled program when eager."""
    update = with_extra_args_support(tx).update

    def step(grads: Any, opt_state: Any, params: Any, count: Any, extra: dict) -> tuple:
        updates, opt_state = update(grads, opt_state, params, **extra)
        return apply_updates(params, updates), opt_state, count + 1

    return at_once(step)


def _is_variable(x: Any) -> bool:
    return isinstance(x, Variable)


def _boxed(opt_state: Any, params: State) -> Any:
    """An optimiser's state with its arrays in variables; one like a parameter has that one's metadata."""
    metadata = {path: (np.shape(v.raw_value), v.get_metadata()) for path, v in to_flat_state(params) if _is_variable(v)}

    def box(path: tuple, x: Any) -> Any:
        if not is_array(x):
            return x
        if path not in metadata:
            return OptArray(x)
        shape, given = metadata[path]
        # Hooks are about the parameter's own value; names of dimensions fit an array of its shape only.
        kept = {k: v for k, v in given.items() if not k.startswith("on_")} if shape == x.shape else {}
        return OptVariable(x, **kept)

    def boxed(part: Any) -> Any:
        return part.map(box) if isinstance(part, State) else box((), part)

    return tree_map(boxed, opt_state, is_leaf=lambda x: isinstance(x, State))


class Optimizer(Object):
    """The state of an optimiser for the variables of a model that it changes.

    Args:
      model: the model.
      tx: anything with the functions `init` and `update`, such as `optim.adam(1e-3)`.
      wrt: which variables it changes, a filter such as `nnx.Param`.

    Raises:
      ArgumentTypeError: `wrt` is missing, or `tx` has no such functions.
      ArgumentError: `wrt` means no variable of the model.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx, optim
      >>> model = nnx.Linear(2, 3, rngs=nnx.Rngs(0))
      >>> optimizer = nnx.Optimizer(model, optim.sgd(0.1), wrt=nnx.Param)
      >>> _ = optimizer.update(model, nnx.map_state(lambda path, v: jnp.ones(v.shape), nnx.state(model)))
      >>> model.bias.value.tolist(), int(optimizer.step.value)
      ([-0.1..., -0.1..., -0.1...], 1)
    """

    def __init__(self, model: Any, tx: Any, *, wrt: Filter = _MISSING):
        if wrt is _MISSING:
            raise ArgumentTypeError(
                f"nnx.{type(self).__name__}, argument wrt", expected="which variables it changes", got="nothing",
                mend="pass wrt=nnx.Param",
            )  # fmt: skip
        self.step = OptState(jnp.zeros((), np.uint32))
        self.tx = tx
        self.wrt = wrt
        params = functional.state(model, wrt)
        if not len(params):
            raise ArgumentError(
                f"nnx.{type(self).__name__}, argument wrt",
                expected=f"variables of the model that {to_predicate(wrt)!r} means",
                got="none",
                mend="correct the filter",
            )
        self.opt_state = _boxed(with_extra_args_support(tx).init(_pure(params)), params)

    def update(self, model: Any, grads: Any, **kwargs: Any) -> None:
        """Make one step: change the model's variables and this optimiser's own state.

        Args:
          model: the model.
          grads: the gradients with respect to the variables `wrt`, as `nnx.grad` gives them.
          **kwargs: extra arguments of the `update` of `tx`.

        Raises:
          TreeError: the gradients are not those of the model's variables.
        """
        params = functional.state(model, self.wrt)
        _check_same(params, grads)
        boxes, structure = tree_flatten(self.opt_state, is_leaf=_is_variable)
        opt_state = tree_unflatten(structure, [_value(box) for box in boxes])
        extra = _pure(kwargs)
        step = _step_of(self.tx)
        new, opt_state, count = step(_pure(_as_state(grads)), opt_state, _pure(params), self.step.value, extra)
        for variable, value in zip(tree_leaves(params, is_leaf=_is_variable), tree_leaves(new), strict=True):
            variable.value = value
        for box, value in zip(boxes, tree_leaves(opt_state), strict=True):
            box.value = value
        self.step.value = count


def _value(x: Any) -> Any:
    return x.value if isinstance(x, Variable) else x


def _pure(tree: Any) -> Any:
    """A tree with the values of its variables in their place."""
    return tree_map(_value, tree, is_leaf=_is_variable)


def _as_state(grads: Any) -> State:
    return grads if isinstance(grads, State) else functional.state(grads)


def _check_same(params: State, grads: Any) -> None:
    """Refuse gradients that are not those of the parameters.

    Raises:
      TreeError: a gradient is missing, has no parameter, or has another shape.
    """
    wanted, given = dict(to_flat_state(params).items()), dict(to_flat_state(_as_state(grads)).items())
    for path in wanted.keys() ^ given.keys():
        has = "a gradient" if path in wanted else "no gradient, since the optimiser does not change it"
        raise TreeError(
            f"nnx.Optimizer.update, argument grads, {path_text(path)}", expected=has,
            got="none" if path in wanted else "one",
            mend="differentiate with respect to the same variables, as in nnx.grad(f, argnums=nnx.DiffState(0, wrt))",
        )  # fmt: skip
    for path, variable in wanted.items():
        shape, got = np.shape(_value(variable)), np.shape(_value(given[path]))
        if shape != got:
            raise TreeError(
                f"nnx.Optimizer.update, argument grads, {path_text(path)}", expected=f"shape {tuple(shape)}",
                got=f"shape {tuple(got)}", mend="pass the gradients of this model",
            )  # fmt: skip


class ModelAndOptimizer(Optimizer):
    """An `Optimizer` that holds its model as well.

    Args:
      model: the model.
      tx: anything with the functions `init` and `update`.
      wrt: which variables it changes.

    Examples:
      >>> from phalanx import nnx, optim
      >>> state = nnx.ModelAndOptimizer(nnx.Linear(2, 3, rngs=nnx.Rngs(0)), optim.adam(1e-3))
      >>> state.model.out_features
      3
    """

    def __init__(self, model: Any, tx: Any, *, wrt: Filter = Param):
        super().__init__(model, tx, wrt=wrt)
        self.model = model

    def update(self, grads: Any, **kwargs: Any) -> None:  # type: ignore[override]
        """Make one step.

        Args:
          grads, **kwargs: as in `Optimizer`, as are the errors.
        """
        super().update(self.model, grads, **kwargs)
