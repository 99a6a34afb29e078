"""Host taps in every nesting: values, order, transformations and devices that they tell."""

from __future__ import annotations

import io

import numpy as np
import pytest
from phalanx.experimental.host_callback import CallbackException, barrier_wait, call, id_print, id_tap

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.core.error_classes import RuleError
from phalanx.sharding import NamedSharding, P, make_mesh

X = np.array([3.0, 1.0, 2.0], np.float32)
ORDERED = pytest.mark.parametrize("ordered", [True, False])


class Taps:
    """A tap that remembers what it was called with."""

    def __init__(self):
        self.seen = []

    def __call__(self, arg, transforms, device=None):
        self.seen.append((np.asarray(arg).tolist(), transforms, device))

    def take(self):
        barrier_wait()
        seen, self.seen = self.seen, []
        return seen


@pytest.fixture
def taps():
    return Taps()


def batch(*dims):
    return ("batch", {"batch_dims": dims})


@ORDERED
def test_a_tap_receives_values_and_returns_them_unchanged(taps, ordered):
    f = lambda x: id_tap(taps, x * 2, ordered=ordered) + 1
    for run in (f, phalanx.jit(f)):
        np.testing.assert_array_equal(run(X), X * 2 + 1)
        assert taps.take() == [([6.0, 2.0, 4.0], (), None)]
    assert id_tap(taps, 1.0, result="other") == "other"
    assert taps.take() == [(1.0, (), None)]


def test_a_tap_accepts_trees():
    seen = []
    tree = {"a": jnp.ones(2), "b": (jnp.zeros(1), 3)}
    out = phalanx.jit(lambda t: id_tap(lambda arg, transforms: seen.append(arg), t))(tree)
    barrier_wait()
    assert phalanx.tree.map(lambda x: np.asarray(x).tolist(), seen) == [{"a": [1.0, 1.0], "b": ([0.0], 3)}]
    assert phalanx.tree.structure(out) == phalanx.tree.structure(tree)


@ORDERED
@pytest.mark.parametrize("run", [lambda f: f, phalanx.jit])
def test_under_vmap_there_is_one_call_for_the_batch(taps, ordered, run):
    f = lambda x, y: id_tap(lambda arg, t: taps(arg[0] + 0 * arg[1].sum(), t), (x, y), ordered=ordered)[0]
    run(phalanx.vmap(f, in_axes=(0, None)))(X, 1.0)
    assert taps.take() == [([3.0, 1.0, 2.0], (batch(0, None),), None)]
    g = lambda x: id_tap(taps, x, ordered=ordered)
    run(phalanx.vmap(phalanx.vmap(g), in_axes=1))(np.ones((2, 3)))
    (seen,) = taps.take()
    assert seen[1] == (batch(0), batch(1))
    assert np.shape(seen[0]) == (2, 3)


@ORDERED
@pytest.mark.parametrize("run", [lambda f: f, phalanx.jit])
def test_under_derivatives_the_primal_values_are_tapped(taps, ordered, run):
    f = lambda x: (id_tap(taps, x, ordered=ordered) ** 2).sum()
    np.testing.assert_array_equal(run(phalanx.grad(f))(X), 2 * X)
    assert taps.take() == [([3.0, 1.0, 2.0], (), None)]
    run(lambda x: phalanx.jvp(f, (x,), (x,)))(X)
    assert taps.take() == [([3.0, 1.0, 2.0], (), None)]
    run(phalanx.vmap(phalanx.grad(lambda x: id_tap(taps, x, ordered=ordered) ** 2)))(X)
    assert taps.take() == [([3.0, 1.0, 2.0], (batch(0),), None)]
    run(phalanx.grad(lambda x: phalanx.vmap(lambda v: id_tap(taps, v, ordered=ordered) ** 2)(x).sum()))(X)
    assert taps.take() == [([3.0, 1.0, 2.0], (batch(0),), None)]
    run(phalanx.hessian(f))(X)
    assert ([3.0, 1.0, 2.0], (), None) in taps.take()


def test_in_loops_and_branches_taps_come_in_order(taps):
    def body(carry, x):
        lax.cond(x > 1, lambda: id_tap(taps, -x), lambda: id_tap(taps, 0 * x))
        return id_tap(taps, carry + x), None

    phalanx.jit(lambda: lax.scan(body, 0.0, X))()
    assert [value for value, _, _ in taps.take()] == [-3.0, 3.0, 0.0, 4.0, -2.0, 6.0]
    phalanx.jit(lambda n: lax.while_loop(lambda i: i < n, lambda i: id_tap(taps, i) + 1, 0))(3)
    assert [value for value, _, _ in taps.take()] == [0, 1, 2]
    phalanx.jit(phalanx.grad(lambda x: lax.scan(body, x, X)[0]))(0.0)
    assert [value for value, _, _ in taps.take()] == [-3.0, 3.0, 0.0, 4.0, -2.0, 6.0]
    phalanx.jit(phalanx.vmap(lambda x: lax.scan(lambda c, v: (id_tap(taps, c + v), None), x, X)[0]))(np.zeros(2))
    assert [(v, len(t)) for v, t, _ in taps.take()] == [([3.0] * 2, 1), ([4.0] * 2, 1), ([6.0] * 2, 1)]


@ORDERED
def test_taps_of_several_programs_come_in_order(taps, ordered):
    f = phalanx.jit(lambda x: id_tap(taps, x, ordered=ordered))
    for i in range(20):
        f(i)
    seen = [value for value, _, _ in taps.take()]
    assert (seen if ordered else sorted(seen)) == list(range(20))


@ORDERED
@pytest.mark.parametrize("run", [lambda f: f, phalanx.jit])
def test_a_tap_receives_its_device(taps, ordered, run):
    f = run(lambda x: id_tap(taps, x, tap_with_device=True, ordered=ordered))
    for device in (phalanx.devices()[0], phalanx.devices()[3]):
        f(phalanx.device_put(1.0, device))
        assert taps.take() == [(1.0, (), device)]


@ORDERED
@pytest.mark.parametrize("run", [lambda f: f, phalanx.jit])
def test_one_device_taps_the_unsharded_array_on_a_mesh(taps, ordered, run):
    x = phalanx.device_put(np.arange(8.0), NamedSharding(make_mesh((4, 2), ("x", "y")), P(("x", "y"))))
    for number in (0, 5):
        tap = lambda v: id_tap(taps, v, tap_with_device=True, device_index=number, ordered=ordered)  # noqa: B023
        np.testing.assert_array_equal(run(lambda v: tap(v) * 2)(x), np.arange(8.0) * 2)  # noqa: B023
        assert taps.take() == [(list(range(8)), (), phalanx.devices()[number])]
        np.testing.assert_array_equal(run(phalanx.grad(lambda v: (tap(v) ** 2).sum()))(x), np.arange(8.0) * 2)  # noqa: B023
        assert taps.take() == [(list(range(8)), (), phalanx.devices()[number])]
        run(phalanx.vmap(lambda v: tap(v) * 2))(x)  # noqa: B023
        assert taps.take() == [(list(range(8)), (batch(0),), phalanx.devices()[number])]
        run(lambda v: lax.scan(lambda c, _: (tap(c) * 2, None), v, None, length=2)[0])(x)  # noqa: B023
        assert [seen[0][1] for seen in taps.take()] == [1.0, 2.0]
    with pytest.raises(ValueError, match="expected one of the 8 devices"):
        run(lambda v: id_tap(taps, v, tap_with_device=True, device_index=8))(x)


def test_prints(capfd):
    phalanx.jit(lambda x: id_print(x, what="x", tap_with_device=True))(X)
    phalanx.vmap(lambda x: id_print({"a": x, "b": 1}))(X)
    barrier_wait()
    assert capfd.readouterr().out == (
        "what: x  device: cpu:0\n"
        "[3. 1. 2.]\n"
        "transforms: [('batch', {'batch_dims': (0, None)})]\n"
        "{'a': [3. 1. 2.], 'b': 1}\n"
    )
    stream = io.StringIO()
    id_print(np.arange(100), output_stream=stream, threshold=5)
    assert stream.getvalue() == "[ 0  1  2 ... 97 98 99]\n"


@ORDERED
def test_calls_return_values(ordered):
    shape = phalanx.ShapeDtypeStruct((3,), "float32")
    f = lambda x: call(np.sort, x, result_shape=shape, ordered=ordered) + 1
    for run in (f, phalanx.jit(f)):
        np.testing.assert_array_equal(run(X), np.sort(X) + 1)
    devices = []

    def on_device(arg, device):
        devices.append(device)
        return arg["x"] * 2

    there = phalanx.device_put(X, phalanx.devices()[2])
    g = phalanx.jit(lambda x: call(on_device, {"x": x}, result_shape=shape, call_with_device=True, ordered=ordered))
    np.testing.assert_array_equal(g(there), X * 2)
    assert devices == [phalanx.devices()[2]]
    mapped = phalanx.jit(phalanx.vmap(f))
    if not ordered:
        np.testing.assert_array_equal(mapped(np.stack([X, -X])), [np.sort(X) + 1, np.sort(-X) + 1])
        return
    with pytest.raises(RuleError) as error:
        mapped(X[None])
    assert str(error.value) == (
        "vmap of an ordered callback: expected a callback without order, got OrderedIO.\n"
        "  Fix: give ordered=False, or use lax.map instead of vmap."
    )


@ORDERED
def test_exceptions_of_taps_are_raised_by_the_barrier(ordered):
    def fail(arg, transforms):
        raise LookupError("from the tap")

    x = phalanx.device_put(np.arange(8.0), NamedSharding(make_mesh((8,), ("x",)), P("x")))
    for value in (X, x):
        with pytest.raises(LookupError, match="from the tap") as error:
            phalanx.jit(lambda v: id_tap(fail, v, ordered=ordered))(value)
            barrier_wait()
        assert error.traceback[-1].name == "fail" and isinstance(error.value, CallbackException)
    with pytest.raises(TypeError) as error:
        id_tap(None, X)
    assert str(error.value) == "id_tap, tap_func: expected a function, got None.\n  Fix: pass a callable for tap_func."
