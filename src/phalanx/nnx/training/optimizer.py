"""`Optimizer`, which applies an optimizer of `phalanx.optim` to variables of a model.

Any pair of functions `(init, update)` can be used. An eager update runs as one compiled program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx import numpy as jnp
from phalanx.core import ArgumentError, ArgumentTypeError, TreeError
from phalanx.engine.cache import memoize
from phalanx.nnx.filters import Filter, to_predicate
from phalanx.nnx.graphlib import Path, State, format_path, split_merge, to_flat_state
from phalanx.nnx.objects import Pytree, is_array
from phalanx.nnx.variable import MISSING, is_variable, unwrap
from phalanx.nnx.variable_types import OptArray, OptState, OptVariable, Param
from phalanx.optim import GradientTransformation, apply_updates, with_extra_args_support
from phalanx.optim.gradient_transformation import compile_eager_calls
from phalanx.tree import tree_flatten, tree_leaves, tree_map, tree_unflatten
from phalanx.typing import PyTree


@memoize("nnx.optimizer_steps", 128)
def _get_step(tx: GradientTransformation) -> Callable:
    """One step of an optimizer; eager calls run as one compiled program, which is cached by the optimizer."""
    # Optimizers without extra arguments ignore them, as in Optax.
    update = with_extra_args_support(tx).update

    # The extra arguments are keywords here, so that a function among them (`value_fn=`) is not compiled for.
    def step(grads: PyTree, opt_state: PyTree, params: PyTree, count: Any, /, **extra: Any) -> tuple:
        updates, opt_state = update(grads, opt_state, params, **extra)
        return apply_updates(params, updates), opt_state, count + 1, updates

    return compile_eager_calls(step)


def _wrap_in_variables(opt_state: PyTree, params: State) -> PyTree:
    """Wrap the arrays of an optimizer state in variables.

    An array at the path of a parameter becomes an `OptVariable` with the metadata of the parameter, so that it is
    sharded in the same way, or as the metadata `optimizer_sharding` says.
    """
    metadata = {path: (np.shape(v.raw_value), v.get_metadata()) for path, v in to_flat_state(params) if is_variable(v)}

    def wrap(path: Path, x: Any) -> Any:
        if not is_array(x):
            return x
        if path not in metadata:
            return OptArray(x)
        shape, given = metadata[path]
        # Hooks apply to the value of the parameter only, and dimension names only to arrays of its shape.
        kept = {k: v for k, v in given.items() if not k.startswith("on_")} if shape == x.shape else {}
        if "optimizer_sharding" in kept:
            kept["out_sharding"] = kept.pop("optimizer_sharding")
        return OptVariable(x, **kept)

    def wrap_part(part: Any) -> Any:
        return part.map(wrap) if isinstance(part, State) else wrap((), part)

    return tree_map(wrap_part, opt_state, is_leaf=lambda x: isinstance(x, State))


class Optimizer(Pytree):
    """The state of an optimizer for variables of a model.

    Args:
      model: the model.
      tx: an object with the functions `init` and `update`, such as `optim.adam(1e-3)`.
      wrt: the variables to optimize, a filter such as `nnx.Param`.
      graph: False for the tree mode, in which shared variables are errors; None for the default of `set_graph_mode`.

    Raises:
      ArgumentTypeError: `wrt` is omitted, or `tx` lacks one of the functions.
      ArgumentError: `wrt` matches no variable of the model.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx, optim
      >>> model = nnx.Linear(2, 3, rngs=nnx.Rngs(0))
      >>> optimizer = nnx.Optimizer(model, optim.sgd(0.1), wrt=nnx.Param)
      >>> _ = optimizer.update(model, nnx.map_state(lambda path, v: jnp.ones(v.shape), nnx.state(model)))
      >>> model.bias.value.tolist(), int(optimizer.step.value)
      ([-0.1..., -0.1..., -0.1...], 1)
    """

    def __init__(self, model: PyTree, tx: GradientTransformation, *, wrt: Filter = MISSING, graph: bool | None = None):
        if wrt is MISSING:
            raise ArgumentTypeError(
                f"nnx.{type(self).__name__}, argument wrt",
                expected="a filter that selects the variables to optimize",
                got="nothing",
                fix="pass wrt=nnx.Param to optimize all parameters",
            )
        self.graph = graph
        self.step = OptState(jnp.zeros((), np.uint32))
        self.tx = tx
        params = split_merge.state(model, wrt, graph=graph)
        if not len(params):
            raise ArgumentError(
                f"nnx.{type(self).__name__}, argument wrt",
                expected=f"variables of the model that {to_predicate(wrt)!r} matches",
                got="none",
                fix="pass a filter such as nnx.Param; nnx.state(model) shows the variables",
            )
        self.opt_state = _wrap_in_variables(with_extra_args_support(tx).init(_to_values(params)), params)
        self.wrt = wrt

    def __class_getitem__(cls, model: object) -> Any:
        return cls

    def update(self, model: PyTree, grads: PyTree, /, **kwargs: Any) -> PyTree:
        """Update the variables of the model and the state of the optimizer.

        Args:
          model: the model.
          grads: the gradients with respect to the variables `wrt`, as returned by `nnx.grad`. Gradients of other
            variables are ignored.
          **kwargs: extra arguments of `tx.update`: arrays, states, and functions such as the `value_fn` of a line
            search.

        Returns:
          The updates that were added to the variables, as a state of arrays.

        Raises:
          TreeError: a gradient is missing, or of another shape than its variable.
        """
        params = split_merge.state(model, self.wrt, graph=self.graph)
        grads = _select_gradients(grads, self.wrt)
        _check_gradients(params, grads)
        variables, structure = tree_flatten(self.opt_state, is_leaf=is_variable)
        opt_state = tree_unflatten(structure, [unwrap(v) for v in variables])
        new, opt_state, count, updates = _get_step(self.tx)(
            _to_values(grads), opt_state, _to_values(params), self.step.value, **_to_values(kwargs)
        )
        # The step does not change structures, so that new values are assigned in the order of the leaves.
        for variable, value in zip(variables, tree_leaves(opt_state), strict=True):
            variable.value = value
        for (path, param), value in zip(params.leaves_by_path(), tree_leaves(new), strict=True):
            if is_variable(param):
                param.value = value
            else:  # an array outside of variables, which its module replaces
                split_merge.update(model, State.from_flat_path([(path, value)]))
        self.step.value = count
        return updates


def _to_values(tree: PyTree) -> PyTree:
    """Replace each variable in a tree by its value, after its hooks."""
    return tree_map(unwrap, tree, is_leaf=is_variable)


def _select_gradients(grads: PyTree, wrt: Filter) -> State:
    """The gradients as a state, without variables that the optimizer does not change."""
    predicate = to_predicate(wrt)
    found = grads if isinstance(grads, State) else split_merge.state(grads)
    return State.from_flat_path((p, x) for p, x in found.leaves_by_path() if not is_variable(x) or predicate(p, x))


def _check_gradients(params: State, grads: State) -> None:
    """Check that there is a gradient of the right shape for each parameter, and no other gradient.

    Raises:
      TreeError: a gradient is missing, superfluous or of another shape than its parameter.
    """
    expected, got = dict(to_flat_state(params).items()), dict(to_flat_state(grads).items())
    for path in expected.keys() ^ got.keys():
        is_missing = path in expected
        raise TreeError(
            f"nnx.Optimizer.update, argument grads, {format_path(path)}",
            expected="a gradient" if is_missing else "no gradient, since the optimizer does not change it",
            got="none" if is_missing else "one",
            fix="differentiate with respect to the same variables: nnx.grad(f, argnums=nnx.DiffState(0, wrt))",
        )
    for path, variable in expected.items():
        shape, grad_shape = np.shape(unwrap(variable)), np.shape(unwrap(got[path]))
        if shape != grad_shape:
            raise TreeError(
                f"nnx.Optimizer.update, argument grads, {format_path(path)}",
                expected=f"shape {tuple(shape)}",
                got=f"shape {tuple(grad_shape)}",
                fix="pass gradients that nnx.grad computed for this model",
            )


class ModelAndOptimizer(Optimizer):
    """An `Optimizer` that also holds the model.

    Args:
      model: the model.
      tx: an object with the functions `init` and `update`.
      wrt: the variables to optimize.
      graph: as in `Optimizer`.

    Examples:
      >>> from phalanx import nnx, optim
      >>> state = nnx.ModelAndOptimizer(nnx.Linear(2, 3, rngs=nnx.Rngs(0)), optim.adam(1e-3))
      >>> state.model.out_features
      3
    """

    def __init__(self, model: PyTree, tx: GradientTransformation, *, wrt: Filter = Param, graph: bool | None = None):
        super().__init__(model, tx, wrt=wrt, graph=graph)
        self.model = model

    def update(self, grads: PyTree, /, **kwargs: Any) -> PyTree:  # type: ignore[override]
        """Update the variables of the model and the state of the optimizer.

        Args:
          grads, **kwargs: as in `Optimizer.update`, which also lists the errors.

        Returns:
          The updates that were added to the variables.
        """
        return super().update(self.model, grads, **kwargs)
