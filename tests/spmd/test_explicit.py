"""Explicit sharding: types tell how arrays are split, operations follow, ambiguity is refused when traced."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.core.error_classes import ArgumentTypeError, ShardingError
from phalanx.core.source_info import format_code_position
from phalanx.sharding import (
    AbstractMesh,
    AxisType,
    ManualAxisType,
    NamedSharding,
    P,
    auto_axes,
    explicit_axes,
    get_abstract_mesh,
    make_mesh,
    reshard,
    use_abstract_mesh,
    use_mesh,
)
from phalanx.testing import collectives

X = np.arange(32, dtype=np.float32).reshape(8, 4)


@pytest.fixture(scope="module")
def mesh():
    return make_mesh((2, 4), ("x", "y"), AxisType.Explicit)


@pytest.fixture
def put(mesh):
    return lambda x, *spec: phalanx.device_put(x, NamedSharding(mesh, P(*spec)))


def type_of(x) -> str:
    """The type of an array, which must lie as its type says."""
    aval = phalanx.typeof(x)
    if aval.sharding is not None and not isinstance(x, phalanx.core.Tracer):
        assert x.sharding.spec.axes_per_dim(x.ndim) == aval.sharding.spec.dims
        assert {s.data.shape for s in x.addressable_shards} == {aval.sharding.shard_shape(x.shape)}
    return aval.str_short()


def refusal(fun, *args) -> str:
    """What the ShardingError of a call says."""
    with pytest.raises(ShardingError) as caught:
        fun(*args)
    return str(caught.value)


def test_types_of_arrays_on_explicit_axes_show_their_shardings(put, mesh):
    assert type_of(put(X, "x", "y")) == "f32[8@x,4@y]"
    assert type_of(put(X, ("x", "y"))) == "f32[8@(x,y),4]"
    assert type_of(put(X)) == "f32[8,4]"
    assert repr(phalanx.typeof(put(X, None, "y"))) == "ShapedArray(float32[8,4@y])"
    assert phalanx.typeof(put(X, "x")) is phalanx.typeof(put(X, "x", None))
    assert phalanx.typeof(put(X, "x")).sharding == NamedSharding(mesh.abstract_mesh, P("x", None))
    auto = make_mesh((2, 4), ("x", "y"), AxisType.Auto)
    of_auto = phalanx.typeof(phalanx.device_put(X, NamedSharding(auto, P("x"))))
    assert of_auto is phalanx.typeof(jnp.asarray(X))
    assert of_auto.sharding.spec == P(None, None) and of_auto.sharding.mesh.empty


def test_types_contain_only_explicit_axes():
    mixed = make_mesh((2, 4), ("x", "y"), (AxisType.Auto, AxisType.Explicit))
    a = phalanx.device_put(X, NamedSharding(mixed, P("x", "y")))
    assert phalanx.typeof(a).str_short() == "f32[8,4@y]"
    b = phalanx.jit(lambda a: jnp.sin(a) + 1)(a)
    assert phalanx.typeof(b).str_short() == "f32[8,4@y]"
    assert b.sharding.spec.dims[1] == ("y",)


def test_operations_carry_shardings_on_eager_and_compiled(put):
    a = put(X, "x", "y")
    row = put(X[0], "y")
    cases = {
        "f32[8@x,4@y]": lambda a, row: jnp.tanh(a) * row + 1,
        "f32[4@y,8@x]": lambda a, row: a.T,
        "f32[4@y]": lambda a, row: a.sum(0),
        "f32[]": lambda a, row: a.mean(),
        "i32[8@x]": lambda a, row: a.argmax(1),
        "bool[8@x,4@y]": lambda a, row: a > row,
        "f32[16@x,4@y]": lambda a, row: jnp.concatenate([a, a]),
        "f32[8@x,1,4@y]": lambda a, row: a[:, None],
        "f32[4@x,4@y]": lambda a, row: a[2:6],
    }
    for want, fun in cases.items():
        assert type_of(fun(a, row)) == want
        got = phalanx.jit(fun)(a, row)
        assert type_of(got) == want
        np.testing.assert_allclose(got, fun(jnp.asarray(X), jnp.asarray(X[0])), rtol=1e-6)


def test_matrix_products_are_sharded_like_their_free_dimensions(put):
    assert type_of(put(X, "x") @ put(X.T, None, "y")) == "f32[8@x,8@y]"
    assert type_of(put(X, None, "x") @ put(X.T)) == "f32[8,8]"
    assert type_of(jnp.einsum("bi,bj->bij", put(X, "x", "y"), put(X, "x"))) == "f32[8@x,4@y,4]"


def test_ambiguous_result_shardings_are_errors_with_types_and_fix(put):
    fix = "\n  Fix: reshard an operand with phalanx.reshard, or pass out_sharding= if the operation has that argument."
    assert refusal(lambda: put(X, "x", "y") + put(X, "y", "x")) == (
        "add: expected the same sharding of dimensions that correspond to each other, got f32[8@x,4@y], f32[8@y,4@x]."
        + fix
    )
    assert refusal(lambda: put(X, "x") + put(X, None, "x")) == (
        "add: expected a result that is sharded over each mesh axis once, got f32[8@x,4@x] from f32[8@x,4], "
        "f32[8,4@x]." + fix
    )
    assert refusal(phalanx.jit(jnp.matmul), put(X, None, "x"), put(X.T, "x")) == (
        "dot_general: expected contracted dimensions of which one side is whole, or an out_sharding for the sums, got "
        "f32[8,4@x], f32[4@x,8], of which both sides are sharded over 'x'." + fix
    )
    assert refusal(jnp.cumsum, put(X, "x"), 0) == (
        "cumsum: expected operands that are whole along each dimension that the operation mixes, got f32[8@x,4], of "
        "which f32[8@x,4] is sharded along dimension 0." + fix
    )


def test_operands_over_two_meshes_are_an_error(put):
    other = make_mesh((4, 2), ("x", "y"), AxisType.Explicit)
    assert refusal(lambda: put(X, "x") + phalanx.device_put(X, NamedSharding(other, P("x")))) == (
        "add: expected operands over one mesh, AbstractMesh('x': 2, 'y': 4, axis_types=(Explicit, Explicit)), got "
        "f32[8@x,4], f32[8@x,4], one of them over AbstractMesh('x': 4, 'y': 2, axis_types=(Explicit, Explicit)).\n"
        "  Fix: bring them to one mesh with phalanx.reshard(x, NamedSharding(mesh, spec))."
    )


@pytest.mark.parametrize(
    ("spec", "shape", "want"),
    [
        (("x", "y"), (32,), "f32[32@(x,y)]"),
        (("x",), (32,), "f32[32@x]"),
        (("x", "y"), (4, 2, 4), "f32[4@x,2,4@y]"),
        ((("x", "y"),), (2, 4, 4), "f32[2@x,4@y,4]"),
        (("x", "y"), (8, 1, 4), "f32[8@x,1,4@y]"),
        ((None, "y"), (1, 8, 4, 1), "f32[1,8,4@y,1]"),
        (("x",), (4, 8), "f32[4@x,8]"),
    ],
)
def test_reshapes_keep_the_sharding_of_unchanged_dimensions(put, spec, shape, want):
    got = lax.reshape(put(X, *spec), shape)
    assert type_of(got) == want
    np.testing.assert_array_equal(got, X.reshape(shape))


def test_a_reshape_that_splits_shards_is_an_error(put):
    assert refusal(lax.reshape, put(X, None, "y"), (32,)) == (
        "reshape: expected a reshape that keeps each shard on its device, or out_sharding, got f32[8,4@y] to (32,).\n"
        "  Fix: pass out_sharding to lax.reshape, or reshard the operand with phalanx.reshard."
    )
    refusal(lax.reshape, put(X, "y"), (2, 16))


def test_the_cotangent_of_reshard_has_the_original_sharding(put):
    a = put(X, "x", "y")
    assert type_of(reshard(a, P("y"))) == "f32[8@y,4]"
    np.testing.assert_array_equal(reshard(a, P("y", "x")), X)
    both = reshard({"a": a, "b": a}, {"a": P(None, "x"), "b": None})
    assert [type_of(both["a"]), type_of(both["b"])] == ["f32[8,4@x]", "f32[8@x,4@y]"]
    g = phalanx.grad(lambda a: (reshard(a, P("y")) ** 2).sum())
    for grad in (g, phalanx.jit(g)):
        assert type_of(grad(a)) == "f32[8@x,4@y]"
        np.testing.assert_allclose(grad(a), 2 * X)
    mapped = phalanx.vmap(lambda r: reshard(r, P("x")), in_axes=0)(put(X, "y"))
    assert type_of(mapped) == "f32[8@y,4@x]"


def test_reshard_over_axes_that_are_not_explicit_is_an_error(put, mesh):
    auto = make_mesh((2, 4), ("x", "y"), (AxisType.Auto, AxisType.Explicit))
    assert refusal(reshard, X, NamedSharding(auto, P("x"))) == (
        "reshard, out_shardings: expected a spec over the Explicit axes of the mesh, 'y', got P('x',) with "
        "axis 'x' of type Auto.\n  Fix: leave it out of the spec; the compiler chooses the sharding over axes that are not Explicit."
    )
    with use_mesh(make_mesh((8,), ("x",), AxisType.Auto)):
        assert refusal(reshard, X, P("x")) == (
            "reshard, out_shardings: expected a spec over Explicit axes of a mesh, got P('x',), over a mesh "
            "of which no axis is Explicit.\n  Fix: use with_sharding_constraint, or make the mesh with "
            "axis_types=AxisType.Explicit."
        )
    assert "or after set_mesh(mesh)" in refusal(reshard, X, P("x"))
    with pytest.raises(ArgumentTypeError):
        reshard(X, "x")


def loss(w, x):
    return (jnp.tanh(x @ w["w"] + w["b"]) ** 2).mean()


def test_gradients_are_sharded_like_their_primals(put):
    w = {"w": put(X.T / 32, None, "y"), "b": put(np.ones(8, np.float32), "y")}
    x = put(X / 32, "x")
    want = phalanx.grad(loss)({"w": X.T / 32, "b": np.ones(8, np.float32)}, X / 32)
    derivative = phalanx.grad(loss)
    for grad in (
        derivative,
        phalanx.jit(derivative),
        phalanx.grad(phalanx.jit(loss)),
        phalanx.grad(phalanx.remat(loss)),
    ):
        got = grad(w, x)
        assert {k: type_of(v) for k, v in got.items()} == {"w": "f32[4,8@y]", "b": "f32[8@y]"}
        for k in want:
            np.testing.assert_allclose(got[k], want[k], rtol=1e-5, atol=1e-7)


def test_cotangents_are_not_gathered_before_they_are_summed(put):
    w = {"w": put(X.T / 32, None, "y"), "b": put(np.ones(8, np.float32), "y")}
    text = phalanx.jit(phalanx.grad(loss)).lower(w, put(X / 32, "x")).compile().as_text()
    assert "all-gather" not in text and "all-to-all" not in text


def test_second_derivatives_and_forward_mode_work_over_explicit_axes(put):
    v = put(np.arange(8, dtype=np.float32), "x")
    hessian = phalanx.jit(phalanx.hessian(lambda v: jnp.sin(v).sum()))
    np.testing.assert_allclose(hessian(v), np.diag(-np.sin(np.arange(8))), atol=1e-6)
    y, y_dot = phalanx.jvp(lambda v: jnp.sin(v) * v, (v,), (v,))
    assert type_of(y) == type_of(y_dot) == "f32[8@x]"


def test_vmap_maps_over_split_dimensions(put):
    a = put(X, "x", "y")
    inner = []
    phalanx.vmap(lambda r: inner.append(phalanx.typeof(r).str_short()) or r)(a)
    assert inner == ["f32[4@y]"]
    assert type_of(phalanx.vmap(jnp.sum)(a)) == "f32[8@x]"
    assert type_of(phalanx.vmap(phalanx.jit(lambda r: r * 2))(a)) == "f32[8@x,4@y]"
    assert type_of(phalanx.vmap(phalanx.jit(lambda r, s: r * s))(a, put(X))) == "f32[8@x,4@y]"
    scanned = phalanx.vmap(lambda r: lax.scan(lambda c, _: (c + r.sum(), None), 0.0, None, length=3)[0])(a)
    assert type_of(scanned) == "f32[8@x]"
    np.testing.assert_allclose(scanned, 3 * X.sum(1))
    named = phalanx.vmap(phalanx.jit(lambda r: r + 1), spmd_axis_name="x")
    assert type_of(named(put(X, None, "y"))) == "f32[8@x,4@y]"
    add = lambda a, b: a + b
    assert refusal(phalanx.vmap(add), a, put(X, "y")) == (
        f"vmap of {format_code_position(add)}: expected mapped dimensions with one sharding, as another one is sharded "
        "over ('x',), got dimension 0 of f32[8@y,4].\n"
        "  Fix: reshard the arguments with phalanx.reshard."
    )


def test_loops_and_branches_keep_the_shardings_of_their_carry(put):
    a = put(X, "x", "y")
    doubled = lambda c: lax.scan(lambda c, _: (c * 2, c.sum(1)), c, None, length=3)
    carry, sums = phalanx.jit(doubled)(a)
    assert (type_of(carry), type_of(sums)) == ("f32[8@x,4@y]", "f32[3,8@x]")
    g = phalanx.grad(lambda a: jnp.sin(doubled(a)[0]).sum())
    assert type_of(g(a)) == type_of(phalanx.jit(g)(a)) == "f32[8@x,4@y]"
    np.testing.assert_allclose(g(a), 8 * np.cos(8 * X), rtol=1e-3, atol=1e-3)
    assert type_of(lax.while_loop(lambda c: c.sum() < 1e4, lambda c: c * 2, a)) == "f32[8@x,4@y]"
    assert type_of(lax.cond(True, jnp.sin, jnp.cos, a)) == "f32[8@x,4@y]"


def test_an_unsharded_initial_carry_takes_the_sharding_of_the_body_result(put):
    total = lambda rows: lax.scan(lambda c, r: (c + r, None), np.zeros(4, np.float32), rows)[0]
    assert type_of(total(put(X))) == "f32[4]"
    assert type_of(total(put(X, None, "y"))) == type_of(phalanx.jit(total)(put(X, None, "y"))) == "f32[4@y]"
    np.testing.assert_allclose(total(put(X, None, "y")), X.sum(0))
    found = jnp.searchsorted(np.arange(5.0), put(np.arange(8.0), "x"))
    assert type_of(found) == "i32[8@x]"


def test_changing_the_sharding_of_a_carry_or_branch_is_an_error(put):
    a = put(X, "x", "y")
    body, other = (lambda c, _: (reshard(c, P("y")), None)), (lambda c: reshard(c, P("y")))
    same = lambda c: c
    fix = "  Fix: reshard it to P('x', 'y') with phalanx.reshard."
    assert refusal(lax.scan, body, a, None, 3) == (
        f"scan, carry returned by f = {format_code_position(body)}: expected type f32[8@x,4@y], as in init, "
        f"got f32[8@y,4].\n{fix}"
    )
    assert refusal(lax.while_loop, lambda c: c.sum() < 3, other, a) == (
        f"while_loop, result of body_fun = {format_code_position(other)}: expected type f32[8@x,4@y], as in init_val, "
        f"got f32[8@y,4].\n{fix}"
    )
    assert refusal(lax.cond, True, same, other, a) == (
        f"cond, result of false_fun = {format_code_position(other)}: expected type f32[8@x,4@y], as in the result of "
        f"true_fun = {format_code_position(same)}, got f32[8@y,4].\n{fix}"
    )
    assert refusal(lax.scan, lambda c, r: (c, r), np.float32(0), a) == (
        "scan, argument xs: expected a leading dimension that is not sharded, since each device runs all iterations, "
        "got f32[8@x,4@y].\n  Fix: reshard it with phalanx.reshard to a spec whose first entry is None."
    )


def test_jit_types_arguments_and_results_as_declared(put, mesh):
    a = put(X, "x", "y")
    y = NamedSharding(mesh, P("y"))
    assert type_of(phalanx.jit(lambda a: a * 2, out_shardings=y)(a)) == "f32[8@y,4]"
    inner = []
    phalanx.jit(lambda a: inner.append(phalanx.typeof(a).str_short()) or a, in_shardings=y)(X)
    assert inner == ["f32[8@y,4]"]
    assert type_of(phalanx.jit(lambda a: phalanx.jit(lambda a: a * 2, out_shardings=y)(a) + 1)(a)) == "f32[8@y,4]"
    assert refusal(phalanx.jit(phalanx.jit(lambda a: a, in_shardings=y)), a) == (
        "<lambda>, argument a: expected an array with the declared sharding P('y',), got f32[8@x,4@y].\n"
        "  Fix: reshard it with phalanx.reshard, or pass None for this argument in in_shardings."
    )
    assert type_of(phalanx.jit(lambda a: phalanx.device_put(a, y))(a)) == "f32[8@y,4]"


def test_results_without_a_sharding_are_replicated_on_an_explicit_mesh(put):
    a = put(X, "x", "y")
    y, zeros = phalanx.jit(lambda a: (a, jnp.zeros(8) + 1))(a)
    assert (type_of(y), type_of(zeros)) == ("f32[8@x,4@y]", "f32[8]")
    assert zeros.sharding.is_fully_replicated


def test_a_constraint_over_explicit_axes_asserts(put, mesh):
    a = put(X, "x", "y")
    assert type_of(lax.with_sharding_constraint(a, NamedSharding(mesh, P("x", "y")))) == "f32[8@x,4@y]"
    want = (
        "with_sharding_constraint: expected the sharding in the array's type over Explicit axes, "
        "P('x', 'y'), got P('y',) for f32[8@x,4@y].\n"
        "  Fix: change the sharding with phalanx.reshard(x, P('y',))."
    )
    constrain = lambda a: lax.with_sharding_constraint(a, NamedSharding(mesh, P("y")))
    assert refusal(constrain, a) == want
    assert refusal(phalanx.jit(constrain), a) == want


def test_auto_axes_leave_the_inside_to_the_compiler(put, mesh):
    a = put(X, "x", "y")
    inner = []

    def f(a):
        inner.append((phalanx.typeof(a).str_short(), phalanx.sharding.get_abstract_mesh().axis_types))
        return jnp.cumsum(a, 0)

    for wrap in (lambda f: f, phalanx.jit):
        got = wrap(auto_axes(f, out_sharding=P("x")))(a)
        assert type_of(got) == "f32[8@x,4]"
        np.testing.assert_array_equal(got, X.cumsum(0))
    assert inner == [("f32[8,4]", (AxisType.Auto,) * 2)] * 2
    assert type_of(auto_axes(f, axes="x")(a, out_sharding=P(None, "y"))) == "f32[8,4@y]"
    assert inner[-1] == ("f32[8,4@y]", (AxisType.Auto, AxisType.Explicit))
    g = phalanx.grad(lambda a: auto_axes(jnp.cumsum, out_sharding=P())(a.reshape(-1)).sum())
    assert type_of(g(a)) == type_of(phalanx.jit(g)(a)) == "f32[8@x,4@y]"
    np.testing.assert_allclose(g(a), np.arange(32, 0, -1).reshape(8, 4))
    with pytest.raises(ArgumentTypeError, match="auto_axes: expected out_sharding, which has no default"):
        auto_axes(f)(a)


def test_explicit_axes_context_gives_types_inside_only():
    auto = make_mesh((2, 4), ("x", "y"), AxisType.Auto)
    inner = []
    with use_mesh(auto):
        f = explicit_axes(lambda a: inner.append(phalanx.typeof(a).str_short()) or a * 2, in_sharding=P("x"))
        got = phalanx.jit(f)(X)
        assert phalanx.typeof(got).sharding.spec == P(None, None)
        np.testing.assert_array_equal(got, 2 * X)
        np.testing.assert_array_equal(f(X), 2 * X)
    assert inner == ["f32[8@x,4]"] * 2


def test_shard_map_keeps_unmapped_explicit_axes_in_types(put, mesh):
    seen = []

    def f(v, w):
        seen.append(phalanx.typeof(v).str_short())
        return jnp.sin(v) @ w

    options = dict(mesh=mesh, in_specs=(P("x"), P()), out_specs=P("x"))
    v, w = put(X / 32, "x"), put(X.T, None, "y")
    partly, wholly = phalanx.shard_map(f, axis_names={"x"}, **options), phalanx.shard_map(f, **options)
    want = np.sin(X / 32) @ X.T
    for call, type_ in ((partly, "f32[8@x,8@y]"), (wholly, "f32[8@x,8]")):
        for run in (call, phalanx.jit(call)):
            w = phalanx.reshard(w, P(None, "y" if call is partly else None))
            assert type_of(run(v, w)) == type_
            np.testing.assert_allclose(run(v, w), want, rtol=1e-5)
    assert "f32[4,4]{V:x}" in seen
    w = put(X.T, None, "y")
    with pytest.raises(phalanx.errors.ShardingError) as error:
        wholly(v, w)
    assert str(error.value).partition("in_specs")[2] == (
        "[1]: expected P(None, 'y'), the spec in the type of the argument, got P().\n"
        "  Fix: reshard the argument first, phalanx.reshard(x, P()), or leave in_specs out."
    )
    g = phalanx.jit(phalanx.grad(lambda v, w: (partly(v, w) ** 2).sum(), (0, 1)))(v, w)
    assert [type_of(x) for x in g] == ["f32[8@x,4]", "f32[4,8@y]"]
    np.testing.assert_allclose(g[1], 2 * np.sin(X / 32).T @ want, rtol=1e-4)
    inner = lambda v: phalanx.lax.psum(v, "x")
    reduced = phalanx.shard_map(inner, mesh=mesh, in_specs=P("x"), out_specs=P(), axis_names={"x"})
    assert type_of(phalanx.vmap(reduced)(put(X, "y"))) == "f32[8@y,2]"


def test_callbacks_over_explicit_axes_receive_unsharded_arrays(put):
    seen = []
    phalanx.jit(lambda a: phalanx.debug.callback(lambda v: seen.append(np.asarray(v)), a))(put(X, "x", "y"))
    phalanx.effects_barrier()
    np.testing.assert_array_equal(seen[0], X)


def test_results_used_as_arguments_do_not_recompile(mesh):
    traced = []
    step = phalanx.jit(lambda a: traced.append(a) or a * 2)
    a = phalanx.device_put(X, NamedSharding(mesh, P("x", None)))
    for _ in range(3):
        a = step(a)
    assert step._cache_size() == 1 and a.sharding is NamedSharding(mesh, P("x", None))
    # Another spelling of the same placement has the same type and shares the program.
    step(phalanx.device_put(X, NamedSharding(mesh, P("x"))))
    assert len(traced) == 1


def test_results_over_explicit_axes_have_an_entry_for_each_dimension(mesh):
    a = phalanx.device_put(X, NamedSharding(mesh, P("x")))
    for double in (lambda a: a * 2, phalanx.jit(lambda a: a * 2)):
        assert double(a).sharding is NamedSharding(mesh, P("x", None))
    assert phalanx.jit(lambda a: a.sum())(a).sharding is NamedSharding(mesh, P())
    with phalanx.set_mesh(mesh):
        assert reshard(X, P("x")).sharding is NamedSharding(mesh, P("x", None))
    mixed = make_mesh((2, 4), ("x", "y"), (AxisType.Auto, AxisType.Explicit))
    b = phalanx.device_put(X, NamedSharding(mixed, P("y")))
    assert phalanx.jit(lambda b: b * 2)(b).sharding is NamedSharding(mixed, P("y", None))


def test_programs_print_their_shardings(put):
    got = phalanx.make_jaxpr(lambda a: jnp.sin(a).sum(1))(put(X, "x", ("y",)))
    assert str(got) == (
        "{ lambda ; a:f32[8@x,4@y]. let\n"
        "    b:f32[8@x,4@y] = sin a\n"
        "    c:f32[8@x] = reduce_sum[dims=(1,)] b\n"
        "  in (c,) }"
    )


def test_shapes_with_an_explicit_sharding_trace_and_lower(mesh):
    shape = phalanx.ShapeDtypeStruct((8, 4), np.float32, sharding=NamedSharding(mesh, P("x", "y")))
    traced = phalanx.jit(lambda a: a.sum(0)).trace(shape)
    assert [a.str_short() for a in traced.out_avals] == ["f32[4@y]"]
    assert traced.lower().compile().output_shardings.spec == P("y")


def test_a_mesh_of_one_device_keeps_types():
    mesh = make_mesh((1,), ("x",), AxisType.Explicit)
    a = phalanx.device_put(X, NamedSharding(mesh, P("x")))
    assert type_of(a * 2) == type_of(phalanx.jit(jnp.sin)(a)) == "f32[8@x,4]"


@pytest.mark.parametrize(
    "product",
    [
        lax.dot,
        jnp.matmul,
        lambda a, b, out_sharding: jnp.einsum("ij,jk->ik", a, b, out_sharding=out_sharding),
        lambda a, b, out_sharding: jnp.tensordot(a, b, 1, out_sharding=out_sharding),
    ],
)
def test_out_sharding_resolves_ambiguous_results(put, mesh, product):
    a, b = put(X, None, "x"), put(X.T, "x")
    for out, want in ((P("y"), "f32[8@y,8]"), (NamedSharding(mesh, P("y")), "f32[8@y,8]"), (P(), "f32[8,8]")):
        placed = functools.partial(product, out_sharding=out)
        for call in (placed, phalanx.jit(placed)):
            got = call(a, b)
            assert type_of(got) == want
            np.testing.assert_allclose(got, X @ X.T)


def test_cotangents_of_operations_with_out_sharding_are_sharded_like_their_primals(put):
    a, b = put(X, None, "x"), put(X.T, "x")
    g = phalanx.grad(lambda a, b: jnp.dot(a, b, out_sharding=P("y")).sum(), (0, 1))
    for call in (g, phalanx.jit(g)):
        got = call(a, b)
        assert [type_of(x) for x in got] == ["f32[8,4@x]", "f32[4@x,8]"]
        np.testing.assert_allclose(got[0], np.ones((8, 8)) @ X)


def test_operations_accept_out_sharding(put):
    a = put(X, "x", "y")
    rows, places = np.array([5, 1, 1, 7]), put(np.array([5, 1, 1, 7]), "x")
    table = {
        "reshape": (lambda a: jnp.reshape(a, (4, 8), out_sharding=P("y", "x")), X.reshape(4, 8), "f32[4@y,8@x]"),
        "method": (lambda a: a.reshape(2, 16, out_sharding=P(None, "x")), X.reshape(2, 16), "f32[2,16@x]"),
        "ravel": (lambda a: jnp.ravel(a, out_sharding=P("y")), X.ravel(), "f32[32@y]"),
        "lax.reshape": (lambda a: lax.reshape(a, (4, 8), out_sharding=P("y")), X.reshape(4, 8), "f32[4@y,8]"),
        "repeat": (lambda a: jnp.repeat(a, 2, 0, out_sharding=P("y")), X.repeat(2, 0), "f32[16@y,4]"),
        "broadcast": (
            lambda a: jnp.broadcast_to(a, (2, 8, 4), out_sharding=P("x", None, "y")),
            np.broadcast_to(X, (2, 8, 4)),
            "f32[2@x,8,4@y]",
        ),
        "sum": (lambda a: lax.reduce_sum(a, (0,), out_sharding=P("x")), X.sum(0), "f32[4@x]"),
        "max": (lambda a: lax.reduce_max(a, (0,), out_sharding=P("x")), X.max(0), "f32[4@x]"),
        "min": (lambda a: lax.reduce_min(a, (1,), out_sharding=P()), X.min(1), "f32[8]"),
        "histogram": (
            lambda a: jnp.histogram(a, np.float32([0, 1, 2, 3, 40]), out_sharding=P("x"))[0],
            np.histogram(X, [0, 1, 2, 3, 40])[0],
            "f32[4@x]",
        ),
        "bincount": (
            lambda a: jnp.bincount(jnp.ravel(a.astype(int), out_sharding=P("x")), length=8, out_sharding=P("y")),
            np.bincount(X.astype(int).ravel())[:8],
            "i32[8@y]",
        ),
        "percentile": (
            lambda a: jnp.percentile(a, np.float32([25, 50]), axis=0, out_sharding=P("x", "y")),
            np.percentile(X, [25, 50], axis=0),
            "f32[2@x,4@y]",
        ),
        "one_hot": (
            lambda a: phalanx.nn.one_hot(a.astype(int), 2, out_sharding=P("y", None, "x")),
            np.stack([X.astype(int) == 0, X.astype(int) == 1], -1),
            "f32[8@y,4,2@x]",
        ),
        "get": (lambda a: a.at[rows].get(out_sharding=P("x")), X[rows], "f32[4@x,4]"),
        "get split": (lambda a: a.at[places].get(out_sharding=P("x", "y")), X[rows], "f32[4@x,4@y]"),
        "get one": (lambda a: a.at[3].get(out_sharding=P()), X[3], "f32[4]"),
        "set": (lambda a: a.at[rows].set(1.0, out_sharding=P("y")), None, "f32[8@y,4]"),
        "iota": (
            lambda a: a + lax.broadcasted_iota("f4", (8, 4), 0, out_sharding=P("x")),
            X + np.arange(8)[:, None],
            None,
        ),
    }
    with use_mesh(a.sharding.mesh):
        for name, (fun, want, type_) in table.items():
            for call in (fun, phalanx.jit(fun)):
                got = call(a)
                assert type_of(got) == (type_ or "f32[8@x,4@y]"), name
                if want is not None:
                    np.testing.assert_array_equal(got, want, err_msg=name)


def test_functions_that_create_arrays_accept_a_sharding(mesh, put):
    a = put(X, "x", "y")
    with use_mesh(mesh):
        for make in (
            lambda: jnp.zeros((8, 4), out_sharding=P("x")),
            lambda: jnp.ones((8, 4), device=NamedSharding(mesh, P("x"))),
            lambda: jnp.full((8, 4), 2.0, out_sharding=P("x")),
            lambda: jnp.zeros_like(X, out_sharding=P("x")),
            lambda: jnp.asarray(X, out_sharding=P("x")),
            lambda: lax.full((8, 4), 1.0, sharding=P("x")),
            lambda: lax.empty((8, 4), "float32", out_sharding=P("x")),
            lambda: phalanx.random.normal(phalanx.random.key(0), (8, 4), out_sharding=P("x")),
            lambda: phalanx.random.bits(phalanx.random.key(0), (8, 4), out_sharding=P("x")),
            lambda: phalanx.nn.initializers.zeros(None, (8, 4), "float32", P("x")),
            lambda: phalanx.nn.initializers.lecun_normal()(phalanx.random.key(0), (8, 4), "float32", P("x")),
        ):
            assert type_of(make()).endswith("32[8@x,4]")
            assert type_of(phalanx.jit(make)()).endswith("32[8@x,4]")
        assert type_of(jnp.arange(8, out_sharding=P("x"))) == "i32[8@x]"
    assert type_of(jnp.zeros_like(a)) == type_of(phalanx.jit(jnp.ones_like)(a)) == "f32[8@x,4@y]"


def test_products_of_host_data_accept_out_sharding(mesh):
    with use_mesh(mesh):
        assert type_of(jnp.dot(X, X.T, out_sharding=P("x", "y"))) == "f32[8@x,8@y]"
    auto = make_mesh((2, 4), ("x", "y"), AxisType.Auto)
    got = phalanx.jit(lambda a: jnp.dot(a, a.T, out_sharding=NamedSharding(auto, P("x"))))(X)
    assert got.sharding.spec == P("x") and phalanx.typeof(got).sharding.spec == P(None, None)


def test_a_function_without_arguments_runs_on_the_mesh_of_its_constants(mesh):
    x = phalanx.device_put(jnp.arange(8.0), NamedSharding(mesh, P("x")))
    y = phalanx.jit(lambda: x * 2)()
    assert y.sharding == x.sharding
    np.testing.assert_allclose(y, 2 * np.arange(8.0))


def test_a_type_under_an_explicit_mesh_always_has_a_sharding(mesh):
    assert phalanx.typeof(jnp.arange(8)).sharding.spec == P(None)
    with phalanx.set_mesh(mesh):
        assert phalanx.typeof(jnp.ones((8, 4))).sharding.spec == P(None, None)
        seen = []
        phalanx.jit(lambda x: seen.append(phalanx.typeof(x).sharding.spec))(1.0)
        assert seen == [P()]


def test_random_numbers_without_a_dtype_accept_out_sharding(mesh):
    with phalanx.set_mesh(mesh):
        x = phalanx.random.bernoulli(phalanx.random.key(0), 0.5, (8,), out_sharding=P("x"))
    assert x.sharding.spec == P("x")
    assert x.tolist() == phalanx.random.bernoulli(phalanx.random.key(0), 0.5, (8,)).tolist()


def test_map_over_a_split_dimension_stays_on_each_device(put):
    grow = lambda r: lax.while_loop(lambda c: c.sum() < 9, lambda c: 1.5 * c + 1, r)
    for axes in ("x", ("x", "y")):
        a = put(X, axes)
        f = phalanx.jit(lambda a: lax.map(lambda r: (grow(r[0]), r[1].sum()), (a, a)))
        g = phalanx.jit(phalanx.grad(lambda a: (lax.map(lambda r: r * r.sum(), a) ** 2).sum()))
        for got, wanted in zip(f(a), (phalanx.vmap(grow)(X), X.sum(1)), strict=True):
            assert got.sharding.spec == P(axes, *[None] * (got.ndim - 1))
            np.testing.assert_allclose(got, wanted, rtol=1e-5)
        np.testing.assert_allclose(
            g(a), phalanx.grad(lambda a: ((a * a.sum(1, keepdims=True)) ** 2).sum())(X), rtol=1e-4
        )
        assert collectives(f, a) == collectives(g, a) == ()
    assert refusal(lax.map, lambda r: r, (put(X, "x"), put(X, "y"))).startswith(
        "map, argument xs[0]: expected a leading dimension that is not sharded, since each device runs all iterations"
    )


@pytest.mark.parametrize("size", [1, 5, 7])
def test_map_over_shards_of_different_sizes_has_the_values_and_derivatives_of_one_device(put, size):
    """The derivative of the root at 0 is infinite, so shards must not be filled up with zeros."""
    x, w = np.arange(1.0, size + 1, dtype=np.float32), jnp.float32(2.0)
    f = phalanx.jit(lambda w, x: lax.map(lambda e: jnp.sqrt(w * e), x))
    g = phalanx.jit(phalanx.grad(lambda w, x: f(w, x).sum(), (0, 1)))
    a = put(x, "x")
    assert phalanx.typeof(f(w, a)).sharding.spec == P("x")
    np.testing.assert_allclose(f(w, a), np.sqrt(2 * x), rtol=1e-6)
    for got, wanted in zip(g(w, a), g(w, x), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
    keys = put(phalanx.random.split(phalanx.random.key(0), size), "x")
    wanted = phalanx.vmap(phalanx.random.uniform)(phalanx.random.split(phalanx.random.key(0), size))
    np.testing.assert_array_equal(lax.map(phalanx.random.uniform, keys), wanted)


@pytest.mark.parametrize("size", [8, 5])
def test_a_reshape_keeps_the_axes_of_a_dimension_that_remains_or_is_the_major_part_of_one(put, size):
    x = np.arange(size * 6.0, dtype=np.float32).reshape(size, 6)
    results = {
        (size, 1, 6): P("x", None, None),
        (1, size, 6): P(None, "x", None),
        (size, 2, 3): P("x", None, None),
        (size * 6,): P("x"),
        (size * 2, 3): P("x", None),
    }
    for shape, spec in results.items():
        f = lambda a, shape=shape: lax.reshape(a, shape)
        got = f(put(x, "x"))
        assert phalanx.typeof(got).sharding.spec == spec
        np.testing.assert_array_equal(got, x.reshape(shape))
        grad = phalanx.jit(phalanx.grad(lambda a, f=f: (f(a) ** 2).sum()))(put(x, "x"))
        assert phalanx.typeof(grad).sharding.spec == P("x", None)
        np.testing.assert_allclose(grad, 2 * x)
    assert refusal(lax.reshape, put(x.T, None, "x"), (size * 6,)).startswith("reshape: expected a reshape that keeps")
    for f in (lambda a: jnp.stack([a, a]), lambda a: jnp.tile(a, 2), lambda a: jnp.isin(a, jnp.arange(9.0))):
        assert "x" in phalanx.typeof(f(put(x, "x"))).sharding.spec
        np.testing.assert_array_equal(f(put(x, "x")), f(x))


def test_the_mesh_in_context_may_change_its_axis_types_inside_a_program(put, mesh):
    auto = mesh.abstract_mesh.with_axis_types(dict.fromkeys("xy", AxisType.Auto))
    renamed = AbstractMesh((8,), ("all",), axis_types=AxisType.Explicit)

    @phalanx.jit
    def f(a):
        with use_abstract_mesh(auto):
            assert get_abstract_mesh() is auto
        with use_abstract_mesh(renamed):
            b = reshard(a, P("all"))
            assert b.aval.str_short() == "f32[8@all,4]"
            b = b * 2
        assert get_abstract_mesh() is mesh.abstract_mesh
        return reshard(b, NamedSharding(mesh.abstract_mesh, P("x", None)))

    with use_mesh(mesh):
        got = f(put(X, "x"))
        assert got.sharding == NamedSharding(mesh, P("x", None))
        np.testing.assert_array_equal(got, 2 * X)
        with (
            pytest.raises(ShardingError, match="changing the mesh inside a compiled function"),
            use_abstract_mesh(renamed),
        ):
            phalanx.jit(lambda a: use_abstract_mesh(AbstractMesh((2,), ("x",))).__enter__())(X)


def test_types_tell_how_values_depend_on_manual_axes(mesh):
    seen = []
    f = phalanx.shard_map(
        lambda x: seen.append(phalanx.typeof(x).mat) or x, mesh=mesh, in_specs=P("x"), out_specs=P("x")
    )
    f(X)
    assert seen[0] is ManualAxisType(varying={"x"}) and not seen[0].empty
    assert repr(seen[0]) == "ManualAxisType(varying={'x'})" and phalanx.typeof(X).mat.empty
    with pytest.raises(AttributeError, match="read-only"):
        seen[0].varying = {"y"}


def test_a_mesh_is_a_decorator_and_may_be_a_scalar():
    auto = make_mesh((2, 4), ("x", "y"), AxisType.Auto)
    assert auto(lambda: get_abstract_mesh())() is auto.abstract_mesh
    assert not auto.is_scalar and not AbstractMesh((), ()).is_scalar


def test_new_arrays_are_whole_on_the_explicit_mesh_in_context(mesh):
    makers = (
        lambda: jnp.ones((2, 3)),
        lambda: jnp.eye(2),
        lambda: phalanx.random.normal(phalanx.random.key(0), (2, 3)),
        lambda: jnp.sin(np.ones((2, 3))),
        lambda: jnp.zeros((2, 3)) + 1,
    )
    with phalanx.set_mesh(mesh):
        for make in makers:
            assert make().sharding is NamedSharding(mesh, P(None, None))
            assert phalanx.jit(make)().sharding is NamedSharding(mesh, P(None, None))
        assert jnp.array([1.0]).sharding is NamedSharding(mesh, P())
        assert phalanx.jit(lambda x: x, in_shardings=P("x"))(np.ones(8)).sharding.spec == P("x")
        out = jnp.ones((8, 2), out_sharding=P("x"))
        assert out.sharding is NamedSharding(mesh, P("x", None)) and jnp.triu(out).sharding is out.sharding
    assert len(jnp.ones(3).sharding.device_set) == 1


@pytest.mark.parametrize("sizes", [(2, 4), (1, 2), (1, 1)])
def test_types_keep_explicit_axes_of_one_device(sizes):
    mesh = make_mesh(sizes, ("x", "y"), (AxisType.Explicit, AxisType.Auto))
    with phalanx.set_mesh(mesh):
        assert phalanx.jit(lambda: jnp.ones((2, 2)))().sharding is NamedSharding(mesh, P(None, None))
        made = phalanx.jit(lambda: jnp.ones((2, 2), out_sharding=P("x", None)))()
        assert made.sharding is NamedSharding(mesh, P("x", None))


def test_a_mesh_whose_axes_become_auto_takes_the_sharding_from_types(mesh):
    def f(x):
        auto = mesh.abstract_mesh.with_axis_types({"x": AxisType.Auto, "y": AxisType.Auto})
        with phalanx.use_abstract_mesh(auto):
            x = reshard(x, P(None, None))
            return x @ x.T

    with phalanx.set_mesh(mesh):
        x = phalanx.device_put(X, P("x", "y"))
        assert phalanx.typeof(phalanx.jit(f)(x)).shape == (8, 8)
        np.testing.assert_allclose(phalanx.jit(f)(x), X @ X.T)


def test_auto_axes_without_a_mesh_does_nothing():
    f = phalanx.sharding.auto_axes(lambda x: x + 1, out_sharding=P())
    assert phalanx.jit(f)(1) == 2
    with pytest.raises(ShardingError, match="auto_axes: expected a mesh in context, got none"):
        phalanx.sharding.auto_axes(lambda x: x + 1, out_sharding=P("x"))(jnp.ones(8))


@pytest.mark.parametrize("wrap", [lambda f: f, phalanx.jit])
def test_a_mapped_dimension_stays_sharded_through_out_sharding(mesh, wrap):
    a, b = np.arange(32.0, dtype=np.float32).reshape(4, 2, 4), np.arange(32.0, dtype=np.float32).reshape(4, 4, 2)
    f = wrap(lambda a, b: jnp.einsum("ij,jk->ik", a, b, out_sharding=P(None, None)))
    g = wrap(auto_axes(lambda a, b: a @ b, out_sharding=P()))
    with phalanx.set_mesh(mesh):
        placed = [phalanx.device_put(v, NamedSharding(mesh, P("x", None, "y" if v is a else None))) for v in (a, b)]
        assert phalanx.vmap(f, out_axes=2)(*placed).sharding.spec == P(None, None, "x")
        out = phalanx.vmap(g)(*placed)
    assert out.sharding.spec == P("x", None, None)
    np.testing.assert_allclose(out, a @ b)


def test_percentiles_take_an_out_sharding(mesh):
    with phalanx.set_mesh(mesh):
        x = phalanx.device_put(np.arange(104.0, dtype=np.float32), P("x"))
        out = phalanx.jit(lambda x: jnp.percentile(x, 50, out_sharding=P()))(x)
    assert float(out) == 51.5 and out.sharding.spec == P()


def test_an_array_like_a_struct_over_no_devices_is_made_on_the_default_device():
    like = phalanx.ShapeDtypeStruct((8, 2), "float32", sharding=NamedSharding(AbstractMesh((2,), ("x",)), P("x")))
    assert len(lax.full_like(like, 0).sharding.device_set) == 1


def test_axes_of_one_device_may_be_left_out_of_types():
    mesh = make_mesh((2, 1), ("x", "y"), AxisType.Explicit)
    seen = []

    def double(x):
        seen.append(phalanx.typeof(x).str_short())
        return lax.with_sharding_constraint(x * 2, P("x", "y"))

    def total(x):
        seen.append(phalanx.typeof(x).str_short())
        return lax.psum(x, "x")

    with use_mesh(mesh), phalanx.remove_size_one_mesh_axis_from_type(True):
        x = phalanx.device_put(X, P("x", "y"))
        assert phalanx.jit(double)(x).sharding == NamedSharding(mesh, P("x", None))
        phalanx.jit(phalanx.shard_map(total, in_specs=P("x", "y"), out_specs=P()))(x)
        rows = phalanx.vmap(lambda v: v + 1, spmd_axis_name=("x", "y"))(phalanx.device_put(X, P(("x", "y"))))
        assert rows.sharding.spec == P("x", None)
    assert seen[:2] == ["f32[8@x,4]", "f32[4,4]{V:x}"]


def test_the_out_sharding_of_an_array_on_no_mesh_changes_nothing():
    """Flax passes the sharding in the type of a layer's input on."""
    x = jnp.ones((2, 3))
    like = phalanx.typeof(x).sharding
    for make in (
        lambda: jnp.zeros((2, 3), out_sharding=like),
        lambda: phalanx.random.bernoulli(phalanx.random.key(0), 0.5, (2, 3), out_sharding=like),
        lambda: x.reshape((2, 3), out_sharding=like),
    ):
        assert make().sharding == phalanx.jit(make)().sharding == x.sharding


def test_a_spec_that_the_compiler_completed_has_no_trailing_none():
    with use_mesh(make_mesh((2, 4), ("x", "y"), (AxisType.Explicit, AxisType.Auto))):
        x = phalanx.device_put(X, P("x"))
        constrained = phalanx.jit(lambda x: lax.with_sharding_constraint(x, P("y")))(x)
        assert constrained.sharding.spec == P(("x", "y"))
        assert phalanx.jit(lambda x: x * 2)(x).sharding.spec == P("x", None)


def test_an_input_over_auto_axes_that_is_returned_keeps_its_mesh():
    typed = make_mesh((2,), ("x",), AxisType.Explicit)
    x = phalanx.device_put(X, NamedSharding(typed, P("x")))
    auto = make_mesh((2,), ("x",), AxisType.Auto)
    y = phalanx.device_put(X, NamedSharding(auto, P(None, "x")))
    with use_mesh(typed):
        kept_x, kept_y, new = phalanx.jit(lambda x, y: (x, y, y * 2))(x, y)
    assert kept_x.sharding.mesh is typed and kept_y.sharding == y.sharding
    assert new.sharding.mesh is typed
