"""The public functions of explicit sharding: `reshard`, `auto_axes`, `explicit_axes` and `typeof`.

Over the Explicit axes of a mesh, the sharding of an array is part of its type, and each operation infers the sharding
of its result from the types of its operands. These functions change the sharding of an array, or the types of axes
while a function runs. Builds on `out_sharding`; `phalanx.sharding` re-exports them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core import ArgumentTypeError, ShapedArray, ShardingError, get_aval, state, state_extra
from phalanx.engine.traceback_filtering import api_boundary
from phalanx.lax.sharding.out_sharding import (
    drop_type_sharding,
    find_typed_mesh,
    reshard_p,
    resolve_explicit_sharding,
    set_axis_types,
)
from phalanx.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from phalanx.tree import broadcast_prefix, keystr, tree_flatten, tree_flatten_with_path, tree_unflatten
from phalanx.typing import Array, ArrayLike, AxisName, PyTree, ShardingLike


def typeof(x: ArrayLike) -> ShapedArray:
    """Return the abstract value of an array, a tracer or a scalar: its shape, dtype, weak type and sharding.

    Over the Explicit axes of a mesh, the type includes the sharding of each dimension: `float32[8@x,4]`. The `sharding`
    of any other type has `None` for each dimension, over the mesh in context or a mesh without axes.

    Args:
      x: an array, NumPy data or a Python scalar.

    Returns:
      A `ShapedArray`.

    Raises:
      ArgumentTypeError: `x` is not an array or a scalar.

    Examples:
      >>> import phalanx
      >>> phalanx.typeof(1.0)
      ShapedArray(float32[], weak_type=True)
    """
    return get_aval(x)


def reshard(xs: PyTree, out_shardings: PyTree) -> Any:
    """Change the sharding of arrays over the Explicit axes of a mesh, with communication where needed.

    Args:
      xs: a pytree of arrays.
      out_shardings: a `PartitionSpec` or `NamedSharding` for all arrays, or a pytree prefix of `xs`; None for no
        change. A bare spec is over the mesh in context, or else the one in the type of the array.

    Returns:
      The pytree of arrays whose types have these shardings.

    Raises:
      ShardingError: a spec names an axis that is not Explicit, does not match its array, or has no mesh.
      ArgumentTypeError: a leaf of `out_shardings` is neither a spec nor a sharding.
      TreeError: `out_shardings` is not a prefix of `xs`.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.sharding import AxisType, P, make_mesh, use_mesh
      >>> with use_mesh(make_mesh((1,), ("x",), AxisType.Explicit)):
      ...     phalanx.typeof(reshard(jnp.ones((8, 4)), P("x")))
      ShapedArray(float32[8@x,4])
    """
    leaves, tree = tree_flatten_with_path(xs)
    # None is a leaf here: it keeps the sharding of a whole subtree.
    specs = broadcast_prefix(out_shardings, xs, what="reshard, out_shardings", is_leaf=lambda s: s is None)
    out = [
        x if spec is None else _reshard(x, spec, f"reshard, out_shardings{keystr(path)}")
        for (path, x), spec in zip(leaves, specs, strict=True)
    ]
    return tree_unflatten(tree, out)


def _reshard(x: Array, spec: ShardingLike, where: str, mesh: Mesh | AbstractMesh | None = None) -> Any:
    aval = get_aval(x)
    # A bare spec is over the mesh in context, which may be another one than that of the type: `use_abstract_mesh`.
    target = resolve_explicit_sharding(spec, aval, where, mesh or state.context.mesh or find_typed_mesh([x]))
    if target is not None:
        return reshard_p(x, sharding=target)
    named = spec.spec if isinstance(spec, NamedSharding) else spec
    if named.axes or not named.is_partitions_only:
        raise ShardingError(
            where,
            expected="a spec over Explicit axes of a mesh",
            got=f"{spec}, over a mesh of which no axis is Explicit",
            fix="use with_sharding_constraint, or make the mesh with axis_types=AxisType.Explicit",
        )
    return drop_type_sharding(x)  # Over axes that are not Explicit, types have no sharding.


def auto_axes(
    f: Callable | None = None, /, *, axes: str | Sequence[str] | None = None, out_sharding: PyTree = None
) -> Any:
    """Run a function with mesh axes Auto, so that the compiler chooses the shardings over them inside the function.

    This is the escape hatch for operations whose result sharding cannot be inferred from the types of the operands.

    Args:
      f: a function of arrays. If None, `auto_axes` returns a decorator.
      axes: the axes; all axes of the mesh if None.
      out_sharding: a `PartitionSpec` or `NamedSharding` of the results over the mesh outside the function, or a pytree
        prefix of the result. May be passed to the returned function instead.

    Returns:
      The function.

    Raises:
      ArgumentTypeError: `out_sharding` is missing.
      ShardingError: there is no mesh in context, or `out_sharding` does not match a result.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.sharding import AxisType, P, make_mesh, use_mesh
      >>> with use_mesh(make_mesh((1,), ("x",), AxisType.Explicit)):
      ...     phalanx.typeof(auto_axes(jnp.cumsum, out_sharding=P("x"))(reshard(jnp.ones(8), P("x"))))
      ShapedArray(float32[8@x])
    """
    if f is None:
        return functools.partial(auto_axes, axes=axes, out_sharding=out_sharding)
    return _with_axis_types(f, axes, AxisType.Auto, "auto_axes", "out_sharding", out_sharding)


def explicit_axes(
    f: Callable | None = None, /, *, axes: str | Sequence[str] | None = None, in_sharding: PyTree = None
) -> Any:
    """Run a function with mesh axes Explicit, so that types inside the function include the sharding over them.

    Args:
      f: a function of arrays. If None, `explicit_axes` returns a decorator.
      axes: the axes; all axes of the mesh if None.
      in_sharding: a `PartitionSpec` of the arguments, or a pytree prefix of the tuple of arguments. May be passed to
        the returned function instead.

    Returns:
      The function. The compiler chooses the shardings of its results.

    Raises:
      ArgumentTypeError: `in_sharding` is missing.
      ShardingError: there is no mesh in context, or `in_sharding` does not match an argument.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.sharding import AxisType, P, make_mesh, use_mesh
      >>> def f(x):
      ...     print(phalanx.typeof(x))
      ...     return x
      >>> with use_mesh(make_mesh((1,), ("x",), AxisType.Auto)):
      ...     y = explicit_axes(f, in_sharding=P("x"))(jnp.ones(8))
      float32[8@x]
    """
    if f is None:
        return functools.partial(explicit_axes, axes=axes, in_sharding=in_sharding)
    return _with_axis_types(f, axes, AxisType.Explicit, "explicit_axes", "in_sharding", in_sharding)


def _with_axis_types(
    f: Callable, axes: str | Sequence[AxisName] | None, kind: AxisType, name: str, keyword: str, given: PyTree
) -> Callable:
    """Run `f` with axes of another type; `given` shards its results, or its arguments if the axes become Explicit."""

    @api_boundary
    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        spec = kwargs.pop(keyword, given)
        if spec is None:
            raise ArgumentTypeError(
                name, expected=f"{keyword}, which has no default", got="None", fix=f"pass {keyword}=PartitionSpec(...)"
            )
        # The mesh inside is the mesh outside with other axis types, so that both have the same devices.
        outer = _current_mesh(args, kwargs)
        if outer is None and not any(s.axes for s in tree_flatten(spec)[0]):
            return f(*args, **kwargs)  # Without a mesh, no axis has a type to change.
        if outer is None:
            raise ShardingError(name, expected="a mesh in context", got="none", fix="call it after set_mesh(mesh)")
        inner = set_axis_types(
            outer, outer.axis_names if axes is None else (axes,) if isinstance(axes, str) else axes, kind
        )
        # With axes that become Auto the arguments lose their shardings in the types, and the results need one; with
        # axes that become Explicit it is the other way round.
        entering, leaving = (None, spec) if kind is AxisType.Auto else (spec, None)
        positional = _over(inner, args, entering, f"{name}, {keyword}")
        named = _over(inner, kwargs, None, name)
        with state_extra(mesh=inner):
            out = f(*positional, **named)
        return _over(outer, out, leaving, f"{name}, {keyword}")

    return call


def _over(mesh: Mesh | AbstractMesh, tree: PyTree, specs: PyTree, where: str) -> Any:
    """Reshard the arrays of a pytree to types over `mesh`: to `specs`, or to their present sharding if None."""
    leaves, structure = tree_flatten(tree)
    if specs is not None:
        wanted = broadcast_prefix(specs, tree, what=where)
        wanted = [s.spec if isinstance(s, NamedSharding) else s for s in wanted]
        return tree_unflatten(structure, [_reshard(x, s, where, mesh) for x, s in zip(leaves, wanted, strict=True)])
    explicit = set(mesh.explicit_axes)
    out = []
    for x in leaves:
        held = get_aval(x).type_sharding
        if held is not None and held.mesh is not mesh.abstract_mesh:
            # Only axes that are Explicit in the new mesh remain in the type.
            x = reshard_p(x, sharding=NamedSharding(mesh, held.spec.select_axes(explicit, get_aval(x).ndim)))
        out.append(x)
    return tree_unflatten(structure, out)


def _current_mesh(args: tuple, kwargs: dict) -> Mesh | AbstractMesh | None:
    """Return the mesh in context, or the mesh in the type of the first argument that has one."""
    mesh = state.context.mesh
    found = find_typed_mesh(tree_flatten((args, kwargs))[0])
    if found is not None:
        # The mesh in context has concrete devices, which an abstract mesh in a type may lack.
        return mesh if mesh is not None and mesh.abstract_mesh is found else found
    return None if mesh is None or mesh.empty else mesh
