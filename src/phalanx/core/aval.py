"""Abstract values: what is known of an array before it has data.

A `ShapedArray` is a shape, a dtype and a weak-type flag, and in explicit-sharding mode a sharding. Abstract values are
interned, so that two of them are equal exactly when they are the same object, and a cache key made of them hashes by
address. Built on `dtypes`; everything else in the house speaks of values through this file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Final

import numpy as np

from phalanx.core import dtypes
from phalanx.core.config import state
from phalanx.core.errors import ArgumentTypeError, ShapeError
from phalanx.engine.frames import boundaries

_interned: dict[tuple, ShapedArray] = {}


class Typed:
    """What has an `aval`, of which its shape, dtype and the like are."""

    __slots__ = ()

    shape = property(attrgetter("aval.shape"))
    dtype = property(attrgetter("aval.dtype"))
    ndim = property(attrgetter("aval.ndim"))
    size = property(attrgetter("aval.size"))
    weak_type = property(attrgetter("aval.weak_type"))


# The mesh axes that a value outside of any `shard_map` varies over: none.
UNVARYING: Final[frozenset] = frozenset()


class ShapedArray:
    """The type of an array: `dtype[shape]`, interned.

    Args:
      shape: a tuple of ints or symbolic dimensions.
      dtype: a NumPy dtype, an `ml_dtypes` one, or an extended dtype such as that of random keys.
      weak_type: whether the dtype came from a Python scalar and so yields to others in promotion.
      sharding: the sharding that is part of the type in explicit mode, else None.
      varying: inside a `shard_map`, the names of the mesh axes along which devices may hold different values.

    Examples:
      >>> from phalanx.core import ShapedArray
      >>> import numpy as np
      >>> ShapedArray((2, 3), np.dtype("float32"))
      ShapedArray(float32[2,3])
      >>> ShapedArray((2,), np.dtype("float32")) is ShapedArray((2,), np.dtype("float32"))
      True
    """

    __slots__ = (
        "__weakref__",
        "_tangent",
        "dtype",
        "is_symbolic",
        "ndim",
        "shape",
        "sharding",
        "size",
        "varying",
        "weak_type",
    )

    is_symbolic: bool
    shape: tuple
    dtype: Any
    weak_type: bool
    sharding: Any
    varying: frozenset
    ndim: int
    size: Any

    def __new__(
        cls, shape: Any, dtype: Any, weak_type: bool = False, sharding: Any = None, varying: frozenset = UNVARYING
    ) -> ShapedArray:
        try:
            found = _interned.get((shape, dtype, weak_type, sharding, varying))
        except TypeError:  # a shape that is a list
            found = None
        return cls._intern(shape, dtype, weak_type, sharding, varying) if found is None else found

    @classmethod
    def _intern(cls, shape: Any, dtype: Any, weak_type: bool, sharding: Any, varying: frozenset) -> ShapedArray:
        shape = tuple(_as_dim(d) for d in shape)
        if any(type(d) is int and d < 0 for d in shape):
            raise ShapeError(
                "shape", expected="dimensions of at least 0", got=shape, mend="look at how its sizes are computed"
            )
        if not isinstance(dtype, np.dtype | dtypes.KeyDtype):
            dtype = np.dtype(dtype)
        key = (shape, dtype, bool(weak_type), sharding, varying or UNVARYING)
        if (found := _interned.get(key)) is not None:
            return found
        self = object.__new__(cls)
        self.shape, self.dtype, self.weak_type, self.sharding, self.varying = key
        self.ndim = len(shape)
        self.is_symbolic = not all(type(d) is int for d in shape)  # whether a dimension is no number
        self.size = math.prod(shape)
        return _interned.setdefault(key, self)

    def unsharded(self) -> ShapedArray:
        """The same type without the sharding."""
        return self if self.sharding is None else self.update(sharding=None)

    def with_dim(self, dim: int, size: Any, axes: Any = None) -> ShapedArray:
        """The type with one more dimension at `dim`, split over those of `axes` that are Explicit."""
        sharding = self.sharding
        if sharding is not None:
            explicit = sharding.mesh.explicit_axes
            sharding = sharding.with_dim(dim, tuple([a for a in axes or () if a in explicit]) or None)
        return self.update(shape=(*self.shape[:dim], size, *self.shape[dim:]), sharding=sharding)

    def without_dim(self, dim: int) -> ShapedArray:
        """The type without the dimension `dim`."""
        sharding = self.sharding and self.sharding.without_dim(dim)
        return self.update(shape=(*self.shape[:dim], *self.shape[dim + 1 :]), sharding=sharding)

    def with_shape(self, shape: Any) -> ShapedArray:
        """The same type with another shape (and no sharding, which belongs to the old one)."""
        return ShapedArray(shape, self.dtype, self.weak_type, None, self.varying)

    def with_dtype(self, dtype: Any) -> ShapedArray:
        """The same shape with another dtype."""
        return ShapedArray(self.shape, dtype, False, self.sharding, self.varying)

    def with_varying(self, axes: frozenset) -> ShapedArray:
        """The same type, varying over just these mesh axes."""
        if axes is self.varying:
            return self
        return ShapedArray(self.shape, self.dtype, self.weak_type, self.sharding, axes)

    def update(self, **fields: Any) -> ShapedArray:
        """A copy with the named fields (`shape`, `dtype`, `weak_type`, `sharding`, `varying`) replaced."""
        values = {name: getattr(self, name) for name in ("shape", "dtype", "weak_type", "sharding", "varying")}
        return ShapedArray(**(values | fields))

    vma = property(attrgetter("varying"))  # its name in the field

    def to_tangent(self) -> ShapedArray:
        """The type of this value's tangents: itself for inexact dtypes, `float0` for the others."""
        try:
            return self._tangent
        except AttributeError:
            self._tangent = self.with_dtype(dtypes.to_tangent_dtype(self.dtype))
            if self._tangent.dtype == self.dtype and self.weak_type:
                self._tangent = self
            return self._tangent

    def strengthened(self) -> ShapedArray:
        """The same type without the weak flag."""
        return self.update(weak_type=False) if self.weak_type else self

    def matches(self, other: ShapedArray) -> bool:
        """Whether a value of this type may stand where `other` is wanted, weak types aside."""
        return self is other or (self.shape == other.shape and self.dtype == other.dtype)

    def str_short(self) -> str:
        """The compact form that programs are printed with, such as `f32[2,3]`.

        `f32[2@x,3]` is split over the Explicit mesh axis x, and `f32[2,3]{x}` varies over the axis x.
        """
        weak = "~" if self.weak_type else ""
        varying = f"{{{','.join(sorted(map(str, self.varying)))}}}" if self.varying else ""
        return f"{weak}{dtypes.short_name(self.dtype)}[{self._dims()}]{varying}"

    def _dims(self) -> str:
        if self.sharding is None:
            return ",".join(map(str, self.shape))
        return split_dims(self.shape, self.sharding.spec.dims)

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        name = self.dtype.name
        varying = f", varying={{{', '.join(sorted(map(repr, self.varying)))}}}" if self.varying else ""
        return f"ShapedArray({name}[{self._dims()}]{weak}{varying})"

    def __str__(self) -> str:
        return self.str_short()

    def __reduce__(self) -> tuple:
        return ShapedArray, (self.shape, self.dtype, self.weak_type, self.sharding, self.varying)


def split_dims(shape: Iterable[Any], dims: Iterable[tuple]) -> str:
    """A shape as types print it, its dimensions split over these mesh axes."""
    names = [str(axes[0]) if len(axes) == 1 else f"({','.join(map(str, axes))})" if axes else "" for axes in dims]
    return ",".join(f"{n}@{axes}" if axes else str(n) for n, axes in zip(shape, names, strict=True))


def _as_dim(d: Any) -> Any:
    if type(d) is int:
        return d
    if isinstance(d, bool | np.bool_):
        raise ArgumentTypeError("shape", expected="integer dimensions", got=d, mend="give each dimension as an int")
    if getattr(d, "is_symbolic_dim", False):
        return d
    if hasattr(d, "__index__"):
        return d.__index__()
    raise ArgumentTypeError(
        "shape", expected="dimensions that are integers or symbolic", got=d, mend="give each dimension as an int"
    )


def scalar_aval(kind: type) -> ShapedArray:
    """The weak type of a Python scalar of class `kind` under the current width of numbers."""
    return ShapedArray((), dtypes.canonicalize_dtype(kind), kind is not bool)


_SCALARS, _NUMPY = (int, float, complex, np.generic), (np.ndarray, np.generic)
_of_scalars: dict[tuple[type, bool], ShapedArray] = {}


def scalar_aval_of(x: Any) -> ShapedArray | None:
    """The abstract value of a host scalar, remembered for its class; None for anything else."""
    key = (type(x), state.context.enable_x64)
    found = _of_scalars.get(key)
    if found is None and isinstance(x, _SCALARS) and not hasattr(x, "aval"):
        found = _aval_of_host(x)
        if not isinstance(x, np.flexible):  # classes whose instances differ in dtype
            _of_scalars[key] = found
    return found


def aval_of(x: Any) -> ShapedArray:
    """The abstract value of anything that may stand as an operand: an array, a tracer, NumPy data, a Python scalar.

    Args:
      x: the operand.

    Returns:
      Its `ShapedArray`.

    Raises:
      ArgumentTypeError: `x` is none of these.

    Examples:
      >>> aval_of(np.zeros((2, 3), np.float32))
      ShapedArray(float32[2,3])
    """
    if type(x) is np.ndarray:
        return _aval_of_host(x)
    aval = getattr(x, "aval", None)
    if aval is not None:
        return aval
    return scalar_aval_of(x) or _aval_of_host(x)


def aval_at(x: Any, where: Callable[[], str]) -> ShapedArray:
    """The abstract value of an argument, which the error names where there is none."""
    try:
        return aval_of(x)
    except ArgumentTypeError as error:
        raise ArgumentTypeError(where(), expected=error.expected, got=error.got, mend=error.mend) from None


def _aval_of_host(x: Any) -> ShapedArray:
    kind = type(x)
    if isinstance(x, _NUMPY):
        if x.dtype.kind == "V" and x.dtype == dtypes.float0:
            return ShapedArray(x.shape, dtypes.float0)
        return ShapedArray(x.shape, dtypes.canonicalize_dtype(check_dtype(x)))
    for base in (bool, int, float, complex):
        if isinstance(x, base):
            return scalar_aval(base)
    if hasattr(x, "__phalanx_array__"):
        return aval_of(x.__phalanx_array__())
    raise ArgumentTypeError(
        "argument",
        expected="an array or a scalar",
        got=f"{x!r} of type {kind.__name__}",
        mend="convert it with phalanx.numpy.asarray, or pass it as a static argument",
    )


def host_scalar(x: Any, dtype: Any) -> np.ndarray:
    """A host scalar as NumPy data of a dtype.

    Raises:
      OverflowError: an integer that Python wrote does not fit; it would wrap around in silence.
    """
    if type(x) is int and dtype.kind in "iu":
        return np.asarray(x, dtype)
    return np.asarray(x).astype(dtype)


def check_dtype(x: Any) -> Any:
    """The dtype of NumPy data `x`, refused if no array of it can exist."""
    if x.dtype.kind in "OSUMm" or (x.dtype.kind == "V" and x.dtype.names is not None):
        raise ArgumentTypeError(
            "argument",
            expected="numeric or boolean data",
            got=f"a NumPy array of dtype {x.dtype}",
            mend="convert it with .astype, or keep it outside the traced function",
        )
    return x.dtype


@boundaries
class ShapeDtypeStruct(Typed):
    """A stand-in for an array that has a type but no data, for `eval_shape`, `lower` and `export`.

    Args:
      shape: a tuple of ints or symbolic dimensions.
      dtype: the dtype.
      sharding: the sharding the array would have, if any.
      weak_type: whether the dtype is weak.
      vma: inside a `shard_map`, the mesh axes it varies over.

    Examples:
      >>> import phalanx
      >>> phalanx.ShapeDtypeStruct((2, 3), "float32")
      ShapeDtypeStruct(shape=(2, 3), dtype=float32)
    """

    __slots__ = ("aval", "sharding")

    def __init__(self, shape: Any, dtype: Any, *, sharding: Any = None, weak_type: bool = False, vma: Any = None):
        dtype, shape = dtypes.canonicalize_dtype(dtype), tuple(shape)
        in_type = sharding.as_type(len(shape)) if hasattr(sharding, "as_type") else None
        self.aval = ShapedArray(shape, dtype, weak_type, in_type, frozenset(vma or ()))
        self.sharding = sharding

    vma = property(attrgetter("aval.varying"))

    def __len__(self) -> int:
        return self.shape[0]

    def update(self, **fields: Any) -> ShapeDtypeStruct:
        """A copy with the named fields replaced.

        Args:
          **fields: new values by the field's name.

        Returns:
          The copy.
        """
        values = {name: getattr(self, name) for name in ("shape", "dtype", "sharding", "weak_type", "vma")}
        return ShapeDtypeStruct(**(values | fields))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapeDtypeStruct) and (self.aval, self.sharding) == (other.aval, other.sharding)

    def __hash__(self) -> int:
        return hash((self.aval, self.sharding))

    def __repr__(self) -> str:
        sharding = f", sharding={self.sharding}" if self.sharding is not None else ""
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype.name}{sharding}{weak})"
