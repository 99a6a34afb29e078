"""Polynomials: symbolic dimensions and their arithmetic.

A dimension is an `int` or a `Dim`. A `Dim` is an interned polynomial with integer coefficients, whose factors are
variables or the operations `floordiv`, `max` and `min` of other dimensions, kept whole; `mod(x, y)` is written as
`x - y*floordiv(x, y)`, so that equal sizes are the same polynomial. Equal polynomials of one scope are one object:
shapes that hold them compare and hash like shapes of ints. `dims` is what other rooms ask; `deciding` answers
comparisons.

An order comparison is answered when it holds, or fails, for all values the variables may take; otherwise it raises
`InconclusiveDimensionOperation`. Equality is always answered: True says that the sizes are the same for all values,
False that this is not known, as for a shape of which one does not know that it is (1,).
"""

from __future__ import annotations

import functools
import math
import operator
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from phalanx.engine.errors import ArgumentError, InconclusiveDimensionOperation
from phalanx.engine.seat import Seat

_INF: Final = math.inf
RESERVED: Final = ("floordiv", "mod", "max", "min", "non_negative")
MAX_TERMS: Final = 1000  # Larger polynomials are refused: no shape has them, and artifacts may not make us build them.

# bounds(dim): the least and the greatest size; compare(dim, symbol, other), inconclusive(where, question, difference).
deciding = Seat(taken_by="phalanx.symbolic.deciding")
# printed(dim): its text; max_dim(x, y), min_dim(x, y).
faces = Seat(taken_by="phalanx.symbolic.dims")
# value(dim): a dimension as an array, where arithmetic mixes the two.
arrays = Seat(taken_by="phalanx.lax.sizes")


class Fact(NamedTuple):
    """What is known of the variables: `dim` is not negative, or, with a divisor, a multiple of it.

    text: how the user wrote it.
    """

    text: str
    dim: Any
    divisor: int | None = None

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether it holds for these sizes."""
        value = evaluate(self.dim, values)
        return value >= 0 if self.divisor is None else value % self.divisor == 0


class Scope:
    """Where variables live, with what is known of them; variables of two scopes do not mix.

    Args:
      **bounds: for a variable its least and greatest size; None leaves a side as it is (at least 1, no greatest).

    Examples:
      >>> scope = Scope(b=(0, 8))
      >>> scope.variable("b") <= 8
      True
    """

    def __init__(self, **bounds: tuple[int | None, int | None]) -> None:
        self.variables: dict[str, Any] = {}
        self.facts: list[Fact] = []
        self.texts: list[str] = []  # all that is known, as the user wrote it
        self.multiples: dict[Factor, tuple[Any, int]] = {}  # floordiv(x, d), where d is known to divide x: (x, d)
        self.divisors: dict[Factor, int] = {}  # of variables that are known to be multiples
        self.one = Monomial(())
        self.monomials: dict[Any, Monomial] = {(): self.one}
        self.factors: dict[Any, Factor] = {}
        self.dims: dict[frozenset, Any] = {}
        self.results: dict[Any, Any] = {}  # of arithmetic and comparisons, which code repeats over and over
        for name, (lower, upper) in bounds.items():
            self.bound(name, 1 if lower is None else lower, upper)

    def bound(self, name: str, lower: int = 1, upper: float | None = None) -> Any:
        """Make a variable whose size lies between `lower` and `upper`, before anything is computed with it."""
        upper = _INF if upper is None else upper
        if not 0 <= lower <= upper:
            raise ArgumentError(
                f"bounds of symbolic dimension {name}",
                expected="0 <= least <= greatest",
                got=f"({lower}, {upper})",
                mend="give sizes that an array can have",
            )
        if not name.isidentifier() or name in RESERVED:
            what = f"an identifier other than {', '.join(RESERVED)}"
            raise ArgumentError("symbolic dimension", expected=what, got=repr(name), mend="rename it")
        factor = self.factors[name] = Factor(name, (), self, lower, upper)
        found = self.variables[name] = factor_dim(factor)
        return found

    def variable(self, name: str) -> Any:
        """The dimension that is the variable `name` of this scope."""
        found = self.variables.get(name)
        return self.bound(name) if found is None else found

    def substitute(self, name: str, value: Any) -> None:
        """Let `name`, which nothing has used yet, stand for another dimension."""
        assert name not in self.factors, f"{name} is in use"
        self.variables[name] = value

    def learn(self, fact: Fact) -> None:
        """Take a fact as given; what was undecided before may be decided now."""
        self.facts.append(fact)
        self.results = {key: found for key, found in self.results.items() if not isinstance(found, Undecided)}
        for dim in self.dims.values():
            if type(dim) is Dim:
                dim._bounds = None

    def tighten(self, factor: Factor, lower: float, upper: float) -> bool:
        """Take it as given that a variable lies between these numbers; whether that is news."""
        divisor = self.divisors.get(factor, 1)
        lower = max(factor.lower, lower if math.isinf(lower) else -(-lower // divisor) * divisor)
        upper = min(factor.upper, upper if math.isinf(upper) else upper // divisor * divisor)
        is_news = (lower, upper) != (factor.lower, factor.upper)
        factor.lower, factor.upper = lower, upper
        return is_news

    def multiple(self, x: Dim, divisor: int) -> None:
        """Take it as given that `divisor` divides `x`."""
        _, rest, divisor = _divided_by_number(x, divisor, self)
        if type(rest) is not Dim:
            return
        factor = only_factor(rest)
        if factor is not None:
            divisor = self.divisors[factor] = math.lcm(divisor, self.divisors.get(factor, 1))
            self.tighten(factor, factor.lower, factor.upper)
        quotient = operation("floordiv", (rest, divisor), self, *_quotient_bounds(bounds(rest), (divisor, divisor)))
        if (whole := only_factor(quotient)) is not None:
            self.multiples[whole] = rest, divisor


class Factor:
    """What polynomials are made of: a variable, or an operation that is kept whole."""

    __slots__ = ("lower", "name", "operands", "order", "scope", "upper")

    def __init__(self, name: str, operands: tuple[Any, ...], scope: Scope, lower: float, upper: float) -> None:
        self.name = name
        self.operands = operands
        self.scope = scope
        self.lower = lower
        self.upper = upper
        self.order = (len(operands), name, tuple(map(str, operands)))

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.operands))})" if self.operands else self.name

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """The size, given those of the variables."""
        if not self.operands:
            return values[self.name]
        operands = [evaluate(x, values) for x in self.operands]
        return OPERATIONS[self.name](*operands)


OPERATIONS: Final[dict[str, Any]] = {
    "floordiv": operator.floordiv,
    "max": lambda *xs: functools.reduce(faces.max_dim, xs),
    "min": lambda *xs: functools.reduce(faces.min_dim, xs),
}


class Monomial:
    """A product of powers of factors, interned in its scope."""

    __slots__ = ("degree", "factors", "order")

    def __init__(self, factors: tuple[tuple[Factor, int], ...]) -> None:
        self.factors = factors
        self.degree = sum(power for _, power in factors)
        self.order = (-self.degree, [(factor.order, -power) for factor, power in factors])

    def __repr__(self) -> str:
        return "*".join(f"{factor}^{power}" if power > 1 else str(factor) for factor, power in self.factors)

    def bounds(self) -> tuple[float, float]:
        """Numbers between which the product lies, from those of the factors."""
        low: float = 1
        high: float = 1
        for factor, power in self.factors:
            powers = factor.lower**power, factor.upper**power
            crosses = power % 2 == 0 and factor.lower < 0 < factor.upper
            least, greatest = 0 if crosses else min(powers), max(powers)
            ends = [_product(a, b) for a in (low, high) for b in (least, greatest)]
            low, high = min(ends), max(ends)
        return low, high


Terms = tuple[tuple[Monomial, int], ...]


class Undecided(NamedTuple):
    """A comparison that had no answer: what would have to be not negative."""

    difference: Any


class Dim:
    """A symbolic dimension; made by `Scope.variable` and arithmetic.

    Examples:
      >>> b = Scope().variable("b")
      >>> (b + 1) * 2 - 2, (b + 1) * (b - 1), (6 * b + 3) // 3
      (2*b, b^2 - 1, 2*b + 1)
      >>> b >= 1, b == 1, b + b is 2 * b, 4 * (b // 4) + b % 4 == b
      (True, False, True, True)
    """

    __slots__ = ("__weakref__", "_bounds", "_text", "cheap", "scope", "terms")

    is_symbolic_dim = True
    __array_ufunc__ = None  # NumPy integers on the left leave arithmetic to us

    scope: Scope
    terms: Terms
    cheap: tuple[float, float]
    _text: str | None
    _bounds: tuple[float, float] | None

    # Arithmetic. Each result that has no variables is an int again.

    def __add__(self, other: Any) -> Any:
        if type(other) is not int and type(other) is not Dim:
            if (size := _operand(other)) is None:
                return _with_number(self, operator.add, other)
            other = size
        results = self.scope.results
        found = results.get((self, other))
        if found is None:
            found = results[self, other] = _sum(self, other)
        return found

    __radd__ = __add__

    def __neg__(self) -> Any:
        return self * -1

    __pos__ = lambda self: self

    def __sub__(self, other: Any) -> Any:
        if type(other) is int:
            return self + -other
        size = _operand(other)
        if size is None:
            return _with_number(self, operator.sub, other)
        return self._remembered("-", size, _difference)

    __rsub__ = lambda self, other: -self + other

    def __mul__(self, other: Any) -> Any:
        size = _operand(other)
        if size is None:
            return _with_number(self, operator.mul, other)
        return self._remembered("*", size, _multiply)

    __rmul__ = __mul__

    def __pow__(self, power: Any) -> Any:
        if not isinstance(power, int) or power < 0:
            return NotImplemented
        if power > 64:
            raise _too_large(f"({self})^{power}")
        return math.prod([self] * power)

    def __floordiv__(self, other: Any) -> Any:
        other = _operand(other)
        return NotImplemented if other is None else self._remembered("//", other, _floordiv)

    def __rfloordiv__(self, other: Any) -> Any:
        other = _operand(other)
        return NotImplemented if other is None else _floordiv(other, self)

    def __mod__(self, other: Any) -> Any:
        other = _operand(other)
        return NotImplemented if other is None else self._remembered("%", other, _mod)

    def __rmod__(self, other: Any) -> Any:
        other = _operand(other)
        return NotImplemented if other is None else _mod(other, self)

    def __divmod__(self, other: Any) -> Any:
        return NotImplemented if _operand(other) is None else (self // other, self % other)

    def __rdivmod__(self, other: Any) -> Any:
        return NotImplemented if _operand(other) is None else (other // self, other % self)

    def _remembered(self, name: str, other: Any, compute: Any) -> Any:
        results = self.scope.results
        key = (name, self, other)
        found = results.get(key)
        if found is None:
            found = results[key] = compute(self, other)
        return found

    # Division of arrays by sizes makes arrays.

    def __truediv__(self, other: Any) -> Any:
        return arrays.value(self) / (arrays.value(other) if type(other) is Dim else other)

    def __rtruediv__(self, other: Any) -> Any:
        return other / arrays.value(self)

    def __phalanx_array__(self) -> Any:
        return arrays.value(self)

    # Order. Equality is identity, which interning makes equality of polynomials.

    def __ge__(self, other: Any) -> bool:
        return self._compared(">=", other)

    def __le__(self, other: Any) -> bool:
        return self._compared("<=", other)

    def __gt__(self, other: Any) -> bool:
        return self._compared(">", other)

    def __lt__(self, other: Any) -> bool:
        return self._compared("<", other)

    def _compared(self, symbol: str, other: Any) -> bool:
        results = self.scope.results
        if type(other) is not int and type(other) is not Dim and (other := _operand(other)) is None:
            return NotImplemented
        found = results.get((symbol, self, other))
        if found is None:
            _check_scope(self, other)
            found = results[symbol, self, other] = deciding.compare(self, symbol, other)
        if found is True or found is False:
            return found
        raise deciding.inconclusive("comparison of symbolic dimensions", f"{self} {symbol} {other}", found.difference)

    def __bool__(self) -> bool:
        lower, upper = bounds(self)
        if lower > 0 or upper < 0:
            return True
        raise deciding.inconclusive("truth value of a symbolic dimension", f"{self} != 0", self - 1)

    def __int__(self) -> int:
        raise InconclusiveDimensionOperation(
            "conversion of a symbolic dimension to int",
            expected="a size that is known while tracing",
            got=str(self),
            mend="use the dimension itself in shapes and arithmetic; phalanx.numpy.asarray makes it an array",
        )

    __float__ = __complex__ = __int__

    def refresh(self) -> None:
        """Forget bounds that rested on older bounds of the variables."""
        self._bounds, self.cheap = None, _interval(self)

    __copy__ = lambda self: self
    __deepcopy__ = lambda self, memo: self

    def __reduce__(self) -> Any:
        raise TypeError(f"symbolic dimension {self} belongs to a scope of this process and cannot be pickled")

    @property
    def variables(self) -> frozenset[str]:
        """Names of the variables that the size depends on."""
        names: set[str] = set()
        for factor in factors_of(self):
            names.update(*(x.variables for x in factor.operands if type(x) is Dim))
            names.update(() if factor.operands else (factor.name,))
        return frozenset(names)

    def __repr__(self) -> str:
        if self._text is None:
            self._text = faces.printed(self)
        return self._text


def only_factor(x: Any) -> Factor | None:
    """The factor that a dimension is, if it is no more than that."""
    if type(x) is not Dim or len(x.terms) != 1:
        return None
    ((monomial, coefficient),) = x.terms
    return monomial.factors[0][0] if coefficient == monomial.degree == 1 else None


def factors_of(x: Dim) -> Iterator[Factor]:
    """The factors of a dimension's terms, each as often as it stands there."""
    return (factor for monomial, _ in x.terms for factor, _ in monomial.factors)


# How polynomials are put together.


def _operand(x: Any) -> Any:
    """`x` as an int or Dim, or None if it is neither."""
    if type(x) is int or type(x) is Dim:
        return x
    try:
        return operator.index(x)
    except TypeError:
        return None


def _with_number(x: Dim, operation: Any, y: Any) -> Any:
    """Arithmetic with what is no size: numbers and NumPy data meet the dimension as an array."""
    if isinstance(y, float | complex | np.ndarray | np.generic):
        return operation(arrays.value(x), y)
    return NotImplemented


def terms_of(x: Any, scope: Scope) -> Terms:
    """The terms of an int or a Dim."""
    return x.terms if type(x) is Dim else ((scope.one, x),) if x else ()


def _dim(terms: Mapping[Monomial, int], scope: Scope) -> Any:
    """The int or the interned Dim that has these terms."""
    if scope.multiples:
        terms = _divided(terms, scope)
    key = frozenset(item for item in terms.items() if item[1])
    found = scope.dims.get(key)
    if found is None:
        found = scope.dims[key] = _new_dim(key, scope)
    return found


def _new_dim(terms: frozenset, scope: Scope) -> Any:
    if not terms:
        return 0
    if len(terms) == 1:
        ((monomial, coefficient),) = terms
        if not monomial.factors:
            return coefficient
    if len(terms) > MAX_TERMS:
        raise _too_large(f"{len(terms)} terms")
    self = object.__new__(Dim)
    self.scope, self.terms = scope, tuple(sorted(terms, key=lambda term: term[0].order))
    self._bounds = self._text = None
    self.cheap = lower, upper = _interval(self)
    return int(lower) if lower == upper else self


def _too_large(got: str) -> ArgumentError:
    return ArgumentError(
        "arithmetic on symbolic dimensions",
        expected=f"polynomials of at most {MAX_TERMS} terms and powers up to 64",
        got=got,
        mend="give the intermediate sizes variables of their own",
    )


def _divided(terms: Mapping[Monomial, int], scope: Scope) -> Mapping[Monomial, int]:
    """The terms with d*floordiv(x, d) replaced by x wherever d is known to divide x."""
    changed = True
    while changed:
        changed = False
        for monomial, coefficient in terms.items():
            for factor, _ in monomial.factors:
                x, divisor = scope.multiples.get(factor, (None, 1))
                if x is None or coefficient % divisor or not coefficient:
                    continue
                rest = _less(monomial, factor, scope)
                grown = defaultdict(int, terms)
                del grown[monomial]
                for other, c in x.terms:
                    grown[_times(other, rest, scope)] += c * (coefficient // divisor)
                terms, changed = grown, True
                break
            if changed:
                break
    return terms


def _is_zero(x: Any) -> bool:
    return type(x) is int and x == 0


def _check_scope(x: Dim, y: Any) -> None:
    if type(y) is Dim and x.scope is not y.scope:
        raise ArgumentError(
            "arithmetic on symbolic dimensions",
            expected="variables of one scope",
            got=f"{x} and {y}, of two scopes",
            mend="make all symbolic shapes of a program with one call or one scope: "
            "symbolic_shape('b, 2*b'), or symbolic_shape('b', scope=scope)",
        )


def _sum(x: Dim, y: Any) -> Any:
    _check_scope(x, y)
    terms = dict(x.terms)
    for monomial, coefficient in terms_of(y, x.scope):
        terms[monomial] = terms.get(monomial, 0) + coefficient
    return _dim(terms, x.scope)


def _difference(x: Dim, y: Any) -> Any:
    _check_scope(x, y)
    terms = dict(x.terms)
    for monomial, coefficient in terms_of(y, x.scope):
        terms[monomial] = terms.get(monomial, 0) - coefficient
    return _dim(terms, x.scope)


def _multiply(x: Dim, y: Any) -> Any:
    _check_scope(x, y)
    if len(x.terms) * len(terms_of(y, x.scope)) > 16 * MAX_TERMS:
        raise _too_large(f"a product of {len(x.terms)} and {len(y.terms)} terms")
    terms: dict[Monomial, int] = defaultdict(int)
    for mine, a in x.terms:
        for theirs, b in terms_of(y, x.scope):
            terms[_times(mine, theirs, x.scope)] += a * b
    return _dim(terms, x.scope)


def factor_dim(factor: Factor) -> Any:
    """The dimension that is just this factor."""
    return _dim({_monomial([(factor, 1)], factor.scope): 1}, factor.scope)


def _monomial(factors: Iterable[tuple[Factor, int]], scope: Scope) -> Monomial:
    kept = tuple(sorted(((f, p) for f, p in factors if p), key=lambda item: item[0].order))
    found = scope.monomials.get(kept)
    if found is None:
        found = scope.monomials[kept] = Monomial(kept)
        if found.degree > 64:
            raise _too_large(str(found))
    return found


def _less(monomial: Monomial, factor: Factor, scope: Scope) -> Monomial:
    """The monomial with one power less of a factor."""
    return _monomial([(f, p - (f is factor)) for f, p in monomial.factors], scope)


def _times(x: Monomial, y: Monomial, scope: Scope) -> Monomial:
    if not x.factors or not y.factors:
        return x if x.factors else y
    powers = dict(x.factors)
    for factor, power in y.factors:
        powers[factor] = powers.get(factor, 0) + power
    return _monomial(powers.items(), scope)


def operation(name: str, operands: tuple, scope: Scope, lower: float, upper: float) -> Any:
    """The dimension `name(*operands)`, kept whole, whose size is known to lie between `lower` and `upper`."""
    key = (name, operands)
    factor = scope.factors.get(key)
    if factor is None:
        factor = scope.factors[key] = Factor(name, operands, scope, lower, upper)
    return factor_dim(factor)


def scope_of(*xs: Any) -> Scope:
    """The scope that these share, at least one of which is a Dim."""
    first = next(x for x in xs if type(x) is Dim)
    for x in xs:
        _check_scope(first, x)
    return first.scope


# Division.


def _mod(x: Any, y: Any) -> Any:
    result = x - y * _floordiv(x, y)
    if type(result) is Dim and type(y) is int:
        # What the polynomial does not show.
        low, high = (0, y - 1) if y > 0 else (y + 1, 0)
        result.cheap = max(result.cheap[0], low), min(result.cheap[1], high)
    return result


def _floordiv(x: Any, y: Any) -> Any:
    """The quotient of Python's floor division, simplified where that is exact."""
    if _is_zero(y):
        raise ZeroDivisionError(f"division of symbolic dimension {x} by zero")
    if type(x) is not Dim and type(y) is not Dim:
        return x // y
    scope = scope_of(x, y)
    low, high = bounds(y)
    if low <= 0 <= high:
        raise deciding.inconclusive("division of symbolic dimensions", f"whether {y} is 0 in floordiv({x}, {y})", y - 1)
    return _floordiv(-x, -y) if low < 0 else _quotient(x, y, scope)


def _quotient(x: Any, y: Any, scope: Scope) -> Any:
    """The quotient for a divisor that is positive."""
    if type(y) is int:
        quotient, rest, y = _divided_by_number(x, y, scope)
    elif (shared := _without_common(x, y, scope)) is not None:
        return _floordiv(*shared)
    else:
        quotient, rest = long_division(x, y, scope)
    if _is_zero(rest):
        return quotient
    rest_low, rest_high = bounds(rest)
    if rest_low >= 0 and bounds(y - rest)[0] > 0:
        return quotient
    if type(y) is int and rest_low > -_INF and rest_low // y == rest_high // y:
        return quotient + int(rest_low // y)
    if type(y) is int and (exact := _exact_quotient(rest, y, scope)) is not None:
        return quotient + exact
    rest, y = _merged(rest, y)
    return quotient + operation("floordiv", (rest, y), scope, *_quotient_bounds(bounds(rest), bounds(y)))


def _exact_quotient(x: Any, y: int, scope: Scope) -> Any:
    """x / y where the known divisors of variables make it exact term by term, else None."""
    total: Any = 0
    for monomial, coefficient in terms_of(x, scope):
        if coefficient % y == 0:
            total = total + _dim({monomial: coefficient // y}, scope)
            continue
        for factor, _ in monomial.factors:
            divisor = scope.divisors.get(factor, 1)
            if coefficient * divisor % y == 0:
                rest = _less(monomial, factor, scope)
                whole = scope.factors["floordiv", (factor_dim(factor), divisor)]
                total = total + factor_dim(whole) * _dim({rest: coefficient * divisor // y}, scope)
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
    return _dim({rest: c for rest, c in rests if rest is not None}, scope), coefficient


def _divided_by_number(x: Any, y: int, scope: Scope) -> tuple[Any, Any, int]:
    """`x // y` as `quotient + rest // divisor`, whose coefficients are from 0 on and share no factor with it."""
    terms = dict(terms_of(x, scope))
    quotient = _dim({m: c // y for m, c in terms.items()}, scope)
    terms = {m: c % y for m, c in terms.items()}
    constant = terms.pop(scope.one, 0)
    shared = math.gcd(y, *terms.values())
    return quotient, _dim({m: c // shared for m, c in terms.items()}, scope) + constant // shared, y // shared


def _merged(x: Any, y: Any) -> tuple[Any, Any]:
    """floordiv(floordiv(a, m), n) is floordiv(a, m*n), for numbers m and n."""
    if type(x) is Dim and type(y) is int:
        constant = dict(x.terms).get(x.scope.one, 0)
        factor = only_factor(x - constant)
        if factor is not None and factor.name == "floordiv" and type(factor.operands[1]) is int:
            inner, by = factor.operands
            return inner + constant * by, by * y
    return x, y


def _quotient_bounds(x: tuple[float, float], y: tuple[float, float]) -> tuple[float, float]:
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
        term = _dim({monomial: c}, scope)
        shared = _without(monomial, lead, scope)
        tried += 1
        if shared is None or c % coefficient or tried > 64:
            x, rest = x - term, rest + term
        else:
            part = _dim({shared: c // coefficient}, scope)
            x, quotient = x - part * y, quotient + part
    return quotient, rest


def _without(monomial: Monomial, divisor: Monomial, scope: Scope) -> Monomial | None:
    """monomial / divisor, or None where that is no monomial."""
    powers = dict(monomial.factors)
    for factor, power in divisor.factors:
        powers[factor] = powers.get(factor, 0) - power
        if powers[factor] < 0:
            return None
    return _monomial(powers.items(), scope)


# Bounds that cost little, and sizes.


def bounds(x: Any) -> tuple[float, float]:
    """Numbers between which the size `x` lies for all values of its variables; sound, not always tight.

    Args:
      x: an int or a Dim.

    Returns:
      The least and the greatest, which may be infinite.

    Examples:
      >>> b = Scope().variable("b")
      >>> bounds(b * b - b + 3), bounds(b % 3)
      ((3, inf), (0, 2))
    """
    if type(x) is not Dim:
        return x, x
    if x._bounds is None:
        x._bounds = deciding.bounds(x)
    return x._bounds


def _product(x: float, y: float) -> float:
    """x * y, where zero times infinity is zero."""
    return 0 if x == 0 or y == 0 else x * y


def _interval(x: Dim) -> tuple[float, float]:
    """Bounds that cost little: those of the terms added up, and those of `_shifted_bounds`."""
    lower: float = 0
    upper: float = 0
    for monomial, coefficient in x.terms:
        low, high = monomial.bounds()
        if coefficient < 0:
            low, high = high, low
        lower, upper = lower + _product(coefficient, low), upper + _product(coefficient, high)
    if len(x.terms) == 1 or x.terms[0][0].degree > 4:
        return lower, upper
    low, high = _shifted_bounds(x)
    return max(lower, low), min(upper, high)


def _shifted_bounds(x: Dim) -> tuple[float, float]:
    """Bounds from writing each factor as its least size plus something that is not negative.

    If then all coefficients but the constant are positive, the constant is the least size of the whole; if all
    are negative, the greatest.
    """
    scope = x.scope
    shifted: dict[Monomial, int] = defaultdict(int)
    for monomial, coefficient in x.terms:
        expanded: dict[Monomial, int] = {scope.one: coefficient}
        for factor, power in monomial.factors:
            if not math.isfinite(factor.lower):
                return -_INF, _INF
            single = _monomial([(factor, 1)], scope)
            for _ in range(power):
                grown: dict[Monomial, int] = defaultdict(int)
                for m, c in expanded.items():
                    grown[_times(m, single, scope)] += c
                    grown[m] += c * int(factor.lower)
                expanded = grown
        for m, c in expanded.items():
            shifted[m] += c
    constant = shifted.pop(scope.one, 0)
    lower = constant if all(c >= 0 for c in shifted.values()) else -_INF
    upper = constant if all(c <= 0 for c in shifted.values()) else _INF
    return lower, upper


def evaluate(dim: Any, values: Mapping[str, Any]) -> Any:
    """The size of a dimension, given those of its variables.

    Args:
      dim: an int or a Dim.
      values: a number or a dimension for each variable.

    Returns:
      The number or dimension.

    Raises:
      ArgumentError: a variable has no value.
    """
    if type(dim) is not Dim:
        return dim
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
            mend="give a size for each variable",
        ) from None
    return total
