"""`thread_resources`, from which older programs read the current mesh."""

from __future__ import annotations

from phalanx.sharding import Mesh, get_mesh


class ResourceEnv:
    """The resources that a surrounding `with mesh:` block defines.

    Examples:
      >>> import phalanx
      >>> with phalanx.make_mesh((1,), ("x",)):
      ...     ResourceEnv().physical_mesh.axis_names
      ('x',)
    """

    @property
    def physical_mesh(self) -> Mesh:
        """The current mesh; a mesh without axes if there is none."""
        return get_mesh()


class _ThreadResources:
    env = ResourceEnv()


thread_resources = _ThreadResources()
"""Holder of the current mesh, `thread_resources.env.physical_mesh`."""
