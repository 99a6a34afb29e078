"""The stages of a compiled function under their module name: `trace`, `lower`, `compile`, each to be looked at."""

from phalanx.spmd.jit import Jit as Wrapped
from phalanx.spmd.stages import ArgInfo as ArgInfo
from phalanx.spmd.stages import Compiled as Compiled
from phalanx.spmd.stages import Lowered as Lowered
from phalanx.spmd.stages import Traced as Traced

__all__ = ["ArgInfo", "Compiled", "Lowered", "Traced", "Wrapped"]
