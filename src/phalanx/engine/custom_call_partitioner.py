"""Callbacks of XLA's partitioner for custom calls.

`register` registers a Python function for all custom calls with one target name. XLA calls it during compilation to
learn how each call is partitioned. An exception in it makes the compilation fail with an error of XLA; `compiler` then
raises the original exception, which `runtime_errors` keeps. Called by `runtime.custom_partitioning_calls`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxlib import _jax
from jaxlib._hlo import (
    HloSharding as HloSharding,
    OpSharding as OpSharding,
    OpSharding_Type as OpShardingType,  # the kinds `REPLICATED`, `OTHER` (tiled), `MAXIMAL`, `MANUAL`, `TUPLE`, ...
)

from phalanx.engine import cuda
from phalanx.engine.runtime_errors import keep_failure

PLATFORMS = ("cpu", "cuda")
"""The platforms whose partitioner can call back. That of TPUs has no interface for it."""


class PartitionedCall(NamedTuple):
    """The answer how one call is partitioned.

    Args:
      module: the text of the module that each device runs on its shards; its public function is `main`.
      operands: the shardings that the operands must have.
      results: the shardings of the results.
    """

    module: str
    operands: Sequence[HloSharding]
    results: Sequence[HloSharding]


def register(
    target: str, platform: str, split: Callable[[str, Sequence[HloSharding], Sequence[HloSharding]], PartitionedCall]
) -> None:
    """Register the partitioning of the custom calls with one target name, for one platform.

    Args:
      target: the target name.
      platform: one of `PLATFORMS`.
      split: takes the configuration of a call and the shardings of its operands and results, and returns how it is
        partitioned. It runs on a thread of XLA.
    """

    def partition(_: Any, operands: Any, result_shape: Any, results: Any, config: bytes) -> tuple:
        count = len(result_shape.tuple_shapes()) if result_shape.is_tuple() else 1
        # XLA passes one sharding for a single result, and a tuple of shardings for several.
        asked = results.tuple_elements() if results.to_proto().type == OpShardingType.TUPLE else [results] * count
        try:
            answer = split(config.decode(), list(operands), asked)
        except Exception as error:
            raise keep_failure(error) from error
        return (
            answer.module.encode(),
            list(answer.operands),
            (_tuple_of(answer.results) if result_shape.is_tuple() else answer.results[0]),
        )

    def unused(*_: Any) -> Any:
        raise NotImplementedError("Shardy propagates shardings by the rule in the call's attributes")

    # A plugin has its own registry of partitioners, which is reached through its C API.
    _jax.register_custom_call_partitioner(
        target, unused, partition, unused, **{} if platform == "cpu" else {"c_api": cuda.plugin().c_api}
    )


def _tuple_of(shardings: Sequence[HloSharding]) -> HloSharding:
    proto = OpSharding()
    proto.type = OpShardingType.TUPLE
    proto.tuple_shardings = [s.to_proto() for s in shardings]
    return HloSharding.from_proto(proto)
