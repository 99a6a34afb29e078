"""Polynomials: the representation of symbolic dimensions, and their arithmetic without division.

A symbolic dimension is a polynomial with integer coefficients. Its factors are variables, or operations (`floordiv`,
`max`, `min`) of other dimensions, which are opaque to the arithmetic; `mod(x, y)` is written `x - y*floordiv(x, y)`.
Polynomials are interned: equal polynomials of one ring are one object, so shapes that contain them compare and hash as
fast as shapes of ints. A result without variables is an int.

`Polynomial` and `Ring` are abstract. `symbolic_dimension` derives `Dim` and `Scope`, whose operators use division
(`dim_division`), bounds (`linear_bounds`) and extrema (`dim_extrema`); all of these build on this module.
"""

from __future__ import annotations

import functools
import math
import operator
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias
from zlib import crc32

from phalanx.engine.error_record import ArgumentError

MAX_TERMS: Final = 1000
"""The largest number of terms. No real shape comes near it, and an artifact must not make us build larger ones."""
MAX_TEXT: Final = 20_000
"""The most characters in the operands of an operation, whose text may double with each level of nesting."""
MAX_DEGREE: Final = 64
_INF: Final = math.inf

Bounds: TypeAlias = tuple[float, float]
Size: TypeAlias = "int | Polynomial"


class Ring:
    """The variables, operations and polynomials that may occur together, with the tables that intern them.

    Args:
      multiples: for a factor floordiv(x, d) of which d is known to divide x, the pair (x, d).
      divisors: for a variable, a number that is known to divide it.
      results: results of arithmetic and comparisons, which code repeats many times.
    """

    dim_class: type[Polynomial]

    def __init__(self) -> None:
        self.multiples: dict[Factor, tuple[Polynomial, int]] = {}
        self.divisors: dict[Factor, int] = {}
        self.one = Monomial(())
        self.monomials: dict[tuple[Any, ...], Monomial] = {(): self.one}
        self.factors: dict[Any, Factor] = {}
        self.dims: dict[frozenset[Any], Any] = {}
        self.results: dict[Any, Any] = {}


class Factor:
    """A variable, or an operation of dimensions that the arithmetic does not look into."""

    __slots__ = ("lower", "name", "operands", "order", "scope", "upper")

    def __init__(self, name: str, operands: tuple[Size, ...], scope: Any, lower: float, upper: float) -> None:
        self.name = name
        self.operands = operands
        self.scope = scope
        self.lower = lower
        self.upper = upper
        texts = tuple(map(str, operands))
        if sum(map(len, texts)) > MAX_TEXT:
            raise too_large_error(f"{name} of operands of {sum(map(len, texts))} characters")
        # Variables sort before operations, and equal polynomials have equal term orders in every process, so that texts
        # are stable.
        self.order = (len(operands), name, texts)

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.operands))})" if self.operands else self.name

    def sample(self) -> int:
        """A size of a variable, in its bounds and a multiple of its divisor, that depends on its name."""
        divisor = self.scope.divisors.get(self, 1)
        width = min(self.upper - self.lower, 1 << 20)
        return int(int(self.lower) + crc32(self.name.encode()) % (int(width) // divisor + 1) * divisor)

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """The size for these sizes of the variables."""
        if not self.operands:
            return values[self.name]
        operands = [evaluate(x, values) for x in self.operands]
        operation = operator.floordiv if self.name == "floordiv" else functools.partial(_extreme, self.name)
        return functools.reduce(operation, operands)


def _extreme(name: str, x: Any, y: Any) -> Any:
    """The maximum or minimum of two sizes; where one is symbolic, its class decides."""
    # Extrema are symmetric, so a polynomial on the right may take the place of the left operand.
    x, y = (y, x) if isinstance(y, Polynomial) else (x, y)
    return x.extreme(name, y) if isinstance(x, Polynomial) else (max if name == "max" else min)(x, y)


class Monomial:
    """A product of powers of factors, interned in its ring."""

    __slots__ = ("degree", "factors", "is_plain", "order")

    def __init__(self, factors: tuple[tuple[Factor, int], ...]) -> None:
        self.factors = factors
        self.degree = sum([power for _, power in factors])
        self.order = (-self.degree, [(factor.order, -power) for factor, power in factors])
        self.is_plain = not factors or (self.degree == 1 and not factors[0][0].operands)  # a variable or 1

    def __repr__(self) -> str:
        return "*".join(f"{factor}^{power}" if power > 1 else str(factor) for factor, power in self.factors)

    def bounds(self) -> Bounds:
        """Lower and upper bounds of the product, from the bounds of its factors."""
        if self.degree == 1:
            factor = self.factors[0][0]
            return factor.lower, factor.upper
        low: float = 1
        high: float = 1
        for factor, power in self.factors:
            # An even power of an interval that contains zero has its minimum inside, not at an end.
            powers = factor.lower**power, factor.upper**power
            crosses_zero = power % 2 == 0 and factor.lower < 0 < factor.upper
            least, greatest = 0 if crosses_zero else min(powers), max(powers)
            ends = [_product(a, b) for a in (low, high) for b in (least, greatest)]
            low, high = min(ends), max(ends)
        return low, high


Terms: TypeAlias = tuple[tuple[Monomial, int], ...]


class Polynomial:
    """A sum of monomials with integer coefficients. Abstract: `Dim` is the only subclass.

    Args:
      scope: its ring.
      terms: pairs of a monomial and its coefficient, of the highest degree first.
      key: the terms as a set, by which polynomials are interned.
      cheap: bounds that are computed on creation, from the bounds of the monomials.
    """

    __slots__ = ("__weakref__", "_bounds", "_hash", "_text", "cheap", "key", "scope", "terms")

    scope: Any
    terms: Terms
    key: frozenset[Any]
    cheap: Bounds
    _text: str | None
    _hash: int | None
    _bounds: Bounds | None

    def bounds(self) -> Bounds:
        """Lower and upper bounds that use all known facts."""
        raise NotImplementedError

    def extreme(self, name: str, other: Size) -> Size:
        """The maximum (`name` is "max") or minimum of this and another size."""
        raise NotImplementedError

    def __add__(self, other: Any) -> Any:
        raise NotImplementedError

    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __mod__ = __add__

    def __neg__(self) -> Any:
        return self * -1

    @property
    def variables(self) -> frozenset[str]:
        """Names of the variables that the size depends on."""
        names: set[str] = set()
        for factor in factors_of(self):
            names.update(*(x.variables for x in factor.operands if isinstance(x, Polynomial)))
            names.update(() if factor.operands else (factor.name,))
        return frozenset(names)


# Conversions between sizes, terms, monomials and factors.


def terms_of(x: Any, scope: Ring) -> Terms:
    """The terms of a size."""
    return x.terms if isinstance(x, Polynomial) else ((scope.one, x),) if x else ()


def key_of(x: Any) -> Any:
    """The key of a size in the tables of its ring."""
    return x.key if isinstance(x, Polynomial) else x


def is_zero(x: object) -> bool:
    """Whether `x` is the int 0."""
    return type(x) is int and x == 0


def as_factor(x: object) -> Factor | None:
    """The factor that `x` consists of, or None if `x` is anything but a single factor."""
    if not isinstance(x, Polynomial) or len(x.terms) != 1:
        return None
    ((monomial, coefficient),) = x.terms
    return monomial.factors[0][0] if coefficient == monomial.degree == 1 else None


def factors_of(x: Size) -> list[Factor]:
    """The factors of all terms, with repetitions; none for a number."""
    return [factor for monomial, _ in x.terms for factor, _ in monomial.factors] if isinstance(x, Polynomial) else []


def factor_dim(factor: Factor) -> Any:
    """The dimension that consists of one factor."""
    return make_dim({make_monomial([(factor, 1)], factor.scope): 1}, factor.scope)


def make_dim(terms: Mapping[Monomial, int], scope: Any) -> Any:
    """The int, or the interned polynomial, that has these terms."""
    if scope.multiples:
        terms = _cancel_divisors(terms, scope)
    key = frozenset([item for item in terms.items() if item[1]])
    found = scope.dims.get(key)
    if found is None:
        found = scope.dims[key] = _new_dim(key, scope)
    return found


def _new_dim(terms: frozenset[Any], scope: Any) -> Any:
    ordered = tuple(sorted(terms, key=lambda term: term[0].order))
    # The constant comes last, so only a number begins with it.
    if not ordered or not ordered[0][0].factors:
        return ordered[0][1] if ordered else 0
    if len(terms) > MAX_TERMS:
        raise too_large_error(f"{len(terms)} terms")
    # The constructor is bypassed: dimensions are made by interning only, and this is the hot path of shape arithmetic.
    self = object.__new__(scope.dim_class)
    self.scope, self.key = scope, terms
    self.terms = ordered
    self._bounds = self._text = self._hash = None
    # A dimension whose bounds coincide is a number, which keeps such shapes static.
    self.cheap = lower, upper = interval(self)
    return int(lower) if lower == upper else self


def _cancel_divisors(terms: Mapping[Monomial, int], scope: Ring) -> Mapping[Monomial, int]:
    """Replace d*floordiv(x, d) by x wherever d is known to divide x."""
    while found := _next_multiple(terms, scope):
        monomial, factor, times = found
        # The terms of x replace the term, and may contain further such factors, hence the loop.
        grown = defaultdict(int, terms)
        del grown[monomial]
        rest = divide_by_factor(monomial, factor, scope)
        for other, c in scope.multiples[factor][0].terms:
            grown[_times(other, rest, scope)] += c * times
        terms = grown
    return terms


def _next_multiple(terms: Mapping[Monomial, int], scope: Ring) -> tuple[Monomial, Factor, int] | None:
    """A term with a factor floordiv(x, d) and a coefficient that d divides, with the quotient of the two."""
    for monomial, coefficient in terms.items():
        for factor, _ in monomial.factors:
            x, divisor = scope.multiples.get(factor, (None, 1))
            if x is not None and coefficient and coefficient % divisor == 0:
                return monomial, factor, coefficient // divisor
    return None


def make_monomial(factors: Iterable[tuple[Factor, int]], scope: Ring) -> Monomial:
    """The interned product of powers of factors."""
    kept = tuple([item for item in factors if item[1]])
    if len(kept) > 1:
        # Monomials are interned by their factors in a fixed order; a single factor needs no sorting.
        kept = tuple(sorted(kept, key=lambda item: item[0].order))
    found = scope.monomials.get(kept)
    if found is None:
        found = scope.monomials[kept] = Monomial(kept)
        if found.degree > MAX_DEGREE:
            raise too_large_error(str(found))
    return found


def divide_by_factor(monomial: Monomial, factor: Factor, scope: Ring) -> Monomial:
    """The monomial with the power of one of its factors reduced by 1."""
    return make_monomial([(f, p - (f is factor)) for f, p in monomial.factors], scope)


def divide_monomials(monomial: Monomial, divisor: Monomial, scope: Ring) -> Monomial | None:
    """monomial / divisor, or None if the divisor does not divide it."""
    powers = dict(monomial.factors)
    for factor, power in divisor.factors:
        powers[factor] = powers.get(factor, 0) - power
        if powers[factor] < 0:
            return None
    return make_monomial(powers.items(), scope)


def _times(x: Monomial, y: Monomial, scope: Ring) -> Monomial:
    if not x.factors or not y.factors:
        return x if x.factors else y
    powers = dict(x.factors)
    for factor, power in y.factors:
        powers[factor] = powers.get(factor, 0) + power
    return make_monomial(powers.items(), scope)


def apply_opaque(name: str, operands: tuple[Size, ...], scope: Any, lower: float, upper: float) -> Any:
    """The dimension `name(*operands)` as a single factor, whose size is known to be between `lower` and `upper`."""
    key = name, tuple(map(key_of, operands))
    factor = scope.factors.get(key)
    if factor is None:
        factor = scope.factors[key] = Factor(name, operands, scope, lower, upper)
    return factor_dim(factor)


# Sums and products.


def check_same_scope(x: Polynomial, y: object) -> None:
    """Raise ArgumentError if `y` is a polynomial of another ring."""
    if isinstance(y, Polynomial) and x.scope is not y.scope:
        raise ArgumentError(
            "arithmetic on symbolic dimensions",
            expected="variables of one scope",
            got=f"{x} and {y}, of two scopes",
            fix="make all symbolic shapes of a program with one call or one scope: "
            "symbolic_shape('b, 2*b'), or symbolic_shape('b', scope=scope)",
        )


def common_scope(*xs: Any) -> Any:
    """The ring of these sizes, of which at least one is a polynomial."""
    first = next(x for x in xs if isinstance(x, Polynomial))
    for x in xs:
        check_same_scope(first, x)
    return first.scope


def add_dims(x: Polynomial, y: Size, sign: int = 1) -> Any:
    """x + y, or x - y for `sign` -1."""
    check_same_scope(x, y)
    terms = dict(x.terms)
    for monomial, coefficient in terms_of(y, x.scope):
        terms[monomial] = terms.get(monomial, 0) + sign * coefficient
    return make_dim(terms, x.scope)


def multiply_dims(x: Polynomial, y: Size) -> Any:
    """x * y."""
    check_same_scope(x, y)
    factors = terms_of(y, x.scope)
    if len(x.terms) * len(factors) > 16 * MAX_TERMS:
        raise too_large_error(f"a product of {len(x.terms)} and {len(factors)} terms")
    terms: dict[Monomial, int] = defaultdict(int)
    for left, a in x.terms:
        for right, b in factors:
            terms[_times(left, right, x.scope)] += a * b
    return make_dim(terms, x.scope)


def too_large_error(got: str) -> ArgumentError:
    """The error for a polynomial beyond the limits of this module."""
    return ArgumentError(
        "arithmetic on symbolic dimensions",
        expected=f"polynomials of at most {MAX_TERMS} terms and powers up to {MAX_DEGREE}, "
        f"of operations of at most {MAX_TEXT} characters",
        got=got,
        fix="give the intermediate sizes variables of their own",
    )


# Bounds and values.


def bounds(x: Any) -> Bounds:
    """Lower and upper bounds of a size for all values of its variables; correct, but not always tight.

    Args:
      x: an int or a symbolic dimension.

    Returns:
      The bounds, which may be infinite.

    Examples:
      >>> from phalanx.symbolic import Scope
      >>> b = Scope().variable("b")
      >>> bounds(b * b - b + 3), bounds(b % 3)
      ((3, inf), (0, 2))
    """
    return x.bounds() if isinstance(x, Polynomial) else (x, x)


def _product(x: float, y: float) -> float:
    """x * y, where zero times infinity is zero."""
    return 0 if x == 0 or y == 0 else x * y


def interval(x: Polynomial) -> Bounds:
    """Bounds by interval arithmetic on the terms, and by `_shifted_bounds`."""
    lower: float = 0
    upper: float = 0
    for monomial, coefficient in x.terms:
        low, high = monomial.bounds() if coefficient > 0 else monomial.bounds()[::-1]
        lower += coefficient * low
        upper += coefficient * high
    # The expansion only helps for nonlinear sums, and its size grows with the power of the degree.
    if len(x.terms) == 1 or not 1 < x.terms[0][0].degree <= 4:
        return lower, upper
    low, high = _shifted_bounds(x)
    return max(lower, low), min(upper, high)


def _shifted_bounds(x: Polynomial) -> Bounds:
    """Bounds from expanding each factor as its lower bound plus a non-negative rest.

    If all coefficients of the expansion but the constant are positive, the constant is the minimum of the polynomial;
    if all are negative, it is the maximum. Interval arithmetic misses this for b^2 - b with b >= 1, for example.
    """
    scope = x.scope
    shifted: dict[Monomial, int] = defaultdict(int)
    for monomial, coefficient in x.terms:
        expanded: dict[Monomial, int] = {scope.one: coefficient}
        for factor, power in monomial.factors:
            # Without a finite lower bound there is nothing to expand around.
            if not math.isfinite(factor.lower):
                return -_INF, _INF
            single = make_monomial([(factor, 1)], scope)
            for _ in range(power):
                grown: dict[Monomial, int] = defaultdict(int)
                for m, c in expanded.items():
                    grown[_times(m, single, scope)] += c
                    grown[m] += c * int(factor.lower)
                expanded = grown
        for m, c in expanded.items():
            shifted[m] += c
    constant, rest = shifted.pop(scope.one, 0), shifted.values()
    return constant if all(c >= 0 for c in rest) else -_INF, constant if all(c <= 0 for c in rest) else _INF


def evaluate(dim: Any, values: Mapping[str, Any]) -> Any:
    """The size of a dimension for given sizes of its variables.

    Args:
      dim: an int or a symbolic dimension.
      values: a number or a dimension for each variable.

    Returns:
      The number or dimension.

    Raises:
      ArgumentError: a variable has no value.
    """
    if not isinstance(dim, Polynomial):
        return dim
    # Values may be numbers or dimensions, also of another scope, so that only + and * are used.
    total: Any = 0
    try:
        for monomial, coefficient in dim.terms:
            product: Any = coefficient
            for factor, power in monomial.factors:
                product = product * factor.evaluate(values) ** power
            total = total + product
    except KeyError:
        raise ArgumentError(
            f"evaluation of dimension {dim}",
            expected=f"values of {', '.join(sorted(dim.variables.difference(values)))}",
            got=f"values of {', '.join(sorted(values)) or 'no variable'}",
            fix="give a size for each variable",
        ) from None
    return total
