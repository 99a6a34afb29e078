"""The folder of a run and its steps: `<folder>/<step>/` is a committed checkpoint, and nothing else is.

A step is written to `<step>.partial`, forced to the disk, and renamed; one to be removed is renamed to `<step>.deleted`
first. So a crash at any moment leaves every step either whole or under another name, which the next save removes.
A lock on the file `.lock` keeps a second process from saving to the folder; the system releases it when a process dies.
Called by `saving`, `loading` and `retention`.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from phalanx.checkpoint.checkpoint_errors import CheckpointNotFoundError, CheckpointSaveError
from phalanx.core import ArgumentError, ArgumentTypeError, PhalanxError

DOCUMENT = "tree.json"
_STEP = re.compile(r"0|[1-9][0-9]*")
_UNFINISHED = re.compile(r"[0-9]+\.(partial|deleted)")


class RunFolder:
    """The steps in one folder.

    Args:
      path: the folder; it need not exist.
      where: the operation, for errors.

    Raises:
      ArgumentError: the path is a URL.
    """

    def __init__(self, path: str | os.PathLike[str], where: str):
        self.path = local_path(path, where)

    def list_steps(self) -> list[int]:
        """List the committed steps, in order."""
        if not self.path.is_dir():
            return []
        return sorted(int(p.name) for p in self.path.iterdir() if _STEP.fullmatch(p.name) and p.is_dir())

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
        if step in steps:
            return int(step)
        raise CheckpointNotFoundError(
            f"{where}, path",
            expected="a folder with a checkpoint" if step == "latest" else f"a checkpoint of step {step}",
            got=f"{str(self.path)!r} with " + (f"the steps {_abbreviate(steps)}" if steps else "no checkpoint"),
            fix="check the path, or save a checkpoint first" if not steps else "load one of these steps",
        )

    def step_path(self, step: int) -> Path:
        """The folder of a committed step."""
        return self.path / str(step)

    def partial_path(self, step: int) -> Path:
        """The folder in which a step is written."""
        return self.path / f"{step}.partial"

    @contextmanager
    def lock(self, where: str) -> Iterator[None]:
        """Keep other processes from changing the folder.

        Raises:
          CheckpointSaveError: another process is saving to it, or it cannot be written.
        """
        with explain_os_errors(where, self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            file = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CheckpointSaveError(
                    f"{where}, path",
                    expected="a folder to which no one else saves",
                    got=f"{str(self.path)!r}, locked by another save",
                    fix="save to another folder, or wait until the other save has ended",
                ) from None
            yield
        finally:
            os.close(file)

    def remove_unfinished(self) -> None:
        """Remove steps whose saving or removal was interrupted. The folder is locked, so no other save owns them."""
        for path in list(self.path.iterdir()):
            if _UNFINISHED.fullmatch(path.name):
                shutil.rmtree(path)

    def begin(self, step: int) -> Path:
        """Create the folder in which a step is written."""
        partial = self.partial_path(step)
        partial.mkdir()
        return partial

    def commit(self, step: int) -> None:
        """Make a written step visible; afterwards it survives a crash of the machine."""
        partial = self.partial_path(step)
        for folder, _, files in os.walk(partial):
            for name in files:
                force_to_disk(os.path.join(folder, name))
            force_to_disk(folder)
        os.rename(partial, self.step_path(step))
        force_to_disk(self.path)

    def remove(self, step: int) -> None:
        """Remove a committed step."""
        deleted = self.path / f"{step}.deleted"
        os.rename(self.step_path(step), deleted)
        force_to_disk(self.path)
        shutil.rmtree(deleted)


def file_url(path: Path) -> str:
    """The URL of a folder for tensorstore."""
    return f"file://{quote(str(path))}/"


@contextmanager
def explain_os_errors(where: str, path: Path) -> Iterator[None]:
    """Raise errors of the system, and those of tensorstore, as `CheckpointSaveError`s."""
    try:
        yield
    except PhalanxError:
        raise
    # tensorstore reports errors of the system as ValueErrors.
    except (OSError, ValueError) as error:
        explained = CheckpointSaveError(
            where,
            expected=f"to write to {str(path)!r}",
            got=f"{type(error).__name__}: {error}",
            fix="free some space, or save to a folder that can be written; the steps saved before can still be loaded",
        )
        explained.errno = getattr(error, "errno", None)
        raise explained from error


def local_path(path: str | os.PathLike[str], where: str) -> Path:
    """The absolute path of a local file or folder.

    Raises:
      ArgumentError: the path is a URL, which would name a local folder such as `gs:`.
    """
    if "://" in os.fspath(path):
        raise ArgumentError(
            f"{where}, path",
            expected="a path in a local file system, since object stores are not supported so far",
            got=repr(path),
            fix="save to a local folder and copy the folder of the step, or mount the bucket as a folder",
        )
    return Path(path).absolute()


def check_step(step: object, where: str) -> None:
    """Check the number of a step.

    Raises:
      ArgumentTypeError: it is not an int.
      ArgumentError: it is negative.
    """
    if isinstance(step, bool) or not isinstance(step, int):
        raise ArgumentTypeError(
            f"{where}, step", expected="an int", got=repr(step), fix="pass the number of the training step as an int"
        )
    if step < 0:
        raise ArgumentError(f"{where}, step", expected="at least 0", got=repr(step), fix="count steps from 0")


def _abbreviate(steps: list[int]) -> str:
    return f"{steps}" if len(steps) <= 8 else f"[{', '.join(map(str, [*steps[:3], '...', *steps[-4:]]))}]"


def force_to_disk(path: str | Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
