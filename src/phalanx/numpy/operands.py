"""Conversion, promotion and checking of arguments; the lowest layer of `numpy`.

Every function of `numpy` begins with `to_operand` or `promote`. Python scalars stay scalars as long as possible: as
NumPy scalars they become literals of the jaxpr, and their weak type takes part in promotion. Then come the checks that
many functions share, NumPy's broadcasting rules, and the validation of `axis` and `shape` arguments.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import (
    ArgumentError,
    AxisError,
    ConcretizationTypeError,
    ConstantFoldingTrace,
    ConversionError,
    DTypeError,
    ShapedArray,
    ShapeError,
    StagedTracer,
    StagingTrace,
    TracerIntegerConversionError,
    UnsupportedArgumentError,
    config,
    dtypes,
    get_aval,
    host_scalar,
    is_sequence,
    promotion,
    state,
    unwrap_array_like,
    user_stacklevel,
)
from phalanx.runtime import transfer
from phalanx.symbolic import is_symbolic, static_size
from phalanx.typing import Array, ArrayLike, Axis, DimSize, DTypeLike, Shape

SCALAR_KINDS = frozenset({bool, int, float, complex})


def aval_or_scalar_type(x: ArrayLike, where: str) -> Any:
    """The abstract value of an array, or the class of a Python scalar: the part of an operand that plans depend on.

    Raises:
      ConversionError: `x` is neither, for example a list.
    """
    aval = getattr(x, "aval", None)
    if aval is not None:
        return aval
    kind = type(x)
    if kind in SCALAR_KINDS:
        return kind
    if isinstance(x, np.ndarray | np.generic | bool | int | float | complex) or is_symbolic(x):
        return get_aval(x)
    raise ConversionError(
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


def to_operand(x: ArrayLike, where: str) -> Any:
    """Convert an argument to an array. NumPy data of rank 0 are kept: a jaxpr holds them as literals.

    Raises:
      ConversionError: `x` is not an array or a scalar.
    """
    if getattr(x, "aval", None) is not None:
        return x
    x = to_host_operand(x, where)
    return as_array(x) if isinstance(x, np.ndarray) and x.ndim else x


def to_host_operand(x: ArrayLike, where: str) -> Any:
    """Convert an argument to an array, but keep NumPy data on the host, where their values are known while tracing.

    Raises:
      ConversionError: `x` is not an array or a scalar.
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
    if isinstance(x, int | float | complex):  # an instance of a subclass, such as a member of an IntEnum
        x = next(number for number in (int, float, complex) if isinstance(x, number))(x)
    return x if getattr(x, "aval", None) is not None else to_host_operand(x, where)


def from_list(x: Any) -> Any:
    """The NumPy data of a list or tuple of numbers, and anything else as it is.

    Raises:
      OverflowError: an integer does not fit into the dtype that an array of it has. A conversion would wrap it.
    """
    if not isinstance(x, list | tuple):
        return x
    value = np.asarray(x)
    dtype = dtypes.canonicalize_dtype(value.dtype) if value.dtype.kind in "iu" else value.dtype
    return value if dtype == value.dtype else np.asarray(x, dtype)


def cast(x: ArrayLike, dtype: DTypeLike, weak: bool = False) -> Any:
    """Cast `x` to a dtype and a weak type. No operation is emitted if nothing changes."""
    # A constant is converted on the host: no operation is recorded.
    if type(x) in SCALAR_KINDS and not weak:
        return to_numpy_scalar(x, dtype)
    aval = getattr(x, "aval", None)
    if aval is not None and aval.dtype == dtype and aval.weak_type == weak:
        return x
    if aval is not None and aval.dtype.kind == "c":
        dtypes.check_conversion(x, aval.dtype, dtype)
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
        elif type(x) is complex:
            dtypes.check_conversion(x, np.dtype(complex), dtype)
        return np.asarray(x).astype(dtype)[()]


def result_dtype(xs: Sequence[Any]) -> tuple[Any, bool]:
    """The dtype to which operands promote, and whether it is weak."""
    return promotion.result_type(*xs, return_weak_type_flag=True)


def promote(where: str, *xs: Any) -> list:
    """Convert operands to arrays of their promoted dtype. Python scalars become NumPy scalars."""
    operands = [to_operand(x, where) if type(x) not in SCALAR_KINDS else x for x in xs]
    # If all operands have one dtype and one weak type, which is the most frequent case, there is nothing to promote.
    first = getattr(operands[0], "aval", None)
    if first is not None:
        for x in operands[1:]:
            aval = getattr(x, "aval", None)
            if aval is not first and (
                aval is None or aval.dtype != first.dtype or aval.weak_type is not first.weak_type
            ):
                break
        else:
            return operands
    dtype, weak = result_dtype(operands)
    return [cast_to_common(x, dtype, weak) for x in operands]


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
      UnsupportedArgumentError: `out` is given.
    """
    if out is not None:
        raise UnsupportedArgumentError(
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
      ConversionError: it is not an integer.
    """
    try:
        return static_size(x)
    except TracerIntegerConversionError:
        raise
    except TypeError:
        raise ConversionError(where, expected=expected, got=f"{x!r} of type {type(x).__name__}", fix=fix) from None


def widen_indices(x: Any, size: DimSize) -> Any:
    """Convert integers of fewer than 32 bits to int32, unless their dtype can represent `size`."""
    if type(x) in SCALAR_KINDS or x.dtype.itemsize >= 4 or not dtypes.issubdtype(x.dtype, np.integer):
        return x
    return x if not is_symbolic(size) and size <= dtypes.iinfo(x.dtype).max else x.astype(np.int32)


def complex_result_dtype(dtype: np.dtype) -> np.dtype:
    """The complex dtype that holds the values of an inexact dtype: complex128 for 64-bit parts, else complex64."""
    return np.dtype(np.complex128 if dtype in (np.float64, np.complex128) else np.complex64)


def concrete_or_none(x: ArrayLike) -> np.ndarray | None:
    """The value of `x` on the host, or None if it is traced."""
    if isinstance(x, np.ndarray | np.generic) or type(x) in SCALAR_KINDS:
        return np.asarray(x)
    if hasattr(x, "_trace"):
        x = x.concrete
        return None if x is None else concrete_or_none(x)
    held = unwrap_array_like(x)
    return np.asarray(x) if held is x else concrete_or_none(held)


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
        sharding, committed = transfer.default_placement()
        value = host_scalar(x, aval.dtype) if type(x) is int else np.asarray(x)
        return transfer.put(value, sharding, aval, committed)
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


def broadcast_shapes(*shapes: Sequence[Any], where: str = "broadcast_shapes") -> tuple:
    """The shape to which shapes broadcast by NumPy's rules.

    Args:
      shapes: tuples of dimensions, or single dimensions.
      where: name of the function for error messages.

    Returns:
      The common shape.

    Raises:
      ShapeError: two dimensions differ and neither is 1.

    Examples:
      >>> jnp.broadcast_shapes((3, 1), (4,))
      (3, 4)
    """
    tuples = [s if type(s) is tuple else tuple(s) if hasattr(s, "__iter__") else (s,) for s in shapes]
    # The most frequent call, for two operands of one shape.
    if len(tuples) == 2 and tuples[0] == tuples[1]:
        return tuples[0]
    ndim = max((len(s) for s in tuples), default=0)
    out = [1] * ndim
    for shape in tuples:
        for i, d in enumerate(shape, ndim - len(shape)):
            if type(out[i]) is int and out[i] == 1:
                out[i] = d
            # Comparing a symbolic dimension with another one may raise if the answer depends on sizes: test for 1
            # first.
            elif not (type(d) is int and d == 1) and d != out[i]:
                raise ShapeError(
                    where,
                    expected="shapes that broadcast: equal dimensions, or 1",
                    got=" and ".join(str(tuple(s)) for s in tuples),
                    fix="reshape one operand, or insert dimensions with x[:, None]",
                )
    return tuple(out)


def check_rank_promotion(where: str, shapes: Sequence[tuple]) -> None:
    """Raise or warn if operands have different ranks, as the option `numpy_rank_promotion` requests."""
    if config.numpy_rank_promotion == "allow" or len({len(s) for s in shapes if s}) <= 1:
        return
    if config.numpy_rank_promotion == "raise":
        raise ShapeError(
            where,
            expected="operands of one rank, since numpy_rank_promotion is 'raise'",
            got=", ".join(map(str, shapes)),
            fix="reshape the smaller operand, or set numpy_rank_promotion to 'allow'",
        )
    warnings.warn(f"{where}: ranks are promoted for shapes {', '.join(map(str, shapes))}", stacklevel=user_stacklevel())


def broadcast_to_shape(x: ArrayLike, shape: tuple) -> Any:
    """Broadcast `x` to `shape`, or return it if it has that shape."""
    own = np.shape(x) if not hasattr(x, "shape") else x.shape
    if own == shape:
        return x
    # NumPy aligns shapes at their last dimension.
    lead = len(shape) - len(own)
    return lax.broadcast_in_dim_p(x, shape=shape, dims=tuple(range(lead, len(shape))))


def broadcast_operands(where: str, *xs: Any) -> list:
    """Broadcast operands to one shape."""
    shapes = [x.shape if hasattr(x, "shape") else () for x in xs]
    shape = broadcast_shapes(*shapes, where=where)
    check_rank_promotion(where, shapes)
    return [broadcast_to_shape(x, shape) for x in xs]


def align_ranks(*xs: Any) -> list:
    """Give operands the highest rank among them by leading dimensions of size 1, as NumPy does to broadcast them.

    For functions that are defined to broadcast, also where `numpy_rank_promotion` forbids it for the user's operators.
    """
    ndim = max(map(np.ndim, xs))
    return [lax.expand_dims(x, range(ndim - np.ndim(x))) if np.ndim(x) < ndim else x for x in xs]


def canonical_axis(axis: int, ndim: int, where: str) -> int:
    """An axis as a non-negative position.

    Raises:
      AxisError: the axis is out of range.
    """
    axis = to_static_int(axis, f"{where}, argument axis", fix="give the axis as a Python int")
    if not -ndim <= axis < ndim:
        raise AxisError(
            f"{where}, argument axis",
            expected=f"an axis of an array of rank {ndim}",
            got=axis,
            fix=f"give an integer from {-ndim} to {ndim - 1}" if ndim else "give the array at least one dimension",
        )
    return axis + ndim if axis < 0 else axis


def canonical_axes(axis: Axis, ndim: int, where: str) -> tuple[int, ...]:
    """Axes as non-negative positions; None means all.

    Raises:
      AxisError: an axis is out of range, or is given twice.
    """
    if axis is None:
        return tuple(range(ndim))
    if type(axis) is not int and is_sequence(axis):
        axes = tuple(canonical_axis(a, ndim, where) for a in axis)
        if len(set(axes)) != len(axes):
            raise AxisError(
                f"{where}, argument axis", expected="different axes", got=tuple(axis), fix="name each axis once"
            )
        return axes
    return (canonical_axis(axis, ndim, where),)


def flatten_without_axis(x: Array, axis: int | None, where: str) -> tuple[Array, int]:
    """Flatten `x` if `axis` is None; return it and the axis as a non-negative position.

    Raises:
      AxisError: the axis is out of range.
    """
    if axis is None:
        return (lax.reshape(x, (math.prod(x.shape),)) if x.ndim != 1 else x), 0
    return x, canonical_axis(axis, x.ndim, where)


def canonical_shape(shape: Shape, where: str) -> tuple:
    """A shape as a tuple. A single int or symbolic dimension is a shape of rank 1.

    Raises:
      ArgumentTypeError: an entry is not an integer.
    """
    if type(shape) is tuple and all(type(d) is int for d in shape):
        return shape
    if not is_sequence(shape):
        shape = (shape,)
    told = f"{where}, argument shape"
    return tuple(to_static_int(d, told, "integers", "give the shape as a tuple of Python ints") for d in shape)
