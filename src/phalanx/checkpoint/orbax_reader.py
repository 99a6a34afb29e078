"""Reader of the folders that Orbax writes, as users of JAX and Flax have them; neither package is needed.

`_METADATA` has the path and the kind of each leaf, `array_metadatas` the generators of random keys; the elements are
zarr arrays, in an OCDBT database or in folders. Orbax stores no checksums. Called by `readers`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from phalanx.checkpoint.array_store import open_foreign_array
from phalanx.checkpoint.checkpoint_errors import CheckpointError
from phalanx.checkpoint.checkpoint_reader import Index, Reader
from phalanx.checkpoint.leaf_records import LeafMetadata
from phalanx.checkpoint.named_leaves import join_keys
from phalanx.checkpoint.step_folders import ORBAX_ITEMS as _ITEMS, ORBAX_TREE as _METADATA, file_url
from phalanx.random.prng_implementations import find_generator
from phalanx.random.prng_keys import key_dtype

_STRINGS = "_strings.json"
_SEQUENCE = 1  # the type of a key that is the index of a list or tuple
_EMPTY = {"None": None, "Dict": {"dict": []}, "List": {"list": []}, "Tuple": {"tuple": []}, "NamedTuple": {"dict": []}}


def find_orbax_item(folder: Path, where: str) -> Path | None:
    """Find the folder with the leaves in a folder that Orbax wrote.

    Args:
      folder: the folder of a tree, or that of a step with a tree in it.
      where: the operation, for errors.

    Returns:
      The folder of the tree; None if Orbax did not write `folder`.

    Raises:
      CheckpointError: the step has several trees.
    """
    if (folder / _METADATA).exists():
        return folder
    if not (folder / _ITEMS).exists():
        return None
    items = sorted(path for path in folder.iterdir() if (path / _METADATA).exists())
    if len(items) == 1:
        return items[0]
    raise CheckpointError(
        f"{where}, path",
        expected="the folder of one tree that Orbax wrote",
        got=f"{str(folder)!r} with " + (f"the trees {[path.name for path in items]}" if items else "no tree"),
        fix=f"pass {str(items[0])!r}" if items else "pass a folder with a file _METADATA",
    )


class OrbaxReader(Reader):
    """A tree that Orbax wrote.

    Args:
      path: the folder with the file `_METADATA`.
      step: the number of the step, if it has one.
      where: the operation, for errors.
    """

    def __init__(self, path: Path, step: int | None, where: str):
        where = f"{where}, {str(path / _METADATA)!r}"
        try:
            self._read_metadata(path, step)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if isinstance(error, CheckpointError):
                raise
            raise CheckpointError(
                where,
                expected="the description of a tree by Orbax",
                got=f"{type(error).__name__}: {error}",
                fix="the file is damaged or of a version that is not known; restore it, or load another step",
            ) from error

    def _read_metadata(self, path: Path, step: int | None) -> None:
        data = json.loads((path / _METADATA).read_text())
        self._driver = "zarr3" if data.get("use_zarr3") else "zarr"
        self._has_database = (path / "manifest.ocdbt").exists()
        self._arrays: dict[str, Any] = {}
        structure: dict[str, Any] = {}
        texts: dict[str, str] = {}
        parameters: dict[str, str] = {}
        for entry in data["tree_metadata"].values():
            keys = entry["key_metadata"]
            kind = entry["value_metadata"]["value_type"]
            name = join_keys([str(key["key"]) for key in keys])
            parameters[name] = ".".join(str(key["key"]) for key in keys)
            _insert(structure, keys, _EMPTY.get(kind, name))
            if kind == "string":
                texts[name] = json.loads((path / _STRINGS).read_text())[parameters[name]]
            elif not entry["value_metadata"].get("skip_deserialize"):
                self._arrays[name] = self._open_array(path, parameters[name])
        leaves = {name: LeafMetadata((), str, value=text) for name, text in texts.items()}
        generators = _read_generators(path)
        for name, future in self._arrays.items():
            leaves[name] = _describe_array(path, name, future, generators.get(parameters[name]))
        super().__init__(path, leaves, _as_containers(structure), None, step)

    def _open_array(self, path: Path, parameter: str) -> Any:
        if self._has_database:
            return open_foreign_array(
                self._driver, {"driver": "ocdbt", "base": file_url(path), "path": f"{parameter}/"}
            )
        return open_foreign_array(self._driver, {"driver": "file", "path": f"{path / parameter}/"})

    def find(self, name: str) -> str | None:
        """As `Reader.find`; in a state that Flax NNX wrote, the value of a variable is the leaf `value` below it."""
        return next((found for found in (name, f"{name}/value") if found in self.leaves), None)

    def _open(self, name: str, leaf: LeafMetadata) -> Callable[[Index], Callable[[], np.ndarray]]:
        array = self._arrays[name].result()

        def start(index: Index) -> Callable[[], np.ndarray]:
            return array[(*index, ...)].read().result

        return start


def _read_generators(path: Path) -> dict[str, str]:
    """The generators of the arrays of random keys, by the names of the arrays."""
    found = {}
    for file in sorted((path / "array_metadatas").glob("process_*")):
        for entry in json.loads(file.read_text())["array_metadatas"]:
            about = entry["array_metadata"]
            if generator := (about.get("ext_metadata") or {}).get("random_key_impl"):
                found[about["param_name"]] = generator
    return found


def _describe_array(path: Path, name: str, future: Any, generator: str | None) -> LeafMetadata:
    try:
        array = future.result()
    except ValueError as error:
        raise CheckpointError(
            f"checkpoint.load, leaf {name!r} of {str(path)!r}",
            expected="a zarr array",
            got=str(error).partition("[")[0].strip(),
            fix="the files are damaged: load another step, or restore them from a copy",
        ) from error
    shape, dtype = tuple(array.shape), array.dtype.numpy_dtype
    if generator is None:
        return LeafMetadata(shape, dtype)
    keys = key_dtype(find_generator(generator))
    return LeafMetadata(shape[: len(shape) - len(keys.key_shape)], keys)


def _insert(structure: dict[str, Any], keys: list[dict[str, Any]], leaf: Any) -> None:
    """Insert a leaf below its keys; the children of a container are collected with the type of their keys."""
    node = structure
    for key in keys:
        node = node.setdefault("children", {}).setdefault((key["key_type"], key["key"]), {})
    node["leaf"] = leaf


def _as_containers(node: dict[str, Any]) -> Any:
    """The structure, as `describe_structure` has it, of nested collected children."""
    if "leaf" in node:
        return node["leaf"]
    children = node.get("children", {})
    if children and all(kind == _SEQUENCE for kind, _ in children):
        ordered = sorted(children.items(), key=lambda item: int(item[0][1]))
        return {"list": [_as_containers(child) for _, child in ordered]}
    return {"dict": [[key, _as_containers(child)] for (_, key), child in children.items()]}
