"""Low-rank adaptation: small matrices that are trained beside a layer which is not.

Builds on `Linear`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from phalanx import numpy as jnp
from phalanx.nn import initializers
from phalanx.nnx.layers.linear import Linear, checked_features
from phalanx.nnx.layers.parameters import NO_METADATA, parameter, promote_dtype, zeros_init
from phalanx.nnx.module import Module
from phalanx.nnx.rngs import Rngs
from phalanx.nnx.variable import LoRAParam, Variable
from phalanx.runtime.dispatch import eager_program

he_uniform = initializers.he_uniform()


@eager_program
def _through(x: Any, a: Any, b: Any, dtype: Any, promote: Callable) -> Any:
    x, a, b = promote((x, a, b), dtype=dtype)
    return jnp.matmul(jnp.matmul(x, a), b)


class LoRA(Module):
    """The product x A B with a small dimension between A and B, added to what a module gives.

    Args:
      in_features: how many features come in.
      lora_rank: the small dimension.
      out_features: how many go out.
      base_module: the module whose result it is added to.
      dtype: the dtype of the computation.
      param_dtype: the dtype of the parameters.
      a_initializer, b_initializer: their initializers; with B = 0 nothing is changed at first.
      lora_param_type: their kind, by which filters tell them from the parameters of the module.
      promote_dtype: what brings operands to one dtype.
      rngs: where keys come from, the stream `params`.
      a_metadata, b_metadata: metadata of the variables.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> layer = nnx.LoRA(3, 2, 4, rngs=nnx.Rngs(0))
      >>> float(abs(layer(jnp.ones((1, 3)))).max())
      0.0

    Source: E. J. Hu et al. (2021), arXiv:2106.09685.
    """

    def __init__(
        self,
        in_features: int,
        lora_rank: int,
        out_features: int,
        *,
        base_module: Module | None = None,
        dtype: Any = None,
        param_dtype: Any = np.float32,
        a_initializer: Callable = he_uniform,
        b_initializer: Callable = zeros_init,
        lora_param_type: type[Variable] = LoRAParam,
        promote_dtype: Callable = promote_dtype,
        rngs: Rngs,
        a_metadata: Mapping[str, Any] = NO_METADATA,
        b_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        self.in_features = in_features
        self.out_features = out_features
        self.dtype = dtype
        self.param_dtype = param_dtype
        self.lora_param_type = lora_param_type
        self.base_module = base_module
        self.promote_dtype = promote_dtype
        shape_a, shape_b = (in_features, lora_rank), (lora_rank, out_features)
        self.lora_a = parameter(lora_param_type, a_initializer, rngs.params(), shape_a, param_dtype, a_metadata)
        self.lora_b = parameter(lora_param_type, b_initializer, rngs.params(), shape_b, param_dtype, b_metadata)

    def __call__(self, x: Any, **kwargs: Any) -> Any:
        """Compute x A B, plus the module's result.

        Args:
          x: num[..., in_features].
          **kwargs: passed to the module.

        Returns:
          num[..., out_features].

        Raises:
          ShapeError: there are more or fewer features.
        """
        checked_features("nnx.LoRA", x, (-1,), self.lora_a.value.shape[:1])
        out = _through(x, self.lora_a.value, self.lora_b.value, self.dtype, self.promote_dtype)
        return out if self.base_module is None else out + self.base_module(x, **kwargs)


class LoRALinear(Linear):
    """A `Linear` layer with a `LoRA` beside it.

    Args:
      in_features, out_features: as in `Linear`.
      lora_rank: as in `LoRA`.
      lora_dtype, lora_param_dtype, lora_promote_dtype: the `dtype`, `param_dtype` and `promote_dtype` of the `LoRA`.
      a_initializer, b_initializer, lora_param_type, a_metadata, b_metadata: as in `LoRA`.
      rngs: where keys come from, the stream `params`.
      **kwargs: the other arguments of `Linear`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> layer = nnx.LoRALinear(3, 4, lora_rank=2, rngs=nnx.Rngs(0))
      >>> nnx.state(layer, nnx.LoRAParam).lora.lora_a.shape
      (3, 2)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        lora_rank: int,
        lora_dtype: Any = None,
        lora_param_dtype: Any = np.float32,
        a_initializer: Callable = he_uniform,
        b_initializer: Callable = zeros_init,
        lora_param_type: type[Variable] = LoRAParam,
        lora_promote_dtype: Callable = promote_dtype,
        rngs: Rngs,
        a_metadata: Mapping[str, Any] = NO_METADATA,
        b_metadata: Mapping[str, Any] = NO_METADATA,
        **kwargs: Any,
    ):
        super().__init__(in_features, out_features, rngs=rngs, **kwargs)
        self.lora = LoRA(
            in_features, lora_rank, out_features, dtype=lora_dtype, param_dtype=lora_param_dtype,
            a_initializer=a_initializer, b_initializer=b_initializer, lora_param_type=lora_param_type,
            promote_dtype=lora_promote_dtype, rngs=rngs, a_metadata=a_metadata, b_metadata=b_metadata,
        )  # fmt: skip

    def __call__(self, inputs: Any, out_sharding: Any = None) -> Any:
        """Add what both give.

        Args:
          inputs, out_sharding: as in `Linear`, as are the errors.

        Returns:
          num[..., out_features].
        """
        return super().__call__(inputs, out_sharding=out_sharding) + self.lora(inputs)
