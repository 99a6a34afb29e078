"""Source positions: which line of the user's wrote an operation.

A raw traceback is captured for each traced operation, since it costs a tenth of a microsecond; it is looked at only
when a program is printed, lowered or complained about. Frames inside this package are never the user's.
"""

from __future__ import annotations

import os
from typing import Any

from phalanx.engine.runtime import Traceback

current_traceback = Traceback.get_traceback

_package = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def is_user_file(path: str) -> bool:
    """Whether a frame in this file belongs to the user."""
    return not path.startswith(_package) and not path.startswith("<frozen")


def user_frame(traceback: Any) -> Any | None:
    """The innermost frame of the user's code, or None."""
    if traceback is None:
        return None
    return next((f for f in traceback.frames if is_user_file(f.file_name)), None)


def summary(traceback: Any) -> str:
    """Where an operation was written, as `file:line (function)`."""
    frame = user_frame(traceback)
    if frame is None:
        return "unknown"
    return f"{frame.file_name}:{frame.line_num} ({frame.function_name})"


def code_position(fun: Any) -> str:
    """Where a function was defined, as `name at file:line`."""
    name = getattr(fun, "__name__", None) or type(fun).__name__
    code = getattr(fun, "__code__", None) or getattr(getattr(fun, "__wrapped__", None), "__code__", None)
    return f"{name} at {code.co_filename}:{code.co_firstlineno}" if code is not None else name
