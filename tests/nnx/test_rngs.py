"""Random streams: draws, split, fork and reseed; the keys equal those of Flax."""

import numpy as np
import pytest

import phalanx.numpy as jnp
from phalanx import nnx, random
from phalanx.core.error_classes import ArgumentError, ArgumentTypeError, TreeError


def data(key):
    return np.asarray(random.key_data(key)).tolist()


def test_keys_are_folded_from_seed_and_count():
    rngs = nnx.Rngs(0, dropout=1)
    assert data(rngs.params()) == data(random.fold_in(random.key(0), 0))
    assert data(rngs()) == data(random.fold_in(random.key(0), 1))
    assert data(rngs.dropout()) == data(random.fold_in(random.key(1), 0))
    assert rngs["params"] is rngs.default and "params" not in rngs and sorted(rngs) == ["default", "dropout"]
    assert int(rngs.default.count.value) == 2


def test_a_missing_stream_is_an_error():
    rngs = nnx.Rngs(params=0)
    with pytest.raises(nnx.MissingStreamError) as error:
        rngs.dropout()
    assert str(error.value) == (
        "Rngs, stream 'dropout': expected one of the streams ['params'], got 'dropout'.\n"
        "  Fix: create it with nnx.Rngs(dropout=seed), or create a default stream with nnx.Rngs(seed)."
    )
    assert not hasattr(rngs, "dropout")


def test_streams_draw():
    rngs = nnx.Rngs(0)
    key = random.fold_in(random.key(0), 0)
    assert (rngs.normal((3,)) == random.normal(key, (3,))).all()
    assert rngs.params.uniform((2,)).shape == (2,) and rngs.lecun_normal()((3, 4)).shape == (3, 4)


def test_splitting_makes_many_keys_and_restoring_one():
    model = {"a": nnx.Rngs(0, dropout=1)}
    backups = nnx.split_rngs(model, splits=3, only="dropout")
    stream = model["a"].dropout
    assert stream.key.shape == (3,) and stream.count.shape == (3,) and model["a"].default.key.shape == ()
    assert data(stream.key.value) == data(random.split(random.fold_in(random.key(1), 0), 3))
    with pytest.raises(ArgumentError, match="expected a stream with one key"):
        stream()
    nnx.restore_rngs(backups)
    assert stream.key.shape == () and int(stream.count.value) == 1
    with nnx.split_rngs(model, splits=1, squeeze=True):
        assert stream.key.shape == ()
    with pytest.raises(ArgumentError, match="expected splits=1"):
        nnx.split_rngs(model, splits=2, squeeze=True)


def test_forks_are_independent():
    rngs = nnx.Rngs(0, dropout=1)
    fork = rngs.fork(split={"dropout": 4, ...: None})
    assert fork.dropout.key.shape == (4,) and fork.default.key.shape == () and int(rngs.default.count.value) == 1
    assert data(fork.default.key.value) != data(rngs.default.key.value)
    backups = nnx.fork_rngs(rngs, split=2)
    assert rngs.default.key.shape == (2,)
    nnx.restore_rngs(backups)
    assert rngs.default.key.shape == ()


def test_streams_are_seeded_again():
    rngs = nnx.Rngs(0, dropout=1)
    rngs()
    nnx.reseed(rngs, default=5)
    new = random.fold_in(random.key(5), 0)
    assert data(rngs.default.key.value) == data(new) and int(rngs.default.count.value) == 0
    nnx.split_rngs(rngs, splits=2)
    with pytest.raises(TreeError, match="reseed, stream 'default': expected a stream with one key"):
        nnx.reseed(rngs, default=5)
    nnx.reseed(rngs, default=5, policy="match_shape")
    assert data(rngs.default.key.value) == data(random.split(new, 2))


def test_keys_equal_those_of_flax():
    pytest.importorskip("jax")
    peer = pytest.importorskip("flax.nnx")
    import jax

    ours, theirs = nnx.Rngs(3, params=4), peer.Rngs(3, params=4)
    for name in ("params", "dropout", "params"):
        assert data(getattr(ours, name)()) == jax.random.key_data(getattr(theirs, name)()).tolist()
    a, b = ours.split(2), theirs.split(2)
    assert data(a.params.key.value) == jax.random.key_data(b.params.key[...]).tolist()


def test_sowing_and_perturbing():
    class Model(nnx.Module):
        def __call__(self, x):
            self.sow(nnx.Intermediate, "seen", x)
            self.sow("intermediates", "total", x, reduce_fn=lambda a, b: a + b, init_fn=lambda: 0.0)
            return self.perturb("shift", x) * 2

    model = Model()
    model(jnp.ones(2))
    assert model(jnp.ones(2)).tolist() == [2, 2]
    assert len(model.seen.value) == 2 and model.total.value.tolist() == [2, 2] and model.shift.value.tolist() == [0, 0]
    assert sorted(nnx.pop(model, nnx.Intermediate)) == ["seen", "shift", "total"]


def test_capture_noop_stores_nothing_outside_of_capture():
    class Model(nnx.Module):
        def __call__(self, x):
            self.sow(nnx.Intermediate, "seen", x, capture_noop=True)
            return self.perturb("shift", x, capture_noop=True) * 2

    model = Model()
    assert model(jnp.ones(2)).tolist() == [2, 2] and not nnx.state(model)
    _, seen = nnx.capture(model, nnx.Intermediate)(jnp.ones(2))
    _, shifts = nnx.capture(model, nnx.Perturbation)(jnp.ones(2))
    assert seen.seen.value[0].tolist() == [1, 1] and shifts.shift.value.tolist() == [0, 0] and not nnx.state(model)


def test_a_stream_that_is_the_same_in_each_iteration_of_a_scan_draws_the_same():
    """Recurrent dropout: one mask for all steps, whether the stream is an argument or inside a cell."""

    class Cell(nnx.Module):
        def __init__(self):
            self.drop = nnx.Dropout(0.5, rngs=nnx.Rngs(dropout=0), rng_collection="dropout")

    @nnx.scan(in_axes=(nnx.StateAxes({nnx.RngState: None, ...: nnx.Carry}), nnx.Carry, 0), out_axes=(nnx.Carry, 0))
    def step(cell, h, x):
        return h, cell.drop(x)

    cell = Cell()
    _, masks = step(cell, 0.0, jnp.ones((5, 8)))
    assert (masks == masks[:1]).all() and 0 < (masks == 0).sum() < 40 and cell.drop.rngs.count.value == 0
    _, drawn = nnx.scan(lambda r, h, x: (h, r.normal()), in_axes=(None, nnx.Carry, 0))(nnx.Rngs(0), 0.0, jnp.ones(3))
    assert (drawn == drawn[0]).all()


def test_initializers_of_a_stream_take_their_options():
    rngs = nnx.Rngs(0)
    init = rngs.variance_scaling(2.0, "fan_in", "uniform")
    assert init((3, 4)).shape == (3, 4) and (init((3, 4)) != init((3, 4))).any()
    assert rngs.params.he_normal()((2, 2), jnp.bfloat16).dtype == jnp.bfloat16


def test_a_value_that_is_not_a_seed_raises_an_error():
    with pytest.raises(ArgumentTypeError, match=r"^a random stream: expected a seed or a key, got 'a' of type str\."):
        nnx.Rngs("a")
