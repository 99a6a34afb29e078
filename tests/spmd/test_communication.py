"""What compiled functions communicate: kinds, bytes, axes, lines, and loops around them."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tests.meshes import auto_mesh

import phalanx
import phalanx.numpy as jnp
from phalanx import lax
from phalanx.core.error_classes import ArgumentError, ShardingError
from phalanx.sharding import NamedSharding, P, make_mesh, no_collectives, set_mesh
from phalanx.testing import CommunicationError, assert_collectives, collectives

X = np.arange(64, dtype=np.float32).reshape(8, 8)


@pytest.fixture
def mesh():
    return auto_mesh((4, 2), ("data", "model"))


def put(x, mesh, *spec):
    return phalanx.device_put(x, NamedSharding(mesh, P(*spec)))


def total(x):
    return jnp.sum(x, axis=0)


LINE = total.__code__.co_firstlineno + 1


def test_a_sum_over_a_sharded_dimension_is_one_reduction_over_its_axis(mesh):
    (c,) = collectives(total, put(X, mesh, "data"))
    assert c[:3] == ("all-reduce", 32, ("data",)) and c.loops == ()
    assert c.source == f"{__file__}:{LINE}"
    assert c.groups == ((0, 2, 4, 6), (1, 3, 5, 7))
    found = collectives(phalanx.jit(total), put(X, mesh, "data", "model"))
    assert repr(found) == f"implied all-reduce of 16 bytes over 'data', at {__file__}:{LINE}"
    assert found.kinds == ("all-reduce",) and found.bytes == 16
    assert collectives(total, put(X, mesh, None, "model")) == ()
    assert repr(collectives(total, X)) == "no collectives"


def test_the_collectives_of_reshardings_are_listed(mesh):
    def moved(before, after):
        there = NamedSharding(mesh, P(*after))
        return collectives(phalanx.jit(lambda x: x, out_shardings=there), put(X, mesh, *before))

    assert [c[:3] for c in moved(("data",), ())] == [("all-gather", 256, ("data",))]
    assert [c[:3] for c in moved(("data",), (None, "data"))] == [("all-to-all", 64, ("data",))]
    (swap,) = moved((("data", "model"),), (("model", "data"),))
    assert swap[:3] == ("collective-permute", 32, ("data", "model")) and (4, 1) in swap.groups


def test_collectives_in_loops_are_reported_with_trip_counts(mesh):
    def f(x):
        return lax.fori_loop(0, 7, lambda i, s: s + jnp.sum(x * s, axis=0), jnp.ones(8))

    (c,) = collectives(f, put(X, mesh, "data"))
    assert c.kind == "all-reduce" and c.loops == (7,)
    assert re.fullmatch(r"implied all-reduce of 32 bytes over 'data', in a loop of 7, at .*:\d+", str(c))
    assert collectives(f, put(X, mesh, "data")).bytes == 7 * 32

    def g(x):
        return lax.while_loop(lambda s: jnp.sum(s) < 1e6, lambda s: s + jnp.sum(x * s, axis=0), jnp.ones(8))

    found = collectives(g, put(X, mesh, "data"))
    assert found and all(c.loops == (None,) for c in found) and "in a loop, at" in str(found[0])


def test_collectives_accepts_stages_and_finds_meshes_inside_the_program(mesh):
    x = put(X, mesh, "data")
    traced = phalanx.jit(total).trace(x)
    assert collectives(traced) == collectives(traced.lower()) == collectives(traced.lower().compile())
    with pytest.raises(ArgumentError) as error:
        collectives(traced, x)
    assert str(error.value) == (
        "collectives: expected a stage alone, or a function with its arguments, got a Traced stage and 1 arguments.\n"
        "  Fix: leave the arguments out: a stage is compiled for fixed types of arguments."
    )
    inside = NamedSharding(mesh, P("data"))
    (c,) = collectives(lambda x: total(lax.with_sharding_constraint(x * 2, inside)), X)
    assert c.axes == ("data",)


def test_a_collective_that_is_not_allowed_is_an_error_with_its_source_line(mesh):
    x = put(X, mesh, "data")
    assert_collectives(total, x, allowed=("all-reduce",), required=("all-reduce",))
    assert_collectives(total, x, allowed={"all-reduce": "data"})
    assert_collectives(total, put(X, mesh, None, "model"))
    with pytest.raises(CommunicationError) as error:
        assert_collectives(total, x, allowed={"all-gather": None, "all-reduce": ("model",)}, required=("all-gather",))
    assert str(error.value) == (
        "total: expected a program with no communication but all-gather, all-reduce over ('model',), and with "
        f"all-gather, got implied all-reduce of 32 bytes over 'data', at {__file__}:{LINE}; no all-gather.\n"
        "  Fix: shard the operands of these lines along dimensions that need no communication, or add the kinds or causes to `allowed`."
    )
    with pytest.raises(AssertionError, match="expected a program with no communication, got implied all-reduce"):
        assert_collectives(total, x)
    with pytest.raises(ArgumentError, match="got 'allgather'"):
        assert_collectives(total, x, allowed=("allgather",))


def test_a_collective_along_a_forbidden_axis_is_an_error(mesh):
    x, everywhere = put(X, mesh, "data", "model"), phalanx.jit(total)
    everywhere(x)  # compiled before, without the option
    per_device = lambda f, out: phalanx.shard_map(f, mesh=mesh, in_specs=P("data", "model"), out_specs=out)
    sums = per_device(lambda x: lax.psum(x, "data"), P(None, "model"))
    pairs = per_device(lambda x: lax.psum(x, "data", axis_index_groups=[[0, 1], [2, 3]]), P("data", "model"))
    shifts = per_device(lambda x: lax.ppermute(x, "data", [(0, 1)]), P("data", "model"))
    for f in (everywhere, total, sums, phalanx.jit(sums), pairs, shifts):
        f(x)
        with no_collectives({"model", "other"}):
            f(x)
        with pytest.raises(ShardingError, match="no_collectives: expected a program without collectives along 'data'"):
            with no_collectives({"data"}):
                f(x)
        with no_collectives({"data"}), no_collectives(set()):
            f(x)
    with no_collectives({"data", "model"}):
        assert (x * 2 + 1).sharding.spec == P("data", "model")
        with pytest.raises(ShardingError) as raised:
            everywhere(put(X, mesh, "data"))
    assert str(raised.value) == (
        "no_collectives: expected a program without collectives along 'data', 'model', got implied all-reduce of 32 bytes over "
        f"'data', at {__file__}:{LINE}.\n  Fix: shard the operands of these lines along dimensions that need no communication, or remove the "
        "axis from no_collectives."
    )


def test_no_collectives_applies_to_explicit_axes():
    mesh = make_mesh((4, 2), ("data", "model"))
    with set_mesh(mesh), no_collectives({"data"}):
        x = phalanx.device_put(X, P("data", "model"))
        assert phalanx.typeof(x.sum(1)).str_short() == "f32[8@data]"
        for f in (lambda x: x.sum(0), lambda x: phalanx.reshard(x, P(None, "data"))):
            with pytest.raises(ShardingError, match="no_collectives"):
                phalanx.jit(f)(x)
    with pytest.raises(ArgumentError, match="option no_collectives: expected a set of names, got 3"):
        no_collectives(3)


@pytest.mark.parametrize("rows", [24, 17])
@pytest.mark.parametrize("name", ["pool", "convolve"])
def test_windows_in_inner_functions_exchange_their_borders_only(name, rows):
    x = phalanx.device_put(np.ones((rows, 6), np.float32), NamedSharding(auto_mesh((8,), "x"), P("x")))
    window = {
        "pool": lambda x: lax.reduce_window(x, 0.0, lax.add, (3, 1), (1, 1), "SAME"),
        "convolve": lambda x: lax.conv_general_dilated(x.T[:, None], jnp.ones((1, 1, 3)), (1,), "SAME")[:, 0].T,
    }[name]
    inner = phalanx.jit(window)
    nested = phalanx.jit(lambda x: inner(inner(2 * x)[:, :5]))
    np.testing.assert_array_equal(phalanx.jit(nested)(x), window(window(2 * np.ones((rows, 6), np.float32))[:, :5]))
    assert collectives(lambda x: nested(x), x).bytes == 2 * (6 + 5) * 4  # a row to each neighbour


def test_fewer_elements_than_devices_are_spread_without_a_replica_of_their_result():
    x = phalanx.device_put(np.arange(48, dtype=np.float32).reshape(16, 3), NamedSharding(auto_mesh((8,), "x"), P("x")))
    every_fourth = phalanx.grad(lambda x: (x[::4] ** 2).sum())
    np.testing.assert_array_equal(phalanx.jit(every_fourth)(x), every_fourth(np.asarray(x)))
    assert collectives(every_fourth, x).bytes == 5 * 12  # 348 where XLA resharded each step by way of a replica
    scanned = phalanx.jit(lambda x: lax.associative_scan(jnp.add, x))
    np.testing.assert_array_equal(scanned(x), np.cumsum(np.asarray(x), 0))
    assert collectives(scanned, x).bytes == 33 * 12
