"""The error classes users meet: each is a `PhalanxError` record and the built-in exception one would catch.

Builds on `phalanx.engine.errors`; every room above raises these, and has the classes beside it that it alone raises;
`phalanx.errors` has the names of all. The classes about traced values have a
constructor `of(tracer, origin)` which holds their text, so that tracers raise them in one short call.
"""

from __future__ import annotations

import operator
from typing import Any, Self

from phalanx.engine.errors import ArgumentError as ArgumentError
from phalanx.engine.errors import ArgumentTypeError as ArgumentTypeError
from phalanx.engine.errors import InconclusiveDimensionOperation as InconclusiveDimensionOperation
from phalanx.engine.errors import PhalanxError as PhalanxError
from phalanx.engine.errors import TreeError as TreeError
from phalanx.engine.guards import TransferError as TransferError


class ShapeError(PhalanxError, TypeError, ValueError):
    """An operand has the wrong shape, rank, or dimension number.

    Args:
      where, expected, got, mend: as in `PhalanxError`.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> try:
      ...     jnp.ones(2) + jnp.ones(3)
      ... except phalanx.errors.ShapeError as error:
      ...     print(error.got)
      (2,) and (3,)
    """


class DTypeError(PhalanxError, TypeError):
    """An operand has the wrong element type.

    Args:
      where, expected, got, mend: as in `PhalanxError`.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> try:
      ...     phalanx.lax.sin(jnp.arange(2))
      ... except phalanx.errors.DTypeError as error:
      ...     print(error.expected)
      an operand of a floating or complex dtype
    """


class TypePromotionError(DTypeError, ValueError):
    """Operands have dtypes that are not converted to a common one by themselves.

    Args:
      where, expected, got, mend: as in `PhalanxError`.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> try:
      ...     with phalanx.numpy_dtype_promotion("strict"):
      ...         jnp.ones(2) + jnp.arange(2)
      ... except phalanx.errors.TypePromotionError as error:
      ...     print(error.got)
      float32 and int32
    """


class AxisError(PhalanxError, ValueError):
    """A named axis, or a position along the dimensions of an array, does not exist.

    Args:
      where, expected, got, mend: as in `PhalanxError`.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> try:
      ...     jnp.sum(jnp.ones(2), axis=3)
      ... except phalanx.errors.AxisError as error:
      ...     print(error.expected)
      an axis of an array of rank 1
    """


class UnboundAxisError(AxisError, NameError):
    """A collective names an axis that no transformation around it has.

    Args:
      where, expected, got, mend: as in `PhalanxError`.

    Examples:
      >>> import phalanx
      >>> try:
      ...     phalanx.lax.psum(1.0, "i")
      ... except phalanx.errors.UnboundAxisError as error:
      ...     print(error.got)
      'i'
    """


class ShardingError(PhalanxError, ValueError):
    """A sharding, spec or mesh does not fit the array, the other arguments or the devices.

    Args:
      where, expected, got, mend: as in `PhalanxError`.

    Examples:
      >>> import phalanx
      >>> from phalanx.sharding import AbstractMesh, NamedSharding, P
      >>> try:
      ...     NamedSharding(AbstractMesh((2,), ("x",)), P("y"))
      ... except phalanx.errors.ShardingError as error:
      ...     print(error.expected)
      a spec over the axes of the mesh ('x')
    """


class DLPackError(ShardingError, BufferError):
    """An array was asked for through DLPack that has no one buffer to share.

    Args:
      where, expected, got, mend: as in `PhalanxError`.

    Examples:
      >>> issubclass(DLPackError, BufferError)
      True
    """


class TraceError(PhalanxError, TypeError):
    """A function cannot be traced or transformed as asked.

    Args:
      where, expected, got, mend: as in `PhalanxError`.

    Examples:
      >>> import phalanx
      >>> try:
      ...     phalanx.grad(lambda x: "a")(1.0)
      ... except phalanx.errors.TraceError as error:
      ...     print(error.expected)
      an array or a scalar
    """


class RuleError(PhalanxError, NotImplementedError):
    """A primitive does not have the rule that a transformation needs.

    Args:
      where, expected, got, mend: as in `PhalanxError`.

    Examples:
      >>> import phalanx
      >>> double = lambda x: phalanx.lax.while_loop(lambda x: x < 3, lambda x: 2 * x, x)
      >>> try:
      ...     phalanx.grad(double)(1.0)
      ... except phalanx.errors.RuleError as error:
      ...     print(error.expected)
      a loop whose length is known while tracing
    """


class DeletedArrayError(ArgumentError, RuntimeError):
    """An array was used after it was deleted or donated.

    Args:
      where, expected, got, mend: as in `PhalanxError`.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> x = jnp.ones(2)
      >>> x.delete()
      >>> try:
      ...     x + 1
      ... except phalanx.errors.DeletedArrayError as error:
      ...     print(error.got)
      f32[2], deleted or donated
    """


class TracedValueError(PhalanxError):
    """Base of the errors for what cannot be done with a traced value; each class says what and how to mend it."""

    _where = "conversion of a traced value to {use}"
    _use = "a Python value"
    _expected = "a value that is known while tracing"
    _mend: str

    @classmethod
    def of(cls, tracer: str, origin: str | None = None, *, use: str | None = None) -> Self:
        """Build the error for a traced value.

        Args:
          tracer: the traced value in words, such as `"f32[3] traced by jit of f"`.
          origin: the source line that made the value, if it is known.
          use: what the value was asked to become.

        Returns:
          The error, to be raised.
        """
        where = cls._where.format(use=use or cls._use)
        return cls(where, expected=cls._expected, got=_described(tracer, origin), mend=cls._mend)


class ConcretizationTypeError(TracedValueError, TypeError):
    """A value that exists only when the compiled program runs was asked for while tracing.

    Args:
      where, expected, got, mend: as in `PhalanxError`.

    Examples:
      >>> import phalanx
      >>> try:
      ...     phalanx.jit(lambda x: int(x))(1)
      ... except phalanx.errors.ConcretizationTypeError as error:
      ...     print(error.where)
      conversion of a traced value to int
    """

    _mend = (
        "keep the computation in phalanx.numpy, or mark the argument it comes from as static "
        "(static_argnums or static_argnames)"
    )


class TracerBoolConversionError(ConcretizationTypeError):
    """The truth of a traced value was asked for by `if`, `while`, `and`, `or`, `not` or `bool()`.

    Args:
      where, expected, got, mend: as in `PhalanxError`.

    Examples:
      >>> import phalanx
      >>> try:
      ...     phalanx.jit(lambda x: 1 if x else 0)(1)
      ... except phalanx.errors.TracerBoolConversionError as error:
      ...     print(error.expected)
      a value that is known while tracing
    """

    _where = "conversion of a traced value to {use}, by if, while, and, or, not, or bool()"
    _use = "bool"
    _mend = (
        "choose with phalanx.numpy.where, lax.cond or lax.while_loop, "
        "or mark the argument it comes from as static (static_argnums or static_argnames)"
    )


class TracerArrayConversionError(ConcretizationTypeError):
    """NumPy asked for the elements of a traced value.

    Args:
      where, expected, got, mend: as in `PhalanxError`.

    Examples:
      >>> import numpy as np, phalanx
      >>> try:
      ...     phalanx.jit(lambda x: np.asarray(x))(1)
      ... except phalanx.errors.TracerArrayConversionError as error:
      ...     print(error.where)
      conversion of a traced value to a NumPy array
    """

    _use = "a NumPy array"
    _mend = (
        "call the phalanx.numpy function instead of the numpy one, index a phalanx array instead of a numpy "
        "one, or go to the host with pure_callback"
    )


class TracerIntegerConversionError(ConcretizationTypeError):
    """A traced value was used where Python wants an integer: a size, a range, a list index.

    Args:
      where, expected, got, mend: as in `PhalanxError`.

    Examples:
      >>> import phalanx
      >>> try:
      ...     phalanx.jit(lambda i: ("a", "b")[i])(1)
      ... except phalanx.errors.TracerIntegerConversionError as error:
      ...     print(error.expected)
      a value that is known while tracing
    """

    _where = "conversion of a traced value to {use}, by a size, a range or an index into a Python sequence"
    _use = "an integer"
    _mend = (
        "mark the argument it comes from as static (static_argnums or static_argnames), "
        "turn the sequence into an array, or loop with lax.fori_loop"
    )


class UnexpectedTracerError(PhalanxError, TypeError):
    """A traced value was used after the transformation that made it had ended.

    Args:
      where, expected, got, mend: as in `PhalanxError`.

    Examples:
      >>> import phalanx
      >>> kept = []
      >>> _ = phalanx.jit(kept.append)(1)
      >>> try:
      ...     kept[0] + 1
      ... except phalanx.errors.UnexpectedTracerError as error:
      ...     print(error.where)
      use of a leaked tracer
    """

    @classmethod
    def of(cls, tracer: str, origin: str | None = None, *, function: str | None = None) -> Self:
        """Build the error for a leaked tracer, of the transformed function of that name; as in other errors."""
        source = f"the tracing of {function}" if function else "the transformation that made it"
        return cls(
            "use of a leaked tracer",
            expected=f"a value of the computation at hand, since {source} has ended",
            got=_described(tracer, origin),
            mend="return the value from the transformed function instead of storing it in a global, an attribute or a "
            "closure; phalanx.checking_leaks() finds the line that stores it",
        )


def check_function(where: str, fun: Any) -> None:
    """Refuse what cannot be called where a transformation takes a function.

    Args:
      where: the operation and argument, for the error.
      fun: what should be a function.

    Raises:
      ArgumentTypeError: `fun` is not callable.

    Examples:
      >>> check_function("f, argument fun", len)
    """
    if not callable(fun):
        raise ArgumentTypeError(where, expected="a function", got=repr(fun), mend="pass a function")


def is_sequence(given: Any) -> bool:
    """Whether an option gives several positions; one of them is another wish than one position."""
    return hasattr(given, "__iter__") and getattr(given, "ndim", 1) > 0


def positions(where: str, given: Any) -> tuple[int, ...]:
    """Positions of arguments that an option gives: one, or a sequence of them, of any type of integers.

    Args:
      where: the operation and option, for the error.
      given: what the user gave.

    Returns:
      The positions as ints.

    Raises:
      ArgumentTypeError: something else was given.

    Examples:
      >>> positions("jit, static_argnums", [0, 2])
      (0, 2)
    """
    try:
        return tuple(map(operator.index, given if is_sequence(given) else (given,)))
    except TypeError:
        mend = "give positions, counted from 0"
        raise ArgumentTypeError(where, expected="an int, or a sequence of them", got=repr(given), mend=mend) from None


def check_axis_name(where: str, name: Any) -> None:
    """Refuse what can be no name of an axis.

    Raises:
      ArgumentTypeError: `name` is not hashable.
    """
    try:
        hash(name)
    except TypeError:
        raise ArgumentTypeError(
            where, expected="one name, such as 'batch'", got=repr(name), mend="pass a str"
        ) from None


def _described(tracer: str, origin: str | None) -> str:
    """Name a traced value and the line that made it."""
    return f"{tracer}, made at {origin}" if origin else tracer
