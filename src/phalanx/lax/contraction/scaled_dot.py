"""Products of block-scaled operands: `scaled_dot`.

The operands are multiplied by their scales in a wider dtype, in which the product is computed; a compiler may replace
the pattern by a kernel. Builds on `dot_general`; called by `nn.scaled_matmul` and `nn.scaled_dot_general`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.core import ShapeError, dtypes, get_aval
from phalanx.lax.contraction.dot_general import DotDimensionNumbers, dot_general
from phalanx.lax.elementwise import convert_element_type, mul
from phalanx.lax.shape import broadcast_in_dim, reshape
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import ArrayLike, DTypeLike


@eager_jit(static_argnames=("dimension_numbers", "preferred_element_type"))
def scaled_dot(
    lhs: ArrayLike,
    rhs: ArrayLike,
    *,
    lhs_scale: ArrayLike | None = None,
    rhs_scale: ArrayLike | None = None,
    dimension_numbers: DotDimensionNumbers | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Any:
    """A `dot_general` of block-scaled operands.

    Args:
      lhs, rhs: arrays of any numeric dtype, such as `float8_e4m3fn` or `float4_e2m1fn`.
      lhs_scale, rhs_scale: the scales, of the rank of their operand. Each size divides the size of the operand; the
        quotient is the number of consecutive elements that share a scale. None for an operand without scales.
      dimension_numbers: as in `dot_general`; the (batched) matrix product if None.
      preferred_element_type: the dtype of the result; `bfloat16` if None.

    Returns:
      The product, accumulated in `float32` at least.

    Raises:
      ShapeError: the shape of a scale does not divide the shape of its operand, or paired dimensions differ.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import lax
      >>> lhs = jnp.ones((1, 4), "float8_e4m3fn")
      >>> lax.scaled_dot(lhs, lhs.T, lhs_scale=jnp.array([[2.0, 3.0]])).tolist()
      [[10.0]]
    """
    if dimension_numbers is None:
        batch = tuple(range(get_aval(lhs).ndim - 2))
        dimension_numbers = ((len(batch) + 1,), (len(batch),)), (batch, batch)
    dtype = np.dtype(dtypes.bfloat16 if preferred_element_type is None else preferred_element_type)
    wide = np.promote_types(dtype, np.float32)
    operands = [
        apply_scale(f"lax.scaled_dot, {name}", x, scale, wide)
        for name, x, scale in (("lhs_scale", lhs, lhs_scale), ("rhs_scale", rhs, rhs_scale))
    ]
    product = dot_general(*operands, dimension_numbers, preferred_element_type=wide)
    return convert_element_type(product, dtype)


def apply_scale(where: str, x: ArrayLike, scale: ArrayLike, dtype: DTypeLike) -> Any:
    """Multiply elements by their scales, in a wider dtype."""
    wide = convert_element_type(x, dtype)
    if scale is None:
        return wide
    shape, blocks = get_aval(x).shape, get_aval(scale).shape
    if len(shape) != len(blocks) or any(n == 0 or size % n for size, n in zip(shape, blocks)):
        raise ShapeError(
            where,
            expected=f"a scale whose sizes divide the sizes of {get_aval(x).str_short()}",
            got=get_aval(scale).str_short(),
            fix="pass one scale for each block, and size 1 along dimensions that share a scale",
        )
    # Each dimension is split to (blocks, block size); the scale is broadcast along the block size.
    split = [part for size, n in zip(shape, blocks) for part in (n, size // n)]
    spread = broadcast_in_dim(convert_element_type(scale, dtype), tuple(split), tuple(range(0, 2 * len(shape), 2)))
    return mul(wide, reshape(spread, shape))
