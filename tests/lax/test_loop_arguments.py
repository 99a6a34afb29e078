"""Arguments of `scan` that choose how its loop is compiled."""

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.core.error_classes import ArgumentError


@pytest.mark.parametrize("unroll", [0, True, False, 1, 2, 7])
def test_every_unrolling_computes_the_same(unroll):
    f = phalanx.jit(lambda xs: lax.scan(lambda c, x: (c + x, c * x), 1.0, xs, unroll=unroll))
    carry, ys = f(jnp.arange(4.0))
    assert float(carry) == 7.0
    np.testing.assert_array_equal(ys, [0, 1, 4, 12])
    assert ("stablehlo.while" in f.lower(jnp.arange(4.0)).as_text()) == (
        unroll is False or (unroll in (1, 2) and unroll is not True)
    )


def test_a_negative_unrolling_is_refused():
    with pytest.raises(ArgumentError) as error:
        lax.scan(lambda c, x: (c, x), 0.0, jnp.arange(4.0), unroll=-1)
    assert str(error.value) == (
        "scan, argument unroll: expected an int of at least 0, or a bool, got -1.\n  Fix: pass unroll=1."
    )
