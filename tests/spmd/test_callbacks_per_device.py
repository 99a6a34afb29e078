"""Callbacks and taps in the per-device view: each device calls, with its piece, and is named."""

from __future__ import annotations

import numpy as np
import pytest
from phalanx.experimental import io_callback
from phalanx.experimental.host_callback import barrier_wait, call, id_print, id_tap

import phalanx
from phalanx import lax
from phalanx.sharding import AxisType, NamedSharding, P, make_mesh

X = np.arange(8.0, dtype=np.float32)
ORDERED = pytest.mark.parametrize("ordered", [True, False])


@pytest.fixture
def mesh():
    return make_mesh((4, 2), ("x", "y"))


class Taps:
    """A tap that remembers what each device showed, in the order of each."""

    def __init__(self):
        self.seen = []

    def __call__(self, arg, transforms, device=None):
        self.seen.append((device, np.asarray(arg).tolist(), transforms))

    def take(self):
        barrier_wait()
        seen, self.seen = self.seen, []
        by_device = {}
        for device, value, transforms in seen:
            by_device.setdefault(device.id, []).append((value, transforms))
        return by_device


@pytest.fixture
def taps():
    return Taps()


def each(mesh, f):
    return phalanx.shard_map(f, mesh=mesh, in_specs=P(("x", "y")), out_specs=P(("x", "y")))


@ORDERED
@pytest.mark.parametrize("run", [lambda f: f, phalanx.jit])
def test_each_device_taps_its_shard_and_passes_its_device(mesh, taps, ordered, run):
    tap = lambda x: id_tap(taps, x, tap_with_device=True, ordered=ordered)
    np.testing.assert_array_equal(run(each(mesh, lambda x: tap(x) * 2))(X), 2 * X)
    assert taps.take() == {i: [([float(i)], ())] for i in range(8)}
    run(phalanx.grad(lambda x: each(mesh, lambda x: tap(x) ** 2)(x).sum()))(X)
    assert taps.take() == {i: [([float(i)], ())] for i in range(8)}
    run(phalanx.vmap(each(mesh, lambda x: tap(x) * 2)))(np.stack([X, -X]))
    batch = (("batch", {"batch_dims": (0,)}),)
    assert taps.take() == {i: [([[float(i)], [-float(i)]], batch)] for i in range(8)}


def test_in_a_loop_each_device_keeps_its_order(mesh, taps):
    def body(carry, _):
        carry = id_tap(taps, carry, tap_with_device=True) + lax.axis_index("x").astype(np.float32)
        return carry, None

    f = each(mesh, lambda x: lax.scan(body, x, None, length=3)[0])
    phalanx.jit(f)(X)
    wanted = {i: [([float(i + k * (i // 2))], ()) for k in range(3)] for i in range(8)}
    assert taps.take() == wanted
    phalanx.jit(phalanx.grad(lambda x: f(x).sum()))(X)
    assert taps.take() == wanted


def test_taps_receive_the_right_device_on_a_permuted_mesh(taps):
    mesh = phalanx.sharding.Mesh(np.array(phalanx.devices())[::-1], ("x",))
    f = phalanx.shard_map(lambda x: id_tap(taps, x, tap_with_device=True), mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    out = phalanx.jit(f)(phalanx.device_put(X, NamedSharding(mesh, P("x"))))
    assert {s.device.id: s.data.tolist() for s in out.addressable_shards} == {i: [7.0 - i] for i in range(8)}
    assert taps.take() == {i: [([7.0 - i], ())] for i in range(8)}


def test_each_device_receives_the_result_of_its_call(mesh):
    shape = phalanx.ShapeDtypeStruct((1,), "float32")

    def twice_and_where(x, device):
        return np.float32(2 * x + 100 * device.id)

    f = each(mesh, lambda x: call(twice_and_where, x, result_shape=shape, call_with_device=True))
    np.testing.assert_array_equal(phalanx.jit(f)(X), 2 * X + 100 * np.arange(8))
    g = each(mesh, lambda x: phalanx.pure_callback(lambda v: v + 1, shape, x))
    np.testing.assert_array_equal(phalanx.jit(g)(X), X + 1)
    seen = []
    h = each(mesh, lambda x: io_callback(lambda v: (seen.append(float(v[0])), v)[1], shape, x, ordered=True))
    np.testing.assert_array_equal(phalanx.jit(h)(X), X)
    phalanx.effects_barrier()
    assert sorted(seen) == X.tolist()


def test_prints_name_the_device(mesh, capfd):
    phalanx.jit(each(mesh, lambda x: id_print(x, tap_with_device=True)))(X)
    barrier_wait()
    pairs = capfd.readouterr().out.splitlines()
    assert sorted(zip(pairs[::2], pairs[1::2])) == [(f"device: cpu:{i}", f"[{float(i):.0f}.]") for i in range(8)]


@ORDERED
def test_an_exception_on_one_device_is_raised_by_the_barrier(mesh, ordered):
    def fail(arg, transforms, device):
        if device.id == 3:
            raise LookupError("from device 3")

    f = each(mesh, lambda x: lax.psum(id_tap(fail, x, tap_with_device=True, ordered=ordered), "x") + x)
    with pytest.raises(LookupError, match="from device 3") as error:
        phalanx.block_until_ready(phalanx.jit(f)(X))
        barrier_wait()
    assert error.traceback[-1].name == "fail"


@ORDERED
def test_one_device_calls_for_each_shard_of_a_partly_manual_shard_map(mesh, taps, ordered):
    some = lambda f: phalanx.jit(phalanx.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"}))
    x = phalanx.device_put(X.reshape(4, 2), NamedSharding(mesh, P("x", "y")))
    shape = phalanx.ShapeDtypeStruct((1, 2), "float32")
    np.testing.assert_array_equal(some(lambda x: phalanx.pure_callback(np.negative, shape, x))(x), -x)
    np.testing.assert_array_equal(some(lambda x: id_tap(taps, x, tap_with_device=True, ordered=ordered) * 2)(x), 2 * x)
    assert taps.take() == {2 * i: [([[2.0 * i, 2.0 * i + 1]], ())] for i in range(4)}

    def host(x, device):
        return x + device.id, x > 2

    shapes = (shape, phalanx.ShapeDtypeStruct((1, 2), "bool"))
    f = some(lambda x: call(host, x, result_shape=shapes, call_with_device=True, ordered=ordered))
    shifted, is_large = f(x)
    np.testing.assert_array_equal(shifted, x + 2 * np.arange(4)[:, None])
    np.testing.assert_array_equal(is_large, x > 2)


NESTINGS = {
    "pmap": (lambda f: phalanx.pmap(f), (8,), lambda i: [float(i)]),
    "pmap of pmap": (lambda f: phalanx.pmap(phalanx.pmap(f)), (4, 2), lambda i: [float(i)]),
    "pmap of vmap": (lambda f: phalanx.pmap(phalanx.vmap(f)), (4, 2), lambda i: [[2.0 * i, 2.0 * i + 1]]),
    "vmap of pmap": (lambda f: phalanx.vmap(phalanx.pmap(f)), (2, 4), lambda i: [[float(i), i + 4.0]]),
    "grad of pmap": (
        lambda f: phalanx.grad(lambda x: phalanx.pmap(lambda x: f(x) ** 2)(x).sum()),
        (8,),
        lambda i: [float(i)],
    ),
    "pmap of grad": (lambda f: phalanx.pmap(phalanx.grad(lambda x: f(x) ** 2)), (8,), lambda i: [float(i)]),
    "pmap of scan": (
        lambda f: phalanx.pmap(lambda x: lax.scan(lambda c, _: (f(c) + 1, None), x, None, length=2)[0]),
        (8,),
        lambda i: [float(i), i + 1.0],
    ),
}


@ORDERED
@pytest.mark.parametrize("run", [lambda f: f, phalanx.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("name", NESTINGS)
def test_taps_run_in_every_nesting_of_pmap(taps, name, run, ordered):
    nest, shape, wanted = NESTINGS[name]
    x = X[: np.prod(shape)].reshape(shape)
    tapped = run(nest(lambda x: id_tap(taps, x, tap_with_device=True, ordered=ordered)))
    np.testing.assert_array_equal(tapped(x), nest(lambda x: x)(x))
    seen = taps.take()
    assert {i: [value for value, _ in shown] for i, shown in seen.items()} == {i: wanted(i) for i in seen}
    assert len(seen) == (4 if "vmap" in name else 8)


def test_the_outer_of_two_pmaps_taps_once_for_each_row(taps):
    tap = lambda x: id_tap(taps, x, tap_with_device=True)
    f = phalanx.pmap(lambda x: tap(phalanx.pmap(lambda y: y * 2)(tap(x))))
    np.testing.assert_array_equal(f(X.reshape(4, 2)), 2 * X.reshape(4, 2))
    rows = X.reshape(4, 2).tolist()
    assert taps.take() == {2 * i: [(row, ()), ([2 * v for v in row], ())] for i, row in enumerate(rows)}


def test_a_function_without_results_still_taps(mesh, taps):
    f = phalanx.shard_map(
        lambda x: (id_tap(taps, x, tap_with_device=True), ())[1], mesh=mesh, in_specs=P(("x", "y")), out_specs=()
    )
    assert phalanx.jit(f)(X) == ()
    assert taps.take() == {i: [([float(i)], ())] for i in range(8)}


def test_a_replicated_value_can_be_tapped(mesh, taps):
    f = phalanx.shard_map(
        lambda x: id_tap(taps, lax.psum(x, ("x", "y")), tap_with_device=True),
        mesh=mesh,
        in_specs=P(("x", "y")),
        out_specs=P(),
    )
    np.testing.assert_array_equal(phalanx.jit(f)(X), [28.0])
    assert taps.take() == {i: [([28.0], ())] for i in range(8)}


def test_a_partitioned_callback_receives_the_shard_of_each_device():
    mesh = make_mesh((4, 2), ("x", "y"))
    x = phalanx.device_put(X.reshape(4, 2), NamedSharding(mesh, P("x", "y")))
    seen = []
    look = lambda x, label: phalanx.debug.callback(
        lambda v, s: seen.append((s, v.tolist())), x, label, partitioned=True, ordered=True
    )

    def take():
        phalanx.effects_barrier()
        pieces = sorted(seen)
        seen.clear()
        return pieces

    pieces = [("a", [[float(i)]]) for i in range(8)]
    look(x, "a")
    assert take() == pieces
    phalanx.jit(lambda x: (look(x, "a"), x * 2)[1])(x)
    assert take() == pieces
    phalanx.jit(phalanx.grad(lambda x: (look(x, "a"), (x**2).sum())[1]))(x)
    assert take() == pieces
    phalanx.shard_map(lambda x: (look(x, "a"), x)[1], mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"))(x)
    assert take() == pieces
    look(1.0, "b")
    assert take() == [("b", 1.0)]


def test_a_partitioned_callback_over_auto_axes_receives_the_shards_that_xla_chooses():
    mesh = make_mesh((4, 2), ("x", "y"), (AxisType.Auto, AxisType.Auto))
    x = phalanx.device_put(X.reshape(4, 2), NamedSharding(mesh, P("x", "y")))
    seen = []

    def look(x):
        phalanx.debug.callback(lambda v: seen.append(v.tolist()), x + 1, partitioned=True)
        return x * 2

    def take():
        phalanx.effects_barrier()
        pieces = sorted(seen)
        seen.clear()
        return pieces

    phalanx.jit(look)(x)
    assert take() == [[[i + 1.0]] for i in range(8)]
    # A loop takes one column after the other, whose shards are on two devices each.
    phalanx.jit(phalanx.vmap(look, in_axes=1, out_axes=1))(x)
    assert take() == sorted([i + 1.0] for i in range(8) for _ in range(2))
