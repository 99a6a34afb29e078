"""`nnx.eval_shape` and `nnx.make_jaxpr`: trace a function of modules without running it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from phalanx import spmd
from phalanx.core import ShapeDtypeStruct, get_aval, parse_positions
from phalanx.nnx.graph_mode import resolve_mode
from phalanx.nnx.graphlib import map as map_graph
from phalanx.nnx.objects import is_array
from phalanx.nnx.sharding.logical_axis_rules import shard_by_names
from phalanx.nnx.transforms.lifting import Lifted, call_lifted, flatten_arguments
from phalanx.nnx.transforms.user_functions import bind_static, check_unbound, decorator_if_missing
from phalanx.nnx.variable import MISSING, is_variable
from phalanx.tree import tree_map
from phalanx.typing import PyTree


def eval_shape(
    f: Callable, *args: Any, graph: bool | None = None, graph_updates: bool | None = None, **kwargs: Any
) -> Any:
    """Return the shapes and dtypes of the result of a function of modules, without computing anything.

    Args:
      f: the function.
      *args, **kwargs: its arguments, which are not changed.
      graph, graph_updates: the mode; None for the defaults of `set_graph_mode` and `set_graph_updates`.

    Returns:
      The result, with a `ShapeDtypeStruct` for each array, also inside modules. Under a mesh, variables with
      `out_sharding` have shapes with shardings.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> nnx.eval_shape(lambda: nnx.Param(jnp.zeros((1000, 1000))))
      Param( # 1,000,000 (4.0 MB)
        value=ShapeDtypeStruct(shape=(1000, 1000), dtype=float32)
      )
    """
    check_unbound("eval_shape", f)
    mode = resolve_mode(graph, graph_updates)
    # Numbers among the arguments become shapes first, so that `map_graph` treats them as leaves.
    shapes = tree_map(lambda x: x if is_variable(x) else _to_shape(x), (args, kwargs), is_leaf=is_variable)
    shape_args, shape_kwargs = map_graph(lambda path, x: tree_map(_to_shape, x), shapes, graph=True)
    out = call_lifted(
        "eval_shape", functools.partial(spmd.eval_shape, Lifted(f, mode=mode)), shape_args, shape_kwargs, mode
    )
    # The types that `eval_shape` returns have no shardings; these are added according to the metadata.
    for variable in flatten_arguments(out).graph.variables:
        value, names = variable.raw_value, variable.sharding_names
        if isinstance(value, ShapeDtypeStruct) and names is not None:
            options = (variable.get_metadata(key, None) for key in ("mesh", "sharding_rules"))
            variable.set_raw_value(shard_by_names(value, names, *options))
    return out


def _to_shape(x: PyTree) -> PyTree:
    if isinstance(x, ShapeDtypeStruct) or not (is_array(x) or isinstance(x, int | float | complex)):
        return x
    aval = get_aval(x)
    return ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)


@decorator_if_missing
def make_jaxpr(
    f: Any = MISSING,
    *,
    static_argnums: int | Sequence[int] = (),
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """Trace a function of modules to a jaxpr, without changing the modules.

    Args:
      f: the function. If omitted, a decorator is returned.
      static_argnums: the positions of arguments that are not traced.
      graph, graph_updates: the mode; None for the defaults of `set_graph_mode` and `set_graph_updates`.

    Returns:
      A function from arguments to the `Jaxpr`. Its inputs are the variables of each module by path and the arrays; its
      outputs are the results of the function, followed by the new values of the variables that it sets.

    Examples:
      >>> from phalanx import nnx
      >>> print(nnx.make_jaxpr(lambda w: w * 2.0)(nnx.Param(3.0)))
      { lambda ; a:f32[]. let b:f32[] = mul a 2.0:f32[] in (b,) }
    """
    numbers = parse_positions("nnx.make_jaxpr, argument static_argnums", static_argnums)
    mode = resolve_mode(graph, graph_updates)

    @functools.wraps(f)
    def jaxpr_maker(*args: Any, **kwargs: Any) -> Any:
        call, dynamic = bind_static(f, args, numbers)
        pure_args, pure_kwargs = flatten_arguments((dynamic, kwargs), mode, "make_jaxpr").to_pure()
        return spmd.make_jaxpr(Lifted(call, mode=mode))(*pure_args, **pure_kwargs)

    return jaxpr_maker
