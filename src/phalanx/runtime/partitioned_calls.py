"""Calls that the partitioner asks us how to split: how they are emitted, and how its questions reach who answers.

Each kind of call has a target. A call says by a rule of Shardy's how shardings spread over it; when XLA comes to it,
its operation says what each device runs. Builds on `engine.partitioner`; `pieces` and `spmd.custom_partitioning` have
one kind each, and the kernels of `lax.linalg` spread shardings by the same rules.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from phalanx.core.aval import ShapedArray
from phalanx.core.config import Context, state
from phalanx.engine import partitioner
from phalanx.engine.mlir import i32, ir, sdy
from phalanx.runtime import dynamic


class Operation(Protocol):
    """What the questions about a call are answered from, and the context that it was called in."""

    context: Context

    def split(self, operands: Sequence[Any], results: Sequence[Any]) -> partitioner.Split:
        """Say how the call is split, by how its operands and results lie for XLA."""


class PartitionedCalls:
    """The calls of one kind.

    Args:
      target: the name by which XLA knows the kind.
    """

    def __init__(self, target: str):
        self.target = target
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
        rule: Any,
    ) -> list:
        """Emit a call.

        Args:
          ctx: where the program is emitted.
          text: what the call is known by; calls of one text are answered from one operation.
          operation: what it is answered from.
          operands: IR values.
          results: the types of the results.
          rule: how shardings spread over it, of `spread`.

        Returns:
          The results as IR values.
        """
        module = ctx.module
        with self._lock:
            operation = self._operations.setdefault(text, operation)
            if module.is_here and module.platform not in self._platforms:
                partitioner.register(self.target, module.platform, self._split)
                self._platforms.add(module.platform)
        module.keep_alive.append(operation)
        attributes = {
            "backend_config": ir.StringAttr.get(text),
            "api_version": i32(2),
            "has_side_effect": ir.BoolAttr.get(False),
            "sdy.sharding_rule": rule,
        }
        return dynamic.custom_call(ctx, self.target, operands, results, attributes)

    def _split(self, text: str, operands: Sequence[Any], results: Sequence[Any]) -> partitioner.Split:
        operation = self._operations[text]
        outer, state.context = state.context, operation.context  # This thread is XLA's.
        try:
            return operation.split(operands, results)
        finally:
            state.context = outer


def spread(
    tensors: Sequence[Sequence[Sequence[Hashable]]],
    num_operands: int,
    sizes: Mapping[Any, int],
    **special: Iterable[Hashable],
) -> Any:
    """A rule of Shardy's: dimensions with a factor in common are split alike.

    Args:
      tensors: for each operand and then each result, the names of the factors of each dimension.
      num_operands: how many of these are operands.
      sizes: that of each factor.
      **special: the names that Shardy's options of these names are about, such as `need_replication_factors`.

    Returns:
      The attribute.
    """
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
