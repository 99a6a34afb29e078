"""What is saved is loaded with equal bits: every dtype, every pair of meshes, random keys, Python values, references."""

import math

import numpy as np
import pytest
from phalanx.extend.random import define_prng_impl

import phalanx
import phalanx.numpy as jnp
from phalanx import checkpoint, random
from phalanx.checkpoint import saving
from phalanx.core import dtypes
from phalanx.errors import CheckpointError
from phalanx.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding

pytest.importorskip("tensorstore")

SHAPES = {"1": (1,), "8": (8,), "4x2": (4, 2), "2x2x2": (2, 2, 2)}


def mesh_of(name: str, axis_type=AxisType.Auto) -> Mesh:
    shape = SHAPES[name]
    devices = np.array(phalanx.devices()[: math.prod(shape)]).reshape(shape)
    return Mesh(devices, ("x", "y", "z")[: len(shape)], axis_types=(axis_type,) * len(shape))


def shardings(name: str, axis_type=AxisType.Auto) -> dict:
    """Shardings of arrays of rank 2 (split along both dimensions), of rank 1, and of a scalar."""
    mesh = mesh_of(name, axis_type)
    axes = mesh.axis_names
    rows = NamedSharding(mesh, P(axes))
    both = NamedSharding(mesh, P(axes[0], axes[1:] or None))
    placed = {"both": both, "rows": rows, "keys": rows, "scalar": NamedSharding(mesh, P())}
    return placed if axis_type is AxisType.Explicit else placed | {"uneven": both, "uneven_keys": rows}


def tree_on(name: str, axis_type=AxisType.Auto) -> dict:
    placed = shardings(name, axis_type)
    values = {
        "both": np.arange(8 * 24, dtype=np.float32).reshape(8, 24),
        "rows": np.arange(16, dtype=np.int16),
        "keys": random.split(random.key(3), 8),
        "scalar": np.float32(2.5),
        "uneven": np.arange(10 * 7, dtype=np.float32).reshape(10, 7),
        "uneven_keys": random.split(random.key(4), 5),
    }
    return {key: phalanx.device_put(values[key], sharding) for key, sharding in placed.items()}


def as_words(x):
    return np.asarray(random.key_data(x) if dtypes.issubdtype(x.dtype, dtypes.prng_key) else x)


def assert_equal(got: dict, want: dict) -> None:
    assert got.keys() == want.keys()
    for key in want:
        assert got[key].dtype == want[key].dtype
        np.testing.assert_array_equal(as_words(got[key]), as_words(want[key]))


@pytest.mark.parametrize("target", SHAPES)
@pytest.mark.parametrize("source", SHAPES)
def test_a_tree_saved_on_one_mesh_is_loaded_on_another(source, target, tmp_path):
    tree, like = tree_on(source), tree_on(target)
    checkpoint.save(tmp_path, tree, wait=True)
    abstract = phalanx.tree.map(lambda x: phalanx.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), like)
    loaded = checkpoint.load(tmp_path, abstract)
    assert_equal(loaded, tree)
    assert {key: x.sharding for key, x in loaded.items()} == shardings(target)
    by_argument = checkpoint.load(tmp_path, shardings=shardings(target))
    assert_equal(by_argument, tree)
    assert by_argument["keys"].sharding == shardings(target)["keys"]


def test_keys_over_explicit_axes_keep_their_sharding(tmp_path):
    tree = tree_on("4x2", AxisType.Explicit)
    checkpoint.save(tmp_path, tree, wait=True)
    loaded = checkpoint.load(tmp_path, tree)
    assert_equal(loaded, tree)
    assert loaded["keys"].sharding == tree["keys"].sharding


def test_every_dtype_goes_from_any_mesh_to_any_other(tmp_path):
    host = {dtype.name: np.arange(64).reshape(8, 8).astype(np.bool_).astype(dtype) for dtype in dtypes.supported}
    with phalanx.enable_x64(True):
        tree = {name: phalanx.device_put(host, shardings(name)["both"]) for name in SHAPES}
        checkpoint.save(tmp_path, tree, wait=True)
        for target in SHAPES:
            loaded = checkpoint.load(tmp_path, shardings=shardings(target)["both"])
            for source in SHAPES:
                assert loaded[source].keys() == host.keys()
                for name, x in loaded[source].items():
                    assert x.dtype == host[name].dtype and np.asarray(x).tobytes() == host[name].tobytes()


@pytest.mark.parametrize("name", sorted(dtype.name for dtype in dtypes.supported))
def test_every_dtype_has_equal_bits(name, tmp_path):
    dtype = next(d for d in dtypes.supported if d.name == name)
    host = np.random.default_rng(0).integers(0, 2, (6, 5)).astype(dtype)
    with phalanx.enable_x64(dtype.itemsize >= 8):
        tree = {"host": host, "device": jnp.asarray(host)}
        checkpoint.save(tmp_path, tree, wait=True)
        loaded = checkpoint.load(tmp_path, tree)
        assert loaded["host"].dtype == loaded["device"].dtype == dtype
        assert loaded["host"].tobytes() == host.tobytes() == np.asarray(loaded["device"]).tobytes()
        assert checkpoint.load(tmp_path)["device"].tobytes() == host.tobytes()


def test_special_floats_keep_their_bits(tmp_path):
    bits = np.array([0x7FC00001, 0xFFC12345, 0x80000000, 0x7F800000, 0x00000001], np.uint32)
    checkpoint.save(tmp_path, bits.view(np.float32), wait=True)
    np.testing.assert_array_equal(checkpoint.load(tmp_path).view(np.uint32), bits)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_random_keys_draw_the_same_numbers_afterwards(impl, shape, tmp_path):
    keys = random.key(5, impl=impl)
    keys = random.split(keys, shape) if shape else keys
    checkpoint.save(tmp_path, {"typed": keys, "raw": random.key_data(keys)}, wait=True)
    for loaded in (checkpoint.load(tmp_path), checkpoint.load(tmp_path, {"typed": keys, "raw": keys_data(keys)})):
        assert loaded["typed"].dtype == keys.dtype and loaded["typed"].shape == shape
        np.testing.assert_array_equal(random.key_data(loaded["typed"]), random.key_data(keys))
        np.testing.assert_array_equal(loaded["raw"], random.key_data(keys))


def test_keys_of_a_generator_of_the_user_need_it_in_like(tmp_path):
    counter = define_prng_impl(
        key_shape=(1,),
        seed=lambda seed: jnp.uint32(seed)[None],
        split=lambda key, shape: key + jnp.arange(math.prod(shape), dtype="uint32").reshape(*shape, 1),
        random_bits=lambda key, width, shape: jnp.full(shape, key[0], f"uint{width}"),
        fold_in=lambda key, data: key + data,
        name="counter",
    )
    checkpoint.save(tmp_path, {"keys": random.split(random.key(7, impl=counter), 4), "n": 1}, wait=True)
    rows = NamedSharding(mesh_of("2x2x2"), P("x"))
    like = {"keys": random.split(random.key(0, impl=counter), 4), "n": 0}
    for shardings in (None, {"keys": rows}):
        keys = checkpoint.load(tmp_path, like, shardings=shardings)["keys"]
        assert keys.dtype == like["keys"].dtype and random.bits(keys[2], (2,)).tolist() == [9, 9]
    alone = checkpoint.load(tmp_path)
    assert alone["n"] == 1 and random.key_data(alone["keys"]).tolist() == [[7], [8], [9], [10]]
    with pytest.raises(CheckpointError) as caught:
        random.bits(alone["keys"][0])
    assert str(caught.value) == (
        f"checkpoint.load, '{tmp_path / '0' / 'tree.json'}', leaf 'keys': expected keys of the generator 'counter' in like, "
        "got none, so that their words alone are known.\n"
        "  Fix: pass like=... with a key that random.key(0, impl=generator) makes."
    )


def keys_data(keys):
    return jnp.zeros_like(random.key_data(keys))


def test_python_values_containers_and_empty_arrays(tmp_path):
    tree = {
        "numbers": [True, 3, -(10**30), 0.1, 1e300, 2 - 3j],
        "text": ("a/b ~ \n", b"\x00\xff"),
        "nothing": None,
        "empty": [np.zeros((0, 3), np.int8), {}, ()],
        "a/b": {"~": {7: 1, 5: 2}},
    }
    checkpoint.save(tmp_path, tree, wait=True)
    loaded = checkpoint.load(tmp_path)
    empty = loaded["empty"][0]
    assert empty.shape == (0, 3) and empty.dtype == np.int8
    loaded["empty"][0] = tree["empty"][0]
    assert loaded == tree and type(loaded["text"]) is tuple and type(loaded["numbers"][0]) is bool
    assert checkpoint.load(tmp_path, tree)["numbers"] == tree["numbers"]


def test_floats_that_json_does_not_have(tmp_path):
    checkpoint.save(tmp_path, [math.inf, -math.inf, math.nan], wait=True)
    infinite, negative, nan = checkpoint.load(tmp_path)
    assert (infinite, negative) == (math.inf, -math.inf) and math.isnan(nan)


def test_a_reference_is_updated_in_place(tmp_path):
    ref = phalanx.new_ref(jnp.arange(3.0))
    checkpoint.save(tmp_path, {"state": ref}, wait=True)
    ref[...] = jnp.zeros(3)
    loaded = checkpoint.load(tmp_path, {"state": ref})
    assert loaded["state"] is ref and ref[...].tolist() == [0.0, 1.0, 2.0]
    np.testing.assert_array_equal(checkpoint.load(tmp_path)["state"], np.arange(3.0))


def test_arrays_may_be_donated_and_changed_while_they_are_saved(tmp_path):
    step = phalanx.jit(lambda x: x + 1, donate_argnums=0)
    x, host = jnp.zeros(200_000), np.zeros(1000)
    saving = checkpoint.save(tmp_path, {"x": x, "host": host}, step=0)
    for _ in range(4):
        x = step(x)
    host[:] = 7
    saving.result()
    loaded = checkpoint.load(tmp_path)
    assert not loaded["x"].any() and not loaded["host"].any() and x[0] == 4


def test_arrays_on_cpu_devices_are_not_copied_before_save_returns(tmp_path):
    tree = tree_on("4x2") | {"made": phalanx.jit(lambda: jnp.ones(1000))()}
    leaves, _ = saving.flatten_named(tree, "")
    pieces = saving._take_pieces(leaves, {leaf.name: saving.describe_leaf(leaf, "") for leaf in leaves})
    for piece in pieces:
        shards = [s for s in tree[piece.name].addressable_shards if s.replica_id == 0]
        if piece.name in ("both", "rows", "scalar"):  # The words of keys are a new array, uneven shards are cut off.
            addresses = [elements.ctypes.data for _, elements in piece.parts]
            assert addresses == [shard.data.unsafe_buffer_pointer() for shard in shards]


def test_a_dtype_is_converted_on_loading(tmp_path):
    checkpoint.save(tmp_path, {"w": jnp.array([1.5, 2.25]), "n": np.array([1, 200], np.int32)}, wait=True)
    like = {"w": phalanx.ShapeDtypeStruct((2,), jnp.bfloat16), "n": np.zeros(2, np.uint8)}
    loaded = checkpoint.load(tmp_path, like)
    assert loaded["w"].dtype == jnp.bfloat16 and loaded["w"].astype(float).tolist() == [1.5, 2.25]
    assert loaded["n"].dtype == np.uint8 and loaded["n"].tolist() == [1, 200]


def test_like_determines_where_an_array_goes(tmp_path):
    checkpoint.save(tmp_path, jnp.arange(4.0), wait=True)
    free, last = jnp.zeros(4), phalanx.devices()[-1]
    assert not checkpoint.load(tmp_path, free).committed
    there = checkpoint.load(tmp_path, phalanx.device_put(free, last))
    assert there.committed and there.devices() == {last}
    assert checkpoint.load(tmp_path, free, shardings=SingleDeviceSharding(last)).devices() == {last}
    assert type(checkpoint.load(tmp_path, np.zeros(4, np.float32))) is np.ndarray


def test_a_weakly_typed_array_stays_one(tmp_path):
    weak = phalanx.jit(lambda x: x * 2)(1.5)
    checkpoint.save(tmp_path, weak, wait=True)
    loaded = checkpoint.load(tmp_path, phalanx.jit(lambda x: x)(0.0))
    assert weak.weak_type and loaded.weak_type and loaded == 3.0
    assert (loaded * jnp.ones(2, jnp.bfloat16)).dtype == jnp.bfloat16


def test_a_large_shard_is_stored_in_chunks_that_divide_it(tmp_path):
    from phalanx.checkpoint.leaf_records import choose_chunk

    assert choose_chunk((4, 6), 4) == (4, 6)
    assert choose_chunk((4096, 16384), 4) == (1024, 16384)
    assert choose_chunk((3, 64 << 20), 1) == (1, 64 << 20)
    assert choose_chunk((2, 96 << 20), 1) == (1, 48 << 20)
    assert choose_chunk((7919, 65536), 4) == (7919, 65536)  # a prime number of rows of 256 kB
    assert choose_chunk((), 4) == ()


def test_metadata_describes_a_checkpoint_without_reading_arrays(tmp_path):
    tree = tree_on("4x2") | {"lr": 0.1}
    checkpoint.save(tmp_path, tree, step=12, metadata={"loss": 0.25}, wait=True)
    for data in (tmp_path / "12").rglob("d/*"):
        data.unlink()
    found = checkpoint.metadata(tmp_path)
    assert found.step == 12 and found.user == {"loss": 0.25}
    both = found.leaves["both"]
    assert both.shape == (8, 24) and both.dtype == np.float32 and both.nbytes == 8 * 24 * 4
    assert dict(both.sharding.mesh.shape) == {"x": 4, "y": 2} and both.sharding.spec == P("x", "y")
    assert found.leaves["keys"].dtype == tree["keys"].dtype
    assert found.leaves["lr"].dtype is float and found.leaves["lr"].value == 0.1


def test_the_package_is_also_jax_name_of_remat():
    assert phalanx.checkpoint is checkpoint
    assert phalanx.grad(phalanx.checkpoint(jnp.sin))(0.0) == 1.0
