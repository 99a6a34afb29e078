"""Checks of jaxprs: each variable is defined once before it is read, and has the type that the primitive's rule gives.

Tests of transformations use it, and `core.check_jaxpr` offers it for jaxprs that are built by hand.
"""

from __future__ import annotations

from typing import Any

from phalanx.core.effects import no_effects
from phalanx.core.error_classes import PhalanxError
from phalanx.core.jaxpr import Eqn, Jaxpr, Literal, Var, iterate_jaxprs
from phalanx.core.primitive import Primitive, infer_results


class ProgramError(PhalanxError, TypeError):
    """A jaxpr is not well formed."""


def check_jaxpr(program: Jaxpr) -> None:
    """Check a jaxpr and the jaxprs in its equations.

    Args:
      program: the jaxpr.

    Raises:
      ProgramError: an equation is wrong; the error names it.

    Examples:
      >>> import phalanx
      >>> check_jaxpr(phalanx.make_jaxpr(lambda x: x + 1)(2))
    """
    for current in iterate_jaxprs(program):
        _check(current)


def _check(program: Jaxpr) -> None:
    if len(program.constvars) != len(program.consts):
        raise _wrong(program, "constants", f"{len(program.constvars)} values", f"{len(program.consts)}")
    defined: set[Var] = set()
    for v in (*program.constvars, *program.invars):
        _define(program, defined, v, "inputs")
    effects = no_effects
    for i, eqn in enumerate(program.eqns):
        where = f"equation {i}, {eqn.primitive.name}"
        for atom in eqn.invars:
            _read(program, defined, atom, where)
        avals = tuple(a.aval for a in eqn.invars)
        _check_results(program, eqn, avals, where)
        for v in eqn.outvars:
            _define(program, defined, v, where)
        if type(eqn.primitive).effects is not Primitive.effects:
            effects |= eqn.primitive.effects(*avals, **eqn.params)
    for atom in program.outvars:
        _read(program, defined, atom, "outputs")
    if not effects <= program.effects:
        raise _wrong(
            program, "effects", f"at least {sorted(map(str, effects))}", str(sorted(map(str, program.effects)))
        )


def _check_results(program: Jaxpr, eqn: Eqn, avals: tuple[Any, ...], where: str) -> None:
    """Compare the types of an equation's results with the types that its primitive's rule gives."""
    results = infer_results(eqn.primitive, avals, eqn.params)
    if len(results) != len(eqn.outvars):
        raise _wrong(program, where, f"{len(results)} results", str(len(eqn.outvars)))
    for v, aval in zip(eqn.outvars, results, strict=True):
        if not v.aval.matches(aval) or not aval.varying <= v.aval.varying:
            raise _wrong(program, where, f"a result of type {aval.str_short()}", v.aval.str_short())


def _define(program: Jaxpr, defined: set[Any], v: Var, where: str) -> None:
    if v in defined:
        raise _wrong(program, where, "variables that are defined once", f"{v} defined again")
    defined.add(v)


def _read(program: Jaxpr, defined: set[Any], atom: Any, where: str) -> None:
    if type(atom) is not Literal and atom not in defined:
        raise _wrong(program, where, "variables that are defined before they are read", f"{atom}")


def _wrong(program: Jaxpr, where: str, expected: str, got: str) -> ProgramError:
    return ProgramError(
        f"program {program.debug_name}, {where}",
        expected=expected,
        got=got,
        fix="report the error with the printed jaxpr: the transformation that built it is wrong, not your function",
    )
