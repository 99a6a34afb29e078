"""Eager operations: a primitive applied to concrete arrays while nothing is traced.

Each primitive is compiled once for each combination of argument types, parameters and options, and kept in
`Primitive.calls`; later calls are one look-up and one execution. Importing this module provides the evaluation of
primitives to `core.primitive`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.core import (
    ArgumentTypeError,
    Primitive,
    Tracer,
    check_allowed,
    current_scope,
    dtypes,
    eager,
    get_aval,
    inner_jaxprs,
    leak_error,
    trace_to_jaxpr,
)
from phalanx.engine import buffers, client
from phalanx.runtime.array import Array, ArrayType, wrap_buffer
from phalanx.runtime.compiled_program import CompiledCall, compile_call, explain_failure
from phalanx.runtime.transfer import scalar_array


def concrete_type(x: Any) -> ArrayType:
    """The type of an argument of an eager call."""
    if type(x) is Array:
        return x._type
    if isinstance(x, Tracer):
        raise leak_error(x)
    return ArrayType(get_aval(x), None, False)


def run(primitive: Primitive, args: Sequence[Any], params: dict) -> Any:
    """Apply a primitive to concrete values."""
    try:
        types = tuple([x._type for x in args])
    except AttributeError:  # Python or NumPy values among the arguments
        args = [x if type(x) is Array else scalar_array(x) for x in args]
        types = tuple([concrete_type(x) for x in args])
    try:
        call = primitive.calls.get((types, current_scope().context, *params, *params.values()))
    except TypeError:  # an unhashable parameter
        call = None
    if call is None or not call.is_direct:
        return _run_slowly(primitive, args, params)
    try:
        if not primitive.multiple:
            return call.run_one([x._buffer for x in args])
        out = call.execute([x._buffer for x in args])
    except Exception as error:
        explain_failure(error, args)
        raise
    return list(map(wrap_buffer, out, call.out_types))


def _run_slowly(primitive: Primitive, args: Sequence[Any], params: dict) -> Any:
    """The slow path: cache misses, unhashable parameters, and primitives that define their own `run`."""
    return primitive.impl(*args, **params)


def compile_and_run(primitive: Primitive, args: Sequence[Any], params: dict) -> Any:
    """Apply a primitive to concrete values by its compiled form, which is made if it is not cached."""
    types = tuple([concrete_type(x) for x in args])
    key = (types, current_scope().context, *params, *params.values())
    # The compiled forms of a call are kept on the jaxpr that it calls, and freed with it.
    calls: Any = next(iter(inner_jaxprs(params))).cache if primitive.call_like else primitive.calls
    try:
        call = calls.get(key)
    except TypeError as error:
        raise _unhashable_parameter(primitive, params) from error
    if call is None:
        call = compile_operation(primitive, types, params)
        if primitive.run is None:  # `run` looks for compiled forms first
            calls[key] = call
    out = check_values(primitive.name, call(args))
    return out if primitive.multiple else out[0]


def compile_operation(primitive: Primitive, types: Sequence[ArrayType], params: dict) -> CompiledCall:
    """Compile one operation for arguments of these types."""
    check_allowed("no_execution", f"a run of {primitive.name}")
    apply = functools.partial(primitive.bind_as_list, **params)
    return compile_call(trace_to_jaxpr(apply, [t.aval for t in types], primitive.name), types, primitive.name)


def _unhashable_parameter(primitive: Primitive, params: dict) -> ArgumentTypeError:
    for name, value in params.items():
        try:
            hash(value)
        except TypeError:
            return ArgumentTypeError(
                f"{primitive.name}, parameter {name}",
                expected="a hashable value",
                got=value,
                fix=f"pass {name} as a tuple or a Python scalar",
            )
    return ArgumentTypeError(
        primitive.name, expected="hashable parameters", got=repr(params), fix="pass tuples instead of lists"
    )


def check_values(name: str, out: list[Array]) -> list[Array]:
    """Return the results of an operation; with `debug_nans` or `debug_infs`, refuse results that hold such values.

    Raises:
      FloatingPointError: a result has a NaN or an infinity, and the option forbids it.
    """
    context = current_scope().context
    if not (context.debug_nans or context.debug_infs):
        return out
    found = next(filter(None, [_find_refused(x, context) for x in out]), "")
    found = _join_processes(name, out, found)
    if found:
        raise FloatingPointError(f"invalid value ({found}) encountered in {name}")
    return out


def _find_refused(x: Array, context: Any) -> str:
    """The value that the options refuse and a shard of this process holds: "nan", "inf" or ""."""
    if dtypes.is_extended(x.dtype) or (kind := x.dtype.kind) not in "fcV":
        return ""
    if x.is_fully_addressable:
        held = [np.asarray(x)]
    else:  # Not as `shard.data`, which cuts off the padding by operations that would be checked themselves.
        places = x.sharding.addressable_shards(x.shape)
        pieces = map(buffers.to_host, buffers.shards(x._live()))
        held = [piece[tuple(map(slice, s.shape))] for s, piece in zip(places, pieces, strict=True)]
    values = [part.astype(np.complex64 if kind != "c" else x.dtype) for part in held]
    if context.debug_nans and any(np.isnan(value).any() for value in values):
        return "nan"
    return "inf" if context.debug_infs and any(np.isinf(value).any() for value in values) else ""


def _join_processes(name: str, out: list[Array], found: str) -> str:
    """What one of the processes has found in its shards, so that all of them raise, or none does."""
    shared = next((x for x in out if not x.is_fully_addressable), None)
    coordinator = client.coordinator()
    if shared is None or coordinator is None:
        return found
    processes = sorted({device.process_index for device in shared.sharding.device_set})
    if coordinator.process_id not in processes:
        return found
    among = None if len(processes) == coordinator.num_processes else processes
    return next(filter(None, coordinator.exchange(f"the check of {name} for NaNs", found, among=among)), "")


eager.provide(run=run, compile_and_run=compile_and_run)
