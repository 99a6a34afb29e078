"""Types of results: Python scalars beside arrays, weak types, and shapes with symbolic dimensions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import phalanx
from phalanx import lax
from phalanx.core.aval import ShapedArray
from phalanx.core.primitive import infer_result
from phalanx.export import SymbolicScope, symbolic_shape

X = np.ones(3, np.float32)
I = np.arange(3, dtype=np.int32)
WEAK = lax.sin(1.0)


@pytest.mark.parametrize(
    ("call", "dtype", "is_weak"),
    [
        ("lax.add(1, 2)", "int32", True),
        ("lax.add(X, 2)", "float32", False),
        ("lax.add(2, X)", "float32", False),
        ("lax.add(I, 2)", "int32", False),
        ("lax.add(WEAK, 2)", "float32", True),
        ("lax.add(X, WEAK)", "float32", False),
        ("lax.mul(X.astype(ml_dtypes.bfloat16), 2.5)", "bfloat16", False),
        ("lax.mul(lax.complex(X, X), 2)", "complex64", False),
        ("lax.exp(1.0)", "float32", True),
        ("lax.real(1 + 2j)", "float32", True),
        ("lax.eq(1, 2)", "bool", False),
        ("lax.pow(X, 2)", "float32", False),
        ("lax.pow(2.0, I)", "float32", False),
        ("lax.clamp(0, I, 2)", "int32", False),
        ("lax.select(np.True_, X, 2.0)", "float32", False),
        ("lax.pad(X, 0, [(1, 1, 0)])", "float32", False),
        ("lax.full((2,), 1.0)", "float32", True),
        ("lax.full((2,), 1, np.float16)", "float16", False),
        ("lax.full_like(X, 3)", "float32", False),
        ("lax.full_like(WEAK, 3)", "float32", True),
        ("lax.convert_element_type(WEAK, np.float32)", "float32", False),
        ("lax.convert_element_type(1.0, int)", "int32", False),
        ("lax.broadcast_in_dim(1.0, (3,), ())", "float32", True),
        ("lax.argmax(X, 0, np.int32)", "int32", False),
        ("lax.iota(int, 3)", "int32", False),
        ("lax.mul(X, X, out_dtype=np.float16)", "float16", False),
    ],
)
def test_dtype_and_weakness(call, dtype, is_weak):
    y = eval(call, {**globals()})
    assert (y.dtype.name, y.weak_type) == (dtype, is_weak)
    staged = phalanx.eval_shape(lambda: eval(call, {**globals()}))
    assert (staged.dtype.name, staged.weak_type) == (dtype, is_weak)


def test_64_bit_types_exist_where_they_are_enabled():
    with phalanx.enable_x64(True):
        assert lax.add(1, 2).dtype == np.int64
        assert lax.add(np.float64(1), 2).dtype == np.float64
    assert lax.add(np.float64(1), 2).dtype == np.float32


SCOPE = SymbolicScope()


def symbolic(primitive, *shapes, **params):
    """The shapes of the results for operands of these symbolic shapes, as text."""
    avals = tuple(ShapedArray(symbolic_shape(s, scope=SCOPE), np.dtype("float32")) for s in shapes)
    out = infer_result(primitive, avals, params)
    return [a.str_short() for a in out] if primitive.multiple else out.str_short()


@pytest.mark.parametrize(
    ("x", "dtype"), [(np.dtype("int64"), "int32"), (np.float16, "float16"), (float, "float32"), ("bool", "bool")]
)
def test_the_dtype_of_a_dtype_is_that_of_arrays_made_with_it(x, dtype):
    assert lax.dtype(x) == dtype == lax.full((), 1, x).dtype


def test_symbolic_dimensions_pass_through_type_rules():
    (b, n) = symbolic_shape("b, n", scope=SCOPE)
    assert symbolic(lax.sin_p, "b, 3") == "f32[b,3]"
    assert symbolic(lax.add_p, "b, n", "b, n") == "f32[b,n]"
    assert symbolic(lax.mul_p, "b, n", "") == "f32[b,n]"
    assert symbolic(lax.reduce_sum_p, "b, n", dims=(0,)) == "f32[n]"
    assert symbolic(lax.transpose_p, "b, n", permutation=(1, 0)) == "f32[n,b]"
    assert symbolic(lax.broadcast_in_dim_p, "n", shape=(b, n), dims=(1,)) == "f32[b,n]"
    assert symbolic(lax.reshape_p, "b, 6", shape=(b, 2, 3)) == "f32[b,2,3]"
    assert symbolic(lax.reshape_p, "b, n", shape=(b * n,)) == "f32[b*n]"
    assert symbolic(lax.concatenate_p, "b", "n", dim=0) == "f32[n + b]"
    assert symbolic(lax.pad_p, "b", "", config=((1, 2, 0),)) == "f32[b + 3]"
    assert symbolic(lax.slice_p, "b", starts=(1,), stops=(b,), strides=None) == "f32[b - 1]"
    assert symbolic(lax.squeeze_p, "b, 1", dims=(1,)) == "f32[b]"
    assert symbolic(lax.stack_p, "b", "b", dim=0) == "f32[2,b]"
    assert symbolic(lax.tile_p, "b", reps=(2,)) == "f32[2*b]"
    assert symbolic(lax.cumsum_p, "b", dim=0, reverse=False) == "f32[b]"
    assert symbolic(lax.sort_p, "b", dim=0, is_stable=True, num_keys=1) == ["f32[b]"]
    assert symbolic(lax.top_k_p, "b, n", k=2, dim=1) == ["f32[b,2]", "i32[b,2]"]
    assert symbolic(lax.argmax_p, "b, n", dim=1, dtype=np.dtype("int32")) == "i32[b]"


def test_different_symbolic_dimensions_raise():
    with pytest.raises(phalanx.core.error_classes.ShapeError, match="expected operands of equal shapes"):
        symbolic(lax.add_p, "b", "n")
    with pytest.raises(phalanx.core.error_classes.ShapeError, match="elements"):
        symbolic(lax.reshape_p, "b", shape=(4,))


@pytest.mark.parametrize("dtype", ["int4", "uint4", "float8_e4m3fn", "float8_e5m2", "int8", "uint16", "bfloat16"])
def test_narrow_dtypes_convert_and_move(dtype):
    narrow = np.dtype(getattr(ml_dtypes, dtype, dtype))
    y = lax.convert_element_type(X, narrow)
    assert y.dtype == narrow
    assert lax.reshape(lax.broadcast_in_dim(y, (2, 3), (1,)), (3, 2)).dtype == narrow
    np.testing.assert_array_equal(lax.convert_element_type(y, np.float32), X)


def test_random_keys_move_and_compare():
    keys = phalanx.random.split(phalanx.random.key(0), 4)
    np.testing.assert_array_equal(lax.eq(keys, lax.rev(keys, (0,))), [False] * 4)
    np.testing.assert_array_equal(lax.ne(keys, keys), [False] * 4)
    np.testing.assert_array_equal(lax.eq(keys, lax.index_in_dim(keys, 2, keepdims=False)), [False, False, True, False])
    square = lax.transpose(lax.reshape(keys, (2, 2)), (1, 0))
    np.testing.assert_array_equal(phalanx.vmap(lax.eq)(square, square), [[True] * 2] * 2)
    picked = lax.select(np.array([True, False, True, False]), keys, lax.rev(keys, (0,)))
    np.testing.assert_array_equal(lax.eq(picked, keys), [True, False, True, False])
    with pytest.raises(phalanx.core.error_classes.DTypeError, match="integer, floating or complex"):
        lax.add(keys, keys)
