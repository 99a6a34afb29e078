"""Arguments and results of functions with custom rules: binding by position, and the checks of returned pairs.

Shared by the custom derivatives, `custom_vmap`, `shard_map` and `custom_partitioning`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from phalanx.core import ArgumentTypeError, format_code_position


def bind_positional(
    fun: Callable, args: tuple, kwargs: dict, fix: str, *, name: str = "", defaults: bool = True
) -> tuple:
    """All arguments of a call of `fun` as positional arguments.

    Args:
      fun, args, kwargs: the function and its arguments.
      fix: the remedy for arguments that cannot be positional, for the error.
      name: the name of the callee in the error, if it is not `fun`.
      defaults: whether omitted arguments are filled with their defaults.

    Raises:
      ArgumentTypeError: a keyword-only argument was given.
    """
    try:
        signature = inspect.signature(fun)
    except (TypeError, ValueError):
        if kwargs:
            raise
        return args
    # The frequent case: nothing to bind.
    if not kwargs and len(args) == len(signature.parameters):
        return args
    bound = signature.bind(*args, **kwargs)
    if defaults:
        bound.apply_defaults()
    if keyword_only := [name for name in bound.kwargs if name in kwargs]:
        raise ArgumentTypeError(
            f"call of {name or format_code_position(fun)}",
            expected="arguments that can be passed by position",
            got=f"keyword-only {', '.join(keyword_only)}",
            fix=fix,
        )
    return bound.args


# The methods that set rules, which a function with two kinds of rules forwards to the function that it wraps.
RULE_SETTERS = frozenset({"def_vmap", "defjvp", "defjvps", "defvjp"})


def forward_rule_setter(function: Any, name: str) -> Any:
    """The `__getattr__` of functions with rules: the method of the wrapped function that sets another kind of rule."""
    if name in RULE_SETTERS and (wrapped := vars(function).get("fun")) is not None:
        return getattr(wrapped, name)
    raise AttributeError(f"{type(function).__name__!r} object has no attribute {name!r}")


def check_pair(where: str, result: object, names: str) -> Any:
    """Return the result of a rule, which must be a pair.

    Args:
      where: the rule, for the error.
      result: the result.
      names: the pair that the rule must return, such as `(result, tangent)`.

    Raises:
      ArgumentTypeError: `result` is not a pair.
    """
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise ArgumentTypeError(where, expected=f"a pair {names}", got=repr(result), fix=f"return {names}")
    return result
