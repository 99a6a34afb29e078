"""The steps of a run in an object store, such as `gs://bucket/run` or `s3://bucket/run`.

The objects of a step have the prefix `<step>/`. Its document is written last and removed first, so that a step is there
exactly if its document is: object stores write an object as a whole, and keep it once they have confirmed it. They have
no locks, so one program at a time may save to a run; if two save the same step, the second one fails. Called by
`saving`, `loading` and `readers`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from phalanx.checkpoint.array_store import open_store
from phalanx.checkpoint.checkpoint_errors import CheckpointSaveError
from phalanx.checkpoint.step_folders import DOCUMENT, Run, RunFolder, is_url, local_path
from phalanx.core import ArgumentError

_COMMITTED = re.compile(rf"(0|[1-9][0-9]*)/{re.escape(DOCUMENT)}")
_NUMBER = re.compile(r"(0|[1-9][0-9]*)/")


def open_run(path: str | os.PathLike[str], where: str) -> Run:
    """Open the run of a local folder or of a URL.

    Args:
      path: the folder or URL; it need not exist.
      where: the operation, for errors.

    Raises:
      ArgumentError: tensorstore does not know the URL.
    """
    return RunUrl(os.fsdecode(path), where) if is_url(path) else RunFolder(local_path(path, where))


class RunUrl(Run):
    """The steps under a URL.

    Args:
      url: the URL.
      where: the operation, for errors.

    Raises:
      ArgumentError: tensorstore does not know the URL.
    """

    def __init__(self, url: str, where: str):
        super().__init__(url)
        self._url = url.rstrip("/") + "/"
        try:
            self._store = open_store(self._url)
        except ValueError as error:
            raise ArgumentError(
                f"{where}, path",
                expected="a local path, or a URL of a store that tensorstore knows, such as gs://bucket/run",
                got=f"{url!r} ({error})",
                fix="check the URL, or mount the store as a folder and pass its path",
            ) from None

    def list_steps(self) -> list[int]:
        return sorted(int(found[1]) for key in self._keys() if (found := _COMMITTED.fullmatch(key)))

    def _keys(self) -> list[str]:
        return [key.decode() for key in self._store.list().result()]

    def locate(self, step: int) -> str:
        return f"{self._url}{step}"

    def read_document(self, step: int) -> bytes:
        return self._read(f"{step}/{DOCUMENT}") or b""

    def read_own_document(self) -> bytes | None:
        """Read the document, if the URL is that of a step."""
        return self._read(DOCUMENT)

    def _read(self, key: str) -> bytes | None:
        found = self._store.read(key).result()
        return None if found.state == "missing" else found.value

    @contextmanager
    def lock(self, where: str) -> Iterator[None]:
        yield

    def list_unfinished(self) -> list[str]:
        keys = self._keys()
        committed = {found[1] for key in keys if (found := _COMMITTED.fullmatch(key))}
        return sorted({found[1] for key in keys if (found := _NUMBER.match(key))} - committed)

    def discard(self, name: str) -> None:
        # "0" is the character after "/": the range has the keys that begin with the number and a slash.
        self._store.delete_range(self._store.KeyRange(f"{name}/", f"{name}0")).result()

    def begin(self, step: int) -> None:
        pass

    def join(self, step: int) -> str:
        return f"{self.locate(step)}/"

    def commit(self, step: int, document: str) -> None:
        key = f"{step}/{DOCUMENT}"
        found = self._store.read(key).result()
        is_new = found.state == "missing"
        # The store writes the object only if there still is none; otherwise the new generation is empty.
        if not is_new or not self._store.write(key, document, if_equal=found.stamp.generation).result().generation:
            raise CheckpointSaveError(
                f"checkpoint.save, step {step}",
                expected="one program that saves to this URL",
                got=f"{self.location!r}, where another one has saved this step meanwhile",
                fix="save to another URL, or let one program save",
            )

    def abandon(self, step: int) -> None:
        if self._read(f"{step}/{DOCUMENT}") is None:  # Otherwise another program has saved this step.
            self.discard(str(step))

    def remove(self, step: int) -> None:
        self._store.write(f"{step}/{DOCUMENT}", None).result()
        self.discard(str(step))
