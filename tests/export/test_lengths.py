"""Functions of arrays whose sizes are symbolic where the work is: along lengths, windows, bounds and divisions.

Each line is exported once and called with sizes that nothing was traced for, and agrees with the function itself; what
does not go through is in `NOT`, with what the error says.
"""

from typing import NamedTuple

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import export, lax, nn, random
from phalanx.export import SymbolicScope, symbolic_shape


class Case(NamedTuple):
    """A function, the shapes it is exported for, the shapes it is called with, and what is known of the variables."""

    name: str
    fun: object
    shapes: list
    given: list
    constraints: tuple = ()


# fmt: off
CASES = [
    Case("cumsum", lambda x: (jnp.cumsum(x), jnp.cumprod(x), lax.cummax(x), lax.cumlogsumexp(x)), ["n"], [(5,)]),
    Case("cumsum2", lambda x: jnp.cumsum(x, axis=1), ["n, m"], [(4, 6)]),
    Case("cumsum reverse", lambda x: lax.cumsum(x, reverse=True), ["n"], [(5,)]),
    Case("sort", lambda x: (jnp.sort(x), jnp.argsort(x), jnp.flip(x)), ["n"], [(5,)]),
    Case("top_k", lambda x: lax.top_k(x, 3), ["n"], [(5,)], ["n >= 3"]),
    Case("argmax", lambda x: (jnp.argmax(x), jnp.argmin(x, axis=0), x.max(), x.std(), jnp.median(x)), ["n, m"], [(4, 6)]),
    Case("linspace", lambda x: jnp.linspace(0., 1., x.shape[0]), ["n"], [(5,)], ["n >= 2"]),
    Case("linspace2", lambda x: jnp.linspace(0., x.shape[0], 5), ["n"], [(5,)]),
    Case("arange", lambda x: (jnp.arange(x.shape[0]), jnp.arange(1, x.shape[0]), jnp.arange(0, x.shape[0], 2), jnp.arange(x.shape[0], dtype="f4")), ["n"], [(5,)]),
    Case("eye", lambda x: (jnp.eye(x.shape[0]), jnp.tri(x.shape[0]), jnp.tril(x@x.T), jnp.diag(x[:,0])), ["n, m"], [(4,6)]),
    Case("conv same", lambda x, w: lax.conv_general_dilated(x, w, (1,1), "SAME"), ["b, 3, h, w","4, 3, 3, 3"], [(2,3,8,9),(4,3,3,3)]),
    Case("conv strided same", lambda x, w: lax.conv_general_dilated(x, w, (2,2), "SAME"), ["b, 3, h, w","4, 3, 3, 3"], [(2,3,8,9),(4,3,3,3)]),
    Case("conv valid", lambda x, w: lax.conv_general_dilated(x, w, (2,1), "VALID"), ["b, 3, h, w","4, 3, 3, 3"], [(2,3,8,9),(4,3,3,3)], ["h >= 3","w >= 3"]),
    Case("pool", lambda x: lax.reduce_window(x, -np.inf, lax.max, (1,2,2,1),(1,2,2,1),"VALID"), ["b, h, w, 3"], [(2,6,8,3)], ["h >= 2","w >= 2"]),
    Case("pool same", lambda x: lax.reduce_window(x, 0., lax.add, (1,3,3,1),(1,2,2,1),"SAME"), ["b, h, w, 3"], [(2,6,7,3)]),
    Case("pool grad", phalanx.grad(lambda x: lax.reduce_window(x, -np.inf, lax.max, (1,2,2,1),(1,2,2,1),"VALID").sum()), ["b, h, w, 3"], [(2,6,8,3)], ["h >= 2","w >= 2"]),
    Case("global pool", lambda x: lax.reduce_window(x, 0., lax.add, (x.shape[0],),(1,),"VALID"), ["n"], [(5,)]),
    Case("gather rows", lambda x, i: (x[i.astype(int)], x.at[i.astype(int)].add(1.), jnp.take(x, i.astype(int), axis=0)), ["n, m","k"], [(4,6),(3,)]),
    Case("index", lambda x: (x[0], x[-1], x[1:], x[:-1], x[None], x[..., 0], x[::-1], x.at[0].set(0.), x.at[1:].mul(2.)), ["n, m"], [(4,6)], ["n >= 2"]),
    Case("dynamic_slice", lambda x: (lax.dynamic_slice(x,(1,0),(2,x.shape[1])), lax.dynamic_index_in_dim(x,1,0), lax.dynamic_update_slice(x, x[:1], (1,0))), ["n, m"], [(4,6)], ["n >= 2"]),
    Case("strided", lambda x: (x[::2], x[::3], x[1::2], x[: x.shape[0]//2]), ["n"], [(7,)], ["n >= 2"]),
    Case("einsum", lambda x, y: (jnp.einsum("ij,kj->ik",x,y), jnp.dot(x,y.T), jnp.tensordot(x,y,((1,),(1,))), jnp.outer(x[:,0],y[:,0])), ["n, m","k, m"], [(4,6),(3,6)]),
    Case("linalg", lambda x: (jnp.linalg.norm(x), jnp.linalg.inv(x), jnp.linalg.det(x), jnp.linalg.cholesky(x@jnp.swapaxes(x,-1,-2)+jnp.eye(3)), jnp.linalg.qr(x)[1], jnp.linalg.svd(x)[1], jnp.linalg.eigh(x@jnp.swapaxes(x,-1,-2))[0], jnp.linalg.solve(x, x)), ["b, 3, 3"], [(4,3,3)]),
    Case("concat", lambda x: (jnp.concatenate([x,x]), jnp.stack([x,x]), jnp.tile(x,(2,)), jnp.repeat(x,3), jnp.split(x, [1]), jnp.roll(x, 1), jnp.append(x, x[:1])), ["n"], [(5,)], ["n >= 2"]),
    Case("reshape", lambda x: (x.reshape(-1), x.reshape(x.shape[0], -1), jnp.ravel(x), x.T, jnp.expand_dims(x, 0), jnp.squeeze(x[None])), ["n, m"], [(4, 6)]),
    Case("broadcast", lambda x: (jnp.broadcast_to(x, (3, *x.shape)), jnp.zeros(x.shape), jnp.full_like(x, 2), jnp.ones_like(x), jnp.where(x>0, x, 0.)), ["n, m"], [(4, 6)]),
    Case("pad", lambda x: (jnp.pad(x, 1), jnp.pad(x, (0, x.shape[0])), jnp.pad(x,(1,2),mode="edge"), lax.pad(x, 0., [(1, 1, 1)])), ["n"], [(5,)]),
    Case("random split", lambda x: random.normal(random.split(random.key(0), x.shape[0])[0]), ["n"], [(5,)]),
    Case("random bits rbg", lambda x: random.normal(random.key(0, impl="rbg"), x.shape), ["n"], [(5,)]),
    Case("while", lambda x: lax.while_loop(lambda c: c[0] < x.shape[0], lambda c: (c[0]+1, c[1]*2), (0, x)), ["n"], [(5,)]),
    Case("fori", lambda x: lax.fori_loop(0, x.shape[0], lambda i, c: c + x[i], 0.), ["n"], [(5,)]),
    Case("cond", lambda x: lax.cond(x.sum() > 0, lambda x: x*2, lambda x: x, x), ["n"], [(5,)]),
    Case("map", lambda x: lax.map(lambda r: r.sum(), x), ["n, m"], [(4, 6)]),
    Case("associative_scan", lambda x: lax.associative_scan(jnp.add, x), ["n"], [(5,)]),
    Case("vmap", lambda x: phalanx.vmap(lambda r: r @ r)(x), ["n, m"], [(4, 6)]),
    Case("scan grad", phalanx.grad(lambda x: lax.scan(lambda c, r: (jnp.tanh(c + r), c), jnp.zeros(x.shape[1]), x)[0].sum()), ["n, m"], [(4, 6)]),
    Case("fft", lambda x: jnp.abs(jnp.fft.fft(x)), ["b, 8"], [(3,8)]),
    Case("softmax", lambda x: (nn.softmax(x), nn.logsumexp(x, axis=0), nn.one_hot(jnp.zeros(x.shape[0], int), 4), nn.gelu(x)), ["n, m"], [(4, 6)]),
    Case("one_hot n", lambda x: nn.one_hot(jnp.zeros(3, int), x.shape[0]), ["n"], [(5,)]),
    Case("searchsorted", lambda x: jnp.searchsorted(jnp.sort(x), x), ["n"], [(5,)]),
    Case("percentile", lambda x: (jnp.median(x), jnp.percentile(x, 30)), ["n"], [(5,)]),
    Case("mean var", lambda x: (x.mean(0), x.var(1), jnp.average(x), jnp.cov(x)), ["n, m"], [(4, 6)]),
    Case("segment_sum", lambda x: (jnp.bincount(jnp.zeros(x.shape[0], int), length=4),), ["n"], [(5,)]),
    Case("meshgrid", lambda x: jnp.meshgrid(x, x), ["n"], [(5,)]),
    Case("kron", lambda x: jnp.kron(x, x), ["n"], [(5,)]),
    Case("checkpoint", phalanx.grad(lambda x: phalanx.checkpoint(lambda x: jnp.sin(jnp.sin(x)).sum())(x)), ["n, m"], [(4, 6)]),
    Case("jvp", lambda x: phalanx.jvp(jnp.sin, (x,), (x,)), ["n, m"], [(4, 6)]),
    Case("hessian", lambda x: phalanx.hessian(lambda x: (x**3).sum())(x[:,0][:3]), ["n, m"], [(4,6)], ["n >= 3"]),
    Case("attention", lambda x: nn.dot_product_attention(x,x,x), ["b, t, 2, 4"], [(2,5,2,4)]),
    Case("attention causal", lambda x: nn.dot_product_attention(x,x,x,is_causal=True), ["b, t, 2, 4"], [(2,5,2,4)]),
    Case("conv transpose", lambda x, w: lax.conv_transpose(x, w, (2,), "SAME"), ["b, t, 3","3, 3, 4"], [(2,5,3),(3,3,4)]),
    Case("conv grad", phalanx.grad(lambda x, w: lax.conv_general_dilated(x, w, (2,2), "SAME").sum(), argnums=(0,1)), ["b, 3, h, w","4, 3, 3, 3"], [(2,3,8,9),(4,3,3,3)]),
    Case("clip", lambda x: (jnp.clip(x,0,1), jnp.round(x), x.astype("int32"), jnp.isnan(x), jnp.unravel_index(3, x.shape)), ["n, m"], [(4, 6)]),
    Case("nonzero", lambda x: jnp.nonzero(x, size=3), ["n"], [(5,)], ["n >= 3"]),
    Case("random", lambda x: (random.normal(random.key(0), x.shape), random.uniform(random.key(0), (x.shape[0], 3)),
         random.randint(random.key(1), x.shape, 0, 10)), ["n"], [(5,)]),
    Case("diff", lambda x: (jnp.diff(x), jnp.interp(x, jnp.sort(x), x), jnp.trapezoid(x), jnp.convolve(x, jnp.ones(3))), ["n"], [(5,)], ["n >= 3"]),
]

NOT = [
    (Case("a shuffle draws as many rounds as its length needs", lambda x: random.permutation(random.key(0), x), ["n"],
          [(5,)]), "got n > 1"),
    (Case("places to keep are worked out on the host", lambda x: jnp.unique(x, size=3), ["n"], [(5,)]), "got n"),
    (Case("mirrored positions are worked out on the host", lambda x: jnp.pad(x, (1, 1), mode="reflect"), ["n"], [(5,)],
          ["n >= 3"]), "conversion of a traced value to bool"),
    (Case("prefixes are halved again and again", phalanx.grad(lambda x: lax.cumprod(x).sum()), ["n"], [(5,)]),
     "expected a length that is a number, which is halved again and again, got n"),
]
# fmt: on

SLOW = {"linalg", "attention", "attention causal", "conv grad", "conv transpose", "hessian", "pool grad", "random split",
        "percentile", "gather rows", "clip", "searchsorted", "index", "concat", "conv valid", "mean var", "scan grad"}  # fmt: skip


def exported(case):
    scope = SymbolicScope(case.constraints)
    specs = [phalanx.ShapeDtypeStruct(symbolic_shape(s, scope=scope), "float32") for s in case.shapes]
    return export.export(phalanx.jit(case.fun))(*specs)


def arrays(case):
    generator = np.random.default_rng(0)
    made = [generator.standard_normal(shape).astype("f4") for shape in case.given]
    return [made[0], np.array([0, 2, 3], "f4")] if case.name == "gather rows" else made


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=c.name, marks=[pytest.mark.slow] if c.name in SLOW else []) for c in CASES]
)
def test_the_artifact_does_what_the_function_does(case):
    found, args = exported(case), arrays(case)
    for got, want in zip(
        phalanx.tree.leaves(found.call(*args)), phalanx.tree.leaves(phalanx.jit(case.fun)(*args)), strict=True
    ):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("case", "text"), NOT, ids=[c.name for c, _ in NOT])
def test_what_does_not_go_through_says_so(case, text):
    with pytest.raises(phalanx.errors.PhalanxError) as error:
        exported(case)
    assert text in str(error.value)
