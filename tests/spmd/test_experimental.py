"""The older spellings of `jit` and of placement."""

import numpy as np
import pytest

import phalanx
import phalanx.numpy as jnp
from phalanx.core.errors import ArgumentError
from phalanx.experimental.pjit import pjit, with_sharding_constraint
from phalanx.sharding import PartitionSpec as P


def test_axis_resources_are_shardings():
    mesh = phalanx.make_mesh((4, 2), ("x", "y"))
    with mesh:
        f = pjit(lambda a, b: a @ b, (P("x", None), P(None, "y")), out_axis_resources=P("x", "y"))
        product = f(jnp.ones((8, 6)), jnp.ones((6, 4)))
    np.testing.assert_array_equal(product, np.full((8, 4), 6.0))
    assert product.sharding.spec == P("x", "y")
    assert product.addressable_shards[0].data.shape == (2, 2)


def test_the_rest_is_as_in_jit():
    f = pjit(lambda n, x: n * x, static_argnums=0)
    assert f(3, jnp.float32(2)) == 6
    assert with_sharding_constraint is phalanx.lax.with_sharding_constraint


def test_both_spellings_at_once_are_refused():
    with pytest.raises(ArgumentError) as error:
        pjit(lambda x: x, in_axis_resources=P("x"), in_shardings=P("x"))
    assert str(error.value) == (
        "pjit, in_axis_resources: expected in_axis_resources or in_shardings, got both.\n"
        "  To mend: leave in_axis_resources out, the older name."
    )
