"""Symbolic shapes as users write them: texts, scopes, constraints, specs of arguments."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import phalanx
import phalanx.symbolic as dims
from phalanx.core.error_classes import ArgumentError, ArgumentTypeError, InconclusiveDimensionOperation
from phalanx.export import (
    SymbolicScope,
    poly_spec,
    poly_specs,
    symbolic_args_specs,
    symbolic_dim_bounds,
    symbolic_shape,
)

OPS = [lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y, dims.max_dim, dims.min_dim]
B, C = symbolic_shape("b, c")


def combined(x, y, op):
    return op(x, y)


dimension = st.recursive(
    st.sampled_from([B, C, 0, 1, 2, 3, -2]),
    lambda inner: st.one_of(
        st.builds(combined, inner, inner, st.sampled_from(OPS)),
        st.builds(lambda x, n: x // n, inner, st.integers(2, 5)),
        st.builds(lambda x, n: x % n, inner, st.integers(2, 5)),
    ),
    max_leaves=6,
)


def test_symbolic_dim_bounds():
    b, c = symbolic_shape("b, c", constraints=["b >= 3", "b <= 20", "c <= b"])
    given = (3, np.int64(4), b, c, 2 * b - 1, b * c, c - b, b % 3, b // 2)
    expected = [(3, 3), (4, 4), (3, 20), (1, 20), (5, 39), (3, 400), (-19, 0), (0, 2), (1, 10)]
    assert [symbolic_dim_bounds(dim) for dim in given] == expected
    with pytest.raises(ArgumentTypeError, match=r"symbolic_dim_bounds: expected a dimension: an int .*, got 2\.5\."):
        symbolic_dim_bounds(2.5)


@settings(deadline=None, max_examples=300)
@given(dimension)
def test_printing_and_reading_are_inverse(x):
    if dims.is_symbolic(x):
        scope = SymbolicScope()
        scope._scope = x.scope
        assert symbolic_shape(str(x), scope=scope) == (x,)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("b, 2*b+1", "(b, 2*b + 1)"),
        ("(b, 3)", "(b, 3)"),
        ("(b)*(b+1),", "(b^2 + b,)"),
        ("-b + 2*(b + 4)", "(b + 8,)"),
        ("b^2*c - 3*c*b^2", "(- 2*b^2*c,)"),
        ("max(b, 4), min(b, 1), mod(b, 3), floordiv(b*6 + 4, 3)", "(max(4, b), 1, mod(b, 3), 2*b + 1)"),
        ("max(b, c, 2*b), min(b, c, b + c)", "(max(2*b, c), min(b, c))"),
        ("non_negative(b - 4), non_negative(b)", "(max(0, b - 4), b)"),
        ("b // 2, b % 2 + 1", "(floordiv(b, 2), mod(b, 2) + 1)"),
        ("", "()"),
        ("()", "()"),
        ("mod(4*b + 3, 4), floordiv(b*c, c + 1)", "(3, floordiv(- b, c + 1) + b)"),
    ],
)
def test_parsing_shapes(text, printed):
    assert str(symbolic_shape(text)) == printed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("b +", "a name, a number or '(' after 'b +', got the end"),
        ("b c", "the end of the text after 'b', got 'c'"),
        ("(b", "')' after '( b', got the end"),
        (
            "...",
            "a dimension instead of '...', since there is no array shape to copy it from, after '...', got the end",
        ),
        ("sin(b)", "one of the functions floordiv, mod, max, min, non_negative before '(' after 'sin (', got 'b'"),
        ("b^c", "a whole number as the power after 'b ^', got 'c'"),
        ("mod(b)", "',' after 'mod ( b', got ')'"),
        ("b + 1234567890123456789", "a number of at most 18 digits after 'b +', got '1234567890123456789'"),
    ],
)
def test_parse_errors(text, expected):
    with pytest.raises(ArgumentError) as error:
        symbolic_shape(text)
    assert str(error.value) == (
        f"symbolic_shape, {text!r}: expected {expected}.\n"
        "  Fix: write dimensions between commas, as in 'b, 2*b + 1', and constraints as in 'b >= c + 8'."
    )


def test_parsing_is_bounded_in_time():
    for text in ("(" * 200 + "b" + ")" * 200, "(a+b+c+d+e+f+g+h)^64", "b^9999999", "*".join("abcdefgh" * 40)):
        with pytest.raises(ArgumentError):
            symbolic_shape(text)


CONSTRAINTS = [
    (["a >= b + 8"], lambda a, b: a >= 9),
    (["a >= b + 8", "b >= 4"], lambda a, b: a >= 12 and a - b >= 8),
    (["b <= 8", "a < b"], lambda a, b: a <= 7 and b >= 2 and b - a > 0),
    (["mod(a, 8) == 0"], lambda a, b: a % 4 == 0 and a // 8 * 8 == a and a >= 8),
    (["a == 2*b"], lambda a, b: a // 2 == b and a >= 2 and a * b >= 2 * b),
    (["2*b == a + 1"], lambda a, b: (a + 1) % 2 == 0 and b <= a),
    (["b >= 0", "a <= b"], lambda a, b: b >= 1 and b >= a),
    (["floordiv(a, 4) >= 2"], lambda a, b: a >= 8),
    (["a + b <= 16", "a >= 3*b"], lambda a, b: b <= 4 and a <= 15),
    (["max(a, b) <= 10"], lambda a, b: a <= 10 and b <= 10),
    (["mod(a, 4) == 3"], lambda a, b: a % 4 == 3 and a >= 3 and (a + 1) % 2 == 0),
    (["mod(a, 8) == 0", "a >= 9"], lambda a, b: a >= 16 and a % 16 <= 8),
    (["2*a == 3*b"], lambda a, b: a % 3 == 0 and b % 2 == 0 and a >= b + 1),
    (["a*b == 12"], lambda a, b: a * b == 12 and a <= 12),
    (["floordiv(a, b) == 2"], lambda a, b: a >= 2 * b and a < 3 * b),
    (["max(a, b) == a"], lambda a, b: a >= b),
    (["mod(a + b, 2) == 0"], lambda a, b: (a - b) % 2 == 0),
]


@pytest.mark.parametrize(("constraints", "follows"), CONSTRAINTS, ids=[" and ".join(c) for c, _ in CONSTRAINTS])
def test_constraints_decide_comparisons(constraints, follows):
    assert follows(*symbolic_shape("a, b", constraints=constraints))


def test_only_a_single_remainder_is_parsed_as_a_divisibility_constraint():
    """`%` binds tighter than `+`, and a sum of remainders is not the remainder of a sum."""
    a, b = symbolic_shape("a, b", constraints=["a + b % 8 == 9"])
    assert a == 9 - b % 8
    with pytest.raises(
        ArgumentError, match="expected constraints that some sizes satisfy, got a constraint that holds for no sizes"
    ):
        SymbolicScope(["mod(a, 3) + mod(b, 8) == 11"])


def test_empty_sizes_are_allowed_where_they_are_declared():
    (b,) = symbolic_shape("b", constraints=["b >= 0"])
    assert dims.bounds(b) == (0, float("inf")) and b >= 0
    with pytest.raises(InconclusiveDimensionOperation):
        assert b >= 1


def test_assumptions_hold_from_the_time_they_are_made():
    scope = SymbolicScope()
    b, c = symbolic_shape("b, c", scope=scope)
    with pytest.raises(InconclusiveDimensionOperation):
        assert b >= c
    scope.assume("b >= c")
    assert b >= c and scope.constraints == ["b >= c"] and [f.text for f in scope.facts] == ["b >= c"]
    with pytest.raises(
        ArgumentError,
        match="^constraint 'b < c': expected constraints that some sizes satisfy, got a constraint that holds",
    ):
        scope.assume("b < c")
    with pytest.raises(
        ArgumentError, match="^constraint 'b == c': expected an inequality, since dimensions computed earlier"
    ):
        scope.assume("b == c")


@pytest.mark.parametrize(
    "constraints",
    [
        ["b >= 4", "b <= 3"],
        ["a >= b + 1", "b >= a"],
        ["a == b", "a >= b + 1"],
        ["b <= 0"],
        ["2*b == 2*b + 1"],
        ["mod(a, 2) == 0", "mod(a, 2) == 1"],
        ["mod(a, 4) == 4"],
        ["a == 6*b", "mod(a, 3) == 1"],
    ],
    ids=str,
)
def test_unsatisfiable_constraints_are_an_error(constraints):
    with pytest.raises(ArgumentError, match="expected constraints that some sizes satisfy"):
        SymbolicScope(constraints)


def test_unsupported_constraints_are_an_error():
    with pytest.raises(
        ArgumentError, match=re.escape("constraint 'a': expected one of ==, >=, <=, >, < after 'a', got the end")
    ):
        SymbolicScope(["a"])
    with pytest.raises(ArgumentError, match="^symbolic shapes: expected constraints or a scope, got both"):
        symbolic_shape("b", constraints=["b >= 2"], scope=SymbolicScope())


@pytest.mark.parametrize(
    "constraints", [c for c, _ in CONSTRAINTS if "a == 2*b" not in c and "2*b == a + 1" not in c], ids=str
)
def test_bounds_under_constraints_agree_with_brute_force(constraints):
    """What the facts and the given least sizes allow lies within the bounds that were worked out."""
    scope = SymbolicScope(constraints)
    a, b = scope.variable("a"), scope.variable("b")
    least = {
        "a": 9 if "a >= 9" in constraints else 1,
        "b": 0 if "b >= 0" in constraints else 4 if "b >= 4" in constraints else 1,
    }
    most = {"a": 20, "b": 8 if "b <= 8" in constraints else 20}
    seen = 0
    for i, j in itertools.product(range(least["a"], most["a"] + 1), range(least["b"], most["b"] + 1)):
        values = {"a": i, "b": j}
        if all(fact.holds(values) for fact in scope.facts):
            seen += 1
            for dim in (a, b, a - b, a + b, a // 2 - b, a * b):
                low, high = dims.bounds(dim)
                assert low <= dims.evaluate(dim, values) <= high
    assert seen


def test_specs_of_arguments():
    args = {"x": np.ones((2, 3, 4), "f4"), "y": [np.ones(3, "i4"), phalanx.ShapeDtypeStruct((5,), "float32")]}
    found = symbolic_args_specs(args, {"x": "b, _, ...", "y": "(n,)"}, constraints=["b >= n"])
    (b, *rest), (n,) = found["x"].shape, found["y"][0].shape
    assert rest == [3, 4] and b >= n and found["y"][1].shape == (n,) and found["y"][0].dtype == np.int32
    whole = symbolic_args_specs(args, "b, ...")
    assert str(whole["x"].shape) == "(b, 3, 4)" and whole["y"][1].shape == whole["x"].shape[:1]
    assert symbolic_args_specs(args, None)["x"].shape == (2, 3, 4)
    for text, message in [
        ("b, _", "expected 3 dimensions, as the array has, got 2"),
        ("b, 4, _", "expected the shape (2, 3, 4) with some sizes made symbolic, got 4 for a dimension of size 3"),
        ("_, _, _, _", "expected 3 dimensions, as the array has, after '_ , _ , _ , _', got the end"),
    ]:
        with pytest.raises(ArgumentError) as error:
            symbolic_args_specs(args, {"x": text, "y": None})
        assert str(error.value).startswith(f"symbolic_args_specs, args['x'], {text!r}: {message}.")


def test_poly_spec_and_poly_specs():
    assert str(poly_spec((2, None, 3), "float32", "(b, n, _)")) == "ShapeDtypeStruct(shape=(b, n, 3), dtype=float32)"
    a, b = poly_specs((np.ones((2, 3)), np.ones(3)), ("(b, _)", "(b,)"))
    assert a.shape[0] is b.shape[0]
