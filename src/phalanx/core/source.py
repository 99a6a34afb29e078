"""Source positions: which line of the user's wrote an operation.

A raw traceback is captured for each traced operation, since it costs a tenth of a microsecond; it is looked at only
when a program is printed, lowered or complained about. Frames inside this package are never the user's.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from phalanx.core.config import state
from phalanx.engine.frames import boundary, is_internal
from phalanx.engine.mlir import current_traceback as current_traceback
from phalanx.engine.mlir import user_frames


class Scoped:
    """A traceback under named scopes.

    Args:
      traceback: where the operation was written.
      scope: the names of the scopes around it, outermost first; they go before those that the traceback has.
    """

    __slots__ = ("scope", "traceback")

    def __init__(self, traceback: Any, scope: tuple[str, ...]):
        self.traceback = traceback.traceback if type(traceback) is Scoped else traceback
        self.scope = scope_within(scope, traceback)


def scope_within(scope: tuple[str, ...], traceback: Any) -> tuple[str, ...]:
    """The scopes of a traceback inside others; a backward pass is in those of its forward pass once, not twice."""
    inner = traceback.scope if type(traceback) is Scoped else ()
    return inner if inner[: len(scope)] == scope else (*scope, *inner)


def user_frame(traceback: Any) -> Any | None:
    """The innermost frame of the user's code, or None."""
    if type(traceback) is Scoped:
        traceback = traceback.traceback
    return next(iter(user_frames(traceback)), None)


def summary(traceback: Any) -> str:
    """Where an operation was written, as `file:line (function)`."""
    frame = user_frame(traceback)
    if frame is None:
        return "unknown"
    return f"{frame.file_name}:{frame.line_num} ({frame.function_name})"


def code_position(fun: Any) -> str:
    """Where a function was defined, as `name at file:line`.

    Args:
      fun: the function.

    Returns:
      The text; the name alone where there is no Python code.

    Examples:
      >>> code_position(len)
      'len'
    """
    name = getattr(fun, "__name__", None) or type(fun).__name__
    written = getattr(fun, "__wrapped__", fun)
    code = getattr(written, "__code__", None) or getattr(fun, "__code__", None)
    return f"{name} at {code.co_filename}:{code.co_firstlineno}" if code is not None else name


@contextlib.contextmanager
def named_scope(name: str) -> Iterator[None]:
    """Name the operations of a block, as profiles and compiled programs show them.

    Args:
      name: the name; blocks nest.

    Returns:
      A context manager.

    Examples:
      >>> import phalanx
      >>> with phalanx.named_scope("attention"):
      ...     pass
    """
    before = state.scope
    state.scope = (*before, name)
    try:
        yield
    finally:
        state.scope = before


def named_call(fun: Callable, *, name: str | None = None) -> Callable:
    """A function whose operations carry its name (see `named_scope`).

    Args:
      fun: the function.
      name: another name than its own.

    Returns:
      A function of the same arguments.

    Examples:
      >>> import phalanx
      >>> square = named_call(lambda x: x * x, name="square")
      >>> "square" in phalanx.jit(square).lower(2.0).as_text(debug_info=True)
      True
    """

    @boundary
    @functools.wraps(fun)
    def named(*args: Any, **kwargs: Any) -> Any:
        with named_scope(name or fun.__name__):
            return fun(*args, **kwargs)

    return named


def user_level() -> int:
    """How far up the stack a function meets the user's code: the `stacklevel` of the warnings that it gives."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and is_internal(frame.f_code):
        frame, level = frame.f_back, level + 1
    return level
