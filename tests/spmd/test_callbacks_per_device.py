"""Callbacks and taps in the per-device view: each device calls, with its piece, and is named."""

from __future__ import annotations

import numpy as np
import pytest

import phalanx
from phalanx import lax
from phalanx.core.errors import RuleError
from phalanx.experimental import io_callback
from phalanx.experimental.host_callback import barrier_wait, call, id_print, id_tap
from phalanx.sharding import NamedSharding, P, make_mesh

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
def test_each_device_taps_its_piece_and_is_named(mesh, taps, ordered, run):
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


def test_devices_of_a_mesh_in_another_order_are_named_right(taps):
    mesh = phalanx.sharding.Mesh(np.array(phalanx.devices())[::-1], ("x",))
    f = phalanx.shard_map(lambda x: id_tap(taps, x, tap_with_device=True), mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    out = phalanx.jit(f)(phalanx.device_put(X, NamedSharding(mesh, P("x"))))
    assert {s.device.id: s.data.tolist() for s in out.addressable_shards} == {i: [7.0 - i] for i in range(8)}
    assert taps.take() == {i: [([7.0 - i], ())] for i in range(8)}


def test_calls_give_each_device_its_own(mesh):
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
def test_an_exception_on_one_device_reaches_whoever_waits(mesh, ordered):
    def fail(arg, transforms, device):
        if device.id == 3:
            raise LookupError("from device 3")

    f = each(mesh, lambda x: lax.psum(id_tap(fail, x, tap_with_device=True, ordered=ordered), "x") + x)
    with pytest.raises(LookupError, match="from device 3") as error:
        phalanx.block_until_ready(phalanx.jit(f)(X))
        barrier_wait()
    assert error.traceback[-1].name == "fail"


def test_between_the_views_only_pure_calls_are_made(mesh):
    some = lambda f: phalanx.jit(phalanx.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"}))
    x = phalanx.device_put(X.reshape(4, 2), NamedSharding(mesh, P("x", "y")))
    shape = phalanx.ShapeDtypeStruct((1, 2), "float32")
    np.testing.assert_array_equal(some(lambda x: phalanx.pure_callback(np.negative, shape, x))(x), -x)
    with pytest.raises(RuleError) as error:
        some(lambda x: id_tap(print, x))(x)
    assert str(error.value) == (
        "callback inside a shard_map: expected one that runs on each device by itself along all axes of the mesh, or a "
        "pure_callback, got an effect, where the partitioner keeps 'y'.\n"
        "  To mend: leave axis_names out, or make the call outside of the shard_map."
    )


def test_a_tap_may_look_at_what_is_shared(mesh, taps):
    f = phalanx.shard_map(
        lambda x: id_tap(taps, lax.psum(x, ("x", "y")), tap_with_device=True),
        mesh=mesh,
        in_specs=P(("x", "y")),
        out_specs=P(),
    )
    np.testing.assert_array_equal(phalanx.jit(f)(X), [28.0])
    assert taps.take() == {i: [([28.0], ())] for i in range(8)}
