"""`AUTO` in the options of `jit`: which mesh it is for, and the hook through which shardings are chosen.

`phalanx.planning`, a higher layer, chooses them: it solves for them and plans the candidates. The first stage of
compilation asks for a choice when it is lowered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from phalanx.core import Jaxpr, ShardingError, has_refs, state
from phalanx.engine import Hook
from phalanx.runtime import named_sharding
from phalanx.sharding import AbstractMesh, AutoSharding, Mesh, NamedSharding

if TYPE_CHECKING:
    from phalanx.spmd.stages import Traced


class Choice(Protocol):
    """Shardings for a program."""

    program: Jaxpr  # with constraints on values inside
    in_shardings: tuple[Any, ...]
    out_shardings: tuple[Any, ...]


class ShardingChoices(Protocol):
    """What chooses shardings."""

    def choose_shardings(
        self, traced: Traced, mark: AutoSharding, mesh: Mesh | AbstractMesh, given: Sequence[Any]
    ) -> Choice:
        """Choose shardings in the place of AUTO.

        Args:
          traced: the program.
          mark: the first AUTO of its options.
          mesh: the mesh.
          given: for each argument that is not AUTO, the sharding that it has, or None.
        """


sharding_choices = Hook[ShardingChoices]("phalanx.planning.auto_choice")


def find_mark(shardings: Iterable[Any]) -> AutoSharding | None:
    """The first AUTO among shardings."""
    return next((s for s in shardings if isinstance(s, AutoSharding)), None)


def refuse_auto(shardings: Iterable[Any], where: str) -> None:
    """Raise if there is an AUTO among the shardings of a function that another program calls.

    Raises:
      ShardingError: there is one.
    """
    if (mark := find_mark(shardings)) is not None:
        raise ShardingError(
            where,
            expected="shardings or None, since the function is called inside a transformation or another program",
            got=mark,
            fix="write AUTO in the options of the outermost jit, which chooses for all of the program",
        )


def check_no_refs(program: Jaxpr, mark: AutoSharding, where: str) -> None:
    """Raise if a program with AUTO takes mutable array references."""
    if has_refs(program):
        raise ShardingError(
            where,
            expected="a function of arrays, for whose shardings AUTO can solve",
            got=f"{mark} for a function that reads or writes mutable array references",
            fix="pass the arrays and return the new ones, or give shardings",
        )


def find_auto_mesh(program: Jaxpr, shardings: Sequence[Any], where: str) -> Mesh | AbstractMesh:
    """The mesh over which AUTO chooses shardings.

    Args:
      program: the jaxpr.
      shardings: those of the options, marks among them, and of the arguments.
      where: the function, for errors.

    Raises:
      ShardingError: there is no mesh, or it has Explicit axes.
    """
    marked = [s.mesh for s in shardings if isinstance(s, AutoSharding) and s.mesh is not None]
    inside = (named_sharding(program), named_sharding(program, True))
    placed = [s.mesh for s in (*shardings, *inside) if isinstance(s, NamedSharding)]
    mesh = next(iter((*marked, *placed, state.context.mesh)), None)
    if mesh is None or mesh.empty:
        raise ShardingError(
            where,
            expected="a mesh, over which AUTO chooses shardings",
            got="no mesh in context, nor one of another sharding",
            fix="write AUTO(mesh), or call the function inside `with mesh:` or after set_mesh(mesh)",
        )
    if mesh.explicit_axes or mesh.manual_axes:
        raise ShardingError(
            where,
            expected="a mesh whose axes are Auto, since AUTO chooses shardings after tracing",
            got=str(mesh),
            fix="make the mesh with axis_types=AxisType.Auto",
        )
    return mesh
