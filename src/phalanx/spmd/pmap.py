"""`pmap` and `soft_pmap`: one instance of a function for each row of its arguments, the rows spread over devices.

`pmap` is a compiled function (`Jit`) whose program is a `shard_map` over a mesh with an axis for the rows, so that a
call which hits the cache costs what a call of `jit` costs. Which mesh depends on the number of rows, and is settled
when a program is traced. A `pmap` inside another one takes an axis of the outer one's mesh: where tracing meets one
that needs an axis which is not there, the outer program is traced again over a larger mesh. `soft_pmap` is a compiled
`vmap` over a named axis that a mesh splits.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from phalanx.core.config import state, state_extra
from phalanx.core.errors import ArgumentError, check_axis_name, check_function
from phalanx.core.source import code_position
from phalanx.engine import client
from phalanx.lax import squeeze, with_sharding_constraint
from phalanx.numpy import expand_dims, moveaxis
from phalanx.sharding import Mesh, NamedSharding, PartitionSpec
from phalanx.spmd.arguments import CallArguments, Signature
from phalanx.spmd.jit import Jit
from phalanx.spmd.shard_map import shard_map
from phalanx.transforms.batching import canonical_dim, mapped_inputs, vmap_as
from phalanx.tree import broadcast_prefix, tree_flatten, tree_map, tree_unflatten
from phalanx.tree.paths import leaf_path

WHOLE = PartitionSpec()


class _Wants(BaseException):
    """What is inside a `pmap` needs these axes, names and sizes, in its mesh; no `except Exception` stops it."""

    def __init__(self, *axes: tuple[Any, int]):
        super().__init__(*axes)
        self.axes = axes


class _Outermost(threading.local):
    """Of the outermost `pmap` being traced: how many devices it may use, and the axes its mesh has beside its own.

    `axes` is None where none is traced.
    """

    axes: list[tuple[Any, int]] | None = None
    available: int = 0


_outermost = _Outermost()


def is_per_device() -> bool:
    """Whether what is traced is a program that each device runs by itself."""
    mesh = state.context.mesh
    return mesh is not None and bool(mesh.manual_axes)


class Rows(Jit):
    """A compiled function of rows: what `pmap` and `soft_pmap` share.

    Args:
      what: the name of the transformation, for messages.
      fun: the function of one row.
      axis_name: the name that collectives use, or None.
      in_axes, out_axes: as in `vmap`.
      axis_size: the number of rows, where it is given.
      devices: those to use, in order; None for all of this process.
      signature: the parameters of the function.
    """

    def __init__(
        self,
        what: str,
        fun: Callable,
        axis_name: Any,
        in_axes: Any,
        out_axes: Any,
        axis_size: int | None,
        devices: Sequence[Any] | None,
        signature: Signature,
    ):
        super().__init__(fun, signature)
        self._what = f"{what} of {self._name}"
        check_axis_name(f"{self._what}, axis_name", axis_name)
        self._axis_name = axis_name
        static = signature.static_argnums
        is_listed = isinstance(in_axes, tuple | list)
        self._in_axes = tuple(a for i, a in enumerate(in_axes) if i not in static) if is_listed else in_axes
        self._out_axes = out_axes
        self._axis_size = axis_size
        self._devices = devices

    def _call(self, args: tuple, kwargs: dict) -> Any:
        if state.context.disable_jit or state.context.rows_share:
            return self._vectorised()(*args, **kwargs)
        return super()._call(args, kwargs)

    def _available(self) -> list:
        return list(client.local_devices() if self._devices is None else self._devices)

    def _inputs(self, call: CallArguments) -> tuple[list, int]:
        """The mapped dimension of each leaf, or None, and the number of rows."""
        dims, size = mapped_inputs(self._what, self._in_axes, *call.dynamic(), self._axis_size)
        if size == 0:
            raise ArgumentError(
                self._what, expected="at least one row", got="none", mend="leave out the call where there is no work"
            )
        return dims, size

    def _vectorised(self, spmd_axis_name: Any = None) -> Callable:
        """The function as a `vmap`, which means the same on any devices."""

        def whole(*args: Any, **kwargs: Any) -> Any:
            call = self._signature.split(args, kwargs)

            def row(*dynamic: Any, **named: Any) -> Any:
                new_args, new_kwargs = call.rebuild(tree_flatten((dynamic, named))[0])
                return self._fun(*new_args, **new_kwargs)

            dynamic, named = call.dynamic()
            axes = (self._in_axes, self._out_axes, self._axis_name, self._axis_size, spmd_axis_name)
            return vmap_as(self._what, row, *axes)(*dynamic, **named)

        return whole

    def _placed(self, call: CallArguments, specs: Sequence[Any], mesh: Mesh) -> dict:
        """The options, with the shardings of the positional arguments."""
        args, _ = tree_unflatten(call.tree, [NamedSharding(mesh, spec) for spec in specs])
        return {**self._options, "in_shardings": args, "brings": True}

    def __repr__(self) -> str:
        return f"<{self._what.partition(' ')[0]} of {code_position(self._fun)}>"


def _split(dim: int | None, axis: Any) -> PartitionSpec:
    """The spec of an array that a mesh axis splits along a dimension."""
    return WHOLE if dim is None else PartitionSpec(*[None] * dim, axis)


def make_mesh(devices: Sequence[Any], axes: Sequence[tuple[Any, int]]) -> Mesh:
    """A mesh of the first devices with axes of these names and sizes."""
    names, sizes = zip(*axes, strict=True)
    return Mesh(np.array(devices[: math.prod(sizes)], dtype=object).reshape(sizes), names)


class PMap(Rows):
    """A `shard_map` over as many devices as there are rows."""

    def _trace(self, call: CallArguments, avals: tuple) -> Any:
        if _outermost.axes is not None or is_per_device():
            return super()._trace(call, avals)
        _outermost.axes, _outermost.available = [], len(self._available())
        try:
            while True:
                try:
                    return super()._trace(call, avals)
                except _Wants as wanted:
                    _outermost.axes.extend(wanted.axes)
        finally:
            _outermost.axes = None

    def _plan(self, call: CallArguments) -> tuple[Callable, dict]:
        dims, size = self._inputs(call)
        mesh = state.context.mesh
        if is_per_device():
            name = self._axis_name or f"pmap_{len(mesh.manual_axes)}"  # the same at each tracing
            return self._inside(mesh, dims, name, size), self._options
        name = self._axis_name or "pmap"
        available = self._available()
        if size > len(available):
            raise _too_few(self._what, size, len(available))
        mesh = make_mesh(available, [(name, size), *(_outermost.axes or ())])
        options = self._placed(call, [_split(d, name) for d in dims], mesh)
        rows = self._over(mesh, name, dims)
        if mesh.size > 1:
            return rows, options

        def alone(*args: Any, **kwargs: Any) -> Any:
            """XLA tells nothing of a mesh of one device, over which results lie as they do over several."""
            out = rows(*args, **kwargs)
            # What lifts modules knows their axes only now.
            lies = lambda d: NamedSharding(mesh, _split(d if isinstance(d, int) and d >= 0 else None, name))
            options["out_shardings"] = tree_map(lies, self._out_axes, is_leaf=lambda d: d is None)
            return out

        return alone, options

    def _inside(self, mesh: Any, dims: Sequence[Any], name: Any, size: int) -> Callable:
        """What is traced where devices run by themselves already."""
        if name in mesh.manual_axes or mesh.shape.get(name, size) != size or _outermost.axes is None:
            return self._vectorised()  # An axis of this name is taken, or the mesh is the user's: nothing can be added.
        return self._over(wanted_axes(self._what, [(name, size)]), name, dims)

    def _over(self, mesh: Any, name: Any, dims: Sequence[Any]) -> Callable:
        """The function of whole arrays, each device of the axis running one row."""

        def whole(*args: Any, **kwargs: Any) -> Any:
            call = self._signature.split(args, kwargs)
            found: list = []

            def row(*pieces: Any) -> tuple[list, list]:
                xs = [x if d is None else squeeze(x, (d,)) for x, d in zip(pieces, dims, strict=True)]
                new_args, new_kwargs = call.rebuild(xs)
                out = self._fun(*new_args, **new_kwargs)
                leaves, tree = tree_flatten(out)
                where = f"{self._what}, out_axes"
                prefix = broadcast_prefix(self._out_axes, out, what=where, is_leaf=lambda x: x is None)
                out_dims = [
                    canonical_dim(d, np.ndim(x) + 1, lambda i=i: f"{where} for result{leaf_path(out, i)}")
                    for i, (x, d) in enumerate(zip(leaves, prefix, strict=True))
                ]
                found[:] = [(tree, out_dims)]
                rows = [expand_dims(x, 0) for x, d in zip(leaves, out_dims, strict=True) if d is not None]
                return rows, [x for x, d in zip(leaves, out_dims, strict=True) if d is None]

            specs = tuple(_split(d, name) for d in dims)
            # As under vmap, each device differentiates for itself, whatever it has in common with the others.
            view = dict(mesh=mesh, axis_names={name}, check_vma=False)
            rows, shared = shard_map(row, in_specs=specs, out_specs=(PartitionSpec(name), WHOLE), **view)(*call.leaves)
            ((tree, out_dims),) = found
            left, common = iter(rows), iter(shared)
            out = [next(common) if d is None else moveaxis(next(left), 0, d) for d in out_dims]
            return tree_unflatten(tree, out)

        return whole


def wanted_axes(what: str, axes: Sequence[tuple[Any, int]]) -> Any:
    """The mesh of the `pmap` around, which has these axes, or is given them as its program is traced again.

    Args:
      what: who wants them, for messages.
      axes: names and sizes.

    Raises:
      ArgumentError: there are too few devices, or no `pmap` is around.
    """
    mesh = state.context.mesh
    missing = [(name, size) for name, size in axes if mesh.shape.get(name) != size]
    if not missing:
        return mesh
    if _outermost.axes is None:
        raise ArgumentError(
            what,
            expected="a pmap around it, or none of the per-device view",
            got=f"a shard_map over {mesh}",
            mend="give the mesh of the shard_map one more axis, and use lax.with_sharding_constraint over it",
        )
    wanted = mesh.size * math.prod(size for _, size in missing)
    if wanted > _outermost.available:
        raise _too_few(what, wanted, _outermost.available)
    raise _Wants(*missing)


def _too_few(what: str, wanted: int, available: int) -> ArgumentError:
    return ArgumentError(
        what,
        expected=f"at most {available} rows in all, one for each device",
        got=str(wanted),
        mend="use soft_pmap or vmap for more rows, or set config.num_cpu_devices before the first operation",
    )


class SoftPMap(Rows):
    """A `vmap` whose rows a mesh of all devices splits as evenly as it can."""

    def _plan(self, call: CallArguments) -> tuple[Callable, dict]:
        dims, size = self._inputs(call)
        if is_per_device():
            return self._vectorised(), self._options
        name, around = "soft_pmap", state.context.mesh
        if self._devices is None and isinstance(around, Mesh):
            # What is inside may speak of the mesh in force, whose axes are all that can split it there.
            devices, by_rows = list(around.flat_devices), self._vectorised()
        else:
            devices = self._available()[:size]
            by_rows = self._vectorised(name)
        mesh = make_mesh(devices, [(name, len(devices))])
        specs = [_split(d, name) for d in dims]

        def vectorised(*args: Any, **kwargs: Any) -> Any:
            with state_extra(rows_share=True):
                return by_rows(*args, **kwargs)

        if size % len(devices) == 0:
            return vectorised, self._placed(call, specs, mesh)

        def whole(*args: Any, **kwargs: Any) -> Any:
            # Rows that do not come out even cannot stand split at the boundary, but they can inside.
            inner = self._signature.split(args, kwargs)
            xs = [with_sharding_constraint(x, NamedSharding(mesh, s)) for x, s in zip(inner.leaves, specs, strict=True)]
            new_args, new_kwargs = inner.rebuild(xs)
            return vectorised(*new_args, **new_kwargs)

        whole_everywhere = NamedSharding(mesh, WHOLE)
        options = self._placed(call, [WHOLE] * len(dims), mesh)
        return whole, {**options, "out_shardings": whole_everywhere}


def pmap(
    fun: Callable,
    axis_name: Any = None,
    *,
    in_axes: Any = 0,
    out_axes: Any = 0,
    static_broadcasted_argnums: Any = (),
    devices: Sequence[Any] | None = None,
    backend: str | None = None,
    axis_size: int | None = None,
    donate_argnums: Any = (),
) -> Callable:
    """Run one instance of a function for each row of its arguments, each on a device of its own.

    Args:
      fun: a function of arrays or pytrees of them: one row.
      axis_name: a name for the rows, which collectives such as `lax.psum` use.
      in_axes: for each positional argument, as a prefix of their trees, the dimension along which the rows lie, or None
        for an argument that every instance gets whole. Arguments by keyword are mapped over dimension 0.
      out_axes: where the rows go in the result, as a prefix of its tree; None for a result that all instances agree on.
      static_broadcasted_argnums: positional arguments whose (hashable) values are part of the program.
      devices: the devices to use, in order; all of this process if left out.
      backend: the platform whose devices to use.
      axis_size: the number of rows, needed where no argument is mapped.
      donate_argnums: positional arguments whose buffers may be reused for results.

    Returns:
      The function of all rows. It can be compiled, differentiated, mapped and nested; inside another `pmap` it runs on
      devices of its own too, so that both together use the product of their rows.

    Raises:
      ArgumentError: there are more rows than devices, or arguments with different numbers of rows.
      TreeError: `in_axes` or `out_axes` is no prefix of the arguments or the result.
      AxisError: a mapped dimension does not exist.

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
        fun, static_broadcasted_argnums, None, donate_argnums, None, "pmap", static="static_broadcasted"
    )
    return PMap("pmap", fun, axis_name, in_axes, out_axes, axis_size, devices, signature).function()


def soft_pmap(
    fun: Callable, axis_name: Any = None, in_axes: Any = 0, out_axes: Any = 0, *, devices: Sequence[Any] | None = None
) -> Callable:
    """Run one instance of a function for each row of its arguments, any number of rows over all devices.

    Args:
      fun: a function of arrays or pytrees of them: one row.
      axis_name: a name for the rows, which collectives use.
      in_axes, out_axes: as in `pmap`.
      devices: the devices to use, in order; all of this process if left out.

    Returns:
      The function of all rows, compiled: each device computes its part of the rows as one vectorised program. Where
      the devices do not divide the rows, arguments and results stand whole on each device, and the work is split.

    Raises:
      ArgumentError: arguments with different numbers of rows.
      TreeError: `in_axes` or `out_axes` is no prefix of the arguments or the result.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> rest = phalanx.soft_pmap(lambda x: phalanx.lax.psum(x, "i") - x, axis_name="i")
      >>> rest(jnp.arange(5.0)).tolist()
      [10.0, 9.0, 8.0, 7.0, 6.0]
    """
    check_function("soft_pmap, argument fun", fun)
    signature = Signature(fun, None, None, None, None, "soft_pmap")
    return SoftPMap("soft_pmap", fun, axis_name, in_axes, out_axes, None, devices, signature).function()
