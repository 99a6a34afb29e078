"""`Sequential`, and the activation that has a parameter of its own.

Builds on `module`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from phalanx import numpy as jnp
from phalanx.core.errors import ArgumentError
from phalanx.nnx.layers.parameters import NO_METADATA, promote_dtype
from phalanx.nnx.module import Module
from phalanx.nnx.variable import Param
from phalanx.runtime.dispatch import eager_program


class Sequential(Module):
    """Modules and functions one after the other.

    Args:
      *fns: each takes what the one before gives: a tuple as arguments, a dictionary as keyword arguments.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> rngs = nnx.Rngs(0)
      >>> model = nnx.Sequential(nnx.Linear(3, 4, rngs=rngs), nnx.relu, nnx.Linear(4, 2, rngs=rngs))
      >>> model(jnp.ones((5, 3))).shape
      (5, 2)
    """

    def __init__(self, *fns: Callable):
        self.layers = list(fns)

    def __call__(self, *args: Any, rngs: Any = None, **kwargs: Any) -> Any:
        """Call one after the other.

        Args:
          *args: arguments of the first.
          rngs: random streams for those that take them.
          **kwargs: keyword arguments of the first.

        Returns:
          What the last one gives.

        Raises:
          ArgumentError: there is nothing to call.
        """
        if not self.layers:
            raise ArgumentError("nnx.Sequential", expected="at least one layer", got="none",
                                mend="pass layers, or use nnx.identity")  # fmt: skip
        output: Any = None
        for i, layer in enumerate(self.layers):
            if i > 0:
                args, kwargs = (output, {}) if isinstance(output, tuple) else ((output,), {})
                if isinstance(output, dict):
                    args, kwargs = (), output
            if rngs is not None and "rngs" in inspect.signature(layer).parameters:
                kwargs = {**kwargs, "rngs": rngs}
            output = layer(*args, **kwargs)
        return output


@eager_program
def _bent(x: Any, slope: Any, dtype: Any, promote: Callable) -> Any:
    x, slope = promote((x, slope), dtype=dtype)
    return jnp.where(x >= 0, x, slope * x)


class PReLU(Module):
    """A rectifier with a learned slope below 0.

    Args:
      negative_slope_init: the slope at first.
      dtype: the dtype of the result.
      param_dtype: the dtype of the slope.
      promote_dtype: what brings operands to one dtype.
      negative_slope_metadata: metadata of the variable.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> nnx.PReLU(0.5)(jnp.array([-2.0, 2.0])).tolist()
      [-1.0, 2.0]

    Source: K. He et al. (2015), arXiv:1502.01852.
    """

    def __init__(
        self,
        negative_slope_init: float = 0.01,
        *,
        dtype: Any = None,
        param_dtype: Any = np.float32,
        promote_dtype: Callable = promote_dtype,
        negative_slope_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        self.negative_slope = Param(jnp.asarray(negative_slope_init, param_dtype), **negative_slope_metadata)
        self.dtype = dtype
        self.param_dtype = param_dtype
        self.promote_dtype = promote_dtype

    def __call__(self, inputs: Any) -> Any:
        """Apply the function to each element.

        Args:
          inputs: the array.

        Returns:
          An array of the same shape.
        """
        return _bent(inputs, self.negative_slope.value, self.dtype, self.promote_dtype)
