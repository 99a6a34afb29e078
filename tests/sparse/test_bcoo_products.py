"""Contractions, elementwise products and convolutions of sparse arrays equal those of dense ones."""

import numpy as np
import pytest
from phalanx.experimental import sparse
from tests.sparse_arrays import make_bcoo, make_dense

import phalanx
from phalanx import lax
from phalanx.core.error_classes import ArgumentError, RuleError

# The layout and shape of lhs, the shape of rhs, and the dimension numbers.
CONTRACTIONS = [
    ((5,), 0, 0, (5,), (([0], [0]), ([], []))),
    ((4, 5), 0, 0, (5, 3), (([1], [0]), ([], []))),
    ((4, 5), 0, 0, (3, 4), (([0], [1]), ([], []))),
    ((4, 5), 0, 0, (5, 4), (([0, 1], [1, 0]), ([], []))),
    ((4, 5), 0, 0, (3,), (([], []), ([], []))),
    ((3, 4, 5), 1, 0, (3, 5, 2), (([2], [1]), ([0], [0]))),
    ((3, 4, 5), 1, 0, (5, 2), (([2], [0]), ([], []))),
    ((3, 4, 5), 1, 0, (2, 3), (([0], [1]), ([], []))),
    ((3, 4, 5), 2, 0, (4, 3, 2), (([], []), ([1, 0], [0, 1]))),
    ((3, 4, 5), 0, 0, (5, 3), (([2], [0]), ([0], [1]))),
    ((3, 4, 5), 0, 1, (4, 2), (([1], [0]), ([], []))),
    ((3, 4, 5), 1, 1, (5, 3, 2), (([2], [0]), ([0], [1]))),
    ((3, 4, 5), 0, 2, (4, 5, 2), (([1, 2], [0, 1]), ([], []))),
]


@pytest.mark.one_is_quick(group=lambda other, **_: len(other))
@pytest.mark.parametrize("shape, n_batch, n_dense, other, numbers", CONTRACTIONS)
def test_contraction_with_a_dense_array(shape, n_batch, n_dense, other, numbers):
    x, y = make_bcoo(shape, n_batch, n_dense), make_dense(other, 1)
    dot = lambda x, y: sparse.bcoo_dot_general(x, y, dimension_numbers=numbers)
    wanted = lax.dot_general(x.todense(), y, numbers)
    np.testing.assert_allclose(dot(x, y), wanted)
    swapped = tuple(pair[::-1] for pair in numbers)
    found = sparse.bcoo_dot_general(y, x, dimension_numbers=swapped)
    np.testing.assert_allclose(found, lax.dot_general(y, x.todense(), swapped))
    # The derivative by the stored elements, and by the dense array.
    of_data = lambda d, y: (dot(x.with_data(d), y) ** 2).sum()
    of_dense = lambda d, y: (lax.dot_general(x.with_data(d).todense(), y, numbers) ** 2).sum()
    for a, b in zip(phalanx.grad(of_data, (0, 1))(x.data, y), phalanx.grad(of_dense, (0, 1))(x.data, y), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


SPARSE_CONTRACTIONS = [
    ((5,), 0, (5,), 0, (([0], [0]), ([], []))),
    ((3, 5), 0, (2, 4), 0, (([], []), ([], []))),
    ((5, 7), 0, (7, 3), 0, (([1], [0]), ([], []))),
    ((2, 3, 4), 1, (2, 4, 3), 1, (([2], [1]), ([0], [0]))),
    ((2, 3, 4), 2, (3, 4), 1, (([2], [1]), ([1], [0]))),
    ((2, 3, 4), 2, (3, 4), 1, (([2], [1]), ([], []))),
    ((3, 2, 4), 1, (4,), 0, (([2], [0]), ([], []))),
]


@pytest.mark.parametrize("shape, n_batch, other, other_batch, numbers", SPARSE_CONTRACTIONS)
def test_contraction_of_two_sparse_arrays(shape, n_batch, other, other_batch, numbers):
    x, y = make_bcoo(shape, n_batch), make_bcoo(other, other_batch, seed=1)
    z = sparse.bcoo_dot_general(x, y, dimension_numbers=numbers)
    np.testing.assert_allclose(z.todense(), lax.dot_general(x.todense(), y.todense(), numbers))
    compiled = phalanx.jit(lambda x, y: sparse.bcoo_dot_general(x, y, dimension_numbers=numbers))(x, y)
    np.testing.assert_allclose(compiled.todense(), z.todense())


def test_a_sparse_product_whose_batch_would_not_be_in_front_is_refused():
    x, y = make_bcoo((3, 4)), make_bcoo((2, 4), 1)
    with pytest.raises(ArgumentError) as error:
        sparse.bcoo_dot_general(x, y, dimension_numbers=(([1], [1]), ([], [])))
    assert str(error.value) == (
        "bcoo_dot_general of two sparse arrays: expected batch dimensions of the result before its sparse dimensions, "
        "got a product that cannot have unused batch dims on rhs with unused sparse dims on lhs.\n"
        "  Fix: change the layout with rhs.update_layout(n_batch=0)."
    )
    with pytest.raises(RuleError, match=r"change the layout with lhs.update_layout\(n_batch=0\)"):
        sparse.bcoo_dot_general(make_bcoo((3, 4), 2), x, dimension_numbers=(([1], [1]), ([], [])))


@pytest.mark.parametrize("layout", [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize(
    "shape, other, numbers",
    [
        ((4, 3), (3, 5), (([1], [0]), ([], []))),
        ((2, 4, 3), (2, 3, 5), (([2], [1]), ([0], [0]))),
        ((4,), (5,), (([], []), ([], []))),
    ],
)
def test_a_sampled_contraction_computes_elements_of_the_whole_one(shape, other, numbers, layout):
    a, b = make_dense(shape), make_dense(other, 1)
    whole = lax.dot_general(a, b, numbers)
    mask = make_bcoo(whole.shape, *layout)
    found = sparse.bcoo_dot_general_sampled(a, b, mask.indices, dimension_numbers=numbers)
    wanted = sparse.bcoo_extract(mask, whole, assume_unique=True).data
    np.testing.assert_allclose(found, wanted)


@pytest.mark.parametrize("n_batch, n_dense", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("other", [(), (4,), (3, 1), (3, 4)])
def test_products_with_dense_arrays(other, n_batch, n_dense):
    x, y = make_bcoo((3, 4), n_batch, n_dense), make_dense(other, 1) + 1
    np.testing.assert_allclose((x * y).todense(), x.todense() * y)
    np.testing.assert_allclose((y * x).todense(), x.todense() * y)
    np.testing.assert_allclose((x / y).todense(), x.todense() / y, rtol=1e-6)


@pytest.mark.one_is_quick(group=lambda n_batch, **_: n_batch)
@pytest.mark.parametrize("other", [(3, 4), (1, 4), (3, 1), (1, 1)])
@pytest.mark.parametrize("n_batch", [(0, 0), (1, 0), (1, 1), (2, 1)])
def test_products_of_sparse_arrays(other, n_batch):
    x, y = make_bcoo((3, 4), n_batch[0]), make_bcoo(other, n_batch[1], seed=1)
    for a, b in ((x, y), (y, x)):
        np.testing.assert_allclose(sparse.bcoo_multiply_sparse(a, b).todense(), a.todense() * b.todense())


def test_both_operands_of_a_sparse_product_may_be_broadcast():
    x, y = make_bcoo((3, 1)), make_bcoo((1, 4), seed=1)
    np.testing.assert_allclose(sparse.bcoo_multiply_sparse(x, y).todense(), x.todense() * y.todense())


CONVOLUTIONS = [
    ((1, 1, 7), (1, 1, 3), {"window_strides": (1,), "padding": "SAME"}),
    ((2, 3, 7), (4, 3, 3), {"window_strides": (2,), "padding": [(1, 2)], "rhs_dilation": (2,)}),
    ((1, 2, 4, 5), (3, 2, 2, 2), {"window_strides": (1, 2), "padding": "VALID", "lhs_dilation": (2, 1)}),
    (
        (1, 4, 5, 2),
        (2, 2, 2, 3),
        {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": ("NHWC", "HWIO", "NHWC")},
    ),
]


@pytest.mark.parametrize("shape, kernel, options", CONVOLUTIONS)
def test_convolutions_equal_dense_ones(shape, kernel, options):
    x, w = make_dense(shape), make_dense(kernel, 1)
    wanted = lax.conv_general_dilated(x, w, **options)
    xs, ws = map(sparse.BCOO.fromdense, (x, w))
    for a, b in ((xs, w), (x, ws), (xs, ws)):
        np.testing.assert_allclose(sparse.bcoo_conv_general_dilated(a, b, **options).todense(), wanted, rtol=1e-5)


def test_padding_does_not_count():
    x = sparse.BCOO(([1.0, 2.0, 100.0], [[0], [2], [3]]), shape=(3,))
    dense = x.todense()
    assert dense.tolist() == [1.0, 0.0, 2.0]
    assert x.sum() == 3 and float(x @ dense) == 5 and float((x @ x).todense()) == 5
    assert (x * x).todense().tolist() == [1.0, 0.0, 4.0]
    assert sparse.bcoo_concatenate([x, x], dimension=0).todense().tolist() == [1.0, 0.0, 2.0, 1.0, 0.0, 2.0]
    assert x[::-1].todense().tolist() == [2.0, 0.0, 1.0]
