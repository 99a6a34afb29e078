"""Tracing of loop bodies and branches, and operations on the jaxprs that their rules derive.

Traced bodies are cached by function and argument types, so that an eager loop over the same function compiles once. A
carry must have the same type at the start and at the end of every iteration: `promote_carry` traces a loop body until
the types agree, and `check_carry` reports the ones that never do. Shared by the loops, `cond` and
`custom_linear_solve`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx.core import (
    AbstractRef,
    Jaxpr,
    RefError,
    ShapedArray,
    cached_on_jaxpr,
    check_ref_aliases,
    conform_all,
    current_scope,
    dtypes,
    get_aval,
    has_refs,
    is_open_constant,
    promotion,
    retype_jaxpr,
    select_flagged,
    trace_to_jaxpr,
    unwrap_array_like,
    vary_outputs,
    vector_space,
    widen_varying,
)
from phalanx.engine.cache import Cache
from phalanx.transforms import FlatFunction, PathLabel, check_same_types
from phalanx.tree import PyTreeDef, tree_flatten, tree_unflatten
from phalanx.tree.key_paths import leaf_path
from phalanx.typing import PyTree

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
    # What a function does while it is traced also depends on the options and the named axes in the context.
    key = (in_tree, tuple(avals), adapt, current_scope().context)
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
    if not any(map(is_open_constant, jaxpr.consts)):
        known[key] = body
    return body


def check_refs(where: str, operands: PyTree, bodies: Sequence[TracedBody]) -> None:
    """Refuse a mutable array reference that a loop or branch receives twice, or receives and closes over."""
    if any(has_refs(body.jaxpr) for body in bodies):
        consts = [x for body in bodies for x in body.consts]
        path = lambda i: leaf_path(operands, i)
        check_ref_aliases(where, tree_flatten(operands)[0], consts, path)


def leaf_avals(leaves: Sequence[Any]) -> list[ShapedArray]:
    """The types of a list of values."""
    return [get_aval(x) for x in leaves]


def as_array(x: Any) -> Any:
    """The array that an operand stands for, where a loop or branch returns the operand unchanged."""
    x, aval = unwrap_array_like(x), get_aval(x)
    return vector_space.as_type(x, aval.dtype, aval.weak_type)


def split_by_sizes(items: Sequence[Any], sizes: Sequence[int]) -> list[list]:
    """The items in consecutive groups of these sizes."""
    rest = iter(items)
    return [list(itertools.islice(rest, size)) for size in sizes]


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
    # An unchanged jaxpr is returned as it is, since what was derived from it is kept on it.
    same = list(kept) == list(wanted)
    return smaller if same else smaller.replace(invars=select_flagged(whole.invars, wanted)), list(wanted)


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
    # This ends, since the axes of a carried value only grow, and a mesh has finitely many.
    while True:
        jaxpr = retype_jaxpr(jaxpr, avals)
        carry = jaxpr.in_avals[start : start + count]
        widened = widen_varying(carry, jaxpr.out_avals[:count])
        if widened == carry:
            return vary_outputs(jaxpr, carry)
        avals = [*jaxpr.in_avals[:start], *widened, *jaxpr.in_avals[start + count :]]


def promote_carry(init: Sequence[Any], make: Callable[[Sequence[ShapedArray]], tuple]) -> tuple[list, list, tuple]:
    """Trace a loop body for carry types that it preserves.

    The body is traced for the types of the initial values. If it returns other types, the initial values are adapted
    and the body is traced again, in three steps:

    1. Weakly typed initial values are converted to the stronger dtype that the body returns.
    2. Initial values without a mesh are resharded to the Explicit sharding that the body returns.
    3. Inside a `shard_map`, the carry is made to vary over all mesh axes that it varies over at the end of the body.
       This is a fixpoint iteration, since the axes only grow. Tracing again is required: derivatives taken inside the
       body depend on which values are shared between devices.

    Args:
      init: the initial values.
      make: from the types of the carry to `(body, types of the carry that the body returns, ...)`.

    Returns:
      The adapted initial values, the types of the carry, and the last result of `make`.
    """
    avals = leaf_avals(init)
    for aval in avals:
        if type(aval) is AbstractRef:
            raise RefError(
                "the initial carry of a loop",
                expected="arrays",
                got=f"a mutable array reference, {aval.str_short()}",
                fix="close over the reference: the body may read and write it",
            )
    made = make(avals)
    after = made[1]
    if len(after) != len(avals):  # another structure, which the caller reports
        return list(init), avals, made
    # For example `scan(lambda c, x: (c + x, None), 0, xs)` with floating-point `xs`: the weak 0 becomes a float.
    promoted = [b if _is_promoted_by(a, b) else a for a, b in zip(avals, after)]
    if promoted != avals:
        init = [vector_space.convert(x, w.dtype) if w is not a else x for x, a, w in zip(init, avals, promoted)]
        made = make(leaf_avals(init))
    avals = leaf_avals(init)
    sharded = [_with_sharding_of(a, b) for a, b in zip(avals, made[1])]
    if sharded != avals:
        init, avals = conform_all(init, sharded), sharded
        made = make(avals)
    while (varying := widen_varying(avals, made[1])) != avals:
        avals, made = varying, make(varying)
    return list(init), avals, made


def _is_promoted_by(aval: ShapedArray, after: ShapedArray) -> bool:
    """Whether a weakly typed initial value takes the dtype of the returned carry, by the promotion rules."""
    return (
        aval.weak_type
        and not aval.matches(after)
        and aval.shape == after.shape
        and dtypes.issubdtype(after.dtype, np.number)
        and promotion.promote_pair(aval.dtype, True, after.dtype, after.weak_type)[0] == after.dtype
    )


def _with_sharding_of(aval: ShapedArray, after: ShapedArray) -> ShapedArray:
    """The type of an initial value without a mesh, with the sharding of the returned carry."""
    is_inherited = aval.type_sharding is None and after.type_sharding is not None and aval.shape == after.shape
    return aval.update(sharding=after.type_sharding) if is_inherited else aval


def check_carry(
    where: PathLabel,
    source: PathLabel,
    before: tuple[PyTreeDef, Sequence[ShapedArray]],
    after: tuple[PyTreeDef, Sequence[ShapedArray]],
    num_counters: int = 0,
) -> None:
    """Refuse a loop body that changes the structure or the types of its carry.

    Args:
      where: names a place in the returned carry, for errors.
      source: names the same place in the initial value.
      before, after: the structure and the leaf types of the carry at the start and at the end of the body.
      num_counters: how many scalars the loop carries in front of the user's value.
    """
    (tree, avals), (after_tree, after_avals) = before, after
    if num_counters:
        tree, after_tree = (
            tree_flatten(tree_unflatten(t, list(a))[num_counters])[1]
            for t, a in ((tree, avals), (after_tree, after_avals))
        )
    check_same_types(where, tree, avals[num_counters:], after_tree, after_avals[num_counters:], source)
