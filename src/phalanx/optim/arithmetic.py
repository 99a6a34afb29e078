"""Arithmetic on trees of arrays: norms, moments, counts, and the application of updates.

Builds on `numpy`, `spmd` and `tree`; the transformations of this room are written with it.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from phalanx import numpy as jnp
from phalanx.optim.protocol import at_once
from phalanx.runtime.array import Array
from phalanx.spmd import jit
from phalanx.tree import tree_leaves, tree_map


@functools.lru_cache(maxsize=512)
def _zeros_over(shape: tuple, dtype: Any, sharding: Any) -> Any:
    """The compiled program that makes zeros in place on many devices, so that none ever holds all of them."""
    return jit(lambda: jnp.zeros(shape, dtype), out_shardings=sharding)


def zeros_like(x: Any, dtype: Any = None) -> Any:
    """Zeros of the shape, dtype and placement of an array.

    Args:
      x: an array or a number.
      dtype: another dtype.

    Returns:
      The zeros.
    """
    if type(x) is not Array or len(x.sharding.device_set) == 1:
        return jnp.zeros_like(x, dtype)
    return _zeros_over(x.shape, np.dtype(dtype or x.dtype), x.sharding)()


def zeros_like_tree(tree: Any, dtype: Any = None) -> Any:
    """`zeros_like` of each leaf."""
    return tree_map(lambda x: zeros_like(x, dtype), tree)


def counter() -> Any:
    """A count of steps that starts at 0."""
    return jnp.zeros((), np.int32)


def safe_increment(count: Any) -> Any:
    """One more than a count, which stays where it is at the largest number its dtype can hold.

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
    largest = np.iinfo(count.dtype).max
    return count + (count < largest).astype(count.dtype)


safe_int32_increment = safe_increment


def cast_tree(tree: Any, dtype: Any) -> Any:
    """Convert every leaf to a dtype; None leaves them as they are."""
    return tree if dtype is None else tree_map(lambda x: jnp.asarray(x, dtype), tree)


def square_norm(x: Any) -> Any:
    """The sum of the squared absolute values of an array."""
    return jnp.sum(jnp.square(jnp.abs(x) if jnp.iscomplexobj(x) else x))


@at_once
def global_norm(updates: Any) -> Any:
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
    return jnp.sqrt(sum((square_norm(x) for x in tree_leaves(updates)), start=jnp.float32(0)))


def update_moment(updates: Any, moments: Any, decay: Any, order: int) -> Any:
    """Exponential moving average of a power of the updates: decay m + (1 - decay) g^order.

    Args:
      updates: a tree of arrays.
      moments: the averages so far.
      decay: the part of the past that stays.
      order: 1, or 2, for which complex updates count by their squared absolute value.

    Returns:
      The new averages.

    Examples:
      >>> from phalanx import optim
      >>> float(update_moment(4.0, 2.0, decay=0.5, order=1))
      3.0
    """
    new = 1 - decay
    return tree_map(lambda g, m: like(new, g) * _power(g, order) + like(decay, m) * m, updates, moments)


def like(factor: Any, x: Any) -> Any:
    """A hyperparameter that takes the dtype of what it meets: an array is converted, a Python number does it itself."""
    return factor if isinstance(factor, int | float | complex) else jnp.asarray(factor, jnp.asarray(x).dtype)


def _power(g: Any, order: int) -> Any:
    if order == 1:
        return g
    return jnp.square(jnp.abs(g) if jnp.iscomplexobj(g) else g)


def bias_correction(moment: Any, decay: Any, count: Any) -> Any:
    """Undo the pull to zero of moving averages that began there: m / (1 - decay^count).

    Args:
      moment: a tree of averages.
      decay: their decay.
      count: how many updates they have seen.

    Returns:
      The corrected averages.

    Examples:
      >>> float(bias_correction(jnp.array(0.5), decay=0.5, count=1))
      1.0

    Source: D. P. Kingma and J. Ba (2014), arXiv:1412.6980.
    """
    seen = 1 - decay**count
    return tree_map(lambda m: m / like(seen, m), moment)


@at_once
def apply_updates(params: Any, updates: Any) -> Any:
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
    return tree_map(lambda p, u: jnp.asarray(p + u, jnp.asarray(p).dtype), params, updates)


@at_once
def incremental_update(new_tensors: Any, old_tensors: Any, step_size: Any) -> Any:
    """Move a tree towards another: step_size new + (1 - step_size) old.

    Args:
      new_tensors: where it moves.
      old_tensors: where it is.
      step_size: the part of the way, between 0 and 1.

    Returns:
      The moved tree.

    Examples:
      >>> from phalanx import optim
      >>> float(optim.incremental_update(1.0, 3.0, 0.25))
      2.5

    Source: B. T. Polyak and A. B. Juditsky (1992), doi:10.1137/0330046.
    """
    return tree_map(lambda new, old: step_size * new + (1.0 - step_size) * old, new_tensors, old_tensors)
