"""The comparison of two plans, such as of two shardings or of two meshes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from phalanx.core import ArgumentTypeError
from phalanx.planning.plan_record import Plan
from phalanx.planning.plan_report import Bytes, Seconds, format_source, format_table, format_title


@dataclass(frozen=True)
class ComparedCollective:
    """The collectives of one kind that one line causes along the same axes, in two plans.

    Args:
      kind: their kind.
      axes: the mesh axes.
      source: the line.
      bytes: of all executions in each plan.
      seconds: of all executions in each plan; None without a target.

    Examples:
      >>> ComparedCollective("all-reduce", ("data",), "train.py:7", (8, 16), (None, None)).bytes
      (8, 16)
    """

    kind: str
    axes: tuple[Any, ...] | None
    source: str
    bytes: tuple[int, int]
    seconds: tuple[float | None, float | None]


@dataclass(frozen=True)
class Comparison:
    """Two plans side by side. The printed form lists what differs, the largest difference first.

    Args:
      plans: the plans.
      collectives: the communication of either plan.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> found = phalanx.plan(jnp.tanh, phalanx.ShapeDtypeStruct((8,), "float32"))
      >>> compare(found, found).collectives
      ()
    """

    plans: tuple[Plan, Plan]
    collectives: tuple[ComparedCollective, ...]

    def __str__(self) -> str:
        a, b = self.plans
        totals: list[tuple[Any, ...]] = [
            (name, Bytes(getattr(a.memory, name)), Bytes(getattr(b.memory, name)))
            for name in ("peak", "arguments", "results", "temporaries")
        ]
        totals.append(("communication", Bytes(a.collectives.bytes), Bytes(b.collectives.bytes)))
        if a.time is not None and b.time is not None:
            totals.append(("time", Seconds(a.time.step), Seconds(b.time.step)))
        rows = [
            (Bytes(c.bytes[0]), Bytes(c.bytes[1]), c.kind, ", ".join(map(str, c.axes or ())), format_source(c.source))
            for c in sorted(self.collectives, key=lambda c: -abs(c.bytes[1] - c.bytes[0]))
        ]
        parts = [f"a: {format_title(a)}", f"b: {format_title(b)}", "", format_table(("", "a", "b"), totals)]
        if rows:
            parts += ["", format_table(("bytes of a", "bytes of b", "kind", "axes", "line"), rows)]
        return "\n".join(parts)


def compare(a: Plan, b: Plan) -> Comparison:
    """Compare two plans of the same program.

    Args:
      a, b: the plans.

    Returns:
      The comparison, with the collectives of both joined by line, kind and axes.

    Raises:
      ArgumentTypeError: `a` or `b` is not a plan.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.sharding import AbstractMesh, P
      >>> x = phalanx.ShapeDtypeStruct((64, 64), "float32")
      >>> small, large = (
      ...     phalanx.plan(jnp.sum, x, mesh=AbstractMesh((n,), ("x",)), in_shardings=P("x")) for n in (2, 16)
      ... )
      >>> [(c.kind, c.bytes) for c in compare(small, large).collectives]
      [('all-reduce', (4, 4))]
    """
    for name, plan in (("a", a), ("b", b)):
        if not isinstance(plan, Plan):
            raise ArgumentTypeError(
                f"compare, argument {name}", expected="a Plan", got=plan, fix="pass results of phalanx.plan"
            )
    found: dict[tuple[Any, ...], list[list[Any]]] = {}
    for side, plan in enumerate((a, b)):
        for c in plan.collectives:
            totals = found.setdefault((c.kind, c.axes, c.source), [[0, None], [0, None]])[side]
            totals[0] += c.bytes * c.executions
            totals[1] = None if c.seconds is None else (totals[1] or 0.0) + c.seconds * c.executions
    compared = (ComparedCollective(*key, *zip(*sides, strict=True)) for key, sides in found.items())
    return Comparison((a, b), tuple(compared))
