"""Constraints in random places of random programs: no device ever holds a replica that neither end of a move has."""

from __future__ import annotations

import functools
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.strategies import specs

import phalanx
import phalanx.numpy as jnp
from phalanx import grad, jit, lax, vmap
from phalanx.engine import compiler
from phalanx.runtime import reshard_lowering
from phalanx.sharding import AxisType, NamedSharding, P, make_mesh
from phalanx.spmd.device_put import device_put

SHAPE = (48, 24, 48)
SIZES = [(8,), (4, 2), (2, 4), (2, 2, 2), (4, 1, 2), (2, 3), (3, 2), (6,), (2,)]


def scanned(body):
    return lambda x: lax.scan(lambda c, _: body(c), x, None, length=3)


# What is done to `x` and where `move` stands in it; `back` brings what was moved to where `x` lies.
PLACES = {
    "argument to result": lambda move, back: move,
    "argument to operation": lambda move, back: lambda x: move(x) + 1,
    "operation to result": lambda move, back: lambda x: move(jnp.sin(x)),
    "operation to operation": lambda move, back: lambda x: jnp.cos(move(jnp.sin(x))),
    "there and back": lambda move, back: lambda x: back(move(x) * 2) + x,
    "after a transposition": lambda move, back: lambda x: move(jnp.sin(x).transpose(2, 1, 0).transpose(2, 1, 0)),
    "after a product": lambda move, back: lambda x: move(jnp.einsum("abc,d->abc", x, jnp.arange(3.0))),
    "in a scan": lambda move, back: scanned(lambda c: (jnp.sin(c), jnp.sum(move(jnp.cos(c)), 1))),
    "in a scan, there and back": lambda move, back: scanned(lambda c: (back(jnp.sin(move(c))), None)),
    "after a scan": lambda move, back: lambda x: move(scanned(lambda c: (jnp.sin(c), None))(x)[0]),
    "after a while loop": lambda move, back: (
        lambda x: move(lax.fori_loop(0, x[0, 0, 0].astype(int), lambda _, c: 2 * c, x))
    ),
    "in branches": lambda move, back: lambda x: lax.cond(x[0, 0, 0] > 0, move, lambda x: move(jnp.sin(x)), x),
    "after branches": lambda move, back: lambda x: move(lax.cond(x[0, 0, 0] > 0, jnp.cos, jnp.sin, x)),
    "in a checkpoint": lambda move, back: phalanx.checkpoint(lambda x: jnp.sin(move(x))),
    "in a gradient": lambda move, back: grad(lambda x: jnp.sum(jnp.sin(move(x)))),
    "in the gradient of what comes before": lambda move, back: grad(lambda x: jnp.sum(move(jnp.sin(x)) ** 2)),
    "beside what stays": lambda move, back: lambda x: move(jnp.sin(x)) * x,
    "in the gradient of a checkpoint": lambda move, back: grad(
        lambda x: jnp.sum(phalanx.checkpoint(lambda x: jnp.sin(move(x)))(x))
    ),
    "in a vmap": lambda move, back: lambda x: vmap(move)(jnp.sin(x)[None])[0],
    "in a vmap of a scan": lambda move, back: (
        lambda x: vmap(scanned(lambda c: (back(jnp.sin(move(c))), None)), in_axes=3, out_axes=3)(x[..., None])[0]
    ),
    "as a result of a jit": lambda move, back: lambda x: move(jit(lambda x: back(move(x)))(x)) + 1,
    "in a jit": lambda move, back: lambda x: jit(lambda x: move(jnp.sin(x)))(x) + 1,
}


@st.composite
def cases(draw):
    sizes = draw(st.sampled_from(SIZES))
    mesh = make_mesh(sizes, tuple("abc"[: len(sizes)]), AxisType.Auto)
    ends = [NamedSharding(mesh, draw(specs(mesh, len(SHAPE)))) for _ in range(2)]
    return (draw(st.sampled_from(sorted(PLACES))), *ends)


def check(place, held, wanted):
    """The values are right; the largest array and the temporary memory are no more than the ends allow."""
    constrained = [functools.partial(lax.with_sharding_constraint, shardings=s) for s in (wanted, held)]
    value = np.random.default_rng(0).uniform(0.1, 1, SHAPE).astype(np.float32)
    x = device_put(value, held)
    compiled = jit(PLACES[place](*constrained), in_shardings=held).lower(x).compile()
    plain = jit(PLACES[place](lambda x: x, lambda x: x))(value)
    for got, want in zip(phalanx.tree.leaves(compiled(x)), phalanx.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    parts = [math.prod(s.shard_shape(SHAPE)) for s in (held, wanted)]
    text = compiler.hlo_text(compiled.program.executable)
    largest = max(math.prod(map(int, dims.split(","))) for dims in re.findall(r"f32\[([\d,]+)\]", text))
    assert max(parts) == math.prod(SHAPE) or largest < math.prod(SHAPE), "a device holds a replica"
    temporary = compiler.memory_stats(compiled.program.executable).temp_size_in_bytes
    # Both ends, a residual and a cotangent: as many as the gradient of what comes before a constraint has alive.
    assert temporary <= 4 * (sum(parts) + 2 * max(parts)) + 8192


@pytest.mark.parametrize("place", PLACES)
def test_a_constraint_at_any_place_builds_no_replica(place):
    """By itself, XLA gathers the whole array first."""
    mesh = make_mesh((4, 2), ("a", "b"), AxisType.Auto)
    check(place, NamedSharding(mesh, P("b", None, "a")), NamedSharding(mesh, P(None, ("a", "b"))))


def test_the_check_finds_replicas(monkeypatch):
    mesh = make_mesh((4, 2), ("a", "b"), AxisType.Auto)
    monkeypatch.setattr(reshard_lowering, "_emit_reshard", lambda ctx, x, *_: x)
    with pytest.raises(AssertionError, match="a device holds a replica"):
        check("after a scan", NamedSharding(mesh, P("b", None, "a")), NamedSharding(mesh, P(None, ("a", "b"))))


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(cases())
def test_random_constraints_build_no_replica(case):
    check(*case)
