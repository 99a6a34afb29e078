"""Observing calls: who wants to know of the calls of modules' methods sees them, in its own context only.

Public methods of modules pass through `observed`, which costs a call a tenth of a microsecond where nobody observes.
The observer is a context variable, so that another thread, or what runs after the block, never meets it. `module` wraps
the methods; `summary` (tabulate) and `capturing` observe.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import FunctionType
from typing import Any

from phalanx.engine.frames import as_boundary, hide_frames

# Called as `observer(module, name, call, args, kwargs)`; it makes the call and gives its result.
Observer = Callable[[Any, str, Callable, tuple, dict], Any]

_observer: ContextVar[Observer | None] = ContextVar("observer of the calls of modules", default=None)


@contextlib.contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Have an observer see the calls of this context for a block."""
    before = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(before)


def observed(method: FunctionType, name: str) -> Callable:
    """A method whose calls can be observed."""
    observer_of = _observer.get

    @functools.wraps(method)
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            observer = observer_of()
            if observer is None:
                return method(self, *args, **kwargs)
            return observer(self, name, method, args, kwargs)
        except Exception as error:
            hide_frames(error)
            raise

    return as_boundary(called)


def observe_methods(cls: type, names: Any) -> None:
    """Let calls of methods that a class defines be observed."""
    is_ours = cls.__module__.startswith("phalanx.")
    for name in names:
        held = vars(cls).get(name)
        if type(held) is FunctionType:
            # A method of ours is a boundary by now, as which `observed` does.
            method = held.__wrapped__ if is_ours else held  # type: ignore[attr-defined]
            setattr(cls, name, observed(method, name))


def outermost(note: Callable[[Any, str, tuple, dict, Any], None]) -> Observer:
    """An observer that is told of each call with its result; of a method that calls itself through `super`, once."""
    active: set[tuple[int, str]] = set()

    def observer(module: Any, name: str, call: Callable, args: tuple, kwargs: dict) -> Any:
        key = id(module), name
        if key in active:
            return call(module, *args, **kwargs)
        active.add(key)
        try:
            out = call(module, *args, **kwargs)
        finally:
            active.discard(key)
        note(module, name, args, kwargs, out)
        return out

    return observer
