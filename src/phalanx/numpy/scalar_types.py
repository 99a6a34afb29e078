"""Scalar types such as `jnp.float32`, constants, and queries of dtypes.

A scalar type compares equal to its dtype and, when called, converts data to an array of that dtype.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy import (
    character as character,
    complexfloating as complexfloating,
    dtype as dtype,
    e as e,
    euler_gamma as euler_gamma,
    flexible as flexible,
    floating as floating,
    generic as generic,
    get_printoptions as get_printoptions,
    inexact as inexact,
    inf as inf,
    integer as integer,
    nan as nan,
    newaxis as newaxis,
    number as number,
    object_ as object_,
    pi as pi,
    printoptions as printoptions,
    set_printoptions as set_printoptions,
    signedinteger as signedinteger,
    unsignedinteger as unsignedinteger,
)
from numpy.exceptions import ComplexWarning as ComplexWarning

from phalanx.core import ArgumentError, dtypes, promotion
from phalanx.numpy.creation.array_creation import array
from phalanx.typing import Array, ArrayLike, DTypeLike

finfo, iinfo, issubdtype = dtypes.finfo, dtypes.iinfo, dtypes.issubdtype


class ScalarType(type):
    """The metaclass of scalar types: they equal their dtype, and calling one converts data to it."""

    dtype: np.dtype

    def __call__(cls, x: Array = 0) -> Any:
        return array(x, dtype=cls.dtype)

    # Programs compare `x.dtype == jnp.float32`, and use either as a dictionary key.
    def __eq__(cls, other: object) -> bool:
        return cls is other or (isinstance(other, type | np.dtype) and cls.dtype == other)

    def __hash__(cls) -> int:
        return hash(cls.dtype.type)

    def __instancecheck__(cls, x: Array) -> bool:
        return isinstance(x, cls.dtype.type)

    def __repr__(cls) -> str:
        return f"<dtype name {cls.__name__}>"


def _scalar_type(name: str, type_: Any) -> Any:
    doc = f"The dtype {name}: calling it makes an array of that dtype.\n\n"
    doc += "    Args:\n      x: a scalar, an array or nested lists of numbers, to convert.\n\n    Examples:\n"
    doc += f"      >>> jnp.{name}.dtype.name\n      '{np.dtype(type_).name}'\n    "
    return ScalarType(name, (), {"dtype": np.dtype(type_), "__doc__": doc, "__module__": "phalanx.numpy"})


bool_ = bool = _scalar_type("bool", np.bool_)
int8, int16 = _scalar_type("int8", np.int8), _scalar_type("int16", np.int16)
int32, int64 = _scalar_type("int32", np.int32), _scalar_type("int64", np.int64)
uint8, uint16 = _scalar_type("uint8", np.uint8), _scalar_type("uint16", np.uint16)
uint32, uint64 = _scalar_type("uint32", np.uint32), _scalar_type("uint64", np.uint64)
float16, float32, float64 = (
    _scalar_type("float16", np.float16),
    _scalar_type("float32", np.float32),
    _scalar_type("float64", np.float64),
)
complex64, complex128 = _scalar_type("complex64", np.complex64), _scalar_type("complex128", np.complex128)
bfloat16 = _scalar_type("bfloat16", ml_dtypes.bfloat16)
int2, uint2 = _scalar_type("int2", ml_dtypes.int2), _scalar_type("uint2", ml_dtypes.uint2)
int4, uint4 = _scalar_type("int4", ml_dtypes.int4), _scalar_type("uint4", ml_dtypes.uint4)
float4_e2m1fn = _scalar_type("float4_e2m1fn", ml_dtypes.float4_e2m1fn)
float8_e3m4 = _scalar_type("float8_e3m4", ml_dtypes.float8_e3m4)
float8_e4m3 = _scalar_type("float8_e4m3", ml_dtypes.float8_e4m3)
float8_e4m3b11fnuz = _scalar_type("float8_e4m3b11fnuz", ml_dtypes.float8_e4m3b11fnuz)
float8_e4m3fn = _scalar_type("float8_e4m3fn", ml_dtypes.float8_e4m3fn)
float8_e4m3fnuz = _scalar_type("float8_e4m3fnuz", ml_dtypes.float8_e4m3fnuz)
float8_e5m2 = _scalar_type("float8_e5m2", ml_dtypes.float8_e5m2)
float8_e5m2fnuz = _scalar_type("float8_e5m2fnuz", ml_dtypes.float8_e5m2fnuz)
float8_e8m0fnu = _scalar_type("float8_e8m0fnu", ml_dtypes.float8_e8m0fnu)

int_, uint, float_, complex_ = int64, uint64, float64, complex128
single, double, csingle, cdouble = float32, float64, complex64, complex128


def result_type(*args: Any) -> Any:
    """Dtype of the result of promoting the arguments.

    Args:
      args: arrays, scalars, dtypes or dtype names; Python scalars are weakly typed.

    Returns:
      A NumPy dtype.

    Examples:
      >>> jnp.result_type(jnp.int32(1), 2.0).name
      'float32'
    """
    return promotion.result_type(*args)


def promote_types(a: ArrayLike, b: ArrayLike) -> Any:
    """Dtype to which two dtypes promote.

    Args:
      a, b: dtypes or dtype names.

    Returns:
      A NumPy dtype.

    Examples:
      >>> jnp.promote_types("int32", "bfloat16").name
      'bfloat16'
    """
    return promotion.promote_types(a, b)


def can_cast(from_: DTypeLike | ArrayLike, to: DTypeLike, casting: str = "safe") -> Any:
    """Whether NumPy allows a cast under a casting rule.

    Args:
      from_: dtype, dtype name or array.
      to: dtype or dtype name.
      casting: `"no"`, `"equiv"`, `"safe"`, `"same_kind"` or `"unsafe"`.

    Returns:
      True or False.

    Examples:
      >>> jnp.can_cast("int32", "float32")
      False
    """
    return np.can_cast(getattr(from_, "dtype", from_), np.dtype(to), casting=casting)


def isdtype(dtype: DTypeLike, kind: DTypeLike | tuple[DTypeLike, ...]) -> Any:
    """Whether a dtype belongs to a kind of dtypes.

    Args:
      dtype: dtype or dtype name.
      kind: a dtype, `"bool"`, `"signed integer"`, `"unsigned integer"`, `"integral"`, `"real floating"`, `"complex
        floating"` or `"numeric"`; of a tuple of them, one is enough.

    Returns:
      True or False.

    Raises:
      ArgumentError: `kind` is not a known name.

    Examples:
      >>> jnp.isdtype("float32", "real floating")
      True
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    found = np.dtype(dtype)
    # Names of kinds take precedence over names of dtypes: "bool" is both.
    if kind in _KINDS:
        return any(dtypes.issubdtype(found, k) for k in _KINDS[kind])
    if isinstance(kind, str):
        try:
            kind = np.dtype(kind)
        except TypeError:
            raise ArgumentError(
                "isdtype, argument kind",
                expected=f"a dtype or one of {', '.join(map(repr, _KINDS))}",
                got=repr(kind),
                fix="use one of these names",
            ) from None
    return found == np.dtype(kind)


_KINDS = {
    "bool": (np.bool_,),
    "signed integer": (np.signedinteger,),
    "unsigned integer": (np.unsignedinteger,),
    "integral": (np.integer,),
    "real floating": (np.floating,),
    "complex floating": (np.complexfloating,),
    "numeric": (np.number,),
}
