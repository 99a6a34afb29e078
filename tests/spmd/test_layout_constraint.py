"""`with_layout_constraint`: the order in memory of values inside compiled functions."""

import re

import numpy as np
import pytest
from phalanx.experimental.layout import Layout, with_layout_constraint

import phalanx
import phalanx.numpy as jnp

X = np.arange(12.0, dtype=np.float32).reshape(3, 4)


def constrained(f, *args):
    """The layouts, minor to major, that the program of `f` asks for."""
    text = phalanx.jit(f).lower(*args).as_text()
    return re.findall(r"@LayoutConstraint.*result_layouts = \[dense<(.*?)>", text)


def test_the_program_asks_for_the_layout():
    f = lambda x: with_layout_constraint(x.T, Layout((1, 0))) * 2
    assert constrained(f, X) == ["[0, 1]"]
    np.testing.assert_array_equal(phalanx.jit(f)(X), X.T * 2)


def test_trees_take_one_layout_or_one_for_each_leaf():
    f = lambda x: with_layout_constraint({"a": x, "b": x * 2}, {"a": Layout((1, 0)), "b": Layout((0, 1))})
    assert sorted(constrained(f, X)) == ["[0, 1]", "[1, 0]"]


def test_derivatives_have_the_layout():
    f = lambda x: (with_layout_constraint(x, Layout((1, 0))) ** 2).sum()
    assert constrained(phalanx.grad(f), X) == ["[0, 1]"] * 2
    np.testing.assert_array_equal(phalanx.jit(phalanx.grad(f))(X), 2 * X)


def test_the_mapped_dimension_is_outermost():
    f = phalanx.vmap(lambda x: with_layout_constraint(x, Layout((1, 0))), in_axes=1, out_axes=1)
    assert constrained(f, np.zeros((2, 5, 3))) == ["[0, 2, 1]"]


def test_outside_of_a_program_an_array_is_copied_into_the_layout():
    y = with_layout_constraint(jnp.asarray(X), Layout((1, 0)))
    assert y.format.layout.major_to_minor == (1, 0) and not y.committed
    np.testing.assert_array_equal(y, X)
    np.testing.assert_array_equal(with_layout_constraint(y, Layout((0, 1))) + 1, X + 1)


def test_refusals():
    with pytest.raises(ValueError) as error:
        with_layout_constraint({"a": X}, Layout((0,)))
    assert str(error.value) == (
        "with_layout_constraint, layout of x['a']: expected a permutation of the dimensions of f32[3,4], got (0,).\n"
        "  Fix: pass Layout((0, 1)) for the row-major layout."
    )
    with pytest.raises(TypeError, match="expected a Layout with an order of dimensions, got 'row-major'"):
        with_layout_constraint(X, "row-major")
