"""Checks of checkpoints over several processes; each public function runs in all of them.

The tree is the one that `tests/distributed/test_checkpoints.py` saves and loads in one process, too.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import checkpoint, nnx, optim
from phalanx.checkpoint import saving, step_folders
from phalanx.core import dtypes
from phalanx.errors import CheckpointError, CheckpointSaveError, ProgramMismatchError
from phalanx.sharding import Mesh, NamedSharding, P

DEVICES = phalanx.devices()
OWN, COUNT = phalanx.process_index(), phalanx.process_count()
MESHES = [Mesh(np.array(DEVICES).reshape(shape), ("a", "b", "c")[: len(shape)]) for shape in ((8,), (4, 2), (2, 2, 2))]
W = np.arange(256 * 24, dtype=np.float32).reshape(256, 24)


def _root() -> Path:
    return Path(os.environ["CHECKPOINT_FOLDER"])


def tree_on(mesh: Mesh, step: int = 1) -> dict:
    """Arrays with different splits over a mesh, host values, and random keys."""
    first, *others = mesh.axis_names
    put = lambda x, *spec: phalanx.device_put(x, NamedSharding(mesh, P(*spec)))
    with phalanx.enable_x64(True):
        of_every_dtype = {d.name: put(np.ones((6, 5), bool).astype(d), first) for d in dtypes.supported}
    return {
        "w": put(W + step, first, tuple(others) or None),
        "half": put((W * step).astype(jnp.bfloat16), None, others[-1] if others else first),
        "whole": put(np.float32(step)),
        "uneven": put(W[:10, :7] + step, first, tuple(others) or None),
        "tiny": put(np.arange(16).astype(jnp.int4), (first, *others)),
        **of_every_dtype,
        "keys": put(phalanx.random.split(phalanx.random.key(step), 8), first),
        "local": jnp.arange(3.0) * step,
        "host": np.arange(5) + step,
        "none": put(np.zeros((8, 0), np.float32), first),
        "step": step,
        "name": "adam",
    }


def assert_same(tree: dict, truth: dict) -> None:
    assert tree.keys() == truth.keys()
    for name, value in truth.items():
        found = tree[name]
        if name == "keys":
            assert found.dtype == value.dtype
            found, value = phalanx.random.key_data(found), phalanx.random.key_data(value)
        if not isinstance(value, phalanx.Array):
            np.testing.assert_array_equal(found, value)
            continue
        assert found.sharding == value.sharding and found.dtype == value.dtype
        for mine, theirs in zip(found.addressable_shards, value.addressable_shards, strict=True):
            np.testing.assert_array_equal(np.asarray(mine.data), np.asarray(theirs.data))


def save_a_step():
    """Save, for all other readers."""
    saved = checkpoint.save(_root() / str(COUNT), tree_on(MESHES[1]), step=1, metadata={"loss": 0.5})
    assert saved.result() == _root() / str(COUNT) / "1" and saved.done()
    assert checkpoint.steps(_root() / str(COUNT)) == [1]


def load_what_all_have_saved():
    for writer in _root().glob("[0-9]"):
        for mesh in MESHES:
            like, truth = tree_on(mesh, 7), tree_on(mesh)
            with phalanx.enable_x64(True):
                assert_same(checkpoint.load(writer, like), truth)
        described = checkpoint.metadata(writer)
        assert described.user == {"loss": 0.5}
        assert described.leaves["w"].sharding.spec == P("a", "b")
        on_host = checkpoint.load(writer)
        np.testing.assert_array_equal(on_host["w"], W + 1)
        placed = checkpoint.load(
            writer, {"w": jnp.zeros(W.shape)}, partial=True, shardings=NamedSharding(MESHES[0], P(None, "a"))
        )
        assert placed["w"].addressable_shards[0].data.shape == (256, 3)


def each_process_writes_only_its_shards():
    folder = _root() / f"shards{COUNT}"
    x = phalanx.device_put(np.random.default_rng(0).normal(size=(1024, 128)).astype(np.float32), _rows(MESHES[0]))
    path = checkpoint.save(folder, {"x": x}).result()
    sizes = [sum(f.stat().st_size for f in (path / f"process_{i}" / "d").iterdir()) for i in range(COUNT)]
    assert all(0.9 < size / (x.nbytes / COUNT) < 1.2 for size in sizes), sizes


def each_device_reads_only_its_part():
    folder = _root() / f"parts{COUNT}"
    x = phalanx.device_put(W, _rows(MESHES[0]))
    checkpoint.save(folder, {"x": x}, wait=True)
    from phalanx.checkpoint.checkpoint_reader import StoredElements

    read, bounds = StoredElements.read, []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StoredElements, "read", lambda self, index: bounds.append(index) or read(self, index))
        checkpoint.load(folder, {"x": x})
    assert len(bounds) == 8 // COUNT and all(index[0].stop - index[0].start == 32 for index in bounds)


def _rows(mesh):
    return NamedSharding(mesh, P(mesh.axis_names[0]))


def steps_are_kept_deleted_and_numbered():
    folder = _root() / f"kept{COUNT}"
    for i in range(4):
        saved = checkpoint.save(folder, {"x": phalanx.device_put(W * i, _rows(MESHES[0])), "n": i}, keep=2)
        assert saved.step == i
    saved.result()
    assert checkpoint.steps(folder) == [2, 3]
    for step in checkpoint.steps(folder):
        assert checkpoint.load(folder, {"n": 0}, step=step, partial=True) == {"n": step}
        checkpoint.delete(folder, step)
    assert checkpoint.steps(folder) == []
    with pytest.raises(CheckpointError, match="expected a checkpoint of step 3"):
        checkpoint.delete(folder, 3)


def modules_are_saved_and_updated():
    def train(model, optimizer, x):
        @nnx.jit
        def step(model, optimizer, x):
            optimizer.update(model, nnx.grad(lambda m: (m(x) ** 2).mean())(model))

        step(model, optimizer, x)

    def make(seed):
        model = nnx.Linear(8, 4, rngs=nnx.Rngs(seed))
        return model, nnx.Optimizer(model, optim.adam(0.1), wrt=nnx.Param)

    x = phalanx.device_put(W[:8, :8], _rows(MESHES[0]))
    model, optimizer = make(0)
    train(model, optimizer, x)
    folder = _root() / f"modules{COUNT}"
    checkpoint.save(folder, {"model": model, "optimizer": optimizer}, wait=True)
    resumed, its_optimizer = make(1)
    checkpoint.load(folder, {"model": resumed, "optimizer": its_optimizer})
    for each in ((model, optimizer, x), (resumed, its_optimizer, x)):
        train(*each)
    np.testing.assert_array_equal(np.asarray(resumed.kernel[...]), np.asarray(model.kernel[...]))


def training_goes_on_while_a_step_is_written():
    """Programs of the devices and exchanges of the save take turns in another order in each process."""
    folder = _root() / f"async{COUNT}"
    x = phalanx.device_put(W, _rows(MESHES[0]))
    turn = phalanx.jit(lambda x: x + x.sum() * 0, donate_argnums=0)
    savings = []
    for i in range(5):
        savings.append(checkpoint.save(folder, {"x": x}, step=i))
        f = phalanx.jit(lambda x, i=i: jnp.roll(x, i, 0) * 1.0)  # compared with that of the others while they write
        for _ in range(3):
            x = turn(f(x))
    x.block_until_ready()
    assert [s.result().name for s in savings] == list("01234")
    np.testing.assert_array_equal(checkpoint.load(folder, step=0)["x"], W)


def an_array_on_the_devices_of_one_process():
    for owner in (0, COUNT - 1):
        folder = _root() / f"only{owner}of{COUNT}"
        devices = [d for d in DEVICES if d.process_index == owner]
        sharding = NamedSharding(Mesh(np.array(devices), ("x",)), P("x"))
        x = phalanx.make_array_from_callback((8,), sharding, lambda index: W[0, :8][index], np.float32)
        path = checkpoint.save(folder, {"x": x}).result()
        assert sorted(p.name for p in path.glob("process_*")) == [f"process_{owner}"]
        np.testing.assert_array_equal(checkpoint.load(folder)["x"], W[0, :8])
        assert_same(checkpoint.load(folder, {"x": x}), {"x": x})


# Errors are raised in all processes, and the step is not committed


def _raises_everywhere(error, own, others, call, failing=0):
    with pytest.raises(error) as caught:
        call()
    assert (own if failing == OWN else others) in str(caught.value), str(caught.value)


def the_values_of_the_processes_are_the_same():
    folder = _root() / f"different{COUNT}"
    for leaf, text in ((OWN, "expected the same leaf in all processes, here a Python int"), (np.full(3, OWN), "")):
        with pytest.raises(CheckpointError, match=r"leaf 'rank': .*got .* in process ") as caught:
            checkpoint.save(folder, {"rank": leaf, "x": phalanx.device_put(W, _rows(MESHES[0]))}, wait=True)
        assert text in str(caught.value)
        assert str(caught.value).endswith(
            "  Fix: save what is the same in all processes, or make one array of the parts with "
            "make_array_from_process_local_data."
        )
    with pytest.raises(CheckpointError, match=r"tree, leaf '.': .*nothing"):
        checkpoint.save(folder, {"ab"[OWN % 2]: 1}, wait=True)
    assert checkpoint.steps(folder) == []
    assert OWN > 0 or list(folder.glob("*")) == [folder / ".lock"]


def the_arguments_of_the_processes_are_the_same():
    folder, x = _root() / f"arguments{COUNT}", phalanx.device_put(W, _rows(MESHES[0]))
    keep = checkpoint.Keep(every=2)
    for name, where, values, texts in [
        ("step", "step", (3, 4), ("3", "4")),
        ("keep", "keep", (None, keep), ("None", repr(keep))),
        ("metadata", "metadata['rank']", ({"a": 1, "rank": 0}, {"a": 1, "rank": [1]}), ("0", "[1]")),
        ("metadata", "metadata", (None, [1]), ("null", "[1]")),
    ]:
        with pytest.raises(CheckpointError) as caught:
            checkpoint.save(folder, {"x": x}, **{name: values[min(OWN, 1)]})
        mine, theirs = texts if OWN == 0 else texts[::-1]
        assert str(caught.value) == (
            f"checkpoint.save, {where}: expected the same in all processes, here {mine}, got {theirs} in process "
            f"{int(OWN == 0)}.\n  Fix: pass the same in all processes."
        )
    with pytest.raises((ValueError, TypeError), match="metadata: expected data that JSON can represent, got Object of"):
        checkpoint.save(folder, {"x": x}, metadata=len if OWN == COUNT - 1 else None)
    for step in (1, 2):
        checkpoint.save(folder, {"x": x}, step=step, wait=True)
    with pytest.raises(CheckpointError, match=r"^checkpoint\.delete, step: expected the same in all processes, here "):
        checkpoint.delete(folder, 1 + min(OWN, 1))
    assert checkpoint.steps(folder) == [1, 2]


def a_thread_that_cannot_start_in_one_process():
    folder, x = _root() / f"threads{COUNT}", phalanx.device_put(W, _rows(MESHES[0]))

    start = threading.Thread.start

    def refuse(thread):
        if thread.name.startswith("phalanx checkpoint "):
            raise RuntimeError("can't start new thread")
        start(thread)

    own = "checkpoint.save, step 0: expected to start a thread that writes the files, got RuntimeError: can't start"
    for failing in (0, COUNT - 1):
        others = f"checkpoint.save, step 0: expected process {failing} to do its part, got CheckpointSaveError: {own}"
        with pytest.MonkeyPatch.context() as patch:
            if OWN == failing:
                patch.setattr(threading.Thread, "start", refuse)
            save = lambda: checkpoint.save(folder, {"x": x}, wait=True)
            _raises_everywhere(CheckpointSaveError, own, others, save, failing)
    checkpoint.save(folder, {"x": x}, wait=True)
    assert checkpoint.steps(folder) == [0]


def a_step_is_saved_once():
    folder = _root() / f"once{COUNT}"
    checkpoint.save(folder, {"n": 1}, step=2, wait=True)
    own = "checkpoint.save, step: expected a step that is not saved yet, got 2"
    others = "checkpoint.save: expected process 0 to do its part, got ArgumentError: " + own
    _raises_everywhere(ValueError, own, others, lambda: checkpoint.save(folder, {"n": 1}, step=2))


def a_disk_that_is_full_in_one_process():
    folder, write = _root() / f"full{COUNT}", saving._write_arrays
    last = COUNT - 1

    def fail(*args):
        raise OSError(28, "No space left on device")

    x = phalanx.device_put(W, _rows(MESHES[0]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saving, "_write_arrays", fail if OWN == last else write)
        saved = checkpoint.save(folder, {"x": x}, step=1)
        own = f"checkpoint.save, step 1: expected to write to '{folder}', got OSError: [Errno 28]"
        others = f"checkpoint.save, step 1: expected process {last} to do its part, got CheckpointSaveError: {own}"
        _raises_everywhere(CheckpointSaveError, own, others, saved.result, failing=last)
        checkpoint.save(folder, {"x": x}, step=1)  # its error is raised by the next save
        _raises_everywhere(CheckpointSaveError, own, "", lambda: checkpoint.save(folder, {"x": x}), failing=last)
    checkpoint.save(folder, {"x": x}, step=2, wait=True)
    assert checkpoint.steps(folder) == [2] and not list(folder.glob("*.partial"))


def an_error_before_the_arrays_are_written():
    folder, last = _root() / f"early{COUNT}", COUNT - 1
    x = phalanx.device_put(W, _rows(MESHES[0]))

    def fail(*_):
        raise MemoryError("no memory for a copy on the host")

    for failing in (0, last):
        with pytest.MonkeyPatch.context() as patch:
            if OWN == failing:
                patch.setattr(saving, "_take_pieces", fail)
            text = "no memory for a copy on the host"
            others = f"checkpoint.save: expected process {failing} to do its part, got MemoryError: {text}"
            save = lambda: checkpoint.save(folder, {"x": x}, step=1)
            _raises_everywhere((MemoryError, CheckpointSaveError), text, others, save, failing)
    leaf = len if OWN == last else 1
    others = f"checkpoint.save: expected process {last} to do its part, got ArgumentTypeError: checkpoint.save, tree"
    save = lambda: checkpoint.save(folder, {"x": leaf}, step=1)
    _raises_everywhere((ValueError, TypeError), "leaf 'x': expected an array", others, save, last)
    assert OWN > 0 or not list(folder.glob("1*"))
    checkpoint.save(folder, {"x": x}, step=1, wait=True)


def an_old_step_that_cannot_be_deleted():
    folder = _root() / f"stays{COUNT}"
    checkpoint.save(folder, {"n": 1}, step=1, wait=True)

    def fail(*_):
        raise PermissionError(13, "Permission denied")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_folders.RunFolder, "remove", fail)
        saved = checkpoint.save(folder, {"n": 2}, step=2, keep=1)
        own = "checkpoint.save, step 2, keep: expected to delete"
        others = "got CheckpointSaveError: checkpoint.save, step 2, keep: expected to delete"
        _raises_everywhere(CheckpointSaveError, own, others, saved.result)
    assert checkpoint.load(folder) == {"n": 2}


def a_folder_that_the_machines_do_not_share():
    folder = _root() / f"machine{OWN}of{COUNT}"
    error = f"got '{folder}', in which this process does not see what the first one has made"
    others = "to do its part, got CheckpointSaveError: checkpoint.save, step 0: expected a folder that is the same"
    saved = checkpoint.save(folder, {"x": phalanx.device_put(W, _rows(MESHES[0]))})
    with pytest.raises(CheckpointSaveError) as caught:
        saved.result()
    assert (others if OWN == 0 else error) in str(caught.value)


def processes_that_save_and_load_different_steps():
    folder = _root() / f"steps{COUNT}"
    x = phalanx.device_put(W, _rows(MESHES[0]))
    for step in (1, 2):
        checkpoint.save(folder, {"x": x}, step=step, wait=True)
    with pytest.raises(CheckpointError, match=r"checkpoint.load, step: expected the same step in all processes"):
        checkpoint.load(folder, {"x": x}, step=1 + OWN % 2)
    with pytest.raises(
        ProgramMismatchError, match=r"expected process \d to call it, too, got process \d at checkpoint"
    ):
        if OWN == 0:
            checkpoint.save(folder, {"x": x})
        else:
            checkpoint.delete(folder, 1)
