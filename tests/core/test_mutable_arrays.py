"""Mutable arrays: reads and writes eagerly, under `jit`, loops, branches, derivatives, `vmap`, and what is refused."""

import threading

import numpy as np
import pytest
from tests.processes import run_python

import phalanx as jax
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.core import RefEffect, RefError


def assert_holds(ref, expected):
    np.testing.assert_allclose(np.asarray(ref[...]), expected, rtol=1e-6)


both = pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])


@pytest.mark.parametrize(
    "index",
    [1, np.s_[1:3], np.s_[..., 0], np.s_[:, 1], np.s_[::2], (np.array([0, 2]), np.array([1, 1])), np.s_[...], ()],
    ids=str,
)
@both
def test_indices_read_and_write_as_in_numpy(index, wrap):
    data = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    ref, want = jax.new_ref(data), data.copy()

    @wrap
    def update(ref):
        before = ref[index]
        ref[index] = before * 2 + 1
        return before

    np.testing.assert_allclose(update(ref), want[index])
    want[index] = want[index] * 2 + 1
    assert_holds(ref, want)


def test_an_index_that_occurs_twice_counts_twice_in_addupdate():
    ref = jax.new_ref(jnp.zeros(4))
    jax.ref.addupdate(ref, jnp.array([1, 1, 3]), 2.0)
    assert_holds(ref, [0, 4, 0, 2])
    assert float(jax.ref.swap(ref, 1, 7.0)) == 4
    jax.ref.set(ref, 0, 5)
    assert float(jax.ref.get(ref, 0)) == 5
    assert_holds(ref, [5, 7, 0, 2])


def test_views_write_through_to_the_reference():
    ref = jax.new_ref(jnp.arange(6.0))
    part = ref.at[1:5]
    part[1:3] += 10
    part.at[2:][0] = -1.0
    assert part.shape == (4,)
    assert_holds(ref, [0, 1, 12, -1, 4, 5])


def test_a_reference_shows_its_type_and_value():
    ref = jax.new_ref(jnp.arange(3))
    assert repr(ref) == "Ref([0, 1, 2], dtype=int32)"
    assert (ref.shape, ref.dtype, ref.ndim, ref.size, len(ref)) == ((3,), np.int32, 1, 3, 3)
    assert isinstance(ref, jax.Ref) and not isinstance(ref, jax.Array)
    assert jax.ref.AbstractRef(jax.typeof(ref[...])) is jax.typeof(ref)
    assert str(jax.typeof(ref)) == "Ref{int32[3]}"


@both
def test_closed_over_references_and_arguments_are_updated(wrap):
    count, total = jax.new_ref(0), jax.new_ref(jnp.zeros(2))

    @wrap
    def step(total, x):
        assert isinstance(total, jax.Ref)
        count[...] += 1
        total[0] += x
        return total[...]

    for i in range(3):
        out = step(total, float(i))
    assert_holds(count, 3)
    assert_holds(total, [3, 0])
    np.testing.assert_allclose(out, [3, 0])


def test_nested_jit_updates_in_program_order():
    ref = jax.new_ref(1.0)
    double = jax.jit(lambda: ref.set(ref[...] * 2))

    @jax.jit
    def f(x):
        ref[...] += x
        double()
        ref[...] += x

    f(1.0)
    f(1.0)
    assert_holds(ref, 13)


def test_a_jit_call_reuses_the_buffer_and_leaves_arrays_alone():
    start = jnp.arange(3.0)
    ref = jax.new_ref(start)

    @jax.jit
    def increment(ref):
        ref[...] += 1

    increment(ref)
    address = ref.unsafe_buffer_pointer()
    increment(ref)
    assert ref.unsafe_buffer_pointer() == address
    seen = ref[...]
    increment(ref)
    np.testing.assert_allclose(start, [0, 1, 2])
    np.testing.assert_allclose(seen, [2, 3, 4])
    assert_holds(ref, [3, 4, 5])
    given, whole = jnp.zeros(3), ref[:]
    ref[...] = given
    increment(ref)
    increment(ref)
    np.testing.assert_allclose(given, [0, 0, 0])
    np.testing.assert_allclose(whole, [3, 4, 5])
    assert_holds(ref, [2, 2, 2])


def test_stages_of_compilation_take_and_close_over_references():
    ref, other = jax.new_ref(jnp.zeros(3)), jax.new_ref(1.0)

    @jax.jit
    def f(r, x):
        r[1] += x
        other[...] *= 2
        return r[...] + other[...]

    compiled = f.lower(jax.ShapeDtypeStruct((3,), "float32", is_ref=True), 1.0).compile()
    compiled(ref, 1.0)
    np.testing.assert_allclose(compiled(ref, 2.0), [4, 7, 4])
    assert_holds(ref, [0, 3, 0])
    assert_holds(other, 4)
    assert len(compiled.input_shardings[0]) == 2


def test_programs_show_accesses_as_equations_with_effects():
    ref = jax.new_ref(jnp.zeros(3))
    program = jax.make_jaxpr(lambda r: r.addupdate(2.0))(ref)
    assert any(isinstance(e, RefEffect) for e in program.effects)
    assert [eqn.primitive.name for eqn in program.eqns if eqn.effects] == ["get", "set"]
    # References inside of a function are none of its inputs and effects: nobody sees them.
    inner = jax.make_jaxpr(lambda x: _double_in_place(x))(1.0)
    assert not inner.effects and [eqn.primitive.name for eqn in inner.eqns if eqn.effects] == []


def _double_in_place(x):
    ref = jax.new_ref(x)
    ref[...] += ref[...]
    return jax.freeze(ref)


# Loops and branches


@both
def test_loops_carry_the_references_that_their_bodies_close_over(wrap):
    ref, seen = jax.new_ref(0), jax.new_ref(jnp.zeros(5, "int32"))

    @wrap
    def run():
        def body(c, x):
            ref[...] += x
            seen[x] = ref[...]
            return c + 1, ref[...]

        c, ys = lax.scan(body, 0, jnp.arange(5))
        lax.fori_loop(0, 3, lambda i, _: ref.addupdate(10), None)
        n = lax.while_loop(lambda i: ref[...] + i < 45, lambda i: (ref.addupdate(1), i + 1)[1], 0)
        return c, ys, n

    c, ys, n = run()
    assert int(c) == 5 and ys.tolist() == [0, 1, 3, 6, 10] and int(n) == 3
    assert_holds(seen, [0, 1, 3, 6, 10])
    assert_holds(ref, 43)


@both
def test_a_scan_over_a_reference_updates_its_rows(wrap):
    rows = jax.new_ref(jnp.arange(6.0).reshape(3, 2))

    @wrap
    def run(rows):
        def body(c, row):
            row[0] = c
            return c + row[1], row[...]

        return lax.scan(body, 0.0, rows)

    c, ys = run(rows)
    assert float(c) == 9
    assert_holds(rows, [[0, 1], [1, 3], [4, 5]])
    np.testing.assert_allclose(ys, rows[...])


@both
def test_branches_write_the_same_or_different_references(wrap):
    a, b = jax.new_ref(0.0), jax.new_ref(jnp.zeros(2))

    @wrap
    def choose(i, b):
        return lax.switch(i, [lambda: a.set(1.0), lambda: b.set(a[...], 0), lambda: a.set(b[0] + 5)])

    expected = [(1, 0), (1, 1), (6, 1)]
    for i, (want_a, want_b) in enumerate(expected):
        choose(i, b)
        assert_holds(a, want_a)
        assert_holds(b, [want_b, 0])


# Derivatives


def _with_refs_everywhere(x):
    ref = jax.new_ref(x)
    total = jax.new_ref(jnp.zeros(()))

    @jax.jit
    def square():
        ref[...] = jnp.sin(ref[...]) * x

    square()
    lax.fori_loop(0, 3, lambda i, _: ref.set(ref[...] * jnp.cos(x)), None)
    lax.cond(True, lambda: total.addupdate(ref[0] ** 2), lambda: None)
    for i in range(3):
        total[...] += ref[i] * 2
    return jax.freeze(total)


def _by_hand(x):
    y = jnp.sin(x) * x * jnp.cos(x) ** 3
    return y[0] ** 2 + 2 * y.sum()


def test_functions_with_references_inside_are_differentiated():
    x = jnp.array([0.3, 0.7, 1.1])
    v = jnp.array([1.0, -2.0, 0.5])
    np.testing.assert_allclose(_with_refs_everywhere(x), _by_hand(x), rtol=1e-6)
    for transform in (jax.grad, jax.jacfwd, lambda f: jax.grad(jax.jit(f)), lambda f: jax.jit(jax.grad(f))):
        np.testing.assert_allclose(transform(_with_refs_everywhere)(x), jax.grad(_by_hand)(x), rtol=1e-5)
    remat = jax.grad(jax.checkpoint(_with_refs_everywhere))
    np.testing.assert_allclose(remat(x), jax.grad(_by_hand)(x), rtol=1e-5)
    dots = [jax.jvp(f, (x,), (v,))[1] for f in (_with_refs_everywhere, _by_hand)]
    np.testing.assert_allclose(*dots, rtol=1e-5)
    batched = [jax.vmap(jax.grad(f))(jnp.stack([x, v])) for f in (_with_refs_everywhere, _by_hand)]
    np.testing.assert_allclose(*batched, rtol=1e-5)
    hessians = [jax.hessian(f)(x) for f in (_with_refs_everywhere, _by_hand)]
    np.testing.assert_allclose(*hessians, rtol=1e-4, atol=1e-5)


@both
def test_plumbing_references_receive_values_without_derivatives(wrap):
    log = jax.new_ref(0.0)

    def loss(x, log):
        y = x * x
        log[...] += lax.stop_gradient(y)
        return y * log[...]

    assert float(jax.grad(wrap(loss))(3.0, log)) == 54
    assert_holds(log, 9)
    with pytest.raises(RefError, match=r"write lax.stop_gradient\(value\)"):
        jax.grad(wrap(lambda x: (log.set(x), x)[1]))(1.0)


@pytest.mark.parametrize("remat", [False, True])
@both
def test_backward_passes_write_into_references(wrap, remat):
    @jax.custom_vjp
    def stash(ref, x):
        return x

    stash.defvjp(lambda ref, x: (x, ref), lambda ref, g: (ref.set(g), (None, g))[1])
    ref = jax.new_ref(0.0)

    def f(ref, x):
        def body(x, _):
            return jnp.sin(stash(ref, jnp.sin(x))), None

        return lax.scan(jax.checkpoint(body) if remat else body, x, None, length=1)[0]

    g = jax.grad(wrap(f), 1)(ref, 1.0)
    np.testing.assert_allclose(ref[...], np.cos(np.sin(1.0)), rtol=1e-6)
    np.testing.assert_allclose(g, np.cos(np.sin(1.0)) * np.cos(1.0), rtol=1e-6)


@both
def test_rematerialization_neither_repeats_writes_nor_reads_again(wrap):
    ref = jax.new_ref(2.0)

    @jax.checkpoint
    def f(x):
        y = jnp.sin(x * ref[...])
        ref[...] += 1
        return y * y

    np.testing.assert_allclose(jax.grad(wrap(f))(0.5), 4 * np.sin(1.0) * np.cos(1.0), rtol=1e-6)
    assert_holds(ref, 3)


def test_linearization_of_a_while_loop_writes_once():
    ref = jax.new_ref(0.0)

    def f(x):
        def body(c):
            ref[...] += 1
            return c[0] + 1, c[1] * x

        return lax.while_loop(lambda c: c[0] < 3, body, (0, 1.0))[1]

    y, f_jvp = jax.linearize(f, 2.0)
    assert (float(y), float(f_jvp(1.0)), float(ref[...])) == (8, 12, 3)


def test_grad_refuses_a_reference_as_its_argument():
    with pytest.raises(RefError, match="use vjp, and bind a reference for the gradient"):
        jax.grad(lambda r: r[...] ** 2)(jax.new_ref(1.0))


def test_gradients_of_and_into_references():
    def f(ref, x):
        ref[...] = jnp.sin(ref[...]) * x
        return ref[...] ** 2

    ref = jax.new_ref(2.0)
    y, f_vjp = jax.vjp(f, ref, 3.0)
    assert_holds(ref, 3 * np.sin(2.0))
    sums = jax.new_ref(100.0), jax.new_ref(1.0)
    for _ in range(2):
        out = f_vjp.with_refs(*sums)(1.0)
    assert out == (jax.ad.GradRef(), jax.ad.GradRef())
    assert_holds(sums[0], 100 + 2 * 9 * 2 * np.sin(2.0) * np.cos(2.0))
    assert_holds(sums[1], 1 + 2 * 2 * 3 * np.sin(2.0) ** 2)
    with pytest.raises(RefError, match="bind one with `with_refs`"):
        f_vjp(1.0)
    with pytest.raises(RefError, match=r"a reference to an array of type f32\[\]"):
        f_vjp.with_refs(jax.new_ref(jnp.zeros(2)), jax.ad.DontWant())(1.0)


def test_unwanted_gradients_are_not_computed():
    _, f_vjp = jax.vjp(lambda w, x: w @ x, jnp.ones((4, 4)), jnp.ones(4))
    only_w = f_vjp.with_refs(jax.ad.GradValue(), jax.ad.DontWant())
    assert only_w(jnp.ones(4))[1] == jax.ad.DidntWant()
    counts = [str(jax.make_jaxpr(g)(jnp.ones(4))).count("dot_general") for g in (f_vjp, only_w)]
    assert counts == [2, 1]


def test_microbatch_gradients_accumulate_inside_a_scan():
    ws, xs = jnp.full((3, 4, 4), 0.25), jnp.arange(24.0).reshape(6, 4) / 24  # tanh does not saturate

    def loss(ws, x):
        return jnp.tanh(lax.scan(lambda x, w: (x @ w, None), x, ws)[0]).mean()

    @jax.jit
    def gradients(ws, xs):
        total = jax.new_ref(jnp.zeros_like(ws))

        def step(_, x):
            _, f_vjp = jax.vjp(lambda ws: loss(ws, x), ws)
            f_vjp.with_refs(total)(1.0)
            return None, None

        lax.scan(step, None, xs)
        return jax.freeze(total)

    expected = jax.grad(lambda ws: sum(loss(ws, x) for x in xs))(ws)
    np.testing.assert_allclose(gradients(ws, xs), expected, rtol=1e-5, atol=1e-7)


# vmap


@both
def test_vmap_over_reference_arguments_updates_them(wrap):
    ref = jax.new_ref(jnp.zeros((2, 3)))

    def f(r, x):
        r[...] += x
        return r[0] * 2

    ys = wrap(jax.vmap(f, in_axes=(1, 0)))(ref, jnp.arange(3.0))
    np.testing.assert_allclose(ys, [0, 2, 4])
    assert_holds(ref, [[0, 1, 2], [0, 1, 2]])


def test_vmap_reads_but_does_not_write_references_from_outside():
    shared, out = jax.new_ref(2.0), jax.new_ref(jnp.zeros(3))
    jax.vmap(lambda r, x: r.set(x * shared[...]))(out, jnp.arange(3.0))
    assert_holds(out, [0, 2, 4])
    add = jax.jit(lambda x: (shared.addupdate(1.0), x)[1])

    def branch(p):
        return lax.cond(p, lambda: shared.set(1.0), lambda: None)

    refused = [lambda x: shared.set(x), lambda x: shared.set(1.0), add, lambda x: add(1.0), lambda x: branch(x > 1)]
    for f in refused:
        with pytest.raises(RefError, match="an unbatched array reference"):
            jax.vmap(f)(jnp.arange(3.0))
        with pytest.raises(RefError, match="an unbatched array reference"):
            jax.jit(jax.vmap(f))(jnp.arange(3.0))
    with pytest.raises(RefError, match="an unbatched array reference"):
        jax.vmap(lambda r, x: r.set(x), in_axes=(None, 0))(shared, jnp.arange(3.0))
    assert_holds(shared, 2)


# Errors


def test_a_reference_has_one_name_in_a_function():
    ref = jax.new_ref(0.0)
    cases = [
        lambda: jax.jit(lambda x_ref, y_ref: None)(ref, ref),
        lambda: jax.jit(lambda y_ref: ref[...] + y_ref[...])(ref),
        lambda: jax.vmap(lambda a, b: None, in_axes=None, axis_size=2)(ref, ref),
        lambda: lax.cond(True, lambda a, b: None, lambda a, b: None, ref, ref),
        lambda: lax.cond(True, lambda a: ref[...], lambda a: a[...], ref),
    ]
    for case in cases:
        with pytest.raises(RefError, match="each mutable array reference once"):
            case()


def test_references_are_not_returned():
    for f in (lambda r: r, lambda r: {"hi": jax.new_ref(1.0)}):
        with pytest.raises(ValueError, match="a mutable array reference"):
            jax.jit(f)(jax.new_ref(0.0))
    with pytest.raises(ValueError, match="a mutable array reference"):
        lax.scan(lambda c, x: (jax.new_ref(c), x), 0, jnp.arange(3))


def test_references_are_invalid_after_freeze():
    ref = jax.new_ref(1.0)
    assert float(jax.freeze(ref)) == 1
    for use in (lambda: ref[...], lambda: ref.set(2.0), lambda: jax.jit(lambda: ref[...])()):
        with pytest.raises(RefError, match="which was invalidated by freeze or free_ref"):
            use()
    outer = jax.new_ref(1.0)
    with pytest.raises(RefError, match="made in the function that freezes it"):
        jax.jit(lambda: jax.freeze(outer))()


def test_writes_of_another_type_are_refused():
    ref = jax.new_ref(jnp.zeros(3, "int32"))
    with pytest.raises(ValueError, match="a value of dtype int32"):
        ref[...] += 1.5
    with pytest.raises(ValueError, match=r"a value that broadcasts to shape \[3\]"):
        ref[...] = jnp.zeros(2, "int32")
    with pytest.raises(ValueError, match="references cannot refer to references"):
        jax.new_ref(ref)
    with pytest.raises(TypeError, match=r"write ref\[\.\.\.\] instead of ref"):
        jnp.sin(ref)
    with pytest.raises(TypeError, match=r"write ref\[\.\.\.\] instead of ref"):
        jax.jit(lambda r: r + 1)(ref)


def test_a_reference_does_not_outlive_its_function():
    kept = []
    jax.jit(lambda x: kept.append(jax.new_ref(x)))(1.0)
    with pytest.raises(RefError, match="one of the current computation"):
        kept[0][...]
    kept.clear()
    jax.jit(kept.append)(jax.new_ref(1.0))
    with pytest.raises(jax.errors.UnexpectedTracerError):
        kept[0][...]


@both
def test_views_are_arguments_of_transformed_functions(wrap):
    def add(view):
        view[...] += 10
        return view[...].sum()

    @wrap
    def run(start):
        ref = jax.new_ref(jnp.zeros(6))
        total = jax.jit(add)(ref.at[1:5])
        total += jax.checkpoint(add)(ref.at[start])
        lax.cond(start > 0, add, lambda view: view[...].sum(), ref.at[2:4].at[0])
        return total, ref[...]

    total, value = run(jnp.int32(2))
    assert float(total) == 60
    assert value.tolist() == [0, 10, 30, 10, 10, 0]


def test_a_jitted_function_reuses_its_program_for_views_with_equal_slices():
    count = 0

    @jax.jit
    def read(view):
        nonlocal count
        count += 1
        return view[...]

    ref = jax.new_ref(jnp.arange(5.0))
    assert [read(ref.at[1:3]).tolist() for _ in range(2)] == [[1, 2]] * 2
    assert count == 1
    assert read(ref.at[2:4]).tolist() == [2, 3]
    assert count == 2


def test_vmap_takes_no_views():
    with pytest.raises(RefError, match=r"expected arrays and references, got a view of a reference, Ref\(\["):
        jax.vmap(lambda v: v[...])(jax.new_ref(jnp.zeros((4, 3))).at[1:3])


def test_a_reference_is_strongly_typed_whatever_it_is_made_from():
    ref = jax.new_ref(1)

    @jax.jit
    def write(ref):
        ref[...] = 2
        return ref[...], jax.new_ref(1.0)[...]

    read = write(ref)
    ref[...] += 1
    assert [x.weak_type for x in (*read, ref[...], jax.freeze(ref))] == [False] * 4


@pytest.mark.parametrize("stage", ["jit", "compiled", "eager"])
def test_threads_that_change_one_reference_lose_no_update(stage):
    ref, other = jax.new_ref(jnp.zeros(4)), jax.new_ref(jnp.zeros(4))

    def step(ref, other):
        other[...] += 1.0
        ref[...] += 1.0

    run = {
        "jit": jax.jit(step),
        "compiled": jax.jit(step).lower(ref, other).compile(),
        "eager": lambda *refs: [jax.ref.addupdate(each, ..., 1.0) for each in refs],
    }[stage]
    problems, seen = [], []

    def work(refs):
        try:
            for _ in range(50):
                run(*refs)
                seen.append(ref[...])  # which keeps its value, whatever is donated
        except Exception as error:
            problems.append(error)

    # In both orders, so that two threads would wait for each other if each took the first reference first.
    threads = [threading.Thread(target=work, args=(refs,)) for refs in [(ref, other), (other, ref)] * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, problems[0]
    assert ref[...].tolist() == other[...].tolist() == [200.0] * 4
    assert max(float(value[0]) for value in seen) == 200.0


def test_a_callback_may_change_a_reference_that_its_program_is_called_with():
    text = run_python(
        """
        import phalanx, phalanx.numpy as jnp
        ref = phalanx.new_ref(jnp.zeros(3))
        count = phalanx.new_ref(jnp.zeros(()))
        add = phalanx.jit(lambda count: phalanx.ref.addupdate(count, ..., 1.0))

        def look(x):
            count[...] += 1
            add(count)
            return x

        @phalanx.jit
        def f(ref, count):
            ref[...] += phalanx.pure_callback(look, ref[...], ref[...]) + 0 * count[...]

        for _ in range(3):
            f(ref, count)
        ref.block_until_ready()
        print(int(count[...]) >= 6)
        """
    )
    assert text == "True\n"
