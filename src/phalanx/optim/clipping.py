"""Gradient clipping: by value, by global or per-block norm, and relative to the parameters; and replacing NaNs.

Builds on `gradient_transformation` and `tree_arithmetic`; users chain these transformations before an optimizer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx import numpy as jnp
from phalanx.optim.gradient_transformation import GradientTransformationExtraArgs, Scalar, require_params, stateless
from phalanx.optim.tree_arithmetic import global_norm
from phalanx.tree import tree_map
from phalanx.typing import Array, ArrayLike, PyTree


def clip(max_delta: Scalar) -> GradientTransformationExtraArgs:
    """Clip each element to [-max_delta, max_delta].

    Args:
      max_delta: the largest magnitude of an element.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> float(optim.clip(1.0).update(-3.0, optim.EmptyState())[0])
      -1.0
    """
    return stateless(lambda updates, params: tree_map(lambda g: jnp.clip(g, -max_delta, max_delta), updates))


def clip_by_global_norm(max_norm: Scalar) -> GradientTransformationExtraArgs:
    """Scale all updates by one factor, so that their global norm is at most `max_norm`.

    Args:
      max_norm: the largest global norm.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> updates, _ = optim.clip_by_global_norm(1.0).update({"a": 3.0, "b": 4.0}, optim.EmptyState())
      >>> round(float(updates["b"]), 4)
      0.8

    Source: R. Pascanu, T. Mikolov and Y. Bengio (2012), arXiv:1211.5063.
    """

    def clip_tree(updates: PyTree, params: PyTree) -> PyTree:
        norm = global_norm(updates)
        # The division comes first, since the product of a large gradient and `max_norm` could overflow.
        return tree_map(
            lambda g: jnp.where(norm < max_norm, g, g / norm.astype(g.dtype) * max_norm), tree_map(jnp.asarray, updates)
        )

    return stateless(clip_tree)


def clip_by_block_rms(threshold: Scalar) -> GradientTransformationExtraArgs:
    """Scale each array of updates, so that its root mean square is at most `threshold`.

    Args:
      threshold: the largest root mean square.

    Returns:
      The transformation.

    Examples:
      >>> import numpy as np
      >>> from phalanx import optim
      >>> optim.clip_by_block_rms(1.0).update(np.float32([4.0, 4.0]), optim.EmptyState())[0].tolist()
      [1.0, 1.0]

    Source: N. Shazeer and M. Stern (2018), arXiv:1804.04235, section 6.
    """

    def clip_leaf(g: Array) -> Array:
        return g / jnp.maximum(1.0, jnp.sqrt(jnp.mean(jnp.square(jnp.abs(g)))) / threshold).astype(g.dtype)

    return stateless(lambda updates, params: tree_map(lambda g: clip_leaf(jnp.asarray(g)), updates))


def unitwise_norm(x: ArrayLike) -> Any:
    """The norm of the weights of each output unit: of a whole vector, a column of a matrix, or a filter of a kernel.

    Args:
      x: num[*s]; the last dimension indexes units, unless at most one dimension is longer than 1.

    Returns:
      The norms, an array that broadcasts to `x`.

    Examples:
      >>> unitwise_norm(jnp.array([[3.0, 0.0], [4.0, 1.0]])).tolist()
      [[5.0, 1.0]]
    """
    # A bias or a scale has one unit per array; a matrix or a kernel has one for each index of its last dimension.
    axes = None if sum(n != 1 for n in np.shape(x)) <= 1 else tuple(range(np.ndim(x) - 1))
    return jnp.sqrt(jnp.sum(jnp.square(jnp.abs(x)), axis=axes, keepdims=True))


def adaptive_grad_clip(clipping: Scalar, eps: Scalar = 1e-3) -> GradientTransformationExtraArgs:
    """Clip the norm of each unit's updates to a fraction of the norm of its parameters.

    Args:
      clipping: the largest ratio of the norms.
      eps: a lower bound of the norms of parameters.

    Returns:
      The transformation; its `update` needs the parameters.

    Examples:
      >>> from phalanx import optim
      >>> tx, params = optim.adaptive_grad_clip(0.1), {"w": jnp.array([3.0, 4.0])}
      >>> tx.update({"w": jnp.array([0.0, 2.0])}, tx.init(params), params)[0]["w"].tolist()
      [0.0, 0.5]

    Source: A. Brock et al. (2021), arXiv:2102.06171.
    """

    def clip_leaf(g: Array, p: Array) -> Array:
        bound, norm = clipping * jnp.maximum(unitwise_norm(p), eps), unitwise_norm(g)
        return jnp.where(norm < bound, g, g * (bound / jnp.maximum(norm, 1e-6)).astype(g.dtype))

    return stateless(
        lambda updates, params: tree_map(clip_leaf, updates, require_params(params, "optim.adaptive_grad_clip"))
    )


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
