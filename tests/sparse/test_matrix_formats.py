"""The formats BCSR, COO, CSR and CSC, the constructors, and conversions between formats."""

import numpy as np
import pytest
from phalanx.experimental import sparse
from tests.sparse_arrays import make_dense

import phalanx
import phalanx.numpy as jnp
from phalanx import random
from phalanx.core.error_classes import ArgumentError, ShapeError

FORMATS = [sparse.BCOO, sparse.BCSR, sparse.COO, sparse.CSR, sparse.CSC]
formats = pytest.mark.parametrize("cls", FORMATS, ids=lambda cls: cls.__name__)
DENSE = make_dense((3, 4))


@formats
def test_a_format_has_the_attributes_of_an_array(cls):
    x = cls.fromdense(DENSE)
    assert isinstance(x, sparse.JAXSparse)
    assert (x.shape, x.ndim, x.size, len(x), x.nse, x.dtype) == ((3, 4), 2, 12, 3, (DENSE != 0).sum(), np.float32)
    assert repr(x) == f"{cls.__name__}(float32[3, 4], nse={x.nse})"
    np.testing.assert_array_equal(x.todense(), DENSE)
    np.testing.assert_array_equal(x.T.todense(), DENSE.T)
    leaves, tree = phalanx.tree.flatten(x)
    np.testing.assert_array_equal(phalanx.tree.unflatten(tree, leaves).todense(), DENSE)
    assert x.block_until_ready() is x


@formats
def test_a_format_can_be_multiplied(cls):
    x = cls.fromdense(DENSE)
    v, b = np.arange(4.0, dtype=np.float32), make_dense((4, 2), 1)
    np.testing.assert_allclose(phalanx.jit(lambda x, v: x @ v)(x, v), DENSE @ v)
    np.testing.assert_allclose(x @ b, DENSE @ b)
    np.testing.assert_allclose(v[:3] @ x, v[:3] @ DENSE)
    np.testing.assert_allclose(sparse.todense(2 * x), 2 * DENSE)
    grad = phalanx.grad(lambda data: ((type(x)((data, *phalanx.tree.leaves(x)[1:]), shape=x.shape)) @ v).sum())(x.data)
    assert grad.shape == x.data.shape


@formats
@pytest.mark.parametrize("k", [-2, 0, 1, 9])
def test_eye(cls, k):
    x = sparse.eye(3, 4, k, sparse_format=cls.__name__.lower())
    assert isinstance(x, cls) and x.nse == np.eye(3, 4, k).sum()
    np.testing.assert_array_equal(x.todense(), np.eye(3, 4, k))


@formats
def test_empty(cls):
    x = sparse.empty((3, 4), sparse_format=cls.__name__.lower())
    assert isinstance(x, cls) and x.nse == 0
    np.testing.assert_array_equal(x.todense(), np.zeros((3, 4)))


def test_unknown_formats_are_refused():
    with pytest.raises(ArgumentError) as error:
        sparse.empty((2, 2), sparse_format="dok")
    assert str(error.value) == (
        "sparse.empty, argument sparse_format: expected 'bcoo' or 'bcsr' or 'coo' or 'csr' or 'csc', got 'dok'.\n"
        "  Fix: pass sparse_format='bcoo'."
    )


def test_products_of_matrices_with_vectors_and_their_transposes():
    v, w, b = np.arange(4.0), np.arange(3.0), make_dense((3, 2), 1)
    for cls, matvec, matmat in (
        (sparse.COO, sparse.coo_matvec, sparse.coo_matmat),
        (sparse.CSR, sparse.csr_matvec, sparse.csr_matmat),
    ):
        x = cls.fromdense(DENSE)
        np.testing.assert_allclose(matvec(x, v), DENSE @ v)
        np.testing.assert_allclose(matvec(x, w, transpose=True), w @ DENSE)
        np.testing.assert_allclose(matmat(x, b, transpose=True), DENSE.T @ b)
    with pytest.raises(ShapeError) as error:
        sparse.csr_matvec(x, w)
    assert str(error.value) == (
        "csr_matvec, the dense operand: expected rank 1 and the first size 4, got the shape [3].\n"
        "  Fix: pass transpose=True, or another operand."
    )


@pytest.mark.parametrize("shape, n_batch", [((3, 4), 0), ((2, 3, 4), 1), ((3, 4, 2), 0)])
def test_compressed_rows_survive_the_round_trip(shape, n_batch):
    x = make_dense(shape)
    y = sparse.BCSR.fromdense(x, n_batch=n_batch, n_dense=len(shape) - 2 - n_batch)
    assert (y.shape, y.n_batch) == (shape, n_batch)
    np.testing.assert_array_equal(y.todense(), x)
    np.testing.assert_array_equal(sparse.BCSR.from_bcoo(y.to_bcoo()).indptr, y.indptr)
    np.testing.assert_array_equal(sparse.bcsr_extract(y.indices, y.indptr, x), y.data)
    np.testing.assert_array_equal(
        sparse.bcsr_concatenate([y, y], dimension=n_batch).todense(), np.concatenate([x, x], n_batch)
    )


def test_elements_after_the_last_row_are_padding():
    x = sparse.BCSR(([1.0, 2.0, 3.0, 4.0], [0, 1, 2, 3], [0, 1, 3, 3]), shape=(3, 4))
    np.testing.assert_array_equal(x @ jnp.ones(4), [1, 5, 0])
    assert x.sum_duplicates().nse == 3


def test_vmap_maps_over_batches_of_compressed_rows():
    x = make_dense((2, 3, 4))
    y = sparse.BCSR.fromdense(x, n_batch=1)
    np.testing.assert_allclose(phalanx.vmap(lambda m: m @ jnp.ones(4))(y), x.sum(-1))


def test_matrices_of_scipy_are_converted():
    scipy_sparse = pytest.importorskip("scipy.sparse")
    for cls in (sparse.BCOO, sparse.BCSR):
        for kind in (scipy_sparse.coo_matrix, scipy_sparse.csr_matrix, scipy_sparse.csc_matrix):
            np.testing.assert_array_equal(cls.from_scipy_sparse(kind(DENSE)).todense(), DENSE)
    assert sparse.BCOO.from_scipy_sparse(scipy_sparse.coo_matrix(DENSE), n_batch=1).n_batch == 1


def test_random_arrays_have_the_requested_layout():
    x = sparse.random_bcoo(random.key(0), (3, 10, 10, 2), nse=0.1, n_batch=1, n_dense=1, sorted_indices=True)
    assert (x.shape, x.nse, x.n_batch, x.n_dense, x.unique_indices) == ((3, 10, 10, 2), 10, 1, 1, True)
    assert all(len({tuple(i) for i in rows}) == 10 for rows in np.asarray(x.indices).tolist())
    with pytest.raises(ArgumentError, match="from 0 to 4, or a fraction"):
        sparse.random_bcoo(random.key(0), (2, 2), nse=5)


def test_buffers_of_compressed_rows_that_do_not_fit_are_refused():
    with pytest.raises(ShapeError) as error:
        sparse.BCSR((jnp.ones(2), jnp.zeros(2, int), jnp.zeros(3, int)), shape=(3, 4))
    assert str(error.value) == (
        "BCSR, the triple (data, indices, indptr) of an array of shape [3, 4]: expected shapes [*batch, nse, *dense], "
        "[*batch, nse] and [*batch, rows + 1], got [2], [2] and [3].\n"
        "  Fix: make the buffers agree with the shape; only batch dimensions may have size 1 instead."
    )
