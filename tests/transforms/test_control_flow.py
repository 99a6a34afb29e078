"""Loops and branches under every transformation, against the same loops in Python."""

import functools
import gc
import weakref

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.core.error_classes import ArgumentError, ArgumentTypeError, AxisError, RuleError, TreeError
from phalanx.core.source_info import format_code_position
from phalanx.lax.control_flow import control_flow_tracing

W = np.linspace(-0.5, 0.7, 9).astype(np.float32).reshape(3, 3)
XS = np.linspace(0.1, 1.2, 15).astype(np.float32).reshape(5, 3)
H = np.array([0.1, -0.2, 0.3], np.float32)


def cell(w, h, x):
    h = jnp.tanh(w @ h + x)
    return h, h * x


def by_scan(w, h, xs, **options):
    return lax.scan(functools.partial(cell, w), h, xs, **options)


def by_python(w, h, xs, reverse=False):
    ys = [None] * len(xs)
    for i in reversed(range(len(xs))) if reverse else range(len(xs)):
        h, ys[i] = cell(w, h, xs[i])
    return h, jnp.stack(ys)


def loss(run, w, h, xs, **options):
    h, ys = run(w, h, xs, **options)
    return jnp.sum(h**2) + jnp.sum(jnp.sin(ys))


OPTIONS = [{}, {"reverse": True}, {"unroll": 2}, {"unroll": 5}, {"unroll": True}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_scan_equals_the_python_loop(options):
    for got, want in zip(by_scan(W, H, XS, **options), by_python(W, H, XS, options.get("reverse", False))):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("options", OPTIONS[:3], ids=str)
def test_gradient_of_scan_equals_that_of_the_python_loop(options, compiled):
    scanned = phalanx.grad(functools.partial(loss, by_scan, **options), (0, 1, 2))
    scanned = phalanx.jit(scanned) if compiled else scanned
    looped = phalanx.grad(
        functools.partial(loss, functools.partial(by_python, reverse="reverse" in options)), (0, 1, 2)
    )
    for got, want in zip(scanned(W, H, XS), looped(W, H, XS)):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_second_derivatives_of_scan():
    def g(run, h):
        return loss(run, W, h, XS)

    got = phalanx.hessian(functools.partial(g, by_scan))(H)
    want = phalanx.hessian(functools.partial(g, by_python))(H)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


def test_forward_mode_through_scan():
    dots = (np.ones_like(W), np.ones_like(H), np.zeros_like(XS))
    got = phalanx.jvp(functools.partial(loss, by_scan), (W, H, XS), dots)
    want = phalanx.jvp(functools.partial(loss, by_python), (W, H, XS), dots)
    np.testing.assert_allclose(got, want, rtol=1e-4)


@pytest.mark.parametrize("dims", [(None, 0, None), (0, None, None), (None, None, 1), (0, 1, 2)], ids=str)
def test_vmap_of_scan_equals_python_loops(dims):
    args = [W, H, XS]
    batched = [a if d is None else np.stack([a, 2 * a, -a], d) for a, d in zip(args, dims)]
    run = phalanx.vmap(by_scan, in_axes=dims)
    grads = phalanx.vmap(phalanx.grad(functools.partial(loss, by_scan)), in_axes=dims)
    got, got_grads = run(*batched), grads(*batched)
    for i in range(3):
        one = [a if d is None else np.take(a, i, d) for a, d in zip(batched, dims)]
        for g, w in zip(got, by_python(*one)):
            np.testing.assert_allclose(g[i], w, rtol=1e-5, atol=1e-6)
        want = phalanx.grad(functools.partial(loss, by_python))(*one)
        np.testing.assert_allclose(got_grads[i], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("policy", [None, phalanx.checkpoint_policies.dots_saveable], ids=["nothing", "dots"])
def test_checkpointed_body_has_the_same_gradient(policy):
    def scanned(w, h, xs):
        body = phalanx.checkpoint(functools.partial(cell, w), policy=policy, prevent_cse=False)
        return lax.scan(body, h, xs)

    def whole(w, h, xs):
        return phalanx.checkpoint(by_scan, policy=policy)(w, h, xs)

    want = phalanx.grad(functools.partial(loss, by_scan), (0, 1))(W, H, XS)
    for run in (scanned, whole):
        for transform in (lambda f: f, phalanx.jit):
            got = transform(phalanx.grad(functools.partial(loss, run), (0, 1)))(W, H, XS)
            for g, w in zip(got, want):
                np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5)


def test_loop_invariant_residuals_are_not_stacked():
    def f(w, h):
        return jnp.sum(lax.scan(lambda h, _: (jnp.sin(w) * h, None), h, None, length=7)[0])

    text = str(phalanx.make_jaxpr(phalanx.grad(f, 1))(H, H))
    # Only the cosine-free linear body remains: sin(w) is computed once, and nothing has a leading 7.
    assert "f32[7,3]" not in text


def test_while_loop_runs_until_the_condition_fails():
    collatz = phalanx.jit(
        lambda n: lax.while_loop(
            lambda c: c[0] != 1, lambda c: (jnp.where(c[0] % 2, 3 * c[0] + 1, c[0] // 2), c[1] + 1), (n, 0)
        )[1]
    )
    assert int(collatz(27)) == 111
    np.testing.assert_array_equal(phalanx.vmap(collatz)(jnp.array([1, 2, 6, 27])), [0, 1, 8, 111])


def test_forward_mode_through_while_loop():
    def f(x):
        return lax.while_loop(lambda c: c < 100.0, lambda c: c * c, x)

    y, y_dot = phalanx.jvp(f, (2.0,), (1.0,))
    assert (float(y), float(y_dot)) == (256.0, 8 * 2.0**7)
    np.testing.assert_allclose(phalanx.jacfwd(f)(2.0), 1024.0)


def test_reverse_mode_through_while_loop_is_refused():
    with pytest.raises(RuleError) as e:
        phalanx.grad(lambda x: lax.while_loop(lambda c: c < 100.0, lambda c: c * c, x))(2.0)
    assert str(e.value) == (
        "reverse-mode differentiation of while_loop (or fori_loop with traced bounds): expected a loop with a "
        "number of iterations that is known while tracing, got one that ends when its condition is false.\n"
        "  Fix: use scan, fori_loop with static bounds, or forward mode (jvp, jacfwd)."
    )


def test_fori_loop_with_static_bounds_has_a_gradient():
    def f(x):
        return lax.fori_loop(2, 5, lambda i, c: c * x + i, 1.0)

    want = phalanx.grad(lambda x: ((x + 2) * x + 3) * x + 4.0)(1.5)
    np.testing.assert_allclose(phalanx.grad(f)(1.5), want, rtol=1e-6)
    assert int(phalanx.jit(lambda n: lax.fori_loop(0, n, lambda i, c: c + i, 0))(5)) == 10


@pytest.mark.parametrize("compiled", [False, True])
def test_cond_and_its_derivatives(compiled):
    def f(x):
        return lax.cond(x > 1.0, lambda a: jnp.sin(a) * a, lambda a: a**3, x)

    transform = phalanx.jit if compiled else lambda g: g
    for x in (0.5, 2.0):
        want = (np.sin(x) * x, np.sin(x) + x * np.cos(x)) if x > 1 else (x**3, 3 * x * x)
        np.testing.assert_allclose(transform(f)(x), want[0], rtol=1e-5)
        np.testing.assert_allclose(transform(phalanx.grad(f))(x), want[1], rtol=1e-5)
        np.testing.assert_allclose(
            transform(phalanx.jvp)(f, (x,), (1.0,))[1]
            if not compiled
            else phalanx.jvp(phalanx.jit(f), (x,), (1.0,))[1],
            want[1],
            rtol=1e-5,
        )
    xs = np.array([0.5, 2.0], np.float32)
    np.testing.assert_allclose(transform(phalanx.vmap(f))(xs), [0.125, np.sin(2) * 2], rtol=1e-5)
    np.testing.assert_allclose(
        transform(phalanx.vmap(phalanx.grad(f)))(xs), [0.75, np.sin(2) + 2 * np.cos(2)], rtol=1e-5
    )


def test_cond_differentiates_closed_over_values():
    def f(w, p):
        return jnp.sum(lax.cond(p, lambda x: w * x, lambda x: jnp.exp(w) + x, H))

    np.testing.assert_allclose(phalanx.grad(f)(2.0, True), H.sum(), rtol=1e-6)
    np.testing.assert_allclose(phalanx.jit(phalanx.grad(f))(2.0, False), 3 * np.exp(2.0), rtol=1e-6)


def test_switch_clamps_its_index():
    branches = [lambda x: x, lambda x: 2 * x, lambda x: x * x]
    f = phalanx.jit(lambda i, x: lax.switch(i, branches, x))
    assert [float(f(i, 3.0)) for i in (-4, 0, 1, 2, 9)] == [3.0, 3.0, 6.0, 9.0, 9.0]
    np.testing.assert_allclose(phalanx.vmap(lambda i: lax.switch(i, branches, 3.0))(jnp.arange(3)), [3, 6, 9])
    assert float(phalanx.grad(f, 1)(2, 3.0)) == 6.0


def test_map_and_associative_scan():
    np.testing.assert_allclose(lax.map(lambda x: x**2, XS), XS**2, rtol=1e-6)
    np.testing.assert_allclose(lax.map(lambda x: x**2, XS, batch_size=2), XS**2, rtol=1e-6)
    both = lambda x: (lax.associative_scan(jnp.add, x), lax.associative_scan(jnp.add, x, reverse=True))
    compiled = phalanx.jit(both)
    for size in range(1, 10):
        x = np.random.RandomState(size).randn(size, 2).astype(np.float32)
        for run in (compiled, both) if size == 5 else (compiled,):
            forth, back = run(x)
            np.testing.assert_allclose(forth, np.cumsum(x, 0), rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(back, np.cumsum(x[::-1], 0)[::-1], rtol=1e-4, atol=1e-5)
    parity = np.array([False, True, True, True, False])
    np.testing.assert_array_equal(lax.associative_scan(jnp.logical_xor, parity), np.logical_xor.accumulate(parity))


def test_eager_loop_over_the_same_function_compiles_once():
    body = functools.partial(cell, W)
    lax.scan(body, H, XS)
    (traced,) = control_flow_tracing._staged.get(body).values()
    jaxpr = traced.jaxpr
    before = len(jaxpr.cache)
    lax.scan(body, H, XS)
    assert len(jaxpr.cache) == before


@pytest.mark.parametrize("loop", [lambda f: lax.fori_loop(0, 3, f, 1.0), lambda f: lax.map(f, np.arange(4.0))])
def test_jaxpr_of_a_loop_is_freed_with_its_body(loop):
    def body(*args):
        runs.append(args)
        return args[-1] * 2

    runs = []
    loop(body)
    loop(body)
    assert len(runs) == 1  # the second loop runs the program of the first
    held = weakref.ref(body)
    del body
    runs.clear()
    gc.collect()
    assert held() is None


def test_fori_loop_counts_in_the_dtype_of_its_bounds():
    seen = []

    def body(i, c):
        seen.append(phalanx.typeof(i).str_short())
        return c + i

    bounds = [(0, 3), (np.int32(0), 3), (np.uint8(0), 3), (0, np.int16(3)), (np.int8(0), np.uint8(3))]
    for (low, high), wanted in zip(bounds, ["~i32[]", "i32[]", "u8[]", "i16[]", "i16[]"], strict=True):
        seen.clear()
        assert int(lax.fori_loop(low, high, body, 0)) == 3
        assert int(phalanx.jit(lambda a, b: lax.fori_loop(a, b, body, 0))(low, high)) == 3
        assert set(seen) == {wanted}


def test_jaxprs_of_loops_are_well_formed():
    from phalanx.core import check_jaxpr

    check_jaxpr(phalanx.make_jaxpr(phalanx.grad(functools.partial(loss, by_scan), (0, 1, 2)))(W, H, XS))
    check_jaxpr(phalanx.make_jaxpr(phalanx.vmap(functools.partial(by_scan, W), (0, None)))(np.stack([H, H]), XS))


def test_errors_of_scan_name_the_body_its_line_and_the_difference():
    def grow(c, x):
        return jnp.stack([c, c]), None

    def nest(c, x):
        return {"h": (c["h"], c["h"])}, None

    def bare(c, x):
        return c

    with pytest.raises(ArgumentTypeError) as e:
        lax.scan(grow, np.float32(0), XS)
    assert str(e.value) == (
        f"scan, carry returned by f = {format_code_position(grow)}: expected type f32[], as in init, got f32[2].\n"
        "  Fix: give it the shape []."
    )
    with pytest.raises(TreeError) as e:
        lax.scan(nest, {"h": np.float32(0)}, XS)
    assert str(e.value) == (
        f"scan, carry['h'] returned by f = {format_code_position(nest)}: expected a leaf, as in init['h'], got a tuple "
        "of length 2.\n"
        "  Fix: return a value with the structure of init."
    )
    with pytest.raises(ArgumentTypeError) as e:
        lax.scan(bare, np.float32(0), XS)
    assert str(e.value) == (
        f"scan, the result of f = {format_code_position(bare)}: expected a pair (carry, y), got a ShapedArray.\n"
        "  Fix: return (carry, y), with None for y if there is no output."
    )
    with pytest.raises(ArgumentError) as e:
        lax.scan(lambda c, x: (c, None), 0.0, (np.ones(3), {"k": np.ones(4)}))
    assert str(e.value) == (
        "scan, argument xs: expected leading dimensions of one size, got 3 (xs[0]), 4 (xs[1]['k']).\n"
        "  Fix: make the leading dimensions agree."
    )
    for wrong in (3.0, "text"):
        with pytest.raises((ArgumentError, ArgumentTypeError), match=r"^scan, argument xs\['k'\]: expected an array"):
            lax.scan(lambda c, x: (c, None), 0.0, {"a": np.ones(3), "k": wrong})
    with pytest.raises(ArgumentError, match="^map, argument xs: expected leading dimensions of one size"):
        lax.map(lambda x: x, (np.ones(3), np.ones(4)))
    with pytest.raises(AxisError) as e:
        lax.associative_scan(jnp.add, np.ones(3), axis=1)
    assert str(e.value) == (
        "associative_scan, argument axis: expected dimensions in [-1, 1), got 1.\n  Fix: pass a dimension from -1 to 0."
    )


def test_errors_of_while_and_counted_loops_name_the_body_and_its_line():
    def swap(i, c):
        return c[1], c[0]

    def wrap(c):
        return {"x": [c["x"]]}

    swapped = lambda n: lax.fori_loop(0, n, swap, (jnp.ones(2), jnp.ones(())))
    for loop in (swapped, phalanx.jit(swapped)):
        with pytest.raises(ArgumentTypeError) as e:
            loop(3)
        assert str(e.value) == (
            f"fori_loop, result[0] of body_fun = {format_code_position(swap)}: expected type f32[2], as in "
            "init_val[0], got f32[].\n"
            "  Fix: give it the shape [2]."
        )
    with pytest.raises(TreeError) as e:
        lax.while_loop(lambda c: c["x"] < 1, wrap, {"x": 0.0})
    assert str(e.value) == (
        f"while_loop, result['x'] of body_fun = {format_code_position(wrap)}: expected a leaf, as in init_val['x'], "
        "got a list of length 1.\n"
        "  Fix: return a value with the structure of init_val."
    )


def test_errors_of_conditions_name_the_function_and_its_line():
    def number(c):
        return c

    def pair(c):
        return (c < 1,)

    for cond_fun, got in ((number, "~f32[]"), (pair, "a tuple of bool[]")):
        with pytest.raises(ArgumentTypeError) as e:
            lax.while_loop(cond_fun, lambda c: c, 1.0)
        assert str(e.value) == (
            f"while_loop, the result of cond_fun = {format_code_position(cond_fun)}: expected a boolean scalar, "
            f"got {got}.\n"
            "  Fix: return a comparison, or reduce the result with .any() or .all()."
        )


def test_errors_of_cond_and_switch_name_both_branches():
    def scalar(x):
        return {"y": x}

    def vector(x):
        return {"y": jnp.stack([x, x])}

    def renamed(x):
        return {"z": x}

    one, two, three = map(format_code_position, (scalar, vector, renamed))
    with pytest.raises(ArgumentTypeError) as e:
        lax.cond(True, scalar, vector, np.float32(1))
    assert str(e.value) == (
        f"cond, result['y'] of false_fun = {two}: expected type f32[], as in the result['y'] of true_fun = {one}, "
        "got f32[2].\n"
        "  Fix: give it the shape []."
    )
    with pytest.raises(TreeError) as e:
        lax.switch(0, [scalar, renamed], np.float32(1))
    assert str(e.value) == (
        f"switch, result of branches[1] = {three}: expected a dict with keys ['y'], as in the result of branches[0] = "
        f"{one}, got a dict with keys ['z'].\n"
        f"  Fix: return a value with the structure of the result of branches[0] = {one}."
    )
    with pytest.raises(ArgumentTypeError, match="^cond, argument pred: expected an array or a scalar, got 'a'"):
        lax.cond("a", lambda: 1, lambda: 2)
    with pytest.raises(ArgumentTypeError, match="^switch, argument index: expected an array or a scalar, got 'a'"):
        lax.switch("a", [lambda: 1, lambda: 2])
    with pytest.raises(ArgumentTypeError) as e:
        lax.cond(H, lambda: 1, lambda: 2)
    assert "expected a boolean scalar, got f32[3]." in str(e.value)


def test_custom_linear_solve_and_root():
    a = np.array([[3.0, 1.0], [0.5, 2.0]], np.float32)
    b = np.array([1.0, 2.0], np.float32)

    def solve(a, b):
        return lax.custom_linear_solve(
            lambda x: a @ x, b, lambda _, c: jnp.linalg.solve(a, c), lambda _, c: jnp.linalg.solve(a.T, c)
        )

    np.testing.assert_allclose(solve(a, b), np.linalg.solve(a, b), rtol=1e-5)
    got = phalanx.jacrev(solve, (0, 1))(a, b)
    want = phalanx.jacfwd(jnp.linalg.solve, (0, 1))(a, b)
    for g, w in zip(got, want):
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5)

    def root(c):
        def newton(f, x):
            return lax.fori_loop(0, 20, lambda _, v: v - f(v) / phalanx.jvp(f, (v,), (1.0,))[1], x)

        return lax.custom_root(lambda x: x**3 - c, 1.0, newton, lambda g, y: y / g(1.0))

    np.testing.assert_allclose(root(8.0), 2.0, rtol=1e-5)
    np.testing.assert_allclose(phalanx.grad(root)(8.0), 1 / 12, rtol=1e-4)


def test_custom_linear_solve_names_the_place_where_structures_differ():
    def pair_in_u(x):
        return {"u": (x["u"], x["u"]), "v": x["v"]}

    def drop_v(matvec, c):
        return {"u": c["u"]}

    b = {"u": np.float32(1), "v": np.float32(2)}
    with pytest.raises(TreeError) as e:
        lax.custom_linear_solve(pair_in_u, b, lambda _, c: c)
    assert str(e.value) == (
        f"custom_linear_solve, result['u'] of matvec = {format_code_position(pair_in_u)}: expected a leaf, as in "
        "b['u'], got a tuple of length 2.\n"
        "  Fix: return a value with the structure of b."
    )
    with pytest.raises(TreeError) as e:
        lax.custom_linear_solve(lambda x: x, b, drop_v)
    assert str(e.value) == (
        f"custom_linear_solve, solution returned by solve = {format_code_position(drop_v)}: expected a dict with keys "
        "['u', 'v'], as in b, got a dict with keys ['u'].\n"
        "  Fix: return a value with the structure of b."
    )


def truncate(c, _):
    return c.astype(int), None


def test_weakly_typed_carry_is_promoted_without_losing_its_kind():
    grow = lambda dtype: lambda c, _: (c + jnp.ones((), dtype), None)
    for start, dtype in [(0, np.float32), (0, np.uint8), (0.0, jnp.bfloat16)]:
        assert lax.scan(grow(dtype), start, length=2)[0].dtype == dtype
    with pytest.raises(ArgumentTypeError) as e:
        lax.scan(truncate, 0.0, length=2)
    assert str(e.value) == (
        f"scan, carry returned by f = {format_code_position(truncate)}: expected type ~f32[], as in init, got i32[].\n"
        "  Fix: convert it to float32 with .astype."
    )
    with pytest.raises(ArgumentTypeError, match="as in init_val, got u8"):
        lax.while_loop(lambda c: c < 1, lambda c: jnp.uint8(1), 0.0)


def test_eager_cond_compiles_once(monkeypatch):
    from phalanx.runtime import compiled_program

    compiled = []
    compile_program = compiled_program.LoweredProgram.compile
    monkeypatch.setattr(
        compiled_program.LoweredProgram, "compile", lambda *args: compiled.append(1) or compile_program(*args)
    )
    table = jnp.arange(3.0)
    closing, weak = (lambda x: jnp.sin(x) + table), (lambda x: 1.0)
    strong, index = (lambda x: x[0]), jnp.array(1)
    for n in range(3):
        lax.cond(n == 1, closing, jnp.cos, table)
        lax.cond(n == 1, weak, strong, table)
        lax.switch(index, [closing, jnp.cos, closing], table)
        if n == 0:
            compiled.clear()
    assert compiled == []


def test_cond_accepts_operand_none_and_the_oldest_signature():
    assert float(lax.cond(True, lambda _: 1.0, lambda _: 2.0, operand=None)) == 1.0
    assert float(lax.switch(1, [lambda _: 1.0, lambda _: 2.0], operand=None)) == 2.0
    assert float(lax.cond(False, 1.0, lambda x: x, 2.0, lambda x: -x)) == -2.0


def test_cond_promotes_weak_results_without_losing_their_kind():
    for first, second in ((lambda: 1.5, lambda: jnp.int32(2)), (lambda: 2, lambda: jnp.bool_(True))):
        for pair in ((first, second), (second, first)):
            with pytest.raises(ArgumentTypeError, match=r"^cond, result of false_fun = .*: expected"):
                lax.cond(True, *pair)
    for pair in ((lambda: 2, lambda: 1.5), (lambda: 1.5, lambda: 2)):
        out = lax.cond(True, *pair), lax.cond(False, *pair)
        assert {float(x) for x in out} == {1.5, 2.0} and all(x.dtype == "float32" and x.weak_type for x in out)
    assert lax.cond(True, lambda: 1.5, lambda: jnp.bfloat16(2)).dtype == "bfloat16"


def test_a_scan_with_an_effect_and_a_residual_equal_in_all_iterations_is_differentiated(capfd):
    def loss(w):
        def step(c, x):
            phalanx.debug.print("c = {}", c)
            return c * jnp.sin(w) + x, None

        return lax.scan(step, 0.0, jnp.arange(3.0))[0]

    np.testing.assert_allclose(phalanx.grad(loss)(1.0), np.cos(1.0), rtol=1e-6)
    phalanx.effects_barrier()
    assert capfd.readouterr().out.split("\n")[:3] == ["c = 0.0", "c = 0.0", "c = 1.0"]


def test_a_carried_value_that_the_body_returns_unchanged_is_saved_once():
    """Parameters in the carry were saved for each iteration, so that the backward pass needed `length` copies."""

    def f(w, h):
        (w, h), _ = lax.scan(lambda c, _: ((c[0], jnp.tanh(c[0] @ c[1])), None), (w, h), length=5)
        return h.sum() + w.sum()

    def constant(w, h):
        return lax.scan(lambda h, _: (jnp.tanh(w @ h), None), h, length=5)[0].sum() + w.sum()

    w, h = jnp.full((3, 3), 0.5), jnp.arange(3.0)
    _, pull = phalanx.vjp(f, w, h)
    assert sorted(x.shape for x in phalanx.tree.leaves(pull)) == [(3, 3), (5, 3), (5, 3)]
    for got, want in zip(phalanx.grad(f, (0, 1))(w, h), phalanx.grad(constant, (0, 1))(w, h)):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_results_that_equal_operands_are_not_computed():
    def f(x, y):
        (y, z), same = lax.scan(lambda c, x: ((c[0], c[1] + x), x), (y, 0.0), x)
        return lax.cond(z > 1, lambda y, z: (y, z), lambda y, z: (y, -z), y, z), same

    program = phalanx.make_jaxpr(f)(jnp.ones(3), 2.0)
    scan, cond = (next(e for e in program.eqns if e.primitive.name == name) for name in ("scan", "cond"))
    assert len(scan.outvars) == len(cond.outvars) == 1
    assert program.outvars[0] is program.invars[1] and program.outvars[2] is program.invars[0]
    (y, z), same = f(np.ones(3, np.float32), 2.0)
    assert (y.item(), z.item(), same.tolist()) == (2.0, 3.0, [1.0, 1.0, 1.0])
    # So they do not depend on the example either.
    keep = lambda x, y: lax.cond(x < 0, lambda y: lax.scan(lambda c, _: (c, None), y, length=2)[0], lambda y: y, y)
    assert phalanx.vmap(keep, (0, None), None)(jnp.arange(3.0), 4.0).item() == 4.0
