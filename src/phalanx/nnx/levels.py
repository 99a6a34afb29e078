"""Trace levels and the clock of structures: who may change what, and whether anything has.

A variable and an object belong to the trace in which they were made; changing them under another one would leak a
traced value out of its transformation. Structural changes of objects that a cached graph has seen advance `clock.time`,
so that one comparison tells that no structure has changed. Called by `variable`, `objects` and `graphs`.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any

from phalanx.core import source
from phalanx.core.config import state
from phalanx.core.errors import PhalanxError, UnexpectedTracerError, met_by
from phalanx.core.trace import Tracer
from phalanx.transforms.batching import BatchTrace
from phalanx.transforms.forward import JVPTrace
from phalanx.transforms.linear import LinearTrace


@met_by(
    "from phalanx import nnx",
    "w = nnx.Param(1.0)",
    'phalanx.jit(lambda x: setattr(w, "value", x))(2.0)',
    where="Param, setting its value",
)
class TraceContextError(PhalanxError, TypeError):
    """A variable or module was changed inside a transformation that it comes from outside of."""


class Clock:
    """The number of structural changes so far, of objects that some cached graph has seen."""

    __slots__ = ("time",)

    def __init__(self) -> None:
        self.time = 0


clock = Clock()


def check_level(target: Any, change: str = "setting its value") -> None:
    """Refuse to change a variable or an object that belongs to another trace than the current one.

    Raises:
      TraceContextError: it does.
    """
    own, current = target._trace, state.trace
    if own is current:
        return
    raise TraceContextError(
        f"{described(target)}, {change}",
        expected=f"the trace level that it was made at, {_level(own)}" + _made_at(target),
        got=_between(own, current),
        mend="pass it to the transformed function as an argument, and use the nnx form of the transformation "
        "(nnx.jit, nnx.grad, nnx.vmap, ...), which brings changes back",
    )


def dead_error(variable: Any) -> UnexpectedTracerError:
    """The error for reading a variable whose value is left over from a trace that has ended."""
    tracer = variable._value
    return UnexpectedTracerError(
        f"{described(variable)}, reading its value",
        expected=f"a value of the computation at hand, since {_transformation(tracer._trace)} has ended",
        got=tracer.describe() + _made_at(variable),
        mend="return the module from the transformed function instead of storing it outside",
    )


def described(target: Any) -> str:
    """A variable or an object in words: its kind and, where a module holds it, its path."""
    path = path_of(target)
    return f"{type(target).__name__} {path}" if path else type(target).__name__


def check_alive(variables: Iterable[Any]) -> None:
    """Refuse variables whose values are left over from a trace that has ended.

    Raises:
      UnexpectedTracerError: one is.
    """
    for variable in variables:
        value = variable._value
        if isinstance(value, Tracer) and not value._trace.alive:
            raise dead_error(variable)


def _transformation(trace: Any) -> str:
    """What a trace does, in words."""
    name = trace.name or "a function"
    if isinstance(trace, JVPTrace | LinearTrace):
        return f"the derivative of {name}"
    return name if isinstance(trace, BatchTrace) else f"the tracing of {name}"


def _level(trace: Any) -> str:
    return "outside of any transformation" if trace is None else f"inside {_transformation(trace)}"


def _made_at(target: Any) -> str:
    where = getattr(target, "_source", None)
    return "" if where is None else f", at {source.summary(where)}"


def _between(own: Any, current: Any) -> str:
    """The transformations that lie between the level of the target and the current one."""
    names = []
    trace = current
    while trace is not None and trace is not own:
        if (shown := _transformation(trace)) not in names:
            names.append(shown)
        trace = trace.parent
    if trace is not own:
        return f"a change {_level(current)}, when {_transformation(own)} has ended or is not around it"
    return f"a change {_level(current)}" if len(names) < 2 else f"a change inside {', inside '.join(names)}"


def path_of(target: Any) -> str:
    """The path to a variable or an object from the outermost object that holds it: only for messages, as it is slow."""
    path = ""
    seen: set[int] = set()
    while id(target) not in seen:
        seen.add(id(target))
        step = _holder(target, 0)
        if step is None:
            break
        target, key = step
        path = key + path
    return path.removeprefix(".")


def _holder(target: Any, hops: int) -> tuple[Any, str] | None:
    """The object that holds a value as an attribute, or up to three containers deep in one, and the way there."""
    for holder in gc.get_referrers(target):
        kind = type(holder)
        owner = _owner(holder)
        if owner is not None:
            name = next((k for k, v in vars(owner).items() if v is target), None)
            if name is not None:
                return owner, f".{name}"
        elif kind in (list, tuple, dict) and hops < 3:
            items = holder.items() if kind is dict else enumerate(holder)
            key = next((k for k, v in items if v is target), None)
            above = _holder(holder, hops + 1) if key is not None else None
            if above is not None:
                return above[0], f"{above[1]}[{key!r}]"
    return None


def _owner(holder: Any) -> Any:
    """The object whose attributes these are, or the object itself."""
    if hasattr(type(holder), "_marks") and not isinstance(holder, type):
        return holder
    if type(holder) is not dict:
        return None
    owners = gc.get_referrers(holder)
    return next((o for o in owners if hasattr(type(o), "_marks") and getattr(o, "__dict__", None) is holder), None)
