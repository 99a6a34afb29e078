"""Primitives that users define: a name, and rules that are registered one after the other.

`lax` declares its primitives as classes with all rules in one body. A library outside of Phalanx makes an object from a
name, `Primitive("multiply_add")`, and adds the rules that it needs: an implementation, a type rule, and in the tables
of `rule_tables` a derivative, a transpose, a batching rule and a lowering. The result is a primitive like any other; a
transformation that needs a rule that was not registered says so.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from phalanx import core
from phalanx.core import Effects, RuleError, ShapedArray, ShardingRule, Undefined, no_effects, state
from phalanx.engine import api_boundary_class
from phalanx.sharding import PartitionSpec


class _Missing(Undefined):
    """A rule that has not been registered.

    Args:
      reason: the statement that registers it.
      rule: its name, if not that of the attribute.
    """

    def __init__(self, reason: str, rule: str = ""):
        super().__init__(reason)
        self.rule = rule

    def __set_name__(self, owner: type, rule: str) -> None:
        self.rule = self.rule or rule

    def _refuse(self, primitive: core.Primitive, *_: Any, **__: Any) -> Any:
        raise RuleError(
            f"primitive {primitive.name}",
            expected=f"a rule {self.rule}",
            got="none",
            fix=f"register one with {self.reason}",
        )


class _AnyPrimitive(type):
    """The class of a class of which every primitive is an instance, whoever declared it."""

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, core.Primitive) if cls is Primitive else type.__instancecheck__(cls, x)


@api_boundary_class
class Primitive(core.Primitive, metaclass=_AnyPrimitive):
    """An operation of a library outside of Phalanx. Every primitive of Phalanx is an instance of this class, too.

    Args:
      name: the name in printed jaxprs.

    Attributes:
      multiple_results: whether an application returns a list of results; False unless it is set.
      impl: the implementation on concrete values.

    Examples:
      >>> import numpy as np, phalanx
      >>> from phalanx.extend.core import Primitive
      >>> from phalanx.interpreters import mlir
      >>> double_p = Primitive("double")
      >>> _ = double_p.def_impl(lambda x: 2 * np.asarray(x))
      >>> _ = double_p.def_abstract_eval(lambda x: x)
      >>> _ = mlir.register_lowering(double_p, mlir.lower_fun(lambda x: x + x, multiple_results=False))
      >>> float(double_p.bind(3.0)), float(phalanx.jit(double_p.bind)(3.0))
      (6.0, 6.0)
    """

    takes_keys = True  # rules receive operands with a key dtype as they are
    typed_sharding_rule = True
    multiple_results = False
    multiple: Any = property(lambda self: self.multiple_results)  # which users set on an object or in a subclass

    impl: Any = _Missing("primitive.def_impl(function)", "def_impl")
    jvp: Any = _Missing("interpreters.ad.primitive_jvps[primitive] = rule")
    transpose: Any = _Missing("interpreters.ad.primitive_transposes[primitive] = rule")
    batch: Any = _Missing("interpreters.batching.primitive_batchers[primitive] = rule")
    lower: Any = _Missing("interpreters.mlir.register_lowering(primitive, rule)")
    _infer: Any = _Missing("primitive.def_abstract_eval(function)", "abstract_eval")
    _sharding_rule: Any = None

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__()

    def _register(self) -> None:
        """Not in the table of primitives by name, where it could take the place of another one."""

    def bind(self, *args: Any, **params: Any) -> Any:
        """Apply the operation.

        Args:
          args: the operands, positionally.
          params: its parameters by name; hashable ones, if the operation is compiled.

        Returns:
          The result, or a list if the primitive has multiple results.

        Examples:
          >>> p = Primitive("twice")
          >>> _ = p.def_impl(lambda x: 2 * x)
          >>> p.bind(3)
          6
        """
        trace = state.trace
        return self.impl(*args, **params) if trace is None else trace.process(self, args, params)

    def __call__(self, *args: Any, **params: Any) -> Any:
        return self.bind(*args, **params)  # a subclass may override `bind`

    def def_impl(self, impl: Callable[..., Any]) -> Callable[..., Any]:
        """Set the function that evaluates the operation on concrete values; it need not be traceable.

        Args:
          impl: takes the operands, and the parameters by name; returns the result.

        Returns:
          `impl`.

        Examples:
          >>> import numpy as np
          >>> norm_p = Primitive("norm")
          >>> _ = norm_p.def_impl(np.linalg.norm)
          >>> float(norm_p.bind(np.array([3.0, 4.0])))
          5.0
        """
        self.impl = impl
        return impl

    def def_abstract_eval(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Set the type rule.

        Args:
          rule: takes the types of the operands, and the parameters by name; returns the type of the result, or a
            sequence of types if there are multiple results.

        Returns:
          `rule`.

        Examples:
          >>> import phalanx
          >>> flat_p = Primitive("flat")
          >>> _ = flat_p.def_abstract_eval(lambda x: x.update(shape=(x.size,)))
          >>> phalanx.eval_shape(flat_p.bind, phalanx.ShapeDtypeStruct((2, 3), "float32"))
          ShapeDtypeStruct(shape=(6,), dtype=float32)
        """
        self._set_type_rule(lambda *avals, **params: (rule(*avals, **params), no_effects))
        return rule

    def def_effectful_abstract_eval(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Set the type rule of an operation with effects.

        Args:
          rule: as for `def_abstract_eval`; returns the type, or types, and the set of the effects.

        Returns:
          `rule`.

        Examples:
          >>> import phalanx
          >>> from phalanx.extend.core import Effect
          >>> log = Effect("Log")
          >>> log_p = Primitive("log_value")
          >>> _ = log_p.def_effectful_abstract_eval(lambda x: (x, {log}))
          >>> phalanx.make_jaxpr(log_p.bind)(1.0).effects
          frozenset({Log})
        """
        self._set_type_rule(rule)
        return rule

    def _set_type_rule(self, rule: Callable[..., Any]) -> None:
        if "_infer" in vars(self):
            core.clear_result_types()  # inferred by the rule that this one replaces
        self._infer = rule

    def def_sharding_rule(self, rule: Callable[..., ShardingRule]) -> Callable[..., ShardingRule]:
        """Set the rule by which shardings propagate; without one, results over Explicit axes are not sharded.

        Args:
          rule: takes the types of the operands, and the parameters by name; returns a `ShardingRule`.

        Returns:
          `rule`.

        Examples:
          >>> from phalanx.extend.core import ShardingRule
          >>> scale_p = Primitive("scale")
          >>> _ = scale_p.def_sharding_rule(lambda x: ShardingRule([range(x.ndim)], [range(x.ndim)]))
        """
        core.clear_result_types()  # inferred without the rule
        self._sharding_rule, self.typed_sharding_rule = rule, False
        return rule

    def sharding_rule(self, *avals: ShapedArray, **params: Any) -> ShardingRule:
        """The rule of `def_sharding_rule`; by default no dimension corresponds to another, and none is sharded."""
        if self._sharding_rule is not None:
            return self._sharding_rule(*avals, **params)
        outs = core.infer_results(self, avals, params)
        operands = [[("operand", i, d) for d in range(a.ndim)] for i, a in enumerate(avals)]
        results = [[("result", i, d) for d in range(a.ndim)] for i, a in enumerate(outs)]
        gathered: dict[Hashable, tuple[Hashable, ...]] = {name: () for names in operands for name in names}
        return ShardingRule(
            operands, results, whole=[n for names in (*operands, *results) for n in names], resized=gathered
        )

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> Any:
        """The type of the result, or a list of types."""
        found = self._infer(*avals, **params)[0]
        sharding = next((a.type_sharding for a in avals if a.type_sharding is not None), None)
        results = [_replicate(y, sharding) for y in (found if self.multiple_results else (found,))]
        return results if self.multiple_results else results[0]

    def effects(self, *avals: ShapedArray, **params: Any) -> Effects:
        """The effects of an application."""
        return frozenset(self._infer(*avals, **params)[1])

    def __copy__(self) -> Primitive:
        return self

    def __deepcopy__(self, memo: Any) -> Primitive:
        return self

    def __reduce__(self) -> Any:
        raise TypeError(f"primitive {self.name}: a primitive that is defined by a program cannot be pickled")


def apply_primitive(primitive: core.Primitive, *args: Any, **params: Any) -> Any:
    """Compile an operation for concrete operands, and run it; an implementation for primitives with a lowering.

    Args:
      primitive: the primitive.
      args: the operands: arrays or scalars.
      params: its parameters by name.

    Returns:
      The result, or a list if the primitive has multiple results.

    Examples:
      >>> import functools
      >>> from phalanx.interpreters import mlir
      >>> half_p = Primitive("half")
      >>> _ = half_p.def_abstract_eval(lambda x: x)
      >>> _ = mlir.register_lowering(half_p, mlir.lower_fun(lambda x: x / 2, multiple_results=False))
      >>> _ = half_p.def_impl(functools.partial(apply_primitive, half_p))
      >>> float(half_p.bind(3.0))
      1.5
    """
    return primitive.evaluate(*args, **params)


def _replicate(aval: ShapedArray, sharding: Any) -> ShapedArray:
    """A result type with a sharding over the mesh of the operands: a replicated one if the type rule gave none."""
    if sharding is None or aval.type_sharding is not None:
        return aval
    return aval.update(sharding=sharding.with_spec(PartitionSpec.of_dims([()] * aval.ndim)))
