"""`ragged_all_to_all`: members send each other slices of sizes that only the running program knows.

It is made of a gather, an `all_to_all` of slices padded to the length of the operand, and a scatter, so that it has
their derivatives and batching rules and runs on every platform.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core import dtypes
from phalanx.core.aval import aval_of
from phalanx.core.errors import DTypeError, ShapeError
from phalanx.lax.arithmetic import add
from phalanx.lax.broadcast import broadcast_in_dim
from phalanx.lax.comparison import lt
from phalanx.lax.creation import broadcasted_iota, full
from phalanx.lax.exchanges import all_to_all
from phalanx.lax.gather import GatherDimensionNumbers, GatherScatterMode, gather
from phalanx.lax.named_axes import Scope, scope_of
from phalanx.lax.scatter import ScatterDimensionNumbers, scatter
from phalanx.lax.select import select
from phalanx.lax.shape import reshape


def ragged_all_to_all(
    operand: Any,
    output: Any,
    input_offsets: Any,
    send_sizes: Any,
    output_offsets: Any,
    recv_sizes: Any,
    *,
    axis_name: Any,
    axis_index_groups: Sequence[Sequence[int]] | None = None,
) -> Any:
    """Send a slice of rows to each member of named axes, of sizes that the program computes.

    Args:
      operand: `any[rows, *dims]`, what this member sends from.
      output: `any[places, *dims]`, what it receives into; rows that nobody writes stay as they are.
      input_offsets: `int[members]`, where in `operand` the slice for each member starts.
      send_sizes: `int[members]`, how many rows go to each member.
      output_offsets: `int[members]`, where in each member's `output` the slice from here goes.
      recv_sizes: `int[members]`, how many rows come from each member.
      axis_name: the name of an axis in scope, or several, the last of which runs fastest.
      axis_index_groups: lists of positions along the axis, of one size; each list exchanges by itself.

    Returns:
      `output` with what arrived. Rows beyond its end are dropped, those beyond the end of a sender's operand are zero.
      On the way every slice is padded to the length of `operand`: each member sends and holds `members` times that.

    Raises:
      UnboundAxisError: no such axis is in scope.
      ShapeError: the operands do not fit each other, or offsets and sizes are not one for each member.
      DTypeError: offsets or sizes are no integers.

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
    scope = scope_of(where, axis_name, axis_index_groups, even=True)
    counts = {"input_offsets": input_offsets, "send_sizes": send_sizes, "output_offsets": output_offsets,
              "recv_sizes": recv_sizes}  # fmt: skip
    _check(where, operand, output, counts, scope)
    rows, *dims = aval_of(operand).shape
    shape = (scope.count, rows)
    window = tuple(range(2, 2 + len(dims)))
    sent = gather(
        operand,
        _column(_places(input_offsets, send_sizes, shape, rows)),
        GatherDimensionNumbers(window, (0,), (0,)),
        (1, *dims),
        mode=GatherScatterMode.FILL_OR_DROP,
        fill_value=0,
    )
    groups = {"axis_index_groups": axis_index_groups}
    got = all_to_all(sent, axis_name, 0, 0, **groups)
    starts = all_to_all(output_offsets, axis_name, 0, 0, **groups)
    return scatter(
        output,
        _column(_places(starts, recv_sizes, shape, aval_of(output).shape[0])),
        got,
        ScatterDimensionNumbers(window, (0,), (0,)),
        mode=GatherScatterMode.FILL_OR_DROP,
    )


def _places(starts: Any, sizes: Any, shape: tuple, beyond: int) -> Any:
    """The rows of one slice for each member, padded to one length by rows `beyond` the end: int[members, length]."""
    dtype = aval_of(starts).dtype
    number = broadcasted_iota(dtype, shape, 1)
    is_sent = lt(number, broadcast_in_dim(sizes, shape, (0,)))
    return select(is_sent, add(broadcast_in_dim(starts, shape, (0,)), number), full(shape, beyond, dtype))


def _column(x: Any) -> Any:
    return reshape(x, (*aval_of(x).shape, 1))


def _check(where: str, operand: Any, output: Any, counts: dict, scope: Scope) -> None:
    x, y = aval_of(operand), aval_of(output)
    if not x.ndim or x.shape[1:] != y.shape[1:] or x.dtype != y.dtype:
        raise ShapeError(
            where,
            expected="an operand and an output of at least one dimension that differ in the first one only",
            got=f"{x.str_short()} and {y.str_short()}",
            mend="convert or reshape one of them",
        )
    for name, value in counts.items():
        aval = aval_of(value)
        if aval.shape != (scope.count,):
            raise ShapeError(
                f"{where} {name}",
                expected=f"one number for each of the {scope.count} members",
                got=aval.str_short(),
                mend=f"give a vector of {scope.count}",
            )
        if not dtypes.issubdtype(aval.dtype, np.integer) or aval.dtype != aval_of(counts["send_sizes"]).dtype:
            raise DTypeError(
                f"{where} {name}",
                expected="integers, of one dtype for all offsets and sizes",
                got=aval.str_short(),
                mend="convert them with .astype",
            )
