"""Symbolic dimensions: the algebra and its normal form, and that bounds and comparisons never answer wrongly."""

import copy
import itertools
import operator
import pickle

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from phalanx import symbolic as dims
from phalanx.core.error_classes import ArgumentError, InconclusiveDimensionOperation
from phalanx.export import SymbolicScope
from phalanx.symbolic import Fact, Scope

SCOPE = Scope(c=(0, None), d=(2, 5))
B, C, D = map(SCOPE.variable, "bcd")
VALUES = [{"b": b, "c": c, "d": d} for b, c, d in itertools.product((1, 2, 3, 4, 7, 12), (0, 1, 2, 5), (2, 3, 4, 5))]

# The same expressions over a scope with facts, checked on the values that satisfy these.
KNOWN = Scope(c=(0, None), d=(2, 5))
KB, KC, KD = map(KNOWN.variable, "bcd")
KNOWN.learn(Fact("b >= c + 2", KB - KC - 2))
KNOWN.learn(Fact("c + d <= 7", 7 - KC - KD))
KNOWN.learn(Fact("mod(b, 4) == 0", KB, 4))
KNOWN.multiple(KB, 4)
KNOWN_VALUES = [
    {"b": b, "c": c, "d": d}
    for b, c, d in itertools.product((4, 8, 12, 16, 20), range(7), range(2, 6))
    if b >= c + 2 and c + d <= 7
]

# And over one where facts tie the variables to each other: b = 2*q + 1, 2*c = 3*d, and 3 divides b + c.
TIED = SymbolicScope(["mod(b, 2) == 1", "2*c == 3*d", "mod(b + c, 3) == 0", "max(b, c) <= 40", "d >= 0"])
TIED_VALUES = [
    {"b": b, "c": c, "d": d}
    for b, c, d in itertools.product(range(1, 41, 2), range(1, 41), range(41))
    if 2 * c == 3 * d and (b + c) % 3 == 0
]

OPS = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, dims.max_dim, dims.min_dim]


def built(tree, names):
    """The dimension and the Python function that an expression tree spells."""
    if not isinstance(tree, tuple):
        return (names[tree], lambda v: v[tree]) if isinstance(tree, str) else (tree, lambda v: tree)
    op, left, right = tree
    (x, f), (y, g) = built(left, names), built(right, names)
    plain = {dims.max_dim: max, dims.min_dim: min}.get(op, op)
    return op(x, y), lambda v: plain(f(v), g(v))


expression = st.recursive(
    st.sampled_from(["b", "c", "d", 0, 1, 2, 3, 5, -1, -2, -3]),
    lambda inner: st.tuples(st.sampled_from(OPS), inner, inner),
    max_leaves=6,
)
scopes = st.sampled_from(
    [
        ({"b": B, "c": C, "d": D}, VALUES),
        ({"b": KB, "c": KC, "d": KD}, KNOWN_VALUES),
        ({name: TIED.variable(name) for name in "bcd"}, TIED_VALUES),
    ]
)


def made(tree, names):
    """The same, or no example where a division may be by zero."""
    try:
        return built(tree, names)
    except (InconclusiveDimensionOperation, ZeroDivisionError):
        assume(False)


@settings(deadline=None, max_examples=400)
@given(expression, scopes)
def test_arithmetic_commutes_with_evaluation_and_bounds_hold(tree, scope):
    names, values = scope
    x, f = made(tree, names)
    lower, upper = dims.bounds(x)
    for v in values:
        size = f(v)
        assert dims.evaluate(x, v) == size
        assert lower <= size <= upper


@settings(deadline=None, max_examples=400)
@given(expression, expression, scopes)
def test_no_comparison_is_answered_wrongly(left, right, scope):
    names, values = scope
    (x, f), (y, g) = made(left, names), made(right, names)
    for holds in (operator.ge, operator.gt, operator.le, operator.lt):
        try:
            answer = holds(x, y)
        except InconclusiveDimensionOperation:
            continue
        assert all(holds(f(v), g(v)) == answer for v in values)
    assert (x == y) == (y == x) and (x == y) != (x != y)
    if x == y:
        assert all(f(v) == g(v) for v in values) and hash(x) == hash(y)


IDENTITIES = [
    (4 * (B // 4) + B % 4, B),
    ((B * B - 1) // (B + 1), B - 1),
    ((B // 2) // 3, B // 6),
    ((2 * B) // 4, B // 2),
    ((B + 8) // 4, B // 4 + 2),
    ((5 * B + 7) % 4, (B + 3) % 4),
    (dims.max_dim(B, C), dims.max_dim(C, B)),
    (dims.max_dim(dims.max_dim(B, C), D), dims.max_dim(B, dims.max_dim(D, C))),
    (dims.max_dim(B, B + C), B + C),
    (dims.min_dim(D, 7), D),
    (D // 6, 0),
    ((B % 3) // 3, 0),
    ((B % 3) % 3, B % 3),
    (8 * (KB // 8) + KB % 8, KB),
    (4 * (KB // 4), KB),
    (KB % 2, 0),
    (dims.max_dim(KB, KC), KB),
    (dims.non_negative(KC - KB), 0),
]


@pytest.mark.parametrize(("x", "y"), IDENTITIES, ids=[str(i) for i in range(len(IDENTITIES))])
def test_equal_sizes_are_one_object(x, y):
    assert x is y or (type(x) is int and x == y)


def test_equality_is_identity_and_never_guesses():
    assert (B + 1) * (B - 1) is B * B - 1
    assert {B + C: 1}[C + B] == 1
    assert (2, B + B) == (2, 2 * B)
    assert B != 1 and B != C and B + 1 != B and (B == 1) is False
    assert B - B == 0 and type(B - B) is int
    assert Scope().variable("b") is not Scope().variable("b")
    assert copy.deepcopy((B,))[0] is B
    assert np.int64(2) * B is 2 * B and type(np.int64(2) + B) is dims.Dim
    assert divmod(B + 3, np.int32(1)) == (B + 3, 0)
    assert Scope(b=(3, 3)).variable("b") == 3


EQUAL = [
    ([], lambda a, b: (dims.max_dim(a, b) + dims.min_dim(a, b), a + b)),
    ([], lambda a, b: (dims.max_dim(a, b) - a, dims.non_negative(b - a))),
    ([], lambda a, b: (dims.max_dim(2 * a, 2 * b), 2 * dims.max_dim(a, b))),
    ([], lambda a, b: ((a + 1) // 2 + a // 2, a)),
    ([], lambda a, b: (-(-a // 4), (a + 3) // 4)),
    (["a >= b", "b >= a"], lambda a, b: (a, b)),
    (["a >= b", "b >= a"], lambda a, b: (a - b, 0)),
    (["max(a, b) == a"], lambda a, b: (dims.min_dim(a, b), b)),
    (["a*b == 12"], lambda a, b: (a * b + 1, 13)),
    (["floordiv(a, b) == 2"], lambda a, b: (a // b, 2)),
    (["mod(a, 4) == 3"], lambda a, b: (a % 2, 1)),
    (["mod(a, 8) == 0"], lambda a, b: (a % 16 // 8 * 8, a % 16)),
    (["2*a == 3*b"], lambda a, b: (a // 3 * 3, b // 2 * 3)),
    (["mod(a + b, 2) == 0"], lambda a, b: ((a - b) % 2, 0)),
]


@pytest.mark.parametrize(("constraints", "make"), EQUAL, ids=range(len(EQUAL)))
def test_different_spellings_of_one_size_are_equal(constraints, make):
    scope = SymbolicScope(constraints)
    x, y = make(scope.variable("a"), scope.variable("b"))
    assert x == y and hash(x) == hash(y) and dims.same_shape((x, 2), (y, 2)) and {(x,): 1}[(y,)] == 1
    assert x != y + 1 and y - 1 != x


def test_what_is_equal_for_some_sizes_only_is_not_equal():
    a, b = map(Scope().variable, "ab")
    for x, y in [(dims.max_dim(a, b), a), (a // b, 1), (a % 2, 0), (a * b, a + b), (a - b, 0), (dims.min_dim(a, 5), a)]:
        assert x != y and y != x and not x == y


def test_what_a_person_finds_obvious_is_decided():
    scope = Scope()
    a, b, c = map(scope.variable, "abc")
    scope.learn(Fact("a >= b + 8", a - b - 8))
    assert a >= 9 and a > b and not a < b + 8 and a // 2 >= 4 and 3 * a >= 3 * b + 24 and a * c >= b * c + 8 * c
    assert b >= b % 3 and b % 3 < 3 and 4 * (b // 4) <= b and 4 * (b // 4) > b - 4
    assert dims.max_dim(b, c) >= b and dims.max_dim(b, c) + dims.min_dim(b, c) >= b + c
    assert dims.min_dim(b, c) <= c and dims.max_dim(b, c) <= b + c and dims.non_negative(b - c) <= b - 1
    assert (b + c - 1) // c >= 1 and c * (b // c) <= b and b // c <= b and b % c <= c - 1
    assert b * b >= b and b * c >= c and (b - 1) * (c - 1) >= 0 and b * c + 1 >= b + c
    assert (b + 7) // 8 * 8 >= b and (b + 7) // 8 <= b
    assert bool(b) and bool(b + c) and max(b + 1, b) is b + 1


def test_bounds_are_exact_however_large():
    large = 2**60 + 1
    assert dims.bounds(large * B) == (large, float("inf"))
    assert large * B >= large and not large * B < large


def test_an_undecided_question_is_explained():
    fix = (
        "\n  Fix: give the scope a constraint that decides it, as in symbolic_shape('b, c', constraints=['b >= c']), "
        "or scope.assume('b >= c'); both are checked when the program is called."
    )
    every = "expected an answer that is the same for all values of the variables, got"
    for ask, text in [
        (
            lambda: B >= C,
            f"comparison of symbolic dimensions: {every} b >= c, which holds for b=1, c=1 and not for b=1, c=2.{fix}",
        ),
        (lambda: 3 > B, f"comparison of symbolic dimensions: {every} b < 3, which holds for b=1 and not for b=3.{fix}"),
        (
            lambda: bool(C),
            f"truth value of a symbolic dimension: {every} c != 0, which holds for c=1 and not for c=0.{fix}",
        ),
        (
            lambda: B // C,
            f"division of symbolic dimensions: {every} whether c is 0 in floordiv(b, c), "
            f"which holds for c=1 and not for c=0.{fix}",
        ),
    ]:
        with pytest.raises(InconclusiveDimensionOperation) as error:
            ask()
        assert str(error.value) == text


def test_misuses():
    with pytest.raises(InconclusiveDimensionOperation) as error:
        int(B)
    assert str(error.value) == (
        "conversion of a symbolic dimension to int: expected a size that is known while tracing, got b.\n"
        "  Fix: use the dimension itself in shapes and arithmetic; phalanx.numpy.asarray makes it an array."
    )
    with pytest.raises(InconclusiveDimensionOperation) as error:
        dims.divide_exactly(B, 2, "reshape")
    assert str(error.value) == (
        "reshape: expected a size that 2 divides for all values of the variables, got b.\n"
        "  Fix: give the scope the constraint 'mod(b, 2) == 0', or write the size as a multiple, such as 2*n."
    )
    with pytest.raises(ArgumentError) as error:
        dims.divide_exactly(7, 2, "reshape")
    assert (
        str(error.value) == "reshape: expected a multiple of 2, got 7.\n  Fix: choose a size that is a multiple of 2."
    )
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(B)
    with pytest.raises(ZeroDivisionError):
        B // 0
    with pytest.raises(TypeError):
        range(B)
    with pytest.raises(ArgumentError, match="expected polynomials of at most 1000 terms and powers up to 64"):
        B**65
    with pytest.raises(ArgumentError, match="expected 0 <= lower <= upper, got \\(3, 2\\)"):
        Scope(b=(3, 2))
    with pytest.raises(
        ArgumentError, match="expected an identifier other than floordiv, mod, max, min, non_negative, got '2b'"
    ):
        SCOPE.variable("2b")


def test_variables_of_two_scopes_do_not_mix():
    with pytest.raises(ArgumentError) as error:
        B + Scope().variable("b")
    assert str(error.value).startswith(
        "arithmetic on symbolic dimensions: expected variables of one scope, got b and b, of two scopes.\n"
    )


def test_questions_of_type_rules():
    assert dims.is_constant_shape((3,)) and dims.is_symbolic(B) and not dims.is_constant_shape((1, B))
    assert dims.same_shape((2, B + 1), (2, 1 + B)) and not dims.same_shape((2,), (B,))
    assert dims.size_of((2, B, B)) is 2 * B**2
    assert dims.divide_exactly(6 * B * D, 2 * B) is 3 * D
    assert dims.divide_exactly(B * B - 1, B + 1) is B - 1
    assert dims.divide_exactly(KB * KC, 4) is KB // 4 * KC
    assert dims.divide_exactly(0, 0) == 0 and dims.divide_exactly(12, 4) == 3 and dims.divide_exactly(B, B) == 1
    assert dims.windows(B + 4, 5, 1) is B
    assert str(dims.windows(2 * B, 2, 2)) == "b"
    assert str(dims.windows(B, 3, 2)) == "floordiv(b + 1, 2) - 1" or dims.bounds(dims.windows(B, 3, 2))[0] == 0
    assert dims.evaluate(dims.windows(B, 3, 2), {"b": 9}) == 4
    assert str(dims.dilate(C, 2)) == "max(0, 2*c - 1)"
    assert (B * C % 3).variables == {"b", "c"}
    with pytest.raises(ArgumentError, match=r"evaluation of dimension c \+ b: expected values of b, got values of c"):
        dims.evaluate(B + C, {"c": 1})
    assert dims.evaluate(dims.max_dim(B, C), {"b": D, "c": D + 1}) is D + 1


def test_the_search_is_bounded_whatever_it_is_asked():
    scope = Scope()
    names = [scope.variable(f"x{i}") for i in range(12)]
    wild = names[0]
    for i, x in enumerate(names[1:]):
        wild = dims.max_dim(wild * 3 - x, (x + i) // 2) if i % 2 else dims.min_dim(wild + x, 7 * x // (i + 2))
    with pytest.raises(InconclusiveDimensionOperation):
        assert wild >= 5
