"""How transformations fit together: the protocol, masks, hyperparameters, accumulation, placement, dtypes, errors."""

from typing import NamedTuple

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import optim
from phalanx.core.error_classes import ArgumentError, ArgumentTypeError, DTypeError
from phalanx.sharding import Mesh, NamedSharding, PartitionSpec as P

PARAMS = {"w": jnp.ones((2, 3)), "b": jnp.ones(3)}


def count_programs(fun):
    """How many programs a call compiles and runs for the first time."""
    calls = []
    with phalanx.log_compiles(True):
        import logging

        handler = logging.Handler()
        handler.emit = lambda record: calls.append(record.getMessage())
        logger = logging.getLogger("phalanx")
        logger.addHandler(handler)
        try:
            fun()
        finally:
            logger.removeHandler(handler)
    return [c for c in calls if "Finished XLA compilation" in c]


def test_transformations_of_other_libraries_can_be_chained():
    class Pair(NamedTuple):
        init: object
        update: object

    halve = Pair(lambda params: {"seen": jnp.zeros(())}, lambda g, s, p=None: (phalanx.tree.map(lambda x: x / 2, g), s))
    tx = optim.chain(optim.clip(1.0), halve, optim.scale(-1.0))
    state = tx.init(PARAMS)
    assert set(state[1]) == {"seen"}
    updates, _ = tx.update({"w": jnp.full((2, 3), 8.0), "b": jnp.full(3, 0.5)}, state, PARAMS, value=3.0)
    assert updates["w"][0, 0] == -0.5 and updates["b"][0] == -0.25


def test_extra_arguments_are_passed_to_transformations_that_accept_them():
    def update(updates, state, params=None, *, value, **extra):
        return phalanx.tree.map(lambda g: g * value, updates), state

    tx = optim.chain(optim.GradientTransformation(lambda p: (), update), optim.scale(-1.0))
    assert tx.update(2.0, tx.init(0.0), value=3.0)[0] == -6.0


def test_an_extra_argument_may_be_a_function():
    def update(updates, state, params=None, *, value_fn, **extra):
        return phalanx.tree.map(lambda g: g * value_fn(g), updates), state

    tx = optim.chain(optim.GradientTransformationExtraArgs(lambda p: (), update), optim.scale(-1.0))
    assert tx.update(2.0, tx.init(0.0), value_fn=lambda g: g + 1)[0] == -6.0


def test_an_eager_update_is_one_program_and_a_traced_one_is_inlined():
    tx = optim.adamw(1e-3)
    state = tx.init(PARAMS)
    text = str(phalanx.make_jaxpr(tx.update)(PARAMS, state, PARAMS))
    assert "jit[" not in text and "adam" not in text
    messages = count_programs(lambda: tx.update(PARAMS, state, PARAMS))
    assert len(messages) == 1, messages
    assert count_programs(lambda: tx.update(PARAMS, state, PARAMS)) == []


def test_jitted_and_eager_updates_agree():
    tx = optim.chain(optim.clip_by_global_norm(1.0), optim.adam(optim.cosine_decay_schedule(0.1, 10)))
    state = tx.init(PARAMS)
    eager, jitted = tx.update(PARAMS, state, PARAMS), phalanx.jit(tx.update)(PARAMS, state, PARAMS)
    with phalanx.disable_jit():
        plain = tx.update(PARAMS, state, PARAMS)
    for other in (jitted, plain):
        phalanx.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6), eager, other)


def test_moments_have_the_sharding_of_their_parameters():
    mesh = Mesh(np.array(phalanx.devices()).reshape(4, 2), ("data", "model"))
    sharding = NamedSharding(mesh, P("data", "model"))
    params = {"w": phalanx.device_put(jnp.ones((8, 4)), sharding)}
    tx = optim.adam(1e-3)
    state = tx.init(params)
    updates, new = tx.update(params, state, params)
    for x in (state[0].mu["w"], state[0].nu["w"], updates["w"], new[0].mu["w"]):
        assert x.sharding.is_equivalent_to(sharding, 2)
    assert state[0].mu["w"].addressable_shards[0].data.shape == (2, 2)


def test_parameters_and_moments_keep_their_dtypes():
    params = {"w": jnp.ones(3, jnp.bfloat16)}
    for tx in (
        optim.adamw(jnp.float32(1e-3)),
        optim.sgd(optim.linear_schedule(1.0, 0.0, 3), 0.9),
        optim.inject_hyperparams(optim.adam)(1e-3),
    ):
        state = tx.init(params)
        updates, new = tx.update(params, state, params)
        assert updates["w"].dtype == jnp.bfloat16
        assert [x.dtype for x in phalanx.tree.leaves(new)] == [x.dtype for x in phalanx.tree.leaves(state)]
    assert optim.adam(1e-3, mu_dtype=jnp.float32).init(params)[0].mu["w"].dtype == jnp.float32
    assert optim.apply_updates(params, {"w": jnp.ones(3)})["w"].dtype == jnp.bfloat16


def test_a_mask_may_be_a_function_or_a_prefix():
    by_rank = optim.masked(optim.scale(0.0), lambda tree: phalanx.tree.map(lambda x: x.ndim == 1, tree))
    updates, _ = by_rank.update(PARAMS, by_rank.init(PARAMS), PARAMS)
    assert updates["b"].sum() == 0 and updates["w"].sum() == 6
    nested = {"frozen": PARAMS, "free": PARAMS}
    tx = optim.masked(optim.adam(0.5), {"frozen": False, "free": True})
    state = tx.init(nested)
    assert state.inner_state[0].mu["frozen"] == optim.MaskedNode()
    updates, _ = tx.update(nested, state, nested)
    np.testing.assert_allclose(updates["free"]["w"], -0.5, rtol=1e-4)
    phalanx.tree.map(np.testing.assert_array_equal, updates["frozen"], nested["frozen"])


def test_injected_hyperparameters_can_be_read_and_changed():
    tx = optim.inject_hyperparams(optim.sgd)(learning_rate=optim.linear_schedule(1.0, 0.0, 4), momentum=0.5)
    state = tx.init(PARAMS)
    for _ in range(2):
        _, state = tx.update(PARAMS, state)
    assert float(state.hyperparams["learning_rate"]) == 0.75
    state.hyperparams["momentum"] = jnp.zeros(())
    updates, state = tx.update(PARAMS, state)
    assert float(updates["b"][0]) == -0.5 and float(state.hyperparams["momentum"]) == 0.0


def test_accumulated_steps_equal_one_step_on_the_mean_gradient():
    grads = [{"w": jnp.full((2, 3), k), "b": jnp.full(3, -k)} for k in (1.0, 2.0, 6.0)]
    tx = optim.MultiSteps(optim.adam(0.1), every_k_schedule=3)
    state = tx.init(PARAMS)
    seen = []
    for g in grads:
        updates, state = tx.update(g, state, PARAMS)
        seen.append((float(updates["w"][0, 0]), bool(tx.has_updated(state))))
    assert [s for s in seen[:2]] == [(0.0, False), (0.0, False)]
    inner = optim.adam(0.1)
    expected, _ = inner.update({"w": jnp.full((2, 3), 3.0), "b": jnp.full(3, -3.0)}, inner.init(PARAMS))
    np.testing.assert_allclose(updates["w"], expected["w"], rtol=1e-6)
    assert seen[2][1] and int(state.gradient_step) == 1


def test_gradients_that_are_not_finite_are_skipped():
    tx = optim.MultiSteps(optim.sgd(1.0), 2, should_skip_update_fn=optim.skip_not_finite)
    state = tx.init(0.0)
    for g in (1.0, float("nan")):
        updates, state = tx.update(g, state)
    assert float(updates) == 0.0 and int(state.skip_state["num_not_finite"]) == 1 and int(state.mini_step) == 1
    assert float(tx.update(3.0, state)[0]) == -2.0


def test_updates_are_applied_after_too_many_consecutive_errors():
    tx = optim.apply_if_finite(optim.sgd(1.0), max_consecutive_errors=1)
    state = tx.init(0.0)
    first, state = tx.update(float("inf"), state)
    second, state = tx.update(float("inf"), state)
    assert float(first) == 0.0 and float(second) == -float("inf") and int(state.total_notfinite) == 2


def test_add_noise_has_the_documented_variance():
    tx = optim.add_noise(eta=4.0, gamma=1.0, key=phalanx.random.key(0))
    zeros = jnp.zeros(20_000)
    first, state = tx.update(zeros, tx.init(zeros))
    second, _ = tx.update(zeros, state)
    np.testing.assert_allclose([first.std(), second.std()], [2**0.5, (4 / 3) ** 0.5], rtol=0.03)


def test_an_optimizer_step_is_differentiable():
    tx = optim.adam(0.1, eps_root=1e-8)

    def after_one_step(p):
        updates, _ = tx.update(2 * p, tx.init(p), p)
        return optim.apply_updates(p, updates)

    assert abs(float(phalanx.grad(after_one_step)(1.0)) - 1.0) < 1e-3


def check_error(error, message, fun):
    with pytest.raises(error) as caught:
        fun()
    assert str(caught.value) == message


def test_chaining_an_object_that_is_not_a_transformation_is_an_error():
    check_error(
        ArgumentTypeError,
        "gradient transformation: expected an object with the functions init and update, got 3 of type int.\n"
        "  Fix: pass a transformation such as optim.adam(1e-3), with its arguments applied.",
        lambda: optim.chain(3),
    )


def test_missing_parameters_are_an_error():
    tx = optim.adamw(1e-3)
    check_error(
        ArgumentError,
        "optim.add_decayed_weights, argument params of update: expected the parameters, which this transformation "
        "reads, got None.\n  Fix: call update(updates, state, params).",
        lambda: tx.update(PARAMS, tx.init(PARAMS)),
    )


def test_a_label_without_a_transformation_is_an_error_that_names_it():
    tx = optim.partition({"x": optim.sgd(0.1)}, {"w": "x", "b": "y"})
    check_error(
        ArgumentError,
        "optim.partition, argument param_labels: expected labels among ['x'], got ['y'].\n"
        "  Fix: add transforms['y'], such as optim.set_to_zero().",
        lambda: tx.init(PARAMS),
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: optim.linear_schedule(1.0, 0.0, 0),
            "optim.polynomial_schedule, argument transition_steps: expected more than 0 steps, got 0.\n"
            "  Fix: pass a positive number, or use constant_schedule.",
        ),
        (
            lambda: optim.join_schedules([optim.constant_schedule(1.0)], [3]),
            "optim.join_schedules, argument boundaries: expected 0 steps, got 1.\n"
            "  Fix: pass the first step of each schedule except the first one.",
        ),
        (
            lambda: optim.MultiSteps(optim.sgd(0.1), 0),
            "optim.MultiSteps, argument every_k_schedule: expected at least 1 step, got 0.\n"
            "  Fix: pass 1 to step after every gradient.",
        ),
        (
            lambda: optim.named_chain(("a", optim.identity()), ("a", optim.identity())),
            "optim.named_chain: expected unique names, got ['a', 'a'].\n  Fix: rename one of the pairs named 'a'.",
        ),
        (
            lambda: optim.sgd(0.1).update(1.0, ()),
            "optim.chain, argument state of update: expected a tuple of 2 states, got 0 states.\n"
            "  Fix: create the state with the `init` of this chain.",
        ),
        (
            lambda: optim.add_noise(1.0, 1.0),
            "optim.add_noise: expected one of key and seed, got none.\n  Fix: pass only key=phalanx.random.key(0), or only "
            "seed=0.",
        ),
        (
            lambda: optim.exponential_decay(1.0, 2, 0),
            "optim.exponential_decay, argument decay_rate: expected a rate other than 0, got 0.\n"
            "  Fix: pass a small positive rate such as 1e-6.",
        ),
        (
            lambda: optim.piecewise_constant_schedule(1.0, {2: -1.0}),
            "optim.piecewise_constant_schedule, a scale: expected at least 0, got -1.0.\n  Fix: pass 0 or "
            "a larger number.",
        ),
        (
            lambda: optim.piecewise_interpolate_schedule("steps", 1.0),
            "optim.piecewise_interpolate_schedule, argument interpolate_type: expected 'linear' or 'cosine', got "
            "'steps'.\n  Fix: pass 'linear', or use piecewise_constant_schedule for a staircase.",
        ),
    ],
)
def test_invalid_arguments_are_errors(make, message):
    check_error(ArgumentError, message, make)


def test_an_unknown_static_argument_is_an_error():
    check_error(
        ArgumentTypeError,
        "optim.inject_hyperparams, argument static_args: expected names among ['learning_rate', 'momentum', 'nesterov', "
        "'accumulator_dtype'], got ['rate'].\n  Fix: pass the names of parameters of `inner_factory`.",
        lambda: optim.inject_hyperparams(optim.sgd, static_args="rate"),
    )


def test_integer_labels_are_required():
    check_error(
        DTypeError,
        "optim.softmax_cross_entropy_with_integer_labels, argument labels: expected integers, got float32.\n"
        "  Fix: pass class indices, or use softmax_cross_entropy for probabilities.",
        lambda: optim.softmax_cross_entropy_with_integer_labels(jnp.zeros((2, 3)), jnp.zeros(2)),
    )
