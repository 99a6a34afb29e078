"""Conversion of arguments to arrays, promotion of their dtypes, and checks that many functions share.

Every function of `numpy` begins with `to_operand` or `promote`. Python scalars stay scalars as long as possible: as
NumPy scalars they become literals of the jaxpr, and their weak type takes part in promotion.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import (
    ArgumentError,
    ArgumentTypeError,
    ConcretizationTypeError,
    ConstantFoldingTrace,
    DTypeError,
    ShapedArray,
    ShapeError,
    StagedTracer,
    StagingTrace,
    TracerIntegerConversionError,
    dtypes,
    get_aval,
    host_scalar,
    promotion,
    state,
)
from phalanx.runtime import transfer
from phalanx.symbolic import is_symbolic, static_size
from phalanx.typing import Array, ArrayLike, DTypeLike

SCALAR_KINDS = frozenset({bool, int, float, complex})
_CONVERSIONS = ("__phalanx_array__", "__jax_array__")


def aval_or_scalar_type(x: ArrayLike, where: str) -> Any:
    """The abstract value of an array, or the class of a Python scalar: the part of an operand that plans depend on.

    Raises:
      ArgumentTypeError: `x` is neither, for example a list.
    """
    aval = getattr(x, "aval", None)
    if aval is not None:
        return aval
    kind = type(x)
    if kind in SCALAR_KINDS:
        return kind
    if isinstance(x, np.ndarray | np.generic | bool | int | float | complex) or is_symbolic(x):
        return get_aval(x)
    raise ArgumentTypeError(
        where,
        expected="an array or a scalar",
        got=_describe(x),
        fix="convert it with phalanx.numpy.asarray" if x is not None else "give the argument",
    )


def _describe(x: Array) -> str:
    """Describe an invalid operand. Long lists and lists of tracers are described by their length only."""
    if isinstance(x, list | tuple) and (len(x) > 20 or any(hasattr(v, "aval") or type(v) is type(x) for v in x)):
        return f"a {type(x).__name__} of length {len(x)}"
    return f"{x!r} of type {type(x).__name__}"


def unwrap_array_like(x: ArrayLike) -> Any:
    """The array that an object converts itself to by `__phalanx_array__` or `__jax_array__`; otherwise the object."""
    for name in _CONVERSIONS:
        if hasattr(x, name):
            return getattr(x, name)()
    return x


def to_operand(x: ArrayLike, where: str) -> Any:
    """Convert an argument to an array. NumPy data of rank 0 are kept: a jaxpr holds them as literals.

    Raises:
      ArgumentTypeError: `x` is not an array or a scalar.
    """
    if getattr(x, "aval", None) is not None:
        return x
    x = to_host_operand(x, where)
    return as_array(x) if isinstance(x, np.ndarray) and x.ndim else x


def to_host_operand(x: ArrayLike, where: str) -> Any:
    """Convert an argument to an array, but keep NumPy data on the host, where their values are known while tracing.

    Raises:
      ArgumentTypeError: `x` is not an array or a scalar.
    """
    if getattr(x, "aval", None) is not None:
        return x
    if isinstance(x, np.ndarray | np.generic):
        aval = get_aval(x)
        return x if x.dtype == aval.dtype and isinstance(x, np.ndarray) else np.asarray(x, aval.dtype)
    # Objects with `__phalanx_array__` or `__jax_array__` convert themselves.
    x = unwrap_array_like(x)
    kind = aval_or_scalar_type(x, where)
    if kind in SCALAR_KINDS or not isinstance(kind, ShapedArray):
        return cast(x, get_aval(x).dtype, kind is not bool)
    return x if getattr(x, "aval", None) is not None else to_host_operand(x, where)


def cast(x: ArrayLike, dtype: DTypeLike, weak: bool = False) -> Any:
    """Cast `x` to a dtype and a weak type. No operation is emitted if nothing changes."""
    # A constant is converted on the host: no operation is recorded.
    if type(x) in SCALAR_KINDS and not weak:
        return to_numpy_scalar(x, dtype)
    aval = getattr(x, "aval", None)
    if aval is not None and aval.dtype == dtype and aval.weak_type == weak:
        return x
    return lax.convert_element_type_p(x, dtype=np.dtype(dtype), weak_type=weak)


def to_numpy_scalar(x: ArrayLike, dtype: DTypeLike) -> Any:
    """Convert a Python scalar to a NumPy scalar. An integer that fits the default dtype wraps around in a narrower one.

    Raises:
      OverflowError: an integer fits neither dtype.
    """
    try:
        return dtype.type(x)
    # NumPy 2 rejects integers that a narrow dtype cannot represent; JAX and older NumPy wrap them around.
    except (OverflowError, TypeError):
        if isinstance(x, int):
            x = dtypes.canonicalize_dtype(int).type(x)
        return np.asarray(x).astype(dtype)[()]


def result_dtype(xs: Sequence[Any]) -> tuple[Any, bool]:
    """The dtype to which operands promote, and whether it is weak."""
    return promotion.result_type(*xs, return_weak_type=True)


def promote(where: str, *xs: Any) -> list:
    """Convert operands to arrays of their promoted dtype. Python scalars become NumPy scalars."""
    xs = tuple(to_operand(x, where) if type(x) not in SCALAR_KINDS else x for x in xs)
    # If all operands have one dtype and one weak type, which is the most frequent case, there is nothing to promote.
    first = getattr(xs[0], "aval", None)
    if first is not None:
        for x in xs:
            aval = getattr(x, "aval", None)
            if aval is not first and (
                aval is None or aval.dtype != first.dtype or aval.weak_type is not first.weak_type
            ):
                break
        else:
            return list(xs)
    dtype, weak = result_dtype(xs)
    return [cast_to_common(x, dtype, weak) for x in xs]


def promote_inexact(where: str, *xs: Any) -> list:
    """Convert operands to arrays of one inexact dtype."""
    xs = tuple(to_operand(x, where) if type(x) not in SCALAR_KINDS else x for x in xs)
    dtype, weak = result_dtype(xs)
    return [cast_to_common(x, dtypes.to_inexact_dtype(dtype), weak) for x in xs]


def cast_to_common(x: ArrayLike, dtype: DTypeLike, weak: bool) -> Any:
    """Cast one operand of a promotion, unless its dtype is right and its weak type does not matter."""
    if type(x) in SCALAR_KINDS:
        return cast(x, dtype, weak)
    # A weak operand of the right dtype still needs a cast if the result is strong.
    return x if x.dtype == dtype and (weak or not getattr(x, "weak_type", False)) else cast(x, dtype, weak)


def refuse_out(out: None, where: str) -> None:
    """Check that no array to write into is passed.

    Raises:
      ArgumentError: `out` is given.
    """
    if out is not None:
        raise ArgumentError(
            f"{where}, argument out",
            expected="None, since arrays do not change",
            got="an array",
            fix="use the returned array",
        )


def as_tuple(x: ArrayLike) -> tuple | None:
    """A hashable copy of an optional sequence."""
    return None if x is None else tuple(x)


def to_static_int(x: ArrayLike, where: str, expected: str = "an integer", fix: str = "give a Python int") -> Any:
    """Convert an argument to a Python int; a symbolic dimension is kept.

    Raises:
      ArgumentTypeError: it is not an integer.
    """
    try:
        return static_size(x)
    except TracerIntegerConversionError:
        raise
    except TypeError:
        raise ArgumentTypeError(where, expected=expected, got=f"{x!r} of type {type(x).__name__}", fix=fix) from None


def concrete_or_none(x: ArrayLike) -> np.ndarray | None:
    """The value of `x` on the host, or None if it is traced."""
    if isinstance(x, np.ndarray | np.generic) or type(x) in SCALAR_KINDS:
        return np.asarray(x)
    if hasattr(x, "_trace"):
        x = x.concrete
        return None if x is None else concrete_or_none(x)
    return np.asarray(x)


def require_concrete(x: ArrayLike, where: str, expected: str, fix: str) -> np.ndarray:
    """The value of `x` on the host, where it decides the shape of a result.

    Raises:
      ConcretizationTypeError: `x` is traced.
    """
    known = concrete_or_none(x)
    if known is None:
        got = x.describe() if hasattr(x, "describe") else str(x)  # type: ignore[union-attr]
        raise ConcretizationTypeError(where, expected=expected, got=got, fix=fix)
    return known


def as_array(x: ArrayLike) -> Any:
    """Convert a host value to an array, or to a constant of the jaxpr that is being traced.

    A Python scalar becomes an array of weak type.
    """
    if hasattr(x, "aval"):
        return x
    aval = get_aval(x)
    # Constants belong to the innermost trace that records a jaxpr. A LinearTrace records tangents only, so that they
    # belong to a trace below it.
    trace = state.trace
    while trace is not None and type(trace) is not StagingTrace:
        trace = None if type(trace) is ConstantFoldingTrace else trace.parent
    if trace is None:
        return transfer.put(host_scalar(x, aval.dtype) if type(x) is int else np.asarray(x), None, aval)
    if not aval.shape:
        return lax.convert_element_type_p(x, dtype=aval.dtype, weak_type=aval.weak_type)
    return StagedTracer(trace, aval, trace.constant(np.asarray(x, aval.dtype)))


def refuse_inplace(inplace: bool, name: str) -> None:
    """Check that an update in place is not requested.

    Raises:
      ArgumentError: `inplace` is True.
    """
    if inplace:
        raise ArgumentError(
            f"{name}, argument inplace",
            expected="False, since arrays do not change",
            got=True,
            fix="give inplace=False and use the returned array",
        )


def check_choice(where: str, value: object, choices: Sequence[str | None]) -> None:
    """Check that an argument is one of a few strings, or None if that is one of them.

    Raises:
      ArgumentError: it is not.
    """
    if value not in choices:
        argument, names = where.rpartition(" ")[2], [repr(c) for c in choices if c is not None]
        raise ArgumentError(
            where,
            expected=f"{', '.join(names[:-1])} or {names[-1]}",
            got=repr(value),
            fix=f"pass {' or '.join(f'{argument}={name}' for name in names[:2])}",
        )


def check_vector(where: str, x: Array) -> None:
    """Check that an operand has rank 1.

    Raises:
      ShapeError: it has another rank.
    """
    if x.ndim != 1:
        raise ShapeError(
            where, expected="a vector", got=x.shape, fix="flatten it with .ravel(), or map over rows with phalanx.vmap"
        )


def check_integers(where: str, x: Array) -> None:
    """Check that an operand is of integers.

    Raises:
      DTypeError: it has another dtype.
    """
    if not dtypes.issubdtype(x.dtype, np.integer):
        raise DTypeError(where, expected="integers", got=str(x.dtype), fix="convert the indices with .astype(int)")
