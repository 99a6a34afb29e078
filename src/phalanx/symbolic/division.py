"""Division of polynomials: quotients and remainders, simplified wherever that is exact.

A quotient that is not exact is a factor of its own, `floordiv(x, y)` with y positive; a remainder is written as
`x - y*floordiv(x, y)`. Takes its seat in `polynomials`, whose operators come here.
"""

from __future__ import annotations

import math
from typing import Any, Final

from phalanx.symbolic.polynomials import (
    Dim,
    Monomial,
    Scope,
    bounds,
    deciding,
    dim_of,
    division,
    factor_dim,
    is_zero,
    less,
    monomial_of,
    only_factor,
    operation,
    scope_of,
    terms_of,
)

_INF: Final = math.inf


def mod(x: Any, y: Any) -> Any:
    """The remainder of Python's floor division."""
    result = x - y * floordiv(x, y)
    if type(result) is Dim and type(y) is int:
        # What the polynomial does not show.
        low, high = (0, y - 1) if y > 0 else (y + 1, 0)
        result.cheap = max(result.cheap[0], low), min(result.cheap[1], high)
    return result


def floordiv(x: Any, y: Any) -> Any:
    """The quotient of Python's floor division, simplified where that is exact."""
    if is_zero(y):
        raise ZeroDivisionError(f"division of symbolic dimension {x} by zero")
    if type(x) is not Dim and type(y) is not Dim:
        return x // y
    scope = scope_of(x, y)
    low, high = bounds(y)
    if low <= 0 <= high:
        raise deciding.inconclusive("division of symbolic dimensions", f"whether {y} is 0 in floordiv({x}, {y})", y - 1)
    return floordiv(-x, -y) if low < 0 else _quotient(x, y, scope)


def _quotient(x: Any, y: Any, scope: Scope) -> Any:
    """The quotient for a divisor that is positive."""
    if type(y) is int:
        quotient, rest, y = divided_by_number(x, y, scope)
    elif (shared := _without_common(x, y, scope)) is not None:
        return floordiv(*shared)
    else:
        quotient, rest = long_division(x, y, scope)
    if is_zero(rest):
        return quotient
    rest_low, rest_high = bounds(rest)
    if rest_low >= 0 and bounds(y - rest)[0] > 0:
        return quotient
    if type(y) is int and rest_low > -_INF and rest_low // y == rest_high // y:
        return quotient + int(rest_low // y)
    if type(y) is int and (exact := _exact_quotient(rest, y, scope)) is not None:
        return quotient + exact
    rest, y = _merged(rest, y)
    return quotient + operation("floordiv", (rest, y), scope, *quotient_bounds(bounds(rest), bounds(y)))


def _exact_quotient(x: Any, y: int, scope: Scope) -> Any:
    """x / y where the known divisors of variables make it exact term by term, else None."""
    total: Any = 0
    for monomial, coefficient in terms_of(x, scope):
        if coefficient % y == 0:
            total = total + dim_of({monomial: coefficient // y}, scope)
            continue
        for factor, _ in monomial.factors:
            divisor = scope.divisors.get(factor, 1)
            if coefficient * divisor % y == 0:
                rest = less(monomial, factor, scope)
                whole = scope.factors["floordiv", (factor_dim(factor).key, divisor)]
                total = total + factor_dim(whole) * dim_of({rest: coefficient * divisor // y}, scope)
                break
        else:
            return None
    return total


def _without_common(x: Any, y: Dim, scope: Scope) -> tuple[Any, int] | None:
    """x and y without the product of factors that y is a multiple of and all of x has; None where there is none."""
    (monomial, coefficient), *others = y.terms
    rests = [(_without(m, monomial, scope), c) for m, c in terms_of(x, scope)]
    if others or any(rest is None for rest, _ in rests):
        return None
    return dim_of({rest: c for rest, c in rests if rest is not None}, scope), coefficient


def divided_by_number(x: Any, y: int, scope: Scope) -> tuple[Any, Any, int]:
    """`x // y` as `quotient + rest // divisor`, whose coefficients are from 0 on and share no factor with it."""
    terms = dict(terms_of(x, scope))
    quotient = dim_of({m: c // y for m, c in terms.items()}, scope)
    terms = {m: c % y for m, c in terms.items()}
    constant = terms.pop(scope.one, 0)
    shared = math.gcd(y, *terms.values())
    return quotient, dim_of({m: c // shared for m, c in terms.items()}, scope) + constant // shared, y // shared


def _merged(x: Any, y: Any) -> tuple[Any, Any]:
    """floordiv(floordiv(a, m), n) is floordiv(a, m*n), for numbers m and n."""
    if type(x) is Dim and type(y) is int:
        constant = dict(x.terms).get(x.scope.one, 0)
        factor = only_factor(x - constant)
        if factor is not None and factor.name == "floordiv" and type(factor.operands[1]) is int:
            inner, by = factor.operands
            return inner + constant * by, by * y
    return x, y


def quotient_bounds(x: tuple[float, float], y: tuple[float, float]) -> tuple[float, float]:
    """Between which numbers a quotient lies, from where the dividend and the positive divisor do."""
    ends = [_floor_div(end, divisor) for end in x for divisor in y]
    return min(ends), max(ends)


def _floor_div(x: float, y: float) -> float:
    """floor(x / y) for a positive y, either of which may be infinite."""
    if math.isinf(y):
        return (0 if x >= 0 else -1) if math.isfinite(x) else (_INF if x > 0 else -_INF)
    return x if math.isinf(x) else x // y


def long_division(x: Any, y: Any, scope: Scope) -> tuple[Any, Any]:
    """q and r with x = q*y + r, by dividing terms of x by the leading term of y while that is exact."""
    (lead, coefficient), quotient, rest = terms_of(y, scope)[0], 0, 0
    tried = 0
    while type(x) is Dim or x:
        monomial, c = terms_of(x, scope)[0]
        term = dim_of({monomial: c}, scope)
        shared = _without(monomial, lead, scope)
        tried += 1
        if shared is None or c % coefficient or tried > 64:
            x, rest = x - term, rest + term
        else:
            part = dim_of({shared: c // coefficient}, scope)
            x, quotient = x - part * y, quotient + part
    return quotient, rest


def _without(monomial: Monomial, divisor: Monomial, scope: Scope) -> Monomial | None:
    """monomial / divisor, or None where that is no monomial."""
    powers = dict(monomial.factors)
    for factor, power in divisor.factors:
        powers[factor] = powers.get(factor, 0) - power
        if powers[factor] < 0:
            return None
    return monomial_of(powers.items(), scope)


division.take(floordiv=floordiv, mod=mod, divided_by_number=divided_by_number, quotient_bounds=quotient_bounds)
