"""Frames: which lines of a traceback are Phalanx's own, and how they are kept from users.

An exception that leaves a public function shows the user's frames only. Python adds a frame to the traceback as each
one unwinds, so the outermost of ours has to take them away: a `boundary` around it does, and costs a call that raises
nothing a tenth of a microsecond. `guard` makes boundaries of all functions of a public face; functions that have no
such time catch for themselves and call `hide_frames`. It stands on the lowest floor because every face needs it.
"""

from __future__ import annotations

import builtins
import functools
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType, TracebackType
from typing import Any, TypeVar

import jaxlib
import numpy as np

C = TypeVar("C", bound=type)


def _folder(file: Any) -> str:
    return os.path.join(os.path.dirname(os.path.abspath(file)), "")


PACKAGE = _folder(_folder(__file__)[:-1])
_OURS = (PACKAGE, _folder(jaxlib.__file__), "<frozen")
_STANDARD, _NUMPY = _folder(os.__file__), _folder(np.__file__)

_boundaries: set[CodeType] = set()  # code of the functions that hide frames; attributes would pass to what wraps them

# Reads the option `traceback_filtering`, which `core` declares.
_read_mode: Callable[[], str] = lambda: os.environ.get("PHALANX_TRACEBACK_FILTERING", "auto")


def take_mode(read: Callable[[], str]) -> None:
    """Ask this function how frames are to be hidden from now on."""
    global _read_mode
    _read_mode = read


class UnfilteredTraceback(Exception):
    """Holds the whole traceback of an exception whose own one shows the user's frames only."""

    shown: TracebackType | None = None  # where the filtered traceback began when this one was taken


def hide_frames(error: BaseException) -> None:
    """Leave only the user's frames in the traceback of an exception, and of those that led to it.

    An exception that was raised and caught inside Phalanx on the way no longer shows at all. As the option
    `traceback_filtering` says, frames are taken out or only marked for debuggers that honour `__tracebackhide__`.

    Args:
      error: an exception on its way out; a bare `raise` follows.
    """
    mode = _read_mode()
    if mode == "auto":
        mode = "tracebackhide" if hasattr(builtins, "__IPYTHON__") else "quiet_remove_frames"
    if mode == "off":
        return
    if mode == "tracebackhide":
        for entry, is_ours in _entries(error.__traceback__):
            if is_ours:
                entry.tb_frame.f_locals["__tracebackhide__"] = True
        return
    whole = _whole(error)
    _filter(error, set())
    whole.shown = error.__traceback__
    _keep(error, whole, visibly=mode == "remove_frames")


def is_internal(code: CodeType) -> bool:
    """Whether code is Phalanx's own."""
    return code.co_filename.startswith(_OURS)


def boundary(fun: Callable) -> Callable:
    """A function out of which exceptions come without the frames of Phalanx."""
    if getattr(fun, "__code__", None) in _boundaries:
        return fun
    hide = hide_frames

    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return fun(*args, **kwargs)
        except Exception as error:
            hide(error)
            raise  # A bare `raise` adds no entry for this frame.

    _boundaries.add(guarded.__code__)
    # Under the globals of `fun`, so that doctest finds the examples of the function where it stands.
    where = getattr(fun, "__globals__", {})
    made = FunctionType(guarded.__code__, where, guarded.__name__, None, guarded.__closure__)
    return functools.update_wrapper(made, fun)


def as_boundary(fun: Any) -> Any:
    """Say of a function that it calls `hide_frames` itself, and give it back."""
    _boundaries.add(fun.__code__)
    return fun


def boundaries(cls: C) -> C:
    """A class of objects whose constructor and public methods are boundaries."""
    for name, held in list(vars(cls).items()):
        if type(held) is FunctionType and (not name.startswith("_") or name in ("__init__", "__call__", "__getitem__")):
            setattr(cls, name, boundary(held))
        elif isinstance(held, staticmethod) and name == "__new__":
            setattr(cls, name, staticmethod(boundary(held.__func__)))
    return cls


def guard_methods(cls: type, names: str) -> None:
    """Make boundaries of these methods and properties of a class, where `boundaries` would guard too many."""
    for name in names.split():
        held = vars(cls)[name]
        is_property = isinstance(held, property) and held.fget is not None
        setattr(cls, name, property(boundary(held.fget)) if is_property else boundary(held))


def guard(face: dict[str, Any], names: Iterable[str] | None = None) -> None:
    """Make a boundary of each public function of a face: of a module that has functions of its own, of these.

    Args:
      face: the globals of the module whose functions users call.
      names: those that are meant, where it is not all.
    """
    public = [n for n in names or face if not n.startswith("_") and type(face[n]) is FunctionType]
    own = [n for n in public if face[n].__globals__ is face]
    made: dict[int, Callable] = {}
    for name in own or public:
        held = face[name]
        if held.__code__ in _boundaries:
            continue
        if id(held) not in made and held.__code__.co_filename.startswith(PACKAGE):
            made[id(held)] = boundary(held)
            home, own_name = vars(sys.modules[held.__module__]), str(held.__name__)
            if home.get(own_name) is held:  # where pickle looks for it, and doctest for its examples
                home[own_name] = made[id(held)]
        face[name] = made.get(id(held), held)


def _entries(traceback: TracebackType | None) -> Iterator[tuple[TracebackType, bool]]:
    """The entries of a traceback, outermost first, and whether each is Phalanx's own or of a library that it called."""
    is_ours = False
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        is_ours = file.startswith(_OURS) or (is_ours and _is_library(file))
        yield traceback, is_ours
        traceback = traceback.tb_next


def _is_library(file: str) -> bool:
    return file.startswith(_NUMPY) or (file.startswith(_STANDARD) and "site-packages" not in file)


def _linked(entries: list[TracebackType], rest: TracebackType | None = None) -> TracebackType | None:
    """A traceback of these entries, before another one."""
    for entry in reversed(entries):
        rest = TracebackType(rest, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return rest


def _filter(error: BaseException, seen: set[int]) -> None:
    seen.add(id(error))
    error.__traceback__ = _linked([entry for entry, is_ours in _entries(error.__traceback__) if not is_ours])
    cause, context = error.__cause__, error.__context__
    if cause is not None and id(cause) not in seen and type(cause) is not UnfilteredTraceback:
        _filter(cause, seen)
    if context is not None and not error.__suppress_context__ and id(context) not in seen:
        _filter(context, seen)
        if context.__traceback__ is None:  # It was raised and caught inside Phalanx.
            error.__suppress_context__ = True


def _whole(error: BaseException) -> UnfilteredTraceback:
    """The whole traceback so far: what was added since a boundary further in, and what that one kept."""
    held = next((e for e in (error.__cause__, error.__context__) if type(e) is UnfilteredTraceback), None)
    if held is None:
        return UnfilteredTraceback("every frame, those of Phalanx too").with_traceback(error.__traceback__)
    fresh = [e for e, _ in itertools.takewhile(lambda pair: pair[0] is not held.shown, _entries(error.__traceback__))]
    return held.with_traceback(_linked(fresh, held.__traceback__))


def _keep(error: BaseException, whole: UnfilteredTraceback, visibly: bool) -> None:
    """Hang the whole traceback on the exception: as its cause, or where no printed traceback shows it."""
    if whole in (error.__cause__, error.__context__):
        return
    if visibly:
        whole.__cause__, whole.__context__ = error.__cause__, error.__context__
        whole.__suppress_context__ = error.__suppress_context__
        error.__cause__ = whole
    elif error.__context__ is None or error.__suppress_context__:
        error.__context__, error.__suppress_context__ = whole, True
