"""The operators and methods of arrays and tracers, installed on `core.array_operators.Operators` at import.

Binary operators on two concrete arrays take a direct path: one dictionary lookup by the operands' types finds a
compiled call (`ufunc_dispatch.make_eager_binary`). All other operands go through the plans of the ufunc.

`Array` alone also gets the attributes of the classes `ShardedDeviceArray` and `GlobalDeviceArray` of older JAX
versions; `interpreters.pxla` and `experimental.global_device_array` export the class under its old names.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from types import FunctionType
from typing import Any

import numpy as np

from phalanx import lax
from phalanx.core import ShardingError, state
from phalanx.core.array_operators import install
from phalanx.engine.traceback_filtering import hide_frames, mark_api_boundary
from phalanx.numpy.creation import array_creation
from phalanx.numpy.indexing import take
from phalanx.numpy.indexing.array_indexing import At, getitem, iterate
from phalanx.numpy.indexing.where import nonzero
from phalanx.numpy.operands import canonical_shape, unwrap_array_like
from phalanx.numpy.products import matrix_products
from phalanx.numpy.reductions import array_reductions, moments
from phalanx.numpy.shapes import diagonals, insertion, reshaping
from phalanx.numpy.sorting import sort_and_search
from phalanx.numpy.ufuncs import rounding, ufunc_methods as ufunc_methods, ufunc_table
from phalanx.numpy.ufuncs.ufunc_dispatch import is_operand, make_eager_binary, make_operators
from phalanx.runtime.array import Array
from phalanx.sharding import Mesh, NamedSharding, PartitionSpec
from phalanx.typing import ArrayLike, DTypeLike, Shape, ShardingLike

# Operator name -> ufunc. Each row defines `__name__` and the reflected `__rname__`.
_BINARY = {
    "add": ufunc_table.add,
    "sub": ufunc_table.subtract,
    "mul": ufunc_table.multiply,
    "truediv": ufunc_table.divide,
    "floordiv": ufunc_table.floor_divide,
    "mod": ufunc_table.remainder,
    "and": ufunc_table.bitwise_and,
    "or": ufunc_table.bitwise_or,
    "xor": ufunc_table.bitwise_xor,
    "lshift": ufunc_table.left_shift,
    "rshift": ufunc_table.right_shift,
}
_COMPARISONS = {
    "eq": ufunc_table.equal,
    "ne": ufunc_table.not_equal,
    "lt": ufunc_table.less,
    "le": ufunc_table.less_equal,
    "gt": ufunc_table.greater,
    "ge": ufunc_table.greater_equal,
}
_UNARY = {
    "neg": ufunc_table.negative,
    "pos": ufunc_table.positive,
    "abs": ufunc_table.absolute,
    "invert": ufunc_table.invert,
}
# Functions that become methods unchanged: module -> names.
_FUNCTIONS = {
    array_reductions: "all any argmax argmin cumprod cumsum max min prod ptp sum",
    moments: "mean std var",
    reshaping: "ravel squeeze swapaxes",
    diagonals: "diagonal trace",
    insertion: "repeat",
    sort_and_search: "argpartition argsort searchsorted sort",
    take: "choose take",
    ufunc_table: "conj conjugate",
    matrix_products: "dot",
    array_creation: "copy",
    rounding: "clip round",
}


def _make_guarded_operators(function: Callable[..., Array]) -> tuple[Callable, Callable]:
    """The operator and the reflected operator of a function that is not a ufunc, such as `matmul`."""
    run_eagerly = make_eager_binary(function, function.__name__)

    def operator(self: Array, other: object) -> Any:
        try:
            # Two concrete arrays: the compiled call, if there is one for their types.
            if type(other) is Array and type(self) is Array and state.trace is None:
                out = run_eagerly(self, other)
                if out is not None:
                    return out
            if hasattr(other, "aval"):
                return function(self, other)
            return function(self, unwrap_array_like(other)) if is_operand(other) else NotImplemented
        except Exception as error:
            hide_frames(error)
            raise

    def reflected(self: Array, other: object) -> Any:
        return function(unwrap_array_like(other), self) if is_operand(other) else NotImplemented

    return mark_api_boundary(operator), reflected


def _make_power_operators() -> tuple[Callable, Callable]:
    operator, reflected = make_operators(ufunc_table.power)

    def power(self: Array, other: object) -> Any:
        # A static integer becomes `integer_pow`, whose derivative is defined at 0.
        is_static = type(other) in ufunc_table.STATIC_EXPONENTS
        return ufunc_table.power(self, other) if is_static else operator(self, other)

    return power, reflected


def _reshape(self: Array, *args: Any, order: str = "C", out_sharding: ShardingLike | None = None) -> Array:
    # Called as x.reshape(2, 3) or as x.reshape((2, 3)).
    is_shape = len(args) == 1 and not isinstance(args[0], int) and not getattr(args[0], "is_symbolic_dim", False)
    shape = canonical_shape(args[0], "reshape") if is_shape else args
    return reshaping.reshape(self, shape, order, out_sharding=out_sharding)


def _transpose(self: Array, *args: Any) -> Array:
    if not args or args == (None,):
        return reshaping.transpose(self)
    return reshaping.transpose(self, args[0] if len(args) == 1 and not isinstance(args[0], int) else args)


def _astype(self: Array, dtype: DTypeLike | None, copy: bool = False, device: ShardingLike | None = None) -> Array:
    return array_creation.astype(self, dtype, copy=copy, device=device)


def _view(self: Array, dtype: DTypeLike | None = None, type: None = None) -> Array:
    """The same bytes read as another dtype; the last dimension grows or shrinks with the item size."""
    if dtype is None:
        return self
    dtype = np.dtype(dtype)
    if (self.dtype == np.bool_) != (dtype == np.bool_) and self.dtype.itemsize == dtype.itemsize == 1:
        # Booleans have no bits of their own: any byte but 0 is True.
        byte = np.dtype(np.uint8)
        if dtype == np.bool_:
            return _view(self, byte) != 0
        return _view(self.astype(byte), dtype)
    size = self.dtype.itemsize
    if size < dtype.itemsize:
        grouped: Shape = (*self.shape[:-1], -1, dtype.itemsize // size)
        return lax.bitcast_convert_type(reshaping.reshape(self, grouped), dtype)
    out = lax.bitcast_convert_type(self, dtype)
    return reshaping.reshape(out, (*self.shape[:-1], -1)) if size > dtype.itemsize and self.ndim else out


def _to_device(self: Array, device: ShardingLike | None, *, stream: object = None) -> Array:
    return array_creation.array(self, copy=False, device=device)


def _divmod(self: Array, other: object) -> Any:
    return ufunc_table.divmod(self, other) if hasattr(other, "aval") or is_operand(other) else NotImplemented


def _rdivmod(self: Array, other: object) -> Any:
    return ufunc_table.divmod(other, self) if is_operand(other) else NotImplemented


def _round(self: Array, ndigits: int | None = None) -> Array:
    # As in Python, round(x) is an integer and round(x, 0) is none.
    return rounding.round(self, ndigits) if ndigits is not None else rounding.round(self).astype(int)


def _compress(
    self: Array,
    condition: ArrayLike,
    axis: int | None = None,
    *,
    out: None = None,
    size: int | None = None,
    fill_value: ArrayLike = 0,
) -> Array:
    return take.compress(condition, self, axis, out=out, size=size, fill_value=fill_value)


def methods() -> dict[str, Any]:
    """All operators, methods and properties of arrays, by name."""
    table: dict[str, Any] = {}
    for name, ufunc in _BINARY.items():
        table[f"__{name}__"], table[f"__r{name}__"] = make_operators(ufunc)
    table["__pow__"], table["__rpow__"] = _make_power_operators()
    table["__matmul__"], table["__rmatmul__"] = _make_guarded_operators(matrix_products.matmul)
    # Python reflects a comparison by itself: `2 < x` calls `x > 2`.
    table |= {f"__{name}__": make_operators(ufunc)[0] for name, ufunc in _COMPARISONS.items()}
    table |= {f"__{name}__": _as_method(ufunc) for name, ufunc in _UNARY.items()}
    table |= {name: _as_method(getattr(m, name)) for m, names in _FUNCTIONS.items() for name in names.split()}
    return table | {
        "__divmod__": _divmod,
        "__rdivmod__": _rdivmod,
        "__round__": _round,
        "nonzero": nonzero,
        "__getitem__": getitem,
        "__iter__": iterate,
        "reshape": _reshape,
        "transpose": _transpose,
        "astype": _astype,
        "view": _view,
        "to_device": _to_device,
        "flatten": reshaping.ravel,
        "compress": _compress,
        "at": property(At),
        "T": property(reshaping.transpose),
        "mT": property(reshaping.matrix_transpose),
        "real": property(ufunc_table.real),
        "imag": property(ufunc_table.imag),
        "flat": property(reshaping.ravel),
        "itemsize": property(lambda self: self.dtype.itemsize),
        "nbytes": property(lambda self: self.size * self.dtype.itemsize),
    }


def _as_method(function: Callable[..., Array]) -> Callable[..., Array]:
    """A function as a method. A plain function binds to the array by itself; other callables need a wrapper."""
    if type(function) is FunctionType:
        return function

    def method(self: Array, *args: Any, **kwargs: Any) -> Array:
        return function(self, *args, **kwargs)

    method.__name__, method.__doc__ = function.__name__, function.__doc__
    return method


class _Views:
    """The attributes of `ShardedDeviceArray` and `GlobalDeviceArray`, copied to `Array` below."""

    shape: tuple[int, ...]
    ndim: int
    sharding: Any
    addressable_shards: list[Any]

    @property
    def sharding_spec(self) -> Any:
        """The sharding as a `ShardingSpec`: shards over an unnamed grid of devices.

        A dimension that a mesh axis splits into single elements, as `pmap` does, is `Unstacked`: `indices` and
        `device_buffers` then leave it out, as they did in older versions.
        """
        from phalanx.sharding.legacy_sharding_spec import ShardingSpec, Unstacked  # noqa: PLC0415 - for programs of 2021 only

        spec = ShardingSpec.of(self.sharding, self.ndim)
        entries = [
            Unstacked(self.shape[d]) if d in self._unstacked_dims else entry for d, entry in enumerate(spec.sharding)
        ]
        return ShardingSpec(entries, spec.mesh_mapping)

    @property
    def _unstacked_dims(self) -> list[int]:
        """The dimensions of which every shard holds one element."""
        if not isinstance(self.sharding, NamedSharding):
            return []
        size = self.sharding.mesh.shape
        dims = enumerate(self.sharding.axes(self.ndim))
        return [d for d, axes in dims if len(axes) == 1 and size[axes[0]] == self.shape[d]]

    @property
    def indices(self) -> tuple[Any, ...]:
        """The index of each device's shard in the global array, in the order of `device_buffers`."""
        unstacked = self._unstacked_dims
        shards = self.sharding.shards(self.shape)
        return tuple([tuple([s.start or 0 if d in unstacked else s for d, s in enumerate(x.index)]) for x in shards])

    @property
    def device_buffers(self) -> list[Any]:
        """The addressable shards, each an array on its device."""
        unstacked = self._unstacked_dims
        at = tuple([0 if d in unstacked else slice(None) for d in range(self.ndim)])
        return [shard.data[at] if unstacked else shard.data for shard in self.addressable_shards]

    @property
    def device_buffer(self) -> Any:
        """The first addressable shard; for an array on one device, the array itself."""
        return self.device_buffers[0]

    @property
    def one_replica_buffer_indices(self) -> list[int]:
        """Positions of the `device_buffers` that together hold each element exactly once."""
        return [i for i, shard in enumerate(self.addressable_shards) if shard.replica_id == 0]

    local_shards = property(attrgetter("addressable_shards"))

    def local_data(self, index: int) -> Any:
        """The addressable shard number `index`."""
        return self.addressable_shards[index].data

    @property
    def mesh(self) -> Mesh:
        """The mesh over which the array is sharded."""
        # An array is on devices, so that its mesh is not abstract.
        return self._require_named_sharding().mesh  # type: ignore[return-value]

    @property
    def mesh_axes(self) -> PartitionSpec:
        """The mesh axes over which each dimension is sharded."""
        return self._require_named_sharding().spec

    def _require_named_sharding(self) -> NamedSharding:
        if isinstance(self.sharding, NamedSharding):
            return self.sharding
        raise ShardingError(
            "mesh of an array",
            expected="an array that is sharded over a mesh",
            got=self.sharding,
            fix="place it with device_put(x, NamedSharding(mesh, spec)), or read x.sharding",
        )


for _name, _attribute in vars(_Views).items():
    if not _name.startswith("__"):
        setattr(Array, _name, _attribute)

install(methods())
