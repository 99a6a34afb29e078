"""`TrainState` of `flax.training`: a function, parameters and the state of an optimizer as one immutable pytree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from phalanx.flax.struct import PyTreeNode, field
from phalanx.optim import GradientTransformation, apply_updates
from phalanx.typing import ArrayLike, PyTree


class TrainState(PyTreeNode):
    """The argument and result of a training step.

    Args:
      step: the number of completed steps.
      apply_fn: the function of the parameters, such as the model.
      params: the parameters.
      tx: the optimizer, a pair of functions `(init, update)`.
      opt_state: the state of the optimizer.

    Examples:
      >>> from phalanx import grad, optim
      >>> from phalanx.flax.training.train_state import TrainState
      >>> state = TrainState.create(apply_fn=lambda p, x: p["w"] * x, params={"w": 3.0}, tx=optim.sgd(0.5))
      >>> state = state.apply_gradients(grads=grad(lambda p: state.apply_fn(p, 2.0))(state.params))
      >>> int(state.step), float(state.params["w"])
      (1, 2.0)
    """

    step: ArrayLike
    apply_fn: Callable = field(pytree_node=False)
    params: PyTree
    tx: GradientTransformation = field(pytree_node=False)
    opt_state: PyTree

    def apply_gradients(self, *, grads: PyTree, **kwargs: Any) -> Any:
        """Return the state after one step of the optimizer.

        Args:
          grads: the gradients, a tree of the structure of the parameters.
          **kwargs: new values of other fields.

        Returns:
          The new state.
        """
        updates, opt_state = self.tx.update(grads, self.opt_state, self.params)
        params = apply_updates(self.params, updates)
        return self.replace(step=self.step + 1, params=params, opt_state=opt_state, **kwargs)  # type: ignore[operator]

    @classmethod
    def create(cls, *, apply_fn: Callable, params: PyTree, tx: GradientTransformation, **kwargs: Any) -> Any:
        """Create the state before the first step.

        Args:
          apply_fn, params, tx: as of the class.
          **kwargs: fields of a subclass.

        Returns:
          The state.
        """
        fields: dict[str, Any] = {"step": 0, "apply_fn": apply_fn, "params": params, "tx": tx, **kwargs}
        return cls(opt_state=tx.init(params), **fields)
