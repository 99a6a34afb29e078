"""Offloading: residuals kept in another memory of their devices, usually the host's, until the backward pass.

`to_memory_p` moves a value between memories; `spmd.device_put` binds it for a `device_put` to a memory kind. The
possible answers of checkpoint policies, `Saveable`, `Recompute` and `Offloadable`, are also defined in this module, and
`partial_eval` acts on them. On CPU devices all memories are host memory: inside a program nothing moves, but results of
programs and eager values still change their memory kind.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, NamedTuple

from phalanx.core import Identity
from phalanx.runtime import Array, place_in_memory, transfer


class Space(enum.Enum):
    """The memories that every kind of device can reach.

    Attributes:
      Device: device memory, in which programs compute.
      Host: pinned host memory, which devices read without an intermediate copy.

    Examples:
      >>> import phalanx
      >>> phalanx.device_put(1.0, Space.Device).sharding.memory_kind in ("device", "unpinned_host")
      True
    """

    Device = "device"
    Host = "pinned_host"


class Offloadable(NamedTuple):
    """The answer of a checkpoint policy that saves a value in another memory.

    Attributes:
      src: the memory kind in which the value is computed and used, such as `"device"`.
      dst: the memory kind in which it is saved, such as `"pinned_host"`.

    Examples:
      >>> Offloadable("device", "pinned_host").dst
      'pinned_host'
    """

    src: str
    dst: str


class Verdict(enum.Enum):
    """Answers of a checkpoint policy besides bools and `Offloadable`: `Saveable` is True, `Recompute` is False."""

    SAVEABLE = True
    RECOMPUTE = False

    def __bool__(self) -> bool:
        return bool(self.value)


Saveable, Recompute = Verdict.SAVEABLE, Verdict.RECOMPUTE


class ToMemory(Identity, name="to_memory"):
    """`x`, moved from the memory `src` of its devices to the memory `dst`: num[*dims] -> num[*dims]."""

    def memories(self, held: Sequence[str | None], *, src: str, dst: str) -> list[str | None]:
        return [None if dst == Space.Device.value else dst]

    def run(self, x: Any, *, src: str, dst: str) -> Array:
        x = transfer.put(x)
        return transfer.put(x, x.sharding.with_memory_kind(dst), committed=x.committed)

    def lower(self, ctx: Any, x: Any, *, src: str, dst: str) -> Any:
        # On CPU device memory is host memory, so nothing has to move.
        return x if ctx.platform == "cpu" else place_in_memory(x, dst)

    def transpose(self, y_bar: Any, x: Any, *, src: str, dst: str) -> tuple:
        return (self(y_bar, src=dst, dst=src),)


to_memory_p = ToMemory()
