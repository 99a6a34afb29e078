"""`nnx.vmap`, `nnx.pmap` and `nnx.shard_map`.

Variables are mapped according to `in_axes` of their module. New values are written back along the same dimension, and
a variable created inside is mapped like the module that contains it. The dimension names in the metadata of a variable
lose the mapped dimension inside, and regain it outside.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from phalanx import spmd, transforms
from phalanx.core import ArgumentError, state
from phalanx.engine.cache import Cache
from phalanx.nnx.graph_mode import GraphMode, resolve_mode
from phalanx.nnx.transforms.lifting import InnerModules, Lifted, LiftedArguments, Outputs, flatten_arguments, write_back
from phalanx.nnx.transforms.state_axes import (
    InputPrefix,
    check_returned_variables,
    get_output_prefixes,
    place_variables,
)
from phalanx.nnx.transforms.user_functions import bind_keywords, decorator_if_missing
from phalanx.nnx.variable import MISSING, SHARDING_KEYS
from phalanx.sharding import Mesh, PartitionSpec
from phalanx.typing import AxisName, PyTree

PARTITION_NAME = "partition_name"


def axis_entries(transform_metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The entry for a mapped dimension in each field of the metadata: the dimension names, and fields of the user.

    Raises:
      ArgumentError: the name of the dimension is missing.
    """
    if PARTITION_NAME not in transform_metadata:
        raise ArgumentError(
            "transform_metadata",
            expected=f"a name of the dimension under {PARTITION_NAME!r}",
            got=dict(transform_metadata),
            fix="pass {nnx.PARTITION_NAME: name}; the name may be None",
        )
    entries = dict(transform_metadata)
    name = entries.pop(PARTITION_NAME)
    return dict.fromkeys(SHARDING_KEYS, name) | entries


def change_axis(metadata: Mapping[str, Any], axis: int, entries: Mapping[str, Any], *, add: bool) -> dict[str, Any]:
    """Return metadata in which an entry for a dimension is inserted into each of several fields, or removed from it.

    Raises:
      ArgumentError: a field has another entry to remove.
    """
    out = dict(metadata)
    for key, entry in entries.items():
        if not isinstance(out.get(key), tuple | list):
            continue
        field = list(out[key])
        if add:
            # Entries may be omitted for trailing dimensions.
            field += [None] * (axis - len(field))
            field.insert(axis if axis >= 0 else len(field) + axis + 1, entry)
        elif -len(field) <= axis < len(field) and (found := field.pop(axis)) != entry:
            raise ArgumentError(
                f"transform_metadata, {PARTITION_NAME if key in SHARDING_KEYS else key}",
                expected=f"{found!r}, the entry of mapped dimension {axis} in the metadata {key}={out[key]}",
                got=repr(entry),
                fix="pass the entry with which the transformation that made the variable inserted the dimension",
            )
        out[key] = tuple(field)
    return out


class AxisMetadata:
    """Updates the metadata of variables for a dimension that a transformation removes inside and adds outside.

    Args:
      metadata: the option `transform_metadata`. Metadata change only if it has a `partition_name`.
    """

    def __init__(self, metadata: Mapping[str, Any]):
        self.name = metadata.get(PARTITION_NAME)
        self.entries = axis_entries(metadata) if PARTITION_NAME in metadata else {}

    def remove(self, inside: InnerModules, axes: Sequence[Any]) -> None:
        """Remove the dimension from the metadata of the variables inside."""
        for variable, axis in zip(inside.variables, axes):
            if isinstance(axis, int):
                variable.remove_axis(axis, self.name)
                if self.entries:
                    variable._metadata = change_axis(variable._metadata, axis, self.entries, add=False)

    def add(self, inside: InnerModules, outputs: Outputs, axes: Sequence[Any], specs: Sequence[Any]) -> None:
        """Add the dimension to the metadata of existing and new variables."""
        for variable, axis in zip(inside.variables, axes):
            if isinstance(axis, int):
                variable.add_axis(axis, self.name)
        if not self.entries:
            return
        outcome = outputs.outcome
        outcome.metadata = [
            (n, change_axis(m, axes[n], self.entries, add=True) if isinstance(axes[n], int) else m)
            for n, m in outcome.metadata
        ]
        if (rebuild := outcome.rebuild) is None:
            return
        new_axes = iter([s for o, s in zip(outcome.origins, specs) if o.kind == "new"])
        for n, (number, (kind, metadata)) in enumerate(zip(rebuild.variables, rebuild.kinds)):
            axis = next(new_axes) if number is None else axes[number]
            if isinstance(axis, int):
                rebuild.kinds[n] = kind, change_axis(metadata, axis, self.entries, add=True)


class _Mapped(Lifted):
    """A lifted function that determines the mapped dimensions of its outputs when it is traced."""

    def __init__(
        self, fun: Callable, where: str, prefix: Any, inputs: InputPrefix, axes: AxisMetadata, mode: GraphMode
    ):
        super().__init__(fun, mode=mode)
        self._where, self._prefix, self._inputs, self._axes = where, prefix, inputs, axes
        # The outputs are known only after tracing, so that this object, the `out_axes` of the transformation, is
        # filled by `__call__` before the transformation reads it.
        self.out_axes = Outputs(None, [])

    def __call__(self, *args: Any, **kwargs: Any) -> Outputs:
        inside = InnerModules((args, kwargs), self.mode)
        self._axes.remove(inside, self._inputs.values)
        inner_args, inner_kwargs = inside.args
        out = self.fun(*inner_args, **inner_kwargs)
        check_returned_variables(self._where, inside, out, self._prefix, self._inputs)
        outputs = inside.outputs(out)
        specs = get_output_prefixes(self._where, self._prefix, outputs.outcome, self._inputs)
        self._axes.add(inside, outputs, self._inputs.values, specs)
        self.out_axes.outcome, self.out_axes.values = outputs.outcome, specs
        return outputs


def _map_modules(
    name: str,
    transform: Callable,
    fun: Callable,
    options: Mapping[str, Any],
    mode: GraphMode,
    metadata: Mapping[str, Any] = {},
    default: Any = 0,
    place: Callable[[LiftedArguments, InputPrefix], object] | None = None,
) -> Callable:
    """Lift a transformation with options for arguments and results.

    Args:
      name: the name of the transformation, for error messages.
      transform: the ordinary transformation, called with a function and the two options.
      fun: the user's function.
      options: the option for arguments, then the one for results, by name.
      mode: the mode of the transformation.
      metadata: the option `transform_metadata`.
      default: the input option of keyword arguments.
      place: moves the caller's variables as the input option says.
    """
    (in_name, inputs), (out_name, outputs) = options.items()
    # One transformed function for each structure of the arguments, so that compiled programs are found again.
    cache: Cache[Hashable, tuple[Callable, InputPrefix]] = Cache("nnx.mapped_functions", 1024)

    @functools.wraps(fun)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = bind_keywords(fun, args, kwargs)
        parts = flatten_arguments((args, kwargs), mode, name)
        key = parts.graph.definition, parts.tree
        if (found := cache.get(key)) is None:
            # The option depends on the structure of the modules only, not on their values, and is resolved once per
            # structure.
            prefix = InputPrefix(f"{name}, {in_name}", inputs, parts, default=default)
            function = _Mapped(fun, f"{name}, {out_name}", outputs, prefix, AxisMetadata(metadata), mode)
            pure_prefix, _ = prefix.to_pure(parts)
            found = transform(function, **{in_name: pure_prefix, out_name: function.out_axes}), prefix
            cache[key] = found
        transformed, prefix = found
        if place is not None and mode.updates and state.trace is None:
            place(parts, prefix)
        pure_args, pure_kwargs = parts.to_pure()
        return write_back(parts, transformed(*pure_args, **pure_kwargs))

    return mapped


@decorator_if_missing
def vmap(
    f: Any = MISSING,
    *,
    in_axes: PyTree = 0,
    out_axes: PyTree = 0,
    axis_name: AxisName = None,
    axis_size: int | None = None,
    spmd_axis_name: AxisName = None,
    transform_metadata: Mapping[str, Any] = {},
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """Vectorize a function of modules.

    Args:
      f: the function. If omitted, a decorator is returned.
      in_axes: as in `phalanx.vmap`; for a module, a dimension for all its variables or a `StateAxes`.
      out_axes: the same for the result.
      axis_name, axis_size, spmd_axis_name: as in `phalanx.vmap`.
      transform_metadata: its `partition_name` is the name of the mapped dimension in the variables' `out_sharding`. Any
        other item is the entry for that dimension in the metadata of its name, where these are a tuple.
      graph, graph_updates: the mode; None for the defaults of `set_graph_mode` and `set_graph_updates`.

    Returns:
      The vectorized function. Changes to modules are written back to the caller's modules, stacked along the dimension
      along which they are mapped.

    Raises:
      ArgumentError: a variable that is not mapped is set to different values, a filter matches no variable, or a shared
        variable has two different dimensions.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> w = nnx.Param(jnp.arange(3.0))
      >>> nnx.vmap(lambda w, x: w * x, in_axes=(0, None))(w, 2.0).tolist()
      [0.0, 2.0, 4.0]
    """

    transform = functools.partial(
        transforms.vmap, axis_name=axis_name, axis_size=axis_size, spmd_axis_name=spmd_axis_name
    )
    options = {"in_axes": in_axes, "out_axes": out_axes}
    return _map_modules("vmap", transform, f, options, resolve_mode(graph, graph_updates), transform_metadata)


@decorator_if_missing
def transform_metadata(
    f: Any = MISSING,
    *,
    in_axes: PyTree = 0,
    out_axes: PyTree = 0,
    partition: AxisName | None,
    graph: bool | None = None,
) -> Any:
    """Call a function with modules whose dimension names lack a dimension, which its results regain.

    It changes metadata only: combine it with a transformation of arrays that maps this dimension.

    Args:
      f: the function. If omitted, a decorator is returned.
      in_axes: the dimension that the function does not see, as in `vmap`.
      out_axes: the dimension to insert into the names of new variables.
      partition: the name of the dimension; None for one without a name.
      graph: False for the tree mode, in which shared variables are errors; None for the default of `set_graph_mode`.

    Returns:
      The function, or a decorator. Changes to modules are written back to the caller's modules.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> @nnx.transform_metadata(in_axes=0, partition="layers")
      ... def get_names(w):
      ...     return list(w.out_sharding)
      >>> get_names(nnx.Param(jnp.ones((3, 2)), out_sharding=("layers", "model")))
      ['model']
    """

    def keep(function: Callable, **options: Any) -> Callable:
        return function

    options = {"in_axes": in_axes, "out_axes": out_axes}
    mode = resolve_mode(graph, graph_updates=False)
    return _map_modules("transform_metadata", keep, f, options, mode, {PARTITION_NAME: partition})


@decorator_if_missing
def pmap(
    f: Any = MISSING,
    *,
    axis_name: AxisName = None,
    in_axes: PyTree = 0,
    out_axes: PyTree = 0,
    static_broadcasted_argnums: int | Sequence[int] = (),
    devices: Sequence[Any] | None = None,
    backend: str | None = None,
    axis_size: int | None = None,
    donate_argnums: int | Sequence[int] = (),
    transform_metadata: Mapping[str, Any] = {},
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """Map a function of modules over devices.

    Args:
      f: the function. If omitted, a decorator is returned.
      in_axes, out_axes, transform_metadata: as in `vmap`.
      axis_name, static_broadcasted_argnums, devices, backend, axis_size, donate_argnums: as in `phalanx.pmap`.
      graph, graph_updates: the mode; None for the defaults of `set_graph_mode` and `set_graph_updates`.

    Returns:
      The mapped function, or a decorator.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> nnx.pmap(lambda w, x: w * x, in_axes=(None, 0))(nnx.Param(jnp.array(2.0)), jnp.ones(1)).tolist()
      [2.0]
    """

    transform = functools.partial(
        spmd.pmap,
        axis_name=axis_name,
        static_broadcasted_argnums=static_broadcasted_argnums,
        devices=devices,
        backend=backend,
        axis_size=axis_size,
        donate_argnums=donate_argnums,
    )
    options = {"in_axes": in_axes, "out_axes": out_axes}
    return _map_modules("pmap", transform, f, options, resolve_mode(graph, graph_updates), transform_metadata)


@decorator_if_missing
def shard_map(
    f: Any = MISSING,
    *,
    mesh: Mesh | None = None,
    in_specs: PyTree,
    out_specs: PyTree,
    axis_names: Sequence[Hashable] | frozenset = (),
    check_vma: bool = True,
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """Map a per-shard function of modules over the devices of a mesh.

    Args:
      f: the function of per-shard arrays and modules. If omitted, a decorator is returned.
      mesh, axis_names, check_vma: as in `phalanx.shard_map`.
      in_specs: as in `phalanx.shard_map`; for a module, a spec for all its variables or a `StateSharding`.
      out_specs: the same for the result; changed variables keep the spec of the corresponding input.
      graph, graph_updates: the mode; None for the defaults of `set_graph_mode` and `set_graph_updates`.

    Returns:
      The function of global arrays and modules. Changes are written back to the caller's modules.

    Raises:
      ShardingError: a spec does not fit a value, or a replicated variable is set to different values.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> from phalanx.sharding import PartitionSpec as P
      >>> mesh = phalanx.make_mesh((1,), ("data",))
      >>> @nnx.shard_map(mesh=mesh, in_specs=(P(), P("data")), out_specs=P("data"))
      ... def scale(w, x):
      ...     return w * x
      >>> scale(nnx.Param(jnp.array(2.0)), jnp.arange(3.0)).tolist()
      [0.0, 2.0, 4.0]
    """

    transform = functools.partial(spmd.shard_map, mesh=mesh, axis_names=axis_names, check_vma=check_vma)
    options = {"in_specs": in_specs, "out_specs": out_specs}
    place = functools.partial(place_variables, mesh=mesh)
    return _map_modules(
        "shard_map", transform, f, options, resolve_mode(graph, graph_updates), default=PartitionSpec(), place=place
    )
