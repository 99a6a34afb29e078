"""Partition specs and shardings of whole models, from the metadata `out_sharding` of their variables.

To initialize a model in sharded form, create it inside of `nnx.jit` under a mesh, so that each device computes only its
shards; inside of `nnx.eval_shape`, only the shapes and shardings are determined.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from phalanx.core import ShapeDtypeStruct, Tracer, state
from phalanx.nnx.graphlib import Path, map, merge, split
from phalanx.nnx.objects import Pytree
from phalanx.nnx.sharding.logical_axis_rules import DimNames, get_spec, using_eager_sharding
from phalanx.nnx.transforms.lifted_eval_shape import eval_shape
from phalanx.nnx.transforms.lifted_vmap import PARTITION_NAME as PARTITION_NAME, axis_entries, change_axis
from phalanx.nnx.variable import HOOKS, MISSING, Variable, VariableMetadata, is_variable
from phalanx.runtime.array import Array
from phalanx.sharding import Mesh, NamedSharding, PartitionSpec
from phalanx.spmd import jit
from phalanx.tree import tree_leaves, tree_map
from phalanx.typing import PyTree

Hooks: TypeAlias = Callable[..., Any] | Sequence[Callable[..., Any]]


def add_axis(tree: PyTree, index: int, transform_metadata: Mapping[str, Any]) -> PyTree:
    """Insert a dimension into the metadata of variables, as `vmap` and `scan` do.

    Args:
      tree: a tree of variables, which are changed.
      index: the position of the dimension.
      transform_metadata: the name of the dimension under `nnx.PARTITION_NAME`, and entries for other metadata that are
        tuples with an entry for each dimension.

    Returns:
      The tree.

    Raises:
      ArgumentError: the name of the dimension is missing.

    Examples:
      >>> from phalanx import nnx
      >>> v = nnx.Param(1.0, out_sharding=("model",), eager_sharding=False)
      >>> nnx.spmd.add_axis(v, 0, {nnx.PARTITION_NAME: "layers"}).out_sharding
      ('layers', 'model')
    """
    return _change_axis(tree, index, transform_metadata, add=True)


def remove_axis(tree: PyTree, index: int, transform_metadata: Mapping[str, Any]) -> PyTree:
    """Remove a dimension from the metadata of variables; the opposite of `add_axis`.

    Args:
      tree, index, transform_metadata: as in `add_axis`.

    Returns:
      The tree.

    Raises:
      ArgumentError: the name of the dimension is missing, or the metadata have another entry.
    """
    return _change_axis(tree, index, transform_metadata, add=False)


def _change_axis(tree: PyTree, index: int, transform_metadata: Mapping[str, Any], *, add: bool) -> PyTree:
    entries = axis_entries(transform_metadata)
    for variable in filter(is_variable, tree_leaves(tree, is_leaf=is_variable)):
        variable.set_metadata(**change_axis(variable.get_metadata(), index, entries, add=add))
        call_hook = variable.add_axis if add else variable.remove_axis
        call_hook(index, transform_metadata[PARTITION_NAME])
    return tree


def get_var_pspec(v: Variable) -> PartitionSpec:
    """Return the partition spec of a variable; without metadata, it is replicated.

    Args:
      v: the variable.

    Returns:
      The spec.
    """
    names = v.sharding_names
    if isinstance(names, NamedSharding):
        names = names.spec
    return get_spec(names, v.get_metadata("sharding_rules", None)) if names is not None else PartitionSpec()


def _get_leaf_spec(x: Any) -> Any:
    if isinstance(x, Variable):
        return x.replace(get_var_pspec(x))
    return PartitionSpec() if hasattr(x, "shape") else None


def get_partition_spec(tree: PyTree) -> PyTree:
    """Return the partition spec of each variable in a tree.

    Args:
      tree: a state, a module, or a tree of variables.

    Returns:
      A tree of the same structure, with `PartitionSpec`s as values of its variables.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.get_partition_spec({"w": nnx.Param(1.0, out_sharding=("data", None))})["w"].value
      P('data', None)
    """
    if isinstance(tree, Pytree):
        graphdef, found = split(tree)
        return merge(graphdef, get_partition_spec(found))
    return tree_map(_get_leaf_spec, tree, is_leaf=is_variable)


def get_named_sharding(tree: PyTree, mesh: Mesh) -> PyTree:
    """Return the sharding of each variable in a tree over a mesh.

    Args:
      tree: a state, a module, or a tree of variables.
      mesh: the mesh.

    Returns:
      A tree of the same structure, with `NamedSharding`s as values of its variables.

    Examples:
      >>> from phalanx import nnx
      >>> from phalanx.sharding import make_mesh
      >>> mesh = make_mesh((1,), ("x",))
      >>> nnx.get_named_sharding({"w": nnx.Param(1.0, out_sharding=("x",), eager_sharding=False)}, mesh)[
      ...     "w"
      ... ].value.spec
      P('x',)
    """
    return tree_map(
        lambda s: NamedSharding(mesh, s) if isinstance(s, PartitionSpec) else s,
        get_partition_spec(tree),
        is_leaf=lambda x: isinstance(x, PartitionSpec),
    )


def with_metadata(
    initializer: Callable,
    on_set_value: Hooks = (),
    on_get_value: Hooks = (),
    on_create_value: Hooks = (),
    on_add_axis: Hooks = (),
    on_remove_axis: Hooks = (),
    **metadata: Any,
) -> Callable:
    """Add metadata to the variables that are created from the results of an initializer.

    Args:
      initializer: a function `(key, shape, dtype) -> array`.
      on_set_value, on_get_value, on_create_value, on_add_axis, on_remove_axis: a hook, or a sequence of hooks.
      **metadata: metadata by name.

    Returns:
      A function of the same arguments. A `Variable` created from its result has the metadata.

    Examples:
      >>> from phalanx import nn, nnx
      >>> init = nnx.with_metadata(nn.initializers.zeros, unit="m")
      >>> nnx.Param(init(None, (2,))).unit
      'm'
    """
    hooks = dict(zip(HOOKS, (on_get_value, on_set_value, on_create_value, on_add_axis, on_remove_axis), strict=True))
    given = {k: v for k, v in hooks.items() if v != ()} | metadata

    # Partial functions rather than closures, so that modules that keep the initializer can be pickled.
    return functools.partial(_add_metadata, initializer, given)


def _add_metadata(initializer: Callable, metadata: Mapping[str, Any], *args: Any, **kwargs: Any) -> VariableMetadata:
    return VariableMetadata(initializer(*args, **kwargs), metadata)


def with_partitioning(
    initializer: Callable, sharding: DimNames | NamedSharding | None, mesh: Mesh | None = None, **metadata: Any
) -> Callable:
    """Shard the variables that are created from the results of an initializer.

    Under a mesh, each device computes only its shard of the initial value.

    Args:
      initializer: a function `(key, shape, dtype) -> array`.
      sharding: for each dimension a mesh axis, a tuple of axes, or None.
      mesh: the mesh; None for the mesh in context.
      **metadata: further metadata by name.

    Returns:
      A function of the same arguments. A `Variable` created from its result has the metadata.

    Examples:
      >>> from phalanx import nnx
      >>> init = nnx.with_partitioning(nnx.initializers.ones, (None, "model"))
      >>> nnx.Param(init(nnx.Rngs(0)(), (2, 3))).out_sharding
      (None, 'model')
    """
    if mesh is not None:
        metadata["mesh"] = mesh
    initialize = functools.partial(_initialize_sharded, initializer, sharding, mesh, metadata.get("sharding_rules"))
    return with_metadata(initialize, out_sharding=sharding, **metadata)


def _initialize_sharded(
    initializer: Callable, sharding: Any, mesh: Mesh | None, rules: Any, *args: Any, **kwargs: Any
) -> Any:
    """Call an initializer, as a compiled program with a sharded result if there is a mesh."""
    over = mesh if mesh is not None else state.context.mesh
    # Inside of a trace, the compiler partitions the computation anyway.
    if over is None or state.trace is not None or sharding is None or not using_eager_sharding():
        return initializer(*args, **kwargs)
    is_traced = [isinstance(a, Array | Tracer) for a in args]

    def compute(arrays: list) -> Any:
        rest = iter(arrays)
        return initializer(*(next(rest) if t else a for a, t in zip(args, is_traced, strict=True)), **kwargs)

    # The compiler partitions the random number generation, so that no device computes or holds the whole array.
    sharded = jit(compute, out_shardings=NamedSharding(over, get_spec(sharding, rules)))
    return sharded([a for a, t in zip(args, is_traced, strict=True) if t])


def abstract_with_sharding(tree: PyTree, mesh: Mesh | None = MISSING, *, graph: bool | None = None) -> PyTree:
    """Return the shapes and shardings of a model, for lowering a program or restoring a checkpoint.

    Args:
      tree: a state or a module of arrays or shapes.
      mesh: the mesh; if omitted, that in the metadata of each variable, or else the mesh in context. Without a mesh,
        the shapes have no shardings.
      graph: False for the tree mode, in which shared variables are errors; None for the default of `set_graph_mode`.

    Returns:
      A tree of `ShapeDtypeStruct`s.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> nnx.abstract_with_sharding({"w": jnp.ones(3)}, None)
      {'w': ShapeDtypeStruct(shape=(3,), dtype=float32)}
    """

    def convert(path: Path, x: Any) -> Any:
        over = state.context.mesh if mesh is MISSING else mesh
        if mesh is MISSING and isinstance(x, Variable):
            over = x.get_metadata("mesh", over)
        if over is None:
            return tree_map(lambda leaf: ShapeDtypeStruct(leaf.shape, leaf.dtype), x)
        shardings = get_named_sharding(x, over)
        return tree_map(lambda leaf, s: ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=s), x, shardings)

    return map(convert, tree, graph=graph)


as_abstract = abstract_with_sharding


def get_abstract_model(init_fn: Callable[[], Any], mesh: Mesh, *, graph: bool | None = None) -> tuple:
    """Return the structure of a model and its state as shapes with shardings, without computing anything.

    Args:
      init_fn: creates the model.
      mesh: the mesh.
      graph: False for the tree mode, in which shared variables are errors; None for the default of `set_graph_mode`.

    Returns:
      `(graphdef, state)`.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> mesh = phalanx.make_mesh((1,), ("x",))
      >>> make = lambda: {"w": nnx.Param(jnp.ones((4, 2)), out_sharding=("x", None))}
      >>> nnx.get_abstract_model(make, mesh)[1].w.value.sharding.spec
      P('x', None)
    """
    graphdef, found = split(eval_shape(init_fn, graph=graph), graph=graph)
    return graphdef, abstract_with_sharding(found, mesh, graph=graph)
