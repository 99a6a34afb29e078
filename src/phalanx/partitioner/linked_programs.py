"""Lowering of a linked program again, for the devices that it is called on.

An artifact holds StableHLO for any consumer and any mesh, without calls that XLA's partitioner asks this process about.
When it is linked into a program, operations that only move elements, Fourier transforms, and the functions that the
artifact has for other equations become equations again, to which the rules of their primitives are applied, as in a
program that is compiled here. The operations that they replace stay without a use, and XLA drops them.

Called by `phalanx.export.module_linking`, through a hook of `phalanx.runtime.lowering`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from phalanx.core import Eqn, Primitive, ShardingRule, Var
from phalanx.engine import hlo, ir, sdy
from phalanx.lax.fft import FftType, fft_p
from phalanx.lax.indexing.static_slice import pad_p, slice_p
from phalanx.lax.shape.concatenate import concatenate_p
from phalanx.lax.shape.reshape import reshape_p
from phalanx.lax.shape.transpose import rev_p
from phalanx.partitioner.dim_sharding import DimSharding, find_dim_sharding, source_dims
from phalanx.partitioner.move_rules import pad_after_elements
from phalanx.partitioner.partitioned_lowering import EQUATION, RECORDED, combine_moves
from phalanx.runtime import LoweringContext, aval_of, shape_of
from phalanx.runtime.lowering import lower_equation, special_lowering
from phalanx.runtime.reshard_lowering import align_operands, infer_result_sharding
from phalanx.sharding import Mesh, NamedSharding, PartitionSpec


def _lists(op: ir.Operation, *names: str) -> list[tuple[int, ...]]:
    return [tuple(op.attributes[name]) for name in names]


def _read_fft(op: ir.Operation) -> dict[str, Any]:
    kind = FftType[hlo.FftTypeAttr(op.attributes["fft_type"]).value]
    return {"fft_type": kind, "fft_lengths": tuple(op.attributes["fft_length"])}


_SLICE = ("start_indices", "limit_indices", "strides")
_PADDING = ("edge_padding_low", "edge_padding_high", "interior_padding")
# For each operation its primitive, and the parameters as a function of the operation.
_EQUATIONS: dict[str, tuple[Primitive, Callable[[ir.Operation], dict[str, Any]]]] = {
    "stablehlo.concatenate": (concatenate_p, lambda op: {"dim": ir.IntegerAttr(op.attributes["dimension"]).value}),
    "stablehlo.fft": (fft_p, _read_fft),
    "stablehlo.pad": (pad_p, lambda op: {"config": tuple(zip(*_lists(op, *_PADDING), strict=True))}),
    "stablehlo.reshape": (reshape_p, lambda op: {"shape": tuple(shape_of(op.results[0]))}),
    "stablehlo.reverse": (rev_p, lambda op: {"dims": tuple(op.attributes["dimensions"])}),
    "stablehlo.slice": (
        slice_p,
        lambda op: dict(zip(("starts", "stops", "strides"), _lists(op, *_SLICE), strict=True)),
    ),
}
# Operations that stay as they are, and whose results are sharded as their operands.
_INFERRED = {f"stablehlo.{name}" for name in ("broadcast_in_dim", "dot_general", "reduce", "transpose")}
# Operations of operands and results of one shape that are not elementwise.
_OF_OTHER_SHARDINGS = {f"stablehlo.{name}" for name in ("custom_call", "dot_general", "transpose", "triangular_solve")}
_MOVING = _EQUATIONS.keys() - {"stablehlo.fft"}  # left as they are unless arrays are split unevenly


class _Linked(NamedTuple):
    """What the blocks of a linked program share.

    Args:
      functions: the functions that are still to be lowered, by name.
      records: the text of the equation that a function computes, by name.
      mesh: the mesh that the constraints of the program refer to.
      read_equation: reads an equation from its text and the types of its operands and results.
      naming: the operations that name shardings.
    """

    functions: dict[str, ir.Operation]
    records: dict[str, str]
    mesh: Mesh
    read_equation: Callable[..., Eqn | None]
    naming: list[ir.Operation]


def lower_linked(
    ctx: LoweringContext,
    main: str,
    functions: dict[str, ir.Operation],
    shardings: Sequence[Any],
    mesh: Mesh,
    read_equation: Callable[..., Eqn | None],
) -> tuple[list[NamedSharding | None], bool]:
    """Lower the operations of a linked program again.

    Args:
      ctx: the context of the call.
      main: the name of the function that is called.
      functions: the functions of the program, by name.
      shardings: of its last arguments; None if unknown.
      mesh: the mesh that the constraints of the program refer to.
      read_equation: reads an equation from its text and the types of its operands and results.

    Returns:
      For each result the sharding that is expected of it, None if unknown; and whether operations name shardings.
    """
    records = {
        name: ir.StringAttr(f.attributes[EQUATION]).value for name, f in functions.items() if EQUATION in f.attributes
    }
    (block,) = functions.pop(main).regions[0].blocks
    for x, sharding in zip(list(block.arguments)[len(block.arguments) - len(shardings) :], shardings, strict=True):
        _state_sharding(ctx, x, sharding)
    linked = _Linked(functions, records, mesh, read_equation, [])
    _lower_block(ctx, block, linked)
    return _returned_shardings(ctx, block), bool(linked.naming)


def _returned_shardings(ctx: LoweringContext, block: ir.Block) -> list[NamedSharding | None]:
    *_, terminator = block.operations
    return [ctx.module.inferred_shardings.get(x) for x in terminator.operands]


def _state_sharding(ctx: LoweringContext, x: ir.Value, sharding: Any) -> None:
    if isinstance(sharding, NamedSharding):
        ctx.module.known_shardings[x] = sharding
        _state_inferred(ctx, x, sharding)


def _state_inferred(ctx: LoweringContext, x: ir.Value, sharding: NamedSharding | None) -> None:
    if sharding is not None:
        ctx.module.inferred_shardings[x] = sharding


def _lower_block(outer: LoweringContext, block: ir.Block, linked: _Linked) -> None:
    """Lower the operations of a block again, and of functions that it calls first."""
    ctx = LoweringContext(outer.module)  # its constants belong to the block
    ctx.eqn = outer.eqn
    for op in [view.operation for view in block.operations]:  # the `name` of a composite's view is its attribute
        if op.name.startswith("sdy."):
            linked.naming.append(op)
        if op.name == "sdy.sharding_constraint":
            _state_sharding(ctx, op.results[0], _read_sharding(linked.mesh, op.attributes["sharding"]))
        elif op.name in ("stablehlo.while", "stablehlo.case", "stablehlo.if"):
            for region in op.regions:
                _lower_block(ctx, region.blocks[0], linked)
        elif op.name == "func.call":
            _lower_call(ctx, op, linked)
        elif op.name.startswith("stablehlo."):
            _lower_operation(ctx, op)


def _lower_call(ctx: LoweringContext, op: ir.Operation, linked: _Linked) -> None:
    callee = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
    if callee in linked.records and _lower_recorded(ctx, op, linked.records[callee], linked.read_equation):
        return
    function = linked.functions.pop(callee, None)
    if function is not None:
        (called,) = function.regions[0].blocks
        for x, argument in zip(op.operands, called.arguments, strict=True):
            _pass_sharding(ctx, x, argument)
        _lower_block(ctx, called, linked)
        for y, sharding in zip(op.results, _returned_shardings(ctx, called), strict=True):
            _state_inferred(ctx, y, sharding)


def _pass_sharding(ctx: LoweringContext, x: ir.Value, argument: ir.Value) -> None:
    """Expect an argument of a function to be sharded as the operand of a call is."""
    if isinstance(x.type, ir.RankedTensorType):
        _expect(ctx, argument, [find_dim_sharding(ctx.module, x, d) for d in range(len(shape_of(x)))])


def _infer_sharding(ctx: LoweringContext, y: ir.Value) -> None:
    """Expect a value to be sharded as the dimensions of operands that become its dimensions."""
    found: list[DimSharding | None] = []
    for d in range(len(shape_of(y))):
        held = [(ctx.module.inferred_shardings.get(x), x, source) for x, source in source_dims(y, d, has_uneven=False)]
        known = [DimSharding(s, s.axes(len(shape_of(x)))[i]) for s, x, i in held if isinstance(s, NamedSharding)]
        found.append(next((s for s in known if s.axes), None))
    _expect(ctx, y, found)


def _expect(ctx: LoweringContext, x: ir.Value, found: Sequence[DimSharding | None]) -> None:
    """Expect dimensions of a value to be sharded like this, and each axis to shard the first of them only."""
    dims: list[tuple[Any, ...]] = []
    for s in found:
        dims.append(() if s is None else tuple([a for a in s.axes if not any(a in taken for taken in dims)]))
    if (first := next(filter(None, found), None)) is not None:
        _state_inferred(ctx, x, first.sharding.with_spec(PartitionSpec.of_dims(dims)))


def _lower_recorded(ctx: LoweringContext, op: ir.Operation, text: str, read_equation: Callable[..., Any]) -> bool:
    """Lower the equation that a called function stands for; returns whether this version of Phalanx can read it."""
    results = list(op.results)
    # Other operands come first where the program is for several platforms.
    if not all(_is_static(x) for x in (*op.operands, *results)):
        return False
    eqn = read_equation(text, list(map(aval_of, op.operands)), list(map(aval_of, results)))
    if eqn is None or eqn.primitive.name not in RECORDED:
        return False
    with ir.InsertionPoint(op), op.location:
        _replace(ctx, op, eqn)
    return True


def _replace(ctx: LoweringContext, op: ir.Operation, eqn: Eqn) -> None:
    """Lower an equation in the place of an operation, also what aligns its operands."""
    ctx.eqn = eqn.replace(source=ctx.eqn.source)
    env = dict(zip(eqn.invars, op.operands, strict=True))
    lower_equation(ctx, ctx.eqn, env)
    _replace_results(op.results, [env[v] for v in eqn.outvars])


def _is_static(x: ir.Value) -> bool:
    return isinstance(x.type, ir.RankedTensorType) and x.type.has_static_shape


def _replace_results(results: Sequence[ir.Value], out: Any) -> None:
    for x, y in zip(results, out if isinstance(out, list | tuple) else [out], strict=True):
        if y != x:
            x.replace_all_uses_with(y)


def _lower_operation(ctx: LoweringContext, op: ir.Operation) -> None:
    results = list(op.results)
    with ir.InsertionPoint(op), op.location:
        if op.name in _EQUATIONS and (ctx.module.has_uneven or op.name not in _MOVING):
            primitive, read = _EQUATIONS[op.name]
            ins, outs = ([Var(aval_of(x)) for x in values] for values in (op.operands, results))
            _replace(ctx, op, ctx.eqn.replace(primitive=primitive, invars=ins, outvars=outs, params=read(op)))
            return
        if op.name == "stablehlo.pad":
            _lower_pad(ctx, op)
        _align_operands(ctx, op)
        if ctx.module.moves:
            _replace_results(results, combine_moves(ctx, results[0] if len(results) == 1 else results))
        if op.name in _INFERRED and len(results) == 1:
            _infer_sharding(ctx, results[0])


def _lower_pad(ctx: LoweringContext, op: ir.Operation) -> None:
    """Lower interior padding of an even program, which the artifact has as padding behind each element."""
    x, value = op.operands
    low, high, interior = _lists(op, *_PADDING)
    if not isinstance(x.owner, ir.Block) and x.owner.name == "stablehlo.reshape" and not any((*low, *interior)):
        source = x.owner.operands[0]
        if shape_of(x) == [n for size in shape_of(source) for n in (size, 1)] and not any(high[::2]):
            _replace_results(op.results, pad_after_elements(ctx, source, value, aval_of(source), high[1::2]))


def _align_operands(ctx: LoweringContext, op: ir.Operation) -> None:
    """Reshard operands of an elementwise operation whose shardings exclude each other, as its equation would be."""
    values = [*op.operands, *op.results]
    is_elementwise = len(op.results) == 1 and not op.regions and op.name not in _OF_OTHER_SHARDINGS
    if not is_elementwise or not all(map(_is_static, values)) or len({tuple(shape_of(x)) for x in values}) > 1:
        return
    if op.name == "stablehlo.select":  # Shardy chooses what to reshard, as for `select_n`
        predicate, on_true, on_false = [ctx.module.inferred_shardings.get(x) for x in op.operands]
        names = tuple(range(len(shape_of(op.results[0]))))
        sharding = infer_result_sharding([predicate, on_false, on_true], ShardingRule([names] * 3, [names]))
    else:
        operands, sharding = align_operands(ctx, list(op.operands), lambda i: aval_of(op.operands[i]))
        for i, x in enumerate(operands):
            if x != op.operands[i]:
                op.operands[i] = x
    _state_inferred(ctx, op.results[0], sharding)


def _read_sharding(mesh: Mesh, attribute: ir.Attribute) -> NamedSharding | None:
    """The sharding of a constraint; None if it names axes that the mesh does not have."""
    dims = [sdy.DimensionShardingAttr(d).axes for d in sdy.TensorShardingAttr(attribute).dimension_shardings]
    names = [tuple([axis.name for axis in map(sdy.AxisRefAttr, axes)]) for axes in dims]
    is_known = mesh.shape.keys() >= {name for axes in names for name in axes}
    return NamedSharding(mesh, PartitionSpec.of_dims(names)) if is_known else None


special_lowering.provide(lower_linked=lower_linked)
