"""A quadratic over the simplex, with the derivative of the solution by implicit differentiation."""

import jax
import jax.numpy as jnp
import jaxopt
from jaxopt.projection import projection_simplex

matrix = jnp.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 1.5]])


def solve(linear):
    objective = lambda x, linear: 0.5 * x @ matrix @ x - linear @ x
    solver = jaxopt.ProjectedGradient(objective, projection_simplex, maxiter=500, tol=1e-6, implicit_diff=True)
    return solver.run(jnp.ones(3) / 3, hyperparams_proj=1.0, linear=linear).params


print(solve(jnp.array([0.5, 0.6, 0.4])).round(3))
print(jax.jacobian(solve)(jnp.array([0.5, 0.6, 0.4])).round(2))
