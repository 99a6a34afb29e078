"""`pvary` and `pcast`: mark a value shared by all devices as varying over mesh axes, inside a `shard_map`.

Values are marked automatically where an operation mixes them with varying ones, so programs need neither function.
They exist for programs written for JAX, and for transformations that need the cast in a jaxpr, since its transpose is
a sum over devices.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.core import ArgumentError, Identity, ShapedArray, get_aval, registry, state
from phalanx.lax.collectives.named_axes import linear_axis_index, resolve_axis_names
from phalanx.lax.elementwise import eq_p, select_n_p
from phalanx.lax.shape import zeros
from phalanx.sharding import NamedSharding, PartitionSpec
from phalanx.tree import tree_map
from phalanx.typing import ArrayLike, AxisName, PyTree


class PVary(Identity, name="pvary"):
    """`x`, marked as varying over `axes`: any[*dims] -> any[*dims].

    Its transpose is a sum of cotangents over devices. The backward pass inserts this sum wherever the cotangent of a
    shared value varies, so the primitive needs no transpose rule of its own.
    """

    def varying(self, held: frozenset, *, axes: tuple) -> frozenset:
        return held.union(axes)


pvary_p = PVary()


def pvary(x: PyTree, axis_name: AxisName) -> PyTree:
    """Mark values as varying over mesh axes.

    Args:
      x: a pytree of arrays.
      axis_name: the name of an axis in scope, or several.

    Returns:
      The same values. Under `vmap`, and along axes over which a value varies already, nothing changes.

    Raises:
      UnboundAxisError: no axis of this name is in scope.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> phalanx.vmap(lambda x: lax.pvary(x, "i") + 1, axis_name="i")(phalanx.numpy.arange(2)).tolist()
      [1, 2]
    """
    return _vary("lax.pvary", x, axis_name)


def _vary(where: str, x: PyTree, axis_name: AxisName) -> Any:
    scope = resolve_axis_names(where, axis_name)

    def one(leaf: ArrayLike) -> Any:
        held = get_aval(leaf)
        if again := frozenset(held.manual_reductions.get("reduced", ())) & scope.tracked:
            reductions = held.mat.update(reduced=held.mat.reduced - again)
            leaf = pcast_p(leaf, mesh=_inner_mesh(), reductions=reductions, over=held.varying | again)
        # A cast along an axis over which the value varies already would only add an equation.
        new = scope.tracked - get_aval(leaf).varying
        axes = tuple(name for name in scope.axes if name in new)
        return pvary_p(leaf, axes=axes) if axes else leaf

    return tree_map(one, x)


class PCast(Identity, name="pcast"):
    """`x`, whose type has other manual axes: any[*dims] -> any[*dims].

    Args:
      reductions: the unreduced and reduced manual axes of the result, and the kind of its terms.
      mesh: the mesh inside the `shard_map`.
      over: the manual axes over which the result varies.
    """

    typed_sharding_rule = True

    def abstract_eval(self, x: ShapedArray, *, mesh: Any, reductions: tuple, over: frozenset) -> ShapedArray:
        return x.update(sharding=_manual_sharding(x, mesh, dict(reductions)))

    def varying(self, held: frozenset, *, over: frozenset, **_: Any) -> frozenset:
        return over

    def transpose(self, y_bar: Any, x: Any, **_: Any) -> tuple:
        # A cotangent that the devices hold terms of is cast back. A shared operand has been used by all devices, so
        # the backward pass adds up the terms of its cotangent.
        is_shared = not x.aval.varying and not x.aval.manual_reductions
        return (y_bar if is_shared else cast_to(y_bar, x.aval),)


pcast_p = PCast()


def assert_reduced(x: ArrayLike, axes: frozenset) -> Any:
    """`x`, which all devices hold the same value of although its type varies, as reduced over `axes`."""
    held = get_aval(x)
    reductions = held.mat.update(reduced=held.mat.reduced | axes)
    return pcast_p(x, mesh=_inner_mesh(), reductions=reductions, over=held.varying - axes) if axes else x


def _manual_sharding(x: ShapedArray, mesh: Any, reductions: dict) -> Any:
    """The sharding of a type over a mesh with manual axes; None if it would not say anything."""
    is_stated = reductions.get("unreduced") or reductions.get("reduced")
    if not is_stated and (x.type_sharding is None or not mesh.explicit_axes):
        return None
    spec = PartitionSpec() if x.type_sharding is None else x.type_sharding.spec
    spec = spec.select_axes(mesh.explicit_axes, x.ndim)
    return NamedSharding(mesh, spec.update(**reductions) if is_stated else spec)


def _inner_mesh() -> Any:
    return state.context.mesh.abstract_mesh


def cast_to(x: ArrayLike, aval: ShapedArray) -> Any:
    """`x` with the manual axes of another type, without communication."""
    wanted = aval.manual_reductions
    if get_aval(x).manual_reductions == wanted and get_aval(x).varying == aval.varying:
        return x
    return pcast_p(x, mesh=_inner_mesh(), reductions=tuple(wanted.items()), over=aval.varying)


def conform_manual(x: ArrayLike, aval: ShapedArray) -> Any:
    """A cotangent with the unreduced and reduced manual axes of a type, by sums over devices where needed."""
    held, wanted = get_aval(x).mat, aval.mat
    # Terms become the sum, except where the result is unreduced too, or varies such that each device keeps its term.
    if summed := held.unreduced - wanted.unreduced:
        x = registry["psum"](x, **resolve_axis_names("psum", _in_order(summed)).params)
    # A value that all devices have is the term of one of them.
    if shared := wanted.unreduced - held.unreduced - held.varying:
        x = _keep_on_first(x, shared)
    if added := held.varying & wanted.reduced:
        x = registry["psum"](x, **resolve_axis_names("psum", _in_order(added)).params)
    held = get_aval(x).mat
    over = held.varying - wanted.unreduced | (held.reduced - wanted.reduced) & wanted.varying
    return cast_to(x, aval.with_varying(over))


def _in_order(axes: frozenset) -> tuple:
    return tuple(name for name in _inner_mesh().axis_names if name in axes)


def _keep_on_first(x: ArrayLike, axes: frozenset) -> Any:
    """`x` on the first device along axes, zeros on the others."""
    scope = resolve_axis_names("pcast", _in_order(axes))
    position = linear_axis_index(scope.axes, scope.sizes, scope.tracked)
    return select_n_p(eq_p(position, np.int32(0)), zeros(get_aval(x)), x)


def pcast(x: PyTree, axis_name: AxisName = None, *, to: str) -> PyTree:
    """Change how the types of values depend on mesh axes, without communication.

    Args:
      x: a pytree of arrays.
      axis_name: the name of an axis in scope, or several.
      to: "varying", for values that are shared or reduced; "unreduced", for varying values, which become the terms of
        a sum; "reduced", for shared values, whose cotangents become unreduced. Other changes require communication,
        such as `psum`.

    Returns:
      The same values. Under `vmap`, and where the type is as requested, nothing changes.

    Raises:
      UnboundAxisError: no axis of this name is in scope.
      ArgumentError: `to` is another word, or the values cannot be cast to it.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> phalanx.vmap(lambda x: lax.pcast(x, "i", to="varying"), axis_name="i")(
      ...     phalanx.numpy.arange(2)
      ... ).tolist()
      [0, 1]
    """
    if to not in ("varying", "unreduced", "reduced"):
        raise ArgumentError(
            "lax.pcast to",
            expected="'varying', 'unreduced' or 'reduced'",
            got=repr(to),
            fix="use psum, pmean or all_gather_invariant to get a value that all devices share",
        )
    if to == "varying":
        return _vary("lax.pcast", x, axis_name)
    axes = resolve_axis_names("lax.pcast", axis_name).tracked
    return tree_map(lambda leaf: _cast_to_reduction(leaf, axes, to), x)


def _cast_to_reduction(x: ArrayLike, axes: frozenset, to: str) -> Any:
    aval = get_aval(x)
    held = aval.mat
    new = axes - getattr(held, to)
    is_ready = new <= held.varying if to == "unreduced" else not new & (held.varying | held.unreduced)
    if not is_ready:
        raise ArgumentError(
            f"lax.pcast to={to!r}",
            expected=f"a value that {'varies over' if to == 'unreduced' else 'is shared along'} {sorted(new)}",
            got=aval.str_short(),
            fix="cast it to 'varying' first" if to == "unreduced" else "combine it with psum or all_gather first",
        )
    reductions = held.update(**{to: getattr(held, to) | axes})
    return pcast_p(x, mesh=_inner_mesh(), reductions=reductions, over=aval.varying - axes) if new else x
