"""Tracing of loop bodies and branches, and operations on the jaxprs that their rules derive.

Traced bodies are cached by function and argument types, so that an eager loop over the same function compiles once.
Shared by the loops, `cond` and `custom_linear_solve`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from phalanx.core import (
    Jaxpr,
    ShapedArray,
    Tracer,
    cached_on_jaxpr,
    get_aval,
    retype_jaxpr,
    select_flagged,
    state,
    trace_to_jaxpr,
    vary_outputs,
    widen_varying,
)
from phalanx.engine.cache import Cache
from phalanx.transforms.flat_function import FlatFunction
from phalanx.tree import PyTreeDef

_staged: Cache[Callable, Cache] = Cache("lax.control_flow_functions", weak="keys")
_new_bodies = functools.partial(Cache, "lax.control_flow_bodies", 1024)


class TracedBody(NamedTuple):
    """A traced function.

    Attributes:
      jaxpr: constants as leading inputs, then the flat arguments -> flat results.
      consts: the values of the constants.
      out_tree: the structure of the result.
    """

    jaxpr: Jaxpr
    consts: list
    out_tree: PyTreeDef


def stage_body(
    fun: Callable, in_tree: PyTreeDef, avals: Sequence[ShapedArray], name: str, adapt: Callable | None = None
) -> TracedBody:
    """Trace a function to a jaxpr whose constants are inputs.

    Args:
      fun: the user's function, which is the key of the cache.
      in_tree: the structure of the tuple of its arguments.
      avals: the types of the leaves.
      name: the role of the function, for errors.
      adapt: maps `fun` to the function that is traced. It is part of the cache key, so it must be a module-level
        function.
    """
    key = (in_tree, tuple(avals), adapt, state.context)
    try:
        known = _staged.get_or_make(fun, _new_bodies)
    except TypeError:  # a callable without weak references
        known = _new_bodies()
    found = known.get(key)
    if found is not None:
        return found
    function = FlatFunction(fun if adapt is None else adapt(fun), in_tree, role=name)
    jaxpr = trace_to_jaxpr(function, avals, getattr(fun, "__name__", name))
    body = TracedBody(jaxpr.hoist(), jaxpr.consts, function.out_tree)
    # A body that closes over tracers belongs to one trace; its jaxpr must not be found by another one.
    if not any(isinstance(c, Tracer) for c in jaxpr.consts):
        known[key] = body
    return body


def leaf_avals(leaves: Sequence[Any]) -> list[ShapedArray]:
    """The types of a list of values."""
    return [get_aval(x) for x in leaves]


def split_by_sizes(items: Sequence[Any], sizes: Sequence[int]) -> list[list]:
    """The items in consecutive groups of these sizes."""
    out, start = [], 0
    for size in sizes:
        out.append(list(items[start : start + size]))
        start += size
    return out


def fixpoint(carry: Sequence[bool], step: Callable[[list[bool]], tuple[Any, Sequence[bool]]]) -> tuple[Any, list[bool]]:
    """The least fixpoint of a property of the carry, such as "has a tangent", "is mapped" or "is unknown".

    A carry that does not have the property at the start of an iteration may have it at the end, for example if the body
    adds a mapped value to it. Since the next iteration starts with that value, the body is derived again with the
    property set. The property only grows, so there are at most as many rounds as carried values.

    Args:
      carry: for each initial value, whether it has the property.
      step: from the property at the start of the body to `(derived, property at the end of the body)`.

    Returns:
      The result `derived` of the last step, and the fixpoint.
    """
    current = list(carry)
    while True:
        derived, after = step(current)
        widened = [a or b for a, b in zip(current, after)]
        if widened == current:
            return derived, current
        current = widened


def restore_inputs(
    whole: Jaxpr, smaller: Jaxpr, kept: Sequence[bool], wanted: Sequence[bool]
) -> tuple[Jaxpr, list[bool]]:
    """A jaxpr after dead code elimination, with exactly the wanted inputs, even if no equation reads them.

    Args:
      whole: the jaxpr before dead code elimination.
      smaller, kept: the jaxpr afterwards, and which inputs it kept.
      wanted: which inputs the result must have.
    """
    if list(kept) == list(wanted):
        return smaller, list(kept)
    return smaller.replace(invars=select_flagged(whole.invars, wanted)), list(wanted)


@cached_on_jaxpr
def permute_inputs_outputs(
    jaxpr: Jaxpr, in_sizes: Sequence[int], in_order: Sequence[int], out_sizes: Sequence[int], out_order: Sequence[int]
) -> Jaxpr:
    """A jaxpr with its constants as leading inputs, and with groups of inputs and outputs in another order.

    Args:
      jaxpr: the jaxpr.
      in_sizes, out_sizes: the sizes of consecutive groups of its inputs and outputs.
      in_order, out_order: the numbers of the groups in the new order.
    """
    ins, outs = split_by_sizes(jaxpr.invars, in_sizes), split_by_sizes(jaxpr.outvars, out_sizes)
    return jaxpr.replace(
        invars=[*jaxpr.constvars, *(v for i in in_order for v in ins[i])],
        outvars=[v for i in out_order for v in outs[i]],
        constvars=(),
        consts=(),
    )


def unify_carry_varying(jaxpr: Jaxpr, avals: Sequence[ShapedArray], start: int, count: int) -> Jaxpr:
    """Retype a loop body so that its carry varies over the same mesh axes at the start and at the end.

    Args:
      jaxpr: the body (constants, carry, further inputs) -> (carry, further outputs), without constants.
      avals: types of the inputs, whose varying axes the inputs of the result vary over at least.
      start, count: the position of the carry among the inputs, and its length.
    """
    while True:
        jaxpr = retype_jaxpr(jaxpr, avals)
        carry = jaxpr.in_avals[start : start + count]
        widened = widen_varying(carry, jaxpr.out_avals[:count])
        if widened == carry:
            return vary_outputs(jaxpr, carry)
        avals = [*jaxpr.in_avals[:start], *widened, *jaxpr.in_avals[start + count :]]
