"""Causes of collectives: asked for by the program, implied by a sum over a split dimension, or neither.

Each instruction of a compiled program has the name of the operation that it comes from, which ends with the name of the
primitive. XLA joins the names of collectives that it combines. A collective for several causes has the one that is
least wanted.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cached_property
from typing import Any

from phalanx.core import Eqn, Jaxpr, Primitive, ShardingRule, equation_sharding_rule, iterate_jaxprs, registry
from phalanx.engine.hlo_collectives import Communication
from phalanx.lax.callback import host_callback_p
from phalanx.runtime.compiled_program import LoweredProgram
from phalanx.runtime.lowering import OUT_SHARDINGS
from phalanx.spmd.sharding_conflicts import Conflict, propagate_shardings
from phalanx.transforms.call_primitives import HigherOrder

ASKED, IMPLIED, UNASKED = CAUSES = ("asked", "implied", "unasked")

# The causes that each value of the option `communication` allows.
ALLOWED = {"any": CAUSES, "implied": (ASKED, IMPLIED), "asked": (ASKED,)}

_REDUCTIONS = ("all-reduce", "reduce-scatter")


class CauseFinder:
    """Finds the causes of the collectives of one program.

    Args:
      lowered: the program, which is or was compiled.
      program: its jaxpr, if it is known.
    """

    def __init__(self, lowered: LoweredProgram, program: Jaxpr | None) -> None:
        self.lowered, self.program = lowered, program

    def find(self, c: Communication, axes: Collection[Any]) -> str:
        """Find the cause of a collective.

        Args:
          c: the collective.
          axes: the mesh axes along which it runs.

        Returns:
          "asked" for a named collective and for resharding to a sharding that the program names, "implied" for the sum
          (or other reduction) of the partial results of an operation that reduces a split dimension, else "unasked".
        """
        named = (self._cause_of(c, primitive) for primitive in primitive_names(c.name))
        cause = max(named, key=CAUSES.index)
        return ASKED if cause == UNASKED and self._may_be_asked(c, axes) else cause

    def _cause_of(self, c: Communication, name: str) -> str:
        primitive = registry.get(name)
        if primitive is not None and getattr(primitive, "synchronizes", False):
            return ASKED
        if name == OUT_SHARDINGS or (primitive is not None and primitive.target_shardings is not None):
            # XLA of jaxlib 0.12 also names those so that reshard the result for the operations that read it.
            return UNASKED if c.generated else ASKED
        if c.kind == "all-gather":
            return IMPLIED if name in self._partial and not self._moves_operand(c, name) else UNASKED
        if c.kind not in _REDUCTIONS or primitive is None:
            return UNASKED
        if primitive is host_callback_p:  # One device receives the result of a host function, and has to send it.
            return ASKED
        # Operations that a lowering rule emits are not in the jaxpr.
        return UNASKED if name in self._names - self._reductions else IMPLIED

    def _moves_operand(self, c: Communication, name: str) -> bool:
        """Whether a collective may reshard an operand of an operation of this name."""
        return any(k.may_reshard(c.kind, c.bytes) for k in self._conflicts if k.eqn.primitive.name == name)

    def _may_be_asked(self, c: Communication, axes: Collection[Any]) -> bool:
        """Whether XLA may have inserted a collective before the place where the program asks for a sharding.

        XLA propagates what is asked for backward, and then reshards a value that an earlier operation computes. So it
        is if no operation needs other shardings of its operands than they have. Programs that are lowered with names
        for their requests need no such reasoning.
        """
        if self.lowered.names_requests or self.program is None or not self._has_requests:
            return False
        moved = [k for k in self._conflicts if not k.axes.isdisjoint(axes)]
        return not any(k.may_reshard(c.kind, c.bytes) or k.line == f"{c.file}:{c.line}" for k in moved)

    @cached_property
    def _has_requests(self) -> bool:
        return self.lowered.declares_results or any(eqn.primitive.target_shardings is not None for eqn in self._eqns)

    @cached_property
    def _conflicts(self) -> list[Conflict]:
        assert self.program is not None, "only known programs are analysed"
        operations = propagate_shardings(self.program, self.lowered.in_shardings)
        return [conflict for operation in operations for conflict in operation.conflicts()]

    @cached_property
    def _eqns(self) -> list[Eqn]:
        jaxprs = () if self.program is None else iterate_jaxprs(self.program)
        return [eqn for jaxpr in jaxprs for eqn in jaxpr.eqns]

    @cached_property
    def _names(self) -> set[str]:
        return {eqn.primitive.name for eqn in self._eqns}

    @cached_property
    def _rules(self) -> list[tuple[Primitive, ShardingRule]]:
        return [
            (eqn.primitive, equation_sharding_rule(eqn))
            for eqn in self._eqns
            if not isinstance(eqn.primitive, HigherOrder)
        ]

    @cached_property
    def _reductions(self) -> set[str]:
        """The names of the primitives of the program that reduce a dimension, or combine updates."""
        return {p.name for p, rule in self._rules if rule.reduced or getattr(p, "combines_updates", False)}

    @cached_property
    def _partial(self) -> set[str]:
        """The names of the primitives of the program whose partial results XLA gathers."""
        return {p.name for p, rule in self._rules if rule.partial}


def primitive_names(name: str) -> list[str]:
    """The primitives in the name of an operation, of which combined operations have several.

    Args:
      name: such as "jit(f)/block:0/dot_general" or "jit(f)/(block:0/dot_general:jvp()/reduce_sum)".

    Returns:
      The last component of each name. A colon separates combined names if a primitive is before it; any other one is
      part of the name of a scope.

    Examples:
      >>> primitive_names("jit(f)/(block:0/dot_general:jvp()/reduce_sum)")
      ['dot_general', 'reduce_sum']
    """
    combined = re.search(r"(?:^|/)\((.*)\)$", name)
    parts = combined[1].split(":") if combined else [name]
    *last, end = [part.rpartition("/")[2] for part in parts]
    return [*(name for name in last if name in registry or name == OUT_SHARDINGS), end]
