"""Linear systems by direct and iterative solvers, with structure known to the operator."""

import jax
import jax.numpy as jnp
import lineax as lx

a = jax.random.normal(jax.random.key(0), (5, 5))
spd = a @ a.T + 5 * jnp.eye(5)
b = jnp.arange(5.0)
operator = lx.MatrixLinearOperator(spd, lx.positive_semidefinite_tag)
for solver in (lx.AutoLinearSolver(well_posed=True), lx.Cholesky(), lx.CG(rtol=1e-6, atol=1e-6), lx.GMRES(1e-6, 1e-6)):
    print(type(solver).__name__, lx.linear_solve(operator, b, solver).value.round(3))
tridiagonal = lx.TridiagonalLinearOperator(jnp.full(5, 4.0), jnp.ones(4), jnp.ones(4))
print(lx.linear_solve(tridiagonal, b).value.round(3))
