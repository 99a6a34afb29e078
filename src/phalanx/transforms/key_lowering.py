"""Lowering of operations on random keys: the operation is mapped over the trailing dimension that holds a key's words.

An element of a key dtype is stored as a short vector of uint32 words. An operation that moves elements without reading
them (reshape, slice, gather, select, ...) therefore needs no lowering rule for keys: its batching rule, applied to the
dimension of the words, is that rule.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from phalanx.core import Eqn, ShapedArray, dtypes, physical_aval, trace_to_jaxpr
from phalanx.runtime.lowering import LoweringContext, special_lowering
from phalanx.transforms.batching import AxisData, move_mapped_dim, vmap_flat


def _is_keys(aval: ShapedArray) -> bool:
    return isinstance(aval.dtype, dtypes.KeyDtype)


def lower_on_keys(ctx: LoweringContext, eqn: Eqn, operands: Sequence[Any]) -> Any:
    """Lower an equation with random keys among its operands or results.

    Args:
      ctx: the context of the equation.
      eqn: the equation.
      operands: IR values; keys are given as arrays of their words.

    Returns:
      The IR values of the results, in the form that the `lower` rule of the primitive returns them.
    """
    avals = [a.aval for a in eqn.invars]
    size = next(a.dtype.key_shape[0] for a in (*avals, *(v.aval for v in eqn.outvars)) if _is_keys(a))
    flat = functools.partial(eqn.primitive.bind_as_list, **eqn.params)

    def on_words(*xs: Any) -> list:
        # Operands that are not keys, such as indices, are shared by all words.
        dims = [a.ndim if _is_keys(a) else None for a in avals]
        out, out_dims = vmap_flat(flat, xs, dims, AxisData(size), eqn.primitive.name)
        return [
            move_mapped_dim(x, d, size, v.aval.ndim) if _is_keys(v.aval) else x
            for x, d, v in zip(out, out_dims, eqn.outvars)
        ]

    out = ctx.emit(trace_to_jaxpr(on_words, [physical_aval(a) for a in avals], eqn.primitive.name), operands)
    return out if eqn.primitive.multiple else out[0]


special_lowering.provide(lower_on_keys=lower_on_keys)
