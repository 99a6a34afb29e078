"""Operations of `lax` that lower layers call through hooks, provided when `phalanx.lax` is imported."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from phalanx.core import ShapedArray, get_aval, vector_space
from phalanx.lax.collectives.all_reduce import psum
from phalanx.lax.collectives.pvary import conform_manual, pvary_p
from phalanx.lax.elementwise import add_p, as_type, convert_element_type, eq_p, sub_p
from phalanx.lax.reductions.reduce_sum import reduce_sum_p
from phalanx.lax.shape import add_dim, move_dim, reshape, zeros
from phalanx.lax.shape.broadcast import broadcast_to_shape
from phalanx.lax.shape.iota_and_full import broadcasted_iota
from phalanx.lax.sharding.out_sharding import drop_type_sharding, match_sharding, shard_dim
from phalanx.typing import Array, DimSize


def _sort_axes(axes: frozenset) -> tuple:
    """Mesh axes in an order that is the same on all devices."""
    return tuple(sorted(axes, key=str))


def _unit_vectors(total: DimSize, start: Array, shape: tuple, dtype: np.dtype) -> Any:
    """Columns of the identity matrix of `total` rows, from `start` on, reshaped to dtype[total, *shape]."""
    rows, columns = (broadcasted_iota(np.int32, (total, math.prod(shape)), d) for d in (0, 1))
    block = eq_p(sub_p(rows, columns), convert_element_type(start, np.int32))
    return reshape(convert_element_type(block, dtype), (total, *shape))


def _conform(x: Any, aval: ShapedArray) -> Any:
    if get_aval(x).manual_reductions or aval.manual_reductions:
        x = conform_manual(x, aval)
    return match_sharding(x, aval)


def _open_type(x: Any) -> Any:
    aval = get_aval(x)
    if aval.manual_reductions:
        x = conform_manual(x, aval.update(sharding=None))
    return drop_type_sharding(x)


vector_space.provide(
    zeros=zeros,
    add=add_p,
    convert=convert_element_type,
    as_type=as_type,
    conform=_conform,
    open_type=_open_type,
    sum=lambda x, dim: reduce_sum_p(x, dims=(dim,)),
    sum_over_axes=lambda x, axes: psum(x, _sort_axes(axes)),
    unit_vectors=_unit_vectors,
    vary=lambda x, axes: pvary_p(x, axes=_sort_axes(axes)),
    move_dim=move_dim,
    broadcast_to=broadcast_to_shape,
    broadcast_dim=lambda x, size, dim: add_dim(x, dim, size),
    shard_dim=shard_dim,
)
