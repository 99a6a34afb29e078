"""`debug.breakpoint`: stop a running program in Python's debugger, with the stack that the program was traced in.

While the function is traced, the frames of the caller and of the functions around it are recorded: file, line and
variables. The traced ones among the variables are operands of a callback. When it runs, it builds a stack of the same
files and lines, in which the debugger's commands `up` and `down` move.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

from phalanx.core import ArgumentError, Tracer, user_stacklevel
from phalanx.custom_rules import custom_jvp
from phalanx.debug.debug_print import callback
from phalanx.engine.traceback_filtering import is_internal
from phalanx.lax.callback import pure_callback
from phalanx.runtime.array import Array
from phalanx.tree import tree_flatten, tree_structure, tree_unflatten
from phalanx.tree.operations import find_endless_container
from phalanx.typing import PyTree

_DEEPEST = 100  # containers within each other; jaxlib's limit is what is left of Python's recursion


class _RecordedFrame(NamedTuple):
    """A frame of the stack.

    Args:
      filename, name, line: its file, function and current line.
      scope: the names that are visible there.
      variables: for each local variable with arrays in it, its leaves and their structure.
    """

    filename: str
    name: str
    line: int
    scope: dict[str, Any]
    variables: dict[str, tuple[list, Any]]

    @classmethod
    def of(cls, frame: FrameType, values: dict[str, Any]) -> _RecordedFrame:
        """Record a frame, with additional values."""
        seen = {**frame.f_locals, **values}
        variables = {name: _flatten(x) for name, x in seen.items()}
        code = frame.f_code
        return cls(
            code.co_filename,
            code.co_name,
            frame.f_lineno,
            {**frame.f_globals, **seen},
            {name: found for name, found in variables.items() if any(isinstance(x, Array) for x in found[0])},
        )

    def prepare(self, call: Callable[[], Any], known: dict[int, np.ndarray]) -> tuple[CodeType, dict[str, Any]]:
        """Code that makes a call from this frame, and its names, with NumPy arrays in place of the arrays."""

        def on_host(x: Any) -> Any:
            if id(x) in known:
                return known[id(x)]
            return np.asarray(x) if isinstance(x, Array) and not isinstance(x, Tracer) else x

        arrays = {name: tree_unflatten(tree, list(map(on_host, xs))) for name, (xs, tree) in self.variables.items()}
        # Compiled with the file name and line of the caller, so that the debugger shows the caller's source.
        code = compile("\n" * (self.line - 1) + "__next__()\npass", self.filename, "exec")
        return code.replace(co_name=self.name), {**self.scope, **arrays, "__next__": call}


def _flatten(x: Any) -> tuple[list, Any]:
    """The leaves and the structure of a variable.

    A container that contains itself, or is nested too deeply, is one leaf, as are iterators, and a dict whose keys have
    no order.
    """
    if find_endless_container(x, _DEEPEST) is not None:
        return [x], tree_structure(0)
    try:
        return tree_flatten(x, is_leaf=lambda v: isinstance(v, Iterator))
    except (TypeError, ValueError):
        return [x], tree_structure(0)


def _stack(frame: FrameType | None, filter_frames: bool) -> Iterator[FrameType]:
    """A frame and those around it, without frames of the library if they are filtered."""
    while frame is not None:
        if not (filter_frames and is_internal(frame.f_code)):
            yield frame
        frame = frame.f_back


def breakpoint(
    *,
    backend: str | None = None,
    filter_frames: bool = True,
    num_frames: int | None = None,
    ordered: bool = False,
    token: PyTree = None,
    **values: Any,
) -> Any:
    """Stop a running program and open Python's debugger on the host.

    The debugger shows the line of the call and the variables there, with concrete NumPy arrays in place of tracers. Its
    command `up` moves to the functions around the call.

    Args:
      backend: "cli" or None: the debugger of `sys.breakpointhook`.
      filter_frames: whether to leave out the frames of the library.
      num_frames: the number of frames to show; all of them by default.
      ordered: whether ordered breakpoints are reached in program order.
      token: an array, or a pytree of arrays, before whose use the program stops.
      values: additional values to show in the debugger, by name.

    Returns:
      `token`, which the program must use for the breakpoint to be reached; None if there is none.

    Raises:
      ArgumentError: another backend is requested, or `ordered` together with `token`.

    Examples:
      >>> import builtins, sys
      >>> outer, sys.breakpointhook = sys.breakpointhook, lambda: builtins.print("stopped")
      >>> breakpoint()
      stopped
      >>> sys.breakpointhook = outer
    """
    if backend not in (None, "cli"):
        raise ArgumentError(
            "debug.breakpoint, argument backend",
            expected="None or 'cli'",
            got=repr(backend),
            fix="leave backend out, or pass backend='cli'",
        )
    if ordered and token is not None:
        raise ArgumentError(
            "debug.breakpoint, argument token",
            expected="None, since ordered=True already determines when the program stops",
            got="a token",
            fix="pass either ordered or token",
        )
    caller = sys._getframe(user_stacklevel() - 1)
    around = itertools.islice(_stack(caller, filter_frames), num_frames)
    frames = [_RecordedFrame.of(f, values if i == 0 else {}) for i, f in enumerate(around)]
    leaves = (x for frame in frames for xs, _ in frame.variables.values() for x in xs)
    # A frame may hold tracers of transformations that have ended, whose values are not known.
    traced = {id(x): x for x in leaves if isinstance(x, Tracer) and x._trace.alive}

    def stop(*arrays: np.ndarray) -> None:
        known = dict(zip(traced, arrays, strict=True))
        # `exec` and `partial` have no frames of their own, so that the recorded frames call each other directly.
        call = sys.breakpointhook
        for frame in frames:
            call = functools.partial(exec, *frame.prepare(call, known))
        call()

    if token is None:
        callback(stop, *traced.values(), ordered=ordered)
        return None
    return _pass_through(stop, token, list(traced.values()))


def _pass_through(stop: Callable[..., None], token: PyTree, traced: list) -> PyTree:
    """The token, after a call of a host function."""

    def on_host(token: PyTree, traced: list) -> PyTree:
        stop(*traced)
        return token

    @custom_jvp
    def call(token: PyTree, traced: list) -> PyTree:
        return pure_callback(on_host, token, token, traced, vmap_method="sequential")

    call.defjvp(lambda primals, tangents: (call(*primals), tangents[0]))
    return call(token, traced)
