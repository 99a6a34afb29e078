"""Dtypes: promotion against NumPy and against the peer, canonicalization, categories, names."""

import itertools
import warnings

import ml_dtypes
import numpy as np
import pytest

from phalanx.core import dtypes, promotion
from phalanx.core.config import enable_x64, numpy_dtype_promotion
from phalanx.core.error_classes import ArgumentTypeError, DTypeError, TypePromotionError

ALL = sorted(dtypes.supported, key=str)
NUMPY = [d for d in ALL if d.type.__module__ == "numpy"]


class Generator:
    name, tag, key_shape = "threefry2x32", "fry", (2,)


def value(dtype, weak):
    class Value:
        pass

    Value.dtype, Value.weak_type = np.dtype(dtype), weak
    return Value()


def outcome(promote, a, b):
    try:
        return str(promote(a, b))
    except (ValueError, TypeError):
        return "none"


@pytest.mark.parametrize("x64", [False, True])
def test_promotion_equals_the_peers_over_all_pairs(x64):
    jax = pytest.importorskip("jax")
    with enable_x64(x64), jax.enable_x64(x64):
        kinds = [*ALL, bool, int, float, complex]
        for a, b in itertools.product(kinds, repeat=2):
            theirs = outcome(jax.numpy.promote_types, a, b)
            assert outcome(promotion.promote_types, a, b) == theirs, (a, b)


@pytest.mark.parametrize("mode", ["standard", "strict"])
def test_promotion_of_weak_values_equals_the_peers(mode):
    jax = pytest.importorskip("jax")
    with enable_x64(True), jax.enable_x64(True), numpy_dtype_promotion(mode), jax.numpy_dtype_promotion(mode):
        for dtype, scalar in itertools.product(ALL, (True, 1, 1.0, 1j)):
            theirs = outcome(jax.numpy.result_type, jax.ShapeDtypeStruct((), dtype), scalar)
            assert outcome(promotion.result_type, value(dtype, False), scalar) == theirs, (dtype, scalar)
            weak = value(dtypes.canonicalize_dtype(type(scalar)), not isinstance(scalar, bool))
            assert outcome(promotion.result_type, weak, value(dtype, False)) == theirs, (dtype, scalar)


def test_promotion_of_three_with_weak_ones_equals_the_peers():
    jax = pytest.importorskip("jax")
    values = [1, 1.0, 1j, True, np.int8(1), np.uint8(1), np.float16(1), np.dtype(dtypes.bfloat16), np.int32(1)]
    for args in itertools.product(values, repeat=3):
        assert promotion.result_type(*args) == jax.numpy.result_type(*args), args


def test_promotion_of_like_kinds_is_numpys():
    with enable_x64(True):
        for a, b in itertools.product(NUMPY, repeat=2):
            if a.kind == b.kind:
                assert promotion.promote_types(a, b) == np.promote_types(a, b)


def test_promotion_is_a_commutative_join():
    with enable_x64(True):
        nodes = [
            d for d in ALL if dtypes.itemsize_bits(d) >= 16 or (d.kind in "biu" and d.name not in ("int2", "int4"))
        ]
        nodes = [d for d in nodes if d.name not in ("uint2", "uint4")]
        nodes = [
            *itertools.product(nodes, (False,)),
            *((np.dtype(d), True) for d in ("int64", "float64", "complex128")),
        ]
        for a, b, c in itertools.product(nodes, repeat=3):
            left = promotion.promote_pair(*promotion.promote_pair(*a, *b), *c)
            assert left == promotion.promote_pair(*a, *promotion.promote_pair(*b, *c)), (a, b, c)
            assert promotion.promote_pair(*a, *b) == promotion.promote_pair(*b, *a)


@pytest.mark.parametrize(
    ("args", "dtype", "weak"),
    [
        ((1,), "int32", True),
        ((True,), "bool", False),
        ((1, 2.5), "float32", True),
        ((np.int8(1), 1), "int8", False),
        ((np.int8(1), 1.0), "float32", True),
        ((np.ones(2, "float64"),), "float32", False),
        ((1j, np.float16(1)), "complex64", False),
        (("bfloat16", int), "bfloat16", False),
    ],
)
def test_result_type(args, dtype, weak):
    assert promotion.result_type(*args, return_weak_type_flag=True) == (dtypes.as_dtype(dtype), weak)


def test_errors_of_promotion():
    with pytest.raises(TypePromotionError) as error:
        promotion.promote_types("int4", "int8")
    assert str(error.value) == (
        "promotion of dtypes: expected dtypes with a common one; floats of 8 bits or fewer and integers of fewer than 8 "
        "have none, got int4 and int8.\n  Fix: convert one with astype, as in x.astype('float32')."
    )
    with numpy_dtype_promotion("strict"), pytest.raises(TypePromotionError) as error:
        promotion.promote_types("int32", "float32")
    assert str(error.value) == (
        "promotion of dtypes: expected equal dtypes, since numpy_dtype_promotion is 'strict', got int32 and float32.\n"
        "  Fix: convert one with astype, or set numpy_dtype_promotion to 'standard'."
    )
    with pytest.raises(TypePromotionError) as error:
        promotion.promote_types(dtypes.KeyDtype(Generator), "float32")
    assert str(error.value) == (
        "promotion of dtypes: expected numbers, or keys of one generator, got key<fry> and float32.\n"
        "  Fix: take the numbers with phalanx.random.key_data."
    )
    with pytest.raises(ArgumentTypeError) as error:
        promotion.result_type([1])
    assert str(error.value) == (
        "result_type: expected an array, a number or a dtype, got [1] of type list.\n"
        "  Fix: convert it with phalanx.numpy.asarray."
    )


@pytest.mark.parametrize("spec", ["object", "U3", "datetime64[s]", None, "nonsense", ml_dtypes.int1])
def test_types_that_xla_does_not_have_are_refused(spec):
    with pytest.raises(DTypeError, match="expected a numeric or boolean element type that XLA supports, got"):
        dtypes.canonicalize_dtype(spec)
    with pytest.raises(DTypeError, match="^zeros, dtype: expected"):
        dtypes.requested_dtype(spec, "zeros")


def test_canonical_dtypes_follow_x64():
    assert dtypes.canonicalize_dtype(">f8") == np.float32
    assert dtypes.canonicalize_dtype(">f4").isnative
    with enable_x64(True):
        assert dtypes.canonicalize_dtype(float) == np.float64
        assert dtypes.canonicalize_dtype(complex) == np.complex128
    assert dtypes.canonicalize_dtype(dtypes.float0) == dtypes.float0


def test_a_truncated_request_warns():
    text = (
        "Explicitly requested dtype float64 requested in zeros is not available, and will be truncated to dtype float32. "
        "To enable more dtypes, set the enable_x64 configuration option or the PHALANX_ENABLE_X64 environment variable."
    )
    with pytest.warns(UserWarning) as caught:
        assert dtypes.requested_dtype(np.float64, "zeros") == np.float32
    assert str(caught[0].message) == text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert dtypes.requested_dtype(float, "zeros") == np.float32
        with enable_x64(True):
            assert dtypes.requested_dtype("float64", "zeros") == np.float64


def test_categories_equal_numpys_where_numpy_has_them():
    categories = [np.generic, np.number, np.integer, np.signedinteger, np.unsignedinteger, np.inexact, np.floating]
    for d in NUMPY:
        for category in [*categories, np.complexfloating, np.bool_]:
            assert dtypes.issubdtype(d, category) == np.issubdtype(d, category), (d, category)
        for other in NUMPY:
            assert dtypes.issubdtype(d, other) == (d == other)
    assert dtypes.issubdtype(dtypes.bfloat16, np.floating)
    assert dtypes.issubdtype("float8_e4m3fn", np.inexact)
    assert dtypes.issubdtype("uint4", np.unsignedinteger)
    assert dtypes.issubdtype(np.floating, np.inexact) and not dtypes.issubdtype(np.inexact, np.floating)
    assert dtypes.issubdtype(np.float32, np.float32) and not dtypes.issubdtype(np.float32, np.float64)


def test_keys_are_an_extended_dtype():
    key = dtypes.KeyDtype(Generator)
    assert key == dtypes.KeyDtype(Generator) and hash(key) == hash(dtypes.KeyDtype(Generator))
    assert key != np.dtype("float32")
    assert (repr(key), key.itemsize, dtypes.short_name(key)) == ("key<fry>", 8, "key<fry>")
    assert dtypes.issubdtype(key, dtypes.prng_key) and dtypes.issubdtype(key, dtypes.extended)
    assert not dtypes.issubdtype(key, np.number) and not dtypes.issubdtype(np.dtype("float32"), dtypes.extended)
    assert dtypes.canonicalize_dtype(key) == key
    assert promotion.result_type(value("float32", False)) == np.float32
    assert dtypes.to_tangent_dtype(key) == dtypes.float0
    with pytest.raises(DTypeError):
        dtypes.canonicalize_dtype(key, allow_extended_dtype=False)


def test_questions_about_one_dtype():
    assert dtypes.to_inexact_dtype(np.dtype("bool")) == np.float32
    with enable_x64(True):
        assert dtypes.to_inexact_dtype(np.dtype("int64")) == np.float64
    assert dtypes.to_tangent_dtype(np.dtype("int8")) == dtypes.float0
    assert dtypes.to_tangent_dtype(np.dtype(dtypes.bfloat16)) == dtypes.bfloat16
    assert dtypes.to_real_dtype(np.dtype("complex64")) == np.float32
    assert float(dtypes.finfo(dtypes.bfloat16).max) > 3e38
    assert dtypes.iinfo("int4").max == 7
    assert [dtypes.itemsize_bits(d) for d in ("uint2", "float8_e5m2", "complex128")] == [2, 8, 128]
    with pytest.raises(DTypeError):
        dtypes.scalar_type_of(dtypes.KeyDtype(Generator))


@pytest.mark.parametrize(("name", "category"), [("float6_e2m3fn", np.floating), ("float6_e3m2fn", np.floating),
                                                ("int1", np.signedinteger), ("uint1", np.unsignedinteger)])  # fmt: skip
def test_dtypes_without_arrays_have_categories(name, category):
    if not hasattr(ml_dtypes, name):
        pytest.skip("this version of ml_dtypes lacks the dtype")
    for spec in (name, np.dtype(name)):
        assert dtypes.issubdtype(spec, category) and dtypes.issubdtype(spec, name)
        assert not dtypes.issubdtype(spec, np.float64)
        with pytest.raises(DTypeError, match=f"supports, got '?{name}"):
            dtypes.as_dtype(spec)
