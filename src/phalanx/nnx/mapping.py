"""Functions of one share as functions of the whole: `vmap`, `pmap` and `shard_map`; the metadata of the axis they add.

Each variable is mapped as `in_axes` says of its module; new values go back along the same dimension, and variables made
inside by the prefix of the module they were made in. The names of a variable's dimensions lose the mapped one inside
and get it back outside.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from phalanx import spmd, transforms
from phalanx.nnx.lifting import Inside, Lifted, Outputs, Parts, bring_back, gather
from phalanx.nnx.prefixes import InputPrefix, output_specs
from phalanx.nnx.variable import MISSING, SHARDING_KEYS
from phalanx.sharding import PartitionSpec

PARTITION_NAME = "partition_name"


def renamed(metadata: Mapping[str, Any], axis: int, name: Any, *, add: bool) -> dict:
    """Metadata whose dimension names have `name` at `axis`, or have it no longer."""
    out = dict(metadata)
    for key in SHARDING_KEYS:
        names = out.get(key)
        if not isinstance(names, tuple | list):
            continue
        names = list(names)
        if add:
            names += [None] * (axis - len(names))
            names.insert(axis if axis >= 0 else len(names) + axis + 1, name)
        elif -len(names) <= axis < len(names):
            del names[axis]
        out[key] = tuple(names)
    return out


class Axes:
    """What happens to the names of dimensions where a transformation takes one away inside and adds it outside.

    Args:
      metadata: the option `transform_metadata`; without `partition_name` in it names stay as they are.
    """

    def __init__(self, metadata: Mapping[str, Any]):
        self.is_named = PARTITION_NAME in metadata
        self.name = metadata.get(PARTITION_NAME)

    def enter(self, inside: Inside, axes: list) -> None:
        """Take the dimension out of the names of the variables inside."""
        for variable, axis in zip(inside.copies, axes):
            if isinstance(axis, int):
                variable.remove_axis(axis, self.name)
                if self.is_named:
                    variable._metadata = renamed(variable._metadata, axis, self.name, add=False)

    def leave(self, inside: Inside, outputs: Outputs, axes: list, specs: list) -> None:
        """Put it back, also for variables that were made inside."""
        for variable, axis in zip(inside.copies, axes):
            if isinstance(axis, int):
                variable.add_axis(axis, self.name)
        rebuild = outputs.outcome.rebuild
        if rebuild is None:
            return
        news = iter([s for o, s in zip(outputs.outcome.origins, specs) if o.kind == "new"])
        for n, number in enumerate(rebuild.variables):
            axis = next(news) if number is None else axes[number]
            if self.is_named and isinstance(axis, int):
                kind, metadata = rebuild.kinds[n]
                rebuild.kinds[n] = kind, renamed(metadata, axis, self.name, add=True)


class _Mapped(Lifted):
    """A lifted function that says along which dimensions its outputs are mapped once it knows what they are."""

    def __init__(self, fun: Callable, where: str, prefix: Any, inputs: InputPrefix, axes: Axes):
        super().__init__(fun)
        self._where, self._prefix, self._inputs, self._axes = where, prefix, inputs, axes
        self.out_axes = Outputs(None, [])  # filled inside, and read by the transformation afterwards

    def __call__(self, *args: Any, **kwargs: Any) -> Outputs:
        inside = Inside((args, kwargs))
        self._axes.enter(inside, self._inputs.values)
        own, named = inside.args
        outputs = inside.outputs(self.fun(*own, **named))
        specs = output_specs(self._where, self._prefix, outputs.outcome, self._inputs)
        self._axes.leave(inside, outputs, self._inputs.values, specs)
        self.out_axes.outcome, self.out_axes.values = outputs.outcome, specs
        return outputs


def _mapped(
    transform: Callable, where: str, fun: Callable, in_axes: Any, out_axes: Any, metadata: Mapping[str, Any]
) -> Callable:
    """A function of modules, mapped by an ordinary transformation that takes `in_axes` and `out_axes`."""
    known: dict[Any, Callable] = {}  # one for each structure, so that what is compiled is found again

    @functools.wraps(fun)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        parts: Parts = gather((args, kwargs))
        key = parts.graph.definition, parts.tree
        if key not in known:
            inputs = InputPrefix(f"{where}, in_axes", in_axes, parts, default=0)
            function = _Mapped(fun, f"{where}, out_axes", out_axes, inputs, Axes(metadata))
            axes = inputs.shadowed(parts)[0]
            known[key] = transform(function, in_axes=axes, out_axes=function.out_axes)
        own, named = parts.shadowed()
        return bring_back(parts, known[key](*own, **named))

    return mapped


def vmap(
    f: Any = MISSING,
    *,
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: Any = None,
    axis_size: int | None = None,
    spmd_axis_name: Any = None,
    transform_metadata: Mapping[str, Any] = {},
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """A function of one example, modules among its arguments, as a function of many.

    Args:
      f: the function. Left out, a decorator is given.
      in_axes: as in `phalanx.vmap`; where a module stands, a dimension for all its variables or `StateAxes`.
      out_axes: the same for the result.
      axis_name, axis_size, spmd_axis_name: as in `phalanx.vmap`.
      transform_metadata: with `partition_name`, the name of the mapped dimension in the variables' `out_sharding`.
      graph, graph_updates: taken for compatibility.

    Returns:
      The mapped function; changes to modules are made to the caller's, stacked along the dimension they are mapped by.

    Raises:
      ArgumentError: a variable that is the same for all examples gets different values, a filter means nothing, or
        a variable is reached with two different dimensions.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> w = nnx.Param(jnp.arange(3.0))
      >>> nnx.vmap(lambda w, x: w * x, in_axes=(0, None))(w, 2.0).tolist()
      [0.0, 2.0, 4.0]
    """
    if f is MISSING:
        return functools.partial(
            vmap, in_axes=in_axes, out_axes=out_axes, axis_name=axis_name, axis_size=axis_size,
            spmd_axis_name=spmd_axis_name, transform_metadata=transform_metadata,
        )  # fmt: skip
    transform = functools.partial(
        transforms.vmap, axis_name=axis_name, axis_size=axis_size, spmd_axis_name=spmd_axis_name
    )
    return _mapped(transform, "vmap", f, in_axes, out_axes, transform_metadata)


def pmap(
    f: Any = MISSING,
    *,
    axis_name: Any = None,
    in_axes: Any = 0,
    out_axes: Any = 0,
    static_broadcasted_argnums: Any = (),
    devices: Any = None,
    backend: str | None = None,
    axis_size: int | None = None,
    donate_argnums: Any = (),
    transform_metadata: Mapping[str, Any] = {},
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """A function of one device's share, modules among its arguments, run on all devices.

    Args:
      f: the function. Left out, a decorator is given.
      in_axes, out_axes, transform_metadata: as in `vmap`.
      axis_name, static_broadcasted_argnums, devices, backend, axis_size, donate_argnums: as in `phalanx.pmap`.
      graph, graph_updates: taken for compatibility.

    Returns:
      The mapped function, or a decorator.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> nnx.pmap(lambda w, x: w * x, in_axes=(None, 0))(nnx.Param(jnp.array(2.0)), jnp.ones(1)).tolist()
      [2.0]
    """
    options: dict[str, Any] = dict(
        axis_name=axis_name, static_broadcasted_argnums=static_broadcasted_argnums, devices=devices,
        backend=backend, axis_size=axis_size, donate_argnums=donate_argnums,
    )  # fmt: skip
    if f is MISSING:
        return functools.partial(
            pmap, in_axes=in_axes, out_axes=out_axes, transform_metadata=transform_metadata, **options
        )
    return _mapped(functools.partial(spmd.pmap, **options), "pmap", f, in_axes, out_axes, transform_metadata)


def shard_map(
    f: Any = MISSING,
    *,
    mesh: Any = None,
    in_specs: Any,
    out_specs: Any,
    axis_names: Any = (),
    check_vma: bool = True,
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """A function of one device's pieces, modules of pieces among its arguments, as a function of whole modules.

    Args:
      f: the function. Left out, a decorator is given.
      mesh, axis_names, check_vma: as in `phalanx.shard_map`.
      in_specs: as in `phalanx.shard_map`; where a module stands, a spec for all its variables or a `StateSharding`, by
        filter or by exact state.
      out_specs: the same for the result; changed variables go back as they came in.
      graph, graph_updates: taken for compatibility.

    Returns:
      The function of whole arrays and modules; changes to modules are made to the caller's.

    Raises:
      ShardingError: a spec does not fit, or a variable that is the same everywhere gets different values.

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
    options: dict[str, Any] = dict(mesh=mesh, axis_names=axis_names, check_vma=check_vma)
    if f is MISSING:
        return functools.partial(shard_map, in_specs=in_specs, out_specs=out_specs, **options)
    known: dict[Any, Callable] = {}  # one for each structure, so that its program is found again

    @functools.wraps(f)
    def sharded(*args: Any, **kwargs: Any) -> Any:
        parts = gather((args, kwargs))
        key = parts.graph.definition, parts.tree
        if key not in known:
            inputs = InputPrefix("shard_map, in_specs", in_specs, parts, default=PartitionSpec())
            function = _Mapped(f, "shard_map, out_specs", out_specs, inputs, Axes({}))
            known[key] = spmd.shard_map(
                function, in_specs=inputs.shadowed(parts)[0], out_specs=function.out_axes, **options
            )
        own, named = parts.shadowed()
        return bring_back(parts, known[key](*own, **named))

    return sharded
