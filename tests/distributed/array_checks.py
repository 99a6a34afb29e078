"""Checks of arrays and programs over the devices of several processes; each public function runs in all of them.

Values are compared with NumPy or with the same program on one local device.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
from phalanx.experimental import multihost_utils

import phalanx
import phalanx.numpy as jnp
from phalanx import export, lax, nnx, optim
from phalanx.core.config import debug_compare_host_values
from phalanx.engine import interruptible_wait
from phalanx.sharding import Mesh, NamedSharding, P

DEVICES = phalanx.devices()
N = len(DEVICES)
MESH = Mesh(np.array(DEVICES), ("x",))
MESH2 = Mesh(np.array(DEVICES).reshape(N // 2, 2), ("a", "b"))
X, R, AB = NamedSharding(MESH, P("x")), NamedSharding(MESH, P()), NamedSharding(MESH2, P("a", "b"))
A = np.arange(64, dtype=np.float32).reshape(8, 8)
B = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
OWN = phalanx.process_index()


def _put(value, sharding=X):
    return phalanx.make_array_from_callback(value.shape, sharding, lambda index: value[index])


def _same(x, truth):
    truth = np.asarray(truth)
    assert x.shape == truth.shape, (x.shape, truth.shape)
    for shard in x.addressable_shards:
        found = np.asarray(shard.data).astype(truth.dtype)
        np.testing.assert_allclose(found, truth[shard.index], rtol=1e-3, atol=1e-3)


def _shard_map(f, ins, outs, mesh=MESH):
    return phalanx.jit(phalanx.shard_map(f, mesh=mesh, in_specs=ins, out_specs=outs))


def devices_of_all_processes():
    assert phalanx.process_count() > 1 and phalanx.device_count() == N == 8
    assert [d.process_index for d in DEVICES] == sorted(d.process_index for d in DEVICES)
    assert phalanx.local_devices() == [d for d in DEVICES if d.process_index == OWN]
    assert phalanx.distributed.is_initialized()
    assert MESH.local_mesh.devices.tolist() == phalanx.local_devices()
    assert MESH2.local_mesh.shape == {"a": N // 2 // phalanx.process_count(), "b": 2}


# Values become arrays


def host_values_are_put_on_global_shardings():
    _same(phalanx.device_put(A, X), A)
    _same(phalanx.device_put(A, R), A)
    _same(phalanx.device_put(3.0, R), 3.0)
    _same(phalanx.device_put(A, AB), A)


def uncommitted_arrays_are_put_on_global_shardings():
    _same(phalanx.device_put(jnp.asarray(A), X), A)
    _same(phalanx.device_put(jnp.asarray(A), R), A)
    _same(jnp.zeros((8, 8), device=X), 0 * A)
    keys = phalanx.device_put(phalanx.random.split(phalanx.random.key(0), 8), X)
    words = np.asarray(phalanx.random.key_data(phalanx.random.split(phalanx.random.key(0), 8)))
    _same(phalanx.random.key_data(keys), words)


def arrays_are_made_from_local_data():
    rows = 8 // phalanx.process_count()
    _same(phalanx.make_array_from_process_local_data(X, A[OWN * rows : (OWN + 1) * rows]), A)
    size = 8 // N
    pieces = [
        phalanx.device_put(A[i * size : (i + 1) * size], d) for i, d in enumerate(DEVICES) if d.process_index == OWN
    ]
    _same(phalanx.make_array_from_single_device_arrays((8, 8), X, pieces), A)


def sizes_of_uneven_local_data_are_added_up():
    for n in (11, 3):  # over 8 devices: a short last shard, and empty ones
        rows = np.arange(3.0 * n, dtype=np.float32).reshape(n, 3)
        size = -(-n // 8) * 8 // phalanx.process_count()
        for shape in (None, (None, 3), (n, None)):
            _same(phalanx.make_array_from_process_local_data(X, rows[OWN * size : (OWN + 1) * size], shape), rows)


def constants_and_local_arrays_join_global_ones():
    row, table = jnp.ones(8), jnp.asarray(np.ones((64, 8), np.float32))
    _same(phalanx.jit(lambda x: x + row + table[:8])(_put(A)), A + 2)
    _same(_put(A) + jnp.ones(8), A + 1)
    _same(_put(A) + 1.0, A + 1)
    _same(_put(A) + _put(B), A + B)


def jit_takes_host_values_only_under_trivial_shardings():
    _same(phalanx.jit(lambda x, y: x + y, out_shardings=X)(_put(A), np.float32(1)), A + 1)
    _same(phalanx.jit(lambda x: x + 1, in_shardings=R, out_shardings=X)(A), A + 1)
    _same(phalanx.jit(lambda x: x + 1, in_shardings=X, out_shardings=X)(jnp.asarray(A)), A + 1)
    compiled = phalanx.jit(lambda x: x + 1, in_shardings=X).lower(phalanx.ShapeDtypeStruct(A.shape, A.dtype)).compile()
    for _ in range(3):
        with pytest.raises(
            phalanx.errors.ShardingError, match="^call of compiled <lambda>, argument x: .*a NumPy array"
        ):
            compiled(A)
    with pytest.raises(phalanx.errors.ShardingError) as caught:
        phalanx.jit(lambda x: x + 1, in_shardings=X)(A)
    assert str(caught.value) == (
        "<lambda>, argument x: expected an array, since its sharding splits it over the devices of several processes, "
        "got a NumPy array.\n"
        "  Fix: make the array with phalanx.device_put (from the whole value), make_array_from_process_local_data (from "
        "the part of this process) or make_array_from_callback."
    )


# Programs


def matrix_products_and_gradients():
    f = phalanx.jit(phalanx.value_and_grad(lambda w, x: jnp.tanh(x @ w).sum()))
    value, gradient = f(_put(B, NamedSharding(MESH2, P(None, "b"))), _put(A, NamedSharding(MESH2, P("a"))))
    truth = np.tanh(A @ B)
    _same(value, truth.sum())
    _same(gradient, A.T @ (1 - truth**2))


def control_flow():
    f = phalanx.jit(lambda x: lax.scan(lambda c, _: (jnp.sin(c @ c.T @ c), None), x, None, length=3)[0])
    g = phalanx.jit(lambda x: lax.while_loop(lambda c: c.sum() < 1e4, lambda c: c * 2, x))
    truth, doubled = B, A
    for _ in range(3):
        truth = np.sin(truth @ truth.T @ truth)
    while doubled.sum() < 1e4:
        doubled = doubled * 2
    _same(f(_put(B)), truth)
    _same(g(_put(A)), doubled)


def sorting_transforms_and_linear_algebra():
    stack = np.stack([np.eye(3, dtype=np.float32) * (i + 1) for i in range(8)])
    _same(phalanx.jit(lambda x: jnp.sort(x, 0))(_put(B[::-1].copy())), np.sort(B, 0))
    _same(phalanx.jit(lambda x: jnp.abs(jnp.fft.fft(x)))(_put(B)), np.abs(np.fft.fft(B)))
    _same(phalanx.jit(jnp.linalg.inv)(_put(stack)), np.linalg.inv(stack))
    _same(phalanx.jit(lambda x: jnp.argmax(x, 0))(_put(B)), np.argmax(B, 0))


def random_numbers_are_those_of_one_process():
    key, truth = phalanx.random.key(0), phalanx.random.normal(phalanx.random.key(0), (16, 8))
    _same(phalanx.jit(lambda k: phalanx.random.normal(k, (16, 8)), out_shardings=X)(key), truth)
    draw = phalanx.vmap(lambda k: phalanx.random.uniform(k, (4,)))
    keys = phalanx.jit(lambda k: phalanx.random.split(k, 8), out_shardings=X)(key)
    _same(phalanx.jit(draw)(keys), draw(phalanx.random.split(key, 8)))


def donation():
    x = _put(A)
    _same(phalanx.jit(lambda x: x + 1, donate_argnums=0)(x), A + 1)
    assert x.is_deleted()


def sharding_constraints_and_explicit_axes():
    def f(x):
        y = jnp.cos(lax.with_sharding_constraint(x, AB))
        return lax.with_sharding_constraint(y, NamedSharding(MESH2, P("b", "a")))

    _same(phalanx.jit(f)(_put(A, NamedSharding(MESH2, P("a")))), np.cos(A))
    mesh = phalanx.make_mesh((N,), ("x",), axis_types=(phalanx.sharding.AxisType.Explicit,))
    with phalanx.set_mesh(mesh):
        x = phalanx.device_put(A, NamedSharding(mesh, P("x")))
        assert str(phalanx.typeof(jnp.sin(x) + 1)) == "float32[8@x,8]"
        _same(jnp.sin(x) + 1, np.sin(A) + 1)


def compiled_stages_and_export():
    compiled = phalanx.jit(lambda x: x @ x.T).lower(_put(A)).compile()
    assert compiled.as_text() and compiled.cost_analysis()
    _same(compiled(_put(A)), A @ A.T)
    exported = export.export(phalanx.jit(lambda x: jnp.sin(x).sum(), in_shardings=X))(
        phalanx.ShapeDtypeStruct((8, 8), np.float32)
    )
    loaded = export.deserialize(exported.serialize())
    _same(phalanx.jit(loaded.call)(_put(A)), np.sin(A).sum())


def training_of_a_module():
    def train(place):
        model = nnx.Linear(8, 4, rngs=nnx.Rngs(0))
        optimizer = nnx.Optimizer(model, optim.adam(0.1), wrt=nnx.Param)

        @nnx.jit
        def step(model, optimizer, x):
            loss, gradients = nnx.value_and_grad(lambda m: (m(x) ** 2).mean())(model)
            optimizer.update(model, gradients)
            return loss

        return [float(step(model, optimizer, place(B))) for _ in range(4)]

    np.testing.assert_allclose(train(_put), train(jnp.asarray), rtol=1e-4)


# Collectives


def collectives_over_all_devices():
    blocks = A.reshape(N, -1, 8)
    _same(_shard_map(lambda x: lax.psum(x, "x"), P("x"), P())(_put(A)), blocks.sum(0))
    _same(_shard_map(lambda x: lax.pmax(x, "x") - lax.pmin(x, "x"), P("x"), P())(_put(A)), np.ptp(blocks, axis=0))
    gather = lambda x: lax.all_gather(x, "x", tiled=True)
    _same(_shard_map(gather, P("x"), P("x"))(_put(A)), np.concatenate([A] * N))
    turn = lambda x: lax.ppermute(x, "x", [(i, (i + 1) % N) for i in range(N)])
    _same(_shard_map(turn, P("x"), P("x"))(_put(A)), np.roll(A, 8 // N, 0))
    swap = lambda x: lax.all_to_all(x, "x", 1, 0, tiled=True)
    _same(
        _shard_map(swap, P("x"), P("x"))(_put(A)), A.reshape(N, 8 // N, N, 8 // N).transpose(2, 0, 1, 3).reshape(-1, 1)
    )
    scatter = lambda x: lax.psum_scatter(x, "x", scatter_dimension=1, tiled=True)
    _same(_shard_map(scatter, P("x"), P(None, "x"))(_put(A)), blocks.sum(0))
    number = lambda x: x * 0 + lax.axis_index("x")
    _same(_shard_map(number, P("x"), P("x"))(_put(A)), np.repeat(np.arange(N), 8 // N)[:, None] + 0 * A)


def collectives_over_groups_within_and_across_processes():
    rows = _put(A, NamedSharding(MESH2, P(("a", "b"))))
    grid = A.reshape(N // 2, 2, -1, 8)
    for axis, out, dim in (("b", P("a"), 1), ("a", P("b"), 0)):
        f = _shard_map(lambda x: lax.psum(x, axis), P(("a", "b")), out, MESH2)  # noqa: B023
        _same(f(rows), grid.sum(dim).reshape(-1, 8))


def gradients_through_collectives():
    f = _shard_map(lambda w, x: lax.psum(jnp.tanh(x @ w).sum(), "x"), (P(), P("x")), P())
    _same(phalanx.jit(phalanx.grad(f))(phalanx.device_put(B, R), _put(A)), A.T @ (1 - np.tanh(A @ B) ** 2))


def collectives_of_every_dtype():
    for dtype in (jnp.bfloat16, np.int8, np.complex64, jnp.float8_e4m3fn):
        ones = np.ones((8, 4), dtype)
        _same(_shard_map(lambda x: lax.psum(x, "x"), P("x"), P())(_put(ones)), ones.astype(np.complex64)[:1] * N)
    for dtype in (np.bool_, jnp.int4):
        ones = np.ones((8, 4), dtype)
        _same(phalanx.jit(lambda x: x, out_shardings=R)(_put(ones)), ones.astype(np.float32))


# Arrays are moved and read


def resharding():
    for source, target in ((X, R), (X, NamedSharding(MESH, P(None, "x"))), (AB, NamedSharding(MESH2, P("b", "a")))):
        _same(phalanx.device_put(_put(A, source), target), A)
    np.testing.assert_array_equal(np.asarray(phalanx.device_put(_put(A), R)), A)
    backwards = NamedSharding(Mesh(np.array(DEVICES)[::-1], ("x",)), P("x"))
    _same(phalanx.device_put(_put(A), backwards), A)


def a_mesh_over_some_processes():
    first = [d for d in DEVICES if d.process_index == 0]
    sharding = NamedSharding(Mesh(np.array(first), ("x",)), P("x"))
    x = phalanx.make_array_from_callback(A.shape, sharding, lambda index: A[index], A.dtype)
    if OWN > 0:
        with pytest.raises(phalanx.errors.DTypeError, match="expected a dtype, since this process has no shard"):
            _put(A, sharding)
        whole = phalanx.make_array_from_callback((2,), NamedSharding(sharding.mesh, P()), lambda _: A[0, :2], A.dtype)
        with pytest.raises(
            phalanx.errors.ArgumentError, match="expected an array whose shards are all on this process"
        ):
            np.asarray(whole)
    if OWN == 0:
        assert float(phalanx.jit(jnp.sum)(x)) == A.sum()


def arrays_do_not_move_between_processes():
    ours = phalanx.device_put(A, phalanx.local_devices()[0])
    theirs = next(d for d in DEVICES if d.process_index != OWN)
    for x, target in ((_put(A), phalanx.local_devices()[0]), (ours, theirs)):
        with pytest.raises(phalanx.errors.ShardingError, match="devices of other processes"):
            phalanx.device_put(x, target)


def indexing_gives_all_processes_the_same_program():
    x = _put(A)
    _same(x[3], A[3])
    np.testing.assert_array_equal(np.asarray(x[3]), A[3])
    _same(x[0 : 8 // N], A[0 : 8 // N])
    _same(x[1:7], A[1:7])
    _same(x[:, ::2], A[:, ::2])
    changed = A.copy()
    changed[2] = 5
    _same(x.at[2].set(5.0), changed)
    for found, truth in zip(x, A, strict=True):
        _same(found, truth)


def copies():
    _same(_put(A).copy(), A)
    _same(copy.copy(_put(A)), A)
    _same(copy.deepcopy(phalanx.device_put(A, R)), A)


def arrays_on_a_device_of_another_process():
    mesh = Mesh(np.array(DEVICES[:1]), ("x",))
    x = phalanx.device_put(A, NamedSharding(mesh, P("x")))
    results = [x * 2, phalanx.jit(jnp.sin)(x), x[0], x.copy()]
    if OWN == 0:
        _same(results[0], A * 2)
        return
    assert not any(y.addressable_shards for y in results)
    assert repr(x) == str(x) == f"Array(f32[8,8], sharding={NamedSharding(mesh, P('x'))})"
    with pytest.raises(phalanx.errors.ArgumentError, match=r"process_allgather, or read x\.addressable_shards"):
        np.asarray(x)


def reading_and_printing():
    total = _put(A).sum()
    assert float(total) == A.sum() and total.is_fully_replicated and repr(total) == "Array(2016., dtype=float32)"
    assert str(total) == "2016.0" and f"{total:.1f}" == "2016.0" and bool(total > 3)
    assert repr(_put(A)).startswith("Array(f32[8,8], sharding=NamedSharding(")
    assert str(_put(A)) == f"{_put(A)}" == repr(_put(A))
    assert "[8., 9.]" in repr(phalanx.device_put(A[:2, :2], R))
    for read in (np.asarray, phalanx.device_get, lambda x: x.tolist()):
        with pytest.raises(phalanx.errors.ArgumentError, match=r"process_allgather, or read x\.addressable_shards"):
            read(_put(A))
    _put(A).copy_to_host_async()
    assert [s.data is None for s in _put(A).global_shards].count(False) == len(phalanx.local_devices())


def empty_arrays():
    y = phalanx.jit(lambda x: x[:, :0], out_shardings=X)(_put(A))
    assert y.shape == (8, 0) and all(s.data.shape == (8 // N, 0) for s in y.addressable_shards)


# Tools


def nans_are_found():
    with phalanx.debug_nans(True):
        _same(phalanx.jit(lambda x: x + 1)(_put(A)) + 1.0, A + 2)
        with pytest.raises(FloatingPointError, match="nan"):
            jnp.log(_put(A - 1e3))
        last = _put(np.where(np.arange(8)[:, None] == 7, -1, A))  # a shard of one process only
        for f in (jnp.log, phalanx.jit(lambda x: jnp.log(x) * 2)):
            for x in last, _put(-A[:5]):  # uneven, with empty shards
                with pytest.raises(FloatingPointError, match=r"^invalid value \(nan\) encountered in log$"):
                    f(x)
        _same(_put(A[:5]) / 2, A[:5] / 2)


def callbacks_run_on_one_process():
    y = phalanx.jit(lambda x: phalanx.pure_callback(lambda v: np.asarray(v) * 2, phalanx.typeof(x), x))(_put(A))
    _same(y, A * 2)
    seen = []
    f = phalanx.jit(lambda x: (phalanx.debug.callback(lambda v: seen.append(float(v)), x.sum()), x + 1)[1])
    f(_put(A)).block_until_ready()
    phalanx.effects_barrier()
    assert seen == ([A.sum()] if OWN == 0 else [])


def eager_callbacks_run_on_one_process():
    seen = []
    phalanx.debug.callback(lambda v: seen.append(v.tolist()), _put(A))
    assert seen == ([A.tolist()] if OWN == 0 else [])
    double = lambda v: np.asarray(v) * 2 + OWN
    _same(phalanx.pure_callback(double, phalanx.typeof(_put(A)), _put(A)), A * 2)
    _same(phalanx.pure_callback(double, phalanx.ShapeDtypeStruct((), np.float32), _put(A).sum()), A.sum() * 2)


def callbacks_in_shard_map_see_the_devices_of_their_process():
    seen = []

    def f(x):
        phalanx.debug.callback(lambda i: seen.append(int(i)), lax.axis_index("x"))
        return x

    _shard_map(f, P("x"), P("x"))(_put(A)).block_until_ready()
    phalanx.effects_barrier()
    assert sorted(seen) == [i for i, d in enumerate(DEVICES) if d.process_index == OWN]


def pmap_needs_local_devices():
    local = phalanx.local_devices()
    sums = phalanx.pmap(lambda x: lax.psum(x, "i"), axis_name="i", devices=local)(np.arange(len(local)))
    assert sums.tolist() == [sum(range(len(local)))] * len(local)
    with pytest.raises(phalanx.errors.ShardingError) as caught:
        phalanx.pmap(lambda x: lax.psum(x, "i"), axis_name="i")(np.arange(len(local)))
    assert str(caught.value).partition(", argument devices: ")[2] == (
        "expected the devices to map over, since the program has several processes, got none.\n"
        "  Fix: pass devices=phalanx.local_devices(), or use shard_map over a mesh of all devices."
    )


def sharding_pictures_and_checks():
    phalanx.debug.visualize_array_sharding(_put(A))
    phalanx.debug.visualize_array_sharding(_put(A, AB))


# Operations on host values that all processes take part in


def values_of_all_processes_are_gathered():
    count = phalanx.process_count()
    ours = {
        "a": np.array([1.5, OWN]),
        "n": 2**40 + OWN,
        "b": np.array([OWN == 0]),
        "h": np.full((2,), OWN, jnp.bfloat16),
    }
    stacked = multihost_utils.process_allgather(ours)
    assert stacked["n"].tolist() == [2**40 + i for i in range(count)]
    assert stacked["a"].tolist() == [[1.5, i] for i in range(count)]
    assert stacked["b"].tolist() == [[i == 0] for i in range(count)]
    assert stacked["h"].dtype == jnp.bfloat16
    joined = multihost_utils.process_allgather(ours, tiled=True)
    assert joined["a"].tolist() == [1.5, 0] + [x for i in range(1, count) for x in (1.5, i)]
    assert joined["n"].shape == (count,)
    np.testing.assert_array_equal(multihost_utils.process_allgather(_put(A), tiled=True), A)
    with pytest.raises(phalanx.errors.ShardingError, match="pass tiled=True"):
        multihost_utils.process_allgather(_put(A))
    with pytest.raises(phalanx.errors.ShapeError, match=r"float64\[1\]( in process 0|\.$)?"):
        multihost_utils.process_allgather(np.ones(OWN + 1))


def random_keys_are_gathered_broadcast_and_compared():
    keys = [phalanx.random.split(phalanx.random.key(process), 3) for process in range(phalanx.process_count())]
    words = [np.asarray(phalanx.random.key_data(each)) for each in keys]
    ours = {"keys": keys[OWN], "one": keys[OWN][0]}
    for tiled, join in ((False, np.stack), (True, np.concatenate)):
        found = multihost_utils.process_allgather(ours, tiled=tiled)
        assert found["keys"].dtype == keys[0].dtype
        np.testing.assert_array_equal(phalanx.random.key_data(found["keys"]), join(words))
        np.testing.assert_array_equal(phalanx.random.key_data(found["one"]), np.stack([w[0] for w in words]))
    split = phalanx.random.split(phalanx.random.key(0), 8)
    gathered = multihost_utils.process_allgather(phalanx.device_put(split, X), tiled=True)
    np.testing.assert_array_equal(phalanx.random.key_data(gathered), phalanx.random.key_data(split))
    np.testing.assert_array_equal(phalanx.random.uniform(gathered[3], (2,)), phalanx.random.uniform(split[3], (2,)))
    first = multihost_utils.broadcast_one_to_all(ours)["keys"]
    np.testing.assert_array_equal(phalanx.random.key_data(first), words[0])
    multihost_utils.assert_equal(split)
    with pytest.raises(
        phalanx.errors.ProcessesDifferError, match=r"as in process \d, got .* of uint32\[3, 2\] in process"
    ):
        multihost_utils.assert_equal(ours["keys"])
    with pytest.raises(phalanx.errors.ShapeError, match=r"key<\w+>\[\]"):
        multihost_utils.process_allgather(phalanx.random.key(0, impl="rbg" if OWN == 0 else "unsafe_rbg"))


def values_of_one_process_are_broadcast():
    ours = {"seed": 2**40 + OWN, "x": jnp.full((3,), OWN)}
    out = multihost_utils.broadcast_one_to_all(ours)
    assert int(out["seed"]) == 2**40 and out["x"].tolist() == [0, 0, 0]
    last = phalanx.process_count() - 1
    assert int(multihost_utils.broadcast_one_to_all(OWN, is_source=OWN == last)) == last
    with pytest.raises(phalanx.errors.ArgumentTypeError, match="got True in processes 0, 1"):
        multihost_utils.broadcast_one_to_all(OWN, is_source=True)


def pytrees_that_differ_between_processes_are_not_gathered():
    ours = {"a": 1, "b": 2} if OWN == 0 else {"a": 1, "c": 2}
    mine, theirs = (
        ("['b']", "['c'] of int64[] in process 1") if OWN == 0 else ("['c']", "['b'] of int64[] in process 0")
    )
    for name in ("process_allgather", "broadcast_one_to_all"):
        with pytest.raises(phalanx.errors.ShapeError) as caught:
            getattr(multihost_utils, name)(ours)
        assert str(caught.value) == (
            f"{name}: expected pytrees of the same structure, shapes and dtypes in all processes, here {mine} of int64[], "
            f"got {theirs}.\n  Fix: pad the values to one shape, and give the pytrees the same leaves."
        )


def processes_wait_for_each_other_at_the_same_place():
    multihost_utils.sync_global_devices("here")
    with pytest.raises(phalanx.errors.ProgramMismatchError) as caught:
        multihost_utils.sync_global_devices("first" if OWN == 0 else "other")
    other = 1 if OWN == 0 else 0
    names = [f"sync_global_devices('{'first' if process == 0 else 'other'}')" for process in (OWN, other)]
    assert str(caught.value) == (
        f"{names[0]}: expected process {other} to call it, too, got process {other} at {names[1]}.\n"
        "  Fix: let all processes run the same program, in the same order."
    )


def values_that_differ_between_processes_are_found():
    multihost_utils.assert_equal({"config": A, "n": 1}, "configurations differ")
    with pytest.raises(AssertionError) as caught:
        multihost_utils.assert_equal({"a": 1, "b": np.array([OWN, 7])}, "configurations differ")
    other = 1 if OWN == 0 else 0
    assert isinstance(caught.value, phalanx.errors.ProcessesDifferError)
    assert str(caught.value) == (
        f"assert_equal, configurations differ: expected ['b'] = [{OWN} 7] of int64[2], as in process {OWN}, "
        f"got ['b'] = [{other} 7] of int64[2] in process {other}.\n"
        "  Fix: compute the value in one process and broadcast it with multihost_utils.broadcast_one_to_all."
    )


def arrays_of_one_process_that_a_function_closes_over_are_passed_to_its_program():
    x, own = phalanx.device_put(np.zeros(2, np.float32), R), jnp.array([OWN, 7], np.float32)
    (shard, *_) = phalanx.jit(lambda x: x + own)(x).addressable_shards
    assert shard.data.tolist() == [OWN, 7]


def transferred_values_that_differ_between_processes_are_found():
    def step(w, batch):
        return w + batch["x"]

    w, other = phalanx.device_put(np.zeros(2, np.int32), R), 1 if OWN == 0 else 0
    jitted = phalanx.jit(step)
    compiled = jitted.lower(w, {"x": phalanx.ShapeDtypeStruct((2,), np.int32)}).compile()
    own = np.array([OWN, 7], np.int32)
    big = np.zeros((4, 64), np.float32)
    big[2, 33] = OWN
    calls = {
        "step, argument batch['x']": lambda x: jitted(w, {"x": x}),
        "call of compiled step, argument batch['x']": lambda x: compiled(w, {"x": x}),
        "device_put, x['a']": lambda x: phalanx.device_put({"a": x}, X if x.size == 8 else R),
    }
    fix = "  Fix: compute the value in one process and broadcast it with multihost_utils.broadcast_one_to_all."
    for name, call in calls.items():
        call(own)  # unnoticed, and in the caches of calls
        with debug_compare_host_values(True):
            for _ in range(3):
                call(np.array([3, 7], np.int32))
                call(phalanx.numpy.array([3, 7], np.int32))
                for x in own, phalanx.numpy.array(own):
                    with pytest.raises(phalanx.errors.ProcessesDifferError) as caught:
                        call(x)
                    assert str(caught.value) == (
                        f"{name}: expected [{OWN} 7] of int32[2], as in process {OWN}, "
                        f"got [{other} 7] of int32[2] in process {other}.\n{fix}"
                    )
    with debug_compare_host_values(True):
        _same(w + 1, [1, 1])
        with pytest.raises(AssertionError, match=r"argument 1: expected \d of int32\[\], as in process"):
            w + OWN
        phalanx.device_put(OWN, phalanx.local_devices()[0])
        with pytest.raises(AssertionError, match=r"of float32\[4, 64\] with digest \w{8}, as .* with digest \w{8} in"):
            phalanx.device_put(big, R)
        with pytest.raises(AssertionError, match=r"^device_put, x: "):
            phalanx.device_put(np.arange(8) + OWN, X)  # each process would send its part


def host_local_arrays_become_global_ones_and_back():
    count = phalanx.process_count()
    rows = 8 // count
    part = A[OWN * rows : (OWN + 1) * rows]
    whole = multihost_utils.host_local_array_to_global_array({"x": part, "r": B}, MESH2, {"x": P("a", "b"), "r": P()})
    _same(whole["x"], A)
    _same(whole["r"], B)
    _same(phalanx.jit(lambda x: x * 2)(whole["x"]), A * 2)
    back = multihost_utils.global_array_to_host_local_array(whole, MESH2, {"x": P("a", "b"), "r": P()})
    np.testing.assert_array_equal(np.asarray(back["x"]), part)
    np.testing.assert_array_equal(np.asarray(back["r"]), B)
    again = multihost_utils.global_array_to_host_local_array(whole["x"], MESH2, P("a"))
    np.testing.assert_array_equal(np.asarray(again), part)
    assert multihost_utils.host_local_array_to_global_array(whole["x"], MESH2, P("a", "b")) is whole["x"]
    with pytest.raises(phalanx.errors.TraceError, match="outside of transformations"):
        phalanx.jit(lambda x: multihost_utils.host_local_array_to_global_array(x, MESH2, P("a")))(part)


def launches_take_one_thread_hop_where_they_may_wait_and_none_elsewhere():
    call, hops = interruptible_wait._Helper.call, []
    sum_over_all = _shard_map(lambda x: lax.psum(x, "x"), P("x"), P())
    double = phalanx.jit(lambda x: x * 2)
    x = _put(A)
    sum_over_all(x).block_until_ready(), double(x).block_until_ready()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interruptible_wait._Helper, "call", lambda *given: (hops.append(given[1]), call(*given))[1])
        for f, at_most in (sum_over_all, 10), (double, 0):
            hops.clear()
            results = [f(x) for _ in range(10)]
            assert len(hops) <= at_most
            phalanx.block_until_ready(results)
            assert len(hops) <= at_most + 1
            [np.asarray(y.addressable_shards[0].data) for y in results]
            assert len(hops) <= at_most + 1


def no_preemption_without_a_signal():
    assert not any(multihost_utils.reached_preemption_sync_point(step) for step in range(3))


def initialize_is_called_once():
    with pytest.raises(phalanx.errors.ForbiddenError) as caught:
        phalanx.distributed.initialize()
    assert str(caught.value) == (
        "distributed.initialize: expected to be called once, or again after a ProcessFailure, got a second call.\n"
        "  Fix: call distributed.is_initialized() first."
    )
