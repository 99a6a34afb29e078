"""Public functions of arrays that do not divide: the bytes that they send, and what no program could do without.

A function may send what it sends at the next even size. Where it sends more, the derivative proves that it must, and it
sends the least: what a device passes on has at least as many numbers as the rank of the derivative of all that other
devices return, in the elements that this device holds; and what it receives as many as the rank of the derivative of
what it returns, in the elements of others. docs/decisions/0018-bytes-of-uneven-programs.md has the argument.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.meshes import auto_mesh

import phalanx
import phalanx.numpy as jnp
from phalanx import lax, nn, ops, random
from phalanx.sharding import NamedSharding, P
from phalanx.testing import collectives

SIZES = [(17, 8), (10, 4), (5, 8)]  # rows and devices: a short last shard, and empty ones


def values(rows):
    return np.random.default_rng(rows).normal(size=(rows, 6)).astype(np.float32)


def least_sent(function, x, y):
    """The bytes that some device must send or receive, to compute `y` from `x` by a function."""
    rows, columns = (int(np.prod(a.shape)) for a in (y, x))
    derivative = np.asarray(phalanx.jacrev(function)(np.asarray(x))).reshape(rows, columns)

    def held_by(a):
        """For each device, which elements it holds."""
        held = {device: np.zeros(a.shape, bool) for device in x.sharding.device_set}
        for device, index in a.sharding.devices_indices_map(a.shape).items():
            held[device][index] = True
        return {device: mask.ravel() for device, mask in held.items()}

    held, kept = held_by(x), held_by(y)
    ranks = [0]
    for device in held:
        of_others = [kept[other] for other in kept if other is not device]
        sent = derivative[np.ix_(np.any(of_others, 0), held[device])]
        received = derivative[np.ix_(kept[device], ~held[device])]
        ranks += [int(np.linalg.matrix_rank(part, 1e-4)) for part in (sent, received) if part.size]
    return max(ranks) * x.dtype.itemsize


def check_bytes(function, rows, devices, is_proven, more=0):
    """Check the values of a function of rows over devices, and that it sends no more than at the next even size.

    Where it is proven that it must, it may send the least, and `more` bytes.
    """
    split = NamedSharding(auto_mesh((devices,), "x", devices=phalanx.devices()[:devices]), P("x"))
    even = -(-rows // devices) * devices
    x, jitted = phalanx.device_put(values(rows), split), phalanx.jit(function)
    compiled = jitted.lower(x).compile()
    y = compiled(x)
    for got, wanted in zip(*map(phalanx.tree.leaves, (y, jitted(values(rows)))), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=2e-3, atol=2e-4)
    sent = collectives(compiled).bytes
    allowed = collectives(jitted, phalanx.device_put(values(even), split)).bytes
    if is_proven:
        least = least_sent(function, x, y)
        assert allowed < least, "no program could send as little as at the next even size"
        allowed = least + more
    assert sent <= allowed, f"sends {sent} bytes, where {allowed} are allowed"


FUNCTIONS = {
    "flip": lambda x: jnp.flip(x, 0),
    "rev2": lambda x: x[::-1] * 2,
    "roll1": lambda x: jnp.roll(x, 1, 0),
    "roll-1": lambda x: jnp.roll(x, -1, 0),
    "roll3": lambda x: jnp.roll(x, 3, 0),
    "shift": lambda x: jnp.concatenate([jnp.zeros_like(x[:1]), x[:-1]]),
    "diff": lambda x: jnp.diff(x, axis=0),
    "x[1:]": lambda x: x[1:],
    "x[:-1]": lambda x: x[:-1],
    "x[::2]": lambda x: x[::2],
    "cumsum": lambda x: jnp.cumsum(x, 0),
    "cumprod": lambda x: jnp.cumprod(x, 0),
    "cummax": lambda x: lax.cummax(x, axis=0),
    "cummin": lambda x: lax.cummin(x, axis=0),
    "cumlogsumexp": lambda x: lax.cumlogsumexp(x, axis=0),
    "cumsum_rev": lambda x: lax.cumsum(x, axis=0, reverse=True),
    "cummax_rev": lambda x: lax.cummax(x, axis=0, reverse=True),
    "trace": lambda x: jnp.trace(x),
    "diag": lambda x: jnp.diag(x),
    "tril": lambda x: jnp.tril(x),
    "reshape_flat": lambda x: x.reshape(-1),
    "reshape_back": lambda x: (x.reshape(-1) * 2).reshape(x.shape),
    "argmax": lambda x: jnp.argmax(x, 0),
    "argmax_all": lambda x: jnp.argmax(x),
    "argmin_all": lambda x: jnp.argmin(x),
    "hist": lambda x: jnp.histogram(x, bins=5)[0],
    "merge3": lambda x: x.reshape(x.shape[0] * 3, 2),
    "split3": lambda x: x.reshape(x.shape[0], 3, 2),
    "sort": lambda x: jnp.sort(x, 0),
    "argsort": lambda x: jnp.argsort(x, 0),
    "sortall": lambda x: jnp.sort(x, None),
    "median": lambda x: jnp.median(x, 0),
    "quantile": lambda x: jnp.quantile(x, 0.3, axis=0),
    "take": lambda x: jnp.take(x, jnp.array([0, 2]), 0),
    "x.at.set": lambda x: x.at[1].set(0.0),
    "x.at.add": lambda x: x.at[jnp.array([0, 2])].add(1.0),
    "x.at.sub": lambda x: x.at[jnp.array([0, 2])].add(-1.0),
    "x.at.mul": lambda x: x.at[0].multiply(2.0),
    "x[-1]": lambda x: x[-1],
    "x[0]": lambda x: x[0],
    "concat": lambda x: jnp.concatenate([x, x]),
    "stack": lambda x: jnp.stack([x, x]),
    "stack1": lambda x: jnp.stack([x, x], 1),
    "vstack": lambda x: jnp.vstack([x, x]),
    "tile": lambda x: jnp.tile(x, (2, 1)),
    "repeat": lambda x: jnp.repeat(x, 2, 0),
    "matmul": lambda x: x @ x.T,
    "gram": lambda x: x.T @ x,
    "outer": lambda x: jnp.outer(x[:, 0], x[:, 1]),
    "kron": lambda x: jnp.kron(x, jnp.ones((2, 1))),
    "T": lambda x: x.T,
    "pad": lambda x: jnp.pad(x, ((1, 1), (0, 0))),
    "padint": lambda x: lax.pad(x, 0.0, [(0, 0, 1), (0, 0, 0)]),
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(0),
    "var": lambda x: x.var(0),
    "std": lambda x: x.std(),
    "prod": lambda x: x.prod(0),
    "max": lambda x: x.max(0),
    "min": lambda x: x.min(),
    "any": lambda x: (x > 0).any(),
    "all": lambda x: (x > 0).all(0),
    "ptp": lambda x: jnp.ptp(x, 0),
    "norm": lambda x: jnp.linalg.norm(x),
    "softmax": lambda x: nn.softmax(x, 0),
    "logsumexp": lambda x: nn.logsumexp(x, 0),
    "standardize": lambda x: nn.standardize(x, 0),
    "topk": lambda x: lax.top_k(x.T, 2)[0],
    "convolve": lambda x: jnp.convolve(x[:, 0], jnp.ones(3), "same"),
    "corr": lambda x: jnp.corrcoef(x.T),
    "cov": lambda x: jnp.cov(x.T),
    "fft0": lambda x: jnp.abs(jnp.fft.fft(x, axis=0)),
    "fft1": lambda x: jnp.abs(jnp.fft.fft(x, axis=1)),
    "interp": lambda x: jnp.interp(x[:, 0], jnp.linspace(0, 1, 7), jnp.arange(7.0)),
    "searchsorted": lambda x: jnp.searchsorted(jnp.linspace(0, 1, 7), x[:, 0]),
    "digitize": lambda x: jnp.digitize(x[:, 0], jnp.linspace(0, 1, 7)),
    "bincount": lambda x: jnp.bincount((x[:, 0] > 0).astype(int), length=3),
    "segsum": lambda x: ops.segment_sum(x, jnp.arange(x.shape[0]) % 3, 3),
    "cumsum1": lambda x: jnp.cumsum(x, 1),
    "scan": lambda x: lax.scan(lambda c, r: (c + r, c), jnp.zeros(6), x)[1],
    "assoc": lambda x: lax.associative_scan(jnp.add, x),
    "map": lambda x: lax.map(lambda r: r.sum(), x),
    "vmap_sort": lambda x: phalanx.vmap(jnp.sort)(x),
    "where": lambda x: jnp.where(x > 0, x, 0),
    "clip": lambda x: jnp.clip(x, 0, 1),
    "swapaxes": lambda x: jnp.swapaxes(x.reshape(x.shape[0], 2, 3), 0, 1),
    "moveaxis": lambda x: jnp.moveaxis(x.reshape(x.shape[0], 2, 3), 0, -1),
    "split": lambda x: jnp.split(x, [2])[1],
    "rot90": lambda x: jnp.rot90(x),
    "gradient": lambda x: jnp.gradient(x, axis=0),
    "trapezoid": lambda x: jnp.trapezoid(x, axis=0),
    "ediff": lambda x: jnp.ediff1d(x[:, 0]),
    "unwrap": lambda x: jnp.unwrap(x, axis=0),
    "dynslice": lambda x: lax.dynamic_slice_in_dim(x, 1, 2, 0),
    "dynupd": lambda x: lax.dynamic_update_slice_in_dim(x, jnp.ones((2, 6)), 1, 0),
    "redwin": lambda x: lax.reduce_window(x, 0.0, lax.add, (3, 1), (1, 1), "SAME"),
    "maxpool": lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 1), (2, 1), "VALID"),
    "conv": lambda x: lax.conv_general_dilated(
        x[None], jnp.ones((3, 6, 4)), (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
    ),
    "conv_b": lambda x: lax.conv_general_dilated(
        x[:, :, None], jnp.ones((3, 1, 4)), (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
    ),
    "random": lambda x: random.normal(random.key(0), x.shape) + x,
    "perm": lambda x: random.permutation(random.key(0), x),
    "choice": lambda x: random.choice(random.key(0), x, (4,)),
    "dropout": lambda x: jnp.where(random.bernoulli(random.key(1), 0.5, x.shape), x, 0),
    "categorical": lambda x: random.categorical(random.key(0), x, axis=0),
    "categorical1": lambda x: random.categorical(random.key(0), x),
    "solve": lambda x: jnp.linalg.solve(x.T @ x + jnp.eye(6), x.T),
    "chol": lambda x: jnp.linalg.cholesky(x @ x.T + jnp.eye(x.shape[0])),
    "qr": lambda x: jnp.linalg.qr(x)[1],
    "svd": lambda x: jnp.linalg.svd(x, full_matrices=False)[1],
    "det": lambda x: jnp.linalg.det(x.T @ x),
    "pinv": lambda x: jnp.linalg.pinv(x),
    "expm": lambda x: phalanx.scipy.linalg.expm(x.T @ x * 0.01),
    "einsum": lambda x: jnp.einsum("ij,kj->ik", x, x),
    "tensordot": lambda x: jnp.tensordot(x, x, ((0,), (0,))),
    "vander": lambda x: jnp.vander(x[:, 0], 3),
    "meshgrid": lambda x: jnp.meshgrid(x[:, 0], x[:, 1])[0],
    "nonzero": lambda x: jnp.nonzero(x[:, 0], size=3)[0],
    "select_and_gather": lambda x: jnp.take_along_axis(x, jnp.argsort(x, 1), 1),
    "compress": lambda x: jnp.compress(jnp.array([True, False, True]), x, axis=0, size=2),
    "attention": lambda x: nn.dot_product_attention(x[None, :, None, :], x[None, :, None, :], x[None, :, None, :]),
    "mha_b": lambda x: nn.dot_product_attention(x.reshape(-1, 3, 1, 2), x.reshape(-1, 3, 1, 2), x.reshape(-1, 3, 1, 2)),
    "r2h": lambda x: x.reshape(2 * x.shape[0], -1),
    "groupnorm": lambda x: (x.reshape(-1, 2, 3) - x.reshape(-1, 2, 3).mean(-1, keepdims=True)).reshape(x.shape),
    "expand": lambda x: x[:, None] - x[None],
    "cdist": lambda x: ((x[:, None] - x[None]) ** 2).sum(-1),
    "resize": lambda x: phalanx.image.resize(x, (x.shape[0], 3), "linear"),
    "argsort_all": lambda x: jnp.argsort(x, None),
    "lexsort": lambda x: jnp.lexsort((x[:, 0], x[:, 1])),
    "partition": lambda x: jnp.partition(x, 2, axis=0),
    "percentile": lambda x: jnp.percentile(x, 30),
    "nanmean": lambda x: jnp.nanmean(x, 0),
    "average": lambda x: jnp.average(x, 0, weights=jnp.abs(x[:, 0])),
    "append": lambda x: jnp.append(x, x[:1], axis=0),
    "toeplitz": lambda x: phalanx.scipy.linalg.toeplitz(x[:, 0]),
    "fliplr": lambda x: jnp.fliplr(x),
    "batched_gather": lambda x: phalanx.vmap(lambda r: r[jnp.argmax(r)])(x),
    "bool_mask_sum": lambda x: jnp.sum(x, 0, where=x > 0),
    "while": lambda x: lax.while_loop(lambda c: c.sum() < 9, lambda c: c + 1, x),
}
GRADIENTS = {
    "flip",
    "roll1",
    "cumsum",
    "cumprod",
    "cummax",
    "cummin",
    "cumlogsumexp",
    "cummax_rev",
    "trace",
    "reshape_flat",
    "reshape_back",
    "merge3",
    "split3",
    "sort",
    "median",
    "take",
    "x.at.set",
    "x.at.add",
    "x.at.mul",
    "x[-1]",
    "x[1:]",
    "x[::2]",
    "concat",
    "repeat",
    "matmul",
    "kron",
    "pad",
    "padint",
    "prod",
    "max",
    "softmax",
    "logsumexp",
    "topk",
    "convolve",
    "scan",
    "assoc",
    "diff",
    "redwin",
    "maxpool",
    "conv",
    "conv_b",
    "dynslice",
    "dynupd",
    "segsum",
    "attention",
    "mha_b",
    "select_and_gather",
    "groupnorm",
    "solve",
    "chol",
    "expand",
    "interp",
    "fft1",
    "norm",
    "r2h",
    "percentile",
    "swapaxes",
    "unwrap",
}
# Where the result has another size than the operand, so that its shards begin at other rows.
MORE = {
    (17, 8): {"diff", "x[1:]", "x[:-1]", "reshape_flat", "merge3", "repeat", "kron", "padint", "split", "ediff", "r2h"},
    (10, 4): {"reshape_flat", "merge3", "repeat", "kron", "padint", "r2h"},
    (5, 8): {"reshape_flat", "merge3"},
}


# A known miss: one row more, which a device that receives it would have to forward.
FORWARDED = {"diff": 24, "ediff": 4}


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "devices"), SIZES)
@pytest.mark.parametrize("name", [*FUNCTIONS, *(f"gradient of {name}" for name in sorted(GRADIENTS))])
def test_a_function_sends_no_more_than_at_the_next_even_size_except_where_it_must(name, rows, devices):
    function = FUNCTIONS[name.removeprefix("gradient of ")]
    if name.startswith("gradient of "):
        sine, function = function, phalanx.grad(lambda x: jnp.sin(sine(x)).sum())
    check_bytes(function, rows, devices, name in MORE[rows, devices], FORWARDED.get(name, 0))


def test_a_declared_result_sharding_does_not_gather_an_uneven_argument():
    rows = NamedSharding(auto_mesh((8,), "x"), P("x"))
    gram = phalanx.jit(lambda x: x.T @ x, out_shardings=rows)
    sent = [collectives(gram, phalanx.device_put(values(n), rows)).bytes for n in (17, 24)]
    np.testing.assert_allclose(gram(phalanx.device_put(values(17), rows)), values(17).T @ values(17), rtol=1e-5)
    assert sent == [144, 144]


@pytest.mark.parametrize("name", ["flip", "diff", "reshape_back", "repeat", "conv"])
def test_a_function_that_is_compiled_inside_sends_what_its_operations_send(name):
    inner = phalanx.jit(FUNCTIONS[name])
    x = phalanx.device_put(values(17), NamedSharding(auto_mesh((8,), "x"), P("x")))
    alone, twice = (phalanx.jit(f).lower(x).compile() for f in (FUNCTIONS[name], lambda x: (inner(x), inner(2 * x))))
    for y, wanted in zip(twice(x), (FUNCTIONS[name](values(17)), FUNCTIONS[name](2 * values(17))), strict=True):
        np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)
    assert collectives(twice).bytes == 2 * collectives(alone).bytes


@pytest.mark.parametrize(("rows", "devices"), SIZES)
def test_a_result_of_another_size_sends_what_no_program_can_do_without(rows, devices):
    for name in MORE[rows, devices]:
        check_bytes(FUNCTIONS[name], rows, devices, True, FORWARDED.get(name, 0))


def test_the_least_bytes_are_those_of_the_busiest_device():
    split = NamedSharding(auto_mesh((8,), "x"), P("x"))
    for function, size, rows in [
        (lambda x: x, 17, 0),
        (lambda x: x[::-1], 17, 3),
        (lambda x: jnp.roll(x, 1, 0), 17, 1),
        (lambda x: x[1:], 17, 3),
        (lambda x: jnp.diff(x, axis=0), 17, 3),
        (lambda x: jnp.diff(x, axis=0), 24, 1),
        (lambda x: x + x.sum(0), 17, 1),  # one number for a column, whatever it is the sum of
    ]:
        x = phalanx.device_put(values(size), split)
        assert least_sent(function, x, phalanx.jit(function)(x)) == rows * 24
    with pytest.raises(AssertionError, match="sends 72 bytes, where 24 are allowed"):
        check_bytes(lambda x: x[1:], 17, 8, is_proven=False)
    with pytest.raises(AssertionError, match="no program could send as little"):
        check_bytes(lambda x: jnp.roll(x, 1, 0), 17, 8, is_proven=True)
