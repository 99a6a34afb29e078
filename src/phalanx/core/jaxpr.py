"""Jaxprs: functions as typed, flat lists of equations in single-assignment form.

One `Jaxpr` class serves every transformation, lowering, export and planning. It carries the values of the constants
that the function closed over (`consts`), so that it can be evaluated as it is; `hoist` turns constants into leading
inputs. Results that are derived from a jaxpr, such as its derivative or its compiled form, are kept on it and freed
with it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, ParamSpec, TypeVar

from phalanx.core.aval import ShapedArray
from phalanx.core.config import current_scope, state, state_extra
from phalanx.core.dtypes import wide
from phalanx.core.effects import Effects, no_effects
from phalanx.core.jaxpr_printer import print_eqn, print_jaxpr
from phalanx.core.list_partition import select_flagged, select_unflagged
from phalanx.core.source_info import NameStack, SourceInfo, split_source

Atom = Any  # a Var or a Literal
P = ParamSpec("P")
R = TypeVar("R")


class Var:
    """A variable of a jaxpr, identified by the object itself.

    Args:
      aval: its type.

    Examples:
      >>> import phalanx
      >>> program = phalanx.make_jaxpr(lambda x: x + 1)(phalanx.ShapeDtypeStruct((3,), "int32"))
      >>> [x.aval for x in program.invars]
      [ShapedArray(int32[3])]
    """

    __slots__ = ("aval",)

    is_dropped: ClassVar[bool] = False  # whether jaxprs are printed with "_" for the variable

    def __init__(self, aval: ShapedArray):
        self.aval = aval

    def __repr__(self) -> str:
        return f"Var({id(self):x}:{self.aval.str_short()})"


class DropVar(Var):
    """The variable of a result that nothing reads.

    Args:
      aval: the type of the result.

    Examples:
      >>> from phalanx.core.aval import get_aval
      >>> isinstance(DropVar(get_aval(1)), Var)
      True
    """

    __slots__ = ()

    is_dropped = True


class Literal:
    """A scalar constant that is written in an equation.

    Args:
      value: the constant.
      aval: its type.

    Examples:
      >>> import phalanx
      >>> [x.value for x in phalanx.make_jaxpr(lambda x: x + 1)(2).eqns[0].invars if type(x) is Literal]
      [1]
    """

    __slots__ = ("aval", "value")

    def __init__(self, value: Any, aval: ShapedArray):
        self.value = value
        self.aval = aval

    val = property(lambda self: self.value)  # the name of the attribute in JAX

    def __repr__(self) -> str:
        return f"{self.value}:{self.aval.str_short()}"


@dataclass(eq=False, repr=False, slots=True)
class Eqn:
    """One equation: `outvars = primitive[params](*invars)`, with the traceback of the line it comes from.

    Args:
      primitive: the operation.
      invars: its operands, each a `Var` or a `Literal`.
      outvars: its results.
      params: its parameters by name.
      source: the traceback, or None.
      effects: its effects besides the results.

    Examples:
      >>> import phalanx
      >>> phalanx.make_jaxpr(lambda x: x + 1)(2).eqns[0].primitive.name
      'add'
    """

    primitive: Any
    invars: list[Atom]
    outvars: list[Var]
    params: dict[str, Any]
    source: Any
    effects: Effects = no_effects

    @property
    def source_info(self) -> SourceInfo:
        """The position and the scopes of the operation."""
        traceback, scope = split_source(self.source)
        return SourceInfo(traceback, NameStack(scope))

    def replace(self, **fields: Any) -> Eqn:
        """A copy with the named fields replaced."""
        return Eqn(**({name: getattr(self, name) for name in self.__slots__} | fields))

    def __repr__(self) -> str:
        return print_eqn(self)


class Jaxpr:
    """A function: inputs, equations, outputs, and the constants that it closed over.

    Args:
      invars: the input variables.
      eqns: the equations; each reads only inputs, constants and results of earlier equations.
      outvars: variables or literals that are the results.
      constvars, consts: variables and the values of the constants that they are bound to.
      effects: the effects of evaluating it.
      debug_name: the name of the function it was traced from.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> phalanx.make_jaxpr(lambda x: jnp.sin(x) * 2)(1.0).in_avals
      [ShapedArray(float32[], weak_type=True)]
    """

    __slots__ = ("__weakref__", "cache", "constvars", "consts", "debug_name", "effects", "eqns", "invars", "outvars")

    def __init__(
        self,
        invars: Sequence[Var],
        eqns: Sequence[Eqn],
        outvars: Sequence[Atom],
        constvars: Sequence[Var] = (),
        consts: Sequence[Any] = (),
        effects: Effects = no_effects,
        debug_name: str = "fn",
    ):
        self.invars = list(invars)
        self.eqns = list(eqns)
        self.outvars = list(outvars)
        self.constvars = list(constvars)
        self.consts = list(consts)
        self.effects = effects
        self.debug_name = debug_name
        self.cache: dict[
            str, Any
        ] = {}  # results derived from this jaxpr, by the keys of `derive` and `cached_on_jaxpr`

    @property
    def in_avals(self) -> list[ShapedArray]:
        return [v.aval for v in self.invars]

    @property
    def out_avals(self) -> list[ShapedArray]:
        return [v.aval for v in self.outvars]

    @property
    def jaxpr(self) -> Jaxpr:
        """This jaxpr: in JAX, the open form of a `ClosedJaxpr`."""
        return self

    literals = property(lambda self: self.consts)

    def replace(self, **fields: Any) -> Jaxpr:
        """A copy with the named fields replaced, and nothing derived yet."""
        names = ("invars", "eqns", "outvars", "constvars", "consts", "effects", "debug_name")
        return Jaxpr(**({name: getattr(self, name) for name in names} | fields))

    def hoist(self) -> Jaxpr:
        """The same jaxpr with its constants as leading inputs."""
        every = [True] * len(self.consts)
        return self.derive("hoisted", lambda: self.hoist_some(every)) if every else self

    def hoist_some(self, flags: Sequence[bool]) -> Jaxpr:
        """The same jaxpr with the constants whose flags are True as leading inputs."""
        return self.replace(
            invars=[*select_flagged(self.constvars, flags), *self.invars],
            constvars=select_unflagged(self.constvars, flags),
            consts=select_unflagged(self.consts, flags),
        )

    def derive(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the result of `make()`, computed once for each `key` and kept on this jaxpr."""
        found = self.cache.get(key)
        if found is None:
            found = self.cache[key] = make()
        return found

    def __str__(self) -> str:
        return print_jaxpr(self)

    __repr__ = __str__

    def pretty_print(self, *, source_info: bool = False, name_stack: bool = False, width: float = 80, **_: Any) -> str:
        """Format the jaxpr, optionally with the source line and the named scopes of each equation."""
        return print_jaxpr(self, source=source_info, scopes=name_stack, width=width)


ClosedJaxpr = Jaxpr


_UNCHANGED: Any = object()  # stands for the jaxpr itself in its cache


def cached_on_jaxpr(make: Callable[P, R]) -> Callable[P, R]:
    """Cache the results of a function of a jaxpr and hashable arguments on the jaxpr; lists count as tuples."""

    @functools.wraps(make)
    def kept(program: Any, *args: Any) -> Any:
        key = (make, *[tuple(x) if type(x) is list else x for x in args])
        try:
            known = program.cache[key]
        except KeyError:
            with preserve_wide_types(program):
                found: Any = make(program, *args)  # type: ignore[call-arg]
            # A jaxpr that refers to itself would wait for the garbage collector.
            if (found[0] if type(found) is tuple else found) is not program:
                program.cache[key] = found
            elif found is program:
                program.cache[key] = _UNCHANGED
            return found
        return program if known is _UNCHANGED else known

    return kept  # type: ignore[return-value]


def has_wide_types(jaxpr: Jaxpr) -> bool:
    """Whether a jaxpr, inner ones included, has values of 64-bit dtypes."""

    def search() -> bool:
        for v in jaxpr.invars:
            if v.aval.dtype in wide:
                return True
        for eqn in jaxpr.eqns:
            for v in eqn.outvars:
                if v.aval.dtype in wide:
                    return True
            if eqn.primitive.call_like and any(map(has_wide_types, inner_jaxprs(eqn.params))):
                return True
        return False

    return jaxpr.derive("has wide types", search)


def preserve_wide_types(jaxpr: Jaxpr) -> contextlib.AbstractContextManager[None]:
    """A block in which the rules of a jaxpr's equations keep its 64-bit types where `enable_x64` is off.

    The types of a jaxpr are final, but a rule makes constants and arrays as user code does. A function may enable
    64 bits in a part of its body only, and the rules of that part run after it.
    """
    if current_scope().context.enable_x64 or not has_wide_types(jaxpr):
        return contextlib.nullcontext()
    return state_extra(enable_x64=True)


def inner_jaxprs(params: dict[str, Any]) -> Iterable[Jaxpr]:
    """Iterate over the jaxprs among an equation's parameters.

    Args:
      params: the parameters by name.

    Yields:
      Each jaxpr.

    Examples:
      >>> import phalanx
      >>> eqn = phalanx.make_jaxpr(phalanx.jit(lambda x: x + 1))(2).eqns[0]
      >>> [len(program.eqns) for program in inner_jaxprs(eqn.params)]
      [1]
    """
    for value in params.values():
        if type(value) is Jaxpr:
            yield value
        elif type(value) is tuple:
            yield from (v for v in value if type(v) is Jaxpr)


def iterate_jaxprs(jaxpr: Jaxpr) -> Iterable[Jaxpr]:
    """Iterate over a jaxpr and all jaxprs in its equations, at any depth.

    Args:
      jaxpr: the jaxpr.

    Yields:
      Each jaxpr, an outer one before those in it.

    Examples:
      >>> import phalanx
      >>> program = phalanx.make_jaxpr(phalanx.jit(lambda x: x + 1))(2)
      >>> [eqn.primitive.name for inner in iterate_jaxprs(program) for eqn in inner.eqns]
      ['jit', 'add']
    """
    pending = [jaxpr]
    for current in pending:  # which grows meanwhile
        yield current
        pending.extend(inner for eqn in current.eqns for inner in inner_jaxprs(eqn.params))


@cached_on_jaxpr
def named_axes(jaxpr: Jaxpr) -> frozenset[Any]:
    """The named axes over which collectives in a jaxpr run, inner jaxprs included."""
    return frozenset().union(*[eqn_named_axes(eqn.params) for eqn in jaxpr.eqns])


def eqn_named_axes(params: dict[str, Any]) -> frozenset[Any]:
    """The named axes of an equation with these parameters, without the axes that it binds itself."""
    axes = params.get("axes")
    names = frozenset(axes if type(axes) is tuple else ())
    return names.union(*[named_axes(sub) for sub in inner_jaxprs(params)]) - params.get("manual", frozenset())


def run_jaxpr(jaxpr: Jaxpr, *args: Any) -> list[Any]:
    """Evaluate a jaxpr on the current trace; the operations get the source lines of its equations.

    Each value is dropped after its last use, so that an eager evaluation holds no more memory than it needs.
    """
    with preserve_wide_types(jaxpr):
        return _run_equations(jaxpr, args)


def enter_source(eqn: Eqn, source: Any, scope: Any) -> None:
    """Set the line and the scope of the operations that evaluate an equation, inside this source and scope."""
    # Inner functions of call-like primitives have source lines of their own.
    if eqn.primitive.call_like:
        state.source, state.scope = source, scope + split_source(eqn.source)[1]
    else:
        state.source, state.scope = eqn.source, scope


def _run_equations(jaxpr: Jaxpr, args: Sequence[Any]) -> list[Any]:
    before, scope = state.source, state.scope
    env: dict[Var, Any] = dict(zip(jaxpr.constvars, jaxpr.consts, strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))

    def read(atom: Atom) -> Any:
        return atom.value if type(atom) is Literal else env[atom]

    try:
        for eqn, dying in zip(jaxpr.eqns, last_uses(jaxpr), strict=True):
            enter_source(eqn, before, scope)
            out = eqn.primitive(*[read(a) for a in eqn.invars], **eqn.params)
            if eqn.primitive.multiple:
                env.update(zip(eqn.outvars, out, strict=True))
            else:
                env[eqn.outvars[0]] = out
            for v in dying:
                del env[v]
    finally:
        state.source, state.scope = before, scope
    return [read(a) for a in jaxpr.outvars]


def eval_jaxpr(jaxpr: Jaxpr, consts: Sequence[Any], *args: Any) -> list[Any]:
    """Evaluate a jaxpr on the current trace, with these values for its constants.

    Args:
      jaxpr: the jaxpr.
      consts: the values, such as `jaxpr.consts`.
      args: the inputs, flat.

    Returns:
      The results, flat.

    Examples:
      >>> import phalanx
      >>> program = phalanx.make_jaxpr(lambda x: x * 2)(1.0)
      >>> float(eval_jaxpr(program.jaxpr, program.consts, 3.0)[0])
      6.0
    """
    return run_jaxpr(jaxpr if consts is jaxpr.consts else jaxpr.replace(consts=consts), *args)


def jaxpr_as_fun(jaxpr: Jaxpr) -> Callable[..., list[Any]]:
    """Turn a jaxpr into a function of its flat inputs that returns its flat outputs.

    Args:
      jaxpr: the jaxpr.

    Returns:
      The function.

    Examples:
      >>> import phalanx
      >>> (y,) = jaxpr_as_fun(phalanx.make_jaxpr(lambda x: x + 1)(2))(5)
      >>> int(y)
      6
    """
    return functools.partial(run_jaxpr, jaxpr)


@cached_on_jaxpr
def last_uses(jaxpr: Jaxpr) -> list[list[Var]]:
    """For each equation, the variables that no later equation reads."""
    seen: set[Var] = {v for v in jaxpr.outvars if type(v) is not Literal}
    dying = []
    # Backwards, so that one pass finds the last use of each variable.
    for eqn in reversed(jaxpr.eqns):
        here = {v for v in (*eqn.invars, *eqn.outvars) if type(v) is not Literal and v not in seen}
        seen |= here
        dying.append(list(here))
    return dying[::-1]


@cached_on_jaxpr
def dce_jaxpr(jaxpr: Jaxpr, used_outputs: Sequence[bool]) -> tuple[Jaxpr, list[bool]]:
    """Drop the equations, inputs and constants that the used outputs do not need, in inner jaxprs too.

    Args:
      jaxpr: the jaxpr.
      used_outputs: for each output, whether it is used.

    Returns:
      The smaller jaxpr, with the used outputs and the needed inputs only, and for each input whether it was kept.
    """
    return _eliminate(jaxpr, used_outputs, False)


@cached_on_jaxpr
def remove_dead_code(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr with the same inputs and outputs but no dead code; the same object if there is none."""
    return jaxpr if "is_live" in jaxpr.cache else _eliminate(jaxpr, [True] * len(jaxpr.outvars), True)[0]


def _eliminate(jaxpr: Jaxpr, used_outputs: Sequence[bool], keeps_inputs: bool) -> tuple[Jaxpr, list[bool]]:
    outvars = select_flagged(jaxpr.outvars, used_outputs)
    # One pass from the last equation to the first: whether an equation is live depends on later equations only.
    live: set[Var] = {v for v in outvars if type(v) is not Literal}
    kept: list[Eqn] = []
    is_same = True
    for eqn in reversed(jaxpr.eqns):
        used = [v in live for v in eqn.outvars]
        # An equation with effects stays even if nothing reads its results.
        if True not in used and not eqn.effects:
            is_same = False
            continue
        if False in used and (rule := eqn.primitive.dce) is not None:
            is_same, eqn = False, rule(eqn, used)
            if eqn is None:
                continue
        kept.append(eqn)
        for v in eqn.invars:  # `live.update` with a generator takes three times as long
            if type(v) is not Literal:
                live.add(v)
    used_inputs = [keeps_inputs or v in live for v in jaxpr.invars]
    held = [v in live for v in jaxpr.constvars]
    if is_same and all(used_inputs) and all(used_outputs) and all(held):
        # Remembered, because lowering asks again for every call of the jaxpr.
        jaxpr.cache["is_live"] = True
        return jaxpr, used_inputs
    smaller = jaxpr.replace(
        invars=select_flagged(jaxpr.invars, used_inputs),
        eqns=kept[::-1],
        outvars=outvars,
        constvars=select_flagged(jaxpr.constvars, held),
        consts=select_flagged(jaxpr.consts, held),
        effects=no_effects.union(*(e.effects for e in kept)),
    )
    smaller.cache["is_live"] = True
    return smaller, used_inputs
