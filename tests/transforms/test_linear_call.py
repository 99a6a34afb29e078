"""`linear_call`: the transpose is the user's; and the halves of `vjp` as compiled functions."""

import numpy as np
import pytest
from phalanx.custom_derivatives import custom_vjp_primal_tree_values

import phalanx
import phalanx.numpy as jnp
from phalanx.core.error_classes import ArgumentTypeError, ShapeError, TreeError
from phalanx.core.source_info import format_code_position
from phalanx.custom_rules import linear_call

calls = []


def forward(r, x):
    return {"y": x["a"] / r + 2 * x["b"]}


def back(r, ct):
    calls.append("back")
    return {"a": ct["y"] / r, "b": 3 * ct["y"]}


def f(r, a, b):
    return linear_call(forward, back, r, {"a": a, "b": b})["y"]


def test_linear_call_uses_the_given_transpose():
    assert float(f(2.0, 4.0, 1.0)) == 4.0
    for g in (phalanx.grad(f, (1, 2)), phalanx.jit(phalanx.grad(f, (1, 2))), phalanx.grad(phalanx.jit(f), (1, 2))):
        assert [float(x) for x in g(2.0, 4.0, 1.0)] == [0.5, 3.0]
    a_bar, b_bar = phalanx.linear_transpose(lambda a, b: f(2.0, a, b), 4.0, 1.0)(1.0)
    assert (float(a_bar), float(b_bar)) == (0.5, 3.0)


def test_jvp_and_residual_derivatives_use_the_function():
    _, y_dot = phalanx.jvp(f, (2.0, 4.0, 1.0), (0.0, 1.0, 1.0))
    assert float(y_dot) == 2.5
    assert float(phalanx.grad(f)(2.0, 4.0, 1.0)) == -1.0
    assert float(phalanx.grad(phalanx.grad(lambda a: f(2.0, a, 1.0) ** 2))(4.0)) == 0.5


def test_double_transpose_is_the_function():
    pull = lambda ct: phalanx.linear_transpose(lambda b: f(2.0, 0.0, b), 1.0)(ct)[0]
    assert float(phalanx.linear_transpose(pull, 1.0)(5.0)[0]) == 10.0


@pytest.mark.parametrize("dims", [(0, None, None), (None, 0, None), (0, 0, 0), (None, None, 0)])
def test_vmap_of_linear_call(dims):
    args = [np.arange(1.0, 4.0) + i if d == 0 else 2.0 + i for i, d in enumerate(dims)]
    examples = [[a if d is None else a[i] for a, d in zip(args, dims, strict=True)] for i in range(3)]
    for g in (f, phalanx.grad(f, (0, 1, 2)), phalanx.jit(phalanx.grad(f, (0, 1, 2)))):
        got = phalanx.tree.leaves(phalanx.vmap(g, dims)(*args))
        want = [phalanx.tree.leaves(g(*e)) for e in examples]
        for i, leaf in enumerate(got):
            np.testing.assert_allclose(leaf, [w[i] for w in want], rtol=1e-6)


def test_linear_call_inside_scan_and_checkpoint():
    def loop(a):
        return phalanx.lax.scan(lambda c, r: (f(r, c, c), None), a, jnp.arange(1.0, 4.0))[0]

    want = np.prod([1 / r + 3 for r in (1.0, 2.0, 3.0)])
    assert float(phalanx.grad(loop)(2.0)) == pytest.approx(want, rel=1e-6)
    assert float(phalanx.jit(phalanx.grad(phalanx.checkpoint(loop)))(2.0)) == pytest.approx(want, rel=1e-6)


def test_functions_may_close_over_arrays():
    k = jnp.arange(3.0)
    g = lambda x: linear_call(lambda r, x: (k * x).sum(), lambda r, ct: ct * k + 1, (), x)
    np.testing.assert_allclose(phalanx.jit(phalanx.grad(g))(jnp.ones(3)), np.arange(3.0) + 1)
    h = lambda x, k: linear_call(lambda r, x: (k * x).sum(), lambda r, ct: ct * jnp.ones(3), (), x)
    np.testing.assert_allclose(phalanx.grad(h, 1)(jnp.full(3, 2.0), k), np.full(3, 2.0))


def test_transpose_is_traced_only_when_needed():
    calls.clear()
    phalanx.jit(f)(2.0, 4.0, 1.0)
    assert not calls
    phalanx.grad(f, 1)(2.0, 4.0, 1.0)
    assert calls == ["back"]


def test_result_of_the_transpose_is_checked():
    one = lambda r, x: x

    def pair(r, ct):
        return {"x": (ct["x"], ct["x"])}

    def wide(r, ct):
        return {"x": jnp.ones(3)}

    with pytest.raises(TreeError) as e:
        phalanx.grad(lambda x: linear_call(one, pair, (), {"x": x})["x"])(1.0)
    assert str(e.value) == (
        f"linear_call, the result['x'] of fun_transpose = {format_code_position(pair)}: expected a leaf, as in "
        "linear_args['x'], got a tuple of length 2.\n"
        "  Fix: return a cotangent, or None, for each leaf of linear_args."
    )
    with pytest.raises(ShapeError) as e:
        phalanx.grad(lambda x: linear_call(one, wide, (), {"x": x})["x"])(1.0)
    assert str(e.value) == (
        f"linear_call, the result['x'] of fun_transpose = {format_code_position(wide)}: expected a cotangent ~f32[] "
        "for linear_args['x'], got f32[3].\n"
        "  Fix: return cotangents of the shapes and dtypes of linear_args."
    )
    with pytest.raises(ArgumentTypeError, match="linear_call, argument fun_transpose"):
        linear_call(one, None, (), 1.0)
    assert float(phalanx.grad(lambda x: linear_call(one, lambda r, ct: None, (), x))(1.0)) == 0.0


def test_fwd_and_bwd_compiles_both_functions():
    traced = []

    def g(x, y):
        traced.append(1)
        return jnp.sin(x) * y, {"aux": x}

    forward, backward = phalanx.fwd_and_bwd(g, argnums=(0, 1), has_aux=True)
    for x in (1.0, 2.0):
        out, residuals, aux = forward(x, 3.0)
        x_bar, y_bar = backward(residuals, 1.0)
        assert float(out) == pytest.approx(np.sin(x) * 3, rel=1e-6)
        assert float(aux["aux"]) == x
        assert float(x_bar) == pytest.approx(np.cos(x) * 3, rel=1e-6)
        assert float(y_bar) == pytest.approx(np.sin(x), rel=1e-6)
    assert len(traced) == 1


def test_custom_vjp_primal_tree_values_reads_the_primals():
    @phalanx.custom_vjp
    def g(x, y):
        return x * y

    def fwd(x, y):
        assert (x.perturbed, y.perturbed) == (True, False)
        x, y = custom_vjp_primal_tree_values((x, y))
        return x * y, (x, y)

    g.defvjp(fwd, lambda held, ct: (10 * ct * held[1], ct * held[0]), symbolic_zeros=True, optimize_remat=True)
    assert float(phalanx.grad(g)(2.0, 3.0)) == 30.0
    with pytest.raises(
        ArgumentTypeError, match="expected arguments of a fwd rule that was defined with symbolic_zeros"
    ):
        custom_vjp_primal_tree_values(1.0)


def test_float0_values_cross_jit_boundaries():
    ints = np.arange(3)
    zeros = np.zeros(3, phalanx.float0)
    g = phalanx.jit(phalanx.grad(lambda i: 1.0 * i.sum(), allow_int=True))(ints)
    for x in (
        g,
        phalanx.jit(lambda z: z)(zeros),
        phalanx.jit(lambda z: z)(g),
        phalanx.lax.cond(True, lambda: zeros, lambda: g),
    ):
        assert x.dtype == phalanx.float0
        assert x.shape == (3,)
        np.testing.assert_array_equal(np.asarray(x), zeros)
    for t in (zeros, g):
        _, y_dot = phalanx.jvp(lambda i, x: i * x, (ints, 2.0), (t, 1.0))
        np.testing.assert_array_equal(y_dot, ints)
        _, y_dot = phalanx.jit(lambda t: phalanx.jvp(lambda i, x: i * x, (ints, 2.0), (t, 1.0)))(t)
        np.testing.assert_array_equal(y_dot, ints)
