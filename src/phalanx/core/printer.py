"""Printing programs: the one textual form that messages, tests and users read.

Variables are named a, b, ..., z, aa in order of appearance; inner programs are indented under their equation. No
recursion over equations, so that a program of 100,000 of them prints in linear time.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Iterator
from typing import Any

import numpy as np

from phalanx.core import source as positions
from phalanx.core.jaxpr import DropVar, Eqn, Jaxpr, Literal, Var


class _Names:
    """Gives each variable its letter when it is first met."""

    def __init__(self) -> None:
        self._names: dict[Var, str] = {}
        self._fresh = _letters()

    def __getitem__(self, atom: Any) -> str:
        if type(atom) is Literal:
            return f"{_literal(atom.value)}:{atom.aval.str_short()}"
        if type(atom) is DropVar:
            return "_"
        if (name := self._names.get(atom)) is None:
            name = self._names[atom] = next(self._fresh)
        return name

    def typed(self, var: Any) -> str:
        return f"{self[var]}:{var.aval.str_short()}"


def _letters() -> Iterator[str]:
    for length in itertools.count(1):
        for letters in itertools.product(string.ascii_lowercase, repeat=length):
            yield "".join(letters)


def _literal(value: Any) -> str:
    return str(value.item() if isinstance(value, np.generic | np.ndarray) and value.dtype.kind in "biufc" else value)


def print_jaxpr(program: Jaxpr, *, source: bool = False) -> str:
    """A program as text.

    Args:
      program: the program.
      source: also print the source line of each equation.
    """
    return "\n".join(_lines(program, _Names(), source, ""))


def _lines(program: Jaxpr, names: _Names, source: bool, pad: str) -> list[str]:
    constants = " ".join(names.typed(v) for v in program.constvars)
    inputs = " ".join(names.typed(v) for v in program.invars)
    lines = [f"{pad}{{ lambda {constants}; {inputs}. let"]
    for eqn in program.eqns:
        lines.extend(_eqn_lines(eqn, names, source, pad + "    "))
    outputs = ", ".join(names[v] for v in program.outvars)
    lines.append(f"{pad}  in ({outputs}{',' if len(program.outvars) == 1 else ''}) }}")
    return lines


def _eqn_lines(eqn: Eqn, names: _Names, source: bool, pad: str) -> list[str]:
    plain, programs = [], []
    for key, value in eqn.params.items():
        if type(value) is Jaxpr:
            programs.append((key, value))
        elif type(value) is tuple and any(type(v) is Jaxpr for v in value):
            programs.extend((f"{key}[{i}]", v) for i, v in enumerate(value))
        else:
            plain.append(f"{key}={_parameter(value)}")
    operands = " ".join(names[a] for a in eqn.invars)
    outputs = " ".join(names.typed(v) for v in eqn.outvars)
    shown = f"[{' '.join(plain)}]" if plain else ""
    comment = f"  # {positions.summary(eqn.source)}" if source else ""
    lines = [f"{pad}{outputs} = {eqn.primitive.name}{shown} {operands}".rstrip() + comment]
    for key, program in programs:
        lines.append(f"{pad}  {key} =")
        lines.extend(_lines(program, _Names(), source, pad + "    "))
    return lines


def _parameter(value: Any) -> str:
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(repr, value)))}}}"
    if callable(value) and hasattr(value, "__name__"):
        return value.__name__
    return str(value)


def print_eqn(eqn: Eqn) -> str:
    """One equation as text, its variables named from `a`."""
    return "\n".join(_eqn_lines(eqn, _Names(), False, ""))
