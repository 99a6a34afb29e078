"""Types whose values `vmap` maps by functions of the user, instead of leaf by leaf.

`vmap` takes such values out of its arguments, so that the rest of the call is as usual. Inside its trace the user's
functions make the value of one example, and make a value for all examples from a result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from phalanx.core import ArgumentTypeError, check_function, state
from phalanx.tree import broadcast_prefix, register_pytree_node, tree_flatten, tree_unflatten


class _MappedType(NamedTuple):
    to_elt: Callable
    from_elt: Callable


_mapped_types: dict[type, _MappedType] = {}
_make_index: dict[type, Callable] = {}


def register_vmappable(
    data_type: type,
    spec_type: type,
    axis_size_type: type,
    to_elt: Callable[[Callable, Callable, Any, Any], Any],
    from_elt: Callable[[Callable, Any, Any, Any], Any],
    make_iota: Callable[[Any], Any] | None,
) -> None:
    """Let functions decide how `vmap` maps the values of a type.

    Args:
      data_type: the type; it need not be a pytree.
      spec_type: the type of the entries of `in_axes` and `out_axes` for these values, such as int.
      axis_size_type: the type of the size of the axis over which they are mapped, such as int.
      to_elt: `to_elt(map_part, get_index, value, spec)` returns the value of one example. `map_part(part, spec)` maps
        an array, or another value of a registered type; `get_index()` returns the number of the example.
      from_elt: `from_elt(join, size, element, spec)` returns the value for all examples. `join(size, part, spec)`
        joins the examples of a part.
      make_iota: returns the numbers of all examples from a size of that type; None for sizes that are integers.

    Raises:
      ArgumentTypeError: `data_type` is not a class, or `to_elt` or `from_elt` is not a function.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> class Table:  # the columns are the examples, in whatever order in_axes says
      ...     def __init__(self, columns):
      ...         self.columns = columns
      >>> def to_elt(map_part, get_index, table, spec):
      ...     return map_part(table.columns, 1)
      >>> def from_elt(join, size, table, spec):
      ...     return Table(join(size, table.columns, 1))
      >>> register_vmappable(Table, int, int, to_elt, from_elt, None)
      >>> phalanx.vmap(jnp.sum, axis_size=3)(Table(jnp.arange(6).reshape(2, 3))).tolist()
      [3, 5, 7]
    """
    if not isinstance(data_type, type):
        raise ArgumentTypeError(
            "register_vmappable, argument data_type",
            expected="a class",
            got=repr(data_type),
            fix="pass the class itself",
        )
    check_function("register_vmappable, argument to_elt", to_elt)
    check_function("register_vmappable, argument from_elt", from_elt)
    _mapped_types[data_type] = _MappedType(to_elt, from_elt)
    if make_iota is not None:
        _make_index[axis_size_type] = make_iota


def unregister_vmappable(data_type: type) -> None:
    """Let `vmap` map the values of a type leaf by leaf again; does nothing if the type is not registered."""
    _mapped_types.pop(data_type, None)


def is_vmappable(x: Any) -> bool:
    """Whether `x` is of a type of `register_vmappable`."""
    return type(x) in _mapped_types


def any_registered() -> bool:
    """Whether a type was registered, so that `vmap` must look for its values."""
    return bool(_mapped_types)


class _Place:
    """Takes the place of a value that was taken out of a tree, which loses no leaf order by it: it has no leaves."""

    def __init__(self, number: int):
        self.number = number


register_pytree_node(_Place, lambda place: ((), place.number), lambda number, _: _Place(number))


class RegisteredValues:
    """The values of registered types among the arguments and results of a call of `vmap`.

    Args:
      where: the transformation and its function, for errors.
      in_axes, out_axes: as in `vmap`.
      move_result: `move_result(batched, mapped dimension, spec, size, where)` moves the mapped dimension of a result.
    """

    def __init__(self, where: str, in_axes: Any, out_axes: Any, move_result: Callable):
        self._where, self._in_axes, self._out_axes, self._move_result = where, in_axes, out_axes, move_result
        self._values: list[tuple[Any, Any]] = []  # with their specs
        self._joined: list = []
        self.axis_size: Any = None

    def take_out(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """The arguments with a place instead of each value of a registered type."""

        def keep(value: Any, spec: Any) -> _Place:
            shape = getattr(value, "shape", ())
            if isinstance(spec, int) and -len(shape) <= spec < len(shape):
                self.axis_size = shape[spec]
            self._values.append((value, spec))
            return _Place(len(self._values) - 1)

        what = f"{self._where}, in_axes"
        return _replace(args, self._in_axes, what, keep), _replace(kwargs, 0, what, keep)

    def bind(self, fun: Callable, size: Any) -> Callable:
        """The function of one example, with places in the arguments and the result instead of registered values."""
        return lambda *args, **kwargs: self._call(fun, size, args, kwargs)

    def _call(self, fun: Callable, size: Any, args: tuple, kwargs: dict) -> Any:
        trace, what = state.trace, f"{self._where}, out_axes"

        def get_index() -> Any:
            return trace.wrap(_make_index.get(type(size), lambda n: np.arange(n, dtype=np.int32))(size), 0)

        def map_part(part: Any, spec: Any) -> Any:
            if is_vmappable(part):
                return _mapped_types[type(part)].to_elt(map_part, get_index, part, spec)
            return trace.wrap(part, spec if spec is None else spec % np.ndim(part))

        def join(size: Any, part: Any, spec: Any) -> Any:
            if is_vmappable(part):
                return _mapped_types[type(part)].from_elt(join, size, part, spec)
            return self._move_result(*trace.unwrap(part), spec, size, lambda: what)

        def keep(value: Any, spec: Any) -> _Place:
            self._joined.append(join(size, value, spec))
            return _Place(len(self._joined) - 1)

        args, kwargs = _fill((args, kwargs), [map_part(*value) for value in self._values])
        return _replace(fun(*args, **kwargs), self._out_axes, what, keep)

    def put_back(self, result: Any) -> Any:
        """The result with its values of registered types, which are for all examples."""
        return _fill(result, self._joined) if self._joined else result


def _replace(tree: Any, axes: Any, what: str, replace: Callable[[Any, Any], Any]) -> Any:
    """A tree with `replace(value, spec)` in place of each value of a registered type; `axes` is a prefix with specs."""
    leaves, structure = tree_flatten(tree, is_leaf=is_vmappable)
    if not any(map(is_vmappable, leaves)):
        return tree
    opaque = tree_unflatten(structure, [object()] * len(leaves))
    specs = broadcast_prefix(axes, opaque, what=what, is_leaf=lambda x: x is None)
    pairs = zip(leaves, specs, strict=True)
    return tree_unflatten(structure, [replace(x, spec) if is_vmappable(x) else x for x, spec in pairs])


def _fill(tree: Any, values: list) -> Any:
    leaves, structure = tree_flatten(tree, is_leaf=lambda x: type(x) is _Place)
    return tree_unflatten(structure, [values[x.number] if type(x) is _Place else x for x in leaves])
