"""Offloading: values of a program moved to another memory of their devices until they are needed again.

`to_memory_p` moves a value; what a checkpoint policy says of a value is here too: `Saveable`, `Recompute`, or that it
is `Offloadable`. Used by `partial_eval`, which splits by policies, by their definitions in `remat`, and by
`spmd.placement` for `device_put` to a memory. On CPUs all memories are the host's, so that within a program nothing
moves; results of programs and eager values do.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, NamedTuple

from phalanx.core.primitive import Identity
from phalanx.runtime import placement
from phalanx.runtime.array import Array
from phalanx.runtime.memories import place_in_memory


class Space(enum.Enum):
    """The memories that every kind of device can reach.

    Attributes:
      Device: the devices' own memory, where programs compute.
      Host: memory of the host from which devices read without a copy in between.

    Examples:
      >>> import phalanx
      >>> phalanx.device_put(1.0, Space.Device).sharding.memory_kind in (None, "device", "unpinned_host")
      True
    """

    Device = "device"
    Host = "pinned_host"


class Offloadable(NamedTuple):
    """A checkpoint policy's answer: keep the value, but in another memory.

    Attributes:
      src: the kind of memory where the value is computed and used, such as `"device"`.
      dst: the kind where it waits, such as `"pinned_host"`.

    Examples:
      >>> Offloadable("device", "pinned_host").dst
      'pinned_host'
    """

    src: str
    dst: str


class Verdict(enum.Enum):
    """What a checkpoint policy may answer beside bools and `Offloadable`: `Saveable` is True, `Recompute` False."""

    SAVEABLE = True
    RECOMPUTE = False

    def __bool__(self) -> bool:
        return bool(self.value)


Saveable, Recompute = Verdict.SAVEABLE, Verdict.RECOMPUTE


class ToMemory(Identity, name="to_memory"):
    """`x` itself, moved from the memory `src` of its devices to `dst`: num[*dims] -> num[*dims]."""

    def memories(self, held: Sequence[str | None], *, src: str, dst: str) -> list[str | None]:
        return [None if dst == Space.Device.value else dst]

    def run(self, x: Any, *, src: str, dst: str) -> Array:
        x = placement.put(x)
        return placement.put(x, x.sharding.with_memory_kind(dst).canonical, committed=x.committed)

    def lower(self, ctx: Any, x: Any, *, src: str, dst: str) -> Any:
        return x if ctx.platform == "cpu" else place_in_memory(x, dst)

    def transpose(self, y_bar: Any, x: Any, *, src: str, dst: str) -> tuple:
        return (self(y_bar, src=dst, dst=src),)


to_memory_p = ToMemory()
