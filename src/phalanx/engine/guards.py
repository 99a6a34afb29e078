"""Guards: what jaxlib does when data moves between the host and devices without having been asked for.

Builds on jaxlib's own guards, which its transfers look at, so that they cost nothing where none is set.
`runtime.settings` connects the options of that name; functions that move data because the user says so do it inside
`with explicit():`.
"""

from __future__ import annotations

import re
from typing import Any, Final

from jaxlib import _jax

from phalanx.engine.errors import PhalanxError

_lib = _jax.guard_lib

LEVELS: Final = {
    "allow": _lib.TransferGuardLevel.ALLOW,
    "log": _lib.TransferGuardLevel.LOG,
    "disallow": _lib.TransferGuardLevel.DISALLOW,
    "log_explicit": _lib.TransferGuardLevel.LOG_EXPLICIT,
    "disallow_explicit": _lib.TransferGuardLevel.DISALLOW_EXPLICIT,
}
DIRECTIONS: Final = ("host_to_device", "device_to_device", "device_to_host")


class TransferError(PhalanxError, RuntimeError):
    """Data was about to move between the host and devices, or between devices, where a guard forbids it.

    Args:
      where, expected, got, mend: as in `PhalanxError`.

    Examples:
      >>> import numpy as np, phalanx, phalanx.numpy as jnp
      >>> try:
      ...     with phalanx.transfer_guard("disallow"):
      ...         jnp.sin(np.ones(2))
      ... except phalanx.errors.TransferError as error:
      ...     print(type(error).__name__)
      TransferError
    """


def guard_here(direction: str, level: str | None) -> None:
    """Set the guard of this thread.

    Args:
      direction: one of `DIRECTIONS`.
      level: one of `LEVELS`; None leaves it to the guard of all threads.
    """
    setattr(_lib.thread_local_state(), direction, None if level is None else LEVELS[level])


def guard_everywhere(direction: str, level: str | None) -> None:
    """Set the guard of the threads that have none of their own.

    Args:
      direction: one of `DIRECTIONS`.
      level: one of `LEVELS`; None is as "allow".
    """
    setattr(_lib.global_state(), direction, None if level is None else LEVELS[level])


class explicit:
    """Inside `with explicit():`, transfers count as asked for."""

    __slots__ = ("_outer", "_state")

    def __enter__(self) -> None:
        self._state = state = _lib.thread_local_state()
        self._outer = state.explicit_device_put, state.explicit_device_get
        state.explicit_device_put = state.explicit_device_get = True

    def __exit__(self, *exc: object) -> None:
        self._state.explicit_device_put, self._state.explicit_device_get = self._outer


_REFUSED = re.compile(r"Disallowed (\S+-to-\S+) transfer: (.*)", re.DOTALL)


def refusal(error: Exception) -> Exception:
    """Give the error of a guard in place of jaxlib's report of it; any other error as it is."""
    found = _REFUSED.search(str(error))
    if found is None:
        return error
    direction, what = found.groups()
    asked: Any = "device_get" if direction == "device-to-host" else "device_put"
    return TransferError(
        f"{direction} transfer",
        expected="no such transfer, which a guard forbids",
        got=what.strip(),
        mend=f'move the data with {asked} if the guard is "disallow", or allow it with transfer_guard("allow")',
    )
