"""Scopes of symbolic dimensions as users make them: variables with constraints between them.

Constraints are what is known, not what is tested while tracing: comparisons rest on them, artifacts carry them, and a
call checks them against its sizes. Builds on `phalanx.symbolic` and on `dim_text`; called by `symbolic` and `format`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from phalanx.core.errors import ArgumentError, PhalanxError
from phalanx.export.dim_text import Reader
from phalanx.symbolic import Dim, Fact, Scope, bounds
from phalanx.symbolic.deciding import DIFFERENCES

_BOUND: Final = re.compile(r"\s*(\w+)\s*(>=|<=|>|<)\s*(-?\d{1,18})\s*|\s*(-?\d{1,18})\s*(>=|<=|>|<)\s*(\w+)\s*")
_MULTIPLE: Final = re.compile(
    r"\s*(?:mod\s*\((.*),\s*(\d{1,18})\s*\)|(\w+|\([^()]*\))\s*%\s*(\d{1,18}))\s*==\s*(\d{1,18})\s*"
)
_FLIPPED: Final = {">=": "<=", "<=": ">=", ">": "<", "<": ">"}
_NAME: Final = re.compile(r"[^\W\d]\w*")
_INF: Final = math.inf
_ROUNDS: Final = 4  # of carrying bounds from variable to variable


class SymbolicScope:
    """Where the variables of symbolic shapes live, with constraints between them.

    A variable is at least 1 unless a constraint gives it another least size: `b >= 0` allows empty arrays.

    Args:
      constraints: texts such as `"b >= c + 8"`, `"b <= 64"`, `"mod(b, 8) == 0"` or `"a == 2*b"`. An equality that says
        what a variable is lets this stand for its value from then on.

    Raises:
      ArgumentError: a constraint that cannot be read or used, or constraints that no sizes satisfy.

    Examples:
      >>> scope = SymbolicScope(["a >= b + 8", "mod(a, 4) == 0"])
      >>> a, b = (scope.variable(name) for name in "ab")
      >>> a >= 9, 4 * (a // 4) == a
      (True, True)
    """

    def __init__(self, constraints: Sequence[str] = ()) -> None:
        if isinstance(constraints, str):
            constraints = (constraints,)
        self._scope = Scope()
        others, limits = _split_bounds(constraints)
        solved = self._solve([text for text in others if "==" in text], limits)
        for name, (lower, upper) in limits.items():
            if name not in solved:
                self._scope.bound(name, lower, upper)
            self.constraints.extend(_bound_texts(name, lower, upper))
        for name, text in solved.items():
            self._scope.substitute(name, self._read(text))
        for name in solved:
            lower, upper = limits.get(name, (1, None))
            self._learn(Fact(f"{name} >= {lower}", self._scope.variable(name) - lower))
            if upper is not None:
                self._learn(Fact(f"{name} <= {upper}", upper - self._scope.variable(name)))
        for text in others:
            self._add(text, may_be_equality=True)
        self._carry_bounds()

    def variable(self, name: str) -> Any:
        """The dimension that is the variable `name`, made if it is not there yet."""
        return self._scope.variable(name)

    def assume(self, constraint: str) -> None:
        """Take one more inequality as given from now on; artifacts carry it and calls check it.

        Args:
          constraint: a text such as `"b >= c"`.

        Raises:
          ArgumentError: it cannot be read, is an equality, or contradicts what is known.

        Examples:
          >>> scope = SymbolicScope()
          >>> b, c = scope.variable("b"), scope.variable("c")
          >>> scope.assume("b >= c")
          >>> b + 1 > c
          True
        """
        self._add(constraint, may_be_equality=False)
        for name in self._scope.variables:
            self._check_possible(name)

    @property
    def constraints(self) -> list[str]:
        """All that is known, as it was written."""
        return self._scope.texts

    @property
    def facts(self) -> list[Fact]:
        """What a call has to check besides the bounds of the variables."""
        return self._scope.facts

    def _read(self, text: str) -> Any:
        reader = Reader(f"constraint {text!r}", text, self._scope.variable)
        found = reader.sum()
        reader.end()
        return found

    def _solve(self, equalities: Sequence[str], limits: dict) -> dict[str, str]:
        """For equalities that say what a variable is, the variable and the text of its value."""
        solved: dict[str, str] = {}
        for text in equalities:
            trial = Scope()
            for name, value in solved.items():
                trial.substitute(name, Reader(f"constraint {text!r}", value, trial.variable).sum())
            x, symbol, y = Reader(f"constraint {text!r}", text, trial.variable).relation()
            difference = x - y
            if symbol != "==" or type(difference) is not Dim or _as_multiple(text, trial) is not None:
                continue
            found = _solvable(difference, text.partition("==")[0].strip())
            if found is None:  # `_add` takes it as two inequalities
                continue
            name, value = found
            solved = {n: str(_replaced(v, name, str(value))) for n, v in solved.items()}
            solved[name] = str(value)
        return solved

    def _add(self, text: str, may_be_equality: bool) -> None:
        where = f"constraint {text!r}"
        multiple = _as_multiple(text, self._scope) if may_be_equality and "==" in text else None
        if multiple is not None:
            dim, divisor, rest = multiple
            low, high = bounds((dim - rest) % divisor)
            if low > 0 or rest >= divisor:
                raise _impossible(where, "it holds for no sizes" if type(dim) is Dim else f"{dim} is no such number")
            if type(dim) is Dim:
                self.constraints.append(text)
                self._scope.learn(Fact(text, dim - rest, divisor))
                self._scope.multiple(dim - rest, divisor)
            return
        x, symbol, y = Reader(where, text, self._scope.variable).relation()
        if symbol == "==":
            if not may_be_equality:
                raise ArgumentError(
                    where,
                    expected="an inequality, since sizes that were computed before do not change",
                    got="an equality",
                    mend="give equalities when the scope is made, SymbolicScope(['a == 2*b'])",
                )
            if type(x - y) is int and x - y != 0:
                raise _impossible(where, f"{x} is not {y}")
            self.constraints.append(text)
            for difference in (x - y, y - x):
                self._learn(Fact(text, difference))
            self._learn_divisors(x - y)
            return
        self.constraints.append(text)
        self._learn(Fact(text, DIFFERENCES[symbol](x, y)))

    def _learn_divisors(self, zero: Any) -> None:
        """What divides the variables of a sum that is 0: of 2*a - 3*b that a is a multiple of 3, and b of 2."""
        terms = zero.terms if type(zero) is Dim else ()
        for monomial, coefficient in terms:
            shared = math.gcd(*(c for m, c in terms if m is not monomial))
            divisor = shared // math.gcd(shared, coefficient)
            if divisor > 1 and (variable := self._scope.variables.get(str(monomial))) is not None:
                self._scope.multiple(variable, divisor)

    def _learn(self, fact: Fact) -> None:
        lower, upper = bounds(fact.dim) if type(fact.dim) is Dim else (fact.dim, fact.dim)
        if upper < 0:
            raise _impossible(f"constraint {fact.text!r}", "it holds for no sizes")
        if type(fact.dim) is Dim and lower < 0:
            self._scope.learn(fact)

    def _carry_bounds(self) -> None:
        """Give variables the bounds that follow from linear constraints, so that most comparisons need no search."""
        known = [fact.dim for fact in self._scope.facts if fact.divisor is None]
        linear = [dim for dim in known if all(monomial.is_plain for monomial, _ in dim.terms)]
        for _ in range(_ROUNDS if len(linear) > 1 else 1):  # one by itself leaves nothing for a second round
            if not sum(map(self._carry, linear)):  # every one of them is tried
                break
        if linear or self._scope.divisors:
            self._check_bounds()
        if self._scope.facts:
            self._scope.settle()

    def _check_bounds(self) -> None:
        for key, factor in self._scope.factors.items():
            if factor.lower > factor.upper:
                raise _impossible("constraints of symbolic dimensions", f"no size for {key} in {self.constraints}")

    def _carry(self, dim: Dim) -> bool:
        """Bound each variable of a sum that is not negative by the greatest that the others can be."""
        has_news = False
        for monomial, coefficient in dim.terms:
            if monomial.factors:
                greatest = sum([m.bounds()[c > 0] * c for m, c in dim.terms if m is not monomial])
                if coefficient > 0:
                    bound = (-_INF if greatest == _INF else -(greatest // coefficient), _INF)
                else:
                    bound = (-_INF, _INF if greatest == _INF else greatest // -coefficient)
                has_news |= self._scope.tighten(monomial.factors[0][0], *bound)
        return has_news

    def _check_possible(self, name: str) -> tuple[float, float]:
        dim = self._scope.variables[name]
        if type(dim) is not Dim:
            return dim, dim
        lower, upper = bounds(dim)
        if lower > upper:
            raise _impossible("constraints of symbolic dimensions", f"{', '.join(self.constraints)}")
        return lower, upper

    def __repr__(self) -> str:
        return f"SymbolicScope({self.constraints})"


def _impossible(where: str, got: str) -> ArgumentError:
    return ArgumentError(where, expected="constraints that some sizes satisfy", got=got, mend="correct the constraints")


def _bound_texts(name: str, lower: int, upper: int | None) -> list[str]:
    return [f"{name} >= {lower}", *([f"{name} <= {upper}"] if upper is not None else [])]


class _Bounds(NamedTuple):
    lower: int | None = None
    upper: int | None = None


def _split_bounds(constraints: Sequence[str]) -> tuple[list[str], dict[str, tuple[int, int | None]]]:
    """The constraints that are not between a variable and a number, and the bounds that the others give."""
    others, found = [], {}
    for text in constraints:
        match = _BOUND.fullmatch(text)
        name = (match[1] or match[6]) if match else ""
        if match is None or not _NAME.fullmatch(name):
            others.append(text)
            continue
        symbol, number = (match[2], int(match[3])) if match[1] else (_FLIPPED[match[5]], int(match[4]))
        lower, upper = found.get(name, _Bounds())
        if symbol in (">=", ">"):
            least = max(0, number + (symbol == ">"))
            found[name] = _Bounds(least if lower is None else max(lower, least), upper)
        else:
            most = number - (symbol == "<")
            found[name] = _Bounds(lower, most if upper is None else min(upper, most))
    limits = {}
    for name, (low, upper) in found.items():
        lower = 1 if low is None else low
        if upper is not None and upper < lower:
            raise _impossible(f"constraints of {name}", f"at least {lower} and at most {upper}")
        limits[name] = lower, upper
    return others, limits


def _as_multiple(text: str, scope: Scope) -> tuple[Any, int, int] | None:
    """For `mod(x, n) == r`, x, n and r."""
    match = _MULTIPLE.fullmatch(text)
    if match is None or int(match[2] or match[4]) == 0:
        return None
    try:
        reader = Reader(f"constraint {text!r}", match[1] or match[3], scope.variable)
        dim = reader.sum()
        reader.end()
    except PhalanxError:
        return None
    return dim, int(match[2] or match[4]), int(match[5])


def _solvable(difference: Dim, side: str) -> tuple[str, Any] | None:
    """A variable that an equality (difference == 0) says the value of, the left side if that is one."""
    names = sorted(difference.variables, key=lambda name: (name != side, name))
    for name in names:
        variable = difference.scope.variables.get(name)
        coefficient = next((c for m, c in difference.terms if str(m) == name), 0)
        rest = None if variable is None or abs(coefficient) != 1 else difference - coefficient * variable
        if rest is not None and (type(rest) is int or name not in rest.variables):
            return name, -coefficient * rest
    return None


def _replaced(text: str, name: str, value: str) -> Any:
    scope = Scope()
    scope.substitute(name, Reader("constraint", value, scope.variable).sum())
    return Reader("constraint", text, scope.variable).sum()
