"""Eight schools: Hamiltonian Monte Carlo for a hierarchical model."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS
from numpyro.infer.reparam import LocScaleReparam

effects = jnp.array([28.0, 8, -3, 7, -1, 1, 18, 12])
errors = jnp.array([15.0, 10, 16, 11, 9, 11, 10, 18])


@numpyro.handlers.reparam(config={"theta": LocScaleReparam(0)})
def model():
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("schools", 8):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("observed", dist.Normal(theta, errors), obs=effects)


sampler = MCMC(NUTS(model), num_warmup=100, num_samples=200, progress_bar=False)
sampler.run(jax.random.key(0))
samples = sampler.get_samples()
print({name: x.shape for name, x in sorted(samples.items())})
print("mean effect between 0 and 9:", bool((0 < samples["mu"].mean()) & (samples["mu"].mean() < 9)))
