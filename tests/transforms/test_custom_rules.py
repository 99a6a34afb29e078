"""Functions that bring their own derivative or batching rules."""

import functools
import re

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.core.error_classes import ArgumentTypeError, ShapeError, TraceError, TreeError, UnexpectedTracerError
from phalanx.core.source_info import find_user_frame, format_code_position, split_source

X = np.array([0.5, -1.0, 2.0], np.float32)


def make_jvp():
    @phalanx.custom_jvp
    def f(x, y):
        return jnp.sin(x) * y

    @f.defjvp
    def f_jvp(primals, tangents):
        (x, y), (x_dot, y_dot) = primals, tangents
        return f(x, y), 10 * x_dot * jnp.cos(x) * y + 100 * y_dot * jnp.sin(x)

    return f


def make_vjp():
    @phalanx.custom_vjp
    def f(x, y):
        return jnp.sin(x) * y

    def bwd(residuals, ct):
        x, y = residuals
        return 10 * ct * jnp.cos(x) * y, 100 * ct * jnp.sin(x)

    f.defvjp(lambda x, y: (f(x, y), (x, y)), bwd)
    return f


MAKERS = [make_jvp, make_vjp]
WANT = (10 * np.cos(0.5) * 3, 100 * np.sin(0.5))


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    "around",
    [lambda g: g, phalanx.jit, lambda f: phalanx.jit(phalanx.jit(f)), phalanx.checkpoint],
    ids=["eager", "jit", "nested", "checkpoint"],
)
def test_custom_rule_replaces_the_derivative(make, around):
    f = around(make())
    for transform in (lambda g: g, phalanx.jit):
        np.testing.assert_allclose(transform(phalanx.grad(f, (0, 1)))(0.5, 3.0), WANT, rtol=1e-5)
    np.testing.assert_allclose(f(0.5, 3.0), np.sin(0.5) * 3, rtol=1e-5)


@pytest.mark.parametrize("make", MAKERS)
def test_custom_rule_applies_inside_scan_and_cond(make):
    f = make()

    def looped(x):
        return lax.scan(lambda c, _: (f(c, 1.0), None), x, None, length=2)[0]

    want = 10 * np.cos(np.sin(0.5)) * 10 * np.cos(0.5)
    np.testing.assert_allclose(phalanx.grad(looped)(0.5), want, rtol=1e-5)
    np.testing.assert_allclose(phalanx.jit(phalanx.grad(looped))(0.5), want, rtol=1e-5)
    branched = phalanx.grad(lambda x: lax.cond(x > 0, lambda v: f(v, 3.0), lambda v: v, x))
    np.testing.assert_allclose(branched(0.5), WANT[0], rtol=1e-5)


@pytest.mark.parametrize("make", MAKERS)
def test_vmap_maps_the_custom_rule(make):
    f = make()
    got = phalanx.vmap(phalanx.grad(f), (0, None))(X, 3.0)
    np.testing.assert_allclose(got, 10 * np.cos(X) * 3, rtol=1e-5)
    summed = phalanx.grad(lambda x, y: jnp.sum(phalanx.vmap(f, (0, None))(x, y)), (0, 1))
    for transform in (lambda g: g, phalanx.jit):
        gx, gy = transform(summed)(X, 3.0)
        np.testing.assert_allclose(gx, 10 * np.cos(X) * 3, rtol=1e-5)
        np.testing.assert_allclose(gy, 100 * np.sin(X).sum(), rtol=1e-4)


def test_forward_mode_of_custom_vjp_is_refused():
    f = make_vjp()

    def forward(x):
        return phalanx.jvp(lambda x: f(x, 3.0), (x,), (1.0,))[1]

    line = forward.__code__.co_firstlineno + 1
    place = f", at {__file__}:{line}:37 (test_forward_mode_of_custom_vjp_is_refused.<locals>.forward.<locals>.<lambda>)"
    # A program that is staged may still be transposed, so that only compiling it is refused.
    for run, where in ((forward, ""), (phalanx.jit(forward), place), (phalanx.grad(forward), "")):
        with pytest.raises(TraceError) as e:
            run(0.5)
        assert str(e.value) == (
            f"forward-mode differentiation (jvp){where}: expected functions with a forward-mode derivative, got a "
            "custom_vjp function, which defines reverse mode only.\n"
            "  Fix: define the function with custom_jvp, or differentiate in reverse mode (grad, vjp, jacrev)."
        )
    pushed = phalanx.jit(lambda t: phalanx.jvp(f, (0.5, 3.0), (t, 0.0))[1])
    np.testing.assert_allclose(phalanx.linear_transpose(pushed, 1.0)(1.0)[0], WANT[0], rtol=1e-5)


def test_nondiff_arguments_are_passed_to_the_rule_first():
    @functools.partial(phalanx.custom_jvp, nondiff_argnums=(0,))
    def apply(fun, x):
        return fun(x)

    apply.defjvp(lambda fun, primals, tangents: (apply(fun, *primals), 7 * tangents[0]))
    assert float(phalanx.grad(lambda x: apply(jnp.sin, x))(1.0)) == 7.0

    @functools.partial(phalanx.custom_vjp, nondiff_argnums=(1,))
    def power(x, n):
        return x**n

    power.defvjp(lambda x, n: (power(x, n), x), lambda n, x, ct: (ct * n * 1000,))
    assert float(phalanx.grad(lambda x: power(x, 2))(1.0)) == 2000.0


def test_defjvps_defines_one_rule_per_argument():
    @phalanx.custom_jvp
    def f(x, y):
        return x * y

    f.defjvps(lambda t, out, x, y: 2 * t * y, None)
    assert [float(g) for g in phalanx.grad(f, (0, 1))(3.0, 5.0)] == [10.0, 0.0]


def test_symbolic_zeros_are_passed_to_the_rule():
    seen = []

    @phalanx.custom_jvp
    def f(x, y):
        return x * y

    def rule(primals, tangents):
        seen.append([type(t).__name__ for t in tangents])
        return f(*primals), tangents[0]

    f.defjvp(rule, symbolic_zeros=True)
    phalanx.grad(f)(3.0, 5.0)
    assert seen[0][1] == "SymbolicZero"


def test_custom_gradient_and_closure_convert():
    f = phalanx.custom_gradient(lambda x: (jnp.sin(x), lambda g: 5 * g * jnp.cos(x)))
    np.testing.assert_allclose(phalanx.grad(f)(0.3), 5 * np.cos(0.3), rtol=1e-6)

    def outer(y):
        g, consts = phalanx.closure_convert(lambda x: x * y, 1.0)
        assert len(consts) == 1
        return g(3.0, *consts)

    assert float(phalanx.grad(outer)(2.0)) == 3.0
    f, consts = phalanx.closure_convert(lambda x: x["a"] + 1, {"a": 2.0})
    with pytest.raises(TypeError, match=r"converted <lambda>.*, args: expected a tuple of length 1"):
        f({"a": 2.0}, consts)


def test_custom_vmap_rule_and_its_derivatives():
    @phalanx.custom_batching.custom_vmap
    def f(x, y):
        return x * y

    @f.def_vmap
    def rule(size, batched, x, y):
        assert size == 3 and batched == [True, False]
        return x * y + 100, True

    np.testing.assert_allclose(phalanx.vmap(f, (0, None))(X, 2.0), X * 2 + 100)
    assert float(phalanx.grad(f)(3.0, 2.0)) == 2.0


def test_missing_or_malformed_rules_are_refused():
    @phalanx.custom_jvp
    def f(x):
        return x

    with pytest.raises(AttributeError, match="a custom_jvp function with a derivative rule, got one without a rule"):
        f(1.0)
    f.defjvp(lambda p, t: p[0])
    with pytest.raises(ArgumentTypeError, match=r"expected a pair \(result, tangent\)"):
        phalanx.grad(f)(1.0)

    @phalanx.custom_vjp
    def g(x, y):
        return x * y

    g.defvjp(lambda x, y: (g(x, y), None), lambda res, ct: (ct,))
    with pytest.raises(TreeError, match="a tuple of 2 cotangents"):
        phalanx.grad(g)(1.0, 2.0)


def test_a_keyword_only_parameter_may_keep_its_default():
    wrapped = phalanx.custom_jvp(lax.sin)  # which has the keyword `accuracy`
    wrapped.defjvp(lambda primals, tangents: (lax.sin(*primals), lax.mul(tangents[0], 3.0)))
    assert float(phalanx.grad(wrapped)(1.0)) == 3.0


def test_none_in_a_result_has_no_tangent():
    @phalanx.custom_jvp
    def f(d):
        return {"out": d["a"] * d["b"], "none": None}

    f.defjvp(lambda p, t: (f(*p), {"out": 2 * t[0]["a"] * p[0]["b"], "none": None}))
    y, y_dot = phalanx.jvp(f, ({"a": 2.0, "b": 3.0},), ({"a": 1.0, "b": 1.0},))
    assert y["none"] is None and y_dot["none"] is None and float(y_dot["out"]) == 6.0


def test_tangents_of_another_structure_are_refused():
    @phalanx.custom_jvp
    def f(x):
        return {"y": x, "z": (x, x)}

    @f.defjvp
    def f_jvp(p, t):
        return f(*p), {"y": t[0], "z": [t[0]]}

    with pytest.raises(TreeError) as e:
        phalanx.jvp(f, (1.0,), (1.0,))
    assert str(e.value) == (
        f"jvp rule {format_code_position(f_jvp)} of f, tangent['z']: expected a tuple of length 2, as in the "
        "result['z'], got a list of length 1.\n"
        "  Fix: return one tangent for each leaf of the result."
    )


def test_tangents_of_another_type_are_refused():
    f = phalanx.custom_jvp(lambda x: {"y": x})

    @f.defjvp
    def f_jvp(p, t):
        return f(*p), {"y": jnp.ones(3)}

    with pytest.raises(ArgumentTypeError) as e:
        phalanx.jvp(f, (1.0,), (1.0,))
    assert str(e.value) == (
        f"jvp rule {format_code_position(f_jvp)} of <lambda>, tangent['y']: expected type ~f32[], as the result['y'] "
        "has, got f32[3].\n"
        "  Fix: convert the tangent to the shape and dtype of its result."
    )


def test_cotangents_of_another_structure_or_shape_are_refused():
    @phalanx.custom_vjp
    def f(params, x):
        return params["w"] * x

    def bwd(residuals, ct):
        return {"v": ct}, ct

    f.defvjp(lambda params, x: (f(params, x), None), bwd)
    with pytest.raises(TreeError) as e:
        phalanx.grad(f)({"w": 2.0}, 3.0)
    assert str(e.value) == (
        f"bwd rule {format_code_position(bwd)} of f, the cotangent of argument params: expected a dict with keys "
        "['w'], as in argument params, got a dict with keys ['v'].\n"
        "  Fix: return a cotangent for each leaf of the argument."
    )
    wide = lambda residuals, ct: ({"w": jnp.ones(3)}, ct)
    f.defvjp(lambda params, x: (f(params, x), None), wide)
    with pytest.raises(ShapeError) as e:
        phalanx.grad(f)({"w": 2.0}, 3.0)
    assert str(e.value) == (
        f"bwd rule {format_code_position(wide)} of f, the cotangent of argument params['w']: expected type ~f32[], as "
        "the argument has, got f32[3].\n"
        "  Fix: return a cotangent of shape []."
    )


def test_custom_vmap_rule_with_another_structure_is_refused():
    @phalanx.custom_batching.custom_vmap
    def f(x):
        return x, x

    @f.def_vmap
    def rule(size, batched, x):
        return (x, (x, x)), True

    with pytest.raises(TreeError) as e:
        phalanx.vmap(f)(X)
    assert str(e.value) == (
        f"vmap rule {format_code_position(rule)} of f, result[1]: expected a leaf, as in the result[1] of "
        f"{format_code_position(f.fun)}, got a tuple of length 2.\n"
        "  Fix: return a result with the structure that the function returns."
    )


def test_none_is_the_zero_cotangent_of_a_subtree():
    f = phalanx.custom_vjp(lambda d: d["x"] * d["rest"]["a"])
    f.defvjp(lambda d: (f(d), d["rest"]["a"]), lambda a, g: ({"x": g * a, "rest": None},))
    out = phalanx.grad(f)({"x": 2.0, "rest": {"a": 3.0, "b": jnp.ones(2)}})
    assert float(out["x"]) == 3.0 and float(out["rest"]["a"]) == 0.0 and out["rest"]["b"].tolist() == [0.0, 0.0]


def test_custom_root_differentiates_through_closed_over_values():
    def root(a):
        solve = lambda f, guess: {"x": jnp.sqrt(a), "y": a}
        along = lambda g, y: {"x": y["x"] / g({"x": 1.0, "y": 0.0})["x"], "y": y["y"]}
        f = lambda d: {"x": d["x"] ** 2 - a, "y": d["y"] - a}
        return phalanx.lax.custom_root(f, {"x": 1.0, "y": 1.0}, solve, along)

    for jacobian in (phalanx.jacrev(root)(4.0), phalanx.jacfwd(root)(4.0), phalanx.jit(phalanx.jacrev(root))(4.0)):
        assert [round(float(jacobian[k]), 5) for k in "xy"] == [0.25, 1.0]
    assert round(float(phalanx.grad(phalanx.grad(lambda a: root(a)["x"]))(4.0)), 5) == -0.03125


@functools.partial(phalanx.custom_jvp, nondiff_argnums=(1,))
def scaled(x, n):
    return x * n


scaled.defjvp(lambda n, primals, tangents: (scaled(*primals, n), 10 * n * tangents[0]))


def test_nondiff_arguments_of_custom_jvp_may_be_traced():
    v = np.arange(3.0, dtype=np.float32)
    assert float(phalanx.jit(scaled)(2.0, 3.0)) == 6.0
    assert float(phalanx.jit(phalanx.grad(scaled))(2.0, 3)) == float(phalanx.grad(phalanx.jit(scaled))(2.0, 3)) == 30.0
    assert [float(g) for g in phalanx.grad(scaled, (0, 1))(2.0, 3.0)] == [30.0, 0.0]
    assert float(phalanx.grad(lambda x: scaled(x, x))(2.0)) == 20.0
    assert float(phalanx.jvp(lambda n: scaled(2.0, n), (3.0,), (1.0,))[1]) == 0.0
    # Neither the value nor the rule has a derivative in them, of any order.
    assert float(phalanx.grad(phalanx.grad(scaled), 1)(2.0, 3.0)) == 0.0
    assert float(phalanx.jit(phalanx.grad(phalanx.grad(scaled), 1))(2.0, 3.0)) == 0.0
    assert phalanx.vmap(lambda n: scaled(2.0, n))(v).tolist() == [0, 2, 4]
    assert phalanx.vmap(phalanx.grad(scaled))(v, v).tolist() == [0, 10, 20]
    assert phalanx.grad(lambda x: phalanx.vmap(scaled)(x, v).sum())(v).tolist() == [0, 10, 20]
    over = phalanx.grad(lambda x: phalanx.lax.scan(lambda c, n: (scaled(c, n), None), x, v + 1)[0])
    assert float(over(1.0)) == 6000.0
    # A tree of them keeps what is not traced.
    pair = phalanx.custom_jvp(lambda x, how: how["fun"](x) * how["by"], nondiff_argnums=1)
    pair.defjvp(lambda how, p, t: (pair(*p, how), how["by"] * t[0]))
    assert float(phalanx.jit(phalanx.grad(lambda x, n: pair(x, {"fun": jnp.sin, "by": n})))(1.0, 3.0)) == 3.0


def test_nondiff_arguments_of_custom_vjp_may_not_be_traced():
    f = phalanx.custom_vjp(lambda x, n: x * n, nondiff_argnums=(1,))
    f.defvjp(lambda x, n: (x * n, None), lambda n, _, c: (n * c,))
    with pytest.raises(UnexpectedTracerError) as e:
        phalanx.jit(f)(2.0, 3.0)
    assert re.sub(r" at [^,\s]+", "", str(e.value)) == (
        "custom_vjp of <lambda>, argument n: expected a value that is not traced, since the argument is in "
        "nondiff_argnums, got JitTracer(~float32[]).\n  Fix: pass it as a differentiable argument and return a zero derivative for it."
    )


def test_a_linear_function_with_a_custom_jvp_is_transposed():
    @phalanx.custom_jvp
    def scale(x, y):
        return {"sum": 3 * x + y, "y": 2 * y}

    scale.defjvp(lambda primals, tangents: (scale(*primals), scale(*tangents)))
    (x_bar, y_bar) = phalanx.linear_transpose(scale, 1.0, 1.0)({"sum": 2.0, "y": 5.0})
    assert (x_bar, y_bar) == (6.0, 12.0)
    (x_bar,) = phalanx.linear_transpose(lambda x: scale(x, 0.0)["sum"], 1.0)(2.0)
    assert x_bar == 6.0


def test_the_derivative_of_custom_vmap_is_mapped_by_the_derivative_of_its_rule():
    @phalanx.custom_batching.custom_vmap
    def f(x, y):
        return jnp.sin(x) * y

    @f.def_vmap
    def rule(axis_size, in_batched, x, y):
        return jnp.cos(x) * y, True

    xs, ys, ts = jnp.arange(3.0), jnp.array(2.0), jnp.arange(3.0) + 1
    mapped = phalanx.vmap(lambda x, t: phalanx.jvp(lambda x: f(x, ys), (x,), (t,)))
    for out, out_dot in (mapped(xs, ts), phalanx.jvp(lambda x: phalanx.vmap(f, (0, None))(x, ys), (xs,), (ts,))):
        np.testing.assert_allclose(out, np.cos(xs) * 2, rtol=1e-6)
        np.testing.assert_allclose(out_dot, -np.sin(xs) * 2 * ts, rtol=1e-6)
    # Only the tangent is mapped: the primal is repeated for it.
    out, out_dot = phalanx.vmap(lambda t: phalanx.jvp(lambda x: f(x, ys), (1.0,), (t,)))(ts)
    np.testing.assert_allclose(out_dot, -np.sin(1.0) * 2 * ts, rtol=1e-6)


def test_custom_vmap_binds_keywords_and_is_found_through_custom_vjp():
    @phalanx.custom_vjp
    @phalanx.custom_batching.custom_vmap
    def f(x, y):
        return x * y

    @f.def_vmap
    def rule(axis_size, in_batched, x, y):
        return x + y, True

    f.defvjp(lambda x, y: (f(x, y), None), lambda _, g: (10 * g, g))
    assert phalanx.vmap(f)(jnp.arange(2.0), y=jnp.ones(2)).tolist() == [1.0, 2.0]
    assert float(phalanx.grad(f)(2.0, 3.0)) == 10.0
    with pytest.raises(AttributeError, match="'custom_vjp' object has no attribute 'nothing'"):
        f.nothing


def test_a_cotangent_may_stand_for_a_tree_of_one_leaf():
    f = phalanx.custom_vjp(lambda box, y: box["x"] * y)
    f.defvjp(lambda box, y: (f(box, y), (box["x"], y)), lambda res, g: (res[1] * g, res[0] * g))
    assert float(phalanx.grad(f)({"x": 2.0}, 3.0)["x"]) == 3.0


def test_zeros_of_float0_are_tangents_without_data():
    zero = jnp.zeros((), phalanx.float0)
    f = phalanx.custom_jvp(lambda x, n: (x, n))
    f.defjvp(lambda xs, ts: (xs, (2.0, phalanx.custom_derivatives.zero_from_primal(xs[1]))))
    _, (t, none) = phalanx.jvp(f, (2.0, 3), (1.0, zero))
    assert float(t) == 2.0 and none.dtype == phalanx.float0


def test_map_with_batch_size_0_maps_all_elements_at_once():
    program = phalanx.make_jaxpr(lambda x: phalanx.lax.map(jnp.sin, x, batch_size=0))(jnp.arange(3.0))
    assert "scan" not in [e.primitive.name for e in program.eqns]


def _in_scan(f):
    return lambda x: phalanx.lax.scan(lambda c, _: (f(c), None), x, None, length=1)[0]


@pytest.mark.parametrize("stage", [phalanx.jit, _in_scan])
def test_rules_of_staged_functions_give_results_of_its_types(stage):
    f = phalanx.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (jnp.zeros(3), None), lambda _, g: (g,))
    g = phalanx.custom_jvp(lambda x: x)
    g.defjvp(lambda primals, tangents: (jnp.zeros(3), jnp.zeros(3)))
    for kind, call in (
        ("vjp", lambda: phalanx.vjp(stage(f), 1.0)),
        ("jvp", lambda: phalanx.jvp(stage(g), (1.0,), (1.0,))),
    ):
        with pytest.raises(TypeError) as error:
            call()
        assert str(error.value) == (
            f"rule of a custom_{kind} function, leaf 0 of its result: expected the type that the function gives it, "
            "~f32[], got f32[3].\n  Fix: compute the result in the rule as the function does."
        )


@pytest.mark.parametrize("stage", [phalanx.jit, _in_scan])
def test_a_fwd_rule_gives_its_result_the_structure_of_the_function(stage):
    f = phalanx.custom_vjp(lambda x: x)
    f.defvjp(lambda x: ((x, x), None), lambda _, g: (g,))
    with pytest.raises(
        phalanx.errors.TreeError, match="fwd rule .* of .*, result: expected a leaf, as in the result of"
    ):
        phalanx.vjp(stage(f), 1.0)


def _with_jvp(x, y):
    f = phalanx.custom_jvp(lambda x: x * y)
    f.defjvp(lambda primals, tangents: (f(*primals), 10 * tangents[0] * y))
    return f(x)


def _with_vjp(x, y):
    f = phalanx.custom_vjp(lambda x: x * y)
    f.defvjp(lambda x: (f(x), y), lambda y, ct: (10 * ct * y,))
    return f(x)


@pytest.mark.parametrize("f", [_with_jvp, _with_vjp])
@pytest.mark.parametrize("stage", [lambda f: f, phalanx.jit])
def test_functions_and_rules_may_close_over_mapped_values(f, stage):
    xs, ys = jnp.arange(1.0, 4.0), jnp.arange(5.0, 8.0)
    total = lambda xs, ys: phalanx.vmap(f)(xs, ys).sum()
    assert stage(phalanx.vmap(f))(xs, ys).tolist() == [5, 12, 21]
    assert stage(phalanx.vmap(f, (None, 0)))(2.0, ys).tolist() == [10, 12, 14]
    assert stage(phalanx.vmap(phalanx.grad(f)))(xs, ys).tolist() == [50, 60, 70]
    assert stage(phalanx.grad(total))(xs, ys).tolist() == [50, 60, 70]
    assert stage(phalanx.grad(lambda x: phalanx.vmap(f, (None, 0))(x, ys).sum()))(2.0) == 180
    twice = phalanx.vmap(phalanx.vmap(f, (None, 0)), (0, None))
    assert stage(twice)(xs, ys).tolist() == [[5, 6, 7], [10, 12, 14], [15, 18, 21]]


def test_a_bwd_rule_may_close_over_mapped_values():
    def f(x, y):
        g = phalanx.custom_vjp(lambda x: x * y)
        g.defvjp(lambda x: (g(x), None), lambda _, ct: (10 * ct * y,))
        return g(x)

    xs, ys = jnp.arange(1.0, 4.0), jnp.arange(5.0, 8.0)
    assert phalanx.grad(lambda xs: phalanx.vmap(f)(xs, ys).sum())(xs).tolist() == [50, 60, 70]


def test_results_of_custom_derivatives_that_no_mapped_value_reaches_are_not_mapped():
    f = phalanx.custom_jvp(lambda x, y: (x, y))
    f.defjvp(lambda primals, tangents: (primals, tangents))
    g = phalanx.custom_vjp(lambda x: 2 * x)
    g.defvjp(lambda x: (g(x), None), lambda _, ct: (2 * ct,))
    xs = jnp.arange(3.0)
    assert phalanx.vmap(f, (0, None), (0, None))(xs, 2.0)[1] == 2
    assert phalanx.vmap(lambda x, y: g(y), (0, None), None)(xs, 2.0) == 4
    assert phalanx.grad(lambda y: phalanx.vmap(lambda x: g(y) * x)(xs).sum())(2.0) == 6


def test_a_fwd_rule_that_maps_results_of_examples_alike_keeps_their_cotangents_apart():
    f = phalanx.custom_vjp(lambda x: 1.0)
    f.defvjp(lambda x: (1.0, None), lambda _, ct: (ct,))
    xs = jnp.arange(3.0)
    assert phalanx.grad(lambda xs: (phalanx.vmap(f)(xs) * jnp.array([1.0, 2.0, 3.0])).sum())(xs).tolist() == [1, 2, 3]


def test_the_tangent_solver_of_a_root_may_close_over_differentiated_values():
    def solve(a, b):
        factors = phalanx.scipy.linalg.cho_factor(a)
        by_factors = lambda _, c: phalanx.scipy.linalg.cho_solve(factors, c)
        tangent_solve = lambda g, c: phalanx.lax.custom_linear_solve(g, c, by_factors, symmetric=True)
        return phalanx.lax.custom_root(lambda x: a @ x - b, b, by_factors, tangent_solve).sum()

    a, b = jnp.array([[2.0, 0.5], [0.5, 1.0]]), jnp.array([1.0, 2.0])
    want = lambda a, b: jnp.linalg.solve(a, b).sum()
    for order in (
        lambda f: f,
        lambda f: lambda a, b: phalanx.jvp(lambda b: phalanx.grad(f)(a, b).sum(), (b,), (b,))[1],
    ):
        f, g = order(solve), order(want)
        np.testing.assert_allclose(phalanx.jit(f)(a, b), g(a, b), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(phalanx.grad(f, 1)(a, b), phalanx.grad(g, 1)(a, b), rtol=1e-5, atol=1e-5)


def make_optimized():
    """A function whose `fwd` computes another value, which shows what ran: tan is the function, sin its `fwd`."""
    f = phalanx.custom_vjp(lambda x: jnp.tan(x) * SCALE)
    f.defvjp(lambda x: (jnp.sin(x) * SCALE, x), lambda x, y_bar: (jnp.cos(x) * y_bar,), optimize_remat=True)
    return f


SCALE = np.array([1.0, 2.0, 3.0], np.float32)  # a constant of both jaxprs


@pytest.mark.parametrize("stage", [lambda f: f, phalanx.jit], ids=["eager", "jit"])
def test_optimize_remat_runs_the_function_where_no_residual_is_read(stage):
    f = make_optimized()
    y, (x_bar,) = stage(lambda x: (lambda y, back: (y, back(y)))(*phalanx.vjp(phalanx.remat(f), x)))(X)
    assert np.allclose(y, np.tan(X) * SCALE) and np.allclose(x_bar, np.cos(X) * np.tan(X) * SCALE)
    # The residuals are read without remat, so `fwd` runs.
    y, back = phalanx.vjp(f, X)
    assert np.allclose(y, np.sin(X) * SCALE) and np.allclose(back(SCALE)[0], np.cos(X) * SCALE)


def test_optimize_remat_holds_in_vmap_loops_and_derivatives_of_derivatives():
    f = make_optimized()

    def loop(x):
        return lax.scan(phalanx.remat(lambda y, _: (f(y), None)), x, length=2)[0]

    assert np.allclose(phalanx.vjp(loop, X)[0], np.tan(np.tan(X) * SCALE) * SCALE, rtol=1e-4)
    xs = np.stack([X, 2 * X])
    assert np.allclose(phalanx.vmap(lambda x: phalanx.vjp(phalanx.remat(f), x)[0])(xs), np.tan(xs) * SCALE)
    assert np.allclose(phalanx.jit(lambda x: phalanx.vjp(phalanx.vmap(f), x)[0])(xs), np.tan(xs) * SCALE)
    x_bar = phalanx.grad(lambda x: phalanx.grad(lambda x: phalanx.remat(f)(x).sum())(x).sum())(X)
    assert np.allclose(x_bar, -np.sin(X))


def test_a_python_scalar_that_a_rule_returns_stays_one():
    f = phalanx.custom_jvp(lambda x: x)
    f.defjvp(lambda primals, tangents: (5.0, 3.0))
    assert [type(x) for x in phalanx.jvp(f, (2.0,), (1.0,))] == [float, float]
    g = phalanx.custom_vjp(lambda x: x)
    g.defvjp(lambda x: (x, None), lambda _, y_bar: (3.0,))
    assert type(phalanx.grad(g)(2.0)) is phalanx.Array
    # The gradient of an array is one.
    assert phalanx.grad(g)(np.float32(2)).dtype == np.float32


def test_python_numbers_reach_the_rule_of_an_eager_jvp_unchanged():
    seen = []
    f = phalanx.custom_jvp(lambda x, y: x * y)

    @f.defjvp
    def f_jvp(primals, tangents):
        seen.extend(map(type, (*primals, *tangents)))
        return f(*primals), tangents[0]

    assert phalanx.jvp(f, (2.0, 3.0), (1.0, 1.0)) == (6.0, 1.0)
    assert seen == [float] * 4
    # With a tracer they have a dtype, which rules may read.
    seen.clear()
    phalanx.grad(f)(2.0, 3.0)
    assert seen[:2] == [phalanx.Array] * 2


@pytest.mark.parametrize(
    "rules, where",
    [
        ((lambda x: ("y", x), lambda r, ct: (ct,)), "fwd rule {0} of <lambda>, result"),
        ((lambda x: (x, {"a": object()}), lambda r, ct: (ct,)), "fwd rule {0} of <lambda>, residuals['a']"),
        ((lambda x: (x, x), lambda r, ct: ("x",)), "bwd rule {1} of <lambda>, the cotangent of argument x"),
        ((lambda p, t: ("y", t[0]),), "jvp rule {0} of <lambda>, result"),
        ((lambda p, t: (p[0], "t"),), "jvp rule {0} of <lambda>, tangent"),
    ],
)
def test_what_is_no_array_in_the_result_of_a_rule_is_refused_by_name(rules, where):
    f = (phalanx.custom_jvp if len(rules) == 1 else phalanx.custom_vjp)(lambda x: x)
    (f.defjvp if len(rules) == 1 else f.defvjp)(*rules)
    with pytest.raises(ArgumentTypeError) as e:
        phalanx.grad(f)(1.0)
    assert str(e.value).startswith(where.format(*map(format_code_position, rules)) + ": expected an array or a scalar")


def test_rules_that_are_no_functions_are_refused_at_their_definition():
    def generate(x):
        yield x

    with pytest.raises(ArgumentTypeError, match=r"^defvjp, argument bwd: expected a function, got 3\.\n"):
        phalanx.custom_vjp(lambda x: x).defvjp(lambda x: (x, x), 3)
    with pytest.raises(
        ArgumentTypeError, match="^defvjp, argument fwd: expected a function, got the generator function"
    ):
        phalanx.custom_vjp(lambda x: x).defvjp(generate, lambda r, ct: (ct,))
    with pytest.raises(ArgumentTypeError, match=r"^defjvp, argument jvp: expected a function, got None\.\n"):
        phalanx.custom_jvp(lambda x: x).defjvp(None)


def test_operations_of_a_derivative_rule_share_one_traceback():
    def matmul(x, y):
        return phalanx.lax.dot(x, y)

    eqns = phalanx.make_jaxpr(lambda x: phalanx.jvp(matmul, (x, x), (x, x)))(jnp.ones((2, 2))).eqns
    assert [eqn.primitive.name for eqn in eqns] == ["dot_general", "dot_general", "dot_general", "add"]
    assert len({id(split_source(eqn.source)[0]) for eqn in eqns}) == 1


def test_operations_of_a_custom_rule_have_sources_of_their_own():
    @phalanx.custom_jvp
    def f(x):
        return jnp.sin(x)

    @f.defjvp
    def rule(primals, tangents):
        doubled = primals[0] * 2
        return jnp.sin(primals[0]), jnp.exp(doubled) * tangents[0]

    eqns = phalanx.make_jaxpr(lambda x: phalanx.jvp(f, (x,), (x,)))(1.0).eqns
    lines = {eqn.primitive.name: find_user_frame(eqn.source).line_num for eqn in eqns if eqn.primitive.name != "mul"}
    first = rule.__code__.co_firstlineno
    assert lines == {"sin": first + 3, "exp": first + 3}
    assert first + 2 in {find_user_frame(eqn.source).line_num for eqn in eqns if eqn.primitive.name == "mul"}
