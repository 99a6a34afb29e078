"""The interface of readers of checkpoints: the leaves by name, and the elements of each, of which parts can be read.

`readers` has the reader of what `save` wrote and chooses among all of them; `loading` reads through this interface.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from phalanx.checkpoint.checkpoint_errors import CheckpointError
from phalanx.checkpoint.leaf_records import LeafMetadata

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
      path: the folder, URL or file.
      leaves: the leaves by name.
      structure: the containers, as `describe_structure` describes them.
      user: the user's data.
      step: the number of the step, if it has one.
    """

    def __init__(self, path: Path | str, leaves: dict[str, LeafMetadata], structure: Any, user: Any, step: int | None):
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
