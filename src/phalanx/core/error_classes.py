"""The error classes of Phalanx: each is a `PhalanxError` record and also the built-in exception that users would catch.

Classes that only one package raises are defined beside it; `phalanx.errors` re-exports all of them. The errors about
traced values have a constructor `of(tracer, origin)` with their text, so that tracers raise them in one short call.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Sequence
from typing import Any, Self

from phalanx.engine import (
    ArgumentError as ArgumentError,
    ArgumentTypeError as ArgumentTypeError,
    InconclusiveDimensionOperation as InconclusiveDimensionOperation,
    PhalanxError as PhalanxError,
    TransferError as TransferError,
    TreeError as TreeError,
    example as example,
)
from phalanx.engine.defining_module import public_in


@example("jnp.ones(2) + jnp.ones(3)", got="(2,) and (3,)")
class ShapeError(PhalanxError, TypeError, ValueError):
    """An operand has the wrong shape, rank, or dimension number."""


@example("phalanx.lax.sin(jnp.arange(2))", expected="an operand of a floating or complex dtype")
class DTypeError(PhalanxError, TypeError, ValueError):
    """An operand has the wrong element type."""


@example('with phalanx.numpy_dtype_promotion("strict"): jnp.ones(2) + jnp.arange(2)', got="float32 and int32")
class TypePromotionError(DTypeError):
    """Operands have dtypes that are not promoted to a common one."""


@example("jnp.sum(jnp.ones(2), axis=3)", expected="an axis of an array of rank 1")
class AxisError(PhalanxError, ValueError, IndexError):
    """A named axis, or a dimension of an array, does not exist."""


@example('phalanx.lax.psum(1.0, "i")', got="'i'")
class UnboundAxisError(AxisError, NameError):
    """A collective uses a named axis that is not in scope."""


@example(
    "from phalanx.sharding import AbstractMesh, NamedSharding, P",
    'NamedSharding(AbstractMesh((2,), ("x",)), P("y"))',
    expected="a spec over the axes of the mesh ('x')",
)
class ShardingError(PhalanxError, ValueError, TypeError):
    """A sharding, spec or mesh does not match the array, the other arguments or the devices."""


@public_in("phalanx.errors")
class MissingExtraError(PhalanxError, ImportError):
    """An optional dependency of Phalanx that a function needs is not installed.

    Args:
      where, expected, got, fix: as in `PhalanxError`.

    Examples:
      >>> issubclass(MissingExtraError, ImportError)
      True
    """


@public_in("phalanx.errors")
class ImportOrderError(PhalanxError, ImportError):
    """The names of a package were to be served by Phalanx after the package itself had been imported.

    Args:
      where, expected, got, fix: as in `PhalanxError`.

    Examples:
      >>> issubclass(ImportOrderError, ImportError)
      True
    """


@public_in("phalanx.errors")
class DLPackError(ShardingError, BufferError):
    """An array on several devices was exported through DLPack, which shares one buffer.

    Args:
      where, expected, got, fix: as in `PhalanxError`.

    Examples:
      >>> issubclass(DLPackError, BufferError)
      True
    """


@example('phalanx.grad(lambda x: "a")(1.0)', expected="an array or a scalar")
class TraceError(PhalanxError, TypeError):
    """A function cannot be traced, or a transformation cannot be applied to it."""


@example(
    "double = lambda x: phalanx.lax.while_loop(lambda x: x < 3, lambda x: 2 * x, x)",
    "phalanx.grad(double)(1.0)",
    expected="a loop with a number of iterations that is known while tracing",
)
class RuleError(PhalanxError, NotImplementedError, ValueError):
    """A primitive lacks a rule that a transformation needs."""


@example("phalanx.custom_vjp(lambda x: x)(1.0)", expected="a custom_vjp function with a derivative rule")
class UndefinedRuleError(TraceError, AttributeError):
    """A function with a custom derivative was called before its rule was defined."""


@example("jnp.sum('a')", expected="an array or a scalar")
class ConversionError(ArgumentTypeError, ArgumentError):
    """An argument cannot be converted to an array or an integer, or is not hashable.

    Python and libraries raise a TypeError or a ValueError for that.
    """


@example("jnp.sin(1.0, out=jnp.zeros(()))", expected="None, since arrays do not change")
class UnsupportedArgumentError(ArgumentError, TypeError, NotImplementedError):
    """An argument that NumPy's function of the same name has, such as `out`, is not supported."""


@example("phalanx.config.update('jax_unknown', 1)", got="'jax_unknown'")
class OptionNameError(ArgumentError, AttributeError):
    """There is no option of this name."""


@example("phalanx.debug.print('{x}', 1)", expected="a format string that matches the arguments")
class FormatError(ArgumentError, KeyError, IndexError):
    """A format string does not match the values to be printed."""


@public_in("phalanx.errors")
class ForbiddenError(PhalanxError, RuntimeError):
    """An option forbids the step that a call needs, such as tracing under `no_tracing`."""


@example("x = jnp.ones(2)", "x.delete()", "x + 1", got="f32[2], deleted or donated")
class DeletedArrayError(ArgumentError, RuntimeError):
    """An array was used after it was deleted or donated."""


@example("ref = phalanx.new_ref(1.0)", "phalanx.jit(lambda r: r)(ref)", got="a mutable array reference, Ref{f32[]}")
class RefError(ArgumentError, TypeError):
    """A mutable array reference was used where it must not be, or after it was invalidated."""


@public_in("phalanx.errors")
class TracedValueError(PhalanxError):
    """Base of the errors about operations that are impossible with a traced value."""

    _where = "conversion of a traced value to {use}"
    _use = "a Python value"
    _expected = "a value that is known while tracing"
    _fix: str

    @classmethod
    def of(cls, tracer: str, origin: str | None = None, *, use: str | None = None) -> Self:
        """Build the error for a traced value.

        Args:
          tracer: a description of the traced value, such as `"f32[3] traced by jit of f"`.
          origin: the source line that made the value, if it is known.
          use: the kind of value that it was to be converted to.

        Returns:
          The error, ready to be raised.
        """
        where = cls._where.format(use=use or cls._use)
        return cls(where, expected=cls._expected, got=_describe(tracer, origin), fix=cls._fix)


@example("phalanx.jit(lambda x: int(x))(1)", where="conversion of a traced value to int")
class ConcretizationTypeError(TracedValueError, TypeError):
    """The value of an array was needed while tracing, but is known only when the compiled function runs."""

    _fix = (
        "keep the computation in phalanx.numpy, or mark the argument it comes from as static "
        "(static_argnums or static_argnames)"
    )

    def __init__(self, where: Any = "", context: str = "", **fields: Any) -> None:
        # Libraries written for JAX pass a traced array and what it was needed for.
        super().__init__(f"{where!s}: {context}" if context else where, **fields)


@example("phalanx.jit(lambda x: 1 if x else 0)(1)", expected="a value that is known while tracing")
class TracerBoolConversionError(ConcretizationTypeError):
    """A traced value was used as a condition, by `if`, `while`, `and`, `or`, `not` or `bool()`."""

    _where = "conversion of a traced value to {use}, by if, while, and, or, not, or bool()"
    _use = "bool"
    _fix = (
        "choose with phalanx.numpy.where, lax.cond or lax.while_loop, "
        "or mark the argument it comes from as static (static_argnums or static_argnames)"
    )


@example(
    "import numpy as np",
    "phalanx.jit(lambda x: np.asarray(x))(1)",
    where="conversion of a traced value to a NumPy array",
)
class TracerArrayConversionError(ConcretizationTypeError):
    """A NumPy function was called on a traced value."""

    _use = "a NumPy array"
    _fix = (
        "call the phalanx.numpy function instead of the numpy one, index a phalanx array instead of a numpy "
        "one, or go to the host with pure_callback"
    )


@example('phalanx.jit(lambda i: ("a", "b")[i])(1)', expected="a value that is known while tracing")
class TracerIntegerConversionError(ConcretizationTypeError):
    """A traced value was used where Python needs an integer: as a size, a range or the index of a list."""

    _where = "conversion of a traced value to {use}, by a size, a range or an index into a Python sequence"
    _use = "an integer"
    _fix = (
        "mark the argument it comes from as static (static_argnums or static_argnames), "
        "turn the sequence into an array, or loop with lax.fori_loop"
    )


@example("kept = []", "_ = phalanx.jit(kept.append)(1)", "kept[0] + 1", where="use of a leaked tracer")
class UnexpectedTracerError(PhalanxError, TypeError):
    """A traced value was used after its transformation had ended, or in another thread."""

    @classmethod
    def of(cls, tracer: str, origin: str | None = None, *, function: str | None = None, has_ended: bool = True) -> Self:
        """Build the error for a leaked tracer.

        Args:
          tracer, origin: the tracer, and the line that made it.
          function: the name of the transformed function.
          has_ended: whether its transformation has ended.
        """
        source = f"the tracing of {function}" if function else "the transformation that made it"
        return cls(
            "use of a leaked tracer",
            expected=f"a value of the current computation, since {source} "
            + ("has ended" if has_ended else "goes on in another thread"),
            got=_describe(tracer, origin),
            fix="return the value from the transformed function instead of storing it in a global, an attribute or a "
            "closure; phalanx.checking_leaks() finds the line that stores it",
        )


def check_function(where: str, fun: Any) -> None:
    """Check that an argument of a transformation is callable.

    Args:
      where: the operation and argument, for the error.
      fun: the argument.

    Raises:
      ArgumentTypeError: `fun` is not callable.

    Examples:
      >>> check_function("f, argument fun", len)
    """
    if not callable(fun):
        raise ArgumentTypeError(
            where, expected="a function", got=repr(fun), fix="pass the function itself, not the result of calling it"
        )
    if inspect.isgeneratorfunction(fun):
        raise ArgumentTypeError(
            where, expected="a function", got=f"the generator function {fun!r}", fix="return a list instead of yielding"
        )


def is_sequence(given: Any) -> bool:
    """Whether an option is a sequence of positions, which means something else than a single position."""
    return hasattr(given, "__iter__") and getattr(given, "ndim", 1) > 0


def parse_positions(where: str, given: Any) -> tuple[int, ...]:
    """Convert the positions of arguments in an option: an integer of any type, or a sequence of them.

    Args:
      where: the operation and option, for the error.
      given: the user's value.

    Returns:
      The positions as ints.

    Raises:
      ArgumentTypeError: `given` is neither.

    Examples:
      >>> parse_positions("jit, static_argnums", [0, 2])
      (0, 2)
    """
    try:
        return tuple(map(operator.index, given if is_sequence(given) else (given,)))
    except TypeError:
        fix = "give positions, counted from 0"
        raise ArgumentTypeError(where, expected="an int, or a sequence of them", got=repr(given), fix=fix) from None


def normalize_positions(where: str, numbers: Sequence[int], count: int, given: Any, fix: str) -> list[int]:
    """Convert positions that may be negative to positions counted from the first of `count` positional arguments.

    Args:
      where: the operation and option, for the error.
      numbers: the positions, from `parse_positions`.
      count: the number of positional arguments.
      given: the user's value, for the error.
      fix: the remedy for positions out of range, for the error.

    Raises:
      ConversionError: a position is out of range.
    """
    if any(not -count <= n < count for n in numbers):
        expected = f"positions below {count}, the number of positional arguments"
        raise ConversionError(where, expected=expected, got=repr(given), fix=fix)
    return [n % count for n in numbers]


def check_axis_name(where: str, name: Any) -> None:
    """Check that a value can be the name of an axis.

    Raises:
      ArgumentTypeError: `name` is not hashable.
    """
    try:
        hash(name)
    except TypeError:
        raise ArgumentTypeError(
            where, expected="one name, such as 'batch'", got=repr(name), fix="pass a string or another hashable value"
        ) from None


def _describe(tracer: str, origin: str | None) -> str:
    """Describe a traced value and the line that made it."""
    return f"{tracer}, made at {origin}" if origin else tracer
