"""Reductions over segments and updates at indices."""

from __future__ import annotations

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx import lax, ops
from phalanx.core.error_classes import ConcretizationTypeError, DTypeError, ShapeError

IDS = np.array([0, 0, 3, 1, -1, 7])
EMPTY = {"sum": 0, "prod": 1, "max": -np.inf, "min": np.inf}


def wanted(name, data, count):
    return np.stack([getattr(np, name)(data[count_is(i)], axis=0, initial=EMPTY[name]) for i in range(count)])


def count_is(i):
    return i == IDS


@pytest.mark.one_is_quick(group=lambda name, **_: name)
@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.parametrize("shape", [(6,), (6, 2)])
@pytest.mark.parametrize("bucket_size", [None, 2, 4])
def test_segments_are_reduced(name, shape, bucket_size):
    data = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 1
    f = getattr(ops, f"segment_{name}")
    np.testing.assert_allclose(f(data, IDS, bucket_size=bucket_size), wanted(name, data, 8))
    g = phalanx.jit(lambda d, i: f(d, i, num_segments=3, bucket_size=bucket_size))
    np.testing.assert_allclose(g(data, IDS), wanted(name, data, 3))
    both = phalanx.vmap(lambda d: f(d, IDS, num_segments=3))(np.stack([data, -data]))
    np.testing.assert_allclose(both[1], wanted(name, -data, 3))


def test_segment_reductions_equal_jax():
    jax = pytest.importorskip("jax")
    for data in (np.arange(6), np.arange(6.0, dtype=np.float32), np.arange(6) > 2):
        for name in EMPTY:
            for options in ({}, {"num_segments": 3}, {"num_segments": 5, "mode": "clip"}):
                if data.dtype == bool and name in ("sum", "prod"):
                    continue
                ours, theirs = (getattr(m, f"segment_{name}")(data, IDS, **options) for m in (ops, jax.ops))
                np.testing.assert_array_equal(ours, np.asarray(theirs), f"{data.dtype} {name} {options}")


@pytest.mark.parametrize("mode", [None, "drop", lax.GatherScatterMode.FILL_OR_DROP, lax.GatherScatterMode.CLIP])
def test_negative_ids_are_out_of_bounds(mode):
    """They counted from the end where `mode` was given, and were 44 in eight bits where there were 300 segments."""
    ids = np.array([-1, 2, 100], np.int8)
    for count in (3, 300):
        out = np.asarray(ops.segment_sum(np.ones(3, np.float32), ids, count, mode=mode))
        clipped = mode is lax.GatherScatterMode.CLIP
        assert out.nonzero()[0].tolist() == [0] * clipped + [2] + [100] * (count > 100)


def test_segment_ids_may_have_several_dimensions():
    ids = np.array([[0, 1], [1, 0]])
    np.testing.assert_array_equal(ops.segment_sum(np.ones((2, 2, 3)), ids), np.full((2, 3), 2.0))


def test_data_are_broadcast_to_the_segment_ids():
    ids = np.array([0, 2, 2])
    assert ops.segment_max(3.0, ids, 4).tolist() == [3.0, -np.inf, 3.0, -np.inf]
    assert ops.segment_sum(np.ones((1, 2)), ids).tolist() == [[1, 1], [0, 0], [2, 2]]
    assert ops.segment_prod(np.full((2, 1), 3.0), np.array([[0, 1, 1], [1, 0, 2]])).tolist() == [9, 27, 3]


def test_the_derivative_of_a_sum_is_a_gather():
    weights = jnp.arange(1.0, 4.0)
    grad = phalanx.grad(lambda d: ops.segment_sum(d, IDS, num_segments=3) @ weights)(np.ones(6, np.float32))
    np.testing.assert_array_equal(grad, [1, 1, 0, 2, 0, 0])


def test_invalid_arguments_raise():
    with pytest.raises(ShapeError) as error:
        ops.segment_sum(np.ones((6, 2), np.float32), np.zeros(5, np.int32))
    assert str(error.value) == (
        "segment_sum, segment_ids: expected a number for each element along the leading dimensions of f32[6,2], got "
        "i32[5].\n"
        "  Fix: give one segment id for each row of data."
    )
    with pytest.raises(DTypeError, match=r"segment_max, segment_ids: expected integers, got f32\[6\]"):
        ops.segment_max(np.ones(6, np.float32), np.zeros(6, np.float32))
    with pytest.raises(ConcretizationTypeError) as error:
        phalanx.jit(ops.segment_sum)(np.ones(6, np.float32), np.zeros(6, np.int32))
    assert str(error.value) == (
        "segment_sum, num_segments: expected a number, since the shape of the result depends on it, got None, with traced "
        "segment_ids, i32[6].\n"
        "  Fix: pass num_segments, the number of segments, as a Python int."
    )


def test_updates_at_indices():
    x = jnp.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(ops.index_update(x, ops.index[0, 1:], 9.0), [[0, 9, 9], [3, 4, 5]])
    np.testing.assert_array_equal(ops.index_add(x, ops.index[:, 0], 1.0), [[1, 1, 2], [4, 4, 5]])
    np.testing.assert_array_equal(ops.index_mul(x, 1, 2.0), [[0, 1, 2], [6, 8, 10]])
    np.testing.assert_array_equal(ops.index_min(x, ops.index[1], 3.5), [[0, 1, 2], [3, 3.5, 3.5]])
    np.testing.assert_array_equal(ops.index_max(x, ops.index[0], 1.5), [[1.5, 1.5, 2], [3, 4, 5]])


@pytest.mark.parametrize("name", EMPTY)
def test_the_result_has_the_out_sharding(name):
    mesh = phalanx.make_mesh((8,), ("x",))
    sharding = phalanx.sharding.NamedSharding(mesh, phalanx.P("x"))
    out = getattr(ops, f"segment_{name}")(np.ones(6, np.float32), IDS, 8, out_sharding=sharding)
    assert out.sharding == sharding
    assert out.tolist() == wanted(name, np.ones(6, np.float32), 8).tolist()
