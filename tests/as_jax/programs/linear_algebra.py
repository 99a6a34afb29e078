"""Linear algebra, with derivatives."""

import jax
import jax.numpy as jnp
import jax.scipy as jsp

a = jnp.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]])
b = jnp.array([1.0, 2.0, 3.0])
print(jnp.linalg.solve(a, b), jsp.linalg.cho_solve(jsp.linalg.cho_factor(a), b))
print(jnp.linalg.det(a), jnp.linalg.slogdet(a), jnp.linalg.cond(a).round(3))
values, vectors = jnp.linalg.eigh(a)
print(values, bool(jnp.allclose(vectors @ jnp.diag(values) @ vectors.T, a, atol=1e-5)))
u, s, vt = jnp.linalg.svd(jnp.arange(6.0).reshape(2, 3) + 1, full_matrices=False)
print(s.round(4), u.shape, vt.shape)
q, r = jnp.linalg.qr(a)
print(bool(jnp.allclose(q @ r, a, atol=1e-5)), jnp.abs(jnp.diag(r)).round(4))
print(jax.grad(lambda a: jnp.linalg.slogdet(a)[1])(a).round(4))
print(jsp.linalg.expm(jnp.array([[0.0, 1.0], [-1.0, 0.0]])).round(4))
print(jnp.einsum("ij,jk,k->i", a, a, b), jnp.linalg.norm(a, axis=0), jnp.linalg.matrix_rank(a))
print(jsp.linalg.solve_triangular(jnp.tril(a), b, lower=True).round(4), jnp.kron(jnp.eye(2), b)[1])
print(jsp.sparse.linalg.cg(lambda x: a @ x, b)[0].round(3), jnp.fft.fft(b).round(3))
