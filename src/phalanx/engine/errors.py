"""The shape of every Phalanx error: a record of four fields. All classes users meet are in `phalanx.core.errors`.

It stands on the lowest floor so that `engine`, `tree` and everything above raise records of the same form; the classes
that the rooms below `core` raise themselves stand here too.
"""

from __future__ import annotations

from typing import Any


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


class TreeError(PhalanxError, TypeError, ValueError):
    """A pytree does not have the structure asked for.

    Args:
      where, expected, got, mend: as in `PhalanxError`.

    Examples:
      >>> import phalanx
      >>> try:
      ...     phalanx.tree.map(lambda x, y: x, [1], [1, 2])
      ... except phalanx.errors.TreeError as error:
      ...     print(error.expected)
      a list of length 1
    """


class ArgumentError(PhalanxError, ValueError):
    """An argument has a value that the function does not take.

    Args:
      where, expected, got, mend: as in `PhalanxError`.

    Examples:
      >>> import phalanx
      >>> try:
      ...     phalanx.config.update("enable_x64", "maybe")
      ... except phalanx.errors.ArgumentError as error:
      ...     print(error.expected)
      True or False
    """


class ArgumentTypeError(PhalanxError, TypeError):
    """An argument has a type that the function does not take.

    Args:
      where, expected, got, mend: as in `PhalanxError`.

    Examples:
      >>> import phalanx
      >>> try:
      ...     phalanx.jit(3)
      ... except phalanx.errors.ArgumentTypeError as error:
      ...     print(error.expected)
      a function
    """


class InconclusiveDimensionOperation(PhalanxError, TypeError, ValueError):
    """A question about symbolic dimensions has different answers for different values of the variables.

    Args:
      where, expected, got, mend: as in `PhalanxError`.

    Examples:
      >>> import phalanx
      >>> (b,) = phalanx.export.symbolic_shape("b")
      >>> try:
      ...     b > 3
      ... except phalanx.errors.InconclusiveDimensionOperation as error:
      ...     print(error.where)
      comparison of symbolic dimensions
    """
