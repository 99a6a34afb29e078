"""Reads by index, `x[...]` and `x.at[...].get(...)`, updates by index, `x.at[...].set(y)`, and iteration.

An expression is parsed into a key and arrays (`index_expression`). The plan of a read (`read_plans`) or of an update
(`update_plans`) is cached by the type of the array and the key.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from phalanx import lax
from phalanx.core import current_scope, dtypes, promotion, state, user_stacklevel
from phalanx.engine import Cache, api_boundary, api_boundary_class
from phalanx.lax.elementwise import as_type
from phalanx.lax.sharding.out_sharding import call_with_out_sharding, drop_type_sharding, shard_dim
from phalanx.numpy.indexing.index_expression import (
    HostIntegers,
    Index,
    NonConcreteBooleanIndexError,
    check_mode,
    mark_iota_indices,
    parse_index,
)
from phalanx.numpy.indexing.read_plans import MODE_NAMES, check_static_indices, is_array, plan_read
from phalanx.numpy.indexing.update_plans import WindowPlan, combine, plan_write
from phalanx.numpy.operands import (
    SCALAR_KINDS,
    as_array,
    broadcast_to_shape,
    canonical_axis,
    cast,
    from_list,
    promote,
    to_operand,
    unwrap_array_like,
)
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import Array, ArrayLike, ShardingLike


@api_boundary_class
class At:
    """The value of `x.at`: indexing it selects elements, whose methods read or update them."""

    __slots__ = ("array",)

    def __init__(self, array: Any):
        self.array = array

    def __getitem__(self, index: Index) -> AtIndex:
        return AtIndex(self.array, index)

    def __repr__(self) -> str:
        return f"{self.array!r}.at"


_OPTIONS = """

        Args:
          values: scalar or array that broadcasts to the selected elements.
          mode: handling of out-of-bounds indices: "drop" (the default) skips them, "clip" moves them to the nearest
            element, "promise_in_bounds" leaves the result undefined.
          indices_are_sorted: promise that the indices are sorted, which makes the update faster.
          unique_indices: promise that the indices do not repeat, which makes the update faster.
          wrap_negative_indices: whether negative indices count from the end.

        Returns:
          The updated copy.

        Examples:
          >>> {example}
          {result}
        """


@api_boundary_class
class AtIndex:
    """Selected elements of an array, to be read or updated out of place."""

    __slots__ = ("array", "index")

    def __init__(self, array: Any, index: Index):
        self.array, self.index = array, index

    if TYPE_CHECKING:  # the methods that `_add_method` defines at run time, as type checkers see them

        def _update(
            self,
            values: ArrayLike,
            *,
            indices_are_sorted: bool = False,
            unique_indices: bool = False,
            mode: str | lax.GatherScatterMode | None = None,
            wrap_negative_indices: bool = True,
            out_sharding: ShardingLike | None = None,
        ) -> Array: ...

        set = add = subtract = multiply = mul = divide = power = min = max = _update

    def __repr__(self) -> str:
        return f"{self.array!r}.at[{self.index!r}]"

    def get(
        self,
        *,
        mode: str | lax.GatherScatterMode | None = None,
        fill_value: ArrayLike | None = None,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        wrap_negative_indices: bool = True,
        out_sharding: ShardingLike | None = None,
    ) -> Any:
        """The selected elements.

        Args:
          mode: handling of out-of-bounds indices: the nearest element ("clip", the default) or `fill_value` ("fill").
          fill_value: the value for "fill"; NaN, or the lowest or largest integer, by default.
          indices_are_sorted: promise that the indices are sorted, which makes the gather faster.
          unique_indices: promise that the indices do not repeat, which makes the derivative faster.
          wrap_negative_indices: whether negative indices count from the end.
          out_sharding: sharding of the result, a `Sharding` or `PartitionSpec`; inferred from the operands by default.

        Examples:
          >>> jnp.arange(3.0).at[5].get(mode="fill").item()
          nan
        """
        index = self.index if wrap_negative_indices else _disable_wrapping_in(self.index, mode)
        read = lambda x, index: get(x, index, mode, fill_value, indices_are_sorted, unique_indices)
        if out_sharding is not None:
            return _with_out_sharding(read, self.array, index, (), out_sharding, "x.at[...].get, out_sharding")
        return read(self.array, index)

    def apply(
        self,
        func: Callable,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | lax.GatherScatterMode | None = None,
        wrap_negative_indices: bool = True,
    ) -> Any:
        """Replace the selected elements by a function of them.

        Examples:
          >>> jnp.arange(3.0).at[1].apply(jnp.exp2).tolist()
          [0.0, 2.0, 2.0]
        """
        return update(
            self.array, self.index, func, "apply", mode, indices_are_sorted, unique_indices, wrap_negative_indices
        )


def _with_out_sharding(
    fun: Callable, x: Array, index: Index, values: tuple, out_sharding: ShardingLike | None, where: str
) -> Any:
    """Apply a read or update by index whose result has the sharding `out_sharding`."""
    parts = index if isinstance(index, tuple) else (index,)
    opened = [drop_type_sharding(i) if hasattr(i, "aval") else i for i in parts]
    return call_with_out_sharding(
        lambda x, *values: fun(x, tuple(opened), *values), (as_array(x), *map(as_array, values)), out_sharding, where
    )


def _add_method(name: str, how: str, doc: str, example: str, result: str) -> None:
    @api_boundary
    def method(
        self: AtIndex,
        values: Array,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | lax.GatherScatterMode | None = None,
        wrap_negative_indices: bool = True,
        out_sharding: ShardingLike | None = None,
    ) -> Any:
        options = (how, mode, indices_are_sorted, unique_indices, wrap_negative_indices)
        if out_sharding is not None:
            write = lambda x, index, values: update(x, index, values, *options)
            where = f"x.at[...].{name}, out_sharding"
            given = (_open_bool(self.array, values),)
            return _with_out_sharding(write, self.array, self.index, given, out_sharding, where)
        return update(self.array, self.index, values, *options)

    method.__name__, method.__qualname__ = name, f"AtIndex.{name}"
    method.__doc__ = doc + _OPTIONS.format(example=f"jnp.{example}.tolist()", result=result)
    setattr(AtIndex, name, method)


# Name, kind of update, first line of the documentation, example and its result.
for _row in [
    ("set", "set", "Replace the selected elements.", "zeros(2).at[1].set(5)", "[0.0, 5.0]"),
    (
        "add",
        "add",
        "Add to the selected elements, repeatedly at repeated indices.",
        "ones(2).at[1].add(5)",
        "[1.0, 6.0]",
    ),
    ("subtract", "sub", "Subtract from the selected elements.", "ones(2).at[1].subtract(5)", "[1.0, -4.0]"),
    ("multiply", "mul", "Multiply the selected elements.", "ones(2).at[1].multiply(5)", "[1.0, 5.0]"),
    ("mul", "mul", "Multiply the selected elements; an alias of `multiply`.", "ones(2).at[1].mul(5)", "[1.0, 5.0]"),
    ("divide", "div", "Divide the selected elements.", "ones(2).at[1].divide(4)", "[1.0, 0.25]"),
    ("power", "pow", "Raise the selected elements to a power.", "full(2, 3.0).at[1].power(2)", "[3.0, 9.0]"),
    ("min", "min", "Replace elements by their minimum with the values.", "ones(2).at[1].min(0)", "[1.0, 0.0]"),
    ("max", "max", "Replace elements by their maximum with the values.", "ones(2).at[1].max(5)", "[1.0, 5.0]"),
]:
    _add_method(*_row)


def _disable_wrapping_in(index: Index, mode: str | lax.GatherScatterMode | None) -> Any:
    """The index expression with wrapping of negative indices disabled in all entries."""
    return tuple(disable_wrapping(e, mode) for e in (index if type(index) is tuple else (index,)))


def disable_wrapping(e: Any, mode: str | lax.GatherScatterMode | None) -> Any:
    """An index whose negative entries are out of bounds: 0 where indices are clipped, otherwise beyond the end."""
    clips = MODE_NAMES.get(mode, mode) in ("clip", "promise_in_bounds")
    if isinstance(e, int) and not isinstance(e, bool) and e < 0:
        return 0 if clips else np.iinfo(np.int32).max
    if getattr(e, "dtype", None) is None or e.dtype.kind != "i":
        return e
    if clips:
        return lax.max(e, np.zeros((), e.dtype)[()])
    return lax.convert_element_type(e, np.dtype(np.uint32 if e.dtype.itemsize <= 4 else np.uint64))


_update_plans: Cache[tuple, Any] = Cache("numpy.scatter_plans", 4096)


def update(
    x: ArrayLike,
    index: Index,
    values: ArrayLike,
    how: str,
    mode: str | lax.GatherScatterMode | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    wrap_negative_indices: bool = True,
) -> Array:
    """A copy of `x` with the selected elements updated.

    Raises:
      ShapeError: the values do not broadcast to the selected elements.
    """
    if not wrap_negative_indices:
        index = _disable_wrapping_in(index, mode)
    mode = MODE_NAMES.get(mode, mode)
    try:
        y, key, arrays = parse_index(x, index)
    except NonConcreteBooleanIndexError:
        return _update_by_mask(x, index, values, how)
    # True and False in the expression have added dimensions: update the expanded array and restore its shape.
    if y is not x:
        return lax.reshape(update(y, _without_scalars(key, arrays), values, how, mode), x.shape)
    if arrays and state.trace is None:
        key, arrays = integers_to_arrays(x.shape, key, arrays)
    else:
        key = mark_iota_indices(x.shape, key, arrays)
    plan_key = (x.aval, key, mode, indices_are_sorted, unique_indices)
    plan = _update_plans.get(plan_key)
    if plan is None:
        check_mode(mode, "at[]")
        plan = _update_plans[plan_key] = plan_write(x.shape, key, mode, indices_are_sorted, unique_indices)
    if how == "apply":
        return plan.apply(x, arrays, values)
    is_weak = x.aval.weak_type  # The result is weak, too, whatever the values are.
    x, values = _convert_operands(x, values, how)
    updated = _run_plan(x, arrays, values, plan, how)
    return as_type(updated, updated.dtype, weak_type=True) if is_weak else updated


def _run_plan(x: Array, arrays: list, values: Array, plan: Callable[..., Array], how: str) -> Any:
    if state.trace is not None:
        return plan(x, arrays, values, how)
    # From the third position on, windows of one size share a program.
    if type(plan) is WindowPlan and plan.sizes and plan.shared.places.are_many(plan.starts):
        return _update(x, [np.array(plan.starts, np.int32)], values, plan.shared, how)
    return _update(x, arrays, values, plan, how)


def _convert_operands(x: Array, values: Array, how: str) -> tuple:
    """Convert the operands of an update, and warn if casting the values to the dtype of the array loses information."""
    # Integer division would truncate: divide in floating point, as NumPy does.
    if how == "div":
        x = cast(x, dtypes.to_inexact_dtype(x.dtype))
    values = _open_bool(x, values)
    is_scalar = type(values) in SCALAR_KINDS
    if not is_scalar and getattr(values, "aval", None) is None:
        values = to_operand(
            from_list(values) if isinstance(values, list | tuple) else unwrap_array_like(values), "at[]"
        )
    dtype = x.dtype
    if is_scalar:
        key = dtype, type(values), current_scope().context
        if key in _lossless_casts:
            return x, values
        if _is_lossless_cast(dtype, values):
            _lossless_casts.add(key)
            return x, values
    elif values.dtype is dtype or _is_lossless_cast(dtype, values):
        return x, values
    # The warning above is the only one about a lost imaginary part.
    if dtype.kind not in "cb" and (type(values) is complex or getattr(values, "dtype", dtype).kind == "c"):
        values = values.real
    return x, values


def _open_bool(x: Array, value: Any) -> Any:
    """A Python bool that updates numbers as an int, which loses nothing, so that strict promotion allows it."""
    return int(value) if type(value) is bool and x.dtype.kind != "b" else value


_lossless_casts: set[tuple] = set()  # (dtype of an array, type of a scalar, context)


def _is_lossless_cast(dtype: np.dtype, values: Array) -> bool:
    """Whether a dtype represents all values of the type of `values`; warns if not."""
    given, is_weak = dtypes.dtype_and_weakness(values)
    if given == dtype or dtypes.is_extended(dtype) or promotion.promote_pair(dtype, False, given, is_weak)[0] == dtype:
        return True
    short = dtypes.short_name
    warnings.warn(
        f"x.at[...]: values of {short(given)} are cast to the {short(dtype)} of the array, which loses what that "
        "cannot hold; this will be an error.\n"
        "  Fix: cast the values with values.astype(x.dtype), or the array first.",
        FutureWarning,
        stacklevel=user_stacklevel(),
    )
    return False


def _without_scalars(key: tuple, arrays: list) -> tuple:
    found = iter(arrays)
    return tuple(slice(*e) if type(e) is tuple else next(found) if is_array(e) else e for e in key)


def _update_by_mask(x: Array, mask: Array, values: Array, how: str) -> Any:
    """An update under a traced mask, as a select.

    It requires that the values broadcast to the array, so that the value of an element does not depend on the mask.
    """
    is_mask = getattr(mask, "dtype", None) == np.bool_ and mask.ndim <= x.ndim and mask.shape == x.shape[: mask.ndim]
    if not is_mask or np.ndim(values) > x.ndim - getattr(mask, "ndim", 0):
        raise NonConcreteBooleanIndexError.of(
            mask.describe() if hasattr(mask, "describe") else repr(mask),
            mask.origin() if hasattr(mask, "origin") else None,
        )
    mask = lax.broadcast_in_dim(mask, x.shape, tuple(range(mask.ndim)))
    new = values(x) if how == "apply" else cast(combine(x, values, how), x.dtype)
    new, x = promote("at[]", new, x)
    return lax.select_n_p(mask, x, broadcast_to_shape(new, x.shape) if np.shape(new) else new)


@eager_jit(static_argnames=("plan", "how"))
def _update(x: Array, arrays: list, values: Array, plan: Callable[..., Array], how: str) -> Any:
    return plan(x, arrays, values, how)


_read_plans: Cache[tuple, Any] = Cache("numpy.index_plans", 4096)


def getitem(x: ArrayLike, index: Index) -> Array:
    """`x[index]`."""
    x, key, arrays = parse_index(x, index)
    if state.context.check_static_indices:
        check_static_indices(x.shape, key)
    if arrays and state.trace is None:
        key, arrays = integers_to_arrays(x.shape, key, arrays)
    else:
        key = mark_iota_indices(x.shape, key, arrays)
    # Types are interned objects, so hashing the key takes time proportional to its number of entries only.
    plan_key = (x.aval, key)
    plan = _read_plans.get(plan_key)
    if plan is None:
        plan = _read_plans[plan_key] = plan_read(x.shape, key, None, None, False, False)
    return plan(x, arrays)


def get(
    x: ArrayLike,
    index: Index,
    mode: str | lax.GatherScatterMode | None = None,
    fill_value: ArrayLike | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
) -> Array:
    """`x.at[index].get(...)`: a read with a mode for out-of-bounds indices."""
    mode = MODE_NAMES.get(mode, mode)
    if isinstance(mode, str) or mode is None:
        check_mode(mode, "at[].get")
    x, key, arrays = parse_index(x, index)
    if mode in (None, "promise_in_bounds") and state.context.check_static_indices:
        check_static_indices(x.shape, key)
    key = mark_iota_indices(x.shape, key, arrays)
    # `repr`, since the fill value may be NaN, which is not equal to itself, or an unhashable array.
    plan_key = (x.aval, key, mode, repr(fill_value), indices_are_sorted, unique_indices)
    plan = _read_plans.get(plan_key)
    if plan is None:
        plan = plan_read(x.shape, key, mode, fill_value, indices_are_sorted, unique_indices)
        _read_plans[plan_key] = plan
    return plan(x, arrays)


def integers_to_arrays(shape: tuple, key: tuple, arrays: list) -> tuple[tuple, list]:
    """Turn integers beside index arrays into arrays of rank 0, so that eager calls share one program."""
    if not any(type(e) is int for e in key) or not any(a.ndim for a in arrays):
        return key, arrays
    ellipsis = next((i for i, e in enumerate(key) if e is Ellipsis), len(key))
    given = iter(arrays)
    found = []
    for i, e in enumerate(key):
        if type(e) is int:
            dim = sum(v is not None for v in (key[:i] if i < ellipsis else key[i:]))
            found.append(np.asarray(e + shape[dim if i < ellipsis else len(shape) - dim] if e < 0 else e, np.int32))
        elif is_array(e):
            found.append(next(given))
    return tuple(HostIntegers(()) if type(e) is int else e for e in key), found


@eager_jit(static_argnames=("axis",))
def unstack_dim(x: ArrayLike, axis: int) -> list:
    """The slices of `x` along a dimension, as one compiled program when called eagerly."""
    axis = canonical_axis(axis, x.ndim, "unstack")
    return [lax.squeeze(lax.slice_in_dim(x, i, i + 1, axis=axis), (axis,)) for i in range(x.shape[axis])]


_CHUNK = 32


def iterate(x: ArrayLike) -> Iterator[Any]:
    """Iterate over the first dimension.

    Eagerly, 32 elements are read by one program: one call per element would be slower, one for all would compile a
    program as long as the array.
    """
    if x.ndim == 0:
        raise TypeError("iteration over an array of rank 0")
    x = shard_dim(x, 0, ())  # no element has this dimension
    if state.trace is not None:
        return iter([getitem(x, i) for i in range(x.shape[0])])
    return _iterate_eagerly(x)


def _iterate_eagerly(x: Array) -> Iterator[Any]:
    n = x.shape[0]
    if n <= _CHUNK:
        yield from unstack_dim(x, 0)
        return
    for i in range(0, n, _CHUNK):
        yield from unstack_dim(getitem(x, slice(i, min(i + _CHUNK, n))), 0)
