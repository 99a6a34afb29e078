"""Builders of StableHLO operations, as methods that `lower` rules call on their context.

They create operations through MLIR's generic constructor, which takes half the time of the generated classes, and
choose the dynamic form of an operation where a shape is symbolic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import Eqn, ShapedArray, dtypes, host_scalar, physical_aval
from phalanx.engine import custom_call_targets, hlo, i32, i64, ir, mlir
from phalanx.runtime import dynamic_shapes
from phalanx.runtime.module_context import ModuleContext, PlatformRequested
from phalanx.symbolic import is_constant_shape


class OperationBuilder:
    """Emits operations at the current insertion point, on behalf of one equation after another.

    Args:
      module: the state of the module.
    """

    __slots__ = ("constants", "eqn", "leading", "module", "type")

    eqn: Eqn

    def __init__(self, module: ModuleContext):
        self.module = module
        self.leading: dict[str, Any] = {}  # the scalars that the function takes first, by name
        self.constants: dict[Any, Any] = {}
        self.type = module.type  # the tensor type of an abstract value

    @property
    def platform(self) -> str:
        """The platform to emit for; where there are several, the equation is emitted once for each."""
        if len(self.module.platforms) > 1:
            raise PlatformRequested
        return self.module.platform

    @property
    def avals_in(self) -> list[ShapedArray]:
        """The types of the operands."""
        return [a.aval for a in self.eqn.invars]

    @property
    def avals_out(self) -> list[ShapedArray]:
        """The types of the results."""
        return [v.aval for v in self.eqn.outvars]

    @property
    def aval_out(self) -> ShapedArray:
        """The type of the only result."""
        return self.eqn.outvars[0].aval

    def constant(self, value: Any, aval: ShapedArray | None = None) -> Any:
        """Emit a constant, once in each block; a scalar with a shaped `aval` becomes a splat."""
        if aval is None:
            array = np.asarray(value)
            aval = ShapedArray(array.shape, dtypes.canonicalize_dtype(array.dtype))
        key = (aval, _constant_key(value))
        found = self.constants.get(key)
        if found is None:
            found = self.constants[key] = self._emit_constant(value, aval)
        return found

    def _emit_constant(self, value: Any, aval: ShapedArray) -> Any:
        if aval.dtype == dtypes.float0:
            array = np.zeros(aval.shape, bool)
        elif aval.is_symbolic:
            return self.broadcast(self.constant(value, ShapedArray((), aval.dtype)), aval)
        elif type(value) is int:
            array = host_scalar(value, aval.dtype)
        else:
            array = np.asarray(value).astype(aval.dtype, copy=False)
        if array.shape != aval.shape:
            array = np.broadcast_to(array, aval.shape)
        # At the head of the block, so that all later operations in it may use them. Regions of operations have
        # constants of their own, since the body of a reduction may not use values from outside.
        with ir.InsertionPoint.at_block_begin(ir.InsertionPoint.current.block):
            return hlo.ConstantOp(mlir.dense_constant(array)).result

    def op(self, operation: Any, *operands: Any, aval: ShapedArray | None = None, **attributes: Any) -> Any:
        """Emit an operation of one result whose type is known, in half the time of the dialect's own constructor.

        Args:
          operation: the operation's class in the dialect, such as `hlo.AddOp`.
          operands: IR values.
          aval: the type of the result; that of the current equation's when left out.
          attributes: MLIR attributes, or lists of ints for arrays of 64-bit integers.

        Returns:
          The result.
        """
        for name, value in attributes.items():
            if type(value) is list:
                attributes[name] = ir.DenseI64ArrayAttr.get(value)
        # The jaxpr has the result type, which saves MLIR's inference of it.
        aval = self.aval_out if aval is None else aval
        if aval.is_symbolic and (form := dynamic_shapes.FORMS.get(operation.OPERATION_NAME)) is not None:
            return dynamic_shapes.create(
                self, form, [*operands, dynamic_shapes.sizes(self, aval.shape)], aval, attributes
            )
        return ir.Operation.create(
            operation.OPERATION_NAME, results=[self.type(aval)], operands=operands, attributes=attributes
        ).results[0]

    def broadcast(self, x: Any, aval_out: ShapedArray, dims: Sequence[int] = ()) -> Any:
        """Repeat `x` to `aval_out`; its dimension `i` becomes dimension `dims[i]` of the result."""
        physical = physical_aval(aval_out)
        dims = [*dims, *range(aval_out.ndim, physical.ndim)]  # the hidden trailing dimension of keys
        return self.op(hlo.BroadcastInDimOp, x, aval=physical, broadcast_dimensions=dims)

    def size(self, dim: Any, aval: ShapedArray | None = None) -> Any:
        """A dimension, an int or symbolic, as a scalar of the program: an i64, or of type `aval`."""
        if type(dim) is int:
            return self.constant(dim, aval or dynamic_shapes.SCALAR)
        found = dynamic_shapes.size(self, dim)
        return found if aval is None or aval.dtype == np.int64 else self.op(hlo.ConvertOp, found, aval=aval)

    def iota(self, aval: ShapedArray, dim: int) -> Any:
        """0, 1, 2, ... along dimension `dim`."""
        return self.op(hlo.IotaOp, aval=aval, iota_dimension=i64(dim))

    def reshape(self, x: Any, aval: ShapedArray) -> Any:
        """The elements of `x` in another shape."""
        return self.op(hlo.ReshapeOp, x, aval=aval)

    def slice(
        self, x: Any, starts: Sequence[Any], limits: Sequence[Any], strides: Sequence[Any], aval: ShapedArray
    ) -> Any:
        """The slice of `x` between bounds that are ints or depend on dimension variables."""
        if is_constant_shape((*starts, *limits, *strides)):
            numbers = {"start_indices": list(starts), "limit_indices": list(limits), "strides": list(strides)}
            return self.op(hlo.SliceOp, x, aval=aval, **numbers)
        bounds = [dynamic_shapes.sizes(self, dims) for dims in (starts, limits, strides)]
        return dynamic_shapes.create(self, "real_dynamic_slice", [x, *bounds], aval)

    def pad(self, x: Any, value: Any, low: Sequence, high: Sequence, interior: Sequence, aval: ShapedArray) -> Any:
        """Pad `x` with a scalar, by widths that are ints or depend on dimension variables."""
        if is_constant_shape((*low, *high, *interior)):
            edges = {"edge_padding_low": list(low), "edge_padding_high": list(high)}
            return self.op(hlo.PadOp, x, value, aval=aval, **edges, interior_padding=list(interior))
        widths = [dynamic_shapes.sizes(self, dims) for dims in (low, high, interior)]
        return dynamic_shapes.create(self, "dynamic_pad", [x, value, *widths], aval)

    def dynamic_slice(self, x: Any, shape: Sequence[Any], starts: Sequence[Any], aval: ShapedArray) -> Any:
        """The slice of `x` (of the given shape) that starts at scalars of the program, clamped to the bounds of `x`."""
        if not aval.is_symbolic:
            return self.op(hlo.DynamicSliceOp, x, *starts, aval=aval, slice_sizes=list(aval.shape))
        return dynamic_shapes.emit_dynamic_slice(self, x, shape, starts, aval)

    def region(self, avals: Sequence[ShapedArray], operation: Any, body: Callable[..., Any], index: int = 0) -> None:
        """Fill region `index` of an operation with a block that returns `body(*arguments)`."""
        block = operation.regions[index].blocks.append(*[self.type(a) for a in avals])
        # Constants of the outer block are not visible in the region of a reduction.
        outer, self.constants = self.constants, {}
        with ir.InsertionPoint(block):
            out = body(*block.arguments)
            hlo.return_(list(out) if isinstance(out, list | tuple) else [out])
        self.constants = outer

    def reduce(self, operation: Any, x: Any, init: Any, dims: Sequence[int], aval: ShapedArray | None = None) -> Any:
        """Reduce `x` over `dims` by a binary operation such as `hlo.AddOp`, from the scalar `init`."""
        aval = aval if aval is not None else self.aval_out
        scalar = ShapedArray((), aval.dtype)
        reduced = ir.Operation.create(
            "stablehlo.reduce",
            results=[self.type(aval)],
            operands=[x, self.constant(np.asarray(init).astype(aval.dtype), scalar)],
            attributes={"dimensions": ir.DenseI64ArrayAttr.get(list(dims))},
            regions=1,
        )
        self.region([scalar, scalar], reduced, lambda x, y: self.op(operation, x, y, aval=scalar))
        return reduced.results[0]

    def custom_call(
        self,
        target: str,
        operands: Sequence[Any],
        *,
        results: Sequence[ShapedArray] | None = None,
        attributes: dict[str, Any] | None = None,
        operand_layouts: Sequence[Sequence[int]] | None = None,
        result_layouts: Sequence[Sequence[int]] | None = None,
        has_side_effect: bool = False,
        api_version: int = 4,
        backend_config: str | None = None,
        aliases: dict[int, int] | None = None,
    ) -> list:
        """Call a target registered with the engine.

        Args:
          target: the registered name.
          operands: IR values.
          results: the types of the results; by default the result types of the current equation.
          attributes: for API version 4, the call's attributes as MLIR attributes or Python values.
          operand_layouts, result_layouts: minor-to-major orders; row-major when left out.
          has_side_effect: keep the call even if nothing reads its results.
          api_version: 4 for typed FFI calls, 2 for older ones.
          backend_config: for API versions below 4, an opaque text.
          aliases: result number to the operand whose buffer it takes.

        Returns:
          The results as IR values.
        """
        if self.module.is_attached and not self.module.is_portable:
            custom_call_targets.require(target, self.platform)
        avals = list(results) if results is not None else self.avals_out
        types = [self.type(a) for a in avals]
        shapes = [dynamic_shapes.sizes(self, a.shape) for a in avals] if any(a.is_symbolic for a in avals) else []
        attrs = {
            "call_target_name": ir.StringAttr.get(target),
            "has_side_effect": ir.BoolAttr.get(has_side_effect),
            "api_version": i32(api_version),
            # Typed FFI calls, from version 4 on, take a dictionary; older ones take bytes.
            "backend_config": ir.DictAttr.get({k: to_mlir_attribute(v) for k, v in (attributes or {}).items()})
            if api_version >= 4
            else ir.StringAttr.get(backend_config or ""),
        }
        if operand_layouts is not None or result_layouts is not None:
            attrs["operand_layouts"] = _layouts(
                operand_layouts and [*operand_layouts, *[[0]] * len(shapes)], [v.type for v in (*operands, *shapes)]
            )
            attrs["result_layouts"] = _layouts(result_layouts, types)
        if aliases:
            attrs["output_operand_aliases"] = ir.ArrayAttr.get(
                [hlo.OutputOperandAlias.get([] if len(types) == 1 else [out], arg, []) for out, arg in aliases.items()]
            )
        if shapes:  # the refinement of shapes removes these operands again
            positions = np.arange(len(operands), len(operands) + len(shapes), dtype=np.int64)
            attrs["indices_of_shape_operands"] = mlir.dense_constant(positions)
        return list(ir.Operation.create("stablehlo.custom_call", types, [*operands, *shapes], attrs).results)


def to_mlir_attribute(value: Any) -> Any:
    """Convert an attribute of a custom call to MLIR: a Python or NumPy value by its type, MLIR attributes unchanged."""
    match value:
        case ir.Attribute():
            return value
        case bool() | np.bool_():
            return ir.BoolAttr.get(bool(value))
        case str():
            return ir.StringAttr.get(value)
        # Before the Python types, since a np.float64 is a float.
        case np.integer():
            return ir.IntegerAttr.get(mlir.dtype_to_ir(value.dtype), int(value))
        case np.floating():
            return ir.FloatAttr.get(mlir.dtype_to_ir(value.dtype), float(value))
        case int():
            return i64(value)
        case float():
            return ir.FloatAttr.get(ir.F64Type.get(), value)
        case np.dtype():
            return ir.TypeAttr.get(mlir.dtype_to_ir(value))
        case np.ndarray():
            return mlir.dense_constant(value)
    return ir.ArrayAttr.get([to_mlir_attribute(v) for v in value])


def _layouts(layouts: Sequence[Sequence[int]] | None, types: Sequence[Any]) -> Any:
    if layouts is None:
        layouts = [range(ir.RankedTensorType(t).rank - 1, -1, -1) for t in types]
    orders = [np.array(layout, np.int64) for layout in layouts]
    return ir.ArrayAttr.get(
        [ir.DenseIntElementsAttr.get(order, type=ir.IndexType.get(), shape=order.shape) for order in orders]
    )


def _constant_key(value: Any) -> Any:
    """A key under which equal constants are emitted once; large arrays are not compared, each has a separate key."""
    if isinstance(value, bool | int | complex | float | np.generic):
        return (type(value), np.asarray(value).tobytes())  # bytes: 0.0 is not -0.0, and NaN is itself
    # Arrays as short as a shape or a window recur in programs; comparing long ones would cost more than it saves.
    if isinstance(value, np.ndarray) and value.size <= 16:
        return (value.dtype, value.shape, value.tobytes())
    return object()
