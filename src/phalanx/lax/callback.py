"""Callbacks: Python functions that compiled programs call on the host.

A `pure_callback` depends on its arguments only and may be dropped or repeated; an `io_callback` has a side effect. Both
bind the primitive `host_callback_p`, as do `debug.callback`, `debug.print` and `experimental.host_callback`. Outside of
a trace the function is called directly.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx.core import (
    ArgumentError,
    ArgumentTypeError,
    Effect,
    Effects,
    Primitive,
    RuleError,
    ShapedArray,
    ShardingRule,
    Zero,
    dtypes,
    format_source,
    get_aval,
    io_effect,
    no_effects,
    ordered_io_effect,
    physical_aval,
)
from phalanx.engine.callbacks import CallbackResultError, check_results, emit_callback, host_function
from phalanx.engine.mlir import hlo
from phalanx.engine.runtime_errors import to_reported
from phalanx.lax.collectives.replica_groups import run_on_one_device_per_group
from phalanx.lax.control_flow.scan import map as map_one_by_one
from phalanx.lax.indexing.static_slice import index_in_dim
from phalanx.lax.shape import batched_sharding_rule, expand_dims
from phalanx.lax.shape.concatenate import concatenate
from phalanx.lax.sharding.out_sharding import shard_dim
from phalanx.runtime import (
    ORDER_TOKEN,
    Array,
    ArrayType,
    LoweringContext,
    common_devices,
    effects_barrier,
    transfer,
    wrap_buffer,
)
from phalanx.sharding import GSPMDSharding, Sharding, SingleDeviceSharding
from phalanx.transforms.batching import AxisData, move_mapped_dim
from phalanx.tree import tree_flatten, tree_unflatten
from phalanx.typing import DTypeLike, PyTree

# The ways to batch a function that cannot be traced.
VMAP_METHODS = "sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized"
SEQUENTIAL, UNROLLED, EXPAND_DIMS, BROADCAST_ALL, LEGACY = VMAP_METHODS


class Caller(NamedTuple):
    """The device that makes a call in a program for several devices.

    Args:
      device: a device, or its index among the devices of the program; None for a call on each device, with the shards
        of the operands that XLA chooses. Inside `shard_map` and `pmap` each device makes a call, and this argument is
        not used.
      receives_device: whether the function gets the device as its first argument.
    """

    device: Any = 0
    receives_device: bool = False


class Tap:
    """A host function without results that also receives the transformations under which it is called.

    Args:
      function: takes the transformations and the operands.
      transforms: the transformations of the program so far, as pairs of a name and details, in order.
    """

    __slots__ = ("function", "transforms")

    def __init__(self, function: Callable, transforms: tuple = ()):
        self.function, self.transforms = function, transforms

    __name__ = "tap"

    def __call__(self, *operands: Any) -> list:
        self.function(self.transforms, *operands)
        return []

    def batched(self, dims: tuple) -> Tap:
        """The tap for a batch that is mapped along these dimensions of the operands."""
        return Tap(self.function, (*self.transforms, ("batch", {"batch_dims": dims})))


class HostCall(Primitive, name="host_callback", multiple=True):
    """Call a host function: (*operands) -> results of the declared types."""

    def abstract_eval(self, *avals: Any, results: tuple, **_: Any) -> list:
        return list(results)

    def effects(self, *avals: Any, effect: Effect | None, **_: Any) -> Effects:
        return no_effects if effect is None else frozenset({effect})

    def sharding_rule(self, *avals: Any, results: tuple, **_: Any) -> ShardingRule:
        # The function receives complete arrays, so sharded operands are gathered first.
        rule = batched_sharding_rule(avals, [a.ndim for a in results])
        gathered = {name: () for names in rule.operands for name in names}
        return ShardingRule(rule.operands, rule.results, whole=rule.whole, resized=gathered)

    def run(
        self, *args: Any, function: Callable, results: tuple, effect: Effect | None, caller: Caller, **params: Any
    ) -> list:
        if any(type(x) is Array and not x.is_fully_addressable for x in args):
            # As part of a program: one of the processes makes the call, with the whole arrays.
            given = {"function": function, "results": results, "effect": effect, "caller": caller, **params}
            out = self.evaluate(*args, **given)
            if effect is not None:
                effects_barrier()
            return list(out)
        # Outside of a trace a call happens at once, so ordered calls of programs that are still running must finish
        # first.
        if effect is not None and effect.ordered:
            effects_barrier()
        # Eager operands may be NumPy arrays or Python scalars.
        arrays = [x if type(x) is Array else transfer.put(x) for x in args]
        name = getattr(function, "__name__", "callback")
        devices, committed = common_devices([x._type for x in arrays], lambda i: f"{name}, argument {i}")
        devices = devices or tuple(transfer.default_sharding().device_set)
        if caller.receives_device:
            function = functools.partial(function, devices[_partition(devices, caller)])
        # The function receives copies: it may keep or change its arguments.
        try:
            given = check_results(name, function(*map(_host_value, arrays)), results)
        except Exception as error:
            raise to_reported(error) from None
        whole = transfer.single_device_sharding(devices[0]) if len(devices) == 1 else GSPMDSharding.replicated(devices)
        return [transfer.put(x, whole, a, committed) for x, a in zip(given, results)]

    def lower(
        self,
        ctx: LoweringContext,
        *operands: Any,
        function: Callable,
        results: tuple,
        effect: Effect | None,
        vmap_method: str | None,
        caller: Caller,
    ) -> list:
        module, manual = ctx.module, ctx.module.manual
        devices, is_global = module.device_assignment, manual is None
        partition = (
            None if caller.device is None else _partition(devices, caller, f", at {format_source(ctx.eqn.source)}")
        )
        # Outside of `shard_map` the calling device is known while lowering. Inside, the device number is an operand.
        if caller.receives_device and is_global:
            function = functools.partial(function, devices[partition])
        elif caller.receives_device:
            function = _told_where(function, devices)
        if any(dtypes.itemsize_bits(a.dtype) < 8 for a in ctx.avals_in):
            function = _as_typed(function, [a.dtype for a in ctx.avals_in])
        # An order token is an operand and a result of the call, so that the compiler keeps the calls in order.
        ordered = effect is not None and effect.ordered
        if ordered:
            function, results = _passing_on(function), (ORDER_TOKEN, *results)
            operands = (ctx.token(effect), *operands)
        name = getattr(function, "__name__", "callback")
        # The executable refers to host functions by their index in this list.
        module.host_callbacks.append(host_function(function, results, name, module.num_partitions))
        number = len(module.host_callbacks) - 1

        def call(*operands: Any) -> list:
            if caller.receives_device and not is_global:
                operands = (*operands, hlo.convert(ctx.type(ORDER_TOKEN), hlo.partition_id()))
            return emit_callback(
                number,
                operands,
                [ctx.type(a) for a in results],
                platform=module.platform,
                has_side_effect=effect is not None,
                module=module.module,
                num_partitions=module.num_partitions if is_global else 1,
                partition=partition,
            )

        # Inside a partial `shard_map` several devices run the same code with the same values, and only one may call.
        if is_global or manual.is_whole or (effect is None and not caller.receives_device):
            out = call(*operands)
        else:
            out = run_on_one_device_per_group(ctx, call, operands, results)
        if ordered:
            ctx.tokens[effect], *out = out
        return out

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple:
        out = self(*primals, **params)
        if any(dtypes.issubdtype(x.dtype, np.inexact) for x in out):
            raise RuleError(
                "differentiation of a callback",
                expected="a function with a derivative",
                got=f"the host function {getattr(params['function'], '__name__', 'callback')}",
                fix="wrap the call in a custom_jvp or custom_vjp function, or stop the gradient of its arguments",
            )
        return out, [Zero.like(x) for x in out]

    def batch_axis(
        self,
        axis: AxisData,
        args: Sequence[Any],
        dims: Sequence[int | None],
        *,
        function: Callable,
        results: tuple,
        effect: Effect | None,
        vmap_method: str | None,
        caller: Caller,
    ) -> tuple:
        call = functools.partial(self, effect=effect, vmap_method=vmap_method, caller=caller)
        # A tap observes the whole batch at once, with the batch dimensions as part of the recorded transformations.
        if isinstance(function, Tap):
            return call(*args, function=function.batched(tuple(dims)), results=()), []
        if effect is ordered_io_effect:
            raise RuleError(
                "vmap of an ordered callback",
                expected="a callback without order",
                got=str(effect),
                fix="give ordered=False, or use lax.map instead of vmap",
            )
        if vmap_method is None and effect is None:
            raise RuleError(
                "vmap of pure_callback",
                expected="a vmap_method",
                got="None",
                fix='pass vmap_method="sequential", or "expand_dims"/"broadcast_all" if the function takes batches',
            )

        def called(*operands: Any, is_batch: bool) -> list:
            given = [a.with_shape((axis.size, *a.shape)) for a in results] if is_batch else results
            return call(*operands, function=function, results=tuple(given))

        out = batch_by_method(vmap_method or SEQUENTIAL, axis, args, dims, called)
        return out, [0] * len(out)


def batch_by_method(method: str, axis: AxisData, args: Sequence[Any], dims: Sequence[Any], call: Callable) -> list:
    """Batch a function that cannot be traced, by one of the `VMAP_METHODS`; returns the stacked results.

    Args:
      method: the method.
      axis: the mapped axis.
      args, dims: the operands, and the mapped dimension of each.
      call: `call(*operands, is_batch)` applies the function to one example, or to the whole batch.
    """
    mapped = [d is not None for d in dims]
    moved = axis.to_fronts(args, dims)
    if method in (SEQUENTIAL, UNROLLED):
        # A loop takes one example after the other, so a batch that is sharded over Explicit axes is gathered first.
        given = [shard_dim(x, 0, ()) for x, m in zip(moved, mapped) if m]

        def one(xs: Sequence[Any]) -> list:
            each = iter(xs)
            return call(*(next(each) if m else x for x, m in zip(moved, mapped)), is_batch=False)

        if method == SEQUENTIAL:
            return map_one_by_one(one, given)
        # One copy of the call for each example, so that neither a loop nor dynamic slices are needed.
        examples = [one([index_in_dim(x, i, keepdims=False) for x in given]) for i in range(axis.size)]
        return [concatenate([expand_dims(x, (0,)) for x in parts], 0) for parts in zip(*examples, strict=True)]
    if method == BROADCAST_ALL:
        moved = [x if m else axis.to_front(x, None) for x, m in zip(moved, mapped)]
    elif method == EXPAND_DIMS:
        moved = [x if m else move_mapped_dim(x, None, 1, 0) for x, m in zip(moved, mapped)]
    return call(*moved, is_batch=True)


def check_vmap_method(where: str, method: str | None, methods: Sequence[str] = VMAP_METHODS) -> None:
    """Check a `vmap_method` argument.

    Raises:
      ArgumentError: it is neither None nor one of `methods`.
    """
    if method is not None and method not in methods:
        raise ArgumentError(
            f"{where}, argument vmap_method",
            expected=f"one of {', '.join(map(repr, (None, *methods)))}",
            got=repr(method),
            fix=f"pass vmap_method={methods[0]!r} to call the function for each example",
        )


def _told_where(function: Callable, devices: tuple) -> Callable:
    """Wrap a function so that the last operand, a device number, is replaced by that device as the first argument."""
    return functools.wraps(function)(lambda *operands: function(devices[int(operands[-1])], *operands[:-1]))


def _as_typed(function: Callable, given: Sequence[Any]) -> Callable:
    """Wrap a function to convert its last operands to the dtypes `given`: those of less than a byte come as bytes."""

    @functools.wraps(function)
    def typed(*operands: Any) -> Any:
        first = len(operands) - len(given)
        arrays = [np.asarray(x).astype(d, copy=False) for x, d in zip(operands[first:], given, strict=True)]
        return function(*operands[:first], *arrays)

    return typed


def _passing_on(function: Callable) -> Callable:
    """Wrap a function so that it takes an order token as its first argument and returns it."""
    return functools.wraps(function)(lambda token, *operands: (token, *(function(*operands) or ())))


def _host_value(x: Array) -> np.ndarray:
    """The NumPy array that a host function receives: a copy, so that it may be modified; words for random keys."""
    return np.array(wrap_buffer(x._buffer, ArrayType(physical_aval(x.aval), x.sharding, x.committed)))


def _partition(devices: tuple, caller: Caller, place: str = "") -> int:
    """The index of the calling device among the devices of the program."""
    # An index comes from the library, and a device from the user's `sharding` argument.
    if isinstance(caller.device, int):
        if caller.device < len(devices):
            return caller.device
    elif caller.device in devices:
        return devices.index(caller.device)
    elif len(devices) == 1:
        return 0
    raise ArgumentError(
        f"device of a callback{place}",
        expected=f"one of the {len(devices)} devices that the program runs on, or its number among them",
        got=repr(caller.device),
        fix="pass a device of the program's mesh, or leave the argument out",
    )


host_callback_p = HostCall()


def _conversion(dtype: DTypeLike) -> Callable[[Any], bool]:
    """A predicate for values that are converted to a dtype: Python numbers of its kind, and 64-bit NumPy arrays.

    The latter only where 64-bit dtypes are disabled, and arrays have the corresponding 32-bit dtype.
    """
    kinds = (bool, int, float, complex)
    wide = [np.dtype(d) for d in ("int64", "uint64", "float64", "complex128") if dtypes.canonicalize_dtype(d) == dtype]

    def is_taken(x: Any) -> bool:
        if isinstance(x, int | float | complex) and not isinstance(x, np.generic):
            return kinds.index(dtypes.scalar_type_of(x)) <= kinds.index(dtypes.scalar_type_of(dtype))
        return getattr(x, "dtype", None) in wide

    return is_taken


def host_call(
    what: str,
    callback: Callable,
    result_shape_dtypes: PyTree,
    args: tuple,
    kwargs: dict,
    effect: Effect | None,
    vmap_method: str | None = None,
    caller: Caller = Caller(),  # noqa: B008  # immutable
) -> Any:
    """Bind a call of a host function on trees.

    Args:
      what: the name of the public function, for error messages.
      callback: takes the trees, after the device if `caller` requests it, and returns a tree.
      result_shape_dtypes: a tree with the shapes and dtypes of the results.
      args, kwargs: trees of arrays.
      effect: the side effect of the call, or None.
      vmap_method: the way to batch it, one of `VMAP_METHODS`.
      caller: the device that makes the call.

    Returns:
      A tree of arrays.
    """
    if not callable(callback):
        raise ArgumentTypeError(
            f"{what}, argument callback",
            expected="a function",
            got=repr(callback),
            fix="pass a function of NumPy arrays",
        )
    # None in `result_shape_dtypes` is an empty tree, hence a function without results.
    declared, out_tree = tree_flatten(result_shape_dtypes)
    avals = [result_aval(x) for x in declared]
    for x, aval in zip(declared, avals, strict=True):
        if getattr(x, "dtype", aval.dtype) != aval.dtype:
            raise ArgumentError(
                f"{what}, argument result_shape_dtypes",
                expected="32-bit types, since enable_x64 is off and result_shape_dtypes cannot specify 64-bit types",
                got=str(x.dtype),
                fix=f"declare {aval.dtype}, or set enable_x64",
            )
    leaves, tree = tree_flatten((args, kwargs))

    def flat(*xs: Any) -> list:
        first = xs[: caller.receives_device]
        call_args, call_kwargs = tree_unflatten(tree, xs[len(first) :])
        out, tree_out = tree_flatten(callback(*first, *call_args, **call_kwargs))
        # As in JAX, only the leaves are compared: a list may be returned where a tuple was declared.
        if len(out) != len(avals):
            raise CallbackResultError(
                f"{what}, the result of {flat.__name__}",
                expected=f"the declared structure, {out_tree}",
                got=str(tree_out),
                fix="return the structure of result_shape_dtypes",
            )
        # Python scalars and 64-bit NumPy results are converted; any other dtype must match exactly, or `check_results`
        # refuses it.
        return [np.asarray(x, a.dtype) if is_taken(x) else x for x, a, is_taken in zip(out, avals, taken)]

    taken = [_conversion(a.dtype) for a in avals]
    flat.__name__ = getattr(callback, "__name__", "callback")
    out = host_callback_p(
        *leaves, function=flat, results=tuple(avals), effect=effect, vmap_method=vmap_method, caller=caller
    )
    return tree_unflatten(out_tree, out)


def _caller_on(what: str, sharding: Sharding | None) -> Caller:
    """The device that makes a call, by default the first one."""
    if sharding is None or isinstance(sharding, SingleDeviceSharding):
        return Caller() if sharding is None else Caller(sharding.device)
    raise ArgumentTypeError(
        f"{what}, argument sharding",
        expected="None or a SingleDeviceSharding, since one device makes the call with whole arrays",
        got=repr(sharding),
        fix="name the device, or make the call inside shard_map, where each device makes one with its part",
    )


def result_aval(x: Any) -> ShapedArray:
    """The type of an array or a `ShapeDtypeStruct`."""
    if hasattr(x, "aval"):
        return x.aval
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        return ShapedArray(x.shape, dtypes.canonicalize_dtype(x.dtype))
    return get_aval(x)


def pure_callback(
    callback: Callable,
    result_shape_dtypes: PyTree,
    *args: Any,
    sharding: Sharding | None = None,
    vmap_method: str | None = None,
    **kwargs: Any,
) -> Any:
    """Call a host function without side effects from a traced program.

    Args:
      callback: takes NumPy arrays in the structure of the arguments and returns arrays.
      result_shape_dtypes: a pytree of `ShapeDtypeStruct`s (or arrays) with the shapes and dtypes of the results.
      args, kwargs: the arguments of `callback`.
      sharding: a `SingleDeviceSharding` of the device that makes the call, with complete arrays; by default the first
        device of the program.
      vmap_method: under `vmap`, "sequential" calls it for each example in a loop, "sequential_unrolled" without one;
        "expand_dims" and "broadcast_all" call it once with a leading dimension on the mapped arguments (of size 1, or
        repeated, on the others).

    Returns:
      The results of `callback`. The compiler may drop, repeat or move the call.

    Raises:
      ArgumentTypeError: `callback` is not callable.
      RuleError: the call is differentiated, or mapped without a `vmap_method`.

    Examples:
      >>> import numpy as np, phalanx, phalanx.numpy as jnp
      >>> shape = phalanx.ShapeDtypeStruct((3,), "float32")
      >>> phalanx.jit(lambda x: phalanx.pure_callback(np.sort, shape, x))(jnp.array([3.0, 1.0, 2.0])).tolist()
      [1.0, 2.0, 3.0]
    """
    check_vmap_method("pure_callback", vmap_method)
    caller = _caller_on("pure_callback", sharding)
    return host_call("pure_callback", callback, result_shape_dtypes, args, kwargs, None, vmap_method, caller)


def io_callback(
    callback: Callable,
    result_shape_dtypes: PyTree,
    *args: Any,
    sharding: Sharding | None = None,
    ordered: bool = False,
    **kwargs: Any,
) -> Any:
    """Call a host function with side effects from a traced program.

    Args:
      callback: takes NumPy arrays in the structure of the arguments and returns arrays (or None).
      result_shape_dtypes: a pytree with the shapes and dtypes of the results; None for no result.
      args, kwargs: the arguments of `callback`.
      sharding: a `SingleDeviceSharding` of the device that makes the call, with complete arrays; by default the first
        device of the program.
      ordered: whether ordered calls happen in program order, also across programs.

    Returns:
      The results of `callback`. The call happens even if its results are not used; `effects_barrier` waits for it.

    Examples:
      >>> import phalanx
      >>> seen = []
      >>> phalanx.jit(lambda x: phalanx.experimental.io_callback(lambda v: seen.append(int(v)), None, x))(7)
      >>> phalanx.effects_barrier()
      >>> seen
      [7]
    """
    effect = ordered_io_effect if ordered else io_effect
    caller = _caller_on("io_callback", sharding)
    return host_call("io_callback", callback, result_shape_dtypes, args, kwargs, effect, caller=caller)
