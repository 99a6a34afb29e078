"""Exported programs on meshes of other sizes than that of the export: values, shardings, collectives and refusals."""

import re
from collections import Counter

import numpy as np
import pytest
from tests.meshes import auto_mesh

import phalanx
import phalanx.numpy as jnp
from phalanx import export, lax, random
from phalanx.export import deserialize
from phalanx.sharding import AbstractMesh, AxisType, GSPMDSharding, Mesh, NamedSharding, PartitionSpec as P
from phalanx.testing import collectives

X = np.linspace(-1, 1, 128, dtype="f4").reshape(16, 8)
W = np.linspace(0, 1, 64, dtype="f4").reshape(8, 8)
MESH = AbstractMesh((2, 2), ("data", "model"))
IN, OUT = (P("data"), P(None, "model")), (P("data", "model"), P())

MESHES = {
    "one device": lambda: auto_mesh((1, 1), ("data", "model")),
    "fewer": lambda: auto_mesh((2, 1), ("data", "model")),
    "more": lambda: auto_mesh((4, 2), ("data", "model")),
    "another shape": lambda: auto_mesh((2, 4), ("data", "model")),
    "an axis less": lambda: auto_mesh((8,), ("data",)),
    "an axis more": lambda: auto_mesh((2, 2, 2), ("data", "other", "model")),
    "other order of devices": lambda: Mesh(np.array(phalanx.devices())[::-1].reshape(4, 2), ("data", "model")),
    "explicit": lambda: phalanx.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Explicit,) * 2),
}


def layer(x, w, mesh=None):
    h = jnp.tanh(x @ w)
    noise = random.normal(random.key(0), h.shape) * x.mean()
    if mesh is not None:
        h = lax.with_sharding_constraint(h, NamedSharding(mesh, P("data", "model")))
    return h + noise, lax.fori_loop(0, 3, lambda i, s: s + jnp.sort(h, 0).sum(), 0.0)


def on_data(mesh):
    return NamedSharding(mesh, P("data"))


def places(mesh, specs):
    return tuple(NamedSharding(mesh, spec) for spec in specs)


def exported_for(mesh, x=X, w=W):
    jitted = phalanx.jit(lambda x, w: layer(x, w, mesh), in_shardings=places(mesh, IN), out_shardings=places(mesh, OUT))
    return deserialize(export.export(jitted)(x, w).serialize(1))


@pytest.fixture(scope="module")
def found():
    return exported_for(MESH)


@pytest.mark.parametrize("name", MESHES)
def test_a_program_runs_on_a_mesh_of_other_sizes(found, name):
    mesh = MESHES[name]()
    args = [phalanx.device_put(x, s) for x, s in zip((X, W), found.in_shardings_jax(mesh), strict=True)]
    expected = phalanx.jit(layer)(X, W)
    for call in (found.call, phalanx.jit(found.call)):
        out = call(*args)
        np.testing.assert_allclose(out[0], expected[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(out[1], expected[1], rtol=1e-5)
        assert all(
            y.sharding.is_equivalent_to(s, y.ndim) for y, s in zip(out, found.out_shardings_jax(mesh), strict=True)
        )

    def loss(call):
        return phalanx.jit(phalanx.grad(lambda x, w: (call(x, w)[0] ** 2).sum(), argnums=(0, 1)))

    for got, wanted, arg in zip(loss(found.call)(*args), loss(layer)(X, W), args, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
        assert got.sharding.is_equivalent_to(arg.sharding, 2)


@pytest.mark.one_is_quick(group=lambda sizes: "sizes")
@pytest.mark.parametrize("sizes", [(4, 2), (2, 4), (2, 1)])
def test_the_collectives_are_those_of_an_export_for_that_mesh(found, sizes):
    mesh = auto_mesh(sizes, ("data", "model"))
    args = [phalanx.device_put(x, s) for x, s in zip((X, W), places(mesh, IN), strict=True)]

    def sent(program):
        report = collectives(phalanx.jit(program.call), *args)
        return Counter((c.kind, c.bytes, tuple(c.axes)) for c in report)

    assert sent(found) == sent(exported_for(AbstractMesh(sizes, ("data", "model"))))


def smooth(x):
    return lax.scan(lambda c, _: (jnp.roll(c, 1, 0) + c, None), x, None, length=2)[0]


# Programs whose collectives are planned for the mesh, with one function that is called twice, and regions.
PLANNED = {
    "moves": lambda x: (x[::-1], jnp.roll(x, 1, 0), jnp.repeat(x, 2, 0), jnp.concatenate([x, x])),
    "differences": lambda x: jnp.diff(x, axis=0),
    "reshapes": lambda x: (x.reshape(-1), x.reshape(-1).sum(), jnp.argmax(x)),
    "inner functions": lambda x: phalanx.jit(jnp.flipud)(phalanx.jit(jnp.flipud)(jnp.sin(x)) * 2),
    "loops and branches": lambda x: lax.cond(x.sum() > 0, smooth, lambda x: x[::-1], x),
    "Fourier transforms": lambda x: jnp.abs(jnp.fft.fft(x, axis=1)),
    "gradient": phalanx.grad(lambda x: jnp.sin(jnp.roll(x, 1, 0)[::-1]).sum()),
}


@pytest.mark.one_is_quick(group=lambda name, **_: name)
@pytest.mark.parametrize("name", PLANNED)
@pytest.mark.parametrize("rows", [11, 16])
def test_an_artifact_sends_no_more_than_a_program_that_is_compiled_for_the_mesh(name, rows):
    function, value = PLANNED[name], X[:rows, :5]
    exported = export.export(phalanx.jit(function, in_shardings=NamedSharding(MESH, P("data"))))(value)
    found, expected = deserialize(exported.serialize(1)), phalanx.jit(function)(value)
    for sizes in ((2, 2), (1, 1), (8, 1), (2, 4), (3, 2)):
        mesh = auto_mesh(sizes, ("data", "model"), devices=phalanx.devices()[: np.prod(sizes)])
        x = phalanx.device_put(value, NamedSharding(mesh, P("data")))
        for got, wanted in zip(*map(phalanx.tree.leaves, (found.call(x), expected)), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
        assert collectives(phalanx.jit(found.call), x).bytes <= collectives(phalanx.jit(function), x).bytes, sizes


def test_a_composite_operation_is_called_on_rows_that_do_not_divide():
    program = phalanx.jit(lambda x: lax.top_k(x[::-1], 2)[0], in_shardings=NamedSharding(MESH, P("data")))
    found = deserialize(export.export(program)(X[:11]).serialize())
    x = phalanx.device_put(X[:11], NamedSharding(auto_mesh((8, 1), ("data", "model")), P("data")))
    np.testing.assert_array_equal(found.call(x), np.sort(X[:11])[::-1, :-3:-1])


@pytest.mark.one_is_quick(group=lambda sizes: "sizes")
@pytest.mark.parametrize("sizes", [(3, 2), (8, 1), (2, 4)])
def test_sizes_need_not_divide_the_arrays(found, sizes):
    mesh = auto_mesh(sizes, ("data", "model"), devices=phalanx.devices()[: np.prod(sizes)])
    uneven = exported_for(MESH, X[:11], W[:, :5])  # odd on the mesh of the export, too
    for program, x, w in ((found, X, W), (uneven, X[:11], W[:, :5])):
        args = [phalanx.device_put(v, s) for v, s in zip((x, w), program.in_shardings_jax(mesh), strict=True)]
        assert len({shard.data.shape for shard in args[0].addressable_shards}) > 1 or x.shape[0] % sizes[0] == 0
        got = program.call(*args)
        for y, wanted, sharding in zip(got, phalanx.jit(layer)(x, w), program.out_shardings_jax(mesh), strict=True):
            np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)
            assert y.sharding.is_equivalent_to(sharding, y.ndim)
        assert max(shard.data.size for shard in got[0].addressable_shards) == -(-x.shape[0] // sizes[0]) * -(
            -w.shape[1] // sizes[1]
        )
    grads = phalanx.jit(phalanx.grad(lambda x, w: (uneven.call(x, w)[0] ** 2).sum(), argnums=(0, 1)))(*args)
    whole = phalanx.jit(phalanx.grad(lambda x, w: (layer(x, w)[0] ** 2).sum(), argnums=(0, 1)))(x, w)
    for got, wanted, arg in zip(grads, whole, args, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
        assert got.sharding.is_equivalent_to(arg.sharding, 2)


def test_a_mesh_is_given_to_the_export_and_specs_name_its_axes():
    def rows(x, w):
        h = lax.with_sharding_constraint(jnp.tanh(x @ w), P("data", "model"))
        return h * random.uniform(random.key(0), h.shape)

    x, w = X[:10], W[:, :5]
    shape = phalanx.ShapeDtypeStruct(x.shape, "float32", sharding=P("data"))
    declared = phalanx.jit(rows, in_shardings=(P("data"), None), out_shardings=P("model"))
    value, pullback = phalanx.vjp(
        phalanx.jit(lambda x, w: jnp.tanh(x @ w) * random.uniform(random.key(0), (10, 5))), x, w
    )
    for program, args in ((declared, (x, w)), (phalanx.jit(rows), (shape, w))):
        found = deserialize(export.export(program, mesh=MESH)(*args).serialize(1))
        assert [(axis.name, axis.size, axis.fixed_by) for axis in found.mesh_axes] == [
            ("data", 2, None),
            ("model", 2, None),
        ]
        assert [s.spec.canonical for s in found.in_shardings] == [P("data"), P()]
        for sizes in ((3, 2), (1, 1)):
            mesh = auto_mesh(sizes, ("data", "model"), devices=phalanx.devices()[: np.prod(sizes)])
            args = [phalanx.device_put(v, s) for v, s in zip((x, w), found.in_shardings_jax(mesh), strict=True)]
            np.testing.assert_allclose(found.call(*args), value, rtol=1e-5, atol=1e-6)
            for got, wanted in zip(found.vjp().call(*args, value), pullback(value), strict=True):
                np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    whole = export.export(phalanx.jit(lambda x: x + 1), mesh=auto_mesh((4, 2), ("data", "model")))(x)
    assert whole.nr_devices == 8 and whole.mesh_axes[0].size == 4
    rows_of_eight = NamedSharding(auto_mesh((8,), ("data",)), P("data"))
    with pytest.raises(ValueError) as error:
        export.export(phalanx.jit(lambda x: x, in_shardings=rows_of_eight), mesh=MESH)(x)
    assert str(error.value) == (
        "export of <lambda>, argument mesh: expected a mesh of 8 devices, as the sharding of argument x, got "
        "AbstractMesh('data': 2, 'model': 2, axis_types=(Auto, Auto)).\n"
        "  Fix: name only the axes in the shardings, as in jit(f, in_shardings=P('data'))."
    )


def test_symbolic_sizes_need_not_divide_among_the_devices():
    (b,) = export.symbolic_shape("2*b")
    rows = NamedSharding(MESH, P("data"))
    program = phalanx.jit(lambda x: x - x.sum(), in_shardings=rows, out_shardings=rows)
    found = deserialize(export.export(program)(phalanx.ShapeDtypeStruct((b,), "float32")).serialize())
    mesh = auto_mesh((8, 1), ("data", "model"))
    x = phalanx.device_put(np.arange(16, dtype="f4"), NamedSharding(mesh, P("data")))
    out = found.call(x)
    np.testing.assert_array_equal(out, np.arange(16) - 120)
    assert out.sharding.is_equivalent_to(x.sharding, 1)
    six = phalanx.device_put(np.arange(6, dtype="f4"), NamedSharding(mesh, P("data")))
    np.testing.assert_array_equal(found.call(six), np.arange(6) - 15)


def test_a_shard_map_fixes_the_sizes_of_its_mesh():
    mesh = auto_mesh((2,), ("data",))
    local = phalanx.shard_map(lambda x: lax.psum(x, "data"), mesh=mesh, in_specs=P("data"), out_specs=P())
    program = phalanx.jit(lambda x: local(x) * 2)
    inner = deserialize(export.export(program)(np.ones(8, "f4")).serialize())
    around = export.export(phalanx.jit(inner.call))(
        phalanx.ShapeDtypeStruct((8,), "float32", sharding=NamedSharding(mesh, P("data")))
    )
    for found in (inner, deserialize(around.serialize())):  # a call of the program keeps what fixes its mesh
        ((name, size, fixed_by, named_by),) = found.mesh_axes
        assert (name, size) == ("data", 2) and named_by in (
            None,
            "the sharding of argument x",
            "the sharding of argument args[0]",
        )
        assert re.fullmatch(r"shard_map at test_other_meshes\.py:\d+", fixed_by)
        x = phalanx.device_put(np.arange(8, dtype="f4"), found.in_shardings_jax(mesh)[0])
        np.testing.assert_array_equal(found.call(x), 2 * (np.arange(4) + np.arange(4, 8)))
        with pytest.raises(ValueError) as error:
            found.call(np.arange(8, dtype="f4"))
        assert str(error.value) == (
            f"call of exported {found.fun_name}: expected a mesh with data=2, the size that {fixed_by} was exported with, "
            "got data=1.\n"
            "  Fix: call it on a mesh with data=2, or export the function again with this mesh."
        )


def test_programs_without_one_mesh_run_on_as_many_devices_only():
    flat, square = AbstractMesh((4,), ("all",)), MESH
    program = phalanx.jit(
        lambda x, y: x + y, in_shardings=(NamedSharding(flat, P("all")), NamedSharding(square, P("data")))
    )
    found = export.export(program)(np.ones(8, "f4"), np.ones(8, "f4"))
    assert found.mesh_axes is None
    with pytest.raises(
        ValueError,
        match="expected arguments over 4 devices, as it was exported for, since the sharding of argument y names another "
        "mesh than the sharding of argument x, got a program for 1",
    ):
        found.call(np.ones(8, "f4"), np.ones(8, "f4"))


@pytest.mark.parametrize(
    ("read", "fixed"),
    [
        (lambda mesh: mesh.shape["data"], {"data": "mesh.shape['data']"}),
        (lambda mesh: mesh.shape.get("model"), {"model": "mesh.shape.get('model')"}),
        (lambda mesh: sum(mesh.shape.values()), dict.fromkeys(("data", "model"), "mesh.shape.values()")),
        (lambda mesh: dict(mesh.shape)["data"], dict.fromkeys(("data", "model"), "mesh.shape[")),
        (lambda mesh: mesh.size, dict.fromkeys(("data", "model"), "mesh.size")),
        (lambda mesh: mesh.axis_sizes[0], dict.fromkeys(("data", "model"), "mesh.axis_sizes")),
        (lambda mesh: len(list(mesh.shape)) + len(mesh.axis_names), {}),
        (lambda mesh: mesh.shape.copy()["data"], dict.fromkeys(("data", "model"), "mesh.shape.copy()")),
        (lambda mesh: mesh.shape == {"data": 2, "model": 2}, dict.fromkeys(("data", "model"), "mesh.shape")),
        (lambda mesh: mesh.num_parts(["model"]), {"model": "mesh.num_parts"}),
        (lambda mesh: on_data(mesh).num_devices, dict.fromkeys(("data", "model"), "sharding.num_devices")),
        (lambda mesh: on_data(mesh).shard_shape((8,))[0], {"data": "sharding.shard_shape"}),
        (lambda mesh: on_data(mesh).is_fully_replicated, {"data": "sharding.is_fully_replicated"}),
        (lambda mesh: on_data(mesh).spec == P("data"), {}),
    ],
)
def test_a_mesh_size_that_the_function_reads_as_a_number_is_fixed(read, fixed):
    inner = phalanx.jit(lambda x: x * read(MESH))
    rows = phalanx.jit(lambda x: inner(x).sum(), in_shardings=NamedSharding(MESH, P("data")))
    rows.trace(X)  # a trace in a cache hides nothing
    for found in (exported := export.export(rows)(X)), exported.vjp(), export.export(rows)(X):
        by = {axis.name: axis.fixed_by for axis in found.mesh_axes}
        assert {name for name, line in by.items() if line is not None} == set(fixed)
        assert all(by[name].startswith(what) and "test_other_meshes.py:" in by[name] for name, what in fixed.items())


@pytest.mark.parametrize(
    ("read", "is_size"),
    [
        (lambda mesh: mesh.devices.flat[0].platform == "cpu", False),
        (lambda mesh: mesh.devices[0, 0].platform == mesh.flat_devices[-1].platform, False),
        (lambda mesh: mesh.devices[0][0].device_kind == "cpu" and mesh.devices.ndim, False),
        (lambda mesh: mesh.devices[0].size, True),
        (lambda mesh: mesh.devices.shape[0], True),
        (lambda mesh: len(mesh.devices), True),
        (lambda mesh: len([*mesh.devices.flat]), True),
        (lambda mesh: np.asarray(mesh.devices).size, True),
        (lambda mesh: np.vectorize(lambda device: 1.0)(mesh.devices).sum(), True),
        (lambda mesh: Mesh(mesh.devices, ("a", "b")).axis_names == ("a", "b"), True),
        (lambda mesh: float(mesh.device_ids.max()), True),
        (lambda mesh: len(mesh.device_set), True),
        (lambda mesh: len(on_data(mesh).device_set), True),
        (lambda mesh: len(on_data(mesh).devices_indices_map((8,))), True),
    ],
)
def test_the_devices_of_a_mesh_may_be_asked_for_their_platform(read, is_size):
    mesh = auto_mesh((2, 2), ("data", "model"), devices=phalanx.devices()[:4])
    found = export.export(phalanx.jit(lambda x: x * read(mesh), in_shardings=on_data(mesh)))(X)
    lines = [axis.fixed_by for axis in found.mesh_axes]
    assert [line is not None for line in lines] == [is_size] * 2
    assert not is_size or all(re.match(r"(mesh|sharding)\.device.* at ", n) for n in lines)
    assert type(mesh.devices) is np.ndarray  # nothing is left of the watch


@pytest.mark.parametrize(
    ("count", "name"),
    [
        (lambda: phalanx.device_count(), "device_count()"),
        (lambda: phalanx.local_device_count("cpu"), "local_device_count()"),
        (lambda: phalanx.process_count(), "process_count()"),
        (lambda: len(phalanx.devices()), "devices()"),
        (lambda: sum(1 for _ in phalanx.local_devices()), "local_devices()"),
        (lambda: np.asarray(phalanx.devices()).size, "devices()"),
        (lambda: len(phalanx.devices()[1:]), "devices()"),
        (lambda: len(phalanx.devices() + [None]), "devices()"),
        (lambda: float(phalanx.devices() == []), "devices()"),
        (lambda: phalanx.devices()[0].platform == "cpu", None),
        (lambda: auto_mesh((4,), ("rows",), devices=phalanx.devices()[:4]).axis_names == ("rows",), None),
        (lambda: phalanx.process_index(), None),
    ],
)
def test_the_number_of_devices_of_the_process_fixes_all_axes(count, name):
    found = export.export(phalanx.jit(lambda x: x * count(), in_shardings=on_data(MESH)))(X)
    for axis in found.mesh_axes:
        assert (
            axis.fixed_by is None
            if name is None
            else re.fullmatch(re.escape(name) + r" at test_other_meshes\.py:\d+", axis.fixed_by)
        )
    assert type(phalanx.devices()) is list  # nothing is left of the watch


def refusal(call, *args):
    with pytest.raises(phalanx.errors.ShardingError) as error:
        call(*args)
    return re.sub(r":\d+([ ),])", r":LINE\1", str(error.value))


def test_a_mesh_of_other_axes_is_refused_with_what_names_and_fixes_the_axes():
    eight = phalanx.device_put(X, NamedSharding(auto_mesh((8,), ("rows",)), P("rows")))

    def constrained(x):
        return lax.with_sharding_constraint(x, NamedSharding(MESH, P(None, "model"))) * 2

    found = export.export(phalanx.jit(constrained, in_shardings=on_data(MESH)))(X)
    for program in (found, deserialize(found.serialize())):
        assert refusal(program.call, eight) == (
            "call of exported constrained: expected arguments over 4 devices, as it was exported for, or over a mesh with "
            "the axes data (the sharding of argument x), model (sharding_constraint at test_other_meshes.py:LINE), got a "
            "program for 8 over rows=8.\n"
            "  Fix: place the arguments with device_put(x, NamedSharding(mesh, spec)) on such a mesh."
        )
    rows = phalanx.pmap(lambda x: x * 2, axis_name="rows_of_x", devices=phalanx.devices()[:4])
    found = deserialize(export.export(rows)(X[:4]).serialize())
    assert refusal(found.call, phalanx.device_put(X[:4], NamedSharding(auto_mesh((8,), ("rows",)), P()))) == (
        "call of exported <lambda>: expected arguments over 4 devices, as it was exported for, or over a mesh with the axes "
        "rows_of_x=4 (shard_map at test_other_meshes.py:LINE), got a program for 8 over rows=8.\n"
        "  Fix: place the arguments with device_put(x, NamedSharding(mesh, spec)) on such a mesh."
    )


def test_a_program_over_two_meshes_says_which_line_names_the_second():
    flat = AbstractMesh((4,), ("all",))

    def constrained(x):
        return lax.with_sharding_constraint(x, NamedSharding(flat, P("all"))) * 2

    found = export.export(phalanx.jit(constrained, in_shardings=on_data(MESH)))(X)
    assert found.mesh_axes is None
    eight = phalanx.device_put(X, NamedSharding(auto_mesh((8,), ("data",)), P("data")))
    for program in (found, deserialize(found.serialize())):
        assert refusal(program.call, eight) == (
            "call of exported constrained: expected arguments over 4 devices, as it was exported for, since "
            "sharding_constraint at test_other_meshes.py:LINE names another mesh than the sharding of argument x, got a "
            "program for 8 over data=8.\n"
            "  Fix: place the arguments with device_put(x, NamedSharding(mesh, spec)) on such a mesh, or export the "
            "function again with shardings over one mesh."
        )


def test_a_sharding_without_axes_is_named_where_it_fixes_the_devices():
    mesh = auto_mesh((4,), ("data",), devices=phalanx.devices()[:4])
    tiles = GSPMDSharding(phalanx.devices()[:4], on_data(mesh)._to_xla_hlo_sharding(2))
    eight = phalanx.device_put(X, on_data(auto_mesh((8,), ("data",))))
    constrained = phalanx.jit(lambda x: lax.with_sharding_constraint(x + 1, tiles))
    for program, arg, named in (
        (constrained, phalanx.device_put(X, on_data(mesh)), "sharding_constraint at test_other_meshes.py:LINE"),
        (phalanx.jit(lambda x: x + 1), phalanx.device_put(X, tiles), "the sharding of argument x"),
    ):
        found = deserialize(export.export(program)(arg).serialize())
        assert f"as it was exported for, since {named} names no axes of a mesh" in refusal(found.call, eight)


EIGHT = AbstractMesh((8,), ("data",))
HIGH = auto_mesh((4,), ("data",), devices=phalanx.devices()[4:])  # and others than those of the program
OVER_OTHERS = {
    "a constraint": lambda mesh: lambda x: lax.with_sharding_constraint(x, on_data(mesh)),
    "device_put": lambda mesh: lambda x: phalanx.device_put(x, on_data(mesh)),
    "shard_map": lambda mesh: lambda x: phalanx.shard_map(lax.neg, mesh=mesh, in_specs=P(), out_specs=P())(x),
    "an inner result": lambda mesh: lambda x: phalanx.jit(lax.neg, out_shardings=on_data(mesh))(x),
    "an inner argument": lambda mesh: lambda x: phalanx.jit(lax.neg, in_shardings=on_data(mesh))(x),
    "a type": lambda mesh: lambda x: phalanx.reshard(x, on_data(mesh.update(axis_types=(AxisType.Explicit,)))),
}


@pytest.mark.parametrize("name", OVER_OTHERS)
def test_an_export_names_the_line_of_a_mesh_of_other_devices(name):
    line = OVER_OTHERS[name](EIGHT).__code__.co_firstlineno
    low = on_data(auto_mesh((4,), ("data",), devices=phalanx.devices()[:4]))
    cases = [(OVER_OTHERS[name](EIGHT), on_data(MESH)), (OVER_OTHERS[name](HIGH), low)]
    for program, place in cases[: 1 if name == "a type" else 2]:  # a type names no devices
        with pytest.raises(phalanx.errors.ShardingError, match=rf"at .*test_other_meshes.py:{line}.*: expected"):
            export.export(phalanx.jit(program, in_shardings=place))(X)


def test_an_export_takes_a_mesh_with_axes_and_names_a_sharding_of_other_devices():
    for mesh in ("data", AbstractMesh((), ())):
        with pytest.raises(TypeError, match="argument mesh: expected a Mesh or AbstractMesh with axes, or None, got"):
            export.export(phalanx.jit(lambda x: x), mesh=mesh)
    eight = on_data(auto_mesh((8,), ("data",)))
    for program, named in (
        (phalanx.jit(lambda x: x), "the sharding of argument x"),
        (phalanx.jit(lambda x: x + 1, out_shardings=eight), "the sharding of result"),
        (phalanx.jit(lambda x: lax.with_sharding_constraint(x, eight)), r"sharding_constraint at test_other.*py:\d+"),
    ):
        x = phalanx.device_put(X, eight) if "argument" in named else X
        with pytest.raises(ValueError, match=f"expected a mesh of 8 devices, as {named}, got AbstractMesh"):
            export.export(program, mesh=MESH)(x)


@pytest.mark.parametrize("inner", ["shard_map", "constraint"])
def test_arguments_over_an_abstract_mesh_are_exported_for_the_devices_that_the_function_names(inner):
    mesh = auto_mesh((4,), ("data",), devices=phalanx.devices()[:4])
    functions = {
        "shard_map": phalanx.shard_map(lambda x: x * 2, mesh=mesh, in_specs=P("data"), out_specs=P("data")),
        "constraint": lambda x: lax.with_sharding_constraint(x * 2, on_data(mesh)),
    }
    of_four = on_data(AbstractMesh((4,), ("data",)))
    declared = phalanx.jit(functions[inner], in_shardings=of_four)
    for program, arg in (
        (declared, X),
        (phalanx.jit(functions[inner]), phalanx.ShapeDtypeStruct(X.shape, "f4", sharding=of_four)),
    ):
        found = deserialize(export.export(program)(arg).serialize())
        np.testing.assert_array_equal(found.call(phalanx.device_put(X, on_data(mesh))), X * 2)


def test_a_program_that_read_a_size_refuses_other_sizes_and_names_the_line():
    mean = phalanx.jit(lambda x: (x * x).sum() / MESH.shape["data"], in_shardings=NamedSharding(MESH, P("data")))
    found = deserialize(export.export(mean)(X).serialize())
    on = lambda *sizes: phalanx.device_put(X, NamedSharding(auto_mesh(sizes, ("data", "model")), P("data")))
    np.testing.assert_allclose(found.call(on(2, 4)), (X * X).sum() / 2, rtol=1e-5)
    with pytest.raises(phalanx.errors.ShardingError) as error:
        found.call(on(4, 2))
    assert re.sub(r":\d+", ":LINE", str(error.value)) == (
        "call of exported <lambda>: expected a mesh with data=2, the size that mesh.shape['data'] at "
        "test_other_meshes.py:LINE was exported with, got data=4, model=2.\n"
        "  Fix: call it on a mesh with data=2, or export the function again with this mesh."
    )


@phalanx.custom_vjp
def scaled_back(x):
    return x * 2


scaled_back.defvjp(lambda x: (x * 2, None), lambda _, y_bar: (y_bar / MESH.shape["data"],))


def test_a_derivative_names_the_lines_of_the_function_and_of_its_custom_rules():
    double = phalanx.shard_map(lambda x: x * 2, mesh=MESH, in_specs=P("data"), out_specs=P("data"))
    other = NamedSharding(AbstractMesh((4,), ("all",)), P("all"))
    eight = phalanx.device_put(X, on_data(auto_mesh((8, 1), ("data", "model"))))
    for function, line in (
        (lambda x: double(x), "shard_map at"),
        (lambda x: phalanx.jit(lax.sin, out_shardings=other)(x), "jit at"),
        (scaled_back, "mesh.shape['data'] at"),
    ):
        found = deserialize(export.export(phalanx.jit(function, in_shardings=on_data(MESH)))(X).serialize(1)).vjp()
        code = function.__code__ if function is not scaled_back else scaled_back.bwd.__code__
        with pytest.raises(ValueError, match=re.escape(f"{line} test_other_meshes.py:{code.co_firstlineno}")):
            found.call(eight, eight)


def test_a_custom_rule_resolves_specs_over_the_mesh_of_the_export():
    @phalanx.custom_vjp
    def double(x):
        return x * 2

    double.defvjp(lambda x: (x * 2, None), lambda _, y_bar: (lax.with_sharding_constraint(y_bar * 2, P("data")),))
    found = export.export(phalanx.jit(double, in_shardings=P("data")), mesh=MESH)(X).vjp()
    eight = phalanx.device_put(X, on_data(auto_mesh((8, 1), ("data", "model"))))
    np.testing.assert_array_equal(found.call(eight, eight)[0], X * 2)


def test_a_call_inside_a_shard_map_over_axes_of_the_program_is_refused_at_its_line():
    found = export.export(phalanx.jit(lambda x: x + 1, in_shardings=on_data(MESH)))(X)
    call = lambda x: found.call(x)
    inside = phalanx.shard_map(call, mesh=auto_mesh((8,), ("data",)), in_specs=P(), out_specs=P(), check_vma=False)
    with pytest.raises(ValueError) as error:
        inside(X)
    assert re.sub(r"at \S*/|:21 \(.*\)", "", str(error.value)) == (
        f"call of exported <lambda>, test_other_meshes.py:{call.__code__.co_firstlineno}: expected a call "
        "outside of a shard_map over axes of the mesh that the program was exported for, here data, got a call inside of it.\n"
        "  Fix: call it on the arrays outside, or export the function without shardings, for one device."
    )


def test_a_derivative_sends_what_a_fresh_compile_sends_where_results_are_sharded_like_arguments():
    function, x = (lambda x: (jnp.tanh(x), jnp.cumsum(x, 0), jnp.concatenate([x, x]))), np.resize(X, (17, 6))
    outs = P("model"), P(None, "data"), P("data")
    jitted = phalanx.jit(function, in_shardings=on_data(MESH), out_shardings=places(MESH, outs))
    found = deserialize(export.export(jitted)(x).serialize(1)).vjp()

    def pullback(x, *y_bars):
        return phalanx.vjp(function, x)[1](y_bars)

    wanted = phalanx.jit(pullback)(x, *function(x))
    for sizes in ((2, 1), (8, 1), (2, 4)):
        mesh = auto_mesh(sizes, ("data", "model"), devices=phalanx.devices()[: np.prod(sizes)])
        args = [phalanx.device_put(v, s) for v, s in zip((x, *function(x)), places(mesh, (P("data"), *outs)))]
        fresh = phalanx.jit(pullback, out_shardings=on_data(mesh))
        np.testing.assert_allclose(found.call(*args)[0], wanted[0], rtol=1e-4, atol=1e-5)
        assert collectives(phalanx.jit(found.call), *args).bytes == collectives(fresh, *args).bytes
