"""`pvary` and `pcast`: mark a value shared by all devices as varying over mesh axes, inside a `shard_map`.

Values are marked automatically where an operation mixes them with varying ones, so programs need neither function.
They exist for programs written for JAX, and for transformations that need the cast in a jaxpr, since its transpose is
a sum over devices.
"""

from __future__ import annotations

from typing import Any

from phalanx.core import ArgumentError, Identity, get_aval
from phalanx.lax.collectives.named_axes import resolve_axis_names
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
        # A cast along an axis over which the value varies already would only add an equation.
        new = scope.tracked - get_aval(leaf).varying
        axes = tuple(name for name in scope.axes if name in new)
        return pvary_p(leaf, axes=axes) if axes else leaf

    return tree_map(one, x)


def pcast(x: PyTree, axis_name: AxisName = None, *, to: str) -> PyTree:
    """Change the mesh axes over which values vary.

    Args:
      x: a pytree of arrays.
      axis_name: the name of an axis in scope, or several.
      to: "varying"; the other direction requires communication, for example `psum`.

    Returns:
      The same values, as `pvary` returns them.

    Raises:
      UnboundAxisError: no axis of this name is in scope.
      ArgumentError: `to` is not "varying".

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> phalanx.vmap(lambda x: lax.pcast(x, "i", to="varying"), axis_name="i")(
      ...     phalanx.numpy.arange(2)
      ... ).tolist()
      [0, 1]
    """
    if to != "varying":
        raise ArgumentError(
            "lax.pcast to",
            expected="'varying'",
            got=repr(to),
            fix="use psum, pmean or all_gather_invariant to get a value that all devices share",
        )
    return _vary("lax.pcast", x, axis_name)
