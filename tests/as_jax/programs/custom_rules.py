"""User-defined derivatives and batching."""

import functools

import jax
import jax.numpy as jnp


@jax.custom_vjp
def clip_gradient(x, limit):
    return x


clip_gradient.defvjp(lambda x, limit: (x, limit), lambda limit, g: (jnp.clip(g, -limit, limit), None))
print(jax.grad(lambda x: jnp.sum(clip_gradient(x, 0.5) ** 2))(jnp.array([0.1, 1.0, -3.0])))


@jax.custom_jvp
def log1pexp(x):
    return jnp.log(1.0 + jnp.exp(x))


@log1pexp.defjvp
def log1pexp_jvp(primals, tangents):
    (x,), (x_dot,) = primals, tangents
    return log1pexp(x), (1 - 1 / (1 + jnp.exp(x))) * x_dot


print(jax.grad(log1pexp)(100.0), jax.vmap(jax.grad(log1pexp))(jnp.array([-1.0, 0.0, 1.0])))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def fixed_point(f, a, guess):
    def body(state):
        _, x = state
        return x, f(a, x)

    return jax.lax.while_loop(lambda s: jnp.abs(s[0] - s[1]) > 1e-6, body, (guess, f(a, guess)))[1]


def forward(f, a, guess):
    x = fixed_point(f, a, guess)
    return x, (a, x)


def backward(f, residuals, x_bar):
    a, x = residuals
    _, vjp_a = jax.vjp(lambda a: f(a, x), a)
    _, vjp_x = jax.vjp(lambda x: f(a, x), x)
    solved = fixed_point(lambda x_bar, u: x_bar + vjp_x(u)[0], x_bar, x_bar)
    return vjp_a(solved)[0], jnp.zeros_like(x)


fixed_point.defvjp(forward, backward)
newton_sqrt = lambda a: fixed_point(lambda a, x: 0.5 * (x + a / x), a, a)
print(newton_sqrt(2.0), jax.grad(newton_sqrt)(2.0), jax.grad(jax.grad(lambda a: jnp.sqrt(a)))(2.0))


@jax.custom_batching.custom_vmap
def describe(x):
    return x + 1


@describe.def_vmap
def describe_batch(axis_size, in_batched, x):
    return x * 10 + axis_size, in_batched[0]


print(describe(1.0), jax.vmap(describe)(jnp.arange(3.0)))
