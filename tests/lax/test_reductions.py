"""Reduction by any associative function: values, derivatives, mapping, and the short way for known functions."""

from __future__ import annotations

import numpy as np
import pytest
from phalanx.test_util import check_grads
from tests.meshes import auto_mesh

import phalanx
from phalanx import errors, lax

X = np.array([[0.5, 1.5, -1.0], [2.0, 0.25, 3.0]], np.float32)


def log_sum(x, y):
    return lax.log(lax.add(lax.exp(x), lax.exp(y)))


def test_a_monoid_is_lowered_to_its_reduction():
    text = str(phalanx.make_jaxpr(lambda x: lax.reduce(x, 0.0, lax.add, (0,)))(X))
    assert "reduce_sum" in text
    assert "computation" not in text


@pytest.mark.parametrize(
    ("function", "init", "oracle"),
    [(lax.add, 0, np.sum), (lax.mul, 1, np.prod), (lax.max, -np.inf, np.max), (lax.min, np.inf, np.min)],
)
def test_reduce_by_monoids(function, init, oracle):
    np.testing.assert_allclose(lax.reduce(X, init, function, (1,)), oracle(X, 1), rtol=1e-6)


def test_a_non_neutral_initial_value_is_included():
    np.testing.assert_allclose(lax.reduce(X, 10.0, lax.add, (1,)), X.sum(1) + 10, rtol=1e-6)


def test_reduce_by_a_general_function():
    np.testing.assert_allclose(
        lax.reduce(X, -np.inf, log_sum, (0, 1)), np.log(np.exp(X.astype(float)).sum()), rtol=1e-5
    )


def test_several_operands_are_reduced_together():
    index = np.arange(6, dtype=np.int32).reshape(2, 3)

    def larger(a, b):
        wins = lax.gt(a[0], b[0])
        return (lax.select(wins, a[0], b[0]), lax.select(wins, a[1], b[1]))

    value, where = lax.reduce((X, index), (np.float32(-np.inf), np.int32(-1)), larger, (1,))
    np.testing.assert_array_equal(value, X.max(1))
    np.testing.assert_array_equal(where, [1, 5])


def test_an_empty_reduction_is_the_initial_value():
    np.testing.assert_array_equal(lax.reduce(X[:, :0], 3.0, log_sum, (1,)), [3, 3])


def test_derivatives_are_differences():
    with phalanx.enable_x64(True):
        x = X.astype(np.float64)
        check_grads(lambda x, v: lax.reduce(x, v, log_sum, (1,)), (x, np.float64(0.5)), order=2)


@pytest.mark.parametrize("dims", [(0, None), (1, None), (0, 0), (None, 0)])
def test_vmap_equals_a_loop(dims):
    init = np.array([0.5, 2.0, 4.0], np.float32)
    x = np.stack([X, X + 1, X * 2], dims[0]) if dims[0] is not None else X
    v = init if dims[1] == 0 else init[0]
    got = phalanx.vmap(lambda x, v: lax.reduce(x, v, log_sum, (1,)), in_axes=dims)(x, v)
    for e in range(3):
        one = x if dims[0] is None else np.take(x, e, dims[0])
        want = lax.reduce(one, init[e] if dims[1] == 0 else init[0], log_sum, (1,))
        np.testing.assert_allclose(np.asarray(got)[e], want, rtol=1e-5)


def test_a_result_of_another_pytree_raises():
    with pytest.raises(phalanx.core.error_classes.TraceError) as error:
        lax.reduce(X, 0.0, lambda a, b: (a, b), (0,))
    assert str(error.value) == (
        "lax.reduce computation: expected a result like its arguments, PyTreeDef(*), got PyTreeDef((*, *)).\n"
        "  Fix: return one value for each operand."
    )


def test_cumlogsumexp_of_complex_numbers():
    z = np.array([1 + 2j, -3j, 800 + 1j, -900], np.complex64)
    want = [z[0], np.log(np.exp(z[0]) + np.exp(z[1])), z[2], z[2]]
    np.testing.assert_allclose(lax.cumlogsumexp(z), np.array(want, np.complex64), rtol=1e-5)


@pytest.mark.parametrize("start, extreme, want", [(-np.inf, lax.max, [3, 5, 5]), (np.inf, lax.min, [1, 1, 4])])
def test_a_window_over_integers_may_start_from_infinity(start, extreme, want):
    x = np.array([3, 1, 5, 4])
    assert lax.reduce_window(x, start, extreme, (2,), (1,), "VALID").tolist() == want


def test_extremes_of_complex_numbers_are_the_same_on_every_mesh():
    values = np.random.default_rng(0).integers(-2, 3, size=(8, 3, 2)).astype(np.float32)
    x = (values[..., 0] + 1j * values[..., 1]).astype(np.complex64)
    x[2, 1], x[3, 2], x[:, 0] = complex(np.nan, 1), complex(0, np.nan), complex(-np.inf, -1)
    split = phalanx.device_put(x, phalanx.NamedSharding(auto_mesh((4, 2), ("x", "y")), phalanx.P(("x", "y"))))
    for reduce in (lax.reduce_max, lax.reduce_min):
        for axes in ((0,), (0, 1)):
            whole, parts = (np.asarray(phalanx.jit(lambda v, f=reduce, a=axes: f(v, a))(v)) for v in (x, split))
            np.testing.assert_array_equal(parts, whole)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_sharded_maxima_propagate_nan(dtype):
    mesh = auto_mesh((8,), ("x",))
    with phalanx.enable_x64(True):
        x = np.array([0.0, -0.0, -np.inf, 3, -5, np.inf, 1e-30, 2], np.float32).astype(phalanx.numpy.dtype(dtype))
        rows = np.stack(
            [x, *(np.where(np.arange(8) == i, np.copysign(np.nan, i - 3).astype(x.dtype), x) for i in range(8))]
        )
        split = phalanx.device_put(rows, phalanx.NamedSharding(mesh, phalanx.P(None, "x")))
        for reduce, collective in ((lax.reduce_max, lax.pmax), (lax.reduce_min, lax.pmin)):
            whole, parts = (np.asarray(phalanx.jit(lambda v, f=reduce: f(v, (1,)))(v)) for v in (rows, split))
            np.testing.assert_array_equal(parts.astype(float), whole.astype(float))
            assert np.isnan(parts[1:].astype(float)).all() and not np.isnan(parts[0].astype(float))
            view = phalanx.shard_map(
                lambda v, f=collective: f(v[:, 0], "x"), mesh=mesh, in_specs=phalanx.P(None, "x"), out_specs=phalanx.P()
            )
            np.testing.assert_array_equal(np.asarray(view(split)).astype(float), whole.astype(float))
            empty = phalanx.device_put(np.zeros((8, 0), x.dtype), phalanx.NamedSharding(mesh, phalanx.P("x")))
            assert np.isinf(np.asarray(phalanx.jit(lambda v, f=reduce: f(v, (0, 1)))(empty)).astype(float))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_sharded_scatter_max_propagates_nan(dtype):
    mesh = auto_mesh((8,), ("x",))
    with phalanx.enable_x64(True):
        updates, places = np.arange(16.0), np.tile(np.arange(4), 4)
        updates[[3, 13]] = np.nan, -np.nan
        updates = updates.astype(phalanx.numpy.dtype(dtype))
        for how, start in (("max", -np.inf), ("min", np.inf)):
            x = np.full(8, start, updates.dtype)
            x[7] = np.nan
            update = lambda x, i, u, how=how: getattr(x.at[i], how)(u)
            want = np.asarray(phalanx.jit(update)(x, places, updates)).astype(float)
            assert np.isnan(want[[1, 3, 7]]).all() and np.isinf(want[4:7]).all() and np.isfinite(want[[0, 2]]).all()
            for spec in (phalanx.P(), phalanx.P("x")):
                specs = (spec, phalanx.P("x"), phalanx.P("x"))
                args = [
                    phalanx.device_put(a, phalanx.NamedSharding(mesh, s)) for a, s in zip((x, places, updates), specs)
                ]
                np.testing.assert_array_equal(np.asarray(phalanx.jit(update)(*args)).astype(float), want)


def test_one_minus_square_is_accurate_near_one():
    x = np.float32([1 - 2.0**-20, -1 + 2.0**-20, 0.5, 2])
    np.testing.assert_allclose(lax.one_minus_square(x), 1 - x.astype(float) ** 2, rtol=2e-7)
    assert lax.one_minus_square(3) == -8 and lax.one_minus_square(1 + 2j) == 4 - 4j
    assert phalanx.grad(lax.one_minus_square)(3.0) == -6


def test_top_k_accepts_is_stable():
    x = np.float32([[1, 3, 3], [2, 2, 2]])
    for mine, stable in zip(lax.top_k(x, 2, is_stable=False), lax.top_k(x, 2), strict=True):
        np.testing.assert_array_equal(mine, stable)


@pytest.mark.parametrize("unroll", [None, 0, 1, 2, 9])
def test_polynomials_agree_with_numpy(unroll):
    x = np.float32([[-1.5, 0.25, 2], [0, 1, -3]])
    value = lambda x, coeffs: lax.polynomial(x, coeffs, unroll=unroll)
    for coeffs in ([], [2], [1, -2.5, 0.5, 3], [1, x, x * 2], np.stack([x, x, -x]), np.float32([1, 2, 3])):
        expected = np.zeros_like(x)
        for c in coeffs:
            expected = expected * x + c
        np.testing.assert_allclose(value(x, coeffs), expected, rtol=1e-6)
        np.testing.assert_allclose(phalanx.jit(value)(x, coeffs), expected, rtol=1e-6)
    check_grads(lambda x, c: value(x, [1.0, c, -2.0]), (x[0], x[1]), 2, rtol=2e-2, atol=2e-2)
    assert lax.polynomial(3, [1, 2], unroll=unroll) == 5
    assert lax.polynomial(np.complex64(1j), [1, 2j], unroll=unroll) == 3j


def test_invalid_polynomials_raise():
    with pytest.raises(errors.DTypeError, match=r"lax.polynomial coeffs: expected real .* x is float32, got ~c64\[\]"):
        lax.polynomial(X, [1j])
    with pytest.raises(errors.ArgumentError, match="lax.polynomial unroll: expected None or at least 0, got -1"):
        lax.polynomial(X, [1], unroll=-1)
    with pytest.raises(errors.ShapeError):
        lax.polynomial(X, [1, X[0]])
