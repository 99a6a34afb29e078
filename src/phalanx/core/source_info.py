"""Source positions: the user's line that an operation comes from.

A raw traceback is captured for each traced operation, which takes a tenth of a microsecond. It is resolved to a line
only when a jaxpr is printed or lowered, or an error is raised. Frames inside this package are never shown.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, TypeAlias

from phalanx.core.config import state
from phalanx.core.error_classes import ArgumentTypeError
from phalanx.engine import PACKAGE, api_boundary, current_traceback as current_traceback, is_internal, user_frames


class Transform(NamedTuple):
    """A transformation, as an entry of a scope: it is written around the next scope inside, as in `jvp(layer)`.

    Args:
      name: its name.
    """

    name: str


# The scopes around an operation, outermost first: names, transformations, and XLA metadata as pairs of strings.
Scope: TypeAlias = tuple[str | Transform | tuple[str, str], ...]


class ScopedTraceback(NamedTuple):
    """A traceback inside scopes. Tracing makes one for each operation in a scope; lowering reads the scopes.

    Args:
      source: the position of the operation, or a position in scopes, which are inside these.
      scope: the scopes.
      depth: the number of scopes at the front that are around the jaxpr of the operation.
    """

    source: Any
    scope: Scope
    depth: int


def split_source(source: Any) -> tuple[Any, Scope]:
    """The raw traceback of an operation, or None, and the scopes around it, outermost first."""
    scope: Scope = ()
    while type(source) is ScopedTraceback:
        entries = source.scope
        if source.depth:
            # A jaxpr is in the scopes of the place where it runs; its operations keep metadata, though.
            around = tuple([entry for entry in entries[: source.depth] if type(entry) is tuple])
            entries = around + entries[source.depth :]
        scope += entries
        source = source.source
    return source, scope


class NameStack(NamedTuple):
    """The names of the scopes around an operation, outermost first.

    Args:
      stack: the names and transformations; an empty name ends the transformation before it.

    Examples:
      >>> str(NameStack(("layer",)).extend("attention"))
      'layer/attention'
      >>> str(NameStack(("model",)).transform("jvp").extend("layer"))
      'model/jvp(layer)'
    """

    stack: Scope = ()

    def extend(self, name: str) -> NameStack:
        """The stack with one more scope inside.

        Args:
          name: its name.

        Returns:
          The stack.
        """
        return NameStack((*self.stack, name))

    def transform(self, name: str) -> NameStack:
        """The stack with a transformation inside.

        Args:
          name: its name.

        Returns:
          The stack.
        """
        return NameStack((*self.stack, Transform(name)))

    def __len__(self) -> int:
        return len(self.stack)

    def __str__(self) -> str:
        names: list[str] = []
        for entry in reversed(self.stack):
            if type(entry) is Transform:
                inner = names.pop() if names else ""
                names.append(f"{entry.name}({inner})")
            elif isinstance(entry, str):
                names.append(entry)
        return "/".join([name for name in reversed(names) if name])


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


def find_user_frame(traceback: Any) -> Any | None:
    """The innermost frame of the user's code, or None."""
    return next(iter(user_frames(split_source(traceback)[0])), None)


def format_source(traceback: Any) -> str:
    """The position of an operation as `file:line:column (function)`; without a column of 0."""
    frame = find_user_frame(traceback)
    if frame is None:
        return "unknown"
    column = f":{frame.column}" if frame.column else ""
    return f"{frame.file_name}:{frame.line_num}{column} ({frame.function_name})"


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


class enter_transform:
    """A block whose operations are results of a transformation; eagerly there is nobody to tell.

    Args:
      name: the name of the transformation.
    """

    __slots__ = ("name", "outer")

    def __init__(self, name: str):
        self.name = name

    def __enter__(self) -> None:
        self.outer = state.scope
        if state.trace is not None:
            state.scope = (*self.outer, Transform(self.name))

    def __exit__(self, *exc_info: object) -> None:
        state.scope = self.outer


def named_scope(name: str) -> AbstractContextManager[None]:
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
    return _scope(name)


@contextlib.contextmanager
def _scope(name: str) -> Iterator[None]:
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
