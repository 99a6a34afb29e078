"""`repeat`: a known number of times, a known number for each element, or traced numbers and a known length.

Builds on `taking`; users call it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core.errors import ArgumentError, ConcretizationTypeError, ShapeError
from phalanx.lax.explicit import laid_out
from phalanx.numpy.operands import broadcast_to_shape, canonical_axis, cast, concrete, host_operand, operand
from phalanx.numpy.shapes import ravel, reshape
from phalanx.numpy.taking import take
from phalanx.runtime.dispatch import eager_program
from phalanx.symbolic import max_dim, static_size


def repeat(
    a: Any, repeats: Any, axis: int | None = None, *, total_repeat_length: int | None = None, out_sharding: Any = None
) -> Any:
    """Each element repeated along an axis.

    Args:
      a: an array or a scalar.
      repeats: how often: a number, or one for each element along the axis.
      axis: the axis; None to ravel first.
      total_repeat_length: the length of the result, needed where `repeats` is traced.
      out_sharding: how the result lies, a sharding or a spec; what the types of the operands tell if not given.

    Returns:
      An array, along the axis as long as all repetitions together.

    Raises:
      ArgumentError: a number of `repeats` is negative.
      AxisError: there is no such axis.
      ConcretizationTypeError: `repeats` is traced and the length is not given.
      ShapeError: `repeats` is not one for each element.

    Examples:
      >>> jnp.repeat(jnp.array([1, 2]), 2).tolist()
      [1, 1, 2, 2]
    """
    a = operand(a, "repeat")
    if out_sharding is not None:
        again = lambda x: repeat(x, repeats, axis, total_repeat_length=total_repeat_length)
        return laid_out(again, (a,), out_sharding, "repeat, out_sharding")
    if isinstance(repeats, list | tuple):
        repeats = np.asarray(repeats)
    if axis is None:
        a, axis = ravel(a), 0
    a = reshape(a, (1,)) if a.ndim == 0 else a
    axis = canonical_axis(axis, a.ndim, "repeat")
    if (isinstance(repeats, int) and repeats >= 0) or getattr(repeats, "is_symbolic_dim", False):
        if total_repeat_length is None:
            return _repeat_all(a, repeats, axis)
        repeats = lax.full((a.shape[axis],), repeats, np.dtype(np.int32))
    if total_repeat_length is None:
        return _repeat_known(a, repeats, axis)
    return _repeat_to_length(a, operand(repeats, "repeat"), axis, static_size(total_repeat_length))


def _repeat_known(a: Any, repeats: Any, axis: int) -> Any:
    """The elements repeated as often as numbers say that decide the shape."""
    known = concrete(host_operand(repeats, "repeat"))
    if known is None:
        raise ConcretizationTypeError(
            "repeat, argument repeats", expected="values that are known while tracing, as they decide the shape",
            got=f"{repeats.describe() if hasattr(repeats, 'describe') else repeats}",
            mend="give total_repeat_length, or mark the argument it comes from as static",
        )  # fmt: skip
    if known.dtype.kind not in "iub" or (known < 0).any():
        raise ArgumentError("repeat, argument repeats", expected="integers >= 0", got=repeats, mend="check the numbers")
    if known.size == 1:
        return _repeat_all(a, int(known.reshape(())), axis)
    if known.size != a.shape[axis]:
        raise ShapeError(
            "repeat, argument repeats", expected=f"{a.shape[axis]} numbers, one for each element", got=known.shape,
            mend="give one number, or one for each",
        )  # fmt: skip
    positions = np.repeat(np.arange(a.shape[axis], dtype=np.int32), known.reshape(-1))
    return take(a, positions, axis, mode="clip", indices_are_sorted=True)


@eager_program(static_argnames=("repeats", "axis"))
def _repeat_all(a: Any, repeats: int, axis: int) -> Any:
    dims = a.shape
    wide = (*dims[: axis + 1], repeats, *dims[axis + 1 :])
    out = lax.broadcast_in_dim(a, wide, tuple(i for i in range(len(wide)) if i != axis + 1))
    return lax.reshape(out, (*dims[:axis], dims[axis] * repeats, *dims[axis + 1 :]))


@eager_program(static_argnames=("axis", "length"))
def _repeat_to_length(a: Any, repeats: Any, axis: int, length: int) -> Any:
    n = a.shape[axis]
    repeats = broadcast_to_shape(repeats, (n,))
    ends = lax.cumsum(repeats, axis=0)
    # An element begins where those before it end: count the ends that each place has passed.
    steps = lax.full((length,), 0, np.dtype(np.int32)).at[ends].add(1)
    positions = lax.min_p(lax.cumsum(steps, axis=0), cast(max_dim(n - 1, 0), np.dtype(np.int32)))
    return take(a, positions, axis, mode="clip", indices_are_sorted=True)
