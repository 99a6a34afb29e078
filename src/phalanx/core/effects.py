"""Effects: actions of a jaxpr besides computing its results, such as input and output.

An effect is an interned tag. Lowering threads tokens through a jaxpr to keep ordered effects in order; the other
effects only keep an equation from being dropped or moved. Primitives declare theirs in an `effects` rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, eq=False, repr=False)
class Effect:
    """A kind of effect.

    Args:
      name: the name in printed jaxprs; by default that of the class, for an effect of a subclass.
      ordered: whether two actions with this effect must happen in the order of their equations.
      recomputed: whether rematerialization may run an action again.

    Examples:
      >>> Effect("log", ordered=True).ordered
      True
    """

    name: str = ""
    ordered: bool = False
    recomputed: bool = False

    def __repr__(self) -> str:
        return self.name or type(self).__name__


Effects = frozenset[Effect]
no_effects: Final[Effects] = frozenset()

io_effect: Final = Effect("IO")
ordered_io_effect: Final = Effect("OrderedIO", ordered=True)
debug_effect: Final = Effect("Debug", recomputed=True)
ordered_debug_effect: Final = Effect("OrderedDebug", ordered=True, recomputed=True)
check_effect: Final = Effect("Check", recomputed=True)  # of a check that `checkify` turns into a value


class RefEffect(Effect):
    """An access to a mutable array reference that the jaxpr takes as an input or closes over.

    Examples:
      >>> isinstance(read_effect, RefEffect)
      True
    """

    __slots__ = ()


read_effect: Final = RefEffect("Read")
write_effect: Final = RefEffect("Write")


def ordered(effects: Effects) -> list[Effect]:
    """The ordered ones among `effects`, sorted by name."""
    return sorted((e for e in effects if e.ordered), key=lambda e: e.name)
