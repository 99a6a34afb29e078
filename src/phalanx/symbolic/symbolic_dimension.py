"""Symbolic dimensions: `Dim`, the scopes of their variables, and facts about these.

Comparisons are answered if they hold, or fail, for all values of the variables; otherwise they raise
`InconclusiveDimensionOperation`. Equality is always answered: True if the sizes are the same for all values, False if
that is not known. Different polynomials may be equal, as `max(a, b) + min(a, b)` and `a + b` are. So the hash of a
dimension is its size for one choice of the variables (`Scope.sample`): sizes with different hashes are not equal, and
`linear_bounds` decides about the others.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from phalanx.engine import ArgumentError, Hook, InconclusiveDimensionOperation
from phalanx.symbolic import linear_bounds
from phalanx.symbolic.dim_division import divide_by_number, floordiv, mod, quotient_bounds
from phalanx.symbolic.dim_extrema import extreme_dim
from phalanx.symbolic.dim_polynomials import (
    MAX_DEGREE,
    Bounds,
    Factor,
    Polynomial,
    Ring,
    Size,
    add_dims,
    apply_opaque,
    as_factor,
    bounds,
    check_same_scope,
    evaluate,
    factor_dim,
    interval,
    multiply_dims,
    too_large_error,
)
from phalanx.symbolic.dim_printing import format_dim

_RESERVED: Final = ("floordiv", "mod", "max", "min", "non_negative")


class DimensionArrays(Protocol):
    """The conversion of dimensions to arrays, where arithmetic mixes the two."""

    def value(self, dim: Any) -> Any:
        """A dimension as a scalar array."""


arrays = Hook[DimensionArrays]("phalanx.lax.shape.dimension_size")


class Fact(NamedTuple):
    """A fact about variables: `dim` is not negative, or, with a divisor, it is a multiple of the divisor.

    Args:
      text: the constraint as the user wrote it.
      dim: a dimension.
      divisor: a positive number, or None.
    """

    text: str
    dim: Any
    divisor: int | None = None

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether the fact is true for these sizes."""
        value = evaluate(self.dim, values)
        return bool(value >= 0 if self.divisor is None else value % self.divisor == 0)


def _operator(
    name: str, compute: Callable[[Any, Any], Any], of_arrays: Callable[[Any, Any], Any] | None = None
) -> Callable[[Any, Any], Any]:
    """An operator of `Dim`.

    Args:
      name: the name under which results are remembered, since traced code repeats its arithmetic for every layer.
      compute: the operation on a dimension and a size.
      of_arrays: the operation with a number or NumPy array, for which the dimension becomes an array.
    """

    def operate(self: Dim, other: Any) -> Any:
        size = _as_size(other)
        if size is None:
            return NotImplemented if of_arrays is None else _combine_with_array(self, of_arrays, other)
        results = self.scope.results
        key = name, self.key, size.key if type(size) is Dim else size
        found = results.get(key)
        if found is None:
            found = results[key] = compute(self, size)
        return found

    return operate


def _comparison(symbol: str) -> Callable[[Any, Any], bool]:
    """A comparison operator of `Dim`."""

    def compare(self: Dim, other: Any) -> bool:
        if type(other) is not int and type(other) is not Dim and (other := _as_size(other)) is None:
            return NotImplemented
        key = symbol, self.key, other.key if type(other) is Dim else other
        found = self.scope.results.get(key)
        if found is None:
            check_same_scope(self, other)
            found = self.scope.results[key] = linear_bounds.compare(self, symbol, other)
        if found is True or found is False:
            return found
        question = f"{self} {symbol} {other}"
        raise linear_bounds.inconclusive_error("comparison of symbolic dimensions", question, found.difference)

    return compare


class Dim(Polynomial):
    """A symbolic dimension, made by `Scope.variable` and by arithmetic.

    Examples:
      >>> b = Scope().variable("b")
      >>> (b + 1) * 2 - 2, (b + 1) * (b - 1), (6 * b + 3) // 3
      (2*b, b^2 - 1, 2*b + 1)
      >>> b >= 1, b == 1, b + b is 2 * b, 4 * (b // 4) + b % 4 == b, -(-b // 2) == (b + 1) // 2
      (True, False, True, True, True)
    """

    __slots__ = ()

    is_symbolic_dim = True
    __array_ufunc__ = None  # a NumPy integer on the left leaves the operation to `Dim`

    def __add__(self, other: Any) -> Any:
        # Exact types first: nearly all operands are ints or dimensions, and `operator.index` is slow.
        if type(other) is not int and type(other) is not Dim:
            if (size := _as_size(other)) is None:
                return _combine_with_array(self, operator.add, other)
            other = size
        # Traced code repeats the same arithmetic for every layer, so results are remembered by the operands' keys.
        results = self.scope.results
        key = self.key, other.key if type(other) is Dim else other
        found = results.get(key)
        if found is None:
            found = results[key] = add_dims(self, other)
        return found

    __radd__ = __add__

    __pos__ = lambda self: self
    __abs__ = lambda self: self.extreme("max", -self)

    __sub__ = _operator("-", functools.partial(add_dims, sign=-1), operator.sub)
    __rsub__ = lambda self, other: -self + other
    __mul__ = __rmul__ = _operator("*", multiply_dims, operator.mul)
    __floordiv__ = _operator("//", floordiv, operator.floordiv)
    __rfloordiv__ = _operator("r//", lambda x, y: floordiv(y, x), lambda x, y: y // x)
    __mod__ = _operator("%", mod, operator.mod)
    __rmod__ = _operator("r%", lambda x, y: mod(y, x), lambda x, y: y % x)

    def __pow__(self, power: object) -> Any:
        if type(power) is Dim:
            return arrays.value(self) ** arrays.value(power)
        if not isinstance(power, int) or power < 0:
            raise ArgumentError(
                f"power of symbolic dimension {self}",
                expected="a whole number from 0 on, or a dimension; sizes cannot be raised to non-integer powers",
                got=repr(power),
                fix="convert the dimension to an array with phalanx.numpy.asarray",
            )
        if power > MAX_DEGREE:
            raise too_large_error(f"({self})^{power}")
        return math.prod([self] * power)

    def __rpow__(self, base: object) -> Any:
        return base ** arrays.value(self)

    def __divmod__(self, other: Any) -> Any:
        return NotImplemented if _as_size(other) is None else (self // other, self % other)

    def __rdivmod__(self, other: Any) -> Any:
        return NotImplemented if _as_size(other) is None else (other // self, other % self)

    def extreme(self, name: str, other: Size) -> Size:
        """The maximum (`name` is "max") or minimum of this and another size."""
        return extreme_dim(name, self, other)

    def __truediv__(self, other: Any) -> Any:
        return arrays.value(self) / (arrays.value(other) if type(other) is Dim else other)

    def __rtruediv__(self, other: Any) -> Any:
        return other / arrays.value(self)

    def __phalanx_array__(self) -> Any:
        return arrays.value(self)

    # Equality and order.

    def bounds(self) -> Bounds:
        """Lower and upper bounds that use all known facts."""
        if self._bounds is None:
            # Finding bounds compares other dimensions, which may ask for the bounds of this one: the cheap bounds end
            # the recursion.
            self._bounds = self.cheap
            self._bounds = linear_bounds.find_bounds(self)
        return self._bounds

    def __hash__(self) -> int:
        if self._hash is None:
            try:
                self._hash = hash(evaluate(self, {name: self.scope.sample(name) for name in self.variables}))
            except ZeroDivisionError:  # a fact that is newer than the sample excludes a divisor of 0
                self._hash = 0
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        # Names of this module are None while the interpreter exits, when tables of types still compare their keys:
        # hence `type(self)` for `Dim`, and the last test of the second condition.
        if type(other) is not int and type(other) is not type(self) and (other := _as_size(other)) is None:
            return NotImplemented
        # Sizes that are equal for all values are equal for the sample, so different hashes settle most questions at
        # once.
        is_foreign = type(other) is type(self) and other.scope is not self.scope
        if hash(self) != hash(other) or is_foreign or bounds is None:
            return False
        return bounds(self - other) == (0, 0)

    __ge__, __le__, __gt__, __lt__ = map(_comparison, (">=", "<=", ">", "<"))

    def __bool__(self) -> bool:
        lower, upper = bounds(self)
        if lower > 0 or upper < 0 or lower == upper:
            return lower != 0
        raise linear_bounds.inconclusive_error("truth value of a symbolic dimension", f"{self} != 0", self - 1)

    def __int__(self) -> int:
        raise InconclusiveDimensionOperation(
            "conversion of a symbolic dimension to int",
            expected="a size that is known while tracing",
            got=str(self),
            fix="use the dimension itself in shapes and arithmetic; phalanx.numpy.asarray makes it an array",
        )

    __index__ = __float__ = __complex__ = __int__

    __copy__ = lambda self: self
    __deepcopy__ = lambda self, memo: self

    def __reduce__(self) -> Any:
        raise TypeError(f"symbolic dimension {self} belongs to a scope of this process and cannot be pickled")

    def __repr__(self) -> str:
        if self._text is None:
            self._text = format_dim(self)
        return self._text


class Scope(Ring):
    """The namespace of variables, with the facts known about them; variables of two scopes do not mix.

    Args:
      **bounds: for a variable its smallest and largest size; None for the default of 1, and for no upper bound.

    Examples:
      >>> scope = Scope(b=(0, 8))
      >>> scope.variable("b") <= 8
      True
    """

    dim_class = Dim

    def __init__(self, **bounds: tuple[int | None, int | None]) -> None:
        super().__init__()
        self.variables: dict[str, Any] = {}
        self.facts: list[Fact] = []
        self.texts: list[str] = []  # everything that is known, as the user wrote it
        self.sampled: dict[str, int] = {}  # sizes of variables, for hashes
        for name, (lower, upper) in bounds.items():
            self.bound(name, 1 if lower is None else lower, upper)

    def bound(self, name: str, lower: int = 1, upper: float | None = None) -> Any:
        """Make a variable with bounds, before anything is computed with it."""
        upper = math.inf if upper is None else upper
        if not 0 <= lower <= upper:
            raise ArgumentError(
                f"bounds of symbolic dimension {name}",
                expected="0 <= lower <= upper",
                got=f"({lower}, {upper})",
                fix=f"give {name} bounds from 0 on, the smaller one first",
            )
        if not name.isidentifier() or name in _RESERVED:
            expected = f"an identifier other than {', '.join(_RESERVED)}"
            raise ArgumentError("symbolic dimension", expected=expected, got=repr(name), fix=f"rename {name!r}")
        factor = self.factors[name] = Factor(name, (), self, lower, upper)
        found = self.variables[name] = factor_dim(factor)
        return found

    def variable(self, name: str) -> Any:
        """The dimension that is the variable `name`, made on first use."""
        found = self.variables.get(name)
        return self.bound(name) if found is None else found

    def substitute(self, name: str, value: Size) -> None:
        """Define `name`, which must be unused, as another dimension."""
        assert name not in self.factors, f"{name} is in use"
        self.variables[name] = value

    def sample(self, name: str) -> int:
        """The size of a variable in hashes, chosen to satisfy all facts if such sizes are found."""
        found = self.sampled.get(name)
        if found is None:
            if self.facts and not self.sampled:
                # All variables of facts are sampled together, since the facts relate them to each other.
                names = {v for fact in self.facts for v in fact.dim.variables}
                self.sampled = linear_bounds.satisfy_facts(self, {v: self.factors[v].sample() for v in names})
            found = self.sampled[name] = self.sampled.get(name) or self.factors[name].sample()
        return found

    def refresh(self) -> None:
        """Discard hashes, bounds and results, once all facts are known on which they are based."""
        self.sampled.clear()
        self.results.clear()
        for dim in self.dims.values():
            if type(dim) is Dim:
                dim._bounds, dim._hash, dim.cheap = None, None, interval(dim)

    def learn(self, fact: Fact) -> None:
        """Add a fact; it may decide comparisons that were undecided."""
        self.facts.append(fact)
        # Decided comparisons stay decided; a new fact can only settle open ones.
        self.results = {k: v for k, v in self.results.items() if not isinstance(v, linear_bounds.Undecided)}
        for dim in self.dims.values():
            if type(dim) is Dim:
                dim._bounds = None

    def tighten(self, factor: Factor, lower: float, upper: float) -> bool:
        """Add bounds of a variable; returns whether they are tighter than the known ones."""
        # Bounds of a multiple are multiples too.
        divisor = self.divisors.get(factor, 1)
        lower = max(factor.lower, lower if math.isinf(lower) else -(-lower // divisor) * divisor)
        upper = min(factor.upper, upper if math.isinf(upper) else upper // divisor * divisor)
        is_tighter = (lower, upper) != (factor.lower, factor.upper)
        factor.lower, factor.upper = lower, upper
        return is_tighter

    def multiple(self, x: Dim, divisor: int) -> None:
        """Add the fact that `divisor` divides `x`."""
        _, rest, divisor = divide_by_number(x, divisor, self)
        if type(rest) is not Dim:
            return
        if (factor := as_factor(rest)) is not None:
            divisor = self.divisors[factor] = math.lcm(divisor, self.divisors.get(factor, 1))
            self.tighten(factor, factor.lower, factor.upper)
        ends = quotient_bounds(bounds(rest), (divisor, divisor))
        # `Ring.multiples` makes the arithmetic replace divisor * quotient by x from now on.
        quotient = apply_opaque("floordiv", (rest, divisor), self, *ends)
        if (whole := as_factor(quotient)) is not None:
            self.multiples[whole] = rest, divisor


def _as_size(x: Any) -> Any:
    """`x` as an int or Dim, or None if it is neither."""
    if type(x) is int or type(x) is Dim:
        return x
    try:
        return operator.index(x)
    except TypeError:
        return None


def _combine_with_array(x: Dim, operation: Callable[[Any, Any], Any], y: Any) -> Any:
    """Arithmetic with a number or NumPy array: the dimension becomes an array."""
    if isinstance(y, float | complex | np.ndarray | np.generic):
        return operation(arrays.value(x), y)
    return NotImplemented
