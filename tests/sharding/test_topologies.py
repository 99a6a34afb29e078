"""Topology descriptions: the attached devices, meshes over them, and the refusal of systems that are not attached."""

import pytest
from phalanx.experimental import topologies

import phalanx
from phalanx.sharding import AxisType


def test_a_mesh_of_the_attached_devices():
    topology = topologies.get_attached_topology("cpu")
    assert topology.devices == phalanx.devices("cpu")
    mesh = topologies.make_mesh(topology, (4, 2), ("x", "y"), contiguous_submeshes=True)
    assert dict(mesh.shape) == {"x": 4, "y": 2}
    assert mesh.axis_types == (AxisType.Auto, AxisType.Auto)
    with pytest.raises(phalanx.errors.ShardingError):
        topologies.make_mesh(topology, (3, 2), ("x", "y"))


def test_a_system_that_is_not_attached_is_refused():
    with pytest.raises(NotImplementedError) as error:
        topologies.get_topology_desc("v5e:2x2", "tpu")
    assert str(error.value) == (
        "get_topology_desc: expected a system that is attached to this process, got the topology 'v5e:2x2' of platform "
        "'tpu'.\n"
        "  Fix: lower the program for arguments with shardings over an AbstractMesh, which needs no devices."
    )
