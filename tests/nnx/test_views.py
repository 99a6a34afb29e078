"""Views of models: `set_view`, attributes, `view_info`; and the repr of models."""

import pytest

import phalanx.numpy as jnp
from phalanx import nnx
from phalanx.errors import ArgumentError


class Loud(nnx.Module):
    def __init__(self):
        self.messages = 0
        self.drop = nnx.Dropout(0.5)

    def set_view(self, volume: int | None = None):
        """How loud it is.

        Args:
          volume: how many messages there are
            for a call.
        """
        if volume is not None:
            self.messages = 10 * volume


def test_set_view_defines_the_options_of_a_view():
    model = Loud()
    changed = nnx.view(model, volume=3, deterministic=True)
    assert (changed.messages, changed.drop.deterministic) == (30, True)
    assert (model.messages, model.drop.deterministic) == (0, False)
    assert nnx.with_attributes(model, messages=2).messages == 2
    with pytest.raises(
        ArgumentError,
        match=r"^view: expected parameters of set_view of some module, got rate\.\n"
        r"  Fix: correct the name or the filter \(nnx.view_info\(model\) lists the names\), change other attributes with "
        r"nnx.with_attributes, or pass raise_if_not_found=False\.$",
    ):
        nnx.view(model, rate=0.1)
    assert nnx.view(model, rate=0.1, raise_if_not_found=False).drop.rate == 0.5


def test_set_view_with_any_options_receives_all_of_them():
    class Thermostat(nnx.Module):
        def set_view(self, **options):
            self.options = options

    view = nnx.view([Thermostat(), nnx.Dropout(0.5)], deterministic=True, celsius=20)
    assert view[0].options == {"deterministic": True, "celsius": 20} and view[1].deterministic


def test_view_info_lists_the_options_of_each_class():
    assert nnx.view_info(Loud()) == (
        "Dropout:\n  deterministic: bool | None = None\n    whether to return the input unchanged.\n"
        "Loud:\n  volume: int | None = None\n    how many messages there are\n    for a call."
    )
    assert nnx.view_info(Loud(), only=nnx.Dropout).startswith("Dropout") and nnx.view_info(nnx.Module()) == ""


def test_a_view_makes_the_cache_of_attention():
    attention = nnx.MultiHeadAttention(2, 4, rngs=nnx.Rngs(0))
    decoding = nnx.view(attention, decode=True, batch_size=3, max_length=5)
    assert decoding.cached_key.value.shape == (3, 5, 2, 2) and decoding(jnp.ones((3, 1, 4))).shape == (3, 1, 4)
    assert getattr(attention, "cached_key", None) is None and decoding.query.kernel is attention.query.kernel
    with pytest.raises(ArgumentError, match="expected batch_size and max_length together"):
        nnx.view(attention, max_length=5)


def test_marks_inside_a_container_raise_an_error():
    class Inner(nnx.Pytree):
        def __init__(self):
            self.a = [nnx.data(1), nnx.static(2)]

    with pytest.raises(ArgumentError, match=r"^Inner, setting 'a': expected nnx.data or nnx.static around the whole"):
        Inner()


def test_a_class_may_stay_a_leaf_of_trees():
    class Leaf(nnx.Pytree, pytree=False):
        pass

    import phalanx

    leaf = Leaf()
    assert phalanx.tree.leaves([leaf]) == [leaf]


def test_models_with_functions_in_a_list_are_trees_of_their_data():
    """`Sequential` holds activations between its layers."""
    import phalanx

    model = nnx.Sequential(nnx.Linear(2, 3, rngs=nnx.Rngs(0)), nnx.relu, nnx.Linear(3, 2, rngs=nnx.Rngs(1)))
    x = jnp.ones((1, 2))
    assert phalanx.jit(lambda m, x: m(x))(model, x).shape == (1, 2)
    paths = [phalanx.tree_util.keystr(path) for path, _ in phalanx.tree.leaves_with_path(model)]
    assert paths[0] == ".layers[0].bias.value" and len(paths) == 4
    doubled = phalanx.tree.map(lambda x: 2 * x, model)
    assert doubled.layers[1] is nnx.relu and (doubled.layers[2].kernel[...] == 2 * model.layers[2].kernel[...]).all()
    grads = phalanx.grad(lambda m: m(x).sum())(model)
    assert grads.layers[2].bias[...].tolist() == [1.0, 1.0]
