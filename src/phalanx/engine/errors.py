"""The shape of every Phalanx error: a record of four fields. All classes users meet are in `phalanx.core.errors`.

It stands on the lowest floor so that `engine`, `tree` and everything above raise records of the same form; the classes
that the rooms below `core` raise themselves stand here too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

E = TypeVar("E", bound=BaseException)


class PhalanxError(Exception):
    """Base of all errors that Phalanx raises on purpose: what was looked at, wanted, found, and how to mend it.

    Args:
      where: the operation and argument, as the user wrote them.
      expected: what would have been right, as a noun phrase.
      got: what was found; a string is shown as it is, any other value by its `repr`.
      mend: what the user can do about it, as an imperative.

    Examples:
      >>> print(PhalanxError("f, argument x", expected="an int", got="'a'", mend="pass a number"))
      f, argument x: expected an int, got 'a'.
        To mend: pass a number.
    """

    def __init__(self, where: str, *, expected: str, got: Any, mend: str) -> None:
        super().__init__(where, expected, got, mend)
        self.where = where
        self.expected = expected
        self.got = got
        self.mend = mend

    def __str__(self) -> str:
        got = self.got if isinstance(self.got, str) else repr(self.got)
        return f"{self.where}: expected {self.expected}, got {got.rstrip('.')}.\n  To mend: {self.mend.rstrip('.')}."

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.where, self.expected, self.got, self.mend), self.__dict__


def _rebuild(cls: type[PhalanxError], where: str, expected: str, got: Any, mend: str) -> PhalanxError:
    """Give pickle and copy a positional road to the keyword-only constructor."""
    return cls(where, expected=expected, got=got, mend=mend)


def met_by(*lines: str, **field: str) -> Callable[[type[E]], type[E]]:
    """Complete the docstring of an error class: what errors are made of, and a program that meets this one.

    Args:
      lines: the program, of which the last line raises it.
      **field: one of its fields, and how it is printed.
    """
    (*before, line), ((name, printed),) = lines, field.items()

    def documented(cls: type[E]) -> type[E]:
        steps = "\n      ".join(f">>> {step}" for step in ("import phalanx, phalanx.numpy as jnp", *before))
        cls.__doc__ = f"""{cls.__doc__}

    Args:
      where, expected, got, mend: as in `PhalanxError`.

    Examples:
      {steps}
      >>> try:
      ...     {line}
      ... except phalanx.errors.{cls.__name__} as error:
      ...     print(error.{name})
      {printed}
    """
        return cls

    return documented


@met_by("phalanx.tree.map(lambda x, y: x, [1], [1, 2])", expected="a list of length 1")
class TreeError(PhalanxError, TypeError, ValueError):
    """A pytree does not have the structure asked for."""


@met_by('phalanx.config.update("enable_x64", "maybe")', expected="True or False")
class ArgumentError(PhalanxError, ValueError):
    """An argument has a value that the function does not take."""


@met_by("phalanx.jit(3)", expected="a function")
class ArgumentTypeError(PhalanxError, TypeError):
    """An argument has a type that the function does not take."""


@met_by('(b,) = phalanx.export.symbolic_shape("b")', "b > 3", where="comparison of symbolic dimensions")
class InconclusiveDimensionOperation(PhalanxError, TypeError, ValueError):
    """A question about symbolic dimensions has different answers for different values of the variables."""
