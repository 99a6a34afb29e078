"""Stages: a compiled function on its way, `trace` → `lower` → `compile`, each to be looked at.

`Traced` holds the program, `Lowered` its StableHLO for given devices and shardings, `Compiled` the executable. A
compiled stage is callable, and refuses arguments that it was not made for with a list of the differences.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core.aval import ShapedArray, ShapeDtypeStruct, aval_of
from phalanx.core.config import state
from phalanx.core.errors import ArgumentError, ArgumentTypeError, TraceError, TreeError
from phalanx.core.jaxpr import Jaxpr
from phalanx.core.trace import Tracer
from phalanx.engine import client, compiler, stablehlo
from phalanx.engine.frames import boundaries
from phalanx.runtime import dispatch, placement
from phalanx.runtime.array import Array, ArrayType
from phalanx.runtime.devices import named_sharding
from phalanx.runtime.dispatch import concrete_type, explain_failure
from phalanx.runtime.layout import Format, Layout
from phalanx.runtime.stand_ins import is_abstract, on_devices, on_stand_ins
from phalanx.sharding import AbstractMesh, NamedSharding, PartitionSpec
from phalanx.spmd.arguments import CallArguments, Signature
from phalanx.spmd.observation import logged, warn_of_vain_donations
from phalanx.spmd.primitive import Options
from phalanx.spmd.resolution import declared_inputs, declared_shardings, loosened, resolve
from phalanx.tree import equality_errors, tree_unflatten, treedef_children
from phalanx.tree.paths import leaf_path


class ArgInfo:
    """What a stage knows of one argument or result.

    Args:
      aval: its abstract value.
      donated: whether its buffer may be reused.

    Examples:
      >>> import phalanx
      >>> (x,), _ = phalanx.jit(lambda x: x + 1).lower(2.0).args_info
      >>> x.shape, x.donated
      ((), False)
    """

    __slots__ = ("_aval", "donated")

    def __init__(self, aval: Any, donated: bool = False):
        self._aval = aval
        self.donated = donated

    aval = property(lambda self: self._aval)
    shape = property(lambda self: self._aval.shape)
    dtype = property(lambda self: self._aval.dtype)

    def __repr__(self) -> str:
        return f"ArgInfo({self._aval}, donated={self.donated})"


@boundaries
class Traced:
    """A function traced for arguments of given types: the first stage.

    Args:
      fun: the function.
      program: what it does.
      call: the arguments it was traced for.
      out_tree: the structure of the result.
      settings: the options given to `jit`.
      signature: the parameters of the function.

    Examples:
      >>> import phalanx
      >>> traced = phalanx.jit(lambda x: x + 1).trace(phalanx.ShapeDtypeStruct((3,), "int32"))
      >>> traced.out_info
      ShapeDtypeStruct(shape=(3,), dtype=int32)
    """

    def __init__(
        self, fun: Callable, program: Jaxpr, call: CallArguments, out_tree: Any, settings: dict, signature: Signature
    ):
        self.fun = fun
        self.program = program
        self.out_tree = out_tree
        self._settings = settings
        self._call = call._replace(leaves=[_shape_of(x) for x in call.leaves])
        self._shardings = [_argument_sharding(x) for x in call.leaves]
        self.is_open = any(isinstance(c, Tracer) for c in program.consts)
        self.options = self._make_options()
        self.compiled: dict[tuple, dispatch.CompiledProgram] = {}  # what `jit` runs, by the placements of arguments

    def _make_options(self) -> Options:
        ins = declared_inputs(self._settings, self._call, *self._call.dynamic(), self.fun_name)
        out = tree_unflatten(self.out_tree, [_shape_of(v) for v in self.program.out_avals])
        outs = declared_shardings(self._settings, "out_shardings", out)
        donated = set(self._call.donated())
        keeps = getattr(self.fun, "keeps", None)  # a function of modules holds on to variables that it does not write
        if donated and keeps is not None:
            donated -= keeps(self._call, self.out_tree)
        return Options(
            ins,
            outs,
            tuple(i in donated for i in range(len(self._call.leaves))),
            self._settings["inline"],
            self._settings["keep_unused"],
            self._settings.get("brings", False),
        )

    def placed(self, leaves: Sequence[Any]) -> Traced:
        """The same stage for arguments that lie as these do: one trace serves all placements."""
        shardings = [_argument_sharding(x) for x in leaves]
        if shardings == self._shardings:
            return self
        other = copy.copy(self)
        other._shardings = shardings
        return other

    jaxpr = property(lambda self: self.program)
    fun_name = property(lambda self: getattr(self.fun, "__name__", "fn"))
    in_tree = property(lambda self: self._call.tree)
    effects = property(lambda self: self.program.effects)

    @property
    def in_avals(self) -> Any:
        """The abstract values of `(args, kwargs)`."""
        return tree_unflatten(self.in_tree, self.program.in_avals)

    @property
    def args_info(self) -> Any:
        """For each argument its type and whether it is donated, as `(args, kwargs)`."""
        infos = [ArgInfo(a, d) for a, d in zip(self.program.in_avals, self.options.donated, strict=True)]
        return tree_unflatten(self.in_tree, infos)

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """The numbers of the flat arguments whose buffers may be reused."""
        return tuple(i for i, d in enumerate(self.options.donated) if d)

    @property
    def out_info(self) -> Any:
        """The types of the results, as the function returns them."""
        shapes = [
            ShapeDtypeStruct(a.shape, a.dtype, sharding=s or a.sharding, weak_type=a.weak_type)
            for a, s in zip(self.program.out_avals, self.options.out_shardings, strict=True)
        ]
        return tree_unflatten(self.out_tree, shapes)

    out_avals = property(lambda self: self.program.out_avals)

    def result_path(self, i: int) -> str:
        """Where leaf `i` of the result is in its tree."""
        return leaf_path(self.out_info, i)

    def lower(self, *, lowering_platforms: Sequence[str] | None = None, _private_parameters: Any = None) -> Lowered:
        """Lower for the shardings that the example arguments have: the second stage.

        Args:
          lowering_platforms: one platform to lower for, such as "tpu", that need not be here; that of the devices if
            left out. What lies over an `AbstractMesh` is lowered for as many devices as it says.

        Returns:
          The stage. One for devices that are not here can be looked at, but not compiled.

        Raises:
          ArgumentError: several platforms are named, for which `phalanx.export` writes one program.
        """
        platform = _one_platform(lowering_platforms)
        options, types = self.options, self.argument_types()
        declared = [*options.in_shardings, *options.out_shardings, *(t.sharding for t in types)]
        named = next(filter(is_abstract, declared), None)
        if named is None and named_sharding(self.program) is None and all(s is None for s in declared):
            mesh = state.context.mesh
            over = NamedSharding(mesh, PartitionSpec()) if isinstance(mesh, AbstractMesh) and not mesh.empty else None
            named = named_sharding(self.program, True) or over
        if named is None or named.mesh.size == 1:
            return self.lower_for(types, platform)
        known = named.mesh.abstract_device
        kind = platform or (known and known.platform) or placement.default_sharding().device.platform
        return self.lower_for(types, kind, on_stand_ins(named, kind))

    def argument_types(self) -> list[ArrayType]:
        """The types and placements of the arguments it was traced for."""
        return [ArrayType(a, s, s is not None) for a, s in zip(self.program.in_avals, self._shardings, strict=True)]

    def lower_for(self, types: Sequence[ArrayType], platform: str | None = None, absent: Any = None) -> Lowered:
        """Lower for arguments of these types; those that say no devices lie over those of `absent`, a sharding."""
        if self.is_open:
            raise TraceError(
                f"lowering of {self.fun_name}",
                expected="a function that closes over no traced value",
                got="one that closes over a value of a transformation around it",
                mend="pass that value as an argument",
            )
        options = self.options
        ins, outs = options.in_shardings, options.out_shardings
        if absent is not None:
            devices = absent._device_assignment
            types = [ArrayType(t.aval, on_devices(t.sharding, devices), t.committed) for t in types]
            ins, outs = (tuple([on_devices(s, devices) for s in given]) for given in (ins, outs))
        types = loosened(types, ins) if options.brings else types
        devices, in_shardings, committed = resolve(
            self.program,
            types,
            ins,
            outs,
            lambda i: f"{self.fun_name}, argument {self._call.path(i)}",
            lambda i: f"{self.fun_name}, result{self.result_path(i)}",
            absent,
        )
        with logged("Lowering", self.fun_name, self.program.in_avals):
            program = dispatch.lower(
                self.program,
                devices,
                in_shardings,
                outs,
                donated=self.donate_argnums,
                keep_unused=options.keep_unused,
                name=self.fun_name,
                committed=committed,
                platform=platform,
            )
        return Lowered(self, program)

    def __repr__(self) -> str:
        return f"Traced({self.fun_name})"


def _one_platform(names: Sequence[str] | None) -> str | None:
    """The platform asked for, under the name of the engine; None for that of the devices."""
    names = (names,) if isinstance(names, str) else tuple(names or ())
    if len(names) > 1:
        raise ArgumentError(
            "lower, argument lowering_platforms",
            expected="one platform",
            got=repr(names),
            mend="write a program for several platforms with phalanx.export.export(f, platforms=...)",
        )
    return client.platform_name(names[0]) if names else None


def _dialect(where: str, dialect: str | None) -> str:
    """The language asked for; StableHLO where none is."""
    if dialect in (None, "stablehlo", "hlo"):
        return dialect or "stablehlo"
    raise ArgumentTypeError(
        f"{where}, argument dialect", expected='"stablehlo" or "hlo"', got=repr(dialect), mend="choose one of the two"
    )


def _shape_of(x: Any) -> ShapeDtypeStruct:
    aval = x if type(x) is ShapedArray else aval_of(x)
    return ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)


def _argument_sharding(x: Any) -> Any:
    """The sharding of a committed array or of a shape that names one."""
    if type(x) is Array:
        return x.sharding if x.committed else None
    return x.sharding if isinstance(x, ShapeDtypeStruct) else None


@boundaries
class Lowered:
    """A program in StableHLO for given devices and shardings: the second stage.

    Args:
      traced: the first stage.
      program: what the core lowered.

    Examples:
      >>> import phalanx
      >>> "stablehlo.add" in phalanx.jit(lambda x: x + 1).lower(2.0).as_text()
      True
    """

    def __init__(self, traced: Traced, program: dispatch.LoweredProgram):
        self._traced = traced
        self.program = program

    in_tree = property(lambda self: self._traced.in_tree)
    out_tree = property(lambda self: self._traced.out_tree)
    args_info = property(lambda self: self._traced.args_info)
    out_info = property(lambda self: self._traced.out_info)
    in_avals = property(lambda self: self._traced.in_avals)
    donate_argnums = property(lambda self: self._traced.donate_argnums)
    effects = property(lambda self: self._traced.effects)

    def compile(self, compiler_options: dict | None = None) -> Compiled:
        """Compile: the third stage.

        Args:
          compiler_options: options passed to XLA, over those given to `jit`.

        Returns:
          The stage.
        """
        traced = self._traced
        options = (traced._settings["compiler_options"] or {}) | (compiler_options or {})
        with logged("Compiling", traced.fun_name, traced.program.in_avals):
            program = self.program.compile(options)
        warn_of_vain_donations(traced.fun_name, traced._call.path, traced.program.in_avals, program)
        return Compiled(traced, program)

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """The program as text, in the dialect "stablehlo" (default) or "hlo".

        Args:
          dialect: "stablehlo", or "hlo"; None for the former.
          debug_info: whether StableHLO text tells names and lines of the source.

        Returns:
          The text.
        """
        module = self.program.module.module
        if _dialect("as_text", dialect) == "hlo":
            return stablehlo.to_hlo_text(module)
        return module.operation.get_asm(enable_debug_info=debug_info)

    def compiler_ir(self, dialect: str | None = None) -> Any:
        """The MLIR module ("stablehlo") or the XLA computation ("hlo").

        Args:
          dialect: as in `as_text`.

        Returns:
          The module or the computation.
        """
        module = self.program.module.module
        return stablehlo.to_hlo(module) if _dialect("compiler_ir", dialect) == "hlo" else module

    def cost_analysis(self) -> Any:
        """What XLA estimates of the program before compiling: operations, bytes accessed.

        Returns:
          The estimates by name.
        """
        return stablehlo.cost_analysis(self.program.module.module, self.program.devices[0])

    def __repr__(self) -> str:
        return f"Lowered({self._traced.fun_name})"


@boundaries
class Compiled:
    """An executable for arguments of given types and shardings: the third stage.

    Args:
      traced: the first stage.
      program: what the core compiled.

    Examples:
      >>> import phalanx
      >>> compiled = phalanx.jit(lambda x: x + 1).lower(2.0).compile()
      >>> float(compiled(4.0))
      5.0
    """

    def __init__(self, traced: Traced, program: dispatch.CompiledProgram):
        self._traced = traced
        self.program = program

    in_tree = property(lambda self: self._traced.in_tree)
    out_tree = property(lambda self: self._traced.out_tree)
    args_info = property(lambda self: self._traced.args_info)
    in_avals = property(lambda self: self._traced.in_avals)
    out_avals = property(lambda self: self._traced.program.out_avals)
    donate_argnums = property(lambda self: self._traced.donate_argnums)
    effects = property(lambda self: self._traced.effects)

    @property
    def out_info(self) -> Any:
        """The types of the results and where they lie, as the function returns them."""
        shapes = [
            ShapeDtypeStruct(t.aval.shape, t.aval.dtype, sharding=t.sharding, weak_type=t.aval.weak_type)
            for t in self.program.out_types
        ]
        return tree_unflatten(self.out_tree, shapes)

    @property
    def input_formats(self) -> Any:
        """How and where the arguments lie, as `(args, kwargs)`; what the program does not read has no layout."""
        found = {i: Layout.of_engine(layout) for i, layout in self.program.layouts()[0].items()}
        formats = [Format(found.get(i), s) for i, s in enumerate(self.program.lowered.in_shardings)]
        return tree_unflatten(self.in_tree, formats)

    @property
    def output_formats(self) -> Any:
        """How and where the results lie."""
        pairs = zip(self.program.layouts()[1], self.program.out_types, strict=True)
        return tree_unflatten(self.out_tree, [Format(Layout.of_engine(layout), t.sharding) for layout, t in pairs])

    @property
    def input_shardings(self) -> Any:
        """The shardings of the arguments, as `(args, kwargs)`."""
        return tree_unflatten(self.in_tree, self.program.lowered.in_shardings)

    @property
    def output_shardings(self) -> Any:
        """The shardings of the results."""
        return tree_unflatten(self.out_tree, [t.sharding for t in self.program.out_types])

    def as_text(self) -> str:
        """The optimised program as XLA runs it.

        Returns:
          The text in HLO.
        """
        return compiler.hlo_text(self.program.executable)

    def cost_analysis(self) -> Any:
        """XLA's estimate of operations and bytes.

        Returns:
          The estimates by name.
        """
        return compiler.cost_analysis(self.program.executable)

    def memory_analysis(self) -> Any:
        """XLA's account of memory on one device.

        Returns:
          jaxlib's record, sizes in bytes.
        """
        return compiler.memory_stats(self.program.executable)

    def runtime_executable(self) -> Any:
        """The engine's executable.

        Returns:
          jaxlib's loaded executable.
        """
        return self.program.executable

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Run on arguments of the types this was compiled for, as calling the stage does.

        Args:
          *args, **kwargs: the arguments.

        Returns:
          What the function gives.
        """
        return self(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on arguments of the types this was compiled for; static ones may be left out.

        Args:
          *args, **kwargs: the arguments.

        Returns:
          What the function gives.

        Raises:
          TreeError: other arguments than it was compiled for.
          ArgumentTypeError: an argument has another shape, dtype or sharding.
          TraceError: an argument is being traced.
        """
        traced = self._traced
        call = traced._call.signature.split(args, kwargs)
        if call.tree != self.in_tree and traced._call.statics:
            call = traced._call.signature.split(*traced._call.with_statics(args, kwargs))
        if call.tree != self.in_tree:
            raise TreeError(
                f"call of compiled {traced.fun_name}",
                expected="arguments of the structure it was compiled for",
                got=_tree_differences(self.in_tree, call.tree),
                mend="call it with the arguments it was compiled for, or call the jit function",
            )
        self._check(call)
        leaves = [
            placement.put(x, s, a) if type(x) is not Array or x.sharding is not s else x
            for x, s, a in zip(call.leaves, self.program.lowered.in_shardings, traced.program.in_avals, strict=True)
        ]
        try:
            out = self.program([x._buffer for x in leaves])
        except Exception as error:
            explain_failure(error, leaves, lambda i: f"call of compiled {traced.fun_name}, argument {call.path(i)}")
            raise
        return tree_unflatten(self.out_tree, out)

    def _check(self, call: CallArguments) -> None:
        known = dict(self._traced._call.statics)
        differences = [
            f"static argument {where if isinstance(where, str) else call.signature.name_of(where)} is {static!r}, "
            f"compiled for {known.get(where, 'none')!r}"
            for where, static in call.statics
            if known.get(where) != static
        ]
        for i, (x, aval, s) in enumerate(
            zip(call.leaves, self._traced.program.in_avals, self.program.lowered.in_shardings, strict=True)
        ):
            if isinstance(x, Tracer):
                raise TraceError(
                    f"call of compiled {self._traced.fun_name}, argument {call.path(i)}",
                    expected="an array",
                    got=x.describe(),
                    mend="inside a transformation call the jit function, not its compiled stage",
                )
            try:
                held = concrete_type(x)
            except ArgumentTypeError:
                call.avals(f"call of compiled {self._traced.fun_name}")
                raise
            if not held.aval.matches(aval):
                differences.append(f"{call.path(i)} is {held.aval}, compiled for {aval}")
            elif held.committed and not held.sharding.is_equivalent_to(s, aval.ndim):
                differences.append(f"{call.path(i)} has sharding {held.sharding}, compiled for {s}")
        if differences:
            raise ArgumentTypeError(
                f"call of compiled {self._traced.fun_name}",
                expected="the argument types it was compiled for",
                got="; ".join(differences),
                mend="convert the arguments, or call the jit function, which compiles anew",
            )

    def __repr__(self) -> str:
        return f"Compiled({self._traced.fun_name})"


def _tree_differences(known: Any, given: Any) -> str:
    """In what the arguments `(args, kwargs)` of a call differ in structure from those that are known."""
    pairs = zip(("args", "kwargs"), treedef_children(known), treedef_children(given), strict=True)
    errors = [e for what, a, b in pairs for e in equality_errors(a, b, what=what)]
    return "; ".join(f"{e.where} is {e.got}, compiled for {e.expected}" for e in errors)
