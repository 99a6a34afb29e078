"""Lowering rules that users register, for all platforms or for one, and the MLIR that such rules emit.

A rule takes a `LoweringRuleContext` and the operands as IR values, and returns the results as IR values. It may emit
StableHLO operations itself, or it is `lower_fun` of a function of Phalanx's operations.
"""

from __future__ import annotations

import dataclasses
import functools
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from phalanx.core import (
    ArgumentTypeError,
    Effect,
    Jaxpr,
    Primitive,
    RuleError,
    ShapedArray,
    effects,
    get_aval,
    io_effect,
    ordered_io_effect,
    physical_aval,
)
from phalanx.engine import dense_constant, hlo, i32, i64, ir, mlir
from phalanx.engine.cache import clear_caches
from phalanx.extend.rule_tables import find_rule
from phalanx.lax.callback import Caller, host_callback_p
from phalanx.runtime import LoweringContext, ModuleContext
from phalanx.runtime.operation_builder import to_mlir_attribute

KNOWN_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
_PLATFORM_GROUPS = {"gpu": ("cuda", "rocm")}

LoweringRule = Callable[..., Any]


class TokenSet(dict[Effect, Any]):
    """The tokens of ordered effects, each an IR value."""

    def update_tokens(self, tokens: TokenSet) -> TokenSet:
        """This set with the tokens of another one in place of its own.

        Args:
          tokens: the other set.

        Returns:
          The new set.

        Examples:
          >>> TokenSet({"a": 1, "b": 2}).update_tokens(TokenSet({"b": 3}))
          {'a': 1, 'b': 3}
        """
        return TokenSet(self | tokens)


@dataclasses.dataclass(frozen=True)
class LoweringRuleContext:
    """What a lowering rule knows about the equation that it emits.

    Args:
      builder: Phalanx's own context, which `Primitive.lower` rules take.
      primitive: the primitive.
      avals_in, avals_out: the types of the operands and of the results.
      platforms: the platforms that the program is emitted for.
      tokens_in: the current token of each ordered effect of the equation.
    """

    builder: LoweringContext
    primitive: Primitive
    avals_in: Sequence[ShapedArray]
    avals_out: Sequence[ShapedArray]
    platforms: Sequence[str]
    tokens_in: TokenSet

    @property
    def module_context(self) -> ModuleContext:
        """The state of the module that is emitted."""
        return self.builder.module

    @property
    def dim_var_values(self) -> list[Any]:
        """The IR values of the dimension variables, in the order of `module_context.variables`."""
        return [self.builder.leading[name] for name in self.module_context.variables]

    def set_tokens_out(self, tokens: TokenSet) -> None:
        """Set the tokens that later equations with these effects wait for.

        Args:
          tokens: a token for each ordered effect of the equation.
        """
        self.builder.tokens.update(tokens)

    def replace(self, **fields: Any) -> LoweringRuleContext:
        """A copy with the named fields replaced.

        Args:
          **fields: new values by the field's name.

        Returns:
          The copy.
        """
        return dataclasses.replace(self, **fields)


class PlatformLowering:
    """The lowering rules of one primitive: by platform, and one for the others.

    Args:
      primitive: the primitive.
      fallback: the primitive's own rule, in the convention of `Primitive.lower`, or None.
    """

    __slots__ = ("by_platform", "default", "fallback", "primitive")

    def __init__(self, primitive: Primitive, fallback: LoweringRule | None):
        self.primitive, self.fallback = primitive, fallback
        self.default: LoweringRule | None = None
        self.by_platform: dict[str, LoweringRule] = {}

    def __call__(self, ctx: LoweringContext, /, *operands: Any, **params: Any) -> Any:
        # A primitive with one rule for all platforms is emitted once, whatever the platforms.
        rule = (self.by_platform.get(ctx.platform) if self.by_platform else None) or self.default
        if rule is None:
            return self._without_rule(ctx)(ctx, *operands, **params)
        context = LoweringRuleContext(
            ctx,
            self.primitive,
            ctx.avals_in,
            ctx.avals_out,
            ctx.module.platforms,
            TokenSet({e: ctx.token(e) for e in effects.ordered(ctx.eqn.effects)}),
        )
        results = list(flatten_ir_values(rule(context, *operands, **params)))
        return results if self.primitive.multiple else self._only(results)

    def _without_rule(self, ctx: LoweringContext) -> LoweringRule:
        if self.fallback is None:
            raise RuleError(
                f"primitive {self.primitive.name}",
                expected=f"a lower rule for the platform {ctx.platform}",
                got=f"rules for {', '.join(sorted(self.by_platform))}",
                fix="register one with interpreters.mlir.register_lowering(primitive, rule)",
            )
        return self.fallback

    def _only(self, results: list[Any]) -> Any:
        if len(results) != 1:
            raise RuleError(
                f"primitive {self.primitive.name}",
                expected="one IR value from its lower rule",
                got=f"{len(results)}",
                fix="return one result, or set primitive.multiple_results = True",
            )
        return results[0]


def register_lowering(
    prim: Primitive, rule: LoweringRule, platform: str | None = None, inline: bool = True, cacheable: bool = True
) -> LoweringRule:
    """Register the lowering of a primitive to StableHLO.

    Args:
      prim: the primitive; one of Phalanx takes the rule instead of its own.
      rule: `rule(ctx, *operands, **params)` returns the IR values of the results, or the only one.
      platform: "cpu", "cuda", "rocm", "tpu", or "gpu" for both "cuda" and "rocm"; by default all platforms without a
        rule of their own.
      inline, cacheable: accepted as in JAX; a rule is emitted at each equation.

    Returns:
      `rule`.

    Raises:
      RuleError: there is no such platform.

    Examples:
      >>> import phalanx
      >>> from phalanx.extend.core import Primitive
      >>> from phalanx.extend.mlir.dialects import stablehlo as hlo
      >>> square_p = Primitive("my_square")
      >>> _ = square_p.def_abstract_eval(lambda x: x)
      >>> _ = register_lowering(square_p, lambda ctx, x: hlo.MulOp(x, x).results, platform="cpu")
      >>> float(phalanx.jit(square_p.bind)(3.0))
      9.0
    """
    platforms = (None,) if platform is None else _PLATFORM_GROUPS.get(platform, (platform,))
    if unknown := [p for p in platforms if p not in (None, *KNOWN_PLATFORMS)]:
        raise RuleError(
            f"registration of a lowering rule for primitive {prim}",
            expected=f"a platform among {', '.join((*KNOWN_PLATFORMS, *_PLATFORM_GROUPS))}",
            got=repr(unknown[0]),
            fix="leave the argument out to register the rule for every platform",
        )
    found = find_rule(prim, "lower")
    if found is not None:
        clear_caches()  # programs that the replaced rule is part of
        prim.calls.clear()
    table = found[1] if found is not None else None
    if type(table) is not PlatformLowering:
        table = PlatformLowering(prim, table)
        prim.lower = table
    for name in platforms:
        if name is None:
            table.default = rule
        else:
            table.by_platform[name] = rule
    return rule


def lower_fun(fun: Callable[..., Any], multiple_results: bool = True) -> LoweringRule:
    """Make a lowering rule from a function of Phalanx's operations, which is traced for the types of the operands.

    Args:
      fun: takes the operands, and the parameters by name.
      multiple_results: whether it returns a sequence of results instead of one.

    Returns:
      The rule, for `register_lowering`.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.extend.core import Primitive
      >>> cube_p = Primitive("my_cube")
      >>> _ = cube_p.def_abstract_eval(lambda x: x)
      >>> _ = register_lowering(cube_p, lower_fun(lambda x: x**3, multiple_results=False))
      >>> float(phalanx.jit(cube_p.bind)(2.0))
      8.0
    """

    def rule(ctx: LoweringRuleContext, /, *operands: Any, **params: Any) -> list[Any]:
        return ctx.builder.inline(functools.partial(fun, **params), *operands, avals=ctx.avals_in)

    return rule


def emit_python_callback(
    ctx: LoweringRuleContext,
    callback: Callable[..., Any],
    token: Any,
    operands: Sequence[Any],
    operand_avals: Sequence[ShapedArray],
    result_avals: Sequence[ShapedArray],
    *,
    has_side_effect: bool,
    sharding: Any = None,
    **_: Any,
) -> tuple[list[Any], Any, None]:
    """Emit a call of a Python function on the host.

    Args:
      ctx: the context of the rule.
      callback: takes NumPy arrays, and returns a sequence of arrays.
      token: the token of an ordered call, which waits for it; None for a call without order.
      operands: IR values.
      operand_avals, result_avals: the types of the operands and of the results.
      has_side_effect: whether the call must happen even if no result is read.
      sharding: must be None: the first device of the program calls, with whole arrays.

    Returns:
      The IR values of the results; the token that later calls wait for, or None; and None, for an object that would
      have to be kept alive.

    Raises:
      RuleError: `sharding` was given.
    """
    if sharding is not None:
        raise RuleError(
            "emit_python_callback, argument sharding",
            expected="None",
            got=repr(sharding),
            fix="use pure_callback or io_callback, which take the device that makes the call",
        )
    effect = (ordered_io_effect if token is not None else io_effect) if has_side_effect or token is not None else None
    bind = functools.partial(
        host_callback_p,
        function=callback,
        results=tuple(result_avals),
        effect=effect,
        vmap_method=None,
        caller=Caller(),
    )
    if token is None:
        return ctx.builder.inline(bind, *operands, avals=operand_avals), None, None
    ctx.builder.tokens[ordered_io_effect] = token
    out = ctx.builder.inline(bind, *operands, avals=operand_avals)
    return out, ctx.builder.tokens[ordered_io_effect], None


def custom_call(
    call_target_name: str | bytes,
    *,
    result_types: Sequence[ir.Type],
    operands: Sequence[ir.Value],
    backend_config: str | bytes | dict[str, ir.Attribute] | None = None,
    has_side_effect: bool = False,
    result_shapes: Sequence[ir.Value] | None = None,
    called_computations: Sequence[str] = (),
    api_version: int = 2,
    operand_output_aliases: dict[int, int] | None = None,
    operand_layouts: Sequence[Sequence[int]] | None = None,
    result_layouts: Sequence[Sequence[int]] | None = None,
    extra_attributes: dict[str, ir.Attribute] | None = None,
) -> ir.Operation:
    """Emit a call of a registered kernel.

    Args:
      call_target_name: the name of the kernel, registered with `phalanx.ffi.register_ffi_target`.
      result_types: the MLIR types of the results.
      operands: IR values.
      backend_config: attributes for API version 4, or an opaque text for older ones.
      has_side_effect: whether the call must happen even if no result is read.
      result_shapes: IR values with the shapes of results of dynamic shape.
      called_computations: names of functions of the module that the kernel refers to.
      api_version: 4 for typed FFI kernels.
      operand_output_aliases: numbers of operands to the results that take their buffers.
      operand_layouts, result_layouts: dimensions from minor to major; row-major when left out.
      extra_attributes: further attributes of the operation.

    Returns:
      The operation.
    """
    shapes = list(result_shapes or ())
    is_typed = isinstance(backend_config, dict) or (backend_config is None and api_version >= 4)
    text = backend_config.decode() if isinstance(backend_config, bytes) else backend_config
    attributes = {
        "call_target_name": ir.StringAttr.get(call_target_name),
        "has_side_effect": ir.BoolAttr.get(has_side_effect),
        "api_version": i32(api_version),
        "called_computations": ir.ArrayAttr.get([ir.FlatSymbolRefAttr.get(name) for name in called_computations]),
        "backend_config": ir.DictAttr.get(text or {}) if is_typed else ir.StringAttr.get(text or ""),
        **(extra_attributes or {}),
    }
    if operand_output_aliases:
        attributes["output_operand_aliases"] = ir.ArrayAttr.get(
            [
                hlo.OutputOperandAlias.get([] if len(result_types) == 1 else [result], operand, [])
                for operand, result in operand_output_aliases.items()
            ]
        )
    if shapes:
        positions = range(len(operands), len(operands) + len(shapes))
        attributes["indices_of_shape_operands"] = dense_int_elements(positions)
    if operand_layouts is not None:
        attributes["operand_layouts"] = _layouts([*operand_layouts, *[[0]] * len(shapes)])
    if result_layouts is not None:
        attributes["result_layouts"] = _layouts(result_layouts)
    return ir.Operation.create("stablehlo.custom_call", list(result_types), [*operands, *shapes], attributes)


def _layouts(orders: Sequence[Sequence[int]]) -> ir.Attribute:
    index = ir.IndexType.get()
    return ir.ArrayAttr.get([ir.DenseIntElementsAttr.get(np.asarray(o, np.int64), type=index) for o in orders])


def flatten_ir_values(values: Any) -> Iterable[Any]:
    """Iterate over IR values in nested sequences; operations stand for their results.

    Args:
      values: an IR value, an operation, or a sequence of these.

    Yields:
      Each IR value.
    """
    if isinstance(values, ir.Value):
        yield values
    elif isinstance(values, ir.Operation | ir.OpView):
        yield from values.results
    elif isinstance(values, Iterable):
        for value in values:
            yield from flatten_ir_values(value)
    else:
        raise ArgumentTypeError(
            "lower rule", expected="IR values", got=repr(values), fix="return the results of operations"
        )


def core_call_lowering(
    ctx: LoweringRuleContext, *operands: Any, name: str = "core_call", call_jaxpr: Jaxpr, **_: Any
) -> list[Any]:
    """A lowering rule that calls a jaxpr as a function of the module.

    Args:
      ctx: the context of the rule.
      operands: IR values.
      name: the name of the function.
      call_jaxpr: the jaxpr.

    Returns:
      The IR values of the results.
    """
    return ctx.builder.call(call_jaxpr, operands, name)


def shape_tensor(sizes: Sequence[Any]) -> ir.Value:
    """Emit a shape as a tensor of 32-bit integers.

    Args:
      sizes: ints, or IR values of 32-bit integer scalars.

    Returns:
      tensor<n x i32>
    """
    scalar = ShapedArray((1,), np.dtype(np.int32))
    parts = [
        ir_constant(np.array([size], np.int32))
        if isinstance(size, int)
        else hlo.ReshapeOp(aval_to_ir_type(scalar), size).result
        for size in sizes
    ]
    return hlo.ConcatenateOp(parts, i64(0)).result if parts else ir_constant(np.zeros(0, np.int32))


class LowerableEffects:
    """The kinds of effects that programs may have: all of them, since lowering treats effects alike."""

    def add_type(self, effect_type: type[Effect]) -> None:
        """Allow a kind of effect, as all are.

        Args:
          effect_type: the class of the effects.
        """

    def contains(self, effect: Effect) -> bool:
        """Whether programs may have an effect.

        Args:
          effect: the effect.

        Returns:
          True.
        """
        return True


lowerable_effects = LowerableEffects()


def dtype_to_ir_type(dtype: Any) -> ir.Type:
    """The element type of a dtype in the current MLIR context.

    Args:
      dtype: the dtype.

    Returns:
      The MLIR type.

    Examples:
      >>> with make_ir_context():
      ...     print(dtype_to_ir_type("float32"))
      f32
    """
    return mlir.dtype_to_ir(np.dtype(dtype))


def aval_to_ir_type(aval: ShapedArray) -> ir.Type:
    """The tensor type of an abstract value in the current MLIR context.

    Args:
      aval: the abstract value; random keys have the type of their words.

    Returns:
      The MLIR type.

    Examples:
      >>> with make_ir_context(), ir.Location.unknown():
      ...     print(aval_to_ir_type(get_aval(np.zeros((2, 3), "int32"))))
      tensor<2x3xi32>
    """
    physical = physical_aval(aval)
    dims = [d if type(d) is int else ir.ShapedType.get_dynamic_size() for d in physical.shape]
    return ir.RankedTensorType.get(dims, mlir.dtype_to_ir(physical.dtype))


def aval_to_ir_types(aval: ShapedArray) -> tuple[ir.Type, ...]:
    """The tensor types of an abstract value: there is one.

    Args:
      aval: the abstract value.

    Returns:
      A tuple of the MLIR type.
    """
    return (aval_to_ir_type(aval),)


def ir_constant(value: Any, aval: ShapedArray | None = None) -> ir.Value:
    """Emit a constant at the current insertion point.

    Args:
      value: an array or a scalar, whose dtype follows the option `enable_x64`.
      aval: its type, if not that of the value.

    Returns:
      The IR value.
    """
    aval = physical_aval(get_aval(value) if aval is None else aval)
    return hlo.ConstantOp(dense_constant(np.broadcast_to(np.asarray(value).astype(aval.dtype), aval.shape))).result


def ir_constants(value: Any, aval: ShapedArray | None = None) -> list[ir.Value]:
    """`ir_constant` in a list.

    Args:
      value: an array or a scalar.
      aval: its type, if not that of the value.

    Returns:
      A list of the IR value.
    """
    return [ir_constant(value, aval)]


def ir_attribute(value: Any) -> ir.Attribute:
    """The MLIR attribute for a Python or NumPy value.

    Args:
      value: a bool, number, string, array, or a sequence of these.

    Returns:
      The attribute in the current MLIR context.

    Examples:
      >>> with make_ir_context():
      ...     print(ir_attribute("text"), ir_attribute(True))
      "text" true
    """
    return to_mlir_attribute(value)


def dense_int_elements(values: Iterable[int]) -> ir.Attribute:
    """A dense tensor attribute of 64-bit integers.

    Args:
      values: the integers.

    Returns:
      The attribute in the current MLIR context.
    """
    return dense_constant(np.asarray(list(values), np.int64))


def dense_int_array(values: Iterable[int]) -> ir.Attribute:
    """An array attribute of 64-bit integers.

    Args:
      values: the integers.

    Returns:
      The attribute in the current MLIR context.
    """
    return ir.DenseI64ArrayAttr.get(list(values))


def token_type() -> ir.Type:
    """The type of the tokens that order effects: a 32-bit integer, since XLA's own cannot pass a manual computation.

    Returns:
      The MLIR type.
    """
    return ir.RankedTensorType.get((), ir.IntegerType.get_signless(32))


def make_ir_context() -> ir.Context:
    """Make an MLIR context with the dialects of programs.

    Returns:
      The context; `with` makes it the current one.

    Examples:
      >>> with make_ir_context():
      ...     print(i32_attr(7))
      7 : i32
    """
    return mlir.make_context()


def i32_attr(value: int) -> ir.Attribute:
    """A 32-bit integer attribute.

    Args:
      value: the integer.

    Returns:
      The attribute in the current MLIR context.
    """
    return i32(value)


def i64_attr(value: int) -> ir.Attribute:
    """A 64-bit integer attribute.

    Args:
      value: the integer.

    Returns:
      The attribute in the current MLIR context.
    """
    return i64(value)


def module_to_string(module: ir.Module, enable_debug_info: bool = False) -> str:
    """The text of a module.

    Args:
      module: the module.
      enable_debug_info: whether to print source locations.

    Returns:
      The text.
    """
    return module.operation.get_asm(enable_debug_info=enable_debug_info)


def module_to_bytecode(module: ir.Module) -> bytes:
    """A module as MLIR bytecode.

    Args:
      module: the module.

    Returns:
      The bytes.
    """
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()
