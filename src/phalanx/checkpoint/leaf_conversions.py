"""Conversion of what a checkpoint holds to the dtypes and Python types of `like`, without a change of its meaning.

A value may go to the same kind or a later one: booleans, integers, floating and complex numbers. Floating numbers are
rounded to the precision of the dtype. A number outside of its range, an integer that it does not have exactly, and a
NaN or infinity that it lacks are errors that name the leaf. Called by `loading`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.checkpoint.checkpoint_errors import CheckpointError
from phalanx.checkpoint.leaf_records import LeafMetadata
from phalanx.core import KeyDtype, dtypes

_KINDS = {bool: np.bool_, int: np.integer, float: np.floating, complex: np.complexfloating}
_WITHIN: dict[type, tuple[type, ...]] = {int: (), float: (int,), complex: (int, float)}


def check_dtype(record: LeafMetadata, wanted: Any, where: str) -> Any:
    """Return the dtype of `like`, if the elements of a leaf can be converted to it without losing their kind.

    Args:
      record: the leaf of the checkpoint, an array.
      wanted: the dtype of `like`.
      where: the operation and the leaf, for errors.

    Raises:
      CheckpointError: they cannot.
    """
    if wanted == record.dtype or _has_same_words(wanted, record.dtype):
        return wanted
    is_key = record.is_key or not isinstance(wanted, np.dtype)
    if is_key or not 0 <= _kind_rank(record.dtype) <= _kind_rank(wanted):
        raise CheckpointError(
            where,
            expected=f"elements that can become {wanted}, the dtype of like",
            got=f"{record.describe()} in the checkpoint",
            fix="give like this dtype, and convert the array after loading",
        )
    return wanted


def _has_same_words(wanted: Any, dtype: Any) -> bool:
    """Whether both are dtypes of random keys of one generator, by its name; it may be one of the user."""
    if not (isinstance(wanted, KeyDtype) and isinstance(dtype, KeyDtype)):
        return False
    return (wanted.impl.name, wanted.key_shape) == (dtype.impl.name, dtype.key_shape)


def _kind_rank(dtype: np.dtype) -> int:
    """The place of a dtype among booleans, integers, floating and complex numbers; -1 for any other."""
    return next((i for i, kind in enumerate(_KINDS.values()) if dtypes.issubdtype(dtype, kind)), -1)


def convert(elements: np.ndarray, dtype: np.dtype, where: str, location: str) -> np.ndarray:
    """Convert elements to a dtype that `check_dtype` allows.

    Args:
      elements: the elements, or a part of them.
      dtype: the dtype.
      where: the operation and the leaf, for errors.
      location: a phrase for the checkpoint, for errors.

    Raises:
      CheckpointError: the dtype cannot represent one of them.
    """
    source = elements.dtype
    if source == dtype:
        return elements
    is_integer = dtypes.issubdtype(source, np.integer)
    if source.itemsize == dtype.itemsize == 1 and source != np.bool_:  # not all of these pairs have a conversion
        elements = elements.astype(np.int32 if is_integer else np.float32)
    is_complex = dtypes.issubdtype(dtype, np.complexfloating)
    real = dtype.type(0).real.dtype if is_complex else dtype
    low, high = _number_range(real, exact=is_integer)
    parts = (elements.real, elements.imag) if np.iscomplexobj(elements) else (elements,)
    for part in parts:
        found = _find_unfit(part, real, low, high)
        if found is not None:
            option = "" if dtypes.canonicalize_dtype(source) == source else ", under enable_x64"
            raise CheckpointError(
                where,
                expected=f"{'integers' if is_integer else 'numbers'} from {low} to {high}, which {dtype} represents",
                got=f"{found} of {source} in {location}",
                fix=f"give like the dtype {source}{option}, and convert the array after loading",
            )
    return elements.astype(dtype)


def _number_range(dtype: np.dtype, *, exact: bool) -> tuple[Any, Any]:
    """The least and the greatest number of a real dtype; if `exact`, those between which it has all integers."""
    if dtype == np.bool_:
        return 0, 1
    if dtypes.issubdtype(dtype, np.integer):
        info = dtypes.iinfo(dtype)
        return int(info.min), int(info.max)
    info = dtypes.finfo(dtype)
    low, high = float(info.min), float(info.max)
    if not exact:
        return low, high
    limit = 2 ** (int(info.nmant) + 1)
    return max(-limit, int(np.ceil(low))), min(limit, int(high))


def _find_unfit(elements: np.ndarray, dtype: np.dtype, low: Any, high: Any) -> Any:
    """An element that is not between two numbers, or a NaN or infinity that a dtype lacks; None if there is none."""
    if dtypes.issubdtype(elements.dtype, np.floating):
        if elements.dtype.itemsize < dtype.itemsize >= 4:  # which has all of them
            return None
        is_finite = np.isfinite(elements)
        if not is_finite.all():
            special = elements[~is_finite].astype(np.float64)
            converted = special.astype(dtype).astype(np.float64)
            differs = (converted != special) & ~(np.isnan(converted) & np.isnan(special))
            if differs.any():
                return special[differs][0]
            elements = elements[is_finite]
    if not elements.size:
        return None
    least, greatest = type(low)(elements.min()), type(low)(elements.max())
    if least < low:
        return least
    return greatest if greatest > high else None


def check_python_type(kind: type, record: LeafMetadata, where: str) -> None:
    """Raise unless a leaf can become a Python value of a type, which `to_python` makes of it.

    Args:
      kind: the type of the value in `like`.
      record: the leaf of the checkpoint.
      where: the operation and the leaf, for errors.

    Raises:
      CheckpointError: it cannot.
    """
    if record.is_array:
        fits = record.shape == () and not record.is_key and dtypes.issubdtype(record.dtype, _KINDS.get(kind, np.void))
    else:
        fits = record.dtype is kind or record.dtype in _WITHIN.get(kind, ())
    if not fits:
        raise CheckpointError(
            where,
            expected=f"a Python {kind.__name__}, as in like",
            got=f"{record.describe()} in the checkpoint",
            fix="give like a value of that type",
        )


def to_python(kind: type, value: Any, where: str) -> Any:
    """Convert a value that `check_python_type` allows.

    Raises:
      CheckpointError: it is an integer that the type does not have.
    """
    value = value.item() if isinstance(value, np.ndarray) else value
    try:
        converted = kind(value)
        is_exact = not isinstance(value, int) or converted == value
    except OverflowError:
        is_exact = False
    if not is_exact:
        raise CheckpointError(
            where,
            expected=f"an integer that a Python {kind.__name__}, as in like, represents",
            got=f"one of {value.bit_length()} bits in the checkpoint",
            fix="give like an int",
        )
    return converted


def as_array_record(record: LeafMetadata, dtype: Any, where: str) -> LeafMetadata:
    """The record of a Python number that is loaded into an array of a dtype.

    Raises:
      CheckpointError: it is no number, or an integer that no array has.
    """
    value = np.asarray(record.value)
    if value.dtype not in dtypes.supported or isinstance(dtype, KeyDtype):
        raise CheckpointError(
            where,
            expected=f"an array, as in like: {dtype}",
            got=f"{record.describe()} in the checkpoint",
            fix="give like a value of that type",
        )
    return LeafMetadata((), value.dtype, value=record.value)
