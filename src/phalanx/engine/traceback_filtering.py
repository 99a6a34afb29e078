"""Traceback filtering: hiding the frames of Phalanx in exceptions that users see.

An exception that leaves a public function shows only the user's frames. Python adds a frame to the traceback as each
frame unwinds, so the outermost frame of Phalanx has to remove the others. An `api_boundary` around a public function
does; it adds a tenth of a microsecond to a call that raises nothing. `guard_namespace` makes boundaries of all
functions of a public module. Functions on hot paths catch exceptions themselves and call `hide_frames`.
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

from phalanx.engine.environment_variables import read_option_variable

C = TypeVar("C", bound=type)


def _folder(file: Any) -> str:
    return os.path.join(os.path.dirname(os.path.abspath(file)), "")


PACKAGE = _folder(_folder(__file__)[:-1])
_NOT_USERS: tuple[str, ...] = (PACKAGE, "<frozen")  # source lines of other files are shown
_OURS: tuple[str, ...] = (*_NOT_USERS, _folder(jaxlib.__file__))
_STANDARD, _NUMPY = _folder(os.__file__), _folder(np.__file__)

_boundaries: set[CodeType] = set()  # code of boundaries; an attribute would be copied by `functools.wraps`

# The option `traceback_filtering`, which `core` declares; the environment until then.
_read_mode: Callable[[], str] = lambda: read_option_variable("traceback_filtering") or "auto"


def take_mode(read: Callable[[], str]) -> None:
    """Read the option `traceback_filtering` with this function from now on."""
    global _read_mode
    _read_mode = read


class UnfilteredTraceback(Exception):
    """Holds the full traceback of an exception that shows the user's frames only."""

    shown: TracebackType | None = None  # the filtered traceback when this one was taken


def hide_frames(error: BaseException) -> None:
    """Remove the frames of Phalanx from the traceback of an exception and of the exceptions that led to it.

    An exception that was raised and caught inside Phalanx is hidden altogether. Under the option `traceback_filtering`,
    frames may also be marked instead of removed, for debuggers that honour `__tracebackhide__`.

    Args:
      error: an exception that is about to leave a public function; a bare `raise` follows.
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
    """Whether code belongs to Phalanx or to jaxlib."""
    return code.co_filename.startswith(_OURS)


def is_user_file(filename: str) -> bool:
    """Whether operations may be attributed to source lines of a file."""
    return not filename.startswith(_NOT_USERS)


def is_program_file(filename: str) -> bool:
    """Whether code is of the user's program: not of Phalanx, NumPy or the standard library."""
    return is_user_file(filename) and not _is_library(filename)


def exclude_file(path: str) -> None:
    """Treat the frames of a file, or of the files of a folder, as frames of Phalanx."""
    global _NOT_USERS, _OURS
    _NOT_USERS, _OURS = (*_NOT_USERS, path), (*_OURS, path)


def include_file(path: str) -> None:
    """Undo `exclude_file`."""
    global _NOT_USERS, _OURS
    _NOT_USERS, _OURS = (tuple(other for other in paths if other != path) for paths in (_NOT_USERS, _OURS))


def api_boundary(fun: Callable) -> Callable:
    """Wrap a function so that its exceptions show only the user's frames."""
    if getattr(fun, "__code__", None) in _boundaries:
        return fun
    hide = hide_frames

    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return fun(*args, **kwargs)
        except Exception as error:
            hide(error)
            raise  # a bare `raise` adds no frame to the traceback

    _boundaries.add(guarded.__code__)
    # With the globals of `fun`, so that doctest finds the examples of the function in its module.
    made = FunctionType(guarded.__code__, getattr(fun, "__globals__", {}), guarded.__name__, None, guarded.__closure__)
    return functools.update_wrapper(made, fun)


def mark_api_boundary(fun: Any) -> Any:
    """Mark a function that calls `hide_frames` itself, and return it."""
    _boundaries.add(fun.__code__)
    return fun


_GUARDED_SPECIAL_METHODS = ("__init__", "__call__", "__getitem__", "__setitem__")


def api_boundary_class(cls: C) -> C:
    """Make boundaries of a class's constructor and public methods; a decorator."""
    for name, held in list(vars(cls).items()):
        if type(held) is FunctionType and (not name.startswith("_") or name in _GUARDED_SPECIAL_METHODS):
            setattr(cls, name, api_boundary(held))
        elif isinstance(held, staticmethod) and name == "__new__":
            setattr(cls, name, staticmethod(api_boundary(held.__func__)))
    return cls


def guard_methods(cls: type, names: str) -> None:
    """Make boundaries of the named methods and properties, for classes with many others on hot paths."""
    for name in names.split():
        held = vars(cls)[name]
        is_property = isinstance(held, property) and held.fget is not None
        setattr(cls, name, property(api_boundary(held.fget)) if is_property else api_boundary(held))


def guard_namespace(face: dict[str, Any], names: Iterable[str] | None = None) -> None:
    """Make a boundary of each public function of a module; of a module with functions of its own, only of these.

    Args:
      face: the globals of the module.
      names: the names of the functions; None for all.
    """
    public = [n for n in (face if names is None else names) if not n.startswith("_") and type(face[n]) is FunctionType]
    own = [n for n in public if face[n].__globals__ is face]
    made: dict[int, Callable] = {}
    for name in own or public:
        held = face[name]
        if held.__code__ in _boundaries:
            continue
        if id(held) not in made and held.__code__.co_filename.startswith(PACKAGE):
            made[id(held)] = api_boundary(held)
            home, own_name = vars(sys.modules[held.__module__]), str(held.__name__)
            if home.get(own_name) is held:  # where pickle looks the function up, and doctest finds its examples
                home[own_name] = made[id(held)]
        face[name] = made.get(id(held), held)


def _entries(traceback: TracebackType | None) -> Iterator[tuple[TracebackType, bool]]:
    """The entries of a traceback, outermost first, each with whether it is of Phalanx or of a library called by it."""
    is_ours = False
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        is_ours = file.startswith(_OURS) or (is_ours and _is_library(file))
        yield traceback, is_ours
        traceback = traceback.tb_next


def _is_library(file: str) -> bool:
    return file.startswith(_NUMPY) or (file.startswith(_STANDARD) and "site-packages" not in file)


def _link(entries: list[TracebackType], rest: TracebackType | None = None) -> TracebackType | None:
    """Join these entries to a traceback, in front of another one."""
    for entry in reversed(entries):
        rest = TracebackType(rest, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return rest


def _filter(error: BaseException, seen: set[int]) -> None:
    seen.add(id(error))
    error.__traceback__ = _link([entry for entry, is_ours in _entries(error.__traceback__) if not is_ours])
    cause, context = error.__cause__, error.__context__
    if cause is not None and id(cause) not in seen and type(cause) is not UnfilteredTraceback:
        _filter(cause, seen)
    if context is not None and not error.__suppress_context__ and id(context) not in seen:
        _filter(context, seen)
        if context.__traceback__ is None:  # raised and caught inside Phalanx
            error.__suppress_context__ = True


def _whole(error: BaseException) -> UnfilteredTraceback:
    """The full traceback: the entries since an inner boundary, and the full traceback that this boundary kept."""
    held = next((e for e in (error.__cause__, error.__context__) if type(e) is UnfilteredTraceback), None)
    if held is None:
        return UnfilteredTraceback("every frame, in Phalanx too").with_traceback(error.__traceback__)
    fresh = [e for e, _ in itertools.takewhile(lambda pair: pair[0] is not held.shown, _entries(error.__traceback__))]
    return held.with_traceback(_link(fresh, held.__traceback__))


def _keep(error: BaseException, whole: UnfilteredTraceback, visibly: bool) -> None:
    """Attach the full traceback to the exception: as its cause, or in a place that no printed traceback shows."""
    if whole in (error.__cause__, error.__context__):
        return
    if visibly:
        whole.__cause__, whole.__context__ = error.__cause__, error.__context__
        whole.__suppress_context__ = error.__suppress_context__
        error.__cause__ = whole
    elif error.__context__ is None or error.__suppress_context__:
        error.__context__, error.__suppress_context__ = whole, True
