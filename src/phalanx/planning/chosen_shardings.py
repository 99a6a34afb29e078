"""The shardings that AUTO chose in one program, with the plans of all candidates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from phalanx.core import Jaxpr
from phalanx.planning.plan_record import Plan
from phalanx.sharding import NamedSharding
from phalanx.tree import PyTreeDef, tree_unflatten


@dataclass(frozen=True, eq=False)
class AutoChoice:
    """Shardings in the place of AUTO in one program. The printed form is a table of the candidates.

    Args:
      name: the name of the candidate that was chosen.
      program: the jaxpr, with constraints on values inside it.
      in_shardings, out_shardings: the sharding of each leaf. None is left to the compiler.
      in_tree, out_tree: the structures of `(args, kwargs)` and of the results.
      num_constraints: how many values inside the program have a constraint.
      plans: the plan of each candidate; the time of a run decides among those that fit into the memory. If compilers
        differ, those of the compiler of `plan` decide, and XLA for CPUs found the others to be slower.
      limit: the bytes that a device may need; None for no limit.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.sharding import AUTO, Mesh
      >>> mesh = Mesh(phalanx.devices()[:2], ("x",))
      >>> x = phalanx.ShapeDtypeStruct((4096, 3), "float32")
      >>> choice = phalanx.jit(jnp.tanh, in_shardings=AUTO(mesh)).lower(x).auto
      >>> choice.in_specs, choice.plan.collectives
      ((P('x',),), no collectives)
    """

    name: str
    program: Jaxpr = field(repr=False)
    in_shardings: tuple[Any, ...] = field(repr=False)
    out_shardings: tuple[Any, ...] = field(repr=False)
    in_tree: PyTreeDef = field(repr=False)
    out_tree: PyTreeDef = field(repr=False)
    num_constraints: int = 0
    plans: Mapping[str, Plan] = field(default_factory=dict)
    limit: float | None = None

    @property
    def in_specs(self) -> Any:
        """The specs of the positional arguments, as a tree. None is left to the compiler."""
        return tree_unflatten(self.in_tree, list(map(_spec_of, self.in_shardings)))[0]

    @property
    def out_specs(self) -> Any:
        """The specs of the results, as a tree. None is left to the compiler."""
        return tree_unflatten(self.out_tree, list(map(_spec_of, self.out_shardings)))

    @property
    def plan(self) -> Plan:
        """The plan of the chosen shardings."""
        return self.plans[self.name]

    def to_code(self) -> str:
        """The chosen shardings as options of `jit`, to paste in the place of AUTO under the same mesh.

        Returns:
          The text. Its last line is a comment if values inside the program have constraints, which these options lack:
          with them alone the compiler chooses the shardings inside, and the plan may be another one.

        Examples:
          >>> import phalanx, phalanx.numpy as jnp
          >>> from phalanx.sharding import AUTO, Mesh
          >>> mesh = Mesh(phalanx.devices()[:2], ("x",))
          >>> x = phalanx.ShapeDtypeStruct((4096, 3), "float32")
          >>> print(
          ...     phalanx.jit(jnp.tanh, in_shardings=AUTO(mesh), out_shardings=AUTO(mesh)).lower(x).auto.to_code()
          ... )
          in_shardings=(P('x',),),
          out_shardings=P('x',),
        """
        pairs = (("in_shardings", self.in_specs), ("out_shardings", self.out_specs))
        lines = [f"{name}={specs!r}," for name, specs in pairs]
        if self.num_constraints:
            lines.append(f"# and constraints on {self.num_constraints} values inside, which only AUTO adds")
        return "\n".join(lines)

    def __str__(self) -> str:
        rows = [("candidate", "ms", "sent", "memory")]
        is_rough = False
        for name, plan in self.plans.items():
            differs = plan.compiler != self.plan.compiler
            is_rough |= differs
            cost = f"{'~' * differs}{plan.time.step * 1e3:.3f}" if plan.time else "-"
            mark = " *" if name == self.name else ""
            rows.append((name + mark, cost, f"{plan.collectives.bytes:,}", f"{plan.memory.peak:,}"))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            f"{first:<{widths[0]}}" + "".join(f"  {x:>{n}}" for x, n in zip(rest, widths[1:], strict=True))
            for first, *rest in rows
        ]
        note = ["~ by XLA for CPUs, which found them slower or the same, in the place of the target's compiler"]
        return "\n".join([*lines, *note * is_rough, self.to_code()])


def _spec_of(sharding: Any) -> Any:
    return sharding.spec if isinstance(sharding, NamedSharding) else sharding
