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


def test_the_parameters_of_a_while_equation_have_the_names_that_interpreters_of_jaxprs_read():
    y = jnp.arange(3)
    loop = lambda x: lax.while_loop(lambda c: c < y[0], lambda c: c + y[1], x)
    (eqn,) = [e for e in phalanx.make_jaxpr(lambda x: loop(x))(0).eqns if e.primitive.name == "while"]
    assert set(eqn.params) == {"cond_jaxpr", "body_jaxpr", "cond_nconsts", "body_nconsts"}
    assert [len(eqn.params[f"{part}_jaxpr"].in_avals) - eqn.params[f"{part}_nconsts"] for part in ("cond", "body")] == [
        1,
        1,
    ]
