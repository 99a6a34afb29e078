"""Shardings to XLA's and Shardy's forms and back, over random meshes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from tests.meshes import auto_mesh
from tests.strategies import specs

from phalanx.core.error_classes import ShardingError
from phalanx.engine import mlir
from phalanx.engine.client import devices as all_devices
from phalanx.engine.compiler import compile_module, executable_shardings
from phalanx.engine.custom_call_partitioner import HloSharding, OpShardingType
from phalanx.engine.mlir import ir
from phalanx.runtime.shardy import sdy_sharding, to_sdy, to_sdy_mesh
from phalanx.sharding import GSPMDSharding, Mesh, NamedSharding, P, SingleDeviceSharding, from_hlo_sharding


@st.composite
def meshes(draw):
    """A mesh of up to four axes, ones among them, over up to eight devices in any order."""
    sizes = draw(
        st.lists(st.sampled_from([1, 2, 2, 3, 4, 8]), min_size=1, max_size=4).filter(lambda s: math.prod(s) <= 8)
    )
    order = draw(st.permutations(range(math.prod(sizes))))
    devices = np.array(all_devices("cpu"), dtype=object)[list(order)].reshape(sizes)
    return Mesh(devices, tuple("abcd"[: len(sizes)]))


@st.composite
def named_shardings(draw):
    mesh, ndim = draw(meshes()), draw(st.integers(0, 3))
    return NamedSharding(mesh, draw(specs(mesh, ndim))), ndim


def places(sharding, ndim):
    return sharding.devices_indices_map((24,) * ndim)


@settings(max_examples=200, deadline=None)
@given(named_shardings())
def test_a_spec_survives_the_way_through_xla(case):
    sharding, ndim = case
    hlo = sharding._to_xla_hlo_sharding(ndim)
    back = from_hlo_sharding(hlo, sharding._device_assignment, sharding.mesh, ndim)
    assert isinstance(back, NamedSharding) and back.is_equivalent_to(sharding, ndim)
    assert places(back, ndim) == places(sharding, ndim)
    # Read as a bare tile assignment, it says the same.
    assert places(GSPMDSharding(sharding._device_assignment, hlo), ndim) == places(sharding, ndim)
    wide = [axes for axes in sharding.spec.dims if all(sharding.mesh.shape[a] > 1 for a in axes)]
    if len(wide) == len(sharding.spec):
        assert back.spec == sharding.spec.canonical


@settings(max_examples=100, deadline=None)
@given(named_shardings(), st.permutations(range(8)))
def test_a_spec_is_recovered_from_partitions_in_another_order(case, order):
    sharding, ndim = case
    mesh = sharding.mesh
    program = [mesh.flat_devices[at] for at in order if at < mesh.size]
    number = {device: at for at, device in enumerate(program)}
    tiling = sharding.tiling(ndim)
    replicas = mesh.size // math.prod(tiling.parts)
    by_part = sorted(range(mesh.size), key=lambda at: tuple(tiling.coordinates[at]))
    partitions = np.array([number[mesh.flat_devices[at]] for at in by_part]).reshape(*tiling.parts, replicas)
    hlo = HloSharding.subgroup_with_device_ordering(partitions, subgroup_types=[OpShardingType.REPLICATED])
    back = from_hlo_sharding(hlo, program, mesh, ndim)
    assert isinstance(back, NamedSharding) and places(back, ndim) == places(sharding, ndim)


@pytest.mark.parametrize("sizes", [(8,), (4, 2), (2, 4), (2, 2, 2), (2, 1, 4)])
def test_every_transposed_and_split_iota_is_recovered_or_kept(sizes):
    """A mesh axis may be split in XLA's iota: it is found where the pieces come together again."""
    mesh = auto_mesh(sizes, tuple("abc"[: len(sizes)]))
    found = 0
    for tiles in [(8, 1), (4, 2), (2, 4), (1, 8), (2, 2), (4, 1), (1, 2), (1, 1)]:
        for perm in itertools.permutations(range(3)):
            rest = 8 // math.prod(tiles)
            hlo = HloSharding.iota_tile(
                [*tiles, rest], reshape_dims=[2, 2, 2], transpose_perm=perm, subgroup_types=[OpShardingType.REPLICATED]
            )
            back = from_hlo_sharding(hlo, mesh.flat_devices, mesh, 2)
            exact = GSPMDSharding(mesh.flat_devices, hlo)
            assert places(back, 2) == places(exact, 2)
            possible = [
                NamedSharding(mesh, P(tuple(axes[:cut]), tuple(axes[cut:end])))
                for axes in itertools.permutations(mesh.axis_names)
                for end in range(len(axes) + 1)
                for cut in range(end + 1)
            ]
            expressible = any(places(sharding, 2) == places(exact, 2) for sharding in possible)
            assert isinstance(back, NamedSharding) == expressible
            found += expressible
    assert found >= 8


def test_what_no_spec_says_is_kept_as_it_is():
    mesh = auto_mesh((4, 2), ("x", "y"))
    halves = HloSharding.iota_tile([2, 4], [8], [0], [OpShardingType.REPLICATED])
    back = from_hlo_sharding(halves, mesh.flat_devices, mesh, 1)
    assert repr(back) == "GSPMDSharding(8 devices, {devices=[2,4]<=[8] last_tile_dim_replicate}, memory_kind=device)"
    assert back.shard_shape((8,)) == (4,)
    assert back.devices_indices_map((8,))[mesh.flat_devices[5]] == (slice(4, 8),)
    one = from_hlo_sharding(HloSharding.replicate(), mesh.flat_devices[:1], None, 2)
    assert one is SingleDeviceSharding(mesh.flat_devices[0])
    swapped = HloSharding.subgroup_with_device_ordering(np.array([1, 0, 2, 3, 4, 5, 6, 7]))
    assert isinstance(from_hlo_sharding(swapped, mesh.flat_devices, mesh, 1), GSPMDSharding)


class Module:
    """What `sdy_sharding` reads of a lowering."""

    def __init__(self, devices=None):
        self.module, self.meshes, self.device_assignment = ir.Module.create(), {}, devices


def test_the_text_of_shardy_attributes():
    mesh = auto_mesh((4, 2), ("x", "y"))
    with mlir.make_context(), ir.Location.unknown():
        assert str(to_sdy_mesh(mesh)) == '#sdy.mesh<["x"=4, "y"=2]>'
        assert str(to_sdy_mesh(mesh, mesh.flat_devices[::-1])) == (
            '#sdy.mesh<["x"=4, "y"=2], device_ids=[7, 6, 5, 4, 3, 2, 1, 0]>'
        )
        assert str(to_sdy(NamedSharding(mesh, P(("y", "x"))), 2)) == '#sdy.sharding<@mesh, [{"y", "x"}, {}]>'
        constraint = NamedSharding(mesh, P("x", P.UNCONSTRAINED))
        assert str(to_sdy(constraint, 3, open_dims=[0, 2])) == '#sdy.sharding<@mesh, [{"x", ?}, {?}, {?}]>'
        assert str(to_sdy(GSPMDSharding.replicated(mesh.flat_devices), 2)) == "#sdy.sharding<mesh<[]>, [{}, {}]>"
        columns = HloSharding.iota_tile([1, 2, 4], [4, 2], [1, 0], [OpShardingType.REPLICATED])
        assert str(to_sdy(GSPMDSharding(mesh.flat_devices, columns), 2)) == (
            '#sdy.sharding<mesh<["_dim_1"=2, "_replicas"=4], device_ids=[0, 2, 4, 6, 1, 3, 5, 7]>, [{}, {"_dim_1"}]>'
        )
        with pytest.raises(ShardingError) as error:
            to_sdy_mesh(mesh, mesh.flat_devices[:4])
        assert str(error.value) == (
            "lowering of a program: expected meshes over the 4 devices that the program runs on, got "
            "Mesh('x': 4, 'y': 2, axis_types=(Auto, Auto)).\n"
            "  Fix: use meshes of the same devices for all arguments and constraints of the program."
        )


def test_meshes_are_declared_once():
    mesh, flat = auto_mesh((4, 2), ("x", "y")), auto_mesh((8,), ("z",))
    with mlir.make_context(), ir.Location.unknown():
        module = Module()
        texts = [
            str(sdy_sharding(module, NamedSharding(of, P(axis)), 1))
            for of, axis in [(mesh, "x"), (flat, "z"), (mesh, "y"), (mesh.abstract_mesh, "y")]
        ]
        assert texts == [
            '#sdy.sharding<@mesh, [{"x"}]>',
            '#sdy.sharding<@mesh_1, [{"z"}]>',
            '#sdy.sharding<@mesh, [{"y"}]>',
            '#sdy.sharding<@mesh, [{"y"}]>',
        ]
        assert str(module.module).count("sdy.mesh @") == 2


def compiled_shardings(argument, result, shape, mesh):
    """Compile the identity with these shardings and read them back."""
    with mlir.make_context(), ir.Location.unknown():
        holder = Module(mesh.flat_devices)
        ndim = len(shape)
        attributes = [sdy_sharding(holder, sharding, ndim) for sharding in (argument, result)]
        kind = ir.RankedTensorType.get(shape, ir.F32Type.get())
        with ir.InsertionPoint(holder.module.body):
            function = mlir.func.FuncOp("main", ([kind], [kind]))
            function.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get({"sdy.sharding": attributes[0]})])
            function.attributes["res_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get({"sdy.sharding": attributes[1]})])
            with ir.InsertionPoint(function.add_entry_block()):
                mlir.func.ReturnOp(list(function.arguments))
        executable = compile_module(holder.module, mesh.flat_devices, propagate_to_outputs=[False])
        parameters, results = executable_shardings(executable)
    return [from_hlo_sharding(found[0], mesh.flat_devices, mesh, ndim) for found in (parameters, results)]


@settings(max_examples=25, deadline=None)
@given(named_shardings(), st.data())
def test_a_compiled_program_gives_its_shardings_back(case, data):
    """Through Shardy and the partitioner: what was asked for is what the executable reports, as a spec."""
    sharding, ndim = case
    other = sharding.with_spec(data.draw(specs(sharding.mesh, ndim)))
    assume(sharding.mesh.size > 1)  # XLA keeps no shardings for one device.
    found = compiled_shardings(sharding, other, (24,) * ndim, sharding.mesh)
    for got, wanted in zip(found, (sharding, other), strict=True):
        assert isinstance(got, NamedSharding) and places(got, ndim) == places(wanted, ndim)


def test_shardings_without_a_spec_and_meshes_in_another_order_compile():
    mesh = auto_mesh((4, 2), ("x", "y"))
    backwards = auto_mesh((4, 2), ("x", "y"), devices=mesh.flat_devices[::-1])
    columns = GSPMDSharding(mesh.flat_devices, HloSharding.iota_tile([2, 1, 4], [8], [0], [OpShardingType.REPLICATED]))
    argument, result = compiled_shardings(columns, NamedSharding(backwards, P("x", "y")), (8, 8), mesh)
    assert places(argument, 2) == places(columns, 2)
    assert places(result, 2) == places(NamedSharding(backwards, P("x", "y")), 2)
    whole = GSPMDSharding.replicated(mesh.flat_devices)
    argument, result = compiled_shardings(whole, NamedSharding(mesh, P("y")), (8, 8), mesh)
    assert argument is NamedSharding(mesh, P()) and result is NamedSharding(mesh, P("y"))
