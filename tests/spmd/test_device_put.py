"""Placement: values onto devices, from sharding to sharding, and arrays put together from pieces."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.meshes import auto_mesh

import phalanx
import phalanx.numpy as jnp
from phalanx.core.error_classes import ArgumentError, ArgumentTypeError, DTypeError, ShapeError, ShardingError
from phalanx.core.primitive import registry
from phalanx.engine.client import devices as all_devices
from phalanx.runtime.array import Array, ArrayType
from phalanx.sharding import GSPMDSharding, Mesh, NamedSharding, P, SingleDeviceSharding
from phalanx.spmd import (
    array_resharding,
    copy_to_host_async,
    device_get,
    device_put,
    device_put_replicated,
    device_put_sharded,
    live_arrays,
    make_array_from_callback,
    make_array_from_process_local_data,
    make_array_from_single_device_arrays,
)


def cpu():
    return all_devices("cpu")


@pytest.fixture
def mesh():
    return auto_mesh((4, 2), ("x", "y"))


def values(*shape, dtype=np.float32):
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


def is_placed(x, value, sharding):
    """Whether each device holds its part, and the whole reads as it should."""
    np.testing.assert_array_equal(np.asarray(x), value)
    places = sharding.devices_indices_map(value.shape)
    for shard in x.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), value[places[shard.device]])
        assert shard.data.devices() == {shard.device}
    assert x.sharding.is_equivalent_to(sharding, value.ndim)
    return True


# --- where to ---


def test_device_put_accepts_a_device_a_sharding_a_spec_or_none(mesh):
    x = values(8, 4)
    placed = device_put(x, cpu()[3])
    assert placed.devices() == {cpu()[3]} and placed.committed
    sharding = NamedSharding(mesh, P("x", "y"))
    assert is_placed(device_put(x, sharding), x, sharding)
    with mesh:
        assert device_put(x, P("y")).sharding is NamedSharding(mesh, P("y"))
    plain = device_put(x)
    assert plain.devices() == {cpu()[0]} and not plain.committed
    assert device_put(placed) is placed and device_put(placed, cpu()[3]) is placed


def test_device_put_accepts_a_tree_prefix(mesh):
    tree = {"a": values(8), "b": [values(4, 4), 3.0], "c": None}
    rows, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())
    placed = device_put(tree, {"a": rows, "b": whole, "c": None})
    assert is_placed(placed["a"], tree["a"], rows) and is_placed(placed["b"][0], tree["b"][0], whole)
    assert float(placed["b"][1]) == 3.0 and placed["b"][1].weak_type and placed["c"] is None
    placed = device_put(tree, {"a": cpu()[1], "b": [rows, None], "c": None})
    assert placed["a"].devices() == {cpu()[1]} and is_placed(placed["b"][0], tree["b"][0], rows)
    with mesh:
        placed = device_put(tree, {"a": P("y"), "b": [rows, None], "c": None})
        assert placed["a"].sharding is NamedSharding(mesh, P("y"))


def test_each_device_receives_its_slice_of_host_data(mesh):
    """Each device gets its own slice only, in whatever memory order the data lies."""
    x = np.asfortranarray(values(8, 4, 2))
    for spec in [P("x"), P(None, "x"), P(("y", "x")), P(None, None, "y"), P("x", "y")]:
        sharding = NamedSharding(mesh, spec)
        assert is_placed(device_put(x, sharding), x, sharding)
    placed = device_put(x, NamedSharding(mesh, P("x", "y")))
    assert [shard.data.shape for shard in placed.addressable_shards] == [(2, 2, 2)] * 8


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "bfloat16", "float8_e4m3fn", "complex64", "int4"])
def test_every_dtype_is_placed(mesh, dtype):
    from phalanx.core import dtypes

    dtype = np.dtype(getattr(dtypes, dtype, None) or dtype)
    x = (values(8, 4) % 2).astype(dtype)
    for spec in [P(), P("x"), P("x", "y")]:
        sharding = NamedSharding(mesh, spec)
        assert is_placed(device_put(x, sharding), x, sharding)
        assert is_placed(
            device_put(device_put(x, sharding), NamedSharding(mesh, P("y"))), x, NamedSharding(mesh, P("y"))
        )


def test_wide_data_is_narrowed_without_x64(mesh):
    assert device_put(np.arange(8), NamedSharding(mesh, P("x"))).dtype == np.int32


# --- from where to where ---


def shardings_of(mesh, devices):
    flat = Mesh(np.array(devices, dtype=object), "z")
    back = Mesh(np.array(devices[::-1], dtype=object).reshape(2, 4), ("b", "a"))
    return [
        *[NamedSharding(mesh, P(*spec)) for spec in [(), ("x",), ("y", "x"), (None, ("x", "y")), (("y", "x"),)]],
        *[NamedSharding(flat, P(*spec)) for spec in [("z",), (None, "z")]],
        *[NamedSharding(back, P(*spec)) for spec in [("a",), ("b", "a"), (None, "b")]],
        GSPMDSharding(mesh.flat_devices, NamedSharding(mesh, P(None, "y"))._to_xla_hlo_sharding(2)),
        SingleDeviceSharding(devices[0]),
        SingleDeviceSharding(devices[5]),
        NamedSharding(auto_mesh((2, 2), ("x", "y"), devices=devices[2:6]), P("y", "x")),
        NamedSharding(auto_mesh((4,), ("x",), devices=devices[4:]), P(None, "x")),
    ]


def test_any_sharding_reaches_any_other(mesh):
    x = values(16, 8)
    shardings = shardings_of(mesh, cpu()[:8])
    placed = [device_put(x, sharding) for sharding in shardings]
    for (i, source), target in itertools.product(enumerate(shardings), shardings):
        moved = device_put(placed[i], target)
        assert is_placed(moved, x, target), (source, target)
        assert moved.sharding is target and moved.committed
        assert is_placed(placed[i], x, source)


@pytest.mark.slow
def test_the_compiled_exchange_reaches_any_sharding_of_the_same_devices(mesh):
    """On CPU devices the host's road comes first, so the compiled one is taken by name."""
    x = values(16, 8)
    shardings = [s for s in shardings_of(mesh, cpu()[:8]) if s.num_devices == 8]
    placed = [device_put(x, sharding) for sharding in shardings]
    for (i, source), target in itertools.product(enumerate(shardings), shardings):
        (moved,) = array_resharding._exchange([placed[i]], [ArrayType(placed[i].aval, target, True)], [False])
        assert is_placed(moved, x, target), (source, target)
    held = device_put([x, x + 1], shardings[1])
    both = [ArrayType(held[0].aval, shardings[2], True)] * 2
    moved = array_resharding._exchange(held, both, [True, False])
    assert is_placed(moved[0], x, shardings[2]) and is_placed(moved[1], x + 1, shardings[2])
    assert held[0].is_deleted() and not held[1].is_deleted()


def test_the_compiled_exchange_reshards_in_the_default_memory(mesh):
    x = values(8, 8)
    held = device_put(x, NamedSharding(mesh, P("x"), memory_kind="pinned_host"))
    target = NamedSharding(mesh, P("y", "x"), memory_kind="unpinned_host")
    (moved,) = array_resharding._exchange_and_copy([held], [ArrayType(held.aval, target, True)], [False])
    assert is_placed(moved, x, target) and not held.is_deleted()


def test_equal_placements_share_their_buffers(mesh):
    x = device_put(values(8), NamedSharding(mesh, P("x")))
    again = device_put(x, NamedSharding(mesh, P("x", None).canonical))
    assert again is x
    other = device_put(x, NamedSharding(auto_mesh((4, 2), ("p", "q")), P("p")))
    assert other.sharding.spec == P("p") and pointers(other) == pointers(x)
    assert pointers(device_put(x, x.sharding, may_alias=False)) != pointers(x)


def pointers(x):
    return [shard.data.unsafe_buffer_pointer() for shard in x.addressable_shards]


# --- donation and aliasing ---


def test_donated_arrays_are_deleted(mesh):
    x = values(8, 8)
    targets = [
        NamedSharding(mesh, P("x")),  # the same placement
        NamedSharding(mesh, P("y", "x")),  # a compiled move
        NamedSharding(auto_mesh((4, 2), ("x", "y"), devices=cpu()[7::-1]), P("x")),  # the same pieces elsewhere
        SingleDeviceSharding(cpu()[2]),  # put together anew
    ]
    for target in targets:
        held = device_put(x, NamedSharding(mesh, P("x")))
        moved = device_put(held, target, donate=True)
        assert is_placed(moved, x, target) and held.is_deleted()
        with pytest.raises(ArgumentError, match=r"expected an array with live buffers, got f32\[8,8\], deleted"):
            device_put(held, target)


def test_equal_host_values_get_separate_buffers(mesh):
    """Equal scalars shared one array, so that all went with the first that was donated or deleted."""
    for target in (None, cpu()[1], NamedSharding(mesh, P())):
        x, y = device_put(3.5, target), device_put(3.5, target)
        x.delete()
        assert float(y) == 3.5
    add = phalanx.jit(lambda s: {name: v + 1 for name, v in s.items()}, donate_argnums=0)
    assert add(device_put({"step": 0, "epoch": 0})) == {"step": 1, "epoch": 1}
    assert add({"step": 0, "epoch": 0}) == {"step": 1, "epoch": 1}


def test_donate_takes_a_prefix_of_the_tree(mesh):
    tree = device_put({"a": values(8), "b": values(8)}, cpu()[0])
    moved = device_put(tree, NamedSharding(mesh, P("x")), donate={"a": True, "b": False})
    assert (
        tree["a"].is_deleted() and not tree["b"].is_deleted() and is_placed(moved["a"], values(8), moved["a"].sharding)
    )


def test_numpy_memory_is_copied_unless_it_may_be_shared():
    x = np.zeros(1024, np.float32)
    copied, shared = device_put(x), device_put(x, cpu()[0], may_alias=True)
    x[:] = 1.0
    assert np.asarray(copied).sum() == 0.0
    assert shared.unsafe_buffer_pointer() != x.ctypes.data or np.asarray(shared).sum() == 1024.0


def addresses(x):
    return [shard.data.unsafe_buffer_pointer() for shard in x.addressable_shards]


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
@pytest.mark.parametrize("spec", [P(("x", "y")), P(("y", "x")), P(None, ("x", "y"))])
def test_row_shards_of_large_host_data_share_one_copy(mesh, spec, dtype):
    host = values(1, 1 << 20) if spec[0] is None else values(1 << 10, 1 << 10)
    host = (host % 251).astype(dtype)
    kept = host.copy()
    x = device_put(host, NamedSharding(mesh, spec))
    host[:] = 0
    assert is_placed(x, kept, x.sharding)
    assert min(addresses(x)) == np.asarray(x).__array_interface__["data"][0]
    assert not np.asarray(x).flags.writeable


def test_row_shards_of_large_host_data_can_be_donated_and_deleted(mesh):
    kept = values(1 << 10, 1 << 10)
    x = device_put(kept, NamedSharding(mesh, P(("x", "y"))))
    y = phalanx.jit(lambda x: x + 1, donate_argnums=0)(x)
    assert x.is_deleted() and is_placed(y, kept + 1, y.sharding)
    read = np.asarray(z := device_put(kept, x.sharding))
    z.delete()
    np.testing.assert_array_equal(read, kept)


def test_non_contiguous_or_repeated_shards_are_copied_one_by_one(mesh):
    kept = values(1 << 10, 1 << 10)
    for spec in (P("x"), P("x", "y"), P(None, "x"), P()):
        x = device_put(kept, NamedSharding(mesh, spec))
        assert len(set(addresses(x))) == 8 and is_placed(x, kept, x.sharding)
    broadcast = np.broadcast_to(np.float32(3), (8, 1 << 16))
    x = device_put(broadcast, NamedSharding(mesh, P(("x", "y"))))
    assert is_placed(x, broadcast, x.sharding)


def message(call):
    with pytest.raises((ArgumentError, ArgumentTypeError, DTypeError, ShapeError, ShardingError)) as error:
        call()
    return str(error.value)


def test_values_that_cannot_be_placed_are_named_by_path(mesh):
    tree = {"w": [values(8), values(6, 2)]}
    assert message(lambda: device_put(tree, NamedSharding(mesh, P(None, "x")))) == (
        "device_put, x['w'][0]: expected a spec of at most 1 entry for an array of shape (8,), got "
        "P(None, 'x').\n  Fix: drop the last entry, or give the array 2 dimensions."
    )
    assert message(lambda: device_put(tree, {"w": [None, P("x")]})) == (
        "device_put, device['w'][1]: expected a sharding, or a current mesh to resolve a bare spec, got P('x',).\n"
        "  Fix: pass NamedSharding(mesh, spec), or call the function inside `with mesh:` or after set_mesh(mesh)."
    )
    assert message(lambda: device_put(values(8), "cpu")) == (
        "device_put, device: expected a Sharding, or a PartitionSpec over the current mesh, got 'cpu' of type str.\n"
        "  Fix: pass NamedSharding(mesh, PartitionSpec(...))."
    )
    assert message(lambda: device_put({"w": values(8)}, donate=True, may_alias=True)) == (
        "device_put, x['w']: expected donate or may_alias, not both, got donate=True and may_alias=True.\n"
        "  Fix: set donate=False if x is used again, may_alias=None otherwise."
    )


# --- memories ---


@pytest.mark.parametrize("spec", [P(), P("x"), P("x", "y")])
def test_memory_kinds(mesh, spec):
    x = values(8, 4)
    near, far = NamedSharding(mesh, spec), NamedSharding(mesh, spec, memory_kind="pinned_host")
    for placed in [device_put(x, far), device_put(device_put(x, near), far)]:
        assert placed.sharding.memory_kind == "pinned_host"
        assert {piece.memory().kind if hasattr(piece, "memory") else "pinned_host" for piece in placed._buffer._arrays}
        assert is_placed(device_put(placed, near), x, near)
        other = NamedSharding(mesh, P("y"), memory_kind="unpinned_host")
        assert is_placed(device_put(placed, other), x, other)


# --- many devices, by hand ---


def test_replicated_and_sharded_stacks():
    devices = cpu()[2:5]
    copies = device_put_replicated({"a": values(2, 3), "b": 1.5}, devices)
    assert copies["a"].shape == (3, 2, 3) and copies["b"].shape == (3,)
    np.testing.assert_array_equal(np.asarray(copies["a"]), np.stack([values(2, 3)] * 3))
    assert [shard.device for shard in copies["a"].addressable_shards] == devices
    shards = [values(2) + i for i in range(3)]
    for given_shards in (shards, [device_put(x, d) for x, d in zip(shards, devices, strict=True)]):
        stack = device_put_sharded(given_shards, devices)
        np.testing.assert_array_equal(np.asarray(stack), np.stack(shards))
        assert [np.asarray(s.data).tolist() for s in stack.addressable_shards] == [[x.tolist()] for x in shards]
    assert message(lambda: device_put_sharded(shards, cpu()[:2])) == (
        "device_put_sharded, shards: expected one for each of the 2 devices, got 3.\n  Fix: pass a list of 2 shards, or fewer devices."
    )
    assert message(lambda: device_put_sharded([values(2), values(3)], cpu()[:2])) == (
        "device_put_sharded, shards[1]: expected an array like shards[0], f32[2], got f32[3].\n"
        "  Fix: reshape or convert shards[1] to f32[2]."
    )
    assert message(lambda: device_put_replicated(values(2), [])) == (
        "device_put_replicated: expected at least one device, got none.\n  Fix: pass phalanx.local_devices()."
    )


def test_device_get_transfers_a_tree_to_the_host(mesh):
    x = values(8, 4)
    tree = {"a": device_put(x, NamedSharding(mesh, P("x", "y"))), "b": (device_put(x), 2, None)}
    back = device_get(tree)
    assert type(back["a"]) is np.ndarray and type(back["b"][0]) is np.ndarray and back["b"][1] == 2
    np.testing.assert_array_equal(back["a"], x)


def test_live_arrays_lists_arrays_with_buffers(mesh):
    before = {x.unsafe_buffer_pointer() for x in live_arrays("cpu") if len(x.devices()) == 1}
    x, y = device_put(values(5, 7), cpu()[6]), device_put(values(8, 7), NamedSharding(mesh, P("x")))
    live = live_arrays("cpu")
    assert [z.shape for z in live if z.sharding is y.sharding and z.shape == (8, 7)] == [(8, 7)]
    mine = [z for z in live if len(z.devices()) == 1 and z.unsafe_buffer_pointer() not in before]
    assert [z.devices() for z in mine if z.shape == (5, 7)] == [{cpu()[6]}]
    x.delete()
    assert not [z for z in live_arrays("cpu") if z.shape == (5, 7) and z.devices() == {cpu()[6]}]
    assert copy_to_host_async([y, 3])[0] is y


def test_make_array_from_callback_assembles_shards(mesh):
    x = values(8, 4)
    asked = []

    def part(index):
        asked.append(index)
        return x[index]

    sharding = NamedSharding(mesh, P("x"))
    assert is_placed(make_array_from_callback((8, 4), sharding, part), x, sharding)
    assert len(asked) == 4  # once for each part, not for each replica
    far = sharding.with_memory_kind("pinned_host")
    assert make_array_from_callback((8, 4), far, part).sharding is far
    assert make_array_from_callback((8, 4), sharding, part, dtype=np.float32).dtype == np.float32
    assert message(lambda: make_array_from_callback((8, 4), sharding, lambda index: x)) == (
        "make_array_from_callback, data_callback: expected values of shape (2, 4) for (slice(0, 2, None), "
        "slice(None, None, None)), got shape (8, 4).\n"
        "  Fix: return array[index] for the index that data_callback receives."
    )
    assert message(lambda: make_array_from_callback((8, 4), sharding, part, dtype=np.int32)) == (
        "make_array_from_callback, data_callback: expected values of one dtype, i32, got f32.\n"
        "  Fix: convert the values that data_callback returns to i32."
    )
    assert message(lambda: make_array_from_callback((9, 4), sharding, lambda index: x[:2])).startswith(
        "make_array_from_callback, data_callback: expected values of shape (3, 4) for (slice(0, 3, None)"
    )


def test_make_array_from_single_device_arrays_assembles_shards(mesh):
    x = values(8, 4)
    sharding = NamedSharding(mesh, P("x", "y"))
    places = sharding.devices_indices_map(x.shape)
    pieces = [device_put(x[index], device) for device, index in places.items()]
    made = make_array_from_single_device_arrays(x.shape, sharding, pieces[::-1])
    assert is_placed(made, x, sharding)
    assert pointers(made) == [piece.unsafe_buffer_pointer() for piece in pieces]
    where = "make_array_from_single_device_arrays, arrays"
    assert message(lambda: make_array_from_single_device_arrays(x.shape, sharding, pieces[:2])) == (
        f"{where}: expected one array on each of the devices [0, 1, 2, 3, 4, 5, 6, 7], got arrays on [[0], [1]].\n"
        "  Fix: transfer each shard to its device with device_put(shard, device)."
    )
    assert message(lambda: make_array_from_single_device_arrays((8, 8), sharding, pieces)) == (
        f"{where}: expected shards of shape (2, 4), for an array of shape (8, 8) with {sharding}, got shape (2, 2) on "
        "device 0.\n  Fix: pass for each device the slice in sharding.devices_indices_map(shape)."
    )
    odd = [device_put(np.int32(x[index]), device) for device, index in list(places.items())[:1]] + pieces[1:]
    assert message(lambda: make_array_from_single_device_arrays(x.shape, sharding, odd)) == (
        f"{where}: expected shards of dtype i32, got f32 on device 1.\n  Fix: convert all shards to one dtype, such as i32."
    )


def test_make_array_from_process_local_data_assembles_slices(mesh):
    x = values(8, 4)
    sharding = NamedSharding(mesh, P("x", "y"))
    assert is_placed(make_array_from_process_local_data(sharding, x), x, sharding)
    assert is_placed(make_array_from_process_local_data(sharding, x, (8, None)), x, sharding)
    assert message(lambda: make_array_from_process_local_data(sharding, x, (16, 4))) == (
        "make_array_from_process_local_data, local_data: expected the slice of this process, of shape (16, 4), or the unsharded "
        "array, of shape (16, 4), got shape (8, 4).\n"
        "  Fix: pass the slice of shape (16, 4), or global_shape=(8, 4) if local_data is the unsharded array."
    )


def test_device_put_and_sharding_constraint_are_registered_primitives():
    for name in ("device_put", "sharding_constraint"):
        assert name in registry
    assert isinstance(device_put(1.0), Array)


def test_device_put_names_leaves_that_are_not_arrays_and_device_get_returns_them():
    with pytest.raises(TypeError) as error:
        phalanx.device_put({"a": jnp.ones(2), "b": [object, "text"]})
    assert str(error.value).startswith("device_put, x['b'][0]: expected an array or a scalar, got <class 'object'>")
    keys = phalanx.random.split(phalanx.random.key(0))
    assert phalanx.device_get(keys) is keys
    got = phalanx.device_get({"a": jnp.ones(2), "b": 3, "c": "text", "d": np.float32(2)})
    assert (type(got["a"]), got["b"], got["c"], got["d"]) == (np.ndarray, 3, "text", 2)


def test_make_array_from_process_local_data_accepts_trees():
    mesh = Mesh(np.array(phalanx.devices()[:8]), "d")
    data = {"a": np.ones((8, 2), np.float32), "b": np.arange(8)}
    got = phalanx.make_array_from_process_local_data(NamedSharding(mesh, P("d")), data)
    assert [x.sharding.spec for x in got.values()] == [P("d"), P("d")] and got["b"].tolist() == list(range(8))
    shardings = {"a": NamedSharding(mesh, P(None)), "b": NamedSharding(mesh, P("d"))}
    got = phalanx.make_array_from_process_local_data(shardings, data, {"a": (8, 2), "b": None})
    assert [x.sharding.spec for x in got.values()] == [P(None), P("d")]


def test_device_get_leaves_tracers_alone():
    assert float(phalanx.grad(lambda x: phalanx.device_get(x) * 2)(1.0)) == 2


def test_an_array_like_a_placed_struct_is_placed_alike():
    sharding = NamedSharding(auto_mesh((2,), ("x",)), P("x"))
    like = phalanx.ShapeDtypeStruct((4, 4), "float32", sharding=sharding)
    assert jnp.zeros_like(like).sharding is sharding


def test_copies_of_arrays_of_other_libraries_to_the_host_are_started_too():
    class Foreign:
        started = 0

        def copy_to_host_async(self):
            self.started += 1

    x = Foreign()
    assert phalanx.copy_to_host_async([1, x, "text"])[1] is x and x.started == 1
