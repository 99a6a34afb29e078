"""What the partitioner is told, and what it asks us: how the custom calls of one name are split.

Builds on jaxlib's registry of such calls; `runtime.partitioned_calls` registers the answers, which are given while XLA
compiles, and `compiler` asks for the errors that answers ended with.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from jaxlib import _hlo, _jax

from phalanx.engine import client

HloSharding: TypeAlias = _hlo.HloSharding
OpSharding: TypeAlias = _hlo.OpSharding
OpShardingType: TypeAlias = _hlo.OpSharding_Type
"""Kinds of an `OpSharding`: `REPLICATED`, `OTHER` (tiled), `MAXIMAL`, `MANUAL`, `TUPLE`, ..."""


class Split(NamedTuple):
    """How one call is split.

    Args:
      module: the text of the program that each device runs on its pieces; its public function is `main`.
      operands: how the operands must lie.
      results: how the results will lie.
    """

    module: str
    operands: Sequence[HloSharding]
    results: Sequence[HloSharding]


def register(
    target: str, platform: str, split: Callable[[str, Sequence[HloSharding], Sequence[HloSharding]], Split]
) -> None:
    """Tell XLA who splits the custom calls of a name; again for each platform.

    Args:
      target: the name.
      platform: "cpu" or "cuda".
      split: takes a call's configuration, and how its operands and results lie, and says how it is split. It runs on
        a thread of XLA's.
    """

    def partition(_: Any, operands: Any, result_shape: Any, results: Any, config: bytes) -> tuple:
        count = len(result_shape.tuple_shapes()) if result_shape.is_tuple() else 1
        asked = results.tuple_elements() if results.to_proto().type == OpShardingType.TUPLE else [results] * count
        try:
            answer = split(config.decode(), list(operands), asked)
        except Exception as error:
            mark = f"answer {next(_numbers)} to the partitioner failed"
            _failures[mark] = error
            raise RuntimeError(mark) from error
        given = _tuple_of(answer.results) if result_shape.is_tuple() else answer.results[0]
        return answer.module.encode(), list(answer.operands), given

    def unused(*_: Any) -> Any:
        raise NotImplementedError("Shardy propagates along the rule that stands on the call")

    options = {} if platform == "cpu" else {"c_api": client.cuda_plugin().c_api}
    _jax.register_custom_call_partitioner(target, unused, partition, unused, **options)


# The errors of answers, by what XLA's report of a failed compilation says of them: threads compile side by side.
_failures: dict[str, Exception] = {}
_numbers = itertools.count()


def raise_failure(report: Exception) -> None:
    """Raise the error that made a compilation fail, if XLA's report is about one of the answers' own."""
    text = str(report)
    mark = next((mark for mark in list(_failures) if mark in text), None)
    if mark is not None:
        raise _failures.pop(mark) from None


def _tuple_of(shardings: Sequence[HloSharding]) -> HloSharding:
    proto = OpSharding()
    proto.type = OpShardingType.TUPLE
    proto.tuple_shardings = [s.to_proto() for s in shardings]
    return HloSharding.from_proto(proto)
