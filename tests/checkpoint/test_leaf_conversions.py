"""Dtypes and Python types other than those of the checkpoint: the same value, rounded at most, or an error."""

import ml_dtypes
import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import checkpoint
from phalanx.checkpoint.leaf_conversions import check_dtype, convert
from phalanx.checkpoint.leaf_records import LeafMetadata
from phalanx.core import dtypes
from phalanx.errors import CheckpointError
from phalanx.sharding import NamedSharding, PartitionSpec as P, make_mesh

pytest.importorskip("tensorstore")

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    "value, dtype, wanted, low, high",
    [
        ("-1", "int32", "uint32", 0, 4294967295),
        ("-1", "int8", "uint64", 0, 2**64 - 1),
        ("4294967295", "uint32", "int32", -(2**31), 2**31 - 1),
        ("1099511627776", "int64", "int32", -(2**31), 2**31 - 1),
        ("9223372036854775808", "uint64", "int64", -(2**63), 2**63 - 1),
        ("8", "int32", "int4", -8, 7),
        ("-1", "int4", "uint4", 0, 15),
        ("16777217", "int32", "float32", -16777216, 16777216),
        ("257", "int16", "bfloat16", -256, 256),
        ("9223372036854775807", "int64", "float64", -(2**53), 2**53),
    ],
)
def test_an_integer_that_a_dtype_does_not_have_is_an_error(value, dtype, wanted, low, high, tmp_path):
    checkpoint.save(tmp_path, {"a": {"n": np.array([0, int(value)]).astype(dtype)}}, wait=True)
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(tmp_path, {"a": {"n": np.zeros(2, wanted)}})
    assert str(caught.value) == (
        f"checkpoint.load, leaf 'a/n': expected integers from {low} to {high}, which {wanted} represents, "
        f"got {value} of {dtype} in the checkpoint '{tmp_path / '0'}'.\n"
        f"  Fix: give like the dtype {dtype}{', under enable_x64' * (dtype in ('int64', 'uint64'))}, and convert the array after loading."
    )


@pytest.mark.parametrize(
    "values, dtype, wanted, got",
    [
        ([1.0, 1e300], "float64", "float32", "1e+300"),
        ([1.0, -70000.0], "float32", "float16", "-70000.0"),
        ([1.0, 1000.0], "float32", "float8_e4m3fn", "1000.0"),
        ([1.0, 7.0], "float32", "float4_e2m1fn", "7.0"),
        ([1.0, INF], "float32", "float8_e4m3fn", "inf"),
        ([1.0, NAN], "float8_e5m2", "float4_e2m1fn", "nan"),
        ([0.0, 1.0], "float32", "float8_e8m0fnu", "0.0"),
        ([1.0, 1e300j], "complex128", "complex64", "1e+300"),
        ([False, True], "bool", "float8_e8m0fnu", "0.0"),
    ],
)
def test_a_float_that_a_dtype_does_not_have_is_an_error(values, dtype, wanted, got):
    with pytest.raises(CheckpointError, match="which ") as caught:
        convert(np.array(values).astype(dtype), np.dtype(wanted), "x", "it")
    assert f", got {got} of {dtype} in it.\n" in str(caught.value)


def test_a_sharded_array_is_converted_part_by_part(tmp_path):
    rows = NamedSharding(make_mesh((8,), ("x",)), P("x"))
    checkpoint.save(tmp_path, {"n": np.arange(-1, 15, dtype=np.int32)}, wait=True)
    like = {"n": phalanx.ShapeDtypeStruct((16,), "uint32", sharding=rows)}
    with pytest.raises(
        CheckpointError, match="expected integers from 0 to 4294967295, which uint32 represents, got -1 of int32"
    ):
        checkpoint.load(tmp_path, like)
    wide = checkpoint.load(tmp_path, {"n": phalanx.ShapeDtypeStruct((16,), "bfloat16", sharding=rows)})["n"]
    assert wide.sharding == rows and wide.dtype == jnp.bfloat16 and wide.tolist() == list(range(-1, 15))


def test_64_bits_do_not_become_32_in_silence(tmp_path):
    whole = NamedSharding(make_mesh((8,), ("x",)), P())
    with phalanx.enable_x64(True):
        wide = phalanx.ShapeDtypeStruct((2,), "int64", sharding=whole)
    for value in (7, 2**40):
        checkpoint.save(tmp_path, {"n": np.array([1, value])}, wait=True)
        for options in (
            {"shardings": whole},
            {"like": {"n": wide}},
            {"like": {"n": np.zeros(2, int)}, "shardings": whole},
        ):
            if value == 7:
                loaded = checkpoint.load(tmp_path, **options)["n"]
                assert loaded.dtype == np.int32 and loaded.tolist() == [1, 7]
                continue
            with pytest.raises(CheckpointError, match="which int32 represents, got 1099511627776 of int64 in"):
                checkpoint.load(tmp_path, **options)
            with phalanx.enable_x64(True):
                assert checkpoint.load(tmp_path, **options)["n"].tolist() == [1, value]
    assert checkpoint.load(tmp_path)["n"].dtype == np.int64


@pytest.mark.parametrize(
    "source, wanted", [("float32", "int32"), ("complex64", "float32"), ("bool", "U1"), ("int8", "bool")]
)
def test_a_kind_becomes_no_earlier_one(source, wanted, tmp_path):
    checkpoint.save(tmp_path, {"x": np.zeros(2, source)}, wait=True)
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(tmp_path, {"x": np.zeros(2, wanted)})
    assert str(caught.value) == (
        f"checkpoint.load, leaf 'x': expected elements that can become {np.dtype(wanted)}, the dtype of like, got {source}[2] "
        "in the checkpoint.\n  Fix: give like this dtype, and convert the array after loading."
    )


def test_every_pair_of_dtypes_has_equal_values_or_an_error():
    """The values 0 and 1 and the limits of the source, except for rounding."""
    numbers = [dtype for dtype in dtypes.supported if dtype != np.bool_]
    converted, refused = 0, 0
    for source in numbers:
        is_integer = dtypes.issubdtype(source, np.integer)
        info = (ml_dtypes.iinfo if is_integer else ml_dtypes.finfo)(source)
        limits = [info.max, info.min] + ([] if is_integer else [np.inf, np.nan, 0.1])
        for target in numbers:
            for value in [1, 0, *limits]:
                with np.errstate(all="ignore"):
                    elements = np.array([value], source if source.itemsize > 1 else None).astype(source)
                try:
                    check_dtype(LeafMetadata((1,), source), target, "x")
                    got = convert(elements, target, "x", "it")
                except CheckpointError:
                    refused += 1
                    continue
                converted += 1
                number = got[0].real if np.iscomplexobj(got) else got[0]
                if is_integer:
                    assert int(number) == int(elements[0]), (source, target)
                else:
                    wide, exact = got.astype(np.complex128), elements.astype(np.complex128)
                    is_near = np.isfinite(exact[0]) and abs(wide[0] - exact[0]) <= abs(exact[0])
                    assert is_near or np.array_equal(wide, exact, equal_nan=True), (source, target, value)
    assert converted > 2000 and refused > 300


@pytest.mark.parametrize(
    "saved, like, text",
    [
        (
            10**400,
            0.0,
            "expected an integer that a Python float, as in like, represents, got one of 1329 bits in the checkpoint.",
        ),
        (
            2**53 + 1,
            0.0,
            "expected an integer that a Python float, as in like, represents, got one of 54 bits in the checkpoint.",
        ),
        (10**30, np.zeros(()), "expected an array, as in like: float64, got a Python int in the checkpoint."),
        (-1, np.uint8(0), "expected integers from 0 to 255, which uint8 represents, got -1 of int64 in"),
        (
            1.5,
            np.int64(0),
            "expected elements that can become int64, the dtype of like, got float64[] in the checkpoint.",
        ),
    ],
)
def test_a_python_number_that_does_not_fit_is_an_error(saved, like, text, tmp_path):
    checkpoint.save(tmp_path, {"n": saved}, wait=True)
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(tmp_path, {"n": like})
    assert str(caught.value).startswith(f"checkpoint.load, leaf 'n': {text}")


def test_a_python_number_becomes_one_of_a_wider_type(tmp_path):
    checkpoint.save(tmp_path, {"n": 3, "x": 0.1}, wait=True)
    loaded = checkpoint.load(tmp_path, {"n": 0.0, "x": jnp.float32(0)})
    assert type(loaded["n"]) is float and loaded["n"] == 3 and loaded["x"] == jnp.float32(0.1)


def test_an_integer_of_any_size_is_saved(tmp_path):
    numbers = [10**5000, -(10**5000), 2**64, -(2**63), 0]
    checkpoint.save(tmp_path, numbers, wait=True)
    assert checkpoint.load(tmp_path) == numbers
