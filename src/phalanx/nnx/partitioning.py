"""Sharding metadata of whole trees: what `out_sharding` of variables says, as specs and shardings, and initializers.

Builds on `placing` for what a name means. Sharded initialisation needs no more than this: make the model inside
`nnx.jit` under a mesh, and each parameter is computed where it belongs; as shapes only, inside `nnx.eval_shape`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from phalanx.core.aval import ShapeDtypeStruct
from phalanx.core.config import state
from phalanx.core.trace import Tracer
from phalanx.nnx.calls import eval_shape
from phalanx.nnx.functional import merge, split
from phalanx.nnx.mapping import PARTITION_NAME as PARTITION_NAME
from phalanx.nnx.objects import Object
from phalanx.nnx.placing import spec_of, using_eager_sharding
from phalanx.nnx.variable import HOOKS, MISSING, Variable, VariableMetadata
from phalanx.runtime.array import Array
from phalanx.sharding import NamedSharding, PartitionSpec
from phalanx.spmd import jit
from phalanx.tree import tree_map


def _is_variable(x: Any) -> bool:
    return isinstance(x, Variable)


def _spec(x: Any) -> Any:
    """The spec of a variable or an array: as its metadata say, else whole."""
    if not isinstance(x, Variable):
        return PartitionSpec() if hasattr(x, "shape") else None
    names = x.sharding_names
    if isinstance(names, NamedSharding):
        names = names.spec
    return x.replace(spec_of(names, x.get_metadata("sharding_rules", None)) if names is not None else PartitionSpec())


def get_partition_spec(tree: Any) -> Any:
    """The partition spec of each variable in a tree, in its place.

    Args:
      tree: a state, a module, or a tree of variables.

    Returns:
      A tree of the same structure, the values of its variables `PartitionSpec`s.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.get_partition_spec({"w": nnx.Param(1.0, out_sharding=("data", None))})["w"].value
      PartitionSpec('data', None)
    """
    if isinstance(tree, Object):
        graphdef, found = split(tree)
        return merge(graphdef, get_partition_spec(found))
    return tree_map(_spec, tree, is_leaf=_is_variable)


def get_named_sharding(tree: Any, mesh: Any) -> Any:
    """The sharding of each variable in a tree over a mesh, in its place.

    Args:
      tree: a state, a module, or a tree of variables.
      mesh: the mesh.

    Returns:
      A tree of the same structure, the values of its variables `NamedSharding`s.

    Examples:
      >>> from phalanx import nnx
      >>> from phalanx.sharding import make_mesh
      >>> mesh = make_mesh((1,), ("x",))
      >>> nnx.get_named_sharding({"w": nnx.Param(1.0, out_sharding=("x",), eager_sharding=False)}, mesh)[
      ...     "w"
      ... ].value.spec
      PartitionSpec('x')
    """
    specs = get_partition_spec(tree)
    return tree_map(
        lambda s: NamedSharding(mesh, s) if isinstance(s, PartitionSpec) else s,
        specs,
        is_leaf=lambda x: isinstance(x, PartitionSpec),
    )


def with_metadata(
    initializer: Callable,
    on_set_value: Any = (),
    on_get_value: Any = (),
    on_create_value: Any = (),
    on_add_axis: Any = (),
    on_remove_axis: Any = (),
    **metadata: Any,
) -> Callable:
    """An initializer whose variables have metadata.

    Args:
      initializer: a function `(key, shape, dtype) -> array`.
      on_set_value, on_get_value, on_create_value, on_add_axis, on_remove_axis: hooks, one or a sequence of them.
      **metadata: names and values.

    Returns:
      A function of the same arguments whose result, given to a `Variable`, brings the metadata with it.

    Examples:
      >>> from phalanx import nn, nnx
      >>> init = nnx.with_metadata(nn.initializers.zeros, unit="m")
      >>> nnx.Param(init(None, (2,))).unit
      'm'
    """
    hooks = dict(zip(HOOKS, (on_get_value, on_set_value, on_create_value, on_add_axis, on_remove_axis), strict=True))
    given = {k: v for k, v in hooks.items() if v != ()} | metadata

    @functools.wraps(initializer)
    def with_given(*args: Any, **kwargs: Any) -> VariableMetadata:
        return VariableMetadata(initializer(*args, **kwargs), given)

    return with_given


def with_partitioning(initializer: Callable, sharding: Any, mesh: Any = None, **metadata: Any) -> Callable:
    """An initializer whose variables are spread over a mesh as named.

    Under a mesh each device computes its own part only, so that no device ever holds the whole.

    Args:
      initializer: a function `(key, shape, dtype) -> array`.
      sharding: the mesh axis of each dimension, a tuple of axes, or None.
      mesh: the mesh; the one in context where it is None.
      **metadata: further metadata.

    Returns:
      A function of the same arguments whose result, given to a `Variable`, brings the metadata with it.

    Examples:
      >>> from phalanx import nnx
      >>> init = nnx.with_partitioning(nnx.initializers.ones, (None, "model"))
      >>> nnx.Param(init(nnx.Rngs(0)(), (2, 3))).out_sharding
      (None, 'model')
    """
    further = {"mesh": mesh} if mesh is not None else {}
    rules = metadata.get("sharding_rules")
    spread = functools.wraps(initializer)(functools.partial(_spread, initializer, sharding, mesh, rules))
    return with_metadata(spread, out_sharding=sharding, **further, **metadata)


def _spread(initializer: Callable, names: Any, mesh: Any, rules: Any, *args: Any, **kwargs: Any) -> Any:
    """The initial value, computed in parts where a mesh is there and the program is not compiled as a whole anyway."""
    mesh = mesh if mesh is not None else state.context.mesh
    if mesh is None or state.trace is not None or names is None or not using_eager_sharding():
        return initializer(*args, **kwargs)
    traced = [isinstance(a, Array | Tracer) for a in args]

    def whole(arrays: list) -> Any:
        given = iter(arrays)
        return initializer(*(next(given) if t else a for a, t in zip(args, traced, strict=True)), **kwargs)

    spread = jit(whole, out_shardings=NamedSharding(mesh, spec_of(names, rules)))
    return spread([a for a, t in zip(args, traced, strict=True) if t])


def abstract_with_sharding(tree: Any, mesh: Any = MISSING) -> Any:
    """A tree of shapes that know their shardings, as restoring a checkpoint and lowering want them.

    Args:
      tree: a state or a module of arrays or shapes.
      mesh: the mesh; the one in context where it is left out. Without any, shapes know no shardings.

    Returns:
      A tree of `ShapeDtypeStruct`s.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> nnx.abstract_with_sharding({"w": jnp.ones(3)}, None)
      {'w': ShapeDtypeStruct(shape=(3,), dtype=float32)}
    """
    mesh = state.context.mesh if mesh is MISSING else mesh
    if mesh is None:
        return tree_map(lambda x: ShapeDtypeStruct(x.shape, x.dtype), tree)
    shardings = get_named_sharding(tree, mesh)
    return tree_map(lambda x, s: ShapeDtypeStruct(x.shape, x.dtype, sharding=s), tree, shardings)


as_abstract = abstract_with_sharding


def get_abstract_model(init_fn: Callable, mesh: Any, *, graph: bool | None = None) -> tuple:
    """The structure of a model, and its state as shapes that know their shardings, without computing anything.

    Args:
      init_fn: makes the model.
      mesh: the mesh over which it is to be spread.
      graph: taken for compatibility.

    Returns:
      `(graphdef, state)`.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> mesh = phalanx.make_mesh((1,), ("x",))
      >>> make = lambda: {"w": nnx.Param(jnp.ones((4, 2)), out_sharding=("x", None))}
      >>> nnx.get_abstract_model(make, mesh)[1].w.value.sharding.spec
      PartitionSpec('x', None)
    """
    graphdef, found = split(eval_shape(init_fn))
    return graphdef, abstract_with_sharding(found, mesh)
