"""`debug.print`, `debug.callback` and `debug.breakpoint`: inspect the values of a running program.

They bind the host callback primitive with a debug effect. Rematerialization may repeat such a callback and
differentiation ignores it, so that debugging does not change the program.
"""

from __future__ import annotations

import functools
import string
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from phalanx.core import (
    ArgumentError,
    ArgumentTypeError,
    Tracer,
    debug_effect,
    get_aval,
    merge_lists,
    ordered_debug_effect,
    select_flagged,
    select_unflagged,
    state,
    user_stacklevel,
)
from phalanx.lax.callback import Caller, host_callback_p
from phalanx.runtime.array import Array
from phalanx.sharding import NamedSharding, PartitionSpec
from phalanx.spmd.shard_map import shard_map
from phalanx.tree import tree_flatten, tree_leaves, tree_unflatten


def callback(callback: Callable, *args: Any, ordered: bool = False, partitioned: bool = False, **kwargs: Any) -> None:
    """Call a host function for its side effect while a program runs.

    Args:
      callback: a function that receives the arguments with NumPy arrays in place of arrays; its result is ignored.
      args, kwargs: the arguments of `callback`: pytrees of arrays and other values, which are passed unchanged.
      ordered: whether ordered callbacks run in program order.
      partitioned: whether each device calls the function with its shards, instead of one call with unsharded arrays.
        Inside `jit` this needs arrays with a sharding in their types, over Explicit axes. Inside `shard_map` each
        device makes a call in any case.

    Raises:
      ArgumentTypeError: `callback` is not callable.
      ArgumentError: `partitioned` is set and the shardings of the arrays are unknown.

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
            "debug.callback, argument callback",
            expected="a function",
            got=repr(callback),
            fix="pass a function of NumPy arrays",
        )
    leaves, tree = tree_flatten((args, kwargs))
    # Arguments that are not arrays, such as strings, bypass the program and are captured by the host function.
    is_array = [hasattr(x, "aval") or isinstance(x, np.ndarray | np.generic | int | float | complex) for x in leaves]
    arrays, fixed = select_flagged(leaves, is_array), select_unflagged(leaves, is_array)

    def flat(*xs: np.ndarray) -> list:
        call_args, call_kwargs = tree_unflatten(tree, merge_lists(is_array, xs, fixed))
        callback(*call_args, **call_kwargs)
        return []

    flat.__name__ = getattr(callback, "__name__", "callback")
    effect = ordered_debug_effect if ordered else debug_effect
    call: Callable = functools.partial(
        host_callback_p, function=flat, results=(), effect=effect, vmap_method=None, caller=Caller()
    )
    mesh = state.context.mesh
    # Inside shard_map every device makes the call anyway.
    if partitioned and not (mesh is not None and mesh.manual_axes):
        call = _on_each_device(call, arrays)
    call(*arrays)


def _on_each_device(call: Callable, arrays: list) -> Callable:
    """The call, made on each device with its shards of the arrays."""
    shardings = [x.aval.sharding if isinstance(x, Tracer) else getattr(x, "sharding", None) for x in arrays]
    meshes = [s.mesh for s in shardings if isinstance(s, NamedSharding)]
    if meshes:
        specs = tuple([s.spec if isinstance(s, NamedSharding) else PartitionSpec() for s in shardings])
        return shard_map(lambda *shards: tuple(call(*shards)), mesh=meshes[0], in_specs=specs, out_specs=())
    if any(isinstance(x, Tracer) for x in arrays):
        raise ArgumentError(
            "debug.callback, argument partitioned",
            expected="arrays with shardings in their types",
            got=", ".join(get_aval(x).str_short() for x in arrays),
            fix="use a mesh with Explicit axes, or call debug.callback inside shard_map",
        )
    return call


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
      args, kwargs: the values to format: arrays and other values.
      ordered: whether ordered prints appear in program order.
      partitioned: whether each device prints its shards; see `callback`.
      skip_format_check: whether to check `fmt` when printing instead of when tracing.

    Raises:
      ArgumentError: the arguments do not match the format string.

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
            expected="a format string that matches the arguments",
            got=f"{fmt!r} ({error})",
            fix="write {} for each positional argument and {name} for each named one (no f-strings)",
        ) from None

    def show(*values: Any, **named: Any) -> None:
        sys.stdout.write(fmt.format(*values, **named) + "\n")

    callback(show, *args, ordered=ordered, partitioned=partitioned, **kwargs)


class _CheckedFormatter(string.Formatter):
    """Checks that a format string matches its arguments without formatting the values, which are tracers."""

    def format_field(self, value: object, format_spec: str) -> str:
        # A format specification cannot be applied to a tracer, so none is.
        return ""

    def check_unused_args(
        self, used_args: Collection[int | str], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        spare = [repr(i) for i in range(len(args)) if i not in used_args] + [k for k in kwargs if k not in used_args]
        if spare:
            raise ValueError(f"unused arguments: {', '.join(spare)}")


def breakpoint(
    *, backend: str | None = None, num_frames: int | None = None, ordered: bool = False, **values: Any
) -> None:
    """Stop a running program and open Python's debugger on the host.

    The debugger shows the line of the call and the local variables of the calling function, with concrete NumPy arrays
    in place of tracers.

    Args:
      backend: "cli" or None: the debugger of `sys.breakpointhook`.
      num_frames: 1 or None: only the frame of the caller is available.
      ordered: whether ordered breakpoints are reached in program order.
      values: additional values to show in the debugger, by name.

    Raises:
      ArgumentError: another backend or number of frames is requested.

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
                fix=f"leave {name} out, or pass {name}={known[1]!r}",
            )
    frame = sys._getframe(user_stacklevel() - 1)
    line, scope = frame.f_lineno, {**frame.f_globals, **frame.f_locals}
    seen = {**frame.f_locals, **values}
    leaves = {name: tree_leaves(x) for name, x in seen.items()}
    traced = {name: seen[name] for name, xs in leaves.items() if xs and all(isinstance(x, Array) for x in xs)}
    # Compiled with the file name and line of the caller, so that the debugger shows the caller's source.
    stop = compile("\n" * (line - 1) + "__stop__()\npass", frame.f_code.co_filename, "exec")

    def show(arrays: dict) -> None:
        exec(stop, {**scope, **values, **arrays, "__stop__": sys.breakpointhook})

    callback(show, traced, ordered=ordered)
