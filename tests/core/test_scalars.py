"""Integers that Python wrote are refused where they do not fit, wherever they enter: nothing wraps around in silence."""

import pytest

import phalanx
import phalanx.numpy as jnp

LARGE = 2**40


@pytest.mark.parametrize(
    "use",
    [
        lambda: jnp.ones(2, "int32") + LARGE,
        lambda: jnp.asarray(LARGE),
        lambda: jnp.asarray(LARGE, "uint32"),
        lambda: phalanx.jit(lambda x: x + 1)(LARGE),
        lambda: phalanx.jit(lambda x: x + LARGE)(jnp.ones(2, "int32")),
        lambda: jnp.where(True, LARGE, 1),
        lambda: phalanx.lax.add(jnp.ones(2, "int32"), LARGE),
    ],
)
def test_an_integer_that_does_not_fit_is_refused(use):
    with pytest.raises(OverflowError, match="1099511627776"):
        use()


def test_an_integer_that_fits_the_other_operand_is_taken():
    assert (jnp.ones(2, "uint32") + 3_000_000_000).tolist() == [3_000_000_001] * 2
    assert (jnp.ones(2, "float32") + LARGE).tolist() == [float(LARGE)] * 2
    with phalanx.enable_x64(True):
        assert (jnp.ones(2, "int64") + LARGE).tolist() == [LARGE + 1] * 2
