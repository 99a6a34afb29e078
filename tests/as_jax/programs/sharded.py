"""A mesh of devices: jit with shardings, shard_map with collectives, pmap."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

print(jax.device_count(), jax.default_backend())
mesh = Mesh(mesh_utils.create_device_mesh((4, 2)), ("data", "model"))
x = jax.device_put(jnp.arange(64.0).reshape(8, 8), NamedSharding(mesh, P("data", "model")))
print(tuple(x.sharding.spec), x.addressable_shards[0].data.shape)
y = jax.jit(lambda x: jnp.sin(x) @ x.T, out_shardings=NamedSharding(mesh, P("data", None)))(x)
print(tuple(y.sharding.spec), np.round(y[0, :3], 3))


@functools.partial(jax.shard_map, mesh=mesh, in_specs=(P("data", "model"),), out_specs=P("data"))
def row_sums(block):
    return lax.psum(block.sum(1), "model")


print(row_sums(x))


@functools.partial(jax.shard_map, mesh=mesh, in_specs=P("data"), out_specs=P("data"))
def shift(block):
    return lax.ppermute(block, "data", [(i, (i + 1) % 4) for i in range(4)]) + lax.axis_index("data")


print(shift(jnp.arange(8)))
print(jax.grad(lambda x: row_sums(x**2).sum())(x)[0])
print(jax.pmap(lambda v: v / lax.psum(v, "i"), axis_name="i")(jnp.arange(1.0, 9.0)))
with jax.set_mesh(jax.make_mesh((8,), ("batch",))):
    print(jax.jit(lambda v: jax.reshard(v * 2, P("batch")))(jnp.arange(8.0)).sharding.spec[0])
print(lax.with_sharding_constraint(jnp.ones(8), NamedSharding(mesh, P("data"))).sharding.spec[0])
