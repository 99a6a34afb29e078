"""`xmap`: map a function over named axes of its arguments, which may be assigned to mesh axes or to serial loops.

A named axis is a `vmap` with an axis name. `axis_resources` only determines where the rows are computed: distributed
over mesh axes by XLA's partitioner, or one chunk after the other in a serial loop; each device or chunk computes its
rows as one vectorized program. Implemented with `jit` and `transforms.batching`. Older programs import it from
`phalanx.experimental.maps`.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from phalanx.core import (
    ArgumentError,
    ArgumentTypeError,
    AxisError,
    ShardingError,
    UnboundAxisError,
    check_function,
    state,
    state_extra,
)
from phalanx.lax import map as serial_map, reshape, transpose, with_sharding_constraint
from phalanx.runtime.array import Array
from phalanx.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec
from phalanx.spmd.call_arguments import CallArguments, Signature
from phalanx.spmd.jit import Jit
from phalanx.spmd.row_maps import is_per_device
from phalanx.transforms.batching import AxisData, move_mapped_dim, vmap_flat
from phalanx.tree import broadcast_prefix, keystr, tree_flatten, tree_flatten_with_path, tree_unflatten
from phalanx.tree.key_paths import leaf_path
from phalanx.typing import AxisName, PyTree


class SerialLoop(NamedTuple):
    """A resource of `xmap`: the axis is split into `length` chunks that are computed one after the other to save
    memory.

    Args:
      length: the number of chunks.

    Examples:
      >>> SerialLoop(4).length
      4
    """

    length: int


class _Loops(threading.local):
    """Lengths of the serial loops that are defined by surrounding `serial_loop` blocks, by name."""

    lengths: Mapping[Any, int] = MappingProxyType({})


_loops = _Loops()


@contextlib.contextmanager
def serial_loop(name: AxisName, length: int) -> Iterator[None]:
    """Define a named serial loop, which can be used in `axis_resources` of an `xmap` inside the block.

    Args:
      name: the name of the loop in `axis_resources`, like the name of a mesh axis.
      length: the number of chunks into which it splits an axis.

    Yields:
      None.

    Raises:
      ArgumentError: `length` is not a positive int.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> with serial_loop("slowly", 2):
      ...     xmap(lambda x: 2 * x, in_axes=["i"], out_axes=["i"], axis_resources={"i": "slowly"})(
      ...         jnp.arange(4)
      ...     ).tolist()
      [0, 2, 4, 6]
    """
    _check_length(f"serial_loop {name!r}", length)
    before = _loops.lengths
    _loops.lengths = MappingProxyType({**before, name: length})
    try:
        yield
    finally:
        _loops.lengths = before


def _check_length(where: str, length: object) -> None:
    if not isinstance(length, int) or length < 1:
        raise ArgumentError(
            where,
            expected="a serial loop with at least one chunk",
            got=repr(length),
            fix="pass the number of chunks as a positive int",
        )


class _NamedAxis(NamedTuple):
    """A named axis of one `xmap` call.

    name: its name for collectives.
    size: its number of rows.
    mesh_axes: the mesh axes that split it.
    loop: the number of chunks that are computed one after the other.
    """

    name: Any
    size: int
    mesh_axes: tuple
    loop: int


def _is_mapping(x: object) -> bool:
    """Whether `x` is a mapping of dimensions to axis names (a dict or list), and not a container of such mappings."""
    # A list may be a mapping, ["i", None], or a container of mappings, [["i"], {0: "i"}].
    if isinstance(x, list):
        return x[-1:] == [Ellipsis] or not any(isinstance(name, dict | list | tuple) for name in x)
    return isinstance(x, dict) and all(isinstance(k, int) for k in x)


def _positions(given: Any, where: str) -> dict[Any, int]:
    """Parse a mapping of dimensions to axis names into the dimension of each name."""
    if not _is_mapping(given) or (isinstance(given, list) and Ellipsis in given[:-1]):
        raise ArgumentTypeError(
            where,
            expected="a dict from dimensions to names, or a list of names that may end with ... for further dimensions",
            got=repr(given),
            fix="write {0: 'batch'}, ['batch'] for arrays of rank 1, or ['batch', ...] for arrays of any rank",
        )
    if isinstance(given, list):
        given = {i: name for i, name in enumerate(given) if name is not None and name is not Ellipsis}
    names: dict[Any, int] = {}
    for dim, name in given.items():
        if name in names:
            raise ArgumentError(
                where,
                expected="different names for different dimensions",
                got=f"{name!r} for dimensions {names[name]} and {dim}",
                fix=f"rename one of the axes {name!r}",
            )
        names[name] = dim
    return names


class XMap(Jit):
    """The state of a function mapped by `xmap`."""

    def __init__(
        self,
        fun: Callable,
        in_axes: PyTree,
        out_axes: PyTree,
        sizes: Mapping,
        resources: Mapping,
        donated: int | Sequence[int] | None,
    ):
        super().__init__(fun, Signature(fun, donate_argnums=donated, what="xmap"))
        is_container = isinstance(in_axes, list) and not _is_mapping(in_axes)
        self._in_axes = tuple(in_axes) if is_container else in_axes
        self._out_axes = out_axes
        self._sizes = dict(sizes)
        self._resources = {name: _resources(name, r, self._what) for name, r in resources.items()}

    def _check_resources(self, where: str, names: Collection) -> None:
        """Check that no mesh axis is assigned to two of the named axes of one array."""
        used: dict[Any, Any] = {}
        for name in names:
            for axis in self._resources.get(name, ((), 1))[0]:
                if axis in used and axis not in _loops.lengths:
                    raise ShardingError(
                        where,
                        expected="an array of which each mesh axis splits one named axis",
                        got=f"{axis!r} for {used[axis]!r} and for {name!r}",
                        fix=f"assign another mesh axis to {name!r} in axis_resources, or none",
                    )
                used[axis] = name

    def _call(self, args: tuple, kwargs: dict) -> Any:
        if kwargs:
            raise ArgumentTypeError(
                self._what,
                expected="positional arguments only, since in_axes applies to those",
                got=f"keyword arguments {', '.join(sorted(kwargs))}",
                fix=f"pass {', '.join(sorted(kwargs))} by position",
            )
        if state.context.disable_jit:
            return self._plan(self._signature.split(args, kwargs))[0](*args)
        return super()._call(args, kwargs)

    def _plan(self, call: CallArguments) -> tuple[Callable, dict]:
        args, _ = call.dynamic()
        inputs = self._broadcast_axes("in_axes", self._in_axes, args, lambda i, names: np.ndim(call.leaves[i]))
        axes = self._axes(args, inputs)
        mesh = self._mesh(axes)
        options = dict(self._options)
        if mesh is not None:
            placed = tree_unflatten(call.tree, [self._sharding(mesh, axes, dims) for dims in inputs])
            options |= {"in_shardings": placed[0], "moves_committed": True}

        def whole(*whole_args: Any) -> Any:
            inner = self._signature.split(whole_args, {})
            found: list = []  # the tree of the result, and for each leaf the axis names of its leading dimensions

            def flat(*xs: Any) -> list:
                out, tree = tree_flatten(self._fun(*inner.rebuild(xs)[0]))
                found[:] = [tree, [[] for _ in out]]
                return out

            with contextlib.nullcontext() if mesh is None else state_extra(rows_share=True):
                out = self._run(flat, inner.leaves, inputs, axes, found)
            return self._arrange_results(out, found[0], found[1], axes, mesh)

        return whole, options

    def _broadcast_axes(
        self, what: str, prefix: PyTree, tree: PyTree, rank: Callable[[int, Any], int]
    ) -> list[dict[Any, int]]:
        """Broadcast `in_axes` or `out_axes` to the leaves of a tree.

        Args:
          what: "in_axes" or "out_axes".
          prefix: the argument of `xmap`, a tree prefix of `tree`.
          tree: the arguments or results.
          rank: returns the number of dimensions of leaf `i`, named axes included, given its parsed mapping.

        Returns:
          For each leaf a dict from axis name to dimension.
        """
        where = f"{self._what}, {what}"
        flat = broadcast_prefix(prefix, tree, what=where, is_leaf=_is_mapping, lists_as_tuples=True)
        paths = [keystr(path) for path, _ in tree_flatten_with_path(tree)[0]]
        out = []
        for i, (given, path) in enumerate(zip(flat, paths, strict=True)):
            positions = _positions(given, f"{where}{path}")
            ndim = rank(i, positions)
            if isinstance(given, list) and given[-1:] != [Ellipsis] and len(given) != ndim:
                raise AxisError(
                    f"{where}{path}",
                    expected=f"a name or None for each dimension of an array of rank {ndim}",
                    got=repr(given),
                    fix="end the list with ... if the array has further dimensions",
                )
            for name, dim in positions.items():
                if not -ndim <= dim < ndim:
                    raise AxisError(
                        f"{where}{path}",
                        expected=f"dimensions of an array of rank {ndim}",
                        got=f"{dim} for {name!r}",
                        fix=f"use dimensions from {-ndim} to {ndim - 1}",
                    )
            self._check_resources(f"{where}{path}", positions)
            out.append({name: dim % ndim for name, dim in positions.items()})
        return out

    def _axes(self, args: PyTree, inputs: Sequence[dict]) -> list[_NamedAxis]:
        """Determine the size of each named axis; axes are in order of appearance."""
        sizes: dict[Any, tuple[int, str]] = {n: (size, "axis_sizes") for n, size in self._sizes.items()}
        for (path, x), positions in zip(tree_flatten_with_path(args)[0], inputs, strict=True):
            for name, dim in positions.items():
                size, first = sizes.setdefault(name, (np.shape(x)[dim], f"argument{keystr(path)}"))
                if size != np.shape(x)[dim]:
                    raise ArgumentError(
                        f"{self._what}, axis {name!r}",
                        expected=f"one size: {size} in {first}",
                        got=f"{np.shape(x)[dim]} in argument{keystr(path)}",
                        fix="use different names for axes of different sizes",
                    )
        for name in self._resources:
            if name not in sizes:
                raise self._undefined_axis_error("axis_resources", name, sizes)
        return [self._axis(name, size) for name, (size, _) in sizes.items()]

    def _axis(self, name: AxisName, size: int) -> _NamedAxis:
        mesh_axes, loop = self._resources.get(name, ((), 1))
        # Names of surrounding serial_loop blocks are given in the same place as mesh axes.
        loop *= math.prod(_loops.lengths.get(axis, 1) for axis in mesh_axes)
        mesh_axes = tuple([axis for axis in mesh_axes if axis not in _loops.lengths])
        if size % loop:
            raise ArgumentError(
                f"{self._what}, axis {name!r}",
                expected=f"a size that is a multiple of {loop}, the number of chunks of its serial loop",
                got=str(size),
                fix=f"choose a number of chunks that divides {size}",
            )
        return _NamedAxis(name, size, mesh_axes, loop)

    def _undefined_axis_error(self, what: str, name: AxisName, known: Iterable[AxisName]) -> UnboundAxisError:
        return UnboundAxisError(
            f"{self._what}, {what}",
            expected=f"an axis of in_axes or axis_sizes ({', '.join(map(repr, known)) or 'there is none'})",
            got=repr(name),
            fix=f"correct the name, or pass its size in axis_sizes={{{name!r}: ...}}",
        )

    def _mesh(self, axes: Sequence[_NamedAxis]) -> Any:
        """The current mesh if mesh axes are assigned to named axes, else None."""
        wanted = [(a, m) for a in axes for m in a.mesh_axes]
        if not wanted:
            return None
        mesh = state.context.mesh
        shape = {} if mesh is None else mesh.shape
        for axis, name in wanted:
            if name not in shape:
                raise ShardingError(
                    f"{self._what}, axis_resources[{axis.name!r}]",
                    expected=f"an axis of the current mesh ({', '.join(map(repr, shape)) or 'there is none'})",
                    got=repr(name),
                    fix="leave axis_resources out inside pmap and shard_map, or replace the surrounding pmap by xmap"
                    if is_per_device()
                    else "call the function inside `with mesh:`, or correct the name",
                )
        for axis in axes:
            parts = math.prod(shape[m] for m in axis.mesh_axes) * axis.loop
            # Without a serial loop, whose iterations take chunks of one size, the last shards may be smaller.
            if axis.loop > 1 and axis.size % parts:
                raise ShardingError(
                    f"{self._what}, axis {axis.name!r}",
                    expected=f"a size divisible by {parts}, the number of shards and chunks in axis_resources",
                    got=str(axis.size),
                    fix=f"pad the axis to {-(-axis.size // parts) * parts}, or assign fewer resources to it",
                )
        return mesh

    def _sharding(
        self, mesh: Mesh | AbstractMesh | None, axes: Sequence[_NamedAxis], positions: Mapping[Any, int]
    ) -> Any:
        """The sharding of an array, given the dimensions of its named axes."""
        if mesh is None:
            return None
        dims = {positions[a.name]: a.mesh_axes for a in axes if a.name in positions and a.mesh_axes}
        return NamedSharding(mesh, PartitionSpec.of_dims([dims.get(d, ()) for d in range(max(dims, default=-1) + 1)]))

    def _run(
        self, fun: Callable, xs: Sequence[Any], inputs: Sequence[dict], axes: Sequence[_NamedAxis], found: list
    ) -> list:
        """Map a flat function over the named axes, the first axis outermost.

        Recursive: maps over the first axis a function that maps over the remaining ones. `found[1]` collects for each
        result the names of the axes over which it varies; these become its leading dimensions, in that order.
        """
        if not axes:
            return fun(*xs)
        axis, *rest = axes
        dims_in = [dims.get(axis.name) for dims in inputs]
        within = [
            # Mapping over a dimension removes it, which moves the dimensions after it one to the left.
            {n: d - (here is not None and d > here) for n, d in dims.items() if n != axis.name}
            for dims, here in zip(inputs, dims_in, strict=True)
        ]

        def inner(*ys: Any) -> list:
            return self._run(fun, ys, within, rest, found)

        batch = AxisData(axis.size, axis.name, axis.mesh_axes or None)
        if axis.loop > 1:
            out, dims_out = self._run_serially(inner, xs, dims_in, axis)
        else:
            out, dims_out = vmap_flat(inner, xs, dims_in, batch, self._what)
        for names, d in zip(found[1], dims_out, strict=True):
            if d is not None:
                names.insert(0, axis.name)
        return batch.to_fronts(out, dims_out)

    def _arrange_results(
        self,
        out: Sequence[Any],
        tree: PyTree,
        names: Sequence[list],
        axes: Sequence[_NamedAxis],
        mesh: Mesh | AbstractMesh | None,
    ) -> Any:
        """Transpose the results so that their named dimensions are where `out_axes` declares them."""
        sizes = {a.name: a.size for a in axes}
        numbered = tree_unflatten(tree, list(range(len(out))))
        # The final rank: dimensions without a name, and the named dimensions that out_axes asks for.
        places = self._broadcast_axes(
            "out_axes", self._out_axes, numbered, lambda i, given: np.ndim(out[i]) - len(names[i]) + len(given)
        )
        arranged = []
        for i, (x, held, wanted) in enumerate(zip(out, names, places, strict=True)):
            for name in wanted:
                if name not in sizes:
                    raise self._undefined_axis_error("out_axes", name, sizes)
                if name not in held:
                    x, held = move_mapped_dim(x, None, sizes[name], 0), [name, *held]
            for name in held:
                if name not in wanted:
                    raise ArgumentError(
                        f"{self._what}, out_axes{leaf_path(numbered, i)}",
                        expected=f"a dimension for axis {name!r}, over which this result varies",
                        got="none",
                        fix=f"add {name!r} to out_axes, or reduce over it with lax.psum or lax.pmean",
                    )
            unnamed = iter(range(len(held), np.ndim(x)))
            at = {dim: held.index(name) for name, dim in wanted.items()}
            x = transpose(x, [at[d] if d in at else next(unnamed) for d in range(np.ndim(x))])
            arranged.append(x if mesh is None else with_sharding_constraint(x, self._sharding(mesh, axes, wanted)))
        return tree_unflatten(tree, arranged)

    def _run_serially(
        self, fun: Callable, xs: Sequence[Any], dims_in: Sequence[Any], axis: _NamedAxis
    ) -> tuple[list, list]:
        """Map a flat function over the chunks of an axis, one after the other.

        If the axis is split over devices, too, each device computes one chunk of its own shard per iteration. The rows
        are therefore reordered from (shard, chunk, row) to (chunk, shard, row) before the loop, and back afterwards.
        """
        size = axis.size // axis.loop
        shards = math.prod(state.context.mesh.shape[name] for name in axis.mesh_axes) if axis.mesh_axes else 1

        batch = AxisData(size, None, axis.mesh_axes or None)

        def swap(x: Array, before: int, after: int, leading: tuple, tail: tuple) -> Any:
            x = reshape(x, (before, after, size // shards, *tail))
            return reshape(transpose(x, (1, 0, *range(2, x.ndim))), (*leading, *tail))

        fronts = [move_mapped_dim(x, d, axis.size, 0) for x, d in zip(xs, dims_in, strict=True) if d is not None]
        split = [swap(x, shards, axis.loop, (axis.loop, size), np.shape(x)[1:]) for x in fronts]
        found: list = []

        def part(pieces: list) -> list:
            given = iter(pieces)
            ys = [x if d is None else next(given) for x, d in zip(xs, dims_in, strict=True)]
            out, dims = vmap_flat(fun, ys, [None if d is None else 0 for d in dims_in], batch, self._what)
            found[:] = [dims]
            return batch.to_fronts(out, dims)

        try:
            out = serial_map(part, split)
        except UnboundAxisError as error:
            error.add_note(
                f"Axis {axis.name!r} is a serial loop: its chunks are computed one after the other, so "
                "collectives over it are impossible."
            )
            raise
        # A result that does not vary over the axis is the same for every chunk: take the first.
        whole = [
            y[0] if d is None else swap(y, axis.loop, shards, (axis.size,), np.shape(y)[2:])
            for y, d in zip(out, found[0], strict=True)
        ]
        return whole, [None if d is None else 0 for d in found[0]]


def _resources(name: AxisName, given: object, what: str) -> tuple[tuple, int]:
    """Parse an entry of `axis_resources` into its mesh axes and its number of serial chunks."""
    entries = given if isinstance(given, tuple) and not isinstance(given, SerialLoop) else (given,)
    loops = [e.length for e in entries if isinstance(e, SerialLoop)]
    for length in loops:
        _check_length(f"{what}, axis_resources[{name!r}]", length)
    return tuple(e for e in entries if not isinstance(e, SerialLoop)), math.prod(loops)


def xmap(
    fun: Callable,
    in_axes: PyTree,
    out_axes: PyTree,
    *,
    axis_sizes: Mapping[Any, int] | None = None,
    axis_resources: Mapping[Any, Any] | None = None,
    donate_argnums: int | Sequence[int] | None = (),
) -> Callable:
    """Map a function over named axes of its arguments.

    Args:
      fun: a function of pytrees of arrays, which receives arrays without their named dimensions. Collectives, and
        reductions such as `numpy.sum(x, axis='batch')`, refer to the axes by name.
      in_axes: the named dimensions of each argument, as a tree prefix of the tuple of arguments: `{0: 'batch'}`, or
        `['batch', ...]`, or `{}` for an array without named dimensions. A list that does not end with `...` has a name
        or None for each dimension.
      out_axes: the same for the result. A result that does not vary over a named axis is repeated along it.
      axis_sizes: sizes of axes that no argument has.
      axis_resources: a dict from axis name to the mesh axis, or tuple of mesh axes, of the current mesh that split it,
        or to a `SerialLoop`, or to the name of a surrounding `serial_loop`. A mesh axis may be assigned to several
        named axes unless they are axes of the same argument or result.
      donate_argnums: positions of arguments whose buffers may be reused.

    Returns:
      The compiled function of arrays with named dimensions.

    Raises:
      UnboundAxisError: an axis in `out_axes` or `axis_resources` is neither in `in_axes` nor in `axis_sizes`.
      ArgumentError: an axis has two sizes, or a result varies over an axis that is missing in its `out_axes`.
      ShardingError: a mesh axis would split an array twice, or does not exist.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import lax
      >>> centre = xmap(lambda x: x - lax.pmean(x, "i"), in_axes=["i", ...], out_axes=["i", ...])
      >>> centre(jnp.arange(3.0)).tolist()
      [-1.0, 0.0, 1.0]
    """
    check_function("xmap, argument fun", fun)
    return XMap(fun, in_axes, out_axes, axis_sizes or {}, axis_resources or {}, donate_argnums).function()
