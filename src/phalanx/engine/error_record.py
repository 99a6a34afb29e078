"""The record of four fields that every Phalanx error is.

The lowest layer has it, so that all packages raise records of the same form. The classes that the packages below `core`
raise are defined in this module, too; `phalanx.core.error_classes` has the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from phalanx.engine.defining_module import public_in

E = TypeVar("E", bound=BaseException)


@public_in("phalanx.errors")
class PhalanxError(Exception):
    """Base of all errors that Phalanx raises on purpose: a place, the expectation, the actual value, and the fix.

    Libraries written for JAX raise some of these classes with a text or a traced array alone, which is then the whole
    message.

    Args:
      where: the operation and argument, as the user wrote them; or the text of an error without other fields.
      expected: a description of the values that are right, as a noun phrase.
      got: the actual value; a string is shown as it is, any other value by its `repr`.
      fix: the remedy, as an imperative.

    Examples:
      >>> print(PhalanxError("f, argument x", expected="an int", got="'a'", fix="pass a number"))
      f, argument x: expected an int, got 'a'.
        Fix: pass a number.
    """

    @overload
    def __init__(self, where: str = "") -> None: ...
    @overload
    def __init__(self, where: str, *, expected: str, got: Any, fix: str) -> None: ...
    def __init__(self, where: str = "", *, expected: str = "", got: Any = None, fix: str = "") -> None:
        self.where = str(where)
        super().__init__(self.where, expected, got, fix)
        self.expected = expected
        self.got = got
        self.fix = fix

    def __str__(self) -> str:
        if not self.expected:
            return self.where
        got = self.got if isinstance(self.got, str) else repr(self.got)
        return f"{self.where}: expected {self.expected}, got {got.rstrip('.')}.\n  Fix: {self.fix.rstrip('.')}."

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.where, self.expected, self.got, self.fix), self.__dict__


def _rebuild(cls: type[PhalanxError], where: str, expected: str, got: Any, fix: str) -> PhalanxError:
    """Call the keyword-only constructor with positional arguments, as pickle and copy do."""
    return cls(where, expected=expected, got=got, fix=fix)


def example(*lines: str, **field: str) -> Callable[[type[E]], type[E]]:
    """Publish an error class in `phalanx.errors`, and complete its docstring with a program that raises the error.

    Args:
      lines: the program, whose last line raises.
      **field: one field of the error, and its printed value.
    """
    (*before, line), ((name, printed),) = lines, field.items()

    def complete(cls: type[E]) -> type[E]:
        steps = "\n      ".join(f">>> {step}" for step in ("import phalanx, phalanx.numpy as jnp", *before))
        cls.__doc__ = f"""{cls.__doc__}

    Args:
      where, expected, got, fix: as in `PhalanxError`.

    Examples:
      {steps}
      >>> try:
      ...     {line}
      ... except phalanx.errors.{cls.__name__} as error:
      ...     print(error.{name})
      {printed}
    """
        return public_in("phalanx.errors")(cls)

    return complete


@example("phalanx.tree.map(lambda x, y: x, [1], [1, 2])", expected="a list of length 1")
class TreeError(PhalanxError, TypeError, ValueError):
    """A pytree does not have the expected structure."""


@example('phalanx.config.update("enable_x64", "maybe")', expected="True or False")
class ArgumentError(PhalanxError, ValueError):
    """An argument has a value that the function does not accept."""


@example("phalanx.jit(3)", expected="a function")
class ArgumentTypeError(PhalanxError, TypeError):
    """An argument has a type that the function does not accept."""


@example('(b,) = phalanx.export.symbolic_shape("b")', "b > 3", where="comparison of symbolic dimensions")
class InconclusiveDimensionOperation(PhalanxError, TypeError, ValueError):
    """A comparison of symbolic dimensions is true for some values of the variables and false for others."""


@public_in("phalanx.errors")
class CoordinationError(PhalanxError, RuntimeError):
    """The processes of a distributed program could not find each other, or lost the service that connects them.

    Args:
      where, expected, got, fix: as in `PhalanxError`.

    Examples:
      >>> issubclass(CoordinationError, RuntimeError)
      True
    """


@public_in("phalanx.errors")
class ProgramMismatchError(PhalanxError, RuntimeError):
    """The processes of a distributed program do not run the same program.

    Args:
      where, expected, got, fix: as in `PhalanxError`.

    Examples:
      >>> issubclass(ProgramMismatchError, RuntimeError)
      True
    """
