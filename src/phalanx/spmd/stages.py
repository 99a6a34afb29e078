"""The stages of compilation: `Traced`, `Lowered` and `Compiled`, results of `trace` → `lower` → `compile`.

`Traced` holds the jaxpr, `Lowered` its StableHLO for given devices and shardings, `Compiled` the executable. A compiled
stage is callable. If it is called with arguments of other types, it raises an error that lists the differences.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from phalanx.core import (
    AbstractRef,
    ArgumentError,
    ArgumentTypeError,
    ConversionError,
    Jaxpr,
    RefCell,
    ShapedArray,
    ShapeDtypeStruct,
    ShardingError,
    TraceError,
    Tracer,
    TreeError,
    check_allowed,
    count_threads,
    current_scope,
    get_aval,
    has_refs,
    in_turn,
    is_open_constant,
    state,
)
from phalanx.engine import Cache, Device, api_boundary_class, client, compiler, stablehlo
from phalanx.engine.compile_only_devices import Topology
from phalanx.runtime import (
    UNLIKE,
    Array,
    ArrayType,
    Format,
    Layout,
    compiled_program,
    concrete_type,
    device_names,
    explain_failure,
    fast_call,
    is_abstract,
    named_sharding,
    on_abstract_devices,
    on_devices,
    transfer,
)
from phalanx.runtime.process_comparison import compare_transferred
from phalanx.sharding import AbstractMesh, AutoSharding, NamedSharding, PartitionSpec, Sharding
from phalanx.spmd.auto_resolution import check_no_refs, find_auto_mesh, find_mark, sharding_choices
from phalanx.spmd.call_arguments import CallArguments, Signature
from phalanx.spmd.jit_diagnostics import COMPILING, LOWERING, log_stage, warn_unused_donations
from phalanx.spmd.jit_primitive import Options
from phalanx.spmd.ref_arguments import RefArguments
from phalanx.spmd.sharding_resolution import (
    broadcast_declared_shardings,
    broadcast_formats,
    declared_layouts,
    flatten_in_shardings,
    prefer_declared_shardings,
    resolve_shardings,
)
from phalanx.transforms import function_name
from phalanx.tree import PyTreeDef, equality_errors, tree_unflatten, treedef_children
from phalanx.tree.key_paths import leaf_path

if TYPE_CHECKING:
    from concurrent.futures import Future

    from phalanx.engine.offline_compiler import OfflineProgram


@dataclasses.dataclass(frozen=True, slots=True)
class ArgInfo:
    """The type of one argument of a stage, and whether the argument is donated.

    Args:
      aval: the abstract value.
      donated: whether the buffer may be reused for results.

    Examples:
      >>> import phalanx
      >>> (x,), _ = phalanx.jit(lambda x: x + 1).lower(2.0).args_info
      >>> x.shape, x.donated
      ((), False)
    """

    aval: ShapedArray
    donated: bool = False

    shape = property(lambda self: self.aval.shape)
    dtype = property(lambda self: self.aval.dtype)

    def __repr__(self) -> str:
        return f"ArgInfo({self.aval.str_short()}, donated={self.donated})"


@api_boundary_class
class Traced:
    """The first stage of compilation: a function traced for arguments of given types.

    Args:
      fun: the function.
      program: its jaxpr.
      call: the arguments that it was traced with.
      out_tree: the structure of the result.
      settings: the options of `jit`.
      signature: the parameters of the function.

    Examples:
      >>> import phalanx
      >>> traced = phalanx.jit(lambda x: x + 1).trace(phalanx.ShapeDtypeStruct((3,), "int32"))
      >>> traced.out_info
      ShapeDtypeStruct(shape=(3,), dtype=int32)
    """

    def __init__(
        self,
        fun: Callable,
        program: Jaxpr,
        call: CallArguments,
        out_tree: PyTreeDef,
        settings: dict,
        signature: Signature,
    ):
        # Only the name: the function refers to its stages, and a cycle would keep both alive until garbage collection.
        self.fun_name = function_name(fun)
        self.program = program
        self.out_tree = out_tree
        self._settings = settings
        # Shapes only: a stage must not keep the buffers of its example arguments alive.
        self._call = call._replace(leaves=[shape_of(get_aval(x)) for x in call.leaves])
        self._shardings = [_argument_sharding(x) for x in call.leaves]
        self.is_open = any(map(is_open_constant, program.consts))
        self.options = self._make_options(fun)
        # Executables of `jit`, by the types of arguments, and those that are being compiled in the background.
        self.compiled: Cache[tuple, compiled_program.CompiledProgram] = Cache("spmd.jit_executables", 256)
        self.compiling: dict[tuple, Future[Compiled]] = {}
        # The choice of the shardings that AUTO left open, and the arguments that it concerns.
        self.auto: Any = None
        self._auto_inputs: frozenset[int] = frozenset()
        self._resolved: dict[tuple, Traced] = {}  # stages with a choice, by mesh and given shardings

    def _make_options(self, fun: Callable) -> Options:
        call, settings = self._call, self._settings
        out = tree_unflatten(self.out_tree, list(map(shape_of, self.program.out_avals)))
        donated = set(call.donated_leaves())
        keeps = getattr(fun, "keeps", None)  # `nnx` keeps the buffers of variables that are not written
        if donated and keeps is not None:
            donated -= keeps(call, self.out_tree)
        num_results = len(self.program.out_avals)
        return Options(
            in_shardings=flatten_in_shardings(settings, call, *call.dynamic(), self.fun_name),
            out_shardings=broadcast_declared_shardings(
                settings, "out_shardings", out, call.signature.what, num_results
            ),
            donated=tuple(i in donated for i in range(len(call.leaves))),
            inline=settings["inline"],
            keep_unused=settings["keep_unused"],
            moves_committed=settings.get("moves_committed", False),
            communication=settings.get("communication"),
            layouts=declared_layouts(settings, *call.dynamic(), out, call.signature.what),
        )

    def with_shardings_of(self, leaves: Sequence[Any]) -> Traced:
        """The same stage with the shardings of other example arguments: the jaxpr does not depend on them."""
        shardings = [_argument_sharding(x) for x in leaves]
        if shardings == self._shardings:
            return self
        # A shallow copy shares the jaxpr, and with it everything that is derived from it and cached.
        other = copy.copy(self)
        other._shardings = shardings
        return other

    def with_shardings(self, choice: Any) -> Traced:
        """The same stage with the program and the shardings of a choice, in the place of AUTO."""
        other, options = copy.copy(self), self.options
        other.program, other.auto, other._resolved = choice.program, choice, {}
        other._auto_inputs = frozenset(i for i, s in enumerate(options.in_shardings) if isinstance(s, AutoSharding))
        other.options = options._replace(in_shardings=choice.in_shardings, out_shardings=choice.out_shardings)
        other._shardings = [None if i in other._auto_inputs else s for i, s in enumerate(self._shardings)]
        return other

    def resolve_auto(self, given: Sequence[Any] | None = None) -> Traced:
        """The same stage with chosen shardings in the place of AUTO; this stage if there is none.

        Args:
          given: the shardings of the arguments, which count where they are not AUTO; by default those of the example
            arguments.

        Raises:
          ShardingError: there is no mesh, or no choice that fits into the memory.
        """
        declared = (*self.options.in_shardings, *self.options.out_shardings)
        mark = find_mark(declared)
        if mark is None:
            return self
        given = self._shardings if given is None else given
        check_no_refs(self.program, mark, self._call.signature.what)
        mesh = find_auto_mesh(self.program, [*declared, *given], self._call.signature.what)
        ins = zip(self.options.in_shardings, given, strict=True)
        key = (mesh, *(None if isinstance(s, AutoSharding) else g for s, g in ins))
        if key not in self._resolved:
            self._resolved[key] = self.with_shardings(sharding_choices.choose_shardings(self, mark, mesh, given))
        return self._resolved[key]

    jaxpr = property(lambda self: self.program)
    compiler_options = property(lambda self: self._settings["compiler_options"] or {})
    in_tree = property(lambda self: self._call.tree)
    effects = property(lambda self: self.program.effects)

    @property
    def in_avals(self) -> Any:
        """The abstract values of `(args, kwargs)`."""
        return tree_unflatten(self.in_tree, self.program.in_avals)

    @property
    def args_info(self) -> Any:
        """An `ArgInfo` for each argument, as `(args, kwargs)`."""
        return tree_unflatten(self.in_tree, list(map(ArgInfo, self.program.in_avals, self.options.donated)))

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """Indices of the flattened arguments whose buffers may be reused."""
        return tuple(i for i, d in enumerate(self.options.donated) if d)

    @property
    def out_info(self) -> Any:
        """A `ShapeDtypeStruct` for each result, in the structure of the result."""
        avals = self.program.out_avals
        known: list[Any] = [s if isinstance(s, Sharding) else None for s in self.options.out_shardings]
        out = tree_unflatten(self.out_tree, list(map(shape_of, avals)))
        formats = broadcast_formats(self._settings["out_shardings"], out, f"{self.fun_name}, out_shardings")
        for i, declared in enumerate(formats):
            if declared is not None and isinstance(declared.layout, Layout):
                known[i] = Format(declared.layout, known[i])
        leaves = [shape_of(a, s or a.type_sharding) for a, s in zip(avals, known, strict=True)]
        return tree_unflatten(self.out_tree, leaves)

    out_avals = property(lambda self: self.program.out_avals)

    def result_path(self, i: int) -> str:
        """The path of leaf `i` in the tree of results."""
        return leaf_path(self.out_info, i)

    def lower(
        self,
        *,
        lowering_platforms: Sequence[str] | None = None,
        _private_parameters: object = None,
        _topology: Callable[[int], Topology] | None = None,
    ) -> Lowered:
        """Lower the program to StableHLO for the shardings of the example arguments.

        Args:
          lowering_platforms: a platform to lower for, such as "tpu", which need not be available in this process;
            defaults to the platform of the devices. Shardings over an `AbstractMesh` are lowered for placeholder
            devices, or for those of the function's own mesh if it has the same axes.
          _topology: as in `compiled_program.lower`.

        Returns:
          The second stage of compilation. With placeholder devices it can be inspected, but not compiled.

        Raises:
          ArgumentError: there are several platforms. `phalanx.export` supports multi-platform programs.
          ShardingError: the function has a mesh of its own with other axes than the `AbstractMesh`.
        """
        resolved = self.resolve_auto()
        if resolved is not self:
            return resolved.lower(lowering_platforms=lowering_platforms, _topology=_topology)
        platform = _one_platform(lowering_platforms)
        options, types = self.options, self.argument_types()
        declared = [*options.in_shardings, *options.out_shardings, *(t.sharding for t in types)]
        # The first sharding over an AbstractMesh decides that the program is lowered for placeholder devices.
        named = next(filter(is_abstract, declared), None)
        if named is None and named_sharding(self.program) is None and all(s is None for s in declared):
            mesh = state.context.mesh
            over = NamedSharding(mesh, PartitionSpec()) if isinstance(mesh, AbstractMesh) and not mesh.empty else None
            named = named_sharding(self.program, True) or over
        if named is None or named.mesh.size == 1:
            return self.lower_for(types, platform, topology=_topology)
        known = named.mesh.abstract_device
        kind = platform or (known and known.platform) or transfer.default_sharding().device.platform
        own = named_sharding(self.program)
        if not isinstance(own, NamedSharding):
            return self.lower_for(types, kind, on_abstract_devices(named, kind), _topology)
        if own.mesh.shape != named.mesh.shape:
            raise ShardingError(
                f"lowering of {self.fun_name}",
                expected=f"shardings over {named.mesh} inside the function, as its arguments have",
                got=f"a shard_map or sharding over {own.mesh}",
                fix="leave mesh out of shard_map, which then takes the mesh in context, and give "
                "with_sharding_constraint bare specs, or lay the arguments over a mesh of these axes",
            )
        return self.lower_for(types, kind, own, _topology)

    def argument_types(self) -> list[ArrayType]:
        """Types and shardings of the example arguments."""
        return [ArrayType(a, s, s is not None) for a, s in zip(self.program.in_avals, self._shardings, strict=True)]

    def lower_for(
        self,
        types: Sequence[ArrayType],
        platform: str | None = None,
        absent: Sharding | None = None,
        topology: Callable[[int], Topology] | None = None,
    ) -> Lowered:
        """Lower the program for arguments of the given types.

        Args:
          types: types of the arguments, with their shardings.
          platform: the platform to lower for; defaults to the platform of the devices.
          absent: a sharding over placeholder devices, which replace those of abstract shardings.
          topology: as in `compiled_program.lower`.

        Returns:
          The second stage of compilation.

        Raises:
          TraceError: the function closes over a tracer.
        """
        if self.is_open:
            raise TraceError(
                f"lowering of {self.fun_name}",
                expected="a function without tracers in its closure",
                got="a function that closes over a traced value of a surrounding transformation",
                fix="pass the traced value as an argument of the function",
            )
        resolved = self.resolve_auto([t.sharding if t.committed else None for t in types])
        if resolved is not self:
            return resolved.lower_for(types, platform, absent, topology)
        types = [ArrayType(t.aval, t.sharding, False) if i in self._auto_inputs else t for i, t in enumerate(types)]
        options, program, refs = self.options, self.program, None
        donated: Sequence[int] = self.donate_argnums
        if has_refs(program):
            refs = RefArguments.of(program)
            types = refs.types(types)
            program, options, donated = refs.jaxpr, refs.options(options, types), refs.donated
            if options.layouts is not None:
                raise ArgumentError(
                    f"lowering of {self.fun_name}",
                    expected="a function without mutable array references, since layouts are declared",
                    got="one that reads or writes references",
                    fix="leave the layouts out, or pass the values of the references",
                )
        ins, outs = options.in_shardings, options.out_shardings
        if absent is not None:
            devices = absent._device_assignment
            types = [ArrayType(t.aval, on_devices(t.sharding, devices), t.committed) for t in types]
            ins, outs = (tuple([on_devices(s, devices) for s in given]) for given in (ins, outs))
        # Legacy transformations move committed arguments instead of refusing them.
        types = prefer_declared_shardings(types, ins) if options.moves_committed else types
        devices, in_shardings, committed = resolve_shardings(
            program,
            types,
            ins,
            outs,
            lambda i: f"{self.fun_name}, argument {_input_paths(self._call, refs)[i]}",
            lambda i: f"{self.fun_name}, result{self.result_path(i)}",
            absent,
        )
        with log_stage(LOWERING, self.fun_name, self.program.in_avals):
            lowered = compiled_program.lower(
                program,
                devices,
                in_shardings,
                outs,
                donated=donated,
                keep_unused=options.keep_unused,
                name=self.fun_name,
                committed=committed,
                platform=platform,
                communication=options.communication,
                layouts=options.layouts,
                topology=topology,
            )
        return Lowered(self, lowered, refs)

    def __repr__(self) -> str:
        return f"Traced({self.fun_name})"


def _input_paths(call: CallArguments, refs: RefArguments | None) -> list[str]:
    """The names of the inputs of a program: the paths of the arguments, after references in closures."""
    return [*(f"(reference {i} in the closure)" for i in range(len(refs.closed) if refs else 0)), *call.paths()]


def _one_platform(names: Sequence[str] | None) -> str | None:
    """The jaxlib name of the platform to lower for; None for the platform of the devices."""
    names = (names,) if isinstance(names, str) else tuple(names or ())
    if len(names) > 1:
        raise ArgumentError(
            "lower, argument lowering_platforms",
            expected="one platform",
            got=repr(names),
            fix="use phalanx.export.export(f, platforms=...) for a multi-platform program",
        )
    return client.platform_name(names[0]) if names else None


def _dialect(where: str, dialect: str | None) -> str:
    """Validate the name of an IR dialect; the default is StableHLO."""
    if dialect in (None, "stablehlo", "hlo"):
        return dialect or "stablehlo"
    raise ArgumentError(
        f"{where}, argument dialect", expected='"stablehlo" or "hlo"', got=repr(dialect), fix="choose one of the two"
    )


def shape_of(aval: ShapedArray, sharding: Sharding | None = None) -> ShapeDtypeStruct:
    """The shape, dtype and weak type of an abstract value, with the given sharding."""
    is_ref = isinstance(aval, AbstractRef)
    return ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding, weak_type=aval.weak_type, is_ref=is_ref)


def _argument_sharding(x: object) -> Any:
    """The sharding of a committed array, or of a `ShapeDtypeStruct` with a sharding; None otherwise."""
    if type(x) is Array or type(x) is RefCell:
        return x.sharding if x.committed else None
    return x.sharding if isinstance(x, ShapeDtypeStruct) else None


class _LaterStage:
    """The properties that `Lowered` and `Compiled` inherit from the first stage."""

    _traced: Traced
    program: Any  # the program of the runtime
    refs: RefArguments | None  # how the program takes the mutable array references of the function, if there are any

    @property
    def _in_shardings(self) -> Sequence[Sharding]:
        """The shardings of the arguments, without references that the function closes over."""
        return self.program.lowered.in_shardings[len(self.refs.closed) if self.refs else 0 :]

    auto = property(lambda self: self._traced.auto)
    in_tree = property(lambda self: self._traced.in_tree)
    out_tree = property(lambda self: self._traced.out_tree)
    args_info = property(lambda self: self._traced.args_info)
    in_avals = property(lambda self: self._traced.in_avals)
    donate_argnums = property(lambda self: self._traced.donate_argnums)
    effects = property(lambda self: self._traced.effects)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._traced.fun_name})"


@api_boundary_class
class Lowered(_LaterStage):
    """The second stage of compilation: a program in StableHLO for given devices and shardings.

    Args:
      traced: the first stage.
      program: the lowered program of the runtime.

    Examples:
      >>> import phalanx
      >>> "stablehlo.add" in phalanx.jit(lambda x: x + 1).lower(2.0).as_text()
      True
    """

    def __init__(self, traced: Traced, program: compiled_program.LoweredProgram, refs: RefArguments | None = None):
        self._traced, self.refs = traced, refs
        self.program = program

    out_info = property(lambda self: self._traced.out_info)
    fun_name = property(lambda self: self._traced.fun_name)

    @property
    def input_paths(self) -> list[str]:
        """The names of the inputs of the program: the paths of the arguments, after references in closures."""
        return _input_paths(self._traced._call, self.refs)

    def compile(
        self, compiler_options: dict | None = None, *, device_assignment: Sequence[Device] | None = None
    ) -> Compiled:
        """Compile the program with XLA.

        Args:
          compiler_options: options passed to XLA, in addition to the ones given to `jit`.
          device_assignment: the devices of a program over an `AbstractMesh`, in partition order.

        Returns:
          The third stage of compilation.

        Raises:
          ShardingError: the program is over another number of devices, or over other devices.
        """
        traced = self._traced
        lowered = self.program if device_assignment is None else self._lower_on(tuple(device_assignment))
        with log_stage(COMPILING, traced.fun_name, traced.program.in_avals):
            program = lowered.compile(traced.compiler_options | (compiler_options or {}), lambda i: self.input_paths[i])
        warn_unused_donations(traced.fun_name, traced._call.path, traced.program.in_avals, program)
        return Compiled(traced, program, self.refs)

    def _lower_on(self, devices: tuple) -> compiled_program.LoweredProgram:
        """The program for these devices, in the place of placeholders or of the default device."""
        program, traced = self.program, self._traced
        if devices == program.devices:
            return program
        if len(devices) != len(program.devices) or (program.is_attached and program.committed):
            raise ShardingError(
                f"compile of {traced.fun_name}, argument device_assignment",
                expected=f"{len(program.devices)} devices, as of the shardings, {device_names(program.devices)}",
                got=device_names(devices),
                fix="pass as many devices as the AbstractMesh has, or leave device_assignment out over a Mesh",
            )
        return traced.lower_for(traced.argument_types(), absent=transfer.replicated_sharding(devices)).program

    def compile_offline(self, topology: Topology, on_start: Callable[[Any], object] | None = None) -> OfflineProgram:
        """Compile the program in another process for devices that need not be attached.

        Args:
          topology: the devices, of the platform that the program is lowered for.
          on_start: called with the process, which another thread may end.

        Returns:
          The compiler's answer, which can be read, but not run.
        """
        return self.program.compile_offline(topology, self._traced.compiler_options, on_start)

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """The program as text.

        Args:
          dialect: "stablehlo" (default) or "hlo".
          debug_info: whether the text includes names and source locations.

        Returns:
          The text.
        """
        module = self.program.module.module
        if _dialect("as_text", dialect) == "hlo":
            return stablehlo.to_hlo_text(module, debug_info)
        return module.operation.get_asm(enable_debug_info=debug_info)

    def compiler_ir(self, dialect: str | None = None) -> Any:
        """The MLIR module ("stablehlo") or the XLA computation ("hlo").

        Args:
          dialect: "stablehlo" (default) or "hlo".

        Returns:
          The module or the computation.
        """
        module = self.program.module.module
        return stablehlo.to_hlo(module) if _dialect("compiler_ir", dialect) == "hlo" else module

    def cost_analysis(self) -> Any:
        """XLA's cost estimates of the program before compilation, such as FLOPs and bytes accessed.

        Returns:
          A dict from the name of an estimate to its value.
        """
        return stablehlo.cost_analysis(self.program.module.module, self.program.devices[0])


@api_boundary_class
class Compiled(_LaterStage):
    """The third stage of compilation: an executable for arguments of given types and shardings.

    Args:
      traced: the first stage.
      program: the compiled program of the runtime.

    Examples:
      >>> import phalanx
      >>> compiled = phalanx.jit(lambda x: x + 1).lower(2.0).compile()
      >>> float(compiled(4.0))
      5.0
    """

    def __init__(self, traced: Traced, program: compiled_program.CompiledProgram, refs: RefArguments | None = None):
        self._traced, self.refs = traced, refs
        self.program = program
        self._seen: tuple | None = None  # types and context of the previous call
        # For arguments like in two calls in a row: the fast call and its context.
        self._call_alike: Any = None
        self._context: Any = None

    out_avals = property(lambda self: self._traced.program.out_avals)

    @property
    def out_info(self) -> Any:
        """A `ShapeDtypeStruct` with a sharding for each result, in the structure of the result."""
        return tree_unflatten(self.out_tree, [shape_of(t.aval, t.sharding) for t in self.program.out_types])

    @property
    def input_formats(self) -> Any:
        """Layouts and shardings of the arguments, as `(args, kwargs)`; arguments that are not read have no layout."""
        # XLA drops parameters that the program does not read, so there are fewer layouts than arguments.
        found = {i: Layout.of_engine(layout) for i, layout in self.program.layouts()[0].items()}
        return tree_unflatten(self.in_tree, [Format(found.get(i), s) for i, s in enumerate(self._in_shardings)])

    @property
    def output_formats(self) -> Any:
        """Layouts and shardings of the results."""
        pairs = zip(self.program.layouts()[1], self.program.out_types, strict=True)
        return tree_unflatten(self.out_tree, [Format(Layout.of_engine(layout), t.sharding) for layout, t in pairs])

    @property
    def input_shardings(self) -> Any:
        """The shardings of the arguments, as `(args, kwargs)`."""
        return tree_unflatten(self.in_tree, self._in_shardings)

    @property
    def output_shardings(self) -> Any:
        """The shardings of the results."""
        return tree_unflatten(self.out_tree, [t.sharding for t in self.program.out_types])

    def as_text(self) -> str:
        """The program after XLA's optimizations.

        Returns:
          HLO text.
        """
        return compiler.hlo_text(self.program.executable)

    def cost_analysis(self) -> Any:
        """XLA's cost estimates of the optimized program, such as FLOPs and bytes accessed.

        Returns:
          A dict from the name of an estimate to its value.
        """
        return compiler.cost_analysis(self.program.executable)

    def memory_analysis(self) -> Any:
        """XLA's memory statistics for one device.

        Returns:
          A record of jaxlib with sizes in bytes.
        """
        return compiler.memory_stats(self.program.executable)

    def runtime_executable(self) -> Any:
        """The loaded executable.

        Returns:
          An object of jaxlib.
        """
        return self.program.executable

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program; the same as calling the stage.

        Args:
          *args, **kwargs: the arguments.

        Returns:
          The result of the function.
        """
        return self(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program.

        Args:
          *args, **kwargs: arguments of the types that the stage was compiled for; static arguments may be omitted.

        Returns:
          The result of the function.

        Raises:
          TreeError: the arguments have another structure.
          ArgumentTypeError: an argument has another shape, dtype or sharding.
          TraceError: an argument is a tracer.
        """
        if current_scope().context is self._context:
            try:
                out = self._call_alike(args, kwargs)
            except Exception as error:
                call, _ = self._split(args, kwargs)
                explain_failure(error, call.leaves, self._argument_name(call))
                raise
            if out is not UNLIKE:
                return out
        return self._call(args, kwargs)

    def _split(self, args: tuple, kwargs: dict) -> tuple[CallArguments, tuple]:
        """The flattened arguments of a call, and the static ones that were given."""
        known = self._traced._call
        try:
            call = known.signature.split(args, kwargs)
            is_complete = call.tree == self.in_tree
        except ArgumentTypeError:  # An array that follows an omitted static argument is no hashable value.
            if not known.statics:
                raise
            is_complete = False
        # Static arguments may be omitted, which changes the structure: insert the known ones and try again.
        if not is_complete and known.statics:
            return known.signature.split(*known.with_statics(args, kwargs)), ()
        return call, call.statics

    def _argument_name(self, call: CallArguments) -> Callable[[int], str]:
        """The user's name for each argument, in errors."""
        return lambda i: f"call of compiled {self._traced.fun_name}, argument {call.path(i)}"

    def _call(self, args: tuple, kwargs: dict) -> Any:
        """Run the program, with all checks of the arguments."""
        traced = self._traced
        check_allowed("no_execution", f"a run of {traced.fun_name}")
        call, statics = self._split(args, kwargs)
        if call.tree != self.in_tree:
            raise TreeError(
                f"call of compiled {traced.fun_name}",
                expected="arguments with the structure that it was compiled for",
                got=_describe_tree_differences(self.in_tree, call.tree),
                fix=f"pass arguments with that structure, or call the jit function {traced.fun_name} itself",
            )
        self._check(call)
        if self.refs is None or not count_threads():
            return self._run(args, kwargs, call, statics)
        return in_turn(self.refs.of_call(call.leaves), lambda: self._run(args, kwargs, call, statics))

    def _run(self, args: tuple, kwargs: dict, call: CallArguments, statics: Any) -> Any:
        traced = self._traced
        given, avals, lowered = call.leaves, traced.program.in_avals, self.program.lowered
        if self.refs is not None:
            given, avals = self.refs.read(given), self.refs.jaxpr.in_avals
        types = [*map(concrete_type, given)]
        compiled_program.check_split_values(types, lowered, self._argument_name(call))
        is_compared = current_scope().context.debug_compare_host_values
        if is_compared:
            wanted = dict(enumerate(lowered.in_shardings))
            compare_transferred(traced.fun_name, given, wanted, self._argument_name(call))
        # The executable takes only buffers with exactly the shardings that it was compiled for.
        leaves = [
            x
            if type(x) is Array and x.sharding is s and x._type.layout == layout
            else transfer.put_typed(x, ArrayType(a, s, True, layout))
            for x, s, a, layout in zip(given, lowered.in_shardings, avals, lowered.layouts[0], strict=True)
        ]
        try:
            out = self.program([x._buffer for x in leaves])
        except Exception as error:
            explain_failure(error, leaves, self._argument_name(call))
            raise
        if self.refs is not None:
            return tree_unflatten(self.out_tree, self.refs.write(call.leaves, out))
        seen = types, current_scope().context
        if seen == self._seen and not (self.program.has_effects or is_compared):
            moves = compiled_program.plan_transfers(types, lowered, self._argument_name(call))
            self._call_alike = fast_call(args, kwargs, statics, types, moves, self.program, self.out_tree)
            self._context = seen[1]
        self._seen = seen
        return tree_unflatten(self.out_tree, out)

    def _check(self, call: CallArguments) -> None:
        known, moves = dict(self._traced._call.statics), self._traced.options.moves_committed
        differences = [
            f"static argument {call.signature.name_of(where)} is {static!r}, compiled for {known.get(where, 'none')!r}"
            for where, static in call.statics
            if known.get(where) != static
        ]
        for i, (x, aval, s) in enumerate(
            zip(call.leaves, self._traced.program.in_avals, self._in_shardings, strict=True)
        ):
            if isinstance(x, Tracer):
                raise TraceError(
                    f"call of compiled {self._traced.fun_name}, argument {call.path(i)}",
                    expected="an array",
                    got=x.describe(),
                    fix=f"call the jit function {self._traced.fun_name} itself inside a transformation",
                )
            try:
                held = concrete_type(x)
            except ArgumentTypeError:
                call.avals(f"call of compiled {self._traced.fun_name}")
                raise
            if not held.aval.matches(aval):
                differences.append(f"{call.path(i)} is {held.aval.str_short()}, compiled for {aval.str_short()}")
            # Uncommitted arguments are transferred to the sharding that the stage was compiled for.
            elif held.committed and not (moves or held.sharding.is_equivalent_to(s, aval.ndim)):
                differences.append(f"{call.path(i)} has sharding {held.sharding}, compiled for {s}")
        if differences:
            raise ConversionError(
                f"call of compiled {self._traced.fun_name}",
                expected="arguments of the types that it was compiled for",
                got="; ".join(differences),
                fix=f"convert the arguments, or call the jit function {self._traced.fun_name}, which compiles again",
            )


def _describe_tree_differences(known: PyTreeDef, given: PyTreeDef) -> str:
    """The differences between two structures of arguments `(args, kwargs)`, in words."""
    pairs = zip(("args", "kwargs"), treedef_children(known), treedef_children(given), strict=True)
    return "; ".join(
        f"{e.where} is {e.got}, compiled for {e.expected}"
        for what, a, b in pairs
        for e in equality_errors(a, b, what=what)
    )
