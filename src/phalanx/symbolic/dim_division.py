"""Division of symbolic dimensions: quotients and remainders, simplified wherever that is exact.

A quotient that is not exact becomes an opaque factor `floordiv(x, y)` with a positive divisor. A remainder is written
`x - y*floordiv(x, y)`. Builds on `dim_polynomials` and `linear_bounds`; called by the operators of `Dim`.
"""

from __future__ import annotations

import math
from typing import Any, Final

from phalanx.symbolic.dim_polynomials import (
    Bounds,
    Polynomial,
    Ring,
    Size,
    apply_opaque,
    as_factor,
    bounds,
    common_scope,
    divide_by_factor,
    divide_monomials,
    factor_dim,
    is_zero,
    make_dim,
    terms_of,
)
from phalanx.symbolic.linear_bounds import inconclusive_error

_INF: Final = math.inf
_MAX_STEPS: Final = 64  # of a long division


def mod(x: Size, y: Size) -> Any:
    """The remainder of Python's floor division."""
    result = x - y * floordiv(x, y)
    if isinstance(result, Polynomial) and type(y) is int:
        # The bounds of a remainder do not follow from its terms' bounds.
        low, high = (0, y - 1) if y > 0 else (y + 1, 0)
        result.cheap = max(result.cheap[0], low), min(result.cheap[1], high)
    return result


def floordiv(x: Size, y: Size) -> Any:
    """The quotient of Python's floor division, simplified where that is exact."""
    # As for ints; a divisor that may be 0 for some sizes is refused below.
    if is_zero(y):
        raise ZeroDivisionError(f"division of symbolic dimension {x} by zero")
    if type(x) is int and type(y) is int:
        return x // y
    scope = common_scope(x, y)
    low, high = bounds(y)
    if low <= 0 <= high:
        raise inconclusive_error("division of symbolic dimensions", f"whether {y} is 0 in floordiv({x}, {y})", y - 1)
    # A positive divisor is a normal form, by which equal quotients are equal factors.
    return floordiv(-x, -y) if low < 0 else _quotient(x, y, scope)


def _quotient(x: Any, y: Any, scope: Ring) -> Any:
    """The quotient for a positive divisor."""
    if type(y) is int:
        quotient, rest, y = divide_by_number(x, y, scope)
    elif (shared := _cancel_common(x, y, scope)) is not None:
        return floordiv(*shared)
    else:
        quotient, rest = long_division(x, y, scope)
    # Three cases need no opaque factor: the rest is 0, it is smaller than the divisor, or rest // divisor is the same
    # for all values of the variables.
    if is_zero(rest):
        return quotient
    rest_low, rest_high = bounds(rest)
    if rest_low >= 0 and bounds(y - rest)[0] > 0:
        return quotient
    # The rest lies between two consecutive multiples of y, whose quotient is known.
    if type(y) is int and rest_low > -_INF and rest_low // y == rest_high // y:
        return quotient + int(rest_low // y)
    if type(y) is int and (exact := _exact_quotient(rest, y, scope)) is not None:
        return quotient + exact
    # A normal form: nested divisions by numbers become one, so that equal quotients are equal factors.
    rest, y = _merge_nested(rest, y)
    return quotient + apply_opaque("floordiv", (rest, y), scope, *quotient_bounds(bounds(rest), bounds(y)))


def _exact_quotient(x: Size, y: int, scope: Ring) -> Any:
    """x / y if known divisors of variables make it exact in each term, else None."""
    total: Any = 0
    for monomial, coefficient in terms_of(x, scope):
        if coefficient % y == 0:
            total = total + make_dim({monomial: coefficient // y}, scope)
            continue
        for factor, _ in monomial.factors:
            divisor = scope.divisors.get(factor, 1)
            if coefficient * divisor % y == 0:
                rest = divide_by_factor(monomial, factor, scope)
                whole = scope.factors["floordiv", (factor_dim(factor).key, divisor)]
                total = total + factor_dim(whole) * make_dim({rest: coefficient * divisor // y}, scope)
                break
        else:
            return None
    return total


def _cancel_common(x: Any, y: Polynomial, scope: Ring) -> tuple[Any, int] | None:
    """x and y divided by the monomial of y, if y is a single term whose monomial divides all terms of x; else None."""
    (monomial, coefficient), *others = y.terms
    rests = [(divide_monomials(m, monomial, scope), c) for m, c in terms_of(x, scope)]
    if others or any(rest is None for rest, _ in rests):
        return None
    return make_dim({rest: c for rest, c in rests if rest is not None}, scope), coefficient


def divide_by_number(x: Size, y: int, scope: Ring) -> tuple[Any, Any, int]:
    """Write `x // y` as `quotient + rest // divisor`, where rest has non-negative coefficients coprime to divisor."""
    # Each coefficient is divided with a non-negative rest, so that the rest of the whole has a known sign.
    terms = dict(terms_of(x, scope))
    quotient = make_dim({m: c // y for m, c in terms.items()}, scope)
    terms = {m: c % y for m, c in terms.items()}
    # The constant is rounded down apart from the others: floor((d*x + c) / (d*y)) is floor((x + floor(c / d)) / y).
    constant = terms.pop(scope.one, 0)
    shared = math.gcd(y, *terms.values())
    return quotient, make_dim({m: c // shared for m, c in terms.items()}, scope) + constant // shared, y // shared


def _merge_nested(x: Any, y: Any) -> tuple[Any, Any]:
    """Rewrite floordiv(floordiv(a, m), n) as floordiv(a, m*n) for numbers m and n; returns the operands."""
    if isinstance(x, Polynomial) and type(y) is int:
        constant = dict(x.terms).get(x.scope.one, 0)
        factor = as_factor(x - constant)
        if factor is not None and factor.name == "floordiv" and type(factor.operands[1]) is int:
            inner, by = factor.operands
            return inner + constant * by, by * y
    return x, y


def quotient_bounds(x: Bounds, y: Bounds) -> Bounds:
    """Bounds of a quotient from bounds of the dividend and of the positive divisor."""
    ends = [_floor_div(end, divisor) for end in x for divisor in y]
    return min(ends), max(ends)


def _floor_div(x: float, y: float) -> float:
    """floor(x / y) for a positive y, either of which may be infinite."""
    if math.isinf(y):
        return (0 if x >= 0 else -1) if math.isfinite(x) else (_INF if x > 0 else -_INF)
    return x if math.isinf(x) else x // y


def long_division(x: Size, y: Size, scope: Ring) -> tuple[Any, Any]:
    """The pair (q, r) with x = q*y + r, by dividing terms of x by the leading term of y while that is exact."""
    (lead, coefficient), quotient, rest = terms_of(y, scope)[0], 0, 0
    tried = 0
    # Terms are in decreasing order of degree, so the leading term of x is either divided or moved to the rest for good.
    while isinstance(x, Polynomial) or x:
        monomial, c = terms_of(x, scope)[0]
        term = make_dim({monomial: c}, scope)
        shared = divide_monomials(monomial, lead, scope)
        tried += 1
        if shared is None or c % coefficient or tried > _MAX_STEPS:
            x, rest = x - term, rest + term
        else:
            part = make_dim({shared: c // coefficient}, scope)
            x, quotient = x - part * y, quotient + part
    return quotient, rest
