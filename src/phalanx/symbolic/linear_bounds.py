"""Bounds of symbolic dimensions by linear programming, which decide comparisons.

The monomials of a polynomial are taken as independent unknowns. Linear facts constrain them: the bounds of each factor,
the facts of the scope, `y*q <= x <= y*q + y - 1` for q = floordiv(x, y), and products of such facts. The minimum of the
polynomial under these constraints is a lower bound. Over the integers it may be rounded up; for that, unknowns that
are known to be multiples are written as such. If the polynomial contains a maximum or minimum, each of its operands is
tried in turn. All numbers are exact, and every table is limited in size, since facts may come from artifacts of others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from phalanx.engine.error_record import InconclusiveDimensionOperation
from phalanx.symbolic.dim_polynomials import (
    Bounds,
    Factor,
    Monomial,
    Polynomial,
    Size,
    as_factor,
    bounds,
    evaluate,
    factor_dim,
    factors_of,
)

_INF: Final = math.inf
_MAX_FACTS: Final = 96
_MAX_UNKNOWNS: Final = 32
_MAX_CASES: Final = 16  # ways to choose among the operands of maxima and minima
_MAX_DEGREE: Final = 6  # up to which products of facts are tried
_MAX_SAMPLES: Final = 2000
_MAX_STEPS: Final = 24  # towards sizes that satisfy all facts
_SAMPLES: Final = (1, 2, 3, 0, 4, 5, 8, 16, 100, 7, 9, 12, 24, 32, 1000)

Linear: TypeAlias = dict[Any, int]
"""A linear form: the coefficient of each unknown, usually a monomial, and the constant under the key None."""


def find_bounds(x: Polynomial) -> Bounds:
    """Lower and upper bounds of a dimension under all facts of its scope."""
    # Interval arithmetic first; the linear program may only improve on it.
    lower, upper = x.cheap
    if not x.scope.facts and all(m.is_plain for m, _ in x.terms):
        return lower, upper  # The variables are independent, so interval arithmetic is exact.
    whole = _write_multiples(x.scope)
    # Rewriting and rounding are repeated for each case, since the extra facts of a case have constants of their own.
    facts = [[_divide_by_gcd(whole(fact)) for fact in case] for case in _facts(x)]
    least, greatest = _least(whole(_linear(x)), facts), _least(whole(_linear(-x)), facts)
    return max(lower, least), min(upper, -greatest)


def _write_multiples(scope: Any) -> Callable[[Linear], Linear]:
    """Return a rewriting of linear forms that replaces b by 8*q, with a new unknown q, if 8 is known to divide b.

    A product of variables is replaced by a multiple of the product of their known divisors. If a number is known to
    divide a sum, one term of which has the coefficient 1 or -1, that term is replaced by the multiple minus the rest.
    """
    replaced: dict[Monomial, Linear] = {}

    def whole(linear: Linear) -> Linear:
        found = linear
        if scope.divisors:
            found = {m: c * (1 if m is None else _divisor(m, scope)) for m, c in linear.items()}
        for monomial, replacement in replaced.items():
            if coefficient := found.get(monomial):
                found = {m: c for m, c in found.items() if m is not monomial}
                for m, c in replacement.items():
                    found[m] = found.get(m, 0) + coefficient * c
        return {m: c for m, c in found.items() if c or m is None}

    for fact in scope.facts:
        if fact.divisor is not None and as_factor(fact.dim) is None:
            linear = whole(_linear(fact.dim))
            # A term with coefficient 1 or -1 can be expressed by the others in integers, which keeps all numbers exact.
            alone = next((m for m, c in linear.items() if m is not None and abs(c) == 1), None)
            if alone is not None:
                sign = linear.pop(alone)
                replaced[alone] = {fact.text: sign * fact.divisor, **{m: -sign * c for m, c in linear.items()}}
    return whole


def _divisor(monomial: Monomial, scope: Any) -> int:
    return math.prod(scope.divisors.get(factor, 1) ** power for factor, power in monomial.factors)


def _divide_by_gcd(fact: Linear) -> Linear:
    """Divide a fact over the integers by the common divisor of its coefficients, and round the constant down."""
    shared = math.gcd(*(c for m, c in fact.items() if m is not None))
    return {m: c // shared for m, c in fact.items()} if shared > 1 else fact


def _linear(x: Size) -> Linear:
    if not isinstance(x, Polynomial):
        return {None: x}
    return {(monomial if monomial.factors else None): c for monomial, c in x.terms}


def _choices(factors: Sequence[Factor]) -> list[Factor]:
    """The maxima and minima among the factors whose operands are tried in turn, within the limit of cases."""
    # The number of cases is the product of the numbers of operands.
    found, ways = [], 1
    for factor in factors:
        if factor.name in ("max", "min") and ways * len(factor.operands) <= _MAX_CASES:
            found.append(factor)
            ways *= len(factor.operands)
    return found


def _closure(x: Polynomial) -> list[Factor]:
    """The factors of `x`, of the scope's facts, and of the operands of all these."""
    found: dict[Factor, None] = {}
    waiting = [factor for dim in (x, *(fact.dim for fact in x.scope.facts)) for factor in factors_of(dim)]
    while waiting and len(found) < _MAX_UNKNOWNS:
        factor = waiting.pop(0)
        if factor not in found:
            found[factor] = None
            waiting.extend(f for operand in factor.operands for f in factors_of(operand))
    return list(found)


def _facts(x: Polynomial) -> list[list[Linear]]:
    """The known facts: a list for each way to choose among the operands of maxima and minima."""
    factors = _closure(x)
    known: list[Any] = [fact.dim for fact in x.scope.facts if fact.divisor is None]
    for factor in factors:
        known.extend(_facts_of(factor))
    # Products of facts bound nonlinear monomials, which the linear program would otherwise treat as unrelated unknowns.
    known.extend(_products(x, factors, known))
    always = [_linear(dim) for dim in known if isinstance(dim, Polynomial)][:_MAX_FACTS]
    always.extend(linear for factor in factors if factor in x.scope.multiples for linear in _exact_division(factor))
    # Bounds of monomials from their factors connect the unknowns with each other's intervals.
    for monomial in {m for linear in (_linear(x), *always) for m in linear if m is not None}:
        low, high = monomial.bounds()
        always.extend([{monomial: 1, None: -int(low)}] if low > -_INF else [])
        always.extend([{monomial: -1, None: int(high)}] if high < _INF else [])
    chosen = _choices(factors)
    return [
        [*always, *(_linear(d) for d in _choose_operands(chosen, operands))]
        for operands in itertools.product(*(factor.operands for factor in chosen))
    ]


def _choose_operands(factors: Sequence[Factor], operands: Sequence[Any]) -> Iterable[Any]:
    """The dimensions that are not negative if each extreme is the given one of its operands."""
    for factor, operand in zip(factors, operands, strict=True):
        size = factor_dim(factor)
        yield operand - size if factor.name == "max" else size - operand


def _facts_of(factor: Factor) -> list[Any]:
    """The dimensions that are not negative by the definition of a factor."""
    size = factor_dim(factor)
    if factor.name == "floordiv":
        x, y = factor.operands
        return [x - y * size, y * size + y - 1 - x]
    if factor.name == "max":
        return [size - operand for operand in factor.operands]
    if factor.name == "min":
        return [operand - size for operand in factor.operands]
    return []


def _exact_division(factor: Factor) -> Iterator[Linear]:
    """The fact d*floordiv(x, d) == x as two inequalities; as a polynomial it would be simplified to 0."""
    x, divisor = factor.scope.multiples[factor]
    quotient = factor_dim(factor).terms[0][0]
    for sign in (1, -1):
        yield {quotient: sign * divisor, **{m: -sign * c for m, c in _linear(x).items()}}


def _products(x: Polynomial, factors: Sequence[Factor], known: Sequence[Any]) -> list[Any]:
    """Products of facts, which bound the products of factors that occur in `x` and in the facts."""
    terms = [*x.terms, *(term for dim in known if isinstance(dim, Polynomial) for term in dim.terms)]
    wanted = {m for m, _ in terms if 1 < m.degree <= _MAX_DEGREE}
    found: list[Any] = []
    for monomial in wanted:
        for factor, power in monomial.factors:
            distances = _distances(factor)
            rest = [f for f, p in monomial.factors if f is not factor or power > 1]
            found.extend(a * b for a in distances for other in rest for b in _distances(other))
            if monomial.degree == 2:
                found.extend(dim * a for dim in known for a in distances if _fits(dim, factor, wanted))
        if len(found) > _MAX_FACTS:
            break
    return found[:_MAX_FACTS]


def _fits(dim: Any, factor: Factor, wanted: set[Monomial]) -> bool:
    """Whether the product of a fact and a factor contains no other products of factors than the wanted ones."""
    if not isinstance(dim, Polynomial) or any(m.degree > 1 for m, _ in dim.terms):
        return False
    return wanted.issuperset(m for m, _ in (dim * factor_dim(factor)).terms if m.degree > 1)


def _distances(factor: Factor) -> list[Any]:
    """The distances of a factor from its bounds, which are not negative."""
    size = factor_dim(factor)
    below = [size - int(factor.lower)] if factor.lower > -_INF else []
    return [*below, *([int(factor.upper) - size] if factor.upper < _INF else [])]


def _least(target: Linear, cases: Sequence[list[Linear]]) -> float:
    """The smallest integer value of a linear form over all cases."""
    constant = target.get(None, 0)
    coefficients = {m: c for m, c in target.items() if m is not None}
    if not coefficients:
        return constant
    # Dividing by the common divisor makes the rounding below as effective as possible.
    shared = math.gcd(*coefficients.values())
    coefficients = {m: c // shared for m, c in coefficients.items()}
    least = _INF
    for facts in cases:
        least = min(least, _minimum(coefficients, facts))
        if least == -_INF:
            break
    return least if math.isinf(least) else shared * least + constant


def _minimum(target: Linear, facts: Sequence[Linear]) -> float:
    """The minimum of a linear form where all `facts` are at least 0, rounded up, since sizes are integers.

    By duality the minimum is the maximum of -sum(l_i * constant_i) over multipliers l_i >= 0 for which
    sum(l_i * fact_i) has the coefficients of the form. It is infinite if the facts contradict each other.
    """
    from phalanx.symbolic.simplex import minimize  # noqa: PLC0415 - few comparisons need it

    # Facts without a connection to the target cannot change its minimum, and the effort grows fast with their number.
    facts = _relevant(target, facts)
    unknowns = list({m: None for linear in (target, *facts) for m in linear if m is not None})
    if len(unknowns) > _MAX_UNKNOWNS:
        return -_INF
    # The dual program: one equation for each unknown, one multiplier for each fact.
    rows = []
    for monomial in unknowns:
        row = [fact.get(monomial, 0) for fact in facts] + [target.get(monomial, 0)]
        rows.append([-v for v in row] if row[-1] < 0 else row)
    numerator, denominator = minimize(rows, [fact.get(None, 0) for fact in facts])
    # A denominator of 0 marks an infinite answer.
    return -(-numerator // denominator) if denominator else numerator * _INF


def _relevant(target: Linear, facts: Sequence[Linear]) -> list[Linear]:
    """The facts that share unknowns with the target, directly or through other facts."""
    reached = {m for m in target if m is not None}
    waiting, kept = facts, list[Linear]()
    while near := [f for f in waiting if not reached.isdisjoint(f)]:
        kept.extend(near)
        waiting = [f for f in waiting if reached.isdisjoint(f)]
        reached.update(m for f in near for m in f if m is not None)
    return kept[:_MAX_FACTS]


class Undecided(NamedTuple):
    """A comparison without an answer.

    Args:
      difference: the dimension that would have to be known not to be negative.
    """

    difference: Any


# For each comparison, the dimension that is not negative if it holds.
DIFFERENCES: Final[dict[str, Any]] = {
    ">=": lambda x, y: x - y,
    "<=": lambda x, y: y - x,
    ">": lambda x, y: x - y - 1,
    "<": lambda x, y: y - x - 1,
}


def compare(x: Polynomial, symbol: str, y: Size) -> bool | Undecided:
    """Whether a comparison holds for all values of the variables, or `Undecided`."""
    difference = DIFFERENCES[symbol](x, y)
    if (known := _by_one_fact(difference)) is not None:
        return known
    lower, upper = bounds(difference)
    return lower >= 0 if lower >= 0 or upper < 0 else Undecided(difference)


def _by_one_fact(difference: Size) -> bool | None:
    """The sign of a dimension by interval arithmetic, or by a single fact; None if these do not decide it."""
    if not isinstance(difference, Polynomial):
        return difference >= 0
    lower, upper = difference.cheap
    if lower >= 0 or upper < 0:
        return lower >= 0
    # Most comparisons follow from one fact and interval arithmetic, which costs far less than a linear program.
    for fact in difference.scope.facts:
        if fact.divisor is None:
            if _cheap_lower(difference - fact.dim) >= 0:
                return True
            if _cheap_lower(-difference - 1 - fact.dim) >= 0:
                return False
    return None


def _cheap_lower(x: Size) -> float:
    return x.cheap[0] if isinstance(x, Polynomial) else x


def inconclusive_error(where: str, question: str, difference: Size) -> InconclusiveDimensionOperation:
    """The error for a question whose answer depends on the variables, with an example of values for each answer."""
    return InconclusiveDimensionOperation(
        where,
        expected="an answer that is the same for all values of the variables",
        got=question + _explain_with_values(difference),
        fix="give the scope a constraint that decides it, as in symbolic_shape('b, c', constraints=['b >= c']), "
        "or scope.assume('b >= c'); both are checked when the program is called",
    )


def _explain_with_values(difference: Size) -> str:
    """Values for which `difference` is negative, and values for which it is not."""
    if not isinstance(difference, Polynomial):
        return ""
    shown: dict[Any, Any] = {}
    for values in _sample_values(difference):
        shown.setdefault(evaluate(difference, values) >= 0, ", ".join(f"{n}={v}" for n, v in values.items()))
        if len(shown) == 2:
            return f", which holds for {shown[True]} and not for {shown[False]}"
    lower, upper = (int(b) if math.isfinite(b) else b for b in bounds(difference))
    return f", where only {lower} <= {difference} <= {upper} is known"


def _sample_values(x: Polynomial) -> Iterator[dict[str, int]]:
    """Small values of the variables that satisfy all facts."""
    scope = x.scope
    names = sorted(x.variables.union(*(f.dim.variables for f in scope.facts if isinstance(f.dim, Polynomial))))
    factors = [scope.factors[name] for name in names]
    choices = [[v for v in _SAMPLES if f.lower <= v <= f.upper] or [int(f.lower)] for f in factors]
    # A search through small values finds an example for most constraints that users write.
    for sizes in itertools.islice(itertools.product(*choices), _MAX_SAMPLES):
        values = dict(zip(names, sizes, strict=True))
        try:
            if all(fact.holds(values) for fact in scope.facts):
                yield values
        except ZeroDivisionError:
            continue


def satisfy_facts(scope: Any, values: Mapping[str, int]) -> dict[str, int]:
    """Change values in a few steps until all facts of the scope hold; if that fails, return small values."""
    found = dict(values)
    try:
        for _ in range(_MAX_STEPS):
            broken = next((fact for fact in scope.facts if not fact.holds(found)), None)
            if broken is None:
                return found
            if not _repair(broken, found, scope):
                break
        return next(_sample_values(scope.facts[0].dim), found)
    except ZeroDivisionError:
        return found


def _repair(fact: Any, values: dict[str, int], scope: Any) -> bool:
    """Change one variable so that a fact holds; returns whether there is one."""
    # The fact is nearly linear in one variable: a step of this size, divided by the slope, satisfies it.
    missing = -evaluate(fact.dim, values)
    for name in sorted(fact.dim.variables):
        factor = scope.factors[name]
        slope = evaluate(fact.dim, {**values, name: values[name] + 1}) + missing
        if slope == 0:
            continue
        step = missing % fact.divisor if fact.divisor is not None else -(-missing // abs(slope))
        # Rounded up to a multiple of the divisor, since the variable must stay one.
        divisor = scope.divisors.get(factor, 1)
        moved = values[name] + (step if slope > 0 else -step) // -divisor * -divisor
        if factor.lower <= moved <= factor.upper and moved != values[name]:
            values[name] = moved
            return True
    return False
