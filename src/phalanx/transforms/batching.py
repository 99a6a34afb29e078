"""Batching (`vmap`): transform a function of one example into a function of a batch of examples.

A `BatchTrace` carries each mapped value together with the position of its mapped dimension, and applies the `batch`
rule of every operation. Operations whose operands are all unmapped run once, in the parent trace. A named axis is
entered in the axis environment, `state.context.axes`, where collectives such as `psum` look it up.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from phalanx.core import (
    ArgumentError,
    ArgumentTypeError,
    AxisError,
    Jaxpr,
    Primitive,
    Ref,
    ShapedArray,
    ShardingError,
    Trace,
    Tracer,
    WrappingTracer,
    Zero,
    broadcast_flag,
    cached_on_jaxpr,
    check_axis_name,
    check_function,
    check_no_views,
    check_ref_aliases,
    current_traceback,
    dtypes,
    enter_transform,
    eqn_named_axes,
    format_code_position,
    get_aval,
    get_aval_of_argument,
    localize_refs,
    run_jaxpr,
    select_flagged,
    state,
    state_extra,
    trace_to_jaxpr,
    unwrap_array_like,
    vector_space,
    write_p,
)
from phalanx.engine.traceback_filtering import api_boundary
from phalanx.runtime.array import Array
from phalanx.transforms.flat_function import FlatFunction, function_name, label_of, positional_parameters, wraps
from phalanx.transforms.vmappable import RegisteredValues, any_registered
from phalanx.tree import broadcast_prefix, tree_flatten, tree_unflatten
from phalanx.tree.key_paths import leaf_path
from phalanx.typing import ArrayLike, AxisName, DimSize, PyTree


class AxisData(NamedTuple):
    """The axis that a function is mapped over.

    Args:
      size: its length.
      name: its name for collectives, or None.
      spmd_name: the mesh axes that shard it inside a partitioned program, or None.
      split: the Explicit mesh axes that shard it in the types of mapped values.
    """

    size: Any
    name: AxisName = None
    spmd_name: Any = None
    split: tuple = ()

    def to_front(self, x: ArrayLike, dim: int | None) -> Any:
        """Move the mapped dimension of `x` to the front, or broadcast `x` along a new leading dimension."""
        return move_mapped_dim(x, dim, self.size, 0, self.split)

    def to_fronts(self, xs: Sequence[Any], dims: Sequence[int | None]) -> list:
        """Move the mapped dimension of each value to the front; values without one stay as they are."""
        return [x if d is None else self.to_front(x, d) for x, d in zip(xs, dims, strict=True)]


class BatchTracer(WrappingTracer):
    """A value with a mapped dimension that the function being mapped does not see."""

    __slots__ = ("_aval", "batched", "dim")

    def __init__(self, trace: BatchTrace, batched: ArrayLike, dim: int):
        self._trace = trace
        self.batched = batched
        self.dim = dim
        self._aval: ShapedArray | None = None  # computed on first use, since most tracers are never asked for it
        if type(batched) is Array:
            self._made = current_traceback()

    wrapped = property(lambda self: self.batched)
    val = wrapped  # the name of JAX, in whose tutorials programs print it

    @property
    def aval(self) -> ShapedArray:
        if self._aval is None:
            self._aval = get_aval(self.batched).without_dim(self.dim)
        return self._aval

    def __repr__(self) -> str:
        return f"VmapTracer(aval={self.aval}, batched={get_aval(self.batched)})"


class BatchTrace(Trace):
    """Applies each operation to all examples at once."""

    __slots__ = ("axis", "root")
    is_batched = True

    def __init__(self, parent: Trace | None, axis: AxisData, name: str = "vmap", resumed: BatchTrace | None = None):
        super().__init__(parent, name)
        self.axis = axis
        # Traces with one root share their tracers: a rule that runs later may close over values of the first trace.
        self.root: BatchTrace = self if resumed is None else resumed.root

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict) -> Any:
        # This runs for every operation under `vmap`, hence the loop with plain appends instead of `unwrap`.
        values = []
        mapped: list[int | None] = []
        active = False
        for x in args:
            if type(x) is BatchTracer and x._trace is self:
                values.append(x.batched)
                mapped.append(x.dim)
                active = True
            else:
                dim = None
                if isinstance(x, Tracer):
                    x, dim = self.unwrap(x)
                    active = active or dim is not None
                elif type(x) is not Array and (array := unwrap_array_like(x)) is not x:
                    return self.process(primitive, [array if a is x else a for a in args], params)
                values.append(x)
                mapped.append(dim)
        before = state.trace
        state.trace = self.parent
        try:
            if not active and not self.concerns(primitive, values, params):
                return primitive(*args, **params)
            if primitive.holds_functions is not None:
                y, dim = primitive.batch_axis(self.axis, values, mapped, trace=self, **params)
            elif primitive.batch_axis is not None:
                y, dim = primitive.batch_axis(self.axis, values, mapped, **params)
            else:
                y, dim = primitive.batch(*values, *mapped, **params)
        finally:
            state.trace = before
        if primitive.multiple:
            return [self.wrap(v, d) for v, d in zip(y, dim, strict=True)]
        return y if dim is None else BatchTracer(self, y, dim)

    def concerns(self, primitive: Primitive, args: Sequence[Any], params: dict) -> bool:
        """Whether an operation is batched even if its operands are the same for all examples.

        It, or a jaxpr among its parameters, contains a collective over this axis, or it calls functions that may close
        over mapped values.
        """
        if primitive.holds_functions is not None and primitive.holds_functions(params):
            return True
        name, axes = self.axis.name, params.get("axes")
        if name is None or not (type(axes) is tuple or primitive.call_like):
            return False
        if type(axes) is tuple and name in axes:
            return True
        return name in (primitive.named_axes(*args, **params) if primitive.named_axes else eqn_named_axes(params))

    def wrap(self, x: ArrayLike, dim: int | None) -> Any:
        """A tracer for a value with a mapped dimension; the value itself where it has none."""
        return x if dim is None else BatchTracer(self, x, dim)

    def unwrap(self, x: Any) -> tuple[Any, int | None]:
        """The batched value and the mapped dimension of any value."""
        if type(x) is BatchTracer and x._trace.root is self.root:
            return x.batched, x.dim
        self.check_alive(x)
        return x, None


def vmap_flat(
    fun: Callable[..., list],
    args: Sequence[Any],
    in_dims: Sequence[int | None],
    axis: AxisData,
    name: str = "vmap",
    resumed: BatchTrace | None = None,
) -> tuple[list, list]:
    """Map a function of flat arguments; returns its flat results and the mapped dimension, or None, of each.

    Args:
      fun: the function.
      args, in_dims: its arguments, and the mapped dimension, or None, of each.
      axis: the mapped axis.
      name: the name of the transformation in tracers and errors.
      resumed: a trace over the same axis, whose values `fun` may close over.
    """
    trace = BatchTrace(state.trace, axis, name, resumed)
    with nullcontext() if axis.name is None else bind_axis_name(axis.name, axis.size):
        pairs = trace.run(fun, map(trace.wrap, args, in_dims), trace.unwrap)
    return [v for v, _ in pairs], [d for _, d in pairs]


def batch_function(fun: Callable[..., list], in_mapped: Sequence[bool], axis: AxisData, name: str = "vmap") -> Callable:
    """A flat function mapped over `axis`: mapped dimensions are in front, and every result has one.

    Args:
      fun: a function of flat arguments and flat results.
      in_mapped: for each argument, whether it has a mapped dimension.
      axis: the mapped axis.
      name: the name of the transformation in tracers and errors.
    """
    return lambda *xs: list(map(axis.to_front, *vmap_flat(fun, xs, front_dims(in_mapped), axis, name)))


def bind_axis_name(name: AxisName, size: DimSize) -> AbstractContextManager:
    """A context in which collectives know the axis `name`."""
    return state_extra(axes=(*[axis for axis in state.context.axes or () if axis[0] != name], (name, size, False)))


def front_dims(mapped: Sequence[bool]) -> list[int | None]:
    """The mapped dimensions of values whose mapped dimension, where they have one, is the first."""
    return [0 if m else None for m in mapped]


def move_mapped_dim(x: ArrayLike, dim: int | None, size: DimSize, target: int, split: tuple = ()) -> Any:
    """Move the mapped dimension of `x` to position `target`, broadcasting `x` if it has none.

    Args:
      x: the value.
      dim: its mapped dimension, or None.
      size: the size of the mapped axis.
      target: the position of the mapped dimension in the result.
      split: the Explicit mesh axes that shard the mapped dimension of the result.
    """
    if dim is None:
        x = vector_space.broadcast_dim(x, size, target)
    elif dim != target:
        x = vector_space.move_dim(x, dim, target)
    return vector_space.shard_dim(x, target, split) if split else x


def batch_jaxpr(
    jaxpr: Jaxpr, axis: AxisData, in_mapped: Sequence[bool], out_mapped: bool | Sequence[bool | None] = False
) -> tuple[Jaxpr, list[bool]]:
    """Batch a jaxpr; mapped dimensions are in front.

    Args:
      jaxpr: a jaxpr without constants.
      axis: the mapped axis.
      in_mapped: for each input, whether it has the mapped dimension.
      out_mapped: for each output (or one value for all), whether it must have the mapped dimension even if it is the
        same for all examples.

    Returns:
      The batched jaxpr, and for each output whether it has the mapped dimension.
    """
    return _batch_jaxpr(jaxpr, axis, in_mapped, broadcast_flag(out_mapped, jaxpr.outvars), state.context)


@cached_on_jaxpr
def _batch_jaxpr(
    jaxpr: Jaxpr, axis: AxisData, in_mapped: Sequence[bool], want: Sequence[bool | None], context: Hashable
) -> tuple[Jaxpr, list[bool]]:
    # `context` is part of the cache key only: tracing depends on the options and axis names it sums up.
    is_mapped: list[bool] = []
    avals = [
        a.with_dim(0, axis.size, axis.split or None) if m else a for a, m in zip(jaxpr.in_avals, in_mapped, strict=True)
    ]

    def fun(*args: Any) -> list:
        run = functools.partial(run_jaxpr, jaxpr)
        out, out_dims = vmap_flat(run, args, front_dims(in_mapped), axis, jaxpr.debug_name)
        is_mapped[:] = [bool(w) or d is not None for d, w in zip(out_dims, want, strict=True)]
        return [axis.to_front(x, d) if m else x for x, d, m in zip(out, out_dims, is_mapped, strict=True)]

    return trace_to_jaxpr(fun, avals, f"vmap({jaxpr.debug_name})"), is_mapped


def vmap(
    fun: Callable,
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: AxisName = None,
    axis_size: int | None = None,
    spmd_axis_name: AxisName | tuple[AxisName, ...] = None,
    sum_match: bool = False,
) -> Callable:
    """Vectorizing map: turn a function of one example into a function of a batch of examples.

    Args:
      fun: a function of arrays or pytrees of arrays.
      in_axes: the dimension of each argument to map over, or None for an argument shared by all examples; an int, or a
        pytree that is a prefix of the tuple of positional arguments. Keyword arguments are mapped over dimension 0.
      out_axes: the position of the mapped dimension in each result, or None for a result that is the same for all
        examples; an int, or a prefix of the result.
      axis_name: a name for the mapped axis, by which collectives such as `lax.psum` refer to it.
      axis_size: the number of examples, required if no argument is mapped.
      spmd_axis_name: the mesh axis, or axes, that shard the mapped dimension inside a partitioned program.
      sum_match: whether a result that differs between examples, but has None in `out_axes`, is summed over them.

    Returns:
      A function of the same arguments, with mapped dimensions added to arguments and results.

    Raises:
      ArgumentError: no argument is mapped, or mapped dimensions differ in size.
      TreeError: `in_axes` or `out_axes` is not a prefix of the arguments or of the result.
      AxisError: an argument has no such dimension.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> phalanx.vmap(jnp.dot, in_axes=(0, None))(jnp.eye(2), jnp.arange(2.0)).tolist()
      [0.0, 1.0]
    """
    return named_vmap("vmap", fun, in_axes, out_axes, axis_name, axis_size, spmd_axis_name, sum_match)


def named_vmap(
    transform: str,
    fun: Callable,
    in_axes: Any,
    out_axes: Any,
    axis_name: AxisName,
    axis_size: int | None,
    spmd_axis_name: AxisName | tuple[AxisName, ...] | None,
    sum_match: bool = False,
) -> Callable:
    """`vmap` for a transformation that errors call `transform`, such as `pmap of step`."""
    check_function(f"{transform}, argument fun", fun)
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    check_axis_name(f"{transform}, axis_name", axis_name)
    spmd_names = spmd_axis_name if spmd_axis_name is None or isinstance(spmd_axis_name, tuple) else (spmd_axis_name,)
    where = f"{transform} of {format_code_position(fun)}" if transform == "vmap" else transform

    @api_boundary
    @wraps(fun, summary="Vectorized version of")
    def mapped(*args: Any, **kwargs: Any) -> Any:
        registered, num_examples = None, axis_size
        if any_registered():
            registered = RegisteredValues(where, in_axes, out_axes, _move_result)
            args, kwargs = registered.take_out(args, kwargs)
            num_examples = registered.axis_size if axis_size is None else axis_size
        leaves, tree = tree_flatten((args, kwargs))
        in_dims, size = resolve_in_axes(where, in_axes, args, kwargs, num_examples, lambda: positional_parameters(fun))
        call = fun if registered is None else registered.bind(fun, size)
        function = FlatFunction(lambda args, kwargs: call(*args, **kwargs), tree)
        axis = AxisData(size, axis_name, spmd_names, _explicit_axes(where, leaves, in_dims) or spmd_names or ())
        name = f"vmap of {function_name(fun)}"
        is_ref = [isinstance(x, Ref) for x in leaves]
        if any(is_ref):
            check_no_views(where, (args, kwargs))
            check_ref_aliases(name, leaves, (), label_of(args, kwargs, lambda: positional_parameters(fun)))
            out, dims_out = _map_with_refs(function, leaves, in_dims, axis, name)
        else:
            with enter_transform("vmap"):
                out, dims_out = vmap_flat(function, leaves, in_dims, axis, name)
        result = tree_unflatten(function.out_tree, out)
        wanted = broadcast_prefix(out_axes, result, what=f"{where}, out_axes", is_leaf=lambda x: x is None)
        with enter_transform("vmap"):
            moved = [
                _sum_examples(x, d)
                if sum_match and want is None and d is not None
                else _move_result(x, d, want, size, lambda i=i: f"{where}, out_axes for result{leaf_path(result, i)}")
                for i, (x, d, want) in enumerate(zip(out, dims_out, wanted, strict=True))
            ]
        result = tree_unflatten(function.out_tree, moved)
        return result if registered is None else registered.put_back(result)

    return mapped


def _map_with_refs(
    fun: Callable[..., list], args: Sequence[Any], in_dims: Sequence[int | None], axis: AxisData, name: str
) -> tuple[list, list]:
    """`vmap_flat` over arguments of which some are references; mapped ones are written back."""
    mapped = [isinstance(x, Ref) and d is not None for x, d in zip(args, in_dims, strict=True)]
    call, values = localize_refs(fun, args, mapped)
    with enter_transform("vmap"):
        out, dims = vmap_flat(call, values, in_dims, axis, name)
    count = len(out) - sum(mapped)
    wanted = zip(select_flagged(args, mapped), select_flagged(in_dims, mapped), strict=True)
    for (ref, target), value, dim in zip(wanted, out[count:], dims[count:], strict=True):
        write_p(ref, move_mapped_dim(value, dim, axis.size, target))
    return out[:count], dims[:count]


def resolve_in_axes(
    where: str,
    in_axes: Any,
    args: tuple,
    kwargs: dict,
    axis_size: int | None = None,
    parameters: Callable[[], list[str]] = list,
) -> tuple[list[int | None], Any]:
    """The mapped dimension, or None, of each leaf of the arguments, and the size of the mapped axis.

    Args:
      where: the transformation and its function, for errors.
      in_axes: a prefix of `args`; keyword arguments are mapped over their first dimension.
      args, kwargs: the arguments.
      axis_size: the size of the mapped axis, where the caller gave it.
      parameters: gives the names of the positional parameters, for errors.

    Raises:
      TreeError: `in_axes` is not a prefix of `args`.
      AxisError: an argument has no such dimension.
      ArgumentError: no argument is mapped, or mapped dimensions differ in size.
    """
    leaves = tree_flatten((args, kwargs))[0]
    given = broadcast_prefix(in_axes, args, what=f"{where}, in_axes", is_leaf=lambda x: x is None)
    # `in_axes` describes positional arguments only.
    given += [0] * (len(leaves) - len(given))

    label = label_of(args, kwargs, parameters)
    # An argument that is not mapped may be any object, which the function gets as it is.
    shapes = [
        () if d is None else get_aval_of_argument(x, lambda i=i: f"{where}, {label(i)}").shape
        for i, (x, d) in enumerate(zip(leaves, given, strict=True))
    ]
    in_dims = [
        canonical_dim(d, len(shape), lambda i=i: f"{where}, in_axes for {label(i)}")
        for i, (d, shape) in enumerate(zip(given, shapes, strict=True))
    ]
    return in_dims, _mapped_size(where, shapes, in_dims, axis_size, label)


def canonical_dim(d: object, ndim: int, where: Callable[[], str]) -> int | None:
    """A mapped dimension of an array of rank `ndim`, counted from the first; None for None.

    Raises:
      ArgumentTypeError: `d` is not an integer.
      AxisError: the array has no such dimension.
    """
    if d is None:
        return None
    if isinstance(d, bool) or not hasattr(d, "__index__"):
        fix = "give the number of the dimension to map over, such as 0, or None for an argument that is not mapped"
        raise ArgumentTypeError(where(), expected="an int or None", got=f"{d!r}", fix=fix)
    dim = operator.index(d)
    if not -ndim <= dim < ndim:
        raise AxisError(
            where(),
            expected=f"a dimension of an array of rank {ndim}",
            got=str(dim),
            fix="map over an existing dimension, or give None for an argument that is the same for all examples",
        )
    return dim % ndim


def _mapped_size(
    where: str,
    shapes: Sequence[tuple],
    in_dims: Sequence[int | None],
    axis_size: int | None,
    label: Callable[[int], str],
) -> Any:
    """The size that all mapped dimensions have in common."""
    # From a size to the first argument that has it, for the error.
    sizes: dict[Any, int] = {}
    for i, (shape, d) in enumerate(zip(shapes, in_dims, strict=True)):
        if d is not None:
            sizes.setdefault(shape[d], i)
    if axis_size is not None:
        sizes.setdefault(axis_size, -1)
    if len(sizes) > 1:
        places = {i: "axis_size" if i < 0 else f"dimension {in_dims[i]} of {label(i)}" for i in sizes.values()}
        raise ArgumentError(
            where,
            expected="mapped dimensions of one size",
            got=", ".join(f"{size} ({places[i]})" for size, i in sizes.items()),
            fix="make the sizes agree, or give None in in_axes for arguments that are not mapped",
        )
    if not sizes:
        raise ArgumentError(
            where,
            expected="at least one argument to map over",
            got="in_axes that are all None",
            fix="set in_axes to 0 for one argument, or pass axis_size",
        )
    return next(iter(sizes))


def _explicit_axes(where: str, leaves: Sequence[Any], in_dims: Sequence[int | None]) -> tuple:
    """The Explicit mesh axes that shard the mapped dimensions of the arguments."""
    found: tuple = ()
    for x, d in zip(leaves, in_dims, strict=True):
        sharding = None if d is None else getattr(getattr(x, "aval", None), "type_sharding", None)
        axes = sharding.spec.dims[d] if sharding is not None else ()
        if axes and found and axes != found:
            raise ShardingError(
                where,
                expected=f"mapped dimensions with one sharding, as another one is sharded over {found}",
                got=f"dimension {d} of {x.aval.str_short()}",
                fix="reshard the arguments with phalanx.reshard",
            )
        found = axes or found
    return found


def _sum_examples(x: ArrayLike, d: int) -> Any:
    """The sum of a result over its mapped dimension; the number of true examples if it is a bool."""
    if get_aval(x).dtype == np.bool_:
        x = vector_space.convert(x, dtypes.canonicalize_dtype(int))
    return vector_space.sum(x, d)


def _move_result(x: ArrayLike, d: int | None, want: object, size: DimSize, where: Callable[[], str]) -> PyTree:
    """Move the mapped dimension of a result to where `out_axes` wants it."""
    if want is None:
        if d is not None:
            raise ArgumentError(
                where(),
                expected="a result that is the same for all examples, since out_axes is None",
                got="one that depends on a mapped argument",
                fix="set out_axes to the position of the mapped dimension in this result, such as 0",
            )
        return x
    if isinstance(x, Zero):  # of a function that a derivative rule maps
        place: Any = canonical_dim(want, x.aval.ndim + 1, where)
        return Zero(x.aval.with_dim(place, size))
    target: Any = canonical_dim(want, np.ndim(x) + (d is None), where)
    return move_mapped_dim(x, d, size, target)
