"""What tests with random cases draw from."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from phalanx.sharding import Mesh, P


@st.composite
def specs(draw: Any, mesh: Mesh, ndim: int) -> P:
    """Specs of arrays of `ndim` dimensions over a mesh: each axis splits one of them, or none."""
    dims: list[list] = [[] for _ in range(ndim)]
    for axis in draw(st.permutations(mesh.axis_names)):
        place = draw(st.integers(0, ndim))
        if place < ndim:
            dims[place].append(axis)
    return P(*map(tuple, dims))
