"""`save`: write a tree as a step of a folder, in the background.

The call describes the leaves and takes hold of their elements; a thread then writes and commits them. Arrays are
immutable and a view of one on the host keeps its buffer from being donated, so on CPU devices nothing is copied before
the call returns; from other devices the shards are copied to the host first. One save is in progress at a time.

Of several processes, the first one chooses the step and makes its folder. Each then writes the shards that it owns, and
when all have, the first one commits the step: a process that fails before leaves a step that is not there.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import threading
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from phalanx.checkpoint.array_store import check_tensorstore, create_array, merge_databases, to_stored
from phalanx.checkpoint.checkpoint_errors import CheckpointSaveError
from phalanx.checkpoint.leaf_records import LeafMetadata, StepDocument, copy_json, describe_leaf, digest
from phalanx.checkpoint.named_leaves import NamedLeaf, describe_structure, flatten_named
from phalanx.checkpoint.process_agreement import FIX_LEAF, agree, check_equal, is_first
from phalanx.checkpoint.retention import Keep, apply_retention, as_keep
from phalanx.checkpoint.step_folders import Run, explain_os_errors, parse_step
from phalanx.checkpoint.step_urls import open_run
from phalanx.core import ArgumentError, PhalanxError
from phalanx.engine import client
from phalanx.engine.coordination import Coordinator
from phalanx.engine.failure_watch import ProcessFailure
from phalanx.engine.forked_processes import in_forked_process
from phalanx.random import key_data
from phalanx.runtime import Array, Shard
from phalanx.typing import PyTree


class Saving:
    """A save in progress.

    Args:
      step: the step that is written.
      path: the folder or URL of the step, once it is committed.

    Examples:
      >>> import tempfile, phalanx.numpy as jnp
      >>> from phalanx import checkpoint
      >>> saving = checkpoint.save(tempfile.mkdtemp(), {"w": jnp.ones(3)}, step=7)
      >>> saving.result().name
      '7'
      >>> saving.done()
      True
    """

    def __init__(self, step: int, path: Path | str):
        self.step = step
        self.path = path
        self._error: BaseException | None = None
        self._is_reported = False
        # Not `Thread.join`: CPython takes a thread for ended when Ctrl-C interrupts that (python/cpython#90882).
        self._finished = threading.Event()

    def done(self) -> bool:
        """Whether the step is committed, or the save has failed."""
        return self._finished.is_set()

    def result(self, timeout: float | None = None) -> Any:
        """Wait until the step is committed.

        Args:
          timeout: seconds to wait at most.

        Returns:
          The folder of the step, a `Path`, or its URL.

        Raises:
          TimeoutError: the step is not committed yet.
          CheckpointSaveError: the step could not be saved.
        """
        if not self._finished.wait(timeout):
            raise _SavingTimeoutError(
                "Saving.result, timeout",
                expected=f"step {self.step} to be committed within {timeout} s",
                got="a save that is still in progress",
                fix="wait longer, or call done() until it is True",
            )
        self._is_reported = True
        if self._error is not None:
            raise self._error
        return self.path

    def _start(self, write: Callable[[], None]) -> threading.Thread:
        is_taken = threading.Lock()

        def run() -> None:
            if not is_taken.acquire(blocking=False):
                return
            try:
                write()
            except BaseException as error:  # raised by `result` or by the next save
                self._error = error
            finally:
                self._finished.set()

        # Not a daemon: the interpreter waits for it before it exits.
        thread = threading.Thread(target=run, name=f"phalanx checkpoint {self.step}")
        try:
            thread.start()
        except BaseException:
            # Ctrl-C may come before the thread is made, or before its number is known: it then has nothing to do.
            if is_taken.acquire(blocking=False):
                self._finished.set()
            raise
        return thread


class _SavingTimeoutError(PhalanxError, TimeoutError):
    """A save was not finished in time."""


class _Pieces(NamedTuple):
    """The elements of one leaf that this process has: host arrays by index."""

    name: str
    leaf: LeafMetadata
    parts: list[tuple[tuple[slice, ...], np.ndarray]]

    def checksum(self) -> str:
        """A text that is the same for the same elements."""
        found = 0
        for _, elements in self.parts:
            found = zlib.crc32(np.ascontiguousarray(elements).reshape(-1).view(np.uint8).data, found)
        return f"{found:08x}"


class _Request(NamedTuple):
    """The checked arguments of a save."""

    run: Run
    step: int | None
    rules: Keep | None
    leaves: list[NamedLeaf]
    document: StepDocument

    def describe(self) -> tuple[dict[str, str], dict[str, str]]:
        """A text for each argument, and for each leaf, which have to be the same in all processes."""
        user = self.document.user
        parts = {f"metadata[{key!r}]": part for key, part in user.items()} if isinstance(user, dict) else {}
        texts = {name: json.dumps(part) for name, part in (parts or {"metadata": user}).items()}
        leaves = {f"leaf {name!r}": leaf.describe_fully() for name, leaf in self.document.leaves.items()}
        return {"step": repr(self.step), "keep": repr(self.rules), **texts}, leaves


_lock = threading.Lock()
_last: Saving | None = None


def save(
    path: str | os.PathLike[str],
    tree: PyTree,
    *,
    step: int | None = None,
    keep: Keep | int | None = None,
    metadata: Any = None,
    wait: bool = False,
) -> Saving:
    """Save a tree as a step of a folder.

    The call returns when the program may go on, also with functions that donate the arrays; the files are written
    meanwhile. A step is there completely or not at all: a crash at any moment loses no step that was saved before.
    A call waits for the save before it, and raises its error if no one has seen it; so does the end of the program.

    In a program of several processes all of them call it, with the same arguments. Each process writes its shards of
    the arrays over several processes; the first one writes everything else.

    Args:
      path: the folder of the run, which is created if need be, or the URL of an object store, such as
        `gs://bucket/run`. A step is a folder in it. One program at a time may save to an object store.
      tree: any pytree of arrays, random keys, Python numbers, strings and bytes; it may contain `nnx` modules,
        optimisers and variables, and references.
      step: the number of the step; one more than the latest if None.
      keep: the steps to keep after this one is committed: a number of newest ones, or `Keep`; all if None.
      metadata: data of your own that JSON can represent, such as the epoch or the loss; it is copied.
      wait: return when the step is committed.

    Returns:
      The save in progress.

    Raises:
      ArgumentError: the step exists already, or tensorstore does not know the URL.
      ArgumentTypeError: a leaf is not a value that a checkpoint can hold, or `metadata` is not JSON.
      CheckpointSaveError: the folder cannot be written, another program saves to it, or the save before failed; also
        if that happened in another process.
      CheckpointError: the processes have different arguments, or different values of what is not an array over them.

    Examples:
      >>> import tempfile, phalanx.numpy as jnp
      >>> from phalanx import checkpoint
      >>> folder = tempfile.mkdtemp()
      >>> for step in range(3):
      ...     _ = checkpoint.save(folder, {"w": jnp.full(2, step)}, step=step, keep=2)
      >>> _ = checkpoint.save(folder, {"w": jnp.zeros(2)}, keep=2, metadata={"loss": 0.1}, wait=True)
      >>> checkpoint.steps(folder)
      [2, 3]
    """
    global _last
    where = "checkpoint.save"
    coordinator = client.coordinator()
    with _lock, ExitStack() as stack:
        request = _agree_on_request(coordinator, lambda: _check_arguments(path, tree, step, keep, metadata, where))
        run, _, rules, leaves, document = request
        records = document.leaves
        pieces: list[_Pieces] = []

        def begin() -> tuple[int | None, str]:
            # Whoever goes on after the failure of a process has joined another program.
            with contextlib.suppress(ProcessFailure):
                if _last is not None and not _last._is_reported:
                    _last.result()
            pieces.extend(_take_pieces(leaves, records))
            chosen = None
            if is_first(coordinator):
                stack.enter_context(run.lock(where))
                with explain_os_errors(where, run.location):
                    chosen = _choose_step(run, request.step, where)
                    run.remove_unfinished(where)
                    stack.enter_context(run.write(chosen))
            over_processes = {leaf.name: _is_over_processes(leaf.elements) for leaf in leaves}
            return chosen, "".join("01"[over_processes[name]] for name in sorted(records))

        answers = agree(coordinator, where, begin)
        saving = Saving(answers[0][0], run.locate(answers[0][0]))
        # An array on the devices of one process only is local for that process, and not for the others.
        shared = {name for name, *flags in zip(sorted(records), *(text for _, text in answers)) if "1" in flags}
        release = stack.pop_all()  # the thread keeps the lock
        _last = saving
        try:
            thread = saving._start(
                lambda: _write_step(coordinator, run, saving.step, pieces, shared, document, rules, release)
            )
        except BaseException as error:
            if saving.done():  # no thread writes
                with release:
                    if isinstance(error, RuntimeError):
                        _raise_without_thread(coordinator, f"{where}, step {saving.step}", error)
            raise
        if coordinator is not None:
            coordinator.threads.add(thread)
    if wait:
        saving.result()
    return saving


def _raise_without_thread(coordinator: Coordinator | None, where: str, error: RuntimeError) -> None:
    """Raise in all processes, in place of the thread's first exchange, that this one has no thread that writes."""

    def fail() -> NoReturn:
        raise CheckpointSaveError(
            where,
            expected="to start a thread that writes the files",
            got=f"{type(error).__name__}: {error}",
            fix="let the program have fewer threads, and save before it ends",
        ) from error

    agree(coordinator, where, fail, sequence="checkpoint")


def _write_step(
    coordinator: Coordinator | None,
    run: Run,
    step: int,
    pieces: list[_Pieces],
    shared: set[str],
    document: StepDocument,
    rules: Keep | None,
    release: ExitStack,
) -> None:
    """Write the arrays in each process, then commit the step in the first one.

    Leaves that are not shared are the same in all processes, and the first one writes them.
    """
    where = f"checkpoint.save, step {step}"
    process = 0 if coordinator is None else coordinator.process_id

    def write() -> tuple[bool, dict[str, str]]:
        with explain_os_errors(where, run.location):
            own = [p for p in pieces if p.parts and (process == 0 or p.name in shared)]
            _write_arrays(f"{run.join(step)}process_{process}/", own)
            local = [] if coordinator is None else [p for p in pieces if p.name not in shared]
            return bool(own), {f"leaf {p.name!r}": p.checksum() for p in local}

    def commit() -> None:
        if process == 0:
            with explain_os_errors(where, run.location):
                base = run.join(step)
                merge_databases(base, [f"{base}process_{i}/" for i, (is_used, _) in enumerate(found) if is_used])
                run.commit(step, document.to_json())
                if rules is not None:
                    apply_retention(run, rules, step)

    with release:
        try:
            found = agree(coordinator, where, write, sequence="checkpoint")
            if coordinator is not None:
                check_equal(where, "the same value", [checksums for _, checksums in found], process, FIX_LEAF)
            agree(coordinator, f"{where}, commit", commit, sequence="checkpoint")
        finally:
            for piece in pieces:
                piece.parts.clear()  # An error that is kept does not keep the arrays.


def wait_for_last_save() -> None:
    """Wait until no save is in progress; its error stays with its `result`."""
    if _last is not None:
        _last._finished.wait()


def _choose_step(run: Run, step: int | None, where: str) -> int:
    steps = run.list_steps()
    if step is None:
        return steps[-1] + 1 if steps else 0
    if step in steps:
        raise ArgumentError(
            f"{where}, step",
            expected="a step that is not saved yet",
            got=f"{step}, which {run.location!r} has",
            fix=f"pass another step, or call checkpoint.delete(path, {step}) first",
        )
    return step


def _check_arguments(
    path: str | os.PathLike[str], tree: PyTree, step: Any, keep: Any, metadata: Any, where: str
) -> _Request:
    check_tensorstore(where)
    rules = as_keep(keep, where)
    user = copy_json(metadata, f"{where}, metadata")
    wanted = None if step is None else parse_step(step, where)
    run = open_run(path, where)
    leaves, _ = flatten_named(tree, f"{where}, tree")
    records = {leaf.name: describe_leaf(leaf, f"{where}, tree") for leaf in leaves}
    return _Request(run, wanted, rules, leaves, StepDocument(records, describe_structure(tree), user))


def _agree_on_request(coordinator: Coordinator | None, check: Callable[[], _Request]) -> _Request:
    """Check the arguments in each process; raises unless all processes save the same."""
    if coordinator is None:
        return check()
    where, requests = "checkpoint.save", []

    def describe() -> str:
        requests.append(check())
        return digest(requests[0].describe())

    if len(set(agree(coordinator, where, describe))) > 1:
        arguments, leaves = zip(*agree(coordinator, where, requests[0].describe))
        check_equal(where, "the same", arguments, coordinator.process_id)
        check_equal(f"{where}, tree", "the same leaf", leaves, coordinator.process_id, FIX_LEAF)
    return requests[0]


# --- the elements ---


def _take_pieces(leaves: list[NamedLeaf], records: dict[str, LeafMetadata]) -> list[_Pieces]:
    """Take hold of the elements of all arrays, on the host; copies from devices are started together."""
    arrays = {leaf.name: _as_words(leaf.elements) for leaf in leaves if records[leaf.name].is_array}
    shards = {name: _own_shards(x) for name, x in arrays.items() if isinstance(x, Array)}
    pieces = []
    for name, x in arrays.items():
        if name in shards:
            parts = [(shard.index, np.asarray(shard.data)) for shard in shards[name]]
        else:
            # The program may change its own NumPy arrays while the files are written.
            parts = [((), np.array(x, order="C"))]
        pieces.append(_Pieces(name, records[name], parts))
    return pieces


def _own_shards(x: Array) -> list[Shard]:
    """The shards of an array that this process writes; their transfers are started, unless the host has them."""
    shards = [shard for shard in x.addressable_shards if shard.replica_id == 0]
    for shard in shards:
        if shard.device.platform != "cpu":
            shard.data.copy_to_host_async()
    return shards


def _is_over_processes(value: Any) -> bool:
    return isinstance(value, Array) and not value.is_fully_addressable


def _as_words(value: Any) -> Any:
    """An array; random keys as their words."""
    is_key = isinstance(value, Array) and not isinstance(value.dtype, np.dtype)
    return key_data(value) if is_key else value


def _write_arrays(database: str, pieces: list[_Pieces]) -> None:
    opened = [(p, create_array(database, p.name, p.leaf)) for p in pieces if p.leaf.nbytes]
    writes = []
    for piece, future in opened:
        array = future.result()
        for index, elements in piece.parts:
            if elements.size:
                # The elements do not change, so tensorstore need not copy them.
                write = array[index].write(to_stored(elements), can_reference_source_data_indefinitely=True)
                writes.append(write.commit)
    for write in writes:
        write.result()


@atexit.register
def _report_at_exit() -> None:
    """Wait for a save that a function started at exit, and print the error of a last save that no one has seen."""
    wait_for_last_save()
    if _last is not None and not _last._is_reported and _last._error is not None:
        print(f"{type(_last._error).__name__}: {_last._error}", file=sys.stderr)


@in_forked_process
def _forget_last_save() -> None:
    """In a forked process, which does not have the thread of a save."""
    global _lock, _last
    _lock, _last = threading.Lock(), None
