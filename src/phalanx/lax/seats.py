"""The seats that lower rooms keep for operations: the structure of tangent spaces, and the moving of dimensions.

Importing `phalanx.lax` imports this file, which sits down.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from phalanx.core.tangent import vector_space
from phalanx.lax.broadcast import add_dim, move_dim, reduce_sum_p, zeros
from phalanx.lax.collectives import psum
from phalanx.lax.convert import as_type, convert_element_type
from phalanx.lax.creation import broadcasted_iota
from phalanx.lax.elementwise import add_p, eq_p, sub_p
from phalanx.lax.explicit import conform, open_type, split_dim
from phalanx.lax.shape import reshape
from phalanx.lax.varying import pvary_p
from phalanx.transforms.batching import dims


def _named(axes: frozenset) -> tuple:
    """Axes in one order on all devices."""
    return tuple(sorted(axes, key=str))


def _unit_vectors(total: Any, start: Any, shape: tuple, dtype: Any) -> Any:
    """For each place of `total`, an array that is 1 at that place of its own, which begin at `start`."""
    rows, columns = (broadcasted_iota(np.int32, (total, math.prod(shape)), d) for d in (0, 1))
    block = eq_p(sub_p(rows, columns), convert_element_type(start, np.int32))
    return reshape(convert_element_type(block, dtype), (total, *shape))


vector_space.take(
    zeros=zeros,
    add=add_p,
    convert=convert_element_type,
    as_type=as_type,
    conform=conform,
    open_type=open_type,
    sum=lambda x, dim: reduce_sum_p(x, dims=(dim,)),
    sum_over_axes=lambda x, axes: psum(x, _named(axes)),
    unit_vectors=_unit_vectors,
    vary=lambda x, axes: pvary_p(x, axes=_named(axes)),
)
dims.take(move=move_dim, split=split_dim, broadcast=lambda x, size, dim: add_dim(x, dim, size))
