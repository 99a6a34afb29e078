"""Each rule is the formula of its paper, written here once more with NumPy; and optax agrees where it is installed."""

import numpy as np
import pytest

import phalanx
from phalanx import optim

RNG = np.random.default_rng(0)
PARAMS = {"w": RNG.normal(size=(6, 4)).astype("f"), "b": {"c": RNG.normal(size=5).astype("f")}}
# Small and large gradients, so that clipping and scaling both have something to do.
GRADS = [
    {"w": RNG.normal(size=(6, 4)).astype("f") * k, "b": {"c": RNG.normal(size=5).astype("f") * k}} for k in (0.3, 1, 9)
]


def steps(tx, params=PARAMS, grads=GRADS, apply=optim.apply_updates, map=phalanx.tree.map, optimize=True):
    """The updates of some steps along given gradients, as lists of NumPy arrays."""
    state, out = tx.init(params), []
    for g in grads:
        updates, state = tx.update(g, state, params)
        params = apply(params, updates) if optimize else params
        out.append(map(np.asarray, updates))
    return out, state


def reference(rule):
    """The same for a rule on one array: `rule(g, p, t, memory)` gives the update, and may write to `memory`."""
    params = {"w": PARAMS["w"].astype("d"), "c": PARAMS["b"]["c"].astype("d")}
    memories, out = {"w": {}, "c": {}}, []
    for t, g in enumerate(GRADS, 1):
        grads = {"w": g["w"].astype("d"), "c": g["b"]["c"].astype("d")}
        updates = {k: rule(grads[k], params[k], t, memories[k]) for k in params}
        params = {k: params[k] + updates[k] for k in params}
        out.append({"w": updates["w"], "b": {"c": updates["c"]}})
    return out


def sgd(g, p, t, m, momentum=0.9, nesterov=False):
    m["t"] = g + momentum * m.get("t", 0)
    return -0.1 * (g + momentum * m["t"] if nesterov else m["t"])


def adam(g, p, t, m, b1=0.9, b2=0.999, eps=1e-8, decay=0.0, rate=0.01, nesterov=False):
    m["m"] = b1 * m.get("m", 0) + (1 - b1) * g
    m["v"] = b2 * m.get("v", 0) + (1 - b2) * g**2
    mean = m["m"] / (1 - b1**t)
    if nesterov:
        mean = b1 * m["m"] / (1 - b1 ** (t + 1)) + (1 - b1) * g / (1 - b1**t)
    return -rate * (mean / (np.sqrt(m["v"] / (1 - b2**t)) + eps) + decay * p)


def amsgrad(g, p, t, m):
    m["m"] = 0.9 * m.get("m", 0) + 0.1 * g
    m["v"] = 0.999 * m.get("v", 0) + 0.001 * g**2
    m["x"] = np.maximum(m.get("x", 0), m["v"] / (1 - 0.999**t))
    return -0.01 * m["m"] / (1 - 0.9**t) / (np.sqrt(m["x"]) + 1e-8)


def adamax(g, p, t, m):
    m["m"] = 0.9 * m.get("m", 0) + 0.1 * g
    m["u"] = np.maximum(np.abs(g) + 1e-8, 0.999 * m.get("u", 0))
    return -0.01 * m["m"] / (1 - 0.9**t) / m["u"]


def lion(g, p, t, m):
    direction = np.sign(0.9 * m.get("m", 0) + 0.1 * g)
    m["m"] = 0.99 * m.get("m", 0) + 0.01 * g
    return -0.01 * (direction + 1e-3 * p)


def lamb(g, p, t, m):
    update = adam(g, p, t, m, eps=1e-6, decay=0.1, rate=-1.0)
    return -0.01 * update * np.linalg.norm(p) / np.linalg.norm(update)


def lars(g, p, t, m):
    g = g + 0.1 * p
    m["t"] = -0.1 * g * 0.001 * np.linalg.norm(p) / np.linalg.norm(g) + 0.9 * m.get("t", 0)
    return m["t"]


def rmsprop(g, p, t, m):
    m["v"] = 0.9 * m.get("v", 0) + 0.1 * g**2
    return -0.01 * g / np.sqrt(m["v"] + 1e-8)


def centred_rmsprop(g, p, t, m):
    m["m"] = 0.9 * m.get("m", 0) + 0.1 * g
    m["v"] = 0.9 * m.get("v", 1) + 0.1 * g**2
    m["t"] = -0.01 * g / np.sqrt(m["v"] - m["m"] ** 2 + 1e-8) + 0.5 * m.get("t", 0)
    return m["t"]


def adagrad(g, p, t, m):
    m["s"] = m.get("s", 0.1) + g**2
    return -0.1 * g / np.sqrt(m["s"] + 1e-7)


def adafactor(g, p, t, m):
    beta = 1 - t**-0.8
    if g.ndim == 2:
        m["r"] = beta * m.get("r", 0) + (1 - beta) * (g**2 + 1e-30).mean(1)
        m["c"] = beta * m.get("c", 0) + (1 - beta) * (g**2 + 1e-30).mean(0)
        update = g / np.sqrt(np.outer(m["r"], m["c"]) / m["r"].mean())
    else:
        m["v"] = beta * m.get("v", 0) + (1 - beta) * (g**2 + 1e-30)
        update = g / np.sqrt(m["v"])
    update /= max(1, np.sqrt((update**2).mean()))
    return -0.01 * update * max(1e-3, np.sqrt((p**2).mean()))


RULES = {
    "sgd": (optim.sgd(0.1), lambda g, p, t, m: -0.1 * g),
    "momentum": (optim.sgd(0.1, 0.9), sgd),
    "nesterov": (optim.sgd(0.1, 0.9, nesterov=True), lambda *a: sgd(*a, nesterov=True)),
    "adam": (optim.adam(0.01), adam),
    "nadam": (optim.nadam(0.01), lambda *a: adam(*a, nesterov=True)),
    "adamw": (optim.adamw(0.01, weight_decay=0.1), lambda *a: adam(*a, decay=0.1)),
    "amsgrad": (optim.amsgrad(0.01), amsgrad),
    "adamax": (optim.adamax(0.01), adamax),
    "lion": (optim.lion(0.01), lion),
    "lamb": (optim.lamb(0.01, weight_decay=0.1), lamb),
    "lars": (optim.lars(0.1, weight_decay=0.1), lars),
    "rmsprop": (optim.rmsprop(0.01), rmsprop),
    "centred": (optim.rmsprop(0.01, centered=True, momentum=0.5, initial_scale=1.0), centred_rmsprop),
    "adagrad": (optim.adagrad(0.1), adagrad),
    "adafactor": (optim.adafactor(0.01, min_dim_size_to_factor=4), adafactor),
    "schedule": (optim.sgd(optim.linear_schedule(1.0, 0.0, 4)), lambda g, p, t, m: -(1 - (t - 1) / 4) * g),
    "ema": (optim.ema(0.9), lambda g, p, t, m: m.update(m=0.9 * m.get("m", 0) + 0.1 * g) or m["m"] / (1 - 0.9**t)),
    "clip": (optim.clip(0.5), lambda g, p, t, m: np.clip(g, -0.5, 0.5)),
    "block": (optim.clip_by_block_rms(0.5), lambda g, p, t, m: g / max(1, np.sqrt((g**2).mean()) / 0.5)),
}


def assert_close(got, expected, rtol=2e-5):
    # The smallest updates are differences of larger numbers, so that they keep fewer digits.
    phalanx.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol, atol=rtol * np.abs(y).max()), got, expected)


@pytest.mark.parametrize("name", RULES)
def test_an_optimizer_implements_its_formula(name):
    tx, rule = RULES[name]
    assert_close(steps(tx)[0], reference(rule))


def test_clipping_by_the_global_norm_keeps_the_direction():
    for updates, g in zip(steps(optim.clip_by_global_norm(1.0))[0], GRADS):
        norm = np.sqrt(sum((x**2).sum() for x in phalanx.tree.leaves(g)))
        assert_close(updates, phalanx.tree.map(lambda x, norm=norm: x / max(1, norm), g))


PEERS = {
    "nadamw": lambda o: o.nadamw(o.cosine_decay_schedule(1.0, 5)),
    "adamaxw": lambda o: o.adamaxw(0.01),
    "amsgrad": lambda o: o.amsgrad(0.01, bias_correction_nu=False),
    "rmsprop": lambda o: o.rmsprop(0.01, eps_in_sqrt=False, bias_correction=True, nesterov=True, momentum=0.5),
    "adafactor": lambda o: o.adafactor(0.01, momentum=0.9, weight_decay_rate=0.01, min_dim_size_to_factor=4),
    "adaptive_grad_clip": lambda o: o.adaptive_grad_clip(0.1),
    "masked": lambda o: o.adamw(0.01, weight_decay=0.1, mask={"w": True, "b": False}),
    "multi_transform": lambda o: o.multi_transform({"x": o.adam(0.01), "y": o.sgd(0.1, 0.9)}, {"w": "x", "b": "y"}),
    "MultiSteps": lambda o: o.MultiSteps(o.adam(0.01), 2, should_skip_update_fn=o.skip_not_finite),
    "apply_every": lambda o: o.chain(o.apply_every(2), o.sgd(0.1)),
    "apply_if_finite": lambda o: o.apply_if_finite(o.adam(0.01), 2),
    "weight_decay_schedule": lambda o: o.adamw(0.01, weight_decay=o.linear_schedule(1.0, 0.0, 3)),
    "inject_hyperparams": lambda o: o.inject_hyperparams(o.adamw)(o.linear_schedule(1.0, 0.0, 3), weight_decay=0.1),
}


@pytest.mark.parametrize("name", PEERS)
def test_optimizers_agree_with_optax(name):
    optax, jax = pytest.importorskip("optax"), pytest.importorskip("jax")
    expected, its_state = steps(PEERS[name](optax), apply=optax.apply_updates, map=jax.tree.map)
    got, state = steps(PEERS[name](optim))
    assert_close(got, expected, rtol=1e-4)
    if name != "inject_hyperparams":  # optax counts each schedule by itself
        assert len(phalanx.tree.leaves(state)) == len(jax.tree.leaves(its_state))


SCHEDULES = {
    "linear": lambda o: o.linear_schedule(1.0, 0.1, 4, transition_begin=2),
    "polynomial": lambda o: o.polynomial_schedule(1.0, 0.1, 2, 6),
    "cosine": lambda o: o.cosine_decay_schedule(2.0, 6, alpha=0.1, exponent=2.0),
    "exponential": lambda o: o.exponential_decay(1.0, 2, 0.5, transition_begin=1, staircase=True, end_value=0.2),
    "growing": lambda o: o.exponential_decay(1.0, 2, 1.5, end_value=2.0),
    "piecewise": lambda o: o.piecewise_constant_schedule(1.0, {2: 0.5, 5: 0.1}),
    "interpolated": lambda o: o.piecewise_interpolate_schedule("cosine", 1.0, {2: 0.5, 5: 0.1}),
    "warm": lambda o: o.warmup_constant_schedule(0.0, 1.0, 3),
    "warm cosine": lambda o: o.warmup_cosine_decay_schedule(0.1, 1.0, 3, 8, 0.2, exponent=1.5),
    "warm exponential": lambda o: o.warmup_exponential_decay_schedule(0.1, 1.0, 3, 2, 0.5),
    "no warm-up": lambda o: o.warmup_cosine_decay_schedule(0.1, 1.0, 0, 8),
    "restarts": lambda o: o.sgdr_schedule([dict(init_value=0.0, peak_value=1.0, decay_steps=4, warmup_steps=2)] * 2),
    "one cycle": lambda o: o.linear_onecycle_schedule(10, 1.0),
    "one cosine": lambda o: o.cosine_onecycle_schedule(10, 1.0),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_agree_with_optax(name):
    optax = pytest.importorskip("optax")
    expected, schedule = SCHEDULES[name](optax), SCHEDULES[name](optim)
    values = [float(expected(t)) for t in range(12)]
    np.testing.assert_allclose([float(schedule(t)) for t in range(12)], values, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(schedule(np.arange(12)), values, rtol=1e-5, atol=1e-7)


LOGITS, LABELS = RNG.normal(size=(3, 4)).astype("f"), np.array([0, 3, 1])
WEIGHTS = RNG.dirichlet(np.ones(4), 3).astype("f")
LOSSES = {
    "squared_error": lambda o: o.squared_error(LOGITS, WEIGHTS),
    "l2_loss": lambda o: o.l2_loss(LOGITS),
    "huber_loss": lambda o: o.huber_loss(3 * LOGITS, WEIGHTS, delta=0.7),
    "log_cosh": lambda o: o.log_cosh(LOGITS, WEIGHTS),
    "softmax_cross_entropy": lambda o: o.softmax_cross_entropy(LOGITS, WEIGHTS),
    "masked cross entropy": lambda o: o.softmax_cross_entropy(LOGITS, WEIGHTS, where=WEIGHTS > 0.1),
    "integer labels": lambda o: o.softmax_cross_entropy_with_integer_labels(LOGITS, LABELS),
    "integer labels, axis 0": lambda o: o.softmax_cross_entropy_with_integer_labels(LOGITS.T, LABELS, axis=0),
    "sigmoid": lambda o: o.sigmoid_binary_cross_entropy(LOGITS, WEIGHTS),
    "hinge_loss": lambda o: o.hinge_loss(LOGITS, np.sign(WEIGHTS - 0.3)),
    "kl_divergence": lambda o: o.kl_divergence(np.log(WEIGHTS), np.eye(4, dtype="f")[:3]),
    "cosine_distance": lambda o: o.cosine_distance(LOGITS, WEIGHTS),
    "smooth_labels": lambda o: o.smooth_labels(WEIGHTS, 0.1),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_agree_with_optax(name):
    optax = pytest.importorskip("optax")
    np.testing.assert_allclose(LOSSES[name](optim), LOSSES[name](optax), rtol=1e-5, atol=1e-6)
