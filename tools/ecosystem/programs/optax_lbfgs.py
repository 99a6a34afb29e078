"""The minimum of Rosenbrock's function by L-BFGS with a line search."""

import jax
import jax.numpy as jnp
import optax


def rosenbrock(x):
    return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


solver = optax.lbfgs()
value_and_grad = optax.value_and_grad_from_state(rosenbrock)


@jax.jit
def step(x, state):
    value, grad = value_and_grad(x, state=state)
    updates, state = solver.update(grad, state, x, value=value, grad=grad, value_fn=rosenbrock)
    return optax.apply_updates(x, updates), state


x = jnp.array([-1.0, 2.0, 0.5])
state = solver.init(x)
for _ in range(60):
    x, state = step(x, state)
print("minimum at", x.round(2))
