"""The seats that lower rooms keep for operations: the structure of tangent spaces, and the moving of dimensions.

Importing `phalanx.lax` imports this file, which sits down.
"""

from __future__ import annotations

from typing import Any

from phalanx.core.tangent import vector_space
from phalanx.lax.broadcast import add_dim, move_dim, reduce_sum_p, zeros
from phalanx.lax.collectives import psum
from phalanx.lax.convert import as_type, convert_element_type
from phalanx.lax.elementwise import add_p
from phalanx.lax.explicit import conform, open_type, split_dim
from phalanx.lax.varying import pvary_p
from phalanx.transforms.batching import dims


class _VectorSpace:
    zeros = staticmethod(zeros)
    add = staticmethod(add_p)
    convert = staticmethod(convert_element_type)
    as_type = staticmethod(as_type)
    conform = staticmethod(conform)
    open_type = staticmethod(open_type)

    @staticmethod
    def sum(x: Any, dim: int) -> Any:
        return reduce_sum_p(x, dims=(dim,))

    @staticmethod
    def sum_over_axes(x: Any, names: frozenset) -> Any:
        return psum(x, tuple(sorted(names, key=str)))

    @staticmethod
    def vary(x: Any, names: frozenset) -> Any:
        return pvary_p(x, axes=tuple(sorted(names, key=str)))


class _Dims:
    move = staticmethod(move_dim)
    split = staticmethod(split_dim)

    @staticmethod
    def broadcast(x: Any, size: Any, dim: int) -> Any:
        return add_dim(x, dim, size)


vector_space.take(_VectorSpace)
dims.take(_Dims)
