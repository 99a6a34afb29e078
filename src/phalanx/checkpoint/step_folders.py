"""The steps of a run, and their folders: `<folder>/<step>/` is a committed checkpoint, and nothing else is.

A step is written to `<step>.partial`, forced to the disk, and renamed; one to be removed is renamed to `<step>.deleted`
first. So a crash at any moment leaves every step either whole or under another name, which the next save removes.
A lock on the file `.lock` keeps a second process from saving to the folder; the system releases it when a process dies.
`step_urls` has the steps in object stores. Called by `saving`, `loading` and `retention`.
"""

from __future__ import annotations

import abc
import fcntl
import operator
import os
import re
import shutil
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from phalanx.checkpoint.checkpoint_errors import CheckpointError, CheckpointNotFoundError, CheckpointSaveError
from phalanx.core import ArgumentError, ArgumentTypeError, PhalanxError, user_stacklevel
from phalanx.engine.forked_processes import in_forked_process

DOCUMENT = "tree.json"
ORBAX_TREE, ORBAX_ITEMS = "_METADATA", "_CHECKPOINT_METADATA"  # files that Orbax writes into a tree, and into a step
_STEP = re.compile(r"0|[1-9][0-9]*")
_ORBAX_STEP = re.compile(r"(?:[^.]*_)?([0-9]+)")  # with a prefix, or of fixed length
_ERRNO = re.compile(r"os_error_code='(\d+)'")  # in errors of tensorstore
_UNFINISHED = re.compile(r"[0-9]+\.(partial|deleted)")
_FILE_URL, _SHORTENED_URL = "file://", re.compile(r"[a-z0-9+]+:/[^/]")
_lock_files: set[int] = set()  # the descriptors of the locks that this process holds


# A lock lasts until no process has its file open, and a forked process may outlive one that is killed during a save.
@in_forked_process
def _close_lock_files() -> None:
    while _lock_files:
        os.close(_lock_files.pop())


class Run(abc.ABC):
    """The steps of a run, wherever they are stored.

    Args:
      location: the folder or URL, for errors.
    """

    def __init__(self, location: str):
        self.location = location

    @abc.abstractmethod
    def list_steps(self) -> list[int]:
        """List the committed steps, in order."""

    @abc.abstractmethod
    def locate(self, step: int) -> Path | str:
        """The folder or URL of a committed step."""

    @abc.abstractmethod
    def read_document(self, step: int) -> bytes:
        """Read the document of a committed step."""

    def list_own_steps(self) -> list[int]:
        """List the committed steps that `save` wrote, in order."""
        return self.list_steps()

    @abc.abstractmethod
    def lock(self, where: str) -> AbstractContextManager[None]:
        """Keep other processes from changing the run, if it is stored where this is possible.

        Raises:
          CheckpointSaveError: another process is saving to it, or it cannot be written.
        """

    @abc.abstractmethod
    def list_unfinished(self) -> list[str]:
        """List the names under which interrupted saves and removals have left files."""

    @abc.abstractmethod
    def discard(self, name: str) -> None:
        """Remove all files under one of the names of `list_unfinished`."""

    def remove_unfinished(self, where: str) -> None:
        """Remove steps whose saving or removal was interrupted, when no other save is in progress.

        A warning names those that cannot be removed, since they do not keep another step from being saved.
        """
        for name in self.list_unfinished():
            try:
                self.discard(name)
            except (OSError, ValueError) as error:  # tensorstore reports errors of the system as ValueErrors.
                failure = CheckpointSaveError(
                    f"{where}, path",
                    expected=f"to remove {name!r}, left in {self.location!r} by an interrupted save or deletion",
                    got=f"{type(error).__name__}: {error}",
                    fix=f"delete {name!r} by hand; other steps can be saved and loaded meanwhile",
                )
                warnings.warn(str(failure), UserWarning, stacklevel=user_stacklevel())

    @abc.abstractmethod
    def begin(self, step: int) -> None:
        """Prepare to write a step."""

    @abc.abstractmethod
    def join(self, step: int) -> str:
        """The URL, with a slash at the end, under which each process writes the arrays of a step that was begun.

        Raises:
          CheckpointSaveError: this process does not see what the first one has begun.
        """

    @abc.abstractmethod
    def commit(self, step: int, document: str) -> None:
        """Write the document, and make the step visible; afterwards it survives a crash of the machine."""

    @abc.abstractmethod
    def abandon(self, step: int) -> None:
        """Remove what has been written of a step that cannot be completed."""

    @abc.abstractmethod
    def remove(self, step: int) -> None:
        """Remove a committed step."""

    @contextmanager
    def write(self, step: int) -> Iterator[None]:
        """Begin a step; if the block raises, what has been written of the step is removed, unless it is committed."""
        self.begin(step)
        try:
            yield
        except BaseException:
            with suppress(OSError, ValueError):  # The next save removes it.
                self.abandon(step)
            raise

    def find_step(self, step: int | str, where: str) -> int:
        """Find a committed step.

        Args:
          step: its number, or "latest".
          where: the operation, for errors.

        Raises:
          CheckpointNotFoundError: there is no such step.
        """
        steps = self.list_steps()
        if steps and step == "latest":
            return steps[-1]
        if step in steps:  # which "latest" is not
            return int(step)
        raise CheckpointNotFoundError(
            f"{where}, path",
            expected="a folder with a checkpoint" if step == "latest" else f"a checkpoint of step {step}",
            got=f"{self.location!r} with " + (f"the steps {_abbreviate(steps)}" if steps else "no checkpoint"),
            fix="check the path, or save a checkpoint first" if not steps else "choose one of these steps",
        )


class RunFolder(Run):
    """The steps in a local folder.

    Args:
      path: the folder; it need not exist.
    """

    def __init__(self, path: Path):
        super().__init__(str(path))
        self._path = path

    def list_steps(self) -> list[int]:
        return sorted(self._find_steps())

    def list_own_steps(self) -> list[int]:
        return sorted(step for step, (path, *_) in self._find_steps().items() if (path / DOCUMENT).exists())

    def _find_steps(self) -> dict[int, list[Path]]:
        """The folders of each committed step, of which Orbax may have written several under different prefixes."""
        found: dict[int, list[Path]] = {}
        for path in sorted(self._path.iterdir()) if self._path.is_dir() else ():
            if _STEP.fullmatch(path.name) and path.is_dir():
                found[int(path.name)] = [path]
            elif (named := _ORBAX_STEP.fullmatch(path.name)) and any(
                (path / file).exists() for file in (ORBAX_TREE, ORBAX_ITEMS)
            ):
                step = int(named[1])
                if not (self._path / str(step)).is_dir():
                    found.setdefault(step, []).append(path)
        return found

    def find_step(self, step: int | str, where: str) -> int:
        number = super().find_step(step, where)
        paths = self._find_steps().get(number, [])
        if len(paths) > 1:
            raise CheckpointError(
                f"{where}, path",
                expected=f"one checkpoint of step {number}",
                got=f"{self.location!r} with {[path.name for path in paths]}",
                fix=f"pass the folder of one of them, such as {str(paths[0])!r}",
            )
        return number

    def locate(self, step: int) -> Path:
        path = self._path / str(step)
        return path if path.is_dir() else self._find_steps().get(step, [path])[0]

    def read_document(self, step: int) -> bytes:
        return (self.locate(step) / DOCUMENT).read_bytes()

    def _partial(self, step: int) -> Path:
        return self._path / f"{step}.partial"

    @contextmanager
    def lock(self, where: str) -> Iterator[None]:
        with explain_os_errors(where, self.location):
            _make_folder(self._path)
            file = os.open(self._path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        _lock_files.add(file)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CheckpointSaveError(
                    f"{where}, path",
                    expected="a folder to which no one else saves",
                    got=f"{self.location!r}, locked by another save",
                    fix="save to another folder, or wait until the other save has ended",
                ) from None
            yield
        finally:
            if file in _lock_files:  # and not in a forked process, which has closed it
                _lock_files.remove(file)
                os.close(file)

    def list_unfinished(self) -> list[str]:
        return sorted(name for name in os.listdir(self._path) if _UNFINISHED.fullmatch(name))

    def discard(self, name: str) -> None:
        path = self._path / name
        if path.is_symlink() or path.is_file():
            path.unlink()  # The user's link goes, and not the files to which it leads.
        else:
            shutil.rmtree(path)

    def begin(self, step: int) -> None:
        self._partial(step).mkdir()
        # tensorstore makes a folder that has vanished anew, without this file.
        (self._partial(step) / DOCUMENT).touch()

    def join(self, step: int) -> str:
        if not self._partial(step).is_dir():
            raise CheckpointSaveError(
                f"checkpoint.save, step {step}",
                expected="a folder that is the same for all processes",
                got=f"{self.location!r}, in which this process does not see what the first one has made",
                fix="save to a file system that all machines share, or to the URL of an object store",
            )
        return file_url(self._partial(step))

    def commit(self, step: int, document: str) -> None:
        partial = self._partial(step)
        try:
            with open(partial / DOCUMENT, "r+", encoding="utf-8") as file:
                file.write(document)
        except FileNotFoundError as error:
            raise CheckpointSaveError(
                f"checkpoint.save, step {step}",
                expected=f"{str(partial)!r} to stay until the step is committed",
                got="a folder that was deleted or moved while the step was written",
                fix="save again; checkpoint.steps(path) lists the steps that are left",
            ) from error
        for folder, _, files in os.walk(partial):
            for name in files:
                force_to_disk(os.path.join(folder, name))
            force_to_disk(folder)
        os.rename(partial, self.locate(step))
        force_to_disk(self._path)

    def abandon(self, step: int) -> None:
        self.discard(self._partial(step).name)

    def remove(self, step: int) -> None:
        deleted = self._path / f"{step}.deleted"
        if deleted.exists():  # left by a deletion that was interrupted, before the step was saved again
            self.discard(deleted.name)
        os.rename(self.locate(step), deleted)
        force_to_disk(self._path)
        self.discard(deleted.name)


def _make_folder(path: Path) -> None:
    """Make a folder and those above it; afterwards they survive a crash of the machine."""
    if not path.is_dir():
        _make_folder(path.parent)
        path.mkdir(exist_ok=True)
        force_to_disk(path.parent)


def file_url(path: Path) -> str:
    """The URL of a folder for tensorstore."""
    return f"file://{quote(str(path))}/"


@contextmanager
def explain_os_errors(where: str, path: Path | str, *, reading: bool = False) -> Iterator[None]:
    """Raise errors of the system and of tensorstore as `CheckpointSaveError`s, or `CheckpointError`s if `reading`."""
    try:
        yield
    except PhalanxError:
        raise
    # tensorstore reports errors of the system as ValueErrors.
    except (OSError, ValueError) as error:
        got = f"{type(error).__name__}: {error}"
        if reading:
            fix = "check the path, the permissions and the network"
            raise CheckpointError(where, expected=f"to read {str(path)!r}", got=got, fix=fix) from error
        explained = CheckpointSaveError(
            where,
            expected=f"to write to {str(path)!r}",
            got=got,
            fix="free some space, or save to a folder that can be written; the steps saved before can still be loaded",
        )
        found = _ERRNO.search(str(error))
        explained.errno = int(found[1]) if found else getattr(error, "errno", None)
        raise explained from error


def is_url(path: str | os.PathLike[str]) -> bool:
    """Whether a path is the URL of an object store. As a path, it would name a local folder such as `gs:`."""
    text = os.fsdecode(path)
    return "://" in text and not text.startswith(f"{_FILE_URL}/")


def local_path(path: str | os.PathLike[str], where: str) -> Path:
    """The absolute path of a local file or folder, which may be given as a URL `file:///path`.

    Raises:
      ArgumentError: the path is the URL of an object store, or what `Path` makes of one.
    """
    text = os.fsdecode(path)
    if is_url(path):
        raise ArgumentError(
            f"{where}, path",
            expected="a path in a local file system",
            got=repr(path),
            fix="use a local file, and copy it",
        )
    if _SHORTENED_URL.match(text):
        raise ArgumentError(
            f"{where}, path",
            expected="a local path, or a URL with two slashes",
            got=repr(path),
            fix="pass the URL as a str, since Path removes a slash, or begin a relative path with './'",
        )
    return Path(unquote(text.removeprefix(_FILE_URL)) if text.startswith(_FILE_URL) else text).absolute()


def parse_step(step: Any, where: str) -> int:
    """Convert the number of a step: an integer of any type, such as that of an optimizer.

    Raises:
      ArgumentTypeError: it is no integer.
      ArgumentError: it is negative.
    """
    try:
        number = operator.index(step)
    except TypeError:
        number = None
    if number is None or isinstance(step, bool):
        raise ArgumentTypeError(
            f"{where}, step", expected="an int", got=repr(step), fix="pass the number of the training step as an int"
        )
    if number < 0:
        raise ArgumentError(f"{where}, step", expected="at least 0", got=repr(step), fix="count steps from 0")
    return number


def _abbreviate(steps: list[int]) -> str:
    return f"{steps}" if len(steps) <= 8 else f"[{', '.join(map(str, [*steps[:3], '...', *steps[-4:]]))}]"


def force_to_disk(path: str | Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
