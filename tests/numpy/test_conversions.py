"""Conversions: complex to real, 64-bit parts of 32-bit programs, common dtypes, rounding, and NumPy's functions of arrays."""

import enum

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.errors import ConversionError, DTypeError
from phalanx.scipy.special import gammaln

Z = np.array([1 + 2j], np.complex64)


@pytest.mark.parametrize(
    "convert",
    [
        lambda: jnp.array(1j, "float32"),
        lambda: jnp.asarray([1j, 2], "int32"),
        lambda: jnp.full((2,), 1j, "float32"),
        lambda: jnp.full_like(jnp.ones(2), 1j),
        lambda: lax.full((2,), 1j, "float32"),
        lambda: lax.full_like(np.ones(2, np.int32), 1j),
        lambda: lax.convert_element_type(1j, "float32"),
    ],
)
def test_complex_number_is_not_converted_to_a_real_dtype(convert):
    with pytest.raises(
        DTypeError,
        match=r"^conversion to (float|int)32: expected a real number, got 1j\.\n"
        r"  Fix: take its real part, or choose a complex dtype\.$",
    ):
        convert()


@pytest.mark.parametrize(
    "convert",
    [
        lambda x: x.astype("float32"),
        lambda x: jnp.astype(x, "int32"),
        lambda x: jnp.array(x, "float32"),
        lambda x: jnp.sum(x, dtype="float32"),
        lambda x: jnp.full_like(x, x[0], dtype="float32"),
        lambda x: lax.convert_element_type(x, "float32"),
        phalanx.jit(lambda x: x.astype("float32")),
        lambda x: jnp.asarray(Z, "float32"),
    ],
)
def test_discarding_an_imaginary_part_warns_as_numpy_does(convert):
    with pytest.warns(np.exceptions.ComplexWarning, match="discards the imaginary part"):
        np.testing.assert_array_equal(convert(jnp.asarray(Z)).ravel(), [1])


def test_complex_conversion_to_bool_and_its_derivative_do_not_warn():
    np.testing.assert_array_equal(jnp.array([0j, 1j]).astype(bool), [False, True])
    assert phalanx.grad(lambda x: (x.astype("complex64") * 2j).imag)(1.0) == 2


def in_64_bits(x):
    with phalanx.enable_x64(True):
        x = x.astype("float64")
        _, ys = lax.scan(lambda c, i: (c * i, c * jnp.sin(i)), x, np.arange(1.0, 4.0))
        total = ys.sum() + gammaln(x) + lax.cond(x > 0, jnp.sin, jnp.cos, x) + jnp.cumsum(x * np.ones(3))[2]
    return total.astype("float32")


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: phalanx.jit(f),
        lambda f: phalanx.grad(f),
        lambda f: phalanx.grad(phalanx.jit(f)),
        lambda f: phalanx.jit(phalanx.grad(phalanx.jit(f))),
        lambda f: phalanx.jacfwd(phalanx.jacrev(phalanx.jit(f))),
        lambda f: phalanx.grad(phalanx.checkpoint(f)),
        lambda f: lambda x: phalanx.vmap(phalanx.grad(phalanx.jit(f)))(x[None])[0],
        lambda f: lambda x: phalanx.linearize(phalanx.jit(f), x)[1](1.0),
    ],
)
def test_part_of_a_program_in_64_bits_is_transformed_and_compiled(transform):
    x = jnp.float32(2.0)
    got = transform(in_64_bits)(x)
    with phalanx.enable_x64(True):
        np.testing.assert_allclose(got, transform(in_64_bits)(x), rtol=1e-6)
    assert got.dtype == np.float32


def test_scan_over_64_bit_inputs_runs_inside_a_32_bit_program():
    @phalanx.jit
    def f(x):
        with phalanx.enable_x64(True):
            return lax.scan(lambda c, i: (c * 2, c + i), x, jnp.arange(3, dtype="float64"))

    carry, ys = f(jnp.float32(1))
    assert (carry.dtype, ys.dtype) == (np.float32, np.float64)
    np.testing.assert_array_equal(ys, [1, 3, 6])


def test_promote_types_does_not_narrow_the_dtypes_it_is_given():
    assert jnp.promote_types("int8", "uint64") == np.float64
    assert jnp.promote_types("int16", "uint32") == np.int32
    assert jnp.result_type("int8", "uint64") == np.int32  # integers of 32 bits, as arrays would have


def test_members_of_an_int_enum_are_numbers():
    color = enum.IntEnum("color", "red blue")
    assert int(jnp.arange(2)[1] + color.blue) == 3
    assert int(phalanx.pmap(lambda _: color.blue)(jnp.arange(1))[0]) == 2
    assert jnp.add(color.red, 1.5).dtype == "float32"


def test_the_array_of_a_differentiated_number_is_an_array():
    assert [type(x) for x in phalanx.jvp(jnp.asarray, (1.0,), (2.0,))] == [phalanx.Array] * 2
    assert phalanx.jvp(jnp.asarray, (1.0,), (2.0,))[0].weak_type


def test_an_object_with_the_array_interface_of_numpy_is_array_like():
    class Image:
        def __init__(self, values):
            self.__array_interface__ = values.__array_interface__

    values = np.arange(6, dtype=np.uint8).reshape(2, 3)
    image = jnp.asarray(Image(values))
    assert image.dtype == np.uint8
    np.testing.assert_array_equal(image, values)


NUMPY_CALLS = {
    "take": (lambda x: np.take(x, [2, 0]), [2.0, 3.5]),
    "argsort": (lambda x: np.argsort(x, kind="stable"), [1, 2, 0]),
    "sort": (lambda x: np.sort(x, kind="mergesort"), [1.0, 2.0, 3.5]),
    "reshape": (lambda x: np.reshape(x, (3, 1), order="F"), [[3.5], [1.0], [2.0]]),
    "sum": (lambda x: np.sum(x, keepdims=True), [6.5]),
}


@pytest.mark.parametrize("name", NUMPY_CALLS)
def test_functions_of_numpy_take_arrays(name):
    # NumPy calls the method of that name, and converts to one of its arrays if the method refuses an argument.
    call, want = NUMPY_CALLS[name]
    assert call(jnp.array([3.5, 1.0, 2.0])).tolist() == want


def test_round_of_python_gives_integers_unless_digits_are_asked_for():
    x = jnp.array([2.5, -1.26])
    assert round(x).dtype == jnp.int32 and round(x).tolist() == [2, -1]
    assert round(x, 0).dtype == jnp.float32
    np.testing.assert_allclose(round(x, 1), [2.5, -1.3], rtol=1e-6)
    assert phalanx.jit(round)(x).dtype == jnp.int32


_MASKED = np.ma.array([1.0, 2.0], mask=[False, True])
USES = {
    "asarray": jnp.asarray,
    "array": lambda x: jnp.array([x, x], "float32"),
    "sin": jnp.sin,
    "add": lambda x: jnp.ones(2) + x,
    "scan": lambda x: lax.scan(lambda carry, y: (carry, y), 0.0, x),
    "device_put": phalanx.device_put,
    "jit": phalanx.jit(lambda x: x),
    "constant": lambda x: phalanx.jit(lambda y: x + y)(1.0),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_masked_arrays_are_refused(use):
    for _ in range(3):  # also where a call with the same type has been compiled
        use(np.array([1.0, 2.0]))
        with pytest.raises(
            ConversionError, match="expected data without a mask, got a masked array, MaskedArray of shape"
        ):
            use(_MASKED)


@pytest.mark.parametrize(
    "function",
    [
        jnp.asarray,
        jnp.unique,
        jnp.nonzero,
        jnp.flatnonzero,
        jnp.bincount,
        lambda x: jnp.take(x, [0]),
        lambda x: jnp.compress(x, [1]),
        lambda x: jnp.extract(x, [1]),
        lambda x: jnp.isin(x, [1]),
        lambda x: jnp.zeros(1).at[:].set(x),
    ],
)
def test_integers_in_lists_that_do_not_fit_are_an_error(function):
    with pytest.raises(OverflowError, match="out of bounds for int32"):
        function([2**40])


@pytest.mark.parametrize("data", [{1, 2}, frozenset([1]), {1: 2}, {1: 2}.keys()], ids=repr)
def test_data_without_an_order_make_no_array(data):
    with pytest.raises(ConversionError, match="^array, argument object: expected numbers, or nested sequences of them"):
        jnp.asarray(data)
