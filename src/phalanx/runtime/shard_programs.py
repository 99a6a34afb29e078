"""Programs that a device runs on its shards, with which custom calls answer XLA's partitioner.

Values that differ among devices come from tables with an entry for each partition. Called by `reshard_lowering` and by
`phalanx.partitioner.move_lowering`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from phalanx.core import ShapedArray
from phalanx.engine import dense_constant, func, hlo, i64, ir, mlir


def build_shard_program(operands: Sequence[ShapedArray], result: ShapedArray, body: Callable[..., Any]) -> str:
    """The text of the module that computes a device's shard of a result from its shards of the operands.

    Args:
      operands, result: the types of the shards.
      body: emits the result from the operands.
    """
    with mlir.make_context(), ir.Location.unknown():
        module = ir.Module.create()
        types = [ir.RankedTensorType.get(a.shape, mlir.dtype_to_ir(a.dtype)) for a in (*operands, result)]
        with ir.InsertionPoint(module.body):
            function = func.FuncOp("main", ir.FunctionType.get(types[:-1], types[-1:]))
        block = function.add_entry_block()
        with ir.InsertionPoint(block):
            func.ReturnOp([body(*block.arguments)])
        # Without locations in the text, XLA would report lines of this module as lines of the user's program.
        return str(module.operation.get_asm(enable_debug_info=True))


def partition_number() -> Any:
    """The number of the device's partition."""
    return hlo.convert(ir.RankedTensorType.get([], ir.IntegerType.get_signless(32)), hlo.partition_id())


def table_entry(table: np.ndarray, number: ir.Value) -> Any:
    """The entry of a table at the number of the device's partition."""
    if not table.any():  # Constant 0 on every device: no look-up.
        return constant_index(0)
    return reshape(hlo.dynamic_slice(hlo.constant(dense_constant(table.astype(np.int32))), [number], [1]), [])


def select_first(counts: Mapping[int, ir.Value], x: ir.Value, y: ir.Value) -> Any:
    """The elements of `x` whose indices are below counts, by dimension, and the others of `y`."""
    types = ir.RankedTensorType.get(shape_of(x), ir.IntegerType.get_signless(32))
    below, kind = hlo.ComparisonDirectionAttr.get("LT"), hlo.ComparisonTypeAttr.get("SIGNED")
    masks = [
        hlo.compare(hlo.iota(types, i64(d)), hlo.broadcast_in_dim(types, count, []), below, compare_type=kind)
        for d, count in counts.items()
    ]
    return hlo.select(functools.reduce(hlo.and_, masks), x, y)


def emit_collective(name: str, x: ir.Value, shape: Sequence[int], attributes: dict) -> Any:
    """Emit a collective of one operand, with a result of another shape."""
    attributes["channel_handle"] = hlo.ChannelHandle.get(1, 1)  # XLA renumbers channels
    return ir.Operation.create(f"stablehlo.{name}", [type_like(x, shape)], [x], attributes).results[0]


def shape_of(x: ir.Value) -> list[int]:
    """The shape of a value."""
    return list(ir.RankedTensorType(x.type).shape)


def aval_of(x: ir.Value) -> ShapedArray:
    """The physical type of an IR value of static shape."""
    return ShapedArray(tuple(shape_of(x)), mlir.ir_to_dtype(ir.RankedTensorType(x.type).element_type))


def type_like(x: ir.Value, shape: Sequence[int]) -> Any:
    """The type of arrays of another shape with the elements of a value."""
    return ir.RankedTensorType.get(shape, ir.RankedTensorType(x.type).element_type)


def reshape(x: ir.Value, shape: Sequence[int]) -> Any:
    """Reshape a value."""
    return hlo.reshape(type_like(x, shape), x)


def constant_index(n: int) -> Any:
    """A scalar constant of 32 bits."""
    return hlo.constant(dense_constant(np.array(n, np.int32)))
