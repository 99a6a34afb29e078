"""A root, a fixed point and a minimum, with implicit derivatives."""

import jax
import jax.numpy as jnp
import optimistix as optx


def root(c):
    solver = optx.Newton(rtol=1e-6, atol=1e-6)
    return optx.root_find(lambda x, c: x**3 - c, solver, jnp.array(2.0), args=c).value


print(f"{root(5.0):.4f} {jax.grad(root)(5.0):.4f}")
fixed = optx.fixed_point(lambda x, _: jnp.cos(x), optx.FixedPointIteration(1e-5, 1e-5), jnp.array(1.0))
print(f"{fixed.value:.4f}")
best = optx.minimise(
    lambda x, _: (x[0] - 1) ** 2 + 10 * (x[1] - x[0] ** 2) ** 2, optx.BFGS(1e-6, 1e-6), jnp.zeros(2), max_steps=200
)
print(best.value.round(3))
