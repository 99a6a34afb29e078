"""Solving for the dimension variables: what they are, given the sizes of the arguments.

Each symbolic dimension of an argument is an equation with the array's real size. They are solved once, for each
variable as an expression over unknown sizes, which are dimensions themselves (of a scope of their own): the same
solution is emitted into `main`, and evaluated by calls. What is left are checks. Builds on `phalanx.symbolic`;
`lowering` and `calling` call it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from phalanx.core.aval import ShapedArray
from phalanx.core.errors import ArgumentError
from phalanx.symbolic import Dim, Fact, Scope, bounds, evaluate


class Equation(NamedTuple):
    """A symbolic dimension of an argument and the name of its size in the scope of sizes."""

    argument: int
    position: int
    dim: Dim
    size: Any


class Check(NamedTuple):
    """Something that has to hold for the sizes: `dim` is not negative, or 0 (`is_zero`), or a multiple of a divisor.

    text: how to say it, with `{0}`, `{1}`, ... for the sizes `values`.
    """

    argument: int
    dim: Any
    is_zero: bool
    divisor: int | None
    text: str
    values: tuple[Any, ...]

    def holds(self, sizes: Any) -> bool | None:
        """Whether it holds for these sizes; None where they are symbolic and it depends on them."""
        found = evaluate(self.dim, sizes)
        if self.divisor is not None:
            found = found % self.divisor
        if type(found) is not Dim:
            return found == 0 if self.is_zero or self.divisor is not None else found >= 0
        low, high = bounds(found)
        if self.is_zero or self.divisor is not None:
            return False if low > 0 or high < 0 else None
        return True if low >= 0 else False if high < 0 else None

    def message(self, sizes: Any) -> str:
        """The text with the sizes in it."""
        return self.text.format(*(evaluate(v, sizes) for v in self.values))


class Solution(NamedTuple):
    """The variables as dimensions over sizes, and the checks that are left.

    variables: for each variable its dimension.
    equations: for each size used, where it is read.
    """

    variables: dict[str, Any]
    equations: list[Equation]
    checks: list[Check]

    def sizes(self, shapes: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """The sizes of arguments of these shapes, by name."""
        return {str(e.size): shapes[e.argument][e.position] for e in self.equations}


def solve(avals: Sequence[ShapedArray], facts: Sequence[Fact], where: str, names: Callable[[int], str]) -> Solution:
    """Solve for the variables in the shapes of arguments.

    Args:
      avals: the types of the arguments.
      facts: what was taken as known of the variables.
      where: the program, for messages.
      names: what the user calls argument `i`.

    Raises:
      ArgumentError: the sizes do not determine some variable.
    """
    scope = Scope()
    equations = [
        Equation(i, d, dim, scope.bound(f"size_{i}_{d}", 0))
        for i, aval in enumerate(avals)
        for d, dim in enumerate(aval.shape)
        if type(dim) is Dim
    ]
    known: dict[str, Any] = {}
    waiting = list(equations)
    while waiting:
        found = next(
            ((e, v, x) for e in waiting if (e.dim.variables - known.keys()) for v, x in _solved(e, known)), None
        )
        if found is None:
            break
        equation, variable, value = found
        known[variable] = value
        waiting.remove(equation)
    missing = sorted({v for e in equations for v in e.dim.variables} - known.keys())
    if missing:
        shown = next(e for e in waiting if missing[0] in e.dim.variables)
        raise ArgumentError(
            f"{where}, shapes of the arguments",
            expected=f"sizes that tell the dimension variable {missing[0]}",
            got=f"dimension {shown.position} of {names(shown.argument)} with size {shown.dim}, from which it does not "
            "follow",
            mend=f"give some argument a dimension of size {missing[0]} or a multiple of it",
        )
    checks = [_equality(e, known, names) for e in equations if evaluate(e.dim, known) is not e.size]
    checks += [check for v, x in known.items() for check in _limits(v, x, equations, names)]
    checks += [_fact(fact, known, equations) for fact in facts if fact.dim.variables <= known.keys()]
    return Solution(known, equations, checks)


def _solved(equation: Equation, known: dict[str, Any]) -> list[tuple[str, Any]]:
    """The variable that an equation tells, with its value, if it is linear in just one that is not known."""
    unknown = equation.dim.variables - known.keys()
    if len(unknown) != 1:
        return []
    (name,) = unknown
    slope: Any = 0
    rest: Any = 0
    for monomial, coefficient in equation.dim.terms:
        powers = dict(monomial.factors)
        mine = [f for f in powers if name in _variables(f)]
        value: Any = coefficient
        for factor, power in powers.items():
            if factor not in mine:
                value = value * factor.evaluate(known) ** power
        if not mine:
            rest = rest + value
        elif len(mine) == 1 and not mine[0].operands and powers[mine[0]] == 1:
            slope = slope + value
        else:
            return []
    low, high = bounds(slope)
    if low <= 0 <= high:
        return []
    return [(name, (equation.size - rest) // slope)]


def _variables(factor: Any) -> set[str]:
    if not factor.operands:
        return {factor.name}
    return {v for x in factor.operands if type(x) is Dim for v in x.variables}


def _source(name: str, equations: Sequence[Equation], names: Callable[[int], str]) -> Equation:
    return next(e for e in equations if name in e.dim.variables)


def _equality(e: Equation, known: dict[str, Any], names: Callable[[int], str]) -> Check:
    used = sorted(e.dim.variables)
    shown = ", ".join(f"{v} = {{{n + 2}}}" for n, v in enumerate(used))
    text = f"expected a size of {e.dim} for dimension {e.position} of {names(e.argument)}, with {shown}, got {{0}}"
    wanted = evaluate(e.dim, known)
    return Check(e.argument, wanted - e.size, True, None, text, (e.size, wanted, *(known[v] for v in used)))


def _limits(name: str, value: Any, equations: Sequence[Equation], names: Callable[[int], str]) -> list[Check]:
    """That a variable lies between its bounds."""
    equation = _source(name, equations, names)
    factor = equation.dim.scope.factors[name]
    where = f"dimension {equation.position} of {names(equation.argument)}"
    low, high = bounds(value)
    found = []
    if low < factor.lower:
        text = f"expected sizes with {name} >= {int(factor.lower)}, got {name} = {{0}} from {where}"
        found.append(Check(equation.argument, value - int(factor.lower), False, None, text, (value,)))
    if high > factor.upper:
        text = f"expected sizes with {name} <= {int(factor.upper)}, got {name} = {{0}} from {where}"
        found.append(Check(equation.argument, int(factor.upper) - value, False, None, text, (value,)))
    return found


def _fact(fact: Fact, known: dict[str, Any], equations: Sequence[Equation]) -> Check:
    used = sorted(fact.dim.variables)
    shown = ", ".join(f"{v} = {{{n}}}" for n, v in enumerate(used))
    argument = next(e.argument for e in equations if fact.dim.variables & e.dim.variables)
    text = f"expected sizes with {fact.text}, got {shown}"
    return Check(argument, evaluate(fact.dim, known), False, fact.divisor, text, tuple(known[v] for v in used))
