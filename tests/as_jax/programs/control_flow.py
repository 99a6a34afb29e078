"""Loops and branches, with derivatives, inside compiled functions."""

import jax
import jax.numpy as jnp
from jax import lax


@jax.jit
def collatz(n):
    def body(state):
        n, steps = state
        return lax.cond(n % 2 == 0, lambda n: n // 2, lambda n: 3 * n + 1, n), steps + 1

    return lax.while_loop(lambda state: state[0] != 1, body, (n, 0))[1]


print([int(collatz(n)) for n in (6, 27, 97)])


def rnn(w, xs):
    def step(h, x):
        h = jnp.tanh(w @ h + x)
        return h, h.sum()

    return lax.scan(step, jnp.zeros(3), xs)


w = 0.1 * jnp.arange(9.0).reshape(3, 3)
xs = jnp.sin(jnp.arange(15.0)).reshape(5, 3)
final, sums = jax.jit(rnn)(w, xs)
print(final, sums)
print(jax.grad(lambda w: rnn(w, xs)[1].sum())(w))
print(lax.fori_loop(0, 10, lambda i, x: x + i * x, 1.0))
print(lax.switch(2, [lambda x: x, lambda x: -x, lambda x: x * x], 3.0))
print(lax.map(lambda x: x**2, jnp.arange(4)), lax.associative_scan(jnp.add, jnp.arange(6)))
print(lax.scan(lambda c, _: (c * 2, c), 1, None, length=6))
