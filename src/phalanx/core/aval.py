"""Abstract values: the types of arrays, known before there is data.

A `ShapedArray` is a shape, a dtype and a weak-type flag, and over Explicit mesh axes a sharding. Abstract values are
interned: two of them are equal exactly when they are the same object, so that a cache key made of them hashes by
address. The table holds them weakly, so that the type of a shape that was traced once is freed. Builds on `dtypes`;
every package describes values by this module.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Final, Protocol

import numpy as np

from phalanx.core import dtypes
from phalanx.core.config import current_scope
from phalanx.core.error_classes import ArgumentTypeError, ConversionError, ShapeError
from phalanx.engine import Cache, Hook, api_boundary_class, memoize

_interned: Cache[tuple[Any, ...], ShapedArray] = Cache("core.avals", weak="values")
_find_reference = _interned.get_reference


class TypeShardings(Protocol):
    """The shardings of types, as `phalanx.sharding` defines them."""

    def complete(self, aval: ShapedArray) -> Any:
        """The sharding of a type, with an entry for each dimension."""

    def resolve(self, sharding: Any, where: str) -> Any:
        """A sharding as it is; a `PartitionSpec` over the mesh in context."""


type_shardings = Hook[TypeShardings]("phalanx.sharding.mesh_context")


class Typed:
    """Base of objects with an `aval`, which forward `shape`, `dtype` and the other attributes of the type to it."""

    __slots__ = ()

    shape = property(attrgetter("aval.shape"))
    dtype = property(attrgetter("aval.dtype"))
    ndim = property(attrgetter("aval.ndim"))
    size = property(attrgetter("aval.size"))
    weak_type = property(attrgetter("aval.weak_type"))


# The mesh axes over which a value outside of any `shard_map` varies: none.
UNVARYING: Final[frozenset[Any]] = frozenset()


class ManualAxisType:
    """How a value inside a `shard_map` depends on the mesh axes that are manual there; interned.

    Args:
      varying: the axes along which the devices may hold different values.
      unreduced: the axes along which the devices hold terms that are still to be combined.
      reduced: the axes along which the value is the same and its cotangent is unreduced.
      unreduced_kind: how the terms are combined; None without unreduced axes.

    Examples:
      >>> ManualAxisType(varying={"x"}) is ManualAxisType(varying=frozenset("x"))
      True
    """

    __slots__ = ("__weakref__", "reduced", "unreduced", "unreduced_kind", "varying")
    varying: frozenset[Any]
    unreduced: frozenset[Any]
    reduced: frozenset[Any]
    unreduced_kind: Any

    def __new__(
        cls,
        *,
        varying: Iterable[Any] = UNVARYING,
        unreduced: Iterable[Any] = UNVARYING,
        reduced: Iterable[Any] = UNVARYING,
        unreduced_kind: Any = None,
    ) -> ManualAxisType:
        key = (frozenset(varying), frozenset(unreduced), frozenset(reduced), unreduced_kind)
        return _manual_axis_types.get_or_make(key, lambda: cls._make(*key))

    @classmethod
    def _make(cls, *fields: Any) -> ManualAxisType:
        self = object.__new__(cls)
        for name, value in zip(("varying", "unreduced", "reduced", "unreduced_kind"), fields, strict=True):
            object.__setattr__(self, name, value)
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"ManualAxisType.{name} is read-only, since equal types are one object")

    @property
    def empty(self) -> bool:
        """Whether the value is the same on all devices."""
        return not (self.varying or self.unreduced or self.reduced)

    def update(self, **changes: Any) -> tuple[tuple[str, Any], ...]:
        """The reductions as arguments of a `PartitionSpec`, with some of them replaced."""
        fields = {name: getattr(self, name) for name in ("unreduced", "reduced", "unreduced_kind")} | changes
        return tuple((fields if fields["unreduced"] else fields | {"unreduced_kind": None}).items())

    def _fields(self) -> dict[str, Any]:
        fields = {"varying": self.varying, "unreduced": self.unreduced, "reduced": self.reduced}
        return {name: axes for name, axes in fields.items() if axes or name == "varying"}

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(ManualAxisType, **self._fields(), unreduced_kind=self.unreduced_kind), ()

    def __repr__(self) -> str:
        axes = [f"{name}={{{', '.join(sorted(map(repr, names)))}}}" for name, names in self._fields().items()]
        return f"ManualAxisType({', '.join(axes)})"


_manual_axis_types: Cache[tuple[Any, ...], ManualAxisType] = Cache("core.manual_axis_types", weak="values")


class AbstractValue:
    """Base of the types of values."""

    __slots__ = ()


class ShapedArray(AbstractValue):
    """The type of an array: `dtype[shape]`, interned.

    Args:
      shape: a tuple of ints or symbolic dimensions.
      dtype: a NumPy dtype, an `ml_dtypes` one, or an extended dtype such as that of random keys.
      weak_type: whether the dtype came from a Python scalar, so that the other operand's dtype wins in promotion.
      sharding: the sharding over Explicit mesh axes, which is part of the type; None if there are no such axes.
      varying: inside a `shard_map`, the mesh axes along which the devices may hold different values.

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
        "size",
        "type_sharding",
        "varying",
        "weak_type",
    )

    is_symbolic: bool
    shape: tuple[Any, ...]
    dtype: Any
    weak_type: bool
    type_sharding: Any  # the sharding over Explicit mesh axes; None without them
    varying: frozenset[Any]
    ndim: int
    size: Any
    _tangent: ShapedArray | None

    def __new__(
        cls, shape: Any, dtype: Any, weak_type: bool = False, sharding: Any = None, varying: frozenset[Any] = UNVARYING
    ) -> ShapedArray:
        try:
            reference = _find_reference((shape, dtype, weak_type, sharding, varying))
        except TypeError:  # a shape that is a list
            reference = None
        found = None if reference is None else reference()
        return cls._intern(shape, dtype, weak_type, sharding, varying) if found is None else found

    @classmethod
    def _intern(cls, shape: Any, dtype: Any, weak_type: bool, sharding: Any, varying: frozenset[Any]) -> ShapedArray:
        shape = tuple(_as_dim(d) for d in shape)
        if negative := [d for d in shape if type(d) is int and d < 0]:
            raise ShapeError(
                "shape",
                expected="dimensions of at least 0",
                got=shape,
                fix=f"check the computation of the size {negative[0]}",
            )
        if not isinstance(dtype, np.dtype | dtypes.KeyDtype):
            dtype = np.dtype(dtype)
        key = (shape, dtype, bool(weak_type), sharding, varying or UNVARYING)
        return _interned.get_or_make(key, lambda: cls._make(*key))

    @classmethod
    def _make(
        cls, shape: tuple[Any, ...], dtype: Any, weak_type: bool, sharding: Any, varying: frozenset[Any]
    ) -> ShapedArray:
        self = object.__new__(cls)
        self.shape, self.dtype, self.weak_type = shape, dtype, weak_type
        self.type_sharding, self.varying = sharding, varying
        self.ndim = len(shape)
        self.is_symbolic = not all(type(d) is int for d in shape)
        self.size = math.prod(shape)
        # XLA ends the process on a size in bytes that does not fit into 64 bits, even if the others of the shape are 0.
        # The size of types that are narrower than a byte must fit in bits.
        if not self.is_symbolic and (count := math.prod([d for d in shape if d])) >= 2**48:
            bits = dtypes.itemsize_bits(dtype)
            unit, width = ("bits", bits) if bits < 8 else ("bytes", bits // 8)
            if count * width < 2**63:
                return self
            raise ShapeError(
                "shape",
                expected=f"less than 2**63 {unit}, which are {2**63 // width} elements of {dtype.name}",
                got=shape,
                fix="check the computation of the sizes, or process the data in parts",
            )
        return self

    def drop_sharding(self) -> ShapedArray:
        """The same type without the sharding."""
        return self if self.type_sharding is None else self.update(sharding=None)

    def with_dim(self, dim: int, size: Any, axes: Any = None) -> ShapedArray:
        """The type with one more dimension at `dim`, sharded over the Explicit axes among `axes`."""
        sharding = self.type_sharding
        if sharding is not None:
            mesh = sharding.mesh
            sharding = sharding.with_dim(
                dim, mesh.axes_in_types([a for a in axes or () if a in mesh.explicit_axes]) or None
            )
        return self.update(shape=(*self.shape[:dim], size, *self.shape[dim:]), sharding=sharding)

    def without_dim(self, dim: int) -> ShapedArray:
        """The type without the dimension `dim`."""
        sharding = self.type_sharding and self.type_sharding.without_dim(dim)
        return self.update(shape=(*self.shape[:dim], *self.shape[dim + 1 :]), sharding=sharding)

    def with_shape(self, shape: Any) -> ShapedArray:
        """The same type with another shape, and no sharding, since a sharding belongs to a shape."""
        return ShapedArray(shape, self.dtype, self.weak_type, None, self.varying)

    def with_dtype(self, dtype: Any) -> ShapedArray:
        """The same shape with another dtype, which is not weak."""
        same = dtype is self.dtype and not self.weak_type
        return self if same else ShapedArray(self.shape, dtype, False, self.type_sharding, self.varying)

    def with_varying(self, axes: frozenset[Any]) -> ShapedArray:
        """The same type, varying over exactly these mesh axes."""
        same = axes is self.varying
        return self if same else ShapedArray(self.shape, self.dtype, self.weak_type, self.type_sharding, axes)

    def update(self, **fields: Any) -> ShapedArray:
        """A copy with the named fields (`shape`, `dtype`, `weak_type`, `sharding`, `varying`) replaced."""
        values = {name: getattr(self, name) for name in ("shape", "dtype", "weak_type", "varying")}
        return ShapedArray(**({"sharding": self.type_sharding} | values | fields))

    vma = property(attrgetter("varying"))  # the name of the attribute in JAX

    @property
    def mat(self) -> ManualAxisType:
        """How the value depends on the manual mesh axes of a `shard_map`."""
        return ManualAxisType(varying=self.varying, **self.manual_reductions)

    manual_axis_type = mat

    @property
    def manual_reductions(self) -> dict[str, Any]:
        """The `unreduced` and `reduced` manual axes and the `unreduced_kind`; empty if there are no such axes."""
        sharding = self.type_sharding
        if sharding is None or sharding.spec.is_partitions_only or not sharding.mesh.manual_axes:
            return {}
        reductions: dict[str, Any] = sharding.spec.select_axes(sharding.mesh.manual_axes, self.ndim).reductions
        return reductions if reductions["unreduced"] or reductions["reduced"] else {}

    @property
    def sharding(self) -> Any:
        """The sharding in the type, with an entry for each dimension.

        Without Explicit axes no dimension is split, over the mesh in context or a mesh without axes.
        """
        return type_shardings.complete(self)

    def to_tangent(self) -> ShapedArray:
        """The type of this value's tangents: itself for inexact dtypes, `float0` for the others."""
        try:
            return self._tangent or self
        except AttributeError:
            dtype = dtypes.to_tangent_dtype(self.dtype)
            # A type that referred to itself would form a cycle, and wait for the garbage collector.
            self._tangent = None if dtype == self.dtype else self.with_dtype(dtype)
            return self._tangent or self

    def to_cotangent(self) -> ShapedArray:
        """The type of this value's cotangents: the tangent's, with `unreduced` and `reduced` axes exchanged."""
        aval = self.to_tangent()
        sharding = aval.type_sharding
        if sharding is None or sharding.spec.is_partitions_only:
            return aval
        return aval.update(sharding=sharding.to_cotangent())

    # The names of these methods in JAX.
    to_tangent_aval, to_ct_aval, to_cotangent_aval = to_tangent, to_cotangent, to_cotangent

    def strip_weak_type(self) -> ShapedArray:
        """The same type without the weak flag."""
        return self.update(weak_type=False) if self.weak_type else self

    def matches(self, other: ShapedArray) -> bool:
        """Whether a value of this type is valid where `other` is expected; weak types count as strong ones."""
        return self is other or (self.shape == other.shape and self.dtype == other.dtype)

    def str_short(self) -> str:
        """The compact form that jaxprs are printed with, such as `f32[2,3]`.

        `f32[2@x,3]` is sharded over the Explicit mesh axis x, and `f32[2,3]{V:x}` varies over the axis x.
        """
        return f"{'~' if self.weak_type else ''}{dtypes.short_name(self.dtype)}{self._format_dims()}"

    def _format_dims(self) -> str:
        """The shape with mesh axes, then varying (V), unreduced (U) and reduced (R) axes: `[2@x,3]{V:y, U:z}`."""
        spec = None if self.type_sharding is None else self.type_sharding.spec
        dims = format_sharded_shape(self.shape, ((),) * self.ndim if spec is None else spec.dims)
        if not self.varying and (spec is None or spec.is_partitions_only):
            return f"[{dims}]"
        axes = {"V": self.varying} | ({} if spec is None else {"U": spec.unreduced, "R": spec.reduced})
        return f"[{dims}]{{{', '.join(f'{kind}:{format_axes(names)}' for kind, names in axes.items() if names)}}}"

    def __repr__(self) -> str:
        return f"ShapedArray({self.dtype.name}{self._format_dims()}{', weak_type=True' if self.weak_type else ''})"

    def __str__(self) -> str:
        return f"{'~' if self.weak_type else ''}{self.dtype.name}{self._format_dims()}"

    def __reduce__(self) -> tuple[Any, ...]:
        return ShapedArray, (self.shape, self.dtype, self.weak_type, self.type_sharding, self.varying)


_interned_refs: Cache[ShapedArray, AbstractRef] = Cache("core.ref_avals", weak="values")


class AbstractRef(AbstractValue):
    """The type of a mutable array reference, which is that of the array it refers to, interned.

    The attributes of the array's type, such as `shape` and `dtype`, are attributes of this type, too.

    Args:
      inner_aval: the type of the array.

    Examples:
      >>> import numpy as np
      >>> AbstractRef(ShapedArray((3,), np.dtype("float32")))
      Ref{float32[3]}
    """

    __slots__ = ("__weakref__", "inner_aval")

    inner_aval: ShapedArray

    def __new__(cls, inner_aval: ShapedArray) -> AbstractRef:
        return _interned_refs.get_or_make(inner_aval, lambda: cls._make(inner_aval))

    @classmethod
    def _make(cls, inner_aval: ShapedArray) -> AbstractRef:
        self = object.__new__(cls)
        self.inner_aval = inner_aval
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner_aval, name)

    def to_tangent(self) -> ShapedArray:
        """The type of its tangent, which is always zero: the values that it held have the derivatives."""
        return ShapedArray(self.inner_aval.shape, dtypes.float0, varying=self.inner_aval.varying)

    def with_varying(self, axes: frozenset[Any]) -> AbstractRef:
        """The type of a reference to an array that varies over exactly these mesh axes."""
        return AbstractRef(self.inner_aval.with_varying(axes))

    def update(self, **fields: Any) -> AbstractRef:
        """A copy with the named fields of the array's type replaced."""
        return AbstractRef(self.inner_aval.update(**fields))

    def without_dim(self, dim: int) -> AbstractRef:
        """The type of a reference to the elements at one position along a dimension."""
        return AbstractRef(self.inner_aval.without_dim(dim))

    def drop_sharding(self) -> AbstractRef:
        """The type of a reference to an array without a sharding in its type."""
        return AbstractRef(self.inner_aval.drop_sharding())

    def matches(self, other: Any) -> bool:
        """Whether a reference of this type is valid where `other` is expected."""
        return type(other) is AbstractRef and self.inner_aval.matches(other.inner_aval)

    def str_short(self) -> str:
        """The compact form that jaxprs are printed with, such as `Ref{f32[2,3]}`."""
        return f"Ref{{{self.inner_aval.str_short()}}}"

    def __repr__(self) -> str:
        return f"Ref{{{self.inner_aval}}}"

    def __reduce__(self) -> tuple[Any, ...]:
        return AbstractRef, (self.inner_aval,)


def format_axes(axes: Iterable[Any]) -> str:
    """Format a set of mesh axes, such as `x` or `(x,y)`."""
    names = sorted(map(str, axes))
    return names[0] if len(names) == 1 else f"({','.join(names)})"


def format_sharded_shape(shape: Iterable[Any], dims: Iterable[tuple[Any, ...]]) -> str:
    """Format a shape with the mesh axes of each dimension, such as `2@x,3`."""
    names = [str(axes[0]) if len(axes) == 1 else f"({','.join(map(str, axes))})" if axes else "" for axes in dims]
    return ",".join(f"{n}@{axes}" if axes else str(n) for n, axes in zip(shape, names, strict=True))


def _as_dim(d: Any) -> Any:
    if type(d) is int:
        return d
    if isinstance(d, bool | np.bool_):
        raise ArgumentTypeError(
            "shape", expected="integer dimensions", got=d, fix=f"write {int(d)} instead of {bool(d)}"
        )
    if getattr(d, "is_symbolic_dim", False):
        return d
    if hasattr(d, "__index__"):
        return d.__index__()
    raise ConversionError(
        "shape",
        expected="dimensions that are integers or symbolic",
        got=d,
        fix="convert the dimension with int(), or pass an array's shape instead of the array",
    )


def make_scalar_aval(kind: type) -> ShapedArray:
    """The type of a Python scalar of class `kind`, which is weak except for bool, under the `enable_x64` option."""
    return ShapedArray((), dtypes.canonicalize_dtype(kind), kind is not bool)


_SCALARS, _NUMPY = (int, float, complex, np.generic), (np.ndarray, np.generic)
_of_scalars: Cache[tuple[type, bool], ShapedArray] = Cache("core.scalar_avals", 256)


def get_scalar_aval(x: Any) -> ShapedArray | None:
    """The abstract value of a host scalar, cached by its class; None for any other value."""
    key = (type(x), current_scope().context.enable_x64)
    found = _of_scalars.get(key)
    if found is None and isinstance(x, _SCALARS) and not hasattr(x, "aval"):
        found = _aval_of_host(x)
        if not isinstance(x, np.flexible):  # classes whose instances differ in dtype
            _of_scalars[key] = found
    return found


def get_aval(x: Any) -> ShapedArray:
    """The abstract value of an operand: of an array, a tracer, NumPy data or a Python scalar.

    Args:
      x: the operand.

    Returns:
      Its `ShapedArray`.

    Raises:
      ArgumentTypeError: `x` is none of these.

    Examples:
      >>> import numpy as np
      >>> get_aval(np.zeros((2, 3), np.float32))
      ShapedArray(float32[2,3])
    """
    # Before `getattr`, since arrays of NumPy have no `aval` and the failed look-up is slower than this test.
    if type(x) is np.ndarray:
        return _aval_of_host(x)
    aval = getattr(x, "aval", None)
    return aval if aval is not None else get_scalar_aval(x) or _aval_of_host(x)


def as_shape_struct(x: Any) -> Any:
    """An argument of a function that is traced and not run: an object with a shape and a dtype becomes a type.

    Args:
      x: an array, a scalar, a `ShapeDtypeStruct`, a `ShapedArray`, or any object with `shape` and `dtype`.

    Returns:
      A `ShapeDtypeStruct` for the last two, `x` itself otherwise.
    """
    if hasattr(x, "aval") or isinstance(x, _NUMPY) or not (hasattr(x, "shape") and hasattr(x, "dtype")):
        return x
    sharding = x.type_sharding if isinstance(x, ShapedArray) else getattr(x, "sharding", None)
    return ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding, weak_type=getattr(x, "weak_type", False))


def get_aval_of_argument(x: Any, where: Callable[[], str]) -> ShapedArray:
    """The abstract value of an argument; `where` names the argument in the error if it has none."""
    try:
        return get_aval(x)
    except ArgumentTypeError as error:
        raise type(error)(where(), expected=error.expected, got=error.got, fix=error.fix) from None


def unwrap_array_like(x: Any) -> Any:
    """The array that an object converts itself to by `__phalanx_array__` or `__jax_array__`; otherwise the object.

    The object may show the attributes of its array, `aval` among them, as Flax's variables do.
    """
    for name in ("__phalanx_array__", "__jax_array__"):
        if hasattr(x, name):
            return getattr(x, name)()
    return x


def _aval_of_host(x: Any) -> ShapedArray:
    if isinstance(x, _NUMPY):
        is_float0 = x.dtype.kind == "V" and x.dtype == dtypes.float0
        return _host_aval(x.shape, dtypes.float0 if is_float0 else dtypes.canonicalize_dtype(check_host_dtype(x)))
    # In this order: bool is a subclass of int.
    for base in (bool, int, float, complex):
        if isinstance(x, base):
            return make_scalar_aval(base)
    if (array := unwrap_array_like(x)) is not x:
        return get_aval(array)
    raise ConversionError(
        "argument",
        expected="an array or a scalar",
        got=f"{x!r} of type {type(x).__name__}",
        fix="convert it with phalanx.numpy.asarray, or pass it as a static argument",
    )


# Nothing else may hold the type of host data, and making it anew for each transfer takes longer than a small transfer.
@memoize("core.host_avals", 1024)
def _host_aval(shape: tuple[int, ...], dtype: Any) -> ShapedArray:
    return ShapedArray(shape, dtype)


def host_scalar(x: Any, dtype: Any) -> np.ndarray:
    """Convert a host scalar to NumPy data of a dtype.

    Raises:
      OverflowError: a Python integer does not fit into the dtype. NumPy's `astype` would wrap it around silently.
    """
    # `np.asarray(x, dtype)` raises for an int out of range, where `astype` wraps around.
    return np.asarray(x, dtype) if type(x) is int and dtype.kind in "iu" else np.asarray(x).astype(dtype)


def check_host_dtype(x: Any) -> Any:
    """The dtype of NumPy data `x`; an error if no array can have it."""
    if x.dtype.kind in "OSUMm" or (x.dtype.kind == "V" and x.dtype.names is not None):
        raise ConversionError(
            "argument",
            expected="numeric or boolean data",
            got=f"a NumPy array of dtype {x.dtype}",
            fix="convert it with .astype, or keep it outside the traced function",
        )
    check_is_unmasked(x)
    return x.dtype


def check_is_unmasked(x: Any) -> None:
    """Refuse a masked array of NumPy, whose mask would be lost."""
    if type(x) is not np.ndarray and isinstance(x, np.ndarray) and hasattr(x, "mask"):
        raise ConversionError(
            "argument",
            expected="data without a mask",
            got=f"a masked array, {type(x).__name__} of shape {x.shape}",
            fix="fill in its masked elements with .filled(value), or pass x.data and x.mask as two arrays",
        )


def physical_aval(aval: ShapedArray) -> ShapedArray:
    """The type of a value in compiled programs.

    Typed random keys are stored as uint32 words in one more dimension, and `float0` zeros as bits.
    """
    if isinstance(aval.dtype, dtypes.KeyDtype):
        return ShapedArray((*aval.shape, *aval.dtype.key_shape), np.dtype("uint32"))
    return ShapedArray(aval.shape, np.dtype(np.bool_)) if aval.dtype is dtypes.float0 else aval


@api_boundary_class
class ShapeDtypeStruct(Typed):
    """The type and sharding of an array without its data, for `eval_shape`, `lower` and `export`.

    Args:
      shape: a tuple of ints or symbolic dimensions.
      dtype: the dtype.
      sharding: the sharding the array would have, if any; a `PartitionSpec` is over the mesh in context where the
        sharding is read. A `Format` has a layout, too.
      weak_type: whether the dtype is weak.
      vma: inside a `shard_map`, the mesh axes over which the array varies.
      is_ref: whether it stands for a mutable array reference.

    Examples:
      >>> import phalanx
      >>> phalanx.ShapeDtypeStruct((2, 3), "float32")
      ShapeDtypeStruct(shape=(2, 3), dtype=float32)
    """

    __slots__ = ("_aval", "_sharding", "format")

    format: Any  # the layout with the sharding, if it was given as a `Format`; else None

    def __init__(
        self,
        shape: Any,
        dtype: Any,
        *,
        sharding: Any = None,
        weak_type: bool = False,
        vma: Any = None,
        is_ref: bool = False,
    ):
        self.format = sharding if hasattr(sharding, "layout") else None
        sharding = sharding if self.format is None else self.format.sharding
        # The description of data that never become an array, such as text in a checkpoint, has its dtype too.
        on_host = (dtype.type if isinstance(dtype, np.dtype) else dtype) in (np.bytes_, np.str_, np.object_)
        dtype, shape = np.dtype(dtype) if on_host else dtypes.canonicalize_dtype(dtype), tuple(shape)
        in_type = sharding.type_sharding(len(shape)) if hasattr(sharding, "type_sharding") else None
        aval = ShapedArray(shape, dtype, weak_type, in_type, frozenset(vma or ()))
        self._aval: Any = AbstractRef(aval) if is_ref else aval
        self._sharding = sharding

    @property
    def sharding(self) -> Any:
        """The sharding; an error if it was given as a `PartitionSpec` and there is no mesh in context."""
        given = self._sharding
        return type_shardings.resolve(given, "ShapeDtypeStruct, sharding") if hasattr(given, "partitions") else given

    @property
    def aval(self) -> Any:
        """The type, with the sharding over Explicit axes."""
        if hasattr(self._sharding, "partitions"):
            return self._aval.update(sharding=self.sharding.type_sharding(self._aval.ndim))
        return self._aval

    shape = property(attrgetter("_aval.shape"))
    dtype = property(attrgetter("_aval.dtype"))
    ndim = property(attrgetter("_aval.ndim"))
    size = property(attrgetter("_aval.size"))
    weak_type = property(attrgetter("_aval.weak_type"))
    vma = property(attrgetter("_aval.varying"))
    is_ref = property(lambda self: type(self._aval) is AbstractRef)

    @classmethod
    def like(cls, x: Any) -> ShapeDtypeStruct:
        """The type of an array or a scalar, and its sharding if the user chose it.

        Args:
          x: an array, a tracer, NumPy data or a scalar.

        Returns:
          A `ShapeDtypeStruct`.
        """
        aval = get_aval(x)
        sharding = getattr(x, "sharding", None) if getattr(x, "committed", True) else None
        return cls(aval.shape, aval.dtype, sharding=sharding, weak_type=aval.weak_type, vma=aval.varying)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a ShapeDtypeStruct of rank 0")
        return self.shape[0]

    def update(self, **fields: Any) -> ShapeDtypeStruct:
        """A copy with the named fields replaced.

        Args:
          **fields: new values by the field's name.

        Returns:
          The copy.
        """
        values = {name: getattr(self, name) for name in ("shape", "dtype", "weak_type", "vma", "is_ref")}
        return ShapeDtypeStruct(**({"sharding": self.format or self._sharding} | values | fields))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapeDtypeStruct) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return self._aval, self._sharding, self.format

    def __repr__(self) -> str:
        given = self.format or self._sharding
        sharding = f", sharding={given}" if given is not None else ""
        weak = ", weak_type=True" if self.weak_type else ""
        ref = ", is_ref=True" if self.is_ref else ""
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype.name}{sharding}{weak}{ref})"
