"""Functions of dense arrays as functions of sparse ones, and the operators made from them."""

import operator

import numpy as np
import pytest
from phalanx.experimental import sparse
from phalanx.experimental.sparse import transform
from tests.sparse_arrays import make_bcoo

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.core.error_classes import ArgumentError, RuleError
from phalanx.sparse import BCOO, BCSR

X = make_bcoo((4, 5))
DENSE = np.asarray(X.todense())

FUNCTIONS = {
    "matmul": lambda x: -jnp.sin(jnp.pi * x).T @ jnp.arange(4.0),
    "powers": lambda x: x**2 + x**3,
    "sum": lambda x: (x + x - 2 * x.astype(int)).sum(1),
    "stack": lambda x: jnp.stack([x[0], x[1]]),
    "jit": lambda x: phalanx.jit(lambda x: (2 * x, 3 * x))(x)[1],
    "while": lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, 2 * c[1]), (0, x))[1],
    "fori": lambda x: lax.fori_loop(0, 2, lambda i, v: x.T @ (x @ v), jnp.ones(5)),
    "cond": lambda x: lax.cond(sparse.todense(x[0, 0]) > 100, lambda x: x, lambda x: 2 * x, x),
    "scan": lambda x: lax.scan(lambda c, i: (2 * c, x @ i), x, jnp.ones((2, 5)))[0],
    "custom_jvp": lambda x: _square(x),
    "grad": lambda x: phalanx.grad(lambda x: (x**2).sum())(x),
    "vmap": lambda x: phalanx.vmap(lambda r: 2 * r)(x),
    "concatenate": lambda x: jnp.concatenate([x, x], 1)[:, 2:7],
    "expm1": lambda x: jnp.expm1(x / 10),
}


@phalanx.custom_jvp
def _square(x):
    return x**2


@_square.defjvp
def _square_jvp(primals, tangents):
    return primals[0] ** 2, 3 * primals[0] * tangents[0]  # unlike the derivative of the function


@pytest.mark.parametrize("name", FUNCTIONS)
def test_sparse_and_dense_results_agree(name):
    f = FUNCTIONS[name]
    wanted = f(DENSE)
    for g in (sparse.sparsify(f), phalanx.jit(sparse.sparsify(f)), sparse.sparsify(f, use_tracer=True)):
        np.testing.assert_allclose(sparse.todense(g(X)), wanted, rtol=1e-5, atol=1e-5)


def test_a_scan_may_slice_sparse_inputs():
    x = make_bcoo((3, 4, 4), 1)
    f = sparse.sparsify(lambda x: lax.scan(lambda c, m: (m @ c, c), jnp.ones(4), x)[0])
    np.testing.assert_allclose(f(x), f(x.todense()))


def test_linear_operations_keep_recurring_indices():
    assert sparse.sparsify(jnp.negative)(X).indices is X.indices
    assert sparse.sparsify(jnp.sin)(X).unique_indices
    same = sparse.sparsify(lambda x: x + 2 * x)(X)
    assert same.indices is X.indices


def test_custom_rules_apply_to_sparse_arrays():
    value, grad = sparse.value_and_grad(lambda x: sparse.sparsify(lambda x: _square(x).sum())(x))(
        sparse.BCOO.fromdense(jnp.arange(4.0))
    )
    assert float(value) == 14 and grad.data.tolist() == [3.0, 6.0, 9.0]


def test_the_compiled_function_of_a_jit_inside_is_kept():
    traces = []

    @phalanx.jit
    def double(x):
        traces.append(None)
        return 2 * x

    f = sparse.sparsify(double)
    x = sparse.BCOO.fromdense(jnp.arange(3))
    for _ in range(3):
        np.testing.assert_array_equal(f(x).todense(), [0, 2, 4])
    assert len(traces) == 1


def test_todense_inside_makes_dense_values():
    f = sparse.sparsify(lambda x: sparse.todense(x) + 1)
    for x in (X, sparse.BCSR.fromdense(DENSE), DENSE):
        np.testing.assert_array_equal(f(x), DENSE + 1)
        np.testing.assert_array_equal(phalanx.jit(f)(x), DENSE + 1)


def test_dense_arguments_are_tracers_on_request():
    seen = []
    for use_tracer in (False, True):
        sparse.sparsify(lambda x: seen.append(type(x)), use_tracer=use_tracer)(jnp.arange(3))
    assert seen == [phalanx.Array, sparse.SparseTracer]


def test_operations_with_dense_results_are_refused():
    with pytest.raises(RuleError) as error:
        sparse.sparsify(jnp.cos)(X)
    assert str(error.value) == (
        "sparsify, operation cos: expected an operation that keeps zeros at zero, or has a rule for sparse arrays, got "
        "operands BCOO(float32[4, 5], nse=4).\n"
        "  Fix: convert the operand with sparse.todense(x), if a dense result is intended."
    )
    assert isinstance(error.value, NotImplementedError)
    with pytest.raises(RuleError, match="addition between a sparse array X and a dense array Y"):
        X + 1.0
    with pytest.raises(RuleError, match="a dense divisor"):
        1.0 / X
    with pytest.raises(RuleError, match="a positive exponent"):
        X**-1


def test_operators():
    x, y = sparse.BCOO.fromdense(DENSE), np.arange(20.0, dtype=np.float32).reshape(4, 5)
    np.testing.assert_array_equal(x + y, DENSE + y)
    np.testing.assert_array_equal(y - x, y - DENSE)
    np.testing.assert_array_equal((x - X).todense(), 0 * DENSE)
    np.testing.assert_array_equal(y.T @ x, y.T @ DENSE)
    np.testing.assert_array_equal(abs(-x).todense(), DENSE)
    np.testing.assert_array_equal([row.todense() for row in x], DENSE)
    assert len(x) == 4 and (x.astype(int).dtype, x.size, x.ndim) == (np.int32, 20, 2)
    with pytest.raises(TypeError):
        hash(x)


def test_operands_in_the_compressed_format_give_results_in_it():
    x = sparse.BCSR.fromdense(DENSE)
    for f in (lambda x: 2 * x, lambda x: jnp.sin(x), lambda x: x[1:]):
        y = sparse.sparsify(f)(x)
        assert isinstance(y, sparse.BCSR)
        np.testing.assert_allclose(y.todense(), f(DENSE), rtol=1e-6)


def test_references_to_shared_buffers():
    x = BCOO.fromdense(jnp.array([0.0, 1.0, 2.0]))
    env = transform.SparsifyEnv([x.indices, x.data, 3 * x.data])
    operands = [env.sparse(x.shape, data_ref=i, indices_ref=0, unique_indices=True) for i in (1, 2)]
    for operation, wanted in ((operator.mul, [0, 3, 12]), (operator.add, [0, 4, 8]), (operator.sub, [0, -2, -4])):
        (value,), tree = transform.sparsify_raw(operation)(env, *operands)
        result = tree.unflatten(transform.spvalues_to_arrays(env, [value]))
        assert result.todense().tolist() == wanted
    values = transform.arrays_to_spvalues(env, {"dense": x.data, "row": BCSR.fromdense(jnp.eye(2))})
    assert values["dense"].is_dense() and values["row"].is_bcsr() and values["row"].ndim == 2
    assert transform.spvalues_to_arrays(env, values)["row"].todense().tolist() == [[1, 0], [0, 1]]
    with pytest.raises(ArgumentError) as error:
        transform.SparsifyEnv().sparse((3,), data_ref=0, indices_ref=1)
    assert str(error.value) == (
        "SparsifyEnv.sparse, argument data_ref: expected a position among the 0 buffers, got 0.\n"
        "  Fix: pass the buffer itself as data=."
    )
    with pytest.raises(ArgumentError) as error:
        env.indptr(operands[0])
    assert str(error.value) == (
        "SparsifyEnv.indptr: expected a reference to an array that has this buffer, got None.\n"
        "  Fix: call is_sparse or is_bcsr of the reference first."
    )
