"""Meshes for tests of what the partitioner does, whose axes are Auto; those of `make_mesh` are Explicit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.sharding import AxisType, Mesh, make_mesh


def auto_mesh(sizes: tuple, names: Sequence[str], **options: Any) -> Mesh:
    """`make_mesh` with axes that are left to the partitioner; a string names an axis by each letter."""
    return make_mesh(sizes, tuple(names), AxisType.Auto, **options)
