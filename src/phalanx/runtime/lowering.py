"""Lowering: from the equations of a jaxpr to functions and modules in StableHLO.

Each primitive emits its operations in its `lower` rule, through a `LoweringContext`. Inner jaxprs become functions that
their calls share. Three kinds of equations take another rule: operations on typed random keys are batched over the
keys' hidden trailing dimension, operations of programs for several devices may have a rule in `phalanx.partitioner`,
and operations of portable programs for several platforms become a case over these. Builds on `module_context` and
`operation_builder`. `lower_jaxpr_to_module` makes a whole module, whose parameters carry shardings, donations and kinds
of memory; `compiled_program` compiles such modules, and custom partitioning makes modules for single shards.
"""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from phalanx.core import (
    Eqn,
    Jaxpr,
    Literal,
    NameStack,
    RuleError,
    Scope,
    ShapedArray,
    Var,
    dtypes,
    effects,
    equation_sharding_rule,
    physical_aval,
    preserve_wide_types,
    remove_dead_code,
    split_source,
    state,
    trace_to_jaxpr,
)
from phalanx.engine import Hook, func, hlo, i32, ir, mlir, pause_collector, sdy
from phalanx.engine.callbacks import emit_sharding_inspection
from phalanx.runtime.array import buffer_aval
from phalanx.runtime.device_assignment import named_sharding
from phalanx.runtime.layout import annotate_layouts
from phalanx.runtime.memory_kinds import annotate_memories, place_in_memory
from phalanx.runtime.module_context import ORDER_TOKEN, PLATFORM, ModuleContext, PlatformRequested
from phalanx.runtime.operation_builder import OperationBuilder
from phalanx.runtime.reshard_lowering import SLICED_FROM, align_operands, infer_result_sharding, reshard_to
from phalanx.runtime.shardy import sdy_sharding
from phalanx.runtime.uneven_padding import add_padding, remove_padding
from phalanx.sharding import NamedSharding, PartitionSpec

# The name, in the metadata of a compiled program, of the resharding of results to declared shardings.
OUT_SHARDINGS = "out_shardings"


class SpecialLowering(Protocol):
    """Lowering of equations that take the place of their primitive's `lower` rule, and the prediction of shardings."""

    def lower_on_keys(self, ctx: LoweringContext, eqn: Eqn, operands: Sequence[ir.Value]) -> Any:
        """Emit an operation on typed random keys; returns its result, or a list of results."""

    def lower_partitioned(self, ctx: LoweringContext, eqn: Eqn, operands: Sequence[ir.Value]) -> Any:
        """Emit an equation of a program for several devices; returns its result, or a list of results."""

    def lower_linked(
        self,
        ctx: LoweringContext,
        main: str,
        functions: dict[str, Any],
        shardings: Sequence[Any],
        mesh: Any,
        read_equation: Callable[..., Eqn | None],
    ) -> list[Any]:
        """Lower the functions of a linked program again, by name, for the shardings of its arguments.

        Returns the shardings that are expected of its results.
        """

    def trace_dim_sharding(self, module: ModuleContext, x: ir.Value, dim: int) -> Any:
        """The sharding of the input dimension that a dimension of an emitted value is a part of, or None."""

    def predicts_shardings(self, program: Jaxpr) -> bool:
        """Whether a jaxpr is lowered otherwise for operands whose shardings are known."""


# The second module is loaded when the first program for several devices is lowered, so that others never wait for it;
# the third one when such a program calls an artifact.
special_lowering = Hook[SpecialLowering](
    "phalanx.transforms", "phalanx.partitioner.partitioned_lowering", "phalanx.partitioner.linked_programs"
)


class LoweringContext(OperationBuilder):
    """The context of `lower` rules: one object for each function body.

    Args:
      module: the state of the module.
      scope: the scopes around the function body.
    """

    __slots__ = ("scope", "tokens")

    def __init__(self, module: ModuleContext, scope: Scope = ()):
        super().__init__(module)
        self.scope = scope
        self.tokens: dict[effects.Effect, Any] = {}

    def inline(self, fun: Callable, *operands: Any, avals: Sequence[ShapedArray] | None = None, **kwargs: Any) -> list:
        """Trace a function of this library's operations and emit the result here.

        Args:
          fun: the function.
          operands: IR values.
          avals: the types of the operands; by default the operand types of the current equation.
          **kwargs: passed to `fun`.

        Returns:
          The results as IR values.
        """
        avals = [a.drop_sharding() for a in (self.avals_in if avals is None else avals)]
        before, state.source = state.source, self.eqn.source  # operations get the user's source line
        try:
            program = trace_to_jaxpr(lambda *xs: _as_list(fun(*xs, **kwargs)), avals, "inline")
        finally:
            state.source = before
        return self.emit(program, operands)

    def emit(self, program: Jaxpr, operands: Sequence[Any], *names: str) -> list:
        """Emit the equations of a jaxpr here, with IR values as its inputs.

        Args:
          program: the jaxpr.
          operands: IR values.
          *names: scopes of the jaxpr inside the scopes of the current equation.

        Returns:
          The results as IR values.
        """
        eqn, scope = self.eqn, self.scope
        # The empty name ends a transformation, so that it reads `vmap()/while/body`, as the equation does.
        inside = ("", *names) if names else ()
        self.scope = (*scope, *split_source(eqn.source)[1], *inside)
        out = lower_equations(self, program, dict(zip(program.invars, operands, strict=True)))
        self.eqn, self.scope = eqn, scope
        return out

    def call(
        self, program: Jaxpr, operands: Sequence[Any], name: str | None = None, metadata: Sequence[tuple[str, str]] = ()
    ) -> list:
        """Call the function of an inner jaxpr, which all calls with operands of the same shardings share.

        Tokens of the ordered effects of the jaxpr are passed and returned first.

        Args:
          program: the jaxpr.
          operands: IR values.
          name: the function's name, if not that of the jaxpr.
          metadata: XLA metadata that the call carries.

        Returns:
          The results as IR values.
        """
        ordered = effects.ordered(program.effects)
        module = self.module
        # Inside a `shard_map` over some of the axes, XLA cannot compute a device's position in a called function.
        if module.manual is not None and not module.manual.is_whole:
            return self.emit(program, operands)
        # The shardings of the operands matter only to jaxprs with constraints inside; all others share one function.
        read = operands if module.known_shardings and _names_shardings(program) else ()
        held = tuple([module.known_shardings.get(x) for x in read])
        stays_in_memory = tuple([x in module.arguments for x in read])
        # Windows send less for operands whose shardings their rules know, and where arrays do not divide, so do others.
        is_planned = (
            module.is_partitioned
            and not module.is_portable
            and (module.has_uneven or special_lowering.predicts_shardings(program))
        )
        inferred = tuple([_infer_operand(module, x) for x in operands]) if is_planned else ()
        function = module.add_function(
            ("call", program, module.manual, held, inferred, stays_in_memory),
            name or program.debug_name,
            lambda n: emit_function(
                module, program, n, in_shardings=held, inferred=inferred, stays_in_memory=stays_in_memory
            ),
        )
        types = [self.type(ORDER_TOKEN)] * len(ordered) + [self.type(v.aval) for v in program.outvars]
        inputs = [*self.leading.values(), *map(self.token, ordered), *operands]
        call = func.CallOp(types, ir.FlatSymbolRefAttr.get(function.name.value), inputs)
        if metadata:
            call.operation.attributes[mlir.FRONTEND_ATTRIBUTES] = mlir.to_frontend_attributes(dict(metadata))
        results = list(call.results)
        self.tokens.update(zip(ordered, results, strict=False))
        given = dict(zip(program.invars, operands, strict=True))  # an output that is an input needs no result
        return [given.get(v, x) for v, x in zip(program.outvars, results[len(ordered) :], strict=True)]

    def token(self, effect: effects.Effect) -> Any:
        """The current token of an ordered effect."""
        if (found := self.tokens.get(effect)) is None:
            found = self.tokens[effect] = self.constant(np.int32(0), ORDER_TOKEN)
        return found


def add_frontend_attributes(x: ir.Value, metadata: Sequence[tuple[str, str]]) -> None:
    """Add XLA metadata to the operation that computes a value; inner settings take precedence over later ones."""
    operation = x.owner
    if isinstance(operation, ir.Block):  # an argument of the function, which no operation computes
        return
    attributes = operation.attributes
    held = ir.DictAttr(attributes[mlir.FRONTEND_ATTRIBUTES]) if mlir.FRONTEND_ATTRIBUTES in attributes else ()
    attributes[mlir.FRONTEND_ATTRIBUTES] = mlir.to_frontend_attributes(dict(metadata) | {a.name: a.attr for a in held})


def _as_list(out: Any) -> list:
    return list(out) if isinstance(out, list | tuple) else [out]


def lower_equations(ctx: LoweringContext, program: Jaxpr, env: dict[Var, Any]) -> list:
    """Emit the constants and equations of a jaxpr in order and return its outputs as IR values."""
    for v, c in zip(program.constvars, program.consts, strict=True):
        env[v] = ctx.constant(np.asarray(c), physical_aval(v.aval))
    entered = None
    program = remove_dead_code(program)
    known: dict[Scope, tuple[str, Sequence[Any]]] = {}  # by scope, the prefix of names, and the metadata
    try:
        for eqn in program.eqns:
            where, scope = split_source(eqn.source)
            if scope not in known:
                names = str(NameStack(ctx.scope + scope))
                known[scope] = names and f"{names}/", [entry for entry in scope if type(entry) is tuple]
            prefix, metadata = known[scope]
            if eqn.primitive.scope_name is None:
                name = prefix + eqn.primitive.name
            else:
                name = str(NameStack((*ctx.scope, *scope, eqn.primitive.scope_name(eqn.params))))
            # A location is entered only when it changes: most consecutive operations of a rule share one.
            loc = ctx.module.location(where, name)
            if loc is not entered:
                if entered is not None:
                    entered.__exit__(None, None, None)
                entered = loc
                loc.__enter__()
            ctx.eqn = eqn
            lower_equation(ctx, eqn, env)
            if metadata:
                for v in eqn.outvars:
                    add_frontend_attributes(env[v], metadata)
    finally:
        if entered is not None:
            entered.__exit__(None, None, None)
    return [ctx.constant(v.value, v.aval) if type(v) is Literal else env[v] for v in program.outvars]


def lower_equation(ctx: LoweringContext, eqn: Eqn, env: dict[Var, Any]) -> None:
    """Emit one equation and enter its results in `env`."""
    primitive = eqn.primitive
    # StableHLO has no implicit broadcasting, so rank-0 operands are broadcast to the result's shape here.
    splat = eqn.outvars[0].aval if primitive.broadcasts_scalars and eqn.outvars[0].aval.shape else None
    operands = []
    for atom in eqn.invars:
        if type(atom) is Literal:
            aval = atom.aval
            operands.append(ctx.constant(atom.value, aval if splat is None else splat.with_dtype(aval.dtype)))
        elif splat is not None and not atom.aval.shape:
            operands.append(ctx.broadcast(env[atom], splat.with_dtype(atom.aval.dtype)))
        else:
            operands.append(env[atom])
    sharding = None
    if ctx.module.inferred_shardings:
        operands, sharding = _infer_sharding(ctx, eqn, operands, splat)
    out = _apply_rule(ctx, eqn, operands) if len(ctx.module.platforms) == 1 else _choose_platform(ctx, eqn, operands)
    if primitive.multiple:
        env.update(zip(eqn.outvars, out, strict=True))
    else:
        env[eqn.outvars[0]] = out if isinstance(out, ir.Value) else _only(out, primitive)
    if sharding is not None:
        ctx.module.inferred_shardings[env[eqn.outvars[0]]] = sharding
    for v in eqn.outvars:
        if v.aval.type_sharding is not None:
            env[v] = ctx.module.apply_sharding(env[v], v.aval, eqn.source)


def _infer_sharding(ctx: LoweringContext, eqn: Eqn, operands: list, splat: ShapedArray | None) -> tuple[list, Any]:
    """Resolve conflicting shardings of the operands.

    Returns:
      The operands, resharded where their shardings exclude each other, and the sharding that the partitioner is
      expected to choose for the result, or None.
    """
    held = [ctx.module.inferred_shardings.get(x) for x in operands]
    first = next(filter(None, held), None)
    if first is None or eqn.primitive.multiple or eqn.primitive.target_shardings is not None:
        return operands, None
    if splat is None:
        return operands, infer_result_sharding(held, equation_sharding_rule(eqn))
    if all(s is first or s is None for s in held):
        return operands, first
    return align_operands(ctx, operands, lambda i: physical_aval(splat.with_dtype(eqn.invars[i].aval.dtype)))


def _apply_rule(ctx: LoweringContext, eqn: Eqn, operands: list) -> Any:
    primitive = eqn.primitive
    if not primitive.call_like and not primitive.takes_keys and _has_keys(eqn):
        return special_lowering.lower_on_keys(ctx, eqn, operands)
    if ctx.module.is_partitioned and not _has_unreduced(eqn):
        return special_lowering.lower_partitioned(ctx, eqn, operands)
    return primitive.lower(ctx, *operands, **eqn.params)


def _choose_platform(ctx: LoweringContext, eqn: Eqn, operands: list) -> Any:
    """Emit an equation for several platforms: once, or as a case over them if its rule reads the platform."""
    constants, tokens = ctx.constants, dict(ctx.tokens)
    try:
        return _apply_rule(ctx, eqn, operands)
    except PlatformRequested:
        ctx.tokens = tokens  # Operations emitted before are dead code, which the compiler drops.
    module, platforms = ctx.module, ctx.module.platforms
    case = ir.Operation.create(
        "stablehlo.case",
        results=[ctx.type(a) for a in ctx.avals_out],
        operands=[ctx.leading[PLATFORM]],
        regions=len(platforms),
    )
    for i, platform in enumerate(platforms):
        module.platforms, module.platform = (platform,), platform
        ctx.constants = {}
        try:
            with ir.InsertionPoint(case.regions[i].blocks.append()):
                out = _apply_rule(ctx, eqn, operands)
                hlo.return_(list(out) if eqn.primitive.multiple else [_only(out, eqn.primitive)])
        finally:
            module.platforms, module.platform = platforms, platforms[0]
    ctx.constants, ctx.tokens = constants, tokens
    return list(case.results) if eqn.primitive.multiple else case.results[0]


def _only(out: Any, primitive: Any) -> Any:
    if isinstance(out, list | tuple):
        (out,) = out
    value = getattr(out, "result", out)
    if not isinstance(value, ir.Value):
        raise RuleError(
            f"primitive {primitive.name}",
            expected="one IR value from its lower rule",
            got=repr(out),
            fix=f"return the operation's result from {type(primitive).__name__}.lower",
        )
    return value


def _has_keys(eqn: Eqn) -> bool:
    # A generator expression takes twice as long, and this runs for every equation.
    for a in (*eqn.outvars, *eqn.invars):
        if type(a.aval.dtype) is dtypes.KeyDtype:
            return True
    return False


def _has_unreduced(eqn: Eqn) -> bool:
    """Whether an operand is unreduced; Shardy then refuses intermediate values whose sharding does not say so."""
    for a in eqn.invars:
        if a.aval.type_sharding is not None and a.aval.type_sharding.spec.unreduced:
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
    inferred: Sequence[Any] = (),
    stays_in_memory: Sequence[bool] = (),
    scope: Scope = (),
) -> Any:
    """Emit a jaxpr as a function of the module: (leading scalars, tokens, inputs) -> (tokens, outputs).

    The public `main` takes no dimension variables and no tokens, because calls of programs with ordered effects wait
    for each other (`runtime.in_flight`). Constants become part of the text.

    Args:
      module: the module.
      program: the jaxpr.
      name: the function's name, made unique in the module.
      is_public: whether this is `main`.
      in_shardings, out_shardings: of inputs and outputs, as far as they are declared or known.
      inferred: the shardings that the partitioner is expected to choose for inputs, as far as they are known.
      stays_in_memory: for each input, whether it is an argument of `main`.
      scope: the scopes around its operations; XLA adds the scopes of its calls.

    Returns:
      The function.
    """
    ordered = [] if is_public else effects.ordered(program.effects)
    token = module.type(ORDER_TOKEN) if ordered else None
    leading = module.leading
    may_pad = is_public and module.num_partitions > 1
    padded_ins = _find_padded(program.invars, in_shardings) if may_pad else {}
    padded_outs = _find_padded(program.outvars, out_shardings) if may_pad else {}
    module.has_uneven |= bool(padded_ins or padded_outs)
    inputs = [module.type(padded_ins.get(i, v.aval)) for i, v in enumerate(program.invars)]
    results = [module.type(padded_outs.get(i, v.aval)) for i, v in enumerate(program.outvars)]
    in_types = [*(t for _, t in leading), *[token] * len(ordered), *inputs]
    out_types = [*[token] * len(ordered), *results]
    with ir.InsertionPoint(module.module.body), ir.Location.unknown():
        function = func.FuncOp(to_symbol(name), ir.FunctionType.get(in_types, out_types))
    function.attributes["sym_visibility"] = ir.StringAttr.get("public" if is_public else "private")
    module.symbols.insert(function)
    block = function.add_entry_block()
    ctx = LoweringContext(module, scope)
    arguments = iter(block.arguments)
    ctx.leading = {name: next(arguments) for name, _ in leading}
    ctx.tokens = {effect: next(arguments) for effect in ordered}
    env = dict(zip(program.invars, arguments, strict=True))
    with ir.InsertionPoint(block), ir.Location.unknown():
        for i in padded_ins:
            v, s = program.invars[i], in_shardings[i]
            aval = physical_aval(v.aval)
            # Stated again behind the slice, which Shardy's propagation passes late, after shardings of results.
            env[v] = sdy.ShardingConstraintOp(
                remove_padding(env[v], aval.shape), sdy_sharding(module, s, aval.ndim)
            ).result
        known = {env[v]: s for v, s in zip(program.invars, in_shardings) if s is not None}
        module.known_shardings.update(known)
        expected = {env[v]: s for v, s in zip(program.invars, inferred) if s is not None}
        module.inferred_shardings.update(expected | known)
        module.arguments.update(env[v] for v in itertools.compress(program.invars, stays_in_memory))
        outputs = lower_equations(ctx, program, env)
        # Where the jaxpr has no constraints, an output of an input's type and sharding, such as updated parameters, is
        # expected to have that sharding already.
        alike = set() if _names_shardings(program) else {(v.aval, s) for v, s in zip(program.invars, in_shardings)}
        for i, (v, s) in enumerate(zip(program.outvars, out_shardings)):
            if s is not None and module.num_partitions > 1 and (module.names_requests or (v.aval, s) not in alike):
                with module.location(None, OUT_SHARDINGS):
                    outputs[i] = reshard_to(ctx, outputs[i], physical_aval(v.aval), s)
        if is_public:
            if module.chosen_results is not None and module.is_partitioned:
                was_uneven = module.has_uneven
                split = _split_uneven_results(module, program, outputs, out_shardings)
                if was_uneven:
                    _inspect_results(module, program, outputs, out_shardings)
                else:
                    padded_outs |= split
            for i, padded in padded_outs.items():
                outputs[i] = add_padding(ctx, outputs[i], physical_aval(program.outvars[i].aval).shape, padded)
            outputs = [
                x if m is None else place_in_memory(x, m) for x, m in itertools.zip_longest(outputs, module.memories)
            ]
            if module.split_results and not module.chosen_results:
                out_types = [x.type for x in outputs]
                function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(in_types, out_types))
        func.ReturnOp([*(ctx.token(e) for e in ordered), *outputs])
    return function


def _find_padded(variables: Sequence[Any], shardings: Sequence[Any]) -> dict[int, ShapedArray]:
    """The types of the padded buffers among the parameters or results of a program, by number."""
    avals = {i: (v.aval, buffer_aval(v.aval, s)) for i, (v, s) in enumerate(zip(variables, shardings)) if s is not None}
    return {i: padded for i, (aval, padded) in avals.items() if padded.shape != physical_aval(aval).shape}


def _inspect_results(
    module: ModuleContext, program: Jaxpr, outputs: Sequence[ir.Value], out_shardings: Sequence[Any]
) -> None:
    """Ask for the shardings of results that the partitioner chooses, in a program with uneven shardings.

    The results of an executable are sharded evenly: XLA replicates what does not divide. So the program is compiled
    twice, the second time with the shardings reported here as declared ones, for which results are padded.
    """
    assert module.chosen_results is not None, "the module asks for the shardings of its results"
    for i, (v, s) in enumerate(zip(program.outvars, out_shardings, strict=True)):
        if s is None and v.aval.shape:
            module.chosen_results[i] = None
            notify = functools.partial(module.report_result, i)
            module.add_keepalive(notify)
            emit_sharding_inspection(outputs[i], notify)


def _split_uneven_results(
    module: ModuleContext, program: Jaxpr, outputs: Sequence[ir.Value], out_shardings: Sequence[Any]
) -> dict[int, ShapedArray]:
    """Choose shardings for results that do not divide, such as `x[1:]`, in case XLA would replicate these.

    Returns:
      The types of their padded buffers, by number; `module.split_results` has the shardings.
    """
    for i, (v, s) in enumerate(zip(program.outvars, out_shardings, strict=True)):
        is_free = s is None and v.aval.type_sharding is None and physical_aval(v.aval) is v.aval
        if is_free and any(n > 1 and n % module.num_partitions for n in v.aval.shape if type(n) is int):
            sharding = _predict_sharding(module, outputs[i], v.aval.ndim)
            if sharding is not None and sharding.padded_shape(v.aval.shape) != v.aval.shape:
                module.split_results[i] = sharding
    split = module.split_results
    module.has_uneven |= bool(split)
    return {i: buffer_aval(program.outvars[i].aval, sharding) for i, sharding in split.items()}


def _predict_sharding(module: ModuleContext, x: ir.Value, ndim: int) -> NamedSharding | None:
    """The sharding that the partitioner is expected to choose for a value; None if it is not known to be sharded."""
    found = [special_lowering.trace_dim_sharding(module, x, dim) for dim in range(ndim)]
    first = next((s.sharding for s in found if s is not None), None)
    if first is None or first.mesh.explicit_axes or first.mesh.size != module.num_partitions:
        return None
    dims: list[tuple] = []
    for s in found:
        is_free = s is not None and s.sharding.mesh is first.mesh and not any({*s.axes}.intersection(d) for d in dims)
        dims.append(s.axes if is_free else ())
    return NamedSharding(first.mesh, PartitionSpec.of_dims(dims)).canonical


def _infer_operand(module: ModuleContext, x: ir.Value) -> NamedSharding | None:
    """The sharding that the partitioner is expected to choose for an operand of an inner function."""
    return module.inferred_shardings.get(x) or _predict_sharding(module, x, ir.RankedTensorType(x.type).rank)


def _names_shardings(program: Jaxpr) -> bool:
    return any(named_sharding(program, abstract) is not None for abstract in (False, True))


def to_symbol(name: str) -> str:
    """A name with the characters that MLIR allows in symbols."""
    return "".join(c if c.isalnum() or c in "_.$" else "_" for c in name) or "fn"


def lower_jaxpr_to_module(
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
    layouts: tuple[Sequence[Any], Sequence[Any]] = ((), ()),
    is_portable: bool = False,
    is_attached: bool = True,
    manual: Any = None,
    slice_threshold: int = SLICED_FROM,
    chooses_results: bool = False,
    names_requests: bool = False,
) -> ModuleContext:
    """Lower a jaxpr without constants to a module with one public function, `main`.

    Args:
      program: the jaxpr.
      platform: the platform that will run it.
      num_partitions: the number of devices that share it.
      name: the module's name, shown by profilers.
      in_shardings, out_shardings: for each parameter and result a sharding, or None to leave it to the partitioner.
      donated: numbers of the parameters whose buffers may be reused.
      devices: in partition order.
      memories: the kinds of memory of the parameters and of the results; None for the default one.
      layouts: the memory layouts of the parameters and of the results; None for the default one.
      is_portable: whether the module must not call back into this process while it is compiled.
      is_attached: whether this process can run the module.
      manual: for a jaxpr that each device of a mesh runs, the mesh and its manual axes, which collectives read.
      slice_threshold: size in bytes of a device's shard from which resharding inside the program works in slices.
      chooses_results: whether to ask the partitioner for the shardings of results that may be uneven; if there are any,
        `chosen_results` of the module has entries, and the module is compiled for the answers only.
      names_requests: as in `ModuleContext`.
    """
    with pause_collector(), preserve_wide_types(program), mlir.make_context(), ir.Location.unknown():
        module = ModuleContext(
            to_symbol(f"jit_{name}"),
            (platform,),
            num_partitions,
            is_portable=is_portable,
            is_attached=is_attached,
            slice_threshold=slice_threshold,
            names_requests=names_requests,
            devices=devices,
            manual=manual,
        )
        module.memories = memories[1]
        module.chosen_results = {} if chooses_results else None
        parameters = sharding_attributes(module, program.invars, in_shardings)
        function = emit_function(
            module,
            program,
            "main",
            is_public=True,
            in_shardings=in_shardings or (),
            out_shardings=out_shardings or (),
            stays_in_memory=[True] * len(program.invars),
            scope=(f"jit({name})",),
        )
        has_layouts = any(layout is not None for side in layouts for layout in side)
        if donated or in_shardings is not None or any(memories[0]) or has_layouts:
            annotate_memories(parameters, memories[0])
            if has_layouts:
                annotate_layouts(parameters, layouts[0])
            for i, result in _match_donations(program, donated, in_shardings is not None or has_layouts).items():
                # XLA pairs a donor with a result itself, once it knows the shardings; an alias is a pair that it keeps.
                name = "jax.buffer_donor" if result is None else "tf.aliasing_output"
                parameters[i][name] = ir.BoolAttr.get(True) if result is None else i32(result)
            function.attributes["arg_attrs"] = make_dict_array(parameters)
        if out_shardings is not None and not module.chosen_results:
            out_shardings = [module.split_results.get(i, s) for i, s in enumerate(out_shardings)]
        if out_shardings is not None or any(memories[1]) or has_layouts:
            results = annotate_memories(sharding_attributes(module, program.outvars, out_shardings), memories[1])
            function.attributes["res_attrs"] = make_dict_array(
                annotate_layouts(results, layouts[1]) if has_layouts else results
            )
    return module


def sharding_attributes(module: ModuleContext, variables: Sequence[Any], shardings: Any) -> list[dict]:
    """The attributes with the shardings of parameters or results; empty for a value without a sharding."""
    return [
        {} if s is None else {"sdy.sharding": sdy_sharding(module, s, physical_aval(v.aval).ndim)}
        for v, s in zip(variables, shardings or [None] * len(variables), strict=True)
    ]


def make_dict_array(attributes: Sequence[dict]) -> Any:
    """What `arg_attrs` and `res_attrs` of a function take: a dictionary for each parameter or result."""
    return ir.ArrayAttr.get([ir.DictAttr.get(a) for a in attributes])


def _match_donations(program: Jaxpr, donated: Sequence[int], partitioned: bool) -> dict[int, int | None]:
    """Pair donated parameters with results of the same type; None leaves the choice to the compiler."""
    # With several partitions a parameter and a result of one type may have different shardings, so only XLA can pair
    # them.
    if partitioned:
        return dict.fromkeys(donated)
    free: dict[Any, list[int]] = collections.defaultdict(list)
    for i, v in enumerate(program.outvars):
        free[v.aval.shape, v.aval.dtype].append(i)
    candidates = {i: free[program.invars[i].aval.shape, program.invars[i].aval.dtype] for i in donated}
    return {i: results.pop(0) for i, results in candidates.items() if results}
