"""Annotations of shapes and dtypes, checked at run time, also under jit and grad."""

import jax
import jax.numpy as jnp
from beartype import beartype
from jaxtyping import Array, Float, Int, PyTree, jaxtyped


@jaxtyped(typechecker=beartype)
def attend(query: Float[Array, "n d"], key: Float[Array, "m d"], mask: Int[Array, "n m"]) -> Float[Array, "n m"]:
    return jnp.where(mask == 1, query @ key.T, -jnp.inf)


query, key = jnp.ones((2, 3)), jnp.ones((4, 3))
print(jax.jit(attend)(query, key, jnp.ones((2, 4), int)))
print(jax.grad(lambda q: attend(q, key, jnp.ones((2, 4), int)).sum())(query))
for bad in ((query, jnp.ones((4, 2)), jnp.ones((2, 4), int)), (query, key, jnp.ones((2, 4)))):
    try:
        attend(*bad)
    except Exception as error:
        print("refused:", type(error).__name__)
print(isinstance({"a": query}, PyTree[Float[Array, "_ 3"]]))
