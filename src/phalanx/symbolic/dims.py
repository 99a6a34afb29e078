"""Symbolic dimensions as other rooms meet them: what type rules ask of sizes, and how sizes are printed.

A dimension is an `int` or a `Dim`, a polynomial (`polynomials`); every function here takes both. `lax` and `numpy`
divide, compare and multiply dimensions by them; `export` makes the variables.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any

from phalanx.engine.errors import ArgumentError, InconclusiveDimensionOperation
from phalanx.symbolic.division import long_division
from phalanx.symbolic.polynomials import (
    Dim,
    Scope,
    Terms,
    bounds,
    faces,
    factor_dim,
    key_of,
    only_factor,
    operation,
    scope_of,
    terms_of,
)


def is_symbolic(dim: Any) -> bool:
    """Whether `dim` is not a plain int.

    Args:
      dim: a dimension of a shape.

    Returns:
      A bool.

    Examples:
      >>> is_symbolic(Scope().variable("b")), is_symbolic(3)
      (True, False)
    """
    return type(dim) is Dim


def is_constant_dim(dim: Any) -> bool:
    """Whether `dim` is a plain int."""
    return type(dim) is not Dim


def static_size(dim: Any) -> Any:
    """A size as a plain int, or the symbolic dimension that it is."""
    return dim if type(dim) is Dim else operator.index(dim)


def is_constant_shape(shape: Iterable[Any]) -> bool:
    """Whether all dimensions are plain ints."""
    return all(type(dim) is not Dim for dim in shape)


def same_dim(x: Any, y: Any) -> bool:
    """Whether two dimensions are equal for all values of their variables."""
    return x is y or x == y


def same_shape(x: tuple[Any, ...], y: tuple[Any, ...]) -> bool:
    """Whether two shapes are equal for all values of their variables."""
    return len(x) == len(y) and all(map(same_dim, x, y))


def size_of(shape: Iterable[Any]) -> Any:
    """The number of elements: the product of the dimensions."""
    return math.prod(shape)


def divide_exactly(x: Any, y: Any, where: str = "division of dimensions") -> Any:
    """x / y where that leaves no remainder.

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
      >>> scope = Scope()
      >>> b, c = scope.variable("b"), scope.variable("c")
      >>> divide_exactly(6 * b * c, 2 * c)
      3*b
    """
    if same_dim(x, y) and not same_dim(x, 0):
        return 1
    if type(x) is Dim or type(y) is Dim:
        scope = scope_of(x, y)
        quotient, rest = (0, x) if same_dim(y, 0) else long_division(x, y, scope)
        if not same_dim(rest, 0) and type(y) is int and y and same_dim(x % y, 0):
            quotient, rest = x // y, 0
    else:
        quotient, rest = divmod(x, y) if y else (0, x)
    if same_dim(rest, 0):
        return quotient
    if is_constant_dim(x) and is_constant_dim(y):
        raise ArgumentError(where, expected=f"a multiple of {y}", got=x, mend="give sizes that divide")
    raise InconclusiveDimensionOperation(
        where,
        expected=f"a size that {y} divides for all values of the variables",
        got=str(x),
        mend=f"give the scope the constraint 'mod({x}, {y}) == 0', or write the size as a multiple, such as {y}*n"
        if type(y) is int
        else "write the size as a product with that factor",
    )


def max_dim(x: Any, y: Any) -> Any:
    """The greater of two dimensions, kept as `max(x, y)` where that depends on the variables.

    Args:
      x, y: ints or symbolic dimensions.

    Returns:
      An int or a symbolic dimension.

    Examples:
      >>> scope = Scope()
      >>> b, c = scope.variable("b"), scope.variable("c")
      >>> max_dim(b, 1), max_dim(b, c), max_dim(max_dim(b, c), c + 1)
      (b, max(b, c), max(b, c + 1))
    """
    return _extreme("max", x, y)


def min_dim(x: Any, y: Any) -> Any:
    """The lesser of two dimensions, kept as `min(x, y)` where that depends on the variables."""
    return _extreme("min", x, y)


def non_negative(x: Any) -> Any:
    """`x` where it is not negative, else 0."""
    return max_dim(x, 0)


def _extreme(name: str, x: Any, y: Any) -> Any:
    pick = max if name == "max" else min
    if type(x) is not Dim and type(y) is not Dim:
        return pick(x, y)
    scope = scope_of(x, y)
    key = name, key_of(x), key_of(y)
    found = scope.results.get(key)
    if found is None:
        found = scope.results[key] = _new_extreme(name, x, y, scope)
    return found


def _new_extreme(name: str, x: Any, y: Any, scope: Scope) -> Any:
    """The extreme of all operands of both, without those that another always exceeds."""
    pick = max if name == "max" else min
    kept: list[Any] = []
    for candidate in (*_operands_of(name, x), *_operands_of(name, y)):
        if any(_exceeds(name, other, candidate) for other in kept):
            continue
        kept = [other for other in kept if not _exceeds(name, candidate, other)]
        kept.append(candidate)
    if len(kept) == 1:
        return kept[0]
    ends = [bounds(k) for k in kept]
    kept.sort(key=str)
    return operation(name, tuple(kept), scope, pick(low for low, _ in ends), pick(high for _, high in ends))


def _operands_of(name: str, x: Any) -> tuple:
    factor = only_factor(x)
    return factor.operands if factor is not None and factor.name == name else (x,)


def _exceeds(name: str, x: Any, y: Any) -> bool:
    """Whether x >= y (for "max") or x <= y (for "min") whatever the variables are."""
    return bounds(x - y)[0] >= 0 if name == "max" else bounds(y - x)[0] >= 0


def dilate(dim: Any, spacing: int) -> Any:
    """The size of `dim` elements that stand `spacing` apart: 0 if there are none.

    Examples:
      >>> dilate(4, 3), dilate(0, 3), dilate(Scope().variable("b"), 2)
      (10, 0, 2*b - 1)
    """
    if spacing == 1 or same_dim(dim, 0):
        return dim
    return max_dim(0, 1 + spacing * (dim - 1)) if bounds(dim)[0] < 1 else 1 + spacing * (dim - 1)


def windows(dim: Any, window: Any, stride: Any) -> Any:
    """How many windows of size `window`, `stride` apart, fit into `dim` elements.

    Examples:
      >>> windows(10, 3, 2), windows(2, 3, 1), windows(Scope().variable("b") + 2, 3, 1)
      (4, 0, b)
    """
    return max_dim(0, (dim - window) // stride + 1)


# Text.


def printed(x: Dim) -> str:
    """The text of a polynomial, which `symbolic_shape` reads back; remainders are shown as such."""
    terms, remainders = _without_remainders(x)
    parts: list[str] = []
    for monomial, coefficient in (*remainders, *terms):
        factors = [str(monomial)] if str(monomial) else []
        size = abs(coefficient)
        text = "*".join(([str(size)] if size != 1 or not factors else []) + factors)
        sign = "-" if coefficient < 0 else "+"
        parts.append(f" {sign} {text}" if parts else f"-{text}" if coefficient < 0 else text)
    return "".join(parts) or "0"


def _without_remainders(x: Dim) -> tuple[Terms, list[tuple[str, int]]]:
    """The terms of `x` apart from multiples of x - y*floordiv(x, y), and these as (text of mod(x, y), coefficient)."""
    terms, found, scope = dict(x.terms), [], x.scope
    for monomial, coefficient in x.terms:
        for factor, power in monomial.factors:
            if factor.name != "floordiv" or power != 1 or terms.get(monomial) != coefficient:
                continue
            inner, by = factor.operands
            product = terms_of(by * factor_dim(factor), scope)
            times, rest = divmod(-coefficient, dict(product).get(monomial, 0) or 1 << 80)
            if rest or not times:
                continue
            remainder = [*((m, c * times) for m, c in terms_of(inner, scope)), *((m, -c * times) for m, c in product)]
            if all(terms.get(m, 0) * c > 0 and abs(terms[m]) >= abs(c) for m, c in remainder):
                for m, c in remainder:
                    terms[m] -= c
                found.append((f"mod({inner}, {by})", times))
    return tuple((m, c) for m, c in terms.items() if c), found


faces.take(printed=printed, max_dim=max_dim, min_dim=min_dim)
