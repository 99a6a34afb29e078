"""Parsing of portable programs of unknown origin in a child process.

The parser of StableHLO is native code that trusts its input: malicious or damaged bytes can crash it, keep it running
forever, or exhaust memory. In a child process with limits on time and memory this becomes an `ArtifactError`. Builds on
`stablehlo`; `export.verification` calls it. The child runs `main`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from phalanx.engine import mlir, stablehlo
from phalanx.engine.child_process import start_child
from phalanx.engine.error_record import PhalanxError
from phalanx.engine.stablehlo import ArtifactError

try:
    import resource
except ImportError:  # Windows, where only the time is limited
    resource = None  # type: ignore[assignment]

READY: Final = b"ready\n"
MEMORY: Final = 2 << 30  # bytes that any program may use beyond the parser itself
MEMORY_PER_BYTE: Final = 16  # bytes that a program may use in addition for each of its bytes


@dataclass(frozen=True)
class Parsed:
    """The contents of a portable program.

    Args:
      signature: the types of the parameters and results of `main`, as MLIR text; None if there is no `main`.
      custom_calls: the names of the kernels that it calls, sorted.
      text: the program as text, if requested.
    """

    signature: tuple[list[str], list[str]] | None
    custom_calls: list[str]
    text: str | None


def parse_isolated(programs: Sequence[bytes], *, seconds: float = 60.0, with_text: bool = False) -> list[Parsed]:
    """Parse programs in a child process, so that crashes of the parser are errors of this one.

    Args:
      programs: portable artifacts.
      seconds: the time limit for all programs together.
      with_text: also return the programs as text.

    Returns:
      The contents of each program.

    Raises:
      ArtifactError: a program is invalid, or the parser crashed or exceeded its limits.
      RuntimeError: the child process did not start.
    """
    order = {
        "lengths": [len(p) for p in programs],
        "seconds": seconds,
        "memory": MEMORY + MEMORY_PER_BYTE * sum(map(len, programs)),
        "with_text": with_text,
    }
    given = b"".join([json.dumps(order).encode(), b"\n", *programs])
    with start_child(__name__) as child:
        try:
            said, complaint = child.communicate(given, timeout=seconds + _STARTING)
        except subprocess.TimeoutExpired:
            child.kill()
            said, complaint = child.communicate()
            if said.startswith(READY):
                raise _artifact_error(f"one that does not end within {seconds:g} s") from None
    if not said.startswith(READY):
        last = complaint.decode(errors="replace").strip().splitlines()[-1:]
        raise RuntimeError(f"the process that parses programs did not start: {''.join(last) or child.returncode}")
    return _understood(said[len(READY) :], child.returncode, len(programs))


_STARTING: Final = 60.0  # seconds for the start of the child


def _understood(said: bytes, returncode: int, count: int) -> list[Parsed]:
    """Decode the child's answer."""
    try:
        answer = json.loads(said)
    except ValueError:
        raise _artifact_error(f"one at which the parser ends with {_ending(returncode)}") from None
    if "error" in answer:
        raise ArtifactError(**answer["error"])
    found = [Parsed(**program) for program in answer["programs"]]
    assert len(found) == count, "the child answers for each program"
    return found


def _ending(returncode: int) -> str:
    """Describe how a process ended."""
    if returncode >= 0:
        return f"exit status {returncode}"
    if -returncode == getattr(signal, "SIGXCPU", None):
        return "SIGXCPU, since it did not end in time"
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"


def _artifact_error(got: str) -> ArtifactError:
    return ArtifactError(
        "portable artifact",
        expected="a program that the parser can read",
        got=got,
        fix="do not use this file, which is damaged or malicious",
    )


def main() -> None:
    """Serve `parse_isolated` in the child: one request on standard input, one answer on standard output."""
    order = json.loads(sys.stdin.buffer.readline())
    _set_bounds(order["seconds"], order["memory"])
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    answer: dict[str, Any]
    try:
        programs = [_parse(sys.stdin.buffer.read(length), order["with_text"]) for length in order["lengths"]]
        answer = {"programs": list(map(asdict, programs))}
    except PhalanxError as error:
        answer = {"error": _fields(error)}
    except MemoryError:
        answer = {"error": _fields(_artifact_error(f"one that takes more than {order['memory'] >> 20} MiB"))}
    sys.stdout.buffer.write(json.dumps(answer).encode())
    sys.stdout.buffer.flush()
    os._exit(0)  # without destructors, which could crash on the objects of a malicious program


def _fields(error: PhalanxError) -> dict[str, Any]:
    return {name: getattr(error, name) for name in ("where", "expected", "got", "fix")}


def _parse(program: bytes, with_text: bool) -> Parsed:
    module = stablehlo.deserialize(program, mlir.make_context())
    return Parsed(stablehlo.main_signature(module), stablehlo.custom_calls(module), str(module) if with_text else None)


def _set_bounds(seconds: float, memory: int) -> None:
    """Limit this process further than it is already; memory is limited only on systems that support it."""
    if resource is None:
        return
    end = int(sum(os.times()[:2]) + seconds) + 1
    # No core dump of the parser, which would contain the file. Beyond the soft limit of time comes SIGXCPU, which names
    # the reason; beyond the hard one, SIGKILL.
    bounds = [(resource.RLIMIT_CORE, 0, 0), (resource.RLIMIT_CPU, end, end + 5)]
    if (sizes := Path("/proc/self/statm")).exists():
        taken = int(sizes.read_text().split()[0]) * resource.getpagesize()
        bounds.append((resource.RLIMIT_AS, taken + memory, taken + memory))
    for kind, soft, hard in bounds:
        with contextlib.suppress(ValueError, OSError):  # a stricter limit is set already
            resource.setrlimit(kind, (soft, hard))
