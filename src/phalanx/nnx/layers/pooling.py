"""Pooling: the maximum, minimum or mean of windows, with channels last."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from phalanx import lax, numpy as jnp
from phalanx.core import ArgumentError, dtypes
from phalanx.nnx.layers.conv_layers import canonical_padding
from phalanx.nnx.layers.parameter_init import PaddingLike
from phalanx.runtime.eager_jit import eager_jit


def pool(
    inputs: Any,
    init: Any,
    reduce_fn: Callable,
    window_shape: Sequence[int],
    strides: Sequence[int] | None,
    padding: PaddingLike,
) -> Any:
    """Reduce each window of num[*batch, *spatial, channels].

    Args:
      inputs: the array; the batch may have any number of dimensions, or none.
      init: the value of the padding and the initial value of the reductions.
      reduce_fn: combines two elements, such as `lax.add`.
      window_shape: the size of the window in each spatial dimension.
      strides: the distance between windows, 1 by default.
      padding: `"SAME"`, `"VALID"`, or a pair for each spatial dimension.

    Returns:
      The reduced array.

    Raises:
      ArgumentError: `strides` or `padding` does not have an entry for each spatial dimension.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import lax, nnx
      >>> nnx.pool(jnp.ones((1, 4, 1)), 0.0, lax.add, (2,), None, "VALID").shape
      (1, 3, 1)
    """
    ndim = len(window_shape)
    strides = strides or (1,) * ndim
    if len(strides) != ndim:
        raise ArgumentError(
            "nnx.pool, argument strides",
            expected=f"{ndim} numbers, as many as the window has",
            got=tuple(strides),
            fix="give one for each spatial dimension",
        )
    inputs = jnp.asarray(inputs)
    lead = inputs.ndim - ndim - 1
    padding = canonical_padding("nnx.pool, argument padding", padding, ndim)
    if not isinstance(padding, str):
        padding = ((0, 0),) * lead + padding + ((0, 0),)
    # A window has an extent in every dimension: 1 for the batch and the channels, which are not reduced.
    ones = (1,) * lead
    return lax.reduce_window(inputs, init, reduce_fn, (*ones, *window_shape, 1), (*ones, *strides, 1), padding)


@eager_jit(static_argnames=("window_shape", "strides", "padding", "count_include_pad"))
def avg_pool(
    inputs: Any,
    window_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: PaddingLike = "VALID",
    count_include_pad: bool = True,
) -> Any:
    """Compute the mean of each window.

    Args:
      inputs, window_shape, strides, padding: as in `pool`.
      count_include_pad: whether the mean includes padding.

    Returns:
      The array of the means.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> nnx.avg_pool(jnp.array([[[1.0], [3.0]]]), (2,)).tolist()
      [[[2.0]]]
    """
    inputs = jnp.asarray(inputs)
    total = pool(inputs, 0.0, lax.add, window_shape, strides, padding)
    if count_include_pad:
        return total / math.prod(window_shape)
    spatial = inputs.shape[inputs.ndim - len(window_shape) - 1 : -1]
    # Windows at the border contain fewer elements: their number is a sum over ones with the same padding.
    return total / pool(jnp.ones((*spatial, 1), total.dtype), 0.0, lax.add, window_shape, strides, padding)


@eager_jit(static_argnames=("window_shape", "strides", "padding"))
def max_pool(
    inputs: Any, window_shape: Sequence[int], strides: Sequence[int] | None = None, padding: PaddingLike = "VALID"
) -> Any:
    """Compute the maximum of each window.

    Args:
      inputs, window_shape, strides, padding: as in `pool`.

    Returns:
      The array of the maxima.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> nnx.max_pool(jnp.array([[[1.0], [3.0]]]), (2,)).tolist()
      [[[3.0]]]
    """
    return pool(inputs, dtypes.lowest(jnp.asarray(inputs).dtype), lax.max, window_shape, strides, padding)


@eager_jit(static_argnames=("window_shape", "strides", "padding"))
def min_pool(
    inputs: Any, window_shape: Sequence[int], strides: Sequence[int] | None = None, padding: PaddingLike = "VALID"
) -> Any:
    """Compute the minimum of each window.

    Args:
      inputs, window_shape, strides, padding: as in `pool`.

    Returns:
      The array of the minima.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> nnx.min_pool(jnp.array([[[1.0], [3.0]]]), (2,)).tolist()
      [[[1.0]]]
    """
    return pool(inputs, dtypes.highest(jnp.asarray(inputs).dtype), lax.min, window_shape, strides, padding)
