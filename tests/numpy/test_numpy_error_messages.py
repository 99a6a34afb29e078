"""Invalid arguments of array functions raise errors with the full documented text."""

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx.core.error_classes import ArgumentTypeError, ConcretizationTypeError, PhalanxError

X = np.zeros((2, 3), np.float32)


def _pair(x):
    return x, x


MESSAGES = {
    "concatenate scalars": (lambda: jnp.concatenate([1.0, 2.0]),
        "concatenate, array 0: expected at least one dimension, along which the arrays are joined, got ().\n"
        "  Fix: pass axis=None, or join scalars with jnp.stack or jnp.array."),
    "frompyfunc": (lambda: jnp.frompyfunc(lambda x: x, -1, 1),
        "frompyfunc, argument nin: expected a number of at least 0, got -1.\n"
        "  Fix: pass the number of arguments of the function."),
    "frompyfunc results": (lambda: jnp.frompyfunc(_pair, 1, 3)(X),
        "_pair: expected 3 results, as declared by nout, got 2.\n"
        "  Fix: pass nout=2 to frompyfunc, or return 3 results."),
    "sum axis": (lambda: jnp.sum(X, axis=2),
        "sum, argument axis: expected an axis of an array of rank 2, got 2.\n  Fix: give an integer from -2 to 1."),
    "sum twice": (lambda: jnp.sum(X, axis=(0, 0)),
        "sum, argument axis: expected different axes, got (0, 0).\n  Fix: name each axis once."),
    "sum out": (lambda: jnp.sum(X, out=X),
        "sum, argument out: expected None, since arrays do not change, got an array.\n  Fix: use the returned array."),
    "var of complex numbers": (lambda: jnp.var(X + 1j, dtype="float32"),
        "var, argument dtype: expected a complex dtype for the deviations of complex64, from which the result is real, "
        "got float32.\n  Fix: omit dtype, and convert the result."),
    "max of nothing": (lambda: jnp.max(np.zeros((0, 2))),
        "max: expected at least one element along the reduced dimensions, got an array of shape (0, 2).\n"
        "  Fix: pass initial=, the result for no elements."),
    "max where": (lambda: jnp.max(X, where=X > 0),
        "max, argument initial: expected a value where no element takes part, since where is given, got None.\n"
        "  Fix: pass initial=, the result where the mask excludes all elements."),
    "argmax": (lambda: jnp.argmax(np.zeros(0)),
        "argmax: expected at least one element, got an array of shape (0,).\n  Fix: check x.size before the call."),
    "broadcast": (lambda: jnp.add(X, np.zeros(2)),
        "add: expected shapes that broadcast: equal dimensions, or 1, got (2, 3) and (2,).\n"
        "  Fix: reshape one operand, or insert dimensions with x[:, None]."),
    "dtype": (lambda: jnp.bitwise_and(X, 1),
        "bitwise_and: expected boolean or integer operands, got float32.\n  Fix: convert the operand with .astype."),
    "reshape": (lambda: jnp.reshape(X, (4, 2)),
        "reshape, argument shape: expected a shape of 6 elements, as (2, 3) has, got (4, 2).\n"
        "  Fix: use -1 for one dimension to have it found."),
    "reshape -1": (lambda: jnp.reshape(X, (4, -1)),
        "reshape, argument shape: expected one -1, and a divisor of 6 elements in the other dimensions, got (4, -1).\n"
        "  Fix: give each dimension but one."),
    "transpose": (lambda: jnp.transpose(X, (0,)),
        "transpose, argument axes: expected 2 axes for an array of rank 2, got (0,).\n  Fix: name each dimension exactly once."),
    "squeeze": (lambda: jnp.squeeze(X, 0),
        "squeeze, argument axis: expected dimensions of size 1, got axis 0 of shape (2, 3).\n"
        "  Fix: index the dimension, or leave it out."),
    "broadcast_to": (lambda: jnp.broadcast_to(X, (3, 2)),
        "broadcast_to, argument shape: expected a shape that (2, 3) broadcasts to, got (3, 2).\n"
        "  Fix: reshape the array first, or add dimensions with x[:, None]."),
    "concatenate": (lambda: jnp.concatenate([X, np.zeros((2, 2))], 0),
        "concatenate, array 1: expected the shape (2, 3) of array 0, but for axis 0, got (2, 2).\n"
        "  Fix: reshape or broadcast the arrays to agree."),
    "no arrays": (lambda: jnp.concatenate([]),
        "concatenate: expected at least one array, got none.\n  Fix: pass a non-empty sequence of arrays."),
    "split": (lambda: jnp.split(X, 2, axis=1),
        "split, argument indices_or_sections: expected a divisor of 3, the size of axis 1, got 2.\n"
        "  Fix: use array_split for pieces of unequal size."),
    "matmul": (lambda: jnp.matmul(X, X),
        "matmul: expected equal sizes of the dimensions to be summed over, got 3 in (2, 3) and 2 in (2, 3).\n"
        "  Fix: transpose or reshape an operand."),
    "matmul scalar": (lambda: jnp.matmul(X, 2.0),
        "matmul: expected arrays of rank 1 or more, got shapes (2, 3) and ().\n  Fix: multiply by a scalar with *."),
    "cond": (lambda: jnp.linalg.cond(X[:, :0]),
        "linalg.cond: expected matrices with elements, got (2, 0).\n  Fix: handle empty matrices separately."),
    "einsum terms": (lambda: jnp.einsum("ij", X, X),
        "einsum, argument subscripts: expected 2 terms, one for each operand, got 'ij'.\n"
        "  Fix: separate the terms with commas."),
    "einsum rank": (lambda: jnp.einsum("ijk->i", X),
        "einsum, operand 0: expected rank 3, as the term 'ijk' has, got 2.\n  Fix: name each axis, or use '...'."),
    "einsum labels": (lambda: jnp.einsum([X], X),
        "einsum, axis labels: expected a sequence of integers after each operand, got ndarray.\n"
        "  Fix: write einsum(x, [0, 1], y, [1, 2]), or pass the subscripts as a string first."),
    "vectorize None": (lambda: jnp.vectorize(jnp.vdot, signature="(n),(n)->()")(X, None),
        "vectorize: expected arrays with the core dimensions of (n),(n)->(), got None.\n"
        "  Fix: add the position of the argument to excluded."),
    "reduceat": (lambda: jnp.add.reduceat(X, 1),
        "add.reduceat, argument indices: expected a vector, got ().\n  Fix: pass the first index of each segment."),
    "roll": (lambda: jnp.roll(X, np.ones((2, 3), int), 0),
        "roll, argument shift: expected an integer for each axis, got (3,) for axis 0.\n"
        "  Fix: pass one integer, or a vector of one for each axis."),
    "tri": (lambda: jnp.tri(3, k="a"),
        "tri, argument k: expected an integer, got 'a' of type str.\n  Fix: give a Python int."),
    "no edges": (lambda: jnp.histogram(X, np.zeros(0)),
        "histogram, argument bins: expected edges, got none.\n  Fix: pass two edges or more."),
    "einsum size": (lambda: jnp.einsum("ij,jk->ik", X, X),
        "einsum, operand 1: expected size 3 of axis 'j', as before, got 2 in (2, 3).\n"
        "  Fix: give operands whose axes agree."),
    "einsum diagonal": (lambda: jnp.einsum("ii->i", X[:, :1]),
        "einsum, operand 0: expected size 2 of axis 'i', as before, got 1 in (2, 1).\n"
        "  Fix: give operands whose axes agree."),
    "einsum result": (lambda: jnp.einsum("ij->k", X),
        "einsum, argument subscripts: expected a result whose axes each occur in an operand, and once in it, got 'ij->k'.\n"
        "  Fix: after '->', name each axis of the result once, and only axes of the operands."),
    "pad": (lambda: jnp.pad(X, -1),
        "pad, argument pad_width: expected numbers >= 0, got -1.\n  Fix: remove elements by slicing instead of a negative width."),
    "where": (lambda: jnp.where(X > 0, X),
        "where: expected both x and y, or neither, got one of them.\n  Fix: pass both x and y, or only the condition."),
    "take mode": (lambda: jnp.take(X, 0, mode="raise"),
        "take, argument mode: expected 'fill', 'clip', 'wrap' or 'promise_in_bounds', got 'raise'.\n"
        "  Fix: pass one of these modes; mode='raise' would depend on values."),
    "put in place": (lambda: jnp.put_along_axis(X, np.zeros((2, 1), int), 0.0, 1),
        "put_along_axis, argument inplace: expected False, since arrays do not change, got True.\n"
        "  Fix: give inplace=False and use the returned array."),
    "linspace": (lambda: jnp.linspace(0, 1, -1),
        "linspace, argument num: expected a number >= 0, got -1.\n  Fix: pass num=0 or more."),
    "arange step": (lambda: jnp.arange(0, 1, 0),
        "arange, argument step: expected a step other than 0, got 0.\n  Fix: pass a nonzero step, or leave it out for steps of 1."),
    "shape": (lambda: jnp.zeros((2, 1.5)),
        "full, argument shape: expected integers, got 1.5 of type float.\n  Fix: give the shape as a tuple of Python ints."),
    "array of text": (lambda: jnp.array(["a"]),
        "array, argument object: expected numbers, or nested sequences of them of one shape, got ['a'] of type list.\n"
        "  Fix: leave data that is not numeric outside of arrays."),
    "quantile": (lambda: jnp.quantile(X, 0.5, method="best"),
        "quantile, argument method: expected 'linear' or 'lower' or 'higher' or 'midpoint' or 'nearest' or "
        "'hazen' or 'weibull' or 'median_unbiased' or 'normal_unbiased' or 'interpolated_inverted_cdf' or "
        "'inverted_cdf' or 'averaged_inverted_cdf' or 'closest_observation', got 'best'.\n"
        "  Fix: pass one of the listed methods, for example method='linear'."),
    "not square": (lambda: jnp.linalg.inv(X),
        "linalg.inv: expected a square matrix or a stack of them, got an array of shape (2, 3).\n  Fix: pass arrays of shape [..., n, n]."),
    "norm": (lambda: jnp.linalg.norm(X, "big"),
        "linalg.norm, argument ord: expected None, 'fro', 'nuc', 1, 2, inf or their negatives, got 'big'.\n"
        "  Fix: pass one of the listed orders."),
    "fft": (lambda: jnp.fft.rfft(X * 1j),
        "fft.rfft: expected real numbers, got complex64.\n  Fix: use fft, or take the real part."),
    "signature": (lambda: jnp.vectorize(lambda x: x, signature="n->n")(X),
        "vectorize, argument signature: expected a string such as '(m,n),(n)->(m)', got 'n->n'.\n"
        "  Fix: name the core dimensions of each argument and result in parentheses."),
    "repeats": (lambda: jnp.repeat(X, -1),
        "repeat, argument repeats: expected integers >= 0, got -1.\n  Fix: pass non-negative integers, for example with repeats.clip(0)."),
    "weights": (lambda: jnp.quantile(X, 0.5, weights=X),
        "quantile, argument weights: expected None, unless method is 'inverted_cdf', got weights for 'linear'.\n"
        "  Fix: pass method='inverted_cdf', or leave the weights out."),
    "nothing": (lambda: jnp.zeros((3, 0))[0, jnp.array([0])],
        "index expression: expected no index into a dimension of size 0, got an array.\n  Fix: check x.size before indexing."),
    "ldexp": (lambda: jnp.ldexp(X, X),
        "ldexp: expected integers as x2, got float32.\n  Fix: convert it with .astype(int)."),
    "packbits": (lambda: jnp.packbits(X),
        "packbits: expected integers or booleans, got float32.\n  Fix: turn the numbers into bits, for example with a != 0."),
    "nonzero": (lambda: jnp.nonzero(3),
        "nonzero: expected an array of rank 1 or more, got a scalar.\n  Fix: give it one dimension with phalanx.numpy.atleast_1d(a)."),
    "roots": (lambda: jnp.roots(jnp.eye(2)),
        "roots: expected a vector of coefficients, got (2, 2).\n  Fix: ravel it, or map over rows."),
    "None": (lambda: jnp.sin(None),
        "sin: expected an array or a scalar, got None of type NoneType.\n  Fix: give the argument."),
}  # fmt: skip


@pytest.mark.parametrize("name", MESSAGES)
def test_invalid_arguments_raise_the_documented_message(name):
    function, text = MESSAGES[name]
    with pytest.raises(PhalanxError) as error:
        function()
    assert str(error.value) == text


@pytest.mark.parametrize(
    "function, where",
    [
        (jnp.nonzero, "nonzero, the number of results"), (jnp.unique, "unique, the number of results"),
        (lambda x: jnp.bincount(x.astype(int)), "bincount, the length of the result"),
        (lambda x: jnp.repeat(x, x.astype(int)), "repeat, argument repeats"),
    ],
)  # fmt: skip
def test_a_shape_that_depends_on_traced_values_raises(function, where):
    with pytest.raises(ConcretizationTypeError) as error:
        phalanx.jit(function)(np.zeros(3, np.float32))
    assert str(error.value).startswith(where)
    assert "traced by" in str(error.value)


def test_a_traced_length_raises_and_names_the_tracer():
    with pytest.raises(ConcretizationTypeError):
        phalanx.jit(lambda n: jnp.arange(n))(3)
    with pytest.raises(ConcretizationTypeError):
        phalanx.jit(lambda n: jnp.zeros(n))(3)


def test_long_and_traced_lists_are_described_by_their_length():
    for call in (lambda: jnp.sum([1, 2, 3]), lambda: phalanx.jit(lambda x: jnp.sum([x, x, x]))(1.0)):
        with pytest.raises(ArgumentTypeError, match=r"^sum: expected an array or a scalar, got a list of length 3\."):
            call()
    with pytest.raises(ArgumentTypeError, match=r"got a list of length 1000\."):
        jnp.add(list(range(1000)), 1)


@pytest.mark.parametrize("builtin", [ValueError, TypeError, NotImplementedError])
def test_arguments_for_mutable_arrays_raise_what_numpy_and_jax_raise(builtin):
    for call in (lambda: jnp.add(X, 1, out=X), lambda: jnp.sin(X, where=X > 0), lambda: jnp.sum(X, out=X)):
        with pytest.raises(builtin, match="expected None, since arrays do not change"):
            call()
