"""Derivatives: forward, reverse, mixed and repeated, against formulas and numerical differences."""

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx.core.errors import ArgumentError, ArgumentTypeError, DTypeError, TreeError


def f(x):
    return jnp.sin(x) * jnp.exp(-x * x)


def df(x):
    return np.exp(-x * x) * (np.cos(x) - 2 * x * np.sin(x))


POINTS = [-1.3, 0.2, 0.9]


@pytest.mark.parametrize("x", POINTS)
def test_grad_is_the_derivative(x):
    np.testing.assert_allclose(phalanx.grad(f)(x), df(x), rtol=1e-5)


@pytest.mark.parametrize("x", POINTS)
def test_every_mode_gives_the_same_derivative(x):
    y, y_dot = phalanx.jvp(f, (x,), (1.0,))
    _, push = phalanx.linearize(f, x)
    _, pull = phalanx.vjp(f, x)
    want = df(x)
    for got in (
        y_dot,
        push(1.0),
        pull(1.0)[0],
        phalanx.jacfwd(f)(x),
        phalanx.jacrev(f)(x),
        phalanx.jit(phalanx.grad(f))(x),
    ):
        np.testing.assert_allclose(got, want, rtol=1e-5)
    np.testing.assert_allclose(y, np.sin(x) * np.exp(-x * x), rtol=1e-5)


@pytest.mark.parametrize("order", [2, 3])
def test_derivatives_of_higher_order(order):
    g = jnp.sin
    for _ in range(order):
        g = phalanx.grad(g)
    want = {2: -np.sin(0.7), 3: -np.cos(0.7)}[order]
    np.testing.assert_allclose(g(0.7), want, rtol=1e-5)
    np.testing.assert_allclose(phalanx.jit(g)(0.7), want, rtol=1e-5)


def test_forward_over_reverse_and_reverse_over_forward_agree():
    x = np.array([0.3, -0.5, 1.1], np.float32)

    def g(v):
        return jnp.sum(jnp.sin(v) * jnp.cumsum(v) ** 2)

    want = phalanx.hessian(g)(x)
    np.testing.assert_allclose(phalanx.jacrev(phalanx.jacfwd(g))(x), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(phalanx.jacrev(phalanx.jacrev(g))(x), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(want, np.asarray(want).T, rtol=1e-4, atol=1e-5)


def test_python_control_flow_on_concrete_values_under_grad():
    def g(x):
        return x * x if x > 0 else -3.0 * x

    assert float(phalanx.grad(g)(2.0)) == 4.0
    assert float(phalanx.grad(g)(-2.0)) == -3.0
    assert float(phalanx.grad(phalanx.grad(g))(2.0)) == 2.0


def test_gradients_of_trees():
    params = {"w": np.ones((2, 3), np.float32), "b": (np.zeros(3, np.float32), None)}

    def loss(p, x):
        return jnp.sum((x @ p["w"] + p["b"][0]) ** 2)

    x = np.arange(4, dtype=np.float32).reshape(2, 2)
    value, g = phalanx.value_and_grad(loss)(params, x)
    y = x @ params["w"]
    np.testing.assert_allclose(value, (y**2).sum(), rtol=1e-6)
    np.testing.assert_allclose(g["w"], x.T @ (2 * y), rtol=1e-6)
    np.testing.assert_allclose(g["b"][0], (2 * y).sum(0), rtol=1e-6)
    assert g["b"][1] is None


def test_argnums_choose_arguments():
    def g(a, b, c):
        return a * b + b * c

    assert [float(v) for v in phalanx.grad(g, (0, 2))(2.0, 3.0, 5.0)] == [3.0, 3.0]
    assert float(phalanx.grad(g, -1)(2.0, 3.0, 5.0)) == 3.0


def test_aux_values_are_returned_beside_the_derivative():
    def g(x):
        return x * x, {"twice": 2 * x}

    gradient, aux = phalanx.grad(g, has_aux=True)(3.0)
    assert float(gradient) == 6.0 and float(aux["twice"]) == 6.0
    (value, aux), gradient = phalanx.value_and_grad(g, has_aux=True)(3.0)
    assert float(value) == 9.0 and float(aux["twice"]) == 6.0
    out, out_dot, aux = phalanx.jvp(g, (3.0,), (1.0,), has_aux=True)
    assert (float(out), float(out_dot), float(aux["twice"])) == (9.0, 6.0, 6.0)
    out, pull, aux = phalanx.vjp(g, 3.0, has_aux=True)
    assert (float(out), float(pull(1.0)[0]), float(aux["twice"])) == (9.0, 6.0, 6.0)


def test_complex_derivatives():
    z = np.complex64(1 + 2j)
    np.testing.assert_allclose(phalanx.grad(lambda v: v * v, holomorphic=True)(z), 2 * z, rtol=1e-6)
    # A real function of a complex number: the conjugate of the direction of steepest ascent.
    np.testing.assert_allclose(phalanx.grad(lambda v: jnp.abs(v) ** 2)(z), 2 * np.conj(z), rtol=1e-5)


def test_integers_have_float0_gradients_where_allowed():
    g = phalanx.grad(lambda x, n: x * n, (0, 1), allow_int=True)(2.0, 3)
    assert float(g[0]) == 3.0
    assert np.asarray(g[1]).dtype == phalanx.float0


def test_linear_transpose_needs_shapes_only():
    shape = phalanx.ShapeDtypeStruct((3,), "float32")
    (got,) = phalanx.linear_transpose(lambda x: 2 * jnp.cumsum(x), shape)(np.ones(3, np.float32))
    np.testing.assert_allclose(got, [6, 4, 2])


def test_vjp_function_can_leave_a_compiled_function():
    _, pull = phalanx.jit(lambda x: phalanx.vjp(jnp.sin, x))(0.5)
    np.testing.assert_allclose(pull(1.0)[0], np.cos(0.5), rtol=1e-6)


def test_unused_arguments_have_zero_gradients():
    g = phalanx.grad(lambda a, b: a * 2.0, (0, 1))(1.0, np.ones(3, np.float32))
    np.testing.assert_allclose(g[1], np.zeros(3))


def test_errors_say_what_to_do():
    with pytest.raises(ArgumentError) as e:
        phalanx.grad(lambda x: x * 2)(np.ones(3, np.float32))
    assert "expected a scalar, got f32[3]." in str(e.value)
    assert "reduce it with .sum() or .mean()" in str(e.value)
    with pytest.raises(DTypeError) as e:
        phalanx.grad(lambda x: x * 1.0)(3)
    assert str(e.value) == (
        "grad, argument[0]: expected a real or complex floating-point dtype, got ~i32[].\n"
        "  To mend: convert the argument to float32, choose others by argnums, or pass allow_int=True."
    )
    with pytest.raises(TreeError) as e:
        phalanx.jvp(lambda x: x["a"], ({"a": 1.0},), ({"b": 1.0},))
    assert "expected the structure of primals" in str(e.value)
    with pytest.raises(ArgumentTypeError) as e:
        phalanx.jvp(lambda x: x, 1.0, (1.0,))
    assert str(e.value) == (
        "jvp, argument primals: expected a tuple or list of arguments, got a float.\n  To mend: wrap it: (primal,)."
    )
    with pytest.raises(DTypeError) as e:
        phalanx.jvp(jnp.sin, (np.ones(3, np.float32),), (np.ones(2, np.float32),))
    assert str(e.value) == (
        "jvp, tangents[0]: expected a tangent of type f32[3], got f32[2].\n"
        "  To mend: give tangents of the shape and dtype of the primals (float0 zeros for integers)."
    )
    with pytest.raises(ArgumentError) as e:
        phalanx.grad(jnp.sin, 3)(1.0)
    assert "expected positions below 1, the number of positional arguments, got 3." in str(e.value)
