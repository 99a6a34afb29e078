"""Checkpoints beside Orbax: the pause of a save, the time until it is committed, loading, and the peak of host memory.

The arrays are sharded over a 4x2 mesh. Sizes are megabytes in all. Two rows have `numpy.save` as the peer: what the
disk allows to a program that waits, and that reads everything to one host. Their floor is what tensorstore takes, which
writes and reads the files of both libraries.
"""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile
import weakref
from pathlib import Path

import numpy as np

from benchmarks.harness import Row, Script, Timed, bench
from benchmarks.per_device import mesh_of

SIZES = (256,)
ARRAYS = 8
PAUSE = Row("pause of an asynchronous save", at_most=1.1)
COMMITTED = Row("save until it is committed", at_most=1.1)
LOAD = Row("load to the same mesh, and to another", none_above=1.1)
MEMORY = Row("peak memory of a process that saves and loads", at_most=1.1)
REPOSITORY = Path(__file__).parents[1]


class Phalanx:
    """Saves and loads with `phalanx.checkpoint`."""

    def __init__(self, xp):
        self._checkpoint = importlib.import_module(f"{xp.__name__}.checkpoint")
        self._saving = None

    def save(self, path, tree):
        """Start a save; returns when the program may go on."""
        self._saving = self._checkpoint.save(path, tree)

    def wait(self):
        """Wait until the save, if any, is committed."""
        if self._saving is not None:
            self._saving.result()

    def load(self, path, like):
        """Load a tree with the shardings of `like`."""
        return self._checkpoint.load(path, like)


class Orbax:
    """Saves and loads with Orbax's checkpointer for pytrees."""

    def __init__(self):
        self._checkpointer = importlib.import_module("orbax.checkpoint").StandardCheckpointer()

    def save(self, path, tree):
        """Start a save; returns when the program may go on."""
        self._checkpointer.save(Path(path, "0"), tree)

    def wait(self):
        """Wait until the save is committed."""
        self._checkpointer.wait_until_finished()

    def load(self, path, like):
        """Load a tree with the shardings of `like`."""
        return self._checkpointer.restore(Path(path, "0"), like)


class Tensorstore:
    """Saves and loads with tensorstore alone: one database, with a zarr array for each array, in chunks of a shard.

    Chunks end with their CRC-32C, as ours do and Orbax's and NumPy's do not: it takes a quarter of a save.
    """

    def __init__(self):
        self._tensorstore = importlib.import_module("tensorstore")

    def _open(self, path, name, **options):
        store = {"driver": "ocdbt", "base": f"file://{path}/", "path": f"{name}/"}
        return self._tensorstore.open({"driver": "zarr3", "kvstore": store}, **options).result()

    def save(self, path, tree):
        """Write all arrays in one transaction."""
        transaction = self._tensorstore.Transaction(atomic=True)
        writes = []
        for name, x in tree.items():
            chunk = self._tensorstore.ChunkLayout(chunk_shape=x.sharding.shard_shape(x.shape))
            codec = self._tensorstore.CodecSpec({"driver": "zarr3", "codecs": [{"name": "bytes"}, {"name": "crc32c"}]})
            options = {"create": True, "dtype": x.dtype, "shape": x.shape, "chunk_layout": chunk, "codec": codec}
            array = self._open(path, name, transaction=transaction, **options)
            for shard in x.addressable_shards:
                elements = np.asarray(shard.data)
                writes.append(array[shard.index].write(elements, can_reference_source_data_indefinitely=True))
        for write in writes:
            write.copy.result()
        transaction.commit_sync()

    def wait(self):
        """Nothing."""

    def load(self, path, like):
        """Read all arrays to the host; they are no arrays of the engine, so there is nothing to return."""
        for read in [self._open(path, name).read() for name in like]:
            read.result()


class NumpyFiles:
    """Saves and loads with one `numpy.save` for each array, as a program does that waits until the disk has it."""

    def __init__(self, xp):
        self._xp = xp

    def save(self, path, tree):
        """Write all arrays; nothing is left to wait for."""
        for name, x in tree.items():
            with Path(path, f"{name}.npy").open("wb") as file:
                np.save(file, np.asarray(x))
                file.flush()
                os.fsync(file.fileno())

    def wait(self):
        """Nothing."""

    def load(self, path, like):
        """Read all arrays, and scatter them to the shardings of `like`."""
        read = {name: np.load(Path(path, f"{name}.npy")) for name in like}
        return self._xp.device_put(read, {name: x.sharding for name, x in like.items()})


def orbax_or_ours(xp):
    """The library of each system."""
    return Orbax() if xp.__name__ == "jax" else Phalanx(xp)


def numpy_or_ours(xp):
    """Our library, and `numpy.save` for the peer."""
    return NumpyFiles(xp) if xp.__name__ == "jax" else Phalanx(xp)


def sharding(xp, *dims):
    """A sharding over the mesh of eight devices."""
    return xp.sharding.NamedSharding(mesh_of(xp), xp.sharding.PartitionSpec(*dims))


def arrays(xp, megabytes):
    """Equal matrices of float32 that have the given size together."""
    rows = megabytes * 2**20 // (4 * 1024 * ARRAYS)
    numbers = np.random.default_rng(0).standard_normal((rows, 1024), np.float32)
    return {f"w{i}": xp.device_put(numbers, sharding(xp, "data", "model")) for i in range(ARRAYS)}


class Folders:
    """New folders, each of which replaces the one before when nothing is written to it any more."""

    def __init__(self, store):
        self._store, self._path = store, Path(tempfile.mkdtemp(prefix="checkpoints"))
        weakref.finalize(self, remove_folder, store, self._path)

    def make(self):
        """Make a folder."""
        remove_folder(self._store, self._path)
        self._path.mkdir()
        return self._path


def remove_folder(store, folder):
    """Remove a folder when its save is committed."""
    store.wait()
    shutil.rmtree(folder)


def timed_save(xp, megabytes, library, until_committed):
    """Save again and again; the save before is waited for off the clock."""
    store, tree = library(xp), arrays(xp, megabytes)

    def run(folder):
        store.save(folder, tree)
        if until_committed:
            store.wait()

    return Timed(run, Folders(store).make)


def timed_load(xp, megabytes, library, dims):
    """Load again and again to a sharding."""
    store, tree = library(xp), arrays(xp, megabytes)
    folders = Folders(store)
    path = folders.make()
    store.save(path, tree)
    store.wait()
    like = {name: xp.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding(xp, *dims)) for name, x in tree.items()}
    return Timed(lambda folders: store.load(path, like), lambda: folders)  # `folders` keeps the folder


@bench(unit="ms", row=PAUSE, sizes=SIZES)
def pause(xp, megabytes):
    """Until the training loop goes on."""
    return timed_save(xp, megabytes, orbax_or_ours, until_committed=False)


@bench(unit="ms", row=COMMITTED, sizes=SIZES)
def save_until_committed(xp, megabytes):
    """Until a crash loses nothing any more."""
    return timed_save(xp, megabytes, orbax_or_ours, until_committed=True)


@bench(unit="ms", row=LOAD, sizes=SIZES)
def load_same_mesh(xp, megabytes):
    """With the sharding of the save."""
    return timed_load(xp, megabytes, orbax_or_ours, ("data", "model"))


@bench(unit="ms", row=LOAD, sizes=SIZES)
def load_other_mesh(xp, megabytes):
    """With a sharding whose shards cross those of the save."""
    return timed_load(xp, megabytes, orbax_or_ours, ("model", "data"))


@bench(
    unit="ms",
    sizes=SIZES,
    floor=lambda xp, megabytes: timed_save(xp, megabytes, lambda _: Tensorstore(), until_committed=True),
)
def save_beside_numpy(xp, megabytes):
    """A committed save; both force their files to the disk."""
    return timed_save(xp, megabytes, numpy_or_ours, until_committed=True)


@bench(
    unit="ms",
    sizes=SIZES,
    floor=lambda xp, megabytes: timed_load(xp, megabytes, lambda _: Tensorstore(), ("data", "model")),
)
def load_beside_numpy(xp, megabytes):
    """A sharded load."""
    return timed_load(xp, megabytes, numpy_or_ours, ("data", "model"))


@bench(unit="MB", row=MEMORY, sizes=SIZES)
def peak_memory(xp, megabytes):
    """A process that saves its arrays, drops them and loads them again."""
    return Script(
        f"import sys; sys.path.insert(0, {str(REPOSITORY)!r})\n"
        f"import {xp.__name__} as xp\n"
        "from benchmarks import checkpoints as c\n"
        f"store, tree = c.orbax_or_ours(xp), c.arrays(xp, {megabytes})\n"
        "folders = c.Folders(store)\n"
        "folder = folders.make()\n"
        "store.save(folder, tree)\n"
        "store.wait()\n"
        "like = {k: xp.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding) for k, x in tree.items()}\n"
        "del tree\n"
        "xp.block_until_ready(store.load(folder, like))\n",
        memory=True,
    )
