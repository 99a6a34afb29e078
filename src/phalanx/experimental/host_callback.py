"""Host taps: `id_tap`, `id_print` and `call`, with which programs of 2020 to 2023 look at values while they run.

Builds on the primitive of `lax.callback`. A tap sees what the program computes and leaves it as it is, under every
transformation; each device of a `pmap` or `shard_map` makes taps of its own, and a program over a mesh makes one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx.core.effects import debug_effect, io_effect, ordered_debug_effect, ordered_io_effect
from phalanx.core.errors import ArgumentTypeError
from phalanx.engine.frames import guard as _guard
from phalanx.lax.callback import Caller, Tap, host_call, host_callback_p
from phalanx.runtime.runs import effects_barrier
from phalanx.tree import tree_flatten, tree_map, tree_unflatten

CallbackException = Exception
"""What `barrier_wait` may raise: here the very exception of the tap, of whatever class it is."""


def id_tap(
    tap_func: Callable,
    arg: Any,
    *,
    result: Any = None,
    tap_with_device: bool = False,
    device_index: int = 0,
    ordered: bool = True,
) -> Any:
    """Call a host function with values of a running program, which goes on with them unchanged.

    Args:
      tap_func: called as `tap_func(arg, transforms)`, with NumPy arrays. `transforms` tells what was done to the
        function around the tap, as pairs of a name and details: under `vmap` there is one call for the whole batch,
        with `("batch", {"batch_dims": ...})`, the mapped dimension of each array. Derivatives tap primal values only.
      arg: a pytree of arrays.
      result: what to give back in place of `arg`.
      tap_with_device: pass the device that the values are on, as `tap_func(arg, transforms, device=device)`.
      device_index: which device taps in a program that several share by `jit`; inside `pmap` and `shard_map` all do.
      ordered: whether taps happen in program order on each device.

    Returns:
      `arg`, or `result` if that is given.

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

    def on_device(transforms: tuple, device: Any, *xs: Any) -> None:
        tap_func(tree_unflatten(tree, xs), transforms, device=device)

    host_callback_p(
        *leaves,
        function=Tap(on_device if tap_with_device else on_values),
        results=(),
        effect=ordered_debug_effect if ordered else debug_effect,
        vmap_method=None,
        caller=Caller(device_index, tap_with_device),
    )
    return arg if result is None else result


def id_print(
    arg: Any,
    *,
    result: Any = None,
    tap_with_device: bool = False,
    device_index: int = 0,
    ordered: bool = True,
    output_stream: Any = None,
    threshold: int | None = None,
    **labels: Any,
) -> Any:
    """Print values of a running program, which goes on with them unchanged.

    Args:
      arg: a pytree of arrays.
      result, tap_with_device, device_index, ordered: as for `id_tap`; with `tap_with_device` the device is printed too.
      output_stream: where to write; standard output if not given.
      threshold: number of elements from which an array is printed in short.
      **labels: printed on a line before the values, as `name: value`.

    Returns:
      `arg`, or `result` if that is given.

    Examples:
      >>> import phalanx
      >>> phalanx.jit(lambda x: id_print(2 * x, what="twice"))(3.0), barrier_wait()
      what: twice
      6.0
      (Array(6., dtype=float32, weak_type=True), None)
    """

    def show(values: Any, transforms: tuple, device: Any = None) -> None:
        heads = [f"{name}: {value}" for name, value in labels.items()]
        heads += [f"device: {device.platform}:{device.id}"] if device is not None else []
        heads += [f"transforms: {list(transforms)}"] if transforms else []
        text = _printed(values, threshold)
        head = ["  ".join(heads)] if heads else []
        (output_stream or sys.stdout).write("\n".join([*head, text]) + "\n")

    return id_tap(show, arg, result=result, tap_with_device=tap_with_device, device_index=device_index, ordered=ordered)


def call(
    callback_func: Callable,
    arg: Any,
    *,
    result_shape: Any = None,
    call_with_device: bool = False,
    device_index: int = 0,
    ordered: bool = True,
) -> Any:
    """Call a host function from a running program, which goes on with what it gives.

    Args:
      callback_func: called as `callback_func(arg)`, with NumPy arrays; gives arrays.
      arg: a pytree of arrays.
      result_shape: a pytree of arrays or `ShapeDtypeStruct`s that says what it gives; None for nothing.
      call_with_device: pass the device that makes the call, as `callback_func(arg, device=device)`.
      device_index, ordered: as for `id_tap`.

    Returns:
      What the function gives. It has no derivative; under `vmap` an unordered one is called for each example.

    Raises:
      ArgumentTypeError: `callback_func` is not callable.

    Examples:
      >>> import numpy as np, phalanx
      >>> like = phalanx.ShapeDtypeStruct((), np.int32)
      >>> int(phalanx.jit(lambda x: call(lambda v: v + 1, x, result_shape=like))(np.int32(2)))
      3
    """
    _check_function("call, callback_func", callback_func)

    def with_device(device: Any, values: Any) -> Any:
        return callback_func(values, device=device)

    effect = ordered_io_effect if ordered else io_effect
    caller = Caller(device_index, call_with_device)
    function = with_device if call_with_device else callback_func
    return host_call("host_callback.call", function, result_shape, (arg,), {}, effect, caller=caller)


def barrier_wait(logging_name: str | None = None) -> None:
    """Wait until all taps and calls of programs started so far have happened; `effects_barrier` under its older name.

    Args:
      logging_name: accepted for old programs' sake.

    Raises:
      Whatever one of them raised.

    Examples:
      >>> barrier_wait("before the checkpoint")
    """
    effects_barrier()


def _check_function(where: str, function: Any) -> None:
    if not callable(function):
        raise ArgumentTypeError(where, expected="a function", got=repr(function), mend="pass one")


def _printed(values: Any, threshold: int | None) -> str:
    """A pytree of arrays as text."""
    texts = tree_map(lambda x: np.array2string(x, threshold=threshold) if np.ndim(x) else str(x), values)
    return texts if isinstance(texts, str) else str(tree_map(_Verbatim, texts))


class _Verbatim:
    """Text that prints as it is inside a tree."""

    __slots__ = ("text",)

    def __init__(self, text: str):
        self.text = text

    def __repr__(self) -> str:
        return self.text


_guard(globals())
