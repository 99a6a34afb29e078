"""The text of jaxprs, as messages, tests and users read it.

Variables are named a, b, ..., z, aa in order of appearance, also in the jaxprs inside a jaxpr, and printed with their
types, without the mark of weak ones. A jaxpr that several equations refer to is printed once, before the others, under
the name of its function; so is one of more than 10 equations inside another one. `text_layout` breaks the lines.
"""

from __future__ import annotations

import itertools
import re
import string
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from phalanx.core.source_info import format_source
from phalanx.core.text_layout import Break, Comment, Fill, Group, fill, join, lay_out

if TYPE_CHECKING:
    from phalanx.core.jaxpr import Eqn, Jaxpr

_SHORT = 10  # equations of a jaxpr that is printed where it is used


def print_jaxpr(program: Jaxpr, *, source: bool = False, scopes: bool = False, width: float = 80) -> str:
    """Format a jaxpr.

    Args:
      program: the jaxpr.
      source: also print the source line of each equation.
      scopes: also print the named scopes of each equation.
      width: the number of columns that a line should fit into.
    """
    printer = _Printer(source, scopes)
    shared = printer.name_shared_jaxprs(program)
    parts = [part for name, inner in shared for part in (f"let {name} = ", printer.jaxpr(inner), " in", Break())]
    return lay_out(Group([*parts, printer.jaxpr(program)], is_independent=False), width)


def print_eqn(eqn: Eqn) -> str:
    """Format one equation, its variables named from `a`."""
    return lay_out(Group(_Printer().eqn(eqn), is_independent=False))


class _Printer:
    """The parts of jaxprs and equations, with the names of variables in order of first use."""

    def __init__(self, source: bool = False, scopes: bool = False) -> None:
        self._source, self._scopes = source, scopes
        # A comment ends its line.
        self._between_eqns = Break(None if source or scopes else "; ")
        fresh = ("".join(s) for n in itertools.count(1) for s in itertools.product(string.ascii_lowercase, repeat=n))
        self._names: defaultdict[Any, str] = defaultdict(fresh.__next__)
        self._shared: dict[int, str] = {}
        self._types: dict[Any, str] = {}  # the text of each type, which many variables have

    def name_shared_jaxprs(self, program: Jaxpr) -> list[tuple[str, Jaxpr]]:
        """Name the jaxprs that are printed before the others."""
        counts: Counter[int] = Counter()
        names: dict[int, tuple[str, Jaxpr]] = {}
        pending = [program]
        for jaxpr in pending:  # which grows meanwhile
            counts[id(jaxpr)] += 1
            if counts[id(jaxpr)] > 2:  # All that it holds is shared already.
                continue
            for eqn in jaxpr.eqns:
                for inner in _inner_jaxprs(eqn.params):
                    pending.append(inner)
                    names.setdefault(id(inner), (str(eqn.params.get("name", "jaxpr")).strip("<>"), inner))
        numbers: defaultdict[str, Iterator[int]] = defaultdict(lambda: itertools.count(1))
        shared: dict[str, Jaxpr] = {}
        for key, (name, inner) in names.items():
            if counts[key] > 1 or len(inner.eqns) > _SHORT:
                unique = name
                while unique in shared:  # By a number, or by a function that is called `f1` itself.
                    unique = f"{name}{next(numbers[name])}"
                self._shared[key], shared[unique] = unique, inner
        return list(shared.items())

    def jaxpr(self, program: Jaxpr) -> Group:
        """A jaxpr inside braces."""
        inputs = self._variables(program.constvars), "; ", self._variables(program.invars)
        eqns = [part for eqn in program.eqns for part in (self._between_eqns, *self.eqn(eqn))][1:]
        outputs = fill([self._name(v) for v in program.outvars], ",")
        end = ",)" if len(program.outvars) == 1 else ")"
        body = Group([Break() if eqns else " ", *eqns], indent=2, is_independent=False)
        return Group(["{ lambda ", *inputs, ". let", body, Break(), "in (", outputs, end, " }"], indent=2)

    def eqn(self, eqn: Eqn) -> list[Any]:
        """The parts of an equation."""
        params = eqn.primitive.printed_params(eqn.params)
        if eqn.primitive.names_like_operands and id(params["jaxpr"]) not in self._shared:
            self._reuse_names(params["jaxpr"].invars, eqn.invars)
            self._reuse_names(params["jaxpr"].outvars, eqn.outvars)
        results = [self._variables(eqn.outvars), " = "] if eqn.outvars else []
        comments = [Comment(f"  # {format_source(eqn.source)}")] if self._source else []
        if self._scopes:
            comments.append(Comment(f"  # [{eqn.source_info.name_stack}]"))
        operands = [" ", fill([self._name(a) for a in eqn.invars])] if eqn.invars else []
        parts = [*results, eqn.primitive.name, *comments, *self._params(params), *operands]
        return ["".join(parts)] if all(type(part) is str for part in parts) else parts  # one part is laid out faster

    def _params(self, params: dict[str, Any]) -> list[Any]:
        if not params:
            return []
        pairs = [part for key in params for part in (Break(), f"{key}=", self._param(params[key]))]
        return [Group([Group(["[", Break(""), *pairs[1:]], indent=2, is_independent=False), Break(""), "]"])]

    def _param(self, value: Any) -> Any:
        if _is_jaxpr(value):
            return self._shared.get(id(value)) or self.jaxpr(value)
        if type(value) is tuple and value and all(map(_is_jaxpr, value)):
            inner = join(Break(), [self._param(v) for v in value])
            return Group([Group(["(", Break(""), *inner], indent=2, is_independent=False), Break(""), ")"])
        return _format_param(value)

    def _reuse_names(self, variables: Sequence[Any], like: Sequence[Any]) -> None:
        """Name variables as in the equation around their jaxpr, each name at most once."""
        used = set()
        for inner, outer in zip(variables, like, strict=True):
            is_free = not hasattr(outer, "value") and outer not in used
            if is_free and not hasattr(inner, "value") and inner not in self._names:
                used.add(outer)
                self._names[inner] = self._name(outer)

    def _name(self, atom: Any) -> str:
        if hasattr(atom, "value"):  # a literal
            return f"{_format_literal(atom.value)}:{self._type(atom.aval)}"
        return "_" if atom.is_dropped else self._names[atom]

    def _variables(self, variables: Sequence[Any]) -> Fill | str:
        return fill([f"{self._name(v)}:{self._type(v.aval)}" for v in variables])

    def _type(self, aval: Any) -> str:
        text = self._types.get(aval)
        if text is None:
            text = self._types[aval] = aval.str_short().replace("~", "")  # the mark of weak types
        return text


def _inner_jaxprs(params: dict[str, Any]) -> Iterator[Any]:
    for value in params.values():
        yield from filter(_is_jaxpr, value if type(value) is tuple else (value,))


def _is_jaxpr(value: object) -> bool:
    return hasattr(value, "eqns")  # The class is defined in a module that imports this one.


def _format_literal(value: Any) -> str:
    return str(value.item() if isinstance(value, np.generic | np.ndarray) and value.dtype.kind in "biufc" else value)


def _format_param(value: Any) -> str:
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(repr, value)))}}}"
    text = value.__name__ if callable(value) and hasattr(value, "__name__") else str(value)
    return re.sub(r"(?<= at 0x)[0-9a-f]+", lambda found: "X" * len(found[0]), text)
