"""Dimensions that the number of devices does not divide: buffers are padded, and nobody sees it.

The programs are compared with those on one device. Programs of one size are compiled together, to keep the tests cheap.
"""

from __future__ import annotations

import importlib
import pickle
import sys
import tracemalloc
from collections import Counter

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from phalanx.experimental.maps import xmap
from tests.meshes import auto_mesh
from tests.strategies import specs

import phalanx
import phalanx.numpy as jnp
from phalanx import checkpoint, export, lax, nn, nnx, optim
from phalanx.core.error_classes import ShardingError
from phalanx.sharding import GSPMDSharding, NamedSharding, P
from phalanx.testing import collectives

SIZES = [(17, 8), (10, 4), (5, 8)]  # rows and devices: a short last shard, and empty ones


def values(*shape, dtype=np.float32):
    return np.random.default_rng(len(shape)).normal(size=shape).astype(dtype)


def row_mesh(devices):
    return auto_mesh((devices,), "x", devices=phalanx.devices()[:devices])


@pytest.fixture
def mesh():
    return row_mesh(8)


def largest_shard(x):
    return max(shard.data.size for shard in x.addressable_shards)


# --- arrays ---


def test_shards_are_the_logical_parts(mesh):
    rows = NamedSharding(mesh, P("x"))
    assert rows.shard_shape((17, 2)) == (3, 2) and rows.padded_shape((17, 2)) == (24, 2)
    assert rows.padded_shape((16, 2)) == (16, 2) == NamedSharding(mesh, P(None)).padded_shape((16, 2))
    assert [index[0].indices(17)[:2] for index in rows.devices_indices_map((17, 2)).values()] == [
        *[(0, 3), (3, 6), (6, 9), (9, 12), (12, 15), (15, 17), (17, 17), (17, 17)]
    ]
    value = values(17, 2)
    x = phalanx.device_put(value, rows)
    assert [shard.data.shape[0] for shard in x.addressable_shards] == [3, 3, 3, 3, 3, 2, 0, 0]
    for shard in x.addressable_shards:
        np.testing.assert_array_equal(shard.data, value[shard.index])
        assert shard.data.devices() == {shard.device}
    assert x.shape == (17, 2) and x.nbytes == value.nbytes and x.addressable_data(5).shape == (2, 2)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_values_survive_every_placement(data):
    sizes = data.draw(st.sampled_from([(1,), (2,), (3,), (5,), (7,), (8,), (2, 3), (4, 2)]))
    mesh = auto_mesh(sizes, "xy"[: len(sizes)], devices=phalanx.devices()[: np.prod(sizes)])
    shape = tuple(data.draw(st.lists(st.integers(0, 20), min_size=1, max_size=3)))
    value = np.arange(np.prod(shape), dtype=np.int32).reshape(shape) + 1
    first, second = (NamedSharding(mesh, data.draw(specs(mesh, len(shape)))) for _ in range(2))
    x = phalanx.device_put(value, first)
    y = phalanx.device_put(x, second)
    pieces = [shard.data for shard in y.addressable_shards]
    made = [
        x,
        y,
        pickle.loads(pickle.dumps(x)),
        x.copy(),
        phalanx.make_array_from_callback(shape, first, lambda index: value[index]),
        phalanx.make_array_from_single_device_arrays(shape, second, pieces),
        phalanx.make_array_from_process_local_data(first, value),
    ]
    for array in made:
        np.testing.assert_array_equal(np.asarray(array), value)
        assert np.asarray(array).flags.c_contiguous
    for array in (x, y):
        assert repr(array) == repr(jnp.asarray(value))
        assert largest_shard(array) <= np.prod(array.sharding.shard_shape(shape))


def test_data_of_a_process_is_copied_to_its_devices_without_a_whole_copy_on_the_host(mesh):
    value = np.zeros((80_001, 16), np.float32)
    rows = NamedSharding(mesh, P("x"))
    phalanx.make_array_from_process_local_data(rows, value[:17])
    tracemalloc.start()
    try:
        x = phalanx.make_array_from_process_local_data(rows, value)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * 10_001 * 16 * 4 and x.shape == value.shape  # the last shard is padded


def test_arrays_are_read_indexed_and_iterated_without_padding(mesh):
    value = values(17, 2)
    x = phalanx.device_put(value, NamedSharding(mesh, P("x")))
    assert len(x) == 17 and x.tolist() == value.tolist() and [row.tolist() for row in x] == value.tolist()
    np.testing.assert_array_equal(x[-1], value[-1])
    np.testing.assert_array_equal(x[3:6], value[3:6])
    np.testing.assert_array_equal(x[np.array([16, 0])], value[[16, 0]])
    np.testing.assert_array_equal(x.at[16].set(0.0), np.concatenate([value[:16], np.zeros((1, 2))]))
    assert str(x) == str(value) and float(x.min()) == value.min()
    keys = phalanx.random.split(phalanx.random.key(0), 5)
    spread = phalanx.device_put(keys, NamedSharding(mesh, P("x")))
    np.testing.assert_array_equal(phalanx.random.key_data(spread), phalanx.random.key_data(keys))
    assert [shard.data.shape for shard in spread.addressable_shards] == [(1,)] * 5 + [(0,)] * 3


def test_live_arrays_are_listed_with_the_types_of_their_arrays(mesh):
    rows = NamedSharding(mesh, P("x"))
    held = [phalanx.device_put(np.ones((17, 29), np.float32), rows)]
    held.append(phalanx.jit(jnp.sin)(held[0]))
    keys = phalanx.device_put(phalanx.random.split(phalanx.random.key(0), 1037), rows)
    live = phalanx.live_arrays()
    assert sorted(x.shape for x in live if 29 in x.shape) == [(17, 29)] * 2 and len(held) == 2
    assert [x.dtype for x in live if x.shape == (1037,) and len(x.devices()) == 8] == [keys.dtype]
    assert not [x for x in live if x.shape == (24, 29) or 1040 in x.shape]


def test_arrays_are_deleted_donated_and_checked_for_nan_without_padding(mesh):
    rows = NamedSharding(mesh, P("x"))
    x = phalanx.device_put(values(17, 2), rows)
    moved = phalanx.device_put(x, rows, donate=True)
    assert x.is_deleted() and moved.shape == (17, 2)
    step = phalanx.jit(lambda x: x + 1, donate_argnums=0, out_shardings=rows)
    y = step(moved)
    np.testing.assert_array_equal(y, values(17, 2) + 1)
    assert moved.is_deleted() and y.sharding is rows
    y.delete()
    assert y.is_deleted() and repr(y) == "Array(f32[17,2], deleted)"
    with phalanx.debug_nans(True):  # 1 / 0 in the padding is infinite, 0 / 0 is not a number
        ones = phalanx.device_put(np.ones(5, np.float32), rows)
        assert (phalanx.jit(lambda x: x / x)(ones) / ones).tolist() == [1.0] * 5
        with pytest.raises(FloatingPointError):
            ones * np.nan


# --- programs ---


def lm_loss(table, tokens):
    logits = jnp.tanh(table[tokens]) @ table.T
    return jnp.mean(nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, tokens[:, None], 1)[:, 0])


def loss(x, w):
    return jnp.sum(nn.softmax(jnp.tanh(x @ w), axis=0) ** 2)


def smooth(x):
    return lax.scan(lambda c, _: (jnp.tanh(c * 0.9 + c.sum(0)), c.sum()), x, None, length=3)[0]


def programs(mesh, rows):
    """Functions of (x, w, z, tokens), and the specs of their results."""
    split = NamedSharding(mesh, P("x"))
    return {
        "sum": (lambda x, w, z, t: x.sum(0), P()),
        "max": (lambda x, w, z, t: x.max(0), P()),
        "mean": (lambda x, w, z, t: x.mean(), P()),
        "elementwise": (lambda x, w, z, t: jnp.tanh(x) * 2 + 1, P("x")),
        "product over rows": (lambda x, w, z, t: x @ w, P("x")),
        "product along rows": (lambda x, w, z, t: x.T @ z, P()),
        "softmax": (lambda x, w, z, t: nn.softmax(x, axis=0), P("x")),
        "gradient of w": (lambda x, w, z, t: phalanx.grad(loss, 1)(x, w), P()),
        "gradient of x": (lambda x, w, z, t: phalanx.grad(loss)(x, w), P("x")),
        "cumsum": (lambda x, w, z, t: jnp.cumsum(x, 0), P("x")),
        "sort": (lambda x, w, z, t: jnp.sort(x, 0), P("x")),
        "transpose": (lambda x, w, z, t: x.T, P(None, "x")),
        "vocabulary": (lambda x, w, z, t: lm_loss(x, t), P()),
        "vocabulary gradient": (lambda x, w, z, t: phalanx.grad(lm_loss)(x, t), P("x")),
        "scan": (lambda x, w, z, t: smooth(x), P("x")),
        "argmax": (lambda x, w, z, t: jnp.argmax(x, 0), P()),
        "top_k": (lambda x, w, z, t: lax.top_k(x.T, 3)[0], P()),
        "random": (lambda x, w, z, t: phalanx.random.normal(phalanx.random.key(0), x.shape) + x, P("x")),
        "concatenate": (lambda x, w, z, t: jnp.concatenate([x, x * 2]), P("x")),
        "cholesky": (lambda x, w, z, t: jnp.linalg.cholesky(x @ x.T + 17 * jnp.eye(rows)), P("x")),
        "fft": (lambda x, w, z, t: jnp.abs(jnp.fft.fft(x, axis=1)), P("x")),
        "constraint": (lambda x, w, z, t: lax.with_sharding_constraint(jnp.exp(w.T), split) * 2, P("x")),
        "batch norm": (lambda x, w, z, t: (x - x.mean(0)) / jnp.sqrt(x.var(0) + 1e-5), P("x")),
        "cond": (lambda x, w, z, t: lax.cond(w[0, 0] > 0, jnp.sin, jnp.cos, x), P("x")),
        "while": (lambda x, w, z, t: lax.while_loop(lambda c: c.sum() < 9, lambda c: c + 1, x), P("x")),
        # These move rows between devices whose shards begin elsewhere than those of the next even size.
        "flip": (lambda x, w, z, t: x[::-1], P("x")),
        "reshape": (lambda x, w, z, t: x.reshape(-1), P("x")),
    }


def operands(mesh, rows):
    tokens = np.random.default_rng(0).integers(0, rows, size=8).astype(np.int32)
    placed = [(values(rows, 6), P("x")), (values(6, 7), P()), (values(rows, 5), P("x")), (tokens, P("x"))]
    return [phalanx.device_put(x, NamedSharding(mesh, spec)) for x, spec in placed]


def run_all(chosen, *args):
    return {name: function(*args) for name, (function, _) in chosen.items()}


@pytest.mark.one_is_quick(group=lambda **_: "a size")
@pytest.mark.one_is_quick(group=lambda **_: "a size")
@pytest.mark.parametrize(("rows", "devices"), SIZES)
def test_programs_equal_those_on_one_device_and_communicate_as_at_the_next_even_size(rows, devices):
    mesh = row_mesh(devices)
    even = -(-rows // devices) * devices
    sent = {}
    for size in (rows, even):
        cases = {k: v for k, v in programs(mesh, size).items() if k not in ("flip", "reshape")}
        out = {name: NamedSharding(mesh, spec) for name, (_, spec) in cases.items()}
        compiled = phalanx.jit(lambda *xs, cases=cases: run_all(cases, *xs), out_shardings=out)
        xs = operands(mesh, size)
        sent[size] = collectives(compiled.lower(*xs).compile()).bytes
        if size == rows:
            whole = [np.asarray(x) for x in xs]
            expected = phalanx.jit(lambda *xs, cases=cases: run_all(cases, *xs))(*whole)
            for name, got in compiled(*xs).items():
                np.testing.assert_allclose(got, expected[name], rtol=2e-5, atol=2e-6, err_msg=name)
                assert got.sharding is out[name] and largest_shard(got) <= np.prod(out[name].shard_shape(got.shape))
    assert sent[rows] <= sent[even]


@pytest.mark.one_is_quick(group=lambda **_: "a size")
@pytest.mark.one_is_quick(group=lambda **_: "a size")
@pytest.mark.parametrize(("rows", "devices"), SIZES)
def test_results_whose_sharding_is_left_to_the_compiler_are_not_replicated(rows, devices):
    mesh = row_mesh(devices)
    cases = programs(mesh, rows)
    xs = operands(mesh, rows)
    out = phalanx.jit(lambda *xs: run_all(cases, *xs))(*xs)
    expected = phalanx.jit(lambda *xs: run_all(cases, *xs))(*map(np.asarray, xs))
    for name, got in out.items():
        np.testing.assert_allclose(got, expected[name], rtol=2e-5, atol=2e-6, err_msg=name)
    for name in (
        "elementwise",
        "product over rows",
        "softmax",
        "gradient of x",
        "scan",
        "random",
        "concatenate",
        "flip",
    ):
        assert out[name].sharding.spec == P("x"), name
        assert largest_shard(out[name]) <= np.prod(out[name].sharding.shard_shape(out[name].shape)), name
    assert out["transpose"].sharding.spec == P(None, "x")


def test_eager_operations_keep_uneven_shardings(mesh):
    value = values(17, 4)
    x = phalanx.device_put(value, NamedSharding(mesh, P("x")))
    for got, expected in [
        (x * 2 + 1, value * 2 + 1),
        (jnp.where(x > 0, x, 0), np.maximum(value, 0)),
        (phalanx.vmap(jnp.sort)(x), np.sort(value, 1)),
        (phalanx.grad(lambda x: jnp.sum(x**2))(x), 2 * value),
    ]:
        np.testing.assert_allclose(got, expected, rtol=1e-6)
        assert got.sharding.spec == P("x")
    np.testing.assert_allclose(x.sum(), value.sum(), rtol=1e-5)
    np.testing.assert_array_equal(phalanx.device_put(x, phalanx.devices()[3]), value)


def test_arguments_and_results_are_padded_as_declared(mesh):
    rows, columns = (NamedSharding(mesh, spec) for spec in (P("x"), P(None, "x")))
    f = phalanx.jit(lambda x: x.T @ x, in_shardings=rows, out_shardings=columns)
    value = values(17, 5)
    for x in (value, jnp.asarray(value), phalanx.device_put(value, rows), value):
        got = f(x)
        np.testing.assert_allclose(got, value.T @ value, rtol=1e-5, atol=1e-5)
        assert got.sharding is columns and [s.data.shape for s in got.addressable_shards][4:6] == [(5, 1), (5, 0)]
    text = f.lower(value).as_text()
    assert text.count("stablehlo.slice") == 1 and text.count("stablehlo.pad") == 1 and "tensor<24x5xf32>" in text
    half = phalanx.jit(lambda x: lax.with_sharding_constraint(x + 1, rows))
    assert [s.data.shape for s in half(value).addressable_shards][4:6] == [(3, 5), (2, 5)]
    tiles = GSPMDSharding(mesh.flat_devices, rows._to_xla_hlo_sharding(2))
    np.testing.assert_array_equal(phalanx.jit(lambda x: x, out_shardings=tiles)(value), value)
    # A dimension of one element gains nothing from padding.
    assert phalanx.jit(lambda x: x.sum(0, keepdims=True))(phalanx.device_put(value, rows)).sharding.padded_shape(
        (1, 5)
    ) == (1, 5)


EVEN_TEXT = """\
module @jit_step attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["x"=8]>
  func.func public @main(%arg0: tensor<16x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> (tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>}, tensor<2x64xf32>) {
    %0 = stablehlo.tanh %arg0 : tensor<16x8xf32>
    %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<16x8xf32>) -> tensor<8x16xf32>
    %2 = stablehlo.reshape %0 : (tensor<16x8xf32>) -> tensor<2x64xf32>
    %3 = sdy.sharding_constraint %1 <@mesh, [{}, {"x"}]> : tensor<8x16xf32>
    return %3, %2 : tensor<8x16xf32>, tensor<2x64xf32>
  }
}
"""


def test_even_programs_are_lowered_without_a_trace_of_padding(mesh):
    def step(x):
        y = jnp.tanh(x)
        return y.T, y.reshape(2, 64)

    x = phalanx.device_put(values(16, 8), NamedSharding(mesh, P("x")))
    columns = NamedSharding(mesh, P(None, "x"))
    assert phalanx.jit(step, out_shardings=(columns, None)).lower(x).as_text().strip() == EVEN_TEXT.strip()
    # Gradients, updates in batches, and convolutions in groups have their own rules for uneven sizes.
    convolve = lambda x: lax.conv_general_dilated(
        x[:, :, None], jnp.ones((3, 1, 4)), (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
    )
    for f in (jnp.tanh, phalanx.grad(lambda x: jnp.sin(jnp.sort(x, 1)).sum()), lambda x: convolve(x).reshape(16, -1)):
        text = phalanx.jit(f).lower(x).as_text()
        assert "stablehlo.pad" not in text and "InspectSharding" not in text


def count_calls(function, *args):
    """The Python functions that a call enters, by name."""
    names = Counter()
    sys.setprofile(lambda frame, event, _: names.update([frame.f_code.co_qualname] if event == "call" else []))
    try:
        function(*args)
    finally:
        sys.setprofile(None)
    return names


def test_calls_of_compiled_programs_enter_no_function_for_padding(mesh):
    rows = NamedSharding(mesh, P("x"))
    calls = []
    for size in (16, 17):
        x = phalanx.device_put(values(size, 8), rows)
        f = phalanx.jit(lambda x: jnp.tanh(x) * 2)
        for _ in range(3):
            f(x)
        calls.append(count_calls(f, x))
    assert calls[0] == calls[1] and sum(calls[0].values()) < 10
    assert not [name for name in calls[0] if "pad" in name or "aval" in name]


def test_results_that_do_not_divide_are_not_replicated_in_even_programs(mesh):
    value = values(16, 3)
    x = phalanx.device_put(value, NamedSharding(mesh, P("x")))
    for f in (
        lambda x: x[:7],
        lambda x: jnp.concatenate([x, x[:1]]),
        lambda x: jnp.diff(x, axis=0),
        lambda x: jnp.tanh(phalanx.jit(lambda x: x[3:])(x)),
        lambda x: x[1:].reshape(-1),
        lambda x: jnp.repeat(x[2:], 3, 0)[:, 0],
    ):
        for y in (f(x), phalanx.jit(f)(x)):
            np.testing.assert_allclose(y, f(value), rtol=1e-6)
            assert y.sharding is x.sharding and largest_shard(y) == np.prod(y.sharding.shard_shape(y.shape))

    def stack(x):
        return lax.scan(lambda c, row: (c + row.sum(), (c * row)[1:]), 1.0, x)[1]

    columns = phalanx.device_put(value.T, NamedSharding(mesh, P(None, "x")))
    for y, wanted in (
        (phalanx.jit(stack)(columns), stack(value.T)),
        (phalanx.jit(lambda x: stack(x)[:, 2:])(columns), stack(value.T)[:, 2:]),
    ):
        np.testing.assert_allclose(y, wanted, rtol=1e-5)
        assert y.sharding is columns.sharding
    total = phalanx.shard_map(lambda x: lax.psum(x[:, 0], "x"), mesh=mesh, in_specs=P("x"), out_specs=P())
    table, tokens = jnp.ones((17, 3)), phalanx.device_put(np.arange(16) % 17, NamedSharding(mesh, P("x")))
    for f, args in (
        (lambda x: x.T @ x, [x]),
        (lambda x: x.sum(0), [x]),
        (total, [x]),
        (phalanx.grad(lambda t, i: jnp.sin(t[i]).sum()), [phalanx.device_put(table, NamedSharding(mesh, P())), tokens]),
        (lambda x: phalanx.jit(jnp.transpose)(x[:3] @ x[:3].T), [phalanx.device_put(value, NamedSharding(mesh, P()))]),
    ):
        assert phalanx.jit(f)(*args).sharding.is_fully_replicated
    square = phalanx.device_put(values(16, 16), NamedSharding(mesh, P("x")))
    assert phalanx.jit(lambda x: phalanx.jit(jnp.transpose)(x[:9, :9]))(square).sharding.spec == P(None, "x")
    shifted = phalanx.jit(lambda x: x[1:])
    assert collectives(shifted, x).bytes == value[:1].nbytes  # a row from the next device
    text = shifted.lower(x).as_text()
    assert "InspectSharding" not in text and text.count("stablehlo.pad") == 1


ALIKE = {
    "flip": lambda x: jnp.flip(x, 0),
    "flip and shift": lambda x: jnp.flip(x, 0)[::-1] + jnp.roll(x, 1, 0),
    "roll": lambda x: jnp.roll(x, -3, 0),
    "gradient of roll": phalanx.grad(lambda x: jnp.sin(jnp.roll(x, 1, 0)).sum()),
    "hessian of a product with flip": lambda x: phalanx.hessian(lambda v: jnp.sin(v * v[::-1]).sum())(x[:, 0]),
    "trace": jnp.trace,
    "diagonal": jnp.diag,
    "reshape and back": lambda x: (x.reshape(-1) * 2).reshape(x.shape),
    "gradient of reshape and back": phalanx.grad(lambda x: jnp.sin(x.reshape(-1).reshape(x.shape)).sum()),
    "argmax": jnp.argmax,
    "argmin": jnp.argmin,
    "vdot": lambda x: jnp.vdot(x, jnp.tanh(x)),
    "norm": lambda x: jnp.sqrt((jnp.exp(x.ravel()) ** 2).sum()),
    "histogram": lambda x: jnp.histogram(x, 5)[0],
    "windows": lambda x: lax.reduce_window(x, 0.0, lax.add, (3, 1), (1, 1), "SAME"),
    "maxima of windows": lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (3, 1), (1, 1), "SAME"),
    "convolution": lambda x: jnp.convolve(x[:, 0], jnp.ones(3), "same"),
    "gradient of cumprod": phalanx.grad(lambda x: jnp.sin(jnp.cumprod(x, 0)).sum()),
    "gradient of cummax": phalanx.grad(lambda x: jnp.sin(lax.cummax(x, axis=0)).sum()),
    "gradient of cumlogsumexp": phalanx.grad(lambda x: jnp.sin(lax.cumlogsumexp(x, axis=0, reverse=True)).sum()),
    "gradient of prod": phalanx.grad(lambda x: jnp.sin(jnp.prod(x, axis=0)).sum()),
    "trapezoid": lambda x: jnp.trapezoid(x, axis=0),
    "sum of a part": lambda x: jnp.exp(x[1:]).sum(0),
    "correlation": lambda x: jnp.vdot(x[1:], x[:-1]),
    "largest step": lambda x: jnp.abs(x[1:] - x[:-1]).max(0),
    "gradient of diff": phalanx.grad(lambda x: jnp.sin(jnp.diff(x, axis=0)).sum()),
    "gradient of kron": phalanx.grad(lambda x: jnp.sin(jnp.kron(x, jnp.ones((2, 1)))).sum()),
    "gradient of interior padding": phalanx.grad(lambda x: jnp.sin(lax.pad(x, 0.0, [(0, 0, 1), (0, 0, 0)])).sum()),
    "gradient of another split": phalanx.grad(lambda x: jnp.sin(x.reshape(3 * x.shape[0], 2)).sum()),
    "gradient of scatter": phalanx.grad(lambda x: jnp.sin(x.at[jnp.array([0, 2])].add(-1.0)).sum()),
}


@pytest.mark.one_is_quick(group=lambda name, **_: name)
@pytest.mark.one_is_quick(group=lambda name, **_: name)
@pytest.mark.parametrize(("rows", "devices"), SIZES)
@pytest.mark.parametrize("name", ALIKE)
def test_moves_windows_and_merged_dimensions_send_no_more_than_at_the_next_even_size(name, rows, devices):
    split = NamedSharding(row_mesh(devices), P("x"))
    even = -(-rows // devices) * devices
    function = phalanx.jit(ALIKE[name])
    value = values(rows, 6)
    compiled = function.lower(phalanx.device_put(value, split)).compile()
    got = compiled(phalanx.device_put(value, split))
    np.testing.assert_allclose(got, function(value), rtol=2e-4, atol=2e-5)
    assert collectives(compiled).bytes <= collectives(function, phalanx.device_put(values(even, 6), split)).bytes


@pytest.mark.parametrize(
    ("rows", "devices", "size", "stride"), [(5, 4, 3, 1), (11, 4, 3, 2), (7, 8, 2, 1), (17, 8, 2, 3)]
)
def test_windows_over_uneven_rows_read_no_padding_of_shards(rows, devices, size, stride):
    def pool(x):
        window = (size, 1), (stride, 1), "SAME"
        return nn.relu(lax.reduce_window(x, 0.0, lax.add, *window)), lax.reduce_window(x, -jnp.inf, lax.max, *window)

    value = values(rows, 2) - 9  # a maximum with padding of zeros would be 0
    x = phalanx.device_put(value, NamedSharding(row_mesh(devices), P("x")))
    for got, expected in zip(phalanx.jit(pool)(x), phalanx.jit(pool)(value), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5)


MOVES = {
    "flip": (lambda x: x[::-1], 3),
    "roll": (lambda x: jnp.roll(x, 1, 0), 1),
    "without the first row": (lambda x: x[1:], 3),
    "every other row": (lambda x: x[::2], 2),
    "merged": (lambda x: x.reshape(-1), 3),
    "twice": (lambda x: jnp.concatenate([x, x]), 6),
    "padded": (lambda x: jnp.pad(x, ((2, 1), (0, 0)), constant_values=7.0), 2),
    # Each row once to a device that needs it, however often it is repeated there.
    "repeated": (lambda x: jnp.repeat(x, 2, 0), 3),
    "repeated rows in reverse": (lambda x: jnp.repeat(x, 2, 0)[::-1], 4),
    "kron": (lambda x: jnp.kron(x, jnp.array([[2.0], [1.0]])), 3),
    "spread": (lambda x: lax.pad(x, jnp.float32(3), [(0, 0, 1), (0, 0, 0)]), 2),
    # What is sent at 24 rows, and then the result to its own shards, as for x[:-1].
    "differences": (lambda x: jnp.diff(x, axis=0), 1 + 3),
    "second differences": (lambda x: x[2:] - 2 * x[1:-1] + x[:-2], 3 + 3),
    "compared": (lambda x: (x[1:] > x[:-1]) * x[1:], 1 + 3),
}


@pytest.mark.parametrize(
    ("function", "sent"),
    [
        (lambda x: x[1:, :2], 3 * 8),
        (lambda x: x[1:, :2] - x[:-1, :2], 4 * 8),
        (lambda x: lax.pad(x, np.float32(0), [(1, 0, 0), (-2, 1, 0)]), 16),
        (lambda x: lax.pad(x, np.float32(0), [(0, 1, 1), (-2, 0, 0)]), 2 * 16),
    ],
)
def test_columns_that_are_cut_off_are_not_moved(function, sent, mesh):
    x = phalanx.device_put(values(17, 6), NamedSharding(mesh, P("x")))
    np.testing.assert_array_equal(phalanx.jit(function)(x), function(values(17, 6)))
    assert collectives(function, x).bytes == sent


@pytest.mark.parametrize("name", MOVES)
def test_a_move_sends_as_many_rows_as_the_busiest_device_must(name, mesh):
    function, rows = MOVES[name]
    value = values(17, 6)
    x = phalanx.device_put(value, NamedSharding(mesh, P("x")))
    np.testing.assert_array_equal(phalanx.jit(function)(x), function(value))
    assert collectives(function, x).bytes == rows * 24
    assert not [c for c in collectives(function, x) if c.kind != "collective-permute"]


def test_a_factor_that_is_cut_out_of_the_result_of_a_kernel_is_moved_by_rows(mesh):
    x = phalanx.device_put(values(17, 6), NamedSharding(mesh, P("x")))
    # Six rows of the first two devices, each to a device of its own.
    assert [c.bytes for c in collectives(lambda x: jnp.linalg.qr(x)[1], x) if c.kind == "collective-permute"] == [
        24
    ] * 3


def test_a_reversal_of_several_split_dimensions_sends_each_shard_once():
    for sizes, shape, place in [((2, 3), (7, 5, 14), P("x", None, "y")), ((4, 2), (5, 1, 9), P("y", None, "x"))]:
        mesh = auto_mesh(sizes, "xy", devices=phalanx.devices()[: np.prod(sizes)])
        value = values(*shape)
        x = phalanx.device_put(value, NamedSharding(mesh, place))
        flip = lambda x: lax.rev(x, (0, 1, 2)) + jnp.sin(lax.rev(x, (0, 1, 2)))
        np.testing.assert_allclose(phalanx.jit(flip)(x), flip(value), rtol=1e-6)
        np.testing.assert_array_equal(phalanx.jit(lambda x: jnp.flip(x, (0, 2)))(x), np.flip(value, (0, 2)))
        assert collectives(flip, x).bytes == largest_shard(x) * 4


def test_differences_send_what_the_shards_of_the_result_are_computed_from():
    # Shards of 4 rows become shards of 3: device 3 holds one row, and needs three more.
    value = values(13, 6)
    x = phalanx.device_put(value, NamedSharding(row_mesh(4), P("x")))
    for function in (lambda x: jnp.diff(x, axis=0), lambda x: jnp.sin(x[1:]) * x[:-1]):
        np.testing.assert_allclose(phalanx.jit(function)(x), function(value), rtol=1e-6)
        assert [c.bytes for c in collectives(function, x)] == [3 * 24]
    total = phalanx.jit(lambda x: jnp.diff(x, axis=0).sum(0))  # the differences stay where they are added up
    assert [c.kind for c in collectives(total, x)] == ["collective-permute", "all-reduce"]
    assert collectives(total, x).bytes == 24 + 24


def test_strided_windows_over_uneven_rows_do_not_gather_them():
    x = phalanx.device_put(values(14, 6), NamedSharding(row_mesh(6), P("x")))
    for size, stride, rows in [(1, 3, 0), (2, 3, 0), (2, 1, 1)]:
        pool = lambda x, size=size, stride=stride: lax.reduce_window(
            x, -jnp.inf, lax.max, (size, 1), (stride, 1), "VALID"
        )
        np.testing.assert_array_equal(phalanx.jit(pool)(x), pool(values(14, 6)))
        assert collectives(pool, x).bytes == rows * 24, (size, stride)


@pytest.mark.parametrize(
    ("shape", "sizes", "window", "of_value", "of_gradient"),
    [
        # XLA gathers the even size 18x18.
        ((18, 17), (2, 3), ((3, 2), (2, 3), [(2, 0), (0, 1)]), 24, 80),
        ((17, 6), (8,), ((3, 1), (2, 1), "SAME"), 96, 264),
        ((17, 6), (8,), ((3, 1), (1, 1), "SAME"), 48, 216),
    ],
)
def test_devices_receive_the_elements_of_their_windows(shape, sizes, window, of_value, of_gradient):
    mesh = auto_mesh(sizes, "xy"[: len(sizes)], devices=phalanx.devices()[: np.prod(sizes)])
    x = phalanx.device_put(values(*shape), NamedSharding(mesh, P(*mesh.axis_names)))
    pool = phalanx.jit(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, *window))
    gradient = phalanx.jit(phalanx.grad(lambda x: jnp.sin(pool(x)).sum()))
    for function, sent in ((pool, of_value), (gradient, of_gradient)):
        np.testing.assert_allclose(function(x), function(values(*shape)), rtol=1e-6)
        found = collectives(function, x)
        assert sum(c.bytes for c in found if c.kind != "all-reduce") == sent
        assert {c.kind for c in found} <= {"collective-permute", "all-reduce"}


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_windows_over_any_mesh_have_the_values_of_one_device(data):
    sizes = data.draw(st.sampled_from([(3,), (5,), (8,), (2, 3), (4, 2)]))
    mesh = auto_mesh(sizes, "xy"[: len(sizes)], devices=phalanx.devices()[: np.prod(sizes)])
    shape = tuple(data.draw(st.integers(2, 19)) for _ in range(2))
    draw = lambda low, high: tuple(data.draw(st.integers(low, high)) for _ in range(2))
    size, strides, dilation = draw(1, 4), draw(1, 4), draw(1, 2)
    padding = [(low, high + 6) for low, high in zip(draw(0, 3), draw(0, 3), strict=True)]
    base = draw(1, 3)
    operation, start = data.draw(st.sampled_from([(lax.add, 0.0), (lax.max, -np.inf), (lax.min, np.inf)]))
    has_gradient = base == (1, 1)

    def pool(x):
        return lax.reduce_window(x, start, operation, size, strides, padding, base, dilation)

    def value_and_gradient(x):
        loss = lambda x: jnp.where(jnp.isfinite(y := pool(x)), jnp.sin(y), 0).sum()
        return pool(x), phalanx.grad(loss)(x) if has_gradient else x

    place = P(*mesh.axis_names) if len(sizes) == 2 else P(None, "x")
    x = phalanx.device_put(values(*shape), NamedSharding(mesh, place))
    for got, want in zip(phalanx.jit(value_and_gradient)(x), value_and_gradient(values(*shape)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_slices_at_computed_positions_have_the_values_of_one_device(data):
    sizes = data.draw(st.sampled_from([(5,), (8,), (2, 3), (4, 2)]))
    mesh = auto_mesh(sizes, "xy"[: len(sizes)], devices=phalanx.devices()[: np.prod(sizes)])
    shape = tuple(data.draw(st.integers(2, 19)) for _ in range(3))
    part = tuple(data.draw(st.integers(1, n)) for n in shape)
    starts = [np.int32(data.draw(st.integers(-n, n))) for n in shape]
    spec = P(*data.draw(st.permutations([*mesh.axis_names, *[None] * (3 - len(sizes))])))

    def function(x, u, starts):
        cut, pull = phalanx.vjp(lambda x: lax.dynamic_slice(x, starts, part), x)
        return cut, pull(jnp.sin(cut)), lax.dynamic_update_slice(x, u, starts)

    x, u = values(*shape), -values(*part)
    placed = phalanx.device_put(x, NamedSharding(mesh, spec))
    for got, want in zip(phalanx.jit(function)(placed, u, starts), function(x, u, starts), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_moves_over_any_mesh_have_the_values_of_one_device(data):
    sizes = data.draw(st.sampled_from([(3,), (5,), (8,), (2, 3), (4, 2)]))
    mesh = auto_mesh(sizes, "xy"[: len(sizes)], devices=phalanx.devices()[: np.prod(sizes)])
    n, m = data.draw(st.integers(2, 13)), data.draw(st.integers(2, 7))
    value = np.arange(n * m * 2, dtype=np.int32).reshape(n, m, 2)
    x = phalanx.device_put(value, NamedSharding(mesh, data.draw(specs(mesh, 2))))
    shift, start, stride = data.draw(st.integers(-5, 5)), data.draw(st.integers(0, n - 1)), data.draw(st.integers(1, 3))

    def moves(x):
        return [
            x[::-1, ::-1],
            jnp.roll(x, (shift, shift), (0, 1)),
            x[start::stride],
            x[start:][::-1],
            x.reshape(-1),
            x.reshape(n, -1)[:, ::-1].reshape(x.shape),
            (x.reshape(n * m, 2) + 1).sum(0),
            jnp.concatenate([x[start:], x, x[:start]], 0),
            jnp.repeat(x, 2, 1)[:, 1:],
            lax.pad(x, np.int32(5), [(1, -1, stride - 1), (-1, 2, 0), (0, 0, 0)]),
        ]

    for got, expected in zip(phalanx.jit(moves)(x), phalanx.jit(moves)(value), strict=True):
        np.testing.assert_array_equal(got, expected)


SHAPED = {
    "rows are merged": lambda x: x.reshape(-1),
    "rows are split": lambda x: (x.reshape(-1) * 2).reshape(x.shape),
    "rows are halved": lambda x: x.reshape(2 * x.shape[0], -1),
    "repeat": lambda x: jnp.repeat(x, 2, axis=0),
    "kron": lambda x: jnp.kron(x, jnp.ones((3, 1))),
    "cumprod": lambda x: jnp.cumprod(x, axis=0),
    "gradient of prod": phalanx.grad(lambda x: jnp.prod(x, axis=0).sum()),
    "gradient of sort": phalanx.grad(lambda x: jnp.sin(jnp.sort(x, axis=1)).sum()),
    "gradient of take": phalanx.grad(lambda x: (jnp.take_along_axis(x, jnp.argsort(x, 1), 1) * x).sum()),
    "interior padding": lambda x: lax.pad(x, 0.0, [(0, 0, 1), (0, 0, 0)]),
}


@pytest.mark.one_is_quick(group=lambda **_: "a size")
@pytest.mark.parametrize(("rows", "devices"), [(11, 4), (5, 8)])
def test_rows_that_are_merged_split_or_scattered_stay_sharded(rows, devices):
    x = phalanx.device_put(values(rows, 6), NamedSharding(row_mesh(devices), P("x")))
    compiled = phalanx.jit(lambda x: run_all({k: (f, None) for k, f in SHAPED.items()}, x)).lower(x).compile()
    expected = phalanx.jit(lambda x: run_all({k: (f, None) for k, f in SHAPED.items()}, x))(np.asarray(x))
    for name, got in compiled(x).items():
        np.testing.assert_allclose(got, expected[name], rtol=2e-5, atol=2e-6, err_msg=name)
        assert got.sharding.spec[0] == "x", name
        assert largest_shard(got) <= np.prod(got.sharding.shard_shape(got.shape)), name


def test_convolutions_in_groups_sum_over_uneven_batches_without_gathering_them(mesh):
    convolve = lambda x, w: lax.conv_general_dilated(
        x, w, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"), feature_group_count=3
    )
    gradient = phalanx.jit(phalanx.grad(lambda w, x: jnp.sum(jnp.sin(convolve(x, w)))))
    kernel = values(3, 2, 12)
    for rows in (11, 16):
        x = phalanx.device_put(values(rows, 5, 6), NamedSharding(mesh, P("x")))
        np.testing.assert_allclose(gradient(kernel, x), gradient(kernel, np.asarray(x)), rtol=1e-4, atol=1e-5)
        assert collectives(gradient, kernel, x).bytes == kernel.nbytes, rows


def test_resharding_in_a_program_holds_no_replica(mesh):
    square = auto_mesh((4, 2), "xy")
    source, target = (NamedSharding(square, spec) for spec in (P("x", "y"), P(None, ("x", "y"))))
    value = values(201, 203)
    x = phalanx.device_put(value, source)
    reshard = phalanx.jit(lambda x: x, out_shardings=target)
    np.testing.assert_array_equal(reshard(x), value)
    sent = collectives(reshard.lower(x).compile())
    assert "all-gather" not in sent.kinds and sent.bytes < value.nbytes / 3  # a quarter


@pytest.mark.parametrize(("rows", "devices"), SIZES)
def test_loops_of_single_examples_end_where_shards_are_padded(rows, devices):
    """The condition of a loop may hold for ever on the zeros of padding."""
    grow = lambda limit, r: lax.while_loop(lambda c: (c**2).sum() < limit, lambda c: c * 1.5, r)
    x, limits = 1 + values(rows, 6), 20 + np.arange(rows, dtype=np.float32)
    programs = {
        "one level": lambda x, limits: phalanx.vmap(grow)(limits, x),
        "two levels": lambda x, limits: phalanx.vmap(phalanx.vmap(grow, (0, None)), (None, 0))(limits, x),
        "tangents": lambda x, limits: phalanx.jvp(lambda x: phalanx.vmap(grow)(limits, x), (x,), (x,))[1],
    }
    mesh = auto_mesh((devices,), ("x",))
    placed = [phalanx.device_put(v, NamedSharding(mesh, P("x"))) for v in (x, limits)]
    for name, f in programs.items():
        np.testing.assert_allclose(phalanx.jit(f)(*placed), f(x, limits), rtol=1e-5, err_msg=name)
    program = phalanx.jit(programs["one level"])
    exported = export.deserialize(export.export(program)(*placed).serialize())
    np.testing.assert_allclose(exported.call(*placed), programs["one level"](x, limits), rtol=1e-5)


@pytest.mark.parametrize("explicit", [False, True])
def test_explicit_types_and_legacy_transformations_split_any_size(explicit):
    value = values(6, 3)
    if explicit:
        rows = phalanx.make_mesh((4, 2), ("x", "y"))
        x = phalanx.device_put(value, NamedSharding(rows, P(("x", "y"))))
        assert str(phalanx.typeof(jnp.sin(x).T)) == "float32[3,6@(x,y)]"
        y = phalanx.jit(lambda x: lax.scan(lambda c, _: (c * x.sum(0), None), x, None, length=1)[0])(x)
        with phalanx.set_mesh(rows):
            np.testing.assert_array_equal(phalanx.reshard(x, P("y", "x")), value)
    else:
        with auto_mesh((4, 2), "xy"):
            share = xmap(lambda v: v * lax.psum(v, "i"), ["i", ...], ["i", ...], axis_resources={"i": ("x", "y")})
            y = share(value)
    np.testing.assert_allclose(y, value * value.sum(0), rtol=1e-5)
    assert [shard.data.shape[0] for shard in y.addressable_shards] == [1] * 6 + [0] * 2


@pytest.mark.parametrize("rows", [5, 6, 33])
def test_arrays_over_explicit_axes_are_iterated(rows):
    mesh, value = phalanx.make_mesh((2, 3), ("x", "y"), devices=phalanx.devices()[:6]), values(rows, 4)
    x = phalanx.device_put(value, NamedSharding(mesh, P("x", "y")))
    for found in ([*x], phalanx.jit(lambda x: [*x])(x)):
        np.testing.assert_array_equal(np.stack(found), value)
        assert str(phalanx.typeof(found[0])) == "float32[4@y]"


def test_partitioned_callbacks_receive_the_logical_shards():
    seen = []
    rows = phalanx.make_mesh((4,), ("x",))
    x = phalanx.device_put(values(10, 3), NamedSharding(rows, P("x")))

    def record(x, total):
        phalanx.debug.callback(lambda part, whole: seen.append((part, whole)), x, total, partitioned=True)

    for call in (record, phalanx.jit(record)):
        seen.clear()
        call(x, x.sum())
        phalanx.effects_barrier()
        parts = sorted([part for part, _ in seen], key=len)
        assert [part.shape for part in parts] == [(1, 3), (3, 3), (3, 3), (3, 3)]
        np.testing.assert_array_equal(np.sort(np.concatenate(parts), axis=None), np.sort(x, axis=None))
        np.testing.assert_allclose([whole for _, whole in seen], x.sum(), rtol=1e-6)


def test_unreduced_terms_and_shard_map_need_even_shards(mesh):
    x = phalanx.device_put(values(17, 2), NamedSharding(mesh, P("x")))
    with pytest.raises(ShardingError) as error:
        phalanx.shard_map(lambda x: x, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(x)
    assert str(error.value).endswith(
        "in_specs[0]: expected dimension 0 of a size divisible by 8, the size of 'x', got f32[17,2].\n"
        "  Fix: pass uneven='pad' to shard_map, which pads dimension 0 to 24, or split another dimension."
    )
    square = phalanx.make_mesh((4, 2), ("x", "y"))
    typed = phalanx.device_put(values(17, 2), NamedSharding(square, P("x")))
    with pytest.raises(
        ShardingError, match=r"in_specs\[0\]: expected dimension 0 of a size divisible by 4, the size of 'x'"
    ):
        phalanx.shard_map(lambda x: x, mesh=square, out_specs=P("x"))(typed)
    with pytest.raises(ShardingError) as error:  # XLA would end the process
        phalanx.device_put(values(17), NamedSharding(square, P("x", unreduced={"y"})))
    assert str(error.value) == (
        "device_put, x: expected dimension 0 to be a multiple of 4, since P('x', unreduced={'y'}, unreduced_kind=sum) splits it "
        "over 'x' (4), got size 17.\n  Fix: pad the dimension to 20, or use None for it in the spec."
    )


def share_of_rows(x):
    """The softmax over all elements, whose sum must leave out the padding."""
    is_row = jnp.arange(x.shape[0]) < lax.valid_size("x")
    total = lax.psum(jnp.sum(jnp.exp(x), where=is_row[:, None]), "x")
    return jnp.exp(x) / total, total, lax.valid_size("x")[None]


def whole_share(x):
    return jnp.exp(x) / jnp.exp(x).sum(), jnp.exp(x).sum()


def test_shard_map_pads_blocks_and_cuts_results(mesh):
    mapped = phalanx.shard_map(share_of_rows, mesh=mesh, in_specs=P("x"), out_specs=(P("x"), P(), P("x")), uneven="pad")
    for rows, blocks in ((17, [3] * 5 + [2, 0, 0]), (16, [2] * 8), (9, [2] * 4 + [1, 0, 0, 0])):
        value = values(rows, 3)
        x = phalanx.device_put(value, NamedSharding(mesh, P("x")))
        for out in (mapped(value), phalanx.jit(mapped)(x)):
            for got, wanted in zip(out, whole_share(value), strict=False):
                np.testing.assert_allclose(got, wanted, rtol=1e-5)
            assert out[2].tolist() == blocks  # a block of another size than those of the argument is not cut
    assert collectives(mapped, x).bytes == 4
    loss = lambda f: lambda x: jnp.sum(jnp.sin(f(x)[0]) * x) + f(x)[1]
    np.testing.assert_allclose(
        phalanx.jit(phalanx.grad(loss(mapped)))(x), phalanx.grad(loss(whole_share))(value), rtol=1e-4, atol=1e-5
    )
    stack = values(2, 5, 3)
    np.testing.assert_allclose(phalanx.vmap(mapped)(stack)[0], phalanx.vmap(whole_share)(stack)[0], rtol=1e-5)
    explicit = phalanx.make_mesh((8,), ("x",))
    typed = phalanx.device_put(value, NamedSharding(explicit, P("x")))
    without_specs = phalanx.shard_map(lambda x: x * 2, mesh=explicit, out_specs=P("x"), uneven="pad")
    assert phalanx.typeof(without_specs(typed)).str_short() == "f32[9@x,3]"


def test_shard_map_resolves_specs_once_in_each_call(mesh, monkeypatch):
    seen = []
    mapped_class = importlib.import_module("phalanx.spmd.shard_map")._Mapped  # `spmd.shard_map` is the function
    resolve = mapped_class._specs

    def record(self, what, *rest):
        seen.append(what)
        return resolve(self, what, *rest)

    monkeypatch.setattr(mapped_class, "_specs", record)
    for uneven in (None, "pad"):
        mapped = phalanx.shard_map(lambda x: x * 2, mesh=mesh, in_specs=P("x"), out_specs=P("x"), uneven=uneven)
        assert mapped(np.ones(16)).sum() == 32
        assert seen == ["in_specs", "out_specs"]
        seen.clear()


def test_shard_map_pads_several_dimensions_keys_and_references():
    square = auto_mesh((4, 2), "xy")
    pad = lambda f, ins, outs: phalanx.shard_map(f, mesh=square, in_specs=ins, out_specs=outs, uneven="pad")
    value = values(5, 7)
    np.testing.assert_array_equal(pad(lambda x: x.T * 2, P("x", "y"), P("y", "x"))(value), value.T * 2)
    sizes = pad(lambda x: (x, lax.valid_size(("x", "y"))[None]), P(("x", "y")), P(("x", "y")))(np.ones(17))[1]
    assert sizes.tolist() == [3, 3, 3, 3, 3, 2, 0, 0]
    keys = phalanx.random.split(phalanx.random.key(0), 5)
    draw = phalanx.vmap(phalanx.random.bits)
    np.testing.assert_array_equal(pad(draw, P("x"), P("x"))(keys), draw(keys))
    ref = phalanx.new_ref(jnp.arange(5.0))

    def double(ref):
        ref[...] *= 2

    pad(double, P("x"), None)(ref)
    assert ref[...].tolist() == [0, 2, 4, 6, 8]


def test_blocks_of_several_sizes_are_refused_where_one_is_needed(mesh):
    def check(f, text):
        mapped = phalanx.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"), uneven="pad")
        with pytest.raises(ValueError) as error:
            mapped(values(17), values(18))
        assert str(error.value).endswith(text)

    check(
        lambda x, y: x + y,
        ", result: expected arguments of one size, to which dimension 0, split over 'x', is cut, got the sizes 17, 18, "
        "which have blocks of one size.\n"
        "  Fix: pad these arguments to one size, or return their results from calls of their own.",
    )
    check(
        lambda x, y: lax.valid_size("x"),
        "lax.valid_size, argument size: expected the size of a dimension, unless arguments of shard_map(uneven='pad') "
        "are split over 'x' and all of them have one size, got arguments of the sizes 17, 18.\n"
        "  Fix: pass the size without padding, as in lax.valid_size('x', 17).",
    )
    with pytest.raises(ValueError) as error:
        phalanx.shard_map(lambda x: x, mesh=mesh, in_specs=P("x"), out_specs=P("x"), uneven="cut")
    assert str(error.value) == (
        "shard_map, argument uneven: expected None or \"pad\", got 'cut'.\n"
        '  Fix: pass uneven="pad" for blocks that are padded to one size.'
    )


def test_checkpoints_exports_and_modules_take_uneven_shardings(mesh, tmp_path):
    rows, columns = (NamedSharding(mesh, spec) for spec in (P("x"), P(None, "x")))
    value = values(17, 5)
    x = phalanx.device_put(value, rows)
    checkpoint.save(tmp_path, {"x": x}, wait=True)
    for sharding in (rows, columns):
        loaded = checkpoint.load(tmp_path, shardings={"x": sharding})["x"]
        np.testing.assert_array_equal(loaded, value)
        assert loaded.sharding is sharding
    double = phalanx.jit(lambda x: x * 2, in_shardings=rows, out_shardings=columns)
    read = export.deserialize(export.export(double)(phalanx.ShapeDtypeStruct((17, 5), "float32")).serialize())
    np.testing.assert_array_equal(read.call(x), value * 2)
    with phalanx.set_mesh(mesh):
        table = nnx.Embed(17, 4, rngs=nnx.Rngs(0), embedding_metadata={"out_sharding": ("x", None)})
        optimizer = nnx.Optimizer(table, optim.adam(1e-3), wrt=nnx.Param)
        nnx.jit(lambda m, o, t: o.update(m, nnx.grad(lambda m: (m(t) ** 2).sum())(m)))(table, optimizer, np.arange(9))
    moments = [leaf for leaf in phalanx.tree.leaves(nnx.state((table, optimizer))) if leaf.shape == (17, 4)]
    assert len(moments) >= 3 and all(largest_shard(leaf) == 12 for leaf in moments)


def test_results_of_uneven_operands_that_compete_for_axes_are_not_replicated():
    square = auto_mesh((4, 2), "xy")
    x, y = (phalanx.device_put(values(8, 13), NamedSharding(square, P(*spec))) for spec in ("yx", "xy"))
    got = phalanx.jit(lambda x, y: x * y + x)(x, y)
    assert got.sharding is x.sharding and collectives(lambda x, y: x * y + x, x, y).bytes < 300  # of 416 in all
    np.testing.assert_allclose(got, values(8, 13) ** 2 + values(8, 13), rtol=1e-5)


def test_dimensions_of_one_element_keep_their_sharding(mesh):
    columns = NamedSharding(mesh, P(None, "x"))
    w = phalanx.device_put(values(16, 1), columns)
    gradient = phalanx.jit(phalanx.grad(lambda w: jnp.sum(w**2)))
    assert gradient(w).sharding is columns and collectives(gradient, w).bytes == 0
    np.testing.assert_allclose(gradient(w), 2 * values(16, 1))


@pytest.mark.parametrize("rows", [10, 12])
def test_updates_split_over_one_axis_of_two_are_scattered_where_they_are(rows):
    # 8 divides neither number of rows, and 4 divides 12.
    mesh = auto_mesh((4, 2), ("x", "y"))
    tokens = np.random.default_rng(0).integers(0, 17, (rows, 3))
    table = values(17, 6)
    gradient = phalanx.jit(phalanx.grad(lambda table, tokens: jnp.sin(table[tokens]).sum()))
    args = phalanx.device_put(table, NamedSharding(mesh, P())), phalanx.device_put(tokens, NamedSharding(mesh, P("x")))
    np.testing.assert_allclose(gradient(*args), gradient(table, tokens), rtol=1e-5)
    assert [(c.kind, c.bytes) for c in collectives(gradient, *args)] == [("all-reduce", table.nbytes)]


def test_one_update_for_many_devices_is_scattered_once(mesh):
    index, update = (
        phalanx.device_put(v, NamedSharding(mesh, P("x"))) for v in (np.array([1]), np.full((1, 2), 5, np.float32))
    )
    got = phalanx.jit(lambda x, i, u: x.at[i].max(u))(-np.ones((4, 2), np.float32), index, update)
    np.testing.assert_array_equal(got, [[-1, -1], [5, 5], [-1, -1], [-1, -1]])
