"""Matrix products in block-scaled formats: blocks of 4- or 8-bit floating-point numbers that share a scale.

The formats are MXFP8 (OCP Microscaling Formats specification 1.0), and NVFP4, whose block scales are 8-bit numbers
with a further scale for the whole array. Builds on `lax.scaled_dot`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from phalanx import lax
from phalanx.core import ArgumentError, ShapeError, dtypes, get_aval
from phalanx.custom_rules import custom_vjp
from phalanx.lax.contraction.dot_general import DotDimensionNumbers
from phalanx.transforms import vjp
from phalanx.typing import Array, ArrayLike, DTypeLike


class BlockScaleConfig(NamedTuple):
    """A block-scaled format of an operand.

    Args:
      mode: `"mxfp8"` or `"nvfp4"`.
      block_size: number of elements that share a scale.
      data_type: the dtype of the elements.
      scale_type: the dtype of the block scales.
      global_scale: f32[1] or None, a factor for the whole array.
      infer_only: whether derivatives are not needed.

    Examples:
      >>> get_scaled_dot_general_config("nvfp4").block_size
      16
    """

    mode: str
    block_size: int
    data_type: Any
    scale_type: Any
    global_scale: Any
    infer_only: bool


def get_scaled_dot_general_config(mode: str, global_scale: ArrayLike | None = None) -> BlockScaleConfig:
    """Return a format of operands for `scaled_dot_general`.

    Args:
      mode: `"mxfp8"`, blocks of 32 `float8_e4m3fn` with a power of two, or `"nvfp4"`, blocks of 16 `float4_e2m1fn`
        with a `float8_e4m3fn`.
      global_scale: for `"nvfp4"`, a factor f32[1] of the whole array; 1 if None.

    Returns:
      The format.

    Raises:
      ArgumentError: `mode` is unknown, or has no global scale.

    Examples:
      >>> get_scaled_dot_general_config("mxfp8").block_size
      32
    """
    if mode == "nvfp4":
        factor = np.ones(1, np.float32) if global_scale is None else global_scale
        return BlockScaleConfig(mode, 16, ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e4m3fn, factor, False)
    if mode != "mxfp8" or global_scale is not None:
        raise ArgumentError(
            "get_scaled_dot_general_config",
            expected='the mode "mxfp8", which has no global scale, or "nvfp4"',
            got=f"{mode!r}" + ("" if global_scale is None else " with a global scale"),
            fix="pass mode='mxfp8' without global_scale, or mode='nvfp4'",
        )
    return BlockScaleConfig(mode, 32, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu, None, False)


def scaled_matmul(
    lhs: ArrayLike,
    rhs: ArrayLike,
    lhs_scales: ArrayLike,
    rhs_scales: ArrayLike,
    preferred_element_type: DTypeLike = np.float32,
) -> Any:
    """Batched matrix product of operands that are stored in blocks along the last dimension.

    Args:
      lhs: num[b, m, k].
      rhs: num[b, n, k].
      lhs_scales: num[b, m, k / block].
      rhs_scales: num[b, n, k / block].
      preferred_element_type: dtype of the result.

    Returns:
      num[b, m, n].

    Raises:
      ShapeError: the shapes do not fit.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> x, scale = jnp.ones((1, 2, 32), "float8_e4m3fn"), jnp.full((1, 2, 1), 2, "float8_e8m0fnu")
      >>> phalanx.nn.scaled_matmul(x, x, scale, scale).tolist()
      [[[128.0, 128.0], [128.0, 128.0]]]
    """
    shapes = [get_aval(x).shape for x in (lhs, rhs, lhs_scales, rhs_scales)]
    (left, right), scales = shapes[:2], shapes[2:]
    fits = len(left) == len(right) == 3 and left[0] == right[0] and left[2] == right[2]
    if not fits or any(s[:2] != x[:2] or len(s) != 3 for s, x in zip(scales, (left, right))):
        raise ShapeError(
            "scaled_matmul",
            expected="lhs [b, m, k], rhs [b, n, k], lhs_scales [b, m, blocks] and rhs_scales [b, n, blocks]",
            got=", ".join(str(list(shape)) for shape in shapes),
            fix="transpose rhs, and give one scale for each block along the last dimension",
        )
    return lax.scaled_dot(
        lhs,
        rhs,
        lhs_scale=lhs_scales,
        rhs_scale=rhs_scales,
        dimension_numbers=(((2,), (2,)), ((0,), (0,))),
        preferred_element_type=preferred_element_type,
    )


def scaled_dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    dimension_numbers: DotDimensionNumbers,
    preferred_element_type: DTypeLike = np.float32,
    configs: Sequence[BlockScaleConfig] | None = None,
    implementation: str | None = None,
) -> Any:
    """A `dot_general` whose operands are rounded to a block-scaled format, also in the derivatives.

    Args:
      lhs, rhs: float operands.
      dimension_numbers: as for `lax.dot_general`.
      preferred_element_type: dtype of the result.
      configs: three formats: of the operands, and of the operands of the products for the cotangents of `lhs` and of
        `rhs`. Blocks run along the last contracted dimension. None computes the product without rounding.
      implementation: only None; the compiler chooses the kernel.

    Returns:
      The product.

    Raises:
      ArgumentError: `configs` has not three formats, or `implementation` is not None.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> config = phalanx.nn.get_scaled_dot_general_config("mxfp8")
      >>> x = jnp.ones((2, 32))
      >>> phalanx.nn.scaled_dot_general(x, x, (((1,), (1,)), ((), ())), configs=[config] * 3).tolist()
      [[32.0, 32.0], [32.0, 32.0]]
    """
    if implementation is not None or (configs is not None and len(configs) != 3):
        raise ArgumentError(
            "scaled_dot_general",
            expected="configs for the operands and the two cotangents, and no implementation",
            got=f"{0 if configs is None else len(configs)} configs, implementation={implementation!r}",
            fix="pass configs=[config] * 3",
        )
    numbers = tuple(tuple(tuple(map(int, dims)) for dims in pair) for pair in dimension_numbers)
    dtype = np.dtype(preferred_element_type)
    if configs is None:
        return lax.dot_general(lhs, rhs, numbers, preferred_element_type=dtype)
    modes = tuple([config.mode for config in configs])
    return _rounded_product(lhs, rhs, tuple([config.global_scale for config in configs]), numbers, dtype, modes)


@functools.partial(custom_vjp, nondiff_argnums=(3, 4, 5))
def _rounded_product(
    lhs: Array, rhs: Array, factors: tuple, numbers: DotDimensionNumbers, dtype: np.dtype, modes: tuple
) -> Any:
    (left, right), _ = numbers
    lhs, rhs = _round_to_format(lhs, left, modes[0], factors[0]), _round_to_format(rhs, right, modes[0], factors[0])
    return lax.dot_general(lhs, rhs, numbers, preferred_element_type=dtype)


def _forward(
    lhs: Array, rhs: Array, factors: tuple, numbers: DotDimensionNumbers, dtype: np.dtype, modes: tuple
) -> tuple:
    return _rounded_product(lhs, rhs, factors, numbers, dtype, modes), (lhs, rhs, factors)


def _backward(numbers: DotDimensionNumbers, dtype: np.dtype, modes: tuple, residuals: tuple, y_bar: Array) -> tuple:
    lhs, rhs, factors = residuals
    (left, right), (left_batch, right_batch) = numbers
    # The cotangent of an operand is the product of the cotangent of the result and of the other operand, both rounded
    # along the dimensions that this product contracts.
    free_left = [d for d in range(lhs.ndim) if d not in left + left_batch]
    free_right = [d for d in range(rhs.ndim) if d not in right + right_batch]
    first = len(left_batch) + len(free_left)

    def differentiate(
        which: int, other: Array, free: list, y_dims: range, product: Callable[..., Array], primal: Array
    ) -> Any:
        given = _round_to_format(y_bar, y_dims, modes[which], factors[which])
        held = _round_to_format(other, free, modes[which], factors[which])
        return vjp(lambda x: product(x, held), primal)[1](given)[0]

    product = functools.partial(lax.dot_general, dimension_numbers=numbers, preferred_element_type=dtype)
    lhs_bar = differentiate(1, rhs, free_right, range(first, y_bar.ndim), lambda x, held: product(x, held), lhs)
    rhs_bar = differentiate(2, lhs, free_left, range(len(left_batch), first), lambda x, held: product(held, x), rhs)
    return lhs_bar, rhs_bar, None


_rounded_product.defvjp(_forward, _backward)


def _round_to_format(x: Array, dims: Sequence[int], mode: str, factor: Array | None) -> Any:
    """Round `x` to a block-scaled format, with blocks along the last of `dims`; no change without `dims`."""
    if not dims:
        return x
    config = get_scaled_dot_general_config(mode, factor)
    dim, shape, size = dims[-1], x.shape, config.block_size
    # The blocked dimension is moved to the end and padded to whole blocks; both are undone after rounding.
    moved = lax.transpose(x, [*(d for d in range(x.ndim) if d != dim), dim])
    count = -(-shape[dim] // size)
    padded = lax.pad(moved, np.zeros((), x.dtype), [(0, 0, 0)] * (x.ndim - 1) + [(0, count * size - shape[dim], 0)])
    blocks = lax.convert_element_type(lax.reshape(padded, (*padded.shape[:-1], count, size)), np.float32)
    scale = _scales(blocks, config)
    limit = float(dtypes.finfo(config.data_type).max)
    small = lax.clamp(np.float32(-limit), lax.div(blocks, scale), np.float32(limit))
    held = lax.convert_element_type(lax.convert_element_type(small, config.data_type), np.float32)
    back = lax.reshape(lax.mul(held, scale), padded.shape)
    back = lax.slice_in_dim(back, 0, shape[dim], axis=x.ndim - 1)
    order = list(range(x.ndim - 1))
    order.insert(dim, x.ndim - 1)
    return lax.convert_element_type(lax.transpose(back, order), x.dtype)


def _scales(blocks: Array, config: BlockScaleConfig) -> Any:
    """Compute the scale of each block, rounded to its dtype and broadcast over the block."""
    largest = lax.reduce_max(lax.abs(blocks), (blocks.ndim - 1,))
    top = float(dtypes.finfo(config.data_type).max)
    if config.mode == "mxfp8":
        # The power of two that maps the largest exponent in the block to the largest exponent of the dtype. A float32
        # has its exponent above 23 bits of mantissa, with a bias of 127, as the dtype of the scales has.
        bits = lax.shift_right_logical(lax.bitcast_convert_type(largest, np.int32), np.int32(23))
        exponent = lax.sub(bits, np.int32(127 + int(np.log2(top))))
        scale = lax.exp2(lax.convert_element_type(lax.clamp(np.int32(-127), exponent, np.int32(127)), np.float32))
    else:
        # NVFP4: the block scale is itself rounded to float8, relative to the scale of the whole array.
        factor = lax.reshape(lax.convert_element_type(config.global_scale, np.float32), ())
        wanted = lax.div(largest, lax.mul(factor, np.float32(top)))
        wanted = lax.clamp(np.float32(0), wanted, np.float32(float(dtypes.finfo(config.scale_type).max)))
        held = lax.convert_element_type(lax.convert_element_type(wanted, config.scale_type), np.float32)
        scale = lax.mul(held, factor)
    scale = lax.select(lax.gt(scale, np.float32(0)), scale, lax.full_like(scale, 1))
    return lax.broadcast_in_dim(scale, blocks.shape, tuple(range(blocks.ndim - 1)))
