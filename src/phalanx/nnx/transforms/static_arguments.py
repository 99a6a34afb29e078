"""Static arguments of lifted functions, and functions with some of their arguments given (`nnx.cached_partial`)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def bind_static(f: Callable, args: tuple, numbers: Sequence[int]) -> tuple[Callable, tuple]:
    """Bind the arguments at some positions.

    Args:
      f: the function.
      args: all positional arguments.
      numbers: the positions to bind, which may be negative.

    Returns:
      The function of the other arguments, and these arguments.
    """
    static = {n % len(args): args[n] for n in numbers}

    @functools.wraps(f)
    def call(*dynamic: Any, **kwargs: Any) -> Any:
        return f(*insert_static(static, dynamic), **kwargs)

    return call, tuple(x for i, x in enumerate(args) if i not in static)


def insert_static(static: Mapping[Any, Any], dynamic: Sequence[Any]) -> tuple:
    """All positional arguments, from static ones by position and the others in order; keys of text are ignored."""
    rest = iter(dynamic)
    # Static keyword arguments have their names as keys.
    count = sum(isinstance(i, int) for i in static) + len(dynamic)
    return tuple([static[i] if i in static else next(rest) for i in range(count)])


def cached_partial(
    f: Callable, *cached_args: Any, graph: bool | None = None, graph_updates: bool | None = None
) -> Callable:
    """Bind the first arguments of a function, for compatibility with Flax.

    Modules whose structure is unchanged are never traversed again, so that nothing remains to be cached.

    Args:
      f: the function.
      *cached_args: its first arguments.
      graph, graph_updates: accepted for compatibility with Flax.

    Returns:
      The function of the other arguments.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.cached_partial(lambda w, x: w * x, nnx.Param(2.0))(3.0)
      6.0
    """
    return functools.partial(f, *cached_args)
