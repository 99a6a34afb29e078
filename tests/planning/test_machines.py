"""Times of collectives and of matrix products on machines."""

from __future__ import annotations

import pytest

from phalanx.engine.compile_only_devices import Topology
from phalanx.planning import Link, Machine
from phalanx.planning.machines import MACHINES

BOX = Machine("box", 1e9, {16: 2e12, 32: 1e12}, 1e11, Link(1e9, 1e-6), domain=4, network=Link(1e8, 1e-5))


@pytest.mark.parametrize(
    "kind, groups, seconds",
    [
        ("all-gather", ((0, 1, 2, 3), (4, 5, 6, 7)), 2e-6 + 0.75e-3),
        ("reduce-scatter", ((0, 1, 2, 3),), 2e-6 + 0.75e-3),
        ("all-reduce", ((0, 1, 2, 3),), 2 * (2e-6 + 0.75e-3)),
        ("all-to-all", ((0, 1), (2, 3)), 1e-6 + 0.5e-3),
        ("collective-permute", ((0, 1), (1, 0)), 1e-6 + 1e-3),
        ("all-gather", ((0, 4), (1, 5)), 1e-5 + 0.5e-2),  # between two boxes
        ("collective-permute", ((3, 4),), 1e-5 + 1e-2),
    ],
)
def test_a_collective_takes_the_time_of_its_slowest_link(kind, groups, seconds):
    assert BOX.collective_seconds(kind, 1_000_000, groups) == pytest.approx(seconds)


def test_a_product_takes_the_rate_of_its_operands():
    assert [BOX.contraction_seconds(1e12, bits) for bits in (8, 16, 32, 64)] == [0.5, 0.5, 1.0, 1.0]
    assert BOX.contraction_seconds(0, 0) == 0


def test_every_machine_is_complete():
    for name, machine in MACHINES.items():
        assert machine.name == name and {16, 32} <= set(machine.flops)
        assert (machine.domain is None) == (machine.network is None)
        assert machine.flops[16] > machine.flops[32] and machine.bandwidth > machine.link.bandwidth


@pytest.mark.parametrize(
    "name, count, shape",
    [
        ("h100", 4, "1x1x4"),
        ("h100", 12, "1x1x12"),
        ("h100", 8192, "1x1024x8"),
        ("v5p", 4, "v5p:2x2x1"),
        ("v5p", 8192, "v5p:32x16x16"),
        ("v5e", 8, "v5e:4x2"),
        ("v6e", 1, "v6e:1x1"),
    ],
)
def test_devices_are_connected_as_the_compiler_names_it(name, count, shape):
    topology = MACHINES[name].topology(count)
    assert (topology.platform, topology.name) == (MACHINES[name].platform, shape)


def test_a_machine_without_a_compiler_of_its_own_is_answered_by_that_for_cpus():
    assert BOX.platform == MACHINES["v4"].platform == "cpu" and BOX.topology(8) == Topology("cpu")


def test_a_gpu_is_described_to_its_compiler():
    text = MACHINES["h100"].topology(8).description
    for part in (
        "core_count: 132",
        "device_memory_size: 80000000000",
        "{ major: 9 minor: 0 }",
        "NVIDIA H100 80GB HBM3",
    ):
        assert part in text
