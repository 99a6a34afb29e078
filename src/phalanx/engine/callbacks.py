"""Python functions called from compiled programs.

Builds on the FFI handlers that jaxlib registers. `lax.callback` has `pure_callback`, `io_callback` and the primitive
whose lowering calls `emit_callback`. A program refers to its functions by position in the list that is passed to
`compiler.compile_module(host_callbacks=...)`; the executable keeps them alive.

An exception in a callback stops the program; `runtime_errors.unwrap_callback_error` returns it to the caller.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from jaxlib import xla_client

from phalanx.engine.error_record import PhalanxError
from phalanx.engine.mlir import hlo, i32, ir, sdy, walk_operations
from phalanx.engine.runtime_errors import keep_failure, keep_late_failure


class CallbackResultError(PhalanxError, ValueError, RuntimeError):
    """The results of a Python callback differ from their declaration."""


_INSPECTION = "InspectSharding"
calling_threads: set[int] = set()  # on which compiled programs call Python


def in_callback() -> bool:
    """Whether this thread runs a Python function that a compiled program called."""
    return threading.get_ident() in calling_threads


def host_function(
    function: Callable[..., Any], results: Sequence[Any], name: str = "callback", num_partitions: int = 1
) -> Callable[..., tuple]:
    """Wrap a Python function so that a compiled program can call it safely.

    Args:
      function: takes a NumPy array for each operand; returns a sequence with an array-like for each result.
      results: for each result an object with `shape` and `dtype`.
      name: the user's name for the function, for errors.
      num_partitions: devices that share the program. If there are several, an exception does not stop the program: the
        others would wait for this one forever. The results are NaN, or zero where there is none, and the next wait for
        any array raises the exception. Other processes learn of it before they read the results.

    Returns:
      A function for `compile_module(host_callbacks=...)`. Operands are copies, so that they may be kept; results are
      checked, because XLA would read past the end of an array that is too small.
    """

    def call(*operands: Any) -> tuple:
        was_calling = in_callback()
        calling_threads.add(threading.get_ident())
        try:
            # Copies: the memory of the operands belongs to XLA and is reused after the call.
            checked = check_results(name, function(*[np.array(operand) for operand in operands]), results)
        # Also KeyboardInterrupt and SystemExit, which the caller of the program must see.
        except BaseException as error:
            operands = ()  # The traceback keeps this frame, whose operands are views of memory that XLA reuses.
            if num_partitions == 1:
                raise keep_failure(error) from None
            keep_late_failure(error)
            checked = [_make_invalid(result) for result in results]
        finally:
            if not was_calling:
                calling_threads.discard(threading.get_ident())
        return tuple(map(_to_wide, checked))

    return call


def _to_wide(value: np.ndarray) -> np.ndarray:
    """Convert a result to the type that takes its place in the program, `_wide_type`; integers have the same bytes."""
    return value.astype(ml_dtypes.float8_e4m3fn) if value.dtype == ml_dtypes.float4_e2m1fn else value


def _make_invalid(result: Any) -> np.ndarray:
    """An array in the place of a result that a callback did not return."""
    value = np.zeros(result.shape, result.dtype)
    if value.dtype.kind in "fcV":  # "V" is bfloat16, but also int4, which has no NaN
        with contextlib.suppress(ValueError):
            value.fill(np.nan)
    return value


def check_results(name: str, given: Any, results: Sequence[Any]) -> list[np.ndarray]:
    """Convert the results of a callback to arrays and compare them with the declaration.

    Args:
      name: the user's name for the function.
      given: a sequence of array-likes, or None for no results.
      results: for each result an object with `shape` and `dtype`.

    Returns:
      The arrays, contiguous.

    Raises:
      CallbackResultError: the number of results, a shape or a dtype differs.
    """
    given = [] if given is None else list(given)
    if len(given) != len(results):
        raise CallbackResultError(
            f"results of {name}",
            expected=f"{len(results)} arrays",
            got=f"{len(given)}",
            fix=f"return {len(results)} arrays, or change result_shape_dtypes",
        )
    arrays = [np.asarray(value) for value in given]
    for position, (array, result) in enumerate(zip(arrays, results)):
        shape, dtype = tuple(result.shape), np.dtype(result.dtype)
        if array.shape != shape or array.dtype != dtype:
            raise CallbackResultError(
                f"results of {name}, result {position}",
                expected=f"{dtype}{list(shape)}",
                got=f"{array.dtype}{list(array.shape)}",
                fix=f"convert it to {dtype}{list(shape)}, or change result_shape_dtypes",
            )
    return [np.ascontiguousarray(array).reshape(array.shape) for array in arrays]


def emit_callback(
    index: int,
    operands: Sequence[ir.Value],
    result_types: Sequence[ir.Type],
    *,
    platform: str,
    has_side_effect: bool = True,
    module: Any = None,
    num_partitions: int = 1,
    partition: int | None = 0,
) -> list[ir.Value]:
    """Emit a call of a Python function at the current insertion point.

    Args:
      index: position of the wrapped function (see `host_function`) in the program's list of host callbacks.
      operands: tensors, in the function's order.
      result_types: their static tensor types.
      platform: "cpu" or "cuda".
      has_side_effect: whether the call must happen even if no result is read.
      module: the module of the call; needed if there are several partitions.
      num_partitions: devices that share the program. One of them makes the call for all, with replicated operands. Pass
        1 inside a manual computation, which each device runs by itself.
      partition: the number of the device that makes the call; None if each device makes one with its shards of the
        operands, as the partitioner divides them.

    Returns:
      The results.
    """
    kind = "python" if partition is not None or num_partitions == 1 else "partitioned_python"
    operands = [_convert(operand, _wide_type(ir.RankedTensorType(operand.type))) for operand in operands]
    wide_types = [_wide_type(result_type) for result_type in result_types]
    attributes = {
        "call_target_name": ir.StringAttr.get(f"xla_ffi_{kind}_{'cpu' if platform == 'cpu' else 'gpu'}_callback"),
        "api_version": i32(4),
        "has_side_effect": ir.BoolAttr.get(has_side_effect),
        "backend_config": ir.DictAttr.get({"index": ir.IntegerAttr.get(ir.IntegerType.get_unsigned(64), index)}),
    }
    if num_partitions > 1 and partition is not None:
        _declare_meshes(module, num_partitions, partition)
        operands = [_replicate(operand) for operand in operands]
        attributes["sdy.sharding"] = _on_one_device(partition, len(wide_types))
    # NumPy's row-major order; otherwise the compiler may choose another.
    attributes["operand_layouts"] = ir.ArrayAttr.get([_row_major(operand.type) for operand in operands])
    attributes["result_layouts"] = ir.ArrayAttr.get([_row_major(wide_type) for wide_type in wide_types])
    results = ir.Operation.create("stablehlo.custom_call", wide_types, operands, attributes).results
    if num_partitions > 1 and partition is not None:
        results = map(_replicate, results)
    return [_convert(value, result_type) for value, result_type in zip(results, result_types)]


def emit_sharding_inspection(value: ir.Value, handler: Callable[[Any], Any]) -> None:
    """Ask the partitioner to report the sharding that it chooses for a value.

    Args:
      value: a tensor of a program over several devices.
      handler: called with an `HloSharding` during compilation; it must be kept alive until then. An exception
        ends the compilation with an `XlaRuntimeError`.
    """
    attributes = {
        "call_target_name": ir.StringAttr.get(_INSPECTION),
        "api_version": i32(1),
        "has_side_effect": ir.BoolAttr.get(True),
        "backend_config": ir.StringAttr.get(xla_client.encode_inspect_sharding_callback(handler)),
    }
    # XLA ends the process for a call without results, since the partitioner reads the sharding of the first result.
    ir.Operation.create("stablehlo.custom_call", results=[hlo.TokenType.get()], operands=[value], attributes=attributes)


def redirect_sharding_inspections(module: ir.Module, handler: Callable[[int, Any], Any]) -> list[Any]:
    """Report the inspected shardings of a module from another process to a function of this one.

    Args:
      module: the module, whose calls refer to functions of the process that emitted them.
      handler: called with the number of each `emit_sharding_inspection` of the module, in order, and an `HloSharding`.

    Returns:
      Functions that must be kept alive until the module is compiled.
    """
    handlers: list[Any] = []
    with module.context:
        for op in walk_operations(module.operation):
            if op.name == "stablehlo.custom_call" and op.attributes["call_target_name"].value == _INSPECTION:
                handlers.append(functools.partial(handler, len(handlers)))
                encoded = xla_client.encode_inspect_sharding_callback(handlers[-1])
                op.attributes["backend_config"] = ir.StringAttr.get(encoded)
    return handlers


def _row_major(value_type: ir.Type) -> ir.Attribute:
    """The row-major layout of a tensor: its dimensions from the fastest to the slowest."""
    return ir.DenseIntElementsAttr.get(np.arange(len(value_type.shape))[::-1].copy(), type=ir.IndexType.get())


_ONE_DEVICE, _ALL_DEVICES = "callback_device_{}", "callback_devices"


def _declare_meshes(module: Any, num_partitions: int, partition: int) -> None:
    """Declare, once in a module, the mesh of the device that makes the calls and the mesh of all devices."""
    symbols = ir.SymbolTable(module.operation)
    one = _ONE_DEVICE.format(partition)
    with ir.InsertionPoint.at_block_begin(module.body):
        if one not in symbols:
            sdy.MeshOp(one, sdy.MeshAttr.get([], device_ids=[partition]))
        if _ALL_DEVICES not in symbols:
            sdy.MeshOp(_ALL_DEVICES, sdy.MeshAttr.get([sdy.MeshAxisAttr.get("all", num_partitions)]))


def _on_one_device(partition: int, count: int) -> ir.Attribute:
    """The sharding of a call by one device; a call without results needs one, too."""
    return sdy.TensorShardingPerValueAttr.get(
        [sdy.TensorShardingAttr.get(_ONE_DEVICE.format(partition), [])] * max(count, 1)
    )


def _replicate(value: ir.Value) -> ir.Value:
    closed = [sdy.DimensionShardingAttr.get([], is_closed=True)] * len(value.type.shape)
    return sdy.ShardingConstraintOp(value, sdy.TensorShardingAttr.get(_ALL_DEVICES, closed)).result


def _wide_type(tensor: ir.Type) -> ir.Type:
    """The type that NumPy can represent: XLA packs several elements of less than a byte into one, NumPy does not."""
    element = tensor.element_type
    if not 1 < getattr(element, "width", 8) < 8:
        return tensor
    if not isinstance(element, ir.IntegerType):  # float4_e2m1fn, whose values float8_e4m3fn represents exactly
        return ir.RankedTensorType.get(tensor.shape, ir.Float8E4M3FNType.get())
    make = ir.IntegerType.get_unsigned if element.is_unsigned else ir.IntegerType.get_signless
    return ir.RankedTensorType.get(tensor.shape, make(8))


def _convert(value: ir.Value, tensor: ir.Type) -> ir.Value:
    return value if value.type == tensor else hlo.ConvertOp(tensor, value).result
