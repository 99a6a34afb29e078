"""`platform_dependent`: a choice among functions that is made when a program is lowered for a platform.

It is a `cond` whose lowering emits only the branch for the platform; all other rules are inherited.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from phalanx.core import ArgumentError, ArgumentTypeError, RuleError
from phalanx.engine import Cache, platform_name
from phalanx.lax.control_flow.cond import Cond, bind_cond
from phalanx.runtime.lowering import LoweringContext
from phalanx.typing import ArrayLike


class PlatformChoice(Cond):
    """A choice among jaxprs by the platform: (index, *operands) -> results; the index is not read.

    Args:
      platforms: the platform of each jaxpr; None for the default.
    """

    def __init__(self, platforms: tuple[str | None, ...]):
        self.platforms = platforms
        self.name = f"platform_dependent[{' '.join(p or 'default' for p in platforms)}]"
        super().__init__()

    def lower(self, ctx: LoweringContext, index: ArrayLike, *operands: Any, branches: tuple) -> list:
        # The first match is lowered; the default, None, is always last.
        for platform, branch in zip(self.platforms, branches):
            if platform in (None, ctx.platform):
                return ctx.emit(branch, operands)
        raise RuleError(
            "platform_dependent",
            expected=f"a function for the platform {ctx.platform}, or a default",
            got=f"functions for {', '.join(map(str, self.platforms))}",
            fix=f"pass a function as {ctx.platform}= or as default=",
        )


_choices: Cache[tuple[str | None, ...], PlatformChoice] = Cache("lax.platform_choices", 256)


def platform_dependent(*args: Any, default: Callable | None = None, **per_platform: Callable) -> Any:
    """Call the function that is defined for the platform on which the program will run.

    Args:
      args: the arguments of the functions.
      default: the function for all other platforms. Without a default, lowering for another platform is an error.
      per_platform: functions by platform, such as `cpu=` and `cuda=`. All must return results of the same structure
        and types; only the selected function is lowered.

    Returns:
      The result of the selected function.

    Raises:
      ArgumentError: no function is given, or a platform is given twice.
      ArgumentTypeError: an argument is not a function, or results differ in type.
      TreeError: results differ in structure.
      RuleError: the program is lowered for a platform that has no function.

    Examples:
      >>> import phalanx
      >>> f = lambda x: phalanx.lax.platform_dependent(x, cpu=lambda x: x + 1, default=lambda x: x - 1)
      >>> int(phalanx.jit(f)(1))
      2
    """
    functions: list[tuple[str | None, Callable]] = [(platform_name(name), f) for name, f in per_platform.items()]
    functions += [] if default is None else [(None, default)]
    platforms = tuple([platform for platform, _ in functions])
    if not functions or len(set(platforms)) != len(platforms):
        raise ArgumentError(
            "platform_dependent",
            expected="functions for different platforms, at least one",
            got=", ".join(per_platform) or "none",
            fix="pass functions by platform, as in platform_dependent(x, cpu=f, default=g)",
        )
    for platform, function in functions:
        if not callable(function):
            raise ArgumentTypeError(
                f"platform_dependent, {platform or 'default'}",
                expected="a function",
                got=repr(function),
                fix=f"pass a function, as in {platform or 'default'}=lambda x: x",
            )
    return bind_cond(
        "platform_dependent",
        np.int32(0),
        [f for _, f in functions],
        args,
        names=[platform or "default" for platform in platforms],
        primitive=_choices.get_or_make(platforms, lambda: PlatformChoice(platforms)),
    )
