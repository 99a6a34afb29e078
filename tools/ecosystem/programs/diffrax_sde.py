"""Geometric Brownian motion by a stochastic solver, over a batch of paths."""

import diffrax
import jax


@jax.vmap
def path(key):
    noise = diffrax.VirtualBrownianTree(0.0, 1.0, tol=1e-3, shape=(), key=key)
    terms = diffrax.MultiTerm(
        diffrax.ODETerm(lambda t, y, args: 0.1 * y), diffrax.ControlTerm(lambda t, y, args: 0.3 * y, noise)
    )
    return diffrax.diffeqsolve(terms, diffrax.Heun(), 0.0, 1.0, dt0=0.05, y0=1.0).ys[0]


ends = jax.jit(path)(jax.random.split(jax.random.key(0), 32))
print(f"mean {ends.mean():.3f}, standard deviation {ends.std():.3f}")
print(ends[:4].round(3))
