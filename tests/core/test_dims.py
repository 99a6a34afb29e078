"""Symbolic dimensions: the algebra, what it prints and reads, and that comparison never answers wrongly."""

import copy
import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.core import dims
from phalanx.core.dims import Scope, symbolic_shape
from phalanx.core.errors import ArgumentError, InconclusiveDimensionOperation

SCOPE = Scope(c=(0, None), d=(2, 5))
B, C, D = symbolic_shape("b, c, d", scope=SCOPE)
VALUES = [{"b": b, "c": c, "d": d} for b, c, d in itertools.product((1, 2, 3, 7), (0, 1, 4), (2, 3, 5))]


def combined(x, y, op):
    try:
        return op(x, y)
    except (InconclusiveDimensionOperation, ZeroDivisionError):
        return x


OPS = [
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y,
    lambda x, y: x // y,
    lambda x, y: x % y,
    dims.max_dim,
    dims.min_dim,
]
dimension = st.recursive(
    st.sampled_from([B, C, D, 0, 1, 2, 3, -2]),
    lambda inner: st.builds(combined, inner, inner, st.sampled_from(OPS)),
    max_leaves=6,
)


@settings(deadline=None, max_examples=300)
@given(dimension, dimension)
def test_arithmetic_commutes_with_evaluation(x, y):
    for values in VALUES:
        a, b = dims.evaluate(x, values), dims.evaluate(y, values)
        assert dims.evaluate(x + y, values) == a + b
        assert dims.evaluate(x - y, values) == a - b
        assert dims.evaluate(x * y, values) == a * b
        assert dims.evaluate(dims.max_dim(x, y), values) == max(a, b)
        assert dims.evaluate(dims.min_dim(x, y), values) == min(a, b)
        try:
            quotient, rest = divmod(x, y)
        except (InconclusiveDimensionOperation, ZeroDivisionError):
            continue
        assert (dims.evaluate(quotient, values), dims.evaluate(rest, values)) == divmod(a, b)


@settings(deadline=None, max_examples=300)
@given(dimension, dimension)
def test_comparison_is_sound(x, y):
    lower, upper = dims.bounds(x)
    for values in VALUES:
        assert lower <= dims.evaluate(x, values) <= upper
    for holds in (lambda a, b: a >= b, lambda a, b: a > b, lambda a, b: a <= b, lambda a, b: a < b):
        try:
            answer = holds(x, y)
        except InconclusiveDimensionOperation:
            continue
        assert all(holds(dims.evaluate(x, v), dims.evaluate(y, v)) == answer for v in VALUES)


@settings(deadline=None, max_examples=300)
@given(dimension)
def test_printing_and_reading_are_inverse(x):
    (again,) = symbolic_shape(str(x), scope=SCOPE)
    assert again is x or again == x


def test_equal_polynomials_are_one_object():
    assert (B + 1) * (B - 1) is B * B - 1
    assert {B + C: 1}[C + B] == 1
    assert (2, B + B) == (2, 2 * B)
    assert B != 1 and B != C and B + 1 != B and (B == 1) is False
    assert B - B == 0 and type(B - B) is int
    assert symbolic_shape("b")[0] is not symbolic_shape("b")[0]
    assert copy.deepcopy((B,))[0] is B
    assert np.int64(2) * B is 2 * B and type(np.int64(2) + B) is dims.Dim
    assert divmod(B + 3, np.int32(1)) == (B + 3, 0)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("b, 2*b+1", "(b, 2*b + 1)"),
        ("(b, 3)", "(b, 3)"),
        ("(b)*(b+1),", "(b^2 + b,)"),
        ("-b + 2*(b + 4)", "(b + 8,)"),
        ("b^2*c - 3*c*b^2", "(-2*b^2*c,)"),
        ("max(b, 4), min(b, 1), mod(b, 3), floordiv(b*6 + 4, 3)", "(max(4, b), 1, mod(b, 3), 2*b + 1)"),
        ("", "()"),
        ("()", "()"),
        ("mod(4*b + 3, 4), floordiv(b*c, c + 1)", "(3, b + floordiv(-b, c + 1))"),
    ],
)
def test_symbolic_shape(text, printed):
    assert str(symbolic_shape(text)) == printed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("b +", "a name, a number or '(' after 'b +', got the end"),
        ("b c", "the end of the text after 'b', got 'c'"),
        ("(b", "a name, a number or '(' after '( b', got the end"),
        ("...", "a name, a number or '(' at the start, got '.'"),
        ("sin(b)", "one of the functions floordiv, mod, max, min before '(' after 'sin (', got 'b'"),
        ("b^c", "a whole number as the power after 'b ^', got 'c'"),
        ("max(b)", "',' after 'max ( b', got ')'"),
    ],
)
def test_errors_of_symbolic_shape(text, expected):
    expected = "')' after '( b', got the end" if text == "(b" else expected
    with pytest.raises(ArgumentError) as error:
        symbolic_shape(text)
    assert str(error.value) == (
        f"symbolic_shape({text!r}): expected {expected}.\n  To mend: write dimensions between commas, as in 'b, 2*b + 1'."
    )


def test_comparisons_that_are_decided():
    assert B >= 1 and C >= 0 and D <= 5 and 2 <= D
    assert not B < 1
    assert 2 * B > B
    assert B * B >= B and B * C >= C
    assert B + C >= 1 and B * D >= 2 * B
    assert B % 3 < 3 and B // 2 >= 0 and D // 2 <= 2 and (B % -3) ** 2 >= 0
    assert bool(B) and bool(B + C)
    assert max(B + 1, B) is B + 1


def test_bounds_are_exact_however_large():
    large = 2**60 + 1
    assert dims.bounds(large * B) == (large, float("inf"))
    assert large * B >= large and not large * B < large


def test_errors_of_comparison_and_conversion():
    mend = "\n  To mend: give the variables bounds that decide it, as in symbolic_shape('b', scope=Scope(b=(8, None)))."
    every = "expected an answer that is the same for all values of the variables, got"
    for ask, text in [
        (lambda: B >= C, f"comparison of symbolic dimensions: {every} b >= c.{mend}"),
        (lambda: 3 > B, f"comparison of symbolic dimensions: {every} b < 3.{mend}"),
        (lambda: bool(C), f"truth value of a symbolic dimension: {every} c != 0.{mend}"),
        (lambda: int(B), f"conversion of a symbolic dimension to int: {every} the size of b.{mend}"),
        (lambda: B // C, f"division of symbolic dimensions: {every} whether c is 0 in floordiv(b, c).{mend}"),
        (lambda: dims.divide_exactly(B, 2, "reshape"), f"reshape: {every} whether 2 divides b.{mend}"),
    ]:
        with pytest.raises(InconclusiveDimensionOperation) as error:
            ask()
        assert str(error.value) == text
    with pytest.raises(ArgumentError) as error:
        dims.divide_exactly(7, 2, "reshape")
    assert str(error.value) == "reshape: expected a multiple of 2, got 7.\n  To mend: give sizes that divide."
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(B)
    with pytest.raises(ZeroDivisionError):
        B // 0
    with pytest.raises(TypeError):
        range(B)


def test_variables_of_two_scopes_do_not_mix():
    with pytest.raises(ArgumentError) as error:
        B + symbolic_shape("b")[0]
    assert str(error.value).startswith(
        "arithmetic on symbolic dimensions: expected variables of one scope, got b + b, with variables of 2.\n"
    )
    with pytest.raises(ArgumentError, match="expected 0 <= least <= greatest, got \\(3, 2\\)"):
        Scope(b=(3, 2))
    with pytest.raises(ArgumentError, match="expected an identifier, got '2b'"):
        SCOPE.variable("2b")


def test_questions_of_type_rules():
    assert dims.is_constant_dim(3) and dims.is_symbolic(B) and not dims.is_constant_shape((1, B))
    assert dims.same_shape((2, B + 1), (2, 1 + B)) and not dims.same_shape((2,), (B,))
    assert dims.size_of((2, B, B)) is 2 * B**2
    assert dims.divide_exactly(6 * B * D, 2 * B) is 3 * D
    assert dims.divide_exactly(B * B - 1, B + 1) is B - 1
    assert dims.divide_exactly(0, 0) == 0 and dims.divide_exactly(12, 4) == 3 and dims.divide_exactly(B, B) == 1
    assert dims.windows(B + 4, 5, 1) is B
    assert str(dims.windows(2 * B, 2, 2)) == "b"
    assert str(dims.windows(B, 3, 2)) == "floordiv(b - 3, 2) + 1"
    assert str(dims.windows(C, 3, 2)) == "max(0, floordiv(c - 3, 2) + 1)"
    assert dims.evaluate(dims.windows(B, 3, 2), {"b": 9}) == 4
    assert str(dims.dilate(C, 2)) == "max(0, 2*c - 1)"
    assert (B * C % 3).variables == {"b", "c"}
    with pytest.raises(ArgumentError, match=r"evaluation of dimension b \+ c: expected values of b, got values of c"):
        dims.evaluate(B + C, {"c": 1})
