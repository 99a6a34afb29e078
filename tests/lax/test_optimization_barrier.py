"""Operations that leave values as they are."""

from __future__ import annotations

import numpy as np

import phalanx
from phalanx import lax

X = np.array([0.5, 1.5], np.float32)


def test_stop_gradient_has_zero_derivative():
    assert float(phalanx.grad(lambda x: lax.mul(x, lax.stop_gradient(x)))(3.0)) == 3.0


def test_stop_gradient_accepts_pytrees_and_integers():
    marker = {"a": (X, 3), "b": np.array([True])}
    out = lax.stop_gradient(marker)
    assert out["a"][1] == 3
    np.testing.assert_array_equal(out["a"][0], X)
    assert out["b"] is marker["b"]


def test_optimization_barrier_is_lowered():
    text = phalanx.jit(lambda x: lax.optimization_barrier({"a": x, "b": lax.sin(x)})).lower(X).as_text()
    assert "stablehlo.optimization_barrier" in text


def test_dce_sink_keeps_unused_values():
    program = phalanx.make_jaxpr(lambda x: [lax.dce_sink(lax.sin(x)), x][1])(X)
    assert [e.primitive.name for e in program.eqns] == ["sin", "dce_sink"]
    out = phalanx.jit(lambda x: [lax.dce_sink(lax.sin(x)), x][1])(X)
    np.testing.assert_array_equal(out, X)


def test_stage_returns_an_array():
    assert lax.stage(2.0).shape == ()
