"""Derivatives of every kind, mapped and compiled, nested in each other."""

import jax
import jax.numpy as jnp
from jax import grad, hessian, jacfwd, jacrev, jit, jvp, vjp, vmap


def f(x):
    return jnp.sum(jnp.tanh(x) ** 2) + x[0] * x[1]


x = jnp.array([0.3, -1.2, 2.0])
print(grad(f)(x))
print(jnp.round(hessian(f)(x), 4))
print(bool(jnp.allclose(jacfwd(grad(f))(x), jacrev(grad(f))(x), atol=1e-6)))
print(jvp(f, (x,), (jnp.ones(3),))[1])
value, pullback = vjp(lambda a, b: a @ b, jnp.ones((2, 3)), jnp.arange(6.0).reshape(3, 2))
print(value, jax.tree.map(jnp.shape, pullback(jnp.ones((2, 2)))))
print(jit(vmap(grad(lambda a: jnp.sin(a) ** 3)))(jnp.linspace(0.0, 1.0, 5)))
print(vmap(vmap(jnp.dot, (None, 0)), (0, None))(jnp.eye(3), jnp.arange(12.0).reshape(4, 3)).shape)
print(jax.linearize(jnp.sin, 1.0)[1](2.0))
print(grad(grad(grad(jnp.sin)))(0.5))
print(jax.make_jaxpr(lambda a: jnp.sin(a) * 2.0)(1.0).jaxpr.eqns[0].primitive.name)
print(
    jax.eval_shape(lambda a, b: a @ b, jax.ShapeDtypeStruct((4, 5), "float32"), jax.ShapeDtypeStruct((5, 6), "float32"))
)
