"""`Sequential`, and `PReLU`, the activation with a parameter."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from phalanx import numpy as jnp
from phalanx.core import ArgumentTypeError
from phalanx.nnx.containers import List
from phalanx.nnx.layers.parameter_init import NO_METADATA, Layer, promote_dtype
from phalanx.nnx.variable_types import Param
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import ArrayLike, DTypeLike


class Sequential(Layer):
    """A composition of modules and functions.

    Args:
      *fns: modules and functions. Each is called with the previous result: a tuple is passed as positional arguments, a
        dictionary as keyword arguments.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> rngs = nnx.Rngs(0)
      >>> model = nnx.Sequential(nnx.Linear(3, 4, rngs=rngs), nnx.relu, nnx.Linear(4, 2, rngs=rngs))
      >>> model(jnp.ones((5, 3))).shape
      (5, 2)
    """

    def __init__(self, *fns: Callable):
        self.layers = List(fns)

    def __call__(self, *args: Any, rngs: Any = None, **kwargs: Any) -> Any:
        """Call the modules and functions in order.

        Args:
          *args: positional arguments of the first one.
          rngs: random streams, passed to modules and functions with a parameter `rngs`.
          **kwargs: keyword arguments of the first one.

        Returns:
          The result of the last one; without any, the argument, the tuple of arguments, or the keyword arguments.

        Raises:
          ArgumentTypeError: an element is not callable.
        """
        if not self.layers:
            return args[0] if len(args) == 1 else args or kwargs or None
        output: Any = None
        for i, layer in enumerate(self.layers):
            if not callable(layer):
                raise ArgumentTypeError(
                    f"nnx.Sequential, element {i}",
                    expected="a module or a function",
                    got=layer,
                    fix="pass functions such as nnx.relu, not their results",
                )
            if i > 0:
                args, kwargs = (output, {}) if isinstance(output, tuple) else ((output,), {})
                if isinstance(output, dict):
                    args, kwargs = (), output
            if rngs is not None and "rngs" in inspect.signature(layer).parameters:
                kwargs = {**kwargs, "rngs": rngs}
            output = layer(*args, **kwargs)
        return output


@eager_jit
def _apply_prelu(x: Any, slope: Any, dtype: DTypeLike | None, promote: Callable) -> Any:
    x, slope = promote((x, slope), dtype=dtype)
    return jnp.where(x >= 0, x, slope * x)


class PReLU(Layer):
    """A rectifier with a learned slope below 0.

    Args:
      negative_slope_init: the initial slope.
      dtype: the dtype of the result; None to promote input and slope.
      param_dtype: the dtype of the slope.
      promote_dtype: promotes the operands to one dtype.
      negative_slope_metadata: the metadata of the variable.

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
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = np.float32,
        promote_dtype: Callable = promote_dtype,
        negative_slope_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        self.negative_slope = Param(jnp.asarray(negative_slope_init, param_dtype), **negative_slope_metadata)
        self._store_options(locals(), "dtype param_dtype promote_dtype")

    def __call__(self, inputs: ArrayLike) -> Any:
        """Apply the function to each element.

        Args:
          inputs: the array.

        Returns:
          An array of the same shape.
        """
        return _apply_prelu(inputs, self.negative_slope.value, self.dtype, self.promote_dtype)
