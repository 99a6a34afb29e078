"""`phalanx launch`: run a program in several processes of this machine, and supervise them.

Each process gets the variables that `distributed.initialize` reads, and its output is shown line by line behind its
number. The launcher holds the coordination service, so that the loss of no process ends the others.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, TextIO

from phalanx.distributed.session import END_FILE, SERVICE_IS_RUNNING
from phalanx.engine import coordination_service

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if sys.platform != "win32" else (signal.SIGINT,)
_KILL_SECONDS = 5.0  # between the request to end and the end
_SET_DEATH_SIGNAL = 1  # prctl's PR_SET_PDEATHSIG


def run(argv: Sequence[str]) -> int:
    """Run the command.

    Args:
      argv: the arguments after `launch`.

    Returns:
      The exit status of the first process that failed, 128 more than the number of a signal that ended it or that ended
      this command, or 0.
    """
    args = _parse(argv)
    program = ["-m", *args.module] if args.module else args.program
    launcher = _Launcher([sys.executable, *program], args.devices, args.grace)
    before = {number: signal.signal(number, launcher.pass_on) for number in _PASSED_ON}
    try:
        count = args.processes
        for attempt in range(args.restarts + 1):
            status = launcher.run_once(count, attempt)
            if status == 0 or launcher.received is not None or attempt == args.restarts:
                break
            count = max(args.min_processes, count - 1)
            fewer = "" if count == args.processes else f", with {count} process{'es' if count > 1 else ''}"
            _say(f"start again, {attempt + 1} of {args.restarts}{fewer}")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return status if launcher.received is None else 128 + launcher.received


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="phalanx launch",
        usage="%(prog)s -n N [options] (script.py | -m module) [arguments]",
        description="Run a program in several processes of this machine. It calls phalanx.distributed.initialize(), "
        "without arguments, and then sees the devices of all processes.",
    )
    parser.add_argument("-n", "--processes", type=int, required=True, metavar="N", help="the number of processes")
    parser.add_argument("--devices", type=int, metavar="N", help="CPU devices of each process (default: 1)")
    parser.add_argument(
        "--restarts", type=int, default=0, metavar="N", help="start all processes again after a failure, up to N times"
    )
    parser.add_argument(
        "--min-processes",
        type=int,
        metavar="N",
        help="start one process fewer after each failure, but at least N (default: as many as before)",
    )
    parser.add_argument(
        "--grace",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="time for the other processes to end by themselves after a failure (default: %(default)g)",
    )
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help="run a module, as `python -m` does")
    parser.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    args = parser.parse_args(list(argv))
    if args.program[:1] == ["--"]:  # up to Python 3.12
        del args.program[0]
    if args.processes < 1:
        parser.error("-n must be at least 1")
    if args.restarts < 0:
        parser.error("--restarts must be at least 0")
    if args.devices is not None and args.devices < 1:
        parser.error("--devices must be at least 1")
    if args.min_processes is None:
        args.min_processes = args.processes
    if not 1 <= args.min_processes <= args.processes:
        parser.error(f"--min-processes must be from 1 to -n = {args.processes}, got {args.min_processes}")
    if not (args.module or args.program):
        parser.error("name a script, or a module with -m")
    return args


class _Launcher:
    """The processes of one program.

    Args:
      command: the command that each process runs.
      devices: the number of CPU devices of each; None leaves it to the environment.
      grace: seconds for the others to end by themselves after a failure.
    """

    def __init__(self, command: Sequence[str], devices: int | None, grace: float):
        self.command = command
        self.environ = {**os.environ, SERVICE_IS_RUNNING: "1", "PYTHONUNBUFFERED": "1"}
        if devices is not None:
            self.environ["PHALANX_NUM_CPU_DEVICES"] = str(devices)
        self.grace = grace
        self.received: int | None = None
        self.end_file = Path()
        self.processes: list[subprocess.Popen[str]] = []

    def run_once(self, count: int, attempt: int) -> int:
        """Start some processes, and wait until they have ended.

        Args:
          count: the number of processes.
          attempt: how often they were started before.

        Returns:
          The exit status.
        """
        address = _free_address()
        folder = tempfile.TemporaryDirectory(prefix="phalanx-launch-")
        self.end_file = Path(folder.name, "end")
        service = coordination_service.start(address, count)
        assert service.stdin is not None
        environ = {
            **self.environ,
            "PHALANX_COORDINATOR_ADDRESS": address,
            "PHALANX_NUM_PROCESSES": str(count),
            "PHALANX_RESTART_COUNT": str(attempt),
            END_FILE: str(self.end_file),
        }
        self.processes = []
        try:
            for i in range(count):
                self.processes.append(self._start({**environ, "PHALANX_PROCESS_ID": str(i)}))
            if self.received is not None:  # before all were started
                for process in self.processes:
                    process.send_signal(self.received)
            readers = [
                _read(stream, f"[{number}] ", to)
                for number, process in enumerate(self.processes)
                for stream, to in ((process.stdout, sys.stdout), (process.stderr, sys.stderr))
            ]
            status = self._supervise()
            for reader in readers:
                reader.join(timeout=1.0)  # A process that outlives its parent may hold the pipe.
            return status
        finally:
            for process in self.processes:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            service.stdin.close()
            folder.cleanup()

    def _write_end(self, report: str) -> None:
        """Tell processes that still wait for this one in `distributed.initialize`; the first end is kept."""
        whole = self.end_file.with_suffix(".part")
        whole.write_text(report)
        if not self.end_file.exists():
            whole.rename(self.end_file)

    def _start(self, environ: dict[str, str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # Signals of the terminal come through this process only.
            preexec_fn=_die_with_parent(),
        )

    def _supervise(self) -> int:
        """Wait for all processes; after a failure, for a limited time."""
        status, running = 0, dict(enumerate(self.processes))
        deadline = float("inf")
        terminated = False
        while running:
            for number, process in list(running.items()):
                if (code := process.poll()) is None:
                    continue
                del running[number]
                ended = f"with status {code}" if code >= 0 else f"by signal {signal.Signals(-code).name}"
                report = f"process {number} of {len(self.processes)} ended {ended}"
                self._write_end(report)
                if code and not status:
                    status, deadline = code if code > 0 else 128 - code, time.monotonic() + self.grace
                    _say(report)
            if time.monotonic() > deadline:
                names = ", ".join(f"process {number}" for number in running)
                _say(f"ending {names}, {self.grace:g} s after the failure")
                for process in running.values():
                    process.kill() if terminated else process.terminate()
                terminated, deadline = True, time.monotonic() + _KILL_SECONDS
            time.sleep(0.02)
        return status

    def pass_on(self, number: int, frame: FrameType | None) -> None:
        """Send a signal to all processes; a second one ends them."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number if self.received is None else signal.SIGKILL)
        self.received = number


def _free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def _die_with_parent() -> Callable[[], object] | None:
    """A function that makes the system kill a child when this process ends; only Linux can."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


def _read(stream: IO[str] | None, prefix: str, to: TextIO) -> threading.Thread:
    """Copy a stream line by line, behind a prefix."""
    assert stream is not None

    def copy() -> None:
        # If nobody reads the output of this command any more, the process learns so, as it would without the launcher.
        with stream, contextlib.suppress(BrokenPipeError):
            for line in stream:
                to.write(prefix + line.rstrip("\n") + "\n")
                to.flush()

    thread = threading.Thread(target=copy, daemon=True)
    thread.start()
    return thread


def _say(text: str) -> None:
    print(f"phalanx launch: {text}", file=sys.stderr, flush=True)
