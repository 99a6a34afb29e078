"""Callbacks: Python functions of the host, called from compiled programs.

`pure_callback` is a function of its arguments and may be dropped or run again; `io_callback` has an effect. Both are
one primitive, of which `debug.callback`, `debug.print` and `experimental.host_callback` are users too. Run at once,
the function is simply called.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx.core import dtypes
from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.effects import Effect, Effects, io_effect, no_effects, ordered_io_effect
from phalanx.core.errors import ArgumentError, ArgumentTypeError, RuleError
from phalanx.core.primitive import Primitive, Roles
from phalanx.core.tangent import Zero
from phalanx.engine.callbacks import check_results, emit_callback, host_function
from phalanx.engine.mlir import hlo
from phalanx.lax.explicit import split_dim
from phalanx.lax.loops import map as map_one_by_one
from phalanx.lax.replicas import by_one_of_each_group
from phalanx.lax.shape import concatenate, expand_dims, index_in_dim
from phalanx.lax.tiny import wide
from phalanx.runtime import placement
from phalanx.runtime.array import Array, ArrayType
from phalanx.runtime.devices import common_devices
from phalanx.runtime.lowering import ORDER_TOKEN, physical_aval
from phalanx.runtime.runs import effects_barrier
from phalanx.sharding import GSPMDSharding, SingleDeviceSharding
from phalanx.transforms.batching import Axis, to_dim
from phalanx.tree import tree_flatten, tree_map, tree_unflatten

# How a foreign function is batched.
VMAP_METHODS = "sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized"
SEQUENTIAL, UNROLLED, EXPAND_DIMS, BROADCAST_ALL, LEGACY = VMAP_METHODS


class Caller(NamedTuple):
    """Which device makes a call where several share the program.

    Args:
      device: a device, or its number among those of the program. Where the program is written for each device by
        itself, inside `shard_map` or `pmap`, each makes a call of its own, and this is not asked.
      is_told: whether the function gets the device as its first argument.
    """

    device: Any = 0
    is_told: bool = False


class Tap:
    """A host function that only looks on, and is told how what it sees came about.

    Args:
      function: takes the transformations and the operands.
      transforms: what was done to the program since, as pairs of a name and details, the first one first.
    """

    __slots__ = ("function", "transforms")

    def __init__(self, function: Callable, transforms: tuple = ()):
        self.function, self.transforms = function, transforms

    __name__ = "tap"

    def __call__(self, *operands: Any) -> list:
        self.function(self.transforms, *operands)
        return []

    def batched(self, dims: tuple) -> Tap:
        """The tap that sees a whole batch, mapped along these dimensions of the operands."""
        return Tap(self.function, (*self.transforms, ("batch", {"batch_dims": dims})))


class HostCall(Primitive, name="host_callback", multiple=True):
    """A call of a host function: (*operands) -> results of the declared types."""

    def result(self, *avals: Any, results: tuple, **_: Any) -> list:
        return list(results)

    def effects(self, *avals: Any, effect: Effect | None, **_: Any) -> Effects:
        return no_effects if effect is None else frozenset({effect})

    def roles(self, *avals: Any, results: tuple, **_: Any) -> Roles:
        # The function sees whole arrays: nothing of them can be split, and what is split comes together before.
        operands = [[("operand", i, d) for d in range(a.ndim)] for i, a in enumerate(avals)]
        outs = [[("result", i, d) for d in range(a.ndim)] for i, a in enumerate(results)]
        whole = [name for names in (*operands, *outs) for name in names]
        return Roles(operands, outs, whole=whole, resized={name: () for names in operands for name in names})

    def run(
        self, *args: Any, function: Callable, results: tuple, effect: Effect | None, caller: Caller, **_: Any
    ) -> list:
        if effect is not None and effect.ordered:
            effects_barrier()
        arrays = [x if type(x) is Array else placement.put(x) for x in args]
        name = getattr(function, "__name__", "callback")
        devices, committed = common_devices([x._type for x in arrays], lambda i: f"{name}, argument {i}")
        devices = devices or tuple(placement.default_sharding().device_set)
        if caller.is_told:
            function = functools.partial(function, devices[_partition(devices, caller)])
        given = check_results(name, function(*map(_host_value, arrays)), results)
        whole = placement.on_device(devices[0]) if len(devices) == 1 else GSPMDSharding.replicated(devices)
        return [placement.put(x, whole, a, committed) for x, a in zip(given, results)]

    def lower(
        self,
        ctx: Any,
        *operands: Any,
        function: Callable,
        results: tuple,
        effect: Effect | None,
        vmap_method: str | None,
        caller: Caller,
    ) -> list:
        module, manual = ctx.module, ctx.module.manual
        devices, is_global = module.device_assignment, manual is None
        partition = _partition(devices, caller)
        if caller.is_told and is_global:
            function = functools.partial(function, devices[partition])
        elif caller.is_told:
            function = _told_where(function, devices)
        if any(wide(a) is not a for a in ctx.avals_in):
            function = _as_typed(function, [a.dtype for a in ctx.avals_in])
        ordered = effect is not None and effect.ordered
        if ordered:
            function, results = _passing_on(function), (ORDER_TOKEN, *results)
            operands = (ctx.token(effect), *operands)
        name = getattr(function, "__name__", "callback")
        module.host_callbacks.append(host_function(function, results, name, module.num_partitions))
        number = len(module.host_callbacks) - 1

        def call(*operands: Any) -> list:
            if caller.is_told and not is_global:
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

        if is_global or manual.is_whole or (effect is None and not caller.is_told):
            out = call(*operands)
        else:
            out = by_one_of_each_group(ctx, call, operands, results)
        if ordered:
            ctx.tokens[effect], *out = out
        return out

    def jvp(self, primals: Any, tangents: Any, **params: Any) -> tuple:
        out = self(*primals, **params)
        if any(dtypes.issubdtype(x.dtype, np.inexact) for x in out):
            raise RuleError(
                "differentiation of a callback",
                expected="a function with a derivative",
                got=f"the host function {getattr(params['function'], '__name__', 'callback')}",
                mend="wrap the call in a custom_jvp or custom_vjp function, or stop the gradient of its arguments",
            )
        return out, [Zero.like(x) for x in out]

    def batch_axis(
        self,
        axis: Axis,
        args: Any,
        dims: Any,
        *,
        function: Callable,
        results: tuple,
        effect: Effect | None,
        vmap_method: str | None,
        caller: Caller,
    ) -> tuple:
        call = functools.partial(self, effect=effect, vmap_method=vmap_method, caller=caller)
        if isinstance(function, Tap):
            return call(*args, function=function.batched(tuple(dims)), results=()), []
        if effect is not None and effect.ordered:
            raise RuleError(
                "vmap of an ordered callback",
                expected="a callback without order",
                got=str(effect),
                mend="give ordered=False, or use lax.map instead of vmap",
            )
        if vmap_method is None and effect is None:
            raise RuleError(
                "vmap of pure_callback",
                expected="a vmap_method",
                got="None",
                mend='pass vmap_method="sequential", or "expand_dims"/"broadcast_all" if the function takes batches',
            )

        def called(*operands: Any, is_batch: bool) -> list:
            given = [a.with_shape((axis.size, *a.shape)) for a in results] if is_batch else results
            return call(*operands, function=function, results=tuple(given))

        out = batched_by(vmap_method or SEQUENTIAL, axis, args, dims, called)
        return out, [0] * len(out)

    batch = None


def batched_by(method: str, axis: Axis, args: Sequence[Any], dims: Sequence[Any], call: Callable) -> list:
    """The stacked results of a foreign function over a mapped axis, by one of the `VMAP_METHODS`.

    Args:
      method: which.
      axis: the mapped axis.
      args, dims: the operands, and which dimension of each is mapped.
      call: `call(*operands, is_batch)`: the function on one example, or on all of them.
    """
    mapped = [d is not None for d in dims]
    moved = axis.to_fronts(args, dims)
    if method in (SEQUENTIAL, UNROLLED):
        # The function sees whole arrays: what lies apart over Explicit axes comes together first.
        given = [split_dim(x, 0, ()) for x, m in zip(moved, mapped) if m]

        def one(xs: Sequence[Any]) -> list:
            each = iter(xs)
            return call(*(next(each) if m else x for x, m in zip(moved, mapped)), is_batch=False)

        if method == SEQUENTIAL:
            return map_one_by_one(one, given)
        examples = [one([index_in_dim(x, i, keepdims=False) for x in given]) for i in range(axis.size)]
        return [concatenate([expand_dims(x, (0,)) for x in parts], 0) for parts in zip(*examples, strict=True)]
    if method == BROADCAST_ALL:
        moved = [x if m else axis.to_front(x, None) for x, m in zip(moved, mapped)]
    elif method == EXPAND_DIMS:
        moved = [x if m else to_dim(x, None, 1, 0) for x, m in zip(moved, mapped)]
    return call(*moved, is_batch=True)


def check_vmap_method(where: str, method: str | None, methods: Sequence[str] = VMAP_METHODS) -> None:
    """Refuse an unknown way to batch a foreign function.

    Raises:
      ArgumentError: it is none of the `VMAP_METHODS`.
    """
    if method is not None and method not in methods:
        raise ArgumentError(
            f"{where}, argument vmap_method",
            expected=f"one of {', '.join(map(repr, (None, *methods)))}",
            got=repr(method),
            mend="choose one of these",
        )


def _told_where(function: Callable, devices: tuple) -> Callable:
    """A function that gets the device that calls it, by the number that comes last."""
    return functools.wraps(function)(lambda *operands: function(devices[int(operands[-1])], *operands[:-1]))


def _as_typed(function: Callable, given: Sequence[Any]) -> Callable:
    """A function whose last operands, which the engine hands over as bytes where they are less, are of these dtypes."""

    @functools.wraps(function)
    def typed(*operands: Any) -> Any:
        first = len(operands) - len(given)
        arrays = [np.asarray(x).astype(d, copy=False) for x, d in zip(operands[first:], given, strict=True)]
        return function(*operands[:first], *arrays)

    return typed


def _passing_on(function: Callable) -> Callable:
    """A function that takes an order token and passes it on."""
    return functools.wraps(function)(lambda token, *operands: (token, *(function(*operands) or ())))


def _host_value(x: Array) -> np.ndarray:
    """What a host function gets for an array: a copy that it may keep and change; numbers for random keys."""
    return np.array(Array(x._buffer, ArrayType(physical_aval(x.aval), x.sharding, x.committed)))


def _partition(devices: tuple, caller: Caller) -> int:
    """The number of the calling device among those of the program."""
    if isinstance(caller.device, int):
        if caller.device < len(devices):
            return caller.device
    elif caller.device in devices:
        return devices.index(caller.device)
    elif len(devices) == 1:
        return 0
    raise ArgumentError(
        "device of a callback",
        expected=f"one of the {len(devices)} devices that the program runs on, or its number among them",
        got=repr(caller.device),
        mend="name a device of the mesh, or leave it out",
    )


host_callback_p = HostCall()


def _conversion(dtype: Any) -> Callable[[Any], bool]:
    """Which host values become this dtype: Python's numbers that it can hold, NumPy's 64 bits where arrays have 32."""
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
    result_shape_dtypes: Any,
    args: tuple,
    kwargs: dict,
    effect: Effect | None,
    vmap_method: str | None = None,
    caller: Caller = Caller(),  # noqa: B008  # immutable
) -> Any:
    """Bind a call of a host function on trees.

    Args:
      what: the public function, for messages.
      callback: takes the trees, after the device if `caller` says so, and gives a tree.
      result_shape_dtypes: what it gives.
      args, kwargs: trees of arrays.
      effect: what the call does besides giving its results.
      vmap_method: how it is batched.
      caller: which device makes the call.

    Returns:
      A tree of arrays.
    """
    if not callable(callback):
        raise ArgumentTypeError(
            f"{what}, argument callback", expected="a function", got=repr(callback), mend="pass one"
        )
    avals, out_tree = tree_flatten(tree_map(result_aval, result_shape_dtypes))
    leaves, tree = tree_flatten((args, kwargs))

    def flat(*xs: Any) -> list:
        first = xs[: caller.is_told]
        call_args, call_kwargs = tree_unflatten(tree, xs[len(first) :])
        out, tree_out = tree_flatten(callback(*first, *call_args, **call_kwargs))
        if tree_out != out_tree:
            raise ArgumentError(
                f"{what}, the result of {flat.__name__}",
                expected=f"the declared structure, {out_tree}",
                got=str(tree_out),
                mend="return what result_shape_dtypes says",
            )
        return [np.asarray(x, a.dtype) if is_taken(x) else x for x, a, is_taken in zip(out, avals, taken)]

    taken = [_conversion(a.dtype) for a in avals]
    flat.__name__ = getattr(callback, "__name__", "callback")
    out = host_callback_p(
        *leaves, function=flat, results=tuple(avals), effect=effect, vmap_method=vmap_method, caller=caller
    )
    return tree_unflatten(out_tree, out)


def _caller_on(what: str, sharding: Any) -> Caller:
    """The device that is to make a call: the first one where nothing is asked."""
    if sharding is None or isinstance(sharding, SingleDeviceSharding):
        return Caller() if sharding is None else Caller(sharding.device)
    raise ArgumentTypeError(
        f"{what}, argument sharding",
        expected="None or a SingleDeviceSharding, since one device makes the call with whole arrays",
        got=repr(sharding),
        mend="name the device, or make the call inside shard_map, where each device makes one with its part",
    )


def result_aval(x: Any) -> ShapedArray:
    """The type that an array or a `ShapeDtypeStruct` describes."""
    if hasattr(x, "aval"):
        return x.aval
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        return ShapedArray(x.shape, dtypes.canonicalize_dtype(x.dtype))
    return aval_of(x)


def pure_callback(
    callback: Callable,
    result_shape_dtypes: Any,
    *args: Any,
    sharding: Any = None,
    vmap_method: str | None = None,
    **kwargs: Any,
) -> Any:
    """Call a host function without side effects from a traced program.

    Args:
      callback: takes NumPy arrays in the structure of the arguments and gives arrays.
      result_shape_dtypes: a pytree of `ShapeDtypeStruct`s (or arrays) that says what it gives.
      args, kwargs: its arguments.
      sharding: a `SingleDeviceSharding` names the device that makes the call, with whole arrays; the first one if not
        given.
      vmap_method: under `vmap`, "sequential" calls it for each example in a loop, "sequential_unrolled" without one;
        "expand_dims" and "broadcast_all" call it once with a leading dimension on the mapped arguments (of size 1, or
        repeated, on the others).

    Returns:
      What the function gives. The call may be dropped, repeated or moved by the compiler.

    Raises:
      ArgumentTypeError: `callback` is not callable.
      RuleError: it is differentiated, or mapped without a `vmap_method`.

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
    callback: Callable, result_shape_dtypes: Any, *args: Any, sharding: Any = None, ordered: bool = False, **kwargs: Any
) -> Any:
    """Call a host function with side effects from a traced program.

    Args:
      callback: takes NumPy arrays in the structure of the arguments and gives arrays (or None).
      result_shape_dtypes: a pytree that says what it gives; None for nothing.
      args, kwargs: its arguments.
      sharding: a `SingleDeviceSharding` names the device that makes the call, with whole arrays; the first one if not
        given.
      ordered: whether such calls happen in program order, also across programs.

    Returns:
      What the function gives. The call happens even if nothing reads its results; `effects_barrier` waits for it.

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
