"""Transfer guards: allow, log or refuse transfers between host and devices that no function requested explicitly.

Builds on jaxlib's guards, which its transfers check in C++, so that an unset guard takes no time. The options in
`runtime.engine_options` set them; functions that transfer data on request run inside `with explicit_transfer():`.
"""

from __future__ import annotations

import re
from typing import Any, Final

from jaxlib import _jax

from phalanx.engine.defining_module import public_in
from phalanx.engine.error_record import PhalanxError

_lib = _jax.guard_lib

LEVELS: Final = {
    "allow": _lib.TransferGuardLevel.ALLOW,
    "log": _lib.TransferGuardLevel.LOG,
    "disallow": _lib.TransferGuardLevel.DISALLOW,
    "log_explicit": _lib.TransferGuardLevel.LOG_EXPLICIT,
    "disallow_explicit": _lib.TransferGuardLevel.DISALLOW_EXPLICIT,
}
DIRECTIONS: Final = ("host_to_device", "device_to_device", "device_to_host")


@public_in("phalanx.errors")
class TransferError(PhalanxError, RuntimeError):
    """A transfer between the host and devices, or between devices, was refused by a guard.

    Args:
      where, expected, got, fix: as in `PhalanxError`.

    Examples:
      >>> import numpy as np, phalanx, phalanx.numpy as jnp
      >>> try:
      ...     with phalanx.transfer_guard("disallow"):
      ...         jnp.sin(np.ones(2))
      ... except phalanx.errors.TransferError as error:
      ...     print(type(error).__name__)
      TransferError
    """


guarded: list[str] = []  # the directions in which this process ever set a guard, for transfers without jaxlib


def guard_here(direction: str, level: str | None) -> None:
    """Set the guard of this thread.

    Args:
      direction: one of `DIRECTIONS`.
      level: one of `LEVELS`; None inherits the guard of all threads.
    """
    _record(direction, level)
    setattr(_lib.thread_local_state(), direction, None if level is None else LEVELS[level])


def guard_everywhere(direction: str, level: str | None) -> None:
    """Set the guard of threads without a guard.

    Args:
      direction: one of `DIRECTIONS`.
      level: one of `LEVELS`; None means "allow".
    """
    _record(direction, level)
    setattr(_lib.global_state(), direction, None if level is None else LEVELS[level])


def _record(direction: str, level: str | None) -> None:
    if level not in (None, "allow") and direction not in guarded:
        guarded.append(direction)


class explicit_transfer:
    """A context manager inside which transfers count as requested by the user."""

    __slots__ = ("_outer", "_state")

    def __enter__(self) -> None:
        self._state = state = _lib.thread_local_state()
        self._outer = state.explicit_device_put, state.explicit_device_get
        state.explicit_device_put = state.explicit_device_get = True

    def __exit__(self, *exc: object) -> None:
        self._state.explicit_device_put, self._state.explicit_device_get = self._outer


class unguarded_transfer:
    """A context manager inside which the guards forbid nothing.

    For resharding among the devices that hold an array, which compiled programs do as well.

    Args:
      is_allowed: False for a transfer that the guards check, as any other.
    """

    __slots__ = ("_levels", "_outer")

    def __init__(self, is_allowed: bool = True):
        self._levels = dict.fromkeys(DIRECTIONS if is_allowed else (), LEVELS["allow"])

    def __enter__(self) -> None:
        state = _lib.thread_local_state()
        self._outer = {direction: getattr(state, direction) for direction in self._levels}
        self._set(self._levels)

    def __exit__(self, *exc: object) -> None:
        self._set(self._outer)

    def _set(self, levels: dict[str, Any]) -> None:
        for direction, level in levels.items():
            setattr(_lib.thread_local_state(), direction, level)


_REFUSED = re.compile(r"Disallowed (\S+-to-\S+) transfer: (.*)", re.DOTALL)


def to_transfer_error(error: Exception) -> Exception:
    """Convert jaxlib's error about a guard to a `TransferError`; any other error is returned unchanged."""
    found = _REFUSED.search(str(error))
    if found is None:
        return error
    direction, what = found.groups()
    asked = "device_get" if direction == "device-to-host" else "device_put"
    return TransferError(
        f"{direction} transfer",
        expected="no such transfer, since a guard forbids it",
        got=what.strip(),
        fix=f'transfer the data with {asked} if the guard is "disallow", or allow it with transfer_guard("allow")',
    )
