"""The devices that a program runs on: the devices of its arguments, or of shardings inside it.

Eager operations and the resolution of compiled calls use it.
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
    platform: str = "stand-in"
    device_kind: str = "stand-in"


def is_abstract(sharding: Any) -> bool:
    """Whether an object is a sharding over an `AbstractMesh`, which names no devices."""
    return isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, AbstractMesh)


def on_devices(sharding: Any, devices: Sequence[Any]) -> Any:
    """A sharding over an `AbstractMesh`, placed on devices in partition order; any other object unchanged."""
    return NamedSharding(sharding.mesh.on(devices), sharding.spec) if is_abstract(sharding) else sharding


def on_abstract_devices(sharding: Any, platform: str = "stand-in") -> Any:
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
    chosen: Any = None
    first = -1
    committed = False
    for i, t in enumerate(types):
        s = t.sharding
        if s is None or not (t.committed or len(s.device_set) > 1):
            continue
        committed = committed or t.committed
        devices = s._device_assignment
        if chosen is None:
            chosen, first = devices, i
        # Another order of the same devices is no conflict: shardings are reordered to the first one.
        elif devices != chosen and set(devices) != set(chosen):
            raise ShardingError(
                f"{names(i)}",
                expected=f"an array on the devices of {names(first)}, {device_names(chosen)}",
                got=f"{t.aval} on {device_names(devices)}",
                fix="move both to the same devices with device_put, or pass in_shardings",
            )
        elif len(devices) > 1 and isinstance(s, NamedSharding) and not isinstance(types[first].sharding, NamedSharding):
            chosen, first = devices, i
    return (tuple(chosen) if chosen is not None else None), committed


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
        if primitive.target_shardings is None and not primitive.call_like:
            continue
        named = list(primitive.target_shardings(**eqn.params)) if primitive.target_shardings is not None else []
        if primitive.call_like:
            named += [named_sharding(inner, abstract) for inner in inner_jaxprs(eqn.params)]
        found = next((s for s in named if s is not None and is_abstract(s) == abstract), None)
        if found is not None:
            return found
    # A constant moves to the devices of the program, unless its type has a sharding.
    split = (x.sharding for v, x in zip(program.constvars, program.consts, strict=True) if v.aval.sharding is not None)
    return None if abstract else next(split, None)
