"""Any mesh, any spec: a function of pieces, joined, is the function of the whole, and so are its derivatives."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.sharding import PartitionSpec as P

pytestmark = pytest.mark.lengthy

MESHES = [(1,), (2,), (8,), (1, 1), (1, 4), (2, 2), (4, 2), (3, 2), (2, 1, 2), (2, 2, 2), (1, 5, 1)]


@st.composite
def splits(draw):
    """A mesh, and a spec and shape over it: one element for each device or a few, axes named once or not at all."""
    sizes = draw(st.sampled_from(MESHES))
    names = ("x", "y", "z")[: len(sizes)]
    ndim = draw(st.integers(0, 3))
    dims = [[] for _ in range(ndim)]
    for name in draw(st.permutations(names)):
        place = draw(st.integers(-1, ndim - 1))
        if place >= 0:
            dims[place].append(name)
    parts = [math.prod(sizes[names.index(name)] for name in axes) for axes in dims]
    shape = tuple(n * draw(st.integers(1, 2)) for n in parts)
    return sizes, names, P(*(tuple(axes) or None for axes in dims)), shape


@pytest.mark.slow
@settings(max_examples=14, deadline=None)
@given(splits(), st.booleans())
def test_shard_map_of_an_elementwise_function_equals_the_function(split, check):
    sizes, names, spec, shape = split
    mesh = phalanx.make_mesh(sizes, names)
    rng = np.random.default_rng(0)
    x, scale = rng.normal(size=shape).astype("float32"), np.float32(0.7)

    def piece(v, scale, keys):
        total = lax.psum((jnp.cos(v) * scale).sum(), spec.axes)
        noise = phalanx.random.normal(phalanx.random.fold_in(keys, lax.axis_index(names)), ())
        return jnp.sin(v * scale) * total, total, lax.pmean(noise, names)

    def whole(v, scale, keys):
        total = (jnp.cos(v) * scale).sum()
        noise = [phalanx.random.normal(phalanx.random.fold_in(keys, i), ()) for i in range(math.prod(sizes))]
        return jnp.sin(v * scale) * total, total, sum(noise) / len(noise)

    pieces = phalanx.shard_map(piece, mesh=mesh, in_specs=(spec, P(), P()), out_specs=(spec, P(), P()), check_vma=check)
    weights = rng.normal(size=shape).astype("float32")

    def loss(fun, v, scale):
        y, total, noise = fun(v, scale, phalanx.random.key(1))
        return (weights * y).sum() + total * noise, (y, total, noise)

    results = [
        phalanx.jit(phalanx.value_and_grad(lambda v, s, f=fun: loss(f, v, s), (0, 1), has_aux=True))(x, scale)
        for fun in (pieces, whole)
    ]
    for got, want in zip(*map(phalanx.tree.leaves, results), strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)
