"""Deciding what holds for symbolic dimensions: the least and greatest size of a polynomial, by linear programming.

The monomials of a polynomial are taken as unknowns; what is known of them are linear facts: the bounds of each factor,
the constraints of the scope, `y*q <= x <= y*q + y - 1` for q = floordiv(x, y), and products of such facts. The least
value that these allow is a bound; over the integers it may be rounded up, and what is known to be a multiple is
written as one, which makes that rounding count. Where a maximum or minimum stands in the polynomial, each operand is
tried in its place. All numbers are exact. Takes its seat in `polynomials`; an artifact's constraints come from outside,
so every size here is limited.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from phalanx.engine.errors import InconclusiveDimensionOperation
from phalanx.symbolic.polynomials import (
    Dim,
    Fact,
    Factor,
    Monomial,
    Scope,
    Undecided,
    deciding,
    evaluate,
    factor_dim,
    factors_of,
    only_factor,
)
from phalanx.symbolic.polynomials import bounds as known_bounds

_INF: Final = math.inf
_MAX_FACTS: Final = 96
_MAX_UNKNOWNS: Final = 32
_MAX_CASES: Final = 16  # ways to choose among the operands of maxima and minima
_MAX_DEGREE: Final = 6  # up to which products of facts are tried
_MAX_PIVOTS: Final = 400
_MAX_SAMPLES: Final = 2000
_MAX_STEPS: Final = 24  # towards sizes that satisfy all facts
_SAMPLES: Final = (1, 2, 3, 0, 4, 5, 8, 16, 100, 7, 9, 12, 24, 32, 1000)

Linear = dict[Any, int]  # coefficients by unknown, a monomial as a rule; the constant at None


def bounds(x: Dim) -> tuple[float, float]:
    """The least and greatest size of a dimension, as far as the facts tell."""
    lower, upper = x.cheap
    if not x.scope.facts and all(m.is_plain for m, _ in x.terms):
        return lower, upper  # The variables are independent: nothing else can be found.
    whole = _in_wholes(x.scope)
    facts = [[_rounded(whole(fact)) for fact in case] for case in _facts(x)]
    least, greatest = _least(whole(_linear(x)), facts), _least(whole(_linear(-x)), facts)
    return max(lower, least), min(upper, -greatest)


def _in_wholes(scope: Scope) -> Callable[[Linear], Linear]:
    """A rewriting of linear forms by which what is known to be a multiple is one of an unknown, as in b = 8*q.

    The unknown of a product of variables is its quotient by their known divisors. Where a number divides a sum one of
    whose terms has no coefficient, that term is the multiple, less the others.
    """
    replaced: dict[Monomial, Linear] = {}

    def whole(linear: Linear) -> Linear:
        found = linear
        if scope.divisors:
            found = {m: c * (1 if m is None else _divisor(m, scope)) for m, c in linear.items()}
        for monomial, instead in replaced.items():
            if coefficient := found.get(monomial):
                found = {m: c for m, c in found.items() if m is not monomial}
                for m, c in instead.items():
                    found[m] = found.get(m, 0) + coefficient * c
        return {m: c for m, c in found.items() if c or m is None}

    for fact in scope.facts:
        if fact.divisor is not None and only_factor(fact.dim) is None:
            linear = whole(_linear(fact.dim))
            alone = next((m for m, c in linear.items() if m is not None and abs(c) == 1), None)
            if alone is not None:
                sign = linear.pop(alone)
                replaced[alone] = {fact.text: sign * fact.divisor, **{m: -sign * c for m, c in linear.items()}}
    return whole


def _divisor(monomial: Monomial, scope: Scope) -> int:
    return math.prod(scope.divisors.get(factor, 1) ** power for factor, power in monomial.factors)


def _rounded(fact: Linear) -> Linear:
    """A fact over the integers: by the common divisor of its coefficients, the constant rounded down."""
    shared = math.gcd(*(c for m, c in fact.items() if m is not None))
    return {m: c // shared for m, c in fact.items()} if shared > 1 else fact


def _linear(x: Any) -> Linear:
    if type(x) is not Dim:
        return {None: x}
    return {(monomial if monomial.factors else None): c for monomial, c in x.terms}


def _choices(factors: Sequence[Factor]) -> list[Factor]:
    """The maxima and minima among the factors that are tried operand by operand."""
    found, ways = [], 1
    for factor in factors:
        if factor.name in ("max", "min") and ways * len(factor.operands) <= _MAX_CASES:
            found.append(factor)
            ways *= len(factor.operands)
    return found


def _closure(x: Dim) -> list[Factor]:
    """The factors of `x`, of the scope's facts, and of the operands of all these."""
    found: dict[Factor, None] = {}
    waiting = list(factors_of(x))
    for fact in x.scope.facts:
        waiting.extend(factors_of(fact.dim) if type(fact.dim) is Dim else ())
    while waiting and len(found) < _MAX_UNKNOWNS:
        factor = waiting.pop(0)
        if factor not in found:
            found[factor] = None
            waiting.extend(f for operand in factor.operands if type(operand) is Dim for f in factors_of(operand))
    return list(found)


def _facts(x: Dim) -> list[list[Linear]]:
    """What is known: for each way to choose among the operands of maxima and minima, a list of facts."""
    factors = _closure(x)
    known: list[Any] = [fact.dim for fact in x.scope.facts if fact.divisor is None]
    for factor in factors:
        known.extend(_facts_of(factor))
    known.extend(_products(x, factors, known))
    always = [_linear(dim) for dim in known if type(dim) is Dim][:_MAX_FACTS]
    always.extend(linear for factor in factors if factor in x.scope.multiples for linear in _exact(factor))
    monomials = {m for linear in (_linear(x), *always) for m in linear if m is not None}
    for monomial in monomials:
        low, high = monomial.bounds()
        always.extend([{monomial: 1, None: -int(low)}] if low > -_INF else [])
        always.extend([{monomial: -1, None: int(high)}] if high < _INF else [])
    chosen = _choices(factors)
    return [
        [*always, *(_linear(d) for d in _equal(chosen, operands))]
        for operands in itertools.product(*(factor.operands for factor in chosen))
    ]


def _equal(factors: Sequence[Factor], operands: Sequence[Any]) -> Iterable[Any]:
    """What is not negative where each of these factors is the given operand of its own."""
    for factor, operand in zip(factors, operands, strict=True):
        size = factor_dim(factor)
        yield operand - size if factor.name == "max" else size - operand


def _facts_of(factor: Factor) -> list[Any]:
    """What is not negative because of what the factor is."""
    size = factor_dim(factor)
    if factor.name == "floordiv":
        x, y = factor.operands
        return [x - y * size, y * size + y - 1 - x]
    if factor.name == "max":
        return [size - operand for operand in factor.operands]
    if factor.name == "min":
        return [operand - size for operand in factor.operands]
    return []


def _exact(factor: Factor) -> Iterator[Linear]:
    """That d*floordiv(x, d) is x, which the arithmetic does not leave as it is."""
    x, divisor = factor.scope.multiples[factor]
    quotient = factor_dim(factor).terms[0][0]
    for sign in (1, -1):
        yield {quotient: sign * divisor, **{m: -sign * c for m, c in _linear(x).items()}}


def _products(x: Dim, factors: Sequence[Factor], known: Sequence[Any]) -> list[Any]:
    """Products of facts that speak of products of factors, as far as `x` and the facts have these."""
    terms = [*x.terms, *(term for dim in known if type(dim) is Dim for term in dim.terms)]
    wanted = {m for m, _ in terms if 1 < m.degree <= _MAX_DEGREE}
    found: list[Any] = []
    for monomial in wanted:
        for factor, power in monomial.factors:
            wide = _distances(factor)
            rest = [f for f, p in monomial.factors if f is not factor or power > 1]
            found.extend(a * b for a in wide for other in rest for b in _distances(other))
            if monomial.degree == 2:
                found.extend(dim * a for dim in known for a in wide if _fits(dim, factor, wanted))
        if len(found) > _MAX_FACTS:
            break
    return found[:_MAX_FACTS]


def _fits(dim: Any, factor: Factor, wanted: set[Monomial]) -> bool:
    """Whether the product of a fact and a factor has none but wanted products, and some of them."""
    if type(dim) is not Dim or any(m.degree > 1 for m, _ in dim.terms):
        return False
    products = {m for m, _ in (dim * factor_dim(factor)).terms if m.degree > 1}
    return products <= wanted


def _distances(factor: Factor) -> list[Any]:
    """How far a factor is from its bounds: dimensions that are not negative."""
    size = factor_dim(factor)
    below = [size - int(factor.lower)] if factor.lower > -_INF else []
    return [*below, *([int(factor.upper) - size] if factor.upper < _INF else [])]


def _least(target: Linear, cases: Sequence[list[Linear]]) -> float:
    """The least integer that a linear form can be, over all cases."""
    constant = target.get(None, 0)
    coefficients = {m: c for m, c in target.items() if m is not None}
    if not coefficients:
        return constant
    shared = math.gcd(*coefficients.values())
    coefficients = {m: c // shared for m, c in coefficients.items()}
    least = _INF
    for facts in cases:
        numerator, denominator = _minimum(coefficients, facts)
        if denominator == 0:
            if numerator < 0:
                return -_INF
            continue  # no sizes at all in this case
        least = min(least, -(-numerator // denominator))
    return least if math.isinf(least) else shared * least + constant


def _minimum(target: Linear, facts: Sequence[Linear]) -> tuple[int, int]:
    """The least value of a linear form where all `facts` are at least 0, as a fraction; (-1, 0) where there is none.

    By duality it is the greatest -sum(l_i * constant_i) over multipliers l_i >= 0 for which sum(l_i * fact_i) has the
    coefficients of the form. (1, 0) says that the facts contradict each other.
    """
    facts = _relevant(target, facts)
    unknowns = list({m: None for linear in (target, *facts) for m in linear if m is not None})
    if len(unknowns) > _MAX_UNKNOWNS:
        return -1, 0
    rows = []
    for monomial in unknowns:
        row = [fact.get(monomial, 0) for fact in facts] + [target.get(monomial, 0)]
        rows.append([-v for v in row] if row[-1] < 0 else row)
    return _simplex(rows, [fact.get(None, 0) for fact in facts])


def _relevant(target: Linear, facts: Sequence[Linear]) -> list[Linear]:
    """The facts that are connected with the target by common unknowns."""
    reached = {m for m in target if m is not None}
    waiting, kept = [f for f in facts if any(m is not None for m in f)], []
    while True:
        near = [f for f in waiting if not reached.isdisjoint(f)]
        if not near:
            return kept[:_MAX_FACTS]
        kept.extend(near)
        waiting = [f for f in waiting if reached.isdisjoint(f)]
        reached.update(m for f in near for m in f if m is not None)


def _simplex(rows: list[list[int]], costs: list[int]) -> tuple[int, int]:
    """Minus the least cost of multipliers with rows * multipliers = right sides; fraction-free, by Bland's rule.

    Each number of the tableau is an integer over one common denominator, the last pivot (Edmonds 1967, Bareiss 1968).
    """
    height, width = len(rows), len(costs)
    tableau = [[*row[:-1], *(int(i == j) for j in range(height)), row[-1]] for i, row in enumerate(rows)]
    basis = list(range(width, width + height))
    # First the sum of the artificial multipliers is brought to 0.
    goal = [-sum(row[j] for row in tableau) for j in range(width)] + [0] * height + [-sum(row[-1] for row in tableau)]
    state = _Tableau([*tableau, goal], basis, 1)
    if not state.minimise(width) or state.rows[-1][-1] != 0:
        return -1, 0
    state.drop_artificial(width)
    state.rows[-1] = state.reduced([*costs, *[0] * height, 0])
    if not state.minimise(width):
        return (1, 0) if state.is_unbounded else (-1, 0)
    return state.rows[-1][-1], state.denominator


class _Tableau:
    """A simplex tableau whose last row is the goal; the numbers are integers over one denominator."""

    def __init__(self, rows: list[list[int]], basis: list[int], denominator: int):
        self.rows = rows
        self.basis = basis
        self.denominator = denominator
        self.is_unbounded = False

    def minimise(self, width: int) -> bool:
        """Pivot until the goal is least; False where it has no least value or the effort is too great."""
        for _ in range(_MAX_PIVOTS):
            goal = self.rows[-1]
            column = next((j for j in range(width) if goal[j] < 0), None)
            if column is None:
                return True
            best = None
            for i in range(len(self.basis)):
                row = self.rows[i]
                if row[column] > 0:
                    if best is None:
                        best = i
                        continue
                    ratio, least = row[-1] * self.rows[best][column], self.rows[best][-1] * row[column]
                    if ratio < least or (ratio == least and self.basis[i] < self.basis[best]):
                        best = i
            if best is None:
                self.is_unbounded = True
                return False
            self.pivot(best, column)
        return False

    def pivot(self, at: int, column: int) -> None:
        """Bring `column` into the basis at row `at`."""
        chosen = self.rows[at]
        if chosen[column] < 0:
            chosen = self.rows[at] = [-v for v in chosen]
        p, d = chosen[column], self.denominator
        for i, row in enumerate(self.rows):
            if i != at:
                q = row[column]
                self.rows[i] = [(v * p - q * c) // d for v, c in zip(row, chosen, strict=True)]
        self.denominator = p
        self.basis[at] = column

    def drop_artificial(self, width: int) -> None:
        """Take the artificial multipliers, which are 0 now, out of the basis; a row without others is redundant."""
        for i in reversed(range(len(self.basis))):
            if self.basis[i] >= width:
                column = next((j for j in range(width) if self.rows[i][j]), None)
                if column is None:
                    del self.rows[i], self.basis[i]
                else:
                    self.pivot(i, column)

    def reduced(self, costs: list[int]) -> list[int]:
        """A goal in terms of what is not in the basis."""
        goal = [c * self.denominator for c in costs]
        for row, column in zip(self.rows, self.basis, strict=False):
            if costs[column]:
                goal = [g - costs[column] * v for g, v in zip(goal, row, strict=True)]
        return goal


DIFFERENCES: Final[dict[str, Any]] = {  # what is not negative where the comparison holds
    ">=": lambda x, y: x - y,
    "<=": lambda x, y: y - x,
    ">": lambda x, y: x - y - 1,
    "<": lambda x, y: y - x - 1,
}


def compare(x: Dim, symbol: str, y: Any) -> bool | Undecided:
    """Whether a comparison holds for all values, or what would have to be not negative where that is not known."""
    difference = DIFFERENCES[symbol](x, y)
    if (known := _by_one_fact(difference)) is not None:
        return known
    lower, upper = known_bounds(difference)
    if lower >= 0 or upper < 0:
        return lower >= 0
    return Undecided(difference)


def _by_one_fact(difference: Any) -> bool | None:
    """What bounds that cost little, and each fact by itself, tell of the sign of a dimension."""
    if type(difference) is not Dim:
        return difference >= 0
    lower, upper = difference.cheap
    if lower >= 0 or upper < 0:
        return lower >= 0
    for fact in difference.scope.facts:
        if fact.divisor is None:
            if _cheap_lower(difference - fact.dim) >= 0:
                return True
            if _cheap_lower(-difference - 1 - fact.dim) >= 0:
                return False
    return None


def _cheap_lower(x: Any) -> float:
    return x.cheap[0] if type(x) is Dim else x


def inconclusive(where: str, question: str, difference: Any) -> InconclusiveDimensionOperation:
    """The error for a question whose answer depends on the variables, with values that show it where some are found."""
    return InconclusiveDimensionOperation(
        where,
        expected="an answer that is the same for all values of the variables",
        got=question + _explained(difference),
        mend="give the scope a constraint that decides it, as in symbolic_shape('b, c', constraints=['b >= c']), "
        "or scope.assume('b >= c'); both are checked when the program is called",
    )


def _explained(difference: Any) -> str:
    """Values for which `difference` is not negative, and such for which it is."""
    if type(difference) is not Dim:
        return ""
    shown = {}
    for values in _sample_values(difference):
        shown.setdefault(evaluate(difference, values) >= 0, ", ".join(f"{n}={v}" for n, v in values.items()))
        if len(shown) == 2:
            return f", which holds for {shown[True]} and not for {shown[False]}"
    lower, upper = (int(b) if math.isfinite(b) else b for b in known_bounds(difference))
    return f", where all that is known is {lower} <= {difference} <= {upper}"


def _sample_values(x: Dim) -> Iterator[dict[str, int]]:
    """Small values of the variables of `x` and of the facts that satisfy all facts."""
    scope = x.scope
    names = sorted(x.variables.union(*(f.dim.variables for f in scope.facts if type(f.dim) is Dim)))
    factors = [scope.factors[name] for name in names]
    choices = [[v for v in _SAMPLES if f.lower <= v <= f.upper] or [int(f.lower)] for f in factors]
    for sizes in itertools.islice(itertools.product(*choices), _MAX_SAMPLES):
        values = dict(zip(names, sizes, strict=True))
        try:
            if all(fact.holds(values) for fact in scope.facts):
                yield values
        except ZeroDivisionError:
            continue


def satisfied(scope: Scope, values: Mapping[str, int]) -> dict[str, int]:
    """The values, moved to where the facts of the scope hold as far as a few steps lead there, else small ones."""
    found = dict(values)
    try:
        for _ in range(_MAX_STEPS):
            broken = next((fact for fact in scope.facts if not fact.holds(found)), None)
            if broken is None:
                return found
            if not _mend(broken, found, scope):
                break
        dim = next(fact.dim for fact in scope.facts)
        return next(_sample_values(dim), found)
    except ZeroDivisionError:
        return found


def _mend(fact: Fact, values: dict[str, int], scope: Scope) -> bool:
    """Move one variable so that a fact holds; whether there is one to move."""
    missing = -evaluate(fact.dim, values)
    for name in sorted(fact.dim.variables):
        factor = scope.factors[name]
        slope = evaluate(fact.dim, {**values, name: values[name] + 1}) + missing
        if slope == 0:
            continue
        step = missing % fact.divisor if fact.divisor is not None else -(-missing // abs(slope))
        divisor = scope.divisors.get(factor, 1)
        moved = values[name] + (step if slope > 0 else -step) // -divisor * -divisor
        if factor.lower <= moved <= factor.upper and moved != values[name]:
            values[name] = moved
            return True
    return False


deciding.take(satisfied=satisfied, bounds=bounds, compare=compare, inconclusive=inconclusive)
