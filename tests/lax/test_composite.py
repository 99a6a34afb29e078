"""Composites: named operations that mean their decomposition."""

from __future__ import annotations

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.core.error_classes import ArgumentTypeError
from phalanx.sharding import P

X = np.arange(1.0, 4.0, dtype=np.float32)


def decomposed(x, y, *, scale=1.0, **_):
    return {"out": jnp.sin(x) * scale + y, "x": x}


tangent = lax.composite(decomposed, "my.op", version=2)


@pytest.mark.parametrize("run", [lambda f: f, phalanx.jit])
def test_composite_equals_its_decomposition(run):
    same = lambda a, b: phalanx.tree.map(lambda u, v: np.testing.assert_allclose(u, v, rtol=1e-6), a, b)
    f, g = (lambda x: tangent(x, 2 * X, scale=3.0)), (lambda x: decomposed(x, 2 * X, scale=3.0))
    same(run(f)(X), g(X))
    same(run(phalanx.vmap(f))(np.stack([X, X])), phalanx.vmap(g)(np.stack([X, X])))
    total = lambda h: lambda x: h(x)["out"].sum()
    same(run(phalanx.grad(total(f)))(X), phalanx.grad(total(g))(X))
    same(run(phalanx.hessian(total(f)))(X), phalanx.hessian(total(g))(X))
    same(run(lambda x: phalanx.jvp(f, (x,), (x,)))(X), phalanx.jvp(g, (X,), (X,)))
    double = lax.composite(lambda x: 2 * x, "my.double")
    same(phalanx.linear_transpose(double, X)(X)[0], 2 * X)


def test_composite_is_lowered_under_its_name():
    text = (
        phalanx.jit(
            lambda x: tangent(
                x,
                x,
                scale=2.0,
                on=True,
                label="a",
                sizes=[1, 2],
                table=np.ones(2, np.int32),
                more={"k": 1},
                kind=np.dtype("float32"),
                absent=None,
            )
        )
        .lower(X)
        .as_text()
    )
    assert 'stablehlo.composite "my.op"' in text
    assert "version = 2 : i32" in text
    for attribute in (
        "label = \"a\"", "on = true", "scale = 2.000000e+00 : f64", "sizes = [1, 2]", "table = dense<1> : tensor<2xi32>",
        "more = {k = 1 : i64}", "kind = f32",
    ):  # fmt: skip
        assert attribute in text, attribute
    assert "absent" not in text


def test_composite_may_close_over_arrays():
    held = jnp.asarray(X)
    f = lax.composite(lambda x: x + held, "my.add")
    np.testing.assert_array_equal(phalanx.jit(f)(X), X + X)
    np.testing.assert_array_equal(f(X), X + X)


def test_composite_in_shard_map_and_with_explicit_shardings():
    mesh = phalanx.make_mesh((3,), ("i",), devices=phalanx.devices()[:3])
    f = lax.composite(lambda x, y: jnp.sin(x) * y, "my.scaled")
    total = lambda f: lambda x, w: lax.psum(f(x, w).sum(), "i")
    by_name, plain = (
        phalanx.shard_map(total(g), mesh=mesh, in_specs=(P("i"), P()), out_specs=P())
        for g in (f, lambda x, y: jnp.sin(x) * y)
    )
    for ours, theirs in zip(phalanx.grad(by_name, (0, 1))(X, 2.0), phalanx.grad(plain, (0, 1))(X, 2.0), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    growing = lambda x: lax.scan(lambda c, _: (f(c, 2.0) + x, None), jnp.ones(1), None, length=2)[0]
    out = phalanx.jit(phalanx.shard_map(growing, mesh=mesh, in_specs=P("i"), out_specs=P("i")))(X)
    np.testing.assert_allclose(out, np.sin(np.sin(1.0) * 2 + X) * 2 + X, rtol=1e-5)
    with phalanx.set_mesh(mesh):
        x = phalanx.device_put(X, phalanx.NamedSharding(mesh, P("i")))
        assert phalanx.typeof(f(x, 2.0)).sharding.spec == P("i")


def test_composite_with_effects():
    seen = []

    def look(x):
        phalanx.debug.callback(lambda v: seen.append(v.tolist()), x, ordered=True)
        return x

    phalanx.jit(lax.composite(look, "my.look"))(X)
    phalanx.effects_barrier()
    assert seen == [[1.0, 2.0, 3.0]]


def test_composite_error_messages():
    with pytest.raises(ArgumentTypeError) as error:
        tangent(X, X, scale=object)
    assert str(error.value) == (
        "composite, attribute scale: expected a number, a string, a dtype, a NumPy array, or a sequence or dict of these, got "
        "<class 'object'>.\n"
        "  Fix: pass arrays computed by the program as positional arguments."
    )
    with pytest.raises(ArgumentTypeError, match="composite, argument decomposition: expected a function"):
        lax.composite(None, "my.op")
