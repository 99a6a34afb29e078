"""`with_sharding_constraint` and `device_put` inside programs and transformations."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest
from tests.meshes import auto_mesh

import phalanx as ph
from phalanx import lax
from phalanx.core.error_classes import ArgumentTypeError, ShardingError, TreeError
from phalanx.engine.client import devices as all_devices
from phalanx.lax.sharding_constraint import with_sharding_constraint
from phalanx.sharding import AxisType, NamedSharding, P, make_mesh
from phalanx.spmd import jit
from phalanx.spmd.device_put import device_put

OPEN = P.UNCONSTRAINED


@pytest.fixture
def mesh():
    return auto_mesh((4, 2), ("x", "y"))


def values(*shape):
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(np.float32)


def message(call):
    with pytest.raises((ArgumentTypeError, ShardingError, TreeError)) as error:
        call()
    return str(error.value)


def test_a_constraint_determines_the_sharding_inside_jit(mesh):
    sharding = NamedSharding(mesh, P("y", "x"))

    @jit
    def f(x):
        return with_sharding_constraint(lax.mul(x, x), sharding)

    y = f(values(8, 8))
    assert y.sharding.is_equivalent_to(sharding, 2)
    np.testing.assert_array_equal(np.asarray(y), values(8, 8) ** 2)
    assert '#sdy.sharding<@mesh, [{"y"}, {"x"}]>' not in f.lower(values(8, 8)).as_text()
    assert 'sdy.sharding_constraint %1 <@mesh, [{"y"}, {"x"}]>' in f.lower(values(8, 8)).as_text()


def test_open_dimensions_are_left_to_the_compiler(mesh):
    @jit
    def f(x):
        return with_sharding_constraint(lax.neg(x), NamedSharding(mesh, P("x", OPEN)))

    assert '<@mesh, [{"x"}, {?}]>' in f.lower(values(8, 8)).as_text()
    y = f(device_put(values(8, 8), NamedSharding(mesh, P(None, "y"))))
    assert y.sharding.is_equivalent_to(NamedSharding(mesh, P("x", "y")), 2)


def test_uneven_dimensions_are_allowed_inside_jit(mesh):
    @jit
    def f(x):
        return lax.neg(with_sharding_constraint(lax.neg(x), NamedSharding(mesh, P("x"))))

    np.testing.assert_array_equal(np.asarray(f(values(10, 3))), values(10, 3))


def test_a_constraint_accepts_tree_prefixes_and_specs_over_the_current_mesh(mesh):
    tree = {"a": values(8), "b": [values(8, 2), values(4)]}
    with mesh:
        out = with_sharding_constraint(tree, {"a": P("x"), "b": P("y")})
        assert out["a"].sharding.spec == P("x") and out["b"][1].sharding.spec == P("y")
        out = jit(lambda t: with_sharding_constraint(t, {"a": P("x"), "b": None}))(tree)
        assert out["a"].sharding.is_equivalent_to(NamedSharding(mesh, P("x")), 1)
    assert message(lambda: with_sharding_constraint(tree, {"a": None, "b": [P("x"), None]})) == (
        "with_sharding_constraint, shardings['b'][0]: expected a sharding, or a current mesh to resolve a bare spec, got "
        "P('x',).\n"
        "  Fix: pass NamedSharding(mesh, spec), or call the function inside `with mesh:` or after set_mesh(mesh)."
    )


def test_an_eager_constraint_places_the_array(mesh):
    sharding = NamedSharding(mesh, P("x"))
    x = with_sharding_constraint(values(8, 8), sharding)
    assert x.sharding is sharding and x.committed
    y = with_sharding_constraint(x, NamedSharding(mesh, P(OPEN, "y")))
    assert y.sharding.spec == P(("x",), "y")
    z = with_sharding_constraint(x, NamedSharding(mesh, P(OPEN, "x")))
    assert z.sharding.spec == P(None, "x")


def test_the_derivative_of_a_constraint_is_a_constraint(mesh):
    sharding = NamedSharding(mesh, P("x"))

    def f(x):
        return with_sharding_constraint(lax.mul(x, x), sharding)

    x = values(8)
    y, pull = ph.vjp(f, x)
    (x_bar,) = pull(np.ones(8, np.float32))
    np.testing.assert_array_equal(np.asarray(x_bar), 2 * x)
    y, y_dot = ph.jvp(f, (x,), (np.ones(8, np.float32),))
    np.testing.assert_array_equal(np.asarray(y_dot), 2 * x)
    assert y.sharding is sharding and y_dot.sharding is sharding
    text = str(ph.make_jaxpr(lambda x, ct: ph.vjp(f, x)[1](ct))(x, x))
    assert text.count("sharding_constraint") == 2
    grad = jit(lambda x: ph.vjp(f, x)[1](lax.full_like(x, 1.0)))(x)
    np.testing.assert_array_equal(np.asarray(grad[0]), 2 * x)


def specs_of(fun, *args):
    program = ph.make_jaxpr(fun)(*args)
    return [
        e.params["sharding"].spec for e in program.eqns if e.primitive.name in ("sharding_constraint", "device_put")
    ]


def test_vmap_of_a_constraint_leaves_the_new_dimension_open_or_shards_it(mesh):
    sharding = NamedSharding(mesh, P("x"))

    def f(x):
        return with_sharding_constraint(x, sharding)

    def put(x):
        return device_put(x, sharding)

    x = values(8, 8)
    assert specs_of(ph.vmap(f), x) == [P(OPEN, "x")]
    assert specs_of(ph.vmap(f, in_axes=1, out_axes=1), x) == [P("x", OPEN)]
    assert specs_of(ph.vmap(f, spmd_axis_name="y"), x) == [P("y", "x")]
    assert specs_of(ph.vmap(put), x) == [P(None, "x")]
    assert specs_of(ph.vmap(put, spmd_axis_name="y"), x) == [P("y", "x")]
    np.testing.assert_array_equal(np.asarray(ph.vmap(f)(x)), x)
    assert message(lambda: ph.vmap(f, spmd_axis_name="x")(x)) == (
        "spmd_axis_name of a vmap, or axis_resources of an xmap: expected mesh axes that no sharding inside the mapped function uses, "
        "got 'x' for the mapped dimension and in P('x',).\n"
        "  Fix: split the mapped dimension over another mesh axis, or remove 'x' from the spec."
    )


def test_the_transpose_of_device_put_restores_the_placement(mesh):
    x = device_put(values(8), all_devices("cpu")[1])
    sharding = NamedSharding(mesh, P("x"))
    y, pull = ph.vjp(lambda x: device_put(x, sharding), x)
    assert y.sharding is sharding
    (x_bar,) = pull(device_put(np.ones(8, np.float32), sharding))
    assert x_bar.devices() == {all_devices("cpu")[1]}
    np.testing.assert_array_equal(np.asarray(x_bar), np.ones(8))


def test_device_put_inside_jit_is_a_sharding_constraint(mesh):
    sharding = NamedSharding(mesh, P("x"))
    y = jit(lambda x: lax.neg(device_put(lax.neg(x), sharding)))(values(8))
    assert y.sharding.num_devices == 8
    np.testing.assert_array_equal(np.asarray(y), values(8))
    assert float(jit(lambda x: device_put(x))(3.0)) == 3.0


def test_a_constraint_that_does_not_fit_is_an_error(mesh):
    sharding = NamedSharding(mesh, P("x", None))
    assert message(lambda: jit(lambda x: with_sharding_constraint(x, sharding))(values(8))) == (
        "with_sharding_constraint, argument x: expected a spec of at most 1 entry for f32[8], got P('x', "
        "None).\n  Fix: drop the last entry, or give the array 2 dimensions."
    )
    with pytest.raises(ShardingError, match=r"with_sharding_constraint, argument x\['k'\]\[0\]: expected a spec of"):
        with_sharding_constraint({"k": [values(8)]}, sharding)
    with pytest.raises(ShardingError, match="device_put: expected a spec of at most 1 entry"):
        jit(lambda x: device_put(x, sharding))(values(8))
    small = NamedSharding(auto_mesh((2,), ("z",)), P("z"))
    x = device_put(values(8), NamedSharding(mesh, P("x")))
    line = inspect.currentframe().f_lineno + 1
    smaller = jit(lambda x: with_sharding_constraint(x, small), in_shardings=NamedSharding(mesh, P("x")))
    assert re.sub(r", at \S+?:(\d+)(:\d+)? \(.*?\):", r" at \1:", message(lambda: smaller(x))) == (
        f"with_sharding_constraint inside a compiled function at {line}: expected a sharding over the 8 devices that the program "
        "runs on, got NamedSharding(mesh=Mesh('z': 2, axis_types=(Auto,)), spec=P('z',), memory_kind=device).\n"
        "  Fix: use the mesh of the arguments, or call device_put on the array before the call."
    )


def test_a_mesh_block_inside_a_compiled_function_applies_to_bare_specs(mesh):
    other = auto_mesh((8,), ("z",))

    def f(x):
        with mesh:
            x = with_sharding_constraint(x * 2, P("y"))
            inside = ph.jit(lambda x: x + 1, in_shardings=P("x"))(x)
        with other:
            return with_sharding_constraint(inside, P("z"))

    for call in (jit(f), jit(ph.vmap(f)), jit(lambda x: lax.fori_loop(0, 1, lambda _, c: f(c), x))):
        y = call(values(8, 8))
        np.testing.assert_array_equal(np.asarray(y), values(8, 8) * 2 + 1)
        assert len(y.addressable_shards) == 8
    with mesh:
        assert jit(f)(values(8, 8)).sharding.is_equivalent_to(NamedSharding(other, P("z")), 2)


@pytest.mark.parametrize("outer", [AxisType.Auto, AxisType.Explicit])
def test_a_mesh_with_other_axis_types_inside_a_compiled_function_is_an_error(mesh, outer):
    other = make_mesh((8,), ("z",), axis_types=(AxisType.Explicit,)) if outer is AxisType.Auto else auto_mesh((8,), "z")
    around = make_mesh((4, 2), ("x", "y"), axis_types=(outer, outer))

    def f(x):
        with other:
            return lax.neg(x)

    with around:
        assert message(lambda: jit(f)(values(8))) == (
            f"changing the mesh inside a compiled function: expected the mesh that was current at the call, {around}, "
            f"got {other}.\n"
            "  Fix: enter the mesh around the call, or name it in NamedSharding(mesh, spec) or "
            "shard_map(..., mesh=mesh)."
        )
        with around:
            np.testing.assert_array_equal(np.asarray(jit(lambda x: x)(values(8))), values(8))


def test_a_constraint_over_auto_axes_keeps_the_explicit_ones():
    mesh = make_mesh((4, 2), ("x", "y"), (AxisType.Explicit, AxisType.Auto))
    with ph.set_mesh(mesh):
        x = ph.device_put(np.zeros((8, 2), np.float32), P("x"))
        out = ph.jit(lambda x: ph.lax.with_sharding_constraint(x, P("y")))(x)
    assert out.sharding.spec == P(("x", "y"))
