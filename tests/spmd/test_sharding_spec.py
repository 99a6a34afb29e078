"""ShardingSpec: what each device holds, and conversions to and from shardings over a mesh and XLA's form."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st
from phalanx.interpreters.pxla import (
    Chunked,
    NoSharding,
    Replicated,
    ShardedAxis,
    ShardingSpec,
    Unstacked,
    spec_to_indices,
)

import phalanx
from phalanx.core.error_classes import ArgumentTypeError, ShardingError
from phalanx.sharding import GSPMDSharding, NamedSharding, P, make_mesh

ALL = slice(None)


def test_devices_are_in_row_major_order_of_the_box():
    spec = ShardingSpec([Chunked([2]), NoSharding(), Chunked([4])], [ShardedAxis(0), ShardedAxis(1)])
    assert spec.mesh_shape == (2, 4)
    rows, columns = [slice(0, 3), slice(3, 6)], [slice(i, i + 1) for i in range(4)]
    assert spec_to_indices((6, 5, 4), spec) == tuple((r, ALL, c) for r, c in itertools.product(rows, columns))


def test_the_mesh_mapping_may_permute_the_splits():
    spec = ShardingSpec([Chunked([2]), Chunked([3])], [ShardedAxis(1), ShardedAxis(0)])
    found = spec_to_indices((2, 3), spec)
    assert [(r.start, c.start) for r, c in found] == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]
    assert spec.indices((2, 3)).shape == (3, 2)


def test_an_innermost_axis_of_replicas_makes_them_adjacent():
    inner = ShardingSpec([Chunked([2])], [ShardedAxis(0), Replicated(2)])
    outer = ShardingSpec([Chunked([2])], [Replicated(2), ShardedAxis(0)])
    first, second = (slice(0, 2),), (slice(2, 4),)
    assert spec_to_indices((4,), inner) == (first, first, second, second)
    assert spec_to_indices((4,), outer) == (first, second, first, second)


def test_an_unstacked_dimension_is_a_number():
    spec = ShardingSpec([Unstacked(3), NoSharding()], [ShardedAxis(0)])
    assert spec_to_indices((3, 2), spec) == ((0, ALL), (1, ALL), (2, ALL))
    whole = np.arange(6).reshape(3, 2)
    assert [whole[i].shape for i in spec_to_indices((3, 2), spec)] == [(2,)] * 3


def test_a_dimension_may_be_split_twice():
    spec = ShardingSpec([Chunked([2, 2])], [ShardedAxis(1), ShardedAxis(0)])
    assert [i.start for (i,) in spec_to_indices((4,), spec)] == [0, 2, 1, 3]


def test_a_spec_without_splits_has_one_index():
    assert spec_to_indices((3, 2), ShardingSpec([NoSharding(), NoSharding()])) == ((ALL, ALL),)
    assert spec_to_indices((), ShardingSpec([])) == ((),)


MESHES = [(8,), (4, 2), (2, 2, 2), (2, 3), (6,), (1, 5)]


@st.composite
def named_shardings(draw):
    sizes = draw(st.sampled_from(MESHES))
    names = "xyz"[: len(sizes)]
    dims = [[], [], []]
    for axis in draw(st.permutations(names)):
        where = draw(st.integers(-1, 2))
        if where >= 0:
            dims[where].append(axis)
    count = int(np.prod(sizes))
    mesh = make_mesh(sizes, tuple(names), devices=phalanx.devices()[:count])
    return NamedSharding(mesh, P(*map(tuple, dims)))


@given(named_shardings())
def test_a_named_sharding_round_trips_through_a_sharding_spec(sharding):
    shape = (120, 120, 120)
    spec = ShardingSpec.of(sharding, 3)
    assert spec_to_indices(shape, spec) == tuple(s.index for s in sharding.shards(shape))
    assert spec.mesh_shape == sharding.mesh.axis_sizes
    assert spec.named(sharding.mesh).is_equivalent_to(sharding, 3)
    assert spec.named(sharding.mesh.flat_devices).is_equivalent_to(sharding, 3)


@given(named_shardings())
def test_an_hlo_sharding_round_trips_through_a_sharding_spec(sharding):
    spec = ShardingSpec.of(sharding, 3)
    devices = sharding._device_assignment
    gspmd = GSPMDSharding(devices, spec.hlo_sharding())
    assert gspmd.is_equivalent_to(sharding, 3)
    again = ShardingSpec.of(sharding._to_xla_hlo_sharding(3), 3, len(devices))
    assert spec_to_indices((120, 120, 120), again) == spec_to_indices((120, 120, 120), spec)
    assert spec.sharding_proto().type == gspmd.hlo_sharding.to_proto().type


def test_an_hlo_sharding_converts_to_the_fewest_axes():
    mesh = make_mesh((4, 2), ("x", "y"))
    spec = ShardingSpec.of(NamedSharding(mesh, P(None, "x"))._to_xla_hlo_sharding(2), 2, 8)
    assert spec == ShardingSpec([NoSharding(), Chunked([4])], [ShardedAxis(0), Replicated(2)])
    assert repr(spec) == (
        "ShardingSpec([NoSharding(), Chunked(chunks=(4,))], [ShardedAxis(axis=0), Replicated(replicas=2)])"
    )


def test_invalid_sharding_specs_are_errors():
    with pytest.raises(ShardingError) as error:
        ShardingSpec([Chunked([2]), Chunked([2])], [ShardedAxis(0), ShardedAxis(0)])
    assert str(error.value) == (
        "ShardingSpec, mesh_mapping: expected each of the 2 splits of the dimensions once, as ShardedAxis(0) and so on, "
        "got [ShardedAxis(axis=0), ShardedAxis(axis=0)].\n"
        "  Fix: list every split once, and add Replicated(n) for mesh axes that split no dimension."
    )
    with pytest.raises(ArgumentTypeError) as error:
        ShardingSpec([None])
    assert str(error.value) == (
        "ShardingSpec, sharding: expected entries of type NoSharding or Chunked or Unstacked, got None.\n"
        "  Fix: write NoSharding() for a dimension that is not split, Replicated(n) for a replicated mesh axis."
    )
    spec = ShardingSpec([Chunked([4])])
    with pytest.raises(ShardingError) as error:
        spec_to_indices((6,), spec)
    assert str(error.value) == (
        "ShardingSpec: expected dimension 0 to be a multiple of 4, since Chunked(chunks=(4,)) splits it, got size 6.\n"
        "  Fix: pad the dimension to 8, or use None for it in the spec."
    )
    with pytest.raises(ShardingError, match=r"expected an array of 1 dimensions, .* got shape \(4, 4\)"):
        spec_to_indices((4, 4), spec)
    with pytest.raises(ShardingError, match=r"expected dimension 0 of size 3, .* got size 6"):
        spec_to_indices((6,), ShardingSpec([Unstacked(3)]))
    with pytest.raises(ShardingError, match=r"expected 4 devices, for a mesh of shape \(4,\), got 8 devices"):
        spec.named(phalanx.devices())
    with pytest.raises(ShardingError, match="over which some PartitionSpec is equivalent to"):
        ShardingSpec([Chunked([2])], [ShardedAxis(0), Replicated(2)]).named(
            make_mesh((4,), ("x",), devices=phalanx.devices()[:4])
        )
