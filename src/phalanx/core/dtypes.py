"""Element types: the dtypes of XLA, 64-bit canonicalization, and the extended dtypes of random keys.

Every abstract value is made with these functions, so each result comes from a table or a cache. The common dtype of
several operands is computed in `promotion`. Builds on NumPy, ml_dtypes and `core.config`.
"""

from __future__ import annotations

import math
import re
import warnings
from typing import Any, Final

import ml_dtypes
import numpy as np

from phalanx.core.config import current_scope
from phalanx.core.error_classes import ArgumentTypeError, DTypeError
from phalanx.core.source_info import user_stacklevel
from phalanx.engine.cache import memoize

bfloat16: Final = ml_dtypes.bfloat16

float0: Final = np.dtype([("float0", np.void, 0)])
"""The tangent type of integers and booleans: it holds nothing."""

finfo: Final = ml_dtypes.finfo
iinfo: Final = ml_dtypes.iinfo


class extended(np.generic):
    """Category of the dtypes whose elements hold more than one number.

    Examples:
      >>> issubdtype(prng_key, extended)
      True
    """


class prng_key(extended):
    """Category of the dtypes of random keys.

    Examples:
      >>> import phalanx
      >>> issubdtype(phalanx.random.key(0).dtype, prng_key)
      True
    """


class KeyDtype:
    """The dtype of typed random keys of one generator, whose elements are uint32 arrays of shape `key_shape`.

    Args:
      impl: the generator, an object of `phalanx.random` with `name`, `tag` and `key_shape`; equal
        generators give equal dtypes.
    """

    __slots__ = ("impl", "key_shape", "name")

    type = prng_key
    kind = "V"
    isnative = True
    base_dtype: Final = np.dtype(np.uint32)

    def __init__(self, impl: Any) -> None:
        self.impl = impl
        self.key_shape = tuple(impl.key_shape)
        self.name = f"key<{impl.tag}>"

    @property
    def itemsize(self) -> int:
        """Size of one key in bytes."""
        return 4 * int(np.prod(self.key_shape))

    def __eq__(self, other: object) -> bool:
        return type(other) is KeyDtype and self.impl == other.impl

    def __hash__(self) -> int:
        return hash((KeyDtype, self.impl))

    def __reduce__(self) -> tuple[Any, ...]:
        return KeyDtype, (self.impl,)

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__


_BOOL: Final = (np.dtype(np.bool_),)
_SMALL_SIGNED: Final = tuple(map(np.dtype, (ml_dtypes.int2, ml_dtypes.int4)))
_SMALL_UNSIGNED: Final = tuple(map(np.dtype, (ml_dtypes.uint2, ml_dtypes.uint4)))
_SIGNED: Final = tuple(map(np.dtype, (np.int8, np.int16, np.int32, np.int64)))
_UNSIGNED: Final = tuple(map(np.dtype, (np.uint8, np.uint16, np.uint32, np.uint64)))
_SMALL_FLOATS: Final = tuple(
    np.dtype(getattr(ml_dtypes, name)) for name in dir(ml_dtypes) if name.startswith(("float8_", "float4_"))
)
_FLOATS: Final = tuple(map(np.dtype, (bfloat16, np.float16, np.float32, np.float64)))
_COMPLEX: Final = tuple(map(np.dtype, (np.complex64, np.complex128)))

_categories: Final[dict[np.dtype[Any], tuple[type, ...]]] = {
    **dict.fromkeys(_BOOL, (np.bool_, np.generic)),
    **dict.fromkeys((*_SMALL_SIGNED, *_SIGNED), (np.signedinteger, np.integer, np.number, np.generic)),
    **dict.fromkeys((*_SMALL_UNSIGNED, *_UNSIGNED), (np.unsignedinteger, np.integer, np.number, np.generic)),
    **dict.fromkeys((*_SMALL_FLOATS, *_FLOATS), (np.floating, np.inexact, np.number, np.generic)),
    **dict.fromkeys(_COMPLEX, (np.complexfloating, np.inexact, np.number, np.generic)),
}
"""The dtypes of numbers, each with the abstract categories it belongs to."""

supported: Final = frozenset(_categories)

# Dtypes with a name, a category and no arrays: XLA refuses 6-bit floats, and takes 1-bit integers for bools.
_categories |= {
    np.dtype(getattr(ml_dtypes, name)): _categories[np.dtype(alike)]
    for name, alike in {
        "float6_e2m3fn": np.float32, "float6_e3m2fn": np.float32, "int1": np.int8, "uint1": np.uint8,
    }.items()
    if hasattr(ml_dtypes, name)
}  # fmt: skip

_python_scalars: Final = {bool: np.dtype(np.bool_), int: _SIGNED[3], float: _FLOATS[3], complex: _COMPLEX[1]}
# Without `enable_x64`, each 64-bit dtype becomes the 32-bit one of its kind, as in JAX: most accelerators have no fast
# 64-bit arithmetic, and NumPy data are 64-bit by default.
_narrowed: Final = dict(
    zip(
        (_SIGNED[3], _UNSIGNED[3], _FLOATS[3], _COMPLEX[1]),
        (_SIGNED[2], _UNSIGNED[2], _FLOATS[2], _COMPLEX[0]),
        strict=True,
    )
)

wide: Final = frozenset(_narrowed)
"""The 64-bit dtypes, which user input has only where `enable_x64` is on."""


def is_extended(dtype: Any) -> bool:
    """Whether elements of `dtype` hold more than one number, as random keys do."""
    return type(dtype) is KeyDtype


@memoize("core.dtypes", 4096)
def as_dtype(spec: Any) -> Any:
    """The NumPy dtype (or `KeyDtype`) of `spec` in native byte order, without narrowing 64 bits to 32.

    Args:
      spec: a dtype, its name, a NumPy or Python scalar type, or an object with a `dtype`.

    Raises:
      DTypeError: XLA has no such element type.

    Examples:
      >>> as_dtype("bfloat16"), as_dtype(float)
      (dtype(bfloat16), dtype('float64'))
    """
    dtype = _find_dtype(spec)
    if dtype in supported or type(dtype) is KeyDtype or dtype == float0:
        return dtype
    raise _unsupported_error(spec)


def _find_dtype(spec: Any) -> Any:
    """`as_dtype`, also for dtypes that have no arrays."""
    if type(spec) is KeyDtype:
        return spec
    if isinstance(spec, type) and spec in _python_scalars:
        return _python_scalars[spec]
    try:
        if spec is None:
            raise TypeError
        named = getattr(ml_dtypes, spec, spec) if isinstance(spec, str) else spec
        inner = getattr(named, "dtype", None)
        dtype = inner if isinstance(inner, (np.dtype, KeyDtype)) else np.dtype(named)
    except (TypeError, ValueError):
        raise _unsupported_error(spec) from None
    # XLA reads native byte order only; data in the other order are converted when they are transferred.
    if isinstance(dtype, np.dtype) and not dtype.isnative:
        dtype = dtype.newbyteorder("=")
    if dtype in _categories or type(dtype) is KeyDtype or dtype == float0:
        return dtype
    raise _unsupported_error(spec)


def _unsupported_error(spec: Any) -> DTypeError:
    return DTypeError(
        "dtype",
        expected="a numeric or boolean element type that XLA supports",
        got=str(spec) if isinstance(spec, np.dtype) else repr(spec),
        fix="convert the values with numpy.ndarray.astype, or keep them outside of Phalanx arrays",
    )


@memoize("core.canonical_dtypes", 4096)
def _canonical(spec: Any, x64: bool) -> Any:
    dtype = as_dtype(spec)
    return dtype if x64 else _narrowed.get(dtype, dtype)


def canonicalize_dtype(dtype: Any, allow_extended_dtype: bool = True) -> Any:
    """The dtype of arrays that are made with `dtype`: 64-bit types become 32-bit ones unless `enable_x64` is on.

    Args:
      dtype: a dtype, its name, a NumPy or Python scalar type, or an object with a `dtype`.
      allow_extended_dtype: whether dtypes of random keys are accepted.

    Returns:
      A NumPy dtype, or a dtype of random keys.

    Raises:
      DTypeError: XLA has no such element type.

    Examples:
      >>> canonicalize_dtype("float64"), canonicalize_dtype(int), canonicalize_dtype("uint8")
      (dtype('float32'), dtype('int32'), dtype('uint8'))
    """
    canonical = _canonical(dtype, current_scope().context.enable_x64)
    if not allow_extended_dtype and type(canonical) is KeyDtype:
        raise _unsupported_error(canonical)
    return canonical


def requested_dtype(spec: Any, where: str) -> Any:
    """The canonical dtype of a user's `dtype=` argument of function `where`; warns if 64 bits are truncated.

    Python's `int`, `float` and `complex` stand for the default width and never warn.

    Raises:
      DTypeError: XLA has no such element type.
    """
    try:
        dtype = canonicalize_dtype(spec)
    except DTypeError as error:
        raise DTypeError(f"{where}, dtype", expected=error.expected, got=error.got, fix=error.fix) from None
    if spec is not dtype and not (isinstance(spec, type) and spec in _python_scalars) and as_dtype(spec) != dtype:
        warnings.warn(
            f"Explicitly requested dtype {as_dtype(spec)} requested in {where} is not available, and will be truncated "
            f"to dtype {dtype}. To enable more dtypes, set the enable_x64 configuration option or the "
            "PHALANX_ENABLE_X64 environment variable.",
            UserWarning,
            stacklevel=user_stacklevel(),
        )
    return dtype


def check_conversion(x: Any, old: Any, dtype: Any) -> None:
    """Check whether converting `x`, of dtype `old`, discards imaginary parts, which gives NumPy's warning for arrays.

    Raises:
      DTypeError: `x` is a Python complex number, and `dtype` is real.
    """
    if old.kind != "c" or dtype.kind in "cb":
        return
    if type(x) is complex:
        raise DTypeError(
            f"conversion to {dtype}",
            expected="a real number",
            got=x,
            fix="take its real part, or choose a complex dtype",
        )
    message = "Casting complex values to real discards the imaginary part"
    warnings.warn(message, np.exceptions.ComplexWarning, stacklevel=user_stacklevel())


def scalar_type_of(x: Any) -> type:
    """The Python type (bool, int, float or complex) of the elements of `x`.

    Args:
      x: a number, an array, a dtype or its name.

    Returns:
      One of the four types.

    Raises:
      DTypeError: the dtype is not numeric.

    Examples:
      >>> scalar_type_of(np.int8(1)), scalar_type_of(2.5)
      (<class 'int'>, <class 'float'>)
    """
    kind = dtype_and_weakness(x)[0]
    for category, scalar in (np.bool_, bool), (np.integer, int), (np.floating, float), (np.complexfloating, complex):
        if issubdtype(kind, category):
            return scalar
    raise DTypeError("scalar_type_of", expected="a numeric dtype", got=str(kind), fix="pass an array of numbers")


def dtype_and_weakness(x: Any) -> tuple[Any, bool]:
    """The canonical dtype of a value, dtype or scalar type, and whether it is weak, as Python numbers are.

    Args:
      x: an array of any library, a traced value, an abstract value, a scalar, a dtype or its name.

    Raises:
      ArgumentTypeError: `x` is none of these.

    Examples:
      >>> dtype_and_weakness(1.0), dtype_and_weakness(np.float64(1.0))
      ((dtype('float32'), True), (dtype('float32'), False))
    """
    x64 = current_scope().context.enable_x64
    # Python scalars have no `dtype`, and looking up an attribute in vain is slow.
    kind: Any = type(x)
    named = x if kind is type else kind
    if named in _python_scalars:
        return _canonical(named, x64), named is not bool
    if kind is not str and not isinstance(x, (type, np.dtype, KeyDtype)):
        dtype = getattr(x, "dtype", None)
        if dtype is not None:
            return _canonical(dtype, x64), getattr(x, "weak_type", False)
        for scalar in (bool, int, float, complex):
            if isinstance(x, scalar):
                return _canonical(scalar, x64), scalar is not bool
        if getattr(x, "is_symbolic_dim", False):
            return _canonical(int, x64), True
        if not hasattr(x, "__array__"):
            raise ArgumentTypeError(
                "result_type",
                expected="an array, a number or a dtype",
                got=f"{x!r} of type {kind.__name__}",
                fix="convert it with phalanx.numpy.asarray",
            )
        x = np.asarray(x).dtype
    return _canonical(x, x64), False


@memoize("core.issubdtype", 4096)
def issubdtype(a: Any, b: Any) -> bool:
    """Whether dtype `a` is `b`, or belongs to the category `b`; like `numpy.issubdtype`, for all dtypes of XLA.

    Args:
      a: a dtype, its name or scalar type, or a category.
      b: a dtype or a category, `extended` and `prng_key` included.

    Returns:
      A bool.

    Examples:
      >>> issubdtype("bfloat16", np.floating), issubdtype("int4", np.unsignedinteger)
      (True, False)
    """
    if b is object:
        return False
    if is_extended(a):
        return issubclass(prng_key, b) if isinstance(b, type) and issubclass(b, np.generic) else a == b
    if is_extended(b):
        return False
    for side in (a, b):
        if isinstance(side, type) and issubclass(side, extended):
            return isinstance(a, type) and isinstance(b, type) and issubclass(a, b)
    # Two categories: their relation is that of the classes.
    if isinstance(a, type) and a in _ABSTRACT:
        return isinstance(b, type) and issubclass(a, b)
    dtype = a if a in _categories else np.dtype(a) if not isinstance(a, str) else _find_dtype(a)
    if isinstance(b, type) and b in _ABSTRACT:
        return b in _categories.get(dtype, ()) if dtype in _categories else np.issubdtype(dtype, b)
    return dtype == (_find_dtype(b) if isinstance(b, str) or not isinstance(b, np.dtype) else b)


_ABSTRACT: Final = frozenset(
    (np.generic, np.number, np.integer, np.signedinteger, np.unsignedinteger, np.inexact, np.floating)
    + (np.complexfloating, np.flexible, np.character)
)


@memoize("core.inexact_dtypes", 256)
def to_inexact_dtype(dtype: Any) -> Any:
    """The floating dtype to which functions like `sin` convert operands of a canonical `dtype`.

    Examples:
      >>> to_inexact_dtype(np.dtype("int8")), to_inexact_dtype(np.dtype("complex64"))
      (dtype('float32'), dtype('complex64'))
    """
    if issubdtype(dtype, np.inexact) or is_extended(dtype):
        return dtype
    # 64-bit integers keep their width; all others take float32, although some would fit into smaller floats.
    return _FLOATS[3] if dtype in (_SIGNED[3], _UNSIGNED[3]) else _FLOATS[2]


@memoize("core.tangent_dtypes", 256)
def to_tangent_dtype(dtype: Any) -> Any:
    """The dtype of derivatives with respect to values of `dtype`: itself, or `float0` for integers and booleans."""
    return dtype if not is_extended(dtype) and issubdtype(dtype, np.inexact) else float0


@memoize("core.real_dtypes", 256)
def to_real_dtype(dtype: Any) -> Any:
    """The dtype of the real part of values of `dtype`."""
    return {_COMPLEX[0]: _FLOATS[2], _COMPLEX[1]: _FLOATS[3]}.get(dtype, dtype)


def lowest(dtype: Any) -> Any:
    """The least value of a dtype, which is the identity of the maximum; the least finite one if it has no infinity.

    Examples:
      >>> lowest(np.dtype(np.int8)), lowest(np.dtype(np.float32)), lowest(as_dtype("float8_e4m3fn"))
      (-128, -inf, -448.0)
    """
    return _extreme(dtype, False, -math.inf, "min")


def highest(dtype: Any) -> Any:
    """The greatest value of a dtype, the identity of the minimum."""
    return _extreme(dtype, True, math.inf, "max")


@memoize("core.dtype_extremes", 256)
def _extreme(dtype: Any, boolean: bool, infinity: float, name: str) -> Any:
    if dtype == np.bool_:
        return boolean
    if issubdtype(dtype, np.integer):
        return getattr(iinfo(dtype), name)
    # Some 8-bit floats have no infinity: the conversion saturates or gives NaN.
    if issubdtype(dtype, np.floating) and float(dtype.type(infinity)) != infinity:
        return float(getattr(finfo(dtype), name))
    return infinity


def itemsize_bits(dtype: Any) -> int:
    """Return the number of bits of one element.

    Args:
      dtype: a dtype or its name.

    Returns:
      The bits of the element itself, such as 4 for an int4.

    Examples:
      >>> itemsize_bits("int4"), itemsize_bits("bool")
      (4, 8)
    """
    dtype = as_dtype(dtype)
    if dtype in _SMALL_FLOATS:
        return int(finfo(dtype).bits)
    return int(iinfo(dtype).bits) if dtype in (*_SMALL_SIGNED, *_SMALL_UNSIGNED) else 8 * int(dtype.itemsize)


@memoize("core.dtype_names", 256)
def short_name(dtype: Any) -> str:
    """Return the name of a dtype in printed jaxprs.

    Examples:
      >>> [short_name(np.dtype(d)) for d in ("float32", bfloat16, "uint8", "bool", ml_dtypes.float8_e5m2)]
      ['f32', 'bf16', 'u8', 'bool', 'f8_e5m2']
    """
    if dtype == float0:
        return "float0"
    return re.sub(r"^(bf|f|u|i|c)(loat|int|nt|omplex)", r"\1", str(dtype.name))
