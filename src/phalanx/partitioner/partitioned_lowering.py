"""The lowering rule of each primitive in programs for several devices.

`RULES` has the primitives that need more than the `lower` rule of their definition: a rule that avoids defects of
XLA's partitioner (`phalanx.partitioner.workarounds`). `PER_SHARD` has the primitives that each device runs on its own
shards, with the condition under which it does. Importing this module provides them to `phalanx.runtime.lowering`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core import Eqn, Jaxpr, ShapedArray, Var, cached_on_jaxpr, inner_jaxprs
from phalanx.engine.mlir import ir
from phalanx.lax.subbyte import is_two_bits, narrow_from_bytes, widen_to_bytes
from phalanx.partitioner.convolution_rules import lower_convolution
from phalanx.partitioner.dim_sharding import trace_dim_sharding
from phalanx.partitioner.indexing_rules import (
    lower_dynamic_slice,
    lower_dynamic_update_slice,
    lower_gather,
    lower_scatter,
    lower_scatter_extreme,
)
from phalanx.partitioner.merged_dims import sum_unmerged
from phalanx.partitioner.move_rules import lower_concatenate, lower_pad, lower_rev, lower_slice, lower_split
from phalanx.partitioner.per_shard import lower_per_shard
from phalanx.partitioner.reduction_rules import lower_extreme
from phalanx.partitioner.reshape_rules import lower_reshape
from phalanx.partitioner.resized_dims import compute_resized
from phalanx.partitioner.window_rules import (
    lower_cumulative,
    lower_reduce_window,
    lower_select_and_gather_add,
    lower_select_and_scatter_add,
    windows_overlap,
)
from phalanx.partitioner.workarounds import is_active
from phalanx.runtime import aval_of
from phalanx.runtime.lowering import LoweringContext, special_lowering
from phalanx.symbolic import is_constant_shape

RULES: dict[str, Callable[..., Any]] = {
    "concatenate": lower_concatenate,
    "conv_general_dilated": lower_convolution,
    "cumlogsumexp": lower_cumulative,
    "cummax": lower_cumulative,
    "cummin": lower_cumulative,
    "cumprod": lower_cumulative,
    "cumsum": lower_cumulative,
    "dynamic_slice": lower_dynamic_slice,
    "dynamic_update_slice": lower_dynamic_update_slice,
    "gather": lower_gather,
    "pad": lower_pad,
    "reduce_max": lower_extreme,
    "reduce_min": lower_extreme,
    "reduce_window": lower_reduce_window,
    "reduce_window_max": lower_reduce_window,
    "reduce_window_min": lower_reduce_window,
    "reduce_window_sum": lower_reduce_window,
    "reshape": lower_reshape,
    "rev": lower_rev,
    "scatter": lower_scatter,
    "scatter_add": lower_scatter,
    "scatter_apply": lower_scatter,
    "scatter_max": lower_scatter_extreme,
    "scatter_min": lower_scatter_extreme,
    "scatter_mul": lower_scatter,
    "scatter_sub": lower_scatter,
    "select_and_gather_add": lower_select_and_gather_add,
    "select_and_scatter_add": lower_select_and_scatter_add,
    "slice": lower_slice,
    "split": lower_split,
}

# Primitives that devices may combine or exchange results for, computed in bytes for integers of 2 bits.
IN_BYTES = {
    *("cummax", "cummin", "cumprod", "cumsum", "dynamic_slice", "dynamic_update_slice", "gather", "reduce_and"),
    *("reduce_max", "reduce_min", "reduce_or", "reduce_prod", "reduce_sum", "reduce_window_max", "reduce_window_min"),
    *("reduce_window_sum", "reduce_xor", "scatter", "scatter_add", "scatter_max", "scatter_min", "scatter_mul"),
    "scatter_sub",
}


def _always(*_: object, **__: object) -> bool:
    return True


def _draws_at_positions(
    words: ShapedArray, high: ShapedArray, *_: object, dtype: Any, whole: tuple, partitionable: bool
) -> bool:
    """Whether a rejection sampler can draw the bits of a shard from the positions of its elements in the array."""
    return dtype.impl.under(partitionable).bits_at is not None or (is_constant_shape(whole) and not high.ndim)


def _are_complex(*avals: ShapedArray) -> bool:
    return any(a.dtype.kind == "c" for a in avals)


def _differ(x: ShapedArray, y: ShapedArray) -> bool:
    return x.dtype != y.dtype


def _is_integer(x: ShapedArray, **_: object) -> bool:
    return x.dtype != bool  # bitwise reductions take integers and bool


# For each primitive the workaround that requires per-shard lowering, and the condition under which it does: a function
# of the types of the operands and the parameters. The condition is evaluated again for the shards, and must be the same
# for them, so it must not depend on the sizes of parallel dimensions.
PER_SHARD: dict[str, tuple[str, Callable[..., bool]]] = {
    "erf": ("gathered_elementwise", _always),
    "fft": ("gathered_fft", _always),
    "ffi_call": ("gathered_ffi_call", lambda *_, num_batch, **__: num_batch > 0),
    "igamma": ("gathered_elementwise", _always),
    "igamma_grad_a": ("gathered_elementwise", _always),
    "igammac": ("gathered_elementwise", _always),
    "random_binomial_by_rejection": ("gathered_rejection_sampling", _draws_at_positions),
    "random_binomial_by_waiting": ("gathered_rejection_sampling", _draws_at_positions),
    "random_gamma_grad": ("gathered_elementwise", _always),
    "random_gamma_rounds": ("gathered_rejection_sampling", _draws_at_positions),
    "random_poisson_by_rejection": ("gathered_rejection_sampling", _draws_at_positions),
    "random_poisson_by_waiting": ("gathered_rejection_sampling", _draws_at_positions),
    "reduce": ("all_reduce_any_function", lambda *avals, **_: len(avals) == 2),
    "reduce_and": ("all_reduce_any_function", _is_integer),
    "reduce_or": ("all_reduce_any_function", _is_integer),
    "reduce_xor": ("all_reduce_any_function", _always),
    "regularized_incomplete_beta": ("gathered_elementwise", _always),
    "rng_bit_generator": ("gathered_rng_bit_generator", lambda key, **_: key.ndim > 1),
    "select_and_gather_add": ("variadic_windows", _always),
    "select_and_scatter_add": ("overlapping_select_and_scatter", windows_overlap),
    "top_k": ("gathered_top_k", _always),
    "triangular_solve": ("gathered_triangular_solve", _always),
    "tridiagonal_solve": ("gathered_tridiagonal_solve", _always),
    "while_each": ("gathered_while", _always),
}


# Primitives whose equations are several operations, under a condition on the types of the operands. If these compete
# for axes, the equation reshards an operand once, where each of its operations would reshard what it reads.
COMPOUND: dict[str, Callable[..., bool]] = {
    "max": _are_complex,
    "min": _are_complex,
    "mulhi": _always,
    "nextafter": _always,
    "polygamma": _always,
    "pow": _differ,
    "stack": _always,
    "zeta": _always,
}

# The primitives whose equations are not emitted by the `lower` rule of their definition alone, and those of them for
# which that holds only in programs with arrays that the devices do not divide.
_PLANNED = {*RULES, *PER_SHARD, *IN_BYTES, *COMPOUND}
_PLANNED_IF_UNEVEN = {"concatenate", "reshape", "rev", "split"}


def lower(ctx: LoweringContext, eqn: Eqn, operands: Sequence[ir.Value]) -> ir.Value | list[ir.Value]:
    """Lower an equation of a program for several devices."""
    name, module = eqn.primitive.name, ctx.module
    if name not in _PLANNED or (name in _PLANNED_IF_UNEVEN and not module.has_uneven):
        out = eqn.primitive.lower(ctx, *operands, **eqn.params)
    else:
        out = _apply_rule(ctx, eqn, operands)
    return combine_moves(ctx, out) if module.moves else out


def combine_moves(ctx: LoweringContext, out: Any) -> Any:
    """Compute results `out` of moved elements before these are moved, where that sends less; returns the results."""
    sum_unmerged(ctx, out)
    return compute_resized(ctx, out)


# Primitives whose operations tell all that their equations need (`linked_programs`), and the others with rules.
READ_FROM_OPERATIONS = {"concatenate", "fft", "pad", "reshape", "rev", "slice", "split"}
RECORDED = (RULES.keys() | PER_SHARD.keys() | COMPOUND.keys()) - READ_FROM_OPERATIONS
EQUATION = "phalanx.equation"  # the attribute of a function with the text of the equation that it computes


def _is_recorded(eqn: Eqn, avals: Sequence[ShapedArray]) -> bool:
    if eqn.primitive.name not in RECORDED or any(a.is_symbolic for a in avals):
        return False
    is_compound = COMPOUND.get(eqn.primitive.name)
    return is_compound is None or (all(a.shape for a in avals) and is_compound(*avals))


def _record(ctx: LoweringContext, eqn: Eqn, operands: Sequence[ir.Value]) -> list[ir.Value] | None:
    """Emit an equation of a portable program as a function, with the text by which it is lowered again for a mesh.

    Returns:
      The results; None if the equation is emitted as it is.
    """
    module, write, name = ctx.module, ctx.module.write_equation, eqn.primitive.name
    if write is None or module.manual is not None or not _is_recorded(eqn, ctx.avals_in):
        return None
    if (text := write(eqn)) is None:
        return None
    ins, outs = (list(map(Var, avals)) for avals in (map(aval_of, operands), ctx.avals_out))
    key = text, *(v.aval for v in ins)
    program = module.recorded.setdefault(key, Jaxpr(ins, [eqn.replace(invars=ins, outvars=outs)], outs))
    try:
        module.write_equation = None  # what the function consists of is not recorded
        results = ctx.call(program, operands, name)
    finally:
        module.write_equation = write
    callee = ir.FlatSymbolRefAttr(results[0].owner.attributes["callee"]).value
    module.symbols[callee].attributes[EQUATION] = ir.StringAttr.get(text)
    return results


def _apply_rule(ctx: LoweringContext, eqn: Eqn, operands: Sequence[ir.Value]) -> ir.Value | list[ir.Value]:
    # Rules call `primitive.lower` themselves if they change operands or constrain results only.
    primitive = eqn.primitive
    if (found := _record(ctx, eqn, operands)) is not None:
        return found if primitive.multiple else found[0]
    if primitive.name in IN_BYTES and any(is_two_bits(a.dtype) for a in ctx.avals_in) and is_active("two_bit_integers"):
        wide, avals = widen_to_bytes(ctx, operands, ctx.avals_in)
        found = ctx.inline(lambda *xs: primitive(*xs, **eqn.params), *wide, avals=avals)
        return narrow_from_bytes(ctx, found, ctx.avals_out)
    rule = RULES.get(primitive.name)
    if rule is not None and (out := rule(ctx, primitive, *operands, **eqn.params)) is not None:
        return out
    # Another process runs an exported program, and cannot call back into this one to lower the shards.
    if primitive.name in PER_SHARD and not ctx.module.is_portable:
        workaround, applies = PER_SHARD[primitive.name]
        if is_active(workaround) and applies(*ctx.avals_in, **eqn.params):
            return lower_per_shard(ctx, eqn, operands)
    return primitive.lower(ctx, *operands, **eqn.params)


# The primitives whose rules predict the shardings of their operands, also in programs whose arrays the devices divide.
_PREDICTING = {name for name, rule in RULES.items() if rule in (lower_convolution, lower_reduce_window)}


@cached_on_jaxpr
def predicts_shardings(program: Jaxpr) -> bool:
    """Whether a jaxpr is lowered otherwise for operands whose shardings are known."""
    for eqn in program.eqns:
        inner = inner_jaxprs(eqn.params) if eqn.primitive.call_like else ()
        if eqn.primitive.name in _PREDICTING or any(map(predicts_shardings, inner)):
            return True
    return False


special_lowering.provide(
    lower_partitioned=lower, trace_dim_sharding=trace_dim_sharding, predicts_shardings=predicts_shardings
)
