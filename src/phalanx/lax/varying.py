"""`pvary` and `pcast`: saying that a value which all devices share may differ from now on.

Inside a `shard_map` values are cast by themselves wherever they meet others, so that programs need neither; users of
JAX write them, and transformations do where a cast must stand in the program for the sake of its derivative. Builds on
`named_axes`.
"""

from __future__ import annotations

from typing import Any

from phalanx.core.aval import aval_of
from phalanx.core.errors import ArgumentError
from phalanx.core.primitive import Identity
from phalanx.lax.named_axes import scope_of
from phalanx.tree import tree_map


class PVary(Identity, name="pvary"):
    """`x` itself, which may differ along `axes` from here on: any[*dims] -> any[*dims].

    Its transpose sums the cotangents of all devices, as for every use of a value that they share; running linear
    programs backwards does that by itself.
    """

    def varying(self, held: frozenset, *, axes: tuple) -> frozenset:
        return held.union(axes)


pvary_p = PVary()


def pvary(x: Any, axis_name: Any) -> Any:
    """Mark values as ones that may differ along mesh axes.

    Args:
      x: a tree of arrays.
      axis_name: the name of an axis in scope, or several.

    Returns:
      The same tree. Under `vmap`, and along axes over which the values vary already, nothing happens.

    Raises:
      UnboundAxisError: no such axis is in scope.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> phalanx.vmap(lambda x: lax.pvary(x, "i") + 1, axis_name="i")(phalanx.numpy.arange(2)).tolist()
      [1, 2]
    """
    return _vary("lax.pvary", x, axis_name)


def _vary(where: str, x: Any, axis_name: Any) -> Any:
    scope = scope_of(where, axis_name)

    def one(leaf: Any) -> Any:
        held = aval_of(leaf).varying
        axes = tuple(name for name in scope.axes if name in scope.tracked and name not in held)
        return pvary_p(leaf, axes=axes) if axes else leaf

    return tree_map(one, x)


def pcast(x: Any, axis_name: Any = None, *, to: str) -> Any:
    """Change along which mesh axes values may differ.

    Args:
      x: a tree of arrays.
      axis_name: the name of an axis in scope, or several.
      to: "varying", the only direction in which no device has to ask the others.

    Returns:
      The same tree, as `pvary` gives it.

    Raises:
      UnboundAxisError: no such axis is in scope.
      ArgumentError: another direction.

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
            mend="use psum, pmean or all_gather_invariant to get a value that all devices share",
        )
    return _vary("lax.pcast", x, axis_name)
