"""Array functions, indexing and dtypes as NumPy has them."""

import jax
import jax.numpy as jnp
import numpy as np

x = jnp.arange(12).reshape(3, 4)
print(x[1], x[:, -1], x[x % 2 == 0], x[jnp.array([0, 2]), jnp.array([1, 3])])
print(x.at[1, 2].set(100).at[0].add(1).at[:, 0].multiply(-1))
print(jnp.where(x > 5, x, 0), jnp.argmax(x, axis=1), jnp.cumsum(x, axis=0)[-1])
print(jnp.sort(jnp.array([3, 1, 2]))[::-1], jnp.unique(jnp.array([2, 1, 2]), return_counts=True))
print(jnp.concatenate([x, x], axis=1).shape, jnp.stack([x, x]).shape, jnp.split(x, 2, axis=1)[1])
print((x / 2).dtype, (x * 1.5).dtype, jnp.float32(1) + jnp.int8(2), jnp.bfloat16(1.5) * 2, jnp.result_type(x, 1.0))
print(jnp.mean(x), jnp.std(x, ddof=1), jnp.percentile(x, 30), jnp.median(x))
print(jnp.histogram(jnp.array([1.0, 2.0, 2.5, 4.0]), bins=3), jnp.digitize(jnp.array([0.5, 2.5]), jnp.arange(4)))
print(jnp.interp(2.5, jnp.arange(5.0), jnp.arange(5.0) ** 2), jnp.convolve(jnp.ones(3), jnp.arange(3.0)))
print(repr(x), str(jnp.array([1.5, 2.25])), f"{jnp.float32(3.14159):.2f}")
print(np.asarray(x).sum(), float(x[0, 1]), int(x[2, 3]), x.tolist()[0], len(x), x.shape, x.ndim, x.size, x.nbytes)
print(
    jax.nn.softmax(jnp.arange(3.0)), jax.nn.one_hot(jnp.array([0, 2]), 3), jax.scipy.special.logsumexp(jnp.arange(3.0))
)
print(jax.scipy.stats.norm.logpdf(0.5), jax.scipy.special.gammaln(4.5), *jax.lax.top_k(jnp.array([1, 5, 3]), 2))
for error, f in [(TypeError, lambda: jnp.zeros(3) @ jnp.zeros(4)), (IndexError, lambda: x[0, 0, 0])]:
    try:
        f()
    except error:
        print(error.__name__)
