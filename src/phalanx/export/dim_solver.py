"""Solving for dimension variables: their values as functions of the sizes of the arguments.

Each symbolic dimension of an argument is an equation with the array's actual size. The solver
creates a scope with one variable for each size, so that a solution is an expression over sizes. `portable_lowering`
emits these expressions into `main`, and calls evaluate them.

The algorithm repeats one step: it picks an equation that is linear in exactly one unknown variable and solves it with
floor division. Equations that were not needed, bounds and constraints are left as checks, which also catch a division
with a remainder. Builds on `phalanx.symbolic`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from phalanx.core import ArgumentError, ShapedArray
from phalanx.symbolic import Dim, Fact, Scope, bounds, evaluate, is_symbolic
from phalanx.typing import DimSize


class Equation(NamedTuple):
    """A symbolic dimension of an argument, equal to the variable `size` in the scope of sizes."""

    argument: int
    position: int
    dim: Dim
    size: Any


class Check(NamedTuple):
    """A condition on the sizes: `dim` is not negative, is 0 (`is_zero`), or is a multiple of `divisor`.

    text: the error message, with `{0}`, `{1}`, ... for the sizes in `values`.
    """

    argument: int
    dim: Any
    is_zero: bool
    divisor: int | None
    text: str
    values: tuple[Any, ...]

    def holds(self, sizes: Mapping[str, DimSize]) -> bool | None:
        """Whether the condition holds for these sizes; None if they are symbolic and it depends on them."""
        value = evaluate(self.dim, sizes)
        is_zero = self.is_zero or self.divisor is not None
        value = value % self.divisor if self.divisor is not None else value
        low, high = bounds(value) if type(value) is Dim else (value, value)
        if is_zero:
            return False if low > 0 or high < 0 else True if low == high else None
        return True if low >= 0 else False if high < 0 else None

    def message(self, sizes: Mapping[str, DimSize]) -> str:
        """The error message for these sizes."""
        return self.text.format(*(evaluate(v, sizes) for v in self.values))


class Solution(NamedTuple):
    """The dimension variables as expressions over sizes.

    variables: the expression of each variable.
    equations: the argument and dimension that each size is read from.
    checks: the conditions that remain to be checked.
    """

    variables: dict[str, Any]
    equations: list[Equation]
    checks: list[Check]

    def sizes(self, shapes: Sequence[Sequence[DimSize]]) -> dict[str, DimSize]:
        """The sizes of arguments of these shapes by name."""
        return {str(e.size): shapes[e.argument][e.position] for e in self.equations}


def check_constraint_variables(avals: Sequence[ShapedArray], solution: Solution, where: str) -> None:
    """Check that constraints on sizes of the inputs have no variable that the inputs lack: no call could check it.

    Raises:
      ArgumentError: a constraint has such a variable.
    """
    facts: list[Fact] = next((d.scope.facts for a in avals for d in a.shape if is_symbolic(d)), [])
    known = solution.variables.keys()
    for fact in facts:
        unknown = sorted(fact.dim.variables - known)
        if unknown and fact.dim.variables & known:
            raise ArgumentError(
                f"{where}, constraint {fact.text!r}",
                expected=f"variables of the shapes of the arguments: {', '.join(sorted(known))}",
                got=unknown[0],
                fix=f"correct the name, or give an argument a dimension of size {unknown[0]}",
            )


def solve_inputs(avals: Sequence[ShapedArray], where: str, names: Callable[[int], str]) -> Solution:
    """Solve for the dimension variables in the types of inputs, with the constraints of their scope.

    Args:
      avals: the types of the inputs.
      where: the program, for error messages.
      names: maps the index of an input to its name in error messages.

    Raises:
      ArgumentError: the sizes do not determine a variable.
    """
    facts: list[Fact] = next((d.scope.facts for a in avals for d in a.shape if is_symbolic(d)), [])
    scope = Scope()
    equations = [
        Equation(i, d, dim, scope.bound(f"size_{i}_{d}", 0))
        for i, aval in enumerate(avals)
        for d, dim in enumerate(aval.shape)
        if type(dim) is Dim
    ]
    known: dict[str, Any] = {}
    # Each step solves for one variable; the order matters only for which of several equal sizes an error names.
    unused = list(equations)
    while step := next(((e, solved) for e in unused if (solved := _solve_linear(e, known))), None):
        equation, (variable, value) = step
        known[variable] = value
        unused.remove(equation)
    missing = sorted({v for e in equations for v in e.dim.variables} - known.keys())
    if missing:
        first = next(e for e in unused if missing[0] in e.dim.variables)
        raise ArgumentError(
            f"{where}, shapes of the arguments",
            expected=f"sizes that determine the dimension variable {missing[0]}",
            got=f"only dimension {first.position} of {names(first.argument)} with size {first.dim}, from which it does "
            "not follow",
            fix=f"give some argument a dimension of size {missing[0]} or a multiple of it",
        )
    # An equation that defines a variable holds by construction, and evaluates to the very size it was solved from.
    checks = [_equality_check(e, known, names) for e in equations if evaluate(e.dim, known) is not e.size]
    checks += [check for v, x in known.items() for check in _bound_checks(v, x, equations, names)]
    checks += [_fact_check(fact, known, equations) for fact in facts if fact.dim.variables <= known.keys()]
    return Solution(known, equations, checks)


def _solve_linear(equation: Equation, known: Mapping[str, Any]) -> tuple[str, Any] | None:
    """Solve `slope * variable + rest == size` for the variable; None if the equation does not have this form."""
    unknown = equation.dim.variables - known.keys()
    if len(unknown) != 1:
        return None
    (name,) = unknown
    slope: Any = 0
    rest: Any = 0
    for monomial, coefficient in equation.dim.terms:
        powers = dict(monomial.factors)
        unsolved = [f for f in powers if name in _variables_of(f)]
        value: Any = coefficient
        for factor, power in powers.items():
            value = value * factor.evaluate(known) ** power if factor not in unsolved else value
        if not unsolved:
            rest = rest + value
        # Linear in the variable itself; `floordiv(b, 2)` or `b^2` cannot be inverted.
        elif len(unsolved) == 1 and not unsolved[0].operands and powers[unsolved[0]] == 1:
            slope = slope + value
        else:
            return None
    # The sign of the slope must be known, since the value is a floor division by it.
    low, high = bounds(slope)
    if low <= 0 <= high:  # the slope may be 0
        return None
    return name, (equation.size - rest) // slope


def _variables_of(factor: Any) -> set[str]:
    if not factor.operands:
        return {factor.name}
    return {v for x in factor.operands if type(x) is Dim for v in x.variables}


def _format_values(variables: Sequence[str], start: int = 0) -> str:
    """`b = {0}, c = {1}`: placeholders for the values of variables in the text of a check."""
    return ", ".join(f"{v} = {{{n}}}" for n, v in enumerate(variables, start))


def _equality_check(e: Equation, known: Mapping[str, Any], names: Callable[[int], str]) -> Check:
    """That a dimension has the size that follows from the variables."""
    used, size = sorted(e.dim.variables), evaluate(e.dim, known)
    where = f"dimension {e.position} of {names(e.argument)}"
    text = f"expected a size of {e.dim} for {where}, with {_format_values(used, 2)}, got {{0}}"
    return Check(e.argument, size - e.size, True, None, text, (e.size, size, *(known[v] for v in used)))


def _bound_checks(name: str, value: Any, equations: Sequence[Equation], names: Callable[[int], str]) -> list[Check]:
    """That a variable is within its declared bounds, where its expression does not imply it."""
    equation = next(e for e in equations if name in e.dim.variables)
    factor = equation.dim.scope.factors[name]
    where = f"dimension {equation.position} of {names(equation.argument)}"
    low, high = bounds(value)
    checks = []
    for symbol, is_implied, limit, sign in (
        (">=", low >= factor.lower, factor.lower, 1),
        ("<=", high <= factor.upper, factor.upper, -1),
    ):
        if not is_implied:
            text = f"expected sizes with {name} {symbol} {int(limit)}, got {name} = {{0}} from {where}"
            checks.append(Check(equation.argument, sign * (value - int(limit)), False, None, text, (value,)))
    return checks


def _fact_check(fact: Fact, known: Mapping[str, Any], equations: Sequence[Equation]) -> Check:
    """That a constraint holds."""
    used = sorted(fact.dim.variables)
    argument = next(e.argument for e in equations if fact.dim.variables & e.dim.variables)
    text = f"expected sizes with {fact.text}, got {_format_values(used)}"
    return Check(argument, evaluate(fact.dim, known), False, fact.divisor, text, tuple(known[v] for v in used))
