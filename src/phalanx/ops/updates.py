"""Updates at indices as programs of 2020 spell them: `index_update(x, index[0], y)` is `x.at[0].set(y)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from phalanx import numpy as jnp


class _Index:
    """Gives the index that it is indexed with."""

    def __getitem__(self, index: Any) -> Any:
        return index


index = _Index()
"""Writes an index by itself: `index[1:, ::2]`."""


def _update(name: str, method: str, updated: list[int]) -> Callable:
    def update(x: Any, idx: Any, y: Any, indices_are_sorted: bool = False, unique_indices: bool = False) -> Any:
        at = jnp.asarray(x).at[idx]
        return getattr(at, method)(y, indices_are_sorted=indices_are_sorted, unique_indices=unique_indices)

    update.__name__ = update.__qualname__ = name
    update.__doc__ = f"""`x.at[idx].{method}(y)`.

    Args:
      x: an array.
      idx: an index, as `index[...]` writes it.
      y: what to update it with.
      indices_are_sorted, unique_indices: promises that let the compiler do better.

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
