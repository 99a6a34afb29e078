"""Readers of checkpoints: the leaves by name, and the elements of each.

`open_reader` recognises what a path is: a step that `save` wrote, or the files of another library. Called by `loading`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from phalanx.checkpoint.array_store import from_stored, open_array
from phalanx.checkpoint.checkpoint_errors import CheckpointError
from phalanx.checkpoint.leaf_records import LeafMetadata, read_document
from phalanx.checkpoint.step_folders import DOCUMENT, RunFolder, file_url

Index = tuple[slice, ...]


class StoredElements:
    """The elements of one leaf, of which parts can be read.

    Args:
      where: the operation and the leaf, for errors.
      start: a function that starts a read of a part; it returns a function that waits for it.
    """

    def __init__(self, where: str, start: Callable[[Index], Callable[[], np.ndarray]]):
        self._where = where
        self._start = start

    def read(self, index: Index) -> Callable[[], np.ndarray]:
        """Start reading a part.

        Args:
          index: a slice for each dimension; for random keys all words are read.

        Returns:
          A function that waits for the elements; it raises `CheckpointError` if they are damaged.
        """
        finish = self._guard(self._start, index)
        return lambda: self._guard(finish)

    def _guard(self, call: Callable[..., Any], *args: Any) -> Any:
        try:
            return call(*args)
        # tensorstore reports absent and damaged files as ValueErrors.
        except (OSError, ValueError) as error:
            raise CheckpointError(
                self._where,
                expected="elements that match their checksums",
                got=str(error).partition("[")[0].strip() or type(error).__name__,
                fix="the files are damaged: load another step, or restore them from a copy",
            ) from error


class Reader:
    """A checkpoint: its leaves, containers and the user's data.

    Args:
      path: the folder or file.
      leaves: the leaves by name.
      structure: the containers, as `describe_structure` describes them.
      user: the user's data.
      step: the number of the step, if it has one.
    """

    def __init__(self, path: Path, leaves: dict[str, LeafMetadata], structure: Any, user: Any, step: int | None):
        self.path, self.leaves, self.structure, self.user, self.step = path, leaves, structure, user, step

    def describe(self) -> str:
        """A phrase for errors."""
        return f"the checkpoint {str(self.path)!r}"

    def find(self, name: str) -> str | None:
        """The name of the leaf for a path, None if there is none."""
        return name if name in self.leaves else None

    def open(self, name: str, leaf: LeafMetadata) -> StoredElements:
        """Open the elements of a leaf.

        Args:
          name: the name of the leaf.
          leaf: its description.
        """
        where = f"checkpoint.load, leaf {name!r} of {str(self.path)!r}"
        return StoredElements(
            where, self._open(name, leaf) if leaf.value is None else lambda _: lambda: np.asarray(leaf.value)
        )

    def _open(self, name: str, leaf: LeafMetadata) -> Callable[[Index], Callable[[], np.ndarray]]:
        raise NotImplementedError


class StepReader(Reader):
    """A step that `save` wrote."""

    def __init__(self, path: Path, where: str):
        document = read_document((path / DOCUMENT).read_bytes(), f"{where}, {str(path / DOCUMENT)!r}")
        step = int(path.name) if path.name.isdecimal() else None
        super().__init__(path, document.leaves, document.structure, document.user, step)

    def _open(self, name: str, leaf: LeafMetadata) -> Callable[[Index], Callable[[], np.ndarray]]:
        dtype = leaf.words_dtype
        if not leaf.nbytes:
            return lambda index: (
                lambda: np.zeros([s.stop - s.start for s in index] + list(leaf.words_shape[len(index) :]), dtype)
            )
        future = open_array(file_url(self.path), name, leaf)

        def start(index: Index) -> Callable[[], np.ndarray]:
            read = future.result()[(*index, ...)].read()
            return lambda: from_stored(read.result(), dtype)

        return start


def open_reader(path: str | os.PathLike[str], step: int | str, where: str) -> Reader:
    """Open a checkpoint.

    Args:
      path: the folder of a run or of a step, or a file.
      step: the step of a run, or "latest".
      where: the operation, for errors.

    Raises:
      CheckpointNotFoundError: there is no checkpoint.
      CheckpointError: it is damaged, or of a format that is not known.
    """
    folder = Path(path).absolute()
    if not _is_step(folder):
        run = RunFolder(folder)
        folder = run.step_path(run.find_step(step, where))
    if not (folder / DOCUMENT).exists():
        raise CheckpointError(
            f"{where}, path",
            expected="a folder that checkpoint.save wrote",
            got=f"{str(folder)!r} without the file {DOCUMENT}",
            fix="check the path; if the file is lost, restore it from a copy or load another step",
        )
    return StepReader(folder, where)


def _is_step(path: Path) -> bool:
    return (path / DOCUMENT).exists()
