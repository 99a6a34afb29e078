"""Primitives: the operations programs are made of, each declared once with all its rules.

A primitive is a class whose methods are its rules, under the same names and argument order everywhere, and one instance
of it; calling the instance runs the operation on the current trace. A rule is written, derived (`LINEAR`, `ZERO`), or
waived with a reason; a class with a hole fails when it is made. `lax` declares nearly all primitives.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from phalanx.core.aval import UNVARYING
from phalanx.core.config import state
from phalanx.core.effects import Effects, no_effects
from phalanx.core.errors import RuleError
from phalanx.core.explicit import follow
from phalanx.core.tangent import Zero, instantiate
from phalanx.engine.seat import Seat

registry: dict[str, Primitive] = {}

# run(primitive, args, params): executes one operation on concrete values.
eager = Seat(taken_by="phalanx.runtime.dispatch")

REQUIRED = ("result", "roles", "lower", "jvp", "transpose", "batch")


class Undefined:
    """A rule that does not exist, with the reason a user reads when it is asked for.

    Args:
      reason: why there is no such rule, and what to do instead.
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
            mend=f"{self.reason} (the rules of {primitive.name} are in {type(primitive).__module__})",
        )


class Roles:
    """Which dimensions of operands and results are the same index, which are reduced, which cannot be split.

    Args:
      operands: for each operand, a name for each dimension.
      results: for each result, a name for each dimension.
      reduced: for a name that only operands have, how partial results combine: sum, max, min, prod, and, or.
      whole: names that cannot be split, since each result needs the whole dimension.
      resized: of the whole ones in operands, those that a split array may have all the same: for each the names of what
        becomes of it in the results (none where it is reduced), at whatever price in communication.
      axes: the named axes along which members take part in it together, and how it combines what they have; None where
        it does anything else.
    """

    __slots__ = ("axes", "operands", "reduced", "resized", "results", "whole")

    def __init__(
        self,
        operands: Sequence[Sequence[Hashable]],
        results: Sequence[Sequence[Hashable]],
        reduced: Mapping[Hashable, str] | None = None,
        whole: Any = (),
        resized: Mapping[Hashable, Sequence[Hashable]] | None = None,
        axes: Mapping[Hashable, str | None] | None = None,
    ):
        self.operands = [tuple(names) for names in operands]
        self.results = [tuple(names) for names in results]
        self.reduced = dict(reduced or {})
        self.whole = frozenset(whole)
        self.resized = dict(resized or {})
        self.axes = dict(axes or {})

    def __repr__(self) -> str:
        return f"Roles({self.operands}, {self.results}, reduced={self.reduced}, whole={set(self.whole)})"


class Primitive:
    """Base of all operations. A subclass with `name` in its class line is complete and is checked for holes.

    Class arguments:
      name: what the operation is called in programs.
      multiple: whether it returns a list of results.

    Class attributes that a subclass may set:
      scalars_broadcast: rank-0 operands mix with full-shape ones; lowering broadcasts them first.
      says_shardings: its `result` also tells the shardings in the types of results, where roles do not.
      by_pieces: True, or a rule that says it of (*avals, **params): over several devices each does its piece of the
        operation, as the roles say, since XLA would gather the operands. The parameters must not depend on the sizes of
        parallel dimensions.
      holds_program: a parameter is a program, so results are not memoised and dispatch is the primitive's own.
      run: how to execute on concrete values, where compiling the one operation is not the way.
      batch_axis: in place of `batch`, where the rule wants to know the mapped axis: (axis, operands, dims, **params).
      stage: how to be recorded, for calls whose parameters are functions: (trace, args, params).
      linearize: primals and tangents to outputs, directly, for primitives that hold programs.
      varying: for collectives, the mesh axes that results vary over: (those of the operands, **params). A program
        that an equation holds says so itself.
      settle: for primitives that hold programs, their parameters for operands of these types, whose varying axes the
        programs must follow: (avals, params).
      placing: (**params) to the shardings that an application names, or None for those left open; the first that has
        devices tells which ones a program runs on whose arguments do not.
      reads: (**params) to the sharding by which it reads each operand, where devices need their pieces only.
      takes_keys: its rules know random keys; others see the numbers that these are made of, in one dimension more.
      named_axes: (*args, **params) to the named axes that an application runs over, where the parameters do not tell.
      key_use: what becomes of the random keys among its operands: "used up", or "read" where its results are new ones.
      split: partial evaluation, for primitives that hold programs: (trace, args, params) with some unknown args.
      split_eqn: the same for an equation of a program: (eqn, unknown, policy) to the known part or None, the other, and
        the residuals between them.
      dce: (eqn, used_outputs) to a smaller equation or None.
      memories: the kinds of memory that results are in, None for the default: (those of the operands, **params).
    """

    name: str = ""
    multiple: ClassVar[bool] = False
    scalars_broadcast: ClassVar[bool] = False
    by_pieces: Any = False
    holds_program: ClassVar[bool] = False
    says_shardings: ClassVar[bool] = False
    takes_keys: ClassVar[bool] = False
    run: Any = None
    batch_axis: Any = None
    stage: Any = None
    linearize: Any = None
    split: Any = None
    split_eqn: Any = None
    named_axes: Any = None
    varying: Any = None
    placing: Any = None
    reads: Any = None
    key_use: ClassVar[str | None] = None
    settle: Any = None
    dce: Any = None
    memories: Any = None

    result: Any  # The rules that every primitive sets; `__init__` checks that it does.
    roles: Any
    lower: Any
    jvp: Any
    batch: Any
    transpose: Any = Undefined("the operation is not linear, so only its linearisation has a transpose")

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
        registry[self.name] = self
        self.calls: dict = {}  # its compiled forms by the types of concrete arguments; filled by `dispatch`

    def __call__(self, *args: Any, **params: Any) -> Any:
        trace = state.trace
        if trace is None:
            return eager.run(self, args, params)
        return trace.process(self, args, params)

    bind = __call__

    def listed(self, *args: Any, **params: Any) -> list:
        """The results of an application as a list, also where there is only one."""
        out = self(*args, **params)
        return list(out) if self.multiple else [out]

    multiple_results = property(lambda self: self.multiple)  # as interpreters of the field read it

    def effects(self, *avals: Any, **params: Any) -> Effects:
        """The effects of one application; none unless a subclass says so."""
        return no_effects

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple:
        return _registered, (self.name,)


def _registered(name: str) -> Primitive:
    return registry[name]


def LINEAR(self: Primitive, primals: Sequence, tangents: Sequence, **params: Any) -> tuple:
    """The derivative of an operation linear jointly in all its operands: the tangents take the same road."""
    return self(*primals, **params), self(*map(instantiate, tangents), **params)


def ZERO(self: Primitive, primals: Sequence, tangents: Sequence, **params: Any) -> tuple:
    """The derivative of an operation that is locally constant."""
    y = self(*primals, **params)
    return (y, [Zero.like(v) for v in y]) if self.multiple else (y, Zero.like(y))


class Identity(Primitive):
    """Base of the operations that give their operand itself, and say something of it."""

    def result(self, x: Any, **_: Any) -> Any:
        return x

    def roles(self, x: Any, **_: Any) -> Roles:
        return Roles([range(x.ndim)], [range(x.ndim)])

    def lower(self, ctx: Any, x: Any, **_: Any) -> Any:
        return x

    jvp = LINEAR

    def transpose(self, y_bar: Any, x: Any, **_: Any) -> tuple:
        return (y_bar,)

    def batch(self, x: Any, b: int, **params: Any) -> tuple:
        return self(x, **params), b


def results_of(primitive: Primitive, avals: tuple, params: dict) -> list:
    """The types of the results of an application as a list, also where there is only one."""
    found = result_of(primitive, avals, params)
    return list(found) if primitive.multiple else [found]


_results: dict[tuple, Any] = {}


def result_of(primitive: Primitive, avals: tuple, params: dict) -> Any:
    """The result type(s) of an application, remembered for all later ones alike."""
    if primitive.holds_program:
        return _result_of(primitive, avals, params)
    key = (primitive, avals, *params, *params.values())
    try:
        found = _results.get(key)
    except TypeError:  # an unhashable parameter
        return _typed(primitive, avals, params)
    if found is None:
        found = _results[key] = _typed(primitive, avals, params)
    return found


def _typed(primitive: Primitive, avals: tuple, params: dict) -> Any:
    """What the type rule gives, varying over all the mesh axes that the operands vary over."""
    out = _result_of(primitive, avals, params)
    axes = joint_varying(avals)
    if primitive.varying is not None:
        axes = primitive.varying(axes, **params)
    return [a.with_varying(axes) for a in out] if primitive.multiple else out.with_varying(axes)


def joint_varying(avals: Iterable) -> frozenset:
    """The mesh axes that a result computed from values of these types varies over."""
    return UNVARYING.union(*[a.varying for a in avals])


def _result_of(primitive: Primitive, avals: tuple, params: dict) -> Any:
    if not primitive.says_shardings:
        for a in avals:
            if a.sharding is not None:
                return follow(primitive, avals, params)
    return primitive.result(*avals, **params)
