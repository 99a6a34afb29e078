"""A function that may be traced once, with fake vmap and pmap, and trees compared."""

import chex
import jax
import jax.numpy as jnp


@jax.jit
@chex.assert_max_traces(n=1)
def double(x):
    return 2 * x


print(double(jnp.arange(3)), double(jnp.arange(3) + 1))
try:
    double(jnp.arange(4))
except AssertionError:
    print("second trace refused")
with chex.fake_pmap():
    print(jax.pmap(lambda x: x + 1)(jnp.arange(4)))
chex.assert_trees_all_close({"a": jnp.ones(2)}, {"a": jnp.ones(2) + 1e-9}, atol=1e-6)
print(chex.dataclass(frozen=True)(type("Point", (), {"__annotations__": {"x": float}}))(x=2.0).x)
