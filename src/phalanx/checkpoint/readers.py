"""The reader of a path: of a step that `save` wrote, of a folder of Orbax, or of a file of safetensors.

Called by `loading`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from phalanx.checkpoint.array_store import from_stored, open_array
from phalanx.checkpoint.checkpoint_errors import CheckpointError, CheckpointNotFoundError
from phalanx.checkpoint.checkpoint_reader import Index, Reader
from phalanx.checkpoint.leaf_records import LeafMetadata, read_document
from phalanx.checkpoint.orbax_reader import OrbaxReader, find_orbax_item
from phalanx.checkpoint.safetensors_files import SafetensorsReader
from phalanx.checkpoint.step_folders import (
    DOCUMENT,
    RunFolder,
    explain_os_errors,
    file_url,
    is_url,
    local_path,
    parse_step,
)
from phalanx.checkpoint.step_urls import RunUrl


class StepReader(Reader):
    """A step that `save` wrote.

    Args:
      path: its folder or URL.
      base: its URL.
      document: the bytes of its document.
      step: the number of the step, if it has one.
      where: the operation, for errors.
    """

    def __init__(self, path: Path | str, base: str, document: bytes, step: int | None, where: str):
        read = read_document(document, f"{where}, '{path}/{DOCUMENT}'")
        super().__init__(path, read.leaves, read.structure, read.user, step)
        self._base = base

    def _open(self, name: str, leaf: LeafMetadata) -> Callable[[Index], Callable[[], np.ndarray]]:
        dtype = leaf.words_dtype
        if not leaf.nbytes:
            return lambda index: (
                lambda: np.zeros([s.stop - s.start for s in index] + list(leaf.words_shape[len(index) :]), dtype)
            )
        future = open_array(self._base, name, leaf)

        def start(index: Index) -> Callable[[], np.ndarray]:
            read = future.result()[(*index, ...)].read()
            return lambda: from_stored(read.result(), dtype)

        return start


def open_reader(path: str | os.PathLike[str], step: int | str, where: str) -> Reader:
    """Open a checkpoint.

    Args:
      path: the folder or URL of a run or of a step, or a file.
      step: the step of a run, or "latest".
      where: the operation, for errors.

    Raises:
      ArgumentTypeError: `step` is no integer.
      CheckpointNotFoundError: there is no checkpoint, or that of another step.
      CheckpointError: it is damaged, or of a format that is not known.
    """
    if not (isinstance(step, str) and step == "latest"):
        step = parse_step(step, where)
    with explain_os_errors(where, os.fsdecode(path), reading=True):
        reader = (
            _open_url(os.fsdecode(path).rstrip("/"), step, where) if is_url(path) else _open_local(path, step, where)
        )
    if step not in ("latest", reader.step):
        raise CheckpointNotFoundError(
            f"{where}, step",
            expected="no step, or the folder of a run as path",
            got=f"step {step} for {reader.describe()}",
            fix="leave step out, or pass the folder above as path",
        )
    return reader


def _open_local(path: str | os.PathLike[str], step: int | str, where: str) -> Reader:
    folder = local_path(path, where)
    if folder.is_file():
        return SafetensorsReader(folder, where)
    number = _parse_number(folder.name)
    if not (folder / DOCUMENT).exists() and find_orbax_item(folder, where) is None:
        run = RunFolder(folder)
        number = run.find_step(step, where)
        folder = run.locate(number)
    if (item := find_orbax_item(folder, where)) is not None:
        return OrbaxReader(item, number, where)
    if not (folder / DOCUMENT).exists():
        raise CheckpointError(
            f"{where}, path",
            expected="a folder that checkpoint.save or Orbax wrote",
            got=f"{str(folder)!r} without the file {DOCUMENT}",
            fix="check the path; if the file is lost, restore it from a copy or load another step",
        )
    return StepReader(folder, file_url(folder), (folder / DOCUMENT).read_bytes(), number, where)


def _open_url(url: str, step: int | str, where: str) -> Reader:
    run = RunUrl(url, where)
    number = _parse_number(url.rpartition("/")[2])
    document = run.read_own_document()
    if document is None:
        number = run.find_step(step, where)
        url, document = run.locate(number), run.read_document(number)
    return StepReader(url, f"{url}/", document, number, where)


def _parse_number(name: str) -> int | None:
    """The number of the step of a folder that was given by the user."""
    return int(name) if name.isdecimal() else None
