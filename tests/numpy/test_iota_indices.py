"""`x[arange(b)[:, None], i]` over sharded rows needs no communication, however the iota was computed."""

import numpy as np
import pytest
from tests.meshes import auto_mesh

import phalanx
import phalanx.numpy as jnp
from phalanx.numpy.indexing.index_expression import find_iota_dim
from phalanx.sharding import AxisType, NamedSharding, P
from phalanx.testing import CommunicationError, assert_collectives

B, N, C = 8, 7, 3
NUMBERS = np.random.default_rng(0)
X = NUMBERS.normal(size=(B, N, C)).astype(np.float32)
I = NUMBERS.integers(-N, N, (B, 5)).astype(np.int32)

READ = {
    "column": lambda x, i: x[jnp.arange(B)[:, None], i],
    "vector": lambda x, i: x[jnp.arange(x.shape[0]), i[:, 0]],
    "host": lambda x, i: x[np.arange(B)[:, None], i],
    "converted": lambda x, i: x[jnp.arange(B, dtype=np.uint8).astype(int), i[:, 0]],
    "reshaped": lambda x, i: x[jnp.arange(B).reshape(1, B, 1).squeeze(0), i],
    "last": lambda x, i: x[jnp.arange(B), :, i[:, 0] % C],
    "two counts": lambda x, i: x[jnp.arange(B)[:, None], jnp.arange(N), i[:, :1] % C],
    "grid": lambda x, i: x[(*jnp.meshgrid(jnp.arange(B), jnp.arange(C), indexing="ij"), i[:, :C] % C)],
    "filled": lambda x, i: x.at[jnp.arange(B), 2 * i[:, 0]].get(mode="fill", fill_value=5),
    "derivative": phalanx.grad(lambda x, i: jnp.sum(x[jnp.arange(B)[:, None], i] ** 2)),
    "one example": lambda x, i: phalanx.vmap(lambda x, i: x[jnp.arange(C), i[:C] % C])(x, i),
}
WRITTEN = {
    "set": lambda x, i: x.at[jnp.arange(B), i[:, 0]].set(0.5),
    "add": lambda x, i: x.at[jnp.arange(B)[:, None], i].add(2.0),
    "divide": lambda x, i: x.at[np.arange(B), i[:, 0]].divide(2.0),
    "apply": lambda x, i: x.at[jnp.arange(B), i[:, 0]].apply(jnp.sin),
    "last": lambda x, i: x.at[jnp.arange(B), ::2, i[:, 0] % C].max(0.0),
    "dropped": lambda x, i: x.at[jnp.arange(B), 3 * i[:, 0]].set(1.0),
    "derivative": phalanx.grad(lambda x, i: jnp.sum(x.at[jnp.arange(B)[:, None], i].multiply(3.0) ** 2)),
}


@pytest.mark.parametrize("types", [AxisType.Auto, AxisType.Explicit], ids=["auto", "explicit"])
@pytest.mark.parametrize("f", [pytest.param(f, id=n) for fs in (READ, WRITTEN) for n, f in fs.items()])
def test_an_iota_index_over_a_sharded_dimension_needs_no_communication(f, types):
    mesh = phalanx.make_mesh((8,), ("x",), axis_types=(types,))
    x, i = (phalanx.device_put(a, NamedSharding(mesh, P("x"))) for a in (X, I))
    assert_collectives(f, x, i)
    np.testing.assert_allclose(phalanx.jit(f)(x, i), f(jnp.asarray(X), jnp.asarray(I)), rtol=1e-6)


def test_another_index_over_a_sharded_dimension_communicates():
    x, i = (phalanx.device_put(a, NamedSharding(auto_mesh((8,), ("x",)), P("x"))) for a in (X, I))
    with pytest.raises(CommunicationError, match="all-reduce of 96 bytes over .x., at .*test_iota_indices.py"):
        assert_collectives(lambda x, i: x[jnp.arange(B)[::-1], i[:, 0]], x, i)


@pytest.mark.parametrize(
    "index",
    [
        lambda: jnp.arange(B)[::-1],
        lambda: jnp.arange(B) + 1,
        lambda: jnp.arange(4),
        lambda: jnp.arange(0, 2 * B, 2),
        lambda: jnp.arange(1, B + 1),
        lambda: jnp.zeros(B, int),
        lambda: np.arange(B)[::-1],
        lambda: jnp.arange(4).reshape(2, 2),
        lambda: phalanx.lax.iota(np.int8, 2 * 256)[:B],
    ],
)
def test_indices_that_are_not_iotas_are_read_correctly(index):
    x = np.arange(2 * B * 4.0).reshape(2 * B, 4)
    i = np.arange(len(index())) % 4
    i = i.reshape(i.shape + (1,) * (index().ndim - 1))
    f = lambda x, i: x[index(), i]
    np.testing.assert_array_equal(phalanx.jit(f)(x, i), x[np.asarray(index()), i])


def test_iotas_are_recognised_from_the_equations_that_made_them():
    found = {}

    def f(x):
        found.update(
            iota=find_iota_dim(jnp.arange(B)),
            column=find_iota_dim(jnp.arange(B)[:, None]),
            grid=find_iota_dim(phalanx.lax.broadcasted_iota(int, (4, B), 1)),
            repeated=find_iota_dim(jnp.broadcast_to(jnp.arange(B), (B, B))),
            host=find_iota_dim(np.arange(B)[None]),
            narrow=find_iota_dim(phalanx.lax.iota(np.int8, 300)),
            narrowed=find_iota_dim(phalanx.lax.iota(np.int32, 300).astype(np.int8)),
            folded=find_iota_dim(jnp.arange(B).reshape(2, 4)),
            moved=find_iota_dim(jnp.arange(B) + 1),
            argument=find_iota_dim(x),
            number=find_iota_dim(jnp.arange(B).astype(float)),
        )
        return x

    phalanx.jit(f)(np.arange(B))
    assert found == dict(
        iota=0, column=0, grid=1, repeated=1, host=1, narrow=None, narrowed=None, folded=None, moved=None,
        argument=None, number=None,
    )  # fmt: skip


def test_an_iota_over_a_symbolic_dimension_is_an_ordinary_index():
    (b,) = phalanx.export.symbolic_shape("b")

    def f(x, i):
        rows = jnp.broadcast_to(jnp.arange(x.shape[0])[:, None], i.shape)
        return x[rows, i], x.at[rows.reshape(1, -1, C)[0], i].add(2.0)

    i = I[:, :C] % C
    types = phalanx.ShapeDtypeStruct((b, C), np.float32), phalanx.ShapeDtypeStruct((b, C), np.int32)
    read, written = phalanx.export.export(phalanx.jit(f))(*types).call(X[:, 0], i)
    np.testing.assert_array_equal(read, np.take_along_axis(X[:, 0], i, 1))
    wanted = X[:, 0].copy()
    np.add.at(wanted, (np.arange(B)[:, None], i), np.float32(2))
    np.testing.assert_allclose(written, wanted, rtol=1e-6)


def test_recognising_iotas_takes_time_linear_in_the_number_of_equations():
    seen = []

    class Counted(list):
        def __getitem__(self, key):
            found = super().__getitem__(key)
            seen.append(len(found))
            return found

    def f(x, rows):
        jnp.arange(B)._trace.eqns = Counted(jnp.arange(B)._trace.eqns)
        for _ in range(20):
            x = x + x[rows, rows % 2]  # `rows` is an argument, so that no equation made it
        return x

    program = phalanx.make_jaxpr(f)(np.ones((B, B)), np.arange(B))
    assert sum(seen) <= len(program.eqns) + 2
