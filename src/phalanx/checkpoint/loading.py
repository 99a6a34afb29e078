"""`load`: read a step into a tree, with the shardings and dtypes that the caller wants; `steps`, `metadata`, `delete`.

A reader gives the leaves of a checkpoint by name, whichever library wrote it. `load` finds for each leaf of `like` the
leaf of the checkpoint, checks all of them before it reads anything, reads the part of each device, and only then
rebuilds the tree, so that a module is updated as a whole or not at all.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from phalanx.checkpoint.checkpoint_errors import CheckpointError
from phalanx.checkpoint.checkpoint_reader import Reader
from phalanx.checkpoint.leaf_conversions import as_array_record, check_dtype, check_python_type, convert, to_python
from phalanx.checkpoint.leaf_records import LeafMetadata
from phalanx.checkpoint.named_leaves import NamedLeaf, build_structure, flatten_named
from phalanx.checkpoint.process_agreement import agree, check_equal, is_first
from phalanx.checkpoint.readers import open_reader
from phalanx.checkpoint.saving import wait_for_last_save
from phalanx.checkpoint.step_folders import explain_os_errors, parse_step
from phalanx.checkpoint.step_urls import open_run
from phalanx.core import ArgumentError, ArgumentTypeError, ShapedArray, ShapeDtypeStruct, TreeError, dtypes
from phalanx.engine import client
from phalanx.random import wrap_key_data
from phalanx.runtime import ArrayType, wrap_buffer
from phalanx.runtime.array import single_device_sharding
from phalanx.sharding import Sharding, to_sharding
from phalanx.spmd import make_array_from_callback
from phalanx.spmd.device_put import device_put
from phalanx.typing import PyTree

# The bytes that are read ahead of the leaf that is being placed on its devices.
_READ_AHEAD = 256 << 20

Rename = Mapping[str, str] | Callable[[str], str]


def load(
    path: str | os.PathLike[str],
    like: PyTree = None,
    *,
    step: int | str = "latest",
    shardings: PyTree = None,
    partial: bool = False,
    rename: Rename | None = None,
) -> Any:
    """Load a tree from a checkpoint.

    A save of this program that is in progress is waited for. Leaves are found by their paths, such as
    `layers/0/kernel`. Each device reads its part of an array only, whatever the shardings were when it was saved. The
    checksums of all parts that are read are verified. A program of several processes may load what any number of them
    saved; all of them call it to load arrays over their devices.

    Args:
      path: the folder of the run, or of one step, or its URL; a local folder that Orbax wrote; or a safetensors file.
      like: the tree to load. The leaves give shapes, dtypes and shardings: arrays or `ShapeDtypeStruct`s become arrays
        on devices, NumPy arrays stay on the host, and Python values become values of their type. `nnx` modules and
        references are updated in place and returned. If None, the tree that was saved is returned, with NumPy arrays,
        and with the state of a module as nested dicts.
      step: the step, or "latest".
      shardings: shardings to use instead of those of `like`, for all leaves or as a tree prefix.
      partial: accept a tree that has only some of the leaves of the checkpoint, and leave those leaves of `like` as
        they are that the checkpoint does not have.
      rename: the path in the checkpoint of a path in `like`: a function, or a dict in which a path stands for all paths
        below it, and "" for the whole tree.

    Returns:
      The tree.

    Raises:
      CheckpointNotFoundError: there is no such checkpoint.
      CheckpointError: the trees, shapes or dtypes do not match, a number is outside of the range of its dtype in
        `like`, or a file is damaged; the error names the leaf.
      ArgumentError: `rename` has a path that `like` or the checkpoint does not have.
      TreeError: `shardings` is not a tree prefix of the tree.

    Examples:
      >>> import tempfile, phalanx, phalanx.numpy as jnp
      >>> from phalanx import checkpoint
      >>> folder = tempfile.mkdtemp()
      >>> _ = checkpoint.save(folder, {"w": jnp.arange(3.0), "name": "adam"}, wait=True)
      >>> checkpoint.load(folder)
      {'name': 'adam', 'w': array([0., 1., 2.], dtype=float32)}
      >>> checkpoint.load(folder, {"w": phalanx.ShapeDtypeStruct((3,), jnp.bfloat16)}, partial=True)
      {'w': Array([0, 1, 2], dtype=bfloat16)}
    """
    where = "checkpoint.load"
    wait_for_last_save()
    reader = open_reader(path, step, where)
    if like is None:
        tree = build_structure(reader.structure, lambda name: _AsSaved(reader.leaves[name]))
    else:
        tree = like
    leaves, rebuild = flatten_named(tree, f"{where}, like")
    placed = _choose_shardings(shardings, leaves, f"{where}, shardings")
    sources = _find_sources(leaves, rename, reader, where)
    _check_names(sources, reader, partial, where)
    values: dict[str, Any] = {}
    requests = []
    for leaf, sharding in zip(leaves, placed, strict=True):
        source = sources[leaf.name]
        if source is None:
            values[leaf.name] = _keep_value(leaf, where)
            continue
        target = _make_target(leaf, reader.leaves[source], sharding, where)
        if target.record.is_array:
            requests.append((leaf.name, source, target))
        else:
            values[leaf.name] = target.finish(target.record.value)
    _compare_steps(reader, {target.sharding for _, _, target in requests} - {None}, where)
    values.update(_read_all(reader, requests))
    return rebuild(values)


def _compare_steps(reader: Reader, shardings: Iterable[Sharding], where: str) -> None:
    """Raise if processes would load different steps into one array, since a file system shows them late."""
    coordinator = client.coordinator()
    if coordinator is None:
        return
    groups = {tuple(sorted({device.process_index for device in s.device_set})) for s in shardings}
    for group in sorted(group for group in groups if coordinator.process_id in group and len(group) > 1):
        among = None if len(group) == coordinator.num_processes else group
        for process, step in zip(group, coordinator.exchange(where, str(reader.step), among=among), strict=True):
            if step != str(reader.step):
                raise CheckpointError(
                    f"{where}, step",
                    expected=f"the same step in all processes, here {reader.step}",
                    got=f"{step} in process {process}",
                    fix="pass step=..., and use a file system that all machines share",
                )


def steps(path: str | os.PathLike[str]) -> list[int]:
    """List the committed steps of a folder.

    Args:
      path: the folder of the run.

    Returns:
      The steps, in order; none if the folder does not exist.

    Raises:
      CheckpointError: the folder or store cannot be read.

    Examples:
      >>> import tempfile
      >>> from phalanx import checkpoint
      >>> folder = tempfile.mkdtemp()
      >>> _ = checkpoint.save(folder, {"x": 1}, step=10, wait=True)
      >>> checkpoint.steps(folder)
      [10]
    """
    where = "checkpoint.steps"
    run = open_run(path, where)
    with explain_os_errors(where, run.location, reading=True):
        return run.list_steps()


def delete(path: str | os.PathLike[str], step: int) -> None:
    """Delete a step. In a program of several processes, all of them call it.

    Args:
      path: the folder of the run.
      step: the step.

    Raises:
      CheckpointNotFoundError: there is no such step.
      CheckpointSaveError: the folder cannot be written, or a save to it is in progress.

    Examples:
      >>> import tempfile
      >>> from phalanx import checkpoint
      >>> folder = tempfile.mkdtemp()
      >>> _ = checkpoint.save(folder, {"x": 1}, step=10, wait=True)
      >>> checkpoint.delete(folder, 10)
      >>> checkpoint.steps(folder)
      []
    """
    where = "checkpoint.delete"
    wait_for_last_save()
    run = open_run(path, where)
    coordinator = client.coordinator()

    def find() -> int:
        return run.find_step(parse_step(step, where), where)

    def remove() -> None:
        if is_first(coordinator):
            with explain_os_errors(where, run.location), run.lock(where):
                run.remove(found[0])

    found = agree(coordinator, where, find)  # No process still looks for it.
    if coordinator is not None:
        check_equal(where, "the same", [{"step": str(each)} for each in found], coordinator.process_id)
    agree(coordinator, where, remove)


@dataclass(frozen=True)
class CheckpointMetadata:
    """The description of a checkpoint.

    Args:
      step: the step; None for formats without steps.
      leaves: the description of each leaf, by its path.
      user: the `metadata` that it was saved with.

    Examples:
      >>> CheckpointMetadata(3, {}, {"loss": 0.5}).user
      {'loss': 0.5}
    """

    step: int | None
    leaves: dict[str, LeafMetadata]
    user: Any


def metadata(path: str | os.PathLike[str], *, step: int | str = "latest") -> CheckpointMetadata:
    """Read the description of a checkpoint, without its arrays.

    Args:
      path: as for `load`.
      step: the step, or "latest".

    Returns:
      The step, the shapes, dtypes and shardings of the leaves, and your own data.

    Raises:
      CheckpointNotFoundError: there is no such checkpoint.
      CheckpointError: the description is damaged.

    Examples:
      >>> import tempfile, phalanx.numpy as jnp
      >>> from phalanx import checkpoint
      >>> folder = tempfile.mkdtemp()
      >>> _ = checkpoint.save(folder, {"w": jnp.zeros((2, 3))}, metadata={"epoch": 1}, wait=True)
      >>> found = checkpoint.metadata(folder)
      >>> found.step, found.leaves["w"].shape, found.user
      (0, (2, 3), {'epoch': 1})
    """
    wait_for_last_save()
    reader = open_reader(path, step, "checkpoint.metadata")
    return CheckpointMetadata(reader.step, dict(reader.leaves), reader.user)


# --- which leaf of the checkpoint goes where ---


@dataclass(frozen=True)
class _AsSaved:
    """A leaf of the tree that `load` makes when no `like` is given."""

    record: LeafMetadata


def _choose_shardings(shardings: Any, leaves: list[NamedLeaf], where: str) -> list[Any]:
    """The sharding of each leaf: that with the longest path above it, None if there is none."""
    if shardings is None:
        return [None] * len(leaves)
    given, _ = flatten_named(shardings, where)
    by_name = {leaf.name: _as_sharding(leaf.value, f"{where}, {leaf.name!r}") for leaf in given}
    used, chosen = set(), []
    for leaf in leaves:
        above = [leaf.name, *(leaf.name[:i] for i, c in reversed(list(enumerate(leaf.name))) if c == "/"), ""]
        found = next((name for name in above if name in by_name), None)
        used.add(found)
        chosen.append(None if found is None else by_name[found])
    for name in by_name.keys() - used:
        raise TreeError(
            where,
            expected="paths of the tree that is loaded",
            got=f"a sharding for {name!r}",
            fix="give shardings a tree prefix of like",
        )
    return chosen


def _as_sharding(sharding: Any, where: str) -> Sharding:
    if hasattr(sharding, "device_kind"):
        return single_device_sharding(sharding)
    return to_sharding(sharding, where=where)


def _find_sources(leaves: list[NamedLeaf], rename: Rename | None, reader: Reader, where: str) -> dict[str, str | None]:
    """The leaf of the checkpoint for each path in `like`, None if there is none."""
    if callable(rename):
        return {leaf.name: reader.find(rename(leaf.name)) for leaf in leaves}
    for path in itertools.chain.from_iterable((rename or {}).items()):
        if not isinstance(path, str):
            raise ArgumentTypeError(
                f"{where}, rename", expected="paths such as 'layers/0/kernel'", got=repr(path), fix="pass strs"
            )
    found: dict[str, str | None] = {}
    used: dict[str, bool] = {}  # whether the checkpoint has a leaf for an entry of `rename`
    for leaf in leaves:
        moves = [(old, rest) for old in rename or () if (rest := _path_below(leaf.name, old)) is not None]
        old, rest = max(moves, key=lambda move: len(move[0]), default=("", leaf.name))
        new = rename[old] if rename and moves else ""
        found[leaf.name] = reader.find(f"{new}/{rest}" if new and rest else new or rest)
        if moves:
            used[old] = used.get(old, False) or found[leaf.name] is not None
    for old, new in (rename or {}).items():
        if not used.get(old, False):
            is_old = old not in used
            raise ArgumentError(
                f"{where}, rename",
                expected="paths of leaves in like, or above them" if is_old else f"paths in {reader.describe()}",
                got=repr(old if is_old else new),
                fix=_suggest_path(old, list(found)) if is_old else _suggest_path(new, list(reader.leaves)),
            )
    return found


def _path_below(name: str, above: str) -> str | None:
    """The path of a leaf below another path, None if it is not there."""
    if not above:
        return name
    return name[len(above) + 1 :] if f"{name}/".startswith(f"{above}/") else None


def _suggest_path(path: str, names: list[str]) -> str:
    """The remedy for a path that is not among those of leaves and above them."""
    import difflib

    paths = dict.fromkeys(name[:i] for name in names for i in range(len(name) + 1) if f"{name}/"[i] == "/")
    close = difflib.get_close_matches(path, paths)
    return f"write {' or '.join(map(repr, close))}" if close else f"choose from {_abbreviate(names)}"


def _check_names(sources: dict[str, str | None], reader: Reader, partial: bool, where: str) -> None:
    """Raise unless the tree and the checkpoint have the same leaves, or some of them if `partial`."""
    missing = sorted(name for name, source in sources.items() if source is None)
    unused = sorted(reader.leaves.keys() - set(sources.values()))
    if partial and (len(missing) < len(sources) or not sources):
        return
    if missing:
        raise CheckpointError(
            f"{where}, like, leaf {missing[0]!r}",
            expected=f"a leaf that {reader.describe()} has" + (f", which has {_abbreviate(unused)}" if unused else ""),
            got=f"{len(missing)} that it does not have: {_abbreviate(missing)}",
            fix="name its path in the checkpoint with rename={'path in like': 'path in the checkpoint'}"
            + (", or pass partial=True to keep the values of like" if len(missing) < len(sources) else ""),
        )
    if unused:
        raise CheckpointError(
            f"{where}, like",
            expected=f"a tree with all leaves of {reader.describe()}",
            got=f"a tree without {_abbreviate(unused)}",
            fix="pass partial=True to load only the leaves of like",
        )


def _abbreviate(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:4]))
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"


def _keep_value(leaf: NamedLeaf, where: str) -> Any:
    """The value of a leaf of `like` that the checkpoint does not have."""
    if isinstance(leaf.value, ShapeDtypeStruct):
        raise CheckpointError(
            f"{where}, like, leaf {leaf.name!r}",
            expected="a leaf that the checkpoint has, or a value to keep",
            got=repr(leaf.value),
            fix="give the leaf an initial value, such as an array of zeros",
        )
    return leaf.elements


# --- one leaf ---


class _Target(NamedTuple):
    """How a leaf is loaded.

    Args:
      record: the leaf of the checkpoint.
      sharding: the sharding of the result; None to read the whole array to the host.
      dtype: the dtype of the result.
      finish: the function from the elements on the host, or from the array with `sharding`, to the result.
    """

    record: LeafMetadata
    sharding: Any
    dtype: Any
    finish: Callable[[Any], Any]


def _make_target(leaf: NamedLeaf, record: LeafMetadata, sharding: Any, where: str) -> _Target:
    where = f"{where}, leaf {leaf.name!r}"
    like = leaf.value
    if isinstance(like, _AsSaved):
        if sharding is not None:
            sharding.shard_shape(record.shape, where=where)
            return _Target(record, sharding, dtypes.canonicalize_dtype(record.dtype), _identity)
        return _Target(record, None, record.dtype, _wrap_keys_or(_identity, record))
    if isinstance(like, (bool, int, float, complex, str, bytes)) and not isinstance(like, np.generic):
        kind = type(like)
        check_python_type(kind, record, where)
        return _Target(record, None, record.dtype, lambda value: to_python(kind, value, where))
    if not hasattr(like, "shape") or not hasattr(like, "dtype"):
        raise ArgumentTypeError(
            where,
            expected="an array, a ShapeDtypeStruct or a Python value in like",
            got=f"{type(like).__name__} {like!r:.80}",
            fix="leave it out of the tree, or replace it by one of these",
        )
    if not record.is_array:
        record = as_array_record(record, like.dtype, where)
    if tuple(like.shape) != record.shape:
        raise CheckpointError(
            where,
            expected=f"shape {tuple(like.shape)}, that of like",
            got=f"{record.describe()} in the checkpoint",
            fix="build like with the sizes that the checkpoint was saved with",
        )
    dtype = check_dtype(record, like.dtype, where)
    if record.is_key:
        record = replace(record, dtype=dtype)
    if isinstance(like, (np.ndarray, np.generic)) and sharding is None:
        return _Target(record, None, dtype, _identity)
    dtype = dtypes.canonicalize_dtype(dtype)
    wanted = sharding or getattr(like, "sharding", None)
    is_placed = sharding is not None or isinstance(like, ShapeDtypeStruct) or getattr(like, "committed", True)
    if wanted is None or not is_placed:
        put = _wrap_keys_or(device_put, record)
        return _Target(record, None, dtype, lambda x: _with_weak_type(put(x), like))
    wanted.shard_shape(record.shape, where=where)  # raises where it does not fit
    return _Target(record, wanted, dtype, lambda x: _with_weak_type(x, like))


def _identity(x: Any) -> Any:
    return x


def _wrap_keys_or(finish: Callable[[Any], Any], record: LeafMetadata) -> Callable[[Any], Any]:
    """Random keys, which NumPy does not have, go to the default device; other elements are finished by `finish`."""
    return (lambda words: wrap_key_data(words, dtype=record.dtype)) if record.is_key else finish


def _with_weak_type(x: Any, like: Any) -> Any:
    """Give an array the weak type of `like`, so that a resumed program promotes it as before."""
    if not getattr(like, "weak_type", False) or x.aval.weak_type:
        return x
    aval = ShapedArray(x.shape, x.dtype, True)
    return wrap_buffer(x._buffer, ArrayType(aval, x.sharding, x.committed))


# --- reading ---


def _read_all(reader: Reader, requests: Iterable[tuple[str, str, _Target]]) -> Iterable[tuple[str, Any]]:
    """Read leaves, a bounded number of bytes ahead of the one that is being placed."""
    waiting: deque[tuple[str, int, Callable[[], Any]]] = deque()
    ahead = 0
    for name, source, target in requests:
        while waiting and ahead + target.record.nbytes > _READ_AHEAD:
            first, nbytes, finish = waiting.popleft()
            yield first, finish()
            ahead -= nbytes
        waiting.append((name, target.record.nbytes, _start_read(reader, source, target)))
        ahead += target.record.nbytes
    for first, _, finish in waiting:
        yield first, finish()


def _start_read(reader: Reader, source: str, target: _Target) -> Callable[[], Any]:
    """Start reading the parts of a leaf that this process needs; the result waits for them and makes the leaf."""
    record, sharding = target.record, target.sharding
    rank = len(record.shape)
    if sharding is None:
        places = [tuple(slice(0, n) for n in record.shape)]
    else:
        places = list(sharding.addressable_devices_indices_map(record.shape).values())
    bounds = {_bounds(index, record.shape) for index in places}
    array = reader.open(source, record)
    reads = {b: array.read(tuple(slice(*pair) for pair in b)) for b in bounds}

    def read_part(index: tuple[slice, ...]) -> np.ndarray:
        elements = reads[_bounds(index[:rank], record.shape)]()
        if record.is_key:
            return elements
        return convert(elements, target.dtype, f"checkpoint.load, leaf {source!r}", reader.describe())

    def finish() -> Any:
        if sharding is None:
            return target.finish(read_part(places[0]))
        dtype = record.words_dtype if record.is_key else target.dtype
        made = make_array_from_callback(record.words_shape, sharding, read_part, dtype)
        if record.is_key:
            made = wrap_key_data(made, dtype=record.dtype)
            made = made if made.sharding == sharding else device_put(made, sharding)
        return target.finish(made)

    return finish


def _bounds(index: tuple[slice, ...], shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    return tuple(s.indices(size)[:2] for s, size in zip(index, shape))
