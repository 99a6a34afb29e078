"""Maxima and minima of symbolic dimensions.

An extreme of dimensions that cannot be ordered becomes an opaque factor `max(x, ...)` or `min(x, ...)`. Nested extrema
are merged, and operands that another operand always exceeds are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from phalanx.symbolic.dim_polynomials import (
    Polynomial,
    Ring,
    Size,
    apply_opaque,
    as_factor,
    bounds,
    common_scope,
    key_of,
)

_PICK: Final[dict[str, Callable[..., Any]]] = {"max": max, "min": min}


def extreme_dim(name: str, x: Size, y: Size) -> Any:
    """The maximum (`name` is "max") or minimum of two sizes."""
    if not isinstance(x, Polynomial) and not isinstance(y, Polynomial):
        return _PICK[name](x, y)
    scope = common_scope(x, y)
    key = name, key_of(x), key_of(y)
    found = scope.results.get(key)
    if found is None:
        found = scope.results[key] = _new_extreme(name, x, y, scope)
    return found


def _new_extreme(name: str, x: Size, y: Size, scope: Ring) -> Any:
    """Compute the extreme of the operands of both."""
    kept: list[Any] = []
    for candidate in (*_operands_of(name, x), *_operands_of(name, y)):
        if any(_exceeds(name, other, candidate) for other in kept):
            continue
        kept = [other for other in kept if not _exceeds(name, candidate, other)]
        kept.append(candidate)
    if len(kept) == 1:
        return kept[0]
    lows, highs = zip(*map(bounds, kept), strict=True)
    # Sorted by text, so that max(b, c) and max(c, b) are the same factor.
    kept.sort(key=str)
    return apply_opaque(name, tuple(kept), scope, _PICK[name](lows), _PICK[name](highs))


def _operands_of(name: str, x: Size) -> tuple[Any, ...]:
    factor = as_factor(x)
    return factor.operands if factor is not None and factor.name == name else (x,)


def _exceeds(name: str, x: Size, y: Size) -> bool:
    """Whether x >= y (for "max") or x <= y (for "min") for all values of the variables."""
    return bounds(x - y)[0] >= 0 if name == "max" else bounds(y - x)[0] >= 0
