"""Keeps the newest two of four checkpoints of a training loop, and continues from the last one."""

import tempfile

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

state = {"w": jnp.zeros(3)}
with (
    tempfile.TemporaryDirectory() as folder,
    ocp.CheckpointManager(folder, options=ocp.CheckpointManagerOptions(max_to_keep=2)) as manager,
):
    for step in range(4):
        state = {"w": state["w"] + step}
        manager.save(step, args=ocp.args.StandardSave(state))
    manager.wait_until_finished()
    like = jax.tree.map(ocp.utils.to_shape_dtype_struct, state)
    print(manager.all_steps(), manager.restore(manager.latest_step(), args=ocp.args.StandardRestore(like))["w"])
