"""`jet` computes the derivatives that nested `jvp` computes."""

import numpy as np
import pytest
from phalanx.experimental.jet import fact, jet, zero_series

import phalanx
import phalanx.numpy as jnp
from phalanx import lax, nn
from phalanx.core.error_classes import ArgumentError

FUNCTIONS = {
    "sin": jnp.sin,
    "exp": jnp.exp,
    "tanh": jnp.tanh,
    "log": lambda x: jnp.log(x + 2),
    "power": lambda x: (x + 2) ** 1.7,
    "integer power": lambda x: x**5,
    "quotient": lambda x: (x + 1) / (x * x + 2),
    "sqrt": lambda x: jnp.sqrt(x + 3),
    "logistic": nn.sigmoid,
    "relu": nn.relu,
    "logsumexp": nn.logsumexp,
    "matrix product": lambda x: jnp.sin(x[None] * x[:, None]) @ x,
    "convolution": lambda x: jnp.convolve(x, x * x),
    "maximum": jnp.max,
    "cumsum": lambda x: jnp.cumsum(x * x),
    "indexing": lambda x: x[jnp.array([2, 0])] * x[1],
    "where": lambda x: jnp.where(x > 0, x * x, jnp.sin(x)),
    "fft": lambda x: jnp.abs(jnp.fft.fft(x)),
    "determinant": lambda x: jnp.linalg.det(jnp.outer(x, x) + jnp.eye(3)),
    "jit": phalanx.jit(lambda x: jnp.sin(x) * x),
    "checkpoint": phalanx.checkpoint(lambda x: jnp.sin(x) * x),
    "custom_jvp": nn.silu,
    "scan": lambda x: lax.scan(lambda c, y: (jnp.sin(c) * y, c), x[0], x)[1],
    "cond": lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x),
    "constant": lambda x: jnp.sign(x) + 1,
}
SLOW = {"determinant", "scan", "cond", "fft", "logsumexp", "matrix product", "maximum", "indexing", "relu"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in FUNCTIONS])
def test_derivatives_along_a_path_are_those_of_nested_jvp(name):
    f, order = FUNCTIONS[name], 3
    x, v, a = jnp.array([0.3, -0.7, 1.1]), jnp.array([1.0, -0.5, 0.8]), jnp.array([0.2, 0.4, -0.6])
    path = lambda t: f(x + v * t + a * t * t / 2)

    @phalanx.jit
    def nested():
        g, found = path, []
        for _ in range(order + 1):
            found.append(g(0.0))
            g = lambda t, g=g: phalanx.jvp(g, (t,), (1.0,))[1]
        return found

    y, terms = phalanx.jit(lambda: jet(f, (x,), ((v, a, jnp.zeros(3)),)))()
    assert len(terms) == order
    for ours, expected in zip([y, *terms], nested(), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)


def test_several_arguments_and_a_pytree_of_results():
    f = lambda x, y: {"product": x * y, "first": x, "fixed": jnp.ones(2)}
    primals, series = jet(f, (2.0, 3.0), ((1.0, 4.0), (5.0, 6.0)))
    assert float(primals["product"]) == 6.0
    assert [float(d) for d in series["product"]] == [3.0 + 10.0, 4 * 3 + 2 * 1 * 5 + 2 * 6]
    assert [float(d) for d in series["first"]] == [1.0, 4.0]
    assert [d.tolist() for d in series["fixed"]] == [[0.0, 0.0], [0.0, 0.0]]
    _, coefficients = jet(jnp.exp, (0.0,), ((1.0, 0.0, 0.0),), factorial_scaled=False)
    np.testing.assert_allclose(coefficients, [1, 1 / 2, 1 / 6], rtol=1e-6)


def test_it_can_be_differentiated_and_mapped():
    third = lambda x: jet(jnp.sin, (x,), ((1.0, 0.0, 0.0),))[1][2]
    xs = jnp.array([0.1, 0.2])
    np.testing.assert_allclose(phalanx.vmap(third)(xs), -np.cos(xs), rtol=1e-5)
    np.testing.assert_allclose(phalanx.grad(third)(0.5), np.sin(0.5), rtol=1e-5)


def test_the_program_grows_polynomially_with_the_order():
    f = lambda x: jnp.tanh(x) / jnp.sqrt(1 + jnp.exp(jnp.sin(x)))

    def size(order):
        return len(phalanx.make_jaxpr(lambda x: jet(f, (x,), ((1.0,) + (0.0,) * (order - 1),)))(0.5).eqns)

    assert size(12) < 16 * size(6)


def test_errors():
    with pytest.raises(ArgumentError) as e:
        jet(jnp.add, (1.0, 2.0), ((1.0,), (1.0, 2.0)))
    assert str(e.value) == (
        "jet, argument series: expected 2 lists of one length, one for each argument, got lists of lengths [1, 2].\n"
        "  Fix: pad the shorter lists with zeros."
    )
    with pytest.raises(ValueError, match="jet, argument 0 of fun: expected an array"):
        jet(lambda x: x[0], ((1.0,),), ((1.0,),))


def test_an_argument_may_stand_still():
    y, (dy, d2y) = jet(jnp.multiply, (2.0, 3.0), ((1.0, 5.0), zero_series))
    assert [float(y), float(dy), float(d2y)] == [6, 3, 15]
    assert float(fact(5)) == pytest.approx(120, rel=1e-5)
