"""`index_take`: elements at positions given by one index array for each of several dimensions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from phalanx.core import dtypes, get_aval
from phalanx.lax.elementwise import add, lt, select
from phalanx.lax.indexing.gather import GatherDimensionNumbers, gather
from phalanx.lax.shape import reshape
from phalanx.lax.shape.concatenate import concatenate
from phalanx.typing import Array, ArrayLike


def index_take(src: ArrayLike, idxs: Sequence[ArrayLike], axes: Sequence[int]) -> Array:
    """Take elements, or slices, at positions given by an index array for each of several dimensions.

    Args:
      src: the array to read.
      idxs: integer arrays `int[n]`, one for each entry of `axes`; negative indices count from the end.
      axes: the indexed dimensions.

    Returns:
      An array whose first dimension has size `n`, followed by the dimensions of `src` that are not in `axes`.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> lax.index_take(np.arange(6).reshape(3, 2), [np.array([2, -3])], (0,)).tolist()
      [[4, 5], [0, 1]]
    """
    aval = get_aval(src)
    axes = tuple(axes)
    columns = []
    for index, axis in zip(idxs, axes, strict=True):
        if dtypes.issubdtype(get_aval(index).dtype, np.signedinteger):
            index = select(lt(index, 0), add(index, aval.shape[axis]), index)
        columns.append(reshape(index, (*get_aval(index).shape, 1)))
    indices = columns[0] if len(columns) == 1 else concatenate(columns, 1)
    numbers = GatherDimensionNumbers(tuple(range(1, aval.ndim - len(axes) + 1)), tuple(sorted(axes)), axes)
    sizes = tuple(1 if d in axes else n for d, n in enumerate(aval.shape))
    return gather(src, indices, numbers, sizes)
