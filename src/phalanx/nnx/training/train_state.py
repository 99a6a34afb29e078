"""`TrainState`: the structure, parameters and optimizer state of a model as one immutable pytree."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from phalanx import numpy as jnp
from phalanx.nnx.graphlib import GraphDef, State
from phalanx.optim import GradientTransformation, apply_updates, with_extra_args_support
from phalanx.tree import register_dataclass
from phalanx.typing import ArrayLike, PyTree


@dataclasses.dataclass(frozen=True)
class TrainState:
    """The argument and result of a training step: a pytree of parameters, optimizer state and step count.

    Args:
      graphdef: the structure of the model.
      params: the parameters of the model.
      opt_state: the state of the optimizer.
      step: the number of completed steps.
      tx: the optimizer, a pair of functions `(init, update)`.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx import nnx, optim
      >>> graphdef, params = nnx.split(nnx.Linear(2, 3, rngs=nnx.Rngs(0)))
      >>> state = nnx.TrainState.create(graphdef, params=params, tx=optim.sgd(0.5))
      >>> state = state.apply_gradients(phalanx.tree.map(jnp.ones_like, params))
      >>> int(state.step), state.params.bias.value.tolist()
      (1, [-0.5, -0.5, -0.5])
    """

    graphdef: GraphDef = dataclasses.field(metadata={"static": True})
    params: State
    opt_state: PyTree
    step: ArrayLike
    tx: GradientTransformation = dataclasses.field(metadata={"static": True})

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        register_dataclass(dataclasses.dataclass(frozen=True)(cls))

    def __class_getitem__(cls, model: object) -> Any:
        return cls

    @classmethod
    def create(
        cls, graphdef: GraphDef, *, params: State, tx: GradientTransformation, step: int = 0, **kwargs: Any
    ) -> TrainState:
        """Create the state before the first step.

        Args:
          graphdef: the structure of the model.
          params: the parameters of the model.
          tx: the optimizer.
          step: the number of completed steps.
          **kwargs: fields of a subclass.

        Returns:
          The state.
        """
        return cls(
            graphdef=graphdef,
            params=params,
            opt_state=with_extra_args_support(tx).init(params),
            step=jnp.asarray(step, np.int32),
            tx=tx,
            **kwargs,
        )

    def apply(self, state: str | Mapping, *states: str | Mapping) -> Any:
        """Return a callable for the model with these states: `state.apply("params")(x)`.

        Args:
          state, *states: states, or names of fields that contain them.

        Returns:
          The result of `nnx.call`.
        """
        return self.graphdef.apply(*(getattr(self, s) if isinstance(s, str) else s for s in (state, *states)))

    def apply_gradients(self, grads: State, **kwargs: Any) -> TrainState:
        """Return the state after one step of the optimizer.

        Args:
          grads: the gradients, a state of the structure of the parameters.
          **kwargs: new values of other fields.

        Returns:
          The new state.
        """
        updates, opt_state = self.tx.update(grads, self.opt_state, self.params)
        # A new state: the previous one stays valid, unless it is donated.
        params = apply_updates(self.params, updates)
        return self.replace(params=params, opt_state=opt_state, step=self.step + 1, **kwargs)

    def replace(self, **changes: Any) -> TrainState:
        """Return the state with new values of some fields.

        Args:
          **changes: values by the name of the field.

        Returns:
          The new state.
        """
        return dataclasses.replace(self, **changes)


register_dataclass(TrainState)
