"""The examples on digits, on images that are easy to tell apart: they learn, over a mesh as on one device, and draw."""

import importlib
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from tests.meshes import auto_mesh

import phalanx
from phalanx import checkpoint, nnx, optim
from phalanx.sharding import NamedSharding, PartitionSpec as P

pytestmark = pytest.mark.lengthy

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def example():
    """Import an example by its name, as running it does."""
    sys.path.insert(0, str(EXAMPLES))
    yield importlib.import_module
    sys.path.remove(str(EXAMPLES))


@pytest.fixture(scope="module")
def data(example):
    rng = np.random.default_rng(0)
    kinds = rng.random((10, 8, 8, 1)) > 0.5

    def draw(n):
        labels = rng.integers(10, size=n).astype(np.int32)
        return np.clip(kinds[labels] + rng.normal(0, 0.1, (n, 8, 8, 1)), 0, 1).astype(np.float32), labels

    return example("digits").Digits(*draw(192), *draw(50))


@pytest.mark.parametrize(
    "name", ["digits_cnn", *(pytest.param(name, marks=pytest.mark.slow) for name in ("digits_vit", "digits_lstm"))]
)
def test_an_example_trains_and_draws(example, data, name, tmp_path, capsys, monkeypatch):
    if name == "digits_vit":
        monkeypatch.setattr(example(name), "LAYERS", 1)  # Compiling more of them proves no more.
    accuracy = example(name).main(["--epochs", "2", "--rate", "0.002", "--out", str(tmp_path)], data=data)
    assert 0 <= accuracy <= 1
    out = capsys.readouterr().out
    assert "step    6/6" in out and f"{accuracy:.1%} of 50 test images" in out
    picture = ElementTree.parse(tmp_path / f"{name}.svg").getroot()
    texts = [t.text for t in picture.iter("{http://www.w3.org/2000/svg}text")]
    counts = [int(t) for t in texts[-60:] if t.isdecimal()]
    assert f"{accuracy:.1%} of the test" in texts[0] and "loss over 6 steps" in texts and sum(counts) >= 50


def test_training_on_many_devices_equals_training_on_one(example, data):
    digits, losses = example("digits"), []
    for devices in (phalanx.devices()[:1], phalanx.devices()):
        sharding = NamedSharding(phalanx.sharding.Mesh(np.array(devices), ("data",)), P("data"))
        rngs = nnx.Rngs(0)
        model = nnx.Sequential(
            lambda x: x.reshape(-1, 64), nnx.BatchNorm(64, rngs=rngs), nnx.Dropout(0.1, rngs=rngs),
            nnx.Linear(64, 10, rngs=rngs),
        )  # fmt: skip
        losses.append(digits.train(model, data, sharding=sharding, epochs=10, rate=1e-2))
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3, atol=1e-3)
    assert losses[0][-1] < 0.7 * losses[0][0]
    confusion = digits.evaluate(model, data)
    assert confusion.sum() == 50 and not model.layers[2].deterministic


def test_a_run_that_is_resumed_on_another_mesh_goes_on_as_if_it_had_not_stopped(example, data, tmp_path, monkeypatch):
    digits = example("digits")

    def train(devices, **options):
        model = nnx.Sequential(
            lambda x: x.reshape(-1, 64), nnx.Dropout(0.1, rngs=nnx.Rngs(0)), nnx.Linear(64, 10, rngs=nnx.Rngs(1))
        )
        sharding = NamedSharding(phalanx.sharding.Mesh(np.array(devices), ("data",)), P("data"))
        return digits.train(model, data, sharding=sharding, epochs=3, **options)

    real, calls = digits.train_step, []

    def stop(*args):
        calls.append(args)
        if len(calls) > 4:
            raise KeyboardInterrupt
        return real(*args)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(digits, "train_step", stop)
        train(phalanx.devices()[:1], folder=tmp_path)
    rest = train(phalanx.devices(), folder=tmp_path, resume=True)
    assert len(rest) == 6
    np.testing.assert_allclose(rest, train(phalanx.devices()[:1])[3:], rtol=1e-3, atol=1e-3)


def test_without_a_checkpoint_nothing_is_resumed(example, data, tmp_path):
    with pytest.raises(SystemExit) as caught:
        example("digits_cnn").main(["--resume", "--out", str(tmp_path)], data=data)
    assert str(caught.value) == f"--resume: there is no checkpoint in {tmp_path / 'digits_cnn'}"


def test_batches_hold_every_image_once_moved_by_a_pixel_at_most(example, data):
    seen = list(example("digits").batches(data, 64, epochs=1, seed=0))
    assert len(seen) == 3
    images, labels = (np.concatenate(part) for part in zip(*seen))
    assert sorted(labels) == sorted(data.labels)
    padded = np.pad(data.images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    moved = [padded[:, y : y + 8, x : x + 8] for y in range(3) for x in range(3)]
    assert all(any((m == image).all((1, 2, 3)).any() for m in moved) for image in images[:16])


def test_a_missing_package_is_named(example, monkeypatch, capsys):
    digits = example("digits")
    monkeypatch.setattr(digits, "find_spec", lambda name: None)
    with pytest.raises(SystemExit) as caught:
        digits.load()
    assert str(caught.value) == ("The digits come with scikit-learn, which is not installed: pip install scikit-learn")
    with pytest.raises(SystemExit):
        example("digits_cnn").main(["--epochs", "0"])
    assert "--epochs: expected at least 1, got 0" in capsys.readouterr().err


@pytest.mark.slow
def test_the_network_reads_98_of_100_digits(example, tmp_path):
    pytest.importorskip("sklearn")
    assert example("digits_cnn").main(["--out", str(tmp_path)]) >= 0.98


@pytest.mark.slow
def test_a_vision_transformer_of_5_heads_runs_on_4_devices(example, tmp_path, monkeypatch):
    vit = example("digits_vit")
    for name, size in dict(WIDTH=30, HEADS=5, HIDDEN=37, LAYERS=1).items():
        monkeypatch.setattr(vit, name, size)
    images = np.random.default_rng(0).normal(size=(10, 8, 8, 1)).astype(np.float32)

    @nnx.jit
    def step(model, optimizer, x):
        value, gradients = nnx.value_and_grad(lambda model: (model(x) ** 2).mean())(model)
        optimizer.update(model, gradients)
        return value

    def train(x):
        model = vit.ViT(nnx.Rngs(0))
        optimizer = nnx.Optimizer(model, optim.adam(1e-2), wrt=nnx.Param)
        return [float(step(model, optimizer, x)) for _ in range(2)], nnx.state((model, optimizer))

    alone, _ = train(images)
    mesh = auto_mesh((2, 4), ("data", "model"))
    with phalanx.set_mesh(mesh):
        losses, state = train(phalanx.device_put(images, NamedSharding(mesh, P("data"))))
    np.testing.assert_allclose(losses, alone, rtol=1e-4)
    heads = [x for x in phalanx.tree.leaves(state) if x.shape == (30, 5, 6)]
    assert len(heads) == 9 and {s.data.shape for x in heads for s in x.addressable_shards} == {
        (30, 2, 6),
        (30, 1, 6),
        (30, 0, 6),
    }
    shardings = phalanx.tree.map(lambda x: x.sharding, state)
    checkpoint.save(tmp_path, state, wait=True)
    loaded = checkpoint.load(tmp_path, shardings=shardings)
    for x, y in zip(phalanx.tree.leaves(loaded), phalanx.tree.leaves(state), strict=True):
        assert x.sharding.is_equivalent_to(y.sharding, x.ndim)
        if not phalanx.dtypes.issubdtype(x.dtype, phalanx.dtypes.prng_key):
            np.testing.assert_array_equal(x, y)
