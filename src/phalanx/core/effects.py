"""Effects: what a program does besides computing its results.

An effect is an interned tag. Ordered effects are threaded through a program by tokens when it is lowered; the others
only keep an equation from being dropped or moved out of the program. Primitives state theirs with an `effects` rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Effect:
    """A kind of effect.

    Args:
      name: what it is called in printed programs.
      ordered: whether two of them must happen in program order.
      recomputed: whether rematerialisation may run it again.

    Examples:
      >>> Effect("log", ordered=True).ordered
      True
    """

    name: str
    ordered: bool = False
    recomputed: bool = False

    def __repr__(self) -> str:
        return self.name


Effects = frozenset[Effect]
no_effects: Final[Effects] = frozenset()

io_effect: Final = Effect("IO")
ordered_io_effect: Final = Effect("OrderedIO", ordered=True)
debug_effect: Final = Effect("Debug", recomputed=True)
ordered_debug_effect: Final = Effect("OrderedDebug", ordered=True, recomputed=True)


def ordered(effects: Effects) -> list[Effect]:
    """The ordered ones, in a fixed order."""
    return sorted((e for e in effects if e.ordered), key=lambda e: e.name)
