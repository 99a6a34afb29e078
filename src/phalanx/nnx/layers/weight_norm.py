"""`WeightNorm` and `SpectralNorm`, which normalize the weights of another layer and call it.

The normalized weights become the values of the layer's variables. Gradients with respect to the previous values include
the normalization.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx import lax, nn, numpy as jnp
from phalanx.core import ArgumentError
from phalanx.nnx.filters import PathContains, to_predicate
from phalanx.nnx.graphlib import format_path, split_merge, to_flat_state
from phalanx.nnx.layers.parameter_init import Layer, make_parameter, ones_init, promote_dtype
from phalanx.nnx.module import Module
from phalanx.nnx.rngs import Rngs
from phalanx.nnx.variable import Variable
from phalanx.nnx.variable_types import BatchStat, Param
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import ArrayLike, DTypeLike

_normal = nn.initializers.normal()


def _matching(layer: Module, filter: Any) -> list[tuple[str, Variable]]:
    predicate = to_predicate(filter)
    return [(format_path(path), v) for path, v in to_flat_state(split_merge.state(layer)) if predicate(path, v)]


@eager_jit(static_argnames=("dims", "epsilon"))
def _normalize_weight(
    x: Any, scale: Any, dims: tuple | None, epsilon: float, dtype: DTypeLike | None, promote: Callable
) -> Any:
    """Divide `x` by its norm for each index of the dimensions `dims`, and multiply by a scale."""
    # Negative dimensions count from the end, and depend on the rank of each weight.
    kept = () if dims is None else tuple(sorted(d % x.ndim for d in dims))
    over = tuple(d for d in range(x.ndim) if d not in kept)
    # `epsilon` keeps the norm above 0, so that a weight of zeros gives zeros and finite derivatives.
    squares = jnp.sum(jnp.square(jnp.abs(x)), over, keepdims=True)
    y = x * lax.rsqrt(squares + epsilon)
    if scale is not None:
        y = y * scale.reshape([n if d in kept else 1 for d, n in enumerate(x.shape)])
    (out, *_) = promote((x, scale), dtype=dtype)
    return jnp.asarray(y, out.dtype)


class WeightNorm(Layer):
    """Scale the weights of a layer to unit norm, multiply them by learned scales, and call the layer.

    Args:
      layer_instance: the layer.
      feature_axes: the dimensions that have separate scales; None for a single scale.
      use_scale: whether to multiply by scales.
      scale_init: the initializer of the scales.
      epsilon: added to the squared norms.
      dtype: the dtype of the normalized weights.
      param_dtype: the dtype of the scales.
      variable_filter: the variables of the layer to normalize.
      promote_dtype: promotes the operands to one dtype.
      rngs: random keys, from the stream `params`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> rngs = nnx.Rngs(0)
      >>> layer = nnx.WeightNorm(nnx.Linear(3, 4, rngs=rngs), rngs=rngs)
      >>> layer(jnp.eye(3)).T[0].dot(layer(jnp.eye(3)).T[0]).round(4).tolist()
      1.0

    Source: T. Salimans and D. P. Kingma (2016), arXiv:1602.07868.
    """

    def __init__(
        self,
        layer_instance: Module,
        *,
        feature_axes: int | Sequence[int] | None = -1,
        use_scale: bool = True,
        scale_init: Callable = ones_init,
        epsilon: float = 1e-12,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = np.float32,
        variable_filter: Any = PathContains("kernel"),  # noqa: B008 - a constant
        promote_dtype: Callable = promote_dtype,
        rngs: Rngs,
    ):
        self.layer_instance = layer_instance
        self.feature_axes = (feature_axes,) if isinstance(feature_axes, int) else feature_axes
        self._store_options(locals(), "use_scale scale_init epsilon dtype param_dtype variable_filter promote_dtype")
        self.scales = {}
        for name, v in _matching(layer_instance, variable_filter) if use_scale else ():
            shape = tuple(v.value.shape[d] for d in sorted(d % v.value.ndim for d in self.feature_axes or ()))
            self.scales[name] = make_parameter(Param, scale_init, rngs, shape, param_dtype)

    def __call__(self, x: ArrayLike, *args: Any, **kwargs: Any) -> Any:
        """Normalize the weights, and call the layer.

        Args:
          x: the input of the layer.
          *args, **kwargs: the other arguments of the layer.

        Returns:
          The result of the layer.
        """
        options = self.feature_axes, self.epsilon, self.dtype, self.promote_dtype
        for name, v in _matching(self.layer_instance, self.variable_filter):
            v.value = _normalize_weight(v.value, self.scales[name].value if self.use_scale else None, *options)
        return self.layer_instance(x, *args, **kwargs)


@eager_jit(static_argnames=("n_steps", "epsilon"))
def _estimate_spectral_norm(x: Any, u: Any, n_steps: int, epsilon: float) -> tuple[Any, Any]:
    """Estimate the largest singular value of a kernel as a matrix, by power iteration; return it and the next `u`."""
    matrix = x.reshape(-1, x.shape[-1])
    # Power iteration: u and v converge to the singular vectors of the largest singular value.
    unit = lambda v: v * lax.rsqrt(jnp.sum(jnp.square(v)) + epsilon)
    for _ in range(n_steps):
        v = unit(u @ matrix.T)
        u = unit(v @ matrix)
    # At convergence the derivative of the singular value is v u^T, so none is needed through the iteration.
    u, v = lax.stop_gradient(u), lax.stop_gradient(v)
    return (v @ matrix @ u.T)[0, 0], u


@eager_jit
def _divide_by_norm(x: Any, sigma: Any, dtype: Any) -> Any:
    return jnp.asarray(x / jnp.where(sigma != 0, sigma, 1.0), x.dtype if dtype is None else dtype)


class SpectralNorm(Layer):
    """Divide the weights of a layer by their largest singular value, and call the layer.

    Args:
      layer_instance: the layer, whose parameters of two or more dimensions are normalized.
      n_steps: the number of steps of power iteration in each call; 0 to leave the weights as they are.
      epsilon: added to the squared norms.
      dtype: the dtype of the normalized weights.
      param_dtype: the dtype of the statistics.
      error_on_non_matrix: whether to raise an error for parameters of more than two dimensions.
      update_stats: whether calls update the statistics.
      rngs: random keys, from the stream `params`.

    Raises:
      ArgumentError: a parameter has more than two dimensions, and `error_on_non_matrix` is set.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> rngs = nnx.Rngs(0)
      >>> layer = nnx.SpectralNorm(nnx.Linear(3, 3, rngs=rngs), n_steps=50, rngs=rngs)
      >>> round(float(jnp.linalg.svd(layer(jnp.eye(3)))[1][0]), 3)
      1.0

    Source: T. Miyato et al. (2018), arXiv:1802.05957.
    """

    def __init__(
        self,
        layer_instance: Module,
        *,
        n_steps: int = 1,
        epsilon: float = 1e-12,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = np.float32,
        error_on_non_matrix: bool = False,
        update_stats: bool = True,
        rngs: Rngs,
    ):
        self._store_options(locals(), "layer_instance n_steps epsilon dtype param_dtype error_on_non_matrix")
        self.use_running_average = not update_stats
        self.batch_stats = {}
        for name, v in self._kernels():
            if v.value.ndim > 2 and error_on_non_matrix:
                raise ArgumentError(
                    f"nnx.SpectralNorm, parameter {name}",
                    expected="a matrix, as error_on_non_matrix asks",
                    got=f"shape {tuple(v.value.shape)}",
                    fix="leave error_on_non_matrix out to normalize it as one",
                )
            first = _normal(rngs.params(), (1, v.value.shape[-1]), param_dtype)
            self.batch_stats[f"{name}/u"] = BatchStat(first)
            self.batch_stats[f"{name}/sigma"] = BatchStat(jnp.ones((), param_dtype))

    def __call__(self, x: ArrayLike, *args: Any, update_stats: bool | None = None, **kwargs: Any) -> Any:
        """Normalize the weights, and call the layer.

        Args:
          x: the input of the layer.
          *args: the other arguments of the layer.
          update_stats: whether to store the result of the power iteration; None for the setting of the layer.
          **kwargs: the keyword arguments of the layer.

        Returns:
          The result of the layer.
        """
        advance = not self.use_running_average if update_stats is None else update_stats
        for name, v in self._kernels():
            # One step per call is enough in training, since the weights change slowly and u is kept between calls.
            u, sigma = self.batch_stats[f"{name}/u"], self.batch_stats[f"{name}/sigma"]
            found, vector = _estimate_spectral_norm(v.value, u.value, self.n_steps, self.epsilon)
            if advance:
                u.value, sigma.value = vector, lax.stop_gradient(found)
            v.value = _divide_by_norm(v.value, found, self.dtype)
        return self.layer_instance(x, *args, **kwargs)

    def _kernels(self) -> list[tuple[str, Variable]]:
        params = _matching(self.layer_instance, Param) if self.n_steps > 0 else []
        return [(name, v) for name, v in params if v.value.ndim > 1]
