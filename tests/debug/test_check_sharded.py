"""`check_sharded`: the same answer on one device and on many, proved for users' functions, and denied where it is not."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tests.meshes import auto_mesh

import phalanx
import phalanx.numpy as jnp
from phalanx import debug, lax
from phalanx.core.error_classes import ArgumentError, TreeError
from phalanx.sharding import NamedSharding, P

pytestmark = pytest.mark.lengthy

X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
W = np.linspace(0, 1, 12, dtype=np.float32).reshape(4, 3)


@pytest.fixture
def mesh():
    return auto_mesh((4, 2), ("data", "model"))


def model(params, x):
    hidden = jnp.tanh(x @ params["w"])
    return {"loss": jnp.mean(hidden**2), "largest": jnp.argmax(hidden, axis=0)}


def test_a_function_of_arrays_has_one_answer_on_every_mesh(mesh):
    report = debug.check_sharded(model, {"w": W}, X, mesh=mesh, in_shardings=(P(), P("data", "model")))
    sizes = [tuple(t.mesh.shape.values()) for t in report]
    assert (4, 2) in sizes and (8, 1) in sizes and (2, 4) in sizes and (1, 4) in sizes
    assert any(t.shard_shapes[1] == (1, 4) for t in report) and any(t.shard_shapes[1] == (4, 1) for t in report)
    assert all(0 <= t.difference < 1e-4 for t in report)
    assert all(t.mesh.axis_types == mesh.axis_types for t in report)
    text = repr(report).splitlines()[0]
    assert re.fullmatch(
        r"Mesh\('data': 4, 'model': 2, axis_types=\(Auto, Auto\)\): P\(\) in parts of \(4, 3\), P\('data', 'model'\) in parts "
        r"of \(2, 2\); \d+ collectives, largest difference \S+",
        text,
    )


def test_meshes_are_chosen_by_the_axes_that_specs_name():
    report = debug.check_sharded(lambda x: jnp.sum(x, axis=1), X, in_shardings=(P("a"),))
    assert [t.mesh.axis_names for t in report] == [("a",)] * len(report)
    assert {t.mesh.size for t in report} == {2, 4, 8}
    both = auto_mesh((2,), ("a",)), auto_mesh((4,), ("a",))
    assert {t.mesh for t in debug.check_sharded(jnp.sin, X, mesh=both)} >= set(both)


def test_random_numbers_and_keys_are_compared_exactly():
    def f(key, x):
        new = phalanx.random.split(key, 8)
        noise = phalanx.vmap(lambda k: phalanx.random.normal(k, (4,)))(new)
        return x + noise, phalanx.random.bits(key, (8,)), new

    report = debug.check_sharded(f, phalanx.random.key(1), X, in_shardings=(P(), P("a", "b")))
    assert len(report) > 3


def test_integer_arguments_are_accepted_and_gradients_can_be_skipped():
    ints = np.arange(8)
    assert debug.check_sharded(lambda i, x: x[i % 4], ints, X[:, 0], in_shardings=(P("a"), None))
    calls = []

    def f(x):
        calls.append(1)
        return x * 2

    debug.check_sharded(f, X, in_shardings=(P("a"),), gradients=False)
    without = len(calls)
    calls.clear()
    phalanx.clear_caches()
    debug.check_sharded(f, X, in_shardings=(P("a"),))
    assert len(calls) > without


def depends_on_the_part(mesh_shape):
    """A function whose answer depends on how many devices there are."""

    def f(x):
        count = phalanx.sharding.get_abstract_mesh().shape.get("data", 1)
        return {"fine": x * 1.0, "wrong": [x, x.at[3, 1].add(count - 1.0)]}

    return f


def test_the_first_result_that_differs_is_named_with_its_path_and_mesh(mesh):
    with pytest.raises(debug.ShardedMismatchError) as error:
        debug.check_sharded(depends_on_the_part(mesh), X, mesh=mesh, in_shardings=(P("data"),))
    assert str(error.value) == (
        "check_sharded, result['wrong'][1]: expected -0.1612903 at (3, 1) as on one device, to 2e-05 of the largest "
        "element, got 2.83871 over Mesh('data': 4, 'model': 2, axis_types=(Auto, Auto)) with arguments split by P('data',).\n"
        "  Fix: look for missing collectives in shard_map, for results that depend on axis_index or on the shapes of shards, "
        "and for random keys that differ between devices."
    )
    with pytest.raises(
        AssertionError, match=r"check_sharded, result\[1\]: expected 4 at \(2,\) as on one device, exactly"
    ):
        debug.check_sharded(
            lambda i: (i, i.at[2].add(phalanx.sharding.get_abstract_mesh().size)),
            np.array([1, 2, 3, 4]),
            in_shardings=(P("data"),),
        )


def test_a_gradient_that_differs_is_named_by_its_argument(mesh):
    @phalanx.custom_vjp
    def scaled(x):
        return x

    scaled.defvjp(
        lambda x: (x, None), lambda _, g: (g * max(1, phalanx.sharding.get_abstract_mesh().shape.get("data", 1)),)
    )
    with pytest.raises(
        debug.ShardedMismatchError, match=r"^check_sharded, gradient\[0\]\['x'\]: expected .* over Mesh"
    ):
        debug.check_sharded(lambda t: scaled(t["x"]), {"x": X}, mesh=mesh, in_shardings=(P("data"),))


def test_check_sharded_finds_a_missing_collective(mesh):
    shard_map = getattr(phalanx, "shard_map", None)
    if shard_map is None:
        pytest.skip("no shard_map yet")

    def f(x):
        return shard_map(
            lambda v: lax.psum(jnp.sum(v), "data") / lax.axis_size("data"), mesh=mesh, in_specs=P("data"), out_specs=P()
        )(x)

    with pytest.raises(debug.ShardedMismatchError):
        debug.check_sharded(
            lambda x: f(x) if phalanx.sharding.get_abstract_mesh().size > 1 else jnp.sum(x),
            X,
            mesh=mesh,
            in_shardings=(P("data"),),
        )


def test_arguments_that_no_mesh_splits_evenly_are_an_error(mesh):
    with pytest.raises(ArgumentError) as error:
        debug.check_sharded(jnp.sin, np.ones((11, 4), np.float32), in_shardings=(P("a"),))
    assert str(error.value) == (
        "check_sharded: expected a mesh over several of 8 devices that splits the arguments evenly, got shapes [(11, 4)] with "
        "specs [P('a',)].\n"
        "  Fix: pass arguments whose dimensions have 2, 4 or 8 elements, and specs that split them."
    )
    with pytest.raises(TreeError, match="check_sharded, in_shardings"):
        debug.check_sharded(model, {"w": W}, X, in_shardings=(P(), P(), P()))
    sharding = NamedSharding(mesh, P("data"))
    placed = phalanx.device_put(X, sharding)
    assert debug.check_sharded(jnp.sin, placed, mesh=mesh, in_shardings=(sharding,))
