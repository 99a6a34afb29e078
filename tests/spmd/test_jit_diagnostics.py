"""What a program may watch of `jit`: logged stages, explained misses, vain donations."""

import logging
import re

import numpy as np
import pytest
from tests.meshes import auto_mesh

import phalanx
import phalanx.numpy as jnp

MISS = "TRACING CACHE MISS: <lambda>, compared with the nearest known call, "
WEAK = (
    "now f32[]{weak_type=True} and before f32[]{weak_type=False}; "
    "https://docs.jax.dev/en/latest/type_promotion.html#weak-types"
)


def test_stages_are_logged_with_name_types_and_seconds(caplog):
    @phalanx.jit
    def double(x):
        return x * 2

    x = jnp.zeros((3,))
    with phalanx.log_compiles(True):
        double(x)
        double(x)
    mine = [r for r in caplog.records if r.name == "phalanx"]
    assert [re.sub(r"\d+\.\d{3} s", "T s", r.getMessage()) for r in mine] == [
        "Finished tracing double for jit in T sec, for (float32[3])",
        "Finished jaxpr to MLIR module conversion jit(double) in T sec, for (float32[3])",
        "Finished XLA compilation of jit(double) in T sec, for (float32[3])",
    ]
    assert all(r.levelno == logging.WARNING for r in mine)


def test_nothing_is_logged_by_default_and_stages_of_derivatives_for_debugging(caplog):
    f = phalanx.jit(lambda x: jnp.sin(x))
    f(1.0)
    assert not caplog.records
    with caplog.at_level(logging.DEBUG, "phalanx"):
        phalanx.grad(f)(1.0)
    assert sum("XLA compilation of jit(<lambda>)" in r.getMessage() for r in caplog.records) >= 2
    assert all(r.levelno == logging.DEBUG for r in caplog.records)


@pytest.mark.parametrize(
    "first, second, reason",
    [
        (jnp.zeros((3,)), jnp.zeros((4,)), "now f32[4] and before f32[3]"),
        (jnp.zeros((3,)), jnp.zeros((3,), jnp.int32), "now i32[3] and before f32[3]"),
        (jnp.zeros(()), 1.0, WEAK),
    ],
    ids=["shape", "dtype", "weak"],
)
def test_a_miss_is_explained_by_the_argument_that_differs(caplog, first, second, reason):
    f = phalanx.jit(lambda x, n: x["w"] + n, static_argnums=1)
    with phalanx.explain_cache_misses(True):
        f({"w": first}, 1)
        caplog.clear()  # the function is made anew for each case, which is a message of its own
        f({"w": second}, 1)
    assert [r.getMessage() for r in caplog.records] == [f"{MISS}different input types: at x['w'], {reason}"]


def test_a_miss_is_explained_by_static_values_and_options(caplog):
    f = phalanx.jit(lambda x, n: x + n, static_argnums=1)
    x = jnp.zeros((3,))
    with phalanx.explain_cache_misses(True):
        f(x, 1)
        f(x, 2)
        with phalanx.default_matmul_precision("highest"):
            f(x, 2)
    assert [r.getMessage().removeprefix(MISS) for r in caplog.records[1:3]] == [
        "different static argument n: now 2 and before 1",
        "different tracing context: default_matmul_precision, now highest and before None",
    ]


def test_an_unusable_donation_is_a_warning_that_names_the_argument():
    f = phalanx.jit(lambda state, x: state["a"] + x.sum(), donate_argnums=(0, 1))
    with pytest.warns(UserWarning) as caught:
        f({"a": jnp.zeros((3,))}, jnp.zeros((5,)))
    assert [str(w.message) for w in caught] == [
        "Some donated buffers were not usable by <lambda>, since no result has their shape, dtype and sharding: x: f32[5].\n"
        "  Fix: remove these arguments from donate_argnums."
    ]
    assert caught[0].filename == __file__


def test_an_unused_donated_argument_does_not_prevent_reuse_of_another():
    f = phalanx.jit(lambda unused, x: x + 1, donate_argnums=(0, 1))
    x = jnp.zeros((3,))
    f(jnp.zeros((3,)), x)
    assert x.is_deleted()


def test_donation_is_kept_under_vmap():
    f = phalanx.jit(lambda x, y: x * 2 + y, donate_argnums=0)
    x, y = jnp.ones((4, 3)), jnp.ones((4, 3))
    assert phalanx.vmap(f)(x, y).tolist() == [[3.0] * 3] * 4
    assert x.is_deleted() and not y.is_deleted()
    x = jnp.ones((4, 3, 2))
    assert phalanx.vmap(phalanx.vmap(f, (0, None)), (0, None))(x, 1.0).shape == (4, 3, 2)
    assert x.is_deleted()
    with pytest.warns(UserWarning) as caught:
        phalanx.vmap(phalanx.jit(lambda x: x.sum(), donate_argnums=0))(y)
    assert [str(w.message) for w in caught] == [
        "Some donated buffers were not usable by <lambda>, since no result has their shape, dtype and sharding: input 0: "
        "f32[4,3].\n  Fix: remove these arguments from donate_argnums."
    ]
    assert caught[0].filename == __file__ and not y.is_deleted()


@pytest.mark.parametrize("fun, is_given", [(jnp.sin, True), (jnp.exp, True), (lambda x: x * x, False)])
def test_a_donated_value_that_is_a_residual_is_kept(fun, is_given):
    f = phalanx.jit(fun, donate_argnums=0)
    for derivative in (
        lambda f, x: phalanx.grad(lambda x: f(x).sum())(x),
        lambda f, x: phalanx.grad(lambda x: phalanx.vmap(f)(x).sum())(x),
        lambda f, x: phalanx.linearize(f, x)[1](jnp.ones(3)),
    ):
        x = jnp.full(3, 0.5)
        np.testing.assert_allclose(derivative(f, x), derivative(fun, jnp.full(3, 0.5)), rtol=1e-6)
        assert x.is_deleted() == is_given


def test_donation_warnings_over_a_mesh_follow_the_aliases_of_the_compiler():
    mesh = auto_mesh((4,), ("x",))
    split, whole = phalanx.NamedSharding(mesh, phalanx.P("x")), phalanx.NamedSharding(mesh, phalanx.P())
    a, b = phalanx.device_put(jnp.ones((8, 4)), split), phalanx.device_put(jnp.ones((8, 4)), whole)
    swapped = phalanx.jit(lambda x, y: (x + 1, y * 2), donate_argnums=(0, 1), out_shardings=(whole, split))
    swapped(a, b)  # each takes the other's place, without a warning
    assert a.is_deleted() and b.is_deleted()
    gathered = phalanx.jit(lambda x: x + 1, donate_argnums=0, out_shardings=whole)
    with pytest.warns(UserWarning) as caught:
        gathered.lower(phalanx.device_put(jnp.ones((8, 4)), split)).compile()
    assert [str(w.message) for w in caught] == [
        "Some donated buffers were not usable by <lambda>, since no result has their shape, dtype and sharding: x: f32[8,4] as "
        "P('x',).\n  Fix: remove these arguments from donate_argnums."
    ]
    assert caught[0].filename == __file__


def test_a_cache_miss_inside_another_function_is_explained(caplog):
    inner = phalanx.jit(lambda x: x * 2)
    with phalanx.explain_cache_misses(True):
        phalanx.jit(lambda x: inner(x) + inner(x[:2]).sum())(jnp.zeros((3,)))
    assert [r.getMessage() for r in caplog.records[2:]] == [
        f"{MISS}different input types: at x, now f32[2] and before f32[3]"
    ]


def test_a_function_made_anew_in_a_loop_is_explained(caplog):
    def make():
        return lambda x: x * 2 + 1

    with phalanx.explain_cache_misses(True):
        for _ in range(2):
            phalanx.jit(make())(jnp.ones(3))
    line = make.__code__.co_firstlineno + 1
    what = f"TRACING CACHE MISS: <lambda>, never seen function: jit of <lambda> at {__file__}:{line}"
    assert [r.getMessage() for r in caplog.records] == [
        what,
        f"{what} is another function defined on the same line as one that was called before. "
        "Define the function once, outside of the loop or function that makes it, and jit it there",
    ]
