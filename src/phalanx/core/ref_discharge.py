"""Turning the references of jaxprs into values: the state discharge.

A jaxpr may have mutable array references among its inputs. A call-like operation is applied to such a jaxpr as it is,
and every transformation leaves the references alone, as long as they belong to an outer trace. In the trace that they
belong to, the operation is applied to their values instead (`transforms.call_primitives.HigherOrder`): evaluated with
new references in their place, the jaxpr takes the initial values and returns the final ones. Calls inside of it
meet references of the current trace in turn, so that nothing of them is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from phalanx.core.aval import AbstractRef
from phalanx.core.config import state
from phalanx.core.effects import write_effect
from phalanx.core.error_classes import RefError
from phalanx.core.jaxpr import Jaxpr, cached_on_jaxpr, run_jaxpr
from phalanx.core.mutable_arrays import Ref, RefCell, read_p
from phalanx.core.trace import Tracer, trace_to_jaxpr


class Slot(NamedTuple):
    """The place of one reference among the inputs of a jaxpr; equal slots are the same reference.

    Attributes:
      number: the number of the reference.
      is_view: whether the reference stands for one of an outer trace, which is written afterwards.
    """

    number: int
    is_view: bool = False


def local_refs(args: Sequence[Any]) -> list[RefCell]:
    """The distinct references of the current trace among the operands of a call-like operation."""
    return list(dict.fromkeys(x for x in args if type(x) is RefCell and x.in_current_trace()))


def read_values(args: Sequence[Any], slots: Sequence[Slot | None]) -> list[Any]:
    """The operands of a call-like operation, with the values of references in their place where there is a slot."""
    return [x if slot is None else read_p(x) for x, slot in zip(args, slots, strict=True)]


def has_refs(jaxpr: Jaxpr) -> bool:
    """Whether references are among the inputs and constants of a jaxpr."""
    return jaxpr.derive(
        "has_refs", lambda: (any(isinstance(v.aval, AbstractRef) for v in (*jaxpr.invars, *jaxpr.constvars)),)
    )[0]


def check_not_written(where: str, jaxpr: Jaxpr) -> None:
    """Refuse a jaxpr that writes a reference, where it may run for some examples only, or any number of times."""
    if write_effect in jaxpr.effects:
        raise RefError(
            where,
            expected="a function that writes no reference from outside",
            got="a write to a mutable array reference",
            fix="carry or return the value, and write it into the reference afterwards",
        )


def is_open_constant(x: Any) -> bool:
    """Whether a constant of a jaxpr belongs to a trace, so that another trace must not use the jaxpr."""
    return isinstance(x, Tracer) or (type(x) is RefCell and x.is_open)


@cached_on_jaxpr
def discharge_jaxpr(
    jaxpr: Jaxpr, slots: Sequence[Slot | None], returned: Sequence[Slot] | None = None
) -> tuple[Jaxpr, list[Slot]]:
    """Turn references of a jaxpr into values.

    Args:
      jaxpr: a jaxpr without constants.
      slots: for each input, the slot of the reference that it becomes a value of, or None.
      returned: the slots of the references whose final values to return; by default the written ones.

    Returns:
      The jaxpr (inputs, with values in the place of references) -> (outputs, then final values), and the slots of the
      references whose final values it returns.
    """
    found: list[Slot] = []

    def fun(*inputs: Any) -> list[Any]:
        cells: dict[Slot, RefCell] = {}
        for x, slot in zip(inputs, slots, strict=True):
            if slot is not None and slot not in cells:
                cells[slot] = RefCell(state.trace, x, slot.is_view)
        args = [x if slot is None else cells[slot] for x, slot in zip(inputs, slots, strict=True)]
        out = run_jaxpr(jaxpr, *args)
        found[:] = [n for n, c in cells.items() if c.is_written] if returned is None else returned
        return [*out, *(cells[n].value for n in found)]

    in_avals: list[Any] = jaxpr.in_avals
    avals = [a if slot is None else a.inner_aval for a, slot in zip(in_avals, slots, strict=True)]
    return trace_to_jaxpr(fun, avals, jaxpr.debug_name), found


def open_views(values: Sequence[Any], chosen: Sequence[bool]) -> list[Any]:
    """Values, of which the chosen ones become references of the current trace, whose final values the caller reads."""
    return [RefCell(state.trace, x, True) if c else x for x, c in zip(values, chosen, strict=True)]


def localize_refs(
    fun: Callable[..., list[Any]], args: Sequence[Any], chosen: Sequence[bool]
) -> tuple[Callable[..., list[Any]], list[Any]]:
    """A flat function of values in the place of some references among its arguments.

    Args:
      fun: a function of flat arguments and flat results.
      args: the arguments.
      chosen: for each argument, whether it is a reference to replace.

    Returns:
      The function, which returns the final values of the references after its results, and its arguments.
    """

    def with_values(*inputs: Any) -> list[Any]:
        cells = open_views(inputs, chosen)
        out = fun(*cells)
        return [*out, *(x.value for x, c in zip(cells, chosen, strict=True) if c)]

    return with_values, [read_p(x) if c else x for x, c in zip(args, chosen, strict=True)]


def check_ref_aliases(where: str, args: Sequence[Any], consts: Sequence[Any], path: Callable[[int], str]) -> None:
    """Refuse a reference that is passed twice, or both passed and closed over: two names for one reference.

    Args:
      where: the transformation and its function, for the error.
      args: the flat arguments.
      consts: the values that the function closes over.
      path: the name of argument `i`.
    """
    seen: dict[int, int] = {}
    closed = {id(x) for x in consts if isinstance(x, Ref)}
    for i, x in enumerate(args):
        if not isinstance(x, Ref):
            continue
        first = seen.setdefault(id(x), i)
        if first == i and id(x) not in closed:
            continue
        got = (
            f"{x.aval.str_short()}, which is closed over and passed as the argument {path(i)}"
            if first == i
            else f"{x.aval.str_short()}, which appeared at both {path(first)} and {path(i)}"
        )
        raise RefError(
            where,
            expected="each mutable array reference once, as an argument or closed over",
            got=got,
            fix="only one reference to a mutable array may be passed as an argument: use that one throughout the "
            "function",
        )
