"""Questions about sizes that may be symbolic, and arithmetic on them.

Every function takes ints and `Dim`s alike. Type rules in `lax` and `numpy` compute the shapes of results with them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any, SupportsIndex

from phalanx.engine.error_record import ArgumentError, InconclusiveDimensionOperation
from phalanx.symbolic.dim_division import long_division
from phalanx.symbolic.dim_extrema import extreme_dim
from phalanx.symbolic.dim_polynomials import Size, bounds, common_scope
from phalanx.symbolic.symbolic_dimension import Dim


def is_symbolic(dim: object) -> bool:
    """Whether `dim` is not a plain int.

    Args:
      dim: a dimension of a shape.

    Returns:
      A bool.

    Examples:
      >>> from phalanx.symbolic import Scope
      >>> is_symbolic(Scope().variable("b")), is_symbolic(3)
      (True, False)
    """
    return type(dim) is Dim


def static_size(dim: SupportsIndex | Dim) -> Any:
    """Convert a size to a Python int, unless it is symbolic."""
    return dim if type(dim) is Dim else operator.index(dim)


def is_constant_shape(shape: Iterable[object]) -> bool:
    """Whether all dimensions are plain ints."""
    return all(type(dim) is not Dim for dim in shape)


def same_dim(x: object, y: object) -> bool:
    """Whether two dimensions are equal for all values of their variables."""
    return x is y or x == y


def same_shape(x: tuple[Any, ...], y: tuple[Any, ...]) -> bool:
    """Whether two shapes are equal for all values of their variables."""
    return len(x) == len(y) and all(map(same_dim, x, y))


def size_of(shape: Iterable[Any]) -> Any:
    """The number of elements: the product of the dimensions."""
    return math.prod(shape)


def divide_exactly(x: Any, y: Any, where: str = "division of dimensions") -> Any:
    """x / y if it is exact.

    Args:
      x: a dimension, or the number of elements of a shape.
      y: the divisor; 0 / 0 is 0.
      where: the name of the operation in error messages.

    Returns:
      The quotient.

    Raises:
      InconclusiveDimensionOperation: a remainder is possible for some values of the variables.
      ArgumentError: there is a remainder.

    Examples:
      >>> from phalanx.symbolic import Scope
      >>> scope = Scope()
      >>> b, c = scope.variable("b"), scope.variable("c")
      >>> divide_exactly(6 * b * c, 2 * c)
      3*b
    """
    # Checked first, since symbolic sizes are most often divided by themselves.
    if same_dim(x, y) and not same_dim(x, 0):
        return 1
    if type(x) is Dim or type(y) is Dim:
        scope = common_scope(x, y)
        quotient, rest = (0, x) if same_dim(y, 0) else long_division(x, y, scope)
        # Facts of the scope may show that a number divides x, though it does not divide the coefficients.
        if not same_dim(rest, 0) and type(y) is int and y and same_dim(x % y, 0):
            quotient, rest = x // y, 0
    else:
        quotient, rest = divmod(x, y) if y else (0, x)
    if same_dim(rest, 0):
        return quotient
    if is_constant_shape((x, y)):
        raise ArgumentError(where, expected=f"a multiple of {y}", got=x, fix=f"choose a size that is a multiple of {y}")
    raise InconclusiveDimensionOperation(
        where,
        expected=f"a size that {y} divides for all values of the variables",
        got=str(x),
        fix=f"give the scope the constraint 'mod({x}, {y}) == 0', or write the size as a multiple, such as {y}*n"
        if type(y) is int
        else "write the size as a product with that factor",
    )


def max_dim(x: Size, y: Size) -> Any:
    """The larger of two dimensions, written `max(x, y)` if it depends on the variables.

    Args:
      x, y: ints or symbolic dimensions.

    Returns:
      An int or a symbolic dimension.

    Examples:
      >>> from phalanx.symbolic import Scope
      >>> scope = Scope()
      >>> b, c = scope.variable("b"), scope.variable("c")
      >>> max_dim(b, 1), max_dim(b, c), max_dim(max_dim(b, c), c + 1)
      (b, max(b, c), max(b, c + 1))
    """
    return extreme_dim("max", x, y)


def min_dim(x: Size, y: Size) -> Any:
    """The smaller of two dimensions, written `min(x, y)` if it depends on the variables."""
    return extreme_dim("min", x, y)


def non_negative(x: Size) -> Any:
    """`x`, or 0 if `x` is negative."""
    return max_dim(x, 0)


def dilate(dim: Any, spacing: int) -> Any:
    """The extent of `dim` elements at distances of `spacing`: 0 if there are none.

    Examples:
      >>> from phalanx.symbolic import Scope
      >>> dilate(4, 3), dilate(0, 3), dilate(Scope().variable("b"), 2)
      (10, 0, 2*b - 1)
    """
    if spacing == 1 or same_dim(dim, 0):
        return dim
    # Zero elements have the extent 0, not 1 - spacing; the maximum is needed only if the size may be 0.
    return max_dim(0, 1 + spacing * (dim - 1)) if bounds(dim)[0] < 1 else 1 + spacing * (dim - 1)


def windows(dim: Any, window: Any, stride: Size) -> Any:
    """The number of windows of size `window` at distances of `stride` that fit into `dim` elements.

    Examples:
      >>> from phalanx.symbolic import Scope
      >>> windows(10, 3, 2), windows(2, 3, 1), windows(Scope().variable("b") + 2, 3, 1)
      (4, 0, b)
    """
    # A window that is larger than the dimension gives a negative quotient, and no positions.
    return max_dim(0, (dim - window) // stride + 1)
