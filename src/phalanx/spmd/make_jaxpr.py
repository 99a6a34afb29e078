"""`make_jaxpr` and `eval_shape`: trace a function without compiling or running it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core import Jaxpr, as_shape_struct, check_function, get_aval, state, state_extra, trace_to_jaxpr
from phalanx.engine.traceback_filtering import api_boundary
from phalanx.spmd.call_arguments import Signature
from phalanx.spmd.stages import shape_of
from phalanx.transforms.flat_function import FlatFunction, function_name, wraps
from phalanx.tree import tree_unflatten
from phalanx.typing import AxisName


def make_jaxpr(
    fun: Callable,
    static_argnums: int | Sequence[int] = (),
    axis_env: Sequence[tuple[Any, int]] | None = None,
    return_shape: bool = False,
) -> Callable:
    """Create a function that returns the jaxpr of `fun` for given arguments.

    Args:
      fun: the function to trace.
      static_argnums: positions of arguments that are compile-time constants.
      axis_env: pairs of name and size of the axes over which collectives in `fun` may operate.
      return_shape: whether to return the shapes and dtypes of the results, too.

    Returns:
      A function that accepts the arguments of `fun` (arrays or `ShapeDtypeStruct`s) and returns the `Jaxpr`, or
      `(Jaxpr, shapes)` if `return_shape`.

    Examples:
      >>> import phalanx
      >>> print(phalanx.make_jaxpr(lambda x: x * 2)(3.0))
      { lambda ; a:f32[]. let b:f32[] = mul a 2.0:f32[] in (b,) }
    """
    check_function("make_jaxpr, argument fun", fun)
    signature = Signature(fun, static_argnums)

    @api_boundary
    @wraps(fun, name="make_jaxpr")
    def jaxpr_maker(*args: Any, **kwargs: Any) -> Any:
        program, function = _stage_call(fun, signature, args, kwargs, axis_env)
        if not return_shape:
            return program
        return program, _result_shapes(program, function)

    return jaxpr_maker


def _stage_call(
    fun: Callable[..., Any],
    signature: Signature,
    args: tuple,
    kwargs: dict,
    axis_env: Sequence[tuple[AxisName, int]] | None = None,
) -> tuple[Jaxpr, FlatFunction]:
    call = signature.split(args, kwargs)
    call = call._replace(leaves=list(map(as_shape_struct, call.leaves)))

    def on_dynamic_arguments(dynamic: tuple, named: dict) -> Any:
        full, named = call.with_statics(dynamic, named)
        return fun(*full, **named)

    function = FlatFunction(on_dynamic_arguments, call.tree)
    # The axes enter the context as if the function were called under a vmap with these names.
    with state_extra(axes=(*state.context.axes, *((name, size, False) for name, size in axis_env or ()))):
        return trace_to_jaxpr(function, list(map(get_aval, call.leaves)), function_name(fun)), function


def _result_shapes(program: Jaxpr, function: FlatFunction) -> Any:
    return tree_unflatten(function.out_tree, [shape_of(a, a.type_sharding) for a in program.out_avals])


def eval_shape(fun: Callable, *args: Any, **kwargs: Any) -> Any:
    """Compute the shapes and dtypes of a function's results without running it.

    Args:
      fun: the function.
      args, kwargs: its arguments: arrays or `ShapeDtypeStruct`s.

    Returns:
      The result with a `ShapeDtypeStruct` in place of each array, with the sharding that `jit` declares for it.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> phalanx.eval_shape(jnp.dot, phalanx.ShapeDtypeStruct((2, 3), "float32"), jnp.ones(3)).shape
      (2,)
    """
    compiled = getattr(fun, "_jit", None)
    # `functools.wraps` copies the attribute to functions around the compiled one.
    if compiled is not None and getattr(fun, "__wrapped__", None) is compiled._fun:
        return compiled.eval_shape(*args, **kwargs)
    return _result_shapes(*_stage_call(fun, Signature(fun), args, kwargs))
