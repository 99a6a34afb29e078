"""Building MLIR: the dialects, contexts, element types, constants and source locations.

Builds on jaxlib's MLIR bindings; the lowering in `runtime` and the `lower` rules in `lax` call it. One context serves
one lowering: it costs a quarter of a millisecond, its types, attributes and locations are freed with it, and two
threads never share one, so that it needs no locks.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

import jaxlib.mlir._mlir_libs._jax_mlir_ext as _ext
import ml_dtypes
import numpy as np
from jaxlib import _jax
from jaxlib.mlir import ir as ir
from jaxlib.mlir._mlir_libs import _chlo, _sdy, _stablehlo
from jaxlib.mlir.dialects import func as func

from phalanx.engine.dialect import chlo as chlo
from phalanx.engine.dialect import hlo as hlo
from phalanx.engine.dialect import i32 as i32
from phalanx.engine.dialect import i64 as i64
from phalanx.engine.dialect import mhlo as mhlo
from phalanx.engine.dialect import sdy as sdy
from phalanx.engine.frames import PACKAGE

_FRAMES_KEPT = 10

current_traceback: Callable[[], Any] = _jax.Traceback.get_traceback
"""The calling thread's stack, as code objects and offsets: 0.1 to 0.4 us, nothing is formatted."""

# Loading `_sdy` of jaxlib 0.12 loads this module on the way, before there is all that it names; jax beside us needs it.
if (_halfway := sys.modules.get("jaxlib.mlir.dialects.sdy")) is not None:
    importlib.reload(_halfway)

_registry = ir.DialectRegistry()
_ext.register_dialects(_registry)


def make_context() -> ir.Context:
    """Make a context in which every dialect of a Phalanx program is known; it must stay on one thread at a time."""
    context = ir.Context()
    context.enable_multithreading(False)
    context.append_dialect_registry(_registry)
    for dialect in (_stablehlo, _chlo, _sdy):
        dialect.register_dialect(context, load=True)
    context.dialects["func"]  # Looking a dialect up loads it.
    return context


def per_context(make: Callable[..., Any]) -> Callable[..., Any]:
    """Remember what a function builds of MLIR, as long as the context stays the same.

    An attribute belongs to its context; in a program of another one it prints well, and ends the process in passes
    that build more from it. The arguments must be hashable.
    """
    held: tuple[Any, dict[Any, Any]] = None, {}

    @functools.wraps(make)
    def made(*args: Any) -> Any:
        nonlocal held
        context, known = held
        current = ir.Context.current
        if context is not current:
            held = current, known = current, {}
        found = known.get(args, known)  # the dictionary itself stands for nothing: None may be what is remembered
        if found is known:
            found = known[args] = make(*args)
        return found

    def forget() -> None:
        nonlocal held
        held = None, {}

    _forgetting.append(forget)
    return made


_forgetting: list[Callable[[], None]] = []


def forget_attributes() -> None:
    """Let go of what `per_context` remembers, and so of the context and the constants in it."""
    for forget in _forgetting:
        forget()


def _signless(width: int) -> Callable[[], ir.Type]:
    return lambda: ir.IntegerType.get_signless(width)


def _unsigned(width: int) -> Callable[[], ir.Type]:
    return lambda: ir.IntegerType.get_unsigned(width)


def _float(name: str) -> Callable[[], ir.Type] | None:
    """Give the maker of a small float type, None where these bindings lack it."""
    return getattr(getattr(ir, name, None), "get", None)


_COMMON_TYPES: dict[Any, Callable[[], ir.Type]] = {
    np.bool_: _signless(1),
    np.int8: _signless(8),
    np.int16: _signless(16),
    np.int32: _signless(32),
    np.int64: _signless(64),
    np.uint8: _unsigned(8),
    np.uint16: _unsigned(16),
    np.uint32: _unsigned(32),
    np.uint64: _unsigned(64),
    np.float16: ir.F16Type.get,
    np.float32: ir.F32Type.get,
    np.float64: ir.F64Type.get,
    np.complex64: lambda: ir.ComplexType.get(ir.F32Type.get()),
    np.complex128: lambda: ir.ComplexType.get(ir.F64Type.get()),
    ml_dtypes.bfloat16: ir.BF16Type.get,
}
# The small types differ between versions of ml_dtypes and of the bindings: what both know is offered.
_SMALL_TYPES: dict[str, Callable[[], ir.Type] | None] = {
    "int1": _signless(1),
    "int2": _signless(2),
    "int4": _signless(4),
    "uint1": _unsigned(1),
    "uint2": _unsigned(2),
    "uint4": _unsigned(4),
    "float4_e2m1fn": _float("Float4E2M1FNType"),
    "float6_e2m3fn": _float("Float6E2M3FNType"),
    "float6_e3m2fn": _float("Float6E3M2FNType"),
    "float8_e3m4": _float("Float8E3M4Type"),
    "float8_e4m3": _float("Float8E4M3Type"),
    "float8_e4m3b11fnuz": _float("Float8E4M3B11FNUZType"),
    "float8_e4m3fn": _float("Float8E4M3FNType"),
    "float8_e4m3fnuz": _float("Float8E4M3FNUZType"),
    "float8_e5m2": _float("Float8E5M2Type"),
    "float8_e5m2fnuz": _float("Float8E5M2FNUZType"),
    "float8_e8m0fnu": _float("Float8E8M0FNUType"),
}


def _type_makers() -> dict[np.dtype, Callable[[], ir.Type]]:
    makers = {np.dtype(scalar): make for scalar, make in _COMMON_TYPES.items()}
    for name, make in _SMALL_TYPES.items():
        if hasattr(ml_dtypes, name) and make is not None:
            makers[np.dtype(getattr(ml_dtypes, name))] = make
    # The type of the tangents of integers has no values; a bit stands for it where the program must hold one.
    makers[np.dtype([("float0", np.void, 0)])] = _signless(1)
    return makers


_TYPE_MAKERS = _type_makers()


def dtype_to_ir(dtype: np.dtype) -> ir.Type:
    """Give the element type of `dtype` in the current context.

    Args:
      dtype: any dtype that XLA takes, or float0, which is held as a bit.

    Returns:
      The MLIR element type; unsigned integers keep their sign, signed ones are signless.

    Raises:
      TypeError: XLA has no such element type.
    """
    try:
        return _TYPE_MAKERS[dtype]()
    except KeyError:
        raise TypeError(f"XLA has no element type for the dtype {dtype!r}") from None


def dense_constant(value: np.ndarray) -> ir.DenseElementsAttr:
    """Give the elements of `value` as an attribute of the current context, as a splat where all are the same.

    Args:
      value: the array; any dtype that `dtype_to_ir` takes, any memory layout.

    Returns:
      The attribute, with the type `tensor<shape x element>`.
    """
    element = dtype_to_ir(value.dtype)
    if value.dtype.itemsize == 0:
        value = np.zeros(value.shape, np.bool_)
    if value.size > 1 and _is_uniform(value):
        return ir.DenseElementsAttr.get(
            np.ascontiguousarray(value[(slice(0, 1),) * value.ndim]), type=element, shape=value.shape
        )
    if not value.flags.c_contiguous:
        value = np.ascontiguousarray(value)
    return ir.DenseElementsAttr.get(value, type=element, shape=value.shape)


def _is_uniform(value: np.ndarray) -> bool:
    """Whether all elements have the same bits; NaNs count as equal, zeros of unlike sign do not."""
    if not any(value.strides):
        return True
    flat = value.reshape(-1)
    if flat[:1].tobytes() != flat[-1:].tobytes():
        return False
    return flat.tobytes() == flat[:1].tobytes() * flat.size


class Locations:
    """Source locations of one context, made from raw tracebacks; what was made once is looked up.

    Only the user's frames are kept: those inside the phalanx package are left out.

    Args:
      context: the context that the locations belong to.
      frames: how many of the innermost user frames a location names.

    Examples:
      >>> locations = Locations(make_context())
      >>> print(locations(None, "sin"))
      loc("sin")
    """

    def __init__(self, context: ir.Context, frames: int = _FRAMES_KEPT) -> None:
        self._from_traceback = _ext.TracebackToLocationCache(_user_file, frames, context=context).get
        self._unknown = ir.Location.unknown(context)
        self._context = context
        self._made: dict[tuple[Any, str | None], ir.Location] = {}

    def __call__(self, traceback: Any, name: str | None = None) -> ir.Location:
        """Give the location of `traceback`, under `name` if there is one.

        Args:
          traceback: what `current_traceback` gave, or None where none was taken.
          name: what stands as the operation's name in the compiled program's metadata, scopes included.

        Returns:
          The location; the unknown one if there is neither a traceback nor a name.
        """
        key = (traceback, name)
        made = self._made.get(key)
        if made is not None:
            return made
        place = self._unknown if traceback is None else self._from_traceback(traceback)
        made = place if name is None else ir.Location.name(name, place, context=self._context)
        self._made[key] = made
        return made


def _user_file(code: Any) -> str | None:
    """Name the file of a code object; None, which drops the frame, for our own."""
    filename = code.co_filename
    return None if filename.startswith(PACKAGE) or filename.startswith("<frozen") else filename


def user_frames(traceback: Any) -> list[Any]:
    """List the frames of a raw traceback that are the user's, innermost first.

    Args:
      traceback: what `current_traceback` gave, or None.

    Returns:
      Records with `file_name`, `function_name` and `line_num`.
    """
    if traceback is None:
        return []
    return [frame for frame in traceback.frames if not frame.file_name.startswith((PACKAGE, "<frozen"))]
