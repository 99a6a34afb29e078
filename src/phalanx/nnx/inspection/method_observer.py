"""Observation of the method calls of modules, for `nnx.tabulate` and `nnx.capture`.

`module` wraps the public methods of modules with `make_observable`. Without an observer, this adds about a tenth of a
microsecond to a call. The observer is a context variable, so that other threads, and code after the `with` block, are
not observed.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from types import FunctionType
from typing import Any, TypeAlias

from phalanx.engine.traceback_filtering import hide_frames, mark_api_boundary

Observer: TypeAlias = Callable[[Any, str, Callable, tuple, dict], Any]
"""Called as `observer(module, name, method, args, kwargs)`; it calls the method and returns the result."""

_observer: ContextVar[Observer | None] = ContextVar("observer of the calls of modules", default=None)


class _ObserverReference:
    """Reads the context variable, and can be pickled, unlike the variable, with classes that are pickled by value."""

    __slots__ = ("get",)

    def __init__(self) -> None:
        self.get = _observer.get

    def __reduce__(self) -> str:
        return "_reference"


_reference = _ObserverReference()


@contextlib.contextmanager
def observing(observer: Observer | None) -> Iterator[None]:
    """Observe the calls in a `with` block; None for none."""
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def make_observable(method: FunctionType, name: str) -> Callable:
    """Wrap a method so that its calls can be observed."""
    # A local name saves the lookup of a global one in each call of a layer.
    reference = _reference

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            observer = reference.get()
            if observer is None:
                return method(self, *args, **kwargs)
            return observer(self, name, method, args, kwargs)
        except Exception as error:
            hide_frames(error)
            raise

    return mark_api_boundary(call)


def observe_methods(cls: type, names: Sequence[str]) -> None:
    """Wrap methods that a class defines so that their calls can be observed."""
    is_library_class = cls.__module__.startswith("phalanx.")
    for name in names:
        method: Any = vars(cls).get(name)
        if type(method) is FunctionType:
            # A method of the library is an API boundary already, and so is the wrapper. Two of them would filter a
            # traceback twice.
            setattr(
                cls, name, make_observable(getattr(method, "__wrapped__", method) if is_library_class else method, name)
            )


def notify_outermost_calls(note: Callable[[Any, str, tuple, dict, Any], None]) -> Observer:
    """An observer that calls `note(module, name, args, kwargs, result)` after each call.

    If a method calls the same method of the same module, for instance through `super`, only the outer call is noted.
    """
    active: set[tuple[int, str]] = set()

    def observer(module: Any, name: str, method: Callable, args: tuple, kwargs: dict) -> Any:
        key = id(module), name
        if key in active:
            return method(module, *args, **kwargs)
        active.add(key)
        try:
            out = method(module, *args, **kwargs)
        finally:
            active.discard(key)
        note(module, name, args, kwargs, out)
        return out

    return observer
