"""Trees, leaves and arguments that cannot be saved or loaded: each error names the leaf."""

import functools
import inspect
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import checkpoint, random
from phalanx.checkpoint import saving
from phalanx.errors import (
    ArgumentError,
    ArgumentTypeError,
    CheckpointError,
    CheckpointNotFoundError,
    ConcretizationTypeError,
    DeletedArrayError,
    ShardingError,
)
from phalanx.sharding import NamedSharding, PartitionSpec as P, make_mesh

pytest.importorskip("tensorstore")


@pytest.mark.parametrize(
    "leaf, got",
    [
        (len, "builtin_function_or_method <built-in function len>"),
        (np.array(["a"]), "dtype('<U1') array"),
        (np.ma.array([1], mask=[True]), f"MaskedArray {np.ma.array([1], mask=[True])!r:.80}"),
        (phalanx.ShapeDtypeStruct((2,), "int8"), "ShapeDtypeStruct ShapeDtypeStruct(shape=(2,), dtype=int8)"),
    ],
)
def test_a_leaf_that_is_no_data_is_named(leaf, got, tmp_path):
    with pytest.raises(ArgumentTypeError) as caught:
        checkpoint.save(tmp_path, {"a": [1, leaf]})
    assert str(caught.value) == (
        "checkpoint.save, tree, leaf 'a/1': expected an array, a random key, a Python number, a string or bytes, "
        f"got {got}.\n  Fix: leave it out of the tree, or convert it to one of these."
    )
    assert checkpoint.steps(tmp_path) == []


def test_a_traced_value_cannot_be_saved(tmp_path):
    with pytest.raises(
        ConcretizationTypeError, match=r"checkpoint\.save, tree, leaf 'x': expected a value that is known"
    ):
        phalanx.jit(lambda x: checkpoint.save(tmp_path, {"x": x}))(1.0)


def test_two_leaves_with_one_path_are_an_error(tmp_path):
    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

    phalanx.tree_util.register_pytree_with_keys(
        Pair,
        lambda pair: (((phalanx.tree_util.DictKey(1), pair.a), (phalanx.tree_util.DictKey("1"), pair.b)), None),
        lambda _, children: Pair(*children),
    )
    with pytest.raises(ArgumentError) as caught:
        checkpoint.save(tmp_path, Pair(1, 2))
    assert str(caught.value) == (
        "checkpoint.save, tree: expected leaves with different paths, got two leaves with the path '1'.\n"
        "  Fix: rename one of the keys; 1 and '1' are the same key in a checkpoint."
    )


@pytest.fixture
def saved(tmp_path):
    tree = {"w": np.ones((2, 3), np.float32), "n": np.array([1, 300], np.int32), "k": random.key(0), "s": "adam"}
    checkpoint.save(tmp_path, tree, wait=True)
    return tmp_path, tree


@pytest.mark.parametrize(
    "name, like, text",
    [
        ("w", np.ones((3, 2)), "expected shape (3, 2), that of like, got float32[2,3] in the checkpoint."),
        ("w", np.ones((2, 3), int), "expected elements that can become int64, the dtype of like, got float32[2,3] in"),
        ("n", np.ones(2, np.int8), "expected integers from -128 to 127, which int8 represents, got 300 of int32 in"),
        ("k", np.array(1), "expected elements that can become int64, the dtype of like, got key<fry>[] in"),
        (
            "k",
            random.key(0, impl="rbg"),
            "expected elements that can become key<rbg>, the dtype of like, got key<fry>[]",
        ),
        ("s", 1.0, "expected a Python float, as in like, got a Python str in the checkpoint."),
        ("s", np.array(1.0), "expected an array, as in like: float64, got a Python str in the checkpoint."),
        ("w", 1.0, "expected a Python float, as in like, got float32[2,3] in the checkpoint."),
        ("w", len, "expected an array, a ShapeDtypeStruct or a Python value in like, got builtin_function_or_method"),
    ],
)
def test_a_leaf_of_another_type_is_named(saved, name, like, text):
    folder, tree = saved
    with pytest.raises((CheckpointError, ArgumentTypeError)) as caught:
        checkpoint.load(folder, tree | {name: like})
    assert str(caught.value).startswith(f"checkpoint.load, leaf {name!r}: {text}")


def test_a_tree_of_other_leaves_is_an_error_that_lists_them(saved):
    folder, tree = saved
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(folder, {"w": tree["w"], "m": 1, "v": 2})
    assert str(caught.value) == (
        f"checkpoint.load, like, leaf 'm': expected a leaf that the checkpoint '{folder / '0'}' has, which has 'k', 'n', "
        "'s', got 2 that it does not have: 'm', 'v'.\n  Fix: name its path in the checkpoint with rename={'path in like': "
        "'path in the checkpoint'}, or pass partial=True to keep the values of like."
    )
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(folder, {"w": tree["w"]})
    assert str(caught.value) == (
        f"checkpoint.load, like: expected a tree with all leaves of the checkpoint '{folder / '0'}', got a tree without "
        "'k', 'n', 's'.\n  Fix: pass partial=True to load only the leaves of like."
    )
    with pytest.raises(CheckpointError, match="expected a leaf that the checkpoint has, or a value to keep"):
        checkpoint.load(folder, {"w": tree["w"], "m": phalanx.ShapeDtypeStruct((2,), "int8")}, partial=True)


def test_a_sharding_that_does_not_fit_names_the_leaf(saved):
    folder, _ = saved
    with pytest.raises(ValueError, match=r"^checkpoint\.load, leaf 'w': expected a spec of at most 2 entries"):
        checkpoint.load(folder, shardings={"w": NamedSharding(make_mesh((8,), ("x",)), P(None, None, "x"))})


CIRCULAR: list = []
CIRCULAR.append(CIRCULAR)


@pytest.mark.parametrize(
    "metadata, path, got",
    [
        ({"loss": jnp.ones(2)}, "['loss']", "Object of type Array is not JSON serializable"),
        ({"a": [1, {"b": np.float32(2)}]}, "['a'][1]['b']", "Object of type float32 is not JSON serializable"),
        ({"a": {1: 2}}, "['a']", "the key 1, which is no str"),
        ({"n": 10**5000}, "['n']", "Exceeds the limit (4300 digits) for integer string conversion"),
        (CIRCULAR, "", "data that contains itself, or is nested too deeply"),
    ],
)
def test_metadata_is_json(metadata, path, got, tmp_path):
    with pytest.raises(ArgumentTypeError) as caught:
        checkpoint.save(tmp_path, {"n": 1}, metadata=metadata)
    assert str(caught.value).startswith(
        f"checkpoint.save, metadata{path}: expected data that JSON can represent, got {got}"
    )
    assert str(caught.value).endswith(".\n  Fix: convert arrays by float(x), and keys by str(key).")


def test_metadata_is_copied(tmp_path, monkeypatch):
    go, write, metadata = threading.Event(), saving._write_arrays, {"losses": [1.0], "pair": (1, None)}
    monkeypatch.setattr(saving, "_write_arrays", lambda *args: (go.wait(), write(*args)))
    saved = checkpoint.save(tmp_path, {"n": np.ones(1)}, metadata=metadata)
    metadata["losses"].append(jnp.ones(2))
    metadata["more"] = len
    go.set()
    saved.result()
    assert checkpoint.metadata(tmp_path).user == {"losses": [1.0], "pair": [1, None]}


def test_a_key_that_is_no_unicode_text_is_named(tmp_path):
    with pytest.raises(ArgumentError) as caught:
        checkpoint.save(tmp_path, {"a": {"\udcff": 1}})
    assert str(caught.value) == (
        "checkpoint.save, tree, leaf 'a/\\udcff': expected keys that can be written as UTF-8, got a key with half of a "
        "surrogate pair.\n  Fix: rename the key; os.fsencode(key).decode('utf-8', 'replace') is a text."
    )
    checkpoint.save(tmp_path, {"\U0001f600": "\udcff"}, wait=True)
    assert checkpoint.load(tmp_path) == {"\U0001f600": "\udcff"}


@pytest.mark.parametrize("step, error", [(-1, ArgumentError), (1.5, ArgumentTypeError), (True, ArgumentTypeError)])
def test_a_step_is_a_number(step, error, tmp_path):
    with pytest.raises(error, match=r"^checkpoint\.save, step: expected "):
        checkpoint.save(tmp_path, {"n": 1}, step=step)


@pytest.mark.parametrize("name", ["load", "metadata", "delete"])
@pytest.mark.parametrize("step", [True, 1.0, "last", None])
def test_a_step_to_find_is_an_integer(name, step, tmp_path):
    checkpoint.save(tmp_path, {"n": 1}, step=1, wait=True)
    with pytest.raises(ArgumentTypeError) as caught:
        getattr(checkpoint, name)(tmp_path, step=step)
    assert str(caught.value) == (
        f"checkpoint.{name}, step: expected an int, got {step!r}.\n  Fix: pass the number of the training step as an int."
    )
    assert checkpoint.load(tmp_path, step=np.int32(1)) == {"n": 1}


def test_the_folder_of_one_step_has_no_other(tmp_path):
    for step in (1, 2):
        checkpoint.save(tmp_path, {"n": step}, step=step, wait=True)
    assert checkpoint.load(tmp_path / "1", step=1) == checkpoint.load(tmp_path / "1") == {"n": 1}
    (tmp_path / "1").rename(tmp_path / "best")
    file = checkpoint.save_safetensors(tmp_path / "x.safetensors", {"n": 1})
    for name, path in (("2", tmp_path / "2"), ("best", tmp_path / "best"), (file.name, file)):
        with pytest.raises(CheckpointNotFoundError) as caught:
            checkpoint.load(tmp_path / name, step=1)
        assert str(caught.value) == (
            f"checkpoint.load, step: expected no step, or the folder of a run as path, got step 1 for the checkpoint '{path}'.\n"
            "  Fix: leave step out, or pass the folder above as path."
        )


@pytest.mark.parametrize("name", [checkpoint.load, checkpoint.metadata, checkpoint.steps])
def test_a_path_that_the_system_refuses_is_named(name, tmp_path):
    path = str(tmp_path / ("n" * 300))
    with pytest.raises(CheckpointError) as caught:
        name(path)
    assert f"expected to read {path!r}, got OSError: [Errno 36] File name too long" in str(caught.value)


def test_a_step_is_an_integer_of_any_type(tmp_path):
    saving = checkpoint.save(tmp_path, {"n": 1}, step=jnp.int32(3), wait=True)
    assert saving.step == 3 and type(saving.step) is int
    checkpoint.delete(tmp_path, np.int64(3))
    assert checkpoint.steps(tmp_path) == []


def test_an_array_that_was_donated_is_named(tmp_path):
    x = jnp.ones(3)
    x.delete()
    with pytest.raises(DeletedArrayError) as caught:
        checkpoint.save(tmp_path, {"a": {"x": x}})
    assert str(caught.value) == (
        "checkpoint.save, tree, leaf 'a/x': expected an array with live buffers, got f32[3], deleted or donated.\n"
        "  Fix: use the result of the call to which it was donated, or remove the argument from donate_argnums."
    )


def test_an_unreduced_array_is_named(tmp_path):
    mesh = make_mesh((2,), ("x",), devices=phalanx.devices()[:2])
    rows = phalanx.device_put(jnp.arange(4.0), NamedSharding(mesh, P("x")))
    total = jnp.einsum("i,i->", rows, rows, out_sharding=NamedSharding(mesh, P(unreduced={"x"})))
    with pytest.raises(ShardingError) as caught:
        checkpoint.save(tmp_path, {"total": total})
    assert str(caught.value) == (
        f"checkpoint.save, tree, leaf 'total': expected an array that is not unreduced, got f32[]{{U:x}} with {total.sharding}.\n"
        "  Fix: reshard it to a spec without unreduced axes: phalanx.reshard(x, P())."
    )


@pytest.mark.parametrize("name", ["save", "load", "steps", "metadata", "delete"])
def test_a_url_of_an_unknown_kind_is_refused(name):
    arguments = {"save": [{"n": 1}], "delete": [3]}.get(name, [])
    with pytest.raises(ArgumentError) as caught:
        getattr(checkpoint, name)("ftp://host/run", *arguments)
    first, fix = str(caught.value).split("\n")
    assert first.startswith(
        f"checkpoint.{name}, path: expected a local path, or a URL of a store that tensorstore knows, such as "
        "gs://bucket/run, got 'ftp://host/run' ("
    )
    assert fix == "  Fix: check the URL, or mount the store as a folder and pass its path."


def test_without_tensorstore_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorstore", None)
    with pytest.raises(ImportError) as caught:
        checkpoint.save(tmp_path, {"n": 1})
    assert str(caught.value) == (
        "checkpoint.save: expected the package tensorstore, which reads and writes the files, got an installation without "
        "it.\n  Fix: pip install 'phalanx[checkpoint]'."
    )


def test_the_call_leaves_the_import_of_tensorstore_to_the_thread_that_writes(tmp_path):
    """The import takes a third of a second, in which a training step would wait."""
    program = """
import sys
import numpy as np
from phalanx import checkpoint
from phalanx.checkpoint import saving
write = saving._write_step
def check_and_write(*args):
    print("tensorstore" in sys.modules)
    write(*args)
    print("tensorstore" in sys.modules)
saving._write_step = check_and_write
checkpoint.save(sys.argv[1], {"n": np.ones(1)})
"""
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("False\nTrue\n", "")
    assert checkpoint.steps(tmp_path) == [0]


def test_the_package_is_a_function_for_code_that_tells_functions_from_modules():
    assert not inspect.ismodule(phalanx.checkpoint)
    assert next(iter(inspect.signature(phalanx.checkpoint).parameters)) == "fun"
    f = functools.partial(phalanx.checkpoint, policy=phalanx.checkpoint_policies.everything_saveable)(jnp.sin)
    assert float(phalanx.grad(f)(0.0)) == 1.0
    assert phalanx.checkpoint.save is saving.save
    assert "save" in dir(phalanx.checkpoint)
    assert repr(phalanx.checkpoint).startswith("<package 'phalanx.checkpoint' from")
