"""The demo: it learns, one device and many agree, a checkpoint goes on where it stopped and survives a crash."""

import dataclasses
import inspect
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from tests.source_files import load_file

import phalanx
from phalanx import checkpoint
from phalanx.cli.demo import find_example

pytestmark = pytest.mark.lengthy


@pytest.fixture(scope="module")
def lm():
    """The example as a module."""
    return load_file(find_example())


@pytest.fixture(scope="module")
def small(lm):
    return lm.Config(layers=2, width=32, heads=2, hidden=64, window=32, batch=8)


@pytest.fixture(scope="module")
def data():
    """Text that is easy to learn."""
    return np.frombuffer(b"def f(x):\n    return x\n\n" * 400, np.uint8)


def run(lm, config, data, mesh, *, state=None, until=6, out=None):
    trainer = lm.Trainer(lm.make_mesh(mesh), config, 12)
    state = trainer.init(phalanx.random.key(0)) if state is None else state(trainer)
    return trainer, *lm.train(trainer, state, data, config, seed=0, until=until, out=out)


@pytest.mark.parametrize(
    ("mesh", "sizes"),
    [
        ((4, 2), {}),
        pytest.param((8, 1), {}, marks=pytest.mark.slow),
        pytest.param((2, 4), dict(width=30, heads=5, hidden=61), marks=pytest.mark.slow),  # 4 divides none
        ((4, 1), dict(batch=10)),
    ],
)
def test_losses_on_a_mesh_equal_losses_on_one_device(lm, small, data, mesh, sizes):
    config = dataclasses.replace(small, **sizes)
    alone, many = (run(lm, config, data, shape)[2] for shape in ((1, 1), mesh))
    np.testing.assert_allclose(many, alone, atol=1e-4)


def test_it_learns(lm, small, data):
    losses = run(lm, small, data, (4, 2), until=12)[2]
    assert losses[-1] < losses[0] - 0.5


def test_parameters_and_moments_have_the_declared_shardings(lm, small, data):
    trainer, state, _ = run(lm, small, data, (4, 2), until=1)
    phalanx.tree.map(lambda x, s: _assert_placed(x, s), state, trainer.state_shardings)
    up = state["params"]["layers"]["up"]
    assert up.addressable_shards[0].data.shape == (2, 32, 32)


def test_without_its_constraint_the_step_is_refused_with_the_line_and_a_fix(lm, small, monkeypatch):
    trainer = lm.Trainer(lm.make_mesh((4, 2)), small, 12)
    state = phalanx.eval_shape(trainer.init, phalanx.random.key(0))
    place = lambda x, s: phalanx.ShapeDtypeStruct(x.shape, x.dtype, sharding=s)
    state = phalanx.tree.map(place, state, trainer.state_shardings)
    batch = phalanx.ShapeDtypeStruct((small.batch, small.window + 1), "uint8", sharding=trainer.batch_sharding)
    trainer.step.lower(state, batch).compile()
    lines, first = inspect.getsourcelines(lm.forward)
    line = first + next(i for i, text in enumerate(lines) if "split_batch(" in text)
    real = lm.lax.with_sharding_constraint
    monkeypatch.setattr(lm.lax, "with_sharding_constraint", lambda x, shardings: x)
    without = lm.Trainer(lm.make_mesh((4, 2)), small, 12)
    with pytest.raises(phalanx.errors.ShardingError) as error:
        without.step.lower(state, batch).compile()
    shape = f"f32[{small.batch},{small.window},{small.width}]"
    call = "lax.with_sharding_constraint(x, NamedSharding(mesh, P('data',)))"
    assert error.value.fix == (
        f"pass the result of gather, {shape}, at {lm.__file__}:{line} through {call}; "
        'or allow them with communication="any"'
    )
    # The line calls `split_batch`, which now does what the fix says.
    mesh = lm.make_mesh((4, 2))
    names = {"lax": SimpleNamespace(with_sharding_constraint=real), "NamedSharding": lm.NamedSharding, "P": lm.P}
    fixed = lambda x, shardings: eval(call, names | {"mesh": mesh, "x": x})
    monkeypatch.setattr(lm.lax, "with_sharding_constraint", fixed)
    lm.Trainer(mesh, small, 12).step.lower(state, batch).compile()


def _assert_placed(x, sharding):
    assert x.sharding.is_equivalent_to(sharding, x.ndim)


@pytest.mark.slow
def test_a_resumed_run_equals_one_that_was_never_stopped(lm, small, data, tmp_path):
    _, whole, losses = run(lm, small, data, (4, 2))
    run(lm, small, data, (4, 2), until=3, out=tmp_path)
    _, resumed, rest = run(
        lm, small, data, (4, 2), state=lambda t: checkpoint.load(tmp_path, shardings=t.state_shardings)
    )
    assert rest == losses[3:]
    phalanx.tree.map(np.testing.assert_array_equal, resumed, whole)


@pytest.mark.slow
def test_a_checkpoint_is_resumed_on_another_mesh(lm, small, data, tmp_path):
    losses = run(lm, small, data, (4, 2))[2]
    run(lm, small, data, (4, 2), until=3, out=tmp_path)
    rest = run(lm, small, data, (2, 1), state=lambda t: checkpoint.load(tmp_path, shardings=t.state_shardings))[2]
    np.testing.assert_allclose(rest, losses[3:], atol=1e-4)


def test_a_save_that_fails_loses_nothing(lm, small, data, tmp_path, monkeypatch):
    trainer, state, _ = run(lm, small, data, (1, 1), until=1, out=tmp_path)
    checkpoint.load(tmp_path)  # The first step is committed.
    monkeypatch.setattr("phalanx.checkpoint.saving.merge_databases", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        checkpoint.save(tmp_path, state, step=2, wait=True)
    restored = checkpoint.load(tmp_path, shardings=trainer.state_shardings)
    phalanx.tree.map(np.testing.assert_array_equal, restored, state)


@pytest.mark.slow
def test_a_sample_continues_the_window(lm, small, data):
    trainer, state, _ = run(lm, small, data, (4, 2), until=1)
    out = np.asarray(trainer.sample(state["params"], data[: small.window], phalanx.random.key(0), length=5))
    assert out.shape == (5,) and out.dtype == np.uint8


@pytest.mark.slow
def test_the_model_in_a_file_takes_any_batch_and_length_and_completes_a_prompt(lm, small, data, tmp_path):
    _, state, _ = run(lm, small, data, (4, 2), until=1)
    exported = lm.export_model(tmp_path / "model.phalanx", state["params"], "float32")
    assert str(exported.in_avals[0]) == "uint8[batch,time]" and str(exported.out_avals[0]) == "float32[batch,time,256]"
    tokens = data[:10].reshape(2, 5)
    alone = phalanx.tree.map(np.asarray, state["params"])
    np.testing.assert_allclose(exported.call(tokens), lm.forward(alone, tokens, "float32"), atol=1e-4)
    text = lm.complete(tmp_path / "model.phalanx", b"def f(x):", 4, seed=0)
    assert len(text) == 4 and text == lm.complete(tmp_path / "model.phalanx", b"def f(x):", 4, seed=0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--mesh", "four"], "--mesh: expected two numbers such as 4x2, got 'four'"),
        (["--mesh", "0x4"], "--mesh, --batch: expected sizes of at least 1, got 0x4 and 16"),
        (["--batch", "0"], "--mesh, --batch: expected sizes of at least 1, got None and 0"),
        (["--width", "35", "--heads", "5"], "--width: expected a multiple of 10, twice the heads, got 35"),
        (["--resume", "nowhere"], "--resume: there is no checkpoint in nowhere"),
    ],
)
def test_bad_arguments_are_refused(lm, capsys, words, message):
    with pytest.raises(SystemExit):
        lm.main(words)
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_trains_saves_and_resumes(tmp_path):
    def demo(*words):
        env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-m", "phalanx", "demo", "--length", "8", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path, env=env).stdout

    first = demo("--steps", "3", "--compare", "2", "--out", "run")
    assert "mesh: {'data': 4, 'model': 2}" in first
    assert "first 2 losses on 8 devices and on one: equal" in first
    assert "bits per byte" in first
    assert (
        "u8[batch,time] -> f32[batch,time,256]\na second process, from that file alone:\ndef main(argv=None):" in first
    )
    assert "training from step 3 to 5" in demo(
        "--steps", "5", "--resume", "run", "--mesh", "2x1", "--dtype", "bfloat16"
    )
