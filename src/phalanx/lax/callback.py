"""Callbacks: Python functions of the host, called from compiled programs.

`pure_callback` is a function of its arguments and may be dropped or run again; `io_callback` has an effect. Both are
one primitive, of which `debug.callback` and `debug.print` are users too. Run at once they still go through a compiled
program, so that the order of effects and the types of results are the same everywhere.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import dtypes
from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.effects import Effect, Effects, io_effect, no_effects, ordered_io_effect
from phalanx.core.errors import ArgumentError, ArgumentTypeError, RuleError
from phalanx.core.primitive import Primitive, Roles
from phalanx.core.tangent import Zero
from phalanx.engine.callbacks import emit_callback, host_function
from phalanx.lax.loops import map as map_one_by_one
from phalanx.transforms.batching import Axis, to_front
from phalanx.tree import tree_flatten, tree_map, tree_unflatten

# How a pure callback is batched.
SEQUENTIAL, EXPAND_DIMS, BROADCAST_ALL, LEGACY = "sequential", "expand_dims", "broadcast_all", "legacy_vectorized"


class HostCall(Primitive, name="host_callback", multiple=True):
    """A call of a host function: (*operands) -> results of the declared types."""

    def result(
        self, *avals: Any, function: Callable, results: tuple, effect: Effect | None, vmap_method: str | None
    ) -> list:
        return list(results)

    def effects(self, *avals: Any, effect: Effect | None, **_: Any) -> Effects:
        return no_effects if effect is None else frozenset({effect})

    def roles(self, *avals: Any, results: tuple, **_: Any) -> Roles:
        # The function sees whole arrays: nothing of them can be split.
        operands = [[("operand", i, d) for d in range(a.ndim)] for i, a in enumerate(avals)]
        outs = [[("result", i, d) for d in range(a.ndim)] for i, a in enumerate(results)]
        whole = [name for names in (*operands, *outs) for name in names]
        return Roles(operands, outs, whole=whole)

    def lower(
        self,
        ctx: Any,
        *operands: Any,
        function: Callable,
        results: tuple,
        effect: Effect | None,
        vmap_method: str | None,
    ) -> list:
        module = ctx.module
        name = getattr(function, "__name__", "callback")
        module.host_callbacks.append(host_function(function, results, name, module.num_partitions))
        ordered = effect is not None and effect.ordered
        out, token = emit_callback(
            len(module.host_callbacks) - 1,
            operands,
            [ctx.type(a) for a in results],
            platform=module.platform,
            token=ctx.token(effect) if ordered else None,
            has_side_effect=effect is not None,
            module=module.module,
            num_partitions=module.num_partitions,
        )
        if ordered:
            ctx.tokens[effect] = token
        return out

    def jvp(self, primals: Any, tangents: Any, *, effect: Effect | None, **params: Any) -> tuple:
        out = self(*primals, effect=effect, **params)
        if effect is None and out:
            raise RuleError(
                "differentiation of pure_callback",
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
    ) -> tuple:
        if effect is not None and effect.ordered:
            raise RuleError(
                "vmap of an ordered callback",
                expected="a callback without order",
                got=str(effect),
                mend="leave out ordered=True, or use lax.map instead of vmap",
            )
        call = functools.partial(self, function=function, results=results, effect=effect, vmap_method=vmap_method)
        if vmap_method is None and effect is None:
            raise RuleError(
                "vmap of pure_callback",
                expected="a vmap_method",
                got="None",
                mend='pass vmap_method="sequential", or "expand_dims"/"broadcast_all" if the function takes batches',
            )
        mapped = [d is not None for d in dims]
        moved = [to_front(x, d, axis.size) if d is not None else x for x, d in zip(args, dims)]
        if vmap_method in (None, SEQUENTIAL):
            given = [x for x, m in zip(moved, mapped) if m]

            def one(xs: Sequence[Any]) -> list:
                each = iter(xs)
                return call(*(next(each) if m else x for x, m in zip(moved, mapped)))

            return map_one_by_one(one, given), [0] * len(results)
        wide = tuple(a.with_shape((axis.size, *a.shape)) for a in results)
        if vmap_method == BROADCAST_ALL:
            moved = [x if m else to_front(x, None, axis.size) for x, m in zip(moved, mapped)]
        elif vmap_method == EXPAND_DIMS:
            moved = [x if m else to_front(x, None, 1) for x, m in zip(moved, mapped)]
        out = self(*moved, function=function, results=wide, effect=effect, vmap_method=vmap_method)
        return out, [0] * len(out)

    batch = None


host_callback_p = HostCall()


def _host_call(
    what: str,
    callback: Callable,
    result_shape_dtypes: Any,
    args: tuple,
    kwargs: dict,
    effect: Effect | None,
    vmap_method: str | None,
) -> Any:
    if not callable(callback):
        raise ArgumentTypeError(
            f"{what}, argument callback", expected="a function", got=repr(callback), mend="pass one"
        )
    avals, out_tree = tree_flatten(tree_map(_result_aval, result_shape_dtypes))
    leaves, tree = tree_flatten((args, kwargs))

    def flat(*xs: np.ndarray) -> list:
        call_args, call_kwargs = tree_unflatten(tree, xs)
        out, tree_out = tree_flatten(callback(*call_args, **call_kwargs))
        if tree_out != out_tree:
            raise ArgumentError(
                f"{what}, the result of {flat.__name__}",
                expected=f"the declared structure, {out_tree}",
                got=str(tree_out),
                mend="return what result_shape_dtypes says",
            )
        return [np.asarray(x, a.dtype) if isinstance(x, int | float | complex) else x for x, a in zip(out, avals)]

    flat.__name__ = getattr(callback, "__name__", "callback")
    out = host_callback_p(*leaves, function=flat, results=tuple(avals), effect=effect, vmap_method=vmap_method)
    return tree_unflatten(out_tree, out)


def _result_aval(x: Any) -> ShapedArray:
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
      sharding: not supported; the function always sees whole arrays.
      vmap_method: under `vmap`, "sequential" calls it for each example, "expand_dims" and "broadcast_all" call it once
        with a leading dimension on the mapped arguments (of size 1, or repeated, on the others).

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
    if sharding is not None:
        raise ArgumentError(
            "pure_callback, argument sharding", expected="None", got=repr(sharding), mend="leave it out"
        )
    known = (None, SEQUENTIAL, EXPAND_DIMS, BROADCAST_ALL, LEGACY)
    if vmap_method not in known:
        raise ArgumentError(
            "pure_callback, argument vmap_method",
            expected=f"one of {', '.join(map(repr, known))}",
            got=repr(vmap_method),
            mend="choose one of these",
        )
    return _host_call("pure_callback", callback, result_shape_dtypes, args, kwargs, None, vmap_method)


def io_callback(
    callback: Callable, result_shape_dtypes: Any, *args: Any, sharding: Any = None, ordered: bool = False, **kwargs: Any
) -> Any:
    """Call a host function with side effects from a traced program.

    Args:
      callback: takes NumPy arrays in the structure of the arguments and gives arrays (or None).
      result_shape_dtypes: a pytree that says what it gives; None for nothing.
      args, kwargs: its arguments.
      sharding: not supported; the function always sees whole arrays.
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
    if sharding is not None:
        raise ArgumentError("io_callback, argument sharding", expected="None", got=repr(sharding), mend="leave it out")
    effect = ordered_io_effect if ordered else io_effect
    return _host_call("io_callback", callback, result_shape_dtypes, args, kwargs, effect, None)
