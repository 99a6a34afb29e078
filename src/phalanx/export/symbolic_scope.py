"""Scopes of symbolic dimensions: variables, and constraints between them.

Constraints are assumptions: comparisons while tracing rely on them, artifacts record them, and each call checks them
against the sizes of its arguments. Builds on `phalanx.symbolic` and `dim_parser`; `symbolic_shapes` and
`artifact_reader` call it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from phalanx.core import ArgumentError, PhalanxError
from phalanx.export.dim_parser import DimParser
from phalanx.symbolic import Dim, Fact, Scope, bounds
from phalanx.symbolic.linear_bounds import DIFFERENCES

# Bounds of one variable are recognized by a pattern, since they are set at creation and are not kept as facts.
_BOUND: Final = re.compile(r"\s*(\w+)\s*(>=|<=|>|<)\s*(-?\d{1,18})\s*|\s*(-?\d{1,18})\s*(>=|<=|>|<)\s*(\w+)\s*")
_MULTIPLE: Final = re.compile(
    r"\s*(?:mod\s*\((.*),\s*(\d{1,18})\s*\)|(\w+|\([^()]*\))\s*%\s*(\d{1,18}))\s*==\s*(\d{1,18})\s*"
)
_FLIPPED: Final = {">=": "<=", "<=": ">=", ">": "<", "<": ">"}
_NAME: Final = re.compile(r"[^\W\d]\w*")
_INF: Final = math.inf
_MAX_ROUNDS: Final = 4  # of bounds propagation


class SymbolicScope:
    """The variables of symbolic shapes, and constraints between them.

    A variable is at least 1 unless a constraint gives it another lower bound: `b >= 0` allows empty arrays.

    Args:
      constraints: texts such as `"b >= c + 8"`, `"b <= 64"`, `"mod(b, 8) == 0"` or `"a == 2*b"`. A variable that an
        equality can be solved for is replaced by its value everywhere.

    Raises:
      ArgumentError: a constraint cannot be parsed or used, or no sizes satisfy all constraints.

    Examples:
      >>> scope = SymbolicScope(["a >= b + 8", "mod(a, 4) == 0"])
      >>> a, b = (scope.variable(name) for name in "ab")
      >>> a >= 9, 4 * (a // 4) == a
      (True, True)
    """

    def __init__(self, constraints: Sequence[str] = ()) -> None:
        constraints = (constraints,) if isinstance(constraints, str) else constraints
        self._scope = Scope()
        # Bounds are set first, for they decide comparisons while the other constraints are parsed.
        others, limits = _split_bounds(constraints)
        solved = self._solve([text for text in others if "==" in text])
        for name, (lower, upper) in limits.items():
            if name not in solved:
                self._scope.bound(name, lower, upper)
            self.constraints.extend(_bound_texts(name, lower, upper))
        # Substitutions precede all other constraints, which are then parsed in terms of the remaining variables.
        for name, text in solved.items():
            self._scope.substitute(name, self._read(text))
        for name in solved:
            lower, upper = limits.get(name, (1, None))
            self._learn(Fact(f"{name} >= {lower}", self._scope.variable(name) - lower))
            if upper is not None:
                self._learn(Fact(f"{name} <= {upper}", upper - self._scope.variable(name)))
        for text in others:
            self._add(text, may_be_equality=True)
        self._propagate_bounds()

    def variable(self, name: str) -> Any:
        """The dimension with this name, which is created if the scope does not have it yet.

        Args:
          name: an identifier.

        Returns:
          The symbolic dimension, or its value if a constraint determines it.
        """
        return self._scope.variable(name)

    def assume(self, constraint: str) -> None:
        """Assume one more inequality from now on; artifacts record it and calls check it.

        Args:
          constraint: a text such as `"b >= c"`.

        Raises:
          ArgumentError: it cannot be parsed, is an equality, or contradicts another constraint.

        Examples:
          >>> scope = SymbolicScope()
          >>> b, c = scope.variable("b"), scope.variable("c")
          >>> scope.assume("b >= c")
          >>> b + 1 > c
          True
        """
        self._add(constraint, may_be_equality=False)
        for dim in self._scope.variables.values():
            lower, upper = bounds(dim)
            if lower > upper:
                raise _unsatisfiable_error("constraints of symbolic dimensions", ", ".join(self.constraints))

    @property
    def constraints(self) -> list[str]:
        """The texts of all constraints."""
        return self._scope.texts

    @property
    def facts(self) -> list[Fact]:
        """The constraints that a call must check besides the bounds of the variables."""
        return self._scope.facts

    def _read(self, text: str) -> Any:
        return DimParser(f"constraint {text!r}", text, self._scope.variable).parse_dim()

    def _solve(self, equalities: Sequence[str]) -> dict[str, str]:
        """Solve equalities for variables; return the text of the value of each solved variable.

        An equality is solved for a variable with coefficient 1 or -1, the one on its left side if possible. A solution
        is substituted into the previous ones, so that no solved variable is left in any value.
        """
        solved: dict[str, str] = {}
        for text in equalities:
            # A separate scope: `self` would keep a variable that is solved for as an unknown.
            trial = Scope()
            for name, value in solved.items():
                trial.substitute(name, DimParser(f"constraint {text!r}", value, trial.variable).parse_sum())
            x, symbol, y = DimParser(f"constraint {text!r}", text, trial.variable).parse_relation()
            difference = x - y
            if symbol != "==" or type(difference) is not Dim or _parse_multiple(text, trial) is not None:
                continue
            if solution := _solve_for_variable(difference, text.partition("==")[0].strip()):
                name, value = solution
                solved = {n: _substitute(v, name, str(value)) for n, v in solved.items()} | {name: str(value)}
            # `_add` turns the equalities that are left into two inequalities each.
        return solved

    def _add(self, text: str, may_be_equality: bool) -> None:
        where = f"constraint {text!r}"
        multiple = _parse_multiple(text, self._scope) if may_be_equality and "==" in text else None
        if multiple is not None:
            dim, divisor, rest = multiple
            low, high = bounds((dim - rest) % divisor)
            if low > 0 or rest >= divisor:
                raise _unsatisfiable_error(
                    where, "a constraint that holds for no sizes" if type(dim) is Dim else f"the number {dim}"
                )
            if type(dim) is Dim:
                self.constraints.append(text)
                self._scope.learn(Fact(text, dim - rest, divisor))
                self._scope.multiple(dim - rest, divisor)
            return
        x, symbol, y = DimParser(where, text, self._scope.variable).parse_relation()
        if symbol == "==":
            if not may_be_equality:
                raise ArgumentError(
                    where,
                    expected="an inequality, since dimensions computed earlier cannot be replaced",
                    got="an equality",
                    fix=f"pass equalities when the scope is created: SymbolicScope([{text!r}])",
                )
            if type(x - y) is int and x - y != 0:
                raise _unsatisfiable_error(where, f"{x} and {y}, which differ")
            # x == y is x >= y and y >= x for the decision procedure, which only knows inequalities.
            self.constraints.append(text)
            for difference in (x - y, y - x):
                self._learn(Fact(text, difference))
            self._learn_divisors(x - y)
            return
        self.constraints.append(text)
        self._learn(Fact(text, DIFFERENCES[symbol](x, y)))

    def _learn_divisors(self, zero: Any) -> None:
        """Learn divisors from a sum that is 0: 2*a - 3*b == 0 implies that 3 divides a, and 2 divides b."""
        terms = zero.terms if type(zero) is Dim else ()
        # c m = -(other terms), and gcd(other coefficients) divides the right side, so it divides c m.
        for monomial, coefficient in terms:
            shared = math.gcd(*(c for m, c in terms if m is not monomial))
            divisor = shared // math.gcd(shared, coefficient)
            if divisor > 1 and (variable := self._scope.variables.get(str(monomial))) is not None:
                self._scope.multiple(variable, divisor)

    def _learn(self, fact: Fact) -> None:
        lower, upper = bounds(fact.dim) if type(fact.dim) is Dim else (fact.dim, fact.dim)
        if upper < 0:
            raise _unsatisfiable_error(f"constraint {fact.text!r}", "a constraint that holds for no sizes")
        if type(fact.dim) is Dim and lower < 0:
            self._scope.learn(fact)

    def _propagate_bounds(self) -> None:
        """Tighten the bounds of variables by interval propagation over linear constraints.

        With tight bounds most comparisons of dimensions are decided without a search. A constraint by itself reaches
        its fixed point in one round; several constraints are repeated a few times.
        """
        known = [fact.dim for fact in self._scope.facts if fact.divisor is None]
        linear = [dim for dim in known if all(monomial.is_plain for monomial, _ in dim.terms)]
        for _ in range(_MAX_ROUNDS if len(linear) > 1 else 1):
            if not sum(
                map(self._tighten_variables, linear)
            ):  # a sum, since `any` would stop at the first constraint that tightens a bound
                break
        if linear or self._scope.divisors:
            self._check_bounds()
        if self._scope.facts:
            self._scope.refresh()

    def _check_bounds(self) -> None:
        for key, factor in self._scope.factors.items():
            if factor.lower > factor.upper:
                raise _unsatisfiable_error(
                    "constraints of symbolic dimensions", f"{self.constraints}: {key} has no size"
                )

    def _tighten_variables(self, dim: Dim) -> bool:
        """Bound each variable of a nonnegative sum by the largest value of the others; return whether one changed."""
        is_tighter = False
        for monomial, coefficient in dim.terms:
            if monomial.factors:
                rest = sum([m.bounds()[c > 0] * c for m, c in dim.terms if m is not monomial])
                if coefficient > 0:
                    bound = (-_INF if rest == _INF else -(rest // coefficient), _INF)
                else:
                    bound = (-_INF, _INF if rest == _INF else rest // -coefficient)
                is_tighter |= self._scope.tighten(monomial.factors[0][0], *bound)
        return is_tighter

    def __repr__(self) -> str:
        return f"SymbolicScope({self.constraints})"


def _unsatisfiable_error(where: str, got: str) -> ArgumentError:
    return ArgumentError(
        where, expected="constraints that some sizes satisfy", got=got, fix="remove or relax one of the constraints"
    )


def _bound_texts(name: str, lower: int, upper: int | None) -> list[str]:
    return [f"{name} >= {lower}", *([f"{name} <= {upper}"] if upper is not None else [])]


class _Bounds(NamedTuple):
    lower: int | None = None
    upper: int | None = None


def _split_bounds(constraints: Sequence[str]) -> tuple[list[str], dict[str, tuple[int, int | None]]]:
    """Separate bounds of single variables, such as `b >= 2`, from other constraints.

    Returns:
      The other constraints, and the lower bound and the upper bound or None of each bounded variable.
    """
    others: list[str] = []
    found: dict[str, _Bounds] = {}
    for text in constraints:
        match = _BOUND.fullmatch(text)
        name = (match[1] or match[6]) if match else ""
        if match is None or not _NAME.fullmatch(name):
            others.append(text)
            continue
        symbol, number = (match[2], int(match[3])) if match[1] else (_FLIPPED[match[5]], int(match[4]))
        lower, upper = found.get(name, _Bounds())
        if symbol in (">=", ">"):
            # A dimension is never negative, whatever the constraint.
            least = max(0, number + (symbol == ">"))
            found[name] = _Bounds(least if lower is None else max(lower, least), upper)
        else:
            most = number - (symbol == "<")
            found[name] = _Bounds(lower, most if upper is None else min(upper, most))
    limits = {}
    for name, (low, upper) in found.items():
        # Without a lower bound a variable is at least 1, which decides most comparisons with 0 and 1.
        lower = 1 if low is None else low
        if upper is not None and upper < lower:
            raise _unsatisfiable_error(f"constraints of {name}", f"at least {lower} and at most {upper}")
        limits[name] = lower, upper
    return others, limits


def _parse_multiple(text: str, scope: Scope) -> tuple[Any, int, int] | None:
    """Parse `mod(x, n) == r` or `x % n == r` to (x, n, r); None for other texts."""
    match = _MULTIPLE.fullmatch(text)
    if match is None or int(match[2] or match[4]) == 0:
        return None
    try:
        dim = DimParser(f"constraint {text!r}", match[1] or match[3], scope.variable).parse_dim()
    except PhalanxError:
        return None
    return dim, int(match[2] or match[4]), int(match[5])


def _solve_for_variable(difference: Dim, side: str) -> tuple[str, Any] | None:
    """Solve `difference == 0` for a variable, preferably the one named `side`; None if no coefficient is 1 or -1."""
    for name in sorted(difference.variables, key=lambda name: (name != side, name)):
        variable = difference.scope.variables.get(name)
        coefficient = next((c for m, c in difference.terms if str(m) == name), 0)
        rest = None if variable is None or abs(coefficient) != 1 else difference - coefficient * variable
        if rest is not None and (type(rest) is int or name not in rest.variables):
            return name, -coefficient * rest
    return None


def _substitute(text: str, name: str, value: str) -> str:
    """The text of a dimension with a variable replaced by its value."""
    scope = Scope()
    scope.substitute(name, DimParser("constraint", value, scope.variable).parse_sum())
    return str(DimParser("constraint", text, scope.variable).parse_sum())
