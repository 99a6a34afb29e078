"""`TrainState`: a model's structure, parameters and optimiser as one immutable tree, for steps without side effects."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from phalanx import numpy as jnp
from phalanx.nnx.graphs import GraphDef
from phalanx.nnx.states import State
from phalanx.optim import apply_updates, with_extra_args_support
from phalanx.tree import register_dataclass


@dataclasses.dataclass(frozen=True)
class TrainState:
    """What a training step takes and gives: a tree whose leaves are parameters, optimiser state and step.

    Args:
      graphdef: the structure of the model.
      params: its parameters.
      opt_state: the state of the optimiser.
      step: how many steps were made.
      tx: the optimiser, a pair of functions `(init, update)`.

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
    opt_state: Any
    step: Any
    tx: Any = dataclasses.field(metadata={"static": True})

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        register_dataclass(dataclasses.dataclass(frozen=True)(cls))

    @classmethod
    def create(cls, graphdef: GraphDef, *, params: State, tx: Any, step: int = 0, **kwargs: Any) -> TrainState:
        """A state before the first step.

        Args:
          graphdef: the structure of the model.
          params: its parameters.
          tx: the optimiser.
          step: the number of the step.
          **kwargs: a subclass's own fields.

        Returns:
          The state.
        """
        return cls(graphdef=graphdef, params=params, opt_state=with_extra_args_support(tx).init(params),
                   step=jnp.asarray(step, np.int32), tx=tx, **kwargs)  # fmt: skip

    def apply(self, state: Any, *states: Any) -> Any:
        """What calls the model with these states: `state.apply("params")(x)`, or with states themselves.

        Args:
          state, *states: states, or names of fields that hold them.

        Returns:
          What `nnx.call` gives.
        """
        given = [getattr(self, s) if isinstance(s, str) else s for s in (state, *states)]
        return self.graphdef.apply(*given)

    def apply_gradients(self, grads: State, **kwargs: Any) -> TrainState:
        """The state after one step along these gradients.

        Args:
          grads: a state like the parameters.
          **kwargs: further fields to change.

        Returns:
          The new state.
        """
        updates, opt_state = self.tx.update(grads, self.opt_state, self.params)
        params = apply_updates(self.params, updates)
        return self.replace(params=params, opt_state=opt_state, step=self.step + 1, **kwargs)

    def replace(self, **changes: Any) -> TrainState:
        """The state with other values in some fields.

        Args:
          **changes: the values by the field's name.

        Returns:
          The new state.
        """
        return dataclasses.replace(self, **changes)


register_dataclass(TrainState)
