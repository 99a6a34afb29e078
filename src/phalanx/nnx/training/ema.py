"""`EMA`: an exponential moving average of a model's variables, for evaluation."""

from __future__ import annotations

from typing import Any

from phalanx.core import ArgumentError
from phalanx.nnx.filters import Filter
from phalanx.nnx.graphlib import State, split_merge, to_flat_state
from phalanx.nnx.objects import Pytree
from phalanx.nnx.variable import as_pure
from phalanx.optim import incremental_update
from phalanx.typing import PyTree


class EMA(Pytree):
    """An exponential moving average of a model's variables: decay * average + (1 - decay) * value.

    Args:
      params: the model, or a state of it, with the initial values of the average.
      decay: the weight of the previous average, between 0 and 1.
      only: the variables to average.
      graph: False for the tree mode, in which shared variables are errors; None for the default of `set_graph_mode`.

    Raises:
      ArgumentError: the decay is not between 0 and 1.

    Examples:
      >>> from phalanx import nnx
      >>> model = nnx.PReLU(1.0)
      >>> average = nnx.EMA(model, decay=0.75)
      >>> averaged_model = average.apply_to(model)
      >>> model.negative_slope.value *= 0.0
      >>> average.update(model)
      >>> float(averaged_model.negative_slope.value), float(model.negative_slope.value)
      (0.75, 0.0)

    Source: B. T. Polyak and A. B. Juditsky (1992), doi:10.1137/0330046.
    """

    def __init__(self, params: PyTree, decay: float, *, only: Filter = ..., graph: bool | None = None):
        if not 0 <= decay <= 1:
            raise ArgumentError(
                "nnx.EMA, argument decay",
                expected="a number between 0 and 1",
                got=decay,
                fix="pass 0.999 to average over about 1,000 updates",
            )
        self.graph, self.decay = graph, decay
        self.filter = only
        self.params = split_merge.clone(split_merge.state(params, only, graph=graph))

    def update(self, updates: PyTree) -> None:
        """Move the average towards the values of a model.

        Args:
          updates: the model, or a state of it.
        """
        new = as_pure(split_merge.state(updates, self.filter, graph=self.graph))
        split_merge.update(self.params, incremental_update(new, as_pure(self.params), 1.0 - self.decay))

    def apply_to(self, model: PyTree) -> Any:
        """Return a model that reads the averages; it shares all other variables with the given model.

        Args:
          model: the model.

        Returns:
          The new model. It shares the variables of the average, so that it follows each `update`.
        """
        averages = dict(to_flat_state(self.params).items()) if isinstance(self.params, State) else {}
        return split_merge.map(lambda path, v: averages.get(path, v), model, graph=self.graph)
