"""Choices by platform: made when a program is lowered, under every transformation."""

from __future__ import annotations

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import export, lax
from phalanx.core.error_classes import ArgumentError, ArgumentTypeError, RuleError, TreeError
from phalanx.sharding import P

X = np.arange(1.0, 4.0, dtype=np.float32)


def chosen(x):
    return lax.platform_dependent(x, cpu=lambda x: x * x, default=jnp.sin)


@pytest.mark.parametrize("run", [lambda f: f, phalanx.jit])
def test_platform_dependent_calls_the_function_of_the_platform(run):
    np.testing.assert_array_equal(run(chosen)(X), X * X)
    np.testing.assert_array_equal(run(phalanx.vmap(chosen))(X), X * X)
    np.testing.assert_array_equal(run(phalanx.grad(lambda x: chosen(x).sum()))(X), 2 * X)
    np.testing.assert_array_equal(run(phalanx.hessian(lambda x: chosen(x).sum()))(X), np.diag([2.0] * 3))
    inner = phalanx.jit(chosen)
    np.testing.assert_array_equal(run(phalanx.grad(lambda x: inner(x).sum()))(X), 2 * X)
    out = run(lambda x: lax.scan(lambda c, v: (chosen(c) + v, c), 0.0, x))(X)[0]
    assert float(out) == ((0.0 + 1.0) ** 2 + 2.0) ** 2 + 3.0
    default = lambda x: lax.platform_dependent(x, tpu=lambda x: x * x, default=lambda x: -x)
    np.testing.assert_array_equal(run(default)(X), -X)


def test_only_the_selected_function_is_lowered():
    text = phalanx.jit(chosen).lower(X).as_text()
    assert "sine" not in text and "case" not in text
    f = phalanx.jit(lambda x: phalanx.grad(lambda x: chosen(x).sum())(x))
    assert "cosine" not in f.lower(X).as_text()


def test_exported_program_for_several_platforms_contains_all_functions():
    exported = export.export(phalanx.jit(chosen), platforms=["cpu", "cuda"])(X)
    text = exported.mlir_module()
    assert "sine" in text and "case" in text
    np.testing.assert_array_equal(exported.call(X), X * X)


def test_platform_dependent_inside_shard_map():
    mesh = phalanx.make_mesh((3,), ("i",), devices=phalanx.devices()[:3])
    f = phalanx.shard_map(
        lambda x, w: lax.platform_dependent(x, w, cpu=lambda x, w: x * w, default=lambda x, w: x),
        mesh=mesh,
        in_specs=(P("i"), P()),
        out_specs=P("i"),
    )
    np.testing.assert_array_equal(phalanx.jit(f)(X, 2.0), 2 * X)
    assert float(phalanx.grad(lambda x, w: f(x, w).sum(), 1)(X, 2.0)) == 6.0


def test_platform_dependent_error_messages():
    missing = phalanx.jit(lambda x: lax.platform_dependent(x, cuda=lambda x: x, tpu=lambda x: x))
    with pytest.raises(RuleError) as error:
        missing(X)
    assert str(error.value) == (
        "platform_dependent: expected a function for the platform cpu, or a default, got functions for cuda, tpu.\n"
        "  Fix: pass a function as cpu= or as default=."
    )
    with pytest.raises(ArgumentError) as error:
        lax.platform_dependent(X, gpu=jnp.sin, cuda=jnp.sin)
    assert str(error.value) == (
        "platform_dependent: expected functions for different platforms, at least one, got gpu, cuda.\n"
        "  Fix: pass functions by platform, as in platform_dependent(x, cpu=f, default=g)."
    )
    with pytest.raises(ArgumentTypeError, match="platform_dependent, cpu: expected a function"):
        lax.platform_dependent(X, cpu=1)
    with pytest.raises(
        TreeError,
        match=r"^platform_dependent, result of default = <lambda> .*: expected a leaf, as in the result of cpu = <lambda>",
    ):
        lax.platform_dependent(X, cpu=lambda x: x, default=lambda x: (x, x))
