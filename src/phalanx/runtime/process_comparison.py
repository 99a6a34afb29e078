"""The comparison of values that must be the same in all processes, through the coordination service.

`multihost_utils.assert_equal` compares what a user names. Under the option `debug_compare_host_values`, `device_put`
and the calls of compiled programs compare what they are about to transfer to the devices of several processes.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from phalanx.core import PhalanxError, dtypes
from phalanx.engine import client
from phalanx.engine.defining_module import public_in
from phalanx.runtime.array import Array

if TYPE_CHECKING:
    from phalanx.engine.coordination import Coordinator


@public_in("phalanx.errors")
class ProcessesDifferError(PhalanxError, AssertionError):
    """A value that should be the same in all processes is not.

    Args:
      where, expected, got, fix: as in `PhalanxError`.

    Examples:
      >>> issubclass(ProcessesDifferError, AssertionError)
      True
    """


def compare_transferred(
    what: str, values: Sequence[Any], shardings: Mapping[int, Any], name_of: Callable[[int], str]
) -> None:
    """Compare the values that are to be transferred from each process to the devices of several.

    Args:
      what: the call that transfers them; the other processes must be at the same.
      values: host values and arrays.
      shardings: the target shardings, by the numbers of the values.
      name_of: the user's name for value `i`.

    Raises:
      ProcessesDifferError: a value differs between the processes over which it is split or replicated.
      ProgramMismatchError: another process is at another comparison.
    """
    coordinator = client.coordinator()
    if coordinator is None:
        return
    groups: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    for i, sharding in shardings.items():
        x = values[i]
        if sharding is None or sharding.is_fully_addressable or (type(x) is Array and not x.is_fully_addressable):
            continue
        processes = tuple(sorted({device.process_index for device in sharding.device_set}))
        if coordinator.process_id in processes:
            groups[processes].append(i)
    for processes, members in groups.items():
        named = [(name_of(i), host_value(values[i])) for i in members]
        among = None if len(processes) == coordinator.num_processes else processes
        compare_over_processes(coordinator, f"{what}, comparison of its host values", "", named, among)


def compare_over_processes(
    coordinator: Coordinator,
    label: str,
    where: str,
    named: Sequence[tuple[str, np.ndarray]],
    among: Sequence[int] | None = None,
) -> None:
    """Compare named values by their digests, with an error in every process if one differs.

    Args:
      coordinator: the connection to the other processes.
      label: the purpose of the exchange.
      where: the place of the error; the name of the value if it is empty.
      named: the values and their names.
      among: the processes that take part, sorted; all by default.

    Raises:
      ProcessesDifferError: a value differs from that of another process.
    """
    ours = [[name, *_describe(x)] for name, x in named]
    found = [json.loads(text) for text in coordinator.exchange(label, json.dumps(ours), among=among)]
    for process, theirs in zip(among or range(coordinator.num_processes), found, strict=True):
        # A tree with another number of leaves differs from this one at the first leaf that only one of them has.
        for mine, other in zip([*ours, None], [*theirs, None], strict=False):
            if mine != other:
                alike = mine is not None and other is not None and mine[:-1] == other[:-1]
                here, there = (_format(fact, with_name=bool(where), with_digest=alike) for fact in (mine, other))
                raise ProcessesDifferError(
                    where or (mine or other or [label])[0],
                    expected=f"{here}, as in process {coordinator.process_id}",
                    got=f"{there} in process {process}",
                    fix="compute the value in one process and broadcast it with multihost_utils.broadcast_one_to_all",
                )


def host_value(x: Any) -> np.ndarray:
    """The value of an array or a host value; random keys as their words."""
    if type(x) is Array and isinstance(x.dtype, dtypes.KeyDtype):
        return x._assemble()
    return np.asarray(x)


def format_value(x: np.ndarray) -> str:
    """The beginning of a value, its type, and its digest, which tells values apart that begin alike."""
    return _format(["", *_describe(x)], with_name=False, with_digest=True)


def _describe(x: np.ndarray) -> list[str]:
    """The type of a value, the begin of its text, and its digest."""
    import hashlib

    text = np.array2string(x, threshold=8, edgeitems=2, max_line_width=10**6).replace("\n", "")[:80]
    return [f"{x.dtype}{list(x.shape)}", text, hashlib.blake2b(x.tobytes(), digest_size=16).hexdigest()]


def _format(fact: Sequence[str] | None, *, with_name: bool, with_digest: bool) -> str:
    if fact is None:
        return "no further leaf"
    name, shape, text, digest = fact
    return f"{name or 'the value'} = " * with_name + f"{text} of {shape}" + f" with digest {digest[:8]}" * with_digest
