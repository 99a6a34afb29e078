"""`EMA`: a moving average of a model's variables, for evaluation.

Builds on `functional` and `optim.incremental_update`; training loops call it.
"""

from __future__ import annotations

from typing import Any

from phalanx.core.errors import ArgumentError
from phalanx.nnx import functional
from phalanx.nnx.filters import Filter
from phalanx.nnx.objects import Object
from phalanx.nnx.states import State, to_flat_state
from phalanx.nnx.variable import as_pure
from phalanx.optim import incremental_update


class EMA(Object):
    """An exponential moving average of a model's variables: decay * average + (1 - decay) * value.

    Args:
      params: the model, or a state of it, whose values the average begins with.
      decay: the part of the average that stays, between 0 and 1.
      only: of which variables.

    Raises:
      ArgumentError: the decay is no part.

    Examples:
      >>> from phalanx import nnx
      >>> model = nnx.PReLU(1.0)
      >>> average = nnx.EMA(model, decay=0.75)
      >>> model.negative_slope.value *= 0.0
      >>> average.update(model)
      >>> float(average.apply_to(model).negative_slope.value), float(model.negative_slope.value)
      (0.75, 0.0)

    Source: B. T. Polyak and A. B. Juditsky (1992), doi:10.1137/0330046.
    """

    def __init__(self, params: Any, decay: float, *, only: Filter = ...):
        if not 0 <= decay <= 1:
            raise ArgumentError("nnx.EMA, argument decay", expected="a part between 0 and 1", got=decay,
                                mend="0.999 averages over about 1,000 updates")  # fmt: skip
        self.decay = decay
        self.filter = only
        self.params = functional.clone(functional.state(params, only))

    def update(self, updates: Any) -> None:
        """Move the average towards a model, or a state of it.

        Args:
          updates: the model or the state.
        """
        new = as_pure(functional.state(updates, self.filter))
        moved = incremental_update(new, as_pure(self.params), 1.0 - self.decay)
        functional.update(self.params, moved)

    def apply_to(self, model: Any) -> Any:
        """A model with the averages in the place of its own values; all other variables are those of the model.

        Args:
          model: the model.

        Returns:
          The new model.
        """
        averages = dict(to_flat_state(self.params).items()) if isinstance(self.params, State) else {}
        return functional.map(lambda path, v: averages[path].value if path in averages else v, model)
