"""Bodies: user functions staged for the control-flow operations, and how their errors speak.

The programs of loop bodies and branches are kept by function and argument types, so that an eager loop over the same
function compiles once. Shared by `loops`, `branches` and `solvers`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.config import state
from phalanx.core.errors import ArgumentTypeError, ShardingError, TreeError
from phalanx.core.flags import chosen
from phalanx.core.jaxpr import Jaxpr, derivation
from phalanx.core.trace import Tracer, stage
from phalanx.core.varying import returning, retyped, widened
from phalanx.transforms.functions import FlatFunction
from phalanx.tree import tree_unflatten
from phalanx.tree.paths import leaf_path

_staged: weakref.WeakKeyDictionary[Callable, dict] = weakref.WeakKeyDictionary()


class Body(NamedTuple):
    """A staged function.

    program: constants as leading inputs, then the flat arguments -> flat results.
    consts: the values of the constants.
    out_tree: the structure of the result.
    """

    program: Jaxpr
    consts: list
    out_tree: Any


def stage_body(
    fun: Callable, in_tree: Any, avals: Sequence[ShapedArray], name: str, adapt: Callable | None = None
) -> Body:
    """Stage a function of the arguments that `in_tree` describes.

    Args:
      fun: what the user wrote, under which the program is kept.
      in_tree: the structure of the tuple of arguments.
      avals: the types of its leaves.
      name: the role of the function, for messages.
      adapt: from `fun` to the function that is staged, where that is another; a function of a module, since it is part
        of the key.
    """
    key = (in_tree, tuple(avals), adapt, state.context)
    try:
        known = _staged.setdefault(fun, {})
    except TypeError:  # a callable without weak references
        known = {}
    found = known.get(key)
    if found is not None:
        return found
    function = FlatFunction(fun if adapt is None else adapt(fun), in_tree, role=name)
    program = stage(function, avals, getattr(fun, "__name__", name))
    body = Body(program.hoist(), program.consts, function.out_tree)
    if not any(isinstance(c, Tracer) for c in program.consts):
        known[key] = body
    return body


def leaf_avals(leaves: Sequence[Any]) -> list[ShapedArray]:
    """The types of a list of values."""
    return [aval_of(x) for x in leaves]


def check_same_types(
    what: str, expected_tree: Any, expected: Sequence[ShapedArray], tree: Any, avals: Sequence[ShapedArray], source: str
) -> None:
    """Refuse a result whose structure or types differ from what it must match.

    Args:
      what: the result, in words.
      expected_tree, expected: the structure and types it must have.
      tree, avals: those it has.
      source: where the expected types come from, in words.

    Raises:
      TreeError: the structures differ.
      ArgumentTypeError: a leaf's shape or dtype differs.
      ShardingError: a leaf's sharding over Explicit axes differs.
    """
    if tree != expected_tree:
        raise TreeError(
            what, expected=f"the structure of {source}, {expected_tree}", got=str(tree), mend=f"make it match {source}"
        )
    shape = tree_unflatten(tree, list(range(len(avals))))
    for i, (want, got) in enumerate(zip(expected, avals)):
        if not got.matches(want):
            path = leaf_path(shape, i)
            raise ArgumentTypeError(
                f"{what}{path}",
                expected=f"type {want.str_short()}, that of {source}",
                got=got.str_short(),
                mend=f"convert it with .astype or reshape it, or change {source}",
            )
        if got.sharding is not want.sharding:
            path = leaf_path(shape, i)
            raise ShardingError(
                f"{what}{path}",
                expected=f"type {want.str_short()}, that of {source}",
                got=got.str_short(),
                mend=f"reshard one of them with phalanx.reshard: it, or {source}",
            )


def groups_of(items: Sequence[Any], sizes: Sequence[int]) -> list[list]:
    """The items in consecutive groups of these sizes."""
    out, start = [], 0
    for size in sizes:
        out.append(list(items[start : start + size]))
        start += size
    return out


def fixpoint(carry: Sequence[bool], step: Callable[[list[bool]], tuple[Any, Sequence[bool]]]) -> tuple[Any, list[bool]]:
    """Widen a property of the carry until the loop body preserves it.

    Args:
      carry: the property of the initial values.
      step: from the property of the carry at entry, something derived and the property at exit.

    Returns:
      What was derived at the fixpoint, and the property.
    """
    held = list(carry)
    while True:
        derived, after = step(held)
        wider = [a or b for a, b in zip(held, after)]
        if wider == held:
            return derived, held
        held = wider


def keep_inputs(whole: Jaxpr, smaller: Jaxpr, kept: Sequence[bool], wanted: Sequence[bool]) -> tuple[Jaxpr, list[bool]]:
    """A program from which dead code was taken, with the inputs that are wanted although nothing reads them.

    Args:
      whole: the program before.
      smaller, kept: the one after, and which inputs it kept.
      wanted: the inputs it is to have.
    """
    if list(kept) == list(wanted):
        return smaller, list(kept)
    return smaller.replace(invars=chosen(whole.invars, wanted)), list(wanted)


@derivation
def permuted(
    program: Jaxpr, in_sizes: Sequence[int], in_order: Sequence[int], out_sizes: Sequence[int], out_order: Sequence[int]
) -> Jaxpr:
    """A program with its constants in front and its inputs and outputs regrouped."""
    ins, outs = groups_of(program.invars, in_sizes), groups_of(program.outvars, out_sizes)
    return program.replace(
        invars=[*program.constvars, *(v for i in in_order for v in ins[i])],
        outvars=[v for i in out_order for v in outs[i]],
        constvars=(),
        consts=(),
    )


def settled_loop(program: Jaxpr, avals: Sequence[ShapedArray], start: int, count: int) -> Jaxpr:
    """The body of a loop, typed so that its carry (`count` inputs from `start` on) varies alike at entry and exit.

    The program, from constants, carry and others to carry and others, has no constants of its own; its inputs vary over
    the axes of `avals` at least.
    """
    while True:
        program = retyped(program, avals)
        held = program.in_avals[start : start + count]
        wider = widened(held, program.out_avals[:count])
        if wider == held:
            return returning(program, held)
        avals = [*program.in_avals[:start], *wider, *program.in_avals[start + count :]]
