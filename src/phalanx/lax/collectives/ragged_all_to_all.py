"""`ragged_all_to_all`: an all-to-all exchange of slices whose sizes are computed by the program.

It is composed of a gather, an `all_to_all` of slices padded to the length of the operand, and a scatter. It therefore
has their derivatives and batching rules, and runs on every platform.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.core import DTypeError, ShapeError, dtypes, get_aval
from phalanx.lax.collectives.all_to_all import all_to_all
from phalanx.lax.collectives.named_axes import AxisGroups, AxisScope, resolve_axis_names
from phalanx.lax.elementwise import add, lt, select
from phalanx.lax.indexing.gather import GatherDimensionNumbers, GatherScatterMode, gather
from phalanx.lax.indexing.scatter import ScatterDimensionNumbers, scatter
from phalanx.lax.shape import broadcast_in_dim, reshape
from phalanx.lax.shape.iota_and_full import broadcasted_iota, full
from phalanx.typing import ArrayLike, AxisName


def ragged_all_to_all(
    operand: ArrayLike,
    output: ArrayLike,
    input_offsets: Any,
    send_sizes: Any,
    output_offsets: Any,
    recv_sizes: Any,
    *,
    axis_name: AxisName,
    axis_index_groups: AxisGroups = None,
) -> Any:
    """Send a slice of rows, of a size computed by the program, to each member of named axes.

    Args:
      operand: the rows to send, `any[rows, *dims]`.
      output: the array to receive into, `any[out_rows, *dims]`; rows that no member sends keep their values.
      input_offsets: the first row of the slice of `operand` for each member, `int[members]`.
      send_sizes: the number of rows to send to each member, `int[members]`.
      output_offsets: the first row, in each member's `output`, of the slice that this member sends, `int[members]`.
      recv_sizes: the number of rows to receive from each member, `int[members]`.
      axis_name: the name of an axis in scope, or several, in row-major order.
      axis_index_groups: lists of positions along the axis, of one size; each group exchanges separately.

    Returns:
      `output`, updated with the received rows. Rows beyond its end are dropped; rows beyond the end of the sender's
      operand are zero. Every slice is padded to the length of `operand`, so each member sends and stores `members`
      times that length.

    Raises:
      UnboundAxisError: no axis of this name is in scope.
      ShapeError: the operands do not match, or offsets and sizes do not have one entry for each member.
      DTypeError: offsets or sizes are not integers of one dtype.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx import lax
      >>> def send(x, starts, sizes, places, arriving):
      ...     return lax.ragged_all_to_all(
      ...         x, jnp.zeros(3, int), starts, sizes, places, arriving, axis_name="i"
      ...     )
      >>> x, starts, sizes = (
      ...     jnp.array([[1, 2], [3, 4]]),
      ...     jnp.array([[0, 1], [0, 0]]),
      ...     jnp.array([[1, 1], [0, 2]]),
      ... )
      >>> phalanx.vmap(send, axis_name="i")(x, starts, sizes, jnp.array([[0, 0], [0, 1]]), sizes.T).tolist()
      [[1, 0, 0], [2, 3, 4]]
    """
    where = "lax.ragged_all_to_all"
    scope = resolve_axis_names(where, axis_name, axis_index_groups, even=True)
    counts = {
        "input_offsets": input_offsets,
        "send_sizes": send_sizes,
        "output_offsets": output_offsets,
        "recv_sizes": recv_sizes,
    }
    _check(where, operand, output, counts, scope)
    rows, *dims = get_aval(operand).shape
    shape = (scope.count, rows)
    window = tuple(range(2, 2 + len(dims)))
    # One slice of `rows` rows per member; padded entries index beyond the operand and are filled with zeros.
    sent = gather(
        operand,
        _column(_row_indices(input_offsets, send_sizes, shape, rows)),
        GatherDimensionNumbers(window, (0,), (0,)),
        (1, *dims),
        mode=GatherScatterMode.FILL_OR_DROP,
        fill_value=0,
    )
    groups = {"axis_index_groups": axis_index_groups}
    got = all_to_all(sent, axis_name, 0, 0, **groups)
    # Each receiver needs the offsets at which its senders want their slices written.
    starts = all_to_all(output_offsets, axis_name, 0, 0, **groups)
    return scatter(
        output,
        _column(_row_indices(starts, recv_sizes, shape, get_aval(output).shape[0])),
        got,
        ScatterDimensionNumbers(window, (0,), (0,)),
        mode=GatherScatterMode.FILL_OR_DROP,
    )


def _row_indices(starts: Any, sizes: Any, shape: tuple, beyond: int) -> Any:
    """The row indices of the slice for each member, padded with the index `beyond`: int[members, length]."""
    dtype = get_aval(starts).dtype
    number = broadcasted_iota(dtype, shape, 1)
    is_sent = lt(number, broadcast_in_dim(sizes, shape, (0,)))
    # Unsent rows get the index `beyond`, which a gather fills with zeros and a scatter drops.
    return select(is_sent, add(broadcast_in_dim(starts, shape, (0,)), number), full(shape, beyond, dtype))


def _column(x: ArrayLike) -> Any:
    return reshape(x, (*get_aval(x).shape, 1))


def _check(where: str, operand: ArrayLike, output: ArrayLike, counts: dict, scope: AxisScope) -> None:
    x, y = get_aval(operand), get_aval(output)
    if not x.ndim or x.shape[1:] != y.shape[1:] or x.dtype != y.dtype:
        raise ShapeError(
            where,
            expected="an operand and an output of at least one dimension that differ in the first one only",
            got=f"{x.str_short()} and {y.str_short()}",
            fix="give both the dtype of the operand, and equal shapes from the second dimension on",
        )
    for name, value in counts.items():
        aval = get_aval(value)
        if aval.shape != (scope.count,):
            raise ShapeError(
                f"{where} {name}",
                expected=f"one number for each of the {scope.count} members",
                got=aval.str_short(),
                fix=f"pass a vector of length {scope.count}",
            )
        if not dtypes.issubdtype(aval.dtype, np.integer) or aval.dtype != get_aval(counts["send_sizes"]).dtype:
            raise DTypeError(
                f"{where} {name}",
                expected="integers, of one dtype for all offsets and sizes",
                got=aval.str_short(),
                fix="convert them with .astype",
            )
