"""The functional style of Linen for classes of NNX modules: a pair of functions `init` and `apply`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from phalanx.core import ArgumentError
from phalanx.nnx.graphlib import GraphDef, split
from phalanx.nnx.rngs import Rngs


@dataclass
class Functional:
    """A module class and its arguments, as a pair of functions `init` and `apply`.

    Args:
      module_type: the class.
      graphdef: the structure of the module, which `init` sets.
      args, kwargs: the arguments of the constructor, except for `rngs`.
    """

    module_type: Callable[..., Any]
    graphdef: GraphDef | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def init(self, *, rngs: Rngs | None = None) -> Any:
        """Create the module, and return its state.

        Args:
          rngs: random streams for the constructor; None if it has no such parameter.
        """
        streams = {} if rngs is None else {"rngs": rngs}
        self.graphdef, state = split(self.module_type(*self.args, **self.kwargs, **streams))
        return state

    def apply(self, *states: Mapping) -> Any:
        """Return a function that calls the module with states, as `GraphDef.apply` does.

        Args:
          *states: states that together have a leaf at each path.

        Raises:
          ArgumentError: `init` has not been called.
        """
        if self.graphdef is None:
            raise ArgumentError(
                "Functional.apply",
                expected="a structure, which init sets",
                got=None,
                fix="call init before apply: state = functional_module.init(rngs=nnx.Rngs(0))",
            )
        return self.graphdef.apply(*states)


def functional(cls: Callable[..., Any]) -> Callable[..., Functional]:
    """Give a module class the functional style of Linen.

    Args:
      cls: the class.

    Returns:
      A function of the constructor's arguments, except for `rngs`, that returns a `Functional`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> layer = nnx.bridge.functional(nnx.Linear)(2, 3)
      >>> state = layer.init(rngs=nnx.Rngs(0))
      >>> y, (graphdef, state) = layer.apply(state)(jnp.ones((1, 2)))
      >>> y.shape
      (1, 3)
    """
    return lambda *args, **kwargs: Functional(cls, None, args, kwargs)
