"""The devices that a program runs on: the devices of its arguments, or of shardings inside it.

A program over an `AbstractMesh` is lowered for placeholder devices, which have only the attributes that lowering reads.
Eager operations and the resolution of compiled calls use this module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from phalanx.core import Jaxpr, ShardingError, cached_on_jaxpr, inner_jaxprs
from phalanx.runtime.array import ArrayType
from phalanx.sharding import AbstractMesh, NamedSharding


@dataclass(frozen=True, order=True)
class PlaceholderDevice:
    """A placeholder for a device of an `AbstractMesh`: its number, and the attributes that lowering reads."""

    id: int
    process_index: int = 0
    platform: str = "placeholder"
    device_kind: str = "placeholder"


def is_abstract(sharding: Any) -> bool:
    """Whether an object is a sharding over an `AbstractMesh`, which names no devices."""
    return isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, AbstractMesh)


def on_devices(sharding: Any, devices: Sequence[Any]) -> Any:
    """A sharding over an `AbstractMesh`, placed on devices in partition order; any other object unchanged."""
    return NamedSharding(sharding.mesh.on(devices), sharding.spec) if is_abstract(sharding) else sharding


def on_abstract_devices(sharding: Any, platform: str = "placeholder") -> Any:
    """A sharding over an `AbstractMesh`, placed on placeholder devices of a platform; any other object unchanged."""
    if not is_abstract(sharding):
        return sharding
    return on_devices(sharding, [PlaceholderDevice(i, platform=platform) for i in range(sharding.mesh.size)])


def common_devices(types: Sequence[ArrayType], names: Callable[[int], str]) -> tuple[tuple | None, bool]:
    """The devices of the committed arguments of a call, which must agree, and whether any argument is committed.

    The devices are in partition order; None if no argument is committed or on several devices.

    Raises:
      ShardingError: two arguments are on different devices.
    """
    placed: list[tuple[int, Any]] = [
        (i, t.sharding)
        for i, t in enumerate(types)
        if t.sharding is not None and (t.committed or len(t.sharding.device_set) > 1)
    ]
    if not placed:
        return None, False
    first, chosen = placed[0]
    for i, s in placed[1:]:
        # Another order of the same devices is no conflict: shardings are reordered to the first one.
        if s.device_set != chosen.device_set:
            raise ShardingError(
                f"{names(i)}",
                expected=f"an array on the devices of {names(first)}, {device_names(chosen._device_assignment)}",
                got=f"{types[i].aval.str_short()} on {device_names(s._device_assignment)}",
                fix="move both to the same devices with device_put, or pass in_shardings",
            )
        # The order of a mesh is one that a user chose; that of a partitioner's sharding is not.
        if isinstance(s, NamedSharding) and not isinstance(chosen, NamedSharding) and len(s.device_set) > 1:
            first, chosen = i, s
    return tuple(chosen._device_assignment), any(types[i].committed for i, _ in placed)


def device_names(devices: Sequence[Any]) -> str:
    """Format devices for messages."""
    ids = [d.id for d in devices]
    return f"{devices[0].platform} {', '.join(map(str, ids[:8]))}{', ...' if len(ids) > 8 else ''}"


@cached_on_jaxpr
def named_sharding(program: Jaxpr, abstract: bool = False) -> Any:
    """A sharding inside a jaxpr: of a constraint, an inner call, or a constant.

    Args:
      program: the jaxpr.
      abstract: find one over an `AbstractMesh`, instead of one with devices.
    """
    for eqn in program.eqns:
        primitive = eqn.primitive
        named = list(primitive.target_shardings(**eqn.params)) if primitive.target_shardings is not None else []
        if primitive.call_like:
            named += [named_sharding(inner, abstract) for inner in inner_jaxprs(eqn.params)]
        found = next((s for s in named if s is not None and is_abstract(s) == abstract), None)
        if found is not None:
            return found
    # A constant moves to the devices of the program, unless its type has a sharding.
    split = (
        x.sharding for v, x in zip(program.constvars, program.consts, strict=True) if v.aval.type_sharding is not None
    )
    return None if abstract else next(split, None)
