"""Typed random keys in lowering: an operation on keys is that operation mapped over their hidden trailing dimension.

A key is a short vector of numbers behind one element of an extended dtype. Whatever moves elements about without
looking into them (reshape, slice, gather, select, ...) therefore needs no rule for keys: its batching rule is the rule.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from phalanx.core import dtypes
from phalanx.core.aval import ShapedArray
from phalanx.core.jaxpr import Eqn
from phalanx.core.trace import stage
from phalanx.runtime.lowering import batching, physical_aval
from phalanx.transforms.batching import Axis, to_dim, vmap_flat


def _is_keys(aval: ShapedArray) -> bool:
    return isinstance(aval.dtype, dtypes.KeyDtype)


def lower_on_keys(ctx: Any, eqn: Eqn, operands: Sequence[Any]) -> Any:
    """Emit an equation that has keys, in their physical form, among its operands or results; as a `lower` rule does."""
    avals = [a.aval for a in eqn.invars]
    size = next(a.dtype.key_shape[0] for a in (*avals, *(v.aval for v in eqn.outvars)) if _is_keys(a))
    flat = functools.partial(eqn.primitive.listed, **eqn.params)

    def on_numbers(*xs: Any) -> list:
        dims = [a.ndim if _is_keys(a) else None for a in avals]
        out, out_dims = vmap_flat(flat, xs, dims, Axis(size), eqn.primitive.name)
        return [
            to_dim(x, d, size, v.aval.ndim) if _is_keys(v.aval) else x for x, d, v in zip(out, out_dims, eqn.outvars)
        ]

    out = ctx.emit(stage(on_numbers, [physical_aval(a) for a in avals], eqn.primitive.name), operands)
    return out if eqn.primitive.multiple else out[0]


batching.take(lower_on_keys=lower_on_keys)
