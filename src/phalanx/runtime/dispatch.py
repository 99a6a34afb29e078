"""Dispatch: running operations and whole functions at once on concrete arrays.

A program is compiled once for each combination of argument types, and a later call alike is a dictionary look-up and an
execution. `run` does this for single operations, `eager_program` for a whole public function, so that an eager call of
it is one program and not one for each operation inside; `CompiledProgram` is the callable that both, and `jit`, hold.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import effects
from phalanx.core.aval import aval_of
from phalanx.core.config import state
from phalanx.core.errors import ArgumentTypeError, DeletedArrayError, ShardingError
from phalanx.core.flags import chosen
from phalanx.core.jaxpr import Jaxpr, eliminate_dead_code, subprograms
from phalanx.core.primitive import Primitive, registry
from phalanx.core.primitive import eager as eager_seat
from phalanx.core.trace import Tracer, leak_error, stage
from phalanx.engine import buffers, client, compiler
from phalanx.engine.failures import XlaRuntimeError, user_error
from phalanx.engine.frames import as_boundary, hide_frames
from phalanx.engine.guards import explicit
from phalanx.engine.seat import Seat
from phalanx.runtime import placement, runs
from phalanx.runtime import settings as settings
from phalanx.runtime.array import Array, ArrayType, deleted_error, donated_twice_error
from phalanx.runtime.devices import common_devices, named_sharding
from phalanx.runtime.lowering import Inspection, lower_program, physical_aval
from phalanx.runtime.memories import far_kind, near, result_memories
from phalanx.runtime.moves import SLICED_FROM
from phalanx.runtime.placement import scalar_array
from phalanx.runtime.stand_ins import StandIn
from phalanx.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, from_hlo_sharding
from phalanx.tree import tree_flatten, tree_unflatten

# use_keys(program, args): what a call does to random keys, with the option `debug_key_reuse`.
keys = Seat(taken_by="phalanx.random.key_reuse")

# refuse(program, axes): raises where a compiled program sends along axes that the option `no_collectives` names.
communication = Seat(taken_by="phalanx.spmd.communication")

# What a program closed over becomes an argument from this many elements; smaller host constants stay in its text.
INLINE_CONSTANT_SIZE = 256


@dataclasses.dataclass(frozen=True, eq=False)
class LoweredProgram:
    """A program lowered for a set of devices, not yet compiled.

    Args:
      program: the program as traced, its constants included.
      module: the MLIR module with what belongs to it.
      kept: numbers of the inputs that are parameters of the module; None for all.
      constants: values that are passed as leading arguments at each call.
      devices: in partition order.
      in_shardings, out_shardings: as resolved; None where the partitioner chooses.
      donated: numbers of the inputs whose buffers may be reused.
      committed: whether the results count as placed by the user.
      is_here: whether the devices are ones of this system, on which it can run.
    """

    program: Jaxpr
    module: Any
    kept: list[int] | None
    constants: list
    devices: tuple
    in_shardings: Any
    out_shardings: Any
    donated: tuple
    committed: bool
    is_here: bool

    def compile(self, options: dict | None = None) -> CompiledProgram:
        """Compile for the devices it was lowered for.

        Raises:
          ShardingError: these are not here, or the program would send along an axis of `no_collectives`.
        """
        if not self.is_here:
            raise ShardingError(
                "compile",
                expected="a program for devices that are here",
                got=f"one for {len(self.devices)} devices of platform {self.module.platform!r} that are not",
                mend="lower it for arguments over a Mesh of devices, or write it to a file with phalanx.export",
            )
        module = self.module
        executable = compiler.compile_module(
            module.module,
            self.devices,
            num_partitions=len(self.devices),
            propagate_to_outputs=[s is None for s in self.out_shardings] or [True],
            host_callbacks=module.host_callbacks,
            options=options or {},
            is_cacheable=module.is_self_contained and not module.inspections,
        )
        for inspection in module.inspections:
            self._answer(inspection)
        compiled = CompiledProgram(self, executable)
        if state.context.no_collectives and len(self.devices) > 1:
            communication.refuse(compiled, state.context.no_collectives)
        return compiled

    def _answer(self, inspection: Inspection) -> None:
        """Tell the observer of a value how it lies on devices."""
        if len(self.devices) == 1:
            inspection.observer(inspection.shape, placement.on_device(self.devices[0]))
            return
        for found in inspection.found:
            sharding = from_hlo_sharding(found, self.devices, _mesh_of(self), len(inspection.shape))
            inspection.observer(inspection.shape, sharding)


def lower(
    program: Jaxpr,
    devices: tuple,
    in_shardings: Sequence[Any],
    out_shardings: Sequence[Any] | None = None,
    *,
    donated: Sequence[int] = (),
    keep_unused: bool = False,
    name: str = "fn",
    committed: bool = False,
    platform: str | None = None,
    sliced_from: int = SLICED_FROM,
) -> LoweredProgram:
    """Lower a program for devices.

    Args:
      program: the program.
      devices: in partition order.
      in_shardings: a sharding for each input.
      out_shardings: for each output a sharding, or None to leave it to the partitioner.
      donated: numbers of the inputs whose buffers may be reused.
      keep_unused: keep parameters that nothing reads.
      name: what profilers show.
      committed: whether the results count as placed by the user.
      platform: another one than that of the devices, to look at the program for it.
      sliced_from: bytes of a device's part from which a move between shardings goes in slices.
    """
    own = client.platform_name(devices[0].platform)
    is_here = platform in (None, own) and not isinstance(devices[0], StandIn)
    out_shardings = list(out_shardings) if out_shardings is not None else [None] * len(program.outvars)
    out_shardings = _typed_outputs(program, out_shardings, devices)
    # The engine takes buffers in the order in which it numbers partitions, whatever order a mesh lists them in.
    in_shardings = [
        s.in_order(devices, physical_aval(v.aval).ndim) for s, v in zip(in_shardings, program.invars, strict=True)
    ]
    closed, constants = _hoist_constants(program)
    num_constants, kept = len(constants), None
    if not keep_unused:
        smaller, used = eliminate_dead_code(closed, [True] * len(closed.outvars))
        if not all(used[num_constants:]):
            kept = [i for i, u in enumerate(used[num_constants:]) if u]
        constants = [c for c, u in zip(constants, used, strict=False) if u]
        closed = smaller
    sharded = len(devices) > 1
    where = placement.everywhere(devices, in_shardings)
    position = {i: n for n, i in enumerate(kept if kept is not None else range(len(in_shardings)))}
    inputs = [where] * len(constants) + [in_shardings[i] for i in position]
    held = [*map(far_kind, inputs)]
    left = [far_kind(s) or m for s, m in zip(out_shardings, result_memories(closed, held), strict=True)]
    module = lower_program(
        closed,
        platform or own,
        num_partitions=len(devices),
        devices=devices,
        name=name,
        in_shardings=inputs if sharded else None,
        out_shardings=out_shardings if sharded else None,
        donated=[len(constants) + position[i] for i in donated if i in position],
        memories=(held, left),
        is_here=is_here,
        sliced_from=sliced_from,
    )
    with explicit():  # whoever wrote the program put them there
        placed = [placement.put(c, where)._buffer for c in constants] if is_here else []
    return LoweredProgram(
        program, module, kept, placed, devices, in_shardings, out_shardings, tuple(donated), committed, is_here
    )


def _typed_outputs(program: Jaxpr, declared: list, devices: tuple) -> list:
    """The shardings of outputs, those in types included; where nothing is said, explicit axes split nothing."""
    typed = [v.aval.sharding for v in (*program.outvars, *program.invars) if v.aval.sharding is not None]
    if not typed or typed[0].mesh.auto_axes or typed[0].mesh.size != len(devices):
        return declared
    whole = typed[0].replicated
    return [
        s if s is not None else NamedSharding((a := v.aval.sharding or whole).mesh.on(devices), a.spec.canonical)
        for v, s in zip(program.outvars, declared, strict=True)
    ]


def _hoist_constants(program: Jaxpr) -> tuple[Jaxpr, list]:
    """The program with its large constants as leading inputs, and these."""
    if not program.constvars:
        return program, []
    if (leaked := next((c for c in program.consts if isinstance(c, Tracer)), None)) is not None:
        raise leak_error(leaked)
    large = [not (isinstance(c, np.ndarray) and c.size <= INLINE_CONSTANT_SIZE) for c in program.consts]
    return program.opened(large), chosen(program.consts, large)


class CompiledProgram:
    """A compiled program that runs on buffers and gives arrays."""

    __slots__ = ("_handlers", "_run", "executable", "has_effects", "lowered", "out_types")

    def __init__(self, lowered: LoweredProgram, executable: Any):
        self.lowered = lowered
        self.executable = executable
        self.has_effects = bool(lowered.program.effects)
        shardings = _output_shardings(lowered, executable)
        self.out_types = [
            ArrayType(v.aval, s if m == far_kind(s) else s.with_memory_kind(m), lowered.committed)
            for v, s, m in zip(lowered.program.outvars, shardings, lowered.module.memories, strict=True)
        ]
        self._handlers = [_handler(t) for t in self.out_types]
        run = executable.execute_sharded
        if lowered.kept is not None or lowered.constants:
            run = _completing(run, lowered.kept, lowered.constants)
        if self.has_effects:
            run = functools.partial(run, with_tokens=True)
        elif lowered.devices[0].platform == "cpu" and _exchanges(lowered, executable):
            run = runs.pausing(run)
        self._run = run if len(lowered.devices) == 1 else _refusing_deleted(run, lowered.donated)

    @property
    def parameters(self) -> list[int]:
        """The numbers of the inputs that are parameters of the program, in its order; they follow the constants."""
        lowered = self.lowered
        return list(range(len(lowered.in_shardings))) if lowered.kept is None else list(lowered.kept)

    def reused(self) -> set[int]:
        """The numbers of the inputs whose buffers the compiler found a use for."""
        count, numbers = len(self.lowered.constants), self.parameters
        return {numbers[p - count] for p in compiler.aliased_parameters(self.executable) if p >= count}

    def layouts(self) -> tuple[dict[int, Any], list]:
        """How the parameters lie in memory, by the numbers of the inputs, and how the results do."""
        ins, outs = compiler.executable_layouts(self.executable)
        return dict(zip(self.parameters, ins[len(self.lowered.constants) :], strict=True)), outs

    def __call__(self, arguments: list) -> list[Array]:
        """Run on the buffers of all inputs and wrap the results."""
        if self.has_effects:
            return self._run_with_effects(arguments)
        out = self._run(arguments).consume_with_handlers(self._handlers)
        return list(map(Array, out, self.out_types))

    def _run_with_effects(self, arguments: list) -> list[Array]:
        if effects.ordered(self.lowered.program.effects):
            runs.effects_barrier()
        results = self._run(arguments)
        runs.remember(results.consume_token())
        out = results.consume_with_handlers(self._handlers)
        return list(map(Array, out, self.out_types))


def _handler(t: ArrayType) -> Any:
    """What makes the buffer of a result."""
    aval = physical_aval(t.aval)
    if 0 not in aval.shape or t.sharding.is_fully_replicated or not t.sharding.is_fully_addressable:
        return buffers.result_handler(aval, t.sharding, t.committed)
    # XLA gives a result without elements whole to all devices, whatever it was told.
    shape, devices = t.sharding.shard_shape(aval.shape), [s.device for s in t.sharding.shards(aval.shape)]
    pieces = [np.empty(shape, aval.dtype) for _ in devices]
    return lambda _: buffers.put_shards(aval, t.sharding, pieces, devices, t.committed)


def _completing(run: Callable, kept: Sequence[int] | None, constants: list) -> Callable:
    """The execution of a program that does not read all its inputs, or that takes constants before them."""

    def completed(arguments: list, **options: Any) -> Any:
        chosen = arguments if kept is None else [arguments[i] for i in kept]
        return run([*constants, *chosen], **options)

    return completed


_is_deleted = buffers.Buffer.is_deleted  # The C++ method itself: this runs for each argument of each call.


def _refusing_deleted(run: Callable, donated: Sequence[int]) -> Callable:
    """The execution on several devices, kept from deleted and twice used buffers, on which jaxlib ends the process."""

    def checked(arguments: list) -> Any:
        if any(map(_is_deleted, arguments)):
            raise DeletedArrayError(
                "call of a compiled function",
                expected="arrays with live buffers",
                got="one that was deleted or donated",
                mend="use the result of the call it was donated to",
            )
        return run(arguments)

    def checked_once(arguments: list) -> Any:
        if len(set(map(id, arguments))) < len(arguments):
            seen = list(map(id, arguments))
            if any(seen.count(seen[i]) > 1 for i in donated):
                raise donated_twice_error()
        return checked(arguments)

    return checked_once if donated else checked


def _exchanges(lowered: LoweredProgram, executable: Any) -> bool:
    """Whether the devices of a compiled program wait for each other in it."""
    return len(lowered.devices) > 1 and "channel_id=" in compiler.hlo_text(executable)


def _output_shardings(lowered: LoweredProgram, executable: Any) -> list:
    mesh = _mesh_of(lowered)
    if len(lowered.devices) == 1:
        # XLA says nothing of one device, but what lies over a mesh of it says so, as over several.
        here = placement.on_device(lowered.devices[0]) if mesh is None else NamedSharding(mesh, PartitionSpec())
        return [here if s is None else s for s in lowered.out_shardings]
    if not lowered.program.outvars:
        return []  # the engine has a sharding even of nothing
    found: Any = compiler.executable_shardings(executable)[1]
    # What has no sharding in its type lies over no Explicit axes.
    automatic = dict.fromkeys(mesh.explicit_axes, AxisType.Auto) if mesh is not None else {}
    out = []
    for v, declared, given in zip(lowered.program.outvars, lowered.out_shardings, found, strict=True):
        aval = physical_aval(v.aval)
        over = mesh and mesh.with_axis_types(automatic)
        if v.aval.sharding is not None:
            over = v.aval.sharding.mesh.on(lowered.devices)
        s = declared if declared is not None else from_hlo_sharding(given, lowered.devices, over, aval.ndim)
        out.append(s.in_order(lowered.devices, aval.ndim))
    return out


def _mesh_of(lowered: LoweredProgram) -> Any:
    """The mesh over which to say what the partitioner chose: the first that the program names in its device order."""
    placed = [
        s for e in lowered.program.eqns if e.primitive.placing is not None for s in e.primitive.placing(**e.params)
    ]
    named = [*lowered.in_shardings, *lowered.out_shardings, *placed]
    meshes = [*(s.mesh for s in named if isinstance(s, NamedSharding)), state.context.mesh]
    return next((m for m in meshes if isinstance(m, Mesh) and m.flat_devices == lowered.devices), None)


class Call:
    """A compiled program with what a call must do before it: bring some arguments elsewhere.

    Args:
      compiled: the program.
      moves: for each such argument its number, the type it must be brought to, and how.
    """

    __slots__ = ("compiled", "handlers", "is_direct", "is_plain", "moves", "out_types", "run", "watches_keys")

    def __init__(self, compiled: CompiledProgram, moves: list):
        self.compiled = compiled
        self.moves = moves
        self.run = compiled._run
        self.handlers = compiled._handlers
        self.out_types = compiled.out_types
        # Nothing but the moves and the execution is left to do, so that hot paths do it without another call.
        context = state.context
        self.watches_keys = context.debug_key_reuse
        self.is_plain = not (
            compiled.has_effects or context.debug_nans or context.debug_infs or context.debug_key_reuse
        )
        self.is_direct = self.is_plain and not moves

    def __call__(self, args: Sequence[Any], name_of: Callable[[int], str] | None = None) -> list[Array]:
        if self.watches_keys:
            keys.use_keys(self.compiled.lowered.program, args)
        try:
            return self.compiled([x._buffer for x in (brought(args, self.moves) if self.moves else args)])
        except Exception as error:
            explain_failure(error, args, name_of)
            raise


def moves(types: Sequence[ArrayType], lowered: LoweredProgram) -> list:
    """The arguments that are not where a program wants them: the number of each, the type to bring it to, and how.

    What the program reuses is put in a buffer of its own, what it only reads may be lent.
    """
    return [
        (i, ArrayType(t.aval, s, True), placement.put_as if i in lowered.donated else placement.lend_as)
        for i, (t, s) in enumerate(zip(types, lowered.in_shardings, strict=True))
        if t.sharding is not s and (t.sharding is None or t.sharding.canonical is not s.canonical)
    ]


def brought(args: Sequence[Any], moves: list) -> list[Array]:
    """The arguments of a call with some of them moved."""
    args = list(args)
    for i, type, place in moves:
        args[i] = place(args[i], type)
    return args


def explain_failure(error: Exception, args: Sequence[Any], name_of: Callable[[int], str] | None = None) -> None:
    """Raise what really went wrong where the engine reports it less clearly: a deleted argument, a failed callback.

    Args:
      error: what the engine reports.
      args: the arguments of the call.
      name_of: what the user calls argument `i`, where that is known.
    """
    for i, x in enumerate(args):
        if type(x) is Array and x._buffer.is_deleted():
            raise (deleted_error(x, name_of(i)) if name_of else deleted_error(x)) from None
    if "previously donated in the same call" in str(error) or "donate the same buffer twice" in str(error):
        raise donated_twice_error() from None
    if isinstance(error, XlaRuntimeError):
        raise user_error(error) from None


def prepare(program: Jaxpr, types: Sequence[ArrayType], name: str, names: Callable[[int], str] | None = None) -> Call:
    """Compile a program for arguments of these types, each staying where it is as far as possible."""
    names = names or (lambda i: f"{name}, argument {i}")
    devices, committed = common_devices(types, names)
    if devices is None and (named := named_sharding(program)) is not None:
        devices, committed = tuple(named._device_assignment), True
    if devices is None:
        devices = tuple(placement.default_sharding().device_set)
    whole = placement.everywhere(devices, [t.sharding for t in types])
    here = set(devices)
    in_shardings = [
        near(t.sharding) if t.sharding is not None and t.sharding.device_set == here else whole for t in types
    ]
    lowered = lower(program, devices, in_shardings, name=name, committed=committed)
    return Call(lowered.compile(), moves(types, lowered))


# --- single operations ---


def concrete_type(x: Any) -> ArrayType:
    """The type of an argument of an eager call."""
    if type(x) is Array:
        return x._type
    if isinstance(x, Tracer):
        raise leak_error(x)
    return ArrayType(aval_of(x), None, False)


def run(primitive: Primitive, args: Sequence[Any], params: dict) -> Any:
    """Run one operation on concrete values: the meaning of a primitive when nothing is being traced."""
    try:
        types = tuple([x._type for x in args])
    except AttributeError:  # data that is still on the host
        args = [x if type(x) is Array else scalar_array(x) for x in args]
        types = tuple([concrete_type(x) for x in args])
    try:
        call = primitive.calls.get((types, state.context, *params, *params.values()))
    except TypeError:  # a parameter that cannot be part of a key
        call = None
    if call is None or not call.is_direct:
        return _run_slowly(primitive, args, params)
    try:
        out = call.run([x._buffer for x in args]).consume_with_handlers(call.handlers)
    except Exception as error:
        explain_failure(error, args)
        raise
    return list(map(Array, out, call.out_types)) if primitive.multiple else Array(out[0], call.out_types[0])


def _run_slowly(primitive: Primitive, args: Sequence[Any], params: dict) -> Any:
    """Every run that is not a plain hit."""
    if primitive.run is not None:
        return primitive.run(*args, **params)
    types = tuple([concrete_type(x) for x in args])
    key = (types, state.context, *params, *params.values())
    # What a program compiles to is kept on it, so that it goes when the program goes.
    calls = next(iter(subprograms(params))).cache if primitive.holds_program else primitive.calls
    try:
        call = calls.get(key)
    except TypeError as error:
        raise _unhashable(primitive, params) from error
    if call is None:
        call = calls[key] = prepare_operation(primitive, types, params)
    out = call(args)
    if state.context.debug_nans or state.context.debug_infs:
        check_values(primitive.name, out)
    return out if primitive.multiple else out[0]


def prepare_operation(primitive: Primitive, types: Sequence[ArrayType], params: dict) -> Call:
    """Compile one operation for arguments of these types."""
    program = stage(functools.partial(primitive.listed, **params), [t.aval for t in types], primitive.name)
    return prepare(program, types, primitive.name)


def _unhashable(primitive: Primitive, params: dict) -> ArgumentTypeError:
    for name, value in params.items():
        try:
            hash(value)
        except TypeError:
            return ArgumentTypeError(
                f"{primitive.name}, parameter {name}",
                expected="a hashable value",
                got=value,
                mend="give it as a tuple or a Python scalar",
            )
    return ArgumentTypeError(primitive.name, expected="hashable parameters", got=repr(params), mend="give tuples")


def check_values(name: str, out: Sequence[Array]) -> None:
    """With `debug_nans` or `debug_infs`, refuse results that hold such values.

    Raises:
      FloatingPointError: a result has a NaN or an infinity that is not wanted.
    """
    for x in out:
        kind = getattr(x.dtype, "kind", "")
        if kind not in "fcV" or not np.issubdtype(np.asarray(x).astype(np.complex128).dtype, np.inexact):
            continue
        value = np.asarray(x).astype(np.complex64 if kind != "c" else x.dtype)
        if state.context.debug_nans and np.isnan(value).any():
            raise FloatingPointError(f"invalid value (nan) encountered in {name}")
        if state.context.debug_infs and np.isinf(value).any():
            raise FloatingPointError(f"invalid value (inf) encountered in {name}")


# --- whole functions ---


def eager_program(fun: Callable | None = None, *, static_argnames: Sequence[str] = ()) -> Any:
    """Make an eager call of a composite function one compiled program.

    While something is traced, and under `disable_jit`, the function simply runs. Called on concrete values, it is
    compiled for the types of its array arguments and the values of all others, and that program is kept.

    Args:
      fun: a function of arrays, of nested tuples and lists of them, and of static values. Anything that is not numeric
        is static by itself.
      static_argnames: names of numeric parameters that are static too, such as `axis`.

    Returns:
      The wrapped function.
    """
    if fun is None:
        return functools.partial(eager_program, static_argnames=static_argnames)
    function = _EagerFunction(fun, static_argnames)
    shortcuts, call_slowly = function.shortcuts, function.call

    @functools.wraps(fun)
    def eager_call(*args: Any, **kwargs: Any) -> Any:
        try:
            if state.trace is not None:
                return fun(*args, **kwargs)
            try:
                key: Any = (
                    tuple([x._type if type(x) is Array else (type(x), x) for x in args]),
                    tuple(kwargs.items()) if kwargs else (),
                    state.context,
                )
                shortcut = shortcuts.get(key)
            except TypeError:  # lists, dicts, and arrays by keyword
                key = shortcut = None
            if shortcut is None:
                return call_slowly(args, kwargs, key)
            call, which = shortcut
            try:
                out = call.run([args[i]._buffer for i in which]).consume_with_handlers(call.handlers)
            except Exception as error:
                explain_failure(error, args)
                raise
            return Array(out[0], call.out_types[0])
        except Exception as error:
            hide_frames(error)
            raise

    return as_boundary(eager_call)


class _EagerFunction:
    """The compiled forms of a function that is called eagerly.

    `shortcuts` is for calls whose arguments are arrays and static values, by their types and values: the direct call,
    and the numbers of the arguments that it takes. `calls` is for all.
    """

    def __init__(self, fun: Callable, static_argnames: Sequence[str]):
        positions = list(inspect.signature(fun).parameters)
        self.fun = fun
        self.static_positions = frozenset(positions.index(n) for n in static_argnames if n in positions)
        self.static_names = frozenset(static_argnames)
        self.calls: dict[Any, Any] = {}
        self.shortcuts: dict[Any, tuple[Call, tuple]] = {}
        _function_caches.extend((self.calls, self.shortcuts))

    def call(self, args: tuple, kwargs: dict, shortcut: Any) -> Any:
        """Call the function on concrete values, keeping the call under the key `shortcut` where it can be one."""
        if state.context.disable_jit:
            return self.fun(*args, **kwargs)
        static = [x for i, x in enumerate(args) if i in self.static_positions]
        dynamic = [x for i, x in enumerate(args) if i not in self.static_positions]
        for name, x in kwargs.items():
            (static if name in self.static_names else dynamic).append(x)
        leaves, tree = tree_flatten(dynamic)
        types = tuple([x._type if type(x) is Array else _leaf_type(x) for x in leaves])
        key = (types, tree, tuple(kwargs), len(args), tuple(static), state.context)
        try:
            entry = self.calls.get(key)
        except TypeError:  # a static value that cannot be part of a key
            return self.fun(*args, **kwargs)
        if entry is None:
            entry = self.calls[key] = self._prepare(args, kwargs, leaves, tree, types)
        call, out_tree, which = entry
        if shortcut is not None and call.is_direct and out_tree is None:
            positions = tuple([i for i, x in enumerate(args) if type(x) is Array])
            if len(positions) == len(call.compiled.lowered.in_shardings):
                self.shortcuts[shortcut] = call, positions
        arrays = leaves if which is None else [leaves[i] for i in which]
        if call.is_direct and out_tree is None:
            try:
                out = call.run([x._buffer for x in arrays]).consume_with_handlers(call.handlers)
            except Exception as error:
                explain_failure(error, arrays)
                raise
            return Array(out[0], call.out_types[0])
        out = call(arrays)
        if state.context.debug_nans or state.context.debug_infs:
            check_values(self.fun.__name__, out)
        return out[0] if out_tree is None else tree_unflatten(out_tree, out)

    def _prepare(self, args: tuple, kwargs: dict, leaves: list, tree: Any, types: tuple) -> tuple[Call, Any, Any]:
        """The call for leaves of these types, the tree of its result, and which leaves it takes.

        The tree is None for a single array, the numbers are None for all leaves.
        """
        which = [i for i, t in enumerate(types) if type(t) is ArrayType]
        found: list = []

        def flat(*tracers: Any) -> list:
            values = list(leaves)
            for i, tracer in zip(which, tracers, strict=True):
                values[i] = tracer
            dynamic = iter(tree_unflatten(tree, values))
            call_args = [x if i in self.static_positions else next(dynamic) for i, x in enumerate(args)]
            call_kwargs = {name: x if name in self.static_names else next(dynamic) for name, x in kwargs.items()}
            out, out_tree = tree_flatten(self.fun(*call_args, **call_kwargs))
            found.append(out_tree)
            return out

        array_types, name = [types[i] for i in which], self.fun.__name__
        program = stage(flat, [t.aval for t in array_types], name)
        call = prepare(program, array_types, name)
        return call, None if found[0] == _leaf_tree else found[0], None if len(which) == len(leaves) else which


_function_caches: list[dict] = []


class Static:
    """A leaf whose value is part of the key; compared by type too, since 1 is not True."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def __hash__(self) -> int:
        return hash(self.value)

    def __eq__(self, other: object) -> bool:
        return type(other) is Static and type(self.value) is type(other.value) and self.value == other.value

    def __repr__(self) -> str:
        return repr(self.value)


def _leaf_type(x: Any) -> Any:
    if type(x) in (int, float, complex, bool) or isinstance(x, np.ndarray | np.generic) or hasattr(x, "aval"):
        return concrete_type(x)
    return Static(x)


_leaf_tree = tree_flatten(0)[1]


def clear_caches() -> None:
    """Forget all compiled eager programs."""
    for primitive in registry.values():
        primitive.calls.clear()
    for calls in _function_caches:
        calls.clear()


eager_seat.take(run=run)
