"""The older spellings of `jit` and of placement."""

import numpy as np
import pytest
from phalanx.experimental.pjit import pjit, with_sharding_constraint
from tests.error_texts import without_positions

import phalanx
import phalanx.numpy as jnp
from phalanx.core.error_classes import ArgumentError, ShardingError, TreeError
from phalanx.sharding import AxisType, PartitionSpec as P


def test_axis_resources_are_shardings():
    mesh = phalanx.make_mesh((4, 2), ("x", "y"))
    with mesh:
        f = pjit(lambda a, b: a @ b, (P("x", None), P(None, "y")), out_axis_resources=P("x", "y"))
        product = f(jnp.ones((8, 6)), jnp.ones((6, 4)))
    np.testing.assert_array_equal(product, np.full((8, 4), 6.0))
    assert product.sharding.spec == P("x", "y")
    assert product.addressable_shards[0].data.shape == (2, 2)


def test_pjit_accepts_the_options_of_jit():
    f = pjit(lambda n, x: n * x, static_argnums=0)
    assert f(3, jnp.float32(2)) == 6


def test_passing_both_spellings_is_an_error():
    with pytest.raises(ArgumentError) as error:
        pjit(lambda x: x, in_axis_resources=P("x"), in_shardings=P("x"))
    assert str(error.value) == (
        "pjit, in_axis_resources: expected in_axis_resources or in_shardings, got both.\n"
        "  Fix: leave in_axis_resources out: it is the former name."
    )


def test_errors_use_the_spelling_of_the_user():
    x = jnp.ones((8, 6))
    with phalanx.make_mesh((4, 2), ("x", "y")):
        with pytest.raises(ShardingError) as error:
            pjit(lambda a: a, P("x", None, "y"))(x)
        assert without_positions(error.value).startswith(
            "jit of <lambda>, in_axis_resources[0]: expected a spec of at most 2 entries"
        )
        with pytest.raises(ArgumentError, match="since in_axis_resources applies to positional arguments only"):
            pjit(lambda x: x, in_axis_resources=P("x"))(x=np.ones(8))
        with pytest.raises(ShardingError) as error:
            pjit(lambda a: {"out": a}, P("x"), {"out": P("x", None, "y")})(x)
        assert without_positions(error.value).startswith(
            "jit of <lambda>, out_axis_resources['out']: expected a spec of at most 2 entries"
        )
        with pytest.raises(TreeError) as error:
            pjit(lambda a: a, (P("x"), P("y")))(x)
        assert without_positions(error.value).startswith("jit of <lambda>, in_axis_resources")
        with pytest.raises(ShardingError) as error:
            pjit(lambda a: a, in_shardings=P("x", None, "y"))(x)
        assert without_positions(error.value).startswith("jit of <lambda>, in_shardings[0]")


def test_constraints_accept_axis_resources():
    with phalanx.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,)):
        f = pjit(lambda x: with_sharding_constraint({"a": x}, axis_resources=P("x"))["a"])
        assert f(jnp.ones(8)).sharding.spec == P("x")
        assert with_sharding_constraint(jnp.ones(8), P("x")).sharding.spec == P("x")


def test_static_arguments_may_be_given_by_position():
    f = pjit(lambda n, x: n * x, None, None, (0,))
    assert f(3, jnp.float32(2)) == 6


def test_arrays_and_shardings_are_importable_by_their_former_names():
    from phalanx.experimental.array import make_array_from_callback
    from phalanx.experimental.sharding import MeshPspecSharding
    from phalanx.interpreters.pxla import PartitionSpec

    sharding = MeshPspecSharding(phalanx.make_mesh((8,), ("x",)), PartitionSpec("x"))
    assert make_array_from_callback((8,), sharding, lambda index: jnp.arange(8)[index]).tolist() == list(range(8))
