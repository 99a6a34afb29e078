"""Functions of the former `jax.experimental.host_callback`: `id_tap`, `id_print` and `call`.

Built on the host callback primitive of `lax`. A tap is an identity function under every transformation that passes the
values to a host function. Inside `pmap` and `shard_map` each device calls the host function; in a program over a mesh
one device does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TextIO

import numpy as np

from phalanx.core import ArgumentTypeError, debug_effect, io_effect, ordered_debug_effect, ordered_io_effect
from phalanx.engine import Device, guard_namespace as _guard
from phalanx.lax.callback import Caller, Tap, host_call, host_callback_p
from phalanx.runtime.in_flight import effects_barrier
from phalanx.tree import tree_flatten, tree_map, tree_unflatten
from phalanx.typing import PyTree

CallbackException = Exception
"""The class of exceptions that `barrier_wait` raises. It re-raises the exception of the tap itself, of any class."""


def id_tap(
    tap_func: Callable,
    arg: PyTree,
    *,
    result: PyTree = None,
    tap_with_device: bool = False,
    device_index: int = 0,
    ordered: bool = True,
) -> Any:
    """Call a host function with values of a running program, which continues with the values unchanged.

    Args:
      tap_func: called as `tap_func(arg, transforms)` with NumPy arrays. `transforms` lists the transformations around
        the tap, as pairs of a name and a dict. Under `vmap` there is one call for the whole batch, with
        `("batch", {"batch_dims": ...})`, the mapped dimension of each array. Only primal values are tapped under
        differentiation.
      arg: a pytree of arrays.
      result: the return value in place of `arg`.
      tap_with_device: whether to pass the device of the values, as `tap_func(arg, transforms, device=device)`.
      device_index: index of the device that calls `tap_func` if a `jit` program runs on several devices. Inside `pmap`
        and `shard_map` all devices call it.
      ordered: whether the calls of each device happen in program order.

    Returns:
      `arg`, or `result` if it is given.

    Raises:
      ArgumentTypeError: `tap_func` is not callable.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> seen = []
      >>> tap = lambda x, transforms: seen.append((x.tolist(), transforms))
      >>> f = phalanx.jit(phalanx.vmap(lambda x: id_tap(tap, x) + 1))
      >>> f(jnp.arange(3)).tolist(), barrier_wait()
      ([1, 2, 3], None)
      >>> seen
      [([0, 1, 2], (('batch', {'batch_dims': (0,)}),))]
    """
    _check_function("id_tap, tap_func", tap_func)
    leaves, tree = tree_flatten(arg)

    def on_values(transforms: tuple, *xs: Any) -> None:
        tap_func(tree_unflatten(tree, xs), transforms)

    def on_device(transforms: tuple, device: Device, *xs: Any) -> None:
        tap_func(tree_unflatten(tree, xs), transforms, device=device)

    host_callback_p(
        *leaves,
        function=Tap(on_device if tap_with_device else on_values),
        results=(),
        # A debug effect: rematerialization may repeat a tap, and differentiation ignores it.
        effect=ordered_debug_effect if ordered else debug_effect,
        vmap_method=None,
        caller=Caller(device_index, tap_with_device),
    )
    return arg if result is None else result


def id_print(
    arg: PyTree,
    *,
    result: PyTree = None,
    tap_with_device: bool = False,
    device_index: int = 0,
    ordered: bool = True,
    output_stream: TextIO | None = None,
    threshold: int | None = None,
    **labels: Any,
) -> Any:
    """Print values of a running program, which continues with the values unchanged.

    Args:
      arg: a pytree of arrays.
      result, tap_with_device, device_index, ordered: as for `id_tap`; with `tap_with_device` the device is printed too.
      output_stream: the stream to write to; standard output if not given.
      threshold: number of elements above which an array is printed in abbreviated form.
      **labels: printed on a line before the values, as `name: value`.

    Returns:
      `arg`, or `result` if it is given.

    Examples:
      >>> import phalanx
      >>> phalanx.jit(lambda x: id_print(2 * x, what="twice"))(3.0), barrier_wait()
      what: twice
      6.0
      (Array(6., dtype=float32, weak_type=True), None)
    """

    def show(values: PyTree, transforms: tuple, device: Device | None = None) -> None:
        heads = [f"{name}: {value}" for name, value in labels.items()]
        heads += [f"device: {device.platform}:{device.id}"] if device is not None else []
        heads += [f"transforms: {list(transforms)}"] if transforms else []
        lines = [*(["  ".join(heads)] if heads else []), _format_values(values, threshold)]
        (output_stream or sys.stdout).write("\n".join(lines) + "\n")

    return id_tap(show, arg, result=result, tap_with_device=tap_with_device, device_index=device_index, ordered=ordered)


def call(
    callback_func: Callable,
    arg: PyTree,
    *,
    result_shape: PyTree = None,
    call_with_device: bool = False,
    device_index: int = 0,
    ordered: bool = True,
) -> Any:
    """Call a host function from a running program and continue with its result.

    Args:
      callback_func: called as `callback_func(arg)` with NumPy arrays; returns a pytree of arrays.
      arg: a pytree of arrays.
      result_shape: a pytree of arrays or `ShapeDtypeStruct`s with the shapes and dtypes of the result; None if the
        function returns None.
      call_with_device: whether to pass the device that makes the call, as `callback_func(arg, device=device)`.
      device_index, ordered: as for `id_tap`.

    Returns:
      The result of `callback_func`. It is not differentiable. Under `vmap` an unordered call is made for each example.

    Raises:
      ArgumentTypeError: `callback_func` is not callable.

    Examples:
      >>> import numpy as np, phalanx
      >>> like = phalanx.ShapeDtypeStruct((), np.int32)
      >>> int(phalanx.jit(lambda x: call(lambda v: v + 1, x, result_shape=like))(np.int32(2)))
      3
    """
    _check_function("call, callback_func", callback_func)

    def with_device(device: Device, values: PyTree) -> Any:
        return callback_func(values, device=device)

    return host_call(
        "host_callback.call",
        with_device if call_with_device else callback_func,
        result_shape,
        (arg,),
        {},
        # An I/O effect: the result is used, so the call must happen exactly once.
        ordered_io_effect if ordered else io_effect,
        caller=Caller(device_index, call_with_device),
    )


def barrier_wait(logging_name: str | None = None) -> None:
    """Wait for all taps and calls of the programs started so far; the former name of `effects_barrier`.

    Args:
      logging_name: accepted for compatibility and ignored.

    Raises:
      Exception: the exception of a host function.

    Examples:
      >>> barrier_wait("before the checkpoint")
    """
    effects_barrier()


def _check_function(where: str, function: object) -> None:
    if not callable(function):
        raise ArgumentTypeError(
            where, expected="a function", got=repr(function), fix=f"pass a callable for {where.split(', ')[1]}"
        )


def _format_values(values: PyTree, threshold: int | None) -> str:
    """Format a pytree of arrays as text."""
    texts = tree_map(lambda x: np.array2string(x, threshold=threshold) if np.ndim(x) else str(x), values)
    return texts if isinstance(texts, str) else str(tree_map(_Verbatim, texts))


class _Verbatim(str):
    """Text that the `repr` of a tree contains without quotes."""

    __repr__ = str.__str__


_guard(globals())
