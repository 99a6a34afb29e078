"""Partition counts: what `sharded_jit` splits, inside `pmap` too, and its errors."""

import numpy as np
import pytest
from phalanx.interpreters.sharded_jit import PartitionSpec as P, sharded_jit, with_sharding_constraint
from tests.error_texts import without_positions

import phalanx
from phalanx import lax
from phalanx.core.error_classes import ArgumentError, ArgumentTypeError, ShardingError

X = np.arange(48, dtype=np.float32).reshape(8, 6)


def shapes(x):
    return {s.data.shape for s in x.addressable_shards}


@pytest.mark.parametrize("parts", [P(8, 1), P(4, 2), P(2, 1), P(1, 6), P(2, 3), P(1, 1)])
def test_arguments_and_results_are_sharded_by_counts(parts):
    f = sharded_jit(lambda x, y: (x + y, x.sum()), in_parts=(parts, None), out_parts=(parts, None))
    y, total = f(X, 1.0)
    np.testing.assert_allclose(y, X + 1)
    assert total == X.sum()
    assert shapes(y) == {(8 // parts[0], 6 // parts[1])}
    assert len(y.sharding.device_set) == parts[0] * parts[1]
    assert total.is_fully_replicated


def test_one_function_may_split_arrays_along_different_dimensions():
    f = sharded_jit(
        lambda x, y: with_sharding_constraint(x @ y, P(2, 4)), in_parts=(P(8, 1), P(2, 4)), out_parts=P(4, 2)
    )
    y = np.ones((6, 8), np.float32)
    np.testing.assert_allclose(f(X, y), X @ y)
    assert shapes(f(X, y)) == {(2, 4)}


def test_a_sharded_jit_inside_pmap_uses_separate_devices_for_each_row():
    inner = sharded_jit(lambda x: with_sharding_constraint(x * 2, P(1, 2)) + lax.psum(x, "i"), P(2, 1), P(2, 1))
    x = np.stack([X[:4], X[4:]])
    y = phalanx.pmap(inner, "i")(x)
    np.testing.assert_allclose(y, 2 * x + x.sum(0))
    assert len(y.sharding.device_set) == 4
    assert shapes(y) == {(1, 2, 6)}


def test_it_is_differentiable_and_has_stages():
    f = sharded_jit(lambda x: (x**2).sum(), P(4, 2), None)
    np.testing.assert_allclose(phalanx.grad(f)(X), 2 * X)
    assert f.lower(X).compile().input_shardings[0][0].shard_shape((8, 6)) == (2, 3)


def test_counts_with_different_products_are_an_error():
    with pytest.raises(ShardingError) as e:
        sharded_jit(lambda x, y: x, in_parts=(P(2, 2), P(4, 2)), out_parts=None)
    assert without_positions(e.value) == (
        "sharded_jit of <lambda>, in_parts: expected 4 shards in total, as in in_parts, got 8 in P(4, 2).\n"
        "  Fix: choose numbers of shards with the product 4, or None to replicate the array."
    )
    with pytest.raises(
        ShardingError, match="with_sharding_constraint: expected 4 shards in total, as in sharded_jit, got 2"
    ):
        sharded_jit(lambda x: with_sharding_constraint(x, P(2, 1)), P(2, 2), None)(X)
    with pytest.raises(ShardingError, match="expected 2 shards in total, as in num_partitions"):
        sharded_jit(lambda x: x, P(2, 2), None, num_partitions=2)


def test_too_many_shards_and_constraints_outside_are_errors():
    with pytest.raises(ArgumentError, match="at most 8 partitions, one for each device, got 16"):
        sharded_jit(lambda x: x, P(8, 2), None)(X)
    with pytest.raises(ArgumentError, match="a call inside a function compiled by sharded_jit"):
        with_sharding_constraint(X, P(2, 1))


def test_caches_can_be_cleared_after_an_error():
    with pytest.raises(ShardingError):
        sharded_jit(lambda x: x, (P(2, 2), P(4, 2)), None)
    phalanx.clear_caches()


def test_dimensions_need_not_be_multiples_of_the_number_of_shards():
    y = sharded_jit(lambda x: x["a"][:5], in_parts=({"a": P(4, 1)},), out_parts=P(4, 1))({"a": X[:6]})
    np.testing.assert_array_equal(y, X[:5])
    assert [shard.data.shape[0] for shard in y.addressable_shards] == [2, 2, 1, 0]


def test_counts_that_do_not_fit_an_array_are_errors_that_show_them():
    for wrong in (P("x", 1), P(0, 1), P(2.5)):
        with pytest.raises(ArgumentTypeError) as error:
            sharded_jit(lambda x: x, wrong, None)
        assert without_positions(error.value) == (
            f"sharded_jit of <lambda>, in_parts: expected a PartitionSpec of numbers of shards, or None, got {wrong}.\n"
            "  Fix: write PartitionSpec(2, 1), for example, to split dimension 0 of a matrix into two shards."
        )
    long = (
        ": expected a spec of at most 2 entries for an array of shape (8, 6), got P(2, 1, 1).\n"
        "  Fix: drop the last entry, or give the array 3 dimensions."
    )
    constrained = lambda x: with_sharding_constraint(x, P(2, 1, 1))
    for f, where in (
        (sharded_jit(lambda x: x, P(2, 1, 1), None), "sharded_jit of <lambda>, in_parts[0]"),
        (sharded_jit(lambda x: x, None, P(2, 1, 1)), "sharded_jit of <lambda>, out_parts"),
        (sharded_jit(constrained, P(2), None), "with_sharding_constraint"),
    ):
        with pytest.raises(ShardingError) as error:
            f(X)
        assert without_positions(error.value) == where + long
    constrained = sharded_jit(lambda x: with_sharding_constraint(x + 1, P(1, 4)), P(4), None)
    np.testing.assert_array_equal(constrained(X), X + 1)
