"""Pooling: the maximum, minimum or mean of windows, channels last.

Builds on `lax.reduce_window`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from phalanx import lax
from phalanx import numpy as jnp
from phalanx.core import dtypes
from phalanx.core.errors import ArgumentError
from phalanx.nnx.layers.convolution import canonical_padding
from phalanx.runtime.dispatch import eager_program


def pool(
    inputs: Any,
    init: Any,
    reduce_fn: Callable,
    window_shape: Sequence[int],
    strides: Sequence[int] | None,
    padding: Any,
) -> Any:
    """Reduce windows of num[*batch, *spatial, channels].

    Args:
      inputs: the array; the batch may have any number of dimensions, or none.
      init: what padding consists of, and reductions begin with.
      reduce_fn: joins two elements, such as `lax.add`.
      window_shape: the window, a number for each spatial dimension.
      strides: the distance of windows, 1 by default.
      padding: `"SAME"`, `"VALID"`, or a pair for each spatial dimension.

    Returns:
      The array of the reductions.

    Raises:
      ArgumentError: there are not as many strides or pairs as spatial dimensions.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import lax, nnx
      >>> nnx.pool(jnp.ones((1, 4, 1)), 0.0, lax.add, (2,), None, "VALID").shape
      (1, 3, 1)
    """
    ndim = len(window_shape)
    strides = strides or (1,) * ndim
    if len(strides) != ndim:
        raise ArgumentError("nnx.pool, argument strides", expected=f"{ndim} numbers, as many as the window has",
                            got=tuple(strides), mend="give one for each spatial dimension")  # fmt: skip
    inputs = jnp.asarray(inputs)
    lead = inputs.ndim - ndim - 1
    padding = canonical_padding("nnx.pool, argument padding", padding, ndim)
    if not isinstance(padding, str):
        padding = ((0, 0),) * lead + padding + ((0, 0),)
    ones = (1,) * lead
    return lax.reduce_window(inputs, init, reduce_fn, (*ones, *window_shape, 1), (*ones, *strides, 1), padding)


@eager_program(static_argnames=("window_shape", "strides", "padding", "count_include_pad"))
def avg_pool(
    inputs: Any,
    window_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Any = "VALID",
    count_include_pad: bool = True,
) -> Any:
    """The mean of windows.

    Args:
      inputs, window_shape, strides, padding: as in `pool`.
      count_include_pad: whether padding counts.

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
    return total / pool(jnp.ones((*spatial, 1), total.dtype), 0.0, lax.add, window_shape, strides, padding)


@eager_program(static_argnames=("window_shape", "strides", "padding"))
def max_pool(
    inputs: Any, window_shape: Sequence[int], strides: Sequence[int] | None = None, padding: Any = "VALID"
) -> Any:
    """The maximum of windows.

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


@eager_program(static_argnames=("window_shape", "strides", "padding"))
def min_pool(
    inputs: Any, window_shape: Sequence[int], strides: Sequence[int] | None = None, padding: Any = "VALID"
) -> Any:
    """The minimum of windows.

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
