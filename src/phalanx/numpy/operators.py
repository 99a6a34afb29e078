"""The operators and methods of arrays and tracers: this module takes the seat that `core.operators` keeps for them."""

from __future__ import annotations

from typing import Any

from phalanx.core.config import state
from phalanx.core.operators import install
from phalanx.engine.frames import as_boundary, hide_frames
from phalanx.numpy import (
    contraction,
    creation,
    diagonals,
    indexing,
    reductions,
    repeating,
    rounding,
    shapes,
    sorting,
    taking,
    ufuncs,
)
from phalanx.numpy import legacy_views as legacy_views
from phalanx.numpy.at import At
from phalanx.numpy.operands import canonical_shape, unwrapped
from phalanx.numpy.ufunc import at_once, is_operand, operators_of
from phalanx.runtime.array import Array


def _guarded(function: Any) -> tuple[Any, Any]:
    """The operator and reflected operator of a function that has no plans of its own."""
    eagerly = at_once(function, function.__name__)

    def operator(self: Any, other: Any) -> Any:
        try:
            if type(other) is Array and type(self) is Array and state.trace is None:
                out = eagerly(self, other)
                if out is not None:
                    return out
            if hasattr(other, "aval"):
                return function(self, other)
            return function(self, unwrapped(other)) if is_operand(other) else NotImplemented
        except Exception as error:
            hide_frames(error)
            raise

    def reflected(self: Any, other: Any) -> Any:
        return function(unwrapped(other), self) if is_operand(other) else NotImplemented

    return as_boundary(operator), reflected


def _power_operators() -> tuple[Any, Any]:
    operator, reflected = operators_of(ufuncs.power)

    def power(self: Any, other: Any) -> Any:
        return ufuncs.power(self, other) if type(other) is int else operator(self, other)

    return power, reflected


def _dimensions(args: tuple, name: str) -> tuple:
    if len(args) == 1 and not isinstance(args[0], int) and not getattr(args[0], "is_symbolic_dim", False):
        return canonical_shape(args[0], name)
    return args


def _reshape(self: Any, *args: Any, order: str = "C", out_sharding: Any = None) -> Any:
    return shapes.reshape(self, _dimensions(args, "reshape"), order, out_sharding=out_sharding)


def _transpose(self: Any, *args: Any) -> Any:
    if not args or args == (None,):
        return shapes.transpose(self)
    return shapes.transpose(self, args[0] if len(args) == 1 and not isinstance(args[0], int) else args)


def _astype(self: Any, dtype: Any, copy: bool = False, device: Any = None) -> Any:
    return creation.astype(self, dtype, copy=copy, device=device)


def _view(self: Any, dtype: Any = None, type: None = None) -> Any:
    """The same bytes read as another dtype, the last dimension growing or shrinking with its size."""
    import numpy as np

    from phalanx import lax

    if dtype is None:
        return self
    dtype = np.dtype(dtype)
    own = self.dtype
    if own.itemsize == dtype.itemsize:
        return lax.bitcast_convert_type(self, dtype)
    if own.itemsize > dtype.itemsize:
        out = lax.bitcast_convert_type(self, dtype)
        return shapes.reshape(out, (*self.shape[:-1], -1)) if self.ndim else out
    ratio = dtype.itemsize // own.itemsize
    return lax.bitcast_convert_type(shapes.reshape(self, (*self.shape[:-1], -1, ratio)), dtype)


def _to_device(self: Any, device: Any, *, stream: Any = None) -> Any:
    return creation.array(self, copy=False, device=device)


def _divmod(self: Any, other: Any) -> Any:
    return ufuncs.divmod(self, other) if hasattr(other, "aval") or is_operand(other) else NotImplemented


def _rdivmod(self: Any, other: Any) -> Any:
    return ufuncs.divmod(other, self) if is_operand(other) else NotImplemented


def _round(self: Any, ndigits: int | None = None) -> Any:
    return rounding.round(self, 0 if ndigits is None else ndigits)


def _clip(self: Any, min: Any = None, max: Any = None, **older: Any) -> Any:
    return rounding.clip(self, min, max, **older)


def _flatten(self: Any, order: str = "C", *, out_sharding: Any = None) -> Any:
    return shapes.ravel(self, order, out_sharding=out_sharding)


def _searchsorted(self: Any, v: Any, side: str = "left", sorter: Any = None, *, method: str = "scan") -> Any:
    return sorting.searchsorted(self, v, side, sorter, method=method)


def methods() -> dict[str, Any]:
    """All operators and methods, by name."""
    table: dict[str, Any] = {}
    binary = {
        "add": ufuncs.add, "sub": ufuncs.subtract, "mul": ufuncs.multiply, "truediv": ufuncs.divide,
        "floordiv": ufuncs.floor_divide, "mod": ufuncs.remainder, "and": ufuncs.bitwise_and, "or": ufuncs.bitwise_or,
        "xor": ufuncs.bitwise_xor, "lshift": ufuncs.left_shift, "rshift": ufuncs.right_shift,
    }  # fmt: skip
    for name, function in binary.items():
        table[f"__{name}__"], table[f"__r{name}__"] = operators_of(function)
    table["__pow__"], table["__rpow__"] = _power_operators()
    table["__matmul__"], table["__rmatmul__"] = _guarded(contraction.matmul)
    table["__divmod__"], table["__rdivmod__"] = _divmod, _rdivmod
    for name, function in {
        "eq": ufuncs.equal, "ne": ufuncs.not_equal, "lt": ufuncs.less, "le": ufuncs.less_equal, "gt": ufuncs.greater,
        "ge": ufuncs.greater_equal,
    }.items():  # fmt: skip
        table[f"__{name}__"], _ = operators_of(function)
    for name, function in {
        "neg": ufuncs.negative, "pos": ufuncs.positive, "abs": ufuncs.absolute, "invert": ufuncs.invert,
    }.items():  # fmt: skip
        table[f"__{name}__"] = _method(function)
    table["__round__"] = _round
    table["__getitem__"], table["__iter__"] = indexing.getitem, indexing.iterate
    for room, names in {
        reductions: "all any argmax argmin cumprod cumsum max mean min prod ptp std sum var",
        shapes: "ravel squeeze swapaxes",
        diagonals: "diagonal trace",
        repeating: "repeat",
        sorting: "argpartition argsort sort",
        taking: "choose nonzero take",
        ufuncs: "conj conjugate",
        contraction: "dot",
        creation: "copy",
        rounding: "round",
    }.items():
        for name in names.split():
            table[name] = _method(getattr(room, name))
    table |= {
        "reshape": _reshape, "transpose": _transpose, "astype": _astype, "view": _view, "to_device": _to_device,
        "clip": _clip, "flatten": _flatten, "searchsorted": _searchsorted,
        "compress": lambda self, condition, axis=None, *, out=None, size=None, fill_value=0: taking.compress(
            condition, self, axis, out=out, size=size, fill_value=fill_value
        ),
        "at": property(At),
        "T": property(shapes.transpose), "mT": property(shapes.matrix_transpose),
        "real": property(ufuncs.real), "imag": property(ufuncs.imag), "flat": property(shapes.ravel),
        "itemsize": property(lambda self: self.dtype.itemsize),
        "nbytes": property(lambda self: self.size * self.dtype.itemsize),
    }  # fmt: skip
    return table


def _method(function: Any) -> Any:
    """A function as a method: a plain function binds, a wrapped one needs a shell."""
    if type(function) is type(_method):
        return function

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    method.__name__, method.__doc__ = function.__name__, function.__doc__
    return method


install(methods())
