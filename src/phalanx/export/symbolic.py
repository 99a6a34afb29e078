"""Symbolic shapes as users write them, in each of the spellings of the field.

Builds on `scopes` and `dim_text`; called by users, whose shapes then go through `jit` and `export` like any other.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from phalanx.core.aval import ShapeDtypeStruct, aval_of
from phalanx.core.errors import ArgumentError, ArgumentTypeError
from phalanx.export.dim_text import Reader
from phalanx.export.scopes import SymbolicScope
from phalanx.symbolic import bounds, is_symbolic
from phalanx.tree import broadcast_prefix, keystr, tree_flatten_with_path, tree_unflatten


def is_symbolic_dim(dim: Any) -> bool:
    """Whether a dimension is symbolic and no int.

    Args:
      dim: a dimension of a shape.

    Returns:
      A bool.

    Examples:
      >>> from phalanx import export
      >>> b, three = export.symbolic_shape("b, 3")
      >>> is_symbolic_dim(b), is_symbolic_dim(three)
      (True, False)
    """
    return is_symbolic(dim)


def symbolic_dim_bounds(dimension: Any) -> tuple[float, float]:
    """The least and greatest size that a dimension may have, as far as the constraints of its scope tell.

    Args:
      dimension: a dimension of a shape.

    Returns:
      Both bounds; those of an int are the int, and where nothing bounds it they are infinite.

    Raises:
      ArgumentTypeError: `dimension` is no dimension.

    Examples:
      >>> from phalanx import export
      >>> (b,) = export.symbolic_shape("b", constraints=["b <= 8"])
      >>> symbolic_dim_bounds(b), symbolic_dim_bounds(2 * b - 1), symbolic_dim_bounds(3)
      ((1, 8), (1, 15), (3, 3))
    """
    if is_symbolic(dimension):
        return bounds(dimension)
    try:
        size = operator.index(dimension)
    except TypeError:
        raise ArgumentTypeError(
            "export.symbolic_dim_bounds", expected="a dimension: an int or a symbolic one", got=repr(dimension),
            mend="take it from the shape of an array",
        ) from None  # fmt: skip
    return size, size


def symbolic_shape(
    shape_spec: str | None,
    *,
    constraints: Sequence[str] = (),
    scope: SymbolicScope | None = None,
    like: Sequence[Any] | None = None,
) -> tuple[Any, ...]:
    """The dimensions that a text spells.

    Args:
      shape_spec: dimensions between commas, made of names, ints, `+ - * ^ ( )` and the functions `floordiv`, `mod`,
        `max`, `min` and `non_negative`; with `like` also `_` for the dimension of `like` at that place and `...` for
        all that are left; None for `like` itself.
      constraints: what is known of the variables, as for `SymbolicScope`.
      scope: where the variables live; by default a new one with the constraints.
      like: the shape that `_` and `...` refer to.

    Returns:
      A tuple of ints and symbolic dimensions.

    Raises:
      ArgumentError: the text is not such a list, or both constraints and a scope are given.

    Examples:
      >>> symbolic_shape("b, 2*b + 1, (b - 1)*(b + 1), floordiv(b, 2), 8")
      (b, 2*b + 1, b^2 - 1, floordiv(b, 2), 8)
      >>> symbolic_shape("b, _, ...", like=(2, 3, 4, 5))
      (b, 3, 4, 5)
    """
    return _shape("symbolic_shape", shape_spec, _scope(constraints, scope), like)


def _shape(where: str, spec: str | None, scope: SymbolicScope, like: Sequence[Any] | None) -> tuple[Any, ...]:
    if spec is None:
        spec = "..."
    if not isinstance(spec, str):
        raise ArgumentTypeError(where, expected="a text such as 'b, 2*b', or None", got=repr(spec), mend="give a text")
    shape = Reader(f"{where}, {spec!r}", spec, scope.variable, None if like is None else tuple(like)).shape()
    if like is not None and len(shape) != len(like):
        raise ArgumentError(
            f"{where}, {spec!r}",
            expected=f"{len(like)} dimensions, as the array has",
            got=str(len(shape)),
            mend="name each dimension, or end with '...'",
        )
    for dim, size in zip(shape, like or shape, strict=True):
        if type(dim) is int and type(size) is int and dim != size:
            raise ArgumentError(
                f"{where}, {spec!r}",
                expected=f"the shape {tuple(like or ())} with some sizes made symbolic",
                got=f"{dim} for a dimension of size {size}",
                mend="write '_' for dimensions that stay as they are",
            )
    return shape


def _scope(constraints: Sequence[str], scope: SymbolicScope | None) -> SymbolicScope:
    if scope is not None and constraints:
        raise ArgumentError(
            "symbolic shapes",
            expected="constraints or a scope",
            got="both",
            mend="give the constraints to SymbolicScope(constraints), or later facts to scope.assume",
        )
    return SymbolicScope(constraints) if scope is None else scope


def symbolic_args_specs(
    args: Any, shapes_specs: Any, constraints: Sequence[str] = (), scope: SymbolicScope | None = None
) -> Any:
    """Stand-ins for arguments, with symbolic shapes, for `export`.

    Args:
      args: a tree of arrays or `ShapeDtypeStruct`s, such as a tuple of arguments.
      shapes_specs: texts as for `symbolic_shape`, or None for the shape as it is; one for all arguments or a tree that
        is a prefix of `args`.
      constraints: what is known of the variables.
      scope: where the variables live; by default one new scope for all arguments.

    Returns:
      The tree of `args` with `ShapeDtypeStruct`s.

    Raises:
      ArgumentError: a text does not fit its argument, which is named by its path.

    Examples:
      >>> import numpy as np
      >>> symbolic_args_specs((np.ones((2, 3), "f4"), np.ones(3, "f4")), ("b, ...", None))
      (ShapeDtypeStruct(shape=(b, 3), dtype=float32), ShapeDtypeStruct(shape=(3,), dtype=float32))
    """
    scope = _scope(constraints, scope)
    leaves, tree = tree_flatten_with_path(args)
    specs = broadcast_prefix(shapes_specs, args, what="shapes_specs", is_leaf=lambda x: x is None)
    found = []
    for (path, x), spec in zip(leaves, specs, strict=True):
        aval = aval_of(x)
        shape = _shape(f"symbolic_args_specs, args{keystr(path)}", spec, scope, aval.shape)
        sharding = x.sharding if isinstance(x, ShapeDtypeStruct) else None
        found.append(ShapeDtypeStruct(shape, aval.dtype, sharding=sharding, weak_type=aval.weak_type))
    return tree_unflatten(tree, found)


def poly_spec(arg_shape: Sequence[Any], arg_dtype: Any, polymorphic_shape: str | None, **options: Any) -> Any:
    """A stand-in for an array of which some dimensions are symbolic: the older spelling of `symbolic_args_specs`.

    Args:
      arg_shape: the shape of the array; None for sizes that the text gives.
      arg_dtype: its dtype.
      polymorphic_shape: a text as for `symbolic_shape`, or None for the shape as it is.
      options: `scope` or `constraints`, as for `symbolic_shape`.

    Returns:
      A `ShapeDtypeStruct`.

    Examples:
      >>> poly_spec((2, 3), "float32", "(b, _)")
      ShapeDtypeStruct(shape=(b, 3), dtype=float32)
    """
    return ShapeDtypeStruct(symbolic_shape(polymorphic_shape, like=arg_shape, **options), arg_dtype)


def poly_specs(args: Any, polymorphic_shapes: Any, **options: Any) -> Any:
    """Stand-ins for arguments: the older spelling of `symbolic_args_specs`.

    Args:
      args, polymorphic_shapes, **options: as in `symbolic_args_specs`.

    Returns:
      A tree of `ShapeDtypeStruct`s.

    Examples:
      >>> import numpy as np
      >>> poly_specs((np.ones((2, 3), np.float32),), "b, ...")
      (ShapeDtypeStruct(shape=(b, 3), dtype=float32),)
    """
    return symbolic_args_specs(args, polymorphic_shapes, **options)
