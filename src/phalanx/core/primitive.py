"""Primitives: the operations in jaxprs, each declared once with all its rules.

A primitive is a class whose methods are its rules, with the same names and argument order in every primitive, and one
instance of the class; calling the instance applies the operation in the current trace. A rule is written, derived
(`LINEAR`, `ZERO`), or waived with a reason (`Undefined`); a class without one of the required rules fails when it is
instantiated. `lax` declares nearly all primitives.

The optional rules are in groups by the part of the system that asks for them. A primitive that calls jaxprs, runs along
named axes, places values on devices, or handles random keys overrides rules of the group concerned; each group is a
base class of `Primitive`, whose rules default to None, "as for any other operation". The page "Rules of primitives" of
the documentation shows which primitive has which.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any, ClassVar, Protocol

from phalanx.core.aval import UNVARYING, AbstractRef
from phalanx.core.config import state
from phalanx.core.effects import Effects, no_effects
from phalanx.core.error_classes import ArgumentTypeError, RuleError
from phalanx.core.tangent import Zero, instantiate
from phalanx.engine import Cache, Hook

registry: dict[str, Primitive] = {}


class Evaluation(Protocol):
    """The evaluation of primitives on concrete values."""

    def run(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Apply a primitive while nothing is traced."""

    def compile_and_run(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Apply a primitive by its compiled form, even if it defines its own `run`."""


eager = Hook[Evaluation]("phalanx.runtime.eager_dispatch")

REQUIRED = ("abstract_eval", "sharding_rule", "lower", "jvp", "transpose", "batch")


class Undefined:
    """A rule that does not exist, with the reason, which the error shows when a transformation needs the rule.

    Args:
      reason: the reason why the rule does not exist, and an alternative for users.
    """

    def __init__(self, reason: str):
        self.reason = reason
        self.rule = ""

    def __set_name__(self, owner: type, rule: str) -> None:
        self.rule = rule

    def __get__(self, primitive: Any, owner: type) -> Any:
        return self if primitive is None else functools.partial(self._refuse, primitive)

    def _refuse(self, primitive: Primitive, *_: Any, **__: Any) -> Any:
        raise RuleError(
            f"primitive {primitive.name}",
            expected=f"a {self.rule} rule",
            got="none",
            fix=f"{self.reason} (the rules of {primitive.name} are in {type(primitive).__module__})",
        )


class ShardingRule:
    """The relations between the dimensions of operands and results, after Shardy's sharding rules.

    Dimensions with the same name are the same index (Shardy's term for a name is *factor*). Shardings propagate along
    names; explicit shardings, automatic sharding, and per-shard lowering read them.

    Args:
      operands: for each operand, a name for each dimension.
      results: for each result, a name for each dimension.
      reduced: for a name that only operands have, the operation that combines partial results: sum, max, min, prod,
        and, or.
      whole: names that cannot be sharded, since each result depends on the whole dimension.
      resized: names among `whole` that a sharded operand may have nevertheless, at the price of communication: for
        each, the names of the result's dimensions that it becomes (none if it is reduced).
      axes: the named axes over which a collective runs, and the operation that combines the operands of the members;
        None for any other exchange.
      partial: names among `whole` of dimensions that the operation reduces, and of which XLA reduces the shards where
        they are, and then gathers the partial results.
    """

    __slots__ = ("axes", "operands", "partial", "reduced", "resized", "results", "whole")

    def __init__(
        self,
        operands: Sequence[Sequence[Hashable]],
        results: Sequence[Sequence[Hashable]],
        reduced: Mapping[Hashable, str] | None = None,
        whole: Any = (),
        resized: Mapping[Hashable, Sequence[Hashable]] | None = None,
        axes: Mapping[Hashable, str | None] | None = None,
        partial: Iterable[Hashable] = (),
    ):
        self.operands = [tuple(names) for names in operands]
        self.results = [tuple(names) for names in results]
        self.reduced = dict(reduced or {})
        self.whole = frozenset(whole)
        self.resized = dict(resized or {})
        self.axes = dict(axes or {})
        self.partial = frozenset(partial)

    def __repr__(self) -> str:
        return f"ShardingRule({self.operands}, {self.results}, reduced={self.reduced}, whole={set(self.whole)})"


class CallRules:
    """Rules of call-like primitives, a parameter of which is a jaxpr: calls, loops, branches.

    Attributes:
      call_like: whether a parameter is a jaxpr. Result types of such a primitive are not cached, and its compiled forms
        are kept on the jaxpr.
      stage: `(trace, args, params)`, records an application in a staging trace, for parameters that are functions.
      holds_functions: `(params)`, returns whether parameters are functions, which may close over values of the current
        trace; a `batch_axis` beside it also receives the batching trace, as `trace`.
      linearize: `(trace, primals, tangents, params)`, returns outputs and tangents without a `jvp` of the whole jaxpr.
      partial_eval: `(trace, args, params)`, computes now what does not depend on the unknown arguments.
      partial_eval_eqn: `(eqn, unknown, policy)`, splits an equation into its known part (or None), the unknown part,
        and the residuals between them.
      dce: `(eqn, used_outputs)`, returns a smaller equation, or None if nothing of it is left.
      scope_name: `(params)`, returns the scope that the operations of its jaxpr are in.
      update_varying: `(avals, params)`, returns the parameters for operands of these types, with the jaxprs typed for
        the mesh axes over which the operands vary.
    """

    call_like: ClassVar[bool] = False
    stage: Callable[..., Any] | None = None
    holds_functions: Callable[[dict[str, Any]], bool] | None = None
    linearize: Callable[..., Any] | None = None
    partial_eval: Callable[..., Any] | None = None
    partial_eval_eqn: Callable[..., Any] | None = None
    dce: Callable[..., Any] | None = None
    scope_name: Callable[[dict[str, Any]], str] | None = None
    update_varying: Callable[..., Any] | None = None


class NamedAxisRules:
    """Rules of collectives and of other primitives that depend on named axes.

    Attributes:
      named_axes: `(*args, **params)`, returns the named axes of an application, if they are not its parameter `axes`.
      batch_axis: `(axis, operands, dims, **params)`, takes the place of `batch` and also receives the mapped axis.
      combines: the reduction over its axes, sum, max or min, if unreduced operands may be combined by it.
      varying: `(axes, **params)`, returns the mesh axes over which the results vary, given the operands' axes.
    """

    named_axes: Callable[..., Any] | None = None
    batch_axis: Callable[..., Any] | None = None
    combines: ClassVar[str | None] = None
    varying: Callable[..., frozenset[Any]] | None = None


class PlacementRules:
    """Rules of primitives that place values on devices or in memories.

    Attributes:
      target_shardings: `(**params)`, returns the shardings that an application names, None for those left open. The
        first one with devices decides where a program runs whose arguments are not committed to any.
      operand_shardings: `(**params)`, returns the sharding by which each operand is read, so that devices receive their
        shards only.
      memories: `(kinds, **params)`, returns the kinds of memory of the results, given the operands' kinds; None is
        the default memory.
    """

    target_shardings: Callable[..., Any] | None = None
    operand_shardings: Callable[..., Any] | None = None
    memories: Callable[..., Any] | None = None


class KeyRules:
    """Rules about typed random keys.

    Attributes:
      takes_keys: whether the rules of the primitive handle operands with a key dtype. Other primitives see the words of
        the keys, in one dimension more.
      consumes_keys: whether an application consumes its keys (True) or only reads them to make new ones (False); None
        for primitives without keys.
    """

    takes_keys: ClassVar[bool] = False
    consumes_keys: ClassVar[bool | None] = None


class Primitive(CallRules, NamedAxisRules, PlacementRules, KeyRules):
    """Base of all operations. A subclass with `name` in its class line is complete, and is checked for missing rules.

    Required rules, where `x` stands for the types or values of the operands:
      abstract_eval: `(*avals, **params)`, returns the type of the result, or a list of types.
      sharding_rule: `(*avals, **params)`, returns a `ShardingRule`.
      lower: `(ctx, *operands, **params)`, emits StableHLO.
      jvp: `(primals, tangents, **params)`, returns the result and its tangent.
      transpose: `(y_bar, *operands, **params)`, returns a cotangent for each operand, with `Linear` operands.
      batch: `(*operands, *dims, **params)`, returns the batched result and its mapped dimension.

    Class arguments:
      name: the name in printed jaxprs.
      multiple: whether an application returns a list of results.

    Class attributes that a subclass may set, besides the optional rules of the base classes:
      broadcasts_scalars: rank-0 operands mix with operands of the result's shape; lowering broadcasts them first.
      linear_in: groups of operand numbers; the operation is linear in the operands of each group together. They may be
        unreduced over mesh axes. By default all operands, if `jvp` is LINEAR.
      typed_sharding_rule: `abstract_eval` returns types with their shardings over Explicit axes, which the sharding
        rule alone does not determine.
      run: `(*args, **params)`, evaluates an application on concrete arrays, if compiling the operation is not the way.
      names_like_operands: whether the variables of its parameter `jaxpr` are printed under the names of the operands
        and results.
    """

    name: str = ""
    multiple: ClassVar[bool] = False
    broadcasts_scalars: ClassVar[bool] = False
    linear_in: ClassVar[Sequence[Sequence[int]]] = ()
    typed_sharding_rule: ClassVar[bool] = False
    run: Any = None
    names_like_operands: ClassVar[bool] = False

    abstract_eval: Any  # `__init__` checks that a subclass defines this rule and those below.
    sharding_rule: Any
    lower: Any
    jvp: Any
    batch: Any = None  # `batch_axis` may take its place
    transpose: Any = Undefined("the operation is not linear, so only its linearization has a transpose rule")

    def __init_subclass__(cls, name: str | None = None, multiple: bool | None = None, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        if multiple is not None:
            cls.multiple = multiple
        if name is not None:
            cls.name = name

    def __init__(self) -> None:
        if not self.name:
            raise TypeError(f"{type(self).__name__}: a primitive needs a name in its class line")
        missing = [r for r in REQUIRED if getattr(self, r, None) is None and not (r == "batch" and self.batch_axis)]
        if missing:
            raise TypeError(f"primitive {self.name}: rules {missing} are neither written, derived nor waived")
        self._register()
        # Its compiled forms, by the types of concrete arguments; filled by `runtime.eager_dispatch`.
        self.calls: Cache[tuple[Any, ...], Any] = Cache("runtime.eager_dispatch", 4096)

    def _register(self) -> None:
        registry[self.name] = self

    def __call__(self, *args: Any, **params: Any) -> Any:
        trace = state.trace
        if trace is None:
            return eager.run(self, args, params)
        return trace.process(self, args, params)

    bind = __call__

    def bind_as_list(self, *args: Any, **params: Any) -> list[Any]:
        """The results of an application as a list, even if there is only one."""
        out = self(*args, **params)
        return list(out) if self.multiple else [out]

    def printed_params(self, params: dict[str, Any]) -> dict[str, Any]:
        """The parameters that jaxprs are printed with, in this order."""
        return {key: params[key] for key in sorted(params, key=lambda key: (key != "name", key))}

    def evaluate(self, *args: Any, **params: Any) -> Any:
        """Compile an application for these concrete operands, and run it."""
        return eager.compile_and_run(self, args, params)

    @property
    def impl(self) -> Callable[..., Any]:
        """The function that evaluates an application on concrete arrays; `def_impl` sets another."""
        return self.evaluate if self.run is None else self.run

    def def_impl(self, impl: Callable[..., Any]) -> Callable[..., Any]:
        """Evaluate applications on concrete arrays by `impl(*args, **params)`, such as one that counts its calls."""
        self.calls.clear()
        self.__dict__.pop("run", None)
        if impl != self.impl:
            self.run = impl
        return impl

    multiple_results: Any = property(lambda self: self.multiple)  # the name of the attribute in JAX
    # Whether `bind` takes functions, as some primitives of JAX do; here they hold jaxprs, which are parameters.
    call_primitive: ClassVar[bool] = False
    map_primitive: ClassVar[bool] = False

    def get_bind_params(self, params: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Divide the parameters of an equation into functions, of which there are none, and others.

        With both, `primitive.bind(*functions, *operands, **others)` applies any primitive.
        """
        return [], dict(params)

    def effects(self, *avals: Any, **params: Any) -> Effects:
        """The effects of an application; a subclass with effects overrides this."""
        return no_effects

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return _look_up, (self.name,)


def _look_up(name: str) -> Primitive:
    return registry[name]


def LINEAR(self: Primitive, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, ...]:
    """The `jvp` of an operation that is linear jointly in all operands: it is applied to the tangents as well."""
    return self(*primals, **params), self(*map(instantiate, tangents), **params)


def ZERO(self: Primitive, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, ...]:
    """The `jvp` of an operation that is locally constant."""
    y = self(*primals, **params)
    return (y, [Zero.like(v) for v in y]) if self.multiple else (y, Zero.like(y))


class Identity(Primitive):
    """Base of operations that return their operand unchanged, such as markers and casts of types."""

    def abstract_eval(self, x: Any, **_: Any) -> Any:
        return x

    def sharding_rule(self, x: Any, **_: Any) -> ShardingRule:
        return ShardingRule([range(x.ndim)], [range(x.ndim)])

    def lower(self, ctx: Any, x: Any, **_: Any) -> Any:
        return x

    jvp = LINEAR

    def transpose(self, y_bar: Any, x: Any, **_: Any) -> tuple[Any, ...]:
        return (y_bar,)

    def batch(self, x: Any, b: int, **params: Any) -> tuple[Any, ...]:
        return self(x, **params), b


def infer_results(primitive: Primitive, avals: tuple[Any, ...], params: dict[str, Any]) -> list[Any]:
    """The types of the results of an application as a list, even if there is only one."""
    found = infer_result(primitive, avals, params)
    return list(found) if primitive.multiple else [found]


_FUNCTIONS = (FunctionType, MethodType, functools.partial)
_results: Cache[tuple[Any, ...], Any] = Cache("core.result_types", 16384)


def infer_result(primitive: Primitive, avals: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """The type of the result, or a list of types, of an application; cached."""
    if primitive.call_like:
        return _result_of(primitive, avals, params)
    key = (primitive, avals, *params, *params.values())
    try:
        found = _results.get(key)
    except TypeError:  # an unhashable parameter
        return _infer_varying(primitive, avals, params)
    if found is None:
        found = _infer_varying(primitive, avals, params)
        # A key would keep a user's function, such as a callback, alive with all that it closes over.
        if not any(isinstance(value, _FUNCTIONS) for value in params.values()):
            _results[key] = found
    return found


def clear_result_types() -> None:
    """Forget the inferred types, for a primitive whose type rule was replaced."""
    _results.clear()


def _infer_varying(primitive: Primitive, avals: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Apply the type rule, and let the results vary over all the mesh axes over which the operands vary."""
    out = _result_of(primitive, avals, params)
    axes = union_varying(avals)
    if primitive.varying is not None:
        axes = primitive.varying(axes, **params)
    return [a.with_varying(axes) for a in out] if primitive.multiple else out.with_varying(axes)


def union_varying(avals: Iterable[Any]) -> frozenset[Any]:
    """The mesh axes over which a result computed from values of these types varies."""
    return UNVARYING.union(*[a.varying for a in avals])


def _result_of(primitive: Primitive, avals: tuple[Any, ...], params: dict[str, Any]) -> Any:
    if not primitive.typed_sharding_rule:
        for a in avals:
            if type(a) is AbstractRef:
                raise ref_operand_error(primitive.name, a)
            if a.type_sharding is not None:
                return a.type_sharding._infer_result_types(primitive, avals, params)
    return primitive.abstract_eval(*avals, **params)


def ref_operand_error(operation: str, aval: AbstractRef) -> ArgumentTypeError:
    """The error for a reference among the operands of an operation on arrays."""
    return ArgumentTypeError(
        f"{operation}, an operand",
        expected="an array",
        got=f"a mutable array reference, {aval.str_short()}",
        fix="read the value of the reference: write ref[...] instead of ref",
    )
