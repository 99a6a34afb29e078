"""Times of collectives and of matrix products on machines."""

from __future__ import annotations

import pytest

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
