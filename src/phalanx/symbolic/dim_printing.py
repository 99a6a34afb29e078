"""The text of symbolic dimensions, which `symbolic_shape` reads back."""

from __future__ import annotations

import math
from typing import Any

from phalanx.symbolic.dim_polynomials import (
    Factor,
    Monomial,
    Polynomial,
    Terms,
    divide_by_factor,
    divide_monomials,
    factor_dim,
    make_dim,
    terms_of,
)


def format_dim(x: Polynomial) -> str:
    """The text of a dimension, with remainders written as `mod(x, y)`, and the largest terms first."""
    terms, remainders = _extract_remainders(x)
    parts: list[str] = []
    for monomial, coefficient in sorted((*remainders, *terms), key=lambda term: _order(term[0]), reverse=True):
        factors = [str(monomial)] if str(monomial) else []
        size = abs(coefficient)
        text = "*".join(([str(size)] if size != 1 or not factors else []) + factors)
        sign = "-" if coefficient < 0 else "+"
        parts.append(f" {sign} {text}" if parts else f"- {text}" if coefficient < 0 else text)
    return "".join(parts) or "0"


def _order(term: Monomial) -> tuple[Any, ...]:
    """The order of terms: by size, then by their factors."""
    factors = sorted([(_size(factor), str(factor), power) for factor, power in term.factors], reverse=True)
    return sum(1 + size * power for size, _, power in factors), factors


def _size(factor: Factor) -> int:
    """The number of variables, operations and numbers in a factor."""
    return 1 + sum(sum(1 + _order(m)[0] for m, _ in terms_of(x, factor.scope)) for x in factor.operands)


def _extract_remainders(x: Polynomial) -> tuple[Terms, list[tuple[Monomial, int]]]:
    """Separate multiples of a - b*floordiv(a, b) from the other terms, as pairs of a monomial and a coefficient.

    The monomial is mod(a, b), or its product with the other factors that the terms share.
    """
    terms, found, scope = dict(x.terms), [], x.scope
    for monomial, coefficient in x.terms:
        for factor, power in monomial.factors:
            if factor.name != "floordiv" or power != 1 or terms.get(monomial) != coefficient:
                continue
            inner, by = factor.operands
            (lead, in_divisor), *_ = terms_of(by, scope)
            shared = divide_monomials(divide_by_factor(monomial, factor, scope), lead, scope)
            if shared is None or coefficient % in_divisor:
                continue
            times = -coefficient // in_divisor
            scale = make_dim({shared: times}, scope)
            # Every term of the remainder must occur with its sign and at least its size: it replaces terms, and
            # must not add others that cancel it.
            remainder = [*terms_of(scale * inner, scope), *terms_of(-scale * by * factor_dim(factor), scope)]
            if all(terms.get(m, 0) * c > 0 and abs(terms[m]) >= abs(c) for m, c in remainder):
                for m, c in remainder:
                    terms[m] -= c
                factors = (Factor("mod", (inner, by), scope, 0, math.inf), 1), *shared.factors
                found.append((Monomial(tuple(sorted(factors, key=lambda item: item[0].order))), times))
    return tuple((m, c) for m, c in terms.items() if c), found
