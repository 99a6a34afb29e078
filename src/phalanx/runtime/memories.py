"""Memories: which values of a program are in another memory of their devices than the default one, where it computes.

`dispatch` asks `result_memories` where a program leaves its results, and `lowering` tells the engine, as it does for
parameters. What moves values inside programs is `transforms.offload`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.core.jaxpr import Jaxpr, Literal, Var
from phalanx.engine.mlir import hlo, i32, ir
from phalanx.sharding import Sharding


def far_kind(sharding: Sharding | None) -> str | None:
    """The memory that a sharding names, if it is not the default one of its devices."""
    if sharding is None or sharding.memory_kind is None:
        return None
    kind = sharding.memory_kind
    return None if kind == sharding._internal_device_list.default_memory_kind else kind


def near(sharding: Sharding) -> Sharding:
    """The same placement in the memory where programs compute."""
    return sharding if far_kind(sharding) is None else sharding.with_memory_kind(None)


def result_memories(program: Jaxpr, held: Sequence[str | None]) -> list[str | None]:
    """For each result of a program the kind of memory it was moved to, None for where programs compute.

    Args:
      program: the program.
      held: where its inputs are.
    """
    where: dict[Var, str | None] = dict(zip(program.invars, held, strict=True))
    look_up = lambda atom: None if type(atom) is Literal else where.get(atom)
    for eqn in program.eqns:
        primitive: Any = eqn.primitive
        if primitive.memories is not None:
            where.update(zip(eqn.outvars, primitive.memories([*map(look_up, eqn.invars)], **eqn.params), strict=True))
    return [look_up(v) for v in program.outvars]


def place_in_memory(x: Any, kind: str) -> Any:
    """Emit that a value is to be in a memory."""
    placed = hlo.CustomCallOp([x.type], [x], call_target_name="annotate_device_placement", has_side_effect=True)
    attributes = {"_xla_buffer_placement": ir.StringAttr.get(kind)}
    placed.operation.attributes["mhlo.frontend_attributes"] = ir.DictAttr.get(attributes)
    placed.operation.attributes["backend_config"] = ir.StringAttr.get("")
    placed.operation.attributes["api_version"] = i32(1)
    return placed.operation.result


def annotate(attributes: Sequence[dict], kinds: Sequence[str | None]) -> Sequence[dict]:
    """Add to the attributes of parameters or results the memories that they are in."""
    for found, kind in zip(attributes, kinds, strict=True):
        if kind is not None:
            found["mhlo.memory_kind"] = ir.StringAttr.get(kind)
    return attributes
