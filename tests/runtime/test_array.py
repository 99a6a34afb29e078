"""The array as an object: its attributes, its life, its text, and how it leaves and comes back."""

import copy
import pickle
import sys
import tracemalloc

import numpy as np
import pytest
from tests.processes import run_python

import phalanx
import phalanx.numpy as jnp
from phalanx import random
from phalanx.core.error_classes import ArgumentError, ArgumentTypeError, DeletedArrayError
from phalanx.engine import buffer_deletion
from phalanx.sharding import Mesh, NamedSharding, PartitionSpec


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_random_keys_are_pickled_and_copied(impl):
    keys = random.split(random.key(3, impl=impl), 8)
    mesh = phalanx.make_mesh((8,), ("x",), axis_types=(phalanx.sharding.AxisType.Auto,))
    spread = phalanx.device_put(keys, phalanx.NamedSharding(mesh, phalanx.P("x")))
    for x in (keys, keys[0], spread):
        for back in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
            assert back.dtype == x.dtype and back.shape == x.shape
            assert random.key_data(back).tolist() == random.key_data(x).tolist()


def test_keys_show_their_words():
    assert repr(random.key(7)) == "Array((), dtype=key<fry>) overlaying:\n[0 7]"


def test_empty_arrays_show_their_shape():
    assert repr(jnp.ones(0)) == "Array([], shape=(0,), dtype=float32)"
    assert repr(jnp.ones((0, 3))) == "Array([], shape=(0, 3), dtype=float32)"
    assert repr(jnp.ones((512, 512))) == "Array(shape=(512, 512), dtype=float32)"  # 1 MiB, not copied to the host


def test_zeros_of_both_signs_are_told_apart_in_complex_numbers():
    """Equal numbers are one scalar to Python, and so were one array."""
    for angle in (jnp.angle, phalanx.jit(jnp.angle), lambda z: jnp.angle(jnp.full(1, z))[0]):
        assert [float(angle(complex(-1, zero))) > 0 for zero in (0.0, -0.0, 0.0)] == [True, False, True]


def test_a_deleted_array_is_a_value_and_a_runtime_error():
    x = jnp.arange(3.0)
    x.delete()
    for use in (lambda: x + 1, lambda: np.asarray(x), lambda: x.addressable_shards):
        with pytest.raises(DeletedArrayError) as e:
            use()
        assert isinstance(e.value, RuntimeError) and isinstance(e.value, ValueError)


def test_all_shards_of_this_process_have_data():
    mesh = phalanx.make_mesh((8,), ("x",), axis_types=(phalanx.sharding.AxisType.Auto,))
    x = phalanx.device_put(jnp.arange(8.0), phalanx.NamedSharding(mesh, phalanx.P("x")))
    assert [float(s.data[0]) for s in x.global_shards] == list(range(8))


def test_rows_put_again_and_again_hold_one_copy_at_a_time():
    sharding = NamedSharding(Mesh(np.array(phalanx.devices()[:8]), ("rows",)), PartitionSpec("rows"))
    rows = np.ones((8, 1 << 16), np.float32)
    np.asarray(phalanx.device_put(rows, sharding))  # loads modules
    tracemalloc.start()
    try:
        for _ in range(5):
            assert np.asarray(phalanx.device_put(rows, sharding))[7, 0] == 1
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * rows.nbytes


def test_arrays_and_tracers_name_their_namespace_and_sizes():
    assert jnp.ones(2).__array_namespace__() is jnp
    assert phalanx.jit(lambda x: x.__array_namespace__().sum(x) + x.nbytes + x.itemsize)(jnp.ones(3)) == 19


def test_a_conversion_that_may_not_copy_is_refused():
    with pytest.raises(ValueError):  # From Python 3.12 on NumPy reads the buffer, and the message is its own.
        np.array(jnp.ones(2), dtype="float64", copy=False)
    with pytest.raises(ArgumentError) as e:
        jnp.ones(2).__array__("float64", copy=False)
    assert str(e.value) == (
        "conversion to a NumPy array, argument copy: expected None or True, since float32 becomes float64, got False.\n"
        "  Fix: call numpy.asarray(x), which copies if it must."
    )


def test_from_dlpack_names_what_does_not_speak_it():
    with pytest.raises(ArgumentTypeError, match="from_dlpack: expected an object with __dlpack__ and __dlpack_device"):
        jnp.from_dlpack(3)


def test_dlpack_gives_the_whole_array_or_says_that_it_cannot():
    """The first piece of an array on several devices was given out as the array."""
    mesh = phalanx.make_mesh((2,), ("x",), devices=phalanx.devices()[:2])
    x = phalanx.device_put(jnp.arange(4.0), phalanx.NamedSharding(mesh, phalanx.P("x")))
    with pytest.raises(BufferError) as e:
        np.from_dlpack(x)
    assert str(e.value).startswith(
        "export through DLPack: expected an array on one device, got f32[4@x] with NamedSharding"
    )
    assert str(e.value).endswith("  Fix: export numpy.asarray(x), or a single shard, x.addressable_shards[i].data.")
    assert np.from_dlpack(x.addressable_shards[1].data).tolist() == [2.0, 3.0]
    copied = jnp.from_dlpack(x, copy=True)
    assert copied.tolist() == x.tolist() and copied.sharding == x.sharding
    one = jnp.arange(3.0)
    address = lambda a: a.__array_interface__["data"][0]
    shared, own = np.from_dlpack(one), np.from_dlpack(one, **COPY)
    assert address(shared) == one.unsafe_buffer_pointer()
    assert not COPY or address(own) != one.unsafe_buffer_pointer()


# NumPy passes `copy` on from 2.1.
COPY = {"copy": True} if np.lib.NumpyVersion(np.__version__) >= "2.1.0" else {}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python classes have a buffer protocol from 3.12 on")
def test_arrays_have_the_buffer_protocol():
    x = phalanx.device_put(np.arange(6, dtype=np.float32).reshape(2, 3))
    view = memoryview(x)
    assert view.shape == (2, 3) and view.readonly and view.format == "f"
    x.delete()
    assert view.tobytes() == np.arange(6, dtype=np.float32).tobytes()


def test_a_clone_has_the_same_buffers():
    x = phalanx.numpy.arange(3.0)
    y = x.clone()
    assert y is not x and y.unsafe_buffer_pointer() == x.unsafe_buffer_pointer() and y.sharding is x.sharding
    assert x.platform() == "cpu" and x.traceback is None


def test_the_type_of_an_array_can_be_copied():
    x = phalanx.numpy.array(1.0)
    assert phalanx.ShapeDtypeStruct.like(x) == phalanx.ShapeDtypeStruct((), "float32", weak_type=True)
    placed = phalanx.device_put(x, phalanx.devices()[0])
    assert phalanx.ShapeDtypeStruct.like(placed).sharding == placed.sharding
    assert phalanx.ShapeDtypeStruct.like(np.ones(2, np.int32)) == phalanx.ShapeDtypeStruct((2,), "int32")


def test_a_deleted_or_donated_shard_is_an_error_and_not_the_end_of_the_process():
    text = run_python(
        """
        import gc
        import phalanx, phalanx.numpy as jnp
        from phalanx.engine import buffers
        from phalanx.errors import DeletedArrayError

        mesh = phalanx.sharding.Mesh(phalanx.devices(), ("a",))
        sharding = phalanx.NamedSharding(mesh, phalanx.P("a"))
        donate = phalanx.jit(lambda x: x + 1, donate_argnums=0)

        def make_whole():
            return phalanx.device_put(jnp.arange(8.0), sharding)

        def make_from_parts(parts):
            return phalanx.make_array_from_single_device_arrays((8,), sharding, parts)

        for spoil in (lambda part: part.delete(), donate):
            whole = make_whole()
            spoil(whole.addressable_shards[3].data)
            parts = [phalanx.device_put(jnp.ones(1), device) for device in phalanx.devices()]
            joined = make_from_parts(parts)
            spoil(parts[5])
            for x in (whole, joined):
                assert x.is_deleted()
                for use in (phalanx.jit(lambda x: x.sum()), lambda x: x + 1, phalanx.device_get, lambda x: x[3]):
                    try:
                        use(x)
                    except DeletedArrayError as error:
                        print(str(error).splitlines()[0])
        del x, whole, joined
        gc.collect()
        print(buffers._parts)
        """
    )
    use, argument = (
        f"{name}: expected an array with live buffers, got f32[8], deleted or donated.\n"
        for name in ("use of an array", "<lambda>, argument x")
    )
    assert text == 4 * (argument + 3 * use) + "{}\n"


def test_shards_are_made_once_and_belong_to_their_array():
    mesh = phalanx.sharding.Mesh(phalanx.devices()[:2], ("x",))
    x = phalanx.device_put(np.arange(4.0, dtype=np.float32), phalanx.NamedSharding(mesh, phalanx.P("x")))
    shards = x.addressable_shards
    shards.pop()
    assert [s.data.tolist() for s in x.addressable_shards] == [[0, 1], [2, 3]]
    assert x.addressable_shards[0] is shards[0]
    x.delete()
    with pytest.raises(phalanx.errors.DeletedArrayError):
        x.addressable_shards


def test_attributes_that_arrays_lack_are_looked_up_without_python_code():
    x = jnp.arange(2)
    calls = []
    sys.setprofile(lambda frame, event, arg: calls.append(frame.f_code.co_qualname) if event == "call" else None)
    try:
        found = hasattr(x, "__array_interface__")
    finally:
        sys.setprofile(None)
    assert not found and not calls
    with pytest.raises(AttributeError, match=r"^'Array' object has no attribute 'summ'$"):
        x.summ


def test_reading_an_array_whose_memory_could_not_be_allocated_is_an_error():
    run_python(
        "import numpy as np, phalanx.numpy as jnp\n"
        "try:\n"
        "    np.asarray(jnp.zeros((1 << 30, 1 << 30)))\n"
        "except RuntimeError as error:\n"
        "    assert 'Out of memory allocating 4611686018427387904 bytes' in str(error), error\n"
        "else:\n"
        "    raise AssertionError('2**62 bytes were allocated')\n"
    )


FAILED_RUNS = """
import numpy as np, phalanx, phalanx.numpy as jnp
from phalanx import lax
def fail(x):
    raise KeyError("from a callback")
slow = phalanx.jit(lambda x: lax.fori_loop(0, 500, lambda i, y: jnp.sin(y) @ y / 30, x)[0, :4])
failing = phalanx.jit(lambda x: phalanx.pure_callback(fail, phalanx.ShapeDtypeStruct((4,), np.float32), x))
large = phalanx.jit(lambda x: (x, jnp.broadcast_to(x[0], (1 << 22, 1 << 20))))
add, corner = phalanx.jit(lambda x: x + 1), phalanx.jit(lambda x: x[0, :4])
ok, x = jnp.ones(4), jnp.ones((100, 100))
for f, argument in ((add, ok), (slow, x)):
    f(argument), f(argument)
for i in range(3):
    for of_small, read in {
        "the callback": lambda: failing(slow(x)),
        "what depends on it": lambda: add(failing(slow(x))),
        "a result beside one that is too large": lambda: large(slow(x))[0],
        "what depends on one that is too large": lambda: add(large(slow(x))[0]),
    }.items():
        try:
            value = np.asarray(read())  # A call raises the error if its program fails while it is started.
        except (KeyError, RuntimeError) as error:
            assert "from a callback" in str(error) or "Out of memory" in str(error), error
        else:
            raise AssertionError((of_small, value))
for read in (np.asarray, np.array, lambda x: x.tolist()):
    array = add(ok)
    array.delete()
    try:
        read(array)
    except phalanx.errors.DeletedArrayError:
        pass
    else:
        raise AssertionError("a deleted array was read")
"""


def test_reading_small_results_of_failed_runs_raises_the_cause():
    run_python(FAILED_RUNS)


@pytest.mark.parametrize("dtype", ["bool", "int8", "int4", "uint16", "bfloat16", "float16", "float32", "complex64"])
@pytest.mark.parametrize("shape", [(), (0, 3), (3, 5)])
def test_results_are_read_only_and_keep_their_value(dtype, shape):
    f = phalanx.jit(lambda x: (x, x.reshape(-1)))
    x = jnp.ones(shape, dtype)
    for _ in range(4):
        y, flat = f(x)
        value = np.asarray(y)
        assert value.dtype == y.dtype and value.shape == shape and value.tolist() == x.tolist()
        assert not value.flags.writeable and not np.asarray(flat).flags.writeable
        assert np.shares_memory(value, np.asarray(y)) or not value.size
        with pytest.raises(ValueError, match="read-only"):
            value[...] = 0


def test_an_array_can_be_deleted_while_another_thread_waits_for_it_or_reads_it():
    run_python(
        "import threading, time\n"
        "import numpy as np, phalanx, phalanx.numpy as jnp\n"
        "slow = phalanx.jit(lambda x: jnp.sin(x) @ x)\n"
        "def read(operation, x):\n"
        "    try:\n"
        "        operation(x)\n"
        "    except RuntimeError as error:\n"
        "        assert 'deleted' in str(error), error\n"
        "for operation in (phalanx.block_until_ready, np.asarray):\n"
        "    for i in range(20):\n"
        "        x = slow(jnp.ones((500, 500)))\n"
        "        thread = threading.Thread(target=read, args=(operation, x))\n"
        "        thread.start()\n"
        "        time.sleep(0.0005 * (i % 5))\n"
        "        x.delete()\n"
        "        thread.join()\n"
        "        assert x.is_deleted()\n"
    )


@pytest.mark.parametrize("size", [8, 40_000])
@pytest.mark.parametrize("read", ["np.asarray", "np.from_dlpack"])
def test_an_array_can_be_deleted_at_the_moment_at_which_another_thread_reads_it(size, read):
    # Two threads walk along the same arrays. Before deletions waited for reads, this took seconds to end the process.
    run_python(
        f"""
        import sys, threading, time
        import numpy as np, phalanx, phalanx.numpy as jnp
        sys.setswitchinterval(1e-5)
        f, x, problems = phalanx.jit(lambda x, i: x + i), jnp.ones({size}), []
        def walk(arrays):
            for array in arrays:
                try:
                    {read}(array)
                except Exception as error:
                    if "deleted" not in str(error):
                        problems.append(error)
        end = time.monotonic() + 4
        while time.monotonic() < end:
            arrays = [f(x, i) for i in range(200)]
            threads = [threading.Thread(target=walk, args=(arrays,)) for _ in range(2)]
            for thread in threads:
                thread.start()
            for array in arrays:
                array.delete()
                assert array.is_deleted()
            for thread in threads:
                thread.join()
        assert not problems, problems[0]
        """
    )


def test_a_sharded_result_can_be_read_while_a_function_is_traced():
    # Without raw tracebacks at calls, and with them while tracing, jaxlib refuses to make arrays of the shards.
    text = run_python(
        """
        import numpy as np, phalanx
        rows = phalanx.NamedSharding(phalanx.make_mesh((8,), ("a",)), phalanx.P("a"))
        f = phalanx.jit(lambda x: x + 1)
        x = f(f(f(phalanx.device_put(np.zeros(8, np.float32), rows))))
        print(phalanx.jit(lambda y: y + np.asarray(x).sum())(1.0))
        """
    )
    assert text == "25.0\n"


def test_deleting_a_small_result_leaves_its_buffer_to_threads_that_read_it():
    f = phalanx.jit(lambda x: x + 1)
    x = [f(jnp.zeros(3)) for _ in range(3)][-1]  # by the fast path
    y, buffer = x + x, x._buffer
    y.__array__()
    for array in (x, y):
        held = array._buffer
        array.delete()
        assert array.is_deleted() and not held.is_deleted()
        for use in (np.asarray, np.from_dlpack, jnp.sin, lambda a: a.clone(), phalanx.jit(lambda a: a + 1)):
            with pytest.raises(phalanx.errors.DeletedArrayError):
                use(array)
    assert np.asarray(buffer).tolist() == [1, 1, 1]


def test_a_deletion_leaves_the_memory_to_a_read_that_goes_on():
    x = phalanx.jit(lambda x: x + 1)(jnp.zeros(40_000))
    phalanx.clear_caches()  # with the deleted buffer that takes the place of the one that is left
    buffer = x._buffer
    buffer_deletion.begin_read(id(buffer))
    try:
        x.delete()
    finally:
        buffer_deletion.end_read(id(buffer))
    assert x.is_deleted() and not buffer.is_deleted() and not buffer_deletion.deletions
    with pytest.raises(phalanx.errors.DeletedArrayError):
        np.asarray(x)
    with pytest.raises(phalanx.errors.DeletedArrayError):
        phalanx.jit(lambda x: x + 1)(x)


def test_a_numpy_argument_may_be_written_to_while_the_program_runs():
    memory = np.empty(4096 + 64, np.uint8)
    start = -memory.ctypes.data % 64  # XLA's CPU devices can share memory from such addresses on.
    host = memory[start : start + 4096].view(np.float32)
    weights = jnp.full((400, 400), 1e-3)
    delayed = phalanx.jit(lambda w, x: (w @ w @ w).sum() * 0 + x)
    host[:] = 1
    delayed(weights, host).block_until_ready()
    for _ in range(5):
        host[:] = 1
        y = delayed(weights, host)
        host[:] = 2
        assert (np.asarray(y) == 1).all()


@pytest.mark.parametrize(("size", "gap"), [(8, 1), (13, 6)])
def test_the_dtype_stands_apart_where_it_does_not_fit_into_the_line(size, gap):
    assert repr(jnp.full(size, 123, np.int32)).endswith(f" 123],{' ' * gap}dtype=int32)")


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of memory is one of Linux")
def test_a_process_goes_on_after_programs_and_copies_for_which_there_was_no_memory():
    text = run_python(
        """
        import resource
        import numpy as np, phalanx, phalanx.numpy as jnp
        x, host = jnp.arange(4.0), np.ones(60_000_000, np.float32)
        held, f = jnp.ones(60_000_000), phalanx.jit(lambda v: v @ v)
        # Compiled before, since the memory for code is not XLA's, and its absence ends the process.
        large = phalanx.jit(lambda v: jnp.broadcast_to(v, host.shape) * 2).lower(1.0).compile()
        add = phalanx.jit(lambda v: v + 1).lower(held).compile()
        f(x), held.block_until_ready()
        taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + 2**26, resource.RLIM_INFINITY))
        for use in (lambda: large(1.0), lambda: phalanx.device_put(host), lambda: add(held), lambda: np.array(held)):
            try:
                phalanx.block_until_ready(use())
            except (RuntimeError, MemoryError) as error:
                print(isinstance(error, MemoryError), f(x))
        """,
        num_devices=1,
    )
    assert text == 3 * "False 14.0\n" + "True 14.0\n"
