"""A training step whose shapes, dtypes and values are asserted, also inside jit."""

import chex
import jax
import jax.numpy as jnp


@chex.dataclass
class State:
    w: chex.Array
    step: int


@chex.chexify
@jax.jit
def update(state, x):
    chex.assert_rank(x, 2)
    chex.assert_equal_shape([state.w, x[0]])
    chex.assert_tree_all_finite(x)
    return State(w=state.w - 0.1 * x.mean(0), step=state.step + 1)


state = State(w=jnp.zeros(3), step=0)
for i in range(3):
    state = update(state, jnp.full((4, 3), i + 1.0))
print(state.step, state.w.round(3))
try:
    update(state, jnp.full((4, 3), jnp.nan))
    update.wait_checks()
except Exception as error:
    print("refused:", type(error).__name__)
try:
    chex.assert_shape(state.w, (4,))
except AssertionError:
    print("wrong shape refused")
