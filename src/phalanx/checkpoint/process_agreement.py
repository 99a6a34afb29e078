"""Agreement among the processes of a program: each does its part of an operation, and all go on or all raise.

A process that dies meanwhile raises a `ProcessFailure` in the others. In a program of one process nothing is exchanged.
Called by `saving` and `loading`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from phalanx.checkpoint.checkpoint_errors import CheckpointError, CheckpointSaveError
from phalanx.engine.coordination import Coordinator

FIX_LEAF = (
    "save what is the same in all processes, or make one array of the parts with make_array_from_process_local_data"
)


def is_first(coordinator: Coordinator | None) -> bool:
    """Whether this process does what only one has to do."""
    return coordinator is None or coordinator.process_id == 0


def agree(
    coordinator: Coordinator | None, label: str, act: Callable[[], Any], *, sequence: str | None = None
) -> list[Any]:
    """Do something in each process, and wait until all have.

    Args:
      coordinator: the connection to the other processes; None for a process alone.
      label: the operation, for errors.
      act: the part of this process; its result is JSON data.
      sequence: as in `Coordinator.exchange`.

    Returns:
      The result of each process.

    Raises:
      CheckpointSaveError: another process raised; if this one did, its own error is raised.
    """
    if coordinator is None:
        return [act()]
    value, own_error = None, None
    try:
        value = act()
    except Exception as error:
        own_error = error
    text = "" if own_error is None else f"{type(own_error).__name__}: {own_error}".partition("\n")[0]
    found = [json.loads(each) for each in coordinator.exchange(label, json.dumps([text, value]), sequence=sequence)]
    if own_error is not None:
        raise own_error
    for process, (text, _) in enumerate(found):
        if text:
            raise CheckpointSaveError(
                label,
                expected=f"process {process} to do its part",
                got=text,
                fix="look at that error; the steps saved before can still be loaded",
            )
    return [value for _, value in found]


def check_equal(
    label: str, what: str, found: Sequence[dict[str, str]], process_id: int, fix: str = "pass the same in all processes"
) -> None:
    """Raise unless the arguments and leaves of all processes are equal.

    Args:
      label: the operation, for errors.
      what: what is compared.
      found: for each process, a text for each argument and leaf.
      process_id: the number of this process.
      fix: the remedy.

    Raises:
      CheckpointError: an argument or a leaf differs.
    """
    mine = found[process_id]
    for process, theirs in enumerate(found):
        for name in [*mine, *theirs]:
            if mine.get(name) != theirs.get(name):
                raise CheckpointError(
                    f"{label}, {name}",
                    expected=f"{what} in all processes, here {mine.get(name, 'nothing'):.200}",
                    got=f"{theirs.get(name, 'nothing'):.200} in process {process}",
                    fix=fix,
                )
