"""The program: a typed, flat list of equations in single-assignment form.

One `Jaxpr` class serves every transformation, lowering, export and planning. It carries the values of the constants it
closed over (`consts`), so that it can be run as it stands; `close` and `hoist` move between that form and the one in
which constants are leading inputs. The printer is in `printer`, the checker in `checker`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from phalanx.core.aval import ShapedArray
from phalanx.core.config import state
from phalanx.core.effects import Effects, no_effects
from phalanx.core.flags import chosen, others
from phalanx.core.source import scope_within

Atom = Any  # a Var or a Literal
P = ParamSpec("P")
R = TypeVar("R")


class Var:
    """A variable of a program; its identity is its name.

    Args:
      aval: its type.

    Examples:
      >>> import phalanx
      >>> program = phalanx.make_jaxpr(lambda x: x + 1)(phalanx.ShapeDtypeStruct((3,), "int32"))
      >>> [x.aval for x in program.invars]
      [ShapedArray(int32[3])]
    """

    __slots__ = ("aval",)

    def __init__(self, aval: ShapedArray):
        self.aval = aval

    def __repr__(self) -> str:
        return f"Var({id(self):x}:{self.aval})"


class DropVar(Var):
    """The place of a result that nobody reads.

    Args:
      aval: the type of the result.

    Examples:
      >>> from phalanx.core.aval import aval_of
      >>> isinstance(DropVar(aval_of(1)), Var)
      True
    """

    __slots__ = ()


class Literal:
    """A scalar constant that stands in an equation itself.

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

    val = property(lambda self: self.value)  # as interpreters of the field read it

    def __repr__(self) -> str:
        return f"{self.value}:{self.aval.str_short()}"


@dataclass(eq=False, repr=False, slots=True)
class Eqn:
    """One equation: `outvars = primitive[params](*invars)`, with the traceback of the line that wrote it.

    Args:
      primitive: the operation.
      invars: its operands, each a `Var` or a `Literal`.
      outvars: its results.
      params: its parameters by name.
      source: the traceback, or None.
      effects: what it does besides its results.

    Examples:
      >>> import phalanx
      >>> phalanx.make_jaxpr(lambda x: x + 1)(2).eqns[0].primitive.name
      'add'
    """

    primitive: Any
    invars: list[Atom]
    outvars: list[Var]
    params: dict
    source: Any
    effects: Effects = no_effects

    def replace(self, **fields: Any) -> Eqn:
        """A copy with the named fields replaced."""
        return Eqn(**({name: getattr(self, name) for name in self.__slots__} | fields))

    def __repr__(self) -> str:
        from phalanx.core.printer import print_eqn

        return print_eqn(self)


class Jaxpr:
    """A program: inputs, equations, outputs, and the constants it closed over.

    Args:
      invars: the input variables.
      eqns: the equations, each reading only what stands before it.
      outvars: variables or literals that are the results.
      constvars, consts: variables bound to values the program closed over.
      effects: the effects of running it.
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
        self.cache: dict = {}  # what transformations have derived from this program, by their own keys

    @property
    def in_avals(self) -> list[ShapedArray]:
        return [v.aval for v in self.invars]

    @property
    def out_avals(self) -> list[ShapedArray]:
        return [v.aval for v in self.outvars]

    @property
    def jaxpr(self) -> Jaxpr:
        """This program: one class plays the parts of both JAX's closed and open forms."""
        return self

    literals = property(lambda self: self.consts)

    def replace(self, **fields: Any) -> Jaxpr:
        """A copy with the named fields replaced; what was derived from the original stays with it."""
        names = ("invars", "eqns", "outvars", "constvars", "consts", "effects", "debug_name")
        return Jaxpr(**({name: getattr(self, name) for name in names} | fields))

    def hoist(self) -> Jaxpr:
        """The same program with its constants as leading inputs."""
        make = lambda: self.opened([True] * len(self.consts))
        return self.derive("hoisted", make) if self.constvars else self

    def opened(self, flags: Sequence[bool]) -> Jaxpr:
        """The same program with the constants of which this is set as leading inputs."""
        return self.replace(
            invars=[*chosen(self.constvars, flags), *self.invars],
            constvars=others(self.constvars, flags),
            consts=others(self.consts, flags),
        )

    def derive(self, key: Any, make: Callable[[], Any]) -> Any:
        """What `make` builds from this program, built once for each `key`."""
        found = self.cache.get(key)
        if found is None:
            found = self.cache[key] = make()
        return found

    def __str__(self) -> str:
        from phalanx.core.printer import print_jaxpr

        return print_jaxpr(self)

    __repr__ = __str__

    def pretty_print(self, *, source_info: bool = False, **_: Any) -> str:
        """The program as text, on request with the source line of each equation."""
        from phalanx.core.printer import print_jaxpr

        return print_jaxpr(self, source=source_info)


ClosedJaxpr = Jaxpr


def derivation(make: Callable[P, R]) -> Callable[P, R]:
    """A function of a program whose results are kept on it, one for all further arguments (lists count as tuples)."""

    @functools.wraps(make)
    def kept(program: Any, *args: Any) -> Any:
        key = (make, *[tuple(x) if type(x) is list else x for x in args])
        try:
            return program.cache[key]
        except KeyError:
            found: Any = make(program, *args)  # type: ignore[call-arg]
            # A program that held itself would stay until the garbage collector comes.
            if (found[0] if type(found) is tuple else found) is not program:
                program.cache[key] = found
            return found

    return kept  # type: ignore[return-value]


def subprograms(params: dict) -> Iterable[Jaxpr]:
    """The programs held in an equation's parameters.

    Args:
      params: the parameters by name.

    Yields:
      Each program.

    Examples:
      >>> import phalanx
      >>> eqn = phalanx.make_jaxpr(phalanx.jit(lambda x: x + 1))(2).eqns[0]
      >>> [len(program.eqns) for program in subprograms(eqn.params)]
      [1]
    """
    for value in params.values():
        if type(value) is Jaxpr:
            yield value
        elif type(value) is tuple:
            yield from (v for v in value if type(v) is Jaxpr)


@derivation
def named_axes(jaxpr: Jaxpr) -> frozenset:
    """The names of the axes that collectives in a program run over, also in the programs its equations hold."""
    return frozenset().union(*[named_axes_of(eqn.params) for eqn in jaxpr.eqns])


def named_axes_of(params: dict) -> frozenset:
    """The names of the axes that an equation with these parameters runs over, but for those it gives members itself."""
    axes = params.get("axes")
    names = frozenset(axes if type(axes) is tuple else ())
    return names.union(*[named_axes(sub) for sub in subprograms(params)]) - params.get("manual", frozenset())


def run_program(jaxpr: Jaxpr, *args: Any) -> list:
    """Run a program on values, on the current trace; what it records is of the same source lines.

    Each value is let go after its last use, so that an eager run holds no more than it needs.
    """
    before, scope = state.source, state.scope
    env: dict[Var, Any] = dict(zip(jaxpr.constvars, jaxpr.consts, strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))

    def read(atom: Atom) -> Any:
        return atom.value if type(atom) is Literal else env[atom]

    try:
        for eqn, dying in zip(jaxpr.eqns, last_uses(jaxpr), strict=True):
            # What calls a program or a rule of the user's has lines of its own inside.
            if eqn.primitive.holds_program:
                state.source, state.scope = before, scope_within(scope, eqn.source)
            else:
                state.source, state.scope = eqn.source, scope
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


def eval_jaxpr(jaxpr: Jaxpr, consts: Sequence[Any], *args: Any) -> list:
    """Run a program on values, on the current trace, with these values for its constants.

    Args:
      jaxpr: the program.
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
    return run_program(jaxpr if consts is jaxpr.consts else jaxpr.replace(consts=consts), *args)


def jaxpr_as_fun(jaxpr: Jaxpr) -> Callable[..., list]:
    """A program as a function of its flat inputs, which gives its flat results.

    Args:
      jaxpr: the program.

    Returns:
      The function.

    Examples:
      >>> import phalanx
      >>> (y,) = jaxpr_as_fun(phalanx.make_jaxpr(lambda x: x + 1)(2))(5)
      >>> int(y)
      6
    """
    return functools.partial(run_program, jaxpr)


@derivation
def last_uses(jaxpr: Jaxpr) -> list[list[Var]]:
    """For each equation, the variables that nothing reads after it."""
    seen: set[Var] = {v for v in jaxpr.outvars if type(v) is not Literal}
    dying = []
    for eqn in reversed(jaxpr.eqns):
        here = {v for v in (*eqn.invars, *eqn.outvars) if type(v) is not Literal and v not in seen}
        seen |= here
        dying.append(list(here))
    dying.reverse()
    return dying


@derivation
def eliminate_dead_code(jaxpr: Jaxpr, used_outputs: Sequence[bool]) -> tuple[Jaxpr, list[bool]]:
    """Drop what the used outputs do not need, inside the programs that equations hold too.

    Args:
      jaxpr: a program.
      used_outputs: for each output, whether it is wanted.

    Returns:
      The smaller program, with only the wanted outputs and the needed inputs, and for each input whether it was kept.
    """
    return _eliminate(jaxpr, used_outputs, False)


@derivation
def without_dead_code(jaxpr: Jaxpr) -> Jaxpr:
    """The program with the same inputs and results, without what these do not need; itself where nothing is dead."""
    return jaxpr if "is_live" in jaxpr.cache else _eliminate(jaxpr, [True] * len(jaxpr.outvars), True)[0]


def _eliminate(jaxpr: Jaxpr, used_outputs: Sequence[bool], keeps_inputs: bool) -> tuple[Jaxpr, list[bool]]:
    outvars = chosen(jaxpr.outvars, used_outputs)
    live: set[Var] = {v for v in outvars if type(v) is not Literal}
    kept: list[Eqn] = []
    is_same = True
    for eqn in reversed(jaxpr.eqns):
        used = [v in live for v in eqn.outvars]
        if not any(used) and not eqn.effects:
            is_same = False
            continue
        if (rule := eqn.primitive.dce) is not None and not all(used):
            is_same, eqn = False, rule(eqn, used)
            if eqn is None:
                continue
        kept.append(eqn)
        for v in eqn.invars:  # an update by a generator takes three times as long
            if type(v) is not Literal:
                live.add(v)
    kept.reverse()
    used_inputs = [keeps_inputs or v in live for v in jaxpr.invars]
    held = [v in live for v in jaxpr.constvars]
    if is_same and all(used_inputs) and all(used_outputs) and all(held):
        jaxpr.cache["is_live"] = True
        return jaxpr, used_inputs
    smaller = jaxpr.replace(
        invars=chosen(jaxpr.invars, used_inputs),
        eqns=kept,
        outvars=outvars,
        constvars=chosen(jaxpr.constvars, held),
        consts=chosen(jaxpr.consts, held),
        effects=no_effects.union(*(e.effects for e in kept)) if kept else no_effects,
    )
    smaller.cache["is_live"] = True
    return smaller, used_inputs
