"""The error classes users meet: each is a `PhalanxError` record and the built-in exception one would catch.

Builds on `phalanx.engine.errors`; every room above raises these, and has the classes beside it that it alone raises;
`phalanx.errors` has the names of all. The classes about traced values have a constructor `of(tracer, origin)` which
holds their text, so that tracers raise them in one short call.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Self

from phalanx.engine.errors import ArgumentError as ArgumentError
from phalanx.engine.errors import ArgumentTypeError as ArgumentTypeError
from phalanx.engine.errors import InconclusiveDimensionOperation as InconclusiveDimensionOperation
from phalanx.engine.errors import PhalanxError as PhalanxError
from phalanx.engine.errors import TreeError as TreeError
from phalanx.engine.errors import met_by as met_by
from phalanx.engine.guards import TransferError as TransferError


@met_by("jnp.ones(2) + jnp.ones(3)", got="(2,) and (3,)")
class ShapeError(PhalanxError, TypeError, ValueError):
    """An operand has the wrong shape, rank, or dimension number."""


@met_by("phalanx.lax.sin(jnp.arange(2))", expected="an operand of a floating or complex dtype")
class DTypeError(PhalanxError, TypeError):
    """An operand has the wrong element type."""


@met_by('with phalanx.numpy_dtype_promotion("strict"): jnp.ones(2) + jnp.arange(2)', got="float32 and int32")
class TypePromotionError(DTypeError, ValueError):
    """Operands have dtypes that are not converted to a common one by themselves."""


@met_by("jnp.sum(jnp.ones(2), axis=3)", expected="an axis of an array of rank 1")
class AxisError(PhalanxError, ValueError, IndexError):
    """A named axis, or a position along the dimensions of an array, does not exist."""


@met_by('phalanx.lax.psum(1.0, "i")', got="'i'")
class UnboundAxisError(AxisError, NameError):
    """A collective names an axis that no transformation around it has."""


@met_by(
    "from phalanx.sharding import AbstractMesh, NamedSharding, P",
    'NamedSharding(AbstractMesh((2,), ("x",)), P("y"))',
    expected="a spec over the axes of the mesh ('x')",
)
class ShardingError(PhalanxError, ValueError):
    """A sharding, spec or mesh does not fit the array, the other arguments or the devices."""


class DLPackError(ShardingError, BufferError):
    """An array was asked for through DLPack that has no one buffer to share.

    Args:
      where, expected, got, mend: as in `PhalanxError`.

    Examples:
      >>> issubclass(DLPackError, BufferError)
      True
    """


@met_by('phalanx.grad(lambda x: "a")(1.0)', expected="an array or a scalar")
class TraceError(PhalanxError, TypeError):
    """A function cannot be traced or transformed as asked."""


@met_by(
    "double = lambda x: phalanx.lax.while_loop(lambda x: x < 3, lambda x: 2 * x, x)",
    "phalanx.grad(double)(1.0)",
    expected="a loop whose length is known while tracing",
)
class RuleError(PhalanxError, NotImplementedError):
    """A primitive does not have the rule that a transformation needs."""


@met_by("x = jnp.ones(2)", "x.delete()", "x + 1", got="f32[2], deleted or donated")
class DeletedArrayError(ArgumentError, RuntimeError):
    """An array was used after it was deleted or donated."""


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


@met_by("phalanx.jit(lambda x: int(x))(1)", where="conversion of a traced value to int")
class ConcretizationTypeError(TracedValueError, TypeError):
    """A value that exists only when the compiled program runs was asked for while tracing."""

    _mend = (
        "keep the computation in phalanx.numpy, or mark the argument it comes from as static "
        "(static_argnums or static_argnames)"
    )


@met_by("phalanx.jit(lambda x: 1 if x else 0)(1)", expected="a value that is known while tracing")
class TracerBoolConversionError(ConcretizationTypeError):
    """The truth of a traced value was asked for by `if`, `while`, `and`, `or`, `not` or `bool()`."""

    _where = "conversion of a traced value to {use}, by if, while, and, or, not, or bool()"
    _use = "bool"
    _mend = (
        "choose with phalanx.numpy.where, lax.cond or lax.while_loop, "
        "or mark the argument it comes from as static (static_argnums or static_argnames)"
    )


@met_by(
    "import numpy as np",
    "phalanx.jit(lambda x: np.asarray(x))(1)",
    where="conversion of a traced value to a NumPy array",
)
class TracerArrayConversionError(ConcretizationTypeError):
    """NumPy asked for the elements of a traced value."""

    _use = "a NumPy array"
    _mend = (
        "call the phalanx.numpy function instead of the numpy one, index a phalanx array instead of a numpy "
        "one, or go to the host with pure_callback"
    )


@met_by('phalanx.jit(lambda i: ("a", "b")[i])(1)', expected="a value that is known while tracing")
class TracerIntegerConversionError(ConcretizationTypeError):
    """A traced value was used where Python wants an integer: a size, a range, a list index."""

    _where = "conversion of a traced value to {use}, by a size, a range or an index into a Python sequence"
    _use = "an integer"
    _mend = (
        "mark the argument it comes from as static (static_argnums or static_argnames), "
        "turn the sequence into an array, or loop with lax.fori_loop"
    )


@met_by("kept = []", "_ = phalanx.jit(kept.append)(1)", "kept[0] + 1", where="use of a leaked tracer")
class UnexpectedTracerError(PhalanxError, TypeError):
    """A traced value was used after the transformation that made it had ended."""

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


def places(where: str, numbers: Sequence[int], count: int, given: Any, mend: str) -> list[int]:
    """Positions among so many positional arguments, counted from the first.

    Args:
      where: the operation and option, for the error.
      numbers: the positions, as `positions` gives them.
      count: the number of positional arguments.
      given, mend: what the user gave, and what to do about positions beyond these.

    Raises:
      ArgumentError: there are not so many.
    """
    if any(not -count <= n < count for n in numbers):
        expected = f"positions below {count}, the number of positional arguments"
        raise ArgumentError(where, expected=expected, got=repr(given), mend=mend)
    return [n % count for n in numbers]


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
