"""Random sparse arrays from a NumPy generator, in which indices recur, for tests of sparse functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import phalanx.numpy as jnp
from phalanx.core import ArgumentError
from phalanx.sparse.bcoo import BCOO, split_shape
from phalanx.sparse.bcsr import BCSR
from phalanx.typing import DTypeLike, Shape

# Makes a function of a shape and a dtype that draws elements.
RandMethod = Callable[[np.random.RandomState], Callable[[Shape, DTypeLike], Any]]


def _rand_normal(rng: np.random.RandomState) -> Callable[[Shape, DTypeLike], Any]:
    """Normally distributed numbers, with an imaginary part for complex dtypes, rounded for integers."""

    def draw(shape: Shape, dtype: DTypeLike) -> np.ndarray:
        x = 3 * rng.randn(*shape)
        return np.asarray(x + 3j * rng.randn(*shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)

    return draw


def rand_bcoo(
    rng: np.random.RandomState,
    rand_method: RandMethod = _rand_normal,
    nse: float = 0.5,
    n_batch: int = 0,
    n_dense: int = 0,
) -> Callable[[Shape, DTypeLike], BCOO]:
    """A function that draws sparse arrays in coordinate format, whose indices may recur.

    Args:
      rng: draws the indices, and the elements.
      rand_method: makes of `rng` a function of a shape and a dtype that draws the elements.
      nse: the number of stored elements of each element of the batch, or, below 1, their fraction of all.
      n_batch, n_dense: the numbers of batch and dense dimensions.

    Returns:
      A function of a shape and a dtype.

    Examples:
      >>> import numpy as np
      >>> from phalanx.experimental.sparse.test_util import rand_bcoo
      >>> rand_bcoo(np.random.RandomState(0))((3, 4), "float32")
      BCOO(float32[3, 4], nse=6)
    """

    def draw(shape: Shape, dtype: DTypeLike) -> BCOO:
        batch, sparse, dense = split_shape("rand_bcoo", shape, n_batch, n_dense)
        count = math.ceil(nse * math.prod(sparse)) if 0 <= nse < 1 else int(nse)
        indices = rng.randint(0, sparse, size=(*batch, count, len(sparse)), dtype="int32")
        data = jnp.asarray(rand_method(rng)((*batch, count, *dense), dtype))
        return BCOO((data, jnp.asarray(indices)), shape=shape)

    return draw


def rand_bcsr(
    rng: np.random.RandomState,
    rand_method: RandMethod = _rand_normal,
    nse: float = 0.5,
    n_batch: int = 0,
    n_dense: int = 0,
) -> Callable[[Shape, DTypeLike], BCSR]:
    """A function that draws sparse arrays in compressed row format, whose column indices may recur.

    Args:
      rng, rand_method, nse, n_batch, n_dense: as in `rand_bcoo`.

    Returns:
      A function of a shape and a dtype.

    Raises:
      ArgumentError: raised by that function if the shape does not have two sparse dimensions.

    Examples:
      >>> import numpy as np
      >>> from phalanx.experimental.sparse.test_util import rand_bcsr
      >>> rand_bcsr(np.random.RandomState(0))((3, 4), "float32")
      BCSR(float32[3, 4], nse=6)
    """

    def draw(shape: Shape, dtype: DTypeLike) -> BCSR:
        batch, sparse, dense = split_shape("rand_bcsr", shape, n_batch, n_dense)
        if len(sparse) != 2:
            raise ArgumentError(
                "rand_bcsr, argument shape",
                expected=f"a shape of rank {n_batch + n_dense + 2}, with two sparse dimensions",
                got=repr(shape),
                fix="change n_batch, n_dense or the shape",
            )
        count = math.ceil(nse * math.prod(sparse)) if 0 <= nse < 1 else int(nse)
        columns = rng.randint(0, sparse[1], size=(*batch, count), dtype="int32")
        starts = np.sort(rng.randint(0, count + 1, size=(*batch, sparse[0] + 1), dtype="int32"), axis=-1)
        starts[..., 0], starts[..., -1] = 0, count
        data = jnp.asarray(rand_method(rng)((*batch, count, *dense), dtype))
        return BCSR((data, jnp.asarray(columns), jnp.asarray(starts)), shape=shape)

    return draw
