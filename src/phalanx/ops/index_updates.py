"""Indexed updates in the API that preceded `x.at[...]`: `index_update(x, index[0], y)` is `x.at[0].set(y)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from phalanx import numpy as jnp
from phalanx.typing import Array


class _Index:
    """Returns the index in `index[...]`."""

    def __getitem__(self, index: object) -> Any:
        return index


index = _Index()
"""Makes an index from the syntax of indexing: `index[1:, ::2]`."""


def _update(name: str, method: str, updated: list[int]) -> Callable:
    def update(x: Array, idx: Any, y: Array, indices_are_sorted: bool = False, unique_indices: bool = False) -> Any:
        at: Any = jnp.asarray(x).at[idx]
        return getattr(at, method)(y, indices_are_sorted=indices_are_sorted, unique_indices=unique_indices)

    update.__name__ = update.__qualname__ = name
    update.__doc__ = f"""`x.at[idx].{method}(y)`.

    Args:
      x: an array.
      idx: an index made by `index[...]`.
      y: the operand of the update.
      indices_are_sorted, unique_indices: promises that allow faster code; the result is undefined if they do not hold.

    Returns:
      The updated array.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> {name}(jnp.array([2, 3, 4]), index[1:], 3).tolist()
      {updated}
    """
    return update


index_update = _update("index_update", "set", [2, 3, 3])
index_add = _update("index_add", "add", [2, 6, 7])
index_mul = _update("index_mul", "multiply", [2, 9, 12])
index_min = _update("index_min", "min", [2, 3, 3])
index_max = _update("index_max", "max", [2, 3, 4])
