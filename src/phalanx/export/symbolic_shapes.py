"""Symbolic shapes for users: parsing them from text, and `ShapeDtypeStruct`s with such shapes.

Builds on `symbolic_scope` and `dim_parser`. The shapes then go through `jit` and `export` like any other.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from phalanx.core import ArgumentError, ArgumentTypeError, ConversionError, ShapeDtypeStruct, get_aval
from phalanx.export.dim_parser import DimParser
from phalanx.export.symbolic_scope import SymbolicScope
from phalanx.symbolic import bounds, is_symbolic
from phalanx.tree import broadcast_prefix, keystr, tree_flatten_with_path, tree_unflatten
from phalanx.typing import DimSize, DTypeLike, PyTree


def is_symbolic_dim(p: object) -> bool:
    """Whether a dimension is symbolic and not an int.

    Args:
      p: a dimension of a shape.

    Returns:
      A bool.

    Examples:
      >>> from phalanx import export
      >>> b, three = export.symbolic_shape("b, 3")
      >>> is_symbolic_dim(b), is_symbolic_dim(three)
      (True, False)
    """
    return is_symbolic(p)


def symbolic_dim_bounds(dimension: DimSize) -> tuple[float, float]:
    """The smallest and largest size that a dimension may have under the constraints of its scope.

    Args:
      dimension: a dimension of a shape.

    Returns:
      Both bounds; infinite where no constraint gives one. The bounds of an int are the int itself.

    Raises:
      ArgumentTypeError: `dimension` is neither an int nor symbolic.

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
            "export.symbolic_dim_bounds",
            expected="a dimension: an int or a symbolic one",
            got=repr(dimension),
            fix="pass an entry of a shape, such as x.shape[0]",
        ) from None
    return size, size


def symbolic_shape(
    shape_spec: str | None,
    *,
    constraints: Sequence[str] = (),
    scope: SymbolicScope | None = None,
    like: Sequence[DimSize | None] | None = None,
) -> tuple[DimSize, ...]:
    """Parse a shape with symbolic dimensions.

    Args:
      shape_spec: dimensions separated by commas. A dimension is made of names, ints, `+ - * ^ ( )` and the functions
        `floordiv`, `mod`, `max`, `min` and `non_negative`. With `like`, `_` copies the dimension of `like` at that
        position, `...` copies all remaining ones, and None copies the whole shape.
      constraints: constraints on the variables, as for `SymbolicScope`.
      scope: the scope of the variables; by default a new one with the constraints.
      like: the shape that `_` and `...` refer to.

    Returns:
      A tuple of ints and symbolic dimensions.

    Raises:
      ArgumentError: the text cannot be parsed, or both constraints and a scope are given.

    Examples:
      >>> symbolic_shape("b, 2*b + 1, (b - 1)*(b + 1), floordiv(b, 2), 8")
      (b, 2*b + 1, b^2 - 1, floordiv(b, 2), 8)
      >>> symbolic_shape("b, _, ...", like=(2, 3, 4, 5))
      (b, 3, 4, 5)
    """
    return _parse_shape("symbolic_shape", shape_spec, _make_scope(constraints, scope), like)


def _parse_shape(
    where: str, spec: str | None, scope: SymbolicScope, like: Sequence[DimSize | None] | None
) -> tuple[DimSize, ...]:
    spec = "..." if spec is None else spec
    if not isinstance(spec, str):
        raise ConversionError(
            where, expected="a string such as 'b, 2*b', or None", got=repr(spec), fix="pass the shape as a string"
        )
    shape = DimParser(f"{where}, {spec!r}", spec, scope.variable, None if like is None else tuple(like)).parse_shape()
    if like is not None and len(shape) != len(like):
        raise ArgumentError(
            f"{where}, {spec!r}",
            expected=f"{len(like)} dimensions, as the array has",
            got=str(len(shape)),
            fix="name each dimension, or end with '...'",
        )
    # A literal size must agree with the array, since `export` would otherwise trace with a wrong shape.
    for dim, size in zip(shape, like or shape, strict=True):
        if type(dim) is int and type(size) is int and dim != size:
            raise ArgumentError(
                f"{where}, {spec!r}",
                expected=f"the shape {tuple(like or ())} with some sizes made symbolic",
                got=f"{dim} for a dimension of size {size}",
                fix="write '_' for dimensions that stay as they are",
            )
    return shape


def _make_scope(constraints: Sequence[str], scope: SymbolicScope | None) -> SymbolicScope:
    if scope is not None and constraints:
        raise ArgumentError(
            "symbolic shapes",
            expected="constraints or a scope",
            got="both",
            fix="pass the constraints to SymbolicScope(constraints), or add inequalities with scope.assume",
        )
    return SymbolicScope(constraints) if scope is None else scope


def symbolic_args_specs(
    args: PyTree, shapes_specs: PyTree, constraints: Sequence[str] = (), scope: SymbolicScope | None = None
) -> PyTree:
    """Replace arguments by `ShapeDtypeStruct`s with symbolic shapes, for `export`.

    Args:
      args: a tree of arrays or `ShapeDtypeStruct`s, such as a tuple of arguments.
      shapes_specs: a text as for `symbolic_shape`, or None to keep the shape; one for all arguments, or a tree that is
        a prefix of `args`.
      constraints: constraints on the variables.
      scope: the scope of the variables; by default one new scope for all arguments.

    Returns:
      The tree of `args` with `ShapeDtypeStruct`s.

    Raises:
      ArgumentError: a text does not fit its argument; the error contains the argument's path.

    Examples:
      >>> import numpy as np
      >>> symbolic_args_specs((np.ones((2, 3), "f4"), np.ones(3, "f4")), ("b, ...", None))
      (ShapeDtypeStruct(shape=(b, 3), dtype=float32), ShapeDtypeStruct(shape=(3,), dtype=float32))
    """
    scope = _make_scope(constraints, scope)
    leaves, tree = tree_flatten_with_path(args)
    specs = broadcast_prefix(shapes_specs, args, what="shapes_specs", is_leaf=lambda x: x is None)
    found = []
    for (path, x), spec in zip(leaves, specs, strict=True):
        aval = get_aval(x)
        shape = _parse_shape(f"symbolic_args_specs, args{keystr(path)}", spec, scope, aval.shape)
        # Only a declared sharding is kept; an array's devices belong to this process.
        sharding = x.sharding if isinstance(x, ShapeDtypeStruct) else None
        found.append(ShapeDtypeStruct(shape, aval.dtype, sharding=sharding, weak_type=aval.weak_type))
    return tree_unflatten(tree, found)


def poly_spec(
    arg_shape: Sequence[DimSize | None], arg_dtype: DTypeLike, polymorphic_shape: str | None, **options: Any
) -> ShapeDtypeStruct:
    """A `ShapeDtypeStruct` with symbolic dimensions for one array; `symbolic_args_specs` is the newer function.

    Args:
      arg_shape: the shape of the array; an entry is None if the text gives the size.
      arg_dtype: its dtype.
      polymorphic_shape: a text as for `symbolic_shape`, or None to keep the shape.
      options: `scope` or `constraints`, as for `symbolic_shape`.

    Returns:
      A `ShapeDtypeStruct`.

    Examples:
      >>> poly_spec((2, 3), "float32", "(b, _)")
      ShapeDtypeStruct(shape=(b, 3), dtype=float32)
    """
    return ShapeDtypeStruct(symbolic_shape(polymorphic_shape, like=arg_shape, **options), arg_dtype)


def poly_specs(args: PyTree, polymorphic_shapes: PyTree, **options: Any) -> PyTree:
    """The older name of `symbolic_args_specs`.

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
