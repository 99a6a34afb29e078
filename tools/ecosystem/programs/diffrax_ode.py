"""A neural-free ODE: Lotka-Volterra with an adaptive solver, and the gradient of its end by a parameter."""

import diffrax
import jax
import jax.numpy as jnp


def field(t, y, rate):
    prey, predator = y
    return jnp.stack([prey * (rate - predator), predator * (prey - 1)])


@jax.jit
def solve(rate):
    return diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        diffrax.Tsit5(),
        t0=0.0,
        t1=3.0,
        dt0=0.1,
        y0=jnp.array([1.5, 0.5]),
        args=rate,
        saveat=diffrax.SaveAt(ts=jnp.linspace(0, 3, 4)),
        stepsize_controller=diffrax.PIDController(rtol=1e-5, atol=1e-6),
    )


solution = solve(1.2)
print(solution.ys.round(3))
print("steps", solution.stats["num_accepted_steps"])
print("gradient", f"{jax.grad(lambda rate: solve(rate).ys[-1, 0])(1.2):.3f}")
