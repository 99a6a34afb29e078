"""Products of groups of unequal sizes: `ragged_dot` and `ragged_dot_general`.

The operand is repeated for each group, masked, and contracted in one dense product, as XLA expands ragged dots. Builds
on `dot_general`; called by mixture-of-experts layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx.core import ArgumentError, DTypeError, ShapedArray, ShapeError, dtypes, get_aval
from phalanx.lax.contraction.dot_general import DotDimensionNumbers, dot_general
from phalanx.lax.contraction.precision import PrecisionLike
from phalanx.lax.elementwise import bitwise_and, ge, lt, select, sub
from phalanx.lax.reductions.cumulative import cumsum
from phalanx.lax.shape import broadcast_in_dim, move_dim
from phalanx.lax.shape.iota_and_full import broadcasted_iota, full
from phalanx.lax.sharding.out_sharding import call_with_out_sharding
from phalanx.typing import Array, ArrayLike, DTypeLike, ShardingLike


class RaggedDotDimensionNumbers(NamedTuple):
    """The dimension numbers of a ragged product.

    Args:
      dot_dimension_numbers: as in `dot_general`, without the group dimension.
      lhs_ragged_dimensions: the dimension of `lhs` along which the groups are concatenated.
      rhs_group_dimensions: the dimension of `rhs` that runs over the groups, if the ragged dimension is free; else
        empty.

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


def _members(group_sizes: Array, size: int) -> Any:
    """Return the mask of the positions that belong to each group: bool[groups, size]."""
    (groups,) = get_aval(group_sizes).shape
    ends = cumsum(group_sizes)
    shape = (groups, size)
    place = broadcasted_iota(get_aval(ends).dtype, shape, 1)
    # Group g covers the positions from the end of group g - 1 to the end of group g.
    first, last = (broadcast_in_dim(v, shape, (0,)) for v in (sub(ends, group_sizes), ends))
    return bitwise_and(ge(place, first), lt(place, last))


def _by_group(x: Array, members: Array, dim: int) -> Any:
    """Repeat `x` for each group, with zeros at the positions along `dim` of other groups: num[groups, *x]."""
    aval = get_aval(x)
    shape = (get_aval(members).shape[0], *aval.shape)
    mask = broadcast_in_dim(members, shape, (0, dim + 1))
    return select(mask, broadcast_in_dim(x, shape, tuple(range(1, len(shape)))), full(shape, 0, aval.dtype))


def ragged_dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    group_sizes: ArrayLike,
    ragged_dot_dimension_numbers: RaggedDotDimensionNumbers,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    group_offset: None = None,
    out_sharding: ShardingLike | None = None,
) -> Any:
    """A `dot_general` of groups, which have unequal sizes along one dimension of `lhs`.

    Args:
      lhs: an array whose ragged dimension is the concatenation of the groups.
      rhs: an array, with a group dimension if the ragged dimension is free.
      group_sizes: int[groups], the size of each group.
      ragged_dot_dimension_numbers: a `RaggedDotDimensionNumbers`.
      precision, preferred_element_type: as in `dot_general`.
      group_offset: must be None.
      out_sharding: the sharding of the result, as a sharding or a `PartitionSpec`; inferred from the operands if None.

    Returns:
      For a free ragged dimension, the product of each position with the slice of `rhs` of its group, and zero after the
      last group. For a contracted one, a product for each group, in a new leading dimension. For a batch dimension, the
      batched products.

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
        return call_with_out_sharding(
            lambda x, y, sizes: ragged_dot_general(x, y, sizes, *options),
            (lhs, rhs, group_sizes),
            out_sharding,
            "lax.ragged_dot_general, out_sharding",
        )
    if group_offset is not None:
        raise ArgumentError(
            "lax.ragged_dot_general group_offset",
            expected="None",
            got=group_offset,
            fix="pass group_offset=None and the sizes of all groups",
        )
    numbers, ragged, grouped = ragged_dot_dimension_numbers
    (lc, rc), (lb, rb) = (tuple(map(tuple, pair)) for pair in numbers)
    _check(
        get_aval(lhs),
        get_aval(rhs),
        get_aval(group_sizes),
        tuple(ragged),
        tuple(grouped),
        free=ragged[0] not in lc + lb,
    )
    dim = ragged[0]
    # Every position of a batch dimension has a separate product, whatever its group.
    if dim in lb:
        return dot_general(lhs, rhs, ((lc, rc), (lb, rb)), precision, preferred_element_type)
    # The product of each group is computed over all positions, with zeros where other groups are. That takes as
    # many times the operations as there are groups, but it is one `dot_general`, which has derivatives and can be
    # sharded.
    parts = _by_group(lhs, _members(group_sizes, get_aval(lhs).shape[dim]), dim)
    lc, lb = (tuple(d + 1 for d in dims) for dims in (lc, lb))
    # A contracted ragged dimension leaves the group dimension in the result; a free one contracts it with the group
    # dimension of `rhs`.
    if dim + 1 in lc:
        out = dot_general(parts, rhs, ((lc, rc), (lb, rb)), precision, preferred_element_type)
        return move_dim(out, len(lb), 0)
    return dot_general(parts, rhs, (((0, *lc), (*grouped, *rc)), (lb, rb)), precision, preferred_element_type)


def _check(lhs: ShapedArray, rhs: ShapedArray, sizes: ShapedArray, ragged: tuple, grouped: tuple, free: bool) -> None:
    where = "lax.ragged_dot_general"
    if not dtypes.issubdtype(sizes.dtype, np.integer):
        raise DTypeError(
            f"{where} group_sizes",
            expected="integers",
            got=sizes.str_short(),
            fix="convert group_sizes with lax.convert_element_type(group_sizes, 'int32')",
        )
    fits = sizes.ndim == 1 and len(ragged) == 1 and 0 <= ragged[0] < lhs.ndim and len(grouped) == int(free)
    if not fits or (free and rhs.shape[grouped[0]] != sizes.shape[0]):
        raise ShapeError(
            f"{where} dimension numbers",
            expected="one ragged dimension of lhs; if it is free, one of rhs as long as group_sizes, which is a vector",
            got=f"ragged {ragged} of {lhs.str_short()}, groups {grouped} of {rhs.str_short()}, {sizes.str_short()}",
            fix="pass one ragged dimension, and one group dimension if the ragged dimension is free",
        )


def ragged_dot(
    lhs: ArrayLike,
    rhs: ArrayLike,
    group_sizes: ArrayLike,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    group_offset: None = None,
    out_sharding: ShardingLike | None = None,
) -> Any:
    """Multiply the rows of each group by the matrix of the group: num[m, k], num[groups, k, n] -> num[m, n].

    Args:
      lhs: the rows, sorted by group.
      rhs: a matrix for each group.
      group_sizes: int[groups], the number of rows of each group.
      precision, preferred_element_type, group_offset, out_sharding: as in `ragged_dot_general`.

    Returns:
      The products; zero for rows after the last group.

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
