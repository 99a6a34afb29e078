"""`platform_dependent`: a choice that is made when a program is lowered for a platform.

Builds on the choice among programs in `branches`, from which it differs in its lowering alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx.core.errors import ArgumentError, ArgumentTypeError, RuleError
from phalanx.engine.client import platform_name
from phalanx.lax.branches import Cond, choose


class PlatformChoice(Cond):
    """A choice among programs by the platform: (index, *operands) -> results; the index says nothing.

    Args:
      platforms: the platform of each program; None for the one that serves all others.
    """

    def __init__(self, platforms: tuple[str | None, ...]):
        self.platforms = platforms
        self.name = f"platform_dependent[{' '.join(p or 'default' for p in platforms)}]"
        super().__init__()

    def lower(self, ctx: Any, index: Any, *operands: Any, branches: tuple) -> list:
        for platform, branch in zip(self.platforms, branches):
            if platform in (None, ctx.platform):
                return ctx.emit(branch, operands)
        raise RuleError(
            "platform_dependent",
            expected=f"a function for the platform {ctx.platform}, or a default",
            got=f"functions for {', '.join(map(str, self.platforms))}",
            mend=f"pass a function as {ctx.platform}= or as default=",
        )


_choices: dict[tuple[str | None, ...], PlatformChoice] = {}


def platform_dependent(*args: Any, default: Callable | None = None, **per_platform: Callable) -> Any:
    """Call the function that is written for the platform on which the program will run.

    Args:
      args: arguments of the functions.
      default: the function for all other platforms; without one, lowering for another platform is an error.
      per_platform: functions by platform, such as `cpu=` and `cuda=`. All must give results of the same structure and
        types; only the chosen one is lowered.

    Returns:
      The result of the chosen function.

    Raises:
      ArgumentError: no function is given, or a platform is given twice.
      ArgumentTypeError: one is no function, or results differ in type.
      TreeError: results differ in structure.
      RuleError: the program is lowered for a platform for which there is no function.

    Examples:
      >>> import phalanx
      >>> f = lambda x: phalanx.lax.platform_dependent(x, cpu=lambda x: x + 1, default=lambda x: x - 1)
      >>> int(phalanx.jit(f)(1))
      2
    """
    named = [(platform_name(name), f) for name, f in per_platform.items()]
    functions: list[tuple[str | None, Callable]] = [*named, *([(None, default)] if default is not None else [])]
    platforms = tuple([platform for platform, _ in functions])
    if not functions or len(set(platforms)) != len(platforms):
        raise ArgumentError(
            "platform_dependent",
            expected="functions for different platforms, at least one",
            got=", ".join(per_platform) or "none",
            mend="write for example platform_dependent(x, cpu=f, default=g)",
        )
    for platform, function in functions:
        if not callable(function):
            raise ArgumentTypeError(
                f"platform_dependent, {platform or 'default'}",
                expected="a function",
                got=repr(function),
                mend="pass one",
            )
    if platforms not in _choices:
        _choices[platforms] = PlatformChoice(platforms)
    names = [platform or "default" for platform in platforms]
    return choose(
        "platform_dependent", np.int32(0), [f for _, f in functions], args, names=names, primitive=_choices[platforms]
    )
