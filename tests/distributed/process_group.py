"""Real processes on this machine that form a distributed program, started once and told which checks to run."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

START_SECONDS, CHECK_SECONDS = 180.0, 120.0  # generous: these only bound a hang


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def launch(options: list, program: list, cwd: Path | None = None) -> subprocess.CompletedProcess:
    """Run a program under `phalanx launch`, and wait for its end."""
    return subprocess.run(
        [sys.executable, "-m", "phalanx", "launch", *map(str, [*options, *program])],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PHALANX_NUM_CPU_DEVICES": ""},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=400,  # The demo compiles for a minute in two processes of a busy machine.
    )


class ProcessGroup:
    """Processes of one program, each with CPU devices.

    Args:
      checks: the file with the checks, functions without arguments.
      count: the number of processes.
      devices: the number of devices of each.
    """

    def __init__(self, checks: Path, count: int, devices: int):
        self.arguments = (checks, count, devices)
        self.start()

    def start(self) -> None:
        checks, count, devices = self.arguments
        address = free_address()
        environ = {
            **os.environ,
            "PHALANX_NUM_CPU_DEVICES": str(devices),
            "WORKER_PATH": json.dumps(sys.path),
            "PYTHONWARNINGS": "error",
        }
        self.processes, self.commands, self.outcomes, self.outputs = [], [], [], []
        for number in range(count):
            (command_reader, command_writer), (outcome_reader, outcome_writer) = os.pipe(), os.pipe()
            output = tempfile.TemporaryFile()
            arguments = [address, count, number, checks, command_reader, outcome_writer]
            self.processes.append(
                subprocess.Popen(
                    [sys.executable, str(Path(__file__).with_name("worker.py")), *map(str, arguments)],
                    env=environ,
                    pass_fds=(command_reader, outcome_writer),
                    stdout=output,
                    stderr=output,
                )
            )
            os.close(command_reader)
            os.close(outcome_writer)
            self.commands.append(open(command_writer, "w", buffering=1))
            self.outcomes.append(open(outcome_reader))
            self.outputs.append(output)
        self.seconds = START_SECONDS

    def run(self, check: str) -> None:
        """Run a check in all processes; fails with the traceback of each process in which it fails."""
        if any(p.poll() is not None for p in self.processes):
            self.kill()
            self.start()
        for pipe in self.commands:
            pipe.write(json.dumps(check) + "\n")
        deadline, self.seconds = time.monotonic() + self.seconds, CHECK_SECONDS
        failures = []
        for number, pipe in enumerate(self.outcomes):
            line = read_line(pipe, deadline)
            if not line:
                failures.append(f"process {number}: {self._describe_end(number, line)}")
                break
            if failure := json.loads(line):
                failures.append(f"process {number}: {failure}")
        assert not failures, "\n".join(failures)

    def _describe_end(self, number: int, line: str | None) -> str:
        before = "no answer in time" if line is None else "ended"
        for process in self.processes:
            process.kill()
        return f"{before}, exit status {self.processes[number].wait()}\n{self.read_output(number)[-4000:]}"

    def read_output(self, number: int) -> str:
        self.outputs[number].seek(0)
        return self.outputs[number].read().decode(errors="replace")

    def kill(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
        for file in (*self.commands, *self.outcomes, *self.outputs):
            file.close()

    def close(self) -> None:
        """End the processes in order; fails if one does not end well."""
        for pipe in self.commands:
            pipe.close()
        statuses = []
        for process in self.processes:
            try:
                statuses.append(process.wait(CHECK_SECONDS))
            except subprocess.TimeoutExpired:
                statuses.append(None)
        texts = [self.read_output(i)[-2000:] for i in range(len(statuses))]
        self.kill()
        assert statuses == [0] * len(statuses), "\n".join(map(str, [statuses, *texts]))


def read_line(pipe, deadline: float) -> str | None:
    """The next line of a pipe; None if it does not come in time, "" if the writer has gone."""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        return pipe.readline() if selector.select(max(0.0, deadline - time.monotonic())) else None
