"""Custom calls that are partitioned by Python: `PartitionedCalls` emits them and answers the partitioner's questions.

Each kind of call has a target name. A call carries a sharding rule for Shardy, by which shardings propagate through it.
When XLA's partitioner comes to the call, it calls back with the shardings that it found, and the call's operation
answers with the program that each device runs. There are three kinds: resharding (`reshard_lowering`), per-shard
lowering (`phalanx.partitioner.per_shard`), and `phalanx.spmd.custom_partitioning`. The kernels of `lax.linalg` use the
sharding rules only.
"""

from __future__ import annotations

import enum
import threading
import weakref
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from phalanx.core import Context, Jaxpr, KeyDtype, ShapedArray, state_extra
from phalanx.engine import custom_call_partitioner, i32, ir, sdy
from phalanx.runtime import dynamic_shapes


class Operation(Protocol):
    """One custom call, with the configuration context in which it was traced."""

    context: Context

    def split(self, operands: Sequence[Any], results: Sequence[Any]) -> custom_call_partitioner.PartitionedCall:
        """Answer how the call is partitioned, given the shardings that XLA has found for its operands and results."""


class PartitionedCalls:
    """The custom calls of one kind.

    Args:
      target: the name of the custom call target, which XLA passes back.
    """

    def __init__(self, target: str):
        self.target = target
        _kinds[target] = self
        self._operations: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        self._platforms: set[str] = set()
        self._lock = threading.Lock()

    def emit(
        self,
        ctx: Any,
        text: str,
        operation: Operation,
        operands: Sequence[Any],
        results: Sequence[ShapedArray],
        rule: ir.Attribute,
    ) -> list:
        """Emit a call.

        Args:
          ctx: the lowering context.
          text: identifies the call; calls with the same text share one operation.
          operation: answers the partitioner's questions.
          operands: IR values.
          results: the types of the results.
          rule: the sharding rule, made by `make_sdy_sharding_rule`.

        Returns:
          The results as IR values.
        """
        module = ctx.module
        with self._lock:
            # Equal calls share an operation, so that its answers are computed once. The table is weak: modules keep the
            # operations alive until they are compiled.
            operation = self._operations.setdefault(text, operation)
            # XLA keeps a registration for the life of the process, so that one for each platform is enough.
            if module.is_attached and module.platform not in self._platforms:
                custom_call_partitioner.register(self.target, module.platform, self.split)
                self._platforms.add(module.platform)
        module.add_keepalive(operation)
        attributes = {
            "backend_config": ir.StringAttr.get(text),
            "api_version": i32(2),
            "has_side_effect": ir.BoolAttr.get(False),
            "sdy.sharding_rule": rule,
        }
        return dynamic_shapes.custom_call(ctx, self.target, operands, results, attributes)

    def split(
        self, text: str, operands: Sequence[Any], results: Sequence[Any]
    ) -> custom_call_partitioner.PartitionedCall:
        """Answer how the call with some text is partitioned, given the shardings found for its operands and results."""
        operation = self._operations[text]
        # XLA calls from one of its threads, but tracing in the callback must use the options of the thread that
        # emitted the call.
        with state_extra(**vars(operation.context)):
            return operation.split(operands, results)


_kinds: dict[str, PartitionedCalls] = {}


def partitioned_targets() -> list[str]:
    """The targets of all kinds of calls."""
    return list(_kinds)


def split_call(
    target: str, text: str, operands: Sequence[Any], results: Sequence[Any]
) -> custom_call_partitioner.PartitionedCall:
    """Answer the question of a partitioner in another process about a call of any kind."""
    return _kinds[target].split(text, operands, results)


def make_sdy_sharding_rule(
    tensors: Sequence[Sequence[Sequence[Hashable]]],
    num_operands: int,
    sizes: Mapping[Any, int],
    **special: Iterable[Hashable],
) -> Any:
    """Make a sharding rule for Shardy, by which dimensions with a common factor are sharded over the same axes.

    Args:
      tensors: for each operand and then for each result, the names of the factors of each dimension.
      num_operands: the number of operands.
      sizes: the size of each factor.
      **special: names of factors for options of Shardy, such as `need_replication_factors`.

    Returns:
      The attribute.
    """
    # Shardy refers to factors by number, in order of first appearance.
    numbers = {name: i for i, name in enumerate(dict.fromkeys(n for t in tensors for d in t for n in d))}
    mappings = [
        sdy.TensorMappingAttr.get([sdy.DimMappingAttr.get([numbers[n] for n in d]) for d in t]) for t in tensors
    ]
    return sdy.OpShardingRuleAttr.get(
        [sizes[name] for name in numbers],
        mappings[:num_operands],
        mappings[num_operands:],
        is_custom=True,
        **{option: sorted(numbers[n] for n in names) for option, names in special.items()},
    )


# Parameters that are printed in full. Functions and other objects print as their names.
_PRINTED_IN_FULL = (bool, int, float, complex, str, bytes, type(None), np.dtype, KeyDtype, np.generic, enum.Enum)


def is_identified_by_text(jaxpr: Jaxpr) -> bool:
    """Whether the text of a jaxpr, by which `PartitionedCalls` identifies a call, determines it."""

    def is_printed(value: object) -> bool:
        if isinstance(value, tuple | frozenset):
            return all(map(is_printed, value))
        return is_identified_by_text(value) if type(value) is Jaxpr else isinstance(value, _PRINTED_IN_FULL)

    return not jaxpr.consts and all(is_printed(value) for eqn in jaxpr.eqns for value in eqn.params.values())
