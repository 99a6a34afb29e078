"""Batching: a function of one example becomes a function of many.

A `BatchTrace` carries each value with the position of its mapped dimension and gives each operation its `batch` rule.
Operations on values that are not mapped run once, in the parent. A name given to the mapped axis stands in the axis
environment of `state.context`, where collectives find it.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from phalanx.core.aval import ShapedArray, aval_at, aval_of
from phalanx.core.config import state, state_extra
from phalanx.core.errors import (
    ArgumentError,
    ArgumentTypeError,
    AxisError,
    ShardingError,
    check_axis_name,
    check_function,
)
from phalanx.core.flags import each
from phalanx.core.jaxpr import Jaxpr, derivation, named_axes_of, run_program
from phalanx.core.primitive import Primitive
from phalanx.core.source import current_traceback
from phalanx.core.trace import Trace, Tracer, WrappingTracer, stage
from phalanx.engine.frames import boundary
from phalanx.engine.seat import Seat
from phalanx.runtime.array import Array
from phalanx.transforms.functions import FlatFunction, function_name
from phalanx.tree import broadcast_prefix, keystr, tree_flatten, tree_flatten_with_path, tree_unflatten
from phalanx.tree.paths import leaf_path

# move(x, from, to), broadcast(x, size, dim) and split(x, dim, axes): taken by lax, which has the operations.
dims = Seat(taken_by="phalanx.lax")


class Axis(NamedTuple):
    """The axis a function is mapped over.

    Args:
      size: its length.
      name: its name for collectives, or None.
      spmd_name: the mesh axes that take it inside a sharded program, or None.
      split: the Explicit mesh axes that split it in the types of mapped values.
    """

    size: Any
    name: Any = None
    spmd_name: Any = None
    split: tuple = ()

    def to_front(self, x: Any, dim: int | None) -> Any:
        """`x` with its mapped dimension in front, repeated there if it has none."""
        return to_dim(x, dim, self.size, 0, self.split)

    def to_fronts(self, xs: Sequence[Any], dims: Sequence[int | None]) -> list:
        """The values, with their mapped dimension in front where they have one."""
        return [x if d is None else self.to_front(x, d) for x, d in zip(xs, dims, strict=True)]


class BatchTracer(WrappingTracer):
    """A value with a mapped dimension that the function does not see."""

    __slots__ = ("_aval", "batched", "dim")

    def __init__(self, trace: BatchTrace, batched: Any, dim: int):
        self._trace = trace
        self.batched = batched
        self.dim = dim
        self._aval: ShapedArray | None = None  # worked out when it is asked for
        if type(batched) is Array:
            self._made = current_traceback()

    wrapped = property(lambda self: self.batched)

    @property
    def aval(self) -> ShapedArray:
        if self._aval is None:
            self._aval = aval_of(self.batched).without_dim(self.dim)
        return self._aval


class BatchTrace(Trace):
    """Applies each operation to all examples at once."""

    __slots__ = ("axis",)

    def __init__(self, parent: Trace | None, axis: Axis, name: str = "vmap"):
        super().__init__(parent, name)
        self.axis = axis

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict) -> Any:
        values = []
        mapped: list[int | None] = []
        active = False
        for x in args:
            if type(x) is BatchTracer and x._trace is self:
                values.append(x.batched)
                mapped.append(x.dim)
                active = True
            else:
                if isinstance(x, Tracer):
                    self.check_alive(x)
                values.append(x)
                mapped.append(None)
        before = state.trace
        state.trace = self.parent
        try:
            if not active and not self.is_named_in(primitive, values, params):
                return primitive(*args, **params)
            if primitive.batch_axis is not None:
                y, dim = primitive.batch_axis(self.axis, values, mapped, **params)
            else:
                y, dim = primitive.batch(*values, *mapped, **params)
        finally:
            state.trace = before
        if primitive.multiple:
            return [self.wrap(v, d) for v, d in zip(y, dim, strict=True)]
        return y if dim is None else BatchTracer(self, y, dim)

    def is_named_in(self, primitive: Primitive, args: Sequence[Any], params: dict) -> bool:
        """Whether a collective runs over this axis, itself or in a program that the operation holds."""
        name = self.axis.name
        if name is None:
            return False
        axes = params.get("axes")
        if type(axes) is tuple and name in axes:
            return True
        if not primitive.holds_program:
            return False
        return name in (primitive.named_axes(*args, **params) if primitive.named_axes else named_axes_of(params))

    def wrap(self, x: Any, dim: int | None) -> Any:
        """A value with its mapped dimension, or as it is where none is mapped."""
        return x if dim is None else BatchTracer(self, x, dim)

    def unwrap(self, x: Any) -> tuple[Any, int | None]:
        """The batched value and mapped dimension of any value."""
        if type(x) is BatchTracer and x._trace is self:
            return x.batched, x.dim
        self.check_alive(x)
        return x, None


def vmap_flat(
    fun: Callable, args: Sequence[Any], in_dims: Sequence[int | None], axis: Axis, name: str = "vmap"
) -> tuple[list, list]:
    """Map a function of flat arguments and results; returns the results and their mapped dimensions or None."""
    trace = BatchTrace(state.trace, axis, name)
    inputs = map(trace.wrap, args, in_dims)
    if axis.name is None:
        pairs = trace.run(fun, inputs, trace.unwrap)
    else:
        with named_axis(axis.name, axis.size):
            pairs = trace.run(fun, inputs, trace.unwrap)
    return [v for v, _ in pairs], [d for _, d in pairs]


def mapped_function(fun: Callable, in_mapped: Sequence[bool], axis: Axis, name: str = "vmap") -> Callable:
    """A function of flat values, those of many examples in front where they are mapped, as all its results are."""
    return lambda *xs: list(map(axis.to_front, *vmap_flat(fun, xs, front_dims(in_mapped), axis, name)))


def named_axis(name: Any, size: Any) -> Any:
    """A block in which collectives know the axis `name`."""
    axes = tuple(axis for axis in (state.context.axes or ()) if axis[0] != name)
    return state_extra(axes=(*axes, (name, size, False)))


def front_dims(mapped: Sequence[bool]) -> list[int | None]:
    """The mapped dimensions of values that have them in front, or not at all."""
    return [0 if m else None for m in mapped]


def to_dim(x: Any, dim: int | None, size: Any, target: int, split: tuple = ()) -> Any:
    """`x` with its mapped dimension at `target`, repeated there if it has none, and split over these mesh axes."""
    if dim is None:
        x = dims.broadcast(x, size, target)
    elif dim != target:
        x = dims.move(x, dim, target)
    return dims.split(x, target, split) if split else x


def batch_program(
    program: Jaxpr, axis: Axis, in_mapped: Sequence[bool], out_mapped: bool | Sequence[bool | None] = False
) -> tuple[Jaxpr, list[bool]]:
    """The program that runs another on many examples, mapped dimensions in front.

    Args:
      program: a program without constants.
      axis: the mapped axis.
      in_mapped: for each input, whether it has the mapped dimension.
      out_mapped: for each output (or for all), whether it must have the mapped dimension even if it is the same for
        all examples.

    Returns:
      The program, and for each output whether it has the mapped dimension.
    """
    return _batch_program(program, axis, in_mapped, each(out_mapped, program.outvars), state.context)


@derivation
def _batch_program(
    program: Jaxpr, axis: Axis, in_mapped: Sequence[bool], want: Sequence[Any], context: Any
) -> tuple[Jaxpr, list[bool]]:
    is_mapped: list[bool] = []
    avals = [
        a.with_dim(0, axis.size, axis.split or None) if m else a
        for a, m in zip(program.in_avals, in_mapped, strict=True)
    ]

    def fun(*args: Any) -> list:
        run = functools.partial(run_program, program)
        out, out_dims = vmap_flat(run, args, front_dims(in_mapped), axis, program.debug_name)
        is_mapped[:] = [bool(w) or d is not None for d, w in zip(out_dims, want, strict=True)]
        return [axis.to_front(x, d) if m else x for x, d, m in zip(out, out_dims, is_mapped, strict=True)]

    return stage(fun, avals, f"vmap({program.debug_name})"), is_mapped


def vmap(
    fun: Callable,
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: Any = None,
    axis_size: int | None = None,
    spmd_axis_name: Any = None,
) -> Callable:
    """A function of one example, as a function of many.

    Args:
      fun: a function of arrays or pytrees of them.
      in_axes: for each argument, as a prefix of their trees, the dimension to map over, or None.
      out_axes: for the result, as a prefix of its tree, where the mapped dimension goes; None where all examples agree.
      axis_name: a name for the mapped axis, which collectives may use.
      axis_size: the number of examples, needed where no argument is mapped.
      spmd_axis_name: mesh axes that take the mapped dimension inside a sharded program.

    Returns:
      The mapped function.

    Raises:
      ArgumentError: the arguments have no mapped dimension, or ones of different sizes.
      TreeError: `in_axes` or `out_axes` is no prefix of the arguments or results.
      AxisError: a mapped dimension does not exist.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> phalanx.vmap(jnp.dot, in_axes=(0, None))(jnp.eye(2), jnp.arange(2.0)).tolist()
      [0.0, 1.0]
    """
    return vmap_as("vmap", fun, in_axes, out_axes, axis_name, axis_size, spmd_axis_name)


def vmap_as(
    what: str, fun: Callable, in_axes: Any, out_axes: Any, axis_name: Any, axis_size: int | None, spmd_axis_name: Any
) -> Callable:
    """`vmap` for a transformation that is called `what` in messages."""
    check_function(f"{what}, argument fun", fun)
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    check_axis_name(f"{what}, axis_name", axis_name)
    spmd_axis_name = (spmd_axis_name,) if isinstance(spmd_axis_name, str) else spmd_axis_name

    @boundary
    @functools.wraps(fun)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = tree_flatten((args, kwargs))
        in_dims, size = mapped_inputs(what, in_axes, args, kwargs, axis_size)
        function = FlatFunction(lambda args, kwargs: fun(*args, **kwargs), tree)
        axis = Axis(size, axis_name, spmd_axis_name, _explicit_split(leaves, in_dims) or spmd_axis_name or ())
        out, dims_out = vmap_flat(function, leaves, in_dims, axis, f"vmap of {function_name(fun)}")
        result = tree_unflatten(function.out_tree, out)
        wanted = broadcast_prefix(out_axes, result, what=f"{what}, out_axes", is_leaf=lambda x: x is None)
        placed = [
            _place(x, d, want, size, lambda i=i: f"{what}, out_axes for result{leaf_path(result, i)}")
            for i, (x, d, want) in enumerate(zip(out, dims_out, wanted, strict=True))
        ]
        return tree_unflatten(function.out_tree, placed)

    return mapped


def _argument_path(tree: tuple, i: int) -> str:
    """The path of leaf `i` of (args, kwargs), without the first key, which only says which."""
    return keystr(tree_flatten_with_path(tree)[0][i][0][1:])


def mapped_inputs(
    where: str, in_axes: Any, args: tuple, kwargs: dict, axis_size: int | None = None
) -> tuple[list[int | None], Any]:
    """The mapped dimension of each leaf of the arguments, or None, and the size that all have in common.

    Args:
      where: the transformation that asks, for messages.
      in_axes: a prefix of `args`; arguments by keyword are mapped over their first dimension.
      args, kwargs: the arguments.
      axis_size: the size, where the caller gave it.

    Raises:
      TreeError: `in_axes` is no prefix.
      AxisError: a dimension does not exist.
      ArgumentError: there is no mapped dimension, or there are ones of different sizes.
    """
    whole = (args, kwargs)
    leaves = tree_flatten(whole)[0]
    given = broadcast_prefix(in_axes, args, what=f"{where}, in_axes", is_leaf=lambda x: x is None)
    given = [*given, *([0] * len(tree_flatten(kwargs)[0]))]
    shapes = [
        aval_at(x, lambda i=i: f"{where}, argument{_argument_path(whole, i)}").shape for i, x in enumerate(leaves)
    ]
    in_dims = [
        canonical_dim(d, len(shape), lambda i=i: f"{where}, in_axes for argument{_argument_path(whole, i)}")
        for i, (d, shape) in enumerate(zip(given, shapes, strict=True))
    ]
    return in_dims, _mapped_size(where, shapes, in_dims, axis_size, whole)


def canonical_dim(d: Any, ndim: int, where: Callable[[], str]) -> int | None:
    """A mapped dimension counted from the first, of an array of this rank; None for None.

    Raises:
      ArgumentTypeError: it is no integer.
      AxisError: there is no such dimension.
    """
    if d is None:
        return None
    try:
        d = operator.index(d)
    except TypeError:
        mend = "give the number of the dimension to map over"
        raise ArgumentTypeError(where(), expected="an int or None", got=f"{d!r}", mend=mend) from None
    if not -ndim <= d < ndim:
        raise AxisError(
            where(),
            expected=f"a dimension of an array of rank {ndim}",
            got=str(d),
            mend="map over an existing dimension, or give None for an argument that is the same for all examples",
        )
    return d % ndim


def _mapped_size(
    where: str, shapes: Sequence[tuple], in_dims: Sequence[int | None], axis_size: int | None, tree: Any
) -> Any:
    sizes: dict[Any, int] = {}
    for i, (shape, d) in enumerate(zip(shapes, in_dims, strict=True)):
        if d is not None:
            sizes.setdefault(shape[d], i)
    if axis_size is not None:
        sizes.setdefault(axis_size, -1)
    if len(sizes) > 1:
        shown = ", ".join(
            f"{size} ({'axis_size' if i < 0 else 'argument' + _argument_path(tree, i)})" for size, i in sizes.items()
        )
        raise ArgumentError(
            where,
            expected="mapped dimensions of one size",
            got=shown,
            mend="make the sizes agree, or give None in in_axes for arguments that are not mapped",
        )
    if not sizes:
        raise ArgumentError(
            where,
            expected="at least one argument to map over",
            got="in_axes that are all None",
            mend="give a dimension for one argument, or axis_size",
        )
    return next(iter(sizes))


def _explicit_split(leaves: Sequence[Any], in_dims: Sequence[int | None]) -> tuple:
    """The Explicit mesh axes that split the mapped dimensions of the arguments."""
    found: tuple = ()
    for x, d in zip(leaves, in_dims, strict=True):
        sharding = None if d is None else getattr(getattr(x, "aval", None), "sharding", None)
        axes = sharding.spec.dims[d] if sharding is not None else ()
        if axes and found and axes != found:
            raise ShardingError(
                "vmap",
                expected=f"mapped dimensions split alike, as one is over {found}",
                got=f"dimension {d} of {x.aval.str_short()}",
                mend="reshard the arguments with phalanx.reshard",
            )
        found = axes or found
    return found


def _place(x: Any, d: int | None, want: Any, size: Any, where: Callable[[], str]) -> Any:
    if want is None:
        if d is not None:
            raise ArgumentError(
                where(),
                expected="a result that is the same for all examples, since out_axes is None",
                got="one that depends on a mapped argument",
                mend="give the dimension where the mapped one goes",
            )
        return x
    ndim = np.ndim(x) + (d is None)
    target: Any = canonical_dim(want, ndim, where)
    return to_dim(x, d, size, target)
