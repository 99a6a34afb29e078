"""The text of symbolic dimensions, which `symbolic_shape` reads back."""

from __future__ import annotations

from phalanx.symbolic.dim_polynomials import Polynomial, Terms, factor_dim, terms_of


def format_dim(x: Polynomial) -> str:
    """The text of a dimension, with remainders written as `mod(x, y)`."""
    terms, remainders = _extract_remainders(x)
    parts: list[str] = []
    for monomial, coefficient in (*remainders, *terms):
        factors = [str(monomial)] if str(monomial) else []
        size = abs(coefficient)
        text = "*".join(([str(size)] if size != 1 or not factors else []) + factors)
        sign = "-" if coefficient < 0 else "+"
        parts.append(f" {sign} {text}" if parts else f"-{text}" if coefficient < 0 else text)
    return "".join(parts) or "0"


def _extract_remainders(x: Polynomial) -> tuple[Terms, list[tuple[str, int]]]:
    """Separate multiples of a - b*floordiv(a, b) from the other terms, as pairs of text mod(a, b) and coefficient."""
    terms, found, scope = dict(x.terms), [], x.scope
    for monomial, coefficient in x.terms:
        for factor, power in monomial.factors:
            if factor.name != "floordiv" or power != 1 or terms.get(monomial) != coefficient:
                continue
            inner, by = factor.operands
            product = terms_of(by * factor_dim(factor), scope)
            in_product = dict(product).get(monomial, 0)
            if not in_product or coefficient % in_product:
                continue
            times = -coefficient // in_product
            # Every term of the remainder must occur with its sign and at least its size: it replaces terms, and
            # must not add others that cancel it.
            remainder = [*((m, c * times) for m, c in terms_of(inner, scope)), *((m, -c * times) for m, c in product)]
            if all(terms.get(m, 0) * c > 0 and abs(terms[m]) >= abs(c) for m, c in remainder):
                for m, c in remainder:
                    terms[m] -= c
                found.append((f"mod({inner}, {by})", times))
    return tuple((m, c) for m, c in terms.items() if c), found
