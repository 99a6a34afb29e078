"""Looking into running programs: `debug.print`, `debug.callback` and `debug.breakpoint`.

They are host callbacks with an effect that rematerialisation may repeat and differentiation ignores, so that they show
what happens without changing it.
"""

from __future__ import annotations

import string
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx.core.effects import debug_effect, ordered_debug_effect
from phalanx.core.errors import ArgumentError, ArgumentTypeError
from phalanx.lax.callback import Caller, host_callback_p
from phalanx.tree import tree_flatten, tree_unflatten


def callback(callback: Callable, *args: Any, ordered: bool = False, partitioned: bool = False, **kwargs: Any) -> None:
    """Call a host function for its side effect while a program runs.

    Args:
      callback: takes NumPy arrays in the structure of the arguments; its result is ignored.
      args, kwargs: its arguments: arrays, or anything else, which is passed as it is.
      ordered: whether such calls happen in program order.
      partitioned: not supported; the function always sees whole arrays.

    Examples:
      >>> import phalanx
      >>> seen = []
      >>> phalanx.jit(lambda x: phalanx.debug.callback(lambda v: seen.append(float(v)), x))(1.5)
      >>> phalanx.effects_barrier()
      >>> seen
      [1.5]
    """
    if not callable(callback):
        raise ArgumentTypeError(
            "debug.callback, argument callback", expected="a function", got=repr(callback), mend="pass one"
        )
    if partitioned:
        raise ArgumentError("debug.callback, argument partitioned", expected="False", got="True", mend="leave it out")
    leaves, tree = tree_flatten((args, kwargs))
    is_array = [hasattr(x, "aval") or isinstance(x, np.ndarray | np.generic | int | float | complex) for x in leaves]
    fixed = [None if a else x for x, a in zip(leaves, is_array)]

    def flat(*xs: np.ndarray) -> list:
        given = iter(xs)
        call_args, call_kwargs = tree_unflatten(tree, [next(given) if a else f for a, f in zip(is_array, fixed)])
        callback(*call_args, **call_kwargs)
        return []

    flat.__name__ = getattr(callback, "__name__", "callback")
    arrays = [x for x, a in zip(leaves, is_array) if a]
    effect = ordered_debug_effect if ordered else debug_effect
    host_callback_p(*arrays, function=flat, results=(), effect=effect, vmap_method=None, caller=Caller())


def print(fmt: str, *args: Any, ordered: bool = False, partitioned: bool = False, **kwargs: Any) -> None:
    """Print values while a program runs.

    Args:
      fmt: a format string as for `str.format`.
      args, kwargs: what it refers to: arrays, or anything else.
      ordered: whether lines come in program order.
      partitioned: not supported; whole arrays are printed.

    Raises:
      ArgumentError: the format string and the arguments do not fit.

    Examples:
      >>> import phalanx
      >>> show = phalanx.jit(lambda x: phalanx.debug.print("x = {}", x))
      >>> show(3), phalanx.effects_barrier()
      x = 3
      (None, None)
    """
    try:
        _CheckedFormatter().format(fmt, *args, **kwargs)
    except (IndexError, KeyError, ValueError) as error:
        raise ArgumentError(
            "debug.print, argument fmt",
            expected="a format string for the arguments given",
            got=f"{fmt!r} ({error})",
            mend="write {} for each positional argument and {name} for each named one (no f-strings)",
        ) from None

    def show(*values: Any, **named: Any) -> None:
        sys.stdout.write(fmt.format(*values, **named) + "\n")

    callback(show, *args, ordered=ordered, partitioned=partitioned, **kwargs)


class _CheckedFormatter(string.Formatter):
    """Goes through a format without formatting, since the values are not there yet."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return ""

    def check_unused_args(self, used_args: Any, args: Any, kwargs: Any) -> None:
        spare = [repr(i) for i in range(len(args)) if i not in used_args] + [k for k in kwargs if k not in used_args]
        if spare:
            raise ValueError(f"unused arguments: {', '.join(spare)}")


def breakpoint(
    *, backend: str | None = None, num_frames: int | None = None, ordered: bool = False, **values: Any
) -> None:
    """Stop a running program and open Python's debugger on the host.

    Args:
      backend: only "cli" (or None).
      num_frames: not used; the debugger opens in the callback.
      ordered: whether stops happen in program order.
      values: traced values to look at; they are NumPy arrays in the debugger's variable `values`.

    Raises:
      ArgumentError: another backend is asked for.
    """
    if backend not in (None, "cli"):
        raise ArgumentError(
            "debug.breakpoint, argument backend", expected='"cli" or None', got=repr(backend), mend="leave it out"
        )

    def stop(**values: Any) -> None:
        sys.breakpointhook()

    callback(stop, ordered=ordered, **values)
