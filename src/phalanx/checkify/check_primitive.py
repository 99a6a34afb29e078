"""The checks that users write, and the primitive `check`, which raises an error value.

Outside of a trace the primitive raises. In a jaxpr it has an effect, so that nothing drops it, and `functionalization`
removes it; lowering refuses one that is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.checkify.error_value import CheckSite, Error, ErrorKind, FailedCheckError
from phalanx.core import (
    ArgumentError,
    ArgumentTypeError,
    Effects,
    Primitive,
    ShardingRule,
    Undefined,
    check_effect,
    current_traceback,
    format_source,
    get_aval_of_argument,
    no_effects,
    state,
)
from phalanx.lax import bitwise_not
from phalanx.runtime import LoweringContext
from phalanx.transforms import AxisData
from phalanx.tree import tree_flatten, tree_unflatten
from phalanx.typing import ArrayLike


class Check(Primitive, name="check", multiple=True):
    """Raise an error value: (*leaves of an `Error`) -> (). With `debug`, only `checkify` evaluates it."""

    def abstract_eval(self, *avals: Any, kind: ErrorKind, debug: bool) -> list:
        return []

    def effects(self, *avals: Any, kind: ErrorKind, debug: bool) -> Effects:
        return frozenset({check_effect}) if kind.sites else no_effects

    def sharding_rule(self, *avals: Any, kind: ErrorKind, debug: bool) -> ShardingRule:
        return ShardingRule([[(i, d) for d in range(a.ndim)] for i, a in enumerate(avals)], [])

    def run(self, *args: Any, kind: ErrorKind, debug: bool) -> list:
        if not debug:
            kind.unflatten(args).throw()
        return []

    def lower(self, ctx: LoweringContext, *operands: Any, kind: ErrorKind, debug: bool) -> list:
        if debug:
            return []
        raise ArgumentError(
            f"checkify.check at {format_source(ctx.eqn.source)}",
            expected="a check in a function that checkify transforms",
            got="one that is to be compiled. Cannot abstractly evaluate a check that has not been functionalized",
            fix="call checkify.checkify(f) and compile that, or use debug_check, which does nothing elsewhere",
        )

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple:
        return self(*primals, **params), []

    transpose = Undefined("a check is not linear")

    def batch_axis(
        self, axis: AxisData, args: Sequence[Any], dims: Sequence[int | None], *, kind: ErrorKind, debug: bool
    ) -> tuple:
        # The first example that fails is reported.
        check_error(kind.unflatten(list(map(axis.to_front, args, dims))), debug=debug)
        return [], []


check_p = Check()


def check(pred: ArrayLike, msg: str, *fmt_args: Any, debug: bool = False, **fmt_kwargs: Any) -> None:
    """Require a condition while a function runs.

    A function with checks is compiled after `checkify` has transformed it. Elsewhere a failed check raises at once.

    Args:
      pred: the condition: bool[].
      msg: a format string for the message.
      fmt_args, fmt_kwargs: the values to format: pytrees of arrays.
      debug: whether the check does nothing unless `checkify` transforms the function, as `debug_check` does.

    Raises:
      JaxRuntimeError: the condition is false, and nothing is traced.
      ArgumentTypeError: the condition is no boolean scalar, or a value to format is no array.
      ArgumentError: the check is compiled, and `checkify` has not transformed the function.

    Examples:
      >>> import phalanx
      >>> from phalanx.experimental import checkify
      >>> def reciprocal(x):
      ...     checkify.check(x != 0, "no reciprocal of {x}", x=x)
      ...     return 1 / x
      >>> err, y = phalanx.jit(checkify.checkify(reciprocal))(0.0)
      >>> err.get()
      'no reciprocal of 0.0 (`check` failed)'
    """
    _check("check", pred, msg, debug, fmt_args, fmt_kwargs)


def debug_check(pred: ArrayLike, msg: str, *fmt_args: Any, **fmt_kwargs: Any) -> None:
    """Require a condition in functions that `checkify` transforms; it does nothing in others.

    Args:
      pred: the condition: bool[].
      msg: a format string for the message.
      fmt_args, fmt_kwargs: the values to format: pytrees of arrays.

    Raises:
      ArgumentTypeError: the condition is no boolean scalar, or a value to format is no array.

    Examples:
      >>> from phalanx.experimental import checkify
      >>> f = lambda x: checkify.debug_check(x != 0, "zero")
      >>> f(0.0)
      >>> checkify.checkify(f)(0.0)[0].get()
      'zero (`check` failed)'
    """
    _check("debug_check", pred, msg, True, fmt_args, fmt_kwargs)


def _check(name: str, pred: ArrayLike, msg: str, debug: bool, args: tuple, kwargs: dict) -> None:
    aval = get_aval_of_argument(pred, lambda: f"checkify.{name}, argument pred")
    if aval.shape != () or aval.dtype.kind != "b":
        raise ArgumentTypeError(
            f"checkify.{name}, argument pred",
            expected="a boolean scalar",
            got=f"{pred!r}; {name} takes a scalar pred",
            fix="reduce the condition with jnp.all or jnp.any",
        )
    leaves, tree = tree_flatten((args, kwargs))
    for x in leaves:
        if not hasattr(x, "aval") and not isinstance(x, np.ndarray | np.generic | int | float | complex):
            raise ArgumentTypeError(
                f"checkify.{name}, arguments to format",
                expected="pytrees of arrays. Formatting arguments are values of the program",
                got=f"{x!r} of type {type(x).__name__}",
                fix="write the value into the message with an f-string",
            )

    def message(*payload: Any) -> str:
        shown, named = tree_unflatten(tree, payload)
        return f"{msg.format(*shown, **named)} (`check` failed)"

    site = CheckSite(FailedCheckError, message, state.source or current_traceback())
    check_error(Error.at(site, bitwise_not(pred), leaves), debug=debug)


def check_error(error: Error, *, debug: bool = False) -> None:
    """Raise an error value if it is a failure: the inverse of `checkify`, which turns exceptions into error values.

    `error.throw()` needs a concrete error; this function may also be called in functions that `checkify` transforms.

    Args:
      error: the first result of a function that `checkify` returned. If it is mapped, its first failing row counts.
      debug: whether it does nothing unless `checkify` transforms the function.

    Raises:
      JaxRuntimeError: `error` is a failure, and nothing is traced.
      ArgumentTypeError: `error` is no `Error`.
      ArgumentError: the check is compiled, and `checkify` has not transformed the function.

    Examples:
      >>> import phalanx
      >>> from phalanx.experimental import checkify
      >>> inner = phalanx.jit(checkify.checkify(lambda x: checkify.check(x > 0, "not positive")))
      >>> def outer(x):
      ...     err, _ = inner(x)
      ...     checkify.check_error(err)
      >>> checkify.checkify(outer)(-1.0)[0].get()
      'not positive (`check` failed)'
    """
    if not isinstance(error, Error):
        raise ArgumentTypeError(
            "checkify.check_error, argument error",
            expected="an Error",
            got=repr(error),
            fix="pass the first result of a function that checkify.checkify returned",
        )
    first = error.first_row()
    check_p(*first.leaves(), kind=first.kind, debug=debug)
