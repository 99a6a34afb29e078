"""Looking into running programs: `debug.print`, `debug.callback` and `debug.breakpoint`.

They are host callbacks with an effect that rematerialisation may repeat and differentiation ignores, so that they show
what happens without changing it.
"""

from __future__ import annotations

import functools
import string
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx.core.aval import aval_of
from phalanx.core.config import state
from phalanx.core.effects import debug_effect, ordered_debug_effect
from phalanx.core.errors import ArgumentError, ArgumentTypeError
from phalanx.core.source import user_level
from phalanx.core.trace import Tracer
from phalanx.lax.callback import Caller, host_callback_p
from phalanx.runtime.array import Array
from phalanx.sharding import NamedSharding, PartitionSpec
from phalanx.spmd.shard_map import shard_map
from phalanx.tree import tree_flatten, tree_leaves, tree_unflatten


def callback(callback: Callable, *args: Any, ordered: bool = False, partitioned: bool = False, **kwargs: Any) -> None:
    """Call a host function for its side effect while a program runs.

    Args:
      callback: takes NumPy arrays in the structure of the arguments; its result is ignored.
      args, kwargs: its arguments: arrays, or anything else, which is passed as it is.
      ordered: whether such calls happen in program order.
      partitioned: each device calls with its pieces, in place of one with whole arrays. Inside `jit` the types must
        tell how the arrays lie, as over Explicit axes; inside `shard_map` it is so anyway.

    Raises:
      ArgumentTypeError: `callback` is no function.
      ArgumentError: `partitioned`, where nothing tells how the arrays lie.

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
    call = functools.partial(
        host_callback_p, function=flat, results=(), effect=effect, vmap_method=None, caller=Caller()
    )
    if partitioned:
        _on_each_device(call, arrays)
    else:
        call(*arrays)


def _on_each_device(call: Callable, arrays: list) -> None:
    """Make a call on each device with its pieces of arrays."""
    mesh = state.context.mesh
    if mesh is not None and mesh.manual_axes:
        call(*arrays)
        return
    lying = [x.aval.sharding if isinstance(x, Tracer) else getattr(x, "sharding", None) for x in arrays]
    named = [s for s in lying if isinstance(s, NamedSharding)]
    if named:
        specs = tuple([s.spec if isinstance(s, NamedSharding) else PartitionSpec() for s in lying])
        shard_map(lambda *pieces: tuple(call(*pieces)), mesh=named[0].mesh, in_specs=specs, out_specs=())(*arrays)
    elif any(isinstance(x, Tracer) for x in arrays):
        raise ArgumentError(
            "debug.callback, argument partitioned",
            expected="arrays whose types tell how they lie",
            got=", ".join(aval_of(x).str_short() for x in arrays),
            mend="use a mesh with Explicit axes, or make the call inside shard_map",
        )
    else:
        call(*arrays)


def print(
    fmt: str,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    skip_format_check: bool = False,
    **kwargs: Any,
) -> None:
    """Print values while a program runs.

    Args:
      fmt: a format string as for `str.format`.
      args, kwargs: what it refers to: arrays, or anything else.
      ordered: whether lines come in program order.
      partitioned: each device prints its pieces, as in `callback`.
      skip_format_check: leave the check of `fmt` to the moment of printing.

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
        if not skip_format_check:
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
    """Stop a running program and open Python's debugger on the host, where the function called this.

    The debugger sees the local variables of that function, traced ones as the NumPy arrays that they are this time.

    Args:
      backend: only "cli" (or None), which is `sys.breakpointhook`.
      num_frames: only None or 1: the frame of the caller.
      ordered: whether stops happen in program order.
      values: more values to look at, by name.

    Raises:
      ArgumentError: another backend, or more frames, are asked for.

    Examples:
      >>> import builtins, sys
      >>> outer, sys.breakpointhook = sys.breakpointhook, lambda: builtins.print("stopped")
      >>> breakpoint()
      stopped
      >>> sys.breakpointhook = outer
    """
    for name, value, known in (("backend", backend, (None, "cli")), ("num_frames", num_frames, (None, 1))):
        if value not in known:
            raise ArgumentError(
                f"debug.breakpoint, argument {name}",
                expected=" or ".join(map(repr, known)),
                got=repr(value),
                mend="leave it out",
            )
    frame = sys._getframe(user_level() - 1)
    line, scope = frame.f_lineno, {**frame.f_globals, **frame.f_locals}
    seen = {**frame.f_locals, **values}
    leaves = {name: tree_leaves(x) for name, x in seen.items()}
    traced = {name: seen[name] for name, xs in leaves.items() if xs and all(isinstance(x, Array) for x in xs)}
    # Code of one statement, on the line of the call in the caller's file, so that the debugger shows that place.
    stop = compile("\n" * (line - 1) + "__stop__()\npass", frame.f_code.co_filename, "exec")

    def show(arrays: dict) -> None:
        exec(stop, {**scope, **values, **arrays, "__stop__": sys.breakpointhook})

    callback(show, traced, ordered=ordered)
