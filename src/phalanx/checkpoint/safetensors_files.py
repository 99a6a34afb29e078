"""Files of safetensors: arrays under names with dots, in one file; written whole, read in parts.

A file is the size of the header in eight bytes, the header as JSON (dtype, shape and place of each array), and the
elements. Nothing in it is executed. Called by `readers`; users call `save_safetensors`.

Source: the format of https://huggingface.co/docs/safetensors.
"""

from __future__ import annotations

import contextlib
import glob
import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from phalanx.checkpoint.checkpoint_errors import CheckpointError
from phalanx.checkpoint.checkpoint_reader import Index, Reader
from phalanx.checkpoint.leaf_records import LeafMetadata, describe_leaf
from phalanx.checkpoint.named_leaves import NamedLeaf, flatten_named, join_keys, nest_names, split_name
from phalanx.checkpoint.step_folders import explain_os_errors, force_to_disk, local_path
from phalanx.core import ArgumentError, ArgumentTypeError, dtypes
from phalanx.typing import PyTree

_NAMES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32",
    "uint64": "U64", "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0", "complex64": "C64",
}  # fmt: skip
_DTYPES = {_NAMES[dtype.name]: dtype for dtype in dtypes.supported if dtype.name in _NAMES}
_LARGEST_HEADER = 100 << 20
_ABANDONED_SECONDS = 3600.0  # A file to which nothing was written for so long belongs to a process that was killed.
SUFFIX, _RESERVED = ".safetensors", "__metadata__"


def save_safetensors(path: str | os.PathLike[str], tree: PyTree, *, metadata: dict[str, str] | None = None) -> Path:
    """Write the arrays of a tree to a file of safetensors, which other frameworks read.

    The name of an array is its path with dots, such as `layers.0.kernel`. `load` reads the file.

    Args:
      path: the file, with the suffix `.safetensors`; one that exists is replaced as a whole.
      tree: a pytree of arrays and Python numbers; it may contain `nnx` modules.
      metadata: texts to store in the file.

    Returns:
      The path of the file.

    Raises:
      ArgumentTypeError: a leaf is not an array or number of a dtype that the format has.
      ArgumentError: the path has another suffix or is a URL, or two arrays have one name.
      CheckpointSaveError: the file cannot be written.

    Examples:
      >>> import tempfile, phalanx.numpy as jnp
      >>> from phalanx import checkpoint
      >>> file = tempfile.mkdtemp() + "/model.safetensors"
      >>> _ = checkpoint.save_safetensors(file, {"layer": {"w": jnp.arange(3.0)}})
      >>> checkpoint.load(file)
      {'layer': {'w': array([0., 1., 2.], dtype=float32)}}
    """
    where = "checkpoint.save_safetensors"
    target = local_path(path, where)
    if target.suffix != SUFFIX:
        raise ArgumentError(
            f"{where}, path", expected=f"a path with the suffix {SUFFIX}", got=repr(str(path)), fix=f"append {SUFFIX}"
        )
    if not all(isinstance(text, str) for pair in (metadata or {}).items() for text in pair):
        raise ArgumentTypeError(
            f"{where}, metadata",
            expected="a dict from str to str",
            got=repr(metadata),
            fix="convert the values to text",
        )
    leaves, _ = flatten_named(tree, f"{where}, tree")
    arrays: dict[str, tuple[NamedLeaf, np.dtype, tuple[int, ...]]] = {}
    for leaf in leaves:
        name = ".".join(split_name(leaf.name))
        if name in arrays:
            raise ArgumentError(
                f"{where}, tree",
                expected="arrays with different names",
                got=f"two with the name {name!r}",
                fix="rename a key that contains a dot",
            )
        if name == _RESERVED:
            raise ArgumentError(
                f"{where}, tree",
                expected="other names",
                got=f"{name!r}, which the format reserves",
                fix="rename the key",
            )
        arrays[name] = (leaf, *_check_leaf(leaf, where))
    # The largest elements first, so that all are aligned.
    ordered = sorted(arrays, key=lambda name: (-arrays[name][1].itemsize, name))
    header: dict[str, Any] = {_RESERVED: metadata} if metadata else {}
    end = 0
    for name in ordered:
        _, dtype, shape = arrays[name]
        begin, end = end, end + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": _NAMES[dtype.name], "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    # A name of its own, since other threads and machines may save to the same file.
    unfinished = target.with_name(f".{target.name}.{os.urandom(8).hex()}.partial")
    with explain_os_errors(f"{where}, path", target):
        _remove_abandoned(target)
        try:
            with open(unfinished, "wb") as file:
                file.write(len(text).to_bytes(8, "little") + text)
                for name in ordered:
                    leaf, dtype, _ = arrays[name]
                    file.write(np.ascontiguousarray(np.asarray(leaf.elements, dtype)).reshape(-1).view(np.uint8).data)
            force_to_disk(unfinished)
            os.replace(unfinished, target)
        finally:
            unfinished.unlink(missing_ok=True)
        force_to_disk(target.parent)
    return target


def _remove_abandoned(target: Path) -> None:
    """Remove what processes left that were killed while they saved to a file."""
    for path in target.parent.glob(f".{glob.escape(target.name)}.*.partial"):
        with contextlib.suppress(OSError):  # Another process has removed or finished it.
            if path.stat().st_mtime < time.time() - _ABANDONED_SECONDS:
                path.unlink()


def _check_leaf(leaf: NamedLeaf, where: str) -> tuple[np.dtype, tuple[int, ...]]:
    """The dtype and shape under which a leaf is stored."""
    record = describe_leaf(leaf, f"{where}, tree")
    dtype = record.dtype
    if not record.is_array and dtype in (bool, int, float):
        dtype = np.asarray(leaf.value).dtype
    if getattr(dtype, "name", None) not in _NAMES:
        raise ArgumentTypeError(
            f"{where}, tree, leaf {leaf.name!r}",
            expected="an array or a number of a dtype that safetensors has",
            got=record.describe(),
            fix="store random keys as random.key_data(key), and leave text out or pass it as metadata",
        )
    return dtype, record.shape


class SafetensorsReader(Reader):
    """A file of safetensors.

    Args:
      path: the file.
      where: the operation, for errors.
    """

    def __init__(self, path: Path, where: str):
        where = f"{where}, {str(path)!r}"
        try:
            header, start, size = _read_header(path)
            user = header.pop(_RESERVED, None)
            self._places: dict[str, int] = {}
            leaves = {}
            for name, entry in header.items():
                leaf = LeafMetadata(tuple(entry["shape"]), _DTYPES[entry["dtype"]])
                begin, end = entry["data_offsets"]
                if not all(type(size) is int and size >= 0 for size in (*leaf.shape, begin, end)):
                    raise ValueError(f"the sizes {entry['shape']} at the bytes {begin} to {end}")
                if not 0 <= begin <= end <= size - start or end - begin != leaf.nbytes:
                    raise ValueError(f"{leaf.describe()} at the bytes {begin} to {end} of {size - start}")
                key = _as_path(name)
                self._places[key], leaves[key] = start + begin, leaf
            structure = nest_names(list(leaves))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CheckpointError(
                where,
                expected="a file of safetensors",
                got=f"{type(error).__name__}: {error}",
                fix="the file is damaged or incomplete: write or download it again",
            ) from error
        super().__init__(path, leaves, structure, user, None)

    def find(self, name: str) -> str | None:
        """As `Reader.find`; a dot in a key stands for a level, too, since a file does not tell them apart."""
        return super().find(_as_path(".".join(split_name(name))))

    def _open(self, name: str, leaf: LeafMetadata) -> Callable[[Index], Callable[[], np.ndarray]]:
        def start(index: Index) -> Callable[[], np.ndarray]:
            if not leaf.nbytes:
                return lambda: np.zeros([s.stop - s.start for s in index], leaf.dtype)
            mapped = np.memmap(self.path, np.uint8, "r", self._places[name], (leaf.nbytes,))
            return lambda: np.array(mapped.view(leaf.dtype).reshape(leaf.shape)[index])

        return start


def _as_path(name: str) -> str:
    """The path of the array that has a name in a file."""
    return join_keys(name.split("."))


def _read_header(path: Path) -> tuple[dict[str, Any], int, int]:
    """The header, the place after it, and the size of the file."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _LARGEST_HEADER):
            raise ValueError(f"a header of {length} bytes in a file of {size}")
        header = json.loads(file.read(length))
    return header, 8 + length, size
