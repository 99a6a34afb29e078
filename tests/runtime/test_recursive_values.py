"""Values that contain themselves: pickles and copies keep the cycle, and functions of trees refuse it by name."""

import copy
import pickle
import sys

import cloudpickle
import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import nnx

COPIES = [
    pytest.param(copy.deepcopy, id="deepcopy"),
    pytest.param(lambda x: pickle.loads(cloudpickle.dumps(x)), id="pickle"),
]


class SelfReferring(nnx.Module):
    def __init__(self):
        self.weight = nnx.Param(jnp.arange(2.0))
        self.me = self


def cyclic_list():
    values = [jnp.ones(2)]
    values.append(values)
    return values


def nested(depth):
    values = jnp.ones(2)
    for _ in range(depth):
        values = [values]
    return values


@pytest.mark.parametrize("duplicate", COPIES)
def test_a_list_that_contains_itself_and_an_array(duplicate):
    copied = duplicate(cyclic_list())
    assert copied[1] is copied and copied[0].tolist() == [1, 1]


@pytest.mark.parametrize("duplicate", COPIES)
def test_a_compiled_function_that_refers_to_itself(duplicate):
    @phalanx.jit
    def factorial(n):
        assert factorial is not None
        return phalanx.lax.fori_loop(1, n + 1, lambda i, x: i * x, 1)

    assert factorial(4) == 24
    assert duplicate(factorial)(5) == 120


@pytest.mark.parametrize("duplicate", COPIES)
def test_a_module_that_contains_itself(duplicate):
    model = SelfReferring()
    copied = duplicate(model)
    assert copied.me is copied and copied is not model
    assert copied.weight is not model.weight and np.array_equal(copied.weight[...], [0, 1])
    doubled = nnx.jit(lambda m: m.me.weight[...] * 2)
    assert doubled(copied).tolist() == [0, 2]


@pytest.mark.parametrize("duplicate", [copy.deepcopy, pickle.dumps])
def test_data_nested_too_deeply_are_refused_as_by_python(duplicate):
    deep = nested(100_000)
    with pytest.raises(RecursionError):
        duplicate(deep)
    assert duplicate(jnp.ones(2)) is not None


def test_a_function_that_calls_itself_without_end():
    @phalanx.jit
    def endless(x):
        return endless(x)

    with pytest.raises(RecursionError):
        endless(1.0)
    assert phalanx.jit(lambda x: x + 1)(1.0) == 2


@pytest.mark.parametrize("make", [cyclic_list, lambda: nested(5000)], ids=["cyclic", "deep"])
@pytest.mark.parametrize("convert", [jnp.array, jnp.asarray, jnp.stack, jnp.concatenate])
def test_an_array_of_sequences_without_end_is_refused(make, convert):
    with pytest.raises(phalanx.errors.ConversionError) as caught:
        convert(make())
    assert str(caught.value) == (
        "array, argument object: expected sequences nested at most 64 deep, got deeper ones, or a sequence that contains "
        "itself.\n"
        "  Fix: take the outer sequence out of the inner one."
    )


def test_the_deepest_sequences_that_have_a_rank_of_numpy_are_converted():
    assert jnp.array(nested(60)).ndim == 61
    deepest = 1.0
    for _ in range(60):
        deepest = [deepest]
    assert jnp.array(deepest).ndim == 60


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="jaxlib goes on with an error set, which ends the process")
@pytest.mark.parametrize("make", [cyclic_list, lambda: nested(5000)], ids=["cyclic", "deep"])
@pytest.mark.parametrize(
    "call",
    [
        lambda f, tree: phalanx.jit(f)(tree),
        lambda f, tree: phalanx.jit(f)(tree=tree),
        lambda f, tree: phalanx.jit(f).lower(tree),
        lambda f, tree: phalanx.jit(f).warm(tree),
        lambda f, tree: phalanx.jit(lambda x: tree)(1.0),
        lambda f, tree: phalanx.grad(f)(tree),
        lambda f, tree: phalanx.vmap(f)(tree),
        lambda f, tree: phalanx.pmap(f)(tree),
        lambda f, tree: phalanx.make_jaxpr(f)(tree),
        lambda f, tree: phalanx.eval_shape(f, tree),
        lambda f, tree: phalanx.checkpoint(f)(tree),
        lambda f, tree: phalanx.lax.scan(lambda carry, x: (carry, x), tree, jnp.ones(3)),
        lambda f, tree: phalanx.lax.cond(True, f, f, tree),
        lambda f, tree: phalanx.device_put(tree),
        lambda f, tree: phalanx.device_get(tree),
        lambda f, tree: phalanx.block_until_ready(tree),
        lambda f, tree: phalanx.tree.map(f, tree),
    ],
)
def test_a_tree_without_end_is_refused(call, make):
    with pytest.raises(phalanx.errors.TreeError, match="expected nodes that do not contain themselves"):
        call(lambda tree: tree, make())


def test_a_static_argument_that_contains_itself_is_refused():
    with pytest.raises(phalanx.errors.ConversionError, match="static argument n: expected a hashable value"):
        phalanx.jit(lambda x, n: x, static_argnames="n")(1.0, n=cyclic_list())
