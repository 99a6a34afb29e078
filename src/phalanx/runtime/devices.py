"""Which devices a program runs on: those of its arguments, or those that the program itself names.

Used by `dispatch` for eager operations, and by the resolution of compiled calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core.errors import ShardingError
from phalanx.core.jaxpr import Jaxpr, derivation, subprograms
from phalanx.runtime.array import ArrayType
from phalanx.runtime.stand_ins import is_abstract
from phalanx.sharding import NamedSharding


def common_devices(types: Sequence[ArrayType], names: Callable[[int], str]) -> tuple[tuple | None, bool]:
    """The devices of the committed arguments of a call, which must agree, in order; and whether any is committed.

    The devices are None where no argument is committed or spread.

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
        elif devices != chosen and set(devices) != set(chosen):
            raise ShardingError(
                f"{names(i)}",
                expected=f"an array on the devices of {names(first)}, {device_names(chosen)}",
                got=f"{t.aval} on {device_names(devices)}",
                mend="bring both to one set of devices with device_put, or give in_shardings",
            )
        elif len(devices) > 1 and isinstance(s, NamedSharding) and not isinstance(types[first].sharding, NamedSharding):
            chosen, first = devices, i
    return (tuple(chosen) if chosen is not None else None), committed


def device_names(devices: Sequence[Any]) -> str:
    """Devices as messages show them."""
    ids = [d.id for d in devices]
    return f"{devices[0].platform} {', '.join(map(str, ids[:8]))}{', ...' if len(ids) > 8 else ''}"


@derivation
def named_sharding(program: Jaxpr, abstract: bool = False) -> Any:
    """A sharding that the program itself names, in a constraint, an inner call or a value it closed over.

    Args:
      program: the program.
      abstract: look for one that names no devices, instead of one that does.
    """
    for eqn in program.eqns:
        primitive = eqn.primitive
        if primitive.placing is None and not primitive.holds_program:
            continue
        named = list(primitive.placing(**eqn.params)) if primitive.placing is not None else []
        if primitive.holds_program:
            named += [named_sharding(inner, abstract) for inner in subprograms(eqn.params)]
        found = next((s for s in named if s is not None and is_abstract(s) == abstract), None)
        if found is not None:
            return found
    # A value closed over goes wherever the program runs, unless its type says how it is split.
    split = (x.sharding for v, x in zip(program.constvars, program.consts, strict=True) if v.aval.sharding is not None)
    return None if abstract else next(split, None)
