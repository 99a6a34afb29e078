import gc
import weakref

import ml_dtypes
import numpy as np
import pytest
from tests.engine.programs import ADD_ONE, Along, Aval, compiled, put, run

from phalanx.engine import buffers, client

DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
    ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (2, 3, 5)], ids=str)
def test_a_value_comes_back_from_the_device_unchanged(dtype, shape):
    value = (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 2).astype(dtype)
    back = buffers.to_host(put(value))
    assert back.dtype == value.dtype and back.shape == value.shape
    np.testing.assert_array_equal(back, value)
    assert not back.flags.writeable


def test_strided_values_are_put_as_they_read():
    value = np.arange(24.0, dtype="f4").reshape(2, 3, 4).transpose(2, 0, 1)[::2]
    np.testing.assert_array_equal(buffers.to_host(put(value)), value)


@pytest.mark.parametrize("size", [8, 1 << 20])
def test_a_later_change_of_the_numpy_array_does_not_show(size):
    value = np.ones(size, "f4")
    buffer = put(value)
    value[:] = 5
    np.testing.assert_array_equal(buffers.to_host(buffer), np.ones(size, "f4"))


def test_memory_is_shared_only_where_the_caller_allows_it():
    value = np.ones(1 << 20, "f4")
    value.flags.writeable = False
    device = client.devices("cpu")[0]
    buffer = buffers.put_array(value, Aval(value.shape, "f4"), Along([device]), device, may_alias=True)
    if value.ctypes.data % 64 == 0:
        assert np.shares_memory(buffers.to_host(buffer), value)


def test_pieces_make_one_array_and_come_apart_again():
    devices = client.devices("cpu")[:4]
    pieces = [np.full((2, 3), i, "f4") for i in range(4)]
    whole = buffers.put_shards(Aval((8, 3), "f4"), Along(devices), pieces, devices)
    for expected, piece in zip(pieces, buffers.shards(whole), strict=True):
        np.testing.assert_array_equal(buffers.to_host(piece), expected)
    again = buffers.from_shards(Aval((8, 3), "f4"), Along(devices), buffers.shards(whole))
    np.testing.assert_array_equal(buffers.to_host(buffers.shards(again)[3]), pieces[3])


@pytest.mark.parametrize("may_alias", [False, True])
def test_one_host_array_may_be_the_piece_of_several_devices(may_alias):
    devices = client.devices("cpu")[:4]
    piece = np.arange(2, dtype="f4")
    whole = buffers.put_shards(
        Aval((8,), "f4"), Along(devices), [piece, piece, piece[:], piece[:]], devices, may_alias=may_alias
    )
    for held in buffers.shards(whole):
        np.testing.assert_array_equal(buffers.to_host(held), piece)


def test_a_copy_to_other_devices_keeps_the_pieces():
    devices = client.devices("cpu")
    pieces = [np.full((2,), i, "f4") for i in range(4)]
    whole = buffers.put_shards(Aval((8,), "f4"), Along(devices[:4]), pieces, devices[:4])
    (moved,) = buffers.copy_to_devices([whole], [Along(devices[4:])])
    for expected, piece in zip(pieces, buffers.shards(moved), strict=True):
        np.testing.assert_array_equal(buffers.to_host(piece), expected)


def test_reordered_shards_hold_the_same_pieces():
    devices = client.devices("cpu")[:4]
    whole = buffers.put_shards(Aval((4,), "i4"), Along(devices), list(np.arange(4, dtype="i4").reshape(4, 1)), devices)
    reordered = buffers.reorder_shards(whole, Along(devices[::-1]))
    assert [int(buffers.to_host(piece)[0]) for piece in buffers.shards(reordered)] == [3, 2, 1, 0]


@pytest.mark.parametrize("dtype", ["float32", ml_dtypes.bfloat16], ids=str)
def test_a_value_read_before_deletion_stays_valid(dtype):
    buffer = put(np.arange(8).astype(dtype))
    value = buffers.to_host(buffer)
    buffer.delete()
    assert buffer.is_deleted()
    gc.collect()
    np.testing.assert_array_equal(value, np.arange(8).astype(dtype))


def test_reading_a_deleted_buffer_is_an_error():
    buffer = put(np.ones(8, "f4"))
    buffer.delete()
    with pytest.raises((RuntimeError, BufferError), match=r"deleted"):
        buffers.to_host(buffer)


def test_waiting_makes_buffers_ready():
    results = run(compiled(ADD_ONE), [put(np.ones(8, "f4"))], [Aval((8,), "f4")])
    buffers.block_until_ready(results)
    assert results[0].is_ready()


class Exported:
    """A buffer seen by another library."""

    def __init__(self, buffer):
        self.buffer = buffer

    def __dlpack__(self, **_):
        return buffers.to_dlpack(self.buffer)

    def __dlpack_device__(self):
        return buffers.dlpack_device(client.devices("cpu")[0])


def test_dlpack_shares_memory_and_outlives_deletion():
    buffer = put(np.arange(8, dtype="f4"))
    seen = np.from_dlpack(Exported(buffer))
    assert np.shares_memory(seen, buffers.to_host(buffer))
    buffer.delete()
    del buffer
    gc.collect()
    np.testing.assert_array_equal(seen, np.arange(8, dtype="f4"))


@pytest.mark.parametrize("copy", [None, True])
def test_dlpack_arrays_of_others_are_taken(copy):
    source = np.arange(6, dtype="f4")
    device = client.devices("cpu")[0]
    buffer = buffers.from_dlpack(source, Aval((6,), "f4"), Along([device]), device, copy=copy)
    np.testing.assert_array_equal(buffers.to_host(buffer), np.arange(6))
    if copy:
        source[:] = 0
        np.testing.assert_array_equal(buffers.to_host(buffer), np.arange(6))


DONATING = ADD_ONE.replace("%x: tensor<8xf32>", "%x: tensor<8xf32> {tf.aliasing_output = 0 : i32}")


def test_donated_memory_is_reused():
    buffer = put(np.zeros(8, "f4"))
    (result,) = run(compiled(DONATING), [buffer], [Aval((8,), "f4")])
    assert buffer.is_deleted()
    np.testing.assert_array_equal(buffers.to_host(result), np.ones(8))


def test_memory_that_a_host_value_shares_is_not_overwritten_by_donation():
    buffer = put(np.zeros(8, "f4"))
    before = buffers.to_host(buffer)
    (result,) = run(compiled(DONATING), [buffer], [Aval((8,), "f4")])
    np.testing.assert_array_equal(buffers.to_host(result), np.ones(8))
    np.testing.assert_array_equal(before, np.zeros(8))


def test_garbage_collection_frees_host_data_that_was_transferred():
    value = np.arange(10, dtype="f4")
    seen, buffer = weakref.ref(value), put(value)
    buffer.block_until_ready()
    del value, buffer
    gc.collect()
    assert seen() is None
