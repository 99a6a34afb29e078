"""The rules of primitives as tables in JAX's calling conventions, for programs that register or look up rules.

Each rule of a primitive is an attribute of it (see `core.primitive`). A table such as `primitive_jvps` is a view of one
attribute of all primitives: setting an entry sets the attribute, which works for the primitives of Phalanx as for those
that users define; an entry of a primitive of Phalanx is its own rule. So there is one place where a rule is stored.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any

import phalanx.lax  # noqa: F401  # the primitives whose rules the tables show
from phalanx.core import ArgumentTypeError, Primitive, Undefined, Zero, registry
from phalanx.engine.cache import clear_caches
from phalanx.runtime.transfer import scalar_array
from phalanx.transforms.batching import AxisData

Rule = Callable[..., Any]


class Registered:
    """A rule that a program registered, called in the convention of Phalanx.

    Args:
      rule: the rule, in the convention of its table.
      call: `(primitive, rule, *args, **params)` calls the rule with arguments in the convention of Phalanx.
      primitive: the primitive.
    """

    __slots__ = ("call", "primitive", "rule")

    def __init__(self, rule: Rule, call: Rule, primitive: Primitive):
        self.rule, self.call, self.primitive = rule, call, primitive

    def __call__(self, /, *args: Any, **params: Any) -> Any:
        return self.call(self.primitive, self.rule, *args, **params)


def find_rule(primitive: Primitive, *names: str) -> tuple[str, Any] | None:
    """The first of the named attributes that is a rule, and the rule; None if there is none."""
    for name in names:
        found = getattr(primitive, name, None)
        if found is not None and not isinstance(vars(primitive).get(name, getattr(type(primitive), name)), Undefined):
            return name, found
    return None


class RuleTable(MutableMapping[Primitive, Rule]):
    """The rules of one kind by primitive.

    Args:
      attribute: the attribute of primitives that an entry sets.
      register: `(primitive, rule, *args, **params)` calls a registered rule in the convention of Phalanx.
      show: `(primitive, attribute, *args, **params)` calls a rule of Phalanx in the convention of the table.
      others: attributes that may hold the rule instead.
      replaces: optional rules of a primitive that a new entry puts out of force, since they would precede it.
    """

    def __init__(
        self, attribute: str, register: Rule, show: Rule, others: Sequence[str] = (), replaces: Sequence[str] = ()
    ):
        self._attribute, self._register, self._show = attribute, register, show
        self._others, self._replaces = others, replaces
        self._set: weakref.WeakSet[Primitive] = weakref.WeakSet()

    def __getitem__(self, primitive: Primitive) -> Rule:
        found = find_rule(primitive, self._attribute, *self._others)
        if found is None:
            raise KeyError(primitive)
        name, rule = found
        if type(rule) is Registered and rule.call is self._register:
            return rule.rule
        return lambda *args, **params: self._show(primitive, name, *args, **params)

    def __setitem__(self, primitive: Primitive, rule: Rule) -> None:
        if not isinstance(primitive, Primitive) or not callable(rule):
            raise ArgumentTypeError(
                "registration of a rule",
                expected="a primitive and a function",
                got=f"{primitive!r} and {rule!r}",
                fix="write table[primitive] = rule",
            )
        if primitive in self:
            clear_caches()  # programs that the replaced rule is part of
        setattr(primitive, self._attribute, Registered(rule, self._register, primitive))
        for name in self._replaces:
            setattr(primitive, name, None)
        self._set.add(primitive)

    def __delitem__(self, primitive: Primitive) -> None:
        if primitive not in self._set:
            raise KeyError(primitive)
        self._set.remove(primitive)
        for name in (self._attribute, *self._replaces):
            delattr(primitive, name)
        clear_caches()

    def __contains__(self, primitive: object) -> bool:
        return isinstance(primitive, Primitive) and find_rule(primitive, self._attribute, *self._others) is not None

    def __iter__(self) -> Iterator[Primitive]:
        yield from (p for p in {*registry.values(), *self._set} if p in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _arrays(operands: Sequence[Any]) -> tuple[Any, ...]:
    """The operands for a rule of a user, which may read their shapes and dtypes: Python scalars become arrays."""
    return tuple(map(scalar_array, operands))


def _register_jvp(_: Primitive, rule: Rule, primals: Sequence[Any], tangents: Sequence[Any], /, **params: Any) -> Any:
    return rule(_arrays(primals), tuple(tangents), **params)


def _register_transpose(primitive: Primitive, rule: Rule, y_bar: Any, /, *operands: Any, **params: Any) -> Any:
    x_bars = rule(tuple(y_bar) if primitive.multiple else y_bar, *_arrays(operands), **params)
    return [None] * len(operands) if x_bars is Zero else x_bars  # the class itself stands for zeros of every operand


def _register_batcher(
    _: Primitive, rule: Rule, axis: AxisData, args: Sequence[Any], dims: Sequence[Any], /, **params: Any
) -> Any:
    return rule(_arrays(args), tuple(dims), **params)


def _register_axis_batcher(
    _: Primitive, rule: Rule, axis: AxisData, args: Sequence[Any], dims: Sequence[Any], /, **params: Any
) -> Any:
    return rule(axis.size, axis.name, None, _arrays(args), tuple(dims), **params)


def _register_fancy_batcher(
    _: Primitive, rule: Rule, axis: AxisData, args: Sequence[Any], dims: Sequence[Any], /, **params: Any
) -> Any:
    return rule(axis, _arrays(args), tuple(dims), **params)


def _show(primitive: Primitive, attribute: str, /, *args: Any, **params: Any) -> Any:
    return getattr(primitive, attribute)(*args, **params)


def _show_fancy_batcher(
    primitive: Primitive, attribute: str, axis: AxisData, args: Sequence[Any], dims: Sequence[Any], /, **params: Any
) -> Any:
    rule = getattr(primitive, attribute)
    return rule(*args, *dims, **params) if attribute == "batch" else rule(axis, args, dims, **params)


def _show_batcher(
    primitive: Primitive, attribute: str, args: Sequence[Any], dims: Sequence[Any], /, **params: Any
) -> Any:
    size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
    return _show_fancy_batcher(primitive, attribute, AxisData(size), args, dims, **params)


def _show_axis_batcher(
    primitive: Primitive,
    attribute: str,
    size: Any,
    name: Any,
    main_type: Any,
    args: Sequence[Any],
    dims: Sequence[Any],
    /,
    **params: Any,
) -> Any:
    return _show_fancy_batcher(primitive, attribute, AxisData(size, name), args, dims, **params)


primitive_jvps = RuleTable("jvp", _register_jvp, _show, replaces=("linearize",))
"""Derivative rules: `rule(primals, tangents, **params)` returns the result and its tangent; see `Zero`."""

primitive_transposes = RuleTable("transpose", _register_transpose, _show)
"""Transpose rules: `rule(cotangent, *operands, **params)` returns a cotangent, or None, for each operand."""

primitive_batchers = RuleTable("batch_axis", _register_batcher, _show_batcher, others=("batch",))
"""Batching rules: `rule(operands, dims, **params)` returns the result and its mapped dimension."""

axis_primitive_batchers = RuleTable("batch_axis", _register_axis_batcher, _show_axis_batcher, others=("batch",))
"""Batching rules that read the axis: `rule(axis_size, axis_name, None, operands, dims, **params)`."""

fancy_primitive_batchers = RuleTable("batch_axis", _register_fancy_batcher, _show_fancy_batcher, others=("batch",))
"""Batching rules that read all about the axis: `rule(axis_data, operands, dims, **params)`."""
