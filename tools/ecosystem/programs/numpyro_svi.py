"""Variational inference for a Bayesian linear regression."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

x = jax.random.normal(jax.random.key(0), (50, 2))
y = x @ jnp.array([1.0, -0.5]) + 0.1 * jax.random.normal(jax.random.key(1), (50,))


def model(x, y):
    w = numpyro.sample("w", dist.Normal(jnp.zeros(2), 1).to_event(1))
    sigma = numpyro.sample("sigma", dist.LogNormal(0.0, 1.0))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(x @ w, sigma), obs=y)


guide = AutoNormal(model)
svi = SVI(model, guide, numpyro.optim.Adam(0.05), Trace_ELBO())
result = svi.run(jax.random.key(2), 400, x, y, progress_bar=False)
print(guide.median(result.params)["w"].round(1))
