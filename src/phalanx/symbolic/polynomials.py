"""Polynomials: symbolic dimensions and their arithmetic.

A dimension is an `int` or a `Dim`. A `Dim` is an interned polynomial with integer coefficients, whose factors are
variables or the operations `floordiv`, `max` and `min` of other dimensions, kept whole; `mod(x, y)` is written as
`x - y*floordiv(x, y)`, so that equal sizes are mostly the same polynomial. Equal polynomials of one scope are one
object: shapes that hold them compare and hash like shapes of ints. `dims` is what other rooms ask; `division` divides,
`deciding` answers comparisons.

An order comparison is answered when it holds, or fails, for all values the variables may take; otherwise it raises
`InconclusiveDimensionOperation`. Equality is always answered: True says that the sizes are the same for all values,
False that this is not known, as for a shape of which one does not know that it is (1,). Different polynomials can be
equal, as `max(a, b) + min(a, b)` and `a + b` are. So the hash of a dimension is its size for one choice of the
variables (`Scope.sample`): what differs there is not equal, and only the rest is asked of `deciding`.
"""

from __future__ import annotations

import functools
import math
import operator
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np

from phalanx.engine.errors import ArgumentError, InconclusiveDimensionOperation
from phalanx.engine.seat import Seat

_INF: Final = math.inf
RESERVED: Final = ("floordiv", "mod", "max", "min", "non_negative")
MAX_TERMS: Final = 1000  # Larger polynomials are refused: no shape has them, and artifacts may not make us build them.
MAX_TEXT: Final = 20_000  # The text of an operation, which may double with each operation in another: the same holds.

# bounds(dim): the least and the greatest size; compare(dim, symbol, other), inconclusive(where, question, difference);
# satisfied(scope, values): the values moved to where the facts of the scope hold.
deciding = Seat(taken_by="phalanx.symbolic.deciding")
# floordiv(x, y), mod(x, y); divided_by_number(x, y, scope), quotient_bounds(x, y) of intervals.
division = Seat(taken_by="phalanx.symbolic.division")
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
        self.sampled: dict[str, int] = {}  # sizes of variables, for hashes
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

    def sample(self, name: str) -> int:
        """The size of a variable for which dimensions are hashed, one that the facts allow as far as that is found."""
        found = self.sampled.get(name)
        if found is None:
            if self.facts and not self.sampled:
                names = {v for fact in self.facts for v in fact.dim.variables}
                self.sampled = deciding.satisfied(self, {v: self.factors[v].sample() for v in names})
            found = self.sampled[name] = self.sampled.get(name) or self.factors[name].sample()
        return found

    def settle(self) -> None:
        """Work out anew all that rests on what is known, which is complete now: hashes and bounds that cost little."""
        self.sampled.clear()
        self.results.clear()
        for dim in self.dims.values():
            if type(dim) is Dim:
                dim._bounds, dim._hash, dim.cheap = None, None, _interval(dim)

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
        _, rest, divisor = division.divided_by_number(x, divisor, self)
        if type(rest) is not Dim:
            return
        factor = only_factor(rest)
        if factor is not None:
            divisor = self.divisors[factor] = math.lcm(divisor, self.divisors.get(factor, 1))
            self.tighten(factor, factor.lower, factor.upper)
        ends = division.quotient_bounds(bounds(rest), (divisor, divisor))
        quotient = operation("floordiv", (rest, divisor), self, *ends)
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
        texts = tuple(map(str, operands))
        if sum(map(len, texts)) > MAX_TEXT:
            raise _too_large(f"{name} of operands of {sum(map(len, texts))} characters")
        self.order = (len(operands), name, texts)

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.operands))})" if self.operands else self.name

    def sample(self) -> int:
        """Some size of a variable, unlike those of others."""
        divisor = self.scope.divisors.get(self, 1)
        width = min(self.upper - self.lower, 1 << 20)
        return int(self.lower) + crc32(self.name.encode()) % (int(width) // divisor + 1) * divisor

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

    __slots__ = ("degree", "factors", "is_plain", "order")

    def __init__(self, factors: tuple[tuple[Factor, int], ...]) -> None:
        self.factors = factors
        self.degree = sum([power for _, power in factors])
        self.order = (-self.degree, [(factor.order, -power) for factor, power in factors])
        self.is_plain = not factors or (self.degree == 1 and not factors[0][0].operands)  # a variable or 1

    def __repr__(self) -> str:
        return "*".join(f"{factor}^{power}" if power > 1 else str(factor) for factor, power in self.factors)

    def bounds(self) -> tuple[float, float]:
        """Numbers between which the product lies, from those of the factors."""
        if self.degree == 1:
            factor = self.factors[0][0]
            return factor.lower, factor.upper
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
      >>> b >= 1, b == 1, b + b is 2 * b, 4 * (b // 4) + b % 4 == b, -(-b // 2) == (b + 1) // 2
      (True, False, True, True, True)
    """

    __slots__ = ("__weakref__", "_bounds", "_hash", "_text", "cheap", "key", "scope", "terms")

    is_symbolic_dim = True
    __array_ufunc__ = None  # NumPy integers on the left leave arithmetic to us

    scope: Scope
    terms: Terms
    key: frozenset  # the terms: what distinguishes polynomials, where dimensions may be equal without being the same
    cheap: tuple[float, float]
    _text: str | None
    _hash: int | None
    _bounds: tuple[float, float] | None

    # Arithmetic. Each result that has no variables is an int again.

    def __add__(self, other: Any) -> Any:
        if type(other) is not int and type(other) is not Dim:
            if (size := _operand(other)) is None:
                return _with_number(self, operator.add, other)
            other = size
        results = self.scope.results
        key = self.key, other.key if type(other) is Dim else other
        found = results.get(key)
        if found is None:
            found = results[key] = _sum(self, other)
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
        return NotImplemented if other is None else self._remembered("//", other, division.floordiv)

    def __rfloordiv__(self, other: Any) -> Any:
        other = _operand(other)
        return NotImplemented if other is None else division.floordiv(other, self)

    def __mod__(self, other: Any) -> Any:
        other = _operand(other)
        return NotImplemented if other is None else self._remembered("%", other, division.mod)

    def __rmod__(self, other: Any) -> Any:
        other = _operand(other)
        return NotImplemented if other is None else division.mod(other, self)

    def __divmod__(self, other: Any) -> Any:
        return NotImplemented if _operand(other) is None else (self // other, self % other)

    def __rdivmod__(self, other: Any) -> Any:
        return NotImplemented if _operand(other) is None else (other // self, other % self)

    def _remembered(self, name: str, other: Any, compute: Any) -> Any:
        results = self.scope.results
        key = name, self.key, other.key if type(other) is Dim else other
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

    # Equality and order.

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = _hash(self)
        return self._hash

    def __eq__(self, other: Any) -> bool:
        if self is other:
            return True
        if type(other) is not int and type(other) is not Dim and (other := _operand(other)) is None:
            return NotImplemented
        if hash(self) != hash(other) or (type(other) is Dim and other.scope is not self.scope):
            return False
        return bounds(_difference(self, other)) == (0, 0)

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
        key = symbol, self.key, other.key if type(other) is Dim else other
        found = results.get(key)
        if found is None:
            _check_scope(self, other)
            found = results[key] = deciding.compare(self, symbol, other)
        if found is True or found is False:
            return found
        raise deciding.inconclusive("comparison of symbolic dimensions", f"{self} {symbol} {other}", found.difference)

    def __bool__(self) -> bool:
        lower, upper = bounds(self)
        if lower > 0 or upper < 0 or lower == upper:
            return lower != 0
        raise deciding.inconclusive("truth value of a symbolic dimension", f"{self} != 0", self - 1)

    def __int__(self) -> int:
        raise InconclusiveDimensionOperation(
            "conversion of a symbolic dimension to int",
            expected="a size that is known while tracing",
            got=str(self),
            mend="use the dimension itself in shapes and arithmetic; phalanx.numpy.asarray makes it an array",
        )

    __index__ = __float__ = __complex__ = __int__

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


def dim_of(terms: Mapping[Monomial, int], scope: Scope) -> Any:
    """The int or the interned Dim that has these terms."""
    if scope.multiples:
        terms = _divided(terms, scope)
    key = frozenset([item for item in terms.items() if item[1]])
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
    self.scope, self.key = scope, terms
    self.terms = tuple(sorted(terms, key=_order_of_term) if len(terms) > 1 else terms)
    self._bounds = self._text = self._hash = None
    self.cheap = lower, upper = _interval(self)
    return int(lower) if lower == upper else self


def _too_large(got: str) -> ArgumentError:
    return ArgumentError(
        "arithmetic on symbolic dimensions",
        expected=f"polynomials of at most {MAX_TERMS} terms and powers up to 64, "
        f"of operations of at most {MAX_TEXT} characters",
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
                rest = less(monomial, factor, scope)
                grown = defaultdict(int, terms)
                del grown[monomial]
                for other, c in x.terms:
                    grown[_times(other, rest, scope)] += c * (coefficient // divisor)
                terms, changed = grown, True
                break
            if changed:
                break
    return terms


def key_of(x: Any) -> Any:
    """By what an int or a Dim is remembered within its scope."""
    return x.key if type(x) is Dim else x


def is_zero(x: Any) -> bool:
    """Whether it is the int 0."""
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
    return dim_of(terms, x.scope)


def _difference(x: Dim, y: Any) -> Any:
    _check_scope(x, y)
    terms = dict(x.terms)
    for monomial, coefficient in terms_of(y, x.scope):
        terms[monomial] = terms.get(monomial, 0) - coefficient
    return dim_of(terms, x.scope)


def _multiply(x: Dim, y: Any) -> Any:
    _check_scope(x, y)
    if len(x.terms) * len(terms_of(y, x.scope)) > 16 * MAX_TERMS:
        raise _too_large(f"a product of {len(x.terms)} and {len(y.terms)} terms")
    terms: dict[Monomial, int] = defaultdict(int)
    for mine, a in x.terms:
        for theirs, b in terms_of(y, x.scope):
            terms[_times(mine, theirs, x.scope)] += a * b
    return dim_of(terms, x.scope)


def _hash(x: Dim) -> int:
    try:
        return hash(evaluate(x, {name: x.scope.sample(name) for name in x.variables}))
    except ZeroDivisionError:  # the divisor is known not to be 0 by a fact that is younger than the sample
        return 0


def factor_dim(factor: Factor) -> Any:
    """The dimension that is just this factor."""
    return dim_of({monomial_of([(factor, 1)], factor.scope): 1}, factor.scope)


def _order_of_power(item: tuple[Factor, int]) -> Any:
    return item[0].order


def _order_of_term(term: tuple[Monomial, int]) -> Any:
    return term[0].order


def monomial_of(factors: Iterable[tuple[Factor, int]], scope: Scope) -> Monomial:
    """The interned product of these powers of factors."""
    kept = tuple([item for item in factors if item[1]])
    if len(kept) > 1:
        kept = tuple(sorted(kept, key=_order_of_power))
    found = scope.monomials.get(kept)
    if found is None:
        found = scope.monomials[kept] = Monomial(kept)
        if found.degree > 64:
            raise _too_large(str(found))
    return found


def less(monomial: Monomial, factor: Factor, scope: Scope) -> Monomial:
    """The monomial with one power less of a factor."""
    return monomial_of([(f, p - (f is factor)) for f, p in monomial.factors], scope)


def _times(x: Monomial, y: Monomial, scope: Scope) -> Monomial:
    if not x.factors or not y.factors:
        return x if x.factors else y
    powers = dict(x.factors)
    for factor, power in y.factors:
        powers[factor] = powers.get(factor, 0) + power
    return monomial_of(powers.items(), scope)


def operation(name: str, operands: tuple, scope: Scope, lower: float, upper: float) -> Any:
    """The dimension `name(*operands)`, kept whole, whose size is known to lie between `lower` and `upper`."""
    key = name, tuple(map(key_of, operands))
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
        x._bounds = x.cheap  # for questions about `x` that come up on the way
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
        lower += coefficient * low if low else 0  # zero times infinity is zero
        upper += coefficient * high if high else 0
    if len(x.terms) == 1 or not 1 < x.terms[0][0].degree <= 4:
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
            single = monomial_of([(factor, 1)], scope)
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
