"""The failure watch: each process of a distributed program notices when another one dies, stops, hangs or raises.

A thread of each process publishes a record in the coordination service, every second or more often: how many programs
the process has launched, a running hash of them, and the line of the user's program that it is at. It reads the records
of the others. If one shows a failure, the watch cuts this process's connections of Gloo, so that collectives in which
devices wait for each other end with an error, and every launch or wait raises a `ProcessFailure` in its place.

jaxlib's own reaction to a lost process is to end all others from C++. `coordination_service` keeps it from noticing.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import json
import logging
import os
import re
import sys
import threading
import time
import traceback
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from threading import get_ident
from types import FrameType
from typing import Any, NamedTuple

from phalanx.engine import coordination, interruptible_wait, runtime_errors, tcp_sockets
from phalanx.engine.coordination import Coordinator, group_name, is_member
from phalanx.engine.defining_module import public_in
from phalanx.engine.error_record import PhalanxError, ProgramMismatchError
from phalanx.engine.runtime_errors import XlaRuntimeError
from phalanx.engine.terminate_handler import add_terminate_handler
from phalanx.engine.traceback_filtering import is_internal, is_program_file

_KEYS = "phalanx/watch/"
_MAX_PERIOD = 1.0  # seconds between two records
_CUT_SECONDS = 2.0  # after which a wait ends whose connections are cut
_VERDICT_SECONDS = 5.0  # by which a busy watch may be late
_TELL_SECONDS = 3 * _MAX_PERIOD  # in which the others hear of a failure, and this process that they have
_MAX_TEXT = 4000  # characters of a traceback, since all records pass through one service
_MAX_LINES = 2000  # of a program that is compared
_LOST_SERVICE_TEXTS = "a lost connection to it", "hold the coordination service, itself or in its launcher"
# Texts of errors that come from a connection to another process, not from this process's own computation.
_CONNECTION_ERROR = re.compile(r"gloo|peer|connect|socket|broken pipe|timed out|collective", re.IGNORECASE)

_REFUSED = "INVALID_ARGUMENT"  # Jaxlib has not begun to run the program, as for an argument that was deleted.

_NUM_KEPT = 32  # launches in a record

logger = logging.getLogger("phalanx")


@public_in("phalanx.errors")
class ProcessFailure(PhalanxError, RuntimeError):
    """Another process of the distributed program has failed, so that this one cannot go on.

    Its attributes `process`, `kind` ("dead", "stuck", "raised", "left", "order" or "coordinator"), `launch` (the number
    of its last launch), `place` (the line it was last at) and `their_traceback` describe the failure.

    Args:
      where, expected, got, fix: as in `PhalanxError`.

    Examples:
      >>> issubclass(ProcessFailure, RuntimeError)
      True
    """

    process: int
    kind: str
    launch: int
    place: str
    their_traceback: str


class _Launch(NamedTuple):
    """A launch that all processes of a group make: its number, the hash of it and all before it, and its name."""

    number: int
    rolling: int
    name: str


_START = _Launch(0, 0, "the start of the program")


class _Group:
    """The launches that a group of processes makes together.

    A call of a program only appends its name and fingerprint to `begun`; the watch numbers and hashes them later.

    Args:
      name: the name of the group.
    """

    def __init__(self, name: str):
        self.name = name
        self.begun: collections.deque[tuple[str, bytes]] = collections.deque()
        self.thread_id = get_ident()  # of the thread of this process that makes them
        self.failure: dict[str, Any] | None = None  # of a process without which the others go on
        self._numbered = collections.deque([_START], _NUM_KEPT)
        self._lock = threading.Lock()

    def retract(self) -> bool:
        """Forget the last launch; returns whether it had been numbered, and others may have heard of it."""
        with self._lock:
            return (self.begun or self._numbered).pop()[0] == self._numbered[-1].number + 1

    @property
    def launches(self) -> list[_Launch]:
        """The last launches, the latest one at the end."""
        with self._lock:
            begun = [self.begun.popleft() for _ in range(len(self.begun))]
            last, rolling, _ = self._numbered[-1]
            older = begun[:-_NUM_KEPT]
            rolling = zlib.crc32(b"".join(fingerprint for _, fingerprint in older), rolling)
            for number, (name, fingerprint) in enumerate(begun[-_NUM_KEPT:], last + len(older) + 1):
                rolling = zlib.crc32(fingerprint, rolling)
                self._numbered.append(_Launch(number, rolling, name))
            return list(self._numbered)


_FIRST_RECORD = {"state": "running", "sequence": -1, "launches": {}, "place": "", "failure": None}


class FailureWatch:
    """The watch of one process over the others.

    Args:
      coordinator: the connection to the others.
      dead_after: seconds without a sign of life after which a process counts as dead.
      stuck_after: seconds that this process waits for one that is alive but does not come.

    Its attribute `ports` are those on which the collectives of all processes listen, once they are known.
    """

    def __init__(self, coordinator: Coordinator, *, dead_after: float, stuck_after: float):
        self.coordinator = coordinator
        self.dead_after, self.stuck_after = dead_after, stuck_after
        self.ports: Collection[int] = ()
        self.compared: set[str] = set()  # fingerprints that are known to be the same in all processes
        self._period = min(_MAX_PERIOD, dead_after / 10)
        self._groups: dict[str, _Group] = {}
        self._sequence = 0
        self._state: dict[str, Any] = {"state": "running"}
        self._raised: BaseException | None = None  # in a callback of this process
        self._late_error: Any = None  # which the next wait for an array raises, unless it is raised before
        others = (p for p in range(coordinator.num_processes) if p != coordinator.process_id)
        self._seen = {process: _Seen(time.monotonic()) for process in others}
        self._waits: dict[int, tuple[float, Any]] = {}  # of each thread: since when, and after which launches
        self._has_warned = ""
        self._has_kept_thread = False  # that would have ended the process in C++
        self._has_lost_peer = False  # A connection broke in a collective, which therefore goes on waiting.
        self._failure: dict[str, Any] | None = None
        self._lost: dict[int, dict[str, Any]] = {}  # the failures of the processes that are excluded
        self._failed, self._stopped = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="phalanx-failure-watch")
        coordinator.watch = self
        self._publish()
        add_terminate_handler(self._survive)
        self._interrupter = interruptible_wait.Interrupter(self._make_current_error)
        interruptible_wait.interrupters.append(self._interrupter)
        runtime_errors.explain_process_failure.append(self.explain)
        runtime_errors.on_late_failure.append(self._publish_error)
        self._thread.start()

    def begin(self, group: str, name: str, fingerprint: str = "") -> None:
        """Count a launch that the processes of a group must make together; raises if one of them has failed."""
        self.check(group)
        record = self._group(group)
        record.begun.append((name, fingerprint.encode()))
        record.thread_id = get_ident()

    def end_sequence(self, name: str) -> None:
        """Forget a named sequence of exchanges, so that no error names it any more."""
        self._groups.pop(name, None)

    def _group(self, name: str) -> _Group:
        record = self._groups.get(name)
        if record is None:
            record = self._groups.setdefault(name, _Group(name))
            self._mark_lost(record)
        return record

    def watch_launches(
        self,
        run: Callable,
        name: str,
        fingerprint: str,
        processes: Sequence[int],
        lines: Callable[[], list[str]],
        *,
        may_block: bool,
    ) -> Callable:
        """The execution of a program over several processes, which are compared before its first launch.

        Args:
          run: the execution.
          name: the name of the program.
          fingerprint: the same in all processes that have the same program.
          processes: the processes with devices of the program, sorted.
          lines: a function to print the program, for the case that another process has another one.
          may_block: whether another thread runs it, so that this one can be interrupted.
        """
        among = None if len(processes) == self.coordinator.num_processes else processes
        group = self._group(group_name(among))
        launch_of_program, is_compared = (name, fingerprint.encode()), False

        # `begin`, without what takes time: this runs at each call.
        def launch(arguments: list, with_tokens: bool = False) -> Any:
            nonlocal is_compared
            if self._failure is not None or group.failure is not None:
                self.check(group.name)
            group.begun.append(launch_of_program)
            group.thread_id = get_ident()
            if not is_compared:
                self._compare(name, fingerprint, among, lines)
                is_compared = True
            try:
                if may_block:
                    return self._interrupter.wait(functools.partial(run, arguments, with_tokens))
                return run(arguments, with_tokens)
            except XlaRuntimeError as error:
                if not str(error).startswith(_REFUSED):
                    raise self.explain(error) from error
                if group.retract():
                    with contextlib.suppress(XlaRuntimeError):
                        self._publish()
                raise

        return launch

    def _compare(
        self, name: str, fingerprint: str, among: Sequence[int] | None, lines: Callable[[], list[str]]
    ) -> None:
        """Compare a program with that of the other processes; raises at the first operation that differs.

        Different programs would end the process in C++ as soon as their collectives meet.
        """
        if fingerprint in self.compared:
            return
        exchange = self.coordinator.exchange
        found = exchange("the comparison of a program before its first launch", fingerprint, among=among)
        if len(set(found)) == 1:
            self.compared.add(fingerprint)
            return
        mine = lines()[:_MAX_LINES]
        programs = exchange("the comparison of two programs", json.dumps(mine), among=among)
        processes = range(self.coordinator.num_processes) if among is None else among
        number = next(i for i, other in enumerate(found) if other != fingerprint)
        here, there = _first_difference(mine, json.loads(programs[number]))
        raise ProgramMismatchError(
            f"launch of {name} over processes {', '.join(map(str, processes))}",
            expected=f"the same program in all of them, here (process {self.coordinator.process_id})\n    {here}",
            got=f"in process {processes[number]}\n    {there}",
            fix="let all processes run the same operations on the same shapes and dtypes, in the same order",
        )

    def explain(self, error: XlaRuntimeError) -> BaseException:
        """Find the failed process behind an error of a collective; waits until it is known to be dead.

        Args:
          error: the error of a launch or a wait.

        Returns:
          A `ProcessFailure`, or `error` itself if no process has failed.
        """
        failure = self._failure
        if failure is None and _CONNECTION_ERROR.search(str(error)):
            self._has_lost_peer = True
            self._failed.wait(self.dead_after + _VERDICT_SECONDS)
            failure = self._failure or next(iter(self._lost.values()), None)
        return error if failure is None else self._make_error(failure)

    @property
    def has_failed(self) -> bool:
        """Whether a process has failed."""
        return self._failure is not None or bool(self._lost)

    def await_failure(self) -> None:
        """Wait a moment for the failure behind an error of the coordination service."""
        self._failed.wait(_VERDICT_SECONDS)

    @property
    def has_stuck_threads(self) -> bool:
        """Whether threads stay in C++ for ever."""
        return self._has_kept_thread or self._interrupter.is_interrupted

    def check(self, group: str) -> None:
        """Raise if a process has failed, or one of a group without which the others go on."""
        record = self._groups.get(group)
        if (failure := self._failure or (None if record is None else record.failure)) is not None:
            raise self._make_error(failure)

    def is_lost(self, process: int, since: float) -> bool:
        """Whether a process that others have waited for since some time will not come."""
        # Of two processes that launch in different orders, each names the other one.
        if self._failure is not None and self._failure["process"] == process and self._failure["kind"] != "order":
            return True
        if process not in self._seen:
            return process in self._lost
        seen, now = self._seen[process], time.monotonic()
        return seen.state != "running" or now - seen.fresh > self.dead_after or now - since > self.stuck_after

    def exclude(self, processes: Collection[int]) -> None:
        """Go on without processes that are lost: a launch in which one of them takes part raises, no other one does.

        Args:
          processes: their numbers, which may have been excluded before.
        """
        for process in set(processes) - set(self._lost):
            failure = self._failure
            if failure is None or failure["process"] != process:
                failure = _describe_failure(process, _FIRST_RECORD, "left", "none of them", "be among the survivors")
            self._lost[process] = failure
        # The thread of the watch may be walking through the dictionary.
        self._seen = {process: seen for process, seen in self._seen.items() if process not in self._lost}
        for group in list(self._groups.values()):
            self._mark_lost(group)
        if self._failure is not None and self._failure["process"] in self._lost:
            self._failure, self._has_lost_peer = None, False
            self._forget_late_error()
            self._failed.clear()

    def _mark_lost(self, group: _Group) -> None:
        group.failure = next((f for process, f in self._lost.items() if is_member(process, group.name)), None)

    def stop(self, error: BaseException | None) -> None:
        """Leave the program, and let the other processes know how."""
        self._stopped.set()
        self._thread.join(timeout=2 * _MAX_PERIOD)
        if error is None or isinstance(error, ProcessFailure):
            self._state = {"state": "left", "place": ""}
        else:
            self._state = _describe_error(error)
        self.coordinator.call_last(self._publish)
        if self._interrupter.has_left:
            tcp_sockets.cut_connections(self.ports)
            self._interrupter.join(_MAX_PERIOD)
        interruptible_wait.interrupters.remove(self._interrupter)
        runtime_errors.explain_process_failure.remove(self.explain)
        runtime_errors.on_late_failure.remove(self._publish_error)

    def _survive(self, exception: str) -> None:
        """Keep the thread whose exception would end the process in C++; return if no process has failed.

        There are two such exceptions. The one of jaxlib's client, when it loses the coordination service, holds a lock
        for which every further use of the client would wait. Gloo raises the other, in a thread of its own, for a
        message of another size than expected, such as one of another program's collective: that thread was to wake the
        others.

        Args:
          exception: the name of its type.
        """
        if exception == coordination.LOST_SERVICE:
            self.coordinator.abandon_service()
            if self._stopped.is_set():
                threading.Event().wait()
            self._fail(_describe_failure(0, _FIRST_RECORD, "coordinator", *_LOST_SERVICE_TEXTS))
        elif self._stopped.is_set() or not self._failed.wait(self.dead_after + _VERDICT_SECONDS):
            return
        else:
            self._interrupter.interrupt()
        self._has_kept_thread = True
        threading.Thread(target=self._end_if_stuck, daemon=True, name="phalanx-last-resort").start()
        threading.Event().wait()

    def _end_if_stuck(self) -> None:
        """End the process, with its `ProcessFailure`, if a thread stays inside C++ where nothing can reach it."""
        seen: dict[int, tuple[FrameType, int]] = {}
        since: dict[int, float] = {}
        while not self._stopped.wait(_MAX_PERIOD / 4):
            now, frames = time.monotonic(), sys._current_frames()
            threads = {threading.main_thread().ident or 0, *(group.thread_id for group in list(self._groups.values()))}
            for thread_id in threads & set(frames):
                frame = frames[thread_id]
                if seen.get(thread_id) != (frame, frame.f_lasti):
                    seen[thread_id], since[thread_id] = (frame, frame.f_lasti), now
                elif _calls_jaxlib(frame) and now - since[thread_id] > _VERDICT_SECONDS:
                    error = self._make_current_error()
                    error.add_note(f"It ended this process, which was at {_find_place(frame)}, inside jaxlib.")
                    sys.excepthook(type(error), error, None)
                    sys.stdout.flush()
                    os._exit(1)

    def _publish_error(self, error: BaseException) -> None:
        """Let the others know of an exception of a callback, and give them the time to stop waiting for its results."""
        self._state, self._raised = _describe_error(error) | {"sends_invalid": True}, error
        with contextlib.suppress(XlaRuntimeError):
            self._publish()
        if any(seen.state == "running" for seen in self._seen.values()):
            self._failed.wait(_TELL_SECONDS)

    def _publish(self) -> None:
        self._sequence += 1
        main = sys._current_frames().get(threading.main_thread().ident or 0)
        record = {
            "sequence": self._sequence,
            "launches": {name: group.launches for name, group in list(self._groups.items())},
            "place": _find_place(main),
            "failure": self._failure,
            **self._state,
        }
        self.coordinator.client.key_value_set(
            f"{_KEYS}{self.coordinator.process_id}", json.dumps(record), allow_overwrite=True
        )

    def _run(self) -> None:
        """The loop of the thread."""
        while not self._stopped.wait(self._period):
            try:
                self._publish()
                records = self.coordinator.client.key_value_dir_get(_KEYS)
            except XlaRuntimeError:
                if not self._stopped.is_set():
                    logger.warning("The coordination service of the distributed program does not answer.")
                continue
            self._update_wait()
            found = {int(key.rpartition("/")[2]): json.loads(text) for key, text in records}
            for process, seen in self._seen.items():
                record = found.get(process, _FIRST_RECORD)
                seen.update(record, time.monotonic())
                if self._failure is None:
                    self._look_at(process, seen, record)

    def _update_wait(self) -> None:
        """Find out since when each thread waits inside a launch or a wait for its results."""
        frames, groups, waits = sys._current_frames(), list(self._groups.values()), {}
        for thread_id in {group.thread_id for group in groups}:
            frame = frames.get(thread_id)
            if self._has_lost_peer or (frame is not None and is_internal(frame.f_code)):
                position = [group.launches[-1].number for group in groups if group.thread_id == thread_id]
                since, before = self._waits.get(thread_id, (0.0, None))
                waits[thread_id] = (since if position == before else time.monotonic(), position)
        self._waits = waits

    def _look_at(self, process: int, seen: _Seen, record: dict[str, Any]) -> None:
        """Compare the record of another process with the state of this one."""
        now = time.monotonic()
        failure = record["failure"]
        # Another order of launches is found by both processes, and each names the other: a third one looks for itself.
        if failure is not None and failure["kind"] != "order":
            return self._fail(failure)
        if record["state"] == "raised":
            return self._report(process, record, "raised", record["detail"], "run")
        for name, group in list(self._groups.items()):
            if is_member(process, name):
                theirs = [_Launch(*launch) for launch in record["launches"].get(name, [_START])]
                waits_since, _ = self._waits.get(group.thread_id, (None, None))
                waited = None if waits_since is None else seen.unmoved(name, waits_since)
                self._compare_launches(process, record, group.launches, theirs, waited)
        if self._failure is not None:
            return
        if failure is not None and failure["process"] != self.coordinator.process_id:
            return self._fail(failure)
        if record["state"] != "left" and now - seen.fresh > self.dead_after:
            text = f"no sign of life for {now - seen.fresh:.1f} s: it is dead or stopped"
            self._report(process, record, "dead", text, "be alive")

    def _compare_launches(
        self, process: int, record: dict[str, Any], ours: list[_Launch], theirs: list[_Launch], waited: float | None
    ) -> None:
        """Compare the last launches of a process with ours; `waited` are the seconds of a wait for it."""
        rollings = {launch.number: launch for launch in theirs}
        for mine in ours:
            other = rollings.get(mine.number, mine)
            if other.rolling != mine.rolling:
                expected = f"launch {mine.name} as number {mine.number}, as this one does"
                got = f"a launch of {'another ' * (other.name == mine.name)}{other.name}"
                return self._report(process, record, "order", got, expected)
        if theirs[-1].number < ours[-1].number and waited is not None:
            expected = f"come to launch {ours[-1].number}, {ours[-1].name}"
            if record["state"] == "left":
                return self._report(process, record, "left", "the end of its program", expected)
            self._check_stuck(process, record, expected, waited)

    def _check_stuck(self, process: int, record: dict[str, Any], expected: str, seconds: float) -> None:
        if seconds > self.stuck_after:
            return self._report(process, record, "stuck", f"alive for {seconds:.1f} s without doing so", expected)
        if seconds > self.stuck_after / 4 and self._has_warned != expected:
            self._has_warned = expected
            logger.warning(
                "Waiting for %.0f s for process %d to %s; it is at %s.", seconds, process, expected, record["place"]
            )

    def _report(self, process: int, record: dict[str, Any], kind: str, text: str, expected: str) -> None:
        self._fail(_describe_failure(process, record, kind, text, expected))

    def _fail(self, failure: dict[str, Any]) -> None:
        if failure["process"] in self._lost:
            return  # Another process does not know yet that the others go on without it.
        self._failure = failure
        with contextlib.suppress(XlaRuntimeError):
            self._publish()  # so that all processes name the same failure
        tcp_sockets.cut_connections(self.ports)
        if failure["sends_invalid"] and failure["process"] != self.coordinator.process_id:
            # A program that begins to communicate now connects anew, and receives what the callback did not return.
            self._late_error = self._make_error(failure)
            runtime_errors.late_failures.append(self._late_error)
        self._failed.set()
        threading.Thread(target=self._interrupt_waits, daemon=True, name="phalanx-interrupt").start()

    def _interrupt_waits(self) -> None:
        """End waits that go on although the connections were cut.

        Gloo does not always notice, for example if both ends are cut while a collective begins.
        """
        self._stopped.wait(_CUT_SECONDS / 2)
        calls = self._interrupter.calls()  # after those that began in the moment of the failure
        self._stopped.wait(_CUT_SECONDS / 2)
        if self._failure is not None and self._interrupter.calls().intersection(calls):
            self._interrupter.interrupt()

    def _make_current_error(self) -> BaseException:
        return self._make_error(self._failure or next(iter(self._lost.values())))

    def _make_error(self, failure: dict[str, Any]) -> BaseException:
        if failure["process"] == self.coordinator.process_id and self._raised is not None:
            return runtime_errors.to_reported(self._raised)
        self._forget_late_error()
        failure = dict(failure)
        groups = list(self._groups.values())
        own = [group for group in groups if group.thread_id == get_ident()] or groups
        number, _, name = max((group.launches[-1] for group in own), default=_START)
        error = ProcessFailure(
            f"launch {number} of process {self.coordinator.process_id}, {name}",
            expected=failure.pop("expected"),
            got=failure.pop("got"),
            fix=f"look at the output of process {failure['process']}, and start all processes again from a checkpoint",
        )
        del failure["sends_invalid"]
        error.__dict__.update(failure)
        return error

    def _forget_late_error(self) -> None:
        with contextlib.suppress(ValueError):  # It has been raised, or there is none.
            runtime_errors.late_failures.remove(self._late_error)


def _describe_failure(process: int, record: Mapping[str, Any], kind: str, text: str, expected: str) -> dict[str, Any]:
    """The fields of a `ProcessFailure`."""
    number, _, name = max((launches[-1] for launches in record["launches"].values()), default=_START)
    last = f"; the last launch that it reported is number {number}, {name}" if number else ""
    return {
        "process": process,
        "kind": kind,
        "launch": number,
        "place": record["place"],
        "their_traceback": record.get("traceback", ""),
        "sends_invalid": record.get("sends_invalid", False),
        "expected": f"process {process} to {expected}",
        "got": text + last + (f", and it was last at {record['place']}" if record["place"] else ""),
    }


class _Seen:
    """The state of a process, and when its record changed last."""

    def __init__(self, now: float):
        self.fresh = self._start = now
        self.state = "running"
        self._sequence = -1
        self._launches: dict[str, Any] = {}
        self._moved: dict[str, float] = {}  # of each group of processes
        self._silences: collections.deque[tuple[float, float]] = collections.deque(maxlen=_NUM_KEPT)

    def update(self, record: Mapping[str, Any], now: float) -> None:
        if record["sequence"] != self._sequence:
            if now - self.fresh > 2 * _MAX_PERIOD:
                self._silences.append((self.fresh, now))
            self._sequence, self.fresh, self.state = record["sequence"], now, record["state"]
        for group, launches in record["launches"].items():
            if launches != self._launches.get(group):
                self._launches[group], self._moved[group] = launches, now

    def unmoved(self, group: str, since: float) -> float:
        """The seconds after a time for which the process has been alive, not stopped, without a launch in a group."""
        begin = max(self._moved.get(group, self._start), since)
        return self.fresh - begin - sum(end - max(start, begin) for start, end in self._silences if end > begin)


def _find_place(frame: FrameType | None) -> str:
    """The innermost line of the user's program."""
    while frame is not None:
        if is_program_file(frame.f_code.co_filename):
            return _format_place(frame, frame.f_lineno)
        frame = frame.f_back
    return ""


def _calls_jaxlib(frame: FrameType) -> bool:
    """Whether a thread, by its innermost frame, launches a program itself, or uses the coordination service."""
    own, waiting = _calls_jaxlib.__code__.co_filename, interruptible_wait.__file__
    if frame.f_code.co_filename == coordination.__file__:
        return True
    caller: FrameType | None = frame
    while caller is not None and is_internal(caller.f_code) and caller.f_code.co_filename != waiting:
        if caller.f_code.co_filename == own and caller.f_code.co_name == "launch":
            return True
        caller = caller.f_back
    return False


def _format_place(frame: FrameType, line: int) -> str:
    return f"{frame.f_code.co_filename}:{line} ({frame.f_code.co_name})"


def _describe_error(error: BaseException) -> dict[str, Any]:
    """The fields of a record that describe an exception."""
    frames = traceback.walk_tb(error.__traceback__)
    places = [_format_place(f, line) for f, line in frames if is_program_file(f.f_code.co_filename)]
    text = "".join(traceback.format_exception(error))
    return {
        "state": "raised",
        "detail": f"{type(error).__name__}: {str(error)[:500]}",
        "place": places[-1] if places else "",
        "traceback": text[-_MAX_TEXT:],
    }


def _first_difference(mine: list[str], theirs: list[str]) -> tuple[str, str]:
    """The first line of two programs that differs, apart from the comment that tells where it is from."""
    shown = "the end of the program"
    for here, there in zip([*mine, shown], [*theirs, shown], strict=False):
        if here.partition("  # ")[0] != there.partition("  # ")[0]:
            return here.strip(), there.strip()
    return "the same operations", "the same operations, compiled with other options"
