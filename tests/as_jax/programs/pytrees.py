"""Pytrees: registered classes, paths, transposes, ravelling."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jax.flatten_util import ravel_pytree


@jtu.register_pytree_node_class
class Interval:
    def __init__(self, low, high):
        self.low, self.high = low, high

    def tree_flatten(self):
        return (self.low, self.high), None

    @classmethod
    def tree_unflatten(cls, aux, children):
        return cls(*children)

    def __repr__(self):
        return f"Interval({self.low}, {self.high})"


@jtu.register_dataclass
@dataclasses.dataclass
class State:
    step: jax.Array
    name: str = dataclasses.field(metadata=dict(static=True))


class Point(NamedTuple):
    x: float
    y: float


tree = {"interval": Interval(1.0, 2.0), "points": [Point(3.0, 4.0), None], "state": State(jnp.int32(7), "run")}
leaves, treedef = jax.tree.flatten(tree)
print(len(leaves), treedef.num_leaves, jax.tree.unflatten(treedef, leaves)["points"])
for path, leaf in jtu.tree_leaves_with_path(tree):
    print(jtu.keystr(path), leaf)
print(jax.tree.map(lambda a, b: a + b, tree, tree)["interval"])
print(jax.tree.reduce(lambda a, b: a + b, [1, (2, 3)]), jax.tree.all({"a": True, "b": (True, False)}))
flat, unravel = ravel_pytree({"w": jnp.ones((2, 2)), "b": jnp.zeros(1)})
print(flat, unravel(flat * 3)["w"])
print(jax.tree.transpose(jax.tree.structure([0, 0]), jax.tree.structure({"a": 0}), [{"a": 1}, {"a": 2}]))
print(jax.jit(lambda s: dataclasses.replace(s, step=s.step + 1))(tree["state"]))
print(jax.tree.structure(tree) == jax.tree.structure(jax.tree.map(lambda x: 0, tree)))
