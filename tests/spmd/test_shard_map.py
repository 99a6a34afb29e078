"""`shard_map`: specs, the per-device view, nesting, transformations, and its errors."""

import functools
import re

import numpy as np
import pytest
from tests.error_texts import without_positions
from tests.meshes import auto_mesh

import phalanx
import phalanx.numpy as jnp
from phalanx import lax, random, testing
from phalanx.core.error_classes import (
    ArgumentError,
    ArgumentTypeError,
    AxisError,
    ShardingError,
    TraceError,
    TreeError,
    UnboundAxisError,
)
from phalanx.core.jaxpr_checker import ProgramError, check_jaxpr
from phalanx.runtime import compiled_program
from phalanx.runtime.lowering import lower_jaxpr_to_module
from phalanx.sharding import NamedSharding, PartitionSpec as P
from phalanx.spmd.alpha_equivalence import is_alpha_equivalent

A = np.arange(32, dtype="float32").reshape(8, 4)
RING = [(i, (i + 1) % 4) for i in range(4)]


@pytest.fixture(scope="module")
def mesh():
    return auto_mesh((4, 2), ("x", "y"))


@pytest.fixture
def over(mesh):
    return functools.partial(phalanx.shard_map, mesh=mesh)


def error(kind, fun, *args):
    with pytest.raises(kind) as e:
        fun(*args)
    return without_positions(e.value)


# --- the view ---


def test_each_device_receives_its_shards_and_results_are_concatenated(over):
    @over(in_specs=(P("x", "y"), {"b": P("y")}), out_specs=(P("y", "x"), P()))
    def f(a, tree):
        assert (a.shape, tree["b"].shape) == ((2, 2), (2,))
        assert a.aval.varying == {"x", "y"} and tree["b"].aval.vma == {"y"}
        return (a * tree["b"]).T, lax.psum(a.sum(), ("x", "y"))

    b = np.array([1, 2, 3, 4], "float32")
    got, total = f(A, {"b": b})
    np.testing.assert_allclose(got, (A * b).T)
    assert got.sharding.spec == P("y", "x") and float(total) == A.sum()


def test_the_printed_program_shows_varying_axes():
    mesh = auto_mesh((2,), ("x",))
    f = phalanx.shard_map(lambda v: lax.psum(v * 2, "x"), mesh=mesh, in_specs=P("x"), out_specs=P())
    assert str(phalanx.make_jaxpr(f)(np.ones(4, "float32"))) == (
        "{ lambda ; a:f32[4]. let\n"
        "    b:f32[2] = shard_map[\n"
        "      check=True\n"
        "      in_specs=(P('x',),)\n"
        "      jaxpr={ lambda ; c:f32[2]{V:x}. let\n"
        "          d:f32[2]{V:x} = mul c 2.0:f32[]\n"
        "          e:f32[2] = psum[axes=('x',) groups=None sizes=(2,) tracked={'x'}] d\n"
        "        in (e,) }\n"
        "      manual={'x'}\n"
        "      mesh=Mesh('x': 2, axis_types=(Auto,))\n"
        "      out_specs=(P(),)\n"
        "    ] a\n"
        "  in (b,) }"
    )


def test_shard_map_runs_eagerly_compiled_and_under_a_context_mesh(mesh):
    f = phalanx.shard_map(lambda v: lax.ppermute(v, "x", RING), in_specs=P("x"), out_specs=P("x"))
    want = np.roll(A, 2, 0)
    with mesh:
        np.testing.assert_allclose(f(A), want)
        np.testing.assert_allclose(phalanx.jit(f)(A), want)
    placed = phalanx.device_put(A, NamedSharding(mesh, P(None, "y")))
    with phalanx.sharding.use_mesh(mesh):
        np.testing.assert_allclose(f(placed), want)


def test_former_spellings_are_accepted(mesh):
    from phalanx.experimental.shard_map import shard_map

    f = shard_map(
        lambda v: lax.psum(v, "x"), mesh, (P("x", None),), P(None, None), check_rep=False, auto=frozenset({"y"})
    )
    np.testing.assert_allclose(phalanx.jit(f)(A), A.reshape(4, 2, 4).sum(0))


def test_host_arguments_are_transferred_in_shards(mesh, over):
    f = phalanx.jit(over(lambda v, w: v * w.sum(), in_specs=(P("x", "y"), P()), out_specs=P("x", "y")))
    compiled = f.lower(A, A).compile()
    assert [s.spec for s in compiled.input_shardings[0]] == [P("x", "y"), P()]
    np.testing.assert_allclose(f(A, A), A * A.sum())


def test_python_control_flow_on_traced_values_is_an_error(over):
    message = error(Exception, over(lambda v: v if v.sum() > 0 else -v, in_specs=P("x"), out_specs=P("x")), A)
    assert "traced by" in message and "lax.cond" in message


def test_jit_traces_a_function_once_for_arguments_of_one_type(over):
    calls = []
    f = phalanx.jit(over(lambda v: calls.append(1) or v + 1, in_specs=P("x"), out_specs=P("x")))
    f(A), f(A + 1)
    assert len(calls) == 1

    scale = 2.0
    g = over(lambda v: v * scale, in_specs=P("x"), out_specs=P("x"))
    first = g(A)
    scale = 3.0
    np.testing.assert_allclose([first, g(A)], [2 * A, 3 * A])


def test_many_calls_may_be_started_before_any_is_read(mesh, over):
    """Devices of the host wait for each other on threads of one pool; unread calls must not use it up."""
    split = phalanx.device_put(A, NamedSharding(mesh, P("x", "y")))
    move = phalanx.jit(over(lambda v: lax.ppermute(v, "x", RING), in_specs=P("x", "y"), out_specs=P("x", "y")))
    total = phalanx.jit(lambda v: v - v.mean())
    for _ in range(100):
        moved, centred = move(split), total(split)
    np.testing.assert_allclose(moved, np.roll(A, 2, 0))
    np.testing.assert_allclose(centred, A - A.mean(), rtol=1e-5)


def test_keyword_arguments_are_bound_to_positions(over):
    f = over(lambda v, w, scale=1.0: v * w * scale, in_specs=[P("x"), P("x"), P()], out_specs=P("x"))
    np.testing.assert_allclose(f(A, scale=2.0, w=A), 2 * A * A)
    assert error(ArgumentTypeError, lambda: over(lambda *, v: v, in_specs=P("x"), out_specs=P("x"))(v=A)) == (
        "call of shard_map of <lambda>: expected arguments that can be passed by position, got keyword-only v.\n"
        "  Fix: make the parameters positional, since in_specs applies to positional arguments."
    )


def test_values_in_the_closure_are_replicated(over):
    w = jnp.arange(4.0)
    f = over(lambda v: lax.psum(v * w, "x") + np.float32(1), in_specs=P("x"), out_specs=P())
    np.testing.assert_allclose(f(A), (A * np.arange(4)).reshape(4, 2, 4).sum(0) + 1)
    g = lambda w: over(lambda v: lax.psum((v * w).sum(), "x"), in_specs=P("x"), out_specs=P())(A)
    np.testing.assert_allclose(phalanx.grad(g)(w), A.sum(0))
    np.testing.assert_allclose(phalanx.vmap(g)(jnp.eye(4)), A.sum(0))
    np.testing.assert_allclose(phalanx.jit(phalanx.jacfwd(g))(w), A.sum(0))


def test_an_abstract_mesh_uses_the_devices_of_the_arguments(mesh):
    abstract = phalanx.sharding.AbstractMesh((4, 2), ("x", "y"))
    f = phalanx.shard_map(lambda v: lax.psum(v, "x"), mesh=abstract, in_specs=P("x", "y"), out_specs=P(None, "y"))
    placed = phalanx.device_put(A, NamedSharding(mesh, P("x")))
    np.testing.assert_allclose(phalanx.jit(f)(placed), A.reshape(4, 2, 4).sum(0))
    assert error(ShardingError, f, A) == (
        "shard_map: expected a mesh of devices for an eager call, got AbstractMesh('x': 4, 'y': 2, axis_types=(Auto, Auto)).\n"
        "  Fix: make one with phalanx.make_mesh; an AbstractMesh will do for arguments over a Mesh with its axes."
    )


def test_tracing_and_lowering_do_not_grow_with_the_mesh():
    """The same operations for 8, 64 and 512 devices, in which nothing but numbers differs."""

    def step(params, x):
        def loss(params):
            hidden = lax.psum(jnp.tanh(x @ params[0]) @ params[1], "model") * lax.axis_index("data")
            return lax.pmean((hidden**2).mean(), "data")

        value, grads = phalanx.value_and_grad(loss)(params)
        return value, [p - 0.1 * g for p, g in zip(params, grads, strict=True)]

    texts = []
    for data, model in ((4, 2), (16, 4), (64, 8)):
        mesh = phalanx.sharding.AbstractMesh((data, model), ("data", "model"))
        weights = [P(None, "model"), P("model")]
        f = phalanx.shard_map(step, mesh=mesh, in_specs=(weights, P("data")), out_specs=(P(), weights))
        shapes = [(16, 8 * model), (8 * model, 16)], (4 * data, 16)
        struct = lambda s: phalanx.ShapeDtypeStruct(s, "float32")
        program = phalanx.make_jaxpr(f)([struct(s) for s in shapes[0]], struct(shapes[1]))
        check_jaxpr(program)
        module = lower_jaxpr_to_module(program, "cpu", num_partitions=mesh.size)
        texts.append(re.sub(r"dense<.*?>|\d+|\[[\[\], ]*\]", "", str(module.module)))
    assert texts[0] == texts[1] == texts[2]
    assert texts[0].count("all_reduce") == 4  # two of the program's own, and one for each weight


def test_axes_of_one_device_are_not_checked():
    mesh = auto_mesh((1, 2), ("one", "x"))
    f = phalanx.shard_map(
        lambda v: v + lax.axis_index("one"), mesh=mesh, in_specs=P("one", "x"), out_specs=P(None, "x")
    )
    np.testing.assert_allclose(f(A), A)


def test_results_may_vary_over_fewer_axes_than_their_spec(over):
    f = over(lambda v: lax.psum(v, "x"), in_specs=P("x"), out_specs=P(None, "y"))
    np.testing.assert_allclose(f(A), np.tile(A.reshape(4, 2, 4).sum(0), 2))
    got = phalanx.grad(lambda a: (f(a) * np.arange(8)).sum())(A)
    np.testing.assert_allclose(got, np.tile(np.arange(8).reshape(2, 4).sum(0), (8, 1)))


def test_a_mesh_whose_devices_are_in_another_order():
    devices = np.array(phalanx.devices())[[5, 2, 7, 0, 1, 6, 3, 4]].reshape(4, 2)
    mesh = phalanx.sharding.Mesh(devices, ("x", "y"))
    f = phalanx.shard_map(
        lambda v: (lax.ppermute(v, "x", RING) + 100 * lax.axis_index("x"), lax.all_gather(v, "y", axis=1, tiled=True)),
        mesh=mesh,
        in_specs=P("x", "y"),
        out_specs=P("x", "y"),
    )
    moved, gathered = phalanx.jit(f)(phalanx.device_put(A, NamedSharding(auto_mesh((8,), ("all",)), P("all"))))
    np.testing.assert_allclose(moved, np.roll(A, 2, 0) + 100 * np.repeat(np.arange(4), 2)[:, None])
    np.testing.assert_allclose(gathered, np.concatenate([A, A], 1))


# --- axes that the partitioner keeps, and nesting ---

KEPT = {
    "psum": (lambda v: lax.psum(v, "x"), P()),
    "pmax": (lambda v: lax.pmax(v, "x"), P()),
    "axis_index": (lambda v: v * lax.axis_index("x"), P("x")),
    "axis_index in a loop": (lambda v: lax.fori_loop(0, 3, lambda i, c: c + lax.axis_index("x"), v), P("x")),
    "axis_index in a call": (lambda v: phalanx.jit(lambda v: v + lax.axis_index("x"))(v), P("x")),
    "all_gather": (lambda v: lax.all_gather(v, "x", tiled=True), P("x")),
    "ppermute": (lambda v: lax.ppermute(v, "x", RING), P("x")),
    "all_to_all": (lambda v: lax.all_to_all(jnp.concatenate([v, v]), "x", 0, 0, tiled=True), P("x")),
    "psum_scatter": (lambda v: lax.psum_scatter(jnp.concatenate([v, v]), "x", tiled=True), P("x")),
    "while": (
        lambda v: lax.while_loop(lambda c: c[0] <= lax.axis_index("x"), lambda c: (c[0] + 1, 2 * c[1]), (0, v))[1],
        P("x"),
    ),
}


def test_collectives_work_on_a_partly_manual_mesh(mesh, over):
    """All collectives in one program: each gives what it gives on a mesh of the manual axis alone."""
    alone = auto_mesh((4,), ("x",))
    whole = {k: phalanx.shard_map(f, mesh=alone, in_specs=P("x"), out_specs=s) for k, (f, s) in KEPT.items()}
    want = phalanx.jit(lambda a: {k: f(a) for k, f in whole.items()})(A)
    parts = {k: over(f, in_specs=P("x"), out_specs=s, axis_names={"x"}) for k, (f, s) in KEPT.items()}
    placed = phalanx.device_put(A, NamedSharding(mesh, P("x", "y")))
    got = phalanx.jit(lambda a: {k: f(a) for k, f in parts.items()})(placed)
    for name in KEPT:
        np.testing.assert_allclose(got[name], want[name], err_msg=name)
    assert got["ppermute"].sharding.spec == P("x", "y")  # the partitioner kept "y" split


def test_constraints_inside_may_use_axes_that_are_not_mapped(over):
    f = over(
        lambda v: lax.with_sharding_constraint(v @ v.T, P(None, "y")) + lax.axis_index("x"),
        in_specs=P("x"),
        out_specs=P("x"),
        axis_names={"x"},
    )
    want = np.concatenate([a @ a.T + i for i, a in enumerate(A.reshape(4, 2, 4))])
    np.testing.assert_allclose(phalanx.jit(f)(A), want)


def nested(v):
    inner = phalanx.shard_map(
        lambda u: lax.psum(u, "y") * (1 + lax.axis_index("x")), in_specs=P(None, "y"), out_specs=P(), axis_names={"y"}
    )
    return inner(v) * 2


def test_nested_shard_maps_map_over_different_axes(over):
    f = over(nested, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
    scale = 2 * (1 + np.arange(8)[:, None] // 2)
    np.testing.assert_allclose(phalanx.jit(f)(A), A.reshape(8, 2, 2).sum(1) * scale)
    np.testing.assert_allclose(phalanx.jit(phalanx.grad(lambda a: f(a).sum()))(A), np.broadcast_to(scale, A.shape))
    with_names = over(
        lambda v: phalanx.shard_map(lambda u: lax.psum(u, ("x", "y")), in_specs=P(None, "y"), out_specs=P())(v),
        in_specs=P("x"),
        out_specs=P(),
        axis_names={"x"},
    )
    np.testing.assert_allclose(with_names(A), A.reshape(4, 2, 2, 2).sum((0, 2)))


@pytest.mark.parametrize("outer_check", [True, False])
@pytest.mark.parametrize("inner_check", [True, False])
def test_nested_shard_maps_are_differentiable_with_and_without_check_vma(over, outer_check, inner_check):
    def outer(w, v):
        inner = phalanx.shard_map(
            lambda w, u: (lax.psum(jnp.sin(u * w), "y"), lax.psum((u * w).sum(), ("x", "y"))),
            in_specs=(P(), P(None, "y")),
            out_specs=(P(), P()),
            axis_names={"y"},
            check_vma=inner_check,
        )
        rows, total = inner(w, v)
        return rows * w, total

    f = over(outer, in_specs=(P(), P("x")), out_specs=(P("x"), P()), axis_names={"x"}, check_vma=outer_check)
    whole = lambda w, v: (w * (jnp.sin(v[:, :2] * w) + jnp.sin(v[:, 2:] * w)), (v * w).sum())

    def derivative(g):
        def loss(w, v):
            rows, total = g(w, v)
            return (jnp.cos(jnp.arange(16.0)).reshape(8, 2) * rows).sum() * total

        return phalanx.jit(phalanx.vmap(phalanx.grad(loss, (0, 1)), (0, None)))(np.array([0.5, 0.7]), A / 9)

    for got, want in zip(derivative(f), derivative(whole), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


def test_a_data_parallel_step_with_an_automatic_model_axis_trains(mesh, over):
    def loss(params, x):
        hidden = lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, params)[0]
        return (hidden**2).mean()

    def step(params, x):
        value, grads = phalanx.value_and_grad(loss)(params, x)
        return lax.pmean(value, "x"), grads / lax.axis_size("x")

    params = np.random.default_rng(0).normal(size=(3, 4, 4)).astype("float32")
    split = phalanx.device_put(params, NamedSharding(mesh, P(None, None, "y")))
    f = over(step, in_specs=(P(), P("x")), out_specs=(P(), P()), axis_names={"x"})
    for got, want in zip(phalanx.jit(f)(split, A), phalanx.value_and_grad(loss)(params, A), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


# --- Explicit axes ---


def test_specs_and_explicit_sharding_types_determine_each_other():
    explicit = phalanx.sharding.AxisType.Explicit
    mesh = phalanx.make_mesh((4, 2), ("x", "y"), axis_types=(explicit, explicit))
    a = phalanx.device_put(A, NamedSharding(mesh, P("x", "y")))
    seen = []

    def f(v):
        seen.append(v.aval.str_short())
        return lax.psum(2 * v, "x")

    with phalanx.sharding.use_mesh(mesh):
        whole = phalanx.jit(phalanx.shard_map(f, out_specs=P(None, "y")))(a)
        part = phalanx.jit(phalanx.shard_map(f, in_specs=P("x"), out_specs=P(), axis_names={"x"}))(a)
        grad = phalanx.grad(lambda a: (phalanx.shard_map(f, out_specs=P(None, "y"))(a) ** 2).sum())(a)
        replicated = phalanx.shard_map(lambda v: v["a"], out_specs=P())({"a": A})  # no sharding in its type
    auto = phalanx.make_mesh((4, 2), ("x", "y"), axis_types=(phalanx.sharding.AxisType.Auto,) * 2)
    message = error(ShardingError, phalanx.shard_map(f, mesh=auto, out_specs=P()), {"a": A})
    np.testing.assert_array_equal(replicated, A)
    assert seen[:2] == ["f32[2,2]{V:(x,y)}", "f32[2,4@y]{V:x}"]
    assert [y.aval.str_short() for y in (whole, part, grad)] == ["f32[2,4@y]", "f32[2,4@y]", "f32[8@x,4@y]"]
    for y in (whole, part):
        np.testing.assert_allclose(y, 2 * A.reshape(4, 2, 4).sum(0))
    np.testing.assert_allclose(grad, np.tile(8 * A.reshape(4, 2, 4).sum(0), (4, 1)))
    assert message == (
        "shard_map of f, in_specs[0]['a']: expected a spec, or an array with a sharding over Explicit "
        "axes in its type, got f32[8,4].\n"
        "  Fix: pass in_specs, or use a mesh with Explicit axes and reshard the argument."
    )


# --- transformations ---


def test_vmap_over_any_dimension(over):
    B = np.random.default_rng(0).normal(size=(3, 8, 4)).astype("float32")
    f = over(
        lambda v, w: (lax.psum(v * w, "x"), v + lax.axis_index("x")), in_specs=(P("x"), P()), out_specs=(P(), P("x"))
    )
    for b in range(3):
        total, moved = phalanx.vmap(f, in_axes=(b, None), out_axes=(1, 2))(np.moveaxis(B, 0, b), A[:2])
        np.testing.assert_allclose(total, np.stack([(v.reshape(4, 2, 4) * A[:2]).sum(0) for v in B], 1), rtol=1e-5)
        np.testing.assert_allclose(moved, np.stack([v + np.arange(8)[:, None] // 2 for v in B], 2), rtol=1e-6)


def test_one_collective_may_use_a_vmapped_axis_and_a_mesh_axis(over):
    B = np.random.default_rng(0).normal(size=(3, 8, 4)).astype("float32")
    f = over(lambda v: lax.psum(v, ("i", "x")) + lax.axis_index("i"), in_specs=P("x"), out_specs=P())
    want = B.reshape(3, 4, 2, 4).sum((0, 1)) + np.arange(3)[:, None, None]
    np.testing.assert_allclose(phalanx.vmap(f, axis_name="i")(B), want, rtol=1e-4)
    g = over(
        lambda v: phalanx.vmap(lambda r: lax.psum(r, ("x", "j")), axis_name="j")(v), in_specs=P("x"), out_specs=P()
    )
    np.testing.assert_allclose(g(A), np.tile(A.sum(0), (2, 1)))


def test_a_shift_along_a_mapped_axis_that_the_mesh_splits():
    """With an axis left to the partitioner, XLA would end the process over a gather here."""
    mesh = auto_mesh((2, 2, 2), ("x", "y", "z"))
    shift = lambda v: lax.ppermute(v, "a", [(0, 1), (1, 0)])
    mapped = phalanx.shard_map(shift, mesh=mesh, in_specs=P("y"), out_specs=P("y"), axis_names={"y"})
    x = np.arange(16, dtype=np.float32).reshape(2, 2, 4)
    f = phalanx.jit(phalanx.vmap(mapped, axis_name="a", spmd_axis_name="x"), in_shardings=NamedSharding(mesh, P("x")))
    np.testing.assert_array_equal(f(x), x[::-1])


def test_spmd_axis_name_splits_the_mapped_dimension(over):
    B = np.random.default_rng(0).normal(size=(4, 8, 4)).astype("float32")
    f = over(lambda v, w: (lax.psum(v, "y") * w, 2 * v), in_specs=(P("y"), P()), out_specs=(P(), P("y")))
    got, doubled = phalanx.jit(phalanx.vmap(f, in_axes=(0, None), spmd_axis_name="x"))(B, A[:4])
    np.testing.assert_allclose(got, B.reshape(4, 2, 4, 4).sum(1) * A[:4], rtol=1e-5)
    assert got.sharding.spec == P("x") and doubled.sharding.spec == P("x", "y")
    # Also an axis that the partitioner keeps takes it, from values that lie whole.
    mesh = auto_mesh((4, 2), ("x", "y"))
    part = phalanx.shard_map(
        lambda a: a * lax.psum(a.sum(), "y"), mesh=mesh, in_specs=P("y"), out_specs=P("y"), axis_names={"y"}
    )
    for step in (part, lambda a: phalanx.grad(lambda a: part(a).sum())(a)):
        split = phalanx.jit(phalanx.vmap(phalanx.jit(step), spmd_axis_name="x"))(B[..., 0])
        assert split.sharding.spec == P("x", "y")
        np.testing.assert_allclose(split, phalanx.vmap(step)(B[..., 0]), rtol=1e-5)
    message = error(ShardingError, phalanx.vmap(f, in_axes=(0, None), spmd_axis_name="y"), B, A[:4])
    assert message == (
        "vmap(..., spmd_axis_name=('y',)) of a shard_map: expected mesh axes that are not in its specs, got "
        "P('y',).\n  Fix: choose another mesh axis for the mapped dimension, or leave spmd_axis_name out."
    )


@pytest.mark.parametrize("check", [True, False])
def test_derivatives_of_every_order(over, check):
    f = over(
        lambda w, v: lax.psum((jnp.sin(v * w) ** 2).sum(), ("x", "y")),
        in_specs=(P(), P("x", "y")),
        out_specs=P(),
        check_vma=check,
    )
    plain = lambda w, v: (jnp.sin(v * w) ** 2).sum()
    for derivative in (
        phalanx.hessian,
        lambda g: phalanx.grad(phalanx.grad(g)),
        lambda g: phalanx.jacrev(phalanx.jacfwd(g)),
    ):
        got = phalanx.jit(derivative(lambda w: f(w, A)))(0.5)
        np.testing.assert_allclose(got, derivative(lambda w: plain(w, A))(0.5), rtol=1e-4)
    y, linear = phalanx.linearize(f, 0.5, A)
    np.testing.assert_allclose(y, plain(0.5, A), rtol=1e-5)
    np.testing.assert_allclose(linear(1.0, A * 0), phalanx.grad(plain)(0.5, A), rtol=1e-4)
    scatter = over(lambda v: 2 * lax.psum(v, "x"), in_specs=P("x"), out_specs=P(), check_vma=check)
    (got,) = phalanx.linear_transpose(scatter, A)(A[:2])
    np.testing.assert_allclose(got, 2 * np.tile(A[:2], (4, 1)))


def test_checkpoint_saves_the_inputs_only(over):
    f = phalanx.checkpoint(over(lambda v: jnp.sin(jnp.sin(v)), in_specs=P("x"), out_specs=P("x")))
    np.testing.assert_allclose(
        phalanx.grad(lambda a: f(a).sum())(A), np.cos(np.sin(A)) * np.cos(A), rtol=1e-4, atol=1e-5
    )
    text = str(phalanx.make_jaxpr(lambda a: phalanx.vjp(f, a)[1](a))(A))
    assert text.count("shard_map[") >= 2 and "remat2[" in text


def test_partial_evaluation_runs_known_parts_first_and_drops_dead_ones(over):
    f = over(lambda v, w: (jnp.sin(v), v * w, w.sum(keepdims=True)), in_specs=(P("x"), P("x")), out_specs=P("x"))
    y, linear = phalanx.linearize(lambda w: f(A, w)[:2], A)
    np.testing.assert_allclose(linear(A)[1], A * A)
    program = phalanx.make_jaxpr(lambda v, w: f(v, w)[1])(A, A)
    check_jaxpr(program)
    from phalanx.core.jaxpr import dce_jaxpr

    smaller, _ = dce_jaxpr(program, [True])
    (eqn,) = smaller.eqns
    assert len(eqn.outvars) == 1 and [e.primitive.name for e in eqn.params["jaxpr"].eqns] == ["mul"]


def test_gradients_by_replicated_values_are_summed_over_devices(over):
    """A gradient by a shared value sums what all devices give; by a value of its own, each device has its own."""

    def f(w, v):
        loss = lambda w: lax.pmean(((v * w) ** 2).mean(), "x")
        own = phalanx.grad(lambda w: ((v * w) ** 2).sum())(lax.pvary(w, "x"))
        return phalanx.grad(loss)(w), phalanx.grad(lambda w: ((v * w) ** 2).sum())(w), own[None]

    shared, summed, own = over(f, in_specs=(P(), P("x")), out_specs=(P(), P(), P("x")))(1.0, A)
    np.testing.assert_allclose([shared, summed], [2 * (A**2).mean(), 2 * (A**2).sum()], rtol=1e-5)
    np.testing.assert_allclose(own, 2 * (A.reshape(4, -1) ** 2).sum(1), rtol=1e-5)
    *_, apart = over(f, in_specs=(P(), P("x")), out_specs=(P(), P(), P("x")), check_vma=False)(1.0, A)
    np.testing.assert_allclose(apart, own)


def test_a_loop_sums_the_cotangents_of_a_shared_operand_once(over):
    f = over(
        lambda w, v: lax.scan(lambda c, vi: (jnp.sin(c * w + vi), None), v[0], v)[0],
        in_specs=(P(), P("x")),
        out_specs=P("x"),
    )
    program = phalanx.make_jaxpr(phalanx.grad(lambda w: f(w, A).sum()))(1.0)
    *_, backward = (e.params["jaxpr"] for e in program.eqns if e.primitive.name == "shard_map")
    assert [e.primitive.name for e in backward.eqns].count("psum") == 1
    (loop,) = (e for e in backward.eqns if e.primitive.name == "scan")
    assert "psum" not in str(loop.params["jaxpr"])


def test_gradients_use_the_minimal_collectives(mesh, over):
    """A weight that is gathered where it is used: its cotangent is scattered as it is summed, and means cost nothing."""
    put = lambda shape, spec: phalanx.device_put(np.ones(shape, "float32"), NamedSharding(mesh, spec))
    w, x = put((16, 4), P("x")), put((8, 16), P("x"))

    def loss(w, x):
        return lax.pmean((jnp.tanh(x @ lax.all_gather(w, "x", tiled=True)) ** 2).mean(), "x")

    f = over(loss, in_specs=(P("x"), P("x")), out_specs=P())
    assert [c.kind for c in testing.collectives(phalanx.grad(f), w, x)] == ["all-gather", "reduce-scatter"]
    kinds = sorted(c.kind for c in testing.collectives(phalanx.value_and_grad(f), w, x))
    assert kinds == ["all-gather", "all-reduce", "reduce-scatter"]


def test_a_training_loop_runs_inside_shard_map(over):
    def train(w, x):
        def step(w, xi):
            value, g = phalanx.value_and_grad(lambda w: ((xi @ w) ** 2).mean())(w)
            return w - 0.01 * g / lax.axis_size("x"), lax.pmean(value, "x")

        return lax.scan(step, w, x.reshape(2, 1, 4))

    w, losses = phalanx.jit(over(train, in_specs=(P(), P("x")), out_specs=P()))(np.full(4, 0.1, "float32"), A)
    want, seen = np.full(4, 0.1), []
    for i in range(2):
        rows = A.reshape(4, 2, 4)[:, i]
        seen.append(((rows @ want) ** 2).mean())
        want = want - 0.01 * 2 * (rows * (rows @ want)[:, None]).mean(0)
    np.testing.assert_allclose(w, want, rtol=1e-4)
    np.testing.assert_allclose(losses, seen, rtol=1e-4)


# --- control flow that differs between devices ---


def test_loops_run_a_different_number_of_times_on_each_device(over):
    def f(v):
        place = lax.axis_index("x")
        return lax.while_loop(lambda c: c[0] < place, lambda c: (c[0] + 1, lax.psum(c[1], "y")), (0, v))[1]

    np.testing.assert_allclose(over(f, in_specs=P("x"), out_specs=P("x"))(A), A * 2.0 ** (np.arange(8)[:, None] // 2))
    (_, dot) = phalanx.jvp(over(f, in_specs=P("x"), out_specs=P("x")), (A,), (A,))
    np.testing.assert_allclose(dot, A * 2.0 ** (np.arange(8)[:, None] // 2))


def test_a_collective_in_divergent_control_flow_is_an_error(over):
    fix = (
        "  Fix: make it the same for all, for example with lax.pmax, or move the collective out of the loop or branch."
    )
    loop = lambda v: lax.while_loop(lambda c: c.sum() < 9, lambda c: lax.psum(c, "x"), v)
    choice = lambda v: lax.cond(v.sum() > 9, lambda v: lax.ppermute(v, "x", RING), lambda v: v, v)
    for f, where in ((loop, "while_loop, the result of cond_fun"), (choice, "cond or switch, the choice")):
        assert error(TraceError, over(f, in_specs=P("x"), out_specs=P("x")), A) == (
            f"{where}: expected a value that all devices along 'x' share, since a collective over 'x' depends on it, got "
            f"one that varies over 'x'.\n{fix}"
        )


# --- effects, keys, dtypes ---


def test_callbacks_run_on_each_device(over):
    seen = []
    f = over(
        lambda v: phalanx.debug.callback(lambda s: seen.append(float(s)), v.sum()) or v,
        in_specs=P("x", "y"),
        out_specs=P("x", "y"),
    )
    phalanx.jit(f)(A)
    phalanx.effects_barrier()
    assert sorted(seen) == sorted(A.reshape(4, 2, 2, 2).sum((1, 3)).ravel().tolist())


def test_random_keys_can_be_exchanged_and_differ_between_devices(over):
    keys = phalanx.random.split(phalanx.random.key(0), 4)
    moved = over(lambda k: lax.ppermute(k, "x", RING), in_specs=P("x"), out_specs=P("x"))(keys)
    np.testing.assert_array_equal(phalanx.random.key_data(moved), np.roll(phalanx.random.key_data(keys), 1, 0))
    draw = over(
        lambda k: phalanx.random.normal(phalanx.random.fold_in(k, lax.axis_index("x")), (2,)),
        in_specs=P(),
        out_specs=P("x"),
    )
    want = np.concatenate([phalanx.random.normal(phalanx.random.fold_in(keys[0], i), (2,)) for i in range(4)])
    np.testing.assert_allclose(draw(keys[0]), want, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "uint32", "complex64", "bool"])
def test_sums_of_every_kind(over, dtype):
    x = (A > 9) if dtype == "bool" else A.astype(jnp.dtype(dtype))
    got = over(lambda v: lax.psum(v, "x"), in_specs=P("x"), out_specs=P())(x)
    want = np.asarray(x).astype("complex64" if dtype == "complex64" else "float32").reshape(4, 2, 4).sum(0)
    np.testing.assert_allclose(np.asarray(got).astype(want.dtype), want)


def test_groups_over_several_axes():
    mesh = phalanx.make_mesh((2, 2, 2), ("x", "y", "z"), axis_types=(phalanx.sharding.AxisType.Auto,) * 3)
    a = np.arange(64).reshape(8, 8)
    row_major, column_major = ([[0, 1], [2, 3]], [[0, 2], [1, 3]])

    def f(a):
        pairs = lax.all_gather(a, ("y", "z"), axis_index_groups=row_major, axis=-1, tiled=True)
        return pairs, lax.psum(a, ("z", "y"), axis_index_groups=column_major)

    pairs, sums = phalanx.shard_map(f, mesh=mesh, in_specs=P("x", ("y", "z")), out_specs=P("x", ("y", "z")))(a)
    np.testing.assert_array_equal(pairs, np.repeat(a.reshape(8, 2, 4), 2, axis=1).reshape(8, 16))
    np.testing.assert_array_equal(
        sums, np.tile(a.reshape(8, 2, 2, 2).sum(2, keepdims=True), (1, 1, 2, 1)).reshape(8, 8)
    )
    with pytest.raises(ArgumentError, match="axis_index_groups: expected one named axis to divide into groups, got 2"):
        pair = phalanx.vmap(lambda a: lax.psum(a, ("i", "j"), axis_index_groups=row_major), axis_name="i")
        phalanx.vmap(pair, axis_name="j")(a[:2, :2])


def test_vmap_over_a_dimension_that_explicit_axes_shard_keeps_its_sharding():
    mesh = phalanx.make_mesh((1, 2, 2), ("z", "x", "y"), axis_types=(phalanx.sharding.AxisType.Explicit,) * 3)
    x = phalanx.device_put(A[:4, :4], NamedSharding(mesh, P(("z", "x"), "y")))
    total = phalanx.vmap(phalanx.shard_map(lambda v: lax.psum(v, "y"), mesh=mesh, in_specs=P("y"), out_specs=P(None)))
    for y in (total(x), phalanx.jit(total)(x)):
        assert y.sharding.spec == P(("z", "x"), None)
        np.testing.assert_allclose(y, A[:4, :4].reshape(4, 2, 2).sum(1), rtol=1e-6)
    assert "all-gather" not in phalanx.jit(total).lower(x).compile().as_text()


def test_uneven_groups(over):
    f = over(lambda v: lax.psum(v, "x", axis_index_groups=[[2], [0, 3, 1]]), in_specs=P("x"), out_specs=P("x"))
    rows = A.reshape(4, 2, 4)
    rest = rows[[0, 1, 3]].sum(0)
    np.testing.assert_allclose(f(A), np.concatenate([rest, rest, rows[2], rest]))


# --- errors ---


def test_a_missing_mesh_is_an_error():
    assert error(ShardingError, phalanx.shard_map(lambda v: v, in_specs=P("x"), out_specs=P("x")), A) == (
        "shard_map of <lambda>: expected a mesh, got none.\n"
        "  Fix: pass mesh=..., or call the function inside `with mesh:` or after set_mesh(mesh)."
    )


def test_specs_must_fit_the_mesh_and_the_arrays(over):
    same = lambda v: v
    cases = {
        "axis": (
            P("z"),
            P(),
            ShardingError,
            "shard_map of <lambda>, in_specs[0]: expected a spec over the axes of the mesh ('x', 'y'), got "
            "P('z',).\n  Fix: add an axis 'z' to the mesh, or remove it from the spec.",
        ),
        "twice": (
            P("x", "x"),
            P(),
            ShardingError,
            "shard_map of <lambda>, in_specs[0]: expected a spec that names each mesh axis at most once, got "
            "P('x', 'x').\n"
            "  Fix: keep 'x' in one entry only: a mesh axis can split one dimension of an array.",
        ),
        "rank": (
            P("x", None, "y"),
            P(),
            ShardingError,
            "shard_map of <lambda>, in_specs[0]: expected a spec of at most 2 entries for f32[8,4], got "
            "P('x', None, 'y').\n  Fix: drop the last entry, or give the array 3 dimensions.",
        ),
        "size": (
            P(None, ("x", "y")),
            P(),
            ShardingError,
            "shard_map of <lambda>, in_specs[0]: expected dimension 1 of a size divisible by 8, the size of 'x', 'y', "
            "got f32[8,4].\n  Fix: pass uneven='pad' to shard_map, which pads dimension 1 to 8, or split another dimension.",
        ),
        "kind": (
            "x",
            P(),
            ArgumentTypeError,
            "shard_map of <lambda>, in_specs[0]: expected a PartitionSpec of axis names and None, got 'x'.\n"
            "  Fix: pass PartitionSpec('x'), for example, or PartitionSpec() for a replicated array.",
        ),
        "out": (
            P("x"),
            P("x", None, "y"),
            ShardingError,
            "shard_map of <lambda>, out_specs: expected a spec of at most 2 entries for f32[2,4]{V:x}, got "
            "P('x', None, 'y').\n  Fix: drop the last entry, or give the array 3 dimensions.",
        ),
    }
    for name, (ins, outs, kind, text) in cases.items():
        assert error(kind, over(same, in_specs=ins, out_specs=outs), A) == text, name
    assert error(ShardingError, over(same, in_specs=P("y"), out_specs=P(), axis_names={"x"}), A) == (
        "shard_map of <lambda>, in_specs[0]: expected a spec over the axes that the function is mapped over ('x'), got "
        "P('y',).\n  Fix: add 'y' to axis_names, or remove it from the spec: XLA partitions over it automatically."
    )


def test_specs_must_be_prefixes(over):
    f = over(lambda t: t, in_specs=({"a": P("x")},), out_specs=P("x"))
    assert error(TreeError, f, {"a": A, "b": A}).startswith("shard_map of <lambda>, in_specs[0]: expected")
    g = over(lambda v: {"a": v}, in_specs=P("x"), out_specs={"b": P("x")})
    assert error(TreeError, g, A).startswith("shard_map of <lambda>, out_specs: expected")


def test_a_varying_result_with_a_replicated_spec_is_an_error(over):
    f = over(lambda v: {"loss": v.sum()}, in_specs=P("x", "y"), out_specs={"loss": P()})
    assert error(ShardingError, f, A) == (
        "shard_map of <lambda>, result['loss']: expected a value that is equal along 'x', 'y', which P() "
        "does not name, got f32[]{V:(x,y)}, which varies over 'x', 'y'.\n"
        "  Fix: combine it with lax.psum, lax.pmean or lax.all_gather_invariant over 'x', 'y', add the axis to "
        "out_specs['loss'] to concatenate the shards, or disable the check with check_vma=False."
    )
    for hidden in (
        lambda v: lax.scan(lambda c, x: (c + x, c), jnp.zeros(4), v)[0],
        lambda v: lax.cond(v.sum() > 0, lambda: 1.0, lambda: 2.0),
        lambda v: lax.while_loop(lambda c: c < v.sum(), lambda c: c + 1, 0.0),
        lambda v: phalanx.jit(lambda: lax.axis_index("x"))(),
        lambda v: phalanx.random.normal(phalanx.random.key(lax.axis_index("x")), (2,)),
        lambda v: lax.all_gather(v, "x"),
    ):
        assert "which varies over 'x'" in error(ShardingError, over(hidden, in_specs=P("x"), out_specs=P()), A)


def test_other_misuse_is_an_error(mesh, over):
    assert error(ArgumentError, lambda: phalanx.shard_map(lambda v: v, mesh=mesh, in_specs=P())(A)).endswith(
        "out_specs: expected a PartitionSpec for each result, since the function returns arrays, got None.\n"
        "  Fix: pass out_specs, with PartitionSpec() for a result that is equal on all devices."
    )
    inside = over(
        lambda v: over(lambda u: u, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})(v),
        in_specs=P("x"),
        out_specs=P("x"),
    )
    assert error(ShardingError, inside, A) == (
        "shard_map of <lambda>, axis_names: expected axes of the mesh that no surrounding shard_map maps over (none), got 'x'.\n"
        "  Fix: remove 'x', or leave axis_names out to map over all of these axes."
    )
    assert error(UnboundAxisError, over(lambda v: lax.psum(v, "z"), in_specs=P("x"), out_specs=P("x")), A) == (
        "lax.psum axis_name: expected the name of an axis in scope ('x', 'y'), got 'z'.\n"
        "  Fix: call the function under vmap or pmap with axis_name='z', or under a shard_map over a mesh with this "
        "axis, or use a name in scope."
    )
    for misuse, text in {
        lambda v: lax.pcast(
            v, "z", to="varying"
        ): "lax.pcast axis_name: expected the name of an axis in scope ('x', 'y'), got 'z'.\n"
        "  Fix: call the function under vmap or pmap with axis_name='z', or under a shard_map over a mesh with "
        "this axis, or use a name in scope.",
        lambda v: lax.pswapaxes(
            v, "x", 0
        ): "lax.pswapaxes: expected dimension 0 of a size equal to the number of members, 4, got f32[2,4]{V:x}.\n"
        "  Fix: pad or reshape the operand.",
        lambda v: lax.pswapaxes(
            v, "x", 3
        ): "lax.pswapaxes axis: expected dimensions in [-2, 2), got 3.\n  Fix: pass a dimension from -2 to 1.",
        lambda v: lax.psum_scatter(
            v, "x", axis_index_groups=[[0], [1, 2, 3]], tiled=True
        ): "lax.psum_scatter axis_index_groups: expected groups of one size, since it determines the shape of the result, "
        "got sizes 1, 3.\n  Fix: divide the 4 positions evenly among the groups.",
        lambda v: lax.psum(
            v, "x", axis_index_groups=[[0, 1], [1, 2, 3]]
        ): "lax.psum axis_index_groups: expected groups that contain each of the 4 positions along the axis once, got "
        "[[0, 1], [1, 2, 3]].\n  Fix: list each of the positions 0 to 3 in exactly one group.",
        lambda v: lax.ppermute(
            v, "x", [(0, 1), (0, 2)]
        ): "lax.ppermute perm: expected pairs of different sources and different destinations in [0, 4), got "
        "[(0, 1), (0, 2)].\n  Fix: send from each position at most once, and to each position at most once.",
        lambda v: lax.all_to_all(
            v, "x", 0, 0
        ): "lax.all_to_all: expected dimension 0 of a size equal to the number of members, 4, got f32[2,4]{V:x}.\n"
        "  Fix: pad or reshape the operand, or give tiled=True to send more than one slice.",
        lambda v: lax.pbroadcast(
            random.key(0), "x", 0
        ): "lax.pbroadcast: expected an operand of any numeric or boolean dtype, got key<fry>[].\n"
        "  Fix: convert it with lax.convert_element_type, or call the phalanx.numpy function, which promotes.",
        lambda v: lax.pcast(v, "x", to="reduced"): "lax.pcast to='reduced': expected a value that is shared along "
        "['x'], got f32[2,4]{V:x}.\n  Fix: combine it with psum or all_gather first.",
        lambda v: lax.pcast(
            v, "x", to="sum"
        ): "lax.pcast to: expected 'varying', 'unreduced' or 'reduced', got 'sum'.\n"
        "  Fix: use psum, pmean or all_gather_invariant to get a value that all devices share.",
    }.items():
        assert error((ValueError, TypeError), over(misuse, in_specs=P("x"), out_specs=P("x")), A) == text
    constrained = lambda v: lax.with_sharding_constraint(v, P(None, ("y", "x")))
    assert error(
        ShardingError, over(constrained, in_specs=P("x"), out_specs=P("x"), axis_names="x"), np.tile(A, 2)
    ) == (
        "a sharding inside a shard_map: expected a sharding over the axes that are not manual, got P(None, "
        "('y', 'x')), with the manual axes 'x'.\n"
        "  Fix: remove 'x' from the spec; inside the shard_map each array is a shard along these axes."
    )
    # Also where axes are Explicit, where the type of the result would name the axis twice.
    explicit = phalanx.make_mesh((4,), ("x",), devices=phalanx.devices()[:4])
    moved = phalanx.shard_map(
        lambda v: phalanx.device_put(v, NamedSharding(explicit, P("x"))),
        mesh=explicit,
        in_specs=P("x"),
        out_specs=P("x"),
    )
    assert error(ShardingError, moved, A).startswith(
        "a sharding inside a shard_map: expected a sharding over the axes that are not manual, got P('x',), "
    )
    assert error(ArgumentError, over(lambda v: lax.psum(v, ("x", "x")), in_specs=P("x"), out_specs=P()), A) == (
        "lax.psum axis_name: expected each name once, got ('x', 'x').\n  Fix: remove the repeated name."
    )
    small = phalanx.shard_map(lambda v: v, mesh=auto_mesh((2,), ("x",)), in_specs=P("x"), out_specs=P("x"))
    both = phalanx.jit(lambda v: small(over(lambda u: u, in_specs=P("x"), out_specs=P("x"))(v)))
    assert "expected a mesh of the 8 devices of the program" in error(ShardingError, both, A)


def test_check_jaxpr_finds_types_without_their_varying_axes(over):
    f = over(lambda v: 2 * v, in_specs=P("x"), out_specs=P("x"))
    program = phalanx.make_jaxpr(f)(A)
    inner = program.eqns[0].params["jaxpr"]
    inner.eqns[0].outvars[0].aval = inner.eqns[0].outvars[0].aval.with_varying(frozenset())
    assert error(ProgramError, check_jaxpr, program) == (
        "program <lambda>, equation 0, mul: expected a result of type f32[2,4]{V:x}, got f32[2,4].\n"
        "  Fix: report the error with the printed jaxpr: the transformation that built it is wrong, not your function."
    )


# --- values reached otherwise, and the face that is told by dimensions ---


def test_an_array_in_an_attribute_is_read_at_each_call(over):
    class Model:
        w = jnp.ones(4)

    model = Model()
    f = over(lambda a: a * model.w, in_specs=P("x"), out_specs=P("x"))
    assert f(A).sum() == A.sum()
    model.w = 3 * model.w
    assert f(A).sum() == 3 * A.sum()
    assert phalanx.grad(lambda w: setattr(model, "w", w) or f(A).sum())(model.w).tolist() == A.sum(0).tolist()


def test_another_array_in_the_closure_does_not_recompile(over, monkeypatch):
    values = [jnp.ones(4), 2 * jnp.ones(4), 3 * jnp.ones(4)]
    f = over(lambda a: a * phalanx.jit(lambda w: -w)(values[0]) + 2.5, in_specs=P("x"), out_specs=P("x"))
    np.testing.assert_allclose(f(A), 2.5 - A)
    monkeypatch.setattr(compiled_program.LoweredProgram, "compile", lambda *_, **__: pytest.fail("compiled anew"))
    for i in (1, 2):
        values[0] = values[i]
        np.testing.assert_allclose(f(A), 2.5 - (i + 1) * A)


def test_alpha_equivalence_ignores_the_values_of_constants():
    def program(w, by=2.0, last=jnp.sin):
        return phalanx.make_jaxpr(lambda x: lax.cond(x[0] > 0, last, jnp.cos, x * w * by))(jnp.ones(3))

    first = program(jnp.ones(3))
    assert is_alpha_equivalent(first, program(jnp.zeros(3)))
    assert not is_alpha_equivalent(first, program(jnp.ones(1)))
    assert not is_alpha_equivalent(first, program(jnp.ones(3), by=-2.0))
    assert not is_alpha_equivalent(first, program(jnp.ones(3), last=jnp.tan))


def test_a_spec_of_none_replicates(over):
    got = over(lambda a, b: a + b, in_specs=(P("x"), None), out_specs=P("x"))(A, np.ones(4, "float32"))
    np.testing.assert_allclose(got, A + 1)
    assert over(lambda a: a, in_specs=None, out_specs=P("x"))(A).shape == (32, 4)


def test_smap_accepts_dimensions_in_place_of_specs(mesh):
    with phalanx.set_mesh(mesh):
        f = phalanx.smap(lambda a, b: lax.psum(a, "y") + b, in_axes=(1, None), out_axes=None, axis_name="y")
        np.testing.assert_allclose(f(A, np.float32(1)), A[:, :2] + A[:, 2:] + 1)
        gather = phalanx.smap(in_axes=({"a": 0},), out_axes=1, axis_name="x")(lambda t: t["a"] * lax.axis_index("x"))
        want = np.concatenate([A[2 * i : 2 * i + 2] * i for i in range(4)], axis=1)
        np.testing.assert_allclose(phalanx.jit(gather)({"a": A}), want)
        nested = phalanx.smap(lambda a: f(a, 0.0), in_axes=0, out_axes=0, axis_name="x")
        np.testing.assert_allclose(nested(A), A[:, :2] + A[:, 2:])
    assert error(AxisError, lambda: phalanx.smap(lambda a: a, in_axes=-1, out_axes=0, axis_name="x")) == (
        "smap, in_axes: expected a dimension of at least 0, or None, got -1.\n"
        "  Fix: pass the position of the dimension that the axis splits, counted from 0."
    )


def test_a_carry_that_a_loop_does_not_change_stays_replicated():
    """Devices run it for different times, and the steps they took differ, but not what is only handed through."""

    def f(x, scale):
        step = lambda c: (c[0] * c[2], c[1] + 1, c[2])
        return lax.while_loop(lambda c: c[0].sum() < 10.0, step, (x, 0, scale))

    mesh = phalanx.make_mesh((8,), ("x",))
    out_specs = (P("x"), P(), P())
    with pytest.raises(ShardingError, match=r"result\[1\]: expected a value that is equal along 'x'"):
        phalanx.shard_map(f, mesh=mesh, in_specs=(P("x"), P()), out_specs=out_specs)(jnp.arange(1.0, 9.0), 2.0)
    g = phalanx.shard_map(lambda *args: f(*args)[::2], mesh=mesh, in_specs=(P("x"), P()), out_specs=out_specs[::2])
    x, scale = phalanx.jit(g)(jnp.arange(1.0, 9.0), 2.0)
    assert x.tolist() == [16.0, 16.0, 12.0, 16.0, 10.0, 12.0, 14.0, 16.0]
    assert scale == 2.0


def test_linear_solves_and_roots_run_on_each_device():
    mesh, rows = auto_mesh((4,), ("x",)), np.arange(1.0, 5.0, dtype="float32")
    keys = random.split(random.key(0), 3)
    systems = random.normal(keys[0], (4, 3, 3)) + 4 * np.eye(3, dtype="float32")
    b, shared = random.normal(keys[1], (4, 3)), random.normal(keys[2], (3,))

    def root(a):
        newton = lambda g, z: lax.fori_loop(0, 20, lambda i, z: z - g(z) / (2 * z), z)
        return lax.custom_root(lambda z: z * z - a, jnp.ones_like(a), newton, lambda g, y: y / g(jnp.ones_like(y)))

    def solution(a, b):
        solve = lambda vec, c: jnp.linalg.solve(phalanx.jacfwd(vec)(jnp.zeros_like(c)), c)
        return lax.custom_linear_solve(lambda v: a @ v, b, solve, solve)

    cases = [
        (root, (0,), (rows,)),
        (solution, (0, 0), (systems, b)),
        (solution, (0, None), (systems, shared)),
        (solution, (None, 0), (systems[0], b)),
    ]
    for fun, axes, args in cases:
        one = lambda *xs: fun(*[x if a is None else x[0] for a, x in zip(axes, xs, strict=True)])[None]  # noqa: B023
        specs = tuple([P() if a is None else P("x") for a in axes])
        each = phalanx.shard_map(one, mesh=mesh, in_specs=specs, out_specs=P("x"))
        of = lambda f: phalanx.value_and_grad(lambda *xs: (f(*xs) ** 3).sum(), tuple(range(len(args))))  # noqa: B023
        for got, wanted in zip(
            phalanx.tree.leaves(phalanx.jit(of(each))(*args)),
            phalanx.tree.leaves(of(phalanx.vmap(fun, axes))(*args)),
            strict=True,
        ):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
