"""Rarely used arguments, also by keyword: expressions and their expected results."""

import inspect
from collections import deque

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx.errors import ArgumentError, ArgumentTypeError, AxisError, DTypeError, ShapeError
from phalanx.scipy import special

_I = np.array([2, -3, 2, 5], np.int32)

GIVEN = {
    "jnp.expand_dims(np.arange(2), range(2)).shape": (1, 1, 2),
    "jnp.roll(np.arange(3), True)": [2, 0, 1],
    "jnp.arange(np.uint8(7), np.uint8(1), -2)": [7, 5, 3],
    "jnp.arange(250, 260, 3, dtype='uint8')": [250, 253, 0, 3],
    "jnp.bincount(np.arange(2), minlength=np.array(3))": [1, 1, 0],
    "jnp.mask_indices(np.array(2), jnp.triu)[1]": [0, 1, 1],
    "jnp.sum(np.ones((2, 3)), axis=range(2))": 6,
    "jnp.broadcast_to(np.float32(2), deque([2]))": [2, 2],
    "jnp.shape(None)": (),
    "jnp.intersect1d(I, np.array([5, 2, 9]), size=4)": [2, 5, 2, 2],
    "jnp.intersect1d(I, np.array([7]), size=2)": [0, 0],
    "jnp.intersect1d(np.array([]), I, size=2, fill_value=3)": [3, 3],
    "jnp.setxor1d(I, np.array([2, 9]), size=5)": [-3, 5, 9, -3, -3],
    "jnp.setxor1d(I, np.array([2, 9]), size=5, fill_value=1)": [-3, 5, 9, 1, 1],
    "jnp.setdiff1d(I, np.array([5]), assume_unique=True, size=5)": [2, -3, 2, 0, 0],
    "jnp.setdiff1d(I, np.array([5]), size=5)": [-3, 2, 0, 0, 0],
    "jnp.setdiff1d(np.array([]), I, size=2, fill_value=3)": [3, 3],
    "jnp.union1d(np.array([]), np.array([]), size=2, fill_value=3)": [3, 3],
    "jnp.linspace(1 - 2j, 5 + 9j, 5, dtype='int32')": [1, 2, 3, 4, 5],
    "jnp.fft.ihfft([1, 2, 3])[0].real": 2,
    "jnp.fft.fftn(2.5)": 2.5 + 0j,
    "jnp.fft.rfftn(2.5)": 2.5,
    "jnp.roots(np.array([0.0, 0, 1, 2, -3]), strip_zeros=False)": [-3, 1, np.nan, np.nan],
    "jnp.roots(np.array([1.0, 2, 0, 0]), strip_zeros=False)": [-2, 0, 0],
    "jnp.linalg.matrix_rank(np.diag(np.float32([4, 2, 1])), tol=1.5)": 2,
    "jnp.linalg.matrix_rank(np.diag(np.float32([4, 2, 1])), 1.5)": 2,
    "jnp.linalg.matrix_rank(np.stack([np.diag(np.float32([4, 2]))] * 2), np.float32([2.4, 0.1]))": [1, 2],
    "[jnp.iscomplexobj([1, 2]), jnp.iscomplexobj([1, 2j])]": [False, True],
    "jnp.insert(I, 4, 7)": [2, -3, 2, 5, 7],
    "jnp.take(I, *jnp.ix_(np.array([])))": [],
    "jnp.subtract.reduce(I, initial=2, where=I > 0)": -7,
    "jnp.bitwise_or.reduce(I > 3, where=I > 0)": True,
    "jnp.logical_xor.reduce(I)": False,
    "jnp.logical_xor.reduce(I, where=I < 3)": True,
    "jnp.logical_and.reduce(I, initial=False)": False,
    "jnp.logical_or.accumulate(I - 2)": [False, True, True, True],
    "jnp.logical_or.accumulate(I - 2).dtype == bool": True,
    "jnp.divide.reduce(I)": 2 / -3 / 2 / 5,
    "jnp.logaddexp.reduce(I)": 5.095228,
    "jnp.logaddexp.accumulate(I)": [2, 2.006715, 2.696511, 5.095228],
    "jnp.hypot.reduce(I[:0])": 0,
    "jnp.heaviside(1.0, np.float32([2, 3]))": [1, 1],
    "jnp.heaviside(0, np.float32([2, 3]))": [2, 3],
    "jnp.linalg.matrix_rank(np.zeros((0, 3)), tol=0.5)": 0,
    "jnp.add(I, 1, out=None, where=None)": [3, -2, 3, 6],
    "jnp.sin(0.0, out=None, where=None)": 0,
    "jnp.fmax(x1=I, x2=0)": [2, 0, 2, 5],
    "jnp.gcd(I, x2=4)": [2, 1, 2, 1],
    "jnp.trunc(x=1.5)": 1,
    "jnp.isreal(x=1j)": False,
    "special.gammainc(a=1.0, x=0.0)": 0,
    "special.beta(a=1.0, b=2.0)": 0.5,
    "special.ndtri(p=0.5)": 0,
    "jnp.corrcoef(I, dtype='complex64').dtype == np.complex64": True,
    "jnp.corrcoef(np.array([[0.0, 1], [1, 0]]), dtype='float16').dtype == np.float16": True,
    "jnp.trim_zeros(np.array([[0, 0, 0], [0, 7, 0]]))": [[7]],
    "jnp.trim_zeros(np.array([[0, 0, 0], [0, 7, 0]]), axis=1)": [[0], [7]],
    "jnp.trim_zeros(np.array([[0, 0, 0], [0, 7, 0]]), 'f', axis=(0, 1))": [[7, 0]],
    "jnp.trim_zeros(np.zeros(2), 'b')": [],
    "jnp.trim_zeros(np.array(3))": 3,
    "jnp.poly(np.array([]))": 1,
    "jnp.bincount(I > 2)": [3, 1],
    "jnp.bincount(jnp.array(I > 2), length=3)": [3, 1, 0],
    "jnp.cov(np.zeros((2, 0)))": np.full((2, 2), np.nan),
    "jnp.cov(np.array([]), bias=True)": np.nan,
    "jnp.poly(np.array([np.nan]))": [1, np.nan],
    "jnp.argwhere(np.array(5)).shape": [1, 0],
    "jnp.argwhere(np.array(0)).shape": [0, 0],
    "jnp.setxor1d(np.array([np.nan, 1, 1]), np.array([np.nan, 2]))": [1, 2, np.nan, np.nan],
    "jnp.einsum('ij->', jnp.full((40, 40), 100, 'int8'), preferred_element_type='int32')": 160000,
    "jnp.einsum('ij,k->k', jnp.full((4, 4), 100, 'int8'), jnp.ones(1, 'int8'), preferred_element_type='int32')": [1600],
    "jnp.einsum('i,i,i', *[jnp.full(4, 100, 'int8')] * 3, preferred_element_type='int32')": 4000000,
    "[f(4, np.float32(2), dtype='bfloat16').dtype.itemsize for f in (jnp.fft.fftfreq, jnp.fft.rfftfreq)]": [2, 2],
    "jnp.top_k(I, 3)": [[5, 2, 2], [3, 0, 2]],
    "jnp.top_k(I, 3, mode='smallest', sorted=False)": [[-3, 2, 2], [1, 0, 2]],
    "jnp.top_k(np.float32([[1, np.nan, -np.inf]]).T, 3, axis=0, mode='smallest')[1]": [[2], [0], [1]],
    "jnp.top_k(np.uint8([0, 255, 3]), 2, mode='smallest')": [[0, 3], [0, 2]],
    "jnp.top_k(I > 0, 2, mode='smallest')[1]": [1, 0],
    "jnp.lexsort(np.stack([np.arange(4) * s for s in (1, -1, 0)] + [I, I - I]), batch_size=2)": [1, 2, 0, 3],
    "jnp.lexsort((I, I * 0, I // 4), batch_size=1)": [1, 0, 2, 3],
    "jnp.minmax(I)": [-3, 5],
    "jnp.minmax(I.reshape(2, 2), 1, keepdims=True)": [[[-3], [2]], [[2], [5]]],
    "jnp.minmax(I, initial=(-7, 3), where=I > 2)": [-7, 5],
    "jnp.minmax(I, initial=9)": [-3, 9],
    "jnp.minmax(np.float32([1, np.nan]))": [np.nan, np.nan],
    "jnp.einsum('i,i', I, I, _dot_general=lambda x, y, numbers, **options: jnp.sum(x + y))": 12,
}


@pytest.mark.parametrize("expression", GIVEN)
def test_rarely_used_arguments_give_the_expected_values(expression):
    got = eval(expression, {"jnp": jnp, "np": np, "special": special, "deque": deque, "I": _I})
    np.testing.assert_allclose(np.asarray(got), GIVEN[expression], rtol=1e-5, atol=1e-6)


def test_roots_of_a_traced_polynomial_are_padded_with_nan():
    found = phalanx.jit(lambda p: jnp.roots(p, strip_zeros=False))(np.array([0.0, 2, 2, 0]))
    np.testing.assert_allclose(np.asarray(found), [-1, 0, np.nan], atol=1e-6)


REFUSED = {
    "jnp.top_k(I, 2, mode='most')": (ArgumentError, "top_k, argument mode: expected 'largest' or 'smallest', got 'most'"),
    "jnp.top_k(I, 5, mode='smallest')": (ArgumentError, r"lax.top_k k: expected a number from 0 to 4, dimension 0 of"),
    "jnp.top_k(1j * I, 2, mode='smallest')": (DTypeError, "lax.top_k: expected"),
    "jnp.lexsort((I,), batch_size=0)": (ArgumentError, "lexsort, argument batch_size: expected at least 1, got 0"),
    "jnp.minmax(I, where=I > 2)": (ArgumentError, "minmax, argument initial: expected a value where no element takes"),
    "jnp.minmax(I[:0])": (ShapeError, "min: expected at least one element along the reduced dimensions"),
    "jnp.add(I, 1, out=I)": (ArgumentError, "add, argument out: expected None, since arrays do not change"),
    "jnp.sin(I, where=True)": (ArgumentError, "sin, argument where: expected None, since arrays do not change"),
    "jnp.linalg.matrix_rank(I[None], rtol=1.0, tol=1.0)": (ArgumentError, "expected rtol or tol, got both"),
    "jnp.split(I, 2.5)": (ArgumentTypeError, "split, argument indices_or_sections: expected an integer, got 2.5"),
    "jnp.linspace(0, 1, 2.5)": (ArgumentTypeError, "linspace, argument num: expected an integer, got 2.5"),
    "jnp.fft.fft(I, 2.5)": (ArgumentTypeError, "fft.fft, argument n: expected an integer, got 2.5"),
    "jnp.fft.fftfreq(2.5)": (ArgumentTypeError, "fft.fftfreq, argument n: expected an integer, got 2.5"),
    "jnp.hstack(jnp.float32(1))": (ShapeError, "hstack: expected a sequence of arrays, got a single number"),
    "jnp.insert(I, 9, 7)": (ArgumentError, "insert, argument obj: expected indices from -4 to 4, got 9"),
    "jnp.insert(I, [0, 9], 7)": (ArgumentError, "insert, argument obj: expected indices from -4 to 4, got 9"),
    "jnp.delete(I, I[:2] > 0)": (ShapeError, r"delete, argument obj: expected a mask of shape \(4,\), got \(2,\)"),
    "jnp.gradient(I, jnp.ones(5))": (ShapeError, "gradient: expected coordinates of the 4 points along axis 0"),
    "jnp.interp(1j, I, I)": (DTypeError, "interp: expected real coordinates, got complex64"),
    "jnp.bitwise_or.reduce(jnp.ones(0))": (DTypeError, "bitwise_or: expected boolean or integer operands, got float32"),
    "jnp.cov(I, dtype=int)": (DTypeError, "cov, argument dtype: expected an inexact dtype, got int32"),
    "jnp.histogram(I, 2, weights=I[:3])": (ShapeError, r"histogram, argument weights: expected shape \(4,\), one for each"),
    "jnp.copy(I, order='F')": (ArgumentError, "copy, argument order: expected 'K' or 'C', got 'F'"),
    "jnp.asarray(jnp.ones(2), order='F')": (ArgumentError, "asarray, argument order: expected 'K' or 'C', got 'F'"),
    "jnp.fft.fftshift(I, 1)": (IndexError, "fft.fftshift, argument axis: expected an axis of an array of rank 1, got 1"),
    "jnp.fft.hfft(I, axis=1)": (AxisError, "fft.hfft, argument axis: expected an axis of an array of rank 1, got 1"),
    "jnp.fft.ihfft(I, axis=-2)": (AxisError, "fft.ihfft, argument axis: expected an axis of an array of rank 1, got -2"),
    "jnp.fft.hfft(I, norm='x')": (ArgumentError, "fft.hfft, argument norm"),
    "jnp.frexp(1j)": (DTypeError, "frexp: expected real numbers, got complex64"),
    "jnp.modf(1.5, I)": (ArgumentError, "modf, argument out: expected None"),
    "jnp.add(x1=I, x2=I)": (TypeError, "positional-only"),
    "jnp.fft.rfft([[1.0], [2.0]])": (ArgumentTypeError, "fft.rfft: expected an array or a scalar, got a list of length 2"),
}  # fmt: skip


@pytest.mark.parametrize("expression", REFUSED)
def test_invalid_values_of_rarely_used_arguments_raise(expression):
    kind, text = REFUSED[expression]
    with pytest.raises(kind, match=text):
        eval(expression, {"jnp": jnp, "I": _I})


_ARGUMENTS = {"subscripts": "ij", "arrays": [_I], "choices": [_I, _I], "indices": 0, "condition": [True], "q": 0.5}
_FUNCTIONS = {name: f for name, f in vars(jnp).items() if inspect.isfunction(f) and f.__name__ == name}


@pytest.mark.parametrize("name", [n for n, f in _FUNCTIONS.items() if "out" in inspect.signature(f).parameters])
def test_every_function_rejects_an_out_array(name):
    parameters = inspect.signature(_FUNCTIONS[name]).parameters.values()
    given = [_ARGUMENTS.get(p.name, _I[None] % 2) for p in parameters if p.default is p.empty]
    # A second name of a function, such as abs of absolute, has the errors of the first.
    with pytest.raises(ArgumentError, match=r"^\w+, argument out: expected None, since arrays do not change"):
        _FUNCTIONS[name](*given, out=_I)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("function", [np.sum, np.cumsum, lambda v: v[:2]], ids=["sum", "cumsum", "cut"])
def test_apply_along_axis_keeps_the_order_of_the_other_axes(function, axis):
    x = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
    ours = {np.sum: jnp.sum, np.cumsum: jnp.cumsum}.get(function, function)
    np.testing.assert_allclose(jnp.apply_along_axis(ours, axis, x), np.apply_along_axis(function, axis, x))
