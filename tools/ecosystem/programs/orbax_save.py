"""Saves a tree of arrays, and restores it with other shardings and as host arrays."""

import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

tree = {"layer": {"w": jnp.arange(12.0).reshape(3, 4), "b": jnp.ones(4, jnp.bfloat16)}, "step": 7}
checkpointer = ocp.StandardCheckpointer()
with tempfile.TemporaryDirectory() as folder:
    checkpointer.save(f"{folder}/first", tree)
    checkpointer.wait_until_finished()
    restored = checkpointer.restore(f"{folder}/first", jax.tree.map(ocp.utils.to_shape_dtype_struct, tree))
    on_host = ocp.PyTreeCheckpointer().restore(
        f"{folder}/first", restore_args=jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
    )
checkpointer.close()
print(restored["layer"]["w"].sum(), restored["layer"]["b"].dtype, restored["step"])
print(type(on_host["layer"]["w"]).__name__, on_host["layer"]["w"][1])
