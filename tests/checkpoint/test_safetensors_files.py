"""Files of safetensors: what is written is read, by the package `safetensors`, too; damaged files are errors."""

import json
import os
import threading
import time

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import checkpoint, nnx, random
from phalanx.checkpoint.safetensors_files import _DTYPES
from phalanx.errors import ArgumentError, ArgumentTypeError, CheckpointError
from phalanx.sharding import NamedSharding, PartitionSpec as P, make_mesh


def test_a_model_is_written_and_loaded_in_part_onto_a_mesh(tmp_path):
    model = nnx.List([nnx.Linear(8, 4, rngs=nnx.Rngs(0)), nnx.Linear(4, 2, rngs=nnx.Rngs(1))])
    file = checkpoint.save_safetensors(tmp_path / "model.safetensors", model, metadata={"format": "pt"})
    other = nnx.List([nnx.Linear(8, 4, rngs=nnx.Rngs(2)), nnx.Linear(4, 2, rngs=nnx.Rngs(3))])
    checkpoint.load(file, other)
    np.testing.assert_array_equal(other[1].kernel.value, model[1].kernel.value)
    assert checkpoint.metadata(file).user == {"format": "pt"} and {p.name for p in tmp_path.iterdir()} == {file.name}
    rows = NamedSharding(make_mesh((8,), ("x",)), P("x"))
    part = checkpoint.load(file, {"w": phalanx.ShapeDtypeStruct((8, 4), jnp.bfloat16, sharding=rows)}, partial=True,
                           rename={"w": "0/kernel"})  # fmt: skip
    np.testing.assert_array_equal(part["w"], model[0].kernel.value.astype(jnp.bfloat16))


@pytest.mark.parametrize("name", sorted(_DTYPES))
def test_every_dtype_has_equal_bits(name, tmp_path):
    tree = {
        "a": np.random.default_rng(0).integers(0, 2, (3, 5)).astype(_DTYPES[name]),
        "empty": np.zeros((0, 2), np.int8),
    }
    file = checkpoint.save_safetensors(tmp_path / "x.safetensors", tree)
    loaded = checkpoint.load(file)
    assert loaded["a"].dtype == _DTYPES[name] and loaded["a"].tobytes() == tree["a"].tobytes()
    assert loaded["empty"].shape == (0, 2)


def test_the_package_safetensors_reads_and_writes_the_same_files(tmp_path):
    numpy = pytest.importorskip("safetensors.numpy")
    arrays = {"a.b": np.arange(6, dtype=np.int16).reshape(2, 3), "c": np.float32([1.5]), "a.d": np.array([True])}
    numpy.save_file(arrays, tmp_path / "theirs.safetensors", metadata={"k": "v"})
    tree = checkpoint.load(tmp_path / "theirs.safetensors")
    np.testing.assert_array_equal(tree["a"]["b"], arrays["a.b"])
    ours = checkpoint.save_safetensors(tmp_path / "ours.safetensors", tree)
    back = numpy.load_file(ours)
    assert back.keys() == arrays.keys() and all(np.array_equal(back[name], arrays[name]) for name in arrays)


def test_leaves_that_the_format_does_not_have_are_named(tmp_path):
    for leaf, got in [(random.key(0), "key<fry>[]"), ("text", "a Python str"), (np.zeros(2, jnp.int4), "int4[2]")]:
        with pytest.raises(ArgumentTypeError) as caught:
            checkpoint.save_safetensors(tmp_path / "x.safetensors", {"a": [leaf]})
        assert str(caught.value) == (
            "checkpoint.save_safetensors, tree, leaf 'a/0': expected an array or a number of a dtype that safetensors has, "
            f"got {got}.\n  Fix: store random keys as random.key_data(key), and leave text out or pass it as metadata."
        )
    with pytest.raises(ArgumentError, match=r"expected arrays with different names, got two with the name 'a\.b'"):
        checkpoint.save_safetensors(tmp_path / "x.safetensors", {"a": {"b": 1}, "a.b": 2})
    with pytest.raises(ArgumentError, match=r"expected a path with the suffix \.safetensors, got 'model'"):
        checkpoint.save_safetensors("model", {})
    with pytest.raises(ArgumentTypeError, match="expected a dict from str to str"):
        checkpoint.save_safetensors(tmp_path / "x.safetensors", {}, metadata={"step": 3})
    assert list(tmp_path.iterdir()) == []


def test_names_with_dots_go_back_into_their_tree(tmp_path):
    tree = {"x": np.ones(1), "x.y": np.zeros(2), "m": {"k.l": np.ones(3), "k": [np.zeros(4)]}, "a/b": np.ones(5)}
    file = checkpoint.save_safetensors(tmp_path / "x.safetensors", tree)
    loaded = checkpoint.load(file, phalanx.tree.map(np.empty_like, tree))
    assert phalanx.tree.all(phalanx.tree.map(np.array_equal, loaded, tree))
    plain = checkpoint.load(file)
    assert plain.keys() == {"x", "x.y", "m", "a/b"} and plain["m"]["k"]["l"].shape == (3,)
    assert plain["x.y"].shape == (2,) and plain["x"].shape == (1,) and plain["m"]["k"]["0"].shape == (4,)
    alone = checkpoint.save_safetensors(tmp_path / "alone.safetensors", np.ones(3))
    assert checkpoint.load(alone).tolist() == [1, 1, 1]


def test_a_file_of_another_library_with_an_array_above_others_is_read(tmp_path):
    numpy = pytest.importorskip("safetensors.numpy")
    arrays = {"x.y.z": np.ones(2, np.int8), "x": np.zeros(1, np.int8), "x.y": np.ones(3, np.int8), "w.v": np.zeros(4)}
    numpy.save_file(arrays, tmp_path / "theirs.safetensors")
    loaded = checkpoint.load(tmp_path / "theirs.safetensors")
    assert loaded.keys() == {"x", "x.y", "x.y.z", "w"} and loaded["w"]["v"].shape == (4,)
    assert all(np.array_equal(loaded[name], arrays[name]) for name in ("x", "x.y", "x.y.z"))


def test_the_name_that_the_format_reserves_is_refused(tmp_path):
    with pytest.raises(ArgumentError) as caught:
        checkpoint.save_safetensors(tmp_path / "x.safetensors", {"__metadata__": np.ones(1)})
    assert str(caught.value) == (
        "checkpoint.save_safetensors, tree: expected other names, got '__metadata__', which the format reserves.\n"
        "  Fix: rename the key."
    )


def test_damaged_files_are_errors(tmp_path):
    file = checkpoint.save_safetensors(tmp_path / "x.safetensors", {"a": np.arange(4.0)})
    data = file.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    outside = json.dumps(header | {"b": {"dtype": "F64", "shape": [4], "data_offsets": [8, 40]}}).encode()
    without_sizes = [
        json.dumps({"a": {"dtype": "F64", "shape": shape, "data_offsets": offsets}}).encode().ljust(80) + bytes(32)
        for shape, offsets in [([2.0], [0, 16]), ([-1, -4], [0, 32]), ([4], [0.0, 32.0]), ([True], [0, 8])]
    ]
    for bad in [
        *((80).to_bytes(8, "little") + text for text in without_sizes),
        b"",
        data[:5],
        data[:-1],
        b"\xff" * 16,
        data[:8] + b"[" * length,
        len(outside).to_bytes(8, "little") + outside,
    ]:
        file.write_bytes(bad)
        with pytest.raises(CheckpointError, match=r"x\.safetensors': expected a file of safetensors, got "):
            checkpoint.load(file)


def test_a_save_removes_what_killed_processes_left_and_nothing_else(tmp_path):
    file, others = tmp_path / "a.safetensors", (".a.safetensors.1.partial", ".b.safetensors.1.partial", "a.partial")
    for name in others:
        (tmp_path / name).write_bytes(b"")
        os.utime(tmp_path / name, (0, time.time() - 7200))
    (tmp_path / ".a.safetensors.2.partial").write_bytes(b"")  # which another process writes now
    checkpoint.save_safetensors(file, {"x": np.arange(3)})
    assert sorted(os.listdir(tmp_path)) == sorted([".a.safetensors.2.partial", "a.safetensors", *others[1:]])


def test_threads_that_save_to_one_file_leave_one_of_their_trees(tmp_path):
    file = tmp_path / "a.safetensors"
    save = lambda i: [checkpoint.save_safetensors(file, {"x": np.full(200_000, i)}) for _ in range(5)]
    threads = [threading.Thread(target=save, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.ptp(checkpoint.load(file)["x"]) == 0
    assert os.listdir(tmp_path) == ["a.safetensors"]
