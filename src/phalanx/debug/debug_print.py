"""`debug.print` and `debug.callback`: inspect the values of a running program.

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
    ArgumentTypeError,
    FormatError,
    Tracer,
    debug_effect,
    get_aval,
    merge_lists,
    ordered_debug_effect,
    select_flagged,
    select_unflagged,
    state,
)
from phalanx.lax import valid_size
from phalanx.lax.callback import Caller, host_callback_p
from phalanx.numpy import asarray
from phalanx.sharding import NamedSharding, PartitionSpec
from phalanx.spmd.shard_map import shard_map
from phalanx.tree import tree_flatten, tree_unflatten


def callback(
    callback: Callable | None = None, *args: Any, ordered: bool = False, partitioned: bool = False, **kwargs: Any
) -> Any:
    """Call a host function for its side effect while a program runs.

    Args:
      callback: a function that receives the arguments with NumPy arrays in place of arrays; its result is ignored. If
        it is omitted, the result is a function of `callback`, `args` and `kwargs` with the given options.
      args, kwargs: the arguments of `callback`: pytrees of arrays and other values, which are passed unchanged.
      ordered: whether ordered callbacks run in program order.
      partitioned: whether each device calls the function with its shards, instead of one call with unsharded arrays.
        Over Auto axes the shards are those that XLA chooses, with padding where a dimension does not divide. Inside
        `shard_map` each device makes a call in any case.

    Raises:
      ArgumentTypeError: `callback` is not callable.

    Examples:
      >>> import phalanx
      >>> seen = []
      >>> phalanx.jit(lambda x: phalanx.debug.callback(lambda v: seen.append(float(v)), x))(1.5)
      >>> phalanx.effects_barrier()
      >>> seen
      [1.5]
    """
    if callback is None:
        _check_options_only("debug.callback", args, kwargs)
        return lambda function, *xs, **named: _callback(function, xs, named, ordered, partitioned)
    _callback(callback, args, kwargs, ordered, partitioned)
    return None


def _check_options_only(name: str, args: tuple, kwargs: dict) -> None:
    if args or kwargs:
        label = name.replace(".", "_")
        raise ArgumentTypeError(
            name,
            expected="only options in a call without a function or format",
            got=f"{len(args) + len(kwargs)} more; {label} received unexpected arguments in the two-call form",
            fix=f"pass them in the second call: {name}(ordered=True)(..., *args)",
        )


def _callback(callback: Callable, args: tuple, kwargs: dict, ordered: bool, partitioned: bool) -> None:
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
    emit = functools.partial(host_callback_p, results=(), effect=effect, vmap_method=None, caller=Caller())
    mesh = state.context.mesh
    # Inside shard_map every device makes the call anyway.
    if partitioned and not (mesh is not None and mesh.manual_axes):
        _on_each_device(emit, flat, arrays)(*arrays)
    else:
        emit(*arrays, function=flat)


def _on_each_device(emit: Callable, function: Callable, arrays: list) -> Callable:
    """The call of a host function on each device, with its shards of the arrays."""
    call: Callable = functools.partial(emit, function=function, caller=Caller(None))
    shardings = [x.aval.type_sharding if isinstance(x, Tracer) else getattr(x, "sharding", None) for x in arrays]
    meshes = [s.mesh for s in shardings if isinstance(s, NamedSharding)]
    if meshes:
        specs = tuple([s.spec if isinstance(s, NamedSharding) else PartitionSpec() for s in shardings])
        shapes = [get_aval(x).shape for x in arrays]
        if any(isinstance(s, NamedSharding) and s.padded_shape(n) != n for s, n in zip(shardings, shapes, strict=True)):
            axes = [s.axes_per_dim(len(n)) for s, n in zip(specs, shapes, strict=True)]
            call = _without_padding(emit, function, shapes, axes)
        return shard_map(
            lambda *shards: tuple(call(*shards)), mesh=meshes[0], in_specs=specs, out_specs=(), uneven="pad"
        )
    return call


def _without_padding(
    emit: Callable, function: Callable, shapes: Sequence[tuple], axes: Sequence[Sequence[tuple]]
) -> Callable:
    """The call of a host function with padded shards, which are cut on the host to the sizes that follow them."""

    def cut(*values: np.ndarray) -> list:
        pairs = zip(values[: len(shapes)], values[len(shapes) :], strict=True)
        found: list = function(*[x[tuple(map(slice, sizes))] for x, sizes in pairs])
        return found

    cut.__name__ = function.__name__

    def held(shape: tuple, split: Sequence[tuple]) -> Any:
        sizes: Any = [valid_size(over, n) if over else n for over, n in zip(split, shape, strict=True)]
        return asarray(sizes, np.int32)

    return lambda *shards: emit(*shards, *map(held, shapes, axes), function=cut)


def print(
    fmt: str | None = None,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    skip_format_check: bool = False,
    **kwargs: Any,
) -> Any:
    """Print values while a program runs.

    Args:
      fmt: a format string as for `str.format`. If it is omitted, the result is a function of `fmt`, `args` and `kwargs`
        with the given options.
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
    if fmt is None:
        _check_options_only("debug.print", args, kwargs)
        return lambda fmt, *xs, **named: _print(fmt, xs, named, ordered, partitioned, skip_format_check)
    _print(fmt, args, kwargs, ordered, partitioned, skip_format_check)
    return None


def _print(fmt: str, args: tuple, kwargs: dict, ordered: bool, partitioned: bool, skip_format_check: bool) -> None:
    try:
        if not skip_format_check:
            _CheckedFormatter().format(fmt, *args, **kwargs)
    except (IndexError, KeyError, ValueError) as error:
        raise FormatError(
            "debug.print, argument fmt",
            expected="a format string that matches the arguments",
            got=f"{fmt!r} ({error})",
            fix="write {} for each positional argument and {name} for each named one (no f-strings)",
        ) from None

    def show(*values: Any, **named: Any) -> None:
        if sys.stdout is not None:  # as under pythonw
            sys.stdout.write(fmt.format(*values, **named) + "\n")

    _callback(show, args, kwargs, ordered, partitioned)


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
