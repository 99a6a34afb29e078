"""`xmap`: a function whose arguments have named axes, some of which are given to axes of a mesh or to loops.

A named axis is a `vmap` over it, by name; what `axis_resources` says of it only decides where its instances run: split
over mesh axes (the partitioner's work, the rest of the axis being vectorised) or one after the other in a serial loop.
Builds on `jit` and on `transforms.batching`; older programs import it as `experimental.maps.xmap`.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from phalanx.core.config import state, state_extra
from phalanx.core.errors import (
    ArgumentError,
    ArgumentTypeError,
    AxisError,
    ShardingError,
    UnboundAxisError,
    check_function,
)
from phalanx.core.source import code_position
from phalanx.lax import map as serial_map
from phalanx.lax import reshape, transpose, with_sharding_constraint
from phalanx.sharding import NamedSharding, PartitionSpec
from phalanx.spmd.arguments import CallArguments, Signature
from phalanx.spmd.jit import Jit
from phalanx.spmd.pmap import is_per_device
from phalanx.transforms.batching import Axis, to_dim, vmap_flat
from phalanx.tree import broadcast_prefix, keystr, tree_flatten, tree_flatten_with_path, tree_unflatten
from phalanx.tree.paths import leaf_path


class SerialLoop(NamedTuple):
    """A resource of `xmap`: the axis is cut into `length` parts that run one after the other, to save memory.

    Args:
      length: the number of parts.

    Examples:
      >>> SerialLoop(4).length
      4
    """

    length: int


class _Loops(threading.local):
    """The serial loops that `serial_loop` has named, by name."""

    lengths: Mapping[Any, int] = MappingProxyType({})


_loops = _Loops()


@contextlib.contextmanager
def serial_loop(name: Any, length: int) -> Iterator[None]:
    """Name a serial loop, to be given as a resource in the `axis_resources` of an `xmap` called inside the block.

    Args:
      name: what `axis_resources` calls it, like an axis of the mesh.
      length: into how many parts it cuts an axis.

    Yields:
      None.

    Raises:
      ArgumentError: `length` is no positive int.

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


def _check_length(where: str, length: Any) -> None:
    if not isinstance(length, int) or length < 1:
        raise ArgumentError(
            where,
            expected="a serial loop of at least one part",
            got=repr(length),
            mend="give the number of parts as a positive int",
        )


class Named(NamedTuple):
    """A named axis of one `xmap` call.

    name: what collectives call it.
    size: the number of instances.
    mesh_axes: the axes of the mesh that split it.
    loop: into how many parts it is cut that run one after the other.
    """

    name: Any
    size: int
    mesh_axes: tuple
    loop: int


def _is_mapping(x: Any) -> bool:
    """Whether `x` says where the named axes of one array are."""
    if isinstance(x, list):
        return x[-1:] == [Ellipsis] or not any(isinstance(name, dict | list | tuple) for name in x)
    return isinstance(x, dict) and all(isinstance(k, int) for k in x)


def _positions(given: Any, where: str) -> dict[Any, int]:
    """The dimension of each named axis of an array."""
    if not _is_mapping(given) or (isinstance(given, list) and Ellipsis in given[:-1]):
        raise ArgumentTypeError(
            where,
            expected="a dict of dimensions and names, or a list of names, with ... at its end for further dimensions",
            got=repr(given),
            mend="write {0: 'batch'}, ['batch'] for arrays of rank 1, or ['batch', ...] for arrays of any rank",
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
                mend="give each dimension a name of its own",
            )
        names[name] = dim
    return names


class XMap(Jit):
    """What is behind a function of named axes."""

    def __init__(self, fun: Callable, in_axes: Any, out_axes: Any, sizes: Mapping, resources: Mapping, donated: Any):
        signature = Signature(fun, None, None, donated, None, "xmap")
        super().__init__(fun, signature)
        self._what = f"xmap of {self._name}"
        is_container = isinstance(in_axes, list) and not _is_mapping(in_axes)
        self._in_axes = tuple(in_axes) if is_container else in_axes
        self._out_axes = out_axes
        self._sizes = dict(sizes)
        self._resources = {name: _resources(name, r, self._what) for name, r in resources.items()}

    def _check_resources(self, where: str, names: Collection) -> None:
        """Refuse an array of which one axis of the mesh would split two named ones."""
        used: dict[Any, Any] = {}
        for name in names:
            for axis in self._resources.get(name, ((), 1))[0]:
                if axis in used and axis not in _loops.lengths:
                    raise ShardingError(
                        where,
                        expected="an array of which each axis of the mesh splits one named axis",
                        got=f"{axis!r} for {used[axis]!r} and for {name!r}",
                        mend="give one of them another axis of the mesh in axis_resources, or none",
                    )
                used[axis] = name

    def _call(self, args: tuple, kwargs: dict) -> Any:
        if kwargs:
            raise ArgumentTypeError(
                self._what,
                expected="positional arguments, to which in_axes applies",
                got=f"arguments by keyword: {', '.join(sorted(kwargs))}",
                mend="pass them by position",
            )
        if state.context.disable_jit:
            fun, _ = self._plan(self._signature.split(args, kwargs))
            return fun(*args)
        return super()._call(args, kwargs)

    def _plan(self, call: CallArguments) -> tuple[Callable, dict]:
        args, _ = call.dynamic()
        ranks = [np.ndim(x) for x in call.leaves]
        inputs = self._placed("in_axes", self._in_axes, args, lambda i, names: ranks[i])
        axes = self._axes(call, args, inputs)
        mesh = self._mesh(axes)
        options = dict(self._options)
        if mesh is not None:
            placed = [self._sharding(mesh, axes, dims) for dims in inputs]
            options |= {"in_shardings": tree_unflatten(call.tree, placed)[0], "brings": True}

        def whole(*whole_args: Any) -> Any:
            inner = self._signature.split(whole_args, {})
            found: list = []  # the structure of the result, and for each leaf the names of its leading dimensions

            def flat(*xs: Any) -> list:
                out, tree = tree_flatten(self._fun(*inner.rebuild(xs)[0]))
                found[:] = [tree, [[] for _ in out]]
                return out

            with contextlib.nullcontext() if mesh is None else state_extra(rows_share=True):
                out = self._run(flat, inner.leaves, inputs, axes, found)
            return self._arranged(out, found[0], found[1], axes, mesh)

        return whole, options

    def _placed(self, what: str, prefix: Any, tree: Any, rank: Callable[[int, Any], int]) -> list[dict[Any, int]]:
        """For each leaf the dimension of each of its named axes, given the rank of leaf `i` with these names."""
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
                    mend="end the list with ... if more dimensions follow",
                )
            for name, dim in positions.items():
                if not -ndim <= dim < ndim:
                    raise AxisError(
                        f"{where}{path}",
                        expected=f"dimensions of an array of rank {ndim}",
                        got=f"{dim} for {name!r}",
                        mend="name existing dimensions only",
                    )
            self._check_resources(f"{where}{path}", positions)
            out.append({name: dim % ndim for name, dim in positions.items()})
        return out

    def _axes(self, call: CallArguments, args: Any, inputs: Sequence[dict]) -> list[Named]:
        """All named axes, in the order in which they appear."""
        sizes: dict[Any, tuple[int, str]] = {n: (size, "axis_sizes") for n, size in self._sizes.items()}
        paths = [keystr(path) for path, _ in tree_flatten_with_path(args)[0]]
        for x, positions, path in zip(call.leaves, inputs, paths, strict=True):
            for name, dim in positions.items():
                size, first = sizes.setdefault(name, (np.shape(x)[dim], f"argument{path}"))
                if size != np.shape(x)[dim]:
                    raise ArgumentError(
                        f"{self._what}, axis {name!r}",
                        expected=f"one size: {size} in {first}",
                        got=f"{np.shape(x)[dim]} in argument{path}",
                        mend="give axes of different sizes different names",
                    )
        for name in self._resources:
            if name not in sizes:
                raise self._undefined("axis_resources", name, sizes)
        return [self._axis(name, size) for name, (size, _) in sizes.items()]

    def _axis(self, name: Any, size: int) -> Named:
        mesh_axes, loop = self._resources.get(name, ((), 1))
        loop *= math.prod(_loops.lengths.get(axis, 1) for axis in mesh_axes)
        mesh_axes = tuple([axis for axis in mesh_axes if axis not in _loops.lengths])
        if size % loop:
            raise ArgumentError(
                f"{self._what}, axis {name!r}",
                expected=f"a size that the {loop} parts of its serial loop divide",
                got=str(size),
                mend="choose a number of parts that divides it",
            )
        return Named(name, size, mesh_axes, loop)

    def _undefined(self, what: str, name: Any, known: Any) -> UnboundAxisError:
        return UnboundAxisError(
            f"{self._what}, {what}",
            expected=f"an axis of in_axes or axis_sizes ({', '.join(map(repr, known)) or 'there is none'})",
            got=repr(name),
            mend="correct the name, or give its size in axis_sizes",
        )

    def _mesh(self, axes: Sequence[Named]) -> Any:
        """The mesh in context, where an axis is given to it."""
        wanted = [(a, m) for a in axes for m in a.mesh_axes]
        if not wanted:
            return None
        mesh = state.context.mesh
        shape = {} if mesh is None else mesh.shape
        for axis, name in wanted:
            if name not in shape:
                apart = "leave axis_resources out where each device runs by itself, or let the pmap around be an xmap"
                raise ShardingError(
                    f"{self._what}, axis_resources[{axis.name!r}]",
                    expected=f"an axis of the mesh in context ({', '.join(map(repr, shape)) or 'there is none'})",
                    got=repr(name),
                    mend=apart if is_per_device() else "call it inside `with mesh:`, or correct the name",
                )
        for axis in axes:
            parts = math.prod(shape[m] for m in axis.mesh_axes) * axis.loop
            if axis.size % parts:
                raise ShardingError(
                    f"{self._what}, axis {axis.name!r}",
                    expected=f"a size divisible by {parts}, the number of parts that axis_resources makes of it",
                    got=str(axis.size),
                    mend="give the axis fewer resources, or pad it",
                )
        return mesh

    def _sharding(self, mesh: Any, axes: Sequence[Named], positions: Mapping[Any, int]) -> Any:
        """The sharding of an array with named axes."""
        if mesh is None:
            return None
        dims = {positions[a.name]: a.mesh_axes for a in axes if a.name in positions and a.mesh_axes}
        return NamedSharding(mesh, PartitionSpec.of_dims([dims.get(d, ()) for d in range(max(dims, default=-1) + 1)]))

    def _run(
        self, fun: Callable, xs: Sequence[Any], inputs: Sequence[dict], axes: Sequence[Named], found: list
    ) -> list:
        """Call a flat function with the axes named, the first one outermost; named dimensions of results come first."""
        if not axes:
            return fun(*xs)
        axis, *rest = axes
        dims_in = [dims.get(axis.name) for dims in inputs]
        within = [
            {n: d - (here is not None and d > here) for n, d in dims.items() if n != axis.name}
            for dims, here in zip(inputs, dims_in, strict=True)
        ]

        def inner(*ys: Any) -> list:
            return self._run(fun, ys, within, rest, found)

        if axis.loop > 1:
            out, dims_out = self._serially(inner, xs, dims_in, axis)
        else:
            batch = Axis(axis.size, axis.name, axis.mesh_axes or None)
            out, dims_out = vmap_flat(inner, xs, dims_in, batch, self._what)
        for names, d in zip(found[1], dims_out, strict=True):
            if d is not None:
                names.insert(0, axis.name)
        return [x if d is None else to_dim(x, d, axis.size, 0) for x, d in zip(out, dims_out, strict=True)]

    def _arranged(self, out: Sequence[Any], tree: Any, names: Sequence[list], axes: Sequence[Named], mesh: Any) -> Any:
        """The results with their named dimensions where `out_axes` says."""
        sizes = {a.name: a.size for a in axes}
        numbered = tree_unflatten(tree, list(range(len(out))))
        places = self._placed(
            "out_axes", self._out_axes, numbered, lambda i, given: np.ndim(out[i]) - len(names[i]) + len(given)
        )
        arranged = []
        for i, (x, held, wanted) in enumerate(zip(out, names, places, strict=True)):
            for name in wanted:
                if name not in sizes:
                    raise self._undefined("out_axes", name, sizes)
                if name not in held:
                    x, held = to_dim(x, None, sizes[name], 0), [name, *held]
            for name in held:
                if name not in wanted:
                    raise self._unplaced(name, leaf_path(numbered, i))
            unnamed = iter(range(len(held), np.ndim(x)))
            at = {dim: held.index(name) for name, dim in wanted.items()}
            x = transpose(x, [at[d] if d in at else next(unnamed) for d in range(np.ndim(x))])
            arranged.append(x if mesh is None else with_sharding_constraint(x, self._sharding(mesh, axes, wanted)))
        return tree_unflatten(tree, arranged)

    def _serially(self, fun: Callable, xs: Sequence[Any], dims_in: Sequence[Any], axis: Named) -> tuple[list, list]:
        """Map a flat function over the parts of an axis, one after the other; each device goes on with its own."""
        size = axis.size // axis.loop
        shards = math.prod(state.context.mesh.shape[name] for name in axis.mesh_axes) if axis.mesh_axes else 1

        def swapped(x: Any, before: int, after: int, tail: tuple) -> Any:
            x = reshape(x, (before, after, size // shards, *tail))
            return transpose(x, (1, 0, *range(2, x.ndim)))

        def cut(x: Any, d: int) -> Any:
            tail = tuple(np.delete(np.shape(x), d))
            return reshape(swapped(to_dim(x, d, axis.size, 0), shards, axis.loop, tail), (axis.loop, size, *tail))

        def joined(y: Any) -> Any:
            tail = np.shape(y)[2:]
            return reshape(swapped(y, axis.loop, shards, tail), (axis.size, *tail))

        split = [cut(x, d) for x, d in zip(xs, dims_in, strict=True) if d is not None]
        found: list = []
        batch = Axis(size, None, axis.mesh_axes or None)

        def part(pieces: list) -> list:
            given = iter(pieces)
            ys = [x if d is None else next(given) for x, d in zip(xs, dims_in, strict=True)]
            out, dims = vmap_flat(fun, ys, [None if d is None else 0 for d in dims_in], batch, self._what)
            found[:] = [dims]
            return [y if d is None else to_dim(y, d, size, 0) for y, d in zip(out, dims, strict=True)]

        try:
            out = serial_map(part, split)
        except UnboundAxisError as error:
            error.add_note(
                f"Axis {axis.name!r} is a serial loop: its parts run one after the other, so that no collective can "
                "go over it."
            )
            raise
        whole = [y[0] if d is None else joined(y) for y, d in zip(out, found[0], strict=True)]
        return whole, [None if d is None else 0 for d in found[0]]

    def _unplaced(self, name: Any, path: str) -> ArgumentError:
        return ArgumentError(
            f"{self._what}, out_axes{path}",
            expected=f"a place for axis {name!r}, over which this result varies",
            got="none",
            mend=f"name it in out_axes, or combine its instances with lax.psum or lax.pmean over {name!r}",
        )

    def __repr__(self) -> str:
        return f"<xmap of {code_position(self._fun)}>"


def _resources(name: Any, given: Any, what: str) -> tuple[tuple, int]:
    """The mesh axes and the number of serial parts of one entry of `axis_resources`."""
    entries = given if isinstance(given, tuple) and not isinstance(given, SerialLoop) else (given,)
    loops = [e.length for e in entries if isinstance(e, SerialLoop)]
    for length in loops:
        _check_length(f"{what}, axis_resources[{name!r}]", length)
    return tuple(e for e in entries if not isinstance(e, SerialLoop)), math.prod(loops)


def xmap(
    fun: Callable,
    in_axes: Any,
    out_axes: Any,
    *,
    axis_sizes: Mapping[Any, int] | None = None,
    axis_resources: Mapping[Any, Any] | None = None,
    donate_argnums: Any = (),
) -> Callable:
    """Map a function over named axes of its arguments.

    Args:
      fun: a function of arrays or pytrees of them without their named dimensions; collectives, and reductions such as
        `numpy.sum(x, axis='batch')`, go over the axes by name.
      in_axes: for each argument, as a prefix of their trees, which dimension has which name: `{0: 'batch'}`, or
        `['batch', ...]`, and `{}` for an array without named dimensions. A list that does not end with `...` has a name
        or None for each dimension.
      out_axes: the same for the result. A named axis over which a result does not vary is repeated.
      axis_sizes: sizes of axes that no argument has.
      axis_resources: for each axis the axis or axes of the mesh in context that split it, or a `SerialLoop`, or the
        name of one that `serial_loop` has put in force. What is left of the axis is vectorised. One axis of the mesh
        may split several axes that no argument and no result has both of.
      donate_argnums: positional arguments whose buffers may be reused.

    Returns:
      The function of whole arrays, compiled.

    Raises:
      UnboundAxisError: `out_axes` or `axis_resources` names an axis that no argument and no entry of `axis_sizes` has.
      ArgumentError: an axis has two sizes, or a result varies over an axis that its `out_axes` does not place.
      ShardingError: a mesh axis would split an array twice, or there is no such mesh axis.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import lax
      >>> centre = xmap(lambda x: x - lax.pmean(x, "i"), in_axes=["i", ...], out_axes=["i", ...])
      >>> centre(jnp.arange(3.0)).tolist()
      [-1.0, 0.0, 1.0]
    """
    check_function("xmap, argument fun", fun)
    return XMap(fun, in_axes, out_axes, axis_sizes or {}, axis_resources or {}, donate_argnums).function()
