"""Products of groups of unequal sizes: `ragged_dot` and `ragged_dot_general`.

A group's operands are masked and contracted in one dense product, which is what XLA makes of them too. Builds on `dot`;
called by mixture-of-experts layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx.core import dtypes
from phalanx.core.aval import aval_of
from phalanx.core.errors import ArgumentError, DTypeError, ShapeError
from phalanx.lax.arithmetic import sub
from phalanx.lax.bits import bitwise_and
from phalanx.lax.broadcast import broadcast_in_dim, move_dim
from phalanx.lax.comparison import ge, lt
from phalanx.lax.creation import broadcasted_iota, full
from phalanx.lax.cumulative import cumsum
from phalanx.lax.dot import DotDimensionNumbers, PrecisionLike, dot_general
from phalanx.lax.explicit import laid_out
from phalanx.lax.select import select


class RaggedDotDimensionNumbers(NamedTuple):
    """Which dimensions of a product are ragged.

    Args:
      dot_dimension_numbers: as in `dot_general`, without the dimension of the groups.
      lhs_ragged_dimensions: the one dimension of `lhs` along which the groups follow each other.
      rhs_group_dimensions: the dimension of `rhs` that runs over the groups, if the ragged dimension is one of the
        result's; else none.

    Examples:
      >>> from phalanx import lax, numpy as jnp
      >>> numbers = RaggedDotDimensionNumbers((([1], [1]), ([], [])), [0], [0])
      >>> x, w = jnp.ones((3, 2)), jnp.array([[[1.0], [1.0]], [[5.0], [5.0]]])
      >>> lax.ragged_dot_general(x, w, jnp.array([2, 1]), numbers).tolist()
      [[2.0], [2.0], [10.0]]
    """

    dot_dimension_numbers: DotDimensionNumbers
    lhs_ragged_dimensions: Sequence[int]
    rhs_group_dimensions: Sequence[int]


def _members(group_sizes: Any, size: int) -> Any:
    """Which position belongs to which group: bool[groups, size]."""
    (groups,) = aval_of(group_sizes).shape
    ends = cumsum(group_sizes)
    shape = (groups, size)
    place = broadcasted_iota(aval_of(ends).dtype, shape, 1)
    first, last = (broadcast_in_dim(v, shape, (0,)) for v in (sub(ends, group_sizes), ends))
    return bitwise_and(ge(place, first), lt(place, last))


def _by_group(x: Any, members: Any, dim: int) -> Any:
    """`x` once for each group, zero where a position along `dim` belongs to another: num[groups, *x]."""
    aval = aval_of(x)
    shape = (aval_of(members).shape[0], *aval.shape)
    mask = broadcast_in_dim(members, shape, (0, dim + 1))
    return select(mask, broadcast_in_dim(x, shape, tuple(range(1, len(shape)))), full(shape, 0, aval.dtype))


def ragged_dot_general(
    lhs: Any,
    rhs: Any,
    group_sizes: Any,
    ragged_dot_dimension_numbers: RaggedDotDimensionNumbers,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
    group_offset: Any = None,
    out_sharding: Any = None,
) -> Any:
    """A `dot_general` whose operands fall into groups of unequal sizes along one dimension of `lhs`.

    Args:
      lhs: an array whose ragged dimension holds the groups one after the other.
      rhs: an array; with a dimension over the groups if the ragged dimension is one of the result's.
      group_sizes: int[groups], how long each group is.
      ragged_dot_dimension_numbers: a `RaggedDotDimensionNumbers`.
      precision, preferred_element_type: as in `dot_general`.
      group_offset: must be None.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      If the ragged dimension is free, the product of each position with its own group's part of `rhs`, zero beyond the
      last group; if it is contracted, one product for each group, in a new leading dimension; if it is a batch
      dimension, the products.

    Raises:
      ShapeError: the dimension numbers do not fit the operands.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> numbers = lax.RaggedDotDimensionNumbers((((1,), (0,)), ((), ())), (1,), ())
      >>> lax.ragged_dot_general(np.ones((2, 5)), np.ones((5, 3)), np.array([2, 3]), numbers).shape
      (2, 2, 3)
    """
    if out_sharding is not None:
        options = (ragged_dot_dimension_numbers, precision, preferred_element_type, group_offset)
        multiply = lambda x, y, sizes: ragged_dot_general(x, y, sizes, *options)
        return laid_out(multiply, (lhs, rhs, group_sizes), out_sharding, "lax.ragged_dot_general, out_sharding")
    if group_offset is not None:
        raise ArgumentError("lax.ragged_dot_general group_offset", expected="None", got=group_offset,
                            mend="give all groups")  # fmt: skip
    numbers, ragged, grouped = ragged_dot_dimension_numbers
    (lc, rc), (lb, rb) = (tuple(map(tuple, pair)) for pair in numbers)
    _check(
        aval_of(lhs), aval_of(rhs), aval_of(group_sizes), tuple(ragged), tuple(grouped), free=ragged[0] not in lc + lb
    )
    dim = ragged[0]
    if dim in lb:
        return dot_general(lhs, rhs, ((lc, rc), (lb, rb)), precision, preferred_element_type)
    members = _members(group_sizes, aval_of(lhs).shape[dim])
    parts = _by_group(lhs, members, dim)
    lc, lb = (tuple(d + 1 for d in dims) for dims in (lc, lb))
    if dim + 1 in lc:
        out = dot_general(parts, rhs, ((lc, rc), (lb, rb)), precision, preferred_element_type)
        return move_dim(out, len(lb), 0)
    return dot_general(parts, rhs, (((0, *lc), (*grouped, *rc)), (lb, rb)), precision, preferred_element_type)


def _check(lhs: Any, rhs: Any, sizes: Any, ragged: tuple, grouped: tuple, free: bool) -> None:
    where = "lax.ragged_dot_general"
    if not dtypes.issubdtype(sizes.dtype, np.integer):
        raise DTypeError(f"{where} group_sizes", expected="integers", got=sizes.str_short(),
                         mend="convert them with lax.convert_element_type")  # fmt: skip
    fits = sizes.ndim == 1 and len(ragged) == 1 and 0 <= ragged[0] < lhs.ndim and len(grouped) == int(free)
    if not fits or (free and rhs.shape[grouped[0]] != sizes.shape[0]):
        raise ShapeError(
            f"{where} dimension numbers",
            expected="one ragged dimension of lhs; if it is free, one of rhs as long as group_sizes, which is a vector",
            got=f"ragged {ragged} of {lhs.str_short()}, groups {grouped} of {rhs.str_short()}, {sizes.str_short()}",
            mend="see lax.RaggedDotDimensionNumbers",
        )


def ragged_dot(
    lhs: Any,
    rhs: Any,
    group_sizes: Any,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
    group_offset: Any = None,
    out_sharding: Any = None,
) -> Any:
    """The rows of a matrix times a matrix of their own group: num[m, k], num[groups, k, n] -> num[m, n].

    Args:
      lhs: the rows, those of a group next to each other.
      rhs: one matrix for each group.
      group_sizes: int[groups], how many rows each group has.
      precision, preferred_element_type, group_offset, out_sharding: as in `ragged_dot_general`.

    Returns:
      The products; zero for rows beyond the last group.

    Raises:
      ShapeError: the shapes do not fit.

    Examples:
      >>> import numpy as np
      >>> from phalanx import lax
      >>> rows, experts = np.ones((3, 1)), np.array([[[1.0]], [[10.0]]])
      >>> lax.ragged_dot(rows, experts, np.array([1, 2])).tolist()
      [[1.0], [10.0], [10.0]]
    """
    numbers = RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))
    return ragged_dot_general(
        lhs, rhs, group_sizes, numbers, precision, preferred_element_type, group_offset, out_sharding
    )
