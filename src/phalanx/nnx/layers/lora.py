"""Low-rank adaptation (LoRA): trainable low-rank matrices added to a layer whose parameters are frozen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from phalanx import nn, numpy as jnp
from phalanx.nnx.layers.linear_layers import Linear, check_features
from phalanx.nnx.layers.parameter_init import NO_METADATA, Layer, make_parameter, promote_dtype, zeros_init
from phalanx.nnx.module import Module
from phalanx.nnx.rngs import Rngs
from phalanx.nnx.variable import Variable
from phalanx.nnx.variable_types import LoRAParam
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import ArrayLike, DTypeLike, ShardingLike

he_uniform = nn.initializers.he_uniform()


@eager_jit
def _through(x: Any, a: Any, b: Any, dtype: DTypeLike | None, promote: Callable) -> Any:
    x, a, b = promote((x, a, b), dtype=dtype)
    return jnp.matmul(jnp.matmul(x, a), b)


class LoRA(Layer):
    """The low-rank product x A B, added to the result of a module.

    Args:
      in_features: the number of input features.
      lora_rank: the rank, i.e. the number of columns of A and of rows of B.
      out_features: the number of output features.
      base_module: the module whose result is added; None for none.
      dtype: the dtype of the computation; None to promote input and parameters.
      param_dtype: the dtype of the parameters.
      a_initializer, b_initializer: the initializers of A and B; with B = 0, the initial product is 0.
      lora_param_type: the type of the variables, so that filters can select them.
      promote_dtype: promotes the operands to one dtype.
      rngs: random keys, from the stream `params`.
      a_metadata, b_metadata: the metadata of the variables.

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
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = np.float32,
        a_initializer: Callable = he_uniform,
        b_initializer: Callable = zeros_init,
        lora_param_type: type[Variable] = LoRAParam,
        promote_dtype: Callable = promote_dtype,
        rngs: Rngs,
        a_metadata: Mapping[str, Any] = NO_METADATA,
        b_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        self._store_options(
            locals(), "in_features out_features dtype param_dtype lora_param_type base_module promote_dtype"
        )
        # The rank is small, so that A and B have few parameters compared with a full matrix.
        shape_a, shape_b = (in_features, lora_rank), (lora_rank, out_features)
        self.lora_a = make_parameter(lora_param_type, a_initializer, rngs, shape_a, param_dtype, a_metadata)
        self.lora_b = make_parameter(lora_param_type, b_initializer, rngs, shape_b, param_dtype, b_metadata)

    def __call__(self, x: ArrayLike, **kwargs: Any) -> Any:
        """Compute x A B, plus the result of the module.

        Args:
          x: num[..., in_features].
          **kwargs: passed to the module.

        Returns:
          num[..., out_features].

        Raises:
          ShapeError: the number of features differs from that of the layer.
        """
        check_features("nnx.LoRA", x, (-1,), self.lora_a.value.shape[:1])
        out = _through(x, self.lora_a.value, self.lora_b.value, self.dtype, self.promote_dtype)
        return out if self.base_module is None else out + self.base_module(x, **kwargs)


class LoRALinear(Linear):
    """A `Linear` layer plus a `LoRA`.

    Args:
      in_features, out_features: as in `Linear`.
      lora_rank: as in `LoRA`.
      lora_dtype, lora_param_dtype, lora_promote_dtype: the `dtype`, `param_dtype` and `promote_dtype` of the `LoRA`.
      a_initializer, b_initializer, lora_param_type, a_metadata, b_metadata: as in `LoRA`.
      rngs: random keys, from the stream `params`.
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
        lora_dtype: DTypeLike | None = None,
        lora_param_dtype: DTypeLike = np.float32,
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
            in_features,
            lora_rank,
            out_features,
            dtype=lora_dtype,
            param_dtype=lora_param_dtype,
            a_initializer=a_initializer,
            b_initializer=b_initializer,
            lora_param_type=lora_param_type,
            promote_dtype=lora_promote_dtype,
            rngs=rngs,
            a_metadata=a_metadata,
            b_metadata=b_metadata,
        )

    def __call__(self, inputs: ArrayLike, out_sharding: ShardingLike | None = None) -> Any:
        """Compute the sum of the linear map and the low-rank product.

        Args:
          inputs, out_sharding: as in `Linear`, which also lists the errors.

        Returns:
          num[..., out_features].
        """
        return super().__call__(inputs, out_sharding=out_sharding) + self.lora(inputs)
