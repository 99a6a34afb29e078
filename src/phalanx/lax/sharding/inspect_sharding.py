"""The primitive `inspect_sharding`, which reports the sharding that the compiler chose for a value.

Builds on the callbacks of the partitioner in `engine`; called by `debug.inspect_array_sharding` and
`debug.visualize_array_sharding`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from phalanx.core import Effects, Primitive, RuleError, ShapedArray, ShardingRule, debug_effect, physical_aval
from phalanx.engine import HloSharding
from phalanx.engine.callbacks import emit_sharding_inspection
from phalanx.engine.mlir import ir
from phalanx.runtime import Inspection, LoweringContext, scalar_array, transfer
from phalanx.typing import Array


class InspectSharding(Primitive, name="inspect_sharding", multiple=True):
    """Call `observer(shape, sharding)` when the program is compiled, or immediately if eager: num[*dims] ->."""

    def abstract_eval(self, x: ShapedArray, *, observer: Callable) -> list:
        return []

    def effects(self, x: ShapedArray, *, observer: Callable) -> Effects:
        return frozenset({debug_effect})

    def sharding_rule(self, x: ShapedArray, *, observer: Callable) -> ShardingRule:
        return ShardingRule([range(x.ndim)], [])

    def run(self, x: Array, *, observer: Callable) -> list:
        array = scalar_array(x)
        observer(array.shape, getattr(array, "sharding", None) or transfer.default_sharding())
        return []

    def lower(self, ctx: LoweringContext, x: ir.Value, *, observer: Callable) -> list:
        manual = ctx.module.manual
        if not (manual is None or manual.is_whole):
            raise RuleError(
                "inspect_array_sharding inside a shard_map over some of the axes",
                expected="a value that the compiler partitions over all axes of the mesh, or over none",
                got=f"the shard of one device along {', '.join(sorted(map(str, manual.axes)))}, "
                f"{ctx.avals_in[0].str_short()}",
                fix="inspect the arguments and results of the shard_map",
            )
        # With one partition there is no partitioner to ask: the sharding is known when compilation ends.
        inspection = Inspection(observer, physical_aval(ctx.avals_in[0]).shape)
        ctx.module.inspections.append(inspection)
        if manual is not None:
            inspection.notify(HloSharding.replicate())  # each device has the complete shard of its own
        elif ctx.module.num_partitions > 1:
            emit_sharding_inspection(x, inspection.notify)
        return []

    def jvp(self, primals: Sequence[Array], tangents: Sequence[Array], *, observer: Callable) -> tuple:
        return self(*primals, observer=observer), []

    def batch(self, x: Array, b: int, *, observer: Callable) -> tuple:
        return self(x, observer=observer), []


inspect_sharding_p = InspectSharding()
