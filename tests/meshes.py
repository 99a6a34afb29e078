"""Meshes for tests of what the partitioner does, whose axes are Auto; those of `make_mesh` are Explicit."""

from __future__ import annotations

from typing import Any

from phalanx.sharding import AxisType, Mesh, make_mesh


def auto_mesh(sizes: tuple, names: tuple, **options: Any) -> Mesh:
    """`make_mesh` with axes that are left to the partitioner."""
    return make_mesh(sizes, names, AxisType.Auto, **options)
