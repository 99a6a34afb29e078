"""Operands: what may stand as an array argument, and how several are brought to one dtype and one shape.

Plans made here are kept for ever under the abstract values they were made for, so that the second call alike is one
look-up. Built on `core` (dtypes, abstract values) and `lax`; every file of `numpy` calls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import dtypes, promotion
from phalanx.core.aval import ShapedArray, aval_of, host_scalar
from phalanx.core.config import config, state
from phalanx.core.errors import ArgumentError, ArgumentTypeError, AxisError, ShapeError, TracerIntegerConversionError
from phalanx.core.source import user_level
from phalanx.core.trace import StagedTracer, StagingTrace
from phalanx.runtime import placement
from phalanx.symbolic import is_symbolic, static_size

SCALAR_KINDS = frozenset({bool, int, float, complex})
_CONVERSIONS = ("__phalanx_array__", "__jax_array__")


def kind_of(x: Any, where: str) -> Any:
    """The abstract value of an array, or the class of a Python scalar: what a plan may depend on.

    Raises:
      ArgumentTypeError: `x` is neither, such as a list.
    """
    aval = getattr(x, "aval", None)
    if aval is not None:
        return aval
    kind = type(x)
    if kind in SCALAR_KINDS:
        return kind
    if isinstance(x, np.ndarray | np.generic | bool | int | float | complex) or is_symbolic(x):
        return aval_of(x)
    raise ArgumentTypeError(
        where, expected="an array or a scalar", got=_told(x),
        mend="convert it with phalanx.numpy.asarray" if x is not None else "give the argument",
    )  # fmt: skip


def _told(x: Any) -> str:
    """What is no array, as text: not the values of a long list, nor what tracing made of those of a short one."""
    if isinstance(x, list | tuple) and (len(x) > 20 or any(hasattr(v, "aval") or type(v) is type(x) for v in x)):
        return f"a {type(x).__name__} of length {len(x)}"
    return f"{x!r} of type {type(x).__name__}"


def unwrapped(x: Any) -> Any:
    """The array inside an object that offers to become one; other objects as they are."""
    for name in _CONVERSIONS:
        if hasattr(x, name):
            return getattr(x, name)()
    return x


def operand(x: Any, where: str) -> Any:
    """`x` as an array; NumPy data of rank 0 as it is, since programs hold it as a literal.

    Raises:
      ArgumentTypeError: `x` is no array or scalar.
    """
    if getattr(x, "aval", None) is not None:
        return x
    x = host_operand(x, where)
    return as_array(x) if isinstance(x, np.ndarray) and x.ndim else x


def host_operand(x: Any, where: str) -> Any:
    """`x` as an array, or as NumPy data of a canonical dtype, whose values are known also while tracing.

    Raises:
      ArgumentTypeError: `x` is no array or scalar.
    """
    if getattr(x, "aval", None) is not None:
        return x
    if isinstance(x, np.ndarray | np.generic):
        aval = aval_of(x)
        return x if x.dtype == aval.dtype and isinstance(x, np.ndarray) else np.asarray(x, aval.dtype)
    x = unwrapped(x)
    kind = kind_of(x, where)
    if kind in SCALAR_KINDS or not isinstance(kind, ShapedArray):
        return cast(x, aval_of(x).dtype, kind is not bool)
    return x if getattr(x, "aval", None) is not None else host_operand(x, where)


def operands(where: str, *xs: Any) -> list:
    """Each of `xs` as `operand` gives it."""
    return [operand(x, where) for x in xs]


def cast(x: Any, dtype: Any, weak: bool = False) -> Any:
    """`x` with another dtype: an operation only where something changes."""
    if type(x) in SCALAR_KINDS and not weak:
        return scalar_of(x, dtype)
    aval = getattr(x, "aval", None)
    if aval is not None and aval.dtype == dtype and aval.weak_type == weak:
        return x
    return lax.convert_element_type_p(x, dtype=np.dtype(dtype), weak_type=weak)


def scalar_of(x: Any, dtype: Any) -> Any:
    """A Python scalar as a NumPy one; an integer that fits the default dtype wraps around in a narrower one.

    Raises:
      OverflowError: an integer fits neither.
    """
    try:
        return dtype.type(x)
    except (OverflowError, TypeError):
        if isinstance(x, int):
            x = dtypes.canonicalize_dtype(int).type(x)
        return np.asarray(x).astype(dtype)[()]


def result_dtype(xs: Sequence[Any]) -> tuple[Any, bool]:
    """The dtype that operands promote to, and whether it is weak."""
    return promotion.result_type(*xs, return_weak_type=True)


def promote(where: str, *xs: Any) -> list:
    """Operands brought to one dtype; Python scalars become rank-0 NumPy ones."""
    xs = tuple(operand(x, where) if type(x) not in SCALAR_KINDS else x for x in xs)
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
    return [to_common(x, dtype, weak) for x in xs]


def promote_inexact(where: str, *xs: Any) -> list:
    """Operands brought to one inexact dtype."""
    xs = tuple(operand(x, where) if type(x) not in SCALAR_KINDS else x for x in xs)
    dtype, weak = result_dtype(xs)
    return [to_common(x, dtypes.to_inexact_dtype(dtype), weak) for x in xs]


def to_common(x: Any, dtype: Any, weak: bool) -> Any:
    """One operand of a promotion: left alone where its dtype is right and a weak flag does no harm."""
    if type(x) in SCALAR_KINDS:
        return cast(x, dtype, weak)
    return x if x.dtype == dtype and (weak or not getattr(x, "weak_type", False)) else cast(x, dtype, weak)


def broadcast_shapes(*shapes: Sequence[Any], where: str = "broadcast_shapes") -> tuple:
    """The shape that shapes broadcast to under NumPy's rules.

    Args:
      shapes: tuples of dimensions, or single dimensions.
      where: the function that an error names.

    Returns:
      The common shape.

    Raises:
      ShapeError: two dimensions differ and neither is 1.

    Examples:
      >>> jnp.broadcast_shapes((3, 1), (4,))
      (3, 4)
    """
    tuples = [s if type(s) is tuple else tuple(s) if hasattr(s, "__iter__") else (s,) for s in shapes]
    if len(tuples) == 2 and tuples[0] == tuples[1]:
        return tuples[0]
    ndim = max((len(s) for s in tuples), default=0)
    out = [1] * ndim
    for shape in tuples:
        for i, d in enumerate(shape, ndim - len(shape)):
            if type(out[i]) is int and out[i] == 1:
                out[i] = d
            elif not (type(d) is int and d == 1) and d != out[i]:
                raise ShapeError(
                    where, expected="shapes that broadcast: equal dimensions, or 1",
                    got=" and ".join(str(tuple(s)) for s in tuples),
                    mend="reshape one operand, or insert dimensions with x[:, None]",
                )  # fmt: skip
    return tuple(out)


def check_rank_promotion(where: str, shapes: Sequence[tuple]) -> None:
    """Refuse or report operands of different ranks, as `numpy_rank_promotion` asks."""
    if config.numpy_rank_promotion == "allow" or len({len(s) for s in shapes if s}) <= 1:
        return
    if config.numpy_rank_promotion == "raise":
        raise ShapeError(
            where, expected="operands of one rank, since numpy_rank_promotion is 'raise'",
            got=", ".join(map(str, shapes)), mend="reshape the smaller operand, or set numpy_rank_promotion to 'allow'",
        )  # fmt: skip
    import warnings

    warnings.warn(f"{where}: ranks are promoted for shapes {', '.join(map(str, shapes))}", stacklevel=user_level())


def broadcast_to_shape(x: Any, shape: tuple) -> Any:
    """`x` broadcast to `shape` in one operation, or itself."""
    own = np.shape(x) if not hasattr(x, "shape") else x.shape
    if own == shape:
        return x
    lead = len(shape) - len(own)
    return lax.broadcast_in_dim(x, shape, tuple(range(lead, len(shape))))


def broadcast_operands(where: str, *xs: Any) -> list:
    """Operands brought to one shape."""
    shapes = [x.shape if hasattr(x, "shape") else () for x in xs]
    shape = broadcast_shapes(*shapes, where=where)
    check_rank_promotion(where, shapes)
    return [broadcast_to_shape(x, shape) for x in xs]


def refuse_out(out: Any, where: str) -> None:
    """Refuse an array to write into.

    Raises:
      ArgumentError: `out` is given.
    """
    if out is not None:
        raise ArgumentError(
            f"{where}, argument out", expected="None, since arrays do not change", got="an array",
            mend="use the returned array",
        )  # fmt: skip


def canonical_axis(axis: Any, ndim: int, where: str) -> int:
    """An axis as a position from 0.

    Raises:
      AxisError: there is no such dimension.
    """
    axis = integer(axis, f"{where}, argument axis", mend="give the axis as a Python int")
    if not -ndim <= axis < ndim:
        raise AxisError(
            f"{where}, argument axis", expected=f"an axis of an array of rank {ndim}", got=axis,
            mend=f"give an integer from {-ndim} to {ndim - 1}" if ndim else "give the array at least one dimension",
        )  # fmt: skip
    return axis + ndim if axis < 0 else axis


def canonical_axes(axis: Any, ndim: int, where: str) -> tuple[int, ...]:
    """Axes, or None for all, as positions from 0, each once.

    Raises:
      AxisError: there is no such dimension, or one is given twice.
    """
    if axis is None:
        return tuple(range(ndim))
    if isinstance(axis, tuple | list):
        axes = tuple(canonical_axis(a, ndim, where) for a in axis)
        if len(set(axes)) != len(axes):
            raise AxisError(
                f"{where}, argument axis", expected="different axes", got=tuple(axis), mend="give each axis once"
            )
        return axes
    return (canonical_axis(axis, ndim, where),)


def canonical_shape(shape: Any, where: str) -> tuple:
    """A shape given as an int, a symbolic dimension or a sequence of them, as a tuple.

    Raises:
      ArgumentTypeError: an entry is no integer.
    """
    if type(shape) is tuple and all(type(d) is int for d in shape):
        return shape
    if not isinstance(shape, tuple | list | np.ndarray) or (isinstance(shape, np.ndarray) and not shape.ndim):
        shape = (shape,)
    told = f"{where}, argument shape"
    return tuple(integer(d, told, "integers", "give the shape as a tuple of Python ints") for d in shape)


def as_tuple(x: Any) -> tuple | None:
    """A sequence that may be left out, as part of a key."""
    return None if x is None else tuple(x)


def integer(x: Any, where: str, expected: str = "an integer", mend: str = "give a Python int") -> Any:
    """A number as a Python int, or the symbolic dimension that it is.

    Raises:
      ArgumentTypeError: it is no integer.
    """
    try:
        return static_size(x)
    except TracerIntegerConversionError:
        raise
    except TypeError:
        raise ArgumentTypeError(where, expected=expected, got=f"{x!r} of type {type(x).__name__}", mend=mend) from None


def concrete(x: Any) -> np.ndarray | None:
    """The value of `x` on the host where it is known now, else None."""
    if isinstance(x, np.ndarray | np.generic) or type(x) in SCALAR_KINDS:
        return np.asarray(x)
    if hasattr(x, "_trace"):
        x = x.concrete
        return None if x is None else concrete(x)
    return np.asarray(x)


def as_array(x: Any) -> Any:
    """A host value as an array, or as a constant of the program being traced; arrays as they are.

    A Python scalar gives a weak type.
    """
    if hasattr(x, "aval"):
        return x
    aval = aval_of(x)
    trace = state.trace
    while trace is not None and type(trace) is not StagingTrace:  # linear traces record tangents only
        trace = trace.parent
    if trace is None:
        return placement.put(host_scalar(x, aval.dtype) if type(x) is int else np.asarray(x), None, aval)
    if not aval.shape:
        return lax.convert_element_type_p(x, dtype=aval.dtype, weak_type=aval.weak_type)
    return StagedTracer(trace, aval, trace.constant(np.asarray(x, aval.dtype)))
