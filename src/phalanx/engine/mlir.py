"""MLIR: contexts with the dialects that programs use, element types, constants and source locations.

Builds on jaxlib's MLIR bindings. Each lowering has a new context, which takes a quarter of a millisecond to
make: its types, attributes and locations are freed with it, and since two threads never share one, it needs no locks.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jaxlib.mlir._mlir_libs._jax_mlir_ext as _ext
import ml_dtypes
import numpy as np
from jaxlib import _jax
from jaxlib.mlir import ir as ir
from jaxlib.mlir._mlir_libs import _chlo, _sdy, _stablehlo
from jaxlib.mlir.dialects import func as func

from phalanx.engine.cache import on_clear
from phalanx.engine.mlir_dialects import chlo as chlo, hlo as hlo, i32 as i32, i64 as i64, mhlo as mhlo, sdy as sdy
from phalanx.engine.thread_call import call_in_thread
from phalanx.engine.traceback_filtering import is_user_file

# As many as JAX keeps (`jax_traceback_in_locations_limit`); each further frame makes all modules larger.
_FRAMES_KEPT = 10

current_traceback: Callable[[], Any] = _jax.Traceback.get_traceback
"""The calling thread's stack, as code objects and offsets: 0.1 to 0.4 us, nothing is formatted."""

# Loading `_sdy` in jaxlib 0.12 imports this module before the names that it needs exist; jax would find it incomplete.
if (_halfway := sys.modules.get("jaxlib.mlir.dialects.sdy")) is not None:
    importlib.reload(_halfway)

_registry = ir.DialectRegistry()
_ext.register_dialects(_registry)


_loaded = threading.Event()


def _load_dialects() -> None:
    """Load the Python modules of the dialects, which MLIR's C++ would otherwise import in the middle of a lowering."""
    for dialect in ("builtin", "stablehlo", "chlo", "sdy"):
        importlib.import_module(f"jaxlib.mlir.dialects.{dialect}")
    _loaded.set()


def make_context() -> ir.Context:
    """Make a context with every dialect of Phalanx programs; only one thread at a time may use it."""
    if not _loaded.is_set():
        call_in_thread(_load_dialects)  # An exception in C++ would end the process, and half a module stays half.
    context = ir.Context()
    # A thread pool for each context would cost more than the passes that could use it.
    context.enable_multithreading(False)
    context.append_dialect_registry(_registry)
    for dialect in (_stablehlo, _chlo, _sdy):
        dialect.register_dialect(context, load=True)
    context.dialects["func"]  # looking up a dialect loads it
    return context


FRONTEND_ATTRIBUTES = "mhlo.frontend_attributes"
"""The attribute of an operation whose entries XLA hands on to its passes and to tools."""


def walk_operations(root: ir.Operation) -> Iterator[ir.Operation]:
    """Iterate over an operation and all operations inside it, in the order of the text.

    MLIR's `walk` raises a RuntimeError in the place of a KeyboardInterrupt.
    """
    pending = [root]
    while pending:
        op = pending.pop()
        yield op
        inside = [inner.operation for region in op.regions for block in region.blocks for inner in block.operations]
        pending += reversed(inside)


def to_frontend_attributes(metadata: Mapping[str, Any]) -> ir.Attribute:
    """XLA metadata as an MLIR dictionary; values are strings or string attributes."""
    return ir.DictAttr.get({k: ir.StringAttr.get(v) if isinstance(v, str) else v for k, v in metadata.items()})


def cached_per_context(make: Callable[..., Any]) -> Callable[..., Any]:
    """Cache the results of a function that builds MLIR objects, for as long as the current context is the same.

    An attribute belongs to its context: used in a module of another context it prints correctly, but crashes passes
    that build new attributes from it. The arguments must be hashable.
    """
    held: tuple[Any, dict[Any, Any]] = None, {}

    @functools.wraps(make)
    def made(*args: Any) -> Any:
        nonlocal held
        context, known = held
        current = ir.Context.current
        if context is not current:
            held = current, known = current, {}
        found = known.get(args, known)  # the dictionary itself marks a missing key, since a result may be None
        if found is known:
            found = known[args] = make(*args)
        return found

    def forget() -> None:
        nonlocal held
        held = None, {}

    _forgetting.append(forget)
    return made


_forgetting: list[Callable[[], None]] = []


def clear_context_caches() -> None:
    """Drop the results cached by `cached_per_context`, which keep the context and its constants alive."""
    for forget in _forgetting:
        forget()


on_clear(clear_context_caches)


_make_signless = functools.partial(functools.partial, ir.IntegerType.get_signless)
_make_unsigned = functools.partial(functools.partial, ir.IntegerType.get_unsigned)


def _float(name: str) -> Callable[[], ir.Type] | None:
    """The constructor of a small float type; None if these bindings do not have the type."""
    return getattr(getattr(ir, name, None), "get", None)


_COMMON_TYPES: dict[Any, Callable[[], ir.Type]] = {
    np.bool_: _make_signless(1),
    np.int8: _make_signless(8),
    np.int16: _make_signless(16),
    np.int32: _make_signless(32),
    np.int64: _make_signless(64),
    np.uint8: _make_unsigned(8),
    np.uint16: _make_unsigned(16),
    np.uint32: _make_unsigned(32),
    np.uint64: _make_unsigned(64),
    np.float16: ir.F16Type.get,
    np.float32: ir.F32Type.get,
    np.float64: ir.F64Type.get,
    np.complex64: lambda: ir.ComplexType.get(ir.F32Type.get()),
    np.complex128: lambda: ir.ComplexType.get(ir.F64Type.get()),
    ml_dtypes.bfloat16: ir.BF16Type.get,
}
# Versions of ml_dtypes and of the bindings have different small types; the types in both are supported.
_SMALL_TYPES: dict[str, Callable[[], ir.Type] | None] = {
    "int1": _make_signless(1),
    "int2": _make_signless(2),
    "int4": _make_signless(4),
    "uint1": _make_unsigned(1),
    "uint2": _make_unsigned(2),
    "uint4": _make_unsigned(4),
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


_TYPE_MAKERS: dict[np.dtype, Callable[[], ir.Type]] = {
    **{np.dtype(scalar): make for scalar, make in _COMMON_TYPES.items()},
    **{
        np.dtype(getattr(ml_dtypes, name)): make
        for name, make in _SMALL_TYPES.items()
        if hasattr(ml_dtypes, name) and make is not None
    },
    # `float0`, the tangent type of integers, has no values; where a module needs one, it is a bit.
    np.dtype([("float0", np.void, 0)]): _make_signless(1),
}


@functools.cache
def _dtypes_by_type() -> dict[str, np.dtype]:
    with make_context():
        return {str(make()): dtype for dtype, make in reversed(_TYPE_MAKERS.items())}  # bits are bool, not float0


def ir_to_dtype(element: ir.Type) -> np.dtype:
    """Convert an MLIR element type to a dtype; the inverse of `dtype_to_ir`."""
    return _dtypes_by_type()[str(element)]


def dtype_to_ir(dtype: np.dtype) -> ir.Type:
    """Convert a dtype to an MLIR element type of the current context.

    Args:
      dtype: any dtype that XLA supports, or float0, which becomes a bit.

    Returns:
      The MLIR element type; unsigned integers are unsigned in MLIR, signed ones are signless.

    Raises:
      TypeError: XLA has no such element type.
    """
    try:
        return _TYPE_MAKERS[dtype]()
    except KeyError:
        raise TypeError(f"XLA has no element type for the dtype {dtype!r}") from None


def dense_constant(value: np.ndarray) -> ir.DenseElementsAttr:
    """Make an attribute of the current context from an array; a splat if all elements are equal.

    Args:
      value: the array, of any dtype that `dtype_to_ir` accepts and any memory layout.

    Returns:
      The attribute, with the type `tensor<shape x element>`.
    """
    element = dtype_to_ir(value.dtype)
    if value.dtype.itemsize == 0:
        value = np.zeros(value.shape, np.bool_)
    # A splat is stored once, however large the array is.
    if value.size > 1 and _is_uniform(value):
        return ir.DenseElementsAttr.get(
            np.ascontiguousarray(value[(slice(0, 1),) * value.ndim]), type=element, shape=value.shape
        )
    return ir.DenseElementsAttr.get(np.asarray(value, order="C"), type=element, shape=value.shape)


def _is_uniform(value: np.ndarray) -> bool:
    """Whether all elements have the same bits; NaNs with the same bits count as equal, 0.0 and -0.0 do not."""
    if not any(value.strides):
        return True
    flat = value.reshape(-1)
    # The first and last element decide nearly every array that is not uniform, without a pass over it.
    first = flat[:1].tobytes()
    return first == flat[-1:].tobytes() and flat.tobytes() == first * flat.size


class Locations:
    """Source locations of one context, made from raw tracebacks and cached.

    Locations contain only frames outside of the phalanx package.

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
        """Return the location of `traceback`, under `name` if it is given.

        Args:
          traceback: from `current_traceback`, or None.
          name: the operation's name in the compiled program's metadata, scopes included.

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
    """The file of a code object; None, which drops the frame, for Phalanx itself."""
    filename = code.co_filename
    return filename if is_user_file(filename) else None


class Frame(NamedTuple):
    """A position in the source of a program.

    Args:
      file_name: the path of the file.
      function_name: the qualified name of the function.
      line_num: the line, from 1.
      column: the position of the expression in the line, from 0.
    """

    file_name: str
    function_name: str
    line_num: int
    column: int


def user_frames(traceback: Any) -> list[Frame]:
    """The frames of a raw traceback outside of Phalanx, innermost first.

    Args:
      traceback: from `current_traceback`, or None.
    """
    frames = () if traceback is None else zip(*traceback.raw_frames(), strict=True)
    return [
        Frame(code.co_filename, code.co_qualname, *traceback.code_addr2location(code, instruction)[:2])
        for code, instruction in frames
        if is_user_file(code.co_filename)
    ]
