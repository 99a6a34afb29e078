"""`ragged_all_to_all` is its definition, with gradients: under every style, mapped over other axes, and in groups."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from phalanx.experimental.maps import xmap
from tests.meshes import auto_mesh

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.sharding import P
from phalanx.testing import collectives

N, ROWS, PLACES = 4, 6, 9
IN_GROUPS = [[0, 3], [2, 1]]


class Exchange:
    """Random slices, and what becomes of them: members[sender][receiver] in groups, by the definition."""

    def __init__(self, seed, groups=None):
        rng = np.random.default_rng(seed)
        self.groups = groups or [list(range(N))]
        count = len(self.groups[0])
        self.x = rng.normal(size=(N, ROWS, 2)).astype(np.float32)
        self.output = rng.normal(size=(N, PLACES, 2)).astype(np.float32)
        self.sizes = rng.integers(0, 3, (N, count)).astype(np.int32)
        self.starts = rng.integers(0, ROWS - 2, (N, count)).astype(np.int32)
        # Each receiver has slices one after the other, from a place of its own on.
        self.places = np.zeros((N, count), np.int32)
        self.arriving = np.zeros((N, count), np.int32)
        for group in self.groups:
            for j, there in enumerate(group):
                place = rng.integers(0, 2)
                for i, here in enumerate(group):
                    self.places[here, j] = place
                    self.arriving[there, i] = self.sizes[here, j]
                    place += self.sizes[here, j]

    @property
    def numbers(self):
        return self.starts, self.sizes, self.places, self.arriving

    def slices(self):
        for group in self.groups:
            for here in group:
                for j, there in enumerate(group):
                    start, place, size = self.starts[here, j], self.places[here, j], self.sizes[here, j]
                    yield here, slice(start, start + size), there, slice(place, place + size)

    def result(self, x, output):
        out = np.array(output)
        for here, rows, there, places in self.slices():
            out[there, places] = x[here, rows]
        return out

    def transposed(self, y_bar):
        x_bar, output_bar = np.zeros_like(self.x), np.array(y_bar)
        for here, rows, there, places in self.slices():
            x_bar[here, rows] += y_bar[there, places]
            output_bar[there, places] = 0
        return x_bar, output_bar


def by_vmap(f, *args):
    return phalanx.vmap(f, axis_name="i")(*args)


def by_pmap(f, *args):
    return phalanx.pmap(f, axis_name="i")(*args)


def by_soft_pmap(f, *args):
    return phalanx.soft_pmap(f, axis_name="i")(*args)


def by_xmap(f, *args):
    return xmap(f, (["i", ...],) * 6, ["i", ...], axis_resources={"i": "m"})(*args)


def by_shard_map(f, *args, **options):
    rows = lambda *xs: f(*[x[0] for x in xs])[None]
    return phalanx.shard_map(rows, mesh=auto_mesh((N,), ("i",)), in_specs=P("i"), out_specs=P("i"), **options)(*args)


def by_shard_map_unchecked(f, *args):
    return by_shard_map(f, *args, check_vma=False)


STYLES = [by_vmap, by_pmap, by_soft_pmap, by_xmap, by_shard_map, by_shard_map_unchecked]


@pytest.mark.one_is_quick(group=lambda style, groups: style)
@pytest.mark.parametrize("groups", [None, IN_GROUPS], ids=["all", "in groups"])
@pytest.mark.parametrize("style", STYLES)
def test_value_and_gradients_equal_those_of_the_definition(style, groups):
    exchange = Exchange(1, groups)
    send = lambda *xs: lax.ragged_all_to_all(*xs, axis_name="i", axis_index_groups=groups)
    y_bar = np.cos(np.arange(exchange.output.size, dtype=np.float32)).reshape(exchange.output.shape)

    def loss(x, output):
        y = style(send, x, output, *exchange.numbers)
        return (y * y_bar).sum(), y

    tangents = [np.sin(v) for v in (exchange.x, exchange.output)]

    def all_of(x, output):
        return phalanx.grad(loss, (0, 1), has_aux=True)(x, output), phalanx.jvp(loss, (x, output), tuple(tangents))[1]

    with auto_mesh((2,), ("m",)) if style is by_xmap else contextlib.nullcontext():
        (bars, y), (_, y_dot) = phalanx.jit(all_of)(exchange.x, exchange.output)
    np.testing.assert_array_equal(y, exchange.result(exchange.x, exchange.output))
    for got, want in zip(bars, exchange.transposed(y_bar), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)
    np.testing.assert_array_equal(y_dot, exchange.result(*tangents))


@pytest.mark.parametrize("style", [by_vmap, by_shard_map])
def test_vmap_over_another_axis_exchanges_each_example(style):
    """Offsets and sizes too may be the example's own, and any operand may be without the mapped dimension."""
    several = [Exchange(seed) for seed in range(3)]
    send = lambda *xs: lax.ragged_all_to_all(*xs, axis_name="i")
    fields = [lambda e: e.x, lambda e: e.output, *(lambda e, k=k: e.numbers[k] for k in range(4))]
    for which in ({0, 1, 2, 3, 4, 5}, {0}, {1}, {0, 1}, {1, 2}):
        # The numbers belong together: they are the examples' own, all or none, but for where the slices start.
        examples = [[field(e if k in which else several[0]) for k, field in enumerate(fields)] for e in several]
        stacked = [np.stack([ex[k] for ex in examples], 1) if k in which else examples[0][k] for k in range(6)]
        mapped = phalanx.vmap(send, tuple([0 if k in which else None for k in range(6)]))
        got = phalanx.jit(lambda *xs, mapped=mapped: style(mapped, *xs))(*stacked)
        for e, example in enumerate(examples):
            want = Exchange(0)
            want.starts, want.sizes, want.places, want.arriving = example[2:]
            np.testing.assert_array_equal(np.asarray(got)[:, e], want.result(example[0], example[1]))


def test_rows_out_of_bounds_are_dropped_or_zero():
    x = jnp.arange(1.0, 9.0).reshape(2, 4)
    zeros, ones = np.zeros((2, 2), np.int32), np.ones((2, 2), np.int32)
    send = phalanx.jit(lambda *xs: by_vmap(lambda *ys: lax.ragged_all_to_all(*ys, axis_name="i"), *xs))
    # The second slice is sent from row 3 on and has two rows, of which one is beyond the end: it arrives as zero.
    starts, sizes = np.array([[0, 3], [0, 3]], np.int32), np.array([[0, 2], [0, 2]], np.int32)
    places, arriving = np.array([[0, 0], [0, 2]], np.int32), np.array([[0, 0], [2, 2]], np.int32)
    got = send(x, jnp.full((2, 4), -1.0), starts, sizes, places, arriving)
    assert got.tolist() == [[-1, -1, -1, -1], [4, 0, 8, 0]]
    # A slice that starts beyond the end of the output, and one of no rows, leave it as it was.
    got = send(x, jnp.full((2, 2), -1.0), zeros, ones * [1, 0], ones * 2, ones * [[1], [0]])
    assert got.tolist() == [[-1, -1], [-1, -1]]


def test_the_exchange_uses_two_all_to_alls():
    """Slices travel padded to the rows of the operand, with one exchange of the places where they go."""
    exchange = Exchange(0)
    f = lambda *xs: by_shard_map(lambda *ys: lax.ragged_all_to_all(*ys, axis_name="i"), *xs)
    found = collectives(f, exchange.x, exchange.output, *exchange.numbers)
    assert found.kinds == ("all-to-all", "all-to-all")
    assert sorted(c.bytes for c in found) == [4 * N, exchange.x[0].nbytes * N]
