"""Specs and shardings: spelling, interning, placement of shards, equivalence and errors."""

from __future__ import annotations

import copy
import pickle

import pytest
from tests.meshes import auto_mesh

from phalanx.core.error_classes import ArgumentTypeError, ShardingError
from phalanx.engine.client import devices as all_devices
from phalanx.engine.custom_call_partitioner import HloSharding, OpShardingType
from phalanx.sharding import (
    AbstractMesh,
    AxisType,
    GSPMDSharding,
    Mesh,
    NamedSharding,
    P,
    PartitionSpec,
    SingleDeviceSharding,
    UnreducedKind,
    to_sharding,
)


@pytest.fixture
def mesh():
    return auto_mesh((4, 2), ("x", "y"))


def message(call):
    with pytest.raises((ShardingError, ArgumentTypeError)) as error:
        call()
    return str(error.value)


def test_a_spec_shows_what_was_written():
    assert repr(P("x", None, ("y", "z"))) == "P('x', None, ('y', 'z'))"
    assert repr(P(P.UNCONSTRAINED, ("x",), None)) == "P(UNCONSTRAINED, 'x', None)"
    assert repr(P()) == "P()"


def test_a_spec_is_a_sequence_of_its_entries():
    spec = P("x", None, ("y", "z"))
    assert len(spec) == 3 and list(spec) == ["x", None, ("y", "z")]
    assert spec[0] == "x" and spec[1:] == (None, ("y", "z"))
    x, y = ("x",), ("y",)
    assert P("x") + y == P("x", "y") == P("x") + P("y") == x + P("y")
    assert spec.axes == ("x", "y", "z") and not spec.has_unconstrained and P(P.UNCONSTRAINED).has_unconstrained
    assert pickle.loads(pickle.dumps(P(P.UNCONSTRAINED, "x"))) == P(P.UNCONSTRAINED, "x")
    assert PartitionSpec is P


def test_spellings_of_one_entry_are_equal_and_trailing_none_is_not():
    assert P(("x",)) == P("x") and hash(P(("x",))) == hash(P("x")) and P(()) == P(None)
    assert P("x", None) != P("x") and P("x", None).canonical == P("x") and P(("x",), (), None).canonical == P("x")
    assert P("x") != P("y") and P("x") != ("x",)


def test_a_bad_entry_is_refused():
    assert message(lambda: P(["x", "y"])) == (
        "PartitionSpec: expected entries that are None, a mesh axis, a tuple of mesh axes or UNCONSTRAINED, got "
        "P(['x', 'y'],).\n"
        "  Fix: write ['x', 'y'] as a tuple of axis names, such as ('x', 'y'), or as None."
    )


def test_shardings_are_interned(mesh):
    sharding = NamedSharding(mesh, P("x", None))
    assert NamedSharding(mesh, P("x", None)) is sharding and NamedSharding(mesh, P("x")) is not sharding
    assert (
        repr(sharding)
        == "NamedSharding(mesh=Mesh('x': 4, 'y': 2, axis_types=(Auto, Auto)), spec=P('x', None), memory_kind=device)"
    )
    assert pickle.loads(pickle.dumps(sharding)) is sharding and copy.deepcopy(sharding) is sharding
    device = all_devices("cpu")[3]
    single = SingleDeviceSharding(device)
    assert SingleDeviceSharding(device) is single and pickle.loads(pickle.dumps(single)) is single
    tiles = HloSharding.iota_tile([8], [2, 4], [1, 0])
    assert GSPMDSharding(mesh.flat_devices, tiles) is GSPMDSharding(mesh.flat_devices, tiles)


def test_spellings_of_one_placement_share_their_canonical_sharding(mesh):
    plain = NamedSharding(mesh, P("x"))
    assert NamedSharding(mesh, P("x", None)).canonical is plain is plain.canonical
    assert NamedSharding(mesh, P(("x",), None), memory_kind="device").canonical is plain
    assert NamedSharding(mesh, P("x"), memory_kind="pinned_host").canonical is not plain
    single = SingleDeviceSharding(all_devices("cpu")[0])
    assert SingleDeviceSharding(all_devices("cpu")[0], memory_kind="device").canonical is single


def test_shards_are_where_the_spec_says(mesh):
    devices = mesh.flat_devices
    by_row = NamedSharding(mesh, P("x")).devices_indices_map((8, 6))
    assert by_row[devices[0]] == by_row[devices[1]] == (slice(0, 2), slice(None))
    assert by_row[devices[7]] == (slice(6, 8), slice(None))
    both = NamedSharding(mesh, P("y", "x"))
    assert both.shard_shape((8, 8)) == (4, 2)
    assert both.devices_indices_map((8, 8))[devices[3]] == (slice(4, 8), slice(2, 4))
    merged = NamedSharding(mesh, P(None, ("y", "x")))
    assert merged.shard_shape((3, 16)) == (3, 2)
    assert merged.devices_indices_map((3, 16))[devices[1]] == (slice(None), slice(8, 10))
    assert NamedSharding(mesh, P()).devices_indices_map(()) == dict.fromkeys(devices, ())
    assert NamedSharding(mesh, P("x")).shard_shape((0, 2)) == (0, 2)
    assert NamedSharding(mesh, P("x")).devices_indices_map((0,))[devices[7]] == (slice(0, 0),)


def test_replicas_are_numbered_in_device_order(mesh):
    shards = NamedSharding(mesh, P("y")).shards((4,))
    assert [shard.replica_id for shard in shards] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [shard.replica_id for shard in NamedSharding(mesh, P()).shards(())] == list(range(8))
    assert [shard.replica_id for shard in NamedSharding(mesh, P(("x", "y"))).shards((8,))] == [0] * 8
    assert shards[2].device is mesh.flat_devices[2] and shards[2].index == (slice(0, 2),)


def test_a_sharding_knows_its_devices(mesh):
    sharding = NamedSharding(mesh, P("x"))
    assert sharding.device_set == set(mesh.flat_devices) == sharding.addressable_devices
    assert sharding.num_devices == 8 and sharding.is_fully_addressable and not sharding.is_fully_replicated
    assert NamedSharding(mesh, P(None)).is_fully_replicated
    assert NamedSharding(auto_mesh((8, 1), ("x", "y")), P("y")).is_fully_replicated
    assert sharding.addressable_devices_indices_map((4,)) == sharding.devices_indices_map((4,))
    assert sharding._device_assignment == mesh.flat_devices == tuple(sharding._internal_device_list)
    single = SingleDeviceSharding(mesh.flat_devices[1])
    assert single.device_set == {mesh.flat_devices[1]} and single.is_fully_replicated and single.num_devices == 1
    assert single.shard_shape((3, 5)) == (3, 5)
    assert sharding.with_dim(0, "y").spec == P("y", "x") and sharding.with_spec(P("y")).spec == P("y")
    assert sharding.replicated.spec == P()


def test_equivalence_is_of_placements(mesh):
    def named(*entries, mesh=mesh):
        return NamedSharding(mesh, P(*entries))

    flat = auto_mesh((8,), ("z",))
    assert named("x", None).is_equivalent_to(named("x"), 2)
    assert named(("x", "y")).is_equivalent_to(named("z", mesh=flat), 2)
    assert not named(("y", "x")).is_equivalent_to(named("z", mesh=flat), 2)
    assert not named("x").is_equivalent_to(named(None, "x"), 2)
    assert named().is_equivalent_to(GSPMDSharding.replicated(mesh.flat_devices), 3)
    assert not named().is_equivalent_to(SingleDeviceSharding(mesh.flat_devices[0]), 3)
    one = auto_mesh((1,), ("a",))
    assert NamedSharding(one, P("a")).is_equivalent_to(SingleDeviceSharding(one.flat_devices[0]), 1)
    assert not named("x").is_equivalent_to(named("x").with_memory_kind("pinned_host"), 1)
    assert named("x").is_equivalent_to(named("x").with_memory_kind("device"), 1)
    first, second = mesh.flat_devices[:2]
    there = auto_mesh((2,), ("a",), devices=[first, second])
    back = auto_mesh((2,), ("a",), devices=[second, first])
    assert not named("a", mesh=there).is_equivalent_to(named("a", mesh=back), 1)


def test_specs_that_do_not_fit_the_mesh_are_refused(mesh):
    assert message(lambda: NamedSharding(mesh, P("x", "z"), where="in_shardings[0]['w']")) == (
        "in_shardings[0]['w']: expected a spec over the axes of the mesh ('x', 'y'), got P('x', 'z').\n"
        "  Fix: add an axis 'z' to the mesh, or remove it from the spec."
    )
    assert message(lambda: NamedSharding(mesh, P("x", ("y", "x")))) == (
        "NamedSharding: expected a spec that names each mesh axis at most once, got P('x', ('y', 'x')).\n"
        "  Fix: keep 'x' in one entry only: a mesh axis can split one dimension of an array."
    )
    assert message(lambda: NamedSharding(mesh, ("x",))) == (
        "NamedSharding: expected a Mesh or AbstractMesh and a PartitionSpec, got Mesh and tuple.\n"
        "  Fix: call NamedSharding(mesh, PartitionSpec(...))."
    )
    assert message(lambda: NamedSharding(mesh, P("x")).with_dim(0, "x")) == (
        "spmd_axis_name of a vmap, or axis_resources of an xmap: expected mesh axes that no sharding inside the mapped "
        "function uses, "
        "got 'x' for the mapped dimension and in P('x',).\n"
        "  Fix: split the mapped dimension over another mesh axis, or remove 'x' from the spec."
    )
    assert message(lambda: NamedSharding(mesh, P(), memory_kind="attic")) == (
        "NamedSharding: expected a memory kind of cpu devices ('device', 'pinned_host', 'unpinned_host'), got "
        "memory_kind='attic'.\n  Fix: pass memory_kind='device', or omit memory_kind to use the default memory."
    )


def test_arrays_that_do_not_fit_the_sharding_are_refused(mesh):
    assert message(lambda: NamedSharding(mesh, P("x", None, "y")).shard_shape((8, 4), where="argument x")) == (
        "argument x: expected a spec of at most 2 entries for an array of shape (8, 4), got "
        "P('x', None, 'y').\n  Fix: drop the last entry, or give the array 3 dimensions."
    )
    assert message(lambda: NamedSharding(mesh, P("x")).check_even((10,), "argument x")) == (
        "argument x: expected dimension 0 to be a multiple of 4, since P('x',) splits "
        "it over 'x' (4), got size 10.\n  Fix: pad the dimension to 12, or use None for it in the spec."
    )
    assert message(lambda: NamedSharding(mesh, P(None, ("x", "y"))).check_even((8, 20), "argument x")) == (
        "argument x: expected dimension 1 to be a multiple of 8, since "
        "P(None, ('x', 'y')) splits it over 'x' (4) and 'y' (2), got size 20.\n"
        "  Fix: pad the dimension to 24, or use None for it in the spec."
    )
    assert message(lambda: NamedSharding(mesh, P(P.UNCONSTRAINED)).shard_shape((8,))) == (
        "NamedSharding: expected a spec that determines the sharding of each dimension, got P(UNCONSTRAINED,).\n"
        "  Fix: replace UNCONSTRAINED by axis names or None; it is valid in with_sharding_constraint only."
    )
    tiles = GSPMDSharding(mesh.flat_devices, HloSharding.iota_tile([8], [8], [0]))
    assert message(lambda: tiles.check_even((9,), "argument x")) == (
        "argument x: expected dimension 0 to be a multiple of 8, since {devices=[8]<=[8]} splits "
        "it, got size 9.\n  Fix: pad the dimension to 16, or use None for it in the spec."
    )
    assert message(lambda: tiles.shard_shape((8, 8))) == (
        "sharding of a compiled program: expected a tile assignment for 2 dimensions, got {devices=[8]<=[8]}.\n"
        "  Fix: apply the sharding to arrays of rank 1."
    )


def test_an_abstract_mesh_places_no_data():
    sharding = NamedSharding(AbstractMesh((4, 2), ("x", "y")), P("x", "y"))
    assert sharding.shard_shape((8, 8)) == (2, 4) and sharding.num_devices == 8
    assert message(lambda: sharding.device_set) == (
        "devices of a sharding: expected a sharding over a Mesh of devices, got "
        "NamedSharding(mesh=AbstractMesh('x': 4, 'y': 2, axis_types=(Auto, Auto)), spec=P('x', 'y')).\n"
        "  Fix: use a Mesh, for example phalanx.make_mesh(...), in place of the AbstractMesh to place data."
    )


def test_a_bare_spec_is_over_the_mesh_in_force(mesh):
    with mesh:
        assert to_sharding(P("x"), where="x") is NamedSharding(mesh, P("x"))
    assert to_sharding(NamedSharding(mesh, P()), where="x") is NamedSharding(mesh, P())
    assert message(lambda: to_sharding(P("x"), where="in_shardings[1]")) == (
        "in_shardings[1]: expected a sharding, or a current mesh to resolve a bare spec, got P('x',).\n"
        "  Fix: pass NamedSharding(mesh, spec), or call the function inside `with mesh:` or after set_mesh(mesh)."
    )
    assert message(lambda: to_sharding("x", where="in_shardings[1]")) == (
        "in_shardings[1]: expected a Sharding, or a PartitionSpec over the current mesh, got 'x' of type str.\n"
        "  Fix: pass NamedSharding(mesh, PartitionSpec(...))."
    )


def test_manual_axes_are_told_to_the_engine(mesh):
    manual = mesh.with_axis_types({"y": AxisType.Manual})
    hlo = NamedSharding(manual, P("x"))._to_xla_hlo_sharding(1)
    assert str(hlo) == "{devices=[4,2]<=[8] last_tile_dims={manual}}" and hlo.subgroup_types() == [
        OpShardingType.MANUAL
    ]
    both = mesh.with_axis_types({"x": AxisType.Manual, "y": AxisType.Manual})
    assert str(NamedSharding(both, P())._to_xla_hlo_sharding(2)) == "{manual}"


def test_unreduced_and_reduced_axes_belong_to_a_spec():
    spec = P("x", None, unreduced={"y"}, reduced={"z"})
    assert repr(spec) == "P('x', None, unreduced={'y'}, reduced={'z'}, unreduced_kind=sum)"
    assert spec is P(("x",), (), unreduced=frozenset("y"), reduced=frozenset("z"))
    assert spec is not P("x", None) and spec.partitions == ("x", None)
    assert spec.unreduced_kind is UnreducedKind.sum and P("x").unreduced_kind is None
    assert spec.to_ct_spec() is P("x", None, unreduced={"z"}, reduced={"y"})
    assert spec.update(unreduced=frozenset()) is P("x", None, reduced={"z"})
    assert P("a", unreduced={"y"}) + P("b", reduced={"z"}, unreduced={"w"}) is P(
        "a", "b", unreduced={"y", "w"}, reduced={"z"}
    )
    assert pickle.loads(pickle.dumps(spec)) is spec
    assert (P("x", ("y",)).index(("y",)), P("x", None, None).count(None)) == (1, 2)
    largest = P(unreduced={"y"}, unreduced_kind=UnreducedKind.max)
    assert repr(largest) == "P(unreduced={'y'}, unreduced_kind=max)"
    with pytest.raises(ShardingError, match="the only combination that is linear"):
        largest.to_ct_spec()


def test_a_spec_uses_each_axis_in_one_way():
    for make, text in (
        (
            lambda: P("x", unreduced={"x"}),
            "PartitionSpec, arguments partitions and unreduced: expected each mesh axis in one of the two, "
            "got 'x' in both.\n  Fix: remove 'x' from one of the two.",
        ),
        (
            lambda: P(unreduced={"x"}, reduced={"x"}),
            "PartitionSpec, arguments unreduced and reduced: expected each mesh axis in one of the two, "
            "got 'x' in both.\n  Fix: remove 'x' from one of the two.",
        ),
        (
            lambda: P(unreduced_kind=UnreducedKind.sum),
            "PartitionSpec, argument unreduced_kind: expected None, since no axis is unreduced, got sum.\n"
            "  Fix: name the unreduced axes, or leave unreduced_kind out.",
        ),
        (
            lambda: P(unreduced={None}),
            "PartitionSpec, arguments unreduced and reduced: expected names of mesh axes, got None.\n"
            "  Fix: remove None; a set has no positions to skip.",
        ),
        (
            lambda: list(P("x", unreduced={"y"})),
            "indexing or unpacking a PartitionSpec: expected a spec without unreduced and reduced axes, which would be "
            "lost, got P('x', unreduced={'y'}, unreduced_kind=sum).\n"
            "  Fix: read spec.partitions, or copy the spec with spec.update(partitions=...).",
        ),
    ):
        with pytest.raises(ShardingError) as error:
            make()
        assert str(error.value) == text
    with pytest.raises(ArgumentTypeError, match="argument unreduced: expected a set of mesh axes, got 'x' of type str"):
        P(unreduced="x")
    with pytest.raises(ArgumentTypeError, match="argument unreduced_kind: expected an UnreducedKind, got 'sum'"):
        P(unreduced={"x"}, unreduced_kind="sum")
    with pytest.raises(ArgumentTypeError, match="class Mine: expected no base class PartitionSpec"):

        class Mine(P):
            pass


def test_the_default_memory_may_be_named():
    device = all_devices()[0]
    default = device.default_memory().kind
    for make in (
        lambda **kind: NamedSharding(Mesh([device], ("x",)), P("x"), **kind),
        lambda **kind: SingleDeviceSharding(device, **kind),
    ):
        assert make(memory_kind=default) is make()
        assert make().memory_kind == default
        pinned = make(memory_kind="pinned_host")
        assert pinned.memory_kind == "pinned_host"
        assert pinned.with_memory_kind(default) is pinned.with_memory_kind(None) is make()
    assert NamedSharding(AbstractMesh((2,), ("x",)), P("x")).memory_kind is None
