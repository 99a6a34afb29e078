"""The switch behind `with mesh:` and `set_mesh`: the mesh in this thread's context.

Builds on `core.config`; `mesh.py` and `context.py`, its public face, call it.
"""

from __future__ import annotations

from typing import Any

from phalanx.core.config import state
from phalanx.core.errors import ShardingError


def replace_mesh(mesh: Any) -> Any:
    """Put a mesh in force and give the former one; refused where the program at hand would be half of each."""
    outer = state.context.mesh
    mesh = None if mesh is None or mesh.empty else mesh
    if mesh is outer:
        return outer
    if state.trace is not None and _is_compiling():
        raise ShardingError(
            "changing the mesh inside a compiled function",
            expected=f"the mesh it was called under, {outer or 'none'!s}",
            got="no mesh" if mesh is None else mesh,
            mend="enter the mesh around the call, or name it in NamedSharding(mesh, spec) or shard_map(..., mesh=mesh)",
        )
    state.context = state.context.replace(mesh=mesh)
    return outer


def _is_compiling() -> bool:
    from phalanx.core.trace import StagingTrace

    trace = state.trace
    while trace is not None:
        if type(trace) is StagingTrace:
            return True
        trace = trace.parent
    return False
