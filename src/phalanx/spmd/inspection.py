"""Looking at functions without running them: `make_jaxpr` and `eval_shape`.

Small faces over staging; the stages of a compiled function are in `stages`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core.aval import ShapeDtypeStruct, aval_of
from phalanx.core.config import state, state_extra
from phalanx.core.jaxpr import Jaxpr
from phalanx.core.trace import stage
from phalanx.engine.frames import boundary
from phalanx.spmd.arguments import Signature
from phalanx.transforms.functions import FlatFunction
from phalanx.tree import tree_flatten, tree_unflatten


def make_jaxpr(
    fun: Callable,
    static_argnums: int | Sequence[int] = (),
    axis_env: Sequence[tuple[Any, int]] | None = None,
    return_shape: bool = False,
) -> Callable:
    """A function that gives the program of another for arguments of given types.

    Args:
      fun: the function.
      static_argnums: arguments whose values are part of the program.
      axis_env: named axes and their sizes, for functions that use collectives.
      return_shape: also give the types of the results.

    Returns:
      A function from arguments (arrays or `ShapeDtypeStruct`s) to the `Jaxpr`, or `(Jaxpr, shapes)`.

    Examples:
      >>> import phalanx
      >>> print(phalanx.make_jaxpr(lambda x: x * 2)(3.0))
      { lambda ; a:~f32[]. let
          b:~f32[] = mul a 2.0:~f32[]
        in (b,) }
    """
    signature = Signature(fun, static_argnums, None, None, None)

    @boundary
    @functools.wraps(fun)
    def jaxpr_maker(*args: Any, **kwargs: Any) -> Any:
        program, function = _stage_call(signature, args, kwargs, axis_env)
        if not return_shape:
            return program
        return program, tree_unflatten(function.out_tree, [_shape(a) for a in program.out_avals])

    return jaxpr_maker


def _stage_call(signature: Signature, args: tuple, kwargs: dict, axis_env: Any = None) -> tuple[Jaxpr, FlatFunction]:
    call = signature.split(args, kwargs)

    def on_arguments(*dynamic: Any) -> Any:
        full, named = call.rebuild(dynamic)
        return signature.fun(*full, **named)

    function = FlatFunction(on_arguments, _flat_tuple(len(call.leaves)))
    avals = [aval_of(x) for x in call.leaves]
    name = getattr(signature.fun, "__name__", "fn")
    if axis_env:
        with state_extra(axes=(*state.context.axes, *((name, size, False) for name, size in axis_env))):
            return stage(function, avals, name), function
    return stage(function, avals, name), function


def _flat_tuple(count: int) -> Any:
    return tree_flatten((0,) * count)[1]


def _shape(aval: Any) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(aval.shape, aval.dtype, sharding=aval.sharding, weak_type=aval.weak_type)


def eval_shape(fun: Callable, *args: Any, **kwargs: Any) -> Any:
    """The types of a function's results, without computing anything.

    Args:
      fun: the function.
      args, kwargs: arguments: arrays or `ShapeDtypeStruct`s.

    Returns:
      The results as `ShapeDtypeStruct`s.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> phalanx.eval_shape(jnp.dot, phalanx.ShapeDtypeStruct((2, 3), "float32"), jnp.ones(3)).shape
      (2,)
    """
    program, function = _stage_call(Signature(fun, None, None, None, None), args, kwargs)
    return tree_unflatten(function.out_tree, [_shape(a) for a in program.out_avals])
