"""Functions that bring rules of their own: what they are given, by position, and what their rules give.

Shared by the custom derivatives, `custom_batching`, `shard_map` and `spmd.custom_partitioning`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from phalanx.core.errors import ArgumentTypeError
from phalanx.core.source import code_position


def by_position(fun: Callable, args: tuple, kwargs: dict, mend: str, *, name: str = "", defaults: bool = True) -> tuple:
    """All arguments of a call by position.

    Args:
      fun, args, kwargs: the function and its arguments.
      mend: what to do about arguments that have no position.
      name: what is called, in words, where it is not the function.
      defaults: whether those that are left out are put in.

    Raises:
      ArgumentTypeError: one has no position.
    """
    try:
        signature = inspect.signature(fun)
    except (TypeError, ValueError):
        if kwargs:
            raise
        return args
    if not kwargs and len(args) == len(signature.parameters):
        return args
    bound = signature.bind(*args, **kwargs)
    if defaults:
        bound.apply_defaults()
    if lost := [name for name in bound.kwargs if name in kwargs]:
        raise ArgumentTypeError(
            f"call of {name or code_position(fun)}",
            expected="arguments that can be given by position",
            got=f"keyword-only {', '.join(lost)}",
            mend=mend,
        )
    return bound.args


def pair_of(where: str, result: Any, names: str) -> Any:
    """What a user's rule returned, refused unless it is a pair.

    Args:
      where: the rule, in words.
      result: what it returned.
      names: what the pair is, such as `(result, tangent)`.

    Raises:
      ArgumentTypeError: it is no pair.
    """
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise ArgumentTypeError(where, expected=f"a pair {names}", got=repr(result), mend=f"return {names}")
    return result
