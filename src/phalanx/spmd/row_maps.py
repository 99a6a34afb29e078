"""`pmap` and `soft_pmap`: map a function over rows of its arguments, with the rows distributed over devices.

`pmap` is a compiled function (`Jit`) whose program is a `shard_map` over a mesh with one axis for the rows, so that a
cache hit costs the same as with `jit`. The mesh depends on the number of rows and is created during tracing. A nested
`pmap` needs another axis of the outermost mesh. If tracing reaches a `pmap` whose axis is missing, it raises
`_MissingMeshAxes`, and the outermost program is traced again over a larger mesh. `soft_pmap` is a compiled `vmap` whose
mapped axis is sharded over a mesh of all devices.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core import (
    ArgumentError,
    ShardingError,
    check_axis_name,
    check_function,
    merge_lists,
    select_flagged,
    select_unflagged,
    state,
    state_extra,
)
from phalanx.engine import client
from phalanx.lax import squeeze
from phalanx.numpy import expand_dims, moveaxis
from phalanx.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec
from phalanx.spmd.call_arguments import CallArguments, Signature
from phalanx.spmd.jit import Jit
from phalanx.spmd.shard_map import shard_map
from phalanx.spmd.sharding_resolution import LeafShardings
from phalanx.transforms import canonical_dim, named_vmap, positional_parameters, resolve_in_axes
from phalanx.tree import broadcast_prefix, tree_flatten, tree_map, tree_unflatten
from phalanx.tree.key_paths import leaf_path
from phalanx.typing import AxisName, PyTree

REPLICATED = PartitionSpec()


class _MissingMeshAxes(BaseException):
    """Raised while tracing a nested `pmap` whose mesh axes (its `args`) the outermost mesh does not have yet.

    It derives from BaseException so that an `except Exception` in the user's function does not catch it.
    """


class _Outermost(threading.local):
    """State of the outermost `pmap` being traced: the number of available devices, and the axes for nested `pmap`s.

    `axes` is None while no `pmap` is being traced.
    """

    axes: list[tuple[Any, int]] | None = None
    available: int = 0


_outermost = _Outermost()


def is_per_device() -> bool:
    """Whether the trace is inside the per-device program of a `shard_map` or `pmap`."""
    mesh = state.context.mesh
    return mesh is not None and bool(mesh.manual_axes)


class RowMap(Jit):
    """A compiled map over rows: the base class of `pmap` and `soft_pmap`.

    Args:
      fun: the function of one row.
      axis_name: name of the mapped axis for collectives, or None.
      in_axes, out_axes: as in `vmap`.
      axis_size: the number of rows, if the user specified it.
      devices: the devices to use, in order; None for all devices of this process.
      signature: the parameters of the function.
    """

    def __init__(
        self,
        fun: Callable,
        axis_name: AxisName,
        in_axes: PyTree,
        out_axes: PyTree,
        axis_size: int | None,
        devices: Sequence[Any] | None,
        signature: Signature,
    ):
        super().__init__(fun, signature)
        check_axis_name(f"{self._what}, axis_name", axis_name)
        self._axis_name = axis_name
        # Static arguments are removed from the call before it is mapped, so their in_axes are removed as well.
        self._in_axes = self._dynamic(in_axes) if isinstance(in_axes, tuple | list) else in_axes
        self._out_axes = out_axes
        self._axis_size = axis_size
        self._devices = devices

    def _call(self, args: tuple, kwargs: dict) -> Any:
        # Inside a soft_pmap or an xmap over a mesh, the rows of several examples share the devices.
        if state.context.disable_jit or state.context.rows_share:
            return self._as_vmap()(*args, **kwargs)
        return super()._call(args, kwargs)

    def _dynamic(self, items: Sequence[Any]) -> tuple:
        """The items, one for each positional argument, static arguments excluded."""
        return tuple(x for i, x in enumerate(items) if i not in self._signature.static_argnums)

    def _available(self) -> list:
        if self._devices is None and client.coordinator() is not None:
            raise ShardingError(
                f"{self._what}, argument devices",
                expected="the devices to map over, since the program has several processes",
                got="none",
                fix="pass devices=phalanx.local_devices(), or use shard_map over a mesh of all devices",
            )
        return list(client.local_devices() if self._devices is None else self._devices)

    def _inputs(self, call: CallArguments) -> tuple[list, int]:
        """The mapped dimension of each leaf, or None, and the number of rows."""

        dims, size = resolve_in_axes(
            self._what,
            self._in_axes,
            *call.dynamic(),
            self._axis_size,
            lambda: list(self._dynamic(positional_parameters(self._fun))),
        )
        if size == 0:
            raise ArgumentError(
                self._what,
                expected="mapped dimensions of size at least 1",
                got="size 0",
                fix="skip the call if there are no rows",
            )
        return dims, size

    def _as_vmap(self, spmd_axis_name: AxisName = None) -> Callable:
        """The function as a `vmap`, which computes the same result on any number of devices."""

        def whole(*args: Any, **kwargs: Any) -> Any:
            call = self._signature.split(args, kwargs)

            def row(*dynamic: Any, **named: Any) -> Any:
                new_args, new_kwargs = call.with_statics(dynamic, named)
                return self._fun(*new_args, **new_kwargs)

            dynamic, named = call.dynamic()
            axes = (self._in_axes, self._out_axes, self._axis_name, self._axis_size, spmd_axis_name)
            return named_vmap(self._what, row, *axes)(*dynamic, **named)

        return whole

    def _add_in_shardings(self, specs: Sequence[Any], mesh: Mesh) -> dict:
        """The options of `jit` with the shardings of the arguments added."""
        shardings = LeafShardings([NamedSharding(mesh, spec) for spec in specs])
        return {**self._options, "in_shardings": shardings, "moves_committed": True}


def _split(dim: int | None, axis: AxisName) -> PartitionSpec:
    """The spec of an array of which a mesh axis splits dimension `dim`; replicated if `dim` is None."""
    return REPLICATED if dim is None else PartitionSpec(*[None] * dim, axis)


def make_mesh(devices: Sequence[Any], axes: Sequence[tuple[Any, int]]) -> Mesh:
    """Create a mesh of the first devices with axes of these names and sizes."""
    names, sizes = zip(*axes, strict=True)
    return Mesh(np.array(devices[: math.prod(sizes)], dtype=object).reshape(sizes), names)


class PMap(RowMap):
    """A compiled `shard_map` over as many devices as there are rows."""

    def _trace(self, call: CallArguments, avals: tuple) -> Any:
        if _outermost.axes is not None or is_per_device():
            return super()._trace(call, avals)
        # Each attempt adds the axes of at least one nested pmap, so the number of traces is at most the nesting depth.
        _outermost.axes, _outermost.available = [], len(self._available())
        try:
            while True:
                try:
                    return super()._trace(call, avals)
                except _MissingMeshAxes as wanted:
                    _outermost.axes.extend(wanted.args)
        finally:
            _outermost.axes = None

    def _plan(self, call: CallArguments) -> tuple[Callable, dict]:
        dims, size = self._inputs(call)
        mesh = state.context.mesh
        if is_per_device():
            # The name is deterministic, since the outer program may be traced again.
            name = self._axis_name or f"pmap_{len(mesh.manual_axes)}"
            return self._inside(mesh, dims, name, size), self._options
        name = self._axis_name or "pmap"
        available = self._available()
        if size > len(available):
            raise _too_few(self._what, size, len(available))
        mesh = make_mesh(available, [(name, size), *(_outermost.axes or ())])
        options = self._add_in_shardings([_split(d, name) for d in dims], mesh)
        rows = self._over(mesh, name, dims)
        if mesh.size > 1:
            return rows, options

        def alone(*args: Any, **kwargs: Any) -> Any:
            """Attach shardings to the results of a program for one device, for which XLA reports none."""
            out = rows(*args, **kwargs)
            # `nnx.pmap` determines the out_axes of modules during the call, so they are read after it.
            options["out_shardings"] = tree_map(
                lambda d: NamedSharding(mesh, _split(d if isinstance(d, int) and d >= 0 else None, name)),
                self._out_axes,
                is_leaf=lambda d: d is None,
            )
            return out

        return alone, options

    def _inside(self, mesh: Mesh | AbstractMesh, dims: Sequence[Any], name: AxisName, size: int) -> Callable:
        """The function to trace inside the per-device program of a `shard_map` or an outer `pmap`."""
        if name in mesh.manual_axes or mesh.shape.get(name, size) != size or _outermost.axes is None:
            # The axis name is taken, or the mesh belongs to the user's shard_map and cannot get another axis.
            return self._as_vmap()
        return self._over(require_mesh_axes(self._what, [(name, size)]), name, dims)

    def _over(self, mesh: Mesh | AbstractMesh, name: AxisName, dims: Sequence[Any]) -> Callable:
        """The function of unsharded arrays that runs one row on each device of a mesh axis."""

        def whole(*args: Any, **kwargs: Any) -> Any:
            call = self._signature.split(args, kwargs)
            found: list = []

            def row(*shards: Any) -> tuple[list, list]:
                new_args, new_kwargs = call.rebuild(
                    [x if d is None else squeeze(x, (d,)) for x, d in zip(shards, dims, strict=True)]
                )
                out = self._fun(*new_args, **new_kwargs)
                leaves, tree = tree_flatten(out)
                where = f"{self._what}, out_axes"
                prefix = broadcast_prefix(self._out_axes, out, what=where, is_leaf=lambda x: x is None)
                out_dims = [
                    canonical_dim(d, np.ndim(x) + 1, lambda i=i: f"{where} for result{leaf_path(out, i)}")
                    for i, (x, d) in enumerate(zip(leaves, prefix, strict=True))
                ]
                shared = [d is None for d in out_dims]
                found[:] = [tree, out_dims, shared]
                return [expand_dims(x, 0) for x in select_unflagged(leaves, shared)], select_flagged(leaves, shared)

            # check_vma=False: as under vmap, every row is differentiated independently.
            mapped = shard_map(
                row,
                mesh,
                in_specs=tuple(_split(d, name) for d in dims),
                out_specs=(PartitionSpec(name), REPLICATED),
                axis_names={name},
                check_vma=False,
            )
            rows, equal = mapped(*call.leaves)
            tree, out_dims, shared = found
            moved = [moveaxis(x, 0, d) for x, d in zip(rows, select_unflagged(out_dims, shared), strict=True)]
            return tree_unflatten(tree, merge_lists(shared, equal, moved))

        return whole


def require_mesh_axes(what: str, axes: Sequence[tuple[Any, int]]) -> Any:
    """Return the mesh of the outermost `pmap` if it has these axes, else restart its trace with a larger mesh.

    Args:
      what: description of the caller for error messages.
      axes: pairs of axis name and size.

    Returns:
      The current mesh.

    Raises:
      _MissingMeshAxes: to restart the trace.
      ArgumentError: there are too few devices, or there is no surrounding `pmap`.
    """
    mesh = state.context.mesh
    # An axis of the right name and size was added when the program was traced before, or by a sibling pmap.
    missing = [(name, size) for name, size in axes if mesh.shape.get(name) != size]
    if not missing:
        return mesh
    if _outermost.axes is None:
        raise ArgumentError(
            what,
            expected="a call inside a pmap, or outside of any shard_map",
            got=f"a call inside a shard_map over {mesh}",
            fix="add an axis to the mesh of the shard_map, and use lax.with_sharding_constraint over it",
        )
    # Each row of a nested pmap uses a separate device: the total is the product over all levels.
    wanted = mesh.size * math.prod(size for _, size in missing)
    if wanted > _outermost.available:
        raise _too_few(what, wanted, _outermost.available)
    raise _MissingMeshAxes(*missing)


def _too_few(what: str, wanted: int, available: int) -> ArgumentError:
    return ArgumentError(
        what,
        expected=f"at most {available} rows in total, one for each device",
        got=str(wanted),
        fix="use soft_pmap or vmap for more rows, or set config.num_cpu_devices before the first operation",
    )


class SoftPMap(RowMap):
    """A compiled `vmap` whose rows are distributed over all devices as evenly as possible."""

    def _plan(self, call: CallArguments) -> tuple[Callable, dict]:
        dims, size = self._inputs(call)
        if is_per_device():
            return self._as_vmap(), self._options
        name, around = "soft_pmap", state.context.mesh
        if self._devices is None and isinstance(around, Mesh):
            # The function may use shardings over the current mesh, so no axis of another mesh may appear inside.
            devices, by_rows = list(around.flat_devices), self._as_vmap()
        else:
            devices, by_rows = self._available()[:size], self._as_vmap(name)
        mesh = make_mesh(devices, [(name, len(devices))])
        specs = [_split(d, name) for d in dims]

        def vectorized(*args: Any, **kwargs: Any) -> Any:
            with state_extra(rows_share=True):
                return by_rows(*args, **kwargs)

        return vectorized, self._add_in_shardings(specs, mesh)


def pmap(
    fun: Callable,
    axis_name: AxisName = None,
    *,
    in_axes: PyTree = 0,
    out_axes: PyTree = 0,
    static_broadcasted_argnums: int | Sequence[int] = (),
    devices: Sequence[Any] | None = None,
    backend: str | None = None,
    axis_size: int | None = None,
    donate_argnums: int | Sequence[int] = (),
) -> Callable:
    """Map a function over rows of its arguments, with one device per row.

    Args:
      fun: a function of pytrees of arrays, which receives one row of each mapped argument.
      axis_name: name of the mapped axis, which collectives such as `lax.psum` use.
      in_axes: the mapped dimension of each positional argument, or None for an argument that all devices receive
        unchanged, as a tree prefix of the tuple of arguments. Keyword arguments are mapped over dimension 0.
      out_axes: the mapped dimension of each result, or None for a result that is equal on all devices, as a tree
        prefix.
      static_broadcasted_argnums: positions of arguments with hashable values that are compile-time constants.
      devices: the devices to use, in order; all devices of this process if not given.
      backend: the platform whose devices to use.
      axis_size: the number of rows; required if no argument is mapped.
      donate_argnums: positions of arguments whose buffers may be reused for results.

    Returns:
      A function of arguments with all rows. It can be compiled, differentiated, vectorized and nested. A nested `pmap`
      runs on further devices, so that the total number of devices is the product of the numbers of rows.

    Raises:
      ArgumentError: there are more rows than devices, or the numbers of rows of the arguments differ.
      TreeError: `in_axes` or `out_axes` is not a tree prefix of the arguments or of the result.
      AxisError: an argument or result does not have the mapped dimension.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> share = phalanx.pmap(lambda x: x / phalanx.lax.psum(x, "i"), axis_name="i")
      >>> share(jnp.array([5.0])).tolist()
      [1.0]
    """
    check_function("pmap, argument fun", fun)
    if devices is None and backend is not None:
        devices = client.local_devices(backend=backend)
    signature = Signature(
        fun, static_broadcasted_argnums, donate_argnums=donate_argnums, what="pmap", static="static_broadcasted"
    )
    return PMap(fun, axis_name, in_axes, out_axes, axis_size, devices, signature).function()


def soft_pmap(
    fun: Callable,
    axis_name: AxisName = None,
    in_axes: PyTree = 0,
    out_axes: PyTree = 0,
    *,
    devices: Sequence[Any] | None = None,
) -> Callable:
    """Map a function over any number of rows of its arguments, distributed over all devices.

    Args:
      fun: a function of pytrees of arrays, which receives one row of each mapped argument.
      axis_name: name of the mapped axis, which collectives use.
      in_axes, out_axes: as in `pmap`.
      devices: the devices to use, in order; all devices of this process if not given.

    Returns:
      A compiled function of arguments with all rows. Each device computes its share of the rows as one vectorized
      program. If the number of devices does not divide the number of rows, the last devices have fewer rows, or none.

    Raises:
      ArgumentError: the numbers of rows of the arguments differ.
      TreeError: `in_axes` or `out_axes` is not a tree prefix of the arguments or of the result.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> rest = phalanx.soft_pmap(lambda x: phalanx.lax.psum(x, "i") - x, axis_name="i")
      >>> rest(jnp.arange(5.0)).tolist()
      [10.0, 9.0, 8.0, 7.0, 6.0]
    """
    check_function("soft_pmap, argument fun", fun)
    signature = Signature(fun, what="soft_pmap")
    return SoftPMap(fun, axis_name, in_axes, out_axes, None, devices, signature).function()
