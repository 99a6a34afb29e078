"""Explicit sharding: what the types of operands say of the shardings of results.

Over the Explicit axes of a mesh a sharding is part of an array's type. `follow` reads off the dimension roles of a
primitive where each split dimension goes, and refuses what has no one answer; `core.primitive.result_of` calls it for
operations on such types. A primitive whose roles do not tell all says the shardings in its own `result` rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.core.aval import split_dims
from phalanx.core.errors import RuleError, ShardingError
from phalanx.sharding.shardings import NamedSharding
from phalanx.sharding.spec import PartitionSpec

RESHARD = "reshard an operand with phalanx.reshard, or say how the result lies by out_sharding= where there is one"


def follow(primitive: Any, avals: Sequence[Any], params: dict) -> Any:
    """The result types of an operation, some operands of which have a sharding in their types.

    Raises:
      ShardingError: the operands lie over different meshes, or do not tell how a result lies.
    """
    mesh = common_mesh(primitive.name, avals)
    found = primitive.result(*[a.unsharded() for a in avals], **params)
    results = list(found) if primitive.multiple else [found]
    if any(axes for a in avals if a.sharding is not None for axes in a.sharding.spec.dims):
        dims = _Flow(primitive, avals, params, mesh).results(results)
    else:
        dims = [((),) * len(y.shape) for y in results]
    typed = [with_axes(y, mesh, d) for y, d in zip(results, dims, strict=True)]
    return typed if primitive.multiple else typed[0]


def common_mesh(name: str, avals: Sequence[Any]) -> Any:
    """The mesh over which the typed operands of an operation lie; None where there are none.

    Raises:
      ShardingError: there are two.
    """
    mesh = None
    for a in avals:
        if a.sharding is None or a.sharding.mesh is mesh:
            continue
        if mesh is not None:
            raise ShardingError(
                name,
                expected=f"operands over one mesh, {mesh}",
                got=f"{shown(avals)}, one of them over {a.sharding.mesh}",
                mend="bring them to one mesh with phalanx.reshard(x, NamedSharding(mesh, spec))",
            )
        mesh = a.sharding.mesh
    return mesh


def with_axes(aval: Any, mesh: Any, dims: Sequence[tuple]) -> Any:
    """A type whose dimensions are split over these axes of a mesh."""
    return aval.update(sharding=NamedSharding(mesh, PartitionSpec.of_dims(dims)))


def shown(avals: Sequence[Any]) -> str:
    """Types, for messages."""
    return ", ".join(a.str_short() for a in avals)


def check_results(name: str, avals: Sequence[Any], mesh: Any, result: Any, dims: Sequence[tuple]) -> None:
    """Refuse a result that would be split twice over one axis, or unevenly.

    Args:
      name: the operation.
      avals: the types of its operands.
      mesh: over which they lie.
      result: the type of the result.
      dims: the axes that would split each of its dimensions.
    """
    axes = [axis for axes in dims for axis in axes]
    fits = all(not isinstance(n, int) or n % mesh.num_parts(a) == 0 for n, a in zip(result.shape, dims, strict=True))
    if fits and len(set(axes)) == len(axes):
        return
    raise ShardingError(
        name,
        expected="a result that is split evenly, and over each mesh axis once",
        got=f"{result.unsharded().str_short().split('[')[0]}[{split_dims(result.shape, dims)}] from {shown(avals)}",
        mend=RESHARD,
    )


class _Flow:
    """How the splits of one operation's operands go over into its results.

    Args:
      primitive, avals, params: the operation.
      mesh: over which the operands lie.
    """

    def __init__(self, primitive: Any, avals: Sequence[Any], params: dict, mesh: Any):
        self.name, self.avals, self.mesh = primitive.name, avals, mesh
        try:
            self.roles = primitive.roles(*[a.unsharded() for a in avals], **params)
        except RuleError as error:
            raise self.refused("operands that are not split, since it says nothing of dimensions", "") from error
        self.split: dict[Any, tuple] = {}

    def results(self, results: Sequence[Any]) -> list[tuple]:
        """For each result the axes that split each of its dimensions."""
        for names, aval in zip(self.roles.operands, self.avals, strict=True):
            if aval.sharding is not None:
                for dim, (name, axes) in enumerate(zip(names, aval.sharding.spec.dims, strict=True)):
                    if axes and (self.mesh.num_parts(axes) > 1 or name not in self.roles.whole):
                        self._add(name, axes, aval, dim)
        out = []
        for names, y in zip(self.roles.results, results, strict=True):
            dims = tuple([self.split.get(name, ()) for name in names])
            check_results(self.name, self.avals, self.mesh, y, dims)
            out.append(dims)
        return out

    def _add(self, name: Any, axes: tuple, aval: Any, dim: int) -> None:
        if name in self.roles.resized:
            targets = self.roles.resized[name]
        elif name in self.roles.whole:
            raise self.refused(
                "operands that are whole along each dimension that the operation mixes",
                f", of which {aval.str_short()} is split along dimension {dim}",
            )
        else:
            if name in self.roles.reduced and name in self.split and self.split[name] == axes:
                raise self.refused(
                    "contracted dimensions of which one side is whole, or to be told where the sums go",
                    f", of which both sides are split over {', '.join(map(repr, axes))}",
                )
            targets = (name,)
        for target in targets:
            if self.split.setdefault(target, axes) != axes:
                raise self.refused("dimensions that go together to be split alike", "")

    def refused(self, expected: str, more: str) -> ShardingError:
        """The error that the types of the operands do not tell how the results lie."""
        return ShardingError(self.name, expected=expected, got=shown(self.avals) + more, mend=RESHARD)
