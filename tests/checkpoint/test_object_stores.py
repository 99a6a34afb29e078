"""Checkpoints in object stores. The store of these tests is that of tensorstore in the memory of this process."""

from pathlib import Path

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import checkpoint
from phalanx.checkpoint import step_urls
from phalanx.errors import ArgumentError, CheckpointError, CheckpointNotFoundError, CheckpointSaveError
from phalanx.sharding import NamedSharding, PartitionSpec as P, make_mesh

pytest.importorskip("tensorstore")

from phalanx.checkpoint.array_store import open_store  # needs tensorstore


@pytest.fixture
def url(request):
    return f"memory://{request.node.name}"


def keys(url):
    return [key.decode() for key in open_store(f"{url}/").list().result()]


def test_a_sharded_tree_is_saved_and_loaded_on_another_mesh(url):
    x = np.arange(64, dtype="f4").reshape(8, 8)
    rows = NamedSharding(make_mesh((4, 2), ("a", "b")), P("a", "b"))
    saving = checkpoint.save(
        url, {"w": phalanx.device_put(x, rows), "name": "adam"}, step=3, metadata={"loss": 0.5}, wait=True
    )
    assert saving.path == f"{url}/3" and checkpoint.steps(url) == [3]
    columns = NamedSharding(make_mesh((8,), ("c",)), P(None, "c"))
    like = {"w": phalanx.ShapeDtypeStruct((8, 8), "float32", sharding=columns), "name": ""}
    for path in (url, f"{url}/", f"{url}/3"):
        found = checkpoint.load(path, like)
        np.testing.assert_array_equal(found["w"], x)
        assert found["w"].sharding == columns and found["name"] == "adam"
        assert checkpoint.metadata(path).user == {"loss": 0.5} and checkpoint.metadata(path).step == 3


def test_steps_are_kept_and_deleted(url):
    for step in range(12):
        checkpoint.save(url, {"n": jnp.full(2, step)}, step=step, keep=checkpoint.Keep(last=2, every=5))
    assert checkpoint.save(url, {"n": jnp.zeros(2)}, keep=4, wait=True).step == 12
    assert checkpoint.steps(url) == [5, 10, 11, 12]
    checkpoint.delete(url, 10)
    assert checkpoint.steps(url) == [5, 11, 12] and not [key for key in keys(url) if key.startswith("10/")]
    assert checkpoint.load(url, step=11)["n"].tolist() == [11, 11]
    with pytest.raises(CheckpointNotFoundError, match=rf"got '{url}' with the steps \[5, 11, 12\]\."):
        checkpoint.load(url, step=10)
    with pytest.raises(ArgumentError, match=rf"expected a step that is not saved yet, got 11, which '{url}' has\."):
        checkpoint.save(url, {"n": 1}, step=11)


def test_a_step_without_its_document_is_not_there_and_the_next_save_removes_it(url):
    checkpoint.save(url, {"x": jnp.ones(4)}, step=1, wait=True)
    checkpoint.save(url, {"x": jnp.ones(4)}, step=2, wait=True)
    open_store(f"{url}/2/").write("tree.json", None).result()  # as if the program had been killed before
    assert checkpoint.steps(url) == [1] and [key for key in keys(url) if key.startswith("2/")]
    checkpoint.save(url, {"x": jnp.zeros(4)}, step=3, wait=True)
    assert checkpoint.steps(url) == [1, 3] and not [key for key in keys(url) if key.startswith("2/")]


def test_a_step_that_another_program_saves_meanwhile_stays(url, monkeypatch):
    def merge(base, databases):
        open_store(f"{url}/0/").write("tree.json", b"of the other program").result()

    monkeypatch.setattr(checkpoint.saving, "merge_databases", merge)
    with pytest.raises(CheckpointSaveError, match="where another one has saved this step meanwhile"):
        checkpoint.save(url, {"x": jnp.ones(4)}, step=0, wait=True)
    assert open_store(f"{url}/0/").read("tree.json").result().value == b"of the other program"


def test_a_store_that_cannot_be_read_is_an_error(monkeypatch):
    class Unreachable:
        def refuse(self, *_):
            raise ValueError("UNAVAILABLE: the bucket does not answer")

        list = read = refuse

    monkeypatch.setattr(step_urls, "open_store", lambda _: Unreachable())
    for call in (checkpoint.steps, checkpoint.load, checkpoint.metadata):
        with pytest.raises(CheckpointError) as caught:
            call("gs://bucket/run")
        assert not isinstance(caught.value, CheckpointSaveError) and str(caught.value) == (
            f"checkpoint.{call.__name__}: expected to read 'gs://bucket/run', got ValueError: UNAVAILABLE: the bucket does not "
            "answer.\n  Fix: check the path, the permissions and the network."
        )


def test_a_url_of_a_local_file_is_a_path(tmp_path):
    url = f"file://{tmp_path}/a%20run"
    checkpoint.save(url, {"x": np.ones(2)}, step=1, wait=True)
    assert checkpoint.steps(tmp_path / "a run") == [1] and (tmp_path / "a run" / ".lock").exists()
    for path in (url, f"{url}/1", str(tmp_path / "a run").encode()):
        assert checkpoint.load(path)["x"].tolist() == [1, 1]


def test_a_url_that_path_has_shortened_is_refused():
    with pytest.raises(ArgumentError) as caught:
        checkpoint.save(Path("gs://bucket/run"), {"x": 1})
    assert str(caught.value) == (
        "checkpoint.save, path: expected a local path, or a URL with two slashes, got PosixPath('gs:/bucket/run').\n"
        "  Fix: pass the URL as a str, since Path removes a slash, or begin a relative path with './'."
    )


def test_damaged_elements_name_the_leaf(url):
    checkpoint.save(url, {"x": jnp.arange(4.0)}, step=0, wait=True)
    store = open_store(f"{url}/")
    for key in keys(url):
        if "/d/" in key:
            value = store.read(key).result().value
            store.write(key, value[:-1] + bytes([value[-1] ^ 1])).result()
    with pytest.raises(
        CheckpointError, match=rf"^checkpoint\.load, leaf 'x' of '{url}/0': expected elements that match"
    ):
        checkpoint.load(url)
