"""Named axes, selections of parts of a tree, and edits of them."""

import jax.numpy as jnp
from penzai import pz

x = pz.nx.wrap(jnp.arange(6.0).reshape(2, 3)).tag("row", "column")
weights = pz.nx.wrap(jnp.array([1.0, 0.0, -1.0])).tag("column")
product = pz.nx.nmap(jnp.dot)(x.untag("column"), weights.untag("column"))
print(product.named_shape, product.unwrap("row"))
print((x + weights).unwrap("row", "column"))
tree = {"a": [1, 2.0], "b": (3.0, "text")}
floats = pz.select(tree).at_instances_of(float)
print(floats.apply(lambda v: v * 10))
print(floats.count(), sorted(floats.get_sequence()))
