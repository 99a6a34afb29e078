"""Logistic regression by L-BFGS and by gradient descent with a line search."""

import jax
import jax.numpy as jnp
import jaxopt

x = jax.random.normal(jax.random.key(0), (80, 3))
y = (x @ jnp.array([2.0, -1.0, 0.5]) > 0).astype(jnp.int32)
loss = lambda w: jaxopt.objective.binary_logreg(w, (x, y)) + 0.05 * jnp.sum(w**2)
for solver in (jaxopt.LBFGS(loss, maxiter=50), jaxopt.GradientDescent(loss, maxiter=200)):
    print(type(solver).__name__, solver.run(jnp.zeros(3)).params.round(2))
