"""Explicit sharding as users write it: `reshard`, `auto_axes`, `explicit_axes` and `typeof`.

Builds on the primitive in `explicit`; `phalanx.sharding` shows it, by the seat that it keeps. Over the Explicit axes of
a mesh, the sharding of an array is part of its type (`phalanx.typeof`), and each operation tells that of its result
from those of its operands. These functions change it, and the types of axes for the length of a function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.config import state, state_extra
from phalanx.core.errors import ArgumentTypeError, ShardingError
from phalanx.engine.frames import boundary
from phalanx.lax.explicit import explicit_target, reshard_p, retyped
from phalanx.sharding import AxisType, NamedSharding, PartitionSpec, explicit
from phalanx.tree import broadcast_prefix, keystr, tree_flatten, tree_flatten_with_path, tree_unflatten


def typeof(x: Any) -> ShapedArray:
    """The abstract value of an array, a tracer or a scalar: what the system knows of it before it has data.

    Over the Explicit axes of a mesh a type also tells which dimensions are split: `float32[8@x,4]`. With such a mesh in
    force, the type of a value that no axis splits says so too, in its `sharding`.

    Args:
      x: an array, NumPy data or a Python scalar.

    Returns:
      A `ShapedArray`.

    Raises:
      ArgumentTypeError: `x` is none of these.

    Examples:
      >>> import phalanx
      >>> phalanx.typeof(1.0)
      ShapedArray(float32[], weak_type=True)
    """
    aval, mesh = aval_of(x), state.context.mesh
    if mesh is None or not mesh.explicit_axes or aval.sharding is not None:
        return aval
    return aval.update(sharding=NamedSharding(mesh, PartitionSpec()).as_type(aval.ndim))


def reshard(xs: Any, out_shardings: Any) -> Any:
    """Arrays split another way over the Explicit axes of a mesh; moves data where it has to.

    Args:
      xs: a tree of arrays.
      out_shardings: a `PartitionSpec` or `NamedSharding` for all of them, or a tree of them that is a prefix of `xs`;
        None leaves an array as it is. A bare spec is over the mesh of the array's type, or else the mesh in force.

    Returns:
      The same tree of arrays, whose types have these shardings.

    Raises:
      ShardingError: a spec names an axis that is not Explicit, does not fit its array, or has no mesh to be over.
      ArgumentTypeError: a leaf of `out_shardings` is no spec and no sharding.
      TreeError: `out_shardings` is no prefix of `xs`.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.sharding import AxisType, P, make_mesh, use_mesh
      >>> with use_mesh(make_mesh((1,), ("x",), AxisType.Explicit)):
      ...     phalanx.typeof(reshard(jnp.ones((8, 4)), P("x")))
      ShapedArray(float32[8@x,4])
    """
    leaves, tree = tree_flatten_with_path(xs)
    specs = broadcast_prefix(out_shardings, xs, what="reshard, out_shardings", is_leaf=lambda s: s is None)
    out = [
        x if spec is None else _resharded(x, spec, f"reshard, out_shardings{keystr(path)}")
        for (path, x), spec in zip(leaves, specs, strict=True)
    ]
    return tree_unflatten(tree, out)


def _resharded(x: Any, spec: Any, where: str, mesh: Any = None) -> Any:
    aval = aval_of(x)
    target = explicit_target(spec, aval, where, mesh or _mesh_of(x, aval))
    if target is None:
        raise ShardingError(
            where,
            expected="a spec over Explicit axes of a mesh",
            got=f"{spec}, over a mesh of which no axis is Explicit",
            mend="use with_sharding_constraint, or make the mesh with axis_types=AxisType.Explicit",
        )
    return reshard_p(x, sharding=target)


def _mesh_of(x: Any, aval: ShapedArray) -> Any:
    """The mesh that an array's type is over, with its devices where they are known."""
    if aval.sharding is None:
        return None
    held = getattr(x, "sharding", None)
    return held.mesh if isinstance(held, NamedSharding) else aval.sharding.mesh


def auto_axes(
    f: Callable | None = None, /, *, axes: str | Sequence[str] | None = None, out_sharding: Any = None
) -> Any:
    """Run a function with axes of the mesh Auto: the compiler decides how what is inside is split over them.

    The way out where the types of operands do not tell how a result lies.

    Args:
      f: a function of arrays. Left out, `auto_axes` gives a decorator.
      axes: the axes, all of the mesh if not given.
      out_sharding: a `PartitionSpec` or `NamedSharding` for the results, over the mesh as it is outside, or a tree of
        them that is a prefix of the result. May be given at the call instead.

    Returns:
      The function.

    Raises:
      ArgumentTypeError: `out_sharding` was given nowhere.
      ShardingError: there is no mesh, or `out_sharding` does not fit a result.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.sharding import AxisType, P, make_mesh, use_mesh
      >>> with use_mesh(make_mesh((1,), ("x",), AxisType.Explicit)):
      ...     phalanx.typeof(auto_axes(jnp.cumsum, out_sharding=P("x"))(reshard(jnp.ones(8), P("x"))))
      ShapedArray(float32[8@x])
    """
    if f is None:
        return functools.partial(auto_axes, axes=axes, out_sharding=out_sharding)
    return _switching(f, axes, AxisType.Auto, "auto_axes", "out_sharding", out_sharding)


def explicit_axes(
    f: Callable | None = None, /, *, axes: str | Sequence[str] | None = None, in_sharding: Any = None
) -> Any:
    """Run a function with axes of the mesh Explicit: how what is inside is split over them stands in its type.

    Args:
      f: a function of arrays. Left out, `explicit_axes` gives a decorator.
      axes: the axes, all of the mesh if not given.
      in_sharding: a `PartitionSpec` for the arguments, or a tree of them that is a prefix of the tuple of arguments.
        May be given at the call instead.

    Returns:
      The function; how its results are split is left to the compiler again.

    Raises:
      ArgumentTypeError: `in_sharding` was given nowhere.
      ShardingError: there is no mesh, or `in_sharding` does not fit an argument.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.sharding import AxisType, P, make_mesh, use_mesh
      >>> def f(x):
      ...     print(phalanx.typeof(x))
      ...     return x
      >>> with use_mesh(make_mesh((1,), ("x",), AxisType.Auto)):
      ...     y = explicit_axes(f, in_sharding=P("x"))(jnp.ones(8))
      f32[8@x]
    """
    if f is None:
        return functools.partial(explicit_axes, axes=axes, in_sharding=in_sharding)
    return _switching(f, axes, AxisType.Explicit, "explicit_axes", "in_sharding", in_sharding)


def _switching(f: Callable, axes: Any, kind: AxisType, name: str, keyword: str, given: Any) -> Callable:
    """`f` with axes of another type; `given` is for its results, or if they become Explicit, its arguments."""

    @boundary
    @functools.wraps(f)
    def switched(*args: Any, **kwargs: Any) -> Any:
        spec = kwargs.pop(keyword, given)
        if spec is None:
            raise ArgumentTypeError(
                name, expected=f"{keyword}, which has no default", got="None", mend=f"pass {keyword}=PartitionSpec(...)"
            )
        outer = _current_mesh(args, kwargs, name)
        inner = retyped(outer, outer.axis_names if axes is None else (axes,) if isinstance(axes, str) else axes, kind)
        entering, leaving = (None, spec) if kind is AxisType.Auto else (spec, None)
        positional = _over(inner, args, entering, f"{name}, {keyword}")
        named = _over(inner, kwargs, None, name)
        with state_extra(mesh=inner):
            out = f(*positional, **named)
        return _over(outer, out, leaving, f"{name}, {keyword}")

    return switched


def _over(mesh: Any, tree: Any, specs: Any, where: str) -> Any:
    """The arrays of a tree with types over this mesh: split as given or, if nothing is, as they are."""
    leaves, structure = tree_flatten(tree)
    if specs is not None:
        wanted = broadcast_prefix(specs, tree, what=where)
        wanted = [s.spec if isinstance(s, NamedSharding) else s for s in wanted]
        return tree_unflatten(structure, [_resharded(x, s, where, mesh) for x, s in zip(leaves, wanted, strict=True)])
    explicit = set(mesh.explicit_axes)
    out = []
    for x in leaves:
        held = aval_of(x).sharding
        if held is not None and held.mesh is not mesh.abstract_mesh:
            dims = [tuple([a for a in axes if a in explicit]) for axes in held.spec.dims]
            x = reshard_p(x, sharding=NamedSharding(mesh, PartitionSpec.of_dims(dims)))
        out.append(x)
    return tree_unflatten(structure, out)


def _current_mesh(args: tuple, kwargs: dict, where: str) -> Any:
    """The mesh in force, or that of the first argument over one."""
    mesh = state.context.mesh
    for x in tree_flatten((args, kwargs))[0]:
        sharding = aval_of(x).sharding
        if sharding is not None:
            found = _mesh_of(x, aval_of(x))
            return mesh if mesh is not None and mesh.abstract_mesh is found else found
    if mesh is None or mesh.empty:
        raise ShardingError(where, expected="a mesh in force", got="none", mend="call it after set_mesh(mesh)")
    return mesh


explicit.take(auto_axes=boundary(auto_axes), explicit_axes=boundary(explicit_axes), reshard=boundary(reshard))
