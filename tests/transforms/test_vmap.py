"""Mapping functions over examples: axes, trees, names and errors."""

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx.core.error_classes import ArgumentError, ArgumentTypeError, AxisError, TreeError
from phalanx.core.source_info import format_code_position

A = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_in_axes_and_out_axes_choose_the_mapped_dimensions():
    np.testing.assert_allclose(phalanx.vmap(jnp.dot, (0, None))(A, A[0]), A @ A[0])
    np.testing.assert_allclose(phalanx.vmap(lambda x: x * 2, 1, 1)(A), A * 2)
    np.testing.assert_allclose(phalanx.vmap(lambda x: x * 2, -1, 0)(A), (A * 2).T)
    np.testing.assert_allclose(phalanx.vmap(lambda x: 1.0, axis_size=3, in_axes=None)(A), np.ones(3))


def test_in_axes_and_out_axes_may_be_pytree_prefixes():
    tree = {"a": A, "b": (A[0], A)}
    got = phalanx.vmap(
        lambda t, s: {"x": t["a"] * s, "y": t["b"][0]}, ({"a": 0, "b": (None, 0)}, None), {"x": 1, "y": None}
    )(tree, 2.0)
    np.testing.assert_allclose(got["x"], (A * 2).T)
    np.testing.assert_allclose(got["y"], A[0])


def test_vmap_may_be_nested():
    got = phalanx.vmap(phalanx.vmap(lambda x, y: x + y, (None, 0)), (0, None))(A[0], A[1])
    np.testing.assert_allclose(got, A[0][:, None] + A[1][None])


def test_keyword_arguments_are_mapped_over_their_first_dimension():
    np.testing.assert_allclose(phalanx.vmap(lambda x, *, y: x + y)(A, y=A), 2 * A)


def test_per_example_gradients():
    def loss(w, x):
        return jnp.sum(jnp.tanh(w * x))

    got = phalanx.vmap(phalanx.grad(loss), (None, 0))(A[0], A)
    want = np.stack([np.asarray(phalanx.grad(loss)(A[0], x)) for x in A])
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_python_control_flow_on_unmapped_values():
    assert phalanx.vmap(lambda x, flag: x if flag else -x, (0, None))(A, True).tolist() == A.tolist()


def first(x, y=None):
    return x


def test_a_tracer_shows_its_batch():
    seen = []
    phalanx.vmap(lambda x: seen.append(x.val), in_axes=1)(jnp.ones((2, 3)))
    assert seen[0].shape == (2, 3)


def test_errors_name_the_function_its_line_and_the_parameter():
    at = format_code_position(first)
    with pytest.raises(ArgumentError) as e:
        phalanx.vmap(first)({"w": A}, A.T)
    assert str(e.value) == (
        f"vmap of {at}: expected mapped dimensions of one size, got 2 (dimension 0 of argument x['w']), "
        "3 (dimension 0 of argument y).\n"
        "  Fix: make the sizes agree, or give None in in_axes for arguments that are not mapped."
    )
    with pytest.raises(AxisError) as e:
        phalanx.vmap(first, (None, 2))(A, A)
    assert str(e.value) == (
        f"vmap of {at}, in_axes for argument y: expected a dimension of an array of rank 2, got 2.\n"
        "  Fix: map over an existing dimension, or give None for an argument that is the same for all examples."
    )
    with pytest.raises(ArgumentError) as e:
        phalanx.vmap(first, None)(A)
    assert str(e.value) == (
        f"vmap of {at}: expected at least one argument to map over, got in_axes that are all None.\n"
        "  Fix: set in_axes to 0 for one argument, or pass axis_size."
    )
    with pytest.raises(ArgumentError) as e:
        phalanx.vmap(first, out_axes=({"w": None},))(({"w": A},))
    assert str(e.value) == (
        f"vmap of {at}, out_axes for result[0]['w']: expected a result that is the same for all examples, since "
        "out_axes is None, got one that depends on a mapped argument.\n"
        "  Fix: set out_axes to the position of the mapped dimension in this result, such as 0."
    )
    with pytest.raises(TreeError) as e:
        phalanx.vmap(first, ({"a": 0},))((A, A))
    assert str(e.value).startswith(f"vmap of {at}, in_axes[0]: expected a leaf or a tuple of length 2, got a dict with")


def test_errors_name_the_argument_that_cannot_be_mapped():
    at = format_code_position(first)
    for call, text in (
        (lambda: phalanx.vmap(3), "vmap, argument fun: expected a function, got 3."),
        (
            lambda: phalanx.vmap(first)("a"),
            f"vmap of {at}, argument x: expected an array or a scalar, got 'a' of type str.",
        ),
        (
            lambda: phalanx.vmap(first, in_axes="a")(jnp.ones(3)),
            f"vmap of {at}, in_axes for argument x: expected an int or None, got 'a'.",
        ),
    ):
        with pytest.raises(ArgumentTypeError) as e:
            call()
        assert str(e.value).startswith(text)
    assert phalanx.vmap(lambda x: x, in_axes=np.int64(1))(jnp.ones((2, 3))).shape == (3, 2)


def test_an_argument_that_is_not_mapped_may_be_any_object():
    label = object()
    f = phalanx.vmap(lambda x, text, thing: x * len(text) * (thing is label), (0, None, None))
    assert f(jnp.arange(3), "ab", label).tolist() == [0, 2, 4]


def test_a_mapped_callable_may_have_attributes_that_no_function_has():
    class Scale:
        __name__ = None

        def __init__(self):
            self.__annotations__ = None

        def __call__(self, x):
            return 2 * x

    x = jnp.arange(2.0)
    for transform in (phalanx.vmap, phalanx.jit, phalanx.checkpoint):
        np.testing.assert_array_equal(transform(Scale())(x), [0, 2])
    assert phalanx.make_jaxpr(Scale())(x).debug_name == "Scale"
    assert float(phalanx.grad(Scale())(1.0)) == 2


def test_the_docstring_says_that_the_function_is_vectorized():
    def total(x):
        """Sum the elements."""
        return x.sum()

    mapped = phalanx.vmap(total)
    assert mapped.__name__ == "total"
    assert mapped.__doc__ == "Vectorized version of total.\n\nOriginal documentation:\n\nSum the elements."
    assert phalanx.vmap(lambda x: x).__doc__ is None


def test_sum_match_sums_results_that_differ_where_out_axes_is_none():
    f = phalanx.vmap(lambda x, y: (x * 2, y, x), (0, None), (None, None, 0), sum_match=True)
    total, same, each = f(A, 3.0)
    np.testing.assert_allclose(total, (A * 2).sum(0))
    assert float(same) == 3.0 and np.array_equal(each, A)
    assert np.array_equal(phalanx.vmap(lambda x: x, 1, None, sum_match=True)(A), A.sum(1))
    assert phalanx.vmap(lambda x: x > 0, 0, None, sum_match=True)(jnp.array([1, 0, 2])).item() == 2
