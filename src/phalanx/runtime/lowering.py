"""Lowering: from a program to the StableHLO that the engine compiles.

`lower_program` builds one MLIR module: a `main` whose parameters carry shardings and donation, and one function for
each inner program, shared by all its calls. Primitives emit their own operations in their `lower` rule, through a
`LoweringContext`. Typed random keys are lowered by the batching rule over their hidden trailing dimension.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import dtypes, effects
from phalanx.core.aval import ShapedArray, host_scalar
from phalanx.core.config import state
from phalanx.core.errors import RuleError, ShardingError
from phalanx.core.jaxpr import Jaxpr, Literal, Var, without_dead_code
from phalanx.core.roles import equation_roles
from phalanx.core.source import Scoped
from phalanx.core.trace import collector_paused, stage
from phalanx.engine import mlir, targets
from phalanx.engine.mlir import func, hlo, i32, i64, ir, sdy
from phalanx.engine.seat import Seat
from phalanx.runtime import dynamic, pieces
from phalanx.runtime.devices import named_sharding
from phalanx.runtime.memories import annotate, place_in_memory
from phalanx.runtime.moves import SLICED_FROM, bring, brought_together, passed_on
from phalanx.runtime.shardy import sdy_sharding, sdy_type
from phalanx.symbolic import is_constant_shape

PLATFORM = "_platform"  # name of the leading scalar that says which of several platforms runs the program


class PlatformAsked(Exception):
    """A lowering rule asked for the platform of a program that is for several."""


# lower_on_keys(ctx, eqn, operands): how operations on typed keys are lowered.
batching = Seat(taken_by="phalanx.transforms")


def physical_aval(aval: ShapedArray) -> ShapedArray:
    """The type by which the engine knows a value: keys are numbers with a dimension more, `float0` zeros are bits."""
    if isinstance(aval.dtype, dtypes.KeyDtype):
        return ShapedArray((*aval.shape, *aval.dtype.key_shape), np.dtype("uint32"))
    return ShapedArray(aval.shape, np.dtype(np.bool_)) if aval.dtype is dtypes.float0 else aval


# The type of what orders effects: a number that each passes on, since XLA's own tokens cannot go into a part of the
# program that each device runs by itself.
ORDER_TOKEN = ShapedArray((), np.dtype(np.int32))


class Inspection:
    """A question to the compiler: how does a value lie on devices?

    Args:
      observer: called with the value's shape and its sharding once the program is compiled.
      shape: the shape.
    """

    __slots__ = ("found", "notify", "observer", "shape")

    def __init__(self, observer: Callable, shape: tuple):
        self.observer, self.shape = observer, shape
        self.found: list = []  # what the partitioner says, in the engine's form
        self.notify = self.found.append  # kept here, for the engine holds no reference to what it calls


class ModuleContext:
    """What the functions of one module share.

    Args:
      platforms: where the program will run, of "cpu" and "cuda"; a portable one may name several.
      num_partitions: how many devices split the program.
      variables: names of the dimension variables, in the order in which functions take them.
      is_portable: whether other processes run the program, so that its kernels need not be here.
      is_here: whether this process can run it; otherwise it is to be looked at, and its kernels need not be here.
    """

    def __init__(
        self,
        platforms: Sequence[str],
        num_partitions: int = 1,
        variables: Sequence[str] = (),
        is_portable: bool = False,
        is_here: bool = True,
        sliced_from: int = SLICED_FROM,
    ):
        self.platforms = tuple(platforms)
        self.platform = self.platforms[0]  # the one that is emitted for just now
        self.num_partitions = num_partitions
        self.variables = tuple(variables)
        self.is_portable, self.is_here = is_portable, is_here
        self.context = ir.Context.current
        self.types: dict[ShapedArray, Any] = {}
        self.location = mlir.Locations(self.context)
        self.module = ir.Module.create()
        self.symbols = ir.SymbolTable(self.module.operation)
        self.functions: dict[Any, Any] = {}  # inner programs already emitted
        self.meshes: dict[Any, str] = {}
        self.lies: dict[Any, Any] = {}  # the shardings of values, as far as they are known
        self.expected: dict[Any, Any] = {}  # these, and how other values will lie if the partitioner does as expected
        self.uncut: set[tuple[Any, int]] = set()  # values and dimensions that nothing is known to split
        self.arguments: set[Any] = set()  # the values that are arguments of `main`: they stay in memory
        self.sliced_from = sliced_from  # bytes of a part from which an argument is moved in slices
        self.constraints: dict[Any, Any] = {}  # the sharding attribute of each type that has one
        self.host_callbacks: list[Any] = []
        self.inspections: list[Inspection] = []
        self.is_self_contained = True  # whether the text says all that it does, to another process too
        self.keep_alive: list[Any] = []
        self.device_assignment: Any = None
        self.memories: Sequence[str | None] = ()  # where the results of `main` are left, if not where programs compute
        self.manual: Any = None  # inside a `shard_map`, its mesh and manual axes
        self.channels = itertools.count(1)  # numbers of collectives

    @property
    def is_split(self) -> bool:
        """Whether the partitioner splits what is being emitted, so that one operation may take several devices."""
        return self.num_partitions > 1 and not (self.manual is not None and self.manual.is_whole)

    def type(self, aval: Any) -> Any:
        """The tensor type of an abstract value."""
        try:
            return self.types[aval]
        except KeyError:
            physical = physical_aval(aval)
            shape: Sequence[int] = physical.shape
            if physical.is_symbolic:
                shape = [d if type(d) is int else ir.ShapedType.get_dynamic_size() for d in physical.shape]
            found = ir.RankedTensorType.get(shape, mlir.dtype_to_ir(physical.dtype))
            self.types[aval] = found
            return found

    @property
    def leading(self) -> list[tuple[str, Any]]:
        """The scalars that every function but `main` takes first, by name, with their types."""
        platform = [(PLATFORM, ir.IntegerType.get_signless(32))] if len(self.platforms) > 1 else []
        sizes = [(name, ir.IntegerType.get_signless(64)) for name in self.variables]
        return [(name, ir.RankedTensorType.get((), kind)) for name, kind in (*platform, *sizes)]

    def constrained(self, x: Any, aval: Any) -> Any:
        """A value held to the sharding in its type: over Explicit axes as the type says, over others as it will be."""
        if (size := aval.sharding.mesh.size) != self.num_partitions:
            raise ShardingError(
                "lowering of a program",
                expected=f"a mesh of the {self.num_partitions} devices that the program runs on",
                got=f"{aval.str_short()} over {aval.sharding.mesh}",
                mend="give the program arguments on that mesh, or in_shardings",
            )
        if size == 1:
            return x
        if (attribute := self.constraints.get(aval)) is None:
            attribute = self.constraints[aval] = sdy_type(self, aval.sharding, physical_aval(aval).ndim)
        operation = sdy.ShardingConstraintOp.OPERATION_NAME
        return ir.Operation.create(
            operation, results=[self.type(aval)], operands=[x], attributes={"sharding": attribute}
        ).results[0]

    def add_function(self, key: Any, name: str, emit: Callable[[str], Any]) -> Any:
        """The function emitted for `key` and the platform at hand, once."""
        key = (key, self.platform)
        if (found := self.functions.get(key)) is None:
            found = self.functions[key] = emit(name)
        return found


class LoweringContext:
    """Where a `lower` rule emits: one object for each function body, pointed at one equation after the other."""

    __slots__ = ("constants", "eqn", "leading", "module", "tokens", "type")

    def __init__(self, module: ModuleContext):
        self.module = module
        self.leading: dict[str, Any] = {}  # the scalars that the function takes first, by name
        self.constants: dict[Any, Any] = {}
        self.tokens: dict[effects.Effect, Any] = {}
        self.type = module.type  # the tensor type of an abstract value
        self.eqn: Any = None

    @property
    def platform(self) -> str:
        """The platform to emit for; where there are several, the equation is emitted once for each."""
        if len(self.module.platforms) > 1:
            raise PlatformAsked
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
        """A constant, emitted once in each block; a scalar with a shaped `aval` becomes a splat."""
        if aval is None:
            array = np.asarray(value)
            aval = ShapedArray(array.shape, dtypes.canonicalize_dtype(array.dtype))
        key = (aval, _constant_key(value))
        found = self.constants.get(key) if key[1] is not None else None
        if found is None:
            found = self._emit_constant(value, aval)
            if key[1] is not None:
                self.constants[key] = found
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
        # At the head of the block, so that everything later in it may use them; regions never reach outside.
        with ir.InsertionPoint.at_block_begin(ir.InsertionPoint.current.block):
            return hlo.ConstantOp(mlir.dense_constant(array)).result

    def op(self, operation: Any, *operands: Any, aval: ShapedArray | None = None, **attributes: Any) -> Any:
        """Emit an operation of one result whose type is known: half the cost of the dialect's own constructor.

        Args:
          operation: the operation's class in the dialect, such as `hlo.AddOp`.
          operands: IR values.
          aval: the type of the result; that of the current equation's when left out.
          attributes: MLIR attributes, or lists of ints for those that are arrays of 64-bit integers.

        Returns:
          The result.
        """
        for name, value in attributes.items():
            if type(value) is list:
                attributes[name] = ir.DenseI64ArrayAttr.get(value)
        aval = self.aval_out if aval is None else aval
        if aval.is_symbolic and (form := dynamic.FORMS.get(operation.OPERATION_NAME)) is not None:
            return dynamic.resized(self, form, operands, aval, attributes)
        result = self.type(aval)
        return ir.Operation.create(
            operation.OPERATION_NAME, results=[result], operands=operands, attributes=attributes
        ).results[0]

    def broadcast(self, x: Any, aval_out: ShapedArray, dims: Sequence[int] = ()) -> Any:
        """`x` repeated to `aval_out`; its dimension `i` becomes dimension `dims[i]` of the result."""
        physical = physical_aval(aval_out)
        dims = [*dims, *range(aval_out.ndim, physical.ndim)]  # the hidden dimension of keys stays the last
        return self.op(hlo.BroadcastInDimOp, x, aval=physical, broadcast_dimensions=dims)

    def size(self, dim: Any, aval: ShapedArray | None = None) -> Any:
        """A dimension, an int or symbolic, as a scalar of the program, i64 unless `aval` says otherwise."""
        if type(dim) is int:
            return self.constant(dim, aval or dynamic.SCALAR)
        found = dynamic.size(self, dim)
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
        """A slice between numbers that are known or depend on dimension variables."""
        if is_constant_shape((*starts, *limits, *strides)):
            numbers = {"start_indices": list(starts), "limit_indices": list(limits), "strides": list(strides)}
            return self.op(hlo.SliceOp, x, aval=aval, **numbers)
        return dynamic.strided(self, x, starts, limits, strides, aval)

    def pad(self, x: Any, value: Any, low: Sequence, high: Sequence, interior: Sequence, aval: ShapedArray) -> Any:
        """`x` padded with a scalar by numbers that are known or depend on dimension variables."""
        if is_constant_shape((*low, *high, *interior)):
            edges = {"edge_padding_low": list(low), "edge_padding_high": list(high)}
            return self.op(hlo.PadOp, x, value, aval=aval, **edges, interior_padding=list(interior))
        return dynamic.padded(self, x, value, (low, high, interior), aval)

    def dynamic_slice(self, x: Any, shape: Sequence[Any], starts: Sequence[Any], aval: ShapedArray) -> Any:
        """The slice of `x`, which has this shape, that starts at scalars of the program, moved into bounds."""
        if not aval.is_symbolic:
            return self.op(hlo.DynamicSliceOp, x, *starts, aval=aval, slice_sizes=list(aval.shape))
        return dynamic.sliced(self, x, shape, starts, aval)

    def region(self, avals: Sequence[ShapedArray], operation: Any, body: Callable[..., Any], index: int = 0) -> None:
        """Fill region `index` of `operation` with a block: `body` takes its arguments and gives what it returns."""
        block = operation.regions[index].blocks.append(*[self.type(a) for a in avals])
        outer, self.constants = self.constants, {}
        with ir.InsertionPoint(block):
            out = body(*block.arguments)
            hlo.return_(list(out) if isinstance(out, list | tuple) else [out])
        self.constants = outer

    def reduce(self, operation: Any, x: Any, init: Any, dims: Sequence[int], aval: ShapedArray | None = None) -> Any:
        """Reduce `x` over `dims` by a binary operation such as `hlo.AddOp`, from the scalar `init`."""
        aval = aval if aval is not None else self.aval_out
        scalar = ShapedArray((), aval.dtype)
        initial = self.constant(np.asarray(init).astype(aval.dtype), scalar)
        reduced = ir.Operation.create(
            "stablehlo.reduce",
            results=[self.type(aval)],
            operands=[x, initial],
            attributes={"dimensions": ir.DenseI64ArrayAttr.get(list(dims))},
            regions=1,
        )
        element = self.type(scalar)
        block = reduced.regions[0].blocks.append(element, element)
        with ir.InsertionPoint(block):
            both = ir.Operation.create(operation.OPERATION_NAME, results=[element], operands=list(block.arguments))
            ir.Operation.create("stablehlo.return", operands=[both.results[0]])
        return reduced.results[0]

    def inline(self, fun: Callable, *operands: Any, avals: Sequence[ShapedArray] | None = None, **kwargs: Any) -> list:
        """Emit what `fun`, a function made of our own operations, does to the operands.

        `avals` are the types of the operands, those of the current equation's when left out; `kwargs` go to `fun`.
        """
        avals = [a.unsharded() for a in (self.avals_in if avals is None else avals)]
        before, state.source = state.source, self.eqn.source  # The user's line, not that of the lowering.
        try:
            program = stage(lambda *xs: _as_list(fun(*xs, **kwargs)), avals, "inline")
        finally:
            state.source = before
        return self.emit(program, operands)

    def emit(self, program: Jaxpr, operands: Sequence[Any]) -> list:
        """Emit the equations of a program here, with IR values as its inputs."""
        outer = self.eqn
        env = dict(zip(program.invars, operands, strict=True))
        for v, c in zip(program.constvars, program.consts, strict=True):
            env[v] = self.constant(np.asarray(c), v.aval)
        out = lower_equations(self, program, env)
        self.eqn = outer
        return out

    def call(self, program: Jaxpr, operands: Sequence[Any], name: str | None = None) -> list:
        """Call the function of an inner program, emitted once for all its calls that go the same way.

        Order tokens of the program's ordered effects are passed and returned in front.

        Args:
          program: the program.
          operands: IR values.
          name: the function's name, if not the program's.
        """
        ordered = effects.ordered(program.effects)
        module = self.module
        if module.manual is not None and not module.manual.is_whole:  # What says where a device is cannot be passed on.
            return self.emit(program, operands)
        held: tuple = ()
        staying: tuple = ()
        if module.lies and _names_shardings(program):
            held = tuple([module.lies.get(x) for x in operands])
            staying = tuple([x in module.arguments for x in operands])
        function = module.add_function(
            ("call", program, module.manual, held, staying),
            name or program.debug_name,
            lambda n: emit_function(module, program, n, in_shardings=held, staying=staying),
        )
        tokens = [self.token(e) for e in ordered]
        types = [self.type(ORDER_TOKEN)] * len(ordered) + [self.type(v.aval) for v in program.outvars]
        inputs = [*self.leading.values(), *tokens, *operands]
        call = func.CallOp(types, ir.FlatSymbolRefAttr.get(function.name.value), inputs)
        results = list(call.results)
        self.tokens.update(zip(ordered, results, strict=False))
        given = dict(zip(program.invars, operands, strict=True))  # What comes out as it went in is the same value.
        return [given.get(v, x) for v, x in zip(program.outvars, results[len(ordered) :], strict=True)]

    def token(self, effect: effects.Effect) -> Any:
        """The current token of an ordered effect."""
        if (found := self.tokens.get(effect)) is None:
            found = self.tokens[effect] = self.constant(np.int32(0), ORDER_TOKEN)
        return found

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
          results: the types of the results; those of the current equation when left out.
          attributes: for API version 4, the call's attributes as MLIR attributes or Python values.
          operand_layouts, result_layouts: minor-to-major orders; row-major when left out.
          has_side_effect: keep the call even if nothing reads its results.
          api_version: 4 for typed FFI calls, 2 for older ones.
          backend_config: for API versions below 4, an opaque text.
          aliases: result number to the operand whose buffer it takes.

        Returns:
          The results as IR values.
        """
        if self.module.is_here and not self.module.is_portable:
            targets.require(target, self.platform)
        avals = list(results) if results is not None else self.avals_out
        types = [self.type(a) for a in avals]
        shapes = [dynamic.sizes(self, a.shape) for a in avals] if any(a.is_symbolic for a in avals) else []
        attrs = {
            "call_target_name": ir.StringAttr.get(target),
            "has_side_effect": ir.BoolAttr.get(has_side_effect),
            "api_version": i32(api_version),
        }
        if api_version >= 4:
            config = {k: attribute(v) for k, v in (attributes or {}).items()}
            attrs["backend_config"] = ir.DictAttr.get(config)
        else:
            attrs["backend_config"] = ir.StringAttr.get(backend_config or "")
        if operand_layouts is not None or result_layouts is not None:
            attrs["operand_layouts"] = _layouts(
                operand_layouts and [*operand_layouts, *[[0]] * len(shapes)], [v.type for v in (*operands, *shapes)]
            )
            attrs["result_layouts"] = _layouts(result_layouts, types)
        if aliases:
            attrs["output_operand_aliases"] = ir.ArrayAttr.get(
                [hlo.OutputOperandAlias.get([] if len(types) == 1 else [out], arg, []) for out, arg in aliases.items()]
            )
        if shapes:  # the refinement of shapes takes these away again
            places = np.arange(len(operands), len(operands) + len(shapes))
            attrs["indices_of_shape_operands"] = mlir.dense_constant(places.astype(np.int64))
            operands = [*operands, *shapes]
        op = ir.Operation.create("stablehlo.custom_call", results=types, operands=list(operands), attributes=attrs)
        return list(op.results)


def _as_list(out: Any) -> list:
    return list(out) if isinstance(out, list | tuple) else [out]


def attribute(value: Any) -> Any:
    """A custom call's attribute as MLIR's: attributes as they are, Python and NumPy values by their kind."""
    if isinstance(value, ir.Attribute):
        return value
    if isinstance(value, bool | np.bool_):
        return ir.BoolAttr.get(bool(value))
    if isinstance(value, str):
        return ir.StringAttr.get(value)
    if isinstance(value, np.integer | np.floating):
        kind = mlir.dtype_to_ir(value.dtype)
        return (
            ir.IntegerAttr.get(kind, int(value)) if value.dtype.kind in "iu" else ir.FloatAttr.get(kind, float(value))
        )
    if isinstance(value, int):
        return i64(value)
    if isinstance(value, float):
        return ir.FloatAttr.get(ir.F64Type.get(), value)
    if isinstance(value, np.ndarray):
        return mlir.dense_constant(value)
    return ir.ArrayAttr.get([attribute(v) for v in value])


def _layouts(layouts: Sequence[Sequence[int]] | None, types: Sequence[Any]) -> Any:
    if layouts is None:
        layouts = [range(ir.RankedTensorType(t).rank - 1, -1, -1) for t in types]
    index = ir.IndexType.get()
    return ir.ArrayAttr.get(
        [ir.DenseIntElementsAttr.get(np.asarray(list(lay), np.int64), type=index, shape=(len(lay),)) for lay in layouts]
    )


def _constant_key(value: Any) -> Any:
    """What tells equal constants apart, or None for those not worth comparing."""
    if isinstance(value, bool | int | complex | float | np.generic):
        return (type(value), np.asarray(value).tobytes())  # bytes: 0.0 is not -0.0, and NaN is itself
    if isinstance(value, np.ndarray) and value.size <= 16:
        return (value.dtype, value.shape, value.tobytes())
    return None


def lower_equations(ctx: LoweringContext, program: Jaxpr, env: dict[Var, Any]) -> list:
    """Emit a program's equations in order and give its outputs as IR values."""
    entered = None
    location = ctx.module.location
    program = without_dead_code(program)
    try:
        for eqn in program.eqns:
            where, name = eqn.source, eqn.primitive.name
            if type(where) is Scoped:
                where, name = where.traceback, "/".join((*where.scope, name))
            loc = location(where, name)
            if loc is not entered:
                if entered is not None:
                    entered.__exit__(None, None, None)
                    entered = None
                loc.__enter__()
                entered = loc
            ctx.eqn = eqn
            lower_equation(ctx, eqn, env)
    finally:
        if entered is not None:
            entered.__exit__(None, None, None)
    return [ctx.constant(v.value, v.aval) if type(v) is Literal else env[v] for v in program.outvars]


def lower_equation(ctx: LoweringContext, eqn: Any, env: dict[Var, Any]) -> None:
    """Emit one equation and enter its results in `env`."""
    primitive = eqn.primitive
    splat = eqn.outvars[0].aval if primitive.scalars_broadcast and eqn.outvars[0].aval.shape else None
    operands = []
    for atom in eqn.invars:
        if type(atom) is Literal:
            aval = atom.aval
            operands.append(ctx.constant(atom.value, aval if splat is None else splat.with_dtype(aval.dtype)))
        elif splat is not None and not atom.aval.shape:
            operands.append(ctx.broadcast(env[atom], splat.with_dtype(atom.aval.dtype)))
        else:
            operands.append(env[atom])
    held = None
    if ctx.module.expected:
        operands, held = _expected(ctx, eqn, operands, splat)
    out = _apply_rule(ctx, eqn, operands) if len(ctx.module.platforms) == 1 else _choose_platform(ctx, eqn, operands)
    if primitive.multiple:
        env.update(zip(eqn.outvars, out, strict=True))
    else:
        env[eqn.outvars[0]] = out if isinstance(out, ir.Value) else _only(out, primitive)
    if held is not None:
        ctx.module.expected[env[eqn.outvars[0]]] = held
    for v in eqn.outvars:
        if v.aval.sharding is not None:
            env[v] = ctx.module.constrained(env[v], v.aval)


def _expected(ctx: LoweringContext, eqn: Any, operands: list, splat: ShapedArray | None) -> tuple[list, Any]:
    """The operands, brought together where they exclude each other; how the result is expected to lie, or None."""
    held = [ctx.module.expected.get(x) for x in operands]
    first = next(filter(None, held), None)
    if first is None or eqn.primitive.multiple or eqn.primitive.placing is not None:
        return operands, None
    if splat is None:
        return operands, passed_on(held, equation_roles(eqn))
    if all(s is first or s is None for s in held):
        return operands, first
    aval_of = lambda i: physical_aval(splat.with_dtype(eqn.invars[i].aval.dtype))
    return brought_together(ctx, operands, aval_of)


def _apply_rule(ctx: LoweringContext, eqn: Any, operands: list) -> Any:
    primitive = eqn.primitive
    if not primitive.holds_program and not primitive.takes_keys and _has_keys(eqn):
        return batching.lower_on_keys(ctx, eqn, operands)
    if primitive.by_pieces and ctx.module.is_split and not ctx.module.is_portable:
        if primitive.by_pieces is True or primitive.by_pieces(*ctx.avals_in, **eqn.params):
            return pieces.emit(ctx, eqn, operands)
    return primitive.lower(ctx, *operands, **eqn.params)


def _choose_platform(ctx: LoweringContext, eqn: Any, operands: list) -> Any:
    """Emit an equation for several platforms: once, unless its rule asks which, then as a case over all."""
    constants, tokens = ctx.constants, dict(ctx.tokens)
    try:
        return _apply_rule(ctx, eqn, operands)
    except PlatformAsked:
        ctx.tokens = tokens  # what the rule emitted before it asked is dead code, which the compiler drops
    module, platforms = ctx.module, ctx.module.platforms
    case = ir.Operation.create(
        "stablehlo.case",
        results=[ctx.type(a) for a in ctx.avals_out],
        operands=[ctx.leading[PLATFORM]],
        regions=len(platforms),
    )
    for i, platform in enumerate(platforms):
        module.platforms, module.platform = (platform,), platform
        inner = case.regions[i].blocks.append()
        ctx.constants = {}
        try:
            with ir.InsertionPoint(inner):
                out = _apply_rule(ctx, eqn, operands)
                out = list(out) if eqn.primitive.multiple else [out if isinstance(out, ir.Value) else _only(out, eqn)]
                hlo.return_(out)
        finally:
            module.platforms, module.platform = platforms, platforms[0]
    ctx.constants, ctx.tokens = constants, tokens
    return list(case.results) if eqn.primitive.multiple else case.results[0]


def _only(out: Any, primitive: Any) -> Any:
    if isinstance(out, list | tuple):
        (out,) = out
        return out
    if hasattr(out, "result"):
        return out.result
    raise RuleError(
        f"primitive {primitive.name}",
        expected="one IR value from its lower rule",
        got=repr(out),
        mend="return the operation's result",
    )


def _has_keys(eqn: Any) -> bool:
    for a in eqn.outvars:
        if type(a.aval.dtype) is dtypes.KeyDtype:
            return True
    for a in eqn.invars:
        if type(a.aval.dtype) is dtypes.KeyDtype:
            return True
    return False


def emit_function(
    module: ModuleContext,
    program: Jaxpr,
    name: str,
    *,
    is_public: bool = False,
    in_shardings: Sequence[Any] = (),
    out_shardings: Sequence[Any] = (),
    staying: Sequence[bool] = (),
) -> Any:
    """Emit a program as a function of the module: leading scalars, tokens, inputs in; tokens, outputs out.

    The public `main` takes no dimension variables and no tokens: the order of effects across calls is kept by
    `dispatch`, which waits. Constants stand in the text. The shardings are those of inputs and outputs as far as they
    are declared or known, and `staying` says which inputs are arguments of `main`.
    """
    ordered = [] if is_public else effects.ordered(program.effects)
    token = module.type(ORDER_TOKEN) if ordered else None
    leading = module.leading
    in_types = [t for _, t in leading] + [token] * len(ordered) + [module.type(v.aval) for v in program.invars]
    out_types = [token] * len(ordered) + [module.type(v.aval) for v in program.outvars]
    with ir.InsertionPoint(module.module.body), ir.Location.unknown():
        function = func.FuncOp(_symbol(name), ir.FunctionType.get(in_types, out_types))
    function.attributes["sym_visibility"] = ir.StringAttr.get("public" if is_public else "private")
    module.symbols.insert(function)
    block = function.add_entry_block()
    ctx = LoweringContext(module)
    arguments = list(block.arguments)
    ctx.leading = {n: v for (n, _), v in zip(leading, arguments, strict=False)}
    arguments = arguments[len(leading) :]
    ctx.tokens.update(zip(ordered, arguments, strict=False))
    env = dict(zip(program.invars, arguments[len(ordered) :], strict=True))
    with ir.InsertionPoint(block), ir.Location.unknown():
        for v, c in zip(program.constvars, program.consts, strict=True):
            env[v] = ctx.constant(np.asarray(c), physical_aval(v.aval))
        known = {env[v]: s for v, s in zip(program.invars, in_shardings) if s is not None}
        module.lies.update(known)
        module.expected.update(known)
        module.arguments.update(env[v] for v in itertools.compress(program.invars, staying))
        outputs = lower_equations(ctx, program, env)
        # What nothing else moves is expected to come out as something like it went in, parameters after a step say.
        alike = set() if _names_shardings(program) else {(v.aval, s) for v, s in zip(program.invars, in_shardings)}
        for i, (v, s) in enumerate(zip(program.outvars, out_shardings)):
            if s is not None and module.num_partitions > 1 and (v.aval, s) not in alike:
                outputs[i] = bring(ctx, outputs[i], physical_aval(v.aval), s)
        if is_public:
            outputs = [
                x if m is None else place_in_memory(x, m) for x, m in itertools.zip_longest(outputs, module.memories)
            ]
        func.ReturnOp([*(ctx.token(e) for e in ordered), *outputs])
    return function


def _names_shardings(program: Jaxpr) -> bool:
    return any(named_sharding(program, abstract) is not None for abstract in (False, True))


def _symbol(name: str) -> str:
    kept = "".join(c if c.isalnum() or c in "_.$" else "_" for c in name)
    return kept or "fn"


def lower_program(
    program: Jaxpr,
    platform: str,
    *,
    num_partitions: int = 1,
    name: str = "main",
    in_shardings: Sequence[Any] | None = None,
    out_shardings: Sequence[Any] | None = None,
    donated: Sequence[int] = (),
    devices: Sequence[Any] | None = None,
    memories: tuple[Sequence[str | None], Sequence[str | None]] = ((), ()),
    is_here: bool = True,
    manual: Any = None,
    sliced_from: int = SLICED_FROM,
) -> ModuleContext:
    """Lower a program without constants to a module whose `main` is it.

    Args:
      program: the program.
      platform: where it will run.
      num_partitions: over how many devices it is split.
      name: the module's name, shown by profilers.
      in_shardings, out_shardings: for each parameter and result a sharding, or None to leave it to the partitioner.
      donated: numbers of the parameters whose buffers may be reused.
      devices: in the order in which partitions are numbered.
      memories: the kinds of memory that parameters and results are in; None for where programs compute.
      is_here: whether this process can run it.
      manual: for a program that each device of a mesh runs, what collectives have to know of the mesh.
      sliced_from: bytes of a device's part from which a move between shardings goes in slices.
    """
    with collector_paused(), mlir.make_context(), ir.Location.unknown():
        module = ModuleContext((platform,), num_partitions, is_here=is_here, sliced_from=sliced_from)
        module.device_assignment, module.manual = devices, manual
        module.module.operation.attributes["sym_name"] = ir.StringAttr.get(_symbol(f"jit_{name}"))
        module.module.operation.attributes["mhlo.num_partitions"] = i32(num_partitions)
        module.module.operation.attributes["mhlo.num_replicas"] = i32(1)
        module.memories = memories[1]
        parameters = sharding_attributes(module, program.invars, in_shardings)
        function = emit_function(
            module,
            program,
            "main",
            is_public=True,
            in_shardings=in_shardings or (),
            out_shardings=out_shardings or (),
            staying=[True] * len(program.invars),
        )
        if donated or in_shardings is not None or any(memories[0]):
            shared = _match_donations(program, donated, in_shardings is not None)
            _annotate_parameters(function, annotate(parameters, memories[0]), shared)
        if out_shardings is not None or any(memories[1]):
            results = sharding_attributes(module, program.outvars, out_shardings)
            function.attributes["res_attrs"] = dictionaries(annotate(results, memories[1]))
    return module


def sharding_attributes(module: ModuleContext, variables: Sequence[Any], shardings: Any) -> list[dict]:
    """The attributes by which parameters or results say their shardings, as far as they have any."""
    shardings = shardings if shardings is not None else [None] * len(variables)
    return [
        {} if s is None else {"sdy.sharding": sdy_sharding(module, s, physical_aval(v.aval).ndim)}
        for v, s in zip(variables, shardings, strict=True)
    ]


def dictionaries(attributes: Sequence[dict]) -> Any:
    """What `arg_attrs` and `res_attrs` of a function take: a dictionary for each parameter or result."""
    return ir.ArrayAttr.get([ir.DictAttr.get(a) for a in attributes])


def _annotate_parameters(function: Any, attributes: Sequence[dict], shared: dict[int, int | None]) -> None:
    for i, result in shared.items():
        if result is None:
            attributes[i]["jax.buffer_donor"] = ir.BoolAttr.get(True)
        else:
            attributes[i]["tf.aliasing_output"] = i32(result)
    function.attributes["arg_attrs"] = dictionaries(attributes)


def _match_donations(program: Jaxpr, donated: Sequence[int], partitioned: bool) -> dict[int, int | None]:
    """Pair donated parameters with results of the same type; None leaves the choice to the compiler."""
    if partitioned:
        return dict.fromkeys(donated)
    free: dict[Any, list[int]] = {}
    for i, v in enumerate(program.outvars):
        free.setdefault((v.aval.shape, v.aval.dtype), []).append(i)
    pairs: dict[int, int | None] = {}
    for i in donated:
        aval = program.invars[i].aval
        candidates = free.get((aval.shape, aval.dtype))
        if candidates:
            pairs[i] = candidates.pop(0)
    return pairs
