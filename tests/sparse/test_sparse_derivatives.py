"""Derivatives by sparse arrays are sparse, and equal those by dense ones at the stored indices."""

import numpy as np
import pytest
from phalanx.experimental import sparse
from tests.sparse_arrays import make_dense

import phalanx
import phalanx.numpy as jnp

DENSE, Y = make_dense((6, 4)), np.arange(4.0, dtype=np.float32)


@pytest.mark.parametrize("cls", [sparse.BCOO, sparse.BCSR, sparse.CSR], ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("name", ["grad", "jacfwd", "jacrev"])
def test_derivatives_are_stored_at_the_indices_of_the_argument(name, cls):
    x = cls.fromdense(DENSE)
    f = (lambda x, y: ((x @ y) ** 2).sum()) if name == "grad" else (lambda x, y: (x @ y) ** 2)
    found = getattr(sparse, name)(f)(x, Y)
    wanted = getattr(phalanx, name)(f)(DENSE, Y)
    np.testing.assert_allclose(sparse.todense(found), np.where(DENSE != 0, wanted, 0), rtol=1e-6)
    by_both = getattr(sparse, name)(f, argnums=(1, 0))(x, Y)
    np.testing.assert_allclose(by_both[0], getattr(phalanx, name)(f, 1)(DENSE, Y), rtol=1e-6)


def test_arguments_may_be_trees_and_results_have_auxiliary_data():
    x = sparse.BCOO.fromdense(DENSE)
    f = lambda tree, y: ((tree["x"][0] @ y).sum() + tree["b"], {"shape": tree["x"][0].shape})
    (value, aux), grad = sparse.value_and_grad(f, has_aux=True)({"x": [x, None], "b": 2.0}, Y)
    np.testing.assert_allclose(value, (DENSE @ Y).sum() + 2)
    assert aux == {"shape": (6, 4)} and grad["b"] == 1 and grad["x"][1] is None
    np.testing.assert_allclose(grad["x"][0].data, Y[x.indices[:, 1]])
    wanted, aux = sparse.grad(f, has_aux=True)({"x": [x, None], "b": 2.0}, Y)
    np.testing.assert_allclose(wanted["x"][0].data, grad["x"][0].data)


@pytest.mark.slow
def test_stored_elements_have_derivatives_of_both_modes():
    x = sparse.BCOO.fromdense(DENSE, n_batch=1)
    for f in (
        lambda x: x.sum_duplicates(nse=3, remove_zeros=False).todense(),
        lambda x: x.sort_indices().todense(),
        lambda x: (x * x).todense(),
        lambda x: x[1:, ::2].todense(),
        lambda x: x.sum(0).todense(),
    ):
        of_data = lambda data, f=f: f(x.with_data(data))
        forward, reverse = phalanx.jacfwd(of_data)(x.data), phalanx.jacrev(of_data)(x.data)
        np.testing.assert_allclose(forward, reverse)
        assert np.any(forward)


def test_dense_arrays_have_derivatives_through_conversion():
    x = jnp.asarray(DENSE)
    through = lambda x: (sparse.BCOO.fromdense(x, nse=20).todense() ** 2).sum()
    np.testing.assert_allclose(phalanx.grad(through)(x), 2 * DENSE)
