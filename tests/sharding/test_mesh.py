"""Meshes: interning, sub-meshes, local boxes, layouts, and the mesh in force."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest
from phalanx.experimental.mesh_utils import create_device_mesh, create_hybrid_device_mesh
from tests.meshes import auto_mesh

from phalanx.core.config import state
from phalanx.core.error_classes import ArgumentError, ArgumentTypeError, ShardingError
from phalanx.engine.client import devices as all_devices
from phalanx.sharding import (
    AbstractMesh,
    AxisType,
    Mesh,
    NamedSharding,
    P,
    get_abstract_mesh,
    get_mesh,
    make_mesh,
    set_mesh,
    use_abstract_mesh,
    use_mesh,
)


class FakeClient:
    def process_index(self):
        return 1


class FakeDevice:
    """A device of another process or with coordinates, where the real ones have neither."""

    platform = device_kind = "fake"
    client = FakeClient()

    def __init__(self, id, process_index=0, coords=None, slice_index=0):
        self.id, self.process_index, self.slice_index = id, process_index, slice_index
        if coords is not None:
            self.coords, self.core_on_chip = coords, 0


def ids(devices):
    return np.vectorize(lambda device: device.id)(devices).tolist()


@pytest.fixture
def mesh():
    return auto_mesh((4, 2), ("x", "y"))


def test_a_mesh_tells_its_shape(mesh):
    assert str(mesh) == "Mesh('x': 4, 'y': 2, axis_types=(Auto, Auto))"
    assert mesh.shape == {"x": 4, "y": 2} and mesh.size == 8 and mesh.axis_names == ("x", "y")
    assert mesh.device_ids.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert mesh.shape_tuple == (("x", 4), ("y", 2))
    assert not mesh.empty and not mesh.is_multi_process and mesh.local_mesh is mesh
    assert mesh.axis_types == (AxisType.Auto, AxisType.Auto) and mesh.auto_axes == ("x", "y")
    assert str(mesh.with_axis_types({"y": AxisType.Manual})) == "Mesh('x': 4, 'y': 2, axis_types=(Auto, Manual))"


def test_equal_meshes_are_one_object(mesh):
    again = Mesh(np.array(all_devices("cpu")[:8]).reshape(4, 2), ["x", "y"])
    assert again is mesh and hash(again) == hash(mesh)
    assert Mesh(mesh.devices, ("y", "x")) is not mesh
    assert mesh.with_axis_types({"x": AxisType.Explicit}) is not mesh
    assert mesh.abstract_mesh is AbstractMesh((4, 2), ("x", "y")) is mesh.abstract_mesh.abstract_mesh
    assert pickle.loads(pickle.dumps(mesh)) is mesh and copy.deepcopy(mesh) is mesh


def test_the_devices_of_a_mesh_cannot_be_changed(mesh):
    with pytest.raises(ValueError, match="read-only"):
        mesh.devices[0, 0] = None


def test_axes_select_a_sub_mesh_in_their_order(mesh):
    assert mesh["x"].device_ids.tolist() == [0, 2, 4, 6]
    assert mesh["y", "x"].device_ids.tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]
    cube = auto_mesh((2, 2, 2), ("a", "b", "c"))
    assert cube["c", "a"].device_ids.tolist() == [[0, 4], [1, 5]]
    assert cube["c", "a"].axis_names == ("c", "a")
    with pytest.raises(ShardingError) as error:
        mesh["z"]
    assert str(error.value) == (
        "Mesh[...]: expected each of the axes ('x', 'y') at most once, got 'z'.\n"
        "  Fix: index with distinct axis names of Mesh('x': 4, 'y': 2, axis_types=(Auto, Auto))."
    )


def test_the_local_mesh_is_the_smallest_box():
    devices = np.array([FakeDevice(i, process_index=i // 4) for i in range(8)]).reshape(2, 2, 2)
    mesh = Mesh(devices.transpose(1, 0, 2), ("a", "b", "c"))
    assert mesh.is_multi_process and ids(mesh.local_mesh.devices) == [[[4, 5]], [[6, 7]]]
    assert [d.id for d in mesh.local_devices] == [4, 5, 6, 7]


def test_a_local_mesh_that_is_no_box_is_an_error():
    mesh = Mesh(np.array([FakeDevice(i, process_index=i % 2) for i in range(4)]), "a")
    with pytest.raises(ShardingError) as error:
        mesh.local_mesh
    assert str(error.value) == (
        "Mesh.local_mesh: expected this process's devices to form a contiguous sub-array of the mesh, got devices at [[1], [3]] of "
        "Mesh('a': 4, axis_types=(Auto,)).\n  Fix: arrange the devices with mesh_utils.create_device_mesh or create_hybrid_device_mesh."
    )
    mesh = Mesh(np.array([FakeDevice(i, process_index=2 * i) for i in range(2)]), "a")
    with pytest.raises(
        ShardingError, match=r"expected a mesh with devices of this process, got Mesh\('a': 2, axis_types"
    ):
        mesh.local_mesh


def message(call):
    with pytest.raises((ArgumentError, ArgumentTypeError, ShardingError)) as error:
        call()
    return str(error.value)


def test_bad_meshes_are_refused():
    devices = np.array(all_devices("cpu")[:8]).reshape(4, 2)
    assert message(lambda: Mesh(devices, ("x",))) == (
        "Mesh: expected one axis name per dimension, 2 in all, got axis names ('x',).\n"
        "  Fix: reshape the array of devices, or give a name for each of its dimensions."
    )
    assert message(lambda: Mesh(devices, ("x", "x"))) == (
        "Mesh: expected distinct axis names, none of them None, got ('x', 'x').\n  Fix: rename the repeated axes, for example to ('data', 'model')."
    )
    assert message(lambda: Mesh(devices[:, [0, 0]], ("x", "y"))) == (
        "Mesh: expected at least one device, and no device twice, got 8 devices of which 4 are distinct.\n"
        "  Fix: pass each device of phalanx.devices() at most once."
    )
    assert message(lambda: Mesh(devices, ("x", "y"), axis_types=(AxisType.Auto,))) == (
        "Mesh: expected one AxisType per axis, 2 in all, got axis_types=(Auto,).\n"
        "  Fix: pass axis_types=(AxisType.Auto, ...), or leave it out."
    )
    assert message(lambda: AbstractMesh((2, 0), ("x", "y"))) == (
        "AbstractMesh: expected axes of size at least 1, got sizes (2, 0).\n  Fix: drop the axes of size 0."
    )
    count = len(all_devices())
    assert message(lambda: make_mesh((count + 1,), ("x",))) == (
        f"make_mesh: expected {count + 1} devices for a mesh of shape ({count + 1},), got {count} devices.\n"
        f"  Fix: change the shape, or start with more devices (on CPU: PHALANX_NUM_CPU_DEVICES={count + 1})."
    )
    assert message(lambda: create_device_mesh((count - 1,))) == (
        f"create_device_mesh: expected {count - 1} devices for a mesh of shape ({count - 1},), got {count} devices.\n"
        f"  Fix: change the shape, or pass as many of them, devices=phalanx.devices()[:{count - 1}]."
    )


def test_the_axes_of_make_mesh_are_explicit_and_those_of_a_mesh_of_devices_auto():
    assert make_mesh((4, 2), ("x", "y")).axis_types == (AxisType.Explicit,) * 2
    by_name = {name: make_mesh(axis_names=("x", "y"), **{name: (4, 2)}) for name in ("axis_sizes", "axis_shapes")}
    assert by_name["axis_sizes"] == by_name["axis_shapes"] == make_mesh((4, 2), ("x", "y"))
    assert Mesh(all_devices("cpu")[:2], "x").axis_types == (AxisType.Auto,)


def test_a_mesh_of_one_axis_takes_a_name_alone():
    assert make_mesh((8,), "model") is make_mesh((8,), ("model",))


def test_make_mesh_takes_the_first_devices():
    assert make_mesh((2,), ("x",)).device_ids.tolist() == [0, 1]
    assert make_mesh((2,), ("x",), devices=all_devices("cpu")[6:8]).device_ids.tolist() == [6, 7]
    assert make_mesh((2,), ("x",), axis_types=(AxisType.Manual,)).manual_axes == ("x",)


def test_a_torus_is_laid_out_along_its_own_axes():
    devices = [FakeDevice(x + 4 * y, coords=(x, y, 0)) for y in range(2) for x in range(4)]
    assert ids(create_device_mesh((4, 2), devices)) == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert ids(create_device_mesh((2, 4), devices)) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert ids(create_device_mesh((2, 1, 4), devices)) == [[[0, 1, 2, 3]], [[4, 5, 6, 7]]]
    assert ids(create_device_mesh((8,), devices)) == [0, 4, 1, 5, 2, 6, 3, 7]
    assert ids(create_device_mesh((2, 2, 2), devices)) == [[[0, 4], [1, 5]], [[2, 6], [3, 7]]]


def test_a_hybrid_mesh_keeps_each_slice_in_a_box():
    devices = [FakeDevice(i, process_index=i // 2, slice_index=i // 4) for i in reversed(range(8))]
    assert ids(create_hybrid_device_mesh((2, 2), (1, 2), devices)) == [[3, 2, 7, 6], [1, 0, 5, 4]]
    by_process = create_hybrid_device_mesh((1, 2), (4, 1), devices, process_is_granule=True)
    assert ids(by_process) == [[1, 0], [3, 2], [5, 4], [7, 6]]
    unsorted = create_hybrid_device_mesh((4,), (2,), devices, should_sort_granules_by_key=False)
    assert ids(unsorted) == [7, 6, 5, 4, 3, 2, 1, 0]
    assert ids(create_hybrid_device_mesh((1,), (2,), devices[3:5])) == [3, 4]
    assert message(lambda: create_hybrid_device_mesh((2, 2), (1, 3), devices)) == (
        "create_hybrid_device_mesh: expected a dcn_mesh_shape of 2 axes whose product is 2, one slice each, got "
        "(1, 3).\n  Fix: change dcn_mesh_shape, or pass process_is_granule=True to count processes instead of slices."
    )


def test_the_mesh_in_force_nests(mesh):
    other = auto_mesh((8,), ("z",))
    assert get_mesh().empty and get_abstract_mesh().empty and get_mesh() is get_mesh()
    outside = state.context
    with mesh as entered:
        assert entered is mesh is get_mesh() and get_abstract_mesh() is mesh.abstract_mesh
        assert state.context is not outside
        with other, mesh, use_mesh(other):
            assert get_mesh() is other
        with use_mesh(mesh.abstract_mesh):
            assert get_mesh().empty and get_abstract_mesh() is mesh.abstract_mesh
        assert get_mesh() is mesh
    assert get_mesh().empty and state.context is outside


def test_the_mesh_is_restored_after_an_error(mesh):
    with pytest.raises(KeyError), mesh:
        raise KeyError
    assert get_mesh().empty


def test_set_mesh_is_a_call_and_a_block(mesh):
    with set_mesh(mesh) as entered:
        assert entered is get_mesh() is mesh
    assert get_mesh().empty
    try:
        set_mesh(mesh)
        assert get_mesh() is mesh
    finally:
        set_mesh(None)
    assert get_mesh().empty
    assert message(lambda: set_mesh(8)) == (
        "set_mesh: expected a Mesh or an AbstractMesh, got 8 of type int.\n"
        "  Fix: create a mesh with phalanx.make_mesh(axis_sizes, axis_names)."
    )


def test_the_mesh_in_force_belongs_to_the_thread(mesh):
    seen = []
    with mesh:
        thread = threading.Thread(target=lambda: seen.append(get_mesh()))
        thread.start()
        thread.join()
    assert seen[0].empty


def test_a_mesh_or_a_sharding_is_changed_in_what_is_given():
    mesh = Mesh(np.array(all_devices()[:8]).reshape(4, 2), ("x", "y"))
    explicit = mesh.update(axis_names=("a", "b"), axis_types=(AxisType.Explicit,) * 2)
    assert explicit.shape == {"a": 4, "b": 2} and explicit.devices.tolist() == mesh.devices.tolist()
    assert (mesh.are_all_axes_auto, explicit.are_all_axes_explicit, explicit.are_all_axes_manual) == (True, True, False)
    manual = explicit.update(axis_types=(AxisType.Explicit, AxisType.Manual))
    assert [m.are_all_axes_explicit_or_manual for m in (mesh, explicit, manual, AbstractMesh((), ()))] == [
        False,
        True,
        True,
        False,
    ]
    assert mesh.update(devices=mesh.devices.T.reshape(4, 2)).device_ids[0].tolist() == [0, 2]
    assert mesh.abstract_mesh.update(axis_sizes=(2, 8)) is AbstractMesh((2, 8), ("x", "y"))
    sharding = NamedSharding(mesh, P("x"), "device")
    assert sharding.update(spec=P("y")) == NamedSharding(mesh, P("y"), "device")
    assert sharding.update(mesh=mesh.abstract_mesh, memory_kind=None) == NamedSharding(mesh.abstract_mesh, P("x"))
    assert (P("x", None, None).index(None), P("x", None, None).count(None)) == (1, 2)


def test_an_abstract_mesh_is_put_in_force_for_a_block():
    with use_abstract_mesh(AbstractMesh((4, 2), ("x", "y"))) as mesh:
        assert get_abstract_mesh() is mesh
    assert get_abstract_mesh().empty
