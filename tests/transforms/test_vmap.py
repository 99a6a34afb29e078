"""Mapping functions over examples: axes, trees, names and errors."""

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx.core.errors import ArgumentError, ArgumentTypeError, AxisError, TreeError

A = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_axes_of_arguments_and_results():
    np.testing.assert_allclose(phalanx.vmap(jnp.dot, (0, None))(A, A[0]), A @ A[0])
    np.testing.assert_allclose(phalanx.vmap(lambda x: x * 2, 1, 1)(A), A * 2)
    np.testing.assert_allclose(phalanx.vmap(lambda x: x * 2, -1, 0)(A), (A * 2).T)
    np.testing.assert_allclose(phalanx.vmap(lambda x: 1.0, axis_size=3, in_axes=None)(A), np.ones(3))


def test_axes_are_prefixes_of_trees():
    tree = {"a": A, "b": (A[0], A)}
    got = phalanx.vmap(
        lambda t, s: {"x": t["a"] * s, "y": t["b"][0]}, ({"a": 0, "b": (None, 0)}, None), {"x": 1, "y": None}
    )(tree, 2.0)
    np.testing.assert_allclose(got["x"], (A * 2).T)
    np.testing.assert_allclose(got["y"], A[0])


def test_vmaps_nest():
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


def test_errors_name_the_argument():
    with pytest.raises(ArgumentError) as e:
        phalanx.vmap(lambda x, y: x)(A, A.T)
    assert str(e.value) == (
        "vmap: expected mapped dimensions of one size, got 2 (argument[0]), 3 (argument[1]).\n"
        "  To mend: make the sizes agree, or give None in in_axes for arguments that are not mapped."
    )
    with pytest.raises(AxisError) as e:
        phalanx.vmap(lambda x: x, 2)(A)
    assert str(e.value).startswith("vmap, in_axes for argument[0]: expected a dimension of an array of rank 2, got 2.")
    with pytest.raises(ArgumentError) as e:
        phalanx.vmap(lambda x: x, None)(A)
    assert "at least one argument to map over" in str(e.value)
    with pytest.raises(ArgumentError) as e:
        phalanx.vmap(lambda x: x, out_axes=None)(A)
    assert "the same for all examples, since out_axes is None" in str(e.value)
    with pytest.raises(TreeError):
        phalanx.vmap(lambda x: x, ({"a": 0},))((A, A))


def test_what_cannot_be_mapped_is_named():
    for call, text in (
        (lambda: phalanx.vmap(3), "vmap, argument fun: expected a function, got 3."),
        (
            lambda: phalanx.vmap(lambda x: x)("a"),
            "vmap, argument[0]: expected an array or a scalar, got 'a' of type str.",
        ),
        (
            lambda: phalanx.vmap(lambda x: x, in_axes="a")(jnp.ones(3)),
            "vmap, in_axes for argument[0]: expected an int or None, got 'a'.",
        ),
    ):
        with pytest.raises(ArgumentTypeError) as e:
            call()
        assert str(e.value).startswith(text)
    assert phalanx.vmap(lambda x: x, in_axes=np.int64(1))(jnp.ones((2, 3))).shape == (3, 2)
