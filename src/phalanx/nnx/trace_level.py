"""Checks that modules and variables are only changed by the trace that created them, and the global structure version.

A variable or an object belongs to the trace that was active when it was created. Changing it in another trace would
store a tracer in an object that outlives the trace (a leaked tracer), so such changes raise an error. The structure
version counts structural changes: if it is unchanged, every cached traversal of a module is still valid. Used by
`variable`, `objects` and `graphlib`.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from phalanx.core import PhalanxError, Trace, Tracer, UnexpectedTracerError, example, source_info, state
from phalanx.transforms import BatchTrace, JVPTrace, LinearTrace

if TYPE_CHECKING:
    from phalanx.nnx.objects import Pytree
    from phalanx.nnx.variable import Variable


@example(
    "from phalanx import nnx",
    "w = nnx.Param(1.0)",
    'phalanx.jit(lambda x: setattr(w, "value", x))(2.0)',
    where="Param, setting its value",
)
class TraceContextError(PhalanxError, TypeError):
    """A variable or module was created outside of a transformation and changed inside."""


# A class rather than a module-level integer: importers share the object, so that `structure_version.count += 1` in one
# file is visible in all others.
class StructureVersion:
    """A counter of the structural changes of all objects that some cached graph contains."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


structure_version = StructureVersion()


def check_trace_level(target: Variable | Pytree, change: str = "setting its value") -> None:
    """Check that a variable or an object was created in the current trace.

    Raises:
      TraceContextError: it belongs to another trace.
    """
    trace, current = target._trace, state.trace
    if trace is current:
        return
    raise TraceContextError(
        f"{describe(target)}, {change}",
        expected=f"the trace in which it was created, {_format_level(trace)}{_format_creation_site(target)}",
        got=_format_nesting(trace, current),
        fix=f"pass the {type(target).__name__} or the module that contains it to the transformed function as an "
        "argument, and use the nnx transformation (nnx.jit, nnx.grad, nnx.vmap, ...), which propagates its changes",
    )


def ended_trace_error(variable: Variable) -> UnexpectedTracerError:
    """The error for reading a variable that holds a tracer of a trace that has ended."""
    tracer = variable._value
    return UnexpectedTracerError(
        f"{describe(variable)}, reading its value",
        expected=f"a value of the current computation, since {_format_trace(tracer._trace)} has ended",
        got=tracer.describe() + _format_creation_site(variable),
        fix="return the module from the transformed function instead of storing it in a variable outside of it",
    )


def describe(target: Variable | Pytree) -> str:
    """The class of a variable or object and, if a module contains it, its path."""
    path = find_path(target)
    return f"{type(target).__name__} {path}" if path else type(target).__name__


def check_not_leaked(variables: Iterable[Variable]) -> None:
    """Check that no variable holds a tracer of a trace that has ended.

    Raises:
      UnexpectedTracerError: a variable does.
    """
    for variable in variables:
        value = variable._value
        if isinstance(value, Tracer) and not value._trace.alive:
            raise ended_trace_error(variable)


def _format_trace(trace: Trace) -> str:
    """The transformation that a trace belongs to, such as `the derivative of loss`."""
    name = trace.name or "a function"
    if isinstance(trace, JVPTrace | LinearTrace):
        return f"the derivative of {name}"
    return name if isinstance(trace, BatchTrace) else f"the tracing of {name}"


def _format_level(trace: Trace | None) -> str:
    return "outside of any transformation" if trace is None else f"inside {_format_trace(trace)}"


def _format_creation_site(target: Variable | Pytree) -> str:
    where = getattr(target, "_source", None)
    return "" if where is None else f", at {source_info.format_source(where)}"


def _format_nesting(trace: Trace | None, current: Trace | None) -> str:
    """The transformations between the trace of the target and the current one, the innermost first."""
    names: list[str] = []
    inner = current
    while inner is not None and inner is not trace:
        # A jit inside of a jit of the same function would otherwise be listed twice.
        if (name := _format_trace(inner)) not in names:
            names.append(name)
        inner = inner.parent
    if inner is not trace:  # the trace of the target is not an enclosing one: it has ended, or is a sibling
        assert trace is not None, "every chain of parents ends outside of all traces"
        return f"a change {_format_level(current)}, when {_format_trace(trace)} has ended or does not enclose it"
    return f"a change {_format_level(current)}" if len(names) < 2 else f"a change inside {', inside '.join(names)}"


def find_path(target: Any) -> str:
    """The path to a variable or object from the outermost object that contains it.

    Objects do not know their parents, so this searches the referrers known to the garbage collector. It is slow, and is
    used for error messages only.
    """
    path = ""
    seen: set[int] = set()
    # Objects may refer to each other in a cycle, which has no outermost object.
    while id(target) not in seen:
        seen.add(id(target))
        step = _find_parent(target, 0)
        if step is None:
            break
        target, key = step
        path = key + path
    return path.removeprefix(".")


def _find_parent(target: object, depth: int) -> tuple[object, str] | None:
    """The object that has a value as an attribute, or nested in up to three containers, and the path from there."""
    # Three levels reach `model.blocks[0]["a"][1]`. Each further level asks for the referrers of every container found.
    # The referrers include frames and other temporary objects, which have neither marks nor elements and are skipped.
    for holder in gc.get_referrers(target):
        kind = type(holder)
        owner = _get_owner(holder)
        if owner is not None:
            name = next((k for k, v in vars(owner).items() if v is target), None)
            if name is not None:
                return owner, f".{name}"
        elif kind in (list, tuple, dict) and depth < 3:
            items = holder.items() if kind is dict else enumerate(holder)
            key = next((k for k, v in items if v is target), None)
            above = _find_parent(holder, depth + 1) if key is not None else None
            if above is not None:
                return above[0], f"{above[1]}[{key!r}]"
    return None


def _get_owner(holder: Any) -> object | None:
    """The `Pytree` that a referrer is, or whose attribute dictionary it is."""
    # `_marks` is a slot of `Pytree`, which cannot be imported: `objects` builds on this file.
    if hasattr(type(holder), "_marks") and not isinstance(holder, type):
        return holder
    if type(holder) is not dict:
        return None
    owners = gc.get_referrers(holder)
    return next((o for o in owners if hasattr(type(o), "_marks") and getattr(o, "__dict__", None) is holder), None)
