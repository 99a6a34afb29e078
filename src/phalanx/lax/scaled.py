"""Products of operands that are stored in few bits, with a scale for each block of elements: `scaled_dot`.

Builds on `dot`; `nn.scaled_matmul` and `nn.scaled_dot_general` call it. The operands are brought to a wider type, in
which the product is taken; a compiler with a kernel for the pattern may put it in.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.core import dtypes
from phalanx.core.aval import aval_of
from phalanx.core.errors import ShapeError
from phalanx.lax.arithmetic import mul
from phalanx.lax.broadcast import broadcast_in_dim
from phalanx.lax.convert import convert_element_type
from phalanx.lax.dot import DotDimensionNumbers, dot_general
from phalanx.lax.shape import reshape
from phalanx.runtime.dispatch import eager_program


@eager_program(static_argnames=("dimension_numbers", "preferred_element_type"))
def scaled_dot(
    lhs: Any,
    rhs: Any,
    *,
    lhs_scale: Any = None,
    rhs_scale: Any = None,
    dimension_numbers: DotDimensionNumbers | None = None,
    preferred_element_type: Any = None,
) -> Any:
    """General product of operands whose elements are multiplied by a scale block by block.

    Args:
      lhs, rhs: numbers of any width, such as `float8_e4m3fn` or `float4_e2m1fn`.
      lhs_scale, rhs_scale: scales, of the rank of their operand; each size divides the operand's, and an element of the
        scale counts for as many elements in a row. None for an operand without scales.
      dimension_numbers: as for `dot_general`; of two matrices, or two stacks of them, their product if not given.
      preferred_element_type: dtype of the result, `bfloat16` if not given.

    Returns:
      The product, in whose type the sums are taken, in `float32` at least.

    Raises:
      ShapeError: a scale does not divide its operand, or the operands do not fit.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import lax
      >>> lhs = jnp.ones((1, 4), "float8_e4m3fn")
      >>> lax.scaled_dot(lhs, lhs.T, lhs_scale=jnp.array([[2.0, 3.0]])).tolist()
      [[10.0]]
    """
    if dimension_numbers is None:
        batch = tuple(range(aval_of(lhs).ndim - 2))
        dimension_numbers = ((len(batch) + 1,), (len(batch),)), (batch, batch)
    dtype = np.dtype(dtypes.bfloat16 if preferred_element_type is None else preferred_element_type)
    wide = np.promote_types(dtype, np.float32)
    operands = [
        unscaled(f"lax.scaled_dot, {name}", x, scale, wide)
        for name, x, scale in (("lhs_scale", lhs, lhs_scale), ("rhs_scale", rhs, rhs_scale))
    ]
    product = dot_general(*operands, dimension_numbers, preferred_element_type=wide)
    return convert_element_type(product, dtype)


def unscaled(where: str, x: Any, scale: Any, dtype: Any) -> Any:
    """The numbers that elements and scales stand for, in a wider dtype."""
    wide = convert_element_type(x, dtype)
    if scale is None:
        return wide
    shape, blocks = aval_of(x).shape, aval_of(scale).shape
    if len(shape) != len(blocks) or any(n == 0 or size % n for size, n in zip(shape, blocks)):
        raise ShapeError(
            where,
            expected=f"a scale whose sizes divide those of {aval_of(x).str_short()}",
            got=aval_of(scale).str_short(),
            mend="give one scale for each block of elements, and size 1 along dimensions that share one",
        )
    split = [part for size, n in zip(shape, blocks) for part in (n, size // n)]
    spread = broadcast_in_dim(convert_element_type(scale, dtype), tuple(split), tuple(range(0, 2 * len(shape), 2)))
    return mul(wide, reshape(spread, shape))
