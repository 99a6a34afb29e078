"""Host functions called from compiled programs."""

import gc
import re
import weakref

import numpy as np
import pytest
from phalanx.experimental import io_callback

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.core.error_classes import ArgumentError, RuleError
from phalanx.lax.callback import host_callback_p
from phalanx.runtime import in_flight
from phalanx.sharding import NamedSharding, PartitionSpec

X = np.array([3.0, 1.0, 2.0], np.float32)
SHAPE = phalanx.ShapeDtypeStruct((3,), "float32")


def sort(x):
    return phalanx.pure_callback(np.sort, SHAPE, x)


def test_pure_callback_under_every_transformation():
    np.testing.assert_array_equal(sort(X), np.sort(X))
    np.testing.assert_array_equal(phalanx.jit(sort)(X), np.sort(X))
    np.testing.assert_array_equal(lax.scan(lambda c, _: (sort(c) + 1, None), X, None, length=2)[0], np.sort(X) + 2)
    batch = np.stack([X, -X])
    for method in ("sequential", "expand_dims", "broadcast_all"):
        f = lambda x: phalanx.pure_callback(lambda v: np.sort(v, -1), SHAPE, x, vmap_method=method)  # noqa: B023
        np.testing.assert_array_equal(phalanx.jit(phalanx.vmap(f))(batch), np.sort(batch, -1))
    with pytest.raises(RuleError, match="vmap_method"):
        phalanx.vmap(sort)(batch)
    with pytest.raises(RuleError, match="differentiation of a callback"):
        phalanx.grad(lambda x: sort(x).sum())(X)


def test_a_sequential_callback_works_on_sharded_rows():
    mesh = phalanx.make_mesh((8,), ("x",))  # Explicit: the types say that rows lie apart
    x = phalanx.device_put(np.arange(8.0, dtype=np.float32), NamedSharding(mesh, PartitionSpec("x")))
    double = lambda v: phalanx.pure_callback(
        lambda u: 2 * u, phalanx.ShapeDtypeStruct((), x.dtype), v, vmap_method="sequential"
    )
    np.testing.assert_array_equal(phalanx.jit(phalanx.vmap(lambda v: v + double(v)))(x), 3 * np.arange(8.0))


def test_callbacks_keep_their_order():
    seen = []

    @phalanx.jit
    def f(x):
        io_callback(lambda v: seen.append(("first", float(v))), None, x, ordered=True)
        lax.fori_loop(
            0, 3, lambda i, c: (io_callback(lambda v: seen.append(("loop", int(v))), None, i, ordered=True), c)[1], 0
        )
        lax.cond(x > 0, lambda: io_callback(lambda: seen.append("positive"), None, ordered=True), lambda: None)
        io_callback(lambda: seen.append("last"), None, ordered=True)
        return x

    f(1.0)
    f(2.0)
    phalanx.effects_barrier()
    once = [("loop", 0), ("loop", 1), ("loop", 2), "positive", "last"]
    assert seen == [("first", 1.0), *once, ("first", 2.0), *once]


def test_the_barrier_waits_for_every_program():
    waited = []

    class Token:
        def __init__(self, number):
            self.block_until_ready = lambda: waited.append(number)

    phalanx.effects_barrier()
    for number in range(100):
        in_flight.add_token(Token(number))
    assert waited == list(range(36))  # those that were too many to keep
    phalanx.effects_barrier()
    assert waited == list(range(100))

    class Failed:
        def block_until_ready(self):
            raise LookupError("from the program")

    for token in (Failed(), Token(100)):
        in_flight.add_token(token)
    with pytest.raises(LookupError, match="from the program"):
        phalanx.effects_barrier()
    assert waited[-1] == 100


def test_exceptions_reach_the_caller():
    def fail(x):
        raise KeyError("from the host")

    with pytest.raises(KeyError, match="from the host"):
        phalanx.block_until_ready(phalanx.jit(lambda x: phalanx.pure_callback(fail, SHAPE, x))(X))


def test_an_exception_of_a_callback_keeps_its_traceback():
    def fail(x):
        raise KeyError("from the host")

    mesh = phalanx.make_mesh((8,), ("d",))
    sharded = phalanx.device_put(np.ones(8), phalanx.NamedSharding(mesh, phalanx.P("d")))
    for run, x in ((lambda f: f, X), (phalanx.jit, X), (phalanx.jit, sharded)):
        with pytest.raises(KeyError, match="from the host") as error:
            run(lambda x: io_callback(fail, None, x))(x)
            phalanx.effects_barrier()
        frames = [entry.name for entry in error.traceback]
        assert frames[-1] == "fail"


def test_eager_callbacks_are_not_kept_alive():
    before = len(host_callback_p.calls)
    for i in range(3):
        assert phalanx.pure_callback(lambda x: x + 1, phalanx.ShapeDtypeStruct((), "int32"), i) == i + 1
    assert len(host_callback_p.calls) == before
    key = phalanx.random.key(0)
    seen = []
    phalanx.debug.callback(seen.append, key)
    np.testing.assert_array_equal(seen[0], phalanx.random.key_data(key))
    there = phalanx.device_put(X, phalanx.devices()[3])
    assert phalanx.pure_callback(np.sort, SHAPE, there).devices() == {phalanx.devices()[3]}


def test_differentiating_a_callback_is_an_error_unless_its_result_is_an_integer():
    count = lambda x: io_callback(lambda v: np.int32(v.size), phalanx.ShapeDtypeStruct((), "int32"), x)
    np.testing.assert_array_equal(phalanx.grad(lambda x: x.sum() * count(x))(X), np.full(3, 3.0))
    with pytest.raises(RuleError, match="differentiation of a callback"):
        phalanx.grad(lambda x: io_callback(np.sum, phalanx.ShapeDtypeStruct((), "float32"), x))(X)


def test_the_sharding_argument_selects_the_device_that_calls():
    mesh = phalanx.make_mesh((8,), ("d",))
    x = phalanx.device_put(np.arange(8.0, dtype=np.float32), phalanx.NamedSharding(mesh, phalanx.P("d")))
    there = phalanx.sharding.SingleDeviceSharding(phalanx.devices()[5])
    shape = phalanx.ShapeDtypeStruct((8,), "float32")
    f = phalanx.jit(lambda x: phalanx.pure_callback(lambda v: v * 2, shape, x, sharding=there))
    assert "callback_device_5" in f.lower(x).as_text()
    np.testing.assert_array_equal(f(x), np.arange(8) * 2)
    with pytest.raises(ArgumentError) as error:
        elsewhere = phalanx.device_put(x, phalanx.NamedSharding(phalanx.make_mesh((2,), ("d",)), phalanx.P("d")))
        phalanx.jit(lambda x: phalanx.pure_callback(lambda v: v * 2, shape, x, sharding=there))(elsewhere)
    assert re.sub(r", at \S+ \(.*?\)", ", at LINE", str(error.value)) == (
        "device of a callback, at LINE: expected one of the 2 devices that the program runs on, or its number among them, got "
        "CpuDevice(id=5).\n"
        "  Fix: pass a device of the program's mesh, or leave the argument out."
    )
    with pytest.raises(TypeError, match="None or a SingleDeviceSharding"):
        phalanx.pure_callback(np.sort, SHAPE, X, sharding=x.sharding)


def test_wrong_results_of_callbacks_are_errors():
    with pytest.raises(ValueError, match="change result_shape_dtypes"):
        phalanx.block_until_ready(phalanx.pure_callback(lambda x: x[:2], SHAPE, X))


def test_results_of_64_bits_are_narrowed_without_x64():
    def call(result, dtype):
        shape = phalanx.ShapeDtypeStruct(np.shape(result), dtype)
        return phalanx.jit(lambda x: phalanx.pure_callback(lambda _: result, shape, x))(1.0)

    assert call(np.float64(2.5), "float32") == 2.5
    assert call(np.arange(3), "int32").tolist() == [0, 1, 2]
    assert call(3, "bfloat16") == 3
    with phalanx.enable_x64(True), pytest.raises(ValueError, match=r"expected float32\[\], got float64\[\]"):
        call(np.float64(2.5), "float32").block_until_ready()
    for result in (2.7, np.float64(2.7), np.float32(2.7)):
        with pytest.raises(ValueError, match=r"expected int32\[\], got float"):
            call(result, "int32").block_until_ready()


def test_debug_print_shows_values(capfd):
    @phalanx.jit
    def f(x):
        phalanx.debug.print("sum {s} of {}", x, s=x.sum(), ordered=True)
        return x

    f(X)
    phalanx.grad(lambda x: f(x).sum())(X)
    phalanx.effects_barrier()
    assert capfd.readouterr().out == "sum 6.0 of [3. 1. 2.]\n" * 2
    with pytest.raises(ArgumentError) as e:
        phalanx.debug.print("{missing}")
    assert "no f-strings" in str(e.value)


def test_debug_callbacks_run_under_gradients_and_in_dead_code():
    seen = []

    def f(x):
        phalanx.debug.callback(lambda v: seen.append(np.asarray(v).shape), x)
        return jnp.sin(x).sum()

    phalanx.jit(phalanx.grad(f))(X)
    phalanx.effects_barrier()
    assert seen == [(3,)]
    phalanx.vmap(f)(np.stack([X, X]))
    phalanx.effects_barrier()
    assert seen == [(3,)] * 3


def test_callbacks_on_a_mesh_receive_unsharded_arrays():
    mesh = phalanx.make_mesh((8,), ("d",))
    x = phalanx.device_put(np.arange(8, dtype=np.float32), phalanx.sharding.NamedSharding(mesh, phalanx.P("d")))
    seen = []
    f = phalanx.jit(
        lambda v: phalanx.pure_callback(
            lambda a: (seen.append(a.shape), a * 2)[1], phalanx.ShapeDtypeStruct((8,), "float32"), v
        )
    )
    np.testing.assert_array_equal(f(x), np.arange(8) * 2)
    assert seen == [(8,)]


@pytest.mark.parametrize("num_devices", [1, 8])
def test_failed_callbacks_do_not_keep_their_operands(num_devices):
    operands = []

    def fail(x):
        operands.append(weakref.ref(x))
        raise KeyError("from the host")

    mesh = phalanx.sharding.Mesh(phalanx.devices()[:num_devices], ("d",))
    x = phalanx.device_put(np.ones(8), phalanx.NamedSharding(mesh, phalanx.P("d")))
    f = phalanx.jit(lambda x: phalanx.pure_callback(fail, SHAPE, x))
    for _ in range(20):
        with pytest.raises(KeyError, match="from the host"):
            f(x).block_until_ready()
    gc.collect()
    assert sum(operand() is not None for operand in operands) <= 5  # of the last few, for a debugger


def test_failed_callbacks_do_not_keep_arguments_and_results_of_their_callers():
    def fail(x):
        raise KeyError("from the host")

    f, held = phalanx.jit(lambda x: phalanx.pure_callback(fail, SHAPE, x)), []

    def call():
        x = phalanx.device_put(np.ones(8, np.float32))
        held.append(weakref.ref(x))
        y = f(x)
        held.append(weakref.ref(y))
        y.block_until_ready()

    def batches():
        while True:
            try:
                call()
            except KeyError as error:
                yield error

    drawn = batches()
    errors = [next(drawn) for _ in range(20)]
    assert all(isinstance(error, KeyError) for error in errors)  # a caller that is a generator goes on
    # A frame that a traceback holds keeps its callers, and a reader adds frames to the traceback.
    del errors
    gc.collect()
    assert sum(x() is not None for x in held) <= 10  # of the last few, for a debugger


@pytest.mark.parametrize("dtype", ["float4_e2m1fn", "float8_e4m3fn", "int4", "uint2"])
def test_narrow_dtypes_pass_to_and_from_host_functions(dtype):
    x = jnp.arange(3).astype(dtype)
    seen = []

    def double(v):
        seen.append(v.dtype)
        return (v.astype(np.float32) * 0.5).astype(v.dtype)

    call = lambda x: phalanx.pure_callback(double, phalanx.ShapeDtypeStruct((3,), dtype), x)
    for found in (call(x), phalanx.jit(call)(x)):
        np.testing.assert_array_equal(np.asarray(found, np.float32), np.asarray(double(np.asarray(x)), np.float32))
    assert {*seen} == {x.dtype}


class HostError(Exception):
    def __init__(self, code):
        super().__init__("failed on the host")
        self.code = code


@pytest.mark.parametrize("error", [KeyError("a"), HostError(7), OSError(2, "none")], ids=["built-in", "user's", "in C"])
@pytest.mark.parametrize("call", [phalanx.pure_callback, io_callback])
@pytest.mark.parametrize("jit", [lambda f: f, phalanx.jit])
def test_the_error_of_a_callback_is_the_users_and_that_of_xla(error, call, jit):
    def fail(x):
        raise error

    with pytest.raises(type(error)) as caught:
        np.asarray(jit(lambda x: call(fail, SHAPE, x))(X))
    assert caught.value.args == error.args and getattr(caught.value, "code", 7) == 7
    assert isinstance(caught.value, RuntimeError) or isinstance(error, OSError)
    assert str(caught.value) == str(error)
