"""`initialize` and `shutdown`: the life of a process as part of a distributed program.

jaxlib's distributed runtime connects the processes: its coordination service, which lets them find each other, and the
collectives of its devices (Gloo on CPUs, NCCL on GPUs). Every process then starts its devices, and sees all devices.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import functools
import json
import logging
import operator
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

from phalanx.core import ArgumentError, ArgumentTypeError
from phalanx.core.error_classes import ForbiddenError
from phalanx.distributed.cluster_detection import detect
from phalanx.engine import client, coordination_service, interruptible_wait, unfinished_runs
from phalanx.engine.cache import clear_caches
from phalanx.engine.coordination import Coordinator, bind_address, make_cpu_collectives, own_address
from phalanx.engine.environment_variables import read_option_variable
from phalanx.engine.failure_watch import FailureWatch
from phalanx.engine.tcp_sockets import listening_ports
from phalanx.runtime.in_flight import effects_barrier, finish_runs

# Set by `phalanx launch`, which runs the coordination service itself, and writes to this file which process has ended.
SERVICE_IS_RUNNING = "PHALANX_COORDINATION_SERVICE_IS_RUNNING"
END_FILE = "PHALANX_LAUNCH_END_FILE"


@dataclass
class _Session:
    """This process as part of a distributed program; a process alone has no coordinator."""

    address: str
    coordinator: Coordinator | None
    service: subprocess.Popen[bytes] | None
    shutdown_seconds: float


_current: list[_Session] = []  # at most one
_left: list[_Session] = []  # those that a process has failed in
_waiting: dict[tuple[str, int], subprocess.Popen[bytes]] = {}  # services that wait for processes


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    local_device_ids: int | Sequence[int] | None = None,
    cluster_detection_method: str | None = None,
    initialization_timeout: float = 300,
    heartbeat_timeout_seconds: float = 10,
    shutdown_timeout_seconds: float = 300,
    coordinator_bind_address: str | None = None,
    *,
    stuck_timeout_seconds: float = 600,
) -> None:
    """Make this process part of a distributed program. Call it before anything that uses devices.

    All processes of the program run the same script and call this function; it returns when all have. From then on
    `phalanx.devices()` lists the devices of all processes, in the same order in each.

    The first three arguments are found in the environment if the program was started by `phalanx launch`, Slurm (srun),
    Open MPI (mpirun), torchrun, Ray Train or SkyPilot, or as an indexed Job of Kubernetes whose manifest sets
    PHALANX_COORDINATOR_ADDRESS and PHALANX_NUM_PROCESSES.

    Args:
      coordinator_address: `"host:port"` of process 0, the same in all processes; any free port.
      num_processes: the number of processes.
      process_id: the number of this process, from 0.
      local_device_ids: the GPUs of this machine that this process uses. By default all that it sees, or the one with
        its number on this machine where a launcher has started several there and numbers them.
      cluster_detection_method: the only environment to look at ("phalanx", "slurm", "ompi", "torchrun" or
        "kubernetes"), or "deactivate" for none. By default the first one that is there.
      initialization_timeout: how long to wait for the other processes, in seconds.
      heartbeat_timeout_seconds: the time without a sign of life after which a process counts as dead.
      shutdown_timeout_seconds: how long `shutdown` waits for the other processes.
      coordinator_bind_address: the address on which process 0 listens; by default the port of `coordinator_address` on
        all networks of its machine.
      stuck_timeout_seconds: how long this process waits, in a launch or while it saves a checkpoint, for a process that
        is alive but does not come; after a quarter of it, a warning is logged.

    After it, the failure of another process raises `errors.ProcessFailure` in this one. The processes that are left may
    then call it again, and go on from a checkpoint as a smaller program. They wait until each other process has called
    it, too, or is lost, and keep their order; the first one chooses a port. Arrays and meshes of the program before are
    of no use any more.

    Raises:
      ArgumentError: arguments are missing and the environment does not give them, or gives them in part only; a number
        is out of range.
      ArgumentTypeError: an argument has another type.
      ForbiddenError: devices have been used already, or the process is initialized.
      CoordinationError: the other processes cannot be reached, or have not come in time. A second call with the same
        arguments goes on waiting for them.

    Examples:
      >>> initialize("127.0.0.1:6000", num_processes=1, process_id=0)
      >>> is_initialized()
      True
      >>> shutdown()
    """
    given: dict[str, Any] = {
        "coordinator_address": coordinator_address,
        "num_processes": num_processes,
        "process_id": process_id,
    }
    given = _prepare_once_or_again(given)
    found = detect(os.environ, given, cluster_detection_method)
    address, count, number = found["coordinator_address"], found["num_processes"], found["process_id"]
    _check_numbers(address, count, number)
    _check_seconds(
        initialization_timeout=initialization_timeout,
        heartbeat_timeout_seconds=heartbeat_timeout_seconds,
        stuck_timeout_seconds=stuck_timeout_seconds,
        shutdown_timeout_seconds=shutdown_timeout_seconds,
    )
    if count == 1:
        _current.append(_Session(address, None, None, 0))
        return
    _check_first()
    local_devices = _choose_local_devices(local_device_ids, found.get("local_process_id"), os.environ)
    service = None
    if number == 0 and (_left or not os.environ.get(SERVICE_IS_RUNNING)):
        own = coordinator_bind_address or read_option_variable("coordinator_bind_address") or bind_address(address)
        service = _waiting.get((own, count))
        if service is None or service.poll() is not None:
            service = _waiting[own, count] = coordination_service.start(own, count)
    coordinator = Coordinator.connect(address, number, count, seconds=initialization_timeout, read_end=_read_end)
    _waiting.clear()
    # From here on, a process that is lost before all have started their devices is noticed.
    watch = FailureWatch(coordinator, dead_after=heartbeat_timeout_seconds, stuck_after=stuck_timeout_seconds)
    _current.append(_Session(address, coordinator, service, shutdown_timeout_seconds))
    before = listening_ports()
    collectives = make_cpu_collectives(coordinator, own_address(address))
    client.configure(cluster=client.Cluster(coordinator, collectives, local_devices))
    watch.ports = _exchange_ports(coordinator, listening_ports() - before)
    # A process that started them later would wait for the others to do so, too.
    interruptible_wait.wait(functools.partial(contextvars.copy_context().run, client.start_all_platforms))


def _exchange_ports(coordinator: Coordinator, own: set[int]) -> set[int]:
    """The ports on which the collectives of all processes listen."""
    label = "distributed.initialize"
    texts = coordinator.exchange(label, json.dumps(sorted(own)), sequence=label)
    assert coordinator.watch is not None
    coordinator.watch.end_sequence(label)
    return {port for text in texts for port in json.loads(text)}


def shutdown() -> None:
    """Wait until all processes have called this function, and disconnect from them.

    At the end of a program this happens by itself, without waiting for the others. Nor are they waited for after a
    `ProcessFailure`.

    Raises:
      CoordinationError: a process did not call it in time.

    Examples:
      >>> initialize("127.0.0.1:6000", num_processes=1, process_id=0)
      >>> shutdown()
      >>> is_initialized()
      False
    """
    if not _current:
        return
    session = _current[0]
    if session.coordinator is not None:
        session.coordinator.join_threads()
    if _has_failed(session):
        return _leave_failed_program()
    try:
        if session.coordinator is not None:
            session.coordinator.exchange("distributed.shutdown", "", seconds=session.shutdown_seconds)
    finally:
        _disconnect()


@atexit.register
def _disconnect_at_exit() -> None:
    sessions, error = [*_current, *_left], _last_exception()
    if error is None and _current and not _has_failed(_current[0]):
        finish_runs()  # while the failure of another process is noticed
    _disconnect()
    # After an exception, the runs that this process has begun may wait for others for ever.
    is_stuck = error is not None and bool(sessions) and not unfinished_runs.all_added_finished()
    if is_stuck or any(map(_has_stuck_threads, sessions)):
        # Python would destroy the devices that these threads use, which ends the process with SIGABRT.
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # it is closed, or None
                stream.flush()
        os._exit(int(is_stuck or any(map(_has_failed, sessions))))


def _last_exception() -> BaseException | None:
    """The exception with which the program ends."""
    return getattr(sys, "last_exc", getattr(sys, "last_value", None))


def _disconnect() -> None:
    """Leave the program. The service goes on until all processes have left."""
    if not _current:
        return
    session = _current.pop()
    if session.coordinator is not None:
        session.coordinator.join_threads()  # while the watch goes on
        if session.coordinator.watch is not None:
            session.coordinator.watch.stop(_last_exception())
        session.coordinator.disconnect()
    if session.service is not None and session.service.stdin is not None:
        session.service.stdin.close()


def is_initialized() -> bool:
    """Whether this process is part of a distributed program.

    Returns:
      True between `initialize` and `shutdown`.

    Examples:
      >>> is_initialized()
      False
    """
    return bool(_current)


def _prepare_once_or_again(given: dict[str, Any]) -> dict[str, Any]:
    """Leave a program that has failed, and complete the arguments by those of the processes that are left."""
    if _current and not _has_failed(_current[0]):
        raise ForbiddenError(
            "distributed.initialize",
            expected="to be called once, or again after a ProcessFailure",
            got="a second call",
            fix="call distributed.is_initialized() first",
        )
    missing = [name for name, value in given.items() if value is None]
    has_lost_service = bool(_current) and _has_lost_service(_current[0])
    if missing and (has_lost_service or (_left and not _current)):
        cause = "the loss of the coordination service" if has_lost_service else "a ProcessFailure and shutdown"
        renumber = "number these processes from 0 and choose an unused port"
        raise ArgumentError(
            f"distributed.initialize, after {cause}",
            expected=f"{', '.join(missing)} of the program that the remaining processes form",
            got="none, and the environment describes the program that has failed",
            fix=renumber if has_lost_service else f"call it without shutdown before, or {renumber}",
        )
    if _current and missing:
        given = _meet_remaining(given, _current[0])
    if _current:
        _leave_failed_program()
    return given


def _meet_remaining(given: dict[str, Any], session: _Session) -> dict[str, Any]:
    """Complete the arguments for the program of all processes that are left."""
    coordinator = session.coordinator
    assert coordinator is not None
    host = own_address(session.address) or socket.gethostname()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        own = f"{f'[{host}]' if ':' in host else host}:{probe.getsockname()[1]}"
    addresses = coordinator.meet("distributed.initialize", own)
    numbers = sorted(addresses)
    found = {
        "coordinator_address": addresses[numbers[0]],
        "num_processes": len(numbers),
        "process_id": numbers.index(coordinator.process_id),
    }
    return {name: found[name] if value is None else value for name, value in given.items()}


def _leave_failed_program() -> None:
    """Disconnect from a program that cannot go on, and forget its devices."""
    _left.append(_current[0])
    with contextlib.suppress(Exception):  # of the effects of programs that have failed
        effects_barrier()  # while waits can be interrupted
    unfinished_runs.abandon()
    _disconnect()
    client.abandon_clients()
    clear_caches()


def _has_failed(session: _Session) -> bool:
    watch = None if session.coordinator is None else session.coordinator.watch
    return watch is not None and watch.has_failed


def _has_stuck_threads(session: _Session) -> bool:
    watch = None if session.coordinator is None else session.coordinator.watch
    return _has_lost_service(session) or (watch is not None and watch.has_stuck_threads)


def _has_lost_service(session: _Session) -> bool:
    return session.coordinator is not None and session.coordinator.has_lost_service


def _check_first() -> None:
    if client.started_clients():
        raise ForbiddenError(
            "distributed.initialize",
            expected="to be called before devices are used",
            got=f"devices of platform {', '.join(client.started_clients())} that have been started",
            fix="call it at the top of the program, before the first array, compilation or call of phalanx.devices()",
        )


def _read_end() -> str:
    """What the launcher says of a process that has ended before all were connected."""
    path = None if _left else os.environ.get(END_FILE)
    with contextlib.suppress(FileNotFoundError):
        return Path(path).read_text() if path else ""
    return ""


def _check_numbers(address: object, num_processes: object, process_id: object) -> None:
    for name, value, kind in (
        ("coordinator_address", address, str),
        ("num_processes", num_processes, int),
        ("process_id", process_id, int),
    ):
        if not isinstance(value, kind):
            raise ArgumentTypeError(
                f"distributed.initialize, {name}",
                expected="a string" if kind is str else "an int",
                got=repr(value),
                fix='pass "host:port"' if kind is str else f"pass {name}=int(...)",
            )
    assert isinstance(num_processes, int) and isinstance(process_id, int)
    if num_processes < 1:
        raise ArgumentError(
            "distributed.initialize, num_processes",
            expected="a positive number",
            got=num_processes,
            fix="pass 1 or more",
        )
    if not 0 <= process_id < num_processes:
        raise ArgumentError(
            "distributed.initialize, process_id",
            expected=f"a number from 0 to num_processes - 1 = {num_processes - 1}",
            got=process_id,
            fix="number the processes from 0",
        )


def _check_seconds(**seconds: float) -> None:
    for name, value in seconds.items():
        if not isinstance(value, Real):
            raise ArgumentTypeError(
                f"distributed.initialize, {name}",
                expected="a number of seconds",
                got=repr(value),
                fix="pass a float, or leave it out",
            )
        if not value > 0:
            raise ArgumentError(
                f"distributed.initialize, {name}",
                expected="a positive number of seconds",
                got=value,
                fix="leave it out",
            )


def _choose_local_devices(
    given: int | Sequence[int] | None, local_process_id: int | None, environ: Mapping[str, str]
) -> tuple[int, ...] | None:
    """The GPUs of this process, by their numbers among the visible ones; None for all."""
    if given is None and (text := read_option_variable("local_device_ids")):
        given = [int(number) for number in text.split(",")]
    if given is not None:
        try:
            return tuple(map(operator.index, given if isinstance(given, Iterable) else (given,)))
        except TypeError:
            raise ArgumentTypeError(
                "distributed.initialize, local_device_ids",
                expected="an int or a sequence of ints",
                got=repr(given),
                fix="pass the numbers of the GPUs, such as [0, 1]",
            ) from None
    # A scheduler may have restricted each process to its own GPUs already.
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if local_process_id is None or (visible is not None and local_process_id >= len(visible.split(","))):
        return None
    return (local_process_id,)
