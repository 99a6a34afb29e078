"""Symbolic dimensions: sizes that are polynomials in variables, with sound comparison.

A dimension is an `int` or a `Dim`. A `Dim` is an interned polynomial with integer coefficients, whose factors are
variables or the operations `floordiv`, `mod`, `max` and `min` of other dimensions, kept whole. Two equal polynomials
are one object, so that shapes that hold them compare and hash like shapes of ints. Built on `core.errors`; type rules
in `lax` divide, compare and multiply dimensions by the functions at the end, which also take ints.

An order comparison is answered when it holds, or fails, for all values the variables may take; otherwise it raises
`InconclusiveDimensionOperation`. Equality is of polynomials, hence always answered: `b == 1` is False, as for a shape
of which one does not know that it is (1,).
"""

from __future__ import annotations

import math
import operator
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from phalanx.core.errors import ArgumentError, InconclusiveDimensionOperation

_INF: Final = math.inf

# A monomial is a sorted tuple of (factor, power); a polynomial a sorted tuple of (monomial, coefficient).
Monomial = tuple[tuple["Factor", int], ...]
Terms = tuple[tuple[Monomial, int], ...]


class Scope:
    """Where variables live, with the sizes they may take; variables of two scopes do not mix.

    Args:
      **bounds: for a variable its least and greatest size; None leaves a side as it is (at least 1, no greatest).

    Examples:
      >>> scope = Scope(b=(0, 8))
      >>> scope.variable("b") <= 8
      True
    """

    def __init__(self, **bounds: tuple[int | None, int | None]) -> None:
        self._bounds = {n: (1 if lo is None else lo, _INF if hi is None else hi) for n, (lo, hi) in bounds.items()}
        self._variables: dict[str, Factor] = {}
        for name, (lower, upper) in self._bounds.items():
            if not 0 <= lower <= upper:
                raise ArgumentError(
                    f"Scope, bounds of {name}",
                    expected="0 <= least <= greatest",
                    got=f"({lower}, {upper})",
                    mend="give sizes that an array can have",
                )

    def variable(self, name: str) -> Dim:
        """Return the dimension that is the variable `name` of this scope."""
        if not name.isidentifier():
            raise ArgumentError("symbolic dimension", expected="an identifier", got=repr(name), mend="rename it")
        factor = self._variables.get(name)
        if factor is None:
            factor = self._variables[name] = Factor(name, (), self, *self._bounds.get(name, (1, _INF)))
        return _of_factor(factor)


class Factor:
    """What polynomials are made of: a variable, or an operation that is kept whole."""

    __slots__ = ("__weakref__", "lower", "name", "operands", "scope", "sort_key", "upper")

    def __init__(self, name: str, operands: tuple[Any, ...], scope: Scope, lower: float, upper: float) -> None:
        self.name = name
        self.operands = operands
        self.scope = scope
        self.lower = lower
        self.upper = upper
        self.sort_key = (len(operands), name, tuple(map(str, operands)))

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.operands))})" if self.operands else self.name

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Return the size, given those of the variables."""
        if not self.operands:
            return values[self.name]
        return _OPERATIONS[self.name](*(evaluate(x, values) for x in self.operands))


_OPERATIONS: Final[dict[str, Callable[..., Any]]] = {
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "max": max,
    "min": min,
}
_operation_factors: weakref.WeakValueDictionary[tuple[Any, ...], Factor] = weakref.WeakValueDictionary()
_interned: weakref.WeakValueDictionary[Terms, Dim] = weakref.WeakValueDictionary()


class Dim:
    """A symbolic dimension; made by `symbolic_shape`, `Scope.variable` and arithmetic.

    Examples:
      >>> (b,) = symbolic_shape("b")
      >>> (b + 1) * 2 - 2, (b + 1) * (b - 1), (6 * b + 3) // 3
      (2*b, b^2 - 1, 2*b + 1)
      >>> b >= 1, b == 1, b + b is 2 * b
      (True, False, True)
    """

    __slots__ = ("__weakref__", "_bounds", "_text", "terms")

    is_symbolic_dim = True
    __array_ufunc__ = None  # NumPy integers on the left leave arithmetic to us

    terms: Terms
    _text: str
    _bounds: tuple[float, float] | None

    # Arithmetic. Each result that has no variables is an int again.

    def __add__(self, other: Any) -> Any:
        other = _operand(other)
        if other is None:
            return NotImplemented
        terms = Counter(dict(self.terms))
        for monomial, coefficient in _terms(other):
            terms[monomial] += coefficient
        return _dim(terms)

    __radd__ = __add__

    def __neg__(self) -> Any:
        return self * -1

    def __pos__(self) -> Dim:
        return self

    def __sub__(self, other: Any) -> Any:
        other = _operand(other)
        return NotImplemented if other is None else self + -other

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __mul__(self, other: Any) -> Any:
        other = _operand(other)
        if other is None:
            return NotImplemented
        terms: Counter[Monomial] = Counter()
        for mine, a in self.terms:
            for theirs, b in _terms(other):
                terms[_times(mine, theirs)] += a * b
        return _dim(terms)

    __rmul__ = __mul__

    def __pow__(self, power: Any) -> Any:
        if not isinstance(power, int) or power < 0:
            return NotImplemented
        return math.prod([self] * power)

    def __floordiv__(self, other: Any) -> Any:
        other = _operand(other)
        return NotImplemented if other is None else _divmod(self, other)[0]

    def __rfloordiv__(self, other: Any) -> Any:
        other = _operand(other)
        return NotImplemented if other is None else _divmod(other, self)[0]

    def __mod__(self, other: Any) -> Any:
        other = _operand(other)
        return NotImplemented if other is None else _divmod(self, other)[1]

    def __rmod__(self, other: Any) -> Any:
        other = _operand(other)
        return NotImplemented if other is None else _divmod(other, self)[1]

    def __divmod__(self, other: Any) -> Any:
        other = _operand(other)
        return NotImplemented if other is None else _divmod(self, other)

    def __rdivmod__(self, other: Any) -> Any:
        other = _operand(other)
        return NotImplemented if other is None else _divmod(other, self)

    # Order. Equality is identity, which interning makes equality of polynomials.

    def __ge__(self, other: Any) -> bool:
        return _is_non_negative(self - other, self, ">=", other) if _operand(other) is not None else NotImplemented

    def __le__(self, other: Any) -> bool:
        return _is_non_negative(other - self, self, "<=", other) if _operand(other) is not None else NotImplemented

    def __gt__(self, other: Any) -> bool:
        return _is_non_negative(self - other - 1, self, ">", other) if _operand(other) is not None else NotImplemented

    def __lt__(self, other: Any) -> bool:
        return _is_non_negative(other - self - 1, self, "<", other) if _operand(other) is not None else NotImplemented

    def __bool__(self) -> bool:
        lower, upper = bounds(self)
        if lower > 0 or upper < 0:
            return True
        raise _inconclusive("truth value of a symbolic dimension", f"{self} != 0")

    def __int__(self) -> int:
        raise _inconclusive("conversion of a symbolic dimension to int", f"the size of {self}")

    __float__ = __int__

    def __copy__(self) -> Dim:
        return self

    def __deepcopy__(self, memo: Any) -> Dim:
        return self

    def __reduce__(self) -> Any:
        raise TypeError(f"symbolic dimension {self} belongs to a scope of this process and cannot be pickled")

    @property
    def scope(self) -> Scope:
        """The scope of the variables."""
        return next(factor.scope for monomial, _ in self.terms for factor, _ in monomial)

    @property
    def variables(self) -> frozenset[str]:
        """Names of the variables that the size depends on."""
        names: set[str] = set()
        for monomial, _ in self.terms:
            for factor, _ in monomial:
                names.update(*(x.variables for x in factor.operands if type(x) is Dim))
                names.update(() if factor.operands else (factor.name,))
        return frozenset(names)

    def __repr__(self) -> str:
        return self._text


# How polynomials are put together.


def _operand(x: Any) -> Any:
    """Return `x` as an int or Dim, or None if it is neither."""
    if type(x) is int or type(x) is Dim:
        return x
    try:
        return operator.index(x)
    except TypeError:
        return None


def _terms(x: Any) -> Terms:
    return x.terms if type(x) is Dim else (((), x),) if x else ()


def _order(term: tuple[Monomial, int]) -> Any:
    """Sort key of terms: higher degrees first, then by name."""
    monomial = term[0]
    return -sum(power for _, power in monomial), [(factor.sort_key, -power) for factor, power in monomial]


def _dim(terms: Mapping[Monomial, int]) -> Any:
    """Return the int or the interned Dim that has these terms."""
    kept = sorted(((m, c) for m, c in terms.items() if c), key=_order)
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    key = tuple(kept)
    found = _interned.get(key)
    if found is None:
        scopes = {id(factor.scope) for monomial, _ in key for factor, _ in monomial}
        found = object.__new__(Dim)
        found.terms, found._bounds, found._text = key, None, _printed(key)
        if len(scopes) > 1:
            raise ArgumentError(
                "arithmetic on symbolic dimensions",
                expected="variables of one scope",
                got=f"{found._text}, with variables of {len(scopes)}",
                mend="make all symbolic shapes of a program with one call or one scope: "
                "symbolic_shape('b, 2*b'), or symbolic_shape('b', scope=scope)",
            )
        found = _interned.setdefault(key, found)
    return found


def _of_factor(factor: Factor) -> Dim:
    return _dim({((factor, 1),): 1})


def _times(x: Monomial, y: Monomial) -> Monomial:
    powers = Counter(dict(x))
    powers.update(dict(y))
    return tuple(sorted(powers.items(), key=lambda item: item[0].sort_key))


def _printed(terms: Terms) -> str:
    """Return the text of a polynomial, which `symbolic_shape` reads back."""
    parts: list[str] = []
    for monomial, coefficient in terms:
        factors = [f"{factor}^{power}" if power > 1 else str(factor) for factor, power in monomial]
        size = abs(coefficient)
        text = "*".join(([str(size)] if size != 1 or not factors else []) + factors)
        sign = "-" if coefficient < 0 else "+"
        parts.append(f" {sign} {text}" if parts else f"-{text}" if coefficient < 0 else text)
    return "".join(parts)


def _operation(name: str, x: Any, y: Any, lower: float, upper: float) -> Dim:
    """Return the dimension `name(x, y)`, kept whole, whose size is known to lie between `lower` and `upper`."""
    scope = (x if type(x) is Dim else y).scope
    key = (name, x, y, scope)
    factor = _operation_factors.get(key)
    if factor is None:
        factor = _operation_factors.setdefault(key, Factor(name, (x, y), scope, lower, upper))
    return _of_factor(factor)


def _divmod(x: Any, y: Any) -> tuple[Any, Any]:
    """Return quotient and remainder of Python's floor division, simplified where that is exact."""
    if y == 0:
        raise ZeroDivisionError(f"division of symbolic dimension {x} by zero")
    if not (type(x) is Dim or type(y) is Dim):
        return divmod(x, y)
    quotient, rest = _long_division(x, y)
    if type(rest) is not Dim and type(y) is not Dim:
        return quotient + rest // y, rest % y
    low, high = bounds(y)
    rest_low, rest_high = bounds(rest)
    if low > 0 and rest_low >= 0 and bounds(y - rest)[0] > 0:
        return quotient, rest
    if low <= 0 <= high:
        raise _inconclusive("division of symbolic dimensions", f"whether {y} is 0 in floordiv({x}, {y})")
    if low < 0:
        return quotient + _operation("floordiv", rest, y, -_INF, _INF), _operation("mod", rest, y, low + 1, 0)
    ends = [_floor_div(end, divisor) for end in (rest_low, rest_high) for divisor in (low, high)]
    floordiv = _operation("floordiv", rest, y, min(ends), max(ends))
    return quotient + floordiv, _operation("mod", rest, y, 0, high - 1)


def _floor_div(x: float, y: float) -> float:
    """Return floor(x / y) for a positive y, either of which may be infinite."""
    if math.isinf(y):
        return (0 if x >= 0 else -1) if math.isfinite(x) else (_INF if x > 0 else -_INF)
    return x if math.isinf(x) else x // y


def _long_division(x: Any, y: Any) -> tuple[Any, Any]:
    """Return q and r with x = q*y + r, by dividing terms of x by the leading term of y while that is exact."""
    (lead, coefficient), quotient, rest = _terms(y)[0], 0, 0
    tried = 0
    while type(x) is Dim or x:
        monomial, c = _terms(x)[0]
        term = _dim({monomial: c})
        shared = _without(monomial, lead)
        tried += 1
        if shared is None or c % coefficient or tried > 64:
            x, rest = x - term, rest + term
        else:
            part = _dim({shared: c // coefficient})
            x, quotient = x - part * y, quotient + part
    return quotient, rest


def _without(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """Return monomial / divisor, or None where that is no monomial."""
    powers = Counter(dict(monomial))
    powers.subtract(dict(divisor))
    if any(power < 0 for power in powers.values()):
        return None
    return tuple(sorted(((f, p) for f, p in powers.items() if p), key=lambda item: item[0].sort_key))


# Bounds, and the comparison that rests on them.


def bounds(x: Any) -> tuple[float, float]:
    """Return numbers between which the size `x` lies for all values of its variables; sound, not always tight.

    Args:
      x: an int or a Dim.

    Returns:
      The least and the greatest, which may be infinite.

    Examples:
      >>> (b,) = symbolic_shape("b")
      >>> bounds(b * b - b + 3)
      (3, inf)
    """
    if type(x) is not Dim:
        return x, x
    if x._bounds is None:
        lower: float = 0
        upper: float = 0
        for monomial, coefficient in x.terms:
            low, high = _monomial_bounds(monomial)
            ends = [_product(coefficient, low), _product(coefficient, high)]
            lower, upper = lower + min(ends), upper + max(ends)
        low, high = _shifted_bounds(x)
        x._bounds = max(lower, low), min(upper, high)
    return x._bounds


def _product(x: float, y: float) -> float:
    """Return x * y, where zero times infinity is zero."""
    return 0 if x == 0 or y == 0 else x * y


def _monomial_bounds(monomial: Monomial) -> tuple[float, float]:
    low: float = 1
    high: float = 1
    for factor, power in monomial:
        powers = factor.lower**power, factor.upper**power
        crosses = power % 2 == 0 and factor.lower < 0 < factor.upper
        least, greatest = 0 if crosses else min(powers), max(powers)
        ends = [_product(a, b) for a in (low, high) for b in (least, greatest)]
        low, high = min(ends), max(ends)
    return low, high


def _shifted_bounds(x: Dim) -> tuple[float, float]:
    """Return bounds from writing each factor as its least size plus something that is not negative.

    If then all coefficients but the constant are positive, the constant is the least size of the whole; if all
    are negative, the greatest.
    """
    shifted: dict[Monomial, int] = defaultdict(int)
    for monomial, coefficient in x.terms:
        expanded: dict[Monomial, int] = {(): coefficient}
        for factor, power in monomial:
            if not math.isfinite(factor.lower):
                return -_INF, _INF
            for _ in range(power):
                grown: dict[Monomial, int] = defaultdict(int)
                for m, c in expanded.items():
                    grown[_times(m, ((factor, 1),))] += c
                    grown[m] += c * int(factor.lower)
                expanded = grown
        for m, c in expanded.items():
            shifted[m] += c
    constant = shifted.pop((), 0)
    lower = constant if all(c >= 0 for c in shifted.values()) else -_INF
    upper = constant if all(c <= 0 for c in shifted.values()) else _INF
    return lower, upper


def _is_non_negative(difference: Any, x: Any, symbol: str, y: Any) -> bool:
    lower, upper = bounds(difference)
    if lower >= 0:
        return True
    if upper < 0:
        return False
    raise _inconclusive("comparison of symbolic dimensions", f"{x} {symbol} {y}")


def _inconclusive(where: str, question: str) -> InconclusiveDimensionOperation:
    return InconclusiveDimensionOperation(
        where,
        expected="an answer that is the same for all values of the variables",
        got=question,
        mend="give the variables bounds that decide it, as in symbolic_shape('b', scope=Scope(b=(8, None)))",
    )


# Text.


def symbolic_shape(text: str, *, scope: Scope | None = None) -> tuple[Any, ...]:
    """Return the dimensions that `text` spells.

    Args:
      text: dimensions between commas, made of names, ints, `+ - * ^ ( )` and the functions `floordiv`, `mod`, `max`
        and `min`; parentheses around the whole are optional.
      scope: where the variables live; by default a new one in which each is at least 1.

    Returns:
      A tuple of ints and Dims.

    Raises:
      ArgumentError: the text is not such a list.

    Examples:
      >>> symbolic_shape("b, 2*b + 1, (b - 1)*(b + 1), floordiv(b, 2), 8")
      (b, 2*b + 1, b^2 - 1, floordiv(b, 2), 8)
    """
    return _Reader(text, scope or Scope()).shape()


class _Reader:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text: str, scope: Scope) -> None:
        import re

        self.text = text
        self.scope = scope
        self.tokens = re.findall(r"\d+|[A-Za-z_]\w*|\S", text)
        self.at = 0

    def shape(self) -> tuple[Any, ...]:
        closing = self._wraps_all() and self.take("(")
        dims = []
        while self.peek() not in ("", ")"):
            dims.append(self.sum())
            if not self.take(","):
                break
        if closing:
            self.want(")")
        if self.peek():
            raise self.wrong("the end of the text")
        return tuple(dims)

    def _wraps_all(self) -> bool:
        """Whether one pair of parentheses holds the whole text."""
        depth = 0
        for i, token in enumerate(self.tokens):
            depth += (token == "(") - (token == ")")
            if depth == 0:
                return token == ")" and i == len(self.tokens) - 1
        return False

    def sum(self) -> Any:
        total = self.product()
        while self.peek() in ("+", "-"):
            total = total + self.product() if self.take("+") else total - (self.take("-") and self.product())
        return total

    def product(self) -> Any:
        negative = self.take("-")
        product = self.power()
        while self.take("*"):
            product = product * self.power()
        return -product if negative else product

    def power(self) -> Any:
        base = self.atom()
        if not self.take("^"):
            return base
        if not self.peek().isdigit():
            raise self.wrong("a whole number as the power")
        return base ** int(self.next())

    def atom(self) -> Any:
        token = self.peek()
        if token.isdigit():
            return int(self.next())
        if token.isidentifier():
            return self.call(self.next())
        if self.take("("):
            inner = self.sum()
            self.want(")")
            return inner
        raise self.wrong("a name, a number or '('")

    def call(self, name: str) -> Any:
        if not self.take("("):
            return self.scope.variable(name)
        if name not in _FUNCTIONS:
            raise self.wrong(f"one of the functions {', '.join(_FUNCTIONS)} before '('")
        x = self.sum()
        self.want(",")
        y = self.sum()
        self.want(")")
        return _FUNCTIONS[name](x, y)

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]

    def take(self, token: str) -> bool:
        found = self.peek() == token
        self.at += found
        return found

    def want(self, token: str) -> None:
        if not self.take(token):
            raise self.wrong(repr(token))

    def wrong(self, expected: str) -> ArgumentError:
        before = " ".join(self.tokens[: self.at])
        return ArgumentError(
            f"symbolic_shape({self.text!r})",
            expected=f"{expected} after {before!r}" if before else f"{expected} at the start",
            got=repr(self.peek()) if self.peek() else "the end",
            mend="write dimensions between commas, as in 'b, 2*b + 1'",
        )


# What type rules ask; each takes ints and Dims.


def is_symbolic(dim: Any) -> bool:
    """Whether `dim` is not a plain int."""
    return type(dim) is Dim


def is_constant_dim(dim: Any) -> bool:
    """Whether `dim` is a plain int."""
    return type(dim) is not Dim


def is_constant_shape(shape: Iterable[Any]) -> bool:
    """Whether all dimensions are plain ints."""
    return all(type(dim) is not Dim for dim in shape)


def same_dim(x: Any, y: Any) -> bool:
    """Whether two dimensions are equal for all values of their variables."""
    return x is y or (type(x) is not Dim and type(y) is not Dim and x == y)


def same_shape(x: tuple[Any, ...], y: tuple[Any, ...]) -> bool:
    """Whether two shapes are equal for all values of their variables."""
    return len(x) == len(y) and all(map(same_dim, x, y))


def size_of(shape: Iterable[Any]) -> Any:
    """Return the number of elements: the product of the dimensions."""
    return math.prod(shape)


def divide_exactly(x: Any, y: Any, where: str = "division of dimensions") -> Any:
    """Return x / y where that leaves no remainder.

    Args:
      x: a dimension, or the number of elements of a shape.
      y: what divides it; 0 / 0 is 0.
      where: the operation, for the error.

    Returns:
      The quotient.

    Raises:
      InconclusiveDimensionOperation: a remainder is possible for some values of the variables.
      ArgumentError: there is a remainder.

    Examples:
      >>> b, c = symbolic_shape("b, c")
      >>> divide_exactly(6 * b * c, 2 * c)
      3*b
    """
    if same_dim(x, y) and not same_dim(x, 0):
        return 1
    if same_dim(y, 0):
        quotient, rest = 0, x
    elif type(x) is Dim or type(y) is Dim:
        quotient, rest = _long_division(x, y)
    else:
        quotient, rest = divmod(x, y)
    if same_dim(rest, 0):
        return quotient
    if is_constant_dim(x) and is_constant_dim(y):
        raise ArgumentError(where, expected=f"a multiple of {y}", got=x, mend="give sizes that divide")
    raise _inconclusive(where, f"whether {y} divides {x}")


def max_dim(x: Any, y: Any) -> Any:
    """Return the greater of two dimensions, kept as `max(x, y)` where that depends on the variables.

    Examples:
      >>> b, c = symbolic_shape("b, c")
      >>> max_dim(b, 1), max_dim(b, c)
      (b, max(b, c))
    """
    return _extreme("max", x, y)


def min_dim(x: Any, y: Any) -> Any:
    """Return the lesser of two dimensions, kept as `min(x, y)` where that depends on the variables."""
    return _extreme("min", x, y)


def _extreme(name: str, x: Any, y: Any) -> Any:
    pick = _OPERATIONS[name]
    if type(x) is not Dim and type(y) is not Dim:
        return pick(x, y)
    lower, upper = bounds(x - y)
    if lower >= 0 or upper <= 0:
        return x if (lower >= 0) == (name == "max") else y
    (x_low, x_high), (y_low, y_high) = bounds(x), bounds(y)
    x, y = sorted((x, y), key=str)
    return _operation(name, x, y, pick(x_low, y_low), pick(x_high, y_high))


_FUNCTIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "max": max_dim,
    "min": min_dim,
}


def dilate(dim: Any, spacing: int) -> Any:
    """Return the size of `dim` elements that stand `spacing` apart: 0 if there are none.

    Examples:
      >>> dilate(4, 3), dilate(0, 3), dilate(symbolic_shape("b")[0], 2)
      (10, 0, 2*b - 1)
    """
    if spacing == 1 or same_dim(dim, 0):
        return dim
    return max_dim(0, 1 + spacing * (dim - 1)) if bounds(dim)[0] < 1 else 1 + spacing * (dim - 1)


def windows(dim: Any, window: Any, stride: Any) -> Any:
    """Return how many windows of size `window`, `stride` apart, fit into `dim` elements.

    Examples:
      >>> windows(10, 3, 2), windows(2, 3, 1), windows(symbolic_shape("b")[0] + 2, 3, 1)
      (4, 0, b)
    """
    return max_dim(0, (dim - window) // stride + 1)


def evaluate(dim: Any, values: Mapping[str, Any]) -> Any:
    """Return the size of a dimension, given those of its variables.

    Args:
      dim: an int or a Dim.
      values: a number for each variable.

    Returns:
      The number.

    Raises:
      ArgumentError: a variable has no value.
    """
    if type(dim) is not Dim:
        return dim
    missing = sorted(dim.variables.difference(values))
    if missing:
        raise ArgumentError(
            f"evaluation of dimension {dim}",
            expected=f"values of {', '.join(missing)}",
            got=f"values of {', '.join(sorted(values)) or 'no variable'}",
            mend="give a size for each variable",
        )
    total: Any = 0
    for monomial, coefficient in dim.terms:
        product: Any = coefficient
        for factor, power in monomial:
            product = product * factor.evaluate(values) ** power
        total = total + product
    return total
