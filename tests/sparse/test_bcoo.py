"""The batched coordinate format: conversions, layouts, sorting and shapes."""

import itertools

import numpy as np
import pytest
from phalanx.experimental import sparse
from phalanx.experimental.sparse.test_util import rand_bcoo, rand_bcsr
from tests.sparse_arrays import make_bcoo, make_dense

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.core.error_classes import ArgumentError, ConcretizationTypeError, ShapeError

LAYOUTS = [(shape, b, d) for shape in [(5,), (4, 5), (2, 3, 4)] for b, d in itertools.product(range(3), range(3))]
LAYOUTS = [(shape, b, d) for shape, b, d in LAYOUTS if b + d <= len(shape)]
some_layouts = pytest.mark.parametrize("shape, n_batch, n_dense", LAYOUTS)


@some_layouts
def test_a_dense_array_survives_the_round_trip(shape, n_batch, n_dense):
    x = make_dense(shape)
    y = sparse.BCOO.fromdense(x, n_batch=n_batch, n_dense=n_dense)
    assert (y.shape, y.n_batch, y.n_dense, y.n_sparse) == (shape, n_batch, n_dense, len(shape) - n_batch - n_dense)
    np.testing.assert_array_equal(y.todense(), x)
    np.testing.assert_array_equal(phalanx.jit(sparse.todense)(y), x)
    through = lambda x: sparse.BCOO.fromdense(x, nse=y.nse, n_batch=n_batch, n_dense=n_dense).todense()
    np.testing.assert_array_equal(phalanx.jit(through)(x), x)


@pytest.mark.parametrize("shape, n_batch", [((3, 5), 1), ((2, 3, 4), 1), ((2, 3, 4), 2)])
def test_vmap_maps_over_batch_dimensions(shape, n_batch):
    x = make_bcoo(shape, n_batch)
    inside = []

    def total(x):
        inside.append(x.shape)
        return x.sum()

    mapped, axes = total, tuple(range(n_batch, len(shape)))
    for _ in range(n_batch):
        mapped = phalanx.vmap(mapped)
    np.testing.assert_allclose(mapped(x), np.asarray(x.todense()).sum(axes))
    assert set(inside) == {shape[n_batch:]}
    out = phalanx.vmap(lambda x: 2 * x, in_axes=n_batch - 1, out_axes=n_batch - 1)(x)
    assert (out.shape, out.n_batch) == (shape, n_batch)
    np.testing.assert_array_equal(out.todense(), 2 * x.todense())


def test_scan_slices_batch_dimensions():
    x = make_bcoo((3, 4, 4), 1)
    last, parts = lax.scan(lambda c, m: (m @ c, 2 * m), jnp.ones(4), x)
    wanted = np.ones(4)
    for m in np.asarray(x.todense()):
        wanted = m @ wanted
    np.testing.assert_allclose(last, wanted)
    np.testing.assert_array_equal(parts.todense(), 2 * x.todense())


def test_mapping_over_stored_elements_is_an_error():
    with pytest.raises(ShapeError) as error:
        phalanx.vmap(lambda x: x.sum())(sparse.BCOO.fromdense(jnp.eye(2)))
    assert str(error.value) == (
        "BCOO array inside of vmap or scan: expected a mapped batch dimension, got a mapped dimension of the stored "
        "elements, which leaves indices of shape [2].\n"
        "  Fix: add a batch dimension with update_layout(n_batch=1, on_inefficient=None), and map over that."
    )


def test_a_batch_dimension_of_one_buffer_is_broadcast():
    x = make_bcoo((3, 4), 1)
    wide = sparse.BCOO((x.data, x.indices[:1]), shape=(3, 4))
    same = sparse.BCOO((x.data, jnp.repeat(x.indices[:1], 3, 0)), shape=(3, 4))
    np.testing.assert_array_equal(wide.todense(), same.todense())
    np.testing.assert_array_equal((wide @ jnp.ones(4)), (same @ jnp.ones(4)))
    one = sparse.BCOO((x.data[:1], x.indices[:1]), shape=(3, 4))
    np.testing.assert_array_equal(one.todense(), jnp.repeat(one.todense()[:1], 3, 0))


@pytest.mark.one_is_quick(group=lambda shape, **_: len(shape))
@some_layouts
def test_recurring_indices_are_added(shape, n_batch, n_dense):
    x = make_bcoo(shape, n_batch, n_dense)
    for nse in (None, 7):
        for zeros in (True, False):
            y = x.sum_duplicates(nse=nse, remove_zeros=zeros)
            np.testing.assert_array_equal(y.todense(), x.todense())
            assert y.unique_indices and y.indices_sorted and nse in (None, y.nse)
    y = x.sort_indices()
    np.testing.assert_array_equal(y.todense(), x.todense())
    keys = y.indices.reshape(-1, *y.indices.shape[-2:]).tolist()
    assert all(rows == sorted(rows) for rows in keys)


def test_the_number_of_stored_elements_is_counted_without_padding_and_zeros():
    x = sparse.BCOO(([0, 1, 2, 9], [[0], [1], [1], [3]]), shape=(3,))
    assert x.sum_duplicates().indices.tolist() == [[1]]
    assert x.sum_duplicates(remove_zeros=False).data.tolist() == [0, 3]


@pytest.mark.one_is_quick(group=lambda shape, **_: len(shape))
@some_layouts
def test_every_layout_can_be_changed_to_every_other(shape, n_batch, n_dense):
    x = make_bcoo(shape, n_batch, n_dense)
    for other, b, d in LAYOUTS:
        if other == shape:
            y = x.update_layout(n_batch=b, n_dense=d, on_inefficient=None)
            assert (y.n_batch, y.n_dense) == (b, d)
            np.testing.assert_array_equal(y.todense(), x.todense())


def test_a_layout_that_stores_zeros_is_refused():
    x = sparse.BCOO.fromdense(jnp.eye(3))
    with pytest.raises(sparse.SparseEfficiencyError) as error:
        x.update_layout(n_dense=1)
    assert str(error.value) == (
        "bcoo_update_layout: expected a layout that stores no zeros, as n_batch=0, n_dense=0 does, got n_batch=0, "
        "n_dense=1.\n  Fix: pass on_inefficient=None to store the zeros, or keep the layout."
    )
    assert isinstance(error.value, ValueError)
    with pytest.warns(sparse.SparseEfficiencyWarning, match="n_dense=1"):
        x.update_layout(n_dense=1, on_inefficient="warn")


@some_layouts
def test_extract_reads_a_dense_array_at_the_indices(shape, n_batch, n_dense):
    x, y = make_bcoo(shape, n_batch, n_dense), make_dense(shape, 1)
    pattern = np.asarray(x.with_data(jnp.ones_like(x.data)).todense()) != 0
    np.testing.assert_array_equal(sparse.bcoo_extract(x, y).todense(), np.where(pattern, y, 0))


OPERATIONS = {
    "transpose": (lambda x: x.T, lambda x: x.T),
    "broadcast": (
        lambda x: sparse.bcoo_broadcast_in_dim(x, shape=(2, 3, 5, 4), broadcast_dimensions=(1, 3)),
        lambda x: np.broadcast_to(x[:, None], (2, 3, 5, 4)),
    ),
    "concatenate 0": (
        lambda x: sparse.bcoo_concatenate([x, 2 * x], dimension=0),
        lambda x: np.concatenate([x, 2 * x], 0),
    ),
    "concatenate 1": (
        lambda x: sparse.bcoo_concatenate([x, 2 * x], dimension=1),
        lambda x: np.concatenate([x, 2 * x], 1),
    ),
    "rev": (lambda x: sparse.bcoo_rev(x, (0, 1)), lambda x: x[::-1, ::-1]),
    "row": (lambda x: x[1], lambda x: x[1]),
    "slice": (lambda x: x[1:, ::2], lambda x: x[1:, ::2]),
    "reversed slice": (lambda x: x[:, ::-1], lambda x: x[:, ::-1]),
    "new dimensions": (lambda x: x[None, :, None], lambda x: x[None, :, None]),
    "gather": (lambda x: x[np.array([2, 0])], lambda x: x[[2, 0]]),
    "mask": (lambda x: x[:, np.array([True, False, True, False])], lambda x: x[:, [0, 2]]),
    "pairs": (lambda x: x[np.array([[1], [2]]), 1:], lambda x: x[np.array([[1], [2]]), 1:]),
    "dynamic slice": (lambda x: sparse.bcoo_dynamic_slice(x, (1, 7), (2, 2)), lambda x: x[1:, 2:]),
    "squeeze": (lambda x: sparse.bcoo_squeeze(x[:1], dimensions=(0,)), lambda x: x[0]),
    "sum 0": (lambda x: x.sum(0), lambda x: x.sum(0)),
    "sum 1": (lambda x: x.sum(1), lambda x: x.sum(1)),
    "sum": (lambda x: x.sum(), lambda x: x.sum()),
}


@pytest.mark.one_is_quick(group=lambda name, **_: name)
@pytest.mark.parametrize("n_batch", [0, 1, 2])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_on_shapes_equal_those_of_numpy(name, n_batch):
    ours, numpy = OPERATIONS[name]
    if (name, n_batch) in {("transpose", 1), ("broadcast", 1)}:
        pytest.skip("mixes batch and sparse dimensions")
    x = make_bcoo((3, 4), n_batch)
    dense = np.asarray(x.todense())
    np.testing.assert_array_equal(sparse.todense(ours(x)), numpy(dense))
    np.testing.assert_array_equal(sparse.todense(phalanx.jit(ours)(x)), numpy(dense))


@pytest.mark.parametrize(
    "shape, n_batch, n_dense, new",
    [((4, 3), 0, 0, (2, 6)), ((6,), 0, 0, (1, 3, 2)), ((4, 6), 1, 0, (2, 2, 3, 2)), ((2, 6), 0, 1, (2, 3, 2))],
)
def test_reshape_renumbers_indices(shape, n_batch, n_dense, new):
    x = make_bcoo(shape, n_batch, n_dense)
    np.testing.assert_array_equal(x.reshape(new).todense(), x.todense().reshape(new))


def test_reshape_across_kinds_of_dimensions_is_refused():
    with pytest.raises(ArgumentError, match="cannot mix batch and sparse dimensions"):
        make_bcoo((4, 3), 1).reshape(6, 2)


def test_transposing_across_kinds_of_dimensions_is_refused():
    with pytest.raises(ArgumentError) as error:
        make_bcoo((3, 4), 1).T
    assert str(error.value) == (
        "bcoo_transpose, argument permutation: expected a permutation of the dimensions within the batch [0], sparse "
        "[1] and dense [] ones, got [1, 0].\n"
        "  Fix: change the layout first, with mat.update_layout(n_batch=0, n_dense=0)."
    )


def test_buffers_that_do_not_fit_the_shape_are_refused():
    with pytest.raises(ShapeError) as error:
        sparse.BCOO((jnp.ones(3), jnp.zeros((2, 1), int)), shape=(4,))
    assert str(error.value) == (
        "BCOO, the pair (data, indices) of an array of shape [4]: expected shapes [*batch, nse, *dense] and [*batch, "
        "nse, n_sparse], got [3] and [2, 1].\n"
        "  Fix: make both buffers agree with the shape; only batch dimensions may have size 1 instead."
    )


def test_a_traced_array_needs_nse():
    with pytest.raises(ConcretizationTypeError) as error:
        phalanx.jit(lambda x: sparse.BCOO.fromdense(x).todense())(jnp.eye(2))
    assert str(error.value) == (
        "sparse conversion, argument nse: expected a number, since the number of stored elements is unknown while a "
        "function is traced, got None.\n"
        "  Fix: pass nse=, the largest number of elements that are to be stored."
    )


def test_representations_equal_those_of_jax():
    peer = pytest.importorskip("jax.experimental.sparse")
    x = make_dense((3, 4))
    for options in ({}, {"n_batch": 1}, {"n_dense": 1}, {"n_batch": 1, "n_dense": 1}, {"nse": 20}):
        ours, theirs = sparse.BCOO.fromdense(x, **options), peer.BCOO.fromdense(x, **options)
        assert repr(ours) == repr(theirs)
        np.testing.assert_array_equal(ours.data, theirs.data)
        np.testing.assert_array_equal(ours.indices, theirs.indices)
    ours.indices = jnp.array([])
    assert repr(ours) == "BCOO(<invalid>)"


def test_indices_too_many_to_number_are_refused_by_reshape():
    x = sparse.empty((2**20, 2**20), nse=1)
    with pytest.raises(ArgumentError, match="fewer than 2147483648 elements"):
        x.reshape(2**10, 2**30)


def test_random_arrays_for_tests():
    rng = np.random.RandomState(0)
    x = rand_bcoo(rng, n_batch=1, n_dense=1)((2, 3, 4, 5), "float32")
    assert (x.shape, x.nse, x.n_batch, x.n_dense) == ((2, 3, 4, 5), 6, 1, 1)
    y = rand_bcsr(rng, nse=7)((4, 5), "complex64")
    assert (y.shape, y.nse, y.dtype, y.todense().shape) == ((4, 5), 7, np.complex64, (4, 5))
    np.testing.assert_allclose(y.todense().sum(), y.data.sum(), rtol=1e-5)
    with pytest.raises(ArgumentError, match="rand_bcsr, argument shape: expected a shape of rank 2, with two sparse"):
        rand_bcsr(rng)((4,), "float32")
