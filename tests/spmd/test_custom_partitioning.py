"""Functions that say themselves how they are split: rules, what the partitioner is told, what devices run."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from phalanx.experimental.custom_partitioning import (
    BATCHING,
    ArrayMapping,
    CompoundFactor,
    SdyShardingRule,
    custom_partitioning,
)
from tests.meshes import auto_mesh

import phalanx
import phalanx.numpy as jnp
from phalanx.core.error_classes import ArgumentError, ArgumentTypeError, ShapeError, ShardingError, TreeError
from phalanx.sharding import Mesh, NamedSharding, PartitionSpec as P
from phalanx.testing import collectives

MESH = auto_mesh((4, 2), ("x", "y"))


def placed(value, *spec):
    return phalanx.device_put(value, NamedSharding(MESH, P(*spec)))


def spec_of(x):
    """The spec of an argument, as long as its rank."""
    return (*x.sharding.spec, *[None] * (len(x.shape) - len(x.sharding.spec)))


def transforms(calls):
    """A Fourier transform of rows, whose other dimensions stay where they are; `calls` notes what is asked."""

    @custom_partitioning
    def transform(x):
        return jnp.fft.fft(x)

    def partition(mesh, arg_shapes, result_shape):
        (x,) = arg_shapes
        calls.append((x.shape, x.sharding.spec, result_shape.dtype))
        sharding = NamedSharding(mesh, P(*spec_of(x)[:-1]))
        return mesh, jnp.fft.fft, sharding, (sharding,)

    transform.def_partition(partition, sharding_rule="... i -> ... i", need_replication_factors=("i",))
    return transform


def test_a_custom_partitioning_of_parallel_dimensions_communicates_nothing():
    calls = []
    f = transforms(calls)
    x = placed(np.random.default_rng(0).normal(size=(8, 16)).astype(np.complex64), ("x", "y"))
    y = phalanx.jit(f)(x)
    np.testing.assert_allclose(np.asarray(y), np.fft.fft(np.asarray(x)), rtol=1e-4, atol=1e-4)
    assert y.sharding.spec == P(("x", "y")) and calls == [((8, 16), P(("x", "y")), np.complex64)]
    assert not collectives(phalanx.jit(f), x)
    np.testing.assert_array_equal(np.asarray(f(x)), np.asarray(y))  # at once, too
    assert phalanx.jit(lambda x: f(x).sum())(x).shape == ()


def test_one_device_and_shard_map_run_the_function_itself():
    calls = []
    f = transforms(calls)
    x = jnp.ones((2, 4), jnp.complex64)
    np.testing.assert_array_equal(np.asarray(phalanx.jit(f)(x)), np.fft.fft(np.asarray(x)))
    inside = phalanx.shard_map(f, mesh=MESH, in_specs=P("x"), out_specs=P("x"))
    np.testing.assert_allclose(np.asarray(inside(jnp.ones((4, 4), jnp.complex64)))[:, 0], 4)
    assert not calls


def test_a_custom_partitioning_may_use_collectives():
    @custom_partitioning
    def product(a, b):
        return a @ b

    def partition(mesh, arg_shapes, result_shape):
        a, b = arg_shapes
        inner = spec_of(a)[1]

        def one(a, b):
            return phalanx.lax.psum(a @ b, inner)

        rows = spec_of(a)[0]
        return (
            mesh,
            one,
            NamedSharding(mesh, P(rows)),
            (NamedSharding(mesh, P(rows, inner)), NamedSharding(mesh, P(inner))),
        )

    product.def_partition(partition, sharding_rule="i j, j k -> i k", reduction_factors=("j",))
    a, b = np.arange(32.0, dtype=np.float32).reshape(4, 8), np.arange(48.0, dtype=np.float32).reshape(8, 6)
    x, w = placed(a, "x", "y"), placed(b, "y")
    np.testing.assert_allclose(np.asarray(phalanx.jit(product)(x, w)), a @ b)
    assert {c.kind for c in collectives(phalanx.jit(product), x, w)} == {"all-reduce"}


def test_static_arguments_keywords_trees_and_constants():
    seen = []
    offset = np.arange(6, dtype=np.float32)

    def scale(tree, by, power=1):
        return {"out": tree["x"] * by**power + offset, "total": tree["x"].sum()}

    f = custom_partitioning(scale, static_argnums=(2,))

    def partition(power, mesh, arg_shapes, result_shape):
        tree, by = arg_shapes
        seen.append(power)
        rows = NamedSharding(mesh, P(spec_of(tree["x"])[0]))

        def one(tree, by):
            total = phalanx.lax.psum(tree["x"].sum(), ("x",))
            return {"out": tree["x"] * by**power + offset, "total": total}

        whole = NamedSharding(mesh, P())
        return mesh, one, {"out": rows, "total": whole}, ({"x": rows}, whole)

    f.def_partition(partition, sharding_rule="i j,  -> i j,", need_replication_factors=("j",))
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    out = phalanx.jit(lambda x: f({"x": x}, 2.0, power=2))(placed(x, "x"))
    np.testing.assert_allclose(np.asarray(out["out"]), x * 4 + offset)
    assert float(out["total"]) == x.sum() and set(seen) == {2}


def test_derivatives_and_vmap_of_custom_partitioning_use_the_function():
    f = transforms([])
    x = jnp.arange(8.0).reshape(2, 4)
    loss = lambda f: lambda x: jnp.abs(f(x.astype(jnp.complex64))).sum()
    expected = phalanx.grad(loss(jnp.fft.fft))(x)
    np.testing.assert_allclose(np.asarray(phalanx.grad(loss(f))(x)), np.asarray(expected), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.asarray(phalanx.vmap(f)(x)), np.fft.fft(np.asarray(x)), rtol=1e-5, atol=1e-5)


def test_a_sharding_rule_is_parsed_and_printed():
    rule = SdyShardingRule.parse("... (i j) k, -> ... i k", i=4)
    assert repr(rule) == "SdyShardingRule(... (i j) k,  -> ... i k)"
    assert rule.operand_mappings == (ArrayMapping(BATCHING, CompoundFactor("i", "j"), "k"), ArrayMapping())
    assert rule.result_mappings == (ArrayMapping(BATCHING, "i", "k"),)


def test_a_rule_may_be_a_function_of_the_types():
    calls = []
    f = transforms(calls)

    def rule(mesh, operands, results):
        calls.append((mesh.shape["x"], operands[0].rank, results[0].shape))
        return SdyShardingRule((ArrayMapping(BATCHING, "i"),), (ArrayMapping(BATCHING, "i"),))

    f.def_partition(f.partition, sharding_rule=rule)
    x = placed(np.ones((4, 8), np.complex64), "x")
    assert phalanx.jit(f)(x).sharding.spec == P("x")
    assert calls[0] == (4, 2, [4, 8])


REFUSED = {
    "i j": (
        "sharding rule: expected operands and results with one `->` between them, got 'i j'.\n"
        "  Fix: write it like '... i j, ... j k -> ... i k'."
    ),
    "i 2 -> i": (
        "sharding rule: expected names of dimensions, `...` and names in parentheses, got 'i 2 -> i'.\n"
        "  Fix: write it like '... i j, ... j k -> ... i k'."
    ),
    "i ... -> i": "ArrayMapping: expected `...` before all names only, got ('i', '…').\n  Fix: move `...` to the front.",
    "(i) -> i": "CompoundFactor: expected at least two names, got ('i',).\n  Fix: write a single name as a string.",
    None: (
        "def_partition, argument sharding_rule: expected a text, an SdyShardingRule, or a function that returns either, "
        "got None.\n  Fix: pass a text with a name for each dimension, such as sharding_rule='... i -> ... i'."
    ),
}


@pytest.mark.parametrize("rule", REFUSED, ids=str)
def test_a_malformed_sharding_rule_is_an_error(rule):
    with pytest.raises(ShardingError) as error:
        custom_partitioning(jnp.sin).def_partition(lambda *_: None, sharding_rule=rule)
    assert str(error.value) == REFUSED[rule]


def test_an_option_with_an_unknown_dimension_name_is_an_error():
    with pytest.raises(ShardingError) as error:
        custom_partitioning(jnp.sin).def_partition(lambda *_: None, sharding_rule="i -> i", reduction_factors=("j",))
    assert str(error.value) == (
        "sharding rule, reduction_factors: expected names of the rule (i), got 'j'.\n"
        "  Fix: remove 'j', or name a dimension 'j' in the rule."
    )


def times(factor):
    """A `partition` by which each device multiplies its piece."""
    return lambda mesh, args, result: (mesh, lambda x: x * factor, args[0].sharding, (args[0].sharding,))


def test_programs_with_custom_partitioning_are_not_cached_on_disk(tmp_path):
    """A stored program knew the call by a number, which another process gives to another function."""
    x = placed(np.ones((4, 8), np.float32), "x")
    phalanx.config.update("compilation_cache_dir", str(tmp_path))
    phalanx.config.update("persistent_cache_min_compile_time_secs", 0.0)
    try:
        np.testing.assert_array_equal(np.asarray(doubled(times(3))(x)), 3)
        assert not list(tmp_path.iterdir())
    finally:
        phalanx.config.update("compilation_cache_dir", None)
        phalanx.config.update("persistent_cache_min_compile_time_secs", 1.0)


def test_a_second_def_partition_replaces_the_first():
    f = custom_partitioning(lambda x: x * 2)
    x = placed(np.ones((4, 8), np.float32), "x")
    for factor in (3, 4):
        f.def_partition(times(factor), sharding_rule="i j -> i j")
        np.testing.assert_array_equal(np.asarray(f(x)), factor)


def test_an_exported_program_runs_the_function_itself():
    x = placed(np.ones((4, 8), np.float32), "x")
    exported = phalanx.export.export(doubled(times(3)))(x)
    assert "custom_partitioning" not in exported.mlir_module()
    np.testing.assert_array_equal(np.asarray(exported.call(x)), 2)


def test_a_keyword_only_argument_is_an_error():
    f = custom_partitioning(lambda x, *, by=2: x * by)
    f.def_partition(times(3), sharding_rule="i -> i")
    with pytest.raises(
        ArgumentTypeError, match="expected arguments that can be passed by position, got keyword-only by"
    ):
        f(jnp.ones(3), by=5)
    assert f(jnp.ones(3)).tolist() == [2, 2, 2]


def doubled(partition, rule="i j -> i j"):
    f = custom_partitioning(lambda x: x * 2)
    f.def_partition(partition, sharding_rule=rule)
    return phalanx.jit(f)


def test_a_partitioning_that_does_not_fit_is_an_error_of_the_call():
    x = placed(np.ones((4, 8), np.float32), "x")
    rows = NamedSharding(MESH, P("x"))
    with pytest.raises(ShapeError) as error:
        doubled(None.__eq__, "i -> i")(x)
    assert str(error.value) == (
        "sharding rule, operand 0: expected names for 2 dimensions, got 1.\n"
        "  Fix: write one name for each dimension, and pass the sizes of compound factors as keywords."
    )
    with pytest.raises(ArgumentError, match=r"partition of .*expected \(mesh, function of one device, shardings"):
        doubled(lambda *_: None)(x)
    with pytest.raises(TreeError, match="shardings of the result: expected shardings in the structure"):
        doubled(lambda mesh, args, result: (mesh, jnp.sin, (rows, rows), (rows,)))(x)
    with pytest.raises(ShardingError) as error:
        doubled(lambda mesh, args, result: (mesh, lambda x: x.sum(), rows, (rows,)))(x)
    assert "result 0 of one device: expected float32[1, 8], the shard of the result's sharding, got float32[]" in str(
        error.value
    )
    with pytest.raises(ArgumentError) as error:
        custom_partitioning(np.sin)(x)
    assert "a custom_partitioning function with a partitioning, got one without" in str(error.value)
    with pytest.raises(KeyError, match="the user's own"):
        doubled(lambda *_: {}["the user's own"])(x)


def test_concurrent_compilations_raise_their_own_errors():
    x = placed(np.ones((4, 8), np.float32), "x")

    def failure(number):
        with pytest.raises(KeyError) as error:
            doubled(lambda *_: {}[number])(x)
        return error.value.args[0]

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(failure, range(8))) == list(range(8))


def test_custom_partitioning_without_a_mesh_is_an_error():
    f = doubled(lambda mesh, args, result: (mesh, lambda x: x * 2, args[0].sharding, (args[0].sharding,)))
    split = NamedSharding(MESH, P(("x", "y")))
    unnamed = phalanx.sharding.GSPMDSharding(phalanx.devices(), split._to_xla_hlo_sharding(2))
    x = phalanx.device_put(np.ones((8, 2), np.float32), unnamed)
    with pytest.raises(ShardingError, match=r"expected a mesh of the 8 devices that the program runs on, got none"):
        f(x)
    with Mesh(np.array(phalanx.devices()), ("all",)):
        y = f(x)
    assert y.sum() == 32 and y.sharding.spec == P("all")
