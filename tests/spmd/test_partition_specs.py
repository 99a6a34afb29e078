"""Specs, meshes and the placement of arguments: what is meant by what a user writes, and what is refused with a reason."""

from __future__ import annotations

import numpy as np
import pytest
from phalanx.experimental.pjit import pjit
from tests.error_texts import without_positions
from tests.meshes import auto_mesh

import phalanx
import phalanx.numpy as jnp
from phalanx.core.error_classes import ArgumentError, PhalanxError
from phalanx.sharding import UNSPECIFIED, Mesh, NamedSharding, P, set_mesh, use_mesh
from phalanx.testing import collectives

X = np.arange(64, dtype=np.float32).reshape(8, 8)
OPEN = P.UNCONSTRAINED


@pytest.fixture
def mesh():
    return auto_mesh((4, 2), ("x", "y"))


def message(call):
    with pytest.raises(PhalanxError) as error:
        call()
    return without_positions(error.value)


def double(x):
    return phalanx.tree.map(lambda v: v * 2, x)


def placed(mesh, *spec):
    return phalanx.device_put(X, NamedSharding(mesh, P(*spec)))


# --- B2: specs ---


def test_a_leaf_is_none_a_spec_a_sharding_or_unspecified(mesh):
    def f(a, b, c, d):
        return a * 2, b * 2, c * 2, d * 2

    held = placed(mesh, "y")
    specs = (None, P("x"), NamedSharding(mesh, P(None, "x")), UNSPECIFIED)
    with mesh:
        compiled = phalanx.jit(f, in_shardings=specs).lower(held, X, X, held).compile()
    ins = compiled.input_shardings[0]
    assert [s.spec for s in ins] == [P("y"), P("x"), P(None, "x"), P("y")]
    assert [s.spec for s in compiled.output_shardings] == [P("y"), P("x"), P(None, "x"), P("y")]


def test_a_list_counts_as_a_tuple_anywhere_in_a_prefix(mesh):
    def f(a, b):
        return a[0] + b, [a[1], b]

    with mesh:
        out = phalanx.jit(f, in_shardings=[[P("x"), P()], P("y")], out_shardings=[P("y"), (P("x"), None)])((X, X), X)
        assert out[0].sharding.spec == P("y") and out[1][0].sharding.spec == P("x")
        assert pjit(f, [[P("x"), P()], P("y")], None)([X, X], X)[1][0].shape == (8, 8)
        placed = phalanx.device_put((X, [X, X]), [P("x"), (P("y"), None)])
        assert placed[1][0].sharding.spec == P("y")
        held = phalanx.lax.with_sharding_constraint((X, [X, X]), [P("x"), (P("y"), None)])
        assert held[1][0].sharding.spec == P("y")


def test_the_spec_of_a_single_argument_must_be_in_a_tuple(mesh):
    wrap = "\n  Fix: wrap it in a tuple of one element: (spec,)."
    with mesh:
        assert message(lambda: phalanx.jit(double, in_shardings={"w": P("x")})({"w": X})) == (
            "jit of double, in_shardings: expected a leaf or a tuple of length 1, got a dict with keys ['w']." + wrap
        )
        assert message(lambda: phalanx.jit(double, in_shardings=(P("x"), P("y")))((X, X))) == (
            "jit of double, in_shardings: expected a leaf or a tuple of length 1, got a tuple of length 2." + wrap
        )
        assert message(lambda: phalanx.jit(double, in_shardings=[P("x"), None])([X, X])) == (
            "jit of double, in_shardings: expected a leaf or a tuple of length 1, got a list of length 2." + wrap
        )
        assert phalanx.jit(double, in_shardings=((P("x"), P("y")),))((X, X))[1].sharding.spec == P("y")
        assert message(lambda: phalanx.jit(lambda a, b: a, in_shardings=(P("x"),))(X, X)) == (
            "jit of <lambda>, in_shardings: expected a leaf or a tuple of length 2, got a tuple of length 1.\n"
            "  Fix: add the element [1]."
        )
        assert message(lambda: phalanx.jit(double, in_shardings=({"v": P("x")},))({"w": X})) == (
            "jit of double, in_shardings[0]: expected a leaf or a dict with keys ['w'], got a dict with keys ['v'].\n"
            "  Fix: add 'w' and remove 'v'."
        )
        assert message(lambda: phalanx.jit(double, out_shardings=({"v": P("x")},))(({"w": X},))) == (
            "jit of double, out_shardings[0]: expected a leaf or a dict with keys ['w'], got a dict with keys ['v'].\n"
            "  Fix: add 'w' and remove 'v'."
        )


def test_specs_that_do_not_fit_are_shown_as_written_with_their_path(mesh):
    def refused(spec, of="in_shardings"):
        return message(lambda: phalanx.jit(double, **{of: ({"w": spec},)})({"w": X}))

    twice = "expected a spec that names each mesh axis at most once, got P(('x', 'y'), 'x').\n"
    keep = "  Fix: keep 'x' in one entry only: a mesh axis can split one dimension of an array."
    with mesh:
        assert refused(P(("x", "y"), "x")) == f"jit of double, in_shardings[0]['w']: {twice}{keep}"
        assert refused(P("x", None, None)) == (
            "jit of double, in_shardings[0]['w']: expected a spec of at most 2 entries for an array of shape (8, 8), got "
            "P('x', None, None).\n  Fix: drop the last entry, or give the array 3 dimensions."
        )
        assert refused(P("z")) == (
            "jit of double, in_shardings[0]['w']: expected a spec over the axes of the mesh ('x', 'y'), got P('z',).\n"
            "  Fix: add an axis 'z' to the mesh, or remove it from the spec."
        )
        assert refused(P("x", OPEN)) == (
            "jit of double, in_shardings[0]['w']: expected a spec without UNCONSTRAINED dimensions, got "
            "P('x', UNCONSTRAINED).\n"
            "  Fix: replace UNCONSTRAINED by axis names or None; only with_sharding_constraint leaves dimensions open."
        )
        assert refused("x") == (
            "jit of double, in_shardings[0]['w']: expected a Sharding, or a PartitionSpec over the current mesh, got 'x' of type str.\n"
            "  Fix: pass NamedSharding(mesh, PartitionSpec(...))."
        )
        results = message(lambda: phalanx.jit(double, out_shardings={"w": P(("x", "y"), "x")})({"w": X}))
        assert results == f"jit of double, out_shardings['w']: {twice}{keep}"
        open_result = message(lambda: phalanx.jit(double, out_shardings={"w": P(OPEN)})({"w": X}))
        assert open_result.startswith(
            "jit of double, out_shardings['w']: expected a spec without UNCONSTRAINED dimensions"
        )
        assert message(lambda: phalanx.device_put({"w": X}, {"w": P("x", OPEN)})).startswith(
            "device_put, device['w']: expected a spec without UNCONSTRAINED dimensions"
        )
    assert message(lambda: phalanx.lax.with_sharding_constraint({"w": X}, {"w": P("x")})).startswith(
        "with_sharding_constraint, shardings['w']: expected a sharding, or a current mesh to resolve a bare spec, got "
        "P('x',)."
    )


def test_specs_that_differ_in_trailing_nones_are_equivalent(mesh, caplog):
    short, long = placed(mesh, "x"), placed(mesh, "x", None)
    assert short.sharding.is_equivalent_to(long.sharding, 2)
    f = phalanx.jit(lambda a, b: a + b, in_shardings=NamedSharding(mesh, P("x", None)))
    np.testing.assert_array_equal(f(short, long), X + X)
    assert collectives(f, short, long) == ()
    g = phalanx.jit(double, in_shardings=NamedSharding(mesh, P("x")), donate_argnums=0)
    pointers = [s.data.unsafe_buffer_pointer() for s in long.addressable_shards]
    out = g(long)
    assert [s.data.unsafe_buffer_pointer() for s in out.addressable_shards] == pointers  # Nothing moved on the way.
    h = phalanx.jit(double)
    again = placed(mesh, "x", None)
    with phalanx.log_compiles(), caplog.at_level("WARNING"):
        for x in (short, again, short, again):
            np.testing.assert_array_equal(h(x), double(X))
    assert caplog.text.count("Finished XLA compilation of jit(double)") == 1


def test_an_entry_of_several_axes_goes_from_major_to_minor(mesh):
    rows = phalanx.device_put(np.arange(8), NamedSharding(mesh, P(("x", "y"))))
    columns = phalanx.device_put(np.arange(8), NamedSharding(mesh, P(("y", "x"))))
    assert [int(s.data[0]) for s in rows.addressable_shards] == list(range(8))
    assert [int(s.data[0]) for s in columns.addressable_shards] == [0, 4, 1, 5, 2, 6, 3, 7]


# --- B3: meshes ---


def test_a_bare_spec_without_a_mesh_is_an_error_with_its_path(mesh):
    for call, where in [
        (lambda: phalanx.jit(double, in_shardings=P("x"))(X), "jit of double, in_shardings[0]"),
        (
            lambda: phalanx.jit(double, in_shardings=(({"w": P("x")},),))(({"w": X},)),
            "jit of double, in_shardings[0][0]['w']",
        ),
        (lambda: phalanx.jit(double, out_shardings=P("x"))(X), "jit of double, out_shardings"),
        (lambda: phalanx.device_put(X, P("x")), "device_put, device"),
        (lambda: phalanx.lax.with_sharding_constraint(X, P("x")), "with_sharding_constraint, shardings"),
        (
            lambda: phalanx.jit(lambda x: phalanx.lax.with_sharding_constraint(x, P("x")))(X),
            "with_sharding_constraint, shardings",
        ),
    ]:
        assert message(call) == (
            f"{where}: expected a sharding, or a current mesh to resolve a bare spec, got P('x',).\n"
            "  Fix: pass NamedSharding(mesh, spec), or call the function inside `with mesh:` or after set_mesh(mesh)."
        )
    f = phalanx.jit(double, in_shardings=P("x"))
    flat = auto_mesh((8,), ("x",))
    with mesh:
        assert f(X).sharding == NamedSharding(mesh, P("x"))
        with flat:
            assert f(X).sharding == NamedSharding(flat, P("x"))
        assert f(X).sharding == NamedSharding(mesh, P("x"))


@pytest.mark.parametrize("way", [set_mesh, use_mesh])
def test_switching_to_another_mesh_inside_a_compiled_function_is_an_error(mesh, way):
    other = auto_mesh((8,), ("z",))

    def f(x):
        with way(other):
            return x * 2

    with mesh:
        for compiled in (phalanx.jit(f), phalanx.jit(phalanx.grad(lambda x: f(x).sum())), phalanx.jit(phalanx.vmap(f))):
            assert message(lambda compiled=compiled: compiled(X)) == (
                "changing the mesh inside a compiled function: expected the mesh that was current at the call, "
                "Mesh('x': 4, 'y': 2, axis_types=(Auto, Auto)), got Mesh('z': 8, axis_types=(Auto,)).\n"
                "  Fix: enter the mesh around the call, or name it in NamedSharding(mesh, spec) or "
                "shard_map(..., mesh=mesh)."
            )
    assert message(lambda: phalanx.jit(f)(X)).startswith(
        "changing the mesh inside a compiled function: expected the mesh that was current at the call, none, got Mesh('z': 8, axis_types=(Auto,))."
    )
    with mesh:
        np.testing.assert_array_equal(phalanx.grad(lambda x: f(x).sum())(X), 2 + 0 * X)  # Nothing is compiled here.


def test_programs_run_on_a_sub_mesh(mesh):
    rows, corner = mesh["x"], mesh["y", "x"]
    assert rows.shape == {"x": 4} and [d.id for d in rows.flat_devices] == [0, 2, 4, 6]
    assert corner.axis_names == ("y", "x") and corner.device_ids.tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]
    y = phalanx.jit(double)(placed(rows, "x"))
    assert {d.id for d in y.devices()} == {0, 2, 4, 6}
    np.testing.assert_array_equal(y, X * 2)
    assert mesh.local_mesh is mesh and rows.local_mesh is rows


# --- B4: resolution ---


def test_uncommitted_arguments_follow_committed_ones(mesh):
    def add(a, b):
        return a + b

    compiled = phalanx.jit(add).lower(placed(mesh, "x"), X).compile()
    assert [s.spec for s in compiled.input_shardings[0]] == [P("x"), P()]
    loose = jnp.ones((8, 8))
    assert not loose.committed
    out = phalanx.jit(add)(placed(mesh, "x"), loose)
    assert out.committed and out.sharding.spec == P("x")
    assert not phalanx.jit(add)(loose, X).committed
    here = phalanx.device_put(X, phalanx.devices()[3])
    assert phalanx.jit(add)(here, loose).devices() == {phalanx.devices()[3]}


def test_contradicting_devices_are_errors_that_name_both(mesh):
    def add(a, b):
        return a + b

    small = Mesh(np.array(phalanx.devices()[:4]), ("x",))
    bring = "\n  Fix: move both to the same devices with device_put, or pass in_shardings."
    assert message(lambda: phalanx.jit(add)(placed(mesh, "x"), placed(small, "x"))) == (
        "add, argument b: expected an array on the devices of add, argument a, cpu 0, 1, 2, 3, 4, 5, 6, 7, got "
        "f32[8,8] on cpu 0, 1, 2, 3." + bring
    )
    all_one = "\n  Fix: move all arguments to one set of devices with device_put, or use shardings over one mesh."
    two = (NamedSharding(mesh, P("x")), NamedSharding(small, P("x")))
    assert message(lambda: phalanx.jit(add, in_shardings=two)(X, X)) == (
        "add, argument b: expected the devices of the computation, cpu 0, 1, 2, 3, 4, 5, 6, 7, got "
        "NamedSharding(mesh=Mesh('x': 4, axis_types=(Auto,)), spec=P('x',), memory_kind=device) on cpu 0, 1, 2, 3."
        + all_one
    )
    assert message(lambda: phalanx.jit(add, in_shardings=two[0])(X, placed(small, "x"))) == (
        "add, argument b: expected an array with the declared sharding NamedSharding(mesh=Mesh('x': 4, 'y': 2, axis_types=(Auto, Auto)), "
        "spec=P('x',), memory_kind=device), got f32[8,8] committed to NamedSharding(mesh=Mesh('x': 4, axis_types=(Auto,)), spec=P('x',), memory_kind=device).\n"
        "  Fix: reshard it with device_put, or pass None for this argument in in_shardings."
    )
    assert message(lambda: phalanx.jit(add, out_shardings=two[1])(placed(mesh, "x"), X)) == (
        "add, argument a: expected the devices of the computation, cpu 0, 1, 2, 3, got "
        "NamedSharding(mesh=Mesh('x': 4, 'y': 2, axis_types=(Auto, Auto)), spec=P('x',), memory_kind=device) on cpu 0, 1, 2, 3, 4, 5, 6, 7."
        + all_one
    )
    assert message(lambda: phalanx.jit(add, in_shardings=(two[0], None), out_shardings=two[1])(X, X)) == (
        "add, result: expected the devices of the computation, cpu 0, 1, 2, 3, 4, 5, 6, 7, got "
        "NamedSharding(mesh=Mesh('x': 4, axis_types=(Auto,)), spec=P('x',), memory_kind=device) on cpu 0, 1, 2, 3."
        + all_one
    )


def test_a_declared_sharding_places_its_argument_or_is_an_error():
    """Arguments by keyword lay anywhere, whatever `in_shardings` or `device` said of them."""
    mesh = auto_mesh((8,), ("x",))
    split = NamedSharding(mesh, P("x"))
    x = np.arange(8.0, dtype=np.float32)
    for declared, call in (
        (split, lambda f: f(x=x, y=x)),
        (split, lambda f: f(x, y=x)),
        ((split, None), lambda f: f(x, y=x)),
    ):
        with pytest.raises(ArgumentError) as e:
            call(phalanx.jit(lambda x, y: x, in_shardings=declared))
        name = without_positions(e.value).removeprefix("<lambda>, argument ")[0]
        assert without_positions(e.value) == (
            f"<lambda>, argument {name}: expected a positional argument, since in_shardings applies to "
            "positional arguments only, "
            f"got a keyword argument.\n  Fix: pass {name} by position, or place it with device_put and leave in_shardings out."
        )
    assert phalanx.jit(lambda x, *, by: x * by, in_shardings=(split,))(x, by=2).sharding == split
    assert phalanx.jit(lambda x: x * 2, device=phalanx.devices()[3])(x=x).devices() == {phalanx.devices()[3]}


def test_errors_name_the_file_and_line_of_the_function(mesh):
    def add(a, b):
        return a + b

    line = add.__code__.co_firstlineno
    specs = {"mesh": mesh, "in_specs": (P(),), "out_specs": P()}
    for name, call in {
        "jit": lambda: phalanx.jit(add, in_shardings=(P(),))(X, X),
        "pmap": lambda: phalanx.pmap(add, in_axes=(0,))(X, X),
    }.items():
        parameter = "in_shardings" if name == "jit" else "in_axes"
        with pytest.raises(PhalanxError) as e, mesh:
            call()
        assert str(e.value) == (
            f"{name} of add at {__file__}:{line}, {parameter}: expected a leaf or a tuple of length 2, got a tuple of "
            "length 1.\n  Fix: add the element [1]."
        )
    with pytest.raises(PhalanxError) as e:
        phalanx.shard_map(add, **specs)(X, X)
    assert str(e.value).startswith(f"shard_map of add at {__file__}:{line}, in_specs: expected a leaf or a tuple of")
