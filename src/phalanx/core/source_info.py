"""Source positions: the user's line that an operation comes from.

A raw traceback is captured for each traced operation, which takes a tenth of a microsecond. It is resolved to a line
only when a jaxpr is printed or lowered, or an error is raised. Frames inside this package are never shown.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from phalanx.core.config import state
from phalanx.core.error_classes import ArgumentTypeError
from phalanx.engine import PACKAGE, api_boundary, current_traceback as current_traceback, is_internal, user_frames


class ScopedTraceback:
    """A traceback inside named scopes.

    Args:
      traceback: the position of the operation.
      scope: the names of the scopes, outermost first, and XLA metadata as pairs of strings; they precede the scopes
        that the traceback has.
    """

    __slots__ = ("scope", "traceback")

    def __init__(self, traceback: Any, scope: tuple[str, ...]):
        self.traceback: Any = traceback.traceback if type(traceback) is ScopedTraceback else traceback
        self.scope = nest_scope(scope, traceback)


class NameStack(NamedTuple):
    """The names of the scopes around an operation, outermost first.

    Args:
      stack: the names.

    Examples:
      >>> str(NameStack(("layer",)).extend("attention"))
      'layer/attention'
    """

    stack: tuple[str, ...] = ()

    def extend(self, name: str) -> NameStack:
        """The stack with one more scope inside.

        Args:
          name: its name.

        Returns:
          The stack.
        """
        return NameStack((*self.stack, name))

    def __len__(self) -> int:
        return len(self.stack)

    def __str__(self) -> str:
        return "/".join(self.stack)


class SourceInfo(NamedTuple):
    """The position of an operation, and the scopes around it.

    Args:
      traceback: the raw traceback, or None.
      name_stack: the scopes.
    """

    traceback: Any
    name_stack: NameStack

    def replace(self, **fields: Any) -> SourceInfo:
        """A copy with the named fields replaced.

        Args:
          **fields: new values by the field's name.

        Returns:
          The copy.
        """
        return self._replace(**fields)


def nest_scope(scope: tuple[str, ...], traceback: Any) -> tuple[str, ...]:
    """Nest the scopes of a traceback in others; a backward pass is in the scopes of its forward pass only once."""
    inner = traceback.scope if type(traceback) is ScopedTraceback else ()
    return inner if inner[: len(scope)] == scope else (*scope, *inner)


def find_user_frame(traceback: Any) -> Any | None:
    """The innermost frame of the user's code, or None."""
    if type(traceback) is ScopedTraceback:
        traceback = traceback.traceback
    return next(iter(user_frames(traceback)), None)


def format_source(traceback: Any) -> str:
    """The position of an operation as `file:line (function)`."""
    frame = find_user_frame(traceback)
    return "unknown" if frame is None else f"{frame.file_name}:{frame.line_num} ({frame.function_name})"


def format_code_position(fun: Any) -> str:
    """The definition of a function as `name at file:line`.

    Args:
      fun: the function.

    Returns:
      The text; the name alone if the function has no Python code, or is one of the library's functions.

    Examples:
      >>> format_code_position(len)
      'len'
    """
    name = getattr(fun, "__name__", None) or type(fun).__name__
    code = getattr(getattr(fun, "__wrapped__", fun), "__code__", None) or getattr(fun, "__code__", None)
    if code is None or code.co_filename.startswith(PACKAGE):
        return name
    return f"{name} at {code.co_filename}:{code.co_firstlineno}"


@contextlib.contextmanager
def named_scope(name: str) -> Iterator[None]:
    """Name the operations of a block in profiles and compiled programs.

    Args:
      name: the name; blocks nest.

    Returns:
      A context manager.

    Raises:
      ArgumentTypeError: the name is no string.

    Examples:
      >>> import phalanx
      >>> with phalanx.named_scope("attention"):
      ...     pass
    """
    if not isinstance(name, str):
        raise ArgumentTypeError(
            "named_scope, argument name", expected="a string", got=repr(name), fix=f"pass {str(name)!r}"
        )
    before = state.scope
    state.scope = (*before, name)
    try:
        yield
    finally:
        state.scope = before


def named_call(fun: Callable[..., Any], *, name: str | None = None) -> Callable[..., Any]:
    """Make the operations of a function carry its name (see `named_scope`).

    Args:
      fun: the function.
      name: a name to use instead of the function's.

    Returns:
      A function of the same arguments.

    Examples:
      >>> import phalanx
      >>> square = named_call(lambda x: x * x, name="square")
      >>> "square" in phalanx.jit(square).lower(2.0).as_text(debug_info=True)
      True
    """

    @api_boundary
    @functools.wraps(fun)
    def named(*args: Any, **kwargs: Any) -> Any:
        with named_scope(name or fun.__name__):
            return fun(*args, **kwargs)

    return named


def user_stacklevel() -> int:
    """The `stacklevel` with which a warning points at the user's code."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and is_internal(frame.f_code):
        frame, level = frame.f_back, level + 1
    return level
