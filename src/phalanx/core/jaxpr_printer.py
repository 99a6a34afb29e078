"""The text of jaxprs, as messages, tests and users read it.

Variables are named a, b, ..., z, aa in order of appearance, and an inner jaxpr is indented under its equation.
Equations are formatted in a loop, so that a jaxpr of 100,000 of them prints in linear time without deep recursion.
"""

from __future__ import annotations

import itertools
import string
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from phalanx.core.source_info import format_source

if TYPE_CHECKING:
    from phalanx.core.jaxpr import Eqn, Jaxpr, Var


class _Names:
    """The names of variables, given in order of first use."""

    def __init__(self) -> None:
        fresh = ("".join(s) for n in itertools.count(1) for s in itertools.product(string.ascii_lowercase, repeat=n))
        self._names: defaultdict[Var, str] = defaultdict(fresh.__next__)

    def __getitem__(self, atom: Any) -> str:
        if hasattr(atom, "value"):  # a literal
            return f"{_literal(atom.value)}:{atom.aval.str_short()}"
        return "_" if atom.is_dropped else self._names[atom]

    def name_with_type(self, var: Any) -> str:
        return f"{self[var]}:{var.aval.str_short()}"


def _literal(value: Any) -> str:
    return str(value.item() if isinstance(value, np.generic | np.ndarray) and value.dtype.kind in "biufc" else value)


def print_jaxpr(program: Jaxpr, *, source: bool = False) -> str:
    """Format a jaxpr.

    Args:
      program: the jaxpr.
      source: also print the source line of each equation.
    """
    return "\n".join(_lines(program, _Names(), source, ""))


def _lines(program: Jaxpr, names: _Names, source: bool, pad: str) -> list[str]:
    constants, inputs = (" ".join(map(names.name_with_type, side)) for side in (program.constvars, program.invars))
    lines = [f"{pad}{{ lambda {constants}; {inputs}. let"]
    for eqn in program.eqns:
        lines.extend(_eqn_lines(eqn, names, source, pad + "    "))
    outputs = ", ".join(names[v] for v in program.outvars)
    return [*lines, f"{pad}  in ({outputs}{',' if len(program.outvars) == 1 else ''}) }}"]


def _eqn_lines(eqn: Eqn, names: _Names, source: bool, pad: str) -> list[str]:
    plain, programs = [], []
    for key, value in eqn.params.items():
        if _is_jaxpr(value):
            programs.append((key, value))
        elif type(value) is tuple and any(map(_is_jaxpr, value)):
            programs.extend((f"{key}[{i}]", v) for i, v in enumerate(value))
        else:
            plain.append(f"{key}={_parameter(value)}")
    operands = " ".join(names[a] for a in eqn.invars)
    outputs = " ".join(names.name_with_type(v) for v in eqn.outvars)
    shown = f"[{' '.join(plain)}]" if plain else ""
    comment = f"  # {format_source(eqn.source)}" if source else ""
    lines = [f"{pad}{outputs} = {eqn.primitive.name}{shown} {operands}".rstrip() + comment]
    for key, program in programs:
        lines.append(f"{pad}  {key} =")
        lines.extend(_lines(program, _Names(), source, pad + "    "))
    return lines


def _is_jaxpr(value: object) -> bool:
    return hasattr(value, "eqns")  # The class is defined in a module that imports this one.


def _parameter(value: Any) -> str:
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(repr, value)))}}}"
    return value.__name__ if callable(value) and hasattr(value, "__name__") else str(value)


def print_eqn(eqn: Eqn) -> str:
    """Format one equation, its variables named from `a`."""
    return "\n".join(_eqn_lines(eqn, _Names(), False, ""))
