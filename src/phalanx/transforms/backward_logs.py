"""Logs of backward passes: named values that rules of custom derivatives return beside the cotangents.

A rule records them in the collector of its thread, which belongs to the backward pass that runs it. A jaxpr that
transposes another returns the logs of its rules as further outputs; `take_logs` hands them on where it is called, so
that they leave calls and loops. The gradient functions drop them; `f_vjp.with_logs` returns them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from phalanx.core import Jaxpr, RuleError, remove_dead_code, state
from phalanx.tree import register_static, tree_flatten, tree_unflatten


@register_static
@dataclass(frozen=True, slots=True)
class LostLog:
    """The place of a log that cannot leave the operation around its rule.

    Args:
      operation: the name of the operation.
    """

    operation: str


class collect_logs:
    """A block whose rules record their logs in the dict that it gives."""

    __slots__ = ("outer",)

    def __enter__(self) -> dict[Any, Any]:
        self.outer = state.backward_logs
        logs: dict[Any, Any] = {}
        state.backward_logs = logs
        return logs

    def __exit__(self, *exc_info: object) -> None:
        state.backward_logs = self.outer


def record_logs(logs: dict[Any, Any]) -> None:
    """Add logs to the collector; a later one takes the place of an earlier one of the same name."""
    if state.backward_logs is not None:
        state.backward_logs.update(logs)


def append_logs(out: Sequence[Any], logs: dict[Any, Any]) -> tuple[list[Any], Any]:
    """The outputs of a jaxpr with its logs, and the structure of these, None without logs."""
    leaves, tree = tree_flatten(logs)
    return [*out, *leaves], tree if logs else None


def mark_logs(jaxpr: Jaxpr, tree: Any) -> None:
    """Note that the last outputs of a jaxpr are logs."""
    if tree is not None:
        jaxpr.cache["logs"] = tree


def count_logs(jaxpr: Jaxpr) -> int:
    """The number of outputs of a jaxpr that are logs."""
    tree = jaxpr.cache.get("logs")
    return 0 if tree is None else tree.num_leaves


def take_logs(jaxpr: Jaxpr, out: Sequence[Any]) -> list[Any]:
    """The outputs of a call of a jaxpr, or of a loop over it, without the logs, which are recorded."""
    if (tree := jaxpr.cache.get("logs")) is None:
        return list(out)
    end = len(out) - tree.num_leaves
    record_logs(tree_unflatten(tree, out[end:]))
    return list(out[:end])


def drop_logs(jaxpr: Jaxpr, operation: str) -> Jaxpr:
    """A jaxpr without its logs, which cannot leave the operation that calls it."""
    if (tree := jaxpr.cache.get("logs")) is None:
        return jaxpr
    record_logs(dict.fromkeys(tree_unflatten(tree, [None] * tree.num_leaves), LostLog(operation)))
    end = len(jaxpr.outvars) - tree.num_leaves
    return jaxpr.derive("without logs", lambda: remove_dead_code(jaxpr.replace(outvars=jaxpr.outvars[:end])))


def check_logs(where: str, logs: dict[Any, Any]) -> dict[Any, Any]:
    """Return the logs of a backward pass for the user.

    Raises:
      RuleError: a log could not leave an operation.
    """
    for name, log in logs.items():
        if isinstance(log, LostLog):
            raise RuleError(
                where,
                expected="logs of rules outside of branches and of shard_map",
                got=f"the log {name!r} of a rule inside {log.operation}",
                fix="return the value as a result of the function, or call the function outside of that operation",
            )
    return logs
