"""Layers that change the weights of another layer before they call it: weight and spectral normalisation.

The inner layer keeps its own weights; each call sees changed copies of them, so that gradients flow through the change.
Builds on `functional.map`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx import numpy as jnp
from phalanx.core.errors import ArgumentError
from phalanx.nn import initializers
from phalanx.nnx import functional
from phalanx.nnx.filters import PathContains, to_predicate
from phalanx.nnx.layers.parameters import ones_init, parameter, promote_dtype
from phalanx.nnx.module import Module
from phalanx.nnx.rngs import Rngs
from phalanx.nnx.states import path_text, to_flat_state
from phalanx.nnx.variable import BatchStat, Param, Variable
from phalanx.runtime.dispatch import eager_program

_normal = initializers.normal()


def _matching(layer: Module, filter: Any) -> list[tuple[tuple, Variable]]:
    predicate = to_predicate(filter)
    return [(path, v) for path, v in to_flat_state(functional.state(layer)) if predicate(path, v)]


def _with(layer: Module, change: Callable[[str, Any], Any], predicate: Callable) -> Module:
    """A layer that shares all variables with another one but those that are changed."""

    def changed(path: tuple, v: Any) -> Any:
        return v.copy(change(path_text(path), v.value)) if predicate(path, v) else v

    return functional.map(changed, layer)


@eager_program(static_argnames=("dims", "epsilon"))
def _unit(x: Any, scale: Any, dims: tuple | None, epsilon: float, dtype: Any, promote: Callable) -> Any:
    """`x` divided by its norms over all but some dimensions, times a scale for each of these."""
    kept = () if dims is None else tuple(sorted(d % x.ndim for d in dims))
    over = tuple(d for d in range(x.ndim) if d not in kept)
    squares = jnp.sum(jnp.square(jnp.abs(x)), over, keepdims=True)
    y = x * lax.rsqrt(squares + epsilon)
    if scale is not None:
        y = y * scale.reshape([n if d in kept else 1 for d, n in enumerate(x.shape)])
    (out, *_) = promote((x, scale), dtype=dtype)
    return jnp.asarray(y, out.dtype)


class WeightNorm(Module):
    """Call a layer with weights of unit norm, times learned scales.

    Args:
      layer_instance: the layer.
      feature_axes: the dimensions that have scales of their own; None for one scale.
      use_scale: whether there are scales.
      scale_init: their initializer.
      epsilon: added to squared norms.
      dtype: the dtype of the weights as the layer sees them.
      param_dtype: the dtype of the scales.
      variable_filter: which variables of the layer are normalised.
      promote_dtype: what brings operands to one dtype.
      rngs: where keys come from, the stream `params`.

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
        dtype: Any = None,
        param_dtype: Any = np.float32,
        variable_filter: Any = PathContains("kernel"),  # noqa: B008 - a constant
        promote_dtype: Callable = promote_dtype,
        rngs: Rngs,
    ):
        self.layer_instance = layer_instance
        self.feature_axes = (feature_axes,) if isinstance(feature_axes, int) else feature_axes
        self.use_scale = use_scale
        self.scale_init = scale_init
        self.epsilon = epsilon
        self.dtype = dtype
        self.param_dtype = param_dtype
        self.variable_filter = variable_filter
        self.promote_dtype = promote_dtype
        self.scales = {}
        for path, v in _matching(layer_instance, variable_filter) if use_scale else ():
            shape = tuple(v.value.shape[d] for d in sorted(d % v.value.ndim for d in self.feature_axes or ()))
            self.scales[path_text(path)] = parameter(Param, scale_init, rngs.params(), shape, param_dtype)

    def __call__(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the layer; its own weights stay as they are.

        Args:
          x: the layer's input.
          *args, **kwargs: the layer's other arguments.

        Returns:
          What the layer gives.
        """

        def change(name: str, value: Any) -> Any:
            scale = self.scales[name].value if self.use_scale else None
            return _unit(value, scale, self.feature_axes, self.epsilon, self.dtype, self.promote_dtype)

        return _with(self.layer_instance, change, to_predicate(self.variable_filter))(x, *args, **kwargs)


@eager_program(static_argnames=("n_steps", "epsilon"))
def _spectral(x: Any, u: Any, n_steps: int, epsilon: float) -> tuple[Any, Any]:
    """The largest singular value of a kernel as a matrix, by power iteration from `u`, and the vector it came to."""
    matrix = x.reshape(-1, x.shape[-1])
    unit = lambda v: v * lax.rsqrt(jnp.sum(jnp.square(v)) + epsilon)
    for _ in range(n_steps):
        v = unit(u @ matrix.T)
        u = unit(v @ matrix)
    u, v = lax.stop_gradient(u), lax.stop_gradient(v)
    return (v @ matrix @ u.T)[0, 0], u


@eager_program
def _divided(x: Any, sigma: Any, dtype: Any) -> Any:
    return jnp.asarray(x / jnp.where(sigma != 0, sigma, 1.0), x.dtype if dtype is None else dtype)


class SpectralNorm(Module):
    """Call a layer with weights that are divided by their largest singular value.

    Args:
      layer_instance: the layer; its parameters of two or more dimensions are changed.
      n_steps: steps of the power iteration at each call.
      epsilon: added to squared norms.
      dtype: the dtype of the weights as the layer sees them.
      param_dtype: the dtype of the statistics.
      error_on_non_matrix: refuse parameters of more than two dimensions.
      update_stats: take these steps, unless a call says otherwise.
      rngs: where keys come from, the stream `params`.

    Raises:
      ArgumentError: `error_on_non_matrix`, and there is such a parameter.

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
        dtype: Any = None,
        param_dtype: Any = np.float32,
        error_on_non_matrix: bool = False,
        update_stats: bool = True,
        rngs: Rngs,
    ):
        self.layer_instance = layer_instance
        self.n_steps = n_steps
        self.epsilon = epsilon
        self.dtype = dtype
        self.param_dtype = param_dtype
        self.error_on_non_matrix = error_on_non_matrix
        self.use_running_average = not update_stats
        self.batch_stats = {}
        for path, v in _matching(layer_instance, _is_kernel):
            if v.value.ndim > 2 and error_on_non_matrix:
                raise ArgumentError(
                    f"nnx.SpectralNorm, parameter {path_text(path)}", expected="a matrix, as error_on_non_matrix asks",
                    got=f"shape {tuple(v.value.shape)}", mend="leave error_on_non_matrix out to normalise it as one",
                )  # fmt: skip
            name = path_text(path)
            first = _normal(rngs.params(), (1, v.value.shape[-1]), param_dtype)
            self.batch_stats[f"{name}/u"] = BatchStat(first)
            self.batch_stats[f"{name}/sigma"] = BatchStat(jnp.ones((), param_dtype))

    def __call__(self, x: Any, *args: Any, update_stats: bool | None = None, **kwargs: Any) -> Any:
        """Call the layer; its own weights stay as they are.

        Args:
          x: the layer's input.
          *args: the layer's other arguments.
          update_stats: take steps of the power iteration, and keep where they lead; None for the layer's own setting.
          **kwargs: the layer's keyword arguments.

        Returns:
          What the layer gives.
        """
        advance = not self.use_running_average if update_stats is None else update_stats

        def change(name: str, value: Any) -> Any:
            u, sigma = self.batch_stats[f"{name}/u"], self.batch_stats[f"{name}/sigma"]
            if advance:
                found, vector = _spectral(value, u.value, self.n_steps, self.epsilon)
                u.value, sigma.value = vector, lax.stop_gradient(found)
            else:
                found = sigma.value
            return _divided(value, found, self.dtype)

        return _with(self.layer_instance, change, _is_kernel)(x, *args, **kwargs)


def _is_kernel(path: tuple, v: Any) -> bool:
    return isinstance(v, Param) and getattr(v.value, "ndim", 0) >= 2
