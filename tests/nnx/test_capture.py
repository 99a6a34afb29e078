"""`nnx.capture` returns the values sown during a call; an observer of calls sees only its context."""

import threading

import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import nnx
from phalanx.errors import ArgumentError
from phalanx.nnx.inspection.method_observer import notify_outermost_calls, observing


class Model(nnx.Module):
    def __init__(self, rngs):
        self.linear = nnx.Linear(2, 2, rngs=rngs)

    def __call__(self, x):
        x = self.linear(x)
        self.sow(nnx.Intermediate, "seen", x)
        return self.perturb("moved", x).sum()

    def twice(self, x):
        return 2 * self(x)


@pytest.fixture
def model():
    return Model(nnx.Rngs(0))


x = jnp.ones((1, 2))


def test_capture_returns_sown_values_and_leaves_the_model_unchanged(model):
    before = nnx.graphdef(model)
    y, state = nnx.capture(model, nnx.Intermediate)(x)
    assert y == model.linear(x).sum() and (state.seen.value[0] == model.linear(x)).all()
    assert nnx.graphdef(model) is before


def test_capture_keeps_values_sown_before_out_of_its_state(model):
    model(x)
    held = model.seen
    _, state = nnx.capture(model, nnx.Intermediate)(2 * x)
    assert model.seen is held and len(held.value) == 1 and len(state.seen.value) == 1


@pytest.mark.parametrize(
    "captured",
    [
        lambda model: nnx.capture(model.twice, nnx.Intermediate)(x),
        lambda model: nnx.capture(Model.twice, nnx.Intermediate)(model, x),
        lambda model: nnx.capture(lambda x, model: model.twice(x), nnx.Intermediate)(x, model=model),
        lambda model: nnx.capture(nnx.Intermediate)(lambda model: model.twice(x))(model),
        lambda model: nnx.jit(lambda m: nnx.capture(m.twice, nnx.Intermediate)(x))(model),
    ],
)
def test_capture_accepts_methods_and_functions_of_a_model(model, captured):
    y, state = captured(model)
    assert jnp.allclose(y, 2 * model.linear(x).sum()) and sorted(state) == ["seen"]


def test_each_kind_has_a_state_of_its_own(model):
    _, moved, seen = nnx.capture(model, nnx.Perturbation, nnx.Intermediate)(x)
    assert (sorted(moved), sorted(seen)) == (["moved"], ["seen"])


def test_gradients_of_values_inside_by_giving_the_perturbations(model):
    def loss(perturbations, model):
        return nnx.capture(model, nnx.Intermediate, init=perturbations)(x)[0]

    _, perturbations = nnx.capture(model, nnx.Perturbation)(x)
    assert nnx.grad(loss)(perturbations, model).moved.value.tolist() == [[1.0, 1.0]]


def test_outputs_of_methods(model):
    y, state = nnx.capture(model.twice, nnx.Intermediate, method_outputs=nnx.Intermediate)(x)
    assert state.twice.value == (y,) and state["__call__"].value == (y / 2,)
    assert (state.linear["__call__"].value[0] == state.seen.value[0]).all()


class Named(nnx.Module):
    """A method that sows a value under the name of the method, as in the guides of Flax."""

    def features(self, x):
        self.sow(nnx.Intermediate, "features", x)
        return self.perturb("moved", x)

    def __call__(self, x):
        return self.features(x) + self.features(2 * x)


def test_a_value_may_be_sown_under_the_name_of_a_method():
    model = Named()
    y, state = nnx.capture(model, nnx.Intermediate)(1.0)
    assert (y, state.features.value) == (3.0, (1.0, 2.0)) and vars(model) == {}
    _, state = nnx.capture(model, nnx.Intermediate, method_outputs=nnx.Intermediate)(1.0)
    assert sorted(state) == ["__call__", "features"]


def test_capture_drops_values_of_other_types_inside_transformations():
    model = Named()
    _, perturbations = nnx.capture(model, nnx.Perturbation)(1.0)
    assert list(perturbations) == ["moved"] and vars(model) == {}
    loss = lambda m, p, x: nnx.capture(m, nnx.Intermediate, init=p)(x)
    (_, grads), sown = nnx.jit(nnx.grad(loss, argnums=(0, 1), has_aux=True))(model, perturbations, 1.0)
    assert grads.moved.value == 2.0 and sown.features.value == (1.0, 2.0)
    mapped = nnx.capture(nnx.Intermediate)(lambda m, x: nnx.vmap(lambda m, x: m(x), in_axes=(None, 0))(m, x))
    with pytest.raises(ArgumentError, match="the same for all examples"):  # a varying value needs a dimension
        mapped(Named(), jnp.ones(3))


def test_initial_values_without_types_to_capture_return_the_result_alone():
    class Moved(nnx.Module):
        def __call__(self, x):
            # Programs written for Flax read the captured variables.
            assert [type(v) for v in self.__captures__] == [nnx.Perturbation]
            return 3 * self.perturb("moved", x)

    model = Moved()
    _, perturbations = nnx.capture(model, nnx.Perturbation)(1.0)
    loss = lambda m, p: nnx.capture(lambda m: m(2.0), init=p)(m)
    assert nnx.grad(loss, argnums=1)(model, perturbations).moved.value == 3.0


def test_capture_requires_exactly_one_model(model):
    with pytest.raises(ArgumentError, match=r"^nnx.capture, arguments of the call: expected one module, got 2 modules"):
        nnx.capture(lambda a, b: a(x) + b(x), nnx.Intermediate)(model, nnx.clone(model))
    with pytest.raises(
        ArgumentError, match=r"^nnx.capture, argument var_types: expected at least one type of variable, got none"
    ):
        nnx.capture(model)


def test_no_other_thread_is_observed(model):
    """Two threads call the same model; one of them observes."""
    calls, barrier = [], threading.Barrier(2, timeout=600)

    def run(observes):
        barrier.wait()
        note = lambda module, name, args, kwargs, out: calls.append((threading.get_ident(), type(module).__name__))
        if observes:
            with observing(notify_outermost_calls(note)):
                model(x)
                barrier.wait()
        else:
            model.linear(x)
            barrier.wait()

    model(x)
    threads = [threading.Thread(target=run, args=(observes,)) for observes in (True, False)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert calls == [(threads[0].ident, "Linear"), (threads[0].ident, "Model")]
    model(x)
    assert len(calls) == 2


def test_tables_of_one_class_made_in_several_threads_are_alike():
    pytest.importorskip("rich")
    shape = phalanx.ShapeDtypeStruct((1, 2), "float32")
    want, tables = nnx.tabulate(Model(nnx.Rngs(0)), shape), []
    threads = [
        threading.Thread(target=lambda: tables.append(nnx.tabulate(Model(nnx.Rngs(0)), shape))) for _ in range(4)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert tables == [want] * 4


def test_errors_of_a_model_show_the_users_frames_only(model):
    with pytest.raises(Exception) as caught:
        model.twice(jnp.ones((1, 3)))
    assert {entry.path.name for entry in caught.traceback} == {"test_capture.py"}
