"""The primitive `inspect_sharding`: tells an observer how a value lies on devices once the compiler has chosen.

Builds on `core` and on the engine's hook into the partitioner; `debug.inspect_array_sharding` and
`debug.visualize_array_sharding` call it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from phalanx.core.aval import ShapedArray
from phalanx.core.effects import Effects, debug_effect
from phalanx.core.errors import RuleError
from phalanx.core.primitive import Primitive, Roles
from phalanx.engine.callbacks import emit_sharding_inspection
from phalanx.runtime import placement
from phalanx.runtime.lowering import Inspection, physical_aval
from phalanx.runtime.placement import scalar_array


class InspectSharding(Primitive, name="inspect_sharding", multiple=True):
    """Calls `observer(shape, sharding)` when a program with it is compiled, or at once: num[*dims] ->."""

    def result(self, x: ShapedArray, *, observer: Callable) -> list:
        return []

    def effects(self, x: ShapedArray, *, observer: Callable) -> Effects:
        return frozenset({debug_effect})

    def roles(self, x: ShapedArray, *, observer: Callable) -> Roles:
        return Roles([range(x.ndim)], [])

    def run(self, x: Any, *, observer: Callable) -> list:
        array = scalar_array(x)
        sharding = getattr(array, "sharding", None) or placement.default_sharding()
        observer(array.shape, sharding)
        return []

    def lower(self, ctx: Any, x: Any, *, observer: Callable) -> list:
        if ctx.module.manual is not None:
            raise RuleError(
                "inspect_array_sharding inside a shard_map",
                expected="a value that the partitioner sees whole",
                got=f"one device's piece, {ctx.avals_in[0].str_short()}",
                mend="inspect the arguments and results of the shard_map",
            )
        aval = physical_aval(ctx.avals_in[0])
        inspection = Inspection(observer, aval.shape)
        ctx.module.inspections.append(inspection)
        if ctx.module.num_partitions > 1:
            emit_sharding_inspection(x, inspection.notify)
        return []

    def jvp(self, primals: Any, tangents: Any, *, observer: Callable) -> tuple:
        return self(*primals, observer=observer), []

    def batch(self, x: Any, b: int, *, observer: Callable) -> tuple:
        return self(x, observer=observer), []


inspect_sharding_p = InspectSharding()
