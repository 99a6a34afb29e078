"""Arithmetic on pytrees of arrays: norms, moments, counters, and the application of updates.

Builds on `numpy`, `spmd` and `tree`; the transformations of this package are written with these functions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx import numpy as jnp
from phalanx.engine.cache import memoize
from phalanx.optim.gradient_transformation import Scalar, compile_eager_calls
from phalanx.runtime.array import Array
from phalanx.sharding import Sharding
from phalanx.spmd import jit
from phalanx.tree import tree_leaves, tree_map
from phalanx.typing import ArrayLike, DTypeLike, PyTree


@memoize("optim.zeros", 512)
def _zeros_over(shape: tuple, dtype: DTypeLike | None, sharding: Sharding) -> Any:
    """A compiled program that creates sharded zeros, so that no device ever holds the whole array."""
    return jit(lambda: jnp.zeros(shape, dtype), out_shardings=sharding)


def zeros_like(x: ArrayLike, dtype: DTypeLike | None = None) -> Any:
    """Zeros with the shape, dtype and sharding of an array.

    Args:
      x: an array or a number.
      dtype: the dtype of the zeros; by default the dtype of `x`.

    Returns:
      The zeros.
    """
    # `zeros_like` would create the array on the default device first, which may not have memory for a sharded one.
    if type(x) is not Array or len(x.sharding.device_set) == 1:
        return jnp.zeros_like(x, dtype)
    return _zeros_over(x.shape, np.dtype(dtype or x.dtype), x.sharding)()


def zeros_like_tree(tree: PyTree, dtype: DTypeLike | None = None) -> Any:
    """`zeros_like` of each leaf."""
    return tree_map(lambda x: zeros_like(x, dtype), tree)


def init_count() -> Any:
    """The initial value of a step counter, int32[]."""
    return jnp.zeros((), np.int32)


def safe_increment(count: Array) -> Any:
    """Increment a counter, without overflow: the largest number of its dtype is returned unchanged.

    Args:
      count: int[].

    Returns:
      int[].

    Examples:
      >>> import numpy as np
      >>> from phalanx import optim
      >>> int(optim.safe_increment(np.int32(2**31 - 1))) == 2**31 - 1
      True
    """
    count = jnp.asarray(count)
    return count + (count < np.iinfo(count.dtype).max).astype(count.dtype)


safe_int32_increment = safe_increment


def cast_tree(tree: PyTree, dtype: DTypeLike | None) -> Any:
    """Convert every leaf to a dtype; None leaves them as they are."""
    return tree if dtype is None else tree_map(lambda x: jnp.asarray(x, dtype), tree)


def _squared_magnitude(x: ArrayLike) -> Any:
    # The second moment of a complex gradient is real, so that its square root scales both parts alike.
    return jnp.square(jnp.abs(x) if jnp.iscomplexobj(x) else x)


def squared_norm(x: ArrayLike) -> Any:
    """The sum of the squared absolute values of an array."""
    return jnp.sum(_squared_magnitude(x))


@compile_eager_calls
def global_norm(updates: PyTree) -> Any:
    """The Euclidean norm of a tree, as if all its leaves were one vector.

    Args:
      updates: a tree of arrays.

    Returns:
      real[].

    Examples:
      >>> from phalanx import optim
      >>> float(optim.global_norm({"a": 3.0, "b": 4.0}))
      5.0
    """
    # The sum over leaves is in float32, while the sum within a leaf has the dtype of the leaf.
    return jnp.sqrt(sum((squared_norm(x) for x in tree_leaves(updates)), start=jnp.float32(0)))


def update_moment(updates: PyTree, moments: PyTree, decay: Scalar, order: int) -> Any:
    """Exponential moving average of a power of the updates: decay m + (1 - decay) g^order.

    Args:
      updates: a tree of arrays.
      moments: the averages so far.
      decay: the weight of the previous averages.
      order: 1, or 2; the square of a complex update is its squared magnitude.

    Returns:
      The new averages.

    Examples:
      >>> from phalanx import optim
      >>> float(update_moment(4.0, 2.0, decay=0.5, order=1))
      3.0
    """
    return tree_map(
        lambda g, m: (
            match_dtype(1 - decay, g) * (_squared_magnitude(g) if order == 2 else g) + match_dtype(decay, m) * m
        ),
        updates,
        moments,
    )


def match_dtype(factor: Scalar, x: ArrayLike) -> Any:
    """Convert an array-valued hyperparameter to the dtype of `x`; a Python number has a weak type and stays."""
    # Without the conversion a float32 hyperparameter would promote bfloat16 updates to float32.
    return factor if isinstance(factor, int | float | complex) else jnp.asarray(factor, jnp.asarray(x).dtype)


def bias_correction(moment: PyTree, decay: Scalar, count: int | Array) -> Any:
    """Correct moving averages for their initialization with zeros: m / (1 - decay^count).

    Args:
      moment: a tree of averages.
      decay: the decay rate of the averages.
      count: the number of updates so far.

    Returns:
      The corrected averages.

    Examples:
      >>> float(bias_correction(jnp.array(0.5), decay=0.5, count=1))
      1.0

    Source: D. P. Kingma and J. Ba (2014), arXiv:1412.6980.
    """
    total_weight = 1 - decay**count
    return tree_map(lambda m: m / match_dtype(total_weight, m), moment)


@compile_eager_calls
def apply_updates(params: PyTree, updates: PyTree) -> Any:
    """Add updates to parameters, which keep their dtypes.

    Args:
      params: a tree of arrays.
      updates: a tree of the same structure.

    Returns:
      The new parameters.

    Examples:
      >>> from phalanx import optim
      >>> float(optim.apply_updates({"w": 1.0}, {"w": -0.25})["w"])
      0.75
    """
    # float32 updates of bfloat16 parameters are added in float32, and only the sum is rounded.
    return tree_map(lambda p, u: jnp.asarray(p + u, jnp.asarray(p).dtype), params, updates)


@compile_eager_calls
def incremental_update(new_tensors: PyTree, old_tensors: PyTree, step_size: Scalar) -> Any:
    """Interpolate between two trees: step_size new + (1 - step_size) old.

    Args:
      new_tensors: the tree to move towards.
      old_tensors: the tree to start from.
      step_size: the weight of `new_tensors`, between 0 and 1.

    Returns:
      The interpolated tree.

    Examples:
      >>> from phalanx import optim
      >>> float(optim.incremental_update(1.0, 3.0, 0.25))
      2.5

    Source: B. T. Polyak and A. B. Juditsky (1992), doi:10.1137/0330046.
    """
    return tree_map(lambda new, old: step_size * new + (1.0 - step_size) * old, new_tensors, old_tensors)
