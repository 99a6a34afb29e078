import ml_dtypes
import numpy as np
import pytest
from tests.engine.programs import ADD_ONE, Aval, Whole, compiled, put, run

from phalanx.engine import buffers, callbacks, client, compiler, mlir, runtime_errors
from phalanx.engine.mlir import func, ir


def calling(function, aval, *, num_devices=1, times=1, results=None):
    """Compile a program of one parameter that gives what the Python function makes of it."""
    context = mlir.make_context()
    with context, ir.Location.unknown():
        tensor = ir.RankedTensorType.get(aval.shape, mlir.dtype_to_ir(aval.dtype))
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            main = func.FuncOp("main", ir.FunctionType.get([tensor], [tensor]))
            with ir.InsertionPoint(main.add_entry_block()):
                value = main.arguments[0]
                for _ in range(times):
                    (value,) = callbacks.emit_callback(
                        0, [value], [tensor], platform="cpu", module=module, num_partitions=num_devices
                    )
                func.ReturnOp([value])
    wrapped = callbacks.host_function(function, results or [aval], name="f", num_partitions=num_devices)
    devices = client.devices("cpu")[:num_devices]
    return compiler.compile_module(module, devices, host_callbacks=[wrapped])


def outcome(executable, argument, aval):
    """Read the result; what goes wrong comes up at the call or when the value is read."""
    try:
        (result,) = run(executable, [put(argument)], [aval])
    except runtime_errors.XlaRuntimeError as error:
        raise runtime_errors.unwrap_callback_error(error) from None
    return buffers.to_host(result)


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "float32", "complex64", ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.int4],
    ids=str,
)
def test_a_python_function_is_called_with_arrays_and_gives_arrays(dtype):
    aval = Aval((2, 4), dtype)
    argument = (np.arange(8).reshape(2, 4) % 2).astype(dtype)
    if dtype is ml_dtypes.int4:  # XLA's packed types come as bytes.
        seen_aval = Aval((2, 4), "int8")
    else:
        seen_aval = aval
    executable = calling(lambda x: (x[::-1],), aval, results=[seen_aval])
    np.testing.assert_array_equal(outcome(executable, argument, aval), argument[::-1])


def test_operands_may_be_kept():
    kept = []
    aval = Aval((8,), "f4")
    outcome(calling(lambda x: (kept.append(x), (x,))[1], aval), np.ones(8, "f4"), aval)
    np.testing.assert_array_equal(kept[0], np.ones(8))
    kept[0][:] = 2


def test_ordered_calls_follow_each_other():
    seen = []
    aval = Aval((), "i4")

    def count(x):
        seen.append(int(x))
        return (x + 1,)

    assert outcome(calling(count, aval, times=3), np.int32(5), aval) == 8
    assert seen == [5, 6, 7]


class OurError(Exception):
    pass


@pytest.mark.parametrize("size", [1, 1 << 16])
def test_the_callers_exception_is_the_one_that_was_raised(size):
    def fail(x):
        raise OurError("of all things")

    aval = Aval((size,), "f4")
    with pytest.raises(OurError, match="^of all things$"):
        outcome(calling(fail, aval), np.ones(size, "f4"), aval)


def test_waiting_raises_it_too():
    def fail(x):
        raise OurError("while waiting")

    aval = Aval((1 << 16,), "f4")
    executable = calling(fail, aval)
    with pytest.raises(OurError, match="^while waiting$"):
        try:
            buffers.block_until_ready(run(executable, [put(np.ones(1 << 16, "f4"))], [aval]))
        except runtime_errors.XlaRuntimeError as error:
            raise runtime_errors.unwrap_callback_error(error) from None


def test_another_error_of_xla_is_given_back_as_it_is():
    error = runtime_errors.XlaRuntimeError("INTERNAL: something else")
    assert runtime_errors.unwrap_callback_error(error) is error


@pytest.mark.parametrize(
    "given, text",
    [
        (
            lambda x: (x[:2],),
            "results of f, result 0: expected float32[8], got float32[2].\n  Fix: convert it to float32[8]",
        ),
        (
            lambda x: (x.astype("f8"),),
            "results of f, result 0: expected float32[8], got float64[8].\n  Fix: convert it to float32[8]",
        ),
        (lambda x: (x, x), "results of f: expected 1 arrays, got 2.\n  Fix: return 1 arrays"),
        (lambda x: None, "results of f: expected 1 arrays, got 0.\n  Fix: return 1 arrays"),
    ],
)
def test_results_of_another_kind_are_errors_and_never_read(given, text):
    aval = Aval((8,), "f4")
    with pytest.raises(callbacks.CallbackResultError) as error:
        outcome(calling(given, aval), np.ones(8, "f4"), aval)
    assert str(error.value) == text + ", or change result_shape_dtypes."


def test_on_several_devices_one_makes_the_call_for_all():
    seen = []
    aval = Aval((8,), "f4")

    def add_one(x):
        seen.append(x.shape)
        return (x + 1,)

    executable = calling(add_one, aval, num_devices=4, times=2)
    devices = client.devices("cpu")[:4]
    argument = buffers.put_shards(aval, Whole(devices), [np.ones(8, "f4")] * 4, devices)
    (result,) = executable.execute_sharded([argument]).consume_with_handlers(
        [buffers.result_handler(aval, Whole(devices))]
    )
    for piece in buffers.shards(result):
        np.testing.assert_array_equal(buffers.to_host(piece), np.full(8, 3))
    assert seen == [(8,)] * 2


def test_operands_of_any_layout_arrive_in_numpys_order():
    aval = Aval((3, 5), "f4")
    argument = np.arange(15, dtype="f4").reshape(3, 5)
    np.testing.assert_array_equal(outcome(calling(lambda x: (x.T.copy().T,), aval), argument, aval), argument)


def test_an_exception_on_several_devices_reaches_whoever_waits_next():
    def fail(x):
        raise OurError("on one of four")

    aval = Aval((8,), "f4")
    executable = calling(fail, aval, num_devices=4)
    devices = client.devices("cpu")[:4]
    argument = buffers.put_shards(aval, Whole(devices), [np.ones(8, "f4")] * 4, devices)
    (result,) = executable.execute_sharded([argument]).consume_with_handlers(
        [buffers.result_handler(aval, Whole(devices))]
    )
    with pytest.raises(OurError, match="^on one of four$"):
        buffers.block_until_ready([result])
    buffers.block_until_ready([result])


def test_a_callback_may_run_programs_itself():
    aval = Aval((8,), "f4")
    inner = compiled(ADD_ONE)

    def call(x):
        (result,) = run(inner, [put(x)], [aval])
        return (buffers.to_host(result),)

    np.testing.assert_array_equal(outcome(calling(call, aval), np.ones(8, "f4"), aval), np.full(8, 2))


@pytest.mark.parametrize(
    "dtype", ["float32", "complex64", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4, "int32", "bool"]
)
def test_the_results_of_a_failed_call_among_several_devices_are_not_plausible_numbers(dtype):
    """Other processes may read them before they learn of the failure."""

    def fail(x):
        raise OSError("disk full")

    aval = Aval((2,), np.dtype(dtype))
    (result,) = callbacks.host_function(fail, [aval], num_partitions=2)(np.ones((2,), dtype))
    with pytest.raises(OSError, match="disk full"):
        runtime_errors.raise_late_failure()
    assert (result.shape, result.dtype) == (aval.shape, aval.dtype)
    is_exact = np.dtype(dtype).kind in "ib" or dtype is ml_dtypes.int4
    assert not np.any(result != 0) if is_exact else np.isnan(result).all()
