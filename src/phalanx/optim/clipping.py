"""Transformations that bound updates: by value, by norm, by block, and against the parameters; NaNs to zero.

Builds on `protocol` and `arithmetic`; users chain them before an optimiser.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx import numpy as jnp
from phalanx.optim.arithmetic import global_norm
from phalanx.optim.protocol import GradientTransformationExtraArgs, needed, stateless
from phalanx.tree import tree_map


def clip(max_delta: Any) -> GradientTransformationExtraArgs:
    """Bound each element: -max_delta <= g <= max_delta.

    Args:
      max_delta: the bound.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> float(optim.clip(1.0).update(-3.0, optim.EmptyState())[0])
      -1.0
    """
    return stateless(lambda updates, params: tree_map(lambda g: jnp.clip(g, -max_delta, max_delta), updates))


def clip_by_global_norm(max_norm: Any) -> GradientTransformationExtraArgs:
    """Scale all updates alike, where their common norm is above a bound, so that it meets the bound.

    Args:
      max_norm: the bound.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> updates, _ = optim.clip_by_global_norm(1.0).update({"a": 3.0, "b": 4.0}, optim.EmptyState())
      >>> round(float(updates["b"]), 4)
      0.8

    Source: R. Pascanu, T. Mikolov and Y. Bengio (2012), arXiv:1211.5063.
    """

    def clipped(updates: Any, params: Any) -> Any:
        norm = global_norm(updates)
        fits = norm < max_norm
        # Divided first: the product of a large gradient and the bound could overflow.
        return tree_map(lambda g: jnp.where(fits, g, g / norm.astype(g.dtype) * max_norm), updates)

    return stateless(lambda updates, params: clipped(tree_map(jnp.asarray, updates), params))


def clip_by_block_rms(threshold: Any) -> GradientTransformationExtraArgs:
    """Scale each array of updates whose root mean square is above a bound, so that it meets the bound.

    Args:
      threshold: the bound.

    Returns:
      The transformation.

    Examples:
      >>> import numpy as np
      >>> from phalanx import optim
      >>> optim.clip_by_block_rms(1.0).update(np.float32([4.0, 4.0]), optim.EmptyState())[0].tolist()
      [1.0, 1.0]

    Source: N. Shazeer and M. Stern (2018), arXiv:1804.04235, section 6.
    """

    def clipped(g: Any) -> Any:
        return g / jnp.maximum(1.0, jnp.sqrt(jnp.mean(jnp.square(jnp.abs(g)))) / threshold).astype(g.dtype)

    return stateless(lambda updates, params: tree_map(lambda g: clipped(jnp.asarray(g)), updates))


def unitwise_norm(x: Any) -> Any:
    """The norm of what feeds one output unit: all of a vector, each column of a matrix, each filter of a kernel.

    Args:
      x: num[*s]; the last dimension counts units where there are two or more that are longer than 1.

    Returns:
      The norms, as an array that broadcasts to `x`.

    Examples:
      >>> unitwise_norm(jnp.array([[3.0, 0.0], [4.0, 1.0]])).tolist()
      [[5.0, 1.0]]
    """
    real = jnp.square(jnp.abs(x))
    if sum(n != 1 for n in np.shape(x)) <= 1:
        return jnp.sqrt(jnp.sum(real, keepdims=True))
    return jnp.sqrt(jnp.sum(real, axis=tuple(range(np.ndim(x) - 1)), keepdims=True))


def adaptive_grad_clip(clipping: Any, eps: Any = 1e-3) -> GradientTransformationExtraArgs:
    """Bound the norm of each unit's updates by a part of the norm of its parameters.

    Args:
      clipping: the part.
      eps: norms of parameters below it count as this.

    Returns:
      The transformation; its `update` needs the parameters.

    Examples:
      >>> from phalanx import optim
      >>> tx, params = optim.adaptive_grad_clip(0.1), {"w": jnp.array([3.0, 4.0])}
      >>> tx.update({"w": jnp.array([0.0, 2.0])}, tx.init(params), params)[0]["w"].tolist()
      [0.0, 0.5]

    Source: A. Brock et al. (2021), arXiv:2102.06171.
    """

    def clipped(g: Any, p: Any) -> Any:
        bound, norm = clipping * jnp.maximum(unitwise_norm(p), eps), unitwise_norm(g)
        return jnp.where(norm < bound, g, g * (bound / jnp.maximum(norm, 1e-6)).astype(g.dtype))

    return stateless(lambda updates, params: tree_map(clipped, updates, needed(params, "optim.adaptive_grad_clip")))


def zero_nans() -> GradientTransformationExtraArgs:
    """Replace every NaN among the updates by zero.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> float(optim.zero_nans().update(float("nan"), optim.EmptyState())[0])
      0.0
    """
    return stateless(lambda updates, params: tree_map(lambda g: jnp.where(jnp.isnan(g), 0, g), updates))
