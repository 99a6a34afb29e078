"""Source positions and name stacks of operations, for libraries that trace or rewrite programs.

A name stack is the tuple of names of the `named_scope`s around an operation; the position is a raw traceback.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from phalanx.core import NameStack, SourceInfo, current_traceback, format_source, named_scope, state
from phalanx.engine.traceback_filtering import exclude_file


def new_name_stack(name: str = "") -> NameStack:
    """A name stack of one scope, or of none.

    Args:
      name: the name of the scope.

    Returns:
      The stack.
    """
    return NameStack((name,) if name else ())


def current_name_stack() -> NameStack:
    """The scopes around the caller.

    Returns:
      The stack.

    Examples:
      >>> import phalanx
      >>> with phalanx.named_scope("layer"):
      ...     str(current_name_stack())
      'layer'
    """
    return NameStack(state.scope)


def current() -> SourceInfo:
    """The position of the caller, and the scopes around it.

    Returns:
      The record.
    """
    return SourceInfo(current_traceback(), current_name_stack())


def new_source_info() -> SourceInfo:
    """A record without a position and scopes.

    Returns:
      The record.
    """
    return SourceInfo(None, NameStack())


@contextlib.contextmanager
def set_name_stack(name_stack: NameStack) -> Iterator[None]:
    """Put the operations of a block into these scopes instead of the current ones.

    Args:
      name_stack: the scopes.

    Returns:
      A context manager.
    """
    before, state.scope = state.scope, name_stack.stack
    try:
        yield
    finally:
        state.scope = before


def reset_name_stack() -> contextlib.AbstractContextManager[None]:
    """Put the operations of a block into no scope.

    Returns:
      A context manager.
    """
    return set_name_stack(NameStack())


@contextlib.contextmanager
def extend_name_stack(name: str) -> Iterator[NameStack]:
    """Put the operations of a block into one more scope.

    Args:
      name: its name.

    Returns:
      A context manager, which gives the name stack inside.

    Examples:
      >>> with extend_name_stack("layer") as stack:
      ...     print(stack)
      layer
    """
    with named_scope(name):
        yield current_name_stack()


@contextlib.contextmanager
def transform_name_stack(name: str) -> Iterator[NameStack]:
    """Mark the operations of a block as results of a transformation.

    Args:
      name: its name.

    Returns:
      A context manager, which gives the name stack inside.

    Examples:
      >>> with transform_name_stack("jvp"), extend_name_stack("layer") as stack:
      ...     print(stack)
      jvp(layer)
    """
    with set_name_stack(current_name_stack().transform(name)):
        yield current_name_stack()


@contextlib.contextmanager
def user_context(traceback: Any, *, name_stack: NameStack | None = None) -> Iterator[None]:
    """Give the operations of a block the position of another one, for interpreters of jaxprs.

    Args:
      traceback: the raw traceback, such as `eqn.source_info.traceback`; None changes nothing.
      name_stack: the scopes; by default the current ones.

    Returns:
      A context manager.
    """
    before, state.source = state.source, state.source if traceback is None else traceback
    try:
        with contextlib.nullcontext() if name_stack is None else set_name_stack(name_stack):
            yield
    finally:
        state.source = before


def summarize(source_info: SourceInfo, num_frames: int = 1) -> str:
    """The user's line of an operation, as `file:line (function)`.

    Args:
      source_info: the record.
      num_frames: accepted as in JAX; the innermost frame is shown.

    Returns:
      The text.
    """
    return format_source(source_info.traceback)


def register_exclusion(path: str) -> None:
    """Leave the frames of a file out of tracebacks, source lines and compiled programs, as frames of Phalanx are.

    Args:
      path: the path of the file, or of a folder.
    """
    exclude_file(path)
