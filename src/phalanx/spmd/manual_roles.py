"""Roles of per-device programs: which dimensions of whole arrays a program on pieces treats alike.

Reads on from what `core.roles` finds in the program itself; the primitive of `shard_map` says its roles with this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from phalanx.core.jaxpr import Jaxpr
from phalanx.core.primitive import Roles
from phalanx.core.roles import ProgramWalk


def per_device_roles(
    jaxpr: Jaxpr, ins: Sequence[Sequence[tuple]], outs: Sequence[Sequence[tuple]], *, is_tracked: bool
) -> Roles:
    """The roles of a program that each device runs on its pieces, said of the arrays that these make up.

    A dimension in pieces stays one that can be split where all arrays that have it are in pieces alike, and where the
    devices do nothing with each other's pieces but sum what is left of them.

    Args:
      jaxpr: the program on pieces.
      ins, outs: for each input and result, for each dimension, the mesh axes over which its pieces lie.
      is_tracked: whether types tell what varies over these axes, so that a result that does not vary is summed.
    """
    walk = ProgramWalk(jaxpr)
    ways: dict[tuple, set] = {}  # by class: the axes over which it is in pieces, here or there
    for value, dims in zip((*walk.reads, *walk.gives), (*ins, *outs), strict=True):
        for c, axes in zip(walk.classes.of(value), dims, strict=True):
            ways.setdefault(c, set()).add(axes)
    uses = Counter(axis for found in ways.values() for axis in {a for axes in found for a in axes})
    whole = set()
    for c, found in ways.items():
        axes = next(iter(found))
        is_alike = len(found) == 1 and all(uses[axis] == 1 for axis in axes)
        # Pieces over an axis along which another dimension is in pieces too belong to each other.
        if not is_alike or (axes and (_mixed(walk, c, axes) or (c in walk.reduced and not is_tracked))):
            whole.add(c)
    return walk.roles(whole)


def _mixed(walk: ProgramWalk, held: tuple, axes: tuple) -> bool:
    """Whether members along any of `axes`, each with its piece of a class of dimensions, mix these pieces.

    They do not where all they do together is to sum, over all these axes, what lacks the dimension.
    """
    for eqn, roles, _ in walk.steps:
        if roles.axes.keys().isdisjoint(axes):
            continue
        has_dim = any(held in walk.classes.of((v, v.aval.ndim)) for v in (*eqn.invars, *eqn.outvars))
        if has_dim or any(roles.axes.get(axis) != "sum" for axis in axes):
            return True
    return False
