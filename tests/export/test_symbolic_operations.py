"""Functions of arrays whose sizes are symbolic where the work is: along lengths, windows, bounds and divisions.

Each line is exported once and called with sizes that nothing was traced for, and agrees with the function itself; what
does not go through is in `NOT`, with what the error says.
"""

from typing import NamedTuple

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import export, image, lax, nn, ops, random, vmap
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
    Case("resize nearest", lambda x: image.resize(x, (2 * x.shape[0], x.shape[1] // 2), "nearest"), ["n, m"], [(4, 6)]),
    Case("keys of rbg", lambda x: vmap(random.uniform)(random.split(random.key(0, impl="rbg"), x.shape[0])) + x, ["n"], [(5,)]),
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
    Case("reshape", lambda x: (x.reshape(-1), x.reshape(x.shape[0], -1), jnp.ravel(x), x.T, jnp.expand_dims(x, 0), jnp.squeeze(x[None], 0)), ["n, m"], [(4, 6)]),
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
    Case("mean var", lambda x: (x.mean(0), x.var(1), jnp.average(x), jnp.cov(x)), ["n, m"], [(4, 6)], ("n >= 2",)),
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
    Case("unique", lambda x: (jnp.unique(x, size=3), jnp.unique(x, size=x.shape[0]), jnp.union1d(x, x[:1], size=4), jnp.setdiff1d(x, x[:2], size=4)), ["n"], [(5,)], ["n >= 2"]),
    Case("unique counts", lambda x: jnp.unique(jnp.round(x), size=3, return_index=True, return_inverse=True, return_counts=True), ["n"], [(5,)]),
    Case("unique rows", lambda x: jnp.unique(jnp.round(x), axis=0, size=3), ["n, 2"], [(5, 2)]),
    Case("sets", lambda x: (jnp.intersect1d(x, x[1:], size=4), jnp.setxor1d(x, x[:2], size=4), jnp.isin(x, x[:2])), ["n"], [(5,)], ["n >= 2"]),
    Case("nonzero n", lambda x: (jnp.nonzero(x > 0, size=x.shape[0]), jnp.argwhere(x, size=2)), ["n"], [(5,)]),
    Case("pad mirrored", lambda x: [jnp.pad(x, (2, 3), mode=m) for m in ("reflect", "symmetric", "wrap")], ["n"], [(5,)]),
    Case("pad mirrored often", lambda x: [jnp.pad(x, 7, mode=m) for m in ("reflect", "symmetric", "wrap")], ["n"], [(3,)]),
    Case("pad mirrored from one", lambda x: [jnp.pad(x, 2, mode=m) for m in ("reflect", "symmetric", "wrap")], ["n"], [(1,)]),
    Case("pad odd", lambda x: [jnp.pad(x, (5, 4), mode=m, reflect_type="odd") for m in ("reflect", "symmetric")], ["n, 2"], [(3, 2)]),
    Case("pad by the size", lambda x: [jnp.pad(x, x.shape[0], mode=m) for m in ("reflect", "symmetric", "wrap")], ["n"], [(3,)]),
    Case("pad ramp", lambda x: (jnp.pad(x, 2, mode="linear_ramp"), jnp.pad(x, 1, mode="maximum", stat_length=2), jnp.pad(x, 1, mode="mean")), ["n"], [(3,)]),
    Case("shuffle", lambda x: (random.permutation(random.key(0), x), random.permutation(random.key(1), x.shape[0])), ["n"], [(5,)]),
    Case("shuffle rows", lambda x: (random.permutation(random.key(0), x, axis=1), random.permutation(random.key(0), x, independent=True)), ["n, m"], [(4, 6)]),
    Case("choice", lambda x: (random.choice(random.key(0), x, (3,)), random.choice(random.key(0), x, (3,), replace=False), random.choice(random.key(0), x, (3,), p=nn.softmax(x)), random.choice(random.key(0), x.shape[0], (2,))), ["n"], [(5,)], ["n >= 3"]),
    Case("random of a plane", lambda x: (random.normal(random.key(0), x.shape), random.categorical(random.key(0), x), random.uniform(random.key(2), (3, *x.shape))), ["n, m"], [(4, 6)]),
    Case("multivariate", lambda x: random.multivariate_normal(random.key(0), x, jnp.eye(x.shape[0])), ["n"], [(3,)]),
    Case("cumulative gradients", lambda x: [phalanx.grad(lambda x, f=f: (f(x) * x).sum())(x) for f in (lax.cumprod, lax.cummax, lax.cummin, lax.cumlogsumexp)], ["n"], [(5,)]),
    Case("cumulative gradient back", phalanx.grad(lambda x: (lax.cumprod(x, axis=1, reverse=True) ** 2).sum()), ["n, m"], [(3, 4)]),
    Case("cumulative jvp", lambda x: phalanx.jvp(phalanx.grad(lambda x: lax.cumprod(x).sum()), (x,), (x,)), ["n"], [(4,)]),
    Case("jacobians", lambda x: (phalanx.jacfwd(jnp.sin)(x), phalanx.jacrev(jnp.cumsum)(x), phalanx.hessian(lambda x: (x**3).sum())(x)), ["n"], [(3,)]),
    Case("jacobian of two", phalanx.jacrev(lambda x, y: x.sum() * y, argnums=(0, 1)), ["n", "m"], [(3,), (2,)]),
    Case("map in batches", lambda x: lax.map(lambda r: r * 2, x, batch_size=2), ["n"], [(5,)]),
    Case("top_k n", lambda x: (lax.top_k(x, x.shape[0] // 2), lax.top_k(jnp.round(x) ** 2, x.shape[0])), ["n"], [(6,)]),
    Case("ranges", lambda x: (jnp.arange(0., x.shape[0], .5), jnp.arange(-1.5, x.shape[0], 0.75), jnp.arange(x.shape[0], 0, -2)), ["n"], [(5,)]),
    Case("spaces", lambda x: (jnp.geomspace(1., 2., x.shape[0]), jnp.fft.fftfreq(x.shape[0]), jnp.fft.rfftfreq(x.shape[0])), ["n"], [(5,)], ["n >= 2"]),
    Case("windows of signals", lambda x: [f(x.shape[0]) for f in (jnp.bartlett, jnp.blackman, jnp.hamming, jnp.hanning)], ["n"], [(5,)]),
    Case("roll", lambda x: (jnp.roll(x, x.shape[0] // 2), jnp.roll(x, jnp.int32(-2)), jnp.roll(x, -1), jnp.fft.fftshift(x), jnp.fft.ifftshift(x)), ["n"], [(5,)]),
    Case("repeat to length", lambda x: (jnp.repeat(x, jnp.ones(x.shape[0], int), total_repeat_length=10), jnp.repeat(x, 2, total_repeat_length=2 * x.shape[0]), jnp.resize(x, (3, 2)), jnp.resize(x, (x.shape[0] + 1, 2))), ["n"], [(5,)]),
    Case("insert and delete", lambda x: (jnp.delete(x, 1), jnp.delete(x, -1), jnp.delete(x, np.array([0, 2])), jnp.insert(x, 1, 5.)), ["n"], [(5,)], ["n >= 3"]),
    Case("histogram", lambda x: (jnp.histogram(x, 3), jnp.histogram(x, x.shape[0])), ["n"], [(5,)]),
    Case("polyval", lambda x: jnp.polyval(x, x), ["n"], [(5,)]),
    Case("packbits", lambda x: (jnp.packbits(x > 0), jnp.unpackbits((x > 0).astype("uint8"))), ["n"], [(11,)]),
    Case("bits", lambda x: (lax.bitcast_convert_type(x, "int8"), lax.bitcast_convert_type(lax.bitcast_convert_type(x, "uint8"), "float32"), x.view("int16")), ["n"], [(5,)]),
    Case("diagonals", lambda x: (jnp.trace(x), jnp.diagonal(x), jnp.diagonal(x, 1), jnp.diagonal(x, -2), jnp.fill_diagonal(x, 7., inplace=False)), ["n, m"], [(4, 6)]),
    Case("writes", lambda x: (x.at[-1].add(1.), x.at[::2].set(0.), x.at[x.shape[0] // 2].set(1.), x.at[1:-1].mul(2.), x.at[5].set(9.), x.at[-9].set(9.), x.at[5].set(9., mode="clip")), ["n"], [(4,)]),
    Case("slices out of bounds", lambda x: (x[2:], x[:9], x[-3:], x[:-3], x[1:-1], x[5], x[-5], x[3:1], x[::-2], x[4:1:-1], x[-2::-3]), ["n"], [(2,)]),
    Case("slices of symbolic bounds", lambda x: (x[x.shape[0] // 2:], x[1: x.shape[0] // 2], x[-x.shape[0]:], x[x.shape[0] - 1]), ["n"], [(5,)]),
    Case("segments", lambda x: (ops.segment_sum(x, jnp.arange(x.shape[0]), num_segments=x.shape[0]), ops.segment_max(x, jnp.zeros(x.shape[0], int), num_segments=3)), ["n"], [(5,)]),
    Case("standardize", lambda x: nn.standardize(x), ["n, m"], [(4, 6)]),
    Case("attention depth", lambda x: nn.dot_product_attention(x, x, x), ["b, t, 2, d"], [(2, 3, 2, 4)]),
    Case("linalg n", lambda x: (jnp.linalg.inv(x), jnp.linalg.det(x), jnp.linalg.slogdet(x), jnp.linalg.solve(x, x), jnp.linalg.cholesky(x @ x.T + jnp.eye(x.shape[0]))), ["n, n"], [(4, 4)]),
    Case("linalg n, m", lambda x: (jnp.abs(jnp.linalg.qr(x)[1]), jnp.abs(jnp.linalg.qr(x, mode="complete")[1]), jnp.linalg.svd(x)[1], jnp.linalg.pinv(x), jnp.linalg.matrix_rank(x), jnp.linalg.lstsq(x, x[:, 0])[0], lax.linalg.lu(x)[0]), ["n, m"], [(4, 6)]),
    Case("linalg tall", lambda x: (jnp.abs(jnp.linalg.qr(x)[0]), jnp.abs(jnp.linalg.qr(x, mode="complete")[1]), jnp.linalg.svd(x, full_matrices=False)[1], jnp.linalg.pinv(x)), ["n, m"], [(6, 4)]),
    Case("linalg gradients", lambda x: (phalanx.grad(jnp.linalg.det)(x), phalanx.grad(lambda x: jnp.linalg.svd(x, full_matrices=False)[1].sum())(x)), ["n, n"], [(3, 3)]),
    Case("qdwh", lambda x: lax.linalg.qdwh(x)[0], ["n, n"], [(3, 3)]),
]

NOT = [
    (Case("StableHLO writes the length of a transform into the program", jnp.fft.fft, ["n"], [(5,)]),
     "lowering of lax.fft: expected lengths that are integers, since they are attributes in StableHLO, got lengths (n,)"),
    (Case("so does LAPACK's call with the rows to reduce", lambda x: lax.linalg.hessenberg(x)[0], ["n, n"], [(5, 5)]),
     "expected matrices of a static size, which is an attribute of the LAPACK call, got f32[n,n]"),
    (Case("a permutation lists the members of the axis", phalanx.vmap(lambda a: lax.ppermute(a, "i", [(0, 1)]), axis_name="i"),
          ["n"], [(5,)], ["n >= 2"]), "expected an axis of static size, as the permutation lists its members, got size n"),
    (Case("as many keys to sort by as there are columns", lambda x: jnp.unique(x, axis=0, size=3), ["n, m"], [(5, 2)]),
     "conversion of a symbolic dimension to int: expected a size that is known while tracing, got m"),
    (Case("a step of which no size tells the number", lambda x: jnp.arange(0., x.shape[0], 0.1), ["n"], [(5,)]),
     "expected steps whose number follows from the size, as with 0.5, got (0.0, n, 0.1)"),
    (Case("a size that may be 1", jnp.squeeze, ["n, 1"], [(5, 1)]), "got n > 1, which holds for"),
    (Case("steps of 0", lambda x: jnp.arange(0, x.shape[0], 0), ["n"], [(5,)]), "expected a step other than 0, got (0, n, 0), which has step == 0"),
    (Case("more pivots than rows", lambda x: lax.linalg.lu_pivots_to_permutation(x.astype(int), 2), ["n"], [(5,)], ["n >= 3"]),
     "lax.linalg.lu_pivots_to_permutation: expected at least n, the number of pivots, got 2"),
    (Case("positions from both ends may be one", lambda x: jnp.delete(x, np.array([0, -1])), ["n"], [(5,)]),
     "expected indices counted from one end, which are the same for every size"),
]
# fmt: on

SLOW = {"linalg", "attention", "attention causal", "conv grad", "conv transpose", "hessian", "pool grad", "random split",
        "percentile", "gather rows", "clip", "searchsorted", "index", "concat", "conv valid", "mean var", "scan grad", "linalg n", "linalg n, m",
        "linalg gradients", "multivariate", "unique rows", "cumulative jvp", "shuffle rows", "choice", "sets", "random of a plane",
        "repeat to length", "jacobian of two", "linalg tall", "pad by the size", "qdwh", "spaces", "ranges",
        "cumulative gradients", "histogram", "unique counts", "pad odd", "pad mirrored often", "top_k n", "bits", "segments",
        "attention depth", "map in batches", "windows of signals", "polyval", "packbits", "insert and delete"}  # fmt: skip


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
def test_a_symbolic_export_equals_the_function(case):
    found, args = exported(case), arrays(case)
    for got, want in zip(
        phalanx.tree.leaves(found.call(*args)), phalanx.tree.leaves(phalanx.jit(case.fun)(*args)), strict=True
    ):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


def test_a_symbolic_length_may_be_zero():
    """Declared with `n >= 0`, a length of 0 runs through loops, prefixes, sorts and slices."""

    def fun(x):
        total, seen = lax.scan(lambda c, r: (c + r, c), jnp.float32(0), x)
        return (
            total, seen, lax.associative_scan(jnp.multiply, x), phalanx.grad(lambda x: lax.cumprod(x).sum())(x),
            jnp.sort(x), x[1:-1], x[::-2], jnp.cumsum(x), lax.map(jnp.sin, x, batch_size=2), jnp.roll(x, 1),
        )  # fmt: skip

    scope = SymbolicScope(["n >= 0"])
    found = export.export(phalanx.jit(fun))(phalanx.ShapeDtypeStruct(symbolic_shape("n", scope=scope), "float32"))
    for n in (0, 1, 4):
        x = np.linspace(0.5, 2, n, dtype="f4")
        for got, want in zip(found.call(x), phalanx.jit(fun)(x), strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize(("case", "text"), NOT, ids=[c.name for c, _ in NOT])
def test_unsupported_symbolic_operations_are_errors(case, text):
    with pytest.raises(phalanx.errors.PhalanxError) as error:
        exported(case)
    assert text in str(error.value)


def test_dimensions_mix_with_numpy_data_and_are_results():
    (b,) = symbolic_shape("b")
    assert abs(b) is b and abs(-b) is b and abs(b - 4).__class__ is type(b)
    others = np.arange(1, 4, dtype=np.int32), np.float32(2), 2.5, np.array([0.5, 2.0], np.float32)

    def f(x):
        n = x.shape[0]
        out = [n, 2 * n + 1, n**n, 2**n, abs(n - 4), x]
        for y in others:
            out += [n // y, y // n, n % y, y % n]
        return out

    exported = export.export(phalanx.jit(f))(phalanx.ShapeDtypeStruct((b,), np.float32))
    for got, wanted in zip(exported.call(np.ones(3, np.float32)), f(np.ones(3, np.float32)), strict=True):
        np.testing.assert_allclose(got, wanted)
    with pytest.raises(ValueError, match=r"power of symbolic dimension b: expected a whole number from 0 on"):
        b**-2


def test_texts_of_dimensions_may_have_a_leading_sign():
    assert str(symbolic_shape("+ 2*a - b")[0]) == "- b + 2*a"


def test_the_largest_terms_of_a_dimension_print_first():
    for text in (
        "b + a",
        "a*b + a^2 + b + a",
        "- a*b^2 - 2*a^2*b",
        "- mod(a, 4) + 3",
        "- 2*a + 3",
        "a*floordiv(b, 8)*mod(b, 4)",
    ):
        assert str(symbolic_shape(text)[0]) == text
