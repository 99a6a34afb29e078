"""Host callbacks, ahead-of-time compilation, static arguments, debugging."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

host = lambda x: np.sin(np.asarray(x)).astype(np.float32)
print(jax.jit(lambda x: jax.pure_callback(host, jax.ShapeDtypeStruct((3,), jnp.float32), x))(jnp.arange(3.0)))

seen = []
jax.jit(lambda x: io_callback(lambda v: seen.append(float(v)), None, x, ordered=True))(2.5)
jax.effects_barrier()
print(seen)
jax.jit(lambda x: jax.debug.print("x is {x}", x=x))(1)
jax.effects_barrier()

traces = []


@functools.partial(jax.jit, static_argnums=1)
def power(x, n):
    traces.append(n)
    return x**n


print(power(2.0, 3), power(3.0, 3), power(2.0, 2), traces)
lowered = jax.jit(lambda x, y: x @ y).lower(jnp.ones((2, 3)), jax.ShapeDtypeStruct((3, 4), jnp.float32))
compiled = lowered.compile()
print(compiled(jnp.ones((2, 3)), jnp.ones((3, 4))).shape, "dot_general" in lowered.as_text())
try:
    jax.jit(lambda x: x if x > 0 else -x)(1.0)
except jax.errors.TracerBoolConversionError:
    print("a traced condition")
with jax.disable_jit():
    print(jax.jit(lambda x: x if x > 0 else -x)(-1.0))
print(jax.jit(lambda x: x, inline=True)(1), jax.block_until_ready(jnp.ones(2)))
jax.config.update("jax_enable_x64", True)
print(jnp.arange(2.0).dtype, jnp.int64(2**40) + 1)
jax.config.update("jax_enable_x64", False)
print(jnp.arange(2.0).dtype)


def fail(x):
    raise KeyError("no entry")


try:
    jax.jit(lambda x: jax.pure_callback(fail, jax.ShapeDtypeStruct((), jnp.float32), x))(1.0).block_until_ready()
except jax.errors.JaxRuntimeError as error:
    print("caught", "KeyError: 'no entry'" in str(error))
