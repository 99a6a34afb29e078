"""Memory kinds: which values of a program are outside the default memory of their devices.

`compiled_program` determines the memory of results with `result_memories`, and `lowering` annotates parameters
and results with theirs. `transforms.offload` moves values between memories inside programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.core import Jaxpr, Literal, Var
from phalanx.engine.mlir import FRONTEND_ATTRIBUTES, i32, ir, to_frontend_attributes
from phalanx.sharding import Sharding


def non_default_memory_kind(sharding: Sharding | None) -> str | None:
    """The memory kind of a sharding, if it is not the default one of its devices."""
    return None if sharding is None else sharding.non_default_memory_kind


def to_default_memory(sharding: Sharding) -> Sharding:
    """The same sharding in the default memory, where programs compute."""
    return sharding if non_default_memory_kind(sharding) is None else sharding.with_memory_kind(None)


def result_memories(program: Jaxpr, held: Sequence[str | None]) -> list[str | None]:
    """The memory kind of each result of a jaxpr, None for the default memory.

    Args:
      program: the jaxpr.
      held: the memory kinds of its inputs.
    """
    where: dict[Var, str | None] = dict(zip(program.invars, held, strict=True))
    look_up = lambda atom: None if type(atom) is Literal else where.get(atom)
    for eqn in program.eqns:
        primitive: Any = eqn.primitive
        # All other operations compute in the default memory, whatever memory their operands are in.
        if primitive.memories is not None:
            where.update(zip(eqn.outvars, primitive.memories([*map(look_up, eqn.invars)], **eqn.params), strict=True))
    return [look_up(v) for v in program.outvars]


def place_in_memory(x: Any, kind: str) -> Any:
    """Emit the annotation that moves a value to a memory."""
    # XLA's pass for host offloading looks for this call, and replaces it by a copy between memories. The side effect
    # keeps earlier passes from dropping the call as an identity.
    attributes = {
        "call_target_name": ir.StringAttr.get("annotate_device_placement"),
        "has_side_effect": ir.BoolAttr.get(True),
        FRONTEND_ATTRIBUTES: to_frontend_attributes({"_xla_buffer_placement": kind}),
        "backend_config": ir.StringAttr.get(""),
        "api_version": i32(1),
    }
    return ir.Operation.create("stablehlo.custom_call", [x.type], [x], attributes).results[0]


def annotate_memories(attributes: Sequence[dict], kinds: Sequence[str | None]) -> Sequence[dict]:
    """Add memory kinds to the attributes of parameters or results."""
    for found, kind in zip(attributes, kinds, strict=True):
        if kind is not None:
            found["mhlo.memory_kind"] = ir.StringAttr.get(kind)
    return attributes
