"""Loops of draws: the numbers of a part of an array are those that it has in the whole, under vmap too."""

from __future__ import annotations

import numpy as np
import pytest
from tests.lax import laws
from tests.lax.cases import Case

import phalanx
from phalanx import random
from phalanx.core.error_classes import RuleError, ShapeError
from phalanx.core.primitive import registry
from phalanx.lax.prng.key_words import random_unwrap_p
from phalanx.random.continuous_distributions import gamma_rounds_p
from phalanx.random.prng_implementations import position_counters
from phalanx.random.rejection_sampling import Positions, RejectionLoop, bits_at

A = np.linspace(0.5, 4, 24, dtype=np.float32).reshape(4, 6)
DONE = A > 3
PARAMETERS = {
    "random_gamma_rounds": (A, 1 / A, A, 0 * A, DONE),
    "random_poisson_by_waiting": (A, DONE),
    "random_poisson_by_rejection": (10 * A + 10, DONE),
    "random_binomial_by_waiting": (np.round(5 * A), A / 10, DONE),
    "random_binomial_by_rejection": (np.round(A) + 100, A / 10 + 0.1, DONE),
}
KEY = random.key(5)


def case(name, impl):
    key = random.key(5, impl=impl)
    dtype, words = key.dtype, np.asarray(random_unwrap_p(random.split(key, 2)))
    high, low = position_counters(A.shape)
    params = [np.stack([p, p]) for p in PARAMETERS[name]]
    return Case(
        registry[name],
        (words, np.uint32(high), np.asarray(low), *params),
        {"dtype": dtype, "whole": A.shape, "partitionable": True},
        name=name,
    )


@pytest.mark.one_is_quick(group=lambda name, impl: impl)
@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
@pytest.mark.parametrize("name", PARAMETERS)
def test_shards_make_the_whole_sample(name, impl):
    laws.check_result(case(name, impl))
    laws.check_roles(case(name, impl))


def test_every_loop_has_parameters():
    loops = {name for name, p in registry.items() if isinstance(p, RejectionLoop)}
    assert loops == set(PARAMETERS)


def test_bits_at_positions_equal_the_bits_of_the_whole():
    for width in (8, 16, 32, 64):
        with phalanx.enable_x64():
            whole = bits_at(KEY, width, (4, 6))
            part = bits_at(KEY, width, Positions(np.uint32(0), position_counters((4, 6))[1][1:3, 2:]))
            np.testing.assert_array_equal(part, whole[1:3, 2:])


@pytest.mark.one_is_quick(group=lambda impl: "a kind")
@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_mapped_examples_equal_single_ones(impl):
    keys = random.split(random.key(1, impl=impl), 3)
    draws = {
        "keys": (lambda k: random.gamma(k, A), (0,), (keys,)),
        "parameters": (lambda a: random.poisson(keys[0], 5 * a), (1,), (A,)),
        "both": (lambda k, a: random.binomial(k, 10.0, a / 5, (2, 6)), (0, 0), (keys, A[:3])),
    }
    for name, (draw, dims, args) in draws.items():
        got = phalanx.jit(phalanx.vmap(draw, dims))(*args)
        for i in range(3):
            one = [np.moveaxis(x, d, 0)[i] if isinstance(x, np.ndarray) else x[i] for x, d in zip(args, dims)]
            np.testing.assert_allclose(got[i], draw(*one), rtol=1e-5, err_msg=name)


def test_mismatched_shapes_raise():
    with pytest.raises(ShapeError) as error:
        gamma_rounds_p.sample(KEY, A, A[0], A, A, DONE)
    assert str(error.value) == (
        "random_gamma_rounds: expected parameters of shape (4, 6), got f32[6].\n  Fix: broadcast each parameter to (4, 6) with lax.broadcast_in_dim."
    )
    with pytest.raises(RuleError, match="expected a jvp rule, got none.\n  Fix: samples are differentiated with"):
        phalanx.jvp(lambda a: gamma_rounds_p.sample(KEY, a, a, a, a, DONE), (A,), (A,))
