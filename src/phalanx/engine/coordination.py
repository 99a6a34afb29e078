"""The connection of a process to the coordination service of its distributed program.

The service stores small values that all processes can read; collectives of the devices are not its business. Built on
jaxlib's client of the distributed runtime; `phalanx.distributed` connects, the clients of devices are started with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import socket
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from jaxlib import _jax

from phalanx.engine.coordination_service import NEVER, host_and_port
from phalanx.engine.error_record import CoordinationError, ProgramMismatchError
from phalanx.engine.runtime_errors import XlaRuntimeError

if TYPE_CHECKING:
    from phalanx.engine.failure_watch import FailureWatch

_CONNECT_PERIOD = 0.2  # seconds between two looks for a process that will not come
_MEETING_PERIOD, _ANSWER = 0.02, "answer"
LOST_SERVICE = "St8bad_cast"
"""The name of the C++ exception by which jaxlib's client tells that it has lost the service."""

_LEAVE_SECONDS = 10.0  # which an answer of the service does not take
_POLL = 1.0  # seconds of one wait inside jaxlib, in which this process cannot be told of a failure


def own_address(coordinator_address: str) -> str | None:
    """The address of this machine on the network that leads to the coordinator.

    Args:
      coordinator_address: `"host:port"`.

    Returns:
      A numeric address; None if it cannot be found, in which case the name of the machine has to do.
    """
    host, port = host_and_port(coordinator_address)
    found = _source_address(host, port)
    # The name of a machine often resolves to a loopback address on the machine itself.
    if found is not None and _is_loopback(found) and not _is_loopback(host):
        found = _source_address("192.0.2.1", port)  # reserved for documentation: the route of the default gateway
    return found


def _is_loopback(host: str) -> bool:
    return host == "localhost" or host.startswith("127.") or host == "::1"


def _source_address(host: str, port: int) -> str | None:
    """The address from which packets to a host would be sent; none is."""
    try:
        family, kind, *_, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except OSError:
        return None


def bind_address(coordinator_address: str) -> str:
    """The address on which the coordinator listens by default: the loopback, or all networks of the machine."""
    host, port = host_and_port(coordinator_address)
    if _is_loopback(host):
        return f"[::1]:{port}" if ":" in host else f"127.0.0.1:{port}"
    return f"[::]:{port}" if socket.has_dualstack_ipv6() else f"0.0.0.0:{port}"


def group_name(among: Sequence[int] | None) -> str:
    """The name of a group of processes; None for all of them."""
    return "all" if among is None else ",".join(map(str, among))


def is_member(process: int, group: str) -> bool:
    """Whether a process takes part in a group, or in a named sequence of exchanges, in which all do."""
    return not group[0].isdigit() or str(process) in group.split(",")


class Coordinator:
    """A connected process of a distributed program.

    Args:
      client: jaxlib's client of the distributed runtime.
      process_id: the number of this process.
      num_processes: the number of processes.
    """

    def __init__(self, client: Any, process_id: int, num_processes: int):
        self.client = client
        self.process_id = process_id
        self.num_processes = num_processes
        self.watch: FailureWatch | None = None
        self.threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()  # that use the connection
        self._exchanges: Counter[str] = Counter()
        self._locks: dict[str | None, threading.RLock] = {}  # one of each sequence
        self._preemption: Any = None

    @classmethod
    def connect(
        cls,
        address: str,
        process_id: int,
        num_processes: int,
        *,
        seconds: float,
        read_end: Callable[[], str] = lambda: "",
    ) -> Coordinator:
        """Connect to the service, and wait until all processes have.

        Args:
          address: the address of the service, `"host:port"`.
          process_id: the number of this process.
          num_processes: the number of processes.
          seconds: the time limit.
          read_end: what is known of a process that has ended and will not come; "" if nothing is.

        Returns:
          The connection.

        Raises:
          CoordinationError: the service cannot be reached, or not all processes have connected in time. A second call
            with the same arguments goes on waiting.
        """
        deadline = time.monotonic() + seconds
        _wait_for_listener(address, deadline, seconds)
        key = address, process_id, num_processes
        attempt = _attempts.get(key)
        if attempt is None or attempt.failures:
            attempt = _attempts[key] = _Attempt(address, process_id)
        thread, failures, ended = attempt.thread, attempt.failures, ""
        while thread.is_alive() and not ended and time.monotonic() < deadline:
            thread.join(min(_CONNECT_PERIOD, max(0.0, deadline - time.monotonic())))
            ended = read_end()
        if thread.is_alive() or failures:
            waiting = ended or f"process {process_id} waiting for the others"
            raise CoordinationError(
                "distributed.initialize",
                expected=f"all {num_processes} processes to connect to {address} within {seconds:g} s",
                got=str(failures[0]).splitlines()[0] if failures else waiting,
                fix="start every process with the same coordinator_address and num_processes, and process_id from 0 to "
                f"{num_processes - 1}; look at the output of the others, or raise initialization_timeout",
            )
        del _attempts[key]
        return cls(attempt.client, process_id, num_processes)

    def exchange(
        self,
        label: str,
        value: str,
        *,
        among: Sequence[int] | None = None,
        sequence: str | None = None,
        seconds: float | None = None,
    ) -> list[str]:
        """Give a value to the other processes and get theirs. Every process must call it with the same label.

        Args:
          label: the purpose of the exchange; a process that is at another exchange is an error.
          value: the value of this process.
          among: the processes that take part, sorted; all by default.
          sequence: the name of a sequence of exchanges among all processes whose order does not depend on that of the
            launches; for a thread that works beside the program.
          seconds: the time limit; none by default.

        Returns:
          The value of each process.

        Raises:
          ProgramMismatchError: another process is at another exchange.
          CoordinationError: a process did not come in time, or the service was lost.
        """
        processes = range(self.num_processes) if among is None else among
        group = sequence or group_name(among)
        deadline = None if seconds is None else time.monotonic() + seconds
        with self._lock_of(sequence):
            self._exchanges[group] += 1
            if self.watch is not None:
                self.watch.begin(group, label)
            prefix = f"phalanx/exchange/{group}/"
            number = self._exchanges[group]
            with self._explain_loss(label, group):
                self.client.key_value_set(f"{prefix}{number}/{self.process_id}", json.dumps([label, value]))
                keys = [(f"{prefix}{number}/{process}", process) for process in processes]
                found = [json.loads(self._wait_for(key, label, group, process, deadline)) for key, process in keys]
                # Whoever has given this value has read all values of the exchange before it.
                if number > 1:
                    self.client.key_value_delete(f"{prefix}{number - 1}/{self.process_id}")
        for process, (their_label, _) in zip(processes, found, strict=True):
            if their_label != label:
                raise ProgramMismatchError(
                    label,
                    expected=f"process {process} to call it, too",
                    got=f"process {process} at {their_label}",
                    fix="let all processes run the same program, in the same order",
                )
        return [theirs for _, theirs in found]

    def meet(self, label: str, value: str, *, among: Sequence[int] | None = None) -> dict[int, str]:
        """Exchange values with the processes that are alive; those known to be lost are not waited for.

        Processes may learn of a loss at different times. The first one to have heard of all others therefore stores the
        answer, and all of them take that one. Every process that is alive must call it, as often as the others.

        Args:
          label: the purpose, for errors.
          value: the value of this process.
          among: the processes that take part, sorted; all by default.

        Returns:
          The value of each process that is alive, by its number.

        Raises:
          CoordinationError: the others have taken this process for lost.
        """
        assert self.watch is not None
        processes, since = range(self.num_processes) if among is None else among, time.monotonic()
        meeting = f"meeting/{group_name(among)}"
        self._exchanges[meeting] += 1
        number = self._exchanges[meeting]
        prefix = f"phalanx/{meeting}/{number}/"
        with self._explain_loss(label, group_name(among)):
            self.client.key_value_set(f"{prefix}{self.process_id}", value)
            found: dict[str, str] = {}
            while _ANSWER not in found and not all(str(p) in found or self.watch.is_lost(p, since) for p in processes):
                time.sleep(_MEETING_PERIOD if found else 0)
                found = {key.rpartition("/")[2]: text for key, text in self.client.key_value_dir_get(prefix)}
            with contextlib.suppress(XlaRuntimeError):  # another process was first
                self.client.key_value_set(f"{prefix}{_ANSWER}", json.dumps(found))
            answer = json.loads(self.client.blocking_key_value_get(f"{prefix}{_ANSWER}", int(_POLL * 1000)))
        if str(self.process_id) not in answer:
            raise CoordinationError(
                label,
                expected="this process to come while the others waited for it",
                got=f"processes {', '.join(answer)}, which go on without it",
                fix="end this process, or raise heartbeat_timeout_seconds and stuck_timeout_seconds of initialize",
            )
        # Whoever has come to this meeting has read the answer of the one before it.
        if number > 1 and self.process_id == min(map(int, answer)):
            self.client.key_value_delete(f"phalanx/{meeting}/{number - 1}/")
        return {int(process): text for process, text in answer.items()}

    def reached_preemption_sync_point(self, step: int) -> bool:
        """Whether the processes save and end at this step, because one of them was sent SIGTERM."""
        if self._preemption is None:  # started at the first use, because it takes over SIGTERM
            self._preemption = _jax.create_preemption_sync_manager()
            self._preemption.initialize(self.client)
        return bool(self._preemption.reached_sync_point(step))

    @property
    def has_lost_service(self) -> bool:
        """Whether the service has been lost, so that nothing can be exchanged any more."""
        return isinstance(self.client, _LostService)

    def abandon_service(self) -> None:
        """Never use jaxlib's client again, not even to destroy it: after the loss of the service it waits for ever."""
        if not self.has_lost_service:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.client))
            self.client = _LostService()

    def join_threads(self) -> None:
        """Wait for the threads that use the connection; the watch ends their exchanges with a process that fails."""
        for thread in list(self.threads):
            thread.join()

    def disconnect(self) -> None:
        """Leave the program; the other processes are not waited for."""
        if self._preemption is not None and not self.has_lost_service:
            self._preemption.shutdown()
        self.call_last(self.client.shutdown)

    def call_last(self, use_client: Callable[[], Any]) -> None:
        """Use the client when this process leaves the program, at which time the service may already be lost.

        Args:
          use_client: the function that uses it; its errors are of no interest any more.
        """

        def call() -> None:
            with contextlib.suppress(XlaRuntimeError):
                use_client()

        thread = threading.Thread(target=call, daemon=True, name="phalanx-leave")
        thread.start()
        thread.join(_LEAVE_SECONDS)
        if thread.is_alive():
            self.abandon_service()

    def _lock_of(self, sequence: str | None) -> threading.RLock:
        return self._locks.setdefault(sequence, threading.RLock())  # which is atomic

    def _wait_for(self, key: str, label: str, group: str, process: int, deadline: float | None) -> str:
        while True:
            left = _POLL if deadline is None else min(_POLL, deadline - time.monotonic())
            try:
                return self.client.blocking_key_value_get(key, max(1, int(left * 1000)))
            except XlaRuntimeError as error:
                if self.watch is not None:
                    self.watch.check(group)
                if deadline is not None and time.monotonic() >= deadline:
                    raise CoordinationError(
                        label,
                        expected=f"process {process} to call it, too",
                        got="no call in time",
                        fix="look at the output of that process",
                    ) from None
                if not str(error).startswith("DEADLINE_EXCEEDED"):
                    raise

    @contextlib.contextmanager
    def _explain_loss(self, label: str, group: str) -> Iterator[None]:
        """Raise the failure of a process, or a `CoordinationError`, for an error of the service."""
        try:
            yield
        except XlaRuntimeError as error:
            if self.watch is not None:
                self.watch.await_failure()
                self.watch.check(group)
            raise CoordinationError(
                label,
                expected="the coordination service to answer",
                got=str(error).splitlines()[0],
                fix="look at the output of process 0, which holds it, or of the launcher",
            ) from None


class _LostService:
    """Takes the place of jaxlib's client when the service is lost: every function raises."""

    def __getattr__(self, name: str) -> Any:
        def fail(*args: Any, **options: Any) -> Any:
            raise XlaRuntimeError(f"UNAVAILABLE: {name}: the coordination service is lost")

        return fail


def _ignore(status: Any) -> None:
    """Never called: jaxlib cannot convert the argument."""


class _Attempt:
    """A thread that connects a client, because jaxlib ends the process, in C++, if its own time limit is reached."""

    def __init__(self, address: str, process_id: int):
        self.client: Any = _jax.get_distributed_runtime_client(
            address,
            process_id,
            init_timeout=NEVER,
            heartbeat_timeout=NEVER,
            shutdown_timeout=1,
            shutdown_on_destruction=False,
            use_compression=True,
            # Without a callback, jaxlib ends the process when the service is lost. With one, it raises a C++ exception,
            # because it cannot convert the argument; `failure_watch` keeps it from ending the process.
            missed_heartbeat_callback=_ignore if sys.platform == "linux" else None,
        )
        self.failures: list[Exception] = []
        self.thread = threading.Thread(target=self._connect, daemon=True, name="phalanx-connect")
        self.thread.start()

    def _connect(self) -> None:
        try:
            self.client.connect()
        except Exception as error:
            self.failures.append(error)


# By address, number of the process and number of processes: those that have not succeeded yet. They cannot be ended,
# and a second client with the same number would take the place of the first one in the service.
_attempts: dict[tuple[str, int, int], _Attempt] = {}


def _wait_for_listener(address: str, deadline: float, seconds: float) -> None:
    """Wait until something accepts connections at the address of the service."""
    host, port = host_and_port(address)
    while True:
        try:
            socket.create_connection((host, port), timeout=max(0.1, deadline - time.monotonic())).close()
            return
        except OSError as error:
            if time.monotonic() < deadline:
                time.sleep(0.1)
                continue
            raise CoordinationError(
                "distributed.initialize, coordinator_address",
                expected=f"the coordinator, started by process 0, to answer at {address} within {seconds:g} s",
                got=str(error),
                fix="check that process 0 runs and that this machine can reach it there",
            ) from None


def make_cpu_collectives(coordinator: Coordinator, hostname: str | None) -> Any:
    """Gloo's collectives over TCP, with which the CPU devices of several processes communicate.

    Args:
      coordinator: the connection to the other processes.
      hostname: the address at which they reach this one; None for the name of the machine.

    Returns:
      jaxlib's object.
    """
    options = {} if hostname is None else {"hostname": hostname}
    return _jax.make_gloo_tcp_collectives(distributed_client=coordinator.client, **options)
